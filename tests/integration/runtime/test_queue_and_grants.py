"""What people do to waiting messages, notes, and calls that they grant for a whole session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import perdure
from perdure import Agent, ApprovalRequested, FunctionModel, ModelRequest, Reply, Runtime, ToolCall, TurnEnded, tool
from perdure.core.errors import StaleRequest
from perdure.testing.clock import VirtualClock

from .test_verify import problems_in


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async with perdure.open("memory://", clock=VirtualClock(auto=True)) as opened:
        yield opened
        assert await problems_in(opened.store) == []


@tool
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def payer(asked: list[ModelRequest] | None = None) -> Agent:
    def answer(request: ModelRequest) -> Reply:
        if asked is not None:
            asked.append(request)
        last = request.messages[-1]
        return (
            Reply(tool_calls=[ToolCall("pay", {"cents": int(last.text)})]) if last.role == "user" and last.text.isdigit() else Reply("ok")
        )

    return Agent("payer", model=FunctionModel(answer), tools=[pay], approve=["pay"])


async def until(runtime: Runtime, agent: Agent, kind: type[Any], *, after: int = 0) -> Any:
    async with runtime.session("s", agent) as session:
        async for event in session.events(after=after):
            if isinstance(event, kind):
                return event
    raise AssertionError("the stream ended before that")


async def park(runtime: Runtime, agent: Agent) -> ApprovalRequested:
    await runtime.sessions.send("s", "5", submission="first", agent=agent.name)
    return await until(runtime, agent, ApprovalRequested)


@pytest.mark.spec("S2-037")
async def test_a_waiting_message_is_edited_in_place_and_its_boundary_stays(runtime: Runtime) -> None:
    asked: list[ModelRequest] = []
    agent = payer(asked)
    request = await park(runtime, agent)
    for name in ("a", "b", "c"):
        await runtime.sessions.send("s", name, submission=name)
    await runtime.sessions.edit("s", "b", "B, better")
    await runtime.sessions.approve("s", request.request_id)
    await runtime.recover([agent])
    texts = [message.text for message in await runtime.sessions.history("s") if message.role == "user"]
    assert texts == ["5", "a", "B, better", "c"]


@pytest.mark.spec("B-B-071")
async def test_a_withdrawn_message_is_never_delivered_and_its_id_stays_used(runtime: Runtime) -> None:
    agent = payer()
    request = await park(runtime, agent)
    await runtime.sessions.send("s", "a", submission="a")
    await runtime.sessions.withdraw("s", "a")
    again = await runtime.sessions.send("s", "a", submission="a")
    assert again.duplicate
    await runtime.sessions.approve("s", request.request_id)
    await runtime.recover([agent])
    assert [message.text for message in await runtime.sessions.history("s") if message.role == "user"] == ["5"]
    with pytest.raises(perdure.SubmissionRejected, match="withdrawn"):
        await runtime.run(agent, "a", session="s", submission="a")


@pytest.mark.parametrize("change", ["edit", "withdraw"])
async def test_a_delivered_message_can_not_be_changed_any_more(runtime: Runtime, change: str) -> None:
    agent = payer()
    await park(runtime, agent)
    before = await runtime.sessions.entries("s")
    for message in ("first", "nobody's"):
        changing = runtime.sessions.edit("s", message, "6") if change == "edit" else runtime.sessions.withdraw("s", message)
        with pytest.raises(perdure.SubmissionRejected) as raised:
            await changing
        assert raised.value.facts["reason"] == "delivered"
    assert await runtime.sessions.entries("s") == before


async def test_a_refused_command_leaves_no_trace_and_its_id_can_be_used_again(runtime: Runtime) -> None:
    agent = payer()
    await park(runtime, agent)
    await runtime.sessions.send("s", "a", submission="a")
    before = await runtime.sessions.entries("s"), await waiting(runtime)
    for command in (
        runtime.sessions.revoke("s", "nothing", submission="again"),
        runtime.sessions.withdraw("s", "b", submission="again"),
        runtime.sessions.interrupt("s", turn="t99", submission="again"),
        runtime.sessions.select_route("s", "other", submission="again"),
    ):
        with pytest.raises(perdure.SubmissionRejected):
            await command
    assert (await runtime.sessions.entries("s"), await waiting(runtime)) == before
    taken = await runtime.sessions.withdraw("s", "a", submission="again")
    assert not taken.duplicate
    assert await waiting(runtime) == []


@pytest.mark.spec("S2-038")
async def test_a_message_that_no_person_sent_can_be_withdrawn_and_not_edited(runtime: Runtime) -> None:
    agent = payer()
    await park(runtime, agent)
    robot = perdure.Source(kind="agent", name="robot", id="r-1")
    await runtime.sessions.send("s", "from a robot", submission="r", source=robot)
    before = await waiting(runtime)
    with pytest.raises(perdure.SubmissionRejected) as raised:
        await runtime.sessions.edit("s", "r", "from a person")
    assert raised.value.facts["reason"] == "not_a_persons"
    assert await waiting(runtime) == before
    await runtime.sessions.withdraw("s", "r")
    assert [row.submission_id for row in await waiting(runtime)] == []


async def waiting(runtime: Runtime) -> list[Any]:
    return await runtime.store.inbox((await runtime.store.load("s")).row.no)  # type: ignore[union-attr]


async def test_an_empty_edit_changes_nothing(runtime: Runtime) -> None:
    agent = payer()
    await park(runtime, agent)
    await runtime.sessions.send("s", "a", submission="a")
    with pytest.raises(perdure.InvalidMessage):
        await runtime.sessions.edit("s", "a", "  ")


async def test_a_granted_call_runs_again_without_asking_and_another_one_asks(runtime: Runtime) -> None:
    agent = payer()
    request = await park(runtime, agent)
    await runtime.sessions.grant("s", request.request_id, actor="ann")
    await runtime.recover([agent])
    assert (await runtime.run(agent, "5", session="s")).tool_calls == 1
    (grant,) = await runtime.sessions.grants("s")
    assert grant.name == "pay"
    await runtime.sessions.send("s", "6", submission="other")
    before = (await runtime.sessions.info("s")).version
    asked = await until(runtime, agent, (ApprovalRequested, TurnEnded), after=before)  # type: ignore[arg-type]
    assert isinstance(asked, ApprovalRequested)


async def test_a_grant_with_edited_arguments_is_refused_and_the_request_stays_open(runtime: Runtime) -> None:
    """A grant is for the call that was shown, so edited arguments can't silently be left out of it."""
    agent = payer()
    request = await park(runtime, agent)
    for decision in ("grant", "deny", "abort"):
        with pytest.raises(perdure.UsageError, match="approve"):
            await runtime.sessions.answer("s", request.request_id, decision, arguments={"cents": 1})  # type: ignore[arg-type]
    assert [item.request_id for item in await runtime.sessions.requests("s")] == [request.request_id]
    assert await runtime.sessions.grants("s") == ()


async def test_a_revoked_grant_asks_again(runtime: Runtime) -> None:
    agent = payer()
    request = await park(runtime, agent)
    await runtime.sessions.grant("s", request.request_id)
    await runtime.recover([agent])
    (grant,) = await runtime.sessions.grants("s")
    await runtime.sessions.revoke("s", grant.id)
    assert await runtime.sessions.grants("s") == ()
    await runtime.sessions.send("s", "5", submission="again")
    before = (await runtime.sessions.info("s")).version
    event = await until(runtime, agent, (ApprovalRequested, TurnEnded), after=before)  # type: ignore[arg-type]
    assert isinstance(event, ApprovalRequested)


@pytest.mark.spec("S0-303")
@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_used_decision_does_not_come_back_to_life_and_stands_for_one_call(runtime: Runtime, decision: Any) -> None:
    agent = payer()
    request = await park(runtime, agent)
    await runtime.sessions.answer("s", request.request_id, decision)
    with pytest.raises(StaleRequest):
        await runtime.sessions.approve("s", request.request_id)
    await runtime.recover([agent])
    assert await runtime.sessions.grants("s") == ()
    before = (await runtime.sessions.info("s")).version
    await runtime.sessions.send("s", "5", submission="the same again")
    asked = await until(runtime, agent, (ApprovalRequested, TurnEnded), after=before)  # type: ignore[arg-type]
    assert isinstance(asked, ApprovalRequested)
    assert asked.request_id != request.request_id


@pytest.mark.spec("S2-009")
@pytest.mark.parametrize("decision", ["approve", "grant", "deny"])
async def test_an_answer_that_is_sent_again_is_the_same_answer_and_not_a_stale_one(runtime: Runtime, decision: Any) -> None:
    agent = payer()
    request = await park(runtime, agent)
    first = await runtime.sessions.answer("s", request.request_id, decision, submission="said")
    for _ in range(2):
        again = await runtime.sessions.answer("s", request.request_id, decision, submission="said")
        assert (again.duplicate, again.arrival) == (True, first.arrival)
        await runtime.recover([agent])
    closed = [entry for entry in await runtime.sessions.entries("s") if entry.kind == "request_closed"]
    assert len(closed) == 1


async def test_a_grant_repeats_no_call_whose_outcome_is_unknown(runtime: Runtime) -> None:
    charged: list[int] = []

    @tool(effect="external")
    async def pay(cents: int) -> str:
        """Pay, and lose the line."""
        charged.append(cents)
        raise OSError("the line went dead")

    agent = payer().replace(tools=[pay])
    request = await park(runtime, agent)
    await runtime.sessions.grant("s", request.request_id)
    await runtime.recover([agent])
    await runtime.sessions.send("s", "5", submission="again")
    before = (await runtime.sessions.info("s")).version
    asked = await until(runtime, agent, (ApprovalRequested, TurnEnded), after=before)  # type: ignore[arg-type]
    assert isinstance(asked, ApprovalRequested)
    assert asked.match is not None
    assert charged == [5]


async def test_an_edited_call_is_guarded_by_what_it_was_edited_to(runtime: Runtime) -> None:
    charged: list[str] = []

    @tool(effect="external", key=("order",))
    async def charge(order: str) -> str:
        """Charge, and lose the line on the first order."""
        charged.append(order)
        if order == "A":
            raise OSError("the line went dead")
        return "charged"

    def answer(request: ModelRequest) -> Reply:
        return Reply("ok") if request.step else Reply(tool_calls=[ToolCall("charge", {"order": request.messages[-1].text})])

    agent = Agent(
        "payer", model=FunctionModel(answer), tools=[charge], approve=lambda call: "ask" if call.arguments["order"] == "B" else "allow"
    )
    await runtime.run(agent, "A", session="s")
    await runtime.sessions.send("s", "B")
    request = await until(runtime, agent, ApprovalRequested)
    assert request.match is None
    await runtime.sessions.approve("s", request.request_id, {"order": "A"})
    again = await until(runtime, agent, (ApprovalRequested, TurnEnded), after=request.seq)  # type: ignore[arg-type]
    assert isinstance(again, ApprovalRequested)
    assert again.match is not None
    (shown,) = await runtime.sessions.requests("s")
    assert (shown.request_id, shown.arguments) == (again.request_id, {"order": "A"})
    assert charged == ["A"]


async def test_a_note_reaches_the_model_once_and_stays_in_its_context(runtime: Runtime) -> None:
    asked: list[ModelRequest] = []
    agent = payer(asked)
    await runtime.run(agent, "hello", session="s")
    await runtime.sessions.note("s", "the shop closes at six", submission="n1")
    assert (await runtime.sessions.note("s", "the shop closes at six", submission="n1")).duplicate
    await runtime.run(agent, "and now", session="s")
    texts = [message.text for message in asked[-1].messages]
    assert texts == ["hello", "ok", "[note] the shop closes at six", "and now"]
    assert [message.text for message in await runtime.sessions.history("s")] == ["hello", "ok", "and now", "ok"]


async def test_a_note_given_while_calls_are_open_comes_after_their_results(runtime: Runtime) -> None:
    asked: list[ModelRequest] = []
    agent = payer(asked)
    request = await park(runtime, agent)
    await runtime.sessions.note("s", "careful")
    await runtime.sessions.approve("s", request.request_id)
    await runtime.recover([agent])
    assert [message.role for message in asked[-1].messages] == ["user", "assistant", "tool", "user"]
    assert asked[-1].messages[-1].text == "[note] careful"


async def test_a_submission_is_the_same_however_its_words_came_about(runtime: Runtime) -> None:
    first = await runtime.sessions.send("s", "hello", submission="m", deliver="turn")
    again = await runtime.sessions.send("s", "hello", submission="m", deliver="".join(["tu", "rn"]))  # type: ignore[arg-type]
    assert (first.duplicate, again.duplicate) == (False, True)


async def test_a_message_that_was_edited_is_still_the_one_that_was_sent(runtime: Runtime) -> None:
    agent = payer()
    request = await park(runtime, agent)
    await runtime.sessions.send("s", "a", submission="a")
    await runtime.sessions.edit("s", "a", "A, better")
    assert (await runtime.sessions.send("s", "a", submission="a")).duplicate
    with pytest.raises(perdure.SubmissionConflict):
        await runtime.sessions.send("s", "A, better", submission="a")
    assert await problems_in(runtime.store) == []
    await runtime.sessions.approve("s", request.request_id)
    assert (await runtime.run(agent, "a", session="s", submission="a")).ok
    assert [message.text for message in await runtime.sessions.history("s") if message.role == "user"] == ["5", "A, better"]
    assert await problems_in(runtime.store) == []


async def test_a_message_that_is_edited_and_taken_up_in_one_commit_leaves_the_session_whole(runtime: Runtime) -> None:
    begun = asyncio.Event()

    async def answer(request: ModelRequest) -> Reply:
        if request.messages[-1].text == "wait":
            begun.set()
            await asyncio.Event().wait()
        return Reply("ok")

    agent = Agent("waiter", model=FunctionModel(answer))
    first = asyncio.create_task(runtime.run(agent, "wait", session="s", submission="first"))
    await begun.wait()
    second = asyncio.create_task(runtime.run(agent, "a", session="s", submission="a"))
    while not await runtime.store.inbox(1):
        await asyncio.sleep(0)
    await asyncio.gather(runtime.sessions.interrupt("s"), runtime.sessions.edit("s", "a", "A, better"))
    assert (await first).status == "aborted"
    assert (await second).ok
    entries = await runtime.sessions.entries("s")
    places = {entry.kind: entry.seq for entry in entries if entry.kind in ("queue_changed", "turn_started")}
    assert places["turn_started"] == places["queue_changed"] + 1
    assert [message.text for message in await runtime.sessions.history("s") if message.role == "user"] == ["wait", "A, better"]
