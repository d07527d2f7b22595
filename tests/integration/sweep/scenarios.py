"""The scenarios of the sweep: each must end the same wherever its process dies, but for what is written down beside it."""

from __future__ import annotations

import asyncio
import atexit
import json
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import TypedDict

from perdure import (
    Agent,
    ApprovalCall,
    Continue,
    Done,
    EffectUncertain,
    Fenced,
    HookContext,
    Identity,
    Limits,
    Message,
    Middleware,
    ModelRequest,
    ModelSettings,
    NotDone,
    NothingChanged,
    ProviderRefused,
    ProviderUnavailable,
    Reject,
    Replace,
    Reply,
    Rewrite,
    Router,
    SessionArchived,
    SessionHalted,
    SessionMemory,
    SessionNotFound,
    SubmissionRejected,
    Text,
    ToolCall,
    ToolCallResponse,
    ToolContext,
    ToolError,
    ToolPolicy,
    TurnEnding,
    Unknown,
    ask_user,
    image,
    tool,
)
from perdure.core.messages import Private, media_of
from perdure.testing import Ending, Life, Loss, Scenario, World
from perdure.testing.sweep import unknown_is_told

from ..media.pictures import big_png
from . import budget_scenarios, catalogue_scenarios, team_scenarios
from .team_scenarios import USAGE, asks, call, says

UNKNOWN = "execution interrupted; result unknown after restart"


async def one_question(life: Life) -> None:
    await life.run("Please.", submission="m1")


async def responses(life: Life, name: str, session: str = "s") -> list[Any]:
    """What the calls of one tool came to, in the order of the transcript."""
    messages = await life.runtime.sessions.history(session, limit=100)
    return [part.response for message in messages for part in message.parts if isinstance(part, ToolCallResponse) and part.name == name]


def charging(world: World, **options: Any) -> Any:
    @tool(**{"effect": "external", **options})
    async def charge(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "charge", cents)
        return f"charged {cents}"

    return charge


def looking(world: World, **options: Any) -> Any:
    @tool(**{"effect": "pure", **options})
    async def look(ctx: ToolContext, place: str) -> str:
        await world.act(ctx, "look", place, effect="pure")
        return f"nothing at {place}"

    return look


def putting(world: World, **options: Any) -> Any:
    @tool(**{"effect": "idempotent", **options})
    async def put(ctx: ToolContext, value: int) -> str:
        await world.act(ctx, "put", value, effect="idempotent")
        return f"put {value}"

    return put


def reserving(world: World, **options: Any) -> Any:
    """A tool that says how many rows its table has: one that was written twice, or not with its receipt, would show.

    The value stands in the statement, since the databases don't write a placeholder alike.
    """

    def write(connection: Any, value: int) -> str:
        connection.execute("CREATE TABLE IF NOT EXISTS seats (value INTEGER)")
        connection.execute(f"INSERT INTO seats VALUES ({value:d})")
        return f"{connection.execute('SELECT count(*) FROM seats').fetchone()[0]} taken"

    def fail(connection: Any, value: int) -> str:
        write(connection, value)
        raise ToolError("no such seat")

    @tool(**{"effect": "transactional", **options})
    async def reserve(ctx: ToolContext, value: int) -> Any:
        await world.point("effect", "reserve", "before")
        return ctx.transaction(write if value else fail, value)

    return reserve


# ------------------------------------------------------------------------------------------------------- answers and tools


def plain() -> Scenario:
    return Scenario(
        name="plain answer",
        agent=lambda world: Agent("a", model=world.model([says("Hello there.")])),
        script=one_question,
        commits=2,
        sends=1,
    )


def three_steps(effect: str) -> Scenario:
    make = {"external": (charging, "charge", "cents"), "pure": (looking, "look", "place"), "idempotent": (putting, "put", "value")}[effect]

    def agent(world: World) -> Agent:
        values: list[Any] = ["here", "there", "elsewhere"] if effect == "pure" else [1, 2, 3]
        steps = [asks(call(make[1], **{make[2]: value}), text="One moment.") for value in values]
        return Agent("a", model=world.model([*steps, says("Done.")]), tools=[make[0](world)])

    return Scenario(name=f"three-step loop of {effect} tools", agent=agent, script=one_question, commits=8, sends=1)


def transactional() -> Scenario:
    """One commit more for a call than any other tool takes: user code runs between the receipt and the next intent."""

    def agent(world: World) -> Agent:
        steps = [asks(call("reserve", value=1)), asks(call("reserve", value=0)), asks(call("reserve", value=2)), says("Done.")]
        return Agent("a", model=world.model(steps), tools=[reserving(world)])

    async def script(life: Life) -> None:
        await one_question(life)
        assert await responses(life, "reserve") == ["1 taken", "no such seat", "2 taken"]

    return Scenario(name="transactional tools", agent=agent, script=script, commits=11, sends=1)


def transactional_among_others() -> Scenario:
    def agent(world: World) -> Agent:
        calls = [call("charge", cents=1), call("reserve", value=1), call("look", place="x"), call("reserve", value=2), call("put", value=2)]
        tools = [charging(world), looking(world), putting(world), reserving(world)]
        counted = asks(call("reserve", value=3))
        return Agent("a", model=world.model([asks(*calls), counted, says("All done.")]), tools=tools, archive=None)

    async def script(life: Life) -> None:
        await one_question(life)
        *first, last = await responses(life, "reserve")
        assert (sorted(first), last) == (["1 taken", "2 taken"], "3 taken")

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> tuple[Ending, ...]:
        # Which of the two is the first may change with a restart.
        usual = unknown_is_told(undisturbed, losses)
        session = usual.sessions["s"]
        other = session.with_response("call_0_1", "2 taken", is_error=False).with_response("call_0_3", "1 taken", is_error=False)
        return usual, usual.change("s", other)

    return Scenario(name="transactional tools among others", agent=agent, script=script, expect=expect)


def transactional_stopped() -> Scenario:
    """With ``on_restart="stop"`` a restart ends the turn; what was not committed was not done, and can be done again."""

    def agent(world: World) -> Agent:
        steps = [asks(call("reserve", value=1)), says("One."), asks(call("reserve", value=2)), says("Two.")]
        return Agent("a", model=world.model(steps), tools=[reserving(world)], on_restart="stop")

    async def script(life: Life) -> None:
        await life.run("one", submission="m1")
        assert set(await responses(life, "reserve")) <= {"1 taken", UNKNOWN}

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending:
        session = undisturbed.sessions["s"]
        for loss in losses:
            if not loss.lost.get("s") and loss.phases.get("s") != "tools":
                continue
            [lost] = loss.lost["s"]
            step, tools = int(lost.id.split(".")[1]), lost.plan.kind == "tool"
            answers = step + tools
            known = tuple(answers * value for value in (100, 7, 3, 0, 0))
            told = session.with_response("call_0_0", UNKNOWN) if tools else session
            ending = replace(
                told,
                transcript=told.transcript[: 1 + 2 * answers],
                outcomes={"m1": ("turn_aborted", "", "restart", "", answers, min(answers, 1), known)},
                known=known,
            )
            return undisturbed.change("s", ending)
        return undisturbed

    return Scenario(name='on_restart="stop", transactional', agent=agent, script=script, expect=expect)


class Noting:
    """A step's function, which tells the world what it did, and how often."""

    def __init__(self, world: World, ctx: ToolContext, name: str, effect: str) -> None:
        self._world, self._effect, self._name = world, effect, name
        self._ctx = replace(ctx, operation=f"{ctx.operation}/{name}", idempotency_key=ctx.step_key(name))

    async def __call__(self, value: int) -> str:
        await self._world.act(self._ctx, self._name, value, effect=self._effect)
        return f"{self._name} {value}"


def resumable(effect: str) -> Scenario:
    """A tool that runs again after a restart: what its steps did is done once, and they return what they returned."""

    def agent(world: World) -> Agent:
        return Agent("a", model=world.model([asks(call("travel")), asks(call("travel")), says("Done.")]), tools=[travelling(world, effect)])

    async def script(life: Life) -> None:
        await one_question(life)
        assert await responses(life, "travel") == [["hotel 1", taken, "flight 2", "car 3"] for taken in (1, 2)]

    return Scenario(name=f"resumable tool with {effect} steps", agent=agent, script=script)


def travelling(world: World, effect: str) -> Any:
    """A tool of four steps, the last two at once; one of them counts the rows of the table that `reserving` writes to, with its own."""

    def count(connection: Any) -> int:
        connection.execute("CREATE TABLE IF NOT EXISTS seats (value INTEGER)")
        connection.execute("INSERT INTO seats VALUES (1)")
        return int(connection.execute("SELECT count(*) FROM seats").fetchone()[0])

    @tool(effect="external", resumable=True)
    async def travel(ctx: ToolContext) -> Any:
        def step(name: str, value: int) -> Any:
            reconcile: Any = None
            if effect == "external":
                key, attempt = ctx.step_key(name), ctx.attempt

                def reconcile(value: int) -> Done | NotDone:
                    return Done(f"{name} {value}") if world.did(key) or not world.refuse(key, attempt - 1) else NotDone()

            return ctx.step(name, Noting(world, ctx, name, effect), value, effect=effect, reconcile=reconcile)  # type: ignore[arg-type]

        hotel = await step("hotel", 1)
        seats = await ctx.step("seat", count, effect="transactional")
        await world.point("effect", "travel", "before")
        return [hotel, seats, *await asyncio.gather(step("flight", 2), step("car", 3))]

    return travel


def slept() -> Scenario:
    """A tool that waits for a time between two things that it does, with a call beside it: each is done once."""

    def agent(world: World) -> Agent:
        @tool(effect="external", resumable=True)
        async def remind(ctx: ToolContext) -> Any:
            asked = await ctx.step("ask", Noting(world, ctx, "ask", "idempotent"), 1, effect="idempotent")
            await ctx.sleep_until("night", timedelta(minutes=2))
            await world.point("effect", "remind", "before")
            return [asked, await ctx.step("remind", Noting(world, ctx, "remind", "idempotent"), 2, effect="idempotent")]

        steps = [asks(call("remind"), call("look", place="x")), says("Done.")]
        return Agent("a", model=world.model(steps), tools=[remind, looking(world)])

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending:
        return undisturbed

    return Scenario(name="slept in a tool", agent=agent, script=one_question, expect=expect)


def unique(effect: str) -> Scenario:
    """What one session did, another one is told, and doesn't do; what certainly failed is free again."""

    def agent(world: World) -> Agent:
        if effect == "transactional":
            act: Any = reserving(world, unique="seat:{value}")
        else:
            act = putting(world, unique="put:{value}", effect=effect)
        name = "reserve" if effect == "transactional" else "put"
        steps = [asks(call(name, value=0), call(name, value=1)), asks(call(name, value=1), call(name, value=0)), says("Done.")]
        return Agent("a", model=world.model(steps), tools=[act])

    async def script(life: Life) -> None:
        await life.run("one", submission="m1", session="s")
        await life.run("two", submission="m2", session="t")
        mine, others = [await responses(life, "reserve" if effect == "transactional" else "put", session) for session in ("s", "t")]
        assert mine[1] in ("1 taken", "put 1")
        assert mine[1] not in others

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending:
        return undisturbed

    return Scenario(name=f"what only one may do, {effect}", agent=agent, script=script, expect=expect)


def parallel() -> Scenario:
    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=1), call("look", place="x"), call("put", value=2), call("charge", cents=3)), says("All done.")]
        return Agent("a", model=world.model(steps), tools=[charging(world), looking(world), putting(world)])

    return Scenario(name="parallel tools", agent=agent, script=one_question, sends=1)


def exclusive() -> Scenario:
    def agent(world: World) -> Agent:
        calls = asks(call("look", place="a"), call("charge", cents=1), call("look", place="b"), call("charge", cents=2))
        return Agent("a", model=world.model([calls, says("All done.")]), tools=[charging(world, exclusive=True), looking(world)])

    return Scenario(name="exclusive tools", agent=agent, script=one_question)


def failing() -> Scenario:
    def agent(world: World) -> Agent:
        @tool(effect="external")
        async def refuse(ctx: ToolContext, why: str) -> str:
            await world.point("effect", "refuse", "before")
            raise ToolError(f"no: {why}")

        @tool(effect="pure")
        async def divide(ctx: ToolContext, number: int) -> float:
            await world.point("effect", "divide", "before")
            return 1 / number

        steps = [
            asks(call("refuse", why="closed")),
            asks(call("divide", number=0), call("refuse", why="still closed")),
            asks(call("divide", number="many"), call("vanished")),
            says("It can't be done."),
        ]
        return Agent("a", model=world.model(steps), tools=[refuse, divide])

    return Scenario(name="failing tools and calls that can't be made", agent=agent, script=one_question)


def raising() -> Scenario:
    """An external tool that raises anything but `ToolError` leaves its outcome unknown while the process lives, too."""

    def agent(world: World) -> Agent:
        @tool(effect="external")
        async def explode(ctx: ToolContext) -> str:
            await world.act(ctx, "explode")
            raise OSError("the line is dead")

        return Agent("a", model=world.model([asks(call("explode")), says("I don't know.")]), tools=[explode])

    return Scenario(name="external tool that raises", agent=agent, script=one_question)


def model_retry() -> Scenario:
    def agent(world: World) -> Agent:
        def unreliable(request: ModelRequest) -> Reply:
            # It fails while it must: how often it was asked is a matter of the outside world.
            failures.append(request.step)
            if len(failures) < 3:
                raise ProviderUnavailable("try again", retry_after=20.0 if len(failures) == 1 else None)
            return says("At last.")

        failures: list[int] = world.memory.setdefault("failures", [])
        return Agent("a", model=world.model([unreliable]))

    return Scenario(name="model retry", agent=agent, script=one_question)


def model_fails() -> Scenario:
    def agent(world: World) -> Agent:
        def broken(request: ModelRequest) -> Reply:
            raise ProviderUnavailable("down for good")

        model = world.model([asks(call("put", value=1)), broken])
        return Agent("a", model=model, tools=[putting(world)], settings=ModelSettings(attempts=4))

    return Scenario(name="model that fails for good", agent=agent, script=one_question)


def stored_part() -> Scenario:
    def agent(world: World) -> Agent:
        @tool(effect="external")
        async def fetch(ctx: ToolContext, length: int) -> str:
            await world.act(ctx, "fetch", length)
            return "x" * length

        long = "a long answer " * 4000
        steps = [Reply("think " * 8000, tool_calls=[call("fetch", length=50_000)], usage=USAGE), says(long)]
        return Agent("a", model=world.model(steps), tools=[fetch], instructions="i" * 40_000)

    async def script(life: Life) -> None:
        await life.run("question " * 5000, submission="m1")

    return Scenario(name="parts that are set aside", agent=agent, script=script)


def archived_result() -> Scenario:
    """The model sees an excerpt, and reads on; a call that was cut off has nothing to read."""

    def agent(world: World) -> Agent:
        @tool(effect="pure")
        async def fetch(ctx: ToolContext, length: int) -> str:
            await world.act(ctx, "fetch", length, effect="pure")
            return "0123456789" * (length // 10)

        def reading(request: ModelRequest) -> Reply:
            [shown] = [part.response for part in request.messages[-1].parts if isinstance(part, ToolCallResponse)]
            assert len(shown) < 4_000
            return asks(call("read_result", handle="3.0", offset=20_000, length=20))

        def told(request: ModelRequest) -> Reply:
            [shown] = [part.response for part in request.messages[-1].parts if isinstance(part, ToolCallResponse)]
            return says(shown["text"])

        return Agent("a", model=world.model([asks(call("fetch", length=50_000)), reading, told]), tools=[fetch])

    return Scenario(name="archived result", agent=agent, script=one_question, commits=6, sends=1)


def compaction_in_a_turn() -> Scenario:
    """Notes are written between two steps; a steer comes meanwhile, and a tool that ran before is not run again."""

    def agent(world: World) -> Agent:
        def notes(request: ModelRequest) -> Reply:
            return asks(call("save_notes", notes=f"notes of {len(request.messages)}"))

        steps = [
            asks(call("charge", cents=1), text="word " * 600),
            asks(call("charge", cents=2), text="word " * 600),
            asks(call("look", place="x"), text="word " * 600),
            says("Done."),
        ]
        model = world.model(steps, notes=notes, window=3_000)
        return Agent("a", model=model, tools=[charging(world), looking(world)])

    return Scenario(name="compaction in a turn", agent=agent, script=one_question, sends=1)


def compaction_bit_by_bit() -> Scenario:
    """A wide model leaves a long conversation to a narrow one, which can't read it at once."""

    def agent(world: World) -> Agent:
        wide = world.model([says("word " * 900)] * 4, name="wide", window=100_000)
        narrow = world.model([says("unused")] * 4 + [says("Here I am."), says("Still here.")], name="narrow", window=3_000)
        return Agent("a", model=Router({"wide": wide, "narrow": narrow}, windows={"wide": 3_500}))

    async def script(life: Life) -> None:
        for number in range(4):
            await life.run(f"question {number}", submission=f"m{number}")
        await life.runtime.sessions.select_route("s", "narrow", submission="route-1")
        await life.run("and you?", submission="m4")
        await life.run("still?", submission="m5")

    return Scenario(name="compaction at a route change, bit by bit", agent=agent, script=script)


def compacted_by_hand() -> Scenario:
    def agent(world: World) -> Agent:
        return Agent("a", model=world.model([says("One."), says("Two."), says("Three.")]))

    async def script(life: Life) -> None:
        await life.run("one", submission="m1")
        await life.run("two", submission="m2")
        async with life.runtime.session("s", life.agent):
            await life.runtime.sessions.compact("s", submission="c1")
            await life.settled("m1", "m2", "c1")
        await life.run("three", submission="m3")

    return Scenario(name="compacted by hand", agent=agent, script=script)


# --------------------------------------------------------------------------------------------------------------- approvals


def approval(decision: str, **options: Any) -> Scenario:
    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=500), call("look", place="till")), says("Well then.")]
        return Agent("a", model=world.model(steps), tools=[charging(world), looking(world)], approve=["charge"])

    async def person(life: Life) -> None:
        await life.answer(decision, submission="answer-1", **options)

    edited = options.get("arguments", {}).get("cents")
    name = f"approval: {decision}" + (f" with {edited!r} instead" if edited is not None else "")
    return Scenario(name=name, agent=agent, script=one_question, actors={"person": person})


def approval_timeout() -> Scenario:
    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=500)), says("Nobody was there.")]
        return Agent("a", model=world.model(steps), tools=[charging(world)], approve=["charge"], approval_timeout=3600)

    return Scenario(name="approval that nobody gives", agent=agent, script=one_question)


def approval_interrupted() -> Scenario:
    def agent(world: World) -> Agent:
        return Agent("a", model=world.model([asks(call("charge", cents=500)), says("unused")]), tools=[charging(world)], approve=["charge"])

    async def person(life: Life) -> None:
        if await life.until_stored("request_opened"):
            await life.runtime.sessions.interrupt("s", submission="interrupt-1")

    return Scenario(name="approval: interrupted", agent=agent, script=one_question, actors={"person": person})


def two_approvals() -> Scenario:
    """A batch with two questions, answered one after the other by two people."""

    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=1), call("charge", cents=2)), says("Well then.")]
        return Agent("a", model=world.model(steps), tools=[charging(world)], approve=["charge"])

    async def two(life: Life) -> None:
        await life.until_stored("request_closed")
        await life.answer("deny", submission="answer-2", reason="too much")

    async def one(life: Life) -> None:
        await life.answer("approve", submission="answer-1")

    return Scenario(name="two approvals in one batch", agent=agent, script=one_question, actors={"one": one, "two": two})


def callable_policy() -> Scenario:
    """The receipt of the model call is committed alone before the user's policy runs."""

    def agent(world: World) -> Agent:
        async def policy(asked: Any) -> str:
            await world.point("policy", asked.name, "before")
            return {1: "allow", 2: "ask", 3: "deny"}[asked.arguments["cents"]]

        steps = [asks(call("charge", cents=1)), asks(call("charge", cents=2), call("charge", cents=3)), says("Well then.")]
        return Agent("a", model=world.model(steps), tools=[charging(world)], approve=policy)

    async def person(life: Life) -> None:
        await life.answer("approve", submission="answer-1")

    return Scenario(name="policy that is a function", agent=agent, script=one_question, actors={"person": person})


# ---------------------------------------------------------------------------------------------- messages, steers, interrupts


def route_changed() -> Scenario:
    """Another model goes on with what one began, and is sent none of its private reasoning."""

    def agent(world: World) -> Agent:
        def last(request: ModelRequest) -> Reply:
            private = [part for message in request.messages for part in message.parts if isinstance(part, Private)]
            return says(f"{request.route} saw {len(private)} private parts.")

        first = Reply("First.", usage=USAGE, private={"sealed": 1})
        return Agent("a", model=Router({name: world.model([first, last], name=name) for name in ("one", "two")}))

    async def script(life: Life) -> None:
        await life.run("one", submission="m1")
        await life.runtime.sessions.select_route("s", "two", submission="route-1")
        await life.run("two", submission="m2")

    return Scenario(name="route changed", agent=agent, script=script)


def edited() -> Scenario:
    """A transcript is rewritten, forked, redacted and restored between turns."""

    def agent(world: World) -> Agent:
        return Agent("a", model=world.model([says("One."), says("Two.")]))

    async def script(life: Life) -> None:
        sessions = life.runtime.sessions
        await life.run("one", submission="m1")
        edit = await sessions.rewrite("s", (0, 1), ["rather this"], submission="edit-1", reason="typo", actor="ann")
        await life.run("two", submission="m2")
        await sessions.fork("s", at=3, session_id="f", replacement="and now something else")
        await sessions.redact("s", entries=[edit.seq + 2], submission="redact-1", reason="asked for")
        await sessions.restore("s", edit.parent, submission="restore-1")

    return Scenario(name="edited between turns", agent=agent, script=script)


def queued() -> Scenario:
    """A message that comes while the session works begins a turn of its own afterwards."""

    def agent(world: World) -> Agent:
        @tool(effect="pure")
        async def wait(ctx: ToolContext) -> str:
            world.reached("working")
            await world.until("second sent")
            return "waited"

        return Agent("a", model=world.model([asks(call("wait")), says("First."), says("Second.")]), tools=[wait])

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1")
            await life.world.until("working")
            await session.send("two", submission="m2", deliver="queue")
            life.world.reached("second sent")
            await life.settled("m1", "m2")

    return Scenario(name="message while busy", agent=agent, script=script, sends=2)


def steered() -> Scenario:
    """A steer that comes while a tool runs joins before the next model call."""

    def agent(world: World) -> Agent:
        @tool(effect="pure")
        async def wait(ctx: ToolContext) -> str:
            world.reached("working")
            await world.until("steered")
            return "waited"

        return Agent("a", model=world.model([asks(call("wait")), says("As you wish.")]), tools=[wait])

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1")
            await life.world.until("working")
            await session.send("and mind the step", submission="steer-1", deliver="steer")
            life.world.reached("steered")
            await life.settled("m1", "steer-1")

    return Scenario(name="steer while a tool runs", agent=agent, script=script, sends=2)


def steered_at_the_end() -> Scenario:
    """A steer that comes during the last model call beats the turn's end."""

    def agent(world: World) -> Agent:
        async def last(request: ModelRequest) -> Reply:
            world.reached("answering")
            await world.until("steered")
            return says("Done.")

        return Agent("a", model=world.model([last, says("Really done.")]))

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1")
            await life.world.until("answering")
            await session.send("one more thing", submission="steer-1", deliver="steer")
            life.world.reached("steered")
            await life.settled("m1", "steer-1")

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> tuple[Ending, ...]:
        # A model call that has to be made again takes the steer in first, as any call does.
        session = undisturbed.sessions["s"]
        question, answer, steer, _ = session.transcript
        known = (100, 7, 3, 0, 0)
        earlier = replace(
            session,
            transcript=(question, steer, answer),
            outcomes={"m1": ("turn_completed", "Done.", "", "", 1, 0, known)},
            known=known,
        )
        return undisturbed, undisturbed.change("s", earlier)

    return Scenario(name="steer during the last model call", agent=agent, script=script, expect=expect)


def steer_of_an_ended_turn() -> Scenario:
    """A steer whose turn is interrupted first becomes a turn of its own."""

    def agent(world: World) -> Agent:
        async def play(request: ModelRequest) -> Reply:
            if request.messages[-1].text == "one":
                world.reached("answering")
                await world.until("never")
            return says("A turn of its own.")

        return Agent("a", model=world.model([play, play]))

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1")
            await life.world.until("answering")
            await session.interrupt(submission="interrupt-1")
            await session.send("too late", submission="steer-1", deliver="steer")
            await life.settled("m1", "steer-1")

    return Scenario(name="steer of a turn that was interrupted", agent=agent, script=script)


def interrupted_in_model() -> Scenario:
    """The model never answers; the interrupt ends the turn, and the message behind it gets its own."""

    def agent(world: World) -> Agent:
        async def play(request: ModelRequest) -> Reply:
            if request.messages[-1].text == "one":
                world.reached("there")
                await world.until("never")
            return says("Second.")

        return Agent("a", model=world.model([play]))

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1")
            await life.world.until("there")
            # One of another turn does nothing; where nobody holds the session, its sender is told at once.
            with suppress(SubmissionRejected):
                await session.interrupt(turn="t99", submission="interrupt-0")
            await session.interrupt(submission="interrupt-1")
            await session.send("two", submission="m2")
            await life.settled("m1", "m2")

    return Scenario(name="interrupted while the model answers", agent=agent, script=script)


def interrupted_in_tools() -> Scenario:
    """What an interrupt cuts off is told as unknown, and a call that harms nobody as interrupted."""

    def agent(world: World) -> Agent:
        @tool(effect="external")
        async def charge(ctx: ToolContext, cents: int) -> str:
            await world.act(ctx, "charge", cents)
            world.reached("there")
            await world.until("never")
            return "unused"

        @tool(effect="pure")
        async def look(ctx: ToolContext) -> str:
            await world.until("never")
            return "unused"

        def play(request: ModelRequest) -> Reply:
            return asks(call("charge", cents=5), call("look")) if request.messages[-1].text == "one" else says("Second.")

        return Agent("a", model=world.model([play, play]), tools=[charge, look])

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1")
            if await charged_or_cut_off(life):
                await session.interrupt(submission="interrupt-1")
            await session.send("two", submission="m2")
            await life.settled("m1", "m2")

    async def charged_or_cut_off(life: Life) -> bool:
        """Until the payment was made, or, in a later life, was given up."""
        while not life.world.effects:
            head = await life.runtime.store.load("s")
            assert head is not None
            if await life.runtime.store.effects(head.row.no, state="uncertain"):
                return True
            await life.clock.sleep_until(life.clock.now() + 50)
        return True

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> tuple[Ending, ...]:
        told = undisturbed
        if any(loss.effects for loss in losses):
            told = told.change("s", told.sessions["s"].with_response("call_0_0", UNKNOWN))
            told = replace(told, optional=told.effects)
        # The interrupt may be taken up before the harmless call could start again: it was cut off by the restart.
        waiting = told.change("s", told.sessions["s"].with_response("call_0_1", "execution interrupted; result unknown"))
        return told, waiting

    return Scenario(name="interrupted while tools run", agent=agent, script=script, expect=expect)


def interrupted_while_completing() -> Scenario:
    """The model has answered, and what runs before the turn ends never does; the interrupt ends the turn, and the answer stays."""

    def agent(world: World) -> Agent:
        class Ponders(Middleware):
            name = "ponders"

            async def stop(self, ctx: HookContext, answer: str) -> Continue | None:
                if answer == "First.":
                    world.reached("there")
                    await world.until("never")
                return None

        return Agent("a", model=world.model([says("First."), says("Second.")]), middleware=[Ponders()])

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1")
            await life.world.until("there")
            await session.interrupt(submission="interrupt-1")
            await session.send("two", submission="m2")
            await life.settled("m1", "m2")

    return Scenario(name="interrupted while completing", agent=agent, script=script)


def interrupted_while_idle() -> Scenario:
    """There is nothing to interrupt; whoever wants to is told so, and the journal holds nothing of it."""

    async def script(life: Life) -> None:
        await life.run("Please.", submission="m1")
        with pytest.raises(SubmissionRejected, match="no turn is running"):
            await life.runtime.sessions.interrupt("s", submission="interrupt-1")

    return replace(plain(), name="interrupted while idle", script=script, commits=None, sends=None)


# ------------------------------------------------------------------------------------------------------------ several runners


def two_runners() -> Scenario:
    """Two processes want the same turns; one at a time has them, and both hear the same."""

    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=1)), says("First."), asks(call("charge", cents=2)), says("Second.")]
        return Agent("a", model=world.model(steps), tools=[charging(world)])

    async def script(life: Life) -> None:
        first = await life.run("one", submission="m1")
        second = await life.run("two", submission="m2")
        assert (first.output, second.output) == ("First.", "Second.")

    return Scenario(name="two runners", agent=agent, script=script, actors={"other": script})


def closed_in_mid_turn(effect: str) -> Scenario:
    """A process is asked to stop while a tool runs, lets go, and another goes on."""

    def agent(world: World) -> Agent:
        @tool(effect=effect)  # type: ignore[arg-type]
        async def work(ctx: ToolContext) -> str:
            if effect == "external":
                await world.act(ctx, "work")
            world.reached("working")
            await world.until("closed")
            return "worked"

        return Agent("a", model=world.model([asks(call("work")), says("Done.")]), tools=[work])

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1")
            await life.watch(lambda: working(life))

    async def working(life: Life) -> bool:
        head = await life.runtime.store.load("s")
        assert head is not None
        started = await life.runtime.store.entries(head.row.no, kinds=("operation_started",))
        return len(started) > 1

    async def successor(life: Life) -> None:
        await life.until_alone()
        life.world.reached("closed")
        result = await life.run("one", submission="m1")
        assert result.output == "Done."

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> tuple[Ending, ...]:
        if effect != "external" or not losses:
            return (undisturbed,)
        # Whoever died before it could close in order leaves the words of a restart, or a call that the successor makes.
        ending = replace(undisturbed, optional=undisturbed.effects)
        session = undisturbed.sessions["s"]
        told = ending.change("s", session.with_response("call_0_0", UNKNOWN))
        return ending, told, ending.change("s", session.with_response("call_0_0", "worked", is_error=False))

    return Scenario(
        name=f"closed in mid-turn, {effect} tool",
        agent=agent,
        script=script,
        actors={"successor": successor},
        expect=expect,
        close_grace=0.0,
    )


# ------------------------------------------------------------------------------------------------------------------- limits


def limited(**limits: int) -> Scenario:
    def agent(world: World) -> Agent:
        steps = [
            asks(call("charge", cents=1)),
            asks(call("charge", cents=2), call("charge", cents=3)),
            asks(call("charge", cents=4)),
            says("-"),
        ]
        return Agent("a", model=world.model(steps), tools=[charging(world)], limits=Limits(**limits))

    return Scenario(name=f"limit of {', '.join(limits)}", agent=agent, script=one_question)


# ------------------------------------------------------------------------------------------------------------ uncertain effects


def guarded(decision: str) -> Scenario:
    """A model that repeats a call of unknown outcome makes the guard ask a person."""

    def agent(world: World) -> Agent:
        def after(request: ModelRequest) -> Reply:
            response: Any = request.messages[-1].parts[0]
            return asks(call("charge", cents=5)) if response.is_error else says("Paid.")

        return Agent("a", model=world.model([asks(call("charge", cents=5)), after, says("I leave it.")]), tools=[charging(world)])

    async def person(life: Life) -> None:
        await life.answer(decision, submission="answer-1")

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending | tuple[Ending, ...]:
        effects = [operation for loss in losses for _, operation in loss.effects]
        if not effects:
            return undisturbed
        session = undisturbed.sessions["s"].with_response("call_0_0", UNKNOWN)
        question, ask, told, _ = session.transcript
        again = call_message(("call_1_0", "charge", {"cents": 5}))
        denied = decision == "deny" or len(effects) > 1
        words = "not executed: a person denied it" if decision == "deny" else UNKNOWN if denied else "charged 5"
        response = response_message("call_1_0", "charge", words, is_error=denied)
        answer = text_message("I leave it.")
        known = (300, 21, 9, 0, 0)
        after = replace(
            session,
            transcript=(question, ask, told, again, response, answer),
            outcomes={"m1": ("turn_completed", "I leave it.", "", "", 3, 2, known)},
            known=known,
        )
        ((where, turn, _),) = undisturbed.effects
        second = frozenset({(where, turn, "call_1_0:charge:5")}) if decision == "approve" else frozenset()
        optional = undisturbed.effects | (second if denied else frozenset())
        return replace(undisturbed.change("s", after), effects=undisturbed.effects | second, optional=optional)

    return Scenario(
        name=f"guard after an uncertain effect, {decision}", agent=agent, script=one_question, actors={"person": person}, expect=expect
    )


def call_message(*calls: tuple[str, str, Any]) -> tuple[str, tuple[Any, ...]]:
    return "assistant", tuple(ToolCall(id=identity, name=name, arguments=arguments) for identity, name, arguments in calls)


def response_message(identity: str, name: str, response: Any, *, is_error: bool) -> tuple[str, tuple[Any, ...]]:
    return "tool", (ToolCallResponse(id=identity, name=name, response=response, is_error=is_error),)


def text_message(text: str) -> tuple[str, tuple[Any, ...]]:
    return "assistant", (Text(text),)


def asked_when_uncertain(decision: str) -> Scenario:
    """Nobody but a person can tell what became of the call, and the turn waits for it."""

    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=5)), says("Well then.")]
        return Agent("a", model=world.model(steps), tools=[charging(world, on_uncertain="ask")])

    async def person(life: Life) -> None:
        # Nobody says "it didn't happen, try again" without having looked; and a second attempt can be cut off as the first was.
        for number in (1, 2):
            submission, honest = f"answer-{number}", decision
            if await life.until_stored("request_opened", count=number) and decision == "retry" and life.world.effects:
                honest = "settle"
            options = {"result": "charged by hand"} if honest == "settle" else {}
            life.world.memory.setdefault(submission, (honest, options))
            honest, options = life.world.memory[submission]
            await life.answer(honest, submission=submission, kind="uncertain", **options)

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> tuple[Ending, ...]:
        effects = [operation for loss in losses for _, operation in loss.effects]
        if not effects:
            return (undisturbed,)
        optional = replace(undisturbed, optional=undisturbed.effects)
        session = undisturbed.sessions["s"]
        by_hand = optional.change("s", session.with_response("call_0_0", "charged by hand", is_error=False))
        denied = optional.change("s", session.with_response("call_0_0", "execution interrupted; result unknown"))
        match decision:
            case "settle":
                return (by_hand,)
            case "deny":
                return (denied,)
            case _:
                return by_hand, optional

    return Scenario(name=f"uncertain effect, asked, {decision}", agent=agent, script=one_question, actors={"person": person}, expect=expect)


def reconciled(answer: str) -> Scenario:
    """The tool itself can tell what became of a call, or says that nobody can."""

    def agent(world: World) -> Agent:
        async def find(ctx: ToolContext, cents: int) -> Any:
            await world.point("reconcile", "charge", "before")
            if answer == "unknown":
                return Unknown()
            return Done(f"charged {cents}") if world.did(ctx.idempotency_key) else NotDone()

        steps = [asks(call("charge", cents=5), call("look", place="till")), asks(call("charge", cents=6)), says("Well then.")]
        return Agent("a", model=world.model(steps), tools=[charging(world, reconcile=find), looking(world)])

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending:
        ending = undisturbed
        if answer == "unknown":
            for loss in losses:
                for session_id, operation in loss.effects:
                    told = ending.sessions[session_id].with_response(operation.plan.call, UNKNOWN)
                    ending = replace(ending.change(session_id, told), optional=ending.effects)
        return ending

    return Scenario(name=f"reconciled effect, {answer}", agent=agent, script=one_question, expect=expect)


def closed_while_reconciling() -> Scenario:
    """A process is asked to stop while a tool is asked what became of its call; the next one asks again."""

    def agent(world: World) -> Agent:
        async def find(ctx: ToolContext, cents: int) -> Any:
            world.reached("asked")
            await world.until("closed")
            return Done(f"charged {cents}") if world.did(ctx.idempotency_key) else NotDone()

        @tool(effect="external", reconcile=find, timeout=30)
        async def charge(ctx: ToolContext, cents: int) -> str:
            await world.act(ctx, "charge", cents)
            await world.until("never")
            return "unused"

        return Agent("a", model=world.model([asks(call("charge", cents=5)), says("Well then.")]), tools=[charge])

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1")
            await life.world.until("asked")

    async def successor(life: Life) -> None:
        await life.until_alone()
        life.world.reached("closed")
        await life.run("one", submission="m1")

    return Scenario(name="closed while a call is reconciled", agent=agent, script=script, actors={"successor": successor}, close_grace=0.0)


def reconciled_live() -> Scenario:
    """A call that takes too long is reconciled while the process lives."""

    def agent(world: World) -> Agent:
        async def find(ctx: ToolContext, cents: int) -> Any:
            await world.point("reconcile", "charge", "before")
            return Done(f"charged {cents}") if world.did(ctx.idempotency_key) else NotDone()

        @tool(effect="external", reconcile=find, timeout=30)
        async def charge(ctx: ToolContext, cents: int) -> str:
            await world.act(ctx, "charge", cents)
            await world.until("never")
            return "unused"

        return Agent("a", model=world.model([asks(call("charge", cents=5)), says("Well then.")]), tools=[charge])

    return Scenario(name="reconciled after a timeout", agent=agent, script=one_question)


def stopped(kind: str) -> Scenario:
    """With ``on_restart="stop"`` a restart ends the turn that it cut off, in words that tell what is known."""

    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=5), call("look", place="till")), says("Well then.")]
        tools = [charging(world), looking(world)]
        approve: Any = ["charge"] if kind == "approval" else ()
        return Agent("a", model=world.model(steps), tools=tools, on_restart="stop", approve=approve)

    async def person(life: Life) -> None:
        if kind == "approval":
            await life.answer("approve", submission="answer-1")

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending:
        session = undisturbed.sessions["s"]
        for loss in losses:
            if not loss.lost.get("s") and loss.phases.get("s") != "tools":
                continue
            steps = {operation.id.split(".")[1] for operation in loss.lost["s"]}
            models = any(operation.plan.kind == "model" for operation in loss.lost["s"])
            step = int(max(steps, default="0"))
            told = session
            tool_calls = 0 if models and not step else 2
            if not models:
                calls = {operation.plan.call for operation in loss.lost["s"]}
                for identity in ("call_0_0", "call_0_1"):
                    told = told.with_response(identity, UNKNOWN if identity in calls else "not executed")
            length = (1 if models else 3) + 2 * step * models
            answers = (0 if models else 1) + step * models
            known = tuple(answers * value for value in (100, 7, 3, 0, 0))
            ending = replace(
                told,
                transcript=told.transcript[:length],
                outcomes={"m1": ("turn_aborted", "", "restart", "", answers, tool_calls, known)},
                known=known,
            )
            return replace(undisturbed.change("s", ending), optional=undisturbed.effects)
        return undisturbed

    return Scenario(name=f'on_restart="stop", {kind}', agent=agent, script=one_question, actors={"person": person}, expect=expect)


def late_receipt() -> Scenario:
    """A provider reports by the callback token what nobody knew any more, and the model is told."""

    def agent(world: World) -> Agent:
        @tool(effect="external", timeout=60)
        async def order(ctx: ToolContext, what: str) -> str:
            world.memory["token"] = ctx.callback_token
            await world.act(ctx, "order", what)
            await world.until("never")
            return "unused"

        def again(request: ModelRequest) -> Reply:
            known = any("is known now" in message.text and "delivered" in message.text for message in request.messages)
            return says("It came." if known else "Nobody knows.")

        return Agent("a", model=world.model([asks(call("order", what="tea")), says("No word yet."), again]), tools=[order])

    async def script(life: Life) -> None:
        await life.run("one", submission="m1")
        await life.until_alone()
        await life.run("two", submission="m2")

    async def provider(life: Life) -> None:
        if await life.until_stored("turn_completed") and "token" in life.world.memory:
            await life.runtime.sessions.report(life.world.memory["token"], "delivered")

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> tuple[Ending, ...]:
        if not any(loss.effects for loss in losses):
            return (undisturbed,)
        session = undisturbed.sessions["s"].with_response("call_0_0", UNKNOWN)
        ending = replace(undisturbed.change("s", session), optional=undisturbed.effects)
        # Killed before the tool began, there is no token that anybody could have.
        outcomes = dict(session.outcomes)
        outcomes["m2"] = (outcomes["m2"][0], "Nobody knows.", *outcomes["m2"][2:])
        silent = replace(session, transcript=(*session.transcript[:-1], text_message("Nobody knows.")), outcomes=outcomes)
        return ending, ending.change("s", silent)

    return Scenario(name="late receipt by callback token", agent=agent, script=script, actors={"provider": provider}, expect=expect)


def archived_and_revived() -> Scenario:
    """Another process archives the session in mid-turn, takes it out again, and it goes on."""

    def agent(world: World) -> Agent:
        @tool(effect="pure")
        async def look(ctx: ToolContext) -> str:
            await world.until("never")
            return "unused"

        def play(request: ModelRequest) -> Reply:
            return asks(call("look")) if request.messages[-1].text == "one" else says("Back again.")

        return Agent("a", model=world.model([play, play]), tools=[look])

    async def script(life: Life) -> None:
        with suppress(SessionArchived):
            await life.run("one", submission="m1")

        async def revived() -> bool:
            head = await life.runtime.store.load("s")
            return head is not None and await life.runtime.store.submission(head.row.no, "revive-1") is not None

        await life.watch(revived)
        await life.run("two", submission="m2")

    async def operator(life: Life) -> None:
        if await life.until_stored("operation_started", count=2):
            await life.runtime.sessions.archive("s", submission="archive-1")
            await life.runtime.sessions.revive("s", submission="revive-1")

    return Scenario(name="archived in mid-turn, and revived", agent=agent, script=script, actors={"operator": operator})


def deleted() -> Scenario:
    """A session is deleted when it is done with, and nothing of it ever runs again."""

    async def script(life: Life) -> None:
        with suppress(SessionNotFound):
            await life.run("Please.", submission="m1")
            await life.runtime.sessions.delete("s")
        with suppress(SessionNotFound):
            await life.run("Again.", submission="m2")
            raise AssertionError("a deleted session ran again")

    def agent(world: World) -> Agent:
        return Agent("a", model=world.model([asks(call("charge", cents=5)), says("Done.")]), tools=[charging(world)])

    return Scenario(name="deleted", agent=agent, script=script, expect=optional_effects)


def optional_effects(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending:
    return replace(undisturbed, optional=undisturbed.effects) if any(loss.effects for loss in losses) else undisturbed


# -------------------------------------------------------------------------------------------------------------- middleware


def notes_in(request: ModelRequest) -> str:
    """What a model was told besides the conversation."""
    return " · ".join(message.text.removeprefix("[note] ") for message in request.messages if message.text.startswith("[note] "))


def continued() -> Scenario:
    """A stop hook has the turn go on once; the model says what it was told."""

    def agent(world: World) -> Agent:
        class Tests(Middleware):
            name = "tests"

            async def stop(self, ctx: HookContext, answer: str) -> Continue | None:
                await world.point("hook", "stop", "before")
                return Continue(f"{answer} And the tests?")

        steps = [says("Done."), lambda request: says(f"They pass ({notes_in(request)})."), says("unused")]
        return Agent("a", model=world.model(steps), middleware=[Tests()])

    return Scenario(name="stop hook that wants more once", agent=agent, script=one_question, sends=1)


def hooked() -> Scenario:
    """Hooks everywhere: a welcome given once, a rejected message, a rewritten call, a replaced result, a counter of turns."""

    def agent(world: World) -> Agent:
        class Everywhere(Middleware):
            name = "everywhere"

            async def message_submit(self, ctx: HookContext, message: Message) -> Reject | None:
                await world.point("hook", "message_submit", "before")
                ctx.guide("They are new.", once="welcome")
                return Reject("not that") if message.text == "Nonsense." else None

            async def before_model(self, ctx: HookContext) -> None:
                ctx.guide(f"Turn {ctx.state.get('turns', 0)}.", once=f"turn {ctx.turn if ctx.step == 0 else ''}")

            async def before_tool(self, ctx: HookContext, call: ApprovalCall) -> Rewrite:
                await world.point("hook", "before_tool", "before")
                return Rewrite(arguments={"value": call.arguments["value"] - 2})

            async def after_tool(self, ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> Replace:
                await world.point("hook", "after_tool", "before")
                return Replace(f"<{response.response}>")

            async def turn_end(self, ctx: HookContext, outcome: TurnEnding) -> None:
                await world.point("hook", "turn_end", "before")
                ctx.state["turns"] = ctx.state.get("turns", 0) + 1

        def last(request: ModelRequest) -> Reply:
            # The ids of turns depend on how often a process died.
            return says(re.sub("turn t[0-9]+", "turn", notes_in(request)))

        steps = [asks(call("put", value=5)), last, last]
        return Agent("a", model=world.model(steps), tools=[putting(world)], middleware=[Everywhere()])

    async def script(life: Life) -> None:
        await life.run("Please.", submission="m1")
        await life.run("Nonsense.", submission="m2")
        await life.run("Again.", submission="m3")

    return Scenario(name="hooks everywhere", agent=agent, script=script)


def outside(effect: Any) -> Scenario:
    """What a hook does outside is done once, or again where that is safe, or said to be unknown; the turn goes on."""

    def agent(world: World) -> Agent:
        class Till(Middleware):
            name = "till"

            async def before_model(self, ctx: HookContext) -> None:
                if ctx.step:
                    return
                identity = f"{ctx.turn}.{ctx.step}/till.before_model.charge"
                context = ToolContext(
                    session_id=ctx.session_id,
                    turn=ctx.turn,
                    operation=identity,
                    attempt=1,
                    call="charge",
                    idempotency_key=ctx.idempotency_key("charge"),
                )

                async def charge(cents: int) -> int:
                    await world.act(context, "charge", cents, effect=effect)
                    return cents

                with suppress(EffectUncertain):
                    assert await ctx.effect("charge", charge, 5, effect=effect) == 5

        return Agent("a", model=world.model([asks(call("look", place="x")), says("Done.")]), tools=[looking(world)], middleware=[Till()])

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending:
        if effect == "idempotent" or not losses:
            return undisturbed
        return replace(undisturbed, optional=frozenset(item for item in undisturbed.effects if item[2].startswith("charge:")))

    return Scenario(name=f"{effect} work of a hook", agent=agent, script=one_question, expect=expect)


WORKSPACES = tempfile.TemporaryDirectory(prefix="perdure-memory-")
atexit.register(WORKSPACES.cleanup)

FOUND = """Here they are:
[
  {"category": "Key_Fact", "content": "The order A-1 is late", "importance": 4},
  {"category": "decision", "content": "Refund it", "importance": 12},
  {"category": "key_fact", "content": "the ORDER  a-1 is late", "importance": 9}
]"""

EXPORT = {
    "entries": [
        {"category": "key_fact", "content": "The order A-1 is late", "importance": 9, "source_cycle": 3},
        {"category": "decision", "content": "Refund it", "importance": 10, "source_cycle": 3},
    ],
    "last_extracted_message_index": 4,
    "initialized": True,
}


def remembers() -> Scenario:
    """Three extractions in two turns: what one turn learned stands in the next one's instructions, and in the file, once."""

    def agent(world: World) -> Agent:
        if "workspace" not in world.memory:
            world.memory["workspace"] = tempfile.mkdtemp(dir=WORKSPACES.name)
        memory = SessionMemory(workspace=world.memory["workspace"], min_tokens=1, min_text_messages=1)

        def told(request: ModelRequest) -> Reply:
            return says(f"I know: {request.instructions}")

        steps = [asks(call("charge", cents=5)), told, told]
        model = world.model(steps, memory=Reply(FOUND, usage=USAGE))
        return Agent("a", model=model, tools=[charging(world)], memory=memory)

    async def script(life: Life) -> None:
        await life.run("Please.", submission="m1")
        await life.run("And what do you know?", submission="m2")
        file = Path(life.world.memory["workspace"], ".memory/session/s/session_memory.json")
        document = json.loads(file.read_text())
        assert document.pop("tokens_at_last_extraction") > 0
        assert document == EXPORT

    return Scenario(name="session memory", agent=agent, script=script)


def remembers_nothing() -> Scenario:
    """Prose instead of facts: the turn goes on, and the next one is told nothing."""

    def agent(world: World) -> Agent:
        steps: list[Any] = [says("One."), lambda request: says(f"I know: {request.instructions}")]
        model = world.model(steps, memory=Reply("There is nothing to say about this.", usage=USAGE))
        return Agent("a", model=model, memory=SessionMemory(min_tokens=1, min_text_messages=1))

    async def script(life: Life) -> None:
        await life.run("Please.", submission="m1")
        await life.run("Again.", submission="m2")

    return Scenario(name="session memory of prose", agent=agent, script=script, commits=8)


def interrupted_while_remembering() -> Scenario:
    """Somebody stops the turn while what to remember is looked for."""

    def agent(world: World) -> Agent:
        async def looks(request: ModelRequest) -> Reply:
            world.reached("looking")
            if not world.memory.get("sent"):
                await world.until("never")
            return Reply("[]", usage=USAGE)

        return Agent("a", model=world.model([says("unused")], memory=looks), memory=SessionMemory(min_tokens=1, min_text_messages=1))

    async def stops(life: Life) -> None:
        await life.world.until("looking")
        with suppress(SessionNotFound):
            await life.runtime.sessions.interrupt("s", reason="enough", submission="i1")

    return Scenario(name="interrupted while remembering", agent=agent, script=one_question, actors={"person": stops})


# ------------------------------------------------------------------------------------------------ what the catalogue adds


def called_from_outside(effect: str, *, approve: bool = False) -> Scenario:
    """A tool is called outside of the conversation, between two turns; the model says what it was told of that."""
    make = {"external": (charging, "charge", "cents"), "idempotent": (putting, "put", "value")}[effect]

    def agent(world: World) -> Agent:
        steps = [says("One."), lambda request: says(notes_in(request))]
        return Agent("a", model=world.model(steps), tools=[make[0](world)], approve=[make[1]] if approve else ())

    async def script(life: Life) -> None:
        await life.run("one", submission="m1")
        outcome = await life.runtime.sessions.call_tool("s", life.agent, make[1], {make[2]: 5}, submission="o1", actor="ann")
        assert outcome.status in ("succeeded", "uncertain")
        await life.run("two", submission="m2")

    async def person(life: Life) -> None:
        await life.answer("approve", submission="answer-1")

    def expect(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending:
        if not any(loss.effects for loss in losses):
            return undisturbed
        session = undisturbed.sessions["s"]
        told = session.transcript[-1][1][0].content.replace("Result: charged 5", f"Error: {UNKNOWN}")
        outcomes = session.outcomes | {"m2": (session.outcomes["m2"][0], told, *session.outcomes["m2"][2:])}
        transcript = (*session.transcript[:-1], ("assistant", (Text(told),)))
        ending = undisturbed.change("s", replace(session, transcript=transcript, outcomes=outcomes))
        return replace(ending, optional=undisturbed.effects)

    name = f"{effect} tool called from outside" + (", approved" if approve else "")
    return Scenario(name=name, agent=agent, script=script, expect=expect, actors={"person": person} if approve else {})


def asked_from_outside() -> Scenario:
    """Of a call from outside that was cut off a person is asked; they say what it came to, and that is what the model is told."""

    def agent(world: World) -> Agent:
        steps = [says("One."), lambda request: says(notes_in(request))]
        return Agent("a", model=world.model(steps), tools=[charging(world, on_uncertain="ask")])

    async def script(life: Life) -> None:
        await life.run("one", submission="m1")
        outcome = await life.runtime.sessions.call_tool("s", life.agent, "charge", {"cents": 5}, submission="o1")
        assert (outcome.status, outcome.result) == ("succeeded", "charged 5")
        await life.run("two", submission="m2")

    async def person(life: Life) -> None:
        await life.answer("settle", submission="answer-1", kind="uncertain", result="charged 5")

    return Scenario(
        name="external tool called from outside, asked about",
        agent=agent,
        script=script,
        actors={"person": person},
        expect=optional_effects,
    )


def restricted() -> Scenario:
    """A session loses a tool and a branch gets another policy; each keeps to its own, wherever its process dies."""

    def agent(world: World) -> Agent:
        def asks_for_both(request: ModelRequest) -> Reply:
            return asks(call("charge", cents=1), call("look", place="x"), text=" ".join(spec.name for spec in request.tools))

        steps = [says("One."), asks_for_both, says("So it is.")]
        return Agent("a", model=world.model(steps), tools=[charging(world), looking(world)])

    async def script(life: Life) -> None:
        sessions = life.runtime.sessions
        await life.run("one", submission="m1")
        await sessions.restrict("s", ToolPolicy(never=("charge",)), submission="restrict-1")
        await sessions.fork("s", session_id="f", tools=ToolPolicy(only=("charge",)))
        await life.run("two", submission="m2")
        await life.run("two", submission="m2", session="f")

    return Scenario(name="tools of a session and of its branch", agent=agent, script=script)


def halted() -> Scenario:
    """An operator stops a session in mid-turn, looks, and lets it go on."""

    def agent(world: World) -> Agent:
        @tool(effect="idempotent")
        async def wait(ctx: ToolContext) -> str:
            world.reached("working")
            await world.until("let go")
            return "waited"

        return Agent("a", model=world.model([asks(call("wait")), says("Done.")]), tools=[wait])

    async def script(life: Life) -> None:
        with suppress(SessionHalted, Fenced):
            await life.run("one", submission="m1")

        async def let_go() -> bool:
            return (await life.runtime.sessions.info("s")).status != "halted" and "let go" in life.world.memory

        await life.watch(let_go)
        life.world.reached("let go")
        result = await life.run("one", submission="m1")
        assert result.output == "Done."

    async def operator(life: Life) -> None:
        sessions = life.runtime.sessions
        if await life.until_stored("operation_started", count=2):
            if "let go" not in life.world.memory:
                with suppress(SessionHalted):
                    await sessions.halt("s", reason="somebody has to look", actor="ann")
            with suppress(NothingChanged):
                await sessions.repair("s", reason="nothing is wrong", actor="ann")
        life.world.memory["let go"] = True
        life.world.reached("let go")

    return Scenario(name="halted in mid-turn, and let go", agent=agent, script=script, actors={"operator": operator})


def pictured() -> Scenario:
    """A picture comes with a message, another with a tool's result: both are there for good with the commit that names them."""

    def agent(world: World) -> Agent:
        @tool(effect="idempotent")
        async def draw(ctx: ToolContext, color: int) -> Any:
            await world.act(ctx, "draw", color, effect="idempotent")
            return ["drawn", image(big_png(70_000, color), name="drawn.png")]

        def looks(request: ModelRequest) -> Reply:
            return says(" ".join(str(len(data)) for _, data in sorted(request.content.items())))

        return Agent("a", model=world.model([asks(call("draw", color=7)), looks]), tools=[draw])

    async def script(life: Life) -> None:
        await life.runtime.run(life.agent, ["What is this?", image(big_png(90_000, 3), name="cat.png")], session="s", submission="m1")
        for message in await life.runtime.sessions.history("s"):
            for part in message.parts:
                for blob in media_of(part):
                    assert len(await life.runtime.sessions.content("s", blob)) == blob.size

    return Scenario(name="pictures in a message and in a result", agent=agent, script=script)


def noted_and_failed() -> Scenario:
    """Notes that come with a message whose turn fails before the model said anything are told to nobody after that."""

    def agent(world: World) -> Agent:
        def play(request: ModelRequest) -> Reply:
            if request.messages[-1].text.startswith("[note] it rains"):
                raise ProviderRefused("not that")
            return says(f"I was told: {notes_in(request)}.")

        return Agent("a", model=world.model([play, play]))

    async def script(life: Life) -> None:
        async with life.runtime.session("s", life.agent) as session:
            await session.send("one", submission="m1", notes=["it is late", "it rains"])
            await life.settled("m1")
            await session.send("two", submission="m2", notes=["it snows"])
            await life.settled("m1", "m2")

    return Scenario(name="notes of a message that failed", agent=agent, script=script)


# ------------------------------------------------------------------------------------------------- outputs and finishing


class Verdict(TypedDict):
    """What the answers of these agents are read as."""

    cents: int


async def even(verdict: Verdict) -> str | None:
    return "the cents must be even" if verdict["cents"] % 2 else None


def repaired_answer(*, valid: bool = True, validated: bool = False) -> Scenario:
    """An answer of the wrong type is corrected once or twice; the corrections are receipts, and are not asked for again."""

    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=1)), says("about five"), says('{"cents": 8}')]
        repairs = [says('{"cents": 5}'), says('{"cents": 6}')] if validated else [says('{"cents": 6}' if valid else "six")]
        return Agent(
            "a",
            model=world.model(steps, repairs=repairs),
            tools=[charging(world)],
            output_type=Verdict,
            output_validators=[even] if validated else [],
            repairs=2 if validated else 1,
        )

    async def script(life: Life) -> None:
        await life.run("How much?", submission="m1")
        await life.run("And now?", submission="m2")

    how = "twice, with a validator" if validated else "once" if valid else "in vain"
    # A correction is one commit more, and an answer that the host's own code looks at too.
    return Scenario(name=f"answer that is corrected {how}", agent=agent, script=script, commits=11 if validated else 7)


def steered_while_corrected() -> Scenario:
    """A steer that comes while the answer is corrected goes behind it, and the turn goes on."""

    def agent(world: World) -> Agent:
        async def corrected(request: ModelRequest) -> Reply:
            world.reached("correction")
            await world.until("steer")
            return says('{"cents": 2}')

        return Agent("a", model=world.model([says("two"), says('{"cents": 4}')], repairs=[corrected]), output_type=Verdict)

    async def person(life: Life) -> None:
        await life.world.until("correction")
        await life.runtime.sessions.send("s", "Double it.", deliver="steer", submission="s1")
        life.world.reached("steer")

    return Scenario(name="steered while the answer is corrected", agent=agent, script=one_question, actors={"person": person})


def finished_by_call() -> Scenario:
    """An answer ends nothing, a finish that doesn't fit neither; calls behind the one that does don't run."""

    def agent(world: World) -> Agent:
        steps = [
            asks(call("charge", cents=1)),
            says("I think that is all."),
            asks(call("finish", cents="many")),
            asks(call("look", place="x"), call("finish", cents=3), call("finish", cents=4), call("charge", cents=5)),
            asks(call("look", place="y"), call("finish", cents=4), call("charge", cents=5)),
        ]
        return Agent(
            "a",
            model=world.model(steps),
            tools=[charging(world), looking(world)],
            finish="tool",
            output_type=Verdict,
            output_validators=[even],
        )

    return Scenario(name="turn that a call finishes", agent=agent, script=one_question)


def asked_user(answer: str, *, timeout: float | None = None, on_silence: Any = "end") -> Scenario:
    """An answer asks the user, whoever holds the session; what they say is a message."""

    def agent(world: World) -> Agent:
        steps = [asks(call("charge", cents=1), text="Let me see."), says("The blue one?"), asks(call("finish", answer="Blue it is."))]
        model = world.model(steps)
        return Agent("a", model=model, tools=[charging(world)], finish="ask", answer_timeout=timeout, on_silence=on_silence)

    async def person(life: Life) -> None:
        result = {"result": "Yes, the blue one."} if answer == "reply" else {}
        await life.answer(answer, submission="answer-1", kind="answer", **result)

    how = answer or f"silence, then {on_silence}"
    return Scenario(name=f"asked user: {how}", agent=agent, script=one_question, actors={"person": person} if answer else {})


def asked_by_a_call() -> Scenario:
    """A call asks the user while another runs."""

    def agent(world: World) -> Agent:
        steps = [asks(call("ask_user", question="Which one?"), call("charge", cents=1)), says("Blue it is.")]
        return Agent("a", model=world.model(steps), tools=[charging(world), ask_user()])

    async def person(life: Life) -> None:
        await life.answer("reply", submission="answer-1", kind="answer", result="The blue one.")

    return Scenario(name="user asked by a call", agent=agent, script=one_question, actors={"person": person})


# ------------------------------------------------------------------------------------------------------------ all of it at once


def everything() -> Scenario:
    """One run of all that keeps books: session memory, limits, a pool, a child, steps, a transactional and an external tool, a repair.

    Two turns, so that what one learned stands in the other's instructions. What the child uses comes out of the same pool.
    """

    def agent(world: World) -> Agent:
        if "workspace" not in world.memory:
            world.memory["workspace"] = tempfile.mkdtemp(dir=WORKSPACES.name)
        clerk = Agent("clerk", model=world.model([asks(call("charge", cents=3)), says("Filed.")]), tools=[charging(world)])
        steps: list[Any] = [
            asks(call("charge", cents=5), call("clerk", task="File it."), call("travel")),
            asks(call("reserve", value=1)),
            says("about five"),
            lambda request: says(json.dumps({"cents": request.instructions.count("The order A-1 is late")})),
        ]
        return Agent(
            "a",
            model=world.model(steps, memory=Reply(FOUND, usage=USAGE), repairs=[says('{"cents": 6}')]),
            tools=[charging(world), reserving(world), travelling(world, "external"), clerk.as_tool()],
            output_type=Verdict,
            limits=Limits(tokens=5_000, tool_calls=20, model_calls=50),
            memory=SessionMemory(workspace=world.memory["workspace"], min_tokens=1, min_text_messages=1, growth_ratio=1_000),
        )

    async def script(life: Life) -> None:
        await life.runtime.pools.set("acme", Limits(tokens=100_000, tool_calls=100))
        outputs = []
        for text, submission in (("Do it.", "m1"), ("And what do you know?", "m2")):
            identity = Identity(owner="acme")
            result = await life.runtime.run(life.agent, text, session="s", submission=submission, identity=identity)
            outputs.append(result.output)
        await team_scenarios.tidy(life)
        assert outputs == [{"cents": 6}, {"cents": 1}]
        assert await responses(life, "travel") == [["hotel 1", 1, "flight 2", "car 3"]]
        assert await responses(life, "reserve") == ["2 taken"]
        document = json.loads(Path(life.world.memory["workspace"], ".memory/session/s/session_memory.json").read_text())
        assert [entry["content"] for entry in document["entries"]] == ["The order A-1 is late", "Refund it"]

    return Scenario(name="everything at once", agent=agent, script=script)


ALL: tuple[Callable[[], Scenario], ...] = (
    everything,
    plain,
    lambda: three_steps("external"),
    lambda: three_steps("pure"),
    lambda: three_steps("idempotent"),
    transactional,
    transactional_among_others,
    transactional_stopped,
    lambda: resumable("idempotent"),
    lambda: resumable("external"),
    slept,
    lambda: unique("idempotent"),
    lambda: unique("transactional"),
    parallel,
    exclusive,
    failing,
    raising,
    model_retry,
    model_fails,
    stored_part,
    lambda: approval("approve"),
    lambda: approval("deny", reason="too much"),
    lambda: approval("abort"),
    lambda: approval("approve", arguments={"cents": 300}),
    lambda: approval("approve", arguments={"cents": "no number"}),
    approval_timeout,
    approval_interrupted,
    two_approvals,
    callable_policy,
    route_changed,
    edited,
    queued,
    steered,
    steered_at_the_end,
    steer_of_an_ended_turn,
    interrupted_in_model,
    interrupted_in_tools,
    interrupted_while_completing,
    interrupted_while_idle,
    two_runners,
    lambda: closed_in_mid_turn("pure"),
    lambda: closed_in_mid_turn("external"),
    lambda: limited(steps=2),
    lambda: limited(tool_calls=2),
    lambda: limited(tokens=250),
    lambda: guarded("approve"),
    lambda: guarded("deny"),
    lambda: asked_when_uncertain("settle"),
    lambda: asked_when_uncertain("retry"),
    lambda: asked_when_uncertain("deny"),
    lambda: reconciled("told"),
    lambda: reconciled("unknown"),
    reconciled_live,
    closed_while_reconciling,
    lambda: stopped("model and tools"),
    lambda: stopped("approval"),
    late_receipt,
    archived_and_revived,
    deleted,
    archived_result,
    continued,
    hooked,
    lambda: outside("idempotent"),
    lambda: outside("external"),
    compaction_in_a_turn,
    compaction_bit_by_bit,
    compacted_by_hand,
    remembers,
    remembers_nothing,
    interrupted_while_remembering,
    *team_scenarios.ALL,
    *budget_scenarios.ALL,
    *catalogue_scenarios.ALL,
    lambda: called_from_outside("external"),
    lambda: called_from_outside("idempotent"),
    lambda: called_from_outside("external", approve=True),
    asked_from_outside,
    restricted,
    halted,
    pictured,
    noted_and_failed,
    repaired_answer,
    lambda: repaired_answer(valid=False),
    lambda: repaired_answer(validated=True),
    steered_while_corrected,
    finished_by_call,
    lambda: asked_user("reply"),
    lambda: asked_user("deny"),
    lambda: asked_user("", timeout=60),
    lambda: asked_user("", timeout=60, on_silence="go_on"),
    asked_by_a_call,
)
