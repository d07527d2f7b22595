"""What can be wrong with a database, and what it does to the sessions in it: nothing, and whoever asks is told what to do."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import msgspec
import psycopg
import pytest

import perdure
from perdure import Agent, FunctionModel, ScriptedModel
from perdure.cli import main
from perdure.core.errors import (
    FormatUnknown,
    InvalidURL,
    MissingExtra,
    StoreBroken,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    UsageError,
)
from perdure.runtime.stores import store_at
from perdure.runtime.verify import verify
from perdure.store.base import Committed, InboxMoved, Refusal, Sent, SessionQuery
from perdure.store.conformance.kit import LEASE, catalogue, content, create, creation, fact, facts, row_of, runner, step, submission
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.address import parse
from perdure.store.postgres.line import Demoted, Line
from perdure.store.postgres.notices import Notices
from perdure.store.postgres.sql import channel_of, sql_for
from perdure.store.postgres.writer import BATCH_LIMIT
from perdure.workers.procrastinate import ProcrastinateEngine
from tests.postgres import Server

from .test_postgres_conformance import PARTITIONED


@asynccontextmanager
async def opened(server: Server, schema: str, **options: Any) -> AsyncIterator[PostgresStore]:
    words = {name: options.pop(name) for name in ("application_name", "dbname", "listen") if name in options}
    store = PostgresStore(server.store(schema, **words), **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def trigger(schema: str, table: str, body: str, when: str = "BEFORE INSERT OR UPDATE") -> str:
    """What an administrator's own code may do to a table."""
    return f"""
        CREATE OR REPLACE FUNCTION "{schema}".theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
        CREATE OR REPLACE TRIGGER theirs {when} ON "{schema}".{table} FOR EACH ROW EXECUTE FUNCTION "{schema}".theirs()
    """


# ------------------------------------------------------------------------------------------------------------- one among many


async def test_a_commit_that_the_database_refuses_fails_alone_whatever_it_shares_a_statement_with(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        numbers = [await create(store, f"s{index}") for index in range(12)]
        postgres.execute(trigger(schema, "journal", f"IF NEW.no = {numbers[5]} THEN RAISE 'not this one'; END IF; RETURN NEW;"))
        answers = await asyncio.gather(
            *(store.commit(step(no, blobs=(content(b"b"),), consumed=(("m1", 2),))) for no in numbers),
            *(store.send(submission(f"n{index}")) for index in range(5)),
            return_exceptions=True,
        )
        broken = answers.pop(5)
        assert isinstance(broken, StoreBroken)
        assert "not this one" in str(broken)
        assert answers[:11] == [Committed(2, 0, 1)] * 11
        assert all(isinstance(sent, Sent) for sent in answers[11:])
        row = await row_of(store, "s5")
        assert (row.version, len(await store.inbox(row.no)), await store.blobs("s5")) == (1, 1, [])
        postgres.execute(f'DROP TRIGGER theirs ON "{schema}".journal')
        assert await store.commit(step(numbers[5])) == Committed(2, 0, 1)


async def test_nobody_waits_for_a_session_that_somebody_else_has_locked_but_its_own_writers(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        one, two = await create(store, "one"), await create(store, "two")
        with psycopg.connect(postgres.url) as holder:
            holder.execute(f'SELECT FROM "{schema}".sessions WHERE no = {one} FOR UPDATE'.encode())
            waiting = [asyncio.create_task(store.commit(step(one, version))) for version in (1, 2, 3)]
            sending = [asyncio.create_task(store.send(submission("one", name))) for name in ("m2", "m3", "m4")]
            for version in range(1, 20):
                assert await store.commit(step(two, version)) == Committed(version + 1, 0, 1)
            assert not any(task.done() for task in (*waiting, *sending))
        assert [(await task).version for task in waiting] == [2, 3, 4]  # type: ignore[union-attr]
        assert [(await task).row.arrival for task in sending] == [2, 3, 4]  # type: ignore[union-attr]


@contextmanager
def held_up(postgres: Server, schema: str) -> Iterator[Callable[[], bool]]:
    """Nobody gets on in this schema meanwhile; whether somebody waits for that."""
    with psycopg.connect(postgres.url) as holder:
        holder.execute(f'LOCK TABLE "{schema}".sessions IN ACCESS EXCLUSIVE MODE'.encode())

        def waited_for() -> bool:
            locks = f"SELECT FROM pg_locks WHERE relation = '\"{schema}\".sessions'::regclass AND NOT granted"
            return holder.execute(locks.encode()).fetchone() is not None

        yield waited_for


@pytest.mark.parametrize("first", ["the send", "the commit"])
async def test_what_shares_a_statement_happens_in_the_order_in_which_it_was_put(postgres: Server, first: str) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no, other = await create(store, "one"), await create(store, "two")
        with held_up(postgres, schema) as waited_for:
            before = asyncio.create_task(store.commit(step(other)))
            while not waited_for():
                await asyncio.sleep(0.001)
            writes: list[Any] = [store.send(submission("one", "m2")), store.commit(step(no, inbox_head=1))]
            tasks = [asyncio.ensure_future(write) for write in (writes if first == "the send" else writes[::-1])]
            await asyncio.sleep(0)
            assert not before.done()
        answers = {type(answer) for answer in await asyncio.gather(before, *tasks)}
        assert answers == ({Committed, Sent, InboxMoved} if first == "the send" else {Committed, Sent})


@pytest.mark.parametrize("first", ["the send", "the commit"])
async def test_what_waits_for_a_locked_session_is_not_overtaken_by_what_was_put_later(postgres: Server, first: str) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no, other = await create(store, "one"), await create(store, "two")
        with psycopg.connect(postgres.url) as holder:
            holder.execute(f'SELECT FROM "{schema}".sessions WHERE no = {no} FOR UPDATE'.encode())
            writes: list[Any] = [store.send(submission("one", "m2")), store.commit(step(no, inbox_head=1))]
            tasks = [asyncio.ensure_future(write) for write in (writes if first == "the send" else writes[::-1])]
            for version in range(1, 10):
                assert await store.commit(step(other, version)) == Committed(version + 1, 0, 1)
        answers = {type(answer) for answer in await asyncio.gather(*tasks)}
        assert answers == ({Sent, InboxMoved} if first == "the send" else {Committed, Sent})


async def test_a_session_that_stays_locked_is_an_error_in_the_end_and_nothing_was_written(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema, patience=0.2) as store:
        no = await create(store)
        with psycopg.connect(postgres.url) as holder:
            holder.execute(f'SELECT FROM "{schema}".sessions WHERE no = {no} FOR UPDATE'.encode())
            with pytest.raises(StoreBroken, match="another transaction"):
                await store.commit(step(no))
        assert await store.commit(step(no)) == Committed(2, 0, 1)


async def test_a_statement_that_hangs_is_cancelled_and_tried_again_before_anybody_is_told_that_the_outcome_is_unknown(
    postgres: Server,
) -> None:
    schema = postgres.schema()
    usual = PostgresStore(postgres.store(schema))
    assert usual._timeout * 3 <= usual._patience
    async with opened(postgres, schema, timeout=0.3, patience=30.0) as store:
        no = await create(store)
        connections = store._writer._line
        with held_up(postgres, schema) as waited_for:
            committing = asyncio.create_task(store.commit(step(no)))
            while not waited_for() or store._writer._line is connections:
                await asyncio.sleep(0.001)
        assert await committing == Committed(2, 0, 1)


async def test_however_many_writes_wait_for_a_locked_session_those_of_others_go_on(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store, asyncio.timeout(20):
        one, two = await create(store, "one"), await create(store, "two")
        with psycopg.connect(postgres.url) as holder:
            holder.execute(f'SELECT FROM "{schema}".sessions WHERE no = {one} FOR UPDATE'.encode())
            waiting = [asyncio.create_task(store.send(submission("one", f"n{index}"))) for index in range(BATCH_LIMIT + 10)]
            while len(store._writer._again) + len(store._writer._sent) < BATCH_LIMIT:
                await asyncio.sleep(0.001)
            for version in range(1, 6):
                assert await store.commit(step(two, version)) == Committed(version + 1, 0, 1)
            assert not any(task.done() for task in waiting)
        assert sorted([(await task).row.arrival for task in waiting]) == list(range(2, BATCH_LIMIT + 12))  # type: ignore[union-attr]


async def test_a_connection_that_is_lost_is_replaced_even_if_all_threads_of_the_loop_wait_for_the_write(postgres: Server) -> None:
    async with opened(postgres, postgres.schema()) as store, asyncio.timeout(20):
        no = await create(store)
        written = threading.Event()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waiting = asyncio.create_task(asyncio.to_thread(written.wait, 20))
        try:
            assert store._writer._line is not None
            postgres.execute(f"SELECT pg_terminate_backend({store._writer._line.psycopg.info.backend_pid})")
            assert await store.commit(step(no)) == Committed(2, 0, 1)
        finally:
            written.set()
        assert await waiting


async def test_a_server_that_takes_connections_and_no_statements_is_tried_less_and_less_often(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres, postgres.schema(), patience=1.0) as store:
        no = await create(store)
        connect, connects = store._writer._database.connect, list[float]()

        def counting() -> Line:
            connects.append(time.monotonic())
            return connect()

        def refused(line: Line, name: str, *values: object) -> None:
            raise Demoted("it is a standby by now")

        with monkeypatch.context() as patched:
            patched.setattr(store._writer._database, "connect", counting)
            patched.setattr(Line, "begin", refused)
            with pytest.raises(StoreBroken, match="whether the write is stored is unknown"):
                await store.commit(step(no))
        assert 2 <= len(connects) <= 5
        assert await store.commit(step(no)) == Committed(2, 0, 1)


async def test_an_answer_that_came_while_the_loop_was_held_up_is_in_time_whatever_the_loop_does_first(postgres: Server) -> None:
    async with opened(postgres, postgres.schema(), timeout=0.3) as store:
        no = await create(store)
        committing = asyncio.create_task(store.commit(step(no)))
        while not store._writer._sent:
            await asyncio.sleep(0)
        connection = store._writer._line
        time.sleep(0.4)
        store._writer._watch()
        assert await committing == Committed(2, 0, 1)
        assert store._writer._line is connection


async def test_a_statement_that_is_longer_than_the_connection_takes_at_once_is_sent_in_parts_and_holds_up_nobody(postgres: Server) -> None:
    async with opened(postgres, postgres.schema()) as store, asyncio.timeout(20):
        numbers = [await create(store, f"s{index}") for index in range(4)]
        large = [content(bytes([index]) * 3_000_000) for index in range(4)]
        committing = [asyncio.create_task(store.commit(step(no, blobs=(blob,)))) for no, blob in zip(numbers, large, strict=True)]
        while store._writer._line is None or not store._writer._line.unsent:
            await asyncio.sleep(0)
            assert not all(task.done() for task in committing), "it was sent at once"
        assert [await task for task in committing] == [Committed(2, 0, 1)] * 4
        for index, blob in enumerate(large):
            stored = await store.blob(f"s{index}", blob.digest)
            assert stored is not None
            assert stored.data == blob.data
        assert not store._writer._line.unsent


@pytest.mark.parametrize("table", ["journal", "inbox", "sessions", "effects", "blobs"])
async def test_a_trigger_that_ignores_rows_is_no_success(postgres: Server, table: str) -> None:
    from perdure.store.base import EffectRow

    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no = await create(store)
        postgres.execute(trigger(schema, table, "RETURN NULL;"))
        effect = EffectRow(effect_key=b"k", seq=2, state="succeeded")
        with pytest.raises(StoreBroken, match="left out"):
            await store.commit(step(no, consumed=(("m1", 2),), effects=(effect,), blobs=(content(b"b"),)))
        postgres.execute(f'DROP TRIGGER theirs ON "{schema}".{table}')
        assert (await row_of(store)).version == 1


# ------------------------------------------------------------------------------------------------------------------- the disk


async def test_a_full_disk_is_said_and_leaves_nothing_behind(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no, other = await create(store), await create(store, "other")
        full = "RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full';"
        postgres.execute(trigger(schema, "journal", f"IF NEW.no = {no} THEN {full} END IF; RETURN NEW;"))
        answers = await asyncio.gather(store.commit(step(no)), store.commit(step(other)), return_exceptions=True)
        assert isinstance(answers[0], StoreFull)
        assert answers[0].hint
        assert answers[1] == Committed(2, 0, 1)
        with pytest.raises(StoreFull):
            await store.commit(step(no, redacted=(1,)))
        postgres.execute(f'DROP TRIGGER theirs ON "{schema}".journal')
        assert await store.commit(step(no)) == Committed(2, 0, 1)


# ----------------------------------------------------------------------------------------------------------------- the schema


@pytest.mark.parametrize("encoding", ["LATIN1", "SJIS"])
async def test_text_is_the_same_whatever_encoding_a_process_is_set_to(
    postgres: Server, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    url, words, agent = postgres.store(postgres.schema()), "für 漢字 \\ 😀", Agent("a", model=FunctionModel(lambda request: "ok"))
    async with perdure.open(url) as runtime:
        await runtime.run(agent, words, session="before", owner=words)
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    async with perdure.open(url) as runtime:
        await runtime.run(agent, words, session="behind", owner=words)
        found = await runtime.sessions.list(owner=words)
        assert [(info.session_id, info.title) for info in found] == [("behind", words), ("before", words)]
        assert [problem.what async for problem in verify(runtime.store)] == []


async def test_a_schema_of_somebody_else_is_left_as_it_is(postgres: Server) -> None:
    schema = postgres.schema()
    postgres.execute(f'CREATE SCHEMA "{schema}"')
    postgres.execute(f'CREATE TABLE "{schema}".sessions (theirs text)')
    with pytest.raises(FormatUnknown, match="not a perdure store"):
        await PostgresStore(postgres.store(schema)).open()
    found = postgres.execute("SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s", schema)
    assert found == [(1,)]


async def test_a_schema_that_somebody_made_and_left_empty_is_used(postgres: Server) -> None:
    schema = postgres.schema()
    postgres.execute(f'CREATE SCHEMA "{schema}"')
    async with opened(postgres, schema) as store:
        await create(store)


def test_a_command_that_only_looks_makes_no_store(postgres: Server, capsys: pytest.CaptureFixture[str]) -> None:
    schema = postgres.schema()
    for command in ("sessions", "workers", "verify"):
        assert main(["--db", postgres.store(schema), command]) == 2
        assert "there is no store at" in (said := capsys.readouterr().err)
        assert "`perdure run` makes one" in said
    assert postgres.execute("SELECT FROM pg_namespace WHERE nspname = %s", schema) == []


def test_advice_names_the_database_without_its_password(postgres: Server, capsys: pytest.CaptureFixture[str]) -> None:
    address = postgres.store(postgres.schema())
    user, _, place = address.partition("://")[2].rpartition("@")
    db = f"postgresql://{user.partition(':')[0]}:geheim@{place}"
    asyncio.run(_begun(db))
    for asked in (["why", "s"], ["why", "s", "--json"], ["send", "s", "hi"], ["backup", "copy.db"], ["sessions"], ["resume", "s"]):
        main([*asked, "--db", db])
    said = capsys.readouterr()
    assert "perdure send s" in said.out
    assert f"--db 'postgresql://{user.partition(':')[0]}@" in said.out
    assert "geheim" not in said.out + said.err


async def _begun(db: str) -> None:
    async with perdure.open(db) as runtime:
        await runtime.run(Agent("a", model=ScriptedModel(["ok"])), "hi", session="s")


def test_what_is_old_is_destroyed_from_the_command_line(postgres: Server, capsys: pytest.CaptureFixture[str]) -> None:
    schema = postgres.schema()

    async def archived() -> list[str]:
        async with perdure.open(postgres.store(schema)) as runtime:
            for name in () if [info async for info in runtime.sessions.each(archived=True)] else ("old", "new"):
                await runtime.run(Agent("a", model=ScriptedModel(["done"])), "please", session=name)
                await runtime.sessions.archive(name)
            return [info.session_id async for info in runtime.sessions.each(archived=True, order="created")]

    assert asyncio.run(archived()) == ["new", "old"]
    postgres.execute(f"UPDATE \"{schema}\".sessions SET updated = updated - 100 * 86400000::bigint WHERE session_id = 'old'")
    assert main(["--db", postgres.store(schema), "vacuum", "--older-than", "90d", "--yes"]) == 0
    assert "1 session destroyed" in capsys.readouterr().out
    assert asyncio.run(archived()) == ["new"]
    assert postgres.execute(f"SELECT count(*) FROM \"{schema}\".journal WHERE root = 'old' AND body IS NOT NULL") == [(0,)]


@pytest.mark.parametrize(
    ("break_it", "lost"),
    [
        ("DROP TABLE {}.effects", "effects"),
        ("ALTER TABLE {}.journal RENAME TO j", "journal"),
        ("ALTER TABLE {}.sessions RENAME COLUMN fence TO fenced", "sessions.fence"),
        ("ALTER TABLE {}.inbox DROP COLUMN not_before", "inbox.not_before"),
        ("ALTER TYPE {}.answer DROP ATTRIBUTE pending CASCADE", "answer.pending"),
        ("DROP INDEX {}.inbox_waiting", "inbox (root, no, arrival)"),
        ("ALTER TABLE {}.sessions DROP CONSTRAINT sessions_session_id_key", "unique sessions (session_id)"),
        ("DROP FUNCTION {}.seek", "seek()"),
        ("DROP TYPE {}.send CASCADE", "send"),
    ],
)
@pytest.mark.parametrize("partitioned", [False, True])
async def test_a_schema_that_is_not_whole_is_refused_by_name(postgres: Server, break_it: str, lost: str, partitioned: bool) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        await create(store)
    if partitioned:
        postgres.execute(PARTITIONED.read_text().replace("perdure.", f"{schema}."))
        break_it = break_it.replace("inbox_waiting", "inbox_root_no_arrival_idx")
        async with opened(postgres, schema):
            pass
    postgres.execute(break_it.format(f'"{schema}"'))
    with pytest.raises(StoreCorrupt, match=rf"has lost .*{re.escape(lost)}"):
        await PostgresStore(postgres.store(schema)).open()


async def test_all_that_a_store_makes_is_looked_for_when_it_is_opened(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema):
        found = sql_for(schema).queries["found"].decode().replace("$1", "%s")
        assert {name for (name,) in postgres.execute(found, schema, schema)} == sql_for(schema).objects


async def test_a_table_that_goes_while_it_is_used_is_an_error_of_its_kind(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no = await create(store)
        postgres.execute(f'ALTER TABLE "{schema}".journal RENAME TO elsewhere')
        with pytest.raises(FormatUnknown):
            await store.commit(step(no))
        with pytest.raises(FormatUnknown):
            await store.entries(no)
        postgres.execute(f'ALTER TABLE "{schema}".elsewhere RENAME TO journal')
        assert await store.commit(step(no)) == Committed(2, 0, 1)


@pytest.mark.parametrize(("number", "words"), [("2", "newer perdure"), ("x", "what format")])
async def test_a_newer_format_is_refused_and_nothing_touched(postgres: Server, number: str, words: str) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        await create(store)
    postgres.execute(f"UPDATE \"{schema}\".meta SET value = %s WHERE key = 'format'", number.encode())
    with pytest.raises(FormatUnknown, match=words):
        await PostgresStore(postgres.store(schema)).open()


async def test_many_that_come_first_at_once_make_one_store(postgres: Server) -> None:
    url = postgres.store(postgres.schema())
    stores = [PostgresStore(url) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    assert len({store.store_id for store in stores}) == 1
    await asyncio.gather(*(store.close() for store in stores))


# ------------------------------------------------------------------------------------------------------------------- the role


async def test_a_role_that_may_only_read_reads(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no = await create(store)
    reader = f"reader_{schema}"
    postgres.execute(f'CREATE ROLE "{reader}" LOGIN')
    try:
        with pytest.raises(StoreBroken, match="may not even be read"):
            await PostgresStore(_as(postgres.store(schema), reader)).open()
        postgres.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{reader}"')
        postgres.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{reader}"')
        store = PostgresStore(_as(postgres.store(schema), reader))
        await store.open()
        assert [entry.seq for entry in await store.entries(no)] == [1]
        assert [row.session_id for row in await store.sessions(SessionQuery())] == ["s"]
        for write in (store.commit(step(no)), store.send(submission(name="m2")), store.heartbeat(runner(), LEASE), store.vacuum()):
            with pytest.raises(StoreReadOnly):
                await write
        await store.close()
        with pytest.raises(StoreReadOnly, match="may not make one"):
            await PostgresStore(_as(postgres.store(postgres.schema()), reader)).open()
    finally:
        postgres.execute(f'DROP OWNED BY "{reader}"')
        postgres.execute(f'DROP ROLE "{reader}"')


def _as(url: str, role: str) -> str:
    return url.replace("postgres:@", f"{role}:@") if "postgres:@" in url else f"{url}&user={role}"


async def test_a_server_that_takes_no_writes_is_a_place_to_read(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no = await create(store)
    url = postgres.store(schema).replace("options=-c", "options=-cdefault_transaction_read_only%3Don%20-c")
    store = PostgresStore(url)
    await store.open()
    assert (await row_of(store)).no == no
    with pytest.raises(StoreReadOnly):
        await store.commit(step(no))
    await store.close()
    with pytest.raises(StoreReadOnly, match="none can be made"):
        await PostgresStore(url.replace(schema, postgres.schema())).open()


# ---------------------------------------------------------------------------------------------------------------- the address


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/d?schema=",
        "postgresql://h/d?schema=pg_mine",
        "postgresql://h/d?schema=a&schema=b",
        "postgresql://h/d?listen=perhaps",
        "postgresql://h/d?blobs=",
        "postgresql://[h/d",
        "postgresql://h/d?x",
    ],
)
def test_an_address_that_can_t_be_right_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidURL) as caught:
        store_at(url)
    assert caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:geheim%x@h/d",
        "postgresql://ann:geheim%00@h/d",
        "postgresql://ann:ge/geheim@h/d",
        "postgresql://ann:ge#geheim@h/d",
        "postgresql://ann:ge?geheim@h/d",
        "postgresql://ann:ge?x=geheim@h/d",
        "postgresql://ann:ge@geheim@h/d",
        "postgresql://ann:ge[geheim@h/d",
        "postgresql://ann:ge]geheim@h/d",
        "postgresql://ann:geheim/d",
        "postgresql://h/d?password=ge%geheim",
        "postgresql://h/d?password=ge#geheim",
    ],
)
def test_a_password_that_is_not_written_as_an_address_wants_it_is_refused_and_not_quoted(url: str) -> None:
    for refused in (store_at, ProcrastinateEngine):
        with pytest.raises(InvalidURL) as caught:
            refused(url)
        assert "%40" in caught.value.hint
        assert "geheim" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__!r}"


def test_what_is_written_as_an_address_wants_it_is_taken() -> None:
    address = parse("postgresql://ann:ge%2F%23%3F%25:x@[fe80::1%25eth0]:5432,h2:99,h3/d?application_name=a%40b&host=%2Ftmp")
    assert address.shown == "postgresql://[fe80::1%25eth0]:5432,h2:99,h3/d"
    assert "application_name=a%40b" in address.conninfo


@pytest.mark.parametrize(("more", "error"), [("&sslmode=perhaps", InvalidURL), ("&nonsense=1", InvalidURL)])
async def test_what_libpq_does_not_take_is_a_wrong_address(postgres: Server, more: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await PostgresStore(postgres.store(postgres.schema()) + more).open()


async def test_an_option_that_libpq_does_not_know_is_named(postgres: Server) -> None:
    url = postgres.store(postgres.schema()) + "&nonsense=1"
    with pytest.raises(InvalidURL, match="nonsense"):
        await PostgresStore(url).open()
    with pytest.raises(InvalidURL, match="nonsense"):
        ProcrastinateEngine(url)


async def test_a_database_that_is_not_there_is_a_wrong_address(postgres: Server) -> None:
    with pytest.raises(InvalidURL, match="does not exist"):
        await PostgresStore(postgres.store(postgres.schema()).replace("/postgres?", "/nowhere?")).open()


async def test_closing_that_nobody_waits_for_any_more_leaves_no_connection_and_no_lease(postgres: Server) -> None:
    schema = postgres.schema()
    store = PostgresStore(postgres.store(schema, application_name=schema))
    await store.open()
    await create(store)
    await store.heartbeat(runner(), 3_600_000)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with asyncio.timeout(20):
        while postgres.execute("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", schema):
            await asyncio.sleep(0.01)
    async with opened(postgres, schema) as other:
        assert [found.expires for found in await other.runners() if found.expires > await other.now()] == []


async def test_a_server_that_is_not_there_is_said_at_once_without_the_password() -> None:
    began = time.monotonic()
    with pytest.raises(StoreBroken, match="can't be reached") as caught:
        await PostgresStore("postgresql://ann:geheim@127.0.0.1:1/x").open()
    assert time.monotonic() - began < 5
    assert "geheim" not in f"{caught.value!r} {caught.value.__cause__!r}"


async def test_without_the_package_it_says_which_extra_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra) as caught:
        async with perdure.open("postgresql://here/x"):
            pass
    assert "pip install '.[postgres]' in a clone" in str(caught.value)


# ------------------------------------------------------------------------------------------------------------------- the time


async def test_hosts_whose_clocks_differ_by_minutes_agree_on_leases_and_on_what_is_due(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = postgres.schema()
    real = time.time_ns
    async with perdure.open(postgres.store(schema)) as here:
        no = await create(here.store)
        await here.store.heartbeat(runner("r1"), LEASE)
        await here.store.claim(no, "r1")
        monkeypatch.setattr(time, "time_ns", lambda: real() + 600_000_000_000)
        async with perdure.open(postgres.store(schema)) as there:
            assert abs(there.clock.now() - real() // 1_000_000) < 2_000
            assert abs(there.clock.now() - here.clock.now()) < 200
            loaded = await there.store.load("s")
            assert loaded is not None
            assert loaded.holder_alive
            assert [known.alive for known in await there.store.runners()] == [True]
            sent = await there.store.send(submission("due", not_before=None))
            assert isinstance(sent, Sent)
        assert await here.store.runnable(limit=9) == ["due"]


# ---------------------------------------------------------------------------------------------------------------- the content


async def test_texts_that_postgresql_can_not_keep_come_back_as_they_were(postgres: Server) -> None:
    odd = "a\x00b\ue000c\ue0000d\ue000\x000"
    async with opened(postgres, postgres.schema()) as store:
        no = await create(store, body=b"\x00\xff")
        labels = {odd: odd, "'; DROP TABLE sessions; --": '"\\'}
        await store.commit(step(no, catalogue=catalogue("idle", title=odd, labels=labels, agent=odd)))
        row = await row_of(store)
        assert (row.title, row.labels, row.agent) == (odd, labels, odd)
        assert [found.no for found in await store.sessions(SessionQuery(labels=labels, words=(odd,), agent=odd))] == [no]
        assert await store.sessions(SessionQuery(labels={odd: "other"})) == []


async def test_a_number_that_has_no_place_is_the_caller_s_mistake_and_nobody_else_s(postgres: Server) -> None:
    async with opened(postgres, postgres.schema()) as store:
        one, two = await create(store, "one"), await create(store, "two")
        huge = step(one, catalogue=catalogue("idle", wake_at=2**63))
        answers = await asyncio.gather(store.commit(huge), store.commit(step(two)), return_exceptions=True)
        assert isinstance(answers[0], UsageError)
        assert answers[1] == Committed(2, 0, 1)


async def test_a_row_of_the_list_that_can_not_be_read_hides_no_other(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        await create(store, "one")
        await create(store, "two")
        postgres.execute(f"UPDATE \"{schema}\".sessions SET labels = '[1]' WHERE session_id = 'one'")
        found = {row.session_id: row.problem for row in await store.sessions(SessionQuery())}
        assert found["two"] == ""
        assert "can't be read" in found["one"]


async def test_what_is_left_of_a_session_without_its_row_is_a_problem(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no, _ = await create(store, "one"), await create(store, "two")
        assert await store.strays(limit=9) == []
        postgres.execute(f"DELETE FROM \"{schema}\".sessions WHERE session_id = 'one'")
        assert await store.strays(limit=9) == [no]
        assert f"(number {no})" in [problem.session_id async for problem in verify(store)]


async def test_content_stands_in_no_statement_that_the_server_sees(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema, application_name=schema) as store:
        no = await create(store, body=b"the password is swordfish")
        await store.commit(step(no, entries=(fact(2, body=b"swordfish"),), catalogue=catalogue("idle", title="swordfish")))
        with psycopg.connect(postgres.url) as holder:
            holder.execute(f'LOCK TABLE "{schema}".journal IN ACCESS EXCLUSIVE MODE'.encode())
            waiting = asyncio.create_task(store.commit(step(no, 2, entries=(fact(3, body=b"swordfish"),))))
            statements: list[str] = []
            while not any("write" in statement for statement in statements):
                await asyncio.sleep(0.01)
                found = postgres.execute("SELECT query FROM pg_stat_activity WHERE application_name = %s AND state = 'active'", schema)
                statements = [statement for (statement,) in found]
        await waiting
        assert statements
        assert not any("swordfish" in statement for statement in statements)


# ------------------------------------------------------------------------------------------------------------------ statements


async def test_a_statement_that_takes_too_long_is_cancelled_on_the_server_too(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema, timeout=0.3, patience=0.1, application_name=schema) as store:
        no = await create(store)
        with psycopg.connect(postgres.url) as holder:
            holder.execute(f'LOCK TABLE "{schema}".journal IN ACCESS EXCLUSIVE MODE'.encode())
            began = time.monotonic()
            with pytest.raises(StoreBroken, match="too long"):
                await store.commit(step(no))
            with pytest.raises(StoreBroken, match="too long"):
                await store.entries(no)
            assert time.monotonic() - began < 10
            while postgres.execute("SELECT FROM pg_stat_activity WHERE application_name = %s AND state = 'active'", schema):
                await asyncio.sleep(0.01)
        assert await store.commit(step(no)) == Committed(2, 0, 1)


async def test_a_large_session_is_deleted_however_long_that_takes_and_a_lock_on_it_is_waited_for_as_by_any_write(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema, timeout=0.3, patience=0.1) as store:
        no = await create(store)
        postgres.execute(trigger(schema, "journal", "PERFORM pg_sleep(0.8); RETURN OLD;", "BEFORE DELETE"))
        with psycopg.connect(postgres.url) as holder:
            holder.execute(f'SELECT FROM "{schema}".sessions WHERE no = {no} FOR UPDATE'.encode())
            with pytest.raises(StoreBroken, match="too long") as told:
                await store.delete(no)
            assert "can't be reached" not in told.value.message
        await store.delete(no)
        assert await store.entries(no) == []


async def test_a_store_is_made_however_long_that_takes_and_whoever_comes_second_waits_for_it(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = postgres.schema()
    sql = sql_for(schema)
    versions = tuple(each._replace(statements=each.statements + "SELECT pg_sleep(0.8);") for each in sql.versions)
    monkeypatch.setattr("perdure.store.postgres.database.sql_for", lambda schema: sql._replace(versions=versions))
    stores = [PostgresStore(postgres.store(schema), timeout=0.3, patience=0.1) for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))
    assert stores[0].store_id == stores[1].store_id
    await asyncio.gather(*(store.close() for store in stores))


async def test_who_looks_for_work_reads_what_is_due_and_joins_what_is_held(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema):
        pass
    statement = sql_for(schema).queries["runnable"].decode().rstrip(";")
    with psycopg.connect(postgres.url) as connection:
        # A plan for tables of any size: an empty one is read whole.
        connection.execute(f"SET enable_seqscan = off; PREPARE look AS {statement}".encode())
        plan = "\n".join(line for (line,) in connection.execute("EXPLAIN EXECUTE look (NULL, NULL, 9, false)").fetchall())
    assert "Index Cond: (wake_at <= " in plan
    assert "Anti Join" in plan
    assert "alive(" not in plan


async def test_steps_are_hot_updates_of_the_session_s_row(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # A database of its own, and no notices: what an open transaction may still want to see is kept for all of a database.
    monkeypatch.setattr(Notices, "announce", lambda self, no: None)
    schema, database = postgres.schema(), f"hot_{postgres.schema()}"
    postgres.execute(f'CREATE DATABASE "{database}"')
    try:
        async with opened(postgres, schema, dbname=database) as store:
            no = await create(store)
            await store.heartbeat(runner(), LEASE)
            await store.claim(no, "r1")
            for version in range(1, 301):
                await store.commit(step(no, version, 1, "r1", checkpoint=b"c" * 900))
        with psycopg.connect(parse(postgres.store(schema, dbname=database)).conninfo, autocommit=True) as connection:
            counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'sessions'"
            updated = hot = 0
            async with asyncio.timeout(20):
                # A backend tells what it did when it ends, and that takes a moment.
                while updated < 300:
                    await asyncio.sleep(0.01)
                    ((updated, hot),) = connection.execute(counted).fetchall()
    finally:
        postgres.execute(f'DROP DATABASE "{database}" WITH (FORCE)')
    # Were a step to change what has an index, none would be; a server that does other things may keep old versions for a moment.
    assert hot >= updated * 0.8


async def test_content_that_a_write_under_way_refers_to_is_not_erased(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        shared = content(b"shared")
        said = fact(2, body=shared.digest.encode())
        no, other = [await create(store, name, create=creation(root="tree")) for name in ("s", "other")]
        assert isinstance(await store.commit(step(no, entries=(said,), blobs=(shared,))), Committed)
        gone = step(no, 2, entries=(fact(3, kind="redacted"),), redacted=(2,), erased=(shared.digest,))
        with psycopg.connect(postgres.url) as writing:
            # What a commit does, but for its end: it found the content, and brings none.
            writing.execute(f'SET search_path = "{schema}"'.encode())
            writing.execute("SELECT FROM sessions WHERE no = %s FOR NO KEY UPDATE", (other,))
            writing.execute("SELECT keep('tree', ARRAY[ROW(%s, 'text/plain', 6, 'shared')::blob])", (shared.digest,))
            entry = "ROW(2, 2, 'message', 1, NULL, '', %s, '')::entry"
            writing.execute(f"SELECT append('tree', %s, ARRAY[{entry}])".encode(), (other, said.body))
            erasing = asyncio.create_task(store.commit(gone))
            waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%commit_alone(%'"
            while not erasing.done() and not postgres.execute(waiting):
                await asyncio.sleep(0.005)
        assert isinstance(await erasing, Committed)
        assert await store.blobs("tree") == [shared.digest]


# --------------------------------------------------------------------------------------------------------------------- notices


async def test_a_change_elsewhere_is_heard_by_number_and_where_nobody_listens_by_polling(postgres: Server) -> None:
    schema = postgres.schema()
    async with (
        opened(postgres, schema) as one,
        opened(postgres, schema, poll=3600.0) as hearing,
        opened(postgres, schema, listen="no", poll=0.05) as polling,
    ):
        no = await create(one)
        heard: asyncio.Queue[int | None] = asyncio.Queue()
        polled = asyncio.Event()
        hearing.changes(heard.put_nowait)
        polling.changes(lambda _: polled.set())
        async with asyncio.timeout(20):
            # The first poll says that anything may have happened; from then on, only announcements can tell.
            while await heard.get() is not None:
                pass
            await polled.wait()
            polled.clear()
            await one.commit(step(no))
            while await heard.get() != no:
                pass
            await polled.wait()


async def test_a_listener_whose_connection_is_cut_hears_again(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as one, opened(postgres, schema, application_name=schema, poll=0.1) as two:
        no = await create(one)
        heard: asyncio.Queue[int | None] = asyncio.Queue()
        two.changes(heard.put_nowait)
        async with asyncio.timeout(20):
            while await heard.get() is not None:
                pass
            postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", schema)
            version = 1
            while True:
                await one.commit(step(no, version))
                version += 1
                if await heard.get() == no:
                    break


async def test_what_changes_while_there_is_no_connection_for_announcements_is_announced_afterwards(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema, application_name=schema) as one, opened(postgres, schema, poll=3600.0) as hearing:
        first = await create(one, "s1")
        heard: asyncio.Queue[int | None] = asyncio.Queue()
        hearing.changes(heard.put_nowait)
        async with asyncio.timeout(20):
            while await heard.get() is not None:
                pass
            await one.commit(step(first))
            while await heard.get() != first:
                pass
            postgres.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s AND query LIKE %s",
                schema,
                "%pg_notify%",
            )
            await one.commit(step(first, 2))
            while not one._notices._down_until:
                await asyncio.sleep(0.001)
            # Nobody listens in this process: only what is announced wakes its thread.
            second = await create(one, "s2")
            while await heard.get() != second:
                pass


@pytest.mark.parametrize("payload", ["hello", "", "-1", "1,x", "9" * 5000])
async def test_a_notice_of_somebody_else_says_that_anything_may_have_changed_and_harms_nobody(postgres: Server, payload: str) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as one, opened(postgres, schema, poll=3600.0) as hearing:
        no = await create(one)
        heard: asyncio.Queue[int | None] = asyncio.Queue()
        hearing.changes(heard.put_nowait)
        async with asyncio.timeout(20):
            while await heard.get() is not None:
                pass
            postgres.execute("SELECT pg_notify(%s, %s)", channel_of(schema), payload)
            while await heard.get() is not None:
                pass
            await one.commit(step(no))
            while await heard.get() != no:
                pass


async def test_a_process_with_thousands_of_open_files_announces_and_hears(postgres: Server) -> None:
    schema = postgres.schema()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2048, hard)), hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            files.enter_context(open(os.devnull, "rb"))
        async with opened(postgres, schema) as one, opened(postgres, schema, poll=3600.0) as hearing:
            no = await create(one)
            heard: asyncio.Queue[int | None] = asyncio.Queue()
            hearing.changes(heard.put_nowait)
            async with asyncio.timeout(20):
                while await heard.get() is not None:
                    pass
                await one.commit(step(no))
                while await heard.get() != no:
                    pass


async def test_a_vacuum_waits_for_those_who_may_still_see_what_was_deleted_and_leaves_nothing_of_it(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        no = await create(store, body=b"swordfish" * 9)
        await store.commit(step(no, entries=facts(2, 200), checkpoint=b"c"))
        size = f"SELECT pg_total_relation_size('\"{schema}\".journal')"
        ((before,),) = postgres.execute(size)
        with psycopg.connect(postgres.url) as reader:
            reader.execute(f'SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM "{schema}".journal'.encode())
            await store.delete(no)
            vacuum = asyncio.create_task(store.vacuum())
            await asyncio.sleep(0.2)
            assert not vacuum.done()
        await vacuum
        ((after,),) = postgres.execute(size)
        assert after < before / 2


async def test_a_lease_is_renewed_without_writing_anew_what_its_runner_says_again(postgres: Server) -> None:
    schema = postgres.schema()
    async with opened(postgres, schema) as store:
        refused = tuple(Refusal(session_id=f"s{index}", since=index, reason=secrets.token_urlsafe(300)) for index in range(100))
        said = msgspec.structs.replace(runner(), refused=refused)
        relation = f"(SELECT reltoastrelid::regclass FROM pg_class WHERE oid = '\"{schema}\".runners'::regclass)"
        ((table,),) = postgres.execute(f"SELECT {relation}::text")

        def written() -> set[int]:
            return {chunk for (chunk,) in postgres.execute(f"SELECT DISTINCT chunk_id::bigint FROM {table}")}

        await store.heartbeat(said, LEASE)
        first = written()
        assert first
        await store.heartbeat(said, LEASE)
        assert written() == first
        await store.heartbeat(msgspec.structs.replace(said, refused=refused[1:]), LEASE)
        assert written().isdisjoint(first)
        assert [known.refused for known in await store.runners()] == [refused[1:]]
