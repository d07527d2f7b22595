"""Calls that another session answers, or the time: agents called as children, handoffs, and timers, those in a call too.

No transaction spans sessions. What one owes to another, to begin a child or stop it or tell a parent what came of it, is an errand of the
checkpoint from the commit that decided it until `PassedOn`; each is a submission with an id of its own, so that doing it twice is doing it
once.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..budget import allowance
from ..checkpoint import Operation
from ..draft import Draft
from ..entries import ChildEnded, DefinitionChange, OperationPlanned, OperationStarted, PassedOn
from ..errors import StaleRequest
from ..ids import child_session
from ..records import Failure, Plan
from ..reports import ErrandsDone, HandOver, Outcome
from ..usage import Totals
from .endings import NOT_EXECUTED, end_call, error_response, finish_batch, response_to

GIVEN_UP = Failure(code="timeout", message="it did not come to an end in time")


def begin_call(draft: Draft, operation: Operation, fence: int, at: int, plan: Plan | None) -> None:
    """Start a call; one that starts nothing here is answered at once. ``plan`` is what nothing before says of it."""
    call = plan or operation.plan
    if call.kind == "child" and (rest := allowance(draft.checkpoint, draft.turn)) is not None:
        call = plan = replace(call, allowance=rest)
    refused = _too_many(draft, call) if call.kind == "child" else None
    if (call.kind == "handoff" or refused is not None) and draft.operation(operation.id) is None:
        draft.write(OperationPlanned(operation=operation.id, plan=call), at)
    if call.kind == "handoff":
        _hand_over(draft, operation, call, at)
        return
    if refused is not None:
        end_call(draft, operation, at, "failed", error_response(call, refused.message), attempt=0, failure=refused)
        return
    draft.write(OperationStarted(operation=operation.id, attempt=operation.attempt + 1, fence=fence, plan=plan), at)
    if call.kind == "child" and call.background:
        session = child_session(draft.checkpoint.session_id, operation.id)
        told = f"The agent {call.agent} works on it in the session {session}. What it comes to will be told in a message."
        end_call(draft, operation, at, "succeeded", (response_to(call, told, is_error=False),), attempt=operation.attempt + 1)


def _hand_over(draft: Draft, operation: Operation, call: Plan, at: int) -> None:
    turn, limit = draft.turn, draft.turn.limits.handoffs
    refused = None
    if turn.transfer:
        refused = Failure(code="handed_over", message=f"{NOT_EXECUTED}: the conversation goes to {turn.transfer} already")
    elif limit is not None and turn.handoffs >= limit:
        refused = Failure(code="handoff_limit", message=f"{NOT_EXECUTED}: a turn is handed over {limit} times at most")
    text = refused.message if refused is not None else f"The conversation goes to {call.agent}."
    parts = (response_to(call, text, is_error=refused is not None),)
    end_call(draft, operation, at, "failed" if refused else "succeeded", parts, attempt=0, failure=refused)


def _too_many(draft: Draft, call: Plan) -> Failure | None:
    now, limits = draft.checkpoint, draft.turn.limits
    if call.allowance is not None and 0 in (call.allowance.tokens, call.allowance.cost, call.allowance.model_calls):
        return Failure(code="child_allowance", message=f"{NOT_EXECUTED}: nothing is left of a budget that the agent could use")
    depth = now.parent.depth if now.parent is not None else 0
    if limits.depth is not None and depth >= limits.depth:
        words = f"{NOT_EXECUTED}: agents call agents {limits.depth} levels deep at most"
        return Failure(code="child_depth", message=words)
    if limits.children is not None and draft.turn.children >= limits.children:
        return Failure(code="child_limit", message=f"{NOT_EXECUTED}: a turn calls {limits.children} agents at most")
    if limits.reports is not None and call.background and now.reports >= limits.reports:
        words = f"{NOT_EXECUTED}: {limits.reports} turns in a row began with reports from the background, and nobody else said anything"
        return Failure(code="report_limit", message=words)
    if limits.children is not None and call.background and len(now.background) >= limits.children:
        return Failure(code="child_limit", message=f"{NOT_EXECUTED}: {limits.children} agents work in the background already")
    return None


def take_outcome(draft: Draft, command: Outcome) -> None:
    """A child came to its end: the receipt of the call that waits for it, or the end of one that nobody waits for."""
    told = command.command
    item = draft.operation(told.operation)
    if told.session != child_session(draft.checkpoint.session_id, told.operation):
        raise StaleRequest(f"{told.session!r} is no child of this session", hint="nothing was changed")
    if item is not None and item.plan.kind == "child" and item.status == "awaiting":
        succeeded = told.outcome == "completed"
        failure = None if succeeded else Failure(code=f"child_{told.outcome}", message=told.reason)
        end_call(draft, item, command.at, "succeeded" if succeeded else "failed", command.parts, failure=failure, spent=told.spent)
        finish_batch(draft, command.at)
    elif any(item.operation == told.operation for item in draft.checkpoint.background):
        ended = ChildEnded(
            operation=told.operation,
            outcome=told.outcome,
            spent=told.spent,
            reason=told.reason,
            parts=() if told.result is None else command.parts,
            submission=told.submission,
        )
        draft.write(ended, command.at)
    else:
        raise StaleRequest(f"nobody waits for what {told.session!r} came to", hint="nothing was changed")


def pass_timers(draft: Draft, at: int) -> None:
    """Timers fire, and children that take too long are given up."""
    turn = draft.checkpoint.turn
    if turn is None or turn.ending:
        return
    for item in turn.awaiting:
        if not 0 < item.deadline <= at:
            continue
        if item.plan.kind != "child":
            end_call(draft, item, at, "succeeded", (response_to(item.plan, "The time has come.", is_error=False),))
        else:
            words = f"the agent {item.plan.agent} was stopped: {GIVEN_UP.message}; what it did so far stays done"
            end_call(draft, item, at, "cancelled", error_response(item.plan, words), failure=GIVEN_UP)
    finish_batch(draft, at)


def pass_on(draft: Draft, command: ErrandsDone) -> None:
    """What is owed no more. A child that can't be begun is the end of the call for it."""
    done = tuple(errand for errand in command.errands if errand in draft.checkpoint.errands)
    if done:
        draft.write(PassedOn(errands=done), command.at)
    for operation, failure in command.failed:
        item = draft.operation(operation)
        if item is not None and item.status == "awaiting":
            end_call(draft, item, command.at, "failed", error_response(item.plan, f"{NOT_EXECUTED}: {failure.message}"), failure=failure)
            finish_batch(draft, command.at)
        elif any(item.operation == operation for item in draft.checkpoint.background):
            draft.write(ChildEnded(operation=operation, outcome="failed", spent=Totals()), command.at)


def hand_over(draft: Draft, command: HandOver) -> None:
    """The turn goes on as another agent."""
    turn = draft.turn
    if not turn.transfer or turn.ending:
        return
    changed = DefinitionChange(
        agent=turn.transfer,
        old=turn.definition,
        new=command.definition,
        terms=command.terms,
        route=command.route,
    )
    draft.write(changed, command.at)
