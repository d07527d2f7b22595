"""The ledger of model calls, read from the store or noted as entries are committed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from ..core.entries import Entry, OperationEnded, OperationStarted, TurnEnded, TurnStarted
from ..core.journal import open_entry
from ..core.model_calls import CALL_KINDS, ModelCall, Pairing
from ..store.base import Store
from .messages import read_entries

__all__ = ["Called", "read_calls"]

PAGE = 500


async def read_calls(store: Store, no: int, *, after: int = 0, before: int | None = None) -> AsyncGenerator[ModelCall, None]:
    """The records whose receipts have ``after < seq < before``, in their order."""
    pairing = Pairing()
    while rows := await read_entries(store, no, after=after, before=before, kinds=CALL_KINDS, limit=PAGE):
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
