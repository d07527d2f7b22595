"""Reading: a file is gone through once before anything of it is believed, and then again for each of its parts."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

import msgspec

from ...core import entries
from ...core.errors import FormatUnknown, ImportRefused
from ...core.journal import Sealed
from ...store.base import Adoption, EffectRow, InboxRow, SessionRow, StoredBlob, Unique
from .lines import (
    DECODER,
    FORMAT,
    LINE_LIMIT,
    ORDER,
    AnyLine,
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
    body_of,
    may_follow,
)

__all__ = ["File", "Section"]


@dataclass
class Section:
    """Where one session's rows stand in the file."""

    row: SessionRow
    start: int
    entries: int = 0


@dataclass
class File:
    """A file that was read through once: what it holds, and where."""

    file: BinaryIO
    sections: list[Section] = field(default_factory=list)
    blobs_at: int = 0
    digest: str = ""

    def lines(self, start: int = 0) -> Iterator[tuple[int, bytes, AnyLine]]:
        """The lines from a place on, each with its number counted from there."""
        self.file.seek(start)
        number = 0
        while data := self.file.readline(LINE_LIMIT + 1):
            number += 1
            if number == 1 and (data.lstrip()[:1] == b"[" or data.strip() == b"{"):
                raise ImportRefused(
                    "the file is no export: it holds other JSON than a line for each entry",
                    hint="nothing was imported; a list of messages that another system kept is for sessions.import_messages(…)",
                    line=1,
                )
            if len(data) > LINE_LIMIT:
                raise refused(number, f"it has more than {LINE_LIMIT} bytes")
            if not data.endswith(b"\n"):
                raise refused(number, "the file ends in the middle of it")
            try:
                line = DECODER.decode(data)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                raise refused(number, f"it can't be read: {error}") from None
            yield number, data, line

    def scan(self) -> None:
        """Read it through. Raises `ImportRefused` for what no export looks like."""
        hashed = hashlib.sha256()
        counts = dict.fromkeys(ORDER, 0)
        header: Header | None = None
        before: type[Line] = Header
        ended = False
        left, place = 0, 0
        for number, data, line in self.lines():
            kind = type(line)
            if ended:
                raise refused(number, "something stands behind the end")
            if header is None:
                if not isinstance(line, Header):
                    raise refused(number, "an export begins otherwise")
                if line.format != FORMAT:
                    raise FormatUnknown(f"the export has format {line.format}; this version reads {FORMAT}", hint="upgrade perdure here")
                header = line
            else:
                if kind is Header or (before is Header and kind is not SessionLine) or not may_follow(before, kind):
                    raise refused(number, f"a line of type {line.__struct_config__.tag!r} can't stand here")
                counts[kind] += 1
            if left and not isinstance(line, PieceLine):
                raise refused(number, f"{left} bytes of the content before it are missing")
            match line:
                case SessionLine():
                    self.sections.append(Section(_row(number, line), place + len(data)))
                case EntryLine():
                    section = self.sections[-1]
                    section.entries += 1
                    if line.seq != section.entries:
                        raise refused(number, f"entry {line.seq} stands where entry {section.entries} belongs")
                    if line.kind not in entries.KINDS:
                        raise refused(number, f"the kind {line.kind!r} is unknown")
                case BlobLine():
                    self.blobs_at = self.blobs_at or place
                    left = line.size
                case PieceLine():
                    left -= len(_bytes(number, line.data))
                    if left < 0:
                        raise refused(number, "there is more content than its size says")
                case EndLine():
                    said = (line.submissions, line.effects, line.blobs)
                    if said != (counts[SubmissionLine], counts[EffectLine], counts[BlobLine]) or line.digest != hashed.hexdigest():
                        raise refused(number, "the file is not what was written: its counts or its digest differ")
                    ended = True
            hashed.update(data)
            before, place = kind, place + len(data)
        if header is None or not ended:
            raise ImportRefused("the file is empty, or ends before its end", hint="nothing was imported; export it again")
        if (header.sessions, header.entries) != (counts[SessionLine], counts[EntryLine]):
            raise ImportRefused("the file holds other counts than its first line says", hint="nothing was imported; export it again")
        for section in self.sections:
            if section.entries != section.row.version:
                counted = f"{section.row.session_id!r} has {section.entries} entries, but its version is {section.row.version}"
                raise ImportRefused(counted, hint="nothing was imported; export it again")

    def adoption(self, section: Section) -> Adoption:
        """A session as a store takes it over."""
        return Adoption(
            row=section.row,
            entries=partial(self._entries, section),
            submissions=partial(self._submissions, section),
            effects=partial(self._effects, section),
            uniques=partial(self._uniques, section),
            blobs=partial(self._blobs, section) if section is self.first(section.row.root) else tuple,
        )

    def first(self, root: str) -> Section:
        """The session that a tree's content is taken over with."""
        return next(section for section in self.sections if section.row.root == root)

    def _section(self, section: Section, kind: type[Line]) -> Iterator[tuple[int, Any]]:
        for number, _, line in self.lines(section.start):
            if type(line) is kind:
                yield number, line
            elif ORDER[type(line)] > ORDER[kind] or type(line) is SessionLine:
                return

    def _entries(self, section: Section) -> Iterator[Sealed]:
        for number, line in self._section(section, EntryLine):
            salt = None if line.salt is None else _hex(number, line.salt)
            body = body_of(line.body)
            digest, chain = _hex(number, line.body_digest), _hex(number, line.chain)
            yield Sealed(line.seq, line.number, line.kind, line.at, salt, digest, body, chain)

    def _submissions(self, section: Section) -> Iterator[InboxRow]:
        for _, line in self._section(section, SubmissionLine):
            yield InboxRow(**{**msgspec.structs.asdict(line), "body": body_of(line.body)})

    def _effects(self, section: Section) -> Iterator[EffectRow]:
        for number, line in self._section(section, EffectLine):
            yield EffectRow(effect_key=_bytes(number, line.effect_key), seq=line.seq, state=line.state)

    def _uniques(self, section: Section) -> Iterator[Unique]:
        for _, line in self._section(section, UniqueLine):
            yield Unique(key=line.key, operation=line.operation, state=line.state, seq=line.seq)

    def _blobs(self, section: Section) -> Iterator[StoredBlob]:
        if not self.blobs_at:
            return
        head: BlobLine | None = None
        data = bytearray()
        for number, _, line in self.lines(self.blobs_at):
            if isinstance(line, PieceLine):
                data += _bytes(number, line.data)
                continue
            if head is not None and head.root == section.row.root:
                yield StoredBlob(digest=head.digest, media_type=head.media_type, data=bytes(data))
            head, data = (line if isinstance(line, BlobLine) else None), bytearray()


def _row(number: int, line: SessionLine) -> SessionRow:
    if line.status not in ("idle", "queued", "waiting", "archived", "halted"):
        raise refused(number, f"a session that is {line.status} can't be taken over")
    values = {name: getattr(line, name) for name in SessionLine.__struct_fields__}
    return SessionRow(no=0, holder=None, **{**values, "checkpoint": bytes(line.checkpoint)})


def _hex(number: int, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise refused(number, f"{text:.20} is not hexadecimal") from None


def _bytes(number: int, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise refused(number, "it holds bytes that are not in base64") from None


def refused(line: int, why: str) -> ImportRefused:
    return ImportRefused(f"line {line}: {why}", hint="nothing was imported; export it again", line=line)
