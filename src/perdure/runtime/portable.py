"""A session, or a tree of them, as one file: a line of JSON for every row, written in one go and verified before it is taken in.

The first line says what the file is and counts what follows; then come, for each session, its row, its entries with their chain, its
submissions and its effects; then the content by digest, in pieces; and a last line with the SHA-256 of all before it. Whatever the size,
only a line, and one content, is in memory at once, and no line is longer than `LINE_LIMIT`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec

from ..core import checkpoint as checkpoints
from ..core import entries
from ..core.entries import Foreign, SessionCreated
from ..core.errors import FormatUnknown, ImportRefused, SessionBusy, SessionExists, SessionNotFound, StoreCorrupt, UsageError
from ..core.evolve import evolve
from ..core.journal import GENESIS, Sealed, body_digest, link, open_entry, seal
from ..core.phase import phase
from ..store.base import Adopted, Adoption, EffectRow, InboxRow, SessionRow, SessionStatus, Store, StoredBlob, Unique, UniqueState
from .keeping import Exported, Imported, Target
from .verify import verify

__all__ = ["FORMAT", "LINE_LIMIT", "export", "import_file", "rows_of"]

FORMAT = 1

LINE_LIMIT = 24 * 1024 * 1024
"""The longest line (bytes): a reported result of 16 MiB that still waits is the longest row."""

PIECE = 1024 * 1024
"""How much content stands on one line (bytes)."""

PAGE = 64

ATTEMPTS = 5
"""How often a session that changes meanwhile is written again."""

DIGEST = re.compile(rb"[0-9a-f]{64}")


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """One line."""


class _Header(_Line, tag="perdure", frozen=True):
    format: int
    store: str
    sessions: int
    entries: int


class _Session(_Line, tag="session", frozen=True):
    session_id: str
    root: str
    parent: str | None
    parent_kind: str | None
    agent: str
    version: int
    fence: int
    claims: int
    inbox_head: int
    wake_at: int | None
    status: SessionStatus
    owner: str
    title: str
    labels: dict[str, str]
    created: int
    updated: int
    checkpoint: msgspec.Raw


class _Entry(_Line, tag="entry", frozen=True):
    seq: int
    number: int
    kind: str
    at: int
    salt: str | None
    body_digest: str
    chain: str
    body: msgspec.Raw


class _Submission(_Line, tag="submission", frozen=True):
    submission_id: str
    arrival: int
    kind: str
    at: int
    not_before: int | None
    actor: str
    digest: str
    body: msgspec.Raw
    consumed_seq: int | None
    settled_seq: int | None


class _Effect(_Line, tag="effect", frozen=True):
    effect_key: str
    seq: int
    state: str


class _Unique(_Line, tag="unique", frozen=True):
    key: str
    operation: str
    state: UniqueState
    seq: int


class _Blob(_Line, tag="blob", frozen=True):
    root: str
    digest: str
    media_type: str
    size: int


class _Piece(_Line, tag="piece", frozen=True):
    data: str


class _End(_Line, tag="end", frozen=True):
    submissions: int
    effects: int
    blobs: int
    digest: str


_AnyLine: TypeAlias = _Header | _Session | _Entry | _Submission | _Effect | _Unique | _Blob | _Piece | _End
_decoder: msgspec.json.Decoder[_AnyLine] = msgspec.json.Decoder(_AnyLine)
_ORDER = {_Session: 1, _Entry: 2, _Submission: 3, _Effect: 4, _Unique: 5, _Blob: 6, _Piece: 7, _End: 8}


# ---------------------------------------------------------------------------------------------------------------- writing


class _Writer:
    """Lines on their way into a file, hashed and counted."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.counts = dict.fromkeys((_Entry, _Submission, _Effect, _Blob), 0)

    def put(self, line: _Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        if len(data) > LINE_LIMIT:
            raise StoreCorrupt(f"a row has {len(data)} bytes, more than it can have", hint="run `perdure verify`")
        self._hash.update(data)
        self._file.write(data)
        if type(line) in self.counts:
            self.counts[type(line)] += 1

    def end(self) -> None:
        counts = self.counts
        self.put(_End(submissions=counts[_Submission], effects=counts[_Effect], blobs=counts[_Blob], digest=self._hash.hexdigest()))


async def export(store: Store, heads: Callable[[], Awaitable[list[SessionRow]]], target: Target) -> Exported:
    """Write sessions into a file. A path is replaced whole or not at all; a stream gets everything or nothing.

    Raises `SessionBusy` while somebody works on one of them, and what reading them raises.
    """
    stream = None if isinstance(target, str | os.PathLike) else target
    directory = None if stream is not None else os.path.dirname(os.fspath(target)) or "."  # type: ignore[arg-type]
    handle, name = tempfile.mkstemp(prefix=".perdure-export-", dir=directory)
    try:
        with os.fdopen(handle, "w+b") as file:
            exported = await _consistent(store, heads, file)
            file.flush()
            os.fsync(file.fileno())
            if stream is not None:
                file.seek(0)
                shutil.copyfileobj(file, stream, PIECE)
        if directory is not None:
            os.replace(name, Path(target))  # type: ignore[arg-type]
            name = ""
    finally:
        if name:
            os.unlink(name)
    return exported


async def _consistent(store: Store, heads: Callable[[], Awaitable[list[SessionRow]]], file: BinaryIO) -> Exported:
    for _ in range(ATTEMPTS):
        rows = await heads()
        for row in rows:
            _check_still(row)
        file.seek(0)
        file.truncate()
        writer = _Writer(file)
        await _write(store, rows, writer)
        if await heads() == rows:
            counts = writer.counts
            return Exported(
                sessions=tuple(row.session_id for row in rows),
                entries=counts[_Entry],
                submissions=counts[_Submission],
                effects=counts[_Effect],
                blobs=counts[_Blob],
            )
    raise SessionBusy("the session changes while it is written", hint="archive it first, or try again")


def _check_still(row: SessionRow) -> None:
    """A session can be carried away only while nothing of it is under way: an attempt would go on under another key elsewhere."""
    checkpoint = checkpoints.decode(row.checkpoint)
    turn = checkpoint.turn
    begun = turn is not None and any(item.attempt and item.status != "ended" for item in turn.operations)
    if row.holder is not None or begun or phase(checkpoint) not in ("idle", "waiting", "archived", "halted"):
        raise SessionBusy(f"{row.session_id!r} is being worked on", hint="wait for its turn's end, interrupt it, or archive it")


async def _write(store: Store, rows: list[SessionRow], writer: _Writer) -> None:
    writer.put(_Header(format=FORMAT, store=store.store_id, sessions=len(rows), entries=sum(row.version for row in rows)))
    needed: dict[tuple[str, str], None] = {}
    for row in rows:
        held = set(await store.blobs(row.root))
        values = {name: getattr(row, name) for name in _Session.__struct_fields__ if name != "checkpoint"}
        writer.put(_Session(**values, checkpoint=msgspec.Raw(row.checkpoint)))
        async for entry in _pages(partial(_entries_page, store, row.no)):
            _need(needed, row.root, held, entry.body)
            raw = _raw(entry.body)
            salt = None if entry.salt is None else entry.salt.hex()
            digest, chain = entry.body_digest.hex(), entry.chain.hex()
            facts = {"seq": entry.seq, "number": entry.number, "kind": entry.kind, "at": entry.at}
            writer.put(_Entry(**facts, salt=salt, body_digest=digest, chain=chain, body=raw))
        async for item in _pages(partial(_submissions_page, store, row.no)):
            _need(needed, row.root, held, item.body)
            columns = msgspec.structs.asdict(item)
            writer.put(_Submission(**{**columns, "body": _raw(item.body)}))
        for effect in await store.effects(row.no):
            writer.put(_Effect(effect_key=base64.b64encode(effect.effect_key).decode(), seq=effect.seq, state=effect.state))
        for taken in await store.uniques(row.no):
            writer.put(_Unique(key=taken.key, operation=taken.operation, state=taken.state, seq=taken.seq))
    for root, digest in needed:
        blob = await store.blob(root, digest)
        if blob is None:
            raise SessionBusy("the session's content changes while it is written", hint="try again")
        writer.put(_Blob(root=root, digest=digest, media_type=blob.media_type, size=len(blob.data)))
        for start in range(0, len(blob.data), PIECE):
            writer.put(_Piece(data=base64.b64encode(blob.data[start : start + PIECE]).decode()))
    writer.end()


def _raw(body: bytes | None) -> msgspec.Raw:
    """A stored body as it stands on a line, byte for byte; null if there is none any more."""
    return msgspec.Raw(b"null" if body is None else body)


def _body(raw: msgspec.Raw) -> bytes | None:
    data = bytes(raw)
    return None if data == b"null" else data


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


# ---------------------------------------------------------------------------------------------------------------- reading


@dataclass
class _Section:
    """Where one session's rows stand in the file."""

    row: SessionRow
    start: int
    entries: int = 0


@dataclass
class _File:
    """A file that was read through once: what it holds, and where."""

    file: BinaryIO
    sections: list[_Section] = field(default_factory=list)
    blobs_at: int = 0
    digest: str = ""

    def lines(self, start: int = 0) -> Iterator[tuple[int, bytes, _AnyLine]]:
        """The lines from a place on, each with its number counted from there."""
        self.file.seek(start)
        number = 0
        while data := self.file.readline(LINE_LIMIT + 1):
            number += 1
            if len(data) > LINE_LIMIT:
                raise _refused(number, f"it has more than {LINE_LIMIT} bytes")
            if not data.endswith(b"\n"):
                raise _refused(number, "the file ends in the middle of it")
            try:
                line = _decoder.decode(data)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                raise _refused(number, f"it can't be read: {error}") from None
            yield number, data, line

    def scan(self) -> None:
        """Read it through. Raises `ImportRefused` for what no export looks like."""
        hashed = hashlib.sha256()
        counts = dict.fromkeys(_ORDER, 0)
        header: _Header | None = None
        before: type[_Line] = _Header
        ended = False
        left, place = 0, 0
        for number, data, line in self.lines():
            kind = type(line)
            if ended:
                raise _refused(number, "something stands behind the end")
            if header is None:
                if not isinstance(line, _Header):
                    raise _refused(number, "an export begins otherwise")
                if line.format != FORMAT:
                    raise FormatUnknown(f"the export has format {line.format}; this version reads {FORMAT}", hint="upgrade perdure here")
                header = line
            else:
                if kind is _Header or (before is _Header and kind is not _Session) or not _may_follow(before, kind):
                    raise _refused(number, f"a line of type {line.__struct_config__.tag!r} can't stand here")
                counts[kind] += 1
            if left and not isinstance(line, _Piece):
                raise _refused(number, f"{left} bytes of the content before it are missing")
            match line:
                case _Session():
                    self.sections.append(_Section(_row(number, line), place + len(data)))
                case _Entry():
                    section = self.sections[-1]
                    section.entries += 1
                    if line.seq != section.entries:
                        raise _refused(number, f"entry {line.seq} stands where entry {section.entries} belongs")
                    if line.kind not in entries.KINDS:
                        raise _refused(number, f"the kind {line.kind!r} is unknown")
                case _Blob():
                    self.blobs_at = self.blobs_at or place
                    left = line.size
                case _Piece():
                    left -= len(_bytes(number, line.data))
                    if left < 0:
                        raise _refused(number, "there is more content than its size says")
                case _End():
                    said = (line.submissions, line.effects, line.blobs)
                    if said != (counts[_Submission], counts[_Effect], counts[_Blob]) or line.digest != hashed.hexdigest():
                        raise _refused(number, "the file is not what was written: its counts or its digest differ")
                    ended = True
            hashed.update(data)
            before, place = kind, place + len(data)
        if header is None or not ended:
            raise ImportRefused("the file is empty, or ends before its end", hint="nothing was imported; export it again")
        if (header.sessions, header.entries) != (counts[_Session], counts[_Entry]):
            raise ImportRefused("the file holds other counts than its first line says", hint="nothing was imported; export it again")
        for section in self.sections:
            if section.entries != section.row.version:
                counted = f"{section.row.session_id!r} has {section.entries} entries, but its version is {section.row.version}"
                raise ImportRefused(counted, hint="nothing was imported; export it again")

    def adoption(self, section: _Section) -> Adoption:
        """A session as a store takes it over."""
        return Adoption(
            row=section.row,
            entries=partial(self._entries, section),
            submissions=partial(self._submissions, section),
            effects=partial(self._effects, section),
            uniques=partial(self._uniques, section),
            blobs=partial(self._blobs, section) if section is self.first(section.row.root) else tuple,
        )

    def first(self, root: str) -> _Section:
        """The session that a tree's content is taken over with."""
        return next(section for section in self.sections if section.row.root == root)

    def _section(self, section: _Section, kind: type[_Line]) -> Iterator[tuple[int, Any]]:
        for number, _, line in self.lines(section.start):
            if type(line) is kind:
                yield number, line
            elif _ORDER[type(line)] > _ORDER[kind] or type(line) is _Session:
                return

    def _entries(self, section: _Section) -> Iterator[Sealed]:
        for number, line in self._section(section, _Entry):
            salt = None if line.salt is None else _hex(number, line.salt)
            body = _body(line.body)
            digest, chain = _hex(number, line.body_digest), _hex(number, line.chain)
            yield Sealed(line.seq, line.number, line.kind, line.at, salt, digest, body, chain)

    def _submissions(self, section: _Section) -> Iterator[InboxRow]:
        for _, line in self._section(section, _Submission):
            yield InboxRow(**{**msgspec.structs.asdict(line), "body": _body(line.body)})

    def _effects(self, section: _Section) -> Iterator[EffectRow]:
        for number, line in self._section(section, _Effect):
            yield EffectRow(effect_key=_bytes(number, line.effect_key), seq=line.seq, state=line.state)

    def _uniques(self, section: _Section) -> Iterator[Unique]:
        for _, line in self._section(section, _Unique):
            yield Unique(key=line.key, operation=line.operation, state=line.state, seq=line.seq)

    def _blobs(self, section: _Section) -> Iterator[StoredBlob]:
        if not self.blobs_at:
            return
        head: _Blob | None = None
        data = bytearray()
        for number, _, line in self.lines(self.blobs_at):
            if isinstance(line, _Piece):
                data += _bytes(number, line.data)
                continue
            if head is not None and head.root == section.row.root:
                yield StoredBlob(digest=head.digest, media_type=head.media_type, data=bytes(data))
            head, data = (line if isinstance(line, _Blob) else None), bytearray()


def _may_follow(before: type[_Line], kind: type[_Line]) -> bool:
    """Rows of a session stand in their order, and sessions before content."""
    if kind is _Session:
        return before in (_Header, _Entry, _Submission, _Effect, _Unique)
    if kind is _Blob:
        return _ORDER[before] >= _ORDER[_Entry]
    if kind is _Piece:
        return before in (_Blob, _Piece)
    return before is not _Header and _ORDER[before] <= _ORDER[kind]


def _row(number: int, line: _Session) -> SessionRow:
    if line.status not in ("idle", "queued", "waiting", "archived", "halted"):
        raise _refused(number, f"a session that is {line.status} can't be taken over")
    values = {name: getattr(line, name) for name in _Session.__struct_fields__}
    return SessionRow(no=0, holder=None, **{**values, "checkpoint": bytes(line.checkpoint)})


def _hex(number: int, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise _refused(number, f"{text:.20} is not hexadecimal") from None


def _bytes(number: int, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _refused(number, "it holds bytes that are not in base64") from None


def _refused(line: int, why: str) -> ImportRefused:
    return ImportRefused(f"line {line}: {why}", hint="nothing was imported; export it again", line=line)


async def import_file(store: Store, source: Target, session_id: str | None) -> Imported:
    """Take in a file: read through, verified in a store of its own, and taken over in one transaction, or not at all.

    Raises `ImportRefused`, `FormatUnknown`, `NewerRules` and `SessionExists`.
    """
    async with _opened(source) as file:
        read = _File(file)
        await asyncio.to_thread(read.scan)
        if session_id is not None and (len(read.sections) != 1 or read.sections[0].row.parent is not None):
            raise UsageError("only a file with a single session, and no fork, can be imported under another id")
        for section in read.sections:
            wanted = section.row.session_id if session_id is None else session_id
            if await store.buried(wanted) or await store.load(wanted) is not None:
                raise _exists(wanted)
        adoptions = [read.adoption(section) for section in read.sections]
        await _verify(adoptions)
        if session_id is not None and session_id != read.sections[0].row.session_id:
            adoptions = [await _renamed(adoptions[0], session_id)]
        answer = await store.adopt(adoptions)
        if not isinstance(answer, Adopted):
            raise _exists(session_id or read.sections[0].row.session_id)
        return Imported(sessions=tuple(given.row.session_id for given in adoptions), entries=sum(given.row.version for given in adoptions))


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
    from ..store.sqlite import SQLiteStore

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
            if entry.seq == 1:
                created = open_entry(entry)
                assert isinstance(created, SessionCreated)
                assert entry.salt is not None
                body = entries.encode(msgspec.structs.replace(created, session_id=session_id, root=session_id))
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
