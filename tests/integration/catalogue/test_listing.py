"""Lists: filters, paging that holds while sessions change, tokens that can't be made up, and broken sessions among whole ones."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from perdure import Agent, FunctionModel, Identity, Runtime, UsageError
from perdure.core.errors import StoreBroken
from perdure.testing.faults import Call, FaultStore

from ..interactive.acting import Place

PLAIN = Agent("a", model=FunctionModel(lambda request: "ok"))


async def ids(listed: Any) -> list[str]:
    return [info.session_id for info in await listed]


async def test_sessions_are_found_by_owner_label_status_agent_time_and_words(place: Place) -> None:
    async with place.process() as process:
        for index, (owner, text, labels) in enumerate(
            (("acme", "Refund of A-1", {"desk": "3"}), ("acme", "Where is my order?", {}), ("other", "refund, please", {"desk": "3"}))
        ):
            place.clock.advance(1000)
            await process.run(PLAIN, text, session=f"s{index}", submission="m1", identity=Identity(owner=owner), labels=labels)
        moments = {info.session_id: info.updated for info in await process.sessions.list()}
        listing = process.sessions.list
        assert await ids(listing()) == ["s2", "s1", "s0"]
        assert await ids(listing(words="refund")) == ["s2", "s0"]
        assert await ids(listing(words=["REFUND", "a-1"])) == ["s0"]
        assert await ids(listing(owner="acme", labels={"desk": "3"})) == ["s0"]
        assert await ids(listing(agent="a", status=["idle"])) == ["s2", "s1", "s0"]
        assert await ids(listing(agent="b")) == []
        assert await ids(listing(since=moments["s1"])) == ["s2", "s1"]
        assert await ids(listing(until=moments["s1"])) == ["s0"]
        assert await ids(listing(order="created", limit=2)) == ["s2", "s1"]
        # Reading changes nothing.
        assert {info.session_id: info.updated for info in await listing()} == moments
        for wrong in (
            {"limit": 0},
            {"limit": -1},
            {"limit": 10**9},
            {"limit": "5"},
            {"status": "asleep"},
            {"status": 5},
            {"words": ["x" * 2**20]},
            {"words": ["w"] * 17},
            {"words": 5},
            {"labels": {"x" * 2**20: "y"}},
            {"labels": ["x"]},
            {"since": "today"},
            {"until": 2**80},
            {"order": "size"},
            {"after": 7},
        ):
            with pytest.raises(UsageError):
                await listing(**wrong)


@pytest.mark.parametrize("order", ["updated", "created"])
async def test_pages_are_stable_while_sessions_change(place: Place, order: Any) -> None:
    async with place.process() as process:
        for index in range(25):
            place.clock.advance(index % 2)
            await process.sessions.send(f"s{index}", "hello", agent="a")
        expected = await ids(process.sessions.list(order=order))
        seen: list[str] = []
        after = None
        while True:
            page = await process.sessions.list(order=order, limit=4, after=after)
            seen += [info.session_id for info in page]
            if (after := page.next) is None:
                break
            place.clock.advance(1)
            await process.sessions.send(seen[-1], "more", agent="a")
            await process.sessions.send(f"new {len(seen)}", "hello", agent="a")
            await process.sessions.archive(seen[0]) if len(seen) == 4 else None
        assert seen == expected
        everything = [info.session_id async for info in process.sessions.each(order=order, limit=3, archived=True)]
        assert sorted(everything) == sorted([*expected, *(f"new {count}" for count in range(4, 25, 4))])


async def test_a_token_is_bound_to_its_list_and_cannot_be_made_up(place: Place) -> None:
    async with place.process() as process:
        for index in range(5):
            await process.sessions.send(f"s{index}", "hello", agent="a", identity=Identity(owner="acme"))
        token = (await process.sessions.list(limit=2)).next
        assert token is not None
        # The size of the next page is free.
        assert len(await process.sessions.list(limit=3, after=token)) == 3
        place_, _, signature = token.partition(".")
        forged = base64.urlsafe_b64encode(json.dumps([2**62, 9]).encode()).decode().rstrip("=")
        for invented in (
            "",
            ".",
            "x",
            f"{forged}.{signature}",
            f"{place_}.",
            f".{signature}",
            f"{place_}.{signature[:-1]}",
            "é.\ud800",
            "x" * 2**20,
        ):
            with pytest.raises(UsageError, match="paging token"):
                await process.sessions.list(limit=2, after=invented)
        for other in ({"owner": "acme"}, {"order": "created"}, {"archived": True}, {"words": "hello"}, {"status": "queued"}):
            with pytest.raises(UsageError, match="paging token"):
                await process.sessions.list(**other, after=token)


@pytest.mark.spec("B-A-108")
@pytest.mark.parametrize("damage", ["labels", "title", "checkpoint", "version", "updated_type"])
@pytest.mark.hazard("H9")
async def test_a_broken_session_is_listed_as_broken_and_hides_no_other(tmp_path: Any, damage: str) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        for name in ("one", "bad", "two"):
            await process.run(PLAIN, "hello there", session=name, submission="m1", labels={"desk": "3"})
    place.execute(
        {
            "labels": "UPDATE sessions SET labels = '{no json' WHERE session_id = 'bad'",
            "title": "UPDATE sessions SET title = CAST(x'ff00fe' AS TEXT) WHERE session_id = 'bad'",
            "checkpoint": "UPDATE sessions SET checkpoint = x'00' WHERE session_id = 'bad'",
            "version": "UPDATE sessions SET version = 'many' WHERE session_id = 'bad'",
            "updated_type": "UPDATE sessions SET created = x'01' WHERE session_id = 'bad'",
        }[damage]
    )
    async with place.process() as process:
        listed = await process.sessions.list()
        found = {info.session_id: info.problem for info in listed}
        if damage == "labels":
            assert next(info.labels for info in listed if info.session_id == "bad") == {}
        assert found.pop("bad") != ""
        assert found == {"one": "", "two": ""}
        by_words = {info.session_id for info in await process.sessions.list(words="hello")}
        assert by_words >= {"one", "two"}
        assert {info.session_id for info in await process.sessions.list(labels={"desk": "3"})} >= {"one", "two"}
        assert (await process.run(PLAIN, "again", session="one", submission="m2")).ok


@pytest.mark.hazard("H9")
@pytest.mark.parametrize("damage", ["checkpoint", "beginning"])
async def test_a_broken_branch_is_shown_in_its_tree_as_broken_and_hides_no_other(tmp_path: Any, damage: str) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await process.run(PLAIN, "hello there", session="s", submission="m1")
        for name in ("bad", "good"):
            await process.sessions.fork("s", at=1, session_id=name)
        await process.sessions.fork("bad", session_id="behind")
    place.execute(
        {
            "checkpoint": "UPDATE sessions SET checkpoint = x'00' WHERE session_id = 'bad'",
            "beginning": "UPDATE journal SET body = x'00' WHERE seq = 2 AND no = (SELECT no FROM sessions WHERE session_id = 'bad')",
        }[damage]
    )
    async with place.process() as process:
        tree = {branch.session_id: (branch.depth, branch.cut, branch.messages) for branch in await process.sessions.tree("s")}
        assert tree == {"s": (0, 0, 2), "bad": (1, None, None), "behind": (2, 1, 1), "good": (1, 1, 1)}
        problems = {branch.session_id: branch.problem for branch in await process.sessions.tree("good")}
        assert problems.pop("bad") != ""
        assert set(problems.values()) == {""}


async def test_a_database_that_goes_away_is_no_problem_of_each_session(place: Place) -> None:
    gone = False

    async def fails(call: Call, when: str) -> None:
        if gone and when == "before" and call.kind != "sessions":
            raise StoreBroken("it can't be reached")

    async with Runtime(FaultStore(place.connect(), gate=fails, clock=place.clock), clock=place.clock) as runtime:
        await runtime.run(PLAIN, "hello", session="s")
        await runtime.sessions.describe("s", metadata={"notes": "x" * 80_000})
        gone = True
        with pytest.raises(StoreBroken):
            await runtime.sessions.list()
        gone = False
        assert (await runtime.sessions.list())[0].problem == ""
