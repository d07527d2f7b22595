"""A store in memory: the same promises as any other, but for surviving the process.

It runs no thread and never waits, so that a run over it is the same every time. `MemoryStore.peer` gives a second handle on the same
content: two runtimes in one loop, each with a handle of its own, stand to each other as two processes do.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice, takewhile
from typing import Any, TypeVar

import msgspec

from ..core import canonical
from ..core.errors import StoreClosed, StoreCorrupt, UsageError
from ..core.journal import GENESIS, Sealed
from ..core.records import Limits, Pool
from . import rules
from .base import (
    Adopted,
    Adoption,
    AlreadyTaken,
    AlreadyThere,
    Catalogue,
    Commit,
    CommitAnswer,
    Committed,
    Conflict,
    Created,
    EffectRow,
    Held,
    IdTaken,
    InboxMoved,
    InboxRow,
    Loaded,
    News,
    NewSession,
    NoSession,
    OutsideBlob,
    ParentRedacted,
    QueueIsFull,
    Run,
    Runner,
    Send,
    SendAnswer,
    Sent,
    SessionQuery,
    SessionRow,
    Stale,
    StoredBlob,
    Unique,
    UniqueRow,
    UniqueState,
)
from .figures import ACTIVE, COUNTED, Figures
from .pools import OwnersPool, PoolShort, Share, changed, released, settled
from .scanning import hand_over

T = TypeVar("T")

__all__ = ["MemoryStore"]

_replace = msgspec.structs.replace


class _Session:
    """Everything that is stored of one session."""

    def __init__(self, row: SessionRow) -> None:
        self.row = row
        self.journal: list[Sealed] = []
        self.inbox: dict[str, InboxRow] = {}
        self.pending: dict[str, None] = {}
        self.effects: dict[tuple[bytes, int], EffectRow] = {}
        self.cursors: dict[str, int] = {}
        self.share: Share | None = None

    def head(self) -> rules.Head:
        row = self.row
        return rules.Head(row.root, row.version, row.fence, row.holder, row.claims, row.inbox_head, row.status)


class _Content:
    """What all handles of one store share."""

    def __init__(self, store_id: str, secret: bytes) -> None:
        self.store_id = store_id
        self.secret = secret
        self.by_id: dict[str, _Session] = {}
        self.by_no: dict[int, _Session] = {}
        self.blobs: dict[str, dict[str, StoredBlob | OutsideBlob]] = {}
        self.runners: dict[str, Runner] = {}
        self.owners: dict[str, MemoryStore] = {}
        self.listeners: dict[object, tuple[MemoryStore, asyncio.AbstractEventLoop, Callable[[int | None], None]]] = {}
        self.now = 0
        self.uniques: dict[str, tuple[int, Unique]] = {}
        self.tables: Any = None
        self.pools: dict[str, Pool] = {}
        self.place = ""


class MemoryStore:
    """Sessions in this process's memory. What runs within a commit gets an `apsw.Connection` to an SQLite database in memory, which lives
    as long as the content: what works there works in a file."""

    def __init__(self, clock: rules.Clock | None = None, *, store_id: str | None = None) -> None:
        # A given id makes a simulation repeatable, keys and tokens included; a store of one's own should be as hard to guess as any.
        secret = secrets.token_bytes(32) if store_id is None else hashlib.sha256(store_id.encode()).digest()
        self._content = _Content(store_id or secrets.token_hex(16), secret)
        self._clock = clock or rules.wall_clock
        self._users = 0

    def peer(self, clock: rules.Clock | None = None) -> MemoryStore:
        """Another handle on the same content, as another process would have."""
        other = MemoryStore(clock or self._clock)
        other._content = self._content
        return other

    @property
    def store_id(self) -> str:
        return self._content.store_id

    @property
    def secret(self) -> bytes:
        return self._content.secret

    async def place(self, place: str = "") -> str:
        self._content.place = self._content.place or place
        return self._content.place

    async def open(self) -> None:
        self._users += 1

    async def close(self) -> None:
        if self._users > 1:
            self._users -= 1
        else:
            self.crash()

    def crash(self) -> None:
        """Let go as a killed process does: nothing is released, and everybody sees at once that its runners are dead."""
        self._users = 0
        owners = self._content.owners
        for runner in [runner for runner, owner in owners.items() if owner is self]:
            del owners[runner]
        listeners = self._content.listeners
        for token in [token for token, (owner, _, _) in listeners.items() if owner is self]:
            del listeners[token]

    async def now(self) -> int:
        return self._time()

    async def load(self, session_id: str, *, hidden: bool = False) -> Loaded | None:
        now = self._time()
        session = self._content.by_id.get(session_id)
        if session is None or (session.row.status == "deleted" and not hidden):
            return None
        row = session.row
        return Loaded(
            row=row,
            chain=session.journal[-1].chain if session.journal else GENESIS,
            number=session.journal[-1].number if session.journal else 0,
            holder_alive=row.holder is not None and self._alive(row.holder),
            now=now,
            pool=self._content.pools.get(row.owner),
        )

    async def buried(self, session_id: str) -> bool:
        self._time()
        session = self._content.by_id.get(session_id)
        return session is not None and session.row.status == "deleted"

    async def commit(self, commit: Commit) -> CommitAnswer:
        self._time()
        rules.check_commit(commit)
        session = self._content.by_no.get(commit.no)
        head = session.head() if session else None
        refused = rules.judge(commit, head, self._alive)
        if refused is not None:
            return refused
        assert session is not None
        assert head is not None
        for arriving in commit.received:
            if arriving.submission_id in session.inbox:
                return AlreadyThere(session.inbox[arriving.submission_id])

        for key, operation in commit.taken:
            row = self._unique(key)
            if row is not None and (row.no, row.operation) != (commit.no, operation):
                return AlreadyTaken(row)
        if commit.within is None:
            return self._apply(session, head, commit)
        with self._tables() as (run, undo):
            answer = self._apply(session, head, rules.check_within(commit, commit.within(run)))
            if not isinstance(answer, Committed):
                undo()
            return answer

    def _apply(self, session: _Session, head: rules.Head, commit: Commit) -> Committed | PoolShort:
        # Everything that may fail comes first, on copies; what follows can only succeed.
        pools, share = self._content.pools, session.share
        owner, pool = session.row.owner, self._content.pools.get(session.row.owner)
        halts = commit.catalogue is not None and commit.catalogue.status == "halted"
        drew = settled(pool, share, commit.draws, releases=halts)
        if isinstance(drew, PoolShort):
            return drew
        pool, share = drew
        inbox = _inbox_after(session, commit)
        after = rules.after_commit(commit, head)
        session.share = share
        if pool is not None:
            pools[owner] = pool
        session.journal.extend(commit.entries)
        for seq in commit.redacted:
            session.journal[seq - 1] = _replace(session.journal[seq - 1], body=None, salt=None)
        for submission_id, row_after in inbox.items():
            _put(session, submission_id, row_after)
        for effect in commit.effects:
            session.effects[effect.effect_key, effect.seq] = effect
        for key, operation in commit.taken:
            self._content.uniques.setdefault(key, (commit.no, Unique(key=key, operation=operation)))
        for operation, state, seq in commit.decided:
            self._decide(commit.no, operation, state, seq)
        self._keep(head.root, commit.blobs)
        for digest in commit.erased:
            self._erase(head.root, digest)
        row = _replace(
            session.row,
            version=after.version,
            fence=after.fence,
            holder=after.holder,
            claims=after.claims,
            inbox_head=after.inbox_head,
            checkpoint=commit.checkpoint if commit.entries and commit.checkpoint is not None else session.row.checkpoint,
        )
        session.row = row if commit.catalogue is None else _listed(row, commit.catalogue, commit.at)
        self._tell(commit.no)
        return Committed(after.version, after.fence, after.inbox_head)

    async def send(self, send: Send) -> SendAnswer:
        now = self._time()
        for blob in send.blobs:
            rules.check_blob(blob)
        session = self._content.by_id.get(send.session_id)
        created = session is None
        if session is None:
            if (new := rules.beginning(send)) is None:
                return NoSession()
            rules.check_new(new)
            if (refused := self._no_parent(new)) is not None:
                return refused
            session = self._create(send.session_id, new, send.at)
        elif rules.is_strange(send, session.row):
            return NoSession()
        elif session.row.status == "deleted":
            return NoSession(deleted=True)
        elif (known := session.inbox.get(send.submission_id)) is not None:
            if known.digest != send.digest:
                return Conflict(known)
            return Sent(no=session.row.no, row=known, duplicate=True, created=False)
        elif session.row.status == "archived":
            return NoSession(archived=True)
        elif session.row.status == "halted" and not send.patient:
            return NoSession(halted=True)
        elif len(session.pending) >= rules.most_waiting(send):
            return QueueIsFull(len(session.pending))
        row = session.row
        arrived = rules.arrival(send, row.inbox_head)
        _put(session, send.submission_id, arrived)
        self._keep(row.root, send.blobs)
        session.row = _replace(
            row,
            inbox_head=arrived.arrival,
            wake_at=rules.woken(row, send, now),
            status="queued" if row.status == "idle" else row.status,
            updated=max(row.updated, send.at),
        )
        self._tell(row.no)
        return Sent(no=row.no, row=arrived, duplicate=False, created=created)

    async def create(self, session_id: str, new: NewSession, *, at: int) -> Created | IdTaken | NoSession | ParentRedacted:
        self._time()
        rules.check_new(new)
        known = self._content.by_id.get(session_id)
        if known is not None:
            return IdTaken(deleted=known.row.status == "deleted")
        if (refused := self._no_parent(new)) is not None:
            return refused
        if new.parent is not None and (read := new.parent_version) is not None:
            since = takewhile(lambda item: item.seq > read, reversed(self._content.by_id[new.parent].journal))
            if any(item.kind == "redacted" for item in since):
                return ParentRedacted()
        session = self._create(session_id, new, at)
        self._tell(session.row.no)
        return Created(session.row.no)

    def _no_parent(self, new: NewSession) -> NoSession | None:
        """The refusal where the parent that a new session names isn't there."""
        parent = self._content.by_id.get(new.parent) if new.parent is not None else None
        if new.parent is not None and (parent is None or parent.row.status == "deleted"):
            return NoSession(deleted=parent is not None)
        return None

    async def adopt(self, sessions: Sequence[Adoption]) -> Adopted | IdTaken:
        self._time()
        rules.check_adoptions(sessions)
        made = []
        blobs: list[tuple[str, StoredBlob | OutsideBlob]] = []
        for number, given in enumerate(sessions, len(self._content.by_no) + 1):
            known = self._content.by_id.get(given.row.session_id)
            if known is not None:
                return IdTaken(deleted=known.row.status == "deleted")
            session = _Session(_replace(given.row, no=number, holder=None))
            session.journal.extend(rules.whole(given.row.version, given.entries()))
            for row in given.submissions():
                session.inbox[row.submission_id] = row
            for row in sorted(session.inbox.values(), key=lambda row: row.arrival):
                _put(session, row.submission_id, row)
            for effect in given.effects():
                session.effects[effect.effect_key, effect.seq] = effect
            for blob in given.blobs():
                rules.check_blob(blob)
                blobs.append((given.row.root, blob))
            made.append(session)
        for root, blob in blobs:
            self._keep(root, (blob,))
        for session, given in zip(made, sessions, strict=True):
            for taken in given.uniques():
                self._content.uniques.setdefault(taken.key, (session.row.no, taken))
        for session in made:
            self._content.by_id[session.row.session_id] = self._content.by_no[session.row.no] = session
        self._tell(None)
        return Adopted(tuple(session.row.no for session in made))

    async def tree(self, root: str) -> list[SessionRow]:
        self._time()
        return [session.row for _, session in sorted(self._content.by_no.items()) if session.row.root == root]

    async def claim(self, no: int, runner: str, *, force: bool = False) -> Committed | Held | NoSession:
        self._time()
        session = self._content.by_no.get(no)
        if session is None or session.row.status == "deleted":
            return NoSession(deleted=session is not None)
        row = session.row
        if row.holder is not None and not force and self._alive(row.holder):
            return Held(row.holder)
        session.row = _replace(row, holder=runner, fence=row.fence + 1, claims=row.claims + (row.holder is not None))
        self._tell(no)
        return Committed(row.version, row.fence + 1, row.inbox_head)

    async def release(
        self, no: int, runner: str, fence: int, catalogue: Catalogue, inbox_head: int, *, at: int
    ) -> Committed | Stale | InboxMoved:
        self._time()
        session = self._content.by_no.get(no)
        if session is None:
            return Stale(0, 0, None)
        row = session.row
        if (row.holder, row.fence) != (runner, fence):
            return Stale(row.version, row.fence, row.holder)
        if row.inbox_head != inbox_head:
            return InboxMoved(row.inbox_head)
        session.row = _listed(_replace(row, holder=None), catalogue, at)
        self._tell(no)
        return Committed(row.version, row.fence, row.inbox_head)

    async def heartbeat(self, runner: Runner, lease_ms: int) -> int:
        expires = self._time() + lease_ms
        known = self._content.runners.get(runner.id)
        started = known.started if known else runner.started
        self._content.runners[runner.id] = _replace(runner, started=started, expires=expires, alive=True)
        self._content.owners[runner.id] = self
        return expires

    async def runners(self) -> list[Runner]:
        self._time()
        return [_replace(runner, alive=self._alive(name)) for name, runner in sorted(self._content.runners.items())]

    async def retire(self, runner: str) -> None:
        self._time()
        self._content.runners.pop(runner, None)
        self._content.owners.pop(runner, None)
        self._tell(None)

    async def runnable(self, *, limit: int, agents: Sequence[str] | None = None, left: bool = False) -> list[str]:
        now = self._time()
        due: list[tuple[bool, int, int, str]] = []
        for no, session in self._content.by_no.items():
            row = session.row
            if agents is not None and row.agent not in agents:
                continue
            if row.holder is not None:
                if not self._alive(row.holder):
                    due.append((False, row.updated if row.wake_at is None else row.wake_at, no, row.session_id))
            elif row.wake_at is not None and row.wake_at <= now and not left:
                due.append((True, row.wake_at, no, row.session_id))
        return [session_id for *_, session_id in sorted(due)[:limit]]

    async def figures(self) -> Figures:
        now = self._time()
        sessions = [*self._content.by_no.values()]
        rows = [session.row for session in sessions]
        due = [row.wake_at for row in rows if row.holder is None and row.wake_at is not None and row.wake_at <= now]
        pending = [session.inbox[name] for session in sessions for name in session.pending]
        return Figures(
            sessions={status: min(COUNTED, sum(row.status == status for row in rows)) for status in ACTIVE},
            due=min(COUNTED, len(due)),
            due_since=min(due, default=None),
            left=min(COUNTED, sum(row.holder is not None and not self._alive(row.holder) for row in rows)),
            pending=min(COUNTED, len(pending)),
            pending_since=min((row.at if row.not_before is None else row.not_before for row in pending), default=None),
            uncertain=min(COUNTED, sum(effect.state == "uncertain" for session in sessions for effect in session.effects.values())),
            now=now,
        )

    async def next_wake(self, *, after: int = 0) -> int | None:
        self._time()
        rows = (session.row for session in self._content.by_no.values())
        return min((row.wake_at for row in rows if row.holder is None and row.wake_at is not None and row.wake_at > after), default=None)

    async def inbox(self, no: int) -> list[InboxRow]:
        self._time()
        session = self._content.by_no.get(no)
        return [session.inbox[submission_id] for submission_id in session.pending] if session else []

    async def submission(self, no: int, submission_id: str) -> InboxRow | None:
        self._time()
        session = self._content.by_no.get(no)
        return session.inbox.get(submission_id) if session else None

    async def entries(
        self,
        no: int,
        *,
        after: int = 0,
        before: int | None = None,
        kinds: Iterable[str] | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Sealed]:
        self._time()
        session = self._content.by_no.get(no)
        if session is None:
            return []
        if session.row.status == "deleted":
            rows = [row for row in session.journal if after < row.seq and (before is None or row.seq < before)]
        else:
            # Entry n stands at n - 1.
            rows = session.journal[max(0, after) : len(session.journal) if before is None else max(0, before - 1)]
        wanted = None if kinds is None else set(kinds)
        chosen = (row for row in (reversed(rows) if newest_first else rows) if wanted is None or row.kind in wanted)
        return list(islice(chosen, limit))

    async def scan(
        self,
        no: int,
        take: Callable[[Iterable[Sealed]], T],
        spans: Sequence[tuple[int, int]],
        *,
        kinds: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> T:
        wanted = None if kinds is None else list(kinds)
        read = [await self.entries(no, after=after, before=before, kinds=wanted) for after, before in spans]
        return await hand_over([*islice(chain.from_iterable(read), limit)], take)

    async def seek(self, no: int, numbers: Sequence[int]) -> list[int | None]:
        self._time()
        session = self._content.by_no.get(no)
        journal = session.journal if session else []
        places = [bisect_left(journal, number, key=lambda row: row.number) for number in numbers]
        return [journal[place].seq if place < len(journal) else None for place in places]

    async def effects(self, no: int, *, key: bytes | None = None, state: str | None = None, after: int = 0) -> list[EffectRow]:
        self._time()
        session = self._content.by_no.get(no)
        rows = session.effects.values() if session else ()
        return sorted(
            (row for row in rows if row.seq > after and row.effect_key.startswith(key or b"") and state in {None, row.state}),
            key=lambda row: (row.seq, row.effect_key),
        )

    async def unique(self, key: str) -> UniqueRow | None:
        self._time()
        return self._unique(key)

    async def uniques(self, no: int) -> list[UniqueRow]:
        self._time()
        found = [self._unique(key) for key, (owner, _) in self._content.uniques.items() if owner == no]
        return sorted([row for row in found if row is not None], key=lambda row: (row.operation, row.key))

    async def sessions(self, query: SessionQuery) -> list[SessionRow]:
        self._time()

        def place(row: SessionRow) -> tuple[int, int]:
            return (row.updated if query.order == "updated" else 0, row.no)

        before = None if query.before is None else (query.before[0] if query.order == "updated" else 0, query.before[1])
        rows = [session.row for session in self._content.by_no.values()]
        found = [row for row in rows if rules.matches(query, row) and (before is None or place(row) < before)]
        found.sort(key=place, reverse=True)
        return found[: max(0, query.limit)]

    async def blob(self, root: str, digest: str) -> StoredBlob | None:
        self._time()
        blob = self._content.blobs.get(root, {}).get(digest)
        if isinstance(blob, OutsideBlob):
            raise rules.elsewhere(digest, blob.media_type, blob.size)
        if blob is not None and canonical.digest(blob.data) != digest:
            raise StoreCorrupt(f"blob {digest} was altered", hint="run `perdure verify`")
        return blob

    async def outside(self, digests: Sequence[str]) -> set[str]:
        self._time()
        held = {digest for tree in self._content.blobs.values() for digest, blob in tree.items() if isinstance(blob, OutsideBlob)}
        return held.intersection(digests)

    async def put_blob(self, root: str, blob: StoredBlob | OutsideBlob) -> bool:
        self._time()
        rules.check_blob(blob)
        lives = any(session.row.root == root and session.row.status != "deleted" for session in self._content.by_no.values())
        if lives:
            self._keep(root, (blob,))
        return lives

    async def blobs(self, root: str) -> list[str]:
        self._time()
        return sorted(self._content.blobs.get(root, {}))

    async def cursor(self, no: int, consumer: str) -> int:
        self._time()
        session = self._content.by_no.get(no)
        return session.cursors.get(consumer, 0) if session else 0

    async def heads(self, *, after: int, limit: int) -> list[SessionRow]:
        self._time()
        return [session.row for no, session in sorted(self._content.by_no.items()) if no > after][:limit]

    async def strays(self, *, limit: int) -> list[int]:
        # Whatever is here hangs on its session.
        return []

    async def submissions(self, no: int, *, after: str, limit: int) -> list[InboxRow]:
        self._time()
        session = self._content.by_no.get(no)
        # By bytes, as SQLite compares text.
        ids = sorted(session.inbox, key=str.encode) if session else []
        return [session.inbox[name] for name in ids if name.encode() > after.encode()][:limit] if session else []

    async def cursors(self, no: int) -> list[tuple[str, int]]:
        self._time()
        session = self._content.by_no.get(no)
        return sorted(session.cursors.items()) if session else []

    async def ack(self, no: int, consumer: str, seq: int) -> int:
        self._time()
        session = self._content.by_no.get(no)
        if session is None or session.row.status == "deleted":
            return 0
        session.cursors[consumer] = max(seq, session.cursors.get(consumer, 0))
        return session.cursors[consumer]

    async def news(self, consumer: str, *, after: int = 0, limit: int, no: int | None = None) -> list[News]:
        self._time()
        found = []
        for number, session in sorted(self._content.by_no.items()):
            seq = session.cursors.get(consumer, 0)
            if number > after and no in {None, number} and session.row.status != "deleted" and session.row.version > seq:
                found.append(News(number, session.row.session_id, session.row.version, seq))
        return found[:limit]

    async def forget(self, consumer: str) -> None:
        self._time()
        for session in self._content.by_no.values():
            session.cursors.pop(consumer, None)

    async def delete(
        self, no: int, *, keep: int = 0, receipts: Sequence[int] = (), erased: Sequence[str] = (), tree: int | None = None
    ) -> bool:
        self._time()
        session = self._content.by_no.get(no)
        if session is None:
            return True
        row = session.row
        if tree is not None and tree != sum(other.row.root == row.root for other in self._content.by_no.values()):
            return False
        if row.status != "deleted":
            session.row = _replace(
                row, status="deleted", holder=None, fence=row.fence + 1, wake_at=None, title="", labels={}, checkpoint=b""
            )
        kept = set(receipts)
        session.journal[:] = [
            item for item in session.journal if item.seq <= keep or item.seq in kept or (keep and item.kind == "redacted")
        ]
        session.effects = {key: effect for key, effect in session.effects.items() if effect.seq <= keep or effect.seq in kept}
        session.cursors.clear()
        pool = self._content.pools.get(row.owner)
        if session.share is not None and pool is not None:
            self._content.pools[row.owner] = released(pool, session.share) or pool
        session.share = None
        for key, (owner, taken) in self._content.uniques.items():
            if owner == no and taken.state == "pending":
                self._content.uniques[key] = no, _replace(taken, state="uncertain")
        for submission_id, waiting in session.inbox.items():
            consumed = 0 if waiting.consumed_seq is None else waiting.consumed_seq
            session.inbox[submission_id] = _replace(waiting, body=None, consumed_seq=consumed)
        session.pending.clear()
        for digest in erased:
            self._erase(row.root, digest)
        if all(other.row.root != row.root or other.row.status == "deleted" for other in self._content.by_no.values()):
            self._content.blobs.pop(row.root, None)
        self._tell(no)
        return True

    async def free(self, no: int) -> int:
        self._time()
        session = self._content.by_no.get(no)
        if session is None or session.row.status != "deleted":
            return 0
        taken = [key for key, (owner, _) in self._content.uniques.items() if owner == no]
        for key in taken:
            del self._content.uniques[key]
        return len(taken)

    def changes(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        self._check()
        token = object()
        self._content.listeners[token] = (self, asyncio.get_running_loop(), listener)

        def stop() -> None:
            self._content.listeners.pop(token, None)

        return stop

    def _check(self) -> None:
        if not self._users:
            raise StoreClosed("the store is closed")

    def _time(self) -> int:
        self._check()
        self._content.now = max(self._content.now, self._clock())
        return self._content.now

    def _unique(self, key: str) -> UniqueRow | None:
        if key not in self._content.uniques:
            return None
        no, taken = self._content.uniques[key]
        row = self._content.by_no[no].row
        return UniqueRow(**msgspec.structs.asdict(taken), no=no, session_id=row.session_id, deleted=row.status == "deleted")

    def _decide(self, no: int, operation: str, state: UniqueState | None, seq: int) -> None:
        for key, (owner, taken) in list(self._content.uniques.items()):
            if (owner, taken.operation) == (no, operation):
                if state is None:
                    del self._content.uniques[key]
                else:
                    self._content.uniques[key] = no, _replace(taken, state=state, seq=seq)

    def _alive(self, runner: str) -> bool:
        row = self._content.runners.get(runner)
        return row is not None and row.expires > self._content.now and runner in self._content.owners

    def _create(self, session_id: str, new: NewSession, at: int) -> _Session:
        no = len(self._content.by_no) + 1
        listed = new.catalogue
        session = _Session(
            SessionRow(
                no=no,
                session_id=session_id,
                root=new.root,
                parent=new.parent,
                parent_kind=new.parent_kind,
                agent=listed.agent,
                version=new.entries[-1].seq,
                fence=0,
                holder=None,
                claims=0,
                inbox_head=0,
                wake_at=listed.wake_at,
                status=listed.status,
                owner=new.owner,
                title=listed.title,
                labels=dict(listed.labels),
                created=at,
                updated=at,
                checkpoint=new.checkpoint,
            )
        )
        session.journal.extend(new.entries)
        self._keep(new.root, new.blobs)
        self._content.by_id[session_id] = self._content.by_no[no] = session
        return session

    @contextmanager
    def _tables(self) -> Iterator[tuple[Run, Callable[[], None]]]:
        """A transaction on the users' tables, and what undoes it."""
        # Most runs have none, and need no database for them.
        import apsw

        from .sqlite.within import run_within

        if self._content.tables is None:
            self._content.tables = apsw.Connection(":memory:")
        connection = self._content.tables
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield partial(run_within, connection), lambda: connection.execute("ROLLBACK")
            if connection.in_transaction:
                connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _keep(self, root: str, blobs: Iterable[StoredBlob | OutsideBlob]) -> None:
        for blob in blobs:
            self._content.blobs.setdefault(root, {}).setdefault(blob.digest, blob)

    def _erase(self, root: str, digest: str) -> None:
        sought = digest.encode()
        for session in self._content.by_no.values():
            held = (*(row.body for row in session.journal), *(row.body for row in session.inbox.values()))
            if session.row.root == root and any(body is not None and sought in body for body in held):
                return
        self._content.blobs.get(root, {}).pop(digest, None)

    async def pool(self, owner: str) -> Pool | None:
        self._time()
        return self._content.pools.get(owner)

    async def pools(self, *, after: str, limit: int) -> list[OwnersPool]:
        self._time()
        found = [OwnersPool(owner=owner, pool=pool) for owner, pool in sorted(self._content.pools.items()) if owner > after]
        return found[:limit]

    async def share(self, no: int) -> Share | None:
        self._time()
        session = self._content.by_no.get(no)
        return None if session is None else session.share

    async def change_pool(self, owner: str, limits: Limits, *, fresh: str, add: bool) -> Pool:
        self._time()
        pool = self._content.pools[owner] = changed(self._content.pools.get(owner), limits, fresh=fresh, add=add)
        return pool

    async def remove_pool(self, owner: str) -> bool:
        self._time()
        return self._content.pools.pop(owner, None) is not None

    async def vacuum(self) -> None:
        self._time()

    def _tell(self, no: int | None) -> None:
        for token, (_, loop, _) in list(self._content.listeners.items()):
            loop.call_soon(self._notify, token, no)

    def _notify(self, token: object, no: int | None) -> None:
        # It may have ended since.
        known = self._content.listeners.get(token)
        if known is not None:
            known[2](no)


def _inbox_after(session: _Session, commit: Commit) -> dict[str, InboxRow | None]:
    """The inbox rows that the commit changes (``None``: gone)."""
    changed: dict[str, InboxRow | None] = {}
    head = session.row.inbox_head

    def row(submission_id: str, *, waiting: bool) -> InboxRow:
        found = changed[submission_id] if submission_id in changed else session.inbox.get(submission_id)
        if found is None or (waiting and found.consumed_seq is not None):
            raise UsageError(f"submission {submission_id!r} is not {'waiting' if waiting else 'there'}")
        return found

    for arriving in commit.received:
        head += 1
        changed[arriving.submission_id] = _replace(arriving, arrival=head, body=None)
    for edited in commit.edited:
        changed[edited.submission_id] = _replace(row(edited.submission_id, waiting=True), body=edited.body)
    for submission_id in commit.dropped:
        row(submission_id, waiting=True)
        changed[submission_id] = None
    for submission_id, seq in commit.consumed:
        changed[submission_id] = _replace(row(submission_id, waiting=True), consumed_seq=seq, body=None)
    for submission_id, seq in commit.settled:
        changed[submission_id] = _replace(row(submission_id, waiting=False), settled_seq=seq)
    return changed


def _put(session: _Session, submission_id: str, row: InboxRow | None) -> None:
    if row is None:
        del session.inbox[submission_id]
    else:
        session.inbox[submission_id] = row
    if row is not None and row.consumed_seq is None:
        session.pending[submission_id] = None
    else:
        session.pending.pop(submission_id, None)


def _listed(row: SessionRow, catalogue: Catalogue, at: int) -> SessionRow:
    return _replace(
        row,
        status=catalogue.status,
        wake_at=catalogue.wake_at,
        title=catalogue.title,
        labels=dict(catalogue.labels),
        agent=catalogue.agent,
        updated=max(row.updated, at),
    )
