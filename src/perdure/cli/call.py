"""``perdure call``: a session's tool, called outside of its conversation."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from collections.abc import Awaitable
from typing import Any

from ..agent import Agent
from ..core.entries import TurnEnded
from ..runtime.calling import ToolOutcome
from ..runtime.declared import belongs, check_call
from ..runtime.runtime import Runtime
from .agents import load
from .decide import json_object
from .exits import FAILED, INTERRUPTED, OK
from .follow import Follower, Left, Parked, say_left, say_parked
from .hints import agent_options, command
from .live import MARKS
from .opening import opened, read_text
from .screen import Screen
from .text import plain, value

__all__ = ["call"]


def call(arguments: argparse.Namespace) -> Awaitable[int]:
    """Call, follow, and say what it came to."""
    text = None if arguments.arguments is None else read_text(arguments.arguments)
    given = json_object(text, "what the tool is given", '{"order": "A-1", "cents": 300}')
    agent = load(arguments.agent)
    return _call(arguments, agent, given or {})


async def _call(arguments: argparse.Namespace, agent: Agent, given: dict[str, Any]) -> int:
    screen = Screen(as_json=arguments.json)
    session_id: str = arguments.session
    submission, named = arguments.submission or uuid.uuid4().hex, agent_options(arguments.agent)
    try:
        async with opened(arguments) as runtime:
            info = await runtime.sessions.info(session_id)
            belongs(info.session_id, info.agent, [agent])
            follower = Follower(runtime, session_id, screen, db=arguments.db, agent=agent, named=named, wait=not arguments.no_wait)
            outcome = await _followed(arguments, runtime, follower, given, submission, info.version)
    except Left as left:
        say_left(screen, arguments.db, session_id, named, "the call")
        return left.code
    except Parked as parked:
        return say_parked(screen, session_id, submission, parked)
    if arguments.json:
        screen.json(plain(outcome))
    else:
        _show(arguments, screen, outcome)
    if follower.stopped:
        return INTERRUPTED
    return OK if outcome.status == "succeeded" and not outcome.is_error else FAILED


async def _followed(
    arguments: argparse.Namespace, runtime: Runtime, follower: Follower, given: dict[str, Any], submission: str, after: int
) -> ToolOutcome:
    session_id = follower.session_id

    def calling() -> Awaitable[ToolOutcome]:
        return runtime.sessions.call_tool(session_id, follower.agent, arguments.tool, given, submission=submission, actor=arguments.actor)

    head = await runtime.store.load(session_id)
    row = None if head is None else await runtime.store.submission(head.row.no, submission)
    if row is not None and row.settled_seq is not None:
        follower.screen.note(("it ended before; nothing ran now", "dim"))
        return await calling()
    if row is None and head is not None and head.row.status != "idle":
        # It is refused, and what the session asks has nothing to do with this call.
        return await calling()
    if row is None:
        check_call(follower.agent, arguments.tool, given)
    async with follower:
        follower.own.add(submission)
        async with runtime.session(session_id) as handle:
            ends = follower.watch(handle, lambda event: isinstance(event, TurnEnded) and event.submission == submission, after=after)
            calls, watches = asyncio.ensure_future(calling()), asyncio.ensure_future(ends)
            try:
                # One says that it was refused, the other that nobody here answers what is asked.
                done, _ = await asyncio.wait((calls, watches), return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                return calls.result()
            finally:
                calls.cancel()
                watches.cancel()
                await asyncio.gather(calls, watches, return_exceptions=True)


def _show(arguments: argparse.Namespace, screen: Screen, outcome: ToolOutcome) -> None:
    mark, style = MARKS[outcome.status]
    failure = "" if outcome.failure is None else f"{outcome.failure.code}: {outcome.failure.message}"
    screen.line((f"{mark} ", style), value(outcome.result, 100_000) if outcome.result is not None else failure or outcome.status)
    if outcome.status == "uncertain":
        listed = command(arguments.db, "uncertain", outcome.session_id)
        screen.note((f"nobody knows whether it took effect; `{listed}` lists it, and how to say what became of it", "yellow"))
