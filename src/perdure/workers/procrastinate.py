"""Hints as jobs of Procrastinate, in the PostgreSQL database that holds the sessions.

Jobs stand in a schema of their own beside the store's (``perdure_jobs``). They are written after the commits that they are about, never
within: a notice inside a commit would make all commits of the database wait for one another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..core.errors import FormatUnknown, InvalidURL, MissingExtra, StoreBroken
from ..store.postgres.address import parse
from ..store.postgres.line import misunderstood
from .engine import Look

try:
    import procrastinate
    import psycopg
    from procrastinate.exceptions import AlreadyEnqueued
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as error:
    raise MissingExtra("workers on PostgreSQL need Procrastinate", extra="workers") from error

__all__ = ["ProcrastinateEngine"]

QUEUE = "perdure"
TASK = "perdure.look"

FORGOTTEN_SECONDS = 30
"""After how long without a sign of life a worker's jobs are thrown away: who died with them has left sessions that are found again."""

HINT_SECONDS = 1.0
"""How long one job may take to be written; after that whoever found the session looks at it."""

POOL: dict[str, Any] = {"timeout": 5.0, "reconnect_timeout": 2.0, "min_size": 1, "max_size": 2}
"""How long Procrastinate waits for a connection, and for a new one (seconds): its own half a minute would be one in which a worker that is
well does nothing after the database was restarted. And how many it has, besides one that listens: jobs are short, and a server has only so
many."""

MAKING = 0x70647577
"""The advisory lock of whoever makes the tables."""

MADE_BY = "Procrastinate {}.{}".format(*procrastinate.__version__.split("."))
"""Whose tables they are: its schema may change with a minor version."""

_log = logging.getLogger("perdure.workers")


class ProcrastinateEngine:
    """Jobs in the database of a ``postgresql://`` address. Use it with ``async with``; it makes its tables when they are missing.

    ``direct`` is the address that doesn't lead through a pooler: Procrastinate keeps prepared statements, settings and a listener on its
    connections. ``polling`` is how often, in seconds, jobs are looked for besides Procrastinate's own notices. Raises `InvalidURL`, for an
    address with ``listen=no`` and no ``direct`` one too; and when it is entered `StoreBroken` for a database that can't be reached, or
    where it may make no tables, and `FormatUnknown` for tables of another Procrastinate.
    """

    def __init__(self, url: str, *, direct: str = "", polling: float = 5.0) -> None:
        for given in filter(None, (url, direct)):
            if given.partition("://")[0] not in ("postgresql", "postgres"):
                raise InvalidURL("jobs need a PostgreSQL database", hint="workers on other stores need no engine but their process")
        address = parse(direct or url)
        if not address.listen:
            raise InvalidURL("jobs can't go through a pooler in transaction mode", hint="name the database itself with direct=")
        try:
            known = conninfo_to_dict(address.conninfo)
        except psycopg.ProgrammingError as error:
            raise misunderstood(error) from None
        self._schema = f"{parse(url).schema}_jobs"
        # A job that a crash of the server loses, or brings back, is a hint lost or doubled: no disk is waited for.
        settings = f"-c search_path={self._schema} -c synchronous_commit=off"
        self._conninfo = make_conninfo(address.conninfo, options=f"{known.get('options') or ''} {settings}".strip())
        self._polling = polling
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self._conninfo, **POOL))
        self._task = self._app.task(name=TASK, queue=QUEUE)(self._run)
        self._look: Look | None = None

    async def __aenter__(self) -> ProcrastinateEngine:
        try:
            await self._make_tables()
            await self._app.open_async()
        except psycopg.errors.InsufficientPrivilege as error:
            owner = f"make it the owner of what is in {self._schema}"
            raise self._forbidden(f"{str(error).splitlines()[0]}, in {self._schema}", owner) from error
        except (psycopg.Error, procrastinate.exceptions.ProcrastinateException) as error:
            said = str(error).partition("\n")[0]
            raise StoreBroken(f"the database's jobs can't be reached: {said}") from error
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._app.close_async()

    async def hint(self, session_ids: Sequence[str], *, urgent: bool = False) -> None:
        """A job for each session that has none waiting."""
        for session_id in session_ids:
            try:
                async with asyncio.timeout(HINT_SECONDS):
                    task = self._task.configure(queueing_lock=f"{self._schema}:{session_id}", priority=int(urgent))
                    await task.defer_async(session_id=session_id)
            except AlreadyEnqueued:
                continue

    async def work(self, look: Look, *, concurrency: int) -> None:
        """Do jobs until cancelled; those that run are let end."""
        self._look = look
        async with self._forgetting():
            await self._app.run_worker_async(
                queues=[QUEUE],
                concurrency=concurrency,
                listen_notify=True,
                fetch_job_polling_interval=self._polling,
                stalled_worker_timeout=FORGOTTEN_SECONDS,
                delete_jobs="always",
                install_signal_handlers=False,
            )

    async def _run(self, session_id: str) -> None:
        if self._look is not None:
            await self._look(session_id)

    async def _make_tables(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True) as connection:
            await connection.execute("SELECT pg_advisory_lock(%s)", (MAKING,))
            await self._make_schema(connection)
            (made,) = await _one(connection, "SELECT to_regclass('procrastinate_jobs') IS NOT NULL")
            if not made:
                async with self._app.open_async():
                    await self._app.schema_manager.apply_schema_async()
                await connection.execute(sql.SQL("COMMENT ON TABLE procrastinate_jobs IS {}").format(sql.Literal(MADE_BY)))
                return
            role, noted, usable = await _one(
                connection,
                """SELECT current_user, obj_description('procrastinate_jobs'::regclass), bool_and(
                    has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
                    AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')
                ) FROM pg_class WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)""",
                self._schema,
            )
            if not usable:
                raise self._forbidden(
                    f"{role!r} may not write the tables of the schema {self._schema}, which another role made",
                    f"stop all workers and DROP SCHEMA {self._schema} CASCADE, or make {role} the owner of what is in it",
                )
            if noted not in (None, MADE_BY):
                raise FormatUnknown(
                    f"the jobs in {self._schema} were made by {noted}, and this is {MADE_BY}",
                    hint=f"stop all workers and DROP SCHEMA {self._schema} CASCADE: jobs are only hints, and are made anew",
                )

    async def _make_schema(self, connection: psycopg.AsyncConnection) -> None:
        """Whoever may make nothing in the database finds the schema made for them: ``CREATE … IF NOT EXISTS`` asks for that right first."""
        role, database, may_make, usable = await _one(
            connection,
            """SELECT current_user, current_database(), has_database_privilege(current_database(), 'CREATE'), (
                SELECT has_schema_privilege(oid, 'CREATE') AND has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s
            )""",
            self._schema,
        )
        if usable is None and not may_make:
            raise self._forbidden(
                f"{role!r} has no CREATE on the database {database!r}, and there is no schema {self._schema}",
                f"CREATE SCHEMA {self._schema} AUTHORIZATION {role}, or GRANT CREATE ON DATABASE {database} TO {role}",
            )
        if usable is None:
            await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
        elif not usable:
            raise self._forbidden(
                f"{role!r} has no USAGE and CREATE on the schema {self._schema}",
                f"ALTER SCHEMA {self._schema} OWNER TO {role}, or GRANT USAGE, CREATE ON SCHEMA {self._schema} TO {role}",
            )

    def _forbidden(self, what: str, hint: str) -> StoreBroken:
        return StoreBroken(f"this role may not keep workers' jobs in the database: {what}", hint=hint)

    @asynccontextmanager
    async def _forgetting(self) -> AsyncIterator[None]:
        """Meanwhile, throw away the jobs of workers that died."""

        async def forget() -> None:
            while True:
                await asyncio.sleep(FORGOTTEN_SECONDS)
                try:
                    for job in await self._app.job_manager.get_stalled_jobs(seconds_since_heartbeat=FORGOTTEN_SECONDS):
                        await self._app.job_manager.finish_job(job, procrastinate.jobs.Status.FAILED, delete_job=True)
                except procrastinate.exceptions.ConnectorException as error:
                    _log.info("jobs of dead workers can't be thrown away just now: %s", error)

        forgetting = asyncio.create_task(forget(), name="perdure forgets jobs")
        try:
            yield
        finally:
            forgetting.cancel()


async def _one(connection: psycopg.AsyncConnection, statement: str, *values: Any) -> tuple[Any, ...]:
    """The one row that a statement answers with."""
    row = await (await connection.execute(statement.encode(), values or None)).fetchone()
    assert row is not None
    return row
