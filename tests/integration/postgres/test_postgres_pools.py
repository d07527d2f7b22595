"""What sessions draw from their owner's pool costs their commits no round trip of its own, and nobody waits for it but whoever draws."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply, ToolCall, tool
from perdure.core.records import Amounts, Limits, Pool
from perdure.runtime.verify import verify
from perdure.store.base import AlreadyTaken, Commit, Committed
from perdure.store.conformance.kit import catalogue, content, create, creation, step
from perdure.store.memory import MemoryStore
from perdure.store.pools import Draw, PoolShort, Share
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.line import Line
from tests.postgres import Server

AT_OTHER_TIMES = {"announce", "snapshot", "listen", "heartbeat"}
"""What no write waits for."""


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that went to the server, by name."""
    seen: list[str] = []
    begin = Line.begin

    def seeing(line: Line, name: str, *values: Any) -> None:
        if name not in AT_OTHER_TIMES:
            seen.append(name)
        begin(line, name, *values)

    monkeypatch.setattr(Line, "begin", seeing)
    return seen


@asynccontextmanager
async def opened(postgres: Server, schema: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres.store(schema))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def draw(drawn: int, used: int = 0, *, owner: str = "acme", ends: bool = False) -> Draw:
    return Draw(owner=owner, pool="p1", drawn=Amounts(tokens=drawn), used=Amounts(tokens=used), ends=ends)


async def drawn_of(store: PostgresStore, owner: str = "acme") -> int:
    pool = await store.pool(owner)
    assert pool is not None
    return pool.drawn.tokens


async def test_a_commit_that_draws_gives_back_or_takes_what_only_one_may_is_one_round_trip_like_any_other(
    postgres: Server, trips: list[str]
) -> None:
    async with opened(postgres, postgres.schema()) as store:
        no, other = await create(store, "s"), await create(store, "other")
        await store.change_pool("acme", Limits(tokens=100), fresh="p1", add=False)

        async def cost(commit: Commit, answered: type) -> list[str]:
            trips.clear()
            assert type(await store.commit(commit)) is answered
            return list(trips)

        assert await cost(step(other), Committed) == ["write"]
        assert await cost(step(no, draws=(draw(10),)), Committed) == ["write"]
        assert await cost(step(no, 2, draws=(draw(10, 4, ends=True), draw(30))), Committed) == ["write"]
        assert await cost(step(other, 2, draws=(draw(67),)), PoolShort) == ["write"]
        assert await cost(step(no, 3, taken=(("l", "t1.0.2"), ("k", "t1.0.1")), draws=(draw(40, 10),)), Committed) == ["commit_alone"]
        assert await cost(step(other, 2, taken=(("a", "t1.0.0"), ("k", "t1.0.1"))), AlreadyTaken) == ["commit_alone"]
        assert await cost(step(no, 4, decided=(("t1.0.1", "succeeded", 5), ("t1.0.2", None, 5))), Committed) == ["write"]
        assert await cost(step(no, 5, catalogue=catalogue(status="halted")), Committed) == ["write"]
        assert await drawn_of(store) == 4 + 10
        assert await store.share(no) is None
        assert await store.unique("a") is None
        assert await store.unique("l") is None
        kept = await store.unique("k")
        assert kept is not None
        assert (kept.state, kept.seq) == ("succeeded", 5)


async def test_what_was_taken_with_a_draw_that_is_refused_is_free(postgres: Server) -> None:
    async with opened(postgres, postgres.schema()) as store:
        no, other = await create(store, "s"), await create(store, "other")
        await store.change_pool("acme", Limits(tokens=10), fresh="p1", add=False)
        assert isinstance(await store.commit(step(no, taken=(("mine", "t1.0.0"),))), Committed)
        again = step(no, 2, taken=(("k", "t1.0.1"), ("mine", "t1.0.0")), draws=(draw(11),))
        assert await store.commit(again) == PoolShort(Pool(id="p1", limits=Limits(tokens=10)))
        assert await store.unique("k") is None
        assert await store.unique("mine") is not None
        assert isinstance(await store.commit(step(other, taken=(("k", "t1.0.1"),))), Committed)


async def test_all_that_wait_together_draw_in_one_statement_and_whoever_finds_too_little_is_refused_alone(
    postgres: Server, trips: list[str]
) -> None:
    async with opened(postgres, postgres.schema()) as store:
        numbers = [await create(store, f"s{index}") for index in range(50)]
        await store.change_pool("acme", Limits(tokens=300), fresh="p1", add=False)
        trips.clear()
        answers = await asyncio.gather(*(store.commit(step(no, draws=(draw(10),))) for no in numbers))
        # Those that waited while the first was under way went together.
        assert 1 <= len(trips) <= 5
        assert [sum(isinstance(answer, kind) for answer in answers) for kind in (Committed, PoolShort)] == [30, 20]
        assert await drawn_of(store) == 300
        for no, answer in zip(numbers, answers, strict=True):
            held = Share(owner="acme", pool="p1", drawn=Amounts(tokens=10), used=Amounts())
            assert await store.share(no) == (held if isinstance(answer, Committed) else None)


async def test_who_draws_from_a_pool_that_somebody_else_has_locked_holds_up_nobody_but_itself(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        one, two = await create(store, "one"), await create(store, "two")
        await store.change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
        with psycopg.connect(postgres.url) as holder:
            holder.execute(f"SELECT FROM \"{schema}\".pools WHERE owner = 'acme' FOR UPDATE".encode())
            waiting = [asyncio.create_task(store.commit(step(one, version, draws=(draw(10 * version),)))) for version in (1, 2)]
            for version in range(1, 20):
                assert await store.commit(step(two, version)) == Committed(version + 1, 0, 1)
            assert not any(task.done() for task in waiting)
        assert [(await task).version for task in waiting] == [2, 3]  # type: ignore[union-attr]
        assert await drawn_of(store) == 20


async def test_processes_whose_statements_draw_from_the_same_pools_in_any_order_never_deadlock_and_never_overdraw(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store, opened(postgres, schema) as peer:
        owners = ("a", "b", "c")
        numbers = {
            (owner, index): await create(store, f"{owner}{index}", create=creation(root=f"{owner}{index}", owner=owner))
            for owner in owners
            for index in range(10)
        }
        for owner in owners:
            await store.change_pool(owner, Limits(tokens=1000), fresh="p1", add=False)
        before = postgres.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")

        async def steps(at: PostgresStore, owner: str, no: int) -> int:
            got = 0
            for version in range(1, 21):
                answer = await at.commit(step(no, version, draws=(draw(10 * version, owner=owner),)))
                if isinstance(answer, PoolShort):
                    break
                assert isinstance(answer, Committed)
                got += 10
            return got

        # In one process the owners come in one order, in the other in the other.
        order = sorted(numbers)
        mine = [steps(store, owner, numbers[owner, index]) for owner, index in order if index % 2]
        theirs = [steps(peer, owner, numbers[owner, index]) for owner, index in reversed(order) if not index % 2]
        assert sum(await asyncio.gather(*mine, *theirs)) == 3000
        assert [await drawn_of(store, owner) for owner in owners] == [1000] * 3
        assert postgres.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == before


async def test_a_turn_whose_owner_has_a_pool_writes_as_often_as_one_whose_owner_has_none(postgres: Server, trips: list[str]) -> None:
    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "there"

    def answer(request: ModelRequest) -> Reply:
        return Reply("done") if request.step == 3 else Reply(tool_calls=[ToolCall("look", {})])

    agent = Agent("a", model=FunctionModel(answer), tools=[look])
    async with perdure.open(postgres.store(postgres.schema())) as runtime:
        await runtime.pools.set("rich", Limits(tokens=10**9, model_calls=1000))

        async def writes(session: str, owner: str) -> list[str]:
            trips.clear()
            await runtime.run(agent, "go", session=session, owner=owner)
            return [name for name in trips if name in ("write", "commit_alone", "begin", "commit")]

        poor, rich = await writes("without", "poor"), await writes("with", "rich")
        # A message, 4 model calls and 3 calls of a tool: a commit before each call, and one that ends the turn.
        assert rich == poor == ["write"] * 9
        pool = await runtime.pools.get("rich")
        assert pool is not None
        assert pool.used["model_calls"] == 4
        assert [problem async for problem in verify(runtime.store)] == []


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_drawn_put_in_and_given_back_a_database_answers_as_memory_does(postgres: Server, seed: int) -> None:
    rolled = random.Random(seed)
    limits = (
        {"tokens": 300},
        {"tokens": 500, "cost": 400},
        {"seconds": 1, "steps": 300, "model_calls": 200, "tool_calls": 100},
        {"cost": 0},
    )
    names = Amounts.__struct_fields__

    def amounts(most: int) -> Amounts:
        return Amounts(
            **{
                name: rolled.choice((0, 0, rolled.randrange(most), -rolled.randrange(most), 2**53)[: 3 + (rolled.random() < 0.1) * 2])
                for name in names
            }
        )

    def draws() -> tuple[Draw, ...]:
        pools = rolled.choices(("p1", "p2", "p3"), (6, 3, 1), k=rolled.choice((0, 1, 1, 1, 2)))
        return tuple(Draw(owner="acme", pool=pool, drawn=amounts(200), used=amounts(200), ends=rolled.random() < 0.3) for pool in pools)

    memory = MemoryStore()
    await memory.open()
    async with opened(postgres, postgres.schema()) as store:
        for each in (memory, store):
            assert [await create(each, name) for name in "stu"] == [1, 2, 3]
        versions = dict.fromkeys((1, 2, 3), 1)
        answers = Counter[str]()
        for _ in range(150):
            match rolled.choice(("draw",) * 20 + ("set", "set", "add", "remove", "delete")):
                case "set" | "add" as how:
                    allowed, fresh = Limits(**rolled.choice(limits)), rolled.choice(("p1", "p2"))
                    made = [await each.change_pool("acme", allowed, fresh=fresh, add=how == "add") for each in (memory, store)]
                    assert made[0] == made[1]
                case "remove" if rolled.random() < 0.3:
                    assert await memory.remove_pool("acme") == await store.remove_pool("acme")
                case "delete" if rolled.random() < 0.1:
                    no = rolled.choice((1, 2, 3))
                    await memory.delete(no)
                    await store.delete(no)
                case "draw":
                    no = rolled.choice((1, 2, 3))
                    ends = {"catalogue": catalogue(status="halted")} if rolled.random() < 0.1 else {}
                    commit = step(no, versions[no], draws=draws(), **ends)
                    answer = await memory.commit(commit)
                    assert await store.commit(commit) == answer
                    versions[no] += isinstance(answer, Committed)
                    answers[type(answer).__name__] += 1
            assert await memory.pool("acme") == await store.pool("acme")
            assert [await memory.share(no) for no in versions] == [await store.share(no) for no in versions]
    assert min(answers["Committed"], answers["PoolShort"]) > 10


async def test_whoever_draws_does_not_wait_for_a_deletion_that_searches_its_tree(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        gone = content(b"gone")
        no, other = await create(store, create=creation(root="s", blobs=(gone,))), await create(store, "other")
        await store.change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
        assert isinstance(await store.commit(step(no, draws=(draw(10, 4),))), Committed)
        with psycopg.connect(postgres.url) as holder:
            holder.execute(f"SELECT FROM \"{schema}\".blobs WHERE digest = '{gone.digest}' FOR UPDATE".encode())
            deleting = asyncio.create_task(store.delete(no, erased=(gone.digest,)))
            waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%bury(%'"
            while not postgres.execute(waiting):
                await asyncio.sleep(0.001)
            assert isinstance(await store.commit(step(other, draws=(draw(20),))), Committed)
            assert not deleting.done()
        await deleting
        assert await drawn_of(store) == 4 + 20
        assert await store.share(no) is None


async def test_a_taken_key_whose_session_is_not_there_any_more_is_an_answer(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no, other = await create(store, "s"), await create(store, "other")
        assert isinstance(await store.commit(step(no, taken=(("k", "t1.0.0"),))), Committed)
        postgres.execute(f'DELETE FROM "{schema}".sessions WHERE no = {no}')
        async with asyncio.timeout(30):
            answer = await store.commit(step(other, taken=(("k", "t1.0.1"),)))
        assert isinstance(answer, AlreadyTaken)
        assert (answer.row.no, answer.row.deleted) == (no, True)
