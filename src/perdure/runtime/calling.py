"""A session's tools called outside of its conversation."""

from __future__ import annotations

from typing import Any

import msgspec

from ..agent import Agent
from ..core import canonical, ids
from ..core import checkpoint as checkpoints
from ..core.commands import CallTool
from ..core.entries import EffectSettled, NoteAdded, OperationEnded
from ..core.errors import SessionBusy, StoreCorrupt, SubmissionRejected, UsageError
from ..core.journal import open_entry
from ..core.messages import Blob, ToolCallResponse
from ..core.records import Failure, Status
from ..store.base import Loaded
from .context import resolve_parts
from .door import Door, Submission, checked
from .halting import check_not_halted
from .messages import read_entries
from .names import check_id, submission_id
from .result import Result
from .transcripts import check_idle

__all__ = ["Calling", "ToolOutcome"]


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a call outside of a conversation came to, as the receipt ``seq`` says, or what settled that since.

    ``status`` is ``succeeded``, ``failed``, ``uncertain`` (it may have had its effect) or ``cancelled`` (it had none); ``failure`` says
    why. ``result`` is what the model is told, too.
    """

    session_id: str
    submission: str
    turn: str
    operation: str
    seq: int
    status: Status
    result: Any = None
    is_error: bool = False
    media: tuple[Blob, ...] = ()
    failure: Failure | None = None


class Calling(Door):
    """The part of `Sessions` that calls tools."""

    async def call_tool(
        self,
        session_id: str,
        agent: Agent,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        submission: str | None = None,
        actor: str = "",
    ) -> ToolOutcome:
        """Have one of the agent's tools called outside of the conversation, and wait for what it comes to.

        No model is asked for anything. All else is as with a model's call: the session's and the agent's policies and the effect guard
        have their say, middleware too; intent and receipt are committed around the effect; a crash in the middle leaves an external call
        uncertain and has others go on, here or wherever the session is taken up. It waits while a person is asked; cancelling it only
        stops the waiting. The transcript stays what it is; the next model call is told once, by a note, of the call and its outcome.

        Calling again under the same ``submission`` is calling once: the stored outcome comes back. Raises, and nothing is stored:
        `SessionBusy` while a turn runs, `SessionArchived`, `SessionHalted`, `SessionNotFound`, `UsageError`; `SubmissionConflict`, and
        `SubmissionRejected` if it was refused on its way.
        """
        if not isinstance(agent, Agent):
            raise UsageError(f"agent must be an Agent, not {type(agent).__name__}", hint="the one that has the tool")
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            raise UsageError(f"arguments must be an object, not {type(arguments).__name__}")
        command = checked(
            CallTool(
                name=check_id(name, "the name of a tool"),
                arguments=canonical.check(arguments, "arguments"),
                submission=submission_id(submission),
                actor=actor,
            )
        )

        async def send() -> Submission:
            head = await self._head(session_id)
            if await self._runtime.store.submission(head.row.no, command.submission) is None:
                check_not_halted(head.row)
                check_idle(head, checkpoints.decode(head.row.checkpoint))
            return await self._control(session_id, command)

        # Refused before anything here is taken up for it.
        await self._head(session_id)
        try:
            result = await self._runtime.finish(session_id, agent, send, command.submission)
        except SubmissionRejected as refusal:
            if refusal.facts.get("reason") == SessionBusy.code:
                raise SessionBusy(refusal.message, hint="wait for the turn's end, and call again under another submission") from None
            raise
        return await self._outcome(await self._head(session_id), result)

    async def _outcome(self, head: Loaded, result: Result) -> ToolOutcome:
        store, no = self._runtime.store, head.row.no
        rows = await read_entries(store, no, after=ids.began(result.turn), kinds=(NoteAdded.kind,))
        told = next((entry for entry in map(open_entry, rows) if isinstance(entry, NoteAdded) and entry.receipt), None)
        receipt = await self._entry(head, told.receipt) if told is not None else None
        if told is None or not isinstance(receipt, OperationEnded | EffectSettled) or ids.owner_of(told.operation) != result.turn:
            raise StoreCorrupt(f"the call {result.turn} has no receipt", hint="run `perdure verify`")
        later = await read_entries(store, no, after=told.receipt, kinds=(EffectSettled.kind,)) if receipt.status == "uncertain" else []
        for entry in map(open_entry, later):
            if isinstance(entry, EffectSettled) and entry.receipt == told.receipt:
                receipt = entry
        parts = await resolve_parts(told.parts or receipt.parts, self._fetcher(head.row))
        response = parts[0] if parts else None
        shown = response if isinstance(response, ToolCallResponse) else None
        return ToolOutcome(
            session_id=head.row.session_id,
            submission=result.submission,
            turn=result.turn,
            operation=told.operation,
            seq=receipt.seq,
            status=receipt.status,
            result=None if shown is None else shown.response,
            is_error=shown is not None and shown.is_error,
            media=() if shown is None else shown.media,
            failure=receipt.failure if isinstance(receipt, OperationEnded) else None,
        )
