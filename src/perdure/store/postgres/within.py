"""A user's statements inside a commit's transaction: what they may do there, for how long, and how they are undone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from ...core.errors import TransactionLost
from .database import Database
from .line import Failed, Line, Lost, Overdue
from .wire import TEXTS

__all__ = ["SECONDS", "run_within"]

SECONDS = 5.0
"""How long a user's SQL may work inside one commit (seconds): its session waits for it, and so do writes that share no statement."""

T = TypeVar("T")
_log = logging.getLogger("perdure.store")


def run_within(line: Line, database: Database, function: Callable[[Any], T]) -> T:
    """Let a function work in the transaction that is open; what it wrote stays only if it returns.

    It may do what it likes with tables of its own. What it set, a role or a parameter, is set no longer when this returns.

    Raises what the function raises, and what a constraint says that was put off until the end; `TransactionLost` if it ended the
    transaction, if it changed the store's tables or read its secret, or if its SQL worked for longer than `SECONDS`; `Lost` if the
    connection broke.
    """
    end = time.monotonic() + SECONDS
    line.script(database.statements("within"), timeout=SECONDS)
    before = _traces(line, database, limited=True)
    failure: BaseException | None = None
    refused: list[TransactionLost] = []
    try:
        with _watched(line, end, refused):
            result = function(line.psycopg)
    except BaseException as error:
        failure = error
    late = time.monotonic() > end
    if late:
        _log.warning("a function worked in a commit's transaction for more than %g s; its session waited meanwhile", SECONDS)
        # What was ended or refused for the time fails the function, whatever it makes of that.
        failure = refused[0] if refused else _ended_for_time(failure)
    try:
        if line.working:
            raise TransactionLost("the function left a statement half done", hint="read or close what it began") from failure
        if failure is not None:
            _undo(line, before, failure)
        _keep(line, database, before)
    except TransactionLost:
        # What is set on it is not known any more.
        line.close()
        raise
    except Lost as error:
        # The server ends a transaction that does nothing for too long.
        if late or isinstance(error, Overdue):
            raise _too_long() from error
        raise Lost(f"the connection was lost while a function used it: {failure or error}") from error
    return result


def _keep(line: Line, database: Database, before: tuple[Any, ...]) -> None:
    """What was written is part of the transaction."""
    _still_open(line, None)
    try:
        line.run("within_untimed")
        line.script(database.statements("within_over"), timeout=SECONDS)
    except Failed as error:
        failure = _as_psycopg(error)
        _undo(line, before, _ended_for_time(failure) or failure)
    after = _traces(line, database)
    if after[0] != before[0]:
        raise _ended()
    if after != before:
        raise _touched()
    try:
        line.run("within_done")
        if line.run("within_ended") != [(True,)]:
            raise _touched()
    except Failed as error:
        raise _ended() from error


def _undo(line: Line, before: tuple[Any, ...], failure: BaseException) -> NoReturn:
    """Nothing of it is, and whoever called hears why."""
    _still_open(line, failure)
    try:
        line.run("within_undo")
        same = line.run("transaction") == [before[:1]] and line.run("within_ended") == [(True,)]
    except Failed as error:
        raise _ended() from error
    if not same:
        raise _ended() from failure
    raise failure


def _still_open(line: Line, failure: BaseException | None) -> None:
    if line.closed:
        raise Lost("it is closed")
    if not line.in_transaction:
        raise _ended() from failure


def _ended() -> TransactionLost:
    return TransactionLost("the function ended the transaction that it ran in", hint="leave BEGIN, COMMIT and ROLLBACK out of it")


def _touched() -> TransactionLost:
    return TransactionLost("the function touched the store's own tables", hint="they are perdure's; use tables of your own")


def _traces(line: Line, database: Database, *, limited: bool = False) -> tuple[Any, ...]:
    """Which transaction this is, and what it has done to the store's tables. ``limited``: and from now on its statements' time is."""
    milliseconds = f"{SECONDS * 1000:.0f}" if limited else None
    # What keeps it open writes that one itself.
    tables = sorted(database.tables - {"lent"})
    (row,) = line.run("traces", database.address.schema, TEXTS.encode(tables), milliseconds)
    return row[:4]


@contextmanager
def _watched(line: Line, end: float, refused: list[TransactionLost]) -> Iterator[None]:
    """Every statement is begun in time, else it is ``refused``; and the connection is what it was afterwards."""
    # Whoever has no PostgreSQL has no psycopg.
    from .watched import NamedCursor, PlainCursor, watched

    def may_begin() -> None:
        if time.monotonic() > end:
            refused.append(_too_long())
            raise refused[-1]
        if not line.closed and not line.in_transaction:
            # Alone it would stay.
            raise _ended()

    def transaction(*arguments: Any, **options: Any) -> Any:
        may_begin()
        return type(connection).transaction(connection, *arguments, **options)

    connection = line.psycopg
    kept = connection.cursor_factory, connection.server_cursor_factory, connection.row_factory
    connection.cursor_factory = watched(PlainCursor, may_begin)
    connection.server_cursor_factory = watched(NamedCursor, may_begin)
    connection.transaction = transaction  # type: ignore[method-assign]
    try:
        yield
    finally:
        del connection.transaction
        connection.cursor_factory, connection.server_cursor_factory, connection.row_factory = kept


def _ended_for_time(failure: BaseException | None) -> BaseException | None:
    import psycopg

    return _too_long() if isinstance(failure, psycopg.errors.QueryCanceled) else failure


def _too_long() -> TransactionLost:
    return TransactionLost(f"its SQL worked for longer than {SECONDS:g} s", hint="do less in one transaction")


def _as_psycopg(error: Failed) -> BaseException:
    """What the function would have seen itself."""
    import psycopg

    try:
        return psycopg.errors.lookup(error.sqlstate)(error.message)
    except KeyError:
        return psycopg.DatabaseError(error.message)
