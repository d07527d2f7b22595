"""Questions to the outside and their answers: decisions, deadlines, grants."""

from __future__ import annotations

from typing import Literal

from ..checkpoint import GRANTS_LIMIT, Operation
from ..commands import Answer, RevokeGrant
from ..draft import Draft
from ..entries import GrantGiven, MessageAdded, NoteAdded, RequestClosed
from ..errors import LimitExceeded, StaleRequest, SubmissionRejected
from ..finishing import NOBODY_ANSWERED
from ..ids import arguments_digest, request_id
from ..messages import Text, said_digest
from ..records import Failure, Plan
from ..reports import TimePassed
from .children import pass_timers
from .endings import NOT_EXECUTED, UNKNOWN_LIVE, abort, end_call, error_response, finish_batch, never_ran, response_to, settle
from .turns import complete


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
    if operation.is_question:
        asked, wanted = "the user something", "reply, deny (no answer) or abort"
        allowed: tuple[str, ...] = ("reply", "deny", "abort")
    elif operation.status == "asking":
        asked, wanted = "what became of a call", "settle, retry, deny (leave it unknown) or abort"
        allowed = ("settle", "retry", "deny", "abort")
    else:
        asked, wanted = "whether a call may run", "approve, grant, deny or abort"
        allowed = ("approve", "grant", "deny", "abort")
    if command.decision not in allowed:
        raise SubmissionRejected(
            f"request {command.request_id} can't be answered with {command.decision!r}: it asks {asked}",
            hint=f"answer with {wanted}",
            reason="wrong_decision",
        )


def _close_request(draft: Draft, operation: Operation, command: Answer, *, by: Literal["answer", "deadline"]) -> None:
    check_decision(operation, command)
    plan, at = operation.plan, command.at
    uncertain = operation.status == "asking" and not operation.is_question
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
    if operation.is_question and command.decision != "abort":
        _answered(draft, operation, command, by)
        return
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


def _answered(draft: Draft, operation: Operation, command: Answer, by: Literal["answer", "deadline"]) -> None:
    """What the user said, or that nobody did: a message behind the answer that asked, or the result of the call that did."""
    plan, at, called = operation.plan, command.at, operation.plan.kind == "tool"
    silent = "nobody answered in time" if by == "deadline" else "the user doesn't answer"
    silent += f": {command.reason}" if command.reason else ""
    if command.decision == "reply" and by == "deadline":
        draft.write(NoteAdded(text=NOBODY_ANSWERED, continues=True), at)
    elif command.decision == "reply" and called:
        end_call(draft, operation, at, "succeeded", (response_to(plan, command.result, is_error=False),), attempt=0)
    elif command.decision == "reply":
        parts = (Text(content=command.result),)
        digest = said_digest("user", parts)
        draft.write(MessageAdded(role="user", parts=parts, digest=digest, submission=command.submission, author=command.actor), at)
    elif called:
        unanswered = Failure(code="unanswered", message=silent)
        end_call(draft, operation, at, "failed", error_response(plan, silent), attempt=0, failure=unanswered)
    else:
        complete(draft, at, silent)
    if called:
        finish_batch(draft, at)


def pass_time(draft: Draft, command: TimePassed) -> None:
    for operation in draft.turn.requests:
        turn = draft.checkpoint.turn
        if turn is not None and not turn.ending and 0 < operation.deadline <= command.at:
            default = Answer(request_id=operation.request, decision=operation.default or "deny", at=command.at)  # type: ignore[arg-type]
            _close_request(draft, operation, default, by="deadline")
    pass_timers(draft, command.at)


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
