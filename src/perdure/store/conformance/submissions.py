"""What is sent waits in its order, once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ...core.commands import KINDS, URGENT
from ...core.errors import UsageError
from ..base import (
    PENDING_LIMIT,
    URGENT_LIMIT,
    Conflict,
    QueueIsFull,
    Send,
    Sent,
    StoredBlob,
)
from .kit import (
    Place,
    catalogue,
    content,
    create,
    creation,
    everything,
    opened,
    raises,
    row_of,
    step,
    submission,
)


class Submissions:
    async def test_sending_twice_is_sending_once(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            first = await store.submission(no, "m1")
            assert first is not None
            before = await everything(store)
            place.clock.advance(1_000)
            assert await store.send(submission(at=50_000)) == Sent(no=no, row=first, duplicate=True, created=False)
            assert await store.send(submission(create=None, actor="bob")) == Sent(no=no, row=first, duplicate=True, created=False)
            assert await everything(store) == before
            await store.commit(step(no, consumed=(("m1", 2),), settled=(("m1", 2),)))
            receipt = await store.submission(no, "m1")
            assert receipt is not None
            assert await store.send(submission()) == Sent(no=no, row=receipt, duplicate=True, created=False)

    async def test_sending_at_once_from_everywhere_is_sending_once(self, place: Place) -> None:
        async with opened(place) as one, opened(place) as two:
            answers = await asyncio.gather(*(store.send(submission()) for store in (one, two, one, two, two)))
            sent = [answer for answer in answers if isinstance(answer, Sent)]
            assert len(sent) == 5
            assert sorted(answer.duplicate for answer in sent) == [False, True, True, True, True]
            assert sum(answer.created for answer in sent) == 1
            assert len({answer.row.arrival for answer in sent}) == 1

    async def test_an_id_with_another_content_is_a_conflict(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            first = await store.submission(no, "m1")
            before = await everything(store)
            assert first is not None
            assert await store.send(submission(body=b"other", blobs=(content(b"b"),))) == Conflict(first)
            assert await everything(store) == before

    async def test_an_id_belongs_to_its_session(self, place: Place) -> None:
        async with opened(place) as store:
            await create(store, "s1")
            sent = await store.send(submission("s2", body=b"other"))
            assert isinstance(sent, Sent)
            assert (sent.duplicate, sent.created) == (False, True)

    async def test_submissions_wait_in_the_order_of_their_arrival(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            names = [f"z{9 - index}" for index in range(9)]
            for name in names:
                await store.send(submission(name=name))
            rows = await store.inbox(no)
            assert [row.submission_id for row in rows] == ["m1", *names]
            assert [row.arrival for row in rows] == list(range(1, 11))
            assert (await row_of(store)).inbox_head == 10
            assert rows[3].body == b"hello"

    async def test_an_inbox_takes_1024_waiting_submissions(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)

            def message(name: str) -> Send:
                return msgspec.structs.replace(submission(name=name), urgent=False)

            pressing = [submission(name=f"u{index}", kind=kind) for index, kind in enumerate(sorted(URGENT))]
            pressing += [submission(name=f"v{index}", kind="interrupt") for index in range(URGENT_LIMIT - PENDING_LIMIT - len(pressing))]
            await asyncio.gather(*(store.send(message(f"x{index}")) for index in range(PENDING_LIMIT - 1)))
            before = await everything(store)
            assert await store.send(message("late")) == QueueIsFull(PENDING_LIMIT)
            assert await everything(store) == before
            known = await store.send(submission(name="x7"))
            assert isinstance(known, Sent)
            assert known.duplicate
            await store.commit(step(no, consumed=(("x7", 2),)))
            assert isinstance(await store.send(message("late")), Sent)
            assert await store.send(message("later")) == QueueIsFull(PENDING_LIMIT)
            # Who wants it to stop, or answers it, has room of their own, and not without end.
            for kind in sorted(KINDS - URGENT):
                assert await store.send(submission(name=kind, kind=kind)) == QueueIsFull(PENDING_LIMIT)
            assert all([isinstance(await store.send(send), Sent) for send in pressing])
            assert await store.send(submission(name="more", kind="interrupt")) == QueueIsFull(URGENT_LIMIT)
            assert await store.send(message("later")) == QueueIsFull(URGENT_LIMIT)

    async def test_a_submission_wakes_its_session(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            now = place.clock.now

            async def after(
                wake_at: int | None, status: Any, not_before: int | None, name: str, *, urgent: bool = True
            ) -> tuple[int | None, str]:
                row = await row_of(store)
                await store.commit(step(no, row.version, catalogue=catalogue(status, wake_at=wake_at)))
                await store.send(msgspec.structs.replace(submission(name=name, not_before=not_before), urgent=urgent))
                row = await row_of(store)
                return row.wake_at, row.status

            assert await after(None, "idle", None, "a") == (now, "queued")
            assert await after(None, "idle", now + 50, "b") == (now + 50, "queued")
            assert await after(now + 20, "waiting", now + 50, "c") == (now + 20, "waiting")
            assert await after(now + 90, "waiting", now + 50, "d") == (now + 50, "waiting")
            assert await after(None, "waiting", None, "w", urgent=False) == (None, "waiting")
            assert await after(None, "idle", None, "v", urgent=False) == (now, "queued")
            assert await after(now + 90, "running", None, "e") == (now, "running")
            assert await after(now - 90, "archived", None, "f") == (now - 90, "archived")

    async def test_a_submission_brings_its_blobs(self, place: Place) -> None:
        async with opened(place) as store:
            await create(store)
            picture = content(b"picture")
            await store.send(submission(name="m2", blobs=(picture,)))
            assert await store.blob("s", picture.digest) == picture
            forged = StoredBlob(digest=picture.digest, media_type="", data=b"other")
            await raises(UsageError, store.send(submission(name="m3", blobs=(forged,))))
            await raises(UsageError, store.send(submission("new", create=creation(root="new", blobs=(forged,)))))
            assert await store.load("new") is None
