"""What was used by whom: an index of the ledgers of all sessions, made of their journals, that can be thrown away and made again."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import apsw
import msgspec

from ..core import entries as facts
from ..core.entries import Entry, SessionCreated
from ..core.errors import StoreBroken, UsageError
from ..core.usage import Totals, Usage

if TYPE_CHECKING:
    from .runtime import Runtime
from .model_calls import ModelCall, Pairing, Spending, UsageRow

__all__ = ["Group", "UsageIndex", "place_of"]

Group: TypeAlias = Literal["session", "owner", "agent", "route", "model", "kind", "day"]

GROUPS = get_args(Group)

LAYOUT = 1
"""Goes up whenever the tables are others; an index of another layout is made again."""

TABLES = """
CREATE TABLE IF NOT EXISTS sessions (
    session TEXT PRIMARY KEY, seq INTEGER NOT NULL, owner TEXT NOT NULL, agent TEXT NOT NULL, open BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS calls (
    session TEXT NOT NULL, seq INTEGER NOT NULL, owner TEXT NOT NULL, agent TEXT NOT NULL, route TEXT NOT NULL, model TEXT NOT NULL,
    kind TEXT NOT NULL, day TEXT NOT NULL, started INTEGER NOT NULL, estimated INTEGER NOT NULL, unpriced INTEGER NOT NULL,
    input INTEGER, output INTEGER, cache_read INTEGER, cache_write INTEGER, reasoning INTEGER, cost INTEGER,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_started ON calls (started);
"""

INSERT = """
INSERT OR REPLACE INTO calls (
    session, seq, owner, agent, route, model, kind, day, started, estimated, unpriced,
    input, output, cache_read, cache_write, reasoning, cost
) VALUES (?, ?, ?, ?, ?, ?, ?, strftime('%Y-%m-%d', ? / 1000, 'unixepoch'), ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

NUMBERS = ("input", "output", "cache_read", "cache_write", "reasoning")


class _Open(msgspec.Struct, array_like=True):
    """What is under way where the index stands: starts without receipts, and what retried operations are."""

    starts: list[tuple[int, int, bytes]]
    kinds: dict[str, Any]


def place_of(store_id: str) -> Path:
    """Where the index of a store is kept if nobody says otherwise: in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "perdure" / f"usage-{store_id}.db"


class UsageIndex:
    """A `Projector` that keeps who used what in an SQLite file of its own; numbers and names, and never what was said.

    What comes again is taken once: each session's place stands in the transaction that took its entries. Several processes may share a
    file. What was used in sessions that were deleted goes with them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            self._connection = apsw.Connection(str(self.path))
            self._connection.set_busy_timeout(10_000)
            # It can be made again, so no commit waits for the disk.
            self._connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
            self._prepare()
        except apsw.Error as error:
            raise StoreBroken(
                f"the index of usage {str(self.path)!r} can't be used: {error}", hint="remove the file; it is made again"
            ) from error

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @property
    def name(self) -> str:
        """The consumer that this file is: another file, or the same on another host, hears of everything too."""
        where = f"{socket.gethostname()}:{self.path.absolute()}"
        return f"usage:{hashlib.sha256(where.encode()).hexdigest()[:24]}"

    async def update(self, runtime: Runtime, *, rebuild: bool = False) -> None:
        """Take in what happened since the last time; with ``rebuild``, everything once more.

        Raises what a session raises that can't be read, once all others were taken.
        """
        consumer = runtime.sessions.consumer(self.name)
        if rebuild:
            self.clear()
        if not self._known():
            # What an index that is gone had acknowledged is to come again.
            await consumer.delete()
        await consumer.consume(self, follow=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._connection:
            self._connection.execute("DELETE FROM calls")
            self._connection.execute("DELETE FROM sessions")

    # --------------------------------------------------------------------------------------------------------- as a projector

    async def project(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Take a session's next entries, in their order."""
        with self._connection:
            self._connection.execute("UPDATE sessions SET seq = seq WHERE session = ?", (session_id,))
            row = self._connection.execute("SELECT seq, owner, agent, open FROM sessions WHERE session = ?", (session_id,)).fetchone()
            seq, owner, agent, kept = row or (0, "", "", b"")
            pairing = _reopened(kept)
            for entry in entries:
                if entry.seq <= seq:
                    continue
                if isinstance(entry, SessionCreated):
                    owner, agent = entry.identity.owner, entry.agent
                agent = getattr(entry, "agent", "") or agent
                if (call := pairing.take(entry)) is not None:
                    self._add(session_id, owner, agent, call)
                seq = entry.seq
            values = (session_id, seq, owner, agent, _closed(pairing))
            self._connection.execute("INSERT OR REPLACE INTO sessions (session, seq, owner, agent, open) VALUES (?, ?, ?, ?, ?)", values)

    async def position(self, session_id: str) -> int | None:
        """How far it is in a session."""
        row = self._connection.execute("SELECT seq FROM sessions WHERE session = ?", (session_id,)).fetchone()
        return 0 if row is None else int(row[0])

    async def known(self) -> Iterable[str]:
        """The sessions that it holds something of."""
        return self._known()

    async def forget(self, session_id: str) -> None:
        """The session was deleted."""
        with self._connection:
            self._connection.execute("DELETE FROM calls WHERE session = ?", (session_id,))
            self._connection.execute("DELETE FROM sessions WHERE session = ?", (session_id,))

    # ---------------------------------------------------------------------------------------------------------------- reports

    def report(
        self,
        by: Sequence[str] = ("session",),
        *,
        session: str | None = None,
        owner: str | None = None,
        route: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> list[UsageRow]:
        """What was used, by ``by``: one row for each combination, the costliest first, and then the longest.

        Days are those of UTC on which calls began. ``since`` and ``until`` are ms: ``since <= started < until``. Raises `UsageError`.
        """
        for name in by:
            if name not in GROUPS:
                raise UsageError(f"usage can't be grouped by {name!r:.40}", hint=", ".join(GROUPS))
        keys = list(dict.fromkeys(by))
        wheres, values = ["1"], []
        for condition, value in (
            ("session = ?", session), ("owner = ?", owner), ("route = ?", route), ("started >= ?", since), ("started < ?", until)
        ):  # fmt: skip
            if value is not None:
                wheres.append(condition)
                values.append(value)
        sums = ", ".join(f"COALESCE(SUM({name}), 0), COUNT({name})" for name in (*NUMBERS, "cost"))
        unknown = "SUM(input IS NULL OR output IS NULL), SUM(estimated), SUM(unpriced)"
        # Only names from `GROUPS` and of columns stand in it.
        query = f"SELECT {', '.join([*keys, 'COUNT(*)', unknown, sums])} FROM calls WHERE {' AND '.join(wheres)}"
        query += f" GROUP BY {', '.join(keys)}" if keys else " HAVING COUNT(*) > 0"
        rows = [_row(keys, row) for row in self._connection.execute(query, values)]
        return sorted(rows, key=lambda row: (-row.spending.known.cost, -row.spending.known.total_tokens, *row.group.values()))

    # ------------------------------------------------------------------------------------------------------------------ rows

    def _prepare(self) -> None:
        with self._connection:
            if self._connection.pragma("user_version") not in (0, LAYOUT):
                self._connection.execute("DROP TABLE IF EXISTS calls; DROP TABLE IF EXISTS sessions")
            self._connection.execute(TABLES)
            self._connection.execute(f"PRAGMA user_version = {LAYOUT}")

    def _known(self) -> list[str]:
        return [name for (name,) in self._connection.execute("SELECT session FROM sessions")]

    def _add(self, session_id: str, owner: str, agent: str, call: ModelCall) -> None:
        used, cost = call.usage or Usage(), call.cost
        paid = None if cost is None else cost.nanodollars
        self._connection.execute(
            INSERT,
            (
                *(session_id, call.seq, owner, agent, call.route, call.model, call.kind, call.started, call.started),
                *(used.estimated, cost is not None and paid is None),
                *(used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens, used.reasoning_tokens, paid),
            ),
        )


def _row(keys: list[str], row: tuple[Any, ...]) -> UsageRow:
    group = dict(zip(keys, map(str, row), strict=False))
    calls, unknown, estimated, unpriced, *sums = row[len(keys) :]
    known = {name: (sums[2 * place], sums[2 * place + 1]) for place, name in enumerate((*NUMBERS, "cost"))}

    def whole(*names: str) -> int | None:
        return sum(known[name][0] for name in names) if all(known[name][1] == calls for name in names) else None

    return UsageRow(
        group=group,
        spending=Spending(
            input_tokens=whole("input"),
            output_tokens=whole("output"),
            total_tokens=whole("input", "output"),
            cache_read_tokens=whole("cache_read"),
            cache_write_tokens=whole("cache_write"),
            reasoning_tokens=whole("reasoning"),
            cost=whole("cost"),
            known=Totals(
                calls=calls,
                unknown_calls=unknown,
                estimated_calls=estimated,
                unpriced_calls=unpriced,
                cost=known["cost"][0],
                **{f"{name}_tokens": known[name][0] for name in NUMBERS},
            ),
        ),
    )


def _closed(pairing: Pairing) -> bytes:
    starts = [(entry.seq, entry.at, facts.encode(entry)) for entry in pairing.open]
    return msgspec.json.encode(_Open(starts, pairing.kinds))


def _reopened(kept: bytes) -> Pairing:
    pairing = Pairing()
    if kept:
        found = msgspec.json.decode(kept, type=_Open)
        pairing.kinds.update(found.kinds)
        for seq, at, body in found.starts:
            pairing.take(facts.decode("operation_started", body, seq=seq, number=0, at=at))
    return pairing
