"""What archived results hold, brought back from the journal."""

from __future__ import annotations

from typing import Any

from ..core.entries import EffectSettled, MessageAdded, OperationEnded
from ..core.layout import Layout
from ..core.messages import ToolCallResponse
from ..store.base import Store
from ..tools.running import ToolError
from .context import Fetch, resolve_parts
from .messages import Messages, read_entry
from .shown import handle_of, slice_of

__all__ = ["find_message", "read_archived"]


async def find_message(store: Store, no: int, number: int) -> MessageAdded | None:
    """A session's message by its number."""
    [seq] = await store.seek(no, [number])
    entry = None if not number or seq is None else await read_entry(store, no, seq)
    return entry if isinstance(entry, MessageAdded) and entry.number == number else None


async def read_archived(store: Store, messages: Messages, layout: Layout, fetch: Fetch, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a call of the tool that reads archived results returns. Raises `ToolError` where its handle names nothing, and `StoreError`.

    A message that a fork took over keeps the number that it has where it was written.
    """
    named = handle_of(arguments["handle"])
    no, message = messages.no, None
    holding = () if named is None else [piece.session for piece in layout.pieces if piece.start <= named[0] < piece.stop]
    for session in sorted(holding):
        no = await messages.number(session)
        message = await find_message(store, no, named[0] if named is not None else 0)
        if message is not None and message.role == "tool":
            break
    if named is None or message is None or message.role != "tool" or named[1] >= len(message.responses):
        raise ToolError(f"there is no result {arguments['handle']!r}; an excerpt says what its result is called, such as 12.0")
    entry = await read_entry(store, no, message.responses[named[1]].receipt)
    parts = await resolve_parts(entry.parts, fetch) if isinstance(entry, OperationEnded | EffectSettled) else ()
    response = next((part for part in parts if isinstance(part, ToolCallResponse)), None)
    if response is None:
        raise ToolError(f"the result {arguments['handle']!r} is gone")
    return slice_of(response.response, arguments["offset"], arguments["length"])
