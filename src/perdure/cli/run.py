"""``perdure run``: one message, one turn."""

from __future__ import annotations

import argparse
import asyncio
import uuid

from ..agent import Agent
from ..core.entries import Identity, TurnEnded
from ..core.errors import SessionNotFound, TurnUnfinished, UsageError
from ..runtime.result import Result
from ..runtime.runtime import Runtime
from .agents import ad_hoc, load
from .exits import FAILED, INTERRUPTED, OK, WAITING, failure_code
from .follow import Follower, Left, Parked
from .opening import opened, read_text
from .screen import Screen
from .text import plain

__all__ = ["as_data", "code_of", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Send, follow, and say how it ended."""
    agent, text = _agent_and_text(arguments)
    return asyncio.run(_run(arguments, agent, text))


def _agent_and_text(arguments: argparse.Namespace) -> tuple[Agent, str]:
    match arguments.words:
        case [text] if arguments.model:
            return ad_hoc(arguments.model), read_text(text)
        case [agent, text]:
            return load(agent, model=arguments.model), read_text(text)
        case [_]:
            raise UsageError("run needs an agent and a message", hint='perdure run module:agent "text", or --model openai:… "text"')
        case _:
            raise UsageError("run takes one agent and one message", hint="put the message in quotes")


async def _run(arguments: argparse.Namespace, agent: Agent, text: str) -> int:
    screen = Screen(as_json=arguments.json)
    session_id = arguments.session or arguments.submission or uuid.uuid4().hex[:12]
    submission = arguments.submission or uuid.uuid4().hex
    try:
        async with opened(arguments, create=True) as runtime:
            if arguments.submission is None:
                await _refuse_unfinished(runtime, session_id)
            result = await _follow(arguments, runtime, screen, agent, session_id, submission, text)
    except Left as left:
        screen.advice((f"the session {session_id} is kept; `perdure why {session_id}` says what it waits for", "dim"))
        return left.code
    except Parked:
        if arguments.json:
            screen.json({"session": session_id, "submission": submission, "status": "waiting"})
        return WAITING
    if arguments.json:
        screen.json(as_data(result))
    elif not screen.live and result.output:
        screen.line(result.output)
    if not arguments.session and not arguments.submission:
        screen.note((f"session {session_id}", "dim"))
    return code_of(result)


async def _refuse_unfinished(runtime: Runtime, session_id: str) -> None:
    try:
        info = await runtime.sessions.info(session_id)
    except SessionNotFound:
        return
    if info.status != "idle":
        raise TurnUnfinished(
            f"the session {session_id!r} is {info.status}",
            hint=f"`perdure why {session_id}` says why; --submission goes on with one, `perdure send` queues another",
        )


async def _follow(
    arguments: argparse.Namespace, runtime: Runtime, screen: Screen, agent: Agent, session_id: str, submission: str, text: str
) -> Result:
    follower = Follower(runtime, session_id, screen, db=arguments.db, wait=not arguments.no_wait, answers=False)
    async with follower:
        # What ended already needs no agent, no slot and no model.
        sent = None
        if arguments.submission is not None and await _exists(runtime, session_id):
            sent = await runtime.sessions.send(session_id, text, submission=submission, agent=agent.name)
            if (stored := await runtime.sessions.result(session_id, submission)) is not None:
                return stored
        follower.own.add(submission)
        identity = Identity(owner=arguments.owner) if arguments.owner else None
        async with runtime.session(session_id, agent, identity=identity) as handle:
            sent = sent or await handle.send(text, submission=submission)
            after = None
            if sent.duplicate:
                after = await _begun(runtime, session_id, submission)
            await follower.watch(handle, lambda event: isinstance(event, TurnEnded) and event.submission == submission, after=after)
        result = await runtime.sessions.result(session_id, submission)
    if result is None:
        raise TurnUnfinished("the turn is not over", hint="run it again to go on")
    return result


async def _exists(runtime: Runtime, session_id: str) -> bool:
    try:
        await runtime.sessions.info(session_id)
    except SessionNotFound as error:
        if type(error) is not SessionNotFound or "deleted" in error.message:
            raise
        return False
    return True


async def _begun(runtime: Runtime, session_id: str, submission: str) -> int | None:
    """The entry before a submission's turn, so that all of that turn is shown again; None if it waits for its turn."""
    head = await runtime.store.load(session_id)
    row = await runtime.store.submission(head.row.no, submission) if head is not None else None
    return None if row is None or row.consumed_seq is None else row.consumed_seq - 1


def code_of(result: Result) -> int:
    """The exit code of a turn."""
    if result.ok:
        return OK
    if result.status == "aborted" and result.reason == "interrupted":
        return INTERRUPTED
    return failure_code(result.failure.code) if result.failure is not None else FAILED


def as_data(result: Result) -> dict[str, object]:
    """A result as JSON data."""
    return {
        "session": result.session_id,
        "submission": result.submission,
        "turn": result.turn,
        "status": result.status,
        "output": result.output,
        "reason": result.reason,
        "failure": None if result.failure is None else plain(result.failure),
        "steps": result.steps,
        "tool_calls": result.tool_calls,
        "usage": plain(result.usage),
    }
