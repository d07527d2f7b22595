"""Commands in processes of their own that begin as copies of one that has imported everything already.

What a new interpreter does in its first half second is the same every time, and hundreds of commands begin here. A copy differs from a
program that was started in nothing that these tests look at; where it might (how Python itself is set up), they start one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import IO

__all__ = ["Copies", "Copy"]

_SOURCE = """
import gc, importlib, json, os, pkgutil, signal, socket, sys

import perdure.cli, perdure.store.blobs, perdure.store.outside, perdure.store.sqlite

for module in pkgutil.iter_modules(perdure.cli.__path__):
    importlib.import_module(f"perdure.cli.{module.name}")
# A copy that looks at every object for garbage takes every page for itself.
gc.collect()
gc.freeze()


def begin(asked, files):
    # In between stands one that waits, since only a parent learns how its child ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, told = files
    if pid := os.fork():
        os.write(told, f"{pid}\\n".encode())
        for file in streams:
            os.close(file)
        _, status = os.waitpid(pid, 0)
        os.write(told, f"{os.waitstatus_to_exitcode(status)}\\n".encode())
        os._exit(0)
    for number, file in enumerate(streams):
        os.dup2(file, number)
    os.closerange(3, 256)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["-c", *asked["arguments"]]
    here = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[1:1] = [path for path in here if path not in sys.path]
    importlib.invalidate_caches()


def wait(line):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, _, _ = socket.recv_fds(line, 1 << 20, 4)
        if not message:
            sys.exit()
        if os.fork() == 0:
            line.close()
            return begin(json.loads(message), files)
        for file in files:
            os.close(file)


wait(socket.socket(fileno=int(sys.argv[1])))
sys.exit(perdure.cli.main())
"""


class Copy:
    """One command, used as a `subprocess.Popen` is."""

    def __init__(self, told: int, stdout: int, stderr: int) -> None:
        self._told = os.fdopen(told, "rb", buffering=0)
        self.stdout: IO[str] = os.fdopen(stdout, "r")
        self.stderr: IO[str] = os.fdopen(stderr, "r")
        self.returncode: int | None = None
        self.pid = int(self._line())

    def _line(self) -> bytes:
        found = b""
        while not found.endswith(b"\n"):
            more = self._told.read(1)
            assert more, "whoever began this command is gone"
            found += more
        return found

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = int(self._line())
            self._told.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(["perdure"], timeout or 0)
            self.poll()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that it prints, until its end."""
        said: dict[str, str] = {}

        def read(name: str, stream: IO[str]) -> None:
            said[name] = stream.read()

        readers = [
            threading.Thread(target=read, args=(name, stream), daemon=True) for name, stream in (("out", self.stdout), ("err", self.stderr))
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(["perdure"], timeout or 0)
        self.stdout.close()
        self.stderr.close()
        self.wait(timeout)
        return said["out"], said["err"]

    def send_signal(self, number: int) -> None:
        """As `subprocess.Popen.send_signal`."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as nothing else does."""
        self.send_signal(signal.SIGKILL)


class Copies:
    """The process that is copied."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SOURCE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def begin(self, arguments: tuple[str, ...], directory: str, environment: dict[str, str]) -> Copy:
        """Begin a command."""
        out, err, told = os.pipe(), os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        theirs = [nothing, out[1], err[1], told[1]]
        asked = json.dumps({"arguments": arguments, "directory": directory, "environment": environment})
        try:
            socket.send_fds(self._line, [asked.encode()], theirs)
        finally:
            for file in theirs:
                os.close(file)
        return Copy(told[0], out[0], err[0])

    def end(self) -> None:
        """No more of them."""
        self._line.close()
        self._process.wait()
