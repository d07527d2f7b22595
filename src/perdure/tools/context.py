"""What a tool is told about the call that it serves."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, get_args

from ..core.errors import UsageError
from ..core.messages import Source
from ..core.records import EffectClass, Identity
from .moments import Moment
from .transaction import InTransaction

__all__ = ["ReconcileContext", "ToolContext", "is_seconds"]

_STEP = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def is_seconds(value: object) -> bool:
    """Whether a value is a finite number of seconds, more than 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


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
    begun: set[str] = field(default_factory=set, repr=False)
    outside: Callable[..., Coroutine[Any, Any, Any]] | None = field(default=None, repr=False)
    sleeping: Callable[[str, Moment], Coroutine[Any, Any, None]] | None = field(default=None, repr=False)
    key: Callable[[str], str] = field(default=lambda name: "", repr=False)

    def transaction(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have ``function(connection, *args)`` run in the very transaction of the commit that holds this call's receipt.

        For tools with ``effect="transactional"``, which return what this returns: ``return ctx.transaction(reserve, seat)``. What the
        function returns is the call's result then; it and everything that the function wrote are durable together, or neither is. If it
        raises, nothing of it stays and the call failed. It may be called again after it was undone, so it may do nothing else than work
        on the connection: an `apsw.Connection` of the store's own file, or of a database in memory beside a store in memory; a
        `psycopg.Connection` where the store is in PostgreSQL. It can't write to the store's tables or end the transaction, and its SQL is
        ended after 5 s, as others wait for it meanwhile.

        Raises `UsageError` where the call is not transactional.
        """
        if self.effect != "transactional":
            raise UsageError(f"a call that is {self.effect} has no transaction", hint='declare the tool with effect="transactional"')
        self.asked.append(InTransaction(function, args))
        return self.asked[-1]

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        effect: EffectClass = "external",
        timeout: float | None = None,
        reconcile: Callable[..., Any] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Do a part of the call under a name of its own, and return its JSON result: intent before, receipt after. Await it.

        When the call runs again (after a restart if the tool is ``resumable``, pure, idempotent or transactional; after *not done* or
        *retry* if it is external), a step that ended returns what it returned, and ``function`` is not called. One that was in flight
        goes by its ``effect``, as a tool does: external is uncertain, unless ``reconcile(*args)`` answers `Done`, `NotDone` or `Unknown`;
        the rest is done again under the same key (`step_key`). A ``transactional`` function gets the connection of the commit that holds
        its receipt before its own arguments, as in `transaction`. ``timeout`` is in seconds. Steps with different names may run at the
        same time.

        Raises `EffectFailed` if the function raised, now or when it ran, or the call is over; `EffectUncertain` where nobody knows;
        `UsageError` for a name that is taken in this attempt, was a sleep's or can't be one, in a tool that isn't async, for an effect in
        a pure one, and where what is to be done again has another ``effect`` than when it began.
        """
        if self.outside is None:
            raise UsageError("nothing can be done outside here", hint="steps are for async tools, while they run")
        self._check_name(name)
        if effect not in get_args(EffectClass):
            raise UsageError(f"effect={effect!r} is unknown", hint=f"one of {', '.join(get_args(EffectClass))}")
        if self.effect == "pure" and effect != "pure":
            raise UsageError(f"a pure tool has no {effect} step", hint="declare the tool as what its steps do")
        if timeout is not None and not is_seconds(timeout):
            raise UsageError(f"timeout={timeout!r} must be a number of seconds")
        if not callable(function) or (reconcile is not None and not callable(reconcile)):
            raise UsageError("a step takes a function, and its arguments behind it")
        self.begun.add(name)
        return self.outside(name, function=function, args=args, effect=effect, timeout=timeout, reconcile=reconcile)

    def sleep_until(self, name: str, moment: Moment) -> Coroutine[Any, Any, None]:
        """Wait until a time, for seconds or months, in a step of that name. Await it.

        Nobody waits meanwhile: the attempt ends here, cancelled, and the session is held by no process because of it. When the time has
        come, the call runs again from its beginning as its next attempt, in whatever process; steps that ended return what they returned,
        and so does this. ``moment`` is a `datetime` with a time zone, a `timedelta` from now on, or milliseconds since 1970; the one that
        was given first counts. Nothing else of the call may be under way, since it would be cut off; a step that a ``finally`` asks for as
        the call falls asleep is not begun. Ten years are the longest. Interrupting the turn ends it.

        Raises `UsageError` where the tool isn't ``resumable``, for what is no time, beside another step, and for a name that was a
        step's or can't be one; `EffectFailed` if the call is over.
        """
        if self.sleeping is None:
            raise UsageError("this call can't sleep", hint="resumable tools can, while they run: @tool(resumable=True)")
        self._check_name(name)
        self.begun.add(name)
        return self.sleeping(name, moment)

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str) or not _STEP.fullmatch(name):
            raise UsageError(f"{name!r:.100} can't be a step's name", hint="1 to 64 letters, digits, '_' or '-'")
        if name in self.begun:
            raise UsageError(f"this call has a step {name!r} already", hint="give each step a name of its own, such as one with a number")

    def step_key(self, name: str) -> str:
        """The idempotency key of the step of that name: the same in every attempt of the call."""
        return self.key(name)

    @property
    def owner(self) -> str:
        """Whom the session belongs to."""
        return self.identity.owner


ReconcileContext = ToolContext
"""What a ``reconcile`` function is told: the identity of the call that it asks about."""
