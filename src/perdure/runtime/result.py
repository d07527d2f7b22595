"""What a turn came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..core.entries import SubmissionRefused, TurnAborted, TurnCompleted, TurnEnded, TurnFailed, TurnLimited
from ..core.errors import SubmissionRejected
from ..core.model_calls import ModelCall
from ..core.records import Failure
from ..core.usage import Spending, Totals

__all__ = ["Result", "refused", "result_of"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a turn ended, the same for ever.

    ``output`` is the text of its last answer, empty if it had none. ``status`` is ``completed``, or why it is not: ``aborted``
    (somebody stopped it), ``failed`` (``failure`` says why) or ``limited`` (``reason`` names the limit). ``model_calls`` is the turn's
    part of the ledger, in the order in which the calls ended.
    """

    session_id: str
    submission: str
    turn: str
    status: Literal["completed", "aborted", "failed", "limited"]
    output: str
    usage: Totals
    steps: int
    tool_calls: int
    reason: str = ""
    failure: Failure | None = None
    model_calls: tuple[ModelCall, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the turn completed."""
        return self.status == "completed"

    @property
    def spending(self) -> Spending:
        """What the turn's model calls came to, where each number is ``None`` as soon as one call lacks it."""
        return Spending.of(self.model_calls)


def result_of(session_id: str, ended: TurnEnded, output: str, calls: tuple[ModelCall, ...]) -> Result:
    """The result that a terminal entry stands for."""
    match ended:
        case TurnCompleted():
            status: Literal["completed", "aborted", "failed", "limited"] = "completed"
        case TurnAborted():
            status = "aborted"
        case TurnLimited():
            status = "limited"
        case _:
            status = "failed"
    return Result(
        session_id=session_id,
        submission=ended.submission,
        turn=ended.turn,
        status=status,
        output=output,
        usage=ended.usage,
        steps=ended.steps,
        tool_calls=ended.tool_calls,
        reason=ended.reason,
        failure=ended.failure if isinstance(ended, TurnFailed) else None,
        model_calls=calls,
    )


def refused(entry: SubmissionRefused) -> SubmissionRejected:
    """What whoever sent a refused submission is told."""
    return SubmissionRejected(entry.failure.message, reason=entry.failure.code)
