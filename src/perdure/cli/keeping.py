"""Sessions put away, taken out, stopped, let go, destroyed, and carried elsewhere as files."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from ..core.errors import UsageError
from ..runtime.infos import SessionInfo
from .exits import OK
from .opening import opened
from .screen import Screen
from .sending import confirm
from .text import counted, plain

__all__ = ["archive", "delete", "export", "halt", "import_", "repair", "revive"]


def archive(arguments: argparse.Namespace) -> int:
    """Put a session away."""
    return asyncio.run(_stand(arguments, "archive", "archived"))


def revive(arguments: argparse.Namespace) -> int:
    """Take a session out of the archive."""
    return asyncio.run(_stand(arguments, "revive", "revived"))


async def _stand(arguments: argparse.Namespace, how: Literal["archive", "revive"], done: str) -> int:
    async with opened(arguments) as runtime:
        sent = await getattr(runtime.sessions, how)(arguments.session, reason=arguments.reason, actor=arguments.actor)
        await confirm(runtime, arguments, sent, f"{done}: {arguments.session}", in_inbox=True)
    return OK


def halt(arguments: argparse.Namespace) -> int:
    """Stop a session where it stands."""
    return asyncio.run(_examine(arguments, "halt", lambda info: info.problem))


def repair(arguments: argparse.Namespace) -> int:
    """Check a halted session, and let it go on if nothing is wrong with it."""
    return asyncio.run(_examine(arguments, "repair", lambda info: f"nothing is wrong with it, and it is {info.status}"))


async def _examine(arguments: argparse.Namespace, how: Literal["halt", "repair"], what: Callable[[SessionInfo], str]) -> int:
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        info = await getattr(runtime.sessions, how)(arguments.session, reason=arguments.reason, actor=arguments.actor)
    if arguments.json:
        screen.json(plain(info))
    else:
        screen.line(("✓ ", "green"), f"{info.session_id}: {what(info)}")
    return OK


def delete(arguments: argparse.Namespace) -> int:
    """Destroy a session's content, once somebody said that it is meant."""
    return asyncio.run(_delete(arguments))


async def _delete(arguments: argparse.Namespace) -> int:
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        info = await runtime.sessions.info(arguments.session)
        if not arguments.yes:
            if not sys.stdin.isatty():
                raise UsageError(f"{info.session_id!r} would be destroyed for good", hint="--yes says that it is meant")
            print(f"Destroy {info.session_id!r} ({info.status}, {info.version} entries) for good? Type its id: ", end="", file=sys.stderr)
            sys.stderr.flush()
            if sys.stdin.readline().rstrip("\n") != info.session_id:
                raise UsageError("nothing was deleted")
        await runtime.sessions.delete(info.session_id, tree=arguments.tree)
    if arguments.json:
        screen.json({"session": info.session_id, "deleted": True})
    else:
        screen.line(("✓ ", "green"), f"deleted: {info.session_id}")
    return OK


@contextmanager
def _file(name: str | None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{name!r} can't be used: {error.strerror}", hint="name a file that can") from error


def export(arguments: argparse.Namespace) -> int:
    """Write a session into a file."""
    return asyncio.run(_export(arguments))


async def _export(arguments: argparse.Namespace) -> int:
    async with opened(arguments) as runtime:
        target = sys.stdout.buffer if arguments.output is None else arguments.output
        with _file(arguments.output):
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


def import_(arguments: argparse.Namespace) -> int:
    """Take in a file."""
    return asyncio.run(_import(arguments))


async def _import(arguments: argparse.Namespace) -> int:
    screen = Screen(as_json=arguments.json)
    source = sys.stdin.buffer if arguments.file == "-" else arguments.file
    async with opened(arguments, create=True) as runtime:
        with _file(arguments.file):
            told = await runtime.sessions.import_from(source, session_id=arguments.session)
    if arguments.json:
        screen.json({"sessions": list(told.sessions), "entries": told.entries})
    else:
        for name in told.sessions:
            screen.line(("✓ ", "green"), f"imported: {name}")
    return OK
