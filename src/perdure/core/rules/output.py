"""An answer that has to be of a certain kind: held until that is known, corrected a few times, and kept whatever becomes of it."""

from __future__ import annotations

from msgspec.structs import replace

from ..checkpoint import Operation
from ..draft import Draft
from ..entries import TurnFailed
from ..messages import Part, RedactedPart, StoredPart, ToolCall, said_digest
from ..records import Failure
from ..reports import AttemptEnded, OutputAccepted, OutputRefused
from .endings import end_turn, model_receipt, tell_answer, write_failure
from .routes import take_over_context


def accept(draft: Draft, command: OutputAccepted) -> None:
    """The answer is what it has to be, and becomes a message."""
    candidate = draft.turn.candidate
    if candidate is not None and candidate.id == command.operation:
        tell_answer(draft, command.at)


def refuse(draft: Draft, command: OutputRefused) -> None:
    """The answer stays what it is, and the turn fails with it."""
    candidate = draft.turn.candidate
    if candidate is not None and candidate.id == command.operation:
        end_turn(draft, TurnFailed, command.at, failure=command.failure, reason=command.failure.message)


def end_attempt(draft: Draft, operation: Operation, command: AttemptEnded, retry_at: int | None) -> None:
    """The receipt of a correction, which is the next answer to look at. It was offered no tools, so calls in it are nothing."""
    parts = tuple(part for part in command.parts if not _is_call(part))
    ended = replace(model_receipt(command), parts=parts)
    if command.status == "succeeded":
        take_over_context(draft, command)
        draft.write(replace(ended, digest=said_digest("assistant", parts)), command.at)
    elif write_failure(draft, command, ended, retry_at):
        why = command.failure or Failure(code="model")
        end_turn(draft, TurnFailed, command.at, failure=why, reason=f"the answer could not be corrected: {why.message}")


def _is_call(part: Part) -> bool:
    match part:
        case ToolCall():
            return True
        case StoredPart() | RedactedPart():
            return bool(part.call)
        case _:
            return False
