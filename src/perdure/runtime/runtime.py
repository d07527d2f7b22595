"""The process's side of everything: which sessions it works on, who waits for what, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from ..agent import Agent
from ..agent.agent import check_agent, check_agents
from ..core.canonical import is_whole
from ..core.checkpoint import decode as decode_checkpoint
from ..core.commands import Deliver
from ..core.entries import QueueChanged, SubmissionRefused, TurnEnded
from ..core.errors import (
    Fenced,
    RuntimeClosed,
    StoreCorrupt,
    TurnUnfinished,
    UnknownAgent,
    UsageError,
)
from ..core.phase import phase
from ..core.records import Identity, Limits
from ..models.base import Model
from ..models.prices import Price, Prices
from ..models.router import Router
from ..store.base import Refusal, Store
from ..store.blobs import BlobStore
from ..store.outside import WithBlobs
from ..store.timekeeping import Timekeeper
from ..tools.context import is_seconds
from .background import Background
from .clock import Clock, SystemClock
from .consumers import Project, Projector
from .content import Input
from .door import Submission
from .driver import Driver
from .engaging import Engagements
from .errands import Errands
from .feed import Event
from .halting import check_not_halted, halt_damaged
from .late import LateResults
from .model_calls import UsageRow
from .models import Models
from .names import check_id
from .news import News
from .observing import Observer, Observers
from .perform import LONGEST_SECONDS
from .pools import Pools
from .reconciling import Reconciliation, reconcile
from .redefining import Deploy, check_deploy
from .result import Result, typed
from .scope import put_away
from .sending import check_deliver
from .session import Session
from .sessions import Sessions
from .stopping import Stopped, Stopping
from .stores import store_at

if TYPE_CHECKING:
    from .usage import Group

__all__ = ["Runtime", "open"]

_log = logging.getLogger("perdure.runtime")

Standing: TypeAlias = tuple[int, int]
"""A session's version, and the number of its last submission: what anybody does there changes one of them."""

LEAST_LEASE = 0.03
"""Seconds; it is renewed three times as often, and not more than every 10 ms. One that is over at once would let go of what runs."""

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
        if not is_seconds(lease) or not LEAST_LEASE <= lease <= LONGEST_SECONDS:
            raise UsageError(f"lease={lease!r:.40} is no time to keep sessions for", hint=f"seconds, {LEAST_LEASE} to ten years")
        if grace not in (0, math.inf) and not is_seconds(grace):
            raise UsageError(f"grace={grace!r:.40} is no time to wait for", hint="seconds; 0 waits for nothing")
        if capacity is not None and not is_whole(capacity, 1):
            raise UsageError(f"capacity={capacity!r:.40} is no number of sessions", hint="at least 1; None is no limit")
        self._store = store
        self._reaches = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.clock: Clock = clock or (
            SystemClock(wall=lambda: store.time() * 1_000_000) if isinstance(store, Timekeeper) else SystemClock()
        )
        self.notice_delay = NOTICE_DELAY if clock is None else 0.0
        self.capacity = capacity
        self.grace = grace
        self.closed = True
        self.sessions = Sessions(self)
        self.pools = Pools(self)
        self.models = Models(model, prices)
        self.observers = Observers(observers)
        self.errands = Errands(self)
        self.background = Background()
        self.stopping = Stopping()
        self.late = LateResults(self.sessions, self.clock, self.background)
        self.news = News(self)
        self.work = Engagements(self, store, capacity=capacity, lease_ms=round(lease * 1000))

    @property
    def store(self) -> Store:
        """What everything here reads and writes, while it is open: every door leads through this. Raises `RuntimeClosed`, and `UsageError`
        in another event loop than the one in which it was opened."""
        if not self._reaches:
            raise _not_open()
        self._check_loop()
        return self._store

    @property
    def runner_id(self) -> str:
        """This process's name as a holder."""
        return self.work.heartbeat.runner_id

    async def __aenter__(self) -> Runtime:
        if not self.closed:
            raise UsageError("the runtime is open already", hint="enter it once, and share it")
        await self._store.open()
        self._loop = asyncio.get_running_loop()
        self._reaches = True
        self.stopping = Stopping()
        self.closed = False
        self.background.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
        if self.stopping.caught is not None and (error is None or isinstance(error, asyncio.CancelledError)):
            raise Stopped(self.stopping.caught) from None

    def stop_on(self, *signals: int, then: Callable[[], object] | None = None) -> None:
        """Have signals, SIGTERM as a rule, end this ``async with`` in order instead of killing the process in the middle of a call.

        The task that says so is cancelled; leaving the ``async with`` closes the runtime as `close` does, and raises `Stopped`, a
        `SystemExit`. ``then`` is called instead of all that. Signals that come while the runtime closes change nothing. It holds until the
        runtime is closed; a signal for which the program has set a handler is left to that. Said again, the new ``then`` is for the signals
        of before as well. Raises `UsageError` without signals, and outside the main thread.
        """
        self.check_open()
        self.stopping.take(signals, then)

    async def close(self, *, grace: float | None = None) -> None:
        """Start nothing more, let running effects end within ``grace`` seconds, commit the others as interrupted, release, and let go.

        The grace is measured by the runtime's clock. Turns that are not over go on where they were when anybody resumes them. Idempotent.
        """
        if self.closed:
            return
        self._check_loop()
        self.stopping.closing = True
        try:
            await self.work.end(self.grace if grace is None else grace)
            self.closed = True
            self.news.close()
            await self.background.close()
            self.news.stop_listening()
            await self.models.close()
            await self.work.heartbeat.retire()
            self._reaches = False
            await self._store.close()
        finally:
            self.stopping.give_back()

    @property
    def working(self) -> int:
        """How many sessions are worked on here."""
        return sum(driver.occupied for driver in self.work.drivers.values())

    @property
    def holding(self) -> int:
        """How many sessions this process holds."""
        return sum(driver.held for driver in self.work.drivers.values())

    @property
    def lease_ms(self) -> int | None:
        """How long this process' lease still lasts; less than 0 if it ran out, ``None`` before it worked on anything."""
        expires = self.work.heartbeat.expires
        return None if expires is None else expires - self.clock.now()

    def check_open(self) -> None:
        """Raises `RuntimeClosed`, and `UsageError` in another event loop than the one in which it was opened."""
        if self.closed:
            raise _not_open()
        self._check_loop()

    def _check_loop(self) -> None:
        """What another loop waits for here, it would wait for in vain, while what it began goes on."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is not self._loop:
            raise UsageError(
                "the runtime was opened in another event loop",
                hint="open one in each loop, on the same store; or have its own loop do it: asyncio.run_coroutine_threadsafe(…, loop)",
            )

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
        `NewerRules`, `OutputInvalid`, `SubmissionConflict`, `UnknownRoute`, `SessionStuck` and what `Sessions.send` raises; a turn that
        fails is a `Result` that says so. Where a turn before this one can't go on (`DefinitionChanged`, `SessionStuck`), the message waits
        behind it.
        """
        self.models.check_prices(limits)
        sessions = self._sessions_of(owner)
        session_id = await self._addressed(sessions, session, submission)
        submission = submission or uuid.uuid4().hex

        def send() -> Awaitable[Submission]:
            about: dict[str, Any] = {"identity": identity, "labels": labels, "metadata": metadata, "limits": limits}
            return sessions.send(session_id, content, submission=submission, agent=agent.name, **about)

        return await self.finish(session_id, agent, send, submission, route=route)

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
        self.models.check_prices(limits)
        sessions = self._sessions_of(owner)
        session_id = await self._addressed(sessions, session, submission)
        submission = submission or uuid.uuid4().hex

        def send() -> Awaitable[Submission]:
            return sessions.resume(session_id, limits, submission=submission, actor=actor)

        return await self.finish(session_id, agent, send, submission)

    async def finish(
        self, session_id: str, agent: Agent, send: Callable[[], Awaitable[Submission]], submission: str, *, route: str | None = None
    ) -> Result:
        """Send a submission that begins a turn, work on it, and wait for its end; see `run`. ``send`` may be called again."""
        while True:
            driver = await self.work.engage(session_id, agent, route=route, sending=submission)
            # What is sent may be settled before its sender hears that it is durable.
            waiter = self.news.expect(session_id, submission)
            try:
                sent = await send()
                return typed(await self._result_of(driver, submission, waiter, sent.duplicate), agent)
            except Fenced:
                _log.info("another process took %s over; waiting for it", session_id)
            finally:
                self.news.drop(session_id, submission, waiter)
                self.work.disengage(driver)

    def run_sync(self, agent: Agent, content: Input, **options: Any) -> Result:
        """`run` for code without an event loop: opens the runtime, runs, and closes it again; SIGTERM as in `stop_on`.

        Raises `UsageError` inside a loop.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._run_alone(agent, content, options))
        raise UsageError("run_sync can't be used inside an event loop", hint="await run(…) there")

    async def _run_alone(self, agent: Agent, content: Input, options: dict[str, Any]) -> Result:
        async with self:
            if threading.current_thread() is threading.main_thread():
                self.stop_on(signal.SIGTERM)
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
        if head.row.status == "archived":
            raise put_away(session_id)
        try:
            idle = phase(decode_checkpoint(head.row.checkpoint)) == "idle"
        except StoreCorrupt as error:
            if (stopped := await halt_damaged(self, session_id, error)) is None:
                raise
            raise stopped from error
        if not idle or await self.store.inbox(head.row.no):
            raise TurnUnfinished(
                f"the session {session_id!r} has an unfinished turn",
                hint="pass submission= to say which message is meant, or use runtime.session(…) to send one more",
            )

    async def _result_of(self, driver: Driver, submission: str, waiter: asyncio.Future[Result], duplicate: bool) -> Result:
        session_id = driver.session_id
        if duplicate and (stored := await self.sessions.result(session_id, submission)) is not None:
            return stored
        if not waiter.done():
            task = self.work.tasks.get(session_id)
            if task is None:
                return await self._stored_result(driver, submission)
            both: list[asyncio.Future[Any]] = [waiter, task]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not waiter.done():
                return await self._stored_result(driver, submission)
        return waiter.result()

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

    async def register(self, agents: Iterable[Agent], *, refused: Sequence[Refusal] = ()) -> None:
        """Let others know that sessions of these agents, and of those that they call or hand over to, are taken up here, but for what is
        ``refused`` now.

        Raises a `StoreError`.
        """
        self.check_open()
        await self.work.heartbeat.register(*(name for agent in agents for name in agent.team))
        await self.work.heartbeat.refuse(refused)

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
        seen: dict[str, Standing | None] = {}
        while found := await self.due(by_name, seen):
            for start in range(0, len(found), self.capacity or len(found)):
                await asyncio.gather(
                    *(self._recover_quietly(item, by_name, seen) for item in found[start : start + (self.capacity or len(found))])
                )
        return [*seen]

    async def due(self, agents: Iterable[str], seen: Mapping[str, Standing | None]) -> list[str]:
        """The sessions of these agents that somebody must look at now, but for those that stand where they were ``seen``, or nowhere.

        One is due again when something was sent to it behind that, or its child came to its end.
        """
        found = []
        for item in await self.store.runnable(limit=100 + len(seen), agents=[*agents]):
            if item not in seen or (seen[item] is not None and seen[item] != await self.standing(item)):
                found.append(item)
        return found

    async def standing(self, session_id: str) -> Standing | None:
        """Where a session stands: its version, and how much was sent to it. ``None``: there is no such session."""
        head = await self.store.load(session_id)
        return None if head is None else (head.row.version, head.row.inbox_head)

    async def _recover_quietly(
        self, session_id: str, by_name: Mapping[str, tuple[Agent, Mapping[str, Agent]]], seen: dict[str, Standing | None]
    ) -> None:
        # What changes behind this is looked at again, even if it came when the work on it was about to end.
        seen[session_id] = await self.standing(session_id)
        try:
            await self._recover_one(session_id, by_name, force=False)
        except Exception as error:
            _log.warning("the session %s can't go on: %s", session_id, error)
            seen[session_id] = await self.standing(session_id)

    async def _recover_one(self, session_id: str, by_name: Mapping[str, tuple[Agent, Mapping[str, Agent]]], force: bool) -> list[str]:
        info = await self.sessions.info(session_id)
        agent, team = by_name.get(info.agent, (None, None))
        if agent is None:
            raise UnknownAgent(f"the session {session_id!r} belongs to the agent {info.agent!r}", hint=f"known here: {', '.join(by_name)}")
        driver = self.work.drivers.get(session_id)
        if driver is not None and driver.interest and not driver.ending:
            # Somebody here works on it already, for as long as they like; and if they go before it is taken up, it is all the same.
            driver.take_up()
            await driver.taken_up.wait()
        else:
            driver = await self.work.engage(session_id, agent, force=force, team=team)
            driver.answered_for = True
            task = self.work.tasks.get(session_id)
            driver.take_up()
            self.work.disengage(driver)
            if task is not None:
                await asyncio.wait([task])
        if driver.error is not None:
            raise driver.error
        return [session_id]

    async def reconcile(self, agents: Iterable[Agent], *, session: str | None = None) -> list[Reconciliation]:
        """Ask the tools of these agents once more what became of effects that are uncertain, in all sessions or in one.

        The tool is that of the agent that called it, whoever the session was handed over to since. Without ``session`` each session of the
        store is looked at, archived ones too; one that can't be read is logged and left out, where with ``session`` that raises.
        For when who could tell was not there when the call was cut off. A ``reconcile`` only reads, and what it knows is settled: *done*
        with its result; *not done* as failed, or where a person is asked, as their *retry*. Steps of tools, and tools without one, are left
        alone, and so is what a session that is gone on with asks itself. Nothing is run, and no session is taken up.
        """
        self.check_open()
        return await reconcile(self, check_agents(agents), session)

    async def check(self, agents: Iterable[Agent], *, others: bool = True, session: str | None = None) -> Deploy:
        """What these agents would make of the sessions that are unfinished now, before a deploy: which they could not take up, and why.

        Reads only. ``others``: sessions of agents that are not among them count as refused; False leaves them out. ``session`` looks at
        that one alone. Raises `UsageError` for two agents of one name, `SessionNotFound`, and what resolving their models raises.
        """
        self.check_open()
        return await check_deploy(self, agents, others=others, session=session)

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

    async def consume(self, name: str, projector: Projector | Project, *, follow: bool = True, heal: bool = False) -> None:
        """Give a consumer what it has not acknowledged, of all sessions, and acknowledge what it took; see `Consumer.consume`."""
        self.check_open()
        await self.sessions.consumer(name).consume(projector, follow=follow, heal=heal)


def _not_open() -> RuntimeClosed:
    return RuntimeClosed("the runtime is not open", hint="use it inside `async with perdure.open(…) as runtime:`")
