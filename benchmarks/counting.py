"""What reaches the disk, counted where SQLite hands it over: a VFS that passes everything on."""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw

__all__ = ["Counting", "Counts"]


class Counts(NamedTuple):
    """Bytes and syncs of the log, and those of the file, into which checkpoints move them."""

    log_bytes: int = 0
    log_syncs: int = 0
    file_bytes: int = 0
    file_syncs: int = 0

    def since(self, before: Counts) -> Counts:
        return Counts(*(now - then for now, then in zip(self, before, strict=True)))


class _File(apsw.VFSFile):
    def __init__(self, counting: Counting, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._counting = counting
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._counting.add(Counts(log_bytes=len(data)) if self._is_log else Counts(file_bytes=len(data)))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._counting.add(Counts(log_syncs=1) if self._is_log else Counts(file_syncs=1))
        super().xSync(flags)


class Counting(apsw.VFS):
    """The default file system, counted."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "")
        self.name = name
        self.counts = Counts()

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802 - SQLite's name
        return _File(self, name, flags)

    def add(self, counts: Counts) -> None:
        self.counts = Counts(*(now + more for now, more in zip(self.counts, counts, strict=True)))
