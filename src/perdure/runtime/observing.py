"""Who watches what this process does, to measure it: metrics, traces, logs.

Nothing durable depends on them, and nothing that they do changes a session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Generic, NamedTuple, TypeVar

from ..core.checkpoint import Checkpoint, Operation
from ..core.entries import Entry

__all__ = ["Change", "Observer", "Observers", "Times"]

K = TypeVar("K")

_log = logging.getLogger("perdure.runtime")


class Change(NamedTuple):
    """One commit that is durable: its entries, and the session's checkpoint before and after them."""

    store_id: str
    session_id: str
    entries: Sequence[Entry]
    before: Checkpoint
    after: Checkpoint

    def operation(self, identity: str) -> Operation | None:
        """The operation that one of the entries speaks of; None where it stands in none of the checkpoints any more."""
        return self.before.operation(identity) or self.after.operation(identity)


class Times(Generic[K]):
    """When things of a session began that have not ended yet, as far as this process committed it.

    What another process ended is let go with the next turn that is seen to end, and of more than ``limit`` sessions the oldest is.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._sessions: dict[str, dict[K, int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def began(self, session_id: str, what: K, at: int) -> None:
        """It begins."""
        known = self._sessions.pop(session_id, {})
        known[what] = at
        # Behind all others: those that nothing was heard of for the longest time go first.
        self._sessions[session_id] = known
        if len(self._sessions) > self._limit:
            del self._sessions[next(iter(self._sessions))]

    def ended(self, session_id: str, what: K) -> int | None:
        """It ends; when it began."""
        return self._sessions.get(session_id, {}).pop(what, None)

    def settle(self, change: Change) -> None:
        """Nothing of a session runs when no turn of it does."""
        if change.after.turn is None:
            self._sessions.pop(change.session_id, None)


class Observer:
    """Sees every commit that this process made, in each session's order. Override what is wanted.

    Both methods are called on the event loop and must not wait. What they raise is logged, and changes nothing. What another process
    committed is that process's to observe; to read whole journals, use a consumer.
    """

    def committed(self, change: Change) -> None:
        """Something is durable."""

    def performing(self, store_id: str, session_id: str, operation: Operation) -> AbstractContextManager[object]:
        """What surrounds a model or tool call while it runs here, such as the context of a span."""
        return nullcontext()


class Observers:
    """All of a runtime's observers."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)

    def __bool__(self) -> bool:
        return bool(self._observers)

    def committed(self, change: Change) -> None:
        """Tell everybody; one's fault is not another's."""
        for observer in self._observers:
            try:
                observer.committed(change)
            except Exception:
                _log.exception("an observer failed at a commit of %s", change.session_id)

    @contextmanager
    def performing(self, store_id: str, session_id: str, operation: Operation) -> Iterator[None]:
        """Everybody's surroundings of an effect, the first one's outermost."""
        with ExitStack() as stack:
            for observer in self._observers:
                try:
                    stack.enter_context(_Forgiving(observer.performing(store_id, session_id, operation)))
                except Exception:
                    _log.exception("an observer failed around %s in %s", operation.id, session_id)
            yield


class _Forgiving:
    """An observer's surroundings, whose end can't change what an effect came to."""

    def __init__(self, manager: AbstractContextManager[object]) -> None:
        self._manager = manager

    def __enter__(self) -> None:
        self._manager.__enter__()

    def __exit__(self, *raised: object) -> None:
        try:
            self._manager.__exit__(*raised)  # type: ignore[arg-type]
        except Exception:
            _log.exception("an observer failed at the end of an effect")
