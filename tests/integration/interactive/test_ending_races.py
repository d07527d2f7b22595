"""A message or a steer that commits while a turn ends is never lost, late or doubled, wherever between two operations it comes.

The process that runs the turn is stopped before and after each operation of its store, and there somebody sends: the same process or
another one. Whether the turn was over by then is read from the journal, so what has to happen is known exactly.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from perdure import Agent, FunctionModel, MessageAdded, ModelRequest, Reply, ToolCall, TurnEnded, TurnStarted, tool
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SQLiteStore
from perdure.testing import VirtualClock, find_problems
from perdure.testing.faults import Call, FaultStore
from tests.postgres import server

from .acting import Process, eventually

Deliver = Literal["turn", "queue", "steer"]

sending: ContextVar[bool] = ContextVar("sending", default=False)


@dataclass
class Sent:
    """A message, and what was true when it was sent: the turn that ran, if one did, and whether the first one had not begun."""

    submission: str
    deliver: Deliver
    running: int
    ended: int
    began: int


@dataclass
class Race:
    """One run. ``choose`` says at each point what is sent there."""

    choose: Callable[[int], list[Deliver]]
    origin: str
    points: int = 0
    on_their_way: int = 0
    sent: list[Sent] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


def chatter(asked: list[list[str]]) -> Agent:
    def answer(request: ModelRequest) -> Reply:
        asked.append([message.text for message in request.messages if message.role == "user"])
        return Reply(tool_calls=[ToolCall("look", {})]) if len(asked) == 1 else Reply("done")

    return Agent("helper", model=FunctionModel(answer), tools=[look])


def connector(kind: str, path: Path, clock: VirtualClock) -> Callable[[], Store]:
    if kind == "sqlite":
        return lambda: SQLiteStore(path, clock=clock.now, poll=0.005)
    if kind == "postgres":
        here = server()
        url = here.store(here.lent(path))
        return lambda: PostgresStore(url, clock=clock.now, poll=0.005)
    memory = MemoryStore(clock.now, store_id="race")
    return memory.peer


async def run(kind: str, path: Path, race: Race) -> list[Any]:
    """The whole race; the journal that it leaves, after everything that must hold of any was checked."""
    clock = VirtualClock()
    connect = connector(kind, path, clock)
    asked: list[list[str]] = []

    async def gate(call: Call, when: str) -> None:
        if sending.get() or not race.passed:
            if call.kind == "send" and when == "after":
                race.passed.append("sent")
            return
        race.points += 1
        race.passed.append(f"{when} {call.kind}")
        chosen = race.choose(race.points)
        race.on_their_way += len(chosen)
        for deliver in chosen:
            await send(deliver)
            race.on_their_way -= 1

    async def send(deliver: Deliver) -> None:
        entries = await other.sessions.entries("s")
        began = sum(isinstance(entry, TurnStarted) for entry in entries)
        ended = sum(isinstance(entry, TurnEnded) for entry in entries)
        running = max([entry.seq for entry in entries if isinstance(entry, TurnStarted)], default=0) if began > ended else 0
        sent = Sent(f"x-{len(race.sent)}", deliver, running, ended, began)
        race.sent.append(sent)
        token = sending.set(True)
        try:
            sender = process if race.origin == "here" else other
            await sender.sessions.send("s", f"say {sent.submission}", submission=sent.submission, deliver=deliver)
        finally:
            sending.reset(token)

    process = Process(FaultStore(connect(), gate=gate, clock=clock), clock=clock, grace=0)
    other = Process(FaultStore(connect(), clock=clock), clock=clock, grace=0)
    agent = chatter(asked)
    async with other, process, asyncio.timeout(20), process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")

        async def settled() -> bool:
            row = await other.store.load("s")
            assert row is not None
            rows = [await other.store.submission(row.row.no, name) for name in ("m-1", *(sent.submission for sent in race.sent))]
            return (
                not race.on_their_way and row.row.holder is None and all(item is not None and item.settled_seq is not None for item in rows)
            )

        await eventually(settled)
        race.choose = lambda point: []
        # One may have been on its way just then.
        await eventually(settled)
        entries = await other.sessions.entries("s")
        assert await find_problems(other.store, "s") == []
        texts = [message.text for message in await other.sessions.history("s") if message.role == "user"]
        assert sorted(texts) == sorted(["go", *(f"say {sent.submission}" for sent in race.sent)]), "one was lost or doubled"
        for sent in race.sent:
            result = await other.sessions.result("s", sent.submission)
            assert result is None or result.status == "completed"
    # What a model was asked last holds everything: nothing was only written down.
    assert sorted(asked[-1]) == sorted(texts)
    check(entries, race)
    return entries


def check(entries: list[Any], race: Race) -> None:
    """No message is late: each is where it has to be, given what was true when it became durable."""
    turn = 0
    where: dict[str, tuple[int, str]] = {}
    for entry in entries:
        if isinstance(entry, TurnStarted):
            assert not turn
            turn = entry.seq
        elif isinstance(entry, TurnEnded):
            turn = 0
        elif isinstance(entry, MessageAdded) and entry.role == "user":
            assert turn
            where[entry.submission] = (turn, entry.deliver)
    begun = [entry.submission for entry in entries if isinstance(entry, TurnStarted)]
    for sent in race.sent:
        at, deliver = where[sent.submission]
        if sent.deliver == "steer" and sent.running:
            assert (at, deliver) == (sent.running, "steer"), f"{sent} was late at {race.passed}"
        elif sent.deliver == "steer" and deliver == "queue":
            assert sent.submission in begun
        elif sent.deliver != "steer":
            assert (at, deliver) == (where[sent.submission][0], sent.deliver)
            assert sent.submission in begun
            assert at > sent.running
    own = [sent.submission for sent in race.sent if sent.submission in begun]
    assert [name for name in begun if name != "m-1"] == own, "they begin in another order than they came"
    assert begun[0] == "m-1"


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.spec("S2-031", "S2-034")
@pytest.mark.parametrize("origin", ["here", "elsewhere"])
@pytest.mark.parametrize("deliver", ["turn", "queue", "steer"])
async def test_at_whatever_point_it_comes_it_is_there_once_and_in_time(tmp_path: Path, kind: str, deliver: Deliver, origin: str) -> None:
    quiet = Race(choose=lambda point: [], origin=origin)
    await run(kind, tmp_path / "quiet.db", quiet)
    places: set[str] = set()
    joined = own = 0
    # A point is the n-th of its place: how many others lie between two commits depends on the machine.
    for place in sorted(set(quiet.passed[1:])):
        for occurrence in count(1):
            race = Race(choose=lambda point: [], origin=origin)

            def choose(point: int, race: Race = race, place: str = place, occurrence: int = occurrence) -> list[Deliver]:
                return [deliver] if race.passed[-1] == place and race.passed.count(place) == occurrence else []

            race.choose = choose
            entries = await run(kind, tmp_path / f"{place} {occurrence}.db", race)
            if not race.sent:
                break
            if race.sent[0].began:
                places.add(place)
            joined += any(isinstance(entry, MessageAdded) and entry.deliver == "steer" for entry in entries)
            own += any(isinstance(entry, TurnStarted) and entry.submission == "x-0" for entry in entries)
    assert {"before commit", "after commit"} <= places
    # Both happen, or the points would not lie around the end of the turn.
    assert (joined > 3, own > 0) == ((True, True) if deliver == "steer" else (False, True))


@pytest.mark.parametrize("origin", ["here", "elsewhere"])
@pytest.mark.parametrize("place", ["before commit", "after commit", "before inbox", "after inbox", "before load", "after load"])
async def test_at_the_places_where_it_can_be_missed_it_is_there_in_a_database_too(tmp_path: Path, place: str, origin: str) -> None:
    for deliver in ("turn", "steer"):
        for occurrence in (1, 2, 3):
            race = Race(choose=lambda point: [], origin=origin)

            def choose(point: int, race: Race = race, occurrence: int = occurrence, deliver: Any = deliver) -> list[Deliver]:
                return [deliver] if race.passed[-1] == place and race.passed.count(place) == occurrence else []

            race.choose = choose
            await run("postgres", tmp_path / f"{deliver} {occurrence}.db", race)


@pytest.mark.parametrize("origin", ["here", "elsewhere"])
@pytest.mark.parametrize("seeds", [range(10), range(10, 20), range(20, 30)], ids=["first", "second", "third"])
async def test_many_at_many_points_are_all_there_once_and_in_time(tmp_path: Path, kind: str, seeds: range, origin: str) -> None:
    for seed in seeds:
        numbers = random.Random(seed)
        race = Race(choose=lambda point: [], origin=origin)

        def choose(point: int, race: Race = race, numbers: random.Random = numbers) -> list[Deliver]:
            # Three at most: more in a row would end the turn without asking whether there are more.
            if len(race.sent) < 3 and numbers.random() < 0.2:
                return [numbers.choice(("turn", "queue", "steer"))]
            return []

        race.choose = choose
        await run(kind, tmp_path / f"{seed}.db", race)
