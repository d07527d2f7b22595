"""The ledger of model calls: a view of the journal, in which every call that was sent is one record, for ever.

A record is what an attempt's start and its receipt say together. Nothing is stored for it, so nothing can disagree with it; replaying a
receipt reads it again, and adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from . import ids
from .entries import Entry, OperationEnded, OperationStarted
from .records import OperationKind, Status
from .usage import Cost, Usage

__all__ = ["CALL_KINDS", "ModelCall", "Pairing", "model_calls"]

CALL_KINDS = (OperationStarted.kind, OperationEnded.kind)
"""The kinds of entries that the ledger is made of."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a model call that was sent to a provider, and has ended.

    ``seq`` is its receipt's place in the journal, by which the ledger is ordered. ``kind`` says what it was for: ``model`` is a step's
    answer, ``compaction`` notes on the conversation. ``model`` is the provider's own name for what answered, empty if none did.
    ``started`` and ``ended`` are ms since 1970. ``usage`` and ``cost`` are ``None`` where nobody knows; ``error`` is the code of what went
    wrong, empty exactly for one that ``succeeded``. An ``uncertain`` attempt may have cost something or nothing.
    """

    seq: int
    operation: str
    attempt: int
    kind: OperationKind
    route: str
    status: Status
    started: int
    ended: int
    model: str = ""
    usage: Usage | None = None
    cost: Cost | None = None
    error: str = ""

    @property
    def source(self) -> Literal["reported", "estimated", "unknown"]:
        """Where the numbers come from."""
        if self.usage is None or (self.usage.input_tokens is None and self.usage.output_tokens is None):
            return "unknown"
        return "estimated" if self.usage.estimated else "reported"

    @property
    def turn(self) -> str:
        """The turn that it belongs to, empty for work outside of turns."""
        return ids.turn_of(self.operation)


class Pairing:
    """Brings starts and receipts together, as they come. ``kinds`` says what the operations are that have not ended."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], OperationStarted] = {}
        self.kinds: dict[str, OperationKind] = {}

    @property
    def open(self) -> tuple[OperationStarted, ...]:
        """The calls of models that have not ended."""
        return tuple(entry for entry in self._open.values() if entry.request is not None)

    def lacks(self, ended: OperationEnded) -> bool:
        """Whether the start of an attempt, or what its operation is, was not among what was taken."""
        return (ended.operation, ended.attempt) not in self._open or ended.operation not in self.kinds

    def take(self, entry: Entry) -> ModelCall | None:
        """The next entry of a journal; the record that it completes, if it does."""
        if isinstance(entry, OperationStarted):
            self._open[entry.operation, entry.attempt] = entry
            if entry.plan is not None:
                # Only the first attempt says what the operation is.
                self.kinds[entry.operation] = entry.plan.kind
        elif isinstance(entry, OperationEnded):
            started = self._open.pop((entry.operation, entry.attempt), None)
            kind = self.kinds.pop(entry.operation, "model") if entry.final else self.kinds.get(entry.operation, "model")
            if started is not None and started.request is not None and not entry.unsent:
                return _record(started, started.request.route, kind, entry)
        return None


def model_calls(entries: Iterable[Entry]) -> Iterator[ModelCall]:
    """The records of a journal, or of a part of one that begins no later than their starts."""
    pairing = Pairing()
    for entry in entries:
        if (call := pairing.take(entry)) is not None:
            yield call


def _record(started: OperationStarted, route: str, kind: OperationKind, ended: OperationEnded) -> ModelCall:
    return ModelCall(
        seq=ended.seq,
        operation=ended.operation,
        attempt=ended.attempt,
        kind=kind,
        route=route,
        status=ended.status,
        started=started.at,
        ended=ended.at,
        model=ended.model,
        usage=ended.usage,
        cost=ended.cost,
        error="" if ended.status == "succeeded" else ended.failure.code if ended.failure is not None else ended.status,
    )
