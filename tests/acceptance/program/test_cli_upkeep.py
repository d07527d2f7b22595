"""Copies of the store, and what is old thrown away, from the command line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .conftest import Program

SHOP = "agents_here:shop"


def test_a_store_is_copied_and_put_back(perdure: Program, tmp_path: Path) -> None:
    perdure("run", SHOP, "hello there", "--session", "s")
    copy, place = str(tmp_path / "copy.db"), str(tmp_path / "elsewhere.db")
    assert "1 session" in perdure("backup", copy)
    perdure("backup", copy, code=2)
    assert "exists already" in perdure.errors
    perdure("restore-backup", copy, "--db", place)
    assert "unknown to it" in perdure.errors
    assert "hello there" in perdure("show", "s", "--db", place)


def test_old_sessions_are_destroyed_when_somebody_says_so(perdure: Program) -> None:
    for name in ("old", "put away", "new"):
        perdure("run", SHOP, "hello there", "--session", name)
    perdure("archive", "put away")
    connection = sqlite3.connect(perdure.db)
    connection.execute("UPDATE sessions SET created = 1000, updated = 1000 WHERE session_id != 'new'")
    connection.commit()
    connection.close()
    assert perdure.json("vacuum", "--older-than", "90d", "--dry-run") == {"sessions": ["put away"], "deleted": False}
    perdure("vacuum", "--older-than", "90d", code=2)
    assert "--yes" in perdure.errors
    assert {*perdure.json("vacuum", "--older-than", "90d", "--idle", "--yes")["sessions"]} == {"old", "put away"}
    assert [info["session_id"] for info in perdure.json("sessions", "--archived")] == ["new"]
    assert perdure("verify").endswith("nothing is wrong\n")
    perdure("vacuum", "--older-than", "soon", code=2)
    perdure("vacuum", "--idle", code=2)
