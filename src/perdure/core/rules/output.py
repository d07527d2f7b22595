"""An answer that has to be of a certain kind: held until that is known, corrected a few times, and kept whatever becomes of it."""

from __future__ import annotations

from msgspec.structs import replace

from ..checkpoint import Operation
from ..draft import Draft
from ..entries import OperationEnded, TurnFailed
from ..evolve import calls_in
from ..messages import said_digest
from ..reports import AttemptEnded, OutputAccepted, OutputRefused
from .endings import end_turn, tell_answer
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


def take_correction(draft: Draft, operation: Operation, command: AttemptEnded, ended: OperationEnded) -> None:
    """The next answer to look at. Its model was offered no tools, so calls in it are nothing."""
    take_over_context(draft, command)
    parts = tuple(part for part in command.parts if not calls_in((part,)))
    draft.write(replace(ended, parts=parts, digest=said_digest("assistant", parts)), command.at)
