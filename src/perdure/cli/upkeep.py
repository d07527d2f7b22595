"""Copies of the store, and what is old thrown away."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from datetime import UTC, datetime

from ..core.errors import UsageError
from ..runtime.backup import backup as back_up
from ..runtime.backup import restore as put_back
from ..runtime.infos import SessionInfo
from ..runtime.verify import Checked
from .exits import OK
from .keyboard import sure
from .opening import opened, store_file
from .screen import Screen
from .text import counted, plain

__all__ = ["backup", "restore", "sweep", "vacuum"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


async def backup(arguments: argparse.Namespace) -> int:
    """Copy the store into a file."""
    path = store_file(arguments.db)
    if path is not None and not path.exists():
        raise UsageError(f"there is no store at {str(path)!r}", hint="--db or PERDURE_DB name another")
    _told(arguments, await back_up(arguments.db, arguments.file), f"copied into {arguments.file}")
    return OK


async def restore(arguments: argparse.Namespace) -> int:
    """Make the store from a copy."""
    checked = await put_back(arguments.file, arguments.db)
    _told(arguments, checked, f"restored into {arguments.db}")
    if not arguments.json:
        print("What was done since the copy was made is unknown to it: look after effects of that time yourself.", file=sys.stderr)
    return OK


def _told(arguments: argparse.Namespace, checked: Checked, what: str) -> None:
    screen = Screen(as_json=arguments.json)
    if arguments.json:
        screen.json({"checked": dataclasses.asdict(checked)})
    else:
        amounts = f"{counted(checked.sessions, 'session')}, {counted(checked.entries, 'entry', 'entries')}"
        screen.line(("✓ ", "green"), f"{what}: {amounts}, nothing is wrong")


async def vacuum(arguments: argparse.Namespace) -> int:
    """Throw away old sessions, and write the file anew."""
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        old: list[SessionInfo] = []
        if arguments.older_than is not None:
            before = await runtime.store.now() - _seconds(arguments.older_than) * 1000
            wanted = {"archived", "idle"} if arguments.idle else {"archived"}
            async for info in runtime.sessions.each(archived=True, order="created"):
                if info.status in wanted and info.updated < before:
                    old.append(info)
        elif arguments.idle:
            raise UsageError("--idle says which sessions --older-than means", hint="perdure vacuum --older-than 90d --idle")
        if old and not arguments.json:
            for info in old:
                last = datetime.fromtimestamp(info.updated / 1000, UTC)
                screen.line(f"{info.session_id}  {info.status} since {last:%Y-%m-%d}  {info.title}")
        if old and not arguments.dry_run and not arguments.yes:
            these = "these" if len(old) > 1 else "this"
            await sure(screen, counted(len(old), "session"), f"Destroy {these} for good? Type yes:", "yes")
        if not arguments.dry_run:
            for info in old:
                await runtime.sessions.delete(info.session_id)
            await runtime.store.vacuum()
    if arguments.json:
        screen.json({"sessions": [info.session_id for info in old], "deleted": not arguments.dry_run})
    elif arguments.dry_run:
        screen.line(f"{counted(len(old), 'session')} would be destroyed; nothing was changed")
    else:
        screen.line(("✓ ", "green"), f"{counted(len(old), 'session')} destroyed, and the store was written anew")
    return OK


async def sweep(arguments: argparse.Namespace) -> int:
    """Remove content outside of the database that nothing refers to."""
    screen = Screen(as_json=arguments.json)
    grace = {} if arguments.older_than is None else {"grace": float(_seconds(arguments.older_than))}
    async with opened(arguments) as runtime:
        swept = await runtime.sessions.sweep(**grace)
    if arguments.json:
        screen.json(plain(swept))
        return OK
    screen.line(("✓ ", "green"), f"{counted(swept.removed, 'file')} removed, {swept.size:,} bytes; {swept.half_done} half written")
    if swept.pinned:
        screen.note((f"{counted(swept.pinned, 'file')} could not go yet: somebody is about to refer to them", "dim"))
    return OK


def _seconds(text: str) -> int:
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if found is None:
        raise UsageError(f"{text!r} is no age", hint="a number and s, m, h, d or w: 90d")
    return int(found[1]) * _UNITS[found[2]]
