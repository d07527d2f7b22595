"""One session's life in this process: decide, commit, perform, and decide again.

The road of every message leads through `Driver.advance`: what ended and what was sent is decided in `core.decider`, committed once, and
only then performed. Nothing is performed that is not committed, and nothing is told to anybody before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ..agent import Agent
from ..agent.definition import compatible, describe, difference
from ..agent.middleware import Continue, Reject, Stop
from ..core import canonical, commands, reports
from ..core import checkpoint as checkpoints
from ..core.checkpoint import Checkpoint, Compacted, Operation, Turn, phase, reviewing
from ..core.commands import Compact, Interrupt, PostMessage, ReportResult, RunCommand, SelectRoute
from ..core.entries import (
    Entry,
    Failure,
    MessageAdded,
    Metadata,
    OperationStarted,
    PrefixChanged,
    Redacted,
    RequestRecord,
    Rewritten,
    SessionChanged,
    TurnEnded,
    TurnEnding,
)
from ..core.errors import (
    DefinitionChanged,
    Fenced,
    LimitExceeded,
    MiddlewareError,
    MissingRoute,
    SessionArchived,
    SessionNotFound,
    SessionStuck,
    StoreCorrupt,
)
from ..core.journal import Sealed, open_entry
from ..core.reports import (
    Accept,
    AttemptEnded,
    Claimed,
    CommandDone,
    EndEarly,
    EndTurn,
    Fail,
    Finish,
    Redefined,
    ResultsReviewed,
    RouteGiven,
    StepPrepared,
    StopTurn,
    TimePassed,
)
from ..core.transcript import Transcript
from ..models.base import Delta
from ..models.router import Router
from ..store.base import Claim, Commit, Committed, Held, InboxMoved, InboxRow, Loaded, NoSession, Stale, StoredBlob
from .about import read_metadata
from .batch import Batch, parked
from .calls import Calls
from .context import CONTEXT_KINDS, Context, stored_content
from .control import decode_row, is_control, promote_steers, take_control
from .excerpts import read_archived
from .hooks import Additions, Fault, Hooks, Said
from .ledger import Ledger
from .lineage import Lineage
from .messages import Messages, read_entries
from .perform import Outcome, Performer
from .prepare import Preparation, Prepared, content
from .steps import Steps
from .work import Work

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["STUCK_CLAIMS", "Driver"]

STUCK_CLAIMS = 5
"""After so many takeovers without progress the session waits for a person."""


INBOX_RETRIES = 3
"""After so many submissions that came in between, a turn ends without asking whether there are more."""

ELSEWHERE_MS = 250
"""How often a session that another process runs is looked at again, besides the store's notices."""

PAGE = 2_000
"""How many entries of a long session are read at once."""

NOTHING_SAID = Said()

GAVE_WAY = Failure(code="gave_way", message="cut short, because somebody said something meanwhile")
"""What the model reads instead of the result of a call that gave way."""

State: TypeAlias = Literal["again", "working", "parked", "elsewhere"]

_log = logging.getLogger("perdure.runtime")


class Driver:
    """Holds one session while there is something to do, for one agent."""

    def __init__(self, runtime: Runtime, session_id: str, agent: Agent) -> None:
        self.runtime = runtime
        self.session_id = session_id
        self.agent = agent
        self.store = runtime.store
        self.clock = runtime.clock
        self.feed = runtime.feed(session_id)
        self.router: Router = runtime.router(agent)
        self.interest = 0
        self.errand = False
        self.error: Exception | None = None
        self.ran_a_turn = False
        self.lingering: list[asyncio.Task[None]] = []
        self.forced = False
        self.given_route: str | None = None
        self.head: Loaded | None = None
        self.checkpoint = Checkpoint()
        self.held = False
        self._definition = describe(agent)
        self._described = content(canonical.encode(self._definition))
        self._context = Context(self._blob, for_models=True)
        self._noted = Metadata()
        self._read_to = 0
        self._added = 0
        self._rows: list[InboxRow] = []
        self._seen_head = 0
        self._dirty = True
        self._moved = 0
        self._unannounced = False
        self._taken = 0
        self.ledger = Ledger(self.store)
        self._calls = Calls(session_id, agent, self._context, self._blob)
        self._preparation = Preparation(agent, self.router, self._context, self.ledger, session_id, self._keep)
        self._performer = Performer(
            session_id=session_id,
            store_id=self.store.store_id,
            secret=self.store.secret,
            clock=self.clock,
            deltas=self._delta,
            late=self._late,
            fetch=self._blob,
        )
        self._wake = asyncio.Event()
        self._work = Work(
            agent,
            self.router,
            self._performer,
            self._calls,
            self.ledger,
            wake=self._wake.set,
            keep=runtime.keep,
            late=self._late,
            archived=self._read_archived,
        )
        self._steps = Steps(
            checkpoint=lambda: self.checkpoint,
            ledger=self.ledger,
            fetch=self._blob,
            clock=self.clock,
            report=self._reported,
            wake=self._wake.set,
        )
        self._hooks = Hooks(
            session_id=session_id,
            store_id=self.store.store_id,
            agent=agent,
            clock=self.clock,
            ledger=self.ledger,
            fetch=self._blob,
            steps=self._steps,
            checkpoint=lambda: self.checkpoint,
            publish=self.feed.publish,
            wake=self._wake.set,
        )
        self._begun = not self._hooks.has("session_start", "session_end")
        self._starting: Said | None = None
        self._faults: list[Fault] = []
        self._fresh: dict[str, bytes] = {}
        self._steered: tuple[str, int, int] = ("", 0, 0)
        self._sent: tuple[str, RequestRecord] | None = None
        self._unfit: dict[str, Failure] = {}
        self._stored: set[str] = set()
        self._stopping = False
        self._grace_over = False

    # ------------------------------------------------------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Advance while somebody is interested, or until what was taken up is done. Ends with the error that made it impossible to go on.

        ``errand``: take up what there is, once, and end.
        """
        try:
            while self.held or self._wanted:
                state = await self.advance()
                if state == "again" and not self._waits_for_effects():
                    continue
                if state in ("parked", "elsewhere"):
                    self.errand = False
                    await self.runtime.look_for_results(self.session_id)
                if self.held or self.interest or state == "working":
                    await self._wait(state)
        except BaseException:
            self._abandon()
            raise
        finally:
            self._hooks.abandon()
            await self._hooks.end_session()

    @property
    def _wanted(self) -> bool:
        """Whether what nobody holds is to be taken up here."""
        return (self.interest > 0 or self.errand) and not self._stopping

    @property
    def occupied(self) -> bool:
        """Whether the session takes a slot: its turn runs, or somebody is interested and none has run yet."""
        return self.held or self._work.running or (self.interest > 0 and not self.ran_a_turn)

    def serves(self, agent: Agent) -> bool:
        """Whether this driver does what one for ``agent`` would do."""
        if agent is self.agent:
            return True
        # Equal definitions may still have other functions and models behind them; those of a turn that runs are as good.
        return (self.held or self.interest > 0) and describe(agent) == self._definition

    def answer_of(self, ended: TurnEnded) -> str:
        """The last answer of a turn that just ended."""
        return self._context.answer_since(ended.began)

    def notice(self, *, sure: bool = True) -> None:
        """Something may have been sent to the session. ``sure`` False: it may as well have been our own commit."""
        if self._unannounced and not sure:
            # Ours is announced too, once; its answer says what else arrived.
            self._unannounced = False
        elif sure or not self.held:
            self._dirty = True
            self._wake.set()
        elif self.runtime.notice_delay:
            asyncio.get_running_loop().call_later(self.runtime.notice_delay, self._look, self.head)
        else:
            self._look(self.head)

    def _look(self, head: Loaded | None) -> None:
        if head is self.head:
            self._dirty = True
            self._wake.set()

    def stop(self) -> None:
        """Start nothing more; what runs may end."""
        self._stopping = True
        self._wake.set()

    def stop_now(self) -> None:
        """The grace is over: what still runs is cancelled, and its outcome committed as it is known."""
        self._stopping = self._grace_over = True
        self._wake.set()

    async def advance(self) -> State:
        """At most one commit: everything that is known now, and the intents that follow from it."""
        if (error := self._work.error or self._hooks.error) is not None:
            raise error
        if not self.held:
            found = await self._find()
            if found is not None:
                return found
            if not self._begun and not self._begin():
                return "working"
        elif self._dirty:
            await self._read_inbox()
            await self._check_hold()
        if self.held and self._must_cancel():
            await self._cancel_all()
        elif self.held and (calls := self._giving_way()):
            await self._cut_short(calls)
        self._hooks.begin_pass()
        batch, claim = await self._decide()
        if claim is not None and not self._wanted:
            # Whoever wanted it went while we looked, and what was sent since is for others.
            self._forget_draft()
            return "parked"
        if claim is None and not batch.entries and not (self.held and not self._work.running and self._releases(batch)):
            self._forget_draft()
            self._hooks.end_pass(start=not self._stopping, keep=self._stopping)
            return "working"
        if claim is not None and not batch.entries and batch.checkpoint.turn is None and self._hooks.waits:
            # Whether a turn begins is not known yet, and until then nobody holds the session.
            self._forget_draft()
            self._hooks.end_pass(start=True)
            return "working" if self._hooks.running else "parked"
        self._hooks.end_pass(start=False, keep=self._stopping)
        return await self._commit(batch, claim)

    def _begin(self) -> bool:
        """Tell the agent's own code that the session is taken up here. False: it has not answered yet."""
        self._hooks.begin_pass()
        said = self._hooks.ask(("session_start",), partial(self._hooks.start_session, self.checkpoint))
        self._hooks.end_pass(start=True)
        if said is None:
            return False
        if said.fault is not None:
            raise _middleware_error(said.fault)
        self._begun, self._starting = True, said
        return True

    def _waits_for_effects(self) -> bool:
        """Whether nothing can be decided before what runs here ends, or something else happens."""
        return self._work.running and not (self._work.reports or self._rows or self._dirty or self._stopping)

    async def _wait(self, state: State) -> None:
        until = self._next_moment(state)
        if self._wake.is_set() or self._work.reports or self._work.error is not None:
            self._wake.clear()
            return
        if until is None:
            await self._wake.wait()
        else:
            timer = asyncio.ensure_future(self.clock.sleep_until(until))
            waker = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait([timer, waker], return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
                waker.cancel()
        self._wake.clear()

    def _next_moment(self, state: State) -> int | None:
        moments = [row.not_before for row in self._rows if row.not_before is not None and row.not_before > self.clock.now()]
        turn = self.checkpoint.turn
        moments += [moment for moment in self._hooks.held_back_until if moment > self.clock.now()]
        if state == "elsewhere":
            moments.append(self.clock.now() + ELSEWHERE_MS)
        elif turn is not None:
            moments += [item.deadline for item in turn.requests if item.deadline]
            moments += [item.not_before for item in turn.operations if item.status == "ready" and item.not_before]
        return min(moments, default=None)

    # ------------------------------------------------------------------------------------------------------- what is known

    async def _find(self) -> State | None:
        """Read the session. None: there is something to do, and it is free."""
        head = await self.store.load(self.session_id)
        if head is None and await self.store.buried(self.session_id):
            raise SessionNotFound(f"the session {self.session_id!r} was deleted", hint="its id can't be used again")
        if head is None:
            return "parked"
        row = head.row
        if row.status == "archived":
            raise SessionArchived(f"the session {self.session_id!r} is archived", hint="sessions.revive(…) takes it out again")
        self._take_head(head)
        await self._read_metadata()
        if row.holder is not None and head.holder_alive and row.holder != self.runtime.runner_id:
            return "elsewhere"
        if row.status == "stuck" and not self.forced:
            raise _stuck(self.session_id)
        await self._read_inbox()
        if not self._something_to_do(head.now):
            return "parked"
        self._check_route()
        if row.holder is not None and row.claims >= STUCK_CLAIMS and not self.forced:
            await self._park_stuck(head)
        await self._catch_up()
        return None

    def _take_head(self, head: Loaded) -> None:
        self.head = head
        self.runtime.known(head.row.no, self.session_id)
        self.ledger.no = head.row.no
        self.checkpoint = checkpoints.decode(head.row.checkpoint)
        if self.checkpoint.session_id != self.session_id:
            raise StoreCorrupt(f"the checkpoint of {self.session_id!r} is another session's", hint="run `perdure verify`")
        self._seen_head = head.row.inbox_head
        self._performer.identity, self._performer.turn = self.checkpoint.identity, self.checkpoint.turn

    async def _read_metadata(self) -> None:
        if self.checkpoint.metadata != self._noted:
            self._performer.metadata = await read_metadata(self.checkpoint.metadata, self._blob)
            self._noted = self.checkpoint.metadata

    def _something_to_do(self, now: int) -> bool:
        where = phase(self.checkpoint)
        if where not in ("idle", "waiting"):
            return True
        if any(map(is_control, self._rows)):
            return True
        turn = self.checkpoint.turn
        if turn is not None:
            return any(0 < item.deadline <= now for item in turn.requests)
        return any(self._is_due(row, now) for row in self._rows)

    @staticmethod
    def _is_due(row: InboxRow, now: int) -> bool:
        return row.not_before is None or row.not_before <= now

    async def _park_stuck(self, head: Loaded) -> None:
        batch = Batch(head, self.checkpoint, now=head.now)
        claim = Claim(runner=self.runtime.runner_id, force=head.row.holder == self.runtime.runner_id)
        await self.store.commit(batch.commit(holder=None, claim=claim, release=True, status="stuck"))
        raise _stuck(self.session_id)

    async def _read_inbox(self) -> None:
        assert self.head is not None
        self._dirty = False
        self._rows = await self.store.inbox(self.head.row.no)
        self._seen_head = max([self._seen_head, *(row.arrival for row in self._rows)])

    async def _check_hold(self) -> None:
        """Somebody did something here. Raises `Fenced` if they took the session: what runs must not go on until its own next commit."""
        assert self.head is not None
        now = await self.store.load(self.session_id)
        if now is None or (now.row.holder, now.row.fence) != (self.runtime.runner_id, self.head.row.fence):
            raise self._fenced("deleted" if now is None else "archived" if now.row.status == "archived" else "taken over")

    def _fenced(self, how: str) -> Fenced:
        return Fenced(
            f"the session {self.session_id!r} was {how}; this process's work on it ends",
            hint="results that arrive here are handed on, if anybody can take them",
        )

    async def _catch_up(self) -> None:
        """Read the messages that this process has not seen, and the effects whose outcome is unknown."""
        assert self.head is not None
        no, version = self.head.row.no, self.head.row.version
        if self._read_to < version:
            await self._forget_what_changed(no, version)
            compacted = self.checkpoint.compacted
            if compacted is not None and self._read_to < compacted.base:
                await self._begin_behind(compacted)
            await self._read_up_to(no, version)
            self._context.check(self.checkpoint.messages)
            self._context.accept()
            self._read_to = version
        await self.ledger.load(await self._lineage())

    async def _transcript(self) -> tuple[Messages, Transcript]:
        """Where the session's messages stand."""
        assert self.head is not None
        messages = Messages(self.store, self.head.row)
        laid = await messages.laid(self.checkpoint.transcript.base)
        return messages, Transcript.at(laid, self.checkpoint.number, self.checkpoint.revision)

    async def _lineage(self) -> Lineage | None:
        """What the session's past did, where its transcript may not show all of it."""
        if self.head is None or not self.checkpoint.transcript.base:
            return None
        _, transcript = await self._transcript()
        return Lineage(self.store, self.head.row, transcript.layout)

    async def _forget_what_changed(self, no: int, version: int) -> None:
        """What was read is not what stands there, if somebody edited the transcript or removed content meanwhile."""
        kinds = (Rewritten.kind, Redacted.kind)
        if self._read_to and await self.store.entries(no, after=self._read_to, before=version + 1, kinds=kinds, limit=1):
            self._context.reset()
            self._read_to = 0

    async def _begin_behind(self, compacted: Compacted) -> None:
        """Read what stands for the conversation's beginning, however long that is, and nothing else of it."""
        change = await self.ledger.entry(compacted.base)
        if not isinstance(change, PrefixChanged):
            raise StoreCorrupt(f"entry {compacted.base}, where the context begins, is none of a compaction", hint="run `perdure verify`")
        messages, transcript = await self._transcript()
        kept: list[tuple[int, Entry]] = []
        for start, stop in change.kept:
            position = start
            async for entries in messages.entries(transcript.layout.slice(start, stop)):
                kept += enumerate(entries, position)
                position += len(entries)
        latest: list[Entry] = []
        turn = self.checkpoint.turn
        if turn is not None and turn.output:
            answer = await self.ledger.entry(turn.output)
            latest = [await self.ledger.entry(getattr(answer, "receipt", 0)), answer]
        await self._context.begin(change, await self.ledger.entry(change.summary), kept, latest)
        place = self.checkpoint.transcript
        if change.upto < place.count:
            async for rows in messages.context(transcript.layout.slice(change.upto, place.count), place.base):
                await self._context.read(rows)
            self._read_to = place.base
        else:
            no = messages.no
            self._read_to = max(place.base, await self.store.seek(no, place.tail + change.upto - place.count) or 0)

    async def _read_up_to(self, no: int, version: int) -> None:
        """Page by page; the next is fetched while one is opened."""
        place = self.checkpoint.transcript
        after = self._read_to
        if place.base > after:
            messages, transcript = await self._transcript()
            async for rows in messages.context(transcript.layout.slice(0, place.count), place.base):
                await self._context.read(rows)
            after = place.base

        def fetch(after: int) -> asyncio.Task[list[Sealed]]:
            return asyncio.create_task(read_entries(self.store, no, after=after, before=version + 1, kinds=CONTEXT_KINDS, limit=PAGE))

        def appended(rows: list[Sealed]) -> list[Sealed]:
            # What was written in place of others stands where the layout says.
            return [row for row in rows if row.kind != MessageAdded.kind or row.number > place.tail]

        coming = fetch(after)
        try:
            while len(rows := await coming) == PAGE:
                coming = fetch(rows[-1].seq)
                await self._context.read(appended(rows))
            await self._context.read(appended(rows))
        finally:
            coming.cancel()

    async def _blob(self, digest: str) -> bytes:
        if digest in self._fresh:
            return self._fresh[digest]
        for _, blobs in self._work.reports:
            for blob in blobs:
                if blob.digest == digest:
                    return blob.data
        return await stored_content(self.store, self.checkpoint.root, digest)

    async def _read_archived(self, arguments: dict[str, Any]) -> dict[str, Any]:
        messages, transcript = await self._transcript()
        return await read_archived(self.store, messages, transcript.layout, self._blob, arguments)

    # ------------------------------------------------------------------------------------------------------------ deciding

    async def _decide(self) -> tuple[Batch, Claim | None]:
        """Receipts, then what people ask for, then what follows. The order of entries in a commit is the order of this function."""
        assert self.head is not None
        head = self.head
        now = max(self.clock.now(), head.now)
        batch = Batch(head, self.checkpoint, now=now)
        claim = None
        self._faults.clear()
        self._fresh.clear()
        # A result that somebody reported is a receipt, and known before anything is given up as lost.
        for row in self._rows:
            if row.kind == ReportResult.kind:
                batch.apply(TimePassed(at=row.at))
                await self._take_control(batch, row)
        if not self.held:
            # What this process still holds is what its work left behind that ended with an error.
            claim = Claim(runner=self.runtime.runner_id, force=head.row.holder == self.runtime.runner_id)
            await self._take_over(batch, head)
            if self._starting is not None:
                self._take_up(batch, self._starting)
        fence = head.row.fence + (claim is not None)
        self._taken = len(self._work.reports)
        for report, blobs in self._work.reports:
            batch.blobs.update({blob.digest: blob for blob in blobs})
            if isinstance(report, AttemptEnded) and not self.router.knows(batch.checkpoint.owner):
                report = msgspec.structs.replace(report, estranged=True)
            batch.apply(report)
        for row in self._rows:
            if row.submission_id in self._unfit:
                batch.refuse(row, self._unfit[row.submission_id])
            elif is_control(row) and row.submission_id not in batch.consumed:
                batch.apply(TimePassed(at=row.at))
                await self._take_control(batch, row)
        batch.apply(TimePassed(at=now))
        if claim is not None:
            self._give_route(batch)
        if self._steps.wanted and not self._stopping:
            self._steps.propose(batch, fence)
        await self._sync(batch)
        await self._plan_calls(batch, fence)
        await self._go_on(batch, fence)
        return batch, claim

    async def _take_control(self, batch: Batch, row: InboxRow) -> None:
        try:
            command = decode_row(row)
            if isinstance(command, RunCommand):
                self._run_command(batch, row, command)
            else:
                await take_control(batch, self.ledger, self._rows, command)
        except (LimitExceeded, StoreCorrupt) as error:
            # One row that can't be used must not keep the others waiting for ever.
            batch.refuse(row, Failure(code=error.code, message=str(error)))
        promote_steers(batch, self._rows)

    def _run_command(self, batch: Batch, row: InboxRow, command: RunCommand) -> None:
        """Have an extension carry out a command. Raises `LimitExceeded` where there is no room for what it keeps."""
        item = self._hooks.commanded(command)
        if item is None:
            message = f"the agent {self.agent.name!r} has no middleware {command.extension!r} with the command {command.command!r}"
            batch.refuse(row, Failure(code="unknown_command", message=message))
            return
        said = self._hooks.ask(("command", row.submission_id), partial(self._hooks.command, batch.checkpoint, item, command))
        if said is None:
            return
        if said.fault is not None:
            batch.refuse(row, said.fault.failure)
            return
        said.extend(batch)
        if batch.take(command, CommandDone(command=command, at=command.at)):
            batch.settled[command.submission] = batch.consumed[command.submission]

    def _take_up(self, batch: Batch, said: Said) -> None:
        """What was said when this process took the session up: it stops a turn that was running, and not the next one."""
        try:
            said.extend(batch)
        except LimitExceeded as error:
            fault = Fault(extension=self.agent.name, hook="session_start", message=str(error))
            raise _middleware_error(fault) from error
        if isinstance(said.value, Stop) and batch.checkpoint.turn is not None:
            batch.apply(StopTurn(reason=said.value.reason, extension=said.extension, at=batch.now))
            promote_steers(batch, self._rows)

    async def _take_over(self, batch: Batch, head: Loaded) -> None:
        turn = self.checkpoint.turn
        if turn is None or batch.checkpoint.turn is None:
            return
        await self._check_definition(batch)
        lost = head.row.holder is not None or any(item.status == "started" for item in turn.operations)
        batch.apply(Claimed(fence=head.row.fence + 1, on_restart=self.agent.on_restart, takeover=lost, at=batch.now))
        promote_steers(batch, self._rows)

    async def _check_definition(self, batch: Batch) -> None:
        turn = self.checkpoint.turn
        assert turn is not None
        if turn.definition == self._described.digest:
            return
        old = canonical.decode(await self._blob(turn.definition))
        changed = difference(old, self._definition)
        reasons: tuple[str, ...] = changed if self.agent.on_change == "same" else ()
        if self.agent.on_change == "compatible":
            open_calls = [item for item in turn.tools if item.status != "ended"]
            started = [item for item in open_calls if item.status in ("started", "unknown")]
            arguments = []
            for item in open_calls:
                tool = self.agent.tool(item.plan.name)
                if tool is not None:
                    arguments.append((tool, await self._calls.arguments(item, self.ledger)))
            reasons = compatible(old, self._definition, open_tools={item.plan.name for item in open_calls}, open_arguments=arguments)
            reasons += tuple(
                f"a call of {tool.name!r} that may have run was begun as {item.plan.effect}, and now it would be {tool.effect}"
                for item in started
                if (tool := self.agent.tool(item.plan.name)) is not None and tool.effect != item.plan.effect
            )
        if reasons:
            raise DefinitionChanged(
                f"the unfinished turn {turn.id} of {self.session_id!r} can't go on under this definition of {self.agent.name!r}: "
                + "; ".join(reasons),
                hint='finish it with the old code, interrupt it, or set on_change="any"',
                difference=changed,
                reasons=reasons,
            )
        archive = self.agent.archive or 0
        batch.apply(Redefined(new=self._described.digest, difference=changed, archive=archive, holds=self.agent.holds, at=batch.now))
        self._keep(batch, self._described)

    async def _sync(self, batch: Batch) -> None:
        """Let the context see what the batch decided so far."""
        if self._added < len(batch.entries):
            await self._context.add(batch.entries[self._added :])
            self._added = len(batch.entries)

    async def _go_on(self, batch: Batch, fence: int) -> None:
        """Everything that follows by itself, up to the next effects."""
        while True:
            await self._sync(batch)
            promote_steers(batch, self._rows)
            if not self._deliver_steers(batch):
                return
            where, turn = phase(batch.checkpoint), batch.checkpoint.turn
            if where == "completing":
                if not await self._finish(batch):
                    return
            elif where == "idle":
                known = self.given_route is not None or self.router.knows(batch.checkpoint.route)
                if self._stopping or not known or not self._next_turn(batch):
                    return
            elif where == "tools" and turn is not None and reviewing(turn):
                if not await self._review(batch):
                    return
            elif where == "tools" and turn is not None and not self._stopping:
                if not await self._calls.start(batch, self.ledger, fence):
                    return
            elif where == "model" and turn is not None and not self._stopping:
                open_calls = [item for item in (*turn.compactions, turn.model) if item is not None]
                if any(item.status == "started" or item.not_before > batch.now for item in open_calls):
                    return
                await self._sync(batch)
                if not await self._prepare(batch, fence):
                    return
            else:
                return

    def _deliver_steers(self, batch: Batch) -> bool:
        """Let steers join the turn. False: whether one does is not known yet."""
        if not self._rows:
            return True
        turn = batch.checkpoint.turn
        if turn is not None and (turn.compacts or turn.compactions):
            # What is being summarised doesn't change; steers come right behind the notes.
            return True
        if turn is None or turn.ending or self._hooks.about(turn.id):
            # What the agent's own code is asked about now is not to change under it; steers come right after.
            return True
        running = turn.model
        if phase(batch.checkpoint) not in ("model", "completing") or (running is not None and running.status == "started"):
            return True
        where = (turn.id, turn.step)
        if self._steered[:2] == where and self._steered[2] >= INBOX_RETRIES:
            # A flood of steers would have the same model call prepared for ever.
            return True
        taken = False
        for post in self._due_posts(batch):
            if not isinstance(post, PostMessage) or post.deliver != "steer":
                continue
            said = self._submitted(batch, post)
            if said is None:
                return False
            if said.fault is not None:
                self._fail(batch, said.fault.failure)
                promote_steers(batch, self._rows)
                return True
            if isinstance(said.value, Reject):
                row = next(row for row in self._rows if row.submission_id == post.submission)
                batch.refuse(row, Failure(code="rejected", message=said.value.reason))
                continue
            if not self._extend(batch, said):
                promote_steers(batch, self._rows)
                return True
            if batch.take(post, self._accept(post, batch.now)):
                batch.settled[post.submission] = batch.consumed[post.submission]
                taken = True
        if taken and self._hooks.has("before_model", "model_request"):
            self._steered = (*where, self._steered[2] + 1 if self._steered[:2] == where else 1)
        return True

    def _next_turn(self, batch: Batch) -> bool:
        post = next(self._due_posts(batch), None)
        if self._hooks.held_back("" if post is None else post.submission, batch.now) or post is None:
            return False
        if self._commanded_before(batch, post):
            return False
        said = self._submitted(batch, post)
        if said is None:
            return False
        if said.fault is not None:
            self._hooks.hold_back(post.submission, said.fault, batch.now)
            return False
        self._keep(batch, self._described)
        accept = self._accept(post, batch.now)
        if isinstance(said.value, Reject):
            facts = {name: getattr(accept, name) for name in accept.__struct_fields__}
            return batch.take(post, reports.Reject(**facts, reason=said.value.reason, extension=said.extension))
        self._give_route(batch)
        try:
            said.extend(batch)
        except LimitExceeded as error:
            self._hooks.hold_back(post.submission, Fault(extension=said.extension, hook="message_submit", message=str(error)), batch.now)
            return False
        return batch.take(post, accept)

    def _commanded_before(self, batch: Batch, post: PostMessage | Compact) -> bool:
        """Whether a command that was sent before a message is still to be carried out."""
        arrival = next(row.arrival for row in self._rows if row.submission_id == post.submission)
        waiting = (row for row in self._rows if row.kind == RunCommand.kind and row.submission_id not in batch.consumed)
        return any(row.arrival < arrival for row in waiting)

    def _submitted(self, batch: Batch, post: PostMessage | Compact) -> Said | None:
        """What the agent's own code says of a message at its boundary. None: nothing yet."""
        if not isinstance(post, PostMessage) or not self._hooks.has("message_submit"):
            return NOTHING_SAID
        turn = batch.checkpoint.turn
        key = ("message_submit", post.submission, commands.digest(post), f"in {turn.id}" if turn is not None else "")
        return self._hooks.ask(key, partial(self._hooks.submit, batch.checkpoint, post))

    def _extend(self, batch: Batch, said: Said) -> bool:
        """Write what goes with an outcome. False: there is no room for it, and the turn fails."""
        try:
            said.extend(batch)
        except LimitExceeded as error:
            self._fail(batch, Failure(code="hook_failed", message=f"what the agent's own code keeps or tells is too much: {error}"))
            return False
        return True

    def _fail(self, batch: Batch, failure: Failure) -> None:
        batch.apply(Fail(failure=failure, at=batch.now))

    async def _finish(self, batch: Batch) -> bool:
        """The turn ends, unless the agent's own code wants more of it. False: it has not said so yet."""
        turn = batch.draft.turn
        if turn.ending:
            return await self._end(batch, turn)
        if self._hooks.has("stop"):
            key = ("stop", turn.id, turn.step, turn.output)
            said = self._hooks.ask(key, partial(self._hooks.stop, batch.checkpoint, self._context.answer_since(turn.began)))
            if said is None:
                return False
            if said.fault is not None:
                self._fail(batch, said.fault.failure)
                return True
            if not self._extend(batch, said):
                return True
            if isinstance(said.value, Continue) and not turn.continued:
                batch.apply(reports.Continue(prompt=said.value.prompt, extension=said.extension, at=batch.now))
                return True
        batch.apply(Finish(at=batch.now))
        return True

    async def _end(self, batch: Batch, turn: Turn) -> bool:
        """The end that was decided, once the agent's own code was told."""
        ending = await self.ledger.entry(turn.ending, batch)
        assert isinstance(ending, TurnEnding)
        if self._hooks.has("turn_end"):
            said = self._hooks.ask(("turn_end", turn.id, turn.ending), partial(self._hooks.end_turn, batch.checkpoint, ending))
            if said is None:
                return False
            fault = said.fault
            try:
                said.extend(batch)
            except LimitExceeded as error:
                fault = Fault(extension=self.agent.name, hook="turn_end", message=str(error))
            if fault is not None and ending.outcome == "completed":
                batch.apply(StopTurn(reason=fault.words, extension=fault.extension, at=batch.now))
                return True
            if fault is not None:
                self._faults.append(fault)
        batch.apply(EndTurn(ending=ending, at=batch.now))
        return True

    async def _review(self, batch: Batch) -> bool:
        """Tell the model the results of its calls, as the agent's own code leaves them. False: it has not seen them yet."""
        turn = batch.draft.turn
        results = await self._calls.results(batch, self.ledger) if self._hooks.has("after_tool") else []
        said: Said | None = NOTHING_SAID
        if results:
            said = self._hooks.ask(("after_tool", turn.id, turn.step), partial(self._hooks.review, batch.checkpoint, results))
        if said is None:
            return False
        if said.fault is not None:
            self._fail(batch, said.fault.failure)
            return True
        replaced: dict[str, Any] = {}
        for operation, (parts, blobs) in (said.value or {}).items():
            replaced[operation] = parts
            batch.blobs.update({blob.digest: blob for blob in blobs})
            self._fresh.update({blob.digest: blob.data for blob in blobs})
        batch.apply(ResultsReviewed(replaced=replaced, at=batch.now))
        self._extend(batch, said)
        return True

    def _give_route(self, batch: Batch) -> None:
        if self.given_route is not None:
            batch.apply(RouteGiven(route=self.given_route, at=batch.now))

    def _due_posts(self, batch: Batch) -> Iterator[PostMessage | Compact]:
        """The messages that wait and may be delivered now, by arrival. A wish to compact waits like one."""
        for row in self._rows:
            if not is_control(row) and row.submission_id not in batch.consumed and self._is_due(row, batch.now):
                post = decode_row(row)
                assert isinstance(post, PostMessage | Compact)
                yield post

    def _accept(self, post: PostMessage | Compact, now: int) -> Accept:
        return Accept(
            post=post,
            agent=self.agent.name,
            definition=self._described.digest,
            route=self.given_route or self.router.default,
            limits=self.agent.limits,
            archive=self.agent.archive or 0,
            holds=self.agent.holds,
            at=now,
        )

    def _check_route(self) -> None:
        """A session goes on with the route that was chosen for it, or not at all."""
        checkpoint = self.checkpoint
        if self.given_route is not None or any(row.kind == SelectRoute.kind for row in self._rows):
            return
        if not checkpoint.route and (checkpoint.turns or checkpoint.turn is not None):
            raise MissingRoute("saved session has no model route", hint="give route=, or select one with sessions.select_route(…)")
        self.router.model(self._preparation.route(checkpoint))

    async def _prepare(self, batch: Batch, fence: int) -> bool:
        """Decide the next thing on the way to the step's model call. False: what somebody is to say is not known yet."""
        prepared = await self._preparation.prepare(batch)
        match prepared.then:
            case "write":
                if prepared.begins and not await self._stopped_by_hook(batch, "before_compaction", prepared):
                    return False
                if batch.checkpoint.turn is not None and phase(batch.checkpoint) == "model":
                    await self._preparation.write(batch, fence, prepared.upto)
            case "accept":
                if not await self._stopped_by_hook(batch, "after_compaction", prepared):
                    return False
                if batch.checkpoint.turn is not None and phase(batch.checkpoint) == "model":
                    return await self._use(batch, fence, prepared)
            case "start":
                return await self._prepare_step(batch, fence)
        self._work.requests = self._preparation.asked
        return True

    async def _stopped_by_hook(self, batch: Batch, when: Literal["before_compaction", "after_compaction"], prepared: Prepared) -> bool:
        """Let the agent's own code say that the turn ends here. False: it has not said anything yet."""
        if not self._hooks.has(when):
            return True
        turn = batch.draft.turn
        key = (when, turn.id, turn.step, prepared.upto, len(turn.compactions))
        said = self._hooks.ask(key, partial(self._hooks.compaction, when, batch.checkpoint))
        if said is None:
            return False
        if said.fault is not None:
            self._fail(batch, said.fault.failure)
        elif self._extend(batch, said) and isinstance(said.value, Stop):
            if prepared.then == "accept":
                self._preparation.accept(batch, prepared)
            # What was accepted by hand has completed its turn already.
            if phase(batch.checkpoint) == "model":
                batch.apply(EndEarly(reason=said.value.reason, at=batch.now))
        return True

    async def _use(self, batch: Batch, fence: int, prepared: Prepared) -> bool:
        """Let models see notes. Where the agent's own code has a say in the request that uses them, only once it has said it."""
        if batch.draft.turn.compacts or not self._hooks.has("before_model", "model_request"):
            self._preparation.accept(batch, prepared)
            return True
        return await self._prepare_step(batch, fence, prepared)

    async def _prepare_step(self, batch: Batch, fence: int, behind: Prepared | None = None) -> bool:
        """Start the step's model call, ``behind`` notes that nothing has accepted yet. False: what it is to say is not known yet."""
        additions: Additions | None = None
        if self._hooks.has("before_model", "model_request"):
            running = batch.draft.turn.model
            record = await self._record_of(running) if running is not None else None
            now = (batch.checkpoint.context, batch.checkpoint.epoch)
            if behind is None and record is not None and (record.context, record.epoch) == now:
                # The same request once more: what was said about it counts.
                additions = Additions.of(await self._blob(record.additions)) if record.additions else None
            else:
                said = self._asked_about_request(batch, behind)
                if said is None:
                    return False
                if said.fault is not None:
                    self._fail(batch, said.fault.failure)
                    return True
                if isinstance(said.value, Stop):
                    if self._extend(batch, said):
                        batch.apply(StopTurn(reason=said.value.reason, extension=said.extension, at=batch.now))
                    return True
                if behind is not None:
                    self._preparation.accept(batch, behind)
                if not self._extend(batch, said):
                    return True
                await self._sync(batch)
                additions = said.value
        said_of_it = content(additions.data) if additions is not None else None
        if said_of_it is not None:
            self._keep(batch, said_of_it)
        record = self._preparation.record(batch, said_of_it.digest if said_of_it is not None else "")
        request = self._preparation.request(batch)
        batch.apply(StepPrepared(request=record, fence=fence, at=batch.now))
        if batch.checkpoint.turn is not None and (operation := batch.checkpoint.turn.model) is not None:
            asked = request if additions is None else additions.request(request)
            self._work.requests = {operation.id: self._preparation.asks(batch, asked)}
            self._sent = (operation.id, record)
            # Code of the user's may add any message; else only a conversation that holds media is looked through.
            self._performer.media = self._context.has_media or additions is not None
        return True

    def _asked_about_request(self, batch: Batch, behind: Prepared | None) -> Said | None:
        turn = batch.draft.turn
        key = ("before_model", turn.id, turn.step, batch.checkpoint.context, batch.checkpoint.epoch, len(turn.compactions))
        request = self._preparation.request(batch, behind.shown if behind is not None else None)
        return self._hooks.ask(key, partial(self._hooks.prepare, batch.checkpoint, request))

    async def _record_of(self, operation: Operation) -> RequestRecord | None:
        """What an attempt of a model call that failed was asked."""
        if self._sent is not None and self._sent[0] == operation.id:
            return self._sent[1]
        turn = self.checkpoint.turn
        if turn is None:
            return None
        rows = await self.store.entries(self.ledger.no, after=turn.began, kinds=("operation_started",), newest_first=True)
        for entry in map(open_entry, rows):
            if isinstance(entry, OperationStarted) and entry.operation == operation.id:
                return entry.request
        return None

    def _keep(self, batch: Batch, *contents: StoredBlob) -> None:
        """Content that entries refer to, stored once."""
        batch.blobs.update({content.digest: content for content in contents if content.digest not in self._stored})

    # ------------------------------------------------------------------------------------------------------- planning calls

    async def _plan_calls(self, batch: Batch, fence: int) -> None:
        turn = batch.checkpoint.turn
        if turn is None or not turn.unplanned or self._stopping:
            return
        judged: dict[str, Any] = {}
        if self.agent.policy.is_callable or self._hooks.has("before_tool", "permission"):
            said = self._hooks.ask(("calls", turn.id, turn.answer), partial(self._calls.judge, batch.checkpoint, self._hooks))
            if said is None:
                return
            if said.fault is not None:
                self._fail(batch, said.fault.failure)
                return
            if not self._extend(batch, said):
                return
            judged = said.value
        await self._calls.plan(batch, self.ledger, fence, judged)

    # ----------------------------------------------------------------------------------------------------------- committing

    def _releases(self, batch: Batch) -> bool:
        """Whether nothing is left that this process could do now, or it is to do nothing more and nothing runs."""
        if self._hooks.running or (self._hooks.open and batch.checkpoint.turn is not None and not self._stopping):
            return False
        return phase(batch.checkpoint) in ("idle", "waiting") or (self._stopping and not self._work.running)

    async def _commit(self, batch: Batch, claim: Claim | None) -> State:
        assert self.head is not None
        flooded = self._moved >= INBOX_RETRIES
        release = self._releases(batch) and not flooded
        ended = any(isinstance(entry, TurnEnded | TurnEnding) for entry in batch.entries)
        named = self._seen_head if (release or ended) and not flooded else None
        listed = any(entry.kind in ("turn_started", SessionChanged.kind) for entry in batch.entries)
        changed = claim is not None or release or ended or listed
        pending = [row for row in self._rows if row.submission_id not in batch.consumed]
        status, wake_at = parked(batch.checkpoint, pending, batch.now) if release else ("running", None)
        try:
            commit = batch.commit(
                holder=None if claim is not None else self.runtime.runner_id,
                claim=claim,
                release=release,
                inbox_head=named,
                status=status if changed else None,
                wake_at=wake_at,
            )
        except LimitExceeded as error:
            self._forget_draft()
            self._shrink(error)
            return "again"
        self._unannounced = True
        answer = await self.store.commit(commit)
        self._unannounced &= isinstance(answer, Committed)
        match answer:
            case Committed():
                await self._committed(batch, commit, answer)
                return "again"
            case InboxMoved():
                self._moved += 1
                self._forget_draft()
                self._seen_head = answer.inbox_head
                await self._read_inbox()
                return "again"
            case Held():
                self._forget_draft()
                return "elsewhere"
            case Stale() if not self.held:
                self._forget_draft()
                return "again"
            case Stale() | NoSession():
                raise self._fenced("taken over")
            case _:
                raise AssertionError(f"a driver's commit can't be answered with {answer}")

    async def _committed(self, batch: Batch, commit: Commit, answer: Committed) -> None:
        assert self.head is not None
        self._moved = 0
        holder = None if commit.release else self.runtime.runner_id
        row = msgspec.structs.replace(
            self.head.row, version=answer.version, fence=answer.fence, holder=holder, inbox_head=answer.inbox_head, claims=0, status="idle"
        )
        chain = commit.entries[-1].chain if commit.entries else self.head.chain
        self.head = msgspec.structs.replace(self.head, row=row, chain=chain, now=batch.now)
        self.checkpoint = batch.checkpoint
        self.held = not commit.release
        self.forced = False
        if commit.claim is not None or any(entry.kind == "turn_started" for entry in batch.entries):
            self.given_route = None
        self._performer.turn = batch.checkpoint.turn
        await self._sync(batch)
        await self._read_metadata()
        self._context.accept()
        self._added = 0
        self._read_to = answer.version
        del self._work.reports[: self._taken]
        self._rows = [item for item in self._rows if item.submission_id not in batch.consumed]
        self._stored.update(batch.blobs)
        if answer.inbox_head != self._seen_head:
            self._seen_head = answer.inbox_head
            self._dirty = True
            self._wake.set()
        self.ledger.note(commit.effects)
        self._starting = None
        self._steps.committed()
        for fault in self._faults:
            self._hooks.tell(fault)
        if any(entry.kind == "turn_started" for entry in batch.entries):
            self.ran_a_turn = True
        self._work.start(self.checkpoint, self.head.row.fence)
        self.feed.publish(batch.entries)
        self.runtime.settled(self, batch)

    def _forget_draft(self) -> None:
        self._context.forget()
        self._added = 0
        self._dirty = True

    def _shrink(self, error: LimitExceeded) -> None:
        """What is too large to keep becomes a failure that says so."""
        failure = Failure(code=error.code, message=str(error))
        if not self._work.reports and self.checkpoint.turn is None:
            begun = next((row for row in self._rows if not is_control(row) and row.submission_id not in self._unfit), None)
            if begun is None:
                raise error
            self._unfit[begun.submission_id] = failure
            return
        if not self._work.reports and self.checkpoint.turn is not None:
            self._work.reports = [(Fail(failure=failure, at=self.clock.now()), ())]
            return
        if not self._work.reports or any(isinstance(report, Fail) for report, _ in self._work.reports):
            raise error
        shrunk: list[Outcome] = []
        for report, _ in self._work.reports:
            if isinstance(report, AttemptEnded) and report.parts:
                operation = self.checkpoint.operation(report.operation)
                if operation is not None and operation.plan.kind in ("model", "compaction"):
                    report = msgspec.structs.replace(report, status="failed", parts=(), failure=failure, usage=report.usage)
                    shrunk.append((report, ()))
                    continue
            shrunk.append((Fail(failure=failure, at=report.at), ()))
        self._work.reports = shrunk

    # ------------------------------------------------------------------------------------------------------------ stopping

    def _must_cancel(self) -> bool:
        """Whether somebody wants what runs to stop."""
        if not self._work.running and not self._hooks.running:
            return False
        if self._grace_over:
            return True
        for row in self._rows:
            if row.kind == Interrupt.kind:
                command = decode_row(row)
                turn = self.checkpoint.turn
                if turn is not None and isinstance(command, Interrupt) and command.turn in ("", turn.id):
                    return True
        return False

    def _giving_way(self) -> tuple[Operation, ...]:
        """The open calls, if somebody steers the turn and each of them gives way to that."""
        turn = self.checkpoint.turn
        open_calls = tuple(item for item in turn.tools if item.status != "ended") if turn is not None else ()
        if turn is None or turn.unplanned or turn.requests or not open_calls:
            return ()
        for item in open_calls:
            tool = self.agent.tool(item.plan.name)
            if tool is None or not tool.gives_way or item.status == "unknown":
                return ()
        return open_calls if self._is_steered(turn) else ()

    def _is_steered(self, turn: Turn) -> bool:
        for row in self._rows:
            if not is_control(row) and row.submission_id not in self._unfit and self._is_due(row, self.clock.now()):
                post = decode_row(row)
                if isinstance(post, PostMessage) and post.deliver == "steer" and post.turn in ("", turn.id):
                    return True
        return False

    async def _cut_short(self, calls: tuple[Operation, ...]) -> None:
        """End calls that give way; what one of them came to all the same stays what it was."""
        await self._work.cancel(to_be_continued=False)
        reports: list[Outcome] = []
        for report, blobs in self._work.reports:
            if (
                isinstance(report, AttemptEnded)
                and report.status == "cancelled"
                and report.failure
                and report.failure.code == "interrupted"
            ):
                report = msgspec.structs.replace(report, failure=GAVE_WAY)
            reports.append((report, blobs))
        ended = {report.operation for report, _ in reports if isinstance(report, AttemptEnded)}
        for item in calls:
            if item.id not in ended:
                never = AttemptEnded(operation=item.id, attempt=0, status="cancelled", failure=GAVE_WAY, at=self.clock.now())
                reports.append((never, ()))
        self._work.reports = reports

    async def _cancel_all(self) -> None:
        """Stop what runs, and keep what is known of it."""
        await self._hooks.cancel()
        await self._work.cancel(to_be_continued=self._stopping)

    def _abandon(self) -> None:
        """This process may not commit any more."""
        self._hooks.abandon()
        self.lingering = self._work.abandon(hand_over=not self.runtime.closed)
        self.held = False

    def _reported(self, outcome: Outcome) -> None:
        self._work.reports.append(outcome)

    def _delta(self, delta: Delta) -> None:
        self.feed.publish([delta])

    def _late(self, operation: str, attempt: int, result: Any, is_error: bool) -> None:
        self.runtime.report_late(self.session_id, operation, attempt, result, is_error)


def _middleware_error(fault: Fault) -> MiddlewareError:
    return MiddlewareError(
        fault.words, hint="nothing was changed; resume the session when it is mended", middleware=fault.extension, hook=fault.hook
    )


def _stuck(session_id: str) -> SessionStuck:
    return SessionStuck(
        f"the session {session_id!r} is stuck: its holder died {STUCK_CLAIMS} times without progress",
        hint=f"see `perdure why {session_id}`, then `perdure resume {session_id} --force`",
    )
