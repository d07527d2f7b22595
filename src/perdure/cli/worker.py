"""``perdure worker`` and ``perdure workers``: processes that take up sessions, and who they are."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from ..agent import Agent
from ..core.errors import MissingExtra, UsageError
from ..runtime.infos import SessionInfo
from ..runtime.runtime import Runtime
from ..workers.engine import Engine
from ..workers.local import LocalEngine
from ..workers.worker import Worker, check_agents
from .agents import load_all
from .exits import OK
from .opening import opened
from .screen import Piece, Screen, columns
from .text import counted, plain, since

__all__ = ["worker", "workers"]


QUEUE_PACKAGES = ("procrastinate", "psycopg", "psycopg_pool")
"""Whose loggers and errors tell of the queue's connection."""

QUIET_SECONDS = 30.0
"""For so long the queue's trouble isn't told again in the same words."""


LEAVE_SECONDS = 1.0
"""How long what a drained worker's tools left running may take to let go."""

DUE_LIMIT = 1000
"""How many sessions that are due are looked at."""


class Brief(logging.Filter):
    """Has the queue tell of a lost database in one line, and not every time: it goes on by itself, and is only a queue of hints."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        # What nobody waited for any more is told by the loop.
        ours = error is not None and _of_the_queue(type(error).__module__) and (record.name == "asyncio" or _of_the_queue(record.name))
        if not ours and (error is not None or not _of_the_queue(record.name)):
            return True
        words = [record.getMessage(), f"{error.__cause__ or error}"] if error is not None else [record.getMessage()]
        record.msg, record.args = ": ".join(next(iter(text.strip().splitlines()), "") for text in words), ()
        record.exc_info = record.exc_text = None
        told = self._told.get(record.getMessage())
        if told is not None and record.created - told < QUIET_SECONDS:
            return False
        self._told = {words: at for words, at in self._told.items() if record.created - at < QUIET_SECONDS}
        self._told[record.getMessage()] = record.created
        return True


def _of_the_queue(name: str) -> bool:
    return name.partition(".")[0] in QUEUE_PACKAGES


def worker(arguments: argparse.Namespace) -> Awaitable[int]:
    """Take up sessions until a signal says stop."""
    agents = check_agents(agent for name in arguments.agents for agent in load_all(name))
    place = _place(arguments.listen) if arguments.listen else None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # Nobody is shown what a worker does but by its log.
    logging.getLogger("perdure").propagate = True
    logging.getLogger("perdure.advice").handlers.clear()
    # Its lines are about its own jobs, which are only hints.
    logging.getLogger("procrastinate").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Brief())
    return _work(arguments, agents, place)


async def _work(arguments: argparse.Namespace, agents: tuple[Agent, ...], place: tuple[str, int] | None) -> int:
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(_engine(arguments))
        metrics = _metrics() if place is not None else None
        observers: list[Any] = [] if metrics is None else [metrics]
        runtime = opened(
            arguments, create=True, capacity=arguments.concurrency, grace=arguments.grace, lease=arguments.lease, observers=observers
        )
        await stack.enter_async_context(runtime)
        if place is not None:
            from ..integrations.probes import Probes

            probes = await stack.enter_async_context(Probes(runtime, host=place[0], port=place[1], metrics=metrics))
            served = "probes and metrics" if metrics is not None else "probes, and without the extra prometheus no metrics,"
            print(f"{served} at {probes.address}", file=sys.stderr)
        working = Worker(runtime, agents, engine, concurrency=arguments.concurrency, poll=arguments.poll)
        runtime.stop_on(signal.SIGTERM, signal.SIGINT, then=partial(_drain, working))
        names = ", ".join(agent.name for agent in agents)
        print(f"working for {names}, {counted(arguments.concurrency, 'session')} at once; SIGTERM drains", file=sys.stderr, flush=True)
        await working.run()
    print("drained", file=sys.stderr)
    await _leave()
    return OK


async def _leave() -> None:
    """End the process where a tool that goes on when it is cancelled would keep the loop for ever. Nothing is open here any more."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left and (await asyncio.wait(left, timeout=LEAVE_SECONDS))[1]:
        print("a tool goes on though it was cancelled; it ends with the process", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(OK)


def _drain(working: Worker) -> None:
    print(f"draining: {counted(len(working.working), 'session')} let go as soon as what runs has ended", file=sys.stderr, flush=True)
    working.stop()


@asynccontextmanager
async def _engine(arguments: argparse.Namespace) -> AsyncIterator[Engine]:
    chosen = arguments.engine or ("procrastinate" if arguments.db.partition("://")[0] in ("postgresql", "postgres") else "local")
    if chosen == "local":
        if arguments.jobs:
            raise UsageError("--jobs names the database of a queue, and this worker has none", hint="only --engine procrastinate has one")
        yield LocalEngine()
        return
    from ..workers.procrastinate import ProcrastinateEngine

    async with ProcrastinateEngine(arguments.db, direct=arguments.jobs) as engine:
        yield engine


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is no place to listen at", hint="HOST:PORT, or :PORT for every interface")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _metrics() -> Any:
    """What counts for Prometheus, where its package is there. Whether a process is alive needs none."""
    try:
        from ..integrations.metrics import Metrics
    except MissingExtra:
        return None
    return Metrics()


async def workers(arguments: argparse.Namespace) -> int:
    """Who works on what, and what waits for an agent that nobody has."""
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        runners = await runtime.store.runners()
        held: dict[str, list[SessionInfo]] = {}
        # Only a turn that runs has a holder. Whatever changes meanwhile stays in its place.
        async for info in runtime.sessions.each(status="running", order="created"):
            if info.holder is not None:
                held.setdefault(info.holder, []).append(info)
        alive = [runner for runner in runners if runner.alive]
        known = {agent for runner in alive for agent in runner.agents}
        waiting = await _orphans(runtime, known)
    refused = [(f"{runner.host}:{runner.pid}", item) for runner in alive for item in runner.refused]
    if arguments.json:
        screen.json(
            {
                "workers": [{**plain(runner), "sessions": [info.session_id for info in held.get(runner.id, ())]} for runner in runners],
                "waiting": [{"session_id": info.session_id, "agent": info.agent, "wake_at": info.wake_at} for info in waiting],
            }
        )
        return OK
    if not runners:
        screen.note(("nobody works on this store", "dim"))
    else:
        rows: list[tuple[Piece, ...]] = []
        for runner in runners:
            lives = runner.alive
            sessions = ", ".join(info.session_id for info in held.get(runner.id, ())) or "-"
            state = ("alive", "green") if lives else (f"gone {since(runner.expires)} ago", "red")
            rows.append((f"{runner.host}:{runner.pid}", state, ", ".join(runner.agents), sessions))
        columns(screen, ("WORKER", "STATE", "AGENTS", "WORKS ON"), rows)
    for who, refusal in refused:
        screen.line((refusal.session_id, "bold"), f" is refused by {who}, for {since(refusal.since)}: {refusal.reason}")
    for info in waiting:
        screen.line((info.session_id, "bold"), f" waits for the agent {info.agent!r}, which no worker has")
    return OK


async def _orphans(runtime: Runtime, known: set[str]) -> list[SessionInfo]:
    """What is due and has an agent that nobody has; the rest of a long queue is not read."""
    due = await runtime.store.runnable(limit=DUE_LIMIT)
    cared_for = {*await runtime.store.runnable(limit=DUE_LIMIT, agents=sorted(known))}
    return [await runtime.sessions.info(session_id) for session_id in due if session_id not in cared_for]
