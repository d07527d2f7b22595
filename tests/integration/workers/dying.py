"""A process that is killed when a child has told its caller what it came to, and is about to note that: `python -m …dying URL HOW`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply, ToolCall
from perdure.runtime.stores import store_at
from perdure.store.base import Commit
from perdure.testing.faults import Call, FaultStore, When

LEASE = 1.0

helper = Agent("helper", model=FunctionModel(lambda request: "helped"))


def _answer(request: ModelRequest) -> Reply:
    asked = any(message.role == "tool" for message in request.messages)
    return Reply("done") if asked else Reply(tool_calls=[ToolCall("helper", {"task": "help"})])


def boss(how: str) -> Agent:
    """An agent that has another one help: it waits for that, or has it done ``behind``."""
    return Agent("boss", model=FunctionModel(_answer), tools=[helper.as_tool(description="Help.", background=how == "behind")])


async def _gate(call: Call, when: When) -> None:
    if (
        when == "before"
        and isinstance(call.given, Commit)
        and any(entry.kind == "passed_on" and b'"tell"' in (entry.body or b"") for entry in call.given.entries)
    ):
        os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, how: str) -> None:
    async with perdure.open(FaultStore(store_at(url), gate=_gate, keep=False), lease=LEASE) as runtime:
        await runtime.run(boss(how), "go", session="s", submission="m")
        # What it has done behind it may still be to do.
        while True:
            await runtime.recover([boss(how)])
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
