"""A session that waits for an operator is nothing that workers look at again and again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure.store.base import Catalogue, Claim, Commit, Committed, Store
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore

STORES: dict[str, Callable[[Path], Store]] = {"memory": lambda path: MemoryStore(), "sqlite": lambda path: SQLiteStore(path / "a.db")}


@pytest.mark.parametrize("kind", STORES)
async def test_a_message_to_a_stuck_session_is_kept_and_wakes_nobody(kind: str, tmp_path: Path) -> None:
    async with perdure.open(STORES[kind](tmp_path)) as runtime:
        store = runtime.store
        await runtime.sessions.send("s", "hello", submission="m1", agent="a")
        head = await store.load("s")
        assert head is not None
        stuck = Catalogue(status="stuck", wake_at=None, title="", labels={}, agent="a")
        commit = Commit(
            no=head.row.no, version=1, fence=0, holder=None, at=head.now, claim=Claim(runner="r"), release=True, catalogue=stuck
        )
        assert isinstance(await store.commit(commit), Committed)

        await runtime.sessions.send("s", "are you there?", submission="m2")

        assert await store.runnable(limit=10) == []
        assert await store.next_wake() is None
        assert [row.submission_id for row in await store.inbox(head.row.no)] == ["m1", "m2"]
