"""One session's life in this process: decide, commit, perform, and decide again.

The road of every message leads through `Driver.advance`: what ended and what was sent (`known`) is put to `core.decider` (`turns`),
committed once, and only then performed (`work`). Nothing is performed that is not committed, and nothing is told to anybody before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ..agent import Agent
from ..agent.definition import describe
from ..core.checkpoint import Checkpoint, Operation, Turn
from ..core.commands import Interrupt, PostMessage
from ..core.entries import (
    DefinitionChange,
    ExtensionSet,
    QueueChanged,
    RequestOpened,
    SessionChanged,
    SubmissionRefused,
    TurnEnded,
    TurnEnding,
    TurnStarted,
)
from ..core.errors import Fenced, LimitExceeded, SessionArchived, SessionHalted, SessionStuck, StoreCorrupt, TransactionLost, UnknownAgent
from ..core.memory import MEMORY
from ..core.phase import backing_off, phase
from ..core.records import MODEL_KINDS, Failure, Metadata
from ..core.reports import AttemptEnded, Fail, Parked
from ..models.base import Delta
from ..models.router import Router
from ..store.base import (
    AlreadyTaken,
    Claim,
    Commit,
    CommitAnswer,
    Committed,
    Held,
    InboxMoved,
    Loaded,
    NoSession,
    SessionRow,
    Stale,
    StoredBlob,
)
from ..store.pools import PoolShort
from .about import read_metadata
from .batch import Batch, parked
from .calls import Calls
from .clock import SessionClock, first_of
from .control import decode_row, is_control
from .family import Family
from .feed import ChildAsked, HookFailed
from .halting import halt_damaged, halted, why_halted
from .hooks import Hooks
from .known import Known, is_due
from .model_calls import Called, ModelCall
from .output import Outputs
from .perform import Outcome, Performer
from .remembering import learns
from .result import Result, result_of
from .scope import deleted_meanwhile, missing, put_away
from .steps import Steps
from .transactions import Made, Transaction
from .turns import INBOX_RETRIES, Turns, middleware_error
from .work import Work

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["STUCK_CLAIMS", "Driver"]

STUCK_CLAIMS = 5
"""After so many claims without progress, each by a process that died, the session waits for a person."""

REST_MS = 5_000
"""How long a retry must be away for the session to be let go of until then."""

ELSEWHERE_MS = 250
"""How often a session that another process runs is looked at again, besides the store's notices."""

GAVE_WAY = Failure(code="gave_way", message="cut short, because somebody said something meanwhile")
"""What the model reads instead of the result of a call that gave way."""

State: TypeAlias = Literal["again", "working", "parked", "elsewhere"]


class Driver:
    """Holds one session while there is something to do, for one agent."""

    def __init__(self, runtime: Runtime, session_id: str, agent: Agent, team: Mapping[str, Agent] | None = None) -> None:
        self.runtime = runtime
        self.session_id = session_id
        self.given = agent
        self.store = runtime.store
        self.clock = SessionClock(runtime.clock)
        self.feed = runtime.news.feed(session_id)
        self._team = agent.team if team is None else team
        self.interest = 0
        self.errand = False
        self.taken_up = asyncio.Event()
        self.ending = False
        self.error: Exception | None = None
        self.ran_a_turn = False
        self.lingering: list[asyncio.Task[None]] = []
        self.forced = False
        self.answered_for = False
        self.held = False
        self._noted = Metadata()
        self._known = Known(self.store, session_id, unstored=self._unstored)
        self._called = Called()
        self._fence = 0
        self._moved = 0
        self._doubted = 0
        self._unannounced = False
        self._told = self._asked = self._joined = 0
        self._suspects: frozenset[tuple[str, str]] = frozenset()
        self._performer = Performer(
            session_id=session_id,
            store_id=self.store.store_id,
            secret=self.store.secret,
            clock=self.clock,
            deltas=self._delta,
            late=self._late,
            fetch=self._known.blob,
        )
        self._wake = asyncio.Event()
        self._family = Family(runtime, session_id, self._team, report=self._reported, wake=self._wake.set)
        self._grace_over = False
        self._equip(agent)
        self._serves = self._turns.definition

    def _equip(self, agent: Agent) -> None:
        """Be this agent from now on: the one that the driver was made for, or one that the session was handed over to."""
        runtime, session_id = self.runtime, self.session_id
        self.agent = agent
        self.router: Router = runtime.models.router(agent)
        self._calls = Calls(session_id, agent, self._team, self._known.context, self._known.ledger, self._known.blob)
        outputs = Outputs(agent, session_id, self.clock)
        self._work = Work(
            agent,
            self.router,
            self._performer,
            self._calls,
            judge=lambda output: outputs.judge(self._known.checkpoint, output),
            wake=self._wake.set,
            keep=runtime.background.keep,
            late=self._late,
            archived=self._known.read_archived,
            prices=runtime.models.prices_of,
            around=partial(runtime.observers.performing, self.store.store_id, session_id) if runtime.observers else None,
        )
        self._steps = Steps(
            checkpoint=lambda: self._known.checkpoint,
            ledger=self._known.ledger,
            fetch=self._known.blob,
            clock=self.clock,
            report=self._reported,
            transact=self._work.transactions.append,
            late=self._late,
            wake=self._wake.set,
        )
        self._performer.steps = self._steps
        self._hooks = Hooks(
            session_id=session_id,
            store_id=self.store.store_id,
            agent=agent,
            clock=self.clock,
            ledger=self._known.ledger,
            fetch=self._known.blob,
            steps=self._steps,
            checkpoint=lambda: self._known.checkpoint,
            publish=self.feed.publish,
            wake=self._wake.set,
        )
        self._begun = not self._hooks.has("session_start", "session_end")
        self._turns = Turns(
            agent,
            self.router,
            self._known,
            calls=self._calls,
            work=self._work,
            steps=self._steps,
            hooks=self._hooks,
            outputs=outputs,
            performer=self._performer,
            clock=self.clock,
            runner=lambda: runtime.runner_id,
            team=self._team,
            router_of=runtime.models.router,
        )

    async def _become(self, name: str) -> None:
        """Go on as the agent that the session was handed over to, if the one that this driver was made for can hand over to it."""
        if name in (self.agent.name, ""):
            return
        agent = self.given if name == self.given.name else self.given.successors.get(name) or self._team.get(name)
        if agent is None:
            raise UnknownAgent(f"the session {self.session_id!r} was handed over to the agent {name!r}", hint="it is not known here")
        route, begun, hooks, reports = self._turns.given_route, self._begun, self._hooks, self._work.reports
        self._equip(agent)
        self._turns.given_route, self._work.reports = route, reports
        # What the agent's own code says when a session is taken up is for the next time.
        self._begun |= begun
        hooks.abandon()
        await hooks.end_session()

    # ------------------------------------------------------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Advance while somebody is interested, or until what was taken up is done. Ends with the error that made it impossible to go on.

        A session that is found damaged is halted, and that error is a `SessionHalted` then, with what was found as its cause.
        ``errand``: take up what there is, once, and end. ``taken_up`` is set when that is held here, or was found to be nothing.
        A look that began before a notice, or a call of `take_up`, may have missed what that is about: ``_told`` and ``_asked`` count them.
        ``ending``: nothing more is taken up, and whoever wants that waits for the end.
        """
        try:
            while self.held or self._wanted:
                told, asked, held = self._told, self._asked, self.held
                state = await self.advance()
                if self.held:
                    self.taken_up.set()
                if self.held and not held:
                    # What ended elsewhere before this goes on is not to wait for the end of that.
                    await self.runtime.news.look_for_results(self.session_id, pending=self._pending)
                if state == "again" and not self._waits_for_effects():
                    continue
                if state in ("parked", "elsewhere"):
                    if asked == self._asked and (told == self._told or state == "elsewhere"):
                        self.errand = False
                        self.taken_up.set()
                    await self.runtime.news.look_for_results(self.session_id)
                if state != "elsewhere":
                    self._family.tend(self._known.checkpoint, keep=self.interest > 0)
                if self.held or self.interest or self._family.waits or state == "working":
                    await self._wait(state)
        except StoreCorrupt as error:
            self.ending = True
            self._abandon()
            if (gone := await deleted_meanwhile(self.store, self.session_id)) is not None:
                raise gone from error
            stopped = await halt_damaged(self.runtime, self.session_id, error)
            if stopped is None:
                raise
            raise stopped from error
        except BaseException:
            self._abandon()
            raise
        finally:
            self.ending = True
            self.taken_up.set()
            self._family.leave()
            self._hooks.abandon()
            await self._hooks.end_session()

    @property
    def _pending(self) -> list[str]:
        """The submissions that are known to be unsettled: the running turn's, and those that wait."""
        turn = self._known.checkpoint.turn
        return [row.submission_id for row in self._known.rows] + ([turn.submission] if turn is not None else [])

    @property
    def _wanted(self) -> bool:
        """Whether what nobody holds is to be taken up here."""
        return (self.interest > 0 or self.errand or self._family.waits) and not self._turns.stopping

    @property
    def occupied(self) -> bool:
        """Whether the session takes a slot: its turn runs, or somebody is interested and none has run yet."""
        return self.held or self._work.running or (self.interest > 0 and not self.ran_a_turn and not self._family.waits)

    def serves(self, agent: Agent) -> bool:
        """Whether this driver does what one for ``agent`` would do."""
        if agent is self.given:
            return True
        # Equal definitions may still have other functions and models behind them; those of a turn that runs are as good.
        return (self.held or self.interest > 0) and describe(agent) == self._serves

    def result_of(self, ended: TurnEnded) -> Result:
        """What a turn came to that just ended."""
        return result_of(self.session_id, ended, self._known.context.latest_since(ended.began), self.calls_of(ended))

    def calls_of(self, ended: TurnEnded) -> tuple[ModelCall, ...]:
        """The model calls of a turn that just ended."""
        return self._called.of(ended)

    def give_route(self, route: str | None) -> None:
        """Take the session up on another route than the saved one."""
        self._turns.given_route = route or self._turns.given_route

    def notice(self, *, sure: bool = True) -> None:
        """Something may have been sent to the session. ``sure`` False: it may as well have been our own commit."""
        if self._unannounced and not sure:
            # Ours is announced too, once; its answer says what else arrived.
            self._unannounced = False
        elif sure or not self.held:
            self._told += 1
            self._known.dirty = True
            self._wake.set()
        elif self.runtime.notice_delay:
            asyncio.get_running_loop().call_later(self.runtime.notice_delay, self._look, self._known.looks)
        else:
            self._look(self._known.looks)

    def _look(self, looks: int) -> None:
        # A commit or a read that began meanwhile tells what there was; one that was under way then may not.
        if looks == self._known.looks:
            self._known.dirty = True
            self._wake.set()

    def join(self, route: str | None) -> None:
        """One more is interested, who wants nothing that was read before."""
        self.interest += 1
        self._joined += 1
        self._family.try_again(self._known.checkpoint if self.held else None)
        self.give_route(route)

    def take_up(self) -> None:
        """Take up what there is, once, whether anybody stays interested or not."""
        self.errand = True
        self._asked += 1
        if not self.held:
            self.taken_up.clear()
            self.notice()

    def stop(self) -> None:
        """Start nothing more; what runs may end."""
        self._turns.stopping = True
        self._wake.set()

    def stop_now(self) -> None:
        """The grace is over: what still runs is cancelled, and its outcome committed as it is known."""
        self._turns.stopping = self._grace_over = True
        self._wake.set()

    async def advance(self) -> State:
        """At most one commit: everything that is known now, and the intents that follow from it."""
        if (error := self._work.error or self._hooks.error or self._steps.error) is not None:
            raise error
        if self._family.error is not None and not self.held:
            raise self._family.error
        if not self.held:
            found = await self._find()
            if found is not None:
                return found
            if not self._begun and not self._begin():
                return "working"
        elif self._known.dirty:
            await self._check_hold()
            await self._known.read_inbox()
        if self.held and self._work.transactions:
            return await self._transact(self._work.transactions.pop(0))
        if self.held and self._must_cancel():
            await self._cancel_all()
        elif self.held and (calls := self._giving_way()):
            await self._cut_short(calls)
        self._hooks.begin_pass()
        batch, claim = await self._turns.decide(held=self.held)
        if claim is not None and not self._wanted:
            # Whoever wanted it went while we looked, and what was sent since is for others.
            self._known.forget_draft()
            return "parked"
        if claim is None and not batch.entries and not (self.held and not self._work.running and self._releases(batch)):
            if self._family.owing is not None and not self._work.running:
                # No commit will have it tried again, and nobody else does while the session is held.
                raise self._family.owing
            self._turns.pass_over()
            self._known.forget_draft()
            self._hooks.end_pass(start=not self._turns.stopping, keep=self._turns.stopping)
            return "working"
        if claim is not None and not batch.entries and batch.checkpoint.turn is None and self._hooks.waits:
            # Whether a turn begins is not known yet, and until then nobody holds the session.
            self._known.forget_draft()
            self._hooks.end_pass(start=True)
            return "working" if self._hooks.running else "parked"
        self._hooks.end_pass(start=False, keep=self._turns.stopping)
        return await self._commit(batch, claim)

    def _begin(self) -> bool:
        """Tell the agent's own code that the session is taken up here. False: it has not answered yet."""
        self._hooks.begin_pass()
        said = self._hooks.ask(("session_start",), partial(self._hooks.start_session, self._known.checkpoint))
        self._hooks.end_pass(start=True)
        if said is None:
            return False
        if said.fault is not None:
            raise middleware_error(said.fault)
        self._begun, self._turns.starting = True, said
        return True

    def _waits_for_effects(self) -> bool:
        """Whether nothing can be decided before what runs here ends, or something else happens."""
        told = self._work.reports or self._work.transactions
        return self._work.running and not (told or self._known.rows or self._known.dirty or self._turns.stopping)

    async def _wait(self, state: State) -> None:
        if self._wake.is_set() or self._work.reports or self._work.error is not None:
            self._wake.clear()
            return
        until = self._next_moment(state)
        if until is None:
            await self._wake.wait()
        else:
            waker = asyncio.ensure_future(self._wake.wait())
            try:
                await first_of(self.clock, waker, until=until)
            finally:
                waker.cancel()
        self._wake.clear()

    def _next_moment(self, state: State) -> int | None:
        moments = [row.not_before for row in self._known.rows if row.not_before is not None and row.not_before > self.clock.now()]
        turn = self._known.checkpoint.turn
        moments += [moment for moment in self._hooks.held_back_until if moment > self.clock.now()]
        if state == "elsewhere":
            moments.append(self.clock.now() + ELSEWHERE_MS)
        elif turn is not None:
            moments += turn.deadlines
            moments += [item.not_before for item in turn.operations if item.status == "ready" and item.not_before]
        return min(moments, default=None)

    # ------------------------------------------------------------------------------------------------------- what is known

    async def _find(self) -> State | None:
        """Read the session. None: there is something to do, and it is free."""
        joined = self._joined
        head = await self.store.load(self.session_id)
        if head is None and await self.store.buried(self.session_id):
            raise missing(self.session_id, deleted=True)
        if head is None:
            return "parked"
        row = head.row
        if row.status in ("archived", "halted"):
            refusal = await self._refusal(row)
            if joined != self._joined:
                # For whoever came since, it may have been taken out by then.
                return "again"
            raise refusal
        self._known.take_head(head)
        self.clock.begin(head.now)
        self.runtime.news.known(row.no, self.session_id)
        checkpoint = self._known.checkpoint
        if checkpoint.errands and row.holder is None:
            # Whoever waits here waits for the turn's end, and not for what others are told of it.
            await self.runtime.news.look_for_results(self.session_id)
            if await self.runtime.errands.run(self.session_id):
                return "again"
        if checkpoint.agent in self.given.successors or (checkpoint.turn is not None and checkpoint.turn.handoffs):
            await self._become(checkpoint.agent)
        self._performer.checkpoint = self._known.checkpoint
        await self._read_metadata()
        if row.holder is not None and head.holder_alive and row.holder != self.runtime.runner_id:
            return "elsewhere"
        if row.status == "stuck" and not self.forced:
            raise _stuck(self.session_id)
        await self._known.read_inbox()
        if not self._known.something_to_do(head.now):
            return "parked"
        self._turns.check_route()
        # Takeovers are counted, and the first claim was none.
        if row.holder is not None and row.claims + 1 >= STUCK_CLAIMS and not self.forced:
            await self._park_stuck(head)
        try:
            await self._known.catch_up()
        except StoreCorrupt:
            # What is missing may have been removed while it was read; what is damaged is so the next time, too.
            if self._doubted == row.version:
                raise
            self._doubted = row.version
            return "again"
        return None

    async def _refusal(self, row: SessionRow) -> SessionArchived | SessionHalted:
        """Why nobody goes on with a session that was put away or stopped."""
        if row.status == "archived":
            await self.runtime.errands.run(self.session_id)
            return put_away(self.session_id)
        return halted(self.session_id, await why_halted(self.store, row))

    async def _read_metadata(self) -> None:
        if self._known.checkpoint.metadata != self._noted:
            self._performer.metadata = await read_metadata(self._known.checkpoint.metadata, self._known.blob)
            self._noted = self._known.checkpoint.metadata

    async def _park_stuck(self, head: Loaded) -> None:
        batch = Batch(head, self._known.checkpoint, now=head.now)
        batch.apply(Parked(at=batch.now))
        claim = Claim(runner=self.runtime.runner_id, force=head.row.holder == self.runtime.runner_id)
        await self.store.commit(batch.commit(holder=None, claim=claim, release=True, status="stuck"))
        raise _stuck(self.session_id)

    async def _check_hold(self) -> None:
        """Somebody did something here. Raises `Fenced` if they took the session: what runs must not go on until its own next commit."""
        assert self._known.head is not None
        now = await self.store.load(self.session_id)
        if now is None or (now.row.holder, now.row.fence) != (self.runtime.runner_id, self._known.head.row.fence):
            told = now is not None and now.row.status in ("archived", "halted")
            raise self._fenced("deleted" if now is None else now.row.status if told else "taken over")

    def _fenced(self, how: str) -> Fenced:
        return Fenced(
            f"the session {self.session_id!r} was {how}; this process's work on it ends",
            hint="results that arrive here are handed on, if anybody can take them",
        )

    # ----------------------------------------------------------------------------------------------------------- committing

    def _releases(self, batch: Batch) -> bool:
        """Whether nothing is left that this process could do now, or it is to do nothing more and nothing runs."""
        if batch.checkpoint.errands and not self._turns.stopping:
            # It lets go when it owes nothing to anybody: what a crash leaves is found by whoever looks next.
            return False
        if self._hooks.running or (self._hooks.open and batch.checkpoint.turn is not None and not self._turns.stopping):
            return False
        told = len(self._work.reports) > self._turns.taken or self._work.transactions
        if phase(batch.checkpoint) in ("idle", "waiting"):
            return True
        # A provider that is away for long holds no process: whoever looks when its time has come tries again.
        rests = backing_off(batch.checkpoint, batch.now) >= batch.now + REST_MS
        return (rests or self._turns.stopping) and not (self._work.running or told)

    async def _commit(self, batch: Batch, claim: Claim | None) -> State:
        assert self._known.head is not None
        flooded = self._moved >= INBOX_RETRIES
        release = self._releases(batch) and not flooded
        if release and batch.checkpoint.turn is not None:
            batch.apply(Parked(at=batch.now))
        kinds = batch.kinds
        if claim is not None:
            self._suspects = _in_flight(batch.before) if batch.head.row.holder is not None else frozenset()
        batch.suspects = self._suspects
        ended = TurnEnded in kinds or TurnEnding in kinds
        # A steer that was durable before is in the request of a model call; once only, for a flood delays none.
        asks = batch.asks_model and not self._moved
        named = self._known.seen_head if not flooded and (release or ended or asks) else None
        changed = claim is not None or release or ended or TurnStarted in kinds or SessionChanged in kinds
        pending = [row for row in self._known.rows if row.submission_id not in batch.consumed]
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
            self._known.forget_draft()
            self._shrink(error)
            return "again"
        if ended:
            await self._export_memory()
        answer = await self._put(commit)
        match answer:
            case Committed():
                await self._committed(batch, kinds, commit, answer)
                return "again"
            case InboxMoved():
                self._moved += 1
                self._known.forget_draft()
                self._known.seen_head = answer.inbox_head
                await self._known.read_inbox()
                return "again"
            case Held():
                self._known.forget_draft()
                return "elsewhere"
            case PoolShort():
                # Others drew what was left when it was looked at; what is there now decides.
                self._known.forget_draft()
                self._known.take_pool(answer.pool)
                return "again"
            case AlreadyTaken():
                # Whoever took it is found when the call is looked at again.
                self._known.forget_draft()
                return "again"
            case Stale() if not self.held:
                self._known.forget_draft()
                return "again"
            case Stale() | NoSession():
                raise self._fenced("taken over")
            case _:
                raise AssertionError(f"a driver's commit can't be answered with {answer}")

    async def _put(self, commit: Commit) -> CommitAnswer:
        """Have the store take a commit. The notice of it, which may come first, is none of somebody else's."""
        self._unannounced = True
        self._known.looked()
        try:
            answer = await self.store.commit(commit)
        except TransactionLost:
            self._unannounced = False
            raise
        self._unannounced &= isinstance(answer, Committed)
        return answer

    async def _committed(self, batch: Batch, kinds: frozenset[type], commit: Commit, answer: Committed) -> None:
        self._moved = 0
        self.held = not commit.release
        self.forced = False
        if await self._known.committed(batch, commit, answer, self.runtime.runner_id if self.held else None):
            self._wake.set()
        self._performer.checkpoint = batch.checkpoint
        await self._read_metadata()
        self.ran_a_turn |= TurnStarted in kinds
        self._turns.committed(batch, begun=commit.claim is not None or TurnStarted in kinds)
        if batch.checkpoint.agent != self.agent.name and DefinitionChange in kinds:
            await self._become(batch.checkpoint.agent)
        self._work.start(self._known.checkpoint, answer.fence)
        if self.held:
            self._family.committed(self._known.checkpoint)
        else:
            # Whoever waits here now need not have waited when a child could not be worked on.
            self._family.try_again(None)
            self.runtime.work.freed()
        self.feed.publish(batch.entries)
        if not self.held:
            # What others committed since was kept from the watchers, who hear of all that a holder commits.
            self.feed.notice()
        if batch.checkpoint.parent is not None:
            self._tell_callers(batch)
        self.runtime.news.observe(self.session_id, batch)
        if ExtensionSet in kinds and any(map(learns, batch.entries)):
            await self._export_memory()
        if answer.fence > self._fence + 1:
            # Somebody else held the session meanwhile.
            self._called.forget()
        self._fence = answer.fence
        self._called.note(batch.entries)
        if TurnEnded in kinds:
            for entry in batch.entries:
                if isinstance(entry, TurnEnded):
                    await self._called.complete(self.store, commit.no, entry)
        if not kinds.isdisjoint((TurnEnded, SubmissionRefused, QueueChanged)):
            self.runtime.news.settled(self, batch)

    def _tell_callers(self, batch: Batch) -> None:
        """Whoever watches a session that called this one learns that somebody has to answer."""
        asked = [
            ChildAsked(session_id=self.session_id, request_id=entry.request_id, agent=self.agent.name)
            for entry in batch.entries
            if isinstance(entry, RequestOpened)
        ]
        if asked:
            self.runtime.news.tell_callers(self.session_id, asked)

    async def _export_memory(self) -> None:
        """What the session remembers is a fact already; that it can't be copied is told, and is no fault of the turn."""
        problem = await self._turns.remembering.export(self._known.checkpoint, aside=self.runtime.notice_delay > 0)
        if problem:
            self.feed.publish([HookFailed(extension=MEMORY, hook="export", message=problem)])

    async def _transact(self, transaction: Transaction) -> State:
        """Commit the receipt of an effect that is done in that very commit, and nothing besides: user code runs there."""
        assert self._known.head is not None
        if not transaction.waits(self._known.checkpoint):
            return "again"
        head, checkpoint, now = self._known.head, self._known.checkpoint, self.clock.now()

        def anew() -> Batch:
            batch = Batch(head, checkpoint, now=now)
            batch.suspects = self._suspects
            return batch

        made: list[Made] = []
        try:
            answer = await self._put(transaction.commit(anew, holder=self.runtime.runner_id, made=made))
        except TransactionLost as error:
            self._work.reports.append(transaction.failure(error, now))
            return "again"
        if not isinstance(answer, Committed):
            raise self._fenced("taken over")
        self._turns.begin_anew()
        [done] = made
        await self._committed(done.batch, done.batch.kinds, done.commit, answer)
        return "again"

    def _shrink(self, error: LimitExceeded) -> None:
        """What is too large to keep becomes a failure that says so."""
        failure = Failure(code=error.code, message=str(error))
        if not self._work.reports and self._known.checkpoint.turn is None:
            begun = next((row for row in self._known.rows if not is_control(row) and row.submission_id not in self._turns.unfit), None)
            if begun is None:
                raise error
            self._turns.unfit[begun.submission_id] = failure
            return
        if not self._work.reports and self._known.checkpoint.turn is not None:
            self._work.reports = [(Fail(failure=failure, at=self.clock.now()), ())]
            return
        if not self._work.reports or any(isinstance(report, Fail) for report, _ in self._work.reports):
            raise error
        shrunk: list[Outcome] = []
        for report, _ in self._work.reports:
            if isinstance(report, AttemptEnded) and report.parts:
                operation = self._known.checkpoint.operation(report.operation)
                if operation is not None and operation.plan.kind in MODEL_KINDS:
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
        for row in self._known.rows:
            if row.kind == Interrupt.kind:
                command = decode_row(row)
                turn = self._known.checkpoint.turn
                if turn is not None and isinstance(command, Interrupt) and command.turn in ("", turn.id):
                    return True
        return False

    def _giving_way(self) -> tuple[Operation, ...]:
        """The open calls, if somebody steers the turn and each of them gives way to that."""
        if not self._known.rows:
            return ()
        turn = self._known.checkpoint.turn
        open_calls = tuple(item for item in turn.tools if item.status != "ended") if turn is not None else ()
        if turn is None or turn.calls or turn.unplanned or turn.requests or not open_calls:
            return ()
        for item in open_calls:
            tool = self.agent.tool(item.plan.name)
            if tool is None or not tool.gives_way or item.status == "unknown":
                return ()
        return open_calls if self._is_steered(turn) else ()

    def _is_steered(self, turn: Turn) -> bool:
        for row in self._known.rows:
            if not is_control(row) and row.submission_id not in self._turns.unfit and is_due(row, self.clock.now()):
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
        await self._work.cancel(to_be_continued=self._turns.stopping)

    def _abandon(self) -> None:
        """This process may not commit any more."""
        self._family.leave()
        self._hooks.abandon()
        self._steps.abandon()
        self.lingering = self._work.abandon(hand_over=not self.runtime.closed)
        self.held = False

    def _unstored(self) -> Iterator[StoredBlob]:
        return (blob for _, blobs in self._work.reports for blob in blobs)

    def _reported(self, outcome: Outcome) -> None:
        self._work.reports.append(outcome)

    def _delta(self, delta: Delta) -> None:
        self.feed.publish([delta])

    def _late(self, operation: str, attempt: int, result: Any, is_error: bool) -> None:
        self.runtime.late.hand_in(self.session_id, operation, attempt, result, is_error)


def _in_flight(checkpoint: Checkpoint) -> frozenset[tuple[str, str]]:
    """The kinds and names of the effects that run."""
    operations = checkpoint.turn.operations if checkpoint.turn is not None else ()
    return frozenset((item.plan.kind, item.plan.name) for item in operations if item.status == "started")


def _stuck(session_id: str) -> SessionStuck:
    return SessionStuck(
        f"the session {session_id!r} is stuck: its holder died {STUCK_CLAIMS} times without progress",
        hint=f"see `perdure why {session_id}`, then `perdure resume {session_id} --force`",
    )
