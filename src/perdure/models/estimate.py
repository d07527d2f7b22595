"""How many tokens a request has, before anybody counted them.

The estimate is what can be known everywhere and costs nothing: bytes of UTF-8, at so many bytes per token, rounded up. Where a model knows
its tokenizer (a method ``count`` from text to tokens), that counts the texts instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..core import canonical
from ..core.messages import Blob, Message, Part, Private, Reasoning, Text, ToolCall, ToolCallResponse, Uri
from .base import ToolSpec

__all__ = ["BYTES_PER_TOKEN", "DEFAULT_WINDOW", "IMAGE_TOKENS", "Estimate", "reserve_of"]

BYTES_PER_TOKEN = 4.0
"""English text and code have 3.5 to 4.5 with today's tokenizers, other scripts fewer."""

DEFAULT_WINDOW = 128_000
"""The window of a model that doesn't say how large it is (tokens)."""

IMAGE_TOKENS = 1_500
"""What an image or a linked file counts: about what providers charge for a picture of a million pixels."""

WRAPPING_TOKENS = 4
"""What a message and each of its parts take besides what they say."""


def reserve_of(window: int) -> int:
    """How much of a window stays free for the answer (tokens)."""
    return max(1, min(window // 8, 16_384))


class Estimate:
    """Sizes in units that can be added up, and the tokens that a sum of them makes.

    ``count`` makes tokens of a text; without it a unit is a byte, and ``ratio`` of them are a token.
    """

    def __init__(self, count: Callable[[str], int] | None = None, ratio: float = BYTES_PER_TOKEN) -> None:
        self._count = count
        self._ratio = 1.0 if count is not None else ratio
        self._wrapping = self.units(WRAPPING_TOKENS)

    def tokens(self, units: int) -> int:
        """The tokens that so many units make, rounded up."""
        return -int(-units // self._ratio)

    def units(self, tokens: int) -> int:
        """The most units that are no more than so many tokens."""
        return int(tokens * self._ratio)

    def message(self, message: Message, group: str | None) -> int:
        """What a message takes. A provider's private parts count for routes of their ``group`` only."""
        return self.extend([0], (message,), group)[1]

    def extend(self, sums: list[int], messages: Iterable[Message], group: str | None, private_from: int = -1) -> list[int]:
        """Add to running sums what further messages take; private parts count from the position ``private_from`` on."""
        total, part_of, wrapping = sums[-1], self._part, self._wrapping
        for message in messages:
            whose = group if message.position >= private_from else None
            total += wrapping
            for part in message.parts:
                total += part_of(part, whose)
            sums.append(total)
        return sums

    def around(self, instructions: str, tools: Iterable[ToolSpec]) -> int:
        """What stands around the messages: instructions, and what the model is told of its tools."""
        told = [self._text(tool.name) + self._text(tool.description) + self._data(tool.parameters) for tool in tools]
        return self._text(instructions) + sum(told)

    def _part(self, part: Part, group: str | None) -> int:
        # The three kinds that nearly all are of come first, by their exact types: ten thousand may have to be measured at once.
        if type(part) is Text:
            return self._text(part.content) + self._wrapping
        if type(part) is ToolCallResponse:
            response = part.response
            return (self._text(response) if isinstance(response, str) else self._data(response)) + self._wrapping
        if type(part) is ToolCall:
            return self._text(part.name) + self._data(part.arguments) + self._wrapping
        match part:
            case Private(group=owner, data=data):
                return self._data(data) if owner == group else 0
            case Reasoning():
                # People read it; models are sent its private form, if any.
                return 0
            case Uri(uri=uri, mime_type=mime_type) if uri.startswith("data:") and not (mime_type or uri[5:]).startswith("image/"):
                size = self._text(uri)
            case Uri() | Blob():
                size = self.units(IMAGE_TOKENS)
            case _:
                size = 0
        return size + self._wrapping

    def _data(self, value: Any) -> int:
        return canonical.length(value) if self._count is None else self._count(canonical.encode(value).decode())

    def _text(self, text: str) -> int:
        if self._count is not None:
            return self._count(text)
        return len(text) if text.isascii() else len(text.encode())
