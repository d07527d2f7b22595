"""A store whose large content stands in a blob store outside of its database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import msgspec

from ..core.errors import ContentElsewhere, StoreCorrupt, StoreError, UsageError
from .audit import Auditable
from .base import (
    Adopted,
    Adoption,
    Commit,
    CommitAnswer,
    Committed,
    Conflict,
    Created,
    IdTaken,
    NewSession,
    NoSession,
    OutsideBlob,
    ParentRedacted,
    Send,
    SendAnswer,
    Sent,
    Store,
    StoredBlob,
)
from .blobs import BlobStore, Kept
from .passing import PassingStore

__all__ = ["GRACE", "THRESHOLD", "Swept", "WithBlobs"]

T = TypeVar("T")
AnyBlob: TypeAlias = StoredBlob | OutsideBlob

THRESHOLD = 64 * 1024
"""Content of more bytes than this stands outside (bytes)."""

GRACE = 3600.0
"""How long content that nothing refers to is left alone by a sweep (seconds)."""

_log = logging.getLogger("perdure.store")


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep removed: content that nothing refers to, its bytes, and what was left half done. ``pinned`` could not go yet."""

    removed: int = 0
    size: int = 0
    pinned: int = 0
    half_done: int = 0


class WithBlobs(PassingStore):
    """A store, with content of more than ``threshold`` bytes in ``blobs``; `perdure.open(…, blobs=…)` makes one.

    Only what a transactional tool returns stands in the database whatever its size: it comes to be inside a transaction, in which nobody
    may wait for another disk.

    The bytes are durable and read back before the commit that refers to them begins, and pinned until it is decided. So a crash, a
    refusal or a lost answer leaves at most content that nobody refers to, which `sweep` removes; never a reference to nothing. What a
    deletion or a redaction takes out of the database goes from the blob store at once, or, if that fails, with the next sweep.
    """

    def __init__(self, inner: Store, blobs: BlobStore, *, threshold: int = THRESHOLD) -> None:
        if type(threshold) is not int or threshold < 0:
            raise UsageError(f"threshold={threshold!r} is no number of bytes", hint="content of more bytes stands outside")
        super().__init__(inner)
        self.outside_store = blobs
        self._threshold = threshold
        self._placed = False
        self._under_way: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        await self.inner.open()
        try:
            await self._look()
        except BaseException:
            await self.inner.close()
            raise

    async def close(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)
        await self.inner.close()

    async def _look(self) -> bool:
        """Whether there is content outside yet. Raises `UsageError` if it stands elsewhere than here; reading makes nothing."""
        if not self._placed:
            place = await self.inner.place()
            await self.outside_store.open(self.inner.store_id, place)
            self._placed = bool(place)
        return self._placed

    async def _take_place(self) -> None:
        """The first content of a database decides where all of it stands."""
        if not await self._look():
            place = await self.inner.place(await self.outside_store.found(self.inner.store_id))
            await self.outside_store.open(self.inner.store_id, place)
            self._placed = True

    # ------------------------------------------------------------------------------------------------------------- reading

    async def blob(self, root: str, digest: str) -> StoredBlob | None:
        try:
            return await self.inner.blob(root, digest)
        except ContentElsewhere as there:
            size, media_type = there.facts["size"], there.facts["media_type"]
        await self._look()
        data = await self.outside_store.get(digest)
        if data is None:
            raise StoreCorrupt(f"the content {digest} is missing from the blob store", hint="restore it, or send the same bytes again")
        if len(data) != size:
            raise StoreCorrupt(f"the content {digest} has {len(data)} bytes where {size} are noted", hint="run `perdure verify`")
        return StoredBlob(digest=digest, media_type=media_type, data=data)

    # ------------------------------------------------------------------------------------------------------------- writing

    async def put_blob(self, root: str, blob: AnyBlob) -> bool:
        if not self._is_large(blob):
            return await self.inner.put_blob(root, blob)

        async def put() -> bool:
            async with self._ingested((blob,)) as [there]:
                kept = await self.inner.put_blob(root, there)
            if not kept:
                await self._drop(await self._seen([blob.digest]))
            return kept

        return await self._to_its_end(put())

    async def commit(self, commit: Commit) -> CommitAnswer:
        if not commit.erased and not any(map(self._is_large, commit.blobs)):
            return await self.inner.commit(commit)

        async def apply() -> CommitAnswer:
            erased = await self._seen(commit.erased)
            async with self._ingested(commit.blobs) as blobs:
                answer = await self.inner.commit(msgspec.structs.replace(commit, blobs=tuple(blobs)))
            await self._drop(erased if isinstance(answer, Committed) else await self._seen_large(commit.blobs))
            return answer

        return await self._to_its_end(apply())

    async def send(self, send: Send) -> SendAnswer:
        new = () if send.create is None else send.create.blobs
        if not any(map(self._is_large, (*send.blobs, *new))):
            return await self.inner.send(send)

        async def apply() -> SendAnswer:
            if (known := await self._known(send)) is not None:
                return known
            async with self._ingested(send.blobs) as blobs, self._ingested(new) as created:
                create = None if send.create is None else msgspec.structs.replace(send.create, blobs=tuple(created))
                answer = await self.inner.send(msgspec.structs.replace(send, blobs=tuple(blobs), create=create))
            if not isinstance(answer, Sent) or answer.duplicate:
                await self._drop(await self._seen_large((*send.blobs, *new)))
            return answer

        return await self._to_its_end(apply())

    async def _known(self, send: Send) -> SendAnswer | None:
        """The answer to a submission that was sent before: nothing new is stored for it, and what it brought once is made whole again."""
        head = await self.inner.load(send.session_id)
        if head is None or send.owner not in (None, head.row.owner):
            return None
        row = await self.inner.submission(head.row.no, send.submission_id)
        if row is None:
            return None
        if row.digest != send.digest:
            return Conflict(row)
        held = set(await self.inner.blobs(head.row.root)) & await self.inner.outside([blob.digest for blob in send.blobs])
        async with self._ingested([blob for blob in send.blobs if blob.digest in held]):
            return Sent(no=head.row.no, row=row, duplicate=True, created=False)

    async def create(self, session_id: str, new: NewSession, *, at: int) -> Created | IdTaken | NoSession | ParentRedacted:
        if not any(map(self._is_large, new.blobs)):
            return await self.inner.create(session_id, new, at=at)

        async def apply() -> Created | IdTaken | NoSession | ParentRedacted:
            async with self._ingested(new.blobs) as blobs:
                answer = await self.inner.create(session_id, msgspec.structs.replace(new, blobs=tuple(blobs)), at=at)
            if not isinstance(answer, Created):
                await self._drop(await self._seen_large(new.blobs))
            return answer

        return await self._to_its_end(apply())

    async def adopt(self, sessions: Sequence[Adoption]) -> Adopted | IdTaken:
        async def apply() -> Adopted | IdTaken:
            brought: list[AnyBlob] = []
            async with AsyncExitStack() as pins:
                for given in sessions:
                    blobs = iter(given.blobs())
                    while (blob := await asyncio.to_thread(next, blobs, None)) is not None:
                        if self._is_large(blob):
                            brought += await pins.enter_async_context(self._ingested((blob,)))
                answer = await self.inner.adopt([msgspec.structs.replace(given, blobs=self._referring(given.blobs)) for given in sessions])
            if not isinstance(answer, Adopted):
                await self._drop(await self._seen([blob.digest for blob in brought]))
            return answer

        return await self._to_its_end(apply())

    def _referring(self, blobs: Callable[[], Iterable[AnyBlob]]) -> Callable[[], Iterable[AnyBlob]]:
        return lambda: map(self._reference, blobs())

    async def delete(
        self, no: int, *, keep: int = 0, receipts: Sequence[int] = (), erased: Sequence[str] = (), tree: int | None = None
    ) -> bool:
        async def apply() -> bool:
            rows = await self.inner.heads(after=no - 1, limit=1) if isinstance(self.inner, Auditable) else []
            before = await self._seen(await self.inner.blobs(rows[0].root) if rows and rows[0].no == no else erased)
            done = await self.inner.delete(no, keep=keep, receipts=receipts, erased=erased, tree=tree)
            await self._drop(before)
            return done

        return await self._to_its_end(apply())

    async def vacuum(self) -> None:
        """As the inner store's, and a sweep without grace: what nothing refers to, and nobody is about to, is gone when this returns."""
        await self.inner.vacuum()
        await self.sweep(grace=0)

    async def sweep(self, *, grace: float = GRACE) -> Swept:
        """Remove content that nothing refers to, if it was last put at least ``grace`` seconds ago and nobody pins it.

        It can't come between an ingestion and its commit: both keep it out, the age, and the pin for as long as the commit takes.
        """
        if not await self._look():
            return Swept()
        removed = size = pinned = 0
        after = ""
        while page := await self.outside_store.list(after=after, older_than=grace):
            after = page[-1].digest
            held = await self.inner.outside([kept.digest for kept in page])
            for kept in page:
                if kept.digest in held:
                    continue
                if await self.outside_store.delete(kept):
                    removed, size = removed + 1, size + kept.size
                else:
                    pinned += 1
        return Swept(removed=removed, size=size, pinned=pinned, half_done=await self.outside_store.tidy())

    # ------------------------------------------------------------------------------------------------------------- ingesting

    def _is_large(self, blob: AnyBlob) -> bool:
        return isinstance(blob, StoredBlob) and len(blob.data) > self._threshold

    def _reference(self, blob: AnyBlob) -> AnyBlob:
        if isinstance(blob, StoredBlob) and self._is_large(blob):
            return OutsideBlob(digest=blob.digest, media_type=blob.media_type, size=len(blob.data))
        return blob

    @asynccontextmanager
    async def _ingested(self, blobs: Iterable[AnyBlob]) -> AsyncIterator[list[AnyBlob]]:
        """Content as the database takes it: what is large is durable outside, and pinned until this is left."""
        async with AsyncExitStack() as pins:
            for blob in blobs:
                if isinstance(blob, StoredBlob) and self._is_large(blob):
                    await self._take_place()
                    await pins.enter_async_context(self.outside_store.pin(blob.digest))
                    await self.outside_store.put(blob.digest, blob.data)
            yield [self._reference(blob) for blob in blobs]

    async def _to_its_end(self, work: Awaitable[T]) -> T:
        """Cancelling the caller ends neither what began nor its pins."""
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        # Its error is the caller's, if there still is one.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(task)

    # -------------------------------------------------------------------------------------------------------------- removing

    async def _seen_large(self, blobs: Iterable[AnyBlob]) -> list[Kept]:
        return await self._seen([blob.digest for blob in blobs if self._is_large(blob)])

    async def _seen(self, digests: Iterable[str]) -> list[Kept]:
        """What stands outside of these, as it is now: what is put again after this is not removed."""
        try:
            found = [await self.outside_store.has(digest) for digest in dict.fromkeys(digests)]
        except StoreError as error:
            _log.warning("content may stay in the blob store until the next sweep: %s", error)
            return []
        return [kept for kept in found if kept is not None]

    async def _drop(self, seen: list[Kept]) -> None:
        """Remove what nothing refers to any more. What was decided stays decided: if this fails, the next sweep does it."""
        if not seen:
            return
        try:
            held = await self.inner.outside([kept.digest for kept in seen])
            for kept in seen:
                if kept.digest not in held and not await self.outside_store.delete(kept):
                    _log.info("the content %s… stays in the blob store until the next sweep: somebody pins it", kept.digest[:12])
        except StoreError as error:
            _log.warning("content stays in the blob store until the next sweep: %s", error)
