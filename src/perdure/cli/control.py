"""What steers a session's work, whoever holds it: interrupt, route, compact, and the commands of middleware."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from ..agent import Agent
from ..core.errors import SubmissionRejected
from .agents import all_agents
from .decide import json_object
from .exits import FAILED, OK, report
from .opening import opened
from .sending import confirm

__all__ = ["command", "compact", "interrupt", "route"]


def interrupt(arguments: argparse.Namespace) -> int:
    """Stop the running turn; `FAILED` if there is none."""
    return asyncio.run(_interrupt(arguments))


async def _interrupt(arguments: argparse.Namespace) -> int:
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


def route(arguments: argparse.Namespace) -> int:
    """Use another route for the next turns."""
    return asyncio.run(_route(arguments))


async def _route(arguments: argparse.Namespace) -> int:
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


def compact(arguments: argparse.Namespace) -> int:
    """Have notes stand for the conversation so far."""
    return asyncio.run(_compact(arguments))


async def _compact(arguments: argparse.Namespace) -> int:
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.compact(arguments.session, submission=arguments.submission, actor=arguments.actor)
        await confirm(runtime, arguments, sent, "the notes are written when no turn runs", in_inbox=True)
    return OK


def command(arguments: argparse.Namespace) -> int:
    """Have a middleware carry out one of its commands."""
    given = json_object(arguments.arguments, "what the command is given", '{"to": 5}')
    return asyncio.run(_command(arguments, given, all_agents(arguments.agents)))


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
