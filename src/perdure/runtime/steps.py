"""What hooks and tools do outside besides their calls: an operation of kind ``step``, with its intent before and its receipt after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ..core import canonical
from ..core.checkpoint import Checkpoint, Operation
from ..core.entries import EffectSettled, OperationEnded
from ..core.errors import EffectFailed, EffectUncertain, LimitExceeded, NotCanonical, Refused, StaleRequest, StoreError, UsageError
from ..core.ids import arguments_digest, call_of, owner_of
from ..core.messages import Part, ToolCallResponse
from ..core.records import EffectClass, Failure, Plan
from ..core.reports import AttemptEnded, BeginStep, Reconciled
from ..core.rules.endings import steps_of
from ..core.words import words
from ..store.base import StoredBlob
from ..tools.running import ToolCancelled, ToolError, begin, makes_coroutine
from ..tools.tool import Done, NotDone, reconciled
from ..tools.transaction import InTransaction
from .batch import Batch
from .clock import Clock, first_of
from .context import Fetch, resolve_parts
from .ledger import Ledger
from .perform import Late, Outcome, keep_parts, no_result
from .transactions import Transaction

__all__ = ["LETTING_GO_SECONDS", "Deed", "Steps"]

_log = logging.getLogger("perdure.runtime")

LETTING_GO_SECONDS = 5.0
"""How long a hook, or what it does outside, may take to let go once it is cancelled."""


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done outside under an ``identity``. ``name`` is what the journal calls it, ``attempt`` that of the tool that does it,
    0 in a hook. ``reconcile`` tells what became of it where nobody knows. ``timeout`` is in seconds.

    With ``until`` (ms since 1970) nothing is done but to wait for that moment, and ``aside`` is called as soon as that is durable."""

    identity: str
    name: str
    function: Callable[..., Any] = lambda: None
    args: tuple[Any, ...] = ()
    effect: EffectClass = "external"
    timeout: float | None = None
    reconcile: Callable[..., Any] | None = None
    attempt: int = 0
    until: int = 0
    aside: Callable[[], None] = lambda: None

    @property
    def plan(self) -> Plan:
        """What the journal says of it. Nothing but what may be uncertain has to be found again."""
        if self.until:
            return Plan(kind="step", name=self.name, until=self.until)
        known = canonical.digest(self.identity.encode()) if self.effect == "external" else ""
        return Plan(
            kind="step",
            name=self.name,
            effect=self.effect,
            arguments=_digest(self.args),
            effect_key=known,
            reconcile=self.reconcile is not None and self.effect == "external",
        )


class Steps:
    """The outside work of one session's hooks and tools. `propose` puts what is to begin into a commit; `committed` lets it go on.

    ``report`` gets the receipts, for the next commit, and ``transact`` what is done in the commit of its receipt; ``late`` what ended after
    it was given up. Nothing here begins before its intent is durable, and nothing that was begun is begun again unless a recovery says that
    it may. ``error`` is the store's that kept a result from being read.
    """

    def __init__(
        self,
        *,
        checkpoint: Callable[[], Checkpoint],
        ledger: Ledger,
        fetch: Fetch,
        clock: Clock,
        report: Callable[[Outcome], None],
        transact: Callable[[Transaction], None],
        late: Late,
        wake: Callable[[], None],
    ) -> None:
        self.error: StoreError | None = None
        self._checkpoint = checkpoint
        self._ledger = ledger
        self._fetch = fetch
        self._clock = clock
        self._report = report
        self._transact = transact
        self._late = late
        self._wake = wake
        self._over = False
        self._wishes: dict[str, tuple[Deed, asyncio.Future[None]]] = {}
        self._news: set[asyncio.Future[None]] = set()
        self._busy: dict[str, Deed] = {}

    @property
    def wanted(self) -> bool:
        """Whether something waits for its intent."""
        return bool(self._wishes)

    def acted(self, call: str) -> bool:
        """Whether a call began anything outside in its steps, or is about to. To sleep is nothing, and neither is what is pure."""
        turn = self._checkpoint().turn
        busy = any(call_of(name) == call and deed.plan.effect != "pure" for name, deed in self._busy.items())
        return busy or (turn is not None and bool(steps_of(turn, call)))

    def propose(self, batch: Batch, fence: int) -> None:
        """Write the intents of what is to begin."""
        for identity, (deed, begun) in self._wishes.items():
            turn = batch.checkpoint.turn
            if not deed.attempt and (turn is None or owner_of(identity) != turn.id):
                continue
            try:
                if turn is None:
                    raise StaleRequest(f"the turn that {identity} belongs to is over", hint="nothing more is begun in it")
                batch.apply(BeginStep(operation=identity, plan=deed.plan, fence=fence, attempt=deed.attempt, at=batch.now))
            except Refused as error:
                if not begun.done():
                    begun.set_exception(EffectFailed(str(error)))

    def committed(self) -> None:
        """Something was committed: look again."""
        for news in self._news:
            if not news.done():
                news.set_result(None)
        self._news.clear()

    def abandon(self) -> None:
        """Nothing will be committed here any more: what waits for its intent never begins, and what was begun is handed on."""
        self._over = True
        waiting = [*self._news, *(begun for _, begun in self._wishes.values())]
        for news in waiting:
            if not news.done():
                news.set_exception(EffectFailed("this process works on the session no more; nothing was begun"))
        self._news.clear()

    async def perform(self, deed: Deed) -> Any:
        """The result of what is to be done, which is carried out unless it was before.

        See `HookContext.effect` and `ToolContext.step`.
        """
        if self._over:
            raise EffectFailed("this process works on the session no more; nothing was begun")
        if deed.identity in self._busy:
            raise UsageError(f"{deed.identity} is being done already", hint="give each effect a name of its own")
        call = call_of(deed.identity)
        if any((deed.until or other.until) and call_of(name) == call for name, other in self._busy.items()):
            # Whoever sleeps is set aside, and what it does outside would be cut off with it.
            raise UsageError("a call that sleeps does nothing else meanwhile", hint="sleep before its steps, or once they have ended")
        self._busy[deed.identity] = deed
        try:
            return await self._perform(deed)
        finally:
            self._busy.pop(deed.identity, None)

    async def _perform(self, deed: Deed) -> Any:
        identity = deed.identity
        while True:
            item = self._checkpoint().operation(identity)
            if item is not None:
                _check_same(item, deed)
            if item is not None and item.status == "ended":
                return await self._result(item)
            if item is None or item.status == "ready":
                attempt = (item.attempt if item is not None else 0) + 1
                begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._wishes[identity] = deed, begun
                self._news.add(begun)
                self._wake()
                try:
                    await begun
                finally:
                    self._wishes.pop(identity, None)
                    self._news.discard(begun)
                item = self._checkpoint().operation(identity)
                if item is not None and (item.status, item.attempt) == ("started", attempt):
                    await self._carry_out(item, deed)
                    self._wake()
                continue
            if item.status == "unknown":
                await self._reconcile(item, deed)
                self._wake()
            elif item.status == "awaiting":
                deed.aside()
            # Its receipt is on its way.
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._news.add(news)
            await news

    async def _carry_out(self, item: Operation, deed: Deed) -> None:
        function, args, timeout = deed.function, deed.args, deed.timeout
        name = item.plan.name
        if item.plan.effect == "transactional":
            done = InTransaction(function, args)
            respond = partial(_responded, name)
            # What can't be kept is undone with the rest.
            self._transact(Transaction(operation=item, function=lambda connection: _plain(done(connection)), respond=respond))
            return
        running = begin(name, lambda: function(*args), {}, is_async=makes_coroutine(function), then=lambda result: _kept(name, result))
        ended = running.ended
        try:
            await first_of(self._clock, ended, seconds=timeout)
        except asyncio.CancelledError:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([ended], timeout=LETTING_GO_SECONDS if makes_coroutine(function) else 0)
            self._tell(item, ended, Failure(code="interrupted", message="interrupted"))
            raise
        why = no_result(ended, timeout)
        if not ended.done():
            running.cancel()
            await asyncio.wait([ended], timeout=LETTING_GO_SECONDS if makes_coroutine(function) else 0)
        self._tell(item, ended, why)

    def _tell(self, item: Operation, ended: asyncio.Future[Any], cut_off: Failure) -> None:
        """The receipt: what it came to, or that it was ``cut_off``."""
        report = AttemptEnded(operation=item.id, attempt=item.attempt, status="succeeded", at=self._clock.now())
        external = item.plan.effect == "external"
        error = None if not ended.done() else ended.exception()
        if not ended.done() or isinstance(error, ToolCancelled):
            again = cut_off.code == "interrupted" and not external
            status: Any = "uncertain" if external else "cancelled"
            self._report((_with(report, status, cut_off, final=not again and not item.plan.reconcile), ()))
            if not ended.done() and external:
                ended.add_done_callback(lambda ended: self._ended_late(item, ended))
        elif error is None:
            parts, blobs = ended.result()
            self._report((AttemptEnded(operation=item.id, attempt=item.attempt, status="succeeded", parts=parts, at=report.at), blobs))
        else:
            failure = Failure(code="effect_failed", message=words(error))
            known = not external or isinstance(error, ToolError | EffectFailed)
            self._report((_with(report, "failed" if known else "uncertain", failure, final=known or not item.plan.reconcile), ()))

    def _ended_late(self, item: Operation, ended: asyncio.Future[Any]) -> None:
        if ended.cancelled():
            return
        error = ended.exception()
        if error is None:
            (part, *_), _ = ended.result()
            if isinstance(part, ToolCallResponse):
                self._late(item.id, item.attempt, part.response, part.is_error)
        elif isinstance(error, ToolError | EffectFailed):
            self._late(item.id, item.attempt, words(error), True)

    async def _reconcile(self, item: Operation, deed: Deed) -> None:
        """Ask what became of it. Only reading, it may be asked again."""
        report = Reconciled(operation=item.id, outcome="unknown", at=self._clock.now())
        blobs: tuple[StoredBlob, ...] = ()
        if deed.reconcile is not None:
            function, args = deed.reconcile, deed.args
            asked = begin(deed.name, lambda: function(*args), {}, is_async=makes_coroutine(function), then=reconciled)
            try:
                answer = await asked.finish()
                if isinstance(answer, NotDone):
                    report = msgspec.structs.replace(report, outcome="not_done")
                elif isinstance(answer, Done):
                    parts, blobs = _kept(deed.name, answer.result)
                    report = msgspec.structs.replace(report, outcome="done", parts=parts)
            except Exception:
                _log.exception("the reconcile of %s failed; its outcome stays unknown", item.id)
        self._report((report, blobs))

    async def _result(self, item: Operation) -> Any:
        try:
            receipt = await self._ledger.entry(item.receipt)
            parts = await resolve_parts(getattr(receipt, "parts", ()), self._fetch)
        except StoreError as error:
            # It says nothing of what was done, and ends whoever drives this.
            self.error = error
            self._wake()
            raise EffectFailed(f"the result of {item.id} can't be read") from error
        assert isinstance(receipt, OperationEnded | EffectSettled)
        failure = getattr(receipt, "failure", None)
        name, why = item.plan.name, failure.message if failure is not None else ""
        if receipt.status == "uncertain":
            raise EffectUncertain(f"nobody knows what became of {name}" + (f": {why}" if why else ""))
        response = parts[0] if parts else None
        if receipt.status != "succeeded" or not isinstance(response, ToolCallResponse):
            raise EffectFailed(f"{name} failed" + (f": {why}" if why else ""))
        if response.is_error:
            raise EffectFailed(f"{name}: {response.response}")
        return response.response


def _check_same(item: Operation, deed: Deed) -> None:
    """Raises `UsageError` where changed code asks for something else under a name: what became of the one says nothing of the other."""
    before, now = item.plan, deed.plan
    if bool(before.until) != bool(now.until):
        was, wanted = ("a sleep", "a step") if before.until else ("a step", "a sleep")
        raise UsageError(f"{deed.name} was {was} when it began, and is {wanted} now", hint="nothing was done; give it a name of its own")
    if item.status == "ready" and before.effect != now.effect:
        hint = "nothing more was done; give it a name of its own"
        raise UsageError(f"{deed.name} was {before.effect} when it began, and is {now.effect} now", hint=hint)


def _responded(name: str, response: Any, is_error: bool) -> tuple[tuple[Part, ...], tuple[StoredBlob, ...]]:
    return keep_parts((ToolCallResponse(id=name, name=name, response=response, is_error=is_error),))


def _plain(result: Any) -> Any:
    return canonical.check(result, "the result")


def _kept(name: str, result: Any) -> Any:
    """A result as the journal holds it; one that can't be kept is told as an error, since the work was done."""
    try:
        return keep_parts((ToolCallResponse(id=name, name=name, response=_plain(result)),))
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
