"""Opening, closing, cancelling and time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from ...core.errors import StoreClosed
from ..base import (
    Committed,
    EffectRow,
    Sent,
    SessionQuery,
    Store,
)
from .kit import (
    LEASE,
    Place,
    catalogue,
    content,
    create,
    everything,
    fact,
    opened,
    raises,
    row_of,
    runner,
    step,
    submission,
)


class Life:
    async def test_a_closed_store_says_so(self, place: Place) -> None:
        store = place.connect()
        await raises(StoreClosed, store.load("s"))
        await store.open()
        no = await create(store)
        await store.close()
        await store.close()
        calls: list[Awaitable[Any]] = [
            store.now(),
            store.load("s"),
            store.commit(step(no)),
            store.send(submission()),
            store.claim(no, "r1"),
            store.release(no, "r1", 0, catalogue(), 1, at=2_000),
            store.heartbeat(runner(), LEASE),
            store.runners(),
            store.retire("r1"),
            store.runnable(limit=1),
            store.next_wake(),
            store.inbox(no),
            store.submission(no, "m1"),
            store.entries(no),
            store.effects(no),
            store.sessions(SessionQuery()),
            store.blob("s", "d"),
            store.put_blob("s", content(b"b")),
            store.blobs("s"),
            store.cursor(no, "ann"),
            store.ack(no, "ann", 1),
            store.delete(no),
        ]
        for call in calls:
            await raises(StoreClosed, call)
        await store.open()
        assert (await row_of(store)).no == no
        await store.close()

    async def test_it_is_open_until_the_last_of_its_users_closes_it(self, place: Place) -> None:
        store = place.connect()
        await store.open()
        no = await create(store)
        await store.heartbeat(runner(), LEASE)
        await store.claim(no, "r1")
        await store.open()
        await store.close()
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.holder_alive
        assert isinstance(await store.commit(step(no, fence=1, holder="r1")), Committed)
        await store.close()
        await raises(StoreClosed, store.load("s"))
        await store.close()
        async with opened(place) as other:
            left = await other.load("s")
            assert left is not None
            assert not left.holder_alive

    async def test_what_was_committed_is_there_after_opening_again(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.commit(step(no, blobs=(content(b"b"),), effects=(EffectRow(effect_key=b"k", seq=2, state="s"),)))
            await store.ack(no, "ann", 2)
            before = await everything(store)
        async with opened(place) as store:
            assert await everything(store) == before

    async def test_a_cancelled_caller_does_not_cancel_its_write(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            task = asyncio.create_task(_result(store.commit(step(no))))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            # What was begun before is seen by what is begun after.
            assert await store.commit(step(no, 2)) == Committed(3, 0, 1)

    async def test_closing_finishes_what_was_begun(self, place: Place) -> None:
        async with opened(place) as other:
            store = place.connect()
            await store.open()
            tasks = [asyncio.create_task(_result(store.send(submission(f"s{index}")))) for index in range(50)]
            await asyncio.sleep(0)
            await store.close()
            answers = await asyncio.gather(*tasks)
            assert all(isinstance(answer, Sent) for answer in answers)
            assert len(await other.sessions(SessionQuery(limit=99))) == 50

    async def test_the_stores_time_never_goes_back(self, place: Place) -> None:
        async with opened(place) as store:
            start = await store.now()
            place.clock.advance(500)
            assert await store.now() == start + 500
            place.clock.advance(-400)
            assert await store.now() == start + 500
            place.clock.advance(700)
            assert await store.now() == start + 800

    async def test_many_sessions_at_once_do_not_mix(self, place: Place) -> None:
        async with opened(place) as one, opened(place) as two:

            async def live(store: Store, session_id: str) -> None:
                no = await create(store, session_id)
                for version in range(1, 12):
                    entry = fact(version + 1, body=f"{session_id} {version}".encode())
                    answer = await store.commit(step(no, version, entries=(entry,)))
                    assert answer == Committed(version + 1, 0, 1)
                found = await store.entries(no, after=1)
                assert [entry.body for entry in found] == [f"{session_id} {version}".encode() for version in range(1, 12)]

            await asyncio.gather(*(live(store, f"s{index}{store is one}") for index in range(15) for store in (one, two)))


async def _result(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
