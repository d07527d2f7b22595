"""Consumers: everything is delivered at least once and in order, and who fails to take it harms nobody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Entry, FunctionModel, JsonLines, SessionHalted, SessionNotFound, StoreCorrupt, UsageError
from perdure.testing import VirtualClock
from perdure.testing.faults import Fault

from ..interactive.acting import Place, eventually

PLAIN = Agent("a", model=FunctionModel(lambda request: "ok"))


class Keeping:
    """A consumer's handler that remembers, and fails where it is told to."""

    def __init__(self) -> None:
        self.got: dict[str, list[int]] = {}
        self.failing: dict[str, int] = {}

    async def __call__(self, session_id: str, entries: Sequence[Entry]) -> None:
        if self.failing.get(session_id, 0):
            self.failing[session_id] -= 1
            raise RuntimeError("not today")
        self.got.setdefault(session_id, []).extend(entry.seq for entry in entries)


async def three(process: Any) -> None:
    for name in ("one", "two", "three"):
        await process.run(PLAIN, "hello", session=name, submission="m1")


@pytest.mark.spec("E-054")
async def test_a_consumer_gets_every_entry_of_every_session_once_it_acknowledges_them(place: Place) -> None:
    keeping = Keeping()
    async with place.process() as process:
        await three(process)
        await process.sessions.archive("two")
        await process.consume("audit", keeping, follow=False)
        versions = {name: (await process.row(name)).version for name in ("one", "two", "three")}
        assert keeping.got == {name: list(range(1, version + 1)) for name, version in versions.items()}
        consumer = process.sessions.consumer("audit")
        assert await consumer.news() == []
        assert await consumer.position("one") == versions["one"]
        await process.run(PLAIN, "more", session="one", submission="m2")
        assert await consumer.news() == ["one"]
    # Another process goes on where it was.
    async with place.process() as process:
        await process.consume("audit", keeping, follow=False)
        assert keeping.got["one"] == list(range(1, (await process.row("one")).version + 1))
        other = Keeping()
        await process.consume("another", other, follow=False)
        assert other.got == keeping.got


@pytest.mark.spec("S0-212", "S0-098", "S0-100")
async def test_reading_acknowledges_nothing_and_acknowledging_twice_is_acknowledging_once(place: Place) -> None:
    async with place.process() as process:
        await three(process)
        consumer = process.sessions.consumer("audit")
        first = await consumer.read("one", limit=2)
        assert [entry.seq for entry in first] == [1, 2]
        assert await consumer.read("one", limit=2) == first
        assert await consumer.ack("one", 2) == 2
        assert await consumer.ack("one", 2) == 2
        assert await consumer.ack("one", 1) == 2
        assert [entry.seq for entry in await consumer.read("one", limit=2)] == [3, 4]
        for wrong in (-1, 10_000, "2", True, 1.0):
            with pytest.raises(UsageError):
                await consumer.ack("one", wrong)  # type: ignore[arg-type]
        for operation in (consumer.read("never"), consumer.ack("never", 1), consumer.position("never")):
            with pytest.raises(SessionNotFound):
                await operation
        for name in ("", "\n", "x" * 300, 7):
            with pytest.raises(UsageError):
                process.sessions.consumer(name)  # type: ignore[arg-type]
        before = await process.everything("one")
        await consumer.delete()
        assert await consumer.position("one") == 0
        assert await process.everything("one") == before


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_was_not_acknowledged_when_the_process_died_comes_again(place: Place, when: Any) -> None:
    keeping = Keeping()
    async with place.process() as process:
        await three(process)
    async with place.process(Fault(kind="ack", nth=2, when=when, action="die")) as process:
        with pytest.raises(Exception, match="dead"):
            await process.consume("audit", keeping, follow=False)
    async with place.process() as process:
        await process.consume("audit", keeping, follow=False)
        for name in ("one", "two", "three"):
            assert sorted(set(keeping.got[name])) == list(range(1, (await process.row(name)).version + 1))
        twice = [name for name, seqs in keeping.got.items() if len(seqs) > len(set(seqs))]
        assert twice == (["two"] if when == "before" else [])


@pytest.mark.spec("B-A-005", "B-B-214")
async def test_a_session_that_cannot_be_taken_delays_no_other_and_is_tried_again(place: Place) -> None:
    keeping = Keeping()
    keeping.failing["two"] = 2
    async with place.process() as process:
        await three(process)
        with pytest.raises(RuntimeError, match="not today"):
            await process.consume("audit", keeping, follow=False)
        assert set(keeping.got) == {"one", "three"}
        following = asyncio.create_task(process.consume("audit", keeping))
        await eventually(lambda: keeping.failing["two"] == 0)
        # Agents work on meanwhile, and the others are delivered.
        assert (await process.run(PLAIN, "more", session="one", submission="m2")).ok
        version = (await process.row("one")).version
        await eventually(lambda: keeping.got["one"][-1] == version)
        assert "two" not in keeping.got
        await eventually(lambda: place.clock.next == place.clock.now() + 1_000)
        place.clock.advance(1_000)
        await eventually(lambda: "two" in keeping.got)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert keeping.got["two"] == list(range(1, (await process.row("two")).version + 1))


async def test_following_hears_of_what_other_processes_do(place: Place) -> None:
    keeping = Keeping()
    async with place.process() as process, place.process() as other:
        following = asyncio.create_task(process.consume("audit", keeping))
        await three(other)

        async def complete() -> bool:
            if place.clock.next == place.clock.now() + 1_000:
                place.clock.advance(1_000)
            rows = [await other.row(name) for name in ("one", "two", "three")]
            return all(keeping.got.get(row.session_id, [0])[-1] == row.version for row in rows)

        await eventually(complete)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@pytest.mark.spec("E-053")
async def test_a_note_is_a_line_of_its_sessions_file_and_the_last_one(place: Place, tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "out")
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="one", submission="m1")
        await process.consume("files", lines, follow=False)
        await process.sessions.note("one", "it rains")
        await process.consume("files", lines, follow=False)
        version = (await process.row("one")).version
        assert await process.sessions.consumer("files").position("one") == version
        told = [json.loads(line) for line in lines.path("one").read_bytes().splitlines()]
        assert (told[-1]["seq"], told[-1]["kind"], told[-1]["body"]["text"]) == (version, "note_added", "it rains")
        kinds = [line.get("kind") for line in told]
        assert kinds.index("turn_started") < kinds.index("turn_completed") < kinds.index("note_added")


@pytest.mark.hazard("J-1")
async def test_every_session_is_a_file_of_lines_that_heals(place: Place, tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "out")
    awkward = "../a b/..\u2603" + "x" * 200
    async with place.process() as process:
        for name in ("one", awkward):
            await process.run(PLAIN, "hello", session=name, submission="m1")
        await process.consume("files", lines, follow=False)

        async def whole(name: str) -> bool:
            first, *rest = [json.loads(line) for line in lines.path(name).read_bytes().splitlines()]
            entries = await process.sessions.entries(name)
            assert first == {"session": name}
            return [(line["seq"], line["kind"], line["at"]) for line in rest] == [(entry.seq, entry.kind, entry.at) for entry in entries]

        assert await whole("one")
        assert await whole(awkward)
        assert [path.parent for path in (tmp_path / "out").iterdir()] == [tmp_path / "out"] * 2
        assert (await lines.known()) == sorted([awkward, "one"], key=lambda name: lines.path(name).name)
        # A crash cut the last line off; another file is gone.
        path = lines.path("one")
        path.write_bytes(path.read_bytes()[:-7])
        lines.path(awkward).unlink()
        for name in ("one", awkward):
            await process.run(PLAIN, "more", session=name, submission="m2")
        await process.consume("files", lines, follow=False)
        assert await whole("one")
        assert await whole(awkward)
        # Given again, nothing is written twice.
        await lines.project("one", await process.sessions.entries("one"))
        assert await whole("one")
        # What was deleted is gone here too.
        await process.sessions.delete("one")
        await process.consume("files", lines, follow=False)
        assert not path.exists()


async def test_a_file_that_tells_another_history_than_a_restored_store_is_left_and_told(tmp_path: Path) -> None:
    clock = VirtualClock()
    path, lines = tmp_path / "agents.db", JsonLines(tmp_path / "out")
    agent = Agent("a", model=FunctionModel(lambda request: "ok"))
    async with perdure.open(path, clock=clock) as runtime:
        await runtime.run(agent, "one", session="s")
    kept = path.read_bytes()
    async with perdure.open(path, clock=clock) as runtime:
        await runtime.run(agent, "two", session="s")
        await runtime.consume("files", lines, follow=False)
    before = lines.path("s").read_bytes()
    path.write_bytes(kept)
    clock.advance(1000)
    async with perdure.open(path, clock=clock) as runtime:
        await runtime.run(agent, "another two", session="s")
        await runtime.run(agent, "three", session="s")
        with pytest.raises(UsageError, match="holds another entry 8 than the store"):
            await runtime.consume("files", lines, follow=False)
        assert lines.path("s").read_bytes() == before
        lines.path("s").unlink()
        await runtime.consume("files", lines, follow=False)
        assert await lines.position("s") == 19


@pytest.mark.spec("B-B-208")
async def test_what_was_lost_of_a_quiet_session_is_delivered_again_where_that_is_asked_for(place: Place, tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "out")
    async with place.process() as process:
        await three(process)
        await process.sessions.archive("two")
        await process.sessions.halt("three")
        await process.run(PLAIN, "hello", session="four", submission="m1")
        with pytest.raises(SessionHalted):
            await process.consume("files", lines, follow=False)
        await process.sessions.repair("three")
        await process.consume("files", lines, follow=False)
        await process.sessions.halt("three")
        with pytest.raises(SessionHalted):
            await process.consume("files", lines, follow=False)
        before = {name: lines.path(name).read_bytes() for name in ("one", "two", "four")}
        # One file is gone, another one lost its end, and nothing happens in their sessions any more.
        lines.path("one").unlink()
        lines.path("two").write_bytes(before["two"][:-7])
        cursor = await process.sessions.consumer("files").position("one")
        with pytest.raises(SessionHalted):
            await process.consume("files", lines, follow=False)
        assert not lines.path("one").exists()
        with pytest.raises(SessionHalted):
            await process.consume("files", lines, follow=False, heal=True)
        assert {name: lines.path(name).read_bytes() for name in before} == before
        assert await process.sessions.consumer("files").position("one") == cursor
        # Who keeps nothing has lost nothing.
        keeping = Keeping()
        await process.sessions.repair("three")
        await process.consume("audit", keeping, follow=False)
        got = {name: list(seqs) for name, seqs in keeping.got.items()}
        await process.consume("audit", keeping, follow=False, heal=True)
        assert keeping.got == got


@pytest.mark.spec("C-T3-002", "B-A-004", "B-A-025")
@pytest.mark.hazard("H11")
async def test_a_projection_that_fails_for_good_degrades_only_itself(place: Place, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the directory should be")
    lines = JsonLines(tmp_path / "out")
    async with place.process() as process:
        await three(process)
        before = await process.everything("one")
        with pytest.raises((FileExistsError, NotADirectoryError)):
            await process.consume("files", lines, follow=False)
        assert await process.everything("one") == before
        assert await process.sessions.consumer("files").position("one") == 0
        assert (await process.run(PLAIN, "more", session="one", submission="m2")).ok
        (tmp_path / "out").unlink()
        await process.consume("files", lines, follow=False)
        assert len(lines.path("one").read_bytes().splitlines()) == 1 + (await process.row("one")).version


@pytest.mark.spec("S0-217", "B-B-207")
async def test_a_damaged_session_is_not_delivered_and_the_others_are(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    keeping = Keeping()
    async with place.process() as process:
        await three(process)
    place.execute("UPDATE journal SET body = x'00' WHERE no = 2 AND seq = 3")
    async with place.process() as process:
        with pytest.raises(StoreCorrupt, match="entry 3"):
            await process.consume("audit", keeping, follow=False)
        assert set(keeping.got) == {"one", "three"}
        assert all(seqs == sorted(seqs) for seqs in keeping.got.values())
        assert await process.sessions.consumer("audit").news() == ["two"]
