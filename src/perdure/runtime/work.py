"""The effects of one session that run in this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..agent import Agent
from ..core.checkpoint import Checkpoint, Operation, Turn
from ..core.context import READ_RESULT
from ..core.effects import may_be_unknown
from ..core.errors import ContextTooLong, StoreError
from ..core.media import Media
from ..core.messages import StoredPart, ToolCallResponse, decode_part
from ..core.phase import due
from ..core.records import MODEL_KINDS, Failure
from ..core.reports import AttemptEnded, Reconciled
from ..core.rules.endings import NOT_EXECUTED
from ..models.prices import Prices
from ..models.router import Router
from ..store.base import StoredBlob
from ..tools.tool import WithMedia
from .calls import Calls
from .perform import LETTING_GO_SECONDS, Late, Outcome, Performed, Performer, asked_to_stop
from .prepare import Asked
from .transactions import Transaction

__all__ = ["Work"]

Archived: TypeAlias = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
Around: TypeAlias = Callable[[Operation], AbstractContextManager[None]]

_log = logging.getLogger("perdure.runtime")


class _Doing(NamedTuple):
    operation: Operation
    task: asyncio.Task[None]


class Work:
    """Makes what runs here what the checkpoint says should run. What ended stands in ``reports`` until it is committed; what is left to be
    done in the commit of its receipt stands in ``transactions``.

    ``requests`` are the model requests of operations that were prepared here. ``wake`` is called whenever something ended; ``keep`` gets
    the tasks that nobody here waits for any more, and ``late`` results that only another commit can take; ``archived`` answers calls of
    the built-in tool that reads archived results, ``judge`` says what is wrong with the output of one that ends the turn, and ``around``
    surrounds what runs. ``error`` is the store's that kept something from being done: no outcome of what was to be done, but the end of
    whoever drives this.
    """

    def __init__(
        self,
        agent: Agent,
        router: Router,
        performer: Performer,
        calls: Calls,
        *,
        judge: Callable[[Any], Awaitable[str]],
        wake: Callable[[], None],
        keep: Callable[[asyncio.Task[Any]], None],
        late: Late,
        archived: Archived,
        around: Around | None = None,
        prices: Callable[[Turn | None], Prices | None],
    ) -> None:
        self.reports: list[Outcome] = []
        self.transactions: list[Transaction] = []
        self.error: StoreError | None = None
        self.requests: dict[str, Asked] = {}
        self._agent = agent
        self._router = router
        self._performer = performer
        self._calls = calls
        self._judge = judge
        self._wake = wake
        self._keep = keep
        self._late = late
        self._archived = archived
        self._around = around
        self._prices = prices
        self._fence = 0
        self._doing: dict[tuple[str, int, str], _Doing] = {}
        performer.give_up = self._give_up

    @property
    def running(self) -> bool:
        """Whether anything runs here."""
        return bool(self._doing)

    def start(self, checkpoint: Checkpoint, fence: int) -> None:
        """Begin what should run and doesn't, and stop what should not."""
        self._fence = fence
        wanted = {(item.id, item.attempt, item.status): item for item in due(checkpoint)}
        for key in [key for key in self._doing if key not in wanted]:
            self._doing.pop(key).task.cancel()
        told = {_subject(report) for report, _ in self.reports} | {_about(item.operation) for item in self.transactions}
        for key, item in wanted.items():
            # What ended while a commit was under way is told in the next one, and not begun again.
            if key not in self._doing and _about(item) not in told:
                task = asyncio.create_task(self._report(key, item), name=f"perdure {item.id}#{item.attempt}")
                self._doing[key] = _Doing(item, task)

    async def _report(self, key: tuple[str, int, str], operation: Operation) -> None:
        outcome: Performed
        try:
            with nullcontext() if self._around is None else self._around(operation):
                outcome = await (self._reconcile(operation) if operation.status == "unknown" else self._perform(operation))
        except StoreError as error:
            self._doing.pop(key, None)
            self.error = error
            self._wake()
            return
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and asked_to_stop():
                # The performer turns a cancellation into an outcome; here nothing had begun.
                if operation.status == "unknown":
                    self._doing.pop(key, None)
                    raise
                outcome = self._performer.stopped(operation, Failure(code="interrupted", message=NOT_EXECUTED), began=False), ()
            else:
                # Without an outcome the session would wait for it for ever.
                _log.exception("%s ended in a way that nobody expected", operation.id)
                outcome = self._performer.unexpected(operation, error)
        if self._doing.pop(key, None) is not None:
            if isinstance(outcome, Transaction):
                self.transactions.append(outcome)
            else:
                self.reports.append(outcome)
            self._wake()

    def _give_up(self, operation: Operation, outcome: Outcome) -> None:
        """Go on without what doesn't end although its time is over."""
        doing = self._doing.pop((operation.id, operation.attempt, operation.status), None)
        if doing is not None:
            _log.warning("%s doesn't let go although its time is over, and is left behind", operation.id)
            self._keep(doing.task)
            self.reports.append(outcome)
            self._wake()

    async def _perform(self, item: Operation) -> Performed:
        name = item.plan.name
        if item.plan.kind in MODEL_KINDS:
            asked = self.requests[item.id]
            model, prices = self._router.model(name), self._prices(self._performer.checkpoint.turn)
            if prices is not None and prices.lacks(model):
                # Before anything is sent: nothing may come between an answer and its receipt.
                await asyncio.to_thread(prices.load)
            report, blobs = await self._performer.model(item, model, asked.request, asked.fallback)
            if prices is not None and isinstance(report, AttemptEnded) and report.usage is not None:
                cost = prices.cost(route=name, model=model, reported=report.model, usage=report.usage, at=report.at)
                report = msgspec.structs.replace(report, cost=cost)
            if asked.compact and isinstance(report, AttemptEnded) and report.failure and report.failure.code == ContextTooLong.code:
                report = msgspec.structs.replace(report, compact=True)
            return report, blobs
        tool = self._agent.tool(name)
        if tool is None:
            failure = Failure(code="unknown_tool", message=f"there is no tool {name!r} any more")
            return msgspec.structs.replace(self._performer.stopped(item, failure, began=False), status="failed"), ()
        arguments = await self._calls.arguments(item)
        if item.plan.ends:
            return await self._performer.finish(item, tool, arguments, self._judge)
        if name == READ_RESULT and self._agent.archive is not None:
            return await self._performer.read(item, tool, arguments, self._archived)
        return await self._performer.tool(item, self._agent, tool, arguments)

    async def _reconcile(self, item: Operation) -> Outcome:
        tool = self._agent.tool(item.plan.name)
        arguments = await self._calls.arguments(item) if tool is not None else {}
        report, blobs = await self._performer.reconcile(item, self._agent, tool, arguments)
        if isinstance(report, Reconciled):
            report = msgspec.structs.replace(report, fence=self._fence)
        return report, blobs

    async def cancel(self, *, to_be_continued: bool) -> None:
        """Stop what runs, and keep what is known of it. ``to_be_continued``: the operations go on elsewhere, where that is safe.

        What doesn't let go is given up after `LETTING_GO_SECONDS`; should it end after all, its result is a late one.
        """
        # A task that is cancelled before its first step would tell nothing.
        await asyncio.sleep(0)
        doing = dict(self._doing)
        for item in doing.values():
            item.task.cancel()
        if doing:
            await asyncio.wait([item.task for item in doing.values()], timeout=LETTING_GO_SECONDS)
        for key, item in doing.items():
            if self._doing.pop(key, None) is not None and item.operation.status != "unknown":
                self.reports.append((self._performer.stopped(item.operation, Failure(code="interrupted", message="it did not let go")), ()))
                self._keep(item.task)
        if to_be_continued:
            resumable = {item.operation.id for item in doing.values() if item.operation.plan.resumable}
            self.reports = [(_to_be_continued(report, resumable), blobs) for report, blobs in self.reports]

    def abandon(self, *, hand_over: bool) -> list[asyncio.Task[None]]:
        """This process may not commit any more. Model calls end; what only this process will know of calls is handed over as it ends.

        Returns what has not ended yet.
        """
        self._hand_over()
        self.transactions.clear()
        for item in self._doing.values():
            external = item.operation.plan.kind == "tool" and may_be_unknown(item.operation.plan)
            if external and hand_over:
                item.task.add_done_callback(lambda _: self._hand_over())
            else:
                item.task.cancel()
            self._keep(item.task)
        return [item.task for item in self._doing.values()]

    def _hand_over(self) -> None:
        reports, self.reports = self.reports, []
        for report, blobs in reports:
            if isinstance(report, AttemptEnded) and report.status in ("succeeded", "failed") and report.parts and report.attempt:
                part = report.parts[0]
                if isinstance(part, StoredPart):
                    part = decode_part(next(blob.data for blob in blobs if blob.digest == part.digest))
                if isinstance(part, ToolCallResponse):
                    self._late(report.operation, report.attempt, _returned(part, blobs), part.is_error)


def _returned(part: ToolCallResponse, blobs: tuple[StoredBlob, ...]) -> Any:
    """What a tool returned, from what was kept of it."""
    if not part.media:
        return part.response
    data = {blob.digest: blob.data for blob in blobs}
    return WithMedia(part.response, tuple(Media(data[blob.digest], mime_type=blob.mime_type, name=blob.name) for blob in part.media))


def _about(item: Operation) -> tuple[str, int]:
    """An attempt, or (0) the question what became of it."""
    return item.id, 0 if item.status == "unknown" else item.attempt


def _subject(report: Any) -> tuple[str, int]:
    """What a report is about, as `_about` names it."""
    return getattr(report, "operation", ""), getattr(report, "attempt", 0)


def _to_be_continued(report: Any, resumable: set[str]) -> Any:
    """A graceful stop cuts an attempt off; its operation goes on elsewhere unless nobody can know what happened."""
    if not isinstance(report, AttemptEnded):
        return report
    interrupted = report.failure is not None and report.failure.code == "interrupted"
    if report.status == "cancelled" or (report.status == "uncertain" and interrupted and report.operation in resumable):
        stopped = Failure(code="shutdown", message="its process was stopped")
        return msgspec.structs.replace(report, status="cancelled", final=False, failure=stopped)
    return report
