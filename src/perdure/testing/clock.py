"""Time that passes only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["START", "VirtualClock"]

START = 1_750_000_000_000
"""When a virtual clock begins, in milliseconds since 1970."""

_ROUNDS = 100
"""How many quiet turns of a foreign event loop count as idle."""


class VirtualClock:
    """A `Clock` for runtimes and stores that no real time moves: ``MemoryStore(clock.now)``, ``perdure.open(store, clock=clock)``.

    It moves by `advance`. With ``auto`` it also jumps to whoever sleeps the shortest as soon as the event loop has nothing else to do, so
    that days of retries and deadlines pass in an instant and always in the same order. Work in threads is nothing that the event loop
    knows of: `busy` keeps time still meanwhile (a `FaultStore` that was given the clock does so for its store).
    """

    def __init__(self, start: int = START, *, auto: bool = False) -> None:
        self.auto = auto
        self._now = start
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._busy = 0
        self._looking = False
        self._quiet = 0

    def now(self) -> int:
        """The time now."""
        return self._now

    async def sleep_until(self, at: int) -> None:
        """Return when ``now() >= at``. Those who sleep until the same moment wake in the order in which they went to sleep."""
        if at <= self._now:
            await asyncio.sleep(0)
            return
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (at, next(self._order), sleeper))
        self._look()
        await sleeper

    @property
    def next(self) -> int | None:
        """When the next sleeper wakes."""
        self._forget_gone()
        return self._sleepers[0][0] if self._sleepers else None

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and wake whoever waited for it. What they do then happens once the caller awaits something."""
        self.advance_to(self._now + milliseconds)

    def advance_to(self, at: int) -> None:
        """`advance`, to a moment. Time never goes back."""
        self._now = max(self._now, at)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Something goes on that the event loop doesn't know of: no jump meanwhile."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._look()

    def _forget_gone(self) -> None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)

    def _look(self) -> None:
        if self.auto and not self._looking and not self._busy and self._sleepers:
            self._looking = True
            self._quiet = 0
            asyncio.get_running_loop().call_soon(self._jump_if_idle)

    def _jump_if_idle(self) -> None:
        self._looking = False
        self._forget_gone()
        if not self.auto or self._busy or not self._sleepers:
            return
        loop = asyncio.get_running_loop()
        if not self._idle(loop):
            self._looking = True
            loop.call_soon(self._jump_if_idle)
            return
        self._quiet = 0
        self.advance_to(self._sleepers[0][0])
        self._look()

    def _idle(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this callback is all that the loop has to do just now."""
        ready = getattr(loop, "_ready", None)
        if ready is not None:
            return not ready
        self._quiet += 1
        return self._quiet > _ROUNDS
