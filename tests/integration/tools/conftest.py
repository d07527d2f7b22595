"""A workspace with something outside it that must stay untouched and unread, and its tools, called as the runtime calls them."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.tools import Done, NotDone, Tool, ToolContext, Unknown
from perdure.tools.workspace import workspace_tools

SECRET = "the secret of somebody else"

_operations = itertools.count(1)


def context(key: str | None = None) -> ToolContext:
    """Another operation each time, unless a key says which one it is."""
    number = next(_operations)
    return ToolContext(
        session_id="s", turn="t2", operation=f"t2.0.{number}", attempt=1, call=f"c{number}", idempotency_key=key or f"pd_{number}"
    )


class Place:
    """A workspace under test."""

    def __init__(self, root: Path, outside: Path) -> None:
        self.root = root
        self.outside = outside
        self.tools: dict[str, Tool] = {}
        self.use(shell=False)

    def use(self, **options: Any) -> None:
        self.tools = {tool.name: tool for tool in workspace_tools(self.root, **options)}

    async def call(self, name: str, /, operation: ToolContext | None = None, **arguments: Any) -> Any:
        """One call; each is another operation unless it says which one."""
        tool = self.tools[name]
        return await tool.call(operation or context(), tool.check(arguments))

    async def reconcile(self, name: str, operation: ToolContext, /, **arguments: Any) -> Done | NotDone | Unknown:
        tool = self.tools[name]
        return await tool.reconcile_call(operation, tool.check(arguments))

    def untouched(self) -> bool:
        """Whether everything outside is as it was."""
        return sorted(os.listdir(self.outside)) == ["secret.txt"] and (self.outside / "secret.txt").read_text() == SECRET


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    root = tmp_path / "workspace"
    root.mkdir()
    place = Place(root, outside)
    before = len(os.listdir("/proc/self/fd"))
    yield place
    # A worker thread of asyncio opens none, so what is more was left open by a tool.
    assert len(os.listdir("/proc/self/fd")) <= before
    assert place.untouched()


@pytest.fixture(params=["required", "off"])
def shell(request: pytest.FixtureRequest, place: Place) -> Place:
    """The same, with a shell: confined, if that is possible here, and not."""
    if request.param == "required":
        needs_bubblewrap()
    place.use(sandbox=request.param)
    return place


@pytest.fixture
def confined(place: Place) -> Place:
    """The same, with a confined shell."""
    needs_bubblewrap()
    place.use(sandbox="required")
    return place


def needs_bubblewrap() -> None:
    """Skip where bubblewrap can't do the least; where it can, ours has to work, or every test of it would be skipped for our mistake."""
    try:
        least = subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, check=False, text=True)
    except FileNotFoundError:
        pytest.skip("bubblewrap is not installed (apt-get install bubblewrap)")
    if least.returncode != 0:
        pytest.skip(f"bubblewrap doesn't work here: {least.stderr.strip()}")


async def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait for a condition; fail if it isn't met."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.005)


def running(words: str) -> list[int]:
    """The processes of this machine with these words on their command line, whatever namespace they are in."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if words.encode() in line.replace(b"\0", b" "):
                found.append(int(entry))
    return found
