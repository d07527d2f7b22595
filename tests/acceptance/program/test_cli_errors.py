"""Whatever goes wrong is one line with what to do, the right exit code, and nothing half-done."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import PATIENCE, Program
from .forked import Copies

SHOP = "agents_here:shop"


@pytest.mark.parametrize(
    "command",
    [
        ["sessions"],
        ["show", "s"],
        ["why", "s"],
        ["events", "s"],
        ["verify"],
        ["uncertain"],
        ["approve", "s"],
        ["send", "s", "hello"],
        ["interrupt", "s"],
        ["resume", "s", "--agents", SHOP],
    ],
    ids=lambda command: command[0],
)
def test_a_command_with_nothing_to_look_at_makes_no_store(perdure: Program, command: list[str]) -> None:
    perdure(*command, code=2)
    assert "there is no store at" in perdure.errors
    assert "--db" in perdure.errors
    assert [path.name for path in perdure.directory.iterdir() if "agents.db" in path.name] == []


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, copies: Copies) -> Path:
    """A store with one session, made once."""
    program = Program(tmp_path_factory.mktemp("stored"), copies)
    program("run", SHOP, "hello", "--session", "s")
    return program.db


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["show", "nobody"], 3, "perdure sessions"),
        (["send", "nobody", "hello"], 3, '`perdure run --session nobody YOUR_MODULE:… "…"` begins it'),
        (["approve", "s"], 3, "nothing is asked"),
        (["answer", "s", "0123456789abcdef", "approve"], 3, "not open"),
        (["answer", "s", "0123456789abcdef", "settle", "--result", "{"], 2, "no JSON"),
        (["answer", "s", "0123456789abcdef", "perhaps"], 2, "approve"),
        (["uncertain", "s", "--settle", "t2.0.1", "--failed", "x"], 3, "not uncertain"),
        (["uncertain", "s", "--settle", "t2.0.1"], 2, "what became of it"),
        (["sessions", "--status", "dancing"], 2, "waiting"),
        (["describe", "s", "--metadata", "plan=x"], 2, '(all of it, by name: \'{"tier": "gold"}\')'),
        (["redact", "s", "99"], 2, "no message at position 99: the transcript has 2 messages"),
        (["rewrite", "s", "0", "99"], 2, "the span up to 99 ends behind the transcript, which has 2 messages"),
        (["rewrite", "s", "2", "1"], 2, "from 2 up to 1 is no span"),
        (["fork", "s", "--at", "99"], 2, "no first 99 messages in a transcript of 2 (0 to 2)"),
        (["sessions", "--limit", "0"], 2, "at least 1"),
        (["events", "s", "--after", "x"], 2, "number"),
        (["verify", "s", "--expect", "7"], 2, "no head"),
        (["verify", "nobody"], 3, "no session"),
        (["run", SHOP, " "], 2, "empty"),
        (["run", SHOP], 2, "agent and a message"),
        (["run", SHOP, "more", "words"], 2, "quotes"),
        (["run", "agents", "hello"], 2, "module:attribute"),
        (["run", "agents_here", "hello"], 2, "is a module, not an agent (its agents: agents_here:shop, "),
        (["run", "agents_here:nobody", "hello"], 2, "its agents: agents_here:shop"),
        (["run", "agents_here:number", "hello"], 2, "not an Agent"),
        (["run", "agents_here:refund", "hello"], 2, "'agents_here:refund' is a tool, not an Agent"),
        (["run", "no_such_module:agent", "hello"], 2, "can't be imported"),
        (["run", "nothere:agent", "hello"], 2, "there is no nothere.py in /"),
        (["run", "needy:agent", "hello"], 2, "it needs not_installed: install that"),
        (["run", "no_such_file.py:agent", "hello"], 2, "there is no file"),
        (["run", "--model", "acme:large", "hello"], 2, "acme"),
        (["resume", "s", "--agents", "other:agent"], 2, "can't be imported"),
        (["resume", "--agents", "s"], 2, "resume needs an agent"),
        (["resume", "s"], 2, "the session's agent is called 'shop'"),
        (["resume"], 2, "resume needs an agent"),
        (["approve", "s", "--argument", "{}"], 2, "did you mean --arguments?"),
        (["run", SHOP, "hello", "--sesion=t"], 2, "did you mean --session?"),
        (["show", "s", "--jsn"], 2, "did you mean --json?"),
        (["chat"], 2, "needs an agent"),
        (["chat", SHOP, "--sandbox", "off"], 2, "--workspace DIR"),
        (["worker", "--agents", SHOP, "--jobs", "postgresql://h/d"], 2, "this worker has none"),
        (["dance"], 2, "dance"),
        (["--db", "postgresql://127.0.0.1:1/x", "sessions"], 4, "can't be reached"),
        (["--db", "missing/agents.db", "run", SHOP, "hello"], 2, "no directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_answered_with_what_to_do(perdure: Program, command: list[str], code: int, words: str, stored: Path) -> None:
    if command[0] not in ("run", "chat", "dance") and command[0] != "--db":
        shutil.copy(stored, perdure.db)
    (perdure.directory / "needy.py").write_text("import not_installed")
    perdure(*command, code=code)
    assert words in perdure.errors
    if command != ["dance"]:
        assert len([line for line in perdure.errors.splitlines() if not line.startswith(("usage:", " "))]) == 1


def test_without_a_command_all_of_them_are_listed(perdure: Program) -> None:
    assert perdure(code=2) == ""
    assert "Put a message into a session's inbox" in perdure.errors


def test_a_missing_key_is_a_mistake_in_the_command(perdure: Program) -> None:
    perdure("run", "--model", "openai:gpt-5.6-sol", "hello", code=2)
    assert "OPENAI_API_KEY" in perdure.errors


def test_a_file_that_is_not_ours_is_left_alone(perdure: Program) -> None:
    foreign = perdure.directory / "agents.db"
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    before = foreign.read_bytes()
    perdure("sessions", code=3)
    assert "not a perdure store" in perdure.errors
    foreign.write_bytes(b"just some text, long enough to be no database " * 40)
    perdure("run", SHOP, "hello", code=3)
    assert before != foreign.read_bytes()
    foreign.write_bytes(before)
    perdure("run", SHOP, "hello", code=3)
    assert foreign.read_bytes() == before


def test_a_damaged_row_is_an_error_of_the_store(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    with sqlite3.connect(perdure.db) as database:
        database.execute("UPDATE sessions SET checkpoint = x'00'")
    database.close()
    perdure("show", "s", code=4)
    assert "perdure verify" in perdure.errors


def test_an_error_is_json_too_where_json_was_asked_for(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    error = perdure.json("show", "nobody", code=3)["error"]
    assert error["code"] == "session_not_found"
    assert error["hint"]


def test_the_traceback_is_there_for_whoever_asks(perdure: Program) -> None:
    process = perdure.start("sessions", PERDURE_DEBUG="1")
    _, errors = process.communicate(timeout=PATIENCE)
    assert "Traceback" in errors
    assert process.returncode == 1


def test_help_and_version_are_there(perdure: Program) -> None:
    assert perdure("--version").startswith("perdure ")
    told = perdure("--help")
    for command in ("run", "chat", "sessions", "show", "why", "resume", "approve", "uncertain", "events", "verify", "demo"):
        assert f"    {command}" in told
    assert "exit codes" in told


def test_a_mistyped_command_is_told_which_one_may_have_been_meant(perdure: Program) -> None:
    perdure("aprove", "s", code=2)
    assert "did you mean approve?" in perdure.errors
    perdure("frobnicate", code=2)
    assert "see perdure --help" in perdure.errors


def test_options_may_stand_anywhere_between_the_words_of_a_command(perdure: Program) -> None:
    assert perdure("--db", "other.db", "run", SHOP, "--session", "s", "hello") == "done: hello\n"
    assert perdure("note", "--actor", "ben", "s", "--db", "other.db", "by the way").startswith("✓")
    assert perdure("fork", "s", "--at", "1", "--db", "other.db", "another way", "--session", "branch")


def test_a_file_that_can_not_be_used_is_named_in_a_sentence(perdure: Program) -> None:
    perdure("import", "nowhere.jsonl", code=2)
    assert "'nowhere.jsonl' can't be used: No such file" in perdure.errors
    perdure("run", SHOP, "hello", "--session", "s")
    perdure("export", "s", "--output", "/nowhere/s.jsonl", code=2)
    assert "'/nowhere/s.jsonl' can't be used" in perdure.errors


def test_a_store_that_can_not_be_made_there_says_what_it_needs(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--db", "/proc/x.db", code=4)
    assert "'/proc/x.db' can't be opened: No such file or directory (name a file in a directory where this process may" in perdure.errors


def test_an_archived_session_says_what_takes_it_out(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    perdure("archive", "s")
    assert "`perdure revive s` takes it out again" in perdure("why", "s")


def test_the_package_can_be_run_as_a_module(perdure: Program) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "perdure", "--version"], capture_output=True, text=True, check=True, env=perdure.environment
    )
    assert ended.stdout.startswith("perdure ")


def truncated(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def of_a_later_format(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 999")
    database.close()


def of_newer_rules(path: Path) -> None:
    with sqlite3.connect(path) as database:
        changed = 'CAST(replace(CAST(checkpoint AS TEXT), \'"root"\', \'"rules":999,"root"\') AS BLOB)'
        database.execute(f"UPDATE sessions SET checkpoint = {changed}")
    database.close()


@pytest.mark.parametrize(
    ("damage", "command", "code", "words"),
    [
        (truncated, ["run", SHOP, "hello"], 4, "backup"),
        (truncated, ["show", "s"], 4, "backup"),
        (of_a_later_format, ["run", SHOP, "hello"], 3, "format"),
        (of_a_later_format, ["sessions"], 3, "format"),
        (of_newer_rules, ["run", SHOP, "more", "--session", "s"], 3, "upgrade"),
        (of_newer_rules, ["run", SHOP, "more", "--session", "s", "--submission", "mail-2"], 3, "upgrade"),
        (of_newer_rules, ["resume", "s", "--agents", SHOP], 3, "upgrade"),
        (of_newer_rules, ["why", "s"], 3, "upgrade"),
    ],
)
def test_a_store_that_can_not_be_used_is_one_line_and_left_as_it_is(
    perdure: Program, stored: Path, damage: Callable[[Path], None], command: list[str], code: int, words: str
) -> None:
    shutil.copy(stored, perdure.db)
    damage(perdure.db)
    perdure(*command, code=code)
    assert len(perdure.errors.splitlines()) <= 2
    assert words in perdure.errors
    assert perdure.lines("model") == []
    if damage is of_newer_rules:
        with sqlite3.connect(perdure.db) as database:
            assert database.execute("SELECT inbox_head, status FROM sessions").fetchall() == [(1, "idle")]
        database.close()
        assert len(perdure.json("sessions")) == 1
