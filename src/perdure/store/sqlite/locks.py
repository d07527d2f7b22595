"""What processes on one machine tell each other by locks that the kernel drops when they die.

All of it is ``flock`` on files of their own, in the directory ``<store>-locks``: the database's own files are never opened here, because
closing a descriptor of them would drop the POSIX locks that SQLite holds.

Somebody may remove that directory under living processes. Then these locks say nothing for a while, and others do what they did: SQLite's
own keep writers apart, leases and fences keep holders apart. Whoever needs a lock next makes its file anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["LifeLocks", "Turnstile"]


def _open(path: Path | str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        Path(path).parent.mkdir(mode=0o700, exist_ok=True)
        return os.open(path, flags, 0o600)


def _is(descriptor: int, path: Path) -> bool:
    """Whether what is open is what others find under that name."""
    return _stands(path, os.fstat(descriptor))


def _stands(path: Path | str, made: os.stat_result) -> bool:
    try:
        return os.path.samestat(made, os.stat(path))
    except FileNotFoundError:
        return False


class Turnstile:
    """Lets one process at a time write, and each in its turn, however long that takes: ``waits`` is called before.

    A lock alone is not fair: who lets it go and takes it again at once mostly wins. So one waits for the lock while holding another,
    the turn, which whoever comes back needs first: somebody who waits is let in before.
    """

    def __init__(self, directory: Path, waits: Callable[[], None] = lambda: None) -> None:
        self._directory = directory
        self._waits = waits
        self.waiting = False
        # A text, since it is looked at with every write.
        self._path = str(directory / "write")
        self._turn, self._write, self._made = self._open()

    def _open(self) -> tuple[int, int, os.stat_result]:
        turn = _open(self._directory / "turn")
        try:
            write = _open(self._path)
        except BaseException:
            os.close(turn)
            raise
        return turn, write, os.fstat(write)

    def __enter__(self) -> None:
        self._take()
        if not _stands(self._path, self._made):
            # Where they can't be made anew, we go on with those that we have.
            with suppress(OSError):
                anew = self._open()
                self.close()
                self._turn, self._write, self._made = anew
                self._take()

    def _take(self) -> None:
        self._lock(self._turn)
        try:
            self._lock(self._write)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        self.waiting = True
        try:
            self._waits()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        finally:
            self.waiting = False

    def holder(self) -> int | None:
        """The process that writes now, where the kernel tells."""
        try:
            file = os.stat(self._path)
            with open("/proc/locks") as locks:
                for line in locks:
                    # 1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF; who waits has an arrow behind the number.
                    told = line.split()
                    if told[1] == "FLOCK" and told[5].rpartition(":")[2] == str(file.st_ino) and int(told[4]) > 0:
                        return int(told[4])
        except (OSError, ValueError, IndexError):
            pass
        return None

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
        """Lock a runner's file, again if it was removed meanwhile; false if another process holds it. Raises `OSError`."""
        path = self._path(runner)
        before = self._held.get(runner)
        if before is not None and _is(before, path):
            return True
        deadline = time.monotonic() + 0.25
        while (descriptor := self._lock(path)) is None:
            # Somebody who looks whether the runner lives holds the lock for an instant, so one refusal proves nothing.
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        self._held[runner] = descriptor
        if before is not None:
            os.close(before)
        return True

    def _lock(self, path: Path) -> int | None:
        """The file, locked by us and by nobody before; one that isn't there is locked before it can be seen."""
        draft = path.with_name(f"draft-{secrets.token_hex(8)}")
        descriptor = _open(draft if not path.exists() else path)
        try:
            if self._take(descriptor, fcntl.LOCK_EX):
                if _is(descriptor, draft):
                    with suppress(FileExistsError):
                        os.link(draft, path)
                # Between opening and locking, a sweep may have removed the file.
                if _is(descriptor, path):
                    kept, descriptor = descriptor, -1
                    return kept
            return None
        finally:
            draft.unlink(missing_ok=True)
            if descriptor >= 0:
                os.close(descriptor)

    def ended(self, runner: str) -> bool:
        """Whether the runner's process has certainly ended: nobody locks its file. A file that is not there says nothing."""
        if runner in self._held:
            return False
        try:
            descriptor = os.open(self._path(runner), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two who look at once don't take each other for the runner.
            return self._take(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def drop(self, runner: str) -> None:
        """End a runner of this process; another's is left alone."""
        descriptor = self._held.pop(runner, None)
        if descriptor is not None:
            self._path(runner).unlink(missing_ok=True)
            os.close(descriptor)

    def sweep(self, keep: Iterable[str]) -> None:
        """Remove what ended runners left, but for those of ``keep``: the file is what says that they have ended."""
        kept = {self._path(runner) for runner in keep}
        for path in (*self._directory.glob("runner-*"), *self._directory.glob("draft-*")):
            if path in kept:
                continue
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if self._take(descriptor, fcntl.LOCK_EX) and _is(descriptor, path):
                        path.unlink()
                finally:
                    os.close(descriptor)

    def close(self) -> None:
        """Give the descriptors back. The files stay, for others to see that their runners have ended.

        In a forked child this unlocks nothing, and the parent's runners don't outlive it.
        """
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
