"""Questions to the outside and their answers: decisions, deadlines, grants."""

from __future__ import annotations

from typing import Literal

from ..checkpoint import GRANTS_LIMIT, Operation
from ..commands import Answer, RevokeGrant
from ..draft import Draft
from ..entries import GrantGiven, RequestClosed
from ..errors import LimitExceeded, StaleRequest, SubmissionRejected
from ..ids import arguments_digest, request_id
from ..records import Failure, Plan
from ..reports import TimePassed
from .endings import NOT_EXECUTED, UNKNOWN_LIVE, abort, end_call, error_response, finish_batch, never_ran, response_to, settle


def answer(draft: Draft, command: Answer) -> None:
    operation = next((item for item in draft.turn.requests if item.request == command.request_id), None)
    if operation is None:
        refuse_answer(draft, command)
    else:
        _close_request(draft, operation, command, by="answer")


def refuse_answer(draft: Draft, command: Answer) -> None:
    raise StaleRequest(f"request {command.request_id} is not open", hint="`perdure show` lists what was asked and answered")


def check_decision(operation: Operation, command: Answer) -> None:
    """Raises `SubmissionRejected` for an answer to another kind of question than the one that is open."""
    uncertain = operation.status == "asking"
    if command.decision in (("approve", "grant") if uncertain else ("settle", "retry")):
        asked = "what became of a call" if uncertain else "whether a call may run"
        wanted = "settle, retry, deny (leave it unknown) or abort" if uncertain else "approve, grant, deny or abort"
        raise SubmissionRejected(
            f"request {command.request_id} can't be answered with {command.decision!r}: it asks {asked}",
            hint=f"answer with {wanted}",
            reason="wrong_decision",
        )


def _close_request(draft: Draft, operation: Operation, command: Answer, *, by: Literal["answer", "deadline"]) -> None:
    check_decision(operation, command)
    plan, at = operation.plan, command.at
    uncertain = operation.status == "asking"
    edited = command.arguments if command.decision == "approve" else None
    granted = _grant(draft, plan, command) if command.decision == "grant" else None
    draft.write(
        RequestClosed(
            request_id=operation.request,
            operation=operation.id,
            decision=command.decision,
            by=by,
            arguments=edited,
            arguments_digest=arguments_digest(edited) if edited is not None else "",
            reason=command.reason,
            actor=command.actor,
            submission=command.submission,
        ),
        at,
    )
    match command.decision:
        case "grant" if granted is not None:
            draft.write(granted, at)
        case "abort":
            abort(draft, at, command.reason or "approval aborted", actor=command.actor)
            return
        case "settle":
            response = response_to(plan, command.result, is_error=command.is_error)
            settle(draft, operation.id, operation.attempt, operation.receipt, (response,), command)
        case "deny" if uncertain:
            end_call(draft, operation, at, "uncertain", error_response(plan, UNKNOWN_LIVE))
        case "deny":
            why = "nobody approved it in time" if by == "deadline" else "a person denied it"
            text = f"{NOT_EXECUTED}: {why}" + (f": {command.reason}" if command.reason else "")
            never_ran(draft, operation, at, text, Failure(code="denied", message=command.reason))
    finish_batch(draft, at)


def pass_time(draft: Draft, command: TimePassed) -> None:
    for operation in draft.turn.requests:
        turn = draft.checkpoint.turn
        if turn is not None and not turn.ending and 0 < operation.deadline <= command.at:
            default = Answer(request_id=operation.request, decision=operation.default or "deny", at=command.at)  # type: ignore[arg-type]
            _close_request(draft, operation, default, by="deadline")


def _grant(draft: Draft, plan: Plan, command: Answer) -> GrantGiven | None:
    """The exact call that was shown may run again without asking. Raises `LimitExceeded` beyond `GRANTS_LIMIT`."""
    given = GrantGiven(
        grant=request_id("grant", plan.name, 0, plan.arguments),
        name=plan.name,
        arguments=plan.arguments,
        submission=command.submission,
        actor=command.actor,
    )
    if any(grant.id == given.grant for grant in draft.checkpoint.grants):
        return None
    if len(draft.checkpoint.grants) >= GRANTS_LIMIT:
        raise LimitExceeded(f"the session has {GRANTS_LIMIT} grants", hint="revoke one, or approve this call alone", limit="grants")
    return given


def revoke_grant(draft: Draft, command: RevokeGrant) -> None:
    grant = next((item for item in draft.checkpoint.grants if item.id == command.grant), None)
    if grant is None:
        raise SubmissionRejected(f"there is no grant {command.grant!r}", hint="nothing was changed", reason="unknown_grant")
    revoked = GrantGiven(
        grant=grant.id, name=grant.name, arguments=grant.arguments, revoked=True, submission=command.submission, actor=command.actor
    )
    draft.write(revoked, command.at)
