"""What became of submissions."""

from __future__ import annotations

from ..agent import Agent
from ..core.entries import MessageAdded, OperationEnded, OperationStarted, QueueChanged, SubmissionRefused, TurnEnded
from ..core.errors import StoreCorrupt
from ..core.journal import open_entry
from ..store.base import Loaded
from .context import CONTEXT_KINDS, Context
from .messages import read_entries
from .model_calls import model_calls
from .names import check_id
from .result import Result, refused, result_of, typed, withdrawn
from .scope import Scope

__all__ = ["Results"]


class Results(Scope):
    """The part of `Sessions` that is about how turns ended."""

    async def result(self, session_id: str, submission: str, *, agent: Agent | None = None) -> Result | None:
        """What became of a submission's turn; None while it is unfinished.

        ``agent``: its output is what that agent's ``output_type`` reads; without, it is plain data. Raises `SubmissionRejected` if it was
        refused, and `SessionArchived` if that was because the session was archived; `OutputInvalid` if the agent can't read it, and
        `UsageError` for what can't be a submission.
        """
        check_id(submission, "a submission id")
        head = await self._head(session_id)
        row = await self._runtime.store.submission(head.row.no, submission)
        if row is None or row.settled_seq is None:
            return None
        result = await self._result_at(head, row.settled_seq)
        return result if result is None or agent is None else typed(result, agent)

    async def _result_at(self, head: Loaded, seq: int) -> Result | None:
        entry = await self._entry(head, seq)
        if isinstance(entry, SubmissionRefused):
            raise refused(head.row.session_id, entry)
        if isinstance(entry, QueueChanged):
            raise withdrawn()
        if not isinstance(entry, TurnEnded):
            return None
        started = entry.began
        rows = await read_entries(
            self._runtime.store, head.row.no, after=started, before=seq + 1, kinds=(*CONTEXT_KINDS, OperationStarted.kind, entry.kind)
        )
        if not rows or rows[-1].seq != seq:
            # Where the end is, so is what it is the end of: a deletion takes the latest first.
            raise StoreCorrupt(f"entry {seq} is missing", hint="run `perdure verify`")
        context = Context(self._fetcher(head.row))
        opened = [open_entry(row) for row in rows[:-1]]
        answers = [item for item in opened if isinstance(item, MessageAdded) and item.role == "assistant"]
        receipts = {item.seq: item for item in opened if isinstance(item, OperationEnded)}
        if answers:
            await context.add([receipts[answers[-1].receipt], answers[-1]])
        return result_of(head.row.session_id, entry, context.latest_since(started), tuple(model_calls(opened)))
