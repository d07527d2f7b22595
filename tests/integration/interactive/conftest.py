"""Where tests keep their sessions that look at one kind of store."""

from __future__ import annotations

from pathlib import Path

import pytest

from .acting import Place


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    return Place("sqlite", tmp_path / "agents.db")


@pytest.fixture
def memory(tmp_path: Path) -> Place:
    """In memory, and time jumps to whoever sleeps the shortest as soon as nothing else is to do."""
    return Place("memory", tmp_path / "unused.db", auto=True)
