"""What is decided about a session that somebody archives, halts or deletes meanwhile changes nothing, and says what came first.

Every operation here has looked at the session and is about to write when the other one comes in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Limits, Message, SessionArchived, SessionHalted, SessionNotFound, StoreBroken, Text, ToolPolicy, image
from perdure.testing.faults import WRITES, Call

from ..interactive.acting import Place, Process
from ..media.pictures import png
from .talking import Payments, lines, paying, sound, talk
from .test_archive import Charging

Operation = Callable[[Process], Awaitable[Any]]

PAYMENTS = Payments()
AGENT = paying(PAYMENTS)
ANSWER = Message(role="assistant", parts=(Text("from outside"),))

NOTES: dict[str, Operation] = {
    "note": lambda process: process.sessions.note("s", "by the way"),
    "message with a note": lambda process: process.sessions.send("s", "more", notes=["by the way"]),
}
WORDS: dict[str, Operation] = {
    "run": lambda process: process.run(AGENT, "more", session="s", submission="m9"),
    "message": lambda process: process.sessions.send("s", "more"),
    "steer": lambda process: process.sessions.send("s", "more", deliver="steer"),
    "message with a picture": lambda process: process.sessions.send("s", ["more", image(png(6))]),
    "another text": lambda process: process.sessions.edit("s", "later", "other"),
    "withdrawal": lambda process: process.sessions.withdraw("s", "later"),
    "answer": lambda process: process.sessions.rewrite("s", (1, 2), [ANSWER]),
    "call": lambda process: process.sessions.call_tool("s", AGENT, "pay", {"order": "A", "cents": 5, "reference": "r"}),
    "compaction": lambda process: process.sessions.compact("s"),
    "more steps": lambda process: process.sessions.resume("s", Limits(steps=9)),
}
SETTINGS: dict[str, Operation] = {
    "title": lambda process: process.sessions.describe("s", title="another"),
    "tools": lambda process: process.sessions.restrict("s", ToolPolicy(never=("pay",))),
    "route": lambda process: process.sessions.select_route("s", "other"),
}
CONTENT: dict[str, Operation] = {
    "attachment": lambda process: process.sessions.attach("s", image(png(6))),
    "metadata": lambda process: process.sessions.describe("s", metadata={"a": "x" * 90_000}),
    "another picture": lambda process: process.sessions.edit("s", "later", ["other", image(png(6))]),
}

FIRST: dict[str, tuple[Operation, type[Exception]]] = {
    "archived": (lambda process: process.sessions.archive("s"), SessionArchived),
    "halted": (lambda process: process.sessions.halt("s"), SessionHalted),
    "deleted": (lambda process: process.sessions.delete("s"), SessionNotFound),
}


@pytest.fixture
def memory(tmp_path: Path) -> Place:
    return Place("memory", tmp_path / "agents.db")


async def everything(process: Process) -> Any:
    try:
        return await process.everything()
    except AssertionError:
        # Nothing is left of a session that was deleted, but what its tree might hold.
        return await process.store.blobs("s")


async def overtaken(place: Place, operation: Operation, first: str, *, at: tuple[str, ...] = WRITES) -> None:
    come_first, refusal = FIRST[first]
    then: list[Any] = []

    async def gate(call: Call, when: str) -> None:
        if call.kind in at and call.kind != "heartbeat" and when == "before" and not then:
            await come_first(other)
            then.append(await everything(other))

    async with place.process() as other, place.process(gate=gate) as process:
        await talk(other, "hello", agent=AGENT)
        await other.sessions.send("s", "tomorrow", submission="later", not_before=place.clock.now() + 10**6)
        with pytest.raises(refusal):
            await operation(process)
        assert [await everything(other)] == then
        assert PAYMENTS.done == []
        await sound(other)


@pytest.mark.spec("B-B-057", "B-B-059", "B-B-185")
@pytest.mark.parametrize("name", NOTES)
@pytest.mark.parametrize("first", FIRST)
async def test_a_note_that_somebody_was_faster_than_is_told_so(memory: Place, name: str, first: str) -> None:
    await overtaken(memory, NOTES[name], first)


@pytest.mark.spec("B-B-102", "B-B-013", "B-B-069")
@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("first", FIRST)
async def test_words_and_calls_that_somebody_was_faster_than_are_told_so(memory: Place, name: str, first: str) -> None:
    await overtaken(memory, WORDS[name], first)


@pytest.mark.spec("B-B-012")
@pytest.mark.parametrize("first", FIRST)
async def test_a_message_that_was_sent_and_is_about_to_be_taken_up_is_told_so(memory: Place, first: str) -> None:
    await overtaken(memory, WORDS["run"], first, at=("commit",))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("first", FIRST)
async def test_a_setting_that_somebody_was_faster_than_is_told_so(memory: Place, name: str, first: str) -> None:
    await overtaken(memory, SETTINGS[name], first)


@pytest.mark.parametrize("name", CONTENT)
async def test_content_of_a_session_that_is_deleted_meanwhile_is_kept_nowhere(place: Place, name: str) -> None:
    await overtaken(place, CONTENT[name], "deleted")


@pytest.mark.spec("B-B-187", "B-B-140")
@pytest.mark.parametrize("name", [*NOTES, "message", "steer", "message with a picture", "another text", "withdrawal", *SETTINGS, "archive"])
async def test_what_is_durable_is_answered_though_nothing_can_be_read_after_it(memory: Place, name: str) -> None:
    written: list[str] = []

    async def gate(call: Call, when: str) -> None:
        if written and when == "before":
            raise StoreBroken("it can't be reached")
        if call.kind in ("commit", "send") and when == "after":
            written.append(call.kind)

    operation = {**NOTES, **WORDS, **SETTINGS, "archive": FIRST["archived"][0]}[name]
    async with memory.process() as other, memory.process(gate=gate) as process:
        await talk(other, "hello", agent=AGENT)
        await other.sessions.send("s", "tomorrow", submission="later", not_before=memory.clock.now() + 10**6)
        sent = await operation(process)
        assert not sent.duplicate
        receipt = await other.store.submission((await other.row()).no, sent.id)
        assert receipt is not None
        await sound(other)


async def restored(process: Process) -> Any:
    return await process.sessions.restore("s", await process.sessions.revision("s", 2))


EDITS: dict[str, Operation] = {
    "rewritten": lambda process: process.sessions.rewrite("s", (2, 6), ["other"]),
    "restored": restored,
    "forked": lambda process: process.sessions.fork("s", at=2, session_id="f"),
    "forked from a fork": lambda process: process.sessions.fork("branch", at=2, replacement=["other"], session_id="f"),
    "redacted": lambda process: process.sessions.redact("s", 2),
}


@pytest.mark.parametrize("name", EDITS)
async def test_a_transcript_that_was_changed_is_answered_for_though_nothing_can_be_read_after_it(place: Place, name: str) -> None:
    written: list[str] = []

    async def gate(call: Call, when: str) -> None:
        if written and when == "before":
            raise StoreBroken("it can't be reached")
        if call.kind in ("commit", "create") and when == "after":
            written.append(call.kind)

    payments = Payments()
    async with place.process() as other, place.process(gate=gate) as process:
        await talk(other, "hello", "pay A 5 r1", agent=paying(payments))
        await other.sessions.fork("s", session_id="branch")
        edited = await EDITS[name](process)
        assert written
        assert not edited.duplicate
        if name == "redacted":
            assert edited.unreachable == ("whether anything else of the tree, or a consumer, has it can't be told: it can't be reached",)
        else:
            assert edited.effects == len(await other.sessions.effects(edited.session_id)) == 1
            there = await lines(other, edited.session_id), await other.sessions.revision(edited.session_id)
            assert (edited.count, edited.revision) == (len(there[0]), there[1])
        await sound(other)


async def test_what_a_running_session_was_sent_is_answered_though_nothing_can_be_read_after_it(memory: Place) -> None:
    charging, sent = Charging("pure"), asyncio.Event()

    async def gate(call: Call, when: str) -> None:
        if sent.is_set() and when == "before":
            raise StoreBroken("it can't be reached")
        if call.kind == "send" and when == "after":
            sent.set()

    async with memory.process() as holder, memory.process(gate=gate) as process:
        running = asyncio.create_task(holder.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()
        assert not (await process.sessions.note("s", "be quick", submission="n1")).duplicate
        charging.go_on.set()
        await running
        assert [entry.kind for entry in await holder.sessions.entries("s")].count("note_added") == 1
