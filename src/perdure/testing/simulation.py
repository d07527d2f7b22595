"""Many sessions, several runners, and everything that can go wrong, in an order that a seed decides.

    outcome = await simulate(4711)

Processes die, are paused beyond their lease and come back as zombies; the store fails before and after it did what it was asked; people
want whatever can be wanted of a session, from processes that hold it and from others, and ask for it again. After a while the storm ends,
and everything has to come to its end with nothing lost, repeated or corrupted, and everybody told what is true. The same seed is the same
simulation, to the last operation.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..agent import Agent
from ..agent.middleware import CommandHandler, HookContext, Middleware
from ..core.context import NOTES_TOOL
from ..core.entries import Entry
from ..core.errors import PerdureError, ProviderUnavailable, Refused, StoreBroken, StoreError
from ..core.ids import idempotency_key
from ..core.journal import open_entry
from ..core.messages import ToolCall
from ..core.records import Limits
from ..core.usage import Usage
from ..models.base import ModelRequest
from ..models.router import Router
from ..models.scripted import FunctionModel, Reply
from ..runtime.messages import read_entries
from ..store.base import SessionQuery, Store
from ..tools.context import ToolContext
from ..tools.running import ToolError
from ..tools.tool import Done, NotDone, Unknown, tool
from .clock import START, VirtualClock
from .faults import Call, When
from .people import OWNER, People, Standing, make_wishes
from .people import Call as Called
from .reckoning import find_all
from .stage import OPERATIONS, Life, MemoryPlace, Place, Point, Script, Stage, Stalled
from .world import World

__all__ = ["Outcome", "SimulationFailed", "Weather", "simulate"]

REST = 10_000
"""How long nothing may happen before all is over (virtual milliseconds)."""

SOON = 5_000
"""How long somebody may wait for what the journal says, in a process that goes on (virtual milliseconds)."""

TEAM = ("helper", "junior", "aide")
"""The agents that others call."""

PATIENCE = 90_000
"""How long somebody may wait for an answer while nothing happens any more."""


class SimulationFailed(AssertionError):
    """A seed that ends badly; the message says how to run it again."""


@dataclass(frozen=True, kw_only=True)
class Weather:
    """How bad it gets. Chances are per operation; times are in virtual milliseconds."""

    sessions: int = 4
    runners: int = 3
    people: int = 3
    wishes: int = 8
    storm: int = 90_000
    fails_before: float = 0.02
    fails_after: float = 0.02
    dies: float = 0.01
    delayed: float = 0.3
    delay: int = 400
    pause: float = 0.5
    lease: float = 10.0


@dataclass
class Outcome:
    """What a simulation came to. ``trace`` is a digest over every operation, in order; ``happened`` counts what it was about."""

    seed: int
    trace: str
    operations: int
    happened: Counter[str]
    problems: list[str]


@dataclass(eq=False)
class _Simulation(Stage):
    """A stage whose points are all dangerous until the storm ends."""

    seed: int = 0
    weather: Weather = field(default_factory=Weather)
    happened: Counter[str] = field(default_factory=Counter)
    people: People = field(init=False)
    buried: dict[int, list[Entry]] = field(default_factory=dict)
    noted: int = 0
    random: random.Random = field(default_factory=random.Random)
    _failures: Counter[tuple[str, int]] = field(default_factory=Counter)
    _failed: dict[tuple[str, int], int] = field(default_factory=dict)
    _paused: dict[str, int] = field(default_factory=dict)
    _trace: Any = field(default_factory=hashlib.sha256)

    @property
    def stormy(self) -> bool:
        """Whether anything may still go wrong."""
        return self.clock.now() < START + self.weather.storm

    @property
    def finished(self) -> bool:
        """Whether everybody goes home."""
        return self.people.over

    @property
    def trace(self) -> str:
        """A digest over every operation so far."""
        return str(self._trace.hexdigest())

    def note(self, *words: object) -> None:
        """Make something a part of the trace."""
        self.noted += 1
        self._trace.update(f"{self.clock.now()} {' '.join(map(str, words))}\n".encode())

    async def _visit_store(self, life: Life, call: Call, when: When) -> None:
        await self._weather(life, call, when)
        if (call.kind, when) == ("delete", "before"):
            await self._remember(call.given)

    async def _weather(self, life: Life, call: Call, when: When) -> None:
        weather = self.weather
        self.note(life.actor, life.number, when, call.kind, call.nth)
        await self._wait_while_paused(life)
        if not self.stormy:
            return
        if self.random.random() < weather.delayed:
            await self.clock.sleep_until(self.clock.now() + self.random.randrange(weather.delay))
            await self._wait_while_paused(life)
        if self.random.random() < weather.dies * (call.kind in ("commit", "send")):
            self.happened[f"death {when} {call.kind}"] += 1
            life.store.kill()
        elif self.random.random() < (weather.fails_before if when == "before" else weather.fails_after):
            self.happened[f"error {when} {call.kind}"] += 1
            self._failures[life.actor, life.number] += 1
            self._failed[life.actor, life.number] = self.clock.now()
            raise StoreBroken(f"the simulated store fails {when} {call.kind}")

    async def _remember(self, no: int) -> None:
        """Keep the journal of a session that is about to be deleted: what people were told is compared with it."""
        with self.clock.busy():
            async with self.looking() as store:
                entries = [open_entry(item) for item in await read_entries(store, no)]
        # Of one that was deleted before less is left.
        if len(entries) >= len(self.buried.get(no, ())):
            self.buried[no] = entries

    async def _visit_in_world(self, point: Point) -> None:
        life = self.here()
        if life is None:
            self.strays.append(point)
            return
        self.note(life.actor, life.number, point)
        await self._wait_while_paused(life)
        if self.stormy and self.random.random() < self.weather.delayed:
            await self.clock.sleep_until(self.clock.now() + self.random.randrange(10 * self.weather.delay))
        await self._wait_while_paused(life)
        if self.stormy and self.random.random() < self.weather.dies and not life.store.dead:
            self.happened[f"death {point.when} {point.kind}"] += 1
            life.store.kill()
        if life.store.dead:
            await asyncio.Event().wait()

    async def _note_loss(self, life: Life) -> None:
        self.note(life.actor, life.number, "died")

    async def _wait_while_paused(self, life: Life) -> None:
        while (until := self._paused.get(life.actor, 0)) > self.clock.now():
            await self.clock.sleep_until(until)

    async def brew(self) -> None:
        """Now and then a process is stopped, and goes on later as if nothing had been. After the storm all come to rest."""
        mortals = [actor for actor in self.scripts if actor != "clerk"]
        while self.stormy:
            await self.clock.sleep_until(self.clock.now() + self.random.randrange(1000, 8000))
            if self.random.random() < self.weather.pause:
                self.happened["pause"] += 1
                actor, until = self.random.choice(mortals), self.clock.now() + self.random.randrange(1000, round(self.weather.lease * 2500))
                self._paused[actor] = max(until, self._paused.get(actor, 0))
        resting, ready = 0, max(self.people.last, *self._paused.values())
        while resting < (PATIENCE if self.people.unheard else REST):
            await self.clock.sleep_until(self.clock.now() + 1000)
            resting = resting + 1000 if self.clock.now() > ready and await self._rests() else 0
        self.people.over = True

    async def watch(self) -> None:
        """Note who waits for what the journal says already: a wake-up that was lost would often be made good by whatever comes next."""
        while not self.people.over:
            await self.clock.sleep_until(self.clock.now() + 1000)
            with self.clock.busy():
                async with self.looking() as store:
                    for call in self.people.calls:
                        if call.waits and not call.late:
                            await self._time(store, call)

    async def _time(self, store: Store, call: Called) -> None:
        head, now = await store.load(call.session, hidden=True), self.clock.now()
        row = None if head is None else await store.submission(head.row.no, call.wish.submission)
        deleted = head is not None and head.row.status == "deleted"
        if not deleted and (row is None or row.settled_seq is None):
            return
        if call.settled is None or self._paused.get(call.life.actor, 0) > now:
            call.settled = now
        call.late = now > call.settled + SOON

    async def _rests(self) -> bool:
        with self.clock.busy():
            async with self.looking() as store:
                rows = await store.sessions(SessionQuery(archived=True, limit=1000))
                waiting = [await store.inbox(row.no) for row in rows]
        return not any(waiting) and all(row.status in ("idle", "archived") and row.holder is None for row in rows)

    async def look(self, life: Life, session_id: str) -> Standing:
        """How a session stands, for whoever compares with it what a process was told."""
        with self.clock.busy():
            async with self.looking() as store:
                head = await store.load(session_id, hidden=True)
        failures = self._failures[life.actor, life.number]
        just = self.clock.now() - self._failed.get((life.actor, life.number), 0) < 1000
        if head is None:
            return Standing(0, 0, 0, "", None, failures, just)
        return Standing(head.row.version, head.row.inbox_head, head.row.fence, head.row.status, head.row.holder, failures, just)

    async def children(self, session_id: str) -> list[str]:
        """The sessions that were begun for a session, and for those."""
        with self.clock.busy():
            async with self.looking() as store:
                rows = [row for row in await store.tree(session_id) if row.parent_kind == "child"]
        return [row.session_id for row in rows if row.session_id.startswith(f"{session_id}.")]


async def simulate(seed: int, weather: Weather | None = None, *, place: Callable[[VirtualClock], Place] | None = None) -> Outcome:
    """One simulation. Raises `SimulationFailed` if anything is not as it must be.

    It is in memory, or at a ``place``, where work in threads may come to its end in another order the next time.
    """
    weather = weather or Weather()
    chance = random.Random(seed)
    clock = VirtualClock(auto=True)
    world = World()
    silent = chance.random() < 0.5
    wishes = make_wishes(chance, people=weather.people, wishes=weather.wishes, sessions=weather.sessions, storm=weather.storm)
    scripts: dict[str, Script] = {f"runner {number}": _run for number in range(weather.runners)}
    scripts |= dict.fromkeys(wishes, _want)
    scripts["clerk"] = _tidy
    where = MemoryPlace(clock, silent=silent) if place is None else place(clock)
    stage = _Simulation(where, clock, world, _agent, scripts, lease=weather.lease, close_grace=0.0)
    stage.seed, stage.weather, stage.random, stage.operations_limit = seed, weather, chance, 4 * OPERATIONS
    stage.people = People(wishes, stage.look, stage.children, stage.happened)
    brewing = asyncio.gather(stage.brew(), stage.watch())
    problems: list[str] = []
    try:
        await stage.play()
        await brewing
        async with stage.looking() as store:
            problems += await find_all(store, world, stage.people, stage.happened, stage.buried)
    except (Stalled, AssertionError) as error:
        problems.append(f"{type(error).__name__}: {error}")
    finally:
        brewing.cancel()
    outcome = Outcome(seed, stage.trace, stage.noted, stage.happened, problems)
    if problems:
        shown = "\n  ".join(problems[:10])
        raise SimulationFailed(f"seed {seed} ends badly after {stage.noted} operations (PERDURE_SEED={seed} runs it again):\n  {shown}")
    return outcome


async def _want(life: Life) -> None:
    await _stage(life).people.act(life)


# ------------------------------------------------------------------------------------------------------------------ the clerk


async def _tidy(life: Life) -> None:
    """Answers whatever is asked, in one way or another, and now and then twice; what was stopped or put away is let go on some day."""
    stage = _stage(life)
    while not stage.finished:
        await life.clock.sleep_until(life.clock.now() + stage.random.randrange(500, 5000))
        with suppress(StoreError):
            await _refill(life, stage)
            for row in await life.runtime.store.sessions(SessionQuery(archived=True, limit=1000)):
                with suppress(Refused):
                    await _see_to(life, stage, row.session_id, row.status)


async def _refill(life: Life, stage: _Simulation) -> None:
    """Gives the owner a pool, and more of it now and then."""
    pools = life.runtime.pools
    if await pools.get(OWNER) is None:
        await pools.set(OWNER, Limits(model_calls=40, tokens=100_000, seconds=10_000))
    elif stage.stormy and stage.random.random() < 0.2:
        await pools.add(OWNER, Limits(model_calls=40))


async def _see_to(life: Life, stage: _Simulation, session_id: str, status: str) -> None:
    match status:
        case "stuck" if not stage.stormy:
            stage.happened["stuck"] += 1
            await life.runtime.recover([life.agent], session=session_id, force=True)
        case "halted" if not stage.stormy or stage.random.random() < 0.2:
            await life.runtime.sessions.repair(session_id)
        case "archived" if stage.stormy and stage.random.random() < 0.2:
            await life.runtime.sessions.revive(session_id)
    for request in await life.runtime.sessions.requests(session_id, children=stage.random.random() < 0.3):
        await _decide(life, stage, session_id, request)


async def _decide(life: Life, stage: _Simulation, session_id: str, request: Any) -> None:
    options: dict[str, Any] = {}
    if request.kind == "approval":
        decision: Any = stage.random.choices(("approve", "deny", "abort"), (6, 3, 1))[0]
        if decision == "approve" and stage.random.random() < 0.3 and "cents" in request.arguments:
            options["arguments"] = {**request.arguments, "cents": request.arguments["cents"] + 1000}
    else:
        # An honest clerk sees to it that what didn't happen won't.
        key = idempotency_key(life.runtime.store.store_id, request.session_id, request.operation)
        decision = stage.random.choice(("retry", "deny") if life.world.refuse(key, request.entry.attempt) else ("settle", "deny"))
        if decision == "settle":
            options["result"] = "as the clerk found it"
    stage.happened[f"answer {decision}"] += 1
    for _ in range(1 + (stage.random.random() < 0.2)):
        with suppress(Refused):
            await life.runtime.sessions.answer(
                session_id, request.request_id, decision, submission=f"answer-{life.number}-{stage.happened.total()}", **options
            )


# ----------------------------------------------------------------------------------------------------------------- the runners


async def _run(life: Life) -> None:
    """Takes up whatever somebody must look at, and sometimes keeps a session open."""
    stage = _stage(life)
    while not stage.finished:
        try:
            if stage.random.random() < 0.3:
                async with life.runtime.session(f"s{stage.random.randrange(stage.weather.sessions)}", life.agent):
                    await life.clock.sleep_until(life.clock.now() + stage.random.randrange(5000))
            else:
                await life.runtime.recover([life.agent])
        except (StoreError, PerdureError) as error:
            stage.happened[f"runner met {error.code}"] += 1
        await life.clock.sleep_until(life.clock.now() + stage.random.randrange(200, 3000))


def _stage(life: Life) -> _Simulation:
    assert isinstance(life.stage, _Simulation)
    return life.stage


def _agent(world: World) -> Agent:
    """A model that asks for all kinds of tools, as the conversation decides, and ends each turn after a few steps."""

    async def think(request: ModelRequest, tools: dict[str, int]) -> Reply:
        if request.purpose == "notes":
            await world.ask(request, request.session_id)
            return Reply(tool_calls=[ToolCall(NOTES_TOOL, {"notes": f"{len(request.messages)} messages"})])
        dice = random.Random(f"{request.session_id} {len(request.messages)} {request.messages[-1].role}")
        await world.ask(request, request.session_id)
        failures = world.memory.setdefault("failures", Counter())
        if dice.random() < 0.2 and failures[request.session_id, len(request.messages)] < 2:
            failures[request.session_id, len(request.messages)] += 1
            raise ProviderUnavailable("overloaded", retry_after=dice.choice((None, 1.0, 5.0)))
        since = 0
        for message in request.messages:
            since = 0 if message.role == "user" else since + (message.role == "assistant")
        usage = Usage(input_tokens=len(request.messages), output_tokens=1) if dice.random() < 0.8 else None
        if since >= 3 or dice.random() < 0.3:
            return Reply(f"answer {len(request.messages)}", usage=usage)
        names = dice.choices([*tools], [*tools.values()], k=dice.randrange(1, 4))
        calls = [
            ToolCall(name=name, arguments={"task": f"help with {dice.randrange(100)}"} if name in TEAM else {"cents": dice.randrange(100)})
            for name in names
        ]
        return Reply("working", tool_calls=calls, usage=usage)

    async def find(ctx: ToolContext, cents: int) -> Done | NotDone | Unknown:
        await world.point("reconcile", "pay", "before")
        if cents % 5 == 0:
            return Unknown()
        return NotDone() if world.refuse(ctx.idempotency_key, ctx.attempt) else Done("as the ledger says")

    @tool(effect="external")
    async def charge(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "charge", cents)
        return f"charged {cents}"

    @tool(effect="external", reconcile=find, timeout=2)
    async def pay(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "pay", cents)
        return f"paid {cents}"

    @tool(effect="external", on_uncertain="ask")
    async def ask(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "ask", cents)
        return f"asked for {cents}"

    @tool(effect="pure")
    async def look(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "look", cents, effect="pure")
        return f"saw {cents}"

    @tool(effect="idempotent", timeout=3)
    async def put(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "put", cents, effect="idempotent")
        return f"put {cents}"

    @tool(effect="external", exclusive=True)
    async def alone(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "alone", cents)
        return f"alone with {cents}"

    @tool(effect="external")
    async def refuse(ctx: ToolContext, cents: int) -> str:
        raise ToolError(f"no {cents}")

    @tool(effect="external")
    async def explode(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "explode", cents)
        raise OSError("the line is dead")

    async def write(ctx: HookContext, arguments: dict[str, Any]) -> None:
        ctx.state["written"] = arguments["what"]

    def thinking(**tools: int) -> Router:
        model = partial(think, tools=tools)
        return Router({"fast": FunctionModel(model, name="fast"), "deep": FunctionModel(model, name="deep")})

    junior = Agent("junior", model=thinking(look=2, pay=1), tools=[look, pay])
    helper = Agent(
        "helper",
        model=thinking(charge=1, put=2, junior=2),
        tools=[charge, put, junior.as_tool()],
        approve=["charge"],
        approval_timeout=40,
    )
    aide = Agent("aide", model=thinking(look=1, put=1), tools=[look, put])
    approve: Any = {"charge": "ask", "put": "ask", "refuse": "deny"}
    return Agent(
        "a",
        model=thinking(charge=4, pay=3, ask=2, look=3, put=3, alone=2, refuse=1, explode=1, helper=3, aide=1),
        tools=[charge, pay, ask, look, put, alone, refuse, explode, helper.as_tool(timeout=20), aide.as_tool(background=True)],
        middleware=[_Scribe(write)],
        approve=approve,
        approval_timeout=40,
    )


class _Scribe(Middleware):
    """Writes down what it is told to."""

    name = "scribe"

    def __init__(self, write: CommandHandler) -> None:
        self.commands = {"write": write}
