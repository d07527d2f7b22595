"""Taking up a long session in a fresh runtime."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from contextlib import suppress
from pathlib import Path
from shutil import copyfile

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply

from .floor import fetch_and_decode
from .report import Figure, Pairs
from .steps import history

__all__ = ["load"]


class _Ticker:
    """How late the event loop is at worst: a task that wants to run every millisecond."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            wanted = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            self.worst = max(self.worst, time.perf_counter() - wanted)

    async def stop(self) -> float:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        return self.worst


async def _first_call(path: Path, messages: int) -> float:
    """Seconds from opening the store to the first model call."""
    called = 0.0

    def answer(request: ModelRequest) -> Reply:
        nonlocal called
        called = time.perf_counter()
        assert len(request.messages) > messages - 20, len(request.messages)
        return Reply("done")

    agent = Agent("bench", instructions="Look.", model=FunctionModel(answer))
    start = time.perf_counter()
    async with perdure.open(str(path)) as runtime:
        await runtime.run(agent, "go on", session="one", submission="load")
    return called - start


async def _lateness(path: Path, messages: int) -> float:
    """The same once more with a ticker, which takes time itself."""
    ticker = _Ticker()
    await asyncio.sleep(0.01)
    ticker.worst = 0.0
    await _first_call(path, messages)
    return await ticker.stop()


async def load(directory: Path, *, pairs: int, messages: int = 10_000) -> list[Figure]:
    """All of the session's messages are in the context: there is no compaction yet that would leave 200 of them."""
    original = await history(directory, messages)
    path = directory / "loaded.db"
    times, lates = Pairs(), []
    for number in range(pairs + 1):
        copyfile(original, path)
        gc.collect()
        floor = fetch_and_decode(path, "one")
        gc.collect()
        ours = await _first_call(path, messages)
        copyfile(original, path)
        late = await _lateness(path, messages)
        path.unlink()
        if number:
            times.add(ours, floor)
            lates.append(late * 1000)
    return [
        times.figure(f"first model call of {messages:,} messages", show=lambda seconds: f"{seconds * 1000:.0f} ms", limit=1.5),
        Figure(
            name="the event loop late meanwhile, at worst",
            value=statistics.median(lates),
            unit="ms",
            low=min(lates),
            high=max(lates),
            limit=20,
        ),
    ]
