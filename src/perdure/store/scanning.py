"""Rows that a store has read, handed to whoever takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..core.journal import Sealed

__all__ = ["AT_ONCE", "hand_over"]

T = TypeVar("T")

AT_ONCE = 200
"""How many rows are taken without leaving the event loop: a few milliseconds."""


async def hand_over(rows: Sequence[Sealed], take: Callable[[Iterable[Sealed]], T]) -> T:
    """What ``take`` makes of rows: however many they are, the loop goes on meanwhile."""
    # Below that a thread costs more than it saves, and a simulation stays the same every time.
    return take(rows) if len(rows) <= AT_ONCE else await asyncio.to_thread(take, rows)
