"""Messages at their boundary: what the agent's own code rejects, and what becomes of a message whose hook fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    Agent,
    FunctionModel,
    HookContext,
    HookFailed,
    Message,
    MessageAdded,
    Middleware,
    Reject,
    Reply,
    SubmissionRefused,
    SubmissionRejected,
    TurnAborted,
    TurnCompleted,
    TurnEnded,
    TurnFailed,
    TurnStarted,
)
from perdure.runtime.verify import verify
from perdure.testing import find_problems

from .acting import Place, counting, eventually, until


class Door(Middleware):
    """Lets messages in, unless it is told otherwise."""

    name = "door"

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]
        self.seen: list[tuple[str, str, str]] = []

    async def message_submit(self, ctx: HookContext, message: Message) -> Reject | None:
        self.seen.append((ctx.turn, ctx.author, message.text))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            ctx.guide(answer, once="welcome")
            return None
        return answer


async def sound(process: Any, session: str = "s") -> None:
    """Nothing that is stored contradicts anything else."""
    assert await find_problems(process.store, session) == []
    assert [str(problem) async for problem in verify(process.store)] == []


@pytest.mark.spec("S2-001", "S2-002", "S2-003")
async def test_a_message_whose_hook_fails_stays_in_the_queue_and_no_turn_of_it_is_durable(place: Place) -> None:
    model, asked = counting(Reply("hello"))
    door = Door(RuntimeError("the door is stuck"))
    async with place.process() as process, process.session("s", Agent("helper", model=model, middleware=[door])) as handle:
        await handle.send("survive restart", submission="m-1")
        (*_, failed) = await until(handle, HookFailed, after=0)
        async with place.process() as other:
            row = await other.row()
            assert [(item.submission_id, item.consumed_seq) for item in await other.pending()] == [("m-1", None)]
            assert (row.version, row.status, row.holder) == (1, "queued", None)
            assert (await other.sessions.checkpoint("s")).turn is None
    assert (failed.extension, failed.hook, failed.submission) == ("door", "message_submit", "m-1")
    assert failed.message == "RuntimeError: the door is stuck"
    assert asked == []


@pytest.mark.spec("S2-004", "S2-005", "S2-006")
async def test_the_next_start_delivers_it_without_another_submission_and_calls_the_model_once(place: Place) -> None:
    model, asked = counting(Reply("hello"))
    agent = Agent("helper", model=model, middleware=[Door(RuntimeError("once"))])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("survive restart", submission="m-1")
        await until(handle, HookFailed, after=0)
        process.faulty.kill()
    async with place.process() as process:
        await process.recover([agent])
        assert await process.pending() == []
        result = await process.sessions.result("s", "m-1")
        assert result is not None
        assert (result.status, result.output) == ("completed", "hello")
        await sound(process)
    assert len(asked) == 1


@pytest.mark.spec("S2-003")
async def test_it_is_tried_again_later_each_time_and_never_in_a_hot_loop(memory: Place) -> None:
    model, asked = counting(Reply("hello"))
    door = Door(*[RuntimeError("not yet")] * 10)
    async with memory.process() as process, process.session("s", Agent("helper", model=model, middleware=[door])) as handle:
        began = memory.clock.now()
        await handle.send("let me in", submission="m-1")
        events = await until(handle, TurnEnded, after=0)
        waits = [event.retry_at - began for event in events if isinstance(event, HookFailed)]
        assert [later - sooner for sooner, later in zip([0, *waits], waits, strict=False)] == [
            *[200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600],
            *[30_000, 30_000],
        ]
        assert isinstance(events[-1], TurnCompleted)
        await sound(process)
    assert len(door.seen) == 11
    assert len(asked) == 1


async def test_a_message_that_was_withdrawn_while_its_hook_fails_lets_the_next_one_in(memory: Place) -> None:
    model, _ = counting(Reply("hello"))
    door = Door(*[RuntimeError("never")] * 3)
    async with memory.process() as process, process.session("s", Agent("helper", model=model, middleware=[door])) as handle:
        await handle.send("poison", submission="m-1")
        await until(handle, HookFailed, after=0)
        await handle.send("wholesome", submission="m-2")
        await process.sessions.withdraw("s", "m-1")
        door.answers.clear()
        await until(handle, TurnEnded, after=0)
        assert (await process.sessions.result("s", "m-2")).output == "hello"  # type: ignore[union-attr]
        await sound(process)


@pytest.mark.spec("S2-019", "S2-016")
async def test_a_rejected_prompt_leaves_a_turn_that_was_aborted_and_its_text_nowhere(place: Place) -> None:
    model, asked = counting(Reply("hello"))

    class Kept(Middleware):
        name = "kept"

        def message_submit(self, ctx: HookContext, message: Message) -> None:
            ctx.guide("a stranger wrote this", once="stranger")
            ctx.state["last"] = message.text

    door = Door(Reject("no jewels, please"))
    async with place.process() as process, process.session("s", Agent("helper", model=model, middleware=[Kept(), door])) as handle:
        await handle.send("steal the sapphire", submission="m-1", actor="mallory")
        await until(handle, TurnEnded, after=0)
        await eventually(lambda: handle._driver is not None and not handle._driver.held)
        entries = await process.sessions.entries("s")
        assert [entry.kind for entry in entries] == ["session_created", "turn_started", "turn_aborted"]
        ended = entries[-1]
        assert isinstance(ended, TurnAborted)
        assert (ended.reason, ended.extension, ended.submission) == ("no jewels, please", "door", "m-1")
        row = await process.row()
        assert b"sapphire" not in row.checkpoint
        assert row.title == ""
        assert all(b"sapphire" not in (item.body or b"") for item in await process.store.entries(row.no))
        assert all(item.body is None or b"sapphire" not in item.body for item in [await process.store.submission(row.no, "m-1")])  # type: ignore[union-attr]
        assert (await process.sessions.checkpoint("s")).once == ()
        assert (await process.sessions.result("s", "m-1")).status == "aborted"  # type: ignore[union-attr]
        await sound(process)
    assert asked == []


@pytest.mark.spec("S2-020")
async def test_the_prompt_after_a_rejected_one_runs_as_if_nothing_had_been(place: Place) -> None:
    model, asked = counting(Reply("hello"))
    agent = Agent("helper", model=model, middleware=[Door(Reject("no"))])
    async with place.process() as process:
        first = await process.run(agent, "steal", session="s", submission="m-1")
        second = await process.run(agent, "help", session="s", submission="m-2")
        assert (first.status, first.reason, second.status, second.output) == ("aborted", "no", "completed", "hello")
        assert (await process.row()).title == "help"
        await sound(process)
    assert [[message.text for message in request.messages] for request in asked] == [["help"]]


@pytest.mark.spec("S2-203", "S2-204")
async def test_guidance_stands_before_its_message_and_in_no_transcript(place: Place) -> None:
    model, asked = counting(Reply("hello"))
    door = Door("They are new here.", "They are new here.")
    agent = Agent("helper", model=model, middleware=[door])
    async with place.process() as process:
        await process.run(agent, "one", session="s", submission="m-1")
        # Given once: the second message brings none.
        await process.run(agent, "two", session="s", submission="m-2")
        assert [message.text for message in await process.sessions.history("s")] == ["one", "hello", "two", "hello"]
        await sound(process)
    texts = [[message.text for message in request.messages] for request in asked]
    assert texts == [["[note] They are new here.", "one"], ["[note] They are new here.", "one", "hello", "two"]]


@pytest.mark.spec("S2-040")
async def test_a_rejected_steer_is_dropped_alone_and_every_steer_passes_the_hooks(place: Place) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def think(request: Any) -> Reply:
        thinking.set()
        await go_on.wait()
        return Reply(f"after {len(request.messages)}")

    door = Door(None, None, Reject("not that"), None)
    agent = Agent("helper", model=FunctionModel(think), middleware=[door])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1", actor="ann")
        await thinking.wait()
        for number, text in enumerate(["left", "over the cliff", "right"]):
            await handle.send(text, submission=f"steer-{number}", deliver="steer", actor="bob")
        go_on.set()
        await until(handle, TurnEnded, after=0)
        entries = await process.sessions.entries("s")
        taken = [entry.parts[0].content for entry in entries if isinstance(entry, MessageAdded) and entry.role == "user"]  # type: ignore[union-attr]
        refused = [entry for entry in entries if isinstance(entry, SubmissionRefused)]
        assert taken == ["go", "left", "right"]
        assert [(entry.submission, entry.failure.code, entry.failure.message) for entry in refused] == [("steer-1", "rejected", "not that")]
        with pytest.raises(SubmissionRejected, match="not that"):
            await process.sessions.result("s", "steer-1")
        assert sum(isinstance(entry, TurnStarted) for entry in entries) == 1
        await sound(process)
    assert door.seen == [("", "ann", "go"), ("t2", "bob", "left"), ("t2", "bob", "over the cliff"), ("t2", "bob", "right")]


@pytest.mark.spec("S2-040")
async def test_a_steer_whose_hook_fails_ends_the_turn_and_becomes_the_next_one(place: Place) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def think(request: Any) -> Reply:
        thinking.set()
        await go_on.wait()
        return Reply("done")

    door = Door(None, ValueError("what?"))
    agent = Agent("helper", model=FunctionModel(think), middleware=[door])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        await thinking.wait()
        await handle.send("left", submission="m-2", deliver="steer")
        go_on.set()
        events = [event for event in await until(handle, TurnEnded, after=0, count=2) if isinstance(event, TurnEnded)]
        assert isinstance(events[0], TurnFailed)
        assert events[0].failure.code == "hook_failed"
        assert events[0].failure.message == "the hook message_submit of the middleware 'door' failed: ValueError: what?"
        assert isinstance(events[1], TurnCompleted)
        assert events[1].submission == "m-2"
        await sound(process)


async def test_a_hook_that_hangs_holds_nobody_up_and_is_let_go_once_nobody_waits_for_it(place: Place) -> None:
    hanging, let_go = asyncio.Event(), asyncio.Event()

    class Slow(Middleware):
        name = "slow"

        async def message_submit(self, ctx: HookContext, message: Message) -> None:
            if message.text == "first":
                hanging.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    let_go.set()

    model, _ = counting(Reply("hello"))
    agent = Agent("helper", model=model, middleware=[Slow()])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("first", submission="m-1")
        await hanging.wait()
        # What others send meanwhile is taken; a message can be taken back.
        await process.sessions.note("s", "hurry", submission="n-1")
        await process.sessions.withdraw("s", "m-1")
        await handle.send("second", submission="m-2")
        await until(handle, TurnEnded, after=0)
        await let_go.wait()
        assert (await process.sessions.result("s", "m-2")).output == "hello"  # type: ignore[union-attr]
        await sound(process)


async def test_a_hook_that_takes_too_long_or_answers_nonsense_is_a_fault_that_says_so(memory: Place) -> None:
    class Odd(Middleware):
        name = "odd"
        timeout = 5.0

        def __init__(self) -> None:
            self.times = 0

        async def message_submit(self, ctx: HookContext, message: Message) -> Any:
            self.times += 1
            if self.times == 1:
                return "no"
            if self.times == 2:
                return Reject(" ")
            if self.times == 3:
                await asyncio.Event().wait()
            return None

    model, _ = counting(Reply("hello"))
    async with memory.process() as process, process.session("s", Agent("helper", model=model, middleware=[Odd()])) as handle:
        await handle.send("hello?", submission="m-1")
        events = await until(handle, TurnEnded, after=0)
        told = [event.message for event in events if isinstance(event, HookFailed)]
        assert told == [
            "its outcome is 'no', not Reject or None",
            "UsageError: a reason must say something, not ' '",
            "no outcome within 5.0 s",
        ]
        assert isinstance(events[-1], TurnCompleted)
        await sound(process)


@pytest.mark.spec("S2-017")
async def test_a_hook_has_no_way_to_put_a_message_into_the_conversation(memory: Place) -> None:
    class Ghost(Middleware):
        name = "ghost"

        async def message_submit(self, ctx: HookContext, message: Message) -> None:
            ctx.guide("somebody is at the door")

    model, _ = counting(Reply("hello"))
    async with memory.process() as process:
        await process.run(Agent("helper", model=model, middleware=[Ghost()]), "hi", session="s", submission="m-1")
        # What it says is a note, and never a message of anybody's.
        assert [(message.role, message.author) for message in await process.sessions.history("s")] == [("user", ""), ("assistant", "")]
        notes = [entry for entry in await process.sessions.entries("s") if entry.kind == "note_added"]
        assert [entry.extension for entry in notes] == ["ghost"]  # type: ignore[attr-defined]
    public = {name for name in dir(HookContext) if not name.startswith("_")}
    assert not public & {"send", "post", "enqueue", "sessions", "runtime", "store", "session"}
