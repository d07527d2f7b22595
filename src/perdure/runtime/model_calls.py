"""The ledger of model calls: a view of the journal, in which every call that was sent is one record, for ever.

A record is what an attempt's start and its receipt say together. Nothing is stored for it, so nothing can disagree with it; replaying a
receipt reads it again, and adds nothing. It is read from the store, or noted as entries are committed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Literal

import msgspec

from ..core import ids
from ..core.entries import Entry, OperationEnded, OperationStarted, TurnEnded, TurnStarted
from ..core.journal import open_entry
from ..core.records import OperationKind, Status
from ..core.usage import Cost, Totals, Usage
from ..store.base import Store
from .messages import read_entries

__all__ = ["Called", "ModelCall", "Pairing", "Spending", "UsageRow", "model_calls", "read_calls"]

ENTRY_KINDS = (OperationStarted.kind, OperationEnded.kind)
"""The kinds of entries that the ledger is made of."""

PAGE = 500


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What model calls came to: a number is ``None`` as soon as one call lacks it, and ``known`` has the sums of what is known.

    Of no calls every number is exactly 0. ``cost`` is in billionths of a US dollar.
    """

    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    cost: int | None
    known: Totals

    @classmethod
    def of(cls, calls: Iterable[ModelCall]) -> Spending:
        """The sums over a ledger."""
        known = Totals()
        lacking: set[str] = set()
        for call in calls:
            used, before = call.usage or Usage(), known
            known = known.plus(used, call.cost)
            cost = None if call.cost is None else call.cost.nanodollars
            for name, number in (*_counted(used), ("cost", cost)):
                if number is None or getattr(before, name) + number != getattr(known, name):
                    lacking.add(name)

        def total(name: str) -> int | None:
            return None if name in lacking else int(getattr(known, name))

        return cls(
            input_tokens=total("input_tokens"),
            output_tokens=total("output_tokens"),
            total_tokens=None if lacking & {"input_tokens", "output_tokens"} else known.total_tokens,
            cache_read_tokens=total("cache_read_tokens"),
            cache_write_tokens=total("cache_write_tokens"),
            reasoning_tokens=total("reasoning_tokens"),
            cost=total("cost"),
            known=known,
        )


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the model calls of one group came to. ``group`` has a value for each name that was asked for."""

    group: dict[str, str]
    spending: Spending


def _counted(usage: Usage) -> tuple[tuple[str, int | None], ...]:
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    return tuple((name, getattr(usage, name)) for name in names)


async def read_calls(store: Store, no: int, *, after: int = 0, before: int | None = None) -> AsyncGenerator[ModelCall, None]:
    """The records whose receipts have ``after < seq < before``, in their order."""
    pairing = Pairing()
    while rows := await read_entries(store, no, after=after, before=before, kinds=ENTRY_KINDS, limit=PAGE):
        for entry in map(open_entry, rows):
            if isinstance(entry, OperationEnded) and entry.attempt and pairing.lacks(entry):
                # It was under way where this part of the journal begins.
                for start in await _starts(store, no, entry):
                    pairing.take(start)
            if (call := pairing.take(entry)) is not None:
                yield call
        after = rows[-1].seq


async def _starts(store: Store, no: int, ended: OperationEnded) -> list[OperationStarted]:
    """The starts of an operation up to one of its receipts, oldest first."""
    found: list[OperationStarted] = []
    before: int | None = ended.seq
    while rows := await read_entries(store, no, before=before, kinds=(OperationStarted.kind,), newest_first=True, limit=PAGE):
        for entry in map(open_entry, rows):
            if isinstance(entry, OperationStarted) and entry.operation == ended.operation:
                found.append(entry)
                if entry.plan is not None or entry.attempt == 1:
                    return found[::-1]
        before = rows[-1].seq
    return found[::-1]


class Called:
    """The model calls of the turn that runs in a session, as this process committed them."""

    def __init__(self) -> None:
        self._pairing = Pairing()
        self._calls: list[ModelCall] = []
        self._whole = False
        self._ended: dict[str, tuple[ModelCall, ...] | None] = {}

    def note(self, entries: Iterable[Entry]) -> None:
        """Entries that were committed."""
        self._ended.clear()
        for entry in entries:
            if isinstance(entry, TurnStarted):
                self._calls, self._whole = [], True
            elif isinstance(entry, TurnEnded):
                self._ended[entry.turn] = tuple(self._calls) if self._whole else None
                self._calls, self._whole = [], False
            elif (call := self._pairing.take(entry)) is not None:
                self._calls.append(call)

    async def complete(self, store: Store, no: int, ended: TurnEnded) -> None:
        """Read the calls of a turn that just ended, where another process, or a commit elsewhere, had a part in it."""
        if self._ended.get(ended.turn) is None:
            self._ended[ended.turn] = tuple([call async for call in read_calls(store, no, after=ended.began, before=ended.seq)])

    def of(self, ended: TurnEnded) -> tuple[ModelCall, ...]:
        """The calls of a turn that just ended."""
        return self._ended[ended.turn] or ()

    def forget(self) -> None:
        """Somebody else may have gone on with the turn."""
        self._pairing, self._calls, self._whole = Pairing(), [], False
