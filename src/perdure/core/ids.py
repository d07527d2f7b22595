"""Derived ids: a command carries one time and no randomness, so what it makes has the same name whenever it is decided again."""

from __future__ import annotations

from typing import Any, Literal, get_args

from . import canonical
from .records import Plan


def request_id(kind: str, operation: str, attempt: int, arguments: str) -> str:
    """A decision binds what the person saw: other arguments are another request."""
    return canonical.short_digest(kind, operation, attempt, arguments)[:16]


def approval_id(operation: str, plan: Plan) -> str:
    """An earlier effect that is shown with the call is part of what the person sees."""
    seen = plan.arguments if plan.match is None else f"{plan.arguments} {plan.match.seq} {plan.match.session}".rstrip()
    return request_id("approval", operation, 1, seen)


def rejected_digest(said: str, actor: str) -> str:
    """What is left of a message that was rejected: the digest of what it said, bound to who sent it."""
    return canonical.short_digest(said, actor)


def began(identity: str) -> int:
    """The seq of the entry that a turn began with, by the id of the turn or of an operation in it; 0 for what is no such id."""
    digits = owner_of(identity)[1:]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 0


def owner_of(operation: str) -> str:
    """The turn that an operation belongs to, or the call from outside, by its id."""
    return operation.split(".", 1)[0]


def turn_of(operation: str) -> str:
    """The turn that an operation belongs to, by its id; empty for work outside of turns."""
    return "" if is_outside(operation) else owner_of(operation)


def call_of(step: str) -> str:
    """The call in which something is done outside, by the id of that; the id of anything else is its own."""
    return step.split("/", 1)[0]


def child_session(session: str, operation: str) -> str:
    """The session of the child that an operation calls for: found again after a restart, and another in a fork."""
    name = f"{session}.{operation}"
    return name if len(name.encode()) <= 512 else f"child.{canonical.short_digest(session, operation)}"


Derived = Literal["task", "withdraw", "stop", "away", "outcome", "report", "result"]


def derived_id(what: Derived, operation: str) -> str:
    """The submission in which something about an operation is told: a child is given its ``task``, has it withdrawn or is to ``stop`` or
    go ``away``; a parent learns its child's ``outcome``, or its ``report`` from the background; a ``result`` is what an attempt came to.
    """
    return f"{what}:{operation}"


def is_derived(submission: str) -> bool:
    """Whether a submission is called as `derived_id` calls one: what is told under that name is told once."""
    what, _, operation = submission.partition(":")
    return what in get_args(Derived) and operation[:1] in ("t", "s") and operation.count(".") >= 2 and began(operation) > 0


def is_report(submission: str, sender: str, session: str) -> bool:
    """Whether a submission is what a child of this session, which ``sender`` names, says that it came to."""
    operation = submission.removeprefix("report:")
    return operation != submission and sender == child_session(session, operation)


def is_outside(identity: str) -> bool:
    """Whether a turn, or an operation in it, is a call that somebody wants outside of the conversation."""
    return identity.startswith("s")


def once_key(extension: str, key: str) -> str:
    """What a session remembers of guidance that is given once."""
    return canonical.short_digest(extension, key)[:16]


def arguments_digest(arguments: Any) -> str:
    """What a decision and an operation know of a call's arguments."""
    return canonical.digest(canonical.encode(arguments))[:32]


def idempotency_key(store_id: str, session_id: str, operation: str) -> str:
    """The same after a restart, an approval or a month; another in a fork."""
    return "pd_" + canonical.short_digest(store_id, session_id, operation)[:32]
