"""What turns draw from their owners' pools: in the commit that uses it or not at all, counted once, and given back."""

from __future__ import annotations

import asyncio
from typing import Any

from ...core.records import Amounts, Limits, Pool
from ..base import Claim, Committed, InboxMoved, Loaded, Stale, Store
from ..pools import Draw, KeepsPools, PoolShort, Share
from .kit import Place, catalogue, create, creation, opened, step

__all__ = ["PoolConformance"]


def draw(drawn: int, used: int = 0, *, pool: str = "p1", ends: bool = False, **more: Any) -> Draw:
    return Draw(owner="acme", pool=pool, drawn=Amounts(tokens=drawn, **more), used=Amounts(tokens=used), ends=ends)


async def owned(store: Store, name: str = "s") -> int:
    return await create(store, name)


def keeper(store: Store) -> KeepsPools:
    assert isinstance(store, KeepsPools)
    return store


async def left(store: Store) -> int:
    pool = await keeper(store).pool("acme")
    assert pool is not None
    return (pool.limits.tokens or 0) - pool.drawn.tokens


class PoolConformance:
    """What a store with pools promises, one sentence a test."""

    async def test_a_pool_is_there_for_every_session_of_its_owner_and_for_no_other(self, place: Place) -> None:
        async with opened(place) as store:
            await owned(store)
            await create(store, "other", create=creation(root="other", owner="umbrella"))
            assert await keeper(store).pool("acme") is None
            made = await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            assert made == Pool(id="p1", limits=Limits(tokens=100)) == await keeper(store).pool("acme")
            mine, others = await store.load("s"), await store.load("other")
            assert isinstance(mine, Loaded)
            assert isinstance(others, Loaded)
            assert (mine.pool, others.pool) == (made, None)

    async def test_limits_are_replaced_or_raised_and_what_was_drawn_stays(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            pools = keeper(store)
            await pools.change_pool("acme", Limits(tokens=100, cost=5), fresh="p1", add=False)
            assert isinstance(await store.commit(step(no, draws=(draw(40),))), Committed)
            more = await pools.change_pool("acme", Limits(tokens=50, model_calls=3), fresh="p2", add=True)
            assert (more.id, more.limits, more.drawn) == ("p1", Limits(tokens=150, cost=5, model_calls=3), Amounts(tokens=40))
            other = await pools.change_pool("acme", Limits(tokens=60), fresh="p3", add=False)
            assert (other.id, other.limits, other.drawn) == ("p1", Limits(tokens=60), Amounts(tokens=40))

    async def test_pools_are_listed_by_owner_and_removed(self, place: Place) -> None:
        async with opened(place) as store:
            pools = keeper(store)
            for owner in ("c", "a", "b"):
                await pools.change_pool(owner, Limits(tokens=1), fresh=owner, add=False)
            assert [item.owner for item in await pools.pools(after="", limit=2)] == ["a", "b"]
            assert [item.owner for item in await pools.pools(after="b", limit=9)] == ["c"]
            assert await pools.remove_pool("b")
            assert not await pools.remove_pool("b")
            assert [item.owner for item in await pools.pools(after="", limit=9)] == ["a", "c"]

    async def test_what_is_drawn_is_drawn_with_its_commit_and_states_all_of_it(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            assert await keeper(store).share(no) is None
            assert isinstance(await store.commit(step(no, draws=(draw(40),))), Committed)
            assert await left(store) == 60
            assert isinstance(await store.commit(step(no, 2, draws=(draw(40, 10),))), Committed)
            assert await left(store) == 60
            assert await keeper(store).share(no) == Share(owner="acme", pool="p1", drawn=Amounts(tokens=40), used=Amounts(tokens=10))
            assert isinstance(await store.commit(step(no, 3, draws=(draw(70, 45),))), Committed)
            assert await left(store) == 30
            # Who states less gave it back.
            assert isinstance(await store.commit(step(no, 4, draws=(draw(45, 45),))), Committed)
            assert await left(store) == 55

    async def test_a_draw_beyond_what_is_left_refuses_its_commit_whole(self, place: Place) -> None:
        async with opened(place) as store:
            one, two = await owned(store, "one"), await owned(store, "two")
            pool = await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            await store.commit(step(one, draws=(draw(60),)))
            refused = await store.commit(step(two, draws=(draw(41),)))
            assert refused == PoolShort(Pool(id="p1", limits=pool.limits, drawn=Amounts(tokens=60)))
            found = await store.load("two")
            assert found is not None
            assert found.row.version == 1
            assert len(await store.entries(two)) == 1
            assert isinstance(await store.commit(step(two, draws=(draw(40),))), Committed)
            assert await left(store) == 0

    async def test_only_what_a_pool_limits_can_be_short(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            await keeper(store).change_pool("acme", Limits(tokens=100, seconds=2), fresh="p1", add=False)
            assert isinstance(await store.commit(step(no, draws=(draw(100, cost=10**9, ms=2_000),))), Committed)
            assert isinstance(await store.commit(step(no, 2, draws=(draw(100, cost=10**9, ms=2_001),))), PoolShort)

    async def test_what_a_turn_used_stays_drawn_when_it_ends_and_the_rest_comes_back(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            await store.commit(step(no, draws=(draw(80),)))
            await store.commit(step(no, 2, draws=(draw(80, 30, ends=True),)))
            assert await left(store) == 70
            # The next turn of the session begins anew.
            await store.commit(step(no, 3, draws=(draw(70),)))
            assert await left(store) == 0

    async def test_one_turn_may_end_and_another_draw_in_one_commit(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            await store.commit(step(no, draws=(draw(90),)))
            assert isinstance(await store.commit(step(no, 2, draws=(draw(90, 20, ends=True), draw(80)))), Committed)
            assert await left(store) == 0

    async def test_a_turn_that_used_more_than_it_drew_is_charged_for_all_of_it(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            await store.commit(step(no, draws=(draw(90),)))
            assert isinstance(await store.commit(step(no, 2, draws=(draw(90, 130, ends=True),))), Committed)
            assert await left(store) == -30

    async def test_a_refused_commit_draws_nothing(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            assert isinstance(await store.commit(step(no, 7, draws=(draw(40),))), Stale)
            assert isinstance(await store.commit(step(no, draws=(draw(40),), inbox_head=9)), InboxMoved)
            assert await left(store) == 100

    async def test_a_session_that_is_deleted_holds_nothing_and_what_it_used_stays_drawn(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            await store.commit(step(no, draws=(draw(80, 25),)))
            await store.delete(no)
            assert await left(store) == 75
            await store.delete(no)
            assert await left(store) == 75

    async def test_a_session_that_is_halted_holds_nothing_whatever_can_still_be_read_of_it(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            await store.commit(step(no, draws=(draw(80, 25),)))
            halts = step(no, 2, count=0, catalogue=catalogue(status="halted"), claim=Claim(runner="r1"), release=True)
            assert isinstance(await store.commit(halts), Committed)
            assert await left(store) == 75

    async def test_nothing_can_be_drawn_from_a_pool_that_is_gone_and_giving_back_changes_no_new_one(self, place: Place) -> None:
        async with opened(place) as store:
            no, other = await owned(store), await owned(store, "other")
            pools = keeper(store)
            await pools.change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            await store.commit(step(no, draws=(draw(40),)))
            await pools.remove_pool("acme")
            assert await store.commit(step(other, draws=(draw(40),))) == PoolShort(None)
            made = await pools.change_pool("acme", Limits(tokens=100), fresh="p2", add=False)
            assert await store.commit(step(other, draws=(draw(40),))) == PoolShort(made)
            assert isinstance(await store.commit(step(no, 2, draws=(draw(40, 9, ends=True),))), Committed)
            assert await left(store) == 100

    async def test_many_sessions_at_once_draw_no_more_than_there_is(self, place: Place) -> None:
        async with opened(place) as store, opened(place) as peer:
            numbers = [await owned(store, f"s{number}") for number in range(12)]
            await keeper(store).change_pool("acme", Limits(tokens=50), fresh="p1", add=False)
            answers = await asyncio.gather(
                *((store if number % 2 else peer).commit(step(no, draws=(draw(10),))) for number, no in enumerate(numbers))
            )
            assert sum(isinstance(answer, Committed) for answer in answers) == 5
            assert sum(isinstance(answer, PoolShort) for answer in answers) == 7
            assert await left(store) == 0

    async def test_pools_and_what_is_held_of_them_are_durable(self, place: Place) -> None:
        async with opened(place) as store:
            no = await owned(store)
            await keeper(store).change_pool("acme", Limits(tokens=100), fresh="p1", add=False)
            await store.commit(step(no, draws=(draw(80, 5),)))
        async with opened(place) as store:
            assert await left(store) == 20
            await store.commit(step(no, 2, draws=(draw(80, 30, ends=True),)))
            assert await left(store) == 70
