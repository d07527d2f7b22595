"""What a session's past did that its transcript doesn't show: the effects that an edit or a fork left behind.

Time travel moves the transcript and nothing else. An effect belongs to the call that asked for it, and the call's message has a number; so
the layout itself says which effects it shows, and all others of the lineage are beyond it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import msgspec

from ..core.checkpoint import Checkpoint
from ..core.entries import Forked
from ..core.errors import StoreCorrupt
from ..core.journal import open_entry
from ..core.layout import Layout
from ..store.base import EffectRow, SessionRow, Store

__all__ = ["Beyond", "Lineage"]


class Beyond(NamedTuple):
    """An effect of the lineage. ``session`` is empty for the session's own."""

    session: str
    no: int
    row: EffectRow
    shown: bool


class _Origin(msgspec.Struct, frozen=True):
    """A session of the lineage: what it did up to ``until`` (``None`` is all), and the seqs [low, high) whose calls are shown."""

    session: str
    no: int
    until: int | None
    first: int
    shown: tuple[tuple[int, int | None], ...]

    def shows(self, seq: int) -> bool:
        place = bisect_right(self.shown, seq, key=lambda span: span[0]) - 1
        if place < 0:
            return False
        high = self.shown[place][1]
        return high is None or seq < high

    @property
    def after(self) -> int | None:
        """The seq behind which the first effect that is not shown can lie; ``None`` if all are shown."""
        if not self.shown or self.shown[0][0] > self.first:
            return 0
        high = self.shown[0][1]
        return None if high is None else high - 1


class Lineage:
    """One session's effects and those of the sessions that it was forked from, as one of its transcripts shows them or not."""

    def __init__(self, store: Store, row: SessionRow, layout: Layout) -> None:
        self._store = store
        self._row = row
        self._layout = layout
        self._origins: list[_Origin] | None = None

    @classmethod
    def needed(cls, row: SessionRow, checkpoint: Checkpoint) -> bool:
        """Whether anything can lie beyond the transcript."""
        return checkpoint.transcript.base > 0

    async def all(self, prefix: bytes = b"", *, shown: bool = False) -> list[Beyond]:
        """The effects whose key begins so, oldest ancestors first; with ``shown`` also those whose call is in the transcript."""
        found: list[Beyond] = []
        for origin in reversed(await self._lineage()):
            after = 0 if shown else origin.after
            if after is None:
                continue
            for row in await self._store.effects(origin.no, key=prefix, after=after):
                visible = origin.shows(row.seq)
                if (shown or not visible) and (origin.until is None or row.seq <= origin.until):
                    found.append(Beyond(origin.session, origin.no, row, visible))
        return found

    async def count(self) -> int:
        """How many effects that happened, or may have, lie beyond the transcript."""
        return sum(item.row.state != "failed" for item in await self.all())

    async def match(self, prefix: bytes, key: bytes) -> Beyond | None:
        """The latest effect that a call with this key would repeat.

        Of what lies beyond the transcript that is any whose key begins with ``prefix``; of what an ancestor left uncertain, the very same.
        """
        for origin in await self._lineage():
            for row in reversed(await self._store.effects(origin.no, key=prefix)):
                if row.state == "failed" or (origin.until is not None and row.seq > origin.until):
                    continue
                visible = origin.shows(row.seq)
                unsettled = bool(origin.session) and row.state == "uncertain" and row.effect_key == key
                if not visible or unsettled:
                    return Beyond(origin.session, origin.no, row, visible)
        return None

    async def number(self, session: str) -> int:
        """The store's number of a session of the lineage."""
        return next(origin.no for origin in await self._lineage() if origin.session == session)

    async def _lineage(self) -> list[_Origin]:
        """The session itself, its parent, and so on.

        Raises `StoreCorrupt` where the way back is lost: nobody could tell any more what was done there, and it might be repeated.
        """
        if self._origins is None:
            found: list[_Origin] = []
            row, name, until = self._row, "", None
            seen = {row.no}
            while True:
                forked = await self._forked(row)
                found.append(await self._origin(name, row.no, until, 1 if forked is None else forked.cut + 1))
                if forked is None:
                    break
                head = await self._store.load(forked.session, hidden=True)
                if head is None or head.row.root != self._row.root:
                    raise StoreCorrupt(
                        f"the session {forked.session!r}, which {row.session_id!r} was forked from, is missing", hint="run `perdure verify`"
                    )
                if head.row.no in seen:
                    raise StoreCorrupt(f"the session {forked.session!r} was forked from itself", hint="run `perdure verify`")
                seen.add(head.row.no)
                row, name, until = head.row, forked.session, None if forked.running else forked.version
            self._origins = found
        return self._origins

    async def _forked(self, row: SessionRow) -> Forked | None:
        if row.parent_kind != "fork":
            return None
        rows = await self._store.entries(row.no, after=1, before=3)
        entry = open_entry(rows[0]) if rows else None
        if not isinstance(entry, Forked):
            raise StoreCorrupt(f"the fork {row.session_id!r} doesn't say of what", hint="run `perdure verify`")
        return entry

    async def _origin(self, session: str, no: int, until: int | None, first: int) -> _Origin:
        shown: list[tuple[int, int | None]] = []
        pieces = sorted((piece for piece in self._layout.pieces if piece.session == session), key=lambda piece: piece.start)
        # Pieces touch each other: most numbers are asked for twice.
        wanted = sorted({first, *(number for piece in pieces for number in (piece.start, piece.stop))})
        seqs = dict(zip(wanted, await self._store.seek(no, wanted), strict=True))
        for piece in pieces:
            low = seqs[piece.start]
            if low is not None:
                shown.append((low, seqs[piece.stop]))
        return _Origin(session, no, until, seqs[first] or 0, tuple(shown))
