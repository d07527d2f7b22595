"""What may happen next: the whole protocol of a session is one table, situation × command → rule.

Everything that affects a session stands in `rules` and `recovery`, and says so by writing entries; nothing there knows who asks, what
time it really is, or what a tool does. A rule that writes nothing says *not now*: its command stays where it is.

    decide(checkpoint, command) -> entries          here; raises a `Refused` if the state says no
    evolve(checkpoint, entry) -> checkpoint         in `evolve`
    due(checkpoint) -> what should be running       in `phase`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .checkpoint import Checkpoint, Phase
from .commands import AddNote, Answer, Archive, Describe, Halt, Interrupt, Repair, Revive, RevokeGrant, SelectRoute
from .draft import Draft
from .entries import Entry
from .phase import phase
from .recovery import recover
from .reports import (
    Accept,
    AttemptEnded,
    BeginStep,
    CallAccepted,
    CallsPlanned,
    ChangeQueue,
    Claimed,
    CommandDone,
    CompactionAccepted,
    Continue,
    EditTranscript,
    EndEarly,
    EndTurn,
    ErrandsDone,
    Extend,
    Fail,
    Finish,
    Guarded,
    HandOver,
    Outcome,
    OutputAccepted,
    OutputRefused,
    Parked,
    Prepared,
    Promote,
    Reconciled,
    Redact,
    Redefined,
    Reject,
    Report,
    ResultsReviewed,
    RouteGiven,
    StartTools,
    StopTurn,
    TimePassed,
)
from .rules import (
    about,
    archive,
    attempts,
    budgets,
    calls,
    children,
    compaction,
    extensions,
    halting,
    output,
    queue,
    requests,
    routes,
    transcripts,
    turns,
)

__all__ = ["TABLE", "apply", "decide", "impossible", "not_now"]

Rule: TypeAlias = Callable[[Draft, Any], None]
Row: TypeAlias = tuple[Rule, ...]


def not_now(draft: Draft, command: Any) -> None:
    """Nothing happens, and the command stays where it is."""


def impossible(draft: Draft, command: Any) -> None:
    """Only a faulty driver gets here."""
    raise AssertionError(f"{type(command).__name__} can't happen while the session is {phase(draft.checkpoint)}")


def anywhere(rule: Rule) -> Row:
    """The same wherever the session stands."""
    return (rule,) * len(_LIVE)


def in_turn(rule: Rule, *, idle: Rule = impossible) -> Row:
    """The same wherever a turn stands."""
    return only("idle", idle, otherwise=rule)


def only(situation: Phase, rule: Rule, *, otherwise: Rule = impossible) -> Row:
    """What happens in one situation alone."""
    return tuple(rule if situation == other else otherwise for other in _LIVE)


_LIVE: tuple[Phase, ...] = ("idle", "model", "tools", "waiting", "completing")
_BUSY = transcripts.refuse_while_running

_ROWS: dict[type, Row] = {
    # idle, model, tools, waiting, completing
    Accept: (turns.start_turn, turns.steer, not_now, not_now, turns.steer),
    Guarded: (impossible, impossible, calls.guard, calls.guard, impossible),
    # What people ask for.
    Interrupt: in_turn(turns.interrupt, idle=turns.refuse_interrupt),
    Answer: in_turn(requests.answer, idle=requests.refuse_answer),
    Report: anywhere(attempts.report),
    SelectRoute: only("idle", routes.select_route, otherwise=routes.refuse_route),
    RouteGiven: anywhere(routes.give_route),
    Describe: anywhere(about.describe),
    RevokeGrant: anywhere(requests.revoke_grant),
    AddNote: anywhere(queue.add_note),
    ChangeQueue: anywhere(queue.change_queue),
    EditTranscript: only("idle", transcripts.edit, otherwise=_BUSY),
    Redact: only("idle", transcripts.redact, otherwise=_BUSY),
    Archive: anywhere(archive.archive),
    Revive: anywhere(archive.refuse_revive),
    Halt: anywhere(halting.halt),
    Repair: anywhere(halting.release),
    CallAccepted: only("idle", calls.call_from_outside, otherwise=_BUSY),
    CommandDone: anywhere(extensions.command_done),
    # A turn from step to step.
    Reject: only("idle", extensions.reject),
    Extend: anywhere(extensions.extend),
    Redefined: in_turn(turns.redefine),
    HandOver: only("model", children.hand_over),
    Prepared: only("model", turns.prepare),
    CompactionAccepted: only("model", compaction.accept),
    EndEarly: only("model", compaction.end_early),
    AttemptEnded: in_turn(attempts.end_attempt, idle=not_now),
    OutputAccepted: only("model", output.accept),
    OutputRefused: only("model", output.refuse),
    CallsPlanned: only("tools", calls.plan_calls),
    StartTools: only("tools", calls.start_tools, otherwise=not_now),
    BeginStep: in_turn(extensions.begin_step),
    Reconciled: only("tools", attempts.reconcile, otherwise=not_now),
    ResultsReviewed: only("tools", extensions.review_results),
    StopTurn: in_turn(extensions.stop_turn),
    Fail: in_turn(turns.fail),
    Continue: only("completing", extensions.go_on),
    Finish: only("completing", turns.finish),
    EndTurn: only("completing", extensions.finish_ending),
    # Time, crashes, and what is owed to others.
    Claimed: in_turn(recover, idle=not_now),
    TimePassed: in_turn(requests.pass_time, idle=not_now),
    Parked: in_turn(budgets.park, idle=not_now),
    Promote: anywhere(queue.promote),
    Outcome: anywhere(children.take_outcome),
    ErrandsDone: anywhere(children.pass_on),
}

_ARCHIVED: dict[type, Rule] = {
    Revive: archive.revive,
    Report: attempts.report,
    Redact: transcripts.redact,
    ErrandsDone: children.pass_on,
    Halt: halting.halt,
    Repair: halting.release,
    Claimed: not_now,
    TimePassed: not_now,
    Parked: not_now,
}
"""What may still happen in an archived session: a late result stays a fact, and content can be removed. All else is refused."""

_HALTED: dict[type, Rule] = {
    Repair: halting.release,
    Report: not_now,
    Outcome: not_now,
    ErrandsDone: not_now,
    Claimed: not_now,
    TimePassed: not_now,
    Parked: not_now,
}
"""What may still happen in a halted session: it is let go. A late result waits in the inbox until then. All else is refused."""

TABLE: dict[type, dict[Phase, Rule]] = {
    command: {
        **dict(zip(_LIVE, row, strict=True)),
        "archived": _ARCHIVED.get(command, archive.refuse),
        "halted": _HALTED.get(command, halting.refuse),
    }
    for command, row in _ROWS.items()
}


def decide(checkpoint: Checkpoint, command: Any) -> tuple[Entry, ...]:
    """What a command makes happen.

    Raises a `Refused` where the state says no.
    """
    return apply(Draft(checkpoint), command)


def apply(draft: Draft, command: Any) -> tuple[Entry, ...]:
    """`decide` on a commit under way: what the command adds to it. Raises a `Refused`, and adds nothing, where the state says no."""
    before = len(draft.entries)
    TABLE[type(command)][phase(draft.checkpoint)](draft, command)
    return tuple(draft.entries[before:])
