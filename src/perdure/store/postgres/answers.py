"""What the functions of the schema answer, as the answers of the contract."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core.errors import StoreBroken
from ..base import (
    AlreadyTaken,
    AlreadyThere,
    CommitAnswer,
    Committed,
    Conflict,
    Held,
    InboxMoved,
    InboxRow,
    NoSession,
    QueueIsFull,
    Send,
    SendAnswer,
    Sent,
    Stale,
)
from ..pools import PoolShort
from .shapes import inbox, pool, unique

__all__ = ["Answer", "committed", "sent"]


class Answer(NamedTuple):
    """A row of ``write`` or ``commit_alone``."""

    code: str
    no: int
    version: int
    fence: int
    inbox_head: int
    holder: str | None
    created: bool
    pending: int
    submission: tuple[Any, ...]
    taker: tuple[Any, ...]
    pool: tuple[Any, ...] | None
    sqlstate: str
    message: str
    moment: int

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Answer:
        return cls._make(row)


def committed(answer: Answer) -> CommitAnswer:
    match answer.code:
        case "done" | "there":
            return Committed(answer.version, answer.fence, answer.inbox_head)
        case "stale":
            return Stale(answer.version, answer.fence, answer.holder)
        case "held":
            return Held(answer.holder or "")
        case "moved":
            return InboxMoved(answer.inbox_head)
        case "already":
            return AlreadyThere(inbox(answer.submission))
        case "taken":
            return AlreadyTaken(unique(answer.taker))
        case "short":
            return PoolShort(None if answer.pool is None else pool(answer.pool))
        case "none" | "deleted":
            return NoSession(deleted=answer.code == "deleted")
        case code:
            raise StoreBroken(f"the database answered a commit with {code!r}", hint="somebody changed the schema")


def sent(send: Send, answer: Answer, *, again: bool) -> SendAnswer:
    """``again``: it was sent before, and the answer was lost; a row that is just like ours is ours then."""
    match answer.code:
        case "done":
            row = InboxRow(
                submission_id=send.submission_id,
                arrival=answer.inbox_head,
                kind=send.kind,
                at=send.at,
                not_before=send.not_before,
                actor=send.actor,
                digest=send.digest,
                body=send.body,
            )
            return Sent(no=answer.no, row=row, duplicate=False, created=answer.created)
        case "duplicate":
            row = inbox(answer.submission)
            ours = again and (row.at, row.actor, row.kind) == (send.at, send.actor, send.kind)
            return Sent(no=answer.no, row=row, duplicate=not ours, created=ours and send.create is not None and row.arrival == 1)
        case "conflict":
            return Conflict(inbox(answer.submission))
        case "full":
            return QueueIsFull(answer.pending)
        case "none" | "deleted" | "archived" | "halted":
            return NoSession(deleted=answer.code == "deleted", archived=answer.code == "archived", halted=answer.code == "halted")
        case code:
            raise StoreBroken(f"the database answered a submission with {code!r}", hint="somebody changed the schema")
