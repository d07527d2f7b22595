"""A connection that breaks decides nothing: what was sent is known before anybody goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

import perdure
from perdure import Agent, Reply, ScriptedModel, StoreBroken, StoreReadOnly, ToolCall, ToolContext, tool
from perdure.core.records import Amounts, Limits
from perdure.store.base import (
    Adopted,
    Adoption,
    Claim,
    Commit,
    Committed,
    Created,
    Held,
    InboxRow,
    Run,
    Sent,
    SessionRow,
    Stale,
)
from perdure.store.conformance.kit import LEASE, catalogue, content, create, creation, fact, facts, row_of, runner, step, submission
from perdure.store.pools import Draw
from perdure.store.postgres import PostgresStore
from tests.postgres import Server

from .cutting import Cutter


@pytest.fixture
def cutter(postgres: Server) -> Iterator[Cutter]:
    cutter = Cutter(postgres.url)
    yield cutter
    cutter.close()


@asynccontextmanager
async def opened(postgres: Server, cutter: Cutter, **options: Any) -> Any:
    store = PostgresStore(cutter.url(postgres.store(postgres.schema())), **options)
    await store.open()
    try:
        yield store
    finally:
        cutter.down = False
        await store.close()


def adoption() -> Adoption:
    row = SessionRow(
        no=0, session_id="new", root="new", parent=None, parent_kind=None, agent="a", version=3, fence=7, holder=None, claims=0,
        inbox_head=1, wake_at=None, status="idle", owner="", title="", labels={}, created=1, updated=2, checkpoint=b"c",
    )  # fmt: skip
    sent = InboxRow(
        submission_id="m", arrival=1, kind="message", at=1, not_before=None, actor="", digest="d", body=None, consumed_seq=2, settled_seq=3
    )
    return Adoption(
        row=row, entries=lambda: facts(1, 3), submissions=lambda: [sent], effects=list, uniques=list, blobs=lambda: [content(b"x")]
    )


def ran_within(run: Run, no: int) -> Commit:
    run(lambda connection: connection.execute("SELECT 1"))
    return step(no)


WRITES: dict[str, tuple[str, Callable[[PostgresStore, int], Awaitable[Any]], Any]] = {
    "a commit": (".write(", lambda store, no: store.commit(step(no)), Committed(2, 0, 1)),
    "a commit that claims": (".write(", lambda store, no: store.commit(step(no, claim=Claim(runner="r1"))), Committed(2, 1, 1)),
    "a commit that claims and releases": (
        ".write(",
        lambda store, no: store.commit(step(no, claim=Claim(runner="r1"), release=True, consumed=(("m1", 2),))),
        Committed(2, 1, 1),
    ),
    "a commit without entries": (
        ".write(",
        lambda store, no: store.commit(Commit(no=no, version=1, fence=0, holder=None, at=1, dropped=("m1",), claim=Claim(runner="r"))),
        Committed(1, 1, 1),
    ),
    "a commit that redacts": (".commit_alone(", lambda store, no: store.commit(step(no, redacted=(1,))), Committed(2, 0, 1)),
    "a commit with another's statements": (
        "COMMIT",
        lambda store, no: store.commit(step(no, within=lambda run: ran_within(run, no))),
        Committed(2, 0, 1),
    ),
    "a new session": (".create_session(", lambda store, no: store.create("new", creation(root="new"), at=1), Created(2)),
    "a claim": (".claim(", lambda store, no: store.claim(no, "r1"), Committed(1, 1, 1)),
    "a session from elsewhere": ("COMMIT", lambda store, no: store.adopt([adoption()]), Adopted((2,))),
    "an acknowledgement": (".ack(", lambda store, no: store.ack(no, "ann", 1), 1),
    "content": (".put_blobs(", lambda store, no: store.put_blob("s", content(b"x")), True),
    "a deletion": (".bury(", lambda store, no: store.delete(no), True),
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.hazard("H3")
async def test_a_write_whose_answer_was_lost_is_done_once_and_answered_as_if_nothing_had_been(
    postgres: Server, cutter: Cutter, name: str, moment: Any
) -> None:
    words, write, expected = WRITES[name]
    async with opened(postgres, cutter) as store:
        no = await create(store)
        cutter.cut(words, moment)
        answer = await write(store, no)
        assert cutter.cuts == 1
        if isinstance(answer, Adopted):
            # Numbers are not given back by a transaction that came to nothing.
            answer = Adopted(tuple(range(2, 2 + len(answer.numbers))))
            assert len(await store.tree("new")) == 1
        assert answer == expected
        if isinstance(expected, Committed):
            row = await row_of(store)
            assert (row.version, row.fence) == (expected.version, expected.fence)
            assert len(await store.entries(no)) == expected.version


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_lease_whose_answer_was_lost_runs_and_one_that_was_given_back_is_gone(
    postgres: Server, cutter: Cutter, moment: Any
) -> None:
    async with opened(postgres, cutter) as store:
        cutter.cut(".heartbeat(", moment)
        ends = await store.heartbeat(runner("r1"), LEASE)
        assert [(known.id, known.expires) for known in await store.runners()] == [("r1", ends)]
        cutter.cut("DELETE FROM", moment)
        await store.retire("r1")
        assert (await store.runners(), cutter.cuts) == ([], 2)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_what_is_put_into_a_pool_and_drawn_from_it_is_counted_once_whatever_answer_was_lost(
    postgres: Server, cutter: Cutter, moment: Any
) -> None:
    async with opened(postgres, cutter) as store:
        no = await create(store)
        cutter.cut("COMMIT", moment)
        made = await store.change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
        cutter.cut("COMMIT", moment)
        more = await store.change_pool("acme", Limits(tokens=20), fresh="p2", add=True)
        assert (made.limits.tokens, more.limits.tokens, more.id) == (100, 120, "p1")
        drawing = step(no, draws=(Draw(owner="acme", pool="p1", drawn=Amounts(tokens=30), used=Amounts()),))
        cutter.cut(".write(", moment)
        assert await store.commit(drawing) == Committed(2, 0, 1)
        pool = await store.pool("acme")
        assert pool is not None
        assert (pool.drawn, cutter.cuts) == (Amounts(tokens=30), 3)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_submission_whose_answer_was_lost_is_the_first_and_not_a_duplicate(postgres: Server, cutter: Cutter, moment: Any) -> None:
    async with opened(postgres, cutter) as store:
        cutter.cut(".write(", moment)
        sent = await store.send(submission())
        assert isinstance(sent, Sent)
        assert (sent.duplicate, sent.created, sent.row.arrival, cutter.cuts) == (False, True, 1, 1)
        again = await store.send(submission())
        assert isinstance(again, Sent)
        assert (again.duplicate, again.created) == (True, False)


async def test_a_release_whose_answer_was_lost_is_a_release(postgres: Server, cutter: Cutter) -> None:
    async with opened(postgres, cutter) as store:
        no = await create(store)
        await store.heartbeat(runner("r1"), LEASE)
        await store.claim(no, "r1")
        cutter.cut(".release(")
        assert await store.release(no, "r1", 1, catalogue("waiting"), 1, at=2_000) == Committed(1, 1, 1)
        assert await store.release(no, "r1", 1, catalogue("waiting"), 1, at=2_000) == Stale(1, 1, None)


async def test_a_claim_whose_answer_was_lost_is_not_taken_for_another_s(postgres: Server, cutter: Cutter) -> None:
    async with opened(postgres, cutter) as store:
        no = await create(store)
        await store.heartbeat(runner("r1"), LEASE)
        cutter.cut(".claim(")
        assert await store.claim(no, "r1") == Committed(1, 1, 1)
        assert await store.claim(no, "r1") == Held("r1")


async def test_a_commit_is_known_again_when_others_have_followed_it(postgres: Server, cutter: Cutter) -> None:
    url = postgres.store(postgres.schema())
    store, other = PostgresStore(cutter.url(url)), PostgresStore(url)
    await store.open()
    await other.open()
    no = await create(store)
    cutter.down = True
    cutter.cut(".write(")
    lost = asyncio.create_task(store.commit(step(no, entries=(fact(2, body=b"mine"),))))
    while not await other.entries(no, after=1):
        await asyncio.sleep(0.01)
    # Another one goes on from there before the first has heard anything.
    assert await other.commit(step(no, 2)) == Committed(3, 0, 1)
    assert not lost.done()
    cutter.down = False
    assert await lost == Committed(2, 0, 1)
    # And one that truly lost the race is told so.
    assert await store.commit(step(no, 2, entries=(fact(3, body=b"late"),))) == Stale(3, 0, None)
    await store.close()
    await other.close()


async def test_all_that_shared_a_statement_are_done_once(postgres: Server, cutter: Cutter) -> None:
    async with opened(postgres, cutter) as store:
        numbers = [await create(store, f"s{index}") for index in range(20)]
        cutter.cut(".write(")
        answers = await asyncio.gather(*(store.commit(step(no)) for no in numbers), *(store.send(submission(f"n{n}")) for n in range(20)))
        assert answers[:20] == [Committed(2, 0, 1)] * 20
        assert all(isinstance(sent, Sent) and not sent.duplicate for sent in answers[20:])
        assert cutter.cuts == 1
        for no in numbers:
            assert [entry.seq for entry in await store.entries(no)] == [1, 2]


async def test_a_commit_is_one_statement_and_those_that_wait_together_share_one(postgres: Server, cutter: Cutter) -> None:
    async with opened(postgres, cutter) as store:
        numbers = [await create(store, f"s{index}") for index in range(50)]
        before = cutter.seen
        for no in numbers[:10]:
            await store.commit(step(no))
        assert cutter.seen - before == 10
        before = cutter.seen
        await asyncio.gather(*(store.commit(step(no)) for no in numbers[10:]))
        # Those that waited while the first was under way went together.
        assert 1 <= cutter.seen - before <= 5


async def test_when_patience_is_over_the_outcome_is_said_to_be_unknown_and_nobody_waits_for_ever(postgres: Server, cutter: Cutter) -> None:
    async with opened(postgres, cutter, patience=0.3) as store:
        no = await create(store)
        cutter.cut(".write(")
        cutter.down = True
        with pytest.raises(StoreBroken, match="unknown"):
            await store.commit(step(no))
        cutter.hang_up()
        with pytest.raises(StoreBroken, match="can't be reached"):
            await store.entries(no)
        cutter.down = False
        assert (await row_of(store)).version == 2


async def test_a_server_that_was_made_a_replica_is_left_for_the_one_that_takes_writes(postgres: Server) -> None:
    """The kept connections lead to the old primary, which only reads by now; new ones to the new primary."""
    store = PostgresStore(postgres.store(postgres.schema()), patience=5.0)
    await store.open()
    no = await create(store)
    await store.put_blob("s", content(b"x"))
    demoted = [store._writer._line, *store._alone._lines]
    for line in demoted:
        assert line is not None
        line.psycopg.execute("SET default_transaction_read_only = on")
    assert await store.commit(step(no)) == Committed(2, 0, 1)
    await store.put_blob("s", content(b"y"))
    await store.put_blob("s", content(b"z"))
    assert all(line is not None and line.closed for line in demoted)
    assert len(await store.blobs("s")) == 3
    await store.close()


async def test_a_database_in_which_nothing_can_be_written_any_more_says_so_in_the_end(postgres: Server) -> None:
    role = f"writer_{postgres.schema()}"
    postgres.execute(f'CREATE ROLE "{role}" LOGIN SUPERUSER')
    url = postgres.store(postgres.schema())
    store = PostgresStore(url.replace("postgres:@", f"{role}:@") if "postgres:@" in url else f"{url}&user={role}", patience=0.2)
    await store.open()
    no = await create(store)
    try:
        postgres.execute(f'ALTER ROLE "{role}" SET default_transaction_read_only = on')
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", role)
        with pytest.raises(StoreReadOnly, match="takes no writes"):
            await store.commit(step(no, redacted=(1,)))
        with pytest.raises(StoreBroken, match="takes no writes"):
            await store.commit(step(no))
        postgres.execute(f'ALTER ROLE "{role}" RESET default_transaction_read_only')
        assert await store.commit(step(no)) == Committed(2, 0, 1)
    finally:
        await store.close()
        postgres.execute(f'REASSIGN OWNED BY "{role}" TO CURRENT_USER; DROP ROLE "{role}"')


async def test_a_backend_that_is_terminated_in_a_commit_costs_nothing_but_time(postgres: Server) -> None:
    """The server's own hand: the commit waits for a lock of ours, and its backend goes."""
    schema = postgres.schema()
    store = PostgresStore(postgres.store(schema, application_name=schema))
    await store.open()
    no = await create(store)
    with psycopg.connect(postgres.url) as holder:
        holder.execute(f'LOCK TABLE "{schema}".journal IN ACCESS EXCLUSIVE MODE')
        waiting = asyncio.create_task(store.commit(step(no)))
        gone = 0
        while not gone:
            await asyncio.sleep(0.01)
            found = postgres.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'", schema
            )
            gone = len(found)
    assert await waiting == Committed(2, 0, 1)
    assert [entry.seq for entry in await store.entries(no)] == [1, 2]
    # Every other connection of the process goes too, and nobody notices.
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", schema)
    assert (await row_of(store)).version == 2
    assert await store.commit(step(no, 2)) == Committed(3, 0, 1)
    await store.close()


async def test_no_tool_runs_before_it_is_known_that_its_start_is_stored(postgres: Server, cutter: Cutter) -> None:
    url = postgres.store(postgres.schema())
    ran: list[str] = []

    @tool(effect="external")
    async def pay(ctx: ToolContext, order: str) -> str:
        """Pay."""
        ran.append(ctx.idempotency_key)
        return "paid"

    agent = Agent(
        "payer", instructions="pay", model=ScriptedModel([Reply(tool_calls=[ToolCall("pay", {"order": "A-1"})]), "done"]), tools=[pay]
    )
    async with asyncio.timeout(20), perdure.open(cutter.url(url)) as runtime, perdure.open(url) as watching:
        # Nobody but the model names the order, and its answer is stored with the start of the tool that it asked for.
        cutter.cut("A-1", down=True)
        run = asyncio.create_task(runtime.run(agent, "please", session="s", submission="m"))
        while not cutter.cuts:
            await asyncio.sleep(0.005)
        cutter.hang_up()
        while not any("A-1" in repr(entry) for entry in await watching.sessions.entries("s")):
            await asyncio.sleep(0.01)
        # It is stored, and only the database knows. Long enough for anybody who didn't wait for it:
        await asyncio.sleep(0.2)
        assert ran == []
        assert not run.done()
        cutter.down = False
        assert (await run).output == "done"
    assert len(ran) == 1
