"""What attempts come to: receipts of models and tools, retries, reconciled and late results."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from .. import canonical
from ..checkpoint import Operation
from ..context import cut
from ..draft import Draft
from ..entries import MessageAdded, NoteAdded, OperationEnded, RequestClosed, TurnFailed
from ..errors import ProviderUnavailable, RateLimited, StaleRequest
from ..messages import ToolCallResponse, said_digest
from ..records import MODEL_KINDS, Failure
from ..reports import AttemptEnded, Reconciled, Report
from . import compaction, memory, output
from .endings import (
    CRASH_LOOP,
    NOT_EXECUTED,
    NOT_MADE,
    RESTARTS,
    UNKNOWN_AFTER_RESTART,
    UNKNOWN_LIVE,
    close_steps,
    drop_calls,
    end_call,
    end_crash_loop,
    end_turn,
    end_uncertain,
    error_response,
    fail_turn,
    finish_batch,
    settle,
    skip_calls,
    unknown_live,
)
from .routes import take_over_context

ATTEMPTS = 15
"""How often a model call is tried whose provider is away, if nobody says otherwise: over 6.7 minutes, as outages may well take."""

FEW_ATTEMPTS = 5
"""The same where another route may answer, or the provider is there and its answers are no good; and how often a tool is tried whose
attempts had no effect: over 3 seconds."""

AWAY = (RateLimited.code, ProviderUnavailable.code)
"""Failures that pass with time, and cost nothing."""

FIRST_DELAY_MS, LONGEST_DELAY_MS = 200, 60_000

LONGEST_HINT_MS = 300_000
"""For longer than this a provider's hint isn't followed, if nobody says otherwise."""

FALLBACK_HINT_MS = 5_000
"""A provider that asks for a longer pause isn't waited for where another route may answer."""


def retry_delay(attempt: int, hint: int | None, longest: int = LONGEST_HINT_MS) -> int:
    """Milliseconds before the attempt after ``attempt``; the provider's hint wins, up to ``longest``."""
    return min(longest, max(0, hint)) if hint is not None else min(LONGEST_DELAY_MS, FIRST_DELAY_MS << (attempt - 1))


def end_attempt(draft: Draft, command: AttemptEnded) -> None:
    operation = draft.operation(command.operation)
    held = operation is None or operation.status not in ("planned", "ready") or bool(operation.request)
    never_started = command.attempt == 0 and not held
    if operation is None or not (never_started or (operation.status == "started" and operation.attempt == command.attempt)):
        return
    if operation.plan.kind in MODEL_KINDS:
        _end_model_attempt(draft, operation, command)
    elif operation.plan.kind == "step":
        end_call(draft, operation, command.at, command.status, command.parts, final=command.final, failure=command.failure)
    else:
        _end_tool_attempt(draft, operation, command)


def _end_model_attempt(draft: Draft, operation: Operation, command: AttemptEnded) -> None:
    """What a model was asked for is taken; without an answer it is asked again, another one is, or nobody is."""
    at, ended, retry_at = command.at, _model_receipt(command), _retry_at(operation, command)
    if command.status == "succeeded":
        _ANSWERED[operation.plan.kind](draft, operation, command, ended)
    elif command.status != "failed":
        draft.write(replace(ended, final=command.final), at)
    elif retry_at is not None:
        draft.write(replace(ended, final=False, retry_at=retry_at), at)
    elif command.compact and not draft.turn.squeeze:
        draft.write(replace(ended, compact=True), at)
    elif command.fallback:
        draft.write(replace(ended, fallback=command.fallback), at)
    else:
        draft.write(ended, at)
        _give_up(draft, operation, command)


def _model_receipt(command: AttemptEnded) -> OperationEnded:
    """What every receipt of a model's attempt says, whatever it was asked for."""
    return OperationEnded(
        operation=command.operation,
        attempt=command.attempt,
        status=command.status,
        finish=command.finish,
        usage=command.usage,
        cost=command.cost,
        unsent=command.unsent,
        model=command.model,
        failure=command.failure,
        partial=command.partial,
        parts=command.parts,
        group=command.group if command.status == "succeeded" else "",
    )


def _take_answer(draft: Draft, operation: Operation, command: AttemptEnded, ended: OperationEnded) -> None:
    """The step's answer: a message, unless it is looked at first."""
    take_over_context(draft, command)
    digest = said_digest("assistant", command.parts)
    receipt = draft.write(replace(ended, digest=digest), command.at)
    close_steps(draft, command.at)
    if draft.turn.candidate is None:
        draft.write(MessageAdded(role="assistant", digest=digest, receipt=receipt), command.at)
    if draft.turn.unplanned and (why := NOT_MADE.get(command.finish)) is not None:
        drop_calls(draft, command.at, why.message, why)
        finish_batch(draft, command.at)


_ANSWERED: Mapping[str, Callable[[Draft, Operation, AttemptEnded, OperationEnded], None]] = {
    "model": _take_answer,
    "compaction": compaction.take_notes,
    "memory": memory.take_memories,
    "repair": output.take_correction,
}
"""What becomes of an answer, by what the model was asked for."""

_UNANSWERED = {"compaction": "no notes could be written", "repair": "the answer could not be corrected"}


def _give_up(draft: Draft, operation: Operation, command: AttemptEnded) -> None:
    """Nobody answers: only what would have been remembered can be done without."""
    if operation.plan.kind == "memory":
        memory.pass_over(draft, operation, command)
        return
    why, words = command.failure or Failure(code="model"), _UNANSWERED.get(operation.plan.kind)
    end_turn(draft, TurnFailed, command.at, failure=why, reason=f"{words}: {why.message}" if words else "")


def _retry_at(operation: Operation, command: AttemptEnded) -> int | None:
    """When a model call that failed may be tried again; None if it has been often enough, or can't help."""
    away = command.failure is not None and command.failure.code in AWAY
    most = command.attempts or (ATTEMPTS if away and not command.fallback else FEW_ATTEMPTS)
    if not command.retryable or operation.failures + 1 >= most:
        return None
    longest = LONGEST_HINT_MS if command.longest_wait is None else command.longest_wait
    delay = retry_delay(operation.failures + 1, command.retry_after, longest)
    if command.fallback and command.retry_after is not None and delay > FALLBACK_HINT_MS:
        return None
    return command.at + delay


def _end_tool_attempt(draft: Draft, operation: Operation, command: AttemptEnded) -> None:
    if command.status == "uncertain":
        text = unknown_live(command.failure)
        end_uncertain(draft, operation, command.at, text, failure=command.failure, can_tell=operation.plan.reconcile)
    else:
        parts = command.parts
        if command.final and not parts:
            parts = error_response(operation.plan, command.failure.message if command.failure else NOT_EXECUTED)
        end_call(draft, operation, command.at, command.status, parts, attempt=command.attempt, final=command.final, failure=command.failure)
        if operation.plan.ends and command.status == "succeeded":
            skip_calls(draft, command.at)
    finish_batch(draft, command.at)


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
        case "not_done" if operation.failures + 1 >= FEW_ATTEMPTS:
            words = f"{NOT_EXECUTED}: {operation.failures + 1} attempts had no effect"
            gave_up = Failure(code="not_done", message=words)
            end_call(draft, operation, command.at, "failed", error_response(operation.plan, words), failure=gave_up)
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


def report(draft: Draft, command: Report) -> None:
    """A late result is the receipt of an operation that is still open, and settles one that ended uncertain."""
    late = command.command
    operation = draft.operation(late.operation)
    if operation is None or operation.status == "ended":
        _settle_late(draft, command)
        return
    awaited = operation.plan.kind in ("tool", "step") and operation.status in ("started", "unknown", "asking") and not operation.is_question
    if operation.attempt != late.attempt or not awaited:
        raise StaleRequest(f"attempt {late.attempt} of {late.operation} is not the one that is awaited", hint="nothing was changed")
    if operation.status == "asking":
        close = RequestClosed(
            request_id=operation.request, operation=operation.id, decision="settle", actor=late.actor, submission=late.submission
        )
        draft.write(close, command.at)
        settle(draft, operation.id, operation.attempt, operation.receipt, command.parts, late)
    else:
        end_call(draft, operation, command.at, "failed" if late.is_error else "succeeded", command.parts)
    finish_batch(draft, command.at)


def _settle_late(draft: Draft, command: Report) -> None:
    late, receipt = command.command, command.receipt
    if receipt is None:
        words = f"the outcome of {late.operation} attempt {late.attempt} is known already, or was never waited for"
        raise StaleRequest(words, hint="nothing was changed")
    settle(draft, late.operation, late.attempt, receipt.seq, command.parts, late)
    response = command.parts[0]
    name = response.name if isinstance(response, ToolCallResponse) else receipt.operation
    outcome = "failed" if late.is_error else "succeeded"
    shown = cut(canonical.as_text(late.result))
    text = f"The outcome of an earlier call of {name}, reported as unknown, is known now: it {outcome}. Result: {shown}"
    draft.write(NoteAdded(text=text, operation=late.operation), command.at)
