"""The second program that is killed: an agent with a child, a memory of its session and a pool of its owner's, run to its end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import perdure
from perdure import Agent, Identity, Limits, Reply, SessionMemory, ToolCall, ToolContext, Usage, tool
from perdure.testing.crash import CrashWorld, Ledger, crashable

USAGE = Usage(input_tokens=10, output_tokens=2)
FACTS = '[{"category": "decision", "content": "The order is paid", "importance": 9}]'


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def make(world: CrashWorld) -> Agent:
    @tool(effect="idempotent")
    async def pay(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "pay", cents, effect="idempotent")
        return f"paid {cents}"

    @tool(effect="idempotent")
    async def file(ctx: ToolContext, paper: str) -> str:
        await world.act(ctx, "file", paper, effect="idempotent")
        return f"filed {paper}"

    steps = [Reply(tool_calls=[call("file", paper="receipt")], usage=USAGE), Reply("It is filed.", usage=USAGE)]
    clerk = Agent("clerk", model=world.model([*steps], name="clerk"), tools=[file])
    steps = [
        Reply(tool_calls=[call("pay", cents=3)], usage=USAGE),
        Reply(tool_calls=[call("clerk", task="File the receipt.")], usage=USAGE),
        Reply("All is done.", usage=USAGE),
    ]
    return Agent(
        "lead",
        model=world.model([*steps], memory=Reply(FACTS, usage=USAGE)),
        tools=[pay, clerk.as_tool()],
        memory=SessionMemory(workspace=".", min_tokens=1, min_text_messages=1),
    )


async def main() -> int:
    world = CrashWorld(Ledger(Path("ledger.jsonl")))
    agent = make(world)
    async with perdure.open(crashable("agents.db")) as runtime:
        await runtime.pools.set("acme", Limits(tokens=100_000))
        result = await runtime.run(agent, "Pay it.", session="order", submission="m", identity=Identity(owner="acme"))
        await runtime.recover([agent])
        print(result.status, result.output)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
