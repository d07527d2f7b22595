"""Handing a command to a session, and telling whoever typed it what became of that."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from ..core.entries import SubmissionRefused
from ..core.errors import SessionNotFound
from ..core.phase import children
from ..runtime.door import Submission
from ..runtime.infos import SessionInfo
from ..runtime.result import refused
from ..runtime.runtime import Runtime
from .hints import command, resume_command
from .screen import Screen

__all__ = ["confirm", "goes_on"]

PATIENCE = 5.0
"""How long a holder may take to do what a command asks for, before it is said to be still on its way (seconds)."""


async def confirm(
    runtime: Runtime, arguments: argparse.Namespace, sent: Submission, done: str, *, in_inbox: bool = False, **facts: Any
) -> None:
    """Say that a command was carried out, or waits, and who has to act now if nobody does.

    Raises what `refused` says where the session refused it. ``in_inbox``: that it is there is all that was asked for.
    """
    screen = Screen(as_json=arguments.json)
    taken = in_inbox or await _taken(runtime, arguments.session, sent)
    info = await runtime.sessions.info(arguments.session)
    if arguments.json:
        told = {"session": info.session_id, "submission": sent.id, "arrival": sent.arrival, "duplicate": sent.duplicate}
        screen.json({**told, "status": info.status, **facts})
        return
    screen.line(("✓ ", "green"), done, (" (was there before)" if sent.duplicate else "", "dim"))
    if not taken:
        why = command(arguments.db, "why", info.session_id)
        screen.note((f"it waits in the inbox for whoever holds the session; `{why}` says who that is", "dim"))
    elif info.status == "queued":
        screen.note((await goes_on(runtime, arguments.db, info), "dim"))


async def goes_on(runtime: Runtime, db: str, info: SessionInfo) -> str:
    """Who has to act now for a session that something is due in: whoever works on a caller works on those that it called, too."""
    info = await _first_caller(runtime, info)
    whose = f"the agent {info.agent!r}" if info.agent else "any agent"
    return f"a worker that has {whose} goes on with it, or whoever has it open; else `{resume_command(db, info.session_id)}`"


async def _first_caller(runtime: Runtime, info: SessionInfo) -> SessionInfo:
    """The session that waits for this one, or for the one that does; itself where nobody does."""
    while info.parent is not None and info.parent_kind == "child":
        own = (await runtime.sessions.checkpoint(info.session_id)).parent
        try:
            waits = own is not None and own.operation in children(await runtime.sessions.checkpoint(info.parent))
            caller = await runtime.sessions.info(info.parent)
        except SessionNotFound:
            return info
        if not waits:
            return info
        info = caller
    return info


async def _taken(runtime: Runtime, session_id: str, sent: Submission) -> bool:
    """Whether a command was carried out; False if nobody took it up. Raises what `refused` says if it was."""
    deadline = time.monotonic() + PATIENCE
    while True:
        head = await runtime.store.load(session_id)
        row = await runtime.store.submission(head.row.no, sent.id) if head is not None else None
        if row is not None and row.consumed_seq is not None:
            [entry] = await runtime.sessions.entries(session_id, after=row.consumed_seq - 1, limit=1)
            if isinstance(entry, SubmissionRefused):
                raise refused(session_id, entry)
            return True
        if head is None or not head.holder_alive or time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
