"""Whoever asks that a session be taken up gets what was there then, however the look at it and the news of it cross.

Every store here is deaf: what happens in another process is noticed by looking alone, so that a look that comes too early is not put
right by a notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import perdure
from perdure import Agent, Middleware, Runtime, ScriptedModel, TurnEnded
from perdure.agent.middleware import HookContext
from perdure.store.base import Commit, Store
from perdure.store.memory import MemoryStore
from perdure.testing import FaultStore
from perdure.testing.faults import Call


class Deaf(FaultStore):
    """Hears of nothing that anybody changes."""

    def changes(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        return lambda: None


class Stop:
    """Holds the first read of the inbox after it was armed, or behind a turn, when it has been answered."""

    def __init__(self, *, behind_a_turn: bool = False) -> None:
        self.armed = False
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self._behind_a_turn = behind_a_turn

    async def __call__(self, call: Call, when: str) -> None:
        if self._behind_a_turn and isinstance(call.given, Commit) and call.given.release:
            self.armed, self._behind_a_turn = True, False
        if self.armed and call.kind == "inbox" and when == "after":
            self.armed = False
            self.reached.set()
            await self.go_on.wait()


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0)


async def all_answered(store: Store, *submissions: str) -> None:
    async with perdure.open(store) as looking:
        info = await looking.sessions.info("s")
        assert (info.status, info.holder) == ("idle", None)
        for submission in submissions:
            result = await looking.sessions.result("s", submission)
            assert result is not None
            assert result.ok


async def test_what_is_sent_behind_the_last_look_of_a_recovery_is_taken_up_by_it() -> None:
    memory, stop = MemoryStore(), Stop(behind_a_turn=True)
    agent = Agent("a", model=ScriptedModel(["hello", "again"]))
    async with perdure.open(Deaf(memory.peer())) as other, perdure.open(Deaf(memory, gate=stop)) as runtime:
        await other.sessions.send("s", "one", submission="m-1", agent="a")
        recovering = asyncio.create_task(runtime.recover([agent]))
        await stop.reached.wait()
        await other.sessions.send("s", "two", submission="m-2")
        stop.go_on.set()
        assert await recovering == ["s"]
        await all_answered(memory.peer(), "m-1", "m-2")


async def test_a_look_that_began_before_a_recovery_was_asked_for_is_not_its_answer() -> None:
    memory, stop = MemoryStore(), Stop()
    agent = Agent("a", model=ScriptedModel(["hello", "again"]))
    async with perdure.open(Deaf(memory.peer())) as other, perdure.open(Deaf(memory, gate=stop)) as runtime:
        async with runtime.session("s", agent) as handle:
            await handle.send("one", submission="m-1")
            async for event in handle.events(after=0):
                if isinstance(event, TurnEnded):
                    break
            stop.armed = True
            runtime.news.notice("s", sure=True)
            await stop.reached.wait()
        await other.sessions.send("s", "two", submission="m-2")
        recovering = asyncio.create_task(runtime.recover([agent], session="s"))
        await until(lambda: runtime.work.drivers["s"].errand)
        stop.go_on.set()
        assert await recovering == ["s"]
        await all_answered(memory.peer(), "m-1", "m-2")


@pytest.mark.parametrize("session", [None, "s"])
async def test_what_was_left_to_a_handle_that_closed_before_it_was_taken_up_is_taken_up_all_the_same(session: str | None) -> None:
    memory, stop = MemoryStore(), Stop()
    agent = Agent("a", model=ScriptedModel(["hello"]))
    async with perdure.open(Deaf(memory.peer())) as other, perdure.open(Deaf(memory, gate=stop)) as runtime:
        await other.sessions.send("s", "one", submission="m-1", agent="a")
        async with runtime.session("s", agent):
            stop.armed = True
            await stop.reached.wait()
            recovering = asyncio.create_task(runtime.recover([agent], session=session))
            await until(lambda: runtime.work.drivers["s"].errand or recovering.done())
        stop.go_on.set()
        assert await recovering == ["s"]
        await until(lambda: not runtime.work.drivers)
        await all_answered(memory.peer(), "m-1")


async def test_a_recovery_does_not_wait_for_what_a_handle_works_on() -> None:
    agent = Agent("a", model=ScriptedModel(["hello"]))
    async with perdure.open(MemoryStore()) as runtime, runtime.session("s", agent) as handle:
        await handle.send("one", submission="m-1")
        assert await runtime.recover([agent], session="s") == ["s"]
        assert await runtime.recover([agent]) in ([], ["s"])


class Slow(Middleware):
    """Takes its time when a session is let go."""

    name = "slow"

    def __init__(self) -> None:
        self.leaving, self.go_on = asyncio.Event(), asyncio.Event()

    async def session_end(self, ctx: HookContext) -> None:
        self.leaving.set()
        await self.go_on.wait()


async def run(runtime: Runtime, agent: Agent) -> None:
    await runtime.run(agent, "two", session="s", submission="m-2")


async def recover(runtime: Runtime, agent: Agent) -> None:
    await runtime.recover([agent], session="s")


@pytest.mark.parametrize("ask", [run, recover])
async def test_work_that_is_asked_for_while_a_session_is_being_let_go_is_done_behind_that(ask: Callable[..., object]) -> None:
    memory, slow = MemoryStore(), Slow()
    agent = Agent("a", model=ScriptedModel(["hello", "again"]), middleware=[slow])
    async with perdure.open(Deaf(memory.peer())) as other, perdure.open(Deaf(memory)) as runtime:
        await runtime.run(agent, "one", session="s", submission="m-1")
        await slow.leaving.wait()
        await other.sessions.send("s", "two", submission="m-2")
        asked = asyncio.create_task(ask(runtime, agent))  # type: ignore[arg-type]
        for _ in range(50):
            await asyncio.sleep(0)
        slow.go_on.set()
        await asked
        await all_answered(memory.peer(), "m-1", "m-2")
