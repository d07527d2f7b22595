"""Sessions put away, taken out, stopped, let go, destroyed, and carried elsewhere as files."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..core.errors import UsageError
from ..core.records import Identity
from ..runtime.infos import SessionInfo
from ..runtime.portable import take_in, verified_file
from ..runtime.runtime import open as open_runtime
from .about import labels_of
from .erasing import delete_owner
from .exits import OK
from .keyboard import sure
from .opening import opened, store_file
from .person import me
from .screen import Screen
from .sending import goes_on
from .text import counted, plain

__all__ = ["archive", "delete", "export", "halt", "import_", "repair", "revive", "usable"]


def archive(arguments: argparse.Namespace) -> Awaitable[int]:
    """Put a session away."""
    return _stand(arguments, "archive", lambda info: "archived")


def revive(arguments: argparse.Namespace) -> Awaitable[int]:
    """Take a session out of the archive."""
    return _stand(arguments, "revive", lambda info: f"revived, and it is {info.status}")


def halt(arguments: argparse.Namespace) -> Awaitable[int]:
    """Stop a session where it stands."""
    return _stand(arguments, "halt", lambda info: info.problem)


def repair(arguments: argparse.Namespace) -> Awaitable[int]:
    """Check a halted session, and let it go on if nothing is wrong with it."""
    return _stand(arguments, "repair", lambda info: f"nothing is wrong with it, and it is {info.status}")


async def _stand(arguments: argparse.Namespace, how: str, what: Callable[[SessionInfo], str]) -> int:
    """What changes how a session stands is done when it returns, whoever held it."""
    screen = Screen(as_json=arguments.json)
    once = {"submission": arguments.submission} if how in ("archive", "revive") else {}
    async with opened(arguments) as runtime:
        await getattr(runtime.sessions, how)(arguments.session, reason=arguments.reason, actor=arguments.actor, **once)
        info = await runtime.sessions.info(arguments.session)
        moves = await goes_on(runtime, arguments.db, info) if info.status == "queued" else ""
    if arguments.json:
        screen.json(plain(info))
        return OK
    screen.line(("✓ ", "green"), f"{info.session_id}: {what(info)}")
    if moves:
        screen.note((moves, "dim"))
    return OK


def delete(arguments: argparse.Namespace) -> Awaitable[int]:
    """Destroy a session's content, or an owner's, once somebody said that it is meant."""
    if arguments.owner is not None:
        return delete_owner(arguments)
    if arguments.session is None:
        raise UsageError("what is to be deleted?", hint="perdure delete SESSION, or --owner WHO for all of somebody's")
    if arguments.pool or arguments.uniques or arguments.agents:
        raise UsageError("--pool, --uniques and --agents are about all of an owner's", hint="they go with --owner")
    return _delete(arguments)


async def _delete(arguments: argparse.Namespace) -> int:
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        info = await runtime.sessions.info(arguments.session)
        if not arguments.yes:
            what = f"{info.session_id!r} ({info.status}, {counted(info.version, 'entry', 'entries')})"
            await sure(screen, repr(info.session_id), f"Destroy {what} for good? Type its id:", info.session_id)
        await runtime.sessions.delete(info.session_id, tree=arguments.tree)
    if arguments.json:
        screen.json({"session": info.session_id, "deleted": True})
    else:
        screen.line(("✓ ", "green"), f"deleted: {info.session_id}")
    return OK


@contextmanager
def usable(name: str | None) -> Iterator[None]:
    """A file or directory that a command was given. Raises `UsageError` where it can't be used."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{name!r} can't be used: {error.strerror}", hint="name another") from error


def export(arguments: argparse.Namespace) -> Awaitable[int]:
    """Write a session into a file."""
    if arguments.output is not None and _in_the_way(arguments.output):
        raise UsageError(f"{arguments.output!r} exists already", hint="nothing is overwritten; name a new file")
    return _export(arguments)


def _in_the_way(name: str) -> bool:
    """Whether something is there that a file would replace; a pipe or a device is written to."""
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return os.path.lexists(name)
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


async def _export(arguments: argparse.Namespace) -> int:
    async with opened(arguments) as runtime:
        target = sys.stdout.buffer if arguments.output is None else arguments.output
        with usable(arguments.output):
            told = await runtime.sessions.export(arguments.session, target, tree=arguments.tree)
    sys.stdout.flush()
    facts = (
        counted(told.entries, "entry", "entries"),
        counted(told.submissions, "submission"),
        counted(told.effects, "effect"),
        f"{counted(told.blobs, 'piece')} of content",
    )
    print(f"{counted(len(told.sessions), 'session')}: {', '.join(facts)}", file=sys.stderr)
    return OK


def import_(arguments: argparse.Namespace) -> Awaitable[int]:
    """Take in a file that `export` wrote, or a list of messages."""
    if arguments.source is not None:
        if arguments.session is None:
            raise UsageError("the conversation needs an id", hint="--session ID")
        return _import_messages(arguments, _conversation(arguments.file))
    if arguments.agent or arguments.owner or arguments.title or arguments.label:
        raise UsageError("the file itself says whose its sessions are", hint="--agent, --owner, --title and --label go with --from")
    with usable(arguments.file):
        return _import(arguments, _read(sys.stdin.buffer) if arguments.file == "-" else arguments.file)


def _read(stream: BinaryIO) -> BinaryIO:
    """All of standard input. A thread that read it while a loop runs would go on after Ctrl-C."""
    if stream.seekable():
        return stream
    copy = tempfile.TemporaryFile()  # noqa: SIM115
    shutil.copyfileobj(stream, copy)
    copy.seek(0)
    return copy


async def _import(arguments: argparse.Namespace, source: str | BinaryIO) -> int:
    screen = Screen(as_json=arguments.json)
    with usable(arguments.file):
        if _there(arguments):
            async with opened(arguments) as runtime:
                told = await runtime.sessions.import_from(source, session_id=arguments.session)
        else:
            # What can't be taken in makes no store.
            async with verified_file(source, arguments.session) as found, opened(arguments, create=True) as runtime:
                told = await take_in(runtime.store, found)
    if arguments.json:
        screen.json({"sessions": list(told.sessions), "entries": told.entries})
    else:
        for name in told.sessions:
            screen.line(("✓ ", "green"), f"imported: {name}")
    return OK


def _there(arguments: argparse.Namespace) -> bool:
    """Whether the store's file exists; whether a store without one does can't be seen from here."""
    path = store_file(arguments.db)
    return path is not None and path.exists()


async def _import_messages(arguments: argparse.Namespace, given: list[Any]) -> int:
    screen = Screen(as_json=arguments.json)
    about = {"agent": arguments.agent or "", "labels": labels_of(arguments.label), "title": arguments.title}
    identity = Identity(owner=arguments.owner) if arguments.owner else None
    taken = {"source": arguments.source, "identity": identity, "actor": me(), **about}
    if not _there(arguments):
        # What can't be taken in makes no store.
        async with open_runtime("memory://") as trial:
            await trial.sessions.import_messages(arguments.session, given, **taken)
    async with opened(arguments, create=True) as runtime:
        instructions = await runtime.sessions.import_messages(arguments.session, given, **taken)
        entries = (await runtime.sessions.info(arguments.session)).version
    if arguments.json:
        screen.json({"sessions": [arguments.session], "entries": entries, "instructions": instructions})
        return OK
    screen.line(("✓ ", "green"), f"imported: {arguments.session}")
    if instructions:
        screen.note(("instructions stood among the messages; they are the agent's here, who has its own:", "yellow"))
        screen.note(instructions, indent=2)
    return OK


def _conversation(name: str) -> list[Any]:
    """The messages in a file: the list itself, or a request that holds one."""
    try:
        with usable(name):
            given = json.loads(sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{name!r} is no JSON: {error}", hint="a JSON list of messages") from error
    for what, told in (("messages", "system"), ("input", "instructions")):
        if isinstance(given, dict) and isinstance(given.get(what), list):
            system = given.get(told)
            return [*([{"role": "system", "content": system}] if system else []), *given[what]]
    if not isinstance(given, list):
        raise UsageError(f"{name!r} holds no list", hint="a JSON list of messages, or a request whose `messages` or `input` is one")
    return given
