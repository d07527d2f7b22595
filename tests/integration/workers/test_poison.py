"""A session that kills whoever works on it is set aside after five claims, and those beside it come to their end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure
from perdure import Runtime, SessionStuck
from perdure.runtime.driver import STUCK_CLAIMS
from perdure.runtime.verify import verify
from tests.postgres import server

from .poisoned import AGENT, LEASE

HEALTHY = ("one", "two", "three")


@asynccontextmanager
async def supervised(url: str, died: list[int]) -> AsyncIterator[None]:
    """A worker process that is started again whenever it dies, as an operator's service manager would."""
    running: asyncio.subprocess.Process | None = None

    async def supervise() -> None:
        nonlocal running
        while True:
            running = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.integration.workers.poisoned", url, env={**os.environ}
            )
            died.append(await running.wait())

    task = asyncio.create_task(supervise())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if running is not None and running.returncode is None:
            running.kill()
            await running.wait()


async def settled(runtime: Runtime) -> dict[str, str]:
    """What each session is, once none is queued or runs."""
    while True:
        found = {info.session_id: info.status for info in await runtime.sessions.list()}
        if not {"queued", "running"} & {*found.values()}:
            return found
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_session_that_kills_its_worker_is_parked_after_five_claims_and_no_other_is(kind: str, tmp_path: Path) -> None:
    here = server() if kind == "postgres" else None
    url = here.store(here.lent(tmp_path)) if here is not None else str(tmp_path / "a.db")
    died: list[int] = []
    async with perdure.open(url, lease=LEASE) as runtime, asyncio.timeout(240):
        for name in HEALTHY:
            await runtime.sessions.send(name, "knit", submission="m", agent="shop")
        await runtime.sessions.send("poison", "burn", submission="m", agent="shop")
        async with supervised(url, died):
            found = await settled(runtime)
        assert found == {**dict.fromkeys(HEALTHY, "idle"), "poison": "stuck"}
        assert died == [1] * STUCK_CLAIMS
        for name in HEALTHY:
            result = await runtime.sessions.result(name, "m")
            assert result is not None
            assert result.output == "done"
        # It is seen, wakes nobody, and goes on when a person says so.
        assert await runtime.store.runnable(limit=9) == []
        with pytest.raises(SessionStuck, match="died 5 times"):
            await runtime.recover([AGENT], session="poison")
        os.environ["HARMLESS"] = "yes"
        try:
            assert await runtime.recover([AGENT], session="poison", force=True) == ["poison"]
        finally:
            del os.environ["HARMLESS"]
        assert (await runtime.sessions.info("poison")).status == "idle"
        row = await runtime.store.load("poison")
        assert row is not None
        assert row.row.claims == 0
        assert [problem async for problem in verify(runtime.store)] == []
