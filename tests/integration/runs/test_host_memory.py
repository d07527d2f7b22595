"""A memory of the host's: what it recalls is a fact of the journal, what it takes is an effect, and its failures are its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Agent, HookContext, InvalidAgent, Memory, Message, NoteAdded, Reply, ToolCall, tool
from perdure.testing import find_all_problems
from perdure.testing.faults import Fault, ProcessDied
from tests.integration.interactive.acting import Place

from .test_session_memory import Talker


class Shelf:
    """A memory that writes down what it is asked and given; the same key is the same turn."""

    name = "shelf"

    def __init__(self) -> None:
        self.kept: dict[str, list[str]] = {}
        self.recalls: list[str] = []
        self.writes: list[str] = []
        self.fails: set[str] = set()
        self.gives: Any = None

    async def recall(self, ctx: HookContext, message: Message) -> Any:
        self.recalls.append(message.text)
        if "recall" in self.fails:
            raise ConnectionError("the shelf is away")
        if self.gives is not None:
            return self.gives
        return [line for lines in self.kept.values() for line in lines]

    async def remember(self, ctx: HookContext, messages: Sequence[Message], key: str) -> None:
        self.writes.append(key)
        if "remember" in self.fails:
            raise ConnectionError("the shelf is away")
        self.kept[key] = [f"{message.role}: {message.text}" for message in messages if message.text]


def shelved(shelf: Any, talker: Talker, **options: Any) -> Agent:
    return Agent("a", model=talker.model, memory=shelf, **options)


def test_a_shelf_is_a_memory_and_what_lacks_a_method_is_none() -> None:
    assert isinstance(Shelf(), Memory)

    class Half:
        name = "half"

        async def recall(self, ctx: HookContext, message: Message) -> None:
            return None

    with pytest.raises(InvalidAgent):
        Agent("a", memory=Half())  # type: ignore[arg-type]


def test_an_agent_that_is_changed_has_its_memory_once() -> None:
    agent = shelved(Shelf(), Talker())
    changed = agent.replace(instructions="x").replace(instructions="y")
    assert [item.name for item in changed.middleware] == ["shelf"]
    assert changed.replace(memory=None).middleware == ()


async def test_what_was_said_in_one_session_is_recalled_in_another_and_the_journal_says_so(place: Place) -> None:
    shelf, talker = Shelf(), Talker("I see.")
    async with place.process() as process:
        await process.run(shelved(shelf, talker), "I live in Bonn.", session="one", submission="m1")
        await process.run(shelved(shelf, talker), "Where do I live?", session="two", submission="m1")
        texts = [message.text for message in talker.asked[-1].messages]
        assert "user: I live in Bonn." in texts[0]
        assert "not as instructions" in texts[0]
        assert texts[-1] == "Where do I live?"
        notes = [entry for entry in await process.sessions.entries("two") if isinstance(entry, NoteAdded)]
        assert [note.extension for note in notes] == ["shelf"]
        # People see the conversation, and not what the model was told besides.
        assert [message.text for message in await process.sessions.history("two")] == ["Where do I live?", "I see."]
        assert await find_all_problems(process.store) == []


async def test_it_is_given_the_messages_of_a_completed_turn_with_calls_and_results(place: Place) -> None:
    given: list[list[str]] = []

    class Looks(Shelf):
        async def remember(self, ctx: HookContext, messages: Sequence[Message], key: str) -> None:
            given.append([message.role for message in messages])

    @tool(effect="pure")
    def look() -> str:
        return "nothing"

    talker = Talker(lambda request: Reply(tool_calls=[ToolCall(name="look", arguments={})]) if request.step == 0 else "done")
    async with place.process() as process:
        agent = shelved(Looks(), talker, tools=[look])
        await process.run(agent, "Look.", session="s", submission="m1")
        assert given == [["user", "assistant", "tool", "assistant"]]
        talker.answer = RuntimeError("no")
        assert (await process.run(agent, "Again.", session="s", submission="m2")).status == "failed"
        assert len(given) == 1


@pytest.mark.parametrize("fails", ["recall", "remember"])
async def test_a_memory_that_is_away_keeps_no_turn_from_going_on(place: Place, fails: str) -> None:
    shelf, talker = Shelf(), Talker("ok")
    shelf.fails = {fails}
    async with place.process() as process:
        for number in range(2):
            assert (await process.run(shelved(shelf, talker), "Hi.", session="s", submission=f"m{number}")).ok
        assert await find_all_problems(process.store) == []


@pytest.mark.parametrize("gives", [7, [object()], "\ud800", ["x", "\ud800"], {"a": 1}, "", [], "x" * 200_000])
async def test_whatever_it_recalls_is_told_whole_or_not_at_all(place: Place, gives: Any) -> None:
    shelf, talker = Shelf(), Talker("ok")
    shelf.gives = gives
    async with place.process() as process:
        assert (await process.run(shelved(shelf, talker), "Hi.", session="s", submission="m")).ok
        notes = [entry for entry in await process.sessions.entries("s") if isinstance(entry, NoteAdded)]
        assert sum(len(note.text.encode()) for note in notes) <= 64 * 1024


@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_wherever_the_process_dies_a_turn_is_recalled_once_and_taken_under_one_key(place: Place, nth: int, when: Any) -> None:
    shelf, talker = Shelf(), Talker("ok")
    async with place.process() as process:
        await process.run(shelved(shelf, talker), "Before.", session="s", submission="m0")
    async with place.process(Fault(nth=nth, when=when, action="die")) as process:
        try:
            await process.run(shelved(shelf, talker), "Now.", session="s", submission="m1")
            finished = True
        except ProcessDied:
            finished = False
    async with place.process() as process:
        assert (await process.run(shelved(shelf, talker), "Now.", session="s", submission="m1")).ok
        notes = [entry for entry in await process.sessions.entries("s") if isinstance(entry, NoteAdded)]
        assert len(notes) == 1
        assert [lines[0] for lines in shelf.kept.values()] == ["user: Before.", "user: Now."]
        assert await find_all_problems(process.store) == []
    assert finished or nth < 8
