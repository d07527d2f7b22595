"""What was said before somebody came: the end of a transcript, with what really ran in the place of what a model asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.checkpoint import Turn
from ..core.entries import OperationPlanned, OperationStarted, RequestClosed
from ..core.messages import Message, Text, ToolCall, ToolCallResponse
from ..core.rules.endings import says_unknown
from ..runtime.runtime import Runtime
from .live import called, outcome_mark
from .screen import Screen
from .text import arguments as shown_arguments
from .text import counted, value, written

__all__ = ["EARLIER", "show_earlier"]

EARLIER = 20
"""How many earlier messages are shown."""


class Changed(NamedTuple):
    """A call that ran otherwise than the model asked for it, and who changed it."""

    name: str
    arguments: Any
    by: str


async def show_earlier(runtime: Runtime, screen: Screen, session_id: str, running: Turn | None) -> None:
    """The end of what was said before the running turn, which is shown as it goes on. Raises `SessionNotFound`."""
    messages = await _before(runtime, session_id, running)
    if messages and messages[0].position:
        screen.note((f"… {counted(messages[0].position, 'earlier message')}: perdure show {session_id}", "dim"))
    changed = await _changed(runtime, session_id, messages)
    for message in messages:
        _show(screen, message, changed)


async def _before(runtime: Runtime, session_id: str, running: Turn | None) -> list[Message]:
    before: int | None = None
    while page := await runtime.sessions.history(session_id, limit=EARLIER, before=before):
        kept = [message for message in page if running is None or message.session not in ("", session_id) or message.seq < running.began]
        if kept or not page[0].position:
            return kept
        before = page[0].position
    return []


async def _changed(runtime: Runtime, session_id: str, messages: list[Message]) -> dict[str, Changed]:
    """The calls of these messages that a person or a middleware changed, by id. Those of an ancestor stand in its journal."""
    calls = {part.id for message in messages for part in message.parts if isinstance(part, ToolCall)}
    own = [message.seq for message in messages if message.session in ("", session_id)]
    if not calls or not own:
        return {}
    kinds = (OperationPlanned.kind, OperationStarted.kind, RequestClosed.kind)
    names: dict[str, tuple[str, str]] = {}
    found: dict[str, Changed] = {}
    for entry in await runtime.sessions.entries(session_id, after=min(own) - 1, kinds=kinds):
        match entry:
            case OperationPlanned() | OperationStarted() if entry.plan is not None and entry.plan.call in calls:
                names[entry.operation] = (entry.plan.call, entry.plan.name)
                if isinstance(entry, OperationPlanned) and entry.arguments is not None:
                    found[entry.plan.call] = Changed(entry.plan.name, entry.arguments, f"rewritten by {entry.extension}")
            case RequestClosed() if entry.arguments is not None and entry.operation in names:
                call, name = names[entry.operation]
                found[call] = Changed(name, entry.arguments, "edited by a person")
    return found


def _show(screen: Screen, message: Message, changed: dict[str, Changed]) -> None:
    if message.role == "user":
        screen.note(("> ", "bold cyan") if not message.author else (f"{message.author}: ", "bold"), written(message.parts))
        return
    for part in message.parts:
        match part:
            case Text() if part.content.strip():
                screen.note(part.content)
            case ToolCall() if part.id in changed:
                ran = changed[part.id]
                asked = f"  {ran.by}; the model asked for {shown_arguments(part.arguments)}"
                screen.note(("→ ", "cyan"), called(ran.name, ran.arguments), (asked, "dim"))
            case ToolCall():
                screen.note(("→ ", "cyan"), called(part.name, part.arguments))
            case ToolCallResponse():
                unknown = part.is_error and says_unknown(part.response)
                mark, style = outcome_mark("uncertain" if unknown else "failed" if part.is_error else "succeeded")
                screen.note((f"{mark} ", style), part.name, " ", (value(part.response), "dim"))
