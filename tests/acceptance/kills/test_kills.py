"""A program that is really killed, wherever it is, loses nothing and does nothing twice."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import perdure
from perdure.core.entries import EffectSettled, OperationEnded, OperationPlanned, OperationStarted
from perdure.runtime.verify import verify
from perdure.testing import find_all_problems
from perdure.testing.crash import Harness, Ledger, wait_until_stopped

PROGRAM = Path(__file__).with_name("program.py")

ORDER = (
    "before send",
    "after send",
    "before commit start",
    "after commit start",
    *("before model 0", "within model 0", "before commit receipt", "after commit receipt"),
    *("before effect put", "after effect put", "before effect charge", "after effect charge"),
    *("before commit receipt", "after commit receipt", "before model 1", "within model 1"),
    *("before effect pay", "after effect pay", "before commit receipt", "after commit receipt"),
    *("before model 2", "within model 2", "before commit ask", "after commit ask"),
    *("before person", "before commit answer", "after commit answer", "before commit begin"),
    *("after commit begin", "before effect refund", "after effect refund", "before commit receipt"),
    *("before model 3", "within model 3", "before commit end", "after commit end", "before retire", "after retire"),
)
"""The points of the program, as it passes them."""

RECOVERY = (
    "before effect charge",
    "before commit recovery",
    "after commit recovery",
    "after effect pay",
    "before reconcile pay",
    "after reconcile pay",
    "before commit settle",
    "after commit settle",
)
"""Points that only a program passes that was killed before."""

KINDS = {*ORDER, *RECOVERY}


def harness(directory: Path, *arguments: str) -> Harness:
    return Harness([sys.executable, str(PROGRAM), *arguments], directory)


async def check(directory: Path) -> Counter[str]:
    """Nothing lost, nothing twice, what is uncertain is said to be, and the store is whole. Returns how the outside calls ended."""
    done = Ledger(directory / "ledger.jsonl").read()
    times = Counter(line["key"] for line in done if line["effect"] == "external")
    assert max(times.values(), default=0) <= 1, "something was done twice"
    endings: Counter[str] = Counter()
    async with perdure.open(str(directory / "agents.db")) as runtime:
        assert await find_all_problems(runtime.store) == []
        assert [str(problem) async for problem in verify(runtime.store)] == []
        for number in range(2):
            session = f"mail-{number}"
            result = await runtime.sessions.result(session, f"m-{number}")
            assert result is not None
            assert (result.status, result.output) == ("completed", "All is done.")
            known_uncertain = {item.operation for item in await runtime.sessions.uncertain(session)}
            happened = {line["operation"] for line in done if line["session"] == session}
            tools: dict[str, str] = {}
            told: dict[str, str] = {}
            for entry in await runtime.sessions.entries(session):
                match entry:
                    case OperationPlanned() | OperationStarted() if entry.plan is not None and entry.plan.kind == "tool":
                        tools[entry.operation] = entry.plan.name
                    case OperationEnded(final=True) | EffectSettled() if entry.operation in tools:
                        endings[f"{tools[entry.operation]} {entry.status}"] += 1
                        told[entry.operation] = entry.status
                    case _:
                        pass
            for operation, status in told.items():
                if status == "uncertain":
                    assert operation in known_uncertain
                else:
                    assert (status == "succeeded") == (operation in happened), f"{tools[operation]} is told as {status}, which is not so"
            assert sorted(tools.values()) == ["charge", "pay", "put", "refund"]
    assert endings["pay succeeded"] == 2, "a tool that can be asked is never left unknown"
    return endings


def killed_in_order(directory: Path, points: tuple[str, ...], *arguments: str) -> Counter[str]:
    """Kill the program at one point after the other, a life each, and let it end."""
    program = harness(directory, *arguments)
    for point in points:
        ended = program.run(point)
        if not ended.code:
            # A call that was cut off leaves no receipt of its own, so there may be fewer points than there were.
            return program.hits
        assert ended.hit == point, f"not killed {point}, but ended with {ended.code}:\n{ended.output}"
    program.finish()
    return program.hits


STRIDE = 4
"""So many points lie between two kills, because a call that dies every time is given up at the fourth."""


def killed_at_random(directory: Path, chance: random.Random, kills: int) -> Counter[str]:
    """Kill the program at no particular point, some lives long, and let it end."""
    program = harness(directory)
    for _ in range(kills):
        program.run(after=chance.uniform(0.15, 0.6))
    program.finish()
    return program.hits


TRIALS_LIMIT = 150
"""More than thrice as many as it takes to hit everything often enough."""

SEED = int(os.environ.get("PERDURE_SEED", "1"))

TRIALS: dict[str, Callable[[Path], Counter[str]]] = {
    **{f"{first}, {first + STRIDE}, …": partial(killed_in_order, points=ORDER[first::STRIDE]) for first in range(STRIDE)},
    "recovery": partial(killed_in_order, points=RECOVERY),
    f"random, PERDURE_SEED={SEED}": partial(killed_at_random, chance=random.Random(SEED), kills=3),
}


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Path, Future[Counter[str]]]]]:
    """All of them are under way at once, on as many cores as there are."""
    with ThreadPoolExecutor(2) as pool:
        found = {}
        for name, trial in TRIALS.items():
            directory = tmp_path_factory.mktemp("kills")
            found[name] = (directory, pool.submit(trial, directory))
        yield found


@pytest.mark.spec("S0-185")
@pytest.mark.parametrize("name", TRIALS)
async def test_a_program_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    name: str, trials: dict[str, tuple[Path, Future[Counter[str]]]]
) -> None:
    directory, trial = trials[name]
    trial.result()

    endings = await check(directory)
    if name == "recovery":
        assert (endings["charge uncertain"], endings["charge failed"], endings["charge succeeded"]) == (1, 1, 1)


async def test_every_kind_of_moment_was_hit(trials: dict[str, tuple[Path, Future[Counter[str]]]]) -> None:
    hits: Counter[str] = sum((trial.result() for _, trial in trials.values()), Counter())
    show(hits)
    assert set(hits) - {"at a random moment"} == KINDS


def show(hits: Counter[str]) -> None:
    print(f"{hits.total()} kills:")
    for kind, count in sorted(hits.items()):
        print(f"  {count:4} {kind}")


async def test_a_process_that_is_stopped_past_its_lease_is_fenced_and_what_it_knew_settles_what_was_unknown(tmp_path: Path) -> None:
    program = harness(tmp_path, "0.3", "unsettled")
    zombie = program.start("after effect charge", signal_=signal.SIGSTOP)
    try:
        wait_until_stopped(zombie)
        program.finish()
        endings = await check(tmp_path)
        assert endings["charge uncertain"] == 1

        zombie.send_signal(signal.SIGCONT)
        output, _ = zombie.communicate(timeout=30)
    finally:
        zombie.kill()
    # Its own work ended; it waited for the result of whoever took over, and handed in what it knew.
    assert (zombie.returncode, output.splitlines()) == (0, ["completed All is done."] * 2), output

    async with perdure.open(str(tmp_path / "agents.db")) as runtime:
        settled = [entry for entry in await runtime.sessions.entries("mail-0") if isinstance(entry, EffectSettled)]
        assert [entry.status for entry in settled] == ["succeeded"]
        assert await runtime.sessions.uncertain("mail-0") == []
        assert await find_all_problems(runtime.store) == []


@pytest.mark.long
async def test_hundreds_of_kills_of_every_kind_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    hits: Counter[str] = Counter()
    chance = random.Random(2)
    trial = 0
    while (rare := sorted(kind for kind in KINDS if hits[kind] < 5)) or hits.total() < 300:
        trial += 1
        assert trial <= TRIALS_LIMIT, f"{hits.total()} kills, and never often enough {rare}"
        directory = tmp_path / str(trial)
        directory.mkdir()
        if trial % 7 == 0:
            hits += killed_at_random(directory, chance, 5)
        elif trial % 3 == 0:
            hits += killed_in_order(directory, RECOVERY)
        else:
            stride = chance.choice((3, 4, 5))
            hits += killed_in_order(directory, ORDER[chance.randrange(stride) :: stride])
        await check(directory)
    show(hits)
