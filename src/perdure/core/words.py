"""What code and people outside of perdure say, as text that can be stored."""

from __future__ import annotations

__all__ = ["MESSAGE_LIMIT", "said", "words"]

MESSAGE_LIMIT = 2_000
"""The most that is kept of what somebody else said about a failure (characters)."""


def said(what: object, limit: int | None = MESSAGE_LIMIT) -> str:
    """Text, whatever ``str`` does with the object: a surrogate pair becomes its character, a lone one a replacement character."""
    try:
        text = str.__str__(str(what))
    except BaseException:
        # Also what is no `Exception`: an object that is being told of may not end whoever tells.
        return f"({type(what).__name__}, which can't be put into words)"
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text if limit is None else text[:limit]


def words(error: BaseException | None) -> str:
    """What was raised, and what it says."""
    return f"{type(error).__name__}: {said(error)}"[:MESSAGE_LIMIT]
