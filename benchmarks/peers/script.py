"""The work that every peer is given: a fake model that asks for one call after another, and a fake tool, 1 KB each.

What happens is noted in a file that outlives the process, so that what ran twice can be counted.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sized
from pathlib import Path
from typing import Any, Protocol

__all__ = ["TEXT", "Items", "Script"]

TEXT = ("the quick brown fox jumps over the lazy dog; " * 23)[:1000]


class Items(Iterable[Any], Sized, Protocol):
    """A conversation as a peer shows it to its model."""


class Script:
    """Asks for ``steps`` calls, and then answers.

    ``kill_at``: the process is killed once inside of that call of the tool; ``hang_at``: the model never answers there. ``log`` is where
    calls are noted, if anywhere; then conversations are counted item by item, since they may have gaps.
    """

    def __init__(self, steps: int, *, log: Path | None = None, kill_at: int | None = None, hang_at: int | None = None) -> None:
        self.steps, self.kill_at, self.hang_at = steps, kill_at, hang_at
        self.calls: list[float] = []
        self.written: list[int] = []
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._killed = None if log is None else log.with_suffix(".killed")

    def answered(self, items: Items, is_result: Callable[[Any], bool]) -> int:
        """How many results of the tool the model is shown."""
        if self._log is None:
            return (len(items) - 1) // 2
        return sum(map(is_result, items))

    def model(self, done: int, last: str = "") -> bool:
        """The model is called, and shown ``done`` results, the last of which says ``last``. Whether it asks for another one."""
        self.calls.append(time.monotonic())
        if len(self.calls) == 1 or done == self.steps:
            self.written.append(_bytes_written())
        self._note(f"model {done} {time.monotonic()}")
        if last and not last.startswith(TEXT[:20]):
            self._note(f"read {done - 1} {last[:200]!r}")
        if done == self.hang_at:
            time.sleep(3600)
        return done < self.steps

    def tool(self, number: int) -> str:
        """The tool is called for the ``number``-th time."""
        self._note(f"tool {number}")
        if number == self.kill_at and self._killed is not None and not self._killed.exists():
            self._killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return TEXT

    def _note(self, line: str) -> None:
        if self._log is not None:
            os.write(self._log, f"{line}\n".encode())


def _bytes_written() -> int:
    """What this process had the disk write so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes"):
            return int(line.split()[1])
    return 0
