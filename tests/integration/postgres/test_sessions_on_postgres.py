"""What sessions promise, they promise on PostgreSQL too: the tests of the catalogue, and of sessions that are stopped and taken up again.

Those that look into a file stay where they are, and so do those that interrupt a turn in the moment in which a model answers: it takes a
round trip to read an interrupt, and an answer that is there first stands, as an effect that ended does anywhere. A steer is never late.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from perdure.store.base import Store
from perdure.store.postgres import PostgresStore
from perdure.testing import sweep
from perdure.testing.clock import VirtualClock
from tests.postgres import Server

from ..budgets import test_ledger, test_limits, test_pools
from ..catalogue import (
    test_archive,
    test_calling,
    test_consumers,
    test_delete,
    test_fork,
    test_fork_context,
    test_halted,
    test_listing,
    test_notes,
    test_portable,
    test_redaction,
    test_rewrite,
    test_time_travel,
    test_tool_policy,
)
from ..interactive import test_calls, test_interrupts, test_recovery_table, test_resuming
from ..media import test_media
from ..runs import test_ambiguity, test_session_memory, test_terminal_replay
from ..sweep import scenarios
from ..teams import test_children, test_handoffs

MODULES: tuple[ModuleType, ...] = (
    *(test_archive, test_calling, test_consumers, test_delete, test_fork, test_fork_context, test_halted, test_listing, test_notes),
    *(test_portable, test_redaction, test_rewrite, test_time_travel, test_tool_policy, test_media),
    *(test_calls, test_interrupts, test_recovery_table, test_resuming),
)

SOME: tuple[Callable[..., Any], ...] = (
    test_ambiguity.test_only_what_is_declared_to_know_its_key_is_repeated_under_the_same_key,
    test_ambiguity.test_a_result_of_what_was_never_begun_is_refused_at_once_and_nothing_of_it_is_stored,
    test_ambiguity.test_a_person_decides_from_any_process_and_the_decision_is_an_entry,
    test_children.test_the_childs_last_answer_is_the_calls_result_and_what_it_used_is_counted_once,
    test_children.test_a_parent_that_is_deleted_takes_its_child_with_it,
    test_handoffs.test_the_session_stays_with_the_target_also_in_another_process,
    test_ledger.test_a_receipt_is_durable_with_its_usage_and_counts_once_across_a_crash,
    test_ledger.test_calls_that_failed_and_calls_that_a_crash_cut_off_are_records_for_ever,
    test_limits.test_a_limited_turn_goes_on_once_its_limit_is_raised_and_does_nothing_twice,
    test_limits.test_a_sessions_limits_count_all_its_turns_also_those_before_there_were_any,
    test_pools.test_a_child_of_the_team_draws_for_itself_and_is_not_paid_for_twice,
    test_pools.test_many_sessions_at_once_use_no_more_than_there_is_and_one_call_each,
    test_pools.test_wherever_a_process_dies_the_pool_is_charged_for_what_the_ledger_has,
    test_session_memory.test_a_model_call_that_was_under_way_at_a_takeover_is_an_accounted_attempt_of_unknown_usage,
    test_session_memory.test_a_redaction_takes_what_was_learned_since_and_the_rest_is_learned_again,
    test_session_memory.test_what_a_turn_learns_is_told_to_the_next_one_in_the_order_of_the_categories,
    test_terminal_replay.test_each_consumer_hears_of_an_end_at_least_once_and_never_after_it_acknowledged,
)
"""Of the tests of durable runs those whose sentence the store's own statements could make false."""

WAITS_FOR_TIME = ("a_result_with_a_picture_is_reported_from_elsewhere",)
"""Where time has to pass by itself; here it stands still."""

LOOKS_INTO_A_FILE = ("place.execute", "place.path.parent", "SQLiteStore", "apsw")

exported, nothing_ran = test_portable.exported, test_calls._nothing_ran

for module in MODULES:
    for name, function in vars(module).items():
        if name.startswith("test_") and "place" in inspect.signature(function).parameters:
            source = inspect.getsource(function)
            if name.removeprefix("test_") not in WAITS_FOR_TIME and not any(sign in source for sign in LOOKS_INTO_A_FILE):
                globals()[f"test_{module.__name__.rpartition('test_')[2]}__{name.removeprefix('test_')}"] = function


for function in SOME:
    globals()[f"{function.__module__.rpartition('.')[2]}__{function.__name__.removeprefix('test_')}"] = function


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

IN_SHORT = ("plain answer", "transactional tools")
"""The scenarios that are swept in a database in the short form, too."""


@pytest.mark.parametrize("name", IN_SHORT)
async def test_a_database_holds_what_memory_holds_wherever_the_process_dies(postgres: Server, name: str) -> None:
    await sweep(SCENARIOS[name](), medium=lambda clock: SweptPlace(postgres, clock))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in IN_SHORT])
async def test_every_scenario_survives_every_death_in_a_database(postgres: Server, name: str) -> None:
    await sweep(SCENARIOS[name](), medium=lambda clock: SweptPlace(postgres, clock))
