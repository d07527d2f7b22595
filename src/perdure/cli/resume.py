"""``perdure resume``: go on with what somebody must look at."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Mapping
from typing import NoReturn

from ..agent import Agent
from ..core.entries import ChildEnded, Entry, ExtensionCommand, PassedOn, SubmissionRefused, TurnCompleted, TurnEnded, TurnFailed
from ..core.errors import PerdureError, UsageError
from ..runtime.declared import belongs
from ..runtime.feed import Event
from ..runtime.runtime import Runtime, Standing
from ..runtime.stopping import Stopped
from .agents import ad_hoc, is_module, load_all
from .behind import behind, say_behind
from .exits import FAILED, INTERRUPTED, OK, WAITING, exit_code, failure_code
from .follow import Follower, Left, Parked
from .hints import agent_options, told
from .limits import limits
from .opening import opened
from .person import me
from .screen import Screen
from .text import moment

__all__ = ["resume"]


def resume(arguments: argparse.Namespace) -> Awaitable[int]:
    """Take up one session, showing it, or all that are due."""
    _take_session_behind_agents(arguments)
    if not arguments.agents and not arguments.model:
        return _needs_an_agent(arguments)
    if arguments.limit and not arguments.session:
        raise UsageError("--limit is for the turn of one session", hint="perdure resume SESSION --agents … --limit tokens=100000")
    model = arguments.model
    named = {agent: agent_options(where, model) for where in arguments.agents for agent in load_all(where, model=model)}
    named = named or {ad_hoc(model): agent_options("", model)}
    return _one(arguments, named) if arguments.session else _all(arguments, [*named])


def _take_session_behind_agents(arguments: argparse.Namespace) -> None:
    """``--agents shop:agent SESSION``: a word without a colon that is no module, or the only one of many, is the session."""
    words = [name for name in arguments.agents if ":" not in name]
    if len(words) > 1 or len(arguments.agents) == 1:
        words = [name for name in words if not is_module(name)]
    if arguments.session is None and len(words) == 1:
        arguments.session = words[0]
        arguments.agents.remove(words[0])


async def _needs_an_agent(arguments: argparse.Namespace) -> NoReturn:
    """Raises `UsageError`: what is missing, with the agent's name where the store knows it."""
    hint = "--agents module, module:attribute, or path/to/file.py:attribute; --model goes on with what began without an agent"
    if arguments.session is not None:
        async with opened(arguments) as runtime:
            info = await runtime.sessions.info(arguments.session)
        hint += f"; the session's agent is called {info.agent!r}" if info.agent else ""
    raise UsageError("resume needs an agent", hint=hint)


async def _one(arguments: argparse.Namespace, given: Mapping[Agent, str]) -> int:
    screen, agents = Screen(as_json=arguments.json), [*given]
    session_id: str = arguments.session
    ended: TurnEnded | None = None
    try:
        async with opened(arguments) as runtime:
            info = await runtime.sessions.info(session_id)
            # An agent of the team of one that was named is known, too.
            caller = next((item for item in agents if info.agent in item.team and info.agent not in item.successors), None)
            agent = caller.team[info.agent] if caller is not None else belongs(session_id, info.agent, agents)
            named = given[caller or agent]
            follower = Follower(runtime, session_id, screen, db=arguments.db, agent=agent, named=named, wait=not arguments.no_wait)
            async with follower:
                raised = limits(arguments.limit)
                if raised is not None or (info.status == "idle" and (await runtime.sessions.checkpoint(session_id)).limited is not None):
                    sent = await runtime.sessions.resume(session_id, raised, actor=me())
                    follower.own.add(sent.id)
                    info = await runtime.sessions.info(session_id)
                unfinished = await behind(runtime, session_id)
                if info.status == "idle" and not unfinished:
                    screen.note(("there is nothing to do", "dim"))
                elif info.status != "idle" or not arguments.no_wait:
                    await follower.sleeps()
                    if info.status == "queued" and info.wake_at is not None and info.wake_at > runtime.clock.now():
                        screen.note((f"nothing is to be done before {moment(info.wake_at)}", "dim"))
                    checkpoint = await runtime.sessions.checkpoint(session_id)
                    turn = checkpoint.turn
                    # What is taken up here can be interrupted before it was heard of, and may end before anybody listens.
                    follower.turn = None if turn is None else turn.id
                    after = checkpoint.version if turn is None else turn.began - 1
                    driver = await runtime.work.engage(session_id, agent, force=arguments.force)
                    ended = await _until_idle(runtime, follower, agent, after, background=not arguments.no_wait)
                    runtime.work.disengage(driver)
                say_behind(screen, arguments.db, session_id, named, await behind(runtime, session_id))
    except (Left, Stopped) as left:
        return left.code
    except Parked as parked:
        return _summary(screen, session_id, "waiting", WAITING, wake_at=parked.until)
    return _summary(screen, session_id, "idle", INTERRUPTED if follower.stopped else _code_of(ended))


def _code_of(ended: TurnEnded | None) -> int:
    if ended is None or isinstance(ended, TurnCompleted):
        return OK
    return failure_code(ended.failure.code) if isinstance(ended, TurnFailed) else FAILED


async def _until_idle(runtime: Runtime, follower: Follower, agent: Agent, after: int, *, background: bool) -> TurnEnded | None:
    """Follow turn after turn behind an entry until nothing is left to do; returns how the last one ended.

    ``background``: what the agents that it called there have to say is waited for, too.
    """
    session_id, ended = follower.session_id, None

    def done(event: Event) -> bool:
        # What begins no turn may be all that waited, and a turn's end is followed by what the session owes to who called it.
        aside = ExtensionCommand | SubmissionRefused | PassedOn | ChildEnded
        return isinstance(event, TurnEnded) or (follower.turn is None and isinstance(event, aside))

    async with runtime.session(session_id, agent) as handle:
        while True:
            last = await follower.watch(handle, done, after=after)
            if not isinstance(last, Entry):
                return ended
            after, ended = last.seq, last if isinstance(last, TurnEnded) else ended
            if (await runtime.sessions.info(session_id)).status == "idle" and not (background and await behind(runtime, session_id)):
                return ended


def _summary(screen: Screen, session_id: str, status: str, code: int, **facts: int | None) -> int:
    if screen.as_json:
        screen.json([{"session": session_id, "status": status, **facts}])
    return code


async def _all(arguments: argparse.Namespace, agents: list[Agent]) -> int:
    screen = Screen(as_json=arguments.json)
    work = _Work(screen, agents, arguments.db)
    try:
        async with opened(arguments) as runtime:
            runtime.stop_on(signal.SIGTERM)
            await work.run(runtime)
    except Stopped as stopped:
        return stopped.code
    if arguments.json:
        screen.json(work.rows)
    elif not work.rows:
        screen.note(("there is nothing to do", "dim"))
    if work.errors:
        return exit_code(work.errors[0])
    return WAITING if any(row["status"] == "waiting" for row in work.rows) and arguments.no_wait else OK


class _Work:
    """Every session that somebody must look at, some at a time; one that can't go on stops no other."""

    AT_ONCE = 16

    def __init__(self, screen: Screen, agents: list[Agent], db: str) -> None:
        self.screen = screen
        self.agents = agents
        self.db = db
        self.rows: list[dict[str, str]] = []
        self.errors: list[PerdureError] = []
        self._seen: dict[str, Standing | None] = {}
        self._slots = asyncio.Semaphore(self.AT_ONCE)

    async def run(self, runtime: Runtime) -> None:
        """Until none is left that was not looked at."""
        names = {name: None for agent in self.agents for name in agent.team}
        while found := await runtime.due(names, self._seen):
            await asyncio.gather(*(self._one(runtime, session_id) for session_id in found))

    async def _one(self, runtime: Runtime, session_id: str) -> None:
        async with self._slots:
            row = {"session": session_id}
            stood = await runtime.standing(session_id)
            try:
                await runtime.recover(self.agents, session=session_id)
                info = await runtime.sessions.info(session_id)
                row["status"], self._seen[session_id] = info.status, stood
                self.screen.note(f"{session_id}  ", (row["status"], "bold"))
            except PerdureError as error:
                self._seen.setdefault(session_id, None)
                self.errors.append(error)
                row |= {"status": "refused", "error": error.code}
                self.screen.advice(("✗ ", "red"), f"{session_id}: {told(error, self.db, session_id)}")
            self.rows = [*(other for other in self.rows if other["session"] != session_id), row]
