"""What it costs to list sessions on the command line: the page, however many sessions there are."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure import Agent, FunctionModel
from perdure.cli.sessions import _children_of
from perdure.store.sqlite import SQLiteStore
from perdure.testing.faults import FaultStore


async def test_looking_for_the_children_of_a_page_reads_no_other_session(tmp_path: Path) -> None:
    async with perdure.open(str(tmp_path / "agents.db")) as runtime:
        for number in range(20):
            await runtime.sessions.send(f"q{number}", "hi", agent="a")
        await runtime.run(Agent("a", model=FunctionModel(lambda request: "ok")), "hi", session="s")
    store = FaultStore(SQLiteStore(tmp_path / "agents.db"))
    async with perdure.open(store) as runtime:
        page = [await runtime.sessions.info("s"), await runtime.sessions.info("q1")]
        before = len(store.calls)
        assert await _children_of(runtime, page) == {}
        assert [call.kind for call in store.calls[before:]] == ["load", "tree"]


async def test_a_tree_is_read_once_however_many_of_its_sessions_are_on_the_page(tmp_path: Path) -> None:
    async with perdure.open(str(tmp_path / "agents.db")) as runtime:
        await runtime.run(Agent("a", model=FunctionModel(lambda request: "ok")), "hi", session="s")
        for number in range(5):
            await runtime.sessions.fork("s", at=1, session_id=f"f{number}")
    store = FaultStore(SQLiteStore(tmp_path / "agents.db"))
    async with perdure.open(store) as runtime:
        page = await runtime.sessions.list()
        assert [info.status for info in page] == ["idle"] * 6
        before = len(store.calls)
        assert await _children_of(runtime, page) == {}
        assert [call.kind for call in store.calls[before:]] == ["load"] * 6 + ["tree"]
