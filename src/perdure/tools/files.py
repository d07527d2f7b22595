"""Files below one directory, and never beside it: resolving, reading, replacing, walking and searching.

Nothing here checks a path and then uses it. A path is walked component by component from an open directory, each opened with
``O_NOFOLLOW`` relative to the one before, and what is read or replaced is what was opened; a symlink is read and walked the same way.
So it makes no difference what somebody changes in the tree meanwhile.

The standard library alone, and no import of ours: this file is also the program that searches (see `main`), which has to start fast and
to be killed when an expression never ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import resource
import secrets
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["Content", "FileRefused", "Glob", "OutcomeUnknown", "StopWalk", "Traces", "Tree", "Walked", "main", "shown", "version_of"]

FILE_LIMIT = 32 * 1024 * 1024
"""The largest file that is read, searched or edited (bytes)."""

WALK_LIMIT = 200_000
"""How many directory entries one walk looks at."""

_LINKS_LIMIT = 40
"""Symlinks in one path, as in the kernel."""

_DEPTH_LIMIT = 256
"""Directories in one path: each is open while the path is walked."""

_LOCK_SECONDS = 10.0
"""How long a change waits for another one in the same tree."""

_MARK = "user.perdure.operation"
_NO_MARKS = (errno.ENOTSUP, errno.ENOSYS, errno.EPERM)
_TEMPORARY = re.compile(r"\.perdure-[0-9a-f]{12}-[0-9a-f]{8}\.tmp")
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO that appeared since the look at its type must not keep us waiting for a writer.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileRefused(Exception):
    """It was not done, for certain; the message is for the model."""


class OutcomeUnknown(Exception):
    """A change failed after the moment from which it can be seen: it may be lost at the next power failure."""


def version_of(data: bytes) -> str:
    """What a file's content is known by: enough of its SHA-256 to notice a change, short enough to be repeated by a model."""
    return hashlib.sha256(data).hexdigest()[:16]


def shown(path: str) -> str:
    """A path as a line of text: quoted if it holds what would break the line, bytes that are no UTF-8 written as escapes."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True)
class Content:
    """A regular file as it was at one moment."""

    data: bytes = field(repr=False)
    status: os.stat_result

    @property
    def version(self) -> str:
        """The `version_of` the data."""
        return version_of(self.data)


@dataclass(frozen=True)
class Traces:
    """What an earlier change under some key left behind.

    ``note`` is what it noted on the file that it put in place, so it took effect; ``unfinished`` that it did not get that far.
    ``marks`` says whether this file system can hold such notes; where it can, a missing one means something.
    """

    content: Content | None
    note: str | None
    unfinished: bool
    marks: bool


@dataclass(frozen=True)
class Walked:
    """One thing that a walk met. ``directory`` is open while the walk stands here."""

    path: str
    name: str
    kind: str
    directory: int


Change = Callable[[Content | None], tuple[bytes, str] | None]


class Tree:
    """The files below a directory. Its methods raise `FileRefused` with a message for the model, and `OutcomeUnknown`."""

    def __init__(self, root: str, *, given: str = "", descriptor: int | None = None) -> None:
        self.root = root
        self.given = given
        self._prefixes = tuple(dict.fromkeys(prefix.rstrip("/") for prefix in (root, given) if prefix))
        self._descriptor = descriptor
        self._identity = None if descriptor is not None else _identity(os.stat(root))

    def open(self) -> int:
        """The directory itself, opened anew. The caller closes it."""
        if self._descriptor is not None:
            return os.open(".", _OPEN_DIRECTORY, dir_fd=self._descriptor)
        try:
            opened = os.open(self.root, _OPEN_DIRECTORY)
        except OSError as error:
            raise FileRefused(f"the workspace can't be opened: {error.strerror}") from None
        if _identity(os.fstat(opened)) != self._identity:
            # Whoever may write beside the workspace could else put another directory, or a link to one, in its place.
            os.close(opened)
            raise FileRefused("the workspace was replaced by another directory since its tools were made")
        return opened

    # Reading

    def read(self, path: str) -> Content:
        """A regular file, whole."""
        with self._told(path), self._place(path) as (directory, name):
            return read_at(directory, name)

    def walk(self, start: str, glob: Glob, deadline: float) -> Iterator[Walked]:
        """Everything below ``start`` whose path from there the glob fits, sorted in each directory; symlinks are met and not entered.

        Raises `StopWalk` where it looked at too much, or for too long.
        """
        with self._told(start):
            with self._place(start) as (directory, name):
                top = _open_directory(name, directory)
            try:
                yield from _walk(top, _components(self._relative(start)), glob, glob.start(), deadline, [WALK_LIMIT])
            finally:
                os.close(top)

    def is_directory(self, path: str) -> bool:
        """Whether the path leads to a directory."""
        with self._told(path), self._place(path) as (directory, name):
            return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)

    # Changing

    def update(self, path: str, key: str, change: Change, *, create: bool = False) -> str:
        """Replace a file by what ``change`` makes of it, as one step that others see whole or not at all; durable when this returns.

        ``change`` gets the file, or None if there is none, and returns the new data and a note, or None to leave the file as it is
        (then the note is empty). The note is returned. A change that already took effect under the same key isn't made again.
        ``create`` makes missing directories first.
        """
        with self._told(path), self._locked() as root, self._place(path, root=root, create=create) as (directory, name):
            present = _current(directory, name)
            if present is not None:
                done = _note(directory, name, key)
                if done is not None:
                    return done
            changed = change(present)
            if changed is None:
                return ""
            data, note = changed
            if len(data) > FILE_LIMIT:
                raise FileRefused(f"it would have {len(data):,} bytes; at most {FILE_LIMIT:,} are written")
            _replace(directory, name, data, present, key, note)
            return note

    def traces(self, path: str, key: str) -> Traces:
        """What an earlier `update` under this key left behind. Waits for one that is still going on."""
        with self._told(path), self._locked() as root, self._place(path, root=root) as (directory, name):
            unfinished = bool(_temporaries(directory, key))
            content = _current(directory, name)
            if content is None:
                return Traces(None, None, unfinished, marks=False)
            mark, marks = _mark(directory, name)
            return Traces(content, _note_of(mark, key), unfinished, marks)

    # Resolving

    def _relative(self, path: str) -> str:
        if "\x00" in path:
            raise FileRefused("a path can't hold a NUL character")
        if not path.startswith("/"):
            return path
        for prefix in self._prefixes:
            if path == prefix or path.startswith(f"{prefix}/"):
                return path[len(prefix) + 1 :]
        raise FileRefused(f"{shown(path)} is outside the workspace")

    @contextlib.contextmanager
    def _place(self, path: str, *, root: int | None = None, create: bool = False) -> Iterator[tuple[int, str]]:
        """The open directory that holds what the path names, and its name there. The name was no symlink when we looked.

        ``..`` goes back to the directory that we came through, which stays open, and is refused at the root.
        """
        pending = deque(_components(self._relative(path)))
        # The top of the stack is where we are.
        stack = [self.open() if root is None else os.dup(root)]
        links = 0
        try:
            while pending:
                name = pending.popleft()
                if name == "..":
                    if len(stack) == 1:
                        raise FileRefused(f"{shown(path)} is outside the workspace")
                    os.close(stack.pop())
                    continue
                if not pending:
                    target = _link(name, stack[-1])
                    if target is None:
                        yield stack[-1], name
                        return
                else:
                    if len(stack) > _DEPTH_LIMIT:
                        raise FileRefused(f"{shown(path)} has more than {_DEPTH_LIMIT} directories")
                    entered = _enter(name, stack[-1], create=create)
                    if isinstance(entered, int):
                        stack.append(entered)
                        continue
                    target = entered
                links += 1
                if links > _LINKS_LIMIT:
                    raise FileRefused(f"{shown(path)} has too many symbolic links")
                if target.startswith("/"):
                    try:
                        target = self._relative(target)
                    except FileRefused:
                        raise FileRefused(f"{shown(path)} is a link to outside the workspace") from None
                    while len(stack) > 1:
                        os.close(stack.pop())
                pending.extendleft(reversed(_components(target)))
            yield stack[-1], "."
        finally:
            for opened in stack:
                os.close(opened)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The root, with a lock that keeps out every other change of this tree, by threads of this process and by other processes.

        Without it, two edits of one file could start from the same content, and the second would undo the first.
        """
        root = self.open()
        try:
            until = time.monotonic() + _LOCK_SECONDS
            pause = 0.001
            while True:
                try:
                    fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise FileRefused("another change of the workspace doesn't end; try again later") from None
                    time.sleep(pause)
                    pause = min(pause * 2, 0.02)
                except OSError:
                    break  # A file system without locks: the look directly before the rename is all there is.
            yield root
        finally:
            os.close(root)

    @contextlib.contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FileRefused(f"{shown(path)}: {error.strerror or type(error).__name__}") from None


class StopWalk(Exception):
    """A walk ended early; the message says why."""


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _link(name: str, directory: int) -> str | None:
    """Where a symlink leads, None if it is something else or nothing."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _enter(name: str, directory: int, *, create: bool) -> int | str:
    """The directory of that name, opened, or where the symlink of that name leads."""
    try:
        return os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        if not create:
            raise
    except OSError as error:
        # Linux says ENOTDIR for a symlink here, others ELOOP.
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        target = _link(name, directory)
        if target is None:
            raise FileRefused(f"{shown(name)} is not a directory") from None
        return target
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
    os.fsync(directory)
    return os.open(name, _OPEN_DIRECTORY, dir_fd=directory)


def _open_directory(name: str, directory: int) -> int:
    try:
        return os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
    except NotADirectoryError:
        raise FileRefused(f"{shown(name)} is not a directory") from None


def _regular(status: os.stat_result, name: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFLNK: "a symbolic link that was put there just now",
    }
    raise FileRefused(f"{shown(name)} is {kinds.get(stat.S_IFMT(status.st_mode), 'something else')}, not a file")


def read_at(directory: int, name: str) -> Content:
    """A regular file of an open directory. Raises `FileRefused` or `OSError`."""
    # Opening a device can do something, so its type is looked at first; what counts is the type of what was opened.
    _regular(os.stat(name, dir_fd=directory, follow_symlinks=False), name)
    opened = os.open(name, _OPEN_FILE, dir_fd=directory)
    try:
        status = os.fstat(opened)
        _regular(status, name)
        size, parts = status.st_size, []
        if size <= FILE_LIMIT:
            # To its end, not to its size: it may grow meanwhile, and some file systems say 0.
            size = 0
            while size <= FILE_LIMIT and (part := os.read(opened, min(max(status.st_size + 1 - size, 4096), 1 << 20))):
                parts.append(part)
                size += len(part)
        if size > FILE_LIMIT:
            raise FileRefused(f"{shown(name)} has {size:,} bytes or more; at most {FILE_LIMIT:,} are read")
        return Content(b"".join(parts), status)
    finally:
        os.close(opened)


def _current(directory: int, name: str) -> Content | None:
    try:
        return read_at(directory, name)
    except FileNotFoundError:
        return None


def _replace(directory: int, name: str, data: bytes, present: Content | None, key: str, note: str) -> None:
    for leftover in _temporaries(directory, key):
        # Of an attempt that was killed. If it lives on all the same, its rename now fails, which is what it deserves.
        os.unlink(leftover, dir_fd=directory)
    mode = 0o644 if present is None else stat.S_IMODE(present.status.st_mode) & 0o777
    temporary = f"{_temporary_prefix(key)}{secrets.token_hex(4)}.tmp"
    # Never readable by more people than the file itself; the umask applies to new files alone.
    create_mode = mode if present is None else mode & 0o600
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, create_mode, dir_fd=directory)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(opened, view) :]
            if present is not None:
                status = os.fstat(opened)
                if (status.st_uid, status.st_gid) != (present.status.st_uid, present.status.st_gid):
                    with contextlib.suppress(PermissionError):
                        os.fchown(opened, present.status.st_uid, present.status.st_gid)
                os.fchmod(opened, mode)
            _set_mark(opened, f"{key} {note}")
            os.fsync(opened)
        finally:
            os.close(opened)
        if _changed(directory, name, present):
            raise FileRefused(f"{shown(name)} was changed by somebody else just now; read it again")
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    try:
        os.fsync(directory)
    except OSError as error:
        raise OutcomeUnknown(f"{shown(name)} was written, but the disk did not confirm it: {error.strerror}") from None


def _changed(directory: int, name: str, present: Content | None) -> bool:
    try:
        now = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return present is not None
    if present is None:
        return True
    was = present.status
    return (*_identity(now), now.st_size, now.st_mtime_ns) != (*_identity(was), was.st_size, was.st_mtime_ns)


def _temporary_prefix(key: str) -> str:
    return f".perdure-{hashlib.sha256(key.encode()).hexdigest()[:12]}-"


def _temporaries(directory: int, key: str) -> list[str]:
    prefix = _temporary_prefix(key)
    return [name for name in os.listdir(directory) if name.startswith(prefix)]


def _set_mark(opened: int, mark: str) -> None:
    # It goes into place with the rename: the evidence that an operation happened is part of what happened.
    if hasattr(os, "setxattr"):
        try:
            os.setxattr(opened, _MARK, mark.encode())
        except OSError as error:
            # Anything else, a full disk above all, has to fail: where marks can be had, a missing one is evidence too.
            if error.errno not in _NO_MARKS:
                raise


def _mark(directory: int, name: str) -> tuple[str, bool]:
    if not hasattr(os, "getxattr"):
        return "", False
    opened = os.open(name, _OPEN_FILE, dir_fd=directory)
    try:
        return os.getxattr(opened, _MARK).decode("utf-8", "replace"), True
    except OSError as error:
        return "", error.errno == errno.ENODATA
    finally:
        os.close(opened)


def _note_of(mark: str, key: str) -> str | None:
    marked, _, note = mark.partition(" ")
    return note if marked == key and mark else None


def _note(directory: int, name: str, key: str) -> str | None:
    return _note_of(_mark(directory, name)[0], key)


def _walk(opened: int, inside: list[str], glob: Glob, states: frozenset[int], deadline: float, budget: list[int]) -> Iterator[Walked]:
    entries: list[tuple[str, str]] = []
    with os.scandir(opened) as scan:
        for entry in scan:
            if budget[0] <= 0:
                raise StopWalk(f"more than {WALK_LIMIT:,} files and directories")
            budget[0] -= 1
            if not _TEMPORARY.fullmatch(entry.name):
                entries.append((entry.name, _kind(entry)))
    for name, kind in sorted(entries):
        if time.monotonic() > deadline:
            raise StopWalk("time")
        after = glob.step(states, name)
        path = [*inside, name]
        if glob.accepts(after):
            yield Walked("/".join(path), name, kind, opened)
        # What Git keeps for itself is noise, unless somebody asks for it.
        if kind != "directory" or not glob.goes_on(after) or len(path) > _DEPTH_LIMIT or (name == ".git" and not glob.names(".git")):
            continue
        try:
            below = os.open(name, _OPEN_DIRECTORY, dir_fd=opened)
        except OSError:
            continue  # No right to enter, gone, or a symlink by now.
        try:
            yield from _walk(below, path, glob, after, deadline, budget)
        finally:
            os.close(below)


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_symlink():
            return "link"
        if entry.is_dir(follow_symlinks=False):
            return "directory"
        return "file" if entry.is_file(follow_symlinks=False) else "special"
    except OSError:
        return "special"


class Glob:
    """A path pattern: ``*``, ``?``, ``[a-z]``, ``{a,b}`` inside a component, ``**`` for any number of components.

    Matched by following all possibilities at once, component by component: it takes time in proportion to pattern and path, whatever the
    pattern, and knows which directories can be left out.
    """

    _ALTERNATIVES_LIMIT = 64

    def __init__(self, pattern: str) -> None:
        if len(pattern) > 1000:
            raise FileRefused("the pattern is longer than 1,000 characters")
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise FileRefused("a pattern starts at the given directory and can't leave it; use path= for the directory")
        self._literal = frozenset(_components(pattern))
        # All alternatives in one list of components; a None ends each.
        self._parts: list[list[_Token] | str | None] = []
        self._starts: list[int] = []
        for alternative in _braces(pattern, self._ALTERNATIVES_LIMIT):
            self._starts.append(len(self._parts))
            for component in _components(alternative):
                self._parts.append("**" if component == "**" else _tokens(component))
            self._parts.append(None)

    def names(self, component: str) -> bool:
        """Whether the pattern spells this component out."""
        return component in self._literal

    def start(self) -> frozenset[int]:
        """The states before the first component."""
        return self._closed(self._starts)

    def step(self, states: frozenset[int], name: str) -> frozenset[int]:
        """The states after one more component."""
        after: list[int] = []
        for state in states:
            part = self._parts[state]
            if part == "**":
                after.append(state)
            elif part is not None and not isinstance(part, str) and _fits(part, name):
                after.append(state + 1)
        return self._closed(after)

    def accepts(self, states: frozenset[int]) -> bool:
        """Whether the path so far fits."""
        return any(self._parts[state] is None for state in states)

    def goes_on(self, states: frozenset[int]) -> bool:
        """Whether a longer path could fit."""
        return any(self._parts[state] is not None for state in states)

    def _closed(self, states: list[int]) -> frozenset[int]:
        closed: set[int] = set()
        for state in states:
            closed.add(state)
            while self._parts[state] == "**":
                state += 1
                closed.add(state)
        return frozenset(closed)


@dataclass(frozen=True)
class _Class:
    """``[a-z]``, ``[!a-z]``, and ``?`` as the negation of nothing."""

    negated: bool
    ranges: tuple[tuple[str, str], ...]

    def fits(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) != self.negated


_Token = str | _Class | None
"""One character, a class of characters, or None for ``*``."""


def _tokens(component: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    while place < len(component):
        character = component[place]
        place += 1
        if character == "*":
            if not tokens or tokens[-1] is not None:
                tokens.append(None)
        elif character == "?":
            tokens.append(_Class(negated=True, ranges=()))
        elif character == "[" and (end := component.find("]", place + 2 if component[place : place + 1] == "!" else place + 1)) > 0:
            body = component[place:end]
            ranges = re.findall(r"(.)-(.)|(.)", body.removeprefix("!"), re.DOTALL)
            tokens.append(_Class(body.startswith("!"), tuple((low or one, high or one) for low, high, one in ranges)))
            place = end + 1
        else:
            tokens.append(character)
    return tokens


def _fits(tokens: list[_Token], name: str) -> bool:
    # Going back to the last star is enough: an earlier one could only have taken more.
    token = place = 0
    star, resume = -1, 0
    while place < len(name):
        here = tokens[token] if token < len(tokens) else ""
        if here is None:
            star, resume = token, place
            token += 1
        elif here.fits(name[place]) if isinstance(here, _Class) else here == name[place]:
            token += 1
            place += 1
        elif star >= 0:
            resume += 1
            token, place = star + 1, resume
        else:
            return False
    return all(rest is None for rest in tokens[token:])


def _braces(pattern: str, limit: int) -> list[str]:
    found: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        inner = re.search(r"\{([^{}]*,[^{}]*)\}", text)
        if inner is None:
            found.append(text)
            continue
        waiting.extend(text[: inner.start()] + choice + text[inner.end() :] for choice in inner[1].split(","))
        if len(found) + len(waiting) > limit:
            raise FileRefused(f"the pattern has more than {limit} alternatives")
    return found


# The program that searches

EXCERPT = 300
"""Characters of a line that are shown."""


def main() -> None:
    """Search: the request is one JSON object on stdin, the answer JSON lines on stdout, flushed one by one.

    A process of its own because Python's ``re`` can take exponential time, holds the interpreter's lock meanwhile and can't be
    interrupted: in a thread, one unlucky expression would stop every session of the process. Whoever started it kills it.
    """
    request = json.loads(sys.stdin.buffer.read())
    seconds = request["seconds"]
    # Should whoever started it be killed, nobody else would end an endless match.
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 2, int(seconds) + 3))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    try:
        tell(_search(request, time.monotonic() + seconds))
    except (re.error, OverflowError, RecursionError) as error:
        tell({"error": f"the expression is not valid: {error}"})
    except FileRefused as error:
        tell({"error": str(error)})
    except MemoryError:
        tell({"error": "the search needs too much memory"})


def tell(answer: dict[str, object]) -> None:
    """One line of the answer."""
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


def _search(request: dict[str, object], deadline: float) -> dict[str, object]:
    descriptor, limit = request["descriptor"], request["limit"]
    root, given, start = str(request["root"]), str(request["given"]), str(request["path"])
    assert isinstance(descriptor, int)
    assert isinstance(limit, int)
    expression = re.compile(str(request["expression"]), re.IGNORECASE if request["ignore_case"] else 0)
    tree = Tree(root, given=given, descriptor=descriptor)
    searched = skipped = found = 0
    stopped = ""
    try:
        for name, content in _contents(tree, start, str(request["glob"]), deadline):
            if content is None or b"\x00" in content.data[:8192]:
                skipped += 1
                continue
            searched += 1
            for number, line in enumerate(io.BytesIO(content.data), start=1):
                text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
                match = expression.search(text)
                if match is None:
                    continue
                if found == limit:
                    raise StopWalk("limit")
                found += 1
                tell({"match": f"{shown(name)}:{number}: {_excerpt(text, match)}"})
            if time.monotonic() > deadline:
                raise StopWalk("time")
    except StopWalk as stop:
        stopped = str(stop)
    return {"searched": searched, "skipped": skipped, "stopped": stopped}


def _contents(tree: Tree, start: str, glob: str, deadline: float) -> Iterator[tuple[str, Content | None]]:
    pattern = Glob(glob if "/" in glob or glob == "**" else f"**/{glob}")
    if not tree.is_directory(start):
        yield start, tree.read(start)
        return
    for item in tree.walk(start, pattern, deadline):
        if item.kind != "file":
            continue
        try:
            yield item.path, read_at(item.directory, item.name)
        except (FileRefused, OSError):
            yield item.path, None


def _excerpt(text: str, match: re.Match[str]) -> str:
    if len(text) <= EXCERPT:
        return text
    begin = max(0, min(match.start() - EXCERPT // 4, len(text) - EXCERPT))
    end = begin + EXCERPT
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")


if __name__ == "__main__":
    main()
