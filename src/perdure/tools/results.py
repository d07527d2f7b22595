"""The built-in tool that brings back what an excerpt leaves out. The runtime answers its calls itself: only it can read the journal."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import Field

from ..core.context import READ_LIMIT, READ_RESULT
from .tool import Tool, tool

__all__ = ["read_result_tool"]


@cache
def read_result_tool() -> Tool:
    """The tool as models are told of it."""

    @tool(name=READ_RESULT, effect="pure")
    async def read_result(
        handle: Annotated[str, Field(description="what the excerpt names, such as 12.0")],
        offset: Annotated[int, Field(ge=0, description="the first character to read")] = 0,
        length: Annotated[int, Field(ge=1, description=f"how many characters to read, at most {READ_LIMIT}")] = READ_LIMIT,
    ) -> dict[str, Any]:
        """Read any part of a tool result of which only an excerpt was shown. Returns text, offset, end and total, in characters."""
        raise AssertionError("the runtime answers this call")

    return read_result
