"""What a list of sessions shows, and how it goes on from page to page."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal, get_args

import msgspec

from ..core import canonical
from ..core.errors import UsageError
from ..store.base import SessionQuery, SessionRow, SessionStatus
from .about import check_labels, check_text
from .signed import pack, unpack

__all__ = ["PAGE_LIMIT", "continued", "query", "token"]

PAGE_LIMIT = 1000
"""The most sessions of one page."""

WORDS_LIMIT = 16
"""The most words that a title can be searched for at once."""

STATUSES = get_args(SessionStatus)


def query(
    *,
    owner: str | None,
    status: str | Iterable[str] | None,
    agent: str | None,
    labels: dict[str, str] | None,
    words: str | Iterable[str],
    since: int | None,
    until: int | None,
    archived: bool,
    children: bool,
    order: Literal["updated", "created"],
    limit: int,
) -> SessionQuery:
    """The filters of a list, as a store takes them. Raises `UsageError` for those that are none."""
    wanted = _texts(status or (), "status")
    for item in wanted:
        if item not in STATUSES:
            raise UsageError(f"{item!r:.40} is no status", hint=", ".join(STATUSES))
    found = _texts(words.split() if isinstance(words, str) else words, "words")
    if len(found) > WORDS_LIMIT:
        raise UsageError(f"{len(found)} words are too many to search for", hint=f"at most {WORDS_LIMIT}")
    if type(limit) is not int or not 1 <= limit <= PAGE_LIMIT:
        raise UsageError(f"limit={limit!r:.40} is no size of a page", hint=f"1 to {PAGE_LIMIT}")
    if order not in ("updated", "created"):
        raise UsageError(f"order={order!r:.40} is unknown", hint='"updated" or "created"')
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and (type(moment) is not int or not -canonical.MAX_INTEGER <= moment <= canonical.MAX_INTEGER):
            raise UsageError(f"{name}={moment!r:.40} is no time", hint="milliseconds since 1970, as an int")
    return SessionQuery(
        owner=owner,
        status=wanted,  # type: ignore[arg-type]
        archived=bool(archived),
        children=bool(children),
        agent=None if agent is None else check_text(agent, "agent"),
        labels=check_labels(labels) if labels else {},
        words=found,
        since=since,
        until=until,
        order=order,
        limit=limit,
    )


def _texts(value: Any, what: str) -> tuple[str, ...]:
    try:
        items = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        raise UsageError(f"{what}={value!r:.40} is neither text nor several") from None
    return tuple(check_text(item, what) for item in items)


def token(asked: SessionQuery, secret: bytes, last: SessionRow, *besides: str) -> str:
    """What the page after ``last`` goes on after; ``besides`` is what the list asks for that the query doesn't say."""
    return pack([last.updated, last.no], partial(_signature, asked, besides, secret))


def continued(asked: SessionQuery, secret: bytes, after: str | None, *besides: str) -> SessionQuery:
    """The query for the page behind a token. Raises `UsageError` if no list of these filters in this store gave it."""
    if after is None:
        return asked
    before = unpack(after, tuple[int, int], partial(_signature, asked, besides, secret)) if isinstance(after, str) else None
    if before is None:
        raise UsageError("the paging token is not one of this list's", hint="pass `next` of the page before, with the same filters")
    return msgspec.structs.replace(asked, before=before)


def _signature(asked: SessionQuery, besides: tuple[str, ...], secret: bytes, place: str) -> str:
    """Binds a place to the store and to what was asked for; the size of pages may change."""
    facts = canonical.encode([msgspec.to_builtins(msgspec.structs.replace(asked, before=None, limit=0)), [*besides], place])
    return hashlib.blake2b(facts, key=secret, digest_size=16, person=b"perdure list").hexdigest()
