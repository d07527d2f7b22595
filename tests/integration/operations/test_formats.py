"""Stores that an earlier version wrote are opened, verified and gone on with; older processes that have one open are kept out of it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure
from perdure import FormatUnknown, Runtime
from perdure.runtime.verify import verify
from perdure.store.conformance.kit import create, row_of, step
from perdure.store.postgres import PostgresStore
from perdure.store.postgres import database as postgres_database
from perdure.store.postgres.sql import Sql, Version, sql_for
from perdure.store.sqlite import SQLiteStore
from perdure.store.sqlite import database as sqlite_database
from perdure.store.sqlite import sql as sqlite_sql
from tests.postgres import Server, server

from .frozen.scene import HERE, LARGE, NAMES, SCHEMA, clerk, dumped

FILES, DUMPS = sorted(HERE.glob("format-*.db")), sorted(HERE.glob("format-*.sql"))


@pytest.fixture
def postgres() -> Iterator[Server]:
    found = server()
    yield found
    found.clear()


def restored(postgres: Server, dump: str, was: str) -> str:
    """The address of a store that is made of a dump, in another schema: its name stands in what functions do."""
    schema = postgres.schema()
    postgres.execute(dump.replace(was, schema))
    return postgres.store(schema)


@asynccontextmanager
async def sound(url: str) -> AsyncIterator[Runtime]:
    """A store that verifies when it is opened, and when whatever was done to it is over."""
    async with perdure.open(url) as runtime:
        assert [problem async for problem in verify(runtime.store)] == []
        yield runtime
        assert [problem async for problem in verify(runtime.store)] == []


async def goes_on(url: str) -> None:
    """Everything that stands in a frozen store is there, and every session comes to its end."""
    agent = clerk()
    async with sound(url) as runtime:
        sessions = runtime.sessions
        assert sorted([info.session_id async for info in sessions.each()]) == [*NAMES]
        assert LARGE in (await sessions.history("large"))[0].text
        assert [message.text for message in await sessions.history("fork")] == [message.text for message in await sessions.history("done")]
        assert (await runtime.run(agent, "look, please", session="done", submission="m")).output == "done: look, please"
        [request] = await sessions.requests("asking")
        await sessions.approve("asking", request.request_id)
        # What held it is gone, and on one machine or after a lease that is seen.
        await runtime.recover([agent])
        await runtime.recover([agent], session="cut", force=True)
        for name in NAMES:
            assert (await sessions.info(name)).status == "idle", name
        assert "refunded 5" in repr(await sessions.history("asking"))
        assert [effect.name for effect in await sessions.uncertain("cut")] == ["pay"]
        assert (await sessions.result("queued", "m")) is not None
        assert (await runtime.run(agent, "look again", session="fork", submission="m2")).output == "done: look again"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_a_file_of_every_format_is_opened_verified_and_gone_on_with(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "agents.db")
    await goes_on(str(tmp_path / "agents.db"))


@pytest.mark.parametrize("file", DUMPS, ids=lambda file: file.stem)
async def test_a_dump_of_every_format_is_restored_verified_and_gone_on_with(file: Path, postgres: Server) -> None:
    await goes_on(restored(postgres, file.read_text(), SCHEMA))


async def test_a_dump_of_a_database_in_use_is_a_store_under_another_name(postgres: Server) -> None:
    schema = postgres.schema()
    async with perdure.open(postgres.store(schema)) as runtime:
        await runtime.run(clerk(), "pay, please", session="s", submission="m")
        url = restored(postgres, dumped(postgres.url, schema), schema)
        async with sound(url) as copy:
            assert copy.store.store_id == runtime.store.store_id
            assert (await copy.run(clerk(), "look", session="s", submission="m2")).output == "done: look"
            assert (await runtime.sessions.info("s")).version < (await copy.sessions.info("s")).version


# ---------------------------------------------------------------------------------------------------------- a version to come


NEXT = "ALTER TABLE {}sessions ADD COLUMN mood TEXT DEFAULT 'calm'; CREATE TABLE {}moods (name TEXT PRIMARY KEY);"


async def test_a_file_is_renewed_once_and_an_older_process_that_has_it_open_writes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = SQLiteStore(tmp_path / "a.db")
    await old.open()
    no = await create(old)
    monkeypatch.setattr(sqlite_database, "FORMAT", 2)
    monkeypatch.setitem(sqlite_sql.RENEWALS, 2, NEXT.format("", ""))
    new = SQLiteStore(tmp_path / "a.db")
    await new.open()
    assert (await row_of(new)).no == no
    assert await new.commit(step(no))
    again = SQLiteStore(tmp_path / "a.db")
    await again.open()
    await again.close()
    # As the code that it was: it knows one format.
    monkeypatch.setattr(sqlite_database, "FORMAT", 1)
    with pytest.raises(FormatUnknown, match="newer perdure"):
        await old.commit(step(no, 2))
    with pytest.raises(FormatUnknown, match="format 2"):
        await SQLiteStore(tmp_path / "a.db").open()
    monkeypatch.setattr(sqlite_database, "FORMAT", 2)
    assert (await row_of(new)).version == 2
    assert await new.commit(step(no, 2))
    await new.close()
    await old.close()


async def test_a_renewal_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        await runtime.run(clerk(), "look", session="s", submission="m")
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_database, "FORMAT", 2)
        patched.setitem(sqlite_sql.RENEWALS, 2, NEXT.format("", "") + "CREATE TABLE sessions (x);")
        with pytest.raises(perdure.StoreError):
            await SQLiteStore(tmp_path / "a.db").open()
    async with sound(str(tmp_path / "a.db")) as runtime:
        assert (await runtime.run(clerk(), "look", session="s", submission="m2")).output == "done: look"


def next_sql(schema: str) -> Sql:
    """What the next version might be: a table more, and the function that writes under another name, as it does something else now."""
    known = sql_for(schema)
    renamed = known.queries["write"].replace(b".write(", b".write_2(")
    statements = NEXT.format(f'"{schema}".', f'"{schema}".') + f'ALTER FUNCTION "{schema}".write RENAME TO write_2;'
    return known._replace(
        queries=known.queries | {"write": renamed},
        versions=(*known.versions, Version(2, statements)),
        objects=(known.objects - {"write()"}) | {"write_2()", "moods"},
    )


async def test_a_schema_is_renewed_once_and_an_older_process_that_has_it_open_writes_no_more(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.store(postgres.schema())
    old = PostgresStore(url)
    await old.open()
    no = await create(old)
    with monkeypatch.context() as patched:
        patched.setattr(postgres_database, "FORMAT", 2)
        patched.setattr(postgres_database, "sql_for", next_sql)
        new, again = PostgresStore(url), PostgresStore(url)
        await new.open()
        await again.open()
    assert new.store_id == old.store_id
    assert await new.commit(step(no))
    with pytest.raises(FormatUnknown, match="renewed"):
        await old.commit(step(no, 2))
    with pytest.raises(FormatUnknown, match="newer perdure"):
        await PostgresStore(url).open()
    assert (await row_of(again)).version == 2
    for store in (old, new, again):
        await store.close()
