"""A user's statements inside a commit's transaction: what they may do there, for how long, and how they are undone."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from ...core.errors import StoreBroken, TransactionLost
from .lent import Lent
from .sql import QUERIES, SCHEMA

__all__ = ["SECONDS", "run_within"]

SECONDS = 5.0
"""How long a user's SQL may work inside one commit (seconds): nobody else writes meanwhile."""

_OPCODES = 10_000
"""After so many steps of SQLite's machine the time is looked at; a few hundred microseconds."""

_OURS = frozenset(re.findall(r"^CREATE TABLE (\w+)", SCHEMA, flags=re.MULTILINE))
_SAVEPOINTS = frozenset({"member", "within"})
_READING = frozenset(
    ("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list", "foreign_key_check")
)
"""The pragmas that only tell something."""

_T = TypeVar("_T")
_log = logging.getLogger("perdure.store")

_NEVER = frozenset(
    {
        apsw.SQLITE_TRANSACTION,
        apsw.SQLITE_ATTACH,
        apsw.SQLITE_DETACH,
        # What it learns decides how our own statements run.
        apsw.SQLITE_ANALYZE,
        # They would outlive the transaction, and hide a table of ours from us.
        apsw.SQLITE_CREATE_TEMP_TABLE,
        apsw.SQLITE_CREATE_TEMP_VIEW,
        apsw.SQLITE_CREATE_TEMP_TRIGGER,
        apsw.SQLITE_CREATE_TEMP_INDEX,
    }
)
_ON_FIRST = frozenset(
    {
        apsw.SQLITE_INSERT,
        apsw.SQLITE_UPDATE,
        apsw.SQLITE_DELETE,
        apsw.SQLITE_CREATE_TABLE,
        apsw.SQLITE_DROP_TABLE,
        apsw.SQLITE_CREATE_VTABLE,
        apsw.SQLITE_DROP_VTABLE,
        apsw.SQLITE_CREATE_VIEW,
    }
)
"""What is done to the table that is named first; to the one that is named second it is what follows."""
_ON_SECOND = frozenset(
    {
        apsw.SQLITE_ALTER_TABLE,
        apsw.SQLITE_CREATE_INDEX,
        apsw.SQLITE_DROP_INDEX,
        apsw.SQLITE_CREATE_TRIGGER,
        apsw.SQLITE_DROP_TRIGGER,
    }
)


def run_within(connection: apsw.Connection, function: Callable[[Any], _T]) -> _T:
    """Let a function work in the transaction that is open; what it wrote stays only if it returns.

    It gets a `Lent`, and may do what it likes with tables of its own. Writing to the store's, ending the transaction, and what outlives it
    are refused: `apsw.AuthError` is raised then. Raises what the function raises; `TransactionLost` if the transaction was ended all the
    same, or if its SQL worked for longer than `SECONDS`; `StoreBroken` if SQLite can't undo it.
    """
    end = time.monotonic() + SECONDS
    failure: BaseException | None = None
    lent = Lent(connection)
    interrupted = False

    def too_late() -> bool:
        nonlocal interrupted
        interrupted = time.monotonic() > end
        return interrupted

    _own(connection, "within")
    connection.cursor_factory = lent.make_cursor
    connection.set_authorizer(_allowed)
    # A COMMIT in there would make the writes before this one durable without an answer; the hook turns it into a rollback, which is seen.
    connection.set_commit_hook(lambda: True)
    connection.set_progress_handler(too_late, _OPCODES)
    try:
        result = function(lent)
    except BaseException as error:
        failure = error
    finally:
        if time.monotonic() > end:
            _log.warning("a function worked in a commit's transaction for more than %g s; nobody else could write meanwhile", SECONDS)
        lent.over()
        connection.set_progress_handler(None)
        connection.set_commit_hook(None)
        connection.set_authorizer(None)
        connection.cursor_factory = apsw.Cursor
    if interrupted:
        # Also if the function took it for an error of its own, and went on.
        failure = TransactionLost(f"its SQL worked for longer than {SECONDS:g} s", hint="do less in one transaction")
    if not connection.in_transaction:
        if isinstance(failure, TransactionLost):
            raise failure
        lost = TransactionLost("the function ended the transaction that it ran in", hint="leave COMMIT, ROLLBACK and OR ROLLBACK out of it")
        raise lost from failure
    if failure is not None:
        _own(connection, "within_undo")
    _own(connection, "within_done")
    if failure is not None:
        raise failure
    return result


def _own(connection: apsw.Connection, name: str) -> None:
    try:
        connection.execute(QUERIES[name])
    except apsw.Error as error:
        raise StoreBroken(f"a user's statements can't be told from the store's: {error}") from error


def _allowed(operation: int, one: str | None, two: str | None, database: str | None, trigger: str | None) -> int:
    if operation in _NEVER:
        return apsw.SQLITE_DENY
    if operation in _ON_FIRST:
        return _unless((one or "").lower() in _OURS)
    if operation in _ON_SECOND:
        return _unless((two or "").lower() in _OURS)
    if operation == apsw.SQLITE_READ:
        # It holds what callback tokens are signed with.
        return _unless((one or "").lower() == "meta")
    if operation == apsw.SQLITE_SAVEPOINT:
        return _unless((two or "").lower() in _SAVEPOINTS)
    if operation == apsw.SQLITE_PRAGMA:
        return _unless((one or "").lower() not in _READING)
    return apsw.SQLITE_OK


def _unless(wrong: bool) -> int:
    return apsw.SQLITE_DENY if wrong else apsw.SQLITE_OK
