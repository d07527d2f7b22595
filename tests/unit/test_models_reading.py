"""How answers are read, event by event, without a connection."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.errors import AuthenticationFailed, ContextTooLong, ProviderError, ProviderRefused, ProviderUnavailable, RateLimited
from perdure.core.messages import Message, Private, Reasoning, Text, ToolCall
from perdure.core.usage import Usage
from perdure.models.anthropic import Anthropic
from perdure.models.base import ModelOutput, ModelRequest, ReasoningDelta
from perdure.models.openai import OpenAIChat, OpenAIResponses
from perdure.models.remote import RemoteModel, arguments_of, clean, retry_after

REQUEST = ModelRequest(instructions="", messages=[Message(role="assistant", parts=(Text(content="earlier"),))])


def read(model: RemoteModel, *events: dict[str, Any]) -> tuple[str, ModelOutput]:
    answer = model._answer(REQUEST)
    shown = "".join(delta.text for event in events for delta in answer.feed(event))
    assert answer.complete
    return shown, answer.output()


def read_whole(model: RemoteModel, body: dict[str, Any]) -> ModelOutput:
    answer = model._answer(REQUEST)
    answer.whole(body)
    return answer.output()


# ---- OpenAI Responses


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"status": "completed", "model": "m", "output": list(output), "usage": None, **fields}


def says(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **fields}


RESPONSES = OpenAIResponses("m")


def test_the_item_that_came_on_its_own_wins_over_the_summary_at_the_end() -> None:
    full: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs",
        "summary": [],
        "encrypted_content": "complete",
        "status": "completed",
        "content": None,
    }
    _, output = read(
        RESPONSES,
        {"type": "response.output_item.done", "output_index": 0, "item": full},
        {"type": "response.completed", "response": response({**full, "encrypted_content": None}, says("hi"))},
    )
    kept = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "complete"}
    assert output.parts == (Private(group="openai:m", data=kept), Text(content="hi"))


def test_reasoning_without_its_content_is_only_shown() -> None:
    item = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]}
    assert read_whole(RESPONSES, response(item, says("hi"))).parts == (Reasoning(content="a\n\nb"), Text(content="hi"))


def test_the_parts_of_a_summary_are_set_apart() -> None:
    answer = RESPONSES._answer(REQUEST)
    assert list(answer.feed({"type": "response.reasoning_summary_part.added", "summary_index": 0})) == []
    assert list(answer.feed({"type": "response.reasoning_summary_part.added", "summary_index": 1})) == [ReasoningDelta(text="\n\n")]


def test_unknown_events_are_passed_over() -> None:
    shown, output = read(RESPONSES, {"type": "response.novelty"}, {"type": "response.completed", "response": response(says("hi"))})
    assert (shown, output.parts) == ("", (Text(content="hi"),))


def test_a_phase_is_kept_for_the_group() -> None:
    output = read_whole(RESPONSES, response(says("looking", phase="commentary")))
    assert output.parts == (Private(group="openai:m", data={"type": "message", "phase": "commentary"}), Text(content="looking"))


def test_items_of_hosted_tools_are_kept_for_the_group() -> None:
    item = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "snow"}}
    output = read_whole(RESPONSES, response(item, says("snow")))
    assert output.parts[0] == Private(group="openai:m", data={"type": "web_search_call", "id": "ws", "action": {"query": "snow"}})


def test_calls_without_an_id_get_one_that_is_unique_in_the_session() -> None:
    call = {"type": "function_call", "name": "look", "arguments": "", "call_id": ""}
    output = read_whole(RESPONSES, response(call, call))
    assert output.parts == (ToolCall("look", {}, id="call_1_0"), ToolCall("look", {}, id="call_1_1"))


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"code": "server_error", "message": "m"}, ProviderUnavailable, True),
        ({"code": "server_is_overloaded", "message": "m"}, ProviderUnavailable, True),
        ({"code": None, "message": "m"}, ProviderUnavailable, True),
        ({"code": "rate_limit_exceeded", "message": "m"}, RateLimited, True),
        ({"code": "insufficient_quota", "message": "m"}, ProviderRefused, False),
        ({"code": "invalid_api_key", "message": "m"}, AuthenticationFailed, False),
        ({"code": "invalid_prompt", "message": "m"}, ProviderRefused, False),
        ({"code": "context_length_exceeded", "message": "m"}, ContextTooLong, False),
    ],
)
def test_a_failed_response_says_whether_to_try_again(error: dict[str, Any], kind: type[ProviderError], retryable: bool) -> None:
    failed = {"type": "response.failed", "response": response(status="failed", error=error)}
    for event in (failed, {"type": "error", "sequence_number": 3, "param": None, **error}, {"type": "error", "error": error}):
        with pytest.raises(kind, match="m") as caught:
            list(RESPONSES._answer(REQUEST).feed(event))
        assert type(caught.value) is kind
        assert caught.value.retryable is retryable


# ---- OpenAI Chat Completions

CHAT = OpenAIChat("m")


def chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "model": "m", **fields}


def test_calls_that_are_not_numbered_are_told_apart() -> None:
    def call(**fields: Any) -> dict[str, Any]:
        return chunk({"tool_calls": [fields]})

    _, output = read(
        CHAT,
        call(id="a", function={"name": "look", "arguments": '{"n":'}),
        call(function={"arguments": "1}"}),
        call(id="b", function={"name": "look", "arguments": '{"n":2}'}),
        chunk({}, "stop"),
    )
    assert output.parts == (ToolCall("look", {"n": 1}, id="a"), ToolCall("look", {"n": 2}, id="b"))
    assert output.finish == "tool_calls"


def test_a_name_that_is_repeated_in_every_piece_is_one_name() -> None:
    piece = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}}]})
    _, output = read(CHAT, piece, piece, chunk({}, "tool_calls"))
    assert output.parts == (ToolCall("look", {}, id="a"),)


def test_other_choices_and_empty_chunks_are_passed_over() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    shown, output = read(CHAT, {"choices": []}, other, chunk({"content": "yes"}), chunk({}, "stop", usage={"prompt_tokens": 3}))
    assert (shown, output.parts) == ("yes", (Text(content="yes"),))
    assert output.usage == Usage(input_tokens=3)


def test_reasoning_under_either_name_is_shown_but_only_one_is_sent_back() -> None:
    _, sent_back = read(CHAT, chunk({"reasoning_content": "hm"}), chunk({"content": "hi"}), chunk({}, "stop"))
    _, shown = read(CHAT, chunk({"reasoning": "hm"}), chunk({"content": "hi"}), chunk({}, "stop"))
    private = Private(group="openai-chat:m", data={"reasoning_content": "hm"})
    assert sent_back.parts == (Reasoning(content="hm"), private, Text(content="hi"))
    assert shown.parts == (Reasoning(content="hm"), Text(content="hi"))


@pytest.mark.parametrize(
    ("code", "kind"), [(502, ProviderUnavailable), ("429", RateLimited), ("content_policy", ProviderRefused), (None, ProviderUnavailable)]
)
def test_an_error_in_the_place_of_an_answer_is_an_error(code: Any, kind: type[ProviderError]) -> None:
    with pytest.raises(kind, match="behind me"):
        read_whole(CHAT, {"error": {"code": code, "message": "behind me"}})


# ---- Anthropic Messages

CLAUDE = Anthropic("m")


def message(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "model": "m", "content": list(content), "stop_reason": "end_turn", **fields}


def test_thinking_is_kept_with_its_signature_in_its_place() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    redacted = {"type": "redacted_thinking", "data": "d"}
    output = read_whole(CLAUDE, message(thinking, redacted, {"type": "text", "text": "hi"}))
    assert output.parts == (
        Reasoning(content="hm"),
        Private(group="anthropic:m", data=thinking),
        Private(group="anthropic:m", data=redacted),
        Text(content="hi"),
    )


def test_thinking_that_is_not_shown_is_kept_all_the_same() -> None:
    hidden = {"type": "thinking", "thinking": "", "signature": "s"}
    output = read_whole(CLAUDE, message(hidden, {"type": "text", "text": "hi"}))
    assert output.parts == (Private(group="anthropic:m", data=hidden), Text(content="hi"))


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "refusal"),
    ],
)
def test_stop_reasons_are_told_apart(reason: str, finish: str) -> None:
    assert read_whole(CLAUDE, message({"type": "text", "text": "hi"}, stop_reason=reason)).finish == finish


def test_an_explanation_stands_for_a_refusal_without_words() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "because"}
    ending = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}, "usage": {"output_tokens": 1}}
    shown, output = read(CLAUDE, {"type": "message_start", "message": message()}, ending)
    assert (shown, output.parts, output.finish) == ("because", (Text(content="because"),), "refusal")
    spoken = message({"type": "text", "text": "no"}, stop_reason="refusal", stop_details=details)
    assert read_whole(CLAUDE, spoken).parts == (Text(content="no"),)


def test_the_last_word_on_usage_counts() -> None:
    start = {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0, "output_tokens": 1}
    _, output = read(
        CLAUDE,
        {"type": "message_start", "message": message(usage=start)},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7, "cache_read_input_tokens": None}},
    )
    assert output.usage == Usage(input_tokens=15, output_tokens=7, cache_read_tokens=5, cache_write_tokens=0)


def test_blocks_of_hosted_tools_are_kept_with_their_input() -> None:
    block = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
    _, output = read(
        CLAUDE,
        {"type": "message_start", "message": message()},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"query":"snow"}'}},
        {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}},
    )
    assert output.parts == (Private(group="anthropic:m", data={**block, "input": {"query": "snow"}}),)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error"}, ProviderUnavailable),
        ({"type": "api_error"}, ProviderUnavailable),
        ({"type": "novel_error"}, ProviderUnavailable),
        ({"type": "rate_limit_error"}, RateLimited),
        ({"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}, ProviderRefused),
        ({"type": "authentication_error"}, AuthenticationFailed),
        ({"type": "invalid_request_error"}, ProviderRefused),
    ],
)
def test_an_error_is_known_by_its_type(error: dict[str, Any], kind: type[ProviderError]) -> None:
    with pytest.raises(kind, match="because") as caught:
        read_whole(CLAUDE, {"type": "error", "error": {**error, "message": "because"}})
    assert type(caught.value) is kind


# ---- what they share


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  ", {}),
        ("{", "{"),
        ("3", "3"),
        ("null", "null"),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 9007199254740993}', '{"a": 9007199254740993}'),
        ('{"a": "\\ud800"}', '{"a": "\\ud800"}'),
    ],
)
def test_arguments_are_an_object_or_the_text(text: str, arguments: Any) -> None:
    assert arguments_of(text) == arguments


def test_text_that_no_store_can_hold_is_repaired() -> None:
    assert clean("a\ud83c\udf0db") == "a🌍b"
    assert clean("a\ud83cb") == "a\ufffdb"
    assert clean("plain") == "plain"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "x", "retry-after": "4"}, 4.0),
        ({}, None),
    ],
)
def test_the_hint_to_wait_is_in_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
