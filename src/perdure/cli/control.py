"""What steers a session's work, whoever holds it: interrupt, route, compact, and the commands of middleware."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable
from typing import Any

from ..agent import Agent
from ..core.errors import SubmissionRejected
from .agents import all_agents
from .decide import json_object
from .exits import FAILED, OK, report
from .opening import opened
from .sending import confirm

__all__ = ["command", "compact", "interrupt", "route"]


async def interrupt(arguments: argparse.Namespace) -> int:
    """Stop the running turn; `FAILED` if there is none."""
    idle = SubmissionRejected(f"no turn is running in {arguments.session!r}", hint="there is nothing to interrupt", reason="idle")
    async with opened(arguments) as runtime:
        try:
            sent = await runtime.sessions.interrupt(arguments.session, reason=arguments.reason, actor=arguments.actor)
            await confirm(runtime, arguments, sent, "the running turn is stopped")
        except SubmissionRejected as refusal:
            if refusal.facts.get("reason") != "idle":
                raise
            report(idle, arguments)
            return FAILED
    return OK


async def route(arguments: argparse.Namespace) -> int:
    """Use another route for the next turns."""
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.select_route(arguments.session, arguments.route, actor=arguments.actor)
        await confirm(
            runtime,
            arguments,
            sent,
            f"the next turn asks for the route {arguments.route}; whether its agent's Router has that shows when it runs",
            route=arguments.route,
        )
    return OK


async def compact(arguments: argparse.Namespace) -> int:
    """Have notes stand for the conversation so far."""
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.compact(arguments.session, submission=arguments.submission, actor=arguments.actor)
        await confirm(runtime, arguments, sent, "the notes are written when no turn runs", in_inbox=True)
    return OK


def command(arguments: argparse.Namespace) -> Awaitable[int]:
    """Have a middleware carry out one of its commands."""
    given = json_object(arguments.arguments, "what the command is given", '{"to": 5}')
    return _command(arguments, given, all_agents(arguments.agents))


async def _command(arguments: argparse.Namespace, given: dict[str, Any] | None, agents: list[Agent]) -> int:
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.command(
            arguments.session,
            arguments.extension,
            arguments.name,
            given,
            agents=agents,
            submission=arguments.submission,
            actor=arguments.actor,
        )
        await confirm(runtime, arguments, sent, f"noted for its agent: {arguments.extension} {arguments.name}", in_inbox=True)
    return OK
