"""A tool that waits, for seconds or months, without a process that waits with it."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from .moments import LONGEST_SLEEP
from .tool import ArgumentsInvalid, Delegation, Tool, tool

__all__ = ["sleep_tool"]


def sleep_tool(name: str = "sleep") -> Tool:
    """A tool with which a model sets its turn aside until a time. The session is not held meanwhile, and a restart changes nothing."""

    @tool(effect="pure", name=name, description="Wait, for some seconds or until a time, and then go on.")
    async def sleep(seconds: float | None = None, until: str | None = None) -> str:
        """Wait.

        Args:
            seconds: How long.
            until: Until when, instead: ISO 8601 with a time zone, such as 2026-01-31T12:00:00+01:00.
        """
        raise NotImplementedError("the runtime sets the turn aside")

    return dataclasses.replace(sleep, delegation=Delegation("timer", moment=lambda arguments, now: _moment(name, arguments, now)))


def _moment(name: str, arguments: dict[str, Any], now: int) -> int:
    """When a call's time has come, in ms since 1970. Raises `ArgumentsInvalid`; where ``now`` is 0 nobody knows what is too far off."""
    seconds: float | None = arguments.get("seconds")
    until: str | None = arguments.get("until")
    if (seconds is None) == (until is None):
        raise ArgumentsInvalid(f"{name} takes either seconds or until")
    if seconds is None:
        try:
            moment = datetime.fromisoformat(until or "")
        except ValueError:
            raise ArgumentsInvalid(f"until={until!r:.40} is no time: write it as 2026-01-31T12:00:00+01:00") from None
        if moment.tzinfo is None:
            raise ArgumentsInvalid(f"until={until!r:.40} names no time zone")
        if now and moment.timestamp() * 1000 > now + LONGEST_SLEEP * 1000:
            raise ArgumentsInvalid(f"until={until!r:.40} is too far off: {name} takes at most ten years")
        return max(1, round(moment.timestamp() * 1000))
    if not seconds <= LONGEST_SLEEP:
        raise ArgumentsInvalid(f"{name} takes at most {LONGEST_SLEEP} seconds")
    # A moment that has passed is as good as now, and 0 would be none.
    return max(1, now + round(max(seconds, 0) * 1000))
