"""Calls that only wait are cut short by whoever steers the turn; others are not, and neither are those beside them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Agent, FunctionModel, InvalidTool, ModelRequest, Reply, ToolCall, tool
from perdure.testing import find_problems

from .acting import Place, eventually, transcript, until

began: list[str] = []
cut: list[str] = []


async def forever(name: str) -> str:
    began.append(name)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cut.append(name)
        raise
    return "never"


@tool(effect="pure", gives_way=True)
async def wait(name: str) -> str:
    """Wait."""
    return await forever(name)


@tool(effect="pure", gives_way=True, exclusive=True)
async def wait_alone(name: str) -> str:
    """Wait, with nothing beside it."""
    return await forever(name)


@tool(gives_way=True)
async def watch(name: str) -> str:
    """Watch something outside."""
    return await forever(name)


go_on = asyncio.Event()


@tool(effect="pure")
async def work(name: str) -> str:
    """Work."""
    began.append(name)
    await go_on.wait()
    return "worked"


def agent_with(*calls: ToolCall) -> tuple[Agent, list[ModelRequest]]:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        asked.append(request)
        return Reply("done") if request.step else Reply(tool_calls=list(calls))

    return Agent("helper", model=FunctionModel(answer), tools=[wait, wait_alone, watch, work]), asked


@pytest.fixture(autouse=True)
def fresh() -> None:
    global go_on
    go_on = asyncio.Event()
    began.clear()
    cut.clear()


SHORT = "cut short, because somebody said something meanwhile"


@pytest.mark.spec("S2-195")
@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
async def test_a_batch_of_calls_that_all_give_way_is_cut_short_by_a_steer_and_the_model_reads_it(place: Place, here: bool) -> None:
    calls = [ToolCall("wait", {"name": "a"}, "c1"), ToolCall("wait", {"name": "b"}, "c2"), ToolCall("wait_alone", {"name": "c"}, "c3")]
    agent, asked = agent_with(*calls)
    async with place.process() as process, place.process() as other, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        await eventually(lambda: len(began) == 2)
        await (process if here else other).sessions.send("s", "never mind", deliver="steer", submission="m-2")
        await until(handle, after=0)
        seen = await process.told()
        assert seen[-6:] == [
            *["message tool", "message user steer", "started t2.1.0#1", "ended t2.1.0#1 succeeded", "message assistant"],
            "turn_completed t2",
        ]
        assert (await transcript(process))[2] == ("tool", *((call.id, SHORT, True) for call in calls))
        assert await find_problems(process.store, "s") == []
    assert (sorted(began), sorted(cut)) == (["a", "b"], ["a", "b"])
    assert [message.text for message in asked[1].messages if message.role == "user"] == ["go", "never mind"]


@pytest.mark.spec("S2-195")
async def test_a_batch_whose_calls_are_about_to_start_is_cut_short_by_a_steer_that_waits(place: Place) -> None:
    thinking, think_on = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> Reply:
        thinking.set()
        await think_on.wait()
        return Reply("done") if request.step else Reply(tool_calls=[ToolCall("wait", {"name": "a"}, "c1")])

    agent = Agent("helper", model=FunctionModel(answer), tools=[wait])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go")
        await thinking.wait()
        await handle.send("never mind", deliver="steer")
        think_on.set()
        await until(handle)
        assert [row[0] for row in await transcript(process)] == ["user", "assistant", "tool", "user", "assistant"]
        assert (await transcript(process))[2] == ("tool", ("c1", SHORT, True))
        assert await find_problems(process.store, "s") == []


async def test_a_call_that_nobody_steers_goes_on(place: Place) -> None:
    agent, _ = agent_with(ToolCall("wait", {"name": "a"}, "c1"))
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go")
        await eventually(lambda: began)
        await handle.send("more", deliver="queue")
        for _ in range(50):
            await asyncio.sleep(0)
        assert not cut
        assert (await process.sessions.entries("s"))[-1].kind == "operation_started"
        await handle.interrupt()
        await until(handle)


async def test_a_mixed_batch_waits_for_the_call_that_does_not_give_way_and_then_gives_way(place: Place) -> None:
    agent, _ = agent_with(ToolCall("work", {"name": "a"}, "c1"), ToolCall("wait", {"name": "b"}, "c2"))
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go")
        await eventually(lambda: len(began) == 2)
        await handle.send("never mind", deliver="steer")
        for _ in range(50):
            await asyncio.sleep(0)
        assert not cut
        go_on.set()
        await until(handle)
        assert (await transcript(process))[2] == ("tool", ("c1", "worked", False), ("c2", SHORT, True))
        assert await find_problems(process.store, "s") == []


async def test_what_may_have_happened_outside_stays_unknown_when_it_is_cut_short(place: Place) -> None:
    agent, _ = agent_with(ToolCall("watch", {"name": "a"}, "c1"))
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go")
        await eventually(lambda: began)
        await handle.send("never mind", deliver="steer")
        await until(handle)
        ((_, text, is_error),) = (await transcript(process))[2][1:]
        assert (text, is_error) == ("execution interrupted; result unknown", True)
        assert [item.operation for item in await process.sessions.uncertain("s")] == ["t2.0.1"]
        assert await find_problems(process.store, "s") == []


def test_giving_way_is_yes_or_no() -> None:
    def pause() -> Any:
        """Pause."""

    with pytest.raises(InvalidTool):
        tool(gives_way="yes")(pause)  # type: ignore[call-overload]
