"""``perdure consume``: every session's journal as a file of JSON lines, kept up to date."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Sequence
from pathlib import Path

from ..core.entries import Entry
from ..runtime.lines import JsonLines
from .exits import OK
from .keeping import usable
from .opening import opened
from .screen import Screen
from .text import counted

__all__ = ["consume"]


def consume(arguments: argparse.Namespace) -> Awaitable[int]:
    """Write what there is; with ``--follow``, what comes too."""
    return _consume(arguments, arguments.name or f"jsonl {Path(arguments.directory).resolve()}")


class _Counted(JsonLines):
    """The files, and how much went into which."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.taken: dict[str, int] = {}

    async def project(self, session_id: str, entries: Sequence[Entry]) -> None:
        await super().project(session_id, entries)
        self.taken[session_id] = self.taken.get(session_id, 0) + len(entries)


async def _consume(arguments: argparse.Namespace, name: str) -> int:
    screen = Screen(as_json=arguments.json)
    with usable(arguments.directory):
        files = _Counted(arguments.directory)
        async with opened(arguments) as runtime:
            consuming = asyncio.ensure_future(runtime.consume(name, files, follow=arguments.follow, heal=arguments.heal))
            stopped = asyncio.Event()
            runtime.stop_on(signal.SIGTERM, signal.SIGINT, then=stopped.set)
            if arguments.follow:
                screen.note((f"writing into {arguments.directory} until SIGTERM", "dim"))
            stopping = asyncio.ensure_future(stopped.wait())
            await asyncio.wait((consuming, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not consuming.done():
                # What was not acknowledged comes again, to whoever takes this name next.
                consuming.cancel()
                await asyncio.wait((consuming,))
            if not consuming.cancelled():
                consuming.result()
    entries = sum(files.taken.values())
    if arguments.json:
        screen.json({"consumer": name, "sessions": len(files.taken), "entries": entries})
    else:
        news = f"{counted(entries, 'entry', 'entries')} of {counted(len(files.taken), 'session')}"
        screen.line(("✓ ", "green"), f"{news} into {arguments.directory}" if entries else f"nothing new for {arguments.directory}")
    return OK
