"""Messages that people write into transcripts, as they give them and as the journal holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from ..core import canonical
from ..core.commands import Replacement
from ..core.entries import MessageAdded
from ..core.errors import InvalidMessage, InvalidTranscript, LimitExceeded, NotCanonical
from ..core.messages import (
    Blob,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
    decode_part,
    said_digest,
    text_of,
)
from ..store.base import StoredBlob
from .content import without_addresses
from .perform import keep_parts, stored_media

__all__ = ["Written", "kept", "written"]

Written: TypeAlias = str | Message | Sequence[str | Message]
"""What a caller may give: messages with role and parts, or text, which is a user's message."""

TEXT_LIMIT = 1024 * 1024
"""The longest text of one message (bytes)."""

PARTS: dict[str, tuple[type, ...]] = {
    "user": (Text, Uri, Blob),
    "assistant": (Text, Reasoning, ToolCall, Uri, Blob),
    "tool": (ToolCallResponse,),
}
"""What a person may write in which role."""


def written(given: Any, whole: str = "the replacement", names: Sequence[str] = ()) -> tuple[Message, ...]:
    """Messages as they will be read back; ``whole`` is what they are called together, ``names`` what each is called, if anything else.

    Raises `InvalidTranscript` for what can't be a message of a transcript.
    """
    if isinstance(given, str | Message):
        given = (given,)
    if not isinstance(given, Sequence):
        raise InvalidTranscript(f"{type(given).__name__} is no list of messages", hint="pass a list of Message; [] takes the span out")
    names = names or [f"message {index} of {whole}" for index in range(len(given))]
    return tuple([_message(item, name) for item, name in zip(given, names, strict=True)])


def _message(given: Any, what: str) -> Message:
    if isinstance(given, str):
        given = Message(role="user", parts=(Text(given),))
    if not isinstance(given, Message) or not isinstance(given.role, str) or given.role not in PARTS:
        raise InvalidTranscript(f"{what} is none", hint="a Message with the role user, assistant or tool, or a user's text")
    if not isinstance(given.parts, Sequence) or not given.parts:
        raise InvalidTranscript(f"{what} has no parts", hint="leave it out, or say something")
    parts = tuple([_part(part, given.role, what) for part in given.parts])
    if given.role != "tool" and not any(not isinstance(part, Text) or part.content.strip() for part in parts):
        raise InvalidTranscript(f"{what} is empty", hint="leave it out, or say something")
    if (size := len(text_of(parts).encode())) > TEXT_LIMIT:
        raise InvalidTranscript(f"{what} has {size} bytes of text; at most {TEXT_LIMIT} are taken", hint="write a reference instead")
    return Message(role=given.role, parts=parts)


def _part(given: Any, role: str, what: str) -> Part:
    if not isinstance(given, PARTS[role]):
        allowed = ", ".join(part.__name__ for part in PARTS[role])
        raise InvalidTranscript(f"{what}, which is {role}'s, can't hold {type(given).__name__}", hint=f"it may hold {allowed}")
    values: Any = given
    try:
        for field in values.__struct_fields__:
            for value in _plain(getattr(values, field)):
                canonical.check(value, f"{what}: {field}")
        part: Part = decode_part(canonical.encode(values))
    except (NotCanonical, msgspec.ValidationError) as error:
        raise InvalidTranscript(f"{what} can't hold this {type(given).__name__}: {error}") from None
    if isinstance(part, ToolCall | ToolCallResponse) and not (part.id and part.name):
        raise InvalidTranscript(f"{what} has a call or response without id or name", hint="both tell calls and responses apart")
    if isinstance(part, ToolCall) and not isinstance(part.arguments, dict):
        raise InvalidTranscript(f"{what} calls {part.name!r} with arguments that are no object", hint="pass a dict")
    return part


def _plain(field: Any) -> Iterable[Any]:
    """What a part's field holds as JSON data: the content that a result refers to is said by parts of its own."""
    if isinstance(field, tuple) and all(isinstance(item, Blob) for item in field):
        return [getattr(item, name) for item in field for name in item.__struct_fields__]
    return [field]


def kept(messages: Sequence[Message]) -> tuple[tuple[Replacement, ...], tuple[MessageAdded, ...], tuple[StoredBlob, ...]]:
    """Messages as a command says them, as entries without their revisions, and what is set aside. Raises `InvalidMessage`."""
    said: list[Replacement] = []
    entries: list[MessageAdded] = []
    aside: list[StoredBlob] = []
    for message in messages:
        try:
            parts, media = without_addresses(message.parts)
            parts, blobs = keep_parts(parts)
        except LimitExceeded as error:
            raise InvalidMessage(f"a message is too long: {error.message}", hint="write a reference instead") from None
        digest = said_digest(message.role, parts)
        said.append(Replacement(role=message.role, parts=parts))
        entries.append(MessageAdded(role=message.role, digest=digest, parts=parts))
        aside += (*blobs, *stored_media(media))
    return tuple(said), tuple(entries), tuple(aside)
