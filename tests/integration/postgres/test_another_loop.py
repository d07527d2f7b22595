"""In the event loop that web servers like to bring, everything is as it is in asyncio's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import uvloop

import perdure
from perdure import Agent, FunctionModel, Limits, ModelRequest, Reply, ToolCall
from perdure.runtime.verify import verify
from perdure.store.base import Committed
from perdure.store.conformance.kit import content, create, step
from perdure.store.postgres import PostgresStore
from tests.postgres import Server

from .cutting import Cutter

STEPS = 5


def working(seen: list[int], between: Any = lambda number: None) -> Agent:
    @perdure.tool(effect="idempotent")
    async def look(number: int) -> str:
        """Look at a number."""
        between(number)
        seen.append(number)
        return "seen"

    def answer(request: ModelRequest) -> Reply:
        if request.step == STEPS:
            return Reply("done")
        return Reply(tool_calls=(ToolCall("look", {"number": request.step}),))

    return Agent("a", model=FunctionModel(answer), tools=[look], limits=Limits(steps=STEPS + 1))


async def turn(url: str, agent: Agent) -> None:
    async with perdure.open(url) as runtime:
        result = await runtime.run(agent, "go", session="s", submission="m")
        assert (result.status, result.output) == ("completed", "done")
        assert [str(problem) async for problem in verify(runtime.store)] == []


def test_a_turn_runs_on_sqlite(tmp_path: Path) -> None:
    seen: list[int] = []
    uvloop.run(turn(str(tmp_path / "agents.db"), working(seen)))
    assert seen == list(range(STEPS))


@pytest.fixture
def cutter(postgres: Server) -> Any:
    cutter = Cutter(postgres.url)
    yield cutter
    cutter.close()


def test_a_turn_on_postgresql_goes_on_over_every_connection_that_is_cut(postgres: Server, cutter: Cutter) -> None:
    seen: list[int] = []

    def between(number: int) -> None:
        if number % 2:
            cutter.hang_up()
        else:
            cutter.cut(".write(", "after" if number else "before")

    uvloop.run(turn(cutter.url(postgres.store(postgres.schema())), working(seen, between)))
    assert seen == list(range(STEPS))
    assert cutter.cuts == 3


def test_a_statement_that_the_connection_does_not_take_at_once_is_sent_in_parts(postgres: Server) -> None:
    async def large() -> None:
        store = PostgresStore(postgres.store(postgres.schema()))
        await store.open()
        try:
            no = await create(store)
            blob = content(b"x" * 5_000_000)
            assert await store.commit(step(no, blobs=(blob,))) == Committed(2, 0, 1)
            stored = await store.blob("s", blob.digest)
            assert stored is not None
            assert stored.data == blob.data
        finally:
            await store.close()

    uvloop.run(large())
