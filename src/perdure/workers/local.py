"""Hints within one process: for a store in one file, and for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .engine import Look

__all__ = ["LocalEngine"]


class LocalEngine:
    """A queue in memory. What waits in it is forgotten with its process, and found again in the store."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._news = asyncio.Event()

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        """Put sessions into the queue, each once."""
        if urgent:
            self._waiting = dict.fromkeys(session_ids) | {name: None for name in self._waiting if name not in session_ids}
        else:
            self._waiting.update(dict.fromkeys(session_ids))
        self._news.set()

    async def work(self, look: Look, *, concurrency: int) -> None:
        """Look at sessions until cancelled."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._news.clear()
                while self._waiting and len(running) < concurrency:
                    session_id = next(iter(self._waiting))
                    del self._waiting[session_id]
                    running.add(asyncio.ensure_future(look(session_id)))
                news = asyncio.ensure_future(self._news.wait())
                try:
                    await asyncio.wait({news, *running}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
                running = {task for task in running if not task.done()}
        finally:
            if running:
                await asyncio.wait(running)
