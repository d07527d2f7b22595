"""Whether this process can do its work."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from ..core.errors import StoreError

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["Health", "check_health"]

STORE_SECONDS = 2.0
"""How long the store may take to answer: less than whoever asks a probe waits."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a process is. ``ready``: it can take up sessions; if not, ``problem`` says why.

    ``store_ms`` is how long the store took to answer, None if it didn't. ``lease_ms`` is how long this process' lease still lasts, None
    before it worked on anything. ``working`` counts the sessions that it works on, of at most ``capacity``.
    """

    ready: bool
    problem: str = ""
    store_ms: float | None = None
    lease_ms: int | None = None
    working: int = 0
    capacity: int | None = None


async def check_health(runtime: Runtime) -> Health:
    """Ask the store, and look at the lease. Changes nothing, and raises nothing that the store does."""
    working = runtime.working
    if runtime.closed:
        return Health(ready=False, problem="the runtime is closed", working=working, capacity=runtime.capacity)
    began = time.perf_counter()
    try:
        async with asyncio.timeout(STORE_SECONDS):
            runners = await runtime.store.runners()
            now = await runtime.store.now()
    except (StoreError, TimeoutError) as error:
        why = str(error) or f"not within {STORE_SECONDS:g} seconds"
        return Health(ready=False, problem=f"the store doesn't answer: {why}", working=working, capacity=runtime.capacity)
    took = (time.perf_counter() - began) * 1000
    mine = next((runner.expires - now for runner in runners if runner.id == runtime.runner_id), None)
    problem = ""
    if mine is not None and mine <= 0:
        problem = "the lease ran out; other processes may take its sessions over"
    elif runtime.capacity is not None and working >= runtime.capacity:
        problem = "as many sessions are worked on as capacity allows"
    return Health(ready=not problem, problem=problem, store_ms=took, lease_ms=mine, working=working, capacity=runtime.capacity)
