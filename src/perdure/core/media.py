"""Bytes that are no text: what they are, and how many are taken."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from . import canonical
from .errors import InvalidMedia, MediaTooLarge
from .messages import Blob

__all__ = [
    "MEDIA_LIMIT",
    "MESSAGE_MEDIA_LIMIT",
    "Media",
    "check_total",
    "content_type",
    "from_base64",
    "from_data_uri",
    "is_text",
    "media_type",
    "sniff",
]

MEDIA_LIMIT = 20 * 1024 * 1024
"""The most bytes of one image, sound or file."""

MESSAGE_MEDIA_LIMIT = 64 * 1024 * 1024
"""The most bytes of all media of one message, or of one tool's result."""

NAME_LIMIT = 255
"""The longest name of a file (bytes)."""

_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f/\\\\]")
_ALIASES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/mp3": "audio/mpeg",
    "audio/x-mp3": "audio/mpeg",
    "audio/x-flac": "audio/flac",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "application/x-pdf": "application/pdf",
}
_SIGNATURES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"%PDF-", "application/pdf"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftyp", "video/mp4"),
)
_SIGNED = frozenset(known for _, _, known in _SIGNATURES)
_ONE_SIGNATURE = {"audio/mp4": "video/mp4", "video/quicktime": "video/mp4", "video/ogg": "audio/ogg", "application/ogg": "audio/ogg"}
"""Types that begin as another does: the bytes alone can't tell them apart."""


class Media:
    """An image, a sound or a file on its way into a message or out of a tool; `image`, `audio` and `file` make one.

    Equal if bytes, type and name are. It is checked when it is made: raises `InvalidMedia` for nothing, for a type that is none or that
    the bytes contradict, and for a name that can't be one; `MediaTooLarge` beyond `MEDIA_LIMIT`.
    """

    __slots__ = ("_blob", "_data")

    def __init__(self, data: bytes | bytearray | memoryview, *, mime_type: str = "", name: str = "") -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidMedia(f"media are bytes, not {type(data).__name__}", hint="read the file, or pass its path to image() or file()")
        data = bytes(data)
        name = _checked_name(name)
        what = repr(name) if name else "what was given"
        if not data:
            raise InvalidMedia(f"{what} is empty", hint="send something that holds at least one byte")
        if len(data) > MEDIA_LIMIT:
            raise MediaTooLarge(
                f"{what} has {len(data)} bytes; at most {MEDIA_LIMIT} are taken", hint="send a Uri", limit="media", size=len(data)
            )
        found = sniff(data)
        mime_type = media_type(mime_type) if mime_type else found or ("text/plain" if is_text(data) else "application/octet-stream")
        if (found or mime_type in _SIGNED or mime_type in _ONE_SIGNATURE) and _ONE_SIGNATURE.get(mime_type, mime_type) != found:
            holds = found or "none that is known"
            raise InvalidMedia(f"{what} is said to be {mime_type}, but its bytes say {holds}", hint="leave the type out, or correct it")
        self._data = data
        self._blob = Blob(mime_type=mime_type, digest=canonical.digest(data), size=len(data), name=name)

    @property
    def data(self) -> bytes:
        """The bytes."""
        return self._data

    @property
    def blob(self) -> Blob:
        """The part that a message holds in its place."""
        return self._blob

    @property
    def mime_type(self) -> str:
        """The type, in lower case and without parameters."""
        return self._blob.mime_type

    @property
    def name(self) -> str:
        """What the file is called; empty if it has no name."""
        return self._blob.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Media) and self._blob == other._blob

    def __hash__(self) -> int:
        return hash(self._blob.digest)

    def __repr__(self) -> str:
        return f"Media({self._blob.mime_type!r}, {self._blob.size} bytes, name={self._blob.name!r})"


def media_type(given: str) -> str:
    """A media type in its one spelling, without parameters. Raises `InvalidMedia`."""
    if not isinstance(given, str):
        raise InvalidMedia(f"a media type is text, not {type(given).__name__}")
    plain = given.partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(plain):
        raise InvalidMedia(f"{given[:80]!r} is no media type", hint='such as "image/png" or "text/plain"')
    return _ALIASES.get(plain, plain)


def sniff(data: bytes) -> str:
    """The type that bytes begin as; empty if that is none that is known by its beginning."""
    for start, signature, known in _SIGNATURES:
        if data[start : start + len(signature)] == signature and (start != 8 or data[:4] == b"RIFF"):
            return known
    # A frame of MPEG layer III without a tag before it.
    if len(data) > 3 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[1] >> 3 & 3 != 1 and data[1] >> 1 & 3 == 1:
        return "audio/mpeg"
    return ""


def content_type(data: bytes) -> str:
    """What stored bytes are called, whatever the parts that refer to them call them."""
    return sniff(data) or "application/octet-stream"


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8 text."""
    if b"\x00" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def from_base64(text: str, *, mime_type: str = "", name: str = "") -> Media:
    """Media from base64, in either alphabet, with or without padding and line breaks. Raises `InvalidMedia`."""
    if len(text) > MEDIA_LIMIT * 3 // 2:
        raise MediaTooLarge(
            f"{len(text)} characters of base64; at most {MEDIA_LIMIT} bytes are taken", hint="send a Uri", limit="media", size=len(text)
        )
    packed = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidMedia("the text is not base64", hint="pass bytes instead") from None
    return Media(data, mime_type=mime_type, name=name)


def from_data_uri(uri: str, *, mime_type: str = "", name: str = "") -> Media:
    """Media from a ``data:`` address; ``mime_type`` is what it is said to be besides. Raises `InvalidMedia`."""
    header, comma, body = uri.partition(",")
    if not comma or header[:5].lower() != "data:":
        raise InvalidMedia("the address holds no data", hint="data:image/png;base64,…")
    if len(body) > MEDIA_LIMIT * 3:
        raise MediaTooLarge(f"an address of {len(uri)} characters", hint="send a Uri that leads somewhere", limit="media", size=len(uri))
    said, *options = header[5:].split(";")
    said = media_type(said) if said.strip() else ""
    if mime_type and said and media_type(mime_type) != said:
        raise InvalidMedia(f"the address says {said}, and besides it is said to be {mime_type}", hint="leave one of them out")
    if any(option.strip().lower() == "base64" for option in options):
        return from_base64(body if "%" not in body else unquote_to_bytes(body).decode("latin-1"), mime_type=said or mime_type, name=name)
    return Media(unquote_to_bytes(body), mime_type=said or mime_type or "text/plain", name=name)


def check_total(media: list[Media]) -> None:
    """Raises `MediaTooLarge` if these are too many bytes for one message."""
    total = sum(len(item.data) for item in media)
    if total > MESSAGE_MEDIA_LIMIT:
        raise MediaTooLarge(
            f"{total} bytes of media at once; at most {MESSAGE_MEDIA_LIMIT} are taken",
            hint="send them one by one",
            limit="message_media",
            size=total,
        )


def _checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise InvalidMedia(f"a file's name is text, not {type(name).__name__}")
    canonical.check(name, "name")
    if _UNPRINTABLE.search(name) or len(name.encode()) > NAME_LIMIT:
        raise InvalidMedia(f"{name[:80]!r} can't be a file's name", hint=f"1 to {NAME_LIMIT} bytes of text without slashes")
    return name
