"""A worker: takes up sessions that somebody must look at, until it is told to stop.

What must be looked at stands in the store alone (``wake_at``, and the leases of runners). Each worker looks there, gives hints to the
engine, and follows the hints that the engine gives it. What no hint reached in time it looks at without one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from ..agent import Agent
from ..core.canonical import is_whole
from ..core.errors import CapacityExceeded, Fenced, StoreCorrupt, StoreError, UsageError
from ..runtime.runtime import Runtime
from ..store.base import Loaded
from ..tools.context import is_seconds
from .engine import Engine
from .refused import Refused

__all__ = ["Worker", "check_agents"]

OVERDUE_MS = 5_000
"""How long a session that was hinted at may wait before whoever sees that looks at it itself."""

AT_ONCE = 200
"""How many sessions are hinted at together. Those that are refused here or held up are not counted: they keep no other from being found."""

TOLD_APART = 1.0
"""How often at most others are told what is refused here, and what they refuse is read (seconds)."""

LOOKS_APART = 0.05
"""How long after one look into the store the next one may begin (seconds): whatever is committed changes something, and those who run
sessions need the same connections."""

SUSPECT_CLAIMS = 2
"""A session that has a holder, dead or alive, and was taken over so often without progress may be what kills workers: only one such is
worked on here at a time."""

PAUSE, PAUSE_LIMIT = 0.5, 10.0
"""How long it rests when the store or the engine fails, twice as long each time, up to the limit (seconds)."""

_log = logging.getLogger("perdure.workers")


def check_agents(agents: Iterable[Agent]) -> tuple[Agent, ...]:
    """Agents that one worker can have. Raises `UsageError`."""
    found = tuple(agents)
    names = [agent.name for agent in found]
    if not names:
        raise UsageError("a worker without agents has nothing to do", hint="name at least one")
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"two agents are named {twice!r}", hint="sessions find their agent by its name")
    return found


class Worker:
    """Works on sessions of these agents, and of those that they call or hand over to, in an open runtime.

    ``concurrency`` is how many at once; ``poll`` how often, in seconds, it looks into the store besides hearing of changes.
    Raises `UsageError` for agents of one name, or none.
    """

    def __init__(self, runtime: Runtime, agents: Iterable[Agent], engine: Engine, *, concurrency: int = 16, poll: float = 1.0) -> None:
        self._agents = check_agents(agents)
        # Whom they call has sessions of its own, which nobody else may be there for: their caller may have come to its end.
        self._names = sorted({name for agent in self._agents for name in agent.team})
        if not is_whole(concurrency, 1) or not is_seconds(poll):
            raise UsageError("concurrency must be at least 1, and poll more than 0 seconds")
        self._runtime = runtime
        self._engine = engine
        self._concurrency = concurrency
        self._poll = poll
        self._working: set[str] = set()
        self._suspect = ""
        self._held_up: set[str] = set()
        self._refused = Refused(time.monotonic)
        self._elsewhere: frozenset[str] = frozenset()
        self._told_at = -TOLD_APART
        self._hinted: dict[str, int] = {}
        self._to_hint: dict[str, None] = {}
        self._more_to_hint = asyncio.Event()
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()

    @property
    def working(self) -> frozenset[str]:
        """The sessions that are looked at here."""
        return frozenset(self._working)

    def stop(self) -> None:
        """Take up nothing more. `run` ends when what runs has let go, as `Runtime.close` says."""
        self._stopping.set()
        self._news.set()

    async def run(self) -> None:
        """Work until `stop`; the runtime is closed when it returns. Cancelling it stops in the same way.

        Errors of the store and of the engine are logged and outlived: what they kept from being done is found again.
        """
        store = self._runtime.store
        unlisten = store.changes(self._notice)
        tasks = [
            asyncio.create_task(self._outliving("the engine", self._follow), name="perdure worker"),
            asyncio.create_task(self._outliving("the store", self._scout), name="perdure scout"),
            asyncio.create_task(self._outliving("the engine", self._pass_on), name="perdure hints"),
        ]
        try:
            await self._stopping.wait()
        finally:
            self._stopping.set()
            unlisten()
            for task in tasks:
                task.cancel()
            # What the engine runs ends when the runtime lets go of it, and the engine's task behind that.
            await self._runtime.close()
            while left := (await asyncio.wait(tasks, timeout=PAUSE_LIMIT))[1]:
                # An engine may lose a cancellation, for one by what it was just waiting for.
                for task in left:
                    task.cancel()

    def _notice(self, no: int | None) -> None:
        self._refused.notice(no)
        self._news.set()

    async def _outliving(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        pause = PAUSE
        while not self._stopping.is_set():
            began = asyncio.get_running_loop().time()
            try:
                await work()
            except Exception as error:
                _log.warning("%s failed, and is tried again: %s", what, error)
            if asyncio.get_running_loop().time() - began > PAUSE_LIMIT:
                pause = PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_LIMIT)

    async def _follow(self) -> None:
        await self._engine.work(self._look, concurrency=self._concurrency)

    async def _scout(self) -> None:
        """Find what somebody must look at, and say so."""
        await self._runtime.register(self._agents)
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            again = loop.time() + LOOKS_APART
            await self._watch_suspect()
            now = await self._runtime.store.now()
            await self._look_at_refused()
            limit = self._window
            known, working = self._refused.known(), self.working
            found = await self._runtime.store.runnable(limit=limit, agents=self._names)
            if len(found) < limit:
                # Who was worked on when that was read was in no list.
                self._refused.keep({*found} | working | self._working, among=known)
            due = [name for name in found if name not in self._working and not self._refused.rests(name)]
            self._held_up &= {*due}
            await self._tell(due)
            self._hinted = {name: self._hinted[name] for name in due if name in self._hinted}
            # What somebody else did meanwhile needs no hint: while the engine hangs, no more waits for it than is due.
            self._to_hint = {name: None for name in self._to_hint if name in self._hinted}
            new = [name for name in due if name not in self._hinted]
            if new:
                self._hinted.update(dict.fromkeys(new, now))
                self._to_hint.update(dict.fromkeys(new))
                self._more_to_hint.set()
            late = [name for name, at in self._hinted.items() if now - at >= OVERDUE_MS or name in self._elsewhere]
            self._look_here([name for name in late if name not in self._held_up])
            await self._rest(now)
            await asyncio.sleep(max(0.0, again - loop.time()))

    @property
    def _window(self) -> int:
        """How many sessions are asked for, so that there is room for others behind those that can't be taken up here now."""
        return AT_ONCE + len(self._refused) + len(self._held_up)

    async def _look_at_refused(self) -> None:
        """What was refused where it stood, and stands elsewhere now, may go on."""
        for session_id in self._refused.changed():
            self._refused.seen(session_id)
            try:
                head = await self._runtime.store.load(session_id)
            except StoreCorrupt:
                # It rests on: what is wrong with it is said when it is tried again, and the others don't wait for that.
                continue
            except BaseException:
                self._refused.missed(session_id)
                raise
            if not self._refused.stands(session_id, head):
                self._refused.wake(session_id)

    async def _tell(self, due: list[str]) -> None:
        """Say what is refused here, and hear what others refuse: a hint may go to them again and again, so that this one looks itself."""
        if (clock := time.monotonic()) - self._told_at < TOLD_APART:
            return
        if self._refused.news:
            self._told_at = clock
            try:
                await self._runtime.register(self._agents, refused=self._refused.told())
            except BaseException:
                self._refused.news = True
                raise
        if due:
            self._told_at = clock
            try:
                runners = await self._runtime.store.runners()
            except StoreCorrupt:
                # A row that can't be read keeps nobody from working.
                runners = []
            others = (item for item in runners if item.alive and item.id != self._runtime.runner_id)
            self._elsewhere = frozenset(refusal.session_id for item in others for refusal in item.refused)

    async def _pass_on(self) -> None:
        """Give hints. Who looks into the store doesn't wait for that: an engine may take its time when its database was away."""
        while True:
            await self._more_to_hint.wait()
            self._more_to_hint.clear()
            # What a dead worker left may hold an effect of unknown outcome, and doesn't wait behind what has not begun.
            left = {*await self._runtime.store.runnable(limit=self._window, agents=self._names, left=True)}
            names, self._to_hint = [*self._to_hint], {}
            await self._hint([name for name in names if name in left], urgent=True)
            await self._hint([name for name in names if name not in left])

    async def _hint(self, session_ids: list[str], *, urgent: bool = False) -> None:
        if not session_ids:
            return
        try:
            await self._engine.hint(session_ids, urgent=urgent)
        except StoreError:
            raise
        except Exception as error:
            _log.warning("the engine takes no hints (%s); sessions are looked at where they are found", error)
            self._look_here(session_ids)

    def _look_here(self, session_ids: list[str]) -> None:
        """Look at sessions without a hint, as far as there is room."""
        for session_id in session_ids[: max(0, self._concurrency - len(self._working))]:
            self._runtime.background.keep(asyncio.ensure_future(self._look(session_id)))

    async def _rest(self, now: int) -> None:
        """Until something changed, the next moment comes, or it is time to look anyway."""
        wake = await self._runtime.store.next_wake(after=now)
        seconds = self._poll if wake is None else min(self._poll, (wake - now) / 1000)
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def _look(self, session_id: str) -> None:
        """Work on a session until nothing is left to do here."""
        if session_id in self._working or self._stopping.is_set():
            return
        self._working.add(session_id)
        heard: int | None = None
        self._to_hint.pop(session_id, None)
        try:
            head = await self._runtime.store.load(session_id)
            heard = None if head is None else head.row.inbox_head
            if self._refused.rests(session_id) and self._refused.stands(session_id, head):
                return
            if _is_suspect(head):
                if self._suspect:
                    self._held_up.add(session_id)
                    return
                self._suspect = session_id
            self._held_up.discard(session_id)
            await self._runtime.recover(self._agents, session=session_id)
            if self._refused.forget(session_id):
                _log.info("the session %s goes on here", session_id)
        except CapacityExceeded:
            _log.info("there is no room for %s just now", session_id)
        except Fenced:
            _log.info("another worker took %s over", session_id)
        except Exception as error:
            if not self._stopping.is_set():
                await self._refuse(session_id, error, heard)
        finally:
            self._working.discard(session_id)
            if session_id not in self._held_up:
                self._hinted.pop(session_id, None)
                self._news.set()
            if session_id == self._suspect:
                self._suspect_is_over()

    async def _refuse(self, session_id: str, error: Exception, heard: int | None) -> None:
        """It can't go on here as it stands. That is said once, and again when the reason is another one."""
        head = None
        with suppress(StoreError):
            head = await self._runtime.store.load(session_id)
        reason = f"{type(error).__name__}: {error}"
        if self._refused.add(session_id, head, reason, at=self._runtime.clock.now(), heard=heard):
            _log.warning("the session %s can't go on here, and is left to others: %s", session_id, reason)

    async def _watch_suspect(self) -> None:
        """One that got on is none any more, however long its turn goes on."""
        suspect = self._suspect
        if suspect and not _is_suspect(await self._runtime.store.load(suspect)) and self._suspect == suspect:
            self._suspect_is_over()

    def _suspect_is_over(self) -> None:
        """Those that were held up are hinted at again, and one of them is next."""
        for name in self._held_up:
            self._hinted.pop(name, None)
        self._suspect, self._held_up = "", set()
        self._news.set()


def _is_suspect(head: Loaded | None) -> bool:
    """Whether the session may be what killed those who held it."""
    return head is not None and head.row.holder is not None and head.row.claims >= SUSPECT_CLAIMS
