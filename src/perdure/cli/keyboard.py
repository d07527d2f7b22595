"""Lines from a person, without a thread that nobody could call back, nor a read that Ctrl-C wouldn't end."""

from __future__ import annotations

import asyncio
import os
import sys

from ..core.errors import UsageError
from .screen import Screen

__all__ = ["Keyboard", "sure"]


class Keyboard:
    """Standard input, a line at a time. Waiting for one can be cancelled: what was typed stays in the terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._fd = sys.stdin.fileno()
        self._rest = b""
        self._over = False

    async def line(self, label: str = "", default: str = "") -> str | None:
        """Ask for a line and return it without its end; None when there are no more. ``default`` stays what an empty line means."""
        if label:
            self._screen.text(label, "bold")
        while b"\n" not in self._rest and not self._over:
            await self._more()
        if not self._rest and self._over:
            # A terminal goes on after Ctrl-D.
            self._over = False
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")

    async def _more(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._fd, ready.set)
        except (PermissionError, ValueError):
            # A regular file is always ready.
            ready.set()
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            # The terminal is gone.
            data = b""
        self._rest += data
        self._over = not data


async def sure(screen: Screen, what: str, question: str, word: str) -> None:
    """Have a person type a word before something is destroyed. Raises `UsageError` where they don't, or nobody sits there."""
    if not sys.stdin.isatty():
        raise UsageError(f"{what} would be destroyed for good", hint="--yes says that it is meant")
    print(question, end=" ", file=sys.stderr, flush=True)
    if await Keyboard(screen).line() != word:
        raise UsageError("nothing was deleted")
