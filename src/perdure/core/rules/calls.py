"""The tool calls of a step, or one from outside: planned together, asked about, started."""

from __future__ import annotations

from msgspec.structs import replace

from ..budget import reached, told
from ..checkpoint import CALLS_LIMIT, Operation
from ..draft import Draft
from ..entries import AnswerRequested, ApprovalRequested, OperationPlanned, ToolCalled
from ..ids import approval_id, request_id
from ..phase import startable
from ..reports import CallAccepted, CallsPlanned, Guarded, PlannedCall, StartTools
from .budgets import LIMIT, end_limited, stopped_by
from .children import begin_call
from .endings import UNKNOWN_LIVE, close_operations, drop_calls, end_call, error_response, finish_batch, tell_results
from .turns import begin_turn


def call_from_outside(draft: Draft, command: CallAccepted) -> None:
    """A turn without a model: one call, with everything that is true of a model's."""
    begin_turn(draft, command, ToolCalled, parts=command.parts)


def plan_calls(draft: Draft, command: CallsPlanned) -> None:
    turn, at = draft.turn, command.at
    if not turn.unplanned:
        return
    if len(command.calls) > CALLS_LIMIT:
        raise AssertionError("an answer with too many calls is no answer")
    if (hit := stopped_by(draft, command.pool, at, len(command.calls))) is not None:
        limit, found = hit
        own = (limit, found.scope) == ("tool_calls", "turn")
        drop_calls(draft, at, "the turn's limit of tool calls is reached" if own else told(limit, found), LIMIT)
        tell_results(draft, at)
        end_limited(draft, hit, at)
        return
    answered = ("reject", "replay")
    operations = tuple(
        Operation(
            id=turn.next_id(index),
            plan=call.plan,
            status="ended" if call.verdict in answered else "asking" if call.verdict == "question" else "planned",
            request="open" if call.verdict == "ask" else "",
        )
        for index, call in enumerate(command.calls)
    )
    at_once = {item.id for item in startable(replace(turn, operations=operations, unplanned=()))}
    for item, call in zip(operations, command.calls, strict=True):
        rewritten = call.arguments is not None
        if rewritten or item.id not in at_once:
            planned = OperationPlanned(operation=item.id, plan=item.plan, arguments=call.arguments, extension=call.extension)
            draft.write(planned, at)
        if item.id in at_once:
            begin_call(draft, item, command.fence, at, None if rewritten else item.plan)
    for item, call in zip(operations, command.calls, strict=True):
        if call.verdict in answered:
            failure = call.failure
            parts = call.parts or error_response(call.plan, failure.message if failure is not None else "")
            end_call(draft, item, at, "succeeded" if failure is None else "failed", parts, attempt=0, failure=failure)
    finish_batch(draft, at)
    for item, call in zip(operations, command.calls, strict=True):
        if call.verdict == "ask":
            ask_approval(draft, item.id, call, at)
        elif call.verdict == "question":
            ask_user(draft, item.id, call, at)


def ask_user(draft: Draft, identity: str, call: PlannedCall, at: int) -> None:
    """The call's result is what the user says. Other calls go on meanwhile."""
    plan = call.plan
    draft.write(
        AnswerRequested(
            request_id=request_id("answer", identity, 1, plan.arguments),
            operation=identity,
            deadline=call.deadline,
            name=plan.name,
            call=plan.call,
            arguments=plan.arguments,
        ),
        at,
    )


def ask_approval(draft: Draft, identity: str, call: PlannedCall, at: int) -> None:
    """Nothing of the batch starts before somebody says so."""
    plan = call.plan
    draft.write(
        ApprovalRequested(
            request_id=approval_id(identity, plan),
            operation=identity,
            deadline=call.deadline,
            default=call.default,
            name=plan.name,
            call=plan.call,
            arguments=plan.arguments,
            match=plan.match,
            reason=call.reason,
        ),
        at,
    )


def guard(draft: Draft, command: Guarded) -> None:
    """What a person saw when they approved was another situation: ask, or ask again. Several calls of a batch may be in it."""
    operation = draft.operation(command.operation)
    if operation is not None and operation.status == "planned" and not operation.request:
        plan = replace(operation.plan, match=command.match)
        ask_approval(draft, operation.id, PlannedCall(plan=plan, reason=command.reason, deadline=command.deadline), command.at)


def start_tools(draft: Draft, command: StartTools) -> None:
    turn = draft.checkpoint.turn
    hit = reached(draft.checkpoint, turn, 0) if turn is not None else None
    if turn is not None and hit is not None and not any(item.status in ("started", "unknown", "ready") for item in turn.tools):
        close_operations(draft, command.at, UNKNOWN_LIVE, LIMIT)
        end_limited(draft, hit, command.at)
        return
    for item in startable(turn) if turn is not None else ():
        # What began is brought to its end, whatever it takes; nothing else begins once a limit was passed.
        if item.not_before > command.at or (hit is not None and item.status == "planned"):
            continue
        plan = command.plans.get(item.id)
        begin_call(draft, item, command.fence, command.at, plan)
    if turn is not None:
        finish_batch(draft, command.at)
