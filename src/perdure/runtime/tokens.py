"""Callback tokens: whoever holds one may report the result of one attempt, and of no other."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

from ..core import canonical
from ..core.errors import UsageError

__all__ = ["LIMIT", "issue", "read"]

LIMIT = 32 * 1024
"""Longer than any token (bytes)."""


def issue(secret: bytes, session_id: str, operation: str, attempt: int) -> str:
    """A token for one attempt, signed with the store's secret."""
    claim = base64.urlsafe_b64encode(canonical.encode([session_id, operation, attempt])).decode().rstrip("=")
    return f"{claim}.{_signature(secret, claim)}"


def read(secret: bytes, token: str) -> tuple[str, str, int]:
    """Session, operation and attempt. Raises `UsageError` if this store didn't issue the token."""
    claim, _, signature = token.partition(".")
    if hmac.compare_digest(_signature(secret, claim).encode(), signature.encode()):
        try:
            session_id, operation, attempt = msgspec.json.decode(
                base64.urlsafe_b64decode(claim + "=" * (-len(claim) % 4)), type=tuple[str, str, int]
            )
            return session_id, operation, attempt
        except (msgspec.MsgspecError, binascii.Error):
            pass
    raise UsageError("the callback token is not one of this store's", hint="pass ctx.callback_token as the tool got it")


def _signature(secret: bytes, claim: str) -> str:
    return hashlib.blake2b(claim.encode(), key=secret, digest_size=32).hexdigest()
