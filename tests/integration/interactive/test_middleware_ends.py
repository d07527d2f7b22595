"""Hooks around the ends of turns and sessions: one more round, what an end is told of, and what a start may stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    Agent,
    ApprovalRequested,
    Continue,
    FunctionModel,
    HookContext,
    HookFailed,
    Limits,
    MiddlewareError,
    ModelRequest,
    NoteAdded,
    ProviderRefused,
    Reply,
    Stop,
    ToolCall,
    TurnAborted,
    TurnEnded,
    TurnEnding,
    TurnStarted,
    tool,
)

from .acting import Past, Place, counting, eventually, lived, transcript, until
from .test_middleware_calls import LOOK, hook, look
from .test_middleware_messages import sound


@pytest.mark.spec("S2-201", "S2-202")
async def test_a_turn_goes_on_once_for_the_first_hook_that_wants_it_and_ends_the_second_time(place: Place) -> None:
    heard: list[tuple[str, str, bool]] = []

    def wanting(name: str) -> Any:
        def stop(ctx: HookContext, answer: str) -> Continue:
            heard.append((name, answer, ctx.continued))
            return Continue(f"{name} wants the tests run.")

        return hook(name, stop=stop)

    model, asked = counting(Reply("first"), Reply("second"))
    agent = Agent("a", model=model, middleware=[hook("quiet", stop=lambda ctx, answer: None), wanting("one"), wanting("two")])
    async with place.process() as process:
        result = await process.run(agent, "hi", session="s", submission="m-1")
        assert (result.status, result.output, result.steps) == ("completed", "second", 2)
        # People see the two answers; the prompt is for the model.
        assert await transcript(process) == [("user", "hi"), ("assistant", "first"), ("assistant", "second")]
        notes = [entry for entry in await process.sessions.entries("s") if isinstance(entry, NoteAdded)]
        assert [(note.extension, note.text, note.continues) for note in notes] == [("one", "one wants the tests run.", True)]
        await sound(process)
    assert [message.text for message in asked[1].messages] == ["hi", "first", "[note] one wants the tests run."]
    assert heard == [("one", "first", False), ("one", "second", True)]


@pytest.mark.spec("S2-116", "S2-118", "S2-115")
async def test_a_turn_that_a_crash_left_completing_is_shown_to_the_stop_hook_as_it_was_and_ends(place: Place) -> None:
    heard: list[tuple[str, str, bool]] = []

    def stop(ctx: HookContext, answer: str) -> None:
        heard.append((ctx.turn, answer, ctx.continued))

    def broken(request: ModelRequest) -> Any:
        raise AssertionError("no model is called")

    agent = Agent("a", model=FunctionModel(broken), middleware=[hook(stop=stop)])

    def story(past: Past) -> None:
        past.accept("m-1")
        past.ask_model()
        past.answered("finished")

    await lived(place, agent, story, ("m-1", "hi", "turn"))
    async with place.process() as process:
        await process.recover([agent])
        result = await process.sessions.result("s", "m-1")
        assert result is not None
        assert (result.status, result.output) == ("completed", "finished")
        await sound(process)
    assert heard == [("t2", "finished", False)]


async def test_a_steer_that_comes_while_the_stop_hook_hangs_beats_both_its_outcome_and_the_end(place: Place) -> None:
    hanging, go_on = asyncio.Event(), asyncio.Event()
    heard: list[str] = []

    async def stop(ctx: HookContext, answer: str) -> Continue | None:
        hanging.set()
        await go_on.wait()
        # Nothing cut it short.
        heard.append(answer)
        return Continue("more") if answer == "first" else None

    model, asked = counting(Reply("first"), Reply("second"))
    async with place.process() as process, process.session("s", Agent("a", model=model, middleware=[hook(stop=stop)])) as handle:
        await handle.send("hi", submission="m-1")
        await hanging.wait()
        await handle.send("wait", submission="m-2", deliver="steer")
        await process.sessions.note("s", "by the way", submission="n-1")

        async def noted() -> bool:
            return "note_added" in await process.told()

        # What may be taken at once is taken; the steer waits, and the hook is not cut short.
        await eventually(noted)
        assert [row.submission_id for row in await process.pending()] == ["m-2"]
        go_on.set()
        await until(handle, TurnEnded, after=0)
        assert await transcript(process) == [("user", "hi"), ("assistant", "first"), ("user", "wait"), ("assistant", "second")]
        await sound(process)
    assert [message.text for message in asked[1].messages] == ["hi", "first", "[note] by the way", "wait"]
    assert heard == ["first", "second"]


async def test_a_stop_hook_that_fails_or_says_nothing_useful_fails_the_turn_and_keeps_the_answer(place: Place) -> None:
    for number, (answer, told) in enumerate(
        [(ValueError("no"), "ValueError: no"), (Stop("enough"), "its outcome is Stop("), ("go on", "its outcome is 'go on', not Continue")]
    ):

        def stop(ctx: HookContext, text: str, answer: Any = answer) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        model, _ = counting(Reply("hello"))
        async with place.process() as process:
            result = await process.run(Agent("a", model=model, middleware=[hook(stop=stop)]), "hi", session=f"s{number}", submission="m-1")
            assert result.failure is not None
            assert (result.failure.code, result.output) == ("hook_failed", "hello")
            assert result.failure.message.startswith(f"the hook stop of the middleware 'guard' failed: {told}")
            await sound(process, f"s{number}")


@pytest.mark.spec("S0-311")
@pytest.mark.parametrize("end", ["limited", "failed", "aborted"])
async def test_nothing_has_a_turn_go_on_that_a_limit_a_failure_or_a_person_ended(place: Place, end: str) -> None:
    heard: list[str] = []

    def stop(ctx: HookContext, answer: str) -> Continue:
        heard.append(answer)
        return Continue("go on")

    def turn_end(ctx: HookContext, outcome: TurnEnding) -> Continue:
        heard.append(outcome.outcome)
        return Continue("go on")

    model, asked = counting(Reply(tool_calls=[LOOK]), ProviderRefused("no"))
    limits = Limits(steps=1) if end == "limited" else Limits()
    agent = Agent("a", model=model, tools=[look], limits=limits, approve=["look"] if end == "aborted" else [])
    agent = agent.replace(middleware=[hook(stop=stop, turn_end=turn_end)])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("hi", submission="m-1")
        if end == "aborted":
            await until(handle, ApprovalRequested, after=0)
            await handle.interrupt()
        ended = (await until(handle, after=0))[-1]
        assert ended.kind == f"turn_{end}"
        await sound(process)
    assert len(asked) == (2 if end == "failed" else 1)
    assert heard == [end]


@pytest.mark.spec("S2-103")
async def test_a_turn_end_hook_that_fails_turns_completion_into_an_abort_and_isn_t_asked_again(place: Place) -> None:
    heard: list[str] = []

    def turn_end(ctx: HookContext, outcome: TurnEnding) -> None:
        heard.append(outcome.outcome)
        raise OSError("the log is full")

    model, _ = counting(Reply("hello"))
    async with place.process() as process:
        result = await process.run(Agent("a", model=model, middleware=[hook(turn_end=turn_end)]), "hi", session="s", submission="m-1")
        assert (result.status, result.output) == ("aborted", "hello")
        assert result.reason == "the hook turn_end of the middleware 'guard' failed: OSError: the log is full"
        kinds = [entry.kind for entry in await process.sessions.entries("s")]
        assert kinds[-3:] == ["message", "turn_ending", "turn_aborted"]
        await sound(process)
    assert heard == ["completed"]


async def test_the_end_hears_how_every_turn_ends_and_what_it_keeps_is_in_the_commit_of_the_end(place: Place) -> None:
    heard: list[tuple[str, str]] = []

    def turn_end(ctx: HookContext, outcome: TurnEnding) -> None:
        heard.append((outcome.outcome, outcome.reason))
        ctx.state["ended"] = ctx.state.get("ended", 0) + 1
        ctx.guide(f"turn {ctx.state['ended']} {outcome.outcome}")

    @tool(effect="pure")
    async def forever() -> str:
        """Wait."""
        working.set()
        await asyncio.Event().wait()
        return "never"

    working = asyncio.Event()

    def answer(request: ModelRequest) -> Any:
        match request.messages[-1].text:
            case "work":
                return Reply(tool_calls=[ToolCall("forever", {}, "call-1")])
            case "fail":
                raise ValueError("broken model")
            case _:
                return Reply("hello")

    agent = Agent("a", model=FunctionModel(answer), tools=[forever], middleware=[hook(turn_end=turn_end)])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("hi", submission="m-1")
        await until(handle, TurnEnded, after=0)
        await handle.send("work", submission="m-2")
        await working.wait()
        await handle.interrupt(reason="enough", submission="i-1")
        await until(handle, TurnAborted, after=0)
        assert (await process.sessions.result("s", "m-2")).reason == "enough"  # type: ignore[union-attr]
        await handle.send("fail", submission="m-3")
        await until(handle, TurnEnded, after=0, count=3)
        entries = await process.sessions.entries("s")
        ends = [index for index, entry in enumerate(entries) if isinstance(entry, TurnEnded)]
        assert [[entry.kind for entry in entries[index - 3 : index]] for index in ends] == [
            ["turn_ending", "note_added", "extension_set"]
        ] * 3
        assert (await process.sessions.checkpoint("s")).turns == 3
        await sound(process)
    assert [outcome for outcome, _ in heard] == ["completed", "aborted", "failed"]


@pytest.mark.spec("S2-130")
async def test_a_turn_that_recovery_closes_is_told_to_the_end_hook_before_it_is_closed(place: Place) -> None:
    heard: list[tuple[str, str, str]] = []

    async def turn_end(ctx: HookContext, outcome: TurnEnding) -> None:
        last = (await reading.sessions.entries("s"))[-1]
        heard.append((ctx.turn, outcome.outcome, last.kind))

    model, _ = counting(Reply("next"))
    agent = Agent("a", model=model, tools=[look], on_restart="stop", middleware=[hook(turn_end=turn_end)])

    def story(past: Past) -> None:
        past.accept("m-1")
        past.ask_model()

    await lived(place, agent, story, ("m-1", "hi", "turn"))
    async with place.process() as reading, place.process() as process:
        await process.recover([agent])
        kinds = [entry.kind for entry in await process.sessions.entries("s")]
        assert kinds[-4:] == ["operation_ended", "turn_ending", "recovered", "turn_aborted"]
        await sound(process)
    assert heard == [("t2", "aborted", "recovered")]


async def test_a_crash_while_the_end_is_told_tells_it_again_and_ends_the_turn_as_it_was_decided(place: Place) -> None:
    telling, heard = asyncio.Event(), []

    async def turn_end(ctx: HookContext, outcome: TurnEnding) -> None:
        heard.append(outcome.outcome)
        if len(heard) == 1:
            telling.set()
            await asyncio.Event().wait()

    model, asked = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[hook(turn_end=turn_end)])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("hi", submission="m-1")
        await telling.wait()
        # A steer is too late for a turn whose end is decided.
        await handle.send("more", submission="m-2", deliver="steer")
        process.faulty.kill()
    async with place.process() as process:
        await process.recover([agent])
        first, second = [await process.sessions.result("s", name) for name in ("m-1", "m-2")]
        assert first is not None
        assert second is not None
        assert (first.status, second.status) == ("completed", "completed")
        assert sum(isinstance(entry, TurnStarted) for entry in await process.sessions.entries("s")) == 2
        await sound(process)
    assert heard == ["completed", "completed", "completed"]
    assert len(asked) == 2


async def test_an_end_hook_that_hangs_can_be_interrupted(place: Place) -> None:
    telling = asyncio.Event()

    async def turn_end(ctx: HookContext, outcome: TurnEnding) -> None:
        telling.set()
        await asyncio.Event().wait()

    model, _ = counting(Reply("hello"))
    async with place.process() as process, process.session("s", Agent("a", model=model, middleware=[hook(turn_end=turn_end)])) as handle:
        await handle.send("hi", submission="m-1")
        await telling.wait()
        await handle.interrupt(submission="i-1")
        (*_, ended) = await until(handle, TurnEnded, after=0)
        assert (ended.kind, ended.interrupt) == ("turn_aborted", "i-1")
        await sound(process)


async def test_archiving_ends_a_turn_without_asking_anybody(memory: Place) -> None:
    telling = asyncio.Event()

    async def turn_end(ctx: HookContext, outcome: TurnEnding) -> None:
        telling.set()
        await asyncio.Event().wait()

    model, _ = counting(Reply("hello"))
    async with memory.process() as process, process.session("s", Agent("a", model=model, middleware=[hook(turn_end=turn_end)])) as handle:
        await handle.send("hi", submission="m-1")
        await telling.wait()
        async with memory.process() as other:
            await other.sessions.archive("s", reason="enough")
            assert [entry.kind for entry in await other.sessions.entries("s")][-3:] == ["turn_ending", "turn_aborted", "archived"]
            await sound(other)


# ---------------------------------------------------------------------------------------------------- sessions taken and let go


@pytest.mark.spec("S2-133")
async def test_a_start_that_stops_aborts_a_resumed_turn_and_is_nothing_to_the_prompt_of_an_idle_session(place: Place) -> None:
    model, asked = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[hook(session_start=lambda ctx: Stop("closed on Sundays"))])

    def story(past: Past) -> None:
        past.accept("m-1")

    await lived(place, agent, story, ("m-1", "hi", "turn"))
    async with place.process() as process:
        await process.recover([agent])
        result = await process.sessions.result("s", "m-1")
        assert result is not None
        assert (result.status, result.reason) == ("aborted", "closed on Sundays")
        assert asked == []
        # The session is idle: the same start says the same, and the prompt runs.
        again = await process.run(agent, "hello?", session="s", submission="m-2")
        assert (again.status, again.output) == ("completed", "hello")
        await sound(process)
    assert len(asked) == 1


@pytest.mark.spec("S2-135")
async def test_a_start_that_fails_ends_those_that_had_started_in_reverse_order_and_saves_nothing(place: Place) -> None:
    ran: list[str] = []

    def noting(name: str, *, fail: bool = False) -> Any:
        def session_start(ctx: HookContext) -> None:
            ran.append(f"start {name}")
            ctx.guide("never told")
            if fail and len(ran) < 5:
                raise RuntimeError("no lease")

        return hook(name, session_start=session_start, session_end=lambda ctx: ran.append(f"end {name}"))

    model, asked = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[noting("one"), noting("two"), noting("three", fail=True)])
    async with place.process() as process:
        with pytest.raises(
            MiddlewareError, match="the hook session_start of the middleware 'three' failed: RuntimeError: no lease"
        ) as failed:
            await process.run(agent, "hi", session="s", submission="m-1")
        assert failed.value.facts == {"middleware": "three", "hook": "session_start"}
        assert ran == ["start one", "start two", "start three", "end two", "end one"]
        row = await process.row()
        assert (row.version, row.holder, row.fence) == (1, None, 0)
        assert [item.submission_id for item in await process.pending()] == ["m-1"]
        # The next start takes it up.
        assert (await process.run(agent, "hi", session="s", submission="m-1")).ok
        await eventually(lambda: len(ran) == 11)
        await sound(process)
    assert ran[5:] == ["start one", "start two", "start three", "end three", "end two", "end one"]
    assert len(asked) == 1


@pytest.mark.spec("S2-196")
async def test_an_end_of_session_that_fails_keeps_no_other_from_running_and_is_told(memory: Place) -> None:
    ran: list[str] = []

    def broken(ctx: HookContext) -> None:
        ran.append("broken")
        ctx.state["x"] = 1

    model, _ = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[hook("one", session_end=lambda ctx: ran.append("one")), hook("two", session_end=broken)])
    async with memory.process() as process:
        seen: list[Any] = []
        async with process.session("s") as watcher:

            async def watch() -> None:
                async for event in watcher.events():
                    seen.append(event)

            watching = asyncio.create_task(watch())
            await eventually(lambda: seen)
            await process.run(agent, "hi", session="s", submission="m-1")
            await eventually(lambda: any(isinstance(event, HookFailed) for event in seen))
        await watching
        failed = [event for event in seen if isinstance(event, HookFailed)]
        assert [(event.extension, event.hook) for event in failed] == [("two", "session_end")]
        assert "nothing is kept any more" in failed[0].message
    assert ran == ["broken", "one"]


async def test_an_agent_without_hooks_takes_the_commits_that_it_always_took(memory: Place) -> None:
    model, _ = counting(Reply(tool_calls=[LOOK]), Reply("done"))

    async def commits(agent: Agent, session: str) -> int:
        async with memory.process() as process:
            count = 0

            async def gate(call: Any, when: str) -> None:
                nonlocal count
                count += call.kind == "commit" and when == "after"

            process.faulty.gate = gate
            assert isinstance((await process.run(agent, "hi", session=session, submission="m-1")).status, str)
            return count

    assert await commits(Agent("a", model=model, tools=[look]), "s") == 4
    model, _ = counting(Reply(tool_calls=[LOOK]), Reply("done"))
    assert await commits(Agent("a", model=model, tools=[look], middleware=[hook()]), "t") == 4
    model, _ = counting(Reply(tool_calls=[LOOK]), Reply("done"))
    every = hook(after_tool=lambda ctx, call, response: None, turn_end=lambda ctx, outcome: None, before_tool=lambda ctx, call: None)
    # The answer, the result and the end are each committed alone before somebody is asked.
    assert await commits(Agent("a", model=model, tools=[look], middleware=[every]), "u") == 7


async def test_a_turn_that_was_held_for_hooks_goes_on_without_them_where_the_definition_has_none_any_more(place: Place) -> None:
    hanging = asyncio.Event()

    async def hang(ctx: HookContext, *args: Any) -> None:
        hanging.set()
        await asyncio.Event().wait()

    for session, kind in (("s", "after_tool"), ("t", "turn_end")):
        hanging.clear()
        model, _ = counting(Reply(tool_calls=[LOOK]), Reply("done"))
        agent = Agent("a", model=model, tools=[look], middleware=[hook(**{kind: hang})])
        async with place.process() as process, process.session(session, agent) as handle:
            await handle.send("hi", submission="m-1")
            await hanging.wait()
            process.faulty.kill()
        async with place.process() as process:
            await process.recover([agent.replace(middleware=[])], session=session)
            result = await process.sessions.result(session, "m-1")
            assert result is not None
            assert (result.status, result.output) == ("completed", "done")
            changed = [entry for entry in await process.sessions.entries(session) if entry.kind == "definition_changed"]
            assert [entry.difference for entry in changed] == [("the middleware 'guard' was removed",)]  # type: ignore[attr-defined]
            await sound(process, session)


async def test_compaction_hooks_may_stop_and_a_failing_one_says_so(memory: Place) -> None:
    """Whoever compacts asks these two questions; what is tested here is what they are answered."""
    said: list[Any] = []
    hooks = [hook("one", before_compaction=lambda ctx: Stop("not now")), hook("two", after_compaction=lambda ctx: 1 / 0)]
    model, _ = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=hooks)
    async with memory.process() as process, process.session("s", agent) as handle:
        await handle.send("hi", submission="m-1")
        await until(handle, TurnEnded, after=0)
        asking, checkpoint = handle._driver._hooks, await process.sessions.checkpoint("s")  # type: ignore[union-attr]
        for when in ("before_compaction", "after_compaction"):
            while True:
                asking.begin_pass()
                answer = asking.ask((when,), lambda when=when: asking.compaction(when, checkpoint))
                asking.end_pass(start=True)
                if answer is not None:
                    said.append(answer)
                    break
                await asyncio.sleep(0)
    assert (said[0].value, said[0].extension) == (Stop("not now"), "one")
    assert said[1].fault.words == "the hook after_compaction of the middleware 'two' failed: ZeroDivisionError: division by zero"
