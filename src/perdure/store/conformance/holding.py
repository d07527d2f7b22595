"""Who holds a session, until when, and who may take it."""

from __future__ import annotations

import asyncio

import msgspec

from ..base import (
    Claim,
    Commit,
    Committed,
    Held,
    InboxMoved,
    NoSession,
    Refusal,
    Runner,
    Stale,
)
from .kit import (
    LEASE,
    Place,
    catalogue,
    create,
    everything,
    opened,
    row_of,
    runner,
    step,
    submission,
)


class Holding:
    async def test_a_session_is_held_by_one_living_runner(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            for name in ("r1", "r2"):
                assert await store.heartbeat(runner(name), LEASE) == place.clock.now + LEASE
            assert await store.claim(no, "r1") == Committed(1, 1, 1)
            before = await everything(store)
            assert await store.claim(no, "r2") == Held("r1")
            assert await store.claim(no, "r1") == Held("r1")
            assert await store.commit(step(no, 1, 1, "r1", claim=Claim(runner="r2"))) == Held("r1")
            assert await everything(store) == before
            loaded = await store.load("s")
            assert loaded is not None
            assert (loaded.row.holder, loaded.holder_alive, loaded.row.claims) == ("r1", True, 0)
            assert await store.claim(77, "r1") == NoSession()

    async def test_a_session_is_free_when_its_holders_lease_ran_out(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(no, "r1")
            place.clock.advance(LEASE - 1)
            assert await store.claim(no, "r2") == Held("r1")
            place.clock.advance(1)
            loaded = await store.load("s")
            assert loaded is not None
            assert (loaded.row.holder, loaded.holder_alive) == ("r1", False)
            assert await store.runnable(limit=9) == ["s"]
            await store.heartbeat(runner("r2"), LEASE)
            assert await store.commit(step(no, 1, 1, claim=Claim(runner="r2"))) == Committed(2, 2, 1)
            # The one before comes back, and finds that it is too late.
            await store.heartbeat(runner("r1"), LEASE)
            assert await store.commit(step(no, 1, 1, "r1")) == Stale(2, 2, "r2")
            assert await store.commit(step(no, 2, 2, "r1")) == Stale(2, 2, "r2")
            assert await store.release(no, "r1", 1, catalogue(), 1, at=2_000) == Stale(2, 2, "r2")
            assert await store.claim(no, "r1") == Held("r2")

    async def test_a_late_heartbeat_renews_a_lease(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(no, "r1")
            place.clock.advance(3 * LEASE)
            assert [known.alive for known in await store.runners()] == [False]
            before = await everything(store)
            assert await store.heartbeat(runner("r1"), LEASE) == place.clock.now + LEASE
            assert await everything(store) == before
            assert await store.claim(no, "r2") == Held("r1")
            renewed = Runner(id="r1", host="here", pid=1, started=5, expires=place.clock.now + LEASE, agents=("support",), alive=True)
            assert await store.runners() == [renewed]
            assert await store.commit(step(no, 1, 1, "r1")) == Committed(2, 1, 1)
            assert await store.runners() == [renewed]

    async def test_a_heartbeat_and_a_commit_at_once_are_both_there(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(no, "r1")
            place.clock.advance(1)
            until, *answers = await asyncio.gather(
                store.heartbeat(runner("r1"), LEASE), *(store.commit(step(no, version, 1, "r1")) for version in (1, 2, 3))
            )
            assert answers == [Committed(version, 1, 1) for version in (2, 3, 4)]
            assert [known.expires for known in await store.runners()] == [until] == [place.clock.now + LEASE]
            assert ((await row_of(store)).version, (await row_of(store)).checkpoint) == (4, b"checkpoint 4")

    async def test_of_many_who_take_a_session_over_at_once_one_gets_it(self, place: Place) -> None:
        async with opened(place) as one, opened(place) as two:
            no = await create(one)
            await one.heartbeat(runner("dead"), LEASE)
            await one.claim(no, "dead")
            place.clock.advance(LEASE)
            for name in ("r1", "r2", "r3"):
                await one.heartbeat(runner(name), LEASE)
            answers = await asyncio.gather(one.claim(no, "r1"), two.claim(no, "r2"), one.claim(no, "r3"))
            row = await row_of(one)
            assert [answer for answer in answers if isinstance(answer, Committed)] == [Committed(1, 2, 1)]
            assert [answer for answer in answers if not isinstance(answer, Committed)] == [Held(row.holder or "")] * 2
            assert (row.fence, row.claims) == (2, 1)

    async def test_a_session_is_free_when_its_holder_was_never_registered_or_has_retired(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            assert await store.claim(no, "stranger") == Committed(1, 1, 1)
            await store.heartbeat(runner("r1"), LEASE)
            assert await store.claim(no, "r1") == Committed(1, 2, 1)
            assert await store.runnable(limit=9) == []
            await store.retire("r1")
            assert await store.runners() == []
            assert await store.runnable(limit=9) == ["s"]
            assert await store.claim(no, "r2") == Committed(1, 3, 1)
            await store.retire("nobody")

    async def test_a_heartbeat_says_anew_what_its_runner_refuses(self, place: Place) -> None:
        async with opened(place) as store:
            refused = (Refusal(session_id="a", since=7, reason="“it” isn't known"), Refusal(session_id="b", since=6, reason=""))
            await store.heartbeat(msgspec.structs.replace(runner("r1"), refused=refused), LEASE)
            assert [known.refused for known in await store.runners()] == [refused]
            await store.heartbeat(msgspec.structs.replace(runner("r1"), refused=refused[1:]), LEASE)
            assert [known.refused for known in await store.runners()] == [refused[1:]]
            await store.heartbeat(runner("r1"), LEASE)
            assert [known.refused for known in await store.runners()] == [()]

    async def test_a_session_is_free_when_its_holders_store_was_closed(self, place: Place) -> None:
        async with opened(place) as one:
            no = await create(one)
            async with opened(place) as two:
                await two.heartbeat(runner("r2"), LEASE)
                assert await two.claim(no, "r2") == Committed(1, 1, 1)
                assert await one.claim(no, "r1") == Held("r2")
            assert await one.claim(no, "r1") == Committed(1, 2, 1)
            assert [(known.id, known.alive) for known in await one.runners()] == [("r2", False)]

    async def test_force_takes_a_session_from_a_living_holder(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(no, "r1")
            assert await store.claim(no, "r2", force=True) == Committed(1, 2, 1)
            assert await store.commit(step(no, 1, 1, "r1")) == Stale(1, 2, "r2")
            await store.heartbeat(runner("r2"), LEASE)
            assert await store.commit(step(no, 1, 2, claim=Claim(runner="r3", force=True))) == Committed(2, 3, 1)
            assert (await row_of(store)).holder == "r3"

    async def test_a_commit_may_claim_and_release_at_once(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            assert await store.commit(step(no, claim=Claim(runner="r1"), release=True)) == Committed(2, 1, 1)
            row = await row_of(store)
            assert (row.holder, row.fence, row.claims) == (None, 1, 0)
            assert await store.commit(step(no, 2, 1)) == Committed(3, 1, 1)

    async def test_claims_count_takeovers_from_holders_that_never_released(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)

            async def claims() -> int:
                return (await row_of(store)).claims

            await store.claim(no, "dead1")
            assert await claims() == 0
            await store.claim(no, "dead2")
            assert await claims() == 1
            await store.commit(step(no, 1, 2, claim=Claim(runner="dead3")))
            assert await claims() == 2
            await store.claim(no, "r1", force=True)
            assert await claims() == 3
            await store.commit(step(no, 2, 4, "r1"))
            assert await claims() == 3
            assert await store.commit(Commit(no=no, version=3, fence=4, holder="r1", at=1, progress=True)) == Committed(3, 4, 1)
            assert await claims() == 0
            await store.claim(no, "r2")
            assert await claims() == 1
            assert await store.release(no, "r2", 5, catalogue(), 1, at=2_000) == Committed(3, 5, 1)
            assert await claims() == 1
            await store.claim(no, "r3")
            assert await claims() == 1
            await store.commit(step(no, 3, 6, "r3", progress=True, release=True))
            assert await claims() == 0

    async def test_a_release_frees_the_session_and_sets_the_catalogue(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(no, "r1")
            assert await store.release(no, "r2", 1, catalogue(), 1, at=2_000) == Stale(1, 1, "r1")
            assert await store.release(no, "r1", 0, catalogue(), 1, at=2_000) == Stale(1, 1, "r1")
            assert await store.release(77, "r1", 1, catalogue(), 1, at=2_000) == Stale(0, 0, None)
            assert await store.release(no, "r1", 1, catalogue("waiting", wake_at=5, title="T"), 1, at=2_000) == Committed(1, 1, 1)
            row = await row_of(store)
            # What the list shows is when something happened, not when the store was told to let go.
            assert (row.holder, row.status, row.wake_at, row.title, row.updated) == (None, "waiting", 5, "T", 2_000)
            assert await store.release(no, "r1", 1, catalogue(), 1, at=2_000) == Stale(1, 1, None)

    async def test_a_release_that_does_not_know_what_arrived_changes_nothing(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.commit(step(no, claim=Claim(runner="r1"), catalogue=catalogue("running")))
            await store.send(submission(name="m2"))
            before = await everything(store)
            assert before[0].wake_at == place.clock.now
            assert await store.release(no, "r1", 1, catalogue(), 1, at=2_000) == InboxMoved(2)
            assert await everything(store) == before
            assert await store.release(no, "r2", 1, catalogue(), 1, at=2_000) == Stale(2, 1, "r1")
            assert await store.release(no, "r1", 1, catalogue("queued", wake_at=place.clock.now), 2, at=2_000) == Committed(2, 1, 2)
            assert await store.runnable(limit=9) == ["s"]
