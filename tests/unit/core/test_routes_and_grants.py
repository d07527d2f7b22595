"""Who owns the context, what of it is private, and which calls may run without asking."""

from __future__ import annotations

from typing import Any

import pytest
import story
from story import Story, call, lines, planned

from perdure.core.commands import RevokeGrant
from perdure.core.errors import LimitExceeded
from perdure.core.messages import Private, Text
from perdure.core.records import Failure
from perdure.core.reports import Finish


def answered(s: Story, group: str, *, private: bool = True) -> list[str]:
    """A turn in which a route of ``group`` answers."""
    s.says(submission=f"m{s.checkpoint.version}")
    s.steps(f"to {group} at {s.checkpoint.version}")
    parts: list[Any] = [Text(content="so"), *([Private(group=group, data=1)] if private else [])]
    told = lines(s.model_ends(*parts, group=group))
    s.do(Finish(at=s.now()))
    return told


def test_the_epoch_rises_exactly_when_an_accepted_output_of_another_group_drops_something() -> None:
    s = story.idle()
    assert not any("prefix" in line for line in answered(s, "a"))
    assert not any("prefix" in line for line in answered(s, "a"))
    number = s.checkpoint.number + 1
    assert answered(s, "b")[0] == f"prefix_changed epoch 1 private_from {number}"
    assert not any("prefix" in line for line in answered(s, "b"))
    assert answered(s, "c", private=False)[0].startswith("prefix_changed epoch 2")
    assert not any("prefix" in line for line in answered(s, "a"))
    assert s.folds()


def test_a_failed_answer_owns_nothing_and_a_fallback_goes_on_in_the_same_step() -> None:
    s = story.idle()
    answered(s, "a")
    s.says(submission="again")
    s.steps("first")
    running = s.running_model.id
    told = lines(s.model_ends(status="failed", failure=Failure(code="down"), fallback="spare"))
    assert told == [f"operation_ended {running}#1 failed (down)"]
    assert s.checkpoint.owner_group == "a"
    assert s.checkpoint.turn is not None
    assert (s.checkpoint.turn.fallback, s.phase) == ("spare", "model")
    assert lines(s.steps("second")) == [f"operation_started {running[:-1]}1#1"]


def test_a_grant_is_kept_once_and_until_it_is_revoked() -> None:
    s = story.waiting()
    s.do(s.answer("t2.0.1", "grant"))
    (grant,) = s.checkpoint.grants
    assert grant.name == "refund"
    assert lines(s.do(RevokeGrant(grant=grant.id, submission="g", at=s.now()))) == ["grant_given refund revoked"]
    assert s.checkpoint.grants == ()
    assert s.folds()


def test_a_grant_beyond_the_limit_is_refused_and_the_request_stays_open() -> None:
    s = story.unplanned(*(call(f"c{index}", n=index) for index in range(65)))
    s.plans(*(planned(call(f"c{index}", n=index), verdict="ask") for index in range(65)))
    for index in range(64):
        s.do(s.answer(f"t2.0.{index + 1}", "grant"))
    before = s.checkpoint
    with pytest.raises(LimitExceeded):
        s.do(s.answer("t2.0.65", "grant"))
    assert s.checkpoint == before
