"""This process as a runner: one lease, renewed by one heartbeat."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence

from ..core.errors import StoreError
from ..store.base import Refusal, Runner, Store
from .clock import Clock

__all__ = ["Heartbeat"]

_log = logging.getLogger("perdure.runtime")


class Heartbeat:
    """Registers the process when it first wants to hold a session, and renews its lease three times as often as it would run out.

    A beat that fails is tried again at the next one: fences, not leases, protect the data. ``after`` is called behind every one that
    succeeds. ``expires`` is when the lease ends (ms), ``None`` without one.
    """

    def __init__(self, store: Store, clock: Clock, lease_ms: int, after: Callable[[], Awaitable[None]]) -> None:
        self.runner_id = uuid.uuid4().hex
        self._store = store
        self._clock = clock
        self._lease_ms = lease_ms
        self._after = after
        self.expires: int | None = None
        self._agents: set[str] = set()
        self._refused: tuple[Refusal, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._registering = asyncio.Lock()

    async def register(self, *agents: str) -> None:
        """Make sure that the process has a lease, and that it names these agents. Raises a `StoreError`."""
        async with self._registering:
            if self._task is not None and self._agents.issuperset(agents):
                return
            self._agents.update(agents)
            await self._beat()
            if self._task is None:
                self._task = asyncio.create_task(self._beat_on(), name="perdure heartbeat")

    async def refuse(self, refused: Sequence[Refusal]) -> None:
        """Say with the lease, from now on, what can't go on in this process. Raises a `StoreError`."""
        async with self._registering:
            if (before := self._refused) != (after := tuple(refused)):
                self._refused = after
                try:
                    await self._beat()
                except BaseException:
                    self._refused = before
                    raise

    async def _beat(self) -> None:
        runner = Runner(
            id=self.runner_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            started=self._clock.now(),
            expires=0,
            agents=tuple(sorted(self._agents)),
            refused=self._refused,
        )
        self.expires = await self._store.heartbeat(runner, self._lease_ms)

    async def _beat_on(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now() + self._lease_ms // 3)
            try:
                await self._beat()
                await self._after()
            except StoreError as error:
                _log.warning("the lease could not be renewed: %s", error)

    async def retire(self) -> None:
        """Give the lease back. What the process still holds becomes free."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self.expires = None
            try:
                await self._store.retire(self.runner_id)
            except StoreError as error:
                _log.warning("the lease could not be given back, and will run out: %s", error)
