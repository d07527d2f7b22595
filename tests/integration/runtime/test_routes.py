"""Routes: which model answers, who owns the context, and what of a provider's private reasoning is sent to whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    FunctionModel,
    ModelRequest,
    ProviderUnavailable,
    RateLimited,
    Reply,
    Router,
    Runtime,
    StoreBroken,
    ToolCall,
    tool,
)
from perdure.core.messages import Private
from perdure.store.memory import MemoryStore
from perdure.testing.clock import VirtualClock
from perdure.testing.faults import Fault, FaultStore, When

from .test_verify import problems_in


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async with perdure.open("memory://", clock=VirtualClock(auto=True)) as opened:
        yield opened
        assert await problems_in(opened.store) == []


class Fake(FunctionModel):
    """A model that thinks privately, fails on demand, and remembers what it was sent."""

    def __init__(self, name: str, group: str | None = None) -> None:
        super().__init__(self._answer, name=name, group=group or name)
        self.asked: list[ModelRequest] = []
        self.broken = False

    def _answer(self, request: ModelRequest) -> Reply:
        self.asked.append(request)
        if self.broken:
            raise ProviderUnavailable("down")
        if request.step == 0 and request.tools:
            return Reply(tool_calls=[ToolCall("look", {})], private={"thought": self.name})
        return Reply(f"{self.name} says {len(request.messages)}", private={"thought": self.name})

    def private(self, index: int = -1) -> list[Any]:
        return [part.data["thought"] for message in self.asked[index].messages for part in message.parts if isinstance(part, Private)]


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


def trio() -> tuple[Fake, Fake, Fake, Agent]:
    first, sibling, other = Fake("a"), Fake("a-high", "a"), Fake("b")
    router = Router({"a": first, "a-high": sibling, "b": other})
    return first, sibling, other, Agent("x", model=router, tools=[look])


async def epoch(runtime: Runtime) -> int:
    return (await runtime.sessions.checkpoint("s")).epoch


@pytest.mark.spec("S2-146", "S2-154")
async def test_a_new_session_uses_the_default_route_and_its_private_reasoning_comes_back_to_it(runtime: Runtime) -> None:
    first, _, _, agent = trio()
    await runtime.run(agent, "one", session="s")
    await runtime.run(agent, "two", session="s")
    assert first.private(0) == []
    assert first.private(1) == ["a"]
    assert first.private(2) == ["a", "a"]
    assert (await runtime.sessions.checkpoint("s")).route == "a"


@pytest.mark.spec("S2-149", "S2-152", "S2-153")
async def test_selecting_a_route_is_durable_and_changes_neither_owner_nor_epoch(runtime: Runtime) -> None:
    _, _, _, agent = trio()
    await runtime.run(agent, "one", session="s")
    sent = await runtime.sessions.select_route("s", "b")
    checkpoint = await runtime.sessions.checkpoint("s")
    assert (checkpoint.route, checkpoint.owner, checkpoint.epoch) == ("b", "a", 0)
    selected: Any = (await runtime.sessions.entries("s"))[-1]
    assert (selected.kind, selected.route, selected.submission) == ("route_selected", "b", sent.id)


@pytest.mark.spec("B-A-200")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_selection_whose_commit_failed_is_stored_or_it_is_not_and_an_open_handle_goes_by_that(when: When) -> None:
    first, _, other, agent = trio()
    clock = VirtualClock(auto=True)
    store = FaultStore(MemoryStore(clock.now), clock=clock)
    async with perdure.open(store, clock=clock) as runtime, runtime.session("s", agent):
        await runtime.run(agent, "one", session="s")
        store.faults = (Fault(kind="commit", nth=store.count("commit") + 1, when=when),)
        with pytest.raises(StoreBroken):
            await runtime.sessions.select_route("s", "b", submission="r1")
        assert (await runtime.sessions.info("s")).route == ("a" if when == "before" else "b")
        calls = len(first.asked), len(other.asked)
        await runtime.run(agent, "two", session="s")
        assert (len(first.asked) > calls[0], len(other.asked) > calls[1]) == (when == "before", when == "after")
        assert (await runtime.sessions.select_route("s", "b", submission="r1")).duplicate == (when == "after")
        assert await problems_in(store) == []


@pytest.mark.spec("S2-155", "S2-156", "S2-157")
async def test_another_group_gets_no_private_part_but_every_text_and_every_pair_of_call_and_result(runtime: Runtime) -> None:
    first, _, other, agent = trio()
    await runtime.run(agent, "one", session="s")
    await runtime.sessions.select_route("s", "b")
    await runtime.run(agent, "two", session="s")
    assert other.private(0) == []
    sent = other.asked[0].messages
    assert [message.text for message in sent] == ["one", "", "", "a says 3", "two"]
    assert [call.id for message in sent for call in message.tool_calls] == [part.id for part in sent[2].parts]  # type: ignore[union-attr]
    assert len(first.asked) == 2


@pytest.mark.spec("S2-150", "S2-159", "S2-161")
async def test_the_first_accepted_output_of_another_group_owns_the_context_and_raises_the_epoch_once(runtime: Runtime) -> None:
    first, _, other, agent = trio()
    await runtime.run(agent, "one", session="s")
    await runtime.sessions.select_route("s", "b")
    await runtime.run(agent, "two", session="s")
    checkpoint = await runtime.sessions.checkpoint("s")
    assert (checkpoint.owner, checkpoint.epoch) == ("b", 1)
    assert other.private(1) == ["b"]
    await runtime.sessions.select_route("s", "a")
    await runtime.run(agent, "three", session="s")
    assert first.private() == ["a"]
    assert await epoch(runtime) == 2


@pytest.mark.spec("S2-158", "S2-162")
async def test_the_strip_costs_no_extra_call_and_the_journal_keeps_what_was_private(runtime: Runtime) -> None:
    first, sibling, other, agent = trio()
    await runtime.run(agent, "one", session="s")
    await runtime.sessions.select_route("s", "b")
    await runtime.run(agent, "two", session="s")
    # One request for each of the two steps, and nobody else was asked for anything before them.
    assert [(request.step, request.purpose) for request in other.asked] == [(0, "answer"), (1, "answer")]
    assert (len(first.asked), len(sibling.asked)) == (2, 0)
    thoughts = [
        part.data["thought"]
        for entry in await runtime.sessions.entries("s", kinds=["operation_ended"])
        for part in entry.parts  # type: ignore[attr-defined]
        if isinstance(part, Private)
    ]
    assert thoughts == ["a", "a", "b", "b"]


@pytest.mark.spec("S2-151", "S2-091")
async def test_a_selected_route_that_fails_stays_selected_and_owns_nothing(runtime: Runtime) -> None:
    first, _, other, agent = trio()
    await runtime.run(agent, "one", session="s")
    await runtime.sessions.select_route("s", "b")
    other.broken = True
    failed = await runtime.run(agent, "two", session="s")
    checkpoint = await runtime.sessions.checkpoint("s")
    assert failed.status == "failed"
    assert (checkpoint.route, checkpoint.owner, checkpoint.epoch) == ("b", "a", 0)
    await runtime.sessions.select_route("s", "a")
    await runtime.run(agent, "three", session="s")
    assert first.private(2) == ["a", "a"]


@pytest.mark.spec("S2-163", "S2-164")
async def test_a_sibling_of_the_same_group_gets_the_private_reasoning_and_the_epoch_stays(runtime: Runtime) -> None:
    _, sibling, _, agent = trio()
    await runtime.run(agent, "one", session="s")
    await runtime.sessions.select_route("s", "a-high")
    await runtime.run(agent, "two", session="s")
    assert sibling.private(0) == ["a", "a"]
    checkpoint = await runtime.sessions.checkpoint("s")
    assert (checkpoint.owner, checkpoint.epoch) == ("a-high", 0)


@pytest.mark.spec("S2-166")
async def test_a_change_of_group_with_nothing_private_changes_no_prefix(runtime: Runtime) -> None:
    plain, other = FunctionModel(lambda request: "hi", name="p"), Fake("b")
    agent = Agent("x", model=Router({"p": plain, "b": other}))
    await runtime.run(agent, "one", session="s")
    await runtime.sessions.select_route("s", "b")
    await runtime.run(agent, "two", session="s")
    assert await epoch(runtime) == 0


@pytest.mark.spec("S2-169", "S2-167")
async def test_an_unknown_saved_route_is_refused_with_nothing_touched_until_another_is_selected(runtime: Runtime) -> None:
    _, _, _, agent = trio()
    await runtime.run(agent, "one", session="s")
    async with runtime.session("s", agent) as session:
        with pytest.raises(perdure.UnknownRoute, match="known are a, a-high, b"):
            await session.select_route("nowhere")
    await runtime.sessions.select_route("s", "nowhere")
    before = await runtime.sessions.entries("s")
    with pytest.raises(perdure.UnknownRoute):
        await runtime.run(agent, "two", session="s", submission="m2")
    async with runtime.session("s", agent) as session:
        with pytest.raises(perdure.UnknownRoute):
            await session.send("two")
    with pytest.raises(perdure.UnknownRoute):
        await runtime.sessions.call_tool("s", agent, "read_result")
    assert await runtime.sessions.entries("s") == before
    head = await runtime.store.load("s")
    assert head is not None
    assert await runtime.store.inbox(head.row.no) == []
    assert (await runtime.sessions.info("s")).status == "idle"
    await runtime.sessions.select_route("s", "b")
    result = await runtime.run(agent, "two", session="s")
    assert result.output == "b says 7"


async def test_what_ended_is_still_told_when_the_saved_route_is_unknown(runtime: Runtime) -> None:
    _, _, _, agent = trio()
    first = await runtime.run(agent, "one", session="s", submission="m1")
    await runtime.sessions.select_route("s", "nowhere")
    assert await runtime.run(agent, "one", session="s", submission="m1") == first
    async with runtime.session("s", agent) as session:
        assert (await session.send("one", submission="m1")).duplicate


@pytest.mark.spec("S2-168", "B-B-011")
async def test_selecting_a_route_while_a_turn_runs_is_refused(runtime: Runtime) -> None:
    _, _, _, agent = trio()
    asking = agent.replace(approve=["look"])
    async with runtime.session("s", asking) as session:
        await session.send("go")
        async for event in session.events():
            if isinstance(event, perdure.ApprovalRequested):
                break
        with pytest.raises(perdure.SubmissionRejected) as raised:
            await session.select_route("b")
        assert (raised.value.facts["reason"], (await runtime.sessions.checkpoint("s")).route) == ("busy", "a")


async def test_a_provider_that_gives_up_is_followed_by_the_fallback_within_the_same_step(runtime: Runtime) -> None:
    first, spare = Fake("a"), Fake("b")
    first.broken = True
    agent = Agent("x", model=Router({"a": first, "b": spare}, fallback=["b"]), tools=[look])
    result = await runtime.run(agent, "one", session="s")
    assert (result.status, result.output, result.steps) == ("completed", "b says 3", 2)
    assert (len(first.asked), len(spare.asked)) == (5, 2)
    started: Any = [entry for entry in await runtime.sessions.entries("s", kinds=["operation_started"]) if entry.plan]  # type: ignore[attr-defined]
    assert [(entry.operation, entry.plan.name) for entry in started] == [
        ("t2.0.0", "a"),
        ("t2.0.1", "b"),
        ("t2.0.2", "look"),
        ("t2.1.0", "b"),
    ]
    checkpoint = await runtime.sessions.checkpoint("s")
    assert (checkpoint.route, checkpoint.owner) == ("a", "b")


async def test_a_provider_that_asks_for_a_long_pause_is_not_waited_for_where_another_route_may_answer(runtime: Runtime) -> None:
    def full(request: ModelRequest) -> Reply:
        raise RateLimited("full", retry_after=300)

    spare = Fake("b")
    before = runtime.clock.now()
    agent = Agent("x", model=Router({"a": FunctionModel(full), "b": spare}, fallback=["b"]), tools=[look])
    result = await runtime.run(agent, "one", session="s")
    assert (result.status, result.output, len(spare.asked)) == ("completed", "b says 3", 2)
    assert runtime.clock.now() - before < 5_000


async def test_a_router_that_can_not_work_is_refused() -> None:
    with pytest.raises(perdure.UsageError):
        Router({})
    with pytest.raises(perdure.UsageError):
        Router({"a": Fake("a")}, fallback=["b"])


async def test_an_agent_whose_only_model_was_exchanged_goes_on_with_the_new_one(runtime: Runtime) -> None:
    first, second = Fake("a"), Fake("b")
    agent = Agent("x", model=first)
    await runtime.run(agent, "one", session="s")
    result = await runtime.run(agent.replace(model=second), "two", session="s")
    assert result.output.startswith("b says")
    assert second.private(0) == []
    assert (await runtime.sessions.checkpoint("s")).owner == "b"
