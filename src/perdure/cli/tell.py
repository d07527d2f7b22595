"""Messages and notes to a session, whoever holds it, and what can be done to a message while it waits: send, note, edit, withdraw."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable

from ..core.errors import SessionNotFound
from ..runtime.content import Input
from ..runtime.scope import missing
from .agents import owned_info
from .exits import OK
from .hints import SOME_AGENT, command
from .opening import opened, read_text, with_files
from .sending import confirm
from .text import moment_of

__all__ = ["edit", "note", "send", "withdraw"]


def send(arguments: argparse.Namespace) -> Awaitable[int]:
    """Put a message into the inbox."""
    return _send(arguments, with_files(read_text(arguments.text), arguments.attach))


async def _send(arguments: argparse.Namespace, content: Input) -> int:
    async with opened(arguments) as runtime:
        # A session that nobody has begun has no agent; a slip in its name must not make one.
        if await owned_info(runtime, arguments.session, owner="") is None:
            error, begins = missing(arguments.session, deleted=False), command(arguments.db, "run", "--session", arguments.session)
            raise SessionNotFound(error.message, hint=f'{error.hint}; `{begins} {SOME_AGENT} "…"` begins it')
        sent = await runtime.sessions.send(
            arguments.session,
            content,
            submission=arguments.submission,
            deliver=arguments.deliver,
            turn=arguments.turn or "",
            reply_to=arguments.reply_to,
            quote=arguments.quote,
            notes=arguments.note,
            not_before=moment_of(arguments.not_before),
            actor=arguments.actor,
        )
        await confirm(runtime, arguments, sent, f"sent: {sent.id}", in_inbox=True)
    return OK


def note(arguments: argparse.Namespace) -> Awaitable[int]:
    """Tell the model something outside of the conversation."""
    return _note(arguments, read_text(arguments.text))


async def _note(arguments: argparse.Namespace, text: str) -> int:
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.note(arguments.session, text, submission=arguments.submission, actor=arguments.actor)
        await confirm(runtime, arguments, sent, "noted; the model reads it with its next call")
    return OK


def edit(arguments: argparse.Namespace) -> Awaitable[int]:
    """Give a waiting message another text."""
    return _edit(arguments, read_text(arguments.text))


async def _edit(arguments: argparse.Namespace, text: str) -> int:
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.edit(arguments.session, arguments.message, text, actor=arguments.actor)
        await confirm(runtime, arguments, sent, f"edited: {arguments.message}", message=arguments.message)
    return OK


async def withdraw(arguments: argparse.Namespace) -> int:
    """Take back a waiting message."""
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.withdraw(arguments.session, arguments.message, actor=arguments.actor)
        await confirm(runtime, arguments, sent, f"withdrawn: {arguments.message}", message=arguments.message)
    return OK
