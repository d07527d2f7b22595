"""The suite that every store passes; run it against your own.

Make a `Place` for your store, and a subclass with a fixture of that name::

    import pytest
    pytest.register_assert_rewrite("perdure.store.conformance")
    from perdure.store.conformance import ManualClock, StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def place(self, tmp_path):
            return MyPlace(tmp_path, ManualClock())

The tests are coroutines, for pytest-asyncio in its mode ``auto``. They never sleep: time is the clock's.
"""

from __future__ import annotations

from .commits import Commits
from .consumers import Consumers
from .content import Content
from .figures import FigureConformance
from .holding import Holding
from .keeping import Keeping
from .kit import (
    LEASE,
    ManualClock,
    Place,
    catalogue,
    content,
    create,
    creation,
    everything,
    fact,
    facts,
    raises,
    row_of,
    runner,
    step,
    submission,
    within,
)
from .life import Life
from .notices import Notices
from .pools import PoolConformance
from .queue import Queue
from .reading import Reading
from .sessions import Sessions
from .submissions import Submissions

__all__ = [
    "LEASE",
    "FigureConformance",
    "ManualClock",
    "Place",
    "PoolConformance",
    "StoreConformance",
    "catalogue",
    "content",
    "create",
    "creation",
    "everything",
    "fact",
    "facts",
    "raises",
    "row_of",
    "runner",
    "step",
    "submission",
    "within",
]


class StoreConformance(Sessions, Commits, Holding, Submissions, Queue, Reading, Content, Consumers, Keeping, Notices, Life):
    """What any store promises, one sentence a test."""
