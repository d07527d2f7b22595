"""Control commands: taken by a session's holder, or by who sends them where nobody holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..core import commands
from ..core.commands import (
    Command,
    EditMessage,
    PostMessage,
    RedactContent,
    ReportOutcome,
    ReportResult,
    RestoreRevision,
    RewriteSpan,
    Withdraw,
)
from ..core.entries import TurnCompleted, TurnEnded
from ..core.errors import LimitExceeded, StoreCorrupt
from ..core.messages import ToolCallResponse
from ..core.records import Failure, Plan
from ..core.reports import ChangeQueue, Outcome, Promote
from ..store.base import Claim, CommitAnswer, Committed, Edited, InboxRow
from .batch import Batch, parked
from .ledger import Ledger
from .perform import keep_parts

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["commit_by_sender", "decode_row", "is_control", "promote_steers", "take_control", "take_row"]


async def commit_by_sender(
    runtime: Runtime, batch: Batch, row: InboxRow | None, waiting: list[InboxRow], *, claim: Claim | None = None, release: bool = False
) -> CommitAnswer:
    """Commit what a sender decided for a session that nobody holds, or that it takes.

    ``row`` is the receipt of a command that was never in the inbox, ``waiting`` what is there.
    """
    head = batch.head.row
    left = [item for item in waiting if item.submission_id not in batch.consumed]
    status, wake_at = parked(batch.checkpoint, left, batch.now)
    received = () if row is None else (row,)
    commit = batch.commit(
        holder=None, claim=claim, release=release, inbox_head=head.inbox_head, status=status, wake_at=wake_at, received=received
    )
    answer = await runtime.store.commit(commit)
    if isinstance(answer, Committed):
        runtime.news.committed_elsewhere(head.session_id, batch)
        if batch.checkpoint.errands:
            await runtime.errands.run(head.session_id, quietly=True)
    return answer


def is_control(row: InboxRow) -> bool:
    """Whether a submission goes with the next commit, rather than waiting for its boundary."""
    return row.kind not in commands.WAITING


def decode_row(row: InboxRow) -> Command:
    """The command in a row that waits. Raises `StoreCorrupt`, and `FormatUnknown` for a kind that this version doesn't have."""
    if row.body is None:
        raise StoreCorrupt(f"the waiting submission {row.submission_id!r} has no body", hint="run `perdure verify`")
    try:
        return commands.decode(row.kind, row.body, submission=row.submission_id, at=row.at, actor=row.actor)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"the waiting submission {row.submission_id!r} can't be read: {error}", hint="run `perdure verify`") from error


async def take_row(batch: Batch, ledger: Ledger, rows: list[InboxRow], row: InboxRow, own: Callable[[Command], bool] | None = None) -> None:
    """Decide a control command that waited: what had run out of time when it was sent was over, and what runs out since was not.

    ``own`` takes what only the agent's own code can carry out, and says whether this is such a command.
    """
    batch.pass_time(row.at)
    try:
        command = decode_row(row)
        if own is None or not own(command):
            await take_control(batch, ledger, rows, command)
    except (LimitExceeded, StoreCorrupt) as error:
        # One row that can't be used must not keep the others waiting for ever.
        batch.refuse(row, Failure(code=error.code, message=str(error)))
    promote_steers(batch, rows)


async def take_control(batch: Batch, ledger: Ledger, rows: list[InboxRow], command: Command) -> None:
    """Decide a control command. ``rows`` is what waits; a message that it edits is changed there too."""
    match command:
        case ReportResult():
            await ledger.take_result(batch, command)
        case ReportOutcome():
            _take_outcome(batch, command)
        case EditMessage() | Withdraw():
            _change_queue(batch, rows, command)
        case RewriteSpan() | RestoreRevision() | RedactContent():
            raise StoreCorrupt(f"a {command.kind} waits in the inbox, where none can be", hint="run `perdure verify`")
        case _:
            batch.take(command, command)
    if command.submission in batch.consumed:
        batch.settled.setdefault(command.submission, batch.consumed[command.submission])


def _take_outcome(batch: Batch, command: ReportOutcome) -> None:
    """What a child came to, as the response to the call for it."""
    item = batch.checkpoint.operation(command.operation)
    plan = item.plan if item is not None else Plan(kind="child")
    response = ToolCallResponse(id=plan.call, name=plan.name, response=command.result, is_error=command.outcome != "completed")
    parts, blobs = keep_parts((response,))
    if command.result is not None:
        batch.keep(blobs)
    batch.take(command, Outcome(command=command, parts=parts, at=command.at))


def promote_steers(batch: Batch, rows: list[InboxRow]) -> None:
    """A turn that ends otherwise than by completing leaves its undelivered steers to the queue, in the same commit."""
    if not rows or not any(isinstance(entry, TurnEnded) and not isinstance(entry, TurnCompleted) for entry in batch.entries):
        return
    for index, row in enumerate(rows):
        command = decode_row(row) if _waits(row, batch) else None
        if isinstance(command, PostMessage) and command.deliver == "steer":
            batch.apply(Promote(submission=row.submission_id, at=batch.now))
            _edit(batch, rows, index, msgspec.structs.replace(command, deliver="queue"))


def _change_queue(batch: Batch, rows: list[InboxRow], command: EditMessage | Withdraw) -> None:
    place = next((index for index, row in enumerate(rows) if row.submission_id == command.message and _waits(row, batch)), None)
    posted = decode_row(rows[place]) if place is not None else None
    if not isinstance(posted, PostMessage):
        batch.take(command, ChangeQueue(command=command, deliver="", at=command.at))
        return
    changed = posted if isinstance(command, Withdraw) else msgspec.structs.replace(posted, parts=command.parts)
    content = commands.digest(changed)
    by = posted.source.name if posted.source is not None else ""
    batch.take(command, ChangeQueue(command=command, deliver=posted.deliver, content=content, by=by, at=command.at))
    if command.submission in batch.settled:
        # Refused.
        return
    if isinstance(command, Withdraw):
        batch.consumed[command.message] = batch.settled[command.message] = batch.consumed[command.submission]
    elif place is not None:
        _edit(batch, rows, place, changed)


def _edit(batch: Batch, rows: list[InboxRow], place: int, command: PostMessage) -> None:
    row, body = rows[place], commands.encode(command)
    batch.edited[row.submission_id] = Edited(submission_id=row.submission_id, body=body)
    rows[place] = msgspec.structs.replace(row, body=body)


def _waits(row: InboxRow, batch: Batch) -> bool:
    return not is_control(row) and row.submission_id not in batch.consumed
