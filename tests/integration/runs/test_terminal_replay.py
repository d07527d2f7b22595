"""A run that is over answers the same for ever, changes nothing by it, and is heard of by each who wants to, until they say so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import (
    Agent,
    Entry,
    FunctionModel,
    HookContext,
    Limits,
    Middleware,
    ProviderRefused,
    Reply,
    SubmissionConflict,
    ToolCall,
    TurnEnded,
    Usage,
    tool,
)
from perdure.testing.faults import WRITES, Fault, ProcessDied
from tests.integration.interactive.acting import Place, Process, eventually

from .seed import SESSION, Seed, Stored


class Loud(Middleware):
    """Code of the agent's own, which should be quiet when nothing happens."""

    name = "loud"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def message_submit(self, ctx: HookContext, message: Any) -> None:
        self.calls.append("message_submit")

    def before_model(self, ctx: HookContext) -> None:
        self.calls.append("before_model")

    def turn_end(self, ctx: HookContext, outcome: Any) -> None:
        self.calls.append("turn_end")


def agents() -> dict[str, tuple[Agent, list[str], Loud]]:
    """An agent for each way in which a run ends, and what it does outside."""
    found: dict[str, tuple[Agent, list[str], Loud]] = {}
    for ending in ("completed", "failed", "limited", "aborted"):
        done: list[str] = []

        @tool(effect="external")
        def act(what: str, done: list[str] = done) -> str:
            done.append(f"act {what}")
            return "done"

        def answer(request: Any, ending: str = ending, done: list[str] = done) -> Any:
            done.append(f"model {request.step}")
            if request.step == 0:
                return Reply(tool_calls=[ToolCall(name="act", arguments={"what": "x"})], usage=Usage(input_tokens=3, output_tokens=2))
            if ending == "failed":
                raise ProviderRefused("no")
            return Reply("ok", usage=Usage(input_tokens=7, output_tokens=1))

        steps = 1 if ending == "limited" else 5
        loud = Loud()
        approve = ["act"] if ending == "aborted" else []
        agent = Agent("a", model=FunctionModel(answer), tools=[act], approve=approve, limits=Limits(steps=steps), middleware=[loud])
        found[ending] = agent, done, loud
    return found


async def ended(process: Process, agent: Agent, ending: str) -> Any:
    if ending != "aborted":
        return await process.run(agent, "go", session="s", submission="m1")
    waiting = asyncio.create_task(process.run(agent, "go", session="s", submission="m1"))
    await eventually(lambda: _parked(process))
    await process.sessions.interrupt("s", reason="enough", submission="i1")
    return await waiting


async def _parked(process: Process) -> bool:
    head = await process.store.load("s")
    return head is not None and head.row.status == "waiting"


@pytest.mark.spec("S0-057", "S0-178", "S0-172")
@pytest.mark.parametrize("ending", ["completed", "failed", "limited", "aborted"])
async def test_every_end_is_told_again_without_a_model_a_tool_or_a_hook_and_no_row_changes(place: Place, ending: str) -> None:
    agent, done, loud = agents()[ending]
    async with place.process() as process:
        result = await ended(process, agent, ending)
        assert result.status == ending
        before, did, told = await process.everything(), [*done], [*loud.calls]
        again = await process.run(agent, "go", session="s", submission="m1")
        assert again == result
        assert await process.everything() == before
    # In another process, by whoever asks, for ever.
    async with place.process() as process:
        for _ in range(2):
            assert await process.run(agent, "go", session="s", submission="m1") == result
        assert await process.sessions.result("s", "m1") == result
        assert await process.everything() == before
        writes = {call.kind for call in process.faulty.calls if call.kind in WRITES} - {"heartbeat", "retire"}
        assert writes <= {"send"}
    assert (done, loud.calls) == (did, told)


@pytest.mark.spec("S0-058", "S0-059", "S0-062")
async def test_a_replay_leaves_file_cursors_and_rows_of_a_run_with_memory_as_they_are(seed: Seed) -> None:
    async with seed.resumed() as (process, result):
        row = await process.row(SESSION)
        await process.store.ack(row.no, "audit", 3)
        before, status = await process.everything(SESSION), seed.file.stat()
        assert await seed.run(process) == result
        assert await process.everything(SESSION) == before
        assert await process.store.cursor(row.no, "audit") == 3
        assert seed.file.stat().st_mtime_ns == status.st_mtime_ns
        assert len(seed.asked) == 2
        # A copy that somebody removed is not made again by looking: nothing is written where nothing happens.
        seed.file.unlink()
        assert await seed.run(process) == result
        assert not seed.file.exists()


@pytest.mark.spec("S0-096")
async def test_another_question_under_the_same_id_is_refused_and_the_end_stays_what_it_was(seed: Seed) -> None:
    async with seed.resumed() as (process, result):
        before = await process.everything(SESSION)
        with pytest.raises(SubmissionConflict):
            await process.run(seed.agent, "Something else?", session=SESSION, submission=result.submission)
        assert await process.everything(SESSION) == before


@pytest.mark.spec("S0-177", "S0-211")
async def test_each_consumer_hears_of_an_end_at_least_once_and_never_after_it_acknowledged(place: Place) -> None:
    agent = Agent("a", model=FunctionModel(lambda request: "ok"))
    heard: dict[str, list[tuple[str, int]]] = {"audit": [], "billing": []}

    def hears(name: str, *, fails: int = 0) -> Any:
        async def hear(session_id: str, entries: Sequence[Entry]) -> None:
            nonlocal fails
            for entry in entries:
                if isinstance(entry, TurnEnded):
                    heard[name].append((entry.submission, entry.seq))
            if fails:
                fails -= 1
                raise RuntimeError("not today")

        return hear

    async with place.process() as process:
        await process.run(agent, "one", session="s", submission="m1")
        end = (await process.row()).version
        # It was heard, and not acknowledged: it comes again.
        with pytest.raises(RuntimeError):
            await process.sessions.consumer("audit").consume(hears("audit", fails=1), follow=False)
        assert heard["audit"] == [("m1", end)]
        assert await process.sessions.consumer("audit").position("s") == 0
    async with place.process() as process:
        await process.run(agent, "one", session="s", submission="m1")
        for _ in range(3):
            await process.sessions.consumer("audit").consume(hears("audit"), follow=False)
        assert heard["audit"] == [("m1", end)] * 2
        # Others are others.
        await process.sessions.consumer("billing").consume(hears("billing"), follow=False)
        assert heard["billing"] == [("m1", end)]
        await process.run(agent, "two", session="s", submission="m2")
        for name in heard:
            await process.sessions.consumer(name).consume(hears(name), follow=False)
        assert [submission for submission, _ in heard["audit"]] == ["m1", "m1", "m2"]
        assert [submission for submission, _ in heard["billing"]] == ["m1", "m2"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_death_at_the_acknowledgement_lets_an_end_be_heard_again_at_most(place: Place, when: Any) -> None:
    """The same entry may come twice, with the same seq and content: a consumer that dies in between can tell."""
    agent = Agent("a", model=FunctionModel(lambda request: "ok"))
    heard: list[Entry] = []

    async def hear(session_id: str, entries: Sequence[Entry]) -> None:
        heard.extend(entry for entry in entries if isinstance(entry, TurnEnded))

    async with place.process() as process:
        await process.run(agent, "one", session="s", submission="m1")
    async with place.process(Fault(kind="ack", when=when, action="die")) as process:
        with pytest.raises(ProcessDied):
            await process.sessions.consumer("audit").consume(hear, follow=False)
    assert len(heard) == 1
    async with place.process() as process:
        for _ in range(2):
            await process.sessions.consumer("audit").consume(hear, follow=False)
    assert len(heard) == (2 if when == "before" else 1)
    assert heard[0] == heard[-1]


async def test_an_end_is_there_for_a_consumer_whatever_becomes_of_the_process_that_wrote_it(seed: Seed) -> None:
    heard: list[str] = []

    async def hear(session_id: str, entries: Sequence[Entry]) -> None:
        heard.extend(entry.kind for entry in entries if isinstance(entry, TurnEnded))

    async with seed.place.process(Fault(nth=4, when="after", action="die")) as process:
        with pytest.raises(ProcessDied):
            await seed.run(process)
    async with seed.process() as process:
        assert (await Stored.of(process)).checkpoint.turn is None
        await process.sessions.consumer("audit").consume(hear, follow=False)
        assert heard == ["turn_completed"]
        assert (await seed.run(process)).ok
        assert len(seed.asked) == 2
