"""Advice that only a program can follow is put into words of the command line, wherever the command line may show it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.cli.hints import SPOKEN, command, spoken

ROOT = Path(perdure.__file__).parent

OF_A_PROGRAM = re.compile(r"\bsessions\.\w|\bruntime\.\w|\w+\([^)]*…\)|(?<![?&])\b[a-z_]+=|\w+\(\)")
"""A call, an argument, an attribute."""

DECLARED = ("agent/", "models/router.py", "tools/tool.py", "tools/policy.py", "tools/schema.py", "tools/context.py", "testing/")
"""Where hints are about what stands in somebody's program: an agent, its tools, a store that it opens."""

PROGRAM_ONLY = {
    "await store.open() first",
    "read the file, or pass its path to image() or file()",
    "compaction=Compaction(…) makes notes of what is old, Router(windows=…) says when",
    "pass what image(), audio() or file() returns",
    "a Blob refers to what is stored already: sessions.attach stores it, or send what perdure.file(…) returns",
    "pass text, Text, Uri, Blob, or what image(), audio() and file() return",
    "perdure.open(…, blobs=DirectoryBlobs(…)) would",
    "give title=, labels= or metadata=",
    "file() takes any",
    'ToolPolicy(never=("refund",))',
    'notes=["it rains"]',
    'deliver="turn"',
    "await run(…) there",
    "use it inside `async with perdure.open(…) as runtime:`",
    "pass submission= to say which message is meant, or use runtime.session(…) to send one more",
    "wait for one to end, or raise capacity=",
    'Source(kind="agent", name="planner", id="msg-7")',
    'leave deliver= out, or say "steer"',
    "reply_to= says to which, by its seq",
    "send it without turn= for the next one",
    "use it inside `async with runtime.session(…)`",
    "use it inside `async with runtime.session(…)`; sessions.send(…) only puts a message into the inbox",
    "runtime.sessions are everybody's",
    "use runtime.sessions.consumer(…)",
    "runtime.sessions.sweep()",
    "runtime.stop_on(signal.SIGTERM)",
    'finish it with the old code, interrupt it, or set on_change="any"',
    "sqlite:///path.db?blobs=directory is all that can be asked",
    "give the agent too, or use select_route",
    "name whom the session belongs to, or leave identity= out",
    'pass shell=False, or sandbox="required"',
    '{"gpt-5.6-sol": Price(input=4, output=20)}',
    "add a step to repairs=",
    "limit sessions and turns instead: Agent(session_limits=…, limits=…)",
    "say which with session=",
    "read it as it is with sessions.result(…), or use an agent with the output_type that it was made for",
}
"""What the command line can't meet, or what is about the agent's own code."""


def hints() -> Iterator[tuple[str, str]]:
    """Every hint of the library, with its place; what is filled in is left out."""
    for path in sorted(ROOT.rglob("*.py")):
        place = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                parts = node.value.values if isinstance(node.value, ast.JoinedStr) else [node.value]
                text = "".join(part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))
                yield place, text


def test_every_hint_of_a_call_is_known_to_the_command_line_or_never_shown_there() -> None:
    found = [(place, text) for place, text in hints() if not place.startswith(("cli/", "demo/", *DECLARED))]
    assert len(found) > 100
    left = [(place, text) for place, text in found if OF_A_PROGRAM.search(spoken(text, "agents.db", "s")) and text not in PROGRAM_ONLY]
    assert left == [], "SPOKEN has what the command line calls these; PROGRAM_ONLY lists what it can't meet"


def test_every_word_that_is_replaced_is_said_somewhere() -> None:
    said = [text for _, text in hints()]
    assert [called for called in SPOKEN if not any(called in text for text in said)] == []
    assert [text for text in PROGRAM_ONLY if text not in said] == []


@pytest.mark.parametrize(
    ("db", "shown"),
    [
        ("agents.db", ""),
        ("other.db", " --db other.db"),
        ("sqlite:///a.db?blobs=b", " --db 'sqlite:///a.db?blobs=b'"),
        ("postgresql://ann:geheim@h,i:5433/d", " --db postgresql://ann@h,i:5433/d"),
        ("postgresql://ann:geheim@h/d?schema=s&password=geheim&sslpassword=geheim", " --db 'postgresql://ann@h/d?schema=s'"),
        ("postgres:///d?user=ann&%70assword=geheim", " --db 'postgres:///d?user=ann'"),
        ("postgresql://ann:geheim/geheim?geheim@h/d", " --db postgresql://ann@h/d"),
        ("postgresql://h/d", " --db postgresql://h/d"),
        ("sqlite:////srv/a:b@c.db", " --db sqlite:////srv/a:b@c.db"),
    ],
)
def test_a_command_to_type_names_the_store_without_its_password(db: str, shown: str) -> None:
    assert command(db, "why", "s") == f"perdure why s{shown}"


def test_a_command_to_type_names_no_store_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_DB", "postgresql://ann:geheim@h/d")
    assert command("postgresql://ann:geheim@h/d", "why", "s") == "perdure why s"
    assert command("agents.db", "why", "s") == "perdure why s --db agents.db"
