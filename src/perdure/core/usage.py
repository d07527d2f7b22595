"""Token counts and costs in which a number that nobody reported is unknown, and never 0."""

from __future__ import annotations

import msgspec

from . import canonical
from .errors import UsageError

__all__ = ["NANODOLLARS", "Cost", "Totals", "Usage", "dollars", "usd"]

NANODOLLARS = 1_000_000_000
"""How many make a US dollar. Costs are whole numbers, so that sums of them are exact."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """What one model call used, in tokens; ``None`` is *not reported*.

    ``input_tokens`` includes those read from and written to a cache, ``output_tokens`` includes reasoning. ``estimated``: the model's
    adapter counted them itself, and its provider reported nothing.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False


class Cost(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """What one model call cost, in billionths of a US dollar; ``None`` is *unknown*.

    ``price`` says by which price, or why there is none.
    """

    nanodollars: int | None = None
    price: str = ""


class Totals(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Sums of what is known over model calls.

    ``unknown_calls`` counts those whose input or output nobody reported, ``unpriced_calls`` those that were to be priced and could not be:
    the sums lack them. ``estimated_calls`` counts those whose numbers are an estimate. ``cost`` is in billionths of a US dollar.
    """

    calls: int = 0
    unknown_calls: int = 0
    estimated_calls: int = 0
    unpriced_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: int = 0

    @property
    def total_tokens(self) -> int:
        """Known input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __str__(self) -> str:
        calls = "no model calls" if not self.calls else "1 model call" if self.calls == 1 else f"{self.calls} model calls"
        cost = f", {dollars(self.cost)}" if self.cost else ""
        if self.unknown_calls and not self.total_tokens:
            return f"{calls}, tokens unknown{cost}"
        unknown = f" ({self.unknown_calls} of unknown size)" if self.unknown_calls else ""
        return calls + (f"{unknown}, {self.input_tokens} tokens in, {self.output_tokens} out{cost}" if self.calls else "")

    def and_of(self, other: Totals) -> Totals:
        """Both together. A number that would make a sum too large to be stored is left out."""
        return Totals(
            **{name: getattr(self, name) + (_addable(getattr(self, name), getattr(other, name)) or 0) for name in self.__struct_fields__}
        )

    def plus(self, usage: Usage | None, cost: Cost | None = None) -> Totals:
        """The totals with one more call, whose usage may be unknown. ``cost`` None: nobody wanted to know its price.

        A number that would make a sum too large to be stored counts as unknown.
        """
        used = usage or Usage()
        given = _addable(self.input_tokens, used.input_tokens)
        answered = _addable(self.output_tokens, used.output_tokens)
        paid = None if cost is None else _addable(self.cost, cost.nanodollars)
        return Totals(
            calls=self.calls + 1,
            unknown_calls=self.unknown_calls + (given is None or answered is None),
            estimated_calls=self.estimated_calls + used.estimated,
            unpriced_calls=self.unpriced_calls + (cost is not None and paid is None),
            input_tokens=self.input_tokens + (given or 0),
            output_tokens=self.output_tokens + (answered or 0),
            cache_read_tokens=self.cache_read_tokens + (_addable(self.cache_read_tokens, used.cache_read_tokens) or 0),
            cache_write_tokens=self.cache_write_tokens + (_addable(self.cache_write_tokens, used.cache_write_tokens) or 0),
            reasoning_tokens=self.reasoning_tokens + (_addable(self.reasoning_tokens, used.reasoning_tokens) or 0),
            cost=self.cost + (paid or 0),
        )


def _addable(total: int, number: int | None) -> int | None:
    return None if number is None or total + number > canonical.MAX_INTEGER else number


def usd(amount: float) -> int:
    """Dollars as costs are counted: in billionths, rounded to the nearest one. Raises `UsageError` for what is no amount."""
    counted = isinstance(amount, int | float) and not isinstance(amount, bool) and 0 <= amount <= canonical.MAX_INTEGER / NANODOLLARS
    if not counted:
        raise UsageError(f"{amount!r:.40} is no amount of dollars", hint="a number, at least 0 and at most nine million")
    return round(amount * NANODOLLARS)


def dollars(nanodollars: int) -> str:
    """A cost as people read it: cents, or as many digits as a smaller amount needs to be seen."""
    amount = abs(nanodollars)
    sign = "-" if nanodollars < 0 else ""
    if amount % 10_000_000 == 0 or amount >= NANODOLLARS:
        return f"{sign}${amount / NANODOLLARS:.2f}"
    return f"{sign}${amount / NANODOLLARS:.9f}".rstrip("0")
