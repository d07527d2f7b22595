"""perdure, as the others: one agent, one tool that acts outside."""

from __future__ import annotations

import asyncio
from typing import Any

import perdure
from perdure import Agent, FunctionModel, Limits, ModelRequest, Reply, ToolCall, tool
from perdure.core.messages import ToolCallResponse

from .script import TEXT, Script

__all__ = ["run"]


async def run(url: str, sessions: list[str], script: Script, *, resume: bool, settings: dict[str, Any]) -> int:
    """Run sessions to their end; how many messages the first one has then. Going on is saying the same once more."""

    @tool(effect="external")
    async def look(number: int, text: str) -> str:
        """Look something up."""
        return script.tool(number)

    def answer(request: ModelRequest) -> Reply:
        messages = request.messages
        done = script.answered(messages, lambda message: message.role == "tool")
        part = messages[-1].parts[0]
        if script.model(done, str(part.response) if isinstance(part, ToolCallResponse) else ""):
            return Reply(tool_calls=[ToolCall("look", {"number": done, "text": TEXT}, f"call-{done}")])
        return Reply("done")

    agent = Agent("bench", model=FunctionModel(answer), tools=[look], limits=Limits(steps=10**9), compaction=None)
    async with perdure.open(url) as runtime:
        await asyncio.gather(*(runtime.run(agent, TEXT, session=session, submission="bench") for session in sessions))
        return (await runtime.sessions.checkpoint(sessions[0])).messages
