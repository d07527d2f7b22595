"""Who watches sessions here or waits for a turn's end, and what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..core.entries import QueueChanged, SubmissionRefused, TurnEnded
from ..core.errors import RuntimeClosed, SessionArchived, SessionNotFound, SubmissionRejected
from .batch import Batch
from .feed import ChildAsked, Feed, Watch
from .observing import Change
from .result import Result, refused, withdrawn

if TYPE_CHECKING:
    from .driver import Driver
    from .runtime import Runtime

__all__ = ["News"]


class News:
    """Brings what is committed, here or elsewhere, to whoever wants to know of it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.feeds: dict[str, Feed] = {}
        self.waiters: dict[tuple[str, str], dict[asyncio.Future[Result], None]] = {}
        self.callers: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._session_ids: dict[int, str] = {}
        self._absent: set[str] = set()
        self._unlisten: Callable[[], None] | None = None

    def feed(self, session_id: str) -> Feed:
        """The session's watchers here."""
        return self.feeds.setdefault(session_id, Feed())

    def tell_callers(self, session_id: str, events: list[ChildAsked]) -> None:
        """Tell who watches a session that called this one, or one of its callers, here."""
        while (caller := self.callers.get(session_id)) is not None:
            session_id = caller
            if (feed := self.feeds.get(session_id)) is not None:
                feed.publish(events)

    def leave(self, session_id: str, watch: Watch) -> None:
        """A watcher goes."""
        feed = self.feeds.get(session_id)
        if feed is not None:
            feed.leave(watch)
            self.forget_feed(session_id)

    def forget_feed(self, session_id: str) -> None:
        feed = self.feeds.get(session_id)
        if feed is not None and not feed.watched and session_id not in self._runtime.work.drivers:
            del self.feeds[session_id]
            self._session_ids.pop(self._numbers.pop(session_id, 0), None)
            self._absent.discard(session_id)

    def known(self, no: int, session_id: str) -> None:
        """The store's number of a session that somebody here looks at."""
        self._numbers[session_id], self._session_ids[no] = no, session_id
        self._absent.discard(session_id)
        self.listen()

    def absent(self, session_id: str) -> None:
        """Somebody here looks at a session that doesn't exist: whatever is told of a number that nobody knows may be its beginning."""
        self._absent.add(session_id)

    def listen(self) -> None:
        """Hear of changes that other processes make, from now until the runtime closes."""
        if self._unlisten is None:
            self._unlisten = self._runtime.store.changes(self._changed)

    def _changed(self, no: int | None) -> None:
        if no is None:
            for session_id in dict.fromkeys((*self._runtime.work.drivers, *self.feeds)):
                self.notice(session_id, sure=True)
        elif no in self._session_ids:
            self.notice(self._session_ids[no], sure=False)
        else:
            for session_id in [*self._absent]:
                self.notice(session_id, sure=True)

    def notice(self, session_id: str, *, sure: bool) -> None:
        """Something may have been sent to, or committed in, a session."""
        driver = self._runtime.work.drivers.get(session_id)
        if driver is not None:
            driver.notice(sure=sure)
        feed = self.feeds.get(session_id)
        if feed is not None and not (driver is not None and driver.held):
            feed.notice()

    def observe(self, session_id: str, batch: Batch) -> None:
        """Tell observers of a commit."""
        if self._runtime.observers and batch.entries:
            self._runtime.observers.committed(
                Change(self._runtime.store.store_id, session_id, batch.entries, batch.before, batch.checkpoint)
            )

    def settled(self, driver: Driver, batch: Batch) -> None:
        """Tell who waits for a turn that it is over, or never begins."""
        for entry in batch.entries:
            if isinstance(entry, TurnEnded):
                key = (driver.session_id, entry.submission)
                if key in self.waiters:
                    self._resolve(key, driver.result_of(entry))
            elif isinstance(entry, SubmissionRefused):
                self._fail((driver.session_id, entry.submission), refused(driver.session_id, entry))
            elif isinstance(entry, QueueChanged) and entry.change == "withdrawn":
                self._fail((driver.session_id, entry.submission), withdrawn())

    def _resolve(self, key: tuple[str, str], result: Result) -> None:
        for waiter in self.waiters.get(key, ()):
            if not waiter.done():
                waiter.set_result(result)

    def _fail(self, key: tuple[str, str], error: Exception) -> None:
        for waiter in self.waiters.get(key, ()):
            if not waiter.done():
                waiter.set_exception(error)

    async def look_for_results(self, session_id: str, *, pending: Collection[str] = ()) -> None:
        """Whether turns that somebody here waits for ended elsewhere; those of ``pending`` submissions didn't."""
        for key in [key for key in self.waiters if key[0] == session_id and key[1] not in pending]:
            try:
                result = await self._runtime.sessions.result(*key)
            except (SubmissionRejected, SessionArchived) as refusal:
                self._fail(key, refusal)
                continue
            except SessionNotFound:
                # It is about to be sent; whoever takes up one that is gone says so.
                continue
            if result is not None:
                self._resolve(key, result)

    def committed_elsewhere(self, session_id: str, batch: Batch) -> None:
        """A commit for a session that nobody held was made here, without its driver."""
        feed = self.feeds.get(session_id)
        if feed is not None:
            feed.publish(batch.entries)
        self.observe(session_id, batch)
        self.notice(session_id, sure=True)

    def expect(self, session_id: str, submission: str) -> asyncio.Future[Result]:
        """The result of a turn, or the error of what worked on it, once it is known here; `drop` it in any case."""
        waiter: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.waiters.setdefault((session_id, submission), {})[waiter] = None
        return waiter

    def drop(self, session_id: str, submission: str, waiter: asyncio.Future[Result]) -> None:
        """Nobody waits for it any more."""
        if waiter.done() and not waiter.cancelled():
            # It may have been told of an error while the stored result was found.
            waiter.exception()
        waiting = self.waiters.get((session_id, submission), {})
        waiting.pop(waiter, None)
        if not waiting:
            self.waiters.pop((session_id, submission), None)

    def ended(self, session_id: str, error: Exception) -> bool:
        """The work on a session ended with an error; whether anybody heard of it who waits for a turn."""
        self.feed(session_id).end(error)
        waiting = [waiter for key, waiters in self.waiters.items() if key[0] == session_id for waiter in waiters if not waiter.done()]
        for waiter in waiting:
            waiter.set_exception(error)
        return bool(waiting)

    def close(self) -> None:
        """Tell everybody that there will be no more."""
        for waiters in self.waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(RuntimeClosed("the runtime was closed before the turn ended", hint="run it again to go on"))
        for feed in self.feeds.values():
            feed.end(None)

    def stop_listening(self) -> None:
        """Hear no more of changes that other processes make."""
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
