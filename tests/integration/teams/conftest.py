"""A store, a clock that no real time moves, and runtimes that share them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import perdure
from perdure import Runtime
from perdure.runtime.verify import verify
from perdure.store.memory import MemoryStore
from perdure.testing import VirtualClock
from perdure.testing.checks import find_all_problems


class Stage:
    """Processes on one store in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock(auto=True)
        self.store = MemoryStore(self.clock.now)

    @asynccontextmanager
    async def process(self, *, capacity: int | None = None) -> AsyncIterator[Runtime]:
        """A process; what it leaves is as it should be."""
        async with perdure.open(self.store.peer(), clock=self.clock, capacity=capacity) as runtime:
            yield runtime
        async with perdure.open(self.store.peer(), clock=self.clock) as runtime:
            assert await find_all_problems(runtime.store) == []
            assert [str(problem) async for problem in verify(runtime.store)] == []


@pytest.fixture
def stage() -> Stage:
    return Stage()
