"""What must be true of callers and their children: what one was told is what the other came to, and none outlives its caller for long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..core import checkpoint as checkpoints
from ..core.entries import ChildEnded, OperationEnded, OperationStarted, SessionCreated, TurnEnded
from .past import Past

__all__ = ["children_of", "family_problems"]

STOPPED = 90_000
"""How long a child may go on of which its caller needs nothing any more, whatever happens to those who stop it (virtual milliseconds)."""


def children_of(pasts: Mapping[str, Past], session: str) -> Iterator[Past]:
    """The sessions that were begun for a session, and for those."""
    for past in pasts.values():
        if past.row.parent_kind == "child" and past.row.parent == session:
            yield past
            yield from children_of(pasts, past.row.session_id)


def family_problems(pasts: Mapping[str, Past]) -> Iterator[str]:
    """Sentences about what callers and children say of each other that is not so."""
    for past in pasts.values():
        if past.row.parent_kind == "child":
            for problem in _wrong(past, pasts.get(past.row.parent or "")):
                yield f"{past.row.session_id}: {problem}"
        if past.row.status == "idle" and (left := checkpoints.decode(past.row.checkpoint).background):
            yield f"{past.row.session_id}: it still waits for {[item.operation for item in left]} in the background"


def _wrong(child: Past, caller: Past | None) -> Iterator[str]:
    created = child.entries[0]
    assert isinstance(created, SessionCreated)
    assert created.parent is not None
    operation = created.parent.operation
    if caller is None:
        yield "nobody called it"
        return
    if caller.deleted and not child.deleted:
        yield "its caller was deleted, and it was not"
    about = [entry for entry in caller.entries if getattr(entry, "operation", None) == operation]
    if not any(isinstance(entry, OperationStarted) for entry in about):
        yield "its caller never called it"
    ends = [entry for entry in about if isinstance(entry, OperationEnded | ChildEnded)]
    told = [entry for entry in ends if entry.spent is not None]
    if len(told) > 1:
        yield f"its caller was told {len(told)} times what it came to"
    came = next((entry for entry in child.entries if isinstance(entry, TurnEnded)), None)
    for entry in told:
        outcome = entry.outcome if isinstance(entry, ChildEnded) else "completed" if entry.status == "succeeded" else ""
        if came is not None and (came.outcome == "completed") != (outcome == "completed"):
            yield f"it came to {came}, and its caller was told {entry}"
        if came is not None and entry.spent != came.usage:
            yield f"it used {came.usage}, and its caller was told {entry}"
    given_up = next((entry.at for entry in ends if isinstance(entry, OperationEnded) and entry.spent is None), None)
    if given_up is not None and not created.parent.background:
        late = [entry for entry in child.entries if isinstance(entry, OperationStarted) and entry.at > given_up + STOPPED]
        if late:
            yield f"its caller gave it up at {given_up}, and it began {late[0]}"
