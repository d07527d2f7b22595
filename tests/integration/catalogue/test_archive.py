"""A session is put away in one commit whoever holds it, stays readable, takes nothing, and comes back as it was."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    Archived,
    Fenced,
    FunctionModel,
    ModelRequest,
    NothingChanged,
    Reply,
    SessionArchived,
    SessionNotFound,
    StoreBroken,
    SubmissionConflict,
    SubmissionRefused,
    ToolCall,
    ToolContext,
    TurnAborted,
    tool,
)
from perdure.cli.follow import Follower
from perdure.cli.screen import Screen
from perdure.cli.sending import confirm
from perdure.core.reports import Parked
from perdure.runtime.verify import verify
from perdure.store.base import Claim, Committed
from perdure.testing import find_problems
from perdure.testing.faults import Call, Fault

from ..interactive.acting import UNKNOWN_LIVE, Past, Place, Process, counting, eventually, lived, transcript

PLAIN = Agent("a", model=FunctionModel(lambda request: "ok"))


class Charging:
    """An agent whose tool charges and never comes back, until it is let."""

    def __init__(self, effect: Any = "external") -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.ended = asyncio.Event()
        self.token = ""
        self.charged = 0

        @tool(effect=effect)
        async def charge(ctx: ToolContext, cents: int) -> str:
            self.token = ctx.callback_token
            self.charged += 1
            self.begun.set()
            try:
                await self.go_on.wait()
            finally:
                self.ended.set()
            return f"charged {cents}"

        def answer(request: ModelRequest) -> Reply | str:
            if request.messages[-1].text == "charge":
                return Reply(tool_calls=[ToolCall("charge", {"cents": 5})])
            return "ok"

        self.agent = Agent("a", model=FunctionModel(answer), tools=[charge])


async def clean(process: Process, session: str = "s") -> None:
    assert await find_problems(process.store, session) == []
    assert [str(problem) async for problem in verify(process.store)] == []


@pytest.mark.spec("C-T3-023", "E-031", "B-B-144")
async def test_archived_history_outlives_the_process_and_no_list_shows_it(place: Place) -> None:
    async with place.process() as process:
        for name in ("one", "two"):
            await process.run(PLAIN, "hello", session=name, submission="m1")
            commits = len(process.faulty.commits)
            sent = await process.sessions.archive(name, reason="done with", actor="ann")
            assert not sent.duplicate
            assert len(process.faulty.commits) == commits + 1
        # One that never ran a turn can be archived too.
        await process.sessions.send("three", "later", agent="a", not_before=place.clock.now() + 10_000)
        await process.sessions.archive("three")
        await process.run(PLAIN, "hello", session="four", submission="m1")
    async with place.process() as process:
        assert [info.session_id for info in await process.sessions.list()] == ["four"]
        assert {info.session_id for info in await process.sessions.list(archived=True)} == {"one", "two", "three", "four"}
        assert [info.session_id for info in await process.sessions.list(status="archived")] == ["three", "two", "one"]
        assert await transcript(process, "one") == [("user", "hello"), ("assistant", "ok")]
        assert (await process.sessions.info("one")).status == "archived"
        put_away = (await process.sessions.entries("one"))[-1]
        assert isinstance(put_away, Archived)
        assert (put_away.reason, put_away.actor) == ("done with", "ann")
        with pytest.raises(SessionArchived):
            await process.run(PLAIN, "again", session="one", submission="m2")
        assert await process.store.runnable(limit=9) == []
        await clean(process, "one")


@pytest.mark.spec("D-050", "D-061", "C-T3-038")
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_running_session_is_taken_from_its_holder_and_its_call_in_flight_is_unknown(place: Place, elsewhere: bool) -> None:
    charging = Charging()
    async with place.process() as holder, place.process() as other:
        running = asyncio.create_task(holder.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()
        operator = other if elsewhere else holder
        await operator.sessions.archive("s", reason="enough", actor="ann")
        result = await running
        assert (result.status, result.reason) == ("aborted", "archived: enough")
        assert [entry.kind for entry in (await other.sessions.entries("s"))[-4:]] == [
            "operation_ended",
            "message",
            "turn_aborted",
            "archived",
        ]
        aborted = (await other.sessions.entries("s"))[-2]
        assert isinstance(aborted, TurnAborted)
        assert aborted.actor == "ann"
        row = await other.row()
        assert (row.status, row.holder, row.wake_at) == ("archived", None, None)
        assert (await transcript(other))[-1] == ("tool", ("call_0_0", UNKNOWN_LIVE, True))
        assert [item.operation for item in await other.sessions.uncertain("s")] == ["t2.0.1"]
        await clean(other)
        # The truth about what was in flight is taken even now, and nothing else is.
        charging.go_on.set()
        await charging.ended.wait()
        await eventually(lambda: _settled(other))
        assert (await other.row()).status == "archived"
        assert [entry.kind for entry in (await other.sessions.entries("s"))[-2:]] == ["effect_settled", "note_added"]
        await clean(other)
    assert charging.charged == 1


async def _settled(process: Process) -> bool:
    return not await process.sessions.uncertain("s")


async def dies_at_work(place: Place) -> None:
    """A process works on the session, charges somebody, and is gone."""

    def until_then(past: Past) -> None:
        past.accept("m1")
        past.ask_model()
        past.answered(ToolCall("charge", {"cents": 5}, id="call_0_0"))
        past.plan()

    await lived(place, Charging().agent, until_then, ("m1", "charge", "turn"))


@pytest.mark.spec("E-036", "E-037", "E-035")
async def test_a_session_whose_holder_died_in_mid_turn_is_archived_without_being_taken_up(place: Place) -> None:
    await dies_at_work(place)
    async with place.process() as process:
        runners = await process.store.runners()
        assert (await process.row()).status == "running"
        # when a process that never worked on it puts it away
        await process.sessions.archive("s", submission="x1")
        # then that is all that it does, and what was in flight is known to be unknown
        row = await process.row()
        assert (row.status, row.holder, row.wake_at) == ("archived", None, None)
        assert (process.work.drivers, await process.store.runners()) == ({}, runners)
        assert [item.operation for item in await process.sessions.uncertain("s")] == ["t2.0.1"]
        assert (await transcript(process))[-1] == ("tool", ("call_0_0", UNKNOWN_LIVE, True))
        await clean(process)


@pytest.mark.spec("E-038", "E-039", "E-014")
@pytest.mark.parametrize("later", [False, True], ids=["at once", "after a restart"])
async def test_a_session_whose_holder_died_is_archived_once(place: Place, later: bool) -> None:
    await dies_at_work(place)
    async with place.process() as process:
        await process.sessions.archive("s")
        async with place.process() as other:
            again = other if later else process
            before = await again.everything()
            with pytest.raises(SessionArchived):
                await again.sessions.archive("s")
            assert await again.everything() == before
            assert (await again.sessions.info("s")).status == "archived"
            assert again.work.drivers == {}


@pytest.mark.spec("C-T3-028", "D-052", "B-A-097")
@pytest.mark.hazard("H2", "H7")
async def test_the_former_holder_is_told_at_once_and_commits_nothing_more(place: Place) -> None:
    charging = Charging("pure")
    async with place.process() as holder, place.process() as other:
        async with holder.session("s", charging.agent) as handle:
            await handle.send("charge", submission="m1")
            await charging.begun.wait()
            version = (await other.row()).version
            await other.sessions.archive("s")

            async def watch() -> list[Any]:
                return [event async for event in handle.events(after=version)]

            with pytest.raises((Fenced, SessionArchived)) as told:
                await watch()
            assert "archived" in str(told.value)
            # What harmed nobody is stopped.
            await charging.ended.wait()
            with pytest.raises(SessionArchived):
                await handle.send("more")
        archived = await other.everything()
        charging.go_on.set()
        await holder.close()
        assert await other.everything() == archived


@pytest.mark.spec("C-T3-026", "C-T3-028", "C-T3-030")
async def test_whoever_comes_while_a_session_is_being_archived_is_told_so_and_leaves_no_trace(place: Place) -> None:
    model, asked = counting("ok")
    ran: list[str] = []

    @tool(effect="external")
    async def dispatch() -> str:
        ran.append("dispatch")
        return "ran"

    agent = Agent("a", model=model, tools=[dispatch])
    at_it, let_go = asyncio.Event(), asyncio.Event()

    async def gate(call: Any, when: str) -> None:
        if call.kind == "commit" and when == "before" and [entry.kind for entry in call.given.entries][-1:] == ["archived"]:
            at_it.set()
            await let_go.wait()

    async with place.process() as process, place.process(gate=gate) as archiving:
        await process.run(agent, "hello", session="s", submission="m1")
        putting = asyncio.create_task(archiving.sessions.archive("s", submission="x1"))
        await at_it.wait()
        # Whoever is faster than the commit is refused by it; whoever is slower, at the door.
        waiting = asyncio.create_task(process.sessions.send("s", "never", submission="m2"))
        note = asyncio.create_task(process.sessions.note("s", "by the way", submission="n1"))
        await asyncio.gather(waiting, note)
        let_go.set()
        await putting
        for attempt in (
            process.run(agent, "never", session="s", submission="m3"),
            process.sessions.send("s", "never", submission="m4"),
            process.sessions.note("s", "never", submission="n2"),
            process.sessions.interrupt("s", submission="i1"),
            process.sessions.select_route("s", "other"),
            process.sessions.edit("s", "m2", "else"),
            process.sessions.withdraw("s", "m2"),
            process.sessions.revoke("s", "g"),
            process.sessions.report_attempt("s", "t2.0.1", 1, "never", False),
            process.run(agent, "never", session="s", submission="m2"),
        ):
            with pytest.raises(SessionArchived):
                await attempt
        with pytest.raises(SessionArchived):
            async with process.session("s", agent):
                pass
        with pytest.raises(SessionArchived):
            await process.recover([agent], session="s")
        assert await transcript(process) == [("user", "hello"), ("assistant", "ok")]
        refused = [entry for entry in await process.sessions.entries("s") if isinstance(entry, SubmissionRefused)]
        assert [(entry.submission, entry.failure.code) for entry in refused] == [("m2", "session_archived")]
        assert (len(asked), ran) == (1, [])
        assert await process.pending() == []
        await clean(process)


@pytest.mark.spec("E-033", "E-040", "E-042")
async def test_archiving_again_is_a_typed_answer_and_the_same_submission_the_first_one(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        first = await process.sessions.archive("s", reason="r", submission="x1")
        before = await process.everything()
        again = await process.sessions.archive("s", reason="r", submission="x1", actor="another")
        assert (again.id, again.arrival, again.duplicate) == (first.id, first.arrival, True)
        with pytest.raises(SubmissionConflict):
            await process.sessions.archive("s", reason="another", submission="x1")
        with pytest.raises(SessionArchived) as told:
            await process.sessions.archive("s")
        assert isinstance(told.value, SessionNotFound)
        assert told.value.code == "session_archived"
        with pytest.raises(SessionNotFound) as missing:
            await process.sessions.archive("never")
        assert not isinstance(missing.value, SessionArchived)
        # What was finished before is still answered with its stored result.
        assert (await process.run(PLAIN, "hello", session="s", submission="m1")).output == "ok"
        assert await process.everything() == before


@pytest.mark.spec("B-B-145", "B-B-148")
async def test_a_revival_of_what_is_not_archived_changes_nothing_and_the_same_one_again_is_the_first(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        for _ in range(2):
            before = await process.everything()
            with pytest.raises(NothingChanged):
                await process.sessions.revive("s")
            assert await process.everything() == before
            await process.sessions.archive("s")
            first = await process.sessions.revive("s", submission=f"y{before[0].version}")
            revived = await process.everything()
            again = await process.sessions.revive("s", submission=first.id)
            assert (again.id, again.arrival, again.duplicate) == (first.id, first.arrival, True)
            assert await process.everything() == revived
        assert (await process.row()).status == "idle"


@pytest.mark.spec("E-032", "B-A-114", "B-A-148")
async def test_a_revived_session_goes_on_where_it_was_and_only_an_archived_one_is_revived(place: Place) -> None:
    model, asked = counting("one", "two")
    agent = Agent("a", model=model)
    async with place.process() as process:
        await process.run(agent, "hello", session="s", submission="m1")
        before = await process.everything()
        with pytest.raises(NothingChanged):
            await process.sessions.revive("s")
        assert await process.everything() == before
        await process.sessions.archive("s")
    async with place.process() as process:
        for attempt in (process.run(agent, "go on", session="s", submission="m2"), process.sessions.note("s", "by the way")):
            with pytest.raises(SessionArchived):
                await attempt
        revived = await process.sessions.revive("s", reason="again", submission="y1", actor="ann")
        assert not revived.duplicate
        assert (await process.sessions.revive("s", reason="again", submission="y1")).duplicate
        with pytest.raises(NothingChanged):
            await process.sessions.revive("s")
        assert [info.session_id for info in await process.sessions.list(status="idle")] == ["s"]
        result = await process.run(agent, "go on", session="s", submission="m2")
        assert result.output == "two"
        assert [message.text for message in asked[-1].messages] == ["hello", "one", "go on"]
        await clean(process)


@pytest.mark.spec("D-051", "B-B-135", "B-B-139")
async def test_an_archive_that_fails_changed_nothing_and_can_be_repeated(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        before = await process.everything()
    async with place.process(Fault(kind="commit")) as process:
        with pytest.raises(StoreBroken):
            await process.sessions.archive("s", submission="x1")
        assert await process.everything() == before
        await process.sessions.archive("s", submission="x1")
    async with place.process(Fault(kind="commit", when="after")) as process:
        with pytest.raises(StoreBroken):
            await process.sessions.revive("s", submission="y1")
        assert (await process.sessions.revive("s", submission="y1")).duplicate
    async with place.process() as process:
        assert (await process.row()).status == "idle"


@pytest.mark.spec("B-A-118")
@pytest.mark.parametrize("kind", ["load", "submission", "inbox"])
async def test_an_archive_that_can_not_look_takes_nothing_for_absent(place: Place, kind: str) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        before = await process.everything()
    async with place.process(Fault(kind=kind)) as process:
        with pytest.raises(StoreBroken):
            await process.sessions.archive("s", submission="x1")
        assert await process.everything() == before
        assert not (await process.sessions.archive("s", submission="x1")).duplicate


@pytest.mark.spec("B-B-128", "B-B-068", "B-B-182")
async def test_what_a_model_was_saying_is_told_by_no_note_and_not_archived(place: Place) -> None:
    speaking, go_on = asyncio.Event(), asyncio.Event()

    async def speak(request: ModelRequest) -> Any:
        yield "half a sen"
        speaking.set()
        await go_on.wait()
        yield Reply("half a sentence")

    async with place.process() as holder, place.process() as other:
        running = asyncio.create_task(holder.run(Agent("a", model=FunctionModel(speak)), "hello", session="s", submission="m1"))
        await speaking.wait()
        # when another process adds a note to what is committed, and then puts the session away
        await other.sessions.note("s", "by the way")
        await eventually(lambda: other.sessions.entries("s", kinds=("note_added",)))
        assert await transcript(other) == [("user", "hello")]
        await other.sessions.archive("s")
        assert (await running).status == "aborted"
        # then what the model had begun to say is nowhere
        assert await transcript(other) == [("user", "hello")]
        assert not any(b"half a sen" in (row.body or b"") for row in await other.store.entries((await other.row()).no))
        assert await other.store.load("s") == await holder.store.load("s")
        await clean(other)


@pytest.mark.spec("B-B-129")
@pytest.mark.parametrize("why", ["stuck", "nobody has its agent"])
async def test_a_session_that_can_not_be_run_can_be_archived(place: Place, why: str) -> None:
    async with place.process() as process:
        await process.sessions.send("s", "hello", submission="m1", agent="an agent of former days")
        if why == "stuck":
            batch = await process.batch()
            batch.apply(Parked(at=batch.now))
            assert isinstance(
                await process.store.commit(batch.commit(holder=None, claim=Claim(runner="x"), release=True, status="stuck")), Committed
            )
            assert (await process.sessions.info("s")).status == "stuck"
        await process.sessions.archive("s")
        assert ((await process.sessions.info("s")).status, await process.pending()) == ("archived", [])
        await clean(process)


@pytest.mark.spec("B-B-130")
async def test_two_who_archive_at_once_are_one_who_does_and_one_who_is_told(place: Place) -> None:
    async with place.process() as one, place.process() as other:
        await one.run(PLAIN, "hello", session="s", submission="m1")
        answers = await asyncio.gather(
            one.sessions.archive("s", submission="x1"), other.sessions.archive("s", submission="x2"), return_exceptions=True
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["SessionArchived", "Submission"]
        assert [entry.kind for entry in await one.sessions.entries("s")].count("archived") == 1
        await clean(one)


@pytest.mark.spec("B-A-095", "B-B-186")
async def test_an_archive_waits_out_a_session_that_changes_all_the_time(place: Place) -> None:
    """Each lost race is another's commit; the archive builds on it and wins in the end."""
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        races = 0

        async def gate(call: Any, when: str) -> None:
            nonlocal races
            if call.kind == "commit" and when == "before" and races < 5:
                races += 1
                await process.sessions.note("s", f"note {races}")

        async with place.process(gate=gate) as slow:
            await slow.sessions.archive("s")
        assert races == 5
        assert (await process.row()).status == "archived"
        assert [entry.kind for entry in await process.sessions.entries("s")].count("note_added") == 5
        await clean(process)


@pytest.mark.spec("B-A-156", "B-A-157")
async def test_a_person_who_waits_with_a_handle_is_told_when_an_idle_session_is_archived(place: Place) -> None:
    async with place.process() as process, place.process() as other, process.session("s", PLAIN) as handle:
        await handle.send("hello", submission="m1")
        seen: list[Any] = []

        async def watch() -> None:
            async for event in handle.events():
                seen.append(getattr(event, "kind", "live"))

        watching = asyncio.create_task(watch())
        await eventually(lambda: "turn_completed" in seen)
        await other.sessions.archive("s")
        with pytest.raises(SessionArchived):
            await watching
        with pytest.raises(SessionArchived):
            await handle.send("more", submission="m2")
        assert [(entry.kind) for entry in await other.sessions.entries("s")][-1] == "archived"
        await eventually(lambda: not process.work.drivers)
        # A watcher without an agent may still look.
        async with other.session("s") as looking:
            assert [message.text for message in await looking.history()] == ["hello", "ok"]


async def test_an_undelivered_message_is_refused_and_its_sender_told(place: Place) -> None:
    charging = Charging("pure")
    async with place.process() as process, place.process() as other:
        first = asyncio.create_task(process.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()
        second = asyncio.create_task(process.run(charging.agent, "then this", session="s", submission="m2"))
        await eventually(lambda: _waits(other, "m2"))
        await other.sessions.archive("s")
        assert (await first).status == "aborted"
        with pytest.raises(SessionArchived):
            await second
        assert await other.pending() == []
        await other.sessions.revive("s")
        assert (await process.run(charging.agent, "and now", session="s", submission="m3")).ok
        assert "then this" not in str(await transcript(other))
        await clean(other)


async def _waits(process: Process, submission: str) -> bool:
    return submission in [row.submission_id for row in await process.pending()]


async def test_a_reason_that_is_no_text_or_a_megabyte_is_a_mistake_and_touches_nothing(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        before = await process.everything()
        for options in ({"reason": 7}, {"reason": "x" * 2**20}, {"actor": "x" * 2**20}, {"submission": ""}, {"reason": "\ud800"}):
            for operation in (process.sessions.archive, process.sessions.revive):
                with pytest.raises(perdure.UsageError):
                    await operation("s", **options)
        assert await process.everything() == before


async def test_who_comes_when_a_session_was_taken_out_is_not_refused_by_a_look_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In memory nobody looks so long.
    async with Place("sqlite", tmp_path / "agents.db").process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        await process.sessions.archive("s")
        load, looked, go_on = process.store.load, asyncio.Event(), asyncio.Event()

        async def late(session_id: str, **named: Any) -> Any:
            head = await load(session_id, **named)
            task = asyncio.current_task()
            if task is not None and task.get_name() == "perdure s" and not go_on.is_set():
                looked.set()
                await go_on.wait()
            return head

        monkeypatch.setattr(process.store, "load", late)
        refused = asyncio.create_task(process.run(PLAIN, "go on", session="s", submission="m2"))
        await looked.wait()
        await process.sessions.revive("s")
        running = asyncio.create_task(process.run(PLAIN, "go on", session="s", submission="m2"))
        while process.work.drivers["s"]._joined < 2:
            await asyncio.sleep(0)
        go_on.set()
        assert (await running).ok
        # It was sent before, or after.
        assert all(isinstance(said, SessionArchived) or said.ok for said in await asyncio.gather(refused, return_exceptions=True))
        await clean(process)


async def test_a_session_that_is_archived_before_its_holder_saw_an_interrupt_is_whole(place: Place) -> None:
    charging, away, back = Charging(), False, asyncio.Event()

    async def gate(call: Call, when: str) -> None:
        if away:
            await back.wait()

    async with place.process() as other, place.process(gate=gate) as holder:
        turn = asyncio.create_task(holder.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()
        away = True
        await other.sessions.interrupt("s", submission="i1")
        place.clock.advance(5)
        await other.sessions.archive("s")
        assert await find_problems(other.store, "s") == []
        away = False
        back.set()
        await asyncio.gather(turn, return_exceptions=True)


async def test_what_an_archived_session_refused_is_told_alike_by_events_by_what_is_stored_and_by_a_command(place: Place) -> None:
    charging = Charging()
    async with place.process() as other, place.process() as holder:
        running = asyncio.create_task(holder.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()
        sent = await other.sessions.send("s", "then this", submission="m2")
        await other.sessions.archive("s")
        await asyncio.gather(running, return_exceptions=True)
        [entry] = [entry for entry in await other.sessions.entries("s") if isinstance(entry, SubmissionRefused)]
        follower = Follower(other, "s", Screen(as_json=True), db="a.db", agent=PLAIN, wait=False)
        follower.own.add("m2")

        with pytest.raises(SessionArchived) as stored:
            await other.sessions.result("s", "m2")
        with pytest.raises(SessionArchived) as event:
            follower._follow(entry)
        with pytest.raises(SessionArchived) as command:
            await confirm(other, Namespace(json=True, session="s", db="a.db"), sent, "done")

        told = [(raised.value.message, raised.value.hint, raised.value.facts) for raised in (stored, event, command)]
        assert told[0] == told[1] == told[2]
        assert "another submission" in told[0][1]
