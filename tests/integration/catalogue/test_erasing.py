"""All of an owner's sessions are destroyed, whatever they are doing, and what is left is said; a crash leaves work to be gone on with."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Agent,
    Fenced,
    FunctionModel,
    Identity,
    Limits,
    ModelRequest,
    Reply,
    SessionMemory,
    SessionNotFound,
    StoreBroken,
    ToolCall,
    ToolContext,
    UsageError,
    tool,
)
from perdure.runtime.memory_file import MemoryFile
from perdure.runtime.verify import verify
from perdure.testing.faults import Fault

from ..interactive.acting import Place, Process
from .talking import echoing
from .test_archive import PLAIN, Charging


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path / "agents.db")


paid: list[str] = []


@tool(effect="external", unique="refund:{order}", guard="allow")
async def refund(ctx: ToolContext, order: str) -> str:
    paid.append(order)
    return f"refunded {order}"


def plays(request: ModelRequest) -> Reply | str:
    said = request.messages[-1]
    if said.role != "user" or " " not in said.text:
        return "ok"
    name, order = said.text.split()
    return Reply(tool_calls=[ToolCall(name, {"task": f"refund {order}"} if name == "clerk" else {"order": order})])


clerk = Agent("clerk", model=FunctionModel(plays), tools=[refund])
desk = Agent("desk", model=FunctionModel(plays), tools=[refund, clerk.as_tool()])


async def begin(process: Process) -> None:
    """Sessions of every kind, of one owner, and one of another's."""
    say = process.run
    for session, text in (("idle", "hello"), ("archived", "hello"), ("halted", "hello"), ("paid", "refund A-1"), ("caller", "clerk B-1")):
        assert (await say(desk, text, session=session, owner="ann")).ok
    await process.sessions.archive("archived")
    await process.sessions.halt("halted")
    for parent, branch in (("idle", "branch"), ("branch", "twig"), ("paid", "other branch")):
        await process.sessions.fork(parent, session_id=branch)
        assert (await say(desk, "more", session=branch)).ok
    await process.sessions.owned_by("ann").send("queued", "hello", agent="desk")
    assert (await say(desk, "refund C-1", session="bob", owner="bob")).ok


ALL = {"idle", "archived", "halted", "paid", "caller", "caller.t2.0.1", "branch", "twig", "other branch", "queued"}


async def nothing_is_left(process: Process) -> None:
    """No content of the owner's, and everything that holds of the rest."""
    assert await process.sessions.list(owner="ann", archived=True, children=True) == []
    for root in ("idle", "archived", "halted", "paid", "caller", "queued"):
        for row in await process.store.tree(root):
            assert row.status == "deleted"
            assert await process.store.entries(row.no) == []
            assert await process.store.effects(row.no) == []
            assert all(item.body is None for item in await process.store.submissions(row.no, after="", limit=99))
        assert await process.store.blobs(root) == []
    assert (await process.run(desk, "hello", session="bob", owner="bob")).ok
    assert [str(problem) async for problem in verify(process.store)] == []


async def test_all_of_an_owner_goes_and_nothing_of_anybody_else(place: Place) -> None:
    async with place.process() as process:
        await begin(process)
        bob = await process.everything("bob")
        erased = await process.sessions.delete_owner("ann")
        assert {*erased.sessions} == ALL
        assert (erased.owner, erased.tombstones, erased.uniques, erased.files, erased.problems) == ("ann", len(ALL), 2, (), {})
        assert await process.everything("bob") == bob
        await nothing_is_left(process)
        # Once more is nothing more, and a session that is gone can't be begun again.
        again = await process.sessions.delete_owner("ann")
        assert (again.sessions, again.tombstones) == ((), len(ALL))
        for name in ALL:
            with pytest.raises(SessionNotFound, match="was deleted"):
                await process.sessions.send(name, "hello")
        assert await process.sessions.delete_owner("nobody") == type(again)(owner="nobody")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 11))
async def test_an_erasure_that_was_cut_short_goes_on(tmp_path: Path, nth: int, when: Any) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await begin(process)
    async with place.process(Fault(kind="delete", nth=nth, when=when, action="die")) as process:
        with suppress(StoreBroken):
            await process.sessions.delete_owner("ann")
            pytest.fail("it was to die")
    async with place.process() as process:
        erased = await process.sessions.delete_owner("ann")
        assert erased.tombstones == len(ALL)
        await nothing_is_left(process)


async def test_a_branch_whose_deletion_was_cut_short_before_is_finished_too(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", owner="ann")
        await process.sessions.fork("s", session_id="f")
        # The parent stays hidden as long as the branch needs it.
        await process.sessions.delete("s")
    async with place.process(Fault(kind="delete", nth=1, when="after", action="die")) as process:
        with suppress(StoreBroken):
            await process.sessions.delete("f")
    async with place.process() as process:
        assert await process.sessions.list(owner="ann", archived=True) == []
        assert any([await process.store.entries(row.no) for row in await process.store.tree("s")])
        assert (await process.sessions.delete_owner("ann")).sessions == ()
        assert [await process.store.entries(row.no) for row in await process.store.tree("s")] == [[], []]
        assert [str(problem) async for problem in verify(process.store)] == []


async def test_who_works_on_a_session_of_theirs_is_stopped(place: Place) -> None:
    charging = Charging()
    async with place.process() as process:
        running = asyncio.create_task(process.run(charging.agent, "charge", session="s", owner="ann"))
        await charging.begun.wait()
        async with place.process() as other:
            assert (await other.sessions.delete_owner("ann")).sessions == ("s",)
        charging.go_on.set()
        with pytest.raises((Fenced, SessionNotFound)):
            await running
        assert await process.sessions.list(owner="ann", archived=True) == []


async def test_what_is_begun_for_them_meanwhile_goes_too(place: Place) -> None:
    async with place.process() as process:
        await process.sessions.owned_by("ann").send("s", "hello", agent="desk")
        delete, begun = process.store.delete, False

        async def deleting(*given: Any, **options: Any) -> bool:
            nonlocal begun
            done = await delete(*given, **options)
            if not begun:
                begun = True
                await process.sessions.owned_by("ann").send("late", "hello", agent="desk")
            return done

        process.store.delete = deleting  # type: ignore[method-assign]
        assert {*(await process.sessions.delete_owner("ann")).sessions} == {"s", "late"}


async def test_their_pool_and_what_only_one_call_may_do_go_where_that_is_said(place: Place) -> None:
    async with place.process() as process:
        await process.pools.set("ann", Limits(tokens=1000))
        await process.pools.set("bob", Limits(tokens=1000))
        await process.run(desk, "refund D-1", session="s", identity=Identity(owner="ann"))
        count = len(paid)
        first = await process.sessions.delete_owner("ann")
        assert (first.pool, first.uniques) == (True, 1)
        await process.run(desk, "refund D-1", session="t", owner="ann")
        assert len(paid) == count
        second = await process.sessions.delete_owner("ann", pool=True, uniques=True)
        assert (second.pool, second.uniques, second.sessions) == (False, 0, ("t",))
        assert await process.pools.get("ann") is None
        assert await process.pools.get("bob") is not None
        await process.run(desk, "refund D-1", session="u", owner="ann")
        assert len(paid) == count + 1


async def test_copies_of_memories_are_removed_where_their_agents_are_named(place: Place, tmp_path: Path) -> None:
    memory = SessionMemory(workspace=tmp_path / "work")
    (tmp_path / "work").mkdir()
    helper = echoing(memory=memory)
    async with place.process() as process:
        for session, owner in (("s", "ann"), ("t", "ann"), ("bob", "bob")):
            await process.run(helper, "hello", session=session, owner=owner)
        files = {name: MemoryFile(tmp_path / "work", memory.storage, name) for name in ("s", "t", "bob")}
        for name in ("s", "bob"):
            files[name].write(b"{}")
        beside = Path(files["s"].path).with_name(".session_memory-0123456789abcdef.tmp")
        beside.write_bytes(b"{}")
        # Nobody named the agent yet; what is left of the sessions says which files are theirs.
        assert (await process.sessions.delete_owner("ann")).files == ()
        assert (await process.sessions.delete_owner("ann", agents=[helper])).files == (files["s"].path,)
        assert [path.name for path in (tmp_path / "work" / memory.storage).iterdir()] == ["bob"]
        assert (await process.sessions.delete_owner("ann", agents=[helper])).files == ()


async def test_one_owners_sessions_erase_nobody_else(place: Place) -> None:
    async with place.process() as process:
        for name in ("ann", "bob"):
            await process.run(PLAIN, "hello", session=name, owner=name)
        for owner in ("bob", " "):
            with pytest.raises(UsageError):
                await process.sessions.owned_by("ann").delete_owner(owner, pool=True)
        assert (await process.sessions.owned_by("ann").delete_owner("ann")).sessions == ("ann",)
        assert [info.session_id for info in await process.sessions.list()] == ["bob"]


async def test_a_session_that_cannot_be_read_is_named_and_keeps_no_other(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        for session in ("first", "broken", "last"):
            await process.run(PLAIN, "hello", session=session, owner="ann")
        place.execute("UPDATE sessions SET title = CAST(x'ff' AS TEXT) WHERE session_id = 'broken'")
        erased = await process.sessions.delete_owner("ann")
        assert {*erased.sessions} == {"first", "last"}
        assert [*erased.problems] == ["broken"]
        # Once it can be read again, it goes.
        place.execute("UPDATE sessions SET title = 'hello' WHERE session_id = 'broken'")
        assert (await process.sessions.delete_owner("ann")).sessions == ("broken",)
