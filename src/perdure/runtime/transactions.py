"""An effect that is part of the commit that holds its receipt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from ..core.checkpoint import Checkpoint, Operation
from ..core.errors import StoreError
from ..core.messages import Part
from ..core.records import Failure
from ..core.reports import AttemptEnded
from ..core.rules.endings import RAISED
from ..core.words import said, words
from ..store.base import Commit, Run, StoredBlob
from ..tools.running import ToolError
from ..tools.tool import ResultInvalid
from .batch import Batch

__all__ = ["Made", "Transaction"]


class Made(msgspec.Struct, frozen=True):
    """A commit, and what was decided in it."""

    batch: Batch
    commit: Commit


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """A user's ``function`` on a connection, for the attempt of an ``operation`` that it ends. ``respond`` makes of what it returns the
    parts to keep and their content, and of words (False) those of a failure."""

    operation: Operation
    function: Callable[[Any], Any]
    respond: Callable[[Any, bool], tuple[tuple[Part, ...], tuple[StoredBlob, ...]]]

    def waits(self, checkpoint: Checkpoint) -> bool:
        """Whether the attempt still runs: if it was ended meanwhile, its function never runs."""
        item = checkpoint.operation(self.operation.id)
        return item is not None and (item.status, item.attempt) == ("started", self.operation.attempt)

    def commit(self, anew: Callable[[], Batch], *, holder: str, made: list[Made]) -> Commit:
        """The commit that runs the function, each time in a batch made ``anew``. What was decided in it stands in ``made`` then; it is
        none before that.

        The receipt of a function that raises is part of it too, and nothing that the function wrote.
        """

        def within(run: Run) -> Commit:
            try:
                # What can't be kept is not done: the receipt is made where the function can still be undone.
                done = run(lambda connection: self._succeeded(connection, anew(), holder))
            except StoreError:
                raise
            except BaseException as error:
                done = self._failed(error, anew(), holder)
            made[:] = [done]
            return done.commit

        return replace(anew().commit(holder=holder), within=within)

    def failure(self, error: BaseException, now: int) -> tuple[AttemptEnded, tuple[StoredBlob, ...]]:
        """The receipt of a function that came to nothing."""
        match error:
            case ToolError():
                failure = Failure(code="tool_error", message=said(error))
            case ResultInvalid():
                failure = Failure(code="result_invalid", message=f"{said(error)}; what it did was undone")
            case _:
                failure = Failure(code=RAISED, message=words(error))
        parts, blobs = self.respond(failure.message, True)
        return self._ended("failed", parts, now, failure), blobs

    def _succeeded(self, connection: Any, batch: Batch, holder: str) -> Made:
        parts, blobs = self.respond(self.function(connection), False)
        return _made(self._ended("succeeded", parts, batch.now), blobs, batch, holder)

    def _failed(self, error: BaseException, batch: Batch, holder: str) -> Made:
        report, blobs = self.failure(error, batch.now)
        return _made(report, blobs, batch, holder)

    def _ended(self, status: Any, parts: tuple[Part, ...], now: int, failure: Failure | None = None) -> AttemptEnded:
        item = self.operation
        return AttemptEnded(operation=item.id, attempt=item.attempt, status=status, parts=parts, failure=failure, at=now)


def _made(report: AttemptEnded, blobs: tuple[StoredBlob, ...], batch: Batch, holder: str) -> Made:
    batch.keep(blobs)
    batch.apply(report)
    return Made(batch, batch.commit(holder=holder))
