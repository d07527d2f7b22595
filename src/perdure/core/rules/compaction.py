"""Notes that take the place of a conversation's beginning: asked for, written, and accepted together with what uses them."""

from __future__ import annotations

from msgspec.structs import replace

from ..checkpoint import Operation
from ..context import NOTES_LIMIT, NOTES_TOOL, notes_in
from ..draft import Draft
from ..entries import OperationEnded, PrefixChanged, TurnCompleted, TurnFailed
from ..messages import said_digest
from ..records import Failure
from ..reports import AttemptEnded, CompactionAccepted, EndEarly
from .endings import NOT_MADE, end_turn

NO_NOTES = Failure(
    code="invalid_notes",
    message=f"the writer of notes must call {NOTES_TOOL} once, with 1 to {NOTES_LIMIT} bytes of text; nothing was changed",
)


def take_notes(draft: Draft, operation: Operation, command: AttemptEnded, ended: OperationEnded) -> None:
    """The receipt that holds the notes. Those that are none fail the turn."""
    if command.finish not in NOT_MADE and notes_in(command.parts):
        draft.write(replace(ended, digest=said_digest("assistant", command.parts)), command.at)
    else:
        draft.write(replace(ended, status="failed", parts=(), group="", failure=NO_NOTES), command.at)
        end_turn(draft, TurnFailed, command.at, failure=NO_NOTES, reason=NO_NOTES.message)


def accept(draft: Draft, command: CompactionAccepted) -> None:
    """The context begins with the notes now. What people see stays what it is."""
    now, written = draft.checkpoint, draft.turn.compactions
    if not written or written[-1].status != "ended":
        return
    last = written[-1]
    changed = PrefixChanged(
        epoch=now.epoch + 1,
        reason="compaction",
        private_from=now.private_from,
        private=command.private,
        operation=last.id,
        summary=last.receipt,
        upto=last.plan.upto,
        kept=command.kept,
        applied=len(written),
        answers=command.answers,
    )
    draft.write(changed, command.at)


def end_early(draft: Draft, command: EndEarly) -> None:
    end_turn(draft, TurnCompleted, command.at, output=draft.turn.output, reason=command.reason)
