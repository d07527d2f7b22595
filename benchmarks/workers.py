"""Two workers over one, beside two bare writers over one: each a process of its own, on one PostgreSQL.

A writer has as many sessions at once as a worker, each with a connection and a thread: one that waits for its only commit leaves
processors idle, which a second one can take, and a worker with many sessions leaves none.

``python -m benchmarks.workers works|writes URL SESSIONS`` is such a process. It is told what to do line by line, and says when it began
and ended by the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from perdure import Agent, FunctionModel, Limits, ModelRequest, Reply, Runtime, ToolCall, tool
from perdure.store.base import Commit, CommitAnswer, Committed
from perdure.store.postgres import PostgresStore
from perdure.workers.procrastinate import ProcrastinateEngine
from perdure.workers.worker import Worker

from .postgres import BareFloor, Recorder, fresh, postgres_server
from .report import Figure, Pairs, per_second
from .workload import TEXT, Workload

__all__ = ["two_workers"]

TOGETHER = (1, 16)
"""Sessions at once in a worker, or in a bare writer."""


class Counted(PostgresStore):
    """Counts the commits that became durable."""

    commits = 0

    async def commit(self, commit: Commit) -> CommitAnswer:
        answer = await super().commit(commit)
        self.commits += isinstance(answer, Committed)
        return answer


class Work:
    """One round of a worker: whole turns of ``steps`` steps, until it is told that all sessions are done."""

    def __init__(self, url: str, together: int, steps: int) -> None:
        self._url, self._together, self._steps = url, together, steps
        self.first = self.last = 0.0

        @tool(effect="external")
        async def look(text: str, number: int) -> str:
            """Look."""
            return TEXT

        self._agent = Agent("bench", model=FunctionModel(self._answer), tools=[look], limits=Limits(steps=10**9))

    def _answer(self, request: ModelRequest) -> Reply:
        self.last = time.monotonic()
        self.first = self.first or self.last
        if request.step == self._steps:
            print("done", flush=True)
            return Reply("done")
        return Reply(tool_calls=[ToolCall("look", {"text": TEXT, "number": request.step})])

    async def run(self) -> int:
        """How many commits it made."""
        store = Counted(self._url)
        async with ProcrastinateEngine(self._url) as engine, Runtime(store) as runtime:
            worker = Worker(runtime, [self._agent], engine, concurrency=self._together)
            working = asyncio.create_task(worker.run())
            await asyncio.to_thread(sys.stdin.readline)
            worker.stop()
            await working
        return store.commits


async def _recorded(url: str, steps: int) -> list[Commit]:
    """What a worker's sessions write, for the bare loop to write as often as it is asked to."""
    store = Recorder(url)
    async with Runtime(store) as runtime:
        # Each writer has a session of its own.
        name = f"sample {os.getpid()}"
        _, commits = await Workload(steps=steps, effect="external").run(runtime, store, [name], "m")
    return commits


def works(url: str, together: int) -> None:
    """Be a worker, in one round after another."""
    print("ready", flush=True)
    for line in sys.stdin:
        work = Work(url, together, int(line))
        gc.collect()
        commits = asyncio.run(work.run())
        print(work.first, work.last, commits, flush=True)


def writes(url: str, together: int) -> None:
    """Be a bare writer, in one round after another."""
    floor = BareFloor(url, together)
    commits = asyncio.run(_recorded(f"{url}&schema=sample", 20))
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        wanted = int(line)
        rows = [commit for again in range(-(-wanted // len(commits))) for commit in fresh(commits, number * 1_000 + again)][:wanted]
        print("go", flush=True)
        sys.stdin.readline()
        cost = floor.replay(rows)
        ended = time.monotonic()
        print(ended - cost.wall, ended, len(rows), flush=True)


class Process:
    """One of them, and what it is asked."""

    def __init__(self, role: str, url: str, together: int) -> None:
        command = [sys.executable, "-m", "benchmarks.workers", role, url, str(together)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hear("ready")

    def say(self, line: str) -> None:
        """Tell it something."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self, expected: str = "") -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "a measured process ended"
        assert not expected or line == expected, line
        return line

    def end(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _rate(lines: Sequence[str]) -> float:
    """Commits per second of all who said when they began and ended, and how many they made."""
    # A worker that came too late for any session made none.
    said = [numbers for line in lines if (numbers := [float(word) for word in line.split()])[2]]
    took = max(ended for _, ended, _ in said) - min(began for began, _, _ in said)
    return sum(count for *_, count in said) / took


async def _send(url: str, names: list[str]) -> None:
    async with Runtime(PostgresStore(url)) as runtime:
        for name in names:
            await runtime.sessions.send(name, "go on", submission="m", agent="bench")


async def _working(url: str, workers: Sequence[Process], name: str, *, sessions: int, steps: int) -> float:
    await _send(url, [f"{name} {index}" for index in range(sessions)])
    for worker in workers:
        worker.say(str(steps))
    told: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def hear(worker: Process) -> str:
        while (line := worker.hear()) == "done":
            loop.call_soon_threadsafe(told.put_nowait, None)
        return line

    hearing = [asyncio.create_task(asyncio.to_thread(hear, worker)) for worker in workers]
    for _ in range(sessions):
        await told.get()
    for worker in workers:
        worker.say("stop")
    return _rate(await asyncio.gather(*hearing))


def _writing(writers: Sequence[Process], commits: int) -> float:
    for writer in writers:
        writer.say(str(commits))
    for writer in writers:
        writer.hear("go")
    for writer in writers:
        writer.say("now")
    return _rate([writer.hear() for writer in writers])


async def two_workers(directory: Path, *, pairs: int, sessions: int, steps: int) -> list[Figure]:
    """What a second worker gains over what a second bare writer gains, with one session at a time and with many."""
    with postgres_server(directory) as url:
        return [figure for together in TOGETHER for figure in await _gains(url, together, pairs=pairs, sessions=sessions, steps=steps)]


async def _gains(url: str, together: int, *, pairs: int, sessions: int, steps: int) -> list[Figure]:
    gains, rates, single = Pairs(), Pairs(), []
    # A bare commit takes so little that fewer of them would be over before the processes are side by side.
    commits = 8 * sessions * steps
    workers = [Process("works", url, together) for _ in range(2)]
    writers = [Process("writes", url, together) for _ in range(2)]
    for number in range(pairs + 1):
        one = await _working(url, workers[:1], f"one {together} {number}", sessions=sessions, steps=steps)
        bare_one = _writing(writers[:1], commits)
        two = await _working(url, workers, f"two {together} {number}", sessions=2 * sessions, steps=steps)
        bare_two = _writing(writers, commits)
        if number:
            gains.add(two / one, bare_two / bare_one)
            rates.add(two, bare_two)
            single.append(one)
    for process in (*workers, *writers):
        process.end()
    named = "PostgreSQL: two workers, one session at a time" if together == 1 else f"PostgreSQL: two workers, {together} sessions at once"
    return [
        gains.figure(f"{named}: over one worker, as two bare writers gain", show=_times, limit=0.8, at_most=False),
        rates.figure(f"{named}: commits/s over two bare writers", show=per_second, at_most=False),
        Figure(name=f"{named}: one worker", value=statistics.median(single), unit="commits/s", low=min(single), high=max(single)),
    ]


def _times(gain: float) -> str:
    return f"{gain:.2f} ×"


if __name__ == "__main__":
    {"works": works, "writes": writes}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
