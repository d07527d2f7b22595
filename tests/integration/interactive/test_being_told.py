"""Whoever waits for something hears of it when it is so, and not when something else happens next."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from perdure import Agent, FunctionModel, ModelRequest, Reply, Session, SubmissionRejected, ToolCall, tool
from perdure.testing.faults import Call

from .acting import Place, eventually


class Slow:
    """An agent that asks whether it may pay, or takes as long as it is left to."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

        @tool(effect="external")
        async def pay() -> str:
            return "paid"

        self.agent = Agent("a", model=FunctionModel(self.answer), tools=[pay], approve=["pay"])

    async def answer(self, request: ModelRequest) -> Reply:
        if request.messages[-1].text == "pay":
            return Reply(tool_calls=[ToolCall("pay", {})])
        self.begun.set()
        await self.go.wait()
        return Reply("done")


async def test_who_waits_for_a_message_that_is_withdrawn_is_told_while_another_turn_runs(place: Place) -> None:
    slow = Slow()
    async with place.process() as process:
        running = asyncio.create_task(process.run(slow.agent, "take your time", session="s", submission="m1"))
        await slow.begun.wait()
        waiting = asyncio.create_task(process.run(slow.agent, "and this", session="s", submission="m2"))
        await eventually(process.pending)
        await process.sessions.withdraw("s", "m2")
        with pytest.raises(SubmissionRejected, match="withdrawn"):
            await waiting
        assert not running.done()
        slow.go.set()
        assert (await running).ok


async def test_who_waits_for_a_turn_that_somebody_else_ends_is_told_while_the_next_one_runs_here(place: Place) -> None:
    slow = Slow()
    async with place.process() as process, place.process() as other:
        first = asyncio.create_task(process.run(slow.agent, "pay", session="s", submission="m1"))
        await eventually(lambda: _asked(process))
        second = asyncio.create_task(process.run(slow.agent, "take your time", session="s", submission="m2"))
        await eventually(process.pending)
        [request] = await other.sessions.requests("s")
        await other.sessions.answer("s", request.request_id, "abort")
        await slow.begun.wait()
        assert (await first).status == "aborted"
        assert not second.done()
        slow.go.set()
        assert (await second).ok


async def _asked(process: Any) -> bool:
    return await process.sessions.number("s") is not None and bool(await process.sessions.requests("s"))


async def test_a_handle_that_is_opened_while_the_last_one_is_closed_hears_what_others_do(place: Place) -> None:
    looking, go = asyncio.Event(), asyncio.Event()
    opening: asyncio.Task[Session] | None = None

    async def gate(call: Call, when: str) -> None:
        # It has found the session, and looks at it.
        if asyncio.current_task() is opening and call.kind == "load" and call.answer is None and call.nth >= looks + 2:
            looking.set()
            await go.wait()

    async with place.process() as other, place.process(gate=gate) as process:
        await other.sessions.send("s", "hello", submission="m1")
        async with process.session("s"):
            looks = process.faulty.count("load")
            opening = asyncio.create_task(process.session("s").__aenter__())
            await looking.wait()
        go.set()
        handle = await opening
        events = handle.events()
        listening = asyncio.create_task(_first_note(events))
        await asyncio.sleep(0)
        await other.sessions.note("s", "by the way")
        assert await listening == "by the way"
        with suppress(GeneratorExit):
            await events.aclose()  # type: ignore[attr-defined]
        await handle.__aexit__(None, None, None)


async def _first_note(events: Any) -> str:
    async for event in events:
        if event.__class__.__name__ == "NoteAdded":
            return str(event.text)
    return ""


async def test_who_withdraws_a_message_by_two_calls_at_once_is_told_the_same_by_both(place: Place) -> None:
    told: list[bool] = []

    async def gate(call: Call, when: str) -> None:
        if (call.kind, when) == ("inbox", "before") and not told:
            told.append((await other.sessions.withdraw("s", "m1", submission="w1")).duplicate)

    async with place.process() as other, place.process(gate=gate) as process:
        await other.sessions.send("s", "hello", submission="m1")
        told.append((await process.sessions.withdraw("s", "m1", submission="w1")).duplicate)
    assert told == [False, True]
