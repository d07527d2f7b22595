"""What every store must decide in the same way: pure functions over a session's head."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ..core import canonical
from ..core.commands import URGENT
from ..core.errors import ContentElsewhere, UsageError
from ..core.journal import Sealed
from .base import (
    PENDING_LIMIT,
    URGENT_LIMIT,
    Adoption,
    Commit,
    CommitAnswer,
    Held,
    InboxMoved,
    InboxRow,
    NewSession,
    NoSession,
    OutsideBlob,
    Refusal,
    Runner,
    Send,
    SessionQuery,
    SessionRow,
    SessionStatus,
    Stale,
    StoredBlob,
)

__all__ = [
    "After",
    "Clock",
    "Head",
    "after_commit",
    "beginning",
    "behind",
    "check_adoptions",
    "check_blob",
    "check_commit",
    "check_new",
    "check_within",
    "decode_told",
    "elsewhere",
    "encode_told",
    "is_strange",
    "judge",
    "matches",
    "most_waiting",
    "pattern",
    "read_labels",
    "wall_clock",
    "whole",
    "woken",
]

_labels = msgspec.json.Decoder(dict[str, str])

Clock = Callable[[], int]
"""Milliseconds since 1970."""


def encode_told(runner: Runner) -> tuple[str, str]:
    """What a runner says of itself, as it is stored: its agents, and what it refuses."""
    return canonical.encode(list(runner.agents)).decode(), canonical.encode(list(runner.refused)).decode()


def decode_told(agents: str, refused: str) -> tuple[tuple[str, ...], tuple[Refusal, ...]]:
    """What `encode_told` made."""
    return msgspec.json.decode(agents, type=tuple[str, ...]), msgspec.json.decode(refused, type=tuple[Refusal, ...])


def read_labels(stored: Any) -> tuple[dict[str, str], str]:
    """Labels as they are stored, and why they can't be read: that hides nothing else of their session."""
    try:
        return _labels.decode(stored), ""
    except (msgspec.MsgspecError, TypeError) as error:
        return {}, f"its labels can't be read: {error}"


class Head(msgspec.Struct, frozen=True):
    """The part of a session's row that a write is compared with."""

    root: str
    version: int
    fence: int
    holder: str | None
    claims: int
    inbox_head: int
    status: SessionStatus


class After(msgspec.Struct, frozen=True):
    """What a commit makes of the head."""

    version: int
    fence: int
    holder: str | None
    claims: int
    inbox_head: int


def matches(query: SessionQuery, row: SessionRow) -> bool:
    """Whether a list shows a session, wherever its page begins."""
    if query.status:
        shown = row.status in query.status
    else:
        shown = row.status != "deleted" and (query.archived or row.status != "archived")
    return (
        shown
        and query.owner in {None, row.owner}
        and query.agent in {None, row.agent}
        and (query.children or row.parent_kind != "child")
        and (query.since is None or row.updated >= query.since)
        and (query.until is None or row.updated < query.until)
        and all(row.labels.get(label) == value for label, value in query.labels.items())
        and all(word.casefold() in row.title.casefold() for word in query.words)
    )


def check_adoptions(sessions: Sequence[Adoption]) -> None:
    """Raises `UsageError` if two sessions that are taken over have one id."""
    if len({given.row.session_id for given in sessions}) < len(sessions):
        raise UsageError("two of the sessions have one id")


def whole(version: int, entries: Iterable[Sealed]) -> Iterator[Sealed]:
    """The entries of a session that is taken over. Raises `UsageError` unless they are 1 to ``version``."""
    last = 0
    for entry in entries:
        if entry.seq != last + 1:
            raise UsageError(f"entry {entry.seq} follows entry {last}")
        last = entry.seq
        yield entry
    if last != version:
        raise UsageError(f"{last} entries don't make version {version}")


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def check_blob(blob: StoredBlob | OutsideBlob) -> None:
    """Raises `UsageError` if the digest is not the data's."""
    if isinstance(blob, StoredBlob) and canonical.digest(blob.data) != blob.digest:
        raise UsageError(f"a blob is not what its digest {blob.digest!r} says", hint="the digest is the hex SHA-256 of the data")


def elsewhere(digest: str, media_type: str, size: int) -> ContentElsewhere:
    """The error for content that a database alone can't show."""
    return ContentElsewhere(
        f"the content {digest[:12]}… stands outside of the database",
        hint="open the store with blobs= as it was when the content came",
        media_type=media_type,
        size=size,
    )


def check_commit(commit: Commit) -> None:
    """Raises `UsageError` for a commit that could never be right, whatever is stored."""
    if commit.entries:
        seqs = [entry.seq for entry in commit.entries]
        expected = list(range(commit.version + 1, commit.version + 1 + len(seqs)))
        if seqs != expected:
            raise UsageError(f"entries {seqs} don't follow version {commit.version}", hint="seq counts on by one from the version")
        if commit.checkpoint is None:
            raise UsageError("a commit with entries needs the checkpoint after them")
    if any(not 0 < seq <= commit.version for seq in commit.redacted):
        raise UsageError(f"entries {commit.redacted} are not all earlier ones", hint="only what is stored can be redacted")
    if any(row.consumed_seq is None for row in commit.received):
        raise UsageError("a received row is one that the commit consumes", hint="set consumed_seq, or use send")
    for blob in commit.blobs:
        check_blob(blob)


def check_within(asked: Commit, made: Commit) -> Commit:
    """The commit that `Commit.within` made. Raises `UsageError` for one that was not compared with what is stored."""
    for name in ("no", "version", "fence", "holder", "claim", "received", "taken", "inbox_head"):
        if getattr(asked, name) != getattr(made, name):
            raise UsageError(f"the commit that is made within another one has another {name}")
    check_commit(made)
    return made


def check_new(new: NewSession) -> None:
    """Raises `UsageError` for a session that can't begin so."""
    seqs = [entry.seq for entry in new.entries]
    if not seqs or seqs != list(range(1, len(seqs) + 1)):
        raise UsageError(f"a session begins with entry 1, not with {seqs}")
    for blob in new.blobs:
        check_blob(blob)


def judge(commit: Commit, head: Head | None, alive: Callable[[str], bool]) -> CommitAnswer | None:
    """The refusal that the stored head demands, or ``None`` if the commit may be applied."""
    if head is None:
        return NoSession()
    if head.status == "deleted":
        return NoSession(deleted=True)
    if (commit.version, commit.fence) != (head.version, head.fence):
        return Stale(head.version, head.fence, head.holder)
    if commit.claim is None:
        if commit.holder != head.holder:
            return Stale(head.version, head.fence, head.holder)
    elif head.holder is not None and not commit.claim.force and alive(head.holder):
        return Held(head.holder)
    if commit.inbox_head is not None and commit.inbox_head != head.inbox_head:
        return InboxMoved(head.inbox_head)
    return None


def after_commit(commit: Commit, head: Head) -> After:
    claims = head.claims
    if commit.claim is not None and head.holder is not None:
        claims += 1
    if commit.progress:
        claims = 0
    holder = head.holder if commit.claim is None else commit.claim.runner
    return After(
        version=commit.entries[-1].seq if commit.entries else head.version,
        fence=head.fence + (commit.claim is not None),
        holder=None if commit.release else holder,
        claims=claims,
        inbox_head=head.inbox_head + len(commit.received),
    )


def beginning(send: Send) -> NewSession | None:
    """The session that a submission to an id that nobody has begins; None if it brings none, or one of another owner than its own."""
    return None if send.create is None or send.owner not in (None, send.create.owner) else send.create


def is_strange(send: Send, row: SessionRow) -> bool:
    """Whether the session of that id is another than the sender means: somebody else's, or no child of the parent that it should have."""
    parent = None if send.create is None else send.create.parent
    return (send.owner is not None and row.owner != send.owner) or (parent is not None and row.parent != parent)


def arrival(send: Send, inbox_head: int) -> InboxRow:
    """The row of a submission that comes behind all those up to ``inbox_head``."""
    return InboxRow(
        submission_id=send.submission_id,
        arrival=inbox_head + 1,
        kind=send.kind,
        at=send.at,
        not_before=send.not_before,
        actor=send.actor,
        digest=send.digest,
        body=send.body,
    )


def most_waiting(send: Send) -> int:
    """How many submissions that wait leave no room for this one."""
    return URGENT_LIMIT if send.kind in URGENT else PENDING_LIMIT


def woken(row: SessionRow, send: Send, now: int) -> int | None:
    """When somebody must look at a session that a submission arrived for."""
    if row.status in ("stuck", "halted") or (row.status == "waiting" and not send.urgent):
        return row.wake_at
    due = now if send.not_before is None else send.not_before
    return due if row.wake_at is None else min(row.wake_at, due)


def pattern(text: str) -> str:
    """What ``LIKE`` with the escape character ``\\`` finds a text anywhere by."""
    return "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def behind(prefix: bytes) -> bytes | None:
    """The first key that is behind all that begin with ``prefix``; ``None`` if there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
