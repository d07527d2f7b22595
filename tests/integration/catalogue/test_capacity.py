"""A slot is one session's, however many use it; it is free exactly when the work has really stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Agent, CapacityExceeded, FunctionModel, InvalidAgent, Runtime, SessionArchived, SessionNotFound, StoreBroken, UsageError
from perdure.testing.faults import Fault, FaultStore

from ..interactive.acting import Place, eventually
from .test_archive import PLAIN, Charging


def narrow(place: Place, *faults: Fault, capacity: int = 1, gate: Any = None) -> Runtime:
    store = FaultStore(place.connect(), faults=faults, gate=gate, clock=place.clock)
    return Runtime(store, capacity=capacity, clock=place.clock, grace=0)


async def fits(runtime: Runtime, session: str) -> bool:
    try:
        async with runtime.session(session, PLAIN):
            return True
    except CapacityExceeded:
        return False


@pytest.mark.spec("C-T3-031", "C-T3-033")
async def test_a_session_that_ran_its_turn_takes_no_slot_though_its_handle_stays_open(place: Place) -> None:
    async with narrow(place) as runtime:
        for name in ("one", "two", "three"):
            handle = runtime.session(name, PLAIN)
            await handle.__aenter__()
            assert not await fits(runtime, "another")
            await handle.send("hello", submission="m1")
            await eventually(lambda name=name: _idle(runtime, name))
            await eventually(lambda: fits(runtime, "another"))
        assert len(await runtime.sessions.list()) == 3


async def _idle(runtime: Runtime, session: str) -> bool:
    info = await runtime.sessions.info(session)
    return info.status == "idle" and info.holder is None


@pytest.mark.spec("C-T3-032", "B-B-143")
async def test_a_handle_that_ran_no_turn_yet_holds_a_slot_until_its_session_is_archived(place: Place) -> None:
    async with narrow(place) as runtime, place.process() as other:
        await other.sessions.send("one", "later", agent="a", not_before=place.clock.now() + 10**6)
        async with runtime.session("one", PLAIN) as handle:
            with pytest.raises(CapacityExceeded) as told:
                await runtime.run(PLAIN, "hello", session="two", submission="m1")
            assert told.value.retryable
            with pytest.raises(SessionNotFound):
                await other.sessions.info("two")
            await other.sessions.archive("one")
            with pytest.raises(SessionArchived):
                [event async for event in handle.events()]
            assert (await runtime.run(PLAIN, "hello", session="two", submission="m1")).ok


@pytest.mark.spec("C-T3-034", "D-028", "B-B-046")
async def test_a_note_needs_no_slot(place: Place) -> None:
    """Nothing of the agent's runs for it: it is one commit of who sends it."""
    async with narrow(place) as runtime:
        await runtime.run(PLAIN, "hello", session="one", submission="m1")
        async with runtime.session("two", PLAIN):
            await runtime.sessions.note("one", "by the way", submission="n1")
        assert [entry.kind for entry in await runtime.sessions.entries("one")][-1] == "note_added"


@pytest.mark.spec("C-T3-035", "B-B-015", "B-B-026")
@pytest.mark.parametrize("how", ["archived", "deleted", "no model", "store"])
async def test_an_opening_that_fails_leaks_no_slot(place: Place, how: str) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="one", submission="m1")
        await (process.sessions.archive("one") if how != "deleted" else process.sessions.delete("one"))
    async with narrow(place, *([Fault(kind="heartbeat")] if how == "store" else [])) as runtime:
        agent = Agent("a") if how == "no model" else PLAIN
        session = "one" if how in ("archived", "deleted") else "fresh"
        with pytest.raises((SessionNotFound, InvalidAgent, UsageError, StoreBroken)):
            async with runtime.session(session, agent):
                pass
        for _ in range(3):
            assert await fits(runtime, "other")


@pytest.mark.spec("C-T3-036", "B-B-025")
async def test_handles_on_one_session_share_its_slot_until_the_last_is_closed(place: Place) -> None:
    async with narrow(place) as runtime:
        first, second = runtime.session("one", PLAIN), runtime.session("one", PLAIN)
        await first.__aenter__()
        await second.__aenter__()
        assert not await fits(runtime, "two")
        await first.__aexit__(None, None, None)
        assert not await fits(runtime, "two")
        await second.__aexit__(None, None, None)
        assert await fits(runtime, "two")


@pytest.mark.spec("B-B-024")
async def test_who_joins_a_session_at_work_waits_for_nothing_and_takes_no_other_slot(place: Place) -> None:
    charging = Charging("pure")
    async with narrow(place) as runtime:
        running = asyncio.create_task(runtime.run(charging.agent, "charge", session="one", submission="m1"))
        await charging.begun.wait()
        async with runtime.session("one", charging.agent) as joined:
            assert not (await joined.send("and then", submission="m2")).duplicate
            assert not running.done()
        assert not await fits(runtime, "two")
        charging.go_on.set()
        assert (await running).ok
        await eventually(lambda: fits(runtime, "two"))


@pytest.mark.spec("B-B-023")
@pytest.mark.parametrize("kind", ["load", "heartbeat", "buried"])
async def test_an_opening_that_is_cancelled_gives_its_slot_back(place: Place, kind: str) -> None:
    at_it, let_go = asyncio.Event(), asyncio.Event()

    async def gate(call: Any, when: str) -> None:
        if call.kind == kind and call.nth == 1 and when == "before":
            at_it.set()
            await let_go.wait()

    async with narrow(place, gate=gate) as runtime, asyncio.timeout(10):
        opening = asyncio.create_task(runtime.session("one", PLAIN).__aenter__())
        await at_it.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        let_go.set()
        await eventually(lambda: fits(runtime, "two"))
        assert await runtime.sessions.list() == []


@pytest.mark.spec("C-T3-037", "D-060", "B-B-018")
@pytest.mark.parametrize("end", ["cancelled", "broken"])
async def test_a_beginning_that_is_cancelled_or_fails_gives_its_slot_back(place: Place, end: str) -> None:
    at_it, let_go = asyncio.Event(), asyncio.Event()

    async def gate(call: Any, when: str) -> None:
        if call.kind == "send" and when == "before":
            at_it.set()
            if end == "cancelled":
                await let_go.wait()

    faults = [Fault(kind="send")] if end == "broken" else []
    async with narrow(place, *faults, gate=gate) as runtime:
        running = asyncio.create_task(runtime.run(PLAIN, "hello", session="one", submission="m1"))
        await at_it.wait()
        if end == "cancelled":
            assert not await fits(runtime, "two")
            running.cancel()
        with pytest.raises((asyncio.CancelledError, StoreBroken)):
            await running
        let_go.set()
        await eventually(lambda: fits(runtime, "two"))
        # Nothing of what failed is left.
        if end == "broken":
            with pytest.raises(SessionNotFound):
                await runtime.sessions.info("one")


@pytest.mark.spec("C-T3-038", "D-061", "B-B-217")
@pytest.mark.parametrize("how", ["archived", "taken over"])
async def test_the_slot_of_work_that_goes_on_without_its_session_is_free_when_that_work_ends(place: Place, how: str) -> None:
    charging = Charging()
    async with narrow(place) as runtime, place.process() as other:
        running = asyncio.create_task(runtime.run(charging.agent, "charge", session="one", submission="m1"))
        await charging.begun.wait()
        if how == "archived":
            await other.sessions.archive("one")
            assert (await running).status == "aborted"
        else:
            await other.sessions.delete("one")
            with pytest.raises(SessionNotFound):
                await running
        # The call that nobody can take back still runs here.
        assert not charging.ended.is_set()
        assert not await fits(runtime, "two")
        with pytest.raises(CapacityExceeded):
            await runtime.run(PLAIN, "hello", session="two", submission="m1")
        # As a child does, whose caller waits for it here.
        waiting = asyncio.create_task(runtime.work.engage_when_free("two", PLAIN, {}))
        charging.go_on.set()
        await charging.ended.wait()
        driver, _ = await asyncio.wait_for(waiting, 10)
        runtime.work.disengage(driver)
        await eventually(lambda: fits(runtime, "two"))
        assert (await runtime.run(PLAIN, "hello", session="two", submission="m1")).ok


@pytest.mark.spec("D-063", "B-B-181", "E-049")
async def test_a_note_for_a_session_that_is_not_there_allocates_nothing(place: Place) -> None:
    async with narrow(place) as runtime:
        for index in range(20):
            with pytest.raises(SessionNotFound) as told:
                await runtime.sessions.note(f"never {index}", "hello")
            assert told.value.code == "session_not_found"
        work, news = runtime.work, runtime.news
        assert (work.drivers, news.feeds, work.tasks, news.waiters, work.lingering) == ({}, {}, {}, {}, {})
        assert await runtime.sessions.list(archived=True) == []


async def test_many_runs_through_few_slots_leave_none_taken(place: Place) -> None:
    async with narrow(place, capacity=2) as runtime:

        async def one(index: int) -> str:
            while True:
                try:
                    return (await runtime.run(PLAIN, "hello", session=f"s{index}", submission="m1")).status
                except CapacityExceeded:
                    await asyncio.sleep(0.001)

        assert await asyncio.gather(*(one(index) for index in range(30))) == ["completed"] * 30
        failing = Agent("b", model=FunctionModel(lambda request: 1 / 0))  # type: ignore[arg-type,return-value]
        for index in range(5):
            assert not (await runtime.run(failing, "hello", session=f"f{index}", submission="m1")).ok
        await eventually(lambda: not runtime.work.drivers)
        assert runtime.work.lingering == {}
