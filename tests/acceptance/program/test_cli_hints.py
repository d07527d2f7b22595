"""What the program advises can be typed: an option or a command of its own, never a call of the library."""

from __future__ import annotations

import re

import pytest

from .conftest import Program

SHOP = "agents_here:shop"

OF_A_PROGRAM = re.compile(r"\bsessions\.|\w+\(…|\b[a-z_]+=")
"""What only a program in Python can follow."""


def advice(perdure: Program, *command: str, code: int, **environment: str) -> str:
    """What a command that fails advises."""
    perdure(*command, code=code, **environment)
    [line] = [line for line in perdure.errors.splitlines() if line.startswith("perdure: ")]
    assert not OF_A_PROGRAM.search(line), line
    return line


def test_a_session_that_was_put_away_names_the_command_that_takes_it_out(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "my session")
    perdure("archive", "my session")
    assert "`perdure revive 'my session'` takes it out again" in advice(perdure, "send", "my session", "hello", code=3)
    assert "`perdure revive 'my session'`" in advice(perdure, "run", SHOP, "hello", "--session", "my session", code=3)
    told = perdure.json("note", "my session", "hello", code=3)
    assert "perdure revive" in told["error"]["hint"]


def test_a_halted_session_names_the_command_that_lets_it_go(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s", "--db", "other.db")
    perdure("halt", "s", "--db", "other.db")
    assert "`perdure repair s --db other.db`" in advice(perdure, "send", "s", "hello", "--db", "other.db", code=3)


def test_a_running_session_is_forked_with_the_option_that_is_named(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s")
    perdure.until(lambda: perdure.lines("ledger"))
    assert "--while-running" in advice(perdure, "fork", "s", code=3)
    perdure("fork", "s", "--at", "1", "--while-running")
    perdure.go()
    perdure.end(running)


def test_what_can_not_be_exported_or_imported_so_names_the_option_that_helps(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    perdure("export", "s", "--output", "s.jsonl")
    assert "--session ID" in advice(perdure, "import", "s.jsonl", code=3)
    perdure("import", "s.jsonl", "--session", "s2")
    perdure("fork", "s", "--session", "branch")
    assert "--tree" in advice(perdure, "export", "branch", code=2)
    perdure("export", "branch", "--tree", "--output", "tree.jsonl")


def test_commands_that_can_not_be_confined_name_the_option_that_says_it_is_meant(perdure: Program) -> None:
    (perdure.directory / "work").mkdir()
    assert "--sandbox off" in advice(perdure, "chat", SHOP, "--workspace", "work", code=2, PATH="/nonexistent")


def test_an_agent_without_a_model_and_an_address_that_is_no_file_are_told_what_to_do(perdure: Program) -> None:
    (perdure.directory / "bare.py").write_text("from perdure import Agent\nagent = Agent('bare')\n")
    assert "--model openai:…" in advice(perdure, "run", "bare:agent", "hello", code=2)
    assert "attach the file" in advice(perdure, "run", SHOP, "hello", "--attach", "https://example.com/a.png", code=2)


def test_a_result_of_what_was_only_approved_says_which_decision_takes_one(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    [request] = perdure.json("why", "s")["requests"]
    assert "settle" in advice(perdure, "answer", "s", request["request_id"], "approve", "--result", "1", code=2)


@pytest.mark.parametrize("named", [["s", "--agents", "agents_here"], ["--agents", "agents_here", "s"], ["--agents", "agents_here.py", "s"]])
def test_resume_takes_a_module_and_why_names_the_agent_that_is_needed(perdure: Program, named: list[str]) -> None:
    perdure("run", "agents_here:shop", "hello", "--session", "s")
    perdure("send", "s", "more")
    [move] = perdure.json("why", "s")["next"]
    assert "`perdure resume s --agents YOUR_MODULE:…`" in move
    assert move.endswith("(the agent is called 'shop')")
    perdure("resume", *named)
    assert [turn["status"] for turn in perdure.json("show", "s")["turns"]] == ["completed", "completed"]
    perdure("send", "s", "and more")
    assert perdure.json("resume", "--agents", "agents_here") == [{"session": "s", "status": "idle"}]
