"""A process that is really killed while it brings a large picture leaves an orphan at most, and the next one brings it once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure import DirectoryBlobs
from perdure.core import canonical
from perdure.runtime.verify import verify
from perdure.store.outside import WithBlobs

from .ingesting import PICTURE, POINTS

PROGRAM = Path(__file__).with_name("ingesting.py")
DIGEST = canonical.digest(PICTURE)

SELDOM = ("begun", "written", "durable", "after commit 2")
"""Points beside others that say the same; the long form dies there too."""


def start(directory: Path, *point: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.acceptance.kills.ingesting", str(directory), *point], env=os.environ)


async def looked_at(directory: Path) -> tuple[bool, set[str]]:
    """Whether the message is there, and which files; whatever happened, no reference leads to nothing."""
    async with perdure.open(str(directory / "agents.db"), blobs=DirectoryBlobs(directory / "blobs")) as runtime:
        assert [problem async for problem in verify(runtime.store)] == []
        there = await runtime.store.load("s") is not None
        files = {path.name for path in (directory / "blobs").glob("*/*")}
        assert isinstance(runtime.store, WithBlobs)
        swept = await runtime.sessions.sweep(grace=0)
        assert swept.pinned == 0, "a dead process pins nothing"
        left = {path.name for path in (directory / "blobs").glob("*/*")}
        assert left == ({DIGEST} if there else set()), swept
    return there, files


@pytest.mark.spec("D-041", "D-043", "B-B-113")
@pytest.mark.parametrize("point", [pytest.param(point, marks=pytest.mark.long) if point in SELDOM else point for point in POINTS])
def test_killed_at_any_point_of_an_ingestion(point: str, tmp_path: Path) -> None:
    # when the process dies there
    killed = start(tmp_path, point)
    assert killed.wait(timeout=60) == -signal.SIGKILL
    # then the message is there exactly if its submission was durable, with its bytes
    there, files = asyncio.run(looked_at(tmp_path))
    order = POINTS.index(point)
    assert there == (order >= POINTS.index("after send"))
    if order >= POINTS.index("renamed"):
        assert DIGEST in files
    # and the same program once more brings it exactly once
    assert start(tmp_path).wait(timeout=60) == 0

    async def check() -> None:
        async with perdure.open(str(tmp_path / "agents.db"), blobs=DirectoryBlobs(tmp_path / "blobs")) as runtime:
            history = await runtime.sessions.history("s")
            assert [message.role for message in history] == ["user", "assistant"]
            picture = history[0].parts[1]
            assert isinstance(picture, perdure.Blob)
            assert await runtime.sessions.content("s", picture) == PICTURE
            assert [problem async for problem in verify(runtime.store)] == []

    asyncio.run(check())
