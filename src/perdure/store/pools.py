"""What a store promises that keeps owners' pools: what all turns of an owner's sessions may use together.

A session's turn draws from its owner's pool in the commit that is about to use it, and holds what it drew: each commit states all that it
drew and used so far, so a commit that is sent again states the same. When the turn ends, what it used stays drawn and the rest is the
owner's again; the store sees to that, too, when a session is deleted or halted, whatever can still be read of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from ..core.budget import LIMITS, allowed, fields, plus, sum_of
from ..core.records import Amounts, Limits, Pool

__all__ = ["Draw", "KeepsPools", "OwnersPool", "PoolShort", "Share", "changed", "released", "settled"]


class OwnersPool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with whose it is."""

    owner: str
    pool: Pool


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """All that a session's turn drew from its owner's ``pool`` so far, and what it used of it. ``ends``: it needs no more of it."""

    owner: str
    pool: str
    drawn: Amounts
    used: Amounts
    ends: bool = False


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a session holds of its owner's pool: what its last commit stated."""

    owner: str
    pool: str
    drawn: Amounts
    used: Amounts


class PoolShort(msgspec.Struct, frozen=True):
    """There is not so much left in the pool, which is that now, or ``None``; nothing was written."""

    pool: Pool | None


@runtime_checkable
class KeepsPools(Protocol):
    """A store with pools. Owners have none in any other."""

    async def pool(self, owner: str) -> Pool | None:
        """An owner's pool."""

    async def pools(self, *, after: str, limit: int) -> list[OwnersPool]:
        """All pools, by owner and behind ``after``."""

    async def change_pool(self, owner: str, limits: Limits, *, fresh: str, add: bool) -> Pool:
        """Give an owner's pool these limits, or with ``add`` so much more of each; made with the id ``fresh`` if there is none."""

    async def remove_pool(self, owner: str) -> bool:
        """The owner has no pool any more. False: they had none."""

    async def share(self, no: int) -> Share | None:
        """What a session holds of its owner's pool."""


def settled(
    pool: Pool | None, share: Share | None, draws: Iterable[Draw], *, releases: bool
) -> tuple[Pool | None, Share | None] | PoolShort:
    """The owner's pool and what the session holds after a commit's draws, or why there can't be one; with ``releases`` it holds nothing."""
    for draw in draws:
        drew = _drawn(pool, share, draw)
        if isinstance(drew, PoolShort):
            return drew
        pool, share = drew
    return (released(pool, share), None) if releases and share is not None else (pool, share)


def _drawn(pool: Pool | None, held: Share | None, draw: Draw) -> tuple[Pool | None, Share | None] | PoolShort:
    """The owner's pool and what the session holds after a draw, or why there can't be one. ``pool`` is what is stored."""
    there = pool if pool is not None and pool.id == draw.pool else None
    before = held.drawn if held is not None and held.pool == draw.pool else Amounts()
    delta = plus(draw.used if draw.ends else draw.drawn, before, -1)
    if not draw.ends and any(getattr(delta, name) > 0 for name in delta.__struct_fields__) and not (there and _fits(there, delta)):
        return PoolShort(pool)
    after = None if draw.ends else Share(owner=draw.owner, pool=draw.pool, drawn=draw.drawn, used=draw.used)
    return (pool if there is None else replace(there, drawn=sum_of(there.drawn, delta))), after


def released(pool: Pool | None, held: Share) -> Pool | None:
    """The owner's pool once a session that nobody goes on with holds nothing of it any more."""
    if pool is None or pool.id != held.pool:
        return pool
    return replace(pool, drawn=sum_of(pool.drawn, plus(held.used, held.drawn, -1)))


def changed(pool: Pool | None, limits: Limits, *, fresh: str, add: bool) -> Pool:
    """What `KeepsPools.change_pool` makes of a pool."""
    if pool is None:
        return Pool(id=fresh, limits=limits)
    if not add:
        return replace(pool, limits=limits)
    more = {limit: (getattr(pool.limits, limit) or 0) + value for limit in LIMITS if (value := getattr(limits, limit)) is not None}
    return replace(pool, limits=replace(pool.limits, **more))


def _fits(pool: Pool, delta: Amounts) -> bool:
    for limit, most in allowed(pool.limits).items():
        more = getattr(delta, fields(limit))
        if more > 0 and getattr(pool.drawn, fields(limit)) + more > most:
            return False
    return True
