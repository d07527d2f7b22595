"""What an agent's own code does outside: an operation of kind ``step``, with its intent before and its receipt after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..core import canonical
from ..core.checkpoint import Checkpoint, Operation
from ..core.errors import EffectFailed, EffectUncertain, LimitExceeded, NotCanonical, UsageError
from ..core.ids import arguments_digest
from ..core.messages import ToolCallResponse
from ..core.records import EffectClass, Failure, Plan
from ..core.reports import AttemptEnded, BeginStep
from ..core.words import words
from ..tools.tool import ToolCancelled, ToolError, begin, makes_coroutine
from .batch import Batch
from .clock import Clock
from .context import Fetch, resolve_parts
from .ledger import Ledger
from .perform import Outcome, keep_parts

__all__ = ["LETTING_GO_SECONDS", "Steps"]

LETTING_GO_SECONDS = 5.0
"""How long a hook, or what it does outside, may take to let go once it is cancelled."""


class Steps:
    """The outside work of one session's hooks. `propose` puts what is to begin into a commit; `committed` lets it begin, or go on.

    ``report`` gets the receipts, for the next commit. Nothing here begins before its intent is durable, and nothing that was begun is
    begun again unless a recovery says that it may.
    """

    def __init__(
        self,
        *,
        checkpoint: Callable[[], Checkpoint],
        ledger: Ledger,
        fetch: Fetch,
        clock: Clock,
        report: Callable[[Outcome], None],
        wake: Callable[[], None],
    ) -> None:
        self._checkpoint = checkpoint
        self._ledger = ledger
        self._fetch = fetch
        self._clock = clock
        self._report = report
        self._wake = wake
        self._wishes: dict[str, tuple[Plan, asyncio.Future[None]]] = {}
        self._news: set[asyncio.Future[None]] = set()
        self._busy: set[str] = set()

    @property
    def wanted(self) -> bool:
        """Whether something waits for its intent."""
        return bool(self._wishes)

    def propose(self, batch: Batch, fence: int) -> None:
        """Write the intents of what is to begin."""
        for identity, (plan, begun) in self._wishes.items():
            turn = batch.checkpoint.turn
            if turn is None or identity.split(".", 1)[0] != turn.id:
                continue
            try:
                batch.apply(BeginStep(operation=identity, plan=plan, fence=fence, at=batch.now))
            except LimitExceeded as error:
                if not begun.done():
                    begun.set_exception(EffectFailed(str(error)))

    def committed(self) -> None:
        """Something was committed: look again."""
        for news in self._news:
            if not news.done():
                news.set_result(None)
        self._news.clear()

    async def perform(
        self,
        identity: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        effect: EffectClass,
        timeout: float | None,
    ) -> Any:
        """The result of an operation, which is carried out unless it was before. See `HookContext.effect`."""
        if identity in self._busy:
            raise UsageError(f"{identity} is being done already", hint="give each effect of a hook a name of its own")
        self._busy.add(identity)
        try:
            return await self._perform(identity, function, args, effect, timeout)
        finally:
            self._busy.discard(identity)

    async def _perform(
        self,
        identity: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        effect: EffectClass,
        timeout: float | None,
    ) -> Any:
        plan = Plan(kind="step", name=identity.rsplit("/", 1)[1], effect=effect, arguments=_digest(args))
        while True:
            item = self._checkpoint().operation(identity)
            if item is not None and item.status == "ended":
                return await self._result(item)
            if item is None or item.status == "ready":
                attempt = (item.attempt if item is not None else 0) + 1
                begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._wishes[identity] = plan, begun
                self._news.add(begun)
                self._wake()
                try:
                    await begun
                finally:
                    self._wishes.pop(identity, None)
                    self._news.discard(begun)
                item = self._checkpoint().operation(identity)
                if item is not None and (item.status, item.attempt) == ("started", attempt):
                    await self._carry_out(item, function, args, timeout)
                    self._wake()
                continue
            # Its receipt is on its way.
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._news.add(news)
            await news

    async def _carry_out(self, item: Operation, function: Callable[..., Any], args: tuple[Any, ...], timeout: float | None) -> None:
        name = item.plan.name
        running = begin(name, lambda: function(*args), {}, is_async=makes_coroutine(function), then=lambda result: _kept(name, result))
        timer = None if timeout is None else asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + round(timeout * 1000)))
        ended = running.ended
        try:
            await asyncio.wait([ended] if timer is None else [ended, timer], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([ended], timeout=LETTING_GO_SECONDS if makes_coroutine(function) else 0)
            self._tell(item, ended, Failure(code="interrupted", message="interrupted"))
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if not ended.done():
            running.cancel()
            await asyncio.wait([ended], timeout=LETTING_GO_SECONDS if makes_coroutine(function) else 0)
        self._tell(item, ended, Failure(code="timeout", message=f"no result within {timeout} s"))

    def _tell(self, item: Operation, ended: asyncio.Future[Any], cut_off: Failure) -> None:
        """The receipt: what it came to, or that it was ``cut_off``."""
        report = AttemptEnded(operation=item.id, attempt=item.attempt, status="succeeded", at=self._clock.now())
        external = item.plan.effect == "external"
        error = None if not ended.done() else ended.exception()
        if not ended.done() or isinstance(error, ToolCancelled):
            again = cut_off.code == "interrupted" and not external
            status: Any = "uncertain" if external else "cancelled"
            self._report((_with(report, status, cut_off, final=not again), ()))
        elif error is None:
            parts, blobs = ended.result()
            self._report((AttemptEnded(operation=item.id, attempt=item.attempt, status="succeeded", parts=parts, at=report.at), blobs))
        else:
            failure = Failure(code="effect_failed", message=words(error))
            known = not external or isinstance(error, ToolError | EffectFailed)
            self._report((_with(report, "failed" if known else "uncertain", failure), ()))

    async def _result(self, item: Operation) -> Any:
        receipt = await self._ledger.receipt(item.receipt)
        name, why = item.plan.name, receipt.failure.message if receipt.failure is not None else ""
        if receipt.status == "uncertain":
            raise EffectUncertain(f"nobody knows what became of {name}" + (f": {why}" if why else ""))
        parts = await resolve_parts(receipt.parts, self._fetch)
        response = parts[0] if parts else None
        if receipt.status != "succeeded" or not isinstance(response, ToolCallResponse):
            raise EffectFailed(f"{name} failed" + (f": {why}" if why else ""))
        if response.is_error:
            raise EffectFailed(f"{name}: {response.response}")
        return response.response


def _kept(name: str, result: Any) -> Any:
    """A result as the journal holds it; one that can't be kept is told as an error, since the work was done."""
    try:
        return keep_parts((ToolCallResponse(id=name, name=name, response=canonical.check(result, "the result")),))
    except (NotCanonical, LimitExceeded) as error:
        words = f"it was done, but its result can't be kept: {error}"
        return keep_parts((ToolCallResponse(id=name, name=name, response=words, is_error=True),))


def _with(report: AttemptEnded, status: Any, failure: Failure, *, final: bool = True) -> AttemptEnded:
    return AttemptEnded(operation=report.operation, attempt=report.attempt, status=status, failure=failure, final=final, at=report.at)


def _digest(args: tuple[Any, ...]) -> str:
    """What the journal says of the arguments; nothing if they are no JSON."""
    try:
        return arguments_digest(canonical.check([*args], "arguments"))
    except NotCanonical:
        return ""
