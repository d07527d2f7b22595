"""Commands to a session that work whoever holds it: answer, approve, deny, interrupt, send."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from typing import Any

from ..core.errors import StaleRequest, UsageError
from ..runtime.runtime import Runtime
from ..runtime.sessions import Submission
from .exits import OK
from .opening import opened, read_text
from .screen import Screen

__all__ = ["answer", "approve", "deny", "interrupt", "json_argument", "send"]


def json_argument(text: str | None, option: str) -> Any:
    """A value given as JSON. Raises `UsageError`."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{option} is no JSON: {error}", hint="text needs its quotes: '\"done\"'") from error


def answer(arguments: argparse.Namespace) -> int:
    """Close an open request, in any way there is."""
    options = {
        "arguments": json_argument(arguments.arguments, "--arguments"),
        "reason": arguments.reason,
        "result": json_argument(arguments.result, "--result"),
        "is_error": arguments.error,
    }
    return asyncio.run(_answer(arguments, arguments.request, arguments.decision, options))


def approve(arguments: argparse.Namespace) -> int:
    """Let a call run."""
    return asyncio.run(_answer(arguments, arguments.request, "approve", {"arguments": json_argument(arguments.arguments, "--arguments")}))


def deny(arguments: argparse.Namespace) -> int:
    """Refuse a call."""
    return asyncio.run(_answer(arguments, arguments.request, "deny", {"reason": arguments.reason}))


async def _answer(arguments: argparse.Namespace, request: str | None, decision: Any, options: dict[str, Any]) -> int:
    async with opened(arguments) as runtime:
        session_id: str = arguments.session
        await runtime.sessions.info(session_id)
        if request is None:
            request = await _only_one(runtime, session_id)
        sent = await runtime.sessions.answer(session_id, request, decision, actor=arguments.actor, **options)
        await _said(runtime, arguments, sent, f"{decision}: {request}", request=request, decision=decision)
    return OK


async def _only_one(runtime: Runtime, session_id: str) -> str:
    open_requests = await runtime.sessions.requests(session_id)
    if not open_requests:
        raise StaleRequest(f"nothing is asked in {session_id!r}", hint=f"`perdure why {session_id}` says what it is doing")
    if len(open_requests) > 1:
        names = ", ".join(f"{item.request_id} ({item.name})" for item in open_requests)
        raise UsageError(f"{len(open_requests)} requests are open: {names}", hint="name one")
    return open_requests[0].request_id


def interrupt(arguments: argparse.Namespace) -> int:
    """Stop the running turn."""
    return asyncio.run(_interrupt(arguments))


async def _interrupt(arguments: argparse.Namespace) -> int:
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.interrupt(arguments.session, reason=arguments.reason, actor=arguments.actor)
        await _said(runtime, arguments, sent, "asked to stop the running turn")
    return OK


def send(arguments: argparse.Namespace) -> int:
    """Put a message into the inbox."""
    return asyncio.run(_send(arguments, read_text(arguments.text)))


async def _send(arguments: argparse.Namespace, text: str) -> int:
    async with opened(arguments) as runtime:
        # A session that nobody has begun has no agent; a slip in its name must not make one.
        await runtime.sessions.info(arguments.session)
        sent = await runtime.sessions.send(
            arguments.session, text, submission=arguments.submission, deliver=arguments.deliver, actor=arguments.actor
        )
        await _said(runtime, arguments, sent, "sent")
    return OK


async def _said(runtime: Runtime, arguments: argparse.Namespace, sent: Submission, done: str, **facts: Any) -> None:
    """Confirm it, and say who has to act now if nobody does."""
    screen = Screen(as_json=arguments.json)
    info = await runtime.sessions.info(arguments.session)
    if arguments.json:
        told = {"session": info.session_id, "submission": sent.id, "arrival": sent.arrival, "duplicate": sent.duplicate}
        screen.json({**told, "status": info.status, **facts})
        return
    screen.line(("✓ ", "green"), done, (" (was there before)" if sent.duplicate else "", "dim"))
    if info.status == "queued":
        name = shlex.quote(info.session_id)
        screen.note((f"whoever waits for it goes on; else `perdure resume {name} --agents module:{info.agent or 'agent'}`", "dim"))
