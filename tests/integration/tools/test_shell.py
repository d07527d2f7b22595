"""The shell, confined and not: what holds for both. Processes are known by a number that nobody else would sleep for."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shlex
import signal
import subprocess
import sys
import tracemalloc

import pytest

import perdure.tools.shell as shell_module
from perdure.tools import ToolCancelled, ToolError
from perdure.tools.shell import CommandLost

from .conftest import Place, context, running, until

_numbers = itertools.count(random.randrange(10**6, 10**8))


@pytest.fixture
def nap() -> str:
    """A command that nobody else runs, and that would not end by itself."""
    return f"sleep {next(_numbers)}"


async def test_a_command_runs_in_the_workspace_and_answers_with_code_and_output(shell: Place) -> None:
    (shell.root / "f").write_text("content\n")
    answer = await shell.call("shell", command="pwd; cat f; echo to error >&2; echo last; exit 3")
    assert answer["output"] == f"{shell.root}\ncontent\nto error\nlast\n"
    assert (answer["exit_code"], answer["stopped"], answer["truncated"]) == (3, None, False)
    assert answer["output_bytes"] == len(answer["output"])
    assert 0 < answer["seconds"] < 60


async def test_a_command_that_a_signal_ends_has_the_code_that_shells_give_it(shell: Place) -> None:
    assert (await shell.call("shell", command="kill -SEGV $$"))["exit_code"] == 128 + signal.SIGSEGV
    assert (await shell.call("shell", command="nosuchprogram"))["exit_code"] == 127


async def test_a_command_has_no_input_and_no_terminal(shell: Place) -> None:
    answer = await shell.call("shell", command="cat; test -t 0 || test -t 1 || echo none; (: </dev/tty) 2>/dev/null || echo no tty")
    assert answer["output"] == "none\nno tty\n"


async def test_a_command_sees_few_variables_and_no_secret(shell: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "https_proxy", "LD_PRELOAD", "BASH_ENV", "DATABASE_URL"):
        monkeypatch.setenv(name, "/tmp/hunter2")
    mode = "required" if "NOT confined" not in shell.tools["shell"].description else "off"
    shell.use(sandbox=mode, environment={"ADDED": "yes"})
    output = (await shell.call("shell", command="cat /proc/self/environ | tr '\\0' '\\n'; echo; env"))["output"]
    assert "hunter2" not in output
    assert "ADDED=yes" in output
    allowed = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "PAGER", "GIT_PAGER", "GIT_TERMINAL_PROMPT"}
    allowed |= {"ADDED", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"}
    assert {line.partition("=")[0] for line in output.splitlines() if line} <= allowed


async def test_a_command_inherits_no_descriptor(shell: Place) -> None:
    with open("/dev/null") as kept:
        os.set_inheritable(kept.fileno(), True)
        output = (await shell.call("shell", command="ls -l /proc/self/fd | grep -c -e '->'; ls -l /proc/$$/fd"))["output"]
    # In the first, ls has one for the directory that it lists.
    assert output.startswith("4\n"), output


async def test_output_that_is_no_utf_8_is_shown_as_far_as_it_goes(shell: Place) -> None:
    answer = await shell.call("shell", command="printf 'caf\\351 gr\\303\\274n \\0 end'")
    assert answer["output"] == "caf\ufffd grün \0 end"
    assert answer["output_bytes"] == 16


async def test_of_too_much_output_both_ends_are_kept_and_memory_stays_small(shell: Place) -> None:
    tracemalloc.start()
    try:
        answer = await shell.call("shell", command="echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo last")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer["output"].startswith("first\nxxx")
    assert answer["output"].endswith("xxx\nlast\n")
    assert "bytes left out" in answer["output"]
    assert answer["output_bytes"] == 30_000_012
    assert answer["truncated"]
    assert len(answer["output"]) < 33_000
    assert peak < 3_000_000


def test_a_cut_goes_through_no_character() -> None:
    for limit in range(40, 60):
        kept = shell_module._Kept(limit)
        for _ in range(50):
            kept.add("ü🙂".encode())
        text, truncated = kept.text()
        assert truncated
        assert "\ufffd" not in text, limit
        assert kept.total == 300


async def test_a_command_that_never_stops_writing_is_stopped(shell: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "FLOOD_LIMIT", 1_000_000)
    answer = await shell.call("shell", command="yes")
    assert (answer["stopped"], answer["exit_code"]) == ("output", None)
    assert answer["output_bytes"] > 1_000_000


async def test_a_timeout_ends_children_and_grandchildren_and_keeps_the_output(shell: Place, nap: str) -> None:
    command = f"echo before; {nap} & (({nap}) & wait) & setsid {nap} & setsid sh -c '{nap} & {nap}' & wait"
    answer = await shell.call("shell", command=command, timeout_seconds=0.5)
    assert answer["stopped"] == "timeout"
    assert answer["output"] == "before\n"
    assert not running(nap)


async def test_who_ignores_the_first_signal_gets_the_last(shell: Place, nap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "TERM_SECONDS", 0.2)
    command = f"trap '' TERM; echo ready; sh -c \"trap '' TERM; {nap} | {nap}\" | cat"
    answer = await shell.call("shell", command=command, timeout_seconds=0.3)
    assert answer["stopped"] == "timeout"
    assert not running(nap)


async def test_a_command_can_clean_up_when_it_has_to_end(shell: Place, nap: str) -> None:
    # Not at once: the last signal has to wait for it.
    answer = await shell.call("shell", command=f"trap 'sleep 0.2; echo cleaned > trace; exit' TERM; {nap} & wait", timeout_seconds=0.4)
    assert answer["stopped"] == "timeout"
    assert (shell.root / "trace").read_text() == "cleaned\n"


async def test_what_a_command_leaves_in_the_background_ends_with_it(shell: Place, nap: str) -> None:
    answer = await shell.call("shell", command=f"setsid {nap} & ({nap} &) ; nohup {nap} >/dev/null 2>&1 & echo done")
    assert (answer["exit_code"], answer["stopped"]) == (0, None)
    assert answer["output"] == "done\n"
    assert not running(nap)


async def test_cancelling_ends_the_command_before_the_tool_has_ended(shell: Place, nap: str) -> None:
    tool = shell.tools["shell"]
    started = tool.start(context(), tool.check({"command": f"touch began; {nap} & setsid {nap} & wait; touch late"}))
    await until(lambda: (shell.root / "began").exists() and len(running(nap)) >= 2)
    started.cancel()
    started.cancel()
    with pytest.raises(ToolCancelled):
        await started.wait()
    assert not running(nap)
    assert not (shell.root / "late").exists()


async def test_cancelling_at_any_moment_of_the_start_leaves_nothing(shell: Place, nap: str) -> None:
    tool = shell.tools["shell"]
    for turns in (0, 1, 2, 3, 5, 8, 13, 21):
        started = tool.start(context(), tool.check({"command": nap}))
        for _ in range(turns):
            await asyncio.sleep(0)
        started.cancel()
        with pytest.raises(ToolCancelled):
            await started.wait()
        assert not running(nap), turns


PROGRAM = """
import asyncio, sys
from perdure.tools import ToolContext
from perdure.tools.workspace import workspace_tools
tool = workspace_tools(sys.argv[1], sandbox=sys.argv[2])[-1]
context = ToolContext(session_id="s", turn="t", operation="o", attempt=1, call="c", idempotency_key="k")
asyncio.run(tool.call(context, tool.check({"command": sys.argv[3]})))
"""


async def test_killing_the_process_that_runs_the_agent_ends_its_commands(shell: Place, nap: str) -> None:
    mode = "required" if "NOT confined" not in shell.tools["shell"].description else "off"
    command = f"{nap} & setsid {nap} & wait"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(shell.root), mode, command])
    try:
        # The program's own command line holds these words too, and the shell's and the supervisor's.
        await until(lambda: len([pid for pid in running(nap) if is_sleep(pid)]) == 2, 30)
    finally:
        process.kill()
        process.wait()
    await until(lambda: not running(nap))


def is_sleep(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read() == "sleep\n"
    except OSError:
        return False


async def test_a_supervisor_that_is_killed_makes_the_outcome_unknown(confined: Place, nap: str) -> None:
    tool = confined.tools["shell"]
    started = tool.start(context(), tool.check({"command": f"{nap}; true"}))
    await until(lambda: any(is_sleep(pid) for pid in running(nap)))
    for pid in set(running("--json-status-fd")) & set(running(nap)):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(CommandLost):
        await started.wait()
    await until(lambda: not running(nap))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"command": ""}, "1 to"),
        ({"command": " \n"}, "1 to"),
        ({"command": "echo a\0b"}, "without NUL"),
        ({"command": "#" + "x" * 200_000}, "write longer scripts"),
        ({"command": "true", "timeout_seconds": 0}, "more than 0"),
        ({"command": "true", "timeout_seconds": 601}, "at most 600"),
    ],
)
async def test_commands_that_make_no_sense_are_refused_before_anything_runs(place: Place, arguments: dict[str, object], words: str) -> None:
    place.use(sandbox="off")
    with pytest.raises(ToolError, match=words):
        await place.call("shell", **arguments)


async def test_a_command_as_long_as_allowed_runs(shell: Place) -> None:
    text = "x" * 90_000
    assert (await shell.call("shell", command=f"printf %s {text} | wc -c"))["output"].strip() == "90000"


async def test_odd_characters_reach_the_command_as_they_are(shell: Place) -> None:
    text = "ü\n'\"$HOME`id`\\ 🙂 -n --"
    assert (await shell.call("shell", command=f"printf %s {shlex.quote(text)}"))["output"] == text


async def test_what_could_not_be_started_is_a_certain_failure(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.use(sandbox="off")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/nonexistent/python")
        with pytest.raises(ToolError, match="was not run"):
            await place.call("shell", command="touch f")
    monkeypatch.setattr("perdure.tools.workspace.shell_program", lambda: "/nonexistent/shell")
    with pytest.raises(ToolError, match=r"was not run: it could not be started: /nonexistent/shell: No such file"):
        await place.call("shell", command="touch f")
    assert not os.listdir(place.root)


async def test_several_commands_at_once_keep_their_output_apart(shell: Place) -> None:
    answers = await asyncio.gather(*(shell.call("shell", command=f"echo {number}; exit {number}") for number in range(6)))
    assert [(answer["output"], answer["exit_code"]) for answer in answers] == [(f"{number}\n", number) for number in range(6)]
