"""Long results: models see an excerpt from the start, people see all of it, and a built-in tool brings any part back."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, ModelRequest, OperationEnded, Reply, ToolCall, ToolCallResponse, tool
from perdure.testing.checks import find_problems

from .acting import Place, counting

LONG = "".join(f"{number:06}\n" for number in range(5_000))


@tool(effect="pure")
async def fetch(lines: int) -> str:
    """Fetch some lines."""
    return LONG[: 7 * lines]


def asks(identity: str, name: str, **arguments: Any) -> Reply:
    return Reply(tool_calls=[ToolCall(name, arguments, identity)])


def responses(request: ModelRequest) -> dict[str, Any]:
    return {part.id: part.response for message in request.messages for part in message.parts if isinstance(part, ToolCallResponse)}


async def test_a_long_result_is_an_excerpt_for_the_model_and_whole_for_people(place: Place) -> None:
    model, asked = counting(asks("c-1", "fetch", lines=5_000), asks("c-2", "fetch", lines=10), "done")
    async with place.process() as process:
        result = await process.run(Agent("helper", model=model, tools=[fetch]), "go", session="s")
        assert result.output == "done"
        history = await process.sessions.history("s")
        assert [part.response for part in history[2].parts if isinstance(part, ToolCallResponse)] == [LONG]
        assert await find_problems(process.store, "s") == []
    shown = responses(asked[2])
    assert len(shown["c-1"]) < 3_300
    assert shown["c-1"].startswith(LONG[:2_000])
    assert shown["c-1"].endswith(LONG[-1_000:])
    assert shown["c-2"] == LONG[:70]


async def test_any_part_of_an_archived_result_comes_back_after_a_restart_too(place: Place) -> None:
    model, asked = counting(
        asks("c-1", "fetch", lines=5_000),
        "one",
        Reply(tool_calls=[ToolCall("read_result", {"handle": "3.0", "offset": 7_000, "length": 14}, "c-2")]),
        asks("c-3", "read_result", handle="3.0", offset=30_000),
        "two",
    )
    agent = Agent("helper", model=model, tools=[fetch])
    async with place.process() as process:
        await process.run(agent, "go", session="s")
    async with place.process() as process:
        await process.run(agent, "and the middle?", session="s")
        assert await find_problems(process.store, "s") == []
    shown = responses(asked[4])
    assert shown["c-1"] == responses(asked[1])["c-1"]
    assert shown["c-2"] == {"text": LONG[7_000:7_014], "offset": 7_000, "end": 7_014, "total": 35_000}
    assert shown["c-3"] == {"text": LONG[30_000:], "offset": 30_000, "end": 35_000, "total": 35_000}


async def test_what_reads_results_is_never_archived_itself(place: Place) -> None:
    wide = "€" * 60_000

    @tool(effect="pure")
    async def wander() -> str:
        """Wander."""
        return wide

    model, asked = counting(asks("c-1", "wander"), asks("c-2", "read_result", handle="3.0", offset=0, length=1_000_000), "done")
    agent = Agent("helper", model=model, tools=[wander], archive=4_000)
    async with place.process() as process:
        await process.run(agent, "go", session="s")
        receipts = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded)]
        assert [entry.archived for entry in receipts] == [False, True, False, False, False]
    assert responses(asked[2])["c-2"]["text"] == wide[:10_000]


@pytest.mark.parametrize("handle", ["9.0", "3.1", "2.0", "1.0", "0.0", "9" * 30 + ".0", "nonsense"])
async def test_a_handle_that_names_no_result_is_an_error_that_the_model_reads(place: Place, handle: str) -> None:
    model, asked = counting(asks("c-1", "fetch", lines=5_000), asks("c-2", "read_result", handle=handle), "done")
    async with place.process() as process:
        await process.run(Agent("helper", model=model, tools=[fetch]), "go", session="s")
    assert responses(asked[2])["c-2"].startswith(f"there is no result '{handle}'")


async def test_arguments_that_dont_fit_are_an_error_that_the_model_reads(place: Place) -> None:
    model, asked = counting(asks("c-1", "read_result", handle="3.0", offset=-1), "done")
    async with place.process() as process:
        await process.run(Agent("helper", model=model, tools=[fetch]), "go", session="s")
    assert "offset" in responses(asked[1])["c-1"]


async def test_without_a_limit_every_result_is_shown_whole_and_nothing_reads_results(place: Place) -> None:
    model, asked = counting(asks("c-1", "fetch", lines=5_000), "done")
    async with place.process() as process:
        await process.run(Agent("helper", model=model, tools=[fetch], archive=None), "go", session="s")
    assert responses(asked[1])["c-1"] == LONG
    assert [spec.name for spec in asked[1].tools] == ["fetch"]


async def test_another_limit_changes_nothing_of_what_was_shown_before(place: Place) -> None:
    model, asked = counting(asks("c-1", "fetch", lines=5_000), "one", asks("c-2", "fetch", lines=5_000), "two")
    agent = Agent("helper", model=model, tools=[fetch])
    async with place.process() as process:
        await process.run(agent, "go", session="s")
    async with place.process() as process:
        await process.run(agent.replace(archive=None), "again", session="s")
    assert responses(asked[3])["c-1"] == responses(asked[1])["c-1"]
    assert responses(asked[3])["c-2"] == LONG


async def test_the_transcript_is_the_same_whether_results_are_archived_or_not_and_the_context_is_another(place: Place) -> None:
    checkpoints = []
    for session, archive in (("whole", None), ("cut", 20_000)):
        model, _ = counting(asks("c-1", "fetch", lines=5_000), "done")
        async with place.process() as process:
            await process.run(Agent("helper", model=model, tools=[fetch], archive=archive), "go", session=session)
            checkpoints.append(await process.sessions.checkpoint(session))
    whole, cut = checkpoints
    assert whole.revision == cut.revision
    assert whole.context != cut.context
