from __future__ import annotations

import asyncio
import logging
import sys
import threading
from typing import Any

import pytest

from perdure.core.errors import InvalidAgent
from perdure.tools import ApprovalCall, Ask, Deny, Policy, tool
from perdure.tools.policy import Allow

TOOLS = ("refund", "look", "wipe")


@tool
def refund() -> None: ...


async def decide(policy: Policy, name: str = "refund") -> Any:
    return await policy.decide(ApprovalCall(name=name, arguments={"cents": 5}, owner="acme"))


async def test_named_tools_are_asked_about_and_others_may_run() -> None:
    policy = Policy.of(["refund"], TOOLS)

    assert not policy.is_callable
    assert [policy.static(name) for name in TOOLS] == [Ask(), Allow(), Allow()]
    assert await decide(policy) == Ask()


def test_a_tool_itself_can_stand_for_its_name() -> None:
    assert Policy.of([refund], TOOLS).static("refund") == Ask()


def test_a_mapping_gives_each_tool_its_rule() -> None:
    policy = Policy.of({"refund": "ask", "look": "allow", "wipe": "deny"}, TOOLS)

    assert [policy.static(name) for name in TOOLS] == [Ask(), Allow(), Deny()]


def test_what_the_mapping_becomes_later_changes_nothing() -> None:
    rules: dict[str, Any] = {"refund": "ask"}
    policy = Policy.of(rules, TOOLS)

    rules["refund"] = "allow"

    assert policy.static("refund") == Ask()


@pytest.mark.parametrize(
    ("approve", "words"),
    [
        ("refund", "one name.*list"),
        (refund, "one name.*list"),
        (["refnud"], "'refnud', which is no tool of this agent.*refund, look, wipe"),
        ({"refnud": "ask"}, "'refnud', which is no tool"),
        ({"refund": "maybe"}, "'maybe' for 'refund'.*allow, ask, deny"),
        ({"refund": True}, "True for 'refund'"),
        ({"refund": ["ask"]}, "for 'refund'"),
        ([7], "7, which is no tool"),
        (7, "approve= is of the type int"),
        (None, "approve= is of the type NoneType"),
        (lambda: "allow", "can't be called with one argument"),
    ],
)
def test_rules_that_cannot_work_are_refused(approve: Any, words: str) -> None:
    with pytest.raises(InvalidAgent, match=words):
        Policy.of(approve, TOOLS)


@pytest.mark.parametrize(
    ("answer", "ruling"),
    [
        ("allow", Allow()),
        ("ask", Ask()),
        ("deny", Deny()),
        (Ask("big", deadline_seconds=60, default="abort"), Ask("big", 60, "abort")),
        (Deny("never"), Deny("never")),
    ],
)
async def test_a_function_decides_sync_and_async(answer: Any, ruling: Any) -> None:
    async def later(call: ApprovalCall) -> Any:
        return answer

    class Object:
        async def __call__(self, call: ApprovalCall) -> Any:
            return answer

    for function in (later, Object(), lambda call: answer):
        policy = Policy.of(function, TOOLS)
        assert policy.is_callable
        assert await decide(policy) == ruling


async def test_a_function_sees_the_call_and_runs_outside_the_event_loop() -> None:
    seen = []

    def look(call: ApprovalCall) -> Any:
        seen.append((call.name, call.arguments, call.owner, threading.current_thread() is threading.main_thread()))
        return "allow"

    await decide(Policy.of(look, TOOLS))

    assert seen == [("refund", {"cents": 5}, "acme", False)]


def leave(call: ApprovalCall) -> Any:
    sys.exit(1)


async def interrupt(call: ApprovalCall) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda call: 1 / 0, "ZeroDivisionError"),
        (lambda call: None, "TypeError"),
        (lambda call: True, "TypeError"),
        (lambda call: "yes", "TypeError"),
        (lambda call: Ask, "TypeError"),
        (lambda call: Ask(deadline_seconds=-1), "ValueError"),
        (lambda call: Ask(default="allow"), "ValueError"),  # type: ignore[arg-type]
        (lambda call: Ask(7), "TypeError"),  # type: ignore[arg-type]
        (lambda call: Deny(7), "TypeError"),  # type: ignore[arg-type]
        (leave, "ToolFault"),
        (interrupt, "ToolFault"),
    ],
)
async def test_a_function_that_fails_or_makes_no_sense_means_ask(function: Any, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "perdure.tools"):
        ruling = await decide(Policy.of(function, TOOLS))

    assert ruling == Ask(reason=f"the approval policy failed ({kind})")
    assert "the approval policy failed on refund; a person is asked" in caplog.text


async def test_cancelling_the_decision_is_no_decision() -> None:
    began = asyncio.Event()

    async def long(call: ApprovalCall) -> Any:
        began.set()
        await asyncio.Event().wait()

    deciding = asyncio.create_task(decide(Policy.of(long, TOOLS)))
    await began.wait()
    deciding.cancel()

    with pytest.raises(asyncio.CancelledError):
        await deciding


def test_the_rules_of_a_function_are_not_read_without_it() -> None:
    with pytest.raises(RuntimeError, match="await decide"):
        Policy.of(lambda call: "allow", TOOLS).static("refund")
