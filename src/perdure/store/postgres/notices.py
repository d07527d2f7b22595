"""The one thread that tells other processes what changed here, and hears from them.

What was committed is announced a little later, many changes at once, on a connection of its own: a notice inside a commit would make
every commit of the database wait for a lock. While somebody listens, others' announcements are heard, and every ``poll`` seconds the
server is asked whether anybody committed anything: a notice that was lost costs one poll.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ...core.errors import PerdureError
from .database import Database
from .line import Failed, Line, Lost
from .sql import channel_of

__all__ = ["Notices"]

GATHERING = 0.02
"""How long changes are gathered before they are announced (seconds)."""

NOTICE_LIMIT = 400
"""After so many sessions a notice says only that there were many: it may have 8,000 bytes."""

ANY = "*"

RETRY = 1.0
"""How long after the connection was lost another one is opened (seconds)."""

_log = logging.getLogger("perdure.store")


class Notices:
    """``hear`` is called on the loop with the number of a session that another process changed, or ``None`` if any may have been."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop, hear: Callable[[int | None], None], poll: float) -> None:
        self._database = database
        self._loop = loop
        self._hear = hear
        self._poll = poll
        self._listen = database.address.listen
        self._channel = channel_of(database.address.schema)
        self._lock = threading.Lock()
        self._changed: set[int | None] = set()
        self._following = False
        self._ending = False
        self._reader, self._bell = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._bell, False)
        self._line: Line | None = None
        self._listens = False
        self._snapshot: str | None = None
        self._due = 0.0
        self._down_until = 0.0
        self._started = False
        self._thread = threading.Thread(target=self._run, name="perdure-notices", daemon=True)

    def announce(self, no: int | None) -> None:
        """Others shall hear of a change; ``None``: of any session."""
        with self._lock:
            rings = not self._changed
            self._changed.add(no)
        if rings:
            self._ring()

    def follow(self, following: bool) -> None:
        """Hear of others' changes, or no longer."""
        self._following = following
        self._ring()

    def stop(self) -> None:
        """Announce what is left, and let go. Waits."""
        self._ending = True
        if self._started:
            self._ring()
            self._thread.join()
        os.close(self._reader)
        os.close(self._bell)

    def _ring(self) -> None:
        if not self._started:
            self._started = True
            self._thread.start()
        # A full pipe rings already.
        with suppress(BlockingIOError):
            os.write(self._bell, b"!")

    def _run(self) -> None:
        try:
            while not self._ending:
                try:
                    self._wait()
                    self._turn()
                except (Lost, Failed, PerdureError):
                    self._drop()
                except Exception:
                    # Nobody else would hear or announce anything in this process any more.
                    _log.exception("notices of changes go on with a new connection")
                    self._drop()
            with suppress(Lost, Failed, PerdureError):
                self._announce()
        finally:
            if self._line is not None:
                self._line.close()

    def _wait(self) -> None:
        """Until something was changed, somebody announced something, or a poll is due."""
        sources = select.poll()
        sources.register(self._reader, select.POLLIN)
        if self._listens and self._line is not None and not self._line.closed:
            sources.register(self._line.socket, select.POLLIN)
        until: float | None = None
        if self._following:
            until = max(self._due, self._down_until)
        elif self._changed:
            until = self._down_until
        ready = sources.poll(None if until is None else max(0.0, until - time.monotonic()) * 1000)
        if any(source == self._reader for source, _ in ready):
            with suppress(BlockingIOError):
                os.read(self._reader, 4096)
            if self._changed and not self._ending:
                # Whatever else is committed in this time goes with it.
                time.sleep(GATHERING)

    def _turn(self) -> None:
        now = time.monotonic()
        if now < self._down_until:
            return
        if self._changed:
            self._announce()
        if not self._following:
            self._snapshot, self._due = None, 0.0
            return
        line = self._connected()
        if self._listen and not self._listens:
            line.run("listen")
            self._listens = True
            # What came before this is found by the first poll.
            self._due = 0.0
        if self._listens:
            for notice in line.notices():
                for name in notice.split(","):
                    self._tell(_number(name))
        if now >= self._due:
            ((snapshot,),) = line.run("snapshot")
            if snapshot != self._snapshot:
                self._tell(None)
            self._snapshot = snapshot
            self._due = time.monotonic() + self._poll

    def _announce(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, set()
        if not changed or self._database.read_only:
            return
        numbers = [no for no in changed if no is not None]
        payload = ANY if len(numbers) < len(changed) or len(numbers) > NOTICE_LIMIT else ",".join(map(str, numbers))
        self._connected().run("announce", self._channel, payload)

    def _connected(self) -> Line:
        if self._line is None or self._line.closed:
            self._listens = False
            self._line = self._database.connect()
        return self._line

    def _drop(self) -> None:
        """Notices are lost; whoever listens looks for itself until there is a connection again."""
        if self._line is not None:
            self._line.close()
        self._listens, self._snapshot = False, None
        self._down_until = time.monotonic() + RETRY
        self._due = self._down_until

    def _tell(self, no: int | None) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._hear, no)


def _number(name: str) -> int | None:
    """Which session a notice names; any role of the database may send one, so that what is no number of ours may be about any."""
    return int(name) if name.isdecimal() and len(name) <= 19 else None
