"""Listing 100,000 sessions."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import apsw

import perdure
from perdure import Agent, FunctionModel

from .report import Figure

__all__ = ["listing"]

COPIES = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO sessions (session_id, root, agent, version, fence, claims, inbox_head, status, owner, title, labels,
    created, updated, checkpoint)
SELECT 's' || i, 's' || i, agent, version, fence, claims, inbox_head, status, 'owner ' || (i % 1000), 'A matter of ' || i, labels,
    created + i, updated + i, checkpoint
FROM n, sessions WHERE session_id = 'one'
"""


async def listing(directory: Path, *, rounds: int, count: int = 100_000) -> list[Figure]:
    """The first page of 50, by what it is filtered by."""
    path = directory / "listing.db"
    async with perdure.open(str(path)) as runtime:
        await runtime.run(Agent("bench", model=FunctionModel(lambda request: "ok")), "hello", session="one", labels={"desk": "1"})
    connection = apsw.Connection(str(path))
    connection.execute(COPIES, {"count": count})
    connection.close()
    filters: dict[str, dict[str, Any]] = {
        "all": {},
        "an owner's": {"owner": "owner 7"},
        "of a status that none has": {"status": "waiting"},
        "latest created": {"order": "created"},
        "with a word that none has": {"words": "nowhere"},
        "with a label that none has": {"labels": {"desk": "9"}},
    }
    figures = []
    async with perdure.open(str(path)) as runtime:
        await runtime.sessions.list()
        for name, chosen in filters.items():
            taken = []
            for _ in range(rounds):
                began = time.perf_counter()
                await runtime.sessions.list(**chosen)
                taken.append((time.perf_counter() - began) * 1000)
            value = statistics.median(taken)
            figures.append(
                Figure(name=f"first page of {count:,} sessions: {name}", value=value, unit="ms", low=min(taken), high=max(taken), limit=20)
            )
    return figures
