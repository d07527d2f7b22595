"""``python -m benchmarks.peers``: every peer does the same work, in turns; the table is printed, losses included."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

KILLED_IN = 50
"""The call of the tool in which the process is killed, of 100."""

HISTORY = 1000
"""Messages of the long session."""


@dataclass(frozen=True)
class Peer:
    """One library with one way to keep what it did. ``packages`` are those whose versions the table names."""

    name: str
    module: str
    packages: tuple[str, ...]
    postgres: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    killed_only: bool = False


PEERS = (
    Peer("perdure, SQLite", "perdure", ("perdure",)),
    Peer("perdure, PostgreSQL", "perdure", ("perdure",), postgres=True),
    Peer("LangGraph, SqliteSaver, sync", "langgraph", ("langgraph", "langgraph-checkpoint-sqlite"), settings={"durability": "sync"}),
    Peer(
        "LangGraph, PostgresSaver, sync",
        "langgraph",
        ("langgraph", "langgraph-checkpoint-postgres"),
        postgres=True,
        settings={"durability": "sync"},
    ),
    Peer("LangGraph, SqliteSaver, async", "langgraph", ("langgraph",), settings={"durability": "async"}, killed_only=True),
    Peer("LangGraph, SqliteSaver, exit", "langgraph", ("langgraph",), settings={"durability": "exit"}, killed_only=True),
    Peer("OpenAI Agents, SQLiteSession", "agents", ("openai-agents",)),
    Peer("DBOS, SQLite", "dbos", ("dbos",)),
    Peer("DBOS, PostgreSQL", "dbos", ("dbos",), postgres=True),
    Peer("Pydantic AI with DBOS, SQLite", "pydantic", ("pydantic-ai-slim", "dbos")),
)


class Failed(Exception):
    """A peer's process ended otherwise than it should."""


class Bench:
    """Runs peers' processes in a directory of their own."""

    def __init__(self, directory: Path, server: Any) -> None:
        self._directory, self._server, self._count = directory, server, 0

    def place(self, peer: Peer) -> str:
        """A new database of a peer's kind."""
        if peer.postgres:
            return str(self._server.database())
        self._count += 1
        folder = self._directory / f"place-{self._count}"
        folder.mkdir()
        return str(folder / "bench.db")

    def size(self, url: str) -> int:
        """Bytes that it takes on the disk."""
        if url.startswith("postgresql:"):
            return int(self._server.size(url))
        return sum(file.stat().st_size for file in Path(url).parent.rglob("*") if file.is_file())

    def written(self) -> int:
        """Bytes that the server logged so far."""
        return int(self._server.written())

    def log(self) -> Path:
        """A new file for what happens."""
        self._count += 1
        return self._directory / f"log-{self._count}"

    def run(self, peer: Peer, url: str, *options: str, until: Callable[[], bool] | None = None) -> dict[str, Any]:
        """One process. With ``until`` it is killed as soon as that is true."""
        command = [sys.executable, "-m", "benchmarks.peers.worker", peer.module, url, "--settings", json.dumps(peer.settings), *options]
        # Every library is compiled once, as an installed one is.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with (self._directory / "errors").open("w+b") as errors:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors)
            if until is not None:
                while process.poll() is None and not until():
                    time.sleep(0.02)
                process.kill()
            output, _ = process.communicate(timeout=900)
            if process.returncode == -signal.SIGKILL:
                return {}
            if process.returncode:
                errors.seek(0)
                raise Failed(errors.read().decode(errors="replace").strip().splitlines()[-1][:300])
        found: dict[str, Any] = json.loads(output)
        return found


def steps(bench: Bench, peer: Peer, *, before: int, measured: int) -> dict[str, Any]:
    """One session, one step after another: the last ``measured`` of them."""
    url = bench.place(peer)
    logged = bench.written() if peer.postgres else 0
    found = bench.run(peer, url, "--steps", str(before + measured))
    calls = found["calls"]
    result = {"ms per step": (calls[-1] - calls[-1 - measured]) / measured * 1000, "size MB": bench.size(url) / 1e6}
    if peer.postgres:
        result["KB per step"] = (bench.written() - logged) / (before + measured) / 1024
    else:
        result["KB per step"] = (found["written"][-1] - found["written"][0]) / (before + measured) / 1024
    return result


def together(bench: Bench, peer: Peer, *, sessions: int, each: int) -> dict[str, Any]:
    """Many sessions in one process at once."""
    found = bench.run(peer, bench.place(peer), "--steps", str(each), "--sessions", str(sessions))
    calls = found["calls"]
    return {"steps/s": sessions * each / (max(calls) - min(calls))}


def resume(bench: Bench, peer: Peer, *, messages: int) -> dict[str, Any]:
    """A session is cut off behind so many messages; a new process takes it up. From its start to the first new model call."""
    url, log, done = bench.place(peer), bench.log(), messages // 2
    asked = f"model {done} "
    options = ("--steps", str(done + 1), "--log", str(log))
    bench.run(peer, url, *options, "--hang-at", str(done), until=lambda: log.exists() and asked in log.read_text())
    size = log.stat().st_size
    start = time.monotonic()
    bench.run(peer, url, *options, "--resume")
    for line in log.read_text()[size:].splitlines():
        if line.startswith("model "):
            return {"ms": (float(line.split()[2]) - start) * 1000}
    raise Failed("the model was not called again")


def killed(bench: Bench, peer: Peer, *, call: int, of: int) -> dict[str, Any]:
    """The process is killed inside of a tool, and started again as its library says."""
    url, log = bench.place(peer), bench.log()
    options = ("--steps", str(of), "--log", str(log), "--kill-at", str(call))
    bench.run(peer, url, *options)
    found = bench.run(peer, url, *options, "--resume")
    lines = [line.split(maxsplit=2) for line in log.read_text().splitlines()]
    tools = Counter(int(line[1]) for line in lines if line[0] == "tool")
    asked = Counter(int(line[1]) for line in lines if line[0] == "model")
    told = [line[2] for line in lines if line[0] == "read" and int(line[1]) == call]
    return {
        "the interrupted call": "run again" if tools[call] > 1 else "not run again",
        "finished calls repeated": sum(tools[number] - 1 for number in range(call)),
        "finished model calls repeated": sum(asked[number] - 1 for number in range(call + 1)),
        "messages lost": max(0, 2 * of + 2 - found["messages"]),
        "told that it is unknown": bool(told),
    }


WORK: dict[str, Callable[[Bench, Peer], dict[str, Any]]] = {
    "short": lambda bench, peer: steps(bench, peer, before=0, measured=100),
    "long": lambda bench, peer: steps(bench, peer, before=HISTORY // 2, measured=100),
    "together": lambda bench, peer: together(bench, peer, sessions=100, each=10),
    "resume": lambda bench, peer: resume(bench, peer, messages=HISTORY),
    "killed": lambda bench, peer: killed(bench, peer, call=KILLED_IN, of=100),
}


def _versions(peer: Peer) -> str:
    def one(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return package

    return ", ".join(map(one, peer.packages))


def _rows(results: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    behind = f"behind {HISTORY:,} messages"
    yield [
        "",
        "100 steps: ms each",
        "KB each",
        f"{behind}: ms each",
        "KB each",
        "100 sessions: steps/s",
        f"{HISTORY:,} messages taken up: ms",
    ]
    for name, found in results.items():
        if "short" in found:
            yield [
                name,
                _show(found["short"], "ms per step", ".2f"),
                _show(found["short"], "KB per step", ".0f"),
                _show(found["long"], "ms per step", ".2f"),
                _show(found["long"], "KB per step", ".0f"),
                _show(found["together"], "steps/s", ".0f"),
                _show(found["resume"], "ms", ".0f"),
            ]


def _killed_rows(results: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    names = ["the interrupted call", "finished calls repeated", "finished model calls repeated", "messages lost", "told that it is unknown"]
    yield [f"kill -9 in call {KILLED_IN} of 100", *names]
    for name, found in results.items():
        cells = found["killed"]
        yield [name, *(str(cells.get(key, cells.get("failed"))).replace("True", "yes").replace("False", "no") for key in names)]


def _show(found: dict[str, Any], key: str, form: str) -> str:
    return format(found[key], form) if key in found else f"failed: {found['failed']}"


def _table(rows: Iterator[list[str]]) -> str:
    head, *rest = rows
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rest)]
    lines.insert(1, "| --- " * len(head) + "|")
    return "\n".join(lines)


def _measure(peers: list[Peer], directory: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Everything of everybody, in turns. Of figures the medians, of a failure what it said."""
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {peer.name: {} for peer in peers}
    with ExitStack() as stack:
        server = None
        if any(peer.postgres for peer in peers):
            from .postgres import serving

            server = stack.enter_context(serving(directory / "postgres"))
        bench = Bench(directory, server)
        for number in range(rounds):
            for name, task in WORK.items():
                for peer in peers:
                    # What a kill leaves is the same every time.
                    if (peer.killed_only and name != "killed") or (name == "killed" and number):
                        continue
                    print(f"\r\033[Kround {number + 1}: {name}, {peer.name}", end="", file=sys.stderr, flush=True)
                    try:
                        found = task(bench, peer)
                    except (Failed, subprocess.TimeoutExpired) as error:
                        found = {"failed": str(error)}
                    measured[peer.name].setdefault(name, []).append(found)
        print("\r\033[K", end="", file=sys.stderr)
    return {name: {task: _summary(task, runs) for task, runs in tasks.items()} for name, tasks in measured.items()}


def _summary(task: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    failed = next((run for run in runs if "failed" in run), None)
    if failed is not None or task == "killed":
        return failed or runs[0]
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured; the table has the medians")
    parser.add_argument("--only", default="", help="only peers whose name contains this")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--dir", type=Path, help="where the databases are made; it must be on a real disk")
    given = parser.parse_args()
    peers = [peer for peer in PEERS if given.only.lower() in peer.name.lower()]
    directory = Path(tempfile.mkdtemp(prefix="perdure-peers-", dir=given.dir))
    began = os.getloadavg()[0]
    try:
        results = _measure(peers, directory, given.rounds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores; load {began:.1f} when it began, {os.getloadavg()[0]:.1f} at the end"
    )
    print(*(f"- {peer.name}: {_versions(peer)}" for peer in peers), sep="\n")
    print("", _table(_rows(results)), "", _table(_killed_rows(results)), sep="\n")
    if given.json is not None:
        given.json.write_text(json.dumps({"results": results, "versions": {peer.name: _versions(peer) for peer in peers}}, indent=1))


if __name__ == "__main__":
    main()
