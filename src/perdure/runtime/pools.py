"""Owners' pools: what all turns of an owner's sessions may use together."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import msgspec

from ..agent.limits import wrong_limit
from ..core.budget import LIMITS, fields, left
from ..core.errors import UsageError
from ..core.records import Limits
from ..core.records import Pool as StoredPool
from ..store.pools import KeepsPools
from .about import check_owner
from .names import check_limit

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["Pool", "Pools"]


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's pool. ``limits`` are what it has in all; ``used`` says of each of them how much was drawn, ``left`` how much was not.

    What running turns drew and have not used yet counts as used; it comes back when they end. ``left`` is less than 0 where calls took more
    than anybody knew before. Both count as `Limits` do: seconds, tokens, billionths of a dollar, calls and steps.
    """

    owner: str
    limits: Limits
    used: dict[str, int]
    left: dict[str, int]


class Pools:
    """`Runtime.pools`: limits for an owner's sessions together. Changes hold from the next draw on, in every process on this store."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def get(self, owner: str) -> Pool | None:
        """An owner's pool; None if nothing limits them together."""
        found = await self._store.pool(check_owner(owner))
        return None if found is None else _shown(owner, found)

    async def set(self, owner: str, limits: Limits) -> Pool:
        """Give an owner a pool of these limits, or its pool these limits; what was used of it stays used.

        A new pool counts turns that begin from now on. Durable when this returns. Raises `UsageError` for limits that bound nothing.
        """
        return await self._change(owner, limits, add=False)

    async def add(self, owner: str, limits: Limits) -> Pool:
        """Put so much more of each into an owner's pool; see `set`. Limited turns go on with it when somebody resumes them."""
        return await self._change(owner, limits, add=True)

    async def remove(self, owner: str) -> bool:
        """Nothing limits the owner's sessions together any more. False: nothing did."""
        return await self._store.remove_pool(check_owner(owner))

    async def list(self, *, after: str = "", limit: int = 100) -> list[Pool]:
        """Pools by owner, behind ``after``."""
        check_limit(limit)
        return [_shown(found.owner, found.pool) for found in await self._store.pools(after=after, limit=limit)]

    async def _change(self, owner: str, limits: Limits, *, add: bool) -> Pool:
        owner = check_owner(owner)
        if (wrong := wrong_limit(limits)) is not None:
            raise UsageError(f"the limits of a pool {wrong[0]}", hint=wrong[1])
        if all(getattr(limits, limit) is None for limit in LIMITS) or limits.strict:
            raise UsageError("a pool limits something, and is never strict", hint=f"one of {', '.join(LIMITS)}")
        kept = Limits(**{limit: getattr(limits, limit) for limit in LIMITS})
        return _shown(owner, await self._store.change_pool(owner, kept, fresh=uuid.uuid4().hex, add=add))

    @property
    def _store(self) -> KeepsPools:
        store = self._runtime.store
        if not isinstance(store, KeepsPools):
            raise UsageError("this store keeps no pools", hint="limit sessions and turns instead: Agent(session_limits=…, limits=…)")
        return store


def _shown(owner: str, pool: StoredPool) -> Pool:
    rest = left(pool)
    seconds = {limit: 1000 if limit == "seconds" else 1 for limit in LIMITS}
    return Pool(
        owner=owner,
        limits=pool.limits,
        used={limit: getattr(pool.drawn, fields(limit)) // seconds[limit] for limit in rest},
        left={limit: value // seconds[limit] for limit, value in rest.items()},
    )
