"""Consumers: each reads the journals of all sessions at its own pace, and its cursor in every session says how far it came."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from ..core.entries import Entry
from ..core.errors import RuntimeClosed, SessionNotFound, StoreClosed, UsageError
from ..core.journal import open_entry
from ..store.base import Loaded, News, SessionQuery
from .halting import check_not_halted
from .messages import read_entries
from .names import check_limit

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["Consumer", "Project", "Projector"]

PAGE = 500
"""The most entries that are delivered at once."""

SESSIONS_PAGE = 200

FIRST_DELAY_MS, LONGEST_DELAY_MS = 1_000, 60_000
"""How long a session is left alone that could not be delivered, at first and at most."""

SCAN_MS = 1_000
"""How often, at most, all sessions are looked through because somebody elsewhere changed something."""

NAME_LIMIT = 256

_log = logging.getLogger("perdure.runtime")

Project: TypeAlias = Callable[[str, Sequence[Entry]], Awaitable[None]]


@runtime_checkable
class Projector(Protocol):
    """Makes something of the journals that can be made again. What it was given may come again, so it has to know what it took."""

    async def project(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Take a session's next entries, in their order. What this raises delays this session alone; they are given again."""

    async def position(self, session_id: str) -> int | None:
        """The seq up to which it has a session's entries, where it knows; it is given what follows, even if it acknowledged more."""

    async def known(self) -> Iterable[str]:
        """The sessions that it holds something of."""

    async def forget(self, session_id: str) -> None:
        """The session was deleted: nothing of it may be left."""


class _Function:
    """A function as a projector that keeps nothing."""

    def __init__(self, function: Project) -> None:
        self._function = function

    async def project(self, session_id: str, entries: Sequence[Entry]) -> None:
        await self._function(session_id, entries)

    async def position(self, session_id: str) -> int | None:
        return None

    async def known(self) -> Iterable[str]:
        return ()

    async def forget(self, session_id: str) -> None:
        return None


class Consumer:
    """A named reader of all sessions, made by `Sessions.consumer`.

    Entries are delivered in their order and at least once: what was not acknowledged comes again, after a crash too, in whatever process.
    A new name begins with the first entry of every session. One name should be used by one process at a time; two get everything twice.
    """

    def __init__(self, runtime: Runtime, name: str) -> None:
        if not isinstance(name, str) or not name or not name.isprintable() or len(name.encode()) > NAME_LIMIT:
            raise UsageError(f"{name!r:.100} can't be a consumer's name", hint=f"1 to {NAME_LIMIT} bytes of printable text")
        self._runtime = runtime
        self.name = name

    async def _head(self, session_id: str) -> Loaded:
        head = await self._runtime.store.load(session_id)
        if head is None:
            raise SessionNotFound(f"there is no session {session_id!r}", hint="`perdure sessions` lists them")
        return head

    async def news(self, *, limit: int = 100) -> list[str]:
        """Sessions with entries that were not acknowledged, the one made first first. Raises `UsageError` for a limit that is none."""
        check_limit(limit)
        return [item.session_id for item in await self._runtime.store.news(self.name, limit=limit)]

    async def position(self, session_id: str) -> int:
        """The seq of the last entry that was acknowledged, 0 if none was. Raises `SessionNotFound`."""
        return await self._runtime.store.cursor((await self._head(session_id)).row.no, self.name)

    async def read(self, session_id: str, *, limit: int = PAGE) -> list[Entry]:
        """A session's next entries; reading acknowledges nothing.

        Raises `SessionNotFound`, `StoreCorrupt` for damaged ones, and `SessionHalted`: what a halted session has next is known once it was
        repaired. Also `UsageError` for a limit that is none.
        """
        check_limit(limit)
        row = (await self._head(session_id)).row
        check_not_halted(row)
        no = row.no
        after = await self._runtime.store.cursor(no, self.name)
        return [open_entry(row) for row in await read_entries(self._runtime.store, no, after=after, limit=limit)]

    async def ack(self, session_id: str, seq: int) -> int:
        """Say that everything up to an entry was taken; returns where the cursor stands, for it never goes back.

        Raises `SessionNotFound`, and `UsageError` for an entry that isn't there.
        """
        row = (await self._head(session_id)).row
        if type(seq) is not int or not 0 <= seq <= row.version:
            raise UsageError(f"{seq!r:.40} is no entry of {session_id!r}", hint=f"0 to {row.version}")
        return await self._runtime.store.ack(row.no, self.name, seq)

    async def delete(self) -> None:
        """Forget how far it came, in all sessions. Under the same name, it begins anew."""
        await self._runtime.store.forget(self.name)

    async def consume(self, projector: Projector | Project, *, follow: bool = True, heal: bool = False) -> None:
        """Deliver everything that was not acknowledged, and go on with what comes; without ``follow``, return when there is no more.

        A projector whose `Projector.position` is behind what was acknowledged, since a part of what it keeps was lost, is given the rest
        again with that session's next entries; with ``heal`` it is asked about every session first, which costs a look at each.
        A session that can't be delivered, or is halted, is tried again, later and later, and delays no other; without ``follow`` its
        error is raised in the end. Nothing that happens here touches a session but the consumer's own cursor in it.
        """
        taker: Projector = projector if isinstance(projector, Projector) else _Function(projector)
        await _Consuming(self._runtime, self.name, taker).run(follow, heal)


class _Consuming:
    """One consumer at work."""

    def __init__(self, runtime: Runtime, name: str, projector: Projector) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._name = name
        self._projector = projector
        self._changed: set[int] = set()
        self._scan = True
        self._wake = asyncio.Event()
        self._names: dict[int, str] = {}
        self._delays: dict[str, tuple[int, int]] = {}
        self._failed: dict[str, Exception] = {}

    async def run(self, follow: bool, heal: bool) -> None:
        stop = self._store.changes(self._notice)
        try:
            await self._forget_deleted()
            if heal:
                await self._heal()
            while True:
                self._wake.clear()
                await self._round()
                if not follow:
                    for error in self._failed.values():
                        raise error
                    return
                await self._wait()
        finally:
            stop()

    async def _heal(self) -> None:
        """Deliver again what the projector doesn't have any more, to sessions without news too."""
        asked = SessionQuery(archived=True, order="created", limit=SESSIONS_PAGE)
        while rows := await self._store.sessions(asked):
            for row in rows:
                if not row.problem:
                    await self._deliver(News(row.no, row.session_id, row.version, row.version))
            asked = msgspec.structs.replace(asked, before=(rows[-1].updated, rows[-1].no))

    def _notice(self, no: int | None) -> None:
        if no is None:
            self._scan = True
        else:
            self._changed.add(no)
        self._wake.set()

    async def _round(self) -> None:
        """Deliver what there is."""
        numbers, self._changed = self._changed, set()
        if self._scan:
            self._scan = False
            after = 0
            while page := await self._store.news(self._name, after=after, limit=SESSIONS_PAGE):
                for item in page:
                    await self._deliver(item)
                after = page[-1].no
            return
        for no in sorted(numbers):
            found = await self._store.news(self._name, no=no, limit=1)
            for item in found:
                await self._deliver(item)
            if not found and no in self._names and await self._store.buried(self._names[no]):
                await self._projector.forget(self._names.pop(no))

    async def _deliver(self, item: News) -> None:
        now, session_id = self._runtime.clock.now(), item.session_id
        if self._delays.get(session_id, (0, 0))[0] > now:
            return
        self._names[item.no] = session_id
        try:
            await self._pages(item)
        except (StoreClosed, RuntimeClosed):
            raise
        except Exception as error:
            _, last = self._delays.get(session_id, (0, 0))
            delay = min(LONGEST_DELAY_MS, last * 2 or FIRST_DELAY_MS)
            self._delays[session_id] = self._runtime.clock.now() + delay, delay
            self._failed[session_id] = error
            _log.warning("the consumer %s could not take entries of %s: %s", self._name, session_id, error)
        else:
            self._delays.pop(session_id, None)
            self._failed.pop(session_id, None)

    async def _pages(self, item: News) -> None:
        known = await self._projector.position(item.session_id)
        after = item.seq if known is None else min(item.seq, known)
        if after >= item.version:
            # One of those that are only looked at, and nothing of it is missing.
            return
        if (head := await self._store.load(item.session_id)) is not None:
            check_not_halted(head.row)
        while rows := await read_entries(self._store, item.no, after=after, limit=PAGE):
            await self._projector.project(item.session_id, [open_entry(row) for row in rows])
            after = rows[-1].seq
            await self._store.ack(item.no, self._name, after)

    async def _forget_deleted(self) -> None:
        for session_id in [*await self._projector.known()]:
            if await self._store.buried(session_id):
                await self._projector.forget(session_id)

    async def _wait(self) -> None:
        moments = [moment for moment, _ in self._delays.values()]
        now = self._runtime.clock.now()
        if not self._wake.is_set() or (self._scan and not self._changed):
            # Changes elsewhere come without a name; looking for them costs a scan.
            until = min([*moments, *([now + SCAN_MS] if self._scan else [])], default=None)
            waiting: list[asyncio.Future[Any]] = [] if self._scan else [asyncio.ensure_future(self._wake.wait())]
            if until is not None:
                waiting.append(asyncio.ensure_future(self._runtime.clock.sleep_until(until)))
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
        if any(moment <= self._runtime.clock.now() for moment, _ in self._delays.values()):
            self._scan = True
