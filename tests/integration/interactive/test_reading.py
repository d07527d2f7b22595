"""What readers get: facts in their order, whole and once, and live news in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import perdure
from perdure import (
    Agent,
    Entry,
    FunctionModel,
    Identity,
    MessageAdded,
    ModelRequest,
    OperationEnded,
    OperationStarted,
    RateLimited,
    Reply,
    SessionOpened,
    TextDelta,
    ToolCall,
    TurnCompleted,
    TurnEnded,
    tool,
)
from perdure.runtime.feed import BUFFER
from perdure.store.base import Commit, CommitAnswer, Committed
from perdure.store.memory import MemoryStore
from perdure.store.passing import PassingStore

from .acting import Place, Process, counting, eventually, until


@tool(effect="pure")
async def double(number: int) -> int:
    """Double a number."""
    return number * 2


def doubler() -> Agent:
    model, _ = counting(Reply("thinking", tool_calls=[ToolCall("double", {"number": 21}, "c")]), Reply("42"))
    return Agent("doubler", model=model, tools=[double])


@pytest.mark.spec("S2-065", "B-B-153")
async def test_the_transcript_is_read_in_order_with_positions_and_page_by_page(place: Place) -> None:
    async with place.process() as process:
        await process.run(doubler(), "double 21", session="s", submission="m-1")
        history = await process.sessions.history("s")
        assert [(message.position, message.role) for message in history] == [(0, "user"), (1, "assistant"), (2, "tool"), (3, "assistant")]
        assert [message.text for message in history] == ["double 21", "thinking", "", "42"]
        seqs = [message.seq for message in history]
        entries = [entry for entry in await process.sessions.entries("s") if isinstance(entry, MessageAdded)]
        assert seqs == sorted(seqs) == [entry.seq for entry in entries]
        assert [message.position for message in history] == [entry.number - 1 for entry in entries]
        latest = await process.sessions.history("s", limit=3)
        assert latest == history[1:]
        assert await process.sessions.history("s", before=latest[0].position, limit=3) == history[:1]
        assert await process.sessions.history("s", before=0) == []


@pytest.mark.spec("S2-069", "S2-070", "B-A-002")
async def test_entries_are_numbered_per_session_without_gaps_and_live_events_have_no_number_and_are_not_kept(place: Place) -> None:
    async with place.process() as process:
        for session in ("s", "t"):
            async with process.session(session, doubler()) as handle:
                await handle.send("double 21")
                seen = await until(handle)
            entries = await process.sessions.entries(session)
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            told = [event for event in seen if isinstance(event, Entry)]
            assert told == entries
            live = [event for event in seen if not isinstance(event, Entry)]
            assert {type(event) for event in live} == {SessionOpened, TextDelta}
            deltas = [event for event in live if isinstance(event, TextDelta)]
            assert [event.index for event in deltas if event.operation == "t2.0.0"] == [0, 1, 2]
            assert not any(hasattr(event, "seq") for event in live)
            async with process.session(session) as later:
                again = await asyncio.wait_for(until(later, TurnEnded, after=0), 5)
            assert [event for event in again if not isinstance(event, SessionOpened)] == entries
    # A number whose commit failed is given to what is committed next, and none is given twice.
    async with place.process(perdure.testing.faults.Fault(nth=1, when="before")) as process:  # type: ignore[attr-defined]
        with pytest.raises(perdure.StoreBroken):
            await process.run(doubler(), "again", session="s", submission="m-9")
        await process.run(doubler(), "again", session="s", submission="m-9")
        entries = await process.sessions.entries("s")
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))


@pytest.mark.spec("S2-074")
async def test_a_list_is_filtered_before_it_is_cut_and_its_pages_stay_in_step(place: Place) -> None:
    async with place.process() as process:
        for number in range(12):
            owner = "acme" if number % 3 == 0 else "other"
            await process.sessions.send(f"s{number}", "hello", identity=Identity(owner=owner))
            place.clock.advance(number % 2)
        mine = await process.sessions.list(owner="acme", limit=50)
        assert sorted(info.session_id for info in mine) == ["s0", "s3", "s6", "s9"]
        assert [info.updated for info in mine] == sorted((info.updated for info in mine), reverse=True)
        found: list[str] = []
        after, more = None, True
        while more:
            page = await process.sessions.list(owner="acme", limit=2, after=after)
            found += [info.session_id for info in page]
            after, more = page.next, page.next is not None
            if len(found) == 2:
                # Somebody else's sessions, and new ones, don't move what is left.
                place.clock.advance(1)
                await process.sessions.send("s1", "more")
                await process.sessions.send("new", "hello", identity=Identity(owner="acme"))
        assert found == [info.session_id for info in mine]


@pytest.mark.spec("S2-075", "B-A-109", "B-A-110")
async def test_the_catalogue_is_read_without_what_the_checkpoint_needs(disk: Place) -> None:
    async with disk.process() as process:
        await process.run(doubler(), "double 21", session="s", identity=Identity(owner="acme"), labels={"team": "blue"})
        before = await process.sessions.info("s")
        assert (before.title, before.labels, before.agent) == ("double 21", {"team": "blue"}, "doubler")
        assert (before.status, before.holder) == ("idle", None)
    disk.execute("UPDATE sessions SET checkpoint = CAST('nothing' AS BLOB)", "DELETE FROM journal")
    async with disk.process() as process:
        # What stands in the checkpoint alone is not known any more, and said to be so.
        info = await process.sessions.info("s")
        assert "can't be read" in info.problem
        known = msgspec.structs.replace(before, identity=None, metadata=None, tools=None, route=None, problem=info.problem)
        assert info == known
        assert await process.sessions.list(owner="acme") == [known]
        with pytest.raises(perdure.StoreCorrupt):
            await process.sessions.checkpoint("s")


@pytest.mark.spec("S2-077", "B-B-021", "B-B-215")
async def test_the_first_event_of_every_handle_is_that_it_was_opened(place: Place) -> None:
    async with place.process() as process:
        async with process.session("s", doubler()) as handle:
            await handle.send("double 21")
            seen = await until(handle)
        assert seen[0] == SessionOpened(session_id="s", version=0, created=True)
        assert [type(event) for event in seen].count(SessionOpened) == 1
        version = (await process.row()).version
    async with place.process() as process:
        for agent, after in ((doubler(), None), (None, None), (None, 0)):
            async with process.session("s", agent) as handle:
                assert await anext(handle.events(after=after)) == SessionOpened(
                    session_id="s", version=version, created=False, route="function"
                )
        # Live, and without a seq: nothing is written for it.
        assert (await process.row()).version == version


@pytest.mark.spec("S0-296")
async def test_every_reader_sees_everything_from_the_beginning_whenever_it_comes_and_whatever_others_read(place: Place) -> None:
    async def kinds(process: Process, count: int) -> list[str]:
        async with process.session("s") as handle:
            return [event.kind for event in await until(handle, after=0, count=count) if isinstance(event, Entry)]

    async with place.process() as process, place.process() as other:
        early = asyncio.create_task(kinds(process, 2))
        await process.run(doubler(), "double 21", session="s")
        first = await kinds(process, 1)
        # One that reads no further than that holds up and takes away nothing.
        async with process.session("s") as idle:
            reading = idle.events(after=0)
            await anext(reading)
            await process.run(doubler(), "again", session="s")
            late = await asyncio.gather(kinds(process, 2), kinds(other, 2))
        stored = [entry.kind for entry in await process.sessions.entries("s")]
        assert [await early, *late] == [stored] * 3
        assert first == stored[: len(first)]


@pytest.mark.spec("S2-082")
async def test_a_burst_of_deltas_larger_than_every_queue_comes_whole_and_in_order(place: Place) -> None:
    many = 2 * BUFFER + 100
    reading = asyncio.Event()

    async def flow(request: ModelRequest) -> AsyncIterator[str | Reply]:
        for number in range(many):
            yield f"{number} "
            if number == 0:
                await reading.wait()
            if number % 100 == 0:
                await asyncio.sleep(0)  # as often as a connection gives way
        yield Reply()

    seen: list[Any] = []
    async with place.process() as process, process.session("s", Agent("flow", model=FunctionModel(flow))) as handle:
        await handle.send("go")
        async for event in handle.events():
            seen.append(event)
            if isinstance(event, TextDelta):
                reading.set()
            elif isinstance(event, TurnEnded):
                break
    deltas = [event for event in seen if isinstance(event, TextDelta)]
    assert [event.index for event in deltas] == list(range(many))
    assert "".join(event.text for event in deltas) == "".join(f"{number} " for number in range(many))
    assert isinstance(seen[-1], TurnCompleted)


@pytest.mark.spec("B-B-212", "B-B-211")
@pytest.mark.hazard("H11")
async def test_a_reader_that_falls_behind_loses_deltas_and_no_entry_and_delays_nobody(memory: Place) -> None:
    many = 2 * BUFFER

    async def flood(request: ModelRequest) -> AsyncIterator[str | Reply]:
        for number in range(many):
            yield f"{number} "
        yield Reply()

    async with memory.process() as process, process.session("s", Agent("flood", model=FunctionModel(flood))) as handle:
        events = handle.events()
        assert isinstance(await anext(events), SessionOpened)
        result = await process.run(Agent("flood", model=FunctionModel(flood)), "go", session="s", submission="m-1")
        assert result.ok
        seen: list[Any] = []
        async for event in events:
            seen.append(event)
            if isinstance(event, TurnEnded):
                break
        assert [event for event in seen if isinstance(event, Entry)] == await process.sessions.entries("s")
        assert len([event for event in seen if isinstance(event, TextDelta)]) < many


@pytest.mark.spec("S2-085")
async def test_every_attempt_of_a_model_call_that_started_ends_exactly_once(place: Place) -> None:
    """Answered, failed and tried again, interrupted, lost with its process, and failed for good."""
    thinking = asyncio.Event()
    script: list[Any] = []

    async def answer(request: ModelRequest) -> Any:
        step = script.pop(0)
        if step == "hang":
            thinking.set()
            await asyncio.Event().wait()
        if isinstance(step, Exception):
            raise step
        return step

    agent = Agent("a", model=FunctionModel(answer), tools=[double])

    async def begin(process: Any, *steps: Any) -> None:
        script[:] = steps
        thinking.clear()
        await process.sessions.send("s", "go", agent="a")

    async with place.process() as process, process.session("s", agent) as handle:
        await begin(process, RateLimited("wait", retry_after=1), Reply(tool_calls=[ToolCall("double", {"number": 1})]), Reply("2"))
        await eventually(lambda: len(script) == 2)
        await until(handle, OperationEnded, after=0)
        place.clock.advance(1000)
        await until(handle, after=0)
        await begin(process, "hang")
        await thinking.wait()
        await handle.interrupt()
        await until(handle, after=0, count=2)
        await begin(process, perdure.ProviderRefused("no"))
        await until(handle, after=0, count=3)
        await begin(process, "hang")
        await thinking.wait()
        process.faulty.kill()
    async with place.process() as process:
        script[:] = [Reply("done")]
        await process.recover([agent])
        entries = await process.sessions.entries("s")
    started = [(entry.operation, entry.attempt) for entry in entries if isinstance(entry, OperationStarted)]
    ended = [(entry.operation, entry.attempt) for entry in entries if isinstance(entry, OperationEnded)]
    assert len(started) == 8
    assert sorted(started) == sorted(ended)
    assert len({*ended}) == len(ended)
    for pair in started:
        begun = next(entry for entry in entries if isinstance(entry, OperationStarted) and (entry.operation, entry.attempt) == pair)
        over = next(entry for entry in entries if isinstance(entry, OperationEnded) and (entry.operation, entry.attempt) == pair)
        assert (begun.seq < over.seq, begun.at <= over.at) == (True, True)
    statuses = [entry.status for entry in entries if isinstance(entry, OperationEnded)]
    assert statuses == ["failed", "succeeded", "succeeded", "succeeded", "cancelled", "failed", "uncertain", "succeeded"]


async def test_a_reader_whose_store_is_slow_sees_what_was_said_before_it_ended() -> None:
    class Slow(PassingStore):
        """Who reads the journal gets it only when the turn is over."""

        over = asyncio.Event()

        async def entries(self, no: int, **wanted: Any) -> Any:
            await self.over.wait()
            return await self.inner.entries(no, **wanted)

        async def commit(self, commit: Commit) -> CommitAnswer:
            answer = await self.inner.commit(commit)
            if isinstance(answer, Committed) and any(entry.kind == "turn_completed" for entry in commit.entries):
                self.over.set()
            return answer

    async with perdure.open(Slow(MemoryStore())) as runtime:
        agent = Agent("a", model=FunctionModel(lambda request: Reply("one two three")))
        seen = [event async for event in runtime.stream(agent, "go", session="s")]
    told = ["text" if isinstance(event, TextDelta) else getattr(event, "kind", "") for event in seen]
    begun, ended = told.index("operation_started"), told.index("operation_ended")
    assert set(told[begun + 1 : ended]) == {"text"}
    assert told.count("text") == ended - begun - 1
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "one two three"
    assert told[-1] == "turn_completed"
