"""What holds after any legal history: a driver that picks legal commands at random, over the pure core."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

import msgspec
import pytest
import story
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from story import Story, call, planned

from perdure.core import checkpoint as checkpoints
from perdure.core import entries, journal
from perdure.core import evolve as evolving
from perdure.core.budget import drawn_and_spent, elapsed, left, plus, spent_by
from perdure.core.checkpoint import Checkpoint, Phase
from perdure.core.commands import Archive, Describe, Halt, Interrupt, PostMessage, Repair, Revive, RevokeGrant, RunCommand, SelectRoute
from perdure.core.entries import (
    AllowanceGranted,
    AnswerRequested,
    ChildEnded,
    EffectSettled,
    Entry,
    MessageAdded,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    Recovered,
    RequestClosed,
    RequestOpened,
    TurnEnded,
    TurnEnding,
    TurnStarted,
)
from perdure.core.evolve import evolve, fold
from perdure.core.messages import Part, Private, Text, ToolCall, ToolCallResponse
from perdure.core.phase import due, phase, reviewing, startable
from perdure.core.records import Amounts, EffectMatch, Failure, Limits, Plan, Pool, Terms
from perdure.core.reports import (
    AttemptEnded,
    BeginStep,
    CommandDone,
    Continue,
    EndTurn,
    Extend,
    Fail,
    Finish,
    Guarded,
    Guidance,
    OutputAccepted,
    OutputRefused,
    Promote,
    Redefined,
    Reject,
    Report,
    ResultsReviewed,
    RouteGiven,
    Setting,
    StopTurn,
    TimePassed,
)
from perdure.core.usage import Totals, Usage
from perdure.runtime.model_calls import Spending, model_calls

EFFECTS = ("pure", "idempotent", "transactional", "external")
PHASES: set[Phase] = {"idle", "model", "tools", "waiting", "completing", "archived", "halted"}

choices = st.lists(st.integers(0, 2**32 - 1), max_size=60)
bounded = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Driver:
    """Makes one legal step for each number. What is legal depends on the checkpoint alone, what happens on the number."""

    def __init__(self) -> None:
        self.story = Story()
        self.phases: set[str] = set()
        self.turns_begun = 0
        self.calls = 0
        self.interrupted: list[int] = []

    def step(self, choice: int) -> None:
        self.phases.add(self.story.phase)
        pick = _Numbers(choice)
        match pick(12):
            case 0:
                self.claim(pick)
            case 1 if self.story.phase not in ("archived", "halted"):
                self.sometimes(pick)
            case _ if self.story.phase != "halted" and self.others(pick):
                pass
            case _:
                getattr(self, self.story.phase)(pick)

    def claim(self, pick: _Numbers) -> None:
        s = self.story
        takeover = bool(due(s.checkpoint)) or pick(2) == 0
        s.do(s.claim(on_restart=("continue", "continue", "stop")[pick(3)], takeover=takeover))

    def sometimes(self, pick: _Numbers) -> None:
        """What may come at any time."""
        s = self.story
        match pick(9):
            case 6 | 7:
                self.extension(pick)
            case 5:
                s.do(Archive(submission="x", at=s.now()))
                self.interrupted.append(len(s.entries))
            case 8:
                s.do(Halt(submission="h", at=s.now()))
            case 0 if s.phase != "idle":
                s.do(Interrupt(at=s.now()))
                self.interrupted.append(len(s.entries))
            case 1 if s.phase != "idle":
                s.do(Fail(failure=Failure(code="broken"), at=s.now()))
            case 2 if s.phase != "idle":
                s.do(Redefined(new=f"d{pick(5)}", difference=(), at=s.now()))
            case 3:
                s.do(Promote(submission="m9", at=s.now()))
            case 4:
                self.settle_late()
            case _:
                s.do(TimePassed(at=s.now() + pick(100)))

    def extension(self, pick: _Numbers) -> None:
        """What an agent's own code may do at any time."""
        s, turn = self.story, self.story.checkpoint.turn
        running = next((item for item in turn.steps if item.status == "started"), None) if turn is not None else None
        match pick(5):
            case 0 if turn is not None and running is None:
                effect: Any = ("pure", "idempotent", "external")[pick(3)]
                calls = [item for item in turn.tools if item.status == "started" and item.plan.kind == "tool"]
                begins = calls[pick(len(calls))] if calls and pick(2) else None
                identity = f"{turn.id}.{turn.step}" if begins is None else begins.id
                plan = Plan(kind="step", name="e", effect=effect, reconcile=begins is not None and effect == "external" and pick(2) == 0)
                attempt = 0 if begins is None else begins.attempt
                step = f"{identity}/e{len(turn.steps)}"
                s.do(BeginStep(operation=step, plan=plan, fence=s.fence, attempt=attempt, at=s.now()))
            case 1 if running is not None:
                status: Any = ("succeeded", "failed", "uncertain", "cancelled")[pick(4)]
                parts = (ToolCallResponse(id="e", name="e", response="done"),) if status == "succeeded" else ()
                ended = AttemptEnded(operation=running.id, attempt=running.attempt, status=status, parts=parts, at=s.now())
                s.do(msgspec.structs.replace(ended, final=status != "cancelled"))
            case 2 if turn is not None and pick(4) == 0:
                s.do(StopTurn(reason="enough", extension="guard", at=s.now()))
                self.interrupted.append(len(s.entries))
            case 3:
                asked = RunCommand(extension="guard", command="raise", submission="c")
                s.do(CommandDone(command=asked, at=s.now()))
            case _:
                told = Guidance(extension="guard", text="careful", once=("", "hint", "other")[pick(3)])
                kept = Setting(extension="guard", key="k", value=pick(3), dropped=pick(3) == 0)
                s.do(Extend(guidance=(told,), settings=(kept,), at=s.now()))

    def settle_late(self) -> None:
        """A late result of an effect that ended uncertain and was not settled since."""
        s = self.story
        settled = {(entry.operation, entry.attempt) for entry in s.entries if isinstance(entry, EffectSettled)}
        for entry in s.entries:
            if isinstance(entry, OperationEnded) and entry.final and entry.status == "uncertain" and entry.parts:
                turn = s.checkpoint.turn
                still = turn.operation(entry.operation) if turn is not None else None
                if (entry.operation, entry.attempt) not in settled and (still is None or still.status == "ended"):
                    report: Report = s.report(entry.operation, entry.attempt)
                    s.do(report)
                    return

    def archived(self, pick: _Numbers) -> None:
        s = self.story
        if pick(2):
            self.settle_late()
        else:
            s.do(Revive(submission="y", at=s.now()))

    def halted(self, pick: _Numbers) -> None:
        s = self.story
        s.do(TimePassed(at=s.now() + 100) if pick(2) else Repair(submission="r", at=s.now()))

    def idle(self, pick: _Numbers) -> None:
        s = self.story
        if pick(4) == 0:
            s.do(RouteGiven(route=("a", "b")[pick(2)], at=s.now()))
            s.do(Describe(title=("a", "b")[pick(2)], submission="d", at=s.now()))
            s.do(SelectRoute(route=("a", "b")[pick(2)], submission="r", at=s.now()))
        if (grants := s.checkpoint.grants) and pick(3) == 0:
            s.do(RevokeGrant(grant=grants[0].id, submission="g", at=s.now()))
        self.turns_begun += 1
        limits = Limits(steps=(None, 2, 5)[pick(3)], tool_calls=(None, None, 3)[pick(3)], tokens=(None, None, 100)[pick(3)])
        holds: Any = ((), ("results",), ("end",), ("results", "end"), ("output",), ("results", "output", "end"))[pick(6)]
        facts: dict[str, Any] = {"finish": ("answer", "tool", "ask")[pick(3)]} if "output" not in holds else {"repairs": 2}
        if s.checkpoint.limited is not None and pick(2):
            s.resumes(Limits(tokens=10_000, tool_calls=20), agents=limits, holds=holds)
            return
        limits = msgspec.structs.replace(limits, model_calls=(None, None, 4)[pick(3)], seconds=(None, None, 1)[pick(3)])
        budgets: dict[str, Any] = {}
        if pick(3) == 0:
            spent = Amounts() if s.checkpoint.spent is None else None
            budgets = {"session_limits": Limits(tokens=(None, 900)[pick(2)], steps=(None, 40)[pick(2)]), "spent": spent}
        if s.pool is None and pick(4) == 0:
            s.pool = Pool(id="p", limits=Limits(tokens=(None, 30_000)[pick(2)], tool_calls=9, model_calls=(None, 12)[pick(2)]))
        if pick(9) == 0:
            post = PostMessage(parts=(Text(content="no"),), submission=f"m{self.turns_begun}")
            s.do(Reject(post=post, agent="a", definition="d1", terms=Terms(holds=holds), reason="no", extension="guard", at=s.now()))
            return
        if pick(7) == 0:
            self.calls += 1
            asked = call(f"c{self.calls}", ("refund", "look")[pick(2)], n=pick(3))
            s.do(s.called(asked, holds=holds, limits=limits, submission=f"m{self.turns_begun}"))
            return
        notes = ("it rains", "it's late")[: pick(3)]
        deliver = ("turn", "queue", "steer")[pick(3)]
        self.story.says(notes=notes, holds=holds, limits=limits, deliver=deliver, submission=f"m{self.turns_begun}", **facts, **budgets)

    def others(self, pick: _Numbers) -> bool:
        """What other sessions, and the time, do to one that waits for them. False: nothing."""
        s, turn = self.story, self.story.checkpoint.turn
        if s.checkpoint.errands and pick(2):
            failed = tuple((errand.operation, Failure(code="child_lost")) for errand in s.checkpoint.errands if pick(9) == 0)
            s.do(s.errands(failed=failed))
            return True
        if s.checkpoint.background and pick(3) == 0:
            s.do(s.outcome(s.checkpoint.background[0].operation, _outcome(pick)))
            return True
        if turn is None or not turn.awaiting or pick(2):
            return False
        item = turn.awaiting[pick(len(turn.awaiting))]
        if item.plan.kind == "child" and pick(6):
            s.do(s.outcome(item.id, _outcome(pick)))
        else:
            s.do(s.time(max(s.at, item.deadline) + 1))
        return True

    def model(self, pick: _Numbers) -> None:
        s = self.story
        turn = s.checkpoint.turn
        assert turn is not None
        if turn.transfer:
            s.do(s.hand_over())
            return
        if turn.candidate is not None:
            self.candidate(pick)
            return
        running, extraction = turn.model, turn.extraction
        if extraction is not None and extraction.status == "started":
            self.remember(pick)
            return
        if running is None or running.status != "started":
            if pick(5) == 0:
                s.says(deliver="steer", submission="m-steer")
            else:
                s.steps(("same", "same", "another")[pick(3)])
            return
        match pick(8):
            case 0:
                s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"), partial="x" * pick(2))
            case 1:
                s.model_ends(status="cancelled", final=False, failure=Failure(code="shutdown"))
            case 2 if pick(4) == 0:
                fallback = ("", "spare")[pick(2)]
                s.model_ends(status="failed", failure=Failure(code="provider_refused"), fallback=fallback)
            case 3 | 4:
                group = ("g", "h")[pick(2)]
                s.model_ends(Text(content="so"), Private(group=group, data=pick(9)), usage=None, group=group)
            case _:
                asked = []
                for _ in range(1 + pick(4)):
                    self.calls += 1
                    asked.append(call(f"c{self.calls}", ("refund", "look")[pick(2)], n=pick(3)))
                s.model_ends(Text(content="wait"), *asked)

    def remember(self, pick: _Numbers) -> None:
        """A search for something to remember comes to something."""
        s = self.story
        match pick(5):
            case 0:
                s.do(s.memory_ends(status="failed", retryable=True, failure=Failure(code="rate_limited")))
            case 1:
                s.do(s.memory_ends(status="cancelled", final=False, failure=Failure(code="shutdown")))
            case 2:
                s.do(s.memory_ends(status="failed", failure=Failure(code="provider_refused")))
            case 3:
                s.do(s.memory_ends(Text(content="Nothing."), usage=Usage(input_tokens=5, output_tokens=2)))
            case _:
                s.do(s.memory_ends(Text(content='[{"content": "It rains."}]')))

    def candidate(self, pick: _Numbers) -> None:
        """An answer waits until it is known to be what it has to be."""
        s = self.story
        turn = s.checkpoint.turn
        assert turn is not None
        assert turn.candidate is not None
        repair = turn.repair
        if repair is None and pick(2):
            s.do(OutputAccepted(operation=turn.candidate.id, at=s.now()))
        elif repair is None and turn.repaired >= turn.terms.repairs:
            s.do(OutputRefused(operation=turn.candidate.id, failure=Failure(code="output_invalid"), at=s.now()))
        elif repair is None or repair.status != "started":
            s.do(s.repair_asked(("same", "same", "another")[pick(3)]))
        else:
            match pick(4):
                case 0:
                    s.do(s.repair_ends(status="failed", retryable=True, failure=Failure(code="rate_limited")))
                case 1:
                    s.do(s.repair_ends(status="cancelled", final=False, failure=Failure(code="shutdown")))
                case 2 if pick(3) == 0:
                    s.do(s.repair_ends(status="failed", failure=Failure(code="provider_refused"), fallback=("", "spare")[pick(2)]))
                case _:
                    s.do(s.repair_ends(Text(content="5"), call("no"), group=("g", "h")[pick(2)]))

    def tools(self, pick: _Numbers) -> None:
        s = self.story
        turn = s.checkpoint.turn
        assert turn is not None
        if turn.unplanned:
            s.plans(*(self.plan(item.id, item.name, pick) for item in turn.unplanned))
            return
        if reviewing(turn):
            replaced = {item.id: s.response(item.id, "better") for item in turn.tools if pick(3) == 0}
            s.do(ResultsReviewed(replaced=replaced, at=s.now()))
            return
        running, ready = due(s.checkpoint), startable(turn)
        match pick(5):
            case 0 if ready:
                s.starts()
            case 1 if turn.requests:
                self.waiting(pick)
            case 2 if ready and ready[0].status == "planned":
                match = EffectMatch(operation="t1.0.1", seq=1, state="uncertain")
                s.do(Guarded(operation=ready[0].id, match=match, reason="", deadline=0, at=s.now()))
            case _ if running:
                self.end(running[pick(len(running))].id, pick)
            case _:
                s.starts()

    def plan(self, identity: str, name: str, pick: _Numbers) -> Any:
        facts: dict[str, Any] = {
            "exclusive": pick(5) == 0,
            "reconcile": pick(3) == 0,
            "ask_when_uncertain": pick(3) == 0,
            "verdict": ("allow", "allow", "allow", "ask", "reject", "replay")[pick(6)],
        }
        if facts["verdict"] == "reject":
            facts["failure"] = Failure(code="denied", message="no")
        elif facts["verdict"] == "replay":
            facts["parts"] = (ToolCallResponse(id=identity, name=name, response="again"),)
        elif facts["verdict"] == "ask":
            facts |= {"deadline": self.story.at + pick(200) if pick(2) else 0, "default": ("approve", "deny", "abort")[pick(3)]}
        match pick(12):
            case 0:
                return planned(call(identity, name), "idempotent", kind="child", agent="clerk", background=pick(2) == 0, **facts)
            case 1:
                return planned(call(identity, name), "pure", kind="timer", until=self.story.at + 1 + pick(300), **facts)
            case 2:
                return planned(call(identity, name), "pure", kind="handoff", agent="billing", **facts)
        turn = self.story.checkpoint.turn
        if facts["verdict"] == "allow" and pick(5) == 0:
            question = {"verdict": "question", "asks": True, "deadline": self.story.at + pick(200) if pick(2) else 0}
            return planned(call(identity, name), "pure", **question)
        if facts["verdict"] == "allow" and turn is not None and turn.terms.finish != "answer" and pick(4) == 0:
            return planned(call(identity, name), "pure", ends=("*", "answer")[pick(2)], exclusive=True)
        return planned(call(identity, name), EFFECTS[pick(4)], resumable=pick(3) == 0, unique="k" if pick(4) == 0 else "", **facts)

    def end(self, identity: str, pick: _Numbers) -> None:
        s = self.story
        item = s.operation(identity)
        if item.status == "unknown":
            s.do(s.reconciled(identity, ("done", "not_done", "unknown")[pick(3)]))
            return
        lost = "uncertain" if item.plan.effect == "external" else "cancelled"
        match pick(5):
            case 0:
                s.tool_ends(identity, "failed", "bad")
            case 1:
                s.tool_ends(identity, lost, failure=Failure(code="timeout", message="too slow"))
            case 2 if lost == "cancelled":
                s.tool_ends(identity, lost, final=False, failure=Failure(code="shutdown"))
            case 3:
                s.do(s.report(identity, item.attempt))
            case _:
                s.tool_ends(identity)

    def waiting(self, pick: _Numbers) -> None:
        s = self.story
        turn = s.checkpoint.turn
        assert turn is not None
        if not turn.requests:
            s.do(s.time(max([s.at, *turn.deadlines]) + 1) if turn.deadlines else s.outcome(turn.awaiting[0].id))
            return
        item = turn.requests[pick(len(turn.requests))]
        if item.is_question:
            s.do(s.answer(item.id, ("reply", "reply", "deny", "abort")[pick(4)], result="the blue one"))
        elif item.status == "asking":
            decision = ("settle", "retry", "deny", "settle", "retry", "abort")[pick(6)]
            s.do(s.answer(item.id, decision, result="told", is_error=pick(2) == 0))
        else:
            decision = ("approve", "approve", "grant", "deny", "abort")[pick(5)]
            s.do(s.answer(item.id, decision, arguments={"n": 9} if pick(3) == 0 else None))

    def completing(self, pick: _Numbers) -> None:
        s = self.story
        turn = s.checkpoint.turn
        assert turn is not None
        if turn.ending:
            ending = next(entry for entry in s.entries if entry.seq == turn.ending)
            assert isinstance(ending, TurnEnding)
            s.do(EndTurn(ending=ending, at=s.now()))
        elif pick(4) == 0:
            s.says(deliver="steer", submission="m-steer")
        elif pick(4) == 0:
            s.do(Continue(prompt="and the tests?", extension="guard", at=s.now()))
        else:
            default: Any = ("deny", "reply")[pick(2)]
            s.do(Finish(deadline=self.story.at + pick(200) if pick(2) else 0, default=default, at=s.now()))


def _outcome(pick: _Numbers) -> str:
    return ("completed", "completed", "aborted", "failed", "limited")[pick(5)]


class _Numbers:
    """Small choices out of one number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, below: int) -> int:
        self.number, rest = divmod(self.number, below)
        return rest


def told(numbers: list[int]) -> Driver:
    driver = Driver()
    for number in numbers:
        driver.step(number)
    driver.phases.add(driver.story.phase)
    return driver


@bounded
@given(choices)
def test_the_checkpoint_is_the_fold_of_the_journal(numbers: list[int]) -> None:
    s = told(numbers).story

    assert fold(s.entries) == s.checkpoint


@bounded
@given(choices)
def test_the_fold_survives_being_written_and_read_entry_by_entry_and_from_any_checkpoint_on(numbers: list[int]) -> None:
    s = told(numbers).story
    checkpoint = checkpoints.Checkpoint()
    for entry in s.entries:
        read = entries.decode(entry.kind, entries.encode(entry), seq=entry.seq, number=entry.number, at=entry.at)
        assert read == entry
        checkpoint = checkpoints.decode(checkpoints.encode(evolve(checkpoint, read)))

    assert checkpoint == s.checkpoint
    assert checkpoints.encode(checkpoint) == checkpoints.encode(s.checkpoint)


@bounded
@given(choices)
def test_entries_are_counted_without_gaps_and_time_never_goes_back(numbers: list[int]) -> None:
    s = told(numbers).story

    assert [entry.seq for entry in s.entries] == list(range(1, len(s.entries) + 1))
    assert [entry.at for entry in s.entries] == sorted(entry.at for entry in s.entries)
    messages = 0
    for entry in s.entries:
        messages += isinstance(entry, MessageAdded)
        assert entry.number == messages
    assert (s.checkpoint.version, s.checkpoint.number) == (len(s.entries), messages)


def resolved(s: Story) -> list[tuple[MessageAdded, tuple[Part, ...]]]:
    """The transcript as a reader sees it."""
    receipts = {entry.seq: entry.parts for entry in s.entries if isinstance(entry, (OperationEnded, EffectSettled))}
    found = []
    for entry in s.entries:
        if isinstance(entry, MessageAdded):
            if entry.responses:
                instead = iter(entry.parts)
                told = [(next(instead),) if item.replaced else receipts[item.receipt] for item in entry.responses]
                parts = tuple(part for response in told for part in response)
            else:
                parts = entry.parts or receipts.get(entry.receipt, ())
            found.append((entry, parts))
    return found


@bounded
@given(choices)
@example([536870906, 14, 470, 1, 12672638, 14, 416798, 250193438, 26])  # an agent that is called in the second turn, and tells
def test_every_call_has_exactly_one_response_in_call_order(numbers: list[int]) -> None:
    s = told(numbers).story
    transcript = resolved(s)

    answered = 0
    for index, (message, parts) in enumerate(transcript):
        calls = [part.id for part in parts if isinstance(part, ToolCall)]
        if message.role == "tool":
            assert transcript[index - 1][0].role == "assistant"
            answered += 1
        if not calls:
            continue
        if index == len(transcript) - 1:
            assert s.checkpoint.turn is not None, "a turn ended with calls that nobody answered"
            continue
        reply, responses = transcript[index + 1]
        assert reply.role == "tool"
        assert [part.id for part in responses if isinstance(part, ToolCallResponse)] == calls
        assert [response.id for response in reply.responses] == calls
        assert len(responses) == len(calls)
    assert answered == sum(message.role == "tool" for message, _ in transcript)


# Something of an extension's that is begun when the end is decided, or that nobody asks about again.
@example([3566, 43813, 2])
@example([7670, 43813, 26, 6086])
# An answer that asks the user, and still waits.
@example([122166134, 14, 1189382, 62])
# Something that is begun while an answer is looked at, which becomes a message then.
@example([396885818, 14, 2726, 73, 590])
@bounded
@given(choices)
def test_a_turn_has_exactly_one_end_and_leaves_nothing_open(numbers: list[int]) -> None:
    s = told(numbers).story
    turn = ""
    open_operations: set[str] = set()
    open_requests: set[str] = set()
    asks: dict[str, str] = {}
    ended: list[str] = []
    for entry in s.entries:
        match entry:
            case TurnStarted():
                assert not turn
                turn = entry.turn
            case OperationPlanned():
                open_operations.add(entry.operation)
            case OperationStarted():
                open_operations.add(entry.operation)
            case OperationEnded() if entry.final:
                assert entry.operation in open_operations
                open_operations.discard(entry.operation)
            case EffectSettled():
                open_operations.discard(entry.operation)
            case RequestOpened():
                if isinstance(entry, AnswerRequested) and not entry.call:
                    # An answer that asks the user begins nothing else; it waits for as long as it asks.
                    asks[entry.request_id] = entry.operation
                    open_operations.add(entry.operation)
                assert entry.operation in open_operations
                open_requests.add(entry.request_id)
            case RequestClosed():
                open_requests.remove(entry.request_id)
                open_operations.discard(asks.pop(entry.request_id, ""))
            case TurnEnded():
                assert entry.turn == turn
                assert (open_operations, open_requests) == (set(), set())
                ended.append(turn)
                turn = ""
            case MessageAdded(role="tool"):
                assert (open_operations, open_requests) == (set(), set())
    assert len(set(ended)) == len(ended) == s.checkpoint.turns
    assert (s.checkpoint.turn is not None) == bool(turn)
    if s.checkpoint.turn is not None:
        assert {item.id for item in s.checkpoint.turn.operations if item.status != "ended"} == open_operations
        assert {item.request for item in s.checkpoint.turn.requests} == open_requests


@bounded
@given(choices)
def test_no_operation_is_started_twice_under_one_attempt(numbers: list[int]) -> None:
    s = told(numbers).story
    last: dict[str, int] = {}
    for entry in s.entries:
        if isinstance(entry, OperationStarted):
            assert entry.attempt == last.get(entry.operation, 0) + 1
            last[entry.operation] = entry.attempt


def _says_not_happened(entry: Entry) -> bool:
    """Whether a tool's reconcile, or a person, knew that an attempt had no effect."""
    if isinstance(entry, OperationEnded):
        return entry.failure is not None and entry.failure.code == "not_done"
    return isinstance(entry, RequestClosed) and entry.decision == "retry"


@bounded
@given(choices)
def test_an_external_call_is_only_started_again_after_somebody_said_that_it_had_not_happened(numbers: list[int]) -> None:
    s = told(numbers).story
    external: set[str] = set()
    cleared: set[str] = set()
    for entry in s.entries:
        match entry:
            case OperationPlanned() if entry.plan.effect == "external":
                external.add(entry.operation)
            case OperationEnded() | RequestClosed() if _says_not_happened(entry):
                cleared.add(entry.operation)
            case OperationStarted():
                if entry.plan is not None and entry.plan.effect == "external":
                    external.add(entry.operation)
                if entry.attempt > 1 and entry.operation in external:
                    assert entry.operation in cleared
                cleared.discard(entry.operation)


@bounded
@example([2, 829946, 39470, 230])
@given(choices)
def test_only_a_call_that_never_started_is_said_not_to_have_been_executed(numbers: list[int]) -> None:
    s = told(numbers).story
    cut_off: set[str] = set()
    for entry in s.entries:
        if isinstance(entry, OperationStarted):
            cut_off.add(entry.operation)
        elif _says_not_happened(entry) or (isinstance(entry, OperationEnded) and entry.failure and entry.failure.code == "child_lost"):
            # An agent is called by an errand, which may find that there is nobody to begin.
            cut_off.discard(entry.operation)
        if isinstance(entry, OperationEnded) and entry.operation in cut_off and entry.final and entry.parts:
            response = entry.parts[0]
            assert not (isinstance(response, ToolCallResponse) and str(response.response).startswith(story.NOT_EXECUTED))


@bounded
@given(choices)
def test_an_open_approval_holds_its_batch_and_a_model_never_runs_beside_its_tools(numbers: list[int]) -> None:
    driver = Driver()
    for number in numbers:
        driver.step(number)
        turn = driver.story.checkpoint.turn
        if turn is None:
            continue
        approvals = [item for item in turn.requests if item.status != "asking"]
        assert not (approvals and startable(turn))
        running = {item.plan.kind for item in due(driver.story.checkpoint)}
        assert len(running) <= 1
        alone = [item for item in turn.tools if item.plan.exclusive and item.status in ("started", "unknown")]
        assert not alone or len(due(driver.story.checkpoint)) == 1


# Nobody takes a halted session up.
@pytest.mark.spec("S0-089")
@example([1389158, 134, 97])
@example([6014, 14, 82868389])
@bounded
@given(choices)
def test_the_phase_is_always_one_of_six_and_a_claim_leaves_nothing_of_an_older_fence_running(numbers: list[int]) -> None:
    driver = told(numbers)
    assert driver.phases <= PHASES

    s = driver.story
    turn = s.checkpoint.turn
    assert s.phase != "waiting" or (turn is not None and (turn.requests or turn.awaiting)), "nothing waits where nothing is asked"
    s.do(s.claim())
    assert phase(s.checkpoint) in PHASES
    assert s.phase == "halted" or all(item.status == "unknown" for item in due(s.checkpoint))


@pytest.mark.spec("S0-167", "S0-168", "S0-281")
@example([2822, 578869])
@bounded
@given(choices)
def test_recovered_is_written_on_every_takeover_in_mid_turn_and_nothing_of_the_old_holder_follows_it(numbers: list[int]) -> None:
    s = told(numbers).story
    # Nobody takes a halted session up, whatever it was doing.
    goes_on = s.checkpoint.turn is not None and s.phase != "halted"

    written = s.do(s.claim())

    places = [index for index, entry in enumerate(written) if isinstance(entry, Recovered)]
    assert len(places) == goes_on
    behind = written[places[0] + 1 :] if places else []
    assert all(isinstance(entry, RequestOpened) for entry in behind)


@bounded
@given(choices)
def test_after_an_interrupt_everything_is_closed(numbers: list[int]) -> None:
    s = told(numbers).story
    if s.phase in ("idle", "archived", "halted"):
        return

    written = s.do(Interrupt(at=s.now()))

    if isinstance(written[-1], TurnEnding):
        written = s.do(EndTurn(ending=written[-1], at=s.now()))
    assert written[-1].kind == "turn_aborted"
    assert s.phase == "idle"
    assert due(s.checkpoint) == ()
    ids = [call.id for message, parts in resolved(s) for call in parts if isinstance(call, ToolCall)]
    responses = [part.id for message, parts in resolved(s) for part in parts if isinstance(part, ToolCallResponse)]
    assert responses == ids
    assert fold(s.entries) == s.checkpoint


@bounded
@given(choices)
def test_the_counters_add_up(numbers: list[int]) -> None:
    s = told(numbers).story
    of_turns = [entry for entry in s.entries if isinstance(entry, TurnEnded)]
    running = s.checkpoint.turn
    assert s.checkpoint.turns == len(of_turns)
    # What a child spent that nobody waited for is the session's, and no turn's.
    behind = [entry.spent for entry in s.entries if isinstance(entry, ChildEnded)]
    spent = [*(entry.usage for entry in of_turns), *behind, *([running.usage] if running else [])]
    assert s.checkpoint.usage.calls == sum(usage.calls for usage in spent)
    known = sum(usage.total_tokens for usage in spent)
    assert s.checkpoint.usage.total_tokens == known
    for entry in of_turns:
        assert entry.steps >= 0
        assert math.isfinite(entry.usage.total_tokens)


@bounded
@given(choices)
def test_the_ledger_is_what_the_checkpoint_counts(numbers: list[int]) -> None:
    s = told(numbers).story

    known = Spending.of(model_calls(s.entries)).known
    for entry in s.entries:
        spent = getattr(entry, "spent", None)
        if isinstance(spent, Totals):
            # What a child used stands in its own ledger.
            known = known.and_of(spent)
    assert known == s.checkpoint.usage


@bounded
@given(choices)
def test_nothing_is_called_beyond_a_limit_and_no_turn_uses_more_than_it_drew_and_one_call(numbers: list[int]) -> None:
    s = told(numbers).story
    before = Checkpoint()
    for entry in s.entries:
        turn, after = before.turn, evolve(before, entry)
        if isinstance(entry, OperationStarted) and turn is not None:
            used = plus(spent_by(turn), turn.carried or Amounts())
            if entry.request is not None:
                assert used.model_calls < (turn.limits.model_calls or math.inf)
                assert used.tokens < (turn.limits.tokens or math.inf)
                assert used.ms < 1000 * (turn.limits.seconds or math.inf)
                assert turn.step < (turn.limits.steps or 50)
                if turn.session is not None:
                    assert before.usage.total_tokens < (turn.session.tokens or math.inf)
                if turn.allowance is not None and s.pool is not None:
                    drawn, taken = drawn_and_spent(turn, turn.allowance)
                    assert s.pool.limits.tokens is None or taken.tokens < drawn.tokens
                    assert s.pool.limits.model_calls is None or taken.model_calls < drawn.model_calls
            elif entry.attempt == 1:
                assert turn.limits.tool_calls is None or used.tool_calls <= turn.limits.tool_calls
        before = after
    assert before == s.checkpoint
    if s.pool is not None:
        granted = [entry.drawn for entry in s.entries if isinstance(entry, AllowanceGranted)]
        assert s.pool.drawn == functools.reduce(plus, granted, Amounts())
        assert all(rest >= 0 for rest in left(s.pool).values())


@bounded
@given(choices)
def test_time_runs_while_something_is_in_flight_and_never_backwards(numbers: list[int]) -> None:
    s = told(numbers).story
    before, ran = Checkpoint(), 0
    for entry in s.entries:
        assert 0 <= elapsed(before, entry) <= max(0, entry.at - before.at)
        before = evolve(before, entry)
        now = before.turn.ran if before.turn is not None else 0
        assert now >= ran or now == 0
        ran = now


@bounded
@given(choices)
def test_every_entry_can_be_sealed_and_opened(numbers: list[int]) -> None:
    s = told(numbers).story
    chain = journal.GENESIS
    for entry in s.entries:
        sealed = journal.seal(entry, chain=chain, session_id="s1", salt=b"0123456789abcdef")
        assert journal.open_entry(sealed) == entry
        chain = sealed.chain


@bounded
@given(choices)
def test_the_same_commands_are_the_same_entries(numbers: list[int]) -> None:
    first, second = told(numbers).story, told(numbers).story

    assert first.entries == second.entries
    assert [entries.encode(entry) for entry in first.entries] == [entries.encode(entry) for entry in second.entries]


def test_the_random_driver_reaches_every_kind_of_entry_that_a_turn_can_write() -> None:
    """Else the properties above would hold of nothing."""
    seen: set[str] = set()
    phases: set[str] = set()
    numbers = random.Random(7)
    for round_ in range(400):
        # In every third history most steps are claims, so that crash loops are among them.
        every = 12 if round_ % 3 == 0 else 1
        driver = told([numbers.randrange(2**32) // every * (every if numbers.random() < 0.7 else 1) for _ in range(60)])
        phases |= driver.phases
        for entry in driver.story.entries:
            seen.add(entry.kind)
            if isinstance(entry, OperationEnded) and entry.failure:
                seen.add(entry.failure.code)

    assert phases == PHASES
    assert {"restart", "crash_loop", "request_changed", "not_done", "limit", "denied", "interrupted", "finished", "unanswered"} <= seen
    assert set(entries.KINDS) - seen == {
        *("submission_refused", "rebased", "rewritten", "forked", "redacted", "foreign"),
    }, "no turn writes them"


def test_evolve_knows_every_entry_that_can_be_decoded() -> None:
    shapes = {shape for kind in entries.KINDS for shape in entries.shapes(kind)}

    assert shapes == set(evolving._EVOLVE)
    assert all(issubclass(shape, msgspec.Struct) for shape in shapes)
