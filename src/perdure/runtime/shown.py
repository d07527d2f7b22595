"""What models see where that is not what people see: notes in place of a conversation's beginning, excerpts in place of long results.

All of it follows from the journal, so that a restart finds the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..core import canonical
from ..core.context import READ_LIMIT, READ_RESULT, cut
from ..core.messages import REDACTED, Message, Part, Text, ToolCall, ToolCallResponse

__all__ = [
    "behind_notes",
    "excerpt",
    "handle",
    "handle_of",
    "is_boundary",
    "is_kept",
    "is_since",
    "kept_ranges",
    "notes_message",
    "retained_from",
    "slice_of",
    "told_call",
]

HEAD, TAIL = 2_000, 1_000
"""How much of a long result's beginning and end a model sees (bytes; cut between characters)."""


def told_call(call: Part, response: Part) -> str:
    """What a model is told of a call that somebody had made outside of its conversation: what it was, and what it came to."""
    if not isinstance(response, ToolCallResponse):
        return f"The tool {getattr(call, 'name', '')} was called outside of this conversation. Result: {REDACTED}"
    arguments = canonical.encode(call.arguments).decode() if isinstance(call, ToolCall) else REDACTED
    came = "Error" if response.is_error else "Result"
    name = getattr(call, "name", "") or response.name
    result = cut(canonical.as_text(response.response))
    return f"The tool {name} was called outside of this conversation with {cut(arguments)}. {came}: {result}"


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
    text = canonical.as_text(part.response)
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
    text = canonical.as_text(response)
    start = min(max(0, offset), len(text))
    end = min(len(text), start + min(max(1, length), READ_LIMIT))
    return {"text": text[start:end], "offset": start, "end": end, "total": len(text)}


def notes_message(notes: str) -> Message:
    """The message that stands for everything that notes summarise."""
    return Message(role="user", parts=(Text(f"[Notes of the conversation so far; what they summarise is not shown any more]\n\n{notes}"),))


def retained_from(messages: Sequence[Message], began: int) -> int:
    """The index from which no message may be summarised: what people said last in the turn that began at the seq ``began``, and the
    latest batch of calls of that turn before it."""
    index = len(messages)
    while index and messages[index - 1].role == "user" and (is_since(messages[index - 1], began) or messages[index - 1].position < 0):
        index -= 1
    if index > 1 and messages[index - 1].role == "tool" and is_since(messages[index - 1], began):
        index -= 2
    return index


def is_boundary(messages: Sequence[Message], index: int) -> bool:
    """Whether the messages can be cut there: no call stands without its response."""
    return index == 0 or not messages[index - 1].tool_calls


def behind_notes(messages: Sequence[Message], notes: Message, index: int, began: int) -> list[Message]:
    """What models see once notes stand for the messages before ``index``: those that people said in the running turn are kept."""
    return [notes, *_kept(messages, index, began), *messages[index:]]


def kept_ranges(messages: Sequence[Message], index: int, began: int) -> tuple[tuple[int, int], ...]:
    """The positions [start, stop) that `behind_notes` keeps of what is summarised."""
    ranges: list[tuple[int, int]] = []
    for message in _kept(messages, index, began):
        if ranges and ranges[-1][1] == message.position:
            ranges[-1] = (ranges[-1][0], message.position + 1)
        else:
            ranges.append((message.position, message.position + 1))
    return tuple(ranges)


def _kept(messages: Sequence[Message], index: int, began: int) -> list[Message]:
    """What of the messages before ``index`` outlives its summary. What was said in a turn comes last: it costs what that is."""
    found: list[Message] = []
    while index:
        index -= 1
        message = messages[index]
        if message.position >= 0 and not is_since(message, began):
            break
        if is_kept(message, began):
            found.append(message)
    return found[::-1]


def is_kept(message: Message, began: int) -> bool:
    """Whether a message outlives its summary: people said it in the turn that began at the seq ``began``."""
    return message.role == "user" and message.position >= 0 and is_since(message, began)


def is_since(message: Message, seq: int) -> bool:
    """Whether a message came with an entry of the session's own, at ``seq`` or behind it: what a fork took over has another's seqs."""
    return not message.session and message.seq >= seq
