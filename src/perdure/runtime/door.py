"""How a command comes to its session: applied by its sender where nobody holds that, else left in the inbox."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import takewhile

import msgspec

from ..core import checkpoint as checkpoints
from ..core import commands, ids
from ..core.checkpoint import Checkpoint
from ..core.commands import (
    Answer,
    Archive,
    CallTool,
    Command,
    EditMessage,
    Interrupt,
    PostMessage,
    ReportOutcome,
    ReportResult,
    Revive,
    RunCommand,
)
from ..core.entries import OperationEnded, OperationStarted, SubmissionRefused
from ..core.errors import InvalidMessage, QueueFull, SessionArchived, StaleRequest, StoreCorrupt, StoreError, UsageError
from ..core.journal import open_entry
from ..core.rules.requests import check_decision
from ..store.base import AlreadyThere, Committed, Conflict, InboxRow, Loaded, NewSession, NoSession, QueueIsFull, Send, StoredBlob
from .about import REASON_LIMIT, check_text
from .batch import TRIES, Batch, receipt_row
from .control import commit_by_sender, is_control, promote_steers, take_control, take_row
from .halting import halted
from .ledger import Ledger
from .messages import PAGE, read_entries, read_entry
from .names import check_id, conflict
from .scope import Scope, missing, put_away

__all__ = ["Door", "Submission", "checked"]

_log = logging.getLogger("perdure.runtime")

OWN_CODE = (RunCommand.kind, CallTool.kind)
"""The kinds of commands that only a process with the agent's code can carry out."""

ATTEMPTS = (OperationStarted.kind, OperationEnded.kind)
"""The entries that tell of an attempt; one that came from another system only says how it ended."""

COMMAND_LIMIT = 900 * 1024
"""The longest body of a command: the entry that takes it up holds little more, and is limited as well (bytes)."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A durable submission. ``arrival`` counts the session's submissions; ``duplicate``: it was there before."""

    id: str
    arrival: int
    duplicate: bool


class Door(Scope):
    """The part of `Sessions` that takes commands."""

    async def _send(
        self,
        session_id: str,
        command: Command,
        *,
        not_before: int | None = None,
        create: NewSession | None = None,
        blobs: Sequence[StoredBlob] = (),
    ) -> Submission:
        check_id(session_id, "a session id")
        store, body = self._runtime.store, commands.encode(command)
        answer = await store.send(
            Send(
                session_id=session_id,
                submission_id=command.submission,
                kind=command.kind,
                at=self._runtime.clock.now() if create is None else create.entries[0].at,
                not_before=not_before,
                actor=command.actor,
                digest=commands.digest_of(command.kind, body),
                body=body,
                patient=isinstance(command, ReportResult | ReportOutcome),
                urgent=command.kind not in commands.WAITING,
                owner=self._owner,
                blobs=tuple(blobs),
                create=create,
            )
        )
        match answer:
            case Conflict():
                raise conflict(command)
            case QueueIsFull():
                raise QueueFull(
                    f"{answer.pending} submissions wait in {session_id!r}", hint="let it work, or start another session", limit="pending"
                )
            case NoSession(archived=True):
                raise put_away(session_id)
            case NoSession(halted=True):
                raise halted(session_id)
            case NoSession():
                raise missing(session_id, self._owner, deleted=answer.deleted)
        self._runtime.news.notice(session_id, sure=True)
        return Submission(id=answer.row.submission_id, arrival=answer.row.arrival, duplicate=answer.duplicate)

    async def _first_sent(self, session_id: str, submission: str | None) -> Loaded | None:
        """The session that something is to be sent to; None where that was sent before, so that it isn't judged anew."""
        head = await self._head(session_id)
        again = submission is not None and await self._runtime.store.submission(head.row.no, submission) is not None
        return None if again else head

    async def _control(
        self, session_id: str, command: Command, *, late: StaleRequest | None = None, blobs: Sequence[StoredBlob] = ()
    ) -> Submission:
        """Apply a command at once where nobody holds the session, else leave it to the holder. ``blobs`` is content that it brings.

        ``late`` is what is known to speak against an answer: it is refused with it, in the journal too.
        """
        command = checked(command)
        for _ in range(TRIES):
            head = await self._head(session_id)
            row, now = head.row, max(self._runtime.clock.now(), head.now)
            earlier = await self._runtime.store.submission(row.no, command.submission)
            if earlier is not None:
                if earlier.digest != commands.digest(command):
                    raise conflict(command)
                if isinstance(command, Answer) and earlier.consumed_seq is not None:
                    await self._check_taken(head, earlier.consumed_seq)
                if late is not None:
                    raise late
                return Submission(id=earlier.submission_id, arrival=earlier.arrival, duplicate=True)
            if row.status == "archived" and not isinstance(command, ReportResult):
                raise put_away(session_id)
            if row.status == "halted":
                # A late result waits for the repair; nothing else is taken.
                return await self._send(session_id, command, blobs=blobs)
            checkpoint = checkpoints.decode(row.checkpoint)
            if isinstance(command, Answer) and late is None:
                _check_answer(checkpoint, command, now)
            if isinstance(command, ReportResult) and not checkpoint.archived and checkpoint.operation(command.operation) is None:
                await self._check_began(head, command)
            waiting = await self._runtime.store.inbox(row.no)
            if command.kind in OWN_CODE or row.holder is not None or row.status == "stuck" or any(map(is_control, waiting)):
                try:
                    sent = await self._leave(session_id, command, blobs)
                except SessionArchived:
                    if not isinstance(command, ReportResult):
                        raise
                    # It was put away meanwhile, and what a call came to is taken all the same: in the sender's own commit.
                    continue
                if late is not None:
                    raise late
                return sent
            if (applied := await self._apply(head, checkpoint, command, waiting, now, blobs, late=late is not None)) is not None:
                return applied
        return await self._leave(session_id, command, blobs)

    async def _leave(self, session_id: str, command: Command, blobs: Sequence[StoredBlob] = ()) -> Submission:
        """Leave a command to the holder. Where that let the session go before it came, and won't see it, apply what waits."""
        sent = await self._send(session_id, command, blobs=blobs)
        try:
            await self._take_left(session_id)
        except StoreCorrupt:
            raise
        except StoreError as error:
            # It is durable, and whoever looks at the session next takes it up: an error would have it sent again.
            _log.warning("what was sent to %s could not be taken up yet: %s", session_id, error)
        return sent

    async def _take_left(self, session_id: str) -> None:
        store = self._runtime.store
        for _ in range(TRIES):
            head = await store.load(session_id)
            if head is None or head.row.holder is not None or head.row.status in ("stuck", "halted", "archived"):
                return
            waiting = await store.inbox(head.row.no)
            # In their order: what the agent's own code must carry out waits for who has it, and whatever came later with it.
            left = [*takewhile(lambda row: row.kind not in OWN_CODE, filter(is_control, waiting))]
            if not left:
                return
            batch = Batch(head, checkpoints.decode(head.row.checkpoint), now=max(self._runtime.clock.now(), head.now))
            ledger = Ledger(store, head.row.no)
            await ledger.load()
            for row in left:
                await take_row(batch, ledger, waiting, row)
            batch.pass_time(batch.now)
            promote_steers(batch, waiting)
            if isinstance(await commit_by_sender(self._runtime, batch, None, waiting), Committed):
                return

    async def _check_taken(self, head: Loaded, seq: int) -> None:
        """Raises `StaleRequest` if an answer that was sent before came too late."""
        entry = await read_entry(self._runtime.store, head.row.no, seq)
        if isinstance(entry, SubmissionRefused) and entry.failure.code == StaleRequest.code:
            raise StaleRequest(entry.failure.message, hint="`perdure show` lists what was asked and answered")

    async def _check_began(self, head: Loaded, command: ReportResult) -> None:
        """Raises `StaleRequest` for what an attempt came to that the journal never had."""
        after = ids.began(command.operation)
        while after:
            rows = await read_entries(self._runtime.store, head.row.no, after=after, kinds=ATTEMPTS, limit=PAGE)
            for entry in map(open_entry, rows):
                assert isinstance(entry, OperationStarted | OperationEnded)
                if (entry.operation, entry.attempt) == (command.operation, command.attempt):
                    return
            after = rows[-1].seq if rows else 0
        raise StaleRequest(
            f"{head.row.session_id!r} never began attempt {command.attempt} of {command.operation!r}",
            hint="nothing was changed; a store that was restored from a backup doesn't know of what came later",
        )

    async def _apply(
        self,
        head: Loaded,
        checkpoint: Checkpoint,
        command: Command,
        waiting: list[InboxRow],
        now: int,
        blobs: Sequence[StoredBlob],
        *,
        late: bool,
    ) -> Submission | None:
        """The sender's own commit. None: somebody was faster.

        Raises the `Refused` of what the state says no to, and writes nothing but, where it comes too ``late``, that.
        """
        command = msgspec.structs.replace(command, at=now)
        batch = Batch(head, checkpoint, now=now)
        batch.keep(blobs)
        ledger = Ledger(self._runtime.store, head.row.no)
        if isinstance(command, ReportResult):
            await ledger.load()
        # What ran out of time before was over when this came.
        batch.pass_time(now)
        await take_control(batch, ledger, waiting, command)
        # What became of an effect is a fact, kept even where it comes too late, and so is who decided second; any other leaves no trace.
        if (refusal := batch.refusals.get(command.submission)) is not None:
            if checkpoint.archived:
                raise put_away(head.row.session_id)
            if not (late or isinstance(command, ReportResult | ReportOutcome)):
                if await self._runtime.store.submission(head.row.no, command.submission) is not None:
                    # Somebody who sent the very same was faster, and it is refused for what that did.
                    return None
                raise refusal
        seq = batch.consumed[command.submission]
        arrival = head.row.inbox_head + 1
        row = receipt_row(command, arrival=arrival, at=now, seq=seq)
        batch.consumed.pop(command.submission)
        batch.settled.pop(command.submission, None)
        promote_steers(batch, waiting)
        answer = await commit_by_sender(self._runtime, batch, row, waiting)
        match answer:
            case Committed() if late and refusal is not None:
                raise refusal
            case Committed():
                return Submission(id=command.submission, arrival=arrival, duplicate=False)
            case AlreadyThere():
                return Submission(id=command.submission, arrival=answer.row.arrival, duplicate=True)
            case _:
                return None


def checked(command: Command) -> Command:
    """A command that can be kept, and taken up by whoever reads it. Raises `UsageError` or `InvalidMessage`."""
    check_id(command.submission, "a submission id")
    check_text(command.actor, "actor")
    if isinstance(command, Interrupt | Answer | Archive | Revive):
        check_text(command.reason, "reason", REASON_LIMIT)
    command, body = commands.checked(command)
    size = 0 if isinstance(command, ReportResult | ReportOutcome) else len(body)
    if size > COMMAND_LIMIT:
        told = InvalidMessage if isinstance(command, PostMessage | EditMessage) else UsageError
        raise told(f"a submission of kind {command.kind!r} with {size} bytes is too long", hint=f"at most {COMMAND_LIMIT} bytes are taken")
    return command


def _check_answer(checkpoint: Checkpoint, command: Answer, now: int) -> None:
    """Raises what the stored checkpoint has to say against an answer."""
    asked = next((item for item in checkpoint.requests if item.request == command.request_id), None)
    if asked is None:
        raise StaleRequest(f"request {command.request_id} is not open", hint="`perdure show` lists what was asked and answered")
    if 0 < asked.deadline <= now:
        # Whoever looks at the session next closes it; its wake_at is that deadline.
        raise StaleRequest(f"request {command.request_id} ran out of time", hint=f"its deadline says {asked.default!r}")
    check_decision(asked, command)
