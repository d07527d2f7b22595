"""How operations and turns end while their process lives: endings, late results, answers, limits, retries, steers, order."""

from __future__ import annotations

from typing import Any

import pytest
import story
from msgspec.structs import replace
from story import NOT_EXECUTED, UNKNOWN, Story, call, line, lines, planned

from perdure.core import ids
from perdure.core.commands import Answer, Interrupt
from perdure.core.entries import (
    ApprovalRequested,
    EffectSettled,
    MessageAdded,
    NoteAdded,
    OperationEnded,
    OperationStarted,
    RequestClosed,
    TurnCompleted,
    TurnFailed,
    TurnLimited,
    UncertainRequested,
)
from perdure.core.errors import StaleRequest, SubmissionRejected
from perdure.core.messages import Text, ToolCallResponse
from perdure.core.phase import due, startable
from perdure.core.records import EffectMatch, Failure, Limits
from perdure.core.reports import AttemptEnded, Finish, Guarded, Promote, ResultsReviewed, StartTools, TimePassed
from perdure.core.rules import attempts
from perdure.core.usage import Usage

EFFECTS = ("pure", "idempotent", "transactional", "external")


def _running(s: Story) -> list[str]:
    return [item.id for item in due(s.checkpoint)]


# ------------------------------------------------------------------------------------------------------- endings while alive


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_that_returns_succeeds(effect: str) -> None:
    s = story.tools(effect)

    assert lines(s.tool_ends("t2.0.1", response={"paid": 5})) == ["operation_ended t2.0.1#1 succeeded {'paid': 5}", "message tool → 8"]


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_that_says_it_failed_failed_whatever_it_does_to_the_world(effect: str) -> None:
    s = story.tools(effect)

    assert lines(s.tool_ends("t2.0.1", "failed", "no such order", failure=Failure(code="tool_error"))) == [
        "operation_ended t2.0.1#1 failed (tool_error) !'no such order'",
        "message tool → 8",
    ]


def test_an_external_call_of_which_nobody_knows_the_end_is_reported_as_unknown() -> None:
    s = story.tools()

    written = s.tool_ends("t2.0.1", "uncertain", failure=Failure(code="timeout", message="no result within 5 s"))

    assert lines(written) == [f"operation_ended t2.0.1#1 uncertain (timeout) !{UNKNOWN!r}", "message tool → 8"]


def test_an_external_call_that_raised_says_what_it_raised_and_that_nobody_knows_what_it_did() -> None:
    s = story.tools()

    written = s.tool_ends("t2.0.1", "uncertain", failure=Failure(code="tool_raised", message="OSError: the line went dead"))

    assert lines(written) == [
        "operation_ended t2.0.1#1 uncertain (tool_raised) !'OSError: the line went dead; result unknown'",
        "message tool → 8",
    ]


def test_an_external_call_of_which_nobody_knows_the_end_is_asked_about_where_its_tool_says_so() -> None:
    s = story.tools(ask_when_uncertain=True)

    written = s.tool_ends("t2.0.1", "uncertain", failure=Failure(code="timeout"))

    assert lines(written) == ["operation_ended t2.0.1#1 uncertain… (timeout)", "request_opened uncertain t2.0.1"]
    assert s.phase == "waiting"


def test_an_external_call_of_which_nobody_knows_the_end_is_reconciled_where_its_tool_can_tell() -> None:
    s = story.tools(reconcile=True, ask_when_uncertain=True)

    assert lines(s.tool_ends("t2.0.1", "uncertain", failure=Failure(code="timeout"))) == ["operation_ended t2.0.1#1 uncertain… (timeout)"]
    assert [(item.id, item.status) for item in due(s.checkpoint)] == [("t2.0.1", "unknown")]


@pytest.mark.parametrize("effect", ["pure", "idempotent", "transactional"])
def test_a_call_without_lasting_effect_is_cancelled_by_its_timeout(effect: str) -> None:
    s = story.tools(effect)

    assert lines(s.tool_ends("t2.0.1", "cancelled", failure=Failure(code="timeout", message="no result within 5 s"))) == [
        "operation_ended t2.0.1#1 cancelled (timeout) !'no result within 5 s'",
        "message tool → 8",
    ]


def test_a_graceful_stop_leaves_an_attempt_to_be_continued_elsewhere() -> None:
    s = story.tools("pure")

    assert lines(s.tool_ends("t2.0.1", "cancelled", final=False, failure=Failure(code="shutdown"))) == [
        "operation_ended t2.0.1#1 cancelled… (shutdown)"
    ]
    assert lines(s.starts()) == ["operation_started t2.0.1#2"]


def test_the_text_so_far_of_a_stopped_model_call_is_kept_and_its_usage_is_unknown() -> None:
    s = story.model()

    (ended,) = s.model_ends(status="cancelled", final=False, partial="Half a sen", failure=Failure(code="shutdown"))

    assert isinstance(ended, OperationEnded)
    assert ended.partial == "Half a sen"
    assert s.checkpoint.usage.unknown_calls == 1
    assert lines(s.steps()) == ["operation_started t2.0.0#2"]


def test_a_tool_message_lists_its_responses_in_call_order_whoever_was_faster() -> None:
    s = story.batch(planned(call("c1"), "pure"), planned(call("c2"), "pure"), planned(call("c3"), "pure"))
    for identity in ("t2.0.3", "t2.0.1", "t2.0.2"):
        s.tool_ends(identity, response=identity)

    message = s.entries[-1]
    assert isinstance(message, MessageAdded)
    receipts = {entry.seq: entry for entry in s.entries}
    assert [(item.id, receipts[item.receipt].operation) for item in message.responses] == [  # type: ignore[attr-defined]
        ("c1", "t2.0.1"),
        ("c2", "t2.0.2"),
        ("c3", "t2.0.3"),
    ]


def test_an_attempt_ends_only_once() -> None:
    s = story.batch(planned(call("c1"), "pure"), planned(call("c2"), "pure"))
    again = s.tool_report("t2.0.1")
    s.do(again)

    assert s.told(again) == []


# ------------------------------------------------------------------------------------------------------------ late results


def test_a_late_result_of_an_open_call_is_its_receipt_and_the_awaited_end_is_then_ignored() -> None:
    s = story.batch(planned(call("c1")), planned(call("c2")))
    awaited = s.tool_report("t2.0.1")

    assert s.told(s.report("t2.0.1")) == ["operation_ended t2.0.1#1 succeeded 'late'"]
    assert s.told(awaited) == []


def test_a_late_result_of_an_uncertain_effect_settles_it_and_tells_the_model_in_one_go() -> None:
    s = story.tools()
    s.tool_ends("t2.0.1", "uncertain", failure=Failure(code="timeout"))
    receipt = s.entries[7]
    revision, context = s.checkpoint.revision, s.checkpoint.context

    settled, note = s.do(s.report("t2.0.1", result={"paid": 5}))

    assert isinstance(settled, EffectSettled)
    assert (settled.receipt, settled.status, settled.actor, settled.submission) == (receipt.seq, "succeeded", "hook", "r1")
    assert isinstance(note, NoteAdded)
    assert note.operation == "t2.0.1"
    assert note.text == 'The outcome of an earlier call of refund, reported as unknown, is known now: it succeeded. Result: {"paid":5}'
    assert s.checkpoint.revision == revision, "a note is no message"
    assert s.checkpoint.context != context, "models see it"


def test_a_note_about_a_late_result_is_short_however_long_the_result_is() -> None:
    s = story.tools()
    s.tool_ends("t2.0.1", "uncertain")

    _, note = s.do(s.report("t2.0.1", result="x" * 100_000, is_error=True))

    assert isinstance(note, NoteAdded)
    assert "it failed" in note.text
    assert note.text.endswith("… (98000 characters more)")
    assert len(note.text) < 2200


@pytest.mark.spec("S0-134")
def test_a_late_result_whose_outcome_is_known_is_refused() -> None:
    s = story.batch(planned(call("c1")), planned(call("c2")))
    s.tool_ends("t2.0.1")

    with pytest.raises(StaleRequest, match="known already"):
        s.do(s.report("t2.0.1"))


@pytest.mark.parametrize("attempt", [0, 2, 7])
def test_a_late_result_of_another_attempt_is_refused(attempt: int) -> None:
    with pytest.raises(StaleRequest, match=f"attempt {attempt} of t2.0.1 is not the one that is awaited"):
        story.tools().do(story.tools().report("t2.0.1", attempt=attempt))


def test_a_late_result_of_an_attempt_that_was_cut_off_is_refused_while_the_next_runs() -> None:
    s = story.tools("idempotent")
    s.do(s.claim())
    s.starts()

    with pytest.raises(StaleRequest):
        s.do(s.report("t2.0.1", attempt=1))
    assert s.told(s.report("t2.0.1", attempt=2)) == ["operation_ended t2.0.1#2 succeeded 'late'", "message tool → 11"]


def test_a_late_result_answers_the_question_that_a_person_was_asked() -> None:
    s = story.asking()
    question = s.operation("t2.0.1").request

    closed, settled, message = s.do(s.report("t2.0.1"))

    assert isinstance(closed, RequestClosed)
    assert (closed.request_id, closed.decision, closed.actor, closed.submission) == (question, "settle", "hook", "r1")
    assert isinstance(settled, EffectSettled)
    assert isinstance(message, MessageAdded)
    assert message.responses[0].receipt == settled.seq


# ---------------------------------------------------------------------------------------------------------------- requests


def test_an_approval_lets_exactly_what_the_person_saw_run() -> None:
    s = story.waiting()
    asked = s.entries[-1]
    assert isinstance(asked, ApprovalRequested)
    assert asked.request_id == ids.request_id("approval", "t2.0.1", 1, asked.arguments)
    assert asked.request_id != ids.request_id("approval", "t2.0.1", 1, ids.arguments_digest({"cents": 1}))
    assert len(asked.request_id) == 16


def test_edited_arguments_stand_in_the_decision_and_the_operation_holds_their_digest() -> None:
    s = story.waiting()

    (closed,) = s.do(s.answer("t2.0.1", "approve", arguments={"cents": 1}))

    assert isinstance(closed, RequestClosed)
    assert closed.arguments == {"cents": 1}
    item = s.operation("t2.0.1")
    assert item.edited == closed.seq
    assert item.plan.arguments == closed.arguments_digest == ids.arguments_digest({"cents": 1})


def test_arguments_of_another_decision_than_approve_change_nothing() -> None:
    s = story.batch(planned(call("c1"), verdict="ask"), planned(call("c2"), verdict="ask"))

    closed = s.do(s.answer("t2.0.1", "deny", arguments={"cents": 1}))[0]

    assert isinstance(closed, RequestClosed)
    assert closed.arguments is None
    assert s.operation("t2.0.1").edited == 0


def test_edited_arguments_start_with_the_plan_that_the_tool_makes_of_them() -> None:
    s = story.waiting(effect_key="aa")
    s.do(s.answer("t2.0.1", "approve", arguments={"cents": 1}))
    item = s.operation("t2.0.1")
    (started,) = s.do(StartTools(fence=1, plans={"t2.0.1": replace(item.plan, effect_key="bb")}, at=s.now()))

    assert isinstance(started, OperationStarted)
    assert started.plan is not None
    assert s.operation("t2.0.1").plan.effect_key == "bb"
    assert s.folds()


def test_empty_edited_arguments_are_edited_arguments() -> None:
    s = story.waiting()
    s.do(s.answer("t2.0.1", "approve", arguments={}))

    assert s.operation("t2.0.1").edited == s.checkpoint.version


def test_a_request_is_answered_once() -> None:
    s = story.waiting()
    first = s.answer("t2.0.1", "approve")
    s.do(first)

    with pytest.raises(StaleRequest):
        s.do(first)


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_one_answer_of_several_leaves_the_others_open(decision: str) -> None:
    s = story.batch(planned(call("c1"), verdict="ask"), planned(call("c2"), verdict="ask"))
    s.do(s.answer("t2.0.1", decision))

    assert s.phase == "waiting"
    assert lines(s.starts() if s.phase == "tools" else []) == []


def test_an_abort_by_one_answer_closes_every_other_request() -> None:
    s = story.batch(planned(call("c1"), verdict="ask"), planned(call("c2"), verdict="ask"))

    assert s.told(s.answer("t2.0.2", "abort", reason="no more")) == [
        "request_closed t2.0.2 abort by answer",
        "request_closed t2.0.1 abort by turn",
        f"operation_ended t2.0.1#0 cancelled (interrupted) !{NOT_EXECUTED!r}",
        f"operation_ended t2.0.2#0 cancelled (interrupted) !{NOT_EXECUTED!r}",
        "message tool → 13,14",
        "turn_aborted t2",
    ]
    assert s.entries[-1].reason == "no more"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("default", "then", "phase"),
    [
        ("approve", ["request_closed t2.0.1 approve by deadline"], "tools"),
        ("deny", ["request_closed t2.0.1 deny by deadline", "operation_ended t2.0.1#0", "message tool → 10"], "model"),
        ("abort", ["request_closed t2.0.1 abort by deadline", "operation_ended t2.0.1#0", "message tool → 10", "turn_aborted t2"], "idle"),
    ],
)
def test_an_unanswered_request_closes_with_its_default_at_its_deadline(default: str, then: list[str], phase: str) -> None:
    s = story.waiting(deadline=5000, default=default)

    assert s.told(s.time(4999)) == []
    written = s.told(s.time(5000))

    assert len(written) == len(then)
    assert all(found.startswith(expected) for found, expected in zip(written, then, strict=True))
    assert s.phase == phase


def test_the_deadlines_of_a_batch_close_together_and_stop_at_an_abort() -> None:
    s = story.batch(
        planned(call("c1"), verdict="ask", deadline=5000, default="deny"),
        planned(call("c2"), verdict="ask", deadline=5000, default="abort"),
        planned(call("c3"), verdict="ask", deadline=5000, default="approve"),
    )

    written = s.told(s.time(6000))

    assert [text for text in written if text.startswith("request_closed")] == [
        "request_closed t2.0.1 deny by deadline",
        "request_closed t2.0.2 abort by deadline",
        "request_closed t2.0.3 abort by turn",
    ]
    assert written[-1] == "turn_aborted t2"


def test_nobody_approves_by_accident_a_call_that_a_guard_asks_about_unanswered_it_is_refused() -> None:
    match = EffectMatch(operation="t1.0.1", seq=5, state="uncertain")
    s = story.waiting(match=match, deadline=5000)
    asked = s.entries[-1]

    assert isinstance(asked, ApprovalRequested)
    assert (asked.match, asked.default) == (match, "deny")
    assert s.operation("t2.0.1").plan.match == match


def test_a_guard_that_finds_an_effect_when_the_call_starts_asks_and_shows_it() -> None:
    s = story.waiting()
    s.do(s.answer("t2.0.1", "approve"))
    match = EffectMatch(operation="t1.0.1", seq=5, state="uncertain")

    (asked,) = s.do(Guarded(operation="t2.0.1", match=match, reason="again?", deadline=9000, at=s.now()))

    assert isinstance(asked, ApprovalRequested)
    assert (asked.match, asked.reason, asked.deadline, asked.default) == (match, "again?", 9000, "deny")
    assert s.phase == "waiting"
    assert s.operation("t2.0.1").plan.match == match, "so that the same effect is not asked about for ever"
    assert s.folds()


@pytest.mark.parametrize(("decision", "allowed"), [("settle", True), ("retry", True), ("deny", True), ("abort", True), ("approve", False)])
def test_what_a_question_about_an_uncertain_call_can_be_answered_with(decision: Any, allowed: bool) -> None:
    s = story.asking()
    if allowed:
        assert s.do(s.answer("t2.0.1", decision))[0].kind == "request_closed"
    else:
        with pytest.raises(SubmissionRejected, match="can't be answered with 'approve'") as refused:
            s.do(s.answer("t2.0.1", decision))
        assert refused.value.hint == "answer with settle, retry, deny (leave it unknown) or abort"


def test_an_uncertain_call_that_a_person_says_did_not_happen_runs_again_as_the_next_attempt() -> None:
    s = story.asking()
    s.do(s.answer("t2.0.1", "retry"))

    assert lines(s.starts()) == ["operation_started t2.0.1#2"]
    s.tool_ends("t2.0.1", "uncertain")
    asked = s.entries[-1]
    assert isinstance(asked, UncertainRequested)
    assert asked.attempt == 2
    assert asked.request_id == ids.request_id("uncertain", "t2.0.1", 2, asked.arguments)


# ------------------------------------------------------------------------------------------------------------------ limits


def _step(s: Story, number: int) -> None:
    s.steps(f"step {number}")
    s.model_ends(call(f"c{number}"))
    s.plans(planned(call(f"c{number}"), "pure"))
    s.tool_ends(f"t2.{number}.1")


def test_a_turn_ends_as_limited_before_the_step_that_is_one_too_many() -> None:
    s = Story()
    s.says(limits=Limits(steps=2))
    _step(s, 0)
    _step(s, 1)

    (ended,) = s.steps("too many")

    assert isinstance(ended, TurnLimited)
    assert (ended.limit, ended.steps, ended.reason) == ("steps", 2, "limit reached: steps")


def test_a_turn_ends_as_limited_once_its_tokens_are_used() -> None:
    s = Story()
    s.says(limits=Limits(tokens=15))
    _step(s, 0)

    assert lines(s.steps("more")) == ["turn_limited t2 tokens"]


def test_unknown_usage_is_not_counted_against_a_limit() -> None:
    s = Story()
    s.says(limits=Limits(tokens=15))
    s.steps()
    s.model_ends(call("c0"), usage=None)
    s.plans(planned(call("c0"), "pure"))
    s.tool_ends("t2.0.1")

    assert lines(s.steps("more")) == ["operation_started t2.1.0#1"]


def test_calls_beyond_the_limit_are_answered_and_not_run() -> None:
    s = Story()
    s.says(limits=Limits(tool_calls=1))
    s.steps()
    s.model_ends(call("c1"), call("c2"))

    written = s.plans(planned(call("c1")), planned(call("c2")))

    words = "not executed: the turn's limit of tool calls is reached"
    assert lines(written) == [
        "operation_planned t2.0.1 refund",
        f"operation_ended t2.0.1#0 cancelled (limit) !{words!r}",
        "operation_planned t2.0.2 refund",
        f"operation_ended t2.0.2#0 cancelled (limit) !{words!r}",
        "message tool → 8,10",
        "turn_limited t2 tool_calls",
    ]


CUT = "not executed: the answer was cut off by its length limit; ask for less at once"
REFUSAL = "not executed: the answer was a refusal"


@pytest.mark.parametrize(("finish", "words", "phase"), [("length", CUT, "model"), ("refusal", REFUSAL, "completing")])
def test_no_call_of_an_answer_that_was_cut_off_or_is_a_refusal_is_made(finish: str, words: str, phase: str) -> None:
    s = story.model()

    written = s.model_ends(Text(content="so"), call("c1"), call("c2"), finish=finish)

    assert lines(written) == [
        "operation_ended t2.0.0#1 succeeded",
        "message assistant → 5",
        "operation_planned t2.0.1 refund",
        f"operation_ended t2.0.1#0 cancelled ({finish}) !{words!r}",
        "operation_planned t2.0.2 refund",
        f"operation_ended t2.0.2#0 cancelled ({finish}) !{words!r}",
        "message tool → 8,10",
    ]
    assert (s.phase, s.checkpoint.turn and s.checkpoint.turn.tool_calls) == (phase, 0)
    assert s.folds()


@pytest.mark.parametrize("finish", ["length", "refusal"])
def test_calls_that_are_not_made_wait_for_who_reviews_results_and_end_the_turn_no_sooner(finish: str) -> None:
    s = Story()
    s.says(holds=("results",))
    s.steps()
    s.model_ends(call("c1"), finish=finish)
    assert s.phase == "tools"

    assert lines(s.do(ResultsReviewed(at=s.now()))) == ["message tool → 8"]
    assert s.phase == ("model" if finish == "length" else "completing")


def test_a_refusal_that_asked_for_calls_completes_its_turn_and_a_steer_has_it_go_on() -> None:
    s = story.model()
    s.model_ends(call("c1"), finish="refusal")
    s.says("please", deliver="steer", submission="m2")
    assert s.phase == "model"
    s.steps()
    s.model_ends(call("c2"))
    s.plans(planned(call("c2")))
    s.tool_ends("t2.1.1")

    assert s.phase == "model", "what was refused once is forgotten with the next answer"
    s.steps()
    s.model_ends(call("c3"), finish="refusal")
    assert lines(s.do(Finish(at=s.now()))) == ["turn_completed t2"]


def test_a_refusal_that_asked_for_calls_is_no_output_of_a_type() -> None:
    s = Story()
    s.says(holds=("output",))
    s.steps()
    s.model_ends(call("c1"), finish="refusal")

    [ended] = s.do(Finish(at=s.now()))
    assert isinstance(ended, TurnFailed)
    assert (ended.failure.code, ended.failure.message) == ("output_invalid", "the model refuses to answer")


@pytest.mark.parametrize("finish", ["length", "refusal"])
def test_notes_of_an_answer_that_was_cut_off_or_is_a_refusal_are_none(finish: str) -> None:
    s = story.before_model()
    s.do(s.notes_asked(upto=1))

    written = s.do(replace(s.notes_end(call("n1", "save_notes", notes="half of wh")), finish=finish))

    assert lines(written)[0] == "operation_ended t2.0.0#1 failed (invalid_notes)"


def test_as_many_calls_as_the_limit_allows_run() -> None:
    s = Story()
    s.says(limits=Limits(tool_calls=2))
    s.steps()
    s.model_ends(call("c1"), call("c2"))

    assert lines(s.plans(planned(call("c1")), planned(call("c2")))) == ["operation_started t2.0.1#1", "operation_started t2.0.2#1"]


def test_a_limit_of_no_steps_calls_no_model() -> None:
    s = Story()
    s.says(limits=Limits(steps=0))

    assert lines(s.steps()) == ["turn_limited t2 steps"]


# ------------------------------------------------------------------------------------------------------------------ retries


def test_a_model_call_whose_provider_is_away_is_tried_for_minutes_with_delays_that_double() -> None:
    s = story.model()
    waits = []
    for _ in range(14):
        (ended,) = s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"))
        assert isinstance(ended, OperationEnded)
        waits.append(ended.retry_at - ended.at)
        assert s.running_model.not_before == ended.retry_at
        s.steps()

    written = lines(s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited")))

    assert waits == [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, *[60_000] * 5]
    assert written == ["operation_ended t2.0.0#15 failed (rate_limited)", "turn_failed t2 (rate_limited)"]


@pytest.mark.parametrize(
    ("code", "facts", "attempts"),
    [
        ("rate_limited", {}, 15),
        ("provider_unavailable", {}, 15),
        ("provider_unavailable", {"fallback": "b"}, 5),
        ("provider_unavailable", {"attempts": 2}, 2),
        ("provider_unavailable", {"attempts": 7, "fallback": "b"}, 7),
        ("invalid_model_output", {}, 5),
        ("timeout", {}, 5),
        ("timeout", {"attempts": 1}, 1),
    ],
)
def test_how_often_a_model_call_is_tried(code: str, facts: dict[str, Any], attempts: int) -> None:
    s = story.model()
    tried = 1
    while getattr(s.model_ends(status="failed", retryable=True, failure=Failure(code=code), **facts)[-1], "retry_at", None):
        s.steps()
        tried += 1
        if tried > 20:
            break

    assert tried == attempts


def test_a_longest_wait_bounds_the_hint_of_a_provider_and_nothing_else() -> None:
    s = story.model()
    (ended,) = s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"), retry_after=9000, longest_wait=50)
    assert isinstance(ended, OperationEnded)
    assert ended.retry_at - ended.at == 50
    s.steps()
    (ended,) = s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"), longest_wait=50)
    assert isinstance(ended, OperationEnded)
    assert ended.retry_at - ended.at == 400


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"retry_after": 5_000, "fallback": "b"}, "waits"),
        ({"retry_after": 5_001, "fallback": "b"}, "other"),
        ({"retry_after": 300_000, "fallback": "b"}, "other"),
        ({"retry_after": 300_000, "fallback": "b", "attempts": 9}, "other"),
        ({"retry_after": 300_000, "fallback": "b", "longest_wait": 1_000}, "waits"),
        ({"retry_after": 300_000}, "waits"),
        ({"fallback": "b"}, "waits"),
    ],
)
def test_a_long_pause_that_a_provider_asks_for_keeps_no_turn_from_its_other_route(facts: dict[str, Any], told: str) -> None:
    s = story.model()

    (ended,) = s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"), **facts)

    assert isinstance(ended, OperationEnded)
    assert (ended.fallback, bool(ended.retry_at)) == (("b", False) if told == "other" else ("", True))


@pytest.mark.parametrize(
    ("attempt", "hint", "wait"),
    [
        (1, None, 200),
        (2, None, 400),
        (8, None, 25_600),
        (9, None, 51_200),
        (10, None, 60_000),
        (60, None, 60_000),
        (1, 0, 0),
        (1, 7000, 7000),
        (4, 50, 50),
        (1, 300_000, 300_000),
        (1, 3_600_000, 300_000),
        (1, -5, 0),
    ],
)
def test_the_delay_before_the_next_attempt(attempt: int, hint: int | None, wait: int) -> None:
    assert attempts.retry_delay(attempt, hint) == wait


def test_the_hint_of_a_provider_wins_over_the_delay() -> None:
    s = story.model()

    (ended,) = s.model_ends(status="failed", retryable=True, retry_after=7000)

    assert isinstance(ended, OperationEnded)
    assert ended.retry_at - ended.at == 7000


def test_a_failure_that_can_not_pass_ends_the_turn_at_once() -> None:
    s = story.model()

    assert lines(s.model_ends(status="failed", failure=Failure(code="authentication_failed"))) == [
        "operation_ended t2.0.0#1 failed (authentication_failed)",
        "turn_failed t2 (authentication_failed)",
    ]


def test_an_attempt_that_failed_is_a_call_of_unknown_size_unless_its_provider_says_what_it_used_or_nothing_was_sent() -> None:
    s = story.model()
    s.model_ends(status="failed", retryable=True)
    assert (s.checkpoint.usage.calls, s.checkpoint.usage.unknown_calls) == (1, 1)
    s.steps()
    s.model_ends(status="failed", retryable=True, usage=Usage(input_tokens=3, output_tokens=0))
    assert (s.checkpoint.usage.calls, s.checkpoint.usage.unknown_calls, s.checkpoint.usage.input_tokens) == (2, 1, 3)
    s.steps()
    s.model_ends(status="failed", unsent=True)
    assert (s.checkpoint.usage.calls, s.checkpoint.usage.unknown_calls) == (2, 1)


def test_a_request_that_changed_before_it_was_sent_again_is_a_new_operation_of_the_same_step() -> None:
    s = story.backing_off()
    s.says("and A-2", deliver="steer", submission="m2")

    ended, started = s.steps("with A-2")

    assert line(ended) == "operation_ended t2.0.0#0 cancelled (request_changed)"
    assert isinstance(started, OperationStarted)
    assert (started.operation, started.attempt) == ("t2.0.1", 1)
    assert started.plan is not None
    assert started.plan.arguments == "with A-2"
    s.model_ends(Text(content="both"))
    assert s.checkpoint.turn is not None
    assert s.checkpoint.turn.step == 1


def test_a_call_that_never_takes_effect_is_tried_five_times_at_growing_distances_and_given_up() -> None:
    s = story.tools(reconcile=True)
    waits = []
    for _ in range(4):
        s.tool_ends("t2.0.1", "uncertain", failure=Failure(code="timeout"))
        (ended,) = s.do(s.reconciled("t2.0.1", "not_done"))
        assert isinstance(ended, OperationEnded)
        waits.append(max(0, ended.retry_at - ended.at))
        if waits[-1]:
            assert s.do(StartTools(fence=1, at=ended.retry_at - 1)) == []
        s.at += waits[-1]
        s.starts()
    s.tool_ends("t2.0.1", "uncertain", failure=Failure(code="timeout"))

    written = s.told(s.reconciled("t2.0.1", "not_done"))

    assert waits == [0, 200, 400, 800]
    assert written == [
        "operation_ended t2.0.1#5 failed (not_done) !'not executed: 5 attempts had no effect'",
        f"message tool → {s.checkpoint.version - 1}",
    ]


# ------------------------------------------------------------------------------------------------------------------- steers


def test_a_steer_joins_between_model_calls_and_the_next_call_sees_it() -> None:
    s = story.tools("pure")
    s.tool_ends("t2.0.1")

    assert lines(s.says(deliver="steer", submission="m2")) == ["message user steer"]
    assert s.phase == "model"


def test_a_steer_beats_completion_and_the_turn_makes_another_step() -> None:
    s = story.completing()
    s.says(deliver="steer", submission="m2")

    assert s.phase == "model"
    s.steps("with the steer")
    s.model_ends(Text(content="again"))
    (ended,) = s.do(Finish(at=s.now()))
    assert isinstance(ended, TurnCompleted)
    assert (ended.steps, ended.submission) == (2, "m1")


def test_a_steer_waits_while_a_model_call_runs_and_while_calls_are_open() -> None:
    for given in (story.model, story.unplanned, story.tools, story.waiting, story.asking, story.unknown):
        s = given()
        assert s.says(deliver="steer", submission="m2") == [], given.__name__


def test_a_steer_whose_turn_ended_otherwise_becomes_a_turn_of_its_own() -> None:
    s = story.model()
    s.do(Interrupt(at=s.now()))

    assert s.told(Promote(submission="m2", at=s.now())) == ["queue_changed m2 promoted queue"]
    assert lines(s.says(deliver="queue", submission="m2")) == ["turn_started t8", "message user queue"]


def test_several_messages_are_turns_one_after_the_other() -> None:
    s = story.completing()
    assert s.says(submission="m2") == []
    s.do(Finish(at=s.now()))

    assert lines(s.says(submission="m2")) == ["turn_started t8", "message user turn"]


# -------------------------------------------------------------------------------------------------------------------- order


def _exclusive_in_the_middle() -> tuple[Any, ...]:
    return planned(call("c1"), "pure"), planned(call("c2"), "pure", exclusive=True), planned(call("c3"), "pure")


def test_an_exclusive_call_runs_alone_after_those_before_it_and_before_those_behind() -> None:
    s = story.unplanned(call("c1"), call("c2"), call("c3"))

    written = s.plans(*_exclusive_in_the_middle())
    assert lines(written) == ["operation_started t2.0.1#1", "operation_planned t2.0.2 refund", "operation_planned t2.0.3 refund"]
    assert s.starts() == []
    s.tool_ends("t2.0.1")
    assert lines(s.starts()) == ["operation_started t2.0.2#1"]
    assert s.starts() == []
    s.tool_ends("t2.0.2")
    assert lines(s.starts()) == ["operation_started t2.0.3#1"]


def test_an_exclusive_call_that_is_the_first_starts_at_once_and_alone() -> None:
    s = story.unplanned(call("c1"), call("c2"))

    assert lines(s.plans(planned(call("c1"), exclusive=True), planned(call("c2")))) == [
        "operation_started t2.0.1#1",
        "operation_planned t2.0.2 refund",
    ]


def test_an_exclusive_call_that_is_uncertain_still_holds_those_behind_it() -> None:
    s = story.batch(planned(call("c1"), exclusive=True, ask_when_uncertain=True), planned(call("c2"), "pure"))
    s.tool_ends("t2.0.1", "uncertain")

    assert s.phase == "waiting"
    assert s.starts() == []
    s.do(s.answer("t2.0.1", "settle", result="ok"))
    assert lines(s.starts()) == ["operation_started t2.0.2#1"]


def test_a_lost_call_runs_again_before_the_exclusive_one_behind_it() -> None:
    s = story.batch(*_exclusive_in_the_middle())
    s.do(s.claim())

    assert lines(s.starts()) == ["operation_started t2.0.1#2"]


def test_a_call_that_starts_in_the_commit_that_plans_it_has_no_entry_for_the_plan() -> None:
    s = story.unplanned(call("c1"), call("c2"), call("c3"))
    written = s.plans(
        planned(call("c1")), planned(call("c2"), verdict="reject", failure=Failure(code="denied", message="no")), planned(call("c3"))
    )

    assert lines(written) == [
        "operation_started t2.0.1#1",
        "operation_planned t2.0.2 refund",
        "operation_started t2.0.3#1",
        "operation_ended t2.0.2#0 failed (denied) !'no'",
    ]
    assert isinstance(written[0], OperationStarted)
    assert written[0].plan is not None
    assert _running(s) == ["t2.0.1", "t2.0.3"]


def test_an_open_approval_holds_its_whole_batch() -> None:
    s = story.unplanned(call("c1"), call("c2"), call("c3"))
    written = s.plans(
        planned(call("c1"), "pure"),
        planned(call("c2"), verdict="ask"),
        planned(call("c3"), verdict="reject", failure=Failure(code="denied", message="no")),
    )

    assert lines(written) == [
        "operation_planned t2.0.1 refund",
        "operation_planned t2.0.2 refund",
        "operation_planned t2.0.3 refund",
        "operation_ended t2.0.3#0 failed (denied) !'no'",
        "request_opened approval t2.0.2",
    ]
    assert (s.phase, _running(s)) == ("waiting", [])
    s.do(s.answer("t2.0.2", "approve"))
    assert lines(s.starts()) == ["operation_started t2.0.1#1", "operation_started t2.0.2#1"]


def test_an_open_question_about_an_uncertain_call_holds_nobody_else() -> None:
    s = story.batch(planned(call("c1"), ask_when_uncertain=True), planned(call("c2"), "pure"))
    s.tool_ends("t2.0.1", "uncertain")
    s.do(s.claim())

    assert s.phase == "tools"
    assert lines(s.starts()) == ["operation_started t2.0.2#2"]


def test_replayed_and_rejected_calls_alone_make_a_tool_message_at_once() -> None:
    s = story.unplanned(call("c1"), call("c2"))
    replay = planned(call("c2"), verdict="replay", parts=(ToolCallResponse(id="c2", name="refund", response="refunded"),))

    written = s.plans(planned(call("c1"), verdict="reject", failure=Failure(code="denied", message="no")), replay)

    assert [entry.kind for entry in written[-3:]] == ["operation_ended", "operation_ended", "message"]
    assert s.phase == "model"


# ---------------------------------------------------------------------------------------------------------------- interrupts


@pytest.mark.parametrize(
    "given",
    [
        story.before_model,
        story.model,
        story.backing_off,
        story.unplanned,
        story.tools,
        story.waiting,
        story.asking,
        story.unknown,
        story.completing,
    ],
    ids=lambda given: given.__name__,
)
def test_an_interrupt_ends_the_turn_in_every_phase_and_closes_everything(given: Any) -> None:
    s = given()

    written = s.do(Interrupt(at=s.now(), reason="stop it"))

    assert (written[-1].kind, written[-1].reason) == ("turn_aborted", "stop it")  # type: ignore[attr-defined]
    assert s.phase == "idle"
    assert s.checkpoint.turn is None
    assert s.folds()
    assert lines(s.says(submission="m2"))[-1] == "message user turn", "the session stays usable"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (story.unplanned, NOT_EXECUTED),
        (story.waiting, NOT_EXECUTED),
        (lambda: story.tools("external"), UNKNOWN),
        (lambda: story.tools("pure"), UNKNOWN),
        (story.asking, UNKNOWN),
        (story.unknown, UNKNOWN),
    ],
    ids=["unplanned", "waiting", "external", "pure", "asking", "unknown"],
)
def test_an_interrupted_call_is_said_not_to_have_run_only_where_it_never_started(given: Any, text: str) -> None:
    s = given()
    s.do(Interrupt(at=s.now()))

    response = next(entry.parts[0] for entry in reversed(s.entries) if isinstance(entry, OperationEnded))
    assert isinstance(response, ToolCallResponse)
    assert (response.response, response.is_error) == (text, True)


def test_a_call_that_ended_before_the_interrupt_keeps_its_result() -> None:
    s = story.batch(planned(call("c1"), "pure"), planned(call("c2"), "external"))
    s.tool_ends("t2.0.1", response="kept")
    s.do(Interrupt(at=s.now()))

    assert [line(entry) for entry in s.entries if isinstance(entry, OperationEnded)][1:] == [
        "operation_ended t2.0.1#1 succeeded 'kept'",
        f"operation_ended t2.0.2#1 uncertain (interrupted) !{UNKNOWN!r}",
    ]


def test_nothing_is_due_and_nothing_can_start_after_an_interrupt() -> None:
    s = story.batch(*_exclusive_in_the_middle())
    s.do(Interrupt(at=s.now()))

    assert due(s.checkpoint) == ()
    assert s.starts() == []
    assert s.do(AttemptEnded(operation="t2.0.1", attempt=1, status="succeeded", at=s.now())) == []
    assert s.do(TimePassed(at=s.now() + 10**9)) == []


@pytest.mark.spec("S0-203")
def test_a_stored_end_stands_before_what_is_unknown_a_persons_word_a_limit_and_an_answer_in_this_order() -> None:
    def beyond() -> Story:
        """A limit was passed by an answer that asks for a call."""
        s = Story()
        s.says(limits=Limits(tokens=14))
        s.steps()
        s.model_ends(call("c1"))
        return s

    assert beyond().plans(planned(call("c1")))[-1].kind == "turn_limited"
    assert beyond().do(Interrupt(at=9_000))[-1].kind == "turn_aborted"
    assert story.completing().do(Interrupt(at=9_000))[-1].kind == "turn_aborted"
    assert story.completing().do(Finish(at=9_000))[-1].kind == "turn_completed"

    asked = story.asking()
    asked.do(Interrupt(at=9_000))
    known = [entry.status for entry in asked.entries if isinstance(entry, OperationEnded) and entry.operation == "t2.0.1"]
    assert known[-1] == "uncertain"

    ended = story.completing()
    ended.do(Finish(at=9_000))
    stored = ended.checkpoint
    with pytest.raises(SubmissionRejected):
        ended.do(Interrupt(at=9_001))
    assert ended.do(ended.claim()) == []
    assert ended.checkpoint == stored


def test_an_answer_to_a_request_that_fell_with_its_turn_is_stale() -> None:
    s = story.waiting()
    answer = s.answer("t2.0.1", "approve")
    s.do(Interrupt(at=s.now()))

    with pytest.raises(StaleRequest):
        s.do(answer)


# ---------------------------------------------------------------------------------------------------------------- identities


def test_the_idempotency_key_names_the_store_the_session_and_the_operation_and_nothing_else() -> None:
    key = ids.idempotency_key("store", "s1", "t2.0.1")

    assert key.startswith("pd_")
    assert len(key) == 35
    assert key == ids.idempotency_key("store", "s1", "t2.0.1")
    others = {ids.idempotency_key(*names) for names in (("other", "s1", "t2.0.1"), ("store", "s2", "t2.0.1"), ("store", "s1", "t2.0.2"))}
    assert len(others | {key}) == 4


def test_identities_are_counted_by_turn_step_and_order() -> None:
    s = story.batch(planned(call("c1"), "pure"), planned(call("c2"), "pure"))
    s.tool_ends("t2.0.1")
    s.tool_ends("t2.0.2")
    s.steps("next")

    assert s.running_model.id == "t2.1.0"


def test_time_never_goes_back() -> None:
    s = story.model()
    before = s.checkpoint.at

    written = s.do(Interrupt(at=1))

    assert {entry.at for entry in written} == {before}


def test_what_may_start_is_nothing_while_calls_are_unplanned() -> None:
    turn = story.unplanned().checkpoint.turn
    assert turn is not None
    assert startable(turn) == ()


def test_an_approval_that_was_used_does_not_answer_the_guards_question() -> None:
    s = story.waiting()
    first = s.operation("t2.0.1").request
    s.do(s.answer("t2.0.1", "approve"))
    match = EffectMatch(operation="t1.0.1", seq=1, state="uncertain")
    s.do(Guarded(operation="t2.0.1", match=match, reason="again?", deadline=0, at=s.now()))

    assert s.operation("t2.0.1").request not in ("", first)
    with pytest.raises(StaleRequest):
        s.do(Answer(request_id=first, decision="approve", at=s.now()))


def test_stops_of_the_process_use_up_no_retries() -> None:
    s = story.model()
    for _ in range(7):
        s.model_ends(status="cancelled", final=False, failure=Failure(code="shutdown"))
        s.steps()
    told = lines(s.model_ends(status="failed", retryable=True, failure=Failure(code="down")))

    assert told == ["operation_ended t2.0.0#8 failed… (down)"]
