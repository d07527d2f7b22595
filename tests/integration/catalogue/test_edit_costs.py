"""What is done to a long transcript costs what is done: bytes in the log and operations of the store are counted, not timed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply
from perdure.models.scripted import saved
from perdure.store.sqlite import SQLiteStore
from perdure.testing import FaultStore, VirtualClock

LONG, SHORT = 2_000, 10

WRITTEN_LIMIT = 64 * 1024

PAGE = 4_096 + 24
"""A page in the log, with its header (bytes)."""


class Cost(NamedTuple):
    """Bytes in the write-ahead log, and how often the store was asked for anything."""

    written: int
    calls: int


def answer(request: ModelRequest) -> Any:
    return saved("What was said.") if request.purpose == "notes" else Reply("Yes.")


AGENT = Agent("a", model=FunctionModel(answer))


async def costs(path: Path, messages: int) -> dict[str, Cost]:
    """What each operation costs on a transcript of so many messages."""
    store = SQLiteStore(path)
    counted = FaultStore(store)
    log = path.with_name(path.name + "-wal")
    found: dict[str, Cost] = {}
    async with perdure.open(counted, clock=VirtualClock()) as runtime:
        sessions = runtime.sessions
        said = [{"role": ("user", "assistant")[number % 2], "content": f"message {number}"} for number in range(messages)]
        await sessions.import_messages("s", said, source="openai", agent="a")
        writer = store._writer
        assert writer is not None
        writer._queue.put(lambda: writer._tx.connection.pragma("wal_autocheckpoint", 0))

        async def measure(name: str, operation: Callable[[], Awaitable[Any]]) -> Any:
            written, calls = log.stat().st_size, len(counted.calls)
            answered = await operation()
            found[name] = Cost(log.stat().st_size - written, len(counted.calls) - calls)
            return answered

        async def compact() -> None:
            await sessions.compact("s", submission="c1")
            await runtime.recover([AGENT], session="s")

        # The process registers, and whatever is only done once is done.
        await runtime.run(AGENT, "first", session="s", submission="m0")
        await sessions.rewrite("s", (messages, messages), ["one more thing"])
        await measure("append", lambda: runtime.run(AGENT, "and now?", session="s", submission="m1"))
        edit = await measure("edit near the end", lambda: sessions.rewrite("s", (messages, messages + 1), ["rather this"]))
        await measure("restore", lambda: sessions.restore("s", edit.parent))
        await measure("fork", lambda: sessions.fork("s", at=messages, session_id="f"))
        await measure("compaction", compact)
        await measure("page", lambda: sessions.history("s", before=messages - 2, limit=5))
        assert (await sessions.checkpoint("s")).compactions == 1
    return found


@pytest.fixture
async def both(tmp_path: Path) -> tuple[dict[str, Cost], dict[str, Cost]]:
    return await costs(tmp_path / "short.db", SHORT), await costs(tmp_path / "long.db", LONG)


async def test_nothing_that_is_done_to_a_transcript_writes_or_asks_more_because_it_is_long(
    both: tuple[dict[str, Cost], dict[str, Cost]],
) -> None:
    short, long = both
    for name, cost in long.items():
        # On a busy machine a process may look once more at what it committed itself.
        assert cost.calls <= short[name].calls + 3, (name, short, long)
        # Whole pages are written, and a larger tree has a level more.
        assert cost.written <= short[name].written + 3 * PAGE, (name, short, long)
        assert cost.written < WRITTEN_LIMIT, (name, long)
    assert short["page"].written == long["page"].written == 0
