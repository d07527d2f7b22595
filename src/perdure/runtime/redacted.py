"""What is left of an entry once its content is gone: enough to fold the journal, to keep calls and responses together, and to say so."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..core import canonical
from ..core.entries import (
    ApprovalRequested,
    ChildEnded,
    EffectSettled,
    Entry,
    ExtensionCommand,
    ExtensionSet,
    MessageAdded,
    NoteAdded,
    OperationEnded,
    OperationPlanned,
    RequestClosed,
    SessionChanged,
    SessionCreated,
    SubmissionRefused,
    ToolCalled,
    TurnAborted,
    TurnCompleted,
    TurnEnding,
    TurnFailed,
)
from ..core.memory import MEMORY
from ..core.messages import REDACTED, Part, RedactedPart, StoredPart, media_of, redacted_part
from ..core.records import Failure, Metadata, RedactedRow

__all__ = ["aside", "is_redacted", "left_of", "redacted_row", "without_content", "without_quote"]


def without_content(entry: Entry, *, named: bool = False) -> Entry | None:
    """An entry without what people or models wrote into it; ``None`` if it holds nothing of the kind.

    ``named``: somebody wants the content of this very entry removed. What a session says about itself goes only then, but for its title.
    """
    left = _without_content(entry, named)
    return left if left != entry else None


def _without_content(entry: Entry, named: bool) -> Entry | None:
    match entry:
        case MessageAdded(parts=parts) if parts:
            return replace(without_quote(entry), parts=_left(parts))
        case OperationEnded():
            return replace(entry, parts=_left(entry.parts), partial=_said(entry.partial), failure=_code(entry.failure))
        case EffectSettled() | ChildEnded():
            return replace(entry, parts=_left(entry.parts))
        case NoteAdded(receipt=receipt) if receipt:
            # What it tells stands in its receipt.
            return replace(entry, parts=_left(entry.parts))
        case NoteAdded():
            return replace(entry, text=REDACTED, digest=entry.digest or canonical.digest(entry.text.encode()))
        case ToolCalled():
            return replace(entry, parts=_left(entry.parts))
        case RequestClosed():
            arguments: dict[str, Any] | None = None if entry.arguments is None else {}
            return replace(entry, arguments=arguments, reason=_said(entry.reason))
        case OperationPlanned(arguments=dict()) | ExtensionCommand():
            return replace(entry, arguments={})
        case ApprovalRequested():
            return replace(entry, reason=_said(entry.reason))
        case TurnFailed() | TurnEnding():
            return replace(entry, reason=_said(entry.reason), failure=_code(entry.failure))
        case TurnCompleted() | TurnAborted():
            return replace(entry, reason=_said(entry.reason))
        case SubmissionRefused():
            return replace(entry, failure=_code(entry.failure))
        case ExtensionSet(extension=name) if name == MEMORY and entry.value is not None:
            return replace(entry, value=None)
        case SessionCreated() | SessionChanged():
            left = replace(entry, title="") if entry.title else entry
            if named and entry.labels:
                left = replace(left, labels={})
            return replace(left, metadata=Metadata()) if named and entry.metadata else left
        case _:
            return None


def _said(reason: str) -> str:
    return REDACTED if reason else ""


def _code(failure: Failure | None) -> Failure | None:
    return None if failure is None else replace(failure, message="")


def without_quote(entry: MessageAdded) -> MessageAdded:
    """A message without what it quotes of another."""
    return entry if entry.reply is None else replace(entry, reply=replace(entry.reply, text=REDACTED))


def redacted_row(entry: Entry, left: Entry) -> RedactedRow:
    """What a redaction keeps of an entry."""
    body = canonical.decode(canonical.encode(replace(left, seq=0, number=0, at=0)))
    digest = body.pop("digest", "")
    return RedactedRow(seq=entry.seq, kind=entry.kind, body=body, digest=(digest[:32], digest[32:]) if digest else ())


def left_of(row: RedactedRow) -> bytes:
    """The body that a redacted entry is read with."""
    return canonical.encode(row.body | {"digest": "".join(row.digest)} if row.digest else row.body)


def aside(entry: Entry) -> set[str]:
    """The digests of what an entry, or its parts, have set aside or refer to."""
    parts: tuple[Part, ...] = getattr(entry, "parts", ())
    metadata = entry.metadata if isinstance(entry, SessionCreated | SessionChanged) else None
    found = {part.digest for part in parts if isinstance(part, StoredPart)} | {blob.digest for part in parts for blob in media_of(part)}
    return found | {metadata.digest} if metadata is not None and metadata.digest else found


def _left(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    left: list[Part] = []
    for part in map(redacted_part, parts):
        if not (left and not part.call and left[-1] == part):
            left.append(part)
    return tuple(left)


def is_redacted(entry: Entry) -> bool:
    """Whether something of an entry's content is gone."""
    return any(isinstance(part, RedactedPart) for part in getattr(entry, "parts", ()))
