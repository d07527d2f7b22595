"""What is sent is durable before anything reacts to it, once and for ever; what is refused leaves nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Agent, Reply, TurnStarted
from perdure.store.base import PENDING_LIMIT
from perdure.testing.faults import Call, Fault

from .acting import Place, counting, told

HELPER = Agent("helper", model=counting(Reply("done"))[0])


@pytest.mark.spec("S2-007")
async def test_a_message_is_durable_before_its_turn_begins_and_survives_a_death_in_between(place: Place) -> None:
    model, asked = counting(Reply("done"))
    agent = Agent("helper", model=model)
    async with place.process(Fault(nth=1, when="before", action="die")) as process:
        with pytest.raises(perdure.StoreError):
            await process.run(agent, "hello", session="s", submission="m-1")
        sent = [call for call in process.faulty.calls if call.kind == "send"]
        first_commit = next(call for call in process.faulty.calls if call.kind == "commit")
        assert [entry.kind for entry in first_commit.given.entries][:2] == ["turn_started", "message"]
        assert sent[0].number < first_commit.number
    async with place.process() as process:
        assert await process.told() == ["session_created"]
        assert [row.submission_id for row in await process.pending()] == ["m-1"]
        assert not asked
        await process.recover([agent])
        assert [type(entry) for entry in await process.sessions.entries("s")].count(TurnStarted) == 1
        assert len(asked) == 1


@pytest.mark.spec("S2-008", "B-B-017", "B-B-082")
async def test_a_receipt_and_its_place_in_the_queue_are_one_transaction(disk: Place) -> None:
    """Both are one row; what its session's row says of it stands or falls with it."""
    async with disk.process() as process:
        await process.sessions.send("old", "hello", submission="m-0")
        before = await process.everything("old")
        disk.execute(
            "CREATE TRIGGER reject BEFORE INSERT ON inbox WHEN NEW.submission_id = 'm-1' BEGIN SELECT RAISE(ABORT, 'rejected'); END",
        )
        for session in ("old", "new"):
            with pytest.raises(perdure.StoreError):
                await process.sessions.send(session, "hello", submission="m-1")
        assert await process.everything("old") == before
        assert await process.store.load("new") is None
        disk.execute("DROP TRIGGER reject")
        # The other way round: the receipt could be written, and the session's row not.
        disk.execute("CREATE TRIGGER reject BEFORE UPDATE OF inbox_head ON sessions BEGIN SELECT RAISE(ABORT, 'rejected'); END")
        with pytest.raises(perdure.StoreError):
            await process.sessions.send("old", "hello", submission="m-1")
        assert await process.everything("old") == before
        assert await process.store.submission(before[0].no, "m-1") is None
        disk.execute("DROP TRIGGER reject")
        for session in ("old", "new"):
            assert not (await process.sessions.send(session, "hello", submission="m-1")).duplicate
            assert [row.submission_id for row in await process.pending(session)][-1] == "m-1"


@pytest.mark.spec("S2-009")
async def test_a_submission_that_was_admitted_is_ignored_for_ever(place: Place) -> None:
    model, asked = counting(Reply("done"))
    agent = Agent("helper", model=model)
    async with place.process() as process:
        first = await process.sessions.send("s", "hello", submission="m-1", agent="helper")
        while_it_waits = await process.sessions.send("s", "hello", submission="m-1")
        assert (while_it_waits.duplicate, while_it_waits.arrival) == (True, first.arrival)
        await process.recover([agent])
        ended = await process.everything()
        after_its_turn = await process.sessions.send("s", "hello", submission="m-1")
        assert (after_its_turn.duplicate, after_its_turn.arrival) == (True, first.arrival)
        assert await process.recover([agent]) == []
        assert await process.everything() == ended
    async with place.process() as process:
        assert (await process.sessions.send("s", "hello", submission="m-1", deliver="turn")).duplicate
        async with process.session("s", agent) as handle:
            await handle.send("hello", submission="m-1")
            await process.run(agent, "another", session="s", submission="m-2")
        assert [entry.submission for entry in await process.sessions.entries("s") if isinstance(entry, TurnStarted)] == ["m-1", "m-2"]
    assert len(asked) == 2


@pytest.mark.spec("S2-010")
async def test_sending_returns_after_the_durable_write_says_when_it_was_known_and_raises_a_rejection(place: Place) -> None:
    written, answer = asyncio.Event(), asyncio.Event()
    seen: list[bool] = []

    async def gate(call: Call, when: str) -> None:
        if call.kind == "send" and call.nth == 1:
            if when == "before":
                written.set()
                await answer.wait()
            else:
                seen.append(sending.done())

    async with place.process(gate=gate) as process:
        sending = asyncio.create_task(process.sessions.send("s", "hello", submission="m-1"))
        await written.wait()
        await asyncio.sleep(0)
        assert not sending.done()
        assert await process.store.load("s") is None
        answer.set()
        admitted = await sending
        assert seen == [False]
        row = await process.store.submission((await process.row()).no, "m-1")
        assert row is not None
        assert (admitted.id, admitted.arrival, admitted.duplicate) == ("m-1", row.arrival, False)
        assert (await process.sessions.send("s", "hello", submission="m-1")).duplicate
        with pytest.raises(perdure.SubmissionConflict):
            await process.sessions.send("s", "other words", submission="m-1")


@pytest.mark.spec("S2-011", "S2-013", "S2-036")
async def test_a_full_queue_refuses_at_once_changes_nothing_and_takes_the_same_id_later(place: Place) -> None:
    model, _ = counting(Reply("done"))
    agent = Agent("helper", model=model)
    async with place.process() as process:
        await process.sessions.send("s", "message 0", agent="helper", not_before=None)
        far = place.clock.now() + 1_000_000
        for number in range(1, PENDING_LIMIT):
            await process.sessions.send("s", f"message {number}", not_before=far)
        before = await process.everything()
        with pytest.raises(perdure.QueueFull) as caught:
            await process.sessions.send("s", "one more", submission="m-late")
        assert caught.value.retryable
        assert await process.everything() == before
        assert await process.store.submission(before[0].no, "m-late") is None
        # One is worked off, and the same id is taken.
        await process.recover([agent])
        assert not (await process.sessions.send("s", "one more", submission="m-late")).duplicate
        with pytest.raises(perdure.QueueFull):
            await process.sessions.send("s", "and one more", submission="m-later")
    with pytest.raises(perdure.PerdureError) as stopped:
        await process.sessions.send("s", "too late", submission="m-last")
    assert stopped.value.code in ("runtime_closed", "store_closed")


@pytest.mark.spec("S2-011", "S2-014")
async def test_a_message_that_is_too_large_is_refused_before_it_is_queued_and_leaves_no_receipt(place: Place) -> None:
    async with place.process() as process:
        await process.sessions.send("s", "hello", submission="m-0")
        before = await process.everything()
        with pytest.raises(perdure.InvalidMessage):
            await process.sessions.send("s", "x" * (1024 * 1024 + 1), submission="m-1")
        with pytest.raises(perdure.InvalidMessage):
            await process.sessions.send("t", "x" * (1024 * 1024 + 1), submission="m-1")
        assert await process.everything() == before
        assert await process.store.load("t") is None
        assert not (await process.sessions.send("s", "x" * 1024 * 1024, submission="m-1")).duplicate


@pytest.mark.spec("S2-015")
async def test_a_turn_start_that_fails_leaves_the_whole_queue_in_order_and_calls_no_model(place: Place) -> None:
    model, asked = counting(Reply("done"))
    agent = Agent("helper", model=model)
    async with place.process(Fault(nth=1, when="before")) as process:
        for number in range(3):
            await process.sessions.send("s", f"message {number}", submission=f"m-{number}", agent="helper")
        before = await process.everything()
        with pytest.raises(perdure.StoreBroken):
            await process.recover([agent], session="s")
        assert await process.everything() == before
        assert [row.submission_id for row in await process.pending()] == ["m-0", "m-1", "m-2"]
        assert not asked
        await process.recover([agent], session="s")
        assert [entry.submission for entry in await process.sessions.entries("s") if isinstance(entry, TurnStarted)] == [
            "m-0",
            "m-1",
            "m-2",
        ]
    assert len(asked) == 3


@pytest.mark.spec("S2-018")
async def test_the_queue_refuses_an_id_that_it_has_and_more_than_1024(memory: Place) -> None:
    async with memory.process() as process:
        for number in range(1024):
            await process.sessions.send("s", f"message {number}", submission=f"m-{number}")
        before = await process.everything()
        with pytest.raises(perdure.SubmissionConflict):
            await process.sessions.send("s", "other words", submission="m-7")
        with pytest.raises(perdure.QueueFull) as caught:
            await process.sessions.send("s", "one more")
        assert caught.value.facts["limit"] == "pending"
        # Of another session's queue this one knows nothing.
        await process.sessions.send("t", "other words", submission="m-7")
        assert await process.everything() == before
        assert [row.submission_id for row in before[2]] == [f"m-{number}" for number in range(1024)]


async def test_messages_wait_in_the_order_in_which_they_came(place: Place) -> None:
    model, asked = counting(Reply("done"))
    async with place.process() as process:
        for number in range(5):
            await process.sessions.send("s", f"message {number}", agent="helper")
        await process.recover([Agent("helper", model=model)])
        assert (await process.told()).count("turn_completed t2") == 1
    said: list[Any] = [request.messages[-1].text for request in asked]
    assert said == [f"message {number}" for number in range(5)]
    assert told(TurnStarted(submission="m", agent="a", definition="", seq=2)) == "turn_started t2"
