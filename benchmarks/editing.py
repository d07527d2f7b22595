"""Editing, restoring, forking and compacting a session of 10,000 messages, next to a plain message to it and its answer."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from shutil import copyfile
from typing import Any

import perdure
from perdure import Agent, Compaction, FunctionModel, ModelRequest, Reply, TurnEnded
from perdure.models.scripted import saved
from perdure.store.sqlite import SQLiteStore

from .report import Figure
from .steps import history
from .workload import ENDLESS

__all__ = ["editing"]

MIDDLE_LIMIT_MS = 60.0
WRITTEN_LIMIT = 64 * 1024

COMPARED = ("edit near the end", "restore", "fork", "compaction", "page in the middle")


def _answer(request: ModelRequest) -> Any:
    return saved("What was said.") if request.purpose == "notes" else Reply("Yes.")


async def editing(directory: Path, *, rounds: int, messages: int = 10_000) -> list[Figure]:
    """What each costs as a multiple of a message and of a note of that round, and how many bytes it wrote into the log."""
    path = directory / "editing.db"
    copyfile(await history(directory, messages), path)
    log = path.with_name(path.name + "-wal")
    count = itertools.count()
    taken: dict[str, list[float]] = {}
    written: dict[str, list[float]] = {}
    model = FunctionModel(_answer, window=ENDLESS)
    agent = Agent("bench", model=model, compaction=Compaction(threshold=ENDLESS))
    store = SQLiteStore(path)
    async with perdure.open(store) as runtime, runtime.session("one", agent) as handle:
        sessions = runtime.sessions
        writer = store._writer
        assert writer is not None
        # Nothing of the log is written over, so that its length is what was written.
        writer._queue.put(lambda: writer._tx.connection.pragma("wal_autocheckpoint", 0))

        async def room_near(position: int) -> int:
            """A user's message near a position, which edits can replace."""
            place = next(m.position for m in await sessions.history("one", after=position - 1, limit=50) if m.role == "assistant")
            await sessions.rewrite("one", (place, place), ["one more thing"])
            return place

        length = (await sessions.checkpoint("one")).messages
        late = await room_near(length - 60)

        async def note() -> None:
            await sessions.note("one", f"note {next(count)}")

        async def message() -> None:
            await runtime.run(agent, f"message {next(count)}", session="one", submission=f"m-{next(count)}")

        async def compaction() -> None:
            version = (await sessions.info("one")).version
            await sessions.compact("one", submission=f"c-{next(count)}")
            assert (await _end_behind(handle, version)).reason == ""

        async def edit_late() -> None:
            await sessions.rewrite("one", (late, late + 1), [f"rather {next(count)}"])

        async def restore() -> None:
            (last,) = await sessions.revisions("one", limit=1)
            await sessions.restore("one", last.parent)

        async def fork() -> None:
            await sessions.fork("one", at=late, session_id=f"fork-{next(count)}")

        early = 5

        async def edit_early() -> None:
            await sessions.rewrite("one", (early, early + 1), [f"earlier {next(count)}"])

        async def page() -> None:
            await sessions.history("one", before=length // 2, limit=50)

        async def measure(name: str, operation: Callable[[], Awaitable[None]]) -> None:
            size, began = log.stat().st_size, time.perf_counter()
            await operation()
            taken.setdefault(name, []).append((time.perf_counter() - began) * 1000)
            written.setdefault(name, []).append(log.stat().st_size - size)

        # The edits come behind the compaction, so that the next round's summarises all there is again.
        operations = dict(zip(("note", "message", "compaction"), (note, message, compaction), strict=True))
        operations |= {"edit near the end": edit_late, "restore": restore, "fork": fork, "page in the middle": page}
        for number in range(rounds + 1):
            # Whoever holds a session reads it once.
            await message()
            for name, operation in operations.items():
                await measure(name, operation)
            if not number:
                # The first round warms up.
                taken.clear()
                written.clear()
        early = await room_near(early)
        for _ in range(max(3, rounds // 3)):
            await measure("edit of an early message", edit_early)
    figures = [_against("message", name, taken, messages, limit=5.0) for name in COMPARED]
    # A note is one commit where a message and its answer are three: the stricter yardstick.
    figures += [_against("note", name, taken, messages, limit=5.0) for name in COMPARED]
    figures += [
        Figure(name=f"the most that one writes: {name}", value=max(written[name]), unit="bytes in the log", limit=WRITTEN_LIMIT)
        for name in ("message", *COMPARED[:-1])
    ]
    middle = taken["edit of an early message"]
    figures.append(
        Figure(
            name=f"edit of message {early} of {messages:,}",
            value=statistics.median(middle),
            unit="ms",
            low=min(middle),
            high=max(middle),
            limit=MIDDLE_LIMIT_MS,
        )
    )
    return figures


async def _end_behind(handle: perdure.Session, version: int) -> TurnEnded:
    """The end of the turn that follows an entry."""
    async for event in handle.events(after=version):
        if isinstance(event, TurnEnded):
            return event
    raise AssertionError("the session was let go")


def _against(yardstick: str, name: str, taken: dict[str, list[float]], messages: int, *, limit: float | None) -> Figure:
    ratios = [value / plain for value, plain in zip(taken[name], taken[yardstick], strict=True)]
    return Figure(
        name=f"{name}, of {messages:,} messages, against a {yardstick}",
        value=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        ours=f"{statistics.median(taken[name]):.2f} ms",
        floor=f"{statistics.median(taken[yardstick]):.2f} ms",
        limit=limit,
    )
