"""Costs: recorded with the receipt at the price of the day, unknown where nobody knows it, and bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    Cost,
    FunctionModel,
    Limits,
    ModelRequest,
    OperationEnded,
    Price,
    Prices,
    Reply,
    Runtime,
    ToolCall,
    Usage,
    tool,
    usd,
)
from perdure.models.prices import importlib
from perdure.runtime.verify import verify
from perdure.testing.checks import find_all_problems

from ..interactive.acting import Place

USED = Usage(input_tokens=1_000, output_tokens=0)


@tool(effect="pure")
async def look(place: str) -> str:
    """Look."""
    return "nothing"


def looker(steps: int, name: str = "fake", **options: Any) -> Agent:
    def play(request: ModelRequest) -> Reply:
        done = sum(message.role == "tool" for message in request.messages)
        return Reply(tool_calls=[ToolCall("look", {"place": f"p{done}"})], usage=USED) if done < steps else Reply("done", usage=USED)

    return Agent("looker", model=FunctionModel(play, name=name), tools=[look], **options)


def priced(place: Place, **prices: Price) -> Runtime:
    return Runtime(place.connect(), clock=place.clock, prices=Prices(prices, library=False))


async def test_a_calls_cost_is_recorded_with_its_receipt_and_no_later_price_changes_it(place: Place) -> None:
    async with priced(place, fake=Price(input=2, output=8)) as runtime, asyncio.timeout(20):
        first = await runtime.run(looker(1), "go", session="s", submission="m")
        assert [call.cost for call in first.model_calls] == [
            Cost(nanodollars=2_000_000, price="own price of fake: $2 in, $8 out per million")
        ] * 2
        assert (first.usage.cost, first.spending.cost) == (4_000_000, 4_000_000)
        assert "$0.004" in str(first.usage)
    async with priced(place, fake=Price(input=20, output=80)) as runtime, asyncio.timeout(20):
        assert await runtime.run(looker(1), "go", session="s", submission="m") == first
        again = await runtime.run(looker(2), "more", session="s")
        assert again.usage.cost == 20_000_000 * again.usage.calls
        assert [call.cost.nanodollars for call in await runtime.sessions.model_calls("s") if call.cost][:2] == [2_000_000] * 2
        assert (await runtime.sessions.checkpoint("s")).usage.cost == 4_000_000 + again.usage.cost
        assert [str(problem) async for problem in verify(runtime.store)] == []


async def test_a_limit_of_cost_ends_the_turn(place: Place) -> None:
    async with priced(place, fake=Price(input=2, output=8)) as runtime, asyncio.timeout(20):
        result = await runtime.run(looker(9, limits=Limits(cost=usd(0.005))), "go", session="s")
        assert (result.status, result.reason, result.usage.cost) == ("limited", "limit reached: cost", 6_000_000)
        more = await runtime.resume(looker(5, limits=Limits(cost=usd(0.005))), "s", Limits(cost=usd(1)))
        assert more.ok
        assert await find_all_problems(runtime.store) == []


async def test_nobody_asks_for_prices_where_nothing_limits_cost(place: Place) -> None:
    async with place.process() as process:
        result = await process.run(looker(0), "go", session="s")
        assert ([call.cost for call in result.model_calls], result.usage.cost, result.spending.cost) == ([None], 0, None)
        assert not process.models.prices.loaded


async def test_an_unknown_price_is_said_in_the_receipt_and_ends_only_a_strict_turn(place: Place) -> None:
    async with priced(place, other=Price(input=1, output=1)) as runtime, asyncio.timeout(20):
        result = await runtime.run(looker(1, limits=Limits(cost=usd(0.001))), "go", session="s")
        assert (result.status, result.usage.cost, result.usage.unpriced_calls, result.spending.cost) == ("completed", 0, 2, None)
        receipts = [entry for entry in await runtime.sessions.entries("s") if isinstance(entry, OperationEnded) and entry.usage]
        assert all(entry.cost is not None and entry.cost.nanodollars is None for entry in receipts)
        strict = await runtime.run(looker(1, limits=Limits(cost=usd(0.001), strict=True)), "go", session="strict")
        assert (strict.status, strict.usage.calls) == ("limited", 1)
        assert strict.reason == "limit of cost: how much was used is not known any more"


async def test_a_limit_of_cost_without_any_prices_is_refused_before_anything_is_stored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    async with place.process() as process:
        for options in ({"limits": Limits(cost=1)}, {"session_limits": Limits(cost=1)}):
            with pytest.raises(perdure.MissingExtra):
                await process.run(looker(0, **options), "go", session="s")
        with pytest.raises(perdure.MissingExtra):
            await process.run(looker(0), "go", session="s", limits=Limits(cost=1))
        assert await process.store.load("s") is None


async def test_a_pool_of_dollars_is_drawn_from_and_charged_to_the_billionth(place: Place) -> None:
    async with priced(place, fake=Price(input=2, output=8)) as runtime, asyncio.timeout(20):
        await runtime.pools.set("acme", Limits(cost=usd(0.009)))
        result = await runtime.run(looker(9), "go", session="s", identity=perdure.Identity(owner="acme"))
        assert (result.status, result.usage.cost) == ("limited", 10_000_000)
        pool = await runtime.pools.get("acme")
        assert pool is not None
        assert (pool.used, pool.left) == ({"cost": 10_000_000}, {"cost": -1_000_000})
        assert [str(problem) async for problem in verify(runtime.store)] == []


async def test_without_prices_of_its_own_a_runtime_prices_what_a_pool_bounds_in_dollars(place: Place) -> None:
    async with place.process() as process:
        await process.pools.set("acme", Limits(cost=usd(1)))
        result = await process.run(looker(0), "go", session="s", identity=perdure.Identity(owner="acme"))
        (call,) = result.model_calls
        assert call.cost is not None
        assert call.cost.nanodollars is None
        assert "no price of" in call.cost.price
