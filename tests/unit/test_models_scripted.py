from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.core.errors import ProviderUnavailable, UsageError
from perdure.core.messages import Message, Private, Reasoning, Text, ToolCall
from perdure.core.usage import Usage
from perdure.models.base import Model, ModelOutput, ModelRequest, ReasoningDelta, TextDelta
from perdure.models.scripted import FunctionModel, Reply, ScriptedModel


def a_request(answers: int = 0) -> ModelRequest:
    messages = [Message(role="user", parts=(Text(content="hello"),))]
    for number in range(answers):
        messages.append(Message(role="assistant", parts=(Text(content=f"answer {number}"),)))
        messages.append(Message(role="user", parts=(Text(content="go on"),)))
    return ModelRequest(instructions="", messages=messages)


async def play(model: Model, request: ModelRequest) -> tuple[list[Any], ModelOutput]:
    items = [item async for item in model.stream(request)]
    assert isinstance(items[-1], ModelOutput)
    return items[:-1], items[-1]


async def test_a_script_is_played_by_position_whichever_process_asks() -> None:
    steps: list[Any] = [Reply("one"), "two", lambda request: Reply(f"three of {len(request.messages)}")]

    texts = []
    for position in (2, 0, 1):
        _, output = await play(ScriptedModel(steps), a_request(position))
        texts.append(output.parts)

    assert texts == [(Text(content="three of 5"),), (Text(content="one"),), (Text(content="two"),)]


async def test_a_repeated_attempt_plays_the_same_step() -> None:
    model = ScriptedModel(["one", "two"])
    assert await play(model, a_request(1)) == await play(model, a_request(1))


async def test_the_end_of_the_script_is_said_clearly() -> None:
    with pytest.raises(UsageError, match="the script has 1 step, and step 2 was asked for"):
        await play(ScriptedModel(["one"]), a_request(1))


async def test_an_exception_in_the_script_is_raised() -> None:
    with pytest.raises(ProviderUnavailable, match="down"):
        await play(ScriptedModel([ProviderUnavailable("down")]), a_request())


async def test_a_single_text_is_one_step() -> None:
    _, output = await play(ScriptedModel("one"), a_request())
    assert output.parts == (Text(content="one"),)


async def test_text_and_reasoning_come_in_pieces_that_add_up() -> None:
    deltas, output = await play(ScriptedModel([Reply("a long answer", reasoning="a thought")]), a_request())

    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "a long answer"
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "a thought"
    assert len(deltas) == 6
    assert output.parts == (Reasoning(content="a thought"), Text(content="a long answer"))


async def test_calls_get_ids_that_are_unique_in_the_session_and_stable() -> None:
    calls = [ToolCall("look", {"at": 1}), ToolCall("look", {"at": 2}), ToolCall("look", {}, id="mine")]
    model = ScriptedModel([Reply(tool_calls=calls), Reply(tool_calls=calls)])

    _, first = await play(model, a_request(0))
    _, second = await play(model, a_request(1))

    assert [part.id for part in first.parts if isinstance(part, ToolCall)] == ["call_0_0", "call_0_1", "mine"]
    assert [part.id for part in second.parts if isinstance(part, ToolCall)] == ["call_1_0", "call_1_1", "mine"]


@pytest.mark.parametrize(
    ("reply", "finish"),
    [
        (Reply("done"), "stop"),
        (Reply(tool_calls=[ToolCall("look", {})]), "tool_calls"),
        (Reply("cut", finish="length"), "length"),
        (Reply("no", finish="refusal"), "refusal"),
    ],
)
async def test_the_finish_follows_from_the_reply_unless_it_says_so(reply: Reply, finish: str) -> None:
    _, output = await play(ScriptedModel([reply]), a_request())
    assert output.finish == finish


async def test_usage_is_unknown_unless_written_down() -> None:
    _, silent = await play(ScriptedModel(["hi"]), a_request())
    _, counted = await play(ScriptedModel([Reply("hi", usage=Usage(input_tokens=3, output_tokens=1), model="m-1")]), a_request())

    assert silent.usage is None
    assert counted.usage == Usage(input_tokens=3, output_tokens=1)
    assert counted.model == "m-1"


async def test_a_private_payload_belongs_to_the_models_group() -> None:
    _, output = await play(ScriptedModel([Reply("hi", private={"seal": 1})], group="g"), a_request())
    assert output.parts[0] == Private(group="g", data={"seal": 1})


async def test_a_function_may_be_plain_or_async() -> None:
    async def later(request: ModelRequest) -> Reply:
        return Reply(request.messages[0].text)

    _, plain = await play(FunctionModel(lambda request: request.messages[0].text), a_request())
    _, coroutine = await play(FunctionModel(later), a_request())

    assert plain.parts == coroutine.parts == (Text(content="hello"),)


async def test_a_generator_streams_its_own_deltas() -> None:
    async def speak(request: ModelRequest) -> AsyncIterator[Any]:
        yield ReasoningDelta(text="hm")
        yield "Hel"
        yield TextDelta(text="lo")
        yield Reply(usage=Usage(input_tokens=1, output_tokens=2))

    deltas, output = await play(FunctionModel(speak), a_request())

    assert deltas == [ReasoningDelta(text="hm"), TextDelta(text="Hel"), TextDelta(text="lo")]
    assert output.parts == (Reasoning(content="hm"), Text(content="Hello"))
    assert output.usage == Usage(input_tokens=1, output_tokens=2)


async def test_closing_the_stream_closes_the_generator() -> None:
    closed = []

    async def speak(request: ModelRequest) -> AsyncIterator[Any]:
        try:
            yield "one"
            yield Reply("one two")
        finally:
            closed.append(True)

    stream = FunctionModel(speak).stream(a_request())
    assert await anext(stream) == TextDelta(text="one")
    await stream.aclose()

    assert closed == [True]


async def no_reply(request: ModelRequest) -> AsyncIterator[Any]:
    yield "text"


async def late_text(request: ModelRequest) -> AsyncIterator[Any]:
    yield Reply("text")
    yield "more"


async def odd_item(request: ModelRequest) -> AsyncIterator[Any]:
    yield 3


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (no_reply, "ended without a Reply"),
        (late_text, "went on after its Reply"),
        (odd_item, "yielded the type int"),
        (lambda request: 3, "answer is of the type int"),
    ],
)
async def test_a_function_that_answers_wrongly_is_told_so(fn: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await play(FunctionModel(fn), a_request())


def test_scripted_models_are_models() -> None:
    model = ScriptedModel([], name="a")
    assert isinstance(model, Model)
    assert (model.name, model.group) == ("a", "a")
    assert FunctionModel(lambda request: "hi", name="a", group="b").group == "b"


def test_a_function_model_needs_a_function() -> None:
    with pytest.raises(UsageError, match="needs a function"):
        FunctionModel("hi")  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [[1], ["fine", None], [Reply], [ValueError], [object()]])
def test_a_step_that_cannot_be_played_is_refused_when_the_script_is_written(steps: Any) -> None:
    with pytest.raises(UsageError, match=f"step {len(steps)} of the script") as raised:
        ScriptedModel(steps)
    assert "a function of the request" in raised.value.hint


def test_a_script_is_a_list_of_steps_and_its_notes_are_one() -> None:
    with pytest.raises(UsageError, match="the script is a list of steps, not 3"):
        ScriptedModel(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="notes= is 3"):
        ScriptedModel(["fine"], notes=3)  # type: ignore[arg-type]
