"""A runtime works only on what somebody here wants worked on, and who has gone wants nothing more."""

from __future__ import annotations

import asyncio

import perdure
from perdure import Agent, ScriptedModel
from perdure.store.memory import MemoryStore
from perdure.testing import FaultStore
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
            runtime.notice("s", sure=True)
            await looking.wait()
        # Nobody here works on it any more, so this one is for whoever does.
        await runtime.sessions.send("s", "two", submission="m-2")
        go_on.set()
        while runtime._drivers:
            await asyncio.sleep(0)
        info = await runtime.sessions.info("s")
        assert (info.status, info.holder) == ("queued", None)
        assert [entry.kind for entry in await runtime.sessions.entries("s")].count("turn_started") == 1
        armed = False
        assert await runtime.recover([agent]) == ["s"]
        assert [entry.kind for entry in await runtime.sessions.entries("s")].count("turn_completed") == 2
