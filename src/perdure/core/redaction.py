"""What is left of an entry once its content is gone: enough to fold the journal, to keep calls and responses together, and to say so."""

from __future__ import annotations

from msgspec.structs import replace

from . import canonical
from .entries import (
    ChildEnded,
    EffectSettled,
    Entry,
    ExtensionSet,
    MessageAdded,
    NoteAdded,
    OperationEnded,
    OperationPlanned,
    RequestClosed,
    SessionChanged,
    SessionCreated,
    ToolCalled,
)
from .memory import MEMORY
from .messages import REDACTED, Part, RedactedPart, StoredPart, media_of, redacted_part
from .records import RedactedRow

__all__ = ["aside", "is_redacted", "redacted_row", "without_content", "without_quote"]


def without_content(entry: Entry) -> Entry | None:
    """An entry without what people or models wrote into it; ``None`` if it holds nothing of the kind."""
    match entry:
        case MessageAdded(parts=parts) if parts:
            return replace(without_quote(entry), parts=_left(parts))
        case OperationEnded():
            failure = None if entry.failure is None else replace(entry.failure, message="")
            left = replace(entry, parts=_left(entry.parts), partial=REDACTED if entry.partial else "", failure=failure)
            return left if left != entry else None
        case EffectSettled() | ChildEnded():
            return replace(entry, parts=_left(entry.parts))
        case NoteAdded(receipt=receipt) if receipt:
            # What it tells stands in its receipt.
            return replace(entry, parts=_left(entry.parts)) if entry.parts else None
        case NoteAdded():
            return replace(entry, text=REDACTED, digest=entry.digest or canonical.digest(entry.text.encode()))
        case ToolCalled():
            return replace(entry, parts=_left(entry.parts))
        case RequestClosed(arguments=dict()) | OperationPlanned(arguments=dict()):
            return replace(entry, arguments={})
        case ExtensionSet(extension=name) if name == MEMORY and entry.value is not None:
            return replace(entry, value=None)
        case SessionCreated() | SessionChanged() if entry.title:
            return replace(entry, title="")
        case _:
            return None


def without_quote(entry: MessageAdded) -> MessageAdded:
    """A message without what it quotes of another."""
    return entry if entry.reply is None else replace(entry, reply=replace(entry.reply, text=REDACTED))


def redacted_row(entry: Entry, left: Entry) -> RedactedRow:
    """What a redaction keeps of an entry."""
    return RedactedRow(seq=entry.seq, kind=entry.kind, body=canonical.decode(canonical.encode(replace(left, seq=0, number=0, at=0))))


def aside(entry: Entry) -> set[str]:
    """The digests of what an entry's parts have set aside or refer to."""
    parts: tuple[Part, ...] = getattr(entry, "parts", ())
    return {part.digest for part in parts if isinstance(part, StoredPart)} | {blob.digest for part in parts for blob in media_of(part)}


def _left(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    left: list[Part] = []
    for part in map(redacted_part, parts):
        if not (left and not part.call and left[-1] == part):
            left.append(part)
    return tuple(left)


def is_redacted(entry: Entry) -> bool:
    """Whether something of an entry's content is gone."""
    return any(isinstance(part, RedactedPart) for part in getattr(entry, "parts", ()))
