"""What providers are sent of images, sounds and files; what they can't be sent fails before any request."""

from __future__ import annotations

import base64
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Blob, Media, ToolCall, ToolContext, UnsupportedContent, UsageError, tool
from perdure.core.messages import Message, Part, Text, ToolCallResponse
from perdure.models.anthropic import render as render_anthropic
from perdure.models.base import ModelRequest
from perdure.models.openai import render_chat, render_responses
from perdure.models.scripted import Reply
from perdure.testing.wire import WireServer

from ..media.pictures import JPEG, MP3, OGG, PDF, WAV, png
from .test_openai_anthropic_common import KINDS, Make, chat, every_adapter, messages, responses

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def asking(*media: Media) -> ModelRequest:
    parts: list[Part] = [Text("look"), *(item.blob for item in media)]
    return ModelRequest(
        instructions="", messages=[Message(role="user", parts=tuple(parts))], content={item.blob.digest: item.data for item in media}
    )


def sent(make: Make, request: ModelRequest) -> Any:
    """The content of the last message as a provider gets it, without the text that stands first."""
    if make is responses:
        return render_responses(request, model="m", group="g")["input"][-1]["content"][1:]
    if make is chat:
        return render_chat(request, model="m", group="g")["messages"][-1]["content"][1:]
    return render_anthropic(request, model="m", group="g")["messages"][-1]["content"][1:]


PICTURE, PHOTO, PAPER = Media(png(1), name="cat.png"), Media(JPEG), Media(PDF, name="paper.pdf")
NOTES, TABLE = Media(b"# hi", mime_type="text/markdown", name="notes.md"), Media(b"{}", mime_type="application/json")


@pytest.mark.parametrize(
    ("make", "media", "expected"),
    [
        (responses, PICTURE, {"type": "input_image", "image_url": f"data:image/png;base64,{b64(png(1))}", "detail": "auto"}),
        (responses, PAPER, {"type": "input_file", "filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{b64(PDF)}"}),
        (responses, NOTES, {"type": "input_file", "filename": "notes.md", "file_data": f"data:text/markdown;base64,{b64(b'# hi')}"}),
        (responses, TABLE, {"type": "input_file", "filename": "file.json", "file_data": f"data:application/json;base64,{b64(b'{}')}"}),
        (
            responses,
            Media(b"PK\x03\x04", mime_type=DOCX),
            {"type": "input_file", "filename": "file.docx", "file_data": f"data:{DOCX};base64,{b64(b'PK' + bytes([3, 4]))}"},
        ),
        (chat, PHOTO, {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{b64(JPEG)}"}}),
        (chat, Media(WAV), {"type": "input_audio", "input_audio": {"data": b64(WAV), "format": "wav"}}),
        (chat, Media(MP3), {"type": "input_audio", "input_audio": {"data": b64(MP3), "format": "mp3"}}),
        (chat, PAPER, {"type": "file", "file": {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{b64(PDF)}"}}),
        (chat, NOTES, {"type": "text", "text": '[file "notes.md"]\n# hi\n[end of file]\n'}),
        (messages, PICTURE, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(png(1))}}),
        (
            messages,
            PAPER,
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": b64(PDF)},
                "title": "paper.pdf",
            },
        ),
        (
            messages,
            NOTES,
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "# hi"}, "title": "notes.md"},
        ),
    ],
)
def test_each_provider_is_sent_what_its_api_takes(make: Make, media: Media, expected: dict[str, Any]) -> None:
    assert sent(make, asking(media)) == [expected]


@pytest.mark.parametrize(
    ("make", "media"),
    [
        (responses, Media(MP3)),
        (responses, Media(WAV)),
        (responses, Media(b"\x00\x01")),
        (responses, Media(b"BM\x00", mime_type="image/bmp")),
        (chat, Media(OGG)),
        (chat, Media(b"PK\x03\x04", mime_type=DOCX)),
        (chat, Media(b"\x00\x01")),
        (messages, Media(MP3)),
        (messages, Media(b"PK\x03\x04", mime_type=DOCX)),
        (messages, Media(b"\xff\x00", mime_type="text/plain")),
        (messages, Media(b" \n")),
    ],
)
def test_what_an_api_does_not_take_is_an_error_that_names_it(make: Make, media: Media) -> None:
    with pytest.raises(UnsupportedContent, match=media.mime_type) as refused:
        sent(make, asking(media))
    assert not refused.value.retryable


@every_adapter
def test_a_request_without_the_bytes_is_an_error_and_no_gap(make: Make) -> None:
    blob = PICTURE.blob
    for content in ({}, {blob.digest: b"short"}):
        request = ModelRequest(instructions="", messages=[Message(role="user", parts=(Text("x"), blob))], content=content)
        with pytest.raises(UsageError, match="no content for"):
            sent(make, request)


def returned(*media: Media) -> ModelRequest:
    response = ToolCallResponse(id="c", name="draw", response="drawn", media=tuple(item.blob for item in media))
    said = [Message(role="user", parts=(Text("draw"),)), Message(role="assistant", parts=(ToolCall("draw", {}, id="c"),))]
    return ModelRequest(
        instructions="",
        messages=[*said, Message(role="tool", parts=(response,))],
        content={item.blob.digest: item.data for item in media},
    )


def test_a_tool_s_picture_is_shown_where_the_api_takes_it_in_results_and_told_in_words_where_not() -> None:
    request = returned(PICTURE, Media(MP3))
    [*_, item] = render_responses(request, model="m", group="g")["input"]
    assert item["output"] == [
        {"type": "input_text", "text": "drawn"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{b64(png(1))}", "detail": "auto"},
    ]
    [*_, last] = render_anthropic(request, model="m", group="g")["messages"]
    assert last["content"][0]["content"] == [
        {"type": "text", "text": "drawn"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(png(1))}},
    ]
    assert render_chat(request, model="m", group="g")["messages"][-1]["content"] == "drawn"
    # a result without anything to show is what it always was
    assert render_responses(returned(Media(MP3)), model="m", group="g")["input"][-1]["output"] == "drawn"


@every_adapter
async def test_a_picture_and_a_tool_s_picture_go_over_the_wire(make: Make, tmp_path: Path) -> None:
    @tool(effect="pure")
    async def draw(ctx: ToolContext) -> Any:
        """Draw."""
        return ["here: ", PHOTO]

    async with WireServer([Reply(tool_calls=[ToolCall("draw", {})]), Reply("nice")]) as server:
        model = make(server)
        agent = Agent("painter", model=model, tools=[draw])
        async with aclosing(model), perdure.open(str(tmp_path / "agents.db")) as runtime:
            result = await runtime.run(agent, ["draw this", perdure.image(png(1))], session="s")
        assert result.output == "nice"
        first, second = (await server.arrived(1)).body, (await server.arrived(2)).body
    assert b64(png(1)) in str(first)
    assert (b64(JPEG) in str(second)) == (make is not chat)
    assert "[image/jpeg, " in str(second)


@every_adapter
async def test_content_that_the_provider_does_not_take_fails_the_turn_in_words_and_no_request_is_made(make: Make, tmp_path: Path) -> None:
    async with WireServer([Reply("never")]) as server:
        agent = Agent("listener", model=make(server))
        async with perdure.open(str(tmp_path / "agents.db")) as runtime:
            result = await runtime.run(agent, ["listen", perdure.audio(OGG, name="song.ogg")], session="s")
            assert result.status == "failed"
            assert result.failure is not None
            assert result.failure.code == "unsupported_content"
            assert "song.ogg" in result.failure.message
            entries = await runtime.sessions.entries("s")
            assert sum(entry.kind == "operation_started" for entry in entries) == 1
    assert server.requests == []
    assert set(KINDS) == {responses, chat, messages}
    assert isinstance(PICTURE.blob, Blob)
