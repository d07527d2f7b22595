"""A worker of an agent whose one tool kills its process and whose other one takes its time: `python -m …poisoned URL`."""

from __future__ import annotations

import asyncio
import os
import sys

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply, ToolCall, tool
from perdure.workers.local import LocalEngine
from perdure.workers.worker import Worker

LEASE = 1.0


@tool(effect="external", guard="allow")
async def burn() -> str:
    """Take the process along, once everybody else is at work."""
    await asyncio.sleep(0.2)
    if os.environ.get("HARMLESS"):
        return "burnt"
    os._exit(1)


@tool(effect="pure")
async def knit() -> str:
    """Take some time."""
    await asyncio.sleep(0.5)
    return "knitted"


def answer(request: ModelRequest) -> Reply:
    """Again and again, until it worked."""
    said = request.messages[-1]
    if said.role == "tool" and not any(getattr(part, "is_error", False) for part in said.parts):
        return Reply("done")
    return Reply(tool_calls=[ToolCall("burn" if request.messages[0].text == "burn" else "knit", {})])


AGENT = Agent("shop", model=FunctionModel(answer), tools=[burn, knit])


async def main(url: str) -> None:
    async with perdure.open(url, lease=LEASE) as runtime:
        await Worker(runtime, [AGENT], LocalEngine(), poll=0.05).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
