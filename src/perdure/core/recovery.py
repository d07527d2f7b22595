"""What a new holder makes of what the old one left in flight. Recovery is one more command, `Claimed`, and one more rule."""

from __future__ import annotations

from msgspec.structs import replace

from .checkpoint import Operation, phase
from .draft import Draft
from .entries import Attempt, Failure, OperationEnded, Recovered, TurnAborted, TurnFailed
from .messages import part_digest
from .reports import Claimed
from .rules import LOST, UNKNOWN_AFTER_RESTART, ask_uncertain, close_operations, end_turn, end_uncertain, finish_batch, response_to

__all__ = ["RESTARTS", "recover"]

RESTARTS = 3
"""How many attempts of one operation may begin because of a restart."""

CRASH_LOOP = Failure(code="crash_loop", message="its process died every time it was started")


def recover(draft: Draft, command: Claimed) -> None:
    """Settle every operation of an older fence; on a takeover in mid-turn, say so."""
    if not command.takeover:
        return
    turn = draft.turn
    lost = [item for item in turn.operations if item.status == "unknown" or (item.status == "started" and item.fence < command.fence)]
    if command.on_restart == "stop" and (lost or phase(draft.checkpoint) == "tools"):
        attempts = [Attempt(operation=item.id, attempt=item.attempt, status="uncertain") for item in lost]
        close_operations(draft, command.at, UNKNOWN_AFTER_RESTART, LOST)
        end_turn(draft, TurnAborted, command.at, reason="restart")
        draft.write(Recovered(turn=turn.id, fence=command.fence, attempts=tuple(attempts)), command.at)
        return
    attempts = [_settle(draft, item, command.at) for item in lost]
    finish_batch(draft, command.at)
    if any(attempt.status == "failed" for attempt in attempts):
        close_operations(draft, command.at, UNKNOWN_AFTER_RESTART, LOST)
        end_turn(draft, TurnFailed, command.at, failure=CRASH_LOOP, reason=CRASH_LOOP.message)
    draft.write(Recovered(turn=turn.id, fence=command.fence, attempts=tuple(attempts)), command.at)
    if draft.checkpoint.turn is not None:
        for item in lost:
            if item.plan.ask_when_uncertain and not item.plan.reconcile and item.plan.effect == "external":
                ask_uncertain(draft, item, command.at)


def _settle(draft: Draft, item: Operation, at: int) -> Attempt:
    """What became of one lost attempt: an outcome that is unknown, or another attempt."""
    plan = item.plan
    attempt = Attempt(operation=item.id, attempt=item.attempt, status="uncertain")
    ended = OperationEnded(operation=item.id, attempt=item.attempt, status="uncertain", final=False, failure=LOST)
    if plan.effect == "external" and plan.kind == "tool":
        if plan.reconcile or item.status == "unknown":
            return replace(attempt, status="open")
        if plan.ask_when_uncertain:
            draft.write(ended, at)
        else:
            end_uncertain(draft, item, at, UNKNOWN_AFTER_RESTART, failure=LOST, can_tell=False)
        return attempt
    if item.restarts >= RESTARTS:
        ended = replace(ended, status="failed", final=True, failure=CRASH_LOOP)
        if plan.kind == "tool":
            response = response_to(plan, CRASH_LOOP.message, is_error=True)
            ended = replace(ended, parts=(response,), digest=part_digest(response))
        draft.write(ended, at)
        return replace(attempt, status="failed")
    if plan.kind == "tool":
        ended, attempt = replace(ended, status="cancelled"), replace(attempt, status="cancelled")
    draft.write(ended, at)
    return attempt
