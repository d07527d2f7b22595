"""The one door to what is durable: a store that can be wrapped, whose answers are typed, and whose writes are compared and fenced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import Agent, FunctionModel, SessionNotFound
from perdure.store.base import Claim, Committed, Held, SessionQuery, Stale
from perdure.store.memory import MemoryStore
from perdure.testing import FaultStore, VirtualClock, find_all_problems
from tests.integration.interactive.acting import Place, Process

from .seed import QUESTION, SESSION, Seed, Stored, plain

AGENT = Agent("a", model=FunctionModel(lambda request: "ok"))


@pytest.mark.spec("S0-001", "S0-013")
async def test_a_store_around_a_store_changes_nothing_and_sees_every_write(workspace: Path) -> None:
    stored: list[list[object]] = []
    counted: list[list[int]] = []
    for around in (1, 2):
        clock = VirtualClock()
        inner = MemoryStore(clock.now, store_id="place")
        wrappers = [FaultStore(inner, clock=clock)]
        while len(wrappers) < around:
            wrappers.append(FaultStore(wrappers[-1], clock=clock))
        seed = Seed(Place("memory", workspace), workspace / str(around), fails=False)
        async with Process(wrappers[-1], clock=clock, grace=0) as process:
            await seed.run(process)
            inside = await inner.load(SESSION)
            assert inside == await wrappers[-1].load(SESSION)
            assert inside is not None
            entries = [plain(entry) for entry in (await Stored.of(process)).entries]
            stored.append([inside.row.version, inside.row.fence, inside.row.checkpoint, entries])
        counted.append([store.count(kind) for kind in ("commit", "send") for store in wrappers])
    assert stored[0] == stored[1]
    # Nothing passes a wrapper by, whether it stands next to the store or around another one.
    commits, sends = counted[0]
    assert commits >= 4
    assert counted[1] == [commits, commits, sends, sends]


@pytest.mark.spec("S0-002", "S0-003", "S0-010")
async def test_a_session_is_made_once_found_by_its_id_and_gone_when_it_is_deleted(place: Place) -> None:
    async with place.process() as process:
        assert await process.store.load("s") is None
        first = await process.sessions.send("s", "hello", submission="m1", agent="a")
        again = await process.sessions.send("s", "hello", submission="m1", agent="a")
        assert (first.duplicate, again.duplicate) == (False, True)
        head = await process.store.load("s")
        assert head is not None
        assert head.row.session_id == "s"
        await process.sessions.withdraw("s", "m1")
        await process.sessions.archive("s")
        await process.sessions.delete("s")
        assert await process.store.load("s") is None
        with pytest.raises(SessionNotFound):
            await process.sessions.info("s")


@pytest.mark.spec("S0-004", "S0-007")
async def test_a_claim_is_answered_with_a_fence_or_with_who_holds_it_and_a_lease_is_renewed_alone(place: Place) -> None:
    async with place.process() as process:
        await process.sessions.send("s", "hello", submission="m1", agent="a")
        await process.engage_as_runner()
        row = await process.row()
        claimed = await process.store.claim(row.no, process.runner_id)
        assert isinstance(claimed, Committed)
        assert isinstance(await process.store.claim(row.no, "somebody else"), Held)
        before = await process.row()
        runner = next(item for item in await process.store.runners() if item.id == process.runner_id)
        assert await process.store.heartbeat(runner, 60_000) > runner.expires
        assert await process.row() == before
        # Once its lease is over, the next claim gets the session, with a higher fence.
        await process.store.heartbeat(runner, -1)
        taken = await process.store.claim(row.no, "somebody else")
        assert isinstance(taken, Committed)
        assert taken.fence == claimed.fence + 1


@pytest.mark.spec("S0-005", "S0-006", "B-B-083")
async def test_every_write_says_what_it_builds_on_and_who_holds_it_and_a_stale_one_changes_nothing(place: Place) -> None:
    async with place.process() as process:
        await process.run(AGENT, "hello", session="s", submission="m1")
        # Nobody holds the session: a writer without a claim of its own names the version that it saw.
        one, other = await process.batch(), await process.batch()
        one.note("first")
        other.note("second")
        assert isinstance(await process.store.commit(one.commit(holder=None)), Committed)
        stored = await process.everything()
        assert isinstance(await process.store.commit(other.commit(holder=None)), Stale)
        assert await process.everything() == stored
        # Somebody holds it: who doesn't is answered so, and so is who did.
        await process.engage_as_runner()
        held = await process.batch()
        held.note("third")
        claim = Claim(runner=process.runner_id)
        assert isinstance(await process.store.commit(held.commit(holder=None, claim=claim, status="running")), Committed)
        stored = await process.everything()
        for holder in (None, "somebody else"):
            late = await process.batch()
            late.note("fourth")
            assert isinstance(await process.store.commit(late.commit(holder=holder)), Stale | Held)
        assert await process.everything() == stored


@pytest.mark.spec("S0-008", "S0-009", "S0-099")
async def test_a_reader_says_how_far_it_came_in_its_own_name_and_the_end_of_a_run_too(place: Place) -> None:
    async with place.process() as process:
        await process.run(AGENT, "hello", session="s", submission="m1")
        row = await process.row()
        assert await process.store.ack(row.no, "audit", 2) == 2
        assert await process.store.ack(row.no, "audit", 1) == 2
        assert await process.store.cursor(row.no, "audit") == 2
        assert await process.store.cursor(row.no, "billing") == 0
        assert await process.store.ack(row.no, "audit", row.version) == row.version
        assert await process.sessions.consumer("audit").news() == []
        assert await process.sessions.consumer("billing").news() == ["s"]
        # Acknowledging is not deleting: what ended can be read for ever.
        assert (await process.sessions.result("s", "m1")) is not None
        assert await process.row() == row


@pytest.mark.spec("S0-011")
async def test_all_sessions_are_listed(place: Place) -> None:
    async with place.process() as process:
        names = [f"s{index}" for index in range(5)]
        await asyncio.gather(*(process.run(AGENT, "hello", session=name, submission="m1") for name in names))
        assert sorted(row.session_id for row in await process.store.sessions(SessionQuery(limit=100))) == names
        assert sorted(info.session_id for info in await process.sessions.list(limit=100)) == names


@pytest.mark.spec("S0-066")
async def test_what_matches_nothing_that_is_configured_keeps_no_run_from_beginning(seed: Seed) -> None:
    """Labels, metadata and identities name things that an agent knows nothing of."""
    seed.fails = False
    async with seed.process() as process:
        result = await process.run(
            seed.agent,
            QUESTION,
            session=SESSION,
            submission="run-1",
            labels={"before_cycle_messages": "none@1", "session": "memory@1"},
            metadata={"behavior_affecting_run_metadata": "v1"},
        )
        assert result.ok
        assert (await process.sessions.info(SESSION)).labels == {"before_cycle_messages": "none@1", "session": "memory@1"}
        assert await find_all_problems(process.store) == []
