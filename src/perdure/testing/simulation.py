"""Many sessions, several runners, and everything that can go wrong, in an order that a seed decides.

    outcome = await simulate(4711)

Runners die, are paused beyond their lease and come back as zombies; the store fails before and after it did what it was asked; people
send messages, steers, interrupts and answers, and send them again. After a while the storm ends, and everything has to come to its end
with nothing lost, repeated or corrupted. The same seed is the same simulation, to the last operation.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..agent import Agent
from ..core.entries import (
    EffectSettled,
    MessageAdded,
    OperationEnded,
    OperationStarted,
    QueueChanged,
    SubmissionRefused,
    TurnEnded,
    TurnStarted,
)
from ..core.errors import PerdureError, ProviderUnavailable, StaleRequest, StoreBroken, StoreError, SubmissionConflict
from ..core.ids import idempotency_key
from ..core.journal import open_entry
from ..core.messages import ToolCall
from ..core.usage import Usage
from ..models.base import ModelRequest
from ..models.scripted import FunctionModel, Reply
from ..runtime.messages import read_entries
from ..store.base import SessionQuery, Store
from ..tools.context import ToolContext
from ..tools.running import ToolError
from ..tools.tool import Done, NotDone, Unknown, tool
from .checks import find_problems
from .clock import START, VirtualClock
from .faults import Call, When
from .stage import OPERATIONS, Life, MemoryPlace, Point, Script, Stage, Stalled
from .world import Effect, World

__all__ = ["Outcome", "SimulationFailed", "Weather", "simulate"]


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
    noted: int = 0
    finished: bool = False
    random: random.Random = field(default_factory=random.Random)
    _paused: dict[str, int] = field(default_factory=dict)
    _trace: Any = field(default_factory=hashlib.sha256)

    @property
    def stormy(self) -> bool:
        """Whether anything may still go wrong."""
        return self.clock.now() < START + self.weather.storm

    @property
    def trace(self) -> str:
        """A digest over every operation so far."""
        return str(self._trace.hexdigest())

    def note(self, *words: object) -> None:
        """Make something a part of the trace."""
        self.noted += 1
        self._trace.update(f"{self.clock.now()} {' '.join(map(str, words))}\n".encode())

    async def _visit_store(self, life: Life, call: Call, when: When) -> None:
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
            raise StoreBroken(f"the simulated store fails {when} {call.kind}")

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
        """Now and then a runner is stopped, and goes on later as if nothing had been."""
        while self.stormy:
            await self.clock.sleep_until(self.clock.now() + self.random.randrange(1000, 8000))
            if self.random.random() < self.weather.pause:
                actor = f"runner {self.random.randrange(self.weather.runners)}"
                self.happened["pause"] += 1
                self._paused[actor] = self.clock.now() + self.random.randrange(1000, round(self.weather.lease * 2500))


async def simulate(seed: int, weather: Weather | None = None) -> Outcome:
    """One simulation. Raises `SimulationFailed` if anything is not as it must be."""
    weather = weather or Weather()
    chance = random.Random(seed)
    clock = VirtualClock(auto=True)
    world = World()
    wishes = {f"person {number}": _wishes(chance, weather, number) for number in range(weather.people)}
    scripts: dict[str, Script] = {f"runner {number}": _run for number in range(weather.runners)}
    scripts |= {name: _wish(list_of) for name, list_of in wishes.items()}
    scripts["clerk"] = _answer
    stage = _Simulation(
        MemoryPlace(clock, silent=chance.random() < 0.5), clock, world, _agent, scripts, lease=weather.lease, close_grace=0.0
    )
    stage.seed, stage.weather, stage.random, stage.operations_limit = seed, weather, chance, 2 * OPERATIONS
    brewing = asyncio.ensure_future(stage.brew())
    problems: list[str] = []
    try:
        await stage.play()
        await brewing
        async with stage.looking() as store:
            problems += await _problems(store, world, {wish.submission for list_of in wishes.values() for wish in list_of}, stage.happened)
    except (Stalled, AssertionError) as error:
        problems.append(f"{type(error).__name__}: {error}")
    finally:
        brewing.cancel()
    outcome = Outcome(seed, stage.trace, stage.noted, stage.happened, problems)
    if problems:
        shown = "\n  ".join(problems[:10])
        raise SimulationFailed(f"seed {seed} ends badly after {stage.noted} operations (PERDURE_SEED={seed} runs it again):\n  {shown}")
    return outcome


# ------------------------------------------------------------------------------------------------------------------ the people


@dataclass(frozen=True)
class _Wish:
    at: int
    kind: str
    session: str
    submission: str
    twice: bool


def _wishes(chance: random.Random, weather: Weather, person: int) -> list[_Wish]:
    found = []
    at = START
    for number in range(weather.wishes):
        at += chance.randrange(weather.storm // weather.wishes)
        kind = chance.choices(("turn", "queue", "steer", "interrupt"), (5, 2, 3, 1))[0]
        session = f"s{chance.randrange(weather.sessions)}"
        found.append(_Wish(at, kind, session, f"{kind}-{person}-{number}", chance.random() < 0.3))
    return found


def _wish(wishes: list[_Wish]) -> Script:
    async def script(life: Life) -> None:
        stage = _stage(life)
        for wish in wishes:
            await life.clock.sleep_until(wish.at)
            for _ in range(1 + wish.twice):
                await _insist(life, lambda wish=wish: _express(life, wish))  # type: ignore[misc]
        while not stage.finished:
            stage.finished = await _all_done(life, stage)
            await life.clock.sleep_until(life.clock.now() + 1000)

    return script


async def _express(life: Life, wish: _Wish) -> None:
    sessions = life.runtime.sessions
    if wish.kind == "interrupt":
        with suppress(PerdureError):
            await sessions.info(wish.session)
            await sessions.interrupt(wish.session, submission=wish.submission)
        return
    deliver: Any = wish.kind
    await sessions.send(wish.session, f"{wish.submission}, please", submission=wish.submission, deliver=deliver, agent="a")


async def _insist(life: Life, action: Callable[[], Awaitable[Any]]) -> None:
    """Whoever doesn't know whether it arrived sends it again."""
    while True:
        try:
            await action()
        except StoreError:
            await life.clock.sleep_until(life.clock.now() + 100)
        else:
            return


async def _all_done(life: Life, stage: _Simulation) -> bool:
    if stage.stormy:
        return False
    try:
        rows = await life.runtime.store.sessions(SessionQuery(archived=True, limit=1000))
    except StoreError:
        return False
    if {name for name in stage.acting if name.startswith("person")} != {life.actor} and any(
        not name.startswith(("runner", "clerk")) and name > life.actor for name in stage.acting
    ):
        return False
    return all(row.status == "idle" and row.holder is None for row in rows)


async def _answer(life: Life) -> None:
    """Answers whatever is asked, in one way or another, and now and then twice."""
    stage = _stage(life)
    while not stage.finished:
        await life.clock.sleep_until(life.clock.now() + stage.random.randrange(500, 5000))
        with suppress(StoreError):
            for row in await life.runtime.store.sessions(SessionQuery(archived=True, limit=1000)):
                if row.status == "stuck" and not stage.stormy:
                    stage.happened["stuck"] += 1
                    await life.runtime.recover([life.agent], session=row.session_id, force=True)
                for request in await life.runtime.sessions.requests(row.session_id):
                    await _decide(life, stage, row.session_id, request)


async def _decide(life: Life, stage: _Simulation, session_id: str, request: Any) -> None:
    options: dict[str, Any] = {}
    if request.kind == "approval":
        decision: Any = stage.random.choices(("approve", "deny", "abort"), (6, 3, 1))[0]
        if decision == "approve" and stage.random.random() < 0.3 and "cents" in request.arguments:
            options["arguments"] = {**request.arguments, "cents": request.arguments["cents"] + 1000}
    else:
        # An honest clerk sees to it that what didn't happen won't.
        key = idempotency_key(life.runtime.store.store_id, session_id, request.operation)
        decision = stage.random.choice(("retry", "deny") if life.world.refuse(key, request.entry.attempt) else ("settle", "deny"))
        if decision == "settle":
            options["result"] = "as the clerk found it"
    stage.happened[f"answer {decision}"] += 1
    for _ in range(1 + (stage.random.random() < 0.2)):
        with suppress(StaleRequest, SubmissionConflict):
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

    async def think(request: ModelRequest) -> Reply:
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
        names = dice.choices(
            ("charge", "pay", "ask", "look", "put", "alone", "refuse", "explode"), (4, 3, 2, 3, 3, 2, 1, 1), k=dice.randrange(1, 4)
        )
        calls = [ToolCall(name=name, arguments={"cents": dice.randrange(100)}) for name in names]
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

    approve: Any = {"charge": "ask", "put": "ask", "refuse": "deny"}
    return Agent(
        "a",
        model=FunctionModel(think),
        tools=[charge, pay, ask, look, put, alone, refuse, explode],
        approve=approve,
        approval_timeout=40,
    )


# ----------------------------------------------------------------------------------------------------------------- the reckoning


async def _problems(store: Store, world: World, submissions: set[str], happened: Counter[str]) -> list[str]:
    problems: list[str] = []
    seen: set[str] = set()
    for row in await store.sessions(SessionQuery(archived=True, limit=1000)):
        name = row.session_id
        problems += await find_problems(store, name)
        if (row.status, row.holder) != ("idle", None):
            problems.append(f"{name}: it is {row.status}, held by {row.holder}")
        waiting = await store.inbox(row.no)
        problems += [f"{name}: {item.submission_id} still waits" for item in waiting]
        entries = [open_entry(item) for item in await read_entries(store, row.no)]
        uses: Counter[str] = Counter()
        started: set[tuple[str, int]] = set()
        ends: dict[str, str] = {}
        for entry in entries:
            happened[entry.kind] += 1
            match entry:
                case TurnStarted():
                    uses[entry.submission] += 1
                case MessageAdded(role="user", deliver="steer"):
                    uses[entry.submission] += 1
                case SubmissionRefused():
                    uses[entry.submission] += 1
                case OperationStarted():
                    started.add((entry.operation, entry.attempt))
                case OperationEnded(final=True) | EffectSettled():
                    ends[entry.operation] = entry.status
                case TurnEnded() | QueueChanged():
                    pass
                case _:
                    pass
        problems += [f"{name}: {submission!r} was used {times} times" for submission, times in uses.items() if times != 1]
        for submission in submissions:
            inbox = await store.submission(row.no, submission)
            if inbox is not None:
                seen.add(submission)
                if inbox.settled_seq is None:
                    problems.append(f"{name}: {submission!r} was never settled")
                if inbox.kind == "message" and not uses[submission]:
                    problems.append(f"{name}: {submission!r} is settled, and nothing came of it")
        for effect in world.effects:
            if effect.session_id == name:
                problems += _effect_problems(effect, started, ends, world)
        problems += [f"{name}: {problem}" for problem in world.unrecorded(name, entries)]
        done = {effect.operation for effect in world.effects if effect.session_id == name}
        for entry in entries:
            if isinstance(entry, OperationEnded) and entry.final and entry.status == "succeeded" and entry.attempt and entry.parts:
                part: Any = entry.parts[0]
                if getattr(part, "name", "") in ("charge", "pay", "ask", "alone") and entry.operation not in done:
                    problems.append(f"{name}: {entry.operation} is told as done, and nobody did it")
    lost = {submission for submission in submissions if not submission.startswith("interrupt")} - seen
    problems += [f"{submission!r} is lost" for submission in sorted(lost)]
    return problems


def _effect_problems(effect: Effect, started: set[tuple[str, int]], ends: dict[str, str], world: World) -> list[str]:
    where = f"{effect.session_id}: {effect.tool} of {effect.operation}#{effect.attempt}"
    problems = []
    if (effect.operation, effect.attempt) not in started:
        problems.append(f"{where} was done before it was known that it would be")
    if effect.effect == "external":
        if world.times(effect.key) > 1:
            problems.append(f"{where} was done {world.times(effect.key)} times")
        if ends.get(effect.operation) not in ("succeeded", "uncertain"):
            problems.append(f"{where} was done, and is told as {ends.get(effect.operation)}")
    return problems
