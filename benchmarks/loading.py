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
from perdure import Agent, Compaction, FunctionModel, ModelRequest, Reply, ToolCall
from perdure.models.scripted import Function

from .floor import fetch_and_decode
from .report import Figure, Pairs
from .steps import history
from .workload import ENDLESS

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


def _agent(answer: Function) -> Agent:
    model = FunctionModel(answer, window=ENDLESS)
    return Agent("bench", instructions="Look.", model=model, compaction=Compaction(threshold=ENDLESS))


async def _compacted(directory: Path, messages: int, left: int) -> Path:
    """The history of so many messages that notes stand for, and ``left`` messages after them."""
    path = directory / f"compacted-{messages}-{left}.db"

    def answer(request: ModelRequest) -> Reply:
        if request.purpose == "notes":
            return Reply(tool_calls=[ToolCall("save_notes", {"notes": "what matters " * 200})])
        return Reply("well " * 100)

    copyfile(await history(directory, messages - left), path)
    agent = _agent(answer)
    async with perdure.open(str(path)) as runtime:
        await runtime.sessions.compact("one", submission="compact")
        await runtime.recover([agent], session="one")
        async with runtime.session("one", agent):
            for number in range(left // 2):
                await runtime.run(agent, "and " * 100, session="one", submission=f"left-{number}")
    return path


async def _first_call(path: Path, messages: int) -> float:
    """Seconds from opening the store to the first model call."""
    called = 0.0

    def answer(request: ModelRequest) -> Reply:
        nonlocal called
        called = time.perf_counter()
        assert messages - 20 < len(request.messages) < messages + 20, len(request.messages)
        return Reply("done")

    agent = _agent(answer)
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


async def _loads(original: Path, directory: Path, messages: int, rounds: int) -> list[float]:
    """Milliseconds from opening a copy of a store to the first model call; the first round warms up."""
    path, found = directory / "loads.db", []
    for _ in range(rounds + 1):
        copyfile(original, path)
        gc.collect()
        found.append(await _first_call(path, messages) * 1000)
        path.unlink()
    return found[1:]


async def load(directory: Path, *, pairs: int, messages: int = 10_000, left: int = 200) -> list[Figure]:
    """Once with all of the session's messages in the context, once with notes for all but ``left`` of them."""
    after_notes = await _loads(await _compacted(directory, messages, left), directory, left + 1, pairs)
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
        Figure(
            name=f"first model call of {messages:,} messages, all but {left} of them compacted",
            value=statistics.median(after_notes),
            unit="ms",
            low=min(after_notes),
            high=max(after_notes),
            limit=25,
        ),
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
