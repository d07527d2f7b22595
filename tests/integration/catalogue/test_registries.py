"""A process that lives long keeps nothing of sessions that it is done with."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, FunctionModel, ModelRequest, ProviderRefused, Reply, Runtime, ToolCall, tool

from ..interactive.acting import eventually, until

GROWS = (dict, set, list, deque)

STOCKS = ("perdure.runtime.salts._stock",)
"""What is filled anew whenever it is used up, and is no memory of anything."""


@tool(effect="external")
async def charge(cents: int) -> str:
    """Charge."""
    return f"charged {cents}"


def answer(request: ModelRequest) -> Reply:
    text = request.messages[-1].text
    if text == "refuse":
        raise ProviderRefused("not that")
    if text == "charge":
        return Reply(tool_calls=[ToolCall("charge", {"cents": 5})])
    if text == "ask the clerk":
        return Reply(tool_calls=[ToolCall("clerk", {"task": "say something"})])
    return Reply("ok")


def team() -> Agent:
    clerk = Agent("clerk", model=FunctionModel(answer))
    return Agent("helper", model=FunctionModel(answer), tools=[charge, clerk.as_tool()], approve=["charge"])


def sizes(root: Any) -> dict[str, int]:
    """How much every collection holds that can be reached from an object of ours through objects of ours, and what our modules hold."""
    found: dict[str, int] = {}
    seen: set[int] = set()

    def walk(path: str, thing: Any) -> None:
        if id(thing) in seen:
            return
        seen.add(id(thing))
        if isinstance(thing, GROWS):
            found[path] = found.get(path, 0) + len(thing)
            for item in [*(thing.values() if isinstance(thing, dict) else thing)]:
                walk(f"{path}[]", item)
        elif isinstance(thing, functools._lru_cache_wrapper):
            if thing.cache_info().maxsize is None:
                found[path] = thing.cache_info().currsize
        elif type(thing).__module__.startswith("perdure"):
            for name in {
                *getattr(thing, "__dict__", ()),
                *(slot for kind in type(thing).__mro__ for slot in getattr(kind, "__slots__", ())),
            }:
                with suppress(AttributeError):
                    walk(f"{path}.{name}", getattr(thing, name))

    walk("runtime", root)
    for name, module in [*sys.modules.items()]:
        if name.startswith("perdure"):
            for attribute, value in [*vars(module).items()]:
                if isinstance(value, (*GROWS, functools._lru_cache_wrapper)) and f"{name}.{attribute}" not in STOCKS:
                    walk(f"{name}.{attribute}", value)
    return found


async def live(runtime: Runtime, agent: Agent, name: str) -> None:
    """Sessions that are run, watched, parked, answered, interrupted, failed, called, branched, put away and deleted."""
    sessions = runtime.sessions
    await runtime.run(agent, "hello", session=f"{name}-run", owner="acme")
    assert (await runtime.run(agent, "refuse", session=f"{name}-fails")).status == "failed"
    async with runtime.session(f"{name}-watched", agent) as handle:
        await handle.send("hello")
        await until(handle)
    async with runtime.session(f"{name}-run"):
        pass
    waiting = asyncio.create_task(runtime.run(agent, "charge", session=f"{name}-parked", submission="m1"))

    async def asked() -> Any:
        with suppress(perdure.SessionNotFound):
            return await sessions.requests(f"{name}-parked")

    await eventually(asked)
    waiting.cancel()
    [request] = await sessions.requests(f"{name}-parked")
    await sessions.approve(f"{name}-parked", request.request_id)
    await runtime.recover([agent], session=f"{name}-parked")
    await runtime.run(agent, "ask the clerk", session=f"{name}-calls")
    with suppress(perdure.SubmissionRejected):
        await sessions.interrupt(f"{name}-run", turn="t99")
    await sessions.fork(f"{name}-run", session_id=f"{name}-branch")
    await runtime.run(agent, "hello", session=f"{name}-branch")
    await sessions.compact(f"{name}-branch", submission="c1")
    await runtime.recover([agent], session=f"{name}-branch")
    await sessions.archive(f"{name}-branch")
    with pytest.raises(perdure.SessionArchived):
        await runtime.run(agent, "in vain", session=f"{name}-branch")
    await sessions.delete(f"{name}-watched")
    with pytest.raises(perdure.SessionNotFound):
        await runtime.run(agent, "in vain", session=f"{name}-watched")
    await sessions.consumer("audit").consume(lambda session_id, entries: asyncio.sleep(0), follow=False)


@pytest.mark.hazard("J-12", "H14")
async def test_sessions_that_are_over_leave_nothing_behind_in_their_process(tmp_path: Path) -> None:
    agent = team()
    async with perdure.open(str(tmp_path / "agents.db")) as runtime:

        async def measured() -> dict[str, int]:
            await eventually(lambda: not runtime.work.tasks and not runtime.background.tasks)
            gc.collect()
            return sizes(runtime) | {"tasks": len(asyncio.all_tasks())}

        for number in range(3):
            await live(runtime, agent, f"first-{number}")
        before = await measured()
        for number in range(12):
            await live(runtime, agent, f"then-{number}")
        after = await measured()
        assert len(before) > 50, "this looks at too little"
        assert {name: (before.get(name, 0), count) for name, count in after.items() if count > before.get(name, 0)} == {}
