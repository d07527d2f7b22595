"""Random bytes for entries: the system is asked once for those of many commits."""

from __future__ import annotations

import os
from collections import deque

from ..core.journal import SALT_BYTES

__all__ = ["new_salt"]

_AT_ONCE = 256

_stock: deque[bytes] = deque()

# A child that went on with the same stock would give two entries one salt.
os.register_at_fork(after_in_child=_stock.clear)


def new_salt() -> bytes:
    """A salt that nothing else has, in any thread."""
    try:
        return _stock.pop()
    except IndexError:
        first, *others = _draw(os.urandom(_AT_ONCE * SALT_BYTES))
        _stock.extend(others)
        return first


def _draw(data: bytes) -> list[bytes]:
    return [data[start : start + SALT_BYTES] for start in range(0, len(data), SALT_BYTES)]
