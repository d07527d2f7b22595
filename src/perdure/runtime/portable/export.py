"""Writing: sessions that stand still, row by row, whole or not at all."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, BinaryIO

import msgspec

from ...core import checkpoint as checkpoints
from ...core.errors import SessionBusy, SessionNotFound, StoreCorrupt, UsageError
from ...core.journal import Sealed
from ...core.phase import phase
from ...store.base import InboxRow, SessionRow, Store
from ..batch import TRIES
from ..keeping import Exported, Target
from ..verify import verify
from .lines import (
    FORMAT,
    LINE_LIMIT,
    PIECE,
    BlobLine,
    EffectLine,
    EndLine,
    EntryLine,
    Header,
    Line,
    PieceLine,
    SessionLine,
    SubmissionLine,
    UniqueLine,
    raw_of,
)

__all__ = ["export", "rows_of"]

PAGE = 64

READER_SECONDS = 0.05
"""How often it is looked whether somebody reads a pipe."""

DIGEST = re.compile(rb"[0-9a-f]{64}")


class Writer:
    """Lines on their way into a file, hashed and counted."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.counts = dict.fromkeys((EntryLine, SubmissionLine, EffectLine, BlobLine), 0)

    def put(self, line: Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        if len(data) > LINE_LIMIT:
            raise StoreCorrupt(f"a row has {len(data)} bytes, more than it can have", hint="run `perdure verify`")
        self._hash.update(data)
        self._file.write(data)
        if type(line) in self.counts:
            self.counts[type(line)] += 1

    def end(self) -> None:
        counts = self.counts
        self.put(
            EndLine(submissions=counts[SubmissionLine], effects=counts[EffectLine], blobs=counts[BlobLine], digest=self._hash.hexdigest())
        )


async def export(store: Store, heads: Callable[[], Awaitable[list[SessionRow]]], target: Target) -> Exported:
    """Write sessions into a file. A path is replaced whole or not at all, and where it leads to what is no file (``/dev/stdout``), that is
    written to; a stream gets everything or nothing.

    Raises `SessionBusy` while somebody works on one of them, `StoreCorrupt` if one is damaged, and what reading them raises.
    """
    if (device := await _device(target)) is not None:
        with device:
            return await export(store, heads, device)
    stream, place = (None, _place(target)) if isinstance(target, str | os.PathLike) else (target, "")
    directory = os.path.dirname(place) if place else None
    handle, name = tempfile.mkstemp(prefix=".perdure-export-", dir=directory)
    try:
        with os.fdopen(handle, "w+b") as file:
            exported = await _consistent(store, heads, file)
            file.flush()
            os.fsync(file.fileno())
            if stream is not None:
                file.seek(0)
                await asyncio.to_thread(shutil.copyfileobj, file, stream, PIECE)
        if place:
            os.replace(name, place)
            name = ""
    finally:
        if name:
            os.unlink(name)
    return exported


async def _device(target: Target) -> BinaryIO | None:
    """What a path leads to that is no file, such as a pipe: it is written to, since no file may take its place.

    A pipe opens once somebody reads it. No thread waits for that, since nobody could cancel it.
    """
    if not isinstance(target, str | os.PathLike):
        return None
    try:
        mode = os.stat(target).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    while True:
        try:
            handle = os.open(target, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(mode):
                raise
        await asyncio.sleep(READER_SECONDS)
    os.set_blocking(handle, True)
    return os.fdopen(handle, "wb")


def _place(target: str | os.PathLike[str]) -> str:
    """The file that a path means: a link to it stays one."""
    return os.path.realpath(target)


async def _consistent(store: Store, heads: Callable[[], Awaitable[list[SessionRow]]], file: BinaryIO) -> Exported:
    for _ in range(TRIES):
        rows = await heads()
        for row in rows:
            _check_still(row)
            await _check_whole(store, row)
        file.seek(0)
        file.truncate()
        writer = Writer(file)
        await _write(store, rows, writer)
        if await heads() == rows:
            counts = writer.counts
            return Exported(
                sessions=tuple(row.session_id for row in rows),
                entries=counts[EntryLine],
                submissions=counts[SubmissionLine],
                effects=counts[EffectLine],
                blobs=counts[BlobLine],
            )
    raise SessionBusy("the session changes while it is written", hint="archive it first, or try again")


def _check_still(row: SessionRow) -> None:
    """A session can be carried away only while nothing of it is under way: an attempt would go on under another key elsewhere."""
    checkpoint = checkpoints.decode(row.checkpoint)
    turn = checkpoint.turn
    begun = turn is not None and any(item.attempt and item.status != "ended" for item in turn.operations)
    begun = begun or bool(checkpoint.errands or checkpoint.background)
    if row.holder is not None or begun or phase(checkpoint) not in ("idle", "waiting", "archived", "halted"):
        raise SessionBusy(f"{row.session_id!r} is being worked on", hint="wait for its turn's end, interrupt it, or archive it")


async def _check_whole(store: Store, row: SessionRow) -> None:
    """No import would take what is damaged, and whoever exports it may be about to delete it here."""
    async for problem in verify(store, row.session_id):
        raise StoreCorrupt(
            f"the session {row.session_id!r} is damaged at {problem.where} {problem.seq}: {problem.what}",
            hint="`perdure verify` lists all of it; restore the session from a backup first",
        )


async def _write(store: Store, rows: list[SessionRow], writer: Writer) -> None:
    writer.put(Header(format=FORMAT, store=store.store_id, sessions=len(rows), entries=sum(row.version for row in rows)))
    needed: dict[tuple[str, str], None] = {}
    for row in rows:
        held = set(await store.blobs(row.root))
        values = {name: getattr(row, name) for name in SessionLine.__struct_fields__ if name != "checkpoint"}
        writer.put(SessionLine(**values, checkpoint=msgspec.Raw(row.checkpoint)))
        async for entry in _pages(partial(_entries_page, store, row.no)):
            _need(needed, row.root, held, entry.body)
            raw = raw_of(entry.body)
            salt = None if entry.salt is None else entry.salt.hex()
            digest, chain = entry.body_digest.hex(), entry.chain.hex()
            facts = {"seq": entry.seq, "number": entry.number, "kind": entry.kind, "at": entry.at}
            writer.put(EntryLine(**facts, salt=salt, body_digest=digest, chain=chain, body=raw))
        async for item in _pages(partial(_submissions_page, store, row.no)):
            _need(needed, row.root, held, item.body)
            columns = msgspec.structs.asdict(item)
            writer.put(SubmissionLine(**{**columns, "body": raw_of(item.body)}))
        for effect in await store.effects(row.no):
            writer.put(EffectLine(effect_key=base64.b64encode(effect.effect_key).decode(), seq=effect.seq, state=effect.state))
        for taken in await store.uniques(row.no):
            writer.put(UniqueLine(key=taken.key, operation=taken.operation, state=taken.state, seq=taken.seq))
    for root, digest in needed:
        blob = await store.blob(root, digest)
        if blob is None:
            raise SessionBusy("the session's content changes while it is written", hint="try again")
        writer.put(BlobLine(root=root, digest=digest, media_type=blob.media_type, size=len(blob.data)))
        for start in range(0, len(blob.data), PIECE):
            writer.put(PieceLine(data=base64.b64encode(blob.data[start : start + PIECE]).decode()))
    writer.end()


def _need(needed: dict[tuple[str, str], None], root: str, held: set[str], body: bytes | None) -> None:
    """Content is referred to by its digest, in whatever field; the tree may hold more that is not this session's."""
    for found in DIGEST.findall(body or b""):
        if (digest := found.decode()) in held:
            needed[root, digest] = None


async def _pages(fetch: Callable[[Any], Awaitable[list[Any]]]) -> AsyncIterator[Any]:
    last: Any = None
    while page := await fetch(last):
        for row in page:
            yield row
        last = page[-1]


async def _entries_page(store: Store, no: int, last: Sealed | None) -> list[Sealed]:
    return await store.entries(no, after=last.seq if last is not None else 0, limit=PAGE)


async def _submissions_page(store: Store, no: int, last: InboxRow | None) -> list[InboxRow]:
    return await store.submissions(no, after=last.submission_id if last is not None else "", limit=PAGE)


async def rows_of(store: Store, session_id: str, *, tree: bool) -> list[SessionRow]:
    """The sessions of a file. Raises `SessionNotFound`, and `UsageError` for a fork without its tree."""
    head = await store.load(session_id)
    if head is None:
        raise SessionNotFound(f"there is no session {session_id!r}", hint="`perdure sessions` lists them")
    if tree:
        return [row for row in await store.tree(head.row.root) if row.status != "deleted"]
    if head.row.parent is not None:
        raise UsageError(f"{session_id!r} is part of a tree, and its beginning is another's", hint="export the tree: tree=True")
    return [head.row]
