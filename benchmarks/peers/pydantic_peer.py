"""Pydantic AI made durable by DBOS: model calls are steps, and so is a tool that is marked as one."""

from __future__ import annotations

from typing import Any

from dbos import DBOS
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

from .dbos_peer import launched, to_the_end
from .script import TEXT, Script

__all__ = ["run"]

_script: Script


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    done = _script.answered(messages, lambda message: isinstance(message.parts[0], ToolReturnPart))
    part = messages[-1].parts[0]
    if _script.model(done, str(part.content) if isinstance(part, ToolReturnPart) else ""):
        return ModelResponse(parts=[ToolCallPart("look", {"number": done, "text": TEXT}, f"call-{done}")])
    return ModelResponse(parts=[TextPart("done")])


agent = Agent(FunctionModel(answer), name="bench", capabilities=[DBOSDurability()])


@agent.tool_plain
@DBOS.step()
async def look(number: int, text: str) -> str:
    """Look something up."""
    return _script.tool(number)


@DBOS.workflow()
async def durable(question: str) -> int:
    result = await agent.run(question, usage_limits=UsageLimits(request_limit=None))
    return len(result.all_messages())


async def run(url: str, sessions: list[str], script: Script, *, resume: bool, settings: dict[str, Any]) -> int:
    """Run sessions to their end; how many messages the first one has then."""
    global _script
    _script = script
    launched(url)
    try:
        return await to_the_end(durable, sessions, resume)
    finally:
        DBOS.destroy()
