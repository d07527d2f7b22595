"""Tokens that nobody reported are unknown, and never 0."""

from __future__ import annotations

import pytest

from perdure.core import canonical
from perdure.core.usage import Totals, Usage


@pytest.mark.parametrize(
    ("usage", "unknown"),
    [
        (None, 1),
        (Usage(), 1),
        (Usage(input_tokens=3), 1),
        (Usage(output_tokens=3), 1),
        (Usage(input_tokens=0, output_tokens=0), 0),
        (Usage(input_tokens=3, output_tokens=4), 0),
    ],
)
def test_a_call_is_of_unknown_size_unless_both_ends_were_reported(usage: Usage | None, unknown: int) -> None:
    totals = Totals().plus(usage)

    assert (totals.calls, totals.unknown_calls) == (1, unknown)


def test_unknown_and_zero_are_stored_differently() -> None:
    assert canonical.encode(Usage(input_tokens=0)) == b'{"input_tokens":0}'
    assert canonical.encode(Usage()) == b"{}"


def test_totals_add_up_what_is_known() -> None:
    totals = (
        Totals()
        .plus(Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=3))
        .plus(Usage(input_tokens=1))
        .plus(None)
    )

    assert totals == Totals(
        calls=3,
        unknown_calls=2,
        input_tokens=11,
        output_tokens=5,
        cache_read_tokens=4,
        cache_write_tokens=2,
        reasoning_tokens=3,
    )
    assert totals.total_tokens == 16
    assert "2 of unknown size" in str(totals)
    assert "unknown" not in str(Totals().plus(Usage(input_tokens=1, output_tokens=1)))


@pytest.mark.parametrize(
    ("usages", "words"),
    [
        ([], "no model calls"),
        ([None], "1 model call, tokens unknown"),
        ([None, Usage()], "2 model calls, tokens unknown"),
        ([Usage(input_tokens=7, output_tokens=3)], "1 model call, 7 tokens in, 3 out"),
        ([Usage(input_tokens=7, output_tokens=3), None], "2 model calls (1 of unknown size), 7 tokens in, 3 out"),
        ([Usage(input_tokens=0, output_tokens=0)], "1 model call, 0 tokens in, 0 out"),
    ],
)
def test_totals_say_what_nobody_knows(usages: list[Usage | None], words: str) -> None:
    totals = Totals()
    for usage in usages:
        totals = totals.plus(usage)

    assert str(totals) == words
