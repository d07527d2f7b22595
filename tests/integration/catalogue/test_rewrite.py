"""Any span of a transcript can give way to other messages, and comes back at its old revision; what can't stand there changes nothing."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    ApprovalRequested,
    CutThroughCall,
    FunctionModel,
    InvalidSpan,
    InvalidTranscript,
    Message,
    ModelRequest,
    NothingChanged,
    Reply,
    RevisionConflict,
    Rewritten,
    SessionBusy,
    SessionNotFound,
    StoreBroken,
    SubmissionConflict,
    Text,
    ToolCall,
    ToolCallResponse,
    UnknownRevision,
    UsageError,
)
from perdure.core.messages import digest_of, part_digest
from perdure.core.transcript import EMPTY, chained
from perdure.runtime import transcripts
from perdure.runtime.transcripts import differences
from perdure.testing.faults import Call, Fault

from ..interactive.acting import Place
from .talking import Payments, echoing, edit_fixture, line, lines, paying, sound, talk

FOUR = ["user: hello", "assistant: answer 1", "user: follow up", "assistant: answer 2"]


def answer(text: str) -> Message:
    return Message(role="assistant", parts=(Text(text),))


def revision_of(*messages: tuple[Any, str]) -> str:
    """What messages of plain text are named, worked out by hand."""
    revision = EMPTY
    for role, text in messages:
        revision = chained(revision, digest_of(role, [part_digest(Text(text))]))
    return revision


@pytest.mark.spec("C-T3-008", "B-B-173", "B-A-021")
async def test_a_rewrite_moves_the_head_keeps_the_old_messages_and_restore_brings_them_back(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        sessions = process.sessions
        before, parent = await sessions.history("s"), await sessions.revision("s")

        edit = await sessions.rewrite("s", (1, 4), [answer("summary")], expected=parent, reason="compaction", actor="ann")

        assert (edit.session_id, edit.parent, edit.count) == ("s", parent, 2)
        assert edit.revision == revision_of(("user", "hello"), ("assistant", "summary")) == await sessions.revision("s") != parent
        assert await lines(process) == ["user: hello", "assistant: summary"]
        (revision,) = await sessions.revisions("s")
        assert (revision.parent, revision.revision, revision.reason, revision.actor) == (parent, edit.revision, "compaction", "ann")
        assert await sessions.history("s", revision=parent) == before

        back = await sessions.restore("s", parent, expected=edit.revision)

        assert (back.session_id, back.parent, back.revision, back.count) == ("s", edit.revision, parent, 4)
        assert await sessions.history("s") == before
        assert [item.restored for item in await sessions.revisions("s")] == [False, True]
        assert await lines(process, revision=edit.revision) == ["user: hello", "assistant: summary"]
        await sound(process)


@pytest.mark.spec("C-T3-009", "C-T3-010", "B-B-175")
async def test_a_second_writer_with_a_stale_parent_is_told_both_revisions(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        parent = await process.sessions.revision("s")
        first = await process.sessions.rewrite("s", (1, 2), [answer("one")], expected=parent)
        untouched = await process.everything()
        for expected in (parent, "f" * 64):
            with pytest.raises(RevisionConflict) as refused:
                await process.sessions.rewrite("s", (1, 2), [answer("two")], expected=expected)
            assert refused.value.facts == {"expected": expected, "actual": first.revision}
            with pytest.raises(RevisionConflict):
                await process.sessions.restore("s", parent, expected=expected)
        assert await process.everything() == untouched
        assert (await lines(process))[1] == "assistant: one"


@pytest.mark.spec("C-T3-011", "C-T3-012", "B-A-134")
async def test_revisions_are_listed_oldest_first_in_pages_and_the_head_always(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "hello")
        sessions = process.sessions
        original = await sessions.revision("s")
        none = await sessions.revisions("s")
        assert (list(none), none.head) == ([], original)

        one = await sessions.rewrite("s", (1, 2), [answer("one")], reason="correction")
        two = await sessions.rewrite("s", (1, 2), [answer("two")], reason="polish: fix tone", actor="editor")

        listed = await sessions.revisions("s")
        assert listed.head == two.revision
        assert [(item.revision, item.parent, item.actor, item.reason) for item in listed] == [
            (one.revision, original, "", "correction"),
            (two.revision, one.revision, "editor", "polish: fix tone"),
        ]
        latest = await sessions.revisions("s", limit=1)
        assert ([item.revision for item in latest], latest.head) == ([two.revision], two.revision)
        earlier = await sessions.revisions("s", limit=1, before=latest[0].seq)
        assert ([item.revision for item in earlier], earlier.head) == ([one.revision], two.revision)
        nothing = await sessions.revisions("s", before=earlier[0].seq)
        assert (list(nothing), nothing.head) == ([], two.revision)
        for before in (1, 10_000, one.seq + 1):
            with pytest.raises(UsageError):
                await sessions.revisions("s", before=before)


@pytest.mark.spec("C-T3-013", "C-T3-014", "B-B-176")
async def test_an_edit_that_changes_nothing_is_refused_by_name(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        sessions = process.sessions
        for turn in range(2):
            head = await sessions.revision("s")
            untouched = await process.everything()
            for call in (
                sessions.restore("s", head),
                sessions.rewrite("s", (2, 2), []),
                sessions.rewrite("s", (0, 4), await sessions.history("s")),
                sessions.rewrite("s", (2, 3), ["follow up"]),
            ):
                with pytest.raises(NothingChanged):
                    await call
            assert await process.everything() == untouched
            await sessions.rewrite("s", (3, 4), [answer(f"other {turn}")])


@pytest.mark.spec("C-T3-015", "B-B-177", "B-A-022")
async def test_an_unknown_revision_is_refused_and_touches_nothing(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        untouched = await process.everything()
        for unknown in ("0" * 63 + "1", "nonsense", ""):
            with pytest.raises(UnknownRevision, match=f"of 's' never was at revision '{unknown[:12]}'"):
                await process.sessions.restore("s", unknown)
            with pytest.raises(UnknownRevision):
                await process.sessions.history("s", revision=unknown)
            with pytest.raises(UnknownRevision):
                await process.sessions.diff("s", unknown)
        assert await process.everything() == untouched


@pytest.mark.spec("C-T3-016", "B-B-160", "B-B-162")
async def test_the_present_revision_reads_without_any_edit(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        head = await process.sessions.revision("s")
        assert head == revision_of(("user", "hello"), ("assistant", "answer 1"), ("user", "follow up"), ("assistant", "answer 2"))
        assert await process.sessions.history("s", revision=head) == await process.sessions.history("s")
        assert await process.sessions.history("s", revision=head, limit=2, before=2) == (await process.sessions.history("s"))[:2]
        assert await process.sessions.revision("s", 0) == EMPTY
        with pytest.raises(UnknownRevision, match="of 's' never was at revision 'ffffffffffff'"):
            await process.sessions.history("s", revision="f" * 64)
        assert await process.sessions.revision("s", 2) == revision_of(("user", "hello"), ("assistant", "answer 1"))


@pytest.mark.spec("B-B-159")
async def test_history_pages_in_both_directions(place: Place) -> None:
    async with place.process() as process:
        await talk(process, *(f"say {index}" for index in range(5)))
        await process.sessions.rewrite("s", (2, 4), ["between", "and again"])
        everything = await lines(process)
        assert len(everything) == 10

        async def page(**wanted: Any) -> list[str]:
            return [line(message) for message in await process.sessions.history("s", **wanted)]

        for start in range(-2, 12):
            for limit in (1, 3, 20):
                stop = min(max(0, start), len(everything))
                assert await page(before=start, limit=limit) == everything[max(0, stop - limit) : stop]
                assert await page(after=start, limit=limit) == everything[max(0, start + 1) : max(0, start + 1) + limit]
        assert await page(after=2, before=5, limit=50) == everything[3:5]
        assert await page(limit=3) == everything[-3:]
        for wrong in ({"before": "1"}, {"after": 1.0}, {"limit": True}, {"limit": 0}):
            with pytest.raises(UsageError):
                await page(**wrong)


@pytest.mark.spec("B-B-163")
async def test_edits_are_listed_in_the_order_in_which_they_were_made_on_every_page_and_the_head_with_each(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        edits = [await process.sessions.rewrite("s", (1, 2), [answer(f"version {number}")]) for number in range(5)]
        seen: list[str] = []
        before = None
        while True:
            page = await process.sessions.revisions("s", limit=2, before=before)
            assert page.head == edits[-1].revision
            if not page:
                break
            seen, before = [item.revision for item in page] + seen, page[0].seq
        assert seen == [edit.revision for edit in edits]


async def test_a_b_a_arrives_at_the_old_revision_and_each_edit_stays_listed(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        sessions = process.sessions
        first = await sessions.revision("s")
        await sessions.rewrite("s", (3, 4), [answer("other")])
        again = await sessions.rewrite("s", (3, 4), [answer("answer 2")])
        assert again.revision == first
        other = await sessions.rewrite("s", (3, 4), [answer("other")])
        back = await sessions.restore("s", first)
        assert (back.revision, back.parent) == (first, other.revision)
        assert await lines(process) == FOUR
        listed = await sessions.revisions("s")
        assert [item.revision for item in listed] == [other.revision, first, other.revision, first]
        await sound(process)


@pytest.mark.hazard("J-7")
async def test_edits_that_say_the_same_at_the_same_time_for_the_same_reason_are_each_made(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        sessions, made = process.sessions, []
        for number in range(3):
            # Nothing tells one round from the other but the submission: the clock stands still.
            for text in ("other", "answer 2"):
                made.append(await sessions.rewrite("s", (3, 4), [answer(text)], reason="again", actor="ann", submission=f"{text} {number}"))
        one, two = made[0].revision, made[1].revision
        assert [edit.revision for edit in made] == [one, two] * 3
        assert [edit.parent for edit in made] == [two, one] * 3
        assert len({edit.seq for edit in made}) == 6
        assert len({entry.at for entry in await sessions.entries("s", kinds=("rewritten",))}) == 1
        assert [(item.revision, item.seq) for item in await sessions.revisions("s")] == [(edit.revision, edit.seq) for edit in made]
        for edit in made:
            assert await lines(process, revision=edit.revision) == (FOUR if edit.revision == two else [*FOUR[:3], "assistant: other"])
    async with place.process() as process:
        assert await lines(process) == FOUR
        await sound(process)


async def test_equal_messages_have_the_equal_revision_whatever_the_path(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        await talk(process, "something else", session="t")
        sessions = process.sessions
        messages = await sessions.history("s")
        edit = await sessions.rewrite("t", (0, 2), messages)
        assert edit.revision == await sessions.revision("s")
        await sessions.rewrite("t", (0, 1), ["hullo"])
        await sessions.rewrite("t", (1, 3), [])
        await sessions.rewrite("t", (0, 1), messages[:3])
        assert await sessions.revision("t") == edit.revision
        assert [await sessions.revision("t", at) for at in range(5)] == [await sessions.revision("s", at) for at in range(5)]
        fork = await sessions.fork("s", at=2, replacement=messages[2:])
        assert fork.revision == edit.revision


@pytest.mark.spec("B-A-028", "B-B-161")
@pytest.mark.hazard("H13")
async def test_any_revision_that_there_ever_was_can_be_read_and_restored(place: Place) -> None:
    async with place.process() as process:
        sessions = process.sessions
        seen: dict[str, list[str]] = {}
        await talk(process, "zero")

        async def note() -> None:
            seen[await sessions.revision("s")] = await lines(process)

        await note()
        for index in range(3):
            await talk(process, f"say {index}")
            await note()
            await sessions.rewrite("s", (index, index + 1), [answer(f"edited {index}") if index % 2 else f"edited {index}"])
            await note()
        for revision, expected in seen.items():
            assert await lines(process, revision=revision) == expected
        for revision, expected in seen.items():
            if revision != await sessions.revision("s"):
                await sessions.restore("s", revision)
            assert await lines(process) == expected
            assert await sessions.revision("s") == revision
        await sound(process)


async def test_the_empty_transcript_is_a_revision_too(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        edit = await process.sessions.rewrite("s", (0, 4), [])
        assert (edit.revision, edit.count, await lines(process)) == (EMPTY, 0, [])
        await talk(process, "from the start")
        assert await lines(process) == ["user: from the start", "assistant: answer 1"]
        await process.sessions.restore("s", EMPTY)
        await process.sessions.restore("s", edit.parent)
        assert await lines(process) == FOUR
        await sound(process)


@pytest.mark.spec("B-A-191", "B-B-042")
async def test_a_model_sees_the_transcript_as_it_was_edited(place: Place) -> None:
    asked: list[list[str]] = []

    def remember(request: ModelRequest) -> str:
        asked.append([line(message) for message in request.messages])
        return "noted"

    agent = Agent("helper", model=FunctionModel(remember))
    async with place.process() as process:
        await talk(process, "one", "two", agent=agent)
        await process.sessions.note("s", "by the way")
        async with process.session("s", agent):
            await process.sessions.rewrite("s", (0, 2), ["rather"])
            await talk(process, "three", agent=agent)
        await process.sessions.rewrite("s", (0, 1), ["rather not"])
    async with place.process() as process:
        await talk(process, "four", agent=agent)
        last = [
            "user: rather not",
            "user: two",
            "assistant: noted",
            "user: [note] by the way",
            "user: three",
            "assistant: noted",
            "user: four",
        ]
        assert asked[-1] == last
        assert asked[-2] == ["user: rather", *last[1:5]]
        changed = await process.sessions.entries("s", kinds=("prefix_changed",))
        assert [(getattr(item, "epoch", 0), getattr(item, "reason", "")) for item in changed] == [(1, "rewrite"), (2, "rewrite")]
        assert (await process.sessions.checkpoint("s")).epoch == 2
        await sound(process)


# --------------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.spec("C-T3-024", "C-T3-025", "B-B-178")
async def test_while_a_turn_runs_every_edit_is_refused_before_anything_else_is_looked_at(place: Place) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        asked.set()
        await go_on.wait()
        return "done"

    agent = Agent("helper", model=FunctionModel(slow))
    async with place.process() as process:
        running = asyncio.create_task(process.run(agent, "hello", session="s"))
        await asked.wait()
        sessions = process.sessions
        untouched = await process.everything()
        for call in (
            sessions.fork("s", at=1),
            sessions.fork("s", at=99),
            sessions.restore("s", await sessions.revision("s")),
            sessions.restore("s", "unknown"),
            sessions.rewrite("s", (0, 1), ["x"], expected="stale"),
            sessions.rewrite("s", (5, 9), 17),  # type: ignore[arg-type]
            sessions.redact("s", [77]),
        ):
            with pytest.raises(SessionBusy):
                await call
        assert await process.everything() == untouched
        go_on.set()
        result = await running
        assert (result.status, result.output) == ("completed", "done")


@pytest.mark.spec("B-A-164", "B-B-032")
async def test_a_turn_that_waits_for_a_person_is_not_edited_either(place: Place) -> None:
    agent = paying(Payments(), approve=["pay"])
    async with place.process() as process:
        async with process.session("s", agent) as session:
            await session.send("pay A 5 r1")
            async for event in session.events(after=0):
                if isinstance(event, ApprovalRequested):
                    break
        with pytest.raises(SessionBusy):
            await process.sessions.rewrite("s", (0, 1), ["x"])
        await process.sessions.interrupt("s")
        await process.recover([agent])
        assert (await process.sessions.rewrite("s", (0, 3), ["x"])).count == 1


@pytest.mark.spec("B-A-042", "B-B-171")
async def test_spans_out_of_range_and_cuts_through_a_call_touch_nothing(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "pay A 5 r1", agent=paying(Payments()))
        sessions = process.sessions
        assert await lines(process) == ["user: pay A 5 r1", "assistant: pay(call_r1)", "tool: call_r1=paid A", "assistant: done"]
        untouched = await process.everything()
        for span in ((-1, 1), (2, 1), (0, 5), (5, 5), (0, 2**70), (0.0, 1), ("0", 1), (True, 1), (0,), (0, 1, 2), "01", 7, None):
            with pytest.raises(InvalidSpan):
                await sessions.rewrite("s", span, ["x"])  # type: ignore[arg-type]
        for span in ((0, 2), (2, 3), (2, 2), (2, 4)):
            with pytest.raises(CutThroughCall):
                await sessions.rewrite("s", span, ["x"])
        with pytest.raises(CutThroughCall):
            await sessions.fork("s", at=2)
        for at in (-1, 5, "1", 1.0):
            with pytest.raises(InvalidSpan):
                await sessions.fork("s", at=at)  # type: ignore[arg-type]
            with pytest.raises(InvalidSpan):
                await sessions.revision("s", at)  # type: ignore[arg-type]
        assert await process.everything() == untouched


CALL = ToolCall(name="pay", arguments={}, id="c1")
RESPONSE = ToolCallResponse(id="c1", name="pay", response="ok")
NO_TRANSCRIPTS: list[Any] = [
    17,
    b"bytes",
    [17],
    [{"role": "user", "content": "x"}],
    [""],
    [" "],
    ["\ud800"],
    [Message(role="user", parts=())],
    [Message(role="system", parts=(Text("x"),))],  # type: ignore[arg-type]
    [Message(role="user", parts=(CALL,))],
    [Message(role="user", parts=("x",))],  # type: ignore[arg-type]
    [Message(role="user", parts=(Text(7),))],  # type: ignore[arg-type]
    [Message(role="assistant", parts=(Text("x"),))],
    [Message(role="assistant", parts=(CALL,))],
    ["x", Message(role="assistant", parts=(CALL,))],
    ["x", Message(role="assistant", parts=(CALL,)), "y"],
    ["x", Message(role="tool", parts=(RESPONSE,))],
    ["x", Message(role="assistant", parts=(CALL,)), Message(role="tool", parts=(RESPONSE, RESPONSE))],
    ["x", Message(role="assistant", parts=(CALL, CALL)), Message(role="tool", parts=(RESPONSE, RESPONSE))],
    ["x", Message(role="assistant", parts=(Text("a"),)), Message(role="assistant", parts=(Text("b"),))],
    ["x", Message(role="assistant", parts=(ToolCall(name="pay", arguments="x", id="c1"),)), Message(role="tool", parts=(RESPONSE,))],
    ["x", Message(role="assistant", parts=(ToolCall(name="pay", arguments={}),)), Message(role="tool", parts=(RESPONSE,))],
    ["x" * (1024 * 1024 + 1)],
]


@pytest.mark.spec("B-A-044")
@pytest.mark.parametrize("replacement", NO_TRANSCRIPTS, ids=lambda value: repr(value)[:60])
async def test_what_is_no_transcript_is_refused_and_touches_nothing(place: Place, replacement: Any) -> None:
    async with place.process() as process:
        await talk(process, "hello")
        untouched = await process.everything()
        with pytest.raises(InvalidTranscript):
            await process.sessions.rewrite("s", (0, 2), replacement)
        with pytest.raises(InvalidTranscript):
            await process.sessions.fork("s", at=0, replacement=replacement)
        assert await process.everything() == untouched


async def test_an_answer_in_front_of_an_answer_is_refused_at_either_end(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        for span, replacement in (((0, 1), []), ((2, 3), []), ((2, 3), [answer("x")]), ((0, 0), [answer("x")]), ((4, 4), [answer("x")])):
            with pytest.raises(InvalidTranscript):
                await process.sessions.rewrite("s", span, replacement)
        assert await lines(process) == FOUR


@pytest.mark.spec("B-A-023")
async def test_calls_with_their_responses_can_be_written_and_the_model_goes_on(place: Place) -> None:
    agent = paying(Payments())
    async with place.process() as process:
        await talk(process, "hello", agent=agent)
        written = ["pay", Message(role="assistant", parts=(Text("sure"), CALL)), Message(role="tool", parts=(RESPONSE,)), answer("paid")]
        commits = len(process.faulty.commits)
        await process.sessions.rewrite("s", (0, 2), written)
        [commit] = process.faulty.commits[commits:]
        assert [entry.kind for entry in commit.entries] == ["rewritten", "prefix_changed", *["message"] * 4]
        await talk(process, "thanks", agent=agent)
        assert await lines(process) == [
            "user: pay",
            "assistant: sure pay(c1)",
            "tool: c1=ok",
            "assistant: paid",
            "user: thanks",
            "assistant: hello",
        ]
        await sound(process)


@pytest.mark.spec("B-A-135")
async def test_an_edit_is_made_once_for_its_submission(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        sessions = process.sessions
        parent = await sessions.revision("s")
        edit = await sessions.rewrite("s", (0, 1), ["hi"], expected=parent, submission="e1", reason="polite")
        await talk(process, "more")
        untouched = await process.everything()
        again = await sessions.rewrite("s", (0, 1), ["hi"], expected=parent, submission="e1", reason="polite")
        assert again == msgspec.structs.replace(edit, duplicate=True)
        for call in (
            sessions.rewrite("s", (0, 1), ["ho"], expected=parent, submission="e1", reason="polite"),
            sessions.restore("s", parent, submission="e1"),
            sessions.redact("s", [0], submission="e1"),
            sessions.note("s", "x", submission="e1"),
        ):
            with pytest.raises(SubmissionConflict):
                await call
        assert await process.everything() == untouched
        restored = await sessions.restore("s", parent, submission="e2")
        assert (await sessions.restore("s", parent, submission="e2")).seq == restored.seq


@pytest.mark.spec("C-T3-021", "E-067", "D-020")
@pytest.mark.hazard("J-4", "J-5", "H4")
async def test_an_edit_whose_commit_fails_did_not_happen_and_can_be_made_again(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        untouched = await process.everything()
    async with place.process(Fault(kind="commit", nth=1, when="before", error=StoreBroken("no"))) as process:
        with pytest.raises(StoreBroken):
            await process.sessions.rewrite("s", (0, 1), ["hi"], submission="e1")
        assert await process.everything() == untouched
        assert await lines(process) == FOUR
        edit = await process.sessions.rewrite("s", (0, 1), ["hi"], submission="e1")
        assert not edit.duplicate
        assert len(await process.sessions.entries("s", kinds=("rewritten",))) == 1
        await sound(process)


@pytest.mark.spec("D-017", "D-018", "D-021")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("rival", [False, True])
async def test_an_edit_that_a_store_fails_under_takes_nothing_from_anybody_who_was_faster(place: Place, when: Any, rival: bool) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        parent = await process.sessions.revision("s")
        first = True

        async def gate(call: Call, moment: str) -> None:
            nonlocal first
            if rival and first and (call.kind, moment) == ("commit", "before"):
                first = False
                await process.sessions.rewrite("s", (0, 1), ["the rival's"])

        # given a store that fails for good as soon as the edit is made, and perhaps somebody who was faster
        async with place.process(Fault(kind="write", times=1_000, when=when), gate=gate) as failing:
            with pytest.raises(StoreBroken):
                await failing.sessions.rewrite("s", (0, 4), ["mine"], submission="e1")
        # then what was committed stands, to the byte, and of the edit there is all or nothing
        made = when == "after" and not rival
        stands = ["user: mine"] if made else ["user: the rival's", *FOUR[1:]] if rival else FOUR
        assert await lines(process) == stands
        assert [item.parent for item in await process.sessions.revisions("s")] == [parent] * (made or rival)
        receipt = await process.store.submission((await process.row()).no, "e1")
        assert (receipt is not None) == made
        await sound(process)


@pytest.mark.spec("C-T3-020", "C-T3-022", "E-064")
async def test_a_rewrite_is_one_entry_that_tells_it_all_and_reading_adds_nothing(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        parent = await process.sessions.revision("s")
        edit = await process.sessions.rewrite("s", (0, 4), ["summary"], expected=parent, reason="compaction", actor="ann")
        (entry,) = await process.sessions.entries("s", kinds=("rewritten",))
        assert isinstance(entry, Rewritten)
        assert (entry.expected, entry.revision, entry.start, entry.stop) == (parent, edit.revision, 0, 4)
        assert (entry.reason, entry.actor, entry.seq, entry.count) == ("compaction", "ann", edit.seq, 1)
        untouched = await process.everything()
        await lines(process)
        await lines(process, revision=parent)
        await process.sessions.revisions("s")
        await process.sessions.diff("s", parent)
        assert await process.everything() == untouched


@pytest.mark.spec("C-T3-017", "B-A-062")
async def test_a_turn_and_a_rewrite_that_meet_follow_each_other(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        agent = echoing()
        for index in range(5):
            edit = process.sessions.rewrite("s", (0, 1), [f"hi {index}"])
            both = await asyncio.gather(edit, process.run(agent, f"more {index}", session="s"), return_exceptions=True)
            assert not isinstance(both[1], BaseException)
            first = (await lines(process))[0]
            # Either the edit came first, or the turn did and the edit was told so.
            assert isinstance(both[0], SessionBusy) or first == f"user: hi {index}"
        await sound(process)


@pytest.mark.spec("C-T3-017", "B-A-161", "B-B-029")
async def test_a_turn_that_begins_while_a_rewrite_is_being_committed_is_first_and_the_rewrite_is_told_so(place: Place) -> None:
    at_it, let_go, answering, go = (asyncio.Event() for _ in range(4))

    async def gate(call: Call, when: str) -> None:
        if call.kind == "commit" and when == "before" and any(entry.kind == "rewritten" for entry in call.given.entries):
            at_it.set()
            async with asyncio.timeout(5):
                await let_go.wait()

    asked: list[list[str]] = []

    async def think(request: ModelRequest) -> Reply:
        asked.append([message.text for message in request.messages])
        answering.set()
        await go.wait()
        return Reply("so be it")

    async with place.process(gate=gate) as editing, place.process() as process:
        await edit_fixture(process)
        edit = asyncio.create_task(editing.sessions.rewrite("s", (0, 1), ["hi"]))
        await at_it.wait()
        running = asyncio.create_task(process.run(Agent("helper", model=FunctionModel(think)), "more", session="s"))
        await answering.wait()
        let_go.set()
        with pytest.raises(SessionBusy):
            await edit
        go.set()
        assert (await running).ok
        # The turn saw, and ended with, the transcript that it began with.
        assert asked == [["hello", "answer 1", "follow up", "answer 2", "more"]]
        assert await lines(process) == [*FOUR, "user: more", "assistant: so be it"]
        assert await process.sessions.entries("s", kinds=("rewritten",)) == []
        await sound(process)


@pytest.mark.spec("B-A-026", "B-A-181")
async def test_of_edits_that_meet_each_is_made_on_what_the_other_left(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        parent = await process.sessions.revision("s")
        told = await asyncio.gather(
            *(process.sessions.rewrite("s", (0, 1), [f"hi {index}"], expected=parent) for index in range(6)), return_exceptions=True
        )
        assert sorted(type(item).__name__ for item in told) == ["Edit", *["RevisionConflict"] * 5]
        now = await process.sessions.revision("s")
        assert all(item.facts == {"expected": parent, "actual": now} for item in told if isinstance(item, RevisionConflict))
        await asyncio.gather(*(process.sessions.rewrite("s", (4, 4), [f"more {index}"]) for index in range(4)))
        assert len(await lines(process)) == 8
        assert len(await process.sessions.revisions("s")) == 5
        await sound(process)


@pytest.mark.spec("C-T3-019", "E-065", "B-A-046")
async def test_the_head_follows_turns_after_edits_and_edits_chain_without_turns(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "remember the phrase")
        sessions = process.sessions
        for version in ("v2", "v3"):
            await sessions.rewrite("s", (1, 2), [answer(version)], expected=await sessions.revision("s"))
        await talk(process, "more")
        assert await lines(process) == ["user: remember the phrase", "assistant: v3", "user: more", "assistant: answer 2"]
        wanted = [("user", "remember the phrase"), ("assistant", "v3"), ("user", "more"), ("assistant", "answer 2")]
        assert await sessions.revision("s") == revision_of(*wanted)
        assert len(await sessions.revisions("s")) == 2


@pytest.mark.spec("D-014")
async def test_a_transcript_may_grow_by_an_edit_and_the_next_turn_follows_what_it_became(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        longer = [("user", "what was said"), ("assistant", "this"), ("user", "and that"), ("assistant", "v4"), ("user", "so")]
        said = [answer(text) if role == "assistant" else text for role, text in longer]
        await process.sessions.rewrite("s", (0, 4), said, expected=await process.sessions.revision("s"))
        await talk(process, "now")
        assert await lines(process) == [*(f"{role}: {text}" for role, text in longer), "user: now", "assistant: answer 3"]
        assert await process.sessions.revision("s") == revision_of(*longer, ("user", "now"), ("assistant", "answer 3"))
        await sound(process)


async def test_what_differs_between_revisions_is_told_by_place(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "one", "two", "three")
        sessions = process.sessions
        first = await sessions.revision("s")
        await sessions.rewrite("s", (1, 2), [answer("new 1")])
        await sessions.rewrite("s", (4, 6), [])
        hunks = await sessions.diff("s", first)
        assert [(hunk.old_start, [*map(line, hunk.old)], hunk.new_start, [*map(line, hunk.new)]) for hunk in hunks] == [
            (1, ["assistant: answer 1"], 1, ["assistant: new 1"]),
            (4, ["user: three", "assistant: answer 3"], 4, []),
        ]
        assert await sessions.diff("s", first, first) == []
        (back,) = [hunk for hunk in await sessions.diff("s", await sessions.revision("s"), first) if hunk.old_start == 4]
        assert [*map(line, back.new)] == ["user: three", "assistant: answer 3"]


@pytest.mark.spec("B-A-063", "B-A-177")
async def test_large_parts_are_set_aside_before_anything_is_digested(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        long = "x" * 100_000
        edit = await process.sessions.rewrite("s", (0, 1), [long])
        assert (await process.sessions.history("s"))[0].text == long
        (row,) = [row for row in await process.store.entries((await process.row()).no) if row.kind == "message" and row.number == 5]
        assert row.body is not None
        assert len(row.body) < 1000
        assert edit.revision == revision_of(("user", long), ("assistant", "answer 1"), ("user", "follow up"), ("assistant", "answer 2"))
        await sound(process)


@pytest.mark.spec("B-A-123", "B-A-169")
async def test_a_session_that_was_put_away_is_not_edited_and_to_whoever_wants_to_it_is_not_there(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        head = await process.sessions.revision("s")
        edit = await process.sessions.rewrite("s", (0, 1), ["hi"])
        await process.sessions.archive("s")
        untouched = await process.everything()
        for call in (
            process.sessions.rewrite("s", (0, 1), ["ho"], expected=edit.revision),
            process.sessions.rewrite("s", (5, 9), ["ho"], expected="stale"),
            process.sessions.restore("s", head),
            process.sessions.fork("s", at=2),
        ):
            with pytest.raises(SessionNotFound) as told:
                await call
            assert told.value.code == "session_archived"
        assert await process.everything() == untouched


@pytest.mark.spec("B-B-141", "B-B-150")
async def test_a_session_that_is_not_there_is_not_edited(place: Place) -> None:
    async with place.process() as process:
        for call in (
            process.sessions.rewrite("s", (0, 0), ["x"]),
            process.sessions.restore("s", EMPTY),
            process.sessions.fork("s"),
            process.sessions.redact("s", [0]),
            process.sessions.revisions("s"),
            process.sessions.tree("s"),
            process.sessions.effects("s"),
            process.sessions.archive("s"),
            process.sessions.revive("s"),
        ):
            with pytest.raises(SessionNotFound):
                await call
        assert await process.store.load("s") is None


@pytest.mark.parametrize(
    ("was", "now", "hunks"),
    [
        ("abc", "abc", []),
        ("", "ab", [(0, 0, 0, 2)]),
        ("abcd", "aXcd", [(1, 2, 1, 2)]),
        ("aXbbYa", "abbZa", [(1, 2, 1, 1), (4, 5, 3, 4)]),
    ],
)
def test_where_transcripts_differ_is_told_span_by_span(was: str, now: str, hunks: list[tuple[int, ...]]) -> None:
    found = differences(list(was), list(now))
    rebuilt = list(was)
    for low, high, start, stop in reversed(found):
        rebuilt[low:high] = now[start:stop]
    assert rebuilt == list(now)
    assert found == hunks


def test_the_same_message_said_ten_thousand_times_is_no_square_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[int] = []
    matcher = transcripts.SequenceMatcher

    def counting(junk: Any, old: list[Any], new: list[Any], autojunk: bool) -> Any:
        often = Counter(new)
        weighed.append(sum(often[item] for item in old))
        return matcher(junk, old, new, autojunk)

    monkeypatch.setattr(transcripts, "SequenceMatcher", counting)
    was = ["first", *["ok"] * 10_000, "last"]
    now = ["first", "new", *["ok"] * 4_000, "other", *["ok"] * 6_000, "another", "last"]
    found = differences(was, now)
    assert weighed[0] <= transcripts.PAIRS
    assert [(now[start:stop], was[low:high]) for low, high, start, stop in found] == [(["new"], []), (["other"], []), (["another"], [])]


async def test_comparing_long_transcripts_leaves_the_loop_to_others(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def watched(*lists: Any) -> Any:
        threads.append(threading.get_ident())
        return differences(*lists)

    monkeypatch.setattr(transcripts, "differences", watched)
    async with place.process() as process:
        await edit_fixture(process)
        old = await process.sessions.revision("s")
        await process.sessions.rewrite("s", (0, 1), ["rather this"])
        [hunk] = await process.sessions.diff("s", old)
        assert [message.text for message in hunk.new] == ["rather this"]
    assert threads != [threading.get_ident()]
