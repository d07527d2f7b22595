"""What ends a turn: an answer, a call, or the user's silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    AnswerRequested,
    Deny,
    DuplicateTool,
    FunctionModel,
    InvalidTool,
    Limits,
    Middleware,
    ModelRequest,
    Reply,
    Runtime,
    ScriptedModel,
    StaleRequest,
    SubmissionRejected,
    ToolCall,
    ToolCallResponse,
    UsageError,
    ask_user,
    tool,
)
from perdure.core.finishing import NOBODY_ANSWERED, NOT_FINISHED
from perdure.testing import VirtualClock
from perdure.testing.checks import find_problems


@dataclass
class Verdict:
    cents: int


def finish(**arguments: Any) -> Reply:
    return Reply(tool_calls=[ToolCall("finish", arguments)])


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with perdure.open(str(tmp_path / "agents.db")) as opened:
        yield opened


async def asked(runtime: Runtime, session: str) -> perdure.Request:
    """Wait until the user is asked."""
    async with runtime.session(session) as watcher:
        async for event in watcher.events(after=0):
            if isinstance(event, AnswerRequested):
                found = [item for item in await runtime.sessions.requests(session) if item.request_id == event.request_id]
                if found:
                    return found[0]
    raise AssertionError("nobody was asked")


async def test_where_a_call_finishes_an_answer_gets_one_note_and_the_turn_goes_on(runtime: Runtime) -> None:
    seen: list[ModelRequest] = []
    replies = [Reply("I think it is five."), finish(cents="many"), finish(cents=5)]

    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return replies[request.answers]

    agent = Agent("a", model=FunctionModel(answer), finish="tool", output_type=Verdict)
    result = await runtime.run(agent, "?", session="s", submission="m1")

    assert (result.output, result.text, result.call) == (Verdict(5), '{"cents":5}', "call_2_0")
    assert [message.text for message in seen[1].messages] == ["?", "I think it is five.", f"[note] {NOT_FINISHED}"]
    [told] = [part for part in seen[2].messages[-1].parts if isinstance(part, ToolCallResponse)]
    assert told.is_error
    assert "cents: Input should be a valid integer" in str(told.response)
    assert (await runtime.run(agent, "?", session="s", submission="m1")).output == Verdict(5)
    plain = await runtime.sessions.result("s", "m1")
    assert plain is not None
    assert plain.output == {"cents": 5}
    assert await find_problems(runtime.store, "s") == []


@pytest.mark.spec("S0-295")
async def test_an_answer_that_ends_nothing_is_bounded_by_the_limits(runtime: Runtime) -> None:
    agent = Agent("a", model=FunctionModel(lambda request: "done, I think"), finish="tool", limits=Limits(steps=3))
    result = await runtime.run(agent, "?", session="s")
    assert (result.status, result.reason, result.steps) == ("limited", "limit reached: steps", 3)
    assert await find_problems(runtime.store, "s") == []


@pytest.mark.spec("S0-294")
@pytest.mark.parametrize("text", ["", "finish", "TASK COMPLETE", '{"answer": "done"}'])
async def test_what_an_answer_says_decides_nothing(runtime: Runtime, text: str) -> None:
    """An empty answer is no answer at all; whatever else it says, it takes the call."""
    model = ScriptedModel([Reply(text or " ."), finish(answer="x")])
    result = await runtime.run(Agent("a", model=model, finish="tool"), "?", session="s")
    assert (result.output, result.steps) == ("x", 2)


@pytest.mark.spec("S0-305")
async def test_calls_behind_the_one_that_finishes_are_answered_and_don_t_run(runtime: Runtime) -> None:
    ran: list[str] = []

    @tool(effect="external")
    async def pay(order: str) -> str:
        """Pay."""
        ran.append(order)
        return "paid"

    calls = [ToolCall("pay", {"order": "before"}), ToolCall("finish", {"answer": "done"}), ToolCall("pay", {"order": "behind"})]
    agent = Agent("a", model=ScriptedModel([Reply(tool_calls=calls)]), tools=[pay], finish="tool")
    result = await runtime.run(agent, "?", session="s")

    assert (result.output, ran) == ("done", ["before"])
    responses = [part for part in (await runtime.sessions.history("s"))[-1].parts if isinstance(part, ToolCallResponse)]
    assert [part.response for part in responses] == ["paid", "The work is finished.", "not executed: the turn was finished"]
    assert [part.is_error for part in responses] == [False, False, True]
    assert await find_problems(runtime.store, "s") == []


async def test_an_open_approval_is_answered_before_a_call_of_its_step_finishes_the_turn(runtime: Runtime) -> None:
    @tool(effect="external")
    async def pay() -> str:
        """Pay."""
        return "paid"

    calls = [ToolCall("finish", {"answer": "done"}), ToolCall("pay", {})]
    agent = Agent("a", model=ScriptedModel([Reply(tool_calls=calls)]), tools=[pay], approve=["pay"], finish="tool")
    async with runtime.session("s", agent) as handle:
        await handle.send("?", submission="m1")
        async for event in handle.events():
            if isinstance(event, perdure.ApprovalRequested):
                await handle.approve(event.request_id)
            if isinstance(event, perdure.TurnEnded):
                break
    responses = [part for part in (await runtime.sessions.history("s"))[-1].parts if isinstance(part, ToolCallResponse)]
    assert [part.response for part in responses] == ["The work is finished.", "not executed: the turn was finished"]


async def test_the_agents_own_code_has_no_say_in_the_call_and_still_has_one_in_the_end(runtime: Runtime) -> None:
    class Guard(Middleware):
        name = "guard"

        async def before_tool(self, ctx: perdure.HookContext, call: perdure.ApprovalCall) -> Deny:
            return Deny("never")

        async def stop(self, ctx: perdure.HookContext, answer: str) -> perdure.Continue | None:
            return None if ctx.continued else perdure.Continue("did you run the tests?")

    seen: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return finish(answer=f"done {request.answers}")

    agent = Agent("a", model=FunctionModel(answer), finish="tool", middleware=[Guard()], approve=lambda call: Deny("no"))
    result = await runtime.run(agent, "?", session="s")
    assert result.output == "done 1"
    assert seen[1].messages[-1].text == "[note] did you run the tests?"
    assert await find_problems(runtime.store, "s") == []


async def test_a_validator_may_send_a_finish_back_and_one_that_fails_fails_the_turn(runtime: Runtime) -> None:
    async def even(output: Verdict) -> None:
        if output.cents == 0:
            raise RuntimeError("no idea")
        if output.cents % 2:
            raise ValueError("the cents must be even")

    agent = Agent(
        "a", model=ScriptedModel([finish(cents=3), finish(cents=4)]), finish="tool", output_type=Verdict, output_validators=[even]
    )
    assert (await runtime.run(agent, "?", session="s")).output == Verdict(4)

    broken = await runtime.run(agent.replace(model=ScriptedModel([finish(cents=0)])), "?", session="s2")
    assert broken.failure is not None
    assert broken.failure.code == "output_invalid"
    assert "RuntimeError: no idea" in broken.failure.message
    assert await find_problems(runtime.store, "s2") == []


async def test_the_user_is_asked_and_what_they_say_from_another_process_is_a_message(tmp_path: Path) -> None:
    url = str(tmp_path / "agents.db")
    agent = Agent("a", model=ScriptedModel(["Which one?", finish(answer="Blue it is.")]), finish="ask")
    async with perdure.open(url) as runtime, perdure.open(url) as elsewhere:
        running = asyncio.ensure_future(runtime.run(agent, "Paint it.", session="s", submission="m1"))
        request = await asked(elsewhere, "s")
        assert (request.kind, request.question, request.name, request.default) == ("answer", "Which one?", "", "deny")
        assert (await elsewhere.sessions.info("s")).status == "waiting"
        with pytest.raises(SubmissionRejected, match="it asks the user something"):
            await elsewhere.sessions.approve("s", request.request_id)
        for nothing in ("", "  ", None, 5):
            with pytest.raises(UsageError):
                await elsewhere.sessions.reply("s", request.request_id, nothing)  # type: ignore[arg-type]
        queued = await elsewhere.sessions.send("s", "and then the door", deliver="queue")
        assert (await elsewhere.sessions.info("s")).status == "waiting", "a message is no answer"
        await elsewhere.sessions.withdraw("s", queued.id)
        sent = await elsewhere.sessions.reply("s", request.request_id, "The blue one.", submission="r1", actor="ann")
        again = await elsewhere.sessions.reply("s", request.request_id, "The blue one.", submission="r1", actor="ann")
        assert (sent.duplicate, again.duplicate) == (False, True)
        with pytest.raises(StaleRequest):
            await elsewhere.sessions.reply("s", request.request_id, "The red one.")
        result = await running
        assert result.output == "Blue it is."
        history = await runtime.sessions.history("s")
        assert [(message.role, message.text, message.author) for message in history[:3]] == [
            ("user", "Paint it.", ""),
            ("assistant", "Which one?", ""),
            ("user", "The blue one.", "ann"),
        ]
        assert await find_problems(runtime.store, "s") == []


async def test_an_open_question_is_asked_again_after_the_process_died_under_the_same_id(tmp_path: Path) -> None:
    url = str(tmp_path / "agents.db")
    agent = Agent("a", model=ScriptedModel(["Which one?", finish(answer="Blue it is.")]), finish="ask")
    async with perdure.open(url) as runtime:
        running = asyncio.ensure_future(runtime.run(agent, "Paint it.", session="s", submission="m1"))
        before = await asked(runtime, "s")
        running.cancel()
    async with perdure.open(url) as runtime:
        [after] = await runtime.sessions.requests("s")
        assert (after.request_id, after.question) == (before.request_id, before.question)
        await runtime.sessions.reply("s", after.request_id, "blue")
        assert (await runtime.run(agent, "Paint it.", session="s", submission="m1")).output == "Blue it is."


@pytest.mark.parametrize(("on_silence", "output", "status"), [("end", "Which one?", "completed"), ("go_on", "Red it is.", "completed")])
async def test_silence_ends_the_turn_or_lets_it_go_on(tmp_path: Path, on_silence: Any, output: str, status: str) -> None:
    seen: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return finish(answer="Red it is.") if request.answers else Reply("Which one?")

    agent = Agent("a", model=FunctionModel(answer), finish="ask", answer_timeout=60, on_silence=on_silence)
    clock = VirtualClock(auto=True)
    async with perdure.open(str(tmp_path / "agents.db"), clock=clock) as runtime:
        began = clock.now()
        result = await runtime.run(agent, "Paint it.", session="s")
        assert (result.status, result.output) == (status, output)
        assert clock.now() - began >= 60_000
        assert await find_problems(runtime.store, "s") == []
    if on_silence == "go_on":
        assert seen[1].messages[-1].text == f"[note] {NOBODY_ANSWERED}"


async def test_a_turn_that_ends_without_an_output_of_its_type_has_none(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel(["Which one?"]), finish="ask", output_type=Verdict)
    running = asyncio.ensure_future(runtime.run(agent, "?", session="s", submission="m1"))
    request = await asked(runtime, "s")
    await runtime.sessions.deny("s", request.request_id, reason="no time")
    result = await running
    assert (result.status, result.output, result.text) == ("completed", None, "Which one?")
    assert result.reason == "the user doesn't answer: no time"


async def test_an_aborted_question_aborts_its_turn(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel(["Which one?"]), finish="ask")
    running = asyncio.ensure_future(runtime.run(agent, "?", session="s"))
    request = await asked(runtime, "s")
    await runtime.sessions.answer("s", request.request_id, "abort", actor="ann")
    assert (await running).status == "aborted"
    assert await runtime.sessions.requests("s") == []
    assert await find_problems(runtime.store, "s") == []


async def test_a_call_asks_the_user_while_others_run_and_reads_what_they_say(runtime: Runtime) -> None:
    looked = asyncio.Event()

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        looked.set()
        return "a wall"

    seen: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        calls = [ToolCall("ask_user", {"question": "Which one?"}), ToolCall("look", {})]
        return Reply("Blue it is.") if request.answers else Reply(tool_calls=calls)

    agent = Agent("a", model=FunctionModel(answer), tools=[look, ask_user()])
    running = asyncio.ensure_future(runtime.run(agent, "Paint it.", session="s", submission="m1"))
    request = await asked(runtime, "s")
    await looked.wait()
    assert (request.kind, request.name, request.question) == ("answer", "ask_user", "Which one?")
    assert await runtime.sessions.uncertain("s") == []
    await runtime.sessions.reply("s", request.request_id, "The blue one.")
    assert (await running).output == "Blue it is."
    assert [part.response for part in seen[1].messages[-1].parts if isinstance(part, ToolCallResponse)] == ["The blue one.", "a wall"]
    assert await find_problems(runtime.store, "s") == []


async def test_a_call_that_nobody_answers_in_time_is_an_error_that_the_model_reads(tmp_path: Path) -> None:
    replies = [Reply(tool_calls=[ToolCall("ask_user", {"question": "Which one?"})]), Reply("Then red.")]
    agent = Agent("a", model=ScriptedModel(replies), tools=[ask_user(timeout=60)])
    async with perdure.open(str(tmp_path / "agents.db"), clock=VirtualClock(auto=True)) as runtime:
        assert (await runtime.run(agent, "Paint it.", session="s")).output == "Then red."
        [response] = [
            part for message in await runtime.sessions.history("s") for part in message.parts if isinstance(part, ToolCallResponse)
        ]
        assert (response.is_error, response.response) == (True, "nobody answered in time")
        assert await find_problems(runtime.store, "s") == []


def test_a_tool_of_ones_own_may_be_called_finish_only_where_none_is_brought_along() -> None:
    @tool(name="finish", effect="pure")
    async def mine() -> str:
        """Finish."""
        return "done"

    assert Agent("a", tools=[mine]).tool("finish") is mine
    with pytest.raises(DuplicateTool):
        Agent("a", tools=[mine], finish="tool")
    with pytest.raises(InvalidTool):
        ask_user(timeout=-1)


async def test_a_tool_of_ones_own_that_is_called_finish_ends_nothing(runtime: Runtime) -> None:
    @tool(name="finish", effect="pure")
    async def mine() -> str:
        """Finish."""
        return "polished"

    model = ScriptedModel([Reply(tool_calls=[ToolCall("finish", {})]), "It shines."])
    result = await runtime.run(Agent("a", model=model, tools=[mine]), "?", session="s")
    assert (result.output, result.steps, result.call) == ("It shines.", 2, "")


async def test_what_the_user_answered_can_be_removed_for_good(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel(["Your number?", finish(answer="Thanks.")]), finish="ask")
    running = asyncio.ensure_future(runtime.run(agent, "?", session="s", submission="m1"))
    request = await asked(runtime, "s")
    await runtime.sessions.reply("s", request.request_id, "4711")
    await running
    await runtime.sessions.redact("s", 2)
    assert "4711" not in str(await runtime.sessions.entries("s"))
    assert await find_problems(runtime.store, "s") == []
