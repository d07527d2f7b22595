"""The PostgreSQL store keeps the promises of `perdure.store.base`, in one piece and in sixteen, and behind a pooler."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.store.base import Store
from perdure.store.conformance import FigureConformance, ManualClock, PoolConformance, StoreConformance
from perdure.store.conformance.commits import Commits
from perdure.store.conformance.consumers import Consumers
from perdure.store.conformance.content import Content
from perdure.store.conformance.holding import Holding
from perdure.store.conformance.keeping import Keeping
from perdure.store.conformance.reading import Reading
from perdure.store.conformance.submissions import Submissions
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.address import parse
from perdure.store.postgres.line import Line, connect
from perdure.store.postgres.writer import Job, Writer
from tests.postgres import Server

PARTITIONED = Path(__file__).with_name("partitioned.sql")


class PostgresPlace:
    def __init__(self, server: Server, *, partitioned: bool = False, **options: str) -> None:
        self.clock = ManualClock()
        schema = server.lent(Path("conformance"), "partitioned" if partitioned else "plain")
        self._url = server.store(schema, **options)
        self.conninfo = parse(self._url).conninfo
        if partitioned and not server.has_tables(schema):
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


class TestPostgres(StoreConformance, PoolConformance, FigureConformance):
    @pytest.fixture
    def place(self, postgres: Server) -> PostgresPlace:
        return PostgresPlace(postgres)


class TestPartitions(Commits, Submissions, Reading, Content, Consumers, Keeping, FigureConformance):
    """Whatever has to do with the tables that are cut; the others are whole here too."""

    @pytest.fixture
    def place(self, postgres: Server) -> PostgresPlace:
        return PostgresPlace(postgres, partitioned=True)


class TestAnotherBackendEachTime(Commits, Holding):
    """As behind a pooler in transaction mode: no transaction runs on the connection of the one before."""

    @pytest.fixture
    def place(self, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> PostgresPlace:
        run = Line.run

        def run_elsewhere(line: Line, name: str, *values: Any, timeout: float | None = None) -> Any:
            if not line.in_transaction:
                line.close()
                Line.__init__(line, connect(place.conninfo, {}, 1.0).psycopg, line._queries, line.timeout)
            return run(line, name, *values, timeout=timeout)

        send = Writer._send

        def send_elsewhere(writer: Writer, jobs: list[Job]) -> None:
            if (line := writer._drop()) is not None:
                line.close()
                writer._take(writer._database.connect())
            send(writer, jobs)

        monkeypatch.setattr(Line, "run", run_elsewhere)
        monkeypatch.setattr(Writer, "_send", send_elsewhere)
        place = PostgresPlace(postgres, listen="no")
        return place
