"""Every cell of the decider's table, command × situation: exactly what it writes, refuses, or leaves where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import story
from msgspec.structs import replace
from story import NOT_EXECUTED, UNKNOWN, Story, call, planned

from perdure.core.checkpoint import STEPS_LIMIT
from perdure.core.commands import (
    AddNote,
    Answer,
    Archive,
    Compact,
    Describe,
    EditMessage,
    Halt,
    Interrupt,
    PostMessage,
    RedactContent,
    Repair,
    Replacement,
    RestoreRevision,
    Resume,
    Revive,
    RevokeGrant,
    RewriteSpan,
    RunCommand,
    SelectRoute,
    Withdraw,
)
from perdure.core.decider import TABLE, apply, decide, impossible, not_now
from perdure.core.draft import Draft
from perdure.core.entries import MessageAdded, TurnEnding
from perdure.core.errors import (
    LimitExceeded,
    NothingChanged,
    Refused,
    RevisionConflict,
    SessionArchived,
    SessionBusy,
    SessionHalted,
    StaleRequest,
    SubmissionRejected,
)
from perdure.core.messages import Text, ToolCallResponse
from perdure.core.phase import phase
from perdure.core.records import Amounts, EffectMatch, Errand, Failure, Limits, Plan, Pool, RedactedRow, Terms
from perdure.core.reports import (
    Accept,
    AttemptEnded,
    BeginStep,
    CallAccepted,
    CallsPlanned,
    ChangeQueue,
    Claimed,
    CommandDone,
    CompactionAccepted,
    Continue,
    EditTranscript,
    EndEarly,
    EndTurn,
    ErrandsDone,
    Extend,
    Fail,
    Finish,
    Guarded,
    Guidance,
    HandOver,
    Outcome,
    OutputAccepted,
    OutputRefused,
    Parked,
    Prepared,
    Promote,
    Reconciled,
    Redact,
    Redefined,
    Reject,
    Report,
    ResultsReviewed,
    RouteGiven,
    Setting,
    StartTools,
    StopTurn,
    TimePassed,
)
from perdure.core.rules import attempts, endings
from perdure.core.transcript import EMPTY, Transcript, chained


def reject(s: Story) -> Reject:
    post = PostMessage(parts=(Text(content="more"),), submission="m2", actor="ann")
    return Reject(post=post, agent="support", definition="d1", reason="no", extension="guard", at=s.now())


def called(s: Story) -> CallAccepted:
    return s.called()


def begun(s: Story, **facts: Any) -> Story:
    s.do(s.called(**facts))
    return s


def outside_told() -> Story:
    """A call from outside came to its end, and its turn has not."""
    s = story.outside()
    s.tool_ends("s2.0.0")
    return s


def outside_reviewed() -> Story:
    s = story.outside(holds=("results",))
    s.tool_ends("s2.0.0")
    return s


def noted_message(s: Story) -> Accept:
    post = PostMessage(parts=(Text(content="more"),), submission="m2", actor="ann", notes=("it rains", "it's late"))
    return Accept(post=post, agent="support", definition="d1", limits=Limits(), at=s.now())


def with_notes(*, answered: bool = False) -> Story:
    s = Story()
    s.says(notes=("it rains", "it's late"))
    if answered:
        s.steps()
        s.model_ends(Text(content="hi"))
    return s


def extend(s: Story) -> Extend:
    told, kept = Guidance(extension="guard", text="careful", once="hint"), Setting(extension="guard", key="spent", value=3)
    return Extend(guidance=(told,), settings=(kept,), at=s.now())


def extend_again(s: Story) -> Extend:
    told, dropped = Guidance(extension="guard", text="careful", once="hint"), Setting(extension="guard", key="spent", dropped=True)
    unknown = Setting(extension="guard", key="other", dropped=True)
    return Extend(guidance=(told, told), settings=(dropped, unknown), at=s.now())


def extend_too_much(s: Story) -> Extend:
    return Extend(settings=tuple(Setting(extension="guard", key=f"k{index}", value=0) for index in range(65)), at=s.now())


def told_once(make: Callable[[], Story]) -> Callable[[], Story]:
    def made() -> Story:
        s = make()
        s.do(extend(s))
        return s

    return made


def command_done(s: Story) -> CommandDone:
    asked = RunCommand(extension="guard", command="raise", arguments={"to": 5}, submission="c1", actor="ann")
    return CommandDone(command=asked, at=s.now())


def begin_step(s: Story, identity: str = "t2.0/e", effect: Any = "external") -> BeginStep:
    return BeginStep(operation=identity, plan=Plan(kind="step", name="e", effect=effect), fence=s.fence, at=s.now())


def with_step(make: Callable[[], Story], effect: Any = "external") -> Callable[[], Story]:
    """An extension is doing something outside."""

    def made() -> Story:
        s = make()
        assert s.checkpoint.turn is not None
        s.step = f"t2.{s.checkpoint.turn.step}/e"
        s.do(begin_step(s, s.step, effect))
        return s

    return made


def after(s: Story, when: Callable[[Story], Any]) -> Story:
    s.do(when(s))
    return s


def limited_to(**limits: int) -> Story:
    """The model asked for a call, and the turn has limits."""
    s = Story()
    s.says(limits=Limits(**limits))
    s.steps()
    s.model_ends(call("c1", "clerk"))
    return s


def plans(*calls: Any) -> Callable[[Story], CallsPlanned]:
    return lambda s: CallsPlanned(calls=calls, fence=s.fence, at=s.now())


def ended_first(s: Story) -> Story:
    s.tool_ends("t2.0.1")
    return s


def claimed(s: Story) -> Story:
    s.do(s.claim())
    return s


def many_steps() -> Story:
    s = story.before_model()
    for index in range(STEPS_LIMIT):
        s.do(begin_step(s, f"t2.0/e{index}"))
    return s


def stop_turn(s: Story) -> StopTurn:
    return StopTurn(reason="enough", extension="guard", at=s.now())


def results(s: Story) -> ResultsReviewed:
    return ResultsReviewed(at=s.now())


def go_on(s: Story) -> Continue:
    return Continue(prompt="and the tests?", extension="guard", at=s.now())


def continued() -> Story:
    """The turn went on once already, and the model answered again."""
    s = story.completing()
    s.do(go_on(s))
    s.steps("next")
    s.model_ends(Text(content="done"))
    return s


def held_end() -> Story:
    s = Story()
    s.says(holds=("end",))
    s.steps()
    s.model_ends(Text(content="hi"))
    return s


def decided(s: Story) -> TurnEnding:
    found = [entry for entry in s.entries if isinstance(entry, TurnEnding)]
    return found[-1] if found else TurnEnding(turn="t2", outcome="completed")


def end(s: Story) -> EndTurn:
    return EndTurn(ending=decided(s), at=s.now())


def archive(s: Story) -> Archive:
    return Archive(submission="x1", actor="ann", at=s.now())


def revive(s: Story) -> Revive:
    return Revive(submission="x2", actor="ann", at=s.now())


def halt(s: Story) -> Halt:
    return Halt(submission="x3", actor="ann", problem="entry 3 is not what was written", at=s.now())


def repair(s: Story) -> Repair:
    return Repair(submission="x4", actor="ann", at=s.now())


def empty(finish: Any) -> Story:
    """A wish to compact, carried out where an answer alone ends nothing."""
    s = answered()
    s.do(Accept(post=Compact(submission="c1"), agent="support", definition="d1", terms=Terms(finish=finish), at=s.now()))
    s.do(s.notes_asked())
    s.do(s.notes_end(story.saved("notes")))
    s.do(s.notes_accepted())
    return s


def accepted(s: Story) -> OutputAccepted:
    return OutputAccepted(operation=waits(s), at=s.now())


def refused(s: Story) -> OutputRefused:
    return OutputRefused(operation=waits(s), failure=Failure(code="output_invalid", message="no number"), at=s.now())


def waits(s: Story) -> str:
    turn = s.checkpoint.turn
    return turn.candidate.id if turn is not None and turn.candidate is not None else ""


def held_model() -> Story:
    s = Story()
    s.says(holds=("output",), repairs=1)
    s.steps()
    return s


def s_ended(s: Story, *parts: Any) -> AttemptEnded:
    return AttemptEnded(operation=s.running_model.id, attempt=1, status="succeeded", parts=parts, at=s.now())


def repair_backs_off() -> Story:
    s = story.repairing()
    s.do(s.repair_ends(status="failed", failure=Failure(code="down"), retryable=True))
    return s


def parked(s: Story) -> Parked:
    return Parked(pool=Pool(id="p", limits=Limits(tokens=80_000)), at=s.now())


def drew(make: Callable[[], Story]) -> Callable[[], Story]:
    """The turn drew from its owner's pool, and holds what it didn't use."""

    def made() -> Story:
        s = make()
        s.draws("p", Amounts(tokens=10_000))
        return s

    return made


class Refusal(NamedTuple):
    error: type[Refused]
    reason: str = ""


IMPOSSIBLE = object()
NOTHING: list[str] = []

Tell = Callable[[Story], Any]


class Case(NamedTuple):
    command: type
    situation: str
    name: str
    given: Callable[[], Story]
    when: Tell
    then: Any


CASES: list[Case] = []


def cell(command: type, situation: str, name: str, given: Callable[[], Story], when: Tell, then: Any) -> None:
    CASES.append(Case(command, situation, name, given, when, then))


def accept(deliver: Any, turn: str = "") -> Tell:
    post = PostMessage(parts=(Text(content="more"),), deliver=deliver, submission="m2", actor="ann", turn=turn)
    return lambda s: Accept(post=post, agent="support", definition="d1", limits=Limits(), at=s.now())


def interrupt(turn: str = "") -> Tell:
    return lambda s: Interrupt(turn=turn, at=s.now(), submission="i1")


def answer(decision: Any = "approve", request: str | None = None, **facts: Any) -> Tell:
    def command(s: Story) -> Answer:
        found = "0123456789abcdef"
        if request is None and s.checkpoint.turn is not None and s.checkpoint.turn.requests:
            found = s.checkpoint.turn.requests[0].request
        return Answer(request_id=request or found, decision=decision, at=s.now(), submission="a1", actor="ann", **facts)

    return command


def report(identity: str = "t2.0.1", attempt: int = 1, *, is_error: bool = False) -> Tell:
    return lambda s: s.report(identity, attempt, is_error=is_error)


def claim(**facts: Any) -> Tell:
    return lambda s: s.claim(**facts)


def ended(identity: str = "t2.0.1", attempt: int = 1, status: Any = "succeeded", **facts: Any) -> Tell:
    return lambda s: AttemptEnded(operation=identity, attempt=attempt, status=status, at=s.now(), **facts)


def plan(*calls: Any) -> Tell:
    return lambda s: CallsPlanned(calls=calls or (planned(call()),), fence=s.fence, at=s.now())


def start(s: Story) -> StartTools:
    return StartTools(fence=s.fence, at=s.now())


def prepare(digest: str = "same") -> Tell:
    return lambda s: Prepared(kind="model", request=story.request(digest), fence=s.fence, at=s.now())


def drawing(pool: Pool) -> Tell:
    return lambda s: Prepared(kind="model", request=story.request(), fence=s.fence, pool=pool, at=s.now())


def resume() -> Tell:
    return lambda s: Accept(post=Resume(submission="r1"), agent="support", definition="d1", limits=Limits(tokens=15), at=s.now())


def reconciled(outcome: Any = "done", identity: str = "t2.0.1") -> Tell:
    return lambda s: Reconciled(
        operation=identity, outcome=outcome, parts=s.response(identity, "found") if outcome == "done" else (), fence=s.fence, at=s.now()
    )


def late(s: Story) -> TimePassed:
    return TimePassed(at=s.at + 1_000_000)


def wish(s: Story) -> Accept:
    return Accept(post=Compact(submission="c1"), agent="support", definition="d1", at=s.now())


def wished() -> Story:
    told = story.idle()
    told.compacts()
    return told


def writer_backs_off() -> Story:
    told = story.writing()
    told.do(told.notes_end(status="failed", failure=Failure(code="down"), retryable=True))
    return told


def search_backs_off() -> Story:
    told = story.looking()
    told.do(told.memory_ends(status="failed", failure=Failure(code="down"), retryable=True))
    return told


def out_of_tokens() -> Story:
    """The turn ended, for it had no tokens left."""
    told = without_tokens()
    told.steps()
    return told


def one_call_too_many() -> Story:
    """The provider failed, and another call would be the second of one."""
    told = Story()
    told.says(limits=Limits(model_calls=1))
    told.steps()
    told.model_ends(status="failed", retryable=True)
    return told


def beyond_tokens() -> Story:
    """The model asked for a call, and used more than there was."""
    told = Story()
    told.says(limits=Limits(tokens=10))
    told.steps()
    told.model_ends(call())
    return told


def without_tokens() -> Story:
    """A second step for which the turn has no tokens left."""
    told = Story()
    told.says(limits=Limits(tokens=15))
    told.steps()
    told.model_ends(call())
    told.plans(planned(call(), "pure"))
    told.tool_ends("t2.0.1")
    return told


def finish(s: Story) -> Finish:
    return Finish(at=s.now())


def fail(s: Story) -> Fail:
    return Fail(failure=Failure(code="model_error", message="broken"), at=s.now())


def guarded(identity: str = "t2.0.1") -> Tell:
    match = EffectMatch(operation="t1.0.1", seq=9, state="uncertain")
    return lambda s: Guarded(operation=identity, match=match, reason="again?", deadline=9000, at=s.now())


def redefine(s: Story) -> Redefined:
    return Redefined(new="d2", difference=("instructions changed",), at=s.now())


def note(s: Story) -> AddNote:
    return AddNote(text="careful", submission="n1", at=s.now())


def edit(deliver: str, by: str = "") -> Tell:
    asked = EditMessage(message="m9", parts=(Text(content="better"),), submission="e1")
    return lambda s: ChangeQueue(command=asked, deliver=deliver, by=by, at=s.now())


def withdraw(deliver: str) -> Tell:
    return lambda s: ChangeQueue(command=Withdraw(message="m9", submission="w1"), deliver=deliver, at=s.now())


def answered() -> Story:
    """A turn that ended: a message and its answer."""
    told = story.completing()
    told.do(finish(told))
    return told


def current(s: Story) -> Transcript:
    return Transcript.at(None, s.checkpoint.number, s.checkpoint.revision)


def edited(*, expected: str = "") -> Tell:
    """The last message gives way to another."""

    def command(s: Story) -> EditTranscript:
        last = s.checkpoint.number - 1
        new, revisions = current(s).edited(last, last + 1, number=last + 1, before=EMPTY, added=["digest"], behind=[])
        message = MessageAdded(role="user", digest="digest", revision=revisions[0], parts=(Text(content="rather this"),))
        asked = RewriteSpan(
            start=last, stop=last + 1, messages=(Replacement(role="user", parts=message.parts),), expected=expected, submission="e1"
        )
        return EditTranscript(command=asked, old=current(s), new=new, messages=(message,), at=s.now())

    return command


def restored(revision: str = "") -> Tell:
    """All messages of another revision; empty is the present one."""

    def command(s: Story) -> EditTranscript:
        new = current(s)._replace(revision=revision or s.checkpoint.revision)
        return EditTranscript(command=RestoreRevision(revision=new.revision, submission="e2"), old=current(s), new=new, at=s.now())

    return command


def redacted(s: Story) -> Redact:
    return Redact(command=RedactContent(entries=(1,)), rows=(RedactedRow(seq=1, kind="session_created", body={}),), title=True, at=s.now())


def revoke(s: Story) -> RevokeGrant:
    return RevokeGrant(grant="0123456789abcdef", submission="g1", at=s.now())


def select(s: Story) -> SelectRoute:
    return SelectRoute(route="b", submission="r1", at=s.now())


def routed(s: Story) -> Story:
    """The story on route b."""
    s.do(RouteGiven(route="b", at=s.now()) if s.checkpoint.turn is not None else SelectRoute(route="b", submission="r0", at=s.now()))
    return s


def give(route: str) -> Tell:
    return lambda s: RouteGiven(route=route, at=s.now())


def describe(**said: Any) -> Tell:
    return lambda s: Describe(**said, submission="d1", at=s.now())


def promote(s: Story) -> Promote:
    return Promote(submission="m9", at=s.now())


def expiring(default: Any) -> Callable[[], Story]:
    return lambda: story.waiting(deadline=5000, default=default)


def held_batch() -> Story:
    """One call waits for approval, and holds another that needs none."""
    return story.batch(planned(call("c1"), verdict="ask"), planned(call("c2", "look"), "pure"))


def mixed_batch() -> Story:
    """One call is uncertain and asked about, the other runs."""
    s = story.batch(planned(call("c1"), ask_when_uncertain=True), planned(call("c2", "look"), "pure"))
    s.tool_ends("t2.0.1", "uncertain")
    return s


def retried() -> Story:
    """A person said that an uncertain call did not happen."""
    s = story.asking()
    s.do(s.answer("t2.0.1", "retry"))
    return s


def after_uncertain_turn() -> Story:
    """A turn that left an effect of unknown outcome behind."""
    s = story.tools()
    s.do(Interrupt(at=s.now()))
    return s


def after_known_turn() -> Story:
    s = story.tools()
    s.tool_ends("t2.0.1")
    s.do(Interrupt(at=s.now()))
    return s


def later_model() -> Story:
    """An effect of an earlier step has an unknown outcome, and the model runs again."""
    s = story.tools()
    s.tool_ends("t2.0.1", "uncertain")
    s.steps("next")
    return s


def later(make: Callable[[Story], Any]) -> Story:
    s = later_model()
    make(s)
    return s


def _approved() -> Story:
    s = story.waiting()
    s.do(s.answer("t2.0.1", "approve"))
    return s


ABORTED_TOOL = [
    f"operation_ended t2.0.1#1 uncertain (interrupted) !{UNKNOWN!r}",
    "message tool → 8",
    "turn_aborted t2",
]
ABORTED_APPROVAL = [
    "request_closed t2.0.1 abort by turn",
    f"operation_ended t2.0.1#0 cancelled (interrupted) !{NOT_EXECUTED!r}",
    "message tool → 10",
    "turn_aborted t2",
]

# fmt: off
cell(Accept, "idle", "begins a turn", story.idle, accept("turn"), ["turn_started t2", "message user turn"])
cell(Accept, "idle", "a steer without a turn is queued", story.idle, accept("steer"), ["turn_started t2", "message user queue"])
cell(Accept, "model", "a steer joins before the call", story.before_model, accept("steer"), ["message user steer"])
cell(Accept, "model", "a steer joins between attempts", story.backing_off, accept("steer"), ["message user steer"])
cell(Accept, "model", "a steer waits while the call runs", story.model, accept("steer"), NOTHING)
cell(Accept, "model", "a plain message waits", story.before_model, accept("turn"), NOTHING)
cell(Accept, "model", "a queued message waits", story.before_model, accept("queue"), NOTHING)
cell(Accept, "tools", "a steer waits", story.tools, accept("steer"), NOTHING)
cell(Accept, "waiting", "a message answers nothing", story.waiting, accept("turn"), NOTHING)
cell(Accept, "waiting", "a steer waits", story.waiting, accept("steer"), NOTHING)
cell(Accept, "completing", "a steer beats the end", story.completing, accept("steer"), ["message user steer"])
cell(Accept, "completing", "a plain message waits for its own turn", story.completing, accept("turn"), NOTHING)

cell(Interrupt, "idle", "nothing runs", story.idle, interrupt(), Refusal(SubmissionRejected, "idle"))
cell(Interrupt, "model", "the call ends", story.model, interrupt("t2"),
     ["operation_ended t2.0.0#1 cancelled (interrupted)", "turn_aborted t2"])
cell(Interrupt, "model", "before a call", story.before_model, interrupt(), ["turn_aborted t2"])
cell(Interrupt, "model", "between attempts", story.backing_off, interrupt(),
     ["operation_ended t2.0.0#0 cancelled (interrupted)", "turn_aborted t2"])
cell(Interrupt, "model", "another turn is meant", story.model, interrupt("t1"), Refusal(SubmissionRejected, "stale_turn"))
cell(Interrupt, "tools", "an external call is uncertain", story.tools, interrupt(), ABORTED_TOOL)
cell(Interrupt, "tools", "another turn is meant", story.tools, interrupt("t9"), Refusal(SubmissionRejected, "stale_turn"))
cell(Interrupt, "waiting", "the request falls with its turn", story.waiting, interrupt("t2"), ABORTED_APPROVAL)
cell(Interrupt, "waiting", "another turn is meant", story.waiting, interrupt("t9"), Refusal(SubmissionRejected, "stale_turn"))
cell(Interrupt, "completing", "the answer stays, the turn aborts", story.completing, interrupt(), ["turn_aborted t2"])
cell(Interrupt, "completing", "another turn is meant", story.completing, interrupt("t9"), Refusal(SubmissionRejected, "stale_turn"))

cell(Answer, "idle", "nothing is open", story.idle, answer(), Refusal(StaleRequest))
cell(Answer, "model", "nothing is open", story.model, answer(), Refusal(StaleRequest))
cell(Answer, "tools", "nothing is open", story.tools, answer(), Refusal(StaleRequest))
cell(Answer, "tools", "a question beside running calls", mixed_batch, answer("settle", result="paid"),
     ["request_closed t2.0.1 settle by answer", "effect_settled t2.0.1#1 succeeded ← 9 'paid'"])
cell(Answer, "waiting", "approve", story.waiting, answer("approve"), ["request_closed t2.0.1 approve by answer"])
cell(Answer, "waiting", "deny", story.waiting, answer("deny", reason="too much"),
     ["request_closed t2.0.1 deny by answer",
      "operation_ended t2.0.1#0 cancelled (denied) !'not executed: a person denied it: too much'", "message tool → 10"])
cell(Answer, "waiting", "abort", story.waiting, answer("abort"),
     ["request_closed t2.0.1 abort by answer", f"operation_ended t2.0.1#0 cancelled (interrupted) !{NOT_EXECUTED!r}",
      "message tool → 10", "turn_aborted t2"])
cell(Answer, "waiting", "an approval can't be settled", story.waiting, answer("settle"), Refusal(SubmissionRejected, "wrong_decision"))
cell(Answer, "waiting", "an approval can't be retried", story.waiting, answer("retry"), Refusal(SubmissionRejected, "wrong_decision"))
cell(Answer, "waiting", "settle", story.asking, answer("settle", result="paid"),
     ["request_closed t2.0.1 settle by answer", "effect_settled t2.0.1#1 succeeded ← 8 'paid'", "message tool → 11"])
cell(Answer, "waiting", "settle as failed", story.asking, answer("settle", result="declined", is_error=True),
     ["request_closed t2.0.1 settle by answer", "effect_settled t2.0.1#1 failed ← 8 !'declined'", "message tool → 11"])
cell(Answer, "waiting", "retry", story.asking, answer("retry"), ["request_closed t2.0.1 retry by answer"])
cell(Answer, "waiting", "nobody can tell", story.asking, answer("deny"),
     ["request_closed t2.0.1 deny by answer", f"operation_ended t2.0.1#1 uncertain !{UNKNOWN!r}", "message tool → 11"])
cell(Answer, "waiting", "abort instead of telling", story.asking, answer("abort"),
     ["request_closed t2.0.1 abort by answer", f"operation_ended t2.0.1#1 uncertain (interrupted) !{UNKNOWN!r}",
      "message tool → 11", "turn_aborted t2"])
cell(Answer, "waiting", "an uncertain call can't be approved", story.asking, answer("approve"),
     Refusal(SubmissionRejected, "wrong_decision"))
cell(Answer, "waiting", "another request", story.waiting, answer("approve", request="f" * 16), Refusal(StaleRequest))
cell(Answer, "completing", "nothing is open", story.completing, answer(), Refusal(StaleRequest))

cell(Report, "idle", "settles an uncertain effect of an ended turn", after_uncertain_turn, report(),
     ["effect_settled t2.0.1#1 succeeded ← 8 'late'", "note_added t2.0.1"])
cell(Report, "idle", "the outcome is known", after_known_turn, report(), Refusal(StaleRequest))
cell(Report, "model", "settles an uncertain effect of an earlier step", later_model, report(),
     ["effect_settled t2.0.1#1 succeeded ← 8 'late'", "note_added t2.0.1"])
cell(Report, "model", "nothing is known of the operation", story.model, report(), Refusal(StaleRequest))
cell(Report, "model", "a model call has no late result", story.model, report("t2.0.0"), Refusal(StaleRequest))
cell(Report, "tools", "is the receipt of an open call", story.tools, report(),
     ["operation_ended t2.0.1#1 succeeded 'late'", "message tool → 8"])
cell(Report, "tools", "tells that an open call failed", story.tools, report(is_error=True),
     ["operation_ended t2.0.1#1 failed !'late'", "message tool → 8"])
cell(Report, "tools", "is faster than reconcile", story.unknown, report(),
     ["operation_ended t2.0.1#1 succeeded 'late'", "message tool → 9"])
cell(Report, "tools", "another attempt", story.tools, report(attempt=2), Refusal(StaleRequest))
cell(Report, "tools", "an attempt that a person had repeated", retried, report(), Refusal(StaleRequest))
cell(Report, "waiting", "answers the question about an uncertain call", story.asking, report(),
     ["request_closed t2.0.1 settle by answer", "effect_settled t2.0.1#1 succeeded ← 8 'late'", "message tool → 11"])
cell(Report, "waiting", "a call that never started", story.waiting, report(), Refusal(StaleRequest))
cell(Report, "completing", "settles an uncertain effect of an earlier step", lambda: later(lambda s: s.model_ends(Text(content="so"))),
     report(),
     ["effect_settled t2.0.1#1 succeeded ← 8 'late'", "note_added t2.0.1"])
cell(Report, "completing", "nothing is known of the operation", story.completing, report(), Refusal(StaleRequest))

cell(Claimed, "idle", "nothing changed", story.idle, claim(), NOTHING)
cell(Claimed, "model", "the call is lost", story.model, claim(),
     ["operation_ended t2.0.0#1 uncertain… (restart)", "recovered t2 fence 2 t2.0.0#1=uncertain"])
cell(Claimed, "model", "its holder had let go", story.before_model, claim(takeover=False), NOTHING)
cell(Claimed, "tools", "the call is lost", story.tools, claim(),
     [f"operation_ended t2.0.1#1 uncertain (restart) !{story.AFTER_RESTART!r}", "message tool → 8",
      "recovered t2 fence 2 t2.0.1#1=uncertain"])
cell(Claimed, "waiting", "a holder died while a request was open", story.waiting, claim(), ["recovered t2 fence 2"])
cell(Claimed, "waiting", "parked: nothing changed", story.waiting, claim(takeover=False), NOTHING)
cell(Claimed, "completing", "a holder died before the turn's end", story.completing, claim(), ["recovered t2 fence 2"])
cell(Claimed, "completing", "its holder had let go", story.completing, claim(takeover=False), NOTHING)

cell(AttemptEnded, "idle", "a late end is told otherwise", after_uncertain_turn, ended(), NOTHING)
cell(AttemptEnded, "model", "the model answered", story.model, ended("t2.0.0", parts=(Text(content="hi"),)),
     ["operation_ended t2.0.0#1 succeeded", "message assistant → 5"])
cell(AttemptEnded, "model", "the provider failed and may recover", story.model, ended("t2.0.0", status="failed", retryable=True),
     ["operation_ended t2.0.0#1 failed…"])
cell(AttemptEnded, "model", "the provider refused", story.model, ended("t2.0.0", status="failed", failure=Failure(code="provider_refused")),
     ["operation_ended t2.0.0#1 failed (provider_refused)", "turn_failed t2 (provider_refused)"])
cell(AttemptEnded, "model", "another attempt", story.model, ended("t2.0.0", 2), NOTHING)
cell(AttemptEnded, "model", "another operation", story.model, ended("t2.0.7"), NOTHING)
cell(AttemptEnded, "tools", "the tool returned", story.tools, lambda s: s.tool_report("t2.0.1"),
     ["operation_ended t2.0.1#1 succeeded 'done'", "message tool → 8"])
cell(AttemptEnded, "tools", "another attempt", story.tools, ended("t2.0.1", 2), NOTHING)
cell(AttemptEnded, "tools", "arguments that a person broke", _approved, ended("t2.0.1", 0, "failed",
     failure=Failure(code="invalid_arguments", message="cents: wrong")),
     ["operation_ended t2.0.1#0 failed (invalid_arguments) !'cents: wrong'", "message tool → 10"])
cell(AttemptEnded, "waiting", "a call beside an open approval can't run any more", held_batch, ended("t2.0.2", 0, "failed",
     failure=Failure(code="gone", message="gone")),
     ["operation_ended t2.0.2#0 failed (gone) !'gone'"])
cell(AttemptEnded, "waiting", "an asked call has not begun", story.waiting, ended("t2.0.1", 1), NOTHING)
cell(AttemptEnded, "waiting", "an asked call can't end beside its request", story.waiting, ended("t2.0.1", 0, "failed"), NOTHING)
cell(AttemptEnded, "completing", "is too late", story.completing, ended("t2.0.0"), NOTHING)

cell(CallsPlanned, "idle", "no calls", story.idle, plan(), IMPOSSIBLE)
cell(CallsPlanned, "model", "no calls", story.model, plan(), IMPOSSIBLE)
cell(CallsPlanned, "tools", "an allowed call starts at once", story.unplanned, plan(), ["operation_started t2.0.1#1"])
cell(CallsPlanned, "tools", "an approval", story.unplanned, plan(planned(call(), verdict="ask")),
     ["operation_planned t2.0.1 refund", "request_opened approval t2.0.1"])
cell(CallsPlanned, "tools", "a call that nobody runs", story.unplanned, plan(planned(call(), verdict="reject",
     failure=Failure(code="unknown_tool", message="no such tool"))),
     ["operation_planned t2.0.1 refund", "operation_ended t2.0.1#0 failed (unknown_tool) !'no such tool'", "message tool → 8"])
cell(CallsPlanned, "tools", "an effect that is replayed", story.unplanned,
     plan(planned(call(), verdict="replay", parts=(ToolCallResponse(id="c1", name="refund", response="refunded"),))),
     ["operation_planned t2.0.1 refund", "operation_ended t2.0.1#0 succeeded 'refunded'", "message tool → 8"])
cell(CallsPlanned, "tools", "planned already", story.tools, plan(), NOTHING)
cell(CallsPlanned, "waiting", "planned already", story.waiting, plan(), IMPOSSIBLE)
cell(CallsPlanned, "completing", "no calls", story.completing, plan(), IMPOSSIBLE)

cell(StartTools, "idle", "no tools", story.idle, start, NOTHING)
cell(StartTools, "model", "no tools", story.model, start, NOTHING)
cell(StartTools, "tools", "an approved call", _approved, start, ["operation_started t2.0.1#1"])
cell(StartTools, "tools", "a repeated call", retried, start, ["operation_started t2.0.1#2"])
cell(StartTools, "tools", "everything runs", story.tools, start, NOTHING)
cell(StartTools, "waiting", "an approval holds its batch", held_batch, start, NOTHING)
cell(StartTools, "completing", "no tools", story.completing, start, NOTHING)

cell(Guarded, "idle", "no call starts", story.idle, guarded(), IMPOSSIBLE)
cell(Guarded, "model", "no call starts", story.model, guarded(), IMPOSSIBLE)
cell(Guarded, "tools", "an approved call would repeat an effect", _approved, guarded(), ["request_opened approval t2.0.1"])
cell(Guarded, "tools", "it runs already", story.tools, guarded(), NOTHING)
cell(Guarded, "tools", "nobody knows the call", story.tools, guarded("t2.0.9"), NOTHING)
cell(Guarded, "waiting", "it is asked about already", story.waiting, guarded(), NOTHING)
cell(Guarded, "waiting", "another call of the batch would repeat one too", held_batch,
     guarded("t2.0.2"), ["request_opened approval t2.0.2"])
cell(Guarded, "completing", "no call starts", story.completing, guarded(), IMPOSSIBLE)

cell(Prepared, "idle", "no turn", story.idle, prepare(), IMPOSSIBLE)
cell(Prepared, "model", "the call starts", story.before_model, prepare(), ["operation_started t2.0.0#1"])
cell(Prepared, "model", "the next attempt starts", story.backing_off, prepare(), ["operation_started t2.0.0#2"])
cell(Prepared, "model", "the request changed", story.backing_off, prepare("another"),
     ["operation_ended t2.0.0#0 cancelled (request_changed)", "operation_started t2.0.1#1"])
cell(Prepared, "model", "a call runs", story.model, prepare("another"), NOTHING)
cell(Prepared, "tools", "tools come first", story.tools, prepare(), IMPOSSIBLE)
cell(Prepared, "waiting", "requests come first", story.waiting, prepare(), IMPOSSIBLE)
cell(Prepared, "completing", "the model ended", story.completing, prepare(), IMPOSSIBLE)

cell(Accept, "idle", "a wish to compact", story.idle, wish, ["turn_started t2"])
cell(Accept, "model", "a wish to compact waits", story.model, wish, NOTHING)
cell(Accept, "model", "a steer waits while notes are written", story.writing, accept("steer"), NOTHING)
cell(Accept, "model", "a steer waits until notes are accepted", story.noted, accept("steer"), NOTHING)
cell(Accept, "model", "a steer waits for what a wish to compact comes to", wished, accept("steer"), NOTHING)

cell(Prepared, "model", "notes: the writing starts", story.outgrown, lambda s: s.notes_asked(), ["operation_started t8.0.0#1"])
cell(Prepared, "model", "notes: it runs already", story.writing, lambda s: s.notes_asked("other"), NOTHING)
cell(Prepared, "model", "notes: the next bit", story.noted, lambda s: s.notes_asked("other"), ["operation_started t8.0.1#1"])
cell(Prepared, "model", "notes: the next attempt", writer_backs_off, lambda s: s.notes_asked(), ["operation_started t8.0.0#2"])
cell(Prepared, "model", "notes: another request", writer_backs_off, lambda s: s.notes_asked("other"),
     ["operation_ended t8.0.0#0 cancelled (request_changed)", "operation_started t8.0.1#1"])

cell(Prepared, "model", "memory: the search starts", story.before_model, lambda s: s.memory_asked(), ["operation_started t2.0.0#1"])
cell(Prepared, "model", "memory: it runs already", story.looking, lambda s: s.memory_asked("other"), NOTHING)
cell(Prepared, "model", "memory: the next attempt", search_backs_off, lambda s: s.memory_asked(), ["operation_started t2.0.0#2"])
cell(Prepared, "model", "memory: another request", search_backs_off, lambda s: s.memory_asked("other"),
     ["operation_ended t2.0.0#0 cancelled (request_changed)", "operation_started t2.0.1#1"])
cell(Prepared, "model", "memory: once in a step", story.looked, lambda s: s.memory_asked("other"), NOTHING)
cell(Prepared, "model", "memory: not beyond a limit", without_tokens, lambda s: s.memory_asked(), ["turn_limited t2 tokens"])
cell(Prepared, "model", "behind what was learned", story.looked, prepare(), ["operation_started t2.0.1#1"])
cell(Accept, "model", "a steer waits while what to remember is looked for", story.looking, accept("steer"), NOTHING)
cell(Accept, "model", "a steer joins once it was found", story.looked, accept("steer"), ["message user steer"])

cell(Parked, "idle", "no turn holds anything", story.idle, parked, NOTHING)
for situation in ("model", "tools", "waiting", "completing"):
    cell(Parked, situation, "what it drew is its owner's again", drew(getattr(story, situation)), parked, ["allowance_granted p"])
    cell(Parked, situation, "it drew nothing", getattr(story, situation), parked, NOTHING)
cell(Parked, "waiting", "it gave that back already", lambda: after(drew(story.waiting)(), parked), parked, NOTHING)
cell(Parked, "waiting", "the pool is another one", drew(story.waiting),
     lambda s: Parked(pool=Pool(id="q", limits=Limits(tokens=9)), at=s.now()), NOTHING)
cell(Parked, "archived", "nothing changes", story.archived, parked, NOTHING)
cell(Parked, "halted", "nothing changes", story.halted, parked, NOTHING)
cell(Accept, "idle", "the limited turn goes on", out_of_tokens, resume(), ["turn_started t11"])
cell(Accept, "idle", "no turn was limited", story.idle, resume(), Refusal(SubmissionRejected, "not_limited"))
cell(Accept, "model", "a turn goes on when none runs", story.before_model, resume(), NOTHING)
cell(Prepared, "model", "the next attempt is beyond a limit", one_call_too_many, prepare(),
     ["operation_ended t2.0.0#0 cancelled (limit)", "turn_limited t2 model_calls"])
cell(Prepared, "model", "the owner's pool is drawn from", story.before_model, drawing(Pool(id="p", limits=Limits(tokens=10))),
     ["allowance_granted p", "operation_started t2.0.0#1"])
cell(Prepared, "model", "the owner's pool is empty", story.before_model,
     drawing(Pool(id="p", limits=Limits(tokens=10), drawn=Amounts(tokens=10))), ["turn_limited t2 tokens"])
cell(CallsPlanned, "tools", "what was used is beyond a limit", beyond_tokens, plan(),
     ["operation_planned t2.0.1 refund", "operation_ended t2.0.1#0 cancelled (limit) !'not executed: limit reached: tokens'",
      "message tool → 8", "turn_limited t2 tokens"])

cell(AttemptEnded, "model", "a fact is found", story.looking,
     lambda s: s.memory_ends(Text(content='[{"content": "It rains."}]')),
     ["operation_ended t2.0.0#1 succeeded", "extension_set memory.state"])
cell(AttemptEnded, "model", "nothing of use is found", story.looking, lambda s: s.memory_ends(Text(content="None.")),
     ["operation_ended t2.0.0#1 failed (session_memory_output_invalid)", "extension_set memory.state"])
cell(AttemptEnded, "model", "the search fails, and its turn goes on", story.looking,
     lambda s: s.memory_ends(status="failed", failure=Failure(code="no")),
     ["operation_ended t2.0.0#1 failed (no)", "extension_set memory.state"])
cell(AttemptEnded, "model", "the search is tried again", story.looking,
     lambda s: s.memory_ends(status="failed", failure=Failure(code="busy"), retryable=True), ["operation_ended t2.0.0#1 failed… (busy)"])
cell(AttemptEnded, "model", "the search was cut off, and goes on elsewhere", story.looking,
     lambda s: s.memory_ends(status="cancelled", failure=Failure(code="shutdown"), final=False),
     ["operation_ended t2.0.0#1 cancelled… (shutdown)"])
cell(AttemptEnded, "model", "the agent keeps no memory any more", search_backs_off,
     lambda s: s.memory_ends(status="cancelled", attempt=0, failure=Failure(code="forgotten")),
     ["operation_ended t2.0.0#0 cancelled (forgotten)"])
cell(Interrupt, "model", "what to remember is looked for", story.looking, interrupt(),
     ["operation_ended t2.0.0#1 cancelled (interrupted)", "turn_aborted t2"])
cell(Claimed, "model", "what to remember was looked for", story.looking, lambda s: s.claim(),
     ["operation_ended t2.0.0#1 uncertain… (restart)", "recovered t2 fence 2 t2.0.0#1=uncertain"])
cell(Claimed, "model", "and the turn is to stop", story.looking, lambda s: s.claim(on_restart="stop"),
     ["operation_ended t2.0.0#1 uncertain (restart)", "turn_aborted t2", "recovered t2 fence 2 t2.0.0#1=uncertain"])
cell(Claimed, "model", "what was learned stands", story.looked, lambda s: s.claim(), ["recovered t2 fence 2"])

cell(CompactionAccepted, "idle", "no turn", story.idle, lambda s: s.notes_accepted(), IMPOSSIBLE)
cell(CompactionAccepted, "model", "models see them from now on", story.noted, lambda s: s.notes_accepted(),
     ["prefix_changed epoch 1 private_from 0"])
cell(CompactionAccepted, "model", "none are written", story.outgrown, lambda s: s.notes_accepted(), NOTHING)
cell(CompactionAccepted, "model", "they are being written", story.writing, lambda s: s.notes_accepted(), NOTHING)
cell(CompactionAccepted, "tools", "tools come first", story.tools, lambda s: s.notes_accepted(), IMPOSSIBLE)
cell(CompactionAccepted, "waiting", "requests come first", story.waiting, lambda s: s.notes_accepted(), IMPOSSIBLE)
cell(CompactionAccepted, "completing", "the model ended", story.completing, lambda s: s.notes_accepted(), IMPOSSIBLE)

cell(AttemptEnded, "model", "notes are written", story.writing, lambda s: s.notes_end(story.saved("notes")),
     ["operation_ended t8.0.0#1 succeeded"])
cell(AttemptEnded, "model", "notes say nothing", story.writing, lambda s: s.notes_end(story.saved(" ")),
     ["operation_ended t8.0.0#1 failed (invalid_notes)", "turn_failed t8 (invalid_notes)"])
cell(AttemptEnded, "model", "another tool was called", story.writing, lambda s: s.notes_end(story.saved("notes", "refund")),
     ["operation_ended t8.0.0#1 failed (invalid_notes)", "turn_failed t8 (invalid_notes)"])
cell(AttemptEnded, "model", "the writer's route gives up for another", story.writing,
     lambda s: s.notes_end(status="failed", failure=Failure(code="no"), fallback="b"), ["operation_ended t8.0.0#1 failed (no)"])
cell(AttemptEnded, "model", "nobody can write notes", story.writing,
     lambda s: s.notes_end(status="failed", failure=Failure(code="no")),
     ["operation_ended t8.0.0#1 failed (no)", "turn_failed t8 (no)"])
cell(AttemptEnded, "model", "the request is too long, and may be shorter", story.model,
     ended("t2.0.0", status="failed", failure=Failure(code="context_too_long"), compact=True),
     ["operation_ended t2.0.0#1 failed (context_too_long)"])

cell(EndEarly, "idle", "no turn", story.idle, lambda s: EndEarly(reason="enough", at=s.now()), IMPOSSIBLE)
cell(EndEarly, "model", "no model is called", story.before_model, lambda s: EndEarly(reason="enough", at=s.now()), ["turn_completed t2"])
cell(EndEarly, "tools", "tools come first", story.tools, lambda s: EndEarly(reason="enough", at=s.now()), IMPOSSIBLE)
cell(EndEarly, "waiting", "requests come first", story.waiting, lambda s: EndEarly(reason="enough", at=s.now()), IMPOSSIBLE)
cell(EndEarly, "completing", "the model ended", story.completing, lambda s: EndEarly(reason="enough", at=s.now()), IMPOSSIBLE)

cell(Reconciled, "idle", "nobody waits for it", story.idle, reconciled("unknown"), NOTHING)
cell(Reconciled, "model", "nobody waits for it", story.model, reconciled("unknown"), NOTHING)
cell(Reconciled, "tools", "done", story.unknown, reconciled(), ["operation_ended t2.0.1#1 succeeded 'found'", "message tool → 9"])
cell(Reconciled, "tools", "not done", story.unknown, reconciled("not_done"), ["operation_ended t2.0.1#1 cancelled… (not_done)"])
cell(Reconciled, "tools", "nobody can tell", story.unknown, reconciled("unknown"),
     [f"operation_ended t2.0.1#1 uncertain (unknown) !{UNKNOWN!r}", "message tool → 9"])
cell(Reconciled, "tools", "the call runs", story.tools, reconciled(), NOTHING)
cell(Reconciled, "waiting", "nobody waits for it", story.waiting, reconciled("unknown"), NOTHING)
cell(Reconciled, "completing", "nobody waits for it", story.completing, reconciled("unknown"), NOTHING)

cell(TimePassed, "idle", "nothing is open", story.idle, late, NOTHING)
cell(TimePassed, "model", "nothing is open", story.model, late, NOTHING)
cell(TimePassed, "tools", "nothing is open", story.tools, late, NOTHING)
cell(TimePassed, "tools", "an uncertain call is asked about for ever", mixed_batch, late, NOTHING)
cell(TimePassed, "waiting", "no deadline", story.waiting, late, NOTHING)
cell(TimePassed, "waiting", "unanswered is refused", expiring("deny"), late,
     ["request_closed t2.0.1 deny by deadline",
      "operation_ended t2.0.1#0 cancelled (denied) !'not executed: nobody approved it in time'", "message tool → 10"])
cell(TimePassed, "waiting", "unanswered is approved", expiring("approve"), late, ["request_closed t2.0.1 approve by deadline"])
cell(TimePassed, "waiting", "unanswered aborts", expiring("abort"), late,
     ["request_closed t2.0.1 abort by deadline", f"operation_ended t2.0.1#0 cancelled (interrupted) !{NOT_EXECUTED!r}",
      "message tool → 10", "turn_aborted t2"])
cell(TimePassed, "waiting", "not yet", expiring("deny"), lambda s: TimePassed(at=4999), NOTHING)
cell(TimePassed, "completing", "nothing is open", story.completing, late, NOTHING)

cell(Finish, "idle", "no turn", story.idle, finish, IMPOSSIBLE)
cell(Finish, "model", "the model runs", story.model, finish, IMPOSSIBLE)
cell(Finish, "tools", "tools run", story.tools, finish, IMPOSSIBLE)
cell(Finish, "waiting", "a request is open", story.waiting, finish, IMPOSSIBLE)
cell(Finish, "completing", "the turn ends", story.completing, finish, ["turn_completed t2"])

cell(Finish, "completing", "a call that ends it is missing", lambda: story.answered_only("tool"), finish, ["note_added"])
cell(Finish, "completing", "a call ended it", story.finished, finish, ["turn_completed t2"])
cell(Finish, "completing", "the user is asked", lambda: story.answered_only("ask"), finish, ["request_opened answer t2.1.0"])
cell(Finish, "completing", "nothing was said", lambda: empty("ask"), finish, ["turn_completed t8"])

cell(Answer, "waiting", "what the user says is a message", story.asked, answer("reply", result="the blue one"),
     ["request_closed t2.1.0 reply by answer", "message user"])
cell(Answer, "waiting", "the user has nothing to say", story.asked, answer("deny"),
     ["request_closed t2.1.0 deny by answer", "turn_completed t2"])
cell(Answer, "waiting", "the user stops it", story.asked, answer("abort"), ["request_closed t2.1.0 abort by answer", "turn_aborted t2"])
cell(Answer, "waiting", "nobody is asked about a call", story.asked, answer("approve"), Refusal(SubmissionRejected, "wrong_decision"))
cell(Answer, "waiting", "a call can't be told what to say", story.waiting, answer("reply", result="x"),
     Refusal(SubmissionRejected, "wrong_decision"))
cell(Answer, "waiting", "what the user says is a call's result", story.asked_by_call, answer("reply", result="the blue one"),
     ["request_closed t2.0.1 reply by answer", "operation_ended t2.0.1#0 succeeded 'the blue one'", "message tool → 10"])
cell(Answer, "waiting", "a call gets no answer", story.asked_by_call, answer("deny", reason="busy"),
     ["request_closed t2.0.1 deny by answer",
      "operation_ended t2.0.1#0 failed (unanswered) !\"the user doesn't answer: busy\"", "message tool → 10"])
cell(Answer, "tools", "another call runs meanwhile", lambda: story.asked_by_call(planned(call("c2", "look"), "pure")),
     answer("reply", result="blue"), ["request_closed t2.0.1 reply by answer", "operation_ended t2.0.1#0 succeeded 'blue'"])
cell(TimePassed, "waiting", "silence ends the turn", lambda: story.asked(deadline=5000), late,
     ["request_closed t2.1.0 deny by deadline", "turn_completed t2"])
cell(TimePassed, "waiting", "silence is an answer", lambda: story.asked(deadline=5000, default="reply"), late,
     ["request_closed t2.1.0 reply by deadline", "note_added"])
cell(TimePassed, "waiting", "silence is a call's result", lambda: story.asked_by_call(deadline=5000), late,
     ["request_closed t2.0.1 deny by deadline",
      "operation_ended t2.0.1#0 failed (unanswered) !'nobody answered in time'", "message tool → 10"])
cell(Interrupt, "waiting", "the question falls", story.asked, interrupt(), ["request_closed t2.1.0 abort by turn", "turn_aborted t2"])
cell(Interrupt, "waiting", "a call's question falls", story.asked_by_call, interrupt(),
     ["request_closed t2.0.1 abort by turn", f"operation_ended t2.0.1#0 cancelled (interrupted) !{NOT_EXECUTED!r}", "message tool → 10",
      "turn_aborted t2"])
cell(Report, "waiting", "nobody reports what the user says", story.asked_by_call, report(attempt=0), Refusal(StaleRequest))
cell(Claimed, "waiting", "a question stays asked", story.asked, claim(), ["recovered t2 fence 2"])
cell(AttemptEnded, "tools", "a call ends the turn", story.finishing,
     lambda s: s.tool_report("t2.0.1"), ["operation_ended t2.0.1#1 succeeded 'done'", "message tool → 8"])
cell(AttemptEnded, "tools", "calls behind it don't begin", lambda: story.finishing(planned(call("c2"))),
     lambda s: s.tool_report("t2.0.1"),
     ["operation_ended t2.0.1#1 succeeded 'done'",
      f"operation_ended t2.0.2#0 cancelled (finished) !'{NOT_EXECUTED}: the turn was finished'", "message tool → 9,10"])
cell(AttemptEnded, "tools", "a result that is not accepted ends nothing", lambda: story.finishing(planned(call("c2", "look"), "pure")),
     lambda s: s.tool_report("t2.0.1", "failed", "no"), ["operation_ended t2.0.1#1 failed !'no'"])

cell(OutputAccepted, "model", "the answer is a message", story.held, accepted, ["message assistant → 5"])
cell(OutputAccepted, "model", "the corrected one is", story.repaired, accepted, ["message assistant → 7"])
cell(OutputAccepted, "model", "another answer is meant", story.repaired, lambda s: OutputAccepted(operation="t2.0.0", at=s.now()), NOTHING)
cell(OutputRefused, "model", "the answer is kept", story.repaired, refused, ["message assistant → 7", "turn_failed t2 (output_invalid)"])
cell(OutputRefused, "model", "another answer is meant", story.held,
     lambda s: OutputRefused(operation="t2.0.1", failure=Failure(code="output_invalid"), at=s.now()), NOTHING)
cell(Prepared, "model", "a correction begins", story.held, lambda s: s.repair_asked(), ["operation_started t2.0.1#1"])
cell(Prepared, "model", "a correction runs already", story.repairing, lambda s: s.repair_asked(), NOTHING)
cell(Prepared, "model", "a correction: no answer waits", story.model, lambda s: s.repair_asked(), NOTHING)
cell(Prepared, "model", "a correction: the next attempt", repair_backs_off, lambda s: s.repair_asked(), ["operation_started t2.0.1#2"])
cell(Prepared, "model", "a correction: another request", repair_backs_off, lambda s: s.repair_asked("other"),
     ["operation_ended t2.0.1#0 cancelled (request_changed)", "operation_started t2.0.2#1"])
cell(Prepared, "model", "a correction: the turn's limit", lambda: story.held(limits=Limits(tokens=5)), lambda s: s.repair_asked(),
     ["message assistant → 5", "turn_limited t2 tokens"])
for command, when in ((OutputAccepted, accepted), (OutputRefused, refused)):
    for situation in ("idle", "tools", "waiting", "completing"):
        cell(command, situation, "not here", getattr(story, situation), when, IMPOSSIBLE)
cell(AttemptEnded, "model", "an answer waits", held_model, lambda s: s_ended(s, Text(content="5")),
     ["operation_ended t2.0.0#1 succeeded"])
cell(AttemptEnded, "model", "calls don't wait", held_model, lambda s: s_ended(s, call()),
     ["operation_ended t2.0.0#1 succeeded", "message assistant → 5"])
cell(AttemptEnded, "model", "a correction waits too", story.repairing, lambda s: s.repair_ends(Text(content="5"), call("x")),
     ["operation_ended t2.0.1#1 succeeded"])
cell(AttemptEnded, "model", "a correction is tried again", story.repairing,
     lambda s: s.repair_ends(status="failed", failure=Failure(code="down"), retryable=True), ["operation_ended t2.0.1#1 failed… (down)"])
cell(AttemptEnded, "model", "another route corrects", story.repairing,
     lambda s: s.repair_ends(status="failed", failure=Failure(code="down"), fallback="b"), ["operation_ended t2.0.1#1 failed (down)"])
cell(AttemptEnded, "model", "nobody corrects", story.repairing, lambda s: s.repair_ends(status="failed", failure=Failure(code="down")),
     ["operation_ended t2.0.1#1 failed (down)", "message assistant → 5", "turn_failed t2 (down)"])
cell(AttemptEnded, "model", "a correction is cut off", story.repairing, lambda s: s.repair_ends(status="cancelled", final=False),
     ["operation_ended t2.0.1#1 cancelled…"])
cell(Accept, "model", "a steer comes behind the answer that waits", story.held, accept("steer"), NOTHING)
cell(Interrupt, "model", "the answer that waits is kept", story.repairing, interrupt(),
     ["operation_ended t2.0.1#1 cancelled (interrupted)", "message assistant → 5", "turn_aborted t2"])
cell(Claimed, "model", "a correction is asked for again", story.repairing, claim(),
     ["operation_ended t2.0.1#1 uncertain… (restart)", "recovered t2 fence 2 t2.0.1#1=uncertain"])
cell(Claimed, "model", "a correction is not asked for again", story.repairing, claim(on_restart="stop"),
     ["operation_ended t2.0.1#1 uncertain (restart)", "message assistant → 5", "turn_aborted t2",
      "recovered t2 fence 2 t2.0.1#1=uncertain"])

FAILED = "turn_failed t2 (model_error)"
cell(Fail, "idle", "no turn", story.idle, fail, IMPOSSIBLE)
cell(Fail, "model", "the call ends", story.model, fail, ["operation_ended t2.0.0#1 cancelled (interrupted)", FAILED])
cell(Fail, "tools", "calls end", story.tools, fail, [*ABORTED_TOOL[:-1], FAILED])
cell(Fail, "waiting", "requests fall", story.waiting, fail, [*ABORTED_APPROVAL[:-1], FAILED])
cell(Fail, "completing", "even now", story.completing, fail, [FAILED])

cell(Redefined, "idle", "no turn", story.idle, redefine, IMPOSSIBLE)
for situation in ("model", "tools", "waiting", "completing"):
    cell(Redefined, situation, "goes on", getattr(story, situation), redefine, ["definition_changed d1 → d2"])
for situation in ("idle", "model", "tools", "waiting", "completing"):
    cell(Promote, situation, "a steer becomes a turn", getattr(story, situation), promote, ["queue_changed m9 promoted queue"])
    cell(AddNote, situation, "the model is told", getattr(story, situation), note, ["note_added"])
    cell(ChangeQueue, situation, "edited where it waits", getattr(story, situation), edit("turn"), ["queue_changed m9 edited turn"])
    cell(ChangeQueue, situation, "withdrawn", getattr(story, situation), withdraw("steer"), ["queue_changed m9 withdrawn steer"])
    cell(ChangeQueue, situation, "delivered already", getattr(story, situation), edit(""), Refusal(SubmissionRejected, "delivered"))
    cell(RevokeGrant, situation, "no such grant", getattr(story, situation), revoke, Refusal(SubmissionRejected, "unknown_grant"))
cell(SelectRoute, "idle", "the next turn's", story.idle, select, ["route_selected b"])
for situation in ("model", "tools", "waiting", "completing"):
    cell(SelectRoute, situation, "a turn is running", getattr(story, situation), select, Refusal(SubmissionRejected, "busy"))
for situation in ("model", "tools", "waiting", "completing"):
    cell(RouteGiven, situation, "another", getattr(story, situation), give("b"), ["route_selected b"])
    cell(RouteGiven, situation, "the same", lambda name=situation: routed(getattr(story, name)()), give("b"), NOTHING)
for situation in ("idle", "model", "completing"):
    stale = Refusal(SubmissionRejected, "stale_turn")
    cell(Accept, situation, "for a turn that doesn't run", getattr(story, situation), accept("steer", "t1"), stale)
for situation in ("idle", "model", "tools", "waiting", "completing"):
    theirs = Refusal(SubmissionRejected, "not_a_persons")
    cell(ChangeQueue, situation, "no person's", getattr(story, situation), edit("queue", "planner"), theirs)
cell(RouteGiven, "idle", "a session that begins says it with its turn", story.idle, give("b"), NOTHING)
cell(RouteGiven, "idle", "another", lambda: routed(story.idle()), give("c"), ["route_selected c"])
for situation in ("idle", "model", "tools", "waiting", "completing"):
    cell(Describe, situation, "said anew", getattr(story, situation), describe(title="Refunds"), ["session_changed"])
    too_long = describe(labels={"a": "x" * 9000})
    cell(Describe, situation, "too long", getattr(story, situation), too_long, Refusal(LimitExceeded))
RESTORED = ["rewritten [0, 2) → 2 restored", "prefix_changed epoch 1 private_from 0"]
REWRITTEN = ["rewritten [1, 2) → 2", "prefix_changed epoch 1 private_from 0", "message user"]
cell(EditTranscript, "idle", "a span rewritten", answered, edited(), REWRITTEN)
cell(EditTranscript, "idle", "another revision expected", answered, edited(expected="f" * 64), Refusal(RevisionConflict))
cell(EditTranscript, "idle", "a revision restored", answered, restored(chained(EMPTY, "x")), RESTORED)
cell(EditTranscript, "idle", "the present revision restored", answered, restored(), Refusal(NothingChanged))
cell(Redact, "idle", "content removed", answered, redacted, ["redacted 1"])
for situation in ("model", "tools", "waiting", "completing"):
    cell(EditTranscript, situation, "a turn is running", getattr(story, situation), edited(), Refusal(SessionBusy))
    cell(Redact, situation, "a turn is running", getattr(story, situation), redacted, Refusal(SessionBusy))
GRANTED = ["request_closed t2.0.1 grant by answer", "grant_given refund"]
cell(Answer, "waiting", "granted for the session", story.waiting, answer("grant"), GRANTED)

cell(Archive, "idle", "put away", story.idle, archive, ["archived"])
cell(Archive, "model", "nobody learns what the call cost", story.model, archive,
     ["operation_ended t2.0.0#1 uncertain (taken)", "turn_aborted t2", "archived"])
cell(Archive, "model", "before a call", story.before_model, archive, ["turn_aborted t2", "archived"])
cell(Archive, "tools", "an external call is uncertain", story.tools, archive,
     [f"operation_ended t2.0.1#1 uncertain (taken) !{UNKNOWN!r}", *ABORTED_TOOL[1:], "archived"])
cell(Archive, "waiting", "the request falls", story.waiting, archive,
     ["request_closed t2.0.1 abort by turn", f"operation_ended t2.0.1#0 cancelled (taken) !{NOT_EXECUTED!r}", *ABORTED_APPROVAL[2:],
      "archived"])
cell(Archive, "completing", "the answer stays", story.completing, archive, ["turn_aborted t2", "archived"])
for situation in ("idle", "model", "tools", "waiting", "completing"):
    cell(Revive, situation, "it is not archived", getattr(story, situation), revive, Refusal(NothingChanged))
cell(Revive, "archived", "taken out", story.archived, revive, ["revived"])
cell(Report, "archived", "what happened stays a fact", story.archived, lambda s: s.report("t2.0.1"),
     ["effect_settled t2.0.1#1 succeeded ← 8 'late'", "note_added t2.0.1"])
cell(Report, "archived", "nothing was unknown", story.archived, lambda s: s.report("t2.0.9"), Refusal(StaleRequest))
cell(Redact, "archived", "content removed", story.archived, redacted, ["redacted 1"])
cell(Claimed, "archived", "nothing is in flight", story.archived, lambda s: s.claim(), NOTHING)
cell(TimePassed, "archived", "nothing is open", story.archived, late, NOTHING)
cell(AttemptEnded, "completing", "what an extension did outside", with_step(story.ending), lambda s: s.step_report(),
     ["operation_ended t2.1/e succeeded 'done'"])
cell(Accept, "completing", "a steer is too late for a turn whose end is decided", story.ending, accept("steer"), NOTHING)
cell(Interrupt, "completing", "an end that is decided becomes another one", story.ending, interrupt(), ["turn_aborted t2"])
cell(Interrupt, "tools", "results that nobody reviewed are told as they are", story.reviewed, interrupt(),
     ["message tool → 8", "turn_aborted t2"])
cell(Finish, "completing", "the agent's own code is told first", held_end, finish, ["turn_ending t2 completed"])
cell(Fail, "completing", "after it was told there is nothing to wait for", story.ending, fail, [FAILED])
cell(Archive, "completing", "nobody is asked first", held_end, archive, ["turn_aborted t2", "archived"])
cell(Archive, "completing", "nobody is asked any more", story.ending, archive, ["turn_aborted t2", "archived"])
cell(Claimed, "completing", "an extension's work is lost", with_step(story.completing), claim(),
     ["operation_ended t2.1/e uncertain (restart)", "recovered t2 fence 2 t2.1/e#1=uncertain"])
cell(Claimed, "model", "an extension's work may be repeated", with_step(story.before_model, "idempotent"), claim(),
     ["operation_ended t2.0/e cancelled… (restart)", "recovered t2 fence 2 t2.0/e#1=cancelled"])

cell(CallAccepted, "idle", "a turn that is one call", story.idle, called, ["tool_called s2"])
for situation in ("model", "tools", "waiting", "completing"):
    cell(CallAccepted, situation, "a turn is running", getattr(story, situation), called, Refusal(SessionBusy))
cell(CallsPlanned, "tools", "from outside, it starts at once", lambda: begun(story.idle()), plan(), ["operation_started s2.0.0#1"])
cell(CallsPlanned, "tools", "from outside, a person is asked first", lambda: begun(story.idle()), plan(planned(call(), verdict="ask")),
     ["operation_planned s2.0.0 refund", "request_opened approval s2.0.0"])
cell(CallsPlanned, "tools", "from outside, beyond the limit", lambda: begun(story.idle(), limits=Limits(tool_calls=0)), plan(),
     ["operation_planned s2.0.0 refund",
      "operation_ended s2.0.0#0 cancelled (limit) !\"not executed: the turn's limit of tool calls is reached\"",
      "note_added s2.0.0 ← 4", "turn_limited s2 tool_calls"])
cell(AttemptEnded, "tools", "from outside, the model is told", story.outside, lambda s: s.tool_report("s2.0.0"),
     ["operation_ended s2.0.0#1 succeeded 'done'", "note_added s2.0.0 ← 4"])
cell(AttemptEnded, "tools", "from outside, the agent's own code sees it first", lambda: story.outside(holds=("results",)),
     lambda s: s.tool_report("s2.0.0"), ["operation_ended s2.0.0#1 succeeded 'done'"])
cell(ResultsReviewed, "tools", "from outside, replaced", outside_reviewed,
     lambda s: ResultsReviewed(replaced={"s2.0.0": s.response("s2.0.0", "better")}, at=s.now()), ["note_added s2.0.0 ← 4"])
cell(Interrupt, "tools", "from outside, an external call is uncertain", story.outside, interrupt(),
     [f"operation_ended s2.0.0#1 uncertain (interrupted) !{UNKNOWN!r}", "note_added s2.0.0 ← 4", "turn_aborted s2"])
cell(Interrupt, "tools", "from outside, before it was planned", lambda: begun(story.idle()), interrupt(),
     ["operation_planned s2.0.0 refund", f"operation_ended s2.0.0#0 cancelled (interrupted) !{NOT_EXECUTED!r}", "note_added s2.0.0 ← 4",
      "turn_aborted s2"])
cell(Claimed, "tools", "from outside, an external call is lost", story.outside, claim(),
     [f"operation_ended s2.0.0#1 uncertain (restart) !{story.AFTER_RESTART!r}", "note_added s2.0.0 ← 4",
      "recovered s2 fence 2 s2.0.0#1=uncertain"])
cell(Claimed, "tools", "from outside, another goes on", lambda: story.outside("idempotent"), claim(),
     ["operation_ended s2.0.0#1 cancelled… (restart)", "recovered s2 fence 2 s2.0.0#1=cancelled"])
cell(Accept, "completing", "from outside, no model reads a steer", outside_told, accept("steer"), NOTHING)
cell(Continue, "completing", "from outside, no model goes on", outside_told, go_on, NOTHING)
cell(Finish, "completing", "from outside, it is over", outside_told, finish, ["turn_completed s2"])
cell(Accept, "idle", "with notes", story.idle, noted_message, ["turn_started t2", "message user turn", "note_added", "note_added"])
cell(Fail, "model", "notes are withdrawn if nothing was said", with_notes, fail,
     ["notes_withdrawn 4,5", FAILED])
cell(Fail, "completing", "notes stay with what was said", lambda: with_notes(answered=True), fail, [FAILED])
cell(Interrupt, "model", "notes stay with their message", with_notes, interrupt(), ["turn_aborted t2"])

cell(Reject, "idle", "a turn that says nothing", story.idle, reject, ["turn_started t2", "turn_aborted t2"])
for situation in ("model", "tools", "waiting", "completing"):
    cell(Reject, situation, "it begins no turn", getattr(story, situation), reject, IMPOSSIBLE)
for situation in ("idle", "model", "tools", "waiting", "completing"):
    cell(Extend, situation, "told and kept", getattr(story, situation), extend, ["note_added guard", "extension_set guard.spent"])
    cell(Extend, situation, "told once, and dropped", told_once(getattr(story, situation)), extend_again,
         ["extension_set guard.spent dropped"])
    cell(Extend, situation, "more than is kept", getattr(story, situation), extend_too_much, Refusal(LimitExceeded))
    cell(CommandDone, situation, "carried out", getattr(story, situation), command_done, ["extension_command guard.raise"])
cell(BeginStep, "idle", "nothing runs", story.idle, begin_step, IMPOSSIBLE)
cell(StopTurn, "idle", "nothing runs", story.idle, stop_turn, IMPOSSIBLE)
for situation in ("model", "tools", "waiting", "completing"):
    cell(BeginStep, situation, "begins", getattr(story, situation), begin_step, ["operation_started t2.0/e#1"])
    cell(BeginStep, situation, "runs already", with_step(getattr(story, situation)), lambda s: begin_step(s, s.step), NOTHING)
    if situation != "tools":
        cell(BeginStep, situation, "of a call that is over", getattr(story, situation), story.begin_step, Refusal(StaleRequest))
cell(BeginStep, "tools", "of a call that runs", story.tools, story.begin_step, ["operation_started t2.0.1/reserve#1"])
cell(BeginStep, "tools", "of an earlier attempt", story.tools, lambda s: story.begin_step(s, attempt=2), Refusal(StaleRequest))
cell(BeginStep, "tools", "of a call whose outcome is unknown", story.unknown, story.begin_step, Refusal(StaleRequest))
cell(BeginStep, "model", "again after a crash", lambda: claimed(with_step(story.before_model, "idempotent")()), begin_step,
     ["operation_started t2.0/e#2"])
cell(BeginStep, "model", "more than one step does", many_steps, begin_step, Refusal(LimitExceeded))
cell(StopTurn, "model", "the call ends", story.model, stop_turn,
     ["operation_ended t2.0.0#1 cancelled (interrupted)", "turn_aborted t2"])
cell(StopTurn, "tools", "calls end", story.tools, stop_turn, ABORTED_TOOL)
cell(StopTurn, "waiting", "requests fall", story.waiting, stop_turn, ABORTED_APPROVAL)
cell(StopTurn, "completing", "the answer stays", story.completing, stop_turn, ["turn_aborted t2"])
cell(StopTurn, "completing", "an end that is decided becomes another one", story.ending, stop_turn, ["turn_aborted t2"])
for command, when in ((ResultsReviewed, results), (Continue, go_on), (EndTurn, end)):
    for situation in ("idle", "model", "tools", "waiting", "completing"):
        if situation != ("tools" if command is ResultsReviewed else "completing"):
            cell(command, situation, "not here", getattr(story, situation), when, IMPOSSIBLE)
cell(ResultsReviewed, "tools", "told as they are", story.reviewed, results, ["message tool → 8"])
cell(ResultsReviewed, "tools", "one replaced", lambda: story.reviewed(planned(call("c1")), planned(call("c2"))),
     lambda s: ResultsReviewed(replaced={"t2.0.2": s.response("t2.0.2", "better")}, at=s.now()), ["message tool → 9,10"])
cell(ResultsReviewed, "tools", "a call still runs", story.tools, results, NOTHING)
cell(Continue, "completing", "the turn goes on", story.completing, go_on, ["note_added guard"])
cell(Continue, "completing", "once", continued, go_on, NOTHING)
cell(Continue, "completing", "not when the end is decided", story.ending, go_on, NOTHING)
cell(EndTurn, "completing", "the end that was decided", story.ending, end, ["turn_completed t2"])
cell(EndTurn, "completing", "another end was decided", story.ending,
     lambda s: EndTurn(ending=replace(decided(s), seq=3), at=s.now()), NOTHING)
for command, when in {
    CallAccepted: called,
    Reject: reject, Extend: extend, CommandDone: command_done, BeginStep: begin_step, StopTurn: stop_turn, ResultsReviewed: results,
    Continue: go_on, EndTurn: end,
    Accept: accept("steer"), Interrupt: interrupt(), Answer: answer(), SelectRoute: select, RevokeGrant: revoke, AddNote: note,
    ChangeQueue: edit("turn"), Describe: describe(title="x"), EditTranscript: edited(), RouteGiven: give("b"),
    Promote: promote, Archive: archive, Revive: revive, Redact: redacted, Halt: halt,
    Fail: fail, Finish: finish, Redefined: redefine,
    AttemptEnded: lambda s: AttemptEnded(operation="t2.0.1", attempt=1, status="succeeded", at=s.now()),
    CallsPlanned: lambda s: CallsPlanned(calls=(), fence=1, at=s.now()),
    StartTools: lambda s: StartTools(fence=1, at=s.now()),
    Guarded: lambda s: Guarded(operation="t2.0.1", match=EffectMatch(operation="t2.0.1", seq=8, state="uncertain"), reason="", deadline=0,
                               at=s.now()),
    Prepared: prepare(), CompactionAccepted: lambda s: s.notes_accepted(),
    EndEarly: lambda s: EndEarly(reason="", at=s.now()),
    OutputAccepted: accepted, OutputRefused: refused,
    Reconciled: lambda s: Reconciled(operation="t2.0.1", outcome="done", at=s.now()),
}.items():
    if command not in (Revive, Redact, Halt):
        cell(command, "archived", "refused", story.archived, when, Refusal(SessionArchived))
    cell(command, "halted", "refused", story.halted, when, Refusal(SessionHalted))
for situation in ("idle", "model", "tools", "waiting", "completing", "archived"):
    cell(Halt, situation, "nothing else ends", getattr(story, situation), halt, ["halted"])
    cell(Repair, situation, "only the catalogue said so", getattr(story, situation), repair, ["halted released"])
cell(Repair, "halted", "it goes on where it was", story.halted, repair, ["halted released"])
cell(Report, "halted", "a late result waits", story.halted, lambda s: s.report("t2.0.1"), NOTHING)
cell(Claimed, "halted", "nothing runs", story.halted, lambda s: s.claim(), NOTHING)
cell(TimePassed, "halted", "nothing is decided", story.halted, late, NOTHING)

# ------------------------------------------------------------------------------------------------------- children, handoffs, timers
CHILD_TOLD = ["operation_ended t2.0.1#1 succeeded 'found'", "message tool → 8"]
for situation in ("idle", "model", "tools", "waiting", "completing"):
    cell(Outcome, situation, "nobody waits for it", getattr(story, situation), lambda s: s.outcome(), Refusal(StaleRequest))
    cell(ErrandsDone, situation, "nothing is owed", getattr(story, situation),
         lambda s: ErrandsDone(errands=(Errand("begin", "t2.0.1"),), at=s.now()), NOTHING)
    if situation != "model":
        cell(HandOver, situation, "not here", getattr(story, situation), lambda s: s.hand_over(), IMPOSSIBLE)
cell(Outcome, "waiting", "the receipt of the call", story.delegated, lambda s: s.outcome(), CHILD_TOLD)
cell(Outcome, "waiting", "a child that broke", story.delegated, lambda s: s.outcome(outcome="failed"),
     ["operation_ended t2.0.1#1 failed (child_failed) !'found'", "message tool → 8"])
cell(Outcome, "waiting", "another session says so", story.delegated, lambda s: s.outcome(session="s2"), Refusal(StaleRequest))
cell(Outcome, "tools", "another call still runs", lambda: story.delegated(planned(call("c2"))), lambda s: s.outcome(),
     ["operation_ended t2.0.1#1 succeeded 'found'"])
cell(Outcome, "idle", "a child in the background", story.behind, lambda s: s.outcome(), ["child_ended t2.0.1 completed"])
cell(Outcome, "idle", "it ended before", lambda: after(story.behind(), lambda s: s.outcome()), lambda s: s.outcome(), Refusal(StaleRequest))
cell(Report, "waiting", "a forged result is none of a child", story.delegated, report(), Refusal(StaleRequest))
cell(ErrandsDone, "waiting", "the child is begun", story.delegated, lambda s: s.errands(), ["passed_on begin t2.0.1"])
cell(ErrandsDone, "waiting", "the child can't be begun", story.delegated,
     lambda s: s.errands(failed=(("t2.0.1", Failure(code="child_lost", message="its id is taken")),)),
     ["passed_on begin t2.0.1", "operation_ended t2.0.1#1 failed (child_lost) !'not executed: its id is taken'", "message tool → 9"])
cell(ErrandsDone, "tools", "another call still runs", lambda: story.delegated(planned(call("c2"))), lambda s: s.errands(),
     ["passed_on begin t2.0.1"])
cell(ErrandsDone, "model", "nobody waits for it", lambda: story.delegated(background=True), lambda s: s.errands(),
     ["passed_on begin t2.0.1"])
cell(ErrandsDone, "completing", "nobody waits for it", lambda: story.behind(ends=False), lambda s: s.errands(), ["passed_on begin t2.0.1"])
cell(ErrandsDone, "idle", "one in the background can't be begun", story.behind,
     lambda s: s.errands(failed=(("t2.0.1", Failure(code="child_lost")),)), ["passed_on begin t2.0.1", "child_ended t2.0.1 failed"])
cell(Interrupt, "waiting", "a child is stopped", story.delegated, interrupt(),
     [f"operation_ended t2.0.1#1 cancelled (interrupted) !'{UNKNOWN}'", "message tool → 8", "turn_aborted t2"])
cell(Claimed, "waiting", "a child is found again", story.delegated, claim(), ["recovered t2 fence 2"])
cell(Claimed, "waiting", "a child is found again, with stop", story.delegated, claim(on_restart="stop"), ["recovered t2 fence 2"])
cell(Claimed, "waiting", "a timer goes on", story.sleeping, claim(), ["recovered t2 fence 2"])
cell(TimePassed, "waiting", "a timer fires", story.sleeping, late, ["operation_ended t2.0.1#1 succeeded 'The time has come.'",
     "message tool → 8"])
cell(TimePassed, "waiting", "its time is to come", story.sleeping, lambda s: s.time(1_999), NOTHING)
cell(TimePassed, "waiting", "a child takes too long", lambda: story.delegated(until=2_000), late,
     ["operation_ended t2.0.1#1 cancelled (timeout) !'the agent clerk was stopped: it did not come to an end in time; "
      "what it did so far stays done'", "message tool → 8"])
FIRED = "operation_ended t2.0.1/night succeeded 'The time has come.'"
cell(BeginStep, "tools", "of a call that is to sleep", story.tools,
     lambda s: story.begin_step(s, "t2.0.1/night", "pure", until=2_000), ["operation_started t2.0.1/night#1"])
cell(BeginStep, "tools", "of a call that is to sleep until a time that has passed", story.tools,
     lambda s: story.begin_step(s, "t2.0.1/night", "pure", until=1), ["operation_started t2.0.1/night#1", FIRED])
cell(AttemptEnded, "tools", "a call goes to sleep",
     lambda: after(story.tools(resumable=True), lambda s: story.begin_step(s, "t2.0.1/night", "pure", until=2_000)),
     story.set_aside, ["operation_ended t2.0.1#1 cancelled… (asleep)"])
cell(TimePassed, "waiting", "a call that sleeps wakes up", story.dozing, late, [FIRED])
cell(TimePassed, "waiting", "a call goes on sleeping", story.dozing, lambda s: s.time(1_999), NOTHING)
cell(TimePassed, "tools", "a call that sleeps wakes up beside another", lambda: story.dozing(planned(call("c2"))), late, [FIRED])
cell(StartTools, "tools", "what sleeps is not begun, and what is exclusive waits for it",
     lambda: story.dozing(planned(call("c2")), planned(call("c3"), exclusive=True)), lambda s: StartTools(fence=1, at=s.now()), NOTHING)
cell(StartTools, "tools", "its time has come", lambda: after(story.dozing(), late), lambda s: StartTools(fence=1, at=s.now()),
     ["operation_started t2.0.1#2"])
cell(Claimed, "waiting", "a call goes on sleeping", story.dozing, claim(), ["recovered t2 fence 2"])
cell(Claimed, "tools", "a call died as it went to sleep",
     lambda: after(story.tools(resumable=True), lambda s: story.begin_step(s, "t2.0.1/night", "pure", until=2_000)), claim(),
     ["operation_ended t2.0.1#1 cancelled… (restart)", "recovered t2 fence 2 t2.0.1#1=cancelled"])
cell(Interrupt, "waiting", "a call that sleeps", story.dozing, interrupt(),
     ["operation_ended t2.0.1#1 cancelled (interrupted) !'stopped while it slept; it had done nothing outside'",
      "operation_ended t2.0.1/night cancelled (interrupted)", "message tool → 10", "turn_aborted t2"])
cell(Report, "waiting", "nobody awaits a call that sleeps", story.dozing, report(), Refusal(StaleRequest))
cell(HandOver, "model", "nothing hands over", story.before_model, lambda s: s.hand_over(), NOTHING)
cell(HandOver, "model", "another agent goes on", story.transferred, lambda s: s.hand_over(), ["definition_changed d1 → d2"])
cell(CallsPlanned, "tools", "handed over", lambda: story.unplanned(call("c1", "transfer")),
     plans(planned(call("c1", "transfer"), "pure", kind="handoff", agent="billing")),
     ["operation_planned t2.0.1 transfer", "operation_ended t2.0.1#0 succeeded 'The conversation goes to billing.'", "message tool → 8"])
cell(CallsPlanned, "tools", "handed over twice", lambda: story.unplanned(call("c1", "transfer"), call("c2", "other")),
     plans(planned(call("c1", "transfer"), "pure", kind="handoff", agent="billing"),
           planned(call("c2", "other"), "pure", kind="handoff", agent="sales")),
     ["operation_planned t2.0.1 transfer", "operation_ended t2.0.1#0 succeeded 'The conversation goes to billing.'",
      "operation_planned t2.0.2 other",
      "operation_ended t2.0.2#0 failed (handed_over) !'not executed: the conversation goes to billing already'", "message tool → 8,10"])
cell(CallsPlanned, "tools", "handed over too often", lambda: limited_to(handoffs=0),
     plans(planned(call("c1", "transfer"), "pure", kind="handoff", agent="billing")),
     ["operation_planned t2.0.1 transfer",
      "operation_ended t2.0.1#0 failed (handoff_limit) !'not executed: a turn is handed over 0 times at most'", "message tool → 8"])
cell(CallsPlanned, "tools", "in the background", lambda: story.unplanned(call("c1", "clerk")),
     plans(planned(call("c1", "clerk"), "pure", kind="child", agent="clerk", background=True)),
     ["operation_started t2.0.1#1", "operation_ended t2.0.1#1 succeeded 'The agent clerk works on it in the session s1.t2.0.1. "
      "What it comes to will be told in a message.'", "message tool → 8"])
cell(CallsPlanned, "tools", "one agent too many", lambda: limited_to(children=0),
     plans(planned(call("c1", "clerk"), "pure", kind="child", agent="clerk")),
     ["operation_planned t2.0.1 clerk", "operation_ended t2.0.1#0 failed (child_limit) !'not executed: a turn calls 0 agents at most'",
      "message tool → 8"])
cell(CallsPlanned, "tools", "in the background once more after too many reports", lambda: limited_to(reports=0),
     plans(planned(call("c1", "clerk"), "pure", kind="child", agent="clerk", background=True)),
     ["operation_planned t2.0.1 clerk",
      "operation_ended t2.0.1#0 failed (report_limit) !'not executed: 0 turns in a row began with reports from the background, and nobody "
      "else said anything'", "message tool → 8"])
cell(CallsPlanned, "tools", "too deep", lambda: limited_to(depth=0),
     plans(planned(call("c1", "clerk"), "pure", kind="child", agent="clerk")),
     ["operation_planned t2.0.1 clerk",
      "operation_ended t2.0.1#0 failed (child_depth) !'not executed: agents call agents 0 levels deep at most'", "message tool → 8"])
cell(StartTools, "tools", "an agent behind an exclusive call",
     lambda: ended_first(story.batch(planned(call("c1"), exclusive=True), planned(call("c2", "clerk"), "pure", kind="child"))),
     lambda s: StartTools(fence=1, at=s.now()), ["operation_started t2.0.2#1"])
cell(Archive, "waiting", "with a child", story.delegated, archive,
     [f"operation_ended t2.0.1#1 cancelled (taken) !'{UNKNOWN}'", "message tool → 8", "turn_aborted t2", "archived"])
cell(ErrandsDone, "archived", "children are put away", lambda: after(story.delegated(), archive), lambda s: s.errands(),
     ["passed_on away t2.0.1"])
cell(Outcome, "archived", "refused", story.archived, lambda s: s.outcome(), Refusal(SessionArchived))
cell(HandOver, "archived", "refused", story.archived, lambda s: s.hand_over(), Refusal(SessionArchived))
cell(Outcome, "halted", "it waits", story.halted, lambda s: s.outcome(), NOTHING)
cell(ErrandsDone, "halted", "nothing changes", story.halted, lambda s: s.errands(), NOTHING)
cell(HandOver, "halted", "refused", story.halted, lambda s: s.hand_over(), Refusal(SessionHalted))
# fmt: on


def test_what_a_child_spent_is_its_parents_once() -> None:
    s = story.delegated()
    s.do(s.outcome())

    assert s.checkpoint.turn is not None
    assert s.checkpoint.turn.usage.calls == s.checkpoint.usage.calls == 3
    with pytest.raises(StaleRequest):
        decide(s.checkpoint, s.outcome())


def test_a_parent_owes_its_child_one_thing_at_a_time() -> None:
    s = story.delegated()
    assert s.checkpoint.errands == (Errand("begin", "t2.0.1"),)
    s.do(Interrupt(at=s.now(), submission="i1"))

    assert s.checkpoint.errands == (Errand("stop", "t2.0.1"),)


def test_every_cell_of_the_table_has_a_case() -> None:
    cells = {(command, situation) for command, row in TABLE.items() for situation in row}

    assert {(case.command, case.situation) for case in CASES} == cells


@pytest.mark.spec("D-053")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.command.__name__}-{case.situation}-{case.name}")
def test_a_cell_writes_exactly_this(case: Case) -> None:
    given = case.given()
    assert phase(given.checkpoint) == case.situation, "the case belongs to another cell"
    command = case.when(given)
    assert type(command) is case.command
    before = given.checkpoint

    if case.then is IMPOSSIBLE:
        with pytest.raises(AssertionError, match=f"{case.command.__name__} can't happen while the session is {case.situation}"):
            decide(before, command)
    elif isinstance(case.then, Refusal):
        with pytest.raises(case.then.error) as refused:
            decide(before, command)
        assert type(refused.value) is case.then.error
        assert refused.value.facts.get("reason", "") == case.then.reason
    else:
        assert given.told(command) == case.then
        assert given.folds()
        if not case.then:
            assert given.checkpoint == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.command.__name__}-{case.situation}-{case.name}")
def test_the_table_says_of_each_cell_what_it_does(case: Case) -> None:
    rule = TABLE[case.command][case.situation]

    assert (rule is impossible) == (case.then is IMPOSSIBLE)
    if rule is not_now:
        assert case.then == NOTHING


def test_each_rule_that_can_write_is_seen_writing_or_refusing() -> None:
    ruling = {(case.command, case.situation) for case in CASES if case.then}
    silent = {
        (command, situation)
        for command, row in TABLE.items()
        for situation, rule in row.items()
        if rule not in (not_now, impossible) and (command, situation) not in ruling
    }

    # No request has a deadline in these situations: time can pass there, and changes nothing.
    assert silent == {(TimePassed, "model"), (TimePassed, "completing")}


def test_a_command_that_is_refused_adds_nothing_to_the_commit_under_way() -> None:
    draft = Draft(story.waiting().checkpoint)
    first = apply(draft, Promote(submission="m9", at=3000))

    with pytest.raises(StaleRequest):
        apply(draft, Answer(request_id="0" * 16, decision="approve", at=3000))
    with pytest.raises(SubmissionRejected):
        apply(draft, Answer(request_id=draft.turn.requests[0].request, decision="settle", at=3000))

    assert draft.entries == list(first)


def test_a_model_answer_with_more_calls_than_the_limit_is_no_answer() -> None:
    calls = tuple(call(f"c{index}") for index in range(129))
    given = story.unplanned(*calls)

    with pytest.raises(AssertionError, match="too many calls"):
        given.plans(*(planned(item) for item in calls))


def test_the_numbers_of_the_rules_are_those_of_the_design() -> None:
    assert (attempts.ATTEMPTS, attempts.FEW_ATTEMPTS) == (15, 5)
    assert (attempts.FIRST_DELAY_MS, attempts.LONGEST_DELAY_MS, attempts.LONGEST_HINT_MS) == (200, 60_000, 300_000)
    assert (endings.UNKNOWN_LIVE, endings.UNKNOWN_AFTER_RESTART, endings.NOT_EXECUTED) == (UNKNOWN, story.AFTER_RESTART, NOT_EXECUTED)
