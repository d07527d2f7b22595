"""What was used by whom: an index of all ledgers that is brought up to date, and made again, without counting anything twice."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, FunctionModel, Identity, ModelRequest, Price, Prices, RateLimited, Reply, Router, Runtime, Usage, UsageRow
from perdure.runtime.model_calls import Spending
from perdure.runtime.usage import UsageIndex
from perdure.testing.faults import Fault

from ..interactive.acting import Place

DAY = 86_400_000


def agent(name: str = "fast", *, used: Usage | None = None) -> Agent:
    usage = used or Usage(input_tokens=10, output_tokens=2)
    models = {route: FunctionModel(lambda request: Reply("hi", usage=usage), name=route) for route in ("fast", "deep")}
    return Agent("helper", model=Router({name: models[name], **models}))


def told(rows: list[UsageRow]) -> list[tuple[Any, ...]]:
    return [(*row.group.values(), row.spending.known.calls, row.spending.total_tokens) for row in rows]


async def test_usage_is_told_by_session_owner_route_and_day(place: Place, tmp_path: Path) -> None:
    index = tmp_path / "usage.db"
    async with place.process() as process:
        await process.run(agent(), "one", session="a", identity=Identity(owner="acme"))
        await process.run(agent("deep"), "two", session="b", identity=Identity(owner="acme"))
        place.clock.advance(DAY)
        await process.run(agent(), "three", session="a", identity=Identity(owner="acme"))
        await process.run(agent(), "four", session="c")
        assert told(await process.usage(index=index)) == [("a", 2, 24), ("b", 1, 12), ("c", 1, 12)]
        assert told(await process.usage(["owner"], index=index)) == [("acme", 3, 36), ("", 1, 12)]
        first = datetime.fromtimestamp((place.clock.now() - DAY) / 1000, UTC).date().isoformat()
        then = datetime.fromtimestamp(place.clock.now() / 1000, UTC).date().isoformat()
        assert told(await process.usage(["day", "owner"], index=index)) == [
            (first, "acme", 2, 24),
            (then, "", 1, 12),
            (then, "acme", 1, 12),
        ]
        assert told(await process.usage(["route"], owner="acme", index=index)) == [("fast", 2, 24), ("deep", 1, 12)]
        assert told(await process.usage((), index=index)) == [(4, 48)]
        assert told(await process.usage(["kind"], since=place.clock.now(), index=index)) == [("model", 2, 24)]
        assert await process.usage(session="nobody", index=index) == []
        with pytest.raises(perdure.UsageError, match="grouped by"):
            await process.usage(["colour"], index=index)  # type: ignore[list-item]


async def test_it_is_the_ledgers_sum_with_what_is_unknown_and_what_it_cost(place: Place, tmp_path: Path) -> None:
    prices = Prices({"fast": Price(input=1, output=1)}, library=False)
    async with Runtime(place.connect(), clock=place.clock, prices=prices) as runtime, asyncio.timeout(20):
        await runtime.run(agent(used=Usage(input_tokens=10, output_tokens=2, estimated=True)), "one", session="a")
        await runtime.run(agent("deep", used=Usage(input_tokens=3)), "two", session="a", route="deep")
        (row,) = await runtime.usage(index=tmp_path / "usage.db")
        spending = Spending.of(await runtime.sessions.model_calls("a"))
        assert row.spending == spending
        assert (spending.total_tokens, spending.cost) == (None, None)
        assert (spending.known.cost, spending.known.unpriced_calls, spending.known.estimated_calls) == (12_000, 1, 1)


async def test_it_goes_on_where_it_was_also_in_the_middle_of_a_call_and_of_its_retries(place: Place, tmp_path: Path) -> None:
    index = tmp_path / "usage.db"
    begun, go, attempts = asyncio.Event(), asyncio.Event(), 0

    async def play(request: ModelRequest) -> Reply:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise RateLimited("wait", retry_after=0)
        begun.set()
        await go.wait()
        return Reply("hi", usage=Usage(input_tokens=5, output_tokens=5))

    async with place.process() as process:
        running = asyncio.create_task(process.run(Agent("a", model=FunctionModel(play)), "go", session="s"))
        await begun.wait()
        assert told(await process.usage(index=index)) == [("s", 1, None)]
        go.set()
        await running
        (row,) = await process.usage(index=index)
        assert row.spending == Spending.of(await process.sessions.model_calls("s"))
        assert told(await process.usage(index=index)) == [("s", 2, None)]
        assert told(await process.usage(["kind"], index=index)) == [("model", 2, None)]


async def test_an_index_that_is_made_again_says_the_same_and_so_does_one_that_was_lost(place: Place, tmp_path: Path) -> None:
    index = tmp_path / "usage.db"
    async with place.process() as process:
        for number in range(3):
            await process.run(agent(), "go", session=f"s{number}")
        before = await process.usage(index=index)
        assert await process.usage(index=index, rebuild=True) == before
        index.unlink()
        assert await process.usage(index=index) == before
        assert await process.usage(index=tmp_path / "other" / "usage.db") == before


async def test_what_comes_twice_is_taken_once(place: Place, tmp_path: Path) -> None:
    """The process dies between taking entries and saying so: they come again."""
    index = tmp_path / "usage.db"
    async with place.process() as process:
        await process.run(agent(), "go", session="s")
    async with place.process(Fault(kind="ack", when="before", action="die")) as process:
        with pytest.raises(perdure.StoreError):
            await process.usage(index=index)
    async with place.process() as process:
        assert told(await process.usage(index=index)) == [("s", 1, 12)]
        taken = UsageIndex(index)
        await taken.project("s", await process.sessions.entries("s"))
        assert told(taken.report()) == [("s", 1, 12)]
        taken.close()


async def test_a_deleted_session_leaves_nothing_in_it(place: Place, tmp_path: Path) -> None:
    index = tmp_path / "usage.db"
    async with place.process() as process:
        await process.run(agent(), "go", session="s")
        await process.run(agent(), "go", session="kept")
        assert len(await process.usage(index=index)) == 2
        await process.sessions.delete("s")
        assert told(await process.usage(index=index)) == [("kept", 1, 12)]


async def test_the_index_is_its_users_alone_and_stands_in_the_cache_by_default(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with place.process() as process:
        await process.run(agent(), "said in confidence", session="s")
        await process.usage()
        (file,) = (tmp_path / "cache" / "perdure").glob("usage-*.db")
        assert os.stat(file).st_mode & 0o077 == 0
        assert os.stat(file.parent).st_mode & 0o077 == 0
        assert b"confidence" not in file.read_bytes()


async def test_a_file_that_is_no_index_is_refused_and_left_alone(place: Place, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, and long enough to look like something else " * 20)
    async with place.process() as process:
        with pytest.raises(perdure.StoreBroken, match="index of usage"):
            await process.usage(index=tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text().startswith("not a database")
