"""Notes and results from outside: on an idle, running, waiting or unloaded session, once by their key, and never lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Agent,
    FunctionModel,
    InvalidMessage,
    Message,
    ModelRequest,
    NoteAdded,
    NotesWithdrawn,
    ProviderRefused,
    Reply,
    SessionNotFound,
    StaleRequest,
    StoreBroken,
    StoreCorrupt,
    SubmissionConflict,
    Text,
    ToolCall,
    ToolContext,
    ToolPolicy,
    UsageError,
    tool,
)
from perdure.testing import find_problems
from perdure.testing.faults import Fault

from ..interactive.acting import Place, Process, counting, eventually, transcript
from .talking import sound
from .test_archive import PLAIN, Charging


async def notes(process: Process, session: str = "s") -> list[tuple[str, str, str]]:
    found = await process.sessions.entries(session, kinds=("note_added",))
    return [(entry.text, entry.submission, entry.actor) for entry in found if isinstance(entry, NoteAdded)]


@pytest.mark.spec("E-008", "E-051", "D-062")
async def test_a_note_on_an_idle_session_is_durable_seen_and_told_to_the_next_call_once(place: Place) -> None:
    model, asked = counting("one", "two")
    agent = Agent("a", model=model)
    async with place.process() as process:
        await process.run(agent, "hello", session="s", submission="m1")
        before = await process.sessions.checkpoint("s")
        async with process.session("s") as watching:
            sent = await process.sessions.note("s", '{"door": "open"}', submission="n1", actor="sensor")
            async for event in watching.events():
                if isinstance(event, NoteAdded):
                    break
        assert not sent.duplicate
        assert await notes(process) == [('{"door": "open"}', "n1", "sensor")]
        after = await process.sessions.checkpoint("s")
        # No message, no turn, no output was made up for it.
        assert (after.number, after.turns, after.revision, after.usage) == (before.number, before.turns, before.revision, before.usage)
        assert after.context != before.context
        assert await transcript(process) == [("user", "hello"), ("assistant", "one")]
    async with place.process() as process:
        await process.run(agent, "and now?", session="s", submission="m2")
        assert [message.text for message in asked[-1].messages] == ["hello", "one", '[note] {"door": "open"}', "and now?"]
        assert await find_problems(process.store, "s") == []


@pytest.mark.spec("E-006", "E-010", "B-B-191")
async def test_a_note_whose_answer_was_lost_is_not_added_again(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
    async with place.process(Fault(kind="commit", when="after")) as process:
        with pytest.raises(StoreBroken):
            await process.sessions.note("s", "by the way", submission="n1")
        assert (await process.sessions.note("s", "by the way", submission="n1")).duplicate
        with pytest.raises(SubmissionConflict):
            await process.sessions.note("s", "by another way", submission="n1")
        assert [text for text, _, _ in await notes(process)] == ["by the way"]
        version = (await process.row()).version
        receipt = await process.store.submission((await process.row()).no, "n1")
        assert receipt is not None
        assert (receipt.consumed_seq, receipt.settled_seq) == (version, version)


@pytest.mark.spec("E-009", "E-011", "E-028")
async def test_a_note_to_a_running_session_joins_what_is_committed_and_nothing_else(place: Place) -> None:
    charging = Charging("pure")
    async with place.process() as holder, place.process() as other:
        running = asyncio.create_task(holder.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()
        before = await transcript(other)
        await other.sessions.note("s", "be quick", submission="n1")
        await other.sessions.note("s", "be quick", submission="n1")
        await eventually(lambda: notes(other))
        # What runs in the holder's memory shows nowhere; the transcript is what was committed.
        assert await transcript(other) == before
        charging.go_on.set()
        await running
        assert len(await notes(other)) == 1
        assert await find_problems(other.store, "s") == []


@pytest.mark.spec("E-012", "E-034", "B-B-189")
async def test_a_note_to_an_unloaded_session_survives_and_loads_nothing(place: Place) -> None:
    model, asked = counting("one", "two", "three")
    agent = Agent("a", model=model)
    async with place.process() as process:
        await process.run(agent, "hello", session="s", submission="m1")
    async with place.process() as process:
        await process.sessions.note("s", "first", submission="n1")
        await process.sessions.note("s", "second", submission="n2")
        assert process.work.drivers == {}
        assert (await process.row()).holder is None
        assert [info.session_id for info in await process.sessions.list()] == ["s"]
    async with place.process() as process:
        for submission in ("m2", "m3"):
            await process.run(agent, "go on", session="s", submission=submission)
        said = [message.text for message in asked[-1].messages]
        assert said == ["hello", "one", "[note] first", "[note] second", "go on", "two", "go on"]


@pytest.mark.spec("E-052")
async def test_a_note_while_a_person_is_asked_answers_nothing_and_is_told_afterwards(place: Place) -> None:
    @tool(effect="external")
    async def charge(cents: int) -> str:
        return f"charged {cents}"

    model, asked = counting(Reply(tool_calls=[ToolCall("charge", {"cents": 5})]), "done")
    agent = Agent("a", model=model, tools=[charge], approve=["charge"])
    async with place.process() as process:
        running = asyncio.create_task(process.run(agent, "hello", session="s", submission="m1"))
        await eventually(lambda: _asked(process))
        [request] = await process.sessions.requests("s")
        await process.sessions.note("s", "it is urgent", submission="n1")
        assert [item.request_id for item in await process.sessions.requests("s")] == [request.request_id]
        assert (await process.row()).status == "waiting"
        await process.sessions.approve("s", request.request_id)
        assert (await running).ok
        assert [message.text for message in asked[-1].messages][-1] == "[note] it is urgent"
        assert asked[-1].messages[-2].role == "tool"
        assert await find_problems(process.store, "s") == []


async def _asked(process: Process) -> Any:
    try:
        return await process.sessions.requests("s")
    except SessionNotFound:
        return []


@pytest.mark.spec("E-029", "E-030")
async def test_a_result_comes_from_any_process_once_by_its_operation(place: Place) -> None:
    tokens: list[str] = []

    @tool(effect="external", timeout=0.001)
    async def order(ctx: ToolContext) -> str:
        tokens.append(ctx.callback_token)
        await asyncio.Event().wait()
        return ""

    model, asked = counting(Reply(tool_calls=[ToolCall("order", {})]), "no word yet", "it came")
    agent = Agent("a", model=model, tools=[order])
    async with place.process() as process:
        running = asyncio.create_task(process.run(agent, "hello", session="s", submission="m1"))
        await eventually(lambda: tokens)
        place.clock.advance(1)
        await running
    async with place.process() as process:
        sent = await process.sessions.report(tokens[0], {"parcel": 7}, actor="the shop")
        again = await process.sessions.report(tokens[0], {"parcel": 7}, actor="the shop")
        assert (again.id, again.duplicate) == (sent.id, True)
        with pytest.raises(SubmissionConflict):
            await process.sessions.report(tokens[0], {"parcel": 8})
        assert process.work.drivers == {}
        assert await process.sessions.uncertain("s") == []
        before = await process.everything()
        for wrong in (tokens[0][:-1], "x.y", ""):
            with pytest.raises((UsageError, StaleRequest)):
                await process.sessions.report(wrong, "forged")
        assert await process.everything() == before
    async with place.process() as process:
        await process.run(agent, "and now?", session="s", submission="m2")
        told = [message.text for message in asked[-1].messages if "known now" in message.text]
        assert len(told) == 1
        assert '"parcel":7' in told[0]
        assert await find_problems(process.store, "s") == []


@pytest.mark.spec("E-041", "E-048", "E-055")
async def test_archived_and_unknown_are_told_apart_and_a_whole_journal_from_one_that_is_not_there(place: Place) -> None:
    async with place.process() as process:
        for name in ("live", "away"):
            await process.run(PLAIN, "hello", session=name, submission="m1")
        await process.sessions.archive("away")
        listed = {info.session_id for info in await process.sessions.list()}
        for name, visible in (("live", True), ("away", False), ("never", False)):
            assert (name in listed) == visible
            try:
                found = (await process.sessions.info(name)).status != "archived"
            except SessionNotFound:
                found = False
            assert found == visible
        version = (await process.row("live")).version
        assert [entry.seq for entry in await process.sessions.entries("live", after=version - 1)] == [version]
        assert await process.sessions.entries("live", after=version) == []
        with pytest.raises(SessionNotFound):
            await process.sessions.entries("never")


async def spoiled(tmp_path: Path) -> Place:
    """Where a session has a checkpoint that can't be read."""
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
    place.execute("UPDATE sessions SET checkpoint = x'00'")
    return place


@pytest.mark.spec("E-047", "B-A-130")
async def test_a_checkpoint_that_cannot_be_read_is_an_error_and_never_absence(tmp_path: Path) -> None:
    async with (await spoiled(tmp_path)).process() as process:
        before = await process.everything()
        for looking in (
            process.sessions.checkpoint("s"),
            process.sessions.note("s", "hello"),
            process.sessions.archive("s"),
        ):
            with pytest.raises(StoreCorrupt):
                await looking
        assert await process.everything() == before
        assert (await process.sessions.info("s")).problem


@pytest.mark.spec("B-B-179", "B-B-201")
async def test_a_session_whose_checkpoint_cannot_be_read_is_neither_restricted_nor_forked(tmp_path: Path) -> None:
    async with (await spoiled(tmp_path)).process() as process:
        before = await process.everything()
        for changing in (process.sessions.restrict("s", ToolPolicy()), process.sessions.fork("s", session_id="branch")):
            with pytest.raises(StoreCorrupt):
                await changing
        assert await process.everything() == before
        assert await process.store.load("branch") is None


async def test_what_is_no_note_is_refused_and_touches_nothing(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        before = await process.everything()
        for wrong in ("", "  ", "x" * 2**20, "\ud800", 7, None):
            with pytest.raises(UsageError):
                await process.sessions.note("s", wrong)  # type: ignore[arg-type]
        assert await process.everything() == before


def raining(*, fails: bool) -> tuple[Agent, list[ModelRequest]]:
    """An agent whose model refuses to speak of rain, or not."""
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        asked.append(request)
        if fails and "[note] it rains" in [message.text for message in request.messages]:
            raise ProviderRefused("not that")
        return Reply("ok")

    return Agent("a", model=FunctionModel(answer)), asked


async def test_notes_that_come_with_a_message_are_told_behind_it_and_stay(place: Place) -> None:
    agent, asked = raining(fails=False)
    async with place.process() as process:
        async with process.session("s", agent) as session:
            sent = await session.send("hello", submission="m1", notes=["it rains", "it is late"], actor="ann")
            assert not sent.duplicate
            await eventually(lambda: process.sessions.result("s", "m1"))
            assert (await session.send("hello", submission="m1", notes=["it rains", "it is late"], actor="ann")).duplicate
            with pytest.raises(SubmissionConflict):
                await session.send("hello", submission="m1", notes=["it snows"], actor="ann")
        assert await notes(process) == [("it rains", "m1", "ann"), ("it is late", "m1", "ann")]
    async with place.process() as process:
        await process.run(agent, "and now?", session="s", submission="m2")
        told = ["hello", "[note] it rains", "[note] it is late", "ok", "and now?"]
        assert [message.text for message in asked[-1].messages] == told
        assert await transcript(process) == [("user", "hello"), ("assistant", "ok"), ("user", "and now?"), ("assistant", "ok")]
        await sound(process)


@pytest.mark.spec("D-026", "B-B-047")
async def test_a_note_that_came_with_a_message_that_failed_before_any_output_is_told_to_nobody_after_that(place: Place) -> None:
    agent, asked = raining(fails=True)
    async with place.process() as process:
        async with process.session("s", agent) as session:
            await session.send("hello", submission="m1", notes=["it rains"])
            await eventually(lambda: process.sessions.result("s", "m1"))
        # then the commit that ends the turn withdraws it
        result = await process.sessions.result("s", "m1")
        assert result is not None
        assert (result.status, asked[-1].messages[-1].text) == ("failed", "[note] it rains")
        entries = await process.sessions.entries("s")
        assert [entry.kind for entry in entries[-3:]] == ["operation_ended", "notes_withdrawn", "turn_failed"]
        [added] = [entry for entry in entries if isinstance(entry, NoteAdded)]
        assert entries[-2] == NotesWithdrawn(seq=entries[-2].seq, number=1, at=entries[-2].at, notes=(added.seq,))
        # and here, in a branch, and after a restart the model hears nothing of it
        await process.run(agent, "and now?", session="s", submission="m2")
        assert [message.text for message in asked[-1].messages] == ["hello", "and now?"]
    async with place.process() as process:
        await process.run(agent, "still there?", session="s", submission="m3")
        assert [message.text for message in asked[-1].messages] == ["hello", "and now?", "ok", "still there?"]
        for cut, told in ((1, ["hello"]), (3, ["hello", "and now?", "ok"])):
            fork = await process.sessions.fork("s", at=cut)
            await process.run(agent, "here", session=fork.session_id, submission="m1")
            assert [message.text for message in asked[-1].messages] == [*told, "here"]
        await process.sessions.rewrite("s", (2, 3), [Message(role="assistant", parts=(Text("fine"),))])
        await process.run(agent, "again", session="s", submission="m4")
        assert [message.text for message in asked[-1].messages][:3] == ["hello", "and now?", "fine"]
        await sound(process)


async def test_a_note_stays_where_the_model_said_something_or_nobody_failed(place: Place) -> None:
    def answer(request: ModelRequest) -> Reply:
        if request.messages[-1].role == "tool":
            raise ProviderRefused("not that")
        return Reply(tool_calls=[ToolCall(name="look", arguments={}, id=f"c{len(request.messages)}")])

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "nothing"

    agent = Agent("a", model=FunctionModel(answer), tools=[look])
    async with place.process() as process:
        async with process.session("s", agent) as session:
            await session.send("hello", submission="m1", notes=["it rains"])
            await eventually(lambda: process.sessions.result("s", "m1"))
        assert "notes_withdrawn" not in [entry.kind for entry in await process.sessions.entries("s")]
        await sound(process)


@pytest.mark.spec("B-B-067")
async def test_notes_that_can_not_be_kept_keep_their_message_out_too(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="t")
        before = await process.everything("t")
        for wrong in ("text", [""], ["it rains", ""], ["x" * 40_000], [1], ["n"] * 17, None):
            for session in ("s", "t"):
                with pytest.raises(InvalidMessage):
                    await process.sessions.send(session, "hello", notes=wrong)  # type: ignore[arg-type]
        assert [info.session_id for info in await process.sessions.list()] == ["t"]
        assert await process.everything("t") == before
