"""The one place where time comes from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Alarm", "Clock", "SessionClock", "SystemClock", "alarm", "first_of"]

LONGEST_SLEEP = 60.0
"""After so many seconds the wall clock is looked at again."""


class Clock(Protocol):
    """Time as a runtime sees it, in milliseconds since 1970. Tests bring one that they move by hand."""

    def now(self) -> int:
        """The time now."""

    async def sleep_until(self, at: int) -> None:
        """Return when ``now() >= at``, or once the time that was left until then has passed."""


class SystemClock:
    """The machine's wall clock. How long something takes is measured with the monotonic one; both in nanoseconds."""

    def __init__(self, *, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns) -> None:
        self._wall = wall
        self._monotonic = monotonic

    def now(self) -> int:
        return self._wall() // 1_000_000

    async def sleep_until(self, at: int) -> None:
        # The wall clock may be moved while we sleep: set back it delays nothing, set forward it is noticed within a minute.
        end = self._monotonic() + (at - self.now()) * 1_000_000
        while left := self.left(at, end):  # noqa: ASYNC110
            await asyncio.sleep(min(left, LONGEST_SLEEP))

    def alarm(self, at: int, ring: Callable[[], None]) -> Alarm:
        """As `alarm`, without a task: most of what is watched ends long before."""
        return _Watch(self, at, self._monotonic() + (at - self.now()) * 1_000_000, ring)

    def left(self, at: int, end: int) -> float:
        """The seconds until the wall clock says ``at`` or the monotonic one ``end`` (ns), whichever comes first."""
        return 0.0 if self.now() >= at else max(0.0, (end - self._monotonic()) / 1_000_000_000)


class Alarm(Protocol):
    """What rings once, unless it is called off before."""

    def cancel(self) -> object:
        """Call it off."""


class _Watch:
    """Looks at a clock again until its time has come."""

    __slots__ = ("_at", "_clock", "_end", "_ring", "_timer")

    def __init__(self, clock: SystemClock, at: int, end: int, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._at = at
        self._end = end
        self._ring = ring
        self._wait()

    def _wait(self) -> None:
        left = self._clock.left(self._at, self._end)
        self._timer = asyncio.get_running_loop().call_later(min(left, LONGEST_SLEEP), self._look)

    def _look(self) -> None:
        if self._clock.left(self._at, self._end):
            self._wait()
        else:
            self._ring()

    def cancel(self) -> None:
        self._timer.cancel()


class SessionClock:
    """Time as it passes in a session that is held here: it goes on from what the store said, and never back.

    What a step says of time is compared with what the store said. Where this machine's clock is behind that, or is set back meanwhile,
    a pause that was counted from it would be over before it began.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = self._last = 0

    def begin(self, at: int) -> None:
        """The store said that it is ``at``."""
        self._ahead, self._last = 0, at

    def now(self) -> int:
        here = self._clock.now() + self._ahead
        if here < self._last:
            self._ahead += self._last - here
            here = self._last
        self._last = here
        return here

    async def sleep_until(self, at: int) -> None:
        self.now()
        await self._clock.sleep_until(at - self._ahead)

    def alarm(self, at: int, ring: Callable[[], None]) -> Alarm:
        """As `alarm`."""
        self.now()
        return alarm(self._clock, at - self._ahead, ring)


def alarm(clock: Clock, at: int, ring: Callable[[], None]) -> Alarm:
    """Call ``ring`` on the event loop once ``sleep_until(at)`` would return, unless that is called off."""
    return clock.alarm(at, ring) if isinstance(clock, (SystemClock, SessionClock)) else _sleeping(clock, at, ring)


def _sleeping(clock: Clock, at: int, ring: Callable[[], None]) -> Alarm:
    timer = asyncio.ensure_future(clock.sleep_until(at))
    timer.add_done_callback(lambda timer: None if timer.cancelled() else ring())
    return timer


async def first_of(clock: Clock, *waiting: asyncio.Future[Any], seconds: float | None = None, until: int | None = None) -> None:
    """Return once one of them has ended, or the time is over. Nothing of it is cancelled: not by the time, nor with the waiter."""
    if seconds is not None:
        until = clock.now() + round(seconds * 1000)
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    for future in waiting:
        future.add_done_callback(end)
    timer = None if until is None else alarm(clock, until, end)
    try:
        await over
    finally:
        for future in waiting:
            future.remove_done_callback(end)
        if timer is not None:
            timer.cancel()
