"""The demonstration, as a user runs it: it proves what it claims, notices when it isn't true, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from perdure import Reply, ToolCall, Usage
from perdure.demo import tether
from perdure.demo.proof import KILLS, LEASE, Evidence, survived
from perdure.demo.scene import Kill, Scene
from perdure.demo.view import picture
from perdure.testing.wire import Received, WireServer

ROOT = Path(__file__).parents[3]
PROOFS = 9


def start(directory: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "perdure.demo", "--plain", "--keep", str(directory), *options]
    return subprocess.Popen(
        command, env={**os.environ, "COLUMNS": "300", **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def alive(directory: Path) -> list[str]:
    """Processes that have something to do with this run."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command:
            found.append(command)
    return found


def nothing_left_of(directory: Path) -> bool:
    # As long as a busy machine may take to let a dying process run once more, and wait for its disk.
    deadline = time.monotonic() + 30
    while alive(directory) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(directory)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, str, float]]]:
    """An honest run and one whose payment service pays twice, side by side."""
    began = time.monotonic()
    directories = {name: tmp_path_factory.mktemp("demo") / name for name in ("honest", "pay-twice")}
    processes = {name: start(directory, PERDURE_DEMO_SABOTAGE=name) for name, directory in directories.items()}
    try:
        done = {}
        for name, process in processes.items():
            output, _ = process.communicate(timeout=120)
            done[name] = (process.returncode, output, time.monotonic() - began)
        yield done
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    assert all(map(nothing_left_of, directories.values()))


def test_every_proof_holds_in_under_a_minute(runs: dict[str, tuple[int, str, float]]) -> None:
    code, output, seconds = runs["honest"]
    assert code == 0, output
    assert output.count("✓") == PROOFS, output
    assert "✗" not in output
    assert "12 payments for 12 orders" in output
    assert "14 mails came, 14 have their answer" in output
    assert "1,438.64 € left by the ledger, 1,438.64 € by the journals' 12 receipts" in output
    assert "1 payment was reported as unknown, 1 settled by the bank's late answer" in output
    assert "B-108 denied, 0.00 € paid; B-111 cut down from 480.00 €, 240.00 € paid" in output
    assert "14 × kill -9" in output
    assert seconds < 60


def test_a_payment_service_that_pays_twice_is_found_out(runs: dict[str, tuple[int, str, float]]) -> None:
    code, output, _ = runs["pay-twice"]
    assert code == 1, output
    broken = [line for line in output.splitlines() if line.startswith("✗")]
    assert [line[2:].split(":")[0] for line in broken] == ["Nothing was paid twice", "Every cent is accounted for"], output


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGKILL, -9)])
def test_stopping_it_leaves_no_process_behind(tmp_path: Path, how: signal.Signals, code: int) -> None:
    directory = tmp_path / "stopped"
    process = start(directory)
    assert process.stdout is not None
    for line in process.stdout:
        if "kill -9 #1" in line:
            break
    assert len(alive(directory)) >= 2
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert nothing_left_of(directory)


def test_a_program_of_the_demo_ends_with_it_even_while_it_still_loads(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import threading\nprint('loading', flush=True)\nthreading.Event().wait()\n")
    process = subprocess.Popen(
        [sys.executable, tether.__file__, "slow"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        try:
            assert process.stdout.readline() == "loading\n"
            assert process.poll() is None
            process.stdin.close()
            assert process.wait(timeout=30) == 1
        finally:
            process.kill()


def test_a_real_model_needs_its_key(tmp_path: Path) -> None:
    process = start(tmp_path / "none", "--model", "anthropic:claude", ANTHROPIC_API_KEY="")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "ANTHROPIC_API_KEY is not set" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(("after", "holds"), [([0.4] * KILLS, True), ([0.4] * (KILLS - 1), False), ([0.4] * KILLS + [LEASE], False)])
def test_kills_are_a_proof_only_if_there_were_enough_and_each_was_made_good_at_once(after: list[float], holds: bool) -> None:
    kills = [Kill("a moment", "mail-01", [], seconds) for seconds in after]
    nothing = Evidence(ledger=[], journals={}, results={}, model_calls=[])
    assert survived(kills, len(kills), nothing, scripted=True).holds == holds
    assert not survived([], 14, nothing, scripted=False).holds
    assert survived(kills[:1], 14, nothing, scripted=False).holds


def clerk(request: Received) -> Reply:
    """What a model that understands the mails says to the request of an OpenAI client."""
    items = request.body["input"]
    last, usage = items[-1], Usage(input_tokens=50, output_tokens=9)
    if last.get("type") == "function_call_output":
        names = {item["call_id"]: item["name"] for item in items if item.get("type") == "function_call"}
        if names[last["call_id"]] != "find_order":
            return Reply(f"Dear customer, this is what became of your refund: {last['output'][:80]}", usage=usage)
        found = json.loads(last["output"]) if last["output"].startswith("{") else {}
        if "cents" not in found:
            return Reply("Sorry, we know no order of that number; please look at the invoice again.", usage=usage)
        call = ToolCall("refund", {"order": found["order"], "cents": found["cents"]})
        return Reply("That is what the customer paid, so I give it back now.", tool_calls=[call], usage=usage)
    said = [said_in(item) for item in items if item.get("role") == "user"]
    if "has told us by now" in "".join(said[-2:]):
        return Reply("Good news: the bank has paid your refund by now, and all is complete.", usage=usage)
    orders = [found[1] for text in said if (found := re.search(r"\(order (\S+)\)", text))]
    return Reply("Let me see what we know about this order first.", tool_calls=[ToolCall("find_order", {"order": orders[-1]})], usage=usage)


def said_in(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@pytest.mark.long
async def test_a_real_models_client_is_killed_and_every_proof_holds(tmp_path: Path) -> None:
    async with WireServer(clerk) as server:
        process = start(tmp_path / "run", "--model", "openai:some", OPENAI_API_KEY="any", OPENAI_BASE_URL=server.openai_url)
        output, _ = await asyncio.to_thread(process.communicate, timeout=240)
    assert process.returncode == 0, output
    assert output.count("✓") == 7, output
    kills = re.search(r"(\d+) × kill -9(?: \((\d+) of 14 moments came\))?", output)
    assert kills is not None
    assert int(kills[1]) >= 1
    assert kills[2] in (None, kills[1])


def test_it_keeps_its_files_only_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("not yours")
    process = start(tmp_path)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "is not empty" in output


@pytest.mark.parametrize("place", ["/proc/kept", "file/below"])
def test_a_place_where_nothing_can_be_kept_is_named_with_the_reason(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    process = start(tmp_path / place)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"no files can be kept in '{tmp_path / place}': " in output
    assert "name a directory" in output
    assert "Errno" not in output


def test_the_picture_of_a_small_terminal_holds_the_money_and_the_process() -> None:
    scene = Scene(lambda line: None)
    scene.began -= 99
    scene.process = "pid 4194304"
    scene.kills = [Kill("", "", [], back_after=1.0)] * 14
    scene.ledger = [{"event": "paid", "cents": 143_864}]
    console = Console(width=80, height=24, file=io.StringIO())
    console.print(picture(scene, console))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "paid: 1,438.64 €" in lines[0]
    assert lines[0].rstrip().endswith("pid 4194304")
    assert len(lines) <= 24


def test_the_example_dies_after_paying_and_pays_once(tmp_path: Path) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "examples" / "refunds.py"), *options],
            cwd=tmp_path, env={**os.environ, "MODEL": ""}, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    assert run("--die").returncode == -signal.SIGKILL
    for _ in range(2):
        done = run()
        assert done.returncode == 0, done.stderr
        assert "Your 49.90 € are on their way." in done.stdout
        assert "payments in bank.txt: 1" in done.stdout
