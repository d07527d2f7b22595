"""What SIGTERM does to a program of a user's own, and to the commands: running calls may end, within the grace."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from .conftest import Program

SHOP = "agents_here:shop"

PROGRAM = """
import asyncio, pathlib, signal, sys
import perdure
from agents_here import note, shop

async def main(grace):
    async with perdure.open("agents.db", grace=grace) as runtime:
        runtime.stop_on(signal.SIGTERM)
        try:
            print((await runtime.run(shop, "transfer", session="s", submission="mail-1")).output)
        finally:
            note("left", "the body")

asyncio.run(main(float(sys.argv[1])))
"""

WITHOUT_A_LOOP = """
import sys
import perdure
from agents_here import shop

runtime = perdure.open("agents.db", grace=float(sys.argv[1]))
print(runtime.run_sync(shop, "transfer", session="s", submission="mail-1").output)
"""

NO_GRACE = "import functools, perdure.cli.opening as opening; opening.open_runtime = functools.partial(opening.open_runtime, grace=0.0)"
"""What is put before a command that has no option for it."""


def start(perdure: Program, code: str, *arguments: str) -> subprocess.Popen[str]:
    """A program of a user's own."""
    (perdure.directory / "program.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "program.py", *arguments],
        cwd=perdure.directory,
        env=perdure.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    perdure.processes.append(process)
    return process


def output(perdure: Program, code: str) -> str:
    """What a program prints that ends by itself."""
    return perdure.end(start(perdure, code))


@pytest.mark.parametrize("code", [PROGRAM, WITHOUT_A_LOOP], ids=["stop_on", "run_sync"])
def test_a_call_that_ends_within_the_grace_has_its_receipt(perdure: Program, code: str) -> None:
    running = start(perdure, code, "60")
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGTERM)
    perdure.go()
    assert perdure.end(running, code=143) == ""
    assert perdure.json("uncertain") == []
    assert perdure.json("sessions")[0]["holder"] is None
    assert perdure.end(start(perdure, code, "60")) == "done: transfer\n"
    assert perdure.lines("ledger") == ["transferring"]


@pytest.mark.parametrize("code", [PROGRAM, WITHOUT_A_LOOP], ids=["stop_on", "run_sync"])
def test_a_call_that_outlives_the_grace_is_committed_as_uncertain(perdure: Program, code: str) -> None:
    running = start(perdure, code, "0")
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGTERM)
    perdure.end(running, code=143)
    [unknown] = perdure.json("uncertain")
    assert unknown["name"] == "transfer"
    [info] = perdure.json("sessions")
    assert (info["status"], info["holder"]) == ("queued", None)
    perdure.end(start(perdure, code, "0"))
    assert perdure.lines("ledger") == ["transferring"]
    assert perdure("verify").endswith("nothing is wrong\n")


def test_a_command_commits_as_uncertain_what_outlives_its_grace(perdure: Program) -> None:
    running = perdure.start_anew("run", SHOP, "transfer", "--session", "s", program=NO_GRACE)
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGTERM)
    perdure.end(running, code=143)
    assert "the session s is kept" in perdure.errors
    [unknown] = perdure.json("uncertain")
    assert unknown["name"] == "transfer"
    assert perdure.json("sessions")[0]["holder"] is None


def test_a_second_signal_takes_nothing_from_the_grace(perdure: Program) -> None:
    running = start(perdure, PROGRAM, "60")
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGTERM)
    perdure.until(lambda: perdure.lines("left"))
    running.send_signal(signal.SIGTERM)
    perdure.go()
    perdure.end(running, code=143)
    assert perdure.json("uncertain") == []


DRAINING = """
import asyncio, signal
import perdure
from agents_here import note, shop

async def main():
    async with perdure.open("agents.db", grace=60) as runtime:
        stopped = asyncio.Event()
        runtime.stop_on(signal.SIGTERM, then=stopped.set)
        running = asyncio.ensure_future(runtime.run(shop, "transfer", session="s", submission="mail-1"))
        await stopped.wait()
        note("left", "the body")
    await asyncio.gather(running, return_exceptions=True)
    print("drained")

asyncio.run(main())
"""


def test_a_second_signal_changes_nothing_for_a_program_that_drains_by_itself(perdure: Program) -> None:
    running = start(perdure, DRAINING)
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGTERM)
    perdure.until(lambda: perdure.lines("left"))
    running.send_signal(signal.SIGTERM)
    perdure.go()
    assert perdure.end(running) == "drained\n"


def test_signals_are_named(perdure: Program) -> None:
    program = """
import asyncio
import perdure

async def main():
    async with perdure.open("memory://") as runtime:
        try:
            runtime.stop_on()
        except perdure.UsageError as error:
            print(error.message)

asyncio.run(main())
"""
    assert output(perdure, program) == "stop_on needs the signals that it is about\n"


def test_a_handler_of_the_programs_own_stays(perdure: Program) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: pathlib.Path('go').touch())\n"
    running = start(perdure, PROGRAM.replace("async def main", f"{handler}\nasync def main"), "0")
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGTERM)
    assert perdure.end(running) == "done: transfer\n"


def test_the_signal_is_given_back_unless_somebody_took_it_meanwhile(perdure: Program) -> None:
    assert output(
        perdure,
        """
import asyncio, signal, threading
import perdure

async def main(taking):
    async with perdure.open("memory://") as runtime:
        runtime.stop_on(signal.SIGTERM, signal.SIGINT)
        runtime.stop_on(signal.SIGTERM)
        print(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, end=" ")
        if taking:
            signal.signal(signal.SIGTERM, print)
    print(signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, print))

# Who starts programs in the background has them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.run(main(False))
asyncio.run(main(True))
print(signal.getsignal(signal.SIGTERM) is print, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
""",
    ) == ("True True\nTrue True\nTrue True\n")


def test_a_forked_child_ends_at_the_signal_as_any_process_does(perdure: Program) -> None:
    assert output(
        perdure,
        """
import asyncio, os, signal, time
import perdure

async def main():
    async with perdure.open("memory://") as runtime:
        runtime.stop_on(signal.SIGTERM)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.write(writing, b"there")
            while True:
                time.sleep(0.01)
        os.read(reading, 5)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        print(os.WTERMSIG(status), runtime.closed)

asyncio.run(main())
""",
    ) == ("15 False\n")


def test_other_threads_are_told_that_signals_never_reach_them(perdure: Program) -> None:
    assert output(
        perdure,
        """
import asyncio, signal, threading
import perdure
from perdure import Agent, ScriptedModel

async def main():
    async with perdure.open("memory://") as runtime:
        try:
            runtime.stop_on(signal.SIGTERM)
        except perdure.UsageError as error:
            print(error.message)

def work():
    asyncio.run(main())
    print(perdure.open("memory://").run_sync(Agent("a", model=ScriptedModel(["done"])), "go").output)

thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    ) == ("signals reach a program's main thread only\ndone\n")


READS = """
import io, os, pathlib, sys

class Told(io.FileIO):
    def readinto(self, buffer):
        pathlib.Path("reading").touch()
        return super().readinto(buffer)

    def readall(self):
        pathlib.Path("reading").touch()
        return super().readall()

sys.stdin = io.TextIOWrapper(io.BufferedReader(Told(os.pipe()[0])))
"""
"""Standard input says that it is read, and never ends."""

TERMINAL = "import os; os.dup2(os.openpty()[1], 0)"

HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""A shell that starts the tests in the background has all that they start ignore Ctrl-C."""


@pytest.mark.parametrize(
    "command",
    [["send", "s", "-"], ["fork", "s", "-"], ["rewrite", "s", "0", "1", "-"], ["import", "-"], ["import", "-", "--from", "openai"]],
)
def test_ctrl_c_ends_a_command_that_reads_what_never_ends(perdure: Program, command: list[str]) -> None:
    reading = perdure.start_anew(*command, *(["--session", "new"] if command[0] == "import" else []), program=f"{READS}\n{HEARS}")
    perdure.until((perdure.directory / "reading").exists)
    reading.send_signal(signal.SIGINT)
    perdure.end(reading, code=130)


def test_ctrl_c_at_a_question_destroys_nothing_and_ends_the_command(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    asking = perdure.start_anew("delete", "s", program=f"{TERMINAL}\n{HEARS}")
    assert asking.stderr is not None
    assert asking.stderr.read(11) == "Destroy 's'"
    asking.send_signal(signal.SIGINT)
    perdure.end(asking, code=130)
    assert "hello" in perdure("show", "s")
