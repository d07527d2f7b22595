"""Signals that say stop: they end the work here in order, instead of ending the process in the middle of it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.errors import UsageError

__all__ = ["Stopped", "Stopping"]

_log = logging.getLogger("perdure.runtime")


class Stopped(SystemExit):
    """A signal said stop, and the runtime was closed in order: a `SystemExit`, so the program ends.

    ``code`` is the exit code, 128 and the signal's number, as shells have it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)
        self.code: int = 128 + number


class Stopping:
    """The signals that one runtime answers, from `take` until `give_back`. Handlers that the program has set stay its own."""

    def __init__(self) -> None:
        self.caught: int | None = None
        """The first signal that was no callable's."""
        self.closing = False
        """The work is being ended already, and must not be cut off by its own signal."""
        self._task: asyncio.Task[Any] | None = None
        self._then: Callable[[], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._taken: dict[int, tuple[Any, Any]] = {}

    def take(self, numbers: tuple[int, ...], then: Callable[[], object] | None) -> None:
        """Have signals call ``then``, or cancel the current task. Raises `UsageError` for no signal, and outside the main thread."""
        if not numbers:
            raise UsageError("stop_on needs the signals that it is about", hint="runtime.stop_on(signal.SIGTERM)")
        if threading.current_thread() is not threading.main_thread():
            raise UsageError("signals reach a program's main thread only", hint="stop_on belongs into the event loop that runs there")
        self._loop, self._task, self._then = asyncio.get_running_loop(), asyncio.current_task(), then
        self._pid = os.getpid()
        for number in numbers:
            stood = signal.getsignal(number)
            if number in self._taken and stood == self._taken[number][0]:
                continue
            if not _nobodys(stood):
                _log.info("%s is left to the handler that the program has set for it", signal.Signals(number).name)
                continue
            mine = self._arrived
            signal.signal(number, mine)
            # What other threads write and sync must not be cut off by it.
            signal.siginterrupt(number, False)
            self._taken[number] = mine, stood

    def give_back(self) -> None:
        """The signals do again what they did before, where nobody else has taken them since."""
        for number, (mine, stood) in self._taken.items():
            if signal.getsignal(number) == mine:
                signal.signal(number, stood)
        self._taken.clear()

    def _arrived(self, number: int, frame: object) -> None:
        """It may come between any two instructions, so all it does is to tell the loop."""
        if os.getpid() != self._pid or self._loop is None or self._loop.is_closed():
            # A child that was forked has the handler and not the loop; nor has a loop that ended without closing its runtime.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._loop.call_soon_threadsafe(self._stop, number)

    def _stop(self, number: int) -> None:
        if self._then is not None:
            if not self.closing:
                self._then()
            return
        # Without it the program ends with the signal, also where that meets a runtime that closes by itself.
        first, self.caught = self.caught is None, number if self.caught is None else self.caught
        if first and not self.closing and self._task is not None:
            self._task.cancel()


def _nobodys(handler: Any) -> bool:
    """Whether a signal does what it does in a program that says nothing about it; `asyncio.run` has a handler of its own for Ctrl-C."""
    if isinstance(handler, partial):
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler in (signal.SIG_DFL, signal.default_int_handler)
