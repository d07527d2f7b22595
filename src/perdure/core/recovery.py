"""What a new holder makes of what the old one left in flight. Recovery is one more command, `Claimed`, and one more rule."""

from __future__ import annotations

from msgspec.structs import replace

from .checkpoint import Operation
from .draft import Draft
from .effects import may_be_unknown
from .entries import OperationEnded, Recovered, TurnAborted
from .phase import phase
from .records import MODEL_KINDS, Attempt
from .reports import Claimed
from .rules.endings import (
    CRASH_LOOP,
    LOST,
    RESTARTS,
    UNKNOWN_AFTER_RESTART,
    ask_uncertain,
    close_operations,
    end_crash_loop,
    end_turn,
    end_uncertain,
    fail_turn,
    finish_batch,
)

__all__ = ["recover"]


def recover(draft: Draft, command: Claimed) -> None:
    """Settle every operation of an older fence; on a takeover in mid-turn, say so."""
    if not command.takeover:
        return
    turn, before = draft.turn, len(draft.entries)
    stand = tuple(item.receipt for item in turn.operations if item.status == "ended" and item.receipt)
    lost = [item for item in turn.operations if item.status == "unknown" or (item.status == "started" and item.fence < command.fence)]
    if command.on_restart == "stop" and (lost or phase(draft.checkpoint) == "tools"):
        close_operations(draft, command.at, UNKNOWN_AFTER_RESTART, LOST)
        end_turn(draft, TurnAborted, command.at, reason="restart")
    else:
        crashed = [_settle(draft, item, command.at) for item in lost]
        finish_batch(draft, command.at)
        if any(crashed):
            fail_turn(draft, command.at, CRASH_LOOP, UNKNOWN_AFTER_RESTART, LOST)
    ended = {entry.operation: entry.status for entry in draft.entries[before:] if isinstance(entry, OperationEnded)}
    attempts = tuple(Attempt(operation=item.id, attempt=item.attempt, status=ended.get(item.id, "open")) for item in lost)
    draft.write(Recovered(turn=turn.id, fence=command.fence, attempts=attempts, receipts=stand), command.at)
    still = draft.checkpoint.turn
    if still is not None and not still.ending:
        for item in lost:
            plan = item.plan
            if plan.ask_when_uncertain and not plan.reconcile and not plan.resumable and plan.effect == "external":
                ask_uncertain(draft, item, command.at)


def _settle(draft: Draft, item: Operation, at: int) -> bool:
    """What became of one lost attempt: an outcome that is unknown, or another attempt. True: there were too many."""
    plan = item.plan
    ended = OperationEnded(operation=item.id, attempt=item.attempt, status="uncertain", final=False, failure=LOST)
    if plan.effect == "external" and plan.kind == "tool" and not plan.resumable:
        if plan.reconcile or item.status == "unknown":
            return False
        if plan.ask_when_uncertain:
            draft.write(ended, at)
        else:
            end_uncertain(draft, item, at, UNKNOWN_AFTER_RESTART, failure=LOST, can_tell=False)
        return False
    if plan.effect == "external" and plan.kind == "step":
        if not plan.reconcile and item.status != "unknown":
            draft.write(replace(ended, final=True), at)
        return False
    if item.restarts >= RESTARTS:
        end_crash_loop(draft, item, at, unknown=plan.kind == "tool" and may_be_unknown(plan))
        return True
    draft.write(ended if plan.kind in MODEL_KINDS else replace(ended, status="cancelled"), at)
    return False
