"""Putting sessions away and taking them out, stopping them and letting them go: done by who asks for it, whoever holds the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ..core import checkpoint as checkpoints
from ..core import commands
from ..core.commands import Archive, Halt, Repair, ReportResult, Revive
from ..core.entries import Archived, Halted, Revived
from ..core.errors import SessionBusy
from ..core.rules.archive import PUT_AWAY
from ..store.base import AlreadyThere, Claim, Committed, InboxRow, Loaded
from .batch import Batch, receipt_row
from .control import commit_by_sender, take_row
from .halting import check_not_halted
from .ledger import Ledger
from .names import conflict

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["PERSISTENCE", "Standing", "put_away_or_back"]

Standing: TypeAlias = Archive | Revive | Halt | Repair
"""Whether anything may happen in a session."""

PERSISTENCE = 100
"""How often a session that changes all the time is tried; each attempt loses only to a commit that went through."""


async def put_away_or_back(runtime: Runtime, look: Callable[[], Awaitable[Loaded]], command: Standing) -> tuple[InboxRow, bool]:
    """One commit, by the caller; its receipt, and whether it is an earlier one.

    Raises what the rules refuse and what ``look`` raises, `SubmissionConflict`, and `SessionBusy`.
    """
    for _ in range(PERSISTENCE):
        head = await look()
        earlier = await runtime.store.submission(head.row.no, command.submission)
        if earlier is not None:
            return _again(earlier, command)
        if not isinstance(command, Repair):
            check_not_halted(head.row)
        batch, row = await _decided(runtime, head, command)
        waiting = await runtime.store.inbox(head.row.no)
        claim = Claim(runner=runtime.runner_id, force=True) if head.row.holder is not None else None
        match await commit_by_sender(runtime, batch, row, waiting, claim=claim, release=True):
            case Committed():
                return row, False
            case AlreadyThere(there):
                return _again(there, command)
    raise SessionBusy(f"{head.row.session_id!r} changes all the time", hint="interrupt it first, or try again")


async def _decided(runtime: Runtime, head: Loaded, command: Standing) -> tuple[Batch, InboxRow]:
    """What the commit says. Of one that is put away, results that were reported are receipts, and the rest of what waits is refused."""
    now = max(runtime.clock.now(), head.now)
    batch = Batch(head, checkpoints.decode(head.row.checkpoint), now=now)
    waiting = await runtime.store.inbox(head.row.no) if isinstance(command, Archive) and not batch.checkpoint.archived else []
    ledger = Ledger(runtime.store, head.row.no)
    if waiting:
        await ledger.load()
    for row in waiting:
        if row.kind == ReportResult.kind:
            await take_row(batch, ledger, waiting, row)
    for row in waiting:
        if row.submission_id not in batch.consumed:
            batch.refuse(row, PUT_AWAY)
    written = batch.apply(msgspec.structs.replace(command, at=now))
    seq = next(entry.seq for entry in written if isinstance(entry, Archived | Revived | Halted))
    return batch, receipt_row(command, arrival=head.row.inbox_head + 1, at=now, seq=seq)


def _again(earlier: InboxRow, command: Standing) -> tuple[InboxRow, bool]:
    if earlier.digest != commands.digest(command):
        raise conflict(command)
    return earlier, True
