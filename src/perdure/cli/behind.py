"""Agents that a session called and that work on behind it, when its own turn is over."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ..core import checkpoint as checkpoints
from ..core.errors import SessionNotFound
from ..core.ids import child_session
from ..runtime.runtime import Runtime
from .hints import resume_command
from .screen import Screen
from .text import counted

__all__ = ["Behind", "behind", "made", "say_behind"]


class Behind(NamedTuple):
    """A session that works in the background of another one, and isn't over."""

    session: str
    agent: str
    status: str


async def made(runtime: Runtime, session_id: str) -> None:
    """Wait until the children that a turn called are there, which whoever holds the session is making."""
    while (head := await runtime.store.load(session_id)) is not None and checkpoints.decode(head.row.checkpoint).errands:
        if not head.holder_alive and not await runtime.errands.run(session_id, quietly=True):
            return
        await asyncio.sleep(0.01)


async def behind(runtime: Runtime, session_id: str) -> list[Behind]:
    """The sessions that work in the background of one."""
    found = []
    for item in (await runtime.sessions.checkpoint(session_id)).background:
        child = child_session(session_id, item.operation)
        try:
            found.append(Behind(child, item.agent, (await runtime.sessions.info(child)).status))
        except SessionNotFound:
            # Whoever holds its caller is making it.
            found.append(Behind(child, item.agent, "about to begin"))
    return found


def say_behind(screen: Screen, db: str, session_id: str, named: str, found: list[Behind]) -> None:
    """Say which are unfinished, and what moves them."""
    if found:
        names = ", ".join(f"{item.session} ({item.agent}, {item.status})" for item in found)
        again = resume_command(db, session_id, named)
        agents = counted(len(found), "agent")
        screen.note((f"{agents} unfinished in the background: {names}; a worker, or `{again}`, goes on with that", "yellow"))
