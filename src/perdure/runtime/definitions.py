"""What a session's agent was when its last turn ran, as that turn's definitions say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import canonical
from ..core.entries import DefinitionChange, ToolCalled, TurnStarted
from ..core.journal import open_entry
from .context import stored_content
from .scope import missing

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["AGENT_KINDS", "last_definitions"]

AGENT_KINDS = (TurnStarted.kind, ToolCalled.kind, DefinitionChange.kind)
"""The entries that say what a session's agent is from there on."""


async def last_definitions(runtime: Runtime, session_id: str) -> list[dict[str, Any]]:
    """The definitions that a session's last turn ran under, the latest first; none if it has had no turn. Raises `SessionNotFound`."""
    head = await runtime.store.load(session_id)
    if head is None:
        raise missing(session_id, deleted=await runtime.store.buried(session_id))
    digests, before = [], None
    while rows := await runtime.store.entries(head.row.no, kinds=AGENT_KINDS, before=before, newest_first=True, limit=1):
        entry, before = open_entry(rows[0]), rows[0].seq
        digests.append(entry.new if isinstance(entry, DefinitionChange) else getattr(entry, "definition", ""))
        if isinstance(entry, TurnStarted):
            break
    found = [await stored_content(runtime.store, head.row.root, digest) for digest in dict.fromkeys(digests)]
    return [canonical.decode(content) for content in found]
