"""What holds for all tests that need a store, a server or another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from .interactive.acting import Place

# Before anything imports it: the assertions of the shipped suite should show what they compared.
pytest.register_assert_rewrite("perdure.store.conformance")


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where sessions are kept, of every kind that any machine has."""
    return Place(request.param, tmp_path / "agents.db")
