"""The values inside entries: what several kinds of fact say in the same words."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from . import canonical

__all__ = [
    "ALL_TOOLS",
    "MODEL_KINDS",
    "Amounts",
    "Attempt",
    "Decision",
    "EffectClass",
    "EffectMatch",
    "Ending",
    "Errand",
    "Failure",
    "Finishing",
    "Hold",
    "Identity",
    "Limits",
    "Metadata",
    "OperationKind",
    "Parent",
    "Plan",
    "Pool",
    "Reached",
    "RedactedRow",
    "RequestRecord",
    "ResponseReference",
    "Scope",
    "Status",
    "Terms",
    "ToolPolicy",
]

OperationKind: TypeAlias = Literal["model", "tool", "compaction", "memory", "repair", "ask", "step", "child", "timer", "handoff"]

MODEL_KINDS: frozenset[str] = frozenset({"model", "compaction", "memory", "repair"})
"""The operations that are calls of a model: each is asked with a `RequestRecord`, and its receipt says what it used."""

CALL_KINDS: frozenset[str] = frozenset({"tool", "child", "timer", "handoff"})
"""What a call that a model asks for can become: each has exactly one response."""

EffectClass: TypeAlias = Literal["pure", "idempotent", "transactional", "external"]
Status: TypeAlias = Literal["succeeded", "failed", "uncertain", "cancelled"]
Decision: TypeAlias = Literal["approve", "grant", "deny", "abort", "settle", "retry", "reply"]
Ending: TypeAlias = Literal["completed", "aborted", "failed", "limited"]
Scope: TypeAlias = Literal["turn", "run", "session", "owner"]
Hold: TypeAlias = Literal["results", "output", "end"]
Finishing: TypeAlias = Literal["answer", "tool", "ask"]


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """A value inside an entry."""


class Identity(Record, frozen=True, kw_only=True):
    """Whom a session belongs to; set when it is created, and never overwritten by whoever resumes it."""

    owner: str = ""
    tenant: str = ""
    user: str = ""
    workspace: str = ""
    origin: str = ""


class Metadata(Record, frozen=True, kw_only=True):
    """What a session's owner notes about it: a map of names to JSON values. A long one stands in the blob of that ``digest`` instead."""

    values: dict[str, Any] = {}
    digest: str = ""


class ToolPolicy(Record, frozen=True, kw_only=True):
    """Which of its agent's tools a session may use: those in ``only`` (None is all of them) but for those in ``never``.

    Calls of those in ``ask`` need a person. It takes away and never gives: what the agent's own policy asks about or denies stays so.
    """

    only: tuple[str, ...] | None = None
    never: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()

    def permits(self, name: str) -> bool:
        """Whether the tool of that name may be used."""
        return name not in self.never and (self.only is None or name in self.only)


ALL_TOOLS = ToolPolicy()
"""No policy of its own: the one object, so that it is never written."""


class Limits(Record, frozen=True, kw_only=True):
    """Where a turn ends as *limited*. ``None`` is no limit, but that an agent's turn has 50 steps if its agent says nothing about them.

    ``tokens`` are those of input and output together. ``model_calls`` counts every call that is sent, retries and notes included.
    ``cost`` is in billionths of a US dollar (`usd`). ``seconds`` is time in which a model or tool runs, or waits to be tried again; a model
    is cut off when it is over, a tool never. ``strict``: a limit of tokens or cost is reached, too, as soon as nobody knows what a call
    used.

    A call beyond an agent's ``children`` (agents that a turn calls, and that run behind at once), ``depth`` (of agents that call agents) or
    ``handoffs`` is answered with an error instead, and the turn goes on. So is a call of an agent in the background once as many turns as
    ``reports`` in a row were begun by what such agents reported, without a word of anybody else in between.
    """

    steps: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    model_calls: int | None = None
    cost: int | None = None
    seconds: int | None = None
    strict: bool = False
    children: int | None = 16
    depth: int | None = 4
    handoffs: int | None = 10
    reports: int | None = 50


class Terms(Record, frozen=True, kw_only=True):
    """What an agent's definition decides about a turn of its.

    Models see only an excerpt of results that are longer than ``archive`` bytes; 0 is no limit. ``holds`` are the moments at which the
    agent's own code has a say before the turn goes on: between the results of a step and the message that tells them, between an answer
    and the message that it is, and between the decision to end and the end. ``finish`` is what ends the turn, ``repairs`` how often the
    model may correct an answer that is not what it has to be.
    """

    archive: int = 0
    holds: tuple[Hold, ...] = ()
    finish: Finishing = "answer"
    repairs: int = 0


class Parent(Record, frozen=True, kw_only=True):
    """Whose child a session is: the ``operation`` of ``session`` that called for it, as the tool ``name``. Roots have the ``depth`` 0.

    ``background``: nobody waits for it, and what it comes to is told in a message.
    """

    session: str
    operation: str
    name: str
    depth: int
    background: bool = False


class Errand(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a session still owes to another one, since no transaction spans two: ``begin`` or ``stop`` the child that an operation called
    for, put it ``away``, or ``tell`` the parent what the turn came to that ended with the entry ``seq``."""

    kind: Literal["begin", "stop", "away", "tell"]
    operation: str
    seq: int = 0


class Amounts(Record, frozen=True, kw_only=True):
    """How much of what can be limited.

    ``unknown`` counts model calls that nobody knows the tokens of, ``unpriced`` those whose price was looked for and is unknown.
    """

    steps: int = 0
    tool_calls: int = 0
    model_calls: int = 0
    tokens: int = 0
    cost: int = 0
    ms: int = 0
    unknown: int = 0
    unpriced: int = 0


class Reached(Record, frozen=True, kw_only=True):
    """Whose limit was reached, and how much of it was used. ``unknown``: nobody knows that any more, and the limit is strict."""

    scope: Scope
    used: int
    allowed: int
    unknown: bool = False


class Pool(Record, frozen=True, kw_only=True):
    """What all turns of an owner's sessions may use together, and what they drew of it.

    ``id`` is another one whenever the pool is made anew.
    """

    id: str
    limits: Limits
    drawn: Amounts = Amounts()


class Failure(Record, frozen=True, kw_only=True):
    """Why something failed: a stable code and a sentence.

    Of a model's provider also its HTTP ``status``, whether the same request may succeed later, and after how many ms by its own hint.
    """

    code: str
    message: str = ""
    retryable: bool = False
    status: int | None = None
    retry_after: int | None = None


class EffectMatch(Record, frozen=True, kw_only=True):
    """An earlier effect that a planned call would repeat; ``session`` is where, empty for here.

    ``beyond``: its call is not in the transcript any more, or never was in this branch's; ``other``: it was another call of the same tool.
    """

    operation: str
    seq: int
    state: str
    session: str = ""
    beyond: bool = False
    other: bool = False


class Plan(Record, frozen=True, kw_only=True):
    """What an operation is, fixed when it is planned.

    ``call`` is the id in the tool_call part that asked for it; ``effect_key`` is the digest of what the tool's ``key`` selects, empty if
    there is no effect to know again. ``resumable``: it may run again after a restart, since what it does outside stands in steps of its
    own. ``unique`` is the digest of what only one call of the whole store may do, empty if any may. A compaction summarises the messages
    that stand before the position ``upto``; an extraction of what to remember covers them, when the context had about ``tokens`` tokens.
    ``ends``: the call ends the turn, and this argument of it is the output, ``*`` all of them. ``asks``: the call is a question to the
    user, and runs nowhere.
    ``agent`` is who is called as a child, in the ``background`` or not, or who takes the session over; ``allowance`` is what that child may
    use. ``until`` is when a timer fires, or a step that is one, or when a child is given up (ms since 1970).
    """

    kind: OperationKind
    name: str = ""
    effect: EffectClass = "pure"
    call: str = ""
    arguments: str = ""
    effect_key: str = ""
    exclusive: bool = False
    reconcile: bool = False
    ask_when_uncertain: bool = False
    resumable: bool = False
    unique: str = ""
    upto: int = 0
    ends: str = ""
    asks: bool = False
    tokens: int = 0
    match: EffectMatch | None = None
    agent: str = ""
    background: bool = False
    until: int = 0
    allowance: Limits | None = None


class RequestRecord(Record, frozen=True, kw_only=True):
    """What a model call saw: references and digests that are enough to print the request again.

    ``additions`` is the content that says what an extension made of this one request, empty if nothing.
    The writer of a compaction's notes saw the context before the position ``upto``, behind the notes in the receipt ``notes`` where an
    earlier one of the same preparation left them, and ``additions`` behind it. ``output`` is the content that says what the answer has to
    be. A repair was shown the answer in the receipt ``candidate`` behind the context, and what is wrong with it in ``additions``.
    Whoever looks for something to remember saw ``additions``, and the messages of the context from the position ``since`` to ``upto``.
    Behind the instructions stands what the session remembers, as the entry ``memory`` says.
    """

    route: str
    context: str
    epoch: int
    instructions: str
    tools: str
    settings: str
    digest: str = ""
    upto: int | None = None
    notes: int = 0
    additions: str = ""
    output: str = ""
    candidate: int = 0
    since: int | None = None
    memory: int = 0

    def with_digest(self) -> RequestRecord:
        """The record with its digest, which is the same exactly for the same facts."""
        return replace(self, digest=canonical.digest(canonical.encode(replace(self, digest=""))))


class ResponseReference(Record, frozen=True, kw_only=True):
    """One call's response in a tool message, and the entry that holds it.

    ``replaced``: the model reads another one, which is the next of the message's parts.
    """

    id: str
    receipt: int
    replaced: bool = False


class Attempt(Record, frozen=True, kw_only=True):
    """One attempt that a recovery found in flight, and what it said of it."""

    operation: str
    attempt: int
    status: Status | Literal["open"]


class RedactedRow(Record, frozen=True, kw_only=True):
    """An entry whose content is gone, and what is left of its body. The body's ``digest`` stands beside it, in two halves: that of a tool's
    response is the name of its content as well, and stores keep what a whole name refers to."""

    seq: int
    kind: str
    body: dict[str, Any]
    digest: tuple[str, ...] = ()
