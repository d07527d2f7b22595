"""Times as callers give them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeAlias

from ..core import canonical
from ..core.errors import UsageError

__all__ = ["LONGEST_SLEEP", "Moment", "moment_of"]

LONGEST_SLEEP = 10 * 366 * 86_400
"""The longest time that a turn may sleep (seconds)."""

Moment: TypeAlias = int | datetime | timedelta
"""A time as callers give it: milliseconds since 1970, a `datetime` with a time zone, or a `timedelta` from now on."""


def moment_of(given: Any, now: int, what: str) -> int:
    """A time in milliseconds since 1970. Raises `UsageError`, which names ``what`` was given."""
    moment = given
    if isinstance(given, timedelta):
        moment = now + round(given.total_seconds() * 1000)
    elif isinstance(given, datetime) and given.tzinfo is not None:
        moment = round(given.timestamp() * 1000)
    if type(moment) is not int or not 0 <= moment < canonical.MAX_INTEGER:
        raise UsageError(
            f"{what}={given!r:.100} is no time", hint="a datetime with a time zone, a timedelta from now, or milliseconds since 1970"
        )
    return moment
