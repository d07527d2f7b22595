"""What an orchestrator is told of a process, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, FunctionModel, UsageError, tool
from perdure.integrations.metrics import Metrics
from perdure.integrations.probes import Probes
from perdure.runtime.health import check_health
from perdure.store.sqlite import SQLiteStore
from perdure.testing.faults import Call, Fault, FaultStore

AGENT = Agent("a", model=FunctionModel(lambda request: "ok"))


async def get(address: str, path: str) -> tuple[int, Any]:
    def ask() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(address + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


async def test_a_process_says_that_it_lives_that_it_is_ready_and_its_figures(tmp_path: Path) -> None:
    metrics = Metrics()
    async with perdure.open(str(tmp_path / "a.db"), observers=[metrics]) as runtime, Probes(runtime, metrics=metrics) as probes:
        await runtime.run(AGENT, "hi", session="s", submission="m")
        assert (await get(probes.address, "/healthz"))[0] == 200
        status, body = await get(probes.address, "/readyz")
        assert status == 200
        health = json.loads(body)
        assert health["ready"]
        assert health["lease_ms"] > 0
        assert health["store_ms"] > 0
        status, body = await get(probes.address, "/metrics")
        assert status == 200
        assert 'perdure_turns_total{agent="a",outcome="completed"} 1.0' in body
        assert (await get(probes.address, "/"))[0] == 404


async def test_figures_are_served_after_the_runtime_is_closed(tmp_path: Path) -> None:
    metrics = Metrics()
    async with perdure.open(str(tmp_path / "a.db"), observers=[metrics]) as runtime, Probes(runtime, metrics=metrics) as probes:
        await runtime.run(AGENT, "hi", session="s", submission="m")
        assert "perdure_store_up 1.0" in (await get(probes.address, "/metrics"))[1]
        await runtime.close()
        status, body = await get(probes.address, "/metrics")
        assert status == 200
        assert "perdure_store_up 0.0" in body
        assert 'perdure_turns_total{agent="a",outcome="completed"} 1.0' in body


async def test_without_metrics_none_are_served() -> None:
    async with perdure.open("memory://") as runtime, Probes(runtime) as probes:
        assert (await get(probes.address, "/metrics"))[0] == 404


@pytest.mark.parametrize(("host", "asked"), [("", ("127.0.0.1", "127.0.0.2")), ("127.0.0.1", ("127.0.0.1",)), ("0.0.0.0", ("127.0.0.2",))])
async def test_probes_are_reached_on_every_interface_where_no_host_is_named(host: str, asked: tuple[str, ...]) -> None:
    async with perdure.open("memory://") as runtime, Probes(runtime, host=host) as probes:
        port = probes.address.rsplit(":", 1)[1]
        for address in asked:
            assert (await get(f"http://{address}:{port}", "/healthz"))[0] == 200
        if host == "127.0.0.1":
            with pytest.raises(urllib.error.URLError):
                await get(f"http://127.0.0.2:{port}", "/healthz")


async def test_a_port_that_is_taken_is_a_mistake_of_who_named_it() -> None:
    async with perdure.open("memory://") as runtime, Probes(runtime) as probes:
        port = int(probes.address.rsplit(":", 1)[1])
        with pytest.raises(UsageError, match="in use"):
            async with Probes(runtime, port=port):
                pass


async def test_a_process_whose_store_fails_is_alive_and_not_ready(tmp_path: Path) -> None:
    store = FaultStore(SQLiteStore(tmp_path / "a.db"), [Fault(kind="runners", times=99)])
    async with perdure.open(store) as runtime, Probes(runtime) as probes:
        assert (await get(probes.address, "/healthz"))[0] == 200
        status, body = await get(probes.address, "/readyz")
    assert status == 503
    assert "the store doesn't answer" in json.loads(body)["problem"]


async def test_a_process_whose_store_hangs_is_alive_and_says_in_time_that_it_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.health.STORE_SECONDS", 0.05)
    go_on = asyncio.Event()

    async def hang(call: Call, when: str) -> None:
        if call.kind == "runners":
            await go_on.wait()

    async with perdure.open(FaultStore(SQLiteStore(tmp_path / "a.db"), gate=hang)) as runtime, Probes(runtime) as probes:
        assert await get(probes.address, "/healthz") == (200, '{"alive":true}')
        status, body = await get(probes.address, "/readyz")
        go_on.set()
    assert status == 503
    assert json.loads(body)["problem"] == "the store doesn't answer: not within 0.05 seconds"


async def test_a_full_process_is_not_ready_until_its_work_ends() -> None:
    go_on = asyncio.Event()
    begun = asyncio.Event()

    @tool(effect="pure")
    async def wait() -> str:
        """Wait."""
        begun.set()
        await go_on.wait()
        return "waited"

    def answer(request: Any) -> Any:
        return "ok" if request.messages[-1].role == "tool" else perdure.Reply(tool_calls=[perdure.ToolCall("wait", {})])

    async with perdure.open("memory://", capacity=1) as runtime:
        running = asyncio.ensure_future(
            runtime.run(Agent("a", model=FunctionModel(answer), tools=[wait]), "hi", session="s", submission="m")
        )
        await asyncio.wait_for(begun.wait(), 10)
        full = await check_health(runtime)
        go_on.set()
        await running
        free = await check_health(runtime)
    assert (full.ready, full.working, full.capacity) == (False, 1, 1)
    assert "capacity" in full.problem
    assert (free.ready, free.working) == (True, 0)
    assert (await check_health(runtime)).problem == "the runtime is closed"


async def test_what_is_answered_too_late_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.runtime.health.STORE_SECONDS", 3600)
    monkeypatch.setattr("perdure.integrations.probes.ANSWER_SECONDS", 0.2)
    left = asyncio.Event()

    async def hang(call: Call, when: str) -> None:
        if call.kind == "runners":
            try:
                await asyncio.Event().wait()
            finally:
                left.set()

    async with perdure.open(FaultStore(SQLiteStore(tmp_path / "a.db"), gate=hang)) as runtime, Probes(runtime) as probes:
        async with asyncio.timeout(20):
            # A probe that comes while the loop is busy with something else doesn't get as far as the store.
            while not left.is_set():
                assert (await get(probes.address, "/readyz"))[0] == 503


async def test_a_client_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.integrations.probes.ANSWER_SECONDS", 0.05)
    async with perdure.open("memory://") as runtime, Probes(runtime) as probes:
        host, port = probes.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


def test_a_process_whose_loop_is_closed_is_not_alive() -> None:
    probes = Probes(perdure.open("memory://"))

    async def begin() -> None:
        await probes.__aenter__()

    asyncio.run(begin())
    answer = asyncio.run(get(probes.address, "/healthz"))
    asyncio.run(probes.__aexit__(None, None, None))
    assert answer == (503, '{"problem":"the event loop does not answer"}')
