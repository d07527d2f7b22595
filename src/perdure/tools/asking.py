"""The built-in tool with which a model asks the user in the middle of its work. Nothing runs: what the user says is the result."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from ..core.errors import InvalidTool
from .tool import Tool, is_seconds, tool

__all__ = ["ask_user"]


def ask_user(*, timeout: float | None = None) -> Tool:
    """A tool ``ask_user(question)`` for an agent's ``tools``.

    A call of it opens a request of kind *answer* that stands until somebody answers it, from any process, or for ``timeout`` seconds; the
    model reads what they say, or that nobody did. Other calls of the step go on meanwhile, and nothing holds the session once only the
    question is left. Raises `InvalidTool`.
    """
    if timeout is not None and not is_seconds(timeout):
        raise InvalidTool(f"the timeout of ask_user is {timeout!r}", hint="seconds, more than 0; None is for ever")
    # It is made with pydantic, which is imported on first use.
    from pydantic import Field

    async def asked(question: str) -> str:
        """Ask the user something that you can't find out yourself, and wait for the answer."""
        raise AssertionError("the user answers this call")

    asked.__annotations__["question"] = Annotated[str, Field(min_length=1, description="what the user is to answer, in full")]
    return dataclasses.replace(tool(name="ask_user", effect="pure", timeout=timeout)(asked), asks=True)
