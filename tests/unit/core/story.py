"""A session told by pure decisions, and entries in one line each: what the tests of the core are written with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from perdure.core import entries, ids
from perdure.core.budget import plus
from perdure.core.checkpoint import Checkpoint, Operation
from perdure.core.commands import Answer, Archive, CallTool, Compact, Halt, PostMessage, ReportOutcome, ReportResult, Resume
from perdure.core.decider import decide
from perdure.core.draft import Draft
from perdure.core.entries import AllowanceGranted, Entry, OperationEnded, SessionCreated
from perdure.core.evolve import evolve, fold
from perdure.core.messages import Part, Text, ToolCall, ToolCallResponse
from perdure.core.phase import phase
from perdure.core.records import Amounts, Failure, Limits, Plan, Pool, RequestRecord, Terms
from perdure.core.reports import (
    Accept,
    AttemptEnded,
    BeginStep,
    CallAccepted,
    CallsPlanned,
    Claimed,
    CompactionAccepted,
    ErrandsDone,
    Finish,
    HandOver,
    Outcome,
    PlannedCall,
    Prepared,
    Reconciled,
    Report,
    StartTools,
    TimePassed,
)
from perdure.core.rules.endings import ASLEEP
from perdure.core.usage import Totals, Usage

NOT_EXECUTED = "not executed"
UNKNOWN = "execution interrupted; result unknown"
AFTER_RESTART = "execution interrupted; result unknown after restart"
SPENT = Usage(input_tokens=10, output_tokens=5)


def request(digest: str = "same", upto: int | None = None) -> RequestRecord:
    """A model request of which only the digest and ``upto`` matter."""
    return RequestRecord(route="scripted:1", context="c", epoch=0, instructions="i", tools="t", settings="s", digest=digest, upto=upto)


def call(identity: str = "c1", name: str = "refund", **arguments: Any) -> ToolCall:
    return ToolCall(id=identity, name=name, arguments=arguments)


def planned(asked: ToolCall, effect: Any = "external", **facts: Any) -> PlannedCall:
    """A call with what its tool says of it; facts of the plan and of the verdict may be mixed."""
    of_plan = {name: facts.pop(name) for name in list(facts) if name in Plan.__struct_fields__}
    plan = Plan(
        **({"kind": "tool"} | of_plan), name=asked.name, call=asked.id, arguments=ids.arguments_digest(asked.arguments), effect=effect
    )
    return PlannedCall(plan=plan, **facts)


def with_terms(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts of a command in which those of a turn's terms may stand among the others."""
    others = {name: value for name, value in facts.items() if name not in Terms.__struct_fields__}
    return others | {"terms": Terms(**{name: facts[name] for name in facts if name not in others})}


class Story:
    """A session's journal as it grows. Every command is ten milliseconds after the one before."""

    def __init__(self, session_id: str = "s1", at: int = 1000, fence: int = 1) -> None:
        self.at = at
        self.fence = fence
        self.checkpoint = Checkpoint()
        self.entries: list[Entry] = []
        self.step = ""
        self.pool: Pool | None = None
        draft = Draft(self.checkpoint)
        draft.write(SessionCreated(session_id=session_id, root=session_id, agent="support"), at)
        self._keep(draft.entries)

    def _keep(self, written: Iterable[Entry]) -> list[Entry]:
        found = list(written)
        for entry in found:
            self.checkpoint = evolve(self.checkpoint, entry)
            if isinstance(entry, AllowanceGranted) and self.pool is not None:
                self.pool = replace(self.pool, drawn=plus(self.pool.drawn, entry.drawn))
        self.entries += found
        return found

    def now(self) -> int:
        self.at += 10
        return self.at

    def do(self, command: Any) -> list[Entry]:
        """Decide a command, and keep what it wrote."""
        return self._keep(decide(self.checkpoint, command))

    def told(self, command: Any) -> list[str]:
        """What a command makes happen, a line for each entry."""
        return [line(entry) for entry in self.do(command)]

    # ------------------------------------------------------------------------------------------------------ the usual steps

    def says(
        self,
        text: str = "hello",
        *,
        deliver: Any = "turn",
        limits: Limits | None = None,
        submission: str = "m1",
        notes: tuple[str, ...] = (),
        **facts: Any,
    ) -> list[Entry]:
        post = PostMessage(parts=(Text(content=text),), deliver=deliver, submission=submission, notes=notes)
        return self.do(Accept(post=post, agent="support", definition="d1", limits=limits or Limits(), at=self.now(), **with_terms(facts)))

    def called(
        self, asked: ToolCall | None = None, *, submission: str = "o1", holds: Any = (), limits: Limits | None = None
    ) -> CallAccepted:
        """Somebody has a tool called outside of the conversation."""
        asked = asked or call()
        return CallAccepted(
            post=CallTool(name=asked.name, arguments=asked.arguments, submission=submission, actor="ann"),
            agent="support",
            definition="d1",
            limits=limits or Limits(),
            terms=Terms(holds=holds),
            parts=(asked,),
            at=self.now(),
        )

    def resumes(self, limits: Limits | None = None, *, agents: Limits | None = None, **facts: Any) -> list[Entry]:
        """The limited turn goes on, by an agent with these limits."""
        post = Resume(limits=limits, submission="r1", actor="ann")
        return self.do(Accept(post=post, agent="support", definition="d1", limits=agents or Limits(), at=self.now(), **with_terms(facts)))

    def compacts(self, submission: str = "c1") -> list[Entry]:
        post = Compact(submission=submission)
        return self.do(Accept(post=post, agent="support", definition="d1", limits=Limits(), at=self.now()))

    def steps(self, digest: str = "same") -> list[Entry]:
        """The next model call starts."""
        return self.do(Prepared(kind="model", request=request(digest), fence=self.fence, pool=self.pool, at=self.now()))

    def model_ends(self, *parts: Part, **facts: Any) -> list[Entry]:
        running = self.operation(self.running_model.id)
        report = {"status": "succeeded", "usage": SPENT if parts else None} | facts
        return self.do(AttemptEnded(operation=running.id, attempt=running.attempt, parts=parts, at=self.now(), **report))

    def notes_asked(self, digest: str = "notes", upto: int = 2) -> Prepared:
        return Prepared(kind="compaction", request=request(digest, upto), fence=self.fence, at=self.now())

    def notes_end(self, *parts: Part, status: Any = "succeeded", **facts: Any) -> AttemptEnded:
        turn = self.checkpoint.turn
        assert turn is not None
        running = turn.compactions[-1]
        return AttemptEnded(
            operation=running.id,
            attempt=running.attempt,
            status=status,
            parts=parts,
            finish="stop" if parts else "",
            at=self.now(),
            **facts,
        )

    def notes_accepted(self) -> CompactionAccepted:
        return CompactionAccepted(kept=((2, 3),), answers=1, private=False, at=self.now())

    def repair_asked(self, digest: str = "repair") -> Prepared:
        return Prepared(kind="repair", request=request(digest), fence=self.fence, pool=self.pool, at=self.now())

    def repair_ends(self, *parts: Part, status: Any = "succeeded", **facts: Any) -> AttemptEnded:
        turn = self.checkpoint.turn
        assert turn is not None
        running = turn.repair
        assert running is not None
        return AttemptEnded(operation=running.id, attempt=running.attempt, status=status, parts=parts, at=self.now(), **facts)

    def memory_asked(self, digest: str = "memory", upto: int = 1) -> Prepared:
        return Prepared(kind="memory", request=request(digest, upto), tokens=30, fence=self.fence, at=self.now())

    def memory_ends(self, *parts: Part, status: Any = "succeeded", **facts: Any) -> AttemptEnded:
        turn = self.checkpoint.turn
        assert turn is not None
        running = turn.extraction
        assert running is not None
        report = {"attempt": running.attempt, "at": self.now()} | facts
        return AttemptEnded(operation=running.id, status=status, parts=parts, **report)

    def draws(self, pool: str, amounts: Amounts) -> list[Entry]:
        """The turn drew from a pool of its owner's."""
        draft = Draft(self.checkpoint)
        draft.write(AllowanceGranted(pool=pool, drawn=amounts), self.now())
        return self._keep(draft.entries)

    def plans(self, *calls: PlannedCall) -> list[Entry]:
        return self.do(CallsPlanned(calls=calls, fence=self.fence, pool=self.pool, at=self.now()))

    def starts(self) -> list[Entry]:
        return self.do(StartTools(fence=self.fence, at=self.now()))

    def tool_ends(self, identity: str, status: Any = "succeeded", response: Any = "done", **facts: Any) -> list[Entry]:
        return self.do(self.tool_report(identity, status, response, **facts))

    def tool_report(self, identity: str, status: Any = "succeeded", response: Any = "done", **facts: Any) -> AttemptEnded:
        item = self.operation(identity)
        parts = () if status in ("uncertain", "cancelled") else self.response(identity, response, is_error=status == "failed")
        report = {"attempt": item.attempt, "parts": parts, "at": self.now()} | facts
        return AttemptEnded(operation=identity, status=status, **report)

    def step_report(self, status: Any = "succeeded") -> AttemptEnded:
        """What an extension did outside came to something."""
        part = ToolCallResponse(id="e", name="e", response="done")
        return AttemptEnded(operation=self.step, attempt=1, status=status, parts=(part,), at=self.now())

    def response(self, identity: str, response: Any = "done", *, is_error: bool = False) -> tuple[Part, ...]:
        item = self.operation(identity)
        return (ToolCallResponse(id=item.plan.call, name=item.plan.name, response=response, is_error=is_error),)

    def claim(self, **facts: Any) -> Claimed:
        """A new holder, whose predecessor never let go."""
        self.fence += 1
        return Claimed(fence=self.fence, at=self.now(), **facts)

    def answer(self, identity: str, decision: Any, **facts: Any) -> Answer:
        request_id = self.operation(identity).request
        return Answer(request_id=request_id, decision=decision, submission="a1", actor="ann", at=self.now(), **facts)

    def reconciled(self, identity: str, outcome: Any) -> Reconciled:
        parts = self.response(identity, "found") if outcome == "done" else ()
        return Reconciled(operation=identity, outcome=outcome, parts=parts, fence=self.fence, at=self.now())

    def report(self, identity: str, attempt: int = 1, result: Any = "late", *, is_error: bool = False) -> Report:
        """A late result, with the receipt that said *uncertain* if there is one."""
        told = ReportResult(operation=identity, attempt=attempt, result=result, is_error=is_error, submission="r1", actor="hook")
        receipts = [
            entry
            for entry in self.entries
            if isinstance(entry, OperationEnded) and (entry.operation, entry.attempt) == (identity, attempt) and entry.final
        ]
        receipt = receipts[-1] if receipts and receipts[-1].status == "uncertain" else None
        asked = receipt.parts[0] if receipt is not None else None
        turn = self.checkpoint.turn
        if isinstance(asked, ToolCallResponse):
            parts: tuple[Part, ...] = (replace(asked, response=result, is_error=is_error),)
        elif turn is not None and turn.operation(identity) is not None:
            parts = self.response(identity, result, is_error=is_error)
        else:
            parts = (ToolCallResponse(id="?", name="?", response=result, is_error=is_error),)
        return Report(command=told, parts=parts, receipt=receipt, at=self.now())

    def outcome(self, identity: str = "t2.0.1", outcome: Any = "completed", session: str = "") -> Outcome:
        """What a child came to."""
        told = ReportOutcome(
            operation=identity,
            session=session or ids.child_session(self.checkpoint.session_id, identity),
            outcome=outcome,
            spent=Totals(calls=2, input_tokens=20, output_tokens=10),
            result="found",
            reason="" if outcome == "completed" else "it broke",
            submission=ids.derived_id("outcome", identity),
        )
        # An outcome may come when its turn is over.
        turn = self.checkpoint.turn
        known = turn.operation(identity) if turn is not None else None
        part = ToolCallResponse(id=known.plan.call if known else "c1", name="clerk", response="found", is_error=outcome != "completed")
        return Outcome(command=told, parts=(part,), at=self.now())

    def errands(self, **facts: Any) -> ErrandsDone:
        """All that is owed was done."""
        return ErrandsDone(errands=self.checkpoint.errands, at=self.now(), **facts)

    def hand_over(self) -> HandOver:
        return HandOver(definition="d2", route="billing:1", terms=Terms(holds=("end",)), at=self.now())

    def time(self, at: int) -> TimePassed:
        self.at = at
        return TimePassed(at=at)

    # ---------------------------------------------------------------------------------------------------------------- views

    @property
    def phase(self) -> str:
        return phase(self.checkpoint)

    @property
    def running_model(self) -> Operation:
        assert self.checkpoint.turn is not None
        running = self.checkpoint.turn.model
        assert running is not None
        return running

    def operation(self, identity: str) -> Operation:
        assert self.checkpoint.turn is not None
        found = self.checkpoint.turn.operation(identity)
        assert found is not None, f"no operation {identity}"
        return found

    def folds(self) -> bool:
        return fold(self.entries) == self.checkpoint


# --------------------------------------------------------------------------------------------------------- the situations


def idle() -> Story:
    return Story()


def archived() -> Story:
    """Somebody put the session away after a turn whose effect is uncertain."""
    story = tools()
    story.tool_ends("t2.0.1", "uncertain")
    story.do(Archive(submission="x1", at=story.now()))
    return story


def halted() -> Story:
    """The session was stopped while a call ran."""
    story = tools()
    story.do(Halt(submission="x3", problem="entry 3 is not what was written", at=story.now()))
    return story


def before_model() -> Story:
    """A turn began; no model call was prepared yet."""
    story = Story()
    story.says()
    return story


def model() -> Story:
    """The first model call runs."""
    story = before_model()
    story.steps()
    return story


def backing_off() -> Story:
    """The model's provider failed, and the call will be tried again."""
    story = model()
    story.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"))
    return story


def outgrown() -> Story:
    """A second turn before its model call, with one answer to summarise."""
    story = Story()
    story.says()
    story.steps()
    story.model_ends(Text(content="hello"))
    story.do(Finish(at=story.now()))
    story.says("and now?", submission="m2")
    return story


def writing() -> Story:
    """Notes are being written."""
    story = outgrown()
    story.do(story.notes_asked())
    return story


def noted() -> Story:
    """Notes were written, and nothing has accepted them yet."""
    story = writing()
    story.do(story.notes_end(saved("notes")))
    return story


def looking() -> Story:
    """What to remember is looked for, before the first model call."""
    story = before_model()
    story.do(story.memory_asked())
    return story


def looked() -> Story:
    """What to remember was found."""
    story = looking()
    story.do(story.memory_ends(Text(content='[{"category": "key_fact", "content": "It rains.", "importance": 3}]')))
    return story


def saved(notes: Any, name: str = "save_notes") -> ToolCall:
    """A writer's call that saves notes."""
    return ToolCall(name, {"notes": notes}, id="n1")


def unplanned(*calls: ToolCall) -> Story:
    """The model asked for tools; nobody planned the calls yet."""
    story = model()
    story.model_ends(*(calls or (call(),)))
    return story


def tools(effect: Any = "external", **facts: Any) -> Story:
    """One call of a tool runs."""
    story = unplanned()
    story.plans(planned(call(), effect, **facts))
    return story


def delegated(*others: PlannedCall, **facts: Any) -> Story:
    """An agent was called, and is about to be begun; perhaps with other calls."""
    asked = planned(call("c1", "clerk"), "idempotent", kind="child", agent="clerk", **facts)
    return batch(asked, *others)


def behind(*, ends: bool = True) -> Story:
    """An agent works in the background, and its caller's turn is over, or about to be."""
    story = delegated(background=True)
    story.steps()
    story.model_ends(Text(content="it is under way"))
    if ends:
        story.do(Finish(at=story.now()))
    return story


def sleeping(**facts: Any) -> Story:
    """The turn waits for a time."""
    return batch(planned(call("c1", "sleep"), "pure", kind="timer", until=2_000, **facts))


def transferred() -> Story:
    """The model handed the conversation over, and nobody has taken it yet."""
    return batch(planned(call("c1", "transfer_to_billing"), "pure", kind="handoff", agent="billing"))


def begin_step(s: Story, identity: str = "t2.0.1/reserve", effect: Any = "external", *, attempt: int = 1, **facts: Any) -> BeginStep:
    """A tool is about to do something in a step of its own."""
    plan = Plan(kind="step", name="refund/reserve", effect=effect, **facts)
    return BeginStep(operation=identity, plan=plan, fence=s.fence, attempt=attempt, at=s.now())


def set_aside(s: Story) -> AttemptEnded:
    """The attempt of a call that began to sleep ends."""
    return AttemptEnded(operation="t2.0.1", attempt=1, status="cancelled", final=False, failure=ASLEEP, at=s.now())


def dozing(*others: PlannedCall, until: int = 2_000) -> Story:
    """A call waits for a time in a step of its own, perhaps beside other calls."""
    s = batch(planned(call(), resumable=True), *others)
    s.do(begin_step(s, "t2.0.1/night", "pure", until=until))
    s.do(set_aside(s))
    return s


def stepping(effect: Any = "external", **facts: Any) -> Story:
    """A resumable tool runs, and a step of it."""
    s = tools(resumable=True)
    s.do(begin_step(s, effect=effect, **facts))
    return s


def waiting(**facts: Any) -> Story:
    """One call of an external tool waits for approval."""
    story = unplanned()
    story.plans(planned(call(), verdict="ask", **facts))
    return story


def asking() -> Story:
    """One external call ended uncertain, and a person is asked what became of it."""
    story = tools(ask_when_uncertain=True)
    story.tool_ends("t2.0.1", "uncertain", failure=Failure(code="timeout"))
    return story


def unknown() -> Story:
    """One external call ended uncertain, and its tool is asked what became of it."""
    story = tools(reconcile=True)
    story.tool_ends("t2.0.1", "uncertain", failure=Failure(code="timeout"))
    return story


def completing() -> Story:
    """The model answered and asked for nothing."""
    story = model()
    story.model_ends(Text(content="hi"))
    return story


def held(**facts: Any) -> Story:
    """The model answered, and whether that is what it has to be is not known yet."""
    story = Story()
    story.says(holds=("output",), repairs=1, **facts)
    story.steps()
    story.model_ends(Text(content="about five"))
    return story


def repairing() -> Story:
    """The model corrects its answer."""
    story = held()
    story.do(story.repair_asked())
    return story


def repaired() -> Story:
    """The model corrected its answer."""
    story = repairing()
    story.do(story.repair_ends(Text(content="5")))
    return story


def answered_only(finish: Any) -> Story:
    """The model answered where an answer alone ends nothing."""
    story = Story()
    story.says(finish=finish)
    story.steps()
    story.model_ends(Text(content="which one?"))
    return story


def asked(deadline: int = 0, default: Any = "deny") -> Story:
    """The model's answer asks the user."""
    story = answered_only("ask")
    story.do(Finish(deadline=deadline, default=default, at=story.now()))
    return story


def asked_by_call(*others: PlannedCall, deadline: int = 0) -> Story:
    """A call of the model asks the user."""
    question = call("q", "ask_user", question="which one?")
    story = unplanned(question, *(call(item.plan.call, item.plan.name) for item in others))
    story.plans(planned(question, "pure", asks=True, verdict="question", deadline=deadline), *others)
    return story


def finishing(*others: PlannedCall) -> Story:
    """A call that ends the turn runs, before others of its step."""
    story = Story()
    story.says(finish="tool")
    story.steps()
    finish = call("f", "finish", answer="done")
    story.model_ends(finish, *(call(item.plan.call, item.plan.name) for item in others))
    story.plans(planned(finish, "pure", ends="answer", exclusive=True), *others)
    return story


def finished() -> Story:
    """A call ended the turn."""
    story = finishing()
    story.tool_ends("t2.0.1")
    return story


def outside(effect: Any = "external", *, holds: Any = (), **facts: Any) -> Story:
    """One call that somebody wants outside of the conversation runs, or waits for approval."""
    story = Story()
    story.do(story.called(holds=holds))
    story.plans(planned(call(), effect, **facts))
    return story


def reviewed(*calls: PlannedCall) -> Story:
    """Every call has its result, and the agent's own code has not seen them."""
    story = Story()
    story.says(holds=("results",))
    story.steps()
    found = calls or (planned(call()),)
    story.model_ends(*(call(item.plan.call, item.plan.name) for item in found))
    story.plans(*found)
    for item in [*story.checkpoint.turn.tools] if story.checkpoint.turn is not None else []:
        story.tool_ends(item.id)
    return story


def ending() -> Story:
    """How the turn ends is decided, and the agent's own code has not heard of it."""
    story = Story()
    story.says(holds=("end",))
    story.steps()
    story.model_ends(Text(content="hi"))
    story.do(Finish(at=story.now()))
    return story


def batch(*calls: PlannedCall) -> Story:
    """The model asked for several calls, and they are planned."""
    story = unplanned(*(call(item.plan.call, item.plan.name) for item in calls))
    story.plans(*calls)
    return story


# ---------------------------------------------------------------------------------------------------------------- lines


def line(entry: Entry) -> str:
    """An entry in one line: its kind, what it is about, how it went, and the words that the model is told.

    ``…`` marks an attempt that its operation survives, ``!`` an error result.
    """
    match entry:
        case entries.TurnStarted():
            rest = entry.turn
        case entries.AllowanceGranted():
            rest = f"{entry.pool} back" if entry.settled else entry.pool
        case entries.MessageAdded():
            sources = [str(item.receipt) for item in entry.responses] or [str(entry.receipt)]
            rest = f"user {entry.deliver}".rstrip() if entry.role == "user" else f"{entry.role} → {','.join(sources)}"
        case entries.OperationPlanned():
            rest = f"{entry.operation} {entry.plan.name}"
        case entries.OperationStarted():
            rest = f"{entry.operation}#{entry.attempt}"
        case OperationEnded():
            attempt = "" if "/" in entry.operation else f"#{entry.attempt}"
            rest = f"{entry.operation}{attempt} {entry.status}{'' if entry.final else '…'}"
            rest += f" ({entry.failure.code})" if entry.failure else ""
            rest += _words(entry.parts)
        case entries.RequestOpened():
            rest = f"{entry.__struct_config__.tag} {entry.operation}"
        case entries.RequestClosed():
            rest = f"{entry.operation} {entry.decision} by {entry.by}"
        case entries.TurnLimited():
            rest = f"{entry.turn} {entry.limit}"
        case entries.TurnFailed():
            rest = f"{entry.turn} ({entry.failure.code})"
        case entries.TurnEnded():
            rest = entry.turn
        case entries.EffectSettled():
            rest = f"{entry.operation}#{entry.attempt} {entry.status} ← {entry.receipt}{_words(entry.parts)}"
        case entries.Recovered():
            rest = " ".join(
                [entry.turn, f"fence {entry.fence}", *(f"{item.operation}#{item.attempt}={item.status}" for item in entry.attempts)]
            )
        case entries.QueueChanged():
            rest = f"{entry.submission} {entry.change} {entry.deliver}"
        case entries.RouteSelected():
            rest = entry.route
        case entries.PrefixChanged():
            rest = f"epoch {entry.epoch} private_from {entry.private_from}"
        case entries.GrantGiven():
            rest = f"{entry.name}{' revoked' if entry.revoked else ''}"
        case entries.DefinitionChange():
            rest = f"{entry.old} → {entry.new}"
        case entries.Rebased():
            rest = f"{entry.old} → {entry.new}"
        case entries.Rewritten():
            rest = f"[{entry.start}, {entry.stop}) → {entry.count}{' restored' if entry.restored else ''}"
        case entries.Redacted():
            rest = ",".join(str(row.seq) for row in entry.rows)
        case entries.NoteAdded():
            rest = entry.operation or entry.extension
            rest += f" ← {entry.receipt}" if entry.receipt else ""
        case entries.NotesWithdrawn():
            rest = ",".join(map(str, entry.notes))
        case entries.ChildEnded():
            rest = f"{entry.operation} {entry.outcome}"
        case entries.PassedOn():
            rest = " ".join(f"{errand.kind} {errand.operation}" for errand in entry.errands)
        case entries.TurnEnding():
            rest = f"{entry.turn} {entry.outcome}"
        case entries.ExtensionSet():
            rest = f"{entry.extension}.{entry.key}{' dropped' if entry.dropped else ''}"
        case entries.Halted(released=True):
            rest = "released"
        case entries.ExtensionCommand():
            rest = f"{entry.extension}.{entry.command}"
        case _:
            rest = ""
    return f"{entry.kind} {rest}".rstrip()


def lines(written: Iterable[Entry]) -> list[str]:
    return [line(entry) for entry in written]


def _words(parts: tuple[Part, ...]) -> str:
    response = parts[0] if parts else None
    if not isinstance(response, ToolCallResponse):
        return ""
    return f" {'!' if response.is_error else ''}{response.response!r}"
