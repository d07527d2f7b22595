"""Which messages stand where: a list of ranges over messages that never change (a piece table)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

import msgspec

from .errors import TooManyRanges

__all__ = ["RANGES_LIMIT", "Layout", "Piece", "Place"]

RANGES_LIMIT = 4096
"""The most ranges that one layout may have once neighbours are merged."""


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The messages of a session with ``start <= number < stop``. An empty ``session`` is the one that the layout belongs to."""

    session: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Place(NamedTuple):
    """A message by its session and number."""

    session: str
    number: int


class Layout:
    """Messages in their order, as ranges. Equal to another that names the same messages in the same order.

    Ranges that follow each other are one, and empty ones are left out. Raises `TooManyRanges` if more than `RANGES_LIMIT` remain.
    """

    __slots__ = ("_stops", "pieces")

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        merged: list[Piece] = []
        for piece in pieces:
            if piece.start >= piece.stop:
                continue
            if merged and (merged[-1].session, merged[-1].stop) == (piece.session, piece.start):
                piece = Piece(piece.session, merged.pop().start, piece.stop)
            merged.append(piece)
        if len(merged) > RANGES_LIMIT:
            raise TooManyRanges(
                f"the messages would be {len(merged)} ranges; at most {RANGES_LIMIT} are kept",
                hint="begin a new session, or replace a larger part at once",
                limit="ranges",
            )
        self.pieces: tuple[Piece, ...] = tuple(merged)
        self._stops = list(accumulate(map(len, merged)))

    def __len__(self) -> int:
        return self._stops[-1] if self._stops else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(self.pieces)

    def __repr__(self) -> str:
        return f"Layout({list(self.pieces)})"

    def __add__(self, other: Layout) -> Layout:
        return Layout((*self.pieces, *other.pieces))

    def __iter__(self) -> Iterator[Place]:
        for piece in self.pieces:
            for number in range(piece.start, piece.stop):
                yield Place(piece.session, number)

    def locate(self, position: int) -> Place:
        """The message at a position, counted from 0. Raises `IndexError` outside of the layout."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        index = bisect_right(self._stops, position)
        piece = self.pieces[index]
        return Place(piece.session, piece.stop - (self._stops[index] - position))

    def position(self, session: str, number: int) -> int | None:
        """Where a message stands first, if it does."""
        before = 0
        for piece in self.pieces:
            if piece.session == session and piece.start <= number < piece.stop:
                return before + number - piece.start
            before += len(piece)
        return None

    def slice(self, start: int, stop: int | None = None) -> Layout:
        """The messages at positions from ``start`` up to and without ``stop``; what lies outside counts as nothing."""
        stop = len(self) if stop is None else min(stop, len(self))
        start = max(0, start)
        if start >= stop:
            return Layout()
        first, last = bisect_right(self._stops, start), bisect_right(self._stops, stop - 1)
        chosen = [*self.pieces[first : last + 1]]
        # The far end first: where both ends lie in one piece, its start moves afterwards.
        chosen[-1] = Piece(chosen[-1].session, chosen[-1].start, chosen[-1].stop - (self._stops[last] - stop))
        skipped = start - (self._stops[first] - len(self.pieces[first]))
        chosen[0] = Piece(chosen[0].session, chosen[0].start + skipped, chosen[0].stop)
        return Layout(chosen)

    def splice(self, start: int, stop: int, replacement: Layout) -> Layout:
        """The layout with other messages in place of those at positions ``[start, stop)``."""
        return Layout((*self.slice(0, start).pieces, *replacement.pieces, *self.slice(stop).pieces))

    def of(self, session: str) -> Layout:
        """The same messages as another session names them, when this layout is ``session``'s own."""
        return Layout(Piece(piece.session or session, piece.start, piece.stop) for piece in self.pieces)
