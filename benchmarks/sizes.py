"""Rows and bytes per step: what docs/scaling.md plans with. Counted, so that a busy machine changes nothing.

Two stretches of the same session, an earlier and a later one, since what is planned for months must not grow with a session's length.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psycopg

from perdure import Runtime
from perdure.store.postgres.address import parse

from .counting import Counting
from .postgres import Recorder as PostgresRecorder
from .postgres import postgres_server
from .report import Figure
from .workload import Recorder, Workload, opened

__all__ = ["sizes"]

TABLES = ("journal", "inbox", "effects", "blobs", "sessions")


class Size(NamedTuple):
    """Of a store: rows that stay, bytes that tables and indexes take, bytes of log that were written."""

    rows: int
    table: int
    log: int


async def sizes(directory: Path, *, steps: int) -> list[Figure]:
    """Per step of 1 KB each for call and result, with an external tool."""
    figures = await _of_a_file(directory, steps)
    with postgres_server(directory) as url:
        figures += await _of_a_database(url, steps)
    return figures


async def _of_a_file(directory: Path, steps: int) -> list[Figure]:
    counting = Counting("sizes")
    path = directory / "sizes.db"
    async with opened(path, vfs=counting.name) as (runtime, recorder):

        def size() -> Size:
            connection = recorder._writer._tx.connection  # type: ignore[union-attr]
            rows = sum(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in TABLES)
            return Size(rows, connection.pragma("page_count") * connection.pragma("page_size"), counting.counts.log_bytes)

        found = [size()]
        for number in range(3):
            await _stretch(runtime, recorder, steps, number)
            found.append(size())
    counting.unregister()
    path.unlink()
    return _figures("SQLite", found, steps)


async def _of_a_database(url: str, steps: int) -> list[Figure]:
    recorder = PostgresRecorder(url)
    async with Runtime(recorder) as runtime:
        with psycopg.connect(parse(url).conninfo, autocommit=True) as connection:

            def size() -> Size:
                def ask(what: str) -> int:
                    ((value,),) = connection.execute(f"SELECT ({what})::bigint".encode()).fetchall()
                    return int(value)

                rows = sum(ask(f"SELECT count(*) FROM perdure.{table}") for table in TABLES)
                table = sum(ask(f"SELECT pg_total_relation_size('perdure.{table}')") for table in TABLES)
                return Size(rows, table, ask("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))

            found = [size()]
            for number in range(3):
                await _stretch(runtime, recorder, steps, number)
                found.append(size())
    return _figures("PostgreSQL", found, steps)


async def _stretch(runtime: Runtime, recorder: Recorder | PostgresRecorder, steps: int, number: int) -> None:
    workload = Workload(steps=steps, warm=0, effect="external")
    await runtime.run(workload.agent, "go on", session="one", submission=f"stretch {number}")
    recorder.take()


def _figures(store: str, found: list[Size], steps: int) -> list[Figure]:
    """The last stretch, and the one before it. The first makes what is made once."""
    figures = []
    for name, unit, scale in (("rows", "rows", 1), ("table", "KB", 1024), ("log", "KB", 1024)):
        before, last = ((getattr(found[at], name) - getattr(found[at - 1], name)) / steps / scale for at in (2, 3))
        figures.append(
            Figure(
                name=f"{store}: {name} per step",
                value=last,
                unit=unit,
                low=min(before, last),
                high=max(before, last),
                ours=f"{last:.2f}",
                floor=f"{before:.2f} in the stretch before",
            )
        )
    return figures
