"""Where a session stands, and what should be running in it: derived from its checkpoint, never stored."""

from __future__ import annotations

from .checkpoint import Checkpoint, Operation, Phase, Turn
from .ids import call_of
from .records import CALL_KINDS, MODEL_KINDS

__all__ = [
    "asleep",
    "backing_off",
    "children",
    "due",
    "phase",
    "reviewing",
    "startable",
]


def phase(checkpoint: Checkpoint) -> Phase:
    """Where the session stands; derived, never stored."""
    turn = checkpoint.turn
    if checkpoint.halted:
        return "halted"
    if checkpoint.archived:
        return "archived"
    if turn is None:
        return "idle"
    if turn.completing:
        return "completing"
    if turn.unplanned:
        return "tools"
    called, waits = set(), False
    for item in turn.operations:
        if item.plan.kind in CALL_KINDS:
            called.add(item.status)
        waits = waits or item.status == "awaiting" or bool(item.request)
    if called and ("started" in called or "unknown" in called or called == {"ended"} or startable(turn)):
        return "tools"
    return "waiting" if waits else "model"


def asleep(turn: Turn) -> frozenset[str]:
    """The calls that wait until a time, in a step of theirs."""
    return frozenset([call_of(item.id) for item in turn.operations if item.status == "awaiting" and item.plan.kind == "step"])


def backing_off(checkpoint: Checkpoint, now: int) -> int:
    """Until when (ms) the turn's model may not be called again, whose last attempt failed; 0 if there is anything else to do now."""
    turn = checkpoint.turn
    if turn is None or phase(checkpoint) != "model":
        return 0
    calls = [item for item in turn.operations if item.status != "ended" and item.plan.kind in MODEL_KINDS]
    until = max([item.not_before for item in calls if item.status == "ready"], default=0)
    return until if until > now and all(item.status == "ready" for item in calls) else 0


def children(checkpoint: Checkpoint) -> dict[str, str]:
    """The calls of agents that are not over, in the background too, and whom each has called."""
    turn = checkpoint.turn
    called = {item.id: item.plan.agent for item in (turn.awaiting if turn is not None else ()) if item.plan.kind == "child"}
    return called | {item.operation: item.agent for item in checkpoint.background}


def startable(turn: Turn) -> tuple[Operation, ...]:
    """The tool calls that may start now: none while an approval is open, an exclusive one only alone, the others not past one."""
    tools = turn.tools
    if turn.unplanned or any(item.request and item.status != "asking" for item in tools):
        return ()
    found: list[Operation] = []
    sleepers = asleep(turn)
    for index, item in enumerate(tools):
        may_start = item.status in ("planned", "ready") and item.id not in sleepers
        if may_start and not item.plan.exclusive:
            found.append(item)
        elif item.plan.exclusive and item.status != "ended":
            if may_start and all(earlier.status == "ended" for earlier in tools[:index]):
                found.append(item)
            break
    return tuple(found)


def reviewing(turn: Turn) -> bool:
    """Whether every call of the step has its result, and the message that tells them waits for the agent's own code."""
    tools = turn.tools
    return bool(tools) and not turn.unplanned and all(item.status == "ended" for item in tools)


def due(checkpoint: Checkpoint) -> tuple[Operation, ...]:
    """What should be running now: started attempts, and for those of status ``unknown`` their tool's ``reconcile``.

    What extensions do outside is not among it: their own code does it, when it is asked again.
    """
    turn = checkpoint.turn
    if turn is None:
        return ()
    return tuple([item for item in turn.operations if item.status in ("started", "unknown") and item.plan.kind != "step"])
