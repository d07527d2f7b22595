"""Who wants to know what changes in a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Listeners"]


class Listeners:
    """``follow`` is told when somebody begins to listen, and when nobody does any more."""

    def __init__(self, follow: Callable[[bool], None]) -> None:
        self._follow = follow
        self._listeners: dict[object, Callable[[int | None], None]] = {}

    def add(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        """Have somebody told; what this returns ends it."""
        token = object()
        self._listeners[token] = listener
        if len(self._listeners) == 1:
            self._follow(True)

        def stop() -> None:
            if self._listeners.pop(token, None) is not None and not self._listeners:
                self._follow(False)

        return stop

    def tell(self, no: int | None) -> None:
        """Something changed in a session, or (None) in any. Called on the loop."""
        for token, listener in list(self._listeners.items()):
            if token in self._listeners:
                try:
                    listener(no)
                except Exception as error:
                    # One listener's fault is not another's.
                    asyncio.get_running_loop().call_exception_handler(
                        {"message": "a listener to a store's changes failed", "exception": error}
                    )

    def clear(self) -> None:
        """Nobody is told anything any more."""
        self._listeners.clear()
