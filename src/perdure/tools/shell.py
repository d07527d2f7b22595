"""Running one command: with limits on its time and output, in a clean environment, and nothing of it left when it is over.

A command runs below a supervisor, a small program of ours that is told of every process below it that loses its parent. When the command
ends, the supervisor kills whatever is left; when the command has to end, all its processes get SIGTERM, then SIGKILL; when this process is
killed, the supervisor kills them too. It ends last, so `run_command` returns when nothing of the command can change the workspace any more.

bubblewrap alone doesn't do: killed while it starts, it leaves a child that runs the command with nobody to end it.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .sandbox import Sandbox

__all__ = ["CommandLost", "Finished", "NotStarted", "clean_environment", "run_command", "shell_program"]

FLOOD_LIMIT = 64 * 1024 * 1024
"""Bytes of output after which a command is stopped: reading and dropping more would cost this process its time."""

TERM_SECONDS = 1.5
"""How long a command has between SIGTERM and SIGKILL."""

_KILL_SECONDS = 2.0
"""How long the kernel has to end what was killed. With the above less than what a cancelled tool is given."""

_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""All that a command gets of our environment. Keys, tokens, proxies with passwords and agents' sockets are in the rest."""

_CHUNK = 64 * 1024

_log = logging.getLogger("perdure.tools")

_SUPERVISOR = r"""
import ctypes, json, os, signal, sys

def stop(*_):
    raise SystemExit

def children():
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                        yield int(entry)
            except (OSError, IndexError):
                pass

status, parent, reports, line = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "reports", sys.argv[4:]
# bubblewrap reports by itself, and knows better whether the command was started.
os.set_inheritable(status, not reports)
signal.signal(signal.SIGTERM, stop)
code = None
try:
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans become our children, wherever they went
    prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        raise SystemExit
    defaults = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM]
    try:
        child = os.posix_spawn(line[0], line, os.environ, setsid=True, setsigdef=defaults)
    except OSError as error:
        sys.exit(f"{line[0]}: {error.strerror}")
    while code is None:
        ended, how = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(how)
finally:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        for pid in children():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            os.wait()
        except ChildProcessError:
            break
    if reports and code is not None:
        os.write(status, json.dumps({"exit-code": code if code >= 0 else 128 - code}).encode())
"""


class NotStarted(Exception):
    """The command never ran, for certain."""


class CommandLost(Exception):
    """The command ran, and nobody knows how it ended, or whether it has."""


@dataclass(frozen=True)
class Finished:
    """How a command ended. ``stopped`` is "timeout" or "output" if we ended it; then there is no exit code."""

    exit_code: int | None
    output: str
    output_bytes: int
    truncated: bool
    stopped: str | None
    seconds: float


def shell_program() -> str:
    """The shell that runs commands: bash, because that is what models write, or what there is."""
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")


def clean_environment(added: Mapping[str, str]) -> dict[str, str]:
    """What a command gets as its environment, and nothing else."""
    # No terminal is there to page, colour or ask on.
    fixed = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **passed, **fixed, **added}


async def run_command(
    arguments: list[str],
    *,
    directory: str,
    sandbox: Sandbox | None,
    environment: Mapping[str, str],
    seconds: float,
    output_limit: int,
) -> Finished:
    """Run a command to its end or its limits. Output and error output come together, in order; of too much, both ends are kept.

    Cancelling it ends the command: when the cancellation is passed on, nothing of it runs any more. Raises `NotStarted`, `CommandLost`.
    """
    stop = asyncio.Event()
    command = _Command(arguments, directory, sandbox, environment, seconds, output_limit, stop)
    # A task of its own, which nobody cancels in the middle of starting or killing.
    running = asyncio.create_task(command.run(), name="perdure command")
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            _log.warning("a command was cancelled: %s", error)
        raise


class _Command:
    def __init__(
        self,
        arguments: list[str],
        directory: str,
        sandbox: Sandbox | None,
        environment: Mapping[str, str],
        seconds: float,
        output_limit: int,
        stop: asyncio.Event,
    ) -> None:
        self._arguments = arguments
        self._directory = directory
        self._sandbox = sandbox
        self._environment = environment
        self._seconds = seconds
        self._stop = stop
        self._kept = _Kept(output_limit)

    async def run(self) -> Finished:
        began = time.monotonic()
        reading, writing = os.pipe()
        try:
            try:
                process = await self._start(writing)
            finally:
                os.close(writing)
            try:
                stopped = await self._finish(process)
            finally:
                # Only if this very task is cancelled, by the end of its loop, is there anything left to kill.
                if process.returncode is None:
                    _terminate(process)
            exit_code = _exit_code(reading)
            return self._finished(process, exit_code, stopped, time.monotonic() - began)
        finally:
            os.close(reading)

    async def _start(self, status: int) -> asyncio.subprocess.Process:
        line = self._arguments
        if self._sandbox is not None:
            line = await asyncio.to_thread(self._sandbox.command, line, status=status)
        who = "reports" if self._sandbox is None else "is silent"
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _SUPERVISOR, str(status), str(os.getpid()), who, *line),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=self._directory,
                env=dict(self._environment),
                pass_fds=(status,),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotStarted(f"it could not be started: {error}") from None

    async def _finish(self, process: asyncio.subprocess.Process) -> str | None:
        flooded = asyncio.Event()
        draining = asyncio.create_task(self._drain(process, flooded))
        ending = asyncio.create_task(process.wait())
        flood, stop = asyncio.create_task(flooded.wait()), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([ending, flood, stop], timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            stopped = None
            if not ending.done():
                stopped = "interrupted" if stop.done() else "output" if flood.done() else "timeout"
                await self._end(process, ending)
            await asyncio.wait([draining], timeout=_KILL_SECONDS)
            if not (draining.done() and ending.done()):
                raise CommandLost("the command was killed, and the system did not confirm its end")
            return stopped
        finally:
            for task in (draining, ending, flood, stop):
                task.cancel()

    async def _drain(self, process: asyncio.subprocess.Process, flooded: asyncio.Event) -> None:
        assert process.stdout is not None
        while chunk := await process.stdout.read(_CHUNK):
            self._kept.add(chunk)
            if self._kept.total > FLOOD_LIMIT:
                flooded.set()

    async def _end(self, process: asyncio.subprocess.Process, ending: asyncio.Task[int]) -> None:
        # Not bubblewrap and the first process of its namespace, which would end everything at once.
        below = _descendants(process.pid, besides=0 if self._sandbox is None else 2)
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
        # With nobody to wait for, the command has not begun.
        if below:
            await asyncio.wait([ending], timeout=TERM_SECONDS)
        if not ending.done():
            _terminate(process)
            await asyncio.wait([ending], timeout=_KILL_SECONDS)

    def _finished(self, process: asyncio.subprocess.Process, exit_code: int | None, stopped: str | None, seconds: float) -> Finished:
        output, truncated = self._kept.text()
        if stopped is not None:
            exit_code = None
        elif exit_code is None:
            if process.returncode is not None and process.returncode < 0:
                raise CommandLost(f"what watched over the command was killed by signal {-process.returncode}")
            raise NotStarted(f"it could not be started: {output.strip()[-1000:] or 'no reason was given'}")
        return Finished(exit_code, output, self._kept.total, truncated, stopped, round(seconds, 3))


def _terminate(process: asyncio.subprocess.Process) -> None:
    """Make the supervisor kill all others, and end when they are gone."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


def _exit_code(reading: int) -> int | None:
    """What the reports say, once nobody is left who could write any."""
    data = b""
    os.set_blocking(reading, False)
    with contextlib.suppress(BlockingIOError):
        while part := os.read(reading, 4096):
            data += part
    code: int | None = None
    # bubblewrap writes one JSON object a line, about several things.
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            code = json.loads(line).get("exit-code", code)
    return code


class _Kept:
    """The beginning and the end of an output, in bounded memory."""

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._half = max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        # Now and then, not each time: moving the bytes is what costs.
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> tuple[str, bool]:
        """The output as text, and whether something is missing. Bytes that are no UTF-8 are shown as �."""
        tail = self._tail[-self._half :]
        missing = self.total - len(self._head) - len(tail)
        if missing <= 0:
            return (self._head + tail).decode("utf-8", "replace"), False
        # A character that the cut goes through is left out, rather than shown as two that aren't there.
        begin = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        while tail and len(tail) > self._half - 4 and tail[0] & 0xC0 == 0x80:
            del tail[0]
        return f"{begin}\n… {missing:,} bytes left out …\n{tail.decode('utf-8', 'replace')}", True


def _descendants(root: int, *, besides: int = 0) -> list[int]:
    """All processes below one, by what /proc says now; without as many generations as ``besides``."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                # The name in parentheses may hold anything, parentheses too.
                parents.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(entry))
    found: list[int] = []
    generation = [root]
    while generation := [child for pid in generation for child in parents.get(pid, ())]:
        if besides > 0:
            besides -= 1
        else:
            found += generation
    return found
