"""Storms that a seed decides: nothing is lost, nothing is done twice, and all come to an end. ``PERDURE_SEED=n`` runs one seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from perdure.runtime.driver import Driver
from perdure.runtime.news import News
from perdure.testing import World
from perdure.testing.simulation import SimulationFailed, Weather, simulate

CHOSEN = os.environ.get("PERDURE_SEED")
SHORT = [int(CHOSEN)] if CHOSEN else list(range(48))
HARD = Weather(sessions=6, runners=4, people=4, wishes=12, storm=180_000, fails_before=0.05, fails_after=0.05, dies=0.04, pause=0.8)


@pytest.mark.parametrize("first", SHORT[::8])
async def test_every_seed_ends_well(first: int) -> None:
    happened: Counter[str] = Counter()
    for seed in SHORT[SHORT.index(first) :][:8]:
        happened += (await simulate(seed)).happened
    if not CHOSEN:
        for kind in (
            "death",
            "error before",
            "error after",
            "pause",
            "recovered",
            "answer",
            "run: answered",
            "stream: ",
            "call: answered",
            "child_ended",
        ):
            assert any(name.startswith(kind) for name in happened), f"eight seeds without a single {kind} prove little"


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 400, 20))
async def test_hundreds_of_seeds_end_well_in_hard_weather(first: int) -> None:
    for seed in range(10_000 + first, 10_000 + first + 20):
        await simulate(seed, HARD)


async def test_a_seed_is_the_same_simulation_every_time() -> None:
    first, second, other = await simulate(7), await simulate(7), await simulate(8)
    assert (first.trace, first.operations, first.happened) == (second.trace, second.operations, second.happened)
    assert first.trace != other.trace


def test_a_seed_is_the_same_simulation_in_every_process() -> None:
    program = "import asyncio; from perdure.testing.simulation import simulate; print([asyncio.run(simulate(n)).trace for n in (0, 11)])"
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1


async def many() -> None:
    for seed in range(100):
        await simulate(seed)


async def test_whoever_says_that_nothing_happened_without_making_sure_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "refuse", lambda world, key, attempt: True)
    with pytest.raises(SimulationFailed, match=r"PERDURE_SEED=\d+ runs it again"):
        await many()


async def test_whoever_does_not_tell_what_the_journal_says_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(News, "_resolve", lambda news, key, result: None)
    with pytest.raises(SimulationFailed, match=r"was told too late|still waits"):
        await many()


async def test_whoever_tells_what_the_journal_does_not_say_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    result_of = Driver.result_of
    monkeypatch.setattr(Driver, "result_of", lambda driver, ended: replace(result_of(driver, ended), steps=0))
    with pytest.raises(SimulationFailed, match=r"its result is .* is stored"):
        await many()
