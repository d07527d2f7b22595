"""Really killing real processes, at moments that have a name.

The program under test opens its store with `crashable` and passes its tools and models through a `CrashWorld`: then every commit, send,
tool and model call has named points, and the environment says at which of them the process gets a signal. A `Harness` starts the program,
lets it be killed, and starts it again with the same command until it ends by itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..runtime.stores import store_at
from ..store.base import Commit, Store
from ..tools.context import ToolContext
from .faults import Call, FaultStore, When
from .stage import Point
from .world import World

__all__ = ["ENVIRONMENT", "CrashWorld", "Ended", "Harness", "Ledger", "crashable", "kind_of", "wait_until_stopped"]

ENVIRONMENT = "PERDURE_CRASH"
"""The variable that tells a program under test where it is to be killed."""


def kind_of(commit: Commit) -> str:
    """What a commit is to its turn, as a word for a point."""
    kinds = [entry.kind for entry in commit.entries]
    for kind, word in (
        ("recovered", "recovery"),
        ("turn_started", "start"),
        ("tool_called", "start"),
        ("turn_completed", "end"),
        ("turn_aborted", "end"),
        ("turn_failed", "end"),
        ("request_opened", "ask"),
        ("request_closed", "answer"),
        ("effect_settled", "settle"),
        ("operation_ended", "receipt"),
        ("operation_started", "begin"),
    ):
        if kind in kinds:
            return word
    return "other"


class _Plan:
    """What the environment says."""

    def __init__(self) -> None:
        told: dict[str, Any] = json.loads(os.environ.get(ENVIRONMENT, "{}"))
        self.at: str = told.get("at", "")
        self.nth: int = told.get("nth", 1)
        self.signal: int = told.get("signal", signal.SIGKILL)
        self.log: str = told.get("log", "")
        self._passed: Counter[str] = Counter()

    def visit(self, point: str) -> None:
        self._passed[point] += 1
        if self.log:
            _append(Path(self.log), f"{os.getpid()} {point}\n", sync=False)
        if point == self.at and self._passed[point] == self.nth:
            if self.log:
                _append(Path(self.log), f"{os.getpid()} ! {point}\n", sync=False)
            os.kill(os.getpid(), self.signal)


_plan: _Plan | None = None


def _visit(point: str) -> None:
    global _plan
    _plan = _plan or _Plan()
    _plan.visit(point)


def crashable(url: str) -> Store:
    """The store at an address; where the environment has a plan, one with named points around each commit and send."""
    store = store_at(url)
    return FaultStore(store, gate=_gate, keep=False) if ENVIRONMENT in os.environ else store


async def _gate(call: Call, when: When) -> None:
    if call.kind == "commit":
        _visit(f"{when} commit {kind_of(call.given)}")
    elif call.kind in ("send", "retire"):
        _visit(f"{when} {call.kind}")


class Ledger:
    """A file that only grows, and holds what really happened: one JSON object a line, on the disk before `write` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **facts: Any) -> None:
        """Something happened."""
        _append(self.path, json.dumps(facts) + "\n", sync=True)

    def read(self) -> list[dict[str, Any]]:
        """Everything that happened, in order."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def _append(path: Path, text: str, *, sync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, text.encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class CrashWorld(World):
    """A `World` of one real process: its points may kill it, and what is done stands in a ledger that outlives it."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    async def point(self, kind: str, name: str, when: str) -> None:
        _visit(str(Point(kind, name, when)))

    async def act(self, context: ToolContext, tool: str, value: Any = None, *, effect: str = "external") -> None:
        await self.point("effect", tool, "before")
        self.ledger.write(
            key=context.idempotency_key, tool=tool, value=value, effect=effect, session=context.session_id, operation=context.operation
        )
        await self.point("effect", tool, "after")

    def did(self, key: str) -> bool:
        return any(line["key"] == key for line in self.ledger.read())

    def times(self, key: str) -> int:
        return sum(line["key"] == key for line in self.ledger.read())


@dataclass(frozen=True)
class Ended:
    """How one process ended: its exit code (negative is a signal), and the point at which it was killed, if it was at one."""

    code: int
    hit: str
    output: str


@dataclass
class Harness:
    """Starts a program again and again. ``hits`` counts at which points it was killed, "at a random moment" included."""

    command: Sequence[str]
    directory: Path
    timeout: float = 30.0
    hits: Counter[str] = field(default_factory=Counter)

    @property
    def log(self) -> Path:
        """Every point that the program passed."""
        return self.directory / "points.log"

    def start(self, at: str = "", *, nth: int = 1, signal_: int = signal.SIGKILL) -> subprocess.Popen[str]:
        """The program, to be sent a signal at the nth time it passes a point."""
        plan = json.dumps({"at": at, "nth": nth, "signal": int(signal_), "log": str(self.log)})
        return subprocess.Popen(
            [*self.command],
            cwd=self.directory,
            env={**os.environ, ENVIRONMENT: plan},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, at: str = "", *, nth: int = 1, after: float | None = None) -> Ended:
        """One life: until it is killed at a point, or ``after`` some seconds, or ends."""
        process = self.start(at, nth=nth)
        if after is not None:
            try:
                process.wait(after)
            except subprocess.TimeoutExpired:
                process.kill()
        try:
            output, _ = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            raise AssertionError(f"the program didn't end within {self.timeout} s; it said:\n{output}") from None
        hit = ""
        if process.returncode == -signal.SIGKILL:
            hit = self._where(process.pid) if after is None else "at a random moment"
            self.hits[hit] += 1
        return Ended(process.returncode, hit, output)

    def finish(self) -> Ended:
        """A life that nothing disturbs. Raises `AssertionError` unless it ends with 0."""
        ended = self.run()
        if ended.code:
            raise AssertionError(f"the program ended with {ended.code}:\n{ended.output}")
        return ended

    def points(self) -> Counter[str]:
        """How often each point was passed, in all lives."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return Counter(line.split(" ", 1)[1] for line in lines if " ! " not in line)

    def _where(self, pid: int) -> str:
        marks = [line.split(" ! ", 1)[1] for line in self.log.read_text().splitlines() if line.startswith(f"{pid} ! ")]
        return marks[-1] if marks else "nowhere"


def wait_until_stopped(process: subprocess.Popen[str], timeout: float = 30.0) -> None:
    """Return once a process was stopped by a signal. Raises `AssertionError` if it ended instead, or never stops."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        with open(f"/proc/{process.pid}/stat") as file:
            if file.read().rsplit(")", 1)[1].split()[0] == "T":
                return
        if process.poll() is not None:
            break
        time.sleep(0.01)
    raise AssertionError("the process was never stopped")
