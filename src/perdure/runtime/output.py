"""Whether an answer is what it has to be: first its type, then what the host's own code says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from ..agent import Agent
from ..agent.output import OutputContext, OutputMisfit, ValidatorFailed, takes_context
from ..core.checkpoint import Checkpoint
from ..core.finishing import OUTPUT_INVALID, REFUSED
from ..core.records import Failure
from ..core.words import said, words
from ..tools.tool import Running, begin, makes_coroutine
from .steps import LETTING_GO_SECONDS

__all__ = ["Outputs", "Wrong"]


class Wrong(msgspec.Struct, frozen=True):
    """What is wrong with an answer; ``final``: correcting it would not help."""

    words: str
    final: bool = False

    @property
    def failure(self) -> Failure:
        """Why its turn can't complete."""
        return Failure(code=OUTPUT_INVALID, message=self.words)


class Outputs:
    """Looks at the outputs of one session's agent."""

    def __init__(self, agent: Agent, session_id: str) -> None:
        self._agent = agent
        self._session_id = session_id

    @property
    def validates(self) -> bool:
        """Whether the host's own code has a say."""
        return bool(self._agent.output_validators)

    def read(self, text: str, finish: str) -> Any | Wrong:
        """The output that an answer is, or why it is none."""
        if finish == "refusal":
            return Wrong(REFUSED + (f": {text}" if text else ""), final=True)
        try:
            return self._agent.output.read(text)
        except OutputMisfit as error:
            cut = "it was cut off at its longest; " if finish == "length" else ""
            return Wrong(f"the answer is not valid: {cut}{error}")

    async def judge(self, checkpoint: Checkpoint, output: Any) -> str:
        """What the validators find wrong, each asked only if those before it found nothing; empty if nothing is.

        Raises `ValidatorFailed` where one raises anything but ``ValueError``, or answers with anything but text. Cancelling it ends the
        validator that runs, unless that is sync.
        """
        turn = checkpoint.turn
        context = OutputContext(
            session_id=self._session_id,
            turn=turn.id if turn is not None else "",
            agent=self._agent.name,
            identity=checkpoint.identity,
            author=turn.author if turn is not None else "",
        )
        for validator in self._agent.output_validators:
            arguments = (context, output) if takes_context(validator) else (output,)
            wrong = await self._verdict(validator, arguments)
            if wrong:
                return wrong
        return ""

    async def _verdict(self, validator: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
        name = getattr(validator, "__name__", type(validator).__name__)
        running: Running[Any] = begin(
            name, lambda: validator(*arguments), {}, is_async=makes_coroutine(validator), then=lambda answer: answer
        )
        try:
            await asyncio.wait([running.ended])
        except asyncio.CancelledError:
            running.cancel()
            if makes_coroutine(validator):
                await asyncio.wait([running.ended], timeout=LETTING_GO_SECONDS)
            raise
        error = running.ended.exception()
        if isinstance(error, ValueError | AssertionError):
            return said(error) or f"{name} doesn't accept it"
        if error is not None:
            raise ValidatorFailed(f"the output validator {name} failed: {words(error)}") from error
        verdict = running.ended.result()
        if verdict is not None and not isinstance(verdict, str):
            raise ValidatorFailed(f"the output validator {name} answered with {type(verdict).__name__}, not with None or a text")
        return said(verdict or "")
