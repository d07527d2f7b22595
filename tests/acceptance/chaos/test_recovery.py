"""How long a session rests whose worker died, and what a worker that was only stopped still does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import perdure
from perdure import Runtime
from perdure.runtime.verify import verify
from tests.postgres import Server, server

from .chaos import LEASE, Chaos
from .takeovers import note_takeovers, takeovers

TRIES = 3
"""A machine that has something else to do may make one takeover late, and not each of these."""


@asynccontextmanager
async def two_workers(postgres: Server, place: Path) -> AsyncIterator[tuple[Chaos, Runtime, str]]:
    schema = postgres.schema()
    url = postgres.store(schema)
    chaos = Chaos(postgres, url, place, steps=1, seed=0)
    async with perdure.open(url) as runtime:
        note_takeovers(postgres, schema, LEASE)
        try:
            chaos.start(2)
            await until(lambda: working(runtime, 2))
            yield chaos, runtime, schema
        finally:
            await asyncio.to_thread(chaos.end)
            assert [problem async for problem in verify(runtime.store)] == []
    postgres.clear()
    postgres.execute(f'DROP SCHEMA IF EXISTS "{schema}_jobs" CASCADE')


async def working(runtime: Runtime, count: int) -> bool:
    return sum(runner.alive and bool(runner.agents) for runner in await runtime.store.runners()) == count


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(60):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
    return found


async def paying(runtime: Runtime, name: str, ledger: Path) -> int:
    """Have a session pay; returns the worker's process that does, once it does."""
    before = noted(ledger, "begun")
    await runtime.sessions.send(name, "please", submission="m", agent="slow")

    async def begun() -> bool:
        return noted(ledger, "begun") > before

    await until(begun)
    holder = (await runtime.sessions.info(name)).holder
    return next(runner.pid for runner in await runtime.store.runners() if runner.id == holder)


def noted(ledger: Path, word: str) -> int:
    return ledger.read_text().count(f"{word} ") if ledger.exists() else 0


async def of_kind(runtime: Runtime, name: str, kind: str) -> list[Any]:
    return [entry for entry in await runtime.sessions.entries(name) if entry.kind == kind]


async def test_a_session_whose_worker_was_killed_goes_on_within_two_seconds_of_the_end_of_its_lease(tmp_path: Path) -> None:
    postgres, delays = server(), list[float]()
    async with two_workers(postgres, tmp_path) as (chaos, runtime, schema):
        while not delays or (min(delays) > LEASE + 2 and len(delays) < TRIES):
            name = f"s{len(delays)}"
            chaos.signal(await paying(runtime, name, tmp_path / "ledger"), signal.SIGKILL)
            await until(partial(of_kind, runtime, name, "recovered"))
            delays = [taken.seconds for taken in takeovers(postgres, schema)]
            chaos.start(2)
    print(f"\nwent on {', '.join(f'{delay:.2f}' for delay in delays)} s after the last heartbeat (lease {LEASE} s)")
    assert LEASE <= min(delays) <= LEASE + 2


async def test_a_worker_that_was_stopped_past_its_lease_changes_nothing_and_its_late_receipt_settles_the_payment(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with two_workers(server(), tmp_path) as (chaos, runtime, _):
        zombie = await paying(runtime, "s", ledger)
        chaos.signal(zombie, signal.SIGSTOP)
        try:
            await until(partial(of_kind, runtime, "s", "turn_completed"))
            assert noted(ledger, "paid") == 0
        finally:
            (tmp_path / "go").touch()
            chaos.signal(zombie, signal.SIGCONT)
        [settled] = await until(partial(of_kind, runtime, "s", "effect_settled"))
        [uncertain] = [entry for entry in await of_kind(runtime, "s", "operation_ended") if entry.operation == settled.operation]
        [ended] = await of_kind(runtime, "s", "turn_completed")
    assert (uncertain.status, settled.receipt, settled.status) == ("uncertain", uncertain.seq, "succeeded")
    assert ended.seq < settled.seq
    assert (noted(ledger, "begun"), noted(ledger, "paid")) == (1, 1)
