"""How calls and turns end: every call gets exactly one response, every turn exactly one of four terminals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import canonical
from ..checkpoint import Operation, Turn
from ..commands import Answer, ReportResult
from ..draft import Draft
from ..effects import may_be_unknown
from ..entries import (
    EffectSettled,
    MessageAdded,
    NoteAdded,
    NotesWithdrawn,
    OperationEnded,
    OperationPlanned,
    RequestClosed,
    TurnAborted,
    TurnEnded,
    TurnEnding,
    TurnFailed,
    UncertainRequested,
)
from ..evolve import is_archived
from ..ids import call_of, request_id
from ..messages import Part, ToolCallResponse, digest_of, measured, part_digest
from ..phase import asleep, reviewing
from ..records import CALL_KINDS, MODEL_KINDS, Failure, Plan, ResponseReference, Status
from ..usage import Totals

RESULT_UNKNOWN = "; result unknown"
UNKNOWN_LIVE = f"execution interrupted{RESULT_UNKNOWN}"
UNKNOWN_AFTER_RESTART = "execution interrupted; result unknown after restart"
NOT_EXECUTED = "not executed"

INTERRUPTED = Failure(code="interrupted")
LOST = Failure(code="restart")
FINISHED = Failure(code="finished", message="another call of the step ended the turn")
DROPPED = Failure(code="dropped", message="nobody asked about it again")
ASLEEP = Failure(code="asleep", message="it goes on when the time has come")
TAKEN = Failure(code="taken", message="somebody took the session from who worked on it")

NOT_MADE: Mapping[str, Failure] = {
    "length": Failure(code="length", message="the answer was cut off by its length limit; ask for less at once"),
    "refusal": Failure(code="refusal", message="the answer was a refusal"),
}
"""Why no call of an answer that finished so is ever made: it may not be whole, or not meant."""

RAISED = "tool_raised"
"""The code of the failure of a tool that raised what doesn't say that nothing happened."""

RESTARTS = 3
"""How many attempts of one operation may begin because of a restart."""

_NOTHING: Mapping[str, tuple[Part, ...]] = {}

CRASH_LOOP = Failure(code="crash_loop", message="its process died every time it was started")


def end_call(
    draft: Draft,
    operation: Operation,
    at: int,
    status: Status,
    parts: tuple[Part, ...] = (),
    *,
    attempt: int | None = None,
    final: bool = True,
    failure: Failure | None = None,
    retry_at: int = 0,
    spent: Totals | None = None,
) -> None:
    """A receipt of a tool call, with the one response that the model will read; of its latest attempt, unless ``attempt`` names another."""
    digest, size = measured(parts[0]) if parts else ("", 0)
    ended = OperationEnded(
        operation=operation.id,
        attempt=operation.attempt if attempt is None else attempt,
        status=status,
        final=final,
        parts=parts,
        digest=digest,
        failure=failure,
        retry_at=retry_at,
        spent=spent,
        archived=is_archived(draft.checkpoint.turn, operation.plan.name, size),
    )
    draft.write(ended, at)


def error_response(plan: Plan, text: str) -> tuple[Part, ...]:
    """What the model reads instead of a result."""
    return (response_to(plan, text, is_error=True),)


def response_to(plan: Plan, response: Any, *, is_error: bool) -> ToolCallResponse:
    return ToolCallResponse(id=plan.call, name=plan.name, response=response, is_error=is_error)


def finish_batch(draft: Draft, at: int) -> None:
    """Once every call has its response, they become one tool message, unless the agent's own code has a say in it first."""
    if "results" not in draft.turn.terms.holds:
        tell_results(draft, at)


def tell_results(draft: Draft, at: int, replaced: Mapping[str, tuple[Part, ...]] = _NOTHING) -> None:
    """The one tool message of a step, in call order. ``replaced`` is what the model reads instead of some results, by operation.

    Of a call outside of the conversation a note tells, and its turn has nothing more to do.
    """
    if not reviewing(draft.turn):
        return
    close_steps(draft, at)
    turn = draft.turn
    tools = turn.tools
    if turn.calls:
        [item] = tools
        instead = replaced.get(item.id, ())
        digest = canonical.short_digest(item.id, part_digest(instead[0]) if instead else item.response)
        draft.write(NoteAdded(text="", digest=digest, operation=item.id, receipt=item.receipt, parts=instead), at)
        return
    parts = [part for item in tools for part in replaced.get(item.id, ())]
    responses = tuple(ResponseReference(id=item.plan.call, receipt=item.receipt, replaced=item.id in replaced) for item in tools)
    digest = digest_of("tool", (part_digest(replaced[item.id][0]) if item.id in replaced else item.response for item in tools))
    draft.write(MessageAdded(role="tool", digest=digest, parts=tuple(parts), responses=responses), at)


def tell_answer(draft: Draft, at: int) -> None:
    """The answer that waits, if one does, becomes a message."""
    candidate = draft.turn.candidate
    if candidate is not None:
        close_steps(draft, at)
        draft.write(MessageAdded(role="assistant", digest=candidate.response, receipt=candidate.receipt), at)


def skip_calls(draft: Draft, at: int) -> None:
    """A call ended the turn: those behind it, which have not begun, don't."""
    for item in draft.turn.tools:
        if item.request:
            draft.write(RequestClosed(request_id=item.request, operation=item.id, decision="abort", by="turn"), at)
        if item.status != "ended":
            never_ran(draft, item, at, f"{NOT_EXECUTED}: the turn was finished", FINISHED)


def unknown_live(failure: Failure | None) -> str:
    """What the model reads of an attempt of this process whose outcome nobody knows: that it was cut off, or what its tool raised."""
    return f"{failure.message}{RESULT_UNKNOWN}" if failure is not None and failure.code == RAISED else UNKNOWN_LIVE


def says_unknown(text: object) -> bool:
    """Whether this is what the model reads where nobody knows what became of its call."""
    return text == UNKNOWN_AFTER_RESTART or (isinstance(text, str) and text.endswith(RESULT_UNKNOWN))


def end_uncertain(draft: Draft, operation: Operation, at: int, text: str, *, failure: Failure | None, can_tell: bool) -> None:
    """One meaning of *uncertain*, live or after a restart: its tool tells, or a person is asked, or model and person are told."""
    if can_tell or operation.plan.ask_when_uncertain:
        end_call(draft, operation, at, "uncertain", final=False, failure=failure)
        if not can_tell:
            ask_uncertain(draft, operation, at)
    else:
        end_call(draft, operation, at, "uncertain", error_response(operation.plan, text), failure=failure)


def ask_uncertain(draft: Draft, operation: Operation, at: int) -> None:
    """Only a person can tell what became of the attempt."""
    plan = operation.plan
    draft.write(
        UncertainRequested(
            request_id=request_id("uncertain", operation.id, operation.attempt, plan.arguments),
            operation=operation.id,
            name=plan.name,
            call=plan.call,
            arguments=plan.arguments,
            attempt=operation.attempt,
        ),
        at,
    )


def end_crash_loop(draft: Draft, operation: Operation, at: int, *, unknown: bool = False) -> None:
    """No attempt more: what died with its process every time is not started again. ``unknown``: it may have done something every time."""
    parts = error_response(operation.plan, CRASH_LOOP.message) if operation.plan.kind == "tool" else ()
    end_call(draft, operation, at, "uncertain" if unknown else "failed", parts, failure=CRASH_LOOP)


def settle(draft: Draft, operation: str, attempt: int, receipt: int, parts: tuple[Part, ...], command: Answer | ReportResult) -> None:
    digest, size = measured(parts[0])
    item = draft.operation(operation)
    settled = EffectSettled(
        operation=operation,
        attempt=attempt,
        receipt=receipt,
        status="failed" if command.is_error else "succeeded",
        parts=parts,
        digest=digest,
        archived=item is not None and is_archived(draft.checkpoint.turn, item.plan.name, size),
        actor=command.actor,
        submission=command.submission,
    )
    draft.write(settled, command.at)


def never_ran(draft: Draft, operation: Operation, at: int, text: str, failure: Failure) -> None:
    end_call(draft, operation, at, "cancelled", error_response(operation.plan, text), attempt=0, failure=failure)


def drop_calls(draft: Draft, at: int, why: str, failure: Failure) -> None:
    """Calls that were asked for and not planned are answered too."""
    for call in draft.turn.unplanned:
        identity = draft.turn.next_id()
        plan = Plan(kind="tool", name=call.name, call=call.id)
        draft.write(OperationPlanned(operation=identity, plan=plan), at)
        text = f"{NOT_EXECUTED}: {why}" if why else NOT_EXECUTED
        never_ran(draft, Operation(id=identity, plan=plan), at, text, failure)


def close_operations(draft: Draft, at: int, unknown_text: str, failure: Failure = INTERRUPTED) -> None:
    """Give every open operation of the step its end, so that no call is left without a response."""
    for item in draft.turn.requests:
        closed = RequestClosed(request_id=item.request, operation=item.id, decision="abort", by="turn")
        draft.write(closed, at)
    sleepers = asleep(draft.turn)
    for item in draft.turn.operations:
        if item.status == "ended":
            continue
        if item.plan.kind in MODEL_KINDS:
            started = item.status == "started"
            lost: Status = "uncertain" if started and failure in (LOST, TAKEN) else "cancelled"
            ended = OperationEnded(operation=item.id, attempt=item.attempt if started else 0, status=lost, failure=failure)
            draft.write(ended, at)
        elif item.status == "ready" and item.id in sleepers and not (item.plan.unique and steps_of(draft.turn, item.id)):
            end_call(draft, item, at, "cancelled", error_response(item.plan, _asleep_text(draft.turn, item.id)), failure=failure)
        elif item.status == "planned" or item.is_question or (item.status == "ready" and _did_nothing(item.plan)):
            # Such a call is only ready again once somebody knew that it had not happened; others may have been cut off.
            never_ran(draft, item, at, NOT_EXECUTED, failure)
        else:
            unknown = may_be_unknown(item.plan) or item.status in ("unknown", "asking")
            parts = error_response(item.plan, unknown_text) if item.plan.kind in CALL_KINDS else ()
            end_call(draft, item, at, "uncertain" if unknown else "cancelled", parts, failure=failure)
    drop_calls(draft, at, "", failure)
    tell_results(draft, at)


def steps_of(turn: Turn, call: str) -> list[str]:
    """What a call did outside in its steps, or began to, by name. To sleep is nothing, and neither is what is pure."""
    own = [item for item in turn.steps if call_of(item.id) == call and item.status not in ("planned", "ready")]
    return [item.id.split("/", 1)[1] for item in own if item.plan.effect != "pure"]


def _asleep_text(turn: Turn, call: str) -> str:
    """Of a call that sleeps everything is known: what it does outside stands in its steps, and none is under way."""
    done = steps_of(turn, call)
    return "stopped while it slept; " + (
        f"what its steps did so far stays done: {', '.join(done)}" if done else "it had done nothing outside"
    )


def _did_nothing(plan: Plan) -> bool:
    """Whether a call that is to run again has no attempt that may have done something."""
    return plan.effect == "external" and not plan.resumable


def close_steps(draft: Draft, at: int) -> None:
    """What the agent's own code began outside and did not ask about again ends before its step does: no attempt stays open."""
    for item in draft.turn.steps:
        if item.status in ("planned", "ready"):
            end_call(draft, item, at, "cancelled", attempt=0, failure=DROPPED)
        elif item.status != "ended":
            lost: Status = "uncertain" if item.plan.effect == "external" else "cancelled"
            end_call(draft, item, at, lost, failure=DROPPED)


def end_turn(draft: Draft, ending: type[TurnEnded], at: int, *, unheard: bool = False, **facts: Any) -> None:
    """The turn's end; where the agent's own code has a say first, what it will be. ``unheard``: nobody is asked.

    An answer that nobody has looked at yet, or that is not what it has to be, is kept as what was said last.
    """
    close_steps(draft, at)
    tell_answer(draft, at)
    turn = draft.turn
    if "end" in turn.terms.holds and not turn.ending and not unheard:
        draft.write(TurnEnding(turn=turn.id, outcome=ending.outcome, **facts), at)
        return
    if ending is TurnFailed and turn.notes and not turn.answer:
        draft.write(NotesWithdrawn(notes=turn.notes), at)
    counted: dict[str, Any] = {"steps": turn.step, "tool_calls": turn.tool_calls, "usage": turn.usage, "ran": turn.ran}
    draft.write(ending(turn=turn.id, submission=turn.submission, **counted, **facts), at)


def abort(draft: Draft, at: int, reason: str, *, interrupt: str = "", actor: str = "", extension: str = "") -> None:
    close_operations(draft, at, UNKNOWN_LIVE)
    end_turn(draft, TurnAborted, at, reason=reason, interrupt=interrupt, actor=actor, extension=extension)


def fail_turn(draft: Draft, at: int, why: Failure, unknown_text: str, failure: Failure = INTERRUPTED) -> None:
    """End the turn as failed, and everything that is open in it with the turn."""
    close_operations(draft, at, unknown_text, failure)
    end_turn(draft, TurnFailed, at, failure=why, reason=why.message)
