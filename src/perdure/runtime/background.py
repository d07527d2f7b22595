"""What may end after who began it, until the runtime closes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

__all__ = ["Background"]

PATIENCE = 1.0
"""How long it may take once the runtime closes (seconds)."""


class Background:
    """Tasks that nobody waits for. ``closing`` is set when they should come to an end."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self.closing = asyncio.Event()

    def open(self) -> None:
        """In the event loop that runs now."""
        self.closing = asyncio.Event()

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Something that may end after who began it."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(_forget)

    async def close(self) -> None:
        """Wait a moment, and cut off what is not over then."""
        self.closing.set()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=PATIENCE)
            for task in [*self.tasks]:
                task.cancel()


def _forget(task: asyncio.Task[Any]) -> None:
    with suppress(asyncio.CancelledError):
        task.exception()
