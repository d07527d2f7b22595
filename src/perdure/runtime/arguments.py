"""What calls are, or were, called with."""

from __future__ import annotations

from typing import Any

from ..core import ids
from ..core.checkpoint import Operation, Turn
from ..core.entries import MessageAdded, OperationEnded, OperationPlanned, RequestClosed, ToolCalled
from ..core.journal import open_entry
from ..core.messages import ToolCall
from ..store.base import Loaded
from .context import resolve_parts
from .messages import read_entries
from .scope import Scope

__all__ = ["Arguments", "called_by"]


def called_by(receipt: OperationEnded) -> str:
    """The id that the model gave the call; empty for what is none of its calls."""
    return getattr(receipt.parts[0], "id", getattr(receipt.parts[0], "call", "")) if receipt.parts else ""


class Arguments(Scope):
    """The part of `Sessions` that looks up arguments."""

    async def _step_calls(self, head: Loaded, turn: Turn) -> dict[str, ToolCall]:
        """The calls of the running step, by their ids; or the one that somebody wants outside of the conversation."""
        return await self._calls(head, turn.began if turn.calls else turn.answer)

    async def _calls(self, head: Loaded, receipt: int) -> dict[str, ToolCall]:
        """The calls of one answer, by the id that the model gave them; a provider may use it again in the next answer."""
        answer = await self._entry(head, receipt)
        parts = await resolve_parts(answer.parts, self._fetcher(head.row)) if isinstance(answer, OperationEnded | ToolCalled) else ()
        return {part.id: part for part in parts if isinstance(part, ToolCall)}

    async def _arguments(self, head: Loaded, calls: dict[str, ToolCall], item: Operation) -> Any:
        """What an operation of the running step is called with: the model's arguments, or those of who approved it."""
        edited = await self._entry(head, item.edited) if item.edited else None
        if isinstance(edited, RequestClosed | OperationPlanned):
            return edited.arguments
        return calls[item.plan.call].arguments if item.plan.call in calls else None

    async def _called_with(self, head: Loaded, receipt: OperationEnded, answers: dict[int, dict[str, ToolCall]]) -> Any:
        """The arguments behind a receipt: those of the answer before it, or of who approved the call. ``answers`` are known already."""
        store, no, turn = self._runtime.store, head.row.no, ids.began(receipt.operation)
        before, answer = receipt.seq, None
        outside = ids.is_outside(receipt.operation)
        while answer is None and not outside:
            rows = await read_entries(store, no, after=turn, before=before, kinds=("message",), newest_first=True, limit=4)
            if not rows:
                return None
            messages = [open_entry(row) for row in rows]
            answer = next((item for item in messages if isinstance(item, MessageAdded) and item.role == "assistant"), None)
            before = messages[-1].seq
        asked = turn if answer is None else answer.receipt
        changed = await read_entries(
            store,
            no,
            after=turn if answer is None else answer.seq,
            before=receipt.seq,
            kinds=("request_closed", "operation_planned"),
            newest_first=True,
        )
        for entry in map(open_entry, changed):
            if isinstance(entry, RequestClosed | OperationPlanned) and entry.operation == receipt.operation and entry.arguments is not None:
                return entry.arguments
        if asked not in answers:
            answers[asked] = await self._calls(head, asked)
        call = answers[asked].get(called_by(receipt))
        return call.arguments if call is not None else None
