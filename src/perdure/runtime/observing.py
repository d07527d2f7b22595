"""Who watches what this process does, to measure it: metrics, traces, logs.

Nothing durable depends on them, and nothing that they do changes a session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import NamedTuple

from ..core.checkpoint import Checkpoint, Operation
from ..core.entries import Entry

__all__ = ["Change", "Observer", "Observers"]

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
