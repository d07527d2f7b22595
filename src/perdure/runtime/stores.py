"""From an address to a store."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from ..core.errors import InvalidURL
from ..store.base import Store
from .clock import Clock

__all__ = ["store_at"]


def store_at(url: str, clock: Clock | None = None) -> Store:
    """The store that an address means. Raises `InvalidURL`."""
    now = None if clock is None else clock.now
    if not isinstance(url, str) or not url.strip():
        raise InvalidURL("the address of the store is empty", hint='"agents.db", "sqlite:///path/to/agents.db" or "memory://"')
    scheme, separator, _ = url.partition("://")
    if not separator:
        from ..store.sqlite import SQLiteStore

        return SQLiteStore(url, clock=now)
    match scheme:
        case "memory":
            from ..store.memory import MemoryStore

            return MemoryStore(clock=now)
        case "sqlite":
            from ..store.sqlite import SQLiteStore

            parts = urlsplit(url)
            if parts.netloc or not parts.path.strip("/"):
                raise InvalidURL(f"{url!r} names no file", hint="sqlite:///relative.db, or sqlite:////absolute/path.db")
            return SQLiteStore(unquote(parts.path[1:]), clock=now)
        case "postgresql" | "postgres":
            raise InvalidURL("this version of perdure has no PostgreSQL store", hint="use a SQLite file")
        case _:
            raise InvalidURL(f"{scheme}:// is no store that perdure knows", hint='a path, "sqlite:///path" or "memory://"')
