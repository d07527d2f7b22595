"""What is promised when the disk, the database or the user's own statements fail."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.core.errors import PerdureError, StoreBroken, StoreError, StoreFull, UsageError
from perdure.store.base import Claim, Committed, EffectRow, Sent, SessionQuery, Stale
from perdure.store.conformance import LEASE, catalogue, content, create, everything, fact, row_of, runner, step, submission
from perdure.store.sqlite import SQLiteStore
from perdure.store.sqlite.locks import Turnstile
from perdure.store.sqlite.writes import Transaction

POISON = b"poison"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


@asynccontextmanager
async def store_at(path: Path, **more: Any) -> Any:
    store = SQLiteStore(path, **more)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def together(path: Path, store: SQLiteStore, writes: list[Any]) -> list[Any]:
    """Start all while another write can't go on, so that they are one batch."""
    assert store._writer is not None
    turnstile = Turnstile(path.with_name(path.name + "-locks"))
    with turnstile:
        plug = asyncio.ensure_future(store.ack(1, "plug", 1))
        await asyncio.sleep(0)
        while not store._writer._queue.empty():
            await asyncio.sleep(0)
        tasks = [asyncio.ensure_future(write) for write in writes]
        await asyncio.sleep(0)
    try:
        await plug
        return await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        turnstile.close()


def execute(path: Path, statements: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statements)
    connection.close()


def sound(path: Path) -> None:
    connection = apsw.Connection(str(path))
    assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
    broken = """
        SELECT no FROM sessions AS s
        WHERE status <> 'deleted' AND (version, version) <> (SELECT count(*), max(seq) FROM journal WHERE no = s.no)
    """
    assert list(connection.execute(broken)) == []
    connection.close()


# Triggers

TRIGGERS = {
    "journal": "CREATE TRIGGER t BEFORE INSERT ON journal WHEN NEW.body = x'706f69736f6e' BEGIN SELECT RAISE({}); END",
    "sessions": "CREATE TRIGGER t BEFORE UPDATE ON sessions WHEN NEW.checkpoint = x'706f69736f6e' BEGIN SELECT RAISE({}); END",
    "inbox": "CREATE TRIGGER t AFTER UPDATE ON inbox WHEN NEW.consumed_seq = 666 BEGIN SELECT RAISE({}); END",
    "effects": "CREATE TRIGGER t BEFORE INSERT ON effects WHEN NEW.state = 'poison' BEGIN SELECT RAISE({}); END",
    "blobs": "CREATE TRIGGER t BEFORE INSERT ON blobs WHEN NEW.media_type = 'poison' BEGIN SELECT RAISE({}); END",
}
KINDS = ["ABORT, 'no'", "FAIL, 'no'", "ROLLBACK, 'no'", "IGNORE"]


# After an update there is nothing left to ignore.
@pytest.mark.parametrize(("table", "kind"), [pair for pair in itertools.product(TRIGGERS, KINDS) if pair != ("inbox", "IGNORE")])
async def test_a_trigger_that_refuses_one_write_refuses_only_it(path: Path, table: str, kind: str) -> None:
    async with store_at(path) as store:
        numbers = [await create(store, f"s{index}") for index in range(12)]
        execute(path, TRIGGERS[table].format(kind))
        before = await everything(store, "s6")

        def one(index: int) -> Any:
            bad = index == 6
            return store.commit(
                step(
                    numbers[index],
                    entries=(fact(2, body=POISON if bad and table == "journal" else b"{}"),),
                    checkpoint=POISON if bad and table == "sessions" else b"checkpoint 2",
                    consumed=(("m1", 666 if bad and table == "inbox" else 2),),
                    effects=(EffectRow(effect_key=b"k", seq=2, state="poison" if bad and table == "effects" else "succeeded"),),
                    blobs=(content(b"data", "poison" if bad and table == "blobs" else "text/plain"),),
                    claim=Claim(runner="r1"),
                )
            )

        answers = await together(path, store, [one(index) for index in range(12)])
        assert isinstance(answers[6], StoreError)
        assert [answer for index, answer in enumerate(answers) if index != 6] == [Committed(2, 1, 1)] * 11
        assert await everything(store, "s6") == before
        for index in (0, 5, 7, 11):
            row = await row_of(store, f"s{index}")
            assert (row.version, row.holder) == (2, "r1")
        execute(path, "DROP TRIGGER t")
        assert await one(6) == Committed(2, 1, 1) if table != "inbox" else True
    sound(path)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_trigger_that_refuses_one_submission_refuses_only_it(path: Path, kind: str) -> None:
    async with store_at(path) as store:
        await create(store)
        execute(path, f"CREATE TRIGGER t BEFORE INSERT ON inbox WHEN NEW.submission_id = 'bad' BEGIN SELECT RAISE({kind}); END")
        writes = [store.send(submission("new" if name == "bad" else "s", name)) for name in ("a", "b", "bad", "c")]
        answers = await together(path, store, writes)
        assert isinstance(answers[2], StoreError)
        assert [answer.row.arrival for index, answer in enumerate(answers) if index != 2] == [2, 3, 4]
        assert await store.load("new") is None
    sound(path)


async def test_a_delete_that_a_trigger_hinders_is_not_called_done(path: Path) -> None:
    async with store_at(path) as store:
        no = await create(store)
        execute(path, "CREATE TRIGGER t BEFORE DELETE ON journal BEGIN SELECT RAISE(IGNORE); END")
        before = await everything(store)
        with pytest.raises(StoreBroken):
            await store.delete(no)
        assert await everything(store) == before


# Disks


class Disk(apsw.VFS):
    """The real file system, but for what ``fail`` says about each operation. It also knows what was written and not yet synced."""

    numbers = itertools.count()

    def __init__(self) -> None:
        self.vfs = f"faulty{next(self.numbers)}"
        super().__init__(self.vfs, "")
        self.count = 0
        self.fail: Callable[[int, str, str, int], None] = lambda _number, _operation, _name, _end: None
        self.unsynced: set[str] = set()

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return File(self, name, flags)

    def check(self, operation: str, name: str, end: int = 0) -> None:
        self.count += 1
        self.fail(self.count, operation, name, end)


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self.disk = disk
        self.name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:
        self.disk.check("write", self.name, offset + len(data))
        self.disk.unsynced.add(self.name)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self.disk.check("sync", self.name)
        super().xSync(flags)
        self.disk.unsynced.discard(self.name)

    def xTruncate(self, size: int) -> None:
        self.disk.check("truncate", self.name)
        super().xTruncate(size)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    # What a VFS raises is reported there as well as by SQLite's own error.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    disk = Disk()
    yield disk
    disk.unregister()


async def test_a_commit_syncs_the_log_once_and_what_waits_together_shares_one(path: Path, disk: Disk) -> None:
    synced: list[str] = []
    disk.fail = lambda _number, operation, name, _end: synced.append(name) if operation == "sync" else None
    async with store_at(path, vfs=disk.vfs) as store:
        no = await create(store)
        synced.clear()
        for version in range(1, 31):
            await store.commit(step(no, version))
        assert synced == [str(path) + "-wal"] * 30

        entered, leave = threading.Event(), threading.Event()
        assert store._writer is not None
        store._writer._queue.put(lambda: (entered.set(), leave.wait(20))[0])
        await asyncio.to_thread(entered.wait, 20)
        synced.clear()
        waiting = [asyncio.ensure_future(store.put_blob("s", content(bytes([number])))) for number in range(20)]
        await asyncio.sleep(0)
        leave.set()
        await asyncio.gather(*waiting)
        assert synced == [str(path) + "-wal"]


async def test_nobody_is_answered_before_the_log_is_on_the_disk(path: Path, disk: Disk) -> None:
    async with store_at(path, vfs=disk.vfs) as store:
        no = await create(store)
        log = str(path) + "-wal"
        for version in range(1, 30):
            assert log not in disk.unsynced
            task = asyncio.ensure_future(store.commit(step(no, version)))
            await task
            assert log not in disk.unsynced
        await store.put_blob("s", content(b"x" * 100_000))
        assert log not in disk.unsynced
        assert disk.count > 60


@pytest.mark.parametrize("waiting", [1, 20])
async def test_a_full_disk_refuses_what_does_not_fit_and_keeps_the_rest(path: Path, disk: Disk, waiting: int) -> None:
    async with store_at(path, vfs=disk.vfs) as store:
        numbers = [await create(store, f"s{index}") for index in range(waiting)]
        room = path.with_name(path.name + "-wal").stat().st_size + 450_000

        def fail(_number: int, operation: str, name: str, end: int) -> None:
            if operation == "write" and end > room:
                raise apsw.FullError("no room")

        disk.fail = fail
        bad = waiting // 2
        before = await everything(store, f"s{bad}")

        def commits(big: int) -> list[Any]:
            return [store.commit(step(no, blobs=(content(b"x" * big),) if index == bad else ())) for index, no in enumerate(numbers)]

        answers = await together(path, store, commits(900_000))
        assert isinstance(answers[bad], StoreFull)
        assert answers[bad].retryable
        assert [answer for index, answer in enumerate(answers) if index != bad] == [Committed(2, 0, 1)] * (waiting - 1)
        assert await everything(store, f"s{bad}") == before
        room = 10_000_000
        assert (await commits(900_000)[bad]) == Committed(2, 0, 1)
    sound(path)


async def test_a_full_database_is_a_full_disk(path: Path) -> None:
    async with store_at(path) as store:
        no = await create(store)

        def limit(pages: int) -> None:
            writer = store._writer
            assert writer is not None
            writer._queue.put(lambda: writer._tx.connection.pragma("max_page_count", pages))

        limit(60)
        await store.commit(step(no))
        with pytest.raises(StoreFull):
            await store.commit(step(no, 2, blobs=(content(b"x" * 500_000),)))
        limit(1 << 30)
        assert await store.commit(step(no, 2)) == Committed(3, 0, 1)
        assert await store.blobs("s") == []
    sound(path)


async def live(store: SQLiteStore, told: list[tuple[str, Any]]) -> None:
    """A little of everything; what was answered as done stands in ``told``."""

    async def one(name: str, write: Any) -> Any:
        try:
            answer = await write
        except PerdureError as error:
            answer = error
        told.append((name, answer))
        return answer

    await one("heartbeat", store.heartbeat(runner(), LEASE))
    made = await asyncio.gather(*(one(f"create {index}", store.send(submission(f"s{index}"))) for index in range(3)))
    numbers = {index: sent.no for index, sent in enumerate(made) if isinstance(sent, Sent)}
    for version in range(1, 4):
        writes = [
            one(f"commit {index} {version + 1}", store.commit(step(no, version, blobs=(content(b"b%d" % index),), catalogue=catalogue())))
            for index, no in numbers.items()
        ]
        await asyncio.gather(*writes, one("blob", store.put_blob("s0", content(b"x" * 5_000))))
    if 2 in numbers:
        await one("delete", store.delete(numbers[2]))


async def held(path: Path, told: list[tuple[str, Any]]) -> None:
    """What was told is true, nothing is half there, and the store works."""
    sound(path)
    async with store_at(path) as store:
        for name, answer in told:
            what, *rest = name.split()
            if isinstance(answer, PerdureError):
                continue
            session = f"s{rest[0]}" if rest else ""
            deleted = session == "s2" and await store.load("s2") is None
            if what == "create" and not deleted:
                assert await store.submission(answer.no, "m1") == answer.row
            elif what == "commit" and isinstance(answer, Committed) and not deleted:
                row = await row_of(store, session)
                assert row.version >= int(rest[1])
                assert (await store.entries(row.no, after=int(rest[1]) - 1, limit=1)) == [fact(int(rest[1]))]
                assert await store.blob(session, content(b"b%s" % rest[0].encode()).digest)
            elif what == "delete":
                assert await store.load("s2") is None
        assert isinstance(await store.send(submission("after")), Sent)
        assert await store.sessions(SessionQuery()) != []
    sound(path)


async def scenario(path: Path, disk: Disk) -> list[tuple[str, Any]]:
    told: list[tuple[str, Any]] = []
    store = SQLiteStore(path, vfs=disk.vfs)
    try:
        await store.open()
    except PerdureError:
        return told
    await live(store, told)
    await store.close()
    return told


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
async def test_wherever_the_disk_fails_nobody_is_told_what_is_not_so(
    tmp_path: Path, disk: Disk, error: type[Exception], lasting: bool
) -> None:
    told = await scenario(tmp_path / "whole.db", disk)
    operations = disk.count
    assert operations > 40
    assert not [answer for _, answer in told if isinstance(answer, PerdureError)]
    failures = 0
    for number in range(1, operations + 1):

        def fail(count: int, _operation: str, _name: str, _end: int, number: int = number) -> None:
            if count == number or (lasting and count > number):
                raise error("the disk fails")

        disk.count, disk.fail = 0, fail
        path = tmp_path / f"{number}.db"
        told = await scenario(path, disk)
        disk.fail = lambda *_: None
        failures += any(isinstance(answer, PerdureError) for _, answer in told)
        if path.exists():
            await held(path, told)
        for file in tmp_path.glob(f"{number}.db*"):
            if file.is_file():
                file.unlink()
    assert failures > 10 or not lasting


# COMMIT itself


def committing(monkeypatch: pytest.MonkeyPatch, before: Callable[[Transaction], None], after: Callable[[Transaction], None]) -> None:
    run = Transaction.run

    def patched(self: Transaction, name: str, values: Any = None) -> None:
        if name == "commit":
            before(self)
        run(self, name, values)
        if name == "commit":
            after(self)

    monkeypatch.setattr(Transaction, "run", patched)


def nothing(_: Transaction) -> None:
    pass


def failing(times: int) -> Callable[[Transaction], None]:
    left = itertools.count(times, -1)

    def fail(_: Transaction) -> None:
        if next(left) > 0:
            raise apsw.IOError("unclear")

    return fail


def all_kinds(store: SQLiteStore, numbers: list[int]) -> list[Any]:
    return [
        store.commit(step(numbers[0])),
        store.commit(step(numbers[1], entries=(), claim=Claim(runner="r1"))),
        store.send(submission("s2", "m2")),
        store.send(submission("new")),
        store.send(submission("s2", "m2")),
        store.claim(numbers[3], "r1"),
        store.release(numbers[4], "r0", 1, catalogue("waiting"), 1, at=2_000),
        store.ack(numbers[5], "ann", 1),
        store.put_blob("s5", content(b"b")),
        store.delete(numbers[6]),
        store.commit(step(numbers[5], 9)),
        store.heartbeat(runner(), LEASE),
    ]


async def check_all_kinds(store: SQLiteStore, answers: list[Any], numbers: list[int]) -> None:
    assert answers[0] == Committed(2, 0, 1)
    assert answers[1] == Committed(1, 1, 1)
    assert [answer.duplicate for answer in answers[2:5]] == [False, False, True]
    assert answers[5] == Committed(1, 1, 1)
    assert answers[6] == Committed(1, 1, 1)
    assert answers[7:10] == [1, True, True]
    assert answers[10] == Stale(1, 0, None)
    assert (await row_of(store, "s0")).version == 2
    assert (await row_of(store, "s1")).fence == 1
    assert (await store.inbox(numbers[2]))[1].submission_id == "m2"
    assert (await row_of(store, "new")).inbox_head == 1
    assert (await row_of(store, "s3")).holder == "r1"
    assert (await row_of(store, "s4")).holder is None
    assert await store.cursor(numbers[5], "ann") == 1
    assert await store.blobs("s5") == [content(b"b").digest]
    assert await store.load("s6") is None


async def prepared(store: SQLiteStore) -> list[int]:
    numbers = [await create(store, f"s{index}") for index in range(7)]
    await store.claim(numbers[4], "r0")
    return numbers


async def test_a_commit_that_succeeded_and_said_otherwise_is_looked_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with store_at(path) as store:
        numbers = await prepared(store)
        committing(monkeypatch, nothing, second(failing(1)))
        answers = await together(path, store, all_kinds(store, numbers))
        await check_all_kinds(store, answers, numbers)
    sound(path)


def second(fail: Callable[[Transaction], None]) -> Callable[[Transaction], None]:
    """Not in the batch of the plug in `together`, but in the next."""
    count = itertools.count()

    def at(tx: Transaction) -> None:
        if next(count) == 1:
            fail(tx)

    return at


async def test_a_commit_that_failed_is_tried_again_member_by_member(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with store_at(path) as store:
        numbers = await prepared(store)
        committing(monkeypatch, second(failing(1)), nothing)
        answers = await together(path, store, all_kinds(store, numbers))
        await check_all_kinds(store, answers, numbers)
    sound(path)


@pytest.mark.parametrize("index", range(7))
async def test_one_write_whose_commit_succeeded_and_said_otherwise_is_looked_up(
    path: Path, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    async with store_at(path) as store:
        numbers = await prepared(store)
        writes = all_kinds(store, numbers)
        if index == 4:
            await writes[2]
        committing(monkeypatch, nothing, failing(1))
        answer = await writes[index]
        assert isinstance(answer, (Committed, Sent))
        for other, write in enumerate(writes):
            if other != index and not (index == 4 and other == 2):
                write.close()


@pytest.mark.parametrize("index", [0, 1, 2, 3, 5, 6, 7, 8, 9, 11])
async def test_one_write_whose_commit_failed_is_refused_and_can_be_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    async with store_at(path) as store:
        numbers = await prepared(store)
        committing(monkeypatch, failing(1), nothing)
        writes = all_kinds(store, numbers)
        with pytest.raises(StoreBroken):
            await writes[index]
        again = all_kinds(store, numbers)
        assert not isinstance(await again[index], Stale)
        for other, write in enumerate(writes):
            if other != index:
                write.close()
                again[other].close()
    sound(path)


async def test_if_nobody_can_tell_nobody_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with store_at(path) as store:
        numbers = await prepared(store)

        def blind(_: Transaction) -> None:
            def one(*_: Any) -> None:
                raise apsw.IOError("can't be read")

            monkeypatch.setattr(Transaction, "one", one)
            raise apsw.IOError("unclear")

        with monkeypatch.context() as patched:
            committing(patched, nothing, blind)
            with pytest.raises(StoreBroken, match="unknown"):
                await store.commit(step(numbers[0]))
            monkeypatch.undo()
        # It was stored; whoever asks again learns it.
        assert await store.commit(step(numbers[0])) == Stale(2, 0, None)


async def test_a_commit_that_leaves_no_trace_to_look_up_is_unknown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with store_at(path) as store:
        numbers = await prepared(store)
        with monkeypatch.context() as patched:
            committing(patched, nothing, failing(1))
            with pytest.raises(StoreBroken, match="unknown"):
                await store.commit(step(numbers[0], entries=(), consumed=(("m1", 1),)))
        with pytest.raises(UsageError):
            await store.commit(step(numbers[0], entries=(), consumed=(("m1", 1),)))


async def test_a_mistake_in_one_write_harms_no_other(path: Path) -> None:
    async with store_at(path) as store:
        numbers = [await create(store, f"s{index}") for index in range(4)]
        wrong = step(numbers[1], checkpoint=object())
        answers = await together(path, store, [store.commit(step(numbers[0])), store.commit(wrong), store.commit(step(numbers[2]))])
        assert isinstance(answers[1], TypeError)
        assert [answers[0], answers[2]] == [Committed(2, 0, 1)] * 2
    sound(path)


async def test_a_file_whose_format_cannot_be_read_before_a_write_is_broken_and_what_was_not_begun_is_not_unknown(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_at(path) as store:
        no = await create(store)
        before = await everything(store)
        # It is read again where somebody else wrote.
        other = apsw.Connection(str(path))
        other.execute("INSERT INTO meta VALUES ('other', 1); DELETE FROM meta WHERE key = 'other'")
        other.close()
        with monkeypatch.context() as broken:

            def fails(connection: apsw.Connection) -> None:
                raise apsw.IOError("disk I/O error")

            broken.setattr(store._database, "check_format", fails)
            for answer in await asyncio.gather(store.commit(step(no)), store.ack(no, "ann", 1), return_exceptions=True):
                assert isinstance(answer, StoreBroken)
                assert "beginning a write" in answer.message
                assert "unknown" not in answer.message
        assert await everything(store) == before
        assert await store.commit(step(no)) == Committed(2, 0, 1)
    sound(path)
