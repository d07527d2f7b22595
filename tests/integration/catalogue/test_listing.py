"""Lists: filters, paging that holds while sessions change, tokens that can't be made up, and broken sessions among whole ones."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, FunctionModel, Identity, Runtime, SessionNotFound, UsageError
from perdure.core.errors import StoreBroken, StoreCorrupt
from perdure.core.evolve import fold
from perdure.testing.faults import Call, FaultStore

from ..interactive.acting import Place, Process, eventually, until

PLAIN = Agent("a", model=FunctionModel(lambda request: "ok"))


async def ids(listed: Any) -> list[str]:
    return [info.session_id for info in await listed]


@pytest.mark.spec("B-B-088")
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


@pytest.mark.spec("B-B-169", "B-B-165", "B-B-155")
async def test_what_is_said_of_a_session_is_what_its_journal_says_wherever_one_looks(place: Place) -> None:
    async with place.process() as process:
        for name in ("idle", "away", "gone"):
            await process.run(PLAIN, f"hello {name}", session=name, labels={"desk": "3"}, metadata={"notes": "x" * 80_000})
            await process.sessions.describe(name, title=f"the {name} one", labels={"desk": "4", "name": name})
        await process.sessions.archive("away")
        await process.sessions.delete("gone")
    async with place.process() as process:
        sessions = process.sessions
        everywhere = {info.session_id: info for info in await sessions.list(archived=True)}
        assert await ids(sessions.list()) == ["idle"]
        assert sorted(everywhere) == ["away", "idle"]
        for name, info in everywhere.items():
            told = fold(await sessions.entries(name))
            assert told == await sessions.checkpoint(name)
            assert info == await sessions.info(name)
            assert (
                (info.title, info.labels, info.version)
                == (told.title, told.labels, told.version)
                == (*(f"the {name} one", {"desk": "4", "name": name}, info.version),)
            )
            assert (info.status == "archived", info.identity, info.tools) == (told.archived, told.identity, told.tools)
            assert info.metadata == {"notes": "x" * 80_000}
        for name in ("gone", "never"):
            for looking in (sessions.info(name), sessions.checkpoint(name), sessions.entries(name), sessions.history(name)):
                with pytest.raises(SessionNotFound):
                    await looking


@pytest.mark.spec("B-B-166", "B-B-168")
async def test_what_a_session_says_of_itself_needs_no_journal_and_is_no_absence_where_it_can_not_be_read(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        for name in ("idle", "away"):
            await process.run(PLAIN, "hello", session=name, labels={"desk": "3"}, metadata={"notes": "short"})
        await process.sessions.archive("away")
        before = await process.sessions.list(archived=True)
    place.execute("DELETE FROM journal")
    async with place.process() as process:
        assert await process.sessions.list(archived=True) == before
        assert [await process.sessions.info(info.session_id) for info in before] == list(before)
    place.execute("UPDATE sessions SET checkpoint = x'00'")
    async with place.process() as process:
        assert [(info.session_id, info.problem != "") for info in await process.sessions.list(archived=True)] == [
            ("away", True),
            ("idle", True),
        ]
        assert (await process.sessions.info("away")).problem
        with pytest.raises(StoreCorrupt):
            await process.sessions.checkpoint("away")


@pytest.mark.spec("B-B-151", "B-B-156", "D-065")
async def test_a_session_is_read_and_listed_as_it_is_stored_whether_a_handle_is_open_or_not(place: Place) -> None:
    async with place.process() as process, place.process() as other:
        async with process.session("s", PLAIN) as handle:
            await handle.send("hello")
            await until(handle)
            await eventually(lambda: _let_go(process))
            # when another process changes what is stored, then readers here are told that, and the handle goes on
            await other.sessions.describe("s", title="another")
            await other.sessions.rewrite("s", (0, 1), ["rather"])
            assert [(info.title, info.status) for info in await process.sessions.list()] == [("another", "idle")]
            assert [message.text for message in await process.sessions.history("s")] == ["rather", "ok"]
            before = await process.everything()
            await handle.send("more")
            await until(handle, count=2)
        await eventually(lambda: _let_go(process))
        # and when it is closed, nothing of it is left here, and all of the session is stored
        await eventually(lambda: not process.work.drivers and not process.news.feeds)
        assert [(info.title, info.status) for info in await process.sessions.list()] == [("another", "idle")]
        assert [message.text for message in await process.sessions.history("s")] == ["rather", "ok", "more", "ok"]
        assert (await process.everything())[1][: len(before[1])] == before[1]


async def _let_go(process: Process) -> bool:
    return (await process.row()).holder is None


@pytest.mark.spec("B-B-157")
async def test_a_list_asks_for_all_labels_before_it_is_cut_and_ends_with_an_empty_page(place: Place) -> None:
    async with place.process() as process:
        for number in range(6):
            labels = {"desk": "3", "kind": "odd" if number % 2 else "even"}
            await process.sessions.send(f"s{number}", "hello", agent="a", labels=labels if number < 5 else {"kind": "odd"})
            place.clock.advance(1)
        wanted = {"desk": "3", "kind": "odd"}
        first = await process.sessions.list(labels=wanted, limit=1)
        second = await process.sessions.list(labels=wanted, limit=1, after=first.next)
        assert [[info.session_id for info in page] for page in (first, second)] == [["s3"], ["s1"]]
        # The last of them is described anew, so that the page behind it is empty.
        await process.sessions.describe("s1", labels={})
        behind = await process.sessions.list(labels=wanted, limit=1, after=first.next)
        assert (list(behind), behind.next) == ([], None)


@pytest.mark.spec("B-B-154")
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
