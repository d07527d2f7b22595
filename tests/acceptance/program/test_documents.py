"""What the documents print can be done as it is printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.cli import main

from .conftest import PATIENCE, Program

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXPECTED = re.compile(r"# → (.*)$", re.MULTILINE)
FILE = re.compile(r"# (\w+\.py)\n")


def sections(document: str) -> dict[str, list[tuple[str, str]]]:
    """The blocks of code in a document, as language and text, by section."""
    found: dict[str, list[tuple[str, str]]] = {}
    for section in (ROOT / document).read_text().split("\n## "):
        title = section.partition("\n")[0]
        if blocks := BLOCK.findall(section):
            found[title] = blocks
    return found


def python(directory: Path, file: str, code: str) -> str:
    """Run a snippet as a program of its own, and return what it prints."""
    (directory / file).write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", file], cwd=directory, capture_output=True, text=True, timeout=PATIENCE, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


GUIDE = {title: blocks for title, blocks in sections("docs/guide.md").items() if any(language == "python" for language, _ in blocks)}


def test_the_guide_has_programs() -> None:
    assert len(GUIDE) >= 9


@pytest.mark.parametrize("title", GUIDE)
def test_a_section_of_the_guide_runs_and_prints_what_it_says(tmp_path: Path, title: str) -> None:
    code = "\n\n".join(text for language, text in GUIDE[title] if language == "python")
    expected = EXPECTED.findall(code)
    assert expected
    assert python(tmp_path, "snippet.py", code).splitlines() == expected


def test_the_sections_of_the_guide_run_one_after_another_in_one_directory(tmp_path: Path) -> None:
    for title, blocks in GUIDE.items():
        code = "\n\n".join(text for language, text in blocks if language == "python")
        assert python(tmp_path, f"{title.split()[0].lower()}_section.py", code).splitlines() == EXPECTED.findall(code), title


EXACTLY_ONCE = {title: blocks for title, blocks in sections("docs/exactly-once.md").items() if any(kind == "python" for kind, _ in blocks)}


@pytest.mark.parametrize("title", EXACTLY_ONCE)
def test_a_section_about_exactly_once_runs_and_prints_what_it_says(tmp_path: Path, title: str) -> None:
    code = "\n\n".join(text for language, text in EXACTLY_ONCE[title] if language == "python")
    expected = EXPECTED.findall(code)
    assert expected
    assert python(tmp_path, "snippet.py", code).splitlines() == expected


WITH_PROGRAMS = tuple(f"docs/{page}.md" for page in ("failures", "migrate", "outputs", "production", "security", "testing", "workspace"))

PAGES = [
    (page, title)
    for page in WITH_PROGRAMS
    for title, blocks in sections(page).items()
    if any(language == "python" and not FILE.match(text) for language, text in blocks)
]


def test_every_page_with_programs_has_some() -> None:
    assert len(PAGES) >= 5
    assert {page for page, _ in PAGES} == {*WITH_PROGRAMS}


@pytest.mark.parametrize(("page", "title"), PAGES)
def test_a_section_of_a_page_runs_and_prints_what_it_says(tmp_path: Path, page: str, title: str) -> None:
    code = ""
    for language, text in sections(page)[title]:
        if file := FILE.match(text):
            (tmp_path / file[1]).write_text(text)
        elif language == "python":
            code += f"{text}\n\n"
    # As pytest would run what is a test.
    tests = re.findall(r"^async def (test_\w+)", code, re.MULTILINE)
    code += "".join(f"import asyncio; asyncio.run({name}())\n" for name in tests)
    expected = EXPECTED.findall(code)
    assert expected or tests
    assert python(tmp_path, "snippet.py", code).splitlines() == expected


FASTAPI = """
from types import ModuleType, SimpleNamespace
import sys

class FastAPI:
    def __init__(self, lifespan):
        self.lifespan, self.state, self.routes, self.handlers = lifespan, SimpleNamespace(), {}, {}

    def post(self, path):
        return lambda function: self.routes.setdefault(path, function)

    def exception_handler(self, kind):
        return lambda function: self.handlers.setdefault(kind, function)

Request = SimpleNamespace
responses = ModuleType("fastapi.responses")
responses.JSONResponse = lambda content, status: (status, content)
sys.modules["fastapi.responses"] = responses
"""
"""What the example uses of the framework, for a machine without it."""

ASKED = """
import asyncio
import api
import perdure

async def main():
    async with api.api.lifespan(api.api):
        request = api.Request(app=api.api)
        for body in ({"text": "hello", "id": "m-1"}, {"text": "hello", "id": "m-1"}):
            print(await api.api.routes["/chats/{name}"]("1", body, request))
        try:
            await api.api.routes["/chats/{name}"]("1", {"text": "bye", "id": "m-1"}, request)
        except perdure.PerdureError as error:
            print((await api.api.handlers[perdure.PerdureError](request, error))[0])

asyncio.run(main())
"""


def test_the_example_for_a_framework_answers_once_and_refuses_what_it_says(tmp_path: Path) -> None:
    for language, text in sections("docs/production.md")["A web server"]:
        if language == "python" and (file := FILE.match(text)):
            (tmp_path / file[1]).write_text(text)
    (tmp_path / "fastapi.py").write_text(FASTAPI)
    answer = "{'status': 'completed', 'text': 'You said: hello'}"
    assert python(tmp_path, "asked.py", ASKED).splitlines() == [answer, answer, "409"]


GRAPH = """
import asyncio
import sys
from types import ModuleType, SimpleNamespace

import perdure

messages = ModuleType("langchain_core.messages")
messages.convert_to_openai_messages = list
sys.modules |= {"langchain_core": ModuleType("langchain_core"), "langchain_core.messages": messages}

from migrate_threads import migrate

THREADS = {"t-1": (), "t-2": ("tools",)}
SAID = [{"role": "user", "content": "Where is A-1?"}, {"role": "assistant", "content": "On its way."}]


def state(config):
    return SimpleNamespace(next=THREADS[config["configurable"]["thread_id"]], values={"messages": SAID})


async def main():
    saved = [SimpleNamespace(config={"configurable": {"thread_id": thread}}) for thread in THREADS]
    graph = SimpleNamespace(checkpointer=SimpleNamespace(list=lambda config: saved), get_state=state)
    async with perdure.open("memory://") as runtime:
        await migrate(graph, runtime, "support")
        await migrate(graph, runtime, "support")
        print([(info.session_id, info.agent) for info in await runtime.sessions.list()])
        print([message.text for message in await runtime.sessions.history("t-1")])


asyncio.run(main())
"""
"""What the migration uses of the other library, for a machine without it."""


def test_the_migration_of_a_graph_s_threads_takes_each_once_and_leaves_those_that_run(tmp_path: Path) -> None:
    [(_, migrate)] = sections("docs/migrate.md")["LangGraph"]
    (tmp_path / "migrate_threads.py").write_text(migrate)
    told = "t-2 is in the middle of ('tools',): finish it there first"
    assert python(tmp_path, "graph.py", GRAPH).splitlines() == [
        *[told, told],
        *["[('t-1', 'support')]", "['Where is A-1?', 'On its way.']"],
    ]


def test_every_error_has_the_status_that_the_page_says(tmp_path: Path) -> None:
    [web] = [text for _, text in sections("docs/production.md")["A web server"] if text.startswith("# web.py")]
    space: dict[str, Any] = {}
    exec(compile(web, "web.py", "exec"), space)
    page = (ROOT / "docs" / "production.md").read_text()
    table = page[page.index("| status | errors |") :].partition("\n\n")[0]
    named = {name: int(row[2:5]) for row in table.splitlines()[2:] for name in re.findall(r"`([A-Z]\w+)`", row)}
    assert len(named) >= 25
    for name, status in named.items():
        assert space["status_of"](getattr(perdure, name)("message")) == status, name


def test_the_page_about_middleware_runs_and_prints_what_it_says_and_is_the_example(tmp_path: Path) -> None:
    [code] = [text for blocks in sections("docs/middleware.md").values() for language, text in blocks if language == "python"]
    printed = python(tmp_path, "snippet.py", code).splitlines()
    assert printed == EXPECTED.findall(code)
    example = (ROOT / "examples" / "budget_guard.py").read_text()
    assert python(tmp_path, "example.py", example).splitlines() == printed
    shown = code[code.index("class BudgetGuard") : code.index("async def main")]
    assert shown in example


def test_the_page_about_memory_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    [code] = [text for title, blocks in sections("docs/memory.md").items() for language, text in blocks if "Memory:" in title]
    assert python(tmp_path, "snippet.py", code).splitlines() == EXPECTED.findall(code)


def test_the_example_that_searches_by_meaning_finds_what_another_session_said(tmp_path: Path) -> None:
    printed = python(tmp_path, "meaning.py", (ROOT / "examples" / "meaning_memory.py").read_text())
    assert printed.splitlines() == ["- Ann is allergic to peanuts.", "I see."]


def test_the_example_of_a_team_runs_offline_and_calls_nobody_twice(tmp_path: Path) -> None:
    example = (ROOT / "examples" / "team.py").read_text()
    first = python(tmp_path, "team.py", example).splitlines()
    assert first == [
        "perdure (verb): to continue to exist.",
        "name: editor, 8 messages",
        "  name.t2.0.1: researcher, 4 messages",
    ]


def commands(document: str) -> list[list[str]]:
    """Every command line of ours in a document's blocks, in order."""
    lines = [line for blocks in sections(document).values() for language, text in blocks if not language for line in text.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("perdure ")]


@pytest.mark.parametrize("document", ["README.md", "docs/cli.md"])
def test_the_commands_of_a_document_work_in_a_fresh_directory_one_after_the_other(perdure: Program, document: str) -> None:
    [shop] = [text for blocks in sections("README.md").values() for language, text in blocks if language == "python"]
    assert shop.startswith("# shop.py\n")
    if document == "README.md":
        first = python(perdure.directory, "shop.py", shop)
        assert first.startswith("refunded 500 cents for A-1 under pd_")
        assert python(perdure.directory, "shop.py", shop) == first
    (perdure.directory / "shop.py").write_text(shop)
    found = commands(document)
    assert len(found) >= 3
    for command in found:
        perdure(*command, code=6 if "--no-wait" in command else 0)
    assert all(info["status"] == "idle" for info in perdure.json("sessions"))


def test_every_command_and_option_is_in_the_manual(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    manual = (ROOT / "docs" / "cli.md").read_text()

    def printed(*words: str) -> str:
        assert main([*words, "--help"]) == 0
        return capsys.readouterr().out

    names = re.findall(r"^    ([a-z-]+)(?: |$)", printed(), re.MULTILINE)
    assert {"revoke", "uncertain", "restore-backup"} <= {*names}
    for name in names:
        assert re.search(rf"`{name}\b", manual), name
        if name == "demo":
            continue
        for option in set(re.findall(r"--[a-z-]+", printed(name))) - {"--help", "--db", "--json", "--actor"}:
            assert f"`{option}" in manual or f" {option}" in manual, f"{name} {option}"


DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^()\s]+)\)")


def prose(document: Path) -> str:
    """A document without its blocks of code, in which nothing is a heading or a link."""
    return BLOCK.sub("", document.read_text())


def anchors(document: Path) -> set[str]:
    """What GitHub makes of a document's headings: small letters, digits, hyphens; spaces become hyphens; the same again gets a number."""
    found: dict[str, int] = {}
    made = set()
    for heading in re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        made.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return made


def test_anchors_are_those_of_headings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `name`, twice\n\n```\n# no heading\n```\n\n## Why\n\n### Why\n\n## What `verify` can't see\n")
    assert anchors(page) == {"a-name-twice", "why", "why-1", "what-verify-cant-see"}


def test_there_are_links_to_follow() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/guide.md", "docs/decisions/README.md"} <= set(DOCUMENTS)
    assert sum(len(LINK.findall(prose(ROOT / document))) for document in DOCUMENTS) > 100


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_a_file_and_to_a_heading_in_it(document: str) -> None:
    here = ROOT / document
    for target in LINK.findall(prose(here)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = here.parent.joinpath(file) if file else here
        assert there.exists(), target
        if anchor:
            assert there.suffix == ".md", target
            assert anchor in anchors(there), target


DRAWN = {"docs/protocol.md", "docs/events.md"}
"""Their lines are the code's own sentences."""


@pytest.mark.parametrize("document", sorted({*DOCUMENTS} - DRAWN))
def test_lines_are_short_where_they_can_be(document: str) -> None:
    """Tables, and lines that are one long link, can't be broken."""
    for line in prose(ROOT / document).splitlines():
        assert len(line) <= 140 or line.startswith("|") or " " not in line.strip(), line


def test_every_decision_says_what_would_undo_it() -> None:
    decisions = {*(ROOT / "docs" / "decisions").glob("*.md")} - {ROOT / "docs" / "decisions" / "README.md"}
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    assert len(decisions) > 20
    for decision in decisions:
        assert re.search(r"\bUndo (it|the|a)\b", decision.read_text()), decision.name
        assert f"[{decision.name}]({decision.name})" in index, decision.name
