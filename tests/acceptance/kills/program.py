"""The program that is killed: sessions with every kind of effect, run to their end: `python program.py [lease [unsettled]]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import perdure
from perdure import Agent, ApprovalRequested, Done, NotDone, Reply, ToolCall, ToolContext, Usage, tool
from perdure.core.errors import CoordinationError
from perdure.testing.crash import CrashWorld, Ledger, crashable

USAGE = Usage(input_tokens=10, output_tokens=2)


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def make(world: CrashWorld) -> Agent:
    async def find(ctx: ToolContext, cents: int) -> Done | NotDone:
        await world.point("reconcile", "pay", "before")
        found = world.did(ctx.idempotency_key)
        await world.point("reconcile", "pay", "after")
        return Done(f"paid {cents}") if found else NotDone()

    @tool(effect="external")
    async def charge(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "charge", cents)
        return f"charged {cents}"

    @tool(effect="external", reconcile=find)
    async def pay(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "pay", cents)
        return f"paid {cents}"

    @tool(effect="external")
    async def refund(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "refund", cents)
        return f"refunded {cents}"

    @tool(effect="idempotent")
    async def put(ctx: ToolContext, cents: int) -> str:
        await world.act(ctx, "put", cents, effect="idempotent")
        return f"put {cents}"

    steps = [
        Reply("I look.", tool_calls=[call("put", cents=1), call("charge", cents=2)], usage=USAGE),
        Reply("I pay.", tool_calls=[call("pay", cents=3)], usage=USAGE),
        Reply("May I?", tool_calls=[call("refund", cents=4)], usage=USAGE),
        Reply("All is done.", usage=USAGE),
    ]
    return Agent("clerk", model=world.model(list(steps)), tools=[charge, pay, refund, put], approve=["refund"])


async def person(runtime: perdure.Runtime, world: CrashWorld, session: str) -> None:
    """Approves what is asked, once it is."""
    async with runtime.session(session) as handle:
        async for event in handle.events():
            if isinstance(event, ApprovalRequested):
                await world.point("person", "", "before")
                await handle.approve(event.request_id, submission=f"approve-{event.request_id}")


async def settle(runtime: perdure.Runtime, world: CrashWorld, session: str) -> None:
    """Does what a provider's statement does: says of every call that is uncertain whether it happened."""
    for unknown in await runtime.sessions.uncertain(session):
        happened = any((line["session"], line["operation"]) == (session, unknown.operation) for line in world.ledger.read())
        told = "it stands in the ledger" if happened else "it stands in no ledger"
        await runtime.sessions.report_attempt(session, unknown.operation, unknown.attempt, told, not happened, actor="the bank")


async def main(lease: float, *, settles: bool) -> int:
    world = CrashWorld(Ledger(Path("ledger.jsonl")))
    agent = make(world)
    async with perdure.open(crashable("agents.db"), lease=lease) as runtime:
        for number in range(2):
            session = f"mail-{number}"
            approving = asyncio.create_task(person(runtime, world, session))
            try:
                result = await runtime.run(agent, f"Mail {number}, please.", session=session, submission=f"m-{number}")
            except CoordinationError as error:
                print(f"fenced: {error}")
                return 3
            finally:
                approving.cancel()
            if settles:
                await settle(runtime, world, session)
            print(result.status, result.output)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0, settles="unsettled" not in sys.argv)))
