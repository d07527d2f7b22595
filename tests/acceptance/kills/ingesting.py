"""A program that sends a picture and is killed at one point of it: ``ingesting.py DIRECTORY POINT``; without a point it lives."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import perdure
from perdure import Agent, DirectoryBlobs, Reply, ScriptedModel
from perdure.store.sqlite import SQLiteStore
from perdure.testing.faults import FaultStore

POINTS = (
    "pinned",
    "begun",
    "written",
    "synced",
    "renamed",
    "durable",
    "put",
    "before send",
    "after send",
    "after commit 1",
    "after commit 2",
)
"""Where it can die, in order."""

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 1_000

AGENT = Agent("looker", model=ScriptedModel([Reply("seen")]))


def die_at(wanted: str, point: str) -> None:
    if point == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(DirectoryBlobs):
    """A directory whose process dies at a point."""

    wanted = ""

    def _at(self, step: str) -> None:
        die_at(self.wanted, step)

    async def put(self, digest: str, data: bytes) -> None:
        die_at(self.wanted, "pinned")
        await super().put(digest, data)
        die_at(self.wanted, "put")


async def main(directory: Path, wanted: str) -> None:
    async def gate(call: Any, when: str) -> None:
        die_at(wanted, f"{when} {call.kind}" + (f" {call.nth}" if call.kind == "commit" else ""))

    blobs = Dying(directory / "blobs")
    blobs.wanted = wanted
    store = FaultStore(SQLiteStore(directory / "agents.db"), gate=gate)
    async with perdure.open(store, blobs=blobs) as runtime:
        await runtime.run(AGENT, ["look", perdure.image(PICTURE)], session="s", submission="k")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
