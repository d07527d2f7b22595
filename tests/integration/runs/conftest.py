"""Where the tests of durable runs keep their sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..interactive.acting import Place
from .seed import Seed


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def seed(place: Place, workspace: Path) -> Seed:
    return Seed(place, workspace)
