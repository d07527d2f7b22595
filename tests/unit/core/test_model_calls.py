"""The ledger of model calls is what starts and receipts say together."""

from __future__ import annotations

import pytest
import story
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.canonical import MAX_INTEGER
from perdure.core.messages import Text
from perdure.core.records import Failure
from perdure.core.usage import Cost, Totals, Usage, dollars
from perdure.runtime.model_calls import ModelCall, Spending, model_calls


def calls_of(s: story.Story) -> list[ModelCall]:
    return list(model_calls(s.entries))


def test_a_call_that_runs_is_no_record_yet_and_one_that_ended_is_one_for_every_attempt() -> None:
    s = story.model()
    assert calls_of(s) == []
    s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"))
    s.steps()
    s.model_ends(Text(content="hi"), model="gpt", usage=Usage(input_tokens=3, output_tokens=2))

    first, second = calls_of(s)
    assert (first.operation, first.attempt, first.status, first.error, first.usage) == ("t2.0.0", 1, "failed", "rate_limited", None)
    assert (second.operation, second.attempt, second.status, second.error) == ("t2.0.0", 2, "succeeded", "")
    assert (second.kind, second.route, second.model, second.turn) == ("model", "scripted:1", "gpt", "t2")
    assert second.usage == Usage(input_tokens=3, output_tokens=2)
    assert first.started < first.ended < second.started < second.ended
    assert first.seq < second.seq


def test_a_call_of_which_nothing_was_sent_is_no_record() -> None:
    s = story.model()
    s.model_ends(status="failed", unsent=True, failure=Failure(code="missing_key"))

    assert calls_of(s) == []
    assert s.checkpoint.usage == Totals()


def test_an_attempt_that_a_crash_cut_off_is_a_record_of_unknown_usage_and_its_repetition_another() -> None:
    s = story.model()
    s.do(s.claim())
    s.steps()
    s.model_ends(Text(content="hi"), usage=Usage(input_tokens=3, output_tokens=2))

    assert [(call.status, call.error, call.source) for call in calls_of(s)] == [
        ("uncertain", "restart", "unknown"),
        ("succeeded", "", "reported"),
    ]


def test_notes_are_calls_of_their_own_kind_on_every_attempt() -> None:
    s = story.outgrown()
    s.do(s.notes_asked())
    s.do(s.notes_end(status="failed", retryable=True, failure=Failure(code="rate_limited")))
    s.do(s.notes_asked())
    s.do(s.notes_end(status="failed", failure=Failure(code="refused")))

    assert [call.kind for call in calls_of(s)][-2:] == ["compaction", "compaction"]


def test_a_model_may_say_that_its_numbers_are_an_estimate() -> None:
    s = story.model()
    s.model_ends(Text(content="hi"), usage=Usage(input_tokens=3, output_tokens=2, estimated=True))

    assert [call.source for call in calls_of(s)] == ["estimated"]
    assert s.checkpoint.usage.estimated_calls == 1


def call_with(usage: Usage | None, cost: Cost | None = None) -> ModelCall:
    return ModelCall(
        seq=5, operation="t2.0.0", attempt=1, kind="model", route="a", status="succeeded", started=1, ended=2, usage=usage, cost=cost
    )


@pytest.mark.spec("S0-133")
def test_a_sum_is_none_as_soon_as_one_call_lacks_the_number_and_what_is_known_is_there_too() -> None:
    spending = Spending.of(
        [
            call_with(Usage(input_tokens=10, output_tokens=5, reasoning_tokens=0), Cost(nanodollars=7, price="p")),
            call_with(Usage(input_tokens=1, output_tokens=2, cache_read_tokens=1), Cost(nanodollars=None, price="unknown")),
        ]
    )

    assert (spending.input_tokens, spending.output_tokens, spending.total_tokens) == (11, 7, 18)
    assert (spending.cache_read_tokens, spending.reasoning_tokens, spending.cost) == (None, None, None)
    known = spending.known
    assert (known.calls, known.cache_read_tokens, known.cost, known.unpriced_calls, known.unknown_calls) == (2, 1, 7, 1, 0)

    lost = Spending.of([call_with(Usage(input_tokens=10, output_tokens=5)), call_with(None)])
    assert (lost.input_tokens, lost.total_tokens, lost.known.total_tokens, lost.known.unknown_calls) == (None, None, 15, 1)


def test_an_empty_ledger_adds_up_to_exact_zeros() -> None:
    spending = Spending.of([])

    assert (spending.input_tokens, spending.output_tokens, spending.total_tokens, spending.cost) == (0, 0, 0, 0)
    assert (spending.cache_read_tokens, spending.cache_write_tokens, spending.reasoning_tokens) == (0, 0, 0)


@pytest.mark.spec("S0-266", "S2-059")
def test_numbers_too_large_to_add_up_are_unknown_and_never_break_a_checkpoint() -> None:
    s = story.model()
    huge = Usage(input_tokens=MAX_INTEGER - 1, output_tokens=1)
    s.model_ends(status="failed", retryable=True, usage=huge)
    s.steps()
    s.model_ends(Text(content="hi"), usage=huge)

    totals = s.checkpoint.usage
    assert (totals.calls, totals.unknown_calls, totals.input_tokens, totals.output_tokens) == (2, 1, MAX_INTEGER - 1, 2)
    spending = Spending.of(calls_of(s))
    assert (spending.input_tokens, spending.output_tokens, spending.known) == (None, 2, totals)


usages = st.none() | st.builds(
    Usage,
    input_tokens=st.none() | st.integers(0, MAX_INTEGER),
    output_tokens=st.none() | st.integers(0, MAX_INTEGER),
    cache_read_tokens=st.none() | st.integers(0, MAX_INTEGER),
)


@given(st.lists(usages, max_size=6))
def test_what_is_known_is_the_same_sum_that_the_checkpoint_keeps(given_usages: list[Usage | None]) -> None:
    totals = Totals()
    for usage in given_usages:
        totals = totals.plus(usage)
    spending = Spending.of([call_with(usage) for usage in given_usages])

    assert spending.known == totals
    assert (spending.input_tokens is None) == any(usage is None or usage.input_tokens is None for usage in given_usages) or (
        sum((usage.input_tokens or 0) for usage in given_usages if usage) > MAX_INTEGER
    )


def test_costs_are_shown_as_dollars() -> None:
    assert [dollars(amount) for amount in (0, 50_000_000, 1_234_560_000_000, 1_500, 123_400_000, -2_000_000_000)] == [
        "$0.00",
        "$0.05",
        "$1234.56",
        "$0.0000015",
        "$0.1234",
        "-$2.00",
    ]
