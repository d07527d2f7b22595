"""A runtime works only on what somebody here wants worked on, and who has gone wants nothing more."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply, Runtime, ScriptedModel, ToolCall, tool
from perdure.core.errors import StoreBroken
from perdure.runtime.verify import verify
from perdure.store.base import Commit
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from perdure.testing import FaultStore, VirtualClock
from perdure.testing.faults import Call


async def test_a_message_that_comes_after_the_handle_was_closed_is_not_taken_by_the_driver_that_was_just_looking() -> None:
    looking, go_on = asyncio.Event(), asyncio.Event()
    armed = False

    async def gate(call: Call, when: str) -> None:
        if armed and call.kind == "inbox" and when == "before":
            looking.set()
            await go_on.wait()

    agent = Agent("a", model=ScriptedModel(["hello", "again"]))
    async with perdure.open(FaultStore(MemoryStore(), gate=gate)) as runtime:
        await runtime.run(agent, "one", session="s", submission="m-1")
        async with runtime.session("s", agent):
            armed = True
            runtime.news.notice("s", sure=True)
            await looking.wait()
        # Nobody here works on it any more, so this one is for whoever does.
        await runtime.sessions.send("s", "two", submission="m-2")
        go_on.set()
        while runtime.work.drivers:
            await asyncio.sleep(0)
        info = await runtime.sessions.info("s")
        assert (info.status, info.holder) == ("queued", None)
        assert [entry.kind for entry in await runtime.sessions.entries("s")].count("turn_started") == 1
        armed = False
        assert await runtime.recover([agent]) == ["s"]
        assert [entry.kind for entry in await runtime.sessions.entries("s")].count("turn_completed") == 2


async def test_what_a_failed_driver_let_go_of_in_mid_turn_is_not_called_damaged() -> None:
    clock = VirtualClock()
    memory = MemoryStore(clock.now)
    broken = False

    async def gate(call: Call, when: str) -> None:
        if broken and when == "before" and isinstance(call.given, Commit):
            raise StoreBroken("the disk was full for a moment")

    def answer(request: ModelRequest) -> str:
        nonlocal broken
        if not broken:
            # The model takes its time, so that the last entry is long past when the session is let go.
            broken = True
            clock.advance(300_000)
        return "hello"

    agent = Agent("a", model=FunctionModel(answer))
    async with Runtime(FaultStore(memory, gate=gate), clock=clock) as runtime:
        with pytest.raises(StoreBroken):
            await runtime.run(agent, "one", session="s", submission="m")
        while (await runtime.sessions.info("s")).holder is not None:
            await asyncio.sleep(0)
        head = await memory.load("s")
        assert head is not None
        # It is to be taken up from now on, and the list shows when something of it happened last.
        assert (head.row.status, head.row.wake_at, head.row.updated) == ("queued", clock.now(), clock.now() - 300_000)
        assert [str(problem) async for problem in verify(memory)] == []
        forge_updated(memory)
        assert any("updated is" in problem.what for problem in [problem async for problem in verify(memory)])


def forge_updated(memory: MemoryStore) -> None:
    """Have the list show another time."""
    session = memory._content.by_id["s"]
    session.row = msgspec.structs.replace(session.row, updated=session.row.updated + 1)


@pytest.mark.parametrize("failure", [StoreBroken("the disk was full for a moment"), RuntimeError("a fault in the code")])
async def test_what_a_failed_driver_let_go_of_with_no_turn_open_is_not_called_damaged(failure: Exception) -> None:
    # given a session whose turn ends without letting it go, since something arrives whenever that is tried
    clock = VirtualClock()
    memory = MemoryStore(clock.now)
    noted = 0

    async def gate(call: Call, when: str) -> None:
        nonlocal noted
        if when == "before" and isinstance(call.given, Commit) and call.given.release:
            if noted == 3:
                clock.advance(5_000)
                raise failure
            noted += 1
            await other.sessions.note("s", f"note {noted}")

    agent = Agent("a", model=ScriptedModel(["hello"]))
    async with (
        Runtime(memory.peer(), clock=clock) as other,
        Runtime(FaultStore(memory, gate=gate), clock=clock) as runtime,
        runtime.session("s", agent) as handle,
    ):
        await handle.send("one", submission="m-1")
        await other.sessions.send("s", "two", submission="m-2", not_before=timedelta(seconds=20))
        # when the commit that would let it go fails, later
        while (await other.sessions.info("s")).holder is not None or noted < 3:
            await asyncio.sleep(0)
        # then what its runner lets go of is whole, and the list shows when something of it happened last
        head = await memory.load("s")
        assert head is not None
        assert (head.row.status, head.row.updated) == ("queued", (await other.sessions.entries("s"))[-1].at)
        assert head.row.updated < clock.now()
        assert [str(problem) async for problem in verify(memory)] == []
        # and a time that nothing explains is still found
        forge_updated(memory)
        assert any("updated is" in problem.what for problem in [problem async for problem in verify(memory)])


async def test_a_message_that_comes_while_a_failed_driver_lets_go_of_an_idle_session_is_found() -> None:
    memory = MemoryStore()
    noted = 0

    async def gate(call: Call, when: str) -> None:
        nonlocal noted
        if when == "after" or not isinstance(call.given, Commit | int):
            return
        if isinstance(call.given, Commit) and call.given.release:
            if noted == 3:
                # The turn ended, and the session is still held; what would let it go fails.
                raise StoreBroken("the disk is gone")
            # So many in a row that the turn ends without letting go.
            noted += 1
            await other.sessions.note("s", f"note {noted}")
        elif call.kind == "release" and noted == 3:
            noted += 1
            await other.sessions.send("s", "two", submission="m-2")

    agent = Agent("a", model=ScriptedModel(["hello", "again"]))
    async with (
        perdure.open(memory.peer()) as other,
        perdure.open(FaultStore(memory, gate=gate)) as runtime,
        runtime.session("s", agent) as handle,
    ):
        await handle.send("one", submission="m-1")
        while (await other.sessions.info("s")).holder is not None or not noted:
            await asyncio.sleep(0)
        kinds = [entry.kind for entry in await other.sessions.entries("s")]
        assert (kinds.count("turn_completed"), kinds.count("note_added"), noted) == (1, 3, 4)
        assert (await other.sessions.info("s")).status == "queued"
        assert await memory.runnable(limit=9) == ["s"]
        assert await other.recover([agent]) == ["s"]
        result = await other.sessions.result("s", "m-2")
        assert result is not None
        assert result.output == "again"


async def test_the_grace_of_a_close_is_measured_by_the_runtimes_clock() -> None:
    clock = VirtualClock()
    began, go_on = asyncio.Event(), asyncio.Event()
    cut_off: list[str] = []

    @tool(effect="pure")
    async def work() -> str:
        """Work until told otherwise."""
        began.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            cut_off.append("now")
            raise
        return "worked"

    agent = Agent("a", model=ScriptedModel([Reply(tool_calls=[ToolCall("work", {})]), "done"]), tools=[work])
    runtime = perdure.open(MemoryStore(clock.now), clock=clock, grace=3_600)
    async with runtime:
        running = asyncio.ensure_future(runtime.run(agent, "go", session="s", submission="m"))
        await began.wait()
        closing = asyncio.ensure_future(runtime.close())
        for _ in range(100):
            await asyncio.sleep(0)
        clock.advance(3_599_999)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not cut_off
        clock.advance(1)
        await closing
        assert cut_off == ["now"]
        with pytest.raises(perdure.RuntimeClosed):
            await running


async def test_a_store_stays_open_for_whoever_else_opened_it(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "agents.db")
    agent = Agent("a", model=ScriptedModel(["hello"]))
    async with perdure.open(store) as one:
        async with perdure.open(store) as two:
            await two.run(agent, "go", session="s", submission="m")
        assert (await one.run(agent, "go", session="s", submission="m")).output == "hello"
        await store.open()
    assert (await store.load("s")) is not None
    await store.close()
    with pytest.raises(perdure.StoreError):
        await store.load("s")


async def test_an_open_runtime_is_not_entered_again() -> None:
    async with perdure.open("memory://") as runtime:
        with pytest.raises(perdure.UsageError):
            await runtime.__aenter__()
        await runtime.sessions.list()


async def test_what_a_failed_driver_holds_is_let_go_although_somebody_came_and_went_meanwhile() -> None:
    clock = VirtualClock()
    broken = failed = False
    came, went, looking = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def gate(call: Call, when: str) -> None:
        nonlocal failed
        task = asyncio.current_task()
        if broken and when == "before" and isinstance(call.given, Commit):
            failed = True
            raise StoreBroken("the disk was full for a moment")
        if not failed or when == "after" or task is None:
            return
        # Letting go waits until there is another driver, which looks until nobody wants anything of it any more.
        if call.kind == "load" and task.get_name() == "perdure s":
            looking.set()
            await went.wait()
        elif call.kind == "load" and task is not again:
            await came.wait()
        elif call.kind == "submission":
            await looking.wait()

    def answer(request: ModelRequest) -> str:
        nonlocal broken
        broken = request.messages[-1].text == "two"
        return "hello"

    agent, again = Agent("a", model=FunctionModel(answer)), None
    async with Runtime(FaultStore(MemoryStore(clock.now), gate=gate), clock=clock) as runtime:
        await runtime.run(agent, "one", session="s", submission="m-1")
        with pytest.raises(StoreBroken):
            await runtime.run(agent, "two", session="s", submission="m-2")
        again = asyncio.create_task(runtime.run(agent, "one", session="s", submission="m-1"))
        assert (await again).ok
        came.set()
        while runtime.background.tasks:
            await asyncio.sleep(0)
        broken = failed = False
        went.set()
        while runtime.work.drivers:
            await asyncio.sleep(0)
        for _ in range(100):
            clock.advance(1000)
            await asyncio.sleep(0)
        assert (await runtime.sessions.info("s")).holder is None
