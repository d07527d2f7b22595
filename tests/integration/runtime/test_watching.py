"""Whoever only watches a session sees what another process does, also if the session begins after the watching."""

from __future__ import annotations

import asyncio
from pathlib import Path

import perdure
from perdure import Agent, Entry, ScriptedModel, TurnCompleted


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


async def _until_completed(handle: perdure.Session, seen: list[Entry]) -> None:
    async for event in handle.events(after=0):
        if isinstance(event, Entry):
            seen.append(event)
        if isinstance(event, TurnCompleted):
            return
