"""``perdure sessions``: the catalogue."""

from __future__ import annotations

import argparse
import asyncio

from ..core.errors import UsageError
from ..runtime.sessions import SessionInfo
from .exits import OK
from .opening import opened
from .screen import Screen, columns
from .text import plain, short, since

__all__ = ["STYLES", "run"]

STYLES = {"running": "green", "waiting": "yellow", "queued": "cyan", "stuck": "bold red", "halted": "red", "archived": "dim", "idle": ""}


def run(arguments: argparse.Namespace) -> int:
    """List sessions."""
    for status in arguments.status or ():
        if status not in (*STYLES, "deleted"):
            raise UsageError(f"{status!r} is no status", hint=", ".join(STYLES))
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        found = await runtime.sessions.list(owner=arguments.owner, status=arguments.status, limit=arguments.limit)
    if arguments.json:
        screen.json([plain(info) for info in found])
    elif not found:
        screen.note(("no sessions", "dim"))
    else:
        columns(screen, ("SESSION", "STATUS", "AGENT", "OWNER", "CHANGED", "TITLE"), [_row(info) for info in found])
    return OK


def _row(info: SessionInfo) -> tuple[str | tuple[str, str], ...]:
    return (
        (info.session_id, "bold"),
        (info.status, STYLES.get(info.status, "")),
        info.agent,
        info.owner,
        f"{since(info.updated)} ago",
        short(info.title, 80),
    )
