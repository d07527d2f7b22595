"""What a turn came to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..agent import Agent
from ..agent.output import OutputMisfit
from ..core import canonical
from ..core.entries import SubmissionRefused, TurnCompleted, TurnEnded, TurnFailed
from ..core.errors import OutputInvalid, SessionArchived, SubmissionRejected
from ..core.finishing import ALL_ARGUMENTS
from ..core.messages import Message
from ..core.records import Ending, Failure
from ..core.usage import Totals
from .model_calls import ModelCall, Spending

__all__ = ["Result", "refused", "result_of", "typed", "withdrawn"]


AGAIN = "sessions.revive(…) takes it out again; then send it as another submission, since this one stays refused"


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a turn ended, the same for ever.

    ``text`` is that of its last answer, empty if it had none; where a ``call`` ended the turn, that is the output as text. ``output`` is
    what the agent's ``output_type`` reads, where that is known and the turn completed with an output; without one it is the text, or the
    arguments of the call. ``status`` is ``completed``, or why it is not: ``aborted`` (somebody stopped it), ``failed`` (``failure`` says
    why) or ``limited`` (``reason`` names the limit). ``model_calls`` is the turn's part of the ledger, in the order in which the calls
    ended.
    """

    session_id: str
    submission: str
    turn: str
    status: Ending
    output: Any
    text: str
    usage: Totals
    steps: int
    tool_calls: int
    reason: str = ""
    failure: Failure | None = None
    model_calls: tuple[ModelCall, ...] = ()
    call: str = ""

    @property
    def ok(self) -> bool:
        """Whether the turn completed."""
        return self.status == "completed"

    @property
    def spending(self) -> Spending:
        """What the turn's model calls came to, where each number is ``None`` as soon as one call lacks it."""
        return Spending.of(self.model_calls)


def result_of(session_id: str, ended: TurnEnded, answer: Message | None, calls: tuple[ModelCall, ...]) -> Result:
    """The result that a terminal entry stands for; ``answer`` is the last one of its turn."""
    output: Any = "" if answer is None else answer.text
    call = ended.call if isinstance(ended, TurnCompleted) else ""
    if isinstance(ended, TurnCompleted) and answer is not None:
        made = next((item.arguments for item in answer.tool_calls if call and item.id == call), None)
        if made is not None:
            output = made if ended.argument == ALL_ARGUMENTS or not isinstance(made, dict) else made.get(ended.argument)
    return Result(
        session_id=session_id,
        submission=ended.submission,
        turn=ended.turn,
        status=ended.outcome,
        output=output,
        text=canonical.as_text(output),
        usage=ended.usage,
        steps=ended.steps,
        tool_calls=ended.tool_calls,
        reason=ended.reason,
        failure=ended.failure if isinstance(ended, TurnFailed) else None,
        model_calls=calls,
        call=call,
    )


def refused(session_id: str, entry: SubmissionRefused) -> SubmissionRejected | SessionArchived:
    """What whoever sent a refused submission is told, live or by what is stored."""
    if entry.failure.code == SessionArchived.code:
        return SessionArchived(entry.failure.message, hint=AGAIN, session=session_id)
    return SubmissionRejected(entry.failure.message, hint="nothing was changed", reason=entry.failure.code)


def withdrawn() -> SubmissionRejected:
    """What whoever sent a message that was taken back is told."""
    return SubmissionRejected("the message was withdrawn before it was delivered", reason="withdrawn")


def typed(result: Result, agent: Agent) -> Result:
    """The result with its output as the agent's ``output_type`` reads it. Raises `OutputInvalid` if it doesn't.

    Nothing of the host's own is asked. A turn that completed without an output (nobody answered, nothing was said) has None.
    """
    output = agent.output
    if output.spec is None:
        return result
    if not result.ok or not result.text or (agent.finish != "answer" and not result.call):
        return replace(result, output=None)
    try:
        return replace(result, output=output.of(result.output) if result.call else output.read(result.text))
    except OutputMisfit as error:
        raise OutputInvalid(
            f"the output of the turn {result.turn} in {result.session_id!r} is not what the agent {agent.name!r} answers with: {error}",
            hint="read it as it is with sessions.result(…), or use an agent with the output_type that it was made for",
            text=result.text,
        ) from None
