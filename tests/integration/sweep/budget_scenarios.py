"""The sweep's scenarios with budgets: whatever dies, what is counted is what was used, and nothing runs beyond a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import Agent, Identity, Limits, ModelRequest, Reply, ToolCall, ToolContext, Usage, tool
from perdure.testing import Life, Scenario, World

USAGE = Usage(input_tokens=100, output_tokens=7)


def looking(world: World) -> Any:
    @tool(effect="pure")
    async def look(ctx: ToolContext, place: int) -> str:
        await world.act(ctx, "look", place, effect="pure")
        return f"nothing at {place}"

    return look


def looker(steps: int, **options: Any) -> Callable[[World], Agent]:
    """It looks so many times, and then it answers; where it is follows from the conversation, whatever turn that is."""

    def play(request: ModelRequest) -> Reply:
        done = sum(message.role == "tool" for message in request.messages)
        return Reply("", tool_calls=[ToolCall("look", {"place": done})], usage=USAGE) if done < steps else Reply("done", usage=USAGE)

    def agent(world: World) -> Agent:
        return Agent("a", model=world.model([play] * (steps + 1)), tools=[looking(world)], **options)

    return agent


def limited_and_resumed() -> Scenario:
    """A turn reaches its limit, and goes on once that is raised."""

    async def script(life: Life) -> None:
        result = await life.run("Please.", submission="m1")
        assert result.status == "limited"
        await life.runtime.resume(life.agent, "s", Limits(tokens=1_000), submission="r1")

    return Scenario(name="limited and resumed", agent=looker(3, limits=Limits(tokens=200)), script=script)


def limited_session() -> Scenario:
    """The second of two turns finds nothing left of what the session may use."""

    async def script(life: Life) -> None:
        await life.run("Please.", submission="m1")
        await life.run("More.", submission="m2")

    return Scenario(name="limited session", agent=looker(1, session_limits=Limits(tokens=200, seconds=3_600)), script=script)


def from_a_pool(**limits: int) -> Scenario:
    """Two sessions of one owner, and a pool that is enough for them, or not."""

    async def script(life: Life) -> None:
        await life.runtime.pools.set("acme", Limits(**limits))
        for session in ("s", "t"):
            await life.runtime.run(life.agent, "Please.", session=session, submission=f"m-{session}", identity=Identity(owner="acme"))

    return Scenario(name=f"pool of {', '.join(limits)}", agent=looker(2), script=script)


def pool_filled_up() -> Scenario:
    """A turn finds its owner's pool empty, somebody fills it up, and the turn goes on."""

    async def script(life: Life) -> None:
        raised = life.world.memory.get("raised")
        await life.runtime.pools.set("acme", Limits(tokens=10_000 if raised else 200))
        await life.runtime.run(life.agent, "Please.", session="s", submission="m1", identity=Identity(owner="acme"))
        life.world.memory["raised"] = True
        await life.runtime.pools.set("acme", Limits(tokens=10_000))
        await life.runtime.resume(life.agent, "s", submission="r1")

    return Scenario(name="pool filled up", agent=looker(3), script=script)


ALL: tuple[Callable[[], Scenario], ...] = (
    limited_and_resumed,
    limited_session,
    lambda: from_a_pool(tokens=50_000, tool_calls=20),
    lambda: from_a_pool(tokens=500),
    lambda: from_a_pool(tool_calls=3),
    pool_filled_up,
)
