"""What a worker could not go on with, and when it looks at that again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..store.base import Loaded, Refusal

__all__ = ["Refused"]

PAUSE, PAUSE_LIMIT = 0.2, 60.0
"""How long a session rests that was refused, twice as long each time, up to the limit (seconds): what was refused for good costs little,
and what a moment's trouble kept from going on is soon tried again."""

ALL_APART = 1.0
"""How often at most all are looked at because some session, nobody said which, has changed (seconds)."""

TOLD = 100
"""How many refusals others are told of; the rest follows as these are taken up elsewhere."""

LONGEST_REASON = 500
"""How many characters of a reason are told."""


@dataclass(kw_only=True)
class _Known:
    refusal: Refusal
    no: int
    stood: tuple[int, int] | None
    pause: float
    until: float


class Refused:
    """The sessions that this worker can't go on with as they stand. ``time`` is a clock in seconds that never goes back.

    One rests until its pause is over, or until it stands elsewhere. ``news`` is set when what others should be told has changed.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self.news = False
        self._time = time
        self._known: dict[str, _Known] = {}
        self._numbers: dict[int, str] = {}
        self._changed: dict[str, None] = {}
        self._unnamed = False
        self._all_at = -ALL_APART

    def __len__(self) -> int:
        return len(self._known)

    def add(self, session_id: str, head: Loaded | None, reason: str, *, at: int, heard: int | None = None) -> bool:
        """It was refused, where it stands. Returns whether that, or the reason, is new.

        ``at`` is in milliseconds since 1970. ``heard`` is the last submission that was known when it was looked at: what came meanwhile may
        have changed everything, while what the look itself wrote changes nothing.
        """
        reason, before = reason[:LONGEST_REASON], self._known.get(session_id)
        same = before is not None and before.refusal.reason == reason
        pause = min(2 * before.pause, PAUSE_LIMIT) if before is not None and same else PAUSE
        refusal = before.refusal if before is not None and same else Refusal(session_id=session_id, since=at, reason=reason)
        no, stood = (0, None) if head is None else (head.row.no, (head.row.version, head.row.inbox_head if heard is None else heard))
        self._known[session_id] = _Known(refusal=refusal, no=no, stood=stood, pause=pause, until=self._time() + pause)
        if head is not None:
            self._numbers[no] = session_id
            if not self.stands(session_id, head):
                self._changed[session_id] = None
        self.news = self.news or not same
        return not same

    def wake(self, session_id: str) -> None:
        """It stands elsewhere, so that it rests no more."""
        if (known := self._known.get(session_id)) is not None:
            known.pause, known.until = PAUSE / 2, self._time()

    def forget(self, session_id: str) -> bool:
        """It went on, or is none of our business any more. Returns whether it was refused."""
        known = self._known.pop(session_id, None)
        if known is None:
            return False
        self._numbers.pop(known.no, None)
        self._changed.pop(session_id, None)
        self.news = True
        return True

    def known(self) -> Mapping[str, object]:
        """What is refused now, for `keep`."""
        return dict(self._known)

    def keep(self, session_ids: Iterable[str], *, among: Mapping[str, object]) -> None:
        """Of those that were `known`, only these are still to be taken up by anybody. What was refused since stays."""
        for session_id in among.keys() - {*session_ids}:
            if self._known.get(session_id) is among[session_id]:
                self.forget(session_id)

    def rests(self, session_id: str) -> bool:
        """Whether it is not to be looked at yet."""
        known = self._known.get(session_id)
        return known is not None and self._time() < known.until

    def stands(self, session_id: str, head: Loaded | None) -> bool:
        """Whether it stands where it was refused."""
        known = self._known.get(session_id)
        return known is not None and head is not None and known.stood == (head.row.version, head.row.inbox_head)

    def notice(self, no: int | None) -> None:
        """The session of this number changed; None: any may have."""
        if no is None:
            self._unnamed = True
        elif (session_id := self._numbers.get(no)) is not None:
            self._changed[session_id] = None

    def changed(self) -> list[str]:
        """Those that changed and were not `seen` since: whether they stand elsewhere now is to be found out."""
        if self._unnamed and self._time() - self._all_at >= ALL_APART:
            self._unnamed, self._all_at = False, self._time()
            self._changed.update(dict.fromkeys(self._numbers.values()))
        return [*self._changed]

    def seen(self, session_id: str) -> None:
        """It is about to be looked at whether it stands elsewhere."""
        self._changed.pop(session_id, None)

    def missed(self, session_id: str) -> None:
        """That look failed."""
        if session_id in self._known:
            self._changed[session_id] = None

    def told(self) -> tuple[Refusal, ...]:
        """What others are told, the latest first."""
        self.news = False
        return tuple(sorted((known.refusal for known in self._known.values()), key=lambda item: -item.since)[:TOLD])
