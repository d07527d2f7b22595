"""Refund an order, and survive a kill -9 in the middle of the payment.

    python examples/refunds.py --die     # kills itself, kill -9, right after the money has moved
    python examples/refunds.py           # goes on: the payment is looked up, not repeated, and the customer gets an answer
    python examples/refunds.py           # the stored answer comes back, no model is called

It needs no key: the model is scripted. With MODEL=openai:… or MODEL=anthropic:… (and a key) a real one does the same.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import perdure
from perdure import Agent, Done, NotDone, Reply, ScriptedModel, ToolCall, ToolContext, tool

BANK = Path("bank.txt")
"""Stands for a payment provider that knows no idempotency keys: asked twice, it pays twice. One line is one payment."""


def look_up(ctx: ToolContext) -> Done | NotDone:
    """Asked after a crash: did the money move? It only reads."""
    paid = BANK.read_text() if BANK.exists() else ""
    return Done("paid") if ctx.idempotency_key in paid else NotDone()


@tool(effect="external", key=("order", "cents"), reconcile=look_up)
def refund(ctx: ToolContext, order: str, cents: int) -> str:
    """Pay money back for an order."""
    with BANK.open("a") as bank:
        bank.write(f"{ctx.idempotency_key} {order} {cents}\n")
    if "--die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


script = ScriptedModel(
    [
        Reply("", [ToolCall("refund", {"order": "A-1", "cents": 4990})]),
        "I am sorry for the broken lamp! Your 49.90 € are on their way.",
    ]
)

support = Agent(
    "support",
    instructions="You answer customers. The lamp of order A-1 cost 4990 cents. Refund what arrived broken, then write a short reply.",
    model=os.environ.get("MODEL") or script,
    tools=[refund],
)


async def main() -> None:
    async with perdure.open("agents.db") as runtime:
        result = await runtime.run(support, "My lamp arrived broken, please refund order A-1.", submission="mail-981")
        print(result.output)


asyncio.run(main())
print(f"payments in {BANK}: {len(BANK.read_text().splitlines())}")
