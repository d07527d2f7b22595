"""Processes that are acted in one event loop, and can be killed at any point and started again."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..agent import Agent
from ..core import checkpoint as checkpoints
from ..core.checkpoint import Operation
from ..core.errors import StaleRequest
from ..core.phase import due, phase
from ..runtime.result import Result
from ..runtime.runtime import Runtime
from ..store.base import SessionQuery, Store
from ..store.memory import MemoryStore
from .clock import START, VirtualClock
from .faults import WRITES, Call, FaultStore, When
from .world import World

__all__ = ["OPERATIONS", "Life", "Loss", "MemoryPlace", "Place", "Point", "SQLitePlace", "Script", "Stage", "Stalled"]

LIMIT_MS = 30 * 24 * 60 * 60 * 1000
"""How much virtual time a stage may take before it counts as stalled."""

OPERATIONS = 40_000
"""How many operations of the store a stage may take before it counts as one that goes round in circles."""

MORTAL = tuple(kind for kind in WRITES if kind not in ("heartbeat", "retire"))
"""The operations of the store around which a process can die: all that change something, but for those about its own lease."""

_LOGGERS = ("perdure.runtime", "perdure.tools", "asyncio")

_ROUNDS = 50
"""How often a dead process's tasks are cancelled before it counts as one that can't be killed."""


class Stalled(AssertionError):
    """Nothing moves any more, and not all is done."""


class Point(NamedTuple):
    """A moment at which a process can die: around one of the `MORTAL` operations, or while a tool (``effect``), a ``model`` or … runs."""

    kind: str
    name: str
    when: str

    def __str__(self) -> str:
        return f"{self.when} {self.kind} {self.name}".strip()


class Place(Protocol):
    """Where the stage's processes find their store."""

    def connect(self) -> Store:
        """A handle of one process."""

    async def abandon(self, store: Store) -> None:
        """The process of that handle is gone."""


class MemoryPlace:
    """A `MemoryStore`. ``silent``: a dead process is not noticed before its lease runs out."""

    def __init__(self, clock: VirtualClock, *, silent: bool = False) -> None:
        self._store = MemoryStore(clock.now, store_id="stage")
        self._silent = silent

    def connect(self) -> Store:
        return self._store.peer()

    async def abandon(self, store: Store) -> None:
        if not self._silent and isinstance(store, MemoryStore):
            store.crash()


class SQLitePlace:
    """A SQLite file."""

    def __init__(self, clock: VirtualClock, path: Path) -> None:
        self._clock = clock
        self._path = path

    def connect(self) -> Store:
        from ..store.sqlite import SQLiteStore

        return SQLiteStore(self._path, clock=self._clock.now, poll=0.2)

    async def abandon(self, store: Store) -> None:
        # What the kernel does for a dead process: its descriptors are closed, and nothing is given back.
        await store.close()


@dataclass(frozen=True)
class Loss:
    """What a death left in flight: for each session that the process held, the operations that the store knows as started."""

    point: Point
    actor: str
    lost: Mapping[str, tuple[Operation, ...]]
    phases: Mapping[str, str]

    @property
    def effects(self) -> tuple[tuple[str, Operation], ...]:
        """The external tool calls among them, of which nobody can know from the journal whether they happened; one that is resumable
        runs again."""
        return tuple(
            (session_id, item)
            for session_id, items in self.lost.items()
            for item in items
            if item.plan.kind == "tool" and item.plan.effect == "external" and not item.plan.resumable
        )


_here: contextvars.ContextVar[Life] = contextvars.ContextVar("perdure.testing.life")


@dataclass(eq=False)
class Life:
    """One life of one acted process: what its script gets. A life that is over never does anything again."""

    stage: Stage
    actor: str
    number: int
    store: FaultStore
    runtime: Runtime
    agent: Agent
    died: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """The outside world."""
        return self.stage.world

    @property
    def clock(self) -> VirtualClock:
        """The stage's clock."""
        return self.stage.clock

    async def run(self, content: str, *, submission: str, session: str = "s", agent: Agent | None = None) -> Result:
        """Send a message and wait for its turn's end, whoever works on it."""
        return await self.runtime.run(agent or self.agent, content, session=session, submission=submission)

    async def watch(self, condition: Callable[[], Awaitable[Any]], *, every: int = 100) -> Any:
        """Ask again and again until there is a true answer, or no other actor is left; returns the answer."""
        while True:
            others = [actor for actor in self.stage.acting if actor != self.actor]
            found = await condition()
            if found or not others:
                return found
            await self.clock.sleep_until(self.clock.now() + every)

    async def answer(self, decision: Any, *, submission: str, session: str = "s", kind: str = "approval", **options: Any) -> bool:
        """Wait until somebody is asked, and answer. False: nobody was. In a second life, what was answered stays answered."""

        async def look() -> bool:
            head = await self.runtime.store.load(session)
            if head is None:
                return False
            if await self.runtime.store.submission(head.row.no, submission) is not None:
                return True
            for request in await self.runtime.sessions.requests(session):
                if request.kind == kind:
                    with suppress(StaleRequest):
                        await self.runtime.sessions.answer(session, request.request_id, decision, submission=submission, **options)
                        return True
            return False

        return bool(await self.watch(look))

    async def settled(self, *submissions: str, session: str = "s") -> None:
        """Work on a session until these submissions are settled."""

        async def look() -> bool:
            head = await self.runtime.store.load(session)
            rows = [await self.runtime.store.submission(head.row.no, submission) for submission in submissions] if head is not None else []
            return bool(rows) and all(row is not None and row.settled_seq is not None for row in rows)

        async with self.runtime.session(session, self.agent):
            while not await look():
                await self.clock.sleep_until(self.clock.now() + 100)

    async def until_alone(self) -> None:
        """Wait until every other actor has come to its end."""

        async def never() -> bool:
            return False

        await self.watch(never)

    async def until_stored(self, kind: str, *, session: str = "s", count: int = 1) -> bool:
        """Wait until the journal holds so many entries of a kind."""

        async def look() -> bool:
            head = await self.runtime.store.load(session)
            return head is not None and len(await self.runtime.store.entries(head.row.no, kinds=(kind,))) >= count

        return bool(await self.watch(look))


Script: TypeAlias = Callable[[Life], Coroutine[Any, Any, None]]


@dataclass(eq=False)
class Stage:
    """One performance: actors who each live in a process of their own, over one store, one world and one virtual clock.

    ``deaths`` are numbers of points (from 0, counted over all actors; after a death counting begins anew). An actor that dies is started
    again with the same script. ``visited`` are the points of each stretch between deaths; ``losses`` what each death left behind.
    """

    place: Place
    clock: VirtualClock
    world: World
    make_agent: Callable[[World], Agent]
    scripts: Mapping[str, Script]
    deaths: tuple[int, ...] = ()
    lease: float = 10.0
    close_grace: float = 5.0
    visited: list[list[Point]] = field(default_factory=lambda: [[]])
    losses: list[Loss] = field(default_factory=list)
    acting: set[str] = field(default_factory=set)
    commits: list[Any] = field(default_factory=list)
    sends: int = 0
    strays: list[Point] = field(default_factory=list)
    operations: int = 0
    operations_limit: int = OPERATIONS
    _circling: asyncio.Event = field(default_factory=asyncio.Event)
    _lives: list[Life] = field(default_factory=list)

    async def play(self) -> None:
        """Perform until every script has come to its end. Raises what a script raises, and `Stalled`."""
        loop = asyncio.get_running_loop()
        factory = loop.get_task_factory()
        loop.set_task_factory(_register)
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_from_the_living)
        self.world.visit = self._visit_in_world
        self.acting = set(self.scripts)
        actors = [asyncio.create_task(self._act(actor, script), name=f"actor {actor}") for actor, script in self.scripts.items()]
        limit = asyncio.create_task(self._limit())
        try:
            pending: Collection[asyncio.Task[None]] = actors
            while pending:
                done, pending = await asyncio.wait([*pending, limit], return_when=asyncio.FIRST_COMPLETED)
                pending = [task for task in pending if task is not limit]
                for task in done:
                    if task is limit:
                        raise Stalled(await self.describe())
                    await task
            if self.strays:
                raise AssertionError(f"these points were passed by no process that could die there: {self.strays}")
        finally:
            loop.set_task_factory(factory)
            for task in (*actors, limit):
                task.cancel()
            await asyncio.gather(*actors, limit, return_exceptions=True)
            for life in [*self._lives]:
                await self._bury(life)
            for name in _LOGGERS:
                logging.getLogger(name).removeFilter(_from_the_living)

    @staticmethod
    def here() -> Life | None:
        """The life that the running task belongs to."""
        return _here.get(None)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Store]:
        """The store as somebody sees it who takes no part."""
        store = self.place.connect()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def describe(self) -> str:
        """Where every session stands, for whoever has to find out why it does."""
        lines = [f"still acting: {', '.join(sorted(self.acting))}"]
        async with self.looking() as store:
            for row in await store.sessions(SessionQuery(archived=True, limit=100)):
                checkpoint = checkpoints.decode(row.checkpoint)
                waiting = [item.submission_id for item in await store.inbox(row.no)]
                head = await store.load(row.session_id)
                alive = head is not None and head.holder_alive
                lines.append(
                    f"{row.session_id}: {row.status}, {phase(checkpoint)}, version {row.version}, holder {row.holder} "
                    f"({'alive' if alive else 'not alive'}), wake_at {row.wake_at}, inbox {waiting}, turn {checkpoint.turn}"
                )
        return "\n".join(lines)

    # -------------------------------------------------------------------------------------------------------------- acting

    async def _act(self, actor: str, script: Script) -> None:
        number = 0
        while True:
            number += 1
            life = await self._begin(actor, number)
            context = contextvars.copy_context()
            context.run(_here.set, life)
            main = asyncio.get_running_loop().create_task(self._live(life, script), name=f"{actor} {number}", context=context)
            dying = asyncio.create_task(life.died.wait())
            try:
                await asyncio.wait([main, dying], return_when=asyncio.FIRST_COMPLETED)
            finally:
                dying.cancel()
            if not life.store.dead:
                self.acting.discard(actor)
                await main
                return
            await self._note_loss(life)
            await self._bury(life)

    async def _begin(self, actor: str, number: int) -> Life:
        with self.clock.busy():
            store = FaultStore(self.place.connect(), clock=self.clock, keep=False)
            runtime = Runtime(store, lease=self.lease, clock=self.clock)
            life = Life(self, actor, number, store, runtime, self.make_agent(self.world))
            store.on_death = life.died.set
            store.gate = lambda call, when: self._count(life, call, when)
            self._lives.append(life)
        return life

    async def _live(self, life: Life, script: Script) -> None:
        with self.clock.busy():
            await life.runtime.__aenter__()
        await script(life)
        await life.runtime.close(grace=self.close_grace)

    async def _limit(self) -> None:
        ways = [asyncio.ensure_future(self.clock.sleep_until(START + LIMIT_MS)), asyncio.ensure_future(self._circling.wait())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()

    async def _count(self, life: Life, call: Call, when: When) -> None:
        self.operations += 1
        if self.operations > self.operations_limit:
            # Whoever goes round in circles over a store that never waits would let nobody else say so.
            self._circling.set()
            await asyncio.Event().wait()
        await self._visit_store(life, call, when)

    async def _visit_store(self, life: Life, call: Call, when: When) -> None:
        if call.kind not in MORTAL:
            return
        if call.kind == "commit" and when == "after":
            self.commits.append(call)
        if call.kind == "send" and when == "after":
            self.sends += 1
        if self._is_the_end(Point(call.kind, _told(call), when)):
            life.store.kill()

    async def _visit_in_world(self, point: Point) -> None:
        life = self.here()
        if life is None:
            self.strays.append(point)
            return
        if not life.store.dead and self._is_the_end(point):
            life.store.kill()
        if life.store.dead:
            await asyncio.Event().wait()

    def _is_the_end(self, point: Point) -> bool:
        stretch = len(self.visited) - 1
        self.visited[-1].append(point)
        if stretch < len(self.deaths) and len(self.visited[-1]) - 1 == self.deaths[stretch]:
            self.visited.append([])
            return True
        return False

    async def _note_loss(self, life: Life) -> None:
        point = self.visited[len(self.losses)][-1]
        lost: dict[str, tuple[Operation, ...]] = {}
        phases: dict[str, str] = {}
        with self.clock.busy():
            # What it had asked of the store in its last moment may be durable, and is no loss then.
            await life.store.quiet()
            async with self.looking() as store:
                for row in await store.sessions(SessionQuery(archived=True, limit=100)):
                    if row.holder == life.runtime.runner_id:
                        checkpoint = checkpoints.decode(row.checkpoint)
                        lost[row.session_id] = due(checkpoint)
                        phases[row.session_id] = phase(checkpoint)
        self.losses.append(Loss(point, life.actor, lost, phases))

    async def _bury(self, life: Life) -> None:
        """Nothing of a life goes on, and nothing that it does on its way out has any effect."""
        if life not in self._lives:
            return
        self._lives.remove(life)
        life.store.kill()
        with self.clock.busy():
            for _ in range(_ROUNDS):
                left = [task for task in life.tasks if not task.done()]
                if not left:
                    break
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=0.2)
            else:
                raise AssertionError(f"these tasks survive the end of their process: {left}")
            await self.place.abandon(life.store.inner)


def _told(call: Call) -> str:
    """What an operation is about, as a point's name says it."""
    match call.kind, call.given:
        case "commit", given:
            return ",".join(entry.kind for entry in given.entries)
        case "send", given:
            return str(given.submission_id)
        case "create", given:
            return given.parent_kind or ""
        case "adopt", given:
            return ",".join(adoption.row.session_id for adoption in given)
        case "put_blob", given:
            return str(given.digest[:12])
        case "ack" | "forget", given:
            return str(given)
        case _:
            return ""


def _from_the_living(record: logging.LogRecord) -> bool:
    life = _here.get(None)
    return life is None or not life.store.dead


def _register(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    life, context = _here.get(None), options.get("context")
    if context is not None and life is not None and context.get(_here) is None:
        # A task with a context of its own is a part of its creator's process all the same.
        context.run(_here.set, life)
    elif context is not None:
        life = context.get(_here)
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    if life is not None:
        life.tasks[task] = None
        task.add_done_callback(lambda task: _ended(life, task))
    return task


def _ended(life: Life, task: asyncio.Task[Any]) -> None:
    life.tasks.pop(task, None)
    if life.store.dead and not task.cancelled():
        # Nobody is left to hear of it.
        task.exception()
