"""Whatever is said, edited, forked, redacted, compacted, archived, killed and reopened: a transcript is what a plain list of lists says,
and a model is shown what that list and the notes that stand for its beginning say.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import (
    Agent,
    CutThroughCall,
    FunctionModel,
    InvalidTranscript,
    Message,
    ModelRequest,
    NothingChanged,
    Reply,
    SessionArchived,
    StoreBroken,
    Text,
    ToolCall,
    ToolCallResponse,
    tool,
)
from perdure.core.messages import REDACTED, digest_of, part_digest
from perdure.core.transcript import EMPTY, chained
from perdure.models.scripted import saved
from perdure.runtime.shown import notes_message
from perdure.testing.faults import Fault

from ..interactive.acting import Place, Process
from .talking import line, sound

Step = tuple[int, int, int]


class Said:
    """A message, shared by all transcripts that it stands in; ``owner`` is the session whose journal holds it."""

    def __init__(self, owner: str, role: Any, part: Any) -> None:
        self.owner, self.role, self.part, self.redacted = owner, role, part, False

    @property
    def message(self) -> Message:
        return Message(role=self.role, parts=(self.part,))

    @property
    def line(self) -> str:
        """As people read it."""
        if not self.redacted:
            return line(self.message)
        match self.part:
            case ToolCall(id=call):
                return f"{self.role}: <tool_call {call}>"
            case ToolCallResponse(id=call):
                return f"{self.role}: <tool_call_response {call}>"
            case _:
                return f"{self.role}: <text>"

    @property
    def shown(self) -> str:
        """As models do."""
        match self.part:
            case ToolCall() as call:
                return f"{self.role}: {call.id} {call.name} { ({} if self.redacted else call.arguments) }"
            case ToolCallResponse() as response:
                return f"{self.role}: {response.id} {REDACTED if self.redacted else response.response}"
            case _:
                return f"{self.role}: {REDACTED if self.redacted else self.part.content}"


def seen_by_model(message: Message) -> str:
    [part] = message.parts
    return Said("", message.role, part).shown


def revision_of(messages: Sequence[Said]) -> str:
    revision = EMPTY
    for said in messages:
        revision = chained(revision, digest_of(said.role, [part_digest(said.part)]))
    return revision


class Machine:
    """Does what the numbers say to a store, and to lists."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.now: dict[str, list[Said]] = {}
        self.seen: dict[str, list[list[Said]]] = {}
        self.notes: dict[str, tuple[int, str]] = {}
        self.asked: list[tuple[ModelRequest, str]] = []
        self.redactions: set[str] = set()
        self.counter = 0
        self.helper = self.agent()

    # ------------------------------------------------------------------------------------------------------- who does it

    async def run(self, steps: Sequence[Step]) -> None:
        operations = (self.say, self.look, self.rewrite, self.insert, self.restore, self.fork, self.redact, self.compact, self.put_away)
        async with self.place.process() as process:
            await self.say(process, "s", 0, self.name())
        todo = [*steps]
        while todo:
            dies: Step | None = None
            async with self.place.process() as process, AsyncExitStack() as handles:
                while todo and dies is None:
                    what, one, other = todo.pop(0)
                    session = sorted(self.now)[one % len(self.now)]
                    if what < len(operations):
                        await operations[what](process, session, other, self.name())
                        await self.check(process, session)
                    elif what == 9:
                        break
                    elif what == 10:
                        # What a process has read of a session stays read while it holds it.
                        await handles.enter_async_context(process.session(session, self.helper))
                    else:
                        dies = what, one, other
            if dies is not None:
                _, one, other = dies
                await self.killed(operations[other % len(operations)], sorted(self.now)[one % len(self.now)], one, other)
        async with self.place.process() as process:
            for session in self.now:
                await self.check(process, session)
                for messages in self.seen[session][-6:]:
                    found = await process.sessions.history(session, limit=1000, revision=revision_of(messages))
                    assert [line(message) for message in found] == [said.line for said in messages]
                await self.say(process, session, 0, self.name())
            await sound(process)

    async def killed(self, operation: Callable[..., Awaitable[None]], session: str, one: int, other: int) -> None:
        """Something during which its process dies is done once, when it is asked for again."""
        when: Any = ("before", "after")[one // 7 % 2]
        before = self.counter
        name = self.name()
        fault = Fault(kind="write", nth=one // 14 % 6 + 1, when=when, action="die")
        state = {key: [*value] for key, value in self.now.items()}
        async with self.place.process(fault) as process:
            try:
                await operation(process, session, other, name)
            except StoreBroken:
                assert process.faulty.dead
            else:
                return
        assert {key: [*value] for key, value in self.now.items()} == state
        self.counter = before
        async with self.place.process() as process:
            await operation(process, session, other, self.name())
            await self.check(process, session)

    def name(self) -> str:
        """What the next words and submissions are told apart by."""
        self.counter += 1
        return str(self.counter)

    def agent(self) -> Agent:
        @tool(effect="pure")
        async def look(place: str) -> str:
            """Look somewhere."""
            return f"found {place}"

        def answer(request: ModelRequest) -> Reply:
            number, last = len(self.asked), request.messages[-1]
            if request.purpose == "notes":
                reply = saved(f"notes {number}")
            elif last.role == "user" and last.text.startswith("look "):
                reply = Reply(tool_calls=[ToolCall("look", {"place": last.text}, id=f"call_{number}")])
            else:
                reply = Reply(f"answer {number}")
            self.asked.append((request, f"notes {number}"))
            return reply

        return Agent("helper", model=FunctionModel(answer), tools=[look])

    def set(self, session: str, messages: list[Said]) -> None:
        self.now[session] = messages
        self.seen.setdefault(session, []).append(messages)

    def shown(self, session: str) -> list[str]:
        """What a model is shown of a session."""
        upto, notes = self.notes.get(session, (0, ""))
        beginning = [seen_by_model(notes_message(notes))] if notes else []
        return beginning + [said.shown for said in self.now[session][upto:]]

    # ---------------------------------------------------------------------------------------------------------- what is done

    async def say(self, process: Process, session: str, other: int, name: str) -> None:
        await self._turn(process, session, f"say {name}", name)

    async def look(self, process: Process, session: str, other: int, name: str) -> None:
        await self._turn(process, session, f"look {name}", name)

    async def _turn(self, process: Process, session: str, text: str, name: str) -> None:
        before = self.now.get(session, [])
        result = await process.run(self.helper, text, session=session, owner="acme", submission=name)
        assert result.ok
        found = await process.sessions.history(session, limit=1000)
        # What only the model knows are the names of its calls and its words.
        asked = self.shown(session) if before else []
        new = [Said(session, "user", Text(text))]
        if text.startswith("look"):
            call = found[len(before) + 1].tool_calls[0]
            assert (call.name, call.arguments) == ("look", {"place": text})
            new += [
                Said(session, "assistant", call),
                Said(session, "tool", ToolCallResponse(id=call.id, name="look", response=f"found {text}")),
            ]
        request, _ = self.asked[-1]
        assert [seen_by_model(message) for message in request.messages] == [*asked, *(said.shown for said in new)]
        new.append(Said(session, "assistant", Text(result.output)))
        if not before and not self.seen.get(session):
            self.seen[session] = [[]]
        for count in range(1, len(new)):
            self.seen[session].append([*before, *new[:count]])
        self.set(session, [*before, *new])

    async def rewrite(self, process: Process, session: str, other: int, name: str) -> None:
        messages = self.now[session]
        start, stop = sorted((other % (len(messages) + 1), other // 7 % (len(messages) + 1)))
        await self._rewrite(process, session, start, stop, self._written(session, other // 64 % 4, name), name)

    async def insert(self, process: Process, session: str, other: int, name: str) -> None:
        place = other % (len(self.now[session]) + 1)
        await self._rewrite(process, session, place, place, self._written(session, 1, name), name)

    def _written(self, session: str, kind: int, name: str) -> list[Said]:
        """Nothing, a question, two of them, or a whole turn with a call."""
        if kind < 3:
            return [Said(session, "user", Text(f"written {name} {index}")) for index in range(kind)]
        call = ToolCall("look", {"place": name}, id=f"written_{name}")
        return [
            Said(session, "user", Text(f"written {name}")),
            Said(session, "assistant", call),
            Said(session, "tool", ToolCallResponse(id=call.id, name="look", response=f"found {name}")),
            Said(session, "assistant", Text(f"written answer {name}")),
        ]

    async def _rewrite(self, process: Process, session: str, start: int, stop: int, new: list[Said], name: str) -> None:
        messages = self.now[session]

        def role(position: int) -> str:
            return messages[position].role if 0 <= position < len(messages) else ""

        wrong: type[Exception] | None = None
        before = new[-1].role if new else role(start - 1)
        if "tool" in (role(start), role(stop)):
            wrong = CutThroughCall
        elif role(stop) == "assistant" and before in ("", "assistant"):
            wrong = InvalidTranscript
        elif start == stop and not new:
            wrong = NothingChanged
        given = [said.message for said in new]
        if wrong is not None:
            with pytest.raises(wrong):
                await process.sessions.rewrite(session, (start, stop), given, submission=name)
            return
        changed = [*messages[:start], *new, *messages[stop:]]
        edit = await process.sessions.rewrite(session, (start, stop), given, expected=revision_of(messages), submission=name)
        assert edit.revision == revision_of(changed)
        if session in self.notes and start < self.notes[session][0]:
            del self.notes[session]
        self.set(session, changed)

    async def restore(self, process: Process, session: str, other: int, name: str) -> None:
        wanted = self.seen[session][other % len(self.seen[session])]
        wrong: type[Exception] | None = None
        if wanted and isinstance(wanted[-1].part, ToolCall):
            wrong = CutThroughCall
        elif revision_of(wanted) == revision_of(self.now[session]):
            wrong = NothingChanged
        if wrong is not None:
            with pytest.raises(wrong):
                await process.sessions.restore(session, revision_of(wanted), submission=name)
            return
        edit = await process.sessions.restore(session, revision_of(wanted), submission=name)
        assert edit.revision == revision_of(wanted)
        self.notes.pop(session, None)
        self.set(session, wanted)

    async def fork(self, process: Process, session: str, other: int, name: str) -> None:
        if len(self.now) >= 4:
            return
        messages = self.now[session]
        cut = other % (len(messages) + 1)
        branch = f"fork-{len(self.now)}"
        if cut < len(messages) and messages[cut].role == "tool":
            with pytest.raises(CutThroughCall):
                await process.sessions.fork(session, at=cut, session_id=branch)
            return
        new = self._written(branch, 1, name) if other % 3 == 0 else []
        fork = await process.sessions.fork(session, at=cut, session_id=branch, replacement=[said.message for said in new] or None)
        assert fork.revision == revision_of([*messages[:cut], *new])
        self.set(branch, [*messages[:cut], *new])

    async def redact(self, process: Process, session: str, other: int, name: str) -> None:
        messages = self.now[session]
        if not messages:
            return
        position = other % len(messages)
        chosen = messages[position]
        if (chosen.redacted or chosen.owner != session) and name not in self.redactions:
            with pytest.raises(NothingChanged):
                await process.sessions.redact(session, position, submission=name)
            return
        await process.sessions.redact(session, position, submission=name)
        self.redactions.add(name)
        chosen.redacted = True
        if session in self.notes and position < self.notes[session][0]:
            # They may say it, too.
            del self.notes[session]

    async def compact(self, process: Process, session: str, other: int, name: str) -> None:
        messages, asked = self.now[session], len(self.asked)
        await process.sessions.compact(session, submission=name)
        await process.recover([self.helper], session=session)
        while (result := await process.sessions.result(session, name)) is None:
            # Whoever holds it does it.
            await asyncio.sleep(0.001)
        assert result.status == "completed"
        if result.reason == "there is nothing to summarise":
            assert len(messages) == self.notes.get(session, (0, ""))[0]
            return
        writing = [(request, notes) for request, notes in self.asked[asked:] if request.purpose == "notes"]
        for request, _ in writing:
            assert [seen_by_model(message) for message in request.messages[:-1]] == self.shown(session)
        self.notes[session] = len(messages), (writing or self.asked)[-1][1]

    async def put_away(self, process: Process, session: str, other: int, name: str) -> None:
        """Archived, a session can be read and redacted; taken out again, it is what it was."""
        await process.sessions.archive(session, submission=f"{name}-archive")
        if (await process.sessions.info(session)).status == "archived":
            with pytest.raises(SessionArchived):
                await process.sessions.rewrite(session, (0, 0), ["in vain"])
            with pytest.raises(SessionArchived):
                await process.sessions.fork(session)
            with pytest.raises(SessionArchived):
                await process.sessions.send(session, "in vain")
            if other % 2:
                await self.redact(process, session, other, f"{name}-redact")
            await self.check(process, session)
        await process.sessions.revive(session, submission=f"{name}-revive")

    async def check(self, process: Process, session: str) -> None:
        messages = self.now[session]
        found = await process.sessions.history(session, limit=1000)
        assert [line(message) for message in found] == [said.line for said in messages]
        assert await process.sessions.revision(session) == revision_of(messages)
        for at in {0, len(messages) // 2, len(messages)}:
            assert await process.sessions.revision(session, at) == revision_of(messages[:at])


steps = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 2**16), st.integers(0, 2**16)), max_size=16)
calm = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.spec("D-009")
@given(steps)
@settings(max_examples=40, deadline=None, suppress_health_check=calm)
def test_transcripts_in_memory_are_what_lists_say(drawn: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(Machine(Place("memory", Path(directory) / "unused.db")).run(drawn))


@given(steps)
@settings(max_examples=10, deadline=None, suppress_health_check=calm)
def test_transcripts_in_a_file_are_what_lists_say(drawn: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(Machine(Place("sqlite", Path(directory) / "agents.db")).run(drawn))
