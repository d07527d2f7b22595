"""The recovery matrix of the design, row by row, under both ways to restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import story
from msgspec.structs import replace
from story import AFTER_RESTART, NOT_EXECUTED, UNKNOWN, Story, call, lines, planned

from perdure.core import ids
from perdure.core.commands import Interrupt
from perdure.core.entries import Recovered, UncertainRequested
from perdure.core.messages import Text
from perdure.core.phase import due
from perdure.core.records import Failure
from perdure.core.reports import Finish
from perdure.core.rules import attempts

CONTINUE, STOP = "continue", "stop"


class Row(NamedTuple):
    in_flight: str
    given: Callable[[], Story]
    on_restart: str
    then: list[str]
    next: str
    due: list[str]


def _two(first: Any, second: Any) -> Callable[[], Story]:
    return lambda: story.batch(first, second)


def _approved() -> Story:
    s = story.waiting()
    s.do(s.answer("t2.0.1", "approve"))
    return s


def _repeatable() -> Story:
    """An uncertain external call of which its tool knew that it had not happened."""
    s = story.unknown()
    s.do(s.reconciled("t2.0.1", "not_done"))
    return s


def _one_done_one_running() -> Story:
    s = story.batch(planned(call("c1"), "pure"), planned(call("c2", "look"), "external"))
    s.tool_ends("t2.0.1")
    return s


def _everything_at_once() -> Story:
    """Of one batch: done, pure and running, external and running, external that can tell, external that is asked about, not started."""
    s = story.batch(
        planned(call("c1"), "idempotent"),
        planned(call("c2"), "pure"),
        planned(call("c3"), "external"),
        planned(call("c4"), "external", reconcile=True),
        planned(call("c5"), "external", ask_when_uncertain=True),
        planned(call("c6"), "external", exclusive=True),
    )
    s.tool_ends("t2.0.1")
    return s


def _asked_beside_running() -> Story:
    s = story.batch(planned(call("c1"), ask_when_uncertain=True), planned(call("c2", "look"), "pure"))
    s.tool_ends("t2.0.1", "uncertain")
    return s


def _unplanned_two() -> Story:
    return story.unplanned(call("c1"), call("c2"))


LOST_MODEL = "operation_ended t2.0.0#1 uncertain… (restart)"
AGAIN = "operation_ended t2.0.1#1 cancelled… (restart)"
CUT_OFF = f"operation_ended t2.0.1#1 cancelled (restart) !{AFTER_RESTART!r}"
UNKNOWN_NOW = f"operation_ended t2.0.1#1 uncertain (restart) !{AFTER_RESTART!r}"
NEVER = f"operation_ended t2.0.1#0 cancelled (restart) !{NOT_EXECUTED!r}"
ABORTED = "turn_aborted t2"

# fmt: off
ROWS = [
    Row("model call", story.model, CONTINUE, [LOST_MODEL, "recovered t2 fence 2 t2.0.0#1=uncertain"], "model", []),
    Row("model call", story.model, STOP,
        ["operation_ended t2.0.0#1 uncertain (restart)", ABORTED, "recovered t2 fence 2 t2.0.0#1=uncertain"], "idle", []),
    Row("model call between attempts", story.backing_off, CONTINUE, ["recovered t2 fence 2"], "model", []),
    Row("model call between attempts", story.backing_off, STOP, ["recovered t2 fence 2"], "model", []),
    Row("search for what to remember", story.looking, CONTINUE, [LOST_MODEL, "recovered t2 fence 2 t2.0.0#1=uncertain"], "model", []),
    Row("search for what to remember", story.looking, STOP,
        ["operation_ended t2.0.0#1 uncertain (restart)", ABORTED, "recovered t2 fence 2 t2.0.0#1=uncertain"], "idle", []),
    Row("turn that has learned something", story.looked, CONTINUE, ["recovered t2 fence 2"], "model", []),
    Row("turn that has learned something", story.looked, STOP, ["recovered t2 fence 2"], "model", []),
    Row("notes", story.writing, CONTINUE,
        ["operation_ended t8.0.0#1 uncertain… (restart)", "recovered t8 fence 2 t8.0.0#1=uncertain"], "model", []),
    Row("notes", story.writing, STOP,
        ["operation_ended t8.0.0#1 uncertain (restart)", "turn_aborted t8", "recovered t8 fence 2 t8.0.0#1=uncertain"], "idle", []),
    Row("turn before its first model call", story.before_model, CONTINUE, ["recovered t2 fence 2"], "model", []),
    Row("turn before its first model call", story.before_model, STOP, ["recovered t2 fence 2"], "model", []),

    *(Row(f"{effect} tool", lambda effect=effect: story.tools(effect), CONTINUE,
          [AGAIN, "recovered t2 fence 2 t2.0.1#1=cancelled"], "tools", [])
      for effect in ("pure", "idempotent", "transactional")),
    *(Row(f"{effect} tool", lambda effect=effect: story.tools(effect), STOP,
          [CUT_OFF, "message tool → 8", ABORTED, "recovered t2 fence 2 t2.0.1#1=cancelled"], "idle", [])
      for effect in ("pure", "idempotent", "transactional")),

    Row("external tool", story.tools, CONTINUE,
        [UNKNOWN_NOW, "message tool → 8", "recovered t2 fence 2 t2.0.1#1=uncertain"], "model", []),
    Row("external tool", story.tools, STOP,
        [UNKNOWN_NOW, "message tool → 8", ABORTED, "recovered t2 fence 2 t2.0.1#1=uncertain"], "idle", []),
    Row("external tool that asks", lambda: story.tools(ask_when_uncertain=True), CONTINUE,
        ["operation_ended t2.0.1#1 uncertain… (restart)", "recovered t2 fence 2 t2.0.1#1=uncertain", "request_opened uncertain t2.0.1"],
        "waiting", []),
    Row("external tool that asks", lambda: story.tools(ask_when_uncertain=True), STOP,
        [UNKNOWN_NOW, "message tool → 8", ABORTED, "recovered t2 fence 2 t2.0.1#1=uncertain"], "idle", []),
    Row("external tool that can tell", lambda: story.tools(reconcile=True), CONTINUE,
        ["recovered t2 fence 2 t2.0.1#1=open"], "tools", ["t2.0.1 unknown"]),
    Row("external tool that can tell", lambda: story.tools(reconcile=True), STOP,
        [UNKNOWN_NOW, "message tool → 8", ABORTED, "recovered t2 fence 2 t2.0.1#1=uncertain"], "idle", []),
    Row("external tool that can tell and else asks", lambda: story.tools(reconcile=True, ask_when_uncertain=True), CONTINUE,
        ["recovered t2 fence 2 t2.0.1#1=open"], "tools", ["t2.0.1 unknown"]),
    Row("idempotent tool that only one may call", lambda: story.tools("idempotent", unique="k"), CONTINUE,
        [AGAIN, "recovered t2 fence 2 t2.0.1#1=cancelled"], "tools", []),
    Row("idempotent tool that only one may call", lambda: story.tools("idempotent", unique="k"), STOP,
        [UNKNOWN_NOW, "message tool → 8", ABORTED, "recovered t2 fence 2 t2.0.1#1=uncertain"], "idle", []),
    Row("resumable external tool", lambda: story.tools(resumable=True, ask_when_uncertain=True, reconcile=True), CONTINUE,
        [AGAIN, "recovered t2 fence 2 t2.0.1#1=cancelled"], "tools", []),
    Row("resumable external tool", lambda: story.tools(resumable=True, ask_when_uncertain=True, reconcile=True), STOP,
        [UNKNOWN_NOW, "message tool → 8", ABORTED, "recovered t2 fence 2 t2.0.1#1=uncertain"], "idle", []),
    *(Row(f"{effect} step of a resumable tool", lambda effect=effect: story.stepping(effect), CONTINUE,
          [AGAIN, "operation_ended t2.0.1/reserve cancelled… (restart)",
           "recovered t2 fence 2 t2.0.1#1=cancelled t2.0.1/reserve#1=cancelled"], "tools", [])
      for effect in ("pure", "idempotent", "transactional")),
    *(Row(f"{effect} step of a resumable tool", lambda effect=effect: story.stepping(effect), STOP,
          [UNKNOWN_NOW, "operation_ended t2.0.1/reserve cancelled (restart)", "message tool → 9", ABORTED,
           "recovered t2 fence 2 t2.0.1#1=uncertain t2.0.1/reserve#1=cancelled"], "idle", [])
      for effect in ("pure", "idempotent", "transactional")),
    Row("external step of a resumable tool", story.stepping, CONTINUE,
        [AGAIN, "operation_ended t2.0.1/reserve uncertain (restart)",
         "recovered t2 fence 2 t2.0.1#1=cancelled t2.0.1/reserve#1=uncertain"], "tools", []),
    Row("external step of a resumable tool", story.stepping, STOP,
        [UNKNOWN_NOW, "operation_ended t2.0.1/reserve uncertain (restart)", "message tool → 9", ABORTED,
         "recovered t2 fence 2 t2.0.1#1=uncertain t2.0.1/reserve#1=uncertain"], "idle", []),
    Row("external step that can tell", lambda: story.stepping(reconcile=True), CONTINUE,
        [AGAIN, "recovered t2 fence 2 t2.0.1#1=cancelled t2.0.1/reserve#1=open"], "tools", []),
    Row("external step that can tell", lambda: story.stepping(reconcile=True), STOP,
        [UNKNOWN_NOW, "operation_ended t2.0.1/reserve uncertain (restart)", "message tool → 9", ABORTED,
         "recovered t2 fence 2 t2.0.1#1=uncertain t2.0.1/reserve#1=uncertain"], "idle", []),
    Row("reconcile", story.unknown, CONTINUE, ["recovered t2 fence 2 t2.0.1#1=open"], "tools", ["t2.0.1 unknown"]),
    Row("reconcile", story.unknown, STOP,
        [UNKNOWN_NOW, "message tool → 9", ABORTED, "recovered t2 fence 2 t2.0.1#1=uncertain"], "idle", []),

    Row("planned tool", _approved, CONTINUE, ["recovered t2 fence 2"], "tools", []),
    Row("planned tool", _approved, STOP,
        [NEVER, "message tool → 10", ABORTED, "recovered t2 fence 2"], "idle", []),
    Row("unplanned calls", _unplanned_two, CONTINUE, ["recovered t2 fence 2"], "tools", []),
    Row("unplanned calls", _unplanned_two, STOP,
        ["operation_planned t2.0.1 refund", NEVER, "operation_planned t2.0.2 refund",
         f"operation_ended t2.0.2#0 cancelled (restart) !{NOT_EXECUTED!r}", "message tool → 8,10", ABORTED,
         "recovered t2 fence 2"], "idle", []),
    Row("call that is known not to have happened", _repeatable, CONTINUE, ["recovered t2 fence 2"], "tools", []),
    Row("call that is known not to have happened", _repeatable, STOP,
        [NEVER, "message tool → 10", ABORTED, "recovered t2 fence 2"], "idle", []),

    Row("open approval", story.waiting, CONTINUE, ["recovered t2 fence 2"], "waiting", []),
    Row("open approval", story.waiting, STOP, ["recovered t2 fence 2"], "waiting", []),
    Row("open question about an uncertain call", story.asking, CONTINUE, ["recovered t2 fence 2"], "waiting", []),
    Row("open question about an uncertain call", story.asking, STOP, ["recovered t2 fence 2"], "waiting", []),
    Row("open question beside a running call", _asked_beside_running, CONTINUE,
        ["operation_ended t2.0.2#1 cancelled… (restart)", "recovered t2 fence 2 t2.0.2#1=cancelled"], "tools", []),
    Row("open question beside a running call", _asked_beside_running, STOP,
        ["request_closed t2.0.1 abort by turn", UNKNOWN_NOW, f"operation_ended t2.0.2#1 cancelled (restart) !{AFTER_RESTART!r}",
         "message tool → 12,13", ABORTED, "recovered t2 fence 2 t2.0.2#1=cancelled"], "idle", []),
    Row("completing", story.completing, CONTINUE, ["recovered t2 fence 2"], "completing", []),
    Row("completing", story.completing, STOP, ["recovered t2 fence 2"], "completing", []),

    Row("parallel: one done, one running", _one_done_one_running, CONTINUE,
        [f"operation_ended t2.0.2#1 uncertain (restart) !{AFTER_RESTART!r}", "message tool → 9,10",
         "recovered t2 fence 2 t2.0.2#1=uncertain"], "model", []),
    Row("parallel: one done, one running", _one_done_one_running, STOP,
        [f"operation_ended t2.0.2#1 uncertain (restart) !{AFTER_RESTART!r}", "message tool → 9,10", ABORTED,
         "recovered t2 fence 2 t2.0.2#1=uncertain"], "idle", []),
    Row("parallel: everything at once", _everything_at_once, CONTINUE,
        ["operation_ended t2.0.2#1 cancelled… (restart)", f"operation_ended t2.0.3#1 uncertain (restart) !{AFTER_RESTART!r}",
         "operation_ended t2.0.5#1 uncertain… (restart)",
         "recovered t2 fence 2 t2.0.2#1=cancelled t2.0.3#1=uncertain t2.0.4#1=open t2.0.5#1=uncertain", "request_opened uncertain t2.0.5"],
        "tools", ["t2.0.4 unknown"]),
    Row("parallel: everything at once", _everything_at_once, STOP,
        [f"operation_ended t2.0.2#1 cancelled (restart) !{AFTER_RESTART!r}",
         *(f"operation_ended t2.0.{index}#1 uncertain (restart) !{AFTER_RESTART!r}" for index in (3, 4, 5)),
         f"operation_ended t2.0.6#0 cancelled (restart) !{NOT_EXECUTED!r}", "message tool → 13,14,15,16,17,18", ABORTED,
         "recovered t2 fence 2 t2.0.2#1=cancelled t2.0.3#1=uncertain t2.0.4#1=uncertain t2.0.5#1=uncertain"], "idle", []),

    Row("no turn", story.idle, CONTINUE, [], "idle", []),
    Row("no turn", story.idle, STOP, [], "idle", []),
]
# fmt: on


def _name(row: Row) -> str:
    return f"{row.in_flight}-{row.on_restart}"


@pytest.mark.spec("S0-076")
@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_a_takeover_settles_what_was_in_flight(row: Row) -> None:
    given = row.given()

    written = given.told(given.claim(on_restart=row.on_restart))

    assert written == row.then
    assert given.phase == row.next
    assert [f"{item.id} {item.status}" for item in due(given.checkpoint)] == row.due
    assert given.folds()


@pytest.mark.parametrize(
    ("given", "receipts"),
    [(story.model, ()), (story.looked, (5,)), (story.tools, (5,)), (_one_done_one_running, (5, 9)), (story.completing, ())],
)
def test_a_takeover_names_the_receipts_of_the_step_that_stand(given: Callable[[], Story], receipts: tuple[int, ...]) -> None:
    told = given()

    recovered = [entry for entry in told.do(told.claim()) if isinstance(entry, Recovered)]

    assert [entry.receipts for entry in recovered] == [receipts]


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_a_holder_that_let_go_left_nothing_to_recover(row: Row) -> None:
    given = row.given()
    before = given.checkpoint

    assert given.told(given.claim(on_restart=row.on_restart, takeover=False)) == []
    assert given.checkpoint == before


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_recovering_twice_settles_nothing_more(row: Row) -> None:
    given = row.given()
    given.do(given.claim(on_restart=row.on_restart))

    again = given.do(given.claim(on_restart=row.on_restart))

    assert {entry.kind for entry in again if not isinstance(entry, Recovered)} <= {
        "operation_ended",  # what a *stop* finds ready to start is not started again
        "operation_planned",
        "request_closed",
        "message",
        "turn_aborted",
    }
    if row.on_restart == CONTINUE:
        assert [entry.kind for entry in again] == ["recovered"] * (row.next != "idle")


def test_both_modes_are_tried_on_every_row() -> None:
    modes = {row.in_flight: {other.on_restart for other in ROWS if other.in_flight == row.in_flight} for row in ROWS}
    only_continue = {name for name, tried in modes.items() if tried == {CONTINUE}}

    assert only_continue == {"external tool that can tell and else asks"}


# ---------------------------------------------------------------------------------------------------------- what comes next


def test_a_lost_model_call_is_tried_again_with_the_same_request_and_its_usage_is_unknown_not_zero() -> None:
    given = story.model()
    given.do(given.claim())

    assert lines(given.steps()) == ["operation_started t2.0.0#2"]
    assert given.checkpoint.usage.calls == given.checkpoint.usage.unknown_calls == 1


def test_a_lost_model_call_whose_request_changed_is_another_operation_of_the_same_step() -> None:
    given = story.model()
    given.do(given.claim())

    assert lines(given.steps("another")) == ["operation_ended t2.0.0#0 cancelled (request_changed)", "operation_started t2.0.1#1"]


@pytest.mark.parametrize("effect", ["pure", "idempotent", "transactional"])
def test_a_lost_call_that_may_be_repeated_is_the_same_operation_so_its_idempotency_key_stays(effect: str) -> None:
    given = story.tools(effect)
    given.do(given.claim())

    assert lines(given.starts()) == ["operation_started t2.0.1#2"]
    assert given.operation("t2.0.1").fence == 2


def test_a_resumable_call_that_waits_to_run_again_is_not_told_as_one_that_never_ran() -> None:
    given = story.tools(resumable=True)
    given.do(given.claim())

    assert lines(given.do(Interrupt(submission="i", at=given.now())))[0] == f"operation_ended t2.0.1#1 uncertain (interrupted) !{UNKNOWN!r}"


def test_a_step_that_can_tell_stays_open_over_two_restarts_and_goes_on_when_it_told() -> None:
    given = story.stepping(reconcile=True)
    given.do(given.claim())
    given.starts()
    given.do(given.claim())
    given.starts()

    assert given.operation("t2.0.1/reserve").status == "unknown"
    assert lines(given.do(given.reconciled("t2.0.1/reserve", "not_done"))) == ["operation_ended t2.0.1/reserve cancelled… (not_done)"]
    assert lines(given.do(story.begin_step(given, attempt=3))) == ["operation_started t2.0.1/reserve#2"]


@pytest.mark.parametrize(("facts", "status"), [({}, "failed"), ({"unique": "k"}, "uncertain")])
def test_what_died_with_its_process_every_time_is_not_known_where_another_might_do_it_again(facts: dict[str, Any], status: str) -> None:
    given = story.tools("idempotent", **facts)
    for _ in range(3):
        given.do(given.claim())
        given.starts()

    assert lines(given.do(given.claim()))[0].startswith(f"operation_ended t2.0.1#4 {status} (crash_loop)")


def test_a_planned_call_runs_after_a_restart() -> None:
    given = _approved()
    given.do(given.claim())

    assert lines(given.starts()) == ["operation_started t2.0.1#1"]


@pytest.mark.spec("S0-081", "S0-175")
def test_an_open_request_keeps_its_ids_over_a_restart() -> None:
    given = story.waiting()
    before = given.operation("t2.0.1")

    assert lines(given.do(given.claim())) == ["recovered t2 fence 2"], "the entry that asked it stands"
    assert given.operation("t2.0.1") == before


def test_what_a_restart_left_uncertain_is_asked_about_with_the_call_that_a_person_must_know() -> None:
    given = story.tools(ask_when_uncertain=True)
    written = given.do(given.claim())

    asked = written[-1]
    assert isinstance(asked, UncertainRequested)
    assert (asked.operation, asked.attempt, asked.name, asked.call) == ("t2.0.1", 1, "refund", "c1")
    assert asked.request_id == ids.request_id("uncertain", "t2.0.1", 1, asked.arguments)


@pytest.mark.parametrize(
    ("outcome", "then"),
    [
        ("done", ["operation_ended t2.0.1#1 succeeded 'found'", "message tool → 9"]),
        ("not_done", ["operation_ended t2.0.1#1 cancelled… (not_done)"]),
        ("unknown", [f"operation_ended t2.0.1#1 uncertain (unknown) !{AFTER_RESTART!r}", "message tool → 9"]),
    ],
)
def test_a_tool_tells_what_became_of_its_call_before_the_restart(outcome: str, then: list[str]) -> None:
    given = story.tools(reconcile=True)
    given.do(given.claim())

    assert given.told(given.reconciled("t2.0.1", outcome)) == then


def test_a_tool_that_can_not_tell_asks_a_person_if_it_is_declared_so() -> None:
    given = story.tools(reconcile=True, ask_when_uncertain=True)
    given.do(given.claim())

    assert given.told(given.reconciled("t2.0.1", "unknown")) == [
        "operation_ended t2.0.1#1 uncertain… (unknown)",
        "request_opened uncertain t2.0.1",
    ]


def test_a_call_that_had_not_happened_runs_again_under_the_same_approval() -> None:
    given = story.waiting(reconcile=True)
    given.do(given.answer("t2.0.1", "approve"))
    given.starts()
    given.do(given.claim())
    given.do(given.reconciled("t2.0.1", "not_done"))

    assert lines(given.starts()) == ["operation_started t2.0.1#2"]


def test_a_reported_effect_can_still_be_settled_after_its_turn_was_stopped_by_a_restart() -> None:
    given = story.tools()
    given.do(given.claim(on_restart=STOP))

    assert given.told(given.report("t2.0.1")) == ["effect_settled t2.0.1#1 succeeded ← 8 'late'", "note_added t2.0.1"]


def test_a_call_that_a_restart_cut_off_is_never_said_not_to_have_been_executed() -> None:
    # Given an idempotent call that was lost and may run again, when its turn is stopped before it does.
    given = story.tools("idempotent")
    given.do(given.claim())

    assert given.told(Interrupt(at=given.now())) == [
        f"operation_ended t2.0.1#1 cancelled (interrupted) !{UNKNOWN!r}",
        "message tool → 10",
        "turn_aborted t2",
    ]


# -------------------------------------------------------------------------------------------------------------- crash loops

DIED = Failure(code="crash_loop", message="its process died every time it was started")


def _crashing(given: Story, again: Callable[[], Any], times: int) -> list[str]:
    for _ in range(times):
        assert given.phase != "idle"
        given.do(given.claim())
        again()
    return given.told(given.claim())


def test_a_model_call_that_kills_its_process_gets_three_attempts_more_and_fails_its_turn() -> None:
    given = story.model()

    written = _crashing(given, given.steps, 3)

    assert written == [
        "operation_ended t2.0.0#4 failed (crash_loop)",
        "turn_failed t2 (crash_loop)",
        "recovered t2 fence 5 t2.0.0#4=failed",
    ]
    # Nobody knows what any of the four attempts used.
    assert given.checkpoint.usage.calls == given.checkpoint.usage.unknown_calls == 4


@pytest.mark.parametrize("effect", ["pure", "idempotent", "transactional"])
def test_a_tool_that_kills_its_process_gets_three_attempts_more_and_fails_its_turn(effect: str) -> None:
    given = story.tools(effect)

    written = _crashing(given, given.starts, 3)

    assert written == [
        f"operation_ended t2.0.1#4 failed (crash_loop) !{DIED.message!r}",
        "message tool → 17",
        "turn_failed t2 (crash_loop)",
        "recovered t2 fence 5 t2.0.1#4=failed",
    ]


def test_the_rest_of_the_batch_ends_with_a_crash_loop() -> None:
    given = story.batch(
        planned(call("c1"), "pure"),
        planned(call("c2"), "idempotent"),
        planned(call("c3"), "external", reconcile=True),
        planned(call("c4"), "pure", exclusive=True),
    )
    for _ in range(3):
        given.do(given.claim())
        given.starts()
    written = given.told(given.claim())

    version = given.checkpoint.version
    assert written == [
        f"operation_ended t2.0.1#4 failed (crash_loop) !{DIED.message!r}",
        f"operation_ended t2.0.2#4 failed (crash_loop) !{DIED.message!r}",
        f"operation_ended t2.0.3#1 uncertain (restart) !{AFTER_RESTART!r}",
        f"operation_ended t2.0.4#0 cancelled (restart) !{NOT_EXECUTED!r}",
        f"message tool → {version - 6},{version - 5},{version - 4},{version - 3}",
        "turn_failed t2 (crash_loop)",
        "recovered t2 fence 5 t2.0.1#4=failed t2.0.2#4=failed t2.0.3#1=uncertain",
    ]


def test_what_was_cut_off_beside_a_crash_loop_is_said_to_be_unknown() -> None:
    # Given a call that dies with its process every time, and another that was running only the last time.
    given = story.batch(planned(call("c1"), "pure"), planned(call("c2"), "idempotent"))
    given.tool_ends("t2.0.2", "cancelled", final=False, failure=Failure(code="shutdown"))
    for _ in range(3):
        given.do(given.claim())
        given.starts()
        given.tool_ends("t2.0.2", "cancelled", final=False, failure=Failure(code="shutdown"))
    given.starts()

    assert given.told(given.claim()) == [
        f"operation_ended t2.0.1#4 failed (crash_loop) !{DIED.message!r}",
        "operation_ended t2.0.2#5 cancelled… (restart)",
        f"operation_ended t2.0.2#5 cancelled (restart) !{AFTER_RESTART!r}",
        "message tool → 26,28",
        "turn_failed t2 (crash_loop)",
        "recovered t2 fence 5 t2.0.1#4=failed t2.0.2#5=cancelled",
    ]


def test_a_call_whose_reconcile_says_not_done_can_not_crash_for_ever_either() -> None:
    given = story.tools(reconcile=True)
    for _ in range(3):
        given.do(given.claim())
        assert given.told(given.reconciled("t2.0.1", "not_done")) == [
            f"operation_ended t2.0.1#{given.operation('t2.0.1').attempt} cancelled… (not_done)"
        ]
        given.at = max(given.at, given.operation("t2.0.1").not_before)
        given.starts()

    given.do(given.claim())
    written = given.told(given.reconciled("t2.0.1", "not_done"))

    assert written == [
        f"operation_ended t2.0.1#4 failed (crash_loop) !{DIED.message!r}",
        f"message tool → {given.checkpoint.version - 2}",
        "turn_failed t2 (crash_loop)",
    ]
    assert given.folds()


def test_a_reconcile_that_kills_its_process_is_no_attempt_of_its_call() -> None:
    given = story.tools(reconcile=True)
    for _ in range(6):
        given.do(given.claim())

    assert given.told(given.reconciled("t2.0.1", "not_done")) == ["operation_ended t2.0.1#1 cancelled… (not_done)"]


def test_attempts_that_begin_because_of_a_restart_do_not_use_up_the_retries_of_a_model_call() -> None:
    given = story.model()
    for _ in range(3):
        given.do(given.claim())
        given.steps()

    retries = 0
    while lines(given.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited")))[-1].endswith("… (rate_limited)"):
        retries += 1
        given.steps()

    assert retries == attempts.ATTEMPTS - 1


def test_a_call_that_failed_while_alive_is_no_crash() -> None:
    given = story.model()
    for _ in range(3):
        given.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"))
        given.steps()

    assert lines(given.do(given.claim())) == ["operation_ended t2.0.0#4 uncertain… (restart)", "recovered t2 fence 2 t2.0.0#4=uncertain"]


def test_recovered_stands_before_anything_new() -> None:
    given = story.batch(planned(call("c1"), ask_when_uncertain=True), planned(call("c2"), ask_when_uncertain=True))
    kinds = [entry.kind for entry in given.do(given.claim())]

    assert kinds == ["operation_ended", "operation_ended", "recovered", "request_opened", "request_opened"]


def test_only_what_an_older_fence_started_is_lost() -> None:
    given = story.model()

    assert given.told(given.claim()) != []
    given.steps()
    command = given.claim()
    given.fence -= 1
    assert given.told(replace(command, fence=given.fence)) == [f"recovered t2 fence {given.fence}"]
    assert [item.status for item in due(given.checkpoint)] == ["started"]


@pytest.mark.spec("S0-284", "S0-285")
def test_an_answer_that_was_stored_ends_the_turn_without_another_model_call() -> None:
    given = story.model()
    given.model_ends(Text(content="hi"))
    given.do(given.claim())

    assert given.told(Finish(at=given.now())) == ["turn_completed t2"]
    assert given.told(given.claim()) == []
