"""Workers that are killed, stopped and cut off, on a database that is restarted: nothing lost, nothing twice, what is unknown is said."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import perdure
from perdure import StoreError
from perdure.core.entries import MessageAdded, OperationEnded, OperationStarted, Recovered
from perdure.core.ids import idempotency_key
from perdure.runtime.verify import verify
from tests.postgres import Server, start

from .chaos import LEASE, Chaos
from .takeovers import note_takeovers, takeovers


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own, which may be broken."""
    found = start(f"chaos-{secrets.token_hex(4)}")
    yield found
    found.handle.cleanup()


@pytest.mark.parametrize(
    ("sessions", "steps", "harms", "seed"),
    [(32, 8, 16, 1), *(pytest.param(200, 10, 60, seed, marks=pytest.mark.long) for seed in range(2, 5))],
)
async def test_everything_finishes_once(server: Server, tmp_path: Path, sessions: int, steps: int, harms: int, seed: int) -> None:
    url = server.url
    chaos = Chaos(server, url, tmp_path, steps=steps, seed=seed)
    names = [f"s{index}" for index in range(sessions)]
    chaos.start()
    try:
        while await awake(url) < 3:
            await asyncio.sleep(0.1)
        note_takeovers(server, "perdure", LEASE)
        began = time.monotonic()
        await sent(url, names)
        while not await done(url, names):
            if len(chaos.hurt) < harms and await awake(url) > 1:
                await asyncio.to_thread(chaos.harm)
                # Whoever sends everything once more sends nothing more.
                await sent(url, names)
            await asyncio.to_thread(chaos.look_after)
            await asyncio.sleep(0.2)
            assert time.monotonic() - began < 600, (tmp_path / "workers.log").read_text()[-3000:]
    finally:
        await asyncio.to_thread(chaos.end)
    took = time.monotonic() - began
    recovered, settled = await checked(url, names, tmp_path / "ledger", steps)
    delays = [taken.seconds for taken in takeovers(server, "perdure")]
    hurt = Counter(chaos.hurt)
    print(f"\n{sessions} sessions x {steps} steps in {took:.1f} s ({sessions * steps / took:.0f} steps/s) through {dict(hurt)}; "
          f"{recovered} turns recovered, {settled} payments settled late, {len(delays)} takeovers, {shown(delays)}")  # fmt: skip
    assert {"kill", "stop", "cut", "restart"} <= hurt.keys()
    assert delays[0] >= LEASE, "somebody was taken for dead who was not"
    # In a few rounds a zombie may hold nothing; in many, one brings what it still knows.
    assert settled or sessions < 100


async def sent(url: str, names: list[str]) -> None:
    """Send each session its message; again, until the store says that it is there."""
    waiting = list(names)
    while waiting:
        with suppress(StoreError):
            async with perdure.open(url) as runtime:
                while waiting:
                    await runtime.sessions.send(waiting[0], "please", submission=f"{waiting[0]}-mail", agent="shop")
                    del waiting[0]


async def done(url: str, names: list[str]) -> bool:
    try:
        async with perdure.open(url) as runtime:
            infos = [info async for info in runtime.sessions.each(order="created")]
    except StoreError:
        return False
    assert {info.session_id for info in infos} == {*names}
    assert not [info for info in infos if info.status in ("stuck", "halted")]
    return all(info.status == "idle" for info in infos)


async def awake(url: str) -> int:
    """How many workers there are."""
    try:
        async with perdure.open(url) as runtime:
            return sum(runner.alive and bool(runner.agents) for runner in await runtime.store.runners())
    except StoreError:
        return 0


async def checked(url: str, names: list[str], ledger: Path, steps: int) -> tuple[int, int]:
    """What must hold of the whole. Returns how many turns were recovered, and how many payments settled late."""
    lines = Counter(ledger.read_text().splitlines())
    begun = {line.split()[1]: count for line, count in lines.items() if line.startswith("begun ")}
    paid = {line.split()[1] for line in lines if line.startswith("paid ")}
    assert set(begun.values()) == {1}, "a payment was begun twice"
    recovered = late = 0
    known: set[str] = set()
    async with perdure.open(url) as runtime:
        assert [problem async for problem in verify(runtime.store)] == []
        for name in names:
            entries = await runtime.sessions.entries(name)
            assert sum(isinstance(entry, MessageAdded) and entry.role == "user" for entry in entries) == 1
            result = await runtime.sessions.result(name, f"{name}-mail")
            assert result is not None
            assert result.output == f"{steps} times"
            tools = {
                entry.operation for entry in entries if isinstance(entry, OperationStarted) and entry.plan and entry.plan.kind == "tool"
            }
            tools |= {entry.operation for entry in entries if entry.kind == "operation_planned"}
            succeeded = {entry.operation for entry in entries if isinstance(entry, OperationEnded) and entry.status == "succeeded"}
            settled = {entry.operation for entry in entries if entry.kind == "effect_settled"}
            uncertain = {entry.operation for entry in entries if isinstance(entry, OperationEnded) and entry.status == "uncertain"}
            assert len(tools) == steps
            for operation in tools:
                key = idempotency_key(runtime.store.store_id, name, operation)
                known.add(key)
                if operation in succeeded | settled:
                    assert key in paid, "a payment that was never made is in the books"
                else:
                    assert operation in uncertain, "a payment is neither made nor said to be unknown"
            # A model call whose receipt is stored is never made again.
            asked = [int(line.split()[2]) for line in lines.elements() if line.startswith(f"asked {name} ")]
            unknown = sum(isinstance(entry, OperationEnded) and entry.status in ("uncertain", "cancelled") for entry in entries)
            assert len(asked) - len({*asked}) <= unknown
            recovered += sum(isinstance(entry, Recovered) for entry in entries)
            late += len(settled)
    assert {*begun} <= known, "somebody paid for an operation that no journal has"
    return recovered, late


def shown(delays: list[float]) -> str:
    middle, late = delays[len(delays) // 2], delays[len(delays) * 9 // 10]
    return f"{delays[0]:.1f} to {delays[-1]:.1f} s after the last heartbeat, median {middle:.1f}, p90 {late:.1f} (lease {LEASE} s)"
