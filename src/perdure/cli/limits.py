"""Limits as people write them on the command line: ``tokens=100000``, ``cost=2.50`` in dollars."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.budget import LIMITS
from ..core.errors import UsageError
from ..core.records import Limits
from ..core.usage import dollars, usd

__all__ = ["amount", "limits"]


def limits(given: Iterable[str] | None) -> Limits | None:
    """Limits from ``NAME=VALUE``; None if none was given. Raises `UsageError`."""
    found: dict[str, Any] = {}
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals or name not in LIMITS:
            raise UsageError(f"{item!r:.60} is no limit", hint=f"NAME=VALUE with one of {', '.join(LIMITS)}; cost is in dollars")
        try:
            found[name] = usd(float(value)) if name == "cost" else int(value.replace("_", ""))
        except ValueError:
            wanted = "cost=2.50, in dollars" if name == "cost" else f"a whole number: {name}=100"
            raise UsageError(f"{item!r:.60} names no amount", hint=wanted) from None
    return Limits(**found) if found else None


def amount(limit: str, value: int) -> str:
    """So much of what a limit bounds."""
    return dollars(value) if limit == "cost" else f"{value:,}"
