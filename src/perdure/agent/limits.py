"""Whether limits, and patience with models, are ones that anything can be held to."""

from __future__ import annotations

from ..core import canonical
from ..core.budget import STEPS
from ..core.errors import InvalidAgent
from ..core.records import Limits
from ..models.base import ModelSettings
from ..tools.tool import is_seconds

__all__ = ["LEAST", "check_patience", "wrong_limit"]

LEAST = {
    "steps": 1,
    "tool_calls": 0,
    "tokens": 1,
    "model_calls": 1,
    "cost": 1,
    "seconds": 1,
    "children": 0,
    "depth": 0,
    "handoffs": 0,
    "reports": 0,
}
"""The least of each: no tool call is a limit that makes sense, and where no model may be called nothing can be done."""


def wrong_limit(limits: object) -> tuple[str, str] | None:
    """What is wrong with limits, and what would be right; None if nothing is."""
    if type(limits) is not Limits:
        return "must be Limits(…)", "Limits(steps=20, tokens=100_000)"
    if type(limits.strict) is not bool:
        return f"have strict={limits.strict!r:.40}", "True or False"
    for limit, least in LEAST.items():
        value = getattr(limits, limit)
        # Seconds are counted in milliseconds.
        most = canonical.MAX_INTEGER // 1000 if limit == "seconds" else canonical.MAX_INTEGER
        if value is not None and not canonical.is_whole(value, least, most):
            unit = ", in billionths of a dollar: usd(2.50)" if limit == "cost" else ""
            none = f"None, which is {STEPS} for an agent's turn; 10**9 is as good as none" if limit == "steps" else "None"
            return f"have {limit}={value!r:.40}, which is no number of {limit}", f"at least {least}{unit}, or {none}"
    return None


def check_patience(settings: ModelSettings, whose: str) -> None:
    """Whether somebody can wait so long, and try so often. Raises `InvalidAgent`."""
    for option in ("timeout", "longest_wait"):
        value = getattr(settings, option)
        if value is not None and not is_seconds(value):
            raise InvalidAgent(f"{whose} have {option}={value!r:.40}", hint="seconds, more than 0, or None")
    attempts = settings.attempts
    if attempts is not None and not canonical.is_whole(attempts, 1):
        raise InvalidAgent(f"{whose} have attempts={attempts!r:.40}", hint="at least 1, or None")
