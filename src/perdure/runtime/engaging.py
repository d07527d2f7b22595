"""Which sessions this process works on, and how many at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING

from ..agent import Agent
from ..agent.agent import check_agent
from ..core.checkpoint import check_rules
from ..core.checkpoint import decode as decode_checkpoint
from ..core.commands import SelectRoute
from ..core.errors import CapacityExceeded, Fenced, MissingRoute, PerdureError, SessionBusy, StoreCorrupt, UnknownRoute
from ..store.base import Catalogue, InboxMoved, Loaded, Store
from .batch import TRIES, parked
from .clock import first_of
from .declared import belongs
from .driver import Driver
from .perform import LONGEST_SECONDS
from .redefining import check_routes
from .runners import Heartbeat

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["Engagements"]

_log = logging.getLogger("perdure.runtime")

_driven: ContextVar[str] = ContextVar("driven", default="")
"""The session in whose work a piece of code runs: it must not wait for the end of that."""

FAULT_PAUSE_MS = 30_000
"""How long a session is left alone whose work ended with a fault in the code."""


class Engagements:
    """The sessions that are worked on here: a driver for each, for as long as anybody here wants it or something of it runs."""

    def __init__(self, runtime: Runtime, store: Store, *, capacity: int | None, lease_ms: int) -> None:
        self._runtime = runtime
        self._capacity = capacity
        self.heartbeat = Heartbeat(store, runtime.clock, lease_ms, self._let_go)
        self.drivers: dict[str, Driver] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.lingering: dict[str, set[asyncio.Task[None]]] = {}
        self.left_behind: dict[str, bool] = {}
        self._slots = asyncio.Event()

    async def engage_when_free(self, session_id: str, agent: Agent, team: Mapping[str, Agent]) -> tuple[Driver, asyncio.Task[None]]:
        """`engage` once capacity allows it, for a child of a session that waits here; and the task of the work on it."""
        while True:
            free = self._slots
            try:
                driver = await self.engage(session_id, agent, team=team)
                return driver, self.tasks[session_id]
            except CapacityExceeded:
                await free.wait()

    def freed(self) -> None:
        """A session takes no slot any more: whoever waits for one looks again."""
        self._slots.set()
        self._slots = asyncio.Event()

    async def engage(
        self,
        session_id: str,
        agent: Agent,
        *,
        force: bool = False,
        route: str | None = None,
        team: Mapping[str, Agent] | None = None,
        sending: str = "",
    ) -> Driver:
        """Work on a session until `disengage`. ``route`` replaces the saved one when the session is taken up; ``team`` are the agents
        that names mean, by default those that the agent itself can reach. ``sending`` is the submission that it is engaged for, which is
        refused with `UnknownRoute` or `MissingRoute` where the session couldn't go on with it.

        Raises `UnknownAgent` if it is another agent's, `NewerRules`, `CapacityExceeded`, `SessionBusy` if it is worked on here under
        another definition of its agent, and `MissingExtra` or `MissingKey` for a model that can't be used from here. Nothing is sent then.
        """
        self._runtime.check_open()
        self._check_capacity(session_id)
        check_agent(agent)
        self._runtime.models.check_prices(agent.limits, agent.session_limits)
        self._runtime.models.router(agent).check()
        head = await self._check_belongs(session_id, agent, team or {})
        if route is not None:
            self._runtime.models.router(agent).model(route)
        elif sending and head is not None:
            await self._check_routes(head, agent, sending)
        await self.heartbeat.register(agent.name)
        self._check_capacity(session_id)
        self._runtime.news.listen()
        while (driver := self.drivers.get(session_id)) is not None and (driver.ending or not driver.serves(agent)):
            if driver.interest and not driver.ending:
                raise SessionBusy(
                    f"{session_id!r} is worked on here under another definition of {driver.agent.name!r}", hint="close that handle first"
                )
            if _driven.get() == session_id:
                raise SessionBusy(f"the work on {session_id!r} is about to end", hint="have more of it done behind that")
            # Nobody waits for it, or it lets go already: it ends with what it is doing, and the next one has the new definition.
            driver.notice()
            await asyncio.wait([self.tasks[session_id]])
            self._check_capacity(session_id)
        if driver is None:
            driver = self.drivers[session_id] = Driver(self._runtime, session_id, agent, team)
            driver.forced = force
            driver.join(route)
            # Its own context: what the caller's context variables say must not reach the turns of others.
            drive = self._drive(driver)
            self.tasks[session_id] = asyncio.create_task(drive, name=f"perdure {session_id}", context=Context())
        else:
            driver.join(route)
        return driver

    async def check_routes(self, session_id: str, agent: Agent, sending: str, *, unrouted: bool = False) -> None:
        """Raises `UnknownRoute` or `MissingRoute` where an engaged session couldn't go on with a submission that is about to be sent.

        ``unrouted``: it had no route when it was engaged.
        """
        driver, memory = self.drivers.get(session_id), agent.session_memory
        chooses = unrouted or self._runtime.models.router(agent).chooses or (memory is not None and memory.route is not None)
        if chooses and not (driver is not None and driver.held) and (head := await self._runtime.store.load(session_id)) is not None:
            await self._check_routes(head, agent, sending)

    async def _check_routes(self, head: Loaded, agent: Agent, sending: str) -> None:
        """What is sent already, what another process does, and where another route is about to be selected, nothing is refused."""
        if (head.row.holder is not None and head.holder_alive) or head.row.status in ("archived", "halted"):
            return
        with suppress(StoreCorrupt):
            checkpoint = decode_checkpoint(head.row.checkpoint)
            if checkpoint.agent not in ("", agent.name):
                # It was handed over, and goes on with what that agent has.
                return
            try:
                check_routes(checkpoint, agent, self._runtime.models.router(agent))
            except (MissingRoute, UnknownRoute):
                store, no = self._runtime.store, head.row.no
                selected = any(row.kind == SelectRoute.kind for row in await store.inbox(no))
                if not selected and await store.submission(no, sending) is None:
                    raise

    async def _check_belongs(self, session_id: str, agent: Agent, team: Mapping[str, Agent]) -> Loaded | None:
        """What is stored. Raises `UnknownAgent` where the session is another agent's, whose turns and calls are not for this one, and
        `NewerRules`."""
        head = await self._runtime.store.load(session_id)
        if head is not None and head.row.agent not in team:
            belongs(session_id, head.row.agent, [agent])
        if head is not None:
            # What can't be read otherwise halts the session, and that is for whoever takes it up.
            with suppress(StoreCorrupt):
                check_rules(head.row.checkpoint)
        return head

    def disengage(self, driver: Driver) -> None:
        """Nobody waits here any more. What runs goes on; a driver with nothing left to do ends."""
        driver.interest -= 1
        if not driver.interest:
            driver.notice()

    def _check_capacity(self, session_id: str) -> None:
        driver = self.drivers.get(session_id)
        # One that is only about to end has given its slot back already.
        if self._capacity is not None and not (driver is not None and (driver.interest or driver.occupied)):
            # What a session's work left running here still takes its slot, whoever holds the session now.
            taken = {name for name, driver in self.drivers.items() if driver.occupied} | self.lingering.keys()
            busy = len(taken - {session_id})
            if busy >= self._capacity:
                working = "1 session is" if busy == 1 else f"{busy} sessions are"
                raise CapacityExceeded(
                    f"{working} worked on here, as many as capacity allows", hint="wait for one to end, or raise capacity="
                )

    async def _drive(self, driver: Driver) -> None:
        session_id = driver.session_id
        _driven.set(session_id)
        try:
            await driver.run()
        except Exception as error:
            driver.error = error
            if not self._runtime.news.ended(session_id, error) and not driver.answered_for:
                _log.warning("the work on %s ended: %s", session_id, error)
            if not isinstance(error, Fenced) and not self._runtime.closed:
                self.left_behind[session_id] = isinstance(error, PerdureError)
                self._runtime.background.keep(asyncio.create_task(self._let_go()))
        finally:
            self.drivers.pop(session_id, None)
            self.tasks.pop(session_id, None)
            for task in driver.lingering:
                self._linger(session_id, task)
            self._runtime.news.forget_feed(session_id)
            self._runtime.news.callers.pop(session_id, None)
            self.freed()

    def _linger(self, session_id: str, task: asyncio.Task[None]) -> None:
        if task.done():
            return
        self.lingering.setdefault(session_id, set()).add(task)

        def ended(task: asyncio.Task[None]) -> None:
            left = self.lingering.get(session_id, set())
            left.discard(task)
            if not left:
                self.lingering.pop(session_id, None)
                self.freed()

        task.add_done_callback(ended)

    async def _let_go(self) -> None:
        """Release what failed drivers still hold, so that others need not wait for the end of this process; again with every heartbeat."""
        for session_id, expected in [*self.left_behind.items()]:
            try:
                if not await self._release(session_id, expected):
                    continue
            except PerdureError as error:
                _log.info("%s could not be let go yet: %s", session_id, error)
                continue
            self.left_behind.pop(session_id, None)

    async def _release(self, session_id: str, expected: bool) -> bool:
        """False: it could not be let go, because something arrived whenever it was tried."""
        store, runner = self._runtime.store, self.heartbeat.runner_id
        for _ in range(TRIES):
            head = await store.load(session_id)
            if head is None or head.row.holder != runner:
                return True
            if (driver := self.drivers.get(session_id)) is not None:
                # One that doesn't hold it may end without having taken it up.
                return driver.held
            checkpoint = decode_checkpoint(head.row.checkpoint)
            status, wake_at = parked(checkpoint, await store.inbox(head.row.no), head.now)
            if wake_at is not None and not expected:
                # A fault in the code would meet the next one at once.
                wake_at = max(wake_at, head.now + FAULT_PAUSE_MS)
            listed = Catalogue(status=status, wake_at=wake_at, title=checkpoint.title, labels=checkpoint.labels, agent=checkpoint.agent)
            row, at = head.row, checkpoint.at
            if not isinstance(await store.release(row.no, runner, row.fence, listed, row.inbox_head, at=at), InboxMoved):
                return True
        return False

    async def end(self, grace: float) -> None:
        """Start nothing more, let what runs end within so many seconds of the runtime's clock, and cut off the rest."""
        tasks = [*self.tasks.values()]
        for driver in [*self.drivers.values()]:
            driver.stop()
        if not tasks:
            return
        ended = asyncio.ensure_future(asyncio.wait(tasks))
        try:
            await first_of(self._runtime.clock, ended, seconds=min(grace, LONGEST_SECONDS))
            for driver in [*self.drivers.values()]:
                driver.stop_now()
            await ended
        finally:
            ended.cancel()
