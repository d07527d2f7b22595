"""Editing, restoring and forking a transcript of 10,000 messages, next to a plain append to it."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from shutil import copyfile

import perdure

from .report import Figure
from .steps import history

__all__ = ["editing"]

MIDDLE_LIMIT_MS = 60.0
WRITTEN_LIMIT = 64 * 1024


async def editing(directory: Path, *, rounds: int, messages: int = 10_000) -> list[Figure]:
    """What each costs as a multiple of an append of that round, and how many bytes of entries it wrote."""
    path = directory / "editing.db"
    copyfile(await history(directory, messages), path)
    count = itertools.count()
    taken: dict[str, list[float]] = {}
    written: dict[str, list[float]] = {}
    async with perdure.open(str(path)) as runtime:
        sessions, store = runtime.sessions, runtime.store
        head = await store.load("one")
        assert head is not None
        no = head.row.no

        async def room_near(position: int) -> int:
            """A user's message near a position, which edits can replace."""
            place = next(m.position for m in await sessions.history("one", after=position - 1, limit=50) if m.role == "assistant")
            await sessions.rewrite("one", (place, place), ["one more thing"])
            return place

        length = (await sessions.checkpoint("one")).messages
        late = await room_near(length - 60)

        async def append() -> None:
            await sessions.note("one", f"note {next(count)}")

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
            before = (await store.load("one") or head).row.version
            began = time.perf_counter()
            await operation()
            taken.setdefault(name, []).append((time.perf_counter() - began) * 1000)
            rows = await store.entries(no, after=before)
            written.setdefault(name, []).append(sum(len(row.body or b"") for row in rows))

        operations = {"append": append, "edit near the end": edit_late, "restore": restore, "fork": fork, "page in the middle": page}
        for number in range(rounds + 1):
            for name, operation in operations.items():
                await measure(name, operation)
            if not number:
                # The first round warms up.
                taken.clear()
                written.clear()
        early = await room_near(early)
        for _ in range(max(3, rounds // 3)):
            await measure("edit of an early message", edit_early)
    plain = statistics.median(taken["append"])
    figures = []
    for name in ("edit near the end", "restore", "fork", "page in the middle"):
        ratios = [value / plain for value in taken[name]]
        figures.append(
            Figure(
                name=f"{name}, of {messages:,} messages, against an append",
                value=statistics.median(ratios),
                low=min(ratios),
                high=max(ratios),
                ours=f"{statistics.median(taken[name]):.2f} ms",
                floor=f"{plain:.2f} ms",
                limit=5.0,
            )
        )
    most = max(max(values) for name, values in written.items() if name != "edit of an early message")
    figures.append(Figure(name="the most that one of them writes (bytes of entries)", value=most, unit="bytes", limit=WRITTEN_LIMIT))
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
