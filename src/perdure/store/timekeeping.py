"""What a store that has a clock of its own can also say: the time, without being asked over a network."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Timekeeper"]


@runtime_checkable
class Timekeeper(Protocol):
    """A store whose clock is another machine's. A runtime goes by it, so that hosts whose clocks differ agree on what is due."""

    def time(self) -> int:
        """The store's time (ms), as far as it is known here; never less than before. Before the store was opened, this machine's."""
