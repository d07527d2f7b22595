"""How far each consumer has read."""

from __future__ import annotations

from typing import Any

from .kit import (
    Place,
    create,
    opened,
    row_of,
    step,
)


class Consumers:
    async def test_a_cursor_moves_forward_only(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            before = await row_of(store), await store.entries(no)
            assert await store.cursor(no, "ann") == 0
            assert await store.ack(no, "ann", 5) == 5
            assert await store.ack(no, "ann", 3) == 5
            assert await store.ack(no, "bob", 3) == 3
            assert await store.ack(no, "ann", 9) == 9
            assert (await store.cursor(no, "ann"), await store.cursor(no, "bob")) == (9, 3)
            assert (await row_of(store), await store.entries(no)) == before
            assert await store.ack(77, "ann", 5) == 0
            assert await store.cursor(77, "ann") == 0

    async def test_news_are_what_a_consumer_has_not_acknowledged(self, place: Place) -> None:
        async with opened(place) as store:
            one, two, three = [await create(store, name) for name in ("one", "two", "three")]

            async def news(**options: Any) -> list[tuple[int, str, int, int]]:
                found = await store.news("ann", **{"limit": 9, **options})
                return [(item.no, item.session_id, item.version, item.seq) for item in found]

            assert await news() == [(one, "one", 1, 0), (two, "two", 1, 0), (three, "three", 1, 0)]
            assert await news(limit=2) == [(one, "one", 1, 0), (two, "two", 1, 0)]
            assert await news(after=two) == [(three, "three", 1, 0)]
            await store.ack(two, "ann", 1)
            await store.ack(one, "bob", 1)
            assert [item[1] for item in await news()] == ["one", "three"]
            assert (await news(no=two), await news(no=three), await news(no=99)) == ([], [(three, "three", 1, 0)], [])
            await store.commit(step(two, count=3))
            assert await news(no=two) == [(two, "two", 4, 1)]
            await store.delete(three)
            assert [item[1] for item in await news()] == ["one", "two"]
            await store.forget("ann")
            await store.forget("ann")
            assert await news(no=two) == [(two, "two", 4, 0)]
            assert await store.cursor(one, "bob") == 1
