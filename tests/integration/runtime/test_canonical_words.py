"""Stored bytes are the same wherever a word came from: a literal in the source, a configuration file, a request."""

from __future__ import annotations

import asyncio
from typing import Any

import perdure
from perdure import Agent, Allow, ApprovalCall, Ask, Reply, ScriptedModel, ToolCall, tool
from perdure.runtime.verify import verify


def read(word: str) -> Any:
    """A word as a parser returns it: equal to the literal, and another object."""
    return "".join([*word])


@tool(effect=read("pure"))
def look(order: str) -> str:
    """Look an order up."""
    return order


@tool(effect=read("external"))
def refund(order: str) -> str:
    """Refund an order."""
    return order


def ask_about_refunds(call: ApprovalCall) -> Allow | Ask:
    return Ask(default=read("deny")) if call.name == "refund" else Allow()


async def test_words_that_were_read_from_somewhere_are_stored_in_canonical_form() -> None:
    calls = [ToolCall("look", {"order": "A-1"}), ToolCall("refund", {"order": "A-1"})]
    agent = Agent("a", model=ScriptedModel([Reply("", calls), "done"]), tools=[look, refund], approve=ask_about_refunds)
    async with perdure.open("memory://") as runtime:
        running = asyncio.ensure_future(runtime.run(agent, "hi", session="s", submission="m"))
        async with runtime.session("s") as handle:
            async for event in handle.events(after=0):
                if isinstance(event, perdure.ApprovalRequested):
                    assert [str(problem) async for problem in verify(runtime.store)] == []
                    await handle.answer(event.request_id, read("approve"))
                    break
        assert (await running).output == "done"
        assert [str(problem) async for problem in verify(runtime.store)] == []
