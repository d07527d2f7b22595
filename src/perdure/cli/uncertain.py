"""Effects whose outcome nobody here knows, and what became of them: uncertain, report."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable
from typing import Any

from ..agent import Agent
from ..core.errors import StaleRequest, UsageError
from ..runtime import tokens
from ..runtime.requests import Uncertain
from ..runtime.runtime import Runtime
from .agents import all_agents
from .decide import json_argument
from .exits import OK
from .hints import command
from .live import called
from .opening import opened, read_text
from .screen import Screen
from .sending import confirm
from .text import moment, plain

__all__ = ["report", "run"]


def run(arguments: argparse.Namespace) -> Awaitable[int]:
    """List them, settle one, or have their tools settle what they know."""
    if arguments.reconcile != bool(arguments.agents):
        raise UsageError("--reconcile asks the tools of --agents", hint="perdure uncertain --reconcile --agents my_agents")
    if arguments.reconcile:
        if arguments.settle is not None:
            raise UsageError("--reconcile asks the tools, and --settle says it yourself", hint="leave one of them out")
        return _reconcile(arguments, all_agents(arguments.agents))
    if arguments.settle is None:
        if arguments.result is not None or arguments.failed is not None:
            raise UsageError("--result and --failed say what became of an operation", hint="--settle OPERATION names it")
        return _list(arguments)
    if arguments.session is None:
        raise UsageError("--settle needs the session", hint="perdure uncertain SESSION --settle OPERATION …")
    if arguments.result is None and arguments.failed is None:
        raise UsageError("what became of it?", hint="--result JSON, or --failed TEXT")
    return _settle(arguments)


async def _list(arguments: argparse.Namespace) -> int:
    screen = Screen(as_json=arguments.json)
    found: list[Uncertain] = []
    async with opened(arguments) as runtime:
        if arguments.session is not None:
            found = await runtime.sessions.uncertain(arguments.session)
        else:
            async for info in runtime.sessions.each(archived=True, order="created"):
                if not info.problem:
                    found += await runtime.sessions.uncertain(info.session_id)
    if arguments.json:
        screen.json([plain(item) for item in found])
        return OK
    if not found:
        screen.note(("nothing is uncertain", "dim"))
    for item in found:
        attempt = f" --attempt {item.attempt}" if item.attempt > 1 else ""
        step, of = item.name, item.name.partition("/")[0]
        what = f"{step} of {called(of, item.within)}" if "/" in item.operation else called(item.name, item.arguments)
        screen.line(("? ", "yellow"), (item.session_id, "bold"), f"  {what}", (f"  since {moment(item.at)}", "dim"))
        settle = command(arguments.db, "uncertain", item.session_id)
        screen.line(f"{settle} --settle {item.operation}{attempt} --result '…'   (JSON; or --failed 'TEXT')", indent=4)
    return OK


async def _reconcile(arguments: argparse.Namespace, agents: list[Agent]) -> int:
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        found = await runtime.reconcile(agents, session=arguments.session)
    if arguments.json:
        screen.json([plain(item) for item in found])
        return OK
    if not found:
        screen.note(("nothing is uncertain that these tools could tell", "dim"))
    for item in found:
        words = {"done": "it was done", "not_done": "it had no effect", "unknown": "its tool doesn't know"}[item.outcome]
        mark = ("✓ ", "green") if item.settled else ("? ", "yellow")
        screen.line(mark, (item.session_id, "bold"), f"  {item.name}: {words}", (f"  {item.operation} attempt {item.attempt}", "dim"))
    return OK


async def _settle(arguments: argparse.Namespace) -> int:
    screen = Screen(as_json=arguments.json)
    failed = arguments.failed is not None
    result = arguments.failed if failed else json_argument(arguments.result, "--result")
    async with opened(arguments) as runtime:
        item = await _find(runtime, arguments)
        if item.request_id:
            sent = await runtime.sessions.settle(item.session_id, item.request_id, result, is_error=failed, actor=arguments.actor)
        else:
            sent = await runtime.sessions.report_attempt(item.session_id, item.operation, item.attempt, result, failed, arguments.actor)
    if arguments.json:
        screen.json({"session": item.session_id, "operation": item.operation, "attempt": item.attempt, "submission": sent.id})
    else:
        screen.line(("✓ ", "green"), f"{item.name} {'failed' if failed else 'succeeded'}: {item.operation} attempt {item.attempt}")
    return OK


async def _find(runtime: Runtime, arguments: argparse.Namespace) -> Uncertain:
    for item in await runtime.sessions.uncertain(arguments.session):
        if item.operation == arguments.settle and arguments.attempt in (None, item.attempt):
            return item
    raise StaleRequest(
        f"the outcome of {arguments.settle!r} in {arguments.session!r} is not uncertain",
        hint=f"`{command(arguments.db, 'uncertain', arguments.session)}` lists what is",
    )


def report(arguments: argparse.Namespace) -> Awaitable[int]:
    """Hand in what a call came to, by its token."""
    token = read_text(arguments.token).strip()
    failed = arguments.failed is not None
    return _report(arguments, token, arguments.failed if failed else json_argument(arguments.result, "--result"), failed)


async def _report(arguments: argparse.Namespace, token: str, result: Any, failed: bool) -> int:
    async with opened(arguments) as runtime:
        arguments.session, operation, attempt = tokens.read(runtime.store.secret, token)
        sent = await runtime.sessions.report(token, result, is_error=failed, actor=arguments.actor)
        done = f"{operation} {'failed' if failed else 'succeeded'}"
        await confirm(runtime, arguments, sent, done, operation=operation, attempt=attempt)
    return OK
