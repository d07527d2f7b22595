"""Commands on transcripts: fork, rewrite, restore, revisions, diff, redact, effects, and the tree of a session's branches."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..core import canonical
from ..core.errors import UsageError
from ..core.messages import Message, Part, RedactedPart, Text, ToolCall, ToolCallResponse, decode_part
from ..runtime.branches import Branch
from ..runtime.runtime import Runtime
from .about import labels_of, tools_of
from .agents import all_agents
from .exits import OK
from .opening import opened, read_text
from .screen import Screen
from .sessions import STYLES
from .text import arguments as shown_arguments
from .text import counted, moment, plain, short

__all__ = ["diff", "effects", "fork", "redact", "restore", "revisions", "rewrite", "show_transcript", "show_tree"]

PAGE = 500
"""How many messages are read at once."""


def fork(arguments: argparse.Namespace) -> Awaitable[int]:
    """Begin another session with the first messages of one."""
    tools, agents = tools_of(arguments), all_agents(arguments.agents)
    said = None if arguments.text is None else read_text(arguments.text)

    async def go(runtime: Runtime, screen: Screen) -> None:
        made = await runtime.sessions.fork(
            arguments.session,
            at=arguments.at,
            turn=arguments.turn,
            entry=arguments.entry,
            replacement=said,
            session_id=arguments.branch,
            title=arguments.title,
            labels=labels_of(arguments.label) if arguments.label else None,
            tools=tools,
            agents=agents,
            while_running=arguments.while_running,
            reason=arguments.reason,
            actor=arguments.actor,
        )
        if screen.as_json:
            screen.json(plain(made))
            return
        came = f", {made.cut} of them" * (made.cut < made.count)
        screen.line(("✓ ", "green"), (made.session_id, "bold"), f"  {counted(made.count, 'message')}{came} from {made.parent}")
        _beyond(screen, made.session_id, made.effects)

    return _run(arguments, go)


def rewrite(arguments: argparse.Namespace) -> Awaitable[int]:
    """Put other messages in place of some."""
    said = _replacement(arguments)

    async def go(runtime: Runtime, screen: Screen) -> None:
        edit = await runtime.sessions.rewrite(
            arguments.session,
            (arguments.start, arguments.stop),
            said,
            expected=arguments.expected,
            reason=arguments.reason,
            actor=arguments.actor,
            submission=arguments.submission,
        )
        _edited(screen, edit)

    return _run(arguments, go)


def restore(arguments: argparse.Namespace) -> Awaitable[int]:
    """Bring an earlier revision back."""

    async def go(runtime: Runtime, screen: Screen) -> None:
        revision = await _named(runtime, arguments.session, arguments.revision)
        edit = await runtime.sessions.restore(
            arguments.session,
            revision,
            expected=arguments.expected,
            reason=arguments.reason,
            actor=arguments.actor,
            submission=arguments.submission,
        )
        _edited(screen, edit)

    return _run(arguments, go)


def revisions(arguments: argparse.Namespace) -> Awaitable[int]:
    """The edits of a transcript, the latest last."""

    async def go(runtime: Runtime, screen: Screen) -> None:
        found = await runtime.sessions.revisions(arguments.session, limit=arguments.limit, before=arguments.before)
        if screen.as_json:
            screen.json({"head": found.head, "revisions": [plain(item) for item in found]})
            return
        for item in found:
            what = f"all of {item.revision[:12]} restored" if item.restored else f"[{item.start}, {item.stop}) rewritten"
            by = f" by {item.actor}" if item.actor else ""
            screen.line((item.revision[:12], "bold"), f"  {moment(item.at)}  {what}{by}", (f"  {short(item.reason, 200)}", "dim"))
            screen.line((f"was {item.parent[:12]} · entry {item.seq} · {counted(item.count, 'message')}", "dim"), indent=2)
        screen.line(("now ", "dim"), (found.head, "bold"))

    return _run(arguments, go)


def diff(arguments: argparse.Namespace) -> Awaitable[int]:
    """Where two revisions differ."""

    async def go(runtime: Runtime, screen: Screen) -> None:
        old = await _named(runtime, arguments.session, arguments.old)
        new = None if arguments.new is None else await _named(runtime, arguments.session, arguments.new)
        hunks = await runtime.sessions.diff(arguments.session, old, new)
        if screen.as_json:
            screen.json([plain(hunk) for hunk in hunks])
            return
        for hunk in hunks:
            screen.line((f"@ {hunk.old_start} → {hunk.new_start}", "cyan"))
            for message in hunk.old:
                screen.line((f"- {_line(message)}", "red"))
            for message in hunk.new:
                screen.line((f"+ {_line(message)}", "green"))

    return _run(arguments, go)


def redact(arguments: argparse.Namespace) -> Awaitable[int]:
    """Remove content for good."""

    async def go(runtime: Runtime, screen: Screen) -> None:
        told: dict[str, Any] = {}
        if arguments.positions or arguments.entry:
            removed = await runtime.sessions.redact(
                arguments.session,
                arguments.positions,
                entries=arguments.entry,
                reason=arguments.reason,
                actor=arguments.actor,
                submission=arguments.submission,
            )
            told = plain(removed)
            if not screen.as_json:
                screen.line(("✓ ", "green"), f"the content of {counted(len(removed.entries), 'entry', 'entries')} is gone")
                for words in removed.unreachable:
                    screen.line(("! ", "yellow"), words, indent=2)
        elif not arguments.vacuum:
            raise UsageError("nothing is named", hint="give positions, --entry, or --vacuum")
        if arguments.vacuum:
            await runtime.store.vacuum()
            if not screen.as_json:
                screen.line(("✓ ", "green"), "the store was written anew, without what was removed")
        if screen.as_json:
            screen.json({**told, "vacuum": arguments.vacuum})

    return _run(arguments, go)


def effects(arguments: argparse.Namespace) -> Awaitable[int]:
    """What a session's past did that its transcript doesn't show."""

    async def go(runtime: Runtime, screen: Screen) -> None:
        found = await runtime.sessions.effects(arguments.session, shown=arguments.all, limit=arguments.limit)
        if screen.as_json:
            screen.json([plain(item) for item in found])
            return
        for item in found:
            where = "" if item.session_id == arguments.session else f" in {item.session_id}"
            style = "yellow" if item.state == "uncertain" else ""
            called = f"{item.name}({shown_arguments(item.arguments)})" if item.arguments is not None else item.name
            screen.line((f"{moment(item.at)}  ", "dim"), called, (f"  {item.state}", style), (f"  {item.operation}{where}", "dim"))
        if not found:
            screen.note(("the transcript shows all that was done" if not arguments.all else "nothing was done", "dim"))

    return _run(arguments, go)


def show_tree(screen: Screen, branches: list[Branch], here: str) -> None:
    """A tree of sessions, each with its forks, and the sessions of the agents that it called, behind it."""
    if screen.as_json:
        screen.json([plain(branch) for branch in branches])
        return
    for branch in branches:
        cut = f" from message {branch.cut}" if branch.parent_kind == "fork" else ""
        held = branch.problem if branch.messages is None else f"{counted(branch.messages, 'message')}{cut}"
        who = f"  {branch.agent}" if branch.parent_kind == "child" else ""
        screen.line(
            (branch.session_id, "bold" if branch.session_id == here else ""),
            "  ",
            (branch.status, STYLES.get(branch.status, "")),
            (who, "cyan"),
            (f"  {held}  {short(branch.title, 60)}", "dim"),
            indent=2 * branch.depth,
        )


async def show_transcript(screen: Screen, runtime: Runtime, session_id: str, revision: str | None, last: int | None) -> None:
    """The messages of a transcript, each behind its position, and the revision that they make."""
    named = await runtime.sessions.revision(session_id) if revision is None else await _named(runtime, session_id, revision)
    messages: list[Message] = []
    before: int | None = None
    while before != 0 and (last is None or len(messages) < last):
        limit = PAGE if last is None else min(PAGE, last - len(messages))
        page = await runtime.sessions.history(session_id, before=before, limit=limit, revision=named)
        if not page:
            break
        messages, before = page + messages, page[0].position
    if screen.as_json:
        screen.json({"session_id": session_id, "revision": named, "messages": [plain(message) for message in messages]})
        return
    for message in messages:
        own = f"entry {message.seq}" + (f" of {message.session}" if message.session else "")
        screen.line((f"{message.position:>4}  ", "bold"), _line(message), (f"  {own}", "dim"))
    screen.line(("revision ", "dim"), (named, "bold"))


async def _run(arguments: argparse.Namespace, go: Callable[[Runtime, Screen], Awaitable[None]]) -> int:
    async with opened(arguments) as runtime:
        await go(runtime, Screen(as_json=arguments.json))
    return OK


def _edited(screen: Screen, edit: Any) -> None:
    if screen.as_json:
        screen.json(plain(edit))
        return
    again = " (was made before)" if edit.duplicate else ""
    screen.line(("✓ ", "green"), (edit.revision, "bold"), (f"  {counted(edit.count, 'message')}, was {edit.parent[:12]}{again}", "dim"))
    _beyond(screen, edit.session_id, edit.effects)


def _beyond(screen: Screen, session_id: str, count: int) -> None:
    if count:
        screen.line(
            ("! ", "yellow"), f"{counted(count, 'effect')} happened that this transcript doesn't show: perdure effects {session_id}"
        )


async def _named(runtime: Runtime, session_id: str, text: str) -> str:
    """A revision by its beginning, as the lists show it."""
    if len(text) >= 64:
        return text
    before: int | None = None
    known = {await runtime.sessions.revision(session_id)}
    while page := await runtime.sessions.revisions(session_id, before=before):
        known |= {revision for item in page for revision in (item.revision, item.parent)}
        before = page[0].seq
    found = [revision for revision in known if text and revision.startswith(text)]
    if len(found) > 1:
        raise UsageError(f"{len(found)} revisions begin with {text!r}", hint="give more of it")
    return found[0] if found else text


def _replacement(arguments: argparse.Namespace) -> list[str | Message]:
    if arguments.messages is not None:
        return _messages(read_text("-") if arguments.messages == "-" else _file(arguments.messages))
    return [] if arguments.text is None else [_said(arguments.role, read_text(arguments.text))]


def _said(role: str, text: str) -> Message:
    return Message(role=role, parts=(Text(text),))  # type: ignore[arg-type]


def _file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{path!r} can't be read: {error}", hint="a JSON file with a list of messages") from error


def _messages(text: str) -> list[str | Message]:
    hint = 'a list of {"role": "user", "content": "…"} or {"role": "…", "parts": [{"type": "text", …}]}'
    try:
        given = json.loads(text)
        if not isinstance(given, list):
            raise UsageError("--messages is no list", hint=hint)
        found: list[str | Message] = []
        for item in given:
            if "parts" in item:
                parts: tuple[Part, ...] = tuple(decode_part(canonical.encode(part)) for part in item["parts"])
                found.append(Message(role=item["role"], parts=parts))
            else:
                found.append(_said(item["role"], item["content"]))
    except (ValueError, TypeError, KeyError, msgspec.MsgspecError) as error:
        raise UsageError(f"--messages can't be read: {error!r:.200}", hint=hint) from error
    return found


def _line(message: Message) -> str:
    said: list[str] = []
    for part in message.parts:
        match part:
            case Text():
                said.append(part.content)
            case ToolCall():
                said.append(f"{part.name}({shown_arguments(part.arguments)})")
            case ToolCallResponse():
                said.append(f"{part.name} = {canonical.encode(part.response).decode()}")
            case RedactedPart():
                said.append(f"[redacted {part.was}]")
            case _:
                said.append(f"[{part.__struct_config__.tag}]")
    return f"{message.role}: {short(' '.join(said), 300)}"
