"""One store and one commit: what is not committed nobody sees, what is stale changes nothing, and every reader hears the same.

The behaviours that a service with two copies of a session has to repair are held here by there being one.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from perdure import (
    Agent,
    Blob,
    Entry,
    Fenced,
    FunctionModel,
    Message,
    ModelRequest,
    NoteAdded,
    PerdureError,
    Reply,
    RevisionConflict,
    Rewritten,
    Session,
    SessionArchived,
    SessionBusy,
    SessionHalted,
    SessionNotFound,
    StoreBroken,
    Text,
    ToolCall,
    ToolPolicy,
    TurnEnded,
    TurnUnfinished,
    UnknownRoute,
    Uri,
)
from perdure.core import checkpoint as checkpoints
from perdure.core.evolve import fold
from perdure.core.journal import open_entry
from perdure.core.messages import digest_of, part_digest
from perdure.core.transcript import EMPTY, chained
from perdure.runtime.messages import read_entries
from perdure.runtime.verify import verify
from perdure.store.base import Claim, Stale
from perdure.testing.faults import Call, Fault

from ..interactive.acting import Place, Process, counting, eventually, restarted, until
from ..media.pictures import big_png
from .talking import Payments, echoing, edit_fixture, lines, paying, sound, talk


async def stored(process: Process, session: str = "s") -> tuple[Any, ...]:
    """Row, journal and effects of a session, without who is working."""
    return await process.everything(session)


# ------------------------------------------------------------------------------------------- a commit leaves nothing behind


@pytest.mark.spec("D-004", "D-007", "D-058")
async def test_after_every_commit_the_row_the_checkpoint_and_the_journal_are_at_the_same_place(place: Place) -> None:
    seen: list[int] = []

    async def gate(call: Call, when: str) -> None:
        if call.kind not in ("commit", "send") or when != "after":
            return
        async with asyncio.timeout(5):
            head = await store.load("s")
            if head is None:
                return
            entries = [open_entry(row) for row in await read_entries(store, head.row.no)]
            # A driver may have committed between the two reads: what the row knew is the journal's beginning.
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            known = entries[: head.row.version]
            assert len(known) == head.row.version
            assert checkpoints.encode(fold(known)) == head.row.checkpoint
            seen.append(head.row.version)

    async with place.process(gate=gate) as process:
        store = process.faulty.inner
        await talk(process, "hello", "follow up")
        await process.sessions.note("s", "by the way")
        await process.sessions.rewrite("s", (0, 1), ["rather this"])
    assert seen == sorted(seen)
    assert len(set(seen)) >= 7


@pytest.mark.spec("E-063", "B-A-064", "B-A-069")
async def test_each_turn_writes_its_delta_and_touches_nothing_that_was_written(place: Place) -> None:
    def slowly(request: ModelRequest) -> Reply:
        place.clock.advance(1)
        return Reply(f"answer {len(request.messages)}")

    agent = Agent("helper", model=FunctionModel(slowly))
    async with place.process() as process:
        await talk(process, "hello 0", agent=agent)
        no, grown = (await process.row()).no, []
        for number in range(1, 4):
            before = await process.store.entries(no)
            await talk(process, f"hello {number}", agent=agent)
            after = await process.store.entries(no)
            # Not a byte of what stood there is another one, and exactly two messages are new.
            assert after[: len(before)] == before
            new = after[len(before) :]
            assert sum(row.kind == "message" for row in new) == 2
            # What the session's head says of it is of this turn, too.
            row, checkpoint = await process.row(), await process.sessions.checkpoint("s")
            assert (row.version, row.updated, checkpoint.at) == (new[-1].seq, new[-1].at, new[-1].at)
            assert (checkpoint.usage.calls, checkpoint.turns) == (number + 1, number + 1)
            grown.append((len(new), sum(len(row.body or b"") for row in new), len((await process.row()).checkpoint)))
        rows, entry_bytes, head_bytes = zip(*grown, strict=True)
        assert len(set(rows)) == 1
        assert max(entry_bytes) - min(entry_bytes) <= 16
        assert max(head_bytes) - min(head_bytes) <= 16


@pytest.mark.spec("E-066", "B-A-065", "B-A-068")
async def test_nothing_to_do_writes_nothing_and_a_loser_decides_anew(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "hello")
        for text in ("one", "two"):
            version, commits = (await process.row()).version, len(_of(process, "commit"))
            await process.sessions.note("s", text)
            assert (await process.row()).version == version + 1
            assert len(_of(process, "commit")) == commits + 1
        # when a handle is opened, looks and goes, and nothing was said
        before, writes = await stored(process), sum(call.write > 0 for call in process.faulty.calls if call.kind != "heartbeat")
        async with process.session("s", echoing()) as handle:
            assert len(await handle.history()) == 2
        assert await stored(process) == before
        assert [call.kind for call in process.faulty.calls if call.write > 0 and call.kind != "heartbeat"][writes:] == []
    # when a rival commits between what somebody read and what they write
    rival: Process | None = None

    async def gate(call: Call, when: str) -> None:
        if call.kind == "commit" and when == "before" and call.nth == 1 and rival is not None:
            await rival.sessions.note("s", "the rival's")

    async with place.process() as other, place.process(gate=gate) as process:
        rival = other
        await process.sessions.note("s", "mine")
        found = [entry.text for entry in await process.sessions.entries("s", kinds=("note_added",)) if isinstance(entry, NoteAdded)]
        assert found == ["one", "two", "the rival's", "mine"]
        await sound(process)


def _of(process: Process, kind: str) -> list[Call]:
    return [call for call in process.faulty.calls if call.kind == kind]


# ------------------------------------------------------------------------------------------------------------------- stale


@pytest.mark.spec("D-016", "E-061", "B-A-040")
@pytest.mark.parametrize("by", ["nobody", "a runner"])
async def test_who_decided_on_an_older_version_changes_nothing_and_learns_the_newer(place: Place, by: str) -> None:
    async with place.process() as process:
        await talk(process, "hello", "follow up")
        # given somebody who read the session, and somebody who was faster
        hand = await process.batch()
        newest = await process.batch()
        newest.note("newer")
        await process.store.commit(newest.commit(holder=None, claim=Claim(runner="x"), release=True, status="idle"))
        before = await stored(process)
        # when the slower one commits what it decided
        hand.note("stale")
        if by == "nobody":
            commit = hand.commit(holder=None, claim=Claim(runner="y"), release=True, status="idle")
        else:
            await process.engage_as_runner()
            commit = hand.commit(holder=None, status="idle", inbox_head=hand.head.row.inbox_head)
        answer = await process.store.commit(commit)
        # then it is told where the session is, and everything is what it was
        assert isinstance(answer, Stale)
        assert (answer.version, answer.fence) == (before[0].version, before[0].fence)
        assert await stored(process) == before
        await sound(process)


@pytest.mark.spec("D-015")
async def test_notes_that_were_written_of_an_older_conversation_take_the_place_of_nothing(place: Place) -> None:
    def answer(request: ModelRequest) -> Reply:
        if request.purpose == "notes":
            return Reply(tool_calls=[ToolCall("save_notes", {"notes": "STALE"})])
        return Reply(f"answer to {len(request.messages)}")

    agent, held = Agent("a", model=FunctionModel(answer)), Held("prefix_changed")
    async with place.process(gate=held) as process, place.process() as other:
        await process.run(agent, "hello", session="s", submission="m1")
        await process.sessions.compact("s")
        compacting = asyncio.create_task(process.recover([agent], session="s"))
        # given notes that are about to be committed, and somebody who takes the session and writes something else
        await held.there.wait()
        await other.sessions.halt("s")
        before = await stored(other)
        # when the notes come
        held.go.set()
        with pytest.raises((Fenced, SessionHalted)):
            await compacting
        # then nothing was put in the place of anything, and the notes are nowhere
        assert await stored(other) == before
        checkpoint = await other.sessions.checkpoint("s")
        assert (checkpoint.epoch, checkpoint.compactions, checkpoint.compacted) == (0, 0, None)
        assert "STALE" not in repr(await other.sessions.entries("s"))
        await sound(other)


@pytest.mark.spec("D-022", "E-061", "B-A-179")
async def test_an_edit_of_another_transcript_than_the_present_one_is_refused_before_anything_is_written(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        stale = await process.sessions.revision("s")
        await talk(process, "newer")
        before, writes = await stored(process), len(_of(process, "commit"))
        with pytest.raises(RevisionConflict) as told:
            await process.sessions.rewrite("s", (0, 4), ["a summary"], expected=stale)
        assert (told.value.facts["expected"], told.value.facts["actual"]) == (stale, await process.sessions.revision("s"))
        assert await stored(process) == before
        assert len(_of(process, "commit")) == writes


# ------------------------------------------------------------------------------------------------- uncommitted is not there


class Held:
    """A gate that holds the commit with an entry of a kind until it is let go."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.there = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, call: Call, when: str) -> None:
        if call.kind == "commit" and when == "before" and any(entry.kind == self.kind for entry in call.given.entries):
            self.there.set()
            # A test that fails must not keep its process from ending.
            async with asyncio.timeout(5):
                await self.go.wait()


async def _watch(handle: Session, told: list[Any]) -> None:
    async for event in handle.events(after=1):
        told.append(event)
        if isinstance(event, TurnEnded):
            return


@pytest.mark.spec("D-029", "D-030", "D-031")
@pytest.mark.hazard("H5", "H10")
async def test_an_answer_is_nowhere_before_its_commit_and_the_handle_stays(place: Place) -> None:
    held = Held("turn_completed")
    async with place.process(gate=held) as process, place.process() as other:
        async with process.session("s", echoing()) as handle:
            told: list[Any] = []
            watching = asyncio.create_task(_watch(handle, told))
            await handle.send("hello", submission="m1")
            await held.there.wait()
            await eventually(lambda: len(told) > 2)
            assert [event.kind for event in told if isinstance(event, Entry)] == ["turn_started", "message", "operation_started"]
            for reader in (process, other):
                assert await lines(reader) == ["user: hello"]
                assert (await reader.sessions.checkpoint("s")).messages == 1
                assert [info.version for info in await reader.sessions.list()] == [(await other.row()).version]
                assert await reader.sessions.result("s", "m1") is None
                with pytest.raises(SessionBusy):
                    await reader.sessions.fork("s")
            held.go.set()
            await watching
            assert told[-1].kind == "turn_completed"
        for reader in (process, other):
            assert await lines(reader) == ["user: hello", "assistant: answer 1"]


@pytest.mark.spec("B-B-052")
async def test_what_a_call_came_to_is_nowhere_before_its_commit(place: Place) -> None:
    payments, arrived, let_go = Payments(), asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def gate(call: Call, when: str) -> None:
        if call.kind == "commit" and when == "before" and any(entry.kind == "operation_ended" for entry in call.given.entries):
            arrived.release()
            await let_go.acquire()

    async with place.process() as other:
        await talk(other, "hello", agent=paying(payments))
        async with place.process(gate=gate) as process:
            running = asyncio.create_task(process.run(paying(payments), "pay A 5 ref1", session="s", submission="m1"))
            # The model's answer, and then what the payment came to, wait for their commit.
            for known in range(2):
                await arrived.acquire()
                assert len(payments.done) == known
                for reader in (process, other):
                    assert len(await lines(reader)) == 3 + known
                    checkpoint = await reader.sessions.checkpoint("s")
                    assert (checkpoint.usage.calls, checkpoint.messages) == (1 + known, 3 + known)
                    assert [call.ended > 0 for call in await reader.sessions.model_calls("s")] == [True] * (1 + known)
                    assert await reader.sessions.effects("s", shown=True) == []
                    assert await reader.sessions.result("s", "m1") is None
                let_go.release()
            let_go.release()
            assert (await running).ok
        assert len(await lines(other)) == 6
        assert len(await other.sessions.effects("s", shown=True)) == 1


@pytest.mark.spec("D-027", "B-B-184")
@pytest.mark.hazard("H4", "H6", "H15")
async def test_a_note_is_nowhere_before_its_commit_and_nowhere_if_that_fails(place: Place) -> None:
    held = Held("note_added")
    async with place.process() as other:
        await talk(other, "hello")
        before = await stored(other)
        async with place.process(Fault(kind="commit", nth=1, when="before"), gate=held) as process:
            telling = asyncio.create_task(process.sessions.note("s", "by the way", submission="n1"))
            await held.there.wait()
            assert await stored(other) == before
            held.go.set()
            with pytest.raises(StoreBroken):
                await telling
            assert await stored(other) == before
            assert await process.store.submission((await other.row()).no, "n1") is None


@pytest.mark.spec("E-043", "E-044", "E-045")
async def test_the_catalogue_says_of_a_session_what_its_journal_says_and_reads_no_entry_for_it(place: Place) -> None:
    async def archive(process: Process) -> None:
        await process.sessions.archive("s")

    async with place.process() as process:
        await process.sessions.send("s", "hello", submission="m1", agent="helper", labels={"team": "blue"}, metadata={"a": 1})
        for change in (
            lambda other: talk(other, "hello", session="t"),
            lambda other: other.recover([echoing()]),
            lambda other: other.sessions.describe("s", title="Second", labels={"team": "red"}),
            lambda other: other.sessions.restrict("s", ToolPolicy(ask=("read_result",))),
            lambda other: other.sessions.rewrite("s", (0, 1), ["rather this"]),
            lambda other: other.sessions.describe("s", metadata={}),
            archive,
        ):
            async with place.process() as other:
                await change(other)
            began = len(process.faulty.calls)
            info = await process.sessions.info("s")
            listed = {item.session_id: item for item in await process.sessions.list(archived=True)}
            assert {call.kind for call in process.faulty.calls[began:]} == {"load", "sessions"}
            whole = fold(await process.sessions.entries("s"))
            assert listed["s"] == info
            assert (info.version, info.title, info.labels, info.tools) == (whole.version, whole.title, whole.labels, whole.tools)
            assert (info.metadata, info.route or "", info.status == "archived") == (
                whole.metadata.values,
                whole.route,
                whole.archived,
            )
        assert info.status == "archived"


@pytest.mark.spec("D-032", "B-A-160", "B-B-004")
async def test_looking_at_a_session_takes_nothing_from_who_works_on_it(place: Place, tmp_path: Any) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> Reply:
        begun.set()
        await go.wait()
        return Reply("done")

    agent = Agent("a", model=FunctionModel(answer))
    async with place.process() as process, place.process() as other:
        async with process.session("s", agent) as handle:
            await handle.send("hello", submission="m1")
            await begun.wait()
            row = await other.row()
            for reader in (process, other):
                await reader.sessions.history("s")
                await reader.sessions.list()
                assert (await reader.sessions.info("s")).status == "running"
                await reader.sessions.tree("s")
                with pytest.raises(SessionBusy):
                    await reader.sessions.export("s", tmp_path / "s.jsonl")
            assert await other.row() == row
            assert other.work.drivers == {}
            go.set()
            await until(handle)
            await handle.send("and again", submission="m2")
            await eventually(lambda: process.sessions.result("s", "m2"))
        kinds = [entry.kind for entry in await process.sessions.entries("s")]
        assert "recovered" not in kinds


@pytest.mark.spec("D-033", "D-047", "D-049")
async def test_an_open_handle_sees_and_builds_on_what_another_process_committed(place: Place) -> None:
    model, asked = counting("one", "two", "three")
    agent = Agent("a", model=model)
    async with place.process() as process, place.process() as other:
        async with process.session("s", agent) as handle:
            await handle.send("hello", submission="m1")
            await until(handle)
            # when another process edits, notes and talks behind the handle's back
            await other.sessions.rewrite("s", (0, 1), ["rather hello"])
            await other.sessions.note("s", "it rains")
            assert [message.text for message in await handle.history()] == ["rather hello", "one"]
            # then the next turn here begins from all of that, under the same handle
            await handle.send("and now?", submission="m2")
            await eventually(lambda: process.sessions.result("s", "m2"))
            assert [message.text for message in asked[-1].messages] == ["rather hello", "one", "[note] it rains", "and now?"]
        # and what was committed behind its back is still there after it
        assert [entry.text for entry in await other.sessions.entries("s", kinds=("note_added",)) if isinstance(entry, NoteAdded)] == [
            "it rains"
        ]
        assert await lines(other) == ["user: rather hello", "assistant: one", "user: and now?", "assistant: two"]
        await sound(other)


@pytest.mark.spec("D-048", "E-050")
async def test_a_note_and_labels_that_come_behind_an_open_handles_back_are_its_own_and_it_goes_on(place: Place) -> None:
    model, asked = counting("one", "two")
    agent = Agent("a", model=model)
    async with place.process() as process, place.process() as other:
        async with process.session("s", agent) as handle:
            await handle.send("hello", submission="m1")
            await until(handle)
            driver = process.work.drivers["s"]
            # when another process changes nothing that was said
            await other.sessions.note("s", "it rains")
            await other.sessions.describe("s", labels={"team": "blue"}, metadata={"door": "open"})
            # then the handle has let nothing go, and its next call is told
            await handle.send("and now?", submission="m2")
            await eventually(lambda: process.sessions.result("s", "m2"))
            assert process.work.drivers["s"] is driver
        assert [message.text for message in asked[-1].messages] == ["hello", "one", "[note] it rains", "and now?"]
        info = await other.sessions.info("s")
        assert (info.labels, info.metadata) == ({"team": "blue"}, {"door": "open"})


@pytest.mark.spec("E-025", "E-026", "B-A-131")
async def test_a_read_that_fails_is_an_error_and_the_next_one_is_the_truth(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "hello")
        await process.sessions.describe("s", labels={"team": "blue"})
    faults = (Fault(kind="load", nth=1), Fault(kind="sessions", nth=1))
    async with place.process(*faults) as process:
        with pytest.raises(StoreBroken):
            await process.sessions.info("s")
        with pytest.raises(StoreBroken):
            await process.sessions.list()
        # No half answer, and nothing was forgotten or put in its place.
        assert (await process.sessions.info("s")).labels == {"team": "blue"}
        assert [info.session_id for info in await process.sessions.list()] == ["s"]
        assert len(await process.sessions.history("s")) == 2


@pytest.mark.spec("E-024", "D-012")
@pytest.mark.hazard("J-8")
async def test_a_row_behind_the_head_is_no_message_and_is_not_built_on(tmp_path: Any) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await talk(process, "hello")
        row = await process.row()
    # given a raw row behind the head, as long as a message
    columns = "no, kind, at, salt, body_digest, body, chain"
    copied = f"SELECT {row.version + 1}, 3, {columns} FROM journal WHERE no = {row.no} AND kind = 'message' LIMIT 1"
    place.execute(f"INSERT INTO journal (seq, number, {columns}) {copied}")
    async with place.process() as process:
        assert await lines(process) == ["user: hello", "assistant: answer 1"]
        assert (await process.sessions.info("s")).version == row.version
        # Nobody writes over it, and nobody takes it for their own.
        with pytest.raises(PerdureError):
            await process.sessions.note("s", "by the way")
        assert await lines(process) == ["user: hello", "assistant: answer 1"]
        assert (await process.row()).version == row.version


@pytest.mark.spec("E-015", "E-023", "E-046")
async def test_entries_without_their_sessions_row_are_no_session_to_anybody_and_stay_for_who_mends_it(tmp_path: Any) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await talk(process, "hello")
        await talk(process, "hello", session="t")
        entries = await process.store.entries((await process.row()).no)
    place.execute("CREATE TABLE kept AS SELECT * FROM sessions WHERE session_id = 's'", "DELETE FROM sessions WHERE session_id = 's'")
    async with place.process() as process:
        # Every way to look says the same, and none makes a session of it.
        for looking in (process.sessions.info("s"), process.sessions.history("s"), process.sessions.entries("s")):
            with pytest.raises(SessionNotFound):
                await looking
        assert [info.session_id for info in await process.sessions.list(archived=True)] == ["t"]
        assert await process.recover([echoing()]) == []
        assert [str(problem) async for problem in verify(process.faulty.inner)] == [
            "(number 1): sessions: its row is missing, and others of it are there"
        ]
    place.execute("INSERT INTO sessions SELECT * FROM kept", "DROP TABLE kept")
    async with place.process() as process:
        assert await process.store.entries((await process.row()).no) == entries
        await sound(process)


@pytest.mark.spec("E-027")
async def test_labels_that_were_written_beside_the_journal_are_no_newer_truth(tmp_path: Any) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await talk(process, "hello")
        await process.sessions.describe("s", labels={"team": "blue"})
    place.execute("""UPDATE sessions SET labels = '{"team":"red"}', updated = updated + 10""")
    async with place.process() as process:
        problems = [problem.what async for problem in verify(process.store)]
        assert problems[0] == "labels is {'team': 'red'}, but should be {'team': 'blue'}"
        assert any("updated" in problem for problem in problems[1:])
        assert (await process.sessions.checkpoint("s")).labels == {"team": "blue"}
        # What happens next builds on what was said, and so does the list.
        await talk(process, "and now?")
        assert [info.labels for info in await process.sessions.list()] == [{"team": "blue"}]


# -------------------------------------------------------------------------------------------------- refused, and no trace


@pytest.mark.spec("E-001", "E-005", "E-007")
async def test_a_refused_turn_is_refused_before_any_write_and_shows_nowhere(place: Place) -> None:
    agent = echoing()
    async with place.process() as process:
        await talk(process, "hello")
    # given a store that can't write any more
    async with place.process(Fault(kind="send", times=1_000), Fault(kind="commit", times=1_000)) as process:
        before = await stored(process)
        with pytest.raises(UnknownRoute):
            await process.run(agent, "a prompt to know again", session="s", route="no such route")
        assert await stored(process) == before
    async with place.process() as process:
        await process.sessions.send("s", "waiting", submission="m9")
        before = await stored(process)
        with pytest.raises(TurnUnfinished):
            await process.run(agent, "a prompt to know again", session="s")
        assert await stored(process) == before
        assert not any(b"a prompt to know again" in (row.body or b"") for row in await process.store.entries((await process.row()).no))
        assert (await process.sessions.checkpoint("s")).messages == len(await process.sessions.history("s")) == 2


@pytest.mark.spec("D-024", "B-A-158", "B-B-045")
async def test_resuming_where_nothing_is_pending_calls_nobody_and_writes_nothing(place: Place) -> None:
    model, asked = counting("one")
    agent = Agent("a", model=model)
    async with place.process() as process:
        await process.run(agent, "hello", session="s", submission="m1")
        before = await stored(process)
        assert await process.recover([agent], session="s") == ["s"]
        assert await process.recover([agent]) == []
        assert len(await restarted(process, agent)) == 1
        assert await stored(process) == before
        assert len(asked) == 1


@pytest.mark.spec("E-019", "E-020")
async def test_a_submission_says_which_entries_took_it_up_and_settled_it_and_a_resume_says_nothing_more_of_it(place: Place) -> None:
    async with place.process() as process:
        await process.run(echoing(), "hello", session="s", submission="m1")
        no = (await process.row()).no
        taken = await process.store.submission(no, "m1")
        assert taken is not None
        kinds = {entry.seq: entry.kind for entry in await process.sessions.entries("s")}
        assert (kinds[taken.consumed_seq or 0], kinds[taken.settled_seq or 0]) == ("turn_started", "turn_completed")
    async with place.process() as process:
        assert await process.recover([echoing()], session="s") == ["s"]
        assert await process.store.submission(no, "m1") == taken


@pytest.mark.spec("D-055", "B-A-122", "B-A-149")
async def test_whoever_archives_a_compacted_session_archives_what_it_is(place: Place) -> None:
    def answer(request: ModelRequest) -> Reply:
        from perdure.models.scripted import saved

        return saved("what was said") if request.purpose == "notes" else Reply("ok")

    agent = Agent("a", model=FunctionModel(answer))
    async with place.process() as process:
        for text in ("hello", "follow up", "and"):
            await process.run(agent, text, session="s")
        async with process.session("s", agent):
            await process.sessions.compact("s", submission="c1")
            await eventually(lambda: process.sessions.result("s", "c1"))
        before = await process.sessions.checkpoint("s")
        assert before.compactions == 1
    async with place.process() as other:
        await other.sessions.archive("s")
        after = await other.sessions.checkpoint("s")
        assert (after.revision, after.context, after.archived) == (before.revision, before.context, True)
        assert (await other.row()).status == "archived"
        assert await other.sessions.list() == []
        await sound(other)


@pytest.mark.spec("C-T3-029", "C-T3-027")
@pytest.mark.parametrize("what", ["answer", "note"])
async def test_what_a_person_appends_while_a_session_is_being_archived_is_refused(place: Place, what: str) -> None:
    held = Held("archived")
    async with place.process(gate=held) as archiving, place.process() as process:
        await talk(process, "hello")
        await process.sessions.rewrite("s", (2, 2), ["and?"])
        before = await process.sessions.checkpoint("s")
        putting = asyncio.create_task(archiving.sessions.archive("s"))
        await held.there.wait()

        async def gate(call: Call, when: str) -> None:
            if call.kind == "commit" and when == "before":
                # It decided before the archive's commit, and comes after it.
                held.go.set()
                await putting

        async with place.process(gate=gate) as late:
            said = [Message(role="assistant", parts=(Text("from outside"),))]
            appending = late.sessions.rewrite("s", (3, 3), said) if what == "answer" else late.sessions.note("s", "said", submission="n1")
            with pytest.raises(SessionArchived):
                await appending
        assert await lines(process) == ["user: hello", "assistant: answer 1", "user: and?"]
        after = await process.sessions.checkpoint("s")
        assert (after.context, after.usage) == (before.context, before.usage)
        assert await process.store.submission((await process.row()).no, "n1") is None
        await sound(process)


# --------------------------------------------------------------------------------------------------------------- transcripts


@pytest.mark.spec("C-T3-018", "D-023", "B-A-178")
async def test_a_picture_in_a_replacement_is_stored_by_its_digest_and_the_revision_is_that_of_what_is_stored(place: Place) -> None:
    data = big_png(5_000, 7)
    address = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    async with place.process() as process:
        await edit_fixture(process)
        head = await process.sessions.revision("s")
        new = Message(role="user", parts=(Text("what is this?"), Uri(uri=address)))
        edit = await process.sessions.rewrite("s", (2, 3), [new], expected=head)
        # then no entry holds a byte of it
        row = await process.row()
        held = b"".join(entry.body or b"" for entry in await process.store.entries(row.no))
        assert base64.b64encode(data)[:60] not in held
        [_, blob] = (await process.sessions.history("s"))[2].parts
        assert isinstance(blob, Blob)
        assert await process.sessions.content("s", blob) == data
        # and the revision is that of the messages as they are stored, as the edit said, and as the checkpoint says
        revision = EMPTY
        for message in await process.sessions.history("s"):
            revision = chained(revision, digest_of(message.role, map(part_digest, message.parts)))
        assert revision == edit.revision == (await process.sessions.checkpoint("s")).revision == await process.sessions.revision("s")
        await sound(process)


@pytest.mark.spec("D-010")
async def test_a_conversation_with_a_picture_gives_way_to_a_summary_in_one_entry_that_holds_no_picture(place: Place) -> None:
    data = big_png(5_000, 7)
    address = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    async with place.process() as process:
        await process.run(echoing(), (Text("what is this?"), Uri(uri=address)), session="s")
        revision = await process.sessions.revision("s")
        await process.sessions.rewrite("s", (0, 2), ["a summary"], expected=revision, reason="compaction")
        [audit] = await process.sessions.entries("s", kinds=("rewritten",))
        assert isinstance(audit, Rewritten)
        assert (audit.expected, audit.revision) == (revision, await process.sessions.revision("s"))
        held = b"".join(entry.body or b"" for entry in await process.store.entries((await process.row()).no))
        assert base64.b64encode(data)[:60] not in held
        await sound(process)


@pytest.mark.spec("E-068", "B-A-054")
async def test_a_sessions_head_holds_no_history_and_an_old_revision_is_read_from_its_own(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "hello " + "x" * 3_000)
        parent = await process.sessions.revision("s")
        edit = await process.sessions.rewrite("s", (0, 2), ["a summary"])
        head = await process.store.load("s")
        assert head is not None
        assert b"x" * 200 not in head.row.checkpoint
        assert len(head.row.checkpoint) < 2_000
        [revision] = await process.sessions.revisions("s")
        assert (revision.revision, revision.parent) == (edit.revision, parent)
        assert len(await process.sessions.history("s", revision=parent)) == 2
        assert await lines(process) == ["user: a summary"]
