"""What the file is, and which files are refused."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure.store
from perdure.core.errors import FormatUnknown, InvalidURL, StoreBroken, StoreBusy, StoreCorrupt
from perdure.store.base import Committed, Sent, SessionQuery, Stale
from perdure.store.conformance import content, create, facts, row_of, runner, step, submission, within
from perdure.store.sqlite import SQLiteStore, rows
from perdure.store.sqlite.database import APPLICATION_ID, FORMAT
from perdure.store.sqlite.sql import QUERIES

SOURCE = Path(next(iter(perdure.store.__path__))).parents[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


def snapshot(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in sorted(directory.rglob("*")) if file.is_file()}


async def made(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    no = await create(store)
    await store.commit(step(no))
    await store.close()


async def refused(path: Path, kind: type[Exception]) -> str:
    store = SQLiteStore(path)
    with pytest.raises(kind) as caught:
        await store.open()
    assert type(caught.value) is kind
    await store.close()
    return str(caught.value)


async def test_only_its_owner_can_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        store = SQLiteStore(path)
        await store.open()
        await create(store)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.rglob("*")}
        await store.close()
    finally:
        os.umask(before)
    assert modes == {
        "agents.db": 0o600,
        "agents.db-wal": 0o600,
        "agents.db-shm": 0o600,
        "agents.db-locks": 0o700,
        "turn": 0o600,
        "write": 0o600,
    }


async def test_it_says_what_it_is(path: Path) -> None:
    await made(path)
    connection = apsw.Connection(str(path))
    facts_ = {name: connection.pragma(name) for name in ("application_id", "user_version", "journal_mode", "page_size")}
    connection.close()
    assert facts_ == {"application_id": APPLICATION_ID, "user_version": FORMAT, "journal_mode": "wal", "page_size": 2048}


async def test_the_writer_is_durable_and_forgets(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    no = await create(store)
    seen: dict[str, object] = {}

    writer = store._writer
    assert writer is not None

    def look() -> None:
        seen.update({name: writer._tx.connection.pragma(name) for name in ("synchronous", "secure_delete")})

    writer._queue.put(look)
    await store.commit(step(no))
    await store.close()
    assert seen == {"synchronous": 2, "secure_delete": 1}


async def test_closing_leaves_one_file_and_the_locks_directory(path: Path) -> None:
    await made(path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["agents.db", "agents.db-locks"]


async def _writes_and_reads(store: SQLiteStore, no: int) -> list[tuple[Any, ...]]:
    asked: list[Any] = [
        store.send(submission("s", "m9")),
        store.commit(step(no)),
        store.heartbeat(runner(), 1_000),
        store.load("s"),
        store.vacuum(),
    ]
    return [(type(answer), str(answer)) for answer in await asyncio.gather(*asked, return_exceptions=True)]


@pytest.mark.parametrize("how", ["moved", "removed", "replaced", "its directory moved"])
async def test_a_file_that_was_carried_off_is_noticed_before_anything_is_answered(path: Path, how: str) -> None:
    path = path.parent / "of its own" / path.name
    path.parent.mkdir()
    store = SQLiteStore(path)
    await store.open()
    no = await create(store)
    match how:
        case "moved":
            path.rename(path.with_name("elsewhere.db"))
        case "removed":
            path.unlink()
        case "replaced":
            shutil.copy(path, path.with_name("other.db"))
            path.with_name("other.db").rename(path)
        case _:
            path.parent.rename(path.parent.with_name("another"))
    for kind, words in await _writes_and_reads(store, no):
        assert kind is StoreBroken, words
        assert "was moved away or removed while it was open" in words or "was replaced by another file while it was open" in words
        assert "put the file back" in words
    await store.close()


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_nothing_is_written_any_more_to_a_log_that_was_removed_and_what_it_held_is_kept_by_closing(path: Path, how: str) -> None:
    store = SQLiteStore(path)
    await store.open()
    no = await create(store)
    log = path.with_name(path.name + "-wal")
    log.unlink()
    if how == "replaced":
        log.touch()
    for write in (store.commit(step(no)), store.send(submission("s", "late")), store.vacuum()):
        with pytest.raises(StoreBroken, match="was removed or replaced while its database was open"):
            await write
    await store.close()
    await store.open()
    assert isinstance(await store.commit(step(no)), Committed)
    assert [row.submission_id for row in await store.inbox(no)] == ["m1"]
    await store.close()


async def test_a_file_that_is_carried_off_during_a_write_answers_nobody_that_it_is_done(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    no = await create(store)
    away = path.with_name("elsewhere.db")
    with pytest.raises(StoreBroken, match=r"whether the write is stored is unknown: .* was moved away"):
        await store.commit(within(step(no), lambda _: path.rename(away)))
    # Put back, it is what it was, and the same commit finds out that it was done.
    away.rename(path)
    assert isinstance(await store.commit(step(no)), Stale)
    await store.close()


async def test_no_new_file_is_made_beside_the_log_of_one_that_was_moved_away(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await create(store)
    path.rename(path.with_name("elsewhere.db"))
    assert "its log 'agents.db-wal' is" in await refused(path, StoreBroken)
    path.with_name("elsewhere.db").rename(path)
    assert await store.load("s") is not None
    await store.close()


@pytest.mark.parametrize("agents", ["'garbage'", "x'ff'"])
async def test_a_runners_row_that_can_not_be_read_keeps_nobody_from_working(path: Path, agents: str) -> None:
    store = SQLiteStore(path)
    await store.open()
    await create(store)
    connection = apsw.Connection(str(path))
    connection.execute(f"INSERT INTO runners VALUES ('r', 'h', 1, 1, 9999999999999, {agents}, '[]')")
    connection.close()
    assert await store.runnable(limit=9) == ["s"]
    with pytest.raises(StoreCorrupt):
        await store.runners()
    await store.close()


async def test_a_write_that_meets_a_row_that_can_not_be_read_says_that_the_store_is_corrupt(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await create(store)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE sessions SET title = CAST(x'ff' AS TEXT)")
    connection.close()
    with pytest.raises(StoreCorrupt, match="perdure verify"):
        await store.send(submission("s", "m2"))
    with pytest.raises(StoreCorrupt):
        await store.load("s")
    await store.close()


@pytest.mark.spec("S0-108")
async def test_a_future_format_is_left_alone(path: Path) -> None:
    await made(path)
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", FORMAT + 1)
    connection.close()
    shutil.rmtree(path.with_name("agents.db-locks"))
    before = snapshot(path.parent)
    assert "newer" in await refused(path, FormatUnknown)
    assert snapshot(path.parent) == before


@pytest.mark.spec("S0-108")
async def test_another_programs_database_is_left_alone(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL; CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").fetchall()
    connection.close()
    before = snapshot(path.parent)
    assert "not a perdure store" in await refused(path, FormatUnknown)
    assert snapshot(path.parent) == before


@pytest.mark.spec("S0-107", "S0-114")
@pytest.mark.parametrize(
    ("statement", "lost"),
    [
        ("DROP TABLE effects", "effects.effect_key"),
        ("ALTER TABLE sessions RENAME COLUMN fence TO fenced", "sessions.fence"),
        ("ALTER TABLE journal DROP COLUMN salt", "journal.salt"),
        ("DROP INDEX inbox_waiting", "inbox_waiting"),
    ],
)
async def test_a_file_that_lacks_a_table_a_column_or_an_index_is_left_alone(path: Path, statement: str, lost: str) -> None:
    await made(path)
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    before = snapshot(path.parent)
    assert lost in await refused(path, StoreCorrupt)
    assert snapshot(path.parent) == before


@pytest.mark.parametrize("data", [b"x", b"hello\n" * 1_000, b"SQLite format 3\x00", b"\x00" * 8192])
async def test_a_file_that_is_no_database_is_left_alone(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    await refused(path, FormatUnknown)
    assert snapshot(path.parent) == {"agents.db": data}


async def test_a_truncated_file_is_corrupt(path: Path) -> None:
    await made(path)
    data = path.read_bytes()
    for size in (2048 * 3, 2048 * 12 + 7, 2048):
        path.write_bytes(data[:size])
        await refused(path, StoreCorrupt)
        assert path.read_bytes() == data[:size]


async def test_a_file_cut_in_its_first_page_is_refused(path: Path) -> None:
    await made(path)
    data = path.read_bytes()[:90]
    path.write_bytes(data)
    store = SQLiteStore(path)
    with pytest.raises((FormatUnknown, StoreCorrupt)):
        await store.open()
    assert path.read_bytes() == data


async def test_damaged_pages_are_corrupt_when_they_are_read(path: Path) -> None:
    await made(path)
    data = bytearray(path.read_bytes())
    data[2048 * 2 :] = b"\xa5" * (len(data) - 2048 * 2)
    path.write_bytes(bytes(data))
    store = SQLiteStore(path)

    async def read() -> None:
        await store.open()
        await store.load("s")

    with pytest.raises(StoreCorrupt):
        await read()
    await store.close()


async def test_a_missing_directory_is_named(path: Path) -> None:
    message = await refused(path.parent / "nowhere" / "agents.db", InvalidURL)
    assert "nowhere" in message
    assert "directory" in message
    assert not (path.parent / "nowhere").exists()


async def test_a_directory_is_no_store(path: Path) -> None:
    path.mkdir()
    await refused(path, InvalidURL)


async def test_what_is_no_file_is_no_store_and_is_left_as_it_is(path: Path) -> None:
    os.mkfifo(path)
    await refused(path, InvalidURL)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert [item.name for item in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["a\0b", "\udcff.db", "x" * 300], ids=["NUL", "not UTF-8", "too long"])
async def test_a_name_that_no_database_can_have_is_refused(path: Path, name: str) -> None:
    await refused(path.parent / name, StoreBroken if len(name) > 255 else InvalidURL)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("there", [True, False], ids=["to a store", "to nothing yet"])
async def test_a_link_stays_one_and_all_who_come_by_it_share_the_locks(path: Path, there: bool) -> None:
    (path.parent / "data").mkdir()
    target = path.parent / "data" / "agents.db"
    if there:
        await made(target)
    path.symlink_to(target)
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    assert path.is_symlink()
    assert target.stat().st_size > 0
    assert [item.name for item in path.parent.iterdir() if item.name != "data"] == [path.name]


async def test_an_empty_file_becomes_a_store_with_the_right_mode(path: Path) -> None:
    path.touch(0o644)
    await made(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_what_a_crash_while_making_it_left_is_no_obstacle(path: Path) -> None:
    for name in ("agents.db-new", "agents.db-new-journal", "agents.db-new-wal"):
        (path.parent / name).write_bytes(b"half of something")
    await made(path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["agents.db", "agents.db-locks"]


async def test_odd_names_are_fine(tmp_path: Path) -> None:
    for name in ("a b.db", "ä?x=1&y#z%41.db", "file:x"):
        await made(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0


@pytest.mark.spec("S0-109")
async def test_altered_content_is_noticed_when_it_is_read(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await create(store)
    picture = content(b"picture" * 1_000)
    await store.put_blob("s", picture)
    vandal = apsw.Connection(str(path))
    vandal.execute("UPDATE blobs SET data = CAST(replace(data, 'pic', 'pix') AS BLOB)")
    vandal.close()
    with pytest.raises(StoreCorrupt):
        await store.blob("s", picture.digest)
    await store.close()


async def test_deleted_content_is_gone_from_the_disk(path: Path) -> None:
    secret = b"the secret that must not stay" * 40
    store = SQLiteStore(path)
    await store.open()
    no = await create(store, body=secret)
    await store.commit(step(no, entries=tuple(entry.__class__(*[*_columns(entry)[:6], secret, entry.chain]) for entry in facts(2, 2))))
    await store.put_blob("s", content(secret + b"!"))
    on_disk = path.read_bytes() + path.with_name("agents.db-wal").read_bytes()
    assert secret in on_disk
    await store.delete(no)
    await store.load("s")
    await store.close()
    assert b"the secret" not in b"".join(snapshot(path.parent).values())


def _columns(entry: object) -> list[object]:
    return [getattr(entry, name) for name in ("seq", "number", "kind", "at", "salt", "body_digest", "body", "chain")]


async def test_python_never_builds_a_statement() -> None:
    package = Path(perdure.store.__path__[0]) / "sqlite"
    for file in package.glob("*.py"):
        if file.name != "database.py":
            for word in ("SELECT ", "INSERT ", "UPDATE ", "DELETE FROM"):
                assert word not in file.read_text(), (file.name, word)


async def test_every_statement_is_used_and_says_what_it_is_for() -> None:
    package = Path(perdure.store.__path__[0]) / "sqlite"
    python = "".join(file.read_text() for file in package.glob("*.py"))
    text = (package / "queries.sql").read_text()
    for name in QUERIES:
        stem = name.removesuffix("_newest_first").removesuffix("_of_kinds")
        assert f'"{stem}"' in python, name
        assert f"-- name: {name}\n-- " in text, name


async def test_no_list_reads_rows_that_it_does_not_show(path: Path) -> None:
    await made(path)
    connection = apsw.Connection(str(path))
    connection.create_scalar_function("holds_words", rows.holds_words, 2)
    connection.create_scalar_function("holds_labels", rows.holds_labels, 2)

    def plan(name: str) -> str:
        values = dict.fromkeys(
            [
                "no",
                "after",
                "before",
                "limit",
                "kinds",
                "submission_id",
                "now",
                "agents",
                "left",
                "alive",
                "updated",
                "owner",
                "agent",
                "archived",
                "children",
                "statuses",
                "since",
                "until",
                "words",
                "like",
                "labels",
                "label",
            ]
        )
        cursor = connection.execute("EXPLAIN QUERY PLAN " + QUERIES[name], values)
        return "\n".join(row[3] for row in cursor)

    assert "sessions_due" in plan("runnable")
    assert "sessions_held" in plan("runnable")
    assert "sessions_due" in plan("next_wake")
    assert "USING COVERING INDEX sessions_listed" in plan("sessions_updated")
    assert "inbox_waiting" in plan("inbox_waiting")
    assert "(no=? AND seq>? AND seq<?)" in plan("entries_of_kinds_newest_first")
    assert "SCAN sessions\n" not in plan("runnable") + "\n"
    connection.close()


# Reading what can't be written

READ_ONLY = """
import asyncio, os, sys
from perdure.core.errors import StoreReadOnly
from perdure.store.base import SessionQuery
from perdure.store.conformance import step, submission, runner, raises
from perdure.store.sqlite import SQLiteStore
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)

async def main(path):
    store = SQLiteStore(path)
    await store.open()
    loaded = await store.load("s")
    assert len(await store.entries(loaded.row.no)) == loaded.row.version == 2, loaded
    assert len(await store.sessions(SessionQuery())) == 1
    assert not loaded.holder_alive
    for write in (store.send(submission(name="x")), store.commit(step(1, 2)), store.ack(1, "a", 1), store.heartbeat(runner(), 1)):
        await raises(StoreReadOnly, write)
    stop = store.changes(print)
    stop()
    await store.close()
    missing = SQLiteStore(path + "2")
    await raises(StoreReadOnly, missing.open())

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def shelf() -> Iterator[Path]:
    # Not below pytest's own directory, which other users can't enter.
    directory = Path(tempfile.mkdtemp())
    yield directory
    directory.chmod(0o700)
    shutil.rmtree(directory)


def read_only(path: Path) -> None:
    for file in path.parent.rglob("*"):
        file.chmod(0o555 if file.is_dir() else 0o444)
    path.parent.chmod(0o555)
    before = snapshot(path.parent)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READ_ONLY), str(path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert snapshot(path.parent).keys() == before.keys()
    assert snapshot(path.parent)[path.name] == before[path.name]


async def test_a_file_that_can_not_be_written_can_be_read(shelf: Path) -> None:
    await made(shelf / "agents.db")
    read_only(shelf / "agents.db")


async def test_a_file_that_can_not_be_written_can_be_read_beside_its_writer(shelf: Path) -> None:
    store = SQLiteStore(shelf / "agents.db")
    await store.open()
    no = await create(store)
    await store.commit(step(no))
    read_only(shelf / "agents.db")
    await store.close()


async def test_the_writer_goes_on_with_what_others_left_in_the_log(path: Path, tmp_path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    no = await create(store)
    await store.commit(step(no))
    # What a killed process leaves: the file and its log, as they are now.
    (tmp_path / "copy").mkdir()
    for name in ("agents.db", "agents.db-wal"):
        shutil.copy(path.with_name(name), tmp_path / "copy" / name)
    await store.close()
    again = SQLiteStore(tmp_path / "copy" / "agents.db")
    await again.open()
    assert (await row_of(again)).version == 2
    assert isinstance(await again.commit(step(no, 2)), Committed)
    assert isinstance(await again.send(submission(name="x")), Sent)
    assert len(await again.sessions(SessionQuery())) == 1
    await again.close()


async def test_a_database_that_someone_else_holds_is_busy_and_nothing_is_lost(path: Path) -> None:
    store = SQLiteStore(path, busy_timeout=0.05)
    await store.open()
    no = await create(store)
    stranger = apsw.Connection(str(path))
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy) as caught:
        await store.commit(step(no))
    assert caught.value.retryable
    stranger.execute("ROLLBACK")
    stranger.close()
    assert isinstance(await store.commit(step(no)), Committed)
    await store.close()
