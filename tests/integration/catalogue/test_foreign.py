"""Conversations that another system kept become sessions that go on, or are refused whole."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from perdure import (
    Agent,
    Blob,
    Foreign,
    InvalidTranscript,
    Reasoning,
    SessionExists,
    SessionNotFound,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
    UsageError,
)
from perdure.runtime.verify import verify
from perdure.testing import find_problems

from ..interactive.acting import Place, counting

PICTURE = b"\x89PNG\r\n\x1a\n a picture"
PNG = base64.b64encode(PICTURE).decode()

OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "developer", "content": [{"type": "text", "text": "And short."}]},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
            {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "one"}]},
    {"role": "assistant", "content": "A picture."},
]

ANTHROPIC: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/b.png"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Let me look.", "signature": "s"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
            {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c2", "content": "two", "is_error": True},
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "one"}]},
            {"type": "text", "text": "Well?"},
        ],
    },
    {"role": "assistant", "content": "A picture."},
]


@pytest.mark.parametrize("source", ["openai", "anthropic"])
async def test_a_conversation_from_elsewhere_goes_on_here(place: Place, source: Any) -> None:
    model, asked = counting("As I said.")
    async with place.process() as process:
        given = OPENAI if source == "openai" else ANTHROPIC
        instructions = await process.sessions.import_messages("s", given, source=source, agent="a", labels={"from": source}, actor="ann")
        assert instructions == ("Be kind.\n\nAnd short." if source == "openai" else "")
        history = await process.sessions.history("s")
        [picture] = [part for part in history[0].parts if isinstance(part, Blob)]
        assert history[0].parts == (Text("What is this?"), picture, Uri(uri="https://example.org/b.png"))
        blob = await process.store.blob("s", picture.digest)
        assert blob is not None
        assert blob.data == PICTURE
        assert (picture.mime_type, picture.size) == ("image/png", len(PICTURE))
        calls = (ToolCall(id="c1", name="look", arguments={"at": 1}), ToolCall(id="c2", name="look", arguments={}))
        assert history[1].parts == (calls if source == "openai" else (Reasoning("Let me look."), *calls))
        assert [(part.id, part.response, part.is_error) for part in history[2].parts if isinstance(part, ToolCallResponse)] == [
            ("c1", "one", False),
            ("c2", "two", source == "anthropic"),
        ]
        assert [message.role for message in history] == [
            *("user", "assistant", "tool"),
            *([] if source == "openai" else ["user"]),
            "assistant",
        ]
        _, foreign, *_ = await process.sessions.entries("s")
        assert isinstance(foreign, Foreign)
        assert (foreign.source, foreign.messages, foreign.actor) == (source, len(history), "ann")
        info = await process.sessions.info("s")
        assert (info.status, info.title, info.labels) == ("idle", "What is this?", {"from": source})
        assert (await process.run(Agent("a", model=model), "And now?", session="s", submission="m1")).output == "As I said."
        assert [message.role for message in asked[0].messages] == [*(message.role for message in history), "user"]
        assert [str(problem) async for problem in verify(process.store)] == []
        assert await find_problems(process.store, "s") == []
        with pytest.raises(SessionExists):
            await process.sessions.import_messages("s", given, source=source)


async def test_the_same_conversation_has_the_same_revision_wherever_it_comes_from(place: Place) -> None:
    async with place.process() as process:
        await process.sessions.import_messages("s", [{"role": "user", "content": "hello"}], source="openai")
        await process.sessions.import_messages("t", [{"role": "user", "content": "hello"}], source="anthropic")
        first, second = await process.sessions.checkpoint("s"), await process.sessions.checkpoint("t")
        assert first.revision == second.revision


WRONG: dict[str, Any] = {
    "nothing": [],
    "only instructions": [{"role": "system", "content": "x"}],
    "no object": ["hello"],
    "no role": [{"content": "hello"}],
    "an unknown role": [{"role": "wizard", "content": "hello"}],
    "an answer first": [{"role": "assistant", "content": "hello"}],
    "a response without a call": [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c", "content": "y"}],
    "a call without a response": OPENAI[:5],
    "arguments that are no JSON": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}]},
    ],
    "arguments that are no object": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "[1]"}}]},
    ],
    "an unknown part": [{"role": "user", "content": [{"type": "hologram"}]}],
    "bytes that are none": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,***"}}]}],
    "bytes of another type": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PNG}"}}]}],
    "an empty message": [{"role": "user", "content": "  "}],
    "a number as text": [{"role": "user", "content": 7}],
    "a lone surrogate": [{"role": "user", "content": "\ud800"}],
    "a text of megabytes": [{"role": "user", "content": "x" * 2**21}],
    "deep arguments": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a":' * 50_000 + "1" + "}" * 50_000}}]},
    ],
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_no_conversation_is_refused_whole(place: Place, wrong: str) -> None:
    async with place.process() as process:
        with pytest.raises(InvalidTranscript):
            await process.sessions.import_messages("s", WRONG[wrong], source="openai")
        with pytest.raises(SessionNotFound):
            await process.sessions.info("s")
        assert await process.store.blobs("s") == []


async def test_what_is_no_list_or_no_system_is_a_mistake(place: Place) -> None:
    async with place.process() as process:
        for messages, source in (("hello", "openai"), ({}, "openai"), (None, "openai"), (OPENAI, "gemini"), (OPENAI, None)):
            with pytest.raises(UsageError):
                await process.sessions.import_messages("s", messages, source=source)  # type: ignore[arg-type]
