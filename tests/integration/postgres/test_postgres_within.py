"""What users do inside a commit in PostgreSQL: their tables are their own, and the transaction is the store's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from perdure.core.errors import TransactionLost
from perdure.store.base import Committed
from perdure.store.conformance import create, everything, row_of, step, within
from perdure.store.postgres import PostgresStore
from perdure.store.postgres import within as within_module
from tests.postgres import Server

Mine = tuple[PostgresStore, Callable[[], list[tuple[Any, ...]]]]


@pytest.fixture
async def mine(postgres: Server) -> AsyncIterator[Mine]:
    """A store, and what stands in a user's table beside its own."""
    schema = postgres.schema()
    store = PostgresStore(postgres.store(schema, application_name=schema))
    await store.open()
    postgres.execute(
        f"""SET search_path TO "{schema}"; CREATE TABLE theirs (x int);
            CREATE TABLE seats (x int REFERENCES sessions (no) DEFERRABLE INITIALLY DEFERRED)"""
    )
    yield store, lambda: postgres.execute(f'SELECT x FROM "{schema}".theirs ORDER BY x')
    await store.close()


def put(value: int, *more: str) -> Callable[[psycopg.Connection[Any]], Any]:
    def function(connection: psycopg.Connection[Any]) -> None:
        connection.execute("INSERT INTO theirs VALUES (%s)", (value,))
        for statement in more:
            connection.execute(statement.encode())

    return function


MEDDLING = [
    "UPDATE sessions SET version = version",
    "DELETE FROM journal WHERE seq = 9",
    "DELETE FROM lent",
    "INSERT INTO cursors VALUES ('s', 1, 'ann', 1)",
    "SELECT value FROM meta",
    "SELECT claim(7, no, 'r9', true, NULL) FROM sessions",
    "TRUNCATE effects",
    "DROP TABLE effects",
    "ALTER TABLE inbox ADD COLUMN mine int",
    "CREATE INDEX mine ON journal (at)",
    "CREATE TRIGGER mine BEFORE UPDATE ON sessions FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
]
ENDING = ["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN", "RELEASE within", "ROLLBACK TO within; RELEASE within"]


async def test_what_belongs_to_the_store_is_out_of_a_users_reach(mine: Mine) -> None:
    store, theirs = mine
    no = await create(store)
    before = await everything(store, "s")
    for statements in MEDDLING:
        with pytest.raises(TransactionLost, match="store's own tables"):
            await store.commit(within(step(no), put(1, statements)))
    for statements in ENDING:
        with pytest.raises(TransactionLost, match=r"end(ed)? the transaction"):
            await store.commit(within(step(no), put(2, *statements.split("; "))))
    assert await everything(store, "s") == before
    assert await store.commit(within(step(no), put(3))) == Committed(2, 0, 1)
    assert theirs() == [(3,)]


def committed(connection: psycopg.Connection[Any]) -> None:
    connection.commit()


def committed_with_a_savepoint(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SAVEPOINT mine")
    connection.execute("COMMIT AND CHAIN")


def committed_in_a_pipeline(connection: psycopg.Connection[Any]) -> None:
    with connection.pipeline():
        connection.execute("COMMIT")


def committed_below_the_cursors(connection: psycopg.Connection[Any]) -> None:
    connection.pgconn.exec_(b"COMMIT")


def committed_after_a_check(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    connection.execute("COMMIT")


def committed_with_a_check(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET CONSTRAINTS ALL IMMEDIATE; COMMIT")


def committed_after_the_savepoint(connection: psycopg.Connection[Any]) -> None:
    connection.execute("ROLLBACK TO within")
    put(2, "COMMIT")(connection)


def rolled_back_before_more(connection: psycopg.Connection[Any]) -> None:
    connection.rollback()
    put(2)(connection)


def rolled_back_with_more(connection: psycopg.Connection[Any]) -> None:
    connection.execute("ROLLBACK; INSERT INTO theirs VALUES (2)")


def rolled_back_before_a_block(connection: psycopg.Connection[Any]) -> None:
    connection.rollback()
    with connection.transaction():
        put(2)(connection)


def chained(connection: psycopg.Connection[Any]) -> None:
    connection.execute(psycopg.sql.SQL("ROLLBACK AND CHAIN"))
    put(2, "COMMIT")(connection)


def prepared(connection: psycopg.Connection[Any]) -> None:
    connection.execute("PREPARE TRANSACTION 'mine'")


ENDS = [
    *(committed, committed_with_a_savepoint, committed_in_a_pipeline, committed_below_the_cursors),
    *(committed_after_a_check, committed_with_a_check, committed_after_the_savepoint, prepared),
    *(rolled_back_before_more, rolled_back_before_a_block, rolled_back_with_more, chained),
]
REFUSED = (rolled_back_with_more, chained)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("ending", ENDS)
async def test_nothing_stays_of_a_function_that_ends_its_transaction_by_whatever_way(
    mine: Mine, ending: Callable[[psycopg.Connection[Any]], None], hidden: bool
) -> None:
    store, theirs = mine
    no = await create(store)

    def function(connection: psycopg.Connection[Any]) -> None:
        put(1)(connection)
        with suppress(*([Exception] if hidden else [])):
            ending(connection)

    refused = ending in REFUSED
    if hidden and refused:
        assert await store.commit(within(step(no), function)) == Committed(2, 0, 1)
        assert theirs() == [(1,)]
        return
    with pytest.raises(TransactionLost, match="asked to end" if refused else "ended the transaction"):
        await store.commit(within(step(no), function))
    assert theirs() == []
    assert (await row_of(store)).version == 1
    assert await store.commit(within(step(no), put(3))) == Committed(2, 0, 1)
    assert theirs() == [(3,)]
    assert postgres_rows(store, "lent") == []


def postgres_rows(store: PostgresStore, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(store.address.conninfo, autocommit=True) as connection:
        return connection.execute(f'SELECT * FROM "{store.address.schema}".{table}'.encode()).fetchall()


async def test_a_function_may_have_its_constraints_checked_early_and_often(mine: Mine) -> None:
    store, theirs = mine
    no = await create(store)

    def checked(connection: psycopg.Connection[Any]) -> None:
        for _ in range(3):
            put(1, "SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED")(connection)
        with pytest.raises(psycopg.errors.ForeignKeyViolation), connection.transaction():
            put(2, "INSERT INTO seats VALUES (77)", "SET CONSTRAINTS ALL IMMEDIATE")(connection)

    assert await store.commit(within(step(no), checked)) == Committed(2, 0, 1)
    assert theirs() == [(1,)] * 3


async def test_sql_that_does_not_end_is_ended(mine: Mine, monkeypatch: pytest.MonkeyPatch) -> None:
    store, theirs = mine
    no = await create(store)
    monkeypatch.setattr(within_module, "SECONDS", 0.1)

    def many(connection: psycopg.Connection[Any]) -> None:
        while True:
            put(1)(connection)

    def nothing(connection: psycopg.Connection[Any]) -> None:
        put(1)(connection)
        while not gone(store):
            time.sleep(0.01)

    for endless in (put(1, "SELECT pg_sleep(60)"), many, nothing):
        with pytest.raises(TransactionLost, match="longer than"):
            await asyncio.wait_for(store.commit(within(step(no), endless)), 20)
    assert theirs() == []
    monkeypatch.undo()
    assert await store.commit(within(step(no), put(2))) == Committed(2, 0, 1)


@pytest.mark.parametrize("again", [False, True])
async def test_sql_that_was_ended_fails_the_function_even_if_it_goes_on(mine: Mine, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    store, theirs = mine
    no = await create(store)
    monkeypatch.setattr(within_module, "SECONDS", 0.2)

    def hiding(connection: psycopg.Connection[Any]) -> None:
        put(1)(connection)
        with suppress(psycopg.errors.QueryCanceled), connection.transaction():
            connection.execute("SELECT pg_sleep(60)")
        if again:
            with suppress(TransactionLost):
                put(2)(connection)

    with pytest.raises(TransactionLost, match="longer than"):
        await asyncio.wait_for(store.commit(within(step(no), hiding)), 20)
    assert theirs() == []
    monkeypatch.undo()
    assert await store.commit(within(step(no), put(2))) == Committed(2, 0, 1)


def rows() -> Iterator[tuple[int]]:
    while True:
        yield (1,)


def executed_many(connection: psycopg.Connection[Any]) -> None:
    connection.cursor().executemany("INSERT INTO theirs VALUES (%s)", rows())


def executed_many_times(connection: psycopg.Connection[Any]) -> None:
    while True:
        connection.cursor().executemany("INSERT INTO theirs VALUES (%s)", [(1,)])


def streamed(connection: psycopg.Connection[Any]) -> None:
    while True:
        assert [*connection.cursor().stream("SELECT 1")] == [(1,)]


def copied(connection: psycopg.Connection[Any]) -> None:
    while True:
        with connection.cursor().copy("COPY theirs FROM STDIN") as copy:
            copy.write_row((1,))


def named(connection: psycopg.Connection[Any]) -> None:
    while True:
        with connection.cursor("mine") as cursor:
            cursor.execute("SELECT 1")


def fetched(connection: psycopg.Connection[Any]) -> None:
    with connection.cursor("mine") as cursor:
        cursor.itersize = 1
        for _ in cursor.execute("SELECT generate_series(1, 1000000000)"):
            pass


@pytest.mark.parametrize("endless", [executed_many, executed_many_times, streamed, copied, named, fetched])
async def test_no_kind_of_cursor_begins_a_statement_when_the_time_is_over(
    mine: Mine, monkeypatch: pytest.MonkeyPatch, endless: Callable[[psycopg.Connection[Any]], None]
) -> None:
    store, theirs = mine
    no = await create(store)
    monkeypatch.setattr(within_module, "SECONDS", 0.2)

    def bounded(connection: psycopg.Connection[Any]) -> None:
        given_up = threading.Timer(20.0, connection.cancel)
        given_up.start()
        try:
            endless(connection)
        finally:
            given_up.cancel()

    began = time.monotonic()
    with pytest.raises(TransactionLost, match="longer than"):
        await store.commit(within(step(no), bounded))
    assert time.monotonic() - began < 20
    assert theirs() == []
    monkeypatch.undo()
    assert await store.commit(within(step(no), put(2))) == Committed(2, 0, 1)


async def test_what_was_put_off_to_the_end_has_no_more_time_than_the_rest(mine: Mine, monkeypatch: pytest.MonkeyPatch) -> None:
    store, theirs = mine
    no = await create(store)
    with psycopg.connect(store.address.conninfo, autocommit=True) as connection:
        connection.execute(
            f"""SET search_path TO "{store.address.schema}";
                CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(NEW.x); RETURN NULL; END';
                CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON theirs DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION slow()""".encode()
        )
    monkeypatch.setattr(within_module, "SECONDS", 0.2)
    for more in ((), ("SET statement_timeout = 0",)):
        with pytest.raises(TransactionLost, match="longer than"):
            await asyncio.wait_for(store.commit(within(step(no), put(60, *more))), 20)
    assert theirs() == []
    monkeypatch.undo()
    assert await store.commit(within(step(no), put(0))) == Committed(2, 0, 1)


def gone(store: PostgresStore) -> bool:
    """Whether the server has ended what did nothing in a transaction."""
    with psycopg.connect(store.address.conninfo, autocommit=True) as connection:
        idle = "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND application_name = current_setting('application_name')"
        return not connection.execute(idle).fetchall()


async def test_what_a_function_set_is_set_for_nobody_after_it(mine: Mine) -> None:
    store, _ = mine
    no = await create(store)
    setting = ("SET synchronous_commit = off", "SET statement_timeout = 1", "SET search_path = nowhere", "SET ROLE pg_monitor")
    kept: list[psycopg.Connection[Any]] = []

    def odd(connection: psycopg.Connection[Any]) -> None:
        connection.row_factory = psycopg.rows.dict_row  # type: ignore[assignment]
        put(1, *setting)(connection)
        kept.append(connection)

    assert await store.commit(within(step(no), odd)) == Committed(2, 0, 1)
    for name in (
        "synchronous_commit",
        "statement_timeout",
        "search_path",
        "role",
        "idle_in_transaction_session_timeout",
        "default_transaction_read_only",
    ):
        ((value,),) = kept[0].execute(f"SHOW {name}".encode()).fetchall()
        with psycopg.connect(store.address.conninfo) as fresh:
            assert fresh.execute(f"SHOW {name}".encode()).fetchall() == [(value,)]


async def test_a_constraint_that_was_put_off_is_the_functions_failure_and_not_the_commits(mine: Mine) -> None:
    store, theirs = mine
    no = await create(store)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await store.commit(within(step(no), put(1, "INSERT INTO seats VALUES (77)")))
    assert (await row_of(store)).version == 1
    assert await store.commit(within(step(no), put(2, f"INSERT INTO seats VALUES ({no})"))) == Committed(2, 0, 1)
    assert theirs() == [(2,)]


def closes(connection: psycopg.Connection[Any]) -> None:
    connection.close()


def cut(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.mark.parametrize("loses", [closes, cut])
async def test_a_function_that_loses_its_connection_each_time_is_not_called_for_ever(
    mine: Mine, loses: Callable[[psycopg.Connection[Any]], None]
) -> None:
    store, theirs = mine
    no = await create(store)
    calls: list[int] = []

    def function(connection: psycopg.Connection[Any]) -> None:
        calls.append(1)
        put(1)(connection)
        loses(connection)

    with pytest.raises(TransactionLost, match="the connection was lost while a function used it"):
        await asyncio.wait_for(store.commit(within(step(no), function)), 20)
    assert len(calls) == 3
    assert theirs() == []
    assert await store.commit(within(step(no), put(3))) == Committed(2, 0, 1)


async def test_a_connection_that_is_lost_once_costs_the_function_nothing(mine: Mine) -> None:
    store, theirs = mine
    no = await create(store)
    calls: list[int] = []

    def function(connection: psycopg.Connection[Any]) -> None:
        calls.append(1)
        put(len(calls))(connection)
        if len(calls) == 1:
            cut(connection)

    assert await store.commit(within(step(no), function)) == Committed(2, 0, 1)
    assert theirs() == [(2,)]
