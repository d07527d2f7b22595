"""The instruments themselves: time that only a test moves, stores that fail where they are told to, and checks that notice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, ScriptedModel, Text
from perdure.core.errors import StoreBroken
from perdure.core.messages import Message, ToolCall, ToolCallResponse
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.testing import Fault, FaultStore, ProcessDied, VirtualClock, find_problems, invalid_transcript
from perdure.testing.faults import Call

AGENT = Agent("a", model=ScriptedModel(["Hello.", "Again."]))


async def test_time_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock()
    woken: list[int] = []

    async def sleep(name: int, at: int) -> None:
        await clock.sleep_until(clock.now() + at)
        woken.append(name)

    sleepers = [asyncio.create_task(sleep(name, at)) for name, at in ((1, 50), (2, 20), (3, 50))]
    for _ in range(20):
        await asyncio.sleep(0)
    assert woken == []
    clock.advance(20)
    await asyncio.wait(sleepers, return_when=asyncio.FIRST_COMPLETED)
    assert woken == [2]
    clock.advance(1_000)
    await asyncio.gather(*sleepers)
    assert woken == [2, 1, 3]


async def test_automatic_time_jumps_to_the_next_sleeper_and_no_further() -> None:
    clock = VirtualClock(auto=True)
    began = clock.now()
    seen: list[int] = []

    async def sleep(days: int) -> None:
        await clock.sleep_until(began + days * 86_400_000)
        seen.append((clock.now() - began) // 86_400_000)

    await asyncio.gather(sleep(3), sleep(1), sleep(2))
    assert seen == [1, 2, 3]


async def test_automatic_time_waits_for_work_that_the_loop_does_not_know_of() -> None:
    clock = VirtualClock(auto=True)
    began = clock.now()
    sleeper = asyncio.create_task(clock.sleep_until(began + 1))
    with clock.busy():
        for _ in range(50):
            await asyncio.sleep(0)
        assert clock.now() == began
    await sleeper
    assert clock.now() == began + 1


def test_a_fault_store_is_a_store() -> None:
    assert isinstance(FaultStore(MemoryStore()), Store)


async def test_a_store_that_fails_before_did_nothing_and_one_that_fails_after_did_it() -> None:
    for when, there in (("before", False), ("after", True)):
        inner = MemoryStore()
        store = FaultStore(inner, [Fault(kind="send", when=when)])  # type: ignore[arg-type]
        async with perdure.open(store) as runtime:
            with pytest.raises(StoreBroken, match=when):
                await runtime.sessions.send("s", "hello", submission="m1")
            assert (await inner.load("s") is not None) is there
            sent = await runtime.sessions.send("s", "hello", submission="m1")
            assert sent.duplicate is there


async def test_after_its_death_a_process_does_nothing_any_more() -> None:
    inner = MemoryStore()
    store = FaultStore(inner.peer(), [Fault(kind="commit", nth=2, when="before", action="die")])
    runtime = perdure.open(store)
    await runtime.__aenter__()
    with pytest.raises(ProcessDied):
        await runtime.run(AGENT, "hello", session="s", submission="m1")
    with pytest.raises(ProcessDied):
        await runtime.sessions.info("s")
    assert store.dead
    await runtime.close()

    async with perdure.open(inner.peer()) as second:
        result = await second.run(AGENT, "hello", session="s", submission="m1")
        assert result.output == "Hello."
        assert await find_problems(second.store, "s") == []


async def test_a_caller_whose_commit_was_done_but_not_answered_may_ask_again_in_the_same_process() -> None:
    store = FaultStore(MemoryStore(), [Fault(kind="commit", nth=2, when="after")])
    async with perdure.open(store) as runtime:
        with pytest.raises(StoreBroken):
            await runtime.run(AGENT, "hello", session="s", submission="m1")
        assert (await runtime.run(AGENT, "hello", session="s", submission="m1")).output == "Hello."
        assert await find_problems(store, "s") == []


async def test_a_fault_store_remembers_the_commits_that_were_taken() -> None:
    moved = False

    async def gate(call: Call, when: str) -> None:
        nonlocal moved
        if call.kind == "commit" and when == "before" and call.given.release and not moved:
            # The end of the turn comes too late by one message, and is refused.
            moved = True
            await runtime.sessions.note("s", "look here", submission="m2")

    store = FaultStore(MemoryStore(), gate=gate)
    async with perdure.open(store) as runtime:
        await runtime.run(AGENT, "hello", session="s", submission="m1")
    assert [[entry.kind for entry in commit.entries] for commit in store.commits] == [
        ["turn_started", "message", "operation_started"],
        ["operation_ended", "message", "note_added", "turn_completed"],
    ]
    assert len([call for call in store.calls if call.kind == "commit"]) == 3
    assert store.count("send") == 2


async def test_two_commits_and_a_send_are_all_that_a_plain_question_takes() -> None:
    store = FaultStore(MemoryStore())
    async with perdure.open(store) as runtime:
        await runtime.run(AGENT, "hello", session="s", submission="m1")
        assert (store.count("commit"), store.count("send")) == (2, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda session: session.journal.pop(1), "the entry is missing"),
        (
            lambda session: session.journal.__setitem__(2, msgspec.structs.replace(session.journal[2], body=b"{}")),
            "is not what the digest says",
        ),
        (lambda session: session.journal.__setitem__(2, msgspec.structs.replace(session.journal[2], at=5)), "the hash chain breaks"),
        (lambda session: setattr(session, "row", msgspec.structs.replace(session.row, status="waiting")), "the status is waiting"),
        (lambda session: setattr(session, "row", msgspec.structs.replace(session.row, wake_at=7)), "which nothing explains"),
        (
            lambda session: setattr(
                session, "row", msgspec.structs.replace(session.row, checkpoint=session.row.checkpoint.replace(b'"turns":1', b'"turns":2'))
            ),
            "the journal adds up to another checkpoint",
        ),
        (
            lambda session: session.inbox.__setitem__("m1", msgspec.structs.replace(session.inbox["m1"], settled_seq=None)),
            "is settled by entry None",
        ),
    ],
)
async def test_the_checks_notice_what_was_altered(change: Any, words: str) -> None:
    store = MemoryStore()
    async with perdure.open(store.peer()) as runtime:
        await runtime.run(AGENT, "hello", session="s", submission="m1")
    await store.open()
    assert await find_problems(store, "s") == []

    change(store._content.by_id["s"])

    assert any(words in problem for problem in await find_problems(store, "s"))


def test_a_transcript_that_no_provider_would_take_is_told() -> None:
    question = Message(role="user", parts=(Text("hi"),), position=0)
    asks = Message(role="assistant", parts=(ToolCall(name="t", arguments={}, id="c"),), position=1)
    told = Message(role="tool", parts=(ToolCallResponse(id="c", name="t", response=1),), position=2)
    answer = Message(role="assistant", parts=(Text("yes"),), position=3)
    at = msgspec.structs.replace

    assert invalid_transcript([question, asks, told, answer]) == []
    assert "have no response" in invalid_transcript([question, asks, at(answer, position=2)])[0]
    assert "asks for calls" in invalid_transcript([question, asks])[0]
    assert invalid_transcript([question, asks], complete=False) == []
    assert "responds to ['c']" in invalid_transcript([question, at(told, position=1)])[0]
    assert "an answer to nobody" in invalid_transcript([question, at(answer, position=1), at(answer, position=2)])[0]


def test_a_fault_that_no_store_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no operation 'comit'"):
        Fault(kind="comit")
    with pytest.raises(ValueError, match="count from 1"):
        replace(Fault(), nth=0)


async def test_the_examples_in_the_docs_run_as_printed() -> None:
    page = (Path(__file__).parents[3] / "docs" / "testing.md").read_text()
    for name in ("test_a_refund_waits_for_a_person_and_is_paid_as_approved", "test_a_refund_survives_every_death"):
        names: dict[str, Any] = {"__name__": "example"}
        block = next(block for block in page.split("```python\n")[1:] if name in block).split("```")[0]
        exec(compile(block, "docs/testing.md", "exec", dont_inherit=True), names)
        await names[name]()
