"""Where the tests of ledger and budgets keep their sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..interactive.acting import Place


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path / "agents.db")
