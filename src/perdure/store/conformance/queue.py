"""Which sessions somebody has to look at."""

from __future__ import annotations

from .kit import (
    LEASE,
    Place,
    catalogue,
    create,
    opened,
    runner,
    step,
)


class Queue:
    async def test_runnable_are_free_sessions_that_are_due_oldest_first(self, place: Place) -> None:
        async with opened(place) as store:
            now = place.clock.now
            for session_id, agent, wake_at in (
                ("a", "x", now - 5),
                ("b", "y", now - 9),
                ("c", "x", now + 10),
                ("d", "x", None),
                ("e", "y", now),
            ):
                no = await create(store, session_id)
                await store.commit(step(no, catalogue=catalogue("queued", wake_at=wake_at, agent=agent)))
            assert await store.runnable(limit=9) == ["b", "a", "e"]
            assert await store.runnable(limit=1) == ["b"]
            assert await store.runnable(limit=9, agents=["x"]) == ["a"]
            assert await store.runnable(limit=9, agents=[]) == []
            assert await store.next_wake() == now - 9
            assert await store.next_wake(after=now - 9) == now - 5
            assert await store.next_wake(after=now) == now + 10
            assert await store.next_wake(after=now + 10) is None
            place.clock.advance(10)
            assert await store.runnable(limit=9) == ["b", "a", "e", "c"]

    async def test_runnable_are_sessions_of_dead_holders_and_none_of_living_ones(self, place: Place) -> None:
        async with opened(place) as store:
            now = place.clock.now
            numbers = {name: await create(store, name) for name in ("a", "b", "c")}
            await store.heartbeat(runner("r1"), LEASE)
            await store.heartbeat(runner("r2"), 2 * LEASE)
            await store.claim(numbers["a"], "r1")
            await store.claim(numbers["b"], "r2")
            assert await store.runnable(limit=9) == ["c"]
            assert await store.next_wake() == now
            await store.commit(step(numbers["c"], catalogue=catalogue("waiting", wake_at=now + 50 * LEASE)))
            assert await store.next_wake() == now + 50 * LEASE
            await store.commit(step(numbers["a"], 1, 1, "r1", catalogue=catalogue("running", wake_at=None)))
            place.clock.advance(LEASE)
            assert await store.runnable(limit=9) == ["a"]
            place.clock.advance(LEASE)
            assert sorted(await store.runnable(limit=9)) == ["a", "b"]
            assert len(await store.runnable(limit=1)) == 1

    async def test_what_dead_holders_left_comes_before_what_has_waited_longer(self, place: Place) -> None:
        async with opened(place) as store:
            now = place.clock.now
            numbers = {name: await create(store, name) for name in ("waits", "left", "held")}
            await store.commit(step(numbers["waits"], catalogue=catalogue("queued", wake_at=now - 50)))
            await store.heartbeat(runner("r1"), LEASE)
            await store.heartbeat(runner("r2"), 9 * LEASE)
            await store.claim(numbers["left"], "r1")
            await store.claim(numbers["held"], "r2")
            assert await store.runnable(limit=9, left=True) == []
            place.clock.advance(LEASE)
            assert await store.runnable(limit=9) == ["left", "waits"]
            assert await store.runnable(limit=1) == ["left"]
            assert await store.runnable(limit=9, left=True) == ["left"]
            assert await store.runnable(limit=9, agents=["nobody"], left=True) == []
