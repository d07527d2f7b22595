"""What a tool is told about the call that it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import UsageError
from ..core.messages import Source
from ..core.records import EffectClass, Identity
from .transaction import InTransaction

__all__ = ["ReconcileContext", "ToolContext"]


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The identity of one call, for a tool that names it as its first parameter.

    ``operation`` and ``idempotency_key`` are the same in every attempt of a call, after a restart or an approval too, and another in a
    fork; hand the key to services that know such keys. ``attempt`` counts from 1. ``call`` is the id that the model gave its call.
    ``callback_token`` lets somebody else report the result later; whoever has it can, so it is left out of the repr.
    ``identity`` is whom the session belongs to, ``metadata`` what its owner noted about it, ``agent`` the agent's name.
    ``author`` is who wrote the message that began the turn, ``source`` who sent it where that was no person. ``effect`` is the tool's
    class.
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
    effect: EffectClass = "external"
    asked: list[InTransaction] = field(default_factory=list, repr=False)

    def transaction(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have ``function(connection, *args)`` run in the very transaction of the commit that holds this call's receipt.

        For tools with ``effect="transactional"``, which return what this returns: ``return ctx.transaction(reserve, seat)``. What the
        function returns is the call's result then; it and everything that the function wrote are durable together, or neither is. If it
        raises, nothing of it stays and the call failed. It may be called again after it was undone, so it may do nothing else than work
        on the connection: an `apsw.Connection` of the store's own file, or of a database in memory beside a store in memory. It can't
        write to the store's tables or end the transaction, and its SQL is ended after 5 s, as nobody else writes meanwhile.

        Raises `UsageError` where the call is not transactional.
        """
        if self.effect != "transactional":
            raise UsageError(f"a call that is {self.effect} has no transaction", hint='declare the tool with effect="transactional"')
        self.asked.append(InTransaction(function, args))
        return self.asked[-1]

    @property
    def owner(self) -> str:
        """Whom the session belongs to."""
        return self.identity.owner


ReconcileContext = ToolContext
"""What a ``reconcile`` function is told: the identity of the call that it asks about."""
