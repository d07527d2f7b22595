"""A session in which damage is found is halted: visibly, durably and alone, until it was restored and somebody has it checked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Agent,
    Entry,
    Fenced,
    FunctionModel,
    Halted,
    NothingChanged,
    Reply,
    SessionHalted,
    SessionNotFound,
    StoreBroken,
    StoreCorrupt,
    image,
)
from perdure.runtime.verify import verify
from perdure.testing.faults import Fault

from ..interactive.acting import Place, Process, eventually
from ..media.pictures import png
from .talking import echoing, lines, sound, talk
from .test_archive import Charging

AGENT = echoing()

DAMAGE = "UPDATE journal SET body = CAST(replace(CAST(body AS TEXT), 'hello', 'jello') AS BLOB) WHERE no = 1 AND kind = 'message'"
RESTORE = DAMAGE.replace("'hello', 'jello'", "'jello', 'hello'")

SWAP_CHAIN = """
UPDATE journal SET chain = CAST(substr(chain, 17) || substr(chain, 1, 16) AS BLOB) WHERE id = (SELECT max(id) FROM journal WHERE no = 1)
"""


class Keeping:
    """A consumer that remembers what it got."""

    def __init__(self) -> None:
        self.got: dict[str, list[int]] = {}

    async def __call__(self, session_id: str, entries: Sequence[Entry]) -> None:
        self.got.setdefault(session_id, []).extend(entry.seq for entry in entries)


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    return Place("sqlite", tmp_path / "agents.db")


async def damaged(disk: Place, *statements: str) -> None:
    """Two sessions, and what somebody did to the file while no process had it open."""
    async with disk.process() as process:
        await talk(process, "hello", "follow up")
        await talk(process, "good day", session="t")
        await process.sessions.archive("t")
        await process.sessions.revive("t")
    disk.execute(*statements)


async def last(process: Process, session: str = "s") -> Halted:
    entry = (await process.sessions.entries(session, kinds=("halted",)))[-1]
    assert isinstance(entry, Halted)
    return entry


async def problems(process: Process, session: str = "s") -> list[str]:
    return [str(problem) async for problem in verify(process.store, session)]


@pytest.mark.spec("C-T3-003", "B-A-013", "B-A-016")
async def test_damage_halts_its_session_and_no_other(disk: Place) -> None:
    await damaged(disk, DAMAGE)
    keeping = Keeping()
    async with disk.process() as process:
        version = (await process.row()).version
        with pytest.raises(SessionHalted, match="entry 3 is not what was written") as told:
            await process.run(AGENT, "once more", session="s", submission="m9")
        assert isinstance(told.value.__cause__, StoreCorrupt)
        assert "sessions.repair" in told.value.hint

        row = await process.row()
        assert (row.status, row.holder, row.wake_at, row.version) == ("halted", None, None, version + 1)
        said = await last(process)
        assert (said.seq, said.reason, said.problem) == (version + 1, "damage was found", "entry 3 is not what was written")
        assert (await process.sessions.info("s")).problem == "halted: damage was found: entry 3 is not what was written"
        assert [info.session_id for info in await process.sessions.list(status="halted")] == ["s"]

        await talk(process, "and you?", session="t")
        assert await process.store.runnable(limit=9) == []
        with pytest.raises(SessionHalted):
            await process.consume("audit", keeping, follow=False)
        assert keeping.got == {"t": list(range(1, (await process.row("t")).version + 1))}
        with pytest.raises(SessionHalted):
            await process.sessions.consumer("audit").read("s")


@pytest.mark.spec("B-B-085")
@pytest.mark.parametrize("fails", [("buried",), ("buried", "commit")], ids=" ".join)
async def test_a_store_that_fails_when_damage_was_met_hides_no_damage(disk: Place, fails: tuple[str, ...]) -> None:
    await damaged(disk, DAMAGE)
    # Whether the session was deleted meanwhile, which looks like damage, can't be asked, nor maybe can it be halted.
    async with disk.process(*(Fault(kind=kind, times=9) for kind in fails)) as process:
        with pytest.raises(StoreCorrupt, match="entry 3 is not what was written"):
            await process.sessions.entries("s")
        with pytest.raises(StoreCorrupt if "commit" in fails else SessionHalted, match="entry 3 is not what was written"):
            await process.run(AGENT, "once more", session="s", submission="m9")


@pytest.mark.spec("B-B-206", "B-B-209", "B-B-210")
async def test_what_is_told_of_a_halted_session_in_other_processes_is_where_it_ends_and_no_entries(disk: Place) -> None:
    await damaged(disk, DAMAGE)
    async with disk.process() as process:
        with pytest.raises(SessionHalted) as told:
            await process.run(AGENT, "once more", session="s", submission="m9")
        assert isinstance(told.value.__cause__, StoreCorrupt)
        ends = (await process.row()).version
    async with disk.process() as process:
        for _ in range(2):
            with pytest.raises(SessionHalted) as told:
                await process.sessions.consumer("audit").read("s")
            assert told.value.code == "session_halted"
        assert (await process.sessions.info("s")).version == ends == (await last(process)).seq
        assert await process.sessions.consumer("audit").position("s") == 0


@pytest.mark.spec("C-T3-004", "B-A-015", "B-A-017")
@pytest.mark.hazard("J-2", "J-9", "H11")
async def test_a_halt_outlives_the_process_and_everything_that_would_change_the_session_is_refused(disk: Place) -> None:
    await damaged(disk, DAMAGE.replace("'hello', 'jello'", "'follow', 'fallow'"))
    async with disk.process() as process:
        with pytest.raises(SessionHalted):
            await process.run(AGENT, "once more", session="s", submission="m9")
    async with disk.process() as process:
        before = await process.everything()
        sessions = process.sessions
        assert await process.recover([AGENT]) == []
        for changing in (
            process.recover([AGENT], session="s", force=True),
            process.run(AGENT, "and now?", session="s"),
            process.session("s", AGENT).__aenter__(),
            sessions.send("s", "and now?"),
            sessions.send("s", "and now?", metadata={"a": 1}),
            sessions.note("s", "and now?"),
            sessions.interrupt("s"),
            sessions.compact("s"),
            sessions.describe("s", title="another"),
            sessions.select_route("s", "b"),
            sessions.withdraw("s", "m9"),
            sessions.rewrite("s", (0, 1), ["rather"]),
            sessions.restore("s", "0" * 64),
            sessions.redact("s", 0),
            sessions.attach("s", image(png(6))),
            sessions.archive("s"),
            sessions.revive("s"),
            sessions.halt("s"),
        ):
            with pytest.raises(SessionHalted):
                await changing
        assert await process.everything() == before
        # What is whole can be read, and what is not says so.
        assert [message.parts for message in await sessions.history("s", before=2, limit=2)] != []
        assert [entry.kind for entry in await sessions.entries("s", after=9)][-1] == "halted"
        with pytest.raises(StoreCorrupt):
            await sessions.entries("s")
        # What stands before the damage can be gone on with elsewhere.
        await sessions.fork("s", turn="t2", session_id="f")
        await talk(process, "anew", session="f")
        assert (await lines(process, "f"))[0] == "user: hello"
        assert await problems(process, "f") == []
        # And it can be given up.
        await sessions.delete("s")
        with pytest.raises(SessionNotFound):
            await sessions.repair("s")


@pytest.mark.hazard("J-2", "H11")
async def test_a_repair_lets_go_what_was_restored_and_nothing_else(disk: Place) -> None:
    await damaged(disk, DAMAGE, "UPDATE journal SET at = at + 1 WHERE no = 1 AND seq = 5")
    keeping = Keeping()
    async with disk.process() as process:
        # This one waits while the session is halted.
        await process.sessions.send("s", "later", not_before=process.clock.now() + 50, submission="m8")
        with pytest.raises(SessionHalted):
            await process.run(AGENT, "once more", session="s", submission="m9")
        halted = await process.everything()
        disk.execute(RESTORE)
        with pytest.raises(SessionHalted, match="journal 5: the hash chain breaks here") as told:
            await process.sessions.repair("s", actor="ann")
        assert len(told.value.facts["problems"]) == len(await problems(process))
        assert (await process.row()) == halted[0]
        assert "backup" in told.value.hint
    disk.execute("UPDATE journal SET at = at - 1 WHERE no = 1 AND seq = 5")
    async with disk.process() as process:
        process.clock.advance(100)
        assert await process.store.runnable(limit=9) == []
        info = await process.sessions.repair("s", reason="restored from Monday's backup", actor="ann")
        assert (info.status, info.problem) == ("queued", "")
        said = await last(process)
        assert (said.released, said.reason, said.actor) == (True, "restored from Monday's backup", "ann")
        assert await process.store.runnable(limit=9) == ["s"]
        assert await process.recover([AGENT]) == ["s"]
        assert (await lines(process))[-4:-2] == ["user: later", "assistant: answer 3"]
        await process.consume("audit", keeping, follow=False)
        assert keeping.got["s"] == list(range(1, (await process.row()).version + 1))
        with pytest.raises(NothingChanged):
            await process.sessions.repair("s")
        await sound(process)


@pytest.mark.spec("B-A-018", "B-B-079")
@pytest.mark.parametrize(
    ("damage", "restore"),
    [
        (
            "UPDATE sessions SET checkpoint = CAST('x' || CAST(checkpoint AS TEXT) AS BLOB) WHERE no = 1",
            "UPDATE sessions SET checkpoint = CAST(substr(CAST(checkpoint AS TEXT), 2) AS BLOB) WHERE no = 1",
        ),
        (
            "UPDATE sessions SET checkpoint = CAST(replace(CAST(checkpoint AS TEXT), '\"turns\":2', '\"turns\":3') AS BLOB) WHERE no = 1",
            "UPDATE sessions SET checkpoint = CAST(replace(CAST(checkpoint AS TEXT), '\"turns\":3', '\"turns\":2') AS BLOB) WHERE no = 1",
        ),
        (
            SWAP_CHAIN,
            SWAP_CHAIN,
        ),
    ],
    ids=["a checkpoint that can't be read", "a checkpoint that is another", "the end of the chain"],
)
@pytest.mark.hazard("J-9")
async def test_nothing_is_written_behind_a_damaged_checkpoint_or_end_and_the_catalogue_says_halted(
    disk: Place, damage: str, restore: str
) -> None:
    await damaged(disk, damage)
    async with disk.process() as process:
        before = await process.everything()
        info = await process.sessions.halt("s", reason="verify complains", actor="ann")
        assert info.status == "halted"
        assert "nothing could be written to its journal" in info.problem
        after = await process.everything()
        assert (after[0].version, after[0].checkpoint, after[1:]) == (before[0].version, before[0].checkpoint, before[1:])
        with pytest.raises(SessionHalted):
            await process.sessions.repair("s")
    async with disk.process() as process:
        for changing in (process.sessions.note("s", "x"), process.sessions.archive("s"), process.sessions.rewrite("s", (0, 1), [])):
            with pytest.raises(SessionHalted):
                await changing
        await talk(process, "and you?", session="t")
    disk.execute(restore)
    async with disk.process() as process:
        assert await problems(process) == []
        assert (await process.sessions.repair("s", actor="ann")).status == "idle"
        assert (await last(process)).released
        await talk(process, "and now?")
        await sound(process)


async def test_a_driver_that_meets_a_checkpoint_that_is_none_halts_its_session(disk: Place) -> None:
    await damaged(disk)
    async with disk.process() as process:
        await process.sessions.send("s", "once more")
    disk.execute("UPDATE sessions SET checkpoint = x'00' WHERE no = 1")
    async with disk.process() as process:
        assert await process.recover([AGENT]) in ([], ["s"])
        assert ((await process.row()).status, (await process.row()).wake_at) == ("halted", None)
        assert await process.store.runnable(limit=9) == []


@pytest.mark.parametrize("submission", [None, "m9"])
async def test_whoever_runs_a_session_whose_checkpoint_is_none_halts_it(disk: Place, submission: str | None) -> None:
    await damaged(disk, "UPDATE sessions SET checkpoint = x'00' WHERE no = 1")
    async with disk.process() as process:
        with pytest.raises(SessionHalted, match="the checkpoint can't be read") as told:
            await process.run(AGENT, "once more", session="s", submission=submission)
        assert isinstance(told.value.__cause__, StoreCorrupt)
        assert (await process.row()).status == "halted"
        # Without an id nobody could say later which message was meant, so it was not sent.
        assert [row.submission_id for row in await process.pending()] == ([] if submission is None else ["m9"])
        await talk(process, "and you?", session="t")


async def with_labels_that_can_not_be_read(place: Place, damage: str) -> None:
    async with place.process() as process:
        await process.run(AGENT, "hello", session="s", labels={"desk": "3"})
        await process.run(AGENT, "good day", session="t", labels={"desk": "3"})
    place.execute(f"UPDATE sessions SET labels = {damage} WHERE session_id = 's'")


UNREADABLE_LABELS = pytest.mark.parametrize(
    ("kind", "damage"),
    [("sqlite", "CAST(x'7b22ff223a2233227d' AS TEXT)"), ("sqlite", "'{no json'"), ("postgres", "'[1]'")],
    ids=["no text", "no JSON", "no labels"],
)


@UNREADABLE_LABELS
@pytest.mark.hazard("H9")
async def test_of_a_session_whose_labels_can_not_be_read_all_else_is_read_and_a_halt_writes_them_anew(
    tmp_path: Path, kind: str, damage: str
) -> None:
    place = Place(kind, tmp_path / "agents.db")
    await with_labels_that_can_not_be_read(place, damage)
    async with place.process() as process:
        before, sessions = await process.everything(), process.sessions

        assert {info.session_id for info in await sessions.list(labels={"desk": "3"})} == {"t"}
        told = {info.session_id: (info.labels, info.problem.partition(":")[0]) for info in await sessions.list()}
        assert told == {"s": ({}, "its labels can't be read"), "t": ({"desk": "3"}, "")}
        assert (await sessions.info("s")).problem.startswith("its labels can't be read")
        assert [message.text for message in await sessions.history("s")] == ["hello", "answer 1"]
        assert any("sessions: its labels can't be read" in problem for problem in await problems(process))
        assert {problem.session_id async for problem in verify(process.faulty.inner)} == {"s"}
        for changing in (
            sessions.note("s", "and now?"),
            sessions.describe("s", labels={}),
            sessions.rewrite("s", (0, 1), ["rather"]),
            sessions.archive("s"),
        ):
            with pytest.raises(StoreCorrupt, match="its labels can't be read") as refused:
                await changing
            assert "sessions.halt" in refused.value.hint
        assert await process.everything() == before

        halted = await sessions.halt("s", actor="ann")
        assert (halted.status, halted.labels) == ("halted", {"desk": "3"})
        assert "its labels can't be read" in (await last(process)).problem
        assert (await sessions.repair("s")).status == "idle"
        for name in ("s", "t"):
            assert (await process.run(AGENT, "and now?", session=name, submission="m2")).ok
        assert await problems(process) == []


@UNREADABLE_LABELS
async def test_whoever_takes_up_a_session_whose_labels_can_not_be_read_halts_it(tmp_path: Path, kind: str, damage: str) -> None:
    place = Place(kind, tmp_path / "agents.db")
    await with_labels_that_can_not_be_read(place, damage)
    async with place.process() as process:
        with pytest.raises(SessionHalted, match="its labels can't be read") as told:
            await process.run(AGENT, "once more", session="s", submission="m9")
        assert isinstance(told.value.__cause__, StoreCorrupt)
        assert (await process.row()).labels == {"desk": "3"}
        assert await process.store.runnable(limit=9) == []


@UNREADABLE_LABELS
async def test_a_session_whose_labels_can_not_be_read_is_deleted_and_keeps_none_of_its_tree_from_it(
    tmp_path: Path, kind: str, damage: str
) -> None:
    place = Place(kind, tmp_path / "agents.db")
    async with place.process() as process:
        await talk(process, "hello")
        for name in ("bad", "good"):
            await process.sessions.fork("s", session_id=name)
    place.execute(f"UPDATE sessions SET labels = {damage} WHERE session_id = 'bad'")
    async with place.process() as process:
        await process.sessions.delete("good")
        await process.sessions.delete("bad")
        assert [info.session_id for info in await process.sessions.list()] == ["s"]
        assert [str(problem) async for problem in verify(process.store)] == []


@pytest.mark.parametrize(
    ("counter", "value"),
    [("number", -1), ("number", 2**70), ("number", 3), ("number", 5), ("version", 99)],
    ids=["fewer than none", "more than can be", "one fewer", "one more", "another entry"],
)
async def test_nothing_is_built_on_a_checkpoint_that_counts_otherwise_than_its_journal(disk: Place, counter: str, value: int) -> None:
    await damaged(disk)
    async with disk.process() as process:
        checkpoint = (await process.row()).checkpoint
    changed = re.sub(rb'"%b":\d+' % counter.encode(), b'"%b":%d' % (counter.encode(), value), checkpoint)
    disk.execute(f"UPDATE sessions SET checkpoint = x'{changed.hex()}' WHERE no = 1")
    async with disk.process() as process:
        before, sessions = await process.everything(), process.sessions
        for changing in (
            sessions.note("s", "and now?"),
            sessions.describe("s", title="another"),
            sessions.rewrite("s", (0, 1), ["rather"]),
            sessions.archive("s"),
            sessions.fork("s"),
        ):
            with pytest.raises(StoreCorrupt, match="the checkpoint"):
                await changing
        assert await process.everything() == before
        assert [problem for problem in await problems(process) if "checkpoint" in problem] != []
        assert (await sessions.halt("s")).status == "halted"
        await talk(process, "and you?", session="t")


@pytest.mark.spec("B-A-014")
async def test_a_halt_that_can_not_be_written_hides_no_damage_and_comes_with_the_next_attempt(
    disk: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await damaged(disk, DAMAGE)
    async with disk.process(Fault(kind="commit")) as process:
        with pytest.raises(StoreCorrupt, match="entry 3 is not what was written"):
            await process.run(AGENT, "once more", session="s", submission="m9")
        assert "the session s is damaged and could not be halted" in caplog.text
        assert (await process.row()).status != "halted"
        with pytest.raises(SessionHalted):
            await process.run(AGENT, "once more", session="s", submission="m9")
        assert (await process.row()).status == "halted"


async def test_of_those_who_repair_at_once_one_does_and_the_others_are_told(place: Place) -> None:
    async with place.process() as one, place.process() as other:
        await talk(one, "hello")
        await one.sessions.halt("s")
        answers = await asyncio.gather(*(process.sessions.repair("s") for process in (one, other, one)), return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["NothingChanged", "NothingChanged", "SessionInfo"]
        assert [entry.kind for entry in await one.sessions.entries("s")].count("halted") == 2
        await sound(one)


async def test_an_operator_halts_a_running_session_and_it_goes_on_where_it_was(place: Place) -> None:
    charging = Charging()
    async with place.process() as holder, place.process() as other:
        running = asyncio.create_task(holder.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()
        info = await other.sessions.halt("s", reason="looks wrong", actor="ann")
        assert (info.status, info.problem, info.holder) == ("halted", "halted: looks wrong", None)
        with pytest.raises((Fenced, SessionHalted)):
            await running
        assert await problems(other) == []
        assert await other.recover([charging.agent]) == []
        # What the call came to is kept, and waits.
        await other.sessions.report(charging.token, "charged 5")
        assert [row.kind for row in await other.pending()] == ["result"]
        assert ((await other.row()).status, (await other.row()).wake_at) == ("halted", None)
        assert await problems(other) == []
        assert (await other.sessions.repair("s", actor="ann")).status == "queued"
        assert await other.recover([charging.agent]) == ["s"]
        result = await other.sessions.result("s", "m1")
        assert result is not None
        assert (result.status, result.output) == ("completed", "ok")
        assert not await other.sessions.uncertain("s")
        await sound(other)
        charging.go_on.set()
        await eventually(charging.ended.wait)
    assert charging.charged == 1


async def test_an_archived_session_that_is_halted_and_repaired_is_archived_again(place: Place) -> None:
    async with place.process() as process:
        await talk(process, "hello")
        await process.sessions.archive("s")
        assert (await process.sessions.halt("s")).problem == "halted: somebody stopped it"
        assert (await process.sessions.repair("s")).status == "archived"
        await process.sessions.revive("s")
        await talk(process, "again")
        await sound(process)


async def test_a_session_that_is_whole_is_not_halted_for_an_error_that_says_otherwise(place: Place) -> None:
    def answer(request: Any) -> Reply:
        raise StoreCorrupt("another file is damaged")

    async with place.process() as process:
        broken = Agent("helper", model=FunctionModel(answer))
        with pytest.raises(StoreCorrupt):
            await process.run(broken, "hello", session="s")
        assert (await process.row()).status != "halted"


async def test_a_session_that_is_whole_is_not_found_damaged_because_the_store_failed_for_a_moment(tmp_path: Path) -> None:
    memory, nth, failed = Place("memory", tmp_path), 0, True
    while failed:
        nth += 1
        session = f"s{nth}"
        async with memory.process() as process:
            await talk(process, "hello", session=session)
        async with memory.process(Fault(kind="any", nth=nth)) as process:
            try:
                await process.sessions.halt(session, reason="to be sure")
                failed = False
            except StoreBroken:
                pass
            process.faulty.faults = ()
            said = [entry for entry in await process.sessions.entries(session, kinds=("halted",)) if isinstance(entry, Halted)]
            assert [entry.problem for entry in said] == [""] * len(said)
            assert ((await process.row(session)).status == "halted") == bool(said)
    assert nth > 10
