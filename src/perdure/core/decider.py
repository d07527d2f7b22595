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


def not_now(draft: Draft, command: Any) -> None:
    """Nothing happens, and the command stays where it is."""


def impossible(draft: Draft, command: Any) -> None:
    """Only a faulty driver gets here."""
    raise AssertionError(f"{type(command).__name__} can't happen while the session is {phase(draft.checkpoint)}")


_BUSY = transcripts.refuse_while_running

# fmt: off
_ROWS: dict[type, tuple[Rule, Rule, Rule, Rule, Rule]] = {
    # command     idle                    model                  tools                  waiting                completing
    Accept:       (turns.start_turn,       turns.steer,           not_now,               not_now,               turns.steer),
    Interrupt:    (turns.refuse_interrupt, turns.interrupt,       turns.interrupt,       turns.interrupt,       turns.interrupt),
    Answer:       (requests.refuse_answer, requests.answer,       requests.answer,       requests.answer,       requests.answer),
    Report:       (attempts.report,        attempts.report,       attempts.report,       attempts.report,       attempts.report),
    Claimed:      (not_now,                recover,               recover,               recover,               recover),
    AttemptEnded: (not_now,                attempts.end_attempt,  attempts.end_attempt,  attempts.end_attempt,  attempts.end_attempt),
    CallsPlanned: (impossible,             impossible,            calls.plan_calls,      impossible,            impossible),
    StartTools:   (not_now,                not_now,               calls.start_tools,     not_now,               not_now),
    Guarded:      (impossible,             impossible,            calls.guard,           calls.guard,           impossible),
    Prepared:     (impossible,             turns.prepare,         impossible,            impossible,            impossible),
    CompactionAccepted: (impossible,       compaction.accept,     impossible,            impossible,            impossible),
    OutputAccepted: (impossible,           output.accept,         impossible,            impossible,            impossible),
    OutputRefused: (impossible,            output.refuse,         impossible,            impossible,            impossible),
    EndEarly:     (impossible,             compaction.end_early,  impossible,            impossible,            impossible),
    Reconciled:   (not_now,                not_now,               attempts.reconcile,    not_now,               not_now),
    TimePassed:   (not_now,                requests.pass_time,    requests.pass_time,    requests.pass_time,    requests.pass_time),
    Parked:       (not_now,                budgets.park,          budgets.park,          budgets.park,          budgets.park),
    Finish:       (impossible,             impossible,            impossible,            impossible,            turns.finish),
    Fail:         (impossible,             turns.fail,            turns.fail,            turns.fail,            turns.fail),
    Redefined:    (impossible,             turns.redefine,        turns.redefine,        turns.redefine,        turns.redefine),
    SelectRoute:  (routes.select_route,    routes.refuse_route,   routes.refuse_route,   routes.refuse_route,   routes.refuse_route),
    RouteGiven:   (routes.give_route,      routes.give_route,     routes.give_route,     routes.give_route,     routes.give_route),
    Describe:     (about.describe,         about.describe,        about.describe,        about.describe,        about.describe),
    RevokeGrant:  (requests.revoke_grant,  requests.revoke_grant, requests.revoke_grant, requests.revoke_grant, requests.revoke_grant),
    AddNote:      (queue.add_note,         queue.add_note,        queue.add_note,        queue.add_note,        queue.add_note),
    ChangeQueue:  (queue.change_queue,     queue.change_queue,    queue.change_queue,    queue.change_queue,    queue.change_queue),
    Promote:      (queue.promote,          queue.promote,         queue.promote,         queue.promote,         queue.promote),
    EditTranscript: (transcripts.edit,     _BUSY,                 _BUSY,                 _BUSY,                 _BUSY),
    Redact:       (transcripts.redact,     _BUSY,                 _BUSY,                 _BUSY,                 _BUSY),
    Archive:      (archive.archive,        archive.archive,       archive.archive,       archive.archive,       archive.archive),
    Revive:       (archive.refuse_revive,  archive.refuse_revive, archive.refuse_revive, archive.refuse_revive, archive.refuse_revive),
    Halt:         (halting.halt,) * 5,
    Repair:       (halting.release,) * 5,
    CallAccepted: (calls.call_from_outside, _BUSY,                 _BUSY,                 _BUSY,                 _BUSY),
    Reject:       (extensions.reject,      impossible,            impossible,            impossible,            impossible),
    Extend:       (extensions.extend,      extensions.extend,     extensions.extend,     extensions.extend,     extensions.extend),
    CommandDone:  (extensions.command_done,) * 5,
    BeginStep:    (impossible,             *(extensions.begin_step,) * 4),
    ResultsReviewed: (impossible,          impossible,            extensions.review_results, impossible,        impossible),
    StopTurn:     (impossible,             *(extensions.stop_turn,) * 4),
    Continue:     (impossible,             impossible,            impossible,            impossible,            extensions.go_on),
    Outcome:      (children.take_outcome,) * 5,
    ErrandsDone:  (children.pass_on,) * 5,
    HandOver:     (impossible,             children.hand_over,    impossible,            impossible,            impossible),
    EndTurn:      (impossible,             impossible,            impossible,            impossible,            extensions.finish_ending),
}
# fmt: on
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

_SITUATIONS: tuple[Phase, ...] = ("idle", "model", "tools", "waiting", "completing", "archived", "halted")
TABLE: dict[type, dict[Phase, Rule]] = {
    command: dict(zip(_SITUATIONS, (*row, _ARCHIVED.get(command, archive.refuse), _HALTED.get(command, halting.refuse)), strict=True))
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
