"""Listeners hear that something changed."""

from __future__ import annotations

import asyncio
from typing import Any

from ..base import (
    Committed,
)
from .kit import (
    PATIENCE,
    Place,
    catalogue,
    create,
    opened,
    row_of,
    step,
    submission,
)


class Notices:
    async def test_a_listener_hears_of_its_own_handles_changes_by_number(self, place: Place) -> None:
        async with opened(place) as store:
            heard: asyncio.Queue[int | None] = asyncio.Queue()
            stop = store.changes(heard.put_nowait)

            async def next_number() -> int:
                while (number := await asyncio.wait_for(heard.get(), PATIENCE)) is None:
                    pass
                return number

            no = await create(store)
            assert await next_number() == no
            await store.commit(step(no))
            assert await next_number() == no
            await store.commit(step(no))
            await store.send(submission())
            await store.claim(no, "r1")
            assert await next_number() == no
            await store.release(no, "r1", 1, catalogue(), 1, at=2_000)
            assert await next_number() == no
            await store.delete(no)
            assert await next_number() == no
            stop()
            stop()
            await create(store, "other")
            await asyncio.sleep(0)
            assert [number for number in _drained(heard) if number is not None] == []

    async def test_a_listener_hears_that_another_handle_changed_something(self, place: Place) -> None:
        async with opened(place) as one, opened(place) as two:
            no = await create(one)
            heard = asyncio.Event()
            stop = two.changes(lambda _: heard.set())
            for version in range(1, 4):
                # What is heard first may be of before; what is read after the last notice is the truth.
                heard.clear()
                await one.commit(step(no, version))
                await asyncio.wait_for(heard.wait(), PATIENCE)
                assert (await row_of(two)).version == version + 1
            stop()

    async def test_a_listener_that_fails_harms_nobody(self, place: Place) -> None:
        async with opened(place) as store:
            complaints: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            heard = asyncio.Event()
            store.changes(lambda _: 1 / 0)  # type: ignore[arg-type]
            store.changes(lambda _: heard.set())
            no = await create(store)
            await asyncio.wait_for(heard.wait(), PATIENCE)
            assert isinstance(await store.commit(step(no)), Committed)
            assert complaints
            assert isinstance(complaints[0]["exception"], ZeroDivisionError)


def _drained(queue: asyncio.Queue[int | None]) -> list[int | None]:
    found = []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found
