"""One session's check, for `verify`: the journal once, in pages, and then everything that refers to it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import msgspec

from ..core import canonical, commands, entries, ids
from ..core import checkpoint as checkpoints
from ..core.budget import drawn_and_spent
from ..core.checkpoint import RULES, Checkpoint
from ..core.commands import PostMessage
from ..core.effects import effect_key
from ..core.entries import Entry, OperationEnded, Rebased, Recovered, TurnEnded
from ..core.errors import PerdureError, SessionArchived
from ..core.evolve import evolve
from ..core.journal import GENESIS, Sealed, body_digest, link, open_entry
from ..core.media import content_type
from ..core.messages import Part, StoredPart, decode_part, media_of
from ..core.phase import backing_off
from ..store.audit import Auditable
from ..store.base import URGENT_LIMIT, InboxRow, Loaded, Store
from ..store.pools import KeepsPools, Share
from . import verify_facts as facts
from .batch import parked, standing
from .driver import STUCK_CLAIMS
from .engaging import FAULT_PAUSE_MS
from .messages import left_of, read_entries, read_entry
from .verify_budgets import BudgetCheck
from .verify_layouts import LayoutCheck

__all__ = ["PAGE", "RETRIES", "UNREADABLE", "Checked", "Problem", "SessionCheck"]

Where: TypeAlias = Literal["journal", "checkpoint", "sessions", "inbox", "effects", "uniques", "blobs", "cursors", "pools", "shares"]

PAGE = 64
"""Rows at a time: an entry may have 1 MiB."""

PROBLEMS_LIMIT = 100
"""So many problems of one session are listed; after that it is broken enough."""

REMEMBERED = 512
"""Digests of content that was looked at lately, so that the definition of a thousand turns is not read a thousand times."""

RETRIES = 50
"""How often what changes is compared, if somebody changes it each time."""

SLACK_MS = 60_000
"""How far a moment may lie from those that it follows from."""

CLOCKS_MS = 366 * 86_400_000
"""How far apart the clocks may be that say when something was sent: one may be set right at any time, and its past stays what it was."""

T = TypeVar("T")

# What reading damaged rows can raise, besides what a store promises: text that is not text, numbers that are not numbers.
UNREADABLE = (PerdureError, msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One row that is not what was written. ``seq`` is its entry, 0 where the row belongs to none."""

    session_id: str
    where: Where
    seq: int
    what: str

    def __str__(self) -> str:
        place = f"{self.where} {self.seq}" if self.seq else self.where
        return f"{self.session_id}: {place}: {self.what}"


@dataclass
class Checked:
    """How much was looked at."""

    sessions: int = 0
    entries: int = 0
    submissions: int = 0
    blobs: int = 0

    def add(self, other: Checked) -> None:
        """What was looked at besides."""
        self.sessions += other.sessions
        self.entries += other.entries
        self.submissions += other.submissions
        self.blobs += other.blobs


class _Enough(Exception):
    """The session has more problems than anybody reads."""


class SessionCheck:
    """One session's check."""

    def __init__(self, store: Store, loaded: Loaded, expected: tuple[int, bytes] | None, checked: Checked) -> None:
        self.store = store
        self.row = loaded.row
        self.now = loaded.now
        self.expected = expected
        self.checked = checked
        self.problems: list[Problem] = []
        self.begins: int | None = None
        self.last = (GENESIS, 0, 0, 0)
        self.left: dict[int, bytes] | None = None
        self.layouts = LayoutCheck(store, loaded.row)
        self.forked: entries.Forked | None = None
        self.fold: Checkpoint | None = None
        self.receipts: dict[int, Entry] = {}
        self.effects: dict[int, tuple[bytes, str]] = {}
        self.uniques: dict[str, tuple[str, str, int]] = {}
        self.fence = 0
        self.recoveries = 0
        self.catalogued = 0
        self.latest_arrival_at = 0
        self.edited: dict[str, str] = {}
        self.pending: list[InboxRow] = []
        self.submissions = 0
        self.seen: dict[str, None] = {}
        self.budgets = BudgetCheck()

    def found(self, where: Where, seq: int, what: str) -> None:
        self.problems.append(Problem(session_id=self.row.session_id, where=where, seq=seq, what=what))
        if len(self.problems) >= PROBLEMS_LIMIT:
            raise _Enough

    async def run(self) -> list[Problem]:
        try:
            for _ in range(RETRIES):
                await self._journal()
                known = len(self.problems)
                await self._rest()
                if len(self.problems) == known:
                    break
                # What differs may differ only because somebody works on the session right now.
                now = await self.store.load(self.row.session_id)
                if now is None or now.row == self.row:
                    break
                del self.problems[known:]
                self.row, self.now = now.row, now.now
            await self._blobs()
        except _Enough:
            pass
        except UNREADABLE as error:
            self.problems.append(Problem(session_id=self.row.session_id, where="sessions", seq=0, what=f"can't be read: {error}"))
        self.checked.submissions += self.submissions
        return self.problems

    async def _rest(self) -> None:
        """Everything that changes, against the journal that doesn't."""
        beyond = await self._read("journal", self.store.entries(self.row.no, after=self.row.version, limit=1), [])
        if beyond:
            self.found("journal", beyond[0].seq, f"it stands behind version {self.row.version}")
        stored = self._checkpoint()
        self._compare(stored)
        await self._effects()
        await self._uniques()
        await self._share()
        await self._inbox()
        if stored is not None:
            self._catalogue(stored)
        await self._cursors()

    async def _read(self, where: Where, reading: Awaitable[T], instead: T, seq: int = 0) -> T:
        try:
            return await reading
        except UNREADABLE as error:
            self.found(where, seq, f"can't be read: {error}")
            return instead

    # ---------------------------------------------------------------------------------------------------------- checkpoint

    def _checkpoint(self) -> Checkpoint | None:
        try:
            stored = checkpoints.decode(self.row.checkpoint)
        except UNREADABLE as error:
            self.found("checkpoint", 0, str(error))
            return None
        if canonical.encode(stored) != self.row.checkpoint:
            self.found("checkpoint", 0, "its bytes are not in canonical form")
        if len(self.row.checkpoint) > checkpoints.SIZE_LIMIT:
            self.found("checkpoint", 0, f"it has {len(self.row.checkpoint)} bytes, more than the limit")
        return stored

    def _compare(self, stored: Checkpoint | None) -> None:
        # A session that newer rules have not touched yet adds up to something else under them; `rebased` will say where they begin.
        if stored is None or self.fold is None or stored.rules < RULES:
            return
        if self.fold == stored:
            return
        names = [name for name in stored.__struct_fields__ if getattr(stored, name) != getattr(self.fold, name)]
        self.found("checkpoint", self.row.version, f"the journal adds up to another checkpoint: {', '.join(names)}")

    # ------------------------------------------------------------------------------------------------------------- journal

    async def _journal(self) -> None:
        start = await self._read("journal", self.store.entries(self.row.no, kinds=("rebased",), limit=1, newest_first=True), [])
        # Folding starts at the last `rebased`: what stood before it followed other rules.
        if self.begins is None:
            self.begins = start[0].seq if start else 1
        if self.last[1] == 0 and self.row.parent_kind == "fork":
            self.last = (await self._first_chain(), 0, 0, 0)
        chain, seq, number, at = self.last
        async for row in self._rows(seq):
            self.checked.entries += 1
            if row.body is None:
                row = msgspec.structs.replace(row, body=(await self._left()).get(row.seq))
            problem = self._row_problem(row, chain, number, at)
            self.last = chain, seq, number, at = row.chain, row.seq, row.number, row.at
            if self.expected is not None and seq == self.expected[0] and chain != self.expected[1]:
                problem = problem or "the chain is not the one that was expected here"
            if problem:
                self.found("journal", seq, problem)
            entry = self._opened(row, quiet=bool(problem))
            if entry is None:
                self.fold, self.begins = None, -1
                continue
            await self._content(entry)
            async for what in self.layouts.take(entry):
                self.found("journal", seq, what)
            if isinstance(entry, entries.Redacted):
                await self._redacted(entry)
            elif isinstance(entry, entries.Forked):
                self.forked = entry
            if seq == self.begins:
                self.fold = Checkpoint()
            if self.fold is not None:
                await self._take(entry, self.fold, quiet=bool(problem))
        if self.expected is not None and self.expected[0] > self.row.version:
            self.found("journal", self.row.version, f"it ends here, before the expected head {self.expected[0]}")

    async def _rows(self, after: int) -> AsyncIterator[Sealed]:
        """The journal in pages; around a row that can't be read, one at a time."""
        no, version = self.row.no, self.row.version
        careful = 0
        while after < version:
            before = version + 1 if after >= careful else after + 2
            try:
                page = await self.store.entries(no, after=after, before=before, limit=PAGE)
            except UNREADABLE as error:
                if before == after + 2:
                    self.found("journal", after + 1, f"can't be read: {error}")
                    after += 1
                else:
                    careful = after + PAGE
                continue
            if not page:
                if before == version + 1:
                    self.found("journal", after + 1, f"entries {after + 1} to {version} are missing")
                    return
                self.found("journal", after + 1, "the entry is missing")
                after += 1
                continue
            for row in page:
                if row.seq != after + 1:
                    self.found("journal", after + 1, "the entry is missing")
                after = row.seq
                yield row

    def _row_problem(self, row: Sealed, chain: bytes, number: int, at: int) -> str:
        if row.body is None or (row.salt is None and row.seq not in (self.left or {})):
            return "the body is gone, and no later entry says that it was redacted"
        if row.salt is not None and body_digest(row.salt, row.body) != row.body_digest:
            return "the body or its salt is not what the digest says"
        if link(chain, self.row.session_id, row.seq, row.number, row.kind, row.at, row.body_digest) != row.chain:
            return "the hash chain breaks here"
        if row.number != number + (row.kind == "message") and row.kind != entries.Forked.kind:
            return f"it is message {row.number} after message {number}"
        if row.at < at:
            return "its time lies before that of the entry before it"
        return ""

    def _opened(self, row: Sealed, *, quiet: bool) -> Entry | None:
        try:
            entry = open_entry(row)
            is_canonical = entries.encode(entry) == row.body
        except UNREADABLE as error:
            if not quiet:
                self.found("journal", row.seq, str(error))
            return None
        if not is_canonical and not quiet:
            self.found("journal", row.seq, "the body is not in canonical form")
        return entry

    async def _take(self, entry: Entry, fold: Checkpoint, *, quiet: bool) -> None:
        """One entry more: what it says against what stands before it."""
        if not quiet and not isinstance(entry, Rebased):
            gone = entry.seq in (self.left or {})
            for what in facts.inconsistencies(fold, entry, self.receipts, self.row.session_id, redacted=gone):
                self.found("journal", entry.seq, what)
            await self._named(entry)
        self._effect_of(fold, entry)
        self._unique_of(fold, entry)
        if isinstance(entry, entries.EffectSettled):
            receipt = self.receipts.get(entry.receipt) or await self._entry(entry.receipt)
            if not isinstance(receipt, OperationEnded) or (receipt.operation, receipt.attempt) != (entry.operation, entry.attempt):
                self.found("journal", entry.seq, f"entry {entry.receipt} is not the receipt that it settles")
        if isinstance(entry, OperationEnded | entries.EffectSettled):
            self.receipts[entry.seq] = entry
        if isinstance(entry, entries.QueueChanged) and entry.change == "edited":
            self.edited[entry.submission] = entry.content
        self.fence = max(self.fence, getattr(entry, "fence", 0))
        self._count(entry)
        try:
            self.fold = evolve(fold, entry)
        except Exception as error:
            # Whatever a rule makes of facts that no rule would have written, it is the row that is wrong.
            if not quiet:
                self.found("journal", entry.seq, f"it can't follow what stands before it: {error!r}")
            self.fold = None
            return
        if self.begins == 1 and (wrong := self.budgets.take(entry, fold, self.fold)) and not quiet:
            self.found("journal", entry.seq, wrong)
        if isinstance(entry, TurnEnded) or (isinstance(entry, entries.MessageAdded) and entry.role != "user"):
            self.receipts.clear()

    def _count(self, entry: Entry) -> None:
        if isinstance(entry, Recovered):
            self.recoveries += 1
        elif isinstance(entry, TurnEnded) or (
            isinstance(entry, OperationEnded) and entry.final and entry.status in ("succeeded", "failed")
        ):
            self.recoveries = 0
        if isinstance(entry, entries.SessionCreated | entries.SessionChanged | entries.TurnStarted | TurnEnded):
            self.catalogued = entry.at

    async def _first_chain(self) -> bytes:
        """The chain that a fork begins with: its parent's."""
        rows = await self._read("journal", self.store.entries(self.row.no, after=1, before=3), [])
        try:
            entry = open_entry(rows[0])
            return bytes.fromhex(entry.chain) if isinstance(entry, entries.Forked) else GENESIS
        except UNREADABLE:
            # Its own check says so.
            return GENESIS

    async def _left(self) -> dict[int, bytes]:
        """What is left of entries that lost their content, if a later entry says so."""
        if self.left is None:
            self.left = await self._read("journal", left_of(self.store, self.row.no), {})
        return self.left

    async def _redacted(self, entry: entries.Redacted) -> None:
        for item in entry.rows:
            rows = await self._read("journal", self.store.entries(self.row.no, after=item.seq - 1, before=item.seq + 1), [])
            if not 0 < item.seq < entry.seq or not rows:
                self.found("journal", entry.seq, f"it redacts entry {item.seq}, which is none before it")
            elif rows[0].body is not None or rows[0].salt is not None:
                self.found("journal", item.seq, f"entry {entry.seq} says that it was redacted, and its content is still there")
            elif rows[0].kind != item.kind:
                self.found("journal", entry.seq, f"it says that entry {item.seq} is a {item.kind}")

    async def _entry(self, seq: int) -> Entry | None:
        if not 0 < seq <= self.row.version:
            return None
        try:
            return await read_entry(self.store, self.row.no, seq)
        except UNREADABLE:
            # The journal's own check has said so.
            return None

    # ------------------------------------------------------------------------------------------------------------- content

    async def _content(self, entry: Entry) -> None:
        for digest, what in facts.references(entry):
            await self._blob(digest, what, entry.seq)
        for part in getattr(entry, "parts", ()):
            await self._part(part, entry.seq)

    async def _part(self, part: Part, seq: int) -> None:
        for blob in media_of(part):
            await self._blob(blob.digest, "a blob part", seq, size=blob.size)
        if isinstance(part, StoredPart):
            data = await self._blob(part.digest, "a part that was set aside", seq, size=part.size)
            if data is not None and not _stands_for(part, data):
                self.found("blobs", seq, f"{part.digest} can't be a part of a message")

    async def _blob(self, digest: str, what: str, seq: int, *, size: int | None = None) -> bytes | None:
        if digest in self.seen:
            return None
        blob = await self._read("blobs", self.store.blob(self.row.root, digest), False, seq)
        if blob is False:
            return None
        if blob is None or isinstance(blob, bool):
            self.found("blobs", seq, f"{what} refers to {digest}, which is missing")
            return None
        if canonical.digest(blob.data) != digest or blob.digest != digest:
            self.found("blobs", seq, f"{digest} is not what its digest says")
        elif size is not None and len(blob.data) != size:
            self.found("blobs", seq, f"{digest} has {len(blob.data)} bytes where its reference says {size}")
        elif blob.media_type not in ("application/json", "text/plain", content_type(blob.data)):
            # The same bytes may have been a file and data of perdure's own.
            self.found("blobs", seq, f"{digest} is of the type {blob.media_type!r}")
        self.seen[digest] = None
        if len(self.seen) > REMEMBERED:
            del self.seen[next(iter(self.seen))]
        return blob.data

    async def _blobs(self) -> None:
        """The tree's content that nobody refers to is no problem, unless it is not what its digest says."""
        digests = await self._read("blobs", self.store.blobs(self.row.root), [])
        self.checked.blobs += len(digests)
        for digest in digests:
            if digest not in self.seen:
                await self._read("blobs", self.store.blob(self.row.root, digest), None)

    # ------------------------------------------------------------------------------------------------------------- effects

    def _effect_of(self, fold: Checkpoint, entry: Entry) -> None:
        """The row that a receipt must have left."""
        if not isinstance(entry, OperationEnded | entries.EffectSettled):
            return
        if isinstance(entry, entries.EffectSettled) and entry.receipt in self.effects:
            self.effects[entry.receipt] = (self.effects[entry.receipt][0], entry.status)
        operation = fold.operation(entry.operation)
        if operation is None or not operation.plan.effect_key or not entry.attempt or not getattr(entry, "final", True):
            return
        self.effects[entry.seq] = (effect_key(operation.plan.name, operation.plan.effect_key), entry.status)

    def _unique_of(self, fold: Checkpoint, entry: Entry) -> None:
        """The row that a call which only one may make must have left."""
        match entry:
            case entries.OperationStarted(attempt=1):
                item = fold.operation(entry.operation)
                plan = entry.plan or (item.plan if item is not None else None)
                if plan is not None and plan.unique:
                    self.uniques[entry.operation] = (plan.unique, "pending", 0)
            case OperationEnded(final=True) | entries.EffectSettled() if entry.operation in self.uniques:
                state = standing(entry)
                if state is None:
                    del self.uniques[entry.operation]
                else:
                    self.uniques[entry.operation] = (self.uniques[entry.operation][0], state, entry.seq)

    async def _uniques(self) -> None:
        if self.fold is None:
            return
        stored = {row.operation: (row.key, row.state, row.seq) for row in await self._read("uniques", self.store.uniques(self.row.no), [])}
        for operation, expected in self.uniques.items():
            if operation in stored:
                if stored[operation] != expected:
                    self.found("uniques", expected[2], f"what {operation} took is not recorded as {expected[1]}")
            elif await self._read("uniques", self.store.unique(expected[0]), None) is None:
                self.found("uniques", expected[2], f"{operation} took what only one call may do, and it is free")
        for operation in stored.keys() - self.uniques.keys():
            self.found("uniques", stored[operation][2], f"{operation} took nothing that only one call may do, or gave it back")

    async def _effects(self) -> None:
        if self.fold is None:
            # What was executed is known from the fold only.
            return
        stored: dict[int, list[tuple[bytes, str]]] = {}
        for row in await self._read("effects", self.store.effects(self.row.no), []):
            stored.setdefault(row.seq, []).append((row.effect_key, row.state))
        # Before the last `rebased` nothing was folded.
        first = self.begins or 0
        for seq, expected in self.effects.items():
            rows = stored.pop(seq, [])
            if [key for key, _ in rows] != [expected[0]]:
                self.found("effects", seq, "the effect of this receipt is not recorded under its key")
            elif rows[0][1] != expected[1]:
                self.found("effects", seq, f"it is recorded as {rows[0][1]}, but was {expected[1]}")
        for seq in stored:
            if seq >= first:
                self.found("effects", seq, "no receipt says that there was an effect")

    # --------------------------------------------------------------------------------------------------------------- inbox

    async def _named(self, entry: Entry) -> None:
        """A submission that an entry names has its receipt in the inbox."""
        name = facts.consumes(entry)
        if not name:
            return
        row = await self._read("inbox", self.store.submission(self.row.no, name), False, entry.seq)
        if row is None:
            self.found("inbox", entry.seq, f"the submission {name!r}, which the entry names, is missing")
        elif not isinstance(row, bool) and row.consumed_seq is None:
            self.found("inbox", entry.seq, f"the submission {name!r}, which the entry names, is still waiting")
        elif isinstance(entry, entries.TurnStarted) and not isinstance(row, bool) and row.consumed_seq != entry.seq:
            self.found("inbox", entry.seq, f"the submission {name!r}, which the turn began with, was taken up by entry {row.consumed_seq}")

    async def _inbox(self) -> None:
        self.pending, self.latest_arrival_at, self.submissions = [], 0, 0
        if not 0 <= self.row.inbox_head <= self.row.version + URGENT_LIMIT:
            # Every consumed submission left an entry of its own.
            self.found("sessions", 0, f"inbox_head is {self.row.inbox_head}, more than ever arrived")
            return
        arrivals = bytearray(self.row.inbox_head + 1)
        async for row in self._submissions():
            self.submissions += 1
            if not 1 <= row.arrival <= self.row.inbox_head:
                self.found("inbox", 0, f"{row.submission_id!r} arrived as number {row.arrival} of {self.row.inbox_head}")
            elif arrivals[row.arrival]:
                self.found("inbox", 0, f"{row.submission_id!r} arrived as number {row.arrival}, like another")
            else:
                arrivals[row.arrival] = 1
            self.latest_arrival_at = max(self.latest_arrival_at, row.at)
            if row.consumed_seq is None:
                self.pending.append(row)
            try:
                problem = await self._submission(row)
            except UNREADABLE as error:
                problem = f"can't be read: {error}"
            if problem:
                self.found("inbox", row.consumed_seq or 0, f"{row.submission_id!r}: {problem}")
        missing = arrivals.find(0, 1)
        if missing > 0:
            self.found("inbox", 0, f"submission number {missing} of {self.row.inbox_head} is missing")

    async def _submissions(self) -> AsyncIterator[InboxRow]:
        after = ""
        while page := await self._read("inbox", self.store.submissions(self.row.no, after=after, limit=PAGE), []):
            for row in page:
                yield row
            after = page[-1].submission_id

    async def _submission(self, row: InboxRow) -> str:
        if row.kind not in commands.KINDS:
            return f"it is of the unknown kind {row.kind!r}"
        if row.consumed_seq is None:
            return await self._waiting(row)
        if row.body is not None:
            return "it was consumed, and its body is still there"
        if row.consumed_seq > self.row.version:
            return f"entry {row.consumed_seq}, which consumed it, doesn't exist"
        first = await self._entry(row.consumed_seq)
        if first is None:
            return f"entry {row.consumed_seq}, which consumed it, can't be read"
        second = await self._entry(facts.companion(row, first))
        if isinstance(second, entries.EffectSettled) and isinstance(second.parts[0], StoredPart):
            second = msgspec.structs.replace(second, parts=await self._whole(second.parts))
        if isinstance(first, OperationEnded | entries.EffectSettled | entries.ChildEnded):
            first = msgspec.structs.replace(first, parts=await self._whole(first.parts))
        if row.kind == commands.Interrupt.kind:
            second = await self._next(row.consumed_seq - 1, "turn_aborted", "turn_ending")
        if isinstance(first, entries.ToolCalled):
            first = msgspec.structs.replace(first, parts=await self._whole(first.parts))
        added = await self._added(first) if isinstance(first, entries.Rewritten) else []
        notes = await self._notes_of(row, max(first.seq, second.seq if second is not None else 0)) if row.kind == PostMessage.kind else []
        told = [first.seq, *([second.seq] if second is not None else []), *(item.seq for item in (*added, *notes))]
        if not any(seq in (self.left or {}) for seq in told):
            said = [row.digest]
            if row.submission_id in self.edited:
                # The row is still what was sent, and the journal holds what that was made into.
                said.append(self.edited[row.submission_id])
            texts = [note.text for note in notes]
            rows = [msgspec.structs.replace(row, digest=digest) for digest in said]
            problems = [facts.consumption(item, first, second, added, texts, self.row.session_id) for item in rows]
            if all(problems):
                return problems[-1]
        before = await self._entry(row.consumed_seq - 1)
        put_away = isinstance(first, entries.SubmissionRefused) and first.failure.code == SessionArchived.code
        if row.kind not in commands.WAITING and not put_away and before is not None and first.at != max(row.at, before.at):
            return "the entry that consumed it has another time"
        if not self.row.created - CLOCKS_MS <= row.at <= first.at + CLOCKS_MS:
            return "it was sent at a time that can't be"
        settled: int | None = row.consumed_seq
        if isinstance(first, entries.TurnStarted):
            ended = await self._next(row.consumed_seq, *facts.TERMINALS)
            settled = None if ended is None else ended.seq
        if row.settled_seq != settled:
            return f"it is settled by entry {row.settled_seq}, but should be by {settled}"
        return ""

    async def _added(self, laid: entries.Laid) -> list[entries.MessageAdded]:
        """The messages that were written with an edit."""
        found: list[entries.MessageAdded] = []
        seq = laid.seq
        while len(found) < laid.tail - laid.number and (entry := await self._entry(seq := seq + 1)) is not None:
            if isinstance(entry, entries.MessageAdded):
                found.append(entry)
        return found

    async def _notes_of(self, row: InboxRow, seq: int) -> list[entries.NoteAdded]:
        """The notes that came with a message, whose entry is at ``seq``."""
        found: list[entries.NoteAdded] = []
        while isinstance(entry := await self._entry(seq := seq + 1), entries.NoteAdded) and entry.submission == row.submission_id:
            found.append(entry)
        return found

    async def _whole(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        whole: list[Part] = []
        for part in parts:
            blob = await self.store.blob(self.row.root, part.digest) if isinstance(part, StoredPart) else None
            whole.append(part if blob is None else decode_part(blob.data))
        return tuple(whole)

    async def _next(self, after: int, *kinds: str) -> Entry | None:
        rows = await read_entries(self.store, self.row.no, after=after, before=self.row.version + 1, kinds=kinds, limit=1)
        return open_entry(rows[0]) if rows else None

    async def _waiting(self, row: InboxRow) -> str:
        if row.body is None:
            return "it waits, and its body is gone"
        if row.settled_seq is not None:
            return "it waits, but is settled"
        command = commands.decode(row.kind, row.body, submission=row.submission_id, at=row.at, actor=row.actor)
        said = {commands.digest(command)}
        if isinstance(command, PostMessage) and command.deliver == "queue":
            # A steer that outlived its turn waits in the queue now, and is still the submission that it was.
            said.add(commands.digest(msgspec.structs.replace(command, deliver=sys.intern("steer"))))
        if said.isdisjoint((row.digest, self.edited.get(row.submission_id))) or commands.encode(command) != row.body:
            return "its body is not what the digest says"
        if row.at < self.row.created - CLOCKS_MS:
            return "it was sent before its session was created"
        for part in (*getattr(command, "parts", ()), *getattr(command, "media", ())):
            await self._part(part, 0)
        return ""

    # ----------------------------------------------------------------------------------------------------------- catalogue

    def _catalogue(self, stored: Checkpoint) -> None:
        row = self.row
        expected = {
            "version": stored.version,
            "session_id": stored.session_id,
            "root": stored.root,
            "agent": stored.agent,
            "owner": stored.identity.owner,
            "title": stored.title,
            "labels": stored.labels,
            "created": stored.created,
            "parent": None if self.forked is None else self.forked.session,
            "parent_kind": None if self.forked is None else "fork",
        }
        if stored.parent is not None:
            expected |= {"parent": stored.parent.session, "parent_kind": "child"}
            if row.session_id != ids.child_session(stored.parent.session, stored.parent.operation):
                self.found("sessions", 0, "its id is not that of the child of its parent's operation")
        for name, value in expected.items():
            if getattr(row, name) != value:
                self.found("sessions", 0, f"{name} is {getattr(row, name)!r}, but should be {value!r}")
        if row.fence < self.fence:
            self.found("sessions", 0, f"the fence is {row.fence}, but {self.fence} was used")
        for what in self._holding(stored):
            self.found("sessions", 0, what)

    def _holding(self, stored: Checkpoint) -> Iterator[str]:
        row = self.row
        if row.holder is not None:
            if row.status != "running":
                yield f"the status is {row.status}, but somebody holds it"
            low, high = max(self.catalogued, self.latest_arrival_at), max(stored.at, self.latest_arrival_at)
        else:
            status, _ = parked(stored, self.pending, row.updated)
            # A session whose checkpoint could not be read is halted by this column alone.
            if row.status not in (status, "halted") and not (row.status == "stuck" and row.claims >= STUCK_CLAIMS):
                yield f"the status is {row.status}, but should be {status}"
            low = max(stored.at, self.latest_arrival_at)
            # Halting by this column alone writes no entry.
            high = max(low, row.updated) if row.status == "halted" and not stored.halted else low
            # Parking as stuck is one more claim, and writes no entry.
            if not 0 <= row.claims <= self.recoveries + (self.recoveries >= STUCK_CLAIMS - 1):
                yield f"{row.claims} claims without progress are counted, but {self.recoveries} are in the journal"
            if row.status in ("idle", "waiting", "queued"):
                yield from self._waking(stored)
            elif row.status == "archived" and ((row.wake_at is not None and not stored.errands) or self.pending):
                yield "it is archived, and somebody is to look at it"
            elif row.status == "halted" and row.wake_at is not None:
                yield "it is halted, and somebody is to look at it"
        if self.fold is not None and not low <= row.updated <= high:
            yield f"updated is {row.updated}, but should be {high}"

    def _waking(self, stored: Checkpoint) -> Iterator[str]:
        """When somebody must look: never, at the first deadline, or for what waits in the inbox."""
        row = self.row
        deadlines = [*stored.turn.deadlines] if stored.turn is not None else []
        moments = [item.at if item.not_before is None else item.not_before for item in self.pending]
        if stored.errands or (row.status == "queued" and stored.turn is not None):
            moments.append(row.updated)
            if rests := backing_off(stored, row.updated):
                moments.append(rests)
        since = min([*moments, *deadlines], default=None)
        if since is not None and row.wake_at is not None and since <= row.wake_at <= self.now + FAULT_PAUSE_MS:
            # Letting go after a failure writes no entry that says when: whoever did has somebody look at once, or after that pause.
            return
        exact = {min(deadlines)} if deadlines and row.status == "waiting" else {None}
        if row.status == "waiting" and row.wake_at in exact:
            # Whoever applied a command since then said so: what waits in the inbox can't begin before the answer.
            return
        if moments:
            exact = {min([*moments, *deadlines])}
            if any(item.not_before is None for item in self.pending) or stored.turn is not None or stored.errands:
                # The store's own clock said when the submission came, and it never goes back.
                low, high = min(moments) - SLACK_MS, max([*moments, *deadlines, row.updated]) + SLACK_MS
                if row.wake_at is None or not low <= row.wake_at <= high:
                    yield f"wake_at is {row.wake_at}, which nothing explains"
                return
            # A session that was made by a submission for later is looked at once, at first.
            exact.add(row.created)
        if row.wake_at not in exact:
            yield f"wake_at is {row.wake_at}, which nothing explains"

    async def _share(self) -> None:
        """What the running turn holds of its owner's pool is what it says that it drew and used."""
        if self.fold is None or not isinstance(self.store, KeepsPools):
            return
        held = await self._read("shares", self.store.share(self.row.no), None)
        turn, owner = self.fold.turn, self.fold.identity.owner
        allowance = None if turn is None else turn.allowance
        pool = await self._read("pools", self.store.pool(owner), None) if allowance is not None and owner else None
        there = pool is not None and allowance is not None and pool.id == allowance.pool
        if held is None:
            if there and self.budgets.drew and self.row.status != "halted":
                self.found("shares", 0, "its turn drew from the owner's pool, and it holds nothing of it")
            return
        if turn is None or allowance is None:
            self.found("shares", 0, "it holds something of its owner's pool, and no turn drew that")
            return
        drawn, used = drawn_and_spent(turn, allowance)
        # Once the pool is gone or another, nothing states what is used of it any more.
        expected = Share(owner=owner, pool=allowance.pool, drawn=drawn, used=used if there else held.used)
        if held != expected:
            self.found("shares", 0, "what it holds of its owner's pool is not what its turn drew and used")

    async def _cursors(self) -> None:
        if isinstance(self.store, Auditable):
            for consumer, seq in await self._read("cursors", self.store.cursors(self.row.no), []):
                if not 0 <= seq <= self.row.version:
                    self.found("cursors", seq, f"{consumer!r} stands behind version {self.row.version}")


def _stands_for(stored: StoredPart, data: bytes) -> bool:
    """Whether bytes are the part that another stands for."""
    try:
        part = decode_part(data)
        return canonical.encode(part) == data and media_of(part) == stored.media
    except msgspec.MsgspecError:
        return False
