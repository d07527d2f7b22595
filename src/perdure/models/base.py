"""What perdure asks of a model, whoever provides it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from ..core.messages import Message, Part
from ..core.usage import Usage

__all__ = [
    "Delta",
    "Finish",
    "Model",
    "ModelOutput",
    "ModelRequest",
    "ModelSettings",
    "OutputSpec",
    "Purpose",
    "ReasoningDelta",
    "TextDelta",
    "ToolSpec",
]

Finish: TypeAlias = Literal["stop", "tool_calls", "length", "refusal"]
Purpose: TypeAlias = Literal["answer", "notes", "memory", "repair"]


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as a model is told of it; ``parameters`` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


class OutputSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer has to be, as a model is told of it; ``schema`` is a JSON Schema object."""

    name: str
    schema: dict[str, Any]


MEDIA_BYTES = 40 * 1024 * 1024
"""How many bytes of media one request may hold unless its settings say otherwise: two of the largest that are taken."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the model is to answer; ``None`` leaves it to the provider. ``extra`` goes into the provider's request as it is.

    ``media_bytes`` is how many bytes of media one request may hold, each counted as often as it stands there, before base64.

    The rest is not for the provider. ``timeout`` (seconds) is how long one attempt may take, 600 if None; then it is cut off and tried
    again. ``attempts`` is how often a call is tried at most. If None, 15 times while its provider is away or wants fewer requests, which
    takes 6.7 minutes; and 5 times, over 3 seconds, where another route may answer instead, or what it answers is no good.
    ``longest_wait`` (seconds) is how long a pause may be that the provider asks for, 300 if None. Where another route may answer, it is
    asked instead of a pause of more than 5 seconds.
    """

    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: str | None = None
    media_bytes: int = MEDIA_BYTES
    timeout: float | None = None
    attempts: int | None = None
    longest_wait: float | None = None
    extra: dict[str, Any] = {}


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one call depends on. ``step`` counts the turn's model calls from 0; a repeated attempt has the same step.

    Parts are whole here: what the journal set aside is back in place. ``Private`` parts of other groups are not in it. ``content`` holds
    the bytes of every `Blob` by its digest, those of tool responses included. ``before`` counts the answers that it doesn't hold any
    more. For the ``purpose`` *notes* the answer is one call that saves them, for *memory* a JSON array of what is worth remembering, for
    *repair* the ``repair``-th corrected answer, without calls. ``output`` is what an answer without calls has to be; None is text.
    """

    instructions: str
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    settings: ModelSettings = ModelSettings()
    route: str = ""
    step: int = 0
    session_id: str = ""
    purpose: Purpose = "answer"
    before: int = 0
    content: Mapping[str, bytes] = {}
    output: OutputSpec | None = None
    repair: int = 0

    @property
    def answers(self) -> int:
        """How many answers came before it, shown or not: the position in a conversation, whichever process asks. It takes as long as those
        that are shown are many."""
        return self.before + [message.role for message in self.messages].count("assistant")


class TextDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Text that was just written. A live view only: it has no seq, and a new attempt replaces the deltas of the one before."""

    text: str
    operation: str = ""
    attempt: int = 0
    index: int = 0


class ReasoningDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Readable reasoning that was just written; as live as `TextDelta`."""

    text: str
    operation: str = ""
    attempt: int = 0
    index: int = 0


Delta: TypeAlias = TextDelta | ReasoningDelta


class ModelOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. ``usage`` None means that the provider reported none; ``model`` is the name that it says it ran."""

    parts: tuple[Part, ...]
    finish: Finish = "stop"
    usage: Usage | None = None
    model: str = ""


@runtime_checkable
class Model(Protocol):
    """Something that answers requests.

    ``name`` is its route's name. Routes of one ``group`` understand each other's private reasoning. It may say how many tokens a request
    may have (``window``, an int or None), and count them itself (``count``, a function from text to tokens, or None).
    """

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelOutput]:
        """Deltas as they come, then exactly one `ModelOutput`, the last item.

        Raises a `ProviderError` whose ``retryable`` and ``retry_after`` say whether the same request may be tried again. It never
        retries by itself: attempts are journal entries. Closing the iterator, or cancelling the task, closes the connection.
        """
        ...
