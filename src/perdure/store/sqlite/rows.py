"""Between rows and records."""

from __future__ import annotations

from typing import Any

import msgspec

from ...core import canonical
from ..base import InboxRow, SessionRow

__all__ = ["inbox", "labels", "names", "session"]

_labels = msgspec.json.Decoder(dict[str, str])
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


def inbox(row: Any) -> InboxRow:
    return InboxRow(**dict(zip(_inbox_columns, row, strict=True)))


def session(row: Any) -> SessionRow:
    values = dict(zip(_session_columns, row, strict=True))
    values["labels"] = _labels.decode(values["labels"])
    return SessionRow(**values)
