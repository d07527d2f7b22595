"""What a store tells of all its sessions together: what is so, and nothing that nobody has to do with."""

from __future__ import annotations

from ...core.errors import StoreClosed
from ..base import Claim, Committed, EffectRow, Store
from ..figures import ACTIVE, KeepsFigures
from .kit import LEASE, Place, catalogue, create, opened, raises, runner, step, submission

__all__ = ["FigureConformance"]


def counting(store: Store) -> KeepsFigures:
    assert isinstance(store, KeepsFigures)
    return store


class FigureConformance:
    """What a store with figures promises, one sentence a test."""

    async def test_an_empty_store_has_nothing_to_tell(self, place: Place) -> None:
        async with opened(place) as store:
            found = await counting(store).figures()
        assert found.sessions == dict.fromkeys(ACTIVE, 0)
        assert (found.due, found.due_since, found.left, found.pending, found.pending_since, found.uncertain) == (0, None, 0, 0, None, 0)
        assert found.now == place.clock.now

    async def test_sessions_are_counted_by_status_and_those_at_rest_are_not(self, place: Place) -> None:
        async with opened(place) as store:
            await store.heartbeat(runner("r1"), LEASE)
            wanted = ("queued", "running", "running", "waiting", "stuck", "stuck", "stuck", "halted", "idle", "archived")
            for index, status in enumerate(wanted):
                no = await create(store, f"s{index}")
                wake_at = place.clock.now if status == "queued" else None
                claim = Claim(runner="r1") if status == "running" else None
                assert isinstance(await store.commit(step(no, catalogue=catalogue(status, wake_at=wake_at), claim=claim)), Committed)
            gone = await create(store, "gone")
            await store.delete(gone)
            found = await counting(store).figures()
        assert found.sessions == {"halted": 1, "queued": 1, "running": 2, "stuck": 3, "waiting": 1}

    async def test_what_is_due_is_counted_from_its_moment_on_and_the_first_one_is_told(self, place: Place) -> None:
        async with opened(place) as store:
            for index, ahead in enumerate((5_000, 1_000, 9_000)):
                no = await create(store, f"s{index}")
                await store.commit(step(no, catalogue=catalogue("waiting", wake_at=place.clock.now + ahead)))
            first = place.clock.now + 1_000
            found = await counting(store).figures()
            assert (found.due, found.due_since) == (0, None)
            place.clock.advance(5_000)
            found = await counting(store).figures()
            assert (found.due, found.due_since) == (2, first)
            # Whoever holds one has looked.
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(2, "r1")
            found = await counting(store).figures()
            assert (found.due, found.due_since, found.left) == (1, first + 4_000, 0)
            place.clock.advance(LEASE)
            found = await counting(store).figures()
            assert (found.due, found.left) == (2, 1)

    async def test_submissions_wait_from_when_they_came_or_were_to_be_looked_at_until_they_are_consumed(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store, "s", at=place.clock.now - 3_000)
            await store.send(submission("s", "m2", at=place.clock.now - 9_000, not_before=place.clock.now + 60_000))
            found = await counting(store).figures()
            assert (found.pending, found.pending_since) == (2, place.clock.now - 3_000)
            await store.commit(step(no, consumed=(("m1", 2),)))
            found = await counting(store).figures()
            assert (found.pending, found.pending_since) == (1, place.clock.now + 60_000)
            await store.delete(no)
            found = await counting(store).figures()
            assert (found.pending, found.pending_since) == (0, None)

    async def test_effects_of_unknown_outcome_are_counted_until_it_is_known(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            effects = tuple(
                EffectRow(effect_key=name, seq=2, state=state) for name, state in ((b"a", "uncertain"), (b"b", "uncertain"), (b"c", "done"))
            )
            assert isinstance(await store.commit(step(no, effects=effects, claim=Claim(runner="r1"))), Committed)
            assert (await counting(store).figures()).uncertain == 2
            settled = EffectRow(effect_key=b"a", seq=2, state="settled")
            assert isinstance(await store.commit(step(no, 2, 1, "r1", effects=(settled,))), Committed)
            assert (await counting(store).figures()).uncertain == 1

    async def test_a_closed_store_tells_nothing(self, place: Place) -> None:
        async with opened(place) as store:
            pass
        await raises(StoreClosed, counting(store).figures())
