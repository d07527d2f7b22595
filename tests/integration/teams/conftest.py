"""A store, a clock that no real time moves, and runtimes that share them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure
from perdure import Runtime
from perdure.store.base import Store
from perdure.testing import FaultStore
from perdure.testing.checks import find_all_problems

from ..interactive.acting import Place


class Stage:
    """Processes on one store."""

    def __init__(self, place: Place) -> None:
        self.clock = place.clock
        self._place = place

    def connect(self) -> Store:
        """What a store does in threads of its own takes no time."""
        return FaultStore(self._place.connect(), clock=self.clock, keep=False)

    @asynccontextmanager
    async def process(self, *, capacity: int | None = None) -> AsyncIterator[Runtime]:
        """A process; what it leaves is as it should be."""
        async with perdure.open(self.connect(), clock=self.clock, capacity=capacity) as runtime:
            yield runtime
        async with perdure.open(self.connect(), clock=self.clock) as runtime:
            assert await find_all_problems(runtime.store) == []


@pytest.fixture(params=["memory", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(Place(request.param, tmp_path / "agents.db", auto=True))
