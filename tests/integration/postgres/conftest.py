"""Where the tests of the PostgreSQL store keep their sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.postgres import Server, server

from ..interactive.acting import Place
from ..runs.test_ambiguity import Processes
from ..teams.conftest import Stage


@pytest.fixture
def postgres() -> Iterator[Server]:
    """A server; the schemas that a test makes in it are gone afterwards."""
    here = server()
    yield here
    here.clear()


@pytest.fixture
def place(postgres: Server, tmp_path: Path) -> Place:
    return Place("postgres", tmp_path / "schema")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def stage(postgres: Server, tmp_path: Path) -> Stage:
    return Stage(Place("postgres", tmp_path / "schema", auto=True))


@pytest.fixture
async def processes(postgres: Server, tmp_path: Path) -> AsyncIterator[Processes]:
    made = Processes(Place("postgres", tmp_path / "schema", auto=True))
    yield made
    await made.end()
