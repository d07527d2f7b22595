"""A store that hands everything on to another one: what does one thing differently begins here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..core.journal import Sealed
from .audit import Auditable
from .base import (
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
    Store,
    StoredBlob,
    UniqueRow,
)
from .figures import KeepsFigures
from .pools import KeepsPools
from .timekeeping import Timekeeper

T = TypeVar("T")

__all__ = ["PassingStore"]


class PassingStore:
    """Any store, as it is; ``inner`` does the work."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        if isinstance(inner, Auditable):
            # Only then, so that whoever asks whether it can be audited gets the inner store's answer.
            self.heads, self.strays, self.cursors = inner.heads, inner.strays, inner.cursors
        if isinstance(inner, KeepsFigures):
            self.figures = inner.figures
        if isinstance(inner, KeepsPools):
            self.pool, self.pools, self.share = inner.pool, inner.pools, inner.share
            self.change_pool, self.remove_pool = inner.change_pool, inner.remove_pool
        if isinstance(inner, Timekeeper):
            self.time = inner.time

    @property
    def store_id(self) -> str:
        return self.inner.store_id

    @property
    def secret(self) -> bytes:
        return self.inner.secret

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def place(self, place: str = "") -> str:
        return await self.inner.place(place)

    async def now(self) -> int:
        return await self.inner.now()

    async def load(self, session_id: str, *, hidden: bool = False) -> Loaded | None:
        return await self.inner.load(session_id, hidden=hidden)

    async def buried(self, session_id: str) -> bool:
        return await self.inner.buried(session_id)

    async def adopt(self, sessions: Sequence[Adoption]) -> Adopted | IdTaken:
        return await self.inner.adopt(sessions)

    async def tree(self, root: str) -> list[SessionRow]:
        return await self.inner.tree(root)

    async def submissions(self, no: int, *, after: str, limit: int) -> list[InboxRow]:
        return await self.inner.submissions(no, after=after, limit=limit)

    async def commit(self, commit: Commit) -> CommitAnswer:
        return await self.inner.commit(commit)

    async def send(self, send: Send) -> SendAnswer:
        return await self.inner.send(send)

    async def create(self, session_id: str, new: NewSession, *, at: int) -> Created | IdTaken | NoSession | ParentRedacted:
        return await self.inner.create(session_id, new, at=at)

    async def claim(self, no: int, runner: str, *, force: bool = False) -> Committed | Held | NoSession:
        return await self.inner.claim(no, runner, force=force)

    async def release(
        self, no: int, runner: str, fence: int, catalogue: Catalogue, inbox_head: int, *, at: int
    ) -> Committed | Stale | InboxMoved:
        return await self.inner.release(no, runner, fence, catalogue, inbox_head, at=at)

    async def heartbeat(self, runner: Runner, lease_ms: int) -> int:
        return await self.inner.heartbeat(runner, lease_ms)

    async def runners(self) -> list[Runner]:
        return await self.inner.runners()

    async def retire(self, runner: str) -> None:
        await self.inner.retire(runner)

    async def runnable(self, *, limit: int, agents: Sequence[str] | None = None, left: bool = False) -> list[str]:
        return await self.inner.runnable(limit=limit, agents=agents, left=left)

    async def next_wake(self, *, after: int = 0) -> int | None:
        return await self.inner.next_wake(after=after)

    async def inbox(self, no: int) -> list[InboxRow]:
        return await self.inner.inbox(no)

    async def submission(self, no: int, submission_id: str) -> InboxRow | None:
        return await self.inner.submission(no, submission_id)

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
        return await self.inner.entries(no, after=after, before=before, kinds=kinds, limit=limit, newest_first=newest_first)

    async def scan(
        self,
        no: int,
        take: Callable[[Iterable[Sealed]], T],
        spans: Sequence[tuple[int, int]],
        *,
        kinds: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> T:
        return await self.inner.scan(no, take, spans, kinds=kinds, limit=limit)

    async def seek(self, no: int, numbers: Sequence[int]) -> list[int | None]:
        return await self.inner.seek(no, numbers)

    async def effects(self, no: int, *, key: bytes | None = None, state: str | None = None, after: int = 0) -> list[EffectRow]:
        return await self.inner.effects(no, key=key, state=state, after=after)

    async def unique(self, key: str) -> UniqueRow | None:
        return await self.inner.unique(key)

    async def uniques(self, no: int) -> list[UniqueRow]:
        return await self.inner.uniques(no)

    async def sessions(self, query: SessionQuery) -> list[SessionRow]:
        return await self.inner.sessions(query)

    async def blob(self, root: str, digest: str) -> StoredBlob | None:
        return await self.inner.blob(root, digest)

    async def outside(self, digests: Sequence[str]) -> set[str]:
        return await self.inner.outside(digests)

    async def put_blob(self, root: str, blob: StoredBlob | OutsideBlob) -> bool:
        return await self.inner.put_blob(root, blob)

    async def blobs(self, root: str) -> list[str]:
        return await self.inner.blobs(root)

    async def cursor(self, no: int, consumer: str) -> int:
        return await self.inner.cursor(no, consumer)

    async def ack(self, no: int, consumer: str, seq: int) -> int:
        return await self.inner.ack(no, consumer, seq)

    async def news(self, consumer: str, *, after: int = 0, limit: int, no: int | None = None) -> list[News]:
        return await self.inner.news(consumer, after=after, limit=limit, no=no)

    async def forget(self, consumer: str) -> None:
        await self.inner.forget(consumer)

    async def delete(
        self, no: int, *, keep: int = 0, receipts: Sequence[int] = (), erased: Sequence[str] = (), tree: int | None = None
    ) -> bool:
        return await self.inner.delete(no, keep=keep, receipts=receipts, erased=erased, tree=tree)

    async def free(self, no: int) -> int:
        return await self.inner.free(no)

    async def vacuum(self) -> None:
        await self.inner.vacuum()

    def changes(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        return self.inner.changes(listener)
