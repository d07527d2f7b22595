"""A session's journal, as whoever looks back on it reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.entries import Archived, Entry, Halted, Redacted, Revived, TurnEnded, TurnStarted
from ..store.base import SessionRow

__all__ = ["Past"]


@dataclass(eq=False)
class Past:
    """A session's journal, and what was so at each of its versions, from 0 on. Of a deleted one it is what was remembered."""

    row: SessionRow
    entries: list[Entry]
    redacted: set[int] = field(default_factory=set)
    archived: list[bool] = field(default_factory=lambda: [False])
    halted: list[bool] = field(default_factory=lambda: [False])
    busy: list[bool] = field(default_factory=lambda: [False])

    def __post_init__(self) -> None:
        for entry in self.entries:
            started, ended = isinstance(entry, TurnStarted), isinstance(entry, TurnEnded)
            self.archived.append(isinstance(entry, Archived) or (self.archived[-1] and not isinstance(entry, Revived)))
            self.halted.append(not entry.released if isinstance(entry, Halted) else self.halted[-1])
            self.busy.append(started or (self.busy[-1] and not ended))
            self.redacted |= {item.seq for item in entry.rows} if isinstance(entry, Redacted) else set()

    @property
    def deleted(self) -> bool:
        """Whether only this is left of it."""
        return self.row.status == "deleted"

    def at(self, seq: int) -> Entry | None:
        """An entry."""
        return self.entries[seq - 1] if 0 < seq <= len(self.entries) else None

    def says(self, entry: Entry) -> bool:
        """Whether an entry that somebody saw stands in it, or did before its content was removed."""
        there = self.at(entry.seq)
        return there == entry or (there is not None and entry.seq in self.redacted and (there.kind, there.at) == (entry.kind, entry.at))
