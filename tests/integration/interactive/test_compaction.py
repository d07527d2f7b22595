"""Compaction: notes take the place of a conversation's beginning, for models only, and only if everything after it went well."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from perdure import (
    Agent,
    Compaction,
    ContextTooLong,
    Entry,
    FunctionModel,
    HookContext,
    Middleware,
    ModelRequest,
    OperationEnded,
    OperationStarted,
    PrefixChanged,
    ProviderRefused,
    ProviderUnavailable,
    Reply,
    Router,
    Stop,
    Text,
    ToolCall,
    TurnEnded,
    Uri,
    Usage,
    tool,
)
from perdure.core.messages import Private
from perdure.models.openai import render_responses
from perdure.runtime.verify import verify
from perdure.testing.checks import find_problems

from .acting import Place, Process, eventually, transcript, until


class Talker:
    """A model that answers with a long text, writes notes when asked to, and remembers what it was asked."""

    def __init__(
        self, *, window: int = 8_000, notes: Any = "NOTES", answer: Any = None, name: str = "talker", group: str | None = None
    ) -> None:
        self.asked: list[ModelRequest] = []
        self.notes = notes
        self.answer = answer or (lambda request: "word " * 1_000)
        self.model = FunctionModel(self._play, name=name, window=window)

    def _play(self, request: ModelRequest) -> Any:
        self.asked.append(request)
        if request.purpose == "notes":
            notes = self.notes(request) if callable(self.notes) else self.notes
            return notes if isinstance(notes, Reply) else saved(notes)
        return self.answer(request)

    @property
    def written(self) -> list[ModelRequest]:
        return [request for request in self.asked if request.purpose == "notes"]

    @property
    def answered(self) -> list[ModelRequest]:
        return [request for request in self.asked if request.purpose == "answer"]


def saved(notes: str, **facts: Any) -> Reply:
    return Reply(tool_calls=[ToolCall("save_notes", {"notes": notes}, "n-1")], usage=Usage(input_tokens=50, output_tokens=5), **facts)


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


async def talk(process: Process, agent: Agent, *said: str, session: str = "s") -> list[Any]:
    return [await process.run(agent, text, session=session) for text in said]


async def changes(process: Process, session: str = "s") -> list[PrefixChanged]:
    return [entry for entry in await process.sessions.entries(session) if isinstance(entry, PrefixChanged)]


@pytest.mark.spec("S2-208")
async def test_a_compaction_raises_the_epoch_by_one_and_counts_and_nobody_knows_the_last_usage_any_more(place: Place) -> None:
    talker = Talker(answer=lambda request: Reply("word " * 1_000, usage=Usage(input_tokens=700, output_tokens=5)))
    agent = Agent("helper", model=talker.model)
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(6)))
        checkpoint = await process.sessions.checkpoint("s")
        [change] = await changes(process)
        assert (change.reason, change.epoch, change.applied) == ("compaction", 1, 1)
        assert (checkpoint.epoch, checkpoint.compactions) == (1, 1)
        entries = await process.sessions.entries("s")
        assert await find_problems(process.store, "s") == []
        assert [type(entry).__name__ for entry in entries if entry.seq in (change.seq - 1, change.seq + 1)] == [
            "OperationEnded",
            "OperationStarted",
        ]
    [writing] = talker.written
    # The writer sees everything but the new question; the model sees the notes and the question.
    assert texts(writing)[0] == "question 0"
    assert texts(writing)[-1].startswith("This conversation is about to outgrow")
    after = talker.answered[talker.asked.index(writing)]
    assert len(after.messages) == 2
    assert "NOTES" in texts(after)[0]
    assert texts(after)[1] not in texts(writing)
    assert (after.answers, after.before) == (5, 5)


async def test_what_people_see_doesnt_change(place: Place) -> None:
    compacting, plain = Talker(), Talker(window=1_000_000)
    async with place.process() as process:
        for session, talker in (("short", compacting), ("long", plain)):
            await talk(process, Agent("helper", model=talker.model), *(f"question {number}" for number in range(6)), session=session)
        assert len(compacting.written) == 1
        assert not plain.written
        assert await transcript(process, "short") == await transcript(process, "long")
        short, long = await process.sessions.checkpoint("short"), await process.sessions.checkpoint("long")
        assert short.revision == long.revision


# ------------------------------------------------------------------------------------------------------- what writers may say


ENDLESS = "x" * 21_001


@pytest.mark.spec("S2-210")
@pytest.mark.parametrize(
    "notes",
    [
        saved(""),
        saved(" \n\t"),
        saved(ENDLESS),
        saved("ü" * 10_501),
        Reply("Here are my notes: nothing."),
        Reply(tool_calls=[ToolCall("save_notes", {"notes": "a"}, "1"), ToolCall("save_notes", {"notes": "b"}, "2")]),
        Reply(tool_calls=[ToolCall("save_notes", {"note": "a"}, "1")]),
        Reply(tool_calls=[ToolCall("save_notes", {"notes": ["a"]}, "1")]),
        Reply(tool_calls=[ToolCall("save_notes", "not json", "1")]),
        Reply(tool_calls=[ToolCall("refund", {"notes": "a"}, "1")]),
        Reply("", finish="refusal"),
        Reply(tool_calls=[ToolCall("save_notes", {"notes": "z" * 400_000}, "1")]),
    ],
    ids=[
        *["empty", "blank", "endless", "too many bytes", "only talk", "two calls", "another field", "a list", "no arguments"],
        *["another tool", "a refusal", "a whole book"],
    ],
)
async def test_notes_that_are_none_fail_the_turn_and_change_nothing(place: Place, notes: Reply) -> None:
    talker = Talker(notes=lambda request: notes)
    agent = Agent("helper", model=talker.model)
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        before = await process.sessions.checkpoint("s")
        # A message that waits meanwhile stays where it is.
        await process.sessions.send("s", "later", submission="later", not_before=10**13)
        failed = await process.run(agent, "question 5", session="s", submission="m-5")
        assert (failed.status, failed.failure.code) == ("failed", "invalid_notes")
        after = await process.sessions.checkpoint("s")
        assert (after.epoch, after.compactions, after.compacted) == (before.epoch, 0, None)
        assert [row.submission_id for row in await process.pending()] == ["later"]
        assert len(await process.sessions.history("s")) == 11
        assert await find_problems(process.store, "s") == []
        # Usage is counted, whatever it was for.
        assert after.usage.calls == before.usage.calls + 1
        # A better writer helps.
        talker.notes = "NOTES"
        assert (await process.run(agent, "question 6", session="s", submission="m-6")).ok
        assert (await process.sessions.checkpoint("s")).compactions == 1


async def test_notes_as_long_as_they_may_be_stand_whole_whatever_their_escapes(place: Place) -> None:
    longest = '"\n' * 10_500
    talker = Talker(notes=longest, window=100_000)
    agent = Agent("helper", model=talker.model, compaction=Compaction(threshold=6_000))
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(6)))
        assert await find_problems(process.store, "s") == []
    async with place.process() as process:
        await talk(process, agent, "again")
    assert texts(talker.asked[-1])[0].endswith(longest)


# ------------------------------------------------------------------------------------------------------------ what is kept


@pytest.mark.spec("S2-211")
async def test_the_running_turns_questions_steers_and_latest_batch_are_kept_whole(place: Place) -> None:
    working, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def look(number: int) -> str:
        """Look."""
        if number == 1:
            working.set()
            await go_on.wait()
        return f"result {number} " + "y " * 2_000

    def answer(request: ModelRequest) -> Reply:
        if "dig" not in texts(request) or request.step > 4:
            return Reply("word " * 300)
        return Reply(tool_calls=[ToolCall("look", {"number": request.step}, f"c-{request.step}")])

    talker = Talker(answer=answer)
    agent = Agent("helper", model=talker.model, tools=[look])
    picture = Uri(uri="https://example.org/a.png", mime_type="image/png")
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("before", submission="m-0")
        await until(handle, after=0)
        version = (await process.row()).version
        await handle.send([Text("dig"), picture], submission="m-1")
        await working.wait()
        await handle.send("deeper", deliver="steer", submission="m-2")
        go_on.set()
        await until(handle, after=version)
        assert await find_problems(process.store, "s") == []
        [change] = await changes(process)
    [writing] = talker.written
    after = talker.asked[talker.asked.index(writing) + 1]
    assert texts(after)[1:3] == ["dig", "deeper"]
    assert picture in after.messages[1].parts
    assert [message.role for message in after.messages[3:]] == ["assistant", "tool"]
    assert [call.id for call in after.messages[3].tool_calls] == ["c-3"]
    assert "before" not in texts(after)
    assert change.kept == ((2, 3), (7, 8))
    # What is kept whole is not summarised as well.
    assert "result 3" not in str(writing.messages)
    assert "result 2" in str(writing.messages)


@pytest.mark.spec("S2-033")
async def test_a_steer_that_comes_while_notes_are_written_is_durable_at_once_and_delivered_behind_them(place: Place) -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()

    async def notes(request: ModelRequest) -> Reply:
        writing.set()
        await go_on.wait()
        return saved("NOTES")

    async def play(request: ModelRequest) -> Any:
        talker.asked.append(request)
        return await notes(request) if request.purpose == "notes" else Reply("word " * 1_000)

    talker = Talker()
    talker.model = FunctionModel(play, window=8_000)
    agent = Agent("helper", model=talker.model)
    async with place.process() as process, process.session("s", agent) as handle:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        await handle.send("go", submission="m-1")
        await writing.wait()
        version = (await process.row()).version
        await handle.send("and quickly", deliver="steer", submission="m-2")
        assert [row.submission_id for row in await process.pending()] == ["m-2"]
        assert await process.told(after=version) == []
        go_on.set()
        await until(handle, after=version)
        words = await process.told(after=version)
        assert words[:4] == ["ended t32.0.0#1 succeeded", "prefix_changed", "message user steer", "started t32.0.1#1"]
        assert await find_problems(process.store, "s") == []
    assert texts(talker.asked[-1])[1:] == ["go", "and quickly"]
    assert "quickly" not in str(talker.written[0].messages)


async def test_what_is_summarised_holds_the_notes_in_it_and_later_ones_stand_behind_it(place: Place) -> None:
    talker = Talker()
    agent = Agent("helper", model=talker.model)
    async with place.process() as process:
        await talk(process, agent, "question 0")
        await process.sessions.note("s", "an early note")
        await talk(process, agent, *(f"question {number}" for number in range(1, 5)))
        await process.sessions.note("s", "a late note")
        await talk(process, agent, "question 5")
        await process.sessions.note("s", "the last note")
    async with place.process() as process:
        await talk(process, agent, "question 6")
    [writing] = talker.written
    assert "[note] an early note" in texts(writing)
    assert texts(talker.answered[5])[1:] == ["[note] a late note", "question 5"]
    assert texts(talker.answered[6])[1] == "[note] a late note"
    assert texts(talker.answered[6])[-2:] == ["[note] the last note", "question 6"]


# -------------------------------------------------------------------------------------------------------------- other routes


def two_routes(old: Talker, new: Talker, **options: Any) -> Router:
    return Router({"old": old.model, "new": new.model}, **options)


@pytest.mark.spec("S2-212")
async def test_the_old_model_writes_the_notes_for_a_new_one_without_seeing_its_question(place: Place) -> None:
    old, new = Talker(window=100_000, name="old"), Talker(window=6_000, name="new")
    agent = Agent("helper", model=two_routes(old, new))
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        await process.sessions.select_route("s", "new")
        [result] = await talk(process, agent, "a new question")
        assert result.ok
        [change] = await changes(process)
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.epoch, checkpoint.owner, change.reason) == (1, "new", "compaction")
        assert await find_problems(process.store, "s") == []
    assert len(old.written) == 1
    assert not new.written
    assert "a new question" not in texts(old.written[0])
    [asked] = new.asked
    assert texts(asked).count("a new question") == 1
    assert len(asked.messages) == 2


@pytest.mark.spec("S2-213")
@pytest.mark.parametrize("why", ["it fails", "it is gone", "its window is too small"])
async def test_the_selected_model_writes_the_notes_if_the_old_one_cant(place: Place, why: str) -> None:
    def broken(request: ModelRequest) -> Reply:
        raise ProviderRefused("no")

    old, new = Talker(window=100_000, notes=broken, name="old"), Talker(window=8_000, name="new")
    router = two_routes(old, new)
    async with place.process() as process:
        agent = Agent("helper", model=router)
        await talk(process, agent, *(f"question {number}" for number in range(6)))
        await process.sessions.select_route("s", "new")
    if why == "it is gone":
        router = Router({"new": new.model})
    elif why == "its window is too small":
        router = two_routes(old, new, windows={"old": 300})
    async with place.process() as process:
        [result] = await talk(process, Agent("helper", model=router, on_change="any"), "a new question")
        assert result.ok
        assert await find_problems(process.store, "s") == []
    assert (len(old.written), len(new.written)) == (1 if why == "it fails" else 0, 1)
    assert texts(new.answered[0])[-1] == "a new question"


@pytest.mark.spec("S2-160")
async def test_dropping_private_reasoning_is_no_compaction(place: Place) -> None:
    old = Talker(answer=lambda request: Reply("hm", private={"thought": 1}), name="old")
    new = Talker(answer=lambda request: Reply("ha"), name="new")
    agent = Agent("helper", model=two_routes(old, new))
    async with place.process() as process:
        await talk(process, agent, "one")
        await process.sessions.select_route("s", "new")
        await talk(process, agent, "two")
        checkpoint = await process.sessions.checkpoint("s")
    assert (checkpoint.epoch, checkpoint.compactions, checkpoint.private_from) == (1, 0, 3)


async def test_private_reasoning_behind_the_notes_is_still_sent_and_dropped_once(place: Place) -> None:
    """What the notes don't stand for keeps its private parts; once nothing private is left, a change of model changes no prefix."""
    for bits, epoch in ((2, 1), (1, 2)):
        session = f"s{bits}"
        old = Talker(answer=lambda request: Reply("word " * 1_000, private={"thought": len(request.messages)}), name="old")
        new = Talker(answer=lambda request: Reply("ha"), name="new")
        agent = Agent("helper", model=two_routes(old, new))
        async with place.process() as process:
            await talk(process, agent, *(f"question {number}" for number in range(5)), session=session)
            if bits == 2:
                await process.sessions.compact(session, submission="c")
                await process.recover([agent], session=session)
            else:
                await talk(process, agent, "question 5", session=session)
            await process.sessions.select_route(session, "new")
            await talk(process, agent, "one more", session=session)
            checkpoint = await process.sessions.checkpoint(session)
            assert (checkpoint.epoch, checkpoint.compactions, checkpoint.private) == (epoch, 1, False)
            assert await find_problems(process.store, session) == []
        assert not any(isinstance(part, Private) for request in new.asked for message in request.messages for part in message.parts)


# ------------------------------------------------------------------------------------------------------------- what doesn't fit


@pytest.mark.spec("S2-214")
async def test_a_question_that_is_too_large_in_itself_fails_with_the_numbers_and_the_chat_stays(place: Place) -> None:
    talker = Talker()
    agent = Agent("helper", model=talker.model)
    async with place.process() as process:
        await talk(process, agent, "question 0", "question 1")
        before = await process.sessions.checkpoint("s")
        [failed] = await talk(process, agent, "long " * 8_000)
        assert (failed.status, failed.failure.code) == ("failed", "does_not_fit")
        assert "7000 of 8000 tokens" in failed.failure.message
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.epoch, checkpoint.compactions) == (before.epoch, 0)
        assert len(await process.sessions.history("s")) == 5
        assert await find_problems(process.store, "s") == []


async def test_instructions_that_leave_no_room_are_told_from_a_conversation_that_does(place: Place) -> None:
    talker = Talker()
    async with place.process() as process:
        [failed] = await talk(process, Agent("helper", instructions="be kind " * 5_000, model=talker.model), "hi")
    assert failed.failure.code == "does_not_fit"
    assert failed.failure.message.startswith("the instructions and tools alone have about 10000 tokens")
    assert not talker.asked


async def test_without_compaction_a_window_that_was_declared_is_still_one_and_others_are_the_providers_business(place: Place) -> None:
    talker, wide = Talker(), Talker(window=None)  # type: ignore[arg-type]
    async with place.process() as process:
        answered = await talk(process, Agent("helper", model=talker.model, compaction=None), *(f"question {number}" for number in range(8)))
        assert [result.status for result in answered] == ["completed"] * 7 + ["failed"]
        assert "compaction is off" in answered[-1].failure.message
        answered = await talk(process, Agent("helper", model=wide.model, compaction=None), "long " * 200_000, session="t")
        assert answered[0].ok
    assert not talker.written


async def test_a_history_that_the_writer_cant_see_at_once_is_summarised_bit_by_bit_and_changes_the_prefix_once(place: Place) -> None:
    wide, narrow = (
        Talker(window=100_000, name="wide"),
        Talker(window=6_000, name="narrow", notes=lambda request: f"NOTES {len(request.messages)}"),
    )
    async with place.process() as process:
        await talk(process, Agent("helper", model=wide.model), *(f"question {number}" for number in range(12)))
        [result] = await talk(process, Agent("helper", model=narrow.model, on_change="any"), "a new question")
        assert result.ok
        [change] = await changes(process)
        checkpoint = await process.sessions.checkpoint("s")
        assert change.applied == len(narrow.written) > 2
        assert (checkpoint.epoch, checkpoint.compactions) == (1, change.applied)
        assert await find_problems(process.store, "s") == []
    for earlier, later in zip(narrow.written, narrow.written[1:], strict=False):
        assert texts(later)[0].endswith(f"NOTES {len(earlier.messages)}")
    assert len(narrow.answered[0].messages) < 10


# ---------------------------------------------------------------------------------------------------------- crashes and stops


@pytest.mark.spec("S2-218")
async def test_a_writer_is_asked_a_number_of_times_at_most_with_growing_pauses_and_its_failure_fails_the_turn(place: Place) -> None:
    def down(request: ModelRequest) -> Reply:
        raise ProviderUnavailable("down")

    talker = Talker(notes=down)
    agent = Agent("helper", model=talker.model)
    place.clock.auto = True
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        began = place.clock.now()
        [failed] = await talk(process, agent, "question 5")
        assert (failed.status, failed.failure.code) == ("failed", "provider_unavailable")
        assert failed.reason == "no notes could be written: down"
        assert place.clock.now() - began >= 6 * 60_000
        assert (await process.sessions.checkpoint("s")).epoch == 0
        assert await find_problems(process.store, "s") == []
    assert len(talker.written) == 15


@pytest.mark.spec("S2-218")
async def test_a_writer_can_be_interrupted_and_leaves_everything_as_it_was(place: Place) -> None:
    writing = asyncio.Event()

    async def play(request: ModelRequest) -> Any:
        if request.purpose == "notes":
            writing.set()
            await asyncio.Event().wait()
        return Reply("word " * 1_000)

    agent = Agent("helper", model=FunctionModel(play, window=8_000))
    async with place.process() as process, process.session("s", agent) as handle:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        await handle.send("question 5", submission="m-5")
        await writing.wait()
        version = (await process.row()).version
        await handle.interrupt()
        await until(handle, after=version)
        assert await process.told(after=version) == ["ended t32.0.0#1 cancelled", "turn_aborted t32"]
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.epoch, checkpoint.compactions, checkpoint.compacted) == (0, 0, None)
        assert await find_problems(process.store, "s") == []


# ------------------------------------------------------------------------------------------------------------ after a restart


def same(one: ModelRequest, other: ModelRequest) -> bool:
    """Whether two requests are the same, byte for byte."""
    return render_responses(one, model="m", group="talker") == render_responses(other, model="m", group="talker")


@pytest.mark.spec("S0-253", "S0-161")
@pytest.mark.parametrize("dies", ["while notes are written", "behind them"])
async def test_a_request_is_built_again_byte_for_byte_after_a_restart(place: Place, dies: str) -> None:
    """The process dies in a call; the next one asks the same, built from the journal alone."""
    purpose = "notes" if dies.startswith("while") else "answer"
    hanging, hangs = asyncio.Event(), True
    asked: list[ModelRequest] = []

    async def play(request: ModelRequest) -> Any:
        asked.append(request)
        if hangs and request.purpose == purpose and len(asked) > 5:
            hanging.set()
            await asyncio.Event().wait()
        return saved("NOTES") if request.purpose == "notes" else Reply("word " * 1_000)

    agent = Agent("helper", model=FunctionModel(play, name="talker", window=8_000))
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        running = asyncio.create_task(process.run(agent, "question 5", session="s", submission="m-5"))
        await hanging.wait()
        process.faulty.kill()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    lost, hangs = asked[-1], False
    place.clock.advance(60_000)
    count = len(asked)
    async with place.process() as process:
        assert (await process.run(agent, "question 5", session="s", submission="m-5")).ok
        assert same(asked[count], lost)
        assert await find_problems(process.store, "s") == []
        assert (await process.sessions.checkpoint("s")).compactions == 1
        # Nobody knows what the lost attempt cost, and that is counted.
        attempts = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded) and not entry.final]
        assert [(entry.status, entry.failure.code if entry.failure else "") for entry in attempts] == [("uncertain", "restart")]
        result = await process.sessions.result("s", "m-5")
        assert result is not None
        assert (result.usage.calls, result.usage.unknown_calls) == (3, 2)
    assert sum(request.purpose == "notes" for request in asked) == (2 if purpose == "notes" else 1)
    # And what is stored is enough to go on for whoever never saw any of it.
    async with place.process() as process:
        await talk(process, agent, "question 6")
    assert texts(asked[-1])[0].endswith("NOTES")
    assert texts(asked[-1])[1:] == ["question 5", "word " * 1_000, "question 6"]
    assert asked[-1].answers == 6


@pytest.mark.spec("S2-209")
async def test_notes_are_provisional_until_the_call_that_uses_them_is_committed(place: Place) -> None:
    """The commit that would accept them never becomes durable: nothing of it is there, but what the writer was paid for is told again."""
    talker = Talker()
    agent = Agent("helper", model=talker.model)

    def accepts(call: Any) -> bool:
        return call.kind == "commit" and any(entry.kind == "prefix_changed" for entry in call.given.entries)

    lost: list[str] = []

    async def gate(call: Any, when: str) -> None:
        if when == "before" and accepts(call) and not lost:
            lost.extend(entry.kind for entry in call.given.entries)
            process.faulty.kill()

    async with place.process(gate=gate) as process:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        running = asyncio.create_task(process.run(agent, "question 5", session="s", submission="m-5"))
        await eventually(lambda: lost)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert lost == ["operation_ended", "prefix_changed", "operation_started"]
    place.clock.advance(60_000)
    async with place.process() as process:
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.epoch, checkpoint.compactions, checkpoint.compacted) == (0, 0, None)
        assert (await process.run(agent, "question 5", session="s", submission="m-5")).ok
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.epoch, checkpoint.compactions) == (1, 1)
        assert await find_problems(process.store, "s") == []


# ------------------------------------------------------------------------------------------------------------------ events


@pytest.mark.spec("S2-216")
@pytest.mark.parametrize("end", ["compacted", "failed", "cancelled"])
async def test_a_watcher_sees_a_compaction_begin_and_end_once_before_the_turns_end(place: Place, end: str) -> None:
    writing = asyncio.Event()

    async def play(request: ModelRequest) -> Any:
        if request.purpose == "notes":
            writing.set()
            if end == "cancelled":
                await asyncio.Event().wait()
            return saved("NOTES" if end == "compacted" else "")
        return Reply("word " * 1_000)

    agent = Agent("helper", model=FunctionModel(play, window=8_000))
    async with place.process() as process, process.session("s", agent) as handle:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        version = (await process.row()).version
        await handle.send("question 5", submission="m-5")
        await writing.wait()
        if end == "cancelled":
            await handle.interrupt()
        seen = [event for event in await until(handle, after=version) if isinstance(event, Entry)]
    began = [event for event in seen if isinstance(event, OperationStarted) and event.plan is not None and event.plan.kind == "compaction"]
    ended = [event for event in seen if isinstance(event, OperationEnded) and event.operation == began[0].operation]
    assert (len(began), len(ended)) == (1, 1)
    assert ended[0].status == {"compacted": "succeeded"}.get(end, end)
    assert ended[0].final
    assert began[0].seq < ended[0].seq < seen[-1].seq
    assert isinstance(seen[-1], TurnEnded)
    assert sum(isinstance(event, PrefixChanged) for event in seen) == (end == "compacted")


@pytest.mark.spec("S2-217")
async def test_a_compaction_stays_in_the_journal_and_is_replayed_as_one_event(place: Place) -> None:
    talker = Talker()
    agent = Agent("helper", model=talker.model)
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(6)))
    async with place.process() as process, process.session("s", agent) as handle:
        replayed = await until(handle, after=0, count=6)
        assert sum(isinstance(event, PrefixChanged) for event in replayed) == 1
        assert len(await process.sessions.history("s")) == 12


# ------------------------------------------------------------------------------------------------------------------ by hand


async def test_a_session_can_be_compacted_by_hand_once_for_every_submission(place: Place) -> None:
    talker = Talker(answer=lambda request: Reply("short"))
    agent = Agent("helper", model=talker.model, compaction=None)
    async with place.process() as process:
        await talk(process, agent, "one", "two")
        first = await process.sessions.compact("s", submission="c-1", actor="ann")
        again = await process.sessions.compact("s", submission="c-1", actor="ann")
        assert (first.duplicate, again.duplicate) == (False, True)
        # Nobody works on it before an agent takes it up; then it is done without anybody who waits.
        assert (await process.sessions.info("s")).status == "queued"
        await process.recover([agent], session="s")
        result = await process.sessions.result("s", "c-1")
        assert result is not None
        assert (result.status, result.output, result.usage.calls) == ("completed", "", 1)
        await talk(process, agent, "three")
        assert len(await process.sessions.history("s")) == 6
        assert await find_problems(process.store, "s") == []
        assert [problem async for problem in verify(process.store, "s")] == []
    assert texts(talker.written[0])[:4] == ["one", "short", "two", "short"]
    assert texts(talker.answered[-1])[1:] == ["three"]


async def test_nothing_keeps_a_whole_conversation_that_was_summarised_once_its_notes_stand(place: Place) -> None:
    model = FunctionModel(lambda request: saved("NOTES") if request.purpose == "notes" else Reply("short"))
    agent = Agent("helper", model=model)
    async with place.process() as process, process.session("let go", agent) as handle:
        await talk(process, agent, "one", "two", session="let go")
        await process.sessions.compact("let go", submission="c-1")
        await until(handle, PrefixChanged)
        await talk(process, agent, "three", session="let go")
        gc.collect()
        held = [item for item in gc.get_objects() if type(item) is ModelRequest and item.session_id == "let go"]
        assert [item for item in held if item.purpose == "notes"] == []


async def test_a_compaction_by_hand_that_has_nothing_to_summarise_says_so(place: Place) -> None:
    talker = Talker(answer=lambda request: Reply("short"))
    agent = Agent("helper", model=talker.model)
    async with place.process() as process:
        await talk(process, agent, "one")
        for submission in ("c-1", "c-2"):
            await process.sessions.compact("s", submission=submission)
            await process.recover([agent], session="s")
        result = await process.sessions.result("s", "c-2")
        assert result is not None
        assert (result.status, result.reason) == ("completed", "there is nothing to summarise")
    assert len(talker.written) == 1


async def test_a_steer_during_a_compaction_by_hand_goes_on_behind_it(place: Place) -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()

    async def play(request: ModelRequest) -> Any:
        if request.purpose == "notes":
            writing.set()
            await go_on.wait()
            return saved("NOTES")
        return Reply("short")

    agent = Agent("helper", model=FunctionModel(play))
    async with place.process() as process, process.session("s", agent) as handle:
        await talk(process, agent, "one")
        version = (await process.row()).version
        await process.sessions.compact("s", submission="c-1")
        await writing.wait()
        await handle.send("and now?", deliver="steer", submission="m-2")
        go_on.set()
        await until(handle, after=version)
        assert [message.text for message in await process.sessions.history("s")] == ["one", "short", "and now?", "short"]
        assert await find_problems(process.store, "s") == []


# ------------------------------------------------------------------------------------------- what the provider finds too long


@pytest.mark.spec("S0-130", "S0-187", "S0-188")
async def test_a_request_that_its_provider_finds_too_long_is_compacted_once_and_tried_again(place: Place) -> None:
    def answer(request: ModelRequest) -> Reply:
        if len(request.messages) > 6:
            raise ContextTooLong("too long")
        return Reply("word " * 100)

    talker = Talker(answer=answer, window=100_000)
    agent = Agent("helper", model=talker.model)
    async with place.process() as process:
        results = await talk(process, agent, *(f"question {number}" for number in range(5)))
        assert all(result.ok for result in results)
        assert (await process.sessions.checkpoint("s")).compactions == len(talker.written) > 0
        assert await find_problems(process.store, "s") == []
        ended = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded)]
        refused = [entry for entry in ended if entry.failure is not None and entry.failure.code == "context_too_long"]
        # What was refused is over, and what is asked instead is another operation of the same step.
        assert [(entry.status, entry.final) for entry in refused] == [("failed", True)] * len(talker.written)
        answered = {entry.operation for entry in ended if entry.status == "succeeded"}
        for entry in refused:
            step = entry.operation.rpartition(".")[0]
            assert entry.operation not in answered
            assert any(operation.startswith(f"{step}.") for operation in answered)
        failed = await process.run(agent.replace(compaction=None), "question 5", session="s", submission="m")
        assert (failed.status, failed.failure.code) == ("failed", "context_too_long")


@pytest.mark.spec("S0-188")
async def test_a_request_that_stays_too_long_fails_after_one_compaction(place: Place) -> None:
    def answer(request: ModelRequest) -> Reply:
        if request.answers >= 3:
            raise ContextTooLong("too long")
        return Reply("word " * 100)

    talker = Talker(answer=answer, window=100_000)
    agent = Agent("helper", model=talker.model)
    async with place.process() as process:
        results = await talk(process, agent, *(f"question {number}" for number in range(4)))
        assert (results[-1].status, results[-1].failure.code) == ("failed", "context_too_long")
        assert await find_problems(process.store, "s") == []
    assert len(talker.written) == 1
    assert len(talker.answered) == 5


# -------------------------------------------------------------------------------------------------------- the agent's own code


class Says(Middleware):
    """Code that has a say at one moment, and remembers when it was asked."""

    name = "says"

    def __init__(self, moment: str, answer: Any) -> None:
        self.moment, self.answer = moment, answer
        self.asked: list[str] = []

    def _say(self, moment: str) -> Any:
        self.asked.append(moment)
        if (moment == self.moment and "after_compaction" in (moment, *self.asked)) or moment == self.moment == "before_compaction":
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer
        return None

    async def before_compaction(self, ctx: HookContext) -> Any:
        return self._say("before_compaction")

    async def after_compaction(self, ctx: HookContext) -> Any:
        return self._say("after_compaction")

    async def before_model(self, ctx: HookContext) -> Any:
        return self._say("before_model")


class SeesRequests(Middleware):
    """Code whose only say is in the request itself, and that fails where it holds notes while ``broken``."""

    name = "sees"

    def __init__(self) -> None:
        self.broken = True

    def model_request(self, ctx: HookContext, request: ModelRequest) -> None:
        if self.broken and any("NOTES" in text for text in texts(request)):
            raise RuntimeError("broken")


@pytest.mark.spec("S2-215")
async def test_code_that_stops_before_a_compaction_completes_the_turn_with_its_words_and_calls_no_model(place: Place) -> None:
    talker, code = Talker(), Says("before_compaction", Stop("not now"))
    agent = Agent("helper", model=talker.model, middleware=[code])
    async with place.process() as process:
        results = await talk(process, agent, *(f"question {number}" for number in range(6)))
        assert (results[-1].status, results[-1].reason, results[-1].usage.calls) == ("completed", "not now", 0)
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.epoch, checkpoint.compactions) == (0, 0)
        assert await find_problems(process.store, "s") == []
    assert (len(talker.written), len(talker.answered)) == (0, 5)


async def test_code_that_stops_behind_a_compaction_keeps_it_and_calls_no_model(place: Place) -> None:
    talker, code = Talker(), Says("after_compaction", Stop("enough"))
    agent = Agent("helper", model=talker.model, middleware=[code])
    async with place.process() as process:
        results = await talk(process, agent, *(f"question {number}" for number in range(6)))
        assert (results[-1].status, results[-1].reason, results[-1].usage.calls) == ("completed", "enough", 1)
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.epoch, checkpoint.compactions) == (1, 1)
        assert await find_problems(process.store, "s") == []
    assert (len(talker.written), len(talker.answered)) == (1, 5)


@pytest.mark.spec("S2-209", "S2-207")
@pytest.mark.parametrize("moment", ["after_compaction", "before_model"])
async def test_code_that_fails_behind_a_compaction_leaves_the_context_as_it_was_and_usage_counts(place: Place, moment: str) -> None:
    talker, code = Talker(), Says(moment, RuntimeError("broken"))
    agent = Agent("helper", model=talker.model, middleware=[code])
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        before = await process.sessions.checkpoint("s")
        failed = await process.run(agent, "question 5", session="s", submission="m-5")
        assert failed.status == "failed"
        after = await process.sessions.checkpoint("s")
        assert (after.epoch, after.compactions, after.compacted) == (0, 0, None)
        assert after.usage.calls == before.usage.calls + 1
        assert await find_problems(process.store, "s") == []
        code.answer = None
        assert (await process.run(agent, "question 6", session="s", submission="m-6")).ok
        assert (await process.sessions.checkpoint("s")).compactions == 1
        assert await find_problems(process.store, "s") == []
    assert texts(talker.answered[-1])[-1] == "question 6"


@pytest.mark.spec("S2-209")
async def test_notes_that_the_code_behind_the_whole_request_does_not_take_are_seen_by_nobody(place: Place) -> None:
    talker, code = Talker(), SeesRequests()
    agent = Agent("helper", model=talker.model, middleware=[code])
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        failed = await process.run(agent, "question 5", session="s", submission="m-5")
        assert failed.status == "failed"
        after = await process.sessions.checkpoint("s")
        assert (after.epoch, after.compactions, after.compacted) == (0, 0, None)
        assert len(talker.written) == 1
        code.broken = False
        assert (await process.run(agent, "question 6", session="s", submission="m-6")).ok
        assert (await process.sessions.checkpoint("s")).compactions == 1
        assert await find_problems(process.store, "s") == []


@pytest.mark.spec("S2-204")
async def test_code_that_sees_the_request_sees_it_behind_the_notes_and_both_are_one_commit(place: Place) -> None:
    seen: list[list[str]] = []

    class Looks(Middleware):
        name = "looks"

        def before_model(self, ctx: HookContext) -> None:
            ctx.guide("mind the step", once="step")

        def model_request(self, ctx: HookContext, request: ModelRequest) -> None:
            seen.append(texts(request))

    talker = Talker()
    agent = Agent("helper", model=talker.model, middleware=[Looks()])
    async with place.process() as process:
        await talk(process, agent, *(f"question {number}" for number in range(6)))
        [change] = await changes(process)
        kinds = [entry.kind for entry in await process.sessions.entries("s", after=change.seq - 2, limit=4)]
        assert kinds[1:3] == ["prefix_changed", "operation_started"]
        assert await find_problems(process.store, "s") == []
        # What was said once stays said, though its words are summarised.
        await talk(process, agent, "one more")
        assert [entry.kind for entry in await process.sessions.entries("s")].count("note_added") == 1
        assert len((await process.sessions.checkpoint("s")).once) == 1
    assert seen[-1][0].endswith("NOTES")
    assert texts(talker.answered[-1]) == seen[-1]
    assert sum("mind the step" in text for request in talker.asked[:2] for text in texts(request)) >= 1
    assert not any("mind the step" in text for text in texts(talker.answered[-1]))


@pytest.mark.spec("S2-033")
async def test_code_that_guides_a_steer_is_asked_about_it_behind_the_notes(place: Place) -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()
    asked: list[ModelRequest] = []

    async def play(request: ModelRequest) -> Any:
        asked.append(request)
        if request.purpose == "notes":
            writing.set()
            await go_on.wait()
            return saved("NOTES")
        return Reply("word " * 1_000)

    class Guides(Middleware):
        name = "guides"

        def message_submit(self, ctx: HookContext, message: Any) -> None:
            if message.text == "and quickly":
                ctx.guide("they are in a hurry")

    agent = Agent("helper", model=FunctionModel(play, window=8_000), middleware=[Guides()])
    async with place.process() as process, process.session("s", agent) as handle:
        await talk(process, agent, *(f"question {number}" for number in range(5)))
        await handle.send("go", submission="m-1")
        await writing.wait()
        version = (await process.row()).version
        await handle.send("and quickly", deliver="steer", submission="m-2")
        go_on.set()
        await until(handle, after=version)
        kinds = [entry.kind for entry in await process.sessions.entries("s", after=version)]
        assert kinds.index("prefix_changed") < kinds.index("note_added") < kinds.index("message")
        assert await find_problems(process.store, "s") == []
    assert texts(asked[-1])[1:] == ["go", "[note] they are in a hurry", "and quickly"]
