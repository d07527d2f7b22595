"""The agent that is measured: instant fakes for model and tool, 1 KB per message, and a store that notes what it was given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import apsw

from perdure import Agent, Compaction, FunctionModel, Limits, ModelRequest, Reply, Runtime, Tool, ToolCall, Usage, tool
from perdure.store.base import Commit, CommitAnswer, Committed
from perdure.store.sqlite import SQLiteStore
from perdure.store.sqlite.database import Database

from .counting import Counting, Counts
from .floor import Cost

__all__ = ["PER_STEP", "Recorder", "Workload", "opened"]

TEXT = ("the quick brown fox jumps over the lazy dog; " * 23)[:1000]

Effect = Literal["pure", "external"]

PER_STEP = 2
"""The commits of a durable step."""


class Recorder(SQLiteStore):
    """Keeps every commit that became durable, for the floor to write the same bytes. ``keeps`` False: none."""

    def __init__(self, path: Path, *, vfs: str | None = None, keeps: bool = True) -> None:
        super().__init__(path, vfs=vfs)
        self.commits: list[Commit] = []
        self._keeps = keeps

    async def commit(self, commit: Commit) -> CommitAnswer:
        answer = await super().commit(commit)
        if self._keeps and isinstance(answer, Committed):
            self.commits.append(commit)
        return answer

    def take(self) -> list[Commit]:
        taken, self.commits = self.commits, []
        return taken


@asynccontextmanager
async def opened(
    path: Path, *, vfs: str | None = None, synchronous: str = "FULL", keeps: bool = True
) -> AsyncIterator[tuple[Runtime, Recorder]]:
    """A runtime on a recorder. With ``synchronous`` OFF nothing waits for the disk, and what is left is the processor's work."""
    store = Recorder(path, vfs=vfs, keeps=keeps)
    connect = Database._connect_writer

    def connect_writer(database: Database) -> apsw.Connection:
        connection = connect(database)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    with patch.object(Database, "_connect_writer", connect_writer):
        await store.open()
    try:
        async with Runtime(store) as runtime:
            yield runtime, store
    finally:
        await store.close()


class _Mark(NamedTuple):
    commits: int
    wall: float
    cpu: float
    counts: Counts | None


ENDLESS = 10**9
"""A window that is never full (tokens): requests are measured, and nothing is summarised."""


class Workload:
    """Turns of ``warm`` + ``steps`` steps each; the last ``steps`` are measured, from one model call to another.

    With several sessions all wait for each other before the measured part, and it ends with the last of them.
    """

    def __init__(self, *, steps: int, warm: int = 5, sessions: int = 1, effect: Effect = "pure", counting: Counting | None = None) -> None:
        self.steps, self.warm, self.sessions = steps, warm, sessions
        self.agent = Agent(
            "bench",
            instructions="Look.",
            model=FunctionModel(self._answer, window=ENDLESS),
            tools=[_tool(effect)],
            limits=Limits(steps=ENDLESS),
            compaction=Compaction(threshold=ENDLESS),
        )
        self._gate = asyncio.Event()
        self._ready = self._done = 0
        self._recorder: Recorder | None = None
        self._counting = counting
        self._start = self._stop = _Mark(0, 0.0, 0.0, None)

    def _answer(self, request: ModelRequest) -> Reply | Awaitable[Reply]:
        if request.step == self.warm:
            return self._at_the_gate(request)
        if request.step == self.warm + self.steps:
            self._done += 1
            if self._done == self.sessions:
                self._stop = self._mark()
            return Reply("done")
        return self._call(request)

    async def _at_the_gate(self, request: ModelRequest) -> Reply:
        self._ready += 1
        if self._ready == self.sessions:
            self._start = self._mark()
            self._gate.set()
        await self._gate.wait()
        return self._call(request)

    def _call(self, request: ModelRequest) -> Reply:
        call = ToolCall("look", {"text": TEXT, "number": request.step}, id=f"call_{request.step}")
        return Reply(tool_calls=(call,), usage=Usage(input_tokens=1000, output_tokens=200))

    def _mark(self) -> _Mark:
        commits = len(self._recorder.commits) if self._recorder is not None else 0
        counts = None if self._counting is None else self._counting.counts
        return _Mark(commits, time.perf_counter(), time.process_time(), counts)

    async def run(self, runtime: Runtime, recorder: Recorder, names: list[str], submission: str) -> tuple[Cost, list[Commit]]:
        """One turn in each of the sessions: what the measured part cost, and its commits. The recorder is left with those after it."""
        assert len(names) == self.sessions
        self._recorder = recorder
        self._gate.clear()
        self._ready = self._done = 0
        await asyncio.gather(*(runtime.run(self.agent, "go on", session=name, submission=submission) for name in names))
        start, stop = self._start, self._stop
        return Cost(stop.wall - start.wall, stop.cpu - start.cpu), recorder.commits[start.commits : stop.commits]

    @property
    def counted(self) -> Counts:
        """What reached the disk in the measured part of the last turn."""
        assert self._start.counts is not None
        assert self._stop.counts is not None
        return self._stop.counts.since(self._start.counts)


def _tool(effect: Effect) -> Tool:
    @tool(effect=effect)
    async def look(text: str, number: int) -> dict[str, Any]:
        """Look at a text."""
        return {"seen": number, "text": TEXT}

    return look
