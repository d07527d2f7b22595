"""One byte form for every record, and what has none."""

from __future__ import annotations

import enum
import json
import math
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core import canonical
from perdure.core.errors import NotCanonical, UsageError


class Colour(str, enum.Enum):  # noqa: UP042 - what user code has
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    """As user code passes them: a str that is none to an encoder."""


class Amount(float):
    """Like the numbers of numpy."""


def test_keys_are_sorted_at_every_depth_and_nothing_is_between_the_tokens() -> None:
    assert canonical.encode({"b": [{"z": 1, "a": 2}], "a": "é"}) == '{"a":"é","b":[{"a":2,"z":1}]}'.encode()


def test_the_same_value_has_the_same_bytes_however_it_was_built() -> None:
    first = {"a": 1, "b": {"c": 2, "d": 3}}
    second = {"b": {"d": 3, "c": 2}, "a": 1}

    assert canonical.encode(first) == canonical.encode(second)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "value is nan"),
        (math.inf, "value is inf"),
        ({"a": [1, -math.inf]}, r"value\.a\[1\] is -inf"),
        (2**53 + 1, "value is an integer beyond"),
        (-(2**53) - 1, "value is an integer beyond"),
        ({"deep": {"er": [0, {"x": 2**60}]}}, r"value\.deep\.er\[1\]\.x is an integer beyond"),
        ("\ud800", "value holds text that is not valid Unicode"),
        ({"a": ["ok", "\udfff"]}, r"value\.a\[1\] holds text that is not valid Unicode"),
        ({"\ud800": 1}, "a key of value holds text that is not valid Unicode"),
        ({1: "a"}, "value has a key that is not a string: 1"),
        ({"a": {None: 1}}, r"value\.a has a key that is not a string: None"),
        ({"a": {1, 2}}, r"value\.a is of the type set"),
        (b"bytes", "value is of the type bytes"),
        (datetime.now(UTC), "value is of the type datetime"),
        (Decimal(1), "value is of the type Decimal"),
        (object(), "value is of the type object"),
    ],
)
def test_what_json_can_not_hold_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(NotCanonical, match=words) as refused:
        canonical.check(value)

    assert isinstance(refused.value, UsageError)
    assert refused.value.hint


def test_the_place_begins_with_what_the_caller_calls_the_value() -> None:
    with pytest.raises(NotCanonical, match=r"^the result\.cents is nan"):
        canonical.check({"cents": math.nan}, "the result")


@pytest.mark.parametrize("value", [0, 2**53, -(2**53), 1e300, -0.0, "", "𝄞", True, None, [], {}, [[]], {"": {}}])
def test_the_edges_of_what_json_can_hold_are_kept(value: Any) -> None:
    assert canonical.decode(canonical.encode(canonical.check(value))) == value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Name("ann"), "ann"),
        (Amount(1.5), 1.5),
        ((1, (2,)), [1, [2]]),
        (namedtuple("Pair", "a b")(1, 2), [1, 2]),
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        ({Name("k"): Name("v")}, {"k": "v"}),
    ],
)
def test_checked_values_are_plain_so_that_they_can_be_encoded(value: Any, plain: Any) -> None:
    checked = canonical.check(value)

    assert checked == plain
    assert canonical.encode(checked) == canonical.encode(plain)


def test_a_checked_value_is_a_copy() -> None:
    value = {"a": [1]}
    checked = canonical.check(value)
    value["a"].append(2)

    assert checked == {"a": [1]}


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_that_nobody_could_read_back_is_refused() -> None:
    deepest = _nested(canonical.MAX_DEPTH)
    assert canonical.decode(canonical.encode(canonical.check(deepest))) == deepest

    for levels in (canonical.MAX_DEPTH + 1, 100_000):
        with pytest.raises(NotCanonical, match="nested deeper than 128 levels"):
            canonical.check(_nested(levels))


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(plain_json)
def test_what_is_checked_comes_back_as_it_was_and_is_encoded_the_same_again(value: Any) -> None:
    data = canonical.encode(canonical.check(value))

    assert canonical.decode(data) == value
    assert canonical.encode(canonical.decode(data)) == data
    assert json.loads(data) == value


def test_a_digest_over_fields_can_not_be_confused_by_what_the_fields_hold() -> None:
    digests = {canonical.short_digest(*fields) for fields in (("a", "b"), ("ab", ""), ("a,b",), ('a","b',), ("a", "b", ""), (1,), ("1",))}

    assert len(digests) == 7
    assert all(len(digest) == 64 for digest in digests)
