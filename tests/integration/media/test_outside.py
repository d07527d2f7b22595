"""Large content outside of the database: first the bytes, then the commit; at most an orphan, never a reference to nothing."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    ContentElsewhere,
    DirectoryBlobs,
    FunctionModel,
    ModelRequest,
    Reply,
    SessionArchived,
    SessionHalted,
    SessionNotFound,
    StoreCorrupt,
    SubmissionConflict,
    Uri,
)
from perdure.core.errors import StoreBroken, StoreFull
from perdure.store.audit import Auditable
from perdure.store.base import Store
from perdure.store.outside import Swept, WithBlobs
from perdure.testing.faults import Fault, FaultStore

from ..interactive.acting import Place
from ..runtime.test_verify import problems_in
from .pictures import big_png, png

SIZE = 100_000
ONE, TWO = perdure.image(big_png(SIZE, 1)), perdure.image(big_png(SIZE, 2))


class Audited(FaultStore):
    """Faults, and what deletions look at."""

    async def heads(self, **page: Any) -> Any:
        assert isinstance(self.inner, Auditable)
        return await self.inner.heads(**page)

    async def strays(self, **page: Any) -> Any:
        assert isinstance(self.inner, Auditable)
        return await self.inner.strays(**page)

    async def cursors(self, no: int) -> Any:
        assert isinstance(self.inner, Auditable)
        return await self.inner.cursors(no)


class OutsidePlace(Place):
    """A place whose large content stands in a directory beside it."""

    blobs_at: Path
    faults: tuple[Fault, ...] = ()
    blobs_class: type[DirectoryBlobs] = DirectoryBlobs

    def connect(self) -> Store:
        return WithBlobs(Audited(super().connect(), faults=self.faults), self.blobs_class(self.blobs_at))

    def files(self) -> set[str]:
        return {path.name for path in self.blobs_at.glob("*/*")}


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> OutsidePlace:
    made = OutsidePlace(request.param, tmp_path / "agents.db", auto=True)
    made.blobs_at = tmp_path / "blobs"
    return made


def outside(process: Any) -> WithBlobs:
    store = process.store.inner
    assert isinstance(store, WithBlobs)
    return store


def looking(seen: list[ModelRequest]) -> Agent:
    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return Reply("seen")

    return Agent("looker", model=FunctionModel(answer))


async def test_large_content_stands_in_the_directory_and_small_in_the_database(place: OutsidePlace) -> None:
    seen: list[ModelRequest] = []
    small = perdure.image(png(3))
    async with place.process() as process:
        assert (await process.run(looking(seen), ["look", ONE, small], session="s")).ok
        assert seen[0].content == {ONE.blob.digest: ONE.data, small.blob.digest: small.data}
        assert place.files() == {ONE.blob.digest}
        assert await problems_in(process.store) == []
    async with place.process() as process:
        assert (await process.run(looking(seen), "again", session="s")).ok
        assert seen[1].content == seen[0].content
    if place.kind == "sqlite":
        held = b"".join(path.read_bytes() for path in place.path.parent.glob("agents.db*") if path.is_file())
        assert ONE.data[:200] not in held
        assert base64.b64encode(ONE.data)[:200] not in held


async def test_a_database_without_its_directory_says_so_and_shows_no_gap(tmp_path: Path) -> None:
    path, seen = str(tmp_path / "agents.db"), list[ModelRequest]()
    async with perdure.open(path, blobs=DirectoryBlobs(tmp_path / "blobs")) as runtime:
        await runtime.run(looking(seen), ONE, session="s")
    async with perdure.open(path) as runtime:
        with pytest.raises(ContentElsewhere, match="blobs="):
            await runtime.run(looking(seen), "again", session="s")
        assert any("stands outside" in str(problem) for problem in await problems_in(runtime.store))
    async with perdure.open(str(tmp_path / "other.db"), blobs=DirectoryBlobs(tmp_path / "new")) as runtime:
        await runtime.run(looking(seen), TWO, session="s")
    with pytest.raises(perdure.UsageError, match="another database"):
        async with perdure.open(path, blobs=DirectoryBlobs(tmp_path / "new")):
            pass
    async with perdure.open(path, blobs=DirectoryBlobs(tmp_path / "blobs")) as runtime:
        assert await runtime.sessions.content("s", ONE.blob) == ONE.data
        await runtime.recover([looking(seen)], session="s")
        assert len(await runtime.sessions.history("s")) == 4


@pytest.mark.parametrize("damage", ["not given", "gone", "altered", "unreadable"])
async def test_a_session_whose_metadata_cannot_be_read_is_listed_with_why_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    path, blobs, large = str(tmp_path / "agents.db"), tmp_path / "blobs", {"notes": "x" * 80_000}
    async with perdure.open(path, blobs=DirectoryBlobs(blobs)) as runtime:
        for name in ("one", "bad", "two"):
            await runtime.run(looking([]), "hello", session=name, submission="m1", owner="acme")
        await runtime.sessions.describe("bad", metadata=large)
        assert (await runtime.sessions.info("bad")).metadata == large
    [there] = [file for file in blobs.glob("*/*") if file.is_file()]
    match damage:
        case "gone":
            there.unlink()
        case "altered":
            there.write_bytes(b"{}")
        case "unreadable":

            def fails(name: str, directory: int) -> int:
                raise OSError(errno.EIO, "the disk")

            monkeypatch.setattr("perdure.store.blobs._reading", fails)
    async with perdure.open(path, blobs=None if damage == "not given" else DirectoryBlobs(blobs)) as runtime:
        found = {info.session_id: (info.problem != "", info.identity.owner, info.title) for info in await runtime.sessions.list()}
        assert found == {"one": (False, "acme", "hello"), "bad": (True, "acme", "hello"), "two": (False, "acme", "hello")}
        assert (await runtime.sessions.info("bad")).metadata is None
        # What can't be compared is no reason to believe that it is what is wanted.
        assert (await runtime.sessions.ensure_metadata("bad", {})).problem == ""
    with pytest.raises(perdure.RuntimeClosed):
        await runtime.sessions.list()


async def test_a_directory_in_which_the_content_does_not_stand_is_refused_and_none_is_made(tmp_path: Path) -> None:
    path, right, wrong, seen = str(tmp_path / "agents.db"), tmp_path / "blobs", tmp_path / "blosb", list[ModelRequest]()
    # Who only looks, or stores nothing large, makes no directory.
    async with perdure.open(path, blobs=DirectoryBlobs(right)) as runtime:
        await runtime.run(looking(seen), "hello", session="s")
        assert (await runtime.sessions.sweep(grace=0)).removed == 0
    assert not right.exists()
    async with perdure.open(path, blobs=DirectoryBlobs(right)) as runtime:
        await runtime.run(looking(seen), ONE, session="s")
    files = {file: file.read_bytes() for file in tmp_path.glob("agents.db*") if file.is_file() and not file.name.endswith("-shm")}
    for made in (False, True):
        if made:
            wrong.mkdir()
        with pytest.raises(perdure.UsageError, match="doesn't stand in") as told:
            async with perdure.open(path, blobs=DirectoryBlobs(wrong)):
                pass
        assert "was moved to" in told.value.hint
        assert wrong.exists() == made
    assert {file: file.read_bytes() for file in files} == files
    # Moved, it is the same place; so it is where all of its content was deleted.
    right.rename(tmp_path / "elsewhere")
    async with perdure.open(path, blobs=DirectoryBlobs(tmp_path / "elsewhere")) as runtime:
        assert await runtime.sessions.content("s", ONE.blob) == ONE.data
        await runtime.sessions.delete("s")
    with pytest.raises(perdure.UsageError, match="doesn't stand in"):
        async with perdure.open(path, blobs=DirectoryBlobs(wrong)):
            pass


async def test_of_two_directories_the_one_that_had_content_first_is_the_place(tmp_path: Path) -> None:
    path, seen = str(tmp_path / "agents.db"), list[ModelRequest]()
    first, second = (DirectoryBlobs(tmp_path / name) for name in ("first", "second"))
    async with perdure.open(path, blobs=first) as one, perdure.open(path, blobs=second) as two:
        await two.run(looking(seen), "hello", session="t")
        await one.run(looking(seen), ONE, session="s")
        with pytest.raises(perdure.UsageError, match="doesn't stand in"):
            await two.sessions.content("s", ONE.blob)
        before = await two.sessions.entries("t")
        with pytest.raises(perdure.UsageError, match="doesn't stand in"):
            await two.sessions.send("t", TWO, submission="m2")
        assert await two.sessions.entries("t") == before
        assert (await two.run(looking(seen), "and on", session="t")).ok
    assert not (tmp_path / "second").exists()


@pytest.mark.spec("D-035")
@pytest.mark.parametrize("damage", ["gone", "altered"])
async def test_missing_or_altered_bytes_are_an_error_everywhere(place: OutsidePlace, damage: str) -> None:
    seen: list[ModelRequest] = []
    async with place.process() as process:
        await process.run(looking(seen), ONE, session="s")
    path = place.blobs_at / ONE.blob.digest[:2] / ONE.blob.digest
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(ONE.data[:-1] + b"x")
    async with place.process() as process:
        with pytest.raises(SessionHalted, match=ONE.blob.digest):
            await process.run(looking(seen), "again", session="s")
        with pytest.raises(StoreCorrupt):
            await process.sessions.content("s", ONE.blob)
        assert len(seen) == 1
        assert (await process.sessions.history("s"))[0].parts == (ONE.blob,)
        assert any(ONE.blob.digest in str(problem) for problem in await problems_in(process.store))


@pytest.mark.spec("D-039", "B-B-105")
@pytest.mark.parametrize("damage", ["gone", "altered"])
async def test_the_same_submission_again_repairs_lost_bytes_before_it_is_acknowledged(place: OutsidePlace, damage: str) -> None:
    async with place.process() as process:
        await process.run(looking([]), ONE, session="s", submission="k")
        path = place.blobs_at / ONE.blob.digest[:2] / ONE.blob.digest
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(b"x")
        before = await process.everything()
        again = Uri(uri="data:image/png;base64," + base64.b64encode(ONE.data).decode())
        assert (await process.sessions.send("s", again, submission="k")).duplicate
        assert path.read_bytes() == ONE.data
        assert await process.everything() == before


@pytest.mark.spec("D-037", "B-B-104")
async def test_a_conflict_is_decided_before_any_byte_is_put(place: OutsidePlace) -> None:
    puts: list[str] = []

    class Watched(DirectoryBlobs):
        async def put(self, digest: str, data: bytes) -> None:
            puts.append(digest)
            await super().put(digest, data)

    place.blobs_class = Watched
    async with place.process() as process:
        await process.run(looking([]), ONE, session="s", submission="k")
        with pytest.raises(SubmissionConflict):
            await process.sessions.send("s", TWO, submission="k")
        assert puts == [ONE.blob.digest]


@pytest.mark.spec("B-B-122")
async def test_an_archived_session_takes_no_content_and_keeps_no_file_of_it(place: OutsidePlace) -> None:
    async with place.process() as process:
        await process.run(looking([]), "hello", session="s", submission="k")
        await process.sessions.archive("s")
        before = await process.everything()
        for attempt in (process.sessions.send("s", ONE), process.sessions.attach("s", TWO), process.run(looking([]), ONE, session="s")):
            with pytest.raises(SessionArchived) as told:
                await attempt
            assert isinstance(told.value, SessionNotFound)
        assert await process.everything() == before
        assert place.files() == set()


@pytest.mark.spec("D-044", "B-B-124")
async def test_a_redaction_reaches_the_file_and_the_old_submission_brings_nothing_back(place: OutsidePlace) -> None:
    async with place.process() as process:
        await process.run(looking([]), ONE, session="s", submission="k")
        await process.run(looking([]), TWO, session="s")
        await process.sessions.redact("s", positions=[0], reason="private")
        assert place.files() == {TWO.blob.digest}
        assert (await process.sessions.send("s", ONE, submission="k")).duplicate
        assert place.files() == {TWO.blob.digest}
        assert await problems_in(process.store) == []


async def test_a_file_that_two_trees_hold_goes_with_the_last_of_them(place: OutsidePlace) -> None:
    async with place.process() as process:
        await process.run(looking([]), ONE, session="one")
        await process.run(looking([]), ONE, session="two")
        await process.sessions.fork("one", at=2, session_id="branch")
        await process.sessions.delete("one")
        assert await process.sessions.content("branch", ONE.blob) == ONE.data
        await process.sessions.delete("branch")
        assert place.files() == {ONE.blob.digest}
        assert await process.sessions.content("two", ONE.blob) == ONE.data
        await process.sessions.delete("two")
        assert place.files() == set()


@pytest.mark.spec("D-040", "B-B-118", "B-B-074")
@pytest.mark.parametrize("error", [StoreFull("full"), StoreBroken("broken"), StoreCorrupt("reads otherwise")])
async def test_if_the_bytes_cannot_be_kept_nothing_is_written(place: OutsidePlace, error: Exception) -> None:
    class Failing(DirectoryBlobs):
        failing = True

        async def put(self, digest: str, data: bytes) -> None:
            if Failing.failing:
                raise error
            await super().put(digest, data)

    place.blobs_class = Failing
    async with place.process() as process:
        await process.sessions.send("s", "hello", submission="m")
        before = await process.everything()
        for content in (ONE, ["and", ONE]):
            with pytest.raises(type(error)):
                await process.sessions.send("s", content, submission="k")
            with pytest.raises(type(error)):
                await process.sessions.send("new", content, submission="k")
            with pytest.raises(type(error)):
                await process.sessions.attach("s", ONE)
        assert await process.everything() == before
        assert await process.store.load("new") is None
        assert place.files() == set()
        Failing.failing = False
        assert not (await process.sessions.send("s", ONE, submission="k")).duplicate


@pytest.mark.spec("D-041", "D-043", "B-B-115")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_send_that_fails_around_its_commit_leaves_an_orphan_at_most_and_is_sent_again_once(place: OutsidePlace, when: Any) -> None:
    seen: list[ModelRequest] = []
    place.faults = (Fault(kind="send", nth=1, when=when),)
    async with place.process() as process:
        with pytest.raises(StoreBroken):
            await process.sessions.send("s", ONE, submission="k", agent="looker")
        assert (await process.store.load("s") is not None) == (when == "after")
        # the bytes are there, whole, and no entry has them
        assert place.files() == {ONE.blob.digest}
        # nobody refers to them, or somebody does: the sweep knows
        swept = await outside(process).sweep(grace=0)
        assert swept == (Swept() if when == "after" else Swept(removed=1, size=SIZE))
    place.faults = ()
    async with place.process() as process:
        assert (await process.run(looking(seen), ONE, session="s", submission="k")).ok
        assert [message.role for message in await process.sessions.history("s")] == ["user", "assistant"]
        assert seen[0].content == {ONE.blob.digest: ONE.data}
        assert await problems_in(process.store) == []


async def test_a_refused_commit_takes_its_bytes_back(place: OutsidePlace) -> None:
    async with place.process() as process:
        await process.run(looking([]), "hello", session="s")
        await process.sessions.archive("s")
        with pytest.raises(perdure.SessionArchived):
            await process.sessions.send("s", ONE)
        assert place.files() == set()


async def test_a_sweep_cannot_come_between_the_bytes_and_their_commit(place: OutsidePlace) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def gate(call: Any, when: str) -> None:
        if call.kind == "send" and when == "before":
            arrived.set()
            await go_on.wait()

    async with place.process() as process, place.process() as sweeper:
        store = outside(process)
        assert isinstance(store.inner, FaultStore)
        store.inner.gate = gate
        # given an old orphan of the very bytes that somebody sends now
        await store.outside_store.found(store.store_id)
        await store.outside_store.put(ONE.blob.digest, ONE.data)
        os.utime(place.blobs_at / ONE.blob.digest[:2] / ONE.blob.digest, ns=(5, 5))
        sending = asyncio.create_task(process.sessions.send("s", ONE))
        await arrived.wait()
        # when another process sweeps before the commit: the pin keeps it, whatever the age
        assert await outside(sweeper).sweep(grace=0) == Swept(pinned=1)
        # and so does the age
        assert await outside(sweeper).sweep(grace=60) == Swept()
        go_on.set()
        await sending
        assert await outside(sweeper).sweep(grace=0) == Swept()
        assert await sweeper.sessions.content("s", ONE.blob) == ONE.data


async def test_a_sender_that_is_cancelled_leaves_no_reference_without_its_bytes(place: OutsidePlace) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def gate(call: Any, when: str) -> None:
        if call.kind == "send" and when == "before":
            arrived.set()
            await go_on.wait()

    async with place.process() as process:
        store = outside(process)
        assert isinstance(store.inner, FaultStore)
        store.inner.gate = gate
        sending = asyncio.create_task(process.sessions.send("s", ONE))
        await arrived.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        # what began goes on, and its pin with it
        assert await store.sweep(grace=0) == Swept(pinned=1)
        go_on.set()
        while await process.store.load("s") is None:
            await asyncio.sleep(0.001)
        assert await process.sessions.content("s", ONE.blob) == ONE.data


async def test_vacuum_leaves_no_orphan_and_nothing_half_done(place: OutsidePlace) -> None:
    async with place.process() as process:
        await process.run(looking([]), ONE, session="s")
        await outside(process).outside_store.put(TWO.blob.digest, TWO.data)
        (place.blobs_at / ONE.blob.digest[:2] / ".put-x").write_bytes(TWO.data)
        await process.store.vacuum()
        assert place.files() == {ONE.blob.digest}


async def test_a_file_that_cannot_be_removed_fails_no_redaction_and_goes_with_the_next_sweep(place: OutsidePlace) -> None:
    class Stubborn(DirectoryBlobs):
        stubborn = True

        async def delete(self, kept: Any) -> bool:
            if Stubborn.stubborn:
                raise StoreBroken("read-only")
            return await super().delete(kept)

    place.blobs_class = Stubborn
    async with place.process() as process:
        await process.run(looking([]), ONE, session="s")
        await process.sessions.redact("s", positions=[0], reason="private")
        assert place.files() == {ONE.blob.digest}
        Stubborn.stubborn = False
        assert await outside(process).sweep(grace=0) == Swept(removed=1, size=SIZE)


async def test_an_export_carries_the_bytes_and_an_import_puts_them_where_they_belong(place: OutsidePlace, tmp_path: Path) -> None:
    async with place.process() as process:
        await process.run(looking([]), ONE, session="s")
        await process.sessions.export("s", tmp_path / "s.jsonl")
    for number, blobs in enumerate((None, DirectoryBlobs(tmp_path / "there"))):
        async with perdure.open(str(tmp_path / f"{number}.db"), blobs=blobs) as runtime:
            await runtime.sessions.import_from(tmp_path / "s.jsonl")
            assert await runtime.sessions.content("s", ONE.blob) == ONE.data
            assert await problems_in(runtime.store) == []
    assert {path.name for path in (tmp_path / "there").glob("*/*")} == {ONE.blob.digest}


async def test_a_store_that_keeps_nothing_outside_says_so_when_it_is_swept(tmp_path: Path) -> None:
    async with perdure.open(tmp_path / "inside.db") as runtime:
        with pytest.raises(perdure.UsageError, match="keeps nothing outside") as raised:
            await runtime.sessions.sweep()
    assert "blobs=" in raised.value.hint
    async with perdure.open(tmp_path / "outside.db", blobs=perdure.DirectoryBlobs(tmp_path / "blobs")) as runtime:
        assert await runtime.sessions.sweep(grace=0) == Swept()
