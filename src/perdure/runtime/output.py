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
from ..tools.running import Running, ToolCancelled, begin, makes_coroutine
from .clock import Clock, SystemClock, first_of
from .steps import LETTING_GO_SECONDS

__all__ = ["VALIDATOR_SECONDS", "Outputs", "Wrong"]

VALIDATOR_SECONDS = 60.0
"""How long a validator may take: the session is held by its process meanwhile, and so is what its turn drew from a pool."""


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

    def __init__(self, agent: Agent, session_id: str, clock: Clock) -> None:
        self._agent = agent
        self._session_id = session_id
        self._clock = clock

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

        Raises `ValidatorFailed` where one raises anything but ``ValueError``, answers with anything but text, or takes longer than
        `VALIDATOR_SECONDS`. Cancelling it ends the validator that runs, unless that is sync; one that takes too long is ended too.
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
        is_async = makes_coroutine(validator)
        running: Running[Any] = begin(name, lambda: validator(*arguments), {}, is_async=is_async, then=lambda answer: answer)
        # A clock that jumps whenever nothing is to be done here knows nothing of a thread.
        clock = self._clock if is_async else SystemClock()
        try:
            await first_of(clock, running.ended, seconds=VALIDATOR_SECONDS)
        finally:
            if not running.done:
                running.cancel()
                if is_async:
                    await asyncio.wait([running.ended], timeout=LETTING_GO_SECONDS)
        if not running.done or isinstance(running.ended.exception(), ToolCancelled):
            raise ValidatorFailed(f"the output validator {name} failed: no verdict within {VALIDATOR_SECONDS:g} s")
        error = running.ended.exception()
        if isinstance(error, ValueError | AssertionError):
            return said(error) or f"{name} doesn't accept it"
        if error is not None:
            raise ValidatorFailed(f"the output validator {name} failed: {words(error)}") from error
        verdict = running.ended.result()
        if verdict is not None and not isinstance(verdict, str):
            raise ValidatorFailed(f"the output validator {name} answered with {type(verdict).__name__}, not with None or a text")
        return said(verdict or "")
