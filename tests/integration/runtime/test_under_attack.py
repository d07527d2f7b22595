"""Orders of events that somebody tried in order to break a promise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply, Runtime, ToolCall, ToolContext, tool
from perdure.core.errors import StoreBroken
from perdure.store.memory import MemoryStore
from perdure.testing.clock import VirtualClock

from .test_verify import problems_in


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock(auto=True)


@pytest.fixture
async def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock.now)


@pytest.fixture
async def runtime(store: MemoryStore, clock: VirtualClock) -> AsyncIterator[Runtime]:
    async with perdure.open(store, clock=clock) as opened:
        yield opened
        assert await problems_in(opened.store) == []


def calling(name: str, **arguments: Any) -> FunctionModel:
    """A model that calls a tool once in every turn."""

    def answer(request: ModelRequest) -> Reply:
        return Reply(tool_calls=[ToolCall(name, arguments)]) if request.step == 0 else Reply("done")

    return FunctionModel(answer)


async def response(runtime: Runtime) -> Any:
    return (await runtime.sessions.history("s"))[2].parts[0]


async def test_a_result_reported_before_the_restart_is_the_receipt_and_nothing_is_unknown(store: MemoryStore, clock: VirtualClock) -> None:
    tokens: list[str] = []
    begun = asyncio.Event()

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay, and die."""
        tokens.append(ctx.callback_token)
        begun.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent("a", model=calling("pay"), tools=[pay])
    dead = Runtime(store, clock=clock)
    await dead.__aenter__()
    turn = asyncio.create_task(dead.run(agent, "go", session="s", submission="m"))
    await begun.wait()
    living = store.peer()
    store.crash()
    async with perdure.open(living, clock=clock) as runtime:
        await runtime.sessions.report(tokens[0], {"paid": 100})
        result = await runtime.run(agent, "go", session="s", submission="m")
        assert result.output == "done"
        assert (await response(runtime)).response == {"paid": 100}
        assert await runtime.sessions.uncertain("s") == []
        assert len(tokens) == 1
        assert await problems_in(living) == []
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    await dead.close(grace=0)


async def test_an_approval_after_its_deadline_is_refused_and_nothing_runs(runtime: Runtime, clock: VirtualClock) -> None:
    ran: list[int] = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    agent = Agent("a", model=calling("pay"), tools=[pay], approve=["pay"], approval_timeout=5)
    async with runtime.session("s", agent) as session:
        await session.send("go")
        async for event in session.events():
            if isinstance(event, perdure.ApprovalRequested):
                break
    clock.advance(6000)
    with pytest.raises(perdure.StaleRequest):
        await runtime.sessions.approve("s", event.request_id)
    await runtime.recover([agent])
    assert not ran
    assert "nobody approved it in time" in (await response(runtime)).response


async def test_a_call_runs_as_what_its_tool_is_when_it_starts(runtime: Runtime) -> None:
    async def pay() -> str:
        """Pay."""
        raise OSError("the line went dead")

    before = Agent("a", model=calling("pay"), tools=[tool(effect="pure")(pay)], approve=["pay"])
    async with runtime.session("s", before) as session:
        await session.send("go")
        async for event in session.events():
            if isinstance(event, perdure.ApprovalRequested):
                break
    await runtime.sessions.approve("s", event.request_id)
    await runtime.recover([before.replace(tools=[tool(effect="external")(pay)])])
    assert [effect.name for effect in await runtime.sessions.uncertain("s")] == ["pay"]


@pytest.mark.spec("B-B-051", "S0-183")
async def test_what_a_failed_driver_holds_is_let_go_while_its_process_lives(
    runtime: Runtime, store: MemoryStore, clock: VirtualClock
) -> None:
    broken = False
    commit = store.commit

    async def failing(given: Any) -> Any:
        if broken:
            raise StoreBroken("the disk is away")
        return await commit(given)

    @tool(effect="idempotent")
    async def work() -> str:
        """Work, while the disk goes away."""
        nonlocal broken
        broken = len(ran) == 0
        ran.append(1)
        return "worked"

    ran: list[int] = []
    store.commit = failing  # type: ignore[method-assign]
    agent = Agent("a", model=calling("work"), tools=[work])
    with pytest.raises(StoreBroken):
        await runtime.run(agent, "go", session="s", submission="m")
    broken = False
    while (await runtime.sessions.info("s")).holder is not None:
        await asyncio.sleep(0)
    other = store.peer()
    async with perdure.open(other, clock=clock) as second:
        assert (await asyncio.wait_for(second.run(agent, "go", session="s", submission="m"), 5)).output == "done"


async def test_a_stream_of_a_message_that_is_withdrawn_ends_with_the_reason(runtime: Runtime) -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        asked.set()
        await gate.wait()
        return "done"

    agent = Agent("a", model=FunctionModel(answer))
    first = asyncio.create_task(runtime.run(agent, "one", session="s", submission="1"))
    await asked.wait()
    events = runtime.stream(agent, "two", session="s", submission="2")
    await anext(events)
    rest = asyncio.create_task(_drain(events))
    while not any(row.submission_id == "2" for row in await runtime.store.inbox(1)):
        await asyncio.sleep(0)
    await runtime.sessions.withdraw("s", "2")
    gate.set()
    with pytest.raises(perdure.SubmissionRejected, match="withdrawn"):
        await asyncio.wait_for(rest, 5)
    await first


async def _drain(events: Any) -> None:
    async for _ in events:
        pass


async def test_another_agent_gets_no_session_and_leaves_no_trace_while_one_is_at_work_and_afterwards(runtime: Runtime) -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        asked.set()
        await gate.wait()
        return "from a"

    first = asyncio.create_task(runtime.run(Agent("a", model=FunctionModel(answer)), "one", session="s", submission="1"))
    await asked.wait()
    other = Agent("b", model=FunctionModel(lambda request: "from b"))
    with pytest.raises(perdure.UnknownAgent, match="belongs to the agent 'a', not to 'b'"):
        await runtime.run(other, "two", session="s", submission="2")
    gate.set()
    assert (await first).output == "from a"
    before = await runtime.sessions.entries("s")
    with pytest.raises(perdure.UnknownAgent):
        await runtime.run(other, "two", session="s", submission="2")
    with pytest.raises(perdure.UnknownAgent):
        async with runtime.session("s", other):
            pass
    assert await runtime.sessions.entries("s") == before
    assert await runtime.store.inbox(1) == []


async def test_a_session_that_no_agent_has_begun_is_taken_by_the_first_that_comes(runtime: Runtime) -> None:
    await runtime.sessions.send("s", "hello", submission="1")
    agent = Agent("a", model=FunctionModel(lambda request: "from a"))
    assert (await runtime.run(agent, "hello", session="s", submission="1")).output == "from a"
    with pytest.raises(perdure.UnknownAgent):
        await runtime.run(Agent("b", model=FunctionModel(lambda request: "from b")), "two", session="s")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda runtime: runtime.run("helper", "hello"), "'helper' is no Agent"),
        (lambda runtime: runtime.run(None, "hello", session="s"), "None is no Agent"),
        (lambda runtime: runtime.recover(Agent("a", model=FunctionModel(lambda request: "hi"))), "no list of agents"),
        (lambda runtime: runtime.recover("helper"), "no list of agents"),
        (lambda runtime: runtime.recover(["helper"]), "'helper' is no Agent"),
    ],
)
async def test_what_is_no_agent_is_told_so_and_leaves_no_trace(runtime: Runtime, call: Any, words: str) -> None:
    with pytest.raises(perdure.InvalidAgent, match=words) as raised:
        await call(runtime)
    assert "gent" in raised.value.hint
    with pytest.raises(perdure.InvalidAgent, match="'helper' is no Agent"):
        runtime.session("s", "helper")  # type: ignore[arg-type]
    assert [info async for info in runtime.sessions.each()] == []


async def test_a_message_too_large_for_the_journal_is_refused_and_the_next_one_is_answered(runtime: Runtime) -> None:
    from perdure.core import commands
    from perdure.core.messages import Text
    from perdure.store.base import Send

    agent = Agent("a", model=FunctionModel(lambda request: "hi"))
    await runtime.run(agent, "hello", session="s")
    command = commands.PostMessage(parts=tuple(Text("x") for _ in range(60_000)), submission="huge")
    body, now = commands.encode(command), runtime.clock.now()
    # Past the door, as an older version might have let it.
    await runtime.store.send(
        Send(
            session_id="s",
            submission_id="huge",
            kind="message",
            at=now,
            not_before=None,
            actor="",
            digest=commands.digest(command),
            body=body,
        )
    )
    assert (await asyncio.wait_for(runtime.run(agent, "and now", session="s", submission="next"), 5)).output == "hi"
    refused: Any = [entry for entry in await runtime.sessions.entries("s") if entry.kind == "submission_refused"]
    assert [entry.failure.code for entry in refused] == ["limit_exceeded"]
