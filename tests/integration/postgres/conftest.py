"""Where the tests of the PostgreSQL store keep their sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Server, server

from ..interactive.acting import Place


@pytest.fixture
def postgres() -> Iterator[Server]:
    """A server; the schemas that a test makes in it are gone afterwards."""
    here = server()
    yield here
    here.clear()


@pytest.fixture
def place(postgres: Server, tmp_path: Path) -> Place:
    return Place("postgres", tmp_path / "schema")
