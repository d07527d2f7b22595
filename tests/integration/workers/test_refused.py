"""Sessions that a worker can't go on with, as in a deploy, keep no other waiting, and are left to whoever can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, ApprovalRequested, FunctionModel, ModelRequest, Reply, StoreBroken, ToolCall, tool
from perdure.cli import main
from perdure.store.base import Runner
from perdure.store.memory import MemoryStore
from perdure.store.passing import PassingStore
from perdure.workers.engine import Engine
from perdure.workers.local import LocalEngine
from perdure.workers.procrastinate import ProcrastinateEngine
from perdure.workers.refused import ALL_APART, PAUSE, PAUSE_LIMIT, Refused
from perdure.workers.worker import AT_ONCE, Worker
from tests.postgres import server

from ..interactive.acting import Place, eventually

MANY = AT_ONCE + 100


def answer(request: ModelRequest) -> Reply:
    if request.messages[-1].role == "user" and "pay" in request.messages[-1].text:
        return Reply(tool_calls=[ToolCall("pay", {})])
    return Reply("done")


@tool(effect="external")
async def pay() -> str:
    """Pay."""
    return "paid"


OLD = Agent("shop", model=FunctionModel(answer), tools=[pay], approve=["pay"])
NEW = Agent("shop", model=FunctionModel(answer))
"""It has lost the tool that the others' open calls are of."""


@asynccontextmanager
async def working(place: str, agent: Agent, engine: Engine | None = None) -> AsyncIterator[Worker]:
    async with perdure.open(place) as runtime:
        worker = Worker(runtime, [agent], engine or LocalEngine(), concurrency=4, poll=0.05)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(running, 60)


async def begin(place: str, names: Sequence[str]) -> None:
    """Turns that only the old code can go on with, and that somebody must take up."""
    async with perdure.open(place, capacity=None) as runtime:

        async def one(name: str) -> None:
            async with runtime.session(name, OLD) as session:
                await session.send("pay", submission="m")
                async for event in session.events():
                    if isinstance(event, ApprovalRequested):
                        break
            await runtime.sessions.approve(name, event.request_id)

        await asyncio.gather(*map(one, names))


async def done(place: str, *names: str) -> None:
    """All of these came to their end."""
    async with perdure.open(place) as runtime:
        while not all([await runtime.sessions.result(name, "m") for name in names]):
            await asyncio.sleep(0.02)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "can't go on" in record.getMessage() or "ended" in record.getMessage()]


async def test_more_refused_sessions_than_are_looked_at_together_keep_no_message_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = str(tmp_path / "a.db")
    await begin(place, [f"s{number}" for number in range(MANY)])
    async with asyncio.timeout(120), working(place, NEW) as worker:
        await eventually(lambda: len(worker._refused) == MANY)
        async with perdure.open(place) as runtime:
            for number in range(5):
                await runtime.sessions.send(f"fresh {number}", "hello", submission="m", agent="shop")
        await done(place, *(f"fresh {number}" for number in range(5)))
    # One line for each, however often it was tried.
    assert len(told(caplog)) == MANY
    assert "DefinitionChanged" in told(caplog)[0]


async def test_a_refused_session_is_tried_ever_more_rarely_and_at_once_when_it_stands_elsewhere(tmp_path: Path) -> None:
    place = str(tmp_path / "a.db")
    await begin(place, ["s"])
    async with asyncio.timeout(60), working(place, NEW) as worker:
        recover, tries = worker._runtime.recover, 0

        async def counted(*given: Any, **named: Any) -> list[str]:
            nonlocal tries
            tries += 1
            return await recover(*given, **named)

        worker._runtime.recover = counted  # type: ignore[method-assign]
        worker._refused._time = lambda: 0.0
        await eventually(lambda: len(worker._refused) == 1)
        before = tries
        for _ in range(20):
            await worker._look("s")
        assert tries == before, "it rests"
        # An interrupt ends the turn that couldn't go on, and what waits behind it is taken up without a pause.
        await worker._runtime.sessions.send("s", "hello", submission="m2")
        await worker._runtime.sessions.interrupt("s")
        while await worker._runtime.sessions.result("s", "m2") is None:
            await asyncio.sleep(0.02)
        # The worker hears that it went on behind whoever reads the result.
        await eventually(lambda: len(worker._refused) == 0)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_session_whose_labels_can_not_be_read_is_halted_by_a_worker_that_goes_on_with_others(kind: str, tmp_path: Path) -> None:
    place = Place(kind, tmp_path / "a.db")
    here = server()
    url = here.store(here.lent(place.path)) if kind == "postgres" else str(place.path)
    names = ("bad", "one", "two")
    async with perdure.open(url) as runtime:
        for name in names:
            await runtime.sessions.send(name, "hello", submission="m", agent="shop")
    place.execute("UPDATE sessions SET labels = '[1]' WHERE session_id = 'bad'")
    async with asyncio.timeout(60), working(url, OLD) as worker:
        await done(url, "one", "two")
        await eventually(lambda: _halted(worker, "bad"))
        assert await worker._runtime.store.runnable(limit=9) == []


async def _halted(worker: Worker, session_id: str) -> bool:
    return (await worker._runtime.sessions.info(session_id)).status == "halted"


async def test_a_refused_session_whose_row_can_not_be_read_any_more_keeps_no_other_from_being_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.workers.refused.ALL_APART", 0.0)
    place = Place("sqlite", tmp_path / "a.db")
    await begin(str(place.path), ["bad"])
    async with asyncio.timeout(60), working(str(place.path), NEW) as worker:
        await eventually(lambda: len(worker._refused) == 1)
        place.execute("UPDATE sessions SET title = CAST(x'ff' AS TEXT) WHERE session_id = 'bad'")
        await eventually(lambda: "StoreCorrupt" in str(worker._refused.told()))
        async with perdure.open(str(place.path)) as runtime:
            for number in range(5):
                await runtime.sessions.send(f"fresh {number}", "hello", submission="m", agent="shop")
                await done(str(place.path), f"fresh {number}")


def test_the_pause_doubles_up_to_its_limit_and_begins_anew_with_another_reason() -> None:
    now = 0.0
    refused = Refused(lambda: now)
    pauses = []
    for number in range(12):
        assert refused.add("s", None, "why", at=number) == (number == 0)
        began = now
        while refused.rests("s"):
            now += PAUSE / 2
        pauses.append(now - began)
    assert pauses[:4] == pytest.approx([PAUSE, 2 * PAUSE, 4 * PAUSE, 8 * PAUSE], abs=PAUSE / 2)
    assert pauses[-1] == pytest.approx(PAUSE_LIMIT, abs=PAUSE / 2)
    [said] = refused.told()
    assert (said.since, said.reason) == (0, "why")
    assert refused.add("s", None, "another", at=99)
    now += PAUSE
    assert not refused.rests("s")
    refused.keep([], among=refused.known())
    assert refused.told() == ()


def test_what_was_refused_while_the_list_was_read_is_not_forgotten_for_standing_in_no_list() -> None:
    refused = Refused(lambda: 0.0)
    for name in ("gone", "here", "again"):
        refused.add(name, None, "why", at=1)
    known = refused.known()
    refused.add("again", None, "why", at=2)
    refused.add("new", None, "why", at=2)
    refused.keep(["here"], among=known)
    assert sorted(item.session_id for item in refused.told()) == ["again", "here", "new"]


def test_sessions_that_nobody_could_read_are_forgotten_one_by_one() -> None:
    refused = Refused(lambda: 0.0)
    refused.add("a", None, "why", at=1)
    refused.add("b", None, "why", at=1)
    assert refused.forget("a")
    refused.notice(0)
    assert refused.changed() == []


async def test_a_change_of_nobody_knows_which_session_has_all_looked_at_but_not_at_every_one(tmp_path: Path) -> None:
    now = 0.0
    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        refused = Refused(lambda: now)
        for name in ("a", "b"):
            await runtime.sessions.send(name, "hello", submission="m", agent="shop")
            refused.add(name, await runtime.store.load(name), "why", at=1)
    assert refused.changed() == []
    refused.notice(None)
    assert refused.changed() == ["a", "b"]
    refused.seen("a")
    refused.seen("b")
    refused.notice(None)
    assert refused.changed() == [], "it was just looked at all"
    now += ALL_APART
    assert refused.changed() == ["a", "b"]


async def test_a_worker_hears_what_another_process_wrote_to_a_session_that_it_refuses(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAUSE", "PAUSE_LIMIT"):
        monkeypatch.setattr(f"perdure.workers.refused.{name}", 3_600.0)
    await begin(place, ["s"])
    async with asyncio.timeout(60), working(place, NEW) as worker:
        await eventually(lambda: len(worker._refused) == 1)
        async with perdure.open(place) as other:
            await other.sessions.send("s", "hello", submission="m2")
            await other.sessions.interrupt("s")
            while await other.sessions.result("s", "m2") is None:
                await asyncio.sleep(0.02)


async def test_a_store_that_fails_while_refused_sessions_are_looked_at_loses_none_of_them(tmp_path: Path) -> None:
    place = str(tmp_path / "a.db")
    async with perdure.open(place) as runtime:
        worker = Worker(runtime, [NEW], LocalEngine())
        worker._refused = Refused(lambda: 0.0)
        for name in ("a", "b", "c"):
            await runtime.sessions.send(name, "hello", submission="m", agent="shop")
            worker._refused.add(name, await runtime.store.load(name), "why", at=1)
            await runtime.sessions.send(name, "and this", submission="m2")
        worker._refused.notice(None)
        load, asked = runtime.store.load, 0

        async def failing(*given: Any, **named: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 2:
                raise StoreBroken("away")
            return await load(*given, **named)

        runtime.store.load = failing  # type: ignore[method-assign]
        with pytest.raises(StoreBroken):
            await worker._look_at_refused()
        await worker._look_at_refused()
        assert not any(worker._refused.rests(name) for name in ("a", "b", "c"))


async def test_what_is_sent_while_a_session_is_refused_has_it_tried_anew_and_what_the_attempt_wrote_does_not(tmp_path: Path) -> None:
    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        await runtime.sessions.send("s", "hello", submission="m", agent="shop")
        before = await runtime.store.load("s")
        assert before is not None
        refused = Refused(lambda: 0.0)
        refused.add("s", before, "why", at=1, heard=before.row.inbox_head)
        refused.notice(before.row.no)
        assert refused.changed() == ["s"]
        refused.seen("s")
        assert refused.stands("s", before)
        assert refused.rests("s")
        await runtime.sessions.send("s", "and this", submission="m2")
        refused.add("s", await runtime.store.load("s"), "why", at=1, heard=before.row.inbox_head)
        assert refused.changed() == ["s"], "no notice comes of what was heard before"
        assert not refused.stands("s", await runtime.store.load("s"))
        refused.wake("s")
        assert not refused.rests("s")
        assert len(refused.told()) == 1, "it is no other refusal"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "a.db")
        return
    found = server()
    schema = found.schema()
    yield found.store(schema)
    found.clear()
    found.execute(f'DROP SCHEMA IF EXISTS "{schema}_jobs" CASCADE')


@asynccontextmanager
async def engine_for(place: str) -> AsyncIterator[Engine]:
    if "postgresql" not in place:
        yield LocalEngine()
        return
    async with ProcrastinateEngine(place, polling=0.2) as engine:
        yield engine


async def test_a_worker_with_the_right_code_takes_up_what_others_refuse_and_they_say_so(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{number}" for number in range(12)]
    await begin(place, names)
    # Only what others say that they refuse sends it there: no hint is overdue.
    monkeypatch.setattr("perdure.workers.worker.OVERDUE_MS", 10**9)
    async with asyncio.timeout(120), engine_for(place) as first, engine_for(place) as second, working(place, NEW, first) as wrong:
        await eventually(lambda: len(wrong._refused) == len(names))
        async with perdure.open(place) as runtime:
            while sum(len(runner.refused) for runner in await runtime.store.runners()) < len(names):
                await asyncio.sleep(0.02)
        for command in (["workers"], ["why", "s0"]):
            assert await asyncio.to_thread(main, ["--db", place, *command]) == 0
            said = capsys.readouterr().out
            assert "refused by" in said
            assert "'pay'" in said
        assert "takes it up at once" in said
        async with working(place, OLD, second):
            await done(place, *names)
        await eventually(lambda: len(wrong._refused) == 0)


async def test_sessions_that_dead_workers_left_and_nobody_here_can_take_are_not_in_the_way_of_those_that_one_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = str(tmp_path / "a.db")
    monkeypatch.setattr("perdure.workers.worker.AT_ONCE", 3)
    await begin(place, [f"s{number}" for number in range(6)])
    async with perdure.open(place) as runtime:
        for number in range(6):
            head = await runtime.store.load(f"s{number}")
            assert head is not None
            # Twice taken over: each may be what kills workers.
            for _ in range(3):
                await runtime.store.claim(head.row.no, f"gone {number}", force=True)
        await runtime.sessions.send("fresh", "hello", submission="m", agent="shop")
    caplog.set_level(logging.WARNING)
    async with asyncio.timeout(60), working(place, NEW):
        await done(place, "fresh")


async def test_a_worker_of_many_agents_registers_with_one_lease_written_once() -> None:
    class Counting(PassingStore):
        beats: list[tuple[str, ...]]

        async def heartbeat(self, runner: Runner, lease_ms: int) -> int:
            self.beats.append(runner.agents)
            return await self.inner.heartbeat(runner, lease_ms)

    store = Counting(MemoryStore())
    store.beats = []
    agents = [Agent(f"a{number}", model=FunctionModel(answer)) for number in range(10)]
    async with perdure.open(store) as runtime:
        await runtime.register(agents)
        await runtime.register(agents)
        assert store.beats == [tuple(sorted(agent.name for agent in agents))]
