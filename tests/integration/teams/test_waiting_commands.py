"""A command that follows a session looks itself whether agents that were called fell asleep."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import Agent, Reply, ScriptedModel, StoreBroken, ToolCall, ToolContext, tool
from perdure.cli.follow import Follower, Parked
from perdure.cli.screen import Screen
from perdure.store.memory import MemoryStore
from perdure.store.passing import PassingStore


class Away(PassingStore):
    """Fails once where it is asked for a session, as soon as ``armed``."""

    armed = False
    failed = False

    async def load(self, *given: Any, **named: Any) -> Any:
        if self.armed and not self.failed:
            self.failed = True
            raise StoreBroken("away")
        return await self.inner.load(*given, **named)


@tool(effect="external", resumable=True)
async def remind(ctx: ToolContext) -> str:
    """Come back in two days."""
    await ctx.sleep_until("two-days", timedelta(days=2))
    return "reminded"


async def test_a_store_that_fails_one_look_keeps_no_command_waiting_for_sleepers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.cli.follow.LOOKING", 0.001)
    agent = Agent("a", model=ScriptedModel([Reply(tool_calls=[ToolCall("remind", {})]), "Done."]), tools=[remind])
    store = Away(MemoryStore())
    async with perdure.open(store) as runtime, asyncio.timeout(30), runtime.session("s", agent) as session:
        await session.send("go", submission="m")
        while (await runtime.sessions.info("s")).status != "waiting":
            await asyncio.sleep(0.001)
        follower = Follower(runtime, "s", Screen(as_json=True), db="a.db", agent=agent, wait=False)
        store.armed = True
        looking = asyncio.ensure_future(follower._look_for_sleepers())
        await looking
        assert store.failed
        assert isinstance(follower._parked, Parked)
