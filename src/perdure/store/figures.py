"""What a store can tell of all its sessions together, for whoever watches over them, at a cost that does not grow with what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

__all__ = ["ACTIVE", "COUNTED", "PARKED", "Figures", "KeepsFigures"]

ACTIVE = ("halted", "queued", "running", "stuck", "waiting")
"""The statuses in which somebody or something has still to do with a session. The others are at rest, however many they are."""

PARKED = ("halted", "stuck", "waiting")
"""Those of `ACTIVE` in which nobody works: a step changes nothing about how many these are, so that they can have an index."""

COUNTED = 10_000
"""Nothing is counted any further: whoever reads so much knows that it is at least that."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How the sessions of a store are.

    ``sessions`` has a count for each of `ACTIVE`. ``due`` are those that nobody holds and somebody should look at by now, ``due_since``
    (ms) the earliest moment of these; ``left`` those whose holder's lease has run out. ``pending`` are submissions that nobody consumed,
    ``pending_since`` (ms) when the oldest came, or was to be looked at. ``uncertain`` are effects whose outcome nobody knows. ``now`` (ms)
    is the store's time. Each count ends at `COUNTED`; the oldest submission is looked for among so many.
    """

    sessions: dict[str, int]
    due: int
    due_since: int | None
    left: int
    pending: int
    pending_since: int | None
    uncertain: int
    now: int

    @classmethod
    def of(cls, now: int, found: Iterable[Any], parked: Mapping[str, int], working: Iterable[tuple[str, int]]) -> Figures:
        """From what a store's queries find: the statuses that they don't name have no session, and nothing due has no moment."""
        due, wake, left, pending, since, uncertain = found
        return cls(
            sessions={**dict.fromkeys(ACTIVE, 0), **parked, **{status: min(COUNTED, count) for status, count in working}},
            due=due,
            due_since=wake if due else None,
            left=left,
            pending=pending,
            pending_since=since,
            uncertain=uncertain,
            now=now,
        )


@runtime_checkable
class KeepsFigures(Protocol):
    """A store that can count itself. There are no figures of any other."""

    async def figures(self) -> Figures:
        """How the sessions are now."""
