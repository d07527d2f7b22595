from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from perdure.core.errors import UsageError
from perdure.core.messages import Blob, Message, Part, Private, Reasoning, StoredPart, Text, ToolCall, ToolCallResponse, Uri
from perdure.models.anthropic import render as render_messages
from perdure.models.base import ModelRequest, ModelSettings, ToolSpec

GROUP = "anthropic:m"
THINKING = {"type": "thinking", "thinking": "hm", "signature": "signed"}
REDACTED = {"type": "redacted_thinking", "data": "opaque"}
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})


def message(role: Any, *parts: Part | str) -> Message:
    return Message(role=role, parts=tuple(Text(content=part) if isinstance(part, str) else part for part in parts))


def a_request(*messages: Message, **fields: Any) -> ModelRequest:
    return ModelRequest(instructions=fields.pop("instructions", "Be brief."), messages=list(messages), **fields)


def render(request: ModelRequest, **options: Any) -> dict[str, Any]:
    return render_messages(request, model="m", group=options.pop("group", GROUP), **options)


CONVERSATION = (
    message("user", "where is it?"),
    message(
        "assistant",
        Private(group=GROUP, data=THINKING),
        Reasoning(content="hm"),
        Private(group=GROUP, data=REDACTED),
        "Let me look.",
        ToolCall("look", {"b": 1, "a": "ü"}, id="toolu_1"),
        ToolCall("look", '{"broken', id="toolu_2"),
    ),
    message(
        "tool",
        ToolCallResponse(id="toolu_1", name="look", response={"sees": ["snow"]}),
        ToolCallResponse(id="toolu_2", name="look", response="no such place", is_error=True),
    ),
    message("user", "and then?"),
    message("user", "quickly"),
    message("assistant", "In the north."),
    message("user", "thanks"),
)


def test_a_conversation_becomes_alternating_messages_with_results_first() -> None:
    body = render(a_request(*CONVERSATION, tools=(LOOK,)))

    assert body == {
        "model": "m",
        "max_tokens": 16_000,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [{"name": "look", "description": "Look.", "input_schema": LOOK.parameters}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "where is it?"}]},
            {
                "role": "assistant",
                "content": [
                    THINKING,
                    REDACTED,
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"b": 1, "a": "ü"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"invalid_json": '{"broken'}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"sees":["snow"]}'},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no such place", "is_error": True},
                    {"type": "text", "text": "and then?"},
                    {"type": "text", "text": "quickly"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "In the north."}]},
            {"role": "user", "content": [{"type": "text", "text": "thanks"}]},
        ],
    }


def test_results_come_first_whatever_was_said_before_them() -> None:
    call = ToolCall("look", {}, id="toolu_1")
    result = ToolCallResponse(id="toolu_1", name="look", response="snow")
    body = render(a_request(message("user", "a"), message("assistant", call), message("user", "hurry"), message("tool", result)))
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text"]


def blocks(body: dict[str, Any]) -> list[str]:
    return [json.dumps([part["role"], block]) for part in body["messages"] for block in part["content"]]


def test_appending_leaves_the_prefix_block_for_block() -> None:
    whole = blocks(render(a_request(*CONVERSATION)))
    for length in range(1, len(CONVERSATION)):
        shorter = blocks(render(a_request(*CONVERSATION[:length])))
        assert whole[: len(shorter)] == shorter


def test_appending_within_a_turn_leaves_the_prefix_byte_for_byte() -> None:
    whole = json.dumps(render(a_request(*CONVERSATION))["messages"])
    for length in (1, 2, 5, 6):
        shorter = json.dumps(render(a_request(*CONVERSATION[:length]))["messages"])
        assert whole.startswith(shorter.removesuffix("]"))


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


def test_cache_marks_the_ends_of_prefixes_and_changes_nothing_else() -> None:
    request = a_request(*CONVERSATION, tools=(LOOK, LOOK))
    marked = render(request, cache=True)

    mark = {"type": "ephemeral"}
    assert [tool.get("cache_control") for tool in marked["tools"]] == [None, mark]
    assert marked["system"][-1]["cache_control"] == mark
    assert marked["messages"][-1]["content"][-1]["cache_control"] == mark
    assert json.dumps(marked).count("cache_control") == 3
    assert without_marks(marked) == render(request)


def test_only_the_mark_moves_when_messages_are_appended() -> None:
    whole = without_marks(render(a_request(*CONVERSATION), cache=True))
    for length in range(1, len(CONVERSATION)):
        shorter = without_marks(render(a_request(*CONVERSATION[:length]), cache=True))
        assert blocks(whole)[: len(blocks(shorter))] == blocks(shorter)


def test_thinking_is_never_marked() -> None:
    body = render(a_request(message("user", "a"), message("assistant", "b", Private(group=GROUP, data={"type": "odd"}))), cache=True)
    assert body["messages"][1]["content"] == [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}, {"type": "odd"}]


def test_rendering_changes_nothing_and_depends_on_nothing_else() -> None:
    request = a_request(*CONVERSATION, tools=(LOOK,), settings=ModelSettings(extra={"metadata": {"user_id": "u"}}))
    before = msgspec.json.encode(request)
    first = json.dumps(render(request, cache=True))
    again = json.dumps(render(msgspec.structs.replace(request, session_id="other", step=3, route="r"), cache=True))
    assert first == again
    assert msgspec.json.encode(request) == before


def test_thinking_goes_to_its_own_group_only() -> None:
    body = json.dumps(render(a_request(*CONVERSATION), group="anthropic:other"))
    assert "signed" not in body
    assert "opaque" not in body
    assert "Let me look." in body


def test_thinking_that_nothing_follows_is_left_out() -> None:
    body = render(a_request(message("user", "a"), message("assistant", Private(group=GROUP, data=THINKING)), message("user", "b")))
    assert [len(part["content"]) for part in body["messages"]] == [2]


def test_blank_text_is_skipped() -> None:
    body = render(a_request(message("user", " \n"), message("user", "a", ""), message("assistant", " "), message("user", "b")))
    assert blocks(body) == ['["user", {"type": "text", "text": "a"}]', '["user", {"type": "text", "text": "b"}]']


def test_a_request_without_any_content_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to send"):
        render(a_request(message("user", " ")))


def test_images_and_documents_are_linked_or_inline() -> None:
    body = render(
        a_request(
            message(
                "user",
                Uri(uri="https://x/a.png", mime_type="image/png"),
                Uri(uri="https://x/a"),
                Uri(uri="https://x/a.pdf", mime_type="application/pdf"),
                Uri(uri="data:image/png;base64,QQ=="),
            )
        )
    )
    assert body["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
        {"type": "image", "source": {"type": "url", "url": "https://x/a"}},
        {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}},
    ]


@pytest.mark.parametrize(
    ("part", "role", "said"),
    [
        (Blob(mime_type="image/png", digest="d", size=1), "user", "holds no content for"),
        (StoredPart(digest="d", size=1), "user", "was not put back in place"),
        (Uri(uri="https://x/a.mp3", mime_type="audio/mpeg"), "user", "a link to audio/mpeg"),
        (Uri(uri="data:image/svg+xml,<svg/>"), "user", "in base64"),
        (ToolCall("look", {}, id="c"), "user", "a part ToolCall in a message of role user"),
        (Uri(uri="https://x/a.png"), "assistant", "a part Uri in a message of role assistant"),
        (Text(content="x"), "tool", "a part Text in a message of role tool"),
        (ToolCallResponse(id="c", name="look", response=1), "user", "a part ToolCallResponse in a message of role user"),
    ],
)
def test_a_part_that_cannot_be_sent_is_refused(part: Part, role: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        render(a_request(message("user", "a"), message(role, part)))


def test_ids_of_other_providers_fit() -> None:
    call = ToolCall("look", {}, id="functions.look:0")
    result = ToolCallResponse(id="functions.look:0", name="look", response="snow")
    body = render(a_request(message("user", "a"), message("assistant", call), message("tool", result)))
    used, answered = body["messages"][1]["content"][0]["id"], body["messages"][2]["content"][0]["tool_use_id"]
    assert used == answered
    assert used.replace("_", "").isalnum()


def test_settings_have_the_apis_names() -> None:
    settings = ModelSettings(max_output_tokens=9, temperature=0.5, reasoning_effort="low", extra={"top_k": 3})
    body = render(a_request(message("user", "a"), settings=settings, instructions=""), thinking={"type": "adaptive"})
    assert (body["max_tokens"], body["temperature"], body["top_k"]) == (9, 0.5, 3)
    assert body["output_config"] == {"effort": "low"}
    assert body["thinking"] == {"type": "adaptive"}
    assert "system" not in body


@pytest.mark.parametrize(
    ("choice", "parallel", "rendered"),
    [
        (None, None, None),
        ("auto", None, {"type": "auto"}),
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        ("look", None, {"type": "tool", "name": "look"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", True, {"type": "any", "disable_parallel_tool_use": False}),
    ],
)
def test_tool_choices_have_the_apis_form(choice: str | None, parallel: bool | None, rendered: dict[str, Any] | None) -> None:
    settings = ModelSettings(tool_choice=choice, parallel_tool_calls=parallel)
    assert render(a_request(message("user", "a"), tools=(LOOK,), settings=settings)).get("tool_choice") == rendered
    assert "tool_choice" not in render(a_request(message("user", "a"), settings=settings))
