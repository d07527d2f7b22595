"""How an effect is known again."""

from __future__ import annotations

__all__ = ["effect_key", "tool_of"]


def effect_key(tool: str, selected: str) -> bytes:
    """A tool's name, a zero byte, and the digest (hex) of what its key selects: the effects of one tool share a prefix."""
    return tool.encode() + b"\x00" + bytes.fromhex(selected)


def tool_of(key: bytes) -> str:
    """The tool whose effect a key names."""
    return key.split(b"\x00", 1)[0].decode()
