"""Durable steps: one model call and one tool call, two commits."""

from __future__ import annotations

import gc
import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from shutil import copyfile

from perdure import Runtime

from .counting import Counting
from .floor import Cost, Floor
from .report import Figure, Pairs, as_ms, per_second
from .workload import PER_STEP, Effect, Recorder, Workload, opened

__all__ = ["bytes_and_syncs", "concurrent", "cost_per_step", "growth", "history"]


class _Side:
    """Our store and the floor's, beside each other."""

    def __init__(self, runtime: Runtime, recorder: Recorder, floor: Floor) -> None:
        self.runtime, self.recorder, self.floor = runtime, recorder, floor

    async def pair(self, workload: Workload, names: list[str], submission: str, together: int = 1) -> tuple[Cost, Cost, int]:
        """One block of ours, the same block of the floor's, and how many commits it was."""
        gc.collect()
        ours, commits = await workload.run(self.runtime, self.recorder, names, submission)
        everything = self.recorder.take()
        position = everything.index(commits[0])
        self.floor.follow(everything[:position])
        gc.collect()
        floor = self.floor.replay(commits, together)
        self.floor.follow(everything[position + len(commits) :])
        return ours, floor, len(commits)


@asynccontextmanager
async def _side(directory: Path, name: str, *, synchronous: str = "FULL", start: Path | None = None) -> AsyncIterator[_Side]:
    path, floor_path = directory / f"{name}.db", directory / f"{name}-floor.db"
    if start is not None:
        copyfile(start, path)
    async with opened(path, synchronous=synchronous) as (runtime, recorder):
        floor = Floor(floor_path, synchronous=synchronous)
        try:
            yield _Side(runtime, recorder, floor)
        finally:
            floor.close()
    for file in (path, floor_path):
        file.unlink()


async def cost_per_step(directory: Path, *, pairs: int, steps: int) -> list[Figure]:
    """One session after another's block, with the disk and without."""
    figures = []
    for synchronous in ("FULL", "OFF"):
        for effect in ("pure", "external"):
            walls, cpus = Pairs(), Pairs()
            async with _side(directory, "steps", synchronous=synchronous) as side:
                workload = Workload(steps=steps, effect=effect)
                # Kept open, so that its history is not read again before every turn.
                async with side.runtime.session("one", workload.agent):
                    for number in range(pairs + 1):
                        ours, floor, commits = await side.pair(workload, ["one"], f"turn {number}")
                        assert commits == PER_STEP * steps, commits
                        if number:
                            walls.add(ours.wall / steps, floor.wall / steps)
                            cpus.add(ours.cpu / steps, floor.cpu / steps)
            kind = f"{effect} tool"
            if synchronous == "FULL":
                figures.append(walls.figure(f"durable step, {kind}", show=as_ms, limit=1.6))
                figures.append(cpus.figure(f"durable step, {kind}: CPU", show=as_ms))
            else:
                figures.append(walls.figure(f"step without fsync, {kind}", show=as_ms))
    return figures


async def bytes_and_syncs(directory: Path, *, steps: int) -> list[Figure]:
    """Counted in a run of its own, because counting costs time."""
    figures = []
    effects: tuple[tuple[Effect, int], ...] = (("pure", 15), ("external", 20))
    for effect, limit in effects:
        counting = Counting("counting")
        path = directory / f"counted-{effect}.db"
        async with opened(path, vfs=counting.name) as (runtime, recorder):
            workload = Workload(steps=steps, effect=effect, counting=counting)
            await workload.run(runtime, recorder, ["one"], "warm up")
            recorder.take()
            _, commits = await workload.run(runtime, recorder, ["one"], "count")
        written = workload.counted
        counting.unregister()
        path.unlink()
        payload = sum(len(entry.body or b"") for commit in commits for entry in commit.entries) + sum(
            len(commit.checkpoint or b"") for commit in commits
        )
        log = written.log_bytes / len(commits) / 1024
        figures += [
            Figure(
                name=f"WAL per commit, {effect} tool",
                value=log,
                unit="KB",
                limit=limit,
                ours=f"{log:.1f} KB",
                floor=f"{payload / len(commits) / 1024:.1f} KB of content",
            ),
            Figure(
                name=f"fsyncs per step, {effect} tool",
                value=written.log_syncs / steps,
                unit="",
                limit=2.1,
                ours=f"{written.log_syncs} in {steps} steps, {written.file_syncs} of checkpoints",
            ),
        ]
    return figures


async def history(directory: Path, messages: int) -> Path:
    """A file with one session, ``one``, of so many messages, made by running it."""
    path = directory / f"history-{messages}.db"
    if not path.exists():
        async with opened(path, synchronous="OFF") as (runtime, recorder):
            await Workload(steps=max(1, messages // 2 - 6), warm=5).run(runtime, recorder, ["one"], "history")
    return path


async def growth(directory: Path, *, pairs: int, steps: int, sizes: tuple[int, ...] = (10, 1_000, 10_000)) -> list[Figure]:
    """The same blocks behind histories of different lengths, in turns."""
    figures = []
    for synchronous in ("FULL", "OFF"):
        costs: dict[int, list[float]] = {size: [] for size in sizes}
        floors = {size: Pairs() for size in sizes}
        async with AsyncExitStack() as stack:
            sides: dict[int, _Side] = {}
            for size in sizes:
                # A short history is made anew each time, in its own session: it would not stay short.
                start = await history(directory, size) if size > 100 else None
                sides[size] = await stack.enter_async_context(_side(directory, f"growth-{size}", synchronous=synchronous, start=start))
            workload = Workload(steps=steps)
            for size in sizes:
                if size > 100:
                    # Kept open, so that the history is read once.
                    await stack.enter_async_context(sides[size].runtime.session("one", workload.agent))
            for number in range(pairs + 1):
                for size in sizes:
                    name = "one" if size > 100 else f"short {number}"
                    ours, floor, _ = await sides[size].pair(workload, [name], f"turn {number}")
                    if number:
                        costs[size].append(ours.wall / steps)
                        floors[size].add(ours.wall / steps, floor.wall / steps)
        for size in sizes[1:]:
            compared = Pairs()
            for ours_long, ours_short in zip(costs[size], costs[sizes[0]], strict=True):
                compared.add(ours_long, ours_short)
            what = "step" if synchronous == "FULL" else "step without fsync"
            limit = 1.1 if size == sizes[-1] else None
            figures.append(compared.figure(f"{what} at {size:,} messages over {sizes[0]}", show=as_ms, limit=limit))
        if synchronous == "FULL":
            figures.append(floors[sizes[-1]].figure(f"durable step at {sizes[-1]:,} messages", show=as_ms))
    return figures


async def concurrent(directory: Path, *, sessions: int, steps: int, pairs: int) -> list[Figure]:
    """Many sessions in one process, against a bare loop that commits as many together. The ratio is of commits per second."""
    rates, cpu = Pairs(), []
    together, names = min(sessions, 256), [f"session {index}" for index in range(sessions)]
    workload = Workload(steps=steps, warm=1, sessions=sessions)
    async with _side(directory, f"concurrent-{sessions}") as side:
        for number in range(pairs + 1):
            ours, floor, commits = await side.pair(workload, names, f"turn {number}", together)
            if number or pairs == 0:
                rates.add(commits / ours.wall, commits / floor.wall)
    # By itself: what is kept for the floor, the garbage collector looks through all the time.
    path = directory / f"alone-{sessions}.db"
    async with opened(path, keeps=False) as (runtime, recorder):
        for number in range(pairs + 1):
            gc.collect()
            ours, _ = await workload.run(runtime, recorder, names, f"turn {number}")
            if number or pairs == 0:
                cpu.append(ours.cpu / (sessions * steps))
    path.unlink()
    named = f"{sessions:,} session{'s' if sessions > 1 else ''}"
    step_rates = [rate / PER_STEP for rate in rates.ours]
    return [
        rates.figure(
            f"{named}: commits/s over the bare group commit", show=per_second, limit=0.25 if sessions == 100 else None, at_most=False
        ),
        Figure(
            name=f"{named}: CPU per step",
            value=statistics.median(cpu) * 1000,
            unit="ms",
            low=min(cpu) * 1000,
            high=max(cpu) * 1000,
            ours=f"{statistics.median(step_rates):.0f} steps/s",
            limit=0.5 if sessions == 100 else None,
        ),
    ]
