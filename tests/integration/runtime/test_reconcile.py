"""Asking a tool what became of a call, live: patience has an end, and so have attempts that had no effect."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Done, NotDone, Reply, Runtime, ScriptedModel, ToolCall, ToolContext, Unknown, tool
from perdure.runtime.verify import verify
from perdure.testing.clock import VirtualClock


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock(auto=True)


@pytest.fixture
async def runtime(clock: VirtualClock) -> AsyncIterator[Runtime]:
    async with perdure.open("memory://", clock=clock) as opened:
        yield opened


async def run(runtime: Runtime, used: perdure.Tool) -> Any:
    model = ScriptedModel([Reply(tool_calls=[ToolCall(used.name, {})]), Reply("noted")])
    result = await runtime.run(Agent("a", model=model, tools=[used]), "go", session="s")
    assert result.output == "noted"
    response: Any = (await runtime.sessions.history("s"))[2].parts[0]
    return response


async def test_a_reconcile_that_hangs_counts_as_unknown_after_a_minute(runtime: Runtime, clock: VirtualClock) -> None:
    async def hang() -> Any:
        await asyncio.Event().wait()

    @tool(reconcile=hang)
    async def pay() -> str:
        """Pay, and fall silent."""
        raise OSError("the line went dead")

    began = clock.now()
    response = await run(runtime, pay)
    assert response.response == "execution interrupted; result unknown"
    assert clock.now() - began == 60_000


async def test_a_call_that_never_takes_effect_is_tried_five_times_with_growing_pauses_and_given_up(
    runtime: Runtime, clock: VirtualClock
) -> None:
    times: list[int] = []

    async def nothing() -> NotDone:
        return NotDone()

    @tool(reconcile=nothing)
    async def pay() -> str:
        """Pay, or rather not."""
        times.append(clock.now())
        raise OSError("refused")

    response = await run(runtime, pay)
    assert [later - earlier for earlier, later in pairwise(times)] == [0, 200, 400, 800]
    assert response.is_error
    assert response.response == "not executed: 5 attempts had no effect"
    assert await runtime.sessions.uncertain("s") == []


async def test_a_reconcile_that_knows_gives_the_result_and_the_call_is_not_repeated(runtime: Runtime) -> None:
    ran: list[int] = []

    async def look() -> Done:
        return Done("paid after all")

    @tool(reconcile=look)
    async def pay() -> str:
        """Pay, and fall silent."""
        ran.append(1)
        raise OSError("the line went dead")

    response = await run(runtime, pay)
    assert (response.response, response.is_error, ran) == ("paid after all", False, [1])


async def test_recover_leaves_alone_what_somebody_here_works_on(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel(["hi"]))
    async with runtime.session("s", agent) as session:
        await session.send("hello")
        await asyncio.wait_for(runtime.recover([agent]), 5)


# ------------------------------------------------------------------------------------------------------- asked once more


class Shop:
    """A tool whose calls fall silent, and a provider that can tell what became of them, or can't yet."""

    def __init__(self, **options: Any) -> None:
        self.answer: Any = OSError("the provider is down")
        self.asked: list[tuple[str, int, str, str]] = []
        self.paid: list[str] = []

        async def look(ctx: ToolContext, order: str) -> Any:
            self.asked.append((ctx.operation, ctx.attempt, ctx.call, order))
            assert ctx.owner == "acme"
            with pytest.raises(perdure.UsageError):
                ctx.step("x", lambda: None)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        @tool(reconcile=look, **options)
        async def pay(order: str) -> str:
            """Pay, and fall silent."""
            self.paid.append(order)
            if len(self.paid) == 1:
                raise OSError("the line went dead")
            return "paid again"

        self.pay = pay

    def agent(self) -> Agent:
        model = ScriptedModel([Reply(tool_calls=[ToolCall("pay", {"order": "A-1"}, id="c7")]), Reply("noted")])
        return Agent("a", model=model, tools=[self.pay])


async def facts(runtime: Runtime) -> list[Any]:
    return list(await runtime.sessions.entries("s", kinds=["effect_settled"]))


@pytest.mark.parametrize(
    ("answer", "outcome", "settled"),
    [
        (Done({"id": 7}), "done", ("succeeded", {"id": 7})),
        (NotDone(), "not_done", ("failed", "it had no effect, as its tool found out")),
        (Unknown(), "unknown", None),
        (OSError("down still"), "unknown", None),
        (Done(object()), "unknown", None),
    ],
)
async def test_what_nobody_could_tell_is_asked_once_more_from_any_process(tmp_path: Path, answer: Any, outcome: str, settled: Any) -> None:
    shop, path = Shop(), str(tmp_path / "a.db")
    async with perdure.open(path) as runtime:
        await runtime.run(shop.agent(), "go", session="s", identity=perdure.Identity(owner="acme"))
        [item] = await runtime.sessions.uncertain("s")
        assert item.call == "c7"
    async with perdure.open(path) as other:
        shop.answer = answer
        [said] = await other.reconcile([shop.agent()])
        assert (said.session_id, said.name, said.outcome, said.settled) == ("s", "pay", outcome, settled is not None)
        assert shop.asked == [("t2.0.1", 1, "c7", "A-1")] * 2
        assert shop.paid == ["A-1"]
        if settled is None:
            assert await facts(other) == []
            assert await other.sessions.uncertain("s") == [item]
        else:
            [entry] = await facts(other)
            assert ((entry.status, entry.parts[0].response), entry.actor) == (settled, "reconcile")
            assert await other.sessions.uncertain("s") == []
            assert await other.reconcile([shop.agent()], session="s") == []
        assert [str(problem) async for problem in verify(other.store)] == []


@pytest.mark.parametrize(("answer", "told"), [(Done("paid"), "paid"), (NotDone(), "paid again")])
async def test_a_question_to_a_person_is_answered_by_the_tool_once_it_knows(tmp_path: Path, answer: Any, told: str) -> None:
    shop, path = Shop(on_uncertain="ask"), str(tmp_path / "a.db")
    async with perdure.open(path) as runtime:
        await runtime.sessions.send("s", "go", submission="m", agent="a", identity=perdure.Identity(owner="acme"))
        await runtime.recover([shop.agent()])
        assert (await runtime.sessions.info("s")).status == "waiting"
    async with perdure.open(path) as other:
        assert await other.reconcile([Agent("b", model=ScriptedModel([]))]) == []
        shop.answer = answer
        [said] = await other.reconcile([shop.agent()], session="s")
        assert said.settled
        assert await other.sessions.requests("s") == []
        await other.recover([shop.agent()])
        assert (await other.sessions.history("s"))[2].parts[0].response == told  # type: ignore[union-attr]
        assert [str(problem) async for problem in verify(other.store)] == []


async def test_what_is_damaged_in_one_session_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shop, path = Shop(), tmp_path / "a.db"
    async with perdure.open(str(path)) as runtime:
        for name in ("s1", "s2"):
            shop.paid.clear()
            await runtime.run(shop.agent(), "go", session=name, identity=perdure.Identity(owner="acme"))
    file = sqlite3.connect(path)
    with file:
        receipts = "SELECT seq FROM journal WHERE no = 1 AND kind = 'operation_ended' AND seq IN (SELECT seq FROM effects WHERE no = 1)"
        file.execute(f"UPDATE journal SET body = x'7b' WHERE no = 1 AND seq IN ({receipts})")
    file.close()
    shop.answer = Done("paid after all")
    async with perdure.open(str(path)) as other:
        [said] = await other.reconcile([shop.agent()])
        assert (said.session_id, said.settled) == ("s2", True)
        assert "the effects of s1" in caplog.text
        with pytest.raises(perdure.StoreCorrupt):
            await other.reconcile([shop.agent()], session="s1")


async def test_the_agent_that_called_is_asked_whoever_has_the_session_now(runtime: Runtime) -> None:
    shop, others = Shop(), Shop()
    to = Reply(tool_calls=[ToolCall("transfer_to_billing", {"reason": "It is theirs."})])
    billing = Agent("billing", model=ScriptedModel([Reply("unused"), Reply("unused"), Reply("Billing.")]), tools=[others.pay])
    model = ScriptedModel([Reply(tool_calls=[ToolCall("pay", {"order": "A-1"}, id="c7")]), to])
    front = Agent("front", model=model, tools=[shop.pay], handoffs=[billing])
    await runtime.run(front, "go", session="s", identity=perdure.Identity(owner="acme"))
    assert (await runtime.sessions.info("s")).agent == "billing"
    [item] = await runtime.sessions.uncertain("s")
    assert (item.name, item.agent) == ("pay", "front")
    shop.answer = others.answer = Done("paid after all")
    assert await runtime.reconcile([billing]) == []
    [said] = await runtime.reconcile([front])
    assert (said.outcome, said.settled) == ("done", True)
    assert others.asked == []
