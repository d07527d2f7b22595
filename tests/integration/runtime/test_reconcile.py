"""Asking a tool what became of a call, live: patience has an end, and so have attempts that had no effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

import perdure
from perdure import Agent, Done, NotDone, Reply, Runtime, ScriptedModel, ToolCall, tool
from perdure.testing.clock import VirtualClock


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock(auto=True)


@pytest.fixture
async def runtime(clock: VirtualClock) -> AsyncIterator[Runtime]:
    async with perdure.open("memory://", clock=clock) as opened:
        yield opened


async def run(runtime: Runtime, used: perdure.Tool) -> Any:
    model = ScriptedModel([Reply(tool_calls=[ToolCall(used.name, {})]), Reply("noted")])
    result = await runtime.run(Agent("a", model=model, tools=[used]), "go", session="s")
    assert result.output == "noted"
    response: Any = (await runtime.sessions.history("s"))[2].parts[0]
    return response


async def test_a_reconcile_that_hangs_counts_as_unknown_after_a_minute(runtime: Runtime, clock: VirtualClock) -> None:
    async def hang() -> Any:
        await asyncio.Event().wait()

    @tool(reconcile=hang)
    async def pay() -> str:
        """Pay, and fall silent."""
        raise OSError("the line went dead")

    began = clock.now()
    response = await run(runtime, pay)
    assert response.response == "execution interrupted; result unknown"
    assert clock.now() - began == 60_000


async def test_a_call_that_never_takes_effect_is_tried_five_times_with_growing_pauses_and_given_up(
    runtime: Runtime, clock: VirtualClock
) -> None:
    times: list[int] = []

    async def nothing() -> NotDone:
        return NotDone()

    @tool(reconcile=nothing)
    async def pay() -> str:
        """Pay, or rather not."""
        times.append(clock.now())
        raise OSError("refused")

    response = await run(runtime, pay)
    assert [later - earlier for earlier, later in pairwise(times)] == [0, 200, 400, 800]
    assert response.is_error
    assert response.response == "not executed: 5 attempts had no effect"
    assert await runtime.sessions.uncertain("s") == []


async def test_a_reconcile_that_knows_gives_the_result_and_the_call_is_not_repeated(runtime: Runtime) -> None:
    ran: list[int] = []

    async def look() -> Done:
        return Done("paid after all")

    @tool(reconcile=look)
    async def pay() -> str:
        """Pay, and fall silent."""
        ran.append(1)
        raise OSError("the line went dead")

    response = await run(runtime, pay)
    assert (response.response, response.is_error, ran) == ("paid after all", False, [1])


async def test_recover_leaves_alone_what_somebody_here_works_on(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel(["hi"]))
    async with runtime.session("s", agent) as session:
        await session.send("hello")
        await asyncio.wait_for(runtime.recover([agent]), 5)
