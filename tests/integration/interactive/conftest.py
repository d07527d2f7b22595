"""Where the tests of interactive sessions keep their sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from .acting import Place


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path / "agents.db")


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    return Place("sqlite", tmp_path / "agents.db")


@pytest.fixture
def memory(tmp_path: Path) -> Place:
    """In memory, and time jumps to whoever sleeps the shortest as soon as nothing else is to do."""
    return Place("memory", tmp_path / "unused.db", auto=True)
