"""The form in which entries are stored: header, salted body, hash chain."""

from __future__ import annotations

import hashlib

import msgspec

from . import canonical, entries
from .entries import Entry
from .errors import LimitExceeded, StoreCorrupt

__all__ = ["BODY_LIMIT", "GENESIS", "SALT_BYTES", "Sealed", "body_digest", "link", "open_entry", "seal"]

BODY_LIMIT = 1024 * 1024
"""The longest body of an entry (bytes)."""

SALT_BYTES = 16

GENESIS = bytes(32)
"""The chain before the first entry of a session without a parent."""


class Sealed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry as a row. ``body`` and ``salt`` are ``None`` once it was redacted; the chain needs only ``body_digest``."""

    seq: int
    number: int
    kind: str
    at: int
    salt: bytes | None
    body_digest: bytes
    body: bytes | None
    chain: bytes


def body_digest(salt: bytes, body: bytes) -> bytes:
    """What the chain knows of a body; the salt keeps a short body from being guessed once it was redacted."""
    return hashlib.sha256(salt + body).digest()


def link(chain: bytes, session_id: str, seq: int, number: int, kind: str, at: int, digest: bytes) -> bytes:
    """The next value of the chain."""
    return hashlib.sha256(chain + canonical.encode([session_id, seq, number, kind, at]) + digest).digest()


def seal(entry: Entry, *, chain: bytes, session_id: str, salt: bytes) -> Sealed:
    """An entry ready to be stored behind ``chain``.

    Raises `LimitExceeded` if its body is longer than `BODY_LIMIT`.
    """
    body = entries.encode(entry)
    if len(body) > BODY_LIMIT:
        raise LimitExceeded(
            f"an entry of kind {entry.kind} has {len(body)} bytes; at most {BODY_LIMIT} are kept",
            hint="send less at once, or keep large content outside and pass a reference",
            limit="entry_body",
        )
    digest = body_digest(salt, body)
    return Sealed(
        entry.seq,
        entry.number,
        entry.kind,
        entry.at,
        salt,
        digest,
        body,
        link(chain, session_id, entry.seq, entry.number, entry.kind, entry.at, digest),
    )


def open_entry(sealed: Sealed) -> Entry:
    """The entry in a row.

    Raises `StoreCorrupt` if the bytes can't be an entry of that kind, `FormatUnknown` if this version doesn't have the kind.
    """
    salt, body = sealed.salt, sealed.body
    if body is None:
        raise StoreCorrupt(f"entry {sealed.seq} has no body", hint="run `perdure verify`")
    # `body_digest`, written out: a session is taken up at the speed of this.
    if salt is not None and hashlib.sha256(salt + body).digest() != sealed.body_digest:
        raise StoreCorrupt(f"entry {sealed.seq} is not what was written", hint="run `perdure verify`")
    try:
        return entries.decode(sealed.kind, body, sealed.seq, sealed.number, sealed.at)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"entry {sealed.seq} can't be read: {error}", hint="run `perdure verify`") from error
