"""A session can begin with the first messages of another, which never notices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    Agent,
    Forked,
    FunctionModel,
    InvalidSpan,
    Message,
    ModelRequest,
    Reply,
    SessionArchived,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StoreBroken,
    Text,
    UsageError,
)
from perdure.testing.faults import Fault

from ..interactive.acting import Place
from .talking import Payments, edit_fixture, line, lines, paying, sound, talk

FOUR = ["user: hello", "assistant: answer 1", "user: follow up", "assistant: answer 2"]


@pytest.mark.spec("C-T3-005", "B-B-170", "B-A-175")
async def test_a_fork_is_a_new_idle_session_and_the_parent_stays_whole(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        before = await process.everything()

        fork = await process.sessions.fork("s", at=2)

        assert fork.session_id != "s"
        assert (fork.parent, fork.cut, fork.count, fork.effects, fork.duplicate) == ("s", 2, 2, 0, False)
        assert await lines(process, fork.session_id) == FOUR[:2]
        assert fork.revision == await process.sessions.revision("s", 2) == await process.sessions.revision(fork.session_id)
        assert await process.everything() == before
        info = await process.sessions.info(fork.session_id)
        assert (info.status, info.owner, info.agent, info.title, info.holder) == ("idle", "acme", "helper", "hello", None)
        row = await process.row(fork.session_id)
        assert (row.parent, row.parent_kind, row.root, row.inbox_head) == ("s", "fork", "s", 0)
        await sound(process)


@pytest.mark.spec("C-T3-007")
async def test_a_fork_can_replace_the_message_at_its_cut_and_drops_what_came_behind(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        fork = await process.sessions.fork("s", at=2, replacement="edited follow up", session_id="branch")
        assert (fork.session_id, fork.cut, fork.count) == ("branch", 2, 3)
        assert await lines(process, "branch") == [*FOUR[:2], "user: edited follow up"]
        assert await lines(process) == FOUR
        await sound(process)


async def test_branches_go_their_own_ways_and_see_only_their_own(place: Place) -> None:
    asked: list[list[str]] = []

    def remember(request: ModelRequest) -> str:
        asked.append([line(message) for message in request.messages])
        return "answer"

    agent = Agent("helper", model=FunctionModel(remember))
    async with place.process() as process:
        await talk(process, "one", "two", agent=agent)
        await process.sessions.note("s", "early")
        await process.sessions.fork("s", at=2, session_id="left")
        await process.sessions.fork("s", session_id="right")
        await talk(process, "more", agent=agent)
        await process.sessions.note("s", "late")
        await talk(process, "to the left", agent=agent, session="left")
        await talk(process, "to the right", agent=agent, session="right")
    async with place.process() as process:
        await talk(process, "again left", agent=agent, session="left")
        assert asked[-1] == ["user: one", "assistant: answer", "user: to the left", "assistant: answer", "user: again left"]
        await talk(process, "again right", agent=agent, session="right")
        right = ["user: one", "assistant: answer", "user: two", "assistant: answer", "user: to the right", "assistant: answer"]
        assert asked[-1] == [*right, "user: again right"]
        assert await lines(process, "right") == [*right, "user: again right", "assistant: answer"]
        assert len(await lines(process)) == 6
        await sound(process)


@pytest.mark.spec("B-A-030", "B-A-133")
async def test_a_cut_can_be_named_by_a_turn_or_an_entry(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "one", "two")
        turns = await process.sessions.entries("s", kinds=("turn_started",))
        first, second = (f"t{entry.seq}" for entry in turns)
        await process.sessions.rewrite("s", (0, 1), ["rather"])
        await talk(process, "three")
        sessions = process.sessions
        assert await lines(process, (await sessions.fork("s", turn=first)).session_id) == ["user: one", "assistant: answer 1"]
        both = ["user: one", "assistant: answer 1", "user: two", "assistant: answer 2"]
        assert await lines(process, (await sessions.fork("s", turn=second)).session_id) == both
        assert await lines(process, (await sessions.fork("s", entry=turns[1].seq)).session_id) == both[:2]
        (edit,) = await sessions.revisions("s")
        # The parent's edits, made behind the cut, are none of the branch's.
        assert list(await sessions.revisions((await sessions.fork("s", turn=first)).session_id)) == []
        now = await lines(process, (await sessions.fork("s", entry=edit.seq)).session_id)
        assert now == ["user: rather", *both[1:]]
        assert await lines(process, (await sessions.fork("s", entry=1)).session_id) == []
        assert await lines(process, (await sessions.fork("s")).session_id) == await lines(process)
        head = await process.row()
        wrong: list[Any] = ["t1", "t999", "x", "t", 7, "t²"]
        for turn in wrong:
            with pytest.raises(InvalidSpan):
                await sessions.fork("s", turn=turn)
        wrong = [0, -1, head.version + 1, "1", True]
        for entry in wrong:
            with pytest.raises(InvalidSpan):
                await sessions.fork("s", entry=entry)
        with pytest.raises(UsageError):
            await sessions.fork("s", at=1, entry=1)
        await sound(process)


async def test_an_entry_inside_a_step_is_no_place_to_cut(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "pay A 5 r1", agent=paying(Payments()))
        kinds = [entry.kind for entry in await process.sessions.entries("s")]
        inside = kinds.index("message", kinds.index("message") + 1) + 1
        with pytest.raises(InvalidSpan):
            await process.sessions.fork("s", entry=inside)


async def test_forks_of_forks_read_through_all_their_ancestors(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        sessions = process.sessions
        await sessions.fork("s", at=2, session_id="one", replacement="one")
        await talk(process, "one more", session="one")
        await sessions.rewrite("one", (1, 2), [Message(role="assistant", parts=(Text("edited"),))])
        await sessions.fork("one", session_id="two", title="Two", labels={"kind": "test"})
        await talk(process, "two more", session="two")
        await sessions.rewrite("two", (0, 1), ["hullo"])
        expected = ["user: hullo", "assistant: edited", "user: one", "user: one more", "assistant: answer 2"]
        assert await lines(process, "two") == [*expected, "user: two more", "assistant: answer 3"]
        assert (await lines(process, "one"))[0] == "user: hello"
        tree = [(branch.session_id, branch.depth, branch.cut, branch.messages, branch.parent) for branch in await sessions.tree("two")]
        assert tree == [("s", 0, 0, 4, None), ("one", 1, 2, 5, "s"), ("two", 2, 5, 7, "one")]
        assert await sessions.tree("s") == await sessions.tree("one")
        info = await sessions.info("two")
        assert (info.title, info.labels) == ("Two", {"kind": "test"})
        await sound(process)
    async with place.process() as process:
        await talk(process, "after a restart", session="two")
        assert (await lines(process, "two"))[-1] == "assistant: answer 4"
        await sound(process)


async def test_the_chain_of_a_fork_goes_on_from_its_parents(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        head = await process.store.load("s")
        assert head is not None
        await process.sessions.fork("s", at=2, session_id="f", reason="try", actor="ann")
        (entry,) = await process.sessions.entries("f", kinds=("forked",))
        assert isinstance(entry, Forked)
        assert (entry.session, entry.version, entry.chain, entry.cut) == ("s", head.row.version, head.chain.hex(), 2)
        assert (entry.seq, entry.number, entry.reason, entry.actor) == (2, 2, "try", "ann")


@pytest.mark.spec("B-A-052")
async def test_a_fork_is_made_once_under_its_id(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        sessions = process.sessions
        one = await sessions.fork("s", at=2, session_id="f")
        await talk(process, "more", session="f")
        again = await sessions.fork("s", at=2, session_id="f")
        assert (again.duplicate, again.revision, again.cut) == (True, one.revision, 2)
        for call in (
            sessions.fork("s", at=4, session_id="f"),
            sessions.fork("s", at=2, session_id="f", replacement="x"),
            sessions.fork("f", at=2, session_id="s"),
            sessions.fork("s", session_id="s"),
        ):
            with pytest.raises(SessionExists):
                await call
        both = await asyncio.gather(*(sessions.fork("s", at=0, session_id="g") for _ in range(4)))
        assert sorted(item.duplicate for item in both) == [False, True, True, True]


@pytest.mark.hazard("H18")
async def test_a_fork_that_failed_left_nothing_and_one_whose_answer_was_lost_is_there(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
    for when in ("before", "after"):
        fault = Fault(kind="create", nth=1, when=when, error=StoreBroken("no"))  # type: ignore[arg-type]
        async with place.process(fault) as process:
            with pytest.raises(StoreBroken):
                await process.sessions.fork("s", at=2, session_id=when)
            fork = await process.sessions.fork("s", at=2, session_id=when)
            assert fork.duplicate == (when == "after")
            await sound(process)


@pytest.mark.hazard("H19")
async def test_a_running_parent_is_forked_only_if_that_is_asked_for(place: Place) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: ModelRequest) -> Reply:
        asked.set()
        await go_on.wait()
        return Reply("done")

    agent = Agent("helper", model=FunctionModel(slow))
    async with place.process() as process:
        running = asyncio.create_task(process.run(agent, "hello", session="s"))
        await asked.wait()
        with pytest.raises(SessionBusy):
            await process.sessions.fork("s")
        fork = await process.sessions.fork("s", while_running=True)
        assert (fork.count, await lines(process, fork.session_id)) == (1, ["user: hello"])
        go_on.set()
        assert (await running).ok
        await sound(process)


async def test_nothing_is_forked_from_what_is_archived_or_gone(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        await process.sessions.archive("s")
        with pytest.raises(SessionArchived):
            await process.sessions.fork("s")
        await process.sessions.revive("s")
        await process.sessions.delete("s")
        with pytest.raises(SessionNotFound):
            await process.sessions.fork("s")


async def test_a_fork_takes_no_grants_budgets_submissions_or_requests_along(place: Place) -> None:
    payments = Payments()
    agent = paying(payments, approve=["pay"], guard="allow")
    async with place.process() as process:
        async with process.session("s", agent) as session:
            await session.send("pay A 5 r1", submission="m1")
            async for event in session.events(after=0):
                if event.__class__.__name__ == "ApprovalRequested":
                    await process.sessions.grant("s", event.request_id)  # type: ignore[union-attr]
                if event.__class__.__name__ == "TurnCompleted":
                    break
        await process.sessions.note("s", "x", submission="n1")
        parent = await process.sessions.checkpoint("s")
        assert (len(parent.grants), parent.turns) == (1, 1)
        await process.sessions.fork("s", session_id="f")
        child = await process.sessions.checkpoint("f")
        assert (child.grants, child.turns, child.requests, child.turn) == ((), 0, (), None)
        assert child.usage != parent.usage
        assert child.route == parent.route
        assert await process.store.submission((await process.row("f")).no, "m1") is None
        assert (await process.sessions.send("f", "again", submission="m1")).duplicate is False


@pytest.mark.spec("S2-063")
async def test_a_fork_begins_clean_with_its_layout_or_not_at_all(place: Place) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        parent = await process.row("s")
        before = [info.session_id for info in await process.sessions.list()]
        for wrong in ({"entry": parent.version + 1}, {"entry": 0}, {"at": 5}, {"turn": "t99"}):
            with pytest.raises(InvalidSpan):
                await process.sessions.fork("s", session_id="branch", **wrong)
        with pytest.raises(SessionNotFound):
            await process.sessions.fork("nobody", session_id="branch")
        assert [info.session_id for info in await process.sessions.list()] == before
        assert not await process.store.buried("branch")

        fork = await process.sessions.fork("s", session_id="branch", entry=parent.version)

        written = await process.sessions.entries("branch")
        assert [(entry.seq, entry.kind) for entry in written] == [(1, "session_created"), (2, "forked")]
        row, clean = await process.row("branch"), await process.sessions.checkpoint("branch")
        assert (row.version, row.fence, row.claims, row.inbox_head, row.holder) == (2, 0, 0, 0, None)
        assert (clean.turn, clean.turns, clean.requests, clean.grants, clean.usage.calls) == (None, 0, (), (), 0)
        assert await lines(process, "branch") == FOUR
        assert fork.revision == await process.sessions.revision("s")
        await sound(process)


async def test_a_fork_costs_the_same_however_long_its_parent_is(place: Place) -> None:
    async with place.process() as process:
        await talk(process, *(f"say {index}" for index in range(20)))
        sizes = []
        for at in (2, 20, 40):
            fork = await process.sessions.fork("s", at=at)
            rows = await process.store.entries((await process.row(fork.session_id)).no)
            sizes.append(sum(len(row.body or b"") for row in rows))
        assert max(sizes) - min(sizes) < 16
        assert max(sizes) < 2_000
