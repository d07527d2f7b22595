"""Entries on their way into one commit."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from . import checkpoint as checkpoints
from .checkpoint import Checkpoint, Operation, Turn
from .entries import Entry, Forked, MessageAdded, Rebased
from .evolve import evolve
from .transcript import chained

__all__ = ["Draft"]


class Draft:
    """Facts that are decided and not yet committed, and the checkpoint behind the last of them."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.entries: list[Entry] = []

    def write(self, entry: Entry, at: int) -> int:
        """Add a fact and return its seq. Its time never goes back."""
        now = self.checkpoint
        if now.rules < checkpoints.RULES and now.version:
            rebased = Rebased(old=now.rules, new=checkpoints.RULES, checkpoint=msgspec.to_builtins(now))
            self._append(rebased, at)
        return self._append(entry, at)

    def _append(self, entry: Entry, at: int) -> int:
        now = self.checkpoint
        changes: dict[str, int | str] = {"seq": now.version + 1, "number": now.number, "at": max(at, now.at)}
        if isinstance(entry, MessageAdded):
            changes["number"] = now.number + 1
            if not entry.revision:
                changes["revision"] = chained(now.revision, entry.digest)
        elif isinstance(entry, Forked):
            # Its own messages are counted on from the parent's.
            changes["number"] = entry.cut
        stamped = replace(entry, **changes)
        self.checkpoint = evolve(now, stamped)
        self.entries.append(stamped)
        return stamped.seq

    @property
    def turn(self) -> Turn:
        """The running turn; a rule that asks for it is only ever reached while there is one."""
        turn = self.checkpoint.turn
        if turn is None:
            raise AssertionError("no turn is running")
        return turn

    def operation(self, identity: str) -> Operation | None:
        """An operation of the running step."""
        return self.checkpoint.operation(identity)
