"""The messages that a model sees, read from the journal once and then kept in step with it."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar, overload

import msgspec

from ..core.context import notes_in
from ..core.entries import EffectSettled, Entry, MessageAdded, NoteAdded, NotesWithdrawn, OperationEnded, PrefixChanged, ToolCalled
from ..core.errors import StoreCorrupt
from ..core.journal import Sealed, open_entry
from ..core.messages import Message, Part, Private, StoredPart, Text, ToolCall, ToolCallResponse, decode_part, media_of, shown, spoken
from ..models.estimate import Estimate
from ..store.base import Store
from ..store.scanning import AT_ONCE
from .shown import behind_notes, excerpt, handle, is_since, notes_message, told_call

__all__ = ["CONTEXT_KINDS", "Context", "Fetch", "Prefix", "Shown", "Taken", "note_message", "resolve_parts", "stored_content"]

CONTEXT_KINDS = ("message", "note_added", "notes_withdrawn", "operation_ended", "effect_settled", "tool_called")
"""The entries that messages are made of."""

Fetch = Callable[[str], Awaitable[bytes]]
T = TypeVar("T")


async def stored_content(store: Store, root: str, digest: str) -> bytes:
    """Content that entries refer to. Raises `StoreCorrupt` if it is missing."""
    blob = await store.blob(root, digest)
    if blob is None:
        raise StoreCorrupt(f"the content {digest[:12]}… that a message refers to is missing", hint="run `perdure verify`")
    return blob.data


async def resolve_parts(parts: Iterable[Part], fetch: Fetch) -> tuple[Part, ...]:
    """Parts with what was set aside back in place."""
    return tuple([decode_part(await fetch(part.digest)) if isinstance(part, StoredPart) else part for part in parts])


class Prefix(Sequence[Message]):
    """The first messages of a list that only grows: a request keeps what it saw without a copy."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message], length: int) -> None:
        self._messages, self._length = messages, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [self._messages[place] for place in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._messages[index % self._length]

    def __iter__(self) -> Iterator[Message]:
        return islice(self._messages, self._length)


class Shown(NamedTuple):
    """Messages as models see them. ``places`` are their positions; a note has that of the message that follows it, a summary -1.

    ``before`` counts the answers that are not among them any more.
    """

    messages: list[Message]
    places: list[int]
    before: int


class Taken(NamedTuple):
    """How many rows there were, the seq of the last, and those from which on content has to be fetched."""

    rows: int
    last: int
    rest: list[Sealed]


class _Mark(NamedTuple):
    """What was committed."""

    messages: list[Message]
    length: int
    places: list[int]
    notes: tuple[tuple[Message, int], ...]
    taken: int
    latest: Message | None
    before: int
    called: Part | None


class _Along(Generic[T]):
    """Values that go along with messages, for the latest few ways to ask; ``begin`` are those before the first message's."""

    KEPT = 2

    def __init__(self, *begin: T) -> None:
        self._begin = begin
        self._kept: list[tuple[list[Message], tuple[Any, ...], list[T]]] = []

    def known(self, messages: list[Message], *asked: Any) -> list[T]:
        """The values as far as they were asked for."""
        for item in self._kept:
            if item[0] is messages and item[1] == asked:
                return item[2]
        self._kept = [(messages, asked, [*self._begin]), *self._kept[: self.KEPT - 1]]
        return self._kept[0][2]

    def cut(self, messages: list[Message], length: int) -> None:
        """Only the first ``length`` messages are still what they were."""
        # A list that a request still holds must not change.
        self._kept = [
            (known, asked, values[: length + len(self._begin)] if known is messages else values) for known, asked, values in self._kept
        ]


class _Sizes(_Along[int]):
    """Running sums of what messages take."""

    def __init__(self) -> None:
        super().__init__(0)

    def of(self, messages: list[Message], estimate: Estimate, group: str | None, private_from: int) -> list[int]:
        """The sums of all there are. It costs what is new."""
        sums = self.known(messages, estimate, group, private_from)
        estimate.extend(sums, messages[len(sums) - 1 :], group, private_from)
        return sums


class _Views(_Along[Message]):
    """Messages without the private parts of others."""

    def of(self, messages: list[Message], group: str | None, private_from: int) -> list[Message]:
        """All there are. It costs what is new."""
        seen = self.known(messages, group, private_from)
        for message in messages[len(seen) :]:
            seen.append(_without_private(message, group if message.position >= private_from else None))
        return seen


class Context:
    """Messages resolved from entries. `add` takes entries that a commit is about to hold; `accept` keeps them, `forget` drops them.

    ``for_models``: as models see them, with excerpts in place of archived results, and before a message what it says of others.
    """

    def __init__(self, fetch: Fetch, *, for_models: bool = False) -> None:
        self._fetch = fetch
        self._for_models = for_models
        self._reset()

    def _reset(self) -> None:
        self._messages: list[Message] = []
        self._places: list[int] = []
        self._receipts: dict[int, tuple[Part, ...]] = {}
        self._archived: set[int] = set()
        self._waiting = 0
        self._written: dict[int, str] = {}
        self._notes: list[tuple[Message, int]] = []
        self._inserted: list[int] = []
        self._private: set[str] = set()
        self._count = 0
        self.has_media = False
        """Whether any message that was read holds media."""
        self._last = -1
        self._latest: Message | None = None
        self._called: Part | None = None
        self.before = 0
        self._sizes = _Sizes()
        self._views = _Views()
        self._mark = _Mark(self._messages, 0, self._places, (), 0, None, 0, None)

    @property
    def shown(self) -> Shown:
        """The messages now, and what else is known of them."""
        return Shown(self._messages, self._places, self.before)

    async def begin(self, change: PrefixChanged, summary: Entry, kept: Sequence[tuple[int, Entry]], latest: Sequence[Entry]) -> None:
        """Start anew behind a compaction.

        ``kept`` are the messages that it kept, with their positions; ``latest`` is the turn's latest answer.
        """
        self._reset()
        contents = await self._contents(_set_aside([*(entry for _, entry in kept), *latest]))
        self._messages.append(notes_message(notes_in(getattr(summary, "parts", ()))))
        self._places.append(-1)
        for position, entry in kept:
            self._count = position
            self._take([entry], contents)
        for entry in latest:
            if isinstance(entry, MessageAdded):
                self._latest = self._message(entry, contents)
            else:
                self._take([entry], contents)
        self._count, self._last, self.before = change.upto, change.upto - 1, change.answers

    async def add(self, entries: Sequence[Entry]) -> None:
        """Take the messages in further entries of the session's own, in journal order."""
        set_aside = _set_aside(entries)
        self._take(entries, await self._contents(set_aside) if set_aside else {})

    async def read(self, rows: Sequence[Sealed], session: str = "") -> None:
        """`add` for stored entries, of ``session`` where a fork took them over: however many they are, the loop goes on meanwhile."""
        # Below that a thread costs more than it saves, and a simulation stays the same every time.
        many = len(rows) > AT_ONCE
        entries, set_aside = await asyncio.to_thread(self._open, rows, session) if many else self._open(rows, session)
        if set_aside:
            contents = await self._contents(set_aside)
            await asyncio.to_thread(self._take, entries, contents, session) if many else self._take(entries, contents, session)

    def take(self, rows: Iterable[Sealed], tail: int) -> Taken:
        """`read` for rows of the session's own as they come from the store, without a thread of its own and without waiting.

        Messages with numbers up to ``tail`` are left out. What follows the first row whose content has to be fetched is only kept.
        """
        count, last, rest = 0, 0, list[Sealed]()
        for row in rows:
            count += 1
            last = row.seq
            if tail and row.number <= tail and row.kind == MessageAdded.kind:
                continue
            if rest or row.body is None:
                rest.append(row)
                continue
            entry = open_entry(row)
            parts = getattr(entry, "parts", ())
            if parts and StoredPart in map(type, parts):
                rest.append(row)
            else:
                self._take_one(entry, {}, "")
        return Taken(count, last, rest)

    def _open(self, rows: Sequence[Sealed], session: str) -> tuple[list[Entry], set[str]]:
        """Open rows, and take them if they are whole: what was set aside has to be fetched before."""
        entries = [open_entry(row) for row in rows]
        set_aside = _set_aside(entries)
        if not set_aside:
            self._take(entries, {}, session)
        return entries, set_aside

    async def _contents(self, digests: Iterable[str]) -> dict[str, bytes]:
        return {digest: await self._fetch(digest) for digest in digests}

    def _take(self, entries: Sequence[Entry], contents: dict[str, bytes], session: str = "") -> None:
        for entry in entries:
            self._take_one(entry, contents, session)

    def _take_one(self, entry: Entry, contents: dict[str, bytes], session: str) -> None:
        # The two kinds that nearly all are of come first, by their exact types: a pattern that fails costs more than what is done.
        if type(entry) is OperationEnded or type(entry) is EffectSettled:
            self._receive(entry, contents)
            return
        if type(entry) is MessageAdded:
            self._waiting = 0
            message = self._message(entry, contents, session)
            self._append(shown(message) if self._for_models else message)
            return
        match entry:
            case ToolCalled():
                [self._called] = _whole(entry.parts, contents)
            case NoteAdded(receipt=receipt) if receipt:
                self._tell_call(entry, contents, session)
            case NotesWithdrawn():
                self._withdraw(frozenset(entry.notes), session)
            case NoteAdded():
                self._note(_as_message(entry, entry.text, session), self._count, before=bool(entry.extension))
            case PrefixChanged(reason="compaction") if self._for_models:
                self._compact(entry)

    def _receive(self, entry: OperationEnded | EffectSettled, contents: dict[str, bytes]) -> None:
        """Keep a receipt's parts for the message that refers to it."""
        seq, parts = entry.seq, entry.parts
        self._receipts[seq] = _whole(parts, contents) if contents else parts
        self._waiting = seq
        if not self._for_models:
            return
        if notes := notes_in(parts):
            # They may be accepted much later; only the latest ones ever are.
            self._written = {**dict(list(self._written.items())[-1:]), seq: notes}
        if entry.archived:
            self._archived.add(entry.seq)
        elif self._archived:
            # One of a session that this was forked from may have had the same seq.
            self._archived.discard(entry.seq)

    def accept(self) -> None:
        """What was added is committed."""
        self._inserted.clear()
        self._mark = _Mark(
            self._messages,
            len(self._messages),
            self._places,
            tuple(self._notes),
            self._count,
            self._latest,
            self.before,
            self._called,
        )
        if self._called is None and not (self._messages and self._messages[-1].tool_calls):
            # An answer may wait for its message.
            self._receipts = {self._waiting: self._receipts[self._waiting]} if self._waiting in self._receipts else {}
            self._archived.clear()

    def forget(self) -> None:
        """Forget what was added since the last `accept`: its commit failed."""
        mark = self._mark
        self._messages, self._places = mark.messages, mark.places
        for index in reversed(self._inserted):
            del self._messages[index]
            del self._places[index]
            self._cut(self._messages, index)
        self._inserted.clear()
        del self._messages[mark.length :]
        del self._places[mark.length :]
        self._notes = list(mark.notes)
        self._count, self._last, self._latest, self.before = mark.taken, mark.taken - 1, mark.latest, mark.before
        self._called = mark.called
        self._cut(mark.messages, mark.length)

    def _cut(self, messages: list[Message], length: int) -> None:
        self._sizes.cut(messages, length)
        self._views.cut(messages, length)

    def reset(self) -> None:
        """Forget everything: what was read is not what stands there now."""
        self._reset()

    def check(self, number: int) -> None:
        """Raises `StoreCorrupt` unless exactly the first ``number`` messages were read."""
        if (self._count, self._last) != (number, number - 1):
            raise StoreCorrupt(f"the journal doesn't hold the {number} messages that its session has", hint="run `perdure verify`")

    def call(self, identity: str) -> ToolCall:
        """A call of the latest answer. Raises `StoreCorrupt` if it has none such."""
        for part in self._latest.parts if self._latest is not None else ():
            if isinstance(part, ToolCall) and part.id == identity:
                return part
        raise StoreCorrupt(f"the latest answer has no call {identity!r}", hint="run `perdure verify`")

    def latest_since(self, seq: int) -> Message | None:
        """The latest answer after an entry of the session's own."""
        return self._latest if self._latest is not None and is_since(self._latest, seq + 1) else None

    def answer_since(self, seq: int) -> str:
        """The text of the latest answer after an entry, empty if there is none."""
        latest = self.latest_since(seq)
        return "" if latest is None else latest.text

    def since(self, seq: int) -> tuple[Message, ...]:
        """The messages after an entry of the session's own. It costs what they are, however many came before."""
        found: list[Message] = []
        for message in reversed(self._messages):
            if message.position >= 0 and not is_since(message, seq + 1):
                break
            if message.position >= 0:
                found.append(message)
        return tuple(reversed(found))

    def view(self, group: str | None, private_from: int = 0, shown: Shown | None = None, stop: int | None = None) -> Sequence[Message]:
        """The messages for a route of ``group``: nobody else's private parts, and none of the first ``private_from`` messages.

        ``None`` is a route that may be sent nobody's. ``shown`` are other messages than those of now, ``stop`` how many of them.
        """
        messages = self._messages if shown is None else shown.messages
        stop = len(messages) if stop is None else stop
        if not self._private or (self._private <= {group} and not private_from):
            return Prefix(messages, stop)
        return Prefix(self._views.of(messages, group, private_from), stop)

    def sizes(self, estimate: Estimate, group: str | None, private_from: int = 0, shown: Shown | None = None) -> list[int]:
        """For every beginning of the messages what it takes, in units of ``estimate``; the first is that of none. It costs what is new."""
        messages = self._messages if shown is None else shown.messages
        return self._sizes.of(messages, estimate, group, private_from)

    async def measure(self, estimate: Estimate, group: str | None, private_from: int, shown: Shown) -> None:
        """Take the `sizes` of messages that were just read; however many they are, the loop goes on meanwhile."""
        if len(shown.messages) - len(self._sizes.known(shown.messages, estimate, group, private_from)) > AT_ONCE:
            await asyncio.to_thread(self.sizes, estimate, group, private_from, shown)

    def behind(self, notes: str, upto: int, began: int) -> Shown:
        """What models would see with notes in place of the messages before the position ``upto``."""
        index = bisect_left(self._places, upto)
        messages = behind_notes(self._messages, notes_message(notes), index, began)
        kept = len(messages) - (len(self._messages) - index) - 1
        places = [-1, *(message.position for message in messages[1 : kept + 1]), *self._places[index:]]
        gone = [message.role for message in self._messages[:index]].count("assistant")
        return Shown(messages, places, self.before + gone)

    def _compact(self, change: PrefixChanged) -> None:
        index = bisect_left(self._places, change.upto)
        try:
            notes = notes_message(self._written[change.summary])
        except KeyError:
            raise StoreCorrupt(f"entry {change.summary}, which holds notes, is missing", hint="run `perdure verify`") from None
        kept = [
            message
            for start, stop in change.kept
            for message in self._messages[bisect_left(self._places, start, hi=index) : bisect_left(self._places, stop, hi=index)]
            if message.position >= 0
        ]
        # A list that a request still holds must not change.
        self._places = [-1, *(message.position for message in kept), *self._places[index:]]
        self._messages = [notes, *kept, *self._messages[index:]]
        self.before = change.answers

    def _append(self, message: Message) -> None:
        self._messages.append(message)
        self._places.append(message.position)
        self._called = None
        if message.role == "assistant":
            self._latest = message
        self._count += 1
        self._last = message.position
        for part in message.parts:
            if type(part) is Private:
                self._private.add(part.group)
            elif media_of(part):
                self.has_media = True
        if self._notes:
            self._place_notes()

    def _note(self, note: Message, place: int, *, before: bool) -> None:
        """A note comes last, but never between a call and its response; ``before``: it stands before the open calls, not after them."""
        if before and self._messages and self._messages[-1].tool_calls:
            index = len(self._messages) - 1
            self._inserted.append(index)
            self._messages.insert(index, note)
            self._places.insert(index, self._places[index])
            self._cut(self._messages, index)
            return
        self._notes.append((note, place))
        self._place_notes()

    def _tell_call(self, entry: NoteAdded, contents: dict[str, bytes], session: str) -> None:
        """What somebody had called outside of the conversation, and what it came to."""
        called, self._called = self._called, None
        try:
            response = (_whole(entry.parts, contents) or self._receipts[entry.receipt])[0]
        except (KeyError, IndexError):
            called = None
        if called is None:
            raise StoreCorrupt(f"the call or the receipt that note {entry.seq} tells of is missing", hint="run `perdure verify`")
        self._note(_as_message(entry, told_call(called, response), session), self._count, before=False)

    def _withdraw(self, notes: frozenset[int], session: str) -> None:
        # A list that a request still holds must not change.
        kept = [index for index, message in enumerate(self._messages) if message.session != session or message.seq not in notes]
        self._messages, self._places = [self._messages[index] for index in kept], [self._places[index] for index in kept]

    def _place_notes(self) -> None:
        """A note never stands between a call and its response."""
        if self._notes and not (self._messages and self._messages[-1].tool_calls):
            self._messages.extend(note for note, _ in self._notes)
            self._places.extend(place for _, place in self._notes)
            self._notes.clear()

    def _message(self, entry: MessageAdded, contents: dict[str, bytes], session: str = "") -> Message:
        try:
            parts = entry.told(_whole(entry.parts, contents), self._receipts)
        except KeyError as missing:
            raise StoreCorrupt(
                f"entry {missing}, which message {entry.seq} refers to, is missing", hint="run `perdure verify`"
            ) from missing
        if self._archived:
            parts = self._excerpted(entry, parts)
        return Message(
            role=entry.role,
            parts=spoken(parts),
            position=self._count,
            seq=entry.seq,
            at=entry.at,
            submission=entry.submission,
            author=entry.author,
            reply=entry.reply,
            session=session,
            source=entry.source,
        )

    def _excerpted(self, entry: MessageAdded, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """What a message says, with excerpts in place of long results."""
        long = {index for index, item in enumerate(entry.responses) if item.receipt in self._archived and not item.replaced}
        return tuple(
            [
                excerpt(part, handle(entry.number, index)) if index in long and isinstance(part, ToolCallResponse) else part
                for index, part in enumerate(parts)
            ]
        )


def note_message(text: str, *, seq: int = 0, at: int = 0) -> Message:
    """What a model reads that it is told besides the conversation."""
    return Message(role="user", parts=(Text(f"[note] {text}"),), seq=seq, at=at)


def _as_message(entry: NoteAdded, text: str, session: str) -> Message:
    return msgspec.structs.replace(note_message(text, seq=entry.seq, at=entry.at), session=session)


def _set_aside(entries: Iterable[Entry]) -> set[str]:
    """The digests of what doesn't stand in the entries themselves."""
    return {part.digest for entry in entries for part in getattr(entry, "parts", ()) if type(part) is StoredPart}


def _whole(parts: tuple[Part, ...], contents: dict[str, bytes]) -> tuple[Part, ...]:
    if not contents:
        return parts
    return tuple([decode_part(contents[part.digest]) if isinstance(part, StoredPart) else part for part in parts])


def _without_private(message: Message, group: str | None) -> Message:
    kept = tuple(part for part in message.parts if not (isinstance(part, Private) and part.group != group))
    if len(kept) == len(message.parts):
        return message
    return msgspec.structs.replace(message, parts=kept)
