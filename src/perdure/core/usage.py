"""Token counts in which a number that nobody reported is unknown, and never 0."""

from __future__ import annotations

import msgspec

__all__ = ["Totals", "Usage"]


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one model call used, in tokens; ``None`` is *not reported*.

    ``input_tokens`` includes those read from and written to a cache, ``output_tokens`` includes reasoning.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sums over model calls. ``unknown_calls`` counts those whose input or output nobody reported: the sums lack them."""

    calls: int = 0
    unknown_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Known input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __str__(self) -> str:
        calls = "no model calls" if not self.calls else "1 model call" if self.calls == 1 else f"{self.calls} model calls"
        if self.unknown_calls and not self.total_tokens:
            return f"{calls}, tokens unknown"
        unknown = f" ({self.unknown_calls} of unknown size)" if self.unknown_calls else ""
        return calls + (f"{unknown}, {self.input_tokens} tokens in, {self.output_tokens} out" if self.calls else "")

    def plus(self, usage: Usage | None) -> Totals:
        """The totals with one more call, whose usage may be unknown."""
        used = usage or Usage()
        return Totals(
            calls=self.calls + 1,
            unknown_calls=self.unknown_calls + (used.input_tokens is None or used.output_tokens is None),
            input_tokens=self.input_tokens + (used.input_tokens or 0),
            output_tokens=self.output_tokens + (used.output_tokens or 0),
            cache_read_tokens=self.cache_read_tokens + (used.cache_read_tokens or 0),
            cache_write_tokens=self.cache_write_tokens + (used.cache_write_tokens or 0),
            reasoning_tokens=self.reasoning_tokens + (used.reasoning_tokens or 0),
        )
