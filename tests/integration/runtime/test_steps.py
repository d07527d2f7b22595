"""Steps of tools: parts of a call with a key and a receipt of their own, done once however often the tool runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    Done,
    EffectFailed,
    EffectUncertain,
    InvalidTool,
    NotDone,
    Reply,
    Runtime,
    ScriptedModel,
    ToolCall,
    ToolCallResponse,
    ToolContext,
    ToolError,
    Unknown,
    UsageError,
    tool,
)
from perdure.core.entries import OperationEnded, OperationStarted
from perdure.core.ids import idempotency_key
from perdure.runtime.perform import Performer
from perdure.runtime.verify import Problem, verify
from perdure.store.memory import MemoryStore
from perdure.testing import FaultStore
from perdure.testing.faults import Call

from ..interactive.acting import Place


def agent(tool: Any, *, calls: int = 1) -> Agent:
    return Agent(
        "a",
        model=ScriptedModel([Reply(tool_calls=[ToolCall(name=tool.name, arguments={})]) for _ in range(calls)] + [Reply("Done.")]),
        tools=[tool],
    )


@pytest.fixture(params=["sqlite", "memory"])
async def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runtime]:
    async with perdure.open(str(tmp_path / "agents.db") if request.param == "sqlite" else "memory://") as opened:
        yield opened


async def problems(runtime: Runtime) -> list[Problem]:
    return [problem async for problem in verify(runtime.store)]


async def response(runtime: Runtime, session: str = "s") -> Any:
    """What the last call came to, as the model reads it."""
    messages = await runtime.sessions.history(session)
    return [part.response for message in messages for part in message.parts if isinstance(part, ToolCallResponse)][-1]


async def story(runtime: Runtime, session: str = "s") -> list[str]:
    """What began and ended beside the model."""
    told = []
    for entry in await runtime.sessions.entries(session, kinds=["operation_started", "operation_ended"]):
        if isinstance(entry, OperationStarted | OperationEnded) and not entry.operation.endswith(".0"):
            name = entry.operation.split(".", 1)[1]
            how = "starts" if isinstance(entry, OperationStarted) else entry.status + ("" if entry.final else ", not finally")
            told.append(f"{name}#{entry.attempt} {how}")
    return told


class Crash:
    """A process that dies where a test wants it to: nothing that it does after that has any effect, and another one takes over."""

    def __init__(self) -> None:
        self.place = MemoryStore()
        self.stores: list[FaultStore] = []
        self.inner: list[MemoryStore] = []

    def connect(self, gate: Any = None) -> Runtime:
        self.inner.append(self.place.peer())
        self.stores.append(FaultStore(self.inner[-1], gate=gate))
        return Runtime(self.stores[-1])

    def die(self) -> None:
        self.stores[-1].kill()
        self.inner[-1].crash()


async def run_dying(crash: Crash, agent: Agent, **options: Any) -> Any:
    """Run until the process is dead, then in another one to the end."""
    first = crash.connect()
    await first.__aenter__()
    running = asyncio.ensure_future(first.run(agent, "Please.", session="s", submission="m1"))
    with pytest.raises(perdure.PerdureError):
        await running
    second = crash.connect()
    await second.__aenter__()
    return second, await second.run(agent, "Please.", session="s", submission="m1", **options)


async def test_a_step_is_an_operation_of_the_call_with_a_key_and_a_receipt_of_its_own(runtime: Runtime) -> None:
    keys: list[str] = []

    @tool(effect="external")
    async def travel(ctx: ToolContext) -> Any:
        def book(what: str) -> str:
            keys.append(ctx.step_key(what))
            return f"{what} booked"

        return [await ctx.step("hotel", book, "hotel"), await ctx.step("flight", book, "flight", effect="idempotent")]

    await runtime.run(agent(travel), "Please.", session="s")

    assert await response(runtime) == ["hotel booked", "flight booked"]
    assert await story(runtime) == [
        "0.1#1 starts",
        "0.1/hotel#1 starts",
        "0.1/hotel#1 succeeded",
        "0.1/flight#1 starts",
        "0.1/flight#1 succeeded",
        "0.1#1 succeeded",
    ]
    assert keys == [idempotency_key(runtime.store.store_id, "s", f"t2.0.1/{name}") for name in ("hotel", "flight")]
    assert await problems(runtime) == []


async def test_steps_of_one_call_may_run_at_the_same_time(runtime: Runtime) -> None:
    both = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        async with asyncio.timeout(10):
            await both.wait()
        return name

    @tool(effect="external")
    async def travel(ctx: ToolContext) -> Any:
        return await asyncio.gather(ctx.step("one", meet, "one"), ctx.step("two", meet, "two"))

    await runtime.run(agent(travel), "Please.", session="s")

    assert await response(runtime) == ["one", "two"]
    assert await problems(runtime) == []


@pytest.mark.parametrize("effect", ["external", "idempotent", "transactional", "pure"])
async def test_a_resumable_tool_runs_again_and_finds_what_it_had_done(effect: Any) -> None:
    crash, done = Crash(), []

    def book(what: str) -> str:
        done.append(what)
        return f"{what} booked"

    @tool(effect=effect, resumable=True)
    async def travel(ctx: ToolContext) -> Any:
        kind: Any = "pure" if effect == "pure" else "external"
        hotel = await ctx.step("hotel", book, "hotel", effect=kind)
        if ctx.attempt == 1:
            crash.die()
        return [hotel, await ctx.step("flight", book, "flight", effect=kind), ctx.attempt]

    runtime, result = await run_dying(crash, agent(travel))

    assert result.ok
    assert done == ["hotel", "flight"]
    assert await response(runtime) == ["hotel booked", "flight booked", 2]
    assert await problems(runtime) == []
    await runtime.close()


async def test_an_external_tool_that_is_not_resumable_does_not_run_again() -> None:
    crash, runs = Crash(), []

    @tool(effect="external")
    async def travel(ctx: ToolContext) -> Any:
        runs.append(await ctx.step("hotel", lambda: "hotel"))
        crash.die()
        return "unused"

    runtime, result = await run_dying(crash, agent(travel))

    assert result.ok
    assert runs == ["hotel"]
    assert await response(runtime) == "execution interrupted; result unknown after restart"
    await runtime.close()


@pytest.mark.parametrize("effect", ["external", "idempotent", "pure"])
async def test_a_step_in_flight_at_the_crash_goes_by_its_own_class(effect: Any) -> None:
    crash, done = Crash(), []

    def charge(ctx: ToolContext) -> int:
        done.append(ctx.step_key("charge"))
        if len(done) == 1:
            crash.die()
        return len(done)

    @tool(effect="external", resumable=True)
    async def pay(ctx: ToolContext) -> Any:
        try:
            return await ctx.step("charge", charge, ctx, effect=effect)
        except EffectUncertain as error:
            return f"told: {error}"

    runtime, _ = await run_dying(crash, agent(pay))

    if effect == "external":
        assert len(done) == 1
        assert await response(runtime) == "told: nobody knows what became of pay/charge"
        [item] = await runtime.sessions.uncertain("s")
        assert (item.operation, item.name, item.arguments) == ("t2.0.1/charge", "pay/charge", None)
    else:
        assert len(done) == 2
        assert len({*done}) == 1
        assert await response(runtime) == 2
        assert await runtime.sessions.uncertain("s") == []
    assert await problems(runtime) == []
    await runtime.close()


@pytest.mark.parametrize(
    ("answer", "told", "runs"),
    [(Done({"id": 7}), {"id": 7}, 1), (NotDone(), "charged 2", 2), (Unknown(), "unknown", 1), (KeyError("no"), "unknown", 1)],
)
async def test_a_step_with_reconcile_is_asked_about_what_was_in_flight(answer: Any, told: Any, runs: int) -> None:
    crash, done, asked = Crash(), [], []

    def charge(cents: int) -> str:
        done.append(cents)
        if len(done) == 1:
            crash.die()
        return f"charged {len(done)}"

    async def look(cents: int) -> Any:
        asked.append(cents)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @tool(effect="external", resumable=True)
    async def pay(ctx: ToolContext) -> Any:
        try:
            return await ctx.step("charge", charge, 5, reconcile=look)
        except EffectUncertain:
            return "unknown"

    runtime, _ = await run_dying(crash, agent(pay))

    assert await response(runtime) == told
    assert (len(done), asked) == (runs, [5])
    assert await problems(runtime) == []
    await runtime.close()


async def test_an_uncertain_step_that_the_tool_lets_out_makes_the_call_uncertain_and_a_person_settles_both() -> None:
    crash = Crash()

    @tool(effect="idempotent")
    async def pay(ctx: ToolContext) -> Any:
        return await ctx.step("charge", crash.die)

    runtime, _ = await run_dying(crash, agent(pay))

    assert await response(runtime) == "EffectUncertain: nobody knows what became of pay/charge; result unknown"
    step, call = sorted(await runtime.sessions.uncertain("s"), key=lambda item: -len(item.operation))
    assert (step.name, call.name) == ("pay/charge", "pay")
    for item in (step, call):
        await runtime.sessions.report_attempt("s", item.operation, item.attempt, "it went through", False, "ann")
    assert await runtime.sessions.uncertain("s") == []
    notes = [entry.text for entry in await runtime.sessions.entries("s", kinds=["note_added"])]  # type: ignore[attr-defined]
    assert ["pay/charge" in text for text in notes] == [True, False]
    assert await problems(runtime) == []
    await runtime.close()


async def never_happened() -> NotDone:
    return NotDone()


async def test_what_a_step_came_to_is_returned_after_reconcile_said_that_the_call_did_not_happen(runtime: Runtime) -> None:
    """The next attempt of the same call, whatever makes it begin."""
    done: list[str] = []

    @tool(effect="external", reconcile=never_happened, timeout=0.2)
    async def travel(ctx: ToolContext) -> Any:
        hotel = await ctx.step("hotel", lambda: done.append("hotel") or "hotel")
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return [hotel, ctx.attempt]

    await runtime.run(agent(travel), "Please.", session="s")

    assert await response(runtime) == ["hotel", 2]
    assert done == ["hotel"]


async def test_steps_that_fail_say_so_now_and_whenever_they_are_asked_for(runtime: Runtime) -> None:
    def fails() -> None:
        raise ToolError("full")

    @tool(effect="idempotent")
    async def travel(ctx: ToolContext) -> Any:
        told = []
        for name, function, effect in (
            ("refused", fails, "external"),
            ("broken", lambda: 1 / 0, "external"),
            ("broken-again", lambda: 1 / 0, "idempotent"),
            ("unkept", object, "external"),
        ):
            try:
                await ctx.step(name, function, effect=effect)  # type: ignore[arg-type]
            except EffectFailed as error:
                told.append(f"{type(error).__name__}: {error}")
        return told

    await runtime.run(agent(travel), "Please.", session="s")

    refused, broken, again, unkept = await response(runtime)
    assert refused == "EffectFailed: travel/refused failed: ToolError: full"
    assert broken == "EffectUncertain: nobody knows what became of travel/broken: ZeroDivisionError: division by zero"
    assert again == "EffectFailed: travel/broken-again failed: ZeroDivisionError: division by zero"
    assert unkept.startswith("EffectFailed: travel/unkept: it was done, but its result can't be kept")
    assert await problems(runtime) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "can't be a step's name"),
        ({"name": "x" * 65}, "can't be a step's name"),
        ({"name": "a/b"}, "can't be a step's name"),
        ({"name": "a.b"}, "can't be a step's name"),
        ({"name": 5}, "can't be a step's name"),
        ({"name": "first"}, "has a step 'first' already"),
        ({"effect": "harmless"}, "effect='harmless' is unknown"),
        ({"timeout": 0}, "timeout=0 must be a number of seconds"),
        ({"function": "charge"}, "a step takes a function"),
    ],
)
async def test_what_can_not_be_a_step_is_refused_before_anything_is_done(runtime: Runtime, options: dict[str, Any], message: str) -> None:
    told: list[str] = []

    @tool(effect="external")
    async def travel(ctx: ToolContext) -> Any:
        await ctx.step("first", lambda: None)
        try:
            await ctx.step(**{"name": "second", "function": lambda: None, **options})
        except UsageError as error:
            told.append(str(error))

    await runtime.run(agent(travel), "Please.", session="s")

    assert message in told[0]
    assert len(await story(runtime)) == 4


async def test_pure_tools_and_sync_tools_have_no_effects_besides_their_calls(runtime: Runtime) -> None:
    told: list[str] = []

    @tool(effect="pure")
    async def pure(ctx: ToolContext) -> None:
        try:
            await ctx.step("x", lambda: None)
        except UsageError as error:
            told.append(str(error))

    @tool(effect="external")
    def sync(ctx: ToolContext) -> None:
        try:
            ctx.step("x", lambda: None)
        except UsageError as error:
            told.append(str(error))

    await runtime.run(agent(pure), "Please.", session="s")
    await runtime.run(agent(sync), "Please.", session="t")

    assert told[0].startswith("a pure tool has no external step")
    assert told[1].startswith("nothing can be done outside here")
    with pytest.raises(InvalidTool, match="resumable and not async"):
        tool(resumable=True, name="sync")(lambda: None)


async def test_a_call_that_is_over_begins_no_more_steps(runtime: Runtime) -> None:
    told: list[str] = []
    ended = asyncio.Event()

    async def stubborn(ctx: ToolContext) -> None:
        await ended.wait()
        try:
            await ctx.step("late", lambda: told.append("it was done"))
        except EffectFailed as error:
            told.append(str(error))

    tasks: list[asyncio.Task[None]] = []

    @tool(effect="external")
    async def travel(ctx: ToolContext) -> str:
        tasks.append(asyncio.create_task(stubborn(ctx)))
        return "done already"

    @tool(effect="external")
    async def wait(ctx: ToolContext) -> str:
        ended.set()
        await tasks[0]
        return "waited"

    model = ScriptedModel(
        [Reply(tool_calls=[ToolCall(name="travel", arguments={})]), Reply(tool_calls=[ToolCall(name="wait", arguments={})]), Reply("Done.")]
    )
    await runtime.run(Agent("a", model=model, tools=[travel, wait]), "Please.", session="s")

    assert told == ["the call that t2.0.1/late belongs to is over (nothing more is begun in it)"]


async def test_there_is_a_limit_to_the_steps_of_one_step(runtime: Runtime) -> None:
    @tool(effect="external")
    async def travel(ctx: ToolContext) -> Any:
        for number in range(70):
            try:
                await ctx.step(f"n{number}", lambda: None, effect="pure")
            except EffectFailed as error:
                return f"{number}: {error}"
        return "no limit"

    await runtime.run(agent(travel), "Please.", session="s")

    assert (await response(runtime)).startswith("64: 64 things are done outside in one step")


async def test_a_step_may_be_part_of_the_commit_of_its_receipt(runtime: Runtime) -> None:
    def take(connection: Any, seat: str) -> int:
        connection.execute("CREATE TABLE IF NOT EXISTS seats (name TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO seats VALUES (?)", (seat,))
        return int(connection.execute("SELECT count(*) FROM seats").fetchone()[0])

    @tool(effect="external")
    async def book(ctx: ToolContext) -> Any:
        told: list[Any] = []
        for number, seat in enumerate(("12A", "12B", "12A")):
            try:
                told.append(await ctx.step(f"seat-{number}", take, seat, effect="transactional"))
            except EffectFailed as error:
                told.append(str(error))
        return told

    await runtime.run(agent(book), "Please.", session="s")

    one, two, three = await response(runtime)
    assert (one, two) == (1, 2)
    assert three.startswith("book/seat-2 failed: ConstraintError")
    assert await problems(runtime) == []


async def test_a_graceful_stop_lets_a_resumable_tool_go_on_elsewhere(tmp_path: Path) -> None:
    done: list[str] = []
    first = asyncio.Event()

    @tool(effect="external", resumable=True)
    async def travel(ctx: ToolContext) -> Any:
        hotel = await ctx.step("hotel", lambda: done.append("hotel") or "hotel")
        if ctx.attempt == 1:
            first.set()
            await asyncio.sleep(60)
        return [hotel, ctx.attempt]

    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        running = asyncio.ensure_future(runtime.run(agent(travel), "Please.", session="s", submission="m1"))
        await first.wait()
        await runtime.close(grace=0)
        with pytest.raises(perdure.PerdureError):
            await running
    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        await runtime.run(agent(travel), "Please.", session="s", submission="m1")
        assert await response(runtime) == ["hotel", 2]
        assert done == ["hotel"]
        assert await problems(runtime) == []


async def test_a_tool_that_was_fenced_off_begins_nothing_more_and_hands_on_what_it_knows(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    async def charge() -> str:
        begun.set()
        await go.wait()
        return "charged"

    @tool(effect="external")
    async def pay(ctx: ToolContext) -> Any:
        try:
            await ctx.step("charge", charge)
        except EffectFailed as error:
            told.append(str(error))
        try:
            await ctx.step("mail", lambda: told.append("mailed"))
        except EffectFailed as error:
            told.append(str(error))
        return "unused"

    async def fence(call: Call, when: str) -> None: ...

    place = MemoryStore()
    async with Runtime(FaultStore(place.peer(), gate=fence)) as runtime, Runtime(place.peer()) as other:
        running = asyncio.ensure_future(runtime.run(agent(pay), "Please.", session="s", submission="m1"))
        await begun.wait()
        await other.sessions.archive("s")
        go.set()
        while len(told) < 2 or await other.sessions.uncertain("s"):
            await asyncio.sleep(0)
        settled = await other.sessions.entries("s", kinds=["effect_settled"])
        assert [entry.operation for entry in settled] == ["t2.0.1/charge", "t2.0.1"]  # type: ignore[attr-defined]
        assert all("works on the session no more" in text for text in told)
        running.cancel()
        assert await problems(other) == []


# ------------------------------------------------------------------------------------------------------ sleeping in a call

HOUR = 3_600_000


def remind(done: list[str], moment: Any) -> Any:
    """A tool that does something, sleeps, and does something else."""

    @tool(effect="external", resumable=True, timeout=60)
    async def remind(ctx: ToolContext) -> Any:
        asked = await ctx.step("ask", lambda: done.append("asked") or "asked")
        await ctx.sleep_until("night", moment)
        return [asked, await ctx.step("tell", lambda: done.append("told") or "told"), ctx.attempt]

    return remind


@pytest.mark.parametrize("given", ["timedelta", "datetime", "milliseconds"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_call_that_sleeps_needs_no_process_and_goes_on_in_another_one(kind: str, given: str, tmp_path: Path) -> None:
    place, done = Place(kind, tmp_path / "agents.db"), []
    at = place.clock.now() + HOUR
    moments = {"timedelta": timedelta(hours=1), "datetime": datetime.fromtimestamp(at / 1000, tz=UTC), "milliseconds": at}
    sleeper = agent(remind(done, moments[given]))
    async with place.process() as first:
        await first.sessions.send("s", "Please.", submission="m1", agent="a")
        assert await first.recover([sleeper]) == ["s"]
        info = await first.sessions.info("s")
        assert (info.status, info.holder, info.wake_at, done) == ("waiting", None, at, ["asked"])
        assert await first.recover([sleeper]) == []
    place.clock.advance_to(at)
    async with place.process() as second:
        assert await second.recover([sleeper]) == ["s"]
        assert await response(second) == ["asked", "told", 2]
        assert done == ["asked", "told"]
        assert await story(second) == [
            "0.1#1 starts",
            "0.1/ask#1 starts",
            "0.1/ask#1 succeeded",
            "0.1/night#1 starts",
            "0.1#1 cancelled, not finally",
            "0.1/night#1 succeeded",
            "0.1#2 starts",
            "0.1/tell#1 starts",
            "0.1/tell#1 succeeded",
            "0.1#2 succeeded",
        ]
        assert await problems(second) == []


@pytest.mark.parametrize("before", ["sleep", "step"])
async def test_changed_code_that_gives_a_step_the_name_of_a_sleep_or_a_sleep_that_of_a_step_is_refused(before: str, tmp_path: Path) -> None:
    place, done, told = Place("memory", tmp_path / "agents.db"), [], []

    def charging(asked: str) -> Any:
        @tool(effect="external", resumable=True)
        async def charge(ctx: ToolContext) -> Any:
            try:
                if asked == "sleep":
                    await ctx.sleep_until("pay", timedelta(hours=1))
                else:
                    await ctx.step("pay", lambda: done.append(asked))
            except UsageError as error:
                told.append(str(error))
                raise
            await ctx.sleep_until("after", timedelta(hours=2))
            return "charged"

        return agent(charge)

    after = "step" if before == "sleep" else "sleep"
    async with place.process() as first:
        await first.sessions.send("s", "Please.", submission="m1", agent="a")
        await first.recover([charging(before)])
    place.clock.advance(2 * HOUR)
    async with place.process() as second:
        await second.recover([charging(after)])
        assert len(told) == 1
        assert f"charge/pay was a {before} when it began, and is a {after} now" in told[0]
        # Nothing was begun outside where there was but a sleep; otherwise a person says what it came to.
        assert [effect.name for effect in await second.sessions.uncertain("s")] == ([] if before == "sleep" else ["charge"])
        assert done == (["step"] if before == "step" else [])
        assert await problems(second) == []


async def test_a_step_that_is_to_be_done_again_is_refused_under_another_class() -> None:
    crash, effect, done, told = Crash(), "idempotent", [], []

    @tool(effect="external", resumable=True)
    async def charge(ctx: ToolContext) -> Any:
        def pay() -> str:
            nonlocal effect
            done.append(effect)
            effect = "external"
            crash.die()
            return "paid"

        try:
            return await ctx.step("pay", pay, effect=effect)  # type: ignore[arg-type]
        except UsageError as error:
            told.append(str(error))
            raise

    second, _ = await run_dying(crash, agent(charge))
    assert done == ["idempotent"]
    assert "charge/pay was idempotent when it began, and is external now" in told[-1]
    assert await problems(second) == []
    await second.close()


async def test_a_time_that_has_passed_is_as_good_as_now(runtime: Runtime) -> None:
    done: list[str] = []
    await runtime.run(agent(remind(done, 0)), "Please.", session="s")
    assert await response(runtime) == ["asked", "told", 1]
    assert await problems(runtime) == []


async def test_a_call_that_sleeps_again_wakes_at_the_time_that_it_said_first(tmp_path: Path) -> None:
    place, given = Place("memory", tmp_path / "agents.db", auto=True), []

    @tool(effect="pure", resumable=True)
    async def wait(ctx: ToolContext) -> Any:
        given.append(place.clock.now())
        for number in range(3):
            await ctx.sleep_until(f"n{number}", timedelta(hours=1))
        return "rested"

    began = place.clock.now()
    async with place.process() as runtime:
        await runtime.run(agent(wait), "Please.", session="s")
        assert await response(runtime) == "rested"
        assert given == [began + number * HOUR for number in range(4)]
        assert await problems(runtime) == []


async def test_what_a_call_does_on_its_way_out_is_done_at_its_end_and_not_when_it_falls_asleep(tmp_path: Path) -> None:
    place, done = Place("memory", tmp_path / "agents.db", auto=True), []

    @tool(effect="external", resumable=True)
    async def wait(ctx: ToolContext) -> str:
        try:
            await ctx.sleep_until("night", timedelta(hours=1))
            return "rested"
        finally:
            await ctx.step("cleanup", lambda: done.append(place.clock.now()))

    began = place.clock.now()
    async with place.process() as runtime:
        await runtime.run(agent(wait), "Please.", session="s")
        assert await response(runtime) == "rested"
        assert done == [began + HOUR]
        assert await problems(runtime) == []


async def test_another_call_of_the_step_goes_on_while_one_sleeps(tmp_path: Path) -> None:
    place = Place("memory", tmp_path / "agents.db", auto=True)
    awake: list[int] = []

    @tool(effect="pure", resumable=True)
    async def wait(ctx: ToolContext) -> str:
        await ctx.sleep_until("night", timedelta(hours=1))
        return "rested"

    @tool(effect="pure", exclusive=True)
    async def late(ctx: ToolContext) -> str:
        awake.append(place.clock.now())
        return "late"

    @tool(effect="pure")
    async def early(ctx: ToolContext) -> str:
        awake.append(place.clock.now())
        return "early"

    began = place.clock.now()
    calls = [ToolCall(name=name, arguments={}) for name in ("wait", "early", "late")]
    both = Agent("a", model=ScriptedModel([Reply(tool_calls=calls), Reply("Done.")]), tools=[wait, early, late])
    async with place.process() as runtime:
        await runtime.run(both, "Please.", session="s")
        told = [part.response for part in (await runtime.sessions.history("s"))[2].parts if isinstance(part, ToolCallResponse)]
        assert told == ["rested", "early", "late"]
        # What is exclusive comes after what the model asked for before it.
        assert awake == [began, began + HOUR]


async def test_a_call_that_sleeps_is_interrupted_and_everything_is_known_of_it(tmp_path: Path) -> None:
    place, done = Place("memory", tmp_path / "agents.db"), []
    async with place.process() as runtime:
        await runtime.sessions.send("s", "Please.", submission="m1", agent="a")
        await runtime.recover([agent(remind(done, timedelta(days=30)))])
        await runtime.sessions.interrupt("s")
        result = await runtime.sessions.result("s", "m1")
        assert result is not None
        assert (result.status, done) == ("aborted", ["asked"])
        assert await runtime.sessions.uncertain("s") == []
        assert await response(runtime) == "stopped while it slept; what its steps did so far stays done: ask"
        assert (await runtime.sessions.info("s")).wake_at is None
        assert await problems(runtime) == []


@pytest.mark.parametrize(("acts", "again"), [(False, True), (True, False)])
async def test_what_may_be_done_once_stays_taken_by_a_call_that_had_begun_it_when_it_was_stopped_asleep(
    acts: bool, again: bool, tmp_path: Path
) -> None:
    @tool(effect="external", resumable=True, unique="trip")
    async def travel(ctx: ToolContext) -> None:
        if acts:
            await ctx.step("hotel", lambda: "booked")
        await ctx.sleep_until("night", timedelta(days=30))

    place = Place("memory", tmp_path / "agents.db")
    async with place.process() as runtime:
        for session in ("s", "other"):
            await runtime.sessions.send(session, "Please.", submission="m1", agent="a")
            await runtime.recover([agent(travel)])
            if (await runtime.sessions.info(session)).status == "waiting":
                await runtime.sessions.interrupt(session)
        assert [item.name for item in await runtime.sessions.uncertain("s")] == ["travel"] * acts
        assert (await response(runtime, "other") == "stopped while it slept; it had done nothing outside") == again
        assert await problems(runtime) == []


async def test_only_what_runs_again_can_sleep_and_nothing_beside_a_step(runtime: Runtime) -> None:
    told: dict[str, str] = {}

    async def refused(name: str, asking: Callable[[], Any]) -> None:
        try:
            await asking()
        except UsageError as error:
            told[name] = str(error)

    @tool(effect="idempotent")
    async def plain(ctx: ToolContext) -> None:
        await refused("plain", lambda: ctx.sleep_until("x", 0))

    @tool(effect="pure")
    def sync(ctx: ToolContext) -> None:
        try:
            ctx.sleep_until("x", 0)
        except UsageError as error:
            told["sync"] = str(error)

    @tool(effect="external", resumable=True)
    async def travel(ctx: ToolContext) -> None:
        await refused("name", lambda: ctx.sleep_until("a/b", 0))
        await refused("time", lambda: ctx.sleep_until("one", "tomorrow"))  # type: ignore[arg-type]
        await refused("zone", lambda: ctx.sleep_until("two", datetime(2026, 1, 1)))
        await refused("far", lambda: ctx.sleep_until("far", timedelta(days=10**6)))
        await refused("taken", lambda: ctx.sleep_until("one", 0))
        released = asyncio.Event()
        step = asyncio.ensure_future(ctx.step("hotel", released.wait))
        await asyncio.sleep(0)
        await refused("beside", lambda: ctx.sleep_until("night", timedelta(days=1)))
        released.set()
        await step

    script = [Reply(tool_calls=[ToolCall(name=name, arguments={})]) for name in ("plain", "sync", "travel")]
    everything = Agent("a", model=ScriptedModel([*script, Reply("Done.")]), tools=[plain, sync, travel])
    result = await runtime.run(everything, "Please.", session="s")

    assert result.ok
    assert {name: text.split(" (")[0] for name, text in told.items()} == {
        "plain": "this call can't sleep",
        "sync": "this call can't sleep",
        "name": "'a/b' can't be a step's name",
        "time": "moment='tomorrow' is no time",
        "zone": "moment=datetime.datetime(2026, 1, 1, 0, 0) is no time",
        "far": "moment=datetime.timedelta(days=1000000) is too far away",
        "taken": "this call has a step 'one' already",
        "beside": "a call that sleeps does nothing else meanwhile",
    }
    assert await problems(runtime) == []


@pytest.mark.parametrize(("acts", "resumable", "status"), [(False, True, "failed"), (True, True, "uncertain"), (False, False, "uncertain")])
async def test_a_wrong_use_of_the_context_is_a_failure_where_nothing_had_been_begun(
    acts: bool, resumable: bool, status: str, runtime: Runtime
) -> None:
    """What a call that isn't resumable had done by then is known to nobody."""

    @tool(effect="external", resumable=resumable)
    async def remind(ctx: ToolContext) -> None:
        await ctx.step("look", lambda: "seen", effect="pure")
        if acts:
            await ctx.step("ask", lambda: "asked")
        await ctx.sleep_until("night", datetime(2026, 1, 1))

    result = await runtime.run(agent(remind), "Please.", session="s")
    assert result.ok
    assert (await story(runtime))[-1] == f"0.1#1 {status}"
    assert (await response(runtime)).startswith("UsageError: ")
    assert (await response(runtime)).endswith("; result unknown") == (status == "uncertain")
    assert await problems(runtime) == []


async def test_a_tool_that_does_not_let_go_when_it_is_to_sleep_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attempts of one call would do at the same time what is to be done once."""
    monkeypatch.setattr(Performer, "CANCEL_GRACE", 0.0)
    place, runs, go = Place("memory", tmp_path / "agents.db"), [], asyncio.Event()

    @tool(effect="external", resumable=True)
    async def stubborn(ctx: ToolContext) -> str:
        runs.append(ctx.attempt)
        try:
            await ctx.sleep_until("night", timedelta(hours=1))
        finally:
            await go.wait()
        return "unused"

    async with place.process() as runtime:
        result = await runtime.run(agent(stubborn), "Please.", session="s")
        assert result.ok
        assert runs == [1]
        assert await response(runtime) == "execution interrupted; result unknown"
        go.set()
