"""A store can be opened whatever its other processes are doing, and wherever one of them was killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

import perdure
from perdure.testing import find_all_problems

AGENT = perdure.Agent("a", model=perdure.ScriptedModel(["a long answer " * 2000]))


async def test_a_store_whose_last_process_was_killed_while_it_folded_its_log_into_the_file_opens(tmp_path: Path) -> None:
    path, torn, whole = tmp_path / "agents.db", tmp_path / "torn" / "agents.db", tmp_path / "whole" / "agents.db"
    async with perdure.open(str(path)) as runtime:
        for number in range(3):
            await runtime.run(AGENT, "hello", session=f"s{number}", submission="m")
        for copy in (torn, whole):
            copy.parent.mkdir()
            for suffix in ("", "-wal"):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    connection = apsw.Connection(str(whole))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert whole.stat().st_size > torn.stat().st_size, "the log holds pages that the file has not"

    with torn.open("r+b") as file:
        file.write(whole.read_bytes()[:4096])

    async with perdure.open(str(torn)) as runtime:
        assert len(await runtime.sessions.list()) == 3
        assert await find_all_problems(runtime.store) == []
