"""The real program in processes of its own, on a file, with an agent that a test can steer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .forked import Copies, Copy

PATIENCE = 60.0
"""How long a condition may take to come true (seconds); nothing ever waits for time alone."""

AGENTS = '''
import asyncio, os, pathlib, time
from perdure import Agent, Done, FunctionModel, RateLimited, Reply, Router, ScriptedModel, ToolCall, ToolContext, Usage, tool

HERE = pathlib.Path(__file__).parent

def note(name, line):
    with open(HERE / name, "a") as file:
        file.write(line + "\\n")

@tool(effect="idempotent")
async def pay(ctx: ToolContext, order: str) -> str:
    """Pay; it ends when the test says so."""
    note("ledger", ctx.idempotency_key)
    while not (HERE / "go").exists():
        await asyncio.sleep(0.005)
    return f"paid {order}"

@tool(effect="external")
def block() -> str:
    """Block a thread, which nobody can end."""
    note("ledger", "blocked")
    while not (HERE / "go").exists():
        time.sleep(0.005)
    return "unblocked"

@tool(effect="external", key=("order",))
async def refund(order: str, cents: int) -> str:
    """Refund."""
    note("ledger", f"{order} {cents}")
    return f"refunded {cents}"

@tool(effect="external", unique="trip:{place}", guard="allow")
async def travel(ctx: ToolContext, place: str) -> str:
    """Book a hotel, and lose the line while paying."""
    async def charge() -> str:
        raise OSError("the line went dead")
    await ctx.step("hotel", lambda: f"a room in {place}", effect="idempotent")
    return await ctx.step("charge", charge)

@tool(effect="external")
async def break_down() -> str:
    """Fall over."""
    raise OSError("the line went dead")

@tool(effect="external")
async def transfer() -> str:
    """Move money; it ends when the test says so."""
    note("ledger", "transferring")
    while not (HERE / "go").exists():
        await asyncio.sleep(0.005)
    return "moved"

@tool(effect="external")
async def post(ctx: ToolContext) -> str:
    """Hand a parcel over; what became of it is heard later."""
    note("token", ctx.callback_token)
    raise OSError("the line went dead")

@tool(effect="external", on_uncertain="ask")
async def wonder() -> str:
    """Fall over, and have a person asked."""
    raise OSError("the line went dead")

def find_out(ctx: ToolContext) -> Done:
    return Done("it was done")

@tool(effect="external", reconcile=find_out)
async def careful() -> str:
    """Can say afterwards what became of it."""
    note("ledger", "careful")
    await asyncio.Event().wait()

@tool(effect="pure")
async def chatty() -> str:
    """Print, as libraries and programs do."""
    print("printed by a tool")
    await (await asyncio.create_subprocess_exec("echo", "printed by a program")).wait()
    return "ok"

@tool(effect="pure")
async def nasty() -> str:
    """Try to command the terminal."""
    return "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202egone"

def play(request):
    note("model", request.route)
    if request.purpose == "notes":
        return Reply(tool_calls=[ToolCall("save_notes", {"notes": "They said hello."})])
    said = [message.text for message in request.messages if message.role == "user" and "[note]" not in message.text][-1]
    word = said.split()[0]
    calls = {
        "pay": [ToolCall("pay", {"order": "A-1"})],
        "block": [ToolCall("block", {})],
        "refund": [ToolCall("refund", {"order": "A-1", "cents": 500})],
        "break": [ToolCall("break_down", {})],
        "travel": [ToolCall("travel", {"place": "Rome"}), ToolCall("nasty", {})],
        "nasty": [ToolCall("nasty", {})],
        "post": [ToolCall("post", {})],
        "transfer": [ToolCall("transfer", {})],
        "wonder": [ToolCall("wonder", {})],
        "wonder-pay": [ToolCall("wonder", {}), ToolCall("pay", {"order": "A-1"})],
        "careful": [ToolCall("careful", {})],
        "chatty": [ToolCall("chatty", {})],
    }.get(word)
    if word == "provider":
        raise RateLimited("too many requests", retry_after=0.001)
    if word == "bug":
        raise ValueError("a bug")
    if calls and request.step == 0:
        return Reply("Working.", tool_calls=calls)
    if word == "nasty":
        return Reply("\\x1b[31mred\\x1b[0m\\x07")
    return Reply(f"done: {said}", usage=Usage(input_tokens=7, output_tokens=3))

TOOLS = [pay, block, refund, travel, break_down, nasty, transfer, post, wonder, careful, chatty]
shop = Agent("shop", model=FunctionModel(play), tools=TOOLS, approve=["refund"])
other = Agent("other", model=FunctionModel(play))
routed = Agent("routed", model=Router({"fast": FunctionModel(play, name="fast"), "deep": FunctionModel(play, name="deep")}))

finished = Reply(tool_calls=[ToolCall("finish", {"answer": "Blue it is."})])
asking = Agent("asking", model=ScriptedModel(["Which one?", finished]), finish="ask")
counting = Agent("counting", model=ScriptedModel(["about five"], repairs=['{"value": 5}']), output_type=int)
changed = [shop.replace(instructions="Be kind.", tools=[item for item in TOOLS if item is not refund], approve=[])]

async def main():
    raise AssertionError("nobody may run this")

number = 5
'''


class Program:
    """``perdure`` in a directory of its own."""

    def __init__(self, directory: Path, copies: Copies) -> None:
        self.directory = directory
        self.copies = copies
        self.db = directory / "agents.db"
        self.processes: list[subprocess.Popen[str] | Copy] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY") and name != "PERDURE_DB"},
            "PYTHONPATH": os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH")))),
            "COLUMNS": "80",
            "USER": "ann",
        }
        (directory / "agents_here.py").write_text(AGENTS)

    def start(self, *arguments: str, **environment: str) -> Copy:
        """Begin a command."""
        process = self.copies.begin(arguments, str(self.directory), self.environment | environment)
        self.processes.append(process)
        return process

    def start_anew(self, *arguments: str, program: str = "", **environment: str) -> subprocess.Popen[str]:
        """Begin a command in a new interpreter; ``program`` is Python to run before it."""
        process = subprocess.Popen(
            [sys.executable, "-c", f"{program}\nimport sys; from perdure.cli import main; sys.exit(main())", *arguments],
            cwd=self.directory,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def __call__(self, *arguments: str, code: int = 0, **environment: str) -> str:
        """Run a command to its end, and return what it printed. Fails unless it exits with ``code``."""
        return self.end(self.start(*arguments, **environment), code=code)

    def end(self, process: subprocess.Popen[str] | Copy, *, code: int = 0) -> str:
        """What a command printed."""
        out, self.errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{self.errors}"
        assert "Traceback" not in self.errors
        return out

    def json(self, *arguments: str, code: int = 0) -> Any:
        """What a command printed with ``--json``."""
        return json.loads(self(*arguments, "--json", code=code))

    def lines(self, name: str) -> list[str]:
        """What the agent noted in a file."""
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def go(self) -> None:
        """Let what blocks go on."""
        (self.directory / "go").touch()

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for a condition."""
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < deadline, "the condition never came true"
            time.sleep(0.01)
        return found


@pytest.fixture(scope="session")
def copies() -> Iterator[Copies]:
    made = Copies()
    yield made
    made.end()


@pytest.fixture
def perdure(tmp_path: Path, copies: Copies) -> Iterator[Program]:
    program = Program(tmp_path, copies)
    yield program
    for process in program.processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()
