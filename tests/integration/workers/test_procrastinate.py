"""Workers on PostgreSQL with Procrastinate's jobs, which may be deleted or doubled at any time."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from procrastinate.exceptions import ConnectorException
from psycopg.conninfo import conninfo_to_dict

import perdure
from perdure import FormatUnknown, InvalidURL, StoreBroken
from perdure.cli.worker import Brief
from perdure.runtime.verify import verify
from perdure.workers.procrastinate import ProcrastinateEngine
from perdure.workers.worker import Worker
from tests.postgres import Server, server

from .test_workers import STEPS, Shop

NAMES = [f"s{index}" for index in range(12)]

MANUAL = Path(__file__).parents[3] / "docs" / "postgresql.md"


@pytest.fixture
def here() -> Iterator[tuple[Server, str]]:
    """A server, and the name of a schema for the store; that of the jobs has `_jobs` behind it."""
    found = server()
    schema = found.schema()
    yield found, schema
    found.clear()
    found.execute(f'DROP SCHEMA IF EXISTS "{schema}_jobs" CASCADE')


@asynccontextmanager
async def working(url: str, shop: Shop) -> AsyncIterator[Worker]:
    async with ProcrastinateEngine(url, polling=0.2) as engine, perdure.open(url) as runtime:
        worker = Worker(runtime, [shop.agent], engine, concurrency=4, poll=0.05)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(running, 60)


async def until_finished(url: str) -> None:
    async with perdure.open(url) as runtime:
        while True:
            infos = await runtime.sessions.list(limit=100)
            if len(infos) == len(NAMES) and all(info.status == "idle" for info in infos):
                break
            await asyncio.sleep(0.05)
        assert [problem async for problem in verify(runtime.store)] == []


async def test_all_sessions_finish_once_whatever_becomes_of_the_jobs(here: tuple[Server, str], monkeypatch: pytest.MonkeyPatch) -> None:
    postgres, schema = here
    url = postgres.store(schema)
    monkeypatch.setattr("perdure.workers.worker.OVERDUE_MS", 300)
    shop, meddled = Shop(), 0
    async with working(url, shop), working(url, shop):
        async with perdure.open(url) as runtime:
            for name in NAMES:
                await runtime.sessions.send(name, "please", submission="m", agent="shop")
        finishing = asyncio.create_task(until_finished(url))
        while not finishing.done():
            # Every job is doubled, and then all are gone, again and again.
            await asyncio.to_thread(
                postgres.execute,
                f"""SET search_path TO "{schema}_jobs"; INSERT INTO procrastinate_jobs (queue_name, task_name, args)
                    SELECT 'perdure', 'perdure.look', jsonb_build_object('session_id', name)
                    FROM unnest(ARRAY[{", ".join(f"'{name}'" for name in NAMES)}]) AS name""",
            )
            await asyncio.sleep(0.05)
            await asyncio.to_thread(postgres.execute, f'SET search_path TO "{schema}_jobs"; DELETE FROM procrastinate_jobs')
            meddled += 1
            await asyncio.wait([finishing], timeout=0.05)
        await finishing
    assert meddled
    assert len(shop.paid) == STEPS * len(NAMES)
    assert set(shop.paid.values()) == {1}


async def test_a_job_stays_behind_for_no_session(here: tuple[Server, str]) -> None:
    postgres, schema = here
    url = postgres.store(schema)
    shop = Shop()
    async with working(url, shop):
        async with perdure.open(url) as runtime:
            for name in NAMES:
                await runtime.sessions.send(name, "please", submission="m", agent="shop")
        await asyncio.wait_for(until_finished(url), 60)
    [(left,)] = postgres.execute(f"""SELECT count(*) FROM "{schema}_jobs".procrastinate_jobs WHERE status = 'doing'""")
    assert left == 0


async def test_no_disk_is_waited_for_because_of_a_hint(here: tuple[Server, str]) -> None:
    postgres, schema = here
    jobs = f'"{schema}_jobs"'
    async with ProcrastinateEngine(postgres.store(schema)) as engine:
        await asyncio.to_thread(
            postgres.execute,
            f"""CREATE TABLE {jobs}.seen (setting text);
                CREATE FUNCTION {jobs}.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    INSERT INTO {jobs}.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
                CREATE TRIGGER see AFTER INSERT ON {jobs}.procrastinate_jobs FOR EACH ROW EXECUTE FUNCTION {jobs}.see()""",
        )
        await engine.hint(["s"])
        assert postgres.execute(f"SELECT setting FROM {jobs}.seen") == [("off",)]


async def test_a_worker_has_no_more_connections_than_the_manual_says(here: tuple[Server, str]) -> None:
    postgres, schema = here
    url = postgres.store(schema, application_name=schema)
    most = 0
    count = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'"
    async with working(url, Shop()) as worker:
        for name in NAMES:
            await worker._runtime.sessions.send(name, "please", submission="m", agent="shop")
        # A fork is a write of the kind that has connections of its own.
        forks = [asyncio.create_task(worker._runtime.sessions.fork(NAMES[0], session_id=f"fork {number}")) for number in range(6)]
        while (await worker._runtime.sessions.info(NAMES[-1])).status != "idle":
            [(found,)] = await asyncio.to_thread(postgres.execute, count)
            most = max(most, found)
        await asyncio.gather(*forks, return_exceptions=True)
    assert 6 <= most <= 10
    assert "So it is ten at most" in MANUAL.read_text()


async def test_other_stores_have_no_such_jobs() -> None:
    with pytest.raises(InvalidURL, match="PostgreSQL"):
        ProcrastinateEngine("agents.db")


async def test_jobs_do_not_go_through_a_pooler_and_stand_beside_the_store_all_the_same(here: tuple[Server, str]) -> None:
    postgres, schema = here
    pooled = postgres.store(schema, listen="no")
    with pytest.raises(InvalidURL, match="pooler"):
        ProcrastinateEngine(pooled)
    async with ProcrastinateEngine(pooled, direct=postgres.url) as engine:
        await engine.hint(["s"])
    assert postgres.execute(f'SELECT args FROM "{schema}_jobs".procrastinate_jobs') == [({"session_id": "s"},)]


@pytest.fixture
def role(here: tuple[Server, str]) -> Iterator[tuple[str, str, list[str]]]:
    """A role that was made as the manual says, the address of a store as that role, and the statements that make its schemas."""
    postgres, schema = here
    role = f"agents_{schema}"
    [told] = re.findall(r"```sql\n(CREATE ROLE.*?)```", MANUAL.read_text(), re.DOTALL)
    # The names alone are this test's own.
    first, *rest = told.replace("agents", role).replace("SCHEMA perdure", f"SCHEMA {schema}").strip().splitlines()
    postgres.execute(first)
    known = conninfo_to_dict(postgres.url)
    yield role, f"postgresql:///{known['dbname']}?host={known['host']}&user={role}&schema={schema}", rest
    postgres.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE; DROP SCHEMA IF EXISTS "{schema}_jobs" CASCADE')
    postgres.execute(f"REVOKE ALL ON DATABASE {known['dbname']} FROM {role}; DROP ROLE {role}")


async def test_the_manuals_recipe_for_a_role_with_few_rights_is_enough_for_a_worker(
    here: tuple[Server, str], role: tuple[str, str, list[str]]
) -> None:
    postgres, _ = here
    _, url, statements = role
    for statement in statements:
        postgres.execute(statement)
    shop = Shop()
    async with asyncio.timeout(60), working(url, shop):
        async with perdure.open(url) as runtime:
            for name in NAMES:
                await runtime.sessions.send(name, "please", submission="m", agent="shop")
        await until_finished(url)


async def test_the_right_that_a_workers_role_lacks_is_named(here: tuple[Server, str], role: tuple[str, str, list[str]]) -> None:
    postgres, schema = here
    name, url, (store, _jobs) = role
    postgres.execute(store)

    async def refused() -> StoreBroken:
        with pytest.raises(StoreBroken, match="may not keep workers' jobs") as raised:
            async with ProcrastinateEngine(url):
                pass
        return raised.value

    error = await refused()
    assert "has no CREATE on the database" in error.message
    assert f"CREATE SCHEMA {schema}_jobs AUTHORIZATION {name}" in error.hint
    postgres.execute(f"CREATE SCHEMA {schema}_jobs")
    error = await refused()
    assert f"has no USAGE and CREATE on the schema {schema}_jobs" in error.message
    postgres.execute(f"GRANT USAGE, CREATE ON SCHEMA {schema}_jobs TO {name}")
    async with ProcrastinateEngine(postgres.store(schema)):
        """Another role makes the tables."""
    assert f"may not write the tables of the schema {schema}_jobs" in (await refused()).message
    postgres.execute(f"DROP SCHEMA {schema}_jobs CASCADE")
    database = conninfo_to_dict(postgres.url)["dbname"]
    postgres.execute(f"GRANT CREATE ON DATABASE {database} TO {name}")
    async with ProcrastinateEngine(url) as engine:
        await engine.hint(["s"])


async def test_tables_of_another_version_of_the_queue_are_refused(here: tuple[Server, str]) -> None:
    postgres, schema = here
    url = postgres.store(schema)
    for _ in range(2):
        async with ProcrastinateEngine(url):
            pass
    postgres.execute(f"""COMMENT ON TABLE "{schema}_jobs".procrastinate_jobs IS 'Procrastinate 2.9'""")
    with pytest.raises(FormatUnknown, match=r"made by Procrastinate 2\.9"):
        async with ProcrastinateEngine(url):
            pass


def test_a_worker_tells_of_the_queues_lost_database_in_one_line_and_not_every_time() -> None:
    lost: Exception = ConnectorException("database error")
    lost.__cause__ = psycopg.OperationalError("the connection is closed\nand more")
    said = [("procrastinate.worker", "stopping", lost)] * 3 + [
        ("procrastinate.worker", "failed", KeyError("a bug")),
        ("perdure", "mine", lost),
        ("asyncio", "nobody waited\nfor", lost),
    ]
    brief = Brief()
    records = [logging.makeLogRecord({"name": name, "msg": words, "exc_info": (type(error), error, None)}) for name, words, error in said]
    assert [(record.getMessage(), bool(record.exc_info)) for record in records if brief.filter(record)] == [
        ("stopping: the connection is closed", False),
        ("failed", True),
        ("mine", True),
        ("nobody waited: the connection is closed", False),
    ]
