"""Workers finish what others sent, whatever becomes of the hints, each session by one of them."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply, ToolCall, ToolContext, UsageError, tool
from perdure.runtime.verify import verify
from perdure.store.conformance.kit import submission
from perdure.workers.engine import Look
from perdure.workers.local import LocalEngine
from perdure.workers.worker import LOOKS_APART, Worker

from ..interactive.acting import eventually

STEPS = 3


class Shop:
    """An agent that pays a few times, and how often each payment was made."""

    def __init__(self, name: str = "shop") -> None:
        self.paid: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()

        @tool(effect="external")
        async def pay(ctx: ToolContext, number: int) -> str:
            """Pay."""
            self.paid[ctx.idempotency_key] += 1
            await self.gate.wait()
            return f"paid {number}"

        def answer(request: ModelRequest) -> Reply:
            done = sum(message.role == "tool" for message in request.messages)
            return Reply(tool_calls=[ToolCall("pay", {"number": done})]) if done < STEPS else Reply("done")

        self.agent = Agent(name, model=FunctionModel(answer), tools=[pay])


class Forgetful(LocalEngine):
    """Loses every hint."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        self.lost += len(session_ids)


class Broken(LocalEngine):
    """Takes no hint, and does no work."""

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        raise ConnectionError("the queue is gone")

    async def work(self, look: Look, *, concurrency: int) -> None:
        raise ConnectionError("the queue is gone")


class Stuck(LocalEngine):
    """Takes a hint, and doesn't come back."""

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        await asyncio.Event().wait()


class Stammering(LocalEngine):
    """Says everything to two workers at once, several times."""

    def __init__(self, *others: LocalEngine) -> None:
        super().__init__()
        self.others = others

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        for _ in range(3):
            for engine in (super(), *self.others):
                await engine.hint(session_ids, urgent=urgent)
                await asyncio.sleep(0)


@asynccontextmanager
async def working(place: Path, agent: Agent, engine: LocalEngine | None = None, *, concurrency: int = 4) -> AsyncIterator[Worker]:
    """A worker in a runtime of its own."""
    async with perdure.open(str(place)) as runtime:
        worker = Worker(runtime, [agent], engine or LocalEngine(), concurrency=concurrency, poll=0.02)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(running, 30)


async def finished(place: Path, count: int) -> None:
    """Every session that was sent something is done, and nothing is wrong with what is stored."""
    async with perdure.open(str(place)) as runtime:
        while True:
            infos = await runtime.sessions.list(limit=200)
            if len(infos) == count and all(info.status == "idle" for info in infos):
                break
            await asyncio.sleep(0.01)
        assert [problem async for problem in verify(runtime.store)] == []
        for info in infos:
            result = await runtime.sessions.result(info.session_id, "m")
            assert result is not None
            assert result.output == "done"


async def send(place: Path, names: Sequence[str], agent: str = "shop") -> None:
    """From a process without any agent's code."""
    async with perdure.open(str(place)) as runtime:
        for name in names:
            await runtime.sessions.send(name, "please", submission="m", agent=agent)


NAMES = [f"s{index}" for index in range(8)]


@pytest.mark.spec("S0-274")
async def test_what_a_host_without_agents_sent_is_finished_by_a_worker(tmp_path: Path) -> None:
    shop = Shop()
    async with working(tmp_path / "a.db", shop.agent):
        await send(tmp_path / "a.db", NAMES)
        await asyncio.wait_for(finished(tmp_path / "a.db", len(NAMES)), 30)
    assert len(shop.paid) == STEPS * len(NAMES)
    assert set(shop.paid.values()) == {1}


async def test_lost_hints_cost_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, engine = Shop(), Forgetful()
    await send(tmp_path / "a.db", NAMES)
    monkeypatch.setattr("perdure.workers.worker.OVERDUE_MS", 50)
    async with working(tmp_path / "a.db", shop.agent, engine):
        await asyncio.wait_for(finished(tmp_path / "a.db", len(NAMES)), 30)
    assert engine.lost >= len(NAMES)
    assert set(shop.paid.values()) == {1}


async def test_a_worker_does_not_look_into_the_store_at_every_commit(tmp_path: Path) -> None:
    shop, looks = Shop(), 0
    async with working(tmp_path / "a.db", shop.agent) as worker:
        store = worker._runtime.store
        runnable = store.runnable

        async def counted(**options: Any) -> list[str]:
            nonlocal looks
            looks += 1
            return await runnable(**options)

        store.runnable = counted  # type: ignore[method-assign]
        began = time.monotonic()
        # Another agent's sessions: each is a change, and none is work.
        for number in range(200):
            await store.send(submission(f"theirs {number}"))
        took = time.monotonic() - began
    assert looks <= took / LOOKS_APART + 2


@pytest.mark.parametrize("engine", [Broken, Stuck])
async def test_a_worker_whose_engine_is_gone_looks_at_what_it_finds_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: type[LocalEngine]
) -> None:
    shop = Shop()
    await send(tmp_path / "a.db", NAMES)
    monkeypatch.setattr("perdure.workers.worker.OVERDUE_MS", 50)
    async with working(tmp_path / "a.db", shop.agent, engine()):
        await asyncio.wait_for(finished(tmp_path / "a.db", len(NAMES)), 30)
    assert set(shop.paid.values()) == {1}


def left_by_a_killer(place: Path) -> None:
    """Every session was taken over twice from a holder that died, without progress."""
    with sqlite3.connect(place) as file:
        file.execute("UPDATE sessions SET holder = 'gone', claims = 2, fence = 2")
    file.close()


async def test_a_suspect_that_gets_on_holds_up_no_other_however_long_its_turn_takes(tmp_path: Path) -> None:
    shop = Shop()
    await send(tmp_path / "a.db", NAMES[:3])
    left_by_a_killer(tmp_path / "a.db")
    shop.gate.clear()
    async with working(tmp_path / "a.db", shop.agent), asyncio.timeout(30):
        await eventually(lambda: len(shop.paid) == 3)
        shop.gate.set()
        await finished(tmp_path / "a.db", 3)
    assert set(shop.paid.values()) == {1}


class Silent:
    """An agent whose model answers when it is let, and how many it was asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()

        async def answer(request: ModelRequest) -> Reply:
            self.asked += 1
            await self.gate.wait()
            return Reply("done")

        self.agent = Agent("shop", model=FunctionModel(answer))


class Dropping(LocalEngine):
    """Loses hints of one session."""

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        await super().hint([name for name in session_ids if name != "late"], urgent=urgent)


async def test_suspects_that_are_held_up_take_no_place_from_a_session_whose_hint_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, engine = Silent(), Dropping()
    monkeypatch.setattr("perdure.workers.worker.OVERDUE_MS", 50)
    await send(tmp_path / "a.db", NAMES[:5])
    left_by_a_killer(tmp_path / "a.db")
    async with working(tmp_path / "a.db", silent.agent, engine) as worker, asyncio.timeout(30):
        await eventually(lambda: silent.asked == 1 and len(worker._held_up) == 4)
        loads, load = 0, worker._runtime.store.load

        async def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal loads
            loads += 1
            return await load(*arguments, **options)

        await send(tmp_path / "a.db", ["late"])
        await eventually(lambda: silent.asked == 2)
        # Nor is each of them read at each look.
        monkeypatch.setattr(worker._runtime.store, "load", counted)
        looks = worker._runtime.store.next_wake
        seen = 0

        async def looked(**options: Any) -> Any:
            nonlocal seen
            seen += 1
            return await looks(**options)

        monkeypatch.setattr(worker._runtime.store, "next_wake", looked)
        await eventually(lambda: seen == 6)
        assert loads <= seen + 1
        silent.gate.set()
        await finished(tmp_path / "a.db", 6)


class Hanging(LocalEngine):
    """Takes its time for the first hint."""

    def __init__(self) -> None:
        super().__init__()
        self.hinted: list[list[str]] = []
        self.gate = asyncio.Event()

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        self.hinted.append([*session_ids])
        await self.gate.wait()


async def test_hints_that_a_hanging_engine_kept_waiting_are_not_given_for_what_was_done_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, engine = Shop(), Hanging()
    monkeypatch.setattr("perdure.workers.worker.OVERDUE_MS", 50)
    await send(tmp_path / "a.db", NAMES[:1])
    async with working(tmp_path / "a.db", shop.agent, engine), asyncio.timeout(30):
        await eventually(lambda: engine.hinted)
        await send(tmp_path / "a.db", NAMES[1:])
        await finished(tmp_path / "a.db", len(NAMES))
        shop.gate.clear()
        await send(tmp_path / "a.db", ["new"])
        await eventually(lambda: len(shop.paid) == STEPS * len(NAMES) + 1)
        engine.gate.set()
        shop.gate.set()
        await finished(tmp_path / "a.db", len(NAMES) + 1)
        await send(tmp_path / "a.db", ["last"])
        await eventually(lambda: ["last"] in engine.hinted)
    assert engine.hinted == [NAMES[:1], ["last"]]


@pytest.mark.spec("S0-277", "S0-279")
async def test_doubled_hints_to_two_workers_run_everything_once(tmp_path: Path) -> None:
    shop, second = Shop(), LocalEngine()
    async with working(tmp_path / "a.db", shop.agent, Stammering(second)), working(tmp_path / "a.db", shop.agent, second):
        await send(tmp_path / "a.db", NAMES)
        await asyncio.wait_for(finished(tmp_path / "a.db", len(NAMES)), 30)
    assert len(shop.paid) == STEPS * len(NAMES)
    assert set(shop.paid.values()) == {1}


async def test_a_stopped_worker_lets_what_runs_end_and_takes_up_nothing_more(tmp_path: Path) -> None:
    shop = Shop()
    shop.gate.clear()
    await send(tmp_path / "a.db", NAMES)
    async with working(tmp_path / "a.db", shop.agent, concurrency=2) as worker:
        await eventually(lambda: len(shop.paid) == 2)
        worker.stop()
        shop.gate.set()
    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        infos = {info.session_id: info for info in await runtime.sessions.list()}
        assert all(info.holder is None for info in infos.values())
        begun = [info for info in infos.values() if info.version > 1]
        assert len(begun) == 2
        uncertain = [item for info in begun for item in await runtime.sessions.uncertain(info.session_id)]
    assert uncertain == [], "what ran had time to end"
    async with working(tmp_path / "a.db", shop.agent):
        await asyncio.wait_for(finished(tmp_path / "a.db", len(NAMES)), 30)
    assert set(shop.paid.values()) == {1}


async def test_sessions_of_other_agents_are_left_alone(tmp_path: Path) -> None:
    shop = Shop()
    await send(tmp_path / "a.db", ["theirs"], agent="another")
    async with working(tmp_path / "a.db", shop.agent):
        await send(tmp_path / "a.db", ["ours"])
        async with perdure.open(str(tmp_path / "a.db")) as runtime:
            while (await runtime.sessions.info("ours")).status != "idle":
                await asyncio.sleep(0.01)
            assert (await runtime.sessions.info("theirs")).status == "queued"
            agents = {name for runner in await runtime.store.runners() if runner.alive for name in runner.agents}
    assert agents == {"shop"}


async def test_a_worker_needs_agents_of_different_names(tmp_path: Path) -> None:
    async with perdure.open("memory://") as runtime:
        for agents, why in (([], "nothing to do"), ([Shop().agent, Shop().agent], "two agents")):
            with pytest.raises(UsageError, match=why):
                Worker(runtime, agents, LocalEngine())
        wrong: list[dict[str, Any]] = [{"concurrency": 0}, {"concurrency": 1.5}, {"poll": 0}, {"poll": math.nan}, {"poll": "1"}]
        for options in wrong:
            with pytest.raises(UsageError, match="concurrency"):
                Worker(runtime, [Shop().agent], LocalEngine(), **options)


class Noting(LocalEngine):
    """Notes what it was given, in what order, and how."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[str, bool]] = []

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        self.given += [(name, urgent) for name in session_ids]
        await super().hint(session_ids, urgent=urgent)


async def test_what_a_dead_worker_left_is_next_however_many_others_wait_since_before(tmp_path: Path) -> None:
    order: list[str] = []
    gate = asyncio.Event()

    async def answer(request: ModelRequest) -> Reply:
        order.append(request.messages[0].text)
        await gate.wait()
        return Reply("done")

    agent, engine, file = Agent("shop", model=FunctionModel(answer)), Noting(), tmp_path / "a.db"
    async with perdure.open(file) as runtime:
        for name in ("busy", "waits 1", "waits 2", "waits 3", "left"):
            await runtime.sessions.send(name, name, submission="m", agent="shop")
    held = "UPDATE sessions SET holder = 'r', claims = 1, fence = 1 WHERE session_id = 'left'"
    lives = "INSERT INTO runners VALUES ('r', 'h', 1, 1, 1 << 52, '[]', '[]')"
    behind_its_back(file, held, lives)
    async with working(file, agent, engine, concurrency=1), asyncio.timeout(30):
        await eventually(lambda: len(engine.given) == 4 and len(order) == 1)
        behind_its_back(file, "DELETE FROM runners WHERE id = 'r'")
        await eventually(lambda: ("left", True) in engine.given)
        gate.set()
        await finished(file, 5)
    assert order[1] == "left"
    assert [urgent for name, urgent in engine.given if name != "left"] == [False] * 4


def behind_its_back(file: Path, *statements: str) -> None:
    """In a process of its own: a second SQLite library in this one would drop our locks."""
    program = "import sqlite3, sys\nwith sqlite3.connect(sys.argv[1]) as file:\n    for said in sys.argv[2:]: file.execute(said)"
    subprocess.run([sys.executable, "-c", program, str(file), *statements], check=True)


class Losing(LocalEngine):
    """Takes its cancellation for a failure of what it was just waiting for."""

    async def work(self, look: Look, *, concurrency: int) -> None:
        try:
            await super().work(look, concurrency=concurrency)
        except asyncio.CancelledError:
            raise ConnectionError("the connection was closed") from None


async def test_a_worker_ends_even_if_its_engine_loses_the_cancellation(tmp_path: Path) -> None:
    shop = Shop()
    async with asyncio.timeout(10):
        await send(tmp_path / "a.db", NAMES[:1])
        async with working(tmp_path / "a.db", shop.agent, Losing()):
            await finished(tmp_path / "a.db", 1)
