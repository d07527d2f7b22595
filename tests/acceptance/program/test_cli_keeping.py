"""Sessions put away, taken out, destroyed and carried elsewhere, from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .conftest import Program

SHOP = "agents_here:shop"


def test_a_session_is_archived_listed_revived_and_deleted(perdure: Program) -> None:
    perdure("run", SHOP, "hello there", "--session", "s")
    perdure("run", SHOP, "another matter", "--session", "t")
    assert perdure.json("archive", "s", "--reason", "done")["status"] == "archived"
    assert [info["session_id"] for info in perdure.json("sessions")] == ["t"]
    assert {info["session_id"] for info in perdure.json("sessions", "--archived")} == {"s", "t"}
    perdure("send", "s", "more", code=3)
    assert "archived" in perdure.errors
    perdure("archive", "s", code=3)
    assert "hello there" in perdure("show", "s")
    perdure("revive", "s")
    perdure("revive", "s", code=3)
    perdure("delete", "s", code=2)
    assert "--yes" in perdure.errors
    assert perdure.json("delete", "s", "--yes") == {"session": "s", "deleted": True}
    perdure("show", "s", code=3)
    assert perdure("verify").endswith("nothing is wrong\n")


def test_all_of_an_owner_is_deleted_once_that_is_meant_and_what_is_left_is_said(perdure: Program) -> None:
    for session, owner in (("s", "acme"), ("t", "acme"), ("u", "other")):
        perdure("run", SHOP, "hello there", "--session", session, "--owner", owner)
    perdure("archive", "t")
    perdure("fork", "s", "--session", "f", "--at", "2")
    perdure("run", SHOP, "refund A-1", "--session", "w", "--owner", "acme", "--no-wait", code=6)
    perdure("budget", "set", "acme", "tokens=1000")
    perdure("delete", "--owner", "acme", code=2)
    assert "--yes" in perdure.errors
    for named in ("s  idle", "t  archived", "f  idle", "w  waiting"):
        assert named in perdure.errors
    perdure("delete", "--owner", "acmee", "--yes", "--pool", code=3)
    for wrong in (["s", "--owner", "acme"], ["--owner", "acme", "--tree"], ["s", "--pool"], ["s", "--uniques"], []):
        perdure("delete", *wrong, "--yes", code=2)
    assert len(perdure.json("sessions", "--archived")) == 5
    assert "4 sessions of acme deleted" in perdure("delete", "--owner", "acme", "--yes")
    assert "perdure delete --owner acme --pool" in perdure.errors
    assert "perdure vacuum" in perdure.errors
    assert [info["session_id"] for info in perdure.json("sessions", "--archived")] == ["u"]
    again = perdure.json("delete", "--owner", "acme", "--pool", "--uniques", "--agents", SHOP)
    whole = {"owner": "acme", "sessions": [], "tombstones": 4, "pool": False, "uniques": 0, "files": [], "problems": {}, "deleted": True}
    assert again == whole
    assert perdure.json("budget") == []
    assert perdure("verify").endswith("nothing is wrong\n")


def test_a_session_is_halted_says_why_and_is_repaired(perdure: Program) -> None:
    perdure("run", SHOP, "hello there", "--session", "s")
    assert perdure.json("halt", "s", "--reason", "looks wrong", "--actor", "ann")["status"] == "halted"
    perdure("halt", "s", code=3)
    perdure("send", "s", "more", code=3)
    assert "repair" in perdure.errors
    assert "halted: looks wrong" in perdure("sessions")
    assert "halted by ann: looks wrong" in perdure("show", "s")
    assert "perdure repair s" in perdure("why", "s")
    assert perdure.json("why", "s")["problem"] == "halted: looks wrong"
    assert perdure.json("repair", "s", "--actor", "bob", "--reason", "it is fine")["status"] == "idle"
    perdure("repair", "s", code=3)
    assert "checked, and let go by bob: it is fine" in perdure("show", "s")
    perdure("run", SHOP, "and now", "--session", "s")
    assert perdure("verify").endswith("nothing is wrong\n")


def test_lists_are_filtered_and_paged(perdure: Program) -> None:
    for index in range(3):
        perdure("run", SHOP, f"matter {index}", "--session", f"s{index}", "--owner", "acme")
    assert [info["session_id"] for info in perdure.json("sessions", "--words", "MATTER 1")] == ["s1"]
    assert perdure.json("sessions", "--agent", "nobody") == []
    assert perdure.json("sessions", "--since", "2999-01-01") == []
    assert len(perdure.json("sessions", "--until", "2999-01-01T12:00")) == 3
    first = perdure.json("sessions", "--created", "--limit", "2")
    token = perdure.errors.split("--after ")[1].strip()
    rest = perdure.json("sessions", "--created", "--limit", "2", "--after", token)
    assert [info["session_id"] for info in [*first, *rest]] == ["s2", "s1", "s0"]
    for wrong in (["--after", "made.up"], ["--label", "x"], ["--since", "yesterday"], ["--status", "asleep"]):
        perdure("sessions", *wrong, code=2)


def test_a_session_is_carried_to_another_store(perdure: Program, tmp_path: Path) -> None:
    perdure("run", SHOP, "hello there", "--session", "s")
    file = tmp_path / "s.jsonl"
    perdure("export", "s", "-o", str(file))
    assert "1 session" in perdure.errors
    before = file.read_bytes()
    perdure("export", "s", "-o", str(file), code=2)
    assert "exists already (nothing is overwritten" in perdure.errors
    assert file.read_bytes() == before
    (tmp_path / "link").symlink_to("nowhere")
    for taken in (str(tmp_path), str(tmp_path / "link")):
        perdure("export", "s", "-o", taken, code=2)
        assert "exists already" in perdure.errors
    assert perdure("export", "s") == file.read_text()
    assert perdure("export", "s", "-o", "/dev/stdout") == file.read_text()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    exporting = perdure.start("export", "s", "-o", str(pipe))
    assert pipe.read_bytes() == file.read_bytes()
    perdure.end(exporting)
    perdure("import", str(file), code=3)
    assert perdure.json("import", str(file), "--session", "copy")["sessions"] == ["copy"]
    elsewhere = str(tmp_path / "elsewhere.db")
    perdure("import", str(file), "--db", elsewhere)
    assert "hello there" in perdure("show", "s", "--db", elsewhere)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:3], *lines[4:]]) + "\n")
    perdure("import", str(file), "--session", "damaged", code=3)
    assert json.loads(lines[0])["type"] == "perdure"
    assert perdure("verify").endswith("nothing is wrong\n")
