"""Layouts against plain lists: whatever is sliced and spliced, the messages are those that a list would hold."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import LimitExceeded, TooManyRanges
from perdure.core.layout import RANGES_LIMIT, Layout, Piece, Place

numbers = st.integers(1, 12)
drawn = st.builds(
    lambda session, start, length: Piece(session, start, start + length), st.sampled_from(["", "parent"]), numbers, st.integers(0, 6)
)
pieces = st.lists(drawn, max_size=8)
positions = st.integers(0, 40)


@given(pieces)
def test_a_layout_holds_the_messages_of_its_ranges_in_their_order(given_pieces: list[Piece]) -> None:
    layout = Layout(given_pieces)

    messages = [Place(piece.session, number) for piece in given_pieces for number in range(piece.start, piece.stop)]
    assert list(layout) == messages
    assert len(layout) == len(messages)
    assert [layout.locate(position) for position in range(len(layout))] == messages


@given(pieces)
def test_ranges_that_follow_each_other_are_one_and_none_is_empty(given_pieces: list[Piece]) -> None:
    kept = Layout(given_pieces).pieces

    assert all(len(piece) > 0 for piece in kept)
    assert all((one.session, one.stop) != (other.session, other.start) for one, other in pairwise(kept))


@given(pieces, positions, positions)
def test_a_slice_is_the_slice_of_a_list(given_pieces: list[Piece], start: int, stop: int) -> None:
    layout = Layout(given_pieces)

    assert list(layout.slice(start, stop)) == list(layout)[start:stop]
    assert list(layout.slice(start)) == list(layout)[start:]


@given(pieces, pieces, positions, positions)
def test_a_splice_is_the_splice_of_a_list(given_pieces: list[Piece], others: list[Piece], one: int, other: int) -> None:
    layout, replacement = Layout(given_pieces), Layout(others)
    start, stop = sorted(min(position, len(layout)) for position in (one, other))

    spliced = layout.splice(start, stop, replacement)

    assert list(spliced) == [*list(layout)[:start], *list(replacement), *list(layout)[stop:]]
    assert spliced == Layout(Piece(place.session, place.number, place.number + 1) for place in spliced)


@given(pieces, st.sampled_from(["", "parent"]), numbers)
def test_a_message_is_found_where_it_stands_first(given_pieces: list[Piece], session: str, number: int) -> None:
    layout = Layout(given_pieces)
    messages = list(layout)

    expected = messages.index(Place(session, number)) if Place(session, number) in messages else None
    assert layout.position(session, number) == expected


def test_a_fork_names_the_messages_of_its_parent() -> None:
    layout = Layout([Piece("", 1, 4), Piece("grandparent", 7, 8)])

    assert layout.of("parent") == Layout([Piece("parent", 1, 4), Piece("grandparent", 7, 8)])


def test_a_position_outside_is_no_message() -> None:
    for position in (-1, 3):
        with pytest.raises(IndexError):
            Layout([Piece("", 1, 4)]).locate(position)


def test_as_many_ranges_as_the_limit_are_kept_and_one_more_is_refused_by_name() -> None:
    most = [Piece("", 2 * index, 2 * index + 1) for index in range(RANGES_LIMIT)]
    assert len(Layout(most).pieces) == RANGES_LIMIT

    with pytest.raises(TooManyRanges) as refused:
        Layout([*most, Piece("other", 1, 2)])
    assert isinstance(refused.value, LimitExceeded)
    assert refused.value.facts["limit"] == "ranges"
