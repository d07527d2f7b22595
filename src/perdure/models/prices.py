"""What model calls cost: prices of one's own, and those of the package genai-prices. A price that nobody knows is unknown, and never 0."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..core import canonical
from ..core.errors import MissingExtra, UsageError
from ..core.usage import NANODOLLARS, Cost, Usage, usd

__all__ = ["Price", "Prices"]

MILLION = 1_000_000


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars for a million tokens. Those read from or written to a cache cost what ``input`` does, where nothing else is said."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __str__(self) -> str:
        cached = [
            f", ${rate:g} {what}" for what, rate in (("cache read", self.cache_read), ("cache write", self.cache_write)) if rate is not None
        ]
        return f"${self.input:g} in, ${self.output:g} out{''.join(cached)} per million"


class Prices:
    """Prices by model: ``own`` ones first, then, with ``library``, what the package genai-prices knows (the extra ``prices``).

    The keys of ``own`` are routes' names or providers' names of models: ``"openai:gpt-5.6-sol"``, ``"gpt-5.6-sol"``. Nothing is downloaded:
    the package's prices are those of its version, which is recorded with every cost. Raises `UsageError` for what is no price.
    """

    def __init__(self, own: Mapping[str, Price] | None = None, *, library: bool = True) -> None:
        self._own = dict(own or {})
        for name, price in self._own.items():
            if not isinstance(name, str) or not name.strip() or not isinstance(price, Price):
                raise UsageError(f"{name!r:.60}: {price!r:.60} is no price of a model", hint='{"gpt-5.6-sol": Price(input=4, output=20)}')
            for rate in (price.input, price.output, price.cache_read, price.cache_write):
                if rate is not None:
                    usd(rate)
        self._library = library
        self._package: Any = None
        self.loaded = False

    @classmethod
    def installed(cls) -> bool:
        """Whether the package with prices is there."""
        return importlib.util.find_spec("genai_prices") is not None

    def check(self) -> None:
        """Raises `MissingExtra` where nothing could be priced."""
        if not self._own and not (self._library and self.installed()):
            raise MissingExtra("a limit of cost needs prices, and there are none", extra="prices", hint="give prices= of your own")

    def load(self) -> None:
        """Get ready: the package takes a moment to read, once. Blocks."""
        self.loaded = True
        if self._library and self.installed():
            import genai_prices

            self._package = genai_prices
            # It reads its data with the first look-up.
            self._looked_up("gpt-4o", "openai", Usage(input_tokens=1, output_tokens=1), 0)

    def lacks(self, model: Any) -> bool:
        """Whether `load` is still needed to price a model's calls: the package only knows those of providers."""
        return not self.loaded and bool(_where(model))

    def cost(self, *, route: str, model: Any, reported: str, usage: Usage, at: int) -> Cost:
        """What a call cost that was answered at a time (ms). ``reported`` is the provider's own name for what answered.

        Blocks before `load`. A price that isn't known, or an amount that is none, is a `Cost` that says so.
        """
        if usage.input_tokens is None or usage.output_tokens is None:
            return Cost(price="unknown: nobody reported what was used")
        asked = str(getattr(model, "model", ""))
        for name in (route, str(getattr(model, "name", "")), reported, asked):
            price = self._own.get(name)
            if price is not None:
                return _bounded(_own(price, usage), f"own price of {name}: {price}")
        known, where = reported or asked or route, _where(model)
        if self.lacks(model):
            self.load()
        if self._package is None and where:
            return Cost(price=f"unknown: there is no price of {known}, and the package genai-prices is not used"[:200])
        if self._package is None or not where:
            return Cost(price=f"unknown: there is no price of {known}"[:200])
        for name in filter(None, (reported, asked)):
            found = self._looked_up(name, where, usage, at)
            if found is not None:
                return found
        return Cost(price=f"unknown: genai-prices {self._package.__version__} has no price of {known}"[:200])

    def _looked_up(self, name: str, where: str, usage: Usage, at: int) -> Cost | None:
        counted = self._package.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        place = {"provider_api_url": where} if "://" in where else {"provider_id": where}
        try:
            found = self._package.calc_price(counted, name, genai_request_timestamp=_moment(at), **place)
            exact = round(found.total_price * NANODOLLARS)
        except Exception:
            # Whatever the package can't make of it, nobody knows the price.
            return None
        return _bounded(exact, f"genai-prices {self._package.__version__}: {found.provider.id}/{found.model.id}")


def _where(model: Any) -> str:
    """Whose prices hold for a model: its provider's, or who is at its address."""
    return str(getattr(model, "address", "") or getattr(model, "provider", ""))


def _own(price: Price, usage: Usage) -> int:
    """By whole numbers, rounded to the nearest billionth of a dollar."""
    given, answered = usage.input_tokens or 0, usage.output_tokens or 0
    read = min(usage.cache_read_tokens or 0, given)
    written = min(usage.cache_write_tokens or 0, given - read)
    rates = (price.input, price.output, price.cache_read, price.cache_write)
    plain, out, cheap, dear = (usd(price.input if rate is None else rate) for rate in rates)
    total = (given - read - written) * plain + answered * out + read * cheap + written * dear
    return (total + MILLION // 2) // MILLION


def _bounded(nanodollars: int, price: str) -> Cost:
    if not 0 <= nanodollars <= canonical.MAX_INTEGER:
        return Cost(price="unknown: the amount can't be counted")
    return Cost(nanodollars=nanodollars, price=price[:200])


def _moment(at: int) -> datetime | None:
    return datetime.fromtimestamp(at / 1000, UTC) if at > 0 else None
