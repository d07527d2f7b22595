"""All shipped stores keep the promises of `perdure.store.base`."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.store.base import Store
from perdure.store.blobs import DirectoryBlobs
from perdure.store.conformance import FigureConformance, ManualClock, Place, PoolConformance, StoreConformance
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
    """The suite is shipped, and knows nothing of the numbers of behaviours: which of its tests assert them stands here."""

    @pytest.fixture
    def place(self) -> MemoryPlace:
        return MemoryPlace()

    @pytest.mark.spec("S0-069")
    async def test_an_id_that_is_or_was_a_sessions_is_taken(self, place: Place) -> None:
        await super().test_an_id_that_is_or_was_a_sessions_is_taken(place)

    @pytest.mark.spec("S0-070")
    async def test_the_first_submission_creates_the_session_with_its_first_entry(self, place: Place) -> None:
        await super().test_the_first_submission_creates_the_session_with_its_first_entry(place)

    @pytest.mark.spec("S0-071", "S0-073", "S0-074")
    async def test_a_session_is_held_by_one_living_runner(self, place: Place) -> None:
        await super().test_a_session_is_held_by_one_living_runner(place)

    @pytest.mark.spec("S0-072")
    async def test_claims_count_takeovers_from_holders_that_never_released(self, place: Place) -> None:
        await super().test_claims_count_takeovers_from_holders_that_never_released(place)

    @pytest.mark.spec("S0-075", "S0-087")
    async def test_a_session_is_free_when_its_holders_lease_ran_out(self, place: Place) -> None:
        await super().test_a_session_is_free_when_its_holders_lease_ran_out(place)

    @pytest.mark.spec("S0-077", "S0-104")
    async def test_a_commit_that_builds_on_another_version_changes_nothing(self, place: Place) -> None:
        await super().test_a_commit_that_builds_on_another_version_changes_nothing(place)

    @pytest.mark.spec("S0-080")
    async def test_of_many_who_take_a_session_over_at_once_one_gets_it(self, place: Place) -> None:
        await super().test_of_many_who_take_a_session_over_at_once_one_gets_it(place)

    @pytest.mark.spec("S0-082", "S0-095")
    async def test_a_commit_under_another_fence_or_holder_changes_nothing(self, place: Place) -> None:
        await super().test_a_commit_under_another_fence_or_holder_changes_nothing(place)

    @pytest.mark.spec("S0-083", "S0-086")
    async def test_a_late_heartbeat_renews_a_lease(self, place: Place) -> None:
        await super().test_a_late_heartbeat_renews_a_lease(place)

    @pytest.mark.spec("S0-084")
    async def test_a_commit_appends_its_entries_and_replaces_the_checkpoint(self, place: Place) -> None:
        await super().test_a_commit_appends_its_entries_and_replaces_the_checkpoint(place)

    @pytest.mark.spec("S0-085")
    async def test_of_two_commits_on_one_version_one_is_applied(self, place: Place) -> None:
        await super().test_of_two_commits_on_one_version_one_is_applied(place)

    @pytest.mark.spec("S0-088")
    async def test_a_heartbeat_and_a_commit_at_once_are_both_there(self, place: Place) -> None:
        await super().test_a_heartbeat_and_a_commit_at_once_are_both_there(place)

    @pytest.mark.spec("S0-091", "S0-113")
    async def test_entries_that_leave_a_gap_are_the_callers_mistake(self, place: Place) -> None:
        await super().test_entries_that_leave_a_gap_are_the_callers_mistake(place)

    @pytest.mark.spec("S0-101", "S0-102")
    async def test_a_cursor_moves_forward_only(self, place: Place) -> None:
        await super().test_a_cursor_moves_forward_only(place)

    @pytest.mark.spec("S0-280")
    async def test_runnable_are_sessions_of_dead_holders_and_none_of_living_ones(self, place: Place) -> None:
        await super().test_runnable_are_sessions_of_dead_holders_and_none_of_living_ones(place)


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
