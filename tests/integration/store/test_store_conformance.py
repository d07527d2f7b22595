"""All shipped stores keep the promises of `perdure.store.base`."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.store.base import Store
from perdure.store.blobs import DirectoryBlobs
from perdure.store.conformance import FigureConformance, ManualClock, PoolConformance, StoreConformance
from perdure.store.memory import MemoryStore
from perdure.store.outside import WithBlobs
from perdure.store.sqlite import SQLiteStore


class MemoryPlace:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self._store = MemoryStore(self.clock)

    def connect(self) -> Store:
        return self._store.peer()


class SQLitePlace:
    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self._path = path

    def connect(self) -> Store:
        return SQLiteStore(self._path, clock=self.clock)


class OutsidePlace(SQLitePlace):
    """Every content stands outside of the database."""

    def connect(self) -> Store:
        return WithBlobs(super().connect(), DirectoryBlobs(self._path.with_name("blobs")), threshold=0)


class TestMemory(StoreConformance, PoolConformance, FigureConformance):
    @pytest.fixture
    def place(self) -> MemoryPlace:
        return MemoryPlace()


class TestSQLite(StoreConformance, PoolConformance, FigureConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SQLitePlace:
        return SQLitePlace(tmp_path / "agents.db")


class TestWithBlobs(StoreConformance, PoolConformance, FigureConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> OutsidePlace:
        return OutsidePlace(tmp_path / "agents.db")


async def test_all_are_stores(tmp_path: Path) -> None:
    outside = WithBlobs(MemoryStore(), DirectoryBlobs(tmp_path / "blobs"))
    for store in (MemoryStore(), SQLiteStore(tmp_path / "a.db"), outside):
        assert isinstance(store, Store)
        await store.open()
        assert isinstance(store, Store)
        await store.close()
        assert isinstance(store, Store)
