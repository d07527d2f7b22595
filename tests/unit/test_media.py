"""Media from a path, bytes, base64 or an address: what they are, and what is refused."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import InvalidMedia, InvalidMessage, Media, MediaTooLarge, Text, Uri
from perdure.core.media import MEDIA_LIMIT, sniff
from perdure.core.messages import Blob, Part, StoredPart, ToolCallResponse, described, digest_of, media_of, part_digest, set_aside
from perdure.runtime.content import content_of

from ..integration.media.pictures import JPEG, MP3, OGG, PDF, WAV, png


@pytest.mark.spec("B-B-107")
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(), "image/png"),
        (JPEG, "image/jpeg"),
        (WAV, "audio/wav"),
        (MP3, "audio/mpeg"),
        (PDF, "application/pdf"),
        (OGG, "audio/ogg"),
        (b"\xff\xfb\x90\x00" + bytes(9), "audio/mpeg"),
    ],
)
def test_bytes_say_what_they_are(data: bytes, kind: str) -> None:
    assert sniff(data) == kind
    assert perdure.file(data).mime_type == kind


@pytest.mark.parametrize("data", [b"\xff\xfeh\x00i\x00", b"plain text", b"RIFFxxxxAVI ", b"", b"\x89PN"])
def test_what_only_looks_like_media_is_none(data: bytes) -> None:
    assert sniff(data) == ""


def test_the_same_bytes_are_the_same_part_in_whatever_form_they_come(tmp_path: Path) -> None:
    # given one picture as bytes, two spellings of base64, three of an address, a file and a view
    data = png(3)
    text = base64.b64encode(data).decode()
    (tmp_path / "cat.png").write_bytes(data)
    wrapped = "\n".join(text[start : start + 20] for start in range(0, len(text), 20))
    unpadded = base64.urlsafe_b64encode(data).decode().rstrip("=")
    forms: list[Any] = [
        perdure.image(data),
        perdure.image(memoryview(data)),
        perdure.image(base64=text),
        perdure.image(base64=wrapped),
        perdure.image(base64=unpadded),
        perdure.image(f"data:image/png;base64,{text}"),
        perdure.image(f"DATA:image/PNG;charset=x;base64,{text}"),
        Uri(uri=f"data:image/png;base64,{text}"),
        Uri(uri=f"data:;base64,{text}", mime_type="image/png"),
        Uri(uri="data:image/png," + "".join(f"%{byte:02x}" for byte in data)),
        perdure.file(data),
        Media(data, mime_type="image/x-png"),
    ]
    # when each is sent
    sent = [content_of(form) for form in forms]
    # then the message is the same, to its identity, and holds no bytes
    assert {content.parts for content in sent} == {(Blob(mime_type="image/png", digest=sent[0].blobs[0].digest, size=len(data)),)}
    assert len({digest_of("user", map(part_digest, content.parts)) for content in sent}) == 1
    assert all(content.blobs[0].data == data for content in sent)
    # and a file lends its name
    assert perdure.image(tmp_path / "cat.png").blob.name == "cat.png"


@pytest.mark.spec("B-B-107")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: perdure.image(JPEG, mime_type="image/png"), "said to be image/png, but its bytes say image/jpeg"),
        (lambda: perdure.image(b"not a picture", mime_type="image/png"), "its bytes say none that is known"),
        (lambda: perdure.file(png(), mime_type="text/plain"), "its bytes say image/png"),
        (lambda: perdure.image(WAV), "that is audio/wav, no image"),
        (lambda: perdure.audio(png(), name="a.wav"), "'a.wav' is image/png, no audio"),
        (lambda: perdure.image(b""), "is empty"),
        (lambda: perdure.image("data:image/png;base64,"), "is empty"),
        (lambda: perdure.image("data:image/png;base64,%%%"), "not base64"),
        (lambda: perdure.image(base64="a"), "not base64"),
        (lambda: perdure.image(base64="äöü"), "not base64"),
        (lambda: perdure.image("data:image/png"), "holds no data"),
        (lambda: perdure.file(b"x", mime_type="nonsense"), "no media type"),
        (lambda: perdure.file(b"x", mime_type="a/b\nc: d"), "no media type"),
        (lambda: perdure.file(b"x", name="../../etc/passwd"), "can't be a file's name"),
        (lambda: perdure.file(b"x", name="a\x1b[2J"), "can't be a file's name"),
        (lambda: perdure.file(b"x", name="x" * 256), "can't be a file's name"),
        (perdure.image, "a source or from base64"),
        (lambda: perdure.image(5), "can't come from int"),  # type: ignore[arg-type]
        (lambda: perdure.image("https://example.org/a.png"), "nothing is fetched"),
        (lambda: perdure.image("no/such/file.png"), "No such file"),
        (lambda: perdure.image("a\x00b"), "can't be read"),
        (lambda: perdure.file("/"), "Is a directory"),
        (lambda: content_of(Uri(uri="data:image/png;base64,AAAA")), "its bytes say none"),
        (lambda: content_of(Uri(uri="data:image/png,x", mime_type="text/plain")), "besides it is said to be"),
    ],
)
def test_what_is_no_media_is_refused_in_words(make: Any, said: str) -> None:
    with pytest.raises(InvalidMedia, match=said):
        make()


def test_a_pipe_or_socket_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidMedia, match="is no file"):
        perdure.file(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(InvalidMedia, match="can't be read"):
            perdure.file(tmp_path / "socket")


@pytest.mark.spec("B-B-107")
def test_the_limits_have_names_and_numbers(tmp_path: Path) -> None:
    with (tmp_path / "huge.bin").open("wb") as huge:
        huge.truncate(MEDIA_LIMIT * 50)
    with pytest.raises(MediaTooLarge, match=str(MEDIA_LIMIT)) as one:
        perdure.file(tmp_path / "huge.bin")
    assert (one.value.facts["limit"], one.value.facts["size"]) == ("media", MEDIA_LIMIT * 50)
    with pytest.raises(MediaTooLarge):
        Media(bytes(MEDIA_LIMIT + 1))
    largest = Media(b"\x01" * MEDIA_LIMIT)
    with pytest.raises(MediaTooLarge, match="at once") as many:
        content_of([largest, largest, largest, largest])
    assert many.value.facts["limit"] == "message_media"
    assert issubclass(MediaTooLarge, InvalidMessage)


def test_a_message_mixes_text_and_media_in_order() -> None:
    given = content_of(["see ", perdure.image(png()), Text("!"), perdure.file(b"a,b\n", name="t.csv")])
    assert [type(part).__name__ for part in given.parts] == ["Text", "Blob", "Text", "Blob"]
    assert [blob.media_type for blob in given.blobs] == ["image/png", "application/octet-stream"]
    for wrong in (b"bytes", [b"bytes"], 5):
        with pytest.raises(InvalidMessage):
            content_of(wrong)  # type: ignore[arg-type]


def test_media_show_no_bytes_and_cannot_be_changed() -> None:
    media = perdure.image(png(), name="cat.png")
    assert repr(media) == f"Media('image/png', {len(png())} bytes, name='cat.png')"
    assert described(media.blob) == f'["cat.png", image/png, {len(png())} bytes]'
    with pytest.raises(AttributeError):
        media.data = b"other"  # type: ignore[misc]


def test_a_response_that_is_set_aside_still_says_what_it_refers_to() -> None:
    blob = perdure.image(png()).blob
    part: Part = ToolCallResponse(id="c", name="draw", response="x" * 40_000, media=(blob,))
    stored, data = set_aside(part)
    assert isinstance(stored, StoredPart)
    assert data is not None
    assert media_of(stored) == media_of(part) == (blob,)
    assert part_digest(stored) == part_digest(part)
