"""Workers as their operator sees them."""

from __future__ import annotations

import re
import signal
import sys

import pytest

from perdure.cli import worker

from .conftest import Program

STUBBORN = '''
import asyncio, pathlib
from perdure import Agent, FunctionModel, Reply, ToolCall, tool

@tool(effect="external")
async def stay() -> str:
    """Stay."""
    (pathlib.Path(__file__).parent / "begun").touch()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

calm = Agent("stubborn", model=FunctionModel(lambda request: "calm"), tools=[stay])
agent = calm.replace(model=FunctionModel(lambda request: Reply(tool_calls=[ToolCall("stay", {})])))
'''


def test_a_worker_finishes_what_was_sent_and_drains_on_a_signal(perdure: Program) -> None:
    perdure("run", "agents_here:shop", "hello there", "--session", "s")
    worker = perdure.start("worker", "--agents", "agents_here:shop", "--listen", ":0", "--poll", "0.1")
    perdure.until(lambda: any(item["alive"] for item in perdure.json("workers")["workers"]))
    perdure("send", "s", "break another matter")
    perdure.until(lambda: perdure.json("why", "s")["status"] == "idle" and not perdure.json("why", "s")["queue"])
    assert "another matter" in perdure("show", "s")
    perdure("send", "s", "pay")
    [working] = perdure.until(lambda: [item for item in perdure.json("workers")["workers"] if item["sessions"]])
    assert (working["sessions"], working["agents"]) == (["s"], ["shop"])
    perdure.go()
    perdure.until(lambda: perdure.json("why", "s")["status"] == "idle")
    worker.send_signal(signal.SIGTERM)
    perdure.end(worker)
    assert "working for" in perdure.errors
    assert "WARNING perdure.runtime: the tool break_down raised OSError" in perdure.errors
    assert re.search(r"probes and metrics at http://(\[::\]|0\.0\.0\.0):\d+$", perdure.errors, re.MULTILINE)
    assert perdure.errors.rstrip().endswith("drained")


IDLE = '''
from perdure import Agent, Reply, ScriptedModel, ToolCall, ToolContext, tool

@tool(effect="transactional")
async def idle(ctx: ToolContext) -> str:
    """Have a transaction, and leave it alone."""
    return "did nothing"

agent = Agent("idle", model=ScriptedModel([Reply(tool_calls=[ToolCall("idle", {})]), "done"] * 2), tools=[idle])
'''


def test_who_writes_a_tool_that_never_used_its_transaction_is_told_once_by_a_command_and_by_a_worker(perdure: Program) -> None:
    told = "the transactional tool idle ended without its transaction"
    (perdure.directory / "leaving.py").write_text(IDLE)
    perdure("run", "leaving:agent", "go", "--session", "s")
    assert perdure.errors.count(told) == 1
    worker = perdure.start("worker", "--agents", "leaving:agent", "--poll", "0.1")
    perdure("send", "s", "again")
    perdure.until(lambda: perdure.json("why", "s")["status"] == "idle" and not perdure.json("why", "s")["queue"])
    worker.send_signal(signal.SIGTERM)
    perdure.end(worker)
    assert perdure.errors.count(told) == 1


def test_a_tool_that_goes_on_when_it_is_cancelled_keeps_no_worker_from_ending(perdure: Program) -> None:
    (perdure.directory / "stubborn.py").write_text(STUBBORN)
    perdure("run", "stubborn:calm", "hello", "--session", "s")
    worker = perdure.start("worker", "--agents", "stubborn:agent", "--poll", "0.1", "--grace", "0")
    perdure("send", "s", "go on for ever")
    perdure.until((perdure.directory / "begun").exists)
    worker.send_signal(signal.SIGTERM)
    perdure.end(worker)
    assert "drained" in perdure.errors
    assert "goes on though it was cancelled" in perdure.errors
    assert perdure.json("why", "s")["status"] == "queued"


def test_a_worker_answers_probes_without_the_package_that_metrics_need(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker._metrics() is not None
    monkeypatch.delitem(sys.modules, "perdure.integrations.metrics")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert worker._metrics() is None


def test_a_session_whose_agent_nobody_has_is_shown(perdure: Program) -> None:
    perdure("run", "agents_here:shop", "hello there", "--session", "s")
    perdure("send", "s", "another matter")
    found = perdure.json("workers")
    assert [(item["session_id"], item["agent"]) for item in found["waiting"]] == [("s", "shop")]
    assert "waits for the agent 'shop', which no worker has" in perdure("workers")


def test_a_registry_that_is_none_is_refused_before_anything_is_taken_up(perdure: Program) -> None:
    (perdure.directory / "broken.py").write_text("raise RuntimeError('no database')\n")
    perdure("worker", "--agents", "broken:registry", code=2)
    assert "no database" in perdure.errors
    perdure("worker", "--agents", "agents_here:pay", code=2)
    perdure("worker", "--agents", "agents_here:shop", "agents_here:shop", code=2)
    assert "two agents" in perdure.errors
    perdure("worker", "--agents", "agents_here:shop", "--listen", "here", code=2)
    assert not perdure.db.exists()
