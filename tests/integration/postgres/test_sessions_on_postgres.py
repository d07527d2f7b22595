"""What sessions promise, they promise on PostgreSQL too: the tests of the catalogue, and of sessions that are stopped and taken up again.

Those that look into a file stay where they are, and so do those that interrupt a turn in the moment in which a model answers: it takes a
round trip to read an interrupt, and an answer that is there first stands, as an effect that ended does anywhere. A steer is never late.
"""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from perdure.store.base import Store
from perdure.store.postgres import PostgresStore
from perdure.testing import sweep
from perdure.testing.clock import VirtualClock
from tests.postgres import Server

from ..catalogue import test_archive, test_consumers, test_delete, test_fork, test_listing, test_portable, test_redaction
from ..interactive import test_calls, test_interrupts, test_recovery_table, test_resuming
from ..sweep import scenarios

MODULES: tuple[ModuleType, ...] = (
    *(test_archive, test_consumers, test_delete, test_fork, test_listing, test_portable, test_redaction),
    *(test_calls, test_interrupts, test_recovery_table, test_resuming),
)

LOOKS_INTO_A_FILE = ("place.execute", "place.path.parent", "SQLiteStore", "apsw")

exported, nothing_ran = test_portable.exported, test_calls._nothing_ran

for module in MODULES:
    for name, function in vars(module).items():
        if name.startswith("test_") and "place" in inspect.signature(function).parameters:
            source = inspect.getsource(function)
            if not any(sign in source for sign in LOOKS_INTO_A_FILE):
                globals()[f"test_{module.__name__.rpartition('test_')[2]}__{name.removeprefix('test_')}"] = function


class SweptPlace:
    """A schema in which processes die as if killed: nobody says goodbye, and leases run out."""

    def __init__(self, server: Server, clock: VirtualClock) -> None:
        self._url = server.store(server.schema())
        self._clock = clock

    def connect(self) -> Store:
        return PostgresStore(self._url, clock=self._clock.now, poll=0.2)

    async def abandon(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        store._runners.clear()
        await store.close()


SCENARIOS = {make().name: make for make in scenarios.ALL}


@pytest.mark.parametrize("name", ["plain answer"])
async def test_a_database_holds_what_memory_holds_wherever_the_process_dies(postgres: Server, name: str) -> None:
    await sweep(SCENARIOS[name](), medium=lambda clock: SweptPlace(postgres, clock))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "plain answer"])
async def test_every_scenario_survives_every_death_in_a_database(postgres: Server, name: str) -> None:
    await sweep(SCENARIOS[name](), medium=lambda clock: SweptPlace(postgres, clock))
