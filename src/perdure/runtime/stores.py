"""From an address to a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

from ..core.errors import InvalidURL, UsageError
from ..store.base import Store
from .clock import Clock

__all__ = ["store_at"]


def store_at(url: str | os.PathLike[str], clock: Clock | None = None, *, make: bool = True) -> Store:
    """The store that an address means. Raises `InvalidURL`, and `UsageError` for a file on Windows.

    Without ``make``, opening it where a database has none raises `UsageError`.
    """
    now = None if clock is None else clock.now
    url = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(url, str) or not url.strip():
        raise InvalidURL("the address of the store is empty", hint='"agents.db", "sqlite:///path/to/agents.db" or "memory://"')
    scheme, separator, _ = url.partition("://")
    if not separator:
        return _file(url, now)
    match scheme:
        case "memory":
            from ..store.memory import MemoryStore

            return MemoryStore(clock=now)
        case "sqlite":
            parts = urlsplit(url)
            if parts.netloc or not parts.path.strip("/"):
                raise InvalidURL(f"{url!r} names no file", hint="sqlite:///relative.db, or sqlite:////absolute/path.db")
            store = _file(unquote(parts.path[1:]), now)
            return _with_blobs(url, parts.query, store) if parts.query else store
        case "postgresql" | "postgres":
            from ..store.postgres import PostgresStore

            database = PostgresStore(url, clock=now, make=make)
            return _outside(database, database.address.blobs) if database.address.blobs else database
        case _:
            raise InvalidURL(
                f"{scheme}:// is no store that perdure knows", hint='a path, "sqlite:///path", "postgresql://…" or "memory://"'
            )


def _file(path: str, now: Callable[[], int] | None) -> Store:
    if sys.platform == "win32":
        raise UsageError(
            "a store in a file needs locks that Windows doesn't have", hint="run it under WSL, or use postgresql://… or memory://"
        )
    from ..store.sqlite import SQLiteStore

    return SQLiteStore(path, clock=now)


def _with_blobs(url: str, query: str, store: Store) -> Store:
    match parse_qsl(query, keep_blank_values=True):
        case [("blobs", directory)] if directory:
            return _outside(store, directory)
        case _:
            raise InvalidURL(
                f"{url!r} asks for something that isn't known", hint="sqlite:///path.db?blobs=directory is all that can be asked"
            )


def _outside(store: Store, directory: str) -> Store:
    from ..store.blobs import DirectoryBlobs
    from ..store.outside import WithBlobs

    return WithBlobs(store, DirectoryBlobs(directory))
