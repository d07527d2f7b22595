"""Images, sounds and files from where they are: a path, bytes, base64, or a ``data:`` address."""

from __future__ import annotations

import mimetypes
import os
from pathlib import Path
from stat import S_ISREG

from ..core.errors import InvalidMedia, MediaTooLarge
from ..core.media import MEDIA_LIMIT, Media, from_base64, from_data_uri, sniff

__all__ = ["Source", "audio", "file", "image"]

Source = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A path, bytes, or a ``data:`` address."""

_TYPES = mimetypes.MimeTypes(filenames=())
_TYPES.add_type("text/markdown", ".md")
_TYPES.add_type("application/yaml", ".yaml")
_TYPES.add_type("text/x-rust", ".rs")
_TYPES.add_type("text/x-typescript", ".ts")


def image(source: Source | None = None, *, base64: str | None = None, mime_type: str = "", name: str = "") -> Media:
    """An image for a message or out of a tool. ``source`` is a path, bytes or a ``data:`` address; ``base64`` stands in for it.

    The type is what the bytes say; ``mime_type``, if given, must agree. A path's file is read at once, and lends its name.
    Raises `InvalidMedia` for a file that isn't there or can't be read, for one without a byte, and for what is no image;
    `MediaTooLarge` beyond 20 MiB.
    """
    return _of_kind("image", _media(source, base64, mime_type, name))


def audio(source: Source | None = None, *, base64: str | None = None, mime_type: str = "", name: str = "") -> Media:
    """A sound for a message or out of a tool; as `image`."""
    return _of_kind("audio", _media(source, base64, mime_type, name))


def file(source: Source | None = None, *, base64: str | None = None, mime_type: str = "", name: str = "") -> Media:
    """Any file for a message or out of a tool, images and sounds included; as `image`.

    Without ``mime_type`` the type is what the bytes say, else what the name's ending says, else plain text or bytes.
    """
    return _media(source, base64, mime_type, name)


def _of_kind(kind: str, media: Media) -> Media:
    if not media.mime_type.startswith(kind + "/"):
        called = f"{media.name!r} is" if media.name else "that is"
        raise InvalidMedia(f"{called} {media.mime_type}, no {kind}", hint="file() takes any")
    return media


def _media(source: Source | None, base64: str | None, mime_type: str, name: str) -> Media:
    if (source is None) == (base64 is None):
        raise InvalidMedia("media come from a source or from base64", hint="pass one of them")
    if base64 is not None:
        if not isinstance(base64, str):
            raise InvalidMedia(f"base64 is text, not {type(base64).__name__}", hint="pass bytes as the source")
        return from_base64(base64, mime_type=mime_type, name=name)
    if isinstance(source, str) and source[:5].lower() == "data:":
        return from_data_uri(source, mime_type=mime_type, name=name)
    if isinstance(source, bytes | bytearray | memoryview):
        return Media(source, mime_type=mime_type or _guessed(bytes(source[:16]), name), name=name)
    if isinstance(source, str) and source.partition("://")[0].lower() in ("http", "https"):
        raise InvalidMedia("that is an address, and nothing is fetched", hint="send perdure.Uri(uri=…) where the provider may fetch it")
    if not isinstance(source, str | os.PathLike):
        raise InvalidMedia(f"media can't come from {type(source).__name__}", hint="a path, bytes, or a data: address")
    path = Path(source)
    data = _read(path)
    name = name or path.name
    return Media(data, mime_type=mime_type or _guessed(data[:16], name), name=name)


def _guessed(start: bytes, name: str) -> str:
    """What the name says, where the bytes say nothing."""
    return "" if sniff(start) else _TYPES.guess_type(name, strict=True)[0] or ""


def _read(path: Path) -> bytes:
    try:
        # A pipe would be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            about = os.fstat(opened.fileno())
            if not S_ISREG(about.st_mode):
                raise InvalidMedia(f"{str(path)!r} is no file", hint="a pipe or device can be read first, and passed as bytes")
            data = b"" if about.st_size > MEDIA_LIMIT else opened.read(MEDIA_LIMIT + 1)
            size = max(about.st_size, len(data))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "that is no path"
        raise InvalidMedia(f"{str(path)!r} can't be read: {why}", hint="check the path") from error
    if size > MEDIA_LIMIT:
        raise MediaTooLarge(f"{path.name!r} has {size} bytes; at most {MEDIA_LIMIT} are taken", hint="send a Uri", limit="media", size=size)
    return data
