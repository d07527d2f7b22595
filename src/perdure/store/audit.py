"""What a store can also show to somebody who checks it: rows that no run ever asks for, in pages."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .base import SessionRow

__all__ = ["Auditable"]


@runtime_checkable
class Auditable(Protocol):
    """A store whose rows can all be read. `verify` checks less of one that is not."""

    async def heads(self, *, after: int, limit: int) -> list[SessionRow]:
        """Sessions by number, deleted ones included."""

    async def strays(self, *, limit: int) -> list[int]:
        """Numbers that entries, submissions or effects are of, and that no session has any more."""

    async def cursors(self, no: int) -> list[tuple[str, int]]:
        """All consumers, and how far each has read."""
