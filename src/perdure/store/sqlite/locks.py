"""What processes on one machine tell each other by locks that the kernel drops when they die.

All of it is ``flock`` on files of their own, in the directory ``<store>-locks``: the database's own files are never opened here, because
closing a descriptor of them would drop the POSIX locks that SQLite holds.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["LifeLocks", "Turnstile"]


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Turnstile:
    """Lets one process at a time write, and each in its turn.

    A lock alone is not fair: who lets it go and takes it again at once mostly wins. So one waits for the lock while holding another,
    the turn, which whoever comes back needs first: somebody who waits is let in before.
    """

    def __init__(self, directory: Path) -> None:
        self._turn = _open(directory / "turn")
        try:
            self._write = _open(directory / "write")
        except BaseException:
            os.close(self._turn)
            raise

    def __enter__(self) -> None:
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._write, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._write, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the files. In a forked child this leaves the parent's locks alone: only the last descriptor ends a lock."""
        for descriptor in (self._turn, self._write):
            with suppress(OSError):
                os.close(descriptor)


class LifeLocks:
    """One locked file per runner of this process, held until it ends, so that a killed process is noticed at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, int] = {}

    def hold(self, runner: str) -> bool:
        """Lock a runner's file; false if another process holds it."""
        if runner in self._held:
            return True
        path = self._path(runner)
        deadline = time.monotonic() + 0.25
        while True:
            descriptor = _open(path)
            # Somebody who looks whether the runner lives holds the lock for an instant, so one refusal proves nothing.
            if self._take(descriptor, fcntl.LOCK_EX):
                if self._is(descriptor, path):
                    self._held[runner] = descriptor
                    return True
            elif time.monotonic() > deadline:
                os.close(descriptor)
                return False
            else:
                time.sleep(0.001)
            os.close(descriptor)

    def alive(self, runner: str) -> bool:
        """Whether the runner's process lives."""
        if runner in self._held:
            return True
        try:
            descriptor = os.open(self._path(runner), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two who look at once don't take each other for the runner.
            return not self._take(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def drop(self, runner: str) -> None:
        """End a runner of this process; another's is left alone."""
        descriptor = self._held.pop(runner, None)
        if descriptor is not None:
            self._path(runner).unlink(missing_ok=True)
            os.close(descriptor)

    def sweep(self) -> None:
        """Remove what dead runners left."""
        for path in self._directory.glob("runner-*"):
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if self._take(descriptor, fcntl.LOCK_EX) and self._is(descriptor, path):
                        path.unlink()
                finally:
                    os.close(descriptor)

    def close(self) -> None:
        for runner in list(self._held):
            self.drop(runner)

    def forget(self) -> None:
        """In a forked child: give the descriptors back without unlocking anything, or the parent's runners would outlive it."""
        for descriptor in self._held.values():
            with suppress(OSError):
                os.close(descriptor)
        self._held.clear()

    def _path(self, runner: str) -> Path:
        return self._directory / f"runner-{hashlib.sha256(runner.encode()).hexdigest()[:32]}"

    @staticmethod
    def _take(descriptor: int, kind: int) -> bool:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @staticmethod
    def _is(descriptor: int, path: Path) -> bool:
        # Between opening and locking, a sweep may have removed the file: then the lock is on a file that nobody else will find.
        try:
            return os.path.samestat(os.fstat(descriptor), path.stat())
        except FileNotFoundError:
            return False
