"""What a tool is told about the call that it serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..core.messages import Source
from ..core.records import Identity

__all__ = ["ReconcileContext", "ToolContext"]


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The identity of one call, for a tool that names it as its first parameter.

    ``operation`` and ``idempotency_key`` are the same in every attempt of a call, after a restart or an approval too, and another in a
    fork; hand the key to services that know such keys. ``attempt`` counts from 1. ``call`` is the id that the model gave its call.
    ``callback_token`` lets somebody else report the result later; whoever has it can, so it is left out of the repr.
    ``identity`` is whom the session belongs to, ``metadata`` what its owner noted about it, ``agent`` the agent's name.
    ``author`` is who wrote the message that began the turn, ``source`` who sent it where that was no person.
    """

    session_id: str
    turn: str
    operation: str
    attempt: int
    call: str
    idempotency_key: str
    callback_token: str = field(default="", repr=False)
    identity: Identity = field(default_factory=Identity)
    metadata: dict[str, Any] = field(default_factory=dict)
    agent: str = ""
    author: str = ""
    source: Source | None = None

    @property
    def owner(self) -> str:
        """Whom the session belongs to."""
        return self.identity.owner


ReconcileContext = ToolContext
"""What a ``reconcile`` function is told: the identity of the call that it asks about."""
