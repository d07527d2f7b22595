"""The copy of a session's memory in a directory: whole or not there, and never outside of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from stat import S_IMODE, S_ISREG

__all__ = ["FILE", "MemoryFile", "scope_of"]

FILE = "session_memory.json"

NAME_LIMIT = 100
"""The longest readable part of a directory's name."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = rf"[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,{NAME_LIMIT - 2}}}[A-Za-z0-9])?"
_MARKED = r".*-[0-9a-f]{16}"
_TEMPORARY = r"\.session_memory-[0-9a-f]{16}\.tmp"


def scope_of(session_id: str) -> str:
    """The name of a session's directory, another one for every session.

    An id of ASCII letters, digits, and ``.``, ``_`` and ``-`` between them is its own name. Of another one each other character becomes
    ``_``, and a digest of the id follows, so that ``a/b`` and ``a_b`` don't meet.
    """
    if re.fullmatch(_PLAIN, session_id) and not re.fullmatch(_MARKED, session_id):
        return session_id
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", session_id)[:NAME_LIMIT].strip("._-")
    return f"{readable or 'session'}-{hashlib.sha256(session_id.encode()).hexdigest()[:16]}"


class MemoryFile:
    """One session's file. ``written``: this process wrote it. Its methods raise `OSError`."""

    def __init__(self, workspace: str | os.PathLike[str], storage: str, session_id: str) -> None:
        self.workspace = os.path.abspath(os.fspath(workspace))
        self.path = os.path.join(self.workspace, storage, scope_of(session_id), FILE)
        self.written = False
        self._steps = (*(step for step in storage.split("/") if step not in ("", ".")), scope_of(session_id))

    def write(self, data: bytes) -> None:
        """Put the content there, at once and durably; a file that holds it is left as it is. No link is followed below the workspace."""
        with self._directory() as directory:
            if not _holds(directory, data):
                _replace(directory, data)
        self.written = True

    def remove(self) -> bool:
        """Remove the file, and the session's directory if nothing else is in it. No link is followed. False: there was none."""
        try:
            with self._directory(make=False) as directory:
                _clear(directory)
                os.unlink(FILE, dir_fd=directory)
                os.fsync(directory)
                with contextlib.suppress(OSError):
                    os.rmdir(f"../{self._steps[-1]}", dir_fd=directory)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def _directory(self, *, make: bool = True) -> Iterator[int]:
        opened = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for step in self._steps:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(step, 0o700, dir_fd=opened)
                inner = os.open(step, _DIRECTORY, dir_fd=opened)
                os.close(opened)
                opened = inner
            yield opened
        finally:
            os.close(opened)


def _holds(directory: int, data: bytes) -> bool:
    try:
        descriptor = os.open(FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not S_ISREG(status.st_mode) or S_IMODE(status.st_mode) != 0o600 or status.st_size != len(data):
            return False
        return file.read() == data


def _clear(directory: int) -> None:
    for name in os.listdir(directory):
        if re.fullmatch(_TEMPORARY, name):
            # Whoever wrote it died, or was taken the session away from: what it wrote is not wanted any more.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)


def _replace(directory: int, data: bytes) -> None:
    _clear(directory)
    temporary = f".session_memory-{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, FILE, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
