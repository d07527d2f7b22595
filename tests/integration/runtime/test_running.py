"""Running an agent: results, idempotency, and what is journaled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    ApprovalRequested,
    FunctionModel,
    Limits,
    MessageAdded,
    ModelRequest,
    Reply,
    Runtime,
    ScriptedModel,
    SessionOpened,
    Text,
    TextDelta,
    ToolCall,
    TurnEnded,
    Usage,
    tool,
)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else str(tmp_path / "agents.db")


@pytest.fixture
async def runtime(url: str) -> AsyncIterator[Runtime]:
    async with perdure.open(url) as opened:
        yield opened


def counting(replies: list[Any]) -> tuple[FunctionModel, list[ModelRequest]]:
    """A model that plays replies by step, and what it was asked."""
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        asked.append(request)
        return replies[request.step]

    return FunctionModel(answer), asked


@tool(effect="pure")
async def double(number: int) -> int:
    """Double a number."""
    return number * 2


async def kinds(runtime: Runtime, session: str) -> list[str]:
    return [entry.kind for entry in await runtime.sessions.entries(session)]


async def test_a_plain_question_is_answered_and_counted(runtime: Runtime) -> None:
    model, asked = counting([Reply("four", usage=Usage(input_tokens=7, output_tokens=2))])
    result = await runtime.run(Agent("calculator", instructions="Count.", model=model), "2 + 2?", session="s")
    assert (result.status, result.output, result.ok) == ("completed", "four", True)
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.calls) == (7, 2, 1)
    assert [message.text for message in asked[0].messages] == ["2 + 2?"]
    assert asked[0].instructions == "Count."
    assert await kinds(runtime, "s") == [
        "session_created",
        "turn_started",
        "message",
        "operation_started",
        "operation_ended",
        "message",
        "turn_completed",
    ]


async def test_the_same_submission_returns_the_stored_result_and_calls_no_model(runtime: Runtime) -> None:
    model, asked = counting([Reply("once")])
    agent = Agent("a", model=model)
    first = await runtime.run(agent, "hello", session="s", submission="m-1")
    again = await runtime.run(agent, "hello", session="s", submission="m-1")
    assert again == first
    assert len(asked) == 1


async def test_two_callers_of_one_submission_share_one_turn(runtime: Runtime) -> None:
    model, asked = counting([Reply("once")])
    agent = Agent("a", model=model)
    results = await asyncio.gather(*(runtime.run(agent, "hello", session="s", submission="m-1") for _ in range(5)))
    assert len(asked) == 1
    assert len(set(results)) == 1


async def test_a_submission_without_a_session_names_the_session(runtime: Runtime) -> None:
    result = await runtime.run(Agent("a", model=ScriptedModel(["hi"])), "hello", submission="mail-1")
    assert result.session_id == "mail-1"


@pytest.mark.spec("S0-149")
async def test_a_submission_id_with_another_text_is_a_conflict_and_changes_nothing(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel(["hi"]))
    await runtime.run(agent, "hello", session="s", submission="m-1")
    before = await kinds(runtime, "s")
    with pytest.raises(perdure.SubmissionConflict) as caught:
        await runtime.run(agent, "other words", session="s", submission="m-1")
    assert caught.value.code == "submission_conflict"
    assert await kinds(runtime, "s") == before


async def test_a_loop_of_model_and_tool_gives_the_tool_its_arguments_and_the_model_its_result(runtime: Runtime) -> None:
    model, asked = counting([Reply(tool_calls=[ToolCall("double", {"number": 21})]), Reply("42")])
    result = await runtime.run(Agent("a", model=model, tools=[double]), "double 21", session="s")
    assert (result.output, result.steps, result.tool_calls) == ("42", 2, 1)
    response: Any = asked[1].messages[-1].parts[0]
    assert (asked[1].messages[-1].role, response.response, response.is_error) == ("tool", 42, False)


async def test_parallel_calls_run_at_once_and_answer_in_call_order(runtime: Runtime) -> None:
    both = asyncio.Barrier(2)

    @tool(effect="pure")
    async def meet(name: str) -> str:
        """Wait for the other."""
        await asyncio.wait_for(both.wait(), 5)
        return name

    model, asked = counting([Reply(tool_calls=[ToolCall("meet", {"name": "a"}), ToolCall("meet", {"name": "b"})]), Reply("met")])
    await runtime.run(Agent("a", model=model, tools=[meet]), "meet", session="s")
    assert [part.response for part in asked[1].messages[-1].parts] == ["a", "b"]  # type: ignore[union-attr]


async def test_an_exclusive_tool_never_runs_beside_another(runtime: Runtime) -> None:
    running: set[str] = set()
    seen: list[frozenset[str]] = []

    async def enter(name: str) -> str:
        running.add(name)
        seen.append(frozenset(running))
        await asyncio.sleep(0)
        running.discard(name)
        return name

    @tool(effect="pure", exclusive=True)
    async def alone(name: str) -> str:
        """Run alone."""
        return await enter(name)

    @tool(effect="pure")
    async def shared(name: str) -> str:
        """Run with others."""
        return await enter(name)

    calls = [ToolCall("shared", {"name": "1"}), ToolCall("alone", {"name": "2"}), ToolCall("shared", {"name": "3"})]
    model, _ = counting([Reply(tool_calls=calls), Reply("done")])
    result = await runtime.run(Agent("a", model=model, tools=[alone, shared]), "go", session="s")
    assert result.output == "done"
    assert seen == [{"1"}, {"2"}, {"3"}]


async def test_a_sync_tool_runs_in_a_thread_and_the_loop_goes_on(runtime: Runtime) -> None:
    import threading

    main, seen = threading.get_ident(), []

    @tool(effect="pure")
    def where() -> bool:
        """Say whether this is the loop's thread."""
        seen.append(threading.get_ident())
        return threading.get_ident() == main

    model, asked = counting([Reply(tool_calls=[ToolCall("where", {})]), Reply("done")])
    await runtime.run(Agent("a", model=model, tools=[where]), "go", session="s")
    assert seen
    assert asked[1].messages[-1].parts[0].response is False  # type: ignore[union-attr]


@pytest.mark.spec("S0-151", "S0-301")
async def test_run_without_a_submission_refuses_an_unfinished_turn(runtime: Runtime) -> None:
    agent = Agent(
        "a", model=counting([Reply(tool_calls=[ToolCall("double", {"number": 1})]), Reply("2")])[0], tools=[double], approve=["double"]
    )
    async with runtime.session("s", agent) as session:
        await session.send("double 1")
        async for event in session.events():
            if isinstance(event, ApprovalRequested):
                break
        [asked] = await runtime.sessions.requests("s")
        with pytest.raises(perdure.TurnUnfinished):
            await runtime.run(agent, "another", session="s")
        # Nor does a message answer what a person was asked; it waits for its turn.
        await session.send("yes, do", submission="waits")
        assert await runtime.sessions.requests("s") == [asked]
        await session.approve(asked.request_id)
        said = []
        async for event in session.events():
            if isinstance(event, MessageAdded) and event.role == "user":
                said.append(event.parts)
            if isinstance(event, TurnEnded):
                break
        assert (said, event.kind) == ([(Text("double 1"),)], "turn_completed")


async def test_stream_ends_with_the_turn_and_shows_text_as_it_is_written(runtime: Runtime) -> None:
    events = [event async for event in runtime.stream(Agent("a", model=ScriptedModel(["one two three"])), "hi", session="s")]
    assert isinstance(events[0], SessionOpened)
    assert isinstance(events[-1], TurnEnded)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "one two three"


async def test_a_step_limit_ends_the_turn_as_limited_between_effects(runtime: Runtime) -> None:
    model = FunctionModel(lambda request: Reply(tool_calls=[ToolCall("double", {"number": request.step})]))
    result = await runtime.run(Agent("a", model=model, tools=[double], limits=Limits(steps=3)), "loop", session="s")
    assert (result.status, result.steps, result.tool_calls) == ("limited", 3, 3)
    assert (await kinds(runtime, "s"))[-2:] == ["message", "turn_limited"]


async def test_a_tool_call_limit_answers_the_calls_and_ends_the_turn(runtime: Runtime) -> None:
    model, _ = counting([Reply(tool_calls=[ToolCall("double", {"number": n}) for n in range(3)])])
    result = await runtime.run(Agent("a", model=model, tools=[double], limits=Limits(tool_calls=2)), "go", session="s")
    assert (result.status, result.reason) == ("limited", "limit reached: tool_calls")
    history = await runtime.sessions.history("s")
    assert [message.role for message in history] == ["user", "assistant", "tool"]
    assert all(part.is_error for part in history[-1].parts)  # type: ignore[union-attr]


async def test_a_token_limit_ends_the_turn_after_the_call_that_reached_it(runtime: Runtime) -> None:
    model = FunctionModel(
        lambda request: Reply(tool_calls=[ToolCall("double", {"number": 1})], usage=Usage(input_tokens=60, output_tokens=0))
    )
    result = await runtime.run(Agent("a", model=model, tools=[double], limits=Limits(tokens=100)), "go", session="s")
    assert (result.status, result.steps, result.usage.total_tokens) == ("limited", 2, 120)


async def test_usage_that_is_not_reported_is_unknown_and_not_zero(runtime: Runtime) -> None:
    model, _ = counting([Reply(tool_calls=[ToolCall("double", {"number": 1})], usage=Usage(input_tokens=5, output_tokens=1)), Reply("2")])
    result = await runtime.run(Agent("a", model=model, tools=[double]), "go", session="s")
    assert (result.usage.calls, result.usage.unknown_calls, result.usage.total_tokens) == (2, 1, 6)


async def test_a_second_message_queues_and_starts_its_own_turn(runtime: Runtime) -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> Reply:
        asked.set()
        await gate.wait()
        return Reply(f"answer {sum(message.role == 'user' for message in request.messages)}")

    agent = Agent("a", model=FunctionModel(answer))
    first = asyncio.create_task(runtime.run(agent, "one", session="s", submission="1"))
    await asked.wait()
    second = asyncio.create_task(runtime.run(agent, "two", session="s", submission="2"))
    gate.set()
    assert [(await first).output, (await second).output] == ["answer 1", "answer 2"]


async def test_a_steer_joins_the_running_turn_before_its_next_model_call(runtime: Runtime) -> None:
    at_work, steered = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def work() -> str:
        """Work until the steer is there."""
        at_work.set()
        await steered.wait()
        return "worked"

    model, asked = counting([Reply(tool_calls=[ToolCall("work", {})]), Reply("done")])
    agent = Agent("a", model=model, tools=[work])
    async with runtime.session("s", agent) as session:
        await session.send("go", submission="1")
        await at_work.wait()
        await session.send("be quick", deliver="steer", submission="2")
        steered.set()
        async for event in session.events():
            if isinstance(event, TurnEnded):
                break
    assert [message.role for message in asked[1].messages] == ["user", "assistant", "tool", "user"]
    assert asked[1].messages[-1].text == "be quick"


async def test_a_steer_beats_the_turns_end(runtime: Runtime) -> None:
    asked_first, answer_now = asyncio.Event(), asyncio.Event()
    requests: list[ModelRequest] = []

    async def answer(request: ModelRequest) -> Reply:
        requests.append(request)
        asked_first.set()
        await answer_now.wait()
        return Reply(f"answer {len(requests)}")

    agent = Agent("a", model=FunctionModel(answer))
    async with runtime.session("s", agent) as session:
        await session.send("go", submission="1")
        await asked_first.wait()
        await session.send("wait, also this", deliver="steer", submission="2")
        answer_now.set()
        async for event in session.events():
            if isinstance(event, TurnEnded):
                break
    result = await runtime.sessions.result("s", "1")
    assert result is not None
    assert (result.output, result.steps) == ("answer 2", 2)


@pytest.mark.parametrize("phase", ["model", "tools", "waiting"])
async def test_an_interrupt_stops_the_turn_in_every_phase_and_keeps_the_session(runtime: Runtime, phase: str) -> None:
    there = asyncio.Event()

    async def answer(request: ModelRequest) -> Reply:
        if phase == "model" and request.step == 0 and len(request.messages) == 1:
            there.set()
            await asyncio.Event().wait()
        if request.messages[-1].text == "again":
            return Reply("fine")
        return Reply(tool_calls=[ToolCall("hang", {})])

    @tool(effect="external")
    async def hang() -> str:
        """Never end."""
        there.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent("a", model=FunctionModel(answer), tools=[hang], approve=["hang"] if phase == "waiting" else [])
    async with runtime.session("s", agent) as session:
        await session.send("go", submission="1")
        events = session.events()
        if phase == "waiting":
            async for event in events:
                if isinstance(event, ApprovalRequested):
                    break
        else:
            await there.wait()
        await session.interrupt(reason="enough")
        async for event in session.events(after=0):
            if isinstance(event, TurnEnded):
                break
        await events.aclose()  # type: ignore[attr-defined]
        result = await runtime.sessions.result("s", "1")
        assert result is not None
        assert (result.status, result.reason) == ("aborted", "enough")
        again = await runtime.run(agent, "again", session="s")
        assert again.output == "fine"
    for message in await runtime.sessions.history("s"):
        if message.role == "tool":
            expected = "not executed" if phase == "waiting" else "execution interrupted; result unknown"
            assert [part.response for part in message.parts] == [expected]  # type: ignore[union-attr]
    uncertain = await runtime.sessions.uncertain("s")
    assert len(uncertain) == (phase == "tools")


async def test_run_sync_works_without_a_loop_and_is_refused_inside_one(url: str) -> None:
    agent = Agent("a", model=ScriptedModel(["hi"]))
    result = await asyncio.to_thread(perdure.open(url).run_sync, agent, "hello")
    assert result.output == "hi"
    with pytest.raises(perdure.UsageError, match="event loop"):
        perdure.open(url).run_sync(agent, "hello")


async def test_closing_a_runtime_takes_nothing_up_that_became_ready_meanwhile(url: str) -> None:
    model, _ = counting([Reply(tool_calls=[ToolCall("double", {"number": 1})]), Reply("2")])
    agent = Agent("a", model=model, tools=[double], approve=["double"])
    runtime = perdure.open(url)
    async with runtime, runtime.session("s", agent) as session:
        await session.send("go")
        async for event in session.events():
            if isinstance(event, ApprovalRequested):
                break
        await session.approve(event.request_id)
        closing = asyncio.create_task(runtime.close(grace=0))
        await asyncio.wait_for(closing, 5)


async def test_a_message_to_a_session_that_waits_makes_nobody_look_before_the_answer(runtime: Runtime) -> None:
    agent = Agent(
        "a", model=counting([Reply(tool_calls=[ToolCall("double", {"number": 1})]), Reply("2")])[0], tools=[double], approve=["double"]
    )
    async with runtime.session("s", agent) as session:
        await session.send("double 1")
        async for event in session.events():
            if isinstance(event, ApprovalRequested):
                break
    await runtime.sessions.send("s", "and then?")
    assert await runtime.store.runnable(limit=10) == []
    await runtime.sessions.approve("s", event.request_id)
    assert await runtime.store.runnable(limit=10) == ["s"]
