"""What a branch took over is another journal's, whose entries have numbers of their own: none of it is taken for what the branch did."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, FunctionModel, HookContext, Middleware, ModelRequest, ProviderRefused, Reply, TurnEnding
from perdure.models.scripted import saved

from ..interactive.acting import Place, Process
from .talking import echoing, sound, talk


class Telling:
    """A model that remembers what it is shown, and refuses whatever it is told to refuse."""

    def __init__(self) -> None:
        self.shown: list[list[str]] = []

        def answer(request: ModelRequest) -> Any:
            self.shown.append([message.text for message in request.messages])
            if request.purpose == "notes":
                return saved("what was said")
            if request.messages[-1].text.startswith(("refuse", "[note] refuse")):
                raise ProviderRefused("not that")
            return Reply(f"answer to {request.messages[-1].text}")

        self.agent = Agent("helper", model=FunctionModel(answer))


async def branch(process: Process, agent: Agent, *, cut: int = 6) -> None:
    """A session with a long past, whose messages have higher numbers than any entry of its branch soon has."""
    await talk(process, "one", "two", "three", "four", agent=agent)
    await process.sessions.fork("s", at=cut, session_id="f")


async def test_what_is_summarised_in_a_branch_is_all_that_it_took_over(place: Place) -> None:
    telling = Telling()
    async with place.process() as process:
        await branch(process, telling.agent)
        await process.sessions.compact("f", submission="c1")
        await process.recover([telling.agent], session="f")
        await talk(process, "and now?", agent=telling.agent, session="f")
        [notes, question] = telling.shown[-1]
        assert "what was said" in notes
        assert question == "and now?"
        await sound(process)


async def test_the_answer_of_another_session_is_no_answer_of_a_turn_that_gave_none(place: Place) -> None:
    telling = Telling()
    async with place.process() as process:
        await branch(process, telling.agent)
        result = await process.run(telling.agent, "refuse this", session="f", submission="m1")
        stored = await process.sessions.result("f", "m1")
        assert (result.status, result.output, result.text) == ("failed", "", "")
        assert stored == result


async def test_a_note_that_is_withdrawn_in_a_branch_takes_no_message_of_its_parent_along(place: Place) -> None:
    telling = Telling()
    async with place.process() as process:
        await branch(process, telling.agent)
        taken = [message.seq for message in await process.sessions.history("f")]
        for number in range(6):
            async with process.session("f", telling.agent) as handle:
                await handle.send("refuse it", submission=f"m{number}", notes=[f"refuse {number} {index}" for index in range(4)])
                await process.run(telling.agent, "refuse it", session="f", submission=f"last {number}")
        withdrawn = {note.seq for note in await process.sessions.entries("f", kinds=("note_added",))}
        assert withdrawn & {*taken}, "the numbers have to meet"
    async with place.process() as process:
        await talk(process, "and now?", agent=telling.agent, session="f")
        assert telling.shown[-1][:6] == [message.text for message in await process.sessions.history("s", before=6)]
        await sound(process)


async def test_code_that_ends_a_turn_is_shown_what_was_said_in_it_and_nothing_that_was_taken_over(place: Place) -> None:
    seen: list[list[str]] = []

    class Looking(Middleware):
        name = "looking"

        async def turn_end(self, ctx: HookContext, outcome: TurnEnding) -> None:
            seen.append([message.text for message in ctx.messages])

    agent = Agent("helper", model=FunctionModel(lambda request: Reply("yes")), middleware=[Looking()])
    async with place.process() as process:
        await branch(process, agent)
        await talk(process, "and now?", agent=agent, session="f")
        assert seen[-1] == ["and now?", "yes"]


@pytest.mark.parametrize("compacted", [False, True])
async def test_what_is_removed_in_a_session_is_shown_to_no_model_any_more_by_a_branch_that_was_being_worked_on(
    place: Place, compacted: bool
) -> None:
    telling = Telling()
    async with place.process() as process, place.process() as other:
        await branch(process, telling.agent)
        if compacted:
            # The branch's own notes stand for its first messages alone.
            await process.sessions.rewrite("f", (2, 6), [], submission="e1")
            await process.sessions.compact("f", submission="c1")
            await process.recover([telling.agent], session="f")
            await process.sessions.restore("f", await process.sessions.revision("s", 6))
        async with process.session("f", telling.agent):
            await process.run(telling.agent, "still here", session="f", submission="m1")
            assert "two" in telling.shown[-1]
            await other.sessions.redact("s", 2)
            await process.run(telling.agent, "and now?", session="f", submission="m2")
            assert "two" not in telling.shown[-1]
            assert telling.shown[-1][2] == "[redacted]"
        await sound(other)


async def test_a_branch_of_a_session_whose_parent_changed_without_a_redaction_is_not_read_anew(place: Place) -> None:
    async with place.process() as process:
        agent = echoing()
        await branch(process, agent)
        async with process.session("f", agent):
            await process.run(agent, "still here", session="f", submission="m1")
            await talk(process, "on and on", agent=agent)
            before, parent = len(process.faulty.calls), (await process.row()).no
            await process.run(agent, "and now?", session="f", submission="m2")
            # Whether something was removed there is asked once; nothing that was read is read again.
            asked = [call.kind for call in process.faulty.calls[before:] if call.given == parent]
            assert [kind for kind in asked if kind != "inbox"] == ["entries"]
