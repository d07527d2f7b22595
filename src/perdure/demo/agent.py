"""The program that is killed: an agent that works through refund mails. There is no code for crashes in it.

It keeps nothing in memory that matters and has no idea where it was. It is started, again and again, with the same command; a mail's id
is its session's id and its submission's id, so that asking twice for its answer is asking once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import perdure
from perdure import Agent, Allow, ApprovalCall, Ask, Done, Model, NotDone, TextDelta, ToolContext, Unknown, tool

from .mails import LARGE, MAILS, ORDERS, euros
from .model import FOLLOW_UP, demo_model
from .wire import ask

__all__ = ["AT_ONCE", "refund_agent"]

AT_ONCE = 3
"""Mails that are worked on at the same time."""

INSTRUCTIONS = (
    "You answer mails of customers who want a refund. Look up the order, refund exactly what was paid for it, and only then write a short, "
    "friendly reply. Never promise what a tool didn't confirm; if the outcome of a refund is unknown, say so and don't try again."
)


def refund_agent(payments: str, model: str | Model) -> Agent:
    """The agent; ``payments`` is the address of the payment service."""

    @tool(effect="pure")
    def find_order(order: str) -> dict[str, Any]:
        """What was paid for an order, in cents."""
        return {"order": order, "cents": ORDERS[order]} if order in ORDERS else {"error": f"there is no order {order}"}

    async def what_became_of(ctx: ToolContext) -> Done | NotDone | Unknown:
        """Asked when nobody knows whether money moved: after a crash, a timeout, an error. Only reads."""
        _, found = await ask(payments, "GET", f"/payments/{ctx.idempotency_key}")
        match found["status"]:
            case "paid":
                return Done(found["payment"])
            case "none":
                return NotDone()
            case _:
                return Unknown()

    @tool(effect="external", key=("order", "cents"), reconcile=what_became_of, timeout=3.0)
    async def refund(ctx: ToolContext, order: str, cents: int) -> dict[str, Any]:
        """Pay money back for an order."""
        wish = {"reference": ctx.idempotency_key, "order": order, "cents": cents, "token": ctx.callback_token}
        status, answer = await ask(payments, "POST", "/payments", wish)
        if status != 200:
            raise RuntimeError(f"the payment service says {status}")
        payment: dict[str, Any] = answer
        return payment

    def who_decides(call: ApprovalCall) -> Allow | Ask:
        if call.name == "refund" and call.arguments["cents"] > LARGE:
            return Ask(reason=f"more than {euros(LARGE)}")
        return Allow()

    return Agent("refunds", instructions=INSTRUCTIONS, model=model, tools=[find_order, refund], approve=who_decides)


async def work(db: str, agent: Agent) -> None:
    """Answer every mail that is not answered, and write again to customers whose payment was settled later."""
    async with perdure.open(db) as runtime:
        slots = asyncio.Semaphore(AT_ONCE)

        async def answer(session: str, text: str, submission: str) -> None:
            async with slots:
                async for event in runtime.stream(agent, text, session=session, submission=submission):
                    if isinstance(event, TextDelta):
                        say(session, event)

        await asyncio.gather(*(answer(mail.id, mail.text, mail.id) for mail in MAILS))
        for mail in MAILS:
            for settled in await runtime.sessions.entries(mail.id, kinds=["effect_settled"]):
                await answer(mail.id, FOLLOW_UP, f"{mail.id}/settled-{settled.seq}")


def say(session: str, delta: TextDelta) -> None:
    """A line of JSON for whoever looks on."""
    sys.stdout.write(json.dumps([session, delta.operation, delta.attempt, delta.text]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="perdure.demo.agent", description="Works through refund mails. Kill it as you like.")
    parser.add_argument("--db", required=True)
    parser.add_argument("--payments", required=True, help="address of the payment service")
    parser.add_argument("--model", help="openai:NAME or anthropic:NAME; without it a scripted one")
    parser.add_argument("--pace", type=float, default=0.03, help="seconds between words of the scripted model")
    parser.add_argument("--meter", type=Path, help="where the scripted model counts its calls")
    options = parser.parse_args()
    asyncio.run(work(options.db, refund_agent(options.payments, options.model or demo_model(options.pace, options.meter))))
