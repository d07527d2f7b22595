"""Content outside the database: a place for large bytes, by their digest."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from ..core import canonical
from ..core.errors import StoreBroken, StoreCorrupt, StoreError, StoreFull, UsageError
from .durable import sync

__all__ = ["BlobStore", "DirectoryBlobs", "Kept"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_HALF_DONE = ".put-"
_OWNER = "store"


class Kept(msgspec.Struct, frozen=True):
    """Content that is there. ``stamp`` changes with every put of it, and means nothing else."""

    digest: str
    size: int
    stamp: int


@runtime_checkable
class BlobStore(Protocol):
    """Bytes by their SHA-256 (hex), for one database; safe for concurrent use by tasks and processes.

    Content comes first, and then the commit that refers to it: whoever ingests holds a pin from before the put until the commit is
    decided, so that `delete` can't come between. A crash leaves content that nobody refers to, and never a reference to nothing.
    Every call may raise a `StoreError`.
    """

    async def open(self, store_id: str, place: str) -> None:
        """Look whether it is the place that the database of this id knows, if it knows one. Nothing is made.

        Raises `UsageError` if it belongs to another database, or is another place.
        """

    async def found(self, store_id: str) -> str:
        """Make it usable for the database of this id, which it belongs to from then on; returns what it is called for ever. Idempotent.

        Comes before the first put. Raises `UsageError` if it is another database's.
        """

    def pin(self, digest: str) -> AbstractAsyncContextManager[None]:
        """While it is entered, by whichever process, nobody deletes this content. It ends with its process, however that dies."""

    async def put(self, digest: str, data: bytes) -> None:
        """Keep bytes. Durable, and read back, when this returns; what was there and altered is there again. Idempotent.

        Raises `UsageError` if the bytes are not those of the digest.
        """

    async def get(self, digest: str) -> bytes | None:
        """The bytes, or ``None``. Raises `StoreCorrupt` if they are not those of the digest."""

    async def has(self, digest: str) -> Kept | None:
        """What is there under a digest, without reading it."""

    async def list(self, *, after: str = "", limit: int = 500, older_than: float = 0.0) -> Sequence[Kept]:
        """Content by digest, behind ``after``, that was last put at least so many seconds ago."""

    async def delete(self, kept: Kept) -> bool:
        """Remove content as it was seen. False: it is pinned, was put again since, or is not there."""

    async def tidy(self) -> int:
        """Remove what puts left half done when their processes died; how many there were."""


class DirectoryBlobs:
    """Content as files of a directory of a local disk: ``ab/ab12…``, mode 600 in directories of mode 700.

    A put writes a file of another name, syncs it, reads it back, renames it, and syncs its directory. Pins are file locks (``flock``) on
    the 256 directories, which the operating system releases with the process that holds them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).absolute()
        # However much is pinned, that is one open directory for each of the 256.
        self._pins: dict[str, tuple[int, int]] = {}
        self._counting = threading.Lock()

    @property
    def path(self) -> Path:
        """The directory."""
        return self._path

    async def open(self, store_id: str, place: str) -> None:
        await asyncio.to_thread(self._open, store_id, place)

    async def found(self, store_id: str) -> str:
        return await asyncio.to_thread(self._found, store_id)

    @asynccontextmanager
    async def pin(self, digest: str) -> AsyncIterator[None]:
        shard = _checked(digest)[:2]
        taking = asyncio.ensure_future(asyncio.to_thread(self._pin, shard))
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda taken: None if taken.cancelled() or taken.exception() else self._unpin(shard))
            raise
        try:
            yield
        finally:
            self._unpin(shard)

    async def put(self, digest: str, data: bytes) -> None:
        if canonical.digest(data) != _checked(digest):
            raise UsageError(f"the bytes are not those of {digest!r}", hint="the digest is the hex SHA-256 of the data")
        await asyncio.to_thread(self._put, digest, data)

    async def get(self, digest: str) -> bytes | None:
        return await asyncio.to_thread(self._get, _checked(digest))

    async def has(self, digest: str) -> Kept | None:
        return await asyncio.to_thread(self._has, _checked(digest))

    async def list(self, *, after: str = "", limit: int = 500, older_than: float = 0.0) -> Sequence[Kept]:
        return await asyncio.to_thread(self._list, after, limit, older_than)

    async def delete(self, kept: Kept) -> bool:
        _checked(kept.digest)
        return await asyncio.to_thread(self._delete, kept)

    async def tidy(self) -> int:
        return await asyncio.to_thread(self._tidy)

    # ------------------------------------------------------------------------------------------------------------- in threads

    def _at(self, step: str) -> None:
        """A put has come so far; tests that kill it look here."""

    def _open(self, store_id: str, place: str) -> None:
        owner, here = self._belongs()
        if owner not in ("", store_id):
            raise UsageError(
                f"the directory {str(self._path)!r} belongs to another database", hint="give every database a directory of its own"
            )
        if place and here != place:
            raise UsageError(
                f"the content of this database doesn't stand in {str(self._path)!r}",
                hint=f"name the directory that it stands in, or was moved to with its file {_OWNER!r}; without blobs= all else can be read",
            )

    def _found(self, store_id: str) -> str:
        with _told(f"the directory {str(self._path)!r} can't be used"):
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._belongs()[0]:
                written = self._path / f"{_HALF_DONE}{uuid.uuid4().hex}"
                about = f"{store_id} {uuid.uuid4().hex}"
                _write(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), about.encode())
                # Whoever is second finds what the first one wrote.
                with suppress(FileExistsError):
                    os.link(written, self._path / _OWNER)
                written.unlink()
                sync(self._path)
        self._open(store_id, "")
        return self._belongs()[1]

    def _belongs(self) -> tuple[str, str]:
        """The database that the directory belongs to, and what it is called; empty if it belongs to none yet."""
        with _told(f"the directory {str(self._path)!r} can't be used"):
            try:
                about = (self._path / _OWNER).read_text(errors="replace")
            except FileNotFoundError:
                return "", ""
        owner, _, place = about.partition(" ")
        return owner, place

    def _shard(self, shard: str, *, create: bool = False) -> int | None:
        """A directory of files, opened."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        place = self._path / shard
        try:
            return os.open(place, flags)
        except FileNotFoundError:
            if not create:
                return None
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
        sync(self._path)
        return os.open(place, flags)

    def _locked(self, shard: str) -> int:
        """A directory of files that nobody deletes from until this is closed."""
        with _told("content can't be pinned"):
            directory = self._shard(shard, create=True)
            assert directory is not None
            try:
                fcntl.flock(directory, fcntl.LOCK_SH)
            except BaseException:
                os.close(directory)
                raise
            return directory

    def _pin(self, shard: str) -> None:
        directory = self._locked(shard)
        with self._counting:
            kept, count = self._pins.get(shard, (directory, 0))
            self._pins[shard] = kept, count + 1
        if kept != directory:
            os.close(directory)

    def _unpin(self, shard: str) -> None:
        with self._counting:
            directory, count = self._pins.pop(shard)
            if count > 1:
                self._pins[shard] = directory, count - 1
                return
        os.close(directory)

    def _put(self, digest: str, data: bytes) -> None:
        with _told(f"the content {digest[:12]}… can't be kept"):
            directory = self._locked(digest[:2])
            try:
                if self._touch(directory, digest, data):
                    return
                name = f"{_HALF_DONE}{uuid.uuid4().hex}"
                self._at("begun")
                try:
                    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
                    _write(file, data, lambda: self._at("written"))
                    with os.fdopen(_reading(name, directory), "rb") as back:
                        if back.read() != data:
                            raise StoreBroken(f"the content {digest[:12]}… reads otherwise than it was written", hint="check the disk")
                    self._at("synced")
                    os.rename(name, digest, src_dir_fd=directory, dst_dir_fd=directory)
                except BaseException:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=directory)
                    raise
                self._at("renamed")
                os.fsync(directory)
                self._at("durable")
            finally:
                os.close(directory)

    def _touch(self, directory: int, digest: str, data: bytes) -> bool:
        """Whether the content is there already, whole; then it is as good as put now."""
        try:
            file = _reading(digest, directory)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                return False
            raise
        with os.fdopen(file, "rb") as there:
            if there.read() != data:
                return False
            os.utime(there.fileno())
            # Another process may have renamed it and died before it was durable.
            os.fsync(there.fileno())
        os.fsync(directory)
        return True

    def _get(self, digest: str) -> bytes | None:
        with _told(f"the content {digest[:12]}… can't be read"), self._directory(digest[:2]) as directory:
            if directory is None:
                return None
            try:
                file = _reading(digest, directory)
            except FileNotFoundError:
                return None
            with os.fdopen(file, "rb") as there:
                data = there.read()
        if canonical.digest(data) != digest:
            raise StoreCorrupt(f"the content {digest} was altered", hint="restore its file, or send the same bytes again")
        return data

    def _has(self, digest: str) -> Kept | None:
        with _told(f"the content {digest[:12]}… can't be found"), self._directory(digest[:2]) as directory:
            return None if directory is None else _kept(digest, directory)

    def _list(self, after: str, limit: int, older_than: float) -> Sequence[Kept]:
        found = []
        before = time.time_ns() - round(older_than * 1_000_000_000)
        with _told("the content can't be listed"):
            for shard in sorted(name for name in os.listdir(self._path) if len(name) == 2 and name >= after[:2]):
                with self._directory(shard) as directory:
                    names = [] if directory is None else sorted(os.listdir(directory))
                    for name in names:
                        kept = _kept(name, directory) if directory is not None and name > after and _DIGEST.fullmatch(name) else None
                        if kept is not None and kept.stamp <= before:
                            found.append(kept)
                            if len(found) == limit:
                                return found
        return found

    def _delete(self, kept: Kept) -> bool:
        with _told(f"the content {kept.digest[:12]}… can't be removed"), self._directory(kept.digest[:2]) as directory:
            if directory is None or not _alone(directory) or _kept(kept.digest, directory) != kept:
                return False
            os.unlink(kept.digest, dir_fd=directory)
            os.fsync(directory)
            return True

    def _tidy(self) -> int:
        removed = 0
        with _told("what was left half done can't be removed"):
            for shard in [name for name in os.listdir(self._path) if len(name) == 2]:
                with self._directory(shard) as directory:
                    if directory is None:
                        continue
                    left = [name for name in os.listdir(directory) if name.startswith(_HALF_DONE)]
                    # Whoever is at work has the lock.
                    if left and _alone(directory):
                        for name in left:
                            with suppress(FileNotFoundError):
                                os.unlink(name, dir_fd=directory)
                                removed += 1
                        os.fsync(directory)
        return removed

    @contextmanager
    def _directory(self, shard: str) -> Iterator[int | None]:
        directory = self._shard(shard)
        try:
            yield directory
        finally:
            if directory is not None:
                os.close(directory)


def _checked(digest: str) -> str:
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise UsageError(f"{digest!r:.80} is no digest", hint="the hex SHA-256 of the data, in lower case")
    return digest


def _alone(directory: int) -> bool:
    """Whether nobody pins anything in a directory; then nobody can until it is closed."""
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _reading(name: str, directory: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)


def _kept(digest: str, directory: int) -> Kept | None:
    try:
        about = os.stat(digest, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Kept(digest, about.st_size, about.st_mtime_ns)


def _write(file: int, data: bytes, written: Callable[[], None] = lambda: None) -> None:
    with os.fdopen(file, "wb") as opened:
        opened.write(data)
        opened.flush()
        written()
        os.fsync(opened.fileno())


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Errors of the disk as the store's own."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreFull(f"{what}: {error.strerror}", hint="free some space on the disk of the blob store") from error
        raise StoreBroken(f"{what}: {error.strerror or error}", hint="check the directory and its disk") from error
