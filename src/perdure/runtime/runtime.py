"""The process's side of everything: which sessions it works on, who waits for what, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..agent import Agent
from ..agent.agent import check_agent, check_agents
from ..core.budget import bounds_cost
from ..core.checkpoint import Turn
from ..core.checkpoint import decode as decode_checkpoint
from ..core.commands import Deliver
from ..core.entries import QueueChanged, SubmissionRefused, TurnEnded
from ..core.errors import (
    CapacityExceeded,
    Fenced,
    InvalidAgent,
    PerdureError,
    RuntimeClosed,
    SessionBusy,
    SubmissionRejected,
    TurnUnfinished,
    UnknownAgent,
    UsageError,
)
from ..core.phase import phase
from ..core.records import Identity, Limits
from ..core.usage import UsageRow
from ..models.base import Model
from ..models.prices import Price, Prices
from ..models.resolve import resolve
from ..models.router import Router
from ..store.base import Catalogue, Loaded, Store
from ..store.blobs import BlobStore
from ..store.outside import WithBlobs
from ..store.timekeeping import Timekeeper
from .batch import Batch, parked
from .clock import Clock, SystemClock
from .consumers import Project, Projector
from .content import Input
from .door import Submission
from .driver import Driver
from .errands import Errands
from .feed import ChildAsked, Event, Feed, Watch
from .halting import check_not_halted
from .names import check_id
from .observing import Change, Observer, Observers
from .perform import LONGEST_SECONDS
from .pools import Pools
from .redefining import Deploy, check_deploy
from .result import Result, refused, typed
from .runners import Heartbeat
from .sending import check_deliver
from .session import Session
from .sessions import Sessions
from .stores import store_at

if TYPE_CHECKING:
    from .usage import Group

__all__ = ["Runtime", "open"]

_log = logging.getLogger("perdure.runtime")

FAULT_PAUSE_MS = 30_000
"""How long a session is left alone whose work ended with a fault in the code."""

LATE_TRIES = 8
"""How often a result that came late is handed in while the store fails."""

LATE_PAUSE_MS, LATE_PAUSE_LIMIT_MS = 1_000, 30_000
"""How long the pause after the first failure is; each is twice the one before, up to the limit."""

NOTICE_DELAY = 0.002
"""How long a change of a session that this process holds may be its own before the inbox is read again (seconds)."""


def open(  # noqa: A001 - the library's verb, always used as perdure.open
    url: str | os.PathLike[str] | Store,
    *,
    model: str | Model | Router | None = None,
    blobs: BlobStore | None = None,
    capacity: int | None = None,
    lease: float = 10.0,
    grace: float = 5.0,
    clock: Clock | None = None,
    observers: Iterable[Observer] = (),
    prices: Prices | Mapping[str, Price] | None = None,
) -> Runtime:
    """A runtime on a store: a path or ``sqlite:///path``, ``postgresql://…``, ``memory://``, or a `Store`. Use it with ``async with``.

    ``model`` is what agents without one of their own use. ``blobs`` (`DirectoryBlobs`) is where content of more than 64 KiB stands; a
    database that has some outside is always opened with it. ``capacity`` is how many sessions may be worked on at once. ``lease`` (seconds)
    is how long a process that went silent keeps its sessions; on one machine a killed process is noticed at once. ``grace`` (seconds) is
    how long running effects may take to end when the runtime closes. A `Store` may be shared by several runtimes of one event loop, and
    with its maker: each opens it for itself, and the last to close it closes it. ``observers`` see what this process commits. With
    ``prices`` (`Prices`, or one's own by model) every model call's cost is recorded with its receipt; without, only where something limits
    cost, by the package genai-prices. Raises `InvalidURL`; entering it raises what opening the store does.
    """
    store = url if isinstance(url, Store) else store_at(url, clock)
    return Runtime(
        store if blobs is None else WithBlobs(store, blobs),
        model=model,
        capacity=capacity,
        lease=lease,
        grace=grace,
        clock=clock,
        observers=observers,
        prices=prices,
    )


class Runtime:
    """Runs agents on one store. It drives only sessions that it was asked to run or that are open here with an agent."""

    def __init__(
        self,
        store: Store,
        *,
        model: str | Model | Router | None = None,
        capacity: int | None = None,
        lease: float = 10.0,
        grace: float = 5.0,
        clock: Clock | None = None,
        observers: Iterable[Observer] = (),
        prices: Prices | Mapping[str, Price] | None = None,
    ) -> None:
        if lease <= 0 or grace < 0:
            raise UsageError("lease must be more than 0 seconds, and grace not less")
        if capacity is not None and capacity < 1:
            raise UsageError("capacity must be at least 1", hint="None is no limit")
        self.store = store
        self.clock: Clock = clock or (
            SystemClock(wall=lambda: store.time() * 1_000_000) if isinstance(store, Timekeeper) else SystemClock()
        )
        self.notice_delay = NOTICE_DELAY if clock is None else 0.0
        self.capacity = capacity
        self.grace = grace
        self.closed = True
        self.sessions = Sessions(self)
        self.pools = Pools(self)
        self._always_priced = prices is not None
        self._prices = prices if isinstance(prices, Prices) else Prices(prices)
        self.observers = Observers(observers)
        self.errands = Errands(self)
        self._default_model = model
        self._routers: dict[str, Router] = {}
        self._heartbeat = Heartbeat(store, self.clock, round(lease * 1000), self._let_go)
        self._left_behind: dict[str, bool] = {}
        self._lingering: dict[str, set[asyncio.Task[None]]] = {}
        self._drivers: dict[str, Driver] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._feeds: dict[str, Feed] = {}
        self._numbers: dict[str, int] = {}
        self._session_ids: dict[int, str] = {}
        self._waiters: dict[tuple[str, str], set[asyncio.Future[Result]]] = {}
        self._background: set[asyncio.Task[Any]] = set()
        self._unlisten: Any = None
        self._closing = asyncio.Event()
        self._slots = asyncio.Event()
        self.callers: dict[str, str] = {}

    @property
    def runner_id(self) -> str:
        """This process's name as a holder."""
        return self._heartbeat.runner_id

    async def __aenter__(self) -> Runtime:
        if not self.closed:
            raise UsageError("the runtime is open already", hint="enter it once, and share it")
        await self.store.open()
        self.closed = False
        # Of the loop that it is opened in.
        self._closing = asyncio.Event()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self, *, grace: float | None = None) -> None:
        """Start nothing more, let running effects end within ``grace`` seconds, commit the others as interrupted, release, and let go.

        The grace is measured by the runtime's clock. Turns that are not over go on where they were when anybody resumes them. Idempotent.
        """
        if self.closed:
            return
        tasks = [*self._tasks.values()]
        for driver in [*self._drivers.values()]:
            driver.stop()
        if tasks:
            seconds = min(self.grace if grace is None else grace, LONGEST_SECONDS)
            ended = asyncio.ensure_future(asyncio.wait(tasks))
            over = asyncio.ensure_future(self.clock.sleep_until(self.clock.now() + round(seconds * 1000)))
            try:
                await asyncio.wait([ended, over], return_when=asyncio.FIRST_COMPLETED)
                for driver in [*self._drivers.values()]:
                    driver.stop_now()
                await ended
            finally:
                over.cancel()
                ended.cancel()
        self.closed = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(RuntimeClosed("the runtime was closed before the turn ended", hint="run it again to go on"))
        for feed in self._feeds.values():
            feed.end(None)
        self._closing.set()
        if self._background:
            await asyncio.wait(self._background, timeout=1.0)
            for task in [*self._background]:
                task.cancel()
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        for model in [model for router in self._routers.values() for model in router.used]:
            if (close := getattr(model, "aclose", None)) is not None:
                await close()
        self._routers.clear()
        await self._heartbeat.retire()
        await self.store.close()

    @property
    def working(self) -> int:
        """How many sessions are worked on here."""
        return sum(driver.occupied for driver in self._drivers.values())

    def check_open(self) -> None:
        """Raises `RuntimeClosed`."""
        if self.closed:
            raise RuntimeClosed("the runtime is not open", hint="use it inside `async with perdure.open(…) as runtime:`")

    # ------------------------------------------------------------------------------------------------------------- running

    async def run(
        self,
        agent: Agent,
        content: Input,
        *,
        session: str | None = None,
        submission: str | None = None,
        identity: Identity | None = None,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: dict[str, Any] | None = None,
        route: str | None = None,
        limits: Limits | None = None,
    ) -> Result:
        """Send a message and wait for the end of the turn that it causes.

        Idempotent in (session, submission): run again after a crash it goes on where it was, and after the end it returns the stored
        result without a model call. ``submission`` without ``session`` names the session too; without ``submission`` an unfinished turn
        raises `TurnUnfinished`. It waits across parks (a person's approval) and holders (another process). Cancelling it only stops the
        waiting.

        ``owner``: a new session is theirs, and a session of anybody else is not found. ``metadata`` replaces the session's, ``route`` its
        selected route from the next turn or model call on; ``identity`` and ``labels`` matter for a new one only. ``limits`` bound this
        turn besides the agent's, whichever are tighter, and belong to the submission. Raises `CapacityExceeded`, `DefinitionChanged`,
        `OutputInvalid`, `SubmissionConflict`, `UnknownRoute`, `SessionStuck` and what `Sessions.send` raises; a turn that fails is a
        `Result` that says so.
        """
        self._check_prices(limits)
        sessions = self._sessions_of(owner)
        session_id = await self._addressed(sessions, session, submission)
        submission = submission or uuid.uuid4().hex

        def send() -> Awaitable[Submission]:
            about: dict[str, Any] = {"identity": identity, "labels": labels, "metadata": metadata, "limits": limits}
            return sessions.send(session_id, content, submission=submission, agent=agent.name, **about)

        return await self.finish(session_id, agent, send, route=route)

    async def resume(
        self,
        agent: Agent,
        session: str,
        limits: Limits | None = None,
        *,
        submission: str | None = None,
        owner: str | None = None,
        actor: str = "",
    ) -> Result:
        """Go on with the turn of a session that ended at a limit, and wait for the end; see `Sessions.resume`.

        Idempotent in (session, submission). Raises what `run` raises, and `SubmissionRejected` (*not_limited*) where there is nothing to go
        on with.
        """
        self._check_prices(limits)
        sessions = self._sessions_of(owner)
        session_id = await self._addressed(sessions, session, submission)
        submission = submission or uuid.uuid4().hex

        def send() -> Awaitable[Submission]:
            return sessions.resume(session_id, limits, submission=submission, actor=actor)

        return await self.finish(session_id, agent, send)

    async def finish(self, session_id: str, agent: Agent, send: Callable[[], Awaitable[Submission]], *, route: str | None = None) -> Result:
        """Send something that begins a turn, work on it, and wait for its end; see `run`. ``send`` may be called again."""
        while True:
            driver = await self.engage(session_id, agent, route=route)
            try:
                sent = await send()
                return typed(await self._result_of(driver, sent.id, sent.duplicate), agent)
            except Fenced:
                _log.info("another process took %s over; waiting for it", session_id)
            finally:
                self.disengage(driver)

    def run_sync(self, agent: Agent, content: Input, **options: Any) -> Result:
        """`run` for code without an event loop: opens the runtime, runs, and closes it again. Raises `UsageError` inside a loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._run_alone(agent, content, options))
        raise UsageError("run_sync can't be used inside an event loop", hint="await run(…) there")

    async def _run_alone(self, agent: Agent, content: Input, options: dict[str, Any]) -> Result:
        async with self:
            return await self.run(agent, content, **options)

    async def stream(
        self,
        agent: Agent,
        content: Input,
        *,
        session: str | None = None,
        submission: str | None = None,
        identity: Identity | None = None,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: dict[str, Any] | None = None,
        route: str | None = None,
        limits: Limits | None = None,
    ) -> AsyncIterator[Event]:
        """`run` as events: deltas and entries, up to and with the end of the turn.

        Raises what `run` raises. Closing the generator only stops the watching.
        """
        session_id = await self._addressed(self._sessions_of(owner), session, submission)
        about: dict[str, Any] = {"identity": identity, "owner": owner, "labels": labels, "metadata": metadata, "route": route}
        async with self.session(session_id, agent, **about) as handle:
            sent = await handle.send(content, submission=submission, limits=limits)
            after = 0 if sent.duplicate else None
            async for event in handle.events(after=after):
                yield event
                if isinstance(event, TurnEnded) and event.submission == sent.id:
                    return
                if isinstance(event, SubmissionRefused | QueueChanged) and event.submission == sent.id:
                    # Raises what `run` would: the message was refused or withdrawn. A promoted one is neither.
                    await self.sessions.result(session_id, sent.id)

    def _sessions_of(self, owner: str | None) -> Sessions:
        return self.sessions if owner is None else self.sessions.owned_by(owner)

    async def _addressed(self, sessions: Sessions, session: str | None, submission: str | None) -> str:
        """The session that a call means.

        Raises `TurnUnfinished` where it doesn't say which message of an unfinished turn it means, and `SessionNotFound` if it is not
        among ``sessions``.
        """
        self.check_open()
        session_id = check_id(session or submission or uuid.uuid4().hex, "a session id")
        if sessions is not self.sessions:
            await sessions.number(session_id)
        if submission is None and session is not None:
            await self._refuse_unfinished(session_id)
        return session_id

    async def _refuse_unfinished(self, session_id: str) -> None:
        head = await self.store.load(session_id)
        if head is None:
            return
        check_not_halted(head.row)
        if phase(decode_checkpoint(head.row.checkpoint)) != "idle" or await self.store.inbox(head.row.no):
            raise TurnUnfinished(
                f"the session {session_id!r} has an unfinished turn",
                hint="pass submission= to say which message is meant, or use runtime.session(…) to send one more",
            )

    async def _result_of(self, driver: Driver, submission: str, duplicate: bool) -> Result:
        session_id = driver.session_id
        waiter: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault((session_id, submission), set()).add(waiter)
        try:
            if duplicate and (stored := await self.sessions.result(session_id, submission)) is not None:
                return stored
            task = self._tasks.get(session_id)
            if task is None:
                return await self._stored_result(driver, submission)
            both: list[asyncio.Future[Any]] = [waiter, task]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not waiter.done():
                return await self._stored_result(driver, submission)
            return waiter.result()
        finally:
            if waiter.done() and not waiter.cancelled():
                # It may have been told of an error while the stored result was found.
                waiter.exception()
            waiting = self._waiters.get((session_id, submission), set())
            waiting.discard(waiter)
            if not waiting:
                self._waiters.pop((session_id, submission), None)

    async def _stored_result(self, driver: Driver, submission: str) -> Result:
        self.check_open()
        stored = await self.sessions.result(driver.session_id, submission)
        if stored is None and driver.error is not None:
            raise driver.error
        if stored is None:
            raise RuntimeClosed("the runtime was closed before the turn ended", hint="run it again to go on")
        return stored

    def session(
        self,
        session_id: str,
        agent: Agent | None = None,
        *,
        identity: Identity | None = None,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: dict[str, Any] | None = None,
        route: str | None = None,
        deliver: Deliver = "turn",
    ) -> Session:
        """A handle on a session, for ``async with``; see `Session`.

        ``owner``: a new session is theirs, and a session of anybody else is not found. ``metadata`` replaces the session's, also if it is
        empty; left out, it stays. ``route`` takes the place of the saved one, known here or not, in the commit that takes the session up.
        ``identity`` and ``labels`` matter for a new session only. ``deliver`` is how its messages go that don't say. Entering the handle
        raises `CapacityExceeded`, `UnknownRoute`, or `SessionNotFound` if the session was deleted or belongs to somebody else.
        """
        if agent is not None:
            check_agent(agent)
        elif route is not None:
            raise UsageError("route= says what an agent uses", hint="give the agent too, or use select_route")
        return Session(
            self,
            check_id(session_id, "a session id"),
            agent,
            identity=identity,
            owner=owner,
            labels=labels,
            metadata=metadata,
            route=route,
            deliver=check_deliver(deliver),
        )

    async def register(self, agents: Iterable[Agent]) -> None:
        """Let others know that sessions of these agents are taken up here. Raises a `StoreError`."""
        self.check_open()
        for agent in agents:
            await self._heartbeat.register(agent.name)

    async def recover(self, agents: Iterable[Agent], *, session: str | None = None, force: bool = False) -> list[str]:
        """Take up every session of these agents, and of those that they call or hand over to, that somebody must look at.

        It works until none is left, and returns their ids. Sessions that wait for a person, or whose agent is not among them, are left
        alone. ``session`` takes up only that one; ``force`` does so even if it is stuck. A session that can't go on is logged, and stops
        no other; with ``session`` its error is raised.
        """
        self.check_open()
        given = check_agents(agents)
        # A name that was given means that agent, whatever others call by it.
        by_name = {name: (member, agent.team) for agent in given for name, member in agent.team.items()}
        by_name |= {agent.name: (agent, agent.team) for agent in given}
        if session is not None:
            return await self._recover_one(session, by_name, force)
        seen: dict[str, int] = {}
        while found := await self.due(by_name, seen):
            for start in range(0, len(found), self.capacity or len(found)):
                await asyncio.gather(
                    *(self._recover_quietly(item, by_name) for item in found[start : start + (self.capacity or len(found))])
                )
            for item in found:
                head = await self.store.load(item)
                seen[item] = -1 if head is None else head.row.version
        return [*seen]

    async def due(self, agents: Iterable[str], seen: Mapping[str, int]) -> list[str]:
        """The sessions of these agents that somebody must look at now, but for those that stand where they were ``seen``, by version.

        A parent is due again when its child came to its end.
        """
        found = []
        for item in await self.store.runnable(limit=100 + len(seen), agents=[*agents]):
            head = await self.store.load(item) if item in seen else None
            if item not in seen or (head is not None and seen[item] not in (-1, head.row.version)):
                found.append(item)
        return found

    async def _recover_quietly(self, session_id: str, by_name: Mapping[str, tuple[Agent, Mapping[str, Agent]]]) -> None:
        try:
            await self._recover_one(session_id, by_name, force=False)
        except Exception as error:
            _log.warning("the session %s can't go on: %s", session_id, error)

    async def _recover_one(self, session_id: str, by_name: Mapping[str, tuple[Agent, Mapping[str, Agent]]], force: bool) -> list[str]:
        info = await self.sessions.info(session_id)
        agent, team = by_name.get(info.agent, (None, None))
        if agent is None:
            raise UnknownAgent(f"the session {session_id!r} belongs to the agent {info.agent!r}", hint=f"known here: {', '.join(by_name)}")
        if session_id in self._drivers and self._drivers[session_id].interest:
            # Somebody here works on it already, for as long as they like.
            return [session_id]
        driver = await self.engage(session_id, agent, force=force, team=team)
        task = self._tasks.get(session_id)
        driver.errand = True
        self.disengage(driver)
        if task is not None:
            await asyncio.wait([task])
        if driver.error is not None:
            raise driver.error
        return [session_id]

    async def check(self, agents: Iterable[Agent], *, others: bool = True) -> Deploy:
        """What these agents would make of the sessions that are unfinished now, before a deploy: which they could not take up, and why.

        Reads only. ``others``: sessions of agents that are not among them count as refused; False leaves them out. Raises `UsageError` for
        two agents of one name, and what resolving their models raises.
        """
        self.check_open()
        return await check_deploy(self, agents, others=others)

    async def usage(
        self,
        by: Sequence[Group] = ("session",),
        *,
        session: str | None = None,
        owner: str | None = None,
        route: str | None = None,
        since: int | None = None,
        until: int | None = None,
        index: str | os.PathLike[str] | None = None,
        rebuild: bool = False,
    ) -> list[UsageRow]:
        """What the model calls of all sessions came to, by session, owner, agent, route, model, kind or (UTC) day, or several of them.

        It is read from an index of the ledgers, a file in the user's cache or ``index``, brought up to date first; ``rebuild`` makes it
        anew. ``since`` and ``until`` are ms: ``since <= started < until``. The costliest come first. Raises `UsageError`.
        """
        # It needs a package that others may do without.
        from .usage import UsageIndex, place_of

        self.check_open()
        found = UsageIndex(place_of(self.store.store_id) if index is None else index)
        try:
            await found.update(self, rebuild=rebuild)
            return found.report(by, session=session, owner=owner, route=route, since=since, until=until)
        finally:
            found.close()

    async def consume(self, name: str, projector: Projector | Project, *, follow: bool = True) -> None:
        """Give a consumer what it has not acknowledged, of all sessions, and acknowledge what it took; see `Consumer.consume`."""
        self.check_open()
        await self.sessions.consumer(name).consume(projector, follow=follow)

    # ------------------------------------------------------------------------------------------------------------- drivers

    async def engage_when_free(self, session_id: str, agent: Agent, team: Mapping[str, Agent]) -> tuple[Driver, asyncio.Task[None]]:
        """`engage` once capacity allows it, for a child of a session that waits here; and the task of the work on it."""
        while True:
            free = self._slots
            try:
                driver = await self.engage(session_id, agent, team=team)
                return driver, self._tasks[session_id]
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
    ) -> Driver:
        """Work on a session until `disengage`. ``route`` replaces the saved one when the session is taken up; ``team`` are the agents
        that names mean, by default those that the agent itself can reach.

        Raises `UnknownAgent` if it is another agent's, `CapacityExceeded`, `SessionBusy` if it is worked on here under another definition
        of its agent, and `MissingExtra` or `MissingKey` for a model that can't be used from here.
        """
        self.check_open()
        self._check_capacity(session_id)
        check_agent(agent)
        self._check_prices(agent.limits, agent.session_limits)
        self.router(agent).check()
        await self._check_belongs(session_id, agent, team or {})
        if route is not None:
            self.router(agent).model(route)
        await self._heartbeat.register(agent.name)
        self._check_capacity(session_id)
        self.listen()
        while (driver := self._drivers.get(session_id)) is not None and not driver.serves(agent):
            if driver.interest:
                raise SessionBusy(
                    f"{session_id!r} is worked on here under another definition of {driver.agent.name!r}", hint="close that handle first"
                )
            # Nobody waits for it: it ends with what it is doing, and the next one has the new definition.
            driver.notice()
            await asyncio.wait([self._tasks[session_id]])
        if driver is None:
            driver = self._drivers[session_id] = Driver(self, session_id, agent, team)
            driver.forced = force
            driver.give_route(route)
            driver.interest = 1
            # Its own context: what the caller's context variables say must not reach the turns of others.
            drive = self._drive(driver)
            self._tasks[session_id] = asyncio.create_task(drive, name=f"perdure {session_id}", context=Context())
        else:
            driver.interest += 1
            driver.give_route(route)
        return driver

    async def _check_belongs(self, session_id: str, agent: Agent, team: Mapping[str, Agent]) -> None:
        """Raises `UnknownAgent` where the session is another agent's: its turns and its calls are not for this one."""
        head = await self.store.load(session_id)
        if head is not None and not agent.takes(head.row.agent) and head.row.agent not in team:
            raise UnknownAgent(
                f"the session {session_id!r} belongs to the agent {head.row.agent!r}, not to {agent.name!r}",
                hint="pass that agent, or name another session",
            )

    def disengage(self, driver: Driver) -> None:
        """Nobody waits here any more. What runs goes on; a driver with nothing left to do ends."""
        driver.interest -= 1
        if not driver.interest:
            driver.notice()

    def _check_capacity(self, session_id: str) -> None:
        driver = self._drivers.get(session_id)
        # One that is only about to end has given its slot back already.
        if self.capacity is not None and not (driver is not None and (driver.interest or driver.occupied)):
            # What a session's work left running here still takes its slot, whoever holds the session now.
            taken = {name for name, driver in self._drivers.items() if driver.occupied} | self._lingering.keys()
            busy = len(taken - {session_id})
            if busy >= self.capacity:
                raise CapacityExceeded(
                    f"{busy} sessions are worked on here, as many as capacity allows", hint="wait for one to end, or raise capacity="
                )

    async def _drive(self, driver: Driver) -> None:
        session_id = driver.session_id
        try:
            await driver.run()
        except Exception as error:
            driver.error = error
            self.feed(session_id).end(error)
            waiting = [waiter for key, waiters in self._waiters.items() if key[0] == session_id for waiter in waiters if not waiter.done()]
            for waiter in waiting:
                waiter.set_exception(error)
            if not waiting:
                _log.warning("the work on %s ended: %s", session_id, error)
            if not isinstance(error, Fenced) and not self.closed:
                self._left_behind[session_id] = isinstance(error, PerdureError)
                self.keep(asyncio.create_task(self._let_go()))
        finally:
            self._drivers.pop(session_id, None)
            self._tasks.pop(session_id, None)
            for task in driver.lingering:
                self._linger(session_id, task)
            self._forget_feed(session_id)
            self.callers.pop(session_id, None)
            self.freed()

    def _linger(self, session_id: str, task: asyncio.Task[None]) -> None:
        if task.done():
            return
        self._lingering.setdefault(session_id, set()).add(task)

        def ended(task: asyncio.Task[None]) -> None:
            left = self._lingering.get(session_id, set())
            left.discard(task)
            if not left:
                self._lingering.pop(session_id, None)

        task.add_done_callback(ended)

    async def _let_go(self) -> None:
        """Release what failed drivers still hold, so that others need not wait for the end of this process; again with every heartbeat."""
        for session_id, expected in [*self._left_behind.items()]:
            try:
                head = await self.store.load(session_id)
                if head is not None and head.row.holder == self.runner_id and session_id not in self._drivers:
                    await self._release(head, expected)
            except PerdureError as error:
                _log.info("%s could not be let go yet: %s", session_id, error)
                continue
            self._left_behind.pop(session_id, None)

    async def _release(self, head: Loaded, expected: bool) -> None:
        checkpoint = decode_checkpoint(head.row.checkpoint)
        status, wake_at = parked(checkpoint, await self.store.inbox(head.row.no), head.now)
        if wake_at is not None and not expected:
            # A fault in the code would meet the next one at once.
            wake_at = max(wake_at, head.now + FAULT_PAUSE_MS)
        listed = Catalogue(status=status, wake_at=wake_at, title=checkpoint.title, labels=checkpoint.labels, agent=checkpoint.agent)
        await self.store.release(head.row.no, self.runner_id, head.row.fence, listed)

    def prices_of(self, turn: Turn | None) -> Prices | None:
        """What the calls of a turn are priced by; None if nobody wants to know what they cost."""
        return self._prices if self._always_priced or (turn is not None and bounds_cost(turn)) else None

    def _check_prices(self, *limits: Limits | None) -> None:
        """Raises `MissingExtra` where a cost is limited that nobody could know."""
        if any(isinstance(item, Limits) and item.cost is not None for item in limits):
            self._prices.check()

    def router(self, agent: Agent) -> Router:
        """The routes of an agent. Raises `UnknownModel`, or `InvalidAgent` if there is none."""
        chosen = agent.model if agent.model is not None else self._default_model
        if chosen is None:
            raise InvalidAgent(f"the agent {agent.name!r} has no model", hint='pass model="openai:…" to Agent or perdure.open')
        if isinstance(chosen, Router):
            return chosen
        if not isinstance(chosen, str):
            return Router.only(chosen)
        if chosen not in self._routers:
            resolve(chosen)
            self._routers[chosen] = Router.only(chosen)
        return self._routers[chosen]

    # ------------------------------------------------------------------------------------------------------- news and results

    def feed(self, session_id: str) -> Feed:
        """The session's watchers here."""
        return self._feeds.setdefault(session_id, Feed())

    def tell_callers(self, session_id: str, events: list[ChildAsked]) -> None:
        """Tell who watches a session that called this one, or one of its callers, here."""
        while (caller := self.callers.get(session_id)) is not None:
            session_id = caller
            if (feed := self._feeds.get(session_id)) is not None:
                feed.publish(events)

    def leave(self, session_id: str, watch: Watch) -> None:
        """A watcher goes."""
        feed = self._feeds.get(session_id)
        if feed is not None:
            feed.leave(watch)
            self._forget_feed(session_id)

    def _forget_feed(self, session_id: str) -> None:
        feed = self._feeds.get(session_id)
        if feed is not None and not feed.watched and session_id not in self._drivers:
            del self._feeds[session_id]
            self._session_ids.pop(self._numbers.pop(session_id, 0), None)

    def known(self, no: int, session_id: str) -> None:
        """The store's number of a session that somebody here looks at."""
        self._numbers[session_id], self._session_ids[no] = no, session_id
        self.listen()

    def listen(self) -> None:
        """Hear of changes that other processes make, from now until the runtime closes."""
        if self._unlisten is None:
            self._unlisten = self.store.changes(self._changed)

    def _changed(self, no: int | None) -> None:
        if no is None:
            for session_id in {*self._drivers, *self._feeds}:
                self.notice(session_id, sure=True)
        elif no in self._session_ids:
            self.notice(self._session_ids[no], sure=False)

    def notice(self, session_id: str, *, sure: bool) -> None:
        """Something may have been sent to, or committed in, a session."""
        driver = self._drivers.get(session_id)
        if driver is not None:
            driver.notice(sure=sure)
        feed = self._feeds.get(session_id)
        if feed is not None and not (driver is not None and driver.held):
            feed.notice()

    def observe(self, session_id: str, batch: Batch) -> None:
        """Tell observers of a commit."""
        if self.observers and batch.entries:
            self.observers.committed(Change(self.store.store_id, session_id, batch.entries, batch.before, batch.checkpoint))

    def settled(self, driver: Driver, batch: Batch) -> None:
        """Tell who waits for a turn that it is over."""
        for entry in batch.entries:
            if isinstance(entry, TurnEnded):
                key = (driver.session_id, entry.submission)
                if key in self._waiters:
                    self._resolve(key, driver.result_of(entry))
            elif isinstance(entry, SubmissionRefused):
                self._fail((driver.session_id, entry.submission), refused(entry))

    def _resolve(self, key: tuple[str, str], result: Result) -> None:
        for waiter in self._waiters.get(key, ()):
            if not waiter.done():
                waiter.set_result(result)

    def _fail(self, key: tuple[str, str], error: Exception) -> None:
        for waiter in self._waiters.get(key, ()):
            if not waiter.done():
                waiter.set_exception(error)

    async def look_for_results(self, session_id: str) -> None:
        """Whether turns that somebody here waits for ended elsewhere."""
        for key in [key for key in self._waiters if key[0] == session_id]:
            try:
                result = await self.sessions.result(*key)
            except SubmissionRejected as refusal:
                self._fail(key, refusal)
                continue
            if result is not None:
                self._resolve(key, result)

    def committed_elsewhere(self, session_id: str, batch: Batch) -> None:
        """A commit for a session that nobody held was made here, without its driver."""
        feed = self._feeds.get(session_id)
        if feed is not None:
            feed.publish(batch.entries)
        self.observe(session_id, batch)
        self.notice(session_id, sure=True)

    # ------------------------------------------------------------------------------------------------------------ background

    def report_late(self, session_id: str, operation: str, attempt: int, result: Any, is_error: bool) -> None:
        """Hand in a result that came after its attempt was given up; again while the store fails, `LATE_TRIES` times at most."""
        self.keep(asyncio.ensure_future(self._report_late(session_id, operation, attempt, result, is_error)))

    async def _report_late(self, session_id: str, operation: str, attempt: int, result: Any, is_error: bool) -> None:
        why = "the runtime was closed"
        try:
            for tried in range(1, LATE_TRIES + 1):
                try:
                    await self.sessions.report_attempt(session_id, operation, attempt, result, is_error)
                    return
                except PerdureError as error:
                    why = str(error)
                    if not error.retryable or tried == LATE_TRIES or self._closing.is_set():
                        break
                    _log.info("the late result of %s#%d in %s could not be handed in yet: %s", operation, attempt, session_id, error)
                await self._pause(min(LATE_PAUSE_MS * 2 ** (tried - 1), LATE_PAUSE_LIMIT_MS))
        except asyncio.CancelledError:
            self._give_up(session_id, operation, attempt, why)
            raise
        self._give_up(session_id, operation, attempt, why)

    async def _pause(self, milliseconds: int) -> None:
        """Some time, or until the runtime closes."""
        over = asyncio.ensure_future(self.clock.sleep_until(self.clock.now() + milliseconds))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([over, closing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            closing.cancel()

    @staticmethod
    def _give_up(session_id: str, operation: str, attempt: int, why: str) -> None:
        _log.error(
            "the result of %s#%d in %s came late, was not handed in and is lost: %s; its outcome stays unknown until somebody reports it",
            operation, attempt, session_id, why,
        )  # fmt: skip

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Something that may end after who began it."""
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    with suppress(asyncio.CancelledError):
        task.exception()
