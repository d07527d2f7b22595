"""Gauges say how the sessions of a store are: what waits, what nobody looks at, what is stuck, and what nobody knows."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply, ToolCall, tool
from perdure.integrations.metrics import Metrics
from perdure.integrations.probes import Probes
from perdure.runtime.stores import store_at
from perdure.store.base import Committed
from perdure.store.conformance.kit import catalogue, step
from perdure.store.postgres.sql import sql_for
from perdure.store.sqlite import SQLiteStore
from perdure.testing.faults import Fault, FaultStore
from tests.postgres import Server, server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "a.db")
        return
    here: Server = server()
    yield here.store(here.schema())
    here.clear()


async def scraped(address: str) -> dict[str, float]:
    """What Prometheus reads: gauges by name, and sessions by status."""

    def ask() -> str:
        with urllib.request.urlopen(address + "/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    found = {}
    for family in text_string_to_metric_families(await asyncio.to_thread(ask)):
        if family.type == "gauge":
            found |= {"/".join([sample.name, *sample.labels.values()]): sample.value for sample in family.samples}
    return found


@tool(effect="external")
async def pay() -> str:
    """Pay."""
    return "paid"


def answer(request: ModelRequest) -> Reply:
    said = request.messages[0].text
    done = request.messages[-1].role == "tool"
    return Reply(tool_calls=[ToolCall("pay", {})]) if said == "pay" and not done else Reply("done")


CAREFUL = Agent("careful", model=FunctionModel(answer), tools=[pay], approve=["pay"])


async def test_gauges_have_the_values_that_a_real_store_has(url: str) -> None:
    metrics = Metrics()
    async with perdure.open(url, observers=[metrics]) as runtime, Probes(runtime, metrics=metrics) as probes:
        empty = await scraped(probes.address)
        assert empty["perdure_store_up"] == 1
        assert math.isnan(empty["perdure_lease_seconds"])
        said = {name: value for name, value in empty.items() if not name.endswith("_created") and not math.isnan(value)}
        assert {name for name, value in said.items() if value} == {"perdure_store_up"}

        await runtime.run(CAREFUL, "hi", session="idle", submission="m")
        await runtime.sessions.send("asking", "pay", submission="m", agent="careful")
        await runtime.recover([CAREFUL])
        for name in ("one", "two"):
            await runtime.sessions.send(name, "pay", submission="m", agent="nobody")
        head = await runtime.store.load("two")
        assert head is not None
        parks = step(head.row.no, head.row.version, entries=(), checkpoint=None, catalogue=catalogue("stuck", agent="nobody"))
        assert isinstance(await runtime.store.commit(parks), Committed)
        found = await scraped(probes.address)
        assert {name.partition("/")[2]: value for name, value in found.items() if name.startswith("perdure_sessions/")} == {
            "halted": 0, "queued": 1, "running": 0, "stuck": 1, "waiting": 1,
        }  # fmt: skip
        assert (found["perdure_sessions_due"], found["perdure_sessions_left"], found["perdure_sessions_held"]) == (1, 0, 0)
        assert found["perdure_inbox_pending"] == 2
        assert 0 <= found["perdure_sessions_due_seconds"] < 60
        assert 0 <= found["perdure_inbox_pending_seconds"] < 60
        assert 0 < found["perdure_lease_seconds"] <= 10
        assert found["perdure_effects_uncertain"] == 0

        # Time goes on, and they get older.
        due, pending = found["perdure_sessions_due_seconds"], found["perdure_inbox_pending_seconds"]
        deadline = time.monotonic() + 30
        while (found := await scraped(probes.address))["perdure_sessions_due_seconds"] <= due + 0.05:
            assert time.monotonic() < deadline
        assert found["perdure_inbox_pending_seconds"] > pending


async def test_a_session_is_held_while_it_runs_here_and_an_effect_is_uncertain_until_somebody_settles_it(url: str) -> None:
    dying = FaultStore(store_at(url), keep=False)

    @tool(effect="external", name="pay")
    async def fatal() -> str:
        """Pay."""
        dying.kill()
        return "paid"

    agent = Agent("a", model=FunctionModel(answer), tools=[fatal])
    with pytest.raises(perdure.PerdureError):
        async with perdure.open(dying, lease=1.0) as runtime:
            await runtime.run(agent, "pay", session="s", submission="m")
    going, hold = asyncio.Event(), asyncio.Event()

    @tool(effect="pure", name="pay")
    async def slow() -> str:
        """Pay."""
        going.set()
        await hold.wait()
        return "paid"

    metrics = Metrics()
    async with perdure.open(url, observers=[metrics]) as runtime, Probes(runtime, metrics=metrics) as probes:
        async with asyncio.timeout(30):
            while (await runtime.sessions.info("s")).status != "idle":
                await runtime.recover([agent])
        assert (await scraped(probes.address))["perdure_effects_uncertain"] == 1
        (unknown,) = await runtime.sessions.uncertain("s")
        await runtime.sessions.report_attempt("s", unknown.operation, unknown.attempt, "paid", False, "ann")
        assert (await scraped(probes.address))["perdure_effects_uncertain"] == 0

        running = asyncio.create_task(
            runtime.run(Agent("a", model=FunctionModel(answer), tools=[slow]), "pay", session="t", submission="m")
        )
        await asyncio.wait_for(going.wait(), 10)
        found = await scraped(probes.address)
        assert (found["perdure_sessions_held"], found["perdure_sessions/running"], found["perdure_sessions_left"]) == (1, 1, 0)
        hold.set()
        await running


async def test_a_store_that_does_not_answer_is_down_and_its_figures_are_no_numbers(tmp_path: Path) -> None:
    metrics = Metrics()
    store = FaultStore(SQLiteStore(tmp_path / "a.db"), [Fault(kind="figures", nth=2)])
    async with perdure.open(store, observers=[metrics]) as runtime, Probes(runtime, metrics=metrics) as probes:
        await runtime.sessions.send("s", "hi", submission="m", agent="a")
        assert (await scraped(probes.address))["perdure_sessions/queued"] == 1
        found = await scraped(probes.address)
        assert found["perdure_store_up"] == 0
        assert math.isnan(found["perdure_sessions/queued"])
        assert math.isnan(found["perdure_inbox_pending"])
        assert (await scraped(probes.address))["perdure_store_up"] == 1


def test_what_is_asked_of_a_file_reads_indexes_alone(tmp_path: Path) -> None:
    from perdure.store.sqlite.sql import QUERIES

    async def make() -> None:
        async with perdure.open(str(tmp_path / "a.db")) as runtime:
            await runtime.sessions.send("s", "hi", submission="m", agent="a")

    asyncio.run(make())
    with sqlite3.connect(tmp_path / "a.db") as connection:
        for name, values in (
            ("figures", {"now": 1, "limit": 5, "alive": "[]"}),
            ("figures_working", {"limit": 5}),
            ("figures_parked", {"status": "stuck", "limit": 5}),
        ):
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", values)]
            tables = [line for line in plan if " sessions" in line or " inbox" in line or " effects" in line]
            assert tables
            assert all("USING" in line and "INDEX" in line for line in tables), plan


def test_what_is_asked_of_a_database_reads_indexes_alone() -> None:
    here = server()
    schema = here.schema()

    async def make() -> None:
        async with perdure.open(here.store(schema)):
            pass

    asyncio.run(make())
    with psycopg.connect(here.url) as connection:
        connection.execute("SET enable_seqscan = off")
        for name, types, values in (("figures", "", "NULL, 5"), ("figures_working", "", "5"), ("figures_parked", "", "'{stuck}', 5")):
            statement = sql_for(schema).queries[name].decode().rstrip(";")
            connection.execute(f"PREPARE {name}{types} AS {statement}".encode())
            (plan,) = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE {name} ({values})".encode()).fetchone() or (None,)
            scans = [node for node in _nodes(plan[0]["Plan"]) if node.get("Relation Name") in ("sessions", "inbox", "effects")]
            assert len(scans) >= 1
            assert all(node["Node Type"] in ("Index Scan", "Index Only Scan", "Bitmap Heap Scan") for node in scans), scans
    here.clear()


def _nodes(plan: dict[str, object]) -> Iterator[dict[str, object]]:
    yield plan
    for child in plan.get("Plans", []):  # type: ignore[attr-defined]
        yield from _nodes(child)
