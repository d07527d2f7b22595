"""Facts are events, and what extensions keep is a fact: told once it is stored, and found again by whoever goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    Compaction,
    Entry,
    FormatUnknown,
    FunctionModel,
    HookContext,
    Middleware,
    ModelRequest,
    Reply,
    Session,
    StoreBroken,
    ToolCall,
    ToolContext,
    tool,
)
from perdure.agent.definition import fingerprint
from perdure.core import canonical, entries
from perdure.core.ids import idempotency_key
from perdure.testing import find_all_problems
from perdure.testing.faults import Fault, ProcessDied
from tests.integration.interactive.acting import Place

from .test_session_memory import EAGER, Talker, facts

PLAIN = Agent("a", model=FunctionModel(lambda request: "ok"))


async def listen(handle: Session, told: list[Entry]) -> None:
    async for event in handle.events():
        if isinstance(event, Entry):
            told.append(event)


# -------------------------------------------------------------------------------------------------------------------- events


@pytest.mark.spec("S0-210")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_fact_and_its_event_are_stored_together_or_neither_is(place: Place, when: Any) -> None:
    """The last commit fails: before it was made nothing of it is anywhere, and after that all of it, for whoever reads on."""
    told: list[Entry] = []
    async with place.process(Fault(nth=2, when=when)) as process:
        async with process.session("s", PLAIN) as handle:
            await handle.send("hello", submission="m")
            with pytest.raises(StoreBroken):
                await listen(handle, told)
        stored = await process.sessions.entries("s")
        assert told == stored[: len(told)]
        kinds = [entry.kind for entry in stored]
        assert ("turn_completed" in kinds) == ("operation_ended" in kinds) == (when == "after")
        assert (await process.run(PLAIN, "hello", session="s", submission="m")).ok
        rest = await process.sessions.entries("s", after=told[-1].seq if told else 0)
        assert [*told, *rest] == await process.sessions.entries("s")


@pytest.mark.spec("S0-211", "S0-212")
async def test_an_entry_that_is_read_again_is_the_same_bytes_under_the_same_number(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m")
        first = await process.store.entries((await process.row()).no)
        read = await process.sessions.consumer("audit").read("s")
    async with place.process() as process:
        assert await process.store.entries((await process.row()).no) == first
        assert await process.sessions.consumer("audit").read("s") == read
        assert [entries.encode(entry) for entry in read] == [row.body for row in first]


@pytest.mark.spec("S0-214")
async def test_ids_follow_from_what_happened_and_are_the_same_wherever_it_happens(place: Place) -> None:
    keys: list[str] = []

    @tool(effect="idempotent")
    def put(ctx: ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        return "put"

    calls = Reply(tool_calls=[ToolCall(name="put", arguments={})])
    agent = Agent("a", model=FunctionModel(lambda request: "ok" if request.step else calls), tools=[put])
    async with place.process() as process:
        for session in ("one", "two"):
            await process.run(agent, "hello", session=session, submission="m")
        named = [
            [(entry.kind, getattr(entry, "operation", ""), getattr(entry, "turn", "")) for entry in await process.sessions.entries(session)]
            for session in ("one", "two")
        ]
        assert named[0] == named[1]
        assert keys == [idempotency_key(process.store.store_id, session, "t2.0.1") for session in ("one", "two")]


@pytest.mark.spec("S0-215", "S0-216")
async def test_an_entry_that_is_not_whole_or_of_an_unknown_kind_is_refused(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m")
        for row in await process.store.entries((await process.row()).no):
            assert row.body is not None
            whole = canonical.decode(row.body)
            place_of = {"seq": row.seq, "number": row.number, "at": row.at}
            assert entries.encode(entries.decode(row.kind, row.body, **place_of)) == row.body
            with pytest.raises(msgspec.ValidationError):
                entries.decode(row.kind, canonical.encode({**whole, "unheard_of": 1}), **place_of)
            with pytest.raises(FormatUnknown):
                entries.decode(row.kind + "_2", row.body, **place_of)
        for kind in ("turn_started", "operation_ended", "turn_completed", "recovered"):
            with pytest.raises(msgspec.ValidationError):
                entries.decode(kind, b"{}", seq=1, number=0, at=0)


@pytest.mark.spec("S0-219")
async def test_who_looks_on_and_fails_has_no_part_in_the_run(place: Place) -> None:
    async def fails(session_id: str, found: Sequence[Entry]) -> None:
        raise RuntimeError("not today")

    async with place.process() as process:
        looking = asyncio.create_task(process.sessions.consumer("audit").consume(fails))
        async with process.session("s", PLAIN) as handle:
            await handle.send("hello", submission="m")
            async for _ in handle.events():
                break
        result = await process.run(PLAIN, "hello", session="s", submission="m")
        assert result.ok
        looking.cancel()


# ---------------------------------------------------------------------------------------------------------------- extensions


class Counts(Middleware):
    """Counts model calls in its state, and notes what it found there."""

    name = "counts"

    def __init__(self) -> None:
        self.found: list[int] = []

    def before_model(self, ctx: HookContext) -> None:
        self.found.append(ctx.state.get("calls", 0))
        ctx.state["calls"] = ctx.state.get("calls", 0) + 1


@pytest.mark.spec("S0-220")
async def test_what_an_extension_keeps_is_there_before_the_first_operation_of_a_resumed_run(place: Place) -> None:
    first, then = Counts(), Counts()
    model = FunctionModel(lambda request: "ok")
    async with place.process() as process:
        await process.run(Agent("a", model=model, middleware=[first]), "one", session="s", submission="m1")
    async with place.process(Fault(nth=2, when="after", action="die")) as process:
        with pytest.raises(ProcessDied):
            await process.run(Agent("a", model=model, middleware=[first]), "two", session="s", submission="m2")
    async with place.process() as process:
        await process.run(Agent("a", model=model, middleware=[then]), "two", session="s", submission="m2")
        await process.run(Agent("a", model=model, middleware=[then]), "three", session="s", submission="m3")
        assert first.found == [0, 1]
        assert then.found == [2]


@pytest.mark.spec("S0-222")
async def test_what_an_extension_keeps_is_carried_along_by_an_agent_that_does_not_have_it(place: Place) -> None:
    counts, talker = Counts(), Talker(memory=facts("x"))
    async with place.process() as process:
        await process.run(talker.agent(middleware=[counts]), "one", session="s", submission="m1")
        kept = (await process.batch()).checkpoint.extensions
        await process.run(PLAIN, "two", session="s", submission="m2")
        assert (await process.batch()).checkpoint.extensions == kept
        await process.run(talker.agent(EAGER, middleware=[counts]), "three", session="s", submission="m3")
        assert counts.found == [0, 1]
        assert "- x" in talker.asked[-1].instructions


@pytest.mark.spec("S0-223")
async def test_a_value_beyond_the_limit_is_refused_and_nothing_of_it_is_kept(place: Place) -> None:
    class Hoards(Middleware):
        name = "hoards"

        def before_model(self, ctx: HookContext) -> None:
            ctx.state["x"] = "y" * 70_000

    async with place.process() as process:
        result = await process.run(PLAIN.replace(middleware=[Hoards()]), "one", session="s", submission="m")
        assert result.status == "failed"
        assert result.failure is not None
        assert "too long" in result.failure.message
        assert (await process.batch()).checkpoint.extensions == {}


@pytest.mark.spec("S0-224")
def test_a_key_that_changes_is_no_change_of_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("a", model="openai:gpt-5.6-sol", memory=EAGER)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-one")
    one = fingerprint(agent)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-two")
    assert fingerprint(agent) == one


# ------------------------------------------------------------------------------------------------------------- beside memory


@pytest.mark.spec("S0-229")
async def test_a_child_has_no_memory_because_its_parent_has_one(place: Place) -> None:
    child = Talker("found it")

    def answer(request: ModelRequest) -> Any:
        return Reply(tool_calls=[ToolCall(name="helper", arguments={"task": "look"})]) if request.step == 0 else "done"

    parent = Talker(answer, memory=facts("x"))
    helper = Agent("helper", instructions="Help.", model=child.model)
    async with place.process() as process:
        agent = parent.agent(tools=[helper.as_tool()])
        assert (await process.run(agent, "Go.", session="s", submission="m")).ok
        assert child.purposes() == ["answer"]
        assert parent.purposes()[0] == "memory"
        assert await find_all_problems(process.store) == []


@pytest.mark.spec("S0-253")
async def test_notes_of_a_compaction_are_an_operation_whose_receipt_is_used_after_a_crash(place: Place) -> None:
    asked: list[str] = []

    def play(request: ModelRequest) -> Any:
        asked.append(request.purpose)
        return Reply(tool_calls=[ToolCall(name="save_notes", arguments={"notes": "notes"})]) if request.purpose == "notes" else "ok"

    agent = Agent("a", model=FunctionModel(play, window=2_000), compaction=Compaction(threshold=100))
    async with place.process() as process:
        await process.run(agent, "x" * 600, session="s", submission="m1")
        asked.clear()
    # The second commit of the next turn holds the receipt of the notes.
    async with place.process(Fault(nth=2, when="after", action="die")) as process:
        with pytest.raises(ProcessDied):
            await process.run(agent, "and?", session="s", submission="m2")
    async with place.process() as process:
        assert (await process.run(agent, "and?", session="s", submission="m2")).ok
        assert asked.count("notes") == 1
        assert [call.kind for call in await process.sessions.model_calls("s")].count("compaction") == 1


@pytest.mark.spec("S0-256")
async def test_nothing_is_cut_where_nothing_could_read_it_again(place: Place) -> None:
    seen: list[ModelRequest] = []

    @tool(effect="pure")
    def look() -> str:
        return "z" * 50_000

    def play(request: ModelRequest) -> Any:
        seen.append(request)
        return Reply(tool_calls=[ToolCall(name="look", arguments={})]) if request.step == 0 else "done"

    for archive, cut in ((None, False), (20_000, True)):
        seen.clear()
        async with place.process() as process:
            agent = Agent("a", model=FunctionModel(play), tools=[look], archive=archive)
            await process.run(agent, "Look.", session=f"s{cut}", submission="m")
        assert ("read_result" in [spec.name for spec in seen[1].tools]) == cut
        assert ("z" * 50_000 in str(seen[1].messages[-1].parts)) == (not cut)
