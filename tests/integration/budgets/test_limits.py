"""Limits of turns, runs and sessions, through real stores and restarts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import Agent, FunctionModel, Limits, ModelRequest, Reply, ToolCall, TurnLimited, Usage, tool, usd
from perdure.runtime.verify import verify
from perdure.testing.checks import find_all_problems
from perdure.testing.faults import Fault

from ..interactive.acting import Place

FIFTEEN = Usage(input_tokens=10, output_tokens=5)


@tool(effect="pure")
async def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


def looker(steps: int, asked: list[ModelRequest] | None = None, **options: Any) -> Agent:
    """It looks so many times, then it answers."""

    def play(request: ModelRequest) -> Reply:
        if asked is not None:
            asked.append(request)
        done = sum(message.role == "tool" for message in request.messages)
        if done < steps:
            return Reply(f"look {done}", tool_calls=[ToolCall("look", {"place": f"p{done}"})], usage=FIFTEEN)
        return Reply("done", usage=FIFTEEN)

    return Agent("looker", model=FunctionModel(play), tools=[look], **options)


async def sound(runtime: perdure.Runtime) -> None:
    assert [str(problem) async for problem in verify(runtime.store)] == []
    assert await find_all_problems(runtime.store) == []


async def ended_at(process: Any, session: str = "s") -> TurnLimited:
    last = (await process.sessions.entries(session))[-1]
    assert isinstance(last, TurnLimited)
    return last


@pytest.mark.spec("S0-068", "S0-053", "S0-061")
async def test_a_limit_that_is_not_reached_stops_nothing_and_counts_the_same_after_a_replay(place: Place) -> None:
    asked: list[ModelRequest] = []
    agent = looker(1, asked, limits=Limits(tokens=1_000))
    async with place.process() as process:
        result = await process.run(agent, "go", session="s", submission="m")
        assert (result.status, result.usage.total_tokens) == ("completed", 30)
        again = await process.run(agent, "go", session="s", submission="m")
        assert again == result
        assert len(asked) == 2
        assert (await process.sessions.checkpoint("s")).usage.total_tokens == 30
        await sound(process)


@pytest.mark.spec("S0-268")
async def test_a_turn_that_reached_a_limit_says_which_and_keeps_the_last_text(place: Place) -> None:
    async with place.process() as process:
        result = await process.run(looker(9, limits=Limits(tokens=30)), "go", session="s")
        assert (result.status, result.output, result.reason) == ("limited", "look 1", "limit reached: tokens")
        ended = await ended_at(process)
        assert ended.reached == perdure.Reached(scope="turn", used=30, allowed=30)
        await sound(process)


async def test_a_runs_limits_belong_to_its_submission_and_only_tighten(place: Place) -> None:
    agent = looker(9, limits=Limits(model_calls=3))
    async with place.process() as process:
        tight = await process.run(agent, "go", session="a", submission="m", limits=Limits(model_calls=2))
        assert (tight.status, tight.usage.calls, (await ended_at(process, "a")).reached.scope) == ("limited", 2, "run")  # type: ignore[union-attr]
        wide = await process.run(agent, "go", session="b", submission="m", limits=Limits(model_calls=9))
        assert (wide.usage.calls, (await ended_at(process, "b")).reached.scope) == (3, "turn")  # type: ignore[union-attr]
        assert await process.run(agent, "go", session="a", submission="m", limits=Limits(model_calls=2)) == tight
        with pytest.raises(perdure.SubmissionConflict):
            await process.run(agent, "go", session="a", submission="m", limits=Limits(model_calls=5))
        with pytest.raises(perdure.UsageError, match="a steer begins none"):
            await process.sessions.send("a", "more", deliver="steer", limits=Limits(tokens=3))
        await sound(process)


async def test_a_sessions_limits_count_all_its_turns_also_those_before_there_were_any(place: Place) -> None:
    async with place.process() as process:
        await process.run(looker(2), "one", session="s")
    async with place.process() as process:
        result = await process.run(looker(9, session_limits=Limits(tool_calls=3)), "two", session="s")
        ended = await ended_at(process)
        assert (result.status, result.tool_calls) == ("limited", 1)
        assert (ended.limit, ended.reached) == ("tool_calls", perdure.Reached(scope="session", used=3, allowed=3))
    async with place.process() as process:
        raised = await process.resume(looker(6, session_limits=Limits(tool_calls=5)), "s")
        assert (raised.status, raised.tool_calls) == ("completed", 2)
        await sound(process)
        await sound(process)


async def test_a_limited_turn_goes_on_once_its_limit_is_raised_and_does_nothing_twice(place: Place) -> None:
    asked: list[ModelRequest] = []
    agent = looker(3, asked, limits=Limits(tokens=30))
    async with place.process() as process:
        limited = await process.run(agent, "go", session="s", submission="m")
        assert limited.status == "limited"
    async with place.process() as process:
        went_on = await process.resume(agent, "s", Limits(tokens=60), submission="more")
        assert (went_on.status, went_on.output, went_on.usage.total_tokens) == ("completed", "done", 30)
        assert len(asked) == 4
        assert await process.resume(agent, "s", Limits(tokens=60), submission="more") == went_on
        assert len(asked) == 4
        # The limited turn stays what it was, and the ledger has every call once.
        assert await process.run(agent, "go", session="s", submission="m") == limited
        assert len(await process.sessions.model_calls("s")) == 4
        with pytest.raises(perdure.SubmissionRejected, match="no limit"):
            await process.resume(agent, "s", Limits(tokens=99))
        await sound(process)


async def test_going_on_counts_what_was_used_before_and_may_be_limited_again(place: Place) -> None:
    agent = looker(9, limits=Limits(model_calls=2))
    async with place.process() as process:
        await process.run(agent, "go", session="s")
        again = await process.resume(agent, "s")
        assert (again.status, again.usage.calls) == ("limited", 0)
        more = await process.resume(agent, "s", Limits(model_calls=3))
        assert (more.status, more.usage.calls) == ("limited", 1)
        async with process.session("s", agent) as handle:
            await handle.resume(Limits(model_calls=99), submission="r")
            async for event in handle.events():
                if isinstance(event, perdure.TurnEnded):
                    break
        last = await process.sessions.result("s", "r")
        assert last is not None
        assert last.ok
        await sound(process)


@pytest.mark.spec("S0-121")
@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_budget_is_the_ledger_wherever_the_process_dies(place: Place, nth: int, when: Any) -> None:
    """Two calls fit; whichever commit the process dies at, what was counted is what was called."""
    asked: list[ModelRequest] = []
    agent = looker(5, asked, limits=Limits(model_calls=4, tool_calls=3))

    async with place.process(Fault(kind="commit", nth=nth, when=when, action="die")) as process:
        with suppress(perdure.StoreError):
            await process.run(agent, "go", session="s", submission="m")
    place.clock.advance(60_000)
    async with place.process() as process:
        result = await process.run(agent, "go", session="s", submission="m")
        calls = await process.sessions.model_calls("s")
        assert result.status == "limited"
        # A call that was to be made when the process died may have been made, and counts.
        assert len(asked) <= len(calls) == result.usage.calls <= 4
        assert result.spending.known == result.usage
        receipts = await process.sessions.entries("s", kinds=["operation_ended"])
        ran = {entry.operation for entry in receipts if isinstance(entry, perdure.OperationEnded) and entry.parts and entry.attempt}
        assert result.tool_calls == len(ran - {call.operation for call in calls}) <= 3
        await sound(process)


@pytest.mark.spec("S0-272")
async def test_time_that_a_person_takes_is_nobodys_budget(place: Place) -> None:
    agent = looker(1, limits=Limits(seconds=5)).replace(approve=["look"])
    async with place.process() as process:
        running = asyncio.create_task(process.run(agent, "go", session="s"))
        while await process.store.load("s") is None or not await process.sessions.requests("s"):
            await asyncio.sleep(0)
        place.clock.advance(3_600_000)
        (request,) = await process.sessions.requests("s")
        await process.sessions.approve("s", request.request_id)
        assert (await running).ok


@pytest.mark.spec("S0-291")
async def test_a_turn_whose_agent_says_nothing_about_steps_ends_after_fifty(place: Place) -> None:
    async with place.process() as process:
        result = await process.run(looker(60), "go", session="s")
        assert (result.status, result.reason, result.usage.calls) == ("limited", "limit reached: steps", 50)
        more = await process.run(looker(60, limits=Limits(steps=10**9)), "go", session="t")
        assert (more.status, more.usage.calls) == ("completed", 61)


@pytest.mark.spec("S0-273")
async def test_an_agent_that_is_called_has_counters_of_its_own_and_what_it_used_is_its_callers_too(place: Place) -> None:
    def leads(request: ModelRequest) -> Reply:
        told = any(message.role == "tool" for message in request.messages)
        return Reply("done", usage=FIFTEEN) if told else Reply(tool_calls=[ToolCall("looker", {"task": "look"})], usage=FIFTEEN)

    worker = looker(1, instructions="Look.", limits=Limits(model_calls=2))
    lead = Agent("lead", model=FunctionModel(leads), tools=[worker.as_tool(description="Looks.")], limits=Limits(model_calls=4))
    async with place.process() as process:
        result = await process.run(lead, "go", session="s")
        assert (result.status, result.usage.calls, len(result.model_calls)) == ("completed", 4, 2)
        tight = await process.run(lead.replace(limits=Limits(model_calls=3)), "go", session="t")
        assert (tight.status, tight.usage.calls) == ("limited", 3)
        await sound(process)


async def test_a_compaction_is_a_model_call_of_the_budget(place: Place) -> None:
    def play(request: ModelRequest) -> Reply:
        if request.purpose == "notes":
            return Reply(tool_calls=[ToolCall("save_notes", {"notes": "so far"})], usage=FIFTEEN)
        return Reply("word " * 200, usage=FIFTEEN)

    agent = Agent("a", model=FunctionModel(play), session_limits=Limits(model_calls=3))
    async with place.process() as process:
        await process.run(agent, "one", session="s")
        await process.run(agent, "two", session="s")
        compacting = await process.sessions.compact("s")
        async with process.session("s", agent) as handle:
            async for event in handle.events(after=0):
                if isinstance(event, perdure.TurnEnded) and event.submission == compacting.id:
                    break
        assert [call.kind for call in await process.sessions.model_calls("s")] == ["model", "model", "compaction"]
        result = await process.run(agent, "three", session="s")
        assert (result.status, result.usage.calls) == ("limited", 0)


@pytest.mark.spec("S0-292")
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(steps=0), "steps=0.*at least 1"),
        (Limits(tokens=0), "tokens=0.*at least 1"),
        (Limits(cost=-5), "cost=-5.*usd"),
        (Limits(seconds=0), "seconds=0"),
        (Limits(seconds=2**53), "seconds"),
        (Limits(model_calls=True), "model_calls=True"),
        (Limits(cost=1.5), "cost=1.5"),  # type: ignore[arg-type]
        (Limits(steps=2**60), "steps"),
        (Limits(strict=1), "strict"),  # type: ignore[arg-type]
        ({"tokens": 3}, "Limits"),
    ],
)
async def test_limits_that_are_none_are_refused_and_nothing_is_stored(place: Place, limits: Any, words: str) -> None:
    with pytest.raises(perdure.InvalidAgent, match=words):
        looker(1, limits=limits)
    with pytest.raises(perdure.InvalidAgent, match=words):
        looker(1, session_limits=limits)
    async with place.process() as process:
        with pytest.raises(perdure.UsageError, match=words):
            await process.run(looker(1), "go", session="s", limits=limits)
        with pytest.raises(perdure.UsageError, match=words):
            await process.sessions.resume("s", limits)
        assert await process.store.load("s") is None


async def test_no_tool_call_at_all_is_a_limit_that_makes_sense(place: Place) -> None:
    async with place.process() as process:
        result = await process.run(looker(1, limits=Limits(tool_calls=0)), "go", session="s")
        assert (result.status, result.tool_calls, result.reason) == ("limited", 0, "limit reached: tool_calls")
        receipts = await process.sessions.entries("s", kinds=["operation_ended"])
        assert [entry.attempt for entry in receipts if isinstance(entry, perdure.OperationEnded)] == [1, 0]


def test_dollars_are_counted_in_billionths() -> None:
    assert [usd(amount) for amount in (2, 2.5, 0.1, 0.000000001, 0)] == [2_000_000_000, 2_500_000_000, 100_000_000, 1, 0]
    for wrong in (-1, float("nan"), float("inf"), 1e12, True, "2"):
        with pytest.raises(perdure.UsageError, match="no amount"):
            usd(wrong)  # type: ignore[arg-type]
