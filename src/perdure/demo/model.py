"""The demo's model: a pure function of the request, that talks as slowly as a real one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

from .. import FunctionModel, ModelRequest, Reply, ToolCall, ToolCallResponse, Usage
from .mails import euros

__all__ = ["FOLLOW_UP", "demo_model"]

FOLLOW_UP = "The payment service has told us by now what became of the refund. Write to the customer again."


def demo_model(pace: float, meter: Path | None = None) -> FunctionModel:
    """A model that writes a word every ``pace`` seconds, and notes every call in ``meter``, as a provider would for its bill."""

    async def answer(request: ModelRequest) -> AsyncIterator[str | Reply]:
        if meter is not None:
            with meter.open("a") as file:
                file.write(json.dumps([request.session_id, len(request.messages)]) + "\n")
        reply = decide(request)
        for word in re.findall(r"\S+\s*", reply.text):
            await asyncio.sleep(pace)
            yield word
        read = sum(len(message.text.split()) for message in request.messages) + len(request.instructions.split())
        said = len(reply.text.split()) + 12 * len(reply.tool_calls)
        yield Reply(reply.text, reply.tool_calls, Usage(input_tokens=read, output_tokens=said))

    return FunctionModel(answer, name="demo")


def decide(request: ModelRequest) -> Reply:
    """Read the mail, look up the order, refund it, reply."""
    last = request.messages[-1]
    if last.text == FOLLOW_UP:
        note = next(message.text for message in reversed(request.messages) if message.text.startswith("[note]"))
        return Reply("Good news: " + _paid(note) if "it succeeded" in note else "I am sorry, the refund failed after all.")
    if last.role == "user":
        order = _order_in(last.text)
        return Reply(f"Let me see what we know about order {order} first.", [ToolCall("find_order", {"order": order})])
    response = last.parts[0]
    assert isinstance(response, ToolCallResponse)
    match response.name, response.response:
        case "find_order", {"order": str() as order, "cents": int() as cents}:
            words = f"The customer paid {euros(cents)} for it, so this is what I refund."
            return Reply(words, [ToolCall("refund", {"order": order, "cents": cents})])
        case "find_order", _:
            return Reply("I am sorry, but we know no order of that number. Could you look at the invoice again, please?")
        case "refund", {"cents": int() as cents}:
            return Reply(f"We are sorry for the trouble! {euros(cents)} are on their way to you, and arrive within three days.")
        case "refund", str() as words if "unknown" in words:
            return Reply("We have asked our bank to pay, and can't say yet whether it did. You will hear from us as soon as we know.")
        case _:
            return Reply("I am sorry, but we can't refund this order. A colleague looked at it and decided so.")


def _order_in(text: str) -> str:
    found = re.search(r"\(order (\S+)\)", text)
    return found[1] if found else "unknown"


def _paid(note: str) -> str:
    found = re.search(r'"cents":(\d+)', note)
    return f"the bank has paid {euros(int(found[1]))}, and your refund is complete." if found else "the bank has paid your refund."
