"""A provider that is away, or never answers: how long a turn waits for it, and what that holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    FunctionModel,
    InvalidAgent,
    Limits,
    ModelRequest,
    ModelSettings,
    OperationEnded,
    ProviderUnavailable,
    RateLimited,
)
from perdure.runtime.clock import SystemClock
from perdure.runtime.verify import verify
from perdure.store.memory import MemoryStore
from perdure.testing import VirtualClock, find_problems
from perdure.workers.local import LocalEngine
from perdure.workers.worker import Worker

MINUTE = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(auto=True)


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock.now)


def away_for(clock: VirtualClock, milliseconds: int, error: Callable[[], Exception] = lambda: ProviderUnavailable("down")) -> Any:
    """A model that can't be reached for so long, and the requests that it was sent."""
    asked: list[tuple[int, ModelRequest]] = []
    began = clock.now()

    def answer(request: ModelRequest) -> str:
        asked.append((clock.now() - began, request))
        if clock.now() - began < milliseconds:
            raise error()
        return "here again"

    return FunctionModel(answer), asked


async def never(request: ModelRequest) -> str:
    await asyncio.Event().wait()
    return "never"


async def sound(runtime: perdure.Runtime, session_id: str = "s") -> None:
    assert await find_problems(runtime.store, session_id) == []
    assert [problem async for problem in verify(runtime.store)] == []


async def receipts(runtime: perdure.Runtime, session_id: str = "s") -> list[OperationEnded]:
    return [item for item in await runtime.sessions.entries(session_id) if isinstance(item, OperationEnded)]


async def test_an_outage_of_minutes_fails_no_turn(clock: VirtualClock, store: MemoryStore) -> None:
    model, asked = away_for(clock, 5 * MINUTE)
    async with perdure.open(store, clock=clock) as runtime:
        result = await runtime.run(Agent("a", model=model), "go", session="s")
        assert result.output == "here again"
        assert 5 * MINUTE <= asked[-1][0] <= 6 * MINUTE
        await sound(runtime)


async def test_a_pause_that_the_provider_asks_for_is_made_as_long_as_it_says(clock: VirtualClock, store: MemoryStore) -> None:
    model, asked = away_for(clock, 4 * MINUTE, lambda: RateLimited("slow down", retry_after=100))
    async with perdure.open(store, clock=clock) as runtime:
        assert (await runtime.run(Agent("a", model=model), "go", session="s")).ok
    assert [at for at, _ in asked] == [0, 100_000, 200_000, 300_000]


class SetBack:
    """A clock that is behind another by so much, and can be set back further."""

    def __init__(self, right: VirtualClock, behind: int = 0) -> None:
        self._right = right
        self.behind = behind

    def now(self) -> int:
        return self._right.now() - self.behind

    async def sleep_until(self, at: int) -> None:
        await self._right.sleep_until(at + self.behind)


PAUSES = [0, 200, 600, 1_400, 3_000, 6_200]


async def test_pauses_are_as_long_on_a_machine_whose_clock_is_behind_the_stores(clock: VirtualClock, store: MemoryStore) -> None:
    model, asked = away_for(clock, 6_000)
    async with perdure.open(store, clock=SetBack(clock, 5_000)) as runtime:
        assert (await runtime.run(Agent("a", model=model), "go", session="s")).ok
        assert [at for at, _ in asked] == PAUSES
        await sound(runtime)


async def test_pauses_are_as_long_where_the_clock_is_set_back_meanwhile(clock: VirtualClock, store: MemoryStore) -> None:
    late = SetBack(clock)
    asked: list[int] = []
    began = clock.now()

    def answer(request: ModelRequest) -> str:
        asked.append(clock.now() - began)
        late.behind += 60 * MINUTE
        if len(asked) < len(PAUSES):
            raise ProviderUnavailable("down")
        return "here again"

    async with perdure.open(store, clock=late) as runtime:
        assert (await runtime.run(Agent("a", model=FunctionModel(answer)), "go", session="s")).ok
        assert asked == PAUSES
        await sound(runtime)


async def test_while_a_provider_is_away_the_session_is_held_by_nobody_and_whoever_comes_first_goes_on(
    clock: VirtualClock, store: MemoryStore
) -> None:
    clock.auto = False
    model, asked = away_for(clock, MINUTE)
    agent = Agent("a", model=model)
    async with perdure.open(store, clock=clock) as runtime:
        running = asyncio.create_task(runtime.run(agent, "go", session="s", submission="m"))
        while len(asked) < 6:
            while not (row := (await store.load("s"))) or row.row.wake_at is None or row.row.wake_at <= clock.now():
                clock.advance(100)
                await asyncio.sleep(0)
            info = await runtime.sessions.info("s")
            assert (info.holder, info.status) == (None, "queued")
            clock.advance_to(row.row.wake_at)
            for _ in range(50):
                await asyncio.sleep(0)
        await sound(runtime)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    clock.auto = True
    async with perdure.open(store, clock=clock) as another:
        result = await another.run(agent, "go", session="s", submission="m")
        assert result.output == "here again"
        assert await another.sessions.entries("s", kinds=["recovered"]) == []
        await sound(another)


async def test_a_session_whose_provider_is_away_takes_no_place_of_a_worker(clock: VirtualClock, store: MemoryStore) -> None:
    clock.auto = False
    model, asked = away_for(clock, 3 * MINUTE)
    waits, works = Agent("waits", model=model), Agent("works", model=FunctionModel(lambda request: "done"))
    async with asyncio.timeout(60), perdure.open(store, clock=clock) as runtime:
        worker = Worker(runtime, [waits, works], LocalEngine(), concurrency=1, poll=0.01)
        running = asyncio.create_task(worker.run())
        await runtime.sessions.send("s", "go", submission="m", agent="waits")
        while len(asked) < 7:
            clock.advance(100)
            await asyncio.sleep(0.001)
        await runtime.sessions.send("t", "go", submission="m", agent="works")
        while (done := await runtime.sessions.result("t", "m")) is None:
            await asyncio.sleep(0.001)
        assert done.ok
        assert await runtime.sessions.result("s", "m") is None
        while (done := await runtime.sessions.result("s", "m")) is None:
            clock.advance(1000)
            await asyncio.sleep(0.001)
        assert done.output == "here again"
        worker.stop()
        await running


async def test_what_is_sent_while_a_provider_is_away_is_heard_at_once(clock: VirtualClock, store: MemoryStore) -> None:
    clock.auto = False
    model, asked = away_for(clock, MINUTE, lambda: RateLimited("slow down", retry_after=60))
    agent = Agent("a", model=model)
    async with perdure.open(store, clock=clock) as runtime, runtime.session("s", agent) as session:
        await session.send("go", submission="m1")
        while (head := await store.load("s")) is None or head.row.wake_at is None or head.row.wake_at <= clock.now():
            await asyncio.sleep(0)
        rests = head.row.wake_at
        await session.send("for later", submission="m2")
        await session.send("more of it", submission="m3", deliver="steer")
        for _ in range(200):
            await asyncio.sleep(0)
        head = await store.load("s")
        assert head is not None
        assert (head.row.holder, head.row.wake_at, len(asked)) == (None, rests, 1), "it rests again"
        await sound(runtime)
        clock.advance_to(rests)
        while len(asked) < 2:
            await asyncio.sleep(0)
        assert [message.text for message in asked[1][1].messages if message.role == "user"] == ["go", "more of it"]


async def test_an_interrupt_ends_a_turn_whose_provider_is_away(clock: VirtualClock, store: MemoryStore) -> None:
    clock.auto = False
    model, asked = away_for(clock, MINUTE, lambda: RateLimited("slow down", retry_after=60))
    async with perdure.open(store, clock=clock) as runtime:
        running = asyncio.create_task(runtime.run(Agent("a", model=model), "go", session="s"))
        while (head := await store.load("s")) is None or head.row.wake_at is None or head.row.wake_at <= clock.now():
            await asyncio.sleep(0)
        await runtime.sessions.interrupt("s")
        assert (await running).status == "aborted"
        await sound(runtime)
    assert len(asked) == 1


@pytest.mark.parametrize(("settings", "seconds", "attempts"), [(ModelSettings(), 600, 5), (ModelSettings(timeout=7.5, attempts=2), 7.5, 2)])
async def test_a_model_that_never_answers_is_cut_off_and_tried_again(
    clock: VirtualClock, store: MemoryStore, settings: ModelSettings, seconds: float, attempts: int
) -> None:
    async with perdure.open(store, clock=clock) as runtime:
        result = await runtime.run(Agent("a", model=FunctionModel(never), settings=settings), "go", session="s")
        assert result.failure is not None
        assert (result.status, result.failure.code) == ("failed", "timeout")
        assert result.failure.message == f"no answer within {seconds:g} s"
        ended = await receipts(runtime)
        assert [(item.status, item.usage) for item in ended] == [("failed", None)] * attempts
        assert result.usage.unknown_calls == attempts
        await sound(runtime)


@pytest.mark.parametrize("where", ["limits", "session_limits"])
async def test_a_limit_of_seconds_cuts_a_model_call_off_and_ends_the_turn_as_limited(
    clock: VirtualClock, store: MemoryStore, where: str
) -> None:
    began = clock.now()
    agent = Agent("a", model=FunctionModel(never), **{where: Limits(seconds=4)})  # type: ignore[arg-type]
    async with perdure.open(store, clock=clock) as runtime:
        result = await runtime.run(agent, "go", session="s")
        assert result.status == "limited"
        assert result.reason is not None
        assert "seconds" in result.reason
        assert clock.now() - began < 60_000
        assert result.usage.unknown_calls == 1
        ended, never_begun = await receipts(runtime)
        assert never_begun.attempt == 0
        assert (ended.status, ended.usage, ended.failure and ended.failure.code) == ("cancelled", None, "limited")
        await sound(runtime)
        # With more time it goes on.
        more = agent.replace(model=FunctionModel(lambda request: "done"), **{where: Limits(seconds=100)})
        assert (await runtime.resume(more, "s", limits=Limits(seconds=100))).output == "done"


async def test_a_model_that_does_not_let_go_is_left_behind_and_the_turn_goes_on(
    clock: VirtualClock, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.perform.LETTING_GO_SECONDS", 0.01)
    may_end = asyncio.Event()
    asked = 0

    async def clings(request: ModelRequest) -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            return "at last"
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    agent = Agent("a", model=FunctionModel(clings))
    async with asyncio.timeout(20), perdure.open(store, clock=clock) as runtime:
        assert (await runtime.run(agent, "go", session="s")).output == "at last"
        asked = 0
        assert (await runtime.run(agent, "go", session="t", limits=Limits(seconds=1))).status == "limited"
        may_end.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert [(item.status, item.failure and item.failure.code) for item in await receipts(runtime)] == [
            ("failed", "timeout"),
            ("succeeded", None),
        ]
        await sound(runtime)
        await sound(runtime, "t")


async def test_a_model_that_ends_in_time_is_not_cut_off_and_others_who_cancel_it_are_heard(clock: VirtualClock, store: MemoryStore) -> None:
    async def slow(request: ModelRequest) -> str:
        await clock.sleep_until(clock.now() + 3_999)
        return "just in time"

    async with perdure.open(store, clock=clock) as runtime:
        agent = Agent("a", model=FunctionModel(slow), limits=Limits(seconds=4))
        assert (await runtime.run(agent, "go", session="s")).output == "just in time"
    clock.auto = False
    async with perdure.open(store, clock=clock) as runtime:
        running = asyncio.create_task(runtime.run(Agent("a", model=FunctionModel(never)), "go", session="t"))
        while not await runtime.sessions.entries("t", kinds=["operation_started"]) if await store.load("t") else True:
            await asyncio.sleep(0)
        await runtime.sessions.interrupt("t")
        assert (await running).status == "aborted"


@pytest.mark.parametrize(
    "settings",
    [
        ModelSettings(timeout=0),
        ModelSettings(timeout=float("nan")),
        ModelSettings(attempts=0),
        ModelSettings(attempts=True),
        ModelSettings(attempts=2**60),
        ModelSettings(longest_wait=-1),
        ModelSettings(timeout="5"),  # type: ignore[arg-type]
    ],
)
def test_patience_that_nobody_can_have_is_refused(settings: ModelSettings) -> None:
    with pytest.raises(InvalidAgent, match=r"have (timeout|attempts|longest_wait)="):
        Agent("a", model=FunctionModel(never), settings=settings)


async def test_a_model_is_cut_off_by_the_machines_clock_too_and_by_no_alarm_that_was_called_off() -> None:
    wall, passed = 1_000_000.0, 0.0
    clock = SystemClock(wall=lambda: round(wall * 1e9), monotonic=lambda: round(passed * 1e9))
    rung: list[str] = []
    called_off = clock.alarm(clock.now() + 5, lambda: rung.append("called off"))
    clock.alarm(clock.now() + 10, lambda: rung.append("passed"))
    clock.alarm(clock.now() + 20, lambda: rung.append("set forward"))
    clock.alarm(clock.now() - 1, lambda: rung.append("before"))
    called_off.cancel()
    while rung != ["before"]:
        await asyncio.sleep(0)
    passed += 0.015
    while len(rung) < 2:
        await asyncio.sleep(0.001)
    wall += 1
    while len(rung) < 3:
        await asyncio.sleep(0.001)
    assert rung == ["before", "passed", "set forward"]
    async with perdure.open("memory://") as runtime:
        agent = Agent("a", model=FunctionModel(never), settings=ModelSettings(timeout=0.01, attempts=1))
        result = await runtime.run(agent, "go", session="s")
        assert (result.status, result.failure and result.failure.code) == ("failed", "timeout")
