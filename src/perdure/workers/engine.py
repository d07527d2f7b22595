"""What carries hints to workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

__all__ = ["Engine", "Look"]

Look: TypeAlias = Callable[[str], Awaitable[None]]
"""Looks at a session. It returns when there is nothing left to do here, and raises nothing that the engine could mend."""


class Engine(Protocol):
    """Carries hints that somebody should look at a session to whichever worker is free.

    A hint says nothing that the store doesn't know: one that is lost, late or doubled changes nothing but the time. So an engine may
    be any queue, with any guarantees.
    """

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        """Let somebody look at these sessions soon, or, ``urgent``, before all that waits already.

        May raise whatever its queue does; they are looked at where they were found, then.
        """

    async def work(self, look: Look, *, concurrency: int) -> None:
        """Look at sessions as hints come, at most so many at once. Ends when it is cancelled, once what it looks at is done with."""
