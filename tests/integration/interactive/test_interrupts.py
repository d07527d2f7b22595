"""Stopping and failing: who asked is known before anything is cut, and a turn ends exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    ApprovalRequested,
    FunctionModel,
    Limits,
    ModelRequest,
    OperationEnded,
    OperationStarted,
    ProviderRefused,
    RateLimited,
    Reply,
    SubmissionRefused,
    ToolCall,
    TurnAborted,
    TurnCompleted,
    TurnEnded,
    TurnFailed,
    TurnLimited,
    tool,
)
from perdure.testing import find_problems

from .acting import UNKNOWN_LIVE, Place, counting, eventually, transcript, until
from .test_middleware_calls import hook


class Hanging:
    """A model that begins to speak and never ends, and knows what was durable when it was cut off."""

    def __init__(self) -> None:
        self.speaking = asyncio.Event()
        self.calls = 0
        self.durable: list[Any] = []
        self.process: Any = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | Reply]:
        self.calls += 1
        yield "half a sen"
        self.speaking.set()
        try:
            await asyncio.Event().wait()
        finally:
            row = await asyncio.shield(asyncio.ensure_future(self.process.store.submission(1, "stop")))
            self.durable.append(row)
        yield Reply()


@pytest.mark.spec("S2-094", "S2-095", "B-B-009")
async def test_an_interrupt_cuts_the_model_call_after_it_is_durable_and_its_end_names_it(place: Place) -> None:
    hanging = Hanging()
    agent = Agent("a", model=FunctionModel(hanging.stream))
    async with place.process() as process, process.session("s", agent) as handle:
        hanging.process = process
        await handle.send("go", submission="m-1")
        await hanging.speaking.wait()
        await handle.interrupt(reason="enough", submission="stop", actor="ann")
        ended = (await until(handle, after=0))[-1]
        assert isinstance(ended, TurnAborted)
        assert (ended.submission, ended.interrupt, ended.reason, ended.actor) == ("m-1", "stop", "enough", "ann")
        receipts = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded)]
        assert [(entry.operation, entry.attempt, entry.status, entry.final, entry.partial) for entry in receipts] == [
            ("t2.0.0", 1, "cancelled", True, "half a sen"),
        ]
        assert await transcript(process) == [("user", "go")]
        assert await find_problems(process.store, "s") == []
    assert hanging.calls == 1
    assert [row is not None for row in hanging.durable] == [True]


@pytest.mark.spec("S2-092", "S2-093", "S0-297")
async def test_an_interrupt_of_another_turn_or_of_none_only_says_so(place: Place) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        thinking.set()
        await go_on.wait()
        return "done"

    agent = Agent("a", model=FunctionModel(answer))
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        await thinking.wait()
        await handle.interrupt(turn="t99", submission="stale")
        refused = (await until(handle, SubmissionRefused, after=0))[-1]
        assert (refused.submission, refused.failure.code) == ("stale", "stale_turn")
        go_on.set()
        assert isinstance((await until(handle, after=0))[-1], TurnCompleted)
        await eventually(lambda: _idle(process))
        before = await process.sessions.checkpoint("s")
        with pytest.raises(perdure.SubmissionRejected, match="no turn is running"):
            await handle.interrupt(submission="idle")
        with pytest.raises(perdure.StaleRequest):
            await handle.approve("0123456789abcdef")
        assert await process.sessions.checkpoint("s") == before
        result = await process.sessions.result("s", "m-1")
        assert result is not None
        assert result.status == "completed"


async def _idle(process: Any) -> bool:
    return (await process.row()).status == "idle"


@pytest.mark.spec("S2-096")
async def test_an_interrupt_while_a_failed_model_call_waits_prevents_the_next_attempt(place: Place) -> None:
    model, asked = counting(RateLimited("slow down", retry_after=10), Reply("unreachable"))
    async with place.process() as process, process.session("s", Agent("a", model=model)) as handle:
        await handle.send("go")
        await until(handle, OperationEnded, after=0)
        await handle.interrupt()
        assert isinstance((await until(handle, after=0))[-1], TurnAborted)
        place.clock.advance(60_000)
        await eventually(lambda: _idle(process))
        started = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationStarted)]
        assert len(started) == 1
        assert await find_problems(process.store, "s") == []
    assert len(asked) == 1


@pytest.mark.spec("S2-098")
async def test_an_interrupt_while_a_tool_runs_drops_it_and_records_an_unknown_result(place: Place) -> None:
    at_work = asyncio.Event()
    cut: list[str] = []

    @tool
    async def work() -> str:
        """Never end."""
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.append("work")
        return ""

    model, asked = counting(Reply(tool_calls=[ToolCall("work", {}, "call-1")]), Reply("unreachable"))
    async with place.process() as process, process.session("s", Agent("a", model=model, tools=[work])) as handle:
        await handle.send("go")
        await at_work.wait()
        await handle.interrupt()
        assert isinstance((await until(handle, after=0))[-1], TurnAborted)
        assert await transcript(process) == [
            *[("user", "go"), ("assistant", ("call-1", {})), ("tool", ("call-1", UNKNOWN_LIVE, True))],
        ]
        assert [item.operation for item in await process.sessions.uncertain("s")] == ["t2.0.1"]
    assert (cut, len(asked)) == (["work"], 1)


@pytest.mark.spec("S2-099", "B-A-009")
async def test_a_client_that_goes_ends_nothing_and_a_process_that_closes_says_that_it_cut_the_call_off(place: Place) -> None:
    """Decided otherwise (DESIGN §7): closing a handle ends nothing that runs, and a closed runtime's turns go on elsewhere.

    What is kept of the original: the cause of the cut is on record.
    """
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        thinking.set()
        await go_on.wait()
        return "done"

    agent = Agent("a", model=FunctionModel(answer))
    async with place.process() as process:
        async with process.session("s", agent) as handle:
            await handle.send("go", submission="m-1")
            await thinking.wait()
        go_on.set()
        await eventually(lambda: _idle(process))
        assert (await process.sessions.entries("s"))[-1].kind == "turn_completed"
        thinking.clear()
        go_on.clear()
        async with process.session("s", agent) as handle:
            await handle.send("go on", submission="m-2")
            await thinking.wait()
    async with place.process() as process:
        row = await process.row()
        assert (row.holder, row.status, row.claims) == (None, "queued", 0)
        cut = (await process.sessions.entries("s"))[-1]
        assert isinstance(cut, OperationEnded)
        assert cut.failure is not None
        assert (cut.status, cut.final, cut.failure.code) == ("cancelled", False, "shutdown")
        go_on.set()
        await process.recover([agent])
        result = await process.sessions.result("s", "m-2")
        assert result is not None
        assert result.status == "completed"
        assert await process.sessions.entries("s", kinds=["turn_failed", "turn_aborted"]) == []


@pytest.mark.spec("S2-091", "S2-100", "B-B-038")
async def test_a_turn_whose_provider_fails_ends_as_failed_once_with_its_attempts(memory: Place) -> None:
    for error, attempts in ((ProviderRefused("no"), 1), (RateLimited("slow down"), 15)):
        session = type(error).__name__
        model, asked = counting(error)
        async with memory.process() as process:
            result = await process.run(Agent("a", model=model), "go", session=session)
            assert result.status == "failed"
            ends = [entry for entry in await process.sessions.entries(session) if isinstance(entry, TurnEnded)]
            assert [(type(entry), entry.failure.code) for entry in ends if isinstance(entry, TurnFailed)] == [(TurnFailed, error.code)]
            assert len(ends) == 1
            receipts = [entry for entry in await process.sessions.entries(session) if isinstance(entry, OperationEnded)]
            assert [(entry.attempt, entry.final) for entry in receipts] == [
                (number, number == attempts) for number in range(1, attempts + 1)
            ]
            checkpoint = await process.sessions.checkpoint(session)
            assert (checkpoint.turn, checkpoint.turns) == (None, 1)
        assert len(asked) == attempts


@pytest.mark.spec("S2-102")
async def test_a_turn_that_reached_its_step_limit_ends_without_another_model_call(place: Place) -> None:
    @tool(effect="pure")
    async def work() -> str:
        """Work."""
        return "worked"

    model, asked = counting(Reply(tool_calls=[ToolCall("work", {}, "1")]), Reply(tool_calls=[ToolCall("work", {}, "2")]), Reply("done"))
    async with place.process() as process:
        agent = Agent("a", model=model, tools=[work], limits=Limits(steps=2))
        result = await process.run(agent, "go", session="s")
        assert (result.status, result.steps) == ("limited", 2)
        ended = (await process.sessions.entries("s"))[-1]
        assert isinstance(ended, TurnLimited)
        assert (ended.limit, "steps" in ended.reason) == ("steps", True)
        assert len(asked) == 2
    with pytest.raises(perdure.InvalidAgent):
        Agent("a", model=model, limits=Limits(steps=0))


@pytest.mark.spec("S2-101", "B-B-037")
async def test_a_turn_that_failed_tells_what_kind_of_error_it_was_and_whether_to_try_again(memory: Place) -> None:
    for error, retryable, retry_after in (
        (RateLimited("slow down", retry_after=2.5, status=429), True, 2500),
        (ProviderRefused("no", status=400), False, None),
    ):
        model, _ = counting(error)
        async with memory.process() as process:
            result = await process.run(Agent("a", model=model), "go", session=error.code)
            assert result.failure is not None
            failure = result.failure
            assert (failure.code, failure.retryable, failure.status, failure.retry_after) == (
                *(error.code, retryable, error.facts["status"], retry_after),
            )
            ended = (await process.sessions.entries(error.code))[-1]
            assert isinstance(ended, TurnFailed)
            assert ended.failure == failure


class Gate:
    """A moment at which something stays until the test lets it go on."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def passed(self, *said: Any) -> None:
        self.reached.set()
        await self.open.wait()


def worker(gate: Gate, paid: list[str], phase: str) -> Agent:
    """An agent that calls a tool once and then answers, and stays in one of the phases on its way."""

    @tool(effect="external")
    async def pay() -> str:
        """Pay."""
        if phase == "a tool runs":
            await gate.passed()
        paid.append("paid")
        return "paid"

    async def answer(request: ModelRequest) -> Reply:
        if request.purpose == "notes":
            await gate.passed()
            return Reply(tool_calls=[ToolCall("save_notes", {"notes": "NOTES"}, "n-1")])
        if phase == "the model answers":
            await gate.passed()
        if request.messages[-1].text.startswith("question"):
            return Reply("word " * 1_000)
        return Reply("done") if request.messages[-1].role == "tool" else Reply(tool_calls=[ToolCall("pay", {}, "call-1")])

    middleware = [hook(**{phase: gate.passed})] if phase in HOOKS else []
    approve = ["pay"] if phase == "somebody is asked" else []
    return Agent("a", model=FunctionModel(answer, window=8_000), tools=[pay], approve=approve, middleware=middleware)


HOOKS = ("message_submit", "before_model", "model_request", "before_tool", "after_tool", "stop", "turn_end")
PHASES = ("the model answers", "a tool runs", "somebody is asked", "notes are written", *HOOKS)


@pytest.mark.parametrize("goes", ["lets go of its handle", "is cancelled"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_client_that_goes_in_whatever_phase_ends_nothing_and_has_nothing_done_twice(place: Place, phase: str, goes: str) -> None:
    gate, paid = Gate(), list[str]()
    agent = worker(gate, paid, phase)
    async with place.process() as process:
        for number in range(5 if phase == "notes are written" else 0):
            await process.run(agent, f"question {number}", session="s", submission=f"q-{number}")

        async def client() -> None:
            async with process.session("s", agent) as handle:
                await handle.send("go", submission="m-1")
                async for event in handle.events():
                    if isinstance(event, ApprovalRequested):
                        gate.reached.set()

        async def brief_client() -> None:
            async with process.session("s", agent) as handle:
                await handle.send("go", submission="m-1")
                if phase == "somebody is asked":
                    await until(handle, ApprovalRequested, after=0)
                else:
                    await gate.reached.wait()

        if goes == "is cancelled":
            here = asyncio.create_task(client())
            await gate.reached.wait()
            here.cancel()
            await asyncio.wait([here])
        else:
            await brief_client()
        gate.open.set()
        for asked in await process.sessions.requests("s"):
            await process.sessions.approve("s", asked.request_id)
        await process.recover([agent])
        await eventually(lambda: _idle(process))
        result = await process.sessions.result("s", "m-1")
        assert result is not None
        assert (result.status, result.text, paid) == ("completed", "done", ["paid"])
        ended = await process.sessions.entries("s", kinds=["turn_failed", "turn_aborted", "turn_limited", "recovered"])
        assert ended == []
        assert await find_problems(process.store, "s") == []
