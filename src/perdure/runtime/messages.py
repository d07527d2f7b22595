"""Stored messages by their places: a layout's ranges over the journals of a tree of sessions, read without the rest of them.

A message's number leads to its entry by a search over the journal, so that a page costs the same wherever it lies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from ..core.entries import EffectSettled, Entry, Laid, MessageAdded, NoteAdded, NotesWithdrawn, OperationEnded, Redacted
from ..core.errors import StoreCorrupt
from ..core.journal import Sealed, open_entry
from ..core.layout import Layout, Piece
from ..core.messages import Message, Part
from ..store.base import SessionRow, Store
from . import redacted
from .context import CONTEXT_KINDS, resolve_parts, stored_content

_body = attrgetter("body")

__all__ = ["PAGE", "Messages", "Outlined", "left_of", "read_entries", "read_entry", "with_left"]

PAGE = 2_000
"""How many entries are read at once."""


async def read_entries(store: Store, no: int, **wanted: object) -> list[Sealed]:
    """`Store.entries`, with what is left of the entries whose content was redacted in its place."""
    return await with_left(store, no, await store.entries(no, **wanted))  # type: ignore[arg-type]


async def with_left(store: Store, no: int, rows: list[Sealed]) -> list[Sealed]:
    """Rows of a session, with what is left of those whose content was redacted."""
    if None not in map(_body, rows):
        return rows
    left = await left_of(store, no)
    return [row if row.body is not None else msgspec.structs.replace(row, body=left.get(row.seq)) for row in rows]


async def read_entry(store: Store, no: int, seq: int) -> Entry | None:
    """One entry, or what is left of it; ``None`` if there is none."""
    rows = await read_entries(store, no, after=seq - 1, before=seq + 1)
    return open_entry(rows[0]) if rows else None


async def left_of(store: Store, no: int) -> dict[int, bytes]:
    """What is left of a session's redacted entries, by seq."""
    left: dict[int, bytes] = {}
    for row in await store.entries(no, kinds=(Redacted.kind,)):
        entry = open_entry(row)
        assert isinstance(entry, Redacted)
        left |= {item.seq: redacted.left_of(item) for item in entry.rows}
    return left


class Messages:
    """The messages that a session's layouts name, its own and those of the sessions that it was forked from.

    ``others`` are those sessions, as far as they were read, each with its version before that.
    """

    def __init__(self, store: Store, row: SessionRow) -> None:
        self._store = store
        self._row = row
        self._numbers: dict[str, int] = {"": row.no}
        self.others: dict[str, int] = {}
        self._seqs: dict[tuple[int, int], int] = {}
        self._fetch = partial(stored_content, store, row.root)

    async def number(self, session: str) -> int:
        """The store's number of a session of the tree. Raises `StoreCorrupt` if it isn't there."""
        if session not in self._numbers:
            head = await self._store.load(session, hidden=True)
            if head is None or head.row.root != self._row.root:
                raise StoreCorrupt(f"the session {session!r}, which messages are taken from, is missing", hint="run `perdure verify`")
            self._numbers[session], self.others[session] = head.row.no, head.row.version
        return self._numbers[session]

    async def laid(self, seq: int) -> Laid | None:
        """The entry that laid a transcript out; ``None`` for 0. Raises `StoreCorrupt` if another stands there."""
        if not seq:
            return None
        rows = await self._store.entries(self._row.no, after=seq - 1, before=seq + 1)
        entry = open_entry(rows[0]) if rows else None
        if not isinstance(entry, Laid):
            raise StoreCorrupt(f"entry {seq} lays no transcript out", hint="run `perdure verify`")
        if entry.previous >= seq:
            # Whoever walks back from edit to edit must come to an end.
            raise StoreCorrupt(f"entry {seq} says that a later one laid the transcript out before", hint="run `perdure verify`")
        return entry

    async def entries(self, layout: Layout) -> AsyncIterator[list[MessageAdded]]:
        """The entries of a layout's messages, in pages."""
        async for rows in self._rows(layout):
            yield [entry for entry in map(open_entry, rows) if isinstance(entry, MessageAdded)]

    async def _rows(self, layout: Layout) -> AsyncIterator[list[Sealed]]:
        for piece, (no, after, before) in zip(layout.pieces, await self._places(layout), strict=True):
            found = 0
            while found < len(piece):
                rows = await read_entries(self._store, no, after=after, before=before, kinds=(MessageAdded.kind,), limit=PAGE)
                if not rows or rows[0].number != piece.start + found:
                    raise _missing(piece.start + found)
                found, after = found + len(rows), rows[-1].seq
                yield rows

    async def entry(self, layout: Layout, position: int) -> MessageAdded:
        """The entry of the message at a position."""
        async for entries in self.entries(layout.slice(position, position + 1)):
            return entries[0]
        raise IndexError(position)

    async def digests(self, layout: Layout) -> list[str]:
        """The digests of a layout's messages."""
        return [item.digest for item in await self.outline(layout)]

    async def outline(self, layout: Layout) -> list[Outlined]:
        """Of a layout's messages what an edit has to know of those that stay."""
        found: list[Outlined] = []
        placed = zip(layout.pieces, await self._places(layout), strict=True)
        for no, run in groupby(placed, key=lambda item: item[1][0]):
            pieces, places = zip(*run, strict=True)
            taken = await self._store.scan(
                no, partial(_outlined, pieces), [(after, before) for _, after, before in places], kinds=(MessageAdded.kind,)
            )
            if taken.redacted:
                for index, row in zip(taken.redacted, await with_left(self._store, no, [*taken.redacted.values()]), strict=True):
                    taken.found[index] = _outline(row)
            found += taken.found
        return found

    async def read(self, layout: Layout, position: int) -> list[Message]:
        """A layout's messages, whole; the first of them stands at ``position``."""
        try:
            return await self._read(layout, position)
        except StoreCorrupt:
            # What is missing may have been removed while it was read, and then its entry says so; what is damaged is so the next time, too.
            return await self._read(layout, position)

    async def _read(self, layout: Layout, position: int) -> list[Message]:
        messages: list[Message] = []
        for piece in layout.pieces:
            async for entries in self.entries(Layout([piece])):
                receipts = await self._receipts(await self.number(piece.session), entries)
                for entry in entries:
                    parts = await resolve_parts(_told(entry, receipts), self._fetch)
                    messages.append(message_of(entry, parts, position + len(messages), piece.session))
        return messages

    @property
    def no(self) -> int:
        """The store's number of the session itself."""
        return self._row.no

    async def context(self, layout: Layout, until: int) -> AsyncIterator[tuple[list[Sealed], str]]:
        """The rows that a layout's messages are made of, with this session's notes before the entry ``until``: pages, and whose they are.

        A note stands behind the message that it was made behind, if that is there; of the parent's, those between two of its messages.
        """
        for piece in layout.pieces:
            no = await self.number(piece.session)
            preceding, last, behind = await self._store.seek(no, [piece.start - 1, piece.stop - 1, piece.stop])
            after = preceding if piece.start > 1 and preceding is not None else 0
            if last is None:
                raise _missing(piece.stop - 1)
            before = last + 1 if piece.session or behind is None else behind
            while rows := await read_entries(self._store, no, after=after, before=before, kinds=CONTEXT_KINDS, limit=PAGE):
                after = rows[-1].seq
                yield [row for row in rows if _belongs(row, piece, until)], piece.session

    async def _places(self, layout: Layout) -> list[tuple[int, int, int]]:
        """Where each piece of a layout stands: the session's number, and the seqs around it."""
        ends = [(await self.number(piece.session), piece.start, piece.stop - 1) for piece in layout.pieces]
        wanted: dict[int, set[int]] = {}
        for no, *numbers in ends:
            # A message never moves.
            wanted.setdefault(no, set()).update(number for number in numbers if (no, number) not in self._seqs)
        for no, missing in wanted.items():
            numbers = sorted(missing)
            for number, seq in zip(numbers, await self._store.seek(no, numbers) if numbers else (), strict=True):
                if seq is None:
                    raise _missing(number)
                self._seqs[no, number] = seq
        return [(no, self._seqs[no, start] - 1, self._seqs[no, last] + 1) for no, start, last in ends]

    async def _receipts(self, no: int, messages: Sequence[MessageAdded]) -> dict[int, tuple[Part, ...]]:
        """The parts in the entries that messages refer to."""
        wanted = {seq for message in messages for seq in (message.receipt, *(item.receipt for item in message.responses)) if seq}
        receipts: dict[int, tuple[Part, ...]] = {}
        if not wanted:
            return receipts
        after, last = min(wanted) - 1, max(wanted)
        kinds = (OperationEnded.kind, EffectSettled.kind)
        while after < last and (rows := await read_entries(self._store, no, after=after, before=last + 1, kinds=kinds, limit=PAGE)):
            after = rows[-1].seq
            for entry in _opened(row for row in rows if row.seq in wanted):
                receipts[entry.seq] = getattr(entry, "parts", ())
        return receipts


class Outlined(msgspec.Struct, gc=False):
    """A message's role and digest, and the revision of the transcript with it, when it came."""

    role: str
    digest: str
    revision: str = ""


_outlines: msgspec.json.Decoder[Outlined] = msgspec.json.Decoder(Outlined)


class _Outline(NamedTuple):
    """Of messages in their order what is known, and the rows of those among them whose content was redacted, by index."""

    found: list[Outlined]
    redacted: dict[int, Sealed]


def _outlined(pieces: Iterable[Piece], rows: Iterable[Sealed]) -> _Outline:
    """What rows say of the messages of pieces. Nothing else of them is opened: there may be ten thousand."""
    found: list[Outlined] = []
    redacted: dict[int, Sealed] = {}
    coming = iter(rows)
    for number in chain.from_iterable(range(piece.start, piece.stop) for piece in pieces):
        row = next(coming, None)
        if row is None or row.number != number:
            raise _missing(number)
        if row.body is None:
            redacted[len(found)] = row
            found.append(Outlined("", ""))
        else:
            found.append(_outline(row))
    return _Outline(found, redacted)


def _outline(row: Sealed) -> Outlined:
    if row.body is None:
        raise StoreCorrupt(f"entry {row.seq} has no body", hint="run `perdure verify`")
    try:
        return _outlines.decode(row.body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise StoreCorrupt(f"entry {row.seq} can't be read: {error}", hint="run `perdure verify`") from error


def _missing(number: int) -> StoreCorrupt:
    return StoreCorrupt(f"message {number} is missing", hint="run `perdure verify`")


def message_of(entry: MessageAdded, parts: tuple[Part, ...], position: int, session: str) -> Message:
    """A message as readers see it, without what only its provider may read."""
    return Message(
        role=entry.role,
        parts=tuple([part for part in parts if part.__struct_config__.tag != "private"]),
        position=position,
        seq=entry.seq,
        at=entry.at,
        submission=entry.submission,
        author=entry.author,
        reply=entry.reply,
        source=entry.source,
        session=session,
    )


def _opened(rows: Iterable[Sealed]) -> list[Entry]:
    return [open_entry(row) for row in rows]


def _told(entry: MessageAdded, receipts: dict[int, tuple[Part, ...]]) -> tuple[Part, ...]:
    try:
        return entry.told(entry.parts, receipts)
    except KeyError as missing:
        raise StoreCorrupt(f"entry {missing}, which message {entry.seq} refers to, is missing", hint="run `perdure verify`") from missing


def _belongs(row: Sealed, piece: Piece, until: int) -> bool:
    match row.kind:
        case MessageAdded.kind:
            return piece.start <= row.number < piece.stop
        case NoteAdded.kind | NotesWithdrawn.kind:
            return piece.start <= row.number < piece.stop and (bool(piece.session) or row.seq < until)
        case _:
            return True
