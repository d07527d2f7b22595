"""The database: making a store in it, recognising one, connecting to it, and its time."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ...core.errors import FormatUnknown, StoreBroken, StoreCorrupt, StoreError, StoreReadOnly, UsageError
from .address import Address
from .line import Demoted, Failed, Line, Lost, Overdue, connect, translate
from .shapes import Shapes
from .sql import FORMAT, Sql, sql_for

__all__ = ["LONG", "Database", "unknown"]

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""How long to wait before connecting again, at first and at most (seconds)."""

LONG = 3600.0
"""How long what has much to do may take: making a store, renewing one, waiting for whoever does that, and destroying a whole session
(seconds). Cancelled after less, it would begin anew each time, and never end."""


class Database:
    """What all connections of one store share. Its methods may be called from any thread.

    ``patience`` (seconds) is how long a lost connection is tried again before whoever waits is told; ``timeout`` how long one statement
    may take. ``clock`` (ms) stands in for the database's own clock. ``make``: whether a store is made where there is none.
    """

    def __init__(self, address: Address, *, timeout: float, patience: float, clock: Callable[[], int] | None, make: bool = True) -> None:
        self.address = address
        self.patience = patience
        self.timeout = timeout
        self.store_id = ""
        self.secret = b""
        self.read_only = False
        self.shapes: Shapes
        self._sql: Sql = sql_for(address.schema)
        self.tables = self._sql.tables
        self._clock = clock
        self._makes = make
        self._now = 0
        self._ahead = 0
        self._telling = threading.Lock()

    # ------------------------------------------------------------------------------------------------------------------ time

    def given(self) -> int | None:
        """The time that statements get, if it isn't the database's."""
        return None if self._clock is None else self._clock()

    def now(self) -> int:
        """The database's time as far as it is known here: what it last said, and the time since. Never less than before."""
        with self._telling:
            told = time.monotonic_ns() // 1_000_000 + self._ahead if self._clock is None else self._clock()
            self._now = max(self._now, told)
            return self._now

    def told(self, moment: int) -> None:
        """The database has just said what time it is."""
        with self._telling:
            self._ahead = moment - time.monotonic_ns() // 1_000_000

    # ---------------------------------------------------------------------------------------------------------- connections

    def connect(self) -> Line:
        """A new connection. Raises `Lost`, and what makes it useless to try again."""
        return connect(self.address.conninfo, self._sql.queries, self.timeout)

    def persist(self, attempt: Callable[[], T], what: str) -> T:
        """Call until it raises no `Lost`, or patience is over. Raises what `unreachable` says then."""
        end = time.monotonic() + self.patience
        pause = FIRST_PAUSE
        while True:
            try:
                return attempt()
            except Lost as error:
                if time.monotonic() + pause > end:
                    raise self.unreachable(error, what) from error
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def unreachable(self, error: Lost, what: str) -> StoreError:
        if isinstance(error, Demoted):
            return StoreReadOnly(f"{what}: {self.address.shown} takes no writes: {error}", hint="connect to the primary")
        if isinstance(error, Overdue):
            hint = "somebody holds a lock, or the database is overloaded; it is safe to try again"
            return StoreBroken(f"{what}: {self.address.shown}: {error}", hint=hint)
        return StoreBroken(f"{what}: {self.address.shown} can't be reached: {error}", hint="it is safe to try again once it can")

    def statements(self, name: str) -> str:
        """The statements of a name that has several, none with parameters."""
        return self._sql.queries[name].decode()

    # -------------------------------------------------------------------------------------------------------------- opening

    def open(self) -> Line:
        """Find the store, or make it; and return the connection that this took. Nothing is touched before the schema is known to be ours.

        Raises what `Store.open` raises.
        """
        try:
            line = self.connect()
        except Lost as error:
            raise self.unreachable(error, "opening the store") from error
        try:
            self._recognise(line)
        except Lost as error:
            raise self.unreachable(error, "opening the store") from error
        except Failed as error:
            line.close()
            raise translate(error, f"opening {self.address.shown}") from error
        except BaseException:
            line.close()
            raise
        return line

    def _recognise(self, line: Line) -> None:
        schema = self.address.schema
        shown = self.address.shown
        ((reading_only, usable, readable, writable),) = line.run("rights", schema)
        if not usable or not readable:
            raise StoreBroken(
                f"{shown} may not even be read by this role", hint=f"GRANT USAGE ON SCHEMA {schema}, and SELECT on its tables, to it"
            )
        found = self._found(line)
        if not found:
            if not self._makes:
                raise UsageError(f"there is no store at {shown}", hint="open it with make=True to make one")
            if reading_only:
                raise StoreReadOnly(f"there is no store at {shown}, and none can be made here", hint="connect to the primary")
            self._make(line)
            found = self._found(line)
        if "meta" not in found:
            raise FormatUnknown(
                f"the schema {schema!r} of {shown} is not a perdure store", hint="it was left as it is; choose another one with ?schema="
            )
        self.read_only = reading_only or not writable
        facts = self._facts(line)
        if self._format(facts) < FORMAT:
            if self.read_only:
                raise StoreReadOnly(
                    f"{shown} has an older format, which must be renewed first", hint="open it once where it can be written"
                )
            self._make(line)
            found, facts = self._found(line), self._facts(line)
        if self._format(facts) > FORMAT:
            raise FormatUnknown(
                f"{shown} has format {self._format(facts)}; this version knows {FORMAT}", hint="it was left as it is; use a newer perdure"
            )
        # What others added is theirs.
        if missing := sorted(self._sql.objects - found):
            raise StoreCorrupt(f"{shown} has lost {', '.join(missing[:5])}", hint="it was left as it is; restore it from a backup")
        try:
            self.store_id, self.secret = facts["store_id"].decode(), facts["secret"]
        except KeyError as error:
            raise StoreCorrupt(f"{shown} has lost its {error}", hint="restore it from a backup") from error
        self.shapes = Shapes({name: (oid, array_oid) for name, oid, array_oid in line.run("types", schema)})
        self.told(line.run("moment")[0][0])

    def _found(self, line: Line) -> set[str]:
        return {name for (name,) in line.run("found", self.address.schema)}

    def _facts(self, line: Line) -> dict[str, bytes]:
        return dict(line.run("meta"))

    def _format(self, facts: dict[str, bytes]) -> int:
        try:
            return int(facts["format"])
        except (KeyError, ValueError) as error:
            raise FormatUnknown(f"{self.address.shown} doesn't say what format it has", hint="it was left as it is") from error

    def _make(self, line: Line) -> None:
        """Bring the schema to this format, or find that somebody else just did; all of it or nothing."""
        schema = self.address.schema
        line.run("begin")
        try:
            line.run("maker", schema, timeout=LONG)
            found = self._found(line)
            if found and "meta" not in found:
                return
            facts = self._facts(line) if found else {}
            stands = self._format(facts) if found else 0
            if not line.run("schema_there", schema)[0][0]:
                line.run("schema_make")
            for version in self._sql.versions:
                if version.number > stands:
                    line.script(version.statements, timeout=LONG)
            if not found:
                for key, value in (("store_id", secrets.token_hex(16).encode()), ("secret", secrets.token_bytes(32))):
                    line.run("meta_put", key, value)
            if stands < FORMAT:
                line.run("meta_put", "format", str(FORMAT).encode())
            line.run("commit")
        except Failed as error:
            raise (
                StoreReadOnly(
                    f"there is no store at {self.address.shown}, and this role may not make one",
                    hint=f"GRANT CREATE, or make the schema {schema} for it",
                )
                if error.sqlstate in ("42501", "25006")
                else translate(error, f"making the store at {self.address.shown}")
            ) from error
        finally:
            if line.in_transaction:
                line.run("rollback")


def unknown(error: BaseException) -> StoreBroken:
    """Nobody can say whether a write is stored."""
    return StoreBroken(f"whether the write is stored is unknown: {error}", hint="read the session again to see")
