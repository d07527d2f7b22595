"""Tools that give an agent one directory to work in: its files, and a shell.

What each does to the world, and how a crash in the middle of it is resolved, is argued in docs/workspace.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from ..core.errors import SandboxUnavailable, UsageError
from . import files
from .context import ToolContext
from .files import Content, FileRefused, Glob, StopWalk, Tree, shown, version_of
from .running import ToolError
from .sandbox import Sandbox, find_sandbox
from .shell import NotStarted, clean_environment, run_command, shell_program
from .tool import Done, Guard, NotDone, Tool, Unknown, is_seconds, tool

__all__ = ["Confinement", "mutating", "workspace_tools"]

Confinement: TypeAlias = Literal["required", "auto", "off"]

READ_LINES = 2000
READ_CHARACTERS = 100_000
LINE_CHARACTERS = 2000
LIST_LIMIT = 1000
SEARCH_LIMIT = 200
WALK_SECONDS = 10.0
SEARCH_SECONDS = 10.0
SEARCH_GRACE = 1.0
"""What a search is given beyond its own limit: usually it ends by itself, and can say what it did."""

COMMAND_LIMIT = 100_000
"""Bytes of one command: the kernel takes 128 KiB."""

_log = logging.getLogger("perdure.tools")


def workspace_tools(
    root: str | os.PathLike[str],
    *,
    write: bool = True,
    shell: bool = True,
    sandbox: Confinement = "required",
    network: bool = False,
    readable: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    timeout: float = 120,
    longest: float = 600,
    output_limit: int = 32_768,
    shell_guard: Guard = "ask",
) -> list[Tool]:
    """Tools confined to a directory: ``read_file, list_files, search_files``, with ``write`` also ``write_file, edit_file``, and ``shell``.

    ``sandbox`` is about the shell. "required": commands run confined by bubblewrap, or `SandboxUnavailable` is raised here. "auto": where
    they can't be confined, there is no shell among the tools. "off": they run with all rights of this process, and the tool says so.
    In the sandbox there is no network without ``network``, and beside the system's programs and the workspace only the paths in
    ``readable`` can be read. ``environment`` is added to the few variables that commands get. ``timeout`` is a command's time in seconds
    unless the model asks for another, at most ``longest``; ``output_limit`` how many bytes of its output are kept. ``shell_guard`` is
    what happens to a command that was interrupted and is asked for again.

    Raises `UsageError`. It looks at the disk and runs bubblewrap once, which takes some milliseconds.
    """
    if sandbox not in get_args(Confinement):
        raise UsageError(f"sandbox={sandbox!r} is unknown", hint=f"one of {', '.join(get_args(Confinement))}")
    if not is_seconds(timeout) or not is_seconds(longest) or timeout > longest:
        raise UsageError("timeout= and longest= are seconds, more than 0, and the first is no more than the second")
    if output_limit < 1:
        raise UsageError("output_limit= is a number of bytes, more than 0")
    tree = _tree(root)
    tools = [*_reading(tree)]
    if write:
        tools += _writing(tree)
    if shell:
        confined = _confinement(tree.root, sandbox, write=write, network=network, readable=readable)
        if confined is not None or sandbox == "off":
            tools.append(
                _shell(tree, confined, clean_environment(_added(environment, confined)), timeout, longest, output_limit, shell_guard)
            )
    # Another directory is another workspace, though the tools look the same.
    return [dataclasses.replace(item, within=str(tree.root)) for item in tools]


def mutating(tools: Iterable[Tool]) -> list[str]:
    """The names of the tools that change something, for ``approve=``: all that aren't pure."""
    return [item.name for item in tools if item.effect != "pure"]


def _tree(root: str | os.PathLike[str]) -> Tree:
    given = os.path.abspath(os.fspath(root))
    real = os.path.realpath(given)
    if not os.path.isdir(real):
        raise UsageError(f"the workspace {given} is not a directory", hint="create it first")
    if real == "/" or real.split("/")[1] in ("proc", "sys", "dev"):
        raise UsageError(f"{real} can't be a workspace", hint="choose a directory for the work alone")
    return Tree(real, given=given)


def _confinement(root: str, sandbox: Confinement, *, write: bool, network: bool, readable: Iterable[str]) -> Sandbox | None:
    if sandbox == "off":
        if not write:
            raise UsageError("write=False can't be kept by a shell that isn't confined", hint='pass shell=False, or sandbox="required"')
        if sys.platform != "linux":
            raise UsageError("the shell needs Linux, where a command can be ended with all that it started", hint="pass shell=False")
        return None
    try:
        return find_sandbox(root, writable=write, network=network, readable=readable)
    except SandboxUnavailable as error:
        if sandbox == "required":
            raise
        _log.warning("the agent gets no shell: %s", error)
        return None


def _added(environment: Mapping[str, str] | None, confined: Sandbox | None) -> dict[str, str]:
    added = dict(environment or {})
    if confined is not None:
        # The same path as outside, and an empty directory.
        added = {"HOME": confined.home if confined.home != "/" else "/tmp", "TMPDIR": "/tmp"} | added  # noqa: S108 - private to each command
    return added


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What is certain not to have happened is a `ToolError`; all else passes, and for an external tool means that it is uncertain."""
    try:
        yield
    except FileRefused as error:
        raise ToolError(str(error)) from None


def _refuse(words: str) -> NoReturn:
    raise ToolError(words)


# Reading


def _reading(tree: Tree) -> list[Tool]:
    @tool(effect="pure")
    def read_file(path: str, offset: int = 1, limit: int = READ_LINES) -> str:
        """Read a text file of the workspace. Each line comes after its number and a tab; the version names the file's content.

        Args:
            path: The file, relative to the workspace.
            offset: The first line, counted from 1.
            limit: How many lines.
        """
        if offset < 1 or limit < 1:
            _refuse("offset and limit count from 1")
        with _refusals():
            return _numbered(path, tree.read(path), offset, min(limit, READ_LINES))

    @tool(effect="pure")
    def list_files(pattern: str = "*", path: str = ".", limit: int = LIST_LIMIT) -> dict[str, Any]:
        """List files and directories (these end in "/") of the workspace, sorted. What .git holds is left out unless the pattern names it.

        Args:
            pattern: A glob relative to the path, such as "*" or "**/*.py"; ** stands for any directories, {a,b} for either.
            path: The directory to start in.
            limit: How many at most.
        """
        if limit < 1:
            _refuse("limit counts from 1")
        with _refusals():
            return _listed(tree, pattern, path, min(limit, LIST_LIMIT))

    @tool(effect="pure")
    async def search_files(
        expression: str, path: str = ".", glob: str = "**", ignore_case: bool = False, limit: int = SEARCH_LIMIT
    ) -> dict[str, Any]:
        """Search the text files of the workspace, line by line, for a regular expression (Python's). Answers "path:line: text".

        Args:
            expression: The regular expression.
            path: The directory to search, or one file.
            glob: Which files, relative to the path; "*.py" is the same as "**/*.py".
            ignore_case: Whether upper and lower case are the same.
            limit: How many matching lines at most.
        """
        if limit < 1:
            _refuse("limit counts from 1")
        return await _searched(
            tree,
            {
                "expression": expression,
                "path": path,
                "glob": glob,
                "ignore_case": ignore_case,
                "limit": min(limit, SEARCH_LIMIT),
                "seconds": SEARCH_SECONDS,
            },
        )

    return [read_file, list_files, search_files]


def _text(path: str, content: Content) -> bytes:
    if b"\x00" in content.data:
        raise FileRefused(f"{shown(path)} is binary ({len(content.data):,} bytes)")
    return content.data


def _numbered(path: str, content: Content, offset: int, limit: int) -> str:
    data = _text(path, content)
    # By line feeds alone, as editors and compilers count.
    lines = data.split(b"\n")
    remarks = []
    if lines[-1]:
        remarks.append("no newline at the end")
    else:
        lines.pop()
    if not lines:
        return f"{shown(path)}: empty; version {content.version}"
    if offset > len(lines):
        raise FileRefused(f"{shown(path)} has {len(lines)} lines")
    if any(line.endswith(b"\r") for line in lines):
        remarks.append("lines end in CRLF")
    try:
        data.decode()
    except UnicodeDecodeError:
        remarks.append("not UTF-8; what is invalid is shown as �")
    written: list[str] = []
    size = 0
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], start=offset):
        text = line.removesuffix(b"\r").decode("utf-8", "replace")
        if len(text) > LINE_CHARACTERS:
            text = f"{text[:LINE_CHARACTERS]}… ({len(text) - LINE_CHARACTERS:,} more characters in this line)"
        size += len(text) + 8
        if size > READ_CHARACTERS:
            break
        written.append(f"{number:>6}\t{text}")
    last = offset + len(written) - 1
    if last < len(lines):
        remarks.append(f"go on with offset={last + 1}")
    head = f"{shown(path)}: lines {offset}-{last} of {len(lines)}; version {content.version}"
    return "\n".join(["; ".join([head, *remarks]), *written])


def _listed(tree: Tree, pattern: str, path: str, limit: int) -> dict[str, Any]:
    found: list[str] = []
    stopped = ""
    try:
        for item in tree.walk(path, Glob(pattern), time.monotonic() + WALK_SECONDS):
            if len(found) == limit:
                raise StopWalk("limit")
            if item.kind != "special":
                name = os.fsencode(item.path).decode("utf-8", "backslashreplace")
                found.append(f"{name}/" if item.kind == "directory" else name)
    except StopWalk as stop:
        stopped = str(stop)
    return {"paths": found, "incomplete": stopped or None}


async def _searched(tree: Tree, request: dict[str, Any]) -> dict[str, Any]:
    with _refusals():
        descriptor = tree.open()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-X", "utf8", files.__file__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            cwd="/",
            pass_fds=(descriptor,),
            limit=1 << 20,
        )
    except OSError as error:
        raise ToolError(f"the search could not be started: {error.strerror}") from None
    finally:
        os.close(descriptor)
    matches: list[str] = []
    ended: dict[str, Any] = {}
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(json.dumps({**request, "root": tree.root, "given": tree.given, "descriptor": descriptor}).encode())
            process.stdin.close()
        async with asyncio.timeout(request["seconds"] + SEARCH_GRACE):
            async for line in process.stdout:
                answer = json.loads(line)
                if "match" in answer:
                    matches.append(answer["match"])
                else:
                    ended = answer
            # Killing a process that is gone would take its exit status from whoever waits for it.
            await process.wait()
    except TimeoutError:
        ended = {"stopped": "time"}
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        # To its end: only then are its pipes closed.
        await process.stdout.read()
    if "error" in ended:
        raise ToolError(ended["error"])
    if not ended:
        # The second is the limit of its processor time, which only counts when nobody looks after it.
        ended = {"stopped": "time" if process.returncode in (-signal.SIGKILL, -signal.SIGXCPU) else "the search failed"}
    if ended["stopped"] == "time" and not matches:
        raise ToolError(f"nothing was found within {request['seconds']:g} s; use a simpler expression, or search fewer files")
    return {
        "matches": matches,
        "files_searched": ended.get("searched"),
        "files_skipped": ended.get("skipped"),
        "incomplete": ended["stopped"] or None,
    }


# Changing


def _writing(tree: Tree) -> list[Tool]:
    # Exclusive, so that what a model asks for in one breath happens in the order in which it asked: edit, edit, test.
    @tool(effect="idempotent", key=("path", "content"), exclusive=True)
    def write_file(ctx: ToolContext, path: str, content: str, version: str | None = None) -> dict[str, Any]:
        """Write a whole file of the workspace, with its directories. An existing file is replaced; to change a part, use edit_file.

        Args:
            path: The file, relative to the workspace.
            content: The new content.
            version: The version that read_file showed. If the file has another one by now, nothing is written.
        """
        data = content.encode()
        note = json.dumps({"version": version_of(data), "bytes": len(data)}, sort_keys=True)

        def change(present: Content | None) -> tuple[bytes, str] | None:
            # Done already, by whomever: then there is nothing that a version could protect.
            if present is not None and present.data == data:
                return None
            if version is not None and (present is None or present.version != version):
                raise FileRefused(f"{shown(path)} is not version {version} any more; read it again")
            return data, note

        with _refusals():
            return {"path": path, **json.loads(tree.update(path, _key(ctx, "write", path, content), change, create=True) or note)}

    @tool(effect="external", key=("path", "old", "new"), reconcile=_reconciled(tree), exclusive=True)
    def edit_file(ctx: ToolContext, path: str, old: str, new: str, replace_all: bool = False, version: str | None = None) -> dict[str, Any]:
        """Replace exact text in a file of the workspace. The old text must stand in it exactly once, unless all are to be replaced.

        Args:
            path: The file, relative to the workspace.
            old: The text to replace, exactly as in the file, without line numbers.
            new: The text that takes its place.
            replace_all: Whether every occurrence is replaced.
            version: The version that read_file showed. If the file has another one by now, nothing is changed.
        """

        def change(present: Content | None) -> tuple[bytes, str]:
            if present is None:
                raise FileRefused(f"{shown(path)}: No such file or directory")
            if version is not None and present.version != version:
                raise FileRefused(f"{shown(path)} is not version {version} any more; read it again")
            data, replaced = _edited(path, _text(path, present), old, new, replace_all=replace_all)
            return data, json.dumps({"version": version_of(data), "replaced": replaced}, sort_keys=True)

        with _refusals():
            return {"path": path, **json.loads(tree.update(path, _key(ctx, "edit", path, old, new), change))}

    return [write_file, edit_file]


def _key(ctx: ToolContext, *call: str) -> str:
    """The key under which a change leaves its traces: of this call in this operation, so that no other can take them for its own."""
    return f"{ctx.idempotency_key}/{hashlib.sha256(json.dumps(call).encode()).hexdigest()[:16]}"


def _edited(path: str, data: bytes, old: str, new: str, *, replace_all: bool) -> tuple[bytes, int]:
    if not old:
        raise FileRefused("old is empty; use write_file to write a whole file")
    before, after, count = _fitted(data, old, new)
    if before == after:
        raise FileRefused("old and new are the same")
    if not count:
        raise FileRefused(f"old doesn't stand in {shown(path)}; it must be exact, with all spaces and line breaks")
    if count > 1 and not replace_all:
        raise FileRefused(f"old stands {count} times in {shown(path)}; add text around it, or pass replace_all")
    return data.replace(before, after), count


def _fitted(data: bytes, old: str, new: str) -> tuple[bytes, bytes, int]:
    """Old and new as bytes of this file, and how often the old stands in it."""
    before, after = old.encode(), new.encode()
    count = data.count(before)
    if not count and b"\r\n" in data and b"\r" not in before:
        # Line numbers come without the CR, so a model can't know of it.
        before, after = before.replace(b"\n", b"\r\n"), after.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        count = data.count(before)
    return before, after, count


def _reconciled(tree: Tree) -> Any:
    def reconcile(ctx: ToolContext, path: str, old: str, new: str, replace_all: bool, version: str | None) -> Done | NotDone | Unknown:
        try:
            traces = tree.traces(path, _key(ctx, "edit", path, old, new))
        except FileRefused:
            return Unknown()
        if traces.note is not None:
            # The note came into place with the edited file, by one rename.
            return Done({"path": path, **json.loads(traces.note)})
        if traces.unfinished:
            return NotDone()
        if traces.content is None:
            return Unknown()
        if version is not None and traces.content.version == version:
            return NotDone()
        _, after, count = _fitted(traces.content.data, old, new)
        if not (count == 1 or (count and replace_all)):
            return Unknown()
        # It can still be made. Without notes that says nothing if the new text is there too: it may stand there because it was made.
        return NotDone() if traces.marks or (after and after not in traces.content.data) else Unknown()

    return reconcile


# The shell


def _shell(
    tree: Tree,
    confined: Sandbox | None,
    environment: Mapping[str, str],
    usual: float,
    longest: float,
    output_limit: int,
    guard: Guard,
) -> Tool:
    async def shell(command: str, timeout_seconds: float | None = None) -> dict[str, Any]:
        """Run a shell command.

        Args:
            command: The command, as one would type it; also several lines of it.
            timeout_seconds: How long it may take.
        """
        seconds = usual if timeout_seconds is None else timeout_seconds
        if not is_seconds(seconds) or seconds > longest:
            _refuse(f"timeout_seconds must be more than 0 and at most {longest:g}")
        if not command.strip() or "\x00" in command or len(command.encode()) > COMMAND_LIMIT:
            _refuse(f"a command is 1 to {COMMAND_LIMIT:,} bytes, without NUL; write longer scripts to a file")
        with _refusals():
            os.close(tree.open())
        try:
            finished = await run_command(
                [shell_program(), "-c", command],
                directory=tree.root,
                sandbox=confined,
                environment=environment,
                seconds=seconds,
                output_limit=output_limit,
            )
        except NotStarted as error:
            raise ToolError(f"the command was not run: {error}") from None
        return {
            "exit_code": finished.exit_code,
            "output": finished.output,
            "output_bytes": finished.output_bytes,
            "truncated": finished.truncated,
            "stopped": finished.stopped,
            "seconds": finished.seconds,
        }

    return tool(
        effect="external",
        key=("command",),
        guard=guard,
        exclusive=True,
        description=_shell_description(confined, usual, longest),
    )(shell)


def _shell_description(confined: Sandbox | None, usual: float, longest: float) -> str:
    what = (
        "Run a shell command (bash where there is one) in the workspace, with no input and no terminal."
        f" It is stopped after {usual:g} s, or timeout_seconds (at most {longest:g});"
        " what it leaves in the background is killed when it ends."
    )
    if confined is None:
        return f"{what} It is NOT confined: it can read and change everything that the program running it can."
    return (
        f"{what} It is confined: only the workspace can be {'changed' if confined.writable else 'read, and nothing changed'},"
        f" /tmp is private and empty each time, and there is {'' if confined.network else 'no '}network."
    )
