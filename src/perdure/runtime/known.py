"""What this process knows of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from ..core import checkpoint as checkpoints
from ..core.checkpoint import Checkpoint, Compacted
from ..core.commands import Compact, PostMessage, Resume
from ..core.entries import TERMINALS, Entry, PrefixChanged, Redacted, Rewritten, TurnEnded
from ..core.errors import StoreCorrupt
from ..core.journal import open_entry
from ..core.phase import backing_off, phase
from ..core.records import Amounts, Pool
from ..core.transcript import Transcript
from ..store.base import Commit, Committed, InboxRow, Loaded, Store, StoredBlob
from .batch import Batch, check_own
from .context import CONTEXT_KINDS, Context, stored_content
from .control import decode_row, is_control
from .excerpts import read_archived
from .ledger import Ledger
from .lineage import Lineage
from .messages import PAGE, Messages, read_entries, with_left

__all__ = ["Known", "is_due"]


def is_due(row: InboxRow, now: int) -> bool:
    """Whether a submission may be delivered at this time."""
    return row.not_before is None or row.not_before <= now


class Known:
    """A session's head, what waits in its inbox, the messages that models see and the effects that it had, as far as they were read.

    ``unstored`` gives content that is not committed yet, beside what is in ``fresh``. `sync` lets the context see what a commit is about to
    hold; `committed` keeps that, `forget_draft` drops it. ``looks`` rises with each commit
    or read of the inbox that begins, since its answer says what is in there.
    """

    def __init__(self, store: Store, session_id: str, *, unstored: Callable[[], Iterable[StoredBlob]]) -> None:
        self.store = store
        self.session_id = session_id
        self.head: Loaded | None = None
        self.checkpoint = Checkpoint()
        self.rows: list[InboxRow] = []
        self.seen_head = 0
        self.dirty = True
        self.looks = 0
        self.context = Context(self.blob, for_models=True)
        self.ledger = Ledger(store)
        self.fresh: dict[str, bytes] = {}
        self._unstored = unstored
        self._read_to = 0
        self._others: dict[str, int] = {}
        self._added = 0
        self._spent: tuple[int, Amounts] | None = None

    def take_head(self, head: Loaded) -> None:
        """Take what the store says. Raises `StoreCorrupt` for a checkpoint that isn't this session's."""
        self.head = head
        self.ledger.no = head.row.no
        self.checkpoint = checkpoints.decode(head.row.checkpoint)
        check_own(head, self.checkpoint)
        self.seen_head = head.row.inbox_head

    def something_to_do(self, now: int) -> bool:
        """Whether anything can be decided at this time."""
        where = phase(self.checkpoint)
        assert self.head is not None
        row = self.head.row
        if where not in ("idle", "waiting") and (
            row.holder is not None or not backing_off(self.checkpoint, now) or (row.wake_at is not None and row.wake_at <= now)
        ):
            return True
        if self.checkpoint.errands or any(map(is_control, self.rows)):
            return True
        turn = self.checkpoint.turn
        if turn is not None:
            return any(0 < deadline <= now for deadline in turn.deadlines)
        return any(is_due(row, now) for row in self.rows)

    def looked(self) -> None:
        """A commit or a read of the inbox begins: it tells what came before it."""
        self.looks += 1

    async def read_inbox(self) -> None:
        """Read what waits."""
        assert self.head is not None
        self.dirty = False
        self.looked()
        self.rows = await self.store.inbox(self.head.row.no)
        self.seen_head = max([self.seen_head, *(row.arrival for row in self.rows)])

    async def catch_up(self) -> None:
        """Read the messages that this process has not seen, and the effects whose outcome is unknown."""
        assert self.head is not None
        no, version = self.head.row.no, self.head.row.version
        await self._forget_what_others_removed()
        if self._read_to < version:
            await self._forget_what_changed(no, version)
            compacted = self.checkpoint.compacted
            try:
                if compacted is not None and self._read_to < compacted.base:
                    await self._begin_behind(compacted)
                await self._read_up_to(no, version)
                self.context.check(self.checkpoint.messages)
            except BaseException:
                # What was read of it by halves would be there twice after the next time.
                self._forget()
                raise
            self.context.accept()
            self._read_to = version
        await self.ledger.load(await self.lineage())

    async def transcript(self) -> tuple[Messages, Transcript]:
        """Where the session's messages stand."""
        assert self.head is not None
        messages = Messages(self.store, self.head.row)
        laid = await messages.laid(self.checkpoint.transcript.base)
        return messages, Transcript.at(laid, self.checkpoint.number, self.checkpoint.revision)

    async def spent(self) -> Amounts:
        """What ended turns used of what the checkpoint doesn't count, before anything limited the session."""
        assert self.head is not None
        if self._spent is None or self._spent[0] != self.checkpoint.turns:
            rows = await read_entries(self.store, self.head.row.no, kinds=TERMINALS) if self.checkpoint.turns else []
            ended = [entry for entry in map(open_entry, rows) if isinstance(entry, TurnEnded)]
            steps, calls, ran = (sum(getattr(entry, name) for entry in ended) for name in ("steps", "tool_calls", "ran"))
            self._spent = self.checkpoint.turns, Amounts(steps=steps, tool_calls=calls, ms=ran)
        return self._spent[1]

    async def lineage(self) -> Lineage | None:
        """What the session's past did, where its transcript may not show all of it."""
        if self.head is None or not self.checkpoint.transcript.base:
            return None
        _, transcript = await self.transcript()
        return Lineage(self.store, self.head.row, transcript.layout)

    async def _forget_what_changed(self, no: int, version: int) -> None:
        """What was read is not what stands there, if somebody edited the transcript or removed content meanwhile."""
        kinds = (Rewritten.kind, Redacted.kind)
        if self._read_to and await self.store.entries(no, after=self._read_to, before=version + 1, kinds=kinds, limit=1):
            self._forget()

    async def _forget_what_others_removed(self) -> None:
        """The same for content that was removed in a session that this one was forked from."""
        for session, version in [*self._others.items()]:
            head = await self.store.load(session, hidden=True)
            if head is None or await self._removed(head.row.no, version, head.row.version):
                self._forget()
                return
            self._others[session] = head.row.version

    async def _removed(self, no: int, after: int, until: int) -> bool:
        return after < until and bool(await self.store.entries(no, after=after, before=until + 1, kinds=(Redacted.kind,), limit=1))

    def _forget(self) -> None:
        self.context.reset()
        self._read_to = 0
        self._others.clear()

    async def _begin_behind(self, compacted: Compacted) -> None:
        """Read what stands for the conversation's beginning, however long that is, and nothing else of it."""
        change = await self.ledger.entry(compacted.base)
        if not isinstance(change, PrefixChanged):
            raise StoreCorrupt(f"entry {compacted.base}, where the context begins, is none of a compaction", hint="run `perdure verify`")
        messages, transcript = await self.transcript()
        kept: list[tuple[int, Entry]] = []
        for start, stop in change.kept:
            position = start
            async for entries in messages.entries(transcript.layout.slice(start, stop)):
                kept += enumerate(entries, position)
                position += len(entries)
        latest: list[Entry] = []
        turn = self.checkpoint.turn
        if turn is not None and turn.output:
            answer = await self.ledger.entry(turn.output)
            latest = [await self.ledger.entry(getattr(answer, "receipt", 0)), answer]
        await self.context.begin(change, await self.ledger.entry(change.summary), kept, latest)
        place = self.checkpoint.transcript
        if change.upto < place.count:
            async for rows, session in messages.context(transcript.layout.slice(change.upto, place.count), place.base):
                await self.context.read(rows, session)
            self._others |= messages.others
            self._read_to = place.base
        else:
            [read_to] = await self.store.seek(messages.no, [place.tail + change.upto - place.count])
            self._read_to = max(place.base, read_to or 0)

    async def _read_up_to(self, no: int, version: int) -> None:
        """Page by page, each row taken as it is read: read first and opened then, it would be out of the processor's caches."""
        place = self.checkpoint.transcript
        after = self._read_to
        if place.base > after:
            messages, transcript = await self.transcript()
            async for rows, session in messages.context(transcript.layout.slice(0, place.count), place.base):
                await self.context.read(rows, session)
            self._others |= messages.others
            after = place.base

        # What was written in place of others stands where the layout says.
        take = partial(self.context.take, tail=place.tail)
        while True:
            taken = await self.store.scan(no, take, [(after, version + 1)], kinds=CONTEXT_KINDS, limit=PAGE)
            if taken.rest:
                await self.context.read(await with_left(self.store, no, taken.rest))
            if taken.rows < PAGE:
                return
            after = taken.last

    async def blob(self, digest: str) -> bytes:
        """Content that entries refer to, committed or about to be."""
        if digest in self.fresh:
            return self.fresh[digest]
        for blob in self._unstored():
            if blob.digest == digest:
                return blob.data
        return await stored_content(self.store, self.checkpoint.root, digest)

    async def read_archived(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the tool `read_result` is asked for."""
        messages, transcript = await self.transcript()
        return await read_archived(self.store, messages, transcript.layout, self.blob, arguments)

    async def sync(self, batch: Batch) -> None:
        """Let the context see what the batch decided so far."""
        if self._added < len(batch.entries):
            await self.context.add(batch.entries[self._added :])
            self._added = len(batch.entries)

    def take_pool(self, pool: Pool | None) -> None:
        """What the session's owner has, as the store knows it now."""
        assert self.head is not None
        self.head = msgspec.structs.replace(self.head, pool=pool)

    def forget_draft(self) -> None:
        """What was decided is not committed, and has to be decided again."""
        self.context.forget()
        self._added = 0
        self.dirty = True

    def due_posts(self, batch: Batch) -> Iterator[PostMessage | Compact | Resume]:
        """The messages that wait and may be delivered now, by arrival. A wish to compact waits like one."""
        for row in self.rows:
            if not is_control(row) and row.submission_id not in batch.consumed and is_due(row, batch.now):
                post = decode_row(row)
                assert isinstance(post, PostMessage | Compact | Resume)
                yield post

    async def committed(self, batch: Batch, commit: Commit, answer: Committed, holder: str | None) -> bool:
        """What was decided stands. True: something was sent meanwhile."""
        assert self.head is not None
        row = msgspec.structs.replace(
            self.head.row, version=answer.version, fence=answer.fence, holder=holder, inbox_head=answer.inbox_head, claims=0, status="idle"
        )
        chain, number = (commit.entries[-1].chain, commit.entries[-1].number) if commit.entries else (self.head.chain, self.head.number)
        self.head = msgspec.structs.replace(self.head, row=row, chain=chain, number=number, now=batch.now, pool=batch.pool)
        self.checkpoint = batch.checkpoint
        await self.sync(batch)
        self.context.accept()
        self._added = 0
        self._read_to = answer.version
        self.rows = [item for item in self.rows if item.submission_id not in batch.consumed]
        self.ledger.note(commit.effects)
        moved = answer.inbox_head != self.seen_head
        self.seen_head = answer.inbox_head
        self.dirty |= moved
        return moved
