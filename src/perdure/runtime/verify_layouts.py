"""Whether a session's transcripts are what its entries say: layouts, revisions, marks, and how a fork began."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..core.entries import Entry, Forked, Laid, MessageAdded, Rewritten
from ..core.errors import PerdureError
from ..core.layout import Layout, Piece, Place
from ..core.transcript import EMPTY, Transcript, chained
from ..store.base import SessionRow, Store
from .messages import Messages

__all__ = ["LayoutCheck"]


class LayoutCheck:
    """Reads a journal along, entry by entry."""

    def __init__(self, store: Store, row: SessionRow) -> None:
        self._store = store
        self._row = row
        self._messages = Messages(store, row)
        self._known: dict[Place, tuple[str, str]] = {}
        self._laid: Laid | None = None
        self._waiting: tuple[Laid, Transcript] | None = None
        self._revision = EMPTY
        self._number = 0

    async def take(self, entry: Entry) -> AsyncIterator[str]:
        """What an entry says wrongly of the transcript."""
        if isinstance(entry, MessageAdded):
            for what in self._message(entry):
                yield what
        elif self._waiting is not None and entry.kind != "prefix_changed":
            yield f"the messages up to {self._waiting[0].tail}, which were to stand in the transcript, don't follow"
            self._waiting = None
        if isinstance(entry, Laid):
            old = Transcript.at(self._laid, self._number, self._revision)
            async for what in self._begun(entry, old):
                yield what
            self._laid, self._revision, self._waiting = entry, entry.revision, (entry, old)
            self._number = entry.number
        if self._waiting is not None and entry.number >= self._waiting[0].tail:
            (laid, old), self._waiting = self._waiting, None
            async for what in self._whole(laid, old):
                yield what

    def _message(self, entry: MessageAdded) -> list[str]:
        self._number = entry.number
        self._known[Place("", entry.number)] = entry.digest, entry.revision
        if self._waiting is not None:
            return []
        self._revision = chained(self._revision, entry.digest)
        return [] if entry.revision == self._revision else ["its revision is not that of the messages up to it"]

    async def _begun(self, entry: Laid, old: Transcript) -> AsyncIterator[str]:
        """An edit or a fork against what stood before it."""
        if entry.previous != (0 if self._laid is None else self._laid.seq):
            yield f"it says that entry {entry.previous} laid the transcript out before"
        if isinstance(entry, Rewritten):
            if entry.expected != self._revision:
                yield "it was made for another revision than the one before it"
            if not 0 <= entry.start <= entry.stop <= len(old.layout):
                yield f"[{entry.start}, {entry.stop}) is no span of {len(old.layout)} messages"
        elif isinstance(entry, Forked):
            if (entry.seq, entry.session) != (2, self._row.parent):
                yield f"it begins a fork of {entry.session!r}, which this is not"
            async for what in self._parent(entry):
                yield what

    async def _parent(self, entry: Forked) -> AsyncIterator[str]:
        parent = await self._store.load(entry.session, hidden=True)
        if parent is None:
            yield f"the session {entry.session!r}, which it was forked from, is missing"
            return
        rows = await self._store.entries(parent.row.no, after=entry.version - 1, before=entry.version + 1)
        # Of a deleted session that it was forked from, only what it needs is left.
        if (not rows or rows[0].chain.hex() != entry.chain) and not await self._store.buried(entry.session):
            yield f"entry {entry.version} of {entry.session!r} doesn't have the chain that the fork began with"

    async def _whole(self, entry: Laid, old: Transcript) -> AsyncIterator[str]:
        """A new layout with all its messages."""
        try:
            layout = Layout(entry.pieces)
        except PerdureError as error:
            yield str(error)
            return
        if layout.pieces != entry.pieces:
            yield "its ranges are not merged"
        own = Layout([Piece("", entry.number + 1, entry.tail + 1)])
        if isinstance(entry, Rewritten) and not entry.restored and layout != old.layout.splice(entry.start, entry.stop, own):
            yield "its layout is not the one before with the span replaced"
        if isinstance(entry, Forked) and (entry.number, entry.count) != (entry.cut, entry.cut + len(own)):
            yield f"it lays out {entry.count} messages, {len(own)} of them new, behind a cut at {entry.cut}"
        marks, revision = dict(entry.marks), EMPTY
        exact = {position for start, stop in entry.exact for position in range(start, min(stop, len(layout)))}
        position = 0
        async for place, digest, knows in self._placed(layout):
            if digest is None:
                yield f"message {place.number} of {place.session or 'this session'}, which it lays out, is missing"
                return
            revision, position = chained(revision, digest), position + 1
            if marks.pop(position, revision) != revision or (position - 1 in exact and knows != revision):
                yield f"what it says of the revision of the first {position} messages is not so"
        if revision != entry.revision:
            yield "its revision is not that of its messages"
        if marks.pop(0, EMPTY) != EMPTY or marks:
            yield "it knows revisions of more messages than it has"

    async def _placed(self, layout: Layout) -> AsyncIterator[tuple[Place, str | None, str]]:
        """The messages of a layout, with digest (``None``: missing) and what they know of the revision."""
        for piece in layout.pieces:
            places = list(Layout([piece]))
            if piece.session and any(place not in self._known for place in places):
                try:
                    async for entries in self._messages.entries(Layout([piece])):
                        self._known |= {Place(piece.session, entry.number): (entry.digest, entry.revision) for entry in entries}
                except PerdureError:
                    yield places[0], None, ""
                    return
            for place in places:
                digest, revision = self._known.get(place, (None, ""))
                yield place, digest, revision
