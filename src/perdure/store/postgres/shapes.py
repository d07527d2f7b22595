"""Our records as the rows and types of the schema, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from ...core import canonical
from ...core.journal import Sealed
from ...core.records import Amounts, Limits, Pool
from .. import rules
from ..base import Catalogue, Commit, EffectRow, InboxRow, NewSession, OutsideBlob, Send, SessionRow, SessionStatus, StoredBlob, UniqueRow
from ..pools import Draw, Share
from .wire import BOOL, BYTEA, INT8, INT8S, TEXT, TEXTS, Shape, array, composite, escape, unescape

__all__ = ["Shapes", "inbox", "labels", "limits", "listed", "pool", "session", "share", "unique"]

_limits = msgspec.json.Decoder(Limits)
_session_columns = tuple(name for name in SessionRow.__struct_fields__ if name != "problem")
_inbox_columns = InboxRow.__struct_fields__


class Shapes:
    """How records are written for one database, whose types have numbers of their own. ``oids``: those of a type and of its arrays."""

    def __init__(self, oids: dict[str, tuple[int, int]]) -> None:
        def of(name: str, *fields: Shape) -> Shape:
            return composite(*oids[name], fields)

        entry = of("entry", INT8, INT8, TEXT, INT8, BYTEA, BYTEA, BYTEA, BYTEA)
        submission = of("submission", TEXT, INT8, TEXT, INT8, INT8, TEXT, TEXT, BYTEA, INT8, INT8)
        mark = of("mark", TEXT, INT8)
        edit = of("edit", TEXT, BYTEA)
        effect = of("effect", BYTEA, INT8, TEXT)
        self._amounts = of("amounts", *(INT8 for _ in Amounts.__struct_fields__))
        draw = of("draw", TEXT, TEXT, self._amounts, self._amounts, BOOL)
        self._blob = of("blob", TEXT, TEXT, INT8, BYTEA)
        self._listing = of("listing", TEXT, INT8, TEXT, TEXT, TEXT, TEXT)
        self._entries, self._submissions, self._effects, self._blobs = array(entry), array(submission), array(effect), array(self._blob)
        marks = array(mark)
        self._commit = of(
            "commit",
            *(INT8, INT8, INT8, INT8, TEXT, INT8, self._entries, BYTEA),
            *(marks, marks, array(edit), TEXTS, self._submissions),
            *(INT8S, TEXTS, self._effects, array(of("take", TEXT, TEXT)), array(of("decision", TEXT, TEXT, INT8)), self._blobs),
            *(self._listing, TEXT, BOOL, BOOL, BOOL, INT8, array(draw)),
        )
        self._beginning = of("beginning", TEXT, TEXT, TEXT, TEXT, INT8, self._entries, BYTEA, self._listing, self._blobs)
        self._send = of("send", TEXT, submission, BOOL, BOOL, TEXT, self._blobs, self._beginning)
        self._commits, self._sends = array(self._commit._replace(encode=bytes)), array(self._send._replace(encode=bytes))

    def commit(self, token: int, commit: Commit) -> bytes:
        return self._commit.encode(_commit(token, commit))

    def send(self, send: Send) -> bytes:
        return self._send.encode(_send(send))

    def commits(self, written: Sequence[bytes]) -> bytes:
        """Many of what `commit` returned."""
        return self._commits.encode(written)

    def sends(self, written: Sequence[bytes]) -> bytes:
        """Many of what `send` returned."""
        return self._sends.encode(written)

    def beginning(self, new: NewSession, at: int) -> bytes:
        return self._beginning.encode(_beginning(new, at))

    def listing(self, catalogue: Catalogue) -> bytes:
        return self._listing.encode(_listing(catalogue))

    def amounts(self, value: Amounts) -> bytes:
        return self._amounts.encode(astuple(value))

    def blob(self, blob: StoredBlob | OutsideBlob) -> bytes:
        return self._blob.encode(_blob(blob))

    def blobs(self, blobs: Iterable[StoredBlob | OutsideBlob]) -> bytes:
        return self._blobs.encode([_blob(blob) for blob in blobs])

    def entries(self, entries: Iterable[Sealed]) -> bytes:
        return self._entries.encode([_entry(entry) for entry in entries])

    def submissions(self, rows: Iterable[InboxRow]) -> bytes:
        return self._submissions.encode([_submission(row) for row in rows])

    def effects(self, rows: Iterable[EffectRow]) -> bytes:
        return self._effects.encode([_effect(row) for row in rows])


def _entry(entry: Sealed) -> tuple[Any, ...]:
    return (entry.seq, entry.number, entry.kind, entry.at, entry.salt, entry.body_digest, entry.body, entry.chain)


def _submission(row: InboxRow) -> tuple[Any, ...]:
    return (
        *(row.submission_id, row.arrival, row.kind, row.at, row.not_before, row.actor, row.digest, row.body),
        *(row.consumed_seq, row.settled_seq),
    )


def _effect(row: EffectRow) -> tuple[Any, ...]:
    return (row.effect_key, row.seq, row.state)


def _draw(draw: Draw) -> tuple[Any, ...]:
    return (draw.owner, draw.pool, astuple(draw.drawn), astuple(draw.used), draw.ends)


def _blob(blob: StoredBlob | OutsideBlob) -> tuple[Any, ...]:
    if isinstance(blob, StoredBlob):
        return (blob.digest, blob.media_type, len(blob.data), blob.data)
    return (blob.digest, blob.media_type, blob.size, None)


def _listing(catalogue: Catalogue) -> tuple[Any, ...]:
    title = catalogue.title
    return (catalogue.status, catalogue.wake_at, title, title.casefold(), labels(catalogue.labels), catalogue.agent)


def _commit(token: int, commit: Commit) -> tuple[Any, ...]:
    claim = commit.claim
    return (
        *(token, commit.no, commit.version, commit.fence, commit.holder, commit.at),
        [_entry(entry) for entry in commit.entries] or None,
        commit.checkpoint,
        *(commit.consumed or None, commit.settled or None),
        [(row.submission_id, row.body) for row in commit.edited] or None,
        commit.dropped or None,
        [_submission(row) for row in commit.received] or None,
        *(commit.redacted or None, commit.erased or None),
        [_effect(row) for row in commit.effects] or None,
        *(commit.taken or None, commit.decided or None),
        [_blob(blob) for blob in commit.blobs] or None,
        None if commit.catalogue is None else _listing(commit.catalogue),
        *(None if claim is None else claim.runner, claim is not None and claim.force),
        *(commit.release, commit.progress, commit.inbox_head),
        [_draw(draw) for draw in commit.draws] or None,
    )


def _beginning(new: NewSession, at: int) -> tuple[Any, ...]:
    return (
        *(new.root, new.parent, new.parent_kind, new.owner, at),
        *([_entry(entry) for entry in new.entries], new.checkpoint, _listing(new.catalogue)),
        [_blob(blob) for blob in new.blobs] or None,
    )


def _send(send: Send) -> tuple[Any, ...]:
    row = (send.submission_id, 0, send.kind, send.at, send.not_before, send.actor, send.digest, send.body, None, None)
    return (
        *(send.session_id, row, send.urgent, send.patient, send.owner),
        [_blob(blob) for blob in send.blobs] or None,
        None if send.create is None else _beginning(send.create, send.at),
    )


def unique(row: tuple[Any, ...]) -> UniqueRow:
    key, operation, state, seq, no, session_id, deleted = row
    return UniqueRow(key=key, operation=operation, state=state, seq=seq, no=no, session_id=session_id, deleted=deleted)


def limits(value: Limits) -> str:
    return canonical.encode(value).decode()


def pool(row: tuple[Any, ...]) -> Pool:
    name, allowed, drawn = row
    return Pool(id=name, limits=_limits.decode(allowed), drawn=_amounts_of(drawn))


def share(row: tuple[Any, ...]) -> Share:
    owner, name, drawn, used = row
    return Share(owner=owner, pool=name, drawn=_amounts_of(drawn), used=_amounts_of(used))


def _amounts_of(row: tuple[int, ...]) -> Amounts:
    return Amounts(**dict(zip(Amounts.__struct_fields__, row, strict=True)))


def labels(value: dict[str, str]) -> str:
    return canonical.encode({escape(label): escape(text) for label, text in value.items()}).decode()


def inbox(row: tuple[Any, ...]) -> InboxRow:
    return InboxRow(**dict(zip(_inbox_columns, row, strict=True)))


def session(row: tuple[Any, ...]) -> SessionRow:
    values = dict(zip(_session_columns, row, strict=True))
    found, values["problem"] = rules.read_labels(values["labels"])
    values["labels"] = {unescape(label): unescape(text) for label, text in found.items()}
    return SessionRow(**values)


def listed(row: tuple[Any, ...]) -> SessionRow:
    """`session`, or what is left of a row that can't be read."""
    try:
        found = session(row)
        msgspec.convert(found.status, SessionStatus)
        return found
    except msgspec.MsgspecError as error:
        values = dict(zip(_session_columns, row, strict=True))
        return SessionRow(**{**values, "status": "halted", "labels": {}, "problem": f"its row in the list can't be read: {error}"})
