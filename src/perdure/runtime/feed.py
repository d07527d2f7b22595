"""Who watches a session in this process: committed entries, and deltas in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from ..core.entries import Entry
from ..core.records import Identity
from ..models.base import ReasoningDelta, TextDelta

__all__ = ["ChildAsked", "Event", "Feed", "HookFailed", "ResumeRequested", "SessionOpened", "Watch"]


class SessionOpened(msgspec.Struct, frozen=True, kw_only=True):
    """The first event of every handle; live, without a seq. ``version`` is the last entry that existed then.

    ``identity`` and ``metadata`` are the session's own, whatever the handle was opened with; ``route`` is the one that it goes on with.
    """

    session_id: str
    version: int
    created: bool
    identity: Identity = Identity()
    metadata: dict[str, Any] = {}
    route: str = ""


class ResumeRequested(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who watches this session wants to go on with another one; live, without a seq. What happens then is their program's choice.

    ``session_id`` is that session, ``identity`` and the rest its own; ``submission`` is the id of the request. Its route and its agent need
    not be known here.
    """

    session_id: str
    identity: Identity
    metadata: dict[str, Any]
    agent: str
    route: str
    status: str
    submission: str


class HookFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A hook failed where no entry says so; live, without a seq.

    ``submission`` is the message that stays where it was, and is tried again at ``retry_at`` (ms since 1970).
    """

    extension: str
    hook: str
    message: str
    submission: str = ""
    retry_at: int = 0


class ChildAsked(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that this session called, or one that it called in turn, waits for an answer; live, without a seq.

    `Sessions.requests` with ``children`` shows all that is asked; `Sessions.answer` takes the session that called, too.
    """

    session_id: str
    request_id: str
    agent: str


Event: TypeAlias = SessionOpened | ResumeRequested | HookFailed | ChildAsked | Entry | TextDelta | ReasoningDelta

BUFFER = 4096
"""How many events wait for a slow watcher; beyond that it reads on from the store, and misses deltas only."""


class Watch:
    """One watcher's place. Entries that it has no room for are found again in the store."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._error: BaseException | None = None
        # What came before it watched was told to nobody.
        self.noticed = True
        self.closed = False

    def put(self, events: Iterable[Event]) -> None:
        """Never waits: a slow watcher delays nobody."""
        for event in events:
            if len(self._events) >= BUFFER:
                self._events.clear()
                self.noticed = True
            self._events.append(event)
        self._news.set()

    def notice(self) -> None:
        """Something may have changed in the store, besides what was put."""
        self.noticed = True
        self._news.set()

    def end(self, error: BaseException | None = None) -> None:
        """No more events; ``error`` is why, if it is not the watcher's own wish."""
        self._error = self._error or error
        # While a process holds a session, its watchers aren't told of what others commit; they are to see up to what ended that.
        self.closed = self.noticed = True
        self._news.set()

    @property
    def pending(self) -> bool:
        """Whether events wait to be taken."""
        return bool(self._events)

    def take(self) -> list[Event]:
        """What has come since the last time."""
        events = list(self._events)
        self._events.clear()
        return events

    async def wait(self) -> None:
        """Return when there may be something. Raises what ended the feed, once everything before it was taken."""
        if self.closed and not self._events:
            if self._error is not None:
                raise self._error
            return
        await self._news.wait()
        self._news.clear()


class Feed:
    """The watchers of one session."""

    def __init__(self) -> None:
        # They are told in the order in which they came.
        self._watches: dict[Watch, None] = {}

    @property
    def watched(self) -> bool:
        """Whether anybody looks."""
        return bool(self._watches)

    def watch(self) -> Watch:
        """A new watcher, from now on."""
        watch = Watch()
        self._watches[watch] = None
        return watch

    def leave(self, watch: Watch) -> None:
        """A watcher goes."""
        self._watches.pop(watch, None)

    def publish(self, events: Iterable[Event]) -> None:
        """Committed entries or deltas, to everybody."""
        if self._watches:
            shared = list(events)
            for watch in self._watches:
                watch.put(shared)

    def notice(self) -> None:
        """The store may have something new."""
        for watch in self._watches:
            watch.notice()

    def end(self, error: BaseException | None) -> None:
        """Everybody's stream ends with this error."""
        for watch in self._watches:
            watch.end(error)
