"""The one place where time comes from."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Time as a runtime sees it, in milliseconds since 1970. Tests bring one that they move by hand."""

    def now(self) -> int:
        """The time now."""

    async def sleep_until(self, at: int) -> None:
        """Return when ``now() >= at``."""


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, at: int) -> None:
        # The wall clock may be moved while we sleep.
        while (left := at - self.now()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left, 60_000) / 1000)
