"""The PostgreSQL store keeps the promises of `perdure.store.base`."""

from __future__ import annotations

import pytest

from perdure.store.base import Store
from perdure.store.conformance import ManualClock, StoreConformance
from perdure.store.postgres import PostgresStore
from tests.postgres import Server


class PostgresPlace:
    def __init__(self, server: Server) -> None:
        self.clock = ManualClock()
        self._url = server.store(server.schema())

    def connect(self) -> Store:
        return PostgresStore(self._url, clock=self.clock)


class TestPostgres(StoreConformance):
    @pytest.fixture
    def place(self, postgres: Server) -> PostgresPlace:
        return PostgresPlace(postgres)
