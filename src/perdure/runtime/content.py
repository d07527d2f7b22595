"""What somebody says, as the parts of a message and as what has to be stored for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..core import canonical
from ..core.errors import InvalidMessage, LimitExceeded
from ..core.media import Media, check_total, from_data_uri
from ..core.messages import Blob, Part, Text, Uri, decode_part
from ..store.base import StoredBlob
from .perform import keep_parts, stored_media

__all__ = ["MESSAGE_LIMIT", "Content", "Input", "content_of", "without_addresses"]

MESSAGE_LIMIT = 1024 * 1024
"""The longest text of one message (bytes)."""

Input = str | Media | Part | Sequence[str | Media | Part]


class Content(msgspec.Struct, frozen=True):
    """A message's content. ``whole`` are its parts, ``parts`` the same as the journal holds them, ``blobs`` what is stored besides."""

    whole: tuple[Part, ...]
    parts: tuple[Part, ...]
    blobs: tuple[StoredBlob, ...]

    @property
    def referred(self) -> tuple[Blob, ...]:
        """The content that it refers to without bringing it."""
        brought = {blob.digest for blob in self.blobs}
        return tuple(part for part in self.whole if isinstance(part, Blob) and part.digest not in brought)


def content_of(given: Input) -> Content:
    """What a message says. Media become blobs, in whatever form they came.

    Raises `InvalidMessage` if it says nothing, more than `MESSAGE_LIMIT` bytes, or what is no content; `InvalidMedia` for a ``data:``
    address that holds none, and `MediaTooLarge`.
    """
    items: tuple[Any, ...] = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str | bytes) else (given,)
    media: list[Media] = []
    whole = tuple([_part(item, media) for item in items])
    if not any(not isinstance(part, Text) or part.content.strip() for part in whole):
        raise InvalidMessage("the message is empty", hint="say something")
    size = sum(len(part.content.encode()) for part in whole if isinstance(part, Text))
    if size > MESSAGE_LIMIT:
        raise InvalidMessage(f"the message has {size} bytes of text; at most {MESSAGE_LIMIT} are taken", hint="send a reference instead")
    check_total(media)
    try:
        parts, blobs = keep_parts(whole)
    except LimitExceeded as error:
        raise InvalidMessage(f"the message is too long: {error.message}", hint="send a reference instead") from None
    return Content(whole, parts, (*blobs, *stored_media(media)))


def without_addresses(parts: Sequence[Part]) -> tuple[tuple[Part, ...], list[Media]]:
    """Parts with blobs in place of ``data:`` addresses, and what those hold. Raises `InvalidMedia`."""
    media: list[Media] = []
    return tuple([_in_address(part, media) for part in parts]), media


def _in_address(part: Part, media: list[Media]) -> Part:
    # What an address holds is content, and the same content whatever the address looks like.
    if isinstance(part, Uri) and isinstance(part.uri, str) and part.uri[:5].lower() == "data:":
        media.append(from_data_uri(part.uri, mime_type=part.mime_type))
        return media[-1].blob
    return part


def _part(given: Any, media: list[Media]) -> Part:
    """A part as it will be read back."""
    if isinstance(given, str):
        given = Text(given)
    if isinstance(given, Media):
        media.append(given)
        return given.blob
    given = _in_address(given, media)
    if not isinstance(given, Text | Uri | Blob):
        raise InvalidMessage(
            f"a message can't hold {type(given).__name__}", hint="pass text, Text, Uri, Blob, or what image(), audio() and file() return"
        )
    for field in given.__struct_fields__:
        canonical.check(getattr(given, field), f"message.{field}")
    try:
        return decode_part(canonical.encode(given))
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"a message can't hold this {type(given).__name__}: {error}") from None
