"""Between rows and records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...core import canonical
from ...core.records import Amounts, Limits, Pool
from .. import rules
from ..base import InboxRow, SessionRow, UniqueRow
from ..pools import Share

__all__ = [
    "broken",
    "fragment",
    "holds_labels",
    "holds_words",
    "inbox",
    "labels",
    "likely",
    "listed",
    "names",
    "pool",
    "session",
    "share",
    "unique",
]

LIKE_LENGTH = 100
"""How much of a word SQLite looks for (characters)."""

_names = msgspec.json.Decoder(list[str])
_limits = msgspec.json.Decoder(Limits)
_amounts = msgspec.json.Decoder(Amounts)
_inbox_columns = (
    "submission_id",
    "arrival",
    "kind",
    "at",
    "not_before",
    "actor",
    "digest",
    "body",
    "consumed_seq",
    "settled_seq",
)
_session_columns = (
    "no",
    "session_id",
    "root",
    "parent",
    "parent_kind",
    "agent",
    "version",
    "fence",
    "holder",
    "claims",
    "inbox_head",
    "wake_at",
    "status",
    "owner",
    "title",
    "labels",
    "created",
    "updated",
    "checkpoint",
)


def labels(value: dict[str, str]) -> str:
    return canonical.encode(value).decode()


def names(value: Any) -> str:
    """A list for ``json_each``."""
    return canonical.encode(list(value)).decode()


def unique(row: Any) -> UniqueRow:
    key, operation, state, seq, no, session_id, deleted = row
    return UniqueRow(key=key, operation=operation, state=state, seq=seq, no=no, session_id=session_id, deleted=bool(deleted))


def inbox(row: Any) -> InboxRow:
    return InboxRow(**dict(zip(_inbox_columns, row, strict=True)))


def session(row: Any) -> SessionRow:
    values = dict(zip(_session_columns, row, strict=True))
    values["labels"], values["problem"] = rules.read_labels(values["labels"])
    return SessionRow(**values)


def listed(row: Any) -> SessionRow:
    """`session`, and every column is what it should be. Raises `msgspec.ValidationError`."""
    values = dict(zip(_session_columns, row, strict=True))
    values["labels"], values["problem"] = rules.read_labels(values["labels"])
    checkpoint = values.pop("checkpoint")
    if not isinstance(checkpoint, bytes):
        raise msgspec.ValidationError("the checkpoint is no blob")
    row_without: SessionRow = msgspec.convert({**values, "checkpoint": b""}, SessionRow)
    return msgspec.structs.replace(row_without, checkpoint=checkpoint)


def broken(no: int, row: Any, why: str) -> SessionRow:
    """A row that can't be read, with what is left of it."""
    session_id, owner, title = ((value or b"").decode(errors="replace") for value in row)
    return SessionRow(
        no=no,
        session_id=session_id,
        root="",
        parent=None,
        parent_kind=None,
        agent="",
        version=0,
        fence=0,
        holder=None,
        claims=0,
        inbox_head=0,
        wake_at=None,
        status="halted",
        owner=owner,
        title=title,
        labels={},
        created=0,
        updated=0,
        checkpoint=b"",
        problem=f"its row in the list can't be read: {why}",
    )


def pool(row: Any) -> Pool:
    """A pool from its columns."""
    return Pool(id=row[0], limits=_limits.decode(row[1]), drawn=_amounts.decode(row[2]))


def share(row: Any) -> Share:
    """What a session holds, from its columns."""
    return Share(owner=row[0], pool=row[1], drawn=_amounts.decode(row[2]), used=_amounts.decode(row[3]))


def holds_words(*given: Any) -> bool:
    """Whether a title holds all of some casefolded words; for SQL."""
    title, words = given
    folded = title.decode(errors="replace").casefold() if isinstance(title, bytes) else ""
    return all(word in folded for word in _names.decode(words))


def likely(words: Iterable[str]) -> str:
    """The pattern of the longest word's beginning: no ASCII title without it holds them all. Of the others only `holds_words` can tell."""
    return rules.pattern(max((word.casefold() for word in words), key=len)[:LIKE_LENGTH])


def fragment(wanted: dict[str, str]) -> str:
    """What is written in all labels, as `labels` writes them, that hold the longest of the wanted ones."""
    return max((labels({label: value})[1:-1] for label, value in wanted.items()), key=len)


def holds_labels(*given: Any) -> bool:
    """Whether labels hold all of some others; for SQL. Those that can't be read hold none."""
    held, wanted = (rules.read_labels(labels)[0] for labels in given)
    return all(held.get(label) == value for label, value in wanted.items())
