"""The agents of the workers that are tortured: each session pays a few times, each payment once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from perdure import Agent, FunctionModel, Limits, ModelRequest, Reply, ToolCall, ToolContext, tool

PLACE = Path(os.environ["CHAOS_PLACE"])
STEPS = int(os.environ["CHAOS_STEPS"])


def note(line: str) -> None:
    """A line that stays, whoever dies."""
    file = os.open(PLACE / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


@tool(effect="external")
async def pay(ctx: ToolContext, number: int) -> str:
    """Pay."""
    note(f"begun {ctx.idempotency_key}")
    await asyncio.sleep(0.1)
    note(f"paid {ctx.idempotency_key}")
    await asyncio.sleep(0.1)
    return f"paid {number}"


@tool(effect="external")
async def pay_slowly(ctx: ToolContext) -> str:
    """Pay; it ends when the test says so."""
    note(f"begun {ctx.idempotency_key}")
    while not (PLACE / "go").exists():
        await asyncio.sleep(0.01)
    note(f"paid {ctx.idempotency_key}")
    return "paid"


async def answer(request: ModelRequest) -> Reply:
    done = sum(message.role == "tool" for message in request.messages)
    note(f"asked {request.session_id} {done}")
    await asyncio.sleep(0.01)
    return Reply(tool_calls=[ToolCall("pay", {"number": done})]) if done < STEPS else Reply(f"{done} times")


shop = Agent("shop", model=FunctionModel(answer), tools=[pay], limits=Limits(steps=10**9))


def answer_once(request: ModelRequest) -> Reply:
    done = any(message.role == "tool" for message in request.messages)
    return Reply("done") if done else Reply(tool_calls=[ToolCall("pay_slowly", {})])


slow = Agent("slow", model=FunctionModel(answer_once), tools=[pay_slowly])
