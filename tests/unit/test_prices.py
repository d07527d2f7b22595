"""Prices: one's own first, then the package's; what nobody knows is unknown, and never 0."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import pytest

import perdure
from perdure import Cost, FunctionModel, Price, Prices, Usage
from perdure.models.openai import OpenAIChat, OpenAIResponses
from perdure.models.prices import importlib

AT = round(datetime(2026, 6, 1, tzinfo=UTC).timestamp() * 1000)
USED = Usage(input_tokens=1_000, output_tokens=100, cache_read_tokens=400, cache_write_tokens=100)


def cost(prices: Prices, usage: Usage = USED, *, model: Any = None, reported: str = "m-1", route: str = "main") -> Cost:
    return prices.cost(route=route, model=model or FunctionModel(lambda request: "hi", name="fake"), reported=reported, usage=usage, at=AT)


def test_ones_own_price_is_exact_and_knows_what_a_cache_costs() -> None:
    own = Price(input=2, output=10, cache_read=0.5, cache_write=4)

    found = cost(Prices({"m-1": own}))

    # 500 at $2, 400 at $0.5, 100 at $4, 100 out at $10, for a million each.
    assert found == Cost(nanodollars=500 * 2_000 + 400 * 500 + 100 * 4_000 + 100 * 10_000, price=f"own price of m-1: {own}")
    assert str(own) == "$2 in, $10 out, $0.5 cache read, $4 cache write per million"
    plain = cost(Prices({"m-1": Price(input=2, output=10)}))
    assert plain.nanodollars == 1_000 * 2_000 + 100 * 10_000


@pytest.mark.parametrize("name", ["main", "fake", "m-1"])
def test_a_price_is_found_by_the_route_by_the_models_name_and_by_its_providers_name_for_it(name: str) -> None:
    assert cost(Prices({name: Price(input=1, output=1)})).nanodollars == 1_100_000


def test_a_free_model_costs_nothing_and_that_is_known() -> None:
    assert cost(Prices({"m-1": Price(input=0, output=0)})).nanodollars == 0


def test_what_was_used_by_nobody_knows_how_much_has_no_cost() -> None:
    found = cost(Prices({"m-1": Price(input=1, output=1)}), Usage(input_tokens=3))
    assert (found.nanodollars, found.price) == (None, "unknown: nobody reported what was used")


def test_the_package_knows_what_providers_take_and_its_version_is_recorded() -> None:
    found = cost(Prices(), Usage(input_tokens=1_000, output_tokens=100), model=OpenAIResponses("gpt-4o"), reported="gpt-4o-2024-08-06")

    assert found.nanodollars == 1_000 * 2_500 + 100 * 10_000
    assert found.price.startswith("genai-prices 0.")
    assert found.price.endswith(": openai/gpt-4o")


def test_ones_own_price_wins_over_the_packages() -> None:
    prices = Prices({"openai:gpt-4o": Price(input=1, output=1)})
    found = cost(prices, Usage(input_tokens=10, output_tokens=0), model=OpenAIResponses("gpt-4o"), reported="gpt-4o")
    assert found.nanodollars == 10_000


def test_a_model_that_nobody_has_a_price_of_has_an_unknown_price() -> None:
    found = cost(Prices(), model=OpenAIResponses("nonsense-9"), reported="nonsense-9")
    assert found.nanodollars is None
    assert "has no price of nonsense-9" in found.price
    assert cost(Prices(), reported="gpt-4o").nanodollars is None, "a model of nobody's is not OpenAI's by its name"
    assert cost(Prices(library=False), model=OpenAIResponses("gpt-4o"), reported="gpt-4o").nanodollars is None


def test_the_same_name_at_another_address_is_not_priced_as_its_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    local = OpenAIChat("gpt-4o", base_url="http://localhost:11434/v1")
    assert cost(Prices(), model=local, reported="gpt-4o").nanodollars is None
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:11434/v1")
    assert cost(Prices(), model=OpenAIChat("gpt-4o"), reported="gpt-4o").nanodollars is None
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1")
    assert cost(Prices(), model=OpenAIChat("gpt-4o"), reported="gpt-4o").nanodollars is not None


def test_huge_numbers_are_an_unknown_amount_and_break_nothing() -> None:
    huge = Usage(input_tokens=2**53 - 1, output_tokens=2**53 - 1)
    found = cost(Prices({"m-1": Price(input=1_000, output=1_000)}), huge)
    assert (found.nanodollars, found.price) == (None, "unknown: the amount can't be counted")
    assert cost(Prices(), huge, model=OpenAIResponses("gpt-4o"), reported="gpt-4o").nanodollars is None


@pytest.mark.parametrize(
    "own",
    [{"": Price(input=1, output=1)}, {"m": 3}, {"m": Price(input=-1, output=1)}, {"m": Price(input=1, output=float("nan"))}],
)
def test_what_is_no_price_is_refused(own: Any) -> None:
    with pytest.raises(perdure.UsageError):
        Prices(own)


def test_without_the_package_prices_are_unknown_and_a_limit_of_cost_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = cost(Prices(), model=OpenAIResponses("gpt-4o"), reported="gpt-4o")
    assert (found.nanodollars, found.price) == (None, "unknown: there is no price of gpt-4o, and the package genai-prices is not used")
    with pytest.raises(perdure.MissingExtra, match=r"\.\[prices\]"):
        Prices().check()
    Prices({"m": Price(input=1, output=1)}).check()


def test_the_package_is_not_imported_before_anybody_asks_for_a_price() -> None:
    code = "import sys, perdure; perdure.Prices(); sys.exit('genai_prices' in sys.modules)"
    import subprocess

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
