"""The command that takes in a file, and a database that is empty."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import perdure
from perdure import Agent, FunctionModel
from tests.postgres import Server


async def program(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "perdure", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_what_was_exported_is_taken_into_an_empty_database_and_what_is_refused_makes_no_tables_there(
    postgres: Server, tmp_path: Path
) -> None:
    async with perdure.open("memory://") as runtime:
        await runtime.run(Agent("a", model=FunctionModel(lambda request: "ok")), "hi", session="s")
        await runtime.sessions.export("s", tmp_path / "s.jsonl")
    schema = postgres.schema()
    db = postgres.store(schema)
    (tmp_path / "damaged.jsonl").write_text((tmp_path / "s.jsonl").read_text().replace('"hi"', '"ho"'))
    assert (await program("import", str(tmp_path / "damaged.jsonl"), "--db", db))[0] == 3
    assert not postgres.has_tables(schema)
    assert await program("import", str(tmp_path / "s.jsonl"), "--db", db) == (0, "✓ imported: s\n")
    assert (await program("import", str(tmp_path / "s.jsonl"), "--db", db))[0] == 3
    async with perdure.open(db) as runtime:
        assert (await runtime.sessions.info("s")).status == "idle"
