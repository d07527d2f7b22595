"""Answers to open requests, whoever holds the session: answer, approve, deny."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable
from typing import Any

from ..core.errors import StaleRequest, UsageError
from ..runtime.requests import Request
from .exits import OK
from .hints import command
from .live import decided
from .opening import opened, read_text
from .screen import Screen
from .sending import confirm

__all__ = ["answer", "approve", "deny", "json_argument"]


def json_argument(text: str | None, option: str, hint: str = "text needs its quotes: '\"done\"'") -> Any:
    """A value given as JSON. Raises `UsageError`."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{option} is no JSON: {error}", hint=hint) from error


def json_object(text: str | None, option: str, example: str) -> dict[str, Any] | None:
    """An object given as JSON. Raises `UsageError`."""
    hint = f"all of it, by name: '{example}'"
    given = json_argument(text, option, hint)
    if text is not None and not isinstance(given, dict):
        raise UsageError(f"{option} is no JSON object", hint=hint)
    return given  # type: ignore[no-any-return]


def _edited(text: str | None) -> dict[str, Any] | None:
    """Edited arguments. Raises `UsageError` for what can't be any tool's; whether they fit this one is known where the agent is."""
    return json_object(text, "--arguments", '{"order": "A-1", "cents": 300}')


def answer(arguments: argparse.Namespace) -> Awaitable[int]:
    """Close an open request, in any way there is."""
    if arguments.text is not None and (arguments.decision != "reply" or arguments.result is not None):
        raise UsageError("--text is what the user answers", hint="it goes with the decision to reply")
    options = {
        "arguments": _edited(arguments.arguments),
        "reason": arguments.reason,
        "result": json_argument(arguments.result, "--result") if arguments.text is None else read_text(arguments.text),
        "is_error": arguments.error,
    }
    return _answer(arguments, arguments.request, arguments.decision, options)


def approve(arguments: argparse.Namespace) -> Awaitable[int]:
    """Let a call run."""
    return _answer(arguments, arguments.request, "approve", {"arguments": _edited(arguments.arguments)})


def deny(arguments: argparse.Namespace) -> Awaitable[int]:
    """Refuse a call, or leave the outcome of one unknown."""
    return _answer(arguments, arguments.request, "deny", {"reason": arguments.reason})


async def _answer(arguments: argparse.Namespace, request_id: str | None, decision: Any, options: dict[str, Any]) -> int:
    async with opened(arguments) as runtime:
        session_id: str = arguments.session
        requests = await runtime.sessions.requests(session_id, children=True)
        if request_id is None:
            request_id = _only_one(arguments, requests).request_id
        request = next((item for item in requests if item.request_id == request_id), None)
        if request is not None:
            session_id = arguments.session = request.session_id
        sent = await runtime.sessions.answer(session_id, request_id, decision, actor=arguments.actor, **options)
        words = decided(decision, request is not None and request.kind == "uncertain")
        name = f"{request.name or 'the question'} " if request is not None else ""
        await confirm(runtime, arguments, sent, f"{name}{words}: {request_id}", request=request_id, decision=decision)
        if options.get("arguments") is not None and not arguments.json:
            Screen().note(("the arguments are checked where the agent is; if they don't fit, the call ends with an error", "dim"))
    return OK


def _only_one(arguments: argparse.Namespace, requests: list[Request]) -> Request:
    if not requests:
        why = command(arguments.db, "why", arguments.session)
        raise StaleRequest(f"nothing is asked in {arguments.session!r}", hint=f"`{why}` says what it is doing")
    if len(requests) > 1:
        names = ", ".join(f"{item.request_id} ({item.name})" for item in requests)
        raise UsageError(f"{len(requests)} requests are open: {names}", hint="name one")
    return requests[0]
