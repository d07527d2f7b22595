"""Content taken out of a session for good: out of its entries, what belongs to them, and the blobs that they had set aside."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from ..core import checkpoint as checkpoints
from ..core import commands, ids
from ..core.checkpoint import Checkpoint
from ..core.commands import Command, EditMessage, RedactContent, ReportResult
from ..core.context import notes_in
from ..core.entries import (
    TERMINALS,
    EffectSettled,
    Entry,
    ExtensionCommand,
    ExtensionSet,
    MessageAdded,
    NoteAdded,
    OperationEnded,
    OperationPlanned,
    PrefixChanged,
    Redacted,
    RequestClosed,
    RequestOpened,
    SessionChanged,
    SessionCreated,
    SubmissionRefused,
    TurnEnded,
    TurnEnding,
)
from ..core.errors import InvalidSpan, NewerRules, NothingChanged, SessionBusy, StoreCorrupt, StoreError
from ..core.evolve import calls_in
from ..core.journal import open_entry
from ..core.memory import MEMORY, STATE
from ..core.messages import Part, StoredPart, text_of
from ..core.records import Failure, Metadata
from ..core.reports import Redact
from ..core.transcript import check_position
from ..store.audit import Auditable
from ..store.base import InboxRow, Loaded, SessionRow
from .about import REASON_LIMIT, check_text
from .batch import TRIES, Batch
from .context import resolve_parts
from .control import decode_row
from .halting import check_not_halted
from .messages import PAGE, Messages, read_entries
from .names import conflict, submission_id
from .redacted import aside, redacted_row, without_content, without_quote
from .transcripts import Transcripts, check_idle

__all__ = ["Redaction", "Removed"]

FOLLOWED = (OperationEnded.kind, EffectSettled.kind, NoteAdded.kind, RequestOpened.kind, RequestClosed.kind, OperationPlanned.kind)
"""The entries that can hold something of an operation's content."""

UNSEEN = (SessionCreated, SessionChanged, TurnEnded, TurnEnding, SubmissionRefused, ExtensionCommand)
"""The entries of which models see nothing."""

ENDS = (*TERMINALS, TurnEnding.kind, OperationEnded.kind)
"""The entries that say why something ended, which may quote what was said before."""


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What a redaction took out: the content of ``entries``, as the entry ``seq`` says.

    ``unreachable`` says, a sentence each, where the same content may still be: messages that other sessions of the tree own, content that
    something else refers to, titles that were copied, consumers that had read it. What left the store before, and what a model or a person
    quoted since, nobody here knows.
    """

    session_id: str
    seq: int
    entries: tuple[int, ...]
    unreachable: tuple[str, ...]
    submission: str
    duplicate: bool = False


class _Taken(NamedTuple):
    """What a redaction is of: the messages that were ``said``, the ``operations`` whose content goes, the ``steps`` whose calls do."""

    unreachable: tuple[str, ...]
    said: Sequence[MessageAdded]
    operations: Collection[str]
    steps: Collection[str]

    def called(self, operation: str) -> bool:
        """Whether the arguments of a call, or what it came to, are gone."""
        return operation in self.operations or operation.rsplit(".", 1)[0] in self.steps


class Redaction(Transcripts):
    """The part of `Sessions` that removes content."""

    async def redact(
        self,
        session_id: str,
        positions: int | Iterable[int] = (),
        *,
        entries: int | Iterable[int] = (),
        reason: str = "",
        actor: str = "",
        submission: str | None = None,
    ) -> Removed:
        """Remove the content of messages, by their positions, and of journal entries, by their seqs, for good. One commit.

        It follows what belongs to them: receipts, results that came later and what was told of them, edited arguments, content that was set
        aside, reasons that were given (for a denial, for the end of a turn), the session's title if it was made of a message, and what the
        session learned since. Of an entry that says what the session is about, labels and metadata go too, if it is named.

        Readers see a `RedactedPart` in its place, in every fork and at every revision; calls and responses stay together, revisions stay
        what they are, and the chain still verifies. The file of an SQLite store holds none of it any more after ``store.vacuum()``.

        Raises, and changes nothing: `SessionBusy` while a turn runs; `InvalidSpan` for what isn't there or holds no content;
        `NothingChanged` if nothing is left to remove; `SubmissionConflict`, `SessionHalted`, `SessionNotFound`. Archived sessions can be
        redacted too.
        """
        name = submission_id(submission)
        for _ in range(TRIES):
            head = await self._head(session_id)
            earlier = await self._runtime.store.submission(head.row.no, name)
            if earlier is None:
                check_not_halted(head.row)
            checkpoint = checkpoints.decode(head.row.checkpoint)
            if earlier is None:
                check_idle(head, checkpoint, archived=True)
            command = RedactContent(
                positions=_numbers(positions, "a position"),
                entries=_numbers(entries, "an entry"),
                reason=check_text(reason, "reason", REASON_LIMIT),
                actor=check_text(actor, "actor"),
                submission=name,
                at=max(self._runtime.clock.now(), head.now),
            )
            if earlier is not None:
                return await self._known(head, command, earlier)
            batch = Batch(head, checkpoint, now=command.at)
            taken = await self._redact(head, checkpoint, batch, command)
            if await self._commit_edit(head, batch, command):
                redacted = batch.entries[0]
                assert isinstance(redacted, Redacted)
                try:
                    left = await self._left_behind(head, checkpoint, batch, redacted, taken)
                except StoreError as error:
                    # What is gone is gone, whatever can't be looked for now.
                    left = [f"whether anything else of the tree, or a consumer, has it can't be told: {error.message}"]
                return Removed(
                    session_id=session_id,
                    seq=redacted.seq,
                    entries=batch.redacted,
                    unreachable=(*taken.unreachable, *left),
                    submission=name,
                )
        raise SessionBusy(f"{session_id!r} changes all the time", hint="try again when less is going on")

    async def _known(self, head: Loaded, command: Command, earlier: InboxRow) -> Removed:
        if earlier.digest != commands.digest(command):
            raise conflict(command)
        redacted = await self._entry(head, earlier.consumed_seq or 0)
        if not isinstance(redacted, Redacted):
            raise conflict(command)
        return Removed(
            session_id=head.row.session_id,
            seq=redacted.seq,
            entries=tuple(row.seq for row in redacted.rows),
            unreachable=(),
            submission=command.submission,
            duplicate=True,
        )

    async def _redact(self, head: Loaded, checkpoint: Checkpoint, batch: Batch, command: RedactContent) -> _Taken:
        """Decide it, and say what is gone of, and what lies elsewhere."""
        asked, unreachable = await self._asked(head, command)
        gone = {seq for seq, entry in asked.items() if entry is None}
        found = {seq: entry for seq, entry in asked.items() if entry is not None}
        said = [entry for entry in found.values() if isinstance(entry, MessageAdded)]
        operations, steps = await self._follow(head, found)
        await self._ends(head, found, operations)
        about = await self._about(head, command, found)
        notes = memory = False
        if any(without_content(entry) is not None for entry in found.values()):
            # What came of something that is gone already came of its place.
            notes = await self._notes(head, checkpoint, found)
            memory = await self._memory(head, checkpoint, found)
        title = await self._title(head, checkpoint, found)
        quoting = await self._quoting(head, {entry.seq for entry in said})
        rows = [redacted_row(entry, without_quote(entry)) for entry in quoting if entry.seq not in found]
        blobs: set[str] = set()
        for seq, entry in sorted(found.items()):
            left = without_content(await self._with_content(head, entry), named=seq in command.entries)
            if left is not None:
                rows.append(redacted_row(entry, left))
                blobs |= aside(entry) - aside(left)
            elif seq in command.entries and not _refers(entry):
                raise InvalidSpan(f"entry {seq} is a {entry.kind} without content", hint="name a message, a receipt, a note or a reason")
        if not rows:
            where = "; ".join(unreachable) or ("it was redacted before" if len(gone) == 1 else f"all {len(gone)} were redacted before")
            raise NothingChanged(f"there is nothing to remove here: {where}", hint="nothing was written", unreachable=tuple(unreachable))
        rows.sort(key=lambda row: row.seq)
        decided = Redact(
            command=command,
            rows=tuple(rows),
            title=title,
            labels="labels" in about and checkpoint.labels != {},
            metadata="metadata" in about and checkpoint.metadata != Metadata(),
            context=notes,
            memory=memory,
            at=command.at,
        )
        batch.apply(decided)
        batch.redacted = tuple(row.seq for row in rows)
        batch.erased = tuple(sorted(blobs))
        for row in await self._runtime.store.inbox(head.row.no):
            waiting = decode_row(row)
            late = isinstance(waiting, ReportResult) and waiting.operation in operations
            if late or (isinstance(waiting, EditMessage) and waiting.message in {entry.submission for entry in said if entry.submission}):
                batch.refuse(row, Failure(code="redacted", message="what it is about was redacted"))
        return _Taken(tuple(unreachable), said, operations, steps)

    async def _asked(self, head: Loaded, command: RedactContent) -> tuple[dict[int, Entry | None], list[str]]:
        """The session's own entries that are meant (``None``: redacted before), and what is another session's."""
        messages, transcript = await self._transcript(head)
        seqs, unreachable = set(command.entries), []
        for position in command.positions:
            check_position(position, len(transcript.layout))
            place = transcript.layout.locate(position)
            if place.session:
                unreachable.append(f"message {position} is the session {place.session!r}'s: redact it there")
            else:
                seqs.add((await messages.entry(transcript.layout, position)).seq)
        for seq in seqs:
            if not 0 < seq <= head.row.version:
                raise InvalidSpan(f"there is no entry {seq}", hint=f"the journal has entries 1 to {head.row.version}")
        return {seq: await self._own(head, seq) for seq in sorted(seqs)}, unreachable

    async def _own(self, head: Loaded, seq: int) -> Entry | None:
        rows = await self._runtime.store.entries(head.row.no, after=seq - 1, before=seq + 1)
        if not rows:
            raise StoreCorrupt(f"entry {seq} is missing", hint="run `perdure verify`")
        return None if rows[0].body is None else open_entry(rows[0])

    async def _follow(self, head: Loaded, found: dict[int, Entry]) -> tuple[set[str], set[str]]:
        """Add what belongs to the entries; returns the operations whose content goes, and the steps whose calls do."""
        for message in [entry for entry in found.values() if isinstance(entry, MessageAdded)]:
            for seq in (message.receipt, *(response.receipt for response in message.responses)):
                receipt = await self._own(head, seq) if seq else None
                if receipt is not None:
                    found[seq] = receipt
        operations = {entry.operation for entry in found.values() if isinstance(entry, OperationEnded | EffectSettled)}
        # The arguments of the calls that an answer asked for may have been edited before they ran.
        answers = [entry for entry in found.values() if isinstance(entry, OperationEnded) and calls_in(entry.parts)]
        steps = {entry.operation.rsplit(".", 1)[0] for entry in answers}
        after = min(map(ids.began, operations), default=0)
        while operations:
            rows = await self._runtime.store.entries(head.row.no, after=after, kinds=FOLLOWED, limit=PAGE)
            for row in rows:
                entry = open_entry(row) if row.body is not None else None
                edited = isinstance(entry, RequestOpened | RequestClosed | OperationPlanned) and entry.operation.rsplit(".", 1)[0] in steps
                if entry is not None and (getattr(entry, "operation", "") in operations or edited):
                    found.setdefault(entry.seq, entry)
            if len(rows) < PAGE:
                break
            after = rows[-1].seq
        return operations, steps

    async def _ends(self, head: Loaded, found: dict[int, Entry], operations: set[str]) -> None:
        """Add what says why the turns ended in which something was said or done that goes, and why attempts in them came to nothing."""
        began = set(map(ids.began, operations))
        said = sorted(seq for seq, entry in found.items() if isinstance(entry, MessageAdded | NoteAdded))
        after = min([*began, *said], default=head.row.version)
        while rows := await self._runtime.store.entries(head.row.no, after=after, kinds=ENDS, limit=PAGE):
            after = rows[-1].seq
            for entry in [open_entry(row) for row in rows if row.body is not None]:
                if isinstance(entry, OperationEnded) and entry.parts:
                    # What it came to is a message, or stands in one.
                    continue
                assert isinstance(entry, TurnEnded | TurnEnding | OperationEnded)
                first = ids.began(entry.operation if isinstance(entry, OperationEnded) else entry.turn)
                if first in began or bisect_left(said, entry.seq) > bisect_left(said, first):
                    found.setdefault(entry.seq, entry)

    async def _about(self, head: Loaded, command: RedactContent, found: dict[int, Entry]) -> set[str]:
        """Which of the session's labels and metadata, as they are now, an entry says that is named."""
        latest = {"labels": 0, "metadata": 0}
        if any(isinstance(found.get(seq), SessionCreated | SessionChanged) for seq in command.entries):
            for row in await read_entries(self._runtime.store, head.row.no, kinds=(SessionCreated.kind, SessionChanged.kind)):
                entry = open_entry(row)
                latest |= {what: entry.seq for what in latest if getattr(entry, what) is not None}
        return {what for what, seq in latest.items() if seq in command.entries}

    async def _notes(self, head: Loaded, checkpoint: Checkpoint, found: dict[int, Entry]) -> bool:
        """Add notes that may summarise what goes; returns whether those that stand for the conversation's beginning are among them."""
        store, no = self._runtime.store, head.row.no
        if not checkpoint.compactions:
            return False
        after = _first_shown(head, found)
        while rows := await store.entries(no, after=after, kinds=(OperationEnded.kind,), limit=PAGE):
            after = rows[-1].seq
            for row in rows:
                entry = open_entry(row) if row.body is not None else None
                if isinstance(entry, OperationEnded) and notes_in(entry.parts):
                    found.setdefault(entry.seq, entry)
        base = checkpoint.compacted.base if checkpoint.compacted is not None else 0
        change = await self._own(head, base) if base else None
        return isinstance(change, PrefixChanged) and change.summary in found

    async def _memory(self, head: Loaded, checkpoint: Checkpoint, found: dict[int, Entry]) -> bool:
        """Add what the session learned since, which may have come of what goes; returns whether it still remembers any of that."""
        seq = checkpoint.extensions.get(MEMORY, {}).get(STATE, 0)
        after = _first_shown(head, found)
        while rows := await self._runtime.store.entries(head.row.no, after=after, kinds=(ExtensionSet.kind,), limit=PAGE):
            after = rows[-1].seq
            for row in rows:
                entry = open_entry(row) if row.body is not None else None
                if isinstance(entry, ExtensionSet) and entry.extension == MEMORY:
                    receipt = await self._own(head, entry.seq - 1)
                    found.setdefault(entry.seq, entry)
                    if isinstance(receipt, OperationEnded):
                        found.setdefault(receipt.seq, receipt)
        return seq in found

    async def _quoting(self, head: Loaded, quoted: set[int]) -> list[MessageAdded]:
        """The messages that reply to others and quote them."""
        found: list[MessageAdded] = []
        after = min(quoted, default=head.row.version)
        while rows := await self._runtime.store.entries(head.row.no, after=after, kinds=(MessageAdded.kind,), limit=PAGE):
            after = rows[-1].seq
            # Few messages quote: most of them need not be opened.
            for entry in [open_entry(row) for row in rows if row.body is not None and b'"reply"' in row.body]:
                if isinstance(entry, MessageAdded) and entry.reply is not None and entry.reply.seq in quoted:
                    found.append(entry)
        return found

    async def _title(self, head: Loaded, checkpoint: Checkpoint, found: dict[int, Entry]) -> bool:
        """Whether the session's title goes too, and with it the entries that say it."""
        wanted = any(isinstance(entry, SessionCreated | SessionChanged) and entry.title for entry in found.values())
        for entry in [*found.values()]:
            if checkpoint.title and isinstance(entry, MessageAdded) and entry.role == "user":
                wanted = wanted or checkpoint.title in " ".join(text_of(await self._whole(head, entry.parts)).split())
        if wanted:
            for row in await self._runtime.store.entries(head.row.no, kinds=(SessionCreated.kind, SessionChanged.kind)):
                said = open_entry(row) if row.body is not None else None
                if isinstance(said, SessionCreated | SessionChanged) and said.title:
                    found[said.seq] = said
        return wanted

    async def _whole(self, head: Loaded, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return await resolve_parts(parts, self._fetcher(head.row)) if any(isinstance(part, StoredPart) for part in parts) else parts

    async def _with_content(self, head: Loaded, entry: Entry) -> Entry:
        """An entry with what it has set aside in its place, which alone says what it was: whose call a response answers stays."""
        parts: tuple[Part, ...] = getattr(entry, "parts", ())
        if not any(isinstance(part, StoredPart) for part in parts):
            return entry
        # What is lost can be redacted, too.
        with suppress(StoreCorrupt):
            parts = await self._whole(head, parts)
        return msgspec.structs.replace(entry, parts=parts)

    async def _took_over(self, row: SessionRow, other: SessionRow, there: Checkpoint, taken: _Taken) -> bool:
        """Whether a fork began with what is gone here, and wrote down what it made of its conversation."""
        if other.parent_kind != "fork" or not (there.compactions or MEMORY in there.extensions):
            return False
        try:
            forked = await Messages(self._runtime.store, other).laid(2)
        except StoreCorrupt:
            return True
        pieces = () if forked is None else [piece for piece in forked.pieces if piece.session == row.session_id]
        return any(piece.start <= message.number < piece.stop for piece in pieces for message in taken.said)

    async def _left_behind(self, head: Loaded, checkpoint: Checkpoint, batch: Batch, redacted: Redacted, taken: _Taken) -> list[str]:
        """Where the content may still be, a sentence each."""
        store, row = self._runtime.store, head.row
        found = [
            f"the content {digest[:12]}… stays, because something else of the tree refers to it"
            for digest in batch.erased
            if await store.blob(row.root, digest) is not None
        ]
        copied = [what for what in ("title", "labels", "metadata") if getattr(redacted, what)]
        for other in await store.tree(row.root):
            if other.no == row.no or other.status == "deleted":
                continue
            there = _decoded(other)
            if there is None:
                found.append(f"{other.session_id!r} can't be read, so nobody can tell what it took over")
                continue
            found += [f"{other.session_id!r} has the same {what}" for what in copied if getattr(there, what) == getattr(checkpoint, what)]
            if await self._took_over(row, other, there, taken):
                found.append(f"{other.session_id!r} made notes of its conversation, or remembers it, since it took this over")
            if there.parent is not None and there.parent.session == row.session_id and taken.called(there.parent.operation):
                found.append(f"{other.session_id!r} was called with it")
        told = any(message.role == "assistant" for message in taken.said)
        if checkpoint.parent is not None and told:
            found.append(f"{checkpoint.parent.session!r} was told what it came to")
        if isinstance(store, Auditable):
            first = min(batch.redacted)
            found += [f"the consumer {consumer!r} has read it" for consumer, seq in await store.cursors(row.no) if seq >= first]
        return found


def _first_shown(head: Loaded, found: dict[int, Entry]) -> int:
    """The first entry whose content a model may have seen, so that what was written since may come of it."""
    return min((seq for seq, entry in found.items() if not isinstance(entry, UNSEEN)), default=head.row.version)


def _decoded(row: SessionRow) -> Checkpoint | None:
    try:
        return checkpoints.decode(row.checkpoint)
    except (StoreCorrupt, NewerRules):
        return None


def _refers(entry: Entry) -> bool:
    """Whether an entry's content stands in other entries."""
    return isinstance(entry, MessageAdded) and bool(entry.receipt or entry.responses)


def _numbers(given: Any, what: str) -> tuple[int, ...]:
    if type(given) is int:
        given = (given,)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidSpan(f"{given!r:.40} can't be {what}", hint="pass numbers")
    numbers = tuple(given)
    for number in numbers:
        if type(number) is not int or number < 0:
            raise InvalidSpan(f"{number!r:.40} can't be {what}", hint="pass numbers")
    return tuple(sorted(set(numbers)))
