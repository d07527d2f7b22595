"""The OpenAI Agents SDK with its SQLite session, which it writes per turn of the model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from .script import TEXT, Script

__all__ = ["run"]


class _Model(Model):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:  # noqa: A002
        items = [] if isinstance(input, str) else input
        done = self._script.answered(items, lambda item: item.get("type") == "function_call_output") if items else 0
        last = str(items[-1].get("output", "")) if items else ""
        output: Any
        if self._script.model(done, last):
            arguments = json.dumps({"number": done, "text": TEXT})
            output = ResponseFunctionToolCall(arguments=arguments, call_id=f"call-{done}", name="look", type="function_call")
        else:
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            output = ResponseOutputMessage(id=f"message-{done}", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


async def run(url: str, sessions: list[str], script: Script, *, resume: bool, settings: dict[str, Any]) -> int:
    """Run sessions to their end; how many items the first one has then. Nothing goes on by itself: a new message has to be sent."""
    set_tracing_disabled(True)

    @function_tool
    async def look(number: int, text: str) -> str:
        """Look something up."""
        return script.tool(number)

    agent = Agent(name="bench", model=_Model(script), tools=[look])
    opened = [SQLiteSession(session, url) for session in sessions]
    said = "go on" if resume else TEXT
    await asyncio.gather(*(Runner.run(agent, said, session=session, max_turns=10**6) for session in opened))
    return len(await opened[0].get_items()) - resume
