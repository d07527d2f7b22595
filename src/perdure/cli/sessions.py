"""``perdure sessions``: the catalogue."""

from __future__ import annotations

import argparse
import time
from collections import Counter

from ..core.errors import UsageError
from ..runtime.infos import SessionInfo
from ..runtime.redefining import UNFINISHED
from ..runtime.runtime import Runtime
from .about import labels_of
from .exits import OK
from .hints import command
from .opening import opened
from .screen import Screen, columns
from .text import moment, moment_of, plain, short, since

__all__ = ["STYLES", "run"]

STYLES = {"running": "green", "waiting": "yellow", "queued": "cyan", "stuck": "bold red", "halted": "red", "archived": "dim", "idle": ""}


async def run(arguments: argparse.Namespace) -> int:
    """List sessions."""
    for status in arguments.status or ():
        if status not in (*STYLES, "deleted"):
            raise UsageError(f"{status!r} is no status", hint=", ".join(STYLES))
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        found = await runtime.sessions.list(
            owner=arguments.owner,
            status=arguments.status,
            agent=arguments.agent,
            labels=labels_of(arguments.label),
            words=arguments.words or (),
            since=moment_of(arguments.since),
            until=moment_of(arguments.until),
            archived=arguments.archived,
            children=arguments.children,
            order="created" if arguments.created else "updated",
            limit=arguments.limit,
            after=arguments.after,
        )
        unfinished = await _children_of(runtime, found) if not arguments.children and not arguments.json else {}
    if arguments.json:
        screen.json([plain(info) for info in found])
    elif not found:
        screen.note(("no sessions", "dim"))
    else:
        columns(screen, ("SESSION", "STATUS", "AGENT", "OWNER", "CHANGED", "TITLE"), [_row(info) for info in found])
    for session_id, count in unfinished.items():
        why = command(arguments.db, "why", session_id)
        agents = "an agent that it called is" if count == 1 else f"{count} agents that it called are"
        screen.note((f"{session_id}: {agents} unfinished; `{why}` says what moves that, --children lists them", "yellow"))
    screen.more(found.next)
    return OK


async def _children_of(runtime: Runtime, found: list[SessionInfo]) -> dict[str, int]:
    """How many unfinished children the idle ones among these sessions have."""
    idle = [info.session_id for info in found if info.status == "idle"]
    heads = [await runtime.store.load(session_id) for session_id in idle]
    counted: Counter[str | None] = Counter()
    for root in dict.fromkeys(head.row.root for head in heads if head is not None):
        rows = await runtime.store.tree(root)
        counted.update(row.parent for row in rows if row.parent_kind == "child" and row.status in UNFINISHED)
    return {session_id: counted[session_id] for session_id in idle if counted[session_id]}


def _row(info: SessionInfo) -> tuple[str | tuple[str, str], ...]:
    return (
        (info.session_id, "bold"),
        (_status(info), STYLES.get(info.status, "")),
        info.agent,
        info.owner,
        f"{since(info.updated)} ago",
        (_problem(info), "red") if info.problem else short(info.title, 80),
    )


def _status(info: SessionInfo) -> str:
    later = info.status == "queued" and info.wake_at is not None and info.wake_at > time.time() * 1000
    return f"queued until {moment(info.wake_at)}" if later and info.wake_at is not None else info.status


def _problem(info: SessionInfo) -> str:
    told = short(info.problem, 70)
    return told if info.problem.startswith("halted: ") else f"broken: {told}"
