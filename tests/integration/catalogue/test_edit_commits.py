"""An edit is seen with its record or not at all, undoes nothing of anybody else's, and builds on what is stored, whatever a handle saw."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, StoreBroken
from perdure.testing.faults import Call, Fault, When

from ..interactive.acting import Place, Process, counting, eventually, until
from .talking import edit_fixture, lines, sound, talk

FOUR = ["user: hello", "assistant: answer 1", "user: follow up", "assistant: answer 2"]
EDITED = ["user: hi", *FOUR[1:]]


def edits(call: Call) -> bool:
    return call.kind == "commit" and any(entry.kind == "rewritten" for entry in call.given.entries)


async def seen(process: Process) -> tuple[Any, ...]:
    """What a reader is told of the transcript, and of its edits."""
    listed = await process.sessions.revisions("s")
    recorded = await process.sessions.entries("s", kinds=("rewritten",))
    return await lines(process), listed.head, [item.revision for item in listed], [entry.seq for entry in recorded]


@pytest.mark.spec("B-A-058", "B-A-059", "B-A-182")
async def test_an_edit_and_its_record_are_seen_from_one_moment_on_and_neither_before(place: Place) -> None:
    told: dict[str, tuple[Any, ...]] = {}

    async def gate(call: Call, when: When) -> None:
        if edits(call):
            told[when] = await seen(other)

    async with place.process() as other, place.process(gate=gate) as process:
        await edit_fixture(other)
        parent = await other.sessions.revision("s")
        edit = await process.sessions.rewrite("s", (0, 1), ["hi"])
        assert told["before"] == (FOUR, parent, [], [])
        assert told["after"] == (EDITED, edit.revision, [edit.revision], [edit.seq]) == await seen(process)


@pytest.mark.spec("B-A-024", "B-A-060", "B-A-162")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_edit_that_failed_is_made_once_by_sending_it_again_and_halts_nothing(place: Place, when: When) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        parent = await process.sessions.revision("s")
    error = StoreBroken("the disk is gone")
    async with place.process(Fault(kind="commit", when=when, error=error)) as process:
        with pytest.raises(StoreBroken) as told:
            await process.sessions.rewrite("s", (0, 1), ["hi"], expected=parent, submission="e1")
        assert told.value is error
        assert (await process.row()).status == "idle"
        assert await lines(process) == (FOUR if when == "before" else EDITED)
        edit = await process.sessions.rewrite("s", (0, 1), ["hi"], expected=parent, submission="e1")
        assert edit.duplicate == (when == "after")
        assert process.work.drivers == {}
        assert (await seen(process))[2:] == ([edit.revision], [edit.seq])
        await talk(process, "and now?")
        await sound(process)


@pytest.mark.spec("B-A-183", "B-A-184", "B-A-186")
async def test_an_edit_that_fails_while_somebody_else_writes_takes_nothing_of_theirs_back(place: Place) -> None:
    error = StoreBroken("the disk is gone")

    async def gate(call: Call, when: When) -> None:
        if edits(call) and when == "before" and call.nth == 1:
            await other.sessions.describe("s", title="theirs")
            await other.sessions.rewrite("s", (3, 4), [])
            theirs.append(await other.everything())
            raise error

    theirs: list[Any] = []
    async with place.process() as other, place.process(gate=gate) as process:
        await edit_fixture(other)
        with pytest.raises(StoreBroken) as told:
            await process.sessions.rewrite("s", (0, 1), ["hi"], submission="e1")
        assert told.value is error
        assert [await other.everything()] == theirs
        # Made again, it is made on what they left.
        await process.sessions.rewrite("s", (0, 1), ["hi"], submission="e1")
        assert await lines(other) == EDITED[:3]
        assert (await other.sessions.info("s")).title == "theirs"
        await sound(other)


@pytest.mark.spec("B-A-151", "B-A-155", "B-A-163")
async def test_an_edit_beside_an_open_handle_builds_on_what_others_stored_and_the_handle_goes_on_with_both(place: Place) -> None:
    model, asked = counting("one", "two", "three")
    agent = Agent("a", model=model)
    async with place.process() as process, place.process() as other, process.session("s", agent) as handle:
        await handle.send("hello", submission="m1")
        await until(handle)
        driver = process.work.drivers["s"]
        # given a turn and a note that came about elsewhere, behind the handle's back
        await eventually(lambda: _free(other))
        await other.run(agent, "elsewhere", session="s", submission="m2")
        await other.sessions.note("s", "it rains")
        # when somebody edits what they said, in the process of the handle
        await process.sessions.rewrite("s", (2, 3), ["from elsewhere"], expected=await other.sessions.revision("s"))
        assert await lines(process) == ["user: hello", "assistant: one", "user: from elsewhere", "assistant: two"]
        # then the next turn of the same handle begins with all of that
        await handle.send("and now?", submission="m3")
        await eventually(lambda: process.sessions.result("s", "m3"))
        told = ["hello", "one", "from elsewhere", "two", "[note] it rains", "and now?"]
        assert [message.text for message in asked[-1].messages] == told
        assert process.work.drivers["s"] is driver
        await sound(other)


async def _free(process: Process) -> bool:
    return (await process.row()).holder is None
