"""Conversations that another system kept become sessions that go on, or are refused whole."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter, ValidationError

from perdure import (
    Agent,
    Blob,
    Foreign,
    InvalidMessage,
    InvalidTranscript,
    Message,
    ModelRequest,
    Reasoning,
    SessionExists,
    SessionNotFound,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
    UsageError,
)
from perdure.models.openai import render_responses
from perdure.runtime.verify import verify
from perdure.testing import find_problems

from ..interactive.acting import Place, counting
from .talking import line

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


RESPONSES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "And short."}]},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"},
            {"type": "input_image", "detail": "auto", "image_url": "https://example.org/b.png"},
        ],
    },
    {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Let me look."}],
        "encrypted_content": "for OpenAI alone",
    },
    {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": 1}', "status": "completed"},
    {"id": "fc_2", "type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}", "status": "completed"},
    {"type": "function_call_output", "call_id": "c2", "output": "two"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "one"}]},
    {"id": "rs_2", "type": "reasoning", "summary": [], "encrypted_content": "for OpenAI alone"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "A picture.", "annotations": []}],
    },
]
GIVEN = {"openai": OPENAI, "openai-responses": RESPONSES, "anthropic": ANTHROPIC}


@pytest.mark.parametrize("source", GIVEN)
async def test_a_conversation_from_elsewhere_goes_on_here(place: Place, source: Any) -> None:
    model, asked = counting("As I said.")
    async with place.process() as process:
        given, ours = GIVEN[source], source != "anthropic"
        instructions = await process.sessions.import_messages("s", given, source=source, agent="a", labels={"from": source}, actor="ann")
        assert instructions == ("Be kind.\n\nAnd short." if ours else "")
        history = await process.sessions.history("s")
        [picture] = [part for part in history[0].parts if isinstance(part, Blob)]
        assert history[0].parts == (Text("What is this?"), picture, Uri(uri="https://example.org/b.png"))
        blob = await process.store.blob("s", picture.digest)
        assert blob is not None
        assert blob.data == PICTURE
        assert (picture.mime_type, picture.size) == ("image/png", len(PICTURE))
        calls = (ToolCall(id="c1", name="look", arguments={"at": 1}), ToolCall(id="c2", name="look", arguments={}))
        assert history[1].parts == (calls if source == "openai" else (Reasoning(content="Let me look."), *calls))
        assert [(part.id, part.response, part.is_error) for part in history[2].parts if isinstance(part, ToolCallResponse)] == [
            ("c1", "one", False),
            ("c2", "two", source == "anthropic"),
        ]
        assert [message.role for message in history] == [
            *("user", "assistant", "tool"),
            *([] if ours else ["user"]),
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
        for source in GIVEN:
            await process.sessions.import_messages(source, [{"role": "user", "content": "hello"}], source=source)  # type: ignore[arg-type]
        assert len({(await process.sessions.checkpoint(source)).revision for source in GIVEN}) == 1


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calls(call: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call, "name": "look", "arguments": arguments}


def came_to(call: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call, "output": output}


def answered(text: str) -> dict[str, Any]:
    return {"type": "message", "id": "msg", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


THINKS: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}

ORDERS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "outputs behind each call": (
        [said("x"), calls("a"), came_to("a", "1"), calls("b"), came_to("b", "2"), answered("done")],
        ["user: x", "assistant: look(a)", "tool: a=1", "assistant: look(b)", "tool: b=2", "assistant: done"],
    ),
    "outputs in another order": (
        [said("x"), calls("a"), calls("b"), came_to("b", "2"), came_to("a", "1"), answered("done")],
        ["user: x", "assistant: look(a) look(b)", "tool: a=1 b=2", "assistant: done"],
    ),
    "an output behind the next call": (
        [said("x"), calls("a"), calls("b"), came_to("a", "1"), calls("c"), came_to("b", "2"), came_to("c", "3"), answered("done")],
        ["user: x", "assistant: look(a) look(b)", "tool: a=1 b=2", "assistant: look(c)", "tool: c=3", "assistant: done"],
    ),
    "an output behind another message": (
        [said("x"), calls("a"), said("hurry"), came_to("a", "1"), answered("done")],
        ["user: x", "assistant: look(a)", "tool: a=1", "user: hurry", "assistant: done"],
    ),
    "words around calls": (
        [said("x"), answered("I look."), THINKS, calls("a"), answered("And wait."), came_to("a", "1"), answered("done"), answered("Yes.")],
        ["user: x", "assistant: I look. Reasoning look(a) And wait.", "tool: a=1", "assistant: done Yes."],
    ),
    "an id that is used again": (
        [said("x"), calls("a"), came_to("a", "1"), calls("a"), came_to("a", "2"), answered("done")],
        ["user: x", "assistant: look(a)", "tool: a=1", "assistant: look(a)", "tool: a=2", "assistant: done"],
    ),
    "thinking that nothing follows": (
        [said("x"), THINKS, said("y"), THINKS, answered(""), said("z"), answered("done"), THINKS],
        ["user: x", "user: y", "user: z", "assistant: done Reasoning"],
    ),
    "instructions in between": (
        [said("x"), calls("a"), {"role": "developer", "content": "Be quick."}, came_to("a", "1"), answered("done")],
        ["user: x", "assistant: look(a)", "tool: a=1", "assistant: done"],
    ),
}


@pytest.mark.parametrize("order", ORDERS)
async def test_items_become_messages_whatever_their_order(place: Place, order: str) -> None:
    given, expected = ORDERS[order]
    async with place.process() as process:
        await process.sessions.import_messages("s", given, source="openai-responses")
        assert [line(message) for message in await process.sessions.history("s")] == expected
        assert [str(problem) async for problem in verify(process.store)] == []


def test_the_items_are_those_of_the_real_package() -> None:
    items = TypeAdapter(list[ResponseInputItemParam])
    for given in (RESPONSES, *[given for given, _ in ORDERS.values()]):
        # The package asks for what counts for nothing here, and the short ones leave out.
        whole = [
            {**item, "content": [{"annotations": [], **part} for part in item["content"]]} if item.get("role") == "assistant" else item
            for item in given
        ]
        assert len(items.validate_python(whole)) == len(whole)
    with pytest.raises(ValidationError):
        items.validate_python([{"type": "function_call", "call_id": "c"}])


async def test_files_sounds_and_what_tools_returned_besides_text_are_kept(place: Place) -> None:
    document = base64.b64encode(b"%PDF-1.7 a document").decode()
    given = [
        {
            "role": "user",
            "content": [
                {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{document}"},
                {"type": "input_file", "filename": "b.pdf", "file_data": document},
                {"type": "input_file", "file_url": "https://example.org/c.pdf"},
                {"type": "input_file", "file_url": "https://example.org/d"},
                {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"ID3 a sound").decode(), "format": "mp3"}},
            ],
        },
        calls("a"),
        came_to(
            "a",
            [
                {"type": "input_text", "text": "see "},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_image", "image_url": "https://example.org/b.png"},
            ],
        ),
        answered("done"),
    ]
    async with place.process() as process:
        await process.sessions.import_messages("s", given, source="openai-responses")
        asked, wish, tool, _ = await process.sessions.history("s")
        named = [(part.mime_type, part.name) if isinstance(part, Blob) else part for part in asked.parts]
        assert named == [
            ("application/pdf", "a.pdf"),
            ("application/pdf", "b.pdf"),
            Uri(uri="https://example.org/c.pdf", mime_type="application/pdf"),
            Uri(uri="https://example.org/d", mime_type="application/octet-stream"),
            ("audio/mpeg", ""),
        ]
        [result] = tool.parts
        assert isinstance(result, ToolCallResponse)
        assert result.response == f"see [image/png, {len(PICTURE)} bytes][https://example.org/b.png]"
        blob = await process.store.blob("s", result.media[0].digest)
        assert blob is not None
        assert blob.data == PICTURE
        # Such a result can be written back, and not with content that isn't there.
        other = msgspec.structs.replace(tool, parts=(msgspec.structs.replace(result, response="see this"),))
        await process.sessions.rewrite("s", (1, 3), [wish, other])
        assert (await process.sessions.history("s"))[2].parts == other.parts
        elsewhere = msgspec.structs.replace(result, media=(msgspec.structs.replace(result.media[0], digest="0" * 64),))
        with pytest.raises(InvalidMessage):
            await process.sessions.rewrite("s", (1, 3), [wish, Message(role="tool", parts=(elsewhere,))])
        assert [str(problem) async for problem in verify(process.store)] == []


async def test_what_was_sent_as_items_comes_back_as_it_was(place: Place) -> None:
    messages = [
        Message(role="user", parts=(Text(content="go"),)),
        Message(role="assistant", parts=(Text(content="I look."), ToolCall(id="a", name="look", arguments={"at": 1}))),
        Message(role="tool", parts=(ToolCallResponse(id="a", name="look", response="seen"),)),
        Message(role="assistant", parts=(Text(content="done"),)),
    ]
    body = render_responses(ModelRequest(instructions="", messages=messages), model="gpt-test", group="g")
    async with place.process() as process:
        await process.sessions.import_messages("s", body["input"], source="openai-responses")
        assert [(message.role, message.parts) for message in await process.sessions.history("s")] == [
            (message.role, message.parts) for message in messages
        ]


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


WRONG_ITEMS: dict[str, tuple[list[Any], str]] = {
    "a call without an output": ([said("x"), calls("a"), said("y")], r"item 1 calls 'look' as 'a', and no item behind it"),
    "a call without an output at the end": ([said("x"), calls("a")], "item 1 calls"),
    "an output before its call": ([said("x"), came_to("a", "1"), calls("a")], "item 1 .*responds to 'a', which nobody called before it"),
    "an output too many": ([said("x"), calls("a"), came_to("a", "1"), came_to("a", "2")], "item 3 .*responds to 'a'"),
    "two calls with one id": ([said("x"), calls("a"), calls("a"), came_to("a", "1")], "item 2 .*another call"),
    "an answer first": ([{"role": "system", "content": "x"}, answered("hello")], "item 1 is an answer"),
    "arguments that are no JSON": ([said("x"), calls("a", "{")], "item 1 can't be read"),
    "arguments that are no object": ([said("x"), calls("a", "[1]")], "item 1 can't be read: the arguments of the call 'a'"),
    "an output that is none": ([said("x"), calls("a"), said("y"), came_to("a", 7)], "item 3 can't be read"),
    "an image that stands elsewhere": ([{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}], "item 0 .*file_1"),
    "an image that is nowhere": ([{"role": "user", "content": [{"type": "input_image"}]}], "item 0 .*'image_url' is missing"),
    "bytes of another type": (
        [said("x"), {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/jpeg;base64,{PNG}"}]}],
        "item 1 can't be kept",
    ),
    "a reference": ([{"type": "item_reference", "id": "msg_1"}], "item 0 .*stands at OpenAI"),
    "what a tool of the provider did": (
        [said("x"), {"type": "web_search_call", "id": "w", "status": "completed"}],
        "item 1 .*web_search_call",
    ),
    "an empty message": ([said("x"), said(" ")], "item 1 can't be read: it says nothing"),
    "a message without a role": ([{"type": "message", "content": "x"}], "item 0 can't be read: 'role' is missing"),
    "a text of megabytes": ([said("x"), answered("y" * 2**21)], "item 1 has"),
    "a lone surrogate": ([said("x"), THINKS, answered("\ud800")], "item 1"),
    "no object": ([said("x"), "y"], "item 1 is of the type str"),
    "a call without an id": ([said("x"), {"type": "function_call", "name": "look", "arguments": "{}"}], "item 1 .*'call_id' is missing"),
}


@pytest.mark.parametrize("wrong", WRONG_ITEMS)
async def test_an_item_that_is_none_is_named_and_nothing_is_kept(place: Place, wrong: str) -> None:
    items, told = WRONG_ITEMS[wrong]
    async with place.process() as process:
        with pytest.raises(InvalidTranscript, match=told):
            await process.sessions.import_messages("s", items, source="openai-responses")
        with pytest.raises(SessionNotFound):
            await process.sessions.info("s")
        assert await process.store.blobs("s") == []


async def test_a_list_of_the_other_kind_is_told_which_source_reads_it(place: Place) -> None:
    async with place.process() as process:
        for items, source, right in (
            (RESPONSES, "openai", 'source="openai-responses"'),
            ([THINKS], "anthropic", 'source="openai-responses"'),
            (OPENAI, "openai-responses", 'source="openai"'),
        ):
            with pytest.raises(InvalidTranscript) as refused:
                await process.sessions.import_messages("s", items, source=source)  # type: ignore[arg-type]
            assert right in refused.value.hint


async def test_a_document_by_its_address_is_no_image(place: Place) -> None:
    document = {"type": "document", "source": {"type": "url", "url": "https://example.org/c"}}
    async with place.process() as process:
        await process.sessions.import_messages("s", [{"role": "user", "content": [document]}], source="anthropic")
        [message] = await process.sessions.history("s")
        assert message.parts == (Uri(uri="https://example.org/c", mime_type="application/pdf"),)


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
