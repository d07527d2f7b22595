"""What users do inside a commit of a SQLite file: their tables are their own, and the transaction is the store's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.core.errors import PerdureError, TransactionLost
from perdure.store.base import Commit, Committed, Run, Stale
from perdure.store.conformance import create, everything, row_of, step, within
from perdure.store.sqlite import SQLiteStore
from perdure.store.sqlite import within as within_module

from .test_sqlite_faults import execute, sound, store_at, together


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


def put(value: int) -> Callable[[Any], None]:
    return lambda connection: connection.execute("INSERT INTO theirs VALUES (?)", (value,))


def theirs(path: Path) -> list[int]:
    connection = apsw.Connection(str(path))
    try:
        return [value for (value,) in connection.execute("SELECT x FROM theirs ORDER BY x")]
    finally:
        connection.close()


async def test_a_users_statements_are_part_of_the_commit(path: Path) -> None:
    async with store_at(path) as store:
        no = await create(store)
        execute(path, "CREATE TABLE theirs (x UNIQUE)")
        assert isinstance(await store.commit(within(step(no), put(1))), Committed)
        assert isinstance(await store.commit(within(step(no, 5), put(2))), Stale)
        with pytest.raises(apsw.ConstraintError):
            await store.commit(within(step(no, 2), put(1)))
        assert (await row_of(store)).version == 2
        assert isinstance(await store.commit(within(step(no, 2), put(3))), Committed)
    assert theirs(path) == [1, 3]
    sound(path)


ENDING = ["COMMIT", "ROLLBACK", "ROLLBACK; BEGIN IMMEDIATE", "RELEASE member", "COMMIT; BEGIN", "ROLLBACK TO within; RELEASE within"]
MEDDLING = [
    "UPDATE sessions SET version = 7",
    "DELETE FROM journal",
    "INSERT INTO meta VALUES ('x', 'y')",
    "SELECT value FROM meta",
    "DROP TABLE effects",
    "ALTER TABLE inbox ADD COLUMN mine",
    "ALTER TABLE Inbox RENAME TO mine",
    "CREATE INDEX mine ON journal (at)",
    "DROP INDEX sessions_due",
    "CREATE TRIGGER mine AFTER INSERT ON journal BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TABLE t (x); CREATE TRIGGER mine AFTER INSERT ON t BEGIN DELETE FROM journal; END; INSERT INTO t VALUES (9)",
    "CREATE TEMP TABLE sessions (no)",
    "CREATE TEMP VIEW sessions AS SELECT 1",
    "SAVEPOINT member",
    "PRAGMA user_version = 9",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA writable_schema = 1",
    "ATTACH ':memory:' AS other",
    "ANALYZE",
]


@pytest.mark.parametrize("statements", [*ENDING, *MEDDLING])
@pytest.mark.parametrize("hidden", [False, True])
async def test_what_belongs_to_the_store_is_out_of_a_users_reach(path: Path, statements: str, hidden: bool) -> None:
    async with store_at(path) as store:
        numbers = [await create(store, f"s{index}") for index in range(8)]
        execute(path, "CREATE TABLE theirs (x)")
        before = [await everything(store, f"s{index}") for index in range(8)]
        denied: list[Exception] = []

        def meddle(connection: apsw.Connection) -> None:
            put(4)(connection)
            try:
                connection.execute(statements).fetchall()
            except apsw.AuthError as error:
                denied.append(error)
                if not hidden:
                    raise

        answers = await together(
            path, store, [store.commit(within(step(no), meddle if index == 4 else put(index))) for index, no in enumerate(numbers)]
        )
        assert denied
        assert [answer for index, answer in enumerate(answers) if index != 4] == [Committed(2, 0, 1)] * 7
        assert isinstance(answers[4], Committed if hidden else apsw.AuthError)
        if not hidden:
            assert await everything(store, "s4") == before[4]
        assert (4 in theirs(path)) == hidden
        assert [await store.inbox(no) for no in numbers] == [row[2] for row in before]
    sound(path)


@pytest.mark.parametrize("hidden", [False, True])
async def test_a_function_that_ends_the_transaction_all_the_same_harms_nobody_else(path: Path, hidden: bool) -> None:
    async with store_at(path) as store:
        numbers = [await create(store, f"s{index}") for index in range(8)]
        execute(path, "CREATE TABLE theirs (x UNIQUE)")
        before = await everything(store, "s4")
        calls: list[int] = []

        def twice(connection: apsw.Connection) -> None:
            calls.append(1)
            put(4)(connection)
            with suppress(*([apsw.ConstraintError] if hidden else [])):
                connection.execute("INSERT OR ROLLBACK INTO theirs VALUES (4)")

        answers = await together(
            path, store, [store.commit(within(step(no), twice if index == 4 else put(index))) for index, no in enumerate(numbers)]
        )
        assert isinstance(answers[4], TransactionLost)
        assert [answer for index, answer in enumerate(answers) if index != 4] == [Committed(2, 0, 1)] * 7
        assert await everything(store, "s4") == before
        assert len(calls) == 1
    assert theirs(path) == [0, 1, 2, 3, 5, 6, 7]
    sound(path)


@pytest.mark.parametrize("statement", ["SELECT count(*) FROM n", "INSERT INTO theirs SELECT x FROM n"])
async def test_sql_that_does_not_end_is_ended_and_harms_nobody_else(path: Path, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(within_module, "SECONDS", 0.05)
    async with store_at(path) as store:
        numbers = [await create(store, f"s{index}") for index in range(4)]
        execute(path, "CREATE TABLE theirs (x)")

        def endless(connection: apsw.Connection) -> None:
            connection.execute(f"WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) {statement}").fetchall()

        answers = await together(
            path, store, [store.commit(within(step(no), endless if index == 1 else put(index))) for index, no in enumerate(numbers)]
        )
        assert isinstance(answers[1], TransactionLost)
        assert [answer for index, answer in enumerate(answers) if index != 1] == [Committed(2, 0, 1)] * 3
    assert theirs(path) == [0, 2, 3]
    sound(path)


async def test_a_statement_that_is_left_half_done_is_over_when_the_function_is(path: Path) -> None:
    kept: list[Any] = []
    async with store_at(path) as store:
        numbers = [await create(store, f"s{index}") for index in range(4)]
        execute(path, "CREATE TABLE theirs (x)")

        def half(connection: apsw.Connection) -> None:
            kept.append(connection.execute("INSERT INTO theirs VALUES (10), (11) RETURNING x"))
            kept.append(connection.cursor().execute("SELECT x FROM theirs"))
            next(kept[0])

        answers = await together(
            path, store, [store.commit(within(step(no), half if index == 1 else put(index))) for index, no in enumerate(numbers)]
        )
        assert answers == [Committed(2, 0, 1)] * 4
        for cursor in kept:
            with pytest.raises((apsw.CursorClosedError, StopIteration)):
                next(cursor)
        assert isinstance(await store.commit(within(step(numbers[0], 2), put(20))), Committed)
    assert theirs(path) == [0, 2, 3, 10, 11, 20]
    sound(path)


async def test_users_may_use_savepoints_of_their_own(path: Path) -> None:
    def book(connection: apsw.Connection) -> None:
        connection.execute("CREATE TABLE theirs (x)")
        with connection:
            put(1)(connection)
        with suppress(KeyError), connection:
            put(2)(connection)
            raise KeyError
        connection.execute("SAVEPOINT mine; INSERT INTO theirs VALUES (3)")

    async with store_at(path) as store:
        assert isinstance(await store.commit(within(step(await create(store)), book)), Committed)
    assert theirs(path) == [1, 3]
    sound(path)


async def test_what_was_made_of_a_users_statements_is_found_again_after_a_commit_of_unknown_outcome(path: Path) -> None:
    """The entries are only known once the function ran; they, and not those that were asked for, tell whether it is stored."""
    execute_once = []

    async with store_at(path) as store:
        no = await create(store)
        assert isinstance(store, SQLiteStore)
        writer = store._writer
        assert writer is not None
        run = writer._tx.run

        def commit_and_fail(name: str, values: Any = None) -> None:
            run(name, values)
            if name == "commit" and not execute_once:
                execute_once.append(1)
                raise apsw.IOError("nobody knows")

        writer._tx.run = commit_and_fail  # type: ignore[method-assign]

        def made(run: Run) -> Commit:
            run(lambda connection: connection.execute("CREATE TABLE theirs (x)"))
            return step(no)

        bare = Commit(no=no, version=1, fence=0, holder=None, at=1, within=made)
        assert await store.commit(bare) == Committed(2, 0, 1)
        assert execute_once
    assert theirs(path) == []
    sound(path)


def closes(connection: Any) -> None:
    connection.close()


def closes_by_a_cursor(connection: Any) -> None:
    connection.cursor().connection.close()


def traces(connection: Any) -> None:
    connection.set_exec_trace(lambda *_: 1 / 0)


def permits(connection: Any) -> None:
    connection.set_authorizer(None)


def opens_a_blob(connection: Any) -> None:
    connection.blob_open("main", "journal", "body", 1, True)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("meddle", [closes, closes_by_a_cursor, traces, permits, opens_a_blob])
async def test_the_connection_itself_is_out_of_a_users_reach(path: Path, meddle: Callable[[Any], None], hidden: bool) -> None:
    def function(connection: Any) -> None:
        put(4)(connection)
        with suppress(*([apsw.Error] if hidden else [])):
            meddle(connection)

    async with store_at(path) as store:
        numbers = [await create(store, f"s{index}") for index in range(4)]
        execute(path, "CREATE TABLE theirs (x)")
        asked = [store.commit(within(step(no), function if index == 1 else put(index))) for index, no in enumerate(numbers)]
        answers = await asyncio.wait_for(together(path, store, asked), 20)
        assert [answer for index, answer in enumerate(answers) if index != 1] == [Committed(2, 0, 1)] * 3
        assert isinstance(answers[1], Committed if hidden else apsw.AuthError)
        assert isinstance(await store.commit(within(step(numbers[0], 2), put(20))), Committed)
    assert theirs(path) == sorted([0, 2, 3, 20, *([4] if hidden else [])])
    sound(path)


async def test_a_connection_that_is_kept_is_of_no_use_after_the_commit(path: Path) -> None:
    kept: list[Any] = []

    def keeping(connection: Any) -> None:
        put(1)(connection)
        kept.extend((connection, connection.execute, connection.cursor(), connection.cursor().connection))

    async with store_at(path) as store:
        no = await create(store)
        execute(path, "CREATE TABLE theirs (x)")
        assert isinstance(await store.commit(within(step(no), keeping)), Committed)
        connection, execute_kept, cursor, again = kept
        more = "INSERT INTO theirs VALUES (2)"
        for use in (
            lambda: connection.execute(more),
            lambda: execute_kept(more),
            lambda: cursor.execute(more),
            lambda: again.execute(more),
        ):
            with pytest.raises((apsw.ConnectionClosedError, apsw.CursorClosedError)):
                use()
        with pytest.raises(apsw.ConnectionClosedError), connection:
            pass
    assert theirs(path) == [1]
    sound(path)


async def test_sql_that_was_ended_fails_the_function_even_if_it_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(within_module, "SECONDS", 0.05)

    def hiding(connection: Any) -> None:
        put(1)(connection)
        with suppress(apsw.InterruptError):
            connection.execute("WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n").fetchall()

    async with store_at(path) as store:
        no = await create(store)
        execute(path, "CREATE TABLE theirs (x)")
        with pytest.raises(TransactionLost, match="longer than"):
            await store.commit(within(step(no), hiding))
        assert (await row_of(store)).version == 1
    assert theirs(path) == []
    sound(path)


async def test_a_writer_whose_connection_is_gone_tells_so_and_can_still_be_closed(path: Path) -> None:
    async with store_at(path) as store:
        assert isinstance(store, SQLiteStore)
        no = await create(store)
        writer = store._writer
        assert writer is not None
        gone = writer._tx.connection.close
        with pytest.raises(PerdureError):
            await asyncio.wait_for(store.commit(within(step(no), lambda _: gone())), 10)
        with pytest.raises(PerdureError):
            await asyncio.wait_for(store.commit(step(no)), 10)
        await asyncio.wait_for(store.close(), 10)
