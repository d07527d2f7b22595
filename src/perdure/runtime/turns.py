"""What comes next in a session: one commit's decisions, in the order in which they stand on each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import msgspec

from ..agent import Agent
from ..agent.definition import describe
from ..agent.middleware import Continue, Reject, Stop
from ..agent.output import ValidatorFailed
from ..core import canonical, commands, reports
from ..core.budget import plus, within_reach
from ..core.checkpoint import Checkpoint, Operation, Turn
from ..core.commands import CallTool, Command, Compact, PostMessage, ReportResult, Resume, RunCommand, SelectRoute
from ..core.entries import OperationStarted, TurnEnded, TurnEnding
from ..core.errors import DefinitionChanged, LimitExceeded, MiddlewareError, UnknownAgent
from ..core.journal import open_entry
from ..core.messages import Message, ToolCall
from ..core.phase import phase, reviewing
from ..core.records import Amounts, Failure, RequestRecord
from ..core.reports import (
    Accept,
    AttemptEnded,
    CallAccepted,
    Claimed,
    CommandDone,
    EndEarly,
    EndTurn,
    Fail,
    Finish,
    HandOver,
    OutputAccepted,
    OutputRefused,
    Prepared,
    Redefined,
    ResultsReviewed,
    RouteGiven,
    StopTurn,
)
from ..models.router import Router
from ..store.base import Claim, InboxRow, Loaded, StoredBlob
from ..store.pools import KeepsPools
from .batch import Batch
from .calls import Calls
from .clock import Clock
from .context import resolve_parts
from .control import is_control, promote_steers, take_row
from .hooks import Additions, Fault, Hooks, Said
from .known import Known
from .output import Outputs, Wrong
from .perform import Performer, keep_parts
from .prepare import Next, Preparation, content
from .redefining import change, check_routes
from .remembering import Remembering
from .steps import Steps
from .work import Work

__all__ = ["INBOX_RETRIES", "Turns", "middleware_error"]

INBOX_RETRIES = 3
"""After so many submissions that came in between, a turn ends without asking whether there are more."""

NOTHING_SAID = Said()


class Turns:
    """Proposes, from what is known, what `core.decider` is to decide. Nothing here commits, and nothing is performed here.

    ``given_route`` replaces the saved one when the session is taken up; ``starting`` is what the agent's own code said then. ``unfit`` are
    messages that can't begin a turn; ``faults`` are told once the commit stands, ``taken`` counts the reports that it takes, and ``stored``
    are digests that the store is known to hold. While ``stopping`` nothing begins.
    """

    def __init__(
        self,
        agent: Agent,
        router: Router,
        known: Known,
        *,
        calls: Calls,
        work: Work,
        steps: Steps,
        hooks: Hooks,
        outputs: Outputs,
        performer: Performer,
        clock: Clock,
        runner: Callable[[], str],
        team: Mapping[str, Agent],
        router_of: Callable[[Agent], Router],
    ) -> None:
        self.definition = describe(agent)
        self.described = content(canonical.encode(self.definition))
        self.preparation = Preparation(agent, router, known.context, known.ledger, known.session_id, self.keep)
        self.remembering = Remembering(agent, known.context, known.ledger, known.session_id, self.keep)
        self.given_route: str | None = None
        self.starting: Said | None = None
        self.faults: list[Fault] = []
        self.unfit: dict[str, Failure] = {}
        self.taken = 0
        self.stored: set[str] = set()
        self.stopping = False
        self._agent = agent
        self._router = router
        self._known = known
        self._calls = calls
        self._work = work
        self._steps = steps
        self._hooks = hooks
        self._outputs = outputs
        self._performer = performer
        self._clock = clock
        self._runner = runner
        self._team = team
        self._router_of = router_of
        self._steered: tuple[str, int, int] = ("", 0, 0)
        self._spent: Amounts | None = None
        self._looked = ""
        self._claims = False
        self._sent: tuple[str, RequestRecord] | None = None

    def begin_anew(self) -> None:
        """Nothing is proposed yet: what is committed next takes none of the reports."""
        self.taken = 0
        self.faults.clear()

    def committed(self, batch: Batch, *, begun: bool) -> None:
        """What was decided stands. ``begun``: the session was taken up, or a turn of it began."""
        if begun:
            self.given_route = None
        del self._work.reports[: self.taken]
        self.stored.update(batch.blobs)
        self.starting = None
        self._steps.committed()
        for fault in self.faults:
            self._hooks.tell(fault)

    def pass_over(self) -> None:
        """Nothing came of the reports: what they tell was ended in another way while they came, and would be looked at for ever."""
        del self._work.reports[: self.taken]
        self.taken = 0

    async def decide(self, *, held: bool) -> tuple[Batch, Claim | None]:
        """Receipts, then what people ask for, then what follows. The order of entries in a commit is the order of this function."""
        assert self._known.head is not None
        head = self._known.head
        now = self._clock.now()
        batch = Batch(head, self._known.checkpoint, now=now)
        claim = None
        self.begin_anew()
        self._claims = not held
        self._spent = None
        if self._agent.session_limits is not None and self._known.checkpoint.spent is None:
            self._spent = await self._known.spent()
        self._known.fresh.clear()
        # A result that somebody reported is a receipt, and known before anything is given up as lost.
        for row in self._known.rows:
            if row.kind == ReportResult.kind:
                await self._take_control(batch, row)
        if not held:
            # What this process still holds is what its work left behind that ended with an error.
            claim = Claim(runner=self._runner(), force=head.row.holder == self._runner())
            await self._take_over(batch, head)
            if self.starting is not None:
                self._take_up(batch, self.starting)
        fence = head.row.fence + (claim is not None)
        self.taken = len(self._work.reports)
        for report, blobs in self._work.reports:
            batch.keep(blobs)
            if isinstance(report, AttemptEnded) and not self._router.knows(batch.checkpoint.owner):
                report = msgspec.structs.replace(report, estranged=True)
            if isinstance(report, AttemptEnded):
                report = await self.remembering.informed(batch, report)
            batch.apply(report)
        for row in self._known.rows:
            if row.submission_id in self.unfit:
                batch.refuse(row, self.unfit[row.submission_id])
            elif is_control(row) and row.submission_id not in batch.consumed:
                await self._take_control(batch, row)
        batch.pass_time(now)
        if claim is not None:
            self._give_route(batch)
        if self._steps.wanted and not self.stopping:
            self._steps.propose(batch, fence)
        await self._plan_calls(batch, fence)
        await self._go_on(batch, fence)
        return batch, claim

    # ------------------------------------------------------------------------------------------------------------------------ what was sent

    async def _take_control(self, batch: Batch, row: InboxRow) -> None:
        def own(command: Command) -> bool:
            if isinstance(command, RunCommand):
                self._run_command(batch, row, command)
            elif isinstance(command, CallTool):
                self._call_tool(batch, command)
            else:
                return False
            return True

        await take_row(batch, self._known.ledger, self._known.rows, row, own)

    def _run_command(self, batch: Batch, row: InboxRow, command: RunCommand) -> None:
        """Have an extension carry out a command. Raises `LimitExceeded` where there is no room for what it keeps."""
        item = self._hooks.commanded(command)
        if item is None:
            message = f"the agent {self._agent.name!r} has no middleware {command.extension!r} with the command {command.command!r}"
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

    def _call_tool(self, batch: Batch, command: CallTool) -> None:
        """Begin a turn that is one call. Raises `LimitExceeded` where its arguments are too long to be kept."""
        if self.stopping:
            return
        identity = f"call_{canonical.short_digest(command.submission)[:16]}"
        parts, blobs = keep_parts((ToolCall(name=command.name, arguments=command.arguments, id=identity),))
        accept = self._accept(batch, command, command.at)
        if not batch.take(command, CallAccepted(**msgspec.structs.asdict(accept), parts=parts)):
            return
        if command.submission not in batch.settled:
            self.keep(batch, self.described, *blobs)
            self._known.fresh.update({blob.digest: blob.data for blob in blobs})
            self._give_route(batch)

    # ------------------------------------------------------------------------------------------------------------------ taking a session up

    def _take_up(self, batch: Batch, said: Said) -> None:
        """What was said when this process took the session up: it stops a turn that was running, and not the next one."""
        try:
            said.extend(batch)
        except LimitExceeded as error:
            fault = Fault(extension=self._agent.name, hook="session_start", message=str(error))
            raise middleware_error(fault) from error
        if isinstance(said.value, Stop) and batch.checkpoint.turn is not None:
            batch.apply(StopTurn(reason=said.value.reason, extension=said.extension, at=batch.now))
            promote_steers(batch, self._known.rows)

    async def _take_over(self, batch: Batch, head: Loaded) -> None:
        turn = self._known.checkpoint.turn
        if turn is None or batch.checkpoint.turn is None:
            return
        await self._check_definition(batch)
        lost = head.row.holder is not None or any(item.status == "started" for item in turn.operations)
        batch.apply(Claimed(fence=head.row.fence + 1, on_restart=self._agent.on_restart, takeover=lost, at=batch.now))
        promote_steers(batch, self._known.rows)

    async def _check_definition(self, batch: Batch) -> None:
        turn = self._known.checkpoint.turn
        assert turn is not None
        if turn.definition == self.described.digest:
            return
        old = canonical.decode(await self._known.blob(turn.definition))
        changed, reasons = await change(self._agent, self.definition, old, turn, self._calls.arguments)
        if reasons:
            raise DefinitionChanged(
                f"the unfinished turn {turn.id} of {self._known.session_id!r} can't go on under this definition of {self._agent.name!r}: "
                + "; ".join(reasons),
                hint='finish it with the old code, interrupt it, or set on_change="any"',
                difference=changed,
                reasons=reasons,
            )
        redefined = Redefined(
            new=self.described.digest,
            difference=changed,
            terms=self._agent.terms,
            at=batch.now,
        )
        batch.apply(redefined)
        self.keep(batch, self.described)

    # --------------------------------------------------------------------------------------------------------------- what follows by itself

    async def _go_on(self, batch: Batch, fence: int) -> None:
        """Everything that follows by itself, up to the next effects."""
        while True:
            await self._known.sync(batch)
            promote_steers(batch, self._known.rows)
            if not self._deliver_steers(batch):
                return
            where, turn = phase(batch.checkpoint), batch.checkpoint.turn
            if where == "completing":
                if not await self._finish(batch):
                    return
            elif where == "idle":
                known = self.given_route is not None or self._router.knows(batch.checkpoint.route)
                if self.stopping or not known or not self._next_turn(batch):
                    return
            elif where == "tools" and turn is not None and reviewing(turn):
                if not await self._review(batch):
                    return
            elif where == "tools" and turn is not None and not self.stopping:
                if not await self._calls.start(batch, fence):
                    return
            elif where == "model" and turn is not None and turn.transfer:
                self._hand_over(batch, turn)
                # Who goes on has other hooks, and another model.
                return
            elif where == "model" and turn is not None and turn.candidate is not None:
                if not await self._check_output(batch, fence):
                    return
            elif where == "model" and turn is not None and not self.stopping:
                open_calls = [item for item in (*turn.compactions, turn.extraction, turn.model) if item is not None]
                if any(item.status == "started" or item.not_before > batch.now for item in open_calls):
                    return
                await self._known.sync(batch)
                if not await self._prepare(batch, fence):
                    return
            else:
                return

    def _hand_over(self, batch: Batch, turn: Turn) -> None:
        """Another agent goes on with the turn, on the session's route if it has that."""
        target = self._team.get(turn.transfer)
        if target is None:
            message = f"the conversation was handed over to {turn.transfer!r}, who is not known here"
            self._fail(batch, Failure(code=UnknownAgent.code, message=message))
            promote_steers(batch, self._known.rows)
            return
        router, described = self._router_of(target), content(canonical.encode(describe(target)))
        self.keep(batch, described)
        route = "" if router.knows(batch.checkpoint.route) else router.default
        handed = HandOver(
            definition=described.digest,
            terms=target.terms,
            route=route,
            at=batch.now,
        )
        batch.apply(handed)

    def _deliver_steers(self, batch: Batch) -> bool:
        """Let steers join the turn. False: whether one does is not known yet."""
        if not self._known.rows:
            return True
        turn = batch.checkpoint.turn
        if turn is not None and turn.candidate is not None:
            # They come right behind the answer.
            return True
        if turn is not None and (turn.compacts or turn.calls or turn.compactions):
            # What is being summarised doesn't change; steers come right behind the notes. A call from outside has no model to tell.
            return True
        if turn is None or turn.ending or self._hooks.about(turn.id):
            # What the agent's own code is asked about now is not to change under it; steers come right after.
            return True
        if phase(batch.checkpoint) not in ("model", "completing"):
            return True
        if any(item is not None and item.status == "started" for item in (turn.model, turn.extraction)):
            return True
        where = (turn.id, turn.step)
        if self._steered[:2] == where and self._steered[2] >= INBOX_RETRIES:
            # A flood of steers would have the same model call prepared for ever.
            return True
        taken = False
        for post in self._known.due_posts(batch):
            if not isinstance(post, PostMessage) or post.deliver != "steer":
                continue
            said = self._submitted(batch, post)
            if said is None:
                return False
            if said.fault is not None:
                self._fail(batch, said.fault.failure)
                promote_steers(batch, self._known.rows)
                return True
            if isinstance(said.value, Reject):
                row = next(row for row in self._known.rows if row.submission_id == post.submission)
                batch.refuse(row, Failure(code="rejected", message=said.value.reason))
                continue
            if not self._extend(batch, said):
                promote_steers(batch, self._known.rows)
                return True
            if batch.take(post, self._accept(batch, post, batch.now)):
                batch.settled[post.submission] = batch.consumed[post.submission]
                taken = True
        if taken and self._hooks.has("before_model", "model_request"):
            self._steered = (*where, self._steered[2] + 1 if self._steered[:2] == where else 1)
        return True

    def _next_turn(self, batch: Batch) -> bool:
        post = next(self._known.due_posts(batch), None)
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
        self.keep(batch, self.described)
        accept = self._accept(batch, post, batch.now)
        if isinstance(said.value, Reject):
            return batch.take(post, reports.Reject(**msgspec.structs.asdict(accept), reason=said.value.reason, extension=said.extension))
        self._give_route(batch)
        try:
            said.extend(batch)
        except LimitExceeded as error:
            self._hooks.hold_back(post.submission, Fault(extension=said.extension, hook="message_submit", message=str(error)), batch.now)
            return False
        return batch.take(post, accept)

    def _commanded_before(self, batch: Batch, post: PostMessage | Compact | Resume) -> bool:
        """Whether a command that was sent before a message is still to be carried out."""
        arrival = next(row.arrival for row in self._known.rows if row.submission_id == post.submission)
        waiting = (row for row in self._known.rows if row.kind == RunCommand.kind and row.submission_id not in batch.consumed)
        return any(row.arrival < arrival for row in waiting)

    def _submitted(self, batch: Batch, post: PostMessage | Compact | Resume) -> Said | None:
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

    # ------------------------------------------------------------------------------------------------------------------------- a turn's end

    async def _finish(self, batch: Batch) -> bool:
        """The turn ends, unless the agent's own code wants more of it. False: it has not said so yet."""
        turn = batch.turn
        if turn.ending:
            return await self._end(batch, turn)
        ends = turn.terms.finish == "answer" or bool(turn.call) or not turn.output
        if ends and self._hooks.has("stop") and not turn.calls:
            key = ("stop", turn.id, turn.step, turn.output)
            said = self._hooks.ask(
                key, partial(self._hooks.stop, batch.checkpoint, self._known.context.answer_since(turn.began), self._said_in(turn))
            )
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
        seconds = self._agent.answer_timeout
        deadline = 0 if seconds is None else batch.now + round(seconds * 1000)
        batch.apply(Finish(deadline=deadline, default="deny" if self._agent.on_silence == "end" else "reply", at=batch.now))
        return True

    async def _check_output(self, batch: Batch, fence: int) -> bool:
        """Take an answer that is what it has to be, and have another one corrected. False: nothing can be decided yet."""
        turn = batch.turn
        candidate, repair = turn.candidate, turn.repair
        assert candidate is not None
        if repair is not None and (self.stopping or repair.status == "started" or repair.not_before > batch.now):
            return False
        receipt = await self._known.ledger.receipt(candidate.receipt, batch)
        parts = await resolve_parts(receipt.parts, self._known.blob)
        if repair is not None and (record := await self._record_of(repair)) is not None:
            # The same correction once more: what was found wrong then counts.
            wrong: Wrong | None = Wrong((await self._known.blob(record.additions)).decode())
        else:
            found = self._outputs.read(Message(role="assistant", parts=parts).text, receipt.finish)
            wrong = found if isinstance(found, Wrong) else None
            if wrong is None and self._outputs.validates:
                said = self._hooks.ask(("output", turn.id, candidate.id), partial(self._validate, batch.checkpoint, found))
                if said is None:
                    return False
                wrong = Wrong(said.fault.message, final=True) if said.fault is not None else said.value
        if wrong is None:
            batch.apply(OutputAccepted(operation=candidate.id, at=batch.now))
        elif wrong.final or (turn.repaired >= turn.terms.repairs and repair is None):
            batch.apply(OutputRefused(operation=candidate.id, failure=wrong.failure, at=batch.now))
        elif self.stopping:
            return False
        else:
            record = await self.preparation.repair(batch, fence, receipt.seq, parts, wrong.words)
            self._work.requests = self.preparation.asked
            running = batch.checkpoint.turn.repair if batch.checkpoint.turn is not None else None
            if running is not None:
                self._sent = (running.id, record)
                self._performer.media = self._known.context.has_media
        return True

    async def _validate(self, checkpoint: Checkpoint, output: Any) -> Said:
        try:
            wrong = await self._outputs.judge(checkpoint, output)
        except ValidatorFailed as error:
            return Said(value=Wrong(str(error), final=True))
        return Said(value=Wrong(f"the answer is not valid: {wrong}") if wrong else None)

    async def _end(self, batch: Batch, turn: Turn) -> bool:
        """The end that was decided, once the agent's own code was told."""
        ending = await self._known.ledger.entry(turn.ending, batch)
        assert isinstance(ending, TurnEnding)
        if self._hooks.has("turn_end"):
            said = self._hooks.ask(
                ("turn_end", turn.id, turn.ending), partial(self._hooks.end_turn, batch.checkpoint, ending, self._said_in(turn))
            )
            if said is None:
                return False
            fault = said.fault
            try:
                said.extend(batch)
            except LimitExceeded as error:
                fault = Fault(extension=self._agent.name, hook="turn_end", message=str(error))
            if fault is not None and ending.outcome == "completed":
                batch.apply(StopTurn(reason=fault.words, extension=fault.extension, at=batch.now))
                return True
            if fault is not None:
                self.faults.append(fault)
        batch.apply(EndTurn(ending=ending, at=batch.now))
        return True

    def _said_in(self, turn: Turn) -> tuple[Message, ...]:
        return self._known.context.since(turn.began)

    async def _review(self, batch: Batch) -> bool:
        """Tell the model the results of its calls, as the agent's own code leaves them. False: it has not seen them yet."""
        turn = batch.turn
        results = await self._calls.results(batch) if self._hooks.has("after_tool") else []
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
            batch.keep(blobs)
            self._known.fresh.update({blob.digest: blob.data for blob in blobs})
        batch.apply(ResultsReviewed(replaced=replaced, at=batch.now))
        self._extend(batch, said)
        return True

    def _give_route(self, batch: Batch) -> None:
        if self.given_route is not None:
            batch.apply(RouteGiven(route=self.given_route, at=batch.now))

    def _accept(self, batch: Batch, post: PostMessage | Compact | CallTool | Resume, now: int) -> Accept:
        spent = self._spent
        if batch.checkpoint.spent is not None:
            spent = None
        elif spent is not None:
            # A turn that ends in this very commit was begun before anything limited the session.
            for entry in batch.entries:
                if isinstance(entry, TurnEnded):
                    spent = plus(spent, Amounts(steps=entry.steps, tool_calls=entry.tool_calls, ms=entry.ran))
        return Accept(
            post=post,
            agent=self._agent.name,
            definition=self.described.digest,
            route=self.given_route or self._router.default,
            limits=self._agent.limits,
            session_limits=self._agent.session_limits,
            spent=spent,
            terms=self._agent.terms,
            memory=self._agent.session_memory is not None and not isinstance(post, CallTool),
            at=now,
        )

    def check_route(self) -> None:
        """A session goes on with the route that was chosen for it, or not at all."""
        checkpoint = self._known.checkpoint
        if self.given_route is not None or any(row.kind == SelectRoute.kind for row in self._known.rows):
            return
        check_routes(checkpoint, self._agent, self._router)

    # ------------------------------------------------------------------------------------------------------------------ the next model call

    async def _look_at_pool(self, batch: Batch, calls: int | None = None) -> None:
        """Before the turn draws from its owner's pool, and when it begins, see what is in there now."""
        turn, store, owner = batch.checkpoint.turn, self._known.store, batch.head.row.owner
        if turn is None or not owner or not isinstance(store, KeepsPools):
            return
        looked, self._looked = self._looked, turn.id
        if batch.pool is None and (looked == turn.id or self._claims):
            # It was looked at when the session was taken up, or when the turn began.
            return
        if batch.pool is None or not within_reach(turn, batch.pool, calls):
            pool = await store.pool(owner)
            self._known.take_pool(pool)
            batch.see_pool(pool)

    async def _prepare(self, batch: Batch, fence: int) -> bool:
        """Decide the next thing on the way to the step's model call. False: what somebody is to say is not known yet."""
        await self._look_at_pool(batch)
        if self.remembering.matters(batch):
            route, tokens = self.preparation.route(batch.checkpoint), self.preparation.tokens(batch.checkpoint)
            match await self.remembering.prepare(batch, fence, route, tokens):
                case "kept":
                    # What was learned is a fact, and on disk, before the turn goes on.
                    return False
                case "asks":
                    self._work.requests = self.remembering.asked
                    return True
        prepared = await self.preparation.prepare(batch)
        match prepared.then:
            case "write":
                if prepared.begins and not await self._stopped_by_hook(batch, "before_compaction", prepared):
                    return False
                if batch.checkpoint.turn is not None and phase(batch.checkpoint) == "model":
                    await self.preparation.write(batch, fence, prepared.upto)
            case "accept":
                if not await self._stopped_by_hook(batch, "after_compaction", prepared):
                    return False
                if batch.checkpoint.turn is not None and phase(batch.checkpoint) == "model":
                    return await self._use(batch, fence, prepared)
            case "start":
                return await self._prepare_step(batch, fence)
        self._work.requests = self.preparation.asked
        return True

    async def _stopped_by_hook(self, batch: Batch, when: Literal["before_compaction", "after_compaction"], prepared: Next) -> bool:
        """Let the agent's own code say that the turn ends here. False: it has not said anything yet."""
        if not self._hooks.has(when):
            return True
        turn = batch.turn
        key = (when, turn.id, turn.step, prepared.upto, len(turn.compactions))
        said = self._hooks.ask(key, partial(self._hooks.compaction, when, batch.checkpoint))
        if said is None:
            return False
        if said.fault is not None:
            self._fail(batch, said.fault.failure)
        elif self._extend(batch, said) and isinstance(said.value, Stop):
            if prepared.then == "accept":
                self.preparation.accept(batch, prepared)
            # What was accepted by hand has completed its turn already.
            if phase(batch.checkpoint) == "model":
                batch.apply(EndEarly(reason=said.value.reason, at=batch.now))
        return True

    async def _use(self, batch: Batch, fence: int, prepared: Next) -> bool:
        """Let models see notes. Where the agent's own code has a say in the request that uses them, only once it has said it."""
        if batch.turn.compacts or not self._hooks.has("before_model", "model_request"):
            self.preparation.accept(batch, prepared)
            self._work.requests = self.preparation.asked
            return True
        return await self._prepare_step(batch, fence, prepared)

    async def _prepare_step(self, batch: Batch, fence: int, behind: Next | None = None) -> bool:
        """Start the step's model call, ``behind`` notes that nothing has accepted yet. False: what it is to say is not known yet."""
        additions: Additions | None = None
        if self._hooks.has("before_model", "model_request"):
            running = batch.turn.model
            record = await self._record_of(running) if running is not None else None
            now = (batch.checkpoint.context, batch.checkpoint.epoch)
            if behind is None and record is not None and (record.context, record.epoch) == now:
                # The same request once more: what was said about it counts.
                additions = Additions.of(await self._known.blob(record.additions)) if record.additions else None
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
                    self.preparation.accept(batch, behind)
                if not self._extend(batch, said):
                    return True
                await self._known.sync(batch)
                additions = said.value
        said_of_it = content(additions.data) if additions is not None else None
        if said_of_it is not None:
            self.keep(batch, said_of_it)
        record = self.preparation.record(batch, said_of_it.digest if said_of_it is not None else "")
        request = self.preparation.request(batch)
        batch.apply(Prepared(kind="model", request=record, fence=fence, at=batch.now))
        if batch.checkpoint.turn is not None and (operation := batch.checkpoint.turn.model) is not None:
            asked = request if additions is None else additions.request(request)
            self._work.requests = {operation.id: self.preparation.asks(batch, asked)}
            self._sent = (operation.id, record)
            # Code of the user's may add any message; else only a conversation that holds media is looked through.
            self._performer.media = self._known.context.has_media or additions is not None
        return True

    def _asked_about_request(self, batch: Batch, behind: Next | None) -> Said | None:
        turn = batch.turn
        key = ("before_model", turn.id, turn.step, batch.checkpoint.context, batch.checkpoint.epoch, len(turn.compactions))
        request = self.preparation.request(batch, behind.shown if behind is not None else None)
        return self._hooks.ask(key, partial(self._hooks.prepare, batch.checkpoint, request))

    async def _record_of(self, operation: Operation) -> RequestRecord | None:
        """What an attempt of a model call that failed was asked."""
        if self._sent is not None and self._sent[0] == operation.id:
            return self._sent[1]
        turn = self._known.checkpoint.turn
        if turn is None:
            return None
        rows = await self._known.store.entries(self._known.ledger.no, after=turn.began, kinds=("operation_started",), newest_first=True)
        for entry in map(open_entry, rows):
            if isinstance(entry, OperationStarted) and entry.operation == operation.id:
                return entry.request
        return None

    def keep(self, batch: Batch, *contents: StoredBlob) -> None:
        """Content that entries refer to, stored once."""
        batch.keep([content for content in contents if content.digest not in self.stored])

    async def _plan_calls(self, batch: Batch, fence: int) -> None:
        turn = batch.checkpoint.turn
        if turn is None or not turn.unplanned or self.stopping:
            return
        await self._known.sync(batch)
        judged: dict[str, Any] = {}
        if self._agent.policy.is_callable or self._hooks.has("before_tool", "permission"):
            said = self._hooks.ask(("calls", turn.id, turn.answer), partial(self._calls.judge, batch.checkpoint, self._hooks))
            if said is None:
                return
            if said.fault is not None:
                self._fail(batch, said.fault.failure)
                return
            if not self._extend(batch, said):
                return
            judged = said.value
        await self._look_at_pool(batch, len(turn.unplanned))
        await self._calls.plan(batch, fence, judged)


def middleware_error(fault: Fault) -> MiddlewareError:
    """A fault that keeps the session from being taken up."""
    return MiddlewareError(
        fault.words, hint="nothing was changed; resume the session when it is mended", middleware=fault.extension, hook=fault.hook
    )
