"""A copy of a store that is in use: of one moment, verified, for its owner's eyes, and whole when it is put back."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import pytest

import perdure
from perdure import Agent, FormatUnknown, FunctionModel, StoreCorrupt, UsageError
from perdure.runtime.backup import backup, restore
from perdure.store.blobs import DirectoryBlobs

from ..media.pictures import big_png

AGENT = Agent("a", model=FunctionModel(lambda request: "ok"))


async def test_a_copy_of_a_store_in_use_is_of_one_moment_and_goes_on_where_that_was(tmp_path: Path) -> None:
    place, copy, again = tmp_path / "a.db", tmp_path / "copy.db", tmp_path / "again.db"
    stop = asyncio.Event()
    async with perdure.open(str(place)) as runtime:

        async def talk(session: str) -> None:
            number = 0
            while not stop.is_set():
                await runtime.run(AGENT, "hi", session=session, submission=f"{session}-{number}")
                number += 1

        talking = [asyncio.ensure_future(talk(f"s{index}")) for index in range(3)]
        await asyncio.sleep(0)
        while len(await runtime.sessions.list()) < 3:
            await asyncio.sleep(0)
        checked = await backup(str(place), copy)
        stop.set()
        await asyncio.gather(*talking)
        live = {info.session_id: info.version for info in await runtime.sessions.list()}

    assert checked.sessions == 3
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    await restore(copy, str(again))
    async with perdure.open(str(again)) as runtime:
        then = {info.session_id: info.version for info in await runtime.sessions.list()}
        assert then.keys() == live.keys()
        assert all(then[name] <= live[name] for name in live)
        assert (await runtime.run(AGENT, "more", session="s0", submission="new")).output == "ok"


async def test_content_outside_of_the_database_is_copied_and_put_back_with_it(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/a.db?blobs={tmp_path}/content"
    text = "long " * 20_000
    async with perdure.open(address) as runtime:
        await runtime.run(AGENT, text, session="s", submission="m")

    await backup(address, tmp_path / "copy.db")
    with pytest.raises(UsageError, match="content in a directory"):
        await restore(tmp_path / "copy.db", f"sqlite:///{tmp_path}/b.db")
    assert not (tmp_path / "b.db").exists()
    there = f"sqlite:///{tmp_path}/b.db?blobs={tmp_path}/elsewhere"
    assert (await restore(tmp_path / "copy.db", there)).blobs

    async with perdure.open(str(tmp_path / "b.db"), blobs=DirectoryBlobs(tmp_path / "elsewhere")) as runtime:
        page = await runtime.sessions.history("s")
    assert page[0].text == text


async def test_what_was_copied_outlives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, copy, again = f"sqlite:///{tmp_path}/a.db?blobs={tmp_path}/media", tmp_path / "b" / "copy.db", tmp_path / "c" / "again.db"
    copy.parent.mkdir()
    again.parent.mkdir()
    async with perdure.open(place) as runtime:
        await runtime.run(AGENT, ["look", perdure.image(big_png(100_000, 1))], session="s")
    synced: set[Path] = set()

    def recorded(descriptor: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", recorded)
    await backup(place, copy)
    await restore(copy, f"sqlite:///{again}?blobs={again.parent}/media")
    for made in (copy.parent, again.parent):
        files = [path for path in made.rglob("*") if path.parent.name != "again.db-locks"]
        assert any(len(path.name) == 64 for path in files)
        wanted = {path for path in files if len(path.name) == 64 or (path.is_dir() and not path.name.endswith("-locks"))} | {made}
        assert wanted - synced == set()


async def test_nothing_is_overwritten(tmp_path: Path) -> None:
    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        await runtime.run(AGENT, "hi", session="s", submission="m")
    (tmp_path / "b.db").write_text("mine")
    for call in (backup(str(tmp_path / "a.db"), tmp_path / "b.db"), restore(tmp_path / "a.db", str(tmp_path / "b.db"))):
        with pytest.raises(UsageError, match="exists already"):
            await call
    assert (tmp_path / "b.db").read_text() == "mine"
    assert not list(tmp_path.glob("*-copy"))


async def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(FormatUnknown):
        await backup(str(tmp_path / "other.db"), tmp_path / "copy.db")
    with pytest.raises(UsageError, match="pg_dump"):
        await backup("postgresql://localhost/agents", tmp_path / "copy.db")
    with pytest.raises(UsageError, match="no file"):
        await restore(tmp_path / "missing.db", str(tmp_path / "b.db"))
    assert not (tmp_path / "copy.db").exists()


async def test_a_copy_of_a_damaged_store_says_so(tmp_path: Path) -> None:
    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        await runtime.run(AGENT, "hi", session="s", submission="m")
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("UPDATE journal SET body = replace(body, 'hi', 'ho') WHERE kind = 'message'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreCorrupt, match="'s'"):
        await backup(str(tmp_path / "a.db"), tmp_path / "copy.db")
