"""The floor: a bare loop in one thread, without asyncio, that writes ready bytes into the same tables with the same settings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from perdure.core.entries import KINDS
from perdure.core.journal import Sealed
from perdure.runtime.context import CONTEXT_KINDS
from perdure.store.base import Commit
from perdure.store.sqlite.database import PAGE_SIZE
from perdure.store.sqlite.sql import SCHEMA

__all__ = ["Cost", "Floor", "fetch_and_decode"]

_SESSION = """INSERT INTO sessions (no, session_id, root, agent, version, fence, holder, claims, inbox_head, status, owner, title, labels,
    created, updated, checkpoint) VALUES (?, ?, '', '', 0, 1, '', 0, 0, 'running', '', '', '{}', 0, 0, ?)"""
_ADVANCE = "UPDATE sessions SET version = ?, fence = ?, claims = 0, checkpoint = ? WHERE no = ?"
_APPEND = "INSERT INTO journal (no, seq, number, kind, at, salt, body_digest, body, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EFFECT = "INSERT OR REPLACE INTO effects (no, effect_key, seq, state) VALUES (?, ?, ?, ?)"


class Cost(NamedTuple):
    """Seconds of one block, by the wall and of all the process's threads."""

    wall: float
    cpu: float

    def per(self, count: int) -> Cost:
        return Cost(self.wall / count, self.cpu / count)


class _Ready(NamedTuple):
    advance: tuple[Any, ...]
    entries: list[tuple[Any, ...]]
    effects: list[tuple[Any, ...]]


def _ready(commit: Commit) -> _Ready:
    no, entries = commit.no, commit.entries
    return _Ready(
        (entries[-1].seq, commit.fence, commit.checkpoint, no),
        [(no, row.seq, row.number, row.kind, row.at, row.salt, row.body_digest, row.body, row.chain) for row in entries],
        [(no, effect.effect_key, effect.seq, effect.state) for effect in commit.effects],
    )


class Floor:
    """A database of its own that is given the same commits."""

    def __init__(self, path: Path, *, synchronous: str = "FULL") -> None:
        self.connection = apsw.Connection(str(path))
        self._sessions: set[int] = set()
        execute = self.connection.execute
        execute(f"PRAGMA page_size = {PAGE_SIZE}")
        execute("PRAGMA journal_mode = WAL")
        execute(f"PRAGMA synchronous = {synchronous}")
        execute("PRAGMA secure_delete = 1")
        execute("PRAGMA wal_autocheckpoint = 2000")
        execute(SCHEMA)

    def close(self) -> None:
        self.connection.close()

    def follow(self, commits: Sequence[Commit]) -> None:
        """Write commits that are not measured, so that both databases hold the same."""
        self._make_sessions(commits)
        self._write([_ready(commit) for commit in commits if commit.entries], len(commits) or 1)

    def replay(self, commits: Sequence[Commit], together: int = 1) -> Cost:
        """Write commits, so many in one transaction, and say what that cost."""
        self._make_sessions(commits)
        ready = [_ready(commit) for commit in commits]
        cpu, wall = time.process_time(), time.perf_counter()
        self._write(ready, together)
        return Cost(time.perf_counter() - wall, time.process_time() - cpu)

    def _write(self, ready: list[_Ready], together: int) -> None:
        execute, executemany = self.connection.execute, self.connection.executemany
        for start in range(0, len(ready), together):
            execute("BEGIN IMMEDIATE")
            for commit in ready[start : start + together]:
                execute(_ADVANCE, commit.advance)
                executemany(_APPEND, commit.entries)
                if commit.effects:
                    executemany(_EFFECT, commit.effects)
            execute("COMMIT")

    def _make_sessions(self, commits: Sequence[Commit]) -> None:
        unknown = {commit.no for commit in commits} - self._sessions
        self._sessions |= unknown
        with self.connection:
            self.connection.executemany(_SESSION, [(no, f"session-{no}", bytes(1000)) for no in sorted(unknown)])


def fetch_and_decode(path: Path, session_id: str) -> float:
    """Seconds to open the file, read the rows that a context is made of, and decode their bodies."""
    decoders = {kind: msgspec.json.Decoder(KINDS[kind]) for kind in CONTEXT_KINDS}
    start = time.perf_counter()
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    no: int = connection.execute("SELECT no FROM sessions WHERE session_id = ?", (session_id,)).get
    marks = ", ".join("?" * len(CONTEXT_KINDS))
    columns = ", ".join(Sealed.__struct_fields__)
    rows = connection.execute(f"SELECT {columns} FROM journal WHERE no = ? AND kind IN ({marks}) ORDER BY seq", (no, *CONTEXT_KINDS))
    entries = [decoders[row[2]].decode(row[6]) for row in rows]
    taken = time.perf_counter() - start
    connection.close()
    assert entries
    return taken
