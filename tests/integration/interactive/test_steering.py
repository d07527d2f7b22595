"""Steers join their turn at a model call and beat its end; queued messages wait for it. None is lost, late or doubled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    FunctionModel,
    MessageAdded,
    ModelRequest,
    OperationStarted,
    ProviderRefused,
    QueueChanged,
    RateLimited,
    Reply,
    ToolCall,
    TurnAborted,
    TurnCompleted,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    tool,
)
from perdure.store.base import InboxMoved
from perdure.store.memory import MemoryStore
from perdure.testing import FaultStore, find_problems
from perdure.testing.faults import Call

from .acting import Place, eventually, until


class Talk:
    """A model that waits where a test wants it to, and remembers what it was asked."""

    def __init__(self, *replies: Any) -> None:
        self.replies = replies
        self.asked: list[list[str]] = []
        self.steps: list[int] = []
        self.thinking = asyncio.Event()
        self.go_on = asyncio.Event()
        self.model = FunctionModel(self.answer)

    async def answer(self, request: ModelRequest) -> Any:
        self.asked.append([message.text for message in request.messages if message.role == "user"])
        self.steps.append(request.step)
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        self.thinking.set()
        await self.go_on.wait()
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.mark.spec("S2-028")
async def test_a_steer_is_durable_while_the_model_thinks(place: Place) -> None:
    talk = Talk(Reply("done"))
    agent = Agent("helper", model=talk.model)
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        await talk.thinking.wait()
        await handle.send("quickly", deliver="steer", submission="m-2")
        assert not talk.go_on.is_set()
        async with place.process() as other:
            assert [(row.submission_id, row.kind) for row in await other.pending()] == [("m-2", "message")]
        process.faulty.kill()
    # Its process is dead, and nothing of it is lost: the turn goes on, with the steer in it.
    talk.go_on.set()
    async with place.process() as process:
        await process.recover([agent])
        messages = [entry for entry in await process.sessions.entries("s") if isinstance(entry, MessageAdded) and entry.role == "user"]
        assert [(entry.submission, entry.deliver) for entry in messages] == [("m-1", "turn"), ("m-2", "steer")]
        assert (await process.sessions.checkpoint("s")).turns == 1
    assert talk.asked == [["go"], ["go", "quickly"]]


@pytest.mark.spec("S2-030")
async def test_a_steer_enters_the_context_only_where_a_model_call_of_its_turn_begins(place: Place) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def work() -> str:
        """Work until told otherwise."""
        at_work.set()
        await go_on.wait()
        return "worked"

    talk = Talk(Reply(tool_calls=[ToolCall("work", {}, "call-1")]), Reply("nearly"), Reply("done"))
    async with place.process() as process, process.session("s", Agent("helper", model=talk.model, tools=[work])) as handle:
        await handle.send("go", submission="m-1")
        await talk.thinking.wait()
        await handle.send("one", deliver="steer", submission="m-2")
        version = (await process.row()).version
        talk.go_on.set()
        await at_work.wait()
        await handle.send("two", deliver="steer", submission="m-3")
        # It waits while the tool runs: the model's answer and the running tool are not cut.
        assert "message user steer" not in await process.told(after=version)
        assert [row.submission_id for row in await process.pending()] == ["m-2", "m-3"]
        go_on.set()
        await until(handle, after=0)
        entries = await process.sessions.entries("s")
        steers = [index for index, entry in enumerate(entries) if isinstance(entry, MessageAdded) and entry.deliver == "steer"]
        assert [entries[index].submission for index in steers] == ["m-2", "m-3"]  # type: ignore[attr-defined]
        assert steers[1] == steers[0] + 1
        begins = entries[steers[1] + 1]
        assert isinstance(begins, OperationStarted)
        assert begins.operation == "t2.1.0"
        assert entries[-1].turn == "t2"  # type: ignore[attr-defined]
        assert await find_problems(process.store, "s") == []
    assert talk.asked == [["go"], ["go", "one", "two"]]


class Work:
    """A tool that works until told otherwise."""

    def __init__(self) -> None:
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

        @tool(effect="pure")
        async def work() -> str:
            """Work until told otherwise."""
            self.began.set()
            await self.go_on.wait()
            return "worked"

        self.tool = work


@pytest.mark.spec("S2-030")
async def test_a_steer_that_comes_while_the_inbox_is_being_read_joins_the_call_behind_the_tool(place: Place) -> None:
    armed, reading, read = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def gate(call: Call, when: str) -> None:
        if armed.is_set() and call.kind == "inbox" and when == "after":
            armed.clear()
            reading.set()
            await read.wait()

    talk, work = Talk(Reply(tool_calls=[ToolCall("work", {}, "call-1")]), Reply("done")), Work()
    talk.go_on.set()
    agent = Agent("helper", model=talk.model, tools=[work.tool])
    async with place.process(gate=gate) as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        await work.began.wait()
        armed.set()
        process.news.notice("s", sure=True)
        await reading.wait()
        # What was read doesn't hold it, and both the tool's end and the steer are known before anything is decided.
        await handle.send("quickly", deliver="steer", submission="m-2")
        work.go_on.set()
        await eventually(lambda: process.work.drivers["s"]._work.reports)
        read.set()
        await until(handle, after=0)
    assert talk.asked == [["go"], ["go", "quickly"]]


@pytest.mark.spec("S2-030")
async def test_a_steer_of_another_process_joins_the_call_behind_the_tool_though_nobody_told_of_it(place: Place) -> None:
    talk, work = Talk(Reply(tool_calls=[ToolCall("work", {}, "call-1")]), Reply("done")), Work()
    talk.go_on.set()
    agent = Agent("helper", model=talk.model, tools=[work.tool])
    async with place.process() as process, place.process() as other:
        process.faulty.changes = lambda listener: lambda: None  # type: ignore[method-assign]
        async with process.session("s", agent) as handle:
            await handle.send("go", submission="m-1")
            await work.began.wait()
            await other.sessions.send("s", "quickly", deliver="steer", submission="m-2")
            work.go_on.set()
            await until(handle, after=0)
    assert talk.asked == [["go"], ["go", "quickly"]]


async def test_what_another_runtime_of_the_same_store_sends_behind_a_commit_that_is_not_answered_yet_is_heard() -> None:
    async def gate(call: Call, when: str) -> None:
        # It is stored, and announced; whoever made it has not heard of that, and hears of what was sent before it does.
        if (call.kind, call.nth, when) == ("commit", 2, "after"):
            await sender.sessions.interrupt("s")
            for _ in range(10):
                await asyncio.sleep(0)

    talk, work = Talk(Reply(tool_calls=[ToolCall("work", {}, "call-1")])), Work()
    talk.go_on.set()
    store = FaultStore(MemoryStore(), gate=gate)
    async with perdure.open(store) as runtime, perdure.open(store) as sender, asyncio.timeout(20):
        agent = Agent("helper", model=talk.model, tools=[work.tool])
        assert (await runtime.run(agent, "go", session="s", submission="m-1")).status == "aborted"


@pytest.mark.spec("S2-031")
async def test_a_steer_that_is_ready_when_the_model_ends_the_turn_wins(place: Place) -> None:
    talk = Talk(Reply("done"), Reply("done again"))
    async with place.process() as process, process.session("s", Agent("helper", model=talk.model)) as handle:
        await handle.send("go", submission="m-1")
        await talk.thinking.wait()
        await handle.send("one more thing", deliver="steer", submission="m-2")
        talk.go_on.set()
        await until(handle, after=0)
        words = await process.told(after=4)
        assert words == [
            *["ended t2.0.0#1 succeeded", "message assistant", "message user steer", "started t2.1.0#1"],
            *["ended t2.1.0#1 succeeded", "message assistant", "turn_completed t2"],
        ]
        result = await process.sessions.result("s", "m-1")
        assert result is not None
        assert result.output == "done again"


@pytest.mark.spec("S2-031")
async def test_a_steer_that_commits_while_the_end_of_the_turn_is_on_its_way_still_wins(place: Place) -> None:
    """The commit that ends a turn names the inbox that it saw; this one comes too late by one steer."""
    talk = Talk(Reply("done"), Reply("done again"))
    talk.go_on.set()
    agent = Agent("helper", model=talk.model)
    raced = False

    async def gate(call: Call, when: str) -> None:
        nonlocal raced
        ends = call.kind == "commit" and any(entry.kind == "turn_completed" for entry in call.given.entries)
        if ends and when == "before" and not raced:
            raced = True
            await process.sessions.send("s", "one more thing", deliver="steer", submission="m-2")

    async with place.process(gate=gate) as process:
        result = await process.run(agent, "go", session="s", submission="m-1")
        assert (result.output, result.steps) == ("done again", 2)
        steered = [entry for entry in await process.sessions.entries("s") if isinstance(entry, MessageAdded) and entry.deliver == "steer"]
        assert [entry.submission for entry in steered] == ["m-2"]
        assert (await process.sessions.checkpoint("s")).turns == 1
        assert await process.pending() == []
    assert raced


@pytest.mark.spec("S2-032")
async def test_a_steer_that_comes_while_a_failed_model_call_waits_is_in_the_next_attempts_request(place: Place) -> None:
    talk = Talk(RateLimited("slow down", retry_after=10), Reply("done"))
    talk.go_on.set()
    async with place.process() as process, process.session("s", Agent("helper", model=talk.model)) as handle:
        await handle.send("go", submission="m-1")
        await until(handle, perdure.OperationEnded, after=0)
        await handle.send("quickly", deliver="steer", submission="m-2")
        await eventually(lambda: _said(process, "message user steer"))
        assert talk.asked == [["go"]]
        place.clock.advance(10_000)
        await until(handle, after=0)
        assert "turn_completed t2" in await process.told()
    assert talk.asked == [["go"], ["go", "quickly"]]
    assert talk.steps == [0, 0]


async def _worked_off(process: Any) -> bool:
    return (await process.row()).status == "idle" and not await process.pending()


async def _said(process: Any, word: str) -> bool:
    return word in await process.told()


@pytest.mark.spec("S2-034")
async def test_a_queued_message_begins_one_turn_and_only_after_the_end_of_the_running_one(place: Place) -> None:
    talk = Talk(Reply("done"))
    async with place.process() as process, process.session("s", Agent("helper", model=talk.model)) as handle:
        await handle.send("go", submission="m-1")
        await talk.thinking.wait()
        await handle.send("then this", deliver="queue", submission="m-2")
        await handle.send("then that", submission="m-3")
        talk.go_on.set()
        await until(handle, count=3, after=0)
        turns = [entry for entry in await process.sessions.entries("s") if isinstance(entry, TurnStarted | TurnEnded)]
        assert [(type(entry), entry.submission) for entry in turns] == [
            *[(TurnStarted, "m-1"), (TurnCompleted, "m-1"), (TurnStarted, "m-2"), (TurnCompleted, "m-2")],
            *[(TurnStarted, "m-3"), (TurnCompleted, "m-3")],
        ]
        assert talk.asked == [["go"], ["go", "then this"], ["go", "then this", "then that"]]
        assert await process.pending() == []


@pytest.mark.spec("S2-035")
@pytest.mark.parametrize("ending", ["aborted", "failed", "limited"])
async def test_steers_that_a_turn_leaves_undelivered_become_turns_in_the_commit_that_ends_it(place: Place, ending: str) -> None:
    @tool(effect="pure")
    async def work() -> str:
        """Work."""
        return "worked"

    calls = [ToolCall("work", {}, "1"), ToolCall("work", {}, "2")]
    first = {"aborted": Reply("unheard"), "failed": ProviderRefused("no"), "limited": Reply(tool_calls=calls)}[ending]
    talk = Talk(first, Reply("done"))
    agent = Agent("helper", model=talk.model, tools=[work], limits=perdure.Limits(tool_calls=1))
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        await talk.thinking.wait()
        await handle.send("one", deliver="steer", submission="m-2")
        await handle.send("two", deliver="steer", submission="m-3")
        if ending == "aborted":
            await handle.interrupt()
        talk.go_on.set()
        await until(handle, count=3, after=0)
        closing = next(
            commit.entries for commit in process.faulty.commits if any(entry.kind == f"turn_{ending}" for entry in commit.entries)
        )
        assert [entry.kind for entry in closing].count("queue_changed") == 2
        entries = await process.sessions.entries("s")
        promoted = [entry for entry in entries if isinstance(entry, QueueChanged)]
        assert [(entry.submission, entry.deliver) for entry in promoted] == [("m-2", "queue"), ("m-3", "queue")]
        messages = [entry for entry in entries if isinstance(entry, MessageAdded) and entry.role == "user"]
        assert [(entry.submission, entry.deliver) for entry in messages] == [("m-1", "turn"), ("m-2", "queue"), ("m-3", "queue")]
        ends = [(type(entry), entry.submission) for entry in entries if isinstance(entry, TurnEnded)]
        kind = {"aborted": TurnAborted, "failed": TurnFailed, "limited": perdure.TurnLimited}[ending]
        assert ends == [(kind, "m-1"), (TurnCompleted, "m-2"), (TurnCompleted, "m-3")]
        assert await find_problems(process.store, "s") == []


@pytest.mark.spec("S2-039")
@pytest.mark.parametrize("deliver", ["turn", "queue", "steer", "both"])
async def test_a_flood_of_submissions_does_not_keep_a_finished_model_call_or_tool_from_being_seen(place: Place, deliver: str) -> None:
    """Each commit comes too late by one more message; after three it is made all the same, and only a steer makes the turn longer."""

    @tool(effect="pure")
    async def work() -> str:
        """Work."""
        return "worked"

    talk = Talk(Reply(tool_calls=[ToolCall("work", {})]), Reply("done"))
    talk.go_on.set()
    sent = refused = longest = 0

    async def gate(call: Call, when: str) -> None:
        nonlocal sent, refused, longest
        if call.kind == "commit" and when == "after":
            refused = refused + 1 if isinstance(call.answer, InboxMoved) else 0
            longest = max(longest, refused)
        elif call.kind == "commit" and sent < 20 and process.work.drivers["s"].held:
            sent += 1
            kind: Any = ("steer", "queue")[sent % 2] if deliver == "both" else deliver
            await process.sessions.send("s", f"flood {sent}", deliver=kind, submission=f"flood-{sent}")

    agent = Agent("helper", model=talk.model, tools=[work])
    async with place.process(gate=gate) as process:
        result = await process.run(agent, "go", session="s", submission="m-1")
        assert result.status == "completed"
        if deliver in ("turn", "queue"):
            assert result.steps == 2
        await eventually(lambda: _worked_off(process))
        entries = await process.sessions.entries("s")
        accepted = [entry.submission for entry in entries if isinstance(entry, MessageAdded) and entry.role == "user"]
        # None is lost and none comes twice.
        assert sorted(accepted) == sorted(["m-1", *(f"flood-{number}" for number in range(1, sent + 1))])
        assert await process.pending() == []
        assert await find_problems(process.store, "s") == []
    assert 0 < longest <= 3
