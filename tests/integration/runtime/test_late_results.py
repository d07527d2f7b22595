"""A result that comes after its call was given up settles what was unknown, also where the store fails at first."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading

import pytest

import perdure
from perdure import Agent, EffectSettled, FunctionModel, ModelRequest, Reply, Runtime, ToolCall, tool
from perdure.core.errors import StoreBroken
from perdure.runtime.late import TRIES
from perdure.store.memory import MemoryStore
from perdure.testing import FaultStore, VirtualClock
from perdure.testing.faults import Call


class Place:
    """A store that fails on demand, and a call that ends when it is told to."""

    def __init__(self) -> None:
        self.clock = VirtualClock(auto=True)
        self.failures = 0
        self.tried = 0
        self.times: list[int] = []
        self.ends = threading.Event()
        self.store = FaultStore(MemoryStore(self.clock.now), gate=self._gate, clock=self.clock)

        @tool(effect="external", timeout=1)
        def pay() -> str:
            """Pay, slowly."""
            self.ends.wait()
            return "paid"

        def answer(request: ModelRequest) -> Reply:
            return Reply("done") if request.step else Reply(tool_calls=[ToolCall("pay", {})])

        self.agent = Agent("a", model=FunctionModel(answer), tools=[pay])

    async def _gate(self, call: Call, when: str) -> None:
        if call.kind == "commit" and when == "before" and self.ends.is_set():
            self.tried += 1
            self.times.append(self.clock.now())
            if self.tried <= self.failures:
                raise StoreBroken("the disk is away")

    async def end(self, runtime: Runtime) -> None:
        """Let the call end, and wait until what it came to is handed in or given up."""
        self.ends.set()
        while not self.tried or runtime.background.tasks:
            await asyncio.sleep(0.001)


async def settled(runtime: Runtime) -> list[str]:
    return [entry.status for entry in await runtime.sessions.entries("s") if isinstance(entry, EffectSettled)]


@pytest.mark.parametrize("failures", [0, 1, TRIES - 1])
async def test_it_is_handed_in_again_while_the_store_fails(failures: int) -> None:
    place = Place()
    async with perdure.open(place.store, clock=place.clock) as runtime:
        await runtime.run(place.agent, "go", session="s", submission="m")
        assert len(await runtime.sessions.uncertain("s")) == 1
        place.failures = failures
        await place.end(runtime)
        assert await settled(runtime) == ["succeeded"]
        assert place.tried == failures + 1


async def test_it_is_given_up_in_words_when_the_store_does_not_come_back(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    async with perdure.open(place.store, clock=place.clock) as runtime:
        await runtime.run(place.agent, "go", session="s", submission="m")
        place.failures = 1_000
        await place.end(runtime)
        assert place.tried == TRIES
        pauses = [later - earlier for earlier, later in itertools.pairwise(place.times)]
        assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
        (said,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "the result of t2.0.1#1 in s came late, was not handed in and is lost: the disk is away" in said.getMessage()
        assert len(await runtime.sessions.uncertain("s")) == 1


async def test_a_runtime_that_closes_tries_once_more_and_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    place.clock.auto = False
    async with perdure.open(place.store, clock=place.clock) as runtime:
        running = asyncio.ensure_future(runtime.run(place.agent, "go", session="s", submission="m"))
        while not running.done():
            await asyncio.sleep(0.001)
            place.clock.advance(500)
        place.failures = 1_000
        place.ends.set()
        while place.tried < 1:
            await asyncio.sleep(0.001)
    assert place.tried == 2
    assert "is lost: the disk is away" in caplog.text
