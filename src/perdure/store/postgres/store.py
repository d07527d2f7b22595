"""The store's face: what `Store` promises, handed to the writer, or to the threads that read and write alone."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ...core.errors import StoreClosed, StoreForked, StoreReadOnly, UsageError
from ...core.journal import Sealed
from ...core.records import Limits, Pool
from .. import rules
from ..base import (
    Adopted,
    Adoption,
    Catalogue,
    Commit,
    CommitAnswer,
    Committed,
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
    Runner,
    Send,
    SendAnswer,
    SessionQuery,
    SessionRow,
    Stale,
    StoredBlob,
    UniqueRow,
)
from ..figures import Figures
from ..listeners import Listeners
from ..pools import OwnersPool, Share
from ..scanning import hand_over
from . import alone, reads, shapes
from .address import parse
from .database import Database
from .lanes import Lanes
from .line import Line, Lost
from .notices import Notices
from .writer import Writer

__all__ = ["PostgresStore"]

T = TypeVar("T")

POLL, POLL_ALONE = 2.0, 0.25
"""How often somebody who listens looks for changes, with notices and without them (seconds)."""

VACUUM_TIMEOUT = 600.0
"""How long writing the tables anew may take, with the wait for those who read (seconds)."""


class PostgresStore:
    """Sessions in one schema of a PostgreSQL database, shared by any number of processes of any number of machines.

    ``url``: ``postgresql://user@host/database``, and behind ``?`` whatever libpq knows, and ``schema=`` (perdure) for where the tables
    are, ``listen=no`` behind a pooler in transaction mode. The schema is made if it isn't there, and `UsageError` raised instead without
    ``make``. Time is the database's; ``clock`` (milliseconds) stands in for it in tests. ``poll`` is how often, in seconds, somebody who
    listens to `changes` looks whether a notice was lost (2, and 0.25 with ``listen=no``): all that is followed here is read again then, if
    anybody has committed anything. ``timeout`` is how long a statement may take before it is cancelled, ``patience`` how long a lost
    connection is tried again before whoever waits is told (both in seconds). It holds one connection for writes, one for heartbeats, one
    for notices, and up to ``readers`` and two more.
    What runs within a commit gets the `psycopg.Connection` of its transaction.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: rules.Clock | None = None,
        poll: float | None = None,
        readers: int = 2,
        timeout: float = 10.0,
        patience: float = 30.0,
        make: bool = True,
    ) -> None:
        assert poll is None or poll > 0
        assert readers > 0
        assert timeout > 0
        self.address = parse(url)
        self._clock = clock
        self._poll = poll or (POLL if self.address.listen else POLL_ALONE)
        self._readers = readers
        self._timeout = timeout
        self._patience = patience
        self._make = make
        self._pid = os.getpid()
        self._users = 0
        self._changing = asyncio.Lock()
        self._database: Database | None = None
        self._last: Database | None = None
        self._writer: Writer
        self._reads: Lanes
        self._alone: Lanes
        self._pulse: Lanes
        self._notices: Notices
        # Empty until the store was opened, and not an error: `isinstance(store, Store)` reads the properties.
        self._known: tuple[str, bytes] = ("", b"")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners = Listeners(self._follow)
        self._runners: set[str] = set()

    @property
    def store_id(self) -> str:
        return self._known[0]

    @property
    def secret(self) -> bytes:
        return self._known[1]

    async def open(self) -> None:
        self._not_forked()
        if self._database is not None and self._loop is not asyncio.get_running_loop():
            raise UsageError("the store is open in another event loop", hint="a `Store` serves one loop; open another one on the same URL")
        async with self._changing:
            if self._database is not None:
                self._users += 1
                return
            self._loop = asyncio.get_running_loop()
            database = Database(self.address, timeout=self._timeout, patience=self._patience, clock=self._clock, make=self._make)
            opening = asyncio.ensure_future(asyncio.to_thread(database.open))
            try:
                line = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(lambda done: None if done.cancelled() or done.exception() else done.result().close())
                raise
            self._reads = Lanes(database, self._readers, "reader")
            self._alone = Lanes(database, 2, "alone")
            self._pulse = Lanes(database, 1, "pulse")
            self._notices = Notices(database, self._loop, self._listeners.tell, self._poll)
            self._writer = Writer(database, self._loop, self._changed, line)
            self._known = database.store_id, database.secret
            self._runners.clear()
            self._database = self._last = database
            self._users = 1

    async def close(self) -> None:
        if os.getpid() != self._pid:
            # The connections are the parent's.
            return
        # Whoever stops waiting for it leaves no connection open, and no lease to run out.
        await asyncio.shield(asyncio.ensure_future(self._close()))

    async def _close(self) -> None:
        async with self._changing:
            database = self._database
            if database is None:
                return
            self._users -= 1
            if self._users:
                return
            self._database = None
            self._listeners.clear()
            await self._writer.stop()
            if self._runners:
                # What they hold is free at once, as it is when a process ends on one machine. If that fails, their leases run out.
                names = sorted(self._runners)
                await asyncio.gather(
                    self._pulse.write(lambda line, _: alone.end_runners(line, database, names), "closing"), return_exceptions=True
                )
                self._notices.announce(None)
            await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        for lanes in (self._alone, self._reads, self._pulse):
            lanes.shut()
        self._notices.stop()

    async def now(self) -> int:
        return self._opened().now()

    def time(self) -> int:
        return rules.wall_clock() if self._last is None else self._last.now()

    async def load(self, session_id: str, *, hidden: bool = False) -> Loaded | None:
        database = self._opened()
        return await self._read(lambda line: reads.load(line, database, session_id, hidden))

    async def buried(self, session_id: str) -> bool:
        return await self._read(lambda line: reads.buried(line, session_id))

    async def commit(self, commit: Commit) -> CommitAnswer:
        rules.check_commit(commit)
        database = self._writable()
        if commit.within is None and not (commit.redacted or commit.erased or commit.taken):
            answer: CommitAnswer = await self._writer.put(commit)
            return answer
        # Somebody else's statements, a look through a whole tree, or a key that another session may be taking: nobody else's commit
        # waits for that.
        token = _token()
        within, made, losses = commit.within, list[Commit](), list[Lost]()
        if within is None:
            answer = await self._alone.write(lambda line, again: alone.commit(line, database, token, commit, again))
        else:
            answer = await self._alone.write(
                lambda line, again: alone.commit_within(line, database, token, commit, within, again, made, losses)
            )
        if isinstance(answer, Committed):
            self._changed(commit.no)
        return answer

    async def send(self, send: Send) -> SendAnswer:
        for blob in send.blobs:
            rules.check_blob(blob)
        if send.create is not None:
            rules.check_new(send.create)
        self._writable()
        answer: SendAnswer = await self._writer.put(send)
        return answer

    async def create(self, session_id: str, new: NewSession, *, at: int) -> Created | IdTaken | NoSession | ParentRedacted:
        rules.check_new(new)
        database = self._writable()
        answer = await self._alone.write(lambda line, again: alone.create(line, database, session_id, new, at, again))
        if isinstance(answer, Created):
            self._changed(answer.no)
        return answer

    async def adopt(self, sessions: Sequence[Adoption]) -> Adopted | IdTaken:
        rules.check_adoptions(sessions)
        database = self._writable()
        token = _token()
        answer = await self._alone.write(lambda line, again: alone.adopt(line, database, token, sessions, again))
        if isinstance(answer, Adopted):
            self._changed(None)
        return answer

    async def tree(self, root: str) -> list[SessionRow]:
        return await self._read(lambda line: reads.tree(line, root))

    async def heads(self, *, after: int, limit: int) -> list[SessionRow]:
        return await self._read(lambda line: reads.heads(line, after, limit))

    async def strays(self, *, limit: int) -> list[int]:
        return await self._read(lambda line: reads.strays(line, limit))

    async def submissions(self, no: int, *, after: str, limit: int) -> list[InboxRow]:
        return await self._read(lambda line: reads.submissions(line, no, after, limit))

    async def claim(self, no: int, runner: str, *, force: bool = False) -> Committed | Held | NoSession:
        database = self._writable()
        token = _token()
        answer = await self._alone.write(lambda line, _: alone.claim(line, database, token, no, runner, force))
        if isinstance(answer, Committed):
            self._changed(no)
        return answer

    async def release(
        self, no: int, runner: str, fence: int, catalogue: Catalogue, inbox_head: int, *, at: int
    ) -> Committed | Stale | InboxMoved:
        database = self._writable()
        token = _token()
        answer = await self._alone.write(lambda line, _: alone.release(line, database, token, no, runner, fence, catalogue, inbox_head, at))
        if isinstance(answer, Committed):
            self._changed(no)
        return answer

    async def heartbeat(self, runner: Runner, lease_ms: int) -> int:
        database = self._writable()
        self._runners.add(runner.id)
        return await self._pulse.write(lambda line, _: alone.heartbeat(line, database, runner, lease_ms))

    async def runners(self) -> list[Runner]:
        database = self._opened()
        return await self._read(lambda line: reads.runners(line, database))

    async def retire(self, runner: str) -> None:
        self._writable()
        self._runners.discard(runner)
        await self._pulse.write(lambda line, _: alone.retire(line, runner))
        self._changed(None)

    async def runnable(self, *, limit: int, agents: Sequence[str] | None = None, left: bool = False) -> list[str]:
        database = self._opened()
        return await self._read(lambda line: reads.runnable(line, database, limit, agents, left))

    async def figures(self) -> Figures:
        database = self._opened()
        return await self._read(lambda line: reads.figures(line, database))

    async def next_wake(self, *, after: int = 0) -> int | None:
        return await self._read(lambda line: reads.next_wake(line, after))

    async def inbox(self, no: int) -> list[InboxRow]:
        return await self._read(lambda line: reads.inbox(line, no))

    async def submission(self, no: int, submission_id: str) -> InboxRow | None:
        return await self._read(lambda line: reads.submission(line, no, submission_id))

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
        wanted = None if kinds is None else list(kinds)
        return await self._read(lambda line: reads.entries(line, no, after, before, wanted, limit, newest_first))

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
        rows = await self._read(lambda line: reads.spans(line, no, spans, wanted, limit))
        # Not in the thread that reads: after a lost connection it reads again.
        return await hand_over(rows, take)

    async def seek(self, no: int, numbers: Sequence[int]) -> list[int | None]:
        return await self._read(lambda line: reads.seek(line, no, numbers))

    async def effects(self, no: int, *, key: bytes | None = None, state: str | None = None, after: int = 0) -> list[EffectRow]:
        return await self._read(lambda line: reads.effects(line, no, key or b"", state, after))

    async def pool(self, owner: str) -> Pool | None:
        return await self._read(lambda line: reads.pool(line, owner))

    async def pools(self, *, after: str, limit: int) -> list[OwnersPool]:
        return await self._read(lambda line: reads.pools(line, after, limit))

    async def share(self, no: int) -> Share | None:
        return await self._read(lambda line: reads.share(line, no))

    async def change_pool(self, owner: str, limits: Limits, *, fresh: str, add: bool) -> Pool:
        database = self._writable()
        made = list[Pool]()
        return await self._alone.write(lambda line, again: alone.change_pool(line, database, owner, limits, fresh, add, again, made))

    async def remove_pool(self, owner: str) -> bool:
        self._writable()
        return await self._alone.write(lambda line, _: alone.remove_pool(line, owner))

    async def unique(self, key: str) -> UniqueRow | None:
        return await self._read(lambda line: next(map(shapes.unique, line.run("unique_one", key)), None))

    async def uniques(self, no: int) -> list[UniqueRow]:
        return await self._read(lambda line: [*map(shapes.unique, line.run("uniques", no))])

    async def sessions(self, query: SessionQuery) -> list[SessionRow]:
        return await self._read(lambda line: reads.sessions(line, query))

    async def blob(self, root: str, digest: str) -> StoredBlob | None:
        return await self._read(lambda line: reads.blob(line, root, digest))

    async def outside(self, digests: Sequence[str]) -> set[str]:
        return await self._read(lambda line: reads.outside(line, digests))

    async def put_blob(self, root: str, blob: StoredBlob | OutsideBlob) -> bool:
        rules.check_blob(blob)
        database = self._writable()
        return await self._alone.write(lambda line, _: alone.put_blob(line, database, root, blob))

    async def blobs(self, root: str) -> list[str]:
        return await self._read(lambda line: reads.blobs(line, root))

    async def place(self, place: str = "") -> str:
        known = await self._read(reads.place)
        if known or not place:
            return known
        self._writable()
        return await self._alone.write(lambda line, _: alone.take_place(line, place))

    async def cursor(self, no: int, consumer: str) -> int:
        return await self._read(lambda line: reads.cursor(line, no, consumer))

    async def cursors(self, no: int) -> list[tuple[str, int]]:
        return await self._read(lambda line: reads.cursors(line, no))

    async def ack(self, no: int, consumer: str, seq: int) -> int:
        self._writable()
        return await self._alone.write(lambda line, _: alone.ack(line, no, consumer, seq))

    async def news(self, consumer: str, *, after: int = 0, limit: int, no: int | None = None) -> list[News]:
        return await self._read(lambda line: reads.news(line, consumer, after, limit, no))

    async def forget(self, consumer: str) -> None:
        self._writable()
        await self._alone.write(lambda line, _: alone.forget(line, consumer))

    async def delete(
        self, no: int, *, keep: int = 0, receipts: Sequence[int] = (), erased: Sequence[str] = (), tree: int | None = None
    ) -> bool:
        self._writable()
        done = await self._alone.write(lambda line, _: alone.delete(line, no, keep, receipts, erased, tree))
        if done:
            self._changed(no)
        return done is not False

    async def free(self, no: int) -> int:
        self._writable()
        return await self._alone.write(lambda line, _: alone.free(line, no))

    async def vacuum(self) -> None:
        """As promised, and for as long as `VACUUM_TIMEOUT` it takes one of the connections of claims, forks and transactional commits."""
        self._writable()
        await self._alone.write(lambda line, _: alone.vacuum(line, VACUUM_TIMEOUT), once=True)

    def changes(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        self._opened()
        return self._listeners.add(listener)

    def _follow(self, following: bool) -> None:
        if self._database is not None:
            self._notices.follow(following)

    def _changed(self, no: int | None) -> None:
        """Something was written here: whoever listens here hears it now, and others a little later."""
        self._listeners.tell(no)
        if self._database is not None:
            self._notices.announce(no)

    def _not_forked(self) -> None:
        if os.getpid() != self._pid:
            raise StoreForked("the store was opened before this process was forked", hint="open a store only after the fork")

    def _opened(self) -> Database:
        self._not_forked()
        if self._database is None:
            raise StoreClosed("the store is not open", hint="await store.open() first")
        return self._database

    def _writable(self) -> Database:
        database = self._opened()
        if database.read_only:
            raise StoreReadOnly(f"{self.address.shown} can only be read", hint="it is a replica, or the role may not write")
        return database

    async def _read(self, read: Callable[[Line], T]) -> T:
        self._opened()
        return await self._reads.read(read)


def _token() -> int:
    """Names one change of a session, to know it again."""
    return secrets.randbits(62) + 1
