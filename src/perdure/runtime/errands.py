"""What sessions owe to each other: children are begun and stopped, and tell their parents what they came to.

Every errand is a submission with an id that follows from its operation, so that whoever does it again does it once. Nothing here runs
agent code: a session's holder does its errands, or whoever made the commit that left them, or who finds them left.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import msgspec

from ..core import checkpoint as checkpoints
from ..core import ids
from ..core.checkpoint import Checkpoint
from ..core.commands import Archive, Interrupt, PostMessage, ReportOutcome, Withdraw
from ..core.entries import (
    MessageAdded,
    OperationPlanned,
    OperationStarted,
    QueueChanged,
    RequestClosed,
    SessionCreated,
    SubmissionRefused,
    TurnEnded,
)
from ..core.errors import NothingChanged, PerdureError, SessionHalted, SessionNotFound, StoreCorrupt, SubmissionConflict, SubmissionRejected
from ..core.evolve import evolve
from ..core.journal import GENESIS, open_entry
from ..core.messages import Source, Text, ToolCall
from ..core.phase import children as called
from ..core.records import Ending, Errand, Failure, Parent, Plan
from ..core.reports import ErrandsDone
from ..core.usage import Totals
from ..store.base import Catalogue, Committed, Loaded, NewSession, SessionRow
from .arguments import Arguments
from .batch import TRIES, Batch, parked, seal_all
from .door import checked
from .keeping import Keeping
from .messages import read_entries
from .result import Result
from .results import Results

__all__ = ["Done", "Errands"]

_log = logging.getLogger("perdure.runtime")

PAGE = 64


class Done(msgspec.Struct, frozen=True):
    """Errands that were done, and calls for children that can't be begun."""

    errands: tuple[Errand, ...] = ()
    failed: tuple[tuple[str, Failure], ...] = ()


class Errands(Keeping, Arguments, Results):
    """Does what sessions owe to each other, whoever they belong to."""

    async def run(self, session_id: str, *, quietly: bool = False) -> bool:
        """Do what a session that nobody holds owes to others. False: nothing was done; its holder will, or it is halted.

        ``quietly``: what keeps it from being done is logged, and whoever looks at the session next tries again.
        """
        try:
            return await self._run_all(session_id)
        except PerdureError as error:
            if not quietly:
                raise
            _log.warning("what %s owes to other sessions could not be done yet: %s", session_id, error)
            return False

    async def _run_all(self, session_id: str) -> bool:
        store, did = self._runtime.store, False
        for _ in range(TRIES):
            head = await store.load(session_id)
            if head is None or head.row.holder is not None or head.row.status in ("halted", "stuck"):
                return did
            checkpoint = checkpoints.decode(head.row.checkpoint)
            if not checkpoint.errands:
                return did
            done = await self.perform(session_id, checkpoint)
            batch = Batch(head, checkpoint, now=max(self._runtime.clock.now(), head.now))
            batch.apply(ErrandsDone(errands=done.errands, failed=done.failed, at=batch.now))
            status, wake_at = parked(batch.checkpoint, await store.inbox(head.row.no), batch.now)
            commit = batch.commit(holder=None, inbox_head=head.row.inbox_head, status=status, wake_at=wake_at)
            if isinstance(await store.commit(commit), Committed):
                did = True
                self._runtime.news.committed_elsewhere(session_id, batch)
        return did

    async def perform(self, session_id: str, checkpoint: Checkpoint) -> Done:
        """Do them, without saying so in the session itself."""
        head = await self._head(session_id)
        failed: list[tuple[str, Failure]] = []
        for errand in checkpoint.errands:
            child = ids.child_session(session_id, errand.operation)
            match errand.kind:
                case "begin":
                    failure = await self._begin(head, checkpoint, errand.operation, child)
                    if failure is not None:
                        failed.append((errand.operation, failure))
                case "stop":
                    failure = await self._stop(head, checkpoint, errand.operation, child)
                    if failure is not None:
                        failed.append((errand.operation, failure))
                case "away":
                    await self._put_child_away(head, errand.operation, child)
                case "tell":
                    await self._tell(head, checkpoint, errand)
        return Done(checkpoint.errands, tuple(failed))

    # ---------------------------------------------------------------------------------------------------------------- to children

    async def _child(self, head: Loaded, child: str) -> Loaded | None:
        """A child that was begun. A session of that name that is somebody else's is none."""
        found = await self._runtime.store.load(child)
        if found is None or (found.row.parent, found.row.parent_kind) != (head.row.session_id, "child"):
            return None
        return found

    async def _begin(self, head: Loaded, checkpoint: Checkpoint, operation: str, child: str) -> Failure | None:
        plan, arguments = await self._called(head, operation)
        task = arguments.get("task") if isinstance(arguments, dict) else None
        post = PostMessage(
            parts=(Text(content=str(task)),),
            author=checkpoint.agent,
            source=Source(kind="parent", name=checkpoint.agent, id=f"{head.row.session_id}/{operation}"),
            submission=ids.derived_id("task", operation),
            limits=plan.allowance,
        )
        try:
            await self._send(child, checked(post), create=self._new_child(head, checkpoint, operation, plan, child))
        except (SessionNotFound, SubmissionConflict) as error:
            if await self._child(head, child) is not None and not isinstance(error, SubmissionConflict):
                # It was archived, or is being deleted; whoever did that told its parent, or will.
                return None
            return Failure(code="child_lost", message=f"the session {child!r} can't be used for it: {error}")
        return None

    def _new_child(self, head: Loaded, checkpoint: Checkpoint, operation: str, plan: Plan, child: str) -> NewSession:
        depth = checkpoint.parent.depth if checkpoint.parent is not None else 0
        parent = Parent(session=head.row.session_id, operation=operation, name=plan.name, depth=depth + 1, background=plan.background)
        entry = SessionCreated(
            seq=1,
            at=self._runtime.clock.now(),
            session_id=child,
            root=head.row.root,
            agent=plan.agent,
            identity=checkpoint.identity,
            metadata=checkpoint.metadata,
            parent=parent,
        )
        return NewSession(
            root=head.row.root,
            parent=head.row.session_id,
            parent_kind="child",
            owner=checkpoint.identity.owner,
            entries=seal_all([entry], chain=GENESIS, session_id=child),
            checkpoint=checkpoints.encode(evolve(Checkpoint(), entry)),
            catalogue=Catalogue(status="queued", wake_at=None, title="", labels={}, agent=plan.agent),
        )

    async def _called(self, head: Loaded, operation: str) -> tuple[Plan, Any]:
        """What an operation is, and what it was called with; its turn may be over. Raises `StoreCorrupt` if the journal doesn't say."""
        store, no, began = self._runtime.store, head.row.no, ids.began(operation)
        plan, started, edited, before = None, 0, None, head.row.version + 1
        kinds = ("operation_started", "operation_planned", "request_closed")
        # Backwards from the end: what is to be begun was decided lately. It was started last, and planned or edited before.
        while plan is None or not started:
            rows = await read_entries(store, no, after=began, before=before, kinds=kinds, newest_first=True, limit=PAGE)
            if not rows:
                raise StoreCorrupt(f"the journal doesn't say what the operation {operation} is", hint="run `perdure verify`")
            before = rows[-1].seq
            for entry in map(open_entry, rows):
                if getattr(entry, "operation", "") != operation:
                    continue
                if isinstance(entry, OperationStarted):
                    started, plan = entry.seq, entry.plan
                elif isinstance(entry, OperationPlanned):
                    plan, edited = plan or entry.plan, edited if edited is not None else entry.arguments
                elif isinstance(entry, RequestClosed):
                    edited = edited if edited is not None else entry.arguments
        if edited is None:
            edited = await self._asked_with(head, plan.call, began, started)
        return plan, edited

    async def _asked_with(self, head: Loaded, call: str, began: int, before: int) -> Any:
        """The arguments that a model gave its call in the answer before an entry."""
        rows = await read_entries(
            self._runtime.store, head.row.no, after=began, before=before, kinds=(MessageAdded.kind,), newest_first=True, limit=PAGE
        )
        for message in map(open_entry, rows):
            if isinstance(message, MessageAdded) and message.role == "assistant":
                asked = (await self._calls(head, message.receipt)).get(call)
                return asked.arguments if isinstance(asked, ToolCall) else None
        return None

    async def _stop(self, head: Loaded, checkpoint: Checkpoint, operation: str, child: str) -> Failure | None:
        """A task that waits never begins, and one that was begun is interrupted: in this order, so that it can't begin in between."""
        if await self._child(head, child) is None:
            # Somebody may be about to begin it; this is the same beginning.
            await self._begin(head, checkpoint, operation, child)
        if await self._child(head, child) is None:
            return Failure(code="child_lost", message=f"there is no session {child!r} to stop")
        withdraw = Withdraw(message=ids.derived_id("task", operation), submission=ids.derived_id("withdraw", operation))
        interrupt = Interrupt(reason=f"{head.row.session_id} needs it no more", submission=ids.derived_id("stop", operation))
        for command in (withdraw, interrupt):
            try:
                await self._control(child, checked(command))
            except SubmissionRejected:
                # It doesn't wait any more, or doesn't run.
                continue
            except (SessionNotFound, SessionHalted):
                # Nothing runs in it.
                return None
        return None

    async def _put_child_away(self, head: Loaded, operation: str, child: str) -> None:
        if await self._child(head, child) is None:
            return
        command = Archive(reason=f"{head.row.session_id} was archived", submission=ids.derived_id("away", operation))
        try:
            await self._put_away_or_back(child, command)
        except (SessionNotFound, SessionHalted, NothingChanged):
            return

    # ----------------------------------------------------------------------------------------------------------------- to the parent

    async def _tell(self, head: Loaded, checkpoint: Checkpoint, errand: Errand) -> None:
        parent, ended = checkpoint.parent, await self._entry(head, errand.seq)
        if parent is None or not isinstance(ended, TurnEnded | SubmissionRefused | QueueChanged):
            raise StoreCorrupt(f"{head.row.session_id!r} owes the outcome of entry {errand.seq} to nobody", hint="run `perdure verify`")
        result = await self._result_at(head, errand.seq) if isinstance(ended, TurnEnded) else None
        reason = "it never began" if result is None else "" if result.ok else result.reason
        if result is not None and result.failure is not None:
            reason = result.failure.message
        told = _told(checkpoint.agent, result, reason)
        outcome: Ending = "aborted" if result is None else result.status
        spent = ended.usage if isinstance(ended, TurnEnded) else Totals()
        command = _outcome(parent.operation, head.row.session_id, outcome, spent, told=told, reason=reason, background=parent.background)
        try:
            if parent.background:
                await self._report_behind(head, checkpoint, parent, told)
            await self._control(parent.session, checked(command))
        except (SessionNotFound, SubmissionConflict) as error:
            # Archived and deleted parents wait for nothing.
            _log.info("%s can't be told what %s came to: %s", parent.session, head.row.session_id, error)

    async def tell_of_deleted(self, row: SessionRow) -> None:
        """Tell whoever waits for a halted child that it is deleted: it can't say itself how it ended."""
        assert row.parent is not None
        caller = await self._runtime.store.load(row.parent)
        if caller is None:
            return
        waiting = checkpoints.decode(caller.row.checkpoint)
        operation = next((item for item in called(waiting) if ids.child_session(row.parent, item) == row.session_id), None)
        if operation is None:
            return
        try:
            turn = checkpoints.decode(row.checkpoint).turn
            spent = Totals() if turn is None else turn.usage
        except StoreCorrupt:
            # Nobody knows what it was.
            spent = Totals(calls=1, unknown_calls=1)
        behind = any(item.operation == operation for item in waiting.background)
        told = f"the agent {row.agent} was deleted before it came to an end; what it did so far stays done"
        command = _outcome(operation, row.session_id, "aborted", spent, told=told, reason="it was deleted", background=behind)
        with suppress(SessionNotFound, SubmissionConflict):
            await self._control(row.parent, checked(command))

    async def _report_behind(self, head: Loaded, checkpoint: Checkpoint, parent: Parent, told: str) -> None:
        """A message of the agent's: it joins the turn that runs, or begins one. No person said it."""
        source = Source(kind="agent", name=checkpoint.agent, id=head.row.session_id)
        text = f"The task that was given to {checkpoint.agent} in the background by {parent.operation} came to this:\n\n"
        post = PostMessage(
            parts=(Text(content=text + told),),
            deliver="steer",
            author=source.name,
            source=source,
            submission=ids.derived_id("report", parent.operation),
        )
        await self._send(parent.session, checked(post))


def _outcome(operation: str, child: str, outcome: Ending, spent: Totals, *, told: str, reason: str, background: bool) -> ReportOutcome:
    """What a call of an agent came to. What one in the background has to say is a message."""
    return ReportOutcome(
        operation=operation,
        session=child,
        outcome=outcome,
        spent=spent,
        result=None if background else told,
        reason="" if background else reason,
        submission=ids.derived_id("outcome", operation),
    )


def _told(agent: str, result: Result | None, reason: str) -> str:
    """What the caller's model reads."""
    if result is None:
        return f"the agent {agent} never began"
    if result.ok:
        return result.text
    words = f"the agent {agent} did not come to an end: {result.status}" + (f" ({reason})" if reason else "")
    return f"{words}; what it did so far stays done" + (f". Its last words: {result.text}" if result.text else "")
