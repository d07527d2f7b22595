"""The connection that a user's function gets: what it may do with it, and until when."""

from __future__ import annotations

from functools import partial
from typing import Any

import apsw

__all__ = ["Lent"]

_OF_USE = frozenset(
    (
        *("execute", "executemany", "cursor", "pragma", "table_exists", "column_metadata", "db_filename", "db_names", "filename"),
        *("changes", "total_changes", "last_insert_rowid", "set_last_insert_rowid", "in_transaction", "get_autocommit", "is_interrupted"),
    )
)
"""What works on the tables, or tells something. The rest would close the connection, hook into it, or stay on it afterwards."""


class Lent:
    """Stands for the writer's connection while a function works on it, and for nothing once that is `over`."""

    __slots__ = ("_connection", "_cursors", "_over")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursors: list[apsw.Cursor] = []
        self._over = False

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_USE:
            if not hasattr(apsw.Connection, name):
                raise AttributeError(f"an apsw.Connection has no {name!r}")
            raise apsw.AuthError(f"{name!r} is not for a function in a commit: the connection is the store's")
        value = getattr(self._open(), name)
        # A method that was kept would outlive what it was taken from.
        return partial(self._call, name) if callable(value) else value

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self._open(), name)(*arguments, **options)

    def __enter__(self) -> Lent:
        self._open().__enter__()
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        return self._open().__exit__(*raised)

    def make_cursor(self, connection: apsw.Connection) -> apsw.Cursor:
        """What `apsw.Connection.cursor_factory` is meanwhile."""
        self._open()
        made = _Cursor(connection)
        made.lent = self
        self._cursors.append(made)
        return made

    def over(self) -> None:
        """The function has returned. A statement that it left half done would keep the transaction from going on."""
        self._over = True
        for cursor in self._cursors:
            cursor.close(True)

    def _open(self) -> apsw.Connection:
        if self._over:
            raise apsw.ConnectionClosedError("the function that this connection was lent to is over")
        return self._connection


class _Cursor(apsw.Cursor):
    lent: Lent

    @property
    def connection(self) -> Any:  # type: ignore[override]
        return self.lent

    def get_connection(self) -> Any:
        return self.lent

    getconnection = get_connection
