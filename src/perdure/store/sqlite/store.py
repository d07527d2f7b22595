"""The store's face: what `Store` promises, handed to the writer's thread or to the readers'."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

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
from .database import Database
from .reads import Reader
from .writer import Writer
from .writes import (
    Ack,
    AdoptWrite,
    ChangePool,
    ClaimWrite,
    CommitWrite,
    CreateWrite,
    Delete,
    Forget,
    Free,
    Heartbeat,
    PutBlob,
    ReleaseWrite,
    RemovePool,
    Retire,
    SendWrite,
    TakePlace,
    Write,
)

__all__ = ["SQLiteStore"]

T = TypeVar("T")


class SQLiteStore:
    """Sessions in one SQLite file, shared by any number of processes of one machine.

    ``clock`` returns milliseconds; leases are measured by it. ``poll`` is how often, in seconds, somebody who listens to `changes` looks
    for other processes' commits. ``busy_timeout`` is how long, in seconds, another process may hold the database before a write is refused
    with `StoreBusy`: one that is stopped in the middle of a write, or a program that is not perdure.
    What runs within a commit gets the `apsw.Connection` of its transaction.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: rules.Clock | None = None,
        poll: float = 0.02,
        readers: int = 2,
        busy_timeout: float = 30.0,
        vfs: str | None = None,
    ) -> None:
        assert poll > 0
        assert readers > 0
        self._path = Path(path).absolute()
        self._clock = clock or rules.wall_clock
        self._poll = poll
        self._readers = readers
        self._busy_timeout = busy_timeout
        self._vfs = vfs
        self._now = 0
        self._pid = os.getpid()
        self._users = 0
        self._changing = asyncio.Lock()
        self._database: Database | None = None
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        # Empty until the store was opened, and not an error: `isinstance(store, Store)` reads the properties.
        self._known: tuple[str, bytes] = ("", b"")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners = Listeners(self._follow)

    @property
    def store_id(self) -> str:
        return self._known[0]

    @property
    def secret(self) -> bytes:
        return self._known[1]

    async def open(self) -> None:
        self._not_forked()
        if self._writer is not None and self._loop is not asyncio.get_running_loop():
            raise UsageError("the store is open in another event loop", hint="a `Store` serves one loop; open another one on the same file")
        async with self._changing:
            if self._writer is not None:
                self._users += 1
                return
            self._loop = asyncio.get_running_loop()
            database = Database(self._path, busy_timeout=self._busy_timeout, vfs=self._vfs)
            writer = Writer(database, self._loop, self._listeners.tell, self._poll)
            try:
                await writer.start()
            except asyncio.CancelledError:
                writer.abandon()
                raise
            self._database, self._writer, self._reader = database, writer, Reader(database, self._readers)
            self._known = database.store_id, database.secret
            self._users = 1

    async def close(self) -> None:
        if os.getpid() != self._pid:
            # The file and its locks are the parent's.
            return
        async with self._changing:
            writer, reader = self._writer, self._reader
            if writer is None or reader is None:
                return
            self._users -= 1
            if self._users:
                return
            self._writer = self._reader = self._database = None
            self._listeners.clear()
            await writer.stop(reader.shut)

    async def now(self) -> int:
        self._opened()
        return self._time()

    async def load(self, session_id: str, *, hidden: bool = False) -> Loaded | None:
        return await self._read(Reader.load, session_id, self._time(), hidden)

    async def buried(self, session_id: str) -> bool:
        return await self._read(Reader.buried, session_id)

    async def commit(self, commit: Commit) -> CommitAnswer:
        answer: CommitAnswer = await self._write(CommitWrite(commit))
        return answer

    async def send(self, send: Send) -> SendAnswer:
        answer: SendAnswer = await self._write(SendWrite(send))
        return answer

    async def create(self, session_id: str, new: NewSession, *, at: int) -> Created | IdTaken | NoSession | ParentRedacted:
        answer: Created | IdTaken | NoSession | ParentRedacted = await self._write(CreateWrite(session_id, new, at))
        return answer

    async def adopt(self, sessions: Sequence[Adoption]) -> Adopted | IdTaken:
        answer: Adopted | IdTaken = await self._write(AdoptWrite(sessions))
        return answer

    async def tree(self, root: str) -> list[SessionRow]:
        return await self._read(Reader.tree, root)

    async def claim(self, no: int, runner: str, *, force: bool = False) -> Committed | Held | NoSession:
        answer: Committed | Held | NoSession = await self._write(ClaimWrite(no, runner, force=force))
        return answer

    async def release(
        self, no: int, runner: str, fence: int, catalogue: Catalogue, inbox_head: int, *, at: int
    ) -> Committed | Stale | InboxMoved:
        answer: Committed | Stale | InboxMoved = await self._write(ReleaseWrite(no, runner, fence, catalogue, inbox_head, at))
        return answer

    async def heartbeat(self, runner: Runner, lease_ms: int) -> int:
        expires: int = await self._write(Heartbeat(runner, lease_ms))
        return expires

    async def runners(self) -> list[Runner]:
        return await self._read(Reader.runners, self._time())

    async def retire(self, runner: str) -> None:
        await self._write(Retire(runner))

    async def runnable(self, *, limit: int, agents: Sequence[str] | None = None, left: bool = False) -> list[str]:
        return await self._read(Reader.runnable, limit, None if agents is None else list(agents), left, self._time())

    async def figures(self) -> Figures:
        return await self._read(Reader.figures, self._time())

    async def next_wake(self, *, after: int = 0) -> int | None:
        return await self._read(Reader.next_wake, after)

    async def inbox(self, no: int) -> list[InboxRow]:
        return await self._read(Reader.inbox, no)

    async def submission(self, no: int, submission_id: str) -> InboxRow | None:
        return await self._read(Reader.submission, no, submission_id)

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
        return await self._read(Reader.entries, no, after, before, wanted, limit, newest_first)

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
        self._opened()
        assert self._reader is not None
        return await self._reader.scan(take, no, spans, wanted, limit)

    async def seek(self, no: int, numbers: Sequence[int]) -> list[int | None]:
        return await self._read(Reader.seek, no, numbers)

    async def effects(self, no: int, *, key: bytes | None = None, state: str | None = None, after: int = 0) -> list[EffectRow]:
        return await self._read(Reader.effects, no, key or b"", state, after)

    async def unique(self, key: str) -> UniqueRow | None:
        return await self._read(Reader.unique, key)

    async def uniques(self, no: int) -> list[UniqueRow]:
        return await self._read(Reader.uniques, no)

    async def sessions(self, query: SessionQuery) -> list[SessionRow]:
        return await self._read(Reader.sessions, query)

    async def blob(self, root: str, digest: str) -> StoredBlob | None:
        return await self._read(Reader.blob, root, digest)

    async def outside(self, digests: Sequence[str]) -> set[str]:
        return await self._read(Reader.outside, digests)

    async def put_blob(self, root: str, blob: StoredBlob | OutsideBlob) -> bool:
        kept: bool = await self._write(PutBlob(root, blob))
        return kept

    async def blobs(self, root: str) -> list[str]:
        return await self._read(Reader.blobs, root)

    async def place(self, place: str = "") -> str:
        known = await self._read(Reader.place)
        if known or not place:
            return known
        stands: str = await self._write(TakePlace(place))
        return stands

    async def cursor(self, no: int, consumer: str) -> int:
        return await self._read(Reader.cursor, no, consumer)

    async def heads(self, *, after: int, limit: int) -> list[SessionRow]:
        return await self._read(Reader.heads, after, limit)

    async def strays(self, *, limit: int) -> list[int]:
        return await self._read(Reader.strays, limit)

    async def submissions(self, no: int, *, after: str, limit: int) -> list[InboxRow]:
        return await self._read(Reader.submissions, no, after, limit)

    async def cursors(self, no: int) -> list[tuple[str, int]]:
        return await self._read(Reader.cursors, no)

    async def ack(self, no: int, consumer: str, seq: int) -> int:
        stands: int = await self._write(Ack(no, consumer, seq))
        return stands

    async def news(self, consumer: str, *, after: int = 0, limit: int, no: int | None = None) -> list[News]:
        return await self._read(Reader.news, consumer, after, limit, no)

    async def forget(self, consumer: str) -> None:
        await self._write(Forget(consumer))

    async def delete(
        self, no: int, *, keep: int = 0, receipts: Sequence[int] = (), erased: Sequence[str] = (), tree: int | None = None
    ) -> bool:
        return await self._write(Delete(no, keep, receipts, erased, tree)) is not False

    async def free(self, no: int) -> int:
        return int(await self._write(Free(no)))

    async def pool(self, owner: str) -> Pool | None:
        return await self._read(Reader.pool, owner)

    async def pools(self, *, after: str, limit: int) -> list[OwnersPool]:
        return await self._read(Reader.pools, after, limit)

    async def share(self, no: int) -> Share | None:
        return await self._read(Reader.share, no)

    async def change_pool(self, owner: str, limits: Limits, *, fresh: str, add: bool) -> Pool:
        pool: Pool = await self._write(ChangePool(owner, limits, fresh, add=add))
        return pool

    async def remove_pool(self, owner: str) -> bool:
        there: bool = await self._write(RemovePool(owner))
        return there

    async def vacuum(self) -> None:
        if self._opened().read_only:
            raise StoreReadOnly(f"{str(self._path)!r} can only be read", hint="its file or its directory can't be written")
        assert self._writer is not None
        await self._writer.vacuum()

    def changes(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        self._opened()
        return self._listeners.add(listener)

    def _follow(self, following: bool) -> None:
        if self._writer is not None:
            self._writer.follow(following)

    def _not_forked(self) -> None:
        if os.getpid() != self._pid:
            raise StoreForked("the store was opened before this process was forked", hint="open a store only after the fork")

    def _opened(self) -> Database:
        self._not_forked()
        if self._database is None:
            raise StoreClosed("the store is not open", hint="await store.open() first")
        return self._database

    async def _read(self, read: Callable[..., T], *arguments: Any) -> T:
        self._opened()
        assert self._reader is not None
        return await self._reader.run(read, self._reader, *arguments)

    async def _write(self, write: Write) -> Any:
        if self._opened().read_only:
            raise StoreReadOnly(f"{str(self._path)!r} can only be read", hint="its file or its directory can't be written")
        assert self._writer is not None
        write.now = self._time()
        return await self._writer.put(write)

    def _time(self) -> int:
        self._now = max(self._now, self._clock())
        return self._now
