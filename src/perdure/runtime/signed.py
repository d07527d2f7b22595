"""Words that only this store can have given out: a claim in plain sight, and a signature that nobody else can make."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from typing import TypeVar

import msgspec

from ..core import canonical

__all__ = ["pack", "unpack"]

T = TypeVar("T")


def pack(claim: object, sign: Callable[[str], str]) -> str:
    """A claim with its signature, in characters that may stand in an address."""
    text = base64.urlsafe_b64encode(canonical.encode(claim)).decode().rstrip("=")
    return f"{text}.{sign(text)}"


def unpack(token: str, shape: type[T], sign: Callable[[str], str]) -> T | None:
    """The claim in a token; ``None`` if it was not signed so."""
    text, _, signature = token.partition(".")
    try:
        if hmac.compare_digest(sign(text).encode(), signature.encode()):
            return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=shape)
    except (UnicodeEncodeError, msgspec.MsgspecError, binascii.Error):
        pass
    return None
