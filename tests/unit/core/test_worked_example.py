"""The worked example of the design (§9): one question in sixteen entries, and its variants after a SIGKILL while the tool runs."""

from __future__ import annotations

import pytest
import story
from story import AFTER_RESTART, Story, call, line, planned

from perdure.core import checkpoint as checkpoints
from perdure.core.commands import Answer, PostMessage
from perdure.core.entries import (
    ApprovalRequested,
    MessageAdded,
    OperationEnded,
    OperationStarted,
    RequestClosed,
    TurnCompleted,
    TurnStarted,
)
from perdure.core.ids import request_id
from perdure.core.messages import Text
from perdure.core.phase import due, startable
from perdure.core.records import EffectMatch, Limits
from perdure.core.reports import Accept, Claimed, Finish

REFUND = call("c1", "refund", order="A-1", cents=500)
POST = PostMessage(parts=(Text(content="Refund A-1"),), submission="mail-981", actor="ann")


def _to_c2(**plan: object) -> Story:
    """Up to the question whether the refund is allowed."""
    s = Story("ticket-42")
    s.do(Accept(post=POST, agent="support", definition="d", limits=Limits(), at=s.now()))
    s.steps()
    s.model_ends(REFUND)
    s.plans(planned(REFUND, verdict="ask", deadline=90_000, **plan))
    return s


def _to_c3(**plan: object) -> Story:
    """Up to the tool's start by the second holder."""
    s = _to_c2(**plan)
    s.do(s.answer("t2.0.1", "approve"))
    s.do(s.claim(takeover=False))
    s.starts()
    return s


def _from_c4(s: Story) -> None:
    s.steps("with the result")
    s.model_ends(Text(content="Refunded."))
    s.do(Finish(at=s.now()))


def test_one_question_is_sixteen_entries() -> None:
    s = _to_c3()
    s.tool_ends("t2.0.1", response="refunded")
    _from_c4(s)

    assert [line(entry) for entry in s.entries] == [
        "session_created",
        "turn_started t2",
        "message user turn",
        "operation_started t2.0.0#1",
        "operation_ended t2.0.0#1 succeeded",
        "message assistant → 5",
        "operation_planned t2.0.1 refund",
        "request_opened approval t2.0.1",
        "request_closed t2.0.1 approve by answer",
        "operation_started t2.0.1#1",
        "operation_ended t2.0.1#1 succeeded 'refunded'",
        "message tool → 11",
        "operation_started t2.1.0#1",
        "operation_ended t2.1.0#1 succeeded",
        "message assistant → 14",
        "turn_completed t2",
    ]
    assert [entry.seq for entry in s.entries] == list(range(1, 17))
    assert [entry.number for entry in s.entries] == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4]
    assert s.folds()


def test_the_entries_of_the_example_say_who_what_and_under_which_fence() -> None:
    s = _to_c3()
    s.tool_ends("t2.0.1", response="refunded")
    _from_c4(s)
    entries = {entry.seq: entry for entry in s.entries}

    turn, said, asked, closed = entries[2], entries[3], entries[8], entries[9]
    assert isinstance(turn, TurnStarted)
    assert (turn.turn, turn.submission, turn.agent) == ("t2", "mail-981", "support")
    assert isinstance(said, MessageAdded)
    assert (said.submission, said.author, said.parts) == ("mail-981", "ann", POST.parts)
    assert isinstance(asked, ApprovalRequested)
    assert (asked.name, asked.call, asked.deadline, asked.default) == ("refund", "c1", 90_000, "deny")
    assert asked.request_id == request_id("approval", "t2.0.1", 1, asked.arguments)
    assert isinstance(closed, RequestClosed)
    assert (closed.request_id, closed.by, closed.actor, closed.submission) == (asked.request_id, "answer", "ann", "a1")
    started = [entry for entry in s.entries if isinstance(entry, OperationStarted)]
    assert [(entry.operation, entry.fence, entry.plan is not None, entry.request is not None) for entry in started] == [
        ("t2.0.0", 1, True, True),
        ("t2.0.1", 2, False, False),
        ("t2.1.0", 2, True, True),
    ]
    completed = entries[16]
    assert isinstance(completed, TurnCompleted)
    assert (completed.output, completed.steps, completed.tool_calls, completed.submission) == (15, 2, 1, "mail-981")
    assert (completed.usage.calls, completed.usage.input_tokens, completed.usage.unknown_calls) == (2, 20, 0)


def test_a_session_that_waits_for_a_person_needs_nobody() -> None:
    s = _to_c2()

    assert s.phase == "waiting"
    assert due(s.checkpoint) == ()
    # Killed while parked between C2 and C3: no holder, nothing in flight, no entry.
    assert s.told(s.claim(takeover=False)) == []


def test_killed_while_the_tool_ran_its_outcome_is_reported_as_unknown_and_the_turn_goes_on() -> None:
    s = _to_c3()

    s.do(Claimed(fence=3, at=s.now()))
    s.fence = 3
    _from_c4(s)

    assert [line(entry) for entry in s.entries[10:]] == [
        f"operation_ended t2.0.1#1 uncertain (restart) !{AFTER_RESTART!r}",
        "message tool → 11",
        "recovered t2 fence 3 t2.0.1#1=uncertain",
        "operation_started t2.1.0#1",
        "operation_ended t2.1.0#1 succeeded",
        "message assistant → 15",
        "turn_completed t2",
    ]


def test_killed_while_the_tool_ran_it_tells_what_became_of_it() -> None:
    s = _to_c3(reconcile=True)

    s.do(s.claim())
    assert [(item.id, item.status) for item in due(s.checkpoint)] == [("t2.0.1", "unknown")]
    s.do(s.reconciled("t2.0.1", "done"))
    s.steps("with the result")

    assert [line(entry) for entry in s.entries[10:]] == [
        "recovered t2 fence 3 t2.0.1#1=open",
        "operation_ended t2.0.1#1 succeeded 'found'",
        "message tool → 12",
        "operation_started t2.1.0#1",
    ]


def test_killed_while_the_tool_ran_a_person_is_asked_and_the_tool_message_refers_to_what_they_said() -> None:
    s = _to_c3(ask_when_uncertain=True)

    s.do(s.claim())
    assert s.phase == "waiting"
    s.do(s.answer("t2.0.1", "settle", result="refunded, see the bank"))

    assert [line(entry) for entry in s.entries[10:]] == [
        "operation_ended t2.0.1#1 uncertain… (restart)",
        "recovered t2 fence 3 t2.0.1#1=uncertain",
        "request_opened uncertain t2.0.1",
        "request_closed t2.0.1 settle by answer",
        "effect_settled t2.0.1#1 succeeded ← 11 'refunded, see the bank'",
        "message tool → 15",
    ]


def test_the_same_refund_asked_for_again_is_one_request_that_shows_the_unsettled_effect() -> None:
    s = _to_c3()
    s.do(Claimed(fence=3, at=s.now()))
    s.steps("again")
    again = call("c2", "refund", order="A-1", cents=500)
    s.model_ends(again)
    receipt = s.entries[10]
    assert isinstance(receipt, OperationEnded)
    match = EffectMatch(operation="t2.0.1", seq=receipt.seq, state="uncertain")

    written = s.plans(planned(again, verdict="ask", match=match, deadline=99_000))

    assert [line(entry) for entry in written] == ["operation_planned t2.1.1 refund", "request_opened approval t2.1.1"]
    asked = written[1]
    assert isinstance(asked, ApprovalRequested)
    assert asked.match == match


@pytest.mark.parametrize("make", [_to_c2, _to_c3])
def test_the_checkpoint_of_the_example_is_small(make: object) -> None:
    s = _to_c2() if make is _to_c2 else _to_c3()

    assert len(checkpoints.encode(s.checkpoint)) <= 8 * 1024


def test_an_answer_by_another_process_makes_the_call_due_and_nothing_else() -> None:
    s = _to_c2()

    written = s.do(Answer(request_id=s.operation("t2.0.1").request, decision="approve", at=s.now()))

    assert [entry.kind for entry in written] == ["request_closed"]
    assert s.phase == "tools"
    assert [item.id for item in startable(s.checkpoint.turn)] == ["t2.0.1"]  # type: ignore[arg-type]
    assert story.lines(s.starts()) == ["operation_started t2.0.1#1"]
