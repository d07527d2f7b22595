"""The rules of `decider.TABLE`, each beside what it needs. A rule that writes nothing says *not now*: its command stays where it is."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import replace

from . import canonical
from .checkpoint import CALLS_LIMIT, GRANTS_LIMIT, Operation, Turn, startable
from .commands import AddNote, Answer, EditMessage, Interrupt, PostMessage, ReportResult, RevokeGrant, SelectRoute
from .commands import digest as digest_of_command
from .draft import Draft
from .entries import (
    ApprovalRequested,
    DefinitionChange,
    EffectSettled,
    Failure,
    GrantGiven,
    MessageAdded,
    NoteAdded,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    Plan,
    PrefixChanged,
    QueueChanged,
    RequestClosed,
    ResponseReference,
    RouteSelected,
    Status,
    TurnAborted,
    TurnCompleted,
    TurnEnded,
    TurnFailed,
    TurnLimited,
    TurnStarted,
    UncertainRequested,
)
from .errors import LimitExceeded, StaleRequest, SubmissionRejected
from .messages import Part, ToolCallResponse, digest_of, part_digest, visible
from .reports import (
    Accept,
    AttemptEnded,
    CallsPlanned,
    ChangeQueue,
    Fail,
    Finish,
    Guarded,
    PlannedCall,
    Promote,
    Reconciled,
    Redefined,
    Report,
    StartTools,
    StepPrepared,
    TimePassed,
)

ATTEMPTS = 5
"""How often a model call is tried when its provider fails."""

FIRST_DELAY_MS, LONGEST_DELAY_MS = 200, 30_000

UNKNOWN_LIVE = "execution interrupted; result unknown"
UNKNOWN_AFTER_RESTART = "execution interrupted; result unknown after restart"
NOT_EXECUTED = "not executed"

INTERRUPTED = Failure(code="interrupted")
LOST = Failure(code="restart")

RESTARTS = 3
"""How many attempts of one operation may begin because of a restart."""

CRASH_LOOP = Failure(code="crash_loop", message="its process died every time it was started")


def request_id(kind: str, operation: str, attempt: int, arguments: str) -> str:
    """A decision binds what the person saw: other arguments are another request."""
    return canonical.short_digest(kind, operation, attempt, arguments)[:16]


def approval_id(operation: str, plan: Plan) -> str:
    """An earlier effect that is shown with the call is part of what the person sees."""
    seen = plan.arguments if plan.match is None else f"{plan.arguments} {plan.match.seq}"
    return request_id("approval", operation, 1, seen)


def idempotency_key(store_id: str, session_id: str, operation: str) -> str:
    """The same after a restart, an approval or a month; another in a fork."""
    return "pd_" + canonical.short_digest(store_id, session_id, operation)[:32]


def retry_delay(attempt: int, hint: int | None) -> int:
    """Milliseconds before the attempt after ``attempt``; the provider's hint wins up to the ceiling."""
    return min(LONGEST_DELAY_MS, max(0, hint) if hint is not None else FIRST_DELAY_MS << (attempt - 1))


# ------------------------------------------------------------------------------------------------------------------ turns


def start_turn(draft: Draft, command: Accept) -> None:
    post = command.post
    draft.write(
        TurnStarted(
            submission=post.submission, agent=command.agent, definition=command.definition, route=command.route, limits=command.limits
        ),
        command.at,
    )
    _user_message(draft, post, "queue" if post.deliver == "steer" else post.deliver, command.at)


def steer(draft: Draft, command: Accept) -> None:
    """Joins between model calls, and beats the turn's end."""
    running = draft.turn.model
    if command.post.deliver == "steer" and (running is None or running.status != "started"):
        _user_message(draft, command.post, "steer", command.at)


def _user_message(draft: Draft, post: PostMessage, deliver: str, at: int) -> None:
    digest = digest_of("user", map(part_digest, visible(post.parts)))
    message = MessageAdded(
        role="user", parts=post.parts, digest=digest, submission=post.submission, author=post.author or post.actor, deliver=deliver
    )
    draft.write(message, at)


def prepare_step(draft: Draft, command: StepPrepared) -> None:
    turn, request = draft.turn, command.request
    running = turn.model
    if running is not None and running.status == "started":
        return
    if running is not None and running.plan.arguments == request.digest:
        draft.write(OperationStarted(operation=running.id, attempt=running.attempt + 1, fence=command.fence, request=request), command.at)
        return
    if running is not None:
        changed = Failure(code="request_changed", message="the request of this step changed before it was sent again")
        draft.write(OperationEnded(operation=running.id, attempt=0, status="cancelled", failure=changed), command.at)
    elif limit := _limit_reached(turn):
        end_turn(draft, TurnLimited, command.at, limit=limit, reason=f"limit reached: {limit}")
        return
    plan = Plan(kind="model", name=request.route, arguments=request.digest)
    draft.write(OperationStarted(operation=draft.turn.next_id(), attempt=1, fence=command.fence, plan=plan, request=request), command.at)


def _limit_reached(turn: Turn) -> str:
    limits = turn.limits
    if limits.steps is not None and turn.step >= limits.steps:
        return "steps"
    if limits.tokens is not None and turn.usage.total_tokens >= limits.tokens:
        return "tokens"
    return ""


def end_attempt(draft: Draft, command: AttemptEnded) -> None:
    operation = draft.operation(command.operation)
    held = operation is None or operation.status not in ("planned", "ready") or bool(operation.request)
    never_started = command.attempt == 0 and not held
    if operation is None or not (never_started or (operation.status == "started" and operation.attempt == command.attempt)):
        return
    if operation.plan.kind == "model":
        _end_model_attempt(draft, operation, command)
    else:
        _end_tool_attempt(draft, operation, command)


def _end_model_attempt(draft: Draft, operation: Operation, command: AttemptEnded) -> None:
    ended = OperationEnded(
        operation=operation.id,
        attempt=command.attempt,
        status=command.status,
        finish=command.finish,
        usage=command.usage,
        model=command.model,
        failure=command.failure,
        partial=command.partial,
        parts=command.parts,
        group=command.group if command.status == "succeeded" else "",
    )
    if command.status == "succeeded":
        _take_over_context(draft, command)
        digest = digest_of("assistant", map(part_digest, visible(command.parts)))
        receipt = draft.write(replace(ended, digest=digest), command.at)
        draft.write(MessageAdded(role="assistant", digest=digest, receipt=receipt), command.at)
    elif command.status == "failed" and command.retryable and operation.failures + 1 < ATTEMPTS:
        retry_at = command.at + retry_delay(operation.failures + 1, command.retry_after)
        draft.write(replace(ended, final=False, retry_at=retry_at), command.at)
    elif command.status == "failed" and command.fallback:
        draft.write(replace(ended, fallback=command.fallback), command.at)
    elif command.status == "failed":
        draft.write(ended, command.at)
        end_turn(draft, TurnFailed, command.at, failure=command.failure or Failure(code="model"))
    else:
        draft.write(replace(ended, final=command.final), command.at)


def _take_over_context(draft: Draft, command: AttemptEnded) -> None:
    """The first accepted output of another group owns the context: private parts before it are sent to nobody any more."""
    now = draft.checkpoint
    if now.private and now.owner_group != command.group:
        change = PrefixChanged(epoch=now.epoch + 1, reason="model_change", private_from=now.number)
        draft.write(change, command.at)


def _end_tool_attempt(draft: Draft, operation: Operation, command: AttemptEnded) -> None:
    if command.status == "uncertain":
        end_uncertain(draft, operation, command.at, UNKNOWN_LIVE, failure=command.failure, can_tell=operation.plan.reconcile)
    else:
        parts = command.parts
        if command.final and not parts:
            parts = _words(operation.plan, command.failure.message if command.failure else NOT_EXECUTED)
        end_call(draft, operation, command.at, command.status, parts, attempt=command.attempt, final=command.final, failure=command.failure)
    finish_batch(draft, command.at)


def end_uncertain(draft: Draft, operation: Operation, at: int, text: str, *, failure: Failure | None, can_tell: bool) -> None:
    """One meaning of *uncertain*, live or after a restart: its tool tells, or a person is asked, or model and person are told."""
    if can_tell or operation.plan.ask_when_uncertain:
        end_call(draft, operation, at, "uncertain", final=False, failure=failure)
        if not can_tell:
            ask_uncertain(draft, operation, at)
    else:
        end_call(draft, operation, at, "uncertain", _words(operation.plan, text), failure=failure)


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
) -> None:
    """A receipt of a tool call, with the one response that the model will read; of its latest attempt, unless ``attempt`` names another."""
    ended = OperationEnded(
        operation=operation.id,
        attempt=operation.attempt if attempt is None else attempt,
        status=status,
        final=final,
        parts=parts,
        digest=part_digest(parts[0]) if parts else "",
        failure=failure,
        retry_at=retry_at,
    )
    draft.write(ended, at)


def _words(plan: Plan, text: str) -> tuple[Part, ...]:
    """An error response."""
    return (response_to(plan, text, is_error=True),)


def response_to(plan: Plan, response: Any, *, is_error: bool) -> ToolCallResponse:
    return ToolCallResponse(id=plan.call, name=plan.name, response=response, is_error=is_error)


def finish_batch(draft: Draft, at: int) -> None:
    """Once every call has its response, they become one tool message, in call order."""
    turn = draft.turn
    tools = turn.tools
    if tools and not turn.unplanned and all(item.status == "ended" for item in tools):
        responses = tuple(ResponseReference(id=item.plan.call, receipt=item.receipt) for item in tools)
        digest = digest_of("tool", (item.response for item in tools))
        draft.write(MessageAdded(role="tool", digest=digest, responses=responses), at)


def plan_calls(draft: Draft, command: CallsPlanned) -> None:
    turn, at = draft.turn, command.at
    if not turn.unplanned:
        return
    limit = turn.limits.tool_calls
    if limit is not None and turn.tool_calls + len(command.calls) > limit:
        _drop_calls(draft, at, "the turn's limit of tool calls is reached", Failure(code="limit"))
        finish_batch(draft, at)
        end_turn(draft, TurnLimited, at, limit="tool_calls", reason="limit reached: tool_calls")
        return
    if len(command.calls) > CALLS_LIMIT:
        raise AssertionError("an answer with too many calls is no answer")
    answered = ("reject", "replay")
    operations = tuple(
        Operation(
            id=turn.next_id(index),
            plan=call.plan,
            status="ended" if call.verdict in answered else "planned",
            request="open" if call.verdict == "ask" else "",
        )
        for index, call in enumerate(command.calls)
    )
    at_once = {item.id for item in startable(replace(turn, operations=operations, unplanned=()))}
    for item in operations:
        if item.id in at_once:
            draft.write(OperationStarted(operation=item.id, attempt=1, fence=command.fence, plan=item.plan), at)
        else:
            draft.write(OperationPlanned(operation=item.id, plan=item.plan), at)
    for item, call in zip(operations, command.calls, strict=True):
        if call.verdict in answered:
            failure = call.failure
            parts = call.parts if failure is None else _words(call.plan, failure.message)
            end_call(draft, item, at, "succeeded" if failure is None else "failed", parts, attempt=0, failure=failure)
    finish_batch(draft, at)
    for item, call in zip(operations, command.calls, strict=True):
        if call.verdict == "ask":
            ask_approval(draft, item.id, call, at)


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
    for item in startable(turn) if turn is not None else ():
        if item.not_before > command.at:
            continue
        plan = command.plans.get(item.id)
        draft.write(OperationStarted(operation=item.id, attempt=item.attempt + 1, fence=command.fence, plan=plan), command.at)


def answer(draft: Draft, command: Answer) -> None:
    operation = next((item for item in draft.turn.requests if item.request == command.request_id), None)
    if operation is None:
        refuse_answer(draft, command)
    else:
        _close_request(draft, operation, command, by="answer")


def _close_request(draft: Draft, operation: Operation, command: Answer, *, by: Literal["answer", "deadline"]) -> None:
    plan, at = operation.plan, command.at
    uncertain = operation.status == "asking"
    if command.decision in (("approve", "grant") if uncertain else ("settle", "retry")):
        wanted = "settle, retry, deny or abort" if uncertain else "approve, grant, deny or abort"
        raise SubmissionRejected(
            f"request {command.request_id} can't be answered with {command.decision!r}", hint=wanted, reason="wrong_decision"
        )
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
            _abort(draft, at, command.reason or "approval aborted", actor=command.actor)
            return
        case "settle":
            response = response_to(plan, command.result, is_error=command.is_error)
            _settle(draft, operation.id, operation.attempt, operation.receipt, (response,), command)
        case "deny" if uncertain:
            end_call(draft, operation, at, "uncertain", _words(plan, UNKNOWN_LIVE))
        case "deny":
            words = "nobody approved it in time" if by == "deadline" else "a person denied it"
            text = f"{NOT_EXECUTED}: {words}" + (f": {command.reason}" if command.reason else "")
            _never_ran(draft, operation, at, text, Failure(code="denied", message=command.reason))
    finish_batch(draft, at)


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


def arguments_digest(arguments: Any) -> str:
    """What a decision and an operation know of a call's arguments."""
    return canonical.digest(canonical.encode(arguments))[:32]


def _settle(draft: Draft, operation: str, attempt: int, receipt: int, parts: tuple[Part, ...], command: Answer | ReportResult) -> None:
    settled = EffectSettled(
        operation=operation,
        attempt=attempt,
        receipt=receipt,
        status="failed" if command.is_error else "succeeded",
        parts=parts,
        digest=part_digest(parts[0]),
        actor=command.actor,
        submission=command.submission,
    )
    draft.write(settled, command.at)


def report(draft: Draft, command: Report) -> None:
    """A late result is the receipt of an operation that is still open, and settles one that ended uncertain."""
    late = command.command
    operation = draft.operation(late.operation)
    if operation is None or operation.status == "ended":
        _settle_late(draft, command)
        return
    awaited = operation.plan.kind == "tool" and operation.status in ("started", "unknown", "asking")
    if operation.attempt != late.attempt or not awaited:
        raise StaleRequest(f"attempt {late.attempt} of {late.operation} is not the one that is awaited", hint="nothing was changed")
    if operation.status == "asking":
        close = RequestClosed(
            request_id=operation.request, operation=operation.id, decision="settle", actor=late.actor, submission=late.submission
        )
        draft.write(close, command.at)
        _settle(draft, operation.id, operation.attempt, operation.receipt, command.parts, late)
    else:
        end_call(draft, operation, command.at, "failed" if late.is_error else "succeeded", command.parts)
    finish_batch(draft, command.at)


def _settle_late(draft: Draft, command: Report) -> None:
    late, receipt = command.command, command.receipt
    if receipt is None:
        raise StaleRequest(f"the outcome of {late.operation} attempt {late.attempt} is known already", hint="nothing was changed")
    _settle(draft, late.operation, late.attempt, receipt.seq, command.parts, late)
    response = command.parts[0]
    name = response.name if isinstance(response, ToolCallResponse) else receipt.operation
    outcome = "failed" if late.is_error else "succeeded"
    told = canonical.encode(late.result).decode()
    shown = told if len(told) <= 2000 else told[:2000] + " …"
    text = f"The outcome of an earlier call of {name}, reported as unknown, is known now: it {outcome}. Result: {shown}"
    draft.write(NoteAdded(text=text, operation=late.operation), command.at)


def reconcile(draft: Draft, command: Reconciled) -> None:
    operation = draft.operation(command.operation)
    if operation is None or operation.status != "unknown":
        return
    match command.outcome:
        case "done":
            end_call(draft, operation, command.at, "succeeded", command.parts)
        case "not_done" if operation.restarts > RESTARTS:
            end_crash_loop(draft, operation, command.at)
            finish_batch(draft, command.at)
            fail_turn(draft, command.at, CRASH_LOOP, UNKNOWN_LIVE)
            return
        case "not_done" if operation.failures + 1 >= ATTEMPTS:
            words = f"{NOT_EXECUTED}: {operation.failures + 1} attempts had no effect"
            gave_up = Failure(code="not_done", message=words)
            end_call(draft, operation, command.at, "failed", _words(operation.plan, words), failure=gave_up)
        case "not_done":
            nothing = Failure(code="not_done", message="the attempt had no effect")
            # The first time at once, since a crash is the usual cause; then as patiently as with a provider.
            retry_at = command.at + retry_delay(operation.failures, None) if operation.failures else 0
            end_call(draft, operation, command.at, "cancelled", final=False, failure=nothing, retry_at=retry_at)
        case "unknown":
            text = UNKNOWN_AFTER_RESTART if command.fence > operation.fence else UNKNOWN_LIVE
            failure = Failure(code="unknown", message="nobody can tell")
            end_uncertain(draft, operation, command.at, text, failure=failure, can_tell=False)
    finish_batch(draft, command.at)


def end_crash_loop(draft: Draft, operation: Operation, at: int) -> None:
    """No attempt more: what died with its process every time is not started again."""
    parts = _words(operation.plan, CRASH_LOOP.message) if operation.plan.kind == "tool" else ()
    end_call(draft, operation, at, "failed", parts, failure=CRASH_LOOP)


def pass_time(draft: Draft, command: TimePassed) -> None:
    for operation in draft.turn.requests:
        if draft.checkpoint.turn is not None and 0 < operation.deadline <= command.at:
            default = Answer(request_id=operation.request, decision=operation.default or "deny", at=command.at)  # type: ignore[arg-type]
            _close_request(draft, operation, default, by="deadline")


def interrupt(draft: Draft, command: Interrupt) -> None:
    if command.turn and command.turn != draft.turn.id:
        raise SubmissionRejected(f"turn {command.turn} is over", hint=f"turn {draft.turn.id} runs now", reason="stale_turn")
    _abort(draft, command.at, command.reason or "interrupted", interrupt=command.submission, actor=command.actor)


def _abort(draft: Draft, at: int, reason: str, **asked: str) -> None:
    close_operations(draft, at, UNKNOWN_LIVE)
    end_turn(draft, TurnAborted, at, reason=reason, **asked)


def fail(draft: Draft, command: Fail) -> None:
    fail_turn(draft, command.at, command.failure, UNKNOWN_LIVE)


def fail_turn(draft: Draft, at: int, why: Failure, unknown_text: str, failure: Failure = INTERRUPTED) -> None:
    """End the turn as failed, and everything that is open in it with the turn."""
    close_operations(draft, at, unknown_text, failure)
    end_turn(draft, TurnFailed, at, failure=why, reason=why.message)


def close_operations(draft: Draft, at: int, unknown_text: str, failure: Failure = INTERRUPTED) -> None:
    """Give every open operation of the step its end, so that no call is left without a response."""
    for item in draft.turn.requests:
        closed = RequestClosed(request_id=item.request, operation=item.id, decision="abort", by="turn")
        draft.write(closed, at)
    for item in draft.turn.operations:
        if item.status == "ended":
            continue
        if item.plan.kind == "model":
            started = item.status == "started"
            lost: Status = "uncertain" if started and failure is LOST else "cancelled"
            ended = OperationEnded(operation=item.id, attempt=item.attempt if started else 0, status=lost, failure=failure)
            draft.write(ended, at)
        elif item.status == "planned" or (item.status == "ready" and item.plan.effect == "external"):
            # An external call is only ready again once somebody knew that it had not happened; others may have been cut off.
            _never_ran(draft, item, at, NOT_EXECUTED, failure)
        else:
            external = item.plan.effect == "external" or item.status in ("unknown", "asking")
            end_call(draft, item, at, "uncertain" if external else "cancelled", _words(item.plan, unknown_text), failure=failure)
    _drop_calls(draft, at, "", failure)
    finish_batch(draft, at)


def _drop_calls(draft: Draft, at: int, why: str, failure: Failure) -> None:
    """Calls that were asked for and not planned are answered too."""
    for call in draft.turn.unplanned:
        identity = draft.turn.next_id()
        plan = Plan(kind="tool", name=call.name, call=call.id)
        draft.write(OperationPlanned(operation=identity, plan=plan), at)
        text = f"{NOT_EXECUTED}: {why}" if why else NOT_EXECUTED
        _never_ran(draft, Operation(id=identity, plan=plan), at, text, failure)


def _never_ran(draft: Draft, operation: Operation, at: int, text: str, failure: Failure) -> None:
    end_call(draft, operation, at, "cancelled", _words(operation.plan, text), attempt=0, failure=failure)


def finish(draft: Draft, command: Finish) -> None:
    end_turn(draft, TurnCompleted, command.at, output=draft.turn.output)


def end_turn(draft: Draft, ending: type[TurnEnded], at: int, **facts: Any) -> None:
    turn = draft.turn
    ended = ending(turn=turn.id, submission=turn.submission, steps=turn.step, tool_calls=turn.tool_calls, usage=turn.usage, **facts)
    draft.write(ended, at)


def redefine(draft: Draft, command: Redefined) -> None:
    turn = draft.turn
    draft.write(DefinitionChange(agent=turn.agent, old=turn.definition, new=command.new, difference=command.difference), command.at)


def promote(draft: Draft, command: Promote) -> None:
    draft.write(QueueChanged(submission=command.submission, change="promoted", deliver="queue"), command.at)


def change_queue(draft: Draft, command: ChangeQueue) -> None:
    asked = command.command
    if not command.deliver:
        raise SubmissionRejected(f"the message {asked.message!r} doesn't wait any more", hint="nothing was changed", reason="delivered")
    change: Literal["edited", "withdrawn"] = "edited" if isinstance(asked, EditMessage) else "withdrawn"
    changed = QueueChanged(
        submission=asked.message,
        change=change,
        deliver=command.deliver,
        content=command.content,
        by=asked.submission,
        digest=digest_of_command(asked),
        actor=asked.actor,
    )
    draft.write(changed, command.at)


def select_route(draft: Draft, command: SelectRoute) -> None:
    draft.write(RouteSelected(route=command.route, submission=command.submission, actor=command.actor), command.at)


def refuse_route(draft: Draft, command: SelectRoute) -> None:
    raise SubmissionRejected("a turn is running", hint="select the route when it is over", reason="busy")


def revoke_grant(draft: Draft, command: RevokeGrant) -> None:
    grant = next((item for item in draft.checkpoint.grants if item.id == command.grant), None)
    if grant is None:
        raise SubmissionRejected(f"there is no grant {command.grant!r}", hint="nothing was changed", reason="unknown_grant")
    revoked = GrantGiven(
        grant=grant.id, name=grant.name, arguments=grant.arguments, revoked=True, submission=command.submission, actor=command.actor
    )
    draft.write(revoked, command.at)


def add_note(draft: Draft, command: AddNote) -> None:
    draft.write(NoteAdded(text=command.text, submission=command.submission, actor=command.actor), command.at)


def refuse_interrupt(draft: Draft, command: Interrupt) -> None:
    raise SubmissionRejected("no turn is running", hint="there is nothing to interrupt", reason="idle")


def refuse_answer(draft: Draft, command: Answer) -> None:
    raise StaleRequest(f"request {command.request_id} is not open", hint="`perdure show` lists what was asked and answered")
