"""``perdure run``: one message, one turn."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Awaitable

from ..agent import Agent
from ..core.entries import TurnEnded
from ..core.errors import TurnUnfinished, UsageError
from ..runtime.content import Input
from ..runtime.declared import belongs
from ..runtime.halting import halted
from ..runtime.infos import SessionInfo
from ..runtime.result import Result
from ..runtime.runtime import Runtime
from ..runtime.scope import put_away
from ..runtime.stopping import Stopped
from .agents import ad_hoc, load, owned_info
from .behind import behind, made, say_behind
from .exits import FAILED, INTERRUPTED, OK, failure_code
from .follow import Follower, Left, Parked, say_left, say_parked
from .hints import agent_options, command
from .limits import limits
from .opening import opened, read_text, with_files
from .screen import Screen
from .text import plain

__all__ = ["as_data", "code_of", "run"]


def run(arguments: argparse.Namespace) -> Awaitable[int]:
    """Send, follow, and say how it ended."""
    agent, text = _agent_and_text(arguments)
    return _run(arguments, agent, with_files(text, arguments.attach))


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


async def _run(arguments: argparse.Namespace, agent: Agent, content: Input) -> int:
    screen = Screen(as_json=arguments.json)
    session_id = arguments.session or arguments.submission or uuid.uuid4().hex[:12]
    submission = arguments.submission or uuid.uuid4().hex
    named = agent_options(arguments.words[0] if len(arguments.words) > 1 else "", arguments.model)
    stopped = False
    try:
        async with opened(arguments, create=True) as runtime:
            info = await owned_info(runtime, session_id, arguments.owner)
            if info is not None:
                belongs(info.session_id, info.agent, [agent])
                if arguments.submission is None:
                    _refuse_unfinished(arguments, info)
            follower = Follower(
                runtime, session_id, screen, db=arguments.db, agent=agent, named=named, wait=not arguments.no_wait, answers=False
            )
            # What ended already needs no agent, no slot and no model.
            result = None
            if arguments.submission is not None and info is not None:
                # Raises `NewerRules`: what is refused is not sent, either.
                await runtime.sessions.checkpoint(session_id)
                await runtime.sessions.send(session_id, content, submission=submission, agent=agent.name, limits=limits(arguments.limit))
                result = await runtime.sessions.result(session_id, submission)
            if stored := result is not None:
                screen.note(("it ended before; nothing ran now", "dim"))
            else:
                result = await _follow(arguments, runtime, follower, agent, submission, content)
            stopped = follower.stopped
            await made(runtime, session_id)
            unfinished = await behind(runtime, session_id)
    except (Left, Stopped) as left:
        say_left(screen, arguments.db, session_id, named, f"the session {session_id}")
        return left.code
    except Parked as parked:
        return say_parked(screen, session_id, submission, parked)
    if arguments.json:
        screen.json(as_data(result))
    elif result.ok and result.text and (stored or result.call or not screen.live):
        screen.line(result.text)
    if stored and not result.ok:
        screen.advice((f"{result.status}: {_why(result)}", "red" if result.status == "failed" else "yellow"))
    say_behind(screen, arguments.db, session_id, named, unfinished)
    if not arguments.session and not arguments.submission:
        screen.note((f"session {session_id}", "dim"))
    return INTERRUPTED if stopped else code_of(result)


def _why(result: Result) -> str:
    """Why a turn didn't complete."""
    if result.failure is not None:
        return ": ".join(filter(None, (result.failure.code, result.failure.message)))
    return result.reason


def _refuse_unfinished(arguments: argparse.Namespace, info: SessionInfo) -> None:
    if info.status == "archived":
        raise put_away(info.session_id)
    if info.status == "halted":
        raise halted(info.session_id)
    if info.status != "idle":
        why, send = (command(arguments.db, name, info.session_id) for name in ("why", "send"))
        raise TurnUnfinished(
            f"the session {info.session_id!r} is {info.status}",
            hint=f"`{why}` says why; --submission goes on with one, `{send} …` queues another",
        )


async def _follow(
    arguments: argparse.Namespace, runtime: Runtime, follower: Follower, agent: Agent, submission: str, content: Input
) -> Result:
    session_id = follower.session_id
    async with follower:
        follower.own.add(submission)
        async with runtime.session(session_id, agent, owner=arguments.owner or None) as handle:
            sent = await handle.send(content, submission=submission, limits=limits(arguments.limit))
            after = None
            if sent.duplicate:
                after = await _begun(runtime, session_id, submission)
            await follower.watch(handle, lambda event: isinstance(event, TurnEnded) and event.submission == submission, after=after)
        result = await runtime.sessions.result(session_id, submission)
    if result is None:
        raise TurnUnfinished("the turn is not over", hint="run it again to go on")
    return result


async def _begun(runtime: Runtime, session_id: str, submission: str) -> int | None:
    """The entry before a submission's turn, so that all of that turn is shown again; None if it waits for its turn."""
    head = await runtime.store.load(session_id)
    row = await runtime.store.submission(head.row.no, submission) if head is not None else None
    return None if row is None or row.consumed_seq is None else row.consumed_seq - 1


def code_of(result: Result) -> int:
    """The exit code of a turn that nobody here interrupted."""
    if result.ok:
        return OK
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
