"""Taking in: verified in a store of its own, and taken over in one transaction, under its own id or another."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from ...core import checkpoint as checkpoints
from ...core import entries
from ...core.entries import Foreign, Redacted, SessionCreated
from ...core.errors import ImportRefused, SessionExists, StoreCorrupt, UsageError
from ...core.evolve import evolve
from ...core.journal import GENESIS, Sealed, body_digest, link, open_entry, seal
from ...store.base import Adopted, Adoption, Store
from ..keeping import Imported, Target
from ..names import check_id
from ..verify import verify
from .lines import (
    PIECE,
)
from .reading import File

__all__ = ["import_file", "take_in", "verified_file"]


async def import_file(store: Store, source: Target, session_id: str | None) -> Imported:
    """Take in a file: read through, verified in a store of its own, and taken over in one transaction, or not at all.

    Raises `ImportRefused`, `FormatUnknown`, `NewerRules`, `SessionExists`, and `UsageError` for an id that no session can have.
    """
    async with verified_file(source, session_id, store) as found:
        return await take_in(store, found)


@asynccontextmanager
async def verified_file(source: Target, session_id: str | None, store: Store | None = None) -> AsyncIterator[list[Adoption]]:
    """What a file holds, read through and verified in a store of its own; its rows are read from the file as they are taken in.

    With ``store`` what stands there already is refused before the long work. Raises as `import_file` does.
    """
    if session_id is not None:
        check_id(session_id, "a session id")
    async with _opened(source) as file:
        read = File(file)
        await asyncio.to_thread(read.scan)
        if session_id is not None and (len(read.sections) != 1 or read.sections[0].row.parent is not None):
            raise UsageError("only a file with a single session, and no fork, can be imported under another id")
        if store is not None:
            for section in read.sections:
                wanted = section.row.session_id if session_id is None else session_id
                if await store.buried(wanted) or await store.load(wanted) is not None:
                    raise _exists(wanted)
        adoptions = [read.adoption(section) for section in read.sections]
        await _verify(adoptions)
        if session_id is not None and session_id != read.sections[0].row.session_id:
            adoptions = [await _renamed(adoptions[0], session_id)]
        yield adoptions


async def take_in(store: Store, found: list[Adoption]) -> Imported:
    """Take over what `verified_file` found, in one transaction. Raises `SessionExists`."""
    if not isinstance(await store.adopt(found), Adopted):
        raise _exists(found[0].row.session_id)
    return Imported(sessions=tuple(given.row.session_id for given in found), entries=sum(given.row.version for given in found))


def _exists(session_id: str) -> SessionExists:
    return SessionExists(f"there is, or was, a session {session_id!r}", hint="import it under another id: session_id=…")


@asynccontextmanager
async def _opened(source: Target) -> AsyncIterator[BinaryIO]:
    """The file, such that one can go back in it."""
    if isinstance(source, str | os.PathLike):
        file = await asyncio.to_thread(open, source, "rb")
        with file:
            yield file
    elif source.seekable():
        yield source
    else:
        with tempfile.TemporaryFile() as copy:
            await asyncio.to_thread(shutil.copyfileobj, source, copy, PIECE)
            yield copy


async def _verify(adoptions: list[Adoption]) -> None:
    """Whether it all holds together: as a store of its own, which is thrown away."""
    from ...store.sqlite import SQLiteStore

    with tempfile.TemporaryDirectory(prefix="perdure-import-", ignore_cleanup_errors=True) as directory:
        scratch = SQLiteStore(Path(directory) / "import.db")
        await scratch.open()
        try:
            try:
                await scratch.adopt(adoptions)
            except UsageError as error:
                raise ImportRefused(error.message, hint="nothing was imported; export it again") from error
            for given in adoptions:
                # Raises `NewerRules`, which is no damage.
                _readable(given)
            found = [str(problem) async for problem in verify(scratch)]
        finally:
            await scratch.close()
    if found:
        raise ImportRefused(f"the file is damaged: {found[0]}", hint="nothing was imported; export it again", problems=found[:100])


def _readable(given: Adoption) -> None:
    try:
        checkpoints.decode(given.row.checkpoint)
    except StoreCorrupt as error:
        raise ImportRefused(error.message, hint="nothing was imported; export it again") from error


async def _renamed(given: Adoption, session_id: str) -> Adoption:
    """The same session under another id: its entries say the same, but for the first, and have a chain of their own.

    The last one says where it comes from, with the chain that it had there.
    """
    row = given.row
    checkpoint = checkpoints.decode(row.checkpoint)
    here = msgspec.structs.replace(checkpoint, session_id=session_id, root=session_id)
    last = await asyncio.to_thread(_last, given)
    said = Foreign(source="perdure", session=row.session_id, head=last.chain.hex())
    foreign = msgspec.structs.replace(said, seq=row.version + 1, number=checkpoint.number, at=checkpoint.at)
    salt = secrets.token_bytes(16)

    def resealed() -> Iterator[Sealed]:
        chain = GENESIS
        for entry in given.entries():
            digest, body = entry.body_digest, entry.body
            if entry.seq == 1 and body is not None:
                created = open_entry(entry)
                assert isinstance(created, SessionCreated)
                body = entries.encode(msgspec.structs.replace(created, session_id=session_id, root=session_id))
            elif entry.kind == Redacted.kind:
                # What is left of a redacted first entry stands here.
                redacted = open_entry(entry)
                assert isinstance(redacted, Redacted)
                name = {"session_id": session_id, "root": session_id}
                rows = tuple(msgspec.structs.replace(item, body=item.body | name) if item.seq == 1 else item for item in redacted.rows)
                body = entries.encode(msgspec.structs.replace(redacted, rows=rows))
            if body is not None and body != entry.body:
                assert entry.salt is not None
                digest = body_digest(entry.salt, body)
            chain = link(chain, session_id, entry.seq, entry.number, entry.kind, entry.at, digest)
            yield Sealed(entry.seq, entry.number, entry.kind, entry.at, entry.salt, digest, body, chain)
        yield seal(foreign, chain=chain, session_id=session_id, salt=salt)

    renamed = msgspec.structs.replace(
        row,
        session_id=session_id,
        root=session_id,
        version=foreign.seq,
        checkpoint=checkpoints.encode(evolve(here, foreign)),
    )
    return msgspec.structs.replace(given, row=renamed, entries=resealed)


def _last(given: Adoption) -> Sealed:
    return deque(given.entries(), maxlen=1)[0]
