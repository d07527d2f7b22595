"""A run that is gone on with is the run that began: as it was admitted, from where it was, by one process at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Agent, FunctionModel, HookContext, Limits, Middleware, ModelRequest, Reply, ToolCall, tool
from perdure.core.entries import DefinitionChange
from perdure.testing import find_all_problems
from tests.integration.interactive.acting import Place, Process, counting, drain, eventually

CALL = Reply(tool_calls=[ToolCall("pay", {"cents": 5}, "call-1")])


class Door(Middleware):
    """It looks at whatever comes in."""

    name = "door"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def message_submit(self, ctx: HookContext, message: Any) -> None:
        self.seen.append(message.text)


@tool
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def waits(process: Process) -> bool:
    return (await process.sessions.info("s")).status == "waiting"


@pytest.mark.spec("S0-163", "S0-164", "S0-169")
async def test_a_turn_goes_on_under_the_limits_that_it_began_with_behind_what_is_stored_and_is_not_admitted_again(place: Place) -> None:
    model, asked = counting(CALL, Reply("done"))
    door = Door()
    agent = Agent("a", model=model, tools=[pay], approve=["pay"], middleware=[door], limits=Limits(steps=5))
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m1")
        await eventually(lambda: waits(process))
    stricter = agent.replace(limits=Limits(steps=1))
    async with place.process() as process:
        [request] = await process.sessions.requests("s")
        await process.sessions.approve("s", request.request_id)
        result = await process.run(stricter, "go", session="s", submission="m1")
        assert (result.status, result.output, result.steps, result.usage.calls) == ("completed", "done", 2, 2)
        assert [request.step for request in asked] == [0, 1]
        assert [message.role for message in asked[1].messages] == ["user", "assistant", "tool"]
        assert door.seen == ["go"]
        # That they are others now is written down, and they hold for the next turn.
        [changed] = [entry for entry in await process.sessions.entries("s") if isinstance(entry, DefinitionChange)]
        assert changed.difference == ("the limit steps changed from 5 to 1",)
        following = await process.run(stricter.replace(approve=(), model=counting(CALL)[0]), "again", session="s", submission="m2")
        assert (following.status, following.reason) == ("limited", "limit reached: steps")
        assert await find_all_problems(process.store) == []


@pytest.mark.spec("S0-166")
async def test_who_comes_while_somebody_works_waits_for_the_end_and_takes_nothing_over(place: Place) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()
    asked: list[ModelRequest] = []

    async def think(request: ModelRequest) -> str:
        asked.append(request)
        thinking.set()
        await go_on.wait()
        return "done"

    agent = Agent("a", model=FunctionModel(think))
    async with place.process() as process, place.process() as other:
        running = asyncio.create_task(process.run(agent, "go", session="s", submission="m1"))
        await thinking.wait()
        before = await process.row()
        waiting = asyncio.create_task(other.run(agent, "go", session="s", submission="m1"))
        await eventually(lambda: other.faulty.count("send"))
        assert await other.recover([agent]) == []
        assert not waiting.done()
        row = await process.row()
        assert (row.holder, row.fence, row.claims, row.version) == (before.holder, 1, 0, before.version)
        go_on.set()
        assert await running == await waiting
        assert (await process.row()).fence == 1
    assert len(asked) == 1


@pytest.mark.spec("S0-180")
async def test_whose_session_was_taken_meanwhile_is_told_so_and_not_that_its_run_failed(place: Place) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def think(request: ModelRequest) -> str:
        thinking.set()
        await go_on.wait()
        return "done"

    async with place.process() as process, place.process() as other, process.session("s", Agent("a", model=FunctionModel(think))) as handle:
        await handle.send("go", submission="m1")
        await thinking.wait()
        row = await other.row()
        await other.store.claim(row.no, "somebody else", force=True)
        go_on.set()
        seen: list[Any] = []
        with pytest.raises(perdure.Fenced) as told:
            await drain(handle, seen)
        assert isinstance(told.value, perdure.CoordinationError)
        assert not any(isinstance(event, perdure.TurnEnded) for event in seen)
        assert (await other.row()).version == row.version


@pytest.mark.spec("S0-312", "S0-313")
async def test_all_that_was_said_in_a_run_is_what_the_next_one_begins_with(place: Place) -> None:
    model, asked = counting(CALL, Reply("paid it"), Reply("you are welcome"))
    agent = Agent("a", model=model, tools=[pay])
    async with place.process() as process:
        await process.run(agent, "go", session="s", submission="m1")
        stored = [(message.role, message.text) for message in await process.sessions.history("s")]
        assert stored == [("user", "go"), ("assistant", ""), ("tool", ""), ("assistant", "paid it")]
    async with place.process() as process:
        await process.run(agent, "thanks", session="s", submission="m2")
        history = await process.sessions.history("s")
        assert [(message.role, message.text) for message in history[:4]] == stored
    told = asked[2].messages
    assert [(message.role, message.parts) for message in told] == [(message.role, message.parts) for message in history[:5]]
    assert [part.response for message in told for part in message.parts if isinstance(part, perdure.ToolCallResponse)] == ["paid 5"]


@pytest.mark.spec("S0-078", "S0-103")
async def test_what_ended_is_claimed_by_nobody_and_stays_for_as_long_as_nobody_deletes_it(place: Place) -> None:
    agent = Agent("a", model=FunctionModel(lambda request: "done"))
    async with place.process() as process:
        result = await process.run(agent, "go", session="s", submission="m1")
        before = await process.everything()
    place.clock.advance(10 * 365 * 86_400_000)
    async with place.process() as process:
        assert await process.recover([agent]) == []
        await process.store.vacuum()
        assert await process.run(agent, "go", session="s", submission="m1") == result
        assert await process.everything() == before
        await process.sessions.archive("s")
        assert (await process.sessions.result("s", "m1")) == result
        await process.sessions.delete("s")
        with pytest.raises(perdure.SessionNotFound):
            await process.sessions.result("s", "m1")
