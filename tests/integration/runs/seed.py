"""The first scenario of durable runs: the commit that holds an extraction's receipt is made, and its caller hears of an error instead."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from perdure import Agent, FunctionModel, Limits, ModelCall, ModelRequest, Reply, Result, SessionMemory, StoreBroken, StoreError, Usage
from perdure.core.checkpoint import Checkpoint
from perdure.core.checkpoint import decode as decode_checkpoint
from perdure.core.entries import Entry
from perdure.core.journal import open_entry
from perdure.core.memory import MEMORY
from perdure.core.usage import Totals
from perdure.store.base import Commit, SessionRow
from perdure.testing import FaultStore
from perdure.testing.faults import Call
from tests.integration.interactive.acting import Place, Process

SESSION, SUBMISSION, QUESTION = "order/A-1", "run-1", "Where is my order?"
ANSWER = "It arrives on Tuesday."
PHRASE = "extract durable facts that should survive context compression"
MARKER = "<Session Memory>"

FOUND = """
[
  {
    "category": "KEY_FACT",
    "content": "Order A-1 is late",
    "importance": 6
  },
  {
    "category": "key_fact",
    "content": "order A-1 IS late",
    "importance": 9
  }
]
"""


class ReceiptFailed(StoreError):
    """What the store says instead of an answer."""

    code = "session_memory_receipt_failure"


def is_receipt(commit: Commit) -> bool:
    """Whether a commit holds what an extraction came to."""
    entries = map(open_entry, commit.entries)
    return any(entry.kind == "extension_set" and getattr(entry, "extension", "") == MEMORY for entry in entries)


@dataclass
class Seed:
    """One session of one agent on one store, whichever process works on it.

    ``fails``: the receipt's commit is made, and then raises, once. ``lets_go``: the process whose commit failed can release the session.
    """

    place: Place
    workspace: Path
    asked: list[ModelRequest] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    failure: StoreError = field(default_factory=lambda: ReceiptFailed("the receipt's commit was made, and its answer was lost"))
    fails: bool = True
    lets_go: bool = False
    metadata: dict[str, Any] = field(default_factory=lambda: {"ticket": 7, "session_memory_enabled": False})

    def __post_init__(self) -> None:
        self.replies = self.replies or [
            Reply(FOUND, usage=Usage(input_tokens=12, output_tokens=3)),
            Reply(ANSWER, usage=Usage(input_tokens=20, output_tokens=5)),
        ]
        self.agent = Agent(
            "support",
            instructions="Be brief.",
            model=FunctionModel(self._answer, name="only"),
            limits=Limits(steps=1, tokens=1_000),
            memory=SessionMemory(workspace=self.workspace, min_tokens=1, min_text_messages=1),
        )

    def _answer(self, request: ModelRequest) -> Reply:
        self.asked.append(request)
        return self.replies[len(self.asked) - 1]

    @property
    def file(self) -> Path:
        found = [*self.workspace.glob(".memory/session/*/session_memory.json")]
        assert len(found) <= 1
        return found[0] if found else self.workspace / "missing"

    @property
    def document(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.file.read_bytes())
        return read

    async def _lose(self, call: Call, when: str) -> None:
        if self.fails and call.kind == "commit" and when == "after" and is_receipt(call.given):
            self.fails = False
            raise self.failure
        if call.kind == "release" and not self.lets_go and when == "before":
            raise StoreBroken("nothing can be let go")

    @asynccontextmanager
    async def process(self, gate: Callable[[Call, Any], Awaitable[None]] | None = None) -> AsyncIterator[Process]:
        async with self.place.process(gate=gate or self._lose) as process:
            yield process

    async def run(self, process: Process) -> Result:
        return await process.run(self.agent, QUESTION, session=SESSION, submission=SUBMISSION, metadata=self.metadata)

    @asynccontextmanager
    async def interrupted(self) -> AsyncIterator[tuple[Process, StoreError]]:
        """The first invocation has ended with the store's error; its process lives on, and holds the session."""
        async with self.process() as process:
            try:
                await self.run(process)
            except StoreError as error:
                yield process, error
            else:
                raise AssertionError("the run ended as if nothing had happened")

    async def expire(self, process: Process) -> None:
        """Move the end of a runner's lease into the past, and nothing else."""
        runner = next(item for item in await process.store.runners() if item.id == process.runner_id)
        await process.store.heartbeat(runner, -1)

    @asynccontextmanager
    async def resumed(self) -> AsyncIterator[tuple[Process, Result]]:
        """The second invocation, in another process that waits for nobody, has ended."""
        async with self.interrupted() as (first, _):
            await self.expire(first)
            async with self.process() as process:
                yield process, await self.run(process)


@dataclass(frozen=True)
class Stored:
    """What is stored of the session."""

    row: SessionRow
    checkpoint: Checkpoint
    entries: tuple[Entry, ...]
    calls: tuple[ModelCall, ...]

    @classmethod
    async def of(cls, process: Process) -> Stored:
        head = await process.store.load(SESSION)
        assert head is not None
        rows = await process.store.entries(head.row.no)
        calls = await process.sessions.model_calls(SESSION)
        return cls(head.row, decode_checkpoint(head.row.checkpoint), tuple(map(open_entry, rows)), tuple(calls))

    @property
    def ledger(self) -> list[tuple[str, int | None]]:
        """Every call that was sent to a model and has ended."""
        return ledger_of(self.calls)

    def all(self, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.entries if isinstance(entry, kind)]


def ledger_of(calls: Iterable[ModelCall]) -> list[tuple[str, int | None]]:
    """Calls in short: what each was for, and the tokens that its provider reported."""
    found: list[tuple[str, int | None]] = []
    for call in calls:
        totals = Totals().plus(call.usage)
        found.append((call.kind, None if totals.unknown_calls else totals.total_tokens))
    return found


def commits_of(process: Process) -> list[tuple[list[Entry], Checkpoint | None]]:
    """What a delegating store saw of every commit: its entries, and the checkpoint that it replaces the old one with."""
    store = process.store
    assert isinstance(store, FaultStore)
    given = [call.given for call in store.calls if call.kind == "commit"]
    return [
        ([open_entry(row) for row in commit.entries], None if commit.checkpoint is None else decode_checkpoint(commit.checkpoint))
        for commit in given
    ]


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
