"""One connection: it runs one named statement at a time, within a time, and says what went wrong in our words."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...core.errors import (
    FormatUnknown,
    InvalidURL,
    MissingExtra,
    PerdureError,
    StoreBroken,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    UsageError,
)
from .address import HINT
from .wire import bind, read

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGconn

__all__ = ["Demoted", "Failed", "Line", "Lost", "Overdue", "connect", "misunderstood", "overdue", "translate"]

CANCEL_PATIENCE = 1.0
"""How long a statement that was asked to stop may take for it (seconds)."""

_REFUSALS = ("does not exist", "authentication failed", "no pg_hba.conf entry", "no password supplied", "connection is bad: invalid")

_TUPLES, _COMMAND, _EMPTY = 2, 1, 0
_ACTIVE = 1
_SQLSTATE, _MESSAGE = ord("C"), ord("M")


class Lost(Exception):
    """The connection ended, or could not be had. What was under way may be stored or not."""


class Overdue(Lost):
    """A statement took longer than it may, and was cancelled."""


class Demoted(Lost):
    """The server at the other end takes no writes any more; another one may. Nothing of the statement is stored."""


class Failed(Exception):
    """The server refused a statement; nothing of it is stored."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message

    @property
    def again(self) -> bool:
        """Whether the same statement may well succeed now: it was undone for the sake of others."""
        return self.sqlstate in ("40001", "40P01", "55P03")


class Line:
    """A connection in autocommit mode. It is used by one thread at a time; ``psycopg`` is what a tool's own statements may run on."""

    def __init__(self, connection: psycopg.Connection[Any], queries: dict[str, bytes], timeout: float) -> None:
        self.psycopg = connection
        self.timeout = timeout
        self.unsent = False
        """Whether a part of the statement is still to be sent."""
        self._pg = connection.pgconn
        self._queries = queries
        self._rows: list[tuple[Any, ...]] = []
        self._failed: Failed | None = None
        self._poll = select.poll()
        self._poll.register(self._pg.socket, 0)

    @property
    def socket(self) -> int:
        return self._pg.socket

    @property
    def closed(self) -> bool:
        return self.psycopg.closed

    @property
    def in_transaction(self) -> bool:
        return self._pg.transaction_status != 0

    @property
    def working(self) -> bool:
        """Whether a statement is under way."""
        return self._pg.transaction_status == _ACTIVE

    def close(self) -> None:
        self.psycopg.close()

    def run(self, name: str, *values: Any, timeout: float | None = None) -> list[tuple[Any, ...]]:
        """The rows of a named statement. Raises `Failed` and `Lost`; a statement that takes longer than its time is cancelled, and lost."""
        return self._run(lambda: self.begin(name, *values), timeout)

    def script(self, text: str, *, timeout: float) -> None:
        """Many statements without parameters, in one transaction, and in so many seconds together. Raises as `run` does."""
        self._run(lambda: self._begin(lambda: self._pg.send_query(text.encode())), timeout)

    def begin(self, name: str, *values: Any) -> None:
        """Send a named statement, without waiting: whenever the socket is ready, `advance` says what came of it. Raises `Lost`."""
        parameters = [bind(value) for value in values]
        self._begin(lambda: self._pg.send_query_params(self._queries[name], parameters, None, [1] * len(parameters), 1))

    def advance(self) -> list[tuple[Any, ...]] | None:
        """The rows of the statement that was begun; None: the server has not said all, or not got all. Raises `Failed`, and `Lost`, after
        which only `close` is left."""
        import psycopg

        pg = self._pg
        try:
            pg.consume_input()
            if self.unsent:
                self.unsent = bool(pg.flush())
            while not pg.is_busy():
                result = pg.get_result()
                if result is None:
                    return self._outcome()
                if result.status == _TUPLES:
                    self._rows = read(result)
                elif result.status not in (_COMMAND, _EMPTY):
                    self._failed = self._failed or Failed(_field(result, _SQLSTATE), _field(result, _MESSAGE) or _said(pg))
        except psycopg.Error as error:
            raise Lost(_short(error)) from error
        return None

    def stop(self) -> None:
        """Ask the server to end the statement; the connection is given up either way, since its state is not known."""
        import psycopg

        with suppress(psycopg.Error):
            self.psycopg.cancel_safe(timeout=CANCEL_PATIENCE)
        self.close()

    def notices(self) -> list[str]:
        """What others announced since, without waiting. Raises `Lost`."""
        import psycopg

        try:
            self._pg.consume_input()
        except psycopg.OperationalError as error:
            raise Lost(_short(error)) from error
        found = []
        while (notice := self._pg.notifies()) is not None:
            if notice.be_pid != self._pg.backend_pid:
                found.append(notice.extra.decode(errors="replace"))
        return found

    def _run(self, begin: Callable[[], None], timeout: float | None) -> list[tuple[Any, ...]]:
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        try:
            begin()
            rows = None
            while rows is None:
                if not self._ready(end):
                    self.stop()
                    raise overdue()
                rows = self.advance()
        except Lost:
            self.close()
            raise
        return rows

    def _begin(self, send: Callable[[], None]) -> None:
        import psycopg

        self._rows, self._failed = [], None
        try:
            send()
            self.unsent = bool(self._pg.flush())
        except psycopg.Error as error:
            raise Lost(_short(error)) from error

    def _outcome(self) -> list[tuple[Any, ...]]:
        failed = self._failed
        if failed is None:
            return self._rows
        if failed.sqlstate == "25006":
            # Nobody who knows that it may only read comes here: it was the primary when it was opened.
            raise Demoted(failed.message)
        if failed.sqlstate[:3] in ("57P", "08P", "") or failed.sqlstate[:2] == "08" or self._pg.status != 0:
            raise Lost(failed.message)
        raise failed

    def _ready(self, end: float) -> bool:
        left = end - time.monotonic()
        if left <= 0:
            return False
        self._poll.modify(self._pg.socket, select.POLLIN | (select.POLLOUT if self.unsent else 0))
        return bool(self._poll.poll(left * 1000))


def overdue() -> Overdue:
    """What whoever waits for a statement is told once its time is over."""
    return Overdue("a statement took too long, and was cancelled")


def connect(conninfo: str, queries: dict[str, bytes], timeout: float) -> Line:
    """A new connection. Raises `MissingExtra`, `InvalidURL`, and `Lost` if the server can't be reached now."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtra("PostgreSQL needs psycopg", extra="postgres") from error
    try:
        connection = psycopg.Connection.connect(conninfo, autocommit=True, prepare_threshold=None)
        # Text goes both ways as it is, whatever encoding the environment or the address is set to.
        kept = connection.info.parameter_status("server_encoding")
        if kept and kept != connection.info.parameter_status("client_encoding"):
            connection.execute(f"SET client_encoding TO '{kept}'".encode())
    except psycopg.ProgrammingError as error:
        raise misunderstood(error) from None
    except psycopg.OperationalError as error:
        text = _short(error)
        # libpq tells of a failed connection in words only; those of the server keep their SQLSTATE in none of its answers.
        if any(sign in text for sign in _REFUSALS):
            raise InvalidURL(
                f"the database can't be opened: {text}", hint="check the name, the user and the password in the address"
            ) from error
        raise Lost(text) from error
    return Line(connection, queries, timeout)


def misunderstood(error: psycopg.ProgrammingError) -> InvalidURL:
    """What libpq says of an address is told where it names an option, and nowhere else: it quotes, and that may be a password."""
    text = _short(error)
    return InvalidURL("the address of the database can't be understood" + (f": {text}" if "query parameter" in text else ""), hint=HINT)


def translate(error: Failed, doing: str) -> PerdureError:
    """What an error of PostgreSQL means for whoever asked."""
    text = f"{doing}: {error.message}"
    match error.sqlstate:
        case "PD001":
            return UsageError(error.message)
        case "PD002":
            return StoreBroken(error.message, hint="look for a trigger that ignores rows")
        case "PD003":
            return StoreCorrupt(error.message, hint="run `perdure verify`")
        case "53100" | "54023" | "53400":
            return StoreFull(text, hint="make room; nothing of this write was kept")
        case "25006" | "42501":
            return StoreReadOnly(text, hint="connect to the primary, as a role that may write")
        case "42P01" | "42703" | "42704" | "42883" | "3F000" | "42804" | "42846":
            return FormatUnknown(text, hint="the schema was renewed by a newer perdure, or is not what perdure made")
        case "22021" | "22P05":
            return UsageError(text, hint="the text holds what the database can't keep; its encoding must be UTF8")
        case "57014":
            return StoreBroken(text, hint="somebody cancelled the statement; it is safe to try again")
        case state if state[:2] == "XX":
            return StoreCorrupt(text, hint="restore the database from a backup")
        case state if error.again:
            return StoreBroken(text, hint="others were in the way; it is safe to try again")
        case state:
            return StoreBroken(f"{text} [{state}]")


def _field(result: Any, code: int) -> str:
    raw = result.error_field(code)
    return "" if raw is None else raw.decode(errors="replace")


def _said(pg: PGconn) -> str:
    return " ".join(pg.get_error_message().split())


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())
