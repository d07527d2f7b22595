"""An example of a projector: every session's journal as a file of JSON lines in a directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import msgspec

from ..core import canonical, entries
from ..core.entries import Entry
from ..core.errors import UsageError
from ..store.durable import sync

__all__ = ["JsonLines"]

NAME_LIMIT = 200

READ = 64 * 1024


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    number: int
    at: int
    kind: str
    body: msgspec.Raw


class _Seq(msgspec.Struct, frozen=True):
    seq: int


class _Written(msgspec.Struct, frozen=True):
    seq: int
    at: int
    kind: str


class _First(msgspec.Struct, frozen=True):
    session: str


class JsonLines:
    """A file for each session: its id on the first line, then an entry a line, in their order, each once.

    The file itself says how far it is, so that entries that come again are left out, a line that a crash cut off is written anew, and a
    file that was removed is made again: with the session's next news, or by ``consume(…, heal=True)`` at once. Only its last line is
    looked at, and the lines of what comes again: where these tell something else, since the store was restored to an earlier moment and
    went on from there, nothing is written, and `project` raises `UsageError`. What was redacted since stays in a file that was written
    before; remove that file, and it is made again.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

    def path(self, session_id: str) -> Path:
        """Where a session's file is."""
        name = quote(session_id, safe="")
        if len(name) > NAME_LIMIT:
            name = f"{name[:100]}-{canonical.digest(session_id.encode())}"
        # A leading dot would hide the file, and "..", name a directory.
        return self._directory / f"{name.replace('.', '%2E')}.jsonl"

    async def project(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Write what is not there yet; durable when this returns."""
        await asyncio.to_thread(self._project, session_id, entries)

    async def position(self, session_id: str) -> int | None:
        """The seq of the last whole line, 0 where there is none."""
        return await asyncio.to_thread(self._position, session_id)

    async def known(self) -> Iterable[str]:
        """The sessions that have a file."""
        return await asyncio.to_thread(self._known)

    async def forget(self, session_id: str) -> None:
        """Remove a session's file."""
        await asyncio.to_thread(self.path(session_id).unlink, missing_ok=True)

    def _project(self, session_id: str, given: Sequence[Entry]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self.path(session_id)
        new = not path.exists()
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            last, end = _last(file)
            again = {entry.seq: entry for entry in given if entry.seq <= last}
            if again:
                _check(path, file, again)
            file.seek(end)
            file.truncate()
            if not end:
                file.write(msgspec.json.encode(_First(session_id)) + b"\n")
            for entry in given:
                if entry.seq > last:
                    body = msgspec.Raw(entries.encode(entry))
                    line = _Line(seq=entry.seq, number=entry.number, at=entry.at, kind=entry.kind, body=body)
                    file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync(self._directory)

    def _position(self, session_id: str) -> int:
        try:
            with open(self.path(session_id), "rb") as file:
                return _last(file)[0]
        except FileNotFoundError:
            return 0

    def _known(self) -> list[str]:
        found = []
        for path in sorted(self._directory.glob("*.jsonl")):
            with open(path, "rb") as file:
                try:
                    found.append(msgspec.json.decode(file.readline(READ), type=_First).session)
                except msgspec.MsgspecError:
                    # Not ours, or cut off before anything was written; nothing is known of it.
                    continue
        return found


def _check(path: Path, file: BinaryIO, again: dict[int, Entry]) -> None:
    """Raises `UsageError` if what is written is another history than the one that these entries tell."""
    file.seek(0)
    for line in file:
        try:
            written = msgspec.json.decode(line, type=_Written)
        except msgspec.MsgspecError:
            continue
        entry = again.get(written.seq)
        if entry is not None and (entry.at, entry.kind) != (written.at, written.kind):
            raise UsageError(
                f"{str(path)!r} holds another entry {entry.seq} than the store, which was restored to an earlier moment and went on",
                hint="move the file away, and what the store has is written anew",
            )


def _last(file: BinaryIO) -> tuple[int, int]:
    """The seq of the last whole line, and where it ends."""
    end = file.seek(0, os.SEEK_END)
    tail = b""
    start = end
    while start and tail.count(b"\n") < 2:
        step = min(READ, start)
        start -= step
        file.seek(start)
        tail = file.read(step) + tail
    whole = tail.rfind(b"\n") + 1
    line = tail[:whole].rstrip(b"\n").rsplit(b"\n", 1)[-1]
    if not line:
        return 0, 0
    try:
        return msgspec.json.decode(line, type=_Seq).seq, start + whole
    except msgspec.MsgspecError:
        # Only the first line stands there.
        return 0, start + whole
