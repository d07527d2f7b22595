"""Whoever only watches a session sees what another process does, also if the session begins after the watching."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import perdure
from perdure import (
    Agent,
    ApprovalRequested,
    Entry,
    Fenced,
    HookFailed,
    Reply,
    ResumeRequested,
    ScriptedModel,
    Session,
    SessionCreated,
    SessionOpened,
    ToolCall,
    TurnCompleted,
    TurnStarted,
    tool,
)
from perdure.testing.faults import Call

from ..interactive.acting import Place, until


async def test_a_handle_that_was_opened_before_its_session_existed_sees_what_another_process_does(tmp_path: Path) -> None:
    # Two runtimes on one file hear of each other only through it, as two processes do.
    async with perdure.open(str(tmp_path / "a.db")) as watcher, perdure.open(str(tmp_path / "a.db")) as worker:
        seen: list[Entry] = []
        async with watcher.session("s") as handle:
            watching = asyncio.ensure_future(_until_completed(handle, seen))
            await asyncio.sleep(0.05)
            await worker.run(Agent("a", model=ScriptedModel(["hello"])), "hi", session="s", submission="m")
            await asyncio.wait_for(watching, 5)
    assert [entry.seq for entry in seen] == [*range(1, len(seen) + 1)]


async def test_a_handle_is_told_that_its_session_begins(place: Place) -> None:
    async with place.process() as watcher, place.process() as worker, watcher.session("s") as handle:
        seen: list[Any] = []
        watching = asyncio.ensure_future(_until_completed(handle, seen))
        await asyncio.sleep(0)
        await worker.run(Agent("a", model=ScriptedModel(["hello"])), "hi", session="s", submission="m")
        await watching


async def test_a_handle_that_is_read_again_after_nobody_watched_is_told_of_what_comes(place: Place) -> None:
    agent = Agent("a", model=ScriptedModel(["one", "two"]))
    async with place.process() as watcher, place.process() as worker:
        await worker.run(agent, "hi", session="s", submission="m")
        async with watcher.session("s") as handle:
            async with aclosing(handle.events(after=0)) as events:
                assert isinstance(await anext(events), SessionOpened)
            watching = asyncio.ensure_future(until(handle))
            await asyncio.sleep(0)
            await worker.run(agent, "again", session="s", submission="n")
            assert (await watching)[-1].submission == "n"


async def test_what_another_process_does_while_a_handle_is_opened_is_seen_although_something_live_is_told_first(place: Place) -> None:
    agent = Agent("a", model=ScriptedModel(["one", "two", "other"]))
    async with place.process() as watcher, place.process() as worker:
        await worker.run(agent, "hi", session="s", submission="m")
        look = Session._look

        async def slowly(handle: Session) -> SessionOpened:
            seen = await look(handle)
            await worker.run(agent, "again", session="s", submission="n")
            # What was announced of it is heard before anybody watches.
            await asyncio.sleep(0)
            return seen

        with patch.object(Session, "_look", slowly):
            handle = await watcher.session("s").__aenter__()
        await worker.run(agent, "elsewhere", session="t", submission="o")
        await handle.request_resume("t")
        asked = 1
        async for event in handle.events():
            if isinstance(event, ResumeRequested) and asked == 1:
                asked += 1
                await handle.request_resume("t")
            if isinstance(event, TurnCompleted):
                break
        await handle.__aexit__(None, None, None)


async def test_what_another_process_does_right_after_this_one_is_seen_by_a_slow_reader(place: Place) -> None:
    @tool(effect="external")
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent("a", model=ScriptedModel([Reply(tool_calls=[ToolCall("pay", {})]), "it was denied"]), tools=[pay], approve=["pay"])
    async with place.process() as watcher, place.process() as worker:
        await worker.sessions.send("s", "hi", submission="m", agent="a")
        seen: list[Entry] = []
        async with watcher.session("s") as handle:
            async for event in handle.events(after=0):
                if isinstance(event, Entry):
                    seen.append(event)
                if isinstance(event, SessionCreated):
                    await worker.recover([agent], session="s")
                if isinstance(event, ApprovalRequested):
                    # The denial is committed here, and the end elsewhere, before anything more is read.
                    await handle.deny(event.request_id)
                    await worker.recover([agent], session="s")
                    # What was announced of it is heard before this goes on.
                    await asyncio.sleep(0)
                if isinstance(event, TurnCompleted):
                    break
    assert [entry.seq for entry in seen] == [*range(1, len(seen) + 1)]


async def test_what_another_process_does_before_this_one_learned_that_it_let_go_is_seen(place: Place) -> None:
    agent = Agent("a", model=ScriptedModel(["one", "two"]))
    async with place.process() as worker:

        async def gate(call: Call, when: str) -> None:
            if when == "after" and call.kind == "commit" and call.given.release and not done:
                done.append(True)
                await worker.run(agent, "again", session="s", submission="n")

        done: list[bool] = []
        async with place.process(gate=gate) as watcher, watcher.session("s", agent) as handle:
            await handle.send("hi", submission="m")
            seen = await until(handle, TurnCompleted, after=0, count=2)
    assert [event.submission for event in seen if isinstance(event, TurnStarted)] == ["m", "n"]


async def test_a_reader_that_comes_back_finds_what_it_missed_with_one_read_and_before_what_is_live(place: Place) -> None:
    async with place.process() as worker:
        await worker.run(Agent("a", model=ScriptedModel(["hello"])), "hi", session="s", submission="m")
    live = [HookFailed(extension="x", hook="h", message=text) for text in ("one", "two")]
    async with place.process() as watcher, watcher.session("s") as handle:
        watcher.news.feed("s").publish(live[:1])
        watcher.faulty.calls.clear()

        async with aclosing(handle.events(after=0)) as events:
            assert isinstance(await anext(events), SessionOpened)
            seen = [await anext(events) for _ in range(handle._opened.version + 1)]
            watcher.news.feed("s").publish(live[1:])
            seen.append(await anext(events))

        assert [event.seq for event in seen if isinstance(event, Entry)] == [*range(1, len(seen) - 1)]
        assert seen[-2:] == live
        assert [call.kind for call in watcher.faulty.calls].count("entries") == 1


async def test_whoever_watches_a_session_that_is_taken_from_this_process_sees_what_took_it_and_then_why_it_ends(place: Place) -> None:
    begun = asyncio.Event()

    @tool(effect="pure")
    async def wait() -> None:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()

    agent = Agent("a", model=ScriptedModel([Reply(tool_calls=[ToolCall("wait", {})])]), tools=[wait])
    async with place.process() as other, place.process() as holder, holder.session("s", agent) as handle:
        await handle.send("hi", submission="m")
        seen: list[str] = []

        async def watch() -> None:
            async for event in handle.events(after=0):
                seen.append(event.kind if isinstance(event, Entry) else "live")

        watching = asyncio.create_task(watch())
        await begun.wait()
        await other.sessions.archive("s")
        with pytest.raises(Fenced):
            await watching
        assert seen[-1] == "archived"


async def _until_completed(handle: perdure.Session, seen: list[Entry]) -> None:
    async for event in handle.events(after=0):
        if isinstance(event, Entry):
            seen.append(event)
        if isinstance(event, TurnCompleted):
            return
