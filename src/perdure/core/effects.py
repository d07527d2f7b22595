"""How an effect is known again, and what nobody may know of it."""

from __future__ import annotations

from typing import Any

from . import canonical
from .records import Plan

__all__ = ["effect_key", "may_be_unknown", "tool_of", "unique_key"]


def effect_key(tool: str, selected: str) -> bytes:
    """A tool's name, a zero byte, and the digest (hex) of what its key selects: the effects of one tool share a prefix."""
    return tool.encode() + b"\x00" + bytes.fromhex(selected)


def tool_of(key: bytes) -> str:
    """The tool whose effect a key names."""
    return key.split(b"\x00", 1)[0].decode()


def unique_key(owner: str, named: list[Any]) -> str:
    """What an owner wants done once, as the store knows it: a digest, which tells nobody what it was made of."""
    return canonical.digest(canonical.encode([owner, *named]))


def may_be_unknown(plan: Plan) -> bool:
    """Whether it matters what became of an attempt that was cut off: somebody might do it again under another key."""
    return plan.effect == "external" or (plan.effect == "idempotent" and bool(plan.unique))
