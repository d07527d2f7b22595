"""Budgets: counted once, checked before anything is called, and never in the middle of an effect."""

from __future__ import annotations

from typing import Any

import pytest
import story
from msgspec.structs import replace
from story import Story, call, line, lines, planned

from perdure.core.budget import drawn_and_spent, elapsed, left
from perdure.core.commands import Halt, Repair
from perdure.core.entries import AllowanceGranted, TurnLimited, TurnStarted
from perdure.core.errors import SubmissionRejected
from perdure.core.messages import Text
from perdure.core.records import Amounts, Failure, Limits, Pool, Reached
from perdure.core.reports import Parked
from perdure.core.usage import Cost, Usage


def limited(s: Story) -> TurnLimited:
    ended = s.entries[-1]
    assert isinstance(ended, TurnLimited), line(ended)
    return ended


def reached(s: Story) -> tuple[str, str, int, int]:
    ended = limited(s)
    assert ended.reached is not None
    return ended.limit, ended.reached.scope, ended.reached.used, ended.reached.allowed


def one_step(s: Story, *, usage: Usage | None = story.SPENT, cost: Cost | None = None, name: str = "c1") -> None:
    """A model call that asks for one tool, and the tool."""
    s.steps()
    s.model_ends(call(name), usage=usage, cost=cost)
    s.plans(planned(call(name), "pure"))
    if s.checkpoint.turn is not None and s.checkpoint.turn.tools:
        s.tool_ends(s.checkpoint.turn.tools[-1].id)


# ---------------------------------------------------------------------------------------------------------------- each limit


@pytest.mark.spec("S0-258", "S0-259")
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(steps=1), ("steps", "turn", 1, 1)),
        (Limits(model_calls=1), ("model_calls", "turn", 1, 1)),
        (Limits(tokens=15), ("tokens", "turn", 15, 15)),
        (Limits(cost=7), ("cost", "turn", 7, 7)),
    ],
)
def test_what_is_used_up_exactly_may_be_finished_with_and_keeps_the_next_model_call_from_being_made(limits: Limits, said: Any) -> None:
    s = Story()
    s.says(limits=limits)
    one_step(s, cost=Cost(nanodollars=7))
    assert s.steps()[-1].kind == "turn_limited"
    assert reached(s) == said

    other = Story()
    other.says(limits=limits)
    other.steps()
    other.model_ends(Text(content="done"), cost=Cost(nanodollars=7))
    assert other.phase == "completing"


@pytest.mark.spec("S0-260", "S0-261")
def test_a_call_that_went_beyond_a_limit_is_followed_by_no_tool_and_the_overshoot_is_told_exactly() -> None:
    s = Story()
    s.says(limits=Limits(tokens=14))
    s.steps()
    s.model_ends(call("c1"), call("c2"))

    written = s.plans(planned(call("c1")), planned(call("c2")))

    assert [entry.kind for entry in written] == [
        *("operation_planned", "operation_ended", "operation_planned", "operation_ended", "message", "turn_limited"),
    ]
    assert reached(s) == ("tokens", "turn", 15, 14)
    assert all(entry.failure.code == "limit" and not entry.attempt for entry in written if entry.kind == "operation_ended")  # type: ignore[attr-defined]


def test_an_answer_that_went_beyond_a_limit_is_an_answer_all_the_same() -> None:
    s = Story()
    s.says(limits=Limits(tokens=3))
    s.steps()
    s.model_ends(Text(content="long"))

    assert s.phase == "completing"


def test_every_attempt_of_a_model_call_counts_and_none_is_made_beyond_the_limit() -> None:
    s = Story()
    s.says(limits=Limits(model_calls=2))
    s.steps()
    s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"))
    s.steps()
    s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"))

    assert lines(s.steps()) == ["operation_ended t2.0.0#0 cancelled (limit)", "turn_limited t2 model_calls"]


@pytest.mark.spec("S0-271", "S0-054")
def test_steps_count_answers_and_no_call_that_was_made_for_something_else() -> None:
    s = story.outgrown()
    turn = s.checkpoint.turn
    assert turn is not None
    s.do(s.notes_asked())
    s.do(s.notes_end(story.saved("notes")))

    assert s.checkpoint.turn is not None
    assert (s.checkpoint.turn.step, s.checkpoint.turn.usage.calls) == (0, 1)


@pytest.mark.spec("S0-270")
def test_a_tool_call_is_counted_once_however_often_its_process_dies() -> None:
    """With a limit of one call, a turn whose one tool was cut off three times still completes."""
    s = Story()
    s.says(limits=Limits(tool_calls=1))
    s.steps()
    s.model_ends(call("c1"))
    s.plans(planned(call("c1"), "idempotent"))
    for _ in range(3):
        s.do(s.claim())
        s.starts()
    s.tool_ends("t2.0.1")
    s.steps()
    s.model_ends(Text(content="done"))

    assert s.phase == "completing"
    assert s.checkpoint.turn is not None
    assert s.checkpoint.turn.tool_calls == 1


@pytest.mark.spec("S0-262")
def test_where_several_limits_are_reached_the_first_in_their_order_is_named() -> None:
    order = ("seconds", "tokens", "cost", "model_calls", "steps")
    for place in range(len(order)):
        s = Story()
        s.says(limits=Limits(**dict.fromkeys(order[place:], 1)))
        s.steps()
        s.at += 1_000
        s.model_ends(call("c1"), usage=Usage(input_tokens=1, output_tokens=0), cost=Cost(nanodollars=1))
        s.plans(planned(call("c1"), "pure"))
        if s.checkpoint.turn is not None:
            s.tool_ends("t2.0.1")
            s.steps()
        assert limited(s).limit == order[place]


# -------------------------------------------------------------------------------------------------------------------- scopes


@pytest.mark.spec("S0-291")
def test_the_tighter_of_the_agents_and_the_runs_limits_holds_and_is_named() -> None:
    from perdure.core.commands import PostMessage
    from perdure.core.reports import Accept

    for agents, runs, scope in ((Limits(tokens=15), Limits(tokens=99), "turn"), (Limits(tokens=99), Limits(tokens=15), "run")):
        s = Story()
        post = PostMessage(parts=(Text(content="hi"),), submission="m1", limits=runs)
        s.do(Accept(post=post, agent="support", definition="d", limits=agents, at=s.now()))
        one_step(s)
        s.steps()
        assert reached(s) == ("tokens", scope, 15, 15)


def test_a_sessions_limit_counts_all_its_turns_and_only_what_was_used_is_taken_from_it() -> None:
    s = Story()
    limits = Limits(tool_calls=2, tokens=1_000)
    s.says(session_limits=limits, spent=Amounts())
    one_step(s)
    s.steps()
    s.model_ends(Text(content="one"))
    s.do(story.Finish(at=s.now()))
    assert s.checkpoint.spent == Amounts(steps=2, tool_calls=1)

    s.says(session_limits=limits, submission="m2")
    s.steps()
    s.model_ends(call("c8"), call("c9"))
    s.plans(planned(call("c8")), planned(call("c9")))
    assert reached(s) == ("tool_calls", "session", 1, 2)
    assert s.folds()


@pytest.mark.spec("S0-257", "S0-124")
def test_a_session_that_nothing_limits_keeps_no_counters() -> None:
    s = story.model()
    s.model_ends(Text(content="hi"))
    s.do(story.Finish(at=s.now()))

    assert s.checkpoint.spent is None
    assert s.checkpoint.limited is None


# ------------------------------------------------------------------------------------------------------------- what is unknown


@pytest.mark.spec("S0-263", "S0-264")
def test_usage_that_nobody_knows_counts_as_nothing_unless_the_limit_is_strict() -> None:
    for strict in (False, True):
        s = Story()
        s.says(limits=Limits(tokens=1_000, strict=strict))
        one_step(s, usage=None)
        if not strict:
            s.steps()
            assert s.running_model.status == "started"
            continue
        ended = limited(s)
        assert ended.reached == Reached(scope="turn", used=0, allowed=1_000, unknown=True)
        assert "not known" in ended.reason


@pytest.mark.spec("S0-265")
def test_an_unknown_price_counts_as_nothing_unless_the_limit_is_strict() -> None:
    for strict in (False, True):
        s = Story()
        s.says(limits=Limits(cost=1_000, strict=strict))
        one_step(s, cost=Cost(price="no price is known"))
        if strict:
            assert limited(s).limit == "cost"
        else:
            assert s.steps()[-1].kind == "operation_started"


# ---------------------------------------------------------------------------------------------------------------------- time


@pytest.mark.spec("S0-267")
def test_time_is_what_calls_took_and_neither_what_people_nor_a_dead_process_took() -> None:
    s = Story()
    s.says(limits=Limits(seconds=1_000))
    s.at += 5_000  # nobody works on it
    s.steps()
    s.at += 390
    s.model_ends(call("c1"))  # 400 ms
    assert s.checkpoint.turn is not None
    assert s.checkpoint.turn.ran == 400
    s.plans(planned(call("c1"), "idempotent", verdict="ask"))
    s.at += 3_600_000  # a person thinks about it
    s.do(s.answer("t2.0.1", "approve"))
    assert s.checkpoint.turn.ran == 400
    s.starts()
    s.at += 7_200_000  # its process dies, and hours later another one takes the session up
    s.do(s.claim())
    assert s.checkpoint.turn.ran == 400
    s.starts()
    s.at += 90
    s.tool_ends("t2.0.1")  # 100 ms
    assert s.checkpoint.turn.ran == 500
    assert s.folds()


def test_the_pause_before_a_call_is_tried_again_is_time_too_but_no_longer_than_it_was_to_be() -> None:
    s = Story()
    s.says(limits=Limits(seconds=1_000))
    s.steps()
    s.model_ends(status="failed", retryable=True, retry_after=2_000)  # 10 ms, then a pause of 2 s
    s.at += 60_000
    s.steps()
    assert s.checkpoint.turn is not None
    assert s.checkpoint.turn.ran == 10 + 2_000


def test_a_clock_that_jumps_backwards_takes_no_time_away() -> None:
    s = Story()
    s.says(limits=Limits(seconds=1_000))
    s.steps()
    s.at -= 500_000
    s.model_ends(call("c1"))
    assert s.checkpoint.turn is not None
    assert s.checkpoint.turn.ran == 0
    assert [entry.at for entry in s.entries] == sorted(entry.at for entry in s.entries)


def test_time_that_is_up_lets_what_runs_end_and_begins_nothing_more() -> None:
    s = Story()
    s.says(limits=Limits(seconds=1))
    s.steps()
    s.model_ends(call("c1"), call("c2"))
    s.plans(planned(call("c1"), "external", exclusive=True), planned(call("c2"), "external", exclusive=True))
    s.at += 5_000
    assert lines(s.tool_ends("t2.0.1")) == ["operation_ended t2.0.1#1 succeeded 'done'"]
    assert lines(s.starts()) == [
        "operation_ended t2.0.2#0 cancelled (limit) !'not executed'",
        f"message tool → {s.entries[-4].seq},{s.entries[-3].seq}",
        "turn_limited t2 seconds",
    ]
    assert reached(s) == ("seconds", "turn", 5, 1)


def test_nobody_counts_time_that_nothing_limits() -> None:
    s = story.tools()
    s.at += 10_000
    s.tool_ends("t2.0.1")
    assert s.checkpoint.turn is not None
    assert s.checkpoint.turn.ran == 0
    assert elapsed(story.tools().checkpoint, replace(s.entries[-1], at=1_000_000)) > 0


# -------------------------------------------------------------------------------------------------------------------- resuming


def out_of_tokens() -> Story:
    s = Story()
    s.says(limits=Limits(tokens=15))
    one_step(s)
    s.steps()
    assert limited(s).limit == "tokens"
    return s


def test_a_limited_turn_goes_on_without_a_message_under_a_higher_limit_and_counts_on() -> None:
    s = out_of_tokens()
    (began,) = s.resumes(Limits(tokens=30), agents=Limits(tokens=15))
    assert isinstance(began, TurnStarted)
    assert (began.resumes, began.author, began.limits) == ("t2", "ann", Limits(tokens=30))
    assert began.carried is not None
    assert (began.carried.tokens, began.carried.steps, began.carried.tool_calls) == (15, 1, 1)
    assert s.phase == "model"

    one_step(s, name="c7")
    s.steps()
    ended = limited(s)
    assert reached(s) == ("tokens", "turn", 30, 30)
    # What the turn itself used is told apart from what it carried on.
    assert (ended.usage.total_tokens, ended.steps) == (15, 1)

    s.resumes(Limits(tokens=45), agents=Limits(tokens=15))
    turn = s.checkpoint.turn
    assert turn is not None
    assert turn.carried is not None
    assert turn.carried.tokens == 30
    assert s.folds()


def test_going_on_without_raising_anything_is_limited_at_once_and_calls_nothing() -> None:
    s = out_of_tokens()
    s.resumes(agents=Limits(tokens=15))

    assert lines(s.steps()) == [f"turn_limited t{limited(s).began} tokens"]


def test_only_a_turn_that_was_limited_can_be_gone_on_with_and_only_until_another_begins() -> None:
    with pytest.raises(SubmissionRejected) as refused:
        Story().resumes()
    assert refused.value.facts["reason"] == "not_limited"

    s = out_of_tokens()
    s.says("something else", submission="m2")
    s.steps()
    s.model_ends(Text(content="yes"))
    s.do(story.Finish(at=s.now()))
    with pytest.raises(SubmissionRejected):
        s.resumes(Limits(tokens=99))


# ----------------------------------------------------------------------------------------------------------------------- pools


def with_pool(**limits: Any) -> Story:
    s = Story()
    s.pool = Pool(id="p", limits=Limits(**limits))
    s.says()
    return s


def draws(s: Story) -> list[Amounts]:
    return [entry.drawn for entry in s.entries if isinstance(entry, AllowanceGranted)]


def test_a_turn_draws_before_it_calls_and_again_only_when_that_is_used_up() -> None:
    s = with_pool(tokens=80_000)
    assert lines(s.steps()) == ["allowance_granted p", "operation_started t2.0.0#1"]
    assert draws(s) == [Amounts(tokens=10_000)]
    s.model_ends(call("c1"), usage=Usage(input_tokens=9_999, output_tokens=0))
    s.plans(planned(call("c1"), "pure"))
    s.tool_ends("t2.0.1")
    s.steps()
    assert len(draws(s)) == 1, "a token is left of what was drawn"
    s.model_ends(call("c2"), usage=Usage(input_tokens=5_000, output_tokens=0))
    s.plans(planned(call("c2"), "pure"))
    s.tool_ends("t2.1.1")
    s.steps()
    # What was used beyond it, and one more, is drawn at least.
    assert draws(s)[1:] == [Amounts(tokens=70_000 // 8)]
    assert s.pool is not None
    assert left(s.pool) == {"tokens": 80_000 - 10_000 - 70_000 // 8}
    assert s.folds()


def test_an_empty_pool_calls_nothing_and_ends_the_turn_as_its_owners_limit() -> None:
    s = with_pool(tokens=5)
    one_step(s)
    s.steps()

    assert reached(s) == ("tokens", "owner", 5, 5)
    assert "owner's pool" in limited(s).reason


def test_tools_and_steps_are_drawn_as_they_are_needed() -> None:
    s = with_pool(tool_calls=2, model_calls=3)
    one_step(s)
    s.steps()
    s.model_ends(call("c5"), call("c6"))
    s.plans(planned(call("c5")), planned(call("c6")))

    assert reached(s) == ("tool_calls", "owner", 1, 2)


def test_a_pool_that_was_made_anew_owes_nothing_for_what_was_used_before() -> None:
    s = with_pool(tokens=80_000)
    one_step(s)
    s.pool = Pool(id="another", limits=Limits(tokens=16_000))
    s.steps()

    assert draws(s)[1:] == [Amounts(tokens=2_000)]
    turn = s.checkpoint.turn
    assert turn is not None
    assert turn.allowance is not None
    assert (turn.allowance.pool, turn.allowance.base.tokens) == ("another", 15)


def test_a_turn_that_waits_gives_back_what_it_did_not_use_and_its_time_goes_on_counting() -> None:
    s = with_pool(tokens=80_000, seconds=600)
    one_step(s)
    s.do(Parked(pool=s.pool, at=s.now()))
    turn = s.checkpoint.turn
    assert turn is not None
    assert turn.allowance is not None
    drawn, used = drawn_and_spent(turn, turn.allowance)
    assert (drawn.tokens, drawn.ms) == (used.tokens, used.ms) == (15, turn.ran)
    assert lines(s.steps())[0] == "allowance_granted p"
    assert s.folds()


def test_a_turn_that_waits_and_used_more_than_it_drew_gives_nothing_back_and_draws_nothing() -> None:
    s = with_pool(tokens=80_000)
    s.steps()
    s.model_ends(call("c1"), usage=Usage(input_tokens=12_000, output_tokens=0))
    s.plans(planned(call("c1"), verdict="ask"))
    assert draws(s) == [Amounts(tokens=10_000)]
    assert s.do(Parked(pool=s.pool, at=s.now())) == []


def test_a_halted_turn_gives_back_what_it_did_not_use_and_draws_again_once_it_goes_on() -> None:
    s = with_pool(tokens=80_000)
    one_step(s)
    s.do(Halt(submission="h", at=s.now()))
    assert isinstance(s.entries[-2], AllowanceGranted)
    assert s.entries[-2].settled
    turn = s.checkpoint.turn
    assert turn is not None
    assert turn.allowance is None
    s.do(Repair(submission="r", at=s.now()))
    assert lines(s.steps())[0] == "allowance_granted p"
    assert s.folds()
