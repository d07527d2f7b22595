"""What stands in a context in place of something longer, as far as rules know of it: excerpts of results, and notes."""

from __future__ import annotations

from collections.abc import Sequence

from .messages import Part, StoredPart, ToolCall

__all__ = ["ARCHIVE_LEAST", "NOTES_LIMIT", "NOTES_TOOL", "READ_LIMIT", "READ_RESULT", "cut", "notes_in"]

READ_RESULT = "read_result"
"""The built-in tool that brings back any part of a result of which a model sees an excerpt."""

NOTES_TOOL = "save_notes"
"""The one tool that the writer of a compaction's notes is offered."""

NOTES_LIMIT = 21_000
"""The longest notes that stand for what they summarise (bytes)."""

READ_LIMIT = 10_000
"""The most that one call of `READ_RESULT` brings back (characters)."""

ARCHIVE_LEAST = 4_000
"""The smallest result that can be made an excerpt (bytes): below that the excerpt would be as long."""

TOLD = 2_000
"""How much a model is told, in a note, of the arguments or the result of a call (characters)."""


def cut(text: str) -> str:
    """A text that a model is told of in passing: its beginning, and how much more there is."""
    return text if len(text) <= TOLD else f"{text[:TOLD]}… ({len(text) - TOLD} characters more)"


def notes_in(parts: Sequence[Part]) -> str:
    """The notes that a writer saved; empty if it did anything but save one text of at most `NOTES_LIMIT` bytes."""
    saved = None
    for part in parts:
        if type(part) is ToolCall or (type(part) is StoredPart and part.call):
            if saved is not None or type(part) is not ToolCall or part.name != NOTES_TOOL:
                return ""
            saved = part
    if saved is None:
        return ""
    arguments = saved.arguments
    notes = arguments.get("notes") if isinstance(arguments, dict) else None
    if not isinstance(notes, str) or not notes.strip() or len(notes.encode()) > NOTES_LIMIT:
        return ""
    return notes
