from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from perdure.core.errors import UsageError
from perdure.core.messages import Blob, Message, Part, Private, Reasoning, StoredPart, Text, ToolCall, ToolCallResponse, Uri
from perdure.models.base import ModelRequest, ModelSettings, ToolSpec
from perdure.models.openai import render_chat, render_responses

GROUP = "openai:m"
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})
Render = Callable[..., dict[str, Any]]


def user(*parts: Part | str) -> Message:
    return Message(role="user", parts=tuple(Text(content=part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Part | str) -> Message:
    return Message(role="assistant", parts=tuple(Text(content=part) if isinstance(part, str) else part for part in parts))


def results(*parts: ToolCallResponse) -> Message:
    return Message(role="tool", parts=parts)


def a_request(*messages: Message, **fields: Any) -> ModelRequest:
    return ModelRequest(instructions=fields.pop("instructions", "Be brief."), messages=list(messages), **fields)


def responses(request: ModelRequest, **options: Any) -> dict[str, Any]:
    return render_responses(request, model="m", group=GROUP, **options)


def chat(request: ModelRequest, **options: Any) -> dict[str, Any]:
    return render_chat(request, model="m", group=GROUP, **options)


both = pytest.mark.parametrize("render", [responses, chat])

CONVERSATION = (
    user("where is it?"),
    assistant(
        Private(group=GROUP, data=SEALED),
        Reasoning(content="readable"),
        "Let me look.",
        ToolCall("look", {"b": 1, "a": "ü"}, id="call_1"),
        ToolCall("look", '{"broken', id="call_2"),
    ),
    results(
        ToolCallResponse(id="call_1", name="look", response={"sees": ["snow"]}),
        ToolCallResponse(id="call_2", name="look", response="no such place", is_error=True),
    ),
    user("thanks"),
    assistant("In the north."),
)


def test_a_conversation_becomes_response_items_in_order() -> None:
    body = responses(a_request(*CONVERSATION, tools=(LOOK,)))

    assert body == {
        "model": "m",
        "instructions": "Be brief.",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {"type": "function", "name": "look", "description": "Look.", "parameters": LOOK.parameters, "strict": False},
        ],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "where is it?"}]},
            SEALED,
            {"role": "assistant", "content": "Let me look."},
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"a":"ü","b":1}'},
            {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": '{"broken'},
            {"type": "function_call_output", "call_id": "call_1", "output": '{"sees":["snow"]}'},
            {"type": "function_call_output", "call_id": "call_2", "output": '{"error":"no such place"}'},
            {"role": "user", "content": [{"type": "input_text", "text": "thanks"}]},
            {"role": "assistant", "content": "In the north."},
        ],
    }


def test_a_conversation_becomes_chat_messages_in_order() -> None:
    body = chat(a_request(*CONVERSATION, tools=(LOOK,)))

    assert body == {
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": LOOK.parameters}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "where is it?"},
            {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":"ü","b":1}'}},
                    {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": '{"broken'}},
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": '{"sees":["snow"]}'},
            {"role": "tool", "tool_call_id": "call_2", "content": '{"error":"no such place"}'},
            {"role": "user", "content": "thanks"},
            {"role": "assistant", "content": "In the north."},
        ],
    }


@both
def test_appending_leaves_the_prefix_byte_for_byte(render: Render) -> None:
    field = "input" if render is responses else "messages"
    whole = json.dumps(render(a_request(*CONVERSATION))[field])
    for length in range(1, len(CONVERSATION)):
        shorter = json.dumps(render(a_request(*CONVERSATION[:length]))[field])
        assert whole.startswith(shorter.removesuffix("]"))


@both
def test_rendering_changes_nothing_and_depends_on_nothing_else(render: Render) -> None:
    request = a_request(*CONVERSATION, tools=(LOOK,), settings=ModelSettings(extra={"user": "u"}))
    before = msgspec.json.encode(request)
    first = json.dumps(render(request))
    again = json.dumps(render(msgspec.structs.replace(request, session_id="other", step=3, route="r")))
    assert first == again
    assert msgspec.json.encode(request) == before


@both
def test_private_payloads_go_to_their_own_group_only(render: Render) -> None:
    strange = assistant(Private(group="anthropic:c", data={"type": "thinking", "thinking": "x", "signature": "secret"}), "hi")
    body = json.dumps(render(a_request(user("a"), strange)))
    assert "secret" not in body
    assert "sealed" not in json.dumps(render_responses(a_request(*CONVERSATION), model="m", group="openai:other"))


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    body = responses(a_request(user("a"), assistant(Private(group=GROUP, data=SEALED)), user("b")))
    assert [item.get("role") for item in body["input"]] == ["user", "user"]


def test_the_phase_of_a_message_is_sent_back_with_it() -> None:
    parts: list[Part | str] = [
        Private(group=GROUP, data={"type": "message", "phase": "commentary"}),
        "looking",
        ToolCall("look", {}, id="c"),
    ]
    body = responses(a_request(user("a"), assistant(*parts)))
    assert body["input"][1] == {"role": "assistant", "content": "looking", "phase": "commentary"}
    assert "phase" not in json.dumps(render_responses(a_request(user("a"), assistant(*parts)), model="m", group="other"))


def test_items_of_hosted_tools_are_sent_back_as_they_came() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "snow"}}
    body = responses(a_request(user("a"), assistant(Private(group=GROUP, data=item), "snow")))
    assert body["input"][1] == item


def test_reasoning_content_goes_back_with_the_calls_that_it_led_to() -> None:
    thought = Private(group=GROUP, data={"reasoning_content": "hm"})
    body = chat(a_request(user("a"), assistant(thought, ToolCall("look", {}, id="c")), user("b"), assistant(thought, "done")))
    assert body["messages"][2]["reasoning_content"] == "hm"
    assert "reasoning_content" not in body["messages"][4]


@both
def test_a_message_without_content_is_skipped(render: Render) -> None:
    body = render(a_request(user(""), user("a"), assistant(""), user("", "b")))
    assert [message["role"] for message in body.get("input") or body["messages"][1:]] == ["user", "user"]


@both
def test_a_request_without_any_content_is_refused(render: Render) -> None:
    with pytest.raises(UsageError, match="nothing to send"):
        render(a_request(user("")))


def test_images_and_files_are_linked() -> None:
    body = responses(
        a_request(
            user(
                "see",
                Uri(uri="https://x/a.png", mime_type="image/png"),
                Uri(uri="https://x/a"),
                Uri(uri="https://x/a.pdf", mime_type="application/pdf"),
                Uri(uri="data:application/pdf;base64,QQ=="),
            )
        )
    )
    assert body["input"][0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://x/a.png", "detail": "auto"},
        {"type": "input_image", "image_url": "https://x/a", "detail": "auto"},
        {"type": "input_file", "file_url": "https://x/a.pdf"},
        {"type": "input_file", "filename": "file", "file_data": "data:application/pdf;base64,QQ=="},
    ]
    images = chat(a_request(user("see", Uri(uri="data:image/png;base64,QQ=="))))["messages"][1]["content"]
    assert images == [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}]


@both
@pytest.mark.parametrize(
    ("message", "said"),
    [
        (user(Blob(mime_type="image/png", digest="d", size=1)), "holds no content for"),
        (user(StoredPart(digest="d", size=1)), "was not put back in place"),
        (user(ToolCall("look", {}, id="c")), "a part ToolCall in a message of role user"),
        (assistant(Uri(uri="https://x/a.png")), "a part Uri in a message of role assistant"),
        (Message(role="tool", parts=(Text(content="x"),)), "a part Text in a message of role tool"),
    ],
)
def test_a_part_that_cannot_be_sent_is_refused(render: Render, message: Message, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        render(a_request(user("a"), message))


def test_a_file_cannot_go_into_a_chat() -> None:
    with pytest.raises(UsageError, match="Chat Completions can't be sent a part Uri"):
        chat(a_request(user(Uri(uri="https://x/a.pdf", mime_type="application/pdf"))))


@both
def test_ids_of_other_providers_fit(render: Render) -> None:
    long, odd = "c" * 100, "functions.look:0"
    calls = [ToolCall("look", {}, id=long), ToolCall("look", {}, id=odd)]
    answers = [ToolCallResponse(id=long, name="look", response="1"), ToolCallResponse(id=odd, name="look", response="2")]
    body = render(a_request(user("a"), assistant(*calls), results(*answers)))
    if render is responses:
        asked = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
        answered = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    else:
        asked = [call["id"] for call in body["messages"][2]["tool_calls"]]
        answered = [message["tool_call_id"] for message in body["messages"][3:]]
    assert asked == answered
    assert len(set(asked)) == 2
    assert all(len(call_id) <= 40 and call_id.replace("_", "").replace("-", "").isalnum() for call_id in asked)


def test_settings_have_their_names_in_each_protocol() -> None:
    settings = ModelSettings(
        max_output_tokens=9,
        temperature=0.5,
        reasoning_effort="low",
        parallel_tool_calls=False,
        tool_choice="look",
        extra={"service_tier": "flex"},
    )
    request = a_request(user("a"), tools=(LOOK,), settings=settings, instructions="")

    new = responses(request, reasoning_summary="auto")
    assert new["max_output_tokens"] == 9
    assert new["reasoning"] == {"effort": "low", "summary": "auto"}
    assert new["tool_choice"] == {"type": "function", "name": "look"}
    assert "instructions" not in new
    old = chat(request, max_tokens_field="max_tokens")
    assert old["max_tokens"] == 9
    assert old["reasoning_effort"] == "low"
    assert old["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert old["messages"][0]["role"] == "user"
    for body in (new, old):
        assert (body["temperature"], body["parallel_tool_calls"], body["service_tier"]) == (0.5, False, "flex")


@both
def test_settings_about_tools_are_not_sent_without_tools(render: Render) -> None:
    body = render(a_request(user("a"), settings=ModelSettings(parallel_tool_calls=True, tool_choice="auto")))
    assert not {"parallel_tool_calls", "tool_choice", "tools"} & set(body)


@both
@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_general_tool_choices_are_words(render: Render, choice: str) -> None:
    assert render(a_request(user("a"), tools=(LOOK,), settings=ModelSettings(tool_choice=choice)))["tool_choice"] == choice


def test_models_that_do_not_reason_are_not_asked_for_reasoning() -> None:
    body = responses(a_request(user("a")), encrypted_reasoning=False)
    assert "include" not in body
    assert "reasoning" not in body
