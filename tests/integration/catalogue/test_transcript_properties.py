"""Whatever is appended, rewritten, restored, forked, redacted, killed and reopened: a transcript is what a plain list of lists says."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Message, NothingChanged, StoreBroken, Text
from perdure.core.messages import digest_of, part_digest
from perdure.core.transcript import EMPTY, chained
from perdure.testing.faults import Fault

from ..interactive.acting import Place, Process
from .talking import echoing, line, sound

Step = tuple[int, int, int]


class Said:
    """A message of the model, shared by all transcripts that it stands in."""

    def __init__(self, owner: str, role: Any, text: str) -> None:
        self.owner, self.role, self.text, self.redacted = owner, role, text, False

    @property
    def line(self) -> str:
        return f"{self.role}: {'<text>' if self.redacted else self.text}"


def revision_of(messages: Sequence[Said]) -> str:
    revision = EMPTY
    for said in messages:
        revision = chained(revision, digest_of(said.role, [part_digest(Text(said.text))]))
    return revision


class Machine:
    """Does what the numbers say to a store, and to lists."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.now: dict[str, list[Said]] = {}
        self.seen: dict[str, list[list[Said]]] = {}
        self.counter = 0

    async def run(self, steps: Sequence[Step]) -> None:
        while steps:
            async with self.place.process() as process:
                await self.say(process, "s", 0)
                for index, (what, one, other) in enumerate(steps):
                    session = sorted(self.now)[one % len(self.now)]
                    if what == 6:
                        steps = steps[index + 1 :]
                        break
                    if what == 7:
                        await self.killed(session, one, other)
                        steps = steps[index + 1 :]
                        break
                    await (self.say, self.rewrite, self.insert, self.restore, self.fork, self.redact)[what](process, session, other)
                    await self.check(process, session)
                else:
                    steps = []
        async with self.place.process() as process:
            for session in self.now:
                await self.check(process, session)
                for messages in self.seen[session][-6:]:
                    found = await process.sessions.history(session, limit=1000, revision=revision_of(messages))
                    assert [line(message) for message in found] == [said.line for said in messages]
            await sound(process)

    def text(self) -> str:
        self.counter += 1
        return f"say {self.counter}"

    def set(self, session: str, messages: list[Said]) -> None:
        self.now[session] = messages
        self.seen.setdefault(session, []).append(messages)

    async def say(self, process: Process, session: str, other: int) -> None:
        before, text = self.now.get(session, []), self.text()
        result = await process.run(echoing(), text, session=session, owner="acme")
        answer = Said(session, "assistant", result.output)
        self.seen.setdefault(session, []).append([*before, Said(session, "user", text)])
        self.set(session, [*self.seen[session][-1], answer])

    def edit(self, session: str, other: int) -> tuple[int, int, list[Said]]:
        """A span of whole questions with their answers, and other questions instead."""
        messages = self.now[session]
        starts = [index for index, said in enumerate(messages) if said.role == "user"] + [len(messages)]
        low, high = sorted((starts[other % len(starts)], starts[other // 7 % len(starts)]))
        return low, high, [Said(session, "user", self.text()) for _ in range(other % 3)]

    async def rewrite(self, process: Process, session: str, other: int) -> None:
        start, stop, new = self.edit(session, other)
        messages = self.now[session]
        changed = [*messages[:start], *new, *messages[stop:]]
        given = [Message(role=said.role, parts=(Text(said.text),)) for said in new]
        if revision_of(changed) == revision_of(messages):
            with pytest.raises(NothingChanged):
                await process.sessions.rewrite(session, (start, stop), given)
            return
        edit = await process.sessions.rewrite(session, (start, stop), given, expected=revision_of(messages))
        assert edit.revision == revision_of(changed)
        self.set(session, changed)

    async def insert(self, process: Process, session: str, other: int) -> None:
        place = other % (len(self.now[session]) + 1)
        messages = self.now[session]
        if place < len(messages) and messages[place].role == "assistant":
            place += 1
        new = Said(session, "user", self.text())
        await process.sessions.rewrite(session, (place, place), [new.text])
        self.set(session, [*messages[:place], new, *messages[place:]])

    async def restore(self, process: Process, session: str, other: int) -> None:
        wanted = self.seen[session][other % len(self.seen[session])]
        if revision_of(wanted) == revision_of(self.now[session]):
            with pytest.raises(NothingChanged):
                await process.sessions.restore(session, revision_of(wanted))
            return
        # The latest transcript of that revision comes back: the same words, whoever said them last.
        edit = await process.sessions.restore(session, revision_of(wanted))
        assert edit.revision == revision_of(wanted)
        self.set(session, wanted)

    async def fork(self, process: Process, session: str, other: int) -> None:
        if len(self.now) >= 4:
            return
        name = f"fork-{len(self.now)}"
        cut = other % (len(self.now[session]) + 1)
        fork = await process.sessions.fork(session, at=cut, session_id=name)
        assert fork.revision == revision_of(self.now[session][:cut])
        self.set(name, self.now[session][:cut])

    async def redact(self, process: Process, session: str, other: int) -> None:
        messages = self.now[session]
        if not messages:
            return
        chosen = messages[other % len(messages)]
        if chosen.redacted or chosen.owner != session:
            with pytest.raises(NothingChanged):
                await process.sessions.redact(session, other % len(messages))
            return
        await process.sessions.redact(session, other % len(messages))
        chosen.redacted = True

    async def killed(self, session: str, one: int, other: int) -> None:
        """An edit whose process dies with its commit, before it is durable or after."""
        when: Any = ("before", "after")[one % 2]
        messages, new = self.now[session], Said(session, "user", self.text())
        async with self.place.process(Fault(kind="commit", nth=1, when=when, action="die")) as process:
            with suppress(StoreBroken):
                await process.sessions.rewrite(session, (0, 0), [new.text])
        if when == "after":
            self.set(session, [new, *messages])

    async def check(self, process: Process, session: str) -> None:
        messages = self.now[session]
        found = await process.sessions.history(session, limit=1000)
        assert [line(message) for message in found] == [said.line for said in messages]
        assert await process.sessions.revision(session) == revision_of(messages)
        for at in {0, len(messages) // 2, len(messages)}:
            assert await process.sessions.revision(session, at) == revision_of(messages[:at])


steps = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2**16), st.integers(0, 2**16)), max_size=16)
calm = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(steps)
@settings(max_examples=25, deadline=None, suppress_health_check=calm)
def test_transcripts_in_memory_are_what_lists_say(drawn: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(Machine(Place("memory", Path(directory) / "unused.db")).run(drawn))


@given(steps)
@settings(max_examples=8, deadline=None, suppress_health_check=calm)
def test_transcripts_in_a_file_are_what_lists_say(drawn: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(Machine(Place("sqlite", Path(directory) / "agents.db")).run(drawn))
