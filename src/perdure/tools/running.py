"""How a user's function runs: in a task or in a thread of its own, with every way in which it may end as its outcome."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from ..core.words import said
from .schema import unkept
from .transaction import InTransaction

__all__ = ["Running", "ToolCancelled", "ToolError", "ToolFault", "begin", "makes_coroutine"]

_T = TypeVar("_T")
_log = logging.getLogger("perdure.tools")

_alive: set[asyncio.Task[Any]] = set()
"""Tasks whose caller may have gone: the event loop itself holds them too loosely to keep them."""


class ToolError(Exception):
    """Raise it in a tool to say: this *failed*, for certain, and nothing happened that matters. The model reads the message."""


class ToolFault(RuntimeError):
    """A tool ended in a way that must not reach the runtime as it is: ``SystemExit``, ``KeyboardInterrupt``, a cancellation of its own."""


class ToolCancelled(ToolFault):
    """A tool ended because `Running.cancel` asked it to."""


class Running(Generic[_T]):
    """A function that was started, in a task if it is async, else in a thread of its own."""

    __slots__ = ("_ended", "_task")

    def __init__(self, ended: asyncio.Future[_T], task: asyncio.Task[None] | None) -> None:
        self._ended = ended
        self._task = task

    @property
    def done(self) -> bool:
        """Whether the function has really ended."""
        return self._ended.done()

    @property
    def ended(self) -> asyncio.Future[_T]:
        """The future of the real end, for `asyncio.wait`; who cancels it, breaks it."""
        return self._ended

    @property
    def late(self) -> asyncio.Future[_T]:
        """A future for the real end, with what `wait` would return or raise. A new one each time: cancelling it disturbs nobody."""
        return asyncio.shield(self._ended)

    async def wait(self) -> _T:
        """Wait for the end and return the result, or raise what the function raised (`ToolFault` for what is no `Exception`).

        Raises `ToolCancelled` if it ended because of `cancel`. Cancelling the waiter stops only the waiting.
        """
        return await self.late

    def cancel(self) -> None:
        """Ask an async function to stop. A thread can't be stopped: it goes on, and `late` tells its end. Returns at once."""
        if self._task is not None:
            self._task.cancel()

    async def finish(self) -> _T:
        """`wait`, except that cancelling the waiter cancels the function, and an async one has ended when this raises."""
        try:
            return await self.wait()
        except asyncio.CancelledError:
            self.cancel()
            if self._task is not None:
                await asyncio.wait([self._ended])
            raise


def begin(
    name: str,
    function: Callable[..., Any],
    kwargs: dict[str, Any],
    *,
    is_async: bool,
    then: Callable[[Any], _T],
    quick: Callable[[Any], bool] = lambda _: True,
) -> Running[_T]:
    """Start a function of the user's, and hand what it returns to ``then``: where it ran, or in a thread if it is async and ``then`` isn't
    ``quick`` with it. Context variables are those of the caller.

    Must be called in a running event loop. It raises nothing: whatever goes wrong is the outcome. A sync function runs in a daemon
    thread of its own, so that one that blocks for ever keeps neither another call nor the end of the process waiting.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[_T] = loop.create_future()
    # An end that nobody waits for any more is no mistake; without this asyncio would log it as one.
    ended.add_done_callback(_seen)
    if not is_async:
        _begin_thread(name, function, kwargs, then, ended)
        return Running(ended, None)
    task = loop.create_task(_in_task(name, function, kwargs, then, quick, ended), name=f"perdure tool {name}")
    task.add_done_callback(partial(_gone, name, ended))
    _alive.add(task)
    return Running(ended, task)


def _seen(future: asyncio.Future[Any]) -> None:
    future.exception()


def _gone(name: str, ended: asyncio.Future[Any], task: asyncio.Task[None]) -> None:
    _alive.discard(task)
    if not ended.done():
        # It was cancelled before its first step.
        ended.set_exception(ToolCancelled(f"{name} was cancelled"))


def _begin_thread(
    name: str, function: Callable[..., Any], kwargs: dict[str, Any], then: Callable[[Any], _T], ended: asyncio.Future[_T]
) -> None:
    loop = ended.get_loop()

    def settle(result: Any, error: Exception | None) -> None:
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = then(_no_awaitable(function(**kwargs), "declare it with `async def`"))
        except BaseException as error:
            failure = _as_failure(error)
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            _log.warning("%s ended after its event loop was closed; its outcome is lost to this process", name)

    try:
        threading.Thread(target=contextvars.copy_context().run, args=(work,), name=f"perdure tool {name}", daemon=True).start()
    except RuntimeError:
        # It is certain that nothing ran, and `ToolError` is what says so.
        ended.set_exception(ToolError(f"{name} was not started: this process can't start another thread"))


async def _in_task(
    name: str,
    function: Callable[..., Any],
    kwargs: dict[str, Any],
    then: Callable[[Any], _T],
    quick: Callable[[Any], bool],
    ended: asyncio.Future[_T],
) -> None:
    """Run an async function, and settle ``ended`` from here: a callback of the task would tell it one round of the loop later."""
    try:
        value = _no_awaitable(await function(**kwargs), "await it in the function")
        result = then(value) if quick(value) else await _in_thread(then, value)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            ended.set_exception(ToolCancelled(f"{name} was cancelled"))
        else:
            # Nobody asked for it: it comes from something inside the tool, and may not pass for a cancellation of the runtime.
            ended.set_exception(_as_failure(error))
    except BaseException as error:
        # Here, not where the task ends: asyncio would raise some of them out of the whole event loop. One that is closed throws away
        # what is left, and nobody waits for it.
        if not ended.get_loop().is_closed():
            ended.set_exception(_as_failure(error))
    else:
        ended.set_result(result)


async def _in_thread(then: Callable[[Any], _T], value: Any) -> _T:
    """What is made of a large result, without holding up everything else on the loop. The function has ended: nothing stops it now."""
    made = begin("result", lambda: value, {}, is_async=False, then=then)
    while not made.done:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([made.ended])
    try:
        return made.ended.result()
    except ToolError:
        # No thread could be started, which says nothing of the function: it ran.
        return then(value)


def _as_failure(error: BaseException) -> Exception:
    # A future refuses StopIteration, and the call would never end.
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    message = said(error)
    fault = ToolFault(f"it raised {type(error).__name__}" + (f": {message}" if message else ""))
    fault.__cause__ = error
    return fault


def _no_awaitable(value: _T, cure: str) -> _T:
    if inspect.isawaitable(value) and not isinstance(value, InTransaction):
        if inspect.iscoroutine(value):
            value.close()
        raise unkept(f"the function returned an awaitable and nothing awaited it: {cure}")
    return value


def makes_coroutine(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine; objects with an async ``__call__`` count."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
