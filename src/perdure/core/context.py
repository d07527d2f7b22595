"""What models see where that is not what people see: excerpts in place of long results.

All of it follows from the journal, so that a restart finds the same bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from . import canonical
from .messages import ToolCallResponse

__all__ = [
    "ARCHIVE_LEAST",
    "READ_LIMIT",
    "READ_RESULT",
    "excerpt",
    "handle",
    "handle_of",
    "slice_of",
    "text_of_response",
]

READ_RESULT = "read_result"
"""The built-in tool that brings back any part of a result of which a model sees an excerpt."""

READ_LIMIT = 10_000
"""The most that one call of `READ_RESULT` brings back (characters)."""

ARCHIVE_LEAST = 4_000
"""The smallest result that can be made an excerpt (bytes): below that the excerpt would be as long."""

HEAD, TAIL = 2_000, 1_000
"""How much of a long result's beginning and end a model sees (bytes; cut between characters)."""


def text_of_response(response: Any) -> str:
    """A result as text: what `excerpt` cuts and `READ_RESULT` counts characters of."""
    return response if isinstance(response, str) else canonical.encode(response).decode()


def handle(number: int, index: int) -> str:
    """What a model calls a result by: the number of its message, counted through the whole conversation, and its place in there."""
    return f"{number}.{index}"


def handle_of(text: str) -> tuple[int, int] | None:
    """Number and place that a `handle` names; None if it is none."""
    number, _, index = text.strip().partition(".")
    if not (number.isascii() and number.isdecimal() and index.isascii() and index.isdecimal() and max(len(number), len(index)) <= 15):
        return None
    return int(number), int(index)


def excerpt(part: ToolCallResponse, name: str) -> ToolCallResponse:
    """What a model sees of an archived result. The same bytes for ever: they are part of a prefix that providers cache."""
    text = text_of_response(part.response)
    data = text.encode()
    if len(data) <= HEAD + TAIL:
        # Much of what was stored were escapes.
        return part
    head = data[:HEAD].decode(errors="ignore")
    tail = data[-TAIL:].decode(errors="ignore")
    first, last = len(head), len(text) - len(tail)
    left_out = (
        f"\n[… characters {first} to {last} of {len(text)} are left out here; "
        f'{READ_RESULT}(handle="{name}", offset={first}, length=…) reads them …]\n'
    )
    return msgspec.structs.replace(part, response=head + left_out + tail)


def slice_of(response: Any, offset: int, length: int) -> dict[str, Any]:
    """A part of a result, and where it stands: what `READ_RESULT` returns."""
    text = text_of_response(response)
    start = min(max(0, offset), len(text))
    end = min(len(text), start + min(max(1, length), READ_LIMIT))
    return {"text": text[start:end], "offset": start, "end": end, "total": len(text)}
