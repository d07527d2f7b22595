"""An agent with a child, a memory and a pool is really killed, and none of what is counted of it is lost or counted twice."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

import perdure
from perdure.runtime.verify import verify
from perdure.store.base import SessionQuery
from perdure.testing import find_all_problems
from perdure.testing.crash import Harness, Ledger

PROGRAM = Path(__file__).with_name("team.py")

LIVES = (
    ("before model memory", "within model 0", "after effect pay", "before effect file", "within model 2", "before commit end"),
    ("within model memory", "before effect pay", "within model 1", "after effect file", "before model 2", "after commit end"),
)
"""Where the program dies, a life after the other: in the lead's first model call, its tool, the clerk's, the lead's last, and its end."""


@pytest.mark.parametrize("points", LIVES, ids=["one", "other"])
async def test_a_team_that_is_killed_again_and_again_is_charged_for_what_its_ledgers_have_and_remembers_once(
    points: tuple[str, ...], tmp_path: Path
) -> None:
    program = Harness([sys.executable, str(PROGRAM)], tmp_path)
    for point in points:
        ended = program.run(point)
        assert ended.hit == point, ended
    assert program.finish().output.splitlines()[-1] == "completed All is done."

    done = Counter(line["tool"] for line in Ledger(tmp_path / "ledger.jsonl").read())
    assert set(done) == {"pay", "file"}
    async with perdure.open(str(tmp_path / "agents.db")) as runtime:
        # A pool that was charged for anything but what stands in the journals would be among these.
        assert await find_all_problems(runtime.store) == []
        assert [str(problem) async for problem in verify(runtime.store)] == []
        info = await runtime.sessions.list(owner="acme", limit=10)
        assert [(item.session_id, item.status) for item in info] == [("order", "idle")]
        rows = await runtime.store.sessions(SessionQuery(limit=10))
        calls = {row.session_id: await runtime.sessions.model_calls(row.session_id) for row in rows}
        assert len(calls) == 2
        assert {call.status for call in calls["order"]} == {"succeeded", "uncertain"}
        answered = [call for found in calls.values() for call in found if call.status == "succeeded"]
        pool = await runtime.pools.get("acme")
        assert pool is not None
        assert pool.left["tokens"] == 100_000 - 12 * len(answered)
        memory = (tmp_path / ".memory" / "session" / "order" / "session_memory.json").read_text()
        assert memory.count("The order is paid") == 1
