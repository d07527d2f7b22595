"""The PostgreSQL store keeps the promises of `perdure.store.base`, in one piece and in sixteen."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from perdure.store.base import Store
from perdure.store.conformance import ManualClock, StoreConformance
from perdure.store.postgres import PostgresStore
from tests.postgres import Server

PARTITIONED = Path(__file__).with_name("partitioned.sql")


class PostgresPlace:
    def __init__(self, server: Server, *, partitioned: bool = False) -> None:
        self.clock = ManualClock()
        schema = server.schema()
        self._url = server.store(schema)
        if partitioned:
            _elsewhere(self._make)
            server.execute(PARTITIONED.read_text().replace("perdure.", f"{schema}."))

    def connect(self) -> Store:
        return PostgresStore(self._url, clock=self.clock)

    async def _make(self) -> None:
        store = self.connect()
        await store.open()
        await store.close()


def _elsewhere(make: object) -> None:
    """Run it to its end in a loop of another thread: fixtures that are no coroutines stand outside of the test's."""
    thread = threading.Thread(target=lambda: asyncio.run(make()))  # type: ignore[operator]
    thread.start()
    thread.join()


class TestPostgres(StoreConformance):
    @pytest.fixture
    def place(self, postgres: Server) -> PostgresPlace:
        return PostgresPlace(postgres)


class TestPartitions(StoreConformance):
    @pytest.fixture
    def place(self, postgres: Server) -> PostgresPlace:
        return PostgresPlace(postgres, partitioned=True)
