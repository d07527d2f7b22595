"""Threads with a connection each, for everything but the writes that share a statement."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from ...core.errors import StoreCorrupt
from .database import Database, unknown
from .line import Failed, Line, Lost, translate

__all__ = ["Lanes"]

T = TypeVar("T")

TRIES = 10
"""How often a statement that was undone for others' sake is tried."""


class Lanes:
    """At most so many connections, each opened when it is first needed. A lost one is replaced, and what ran on it runs again."""

    def __init__(self, database: Database, threads: int, name: str) -> None:
        self._database = database
        self._local = threading.local()
        self._lines: list[Line] = []
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"perdure-{name}")

    async def read(self, work: Callable[[Line], T]) -> T:
        """Run it on a connection. Raises as `write` does."""
        return await self.write(lambda line, _: work(line), "reading")

    async def write(self, work: Callable[[Line, bool], T], doing: str = "writing", *, once: bool = False) -> T:
        """Run it on a connection, to its end even if the caller is cancelled; and again, if the connection was lost, unless ``once``.

        ``work`` is told whether it was tried before and may have been done. Raises what `translate` makes of an error of the server, and
        `StoreBroken` if the database can't be reached for too long.
        """
        future = asyncio.wrap_future(self._pool.submit(self._guarded, work, doing, once))
        # Its error is the caller's, if there still is one.
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(future)

    def shut(self) -> None:
        """Wait for what has begun, and close the connections."""
        self._pool.shutdown()
        for line in self._lines:
            line.close()
        self._lines.clear()

    def _guarded(self, work: Callable[[Line, bool], T], doing: str, once: bool) -> T:
        again = False

        def attempt() -> T:
            nonlocal again
            try:
                return self._tried(work, again)
            except Lost:
                again = True
                raise

        try:
            return attempt() if once else self._database.persist(attempt, doing)
        except Lost as error:
            raise unknown(error) from error
        except Failed as error:
            raise translate(error, doing) from error
        except (UnicodeError, msgspec.MsgspecError) as error:
            raise StoreCorrupt(f"a row holds what can't be read: {error}", hint="run `perdure verify`") from error

    def _tried(self, work: Callable[[Line, bool], T], again: bool) -> T:
        for left in range(TRIES, 0, -1):
            try:
                return work(self._line(), again)
            except Failed as error:
                if not error.again or left == 1:
                    raise
        raise AssertionError

    def _line(self) -> Line:
        line: Line | None = getattr(self._local, "line", None)
        if line is not None and not line.closed:
            return line
        if line is not None:
            self._local.line = None
            self._lines.remove(line)
        line = self._local.line = self._database.connect()
        self._lines.append(line)
        return line
