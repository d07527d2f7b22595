"""Content can be removed for good: out of every view, every fork, every revision and the file; and only what an entry names is gone."""

from __future__ import annotations

import asyncio
import io
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    Ask,
    FunctionModel,
    InvalidSpan,
    Media,
    ModelRequest,
    NothingChanged,
    ProviderRefused,
    Redacted,
    RedactedPart,
    Reply,
    SessionBusy,
    ToolCall,
    ToolContext,
    TurnFailed,
    tool,
)
from perdure.models.scripted import saved
from perdure.runtime.verify import verify
from perdure.store.sqlite import SQLiteStore

from ..interactive.acting import Place, Process
from ..interactive.test_compaction import Talker
from ..interactive.test_middleware_calls import hook
from .talking import Payments, echoing, line, lines, meanwhile, paying, sound, talk

SECRET = "the-secret-is-xyzzy-4711"


async def everywhere(process: Process, *sessions: str) -> str:
    """All that anybody can read of sessions, as one text."""
    found: list[Any] = []
    for session in sessions:
        found.append(await process.sessions.history(session, limit=1000))
        found += [
            await process.sessions.history(session, limit=1000, revision=item.parent) for item in await process.sessions.revisions(session)
        ]
        found += [await process.sessions.entries(session), await process.sessions.info(session)]
        head = await process.store.load(session)
        assert head is not None
        found += [head, await process.store.entries(head.row.no), await process.store.inbox(head.row.no)]
        found += [await process.store.blob(head.row.root, digest) for digest in await process.store.blobs(head.row.root)]
    return repr(found)


async def test_a_redacted_message_is_gone_from_every_view_fork_and_revision(place: Place) -> None:
    async with place.process() as process:
        sessions = process.sessions
        await talk(process, f"I tell you {SECRET}", "something else")
        await sessions.fork("s", session_id="f")
        old = await sessions.revision("s")
        await sessions.rewrite("s", (2, 3), ["rather"])
        before = await sessions.revision("s")

        removed = await sessions.redact("s", [0], reason="a person asked for it", actor="ann")

        assert SECRET not in await everywhere(process, "s")
        assert await lines(process) == ["user: <text>", "assistant: answer 1", "user: rather", "assistant: answer 2"]
        assert (await lines(process, "f"))[0] == (await lines(process, revision=old))[0] == "user: <text>"
        assert await sessions.revision("s") == before
        assert (await sessions.info("s")).title == ""
        (entry,) = await sessions.entries("s", kinds=("redacted",))
        assert isinstance(entry, Redacted)
        assert (entry.seq, entry.positions, entry.reason, entry.actor) == (removed.seq, (0,), "a person asked for it", "ann")
        assert set(removed.entries) >= {row.seq for row in await process.store.entries((await process.row()).no) if row.body is None}
        assert [part for part in removed.unreachable if "'f'" in part] != []
        await sound(process)
    async with place.process() as process:
        await talk(process, "go on", session="f")
        await talk(process, "go on")
        await sessions_edit_behind(process)
        await sound(process)


LONG = "a long story " * 3000


async def test_content_that_comes_with_a_command_is_there_whatever_is_removed_meanwhile(place: Place) -> None:
    async with place.process() as process, place.process() as other:
        await talk(process, LONG)
        await process.sessions.send("s", "later", submission="w", agent="helper", not_before=place.clock.now() + 60_000)
        commit = process.store.commit

        async def late(given: Any) -> Any:
            process.store.commit = commit  # type: ignore[method-assign]
            # The same words are set aside once for all who say them.
            await other.sessions.redact("s", [0])
            return await commit(given)

        process.store.commit = late  # type: ignore[method-assign]
        await process.sessions.edit("s", "w", LONG)
        await sound(process)


async def problems(process: Process, session: str) -> list[str]:
    return [str(problem) async for problem in verify(process.store, session)]


@pytest.mark.parametrize(
    ("what", "comes_to"),
    [
        (problems, lambda found: found == []),
        (lambda process, s: process.sessions.history(s), lambda said: len(said) == 4),
        (lambda process, s: process.run(echoing(), "go on", session=s), lambda result: result.ok),
        (lambda process, s: process.sessions.history(f"fork of {s}"), lambda said: len(said) == 4),
        (lambda process, s: process.run(echoing(), "go on", session=f"fork of {s}"), lambda result: result.ok),
    ],
    ids=["checked", "read", "gone on with", "read in a fork", "gone on with in a fork"],
)
async def test_a_session_that_is_redacted_meanwhile_is_not_called_damaged(place: Place, what: Any, comes_to: Any) -> None:
    methods = ("load", "entries", "blob", "inbox", "submission", "submissions")
    async with place.process() as process, place.process() as other:

        async def redact(s: str) -> None:
            with suppress(SessionBusy):
                await other.sessions.redact(s, [2])

        begun, nth = 0, 0
        while begun >= nth:
            nth += 1
            s = f"s{nth}"
            # Its content is set aside, and goes at once; what stands before it may have been read by then.
            await talk(process, "hello", LONG, session=s)
            await process.sessions.fork(s, session_id=f"fork of {s}")
            with meanwhile(process, methods, nth, partial(redact, s)) as calls:
                assert comes_to(await what(process, s))
            begun = len(calls)
        assert nth > 2
        await sound(process)


async def test_a_fork_that_is_made_while_its_parent_is_redacted_takes_nothing_over_that_goes(place: Place) -> None:
    methods = ("load", "entries", "seek", "scan", "effects", "create")
    async with place.process() as process, place.process() as other:

        async def redact(s: str, unreachable: list[str]) -> None:
            unreachable += (await other.sessions.redact(s, [0])).unreachable

        begun, nth = 0, 0
        while begun >= nth:
            nth += 1
            s = f"s{nth}"
            unreachable: list[str] = []
            await talk(process, f"I tell you {SECRET}", session=s)
            with meanwhile(process, methods, nth, partial(redact, s, unreachable)) as calls:
                await process.sessions.fork(s, session_id=f"fork of {s}")
            begun = len(calls)
            # Either nothing of it is there, or whoever had it removed was told where it is.
            assert (SECRET in await everywhere(process, f"fork of {s}")) == bool(unreachable) or begun < nth
        assert nth > 2
        await sound(process)


async def sessions_edit_behind(process: Process) -> None:
    """A redacted message still counts where a revision is worked out."""
    edit = await process.sessions.rewrite("s", (1, 2), [])
    assert await process.sessions.revision("s", edit.count) == edit.revision


async def test_what_belongs_to_a_message_goes_with_it(place: Place) -> None:
    payments = Payments()
    agent = paying(payments)
    async with place.process() as process:
        await talk(process, f"pay {SECRET} 5 r1", agent=agent)
        await process.sessions.redact("s", [0, 1, 2])
        assert SECRET not in await everywhere(process, "s")
        assert await lines(process) == [
            "user: <text>",
            "assistant: <tool_call call_r1>",
            "tool: <tool_call_response call_r1>",
            "assistant: done",
        ]
        await sound(process)
        await talk(process, "hello", agent=agent)
        await sound(process)


async def test_a_model_is_told_that_something_was_there(place: Place) -> None:
    asked: list[list[str]] = []

    def remember(request: ModelRequest) -> Reply:
        asked.append([line(message) for message in request.messages])
        if request.messages[-1].text.startswith("look"):
            return Reply(tool_calls=[ToolCall(name="look", arguments={"at": SECRET}, id="c1")])
        return Reply("done")

    @tool(effect="pure")
    async def look(at: str) -> str:
        """Look at something."""
        return f"saw {at}"

    agent = Agent("helper", model=FunctionModel(remember), tools=[look])
    async with place.process() as process:
        async with process.session("s", agent):
            await talk(process, f"look at {SECRET}", agent=agent)
            await process.sessions.redact("s", range(3))
            await talk(process, "and now", agent=agent)
        said = ["user: [redacted]", "assistant: look(c1)", "tool: c1=[redacted]", "assistant: done", "user: and now"]
        assert asked[-1] == said
        assert SECRET not in repr(asked[-1])
    async with place.process() as process:
        await talk(process, "again", agent=agent)
        assert asked[-1][:5] == said
        await sound(process)


async def test_edited_arguments_late_results_and_their_notes_go_too(place: Place) -> None:
    started = asyncio.Event()
    tokens: list[str] = []

    @tool(effect="external", timeout=0.05)
    async def search(ctx: ToolContext, words: str) -> str:
        """Search."""
        tokens.append(ctx.callback_token)
        started.set()
        await asyncio.sleep(60)
        return words

    def answer(request: ModelRequest) -> Reply:
        if request.messages[-1].role == "user" and not tokens:
            return Reply(tool_calls=[ToolCall(name="search", arguments={"words": "harmless"}, id="c1")])
        return Reply("done")

    agent = Agent("helper", model=FunctionModel(answer), tools=[search], approve=["search"])
    async with place.process() as process:
        async with process.session("s", agent) as session:
            await session.send("search")
            while not (requests := await process.sessions.requests("s")):
                await asyncio.sleep(0.01)
            await process.sessions.approve("s", requests[0].request_id, {"words": SECRET})
            await started.wait()
            while (await process.sessions.checkpoint("s")).turn is not None:
                place.clock.advance(100)
                await asyncio.sleep(0.01)
        found = [f"found {SECRET}", Media(SECRET.encode(), mime_type="text/plain")]
        await process.sessions.report(tokens[0], found)
        assert SECRET in await everywhere(process, "s")
        removed = await process.sessions.redact("s", [1, 2])
        assert SECRET not in await everywhere(process, "s")
        # Whoever reports doesn't know that it arrived.
        assert (await process.sessions.report(tokens[0], found)).duplicate
        assert SECRET not in await everywhere(process, "s")
        kinds = {row.kind for row in await process.store.entries((await process.row()).no) if row.seq in removed.entries}
        assert {"operation_ended", "request_closed", "effect_settled", "note_added"} <= kinds
        await sound(process)


async def ended(process: Process) -> None:
    while await process.sessions.result("s", "m1") is None:
        await asyncio.sleep(0.01)


async def denied(process: Process) -> None:
    agent = paying(Payments(), approve=["pay"])
    async with process.session("s", agent) as session:
        await session.send("pay A 5 r1", submission="m1")
        while not (requests := await process.sessions.requests("s")):
            await asyncio.sleep(0.01)
        await process.sessions.deny("s", requests[0].request_id, f"because {SECRET}")
        await ended(process)


async def asked_and_approved(process: Process) -> None:
    agent = paying(Payments(), approve=lambda call: Ask(reason=f"{call.arguments['order']} is {SECRET}"))
    async with process.session("s", agent) as session:
        await session.send("pay A 5 r1", submission="m1")
        while not (requests := await process.sessions.requests("s")):
            await asyncio.sleep(0.01)
        await process.sessions.approve("s", requests[0].request_id)
        await ended(process)


async def interrupted(process: Process) -> None:
    asked = asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        asked.set()
        await asyncio.sleep(60)
        return "never"

    async with process.session("s", Agent("helper", model=FunctionModel(slow))) as session:
        await session.send("hello", submission="m1")
        await asked.wait()
        await session.interrupt(reason=f"stop, {SECRET}")
        await ended(process)


async def failed(process: Process) -> None:
    def refuse(request: ModelRequest) -> str:
        raise ProviderRefused(f"no {SECRET} here")

    await process.run(Agent("helper", model=FunctionModel(refuse)), "hello", session="s")


async def told_of_its_end(process: Process) -> None:
    """The same, where an extension hears of the end before it comes."""

    def refuse(request: ModelRequest) -> str:
        raise ProviderRefused(f"no {SECRET} here")

    agent = Agent("helper", model=FunctionModel(refuse), middleware=[hook(turn_end=lambda ctx, outcome: None)])
    await process.run(agent, "hello", session="s")


@pytest.mark.parametrize("story", [denied, asked_and_approved, interrupted, failed, told_of_its_end])
async def test_reasons_go_with_what_they_were_given_for(place: Place, story: Any) -> None:
    async with place.process() as process:
        await story(process)
        assert SECRET in await everywhere(process, "s")
        before = await process.sessions.revision("s")
        await process.sessions.redact("s", range(len(await process.sessions.history("s"))))
        assert SECRET not in await everywhere(process, "s")
        assert await process.sessions.revision("s") == before
        await sound(process)
        if place.kind == "sqlite":
            await process.store.vacuum()
            assert SECRET.encode() not in bytes_of(place.path.parent)
    async with place.process() as process:
        assert SECRET not in await everywhere(process, "s")


async def test_an_end_and_a_refusal_can_be_named_by_their_entries(place: Place) -> None:
    async with place.process() as process:
        await failed(process)
        [end] = await process.sessions.entries("s", kinds=("turn_failed",))
        await process.sessions.redact("s", entries=end.seq)
        [end] = await process.sessions.entries("s", kinds=("turn_failed",))
        assert isinstance(end, TurnFailed)
        assert (end.reason, end.failure.code, end.failure.message) == ("", "provider_refused", "")
        [receipt] = await process.sessions.entries("s", kinds=("operation_ended",))
        assert SECRET in repr(receipt), "only what was named goes"
        result = await process.sessions.result("s", end.submission)
        assert result is not None
        assert result.status == "failed"
        await sound(process)


@pytest.mark.parametrize("size", [1, 80_000])
async def test_labels_and_metadata_go_where_the_entry_that_says_them_is_named(place: Place, size: int) -> None:
    private = {"mail": f"{SECRET}@example.org" * size} if size == 1 else {"mail": SECRET, "long": "x" * size}
    async with place.process() as process:
        await process.run(echoing(), "hello", session="s", owner="acme", labels={"who": SECRET}, metadata=private)
        await process.sessions.fork("s", session_id="f")
        with pytest.raises(InvalidSpan, match="without content"):
            await process.sessions.redact("s", entries=[2])
        await process.sessions.describe("s", labels={"desk": "3"}, metadata={"plain": 1})
        await process.sessions.redact("s", entries=[1])
        assert SECRET not in await everywhere(process, "s") or size > 1
        info = await process.sessions.info("s")
        assert (info.labels, info.metadata, info.title) == ({"desk": "3"}, {"plain": 1}, "hello")
        # What is said of a branch is the branch's, and goes with its content.
        removed = await process.sessions.redact("f", entries=[1])
        assert SECRET not in await everywhere(process, "s", "f")
        info = await process.sessions.info("f")
        assert (info.labels, info.metadata, info.title) == ({}, {}, "")
        assert await process.sessions.list(labels={"who": SECRET}) == []
        assert [words for words in removed.unreachable if "metadata" in words] == []
        assert await lines(process) == ["user: hello", "assistant: answer 1"]
        await sound(process)
    async with place.process() as process:
        await talk(process, "go on", session="f")
        await sound(process)


async def test_what_a_branch_took_over_of_labels_and_metadata_is_said(place: Place) -> None:
    async with place.process() as process:
        await process.run(echoing(), "hello", session="s", owner="acme", labels={"who": SECRET}, metadata={"mail": SECRET})
        await process.sessions.fork("s", session_id="f")
        [created] = await process.sessions.entries("s", kinds=("session_created",))
        removed = await process.sessions.redact("s", entries=[created.seq])
        assert removed.unreachable == ("'f' has the same labels", "'f' has the same metadata")
        assert (await process.sessions.info("f")).metadata == {"mail": SECRET}


async def test_what_a_branch_made_of_a_message_that_it_took_over_is_said(place: Place) -> None:
    talker = Talker(notes=f"Somebody told me {SECRET}.")
    agent = Agent("helper", model=talker.model)
    async with place.process() as process:
        await talk(process, f"I tell you {SECRET}", "something else", agent=agent)
        await process.sessions.fork("s", session_id="f")
        await process.sessions.fork("s", session_id="g")
        await process.sessions.fork("s", at=0, session_id="h", replacement="another beginning")
        for session in ("f", "h"):
            await talk(process, *(f"question {number}" for number in range(6)), agent=agent, session=session)
            assert (await process.sessions.checkpoint(session)).compactions == 1
        removed = await process.sessions.redact("s", [0])
        assert [words for words in removed.unreachable if "notes" in words] == [
            "'f' made notes of its conversation, or remembers it, since it took this over"
        ]


async def test_whom_a_redacted_call_was_for_and_who_was_told_what_it_came_to_is_said(place: Place) -> None:
    def ask(request: ModelRequest) -> Reply:
        if request.messages[-1].role == "user":
            return Reply(tool_calls=[ToolCall("clerk", {"task": f"look for {SECRET}"}, "c1")])
        return Reply("done")

    clerk = Agent("clerk", model=FunctionModel(lambda request: f"found {SECRET}"))
    lead = Agent("lead", model=FunctionModel(ask), tools=[clerk.as_tool()])
    async with place.process() as process:
        await talk(process, "go", agent=lead)
        child = "s.t2.0.1"
        assert SECRET in (await process.sessions.history(child))[0].text
        removed = await process.sessions.redact("s", [1])
        assert f"{child!r} was called with it" in removed.unreachable
        removed = await process.sessions.redact(child, [0])
        assert removed.unreachable == ()
        removed = await process.sessions.redact(child, [1])
        assert removed.unreachable == ("'s' was told what it came to",)
        assert SECRET in await everywhere(process, "s")
        await process.sessions.redact("s", [2])
        assert SECRET not in await everywhere(process, "s", child)
        await sound(process)


async def test_content_that_was_set_aside_goes_unless_something_else_refers_to_it(place: Place) -> None:
    long, shared = SECRET * 5_000, "shared " * 10_000
    async with place.process() as process:
        await talk(process, long, shared)
        await talk(process, shared, session="t")
        await process.sessions.fork("s", at=2, session_id="f", replacement=shared)
        assert len(await process.store.blobs("s")) > 0
        removed = await process.sessions.redact("s", [0, 2])
        assert SECRET not in await everywhere(process, "s", "f")
        assert [words for words in removed.unreachable if "refers to it" in words] != []
        assert (await process.sessions.history("f"))[2].text == shared
        await process.sessions.redact("f", [2])
        assert "shared shared" not in await everywhere(process, "s", "f")
        assert "shared shared" in await everywhere(process, "t")
        await sound(process)


@pytest.mark.parametrize("times", [2_000, 20_000], ids=["shown whole", "shown as an excerpt"])
@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
async def test_a_tools_long_result_goes_though_its_receipt_is_known_by_its_digest(place: Place, times: int, late: bool) -> None:
    tokens: list[str] = []

    @tool(effect="external")
    async def look(ctx: ToolContext) -> str:
        tokens.append(ctx.callback_token)
        if late:
            raise ConnectionError
        return SECRET * times

    def answer(request: ModelRequest) -> Reply:
        return Reply("done") if request.step or request.messages[-1].text != "look" else Reply(tool_calls=[ToolCall("look", {})])

    agent = Agent("looker", model=FunctionModel(answer), tools=[look])
    async with place.process() as process:
        await talk(process, "look", agent=agent)
        if late:
            await process.sessions.report(tokens[0], SECRET * times)
            await talk(process, "and now?", agent=agent)
        (before, revision) = (await process.store.blobs("s"), await process.sessions.revision("s"))

        removed = await process.sessions.redact("s", range(len(await process.sessions.history("s"))))

        assert removed.unreachable == ()
        assert len(await process.store.blobs("s")) < len(before)
        assert SECRET not in await everywhere(process, "s")
        assert await process.sessions.revision("s") == revision
        if not late:
            assert (await lines(process))[1:3] == ["assistant: <tool_call call_0_0>", "tool: <tool_call_response call_0_0>"]
        await sound(process)


async def test_a_fork_says_whose_the_content_is(place: Place) -> None:
    async with place.process() as process:
        await talk(process, SECRET)
        await process.sessions.fork("s", session_id="f")
        await talk(process, "mine", session="f")
        with pytest.raises(NothingChanged) as refused:
            await process.sessions.redact("f", [0])
        assert refused.value.facts["unreachable"] == ("message 0 is the session 's''s: redact it there",)
        removed = await process.sessions.redact("f", [0, 2])
        assert removed.unreachable[0] == "message 0 is the session 's''s: redact it there"
        assert await lines(process, "f") == [f"user: {SECRET}", "assistant: answer 1", "user: <text>", "assistant: answer 2"]
        await sound(process)


async def test_a_quote_of_a_redacted_message_goes_and_the_quoting_message_stays(place: Place) -> None:
    async with place.process() as process:
        await talk(process, SECRET)
        (first, _) = await process.sessions.history("s")
        async with process.session("s", echoing()) as session:
            sent = await session.send("about that", reply_to=first.seq)
            async for event in session.events(after=0):
                if getattr(event, "submission", "") == sent.id and event.__class__.__name__ == "TurnCompleted":
                    break
        assert SECRET in repr((await process.sessions.history("s"))[2])
        await process.sessions.redact("s", [0])
        assert SECRET not in await everywhere(process, "s")
        assert (await lines(process))[2] == "user: about that"
        await sound(process)


async def test_entries_can_be_named_and_what_can_not_be_redacted_touches_nothing(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "one")
        note = await process.sessions.note("s", SECRET)
        row = await process.store.submission((await process.row()).no, note.id)
        assert row is not None
        untouched = await process.everything()
        wrong: list[Any] = [
            {"positions": [2]},
            {"positions": -1},
            {"positions": "0"},
            {"positions": [1.5]},
            {"entries": [0]},
            {"entries": 99},
        ]
        started = next(entry.seq for entry in await process.sessions.entries("s") if entry.kind == "turn_started")
        for asked in (*wrong, {"entries": [started]}, {"positions": None}):
            with pytest.raises(InvalidSpan):
                await process.sessions.redact("s", **asked)
        with pytest.raises(NothingChanged):
            await process.sessions.redact("s")
        assert await process.everything() == untouched
        await process.sessions.redact("s", entries=row.consumed_seq or 0)
        assert SECRET not in await everywhere(process, "s")
        with pytest.raises(NothingChanged):
            await process.sessions.redact("s", entries=[row.consumed_seq or 0])
        await sound(process)


async def test_a_redaction_is_made_once_for_its_submission(place: Place) -> None:
    async with place.process() as process:
        await talk(process, SECRET, "more")
        once = await process.sessions.redact("s", [0], submission="r1")
        again = await process.sessions.redact("s", [0], submission="r1")
        assert (again.duplicate, again.seq, again.entries) == (True, once.seq, once.entries)
        with pytest.raises(NothingChanged):
            await process.sessions.redact("s", [0], submission="r2")
        assert len(await process.sessions.entries("s", kinds=("redacted",))) == 1


async def test_an_archived_session_can_still_be_redacted(place: Place) -> None:
    async with place.process() as process:
        await talk(process, SECRET)
        await process.sessions.archive("s")
        await process.sessions.redact("s", [0])
        assert SECRET not in await everywhere(process, "s")
        assert (await process.sessions.info("s")).status == "archived"
        await sound(process)


@pytest.mark.parametrize("archived", [False, True])
async def test_notes_that_may_say_what_was_redacted_go_once_and_the_session_is_sound_wherever_it_goes(place: Place, archived: bool) -> None:
    def answer(request: ModelRequest) -> Any:
        return saved("what was said") if request.purpose == "notes" else Reply("yes")

    agent = Agent("helper", model=FunctionModel(answer))

    async def compact(process: Process, submission: str) -> None:
        await process.sessions.compact("s", submission=submission)
        await process.recover([agent], session="s")

    async with place.process() as process:
        sessions = process.sessions
        await talk(process, SECRET, "and more", agent=agent)
        await compact(process, "c1")
        if archived:
            await sessions.archive("s")
        await sessions.redact("s", 0)
        if archived:
            await sessions.revive("s")
        assert (await sessions.checkpoint("s")).compacted is None
        await talk(process, "go on", agent=agent)
        # Notes that were written since can't say it, and stay.
        await compact(process, "c2")
        with pytest.raises(NothingChanged):
            await sessions.redact("s", 0)
        assert (await sessions.checkpoint("s")).compacted is not None
        await sound(process)
        exported = io.BytesIO()
        await sessions.export("s", exported)
        exported.seek(0)
        await sessions.import_from(exported, session_id="copy")
        assert await lines(process, "copy") == await lines(process)


async def test_a_redaction_waits_for_no_turn(place: Place) -> None:
    go_on = asyncio.Event()
    asked = asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        asked.set()
        await go_on.wait()
        return "done"

    agent = Agent("helper", model=FunctionModel(slow))
    async with place.process() as process:
        running = asyncio.create_task(process.run(agent, SECRET, session="s"))
        await asked.wait()
        with pytest.raises(SessionBusy):
            await process.sessions.redact("s", [0])
        go_on.set()
        await running
        await process.sessions.redact("s", [0])


@pytest.mark.parametrize("long", [False, True])
async def test_after_a_vacuum_the_content_is_in_no_page_and_no_log(tmp_path: Path, long: bool) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    secret = SECRET * (5_000 if long else 1)
    async with place.process() as process:
        await talk(process, f"say {secret}", "other", agent=Agent("helper", model=FunctionModel(lambda request: request.messages[-1].text)))
        assert SECRET.encode() in bytes_of(tmp_path)
        await process.sessions.redact("s", [0, 1])
        await process.store.vacuum()
        assert SECRET.encode() not in bytes_of(tmp_path)
        assert b"other" in bytes_of(tmp_path)
        await talk(process, "and on")
        await sound(process)
    assert SECRET.encode() not in bytes_of(tmp_path)


def bytes_of(directory: Path) -> bytes:
    """Every byte of a store's files."""
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file())


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("UPDATE journal SET body = NULL, salt = NULL WHERE seq = 3", 3),
        ("UPDATE journal SET body = NULL WHERE seq = 3", 3),
        ("UPDATE journal SET body = X'7b7d' WHERE seq = 3", 3),
    ],
)
async def test_only_what_an_entry_names_may_be_gone(tmp_path: Path, statement: str, seq: int) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await talk(process, "one", "two")
        await process.sessions.redact("s", [2])
        await sound(process)
    place.execute(statement)
    async with place.process() as process:
        found = [problem async for problem in verify(process.store)]
        assert next(problem.seq for problem in found if problem.where == "journal") == seq


async def test_a_redaction_that_left_the_content_is_found(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await talk(process, "one", "two")
        row = next(row for row in await process.store.entries((await process.row()).no) if row.kind == "message")
        await process.sessions.redact("s", [0])
    store = SQLiteStore(place.path)
    assert store is not None
    hexed = (row.salt or b"").hex(), (row.body or b"").hex()
    place.execute(f"UPDATE journal SET salt = X'{hexed[0]}', body = X'{hexed[1]}' WHERE seq = {row.seq}")
    async with place.process() as process:
        found = [str(problem) async for problem in verify(process.store)]
        assert [words for words in found if "its content is still there" in words] != []


def test_a_part_says_what_it_was() -> None:
    part = RedactedPart(was="text")
    assert msgspec.to_builtins(part) == {"type": "redacted", "was": "text"}
