"""Things that end while a commit is under way."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Agent, Done, Reply, ToolCall, ToolContext, tool
from perdure.store.memory import MemoryStore
from perdure.testing import FaultStore, VirtualClock, World, find_all_problems
from perdure.testing.faults import Call


@pytest.mark.parametrize("gap", [0, 1, 5, 9, 10, 11])
async def test_a_tool_that_ends_while_anothers_receipt_is_being_committed_is_not_run_again(gap: int) -> None:
    clock, world = VirtualClock(auto=True), World()

    async def slow_commits(call: Call, when: str) -> None:
        if call.kind == "commit":
            await clock.sleep_until(clock.now() + 10)

    @tool(effect="external")
    async def charge(ctx: ToolContext, cents: int) -> str:
        await clock.sleep_until(clock.now() + cents)
        await world.act(ctx, "charge", cents)
        return f"charged {cents}"

    calls = [ToolCall(name="charge", arguments={"cents": 100 + number * gap}) for number in range(4)]
    agent = Agent("a", model=world.model([Reply(tool_calls=calls), Reply("Done.")]), tools=[charge])
    store = FaultStore(MemoryStore(clock.now), gate=slow_commits)
    async with perdure.open(store, clock=clock) as runtime:
        result = await runtime.run(agent, "Please.", session="s", submission="m1")

        assert result.output == "Done."
        assert [effect.value for effect in world.effects] == [call.arguments["cents"] for call in calls]
        assert await find_all_problems(store) == []


async def test_a_reconcile_that_ends_while_a_commit_is_under_way_is_not_asked_again() -> None:
    clock, world = VirtualClock(auto=True), World()
    asked: list[str] = []

    async def slow_commits(call: Call, when: str) -> None:
        if call.kind == "commit":
            await clock.sleep_until(clock.now() + 10)

    async def find(ctx: ToolContext, cents: int) -> Any:
        asked.append(ctx.operation)
        return Done(f"charged {cents}")

    @tool(effect="external", reconcile=find, timeout=0.001)
    async def hang(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "hang", cents)
        await world.until("never")
        return "unused"

    @tool(effect="external")
    async def charge(ctx: ToolContext, cents: int) -> str:
        await clock.sleep_until(clock.now() + cents)
        await world.act(ctx, "charge", cents)
        return f"charged {cents}"

    calls = [ToolCall(name="hang", arguments={"cents": 1}), *(ToolCall(name="charge", arguments={"cents": 1 + n * 7}) for n in range(5))]
    agent = Agent("a", model=world.model([Reply(tool_calls=calls), Reply("Done.")]), tools=[hang, charge])
    store = FaultStore(MemoryStore(clock.now), gate=slow_commits)
    async with perdure.open(store, clock=clock) as runtime:
        await runtime.run(agent, "Please.", session="s", submission="m1")

    assert len(asked) == 1
    assert len(world.effects) == len(calls)
