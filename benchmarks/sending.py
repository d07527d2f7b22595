"""``send`` from a second process while the first commits back to back."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

import perdure

from .report import Figure
from .workload import TEXT, Workload, opened

__all__ = ["send_latency"]


async def _send(path: str, count: int) -> None:
    """The second process: its latencies in milliseconds, as JSON."""
    latencies = []
    async with perdure.open(path) as runtime:
        await runtime.sessions.send("other", TEXT)
        for _ in range(count):
            await asyncio.sleep(0.005)
            start = time.perf_counter()
            await runtime.sessions.send("other", TEXT)
            latencies.append((time.perf_counter() - start) * 1000)
    print(json.dumps(latencies))


async def send_latency(directory: Path, *, count: int) -> list[Figure]:
    """The first process takes steps of one session as fast as it can, until the second is done."""
    path = directory / "sending.db"
    async with opened(path) as (runtime, recorder):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.sending", str(path), str(count), stdout=asyncio.subprocess.PIPE
        )
        sent = asyncio.create_task(process.communicate())
        number = commits = 0
        start = time.perf_counter()
        while not sent.done():
            number += 1
            await Workload(steps=50, warm=1).run(runtime, recorder, ["one"], f"turn {number}")
            commits += len(recorder.take())
        rate = commits / (time.perf_counter() - start)
        output, _ = await sent
    latencies = sorted(json.loads(output))
    return [
        Figure(
            name="send from a second process, p90",
            value=latencies[len(latencies) * 9 // 10],
            unit="ms",
            low=latencies[0],
            high=latencies[-1],
            ours=f"p50 {statistics.median(latencies):.1f} ms",
            floor=f"beside {rate:.0f} commits/s",
            limit=50,
        )
    ]


if __name__ == "__main__":
    asyncio.run(_send(sys.argv[1], int(sys.argv[2])))
