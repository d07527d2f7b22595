"""The lines of an export: what each holds, and in which order they may stand."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ...store.base import SessionStatus, UniqueState

__all__ = [
    "DECODER",
    "FORMAT",
    "LINE_LIMIT",
    "ORDER",
    "PIECE",
    "AnyLine",
    "BlobLine",
    "EffectLine",
    "EndLine",
    "EntryLine",
    "Header",
    "Line",
    "PieceLine",
    "SessionLine",
    "SubmissionLine",
    "UniqueLine",
    "body_of",
    "may_follow",
    "raw_of",
]

FORMAT = 1

LINE_LIMIT = 24 * 1024 * 1024
"""The longest line (bytes): a reported result of 16 MiB that still waits is the longest row."""

PIECE = 1024 * 1024
"""How much content stands on one line (bytes)."""


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """One line."""


class Header(Line, tag="perdure", frozen=True):
    format: int
    store: str
    sessions: int
    entries: int


class SessionLine(Line, tag="session", frozen=True):
    session_id: str
    root: str
    parent: str | None
    parent_kind: str | None
    agent: str
    version: int
    fence: int
    claims: int
    inbox_head: int
    wake_at: int | None
    status: SessionStatus
    owner: str
    title: str
    labels: dict[str, str]
    created: int
    updated: int
    checkpoint: msgspec.Raw


class EntryLine(Line, tag="entry", frozen=True):
    seq: int
    number: int
    kind: str
    at: int
    salt: str | None
    body_digest: str
    chain: str
    body: msgspec.Raw


class SubmissionLine(Line, tag="submission", frozen=True):
    submission_id: str
    arrival: int
    kind: str
    at: int
    not_before: int | None
    actor: str
    digest: str
    body: msgspec.Raw
    consumed_seq: int | None
    settled_seq: int | None


class EffectLine(Line, tag="effect", frozen=True):
    effect_key: str
    seq: int
    state: str


class UniqueLine(Line, tag="unique", frozen=True):
    key: str
    operation: str
    state: UniqueState
    seq: int


class BlobLine(Line, tag="blob", frozen=True):
    root: str
    digest: str
    media_type: str
    size: int


class PieceLine(Line, tag="piece", frozen=True):
    data: str


class EndLine(Line, tag="end", frozen=True):
    submissions: int
    effects: int
    blobs: int
    digest: str


AnyLine: TypeAlias = Header | SessionLine | EntryLine | SubmissionLine | EffectLine | UniqueLine | BlobLine | PieceLine | EndLine
DECODER: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)
ORDER = {SessionLine: 1, EntryLine: 2, SubmissionLine: 3, EffectLine: 4, UniqueLine: 5, BlobLine: 6, PieceLine: 7, EndLine: 8}


def raw_of(body: bytes | None) -> msgspec.Raw:
    """A stored body as it stands on a line, byte for byte; null if there is none any more."""
    return msgspec.Raw(b"null" if body is None else body)


def body_of(raw: msgspec.Raw) -> bytes | None:
    data = bytes(raw)
    return None if data == b"null" else data


def may_follow(before: type[Line], kind: type[Line]) -> bool:
    """Rows of a session stand in their order, and sessions before content."""
    if kind is SessionLine:
        return before in (Header, EntryLine, SubmissionLine, EffectLine, UniqueLine)
    if kind is BlobLine:
        return ORDER[before] >= ORDER[EntryLine]
    if kind is PieceLine:
        return before in (BlobLine, PieceLine)
    return before is not Header and ORDER[before] <= ORDER[kind]
