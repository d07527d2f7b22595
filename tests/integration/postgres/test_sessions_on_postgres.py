"""What sessions promise, they promise on PostgreSQL too: the catalogue's and the sessions' own tests, and their restarts, on this store.

Those that look into an SQLite file stay where they are.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from perdure.testing.sweep import Sweep, sweep

from ..catalogue import (
    test_archive,
    test_consumers,
    test_delete,
    test_fork,
    test_listing,
    test_portable,
    test_redaction,
    test_rewrite,
    test_time_travel,
)
from ..interactive import test_calls, test_interrupts, test_model_steps, test_recovery_table, test_resuming, test_steering

MODULES: tuple[ModuleType, ...] = (
    *(test_archive, test_consumers, test_delete, test_fork, test_listing, test_portable, test_redaction, test_rewrite, test_time_travel),
    *(test_calls, test_interrupts, test_model_steps, test_recovery_table, test_resuming, test_steering),
)

