"""What an agent that others call left undone is found by workers, whoever the worker was started for."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

import perdure
from perdure import Agent
from perdure.core import checkpoint as checkpoints
from perdure.runtime.verify import verify
from perdure.workers.local import LocalEngine
from perdure.workers.worker import Worker
from tests.postgres import server

from .dying import LEASE, boss, helper


async def killed(url: str, how: str) -> None:
    """A process began it, and was killed when the child had told its caller and was about to note that."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.integration.workers.dying", url, how, env={**os.environ})
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL


@pytest.mark.parametrize("how", ["waits", "behind"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_child_that_told_its_caller_and_died_before_noting_it_is_found_by_a_worker_of_the_caller(
    kind: str, how: str, tmp_path: Path
) -> None:
    here = server() if kind == "postgres" else None
    url = here.store(here.schema()) if here is not None else str(tmp_path / "a.db")
    await killed(url, how)
    async with perdure.open(url, lease=LEASE) as runtime:
        children = await runtime.sessions.list(children=True, agent="helper")
        assert len(children) == 1
        found = await runtime.store.load(children[0].session_id)
        assert found is not None
        assert checkpoints.decode(found.row.checkpoint).errands
    async with perdure.open(url, lease=LEASE) as runtime:
        worker = Worker(runtime, [boss(how)], LocalEngine(), poll=0.05)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(30), perdure.open(url, lease=LEASE) as watching:
            while {info.status for info in await watching.sessions.list(children=True)} != {"idle"}:
                await asyncio.sleep(0.02)
            known = {name for runner in await watching.store.runners() if runner.alive for name in runner.agents}
            assert known == {"boss", "helper"}
            left = await watching.store.load(children[0].session_id)
            assert left is not None
            assert not checkpoints.decode(left.row.checkpoint).errands
            history = await watching.sessions.history("s", limit=50)
            assert [problem async for problem in verify(watching.store)] == []
        worker.stop()
        await running
    # Told twice, heard once.
    assert sum("helped" in str(message.parts) for message in history) == 1
    if here is not None:
        here.clear()


async def test_a_worker_of_an_agent_that_others_call_does_not_take_up_its_callers(tmp_path: Path) -> None:
    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        await runtime.sessions.send("theirs", "go", submission="m", agent="boss")
        await runtime.sessions.send("ours", "go", submission="m", agent="helper")
        worker = Worker(runtime, [Agent("helper", model=helper.model)], LocalEngine(), poll=0.02)
        running = asyncio.create_task(worker.run())
        async with perdure.open(str(tmp_path / "a.db")) as watching, asyncio.timeout(30):
            while (await watching.sessions.info("ours")).status != "idle":
                await asyncio.sleep(0.01)
            assert (await watching.sessions.info("theirs")).status == "queued"
        worker.stop()
        await running
