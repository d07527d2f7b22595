"""Excerpts in the manual, which show calls and no whole program, run as they are printed once what they take for given is there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import wave
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import perdure
from perdure import Agent, FunctionModel, Message, ModelRequest, Reply, Runtime, Text, ToolCall, ToolContext, ToolPolicy, tool
from perdure.tools import sleep_tool

from .test_documents import sections

PAGES = tuple(f"docs/{page}.md" for page in ("budgets", "catalogue", "media", "operations", "sessions", "teams", "transcripts"))

EXCERPTS = [(page, title) for page in PAGES for title, blocks in sections(page).items() if any(kind == "python" for kind, _ in blocks)]

ENDLESS = {
    '"search-index", index)': '"search-index", index, follow=False)',
    'perdure.JsonLines("journals"))': 'perdure.JsonLines("journals"), follow=False)',
}
"""What an excerpt would wait for without end, and what is done instead."""

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)
"""A picture of one dot."""


@tool(effect="external", key=("order",))
async def refund(order: str, cents: int) -> str:
    """Refund an order."""
    return "refunded"


@tool(effect="pure")
async def search(words: str) -> str:
    """Look something up."""
    return "found"


def answer(request: ModelRequest) -> Reply:
    asks = request.messages[-1].role == "user" and request.messages[-1].text.startswith("refund")
    return Reply(tool_calls=[ToolCall("refund", {"order": "A-1", "cents": 500})]) if asks else Reply("ok")


support = Agent("support", model=FunctionModel(answer), tools=[refund, search])


async def done(*given: Any) -> str:
    return "done"


def sound() -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8000)
        file.writeframes(b"\x80" * 80)
    return made.getvalue()


async def talked(runtime: Runtime) -> str:
    """A session of fourteen messages; its last turn."""
    for number in range(7):
        await runtime.run(support, f"question {number}", session="ticket-42", owner="acme", submission=f"q-{number}")
    return (await runtime.sessions.entries("ticket-42", kinds=["turn_completed"]))[-1].turn


async def asked(runtime: Runtime) -> None:
    """A session in which a person has to decide."""
    async with runtime.session("ticket-43", support.replace(approve=["refund"]), owner="acme") as session:
        await session.send("refund, please")
        async for event in session.events():
            if isinstance(event, perdure.ApprovalRequested):
                return


def run(code: str, names: dict[str, Any]) -> Awaitable[None]:
    async def nothing() -> None:
        return None

    found = eval(compile(code, "excerpt", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True), names)
    return found if inspect.isawaitable(found) else nothing()


def test_there_are_excerpts() -> None:
    assert {page for page, _ in EXCERPTS} == {*PAGES}
    assert len(EXCERPTS) > 20


@pytest.mark.parametrize(("page", "title"), EXCERPTS)
def test_an_excerpt_runs_as_printed(page: str, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cat.png").write_bytes(PNG)
    (tmp_path / "minutes.pdf").write_bytes(b"%PDF-1.4\n%%EOF\n")

    async def main() -> None:
        async with (
            perdure.open(tmp_path / "given.db") as runtime,
            perdure.open("memory://") as other,
            runtime.session("watched", support) as session,
        ):
            turn = await talked(runtime)
            await asked(runtime)
            code = "\n".join(text for kind, text in sections(page)[title] if kind == "python")
            code = code.replace('"t40"', f'"{turn}"').replace("port=9464", "port=0").replace('host="0.0.0.0"', 'host="127.0.0.1"')
            for endless, once in ENDLESS.items():
                code = code.replace(endless, once)
            found: Callable[..., Agent] = lambda name, **said: Agent(name, **{**said, "model": support.model})  # noqa: E731
            names: dict[str, Any] = {
                **{name: getattr(perdure, name) for name in perdure.__all__},
                "perdure": perdure,
                "Agent": found,
                "Any": Any,
                "Message": Message,
                "Text": Text,
                "ToolContext": ToolContext,
                "ToolPolicy": ToolPolicy,
                "agent": support,
                "ask_customer": done,
                "exporter": InMemorySpanExporter(),
                "file": io.StringIO(json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])),
                "json": json,
                "other": other,
                "recording": sound(),
                "remind_customer": done,
                "render": lambda column: PNG,
                "revision": await runtime.sessions.revision("ticket-42"),
                "runtime": runtime,
                "search": SimpleNamespace(add=done) if title == "Consumers" else search,
                "session": session,
                "sessions": runtime.sessions,
                "sleep_tool": sleep_tool,
                "support": support,
                "timedelta": timedelta,
                "tool": tool,
                "user": SimpleNamespace(account="acme"),
            }
            await run(code, names)

    asyncio.run(main())
