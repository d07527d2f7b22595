"""The sweep's scenarios with several agents, and with time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from perdure import Agent, ModelRequest, Reply, SessionArchived, ToolCall, ToolContext, Usage, tool
from perdure.store.base import SessionQuery
from perdure.testing import Ending, Life, Loss, Scenario, World
from perdure.tools import sleep_tool

USAGE = Usage(input_tokens=100, output_tokens=7, cache_read_tokens=3)


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def asks(*calls: ToolCall, text: str = "") -> Reply:
    return Reply(text, tool_calls=calls, usage=USAGE)


def says(text: str) -> Reply:
    return Reply(text, usage=USAGE)


async def one_question(life: Life) -> None:
    await life.run("Please.", submission="m1")
    await tidy(life)


async def tidy(life: Life) -> None:
    """What a death left behind that nobody here waits for is a worker's: a child that told its parent and had not said so yet."""

    async def nobody_owes() -> bool:
        rows = await life.runtime.store.sessions(SessionQuery(archived=True, limit=100))
        if all(row.status in ("idle", "archived") for row in rows):
            return True
        await life.runtime.recover([life.agent])
        return False

    while not await nobody_owes():
        await life.clock.sleep_until(life.clock.now() + 500)


def charging(world: World) -> Any:
    @tool(effect="external")
    async def charge(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "charge", cents)
        return f"charged {cents}"

    return charge


def three_levels() -> Scenario:
    """Each level acts before and after it calls the next."""

    def agent(world: World) -> Agent:
        charge = charging(world)
        clerk = Agent("clerk", model=world.model([asks(call("charge", cents=3)), says("The clerk is done.")]), tools=[charge])
        steps = [asks(call("charge", cents=2)), asks(call("clerk", task="the rest")), says("The manager is done.")]
        manager = Agent("manager", model=world.model(steps), tools=[charge, clerk.as_tool()])
        steps = [asks(call("manager", task="all of it")), asks(call("charge", cents=1)), says("Done.")]
        return Agent("a", model=world.model(steps), tools=[charge, manager.as_tool()])

    return Scenario(name="three levels of agents", agent=agent, script=one_question)


def side_by_side() -> Scenario:
    """Two children and a tool run at once; one of the children asks a person."""

    def agent(world: World) -> Agent:
        charge = charging(world)
        one = Agent("one", model=world.model([asks(call("charge", cents=1)), says("One.")]), tools=[charge], approve=["charge"])
        two = Agent("two", model=world.model([says("Two.")]))
        steps = [asks(call("one", task="1"), call("two", task="2"), call("charge", cents=3)), says("Both.")]
        return Agent("a", model=world.model(steps), tools=[charge, one.as_tool(), two.as_tool()])

    async def person(life: Life) -> None:
        await life.answer("approve", submission="answer-1", session="s.t2.0.1")

    return Scenario(name="children side by side", agent=agent, script=one_question, actors={"person": person})


def behind() -> Scenario:
    """A child goes on when its parent's turn is over, and its report begins a turn."""

    def agent(world: World) -> Agent:
        async def working(request: ModelRequest) -> Reply:
            await world.until("first turn over")
            return says("Found it.")

        def play(request: ModelRequest) -> Reply:
            last = request.messages[-1]
            if last.role == "tool":
                return says("They look for it.")
            return says("They found it.") if "Found it." in last.text else asks(call("searcher", task="search"))

        searcher = Agent("searcher", model=world.model([working]))
        return Agent("a", model=world.model([play] * 6), tools=[searcher.as_tool(background=True)])

    async def script(life: Life) -> None:
        await life.run("Please.", submission="m1")
        life.world.reached("first turn over")
        await life.settled("report:t2.0.1", "outcome:t2.0.1")
        await tidy(life)

    return Scenario(name="child in the background", agent=agent, script=script)


def handed_over() -> Scenario:
    """The turn goes on as another agent, with other tools, and so does the session."""

    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=5)), says("Billing has done it."), says("Billing again.")]
        billing = Agent("billing", model=world.model([says("unused"), *steps], name="other"), tools=[charging(world)])
        return Agent("a", model=world.model([asks(call("transfer_to_billing", reason="money"))]), handoffs=[billing])

    async def script(life: Life) -> None:
        await life.run("Please.", submission="m1")
        await life.run("And now?", submission="m2")

    return Scenario(name="handed over", agent=agent, script=script)


def slept() -> Scenario:
    """A turn waits for an hour, and nobody with it."""

    def agent(world: World) -> Agent:
        steps = [asks(call("sleep", seconds=3_600), call("charge", cents=1)), says("Good morning.")]
        return Agent("a", model=world.model(steps), tools=[sleep_tool(), charging(world)])

    return Scenario(name="slept for an hour", agent=agent, script=one_question)


def parent_interrupted() -> Scenario:
    """Who stops a parent stops its children, theirs too, wherever a process dies."""

    def agent(world: World) -> Agent:
        @tool(effect="pure")
        async def wait(ctx: ToolContext) -> str:
            world.reached("working")
            await world.until("never")
            return "unused"

        clerk = Agent("clerk", model=world.model([asks(call("wait"))]), tools=[wait])
        manager = Agent("manager", model=world.model([asks(call("clerk", task="wait"))]), tools=[clerk.as_tool()])
        return Agent("a", model=world.model([asks(call("manager", task="wait"))]), tools=[manager.as_tool()])

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("Please.", submission="m1")
            await life.world.until("working")
            await session.interrupt(submission="interrupt-1")
            await life.settled("m1")
        await tidy(life)

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> tuple[Ending, ...]:
        # The interrupt may be taken up before the harmless call could start again: it was cut off by the restart.
        clerk = "s.t2.0.1.t2.0.1"
        cut_off = undisturbed.sessions[clerk].with_response("call_0_0", "execution interrupted; result unknown")
        return undisturbed, undisturbed.change(clerk, cut_off)

    return Scenario(name="parent interrupted", agent=agent, script=script, expect=expect)


def parent_archived() -> Scenario:
    """A parent is put away while its child waits for a person, and the child with it."""

    def agent(world: World) -> Agent:
        clerk = Agent("clerk", model=world.model([asks(call("charge", cents=1))]), tools=[charging(world)], approve=["charge"])
        return Agent("a", model=world.model([asks(call("clerk", task="pay"))]), tools=[clerk.as_tool()])

    async def script(life: Life) -> None:
        with suppress(SessionArchived):
            await life.run("Please.", submission="m1")

    async def person(life: Life) -> None:
        if await life.until_stored("request_opened", session="s.t2.0.1"):
            await life.runtime.sessions.archive("s", submission="archive-1")
        await tidy(life)

    return Scenario(name="parent archived", agent=agent, script=script, actors={"person": person})


ALL = (three_levels, side_by_side, behind, handed_over, slept, parent_interrupted, parent_archived)
