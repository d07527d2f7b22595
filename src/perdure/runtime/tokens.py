"""Callback tokens: whoever holds one may report the result of one attempt, and of no other."""

from __future__ import annotations

import hashlib
from functools import partial

from ..core.errors import UsageError
from .signed import pack, unpack

__all__ = ["LIMIT", "issue", "read"]

LIMIT = 32 * 1024
"""Longer than any token (bytes)."""


def issue(secret: bytes, session_id: str, operation: str, attempt: int) -> str:
    """A token for one attempt, signed with the store's secret."""
    return pack([session_id, operation, attempt], partial(_signature, secret))


def read(secret: bytes, token: str) -> tuple[str, str, int]:
    """Session, operation and attempt. Raises `UsageError` if this store didn't issue the token."""
    claim = unpack(token, tuple[str, str, int], partial(_signature, secret))
    if claim is None:
        raise UsageError("the callback token is not one of this store's", hint="pass ctx.callback_token as the tool got it")
    return claim


def _signature(secret: bytes, claim: str) -> str:
    return hashlib.blake2b(claim.encode(), key=secret, digest_size=32).hexdigest()
