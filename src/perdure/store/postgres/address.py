"""The parts of a ``postgresql://`` address that are ours, and those that are libpq's."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from ...core.errors import InvalidURL
from .sql import SCHEMA

__all__ = ["Address", "parse"]

DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "perdure",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
"""What an address that says nothing else gets (libpq's names). A host that is gone is noticed in a minute, not after `LONG`."""

SCHEMA_LIMIT = 40
"""The longest name of a schema (bytes)."""

_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})|%00")
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")


class Address(NamedTuple):
    """Where a store lies. ``shown`` names it in errors, without user and password. ``blobs``: the directory of content that stands outside.

    ``listen``: whether a connection may be kept that others' announcements come over, which a pooler in transaction mode can't give.
    """

    conninfo: str
    schema: str
    shown: str
    listen: bool
    blobs: str | None


def parse(url: str) -> Address:
    """Raises `InvalidURL`, which quotes nothing that may be a password. What is libpq's is checked by libpq, when the store is opened."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidURL("the address of the database can't be understood", hint=f"{HINT}; {ESCAPES}") from None
    hosts = parts.netloc.rpartition("@")[2]
    if "#" in url or url.count("@") > parts.netloc.count("@") or parts.netloc.count("@") > 1 or _NO_ESCAPE.search(url):
        raise InvalidURL("the address of the database has a character that must be written otherwise there", hint=ESCAPES)
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise InvalidURL("the address of the database has a port that is no number", hint=f"{HINT}; {ESCAPES}")
    options = dict(given)
    if len(options) < len(given):
        raise InvalidURL("the address of the database says something twice", hint=HINT)
    schema = options.pop("schema", SCHEMA)
    if not schema or not schema.isprintable() or len(schema.encode()) > SCHEMA_LIMIT or schema.startswith("pg_"):
        raise InvalidURL(f"{schema!r:.60} can't be a schema", hint=f"1 to {SCHEMA_LIMIT} bytes of printable text, not beginning with pg_")
    listen = options.pop("listen", "yes")
    if listen not in ("yes", "no"):
        raise InvalidURL(f"listen={listen!r:.40} is neither yes nor no", hint="no behind a pooler in transaction mode")
    blobs = options.pop("blobs", None)
    if blobs == "":
        raise InvalidURL("blobs= names no directory", hint=HINT)
    query = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in {**DEFAULTS, **options}.items())
    host = hosts or options.get("host", "")
    database = parts.path.strip("/")
    shown = f"postgresql://{host}/{database}" + (f"?schema={schema}" if schema != SCHEMA else "")
    # Not `urlunsplit`, which leaves out the slashes of an address without a host: a database at the local socket.
    return Address(f"postgresql://{parts.netloc}{parts.path}?{query}", schema, shown, listen == "yes", blobs)


HINT = "postgresql://user@host/database?schema=name; whatever libpq knows may follow too, as in ?sslmode=verify-full"

ESCAPES = "in a user, a password or an option write / ? # [ ] @ % as %2F %3F %23 %5B %5D %40 %25"
