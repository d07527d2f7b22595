"""What a session's effects came to: receipts, and those whose outcome nobody knows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from ..core.checkpoint import Operation
from ..core.commands import ReportResult
from ..core.effects import effect_key, tool_of
from ..core.entries import EffectSettled, Entry, ExtensionSet, OperationEnded
from ..core.errors import StoreCorrupt
from ..core.journal import open_entry
from ..core.memory import MEMORY, MemoryState
from ..core.memory import decode as decode_memory
from ..core.messages import Part, ToolCallResponse
from ..core.records import EffectMatch, Plan
from ..core.reports import Report
from ..store.base import EffectRow, Store
from ..tools.unique import AlreadyDone
from .batch import Batch
from .context import Fetch, resolve_parts, stored_content
from .lineage import Lineage
from .messages import read_entries, read_entry
from .perform import keep_parts

__all__ = ["Ledger"]


class Ledger:
    """One session's effects of unknown outcome, as the store knows them and as this process changes them."""

    def __init__(self, store: Store, no: int = 0) -> None:
        self._store = store
        self.no = no
        self._unsettled: list[EffectRow] = []
        self._lineage: Lineage | None = None

    async def load(self, lineage: Lineage | None = None) -> None:
        """Read what is unknown now. ``lineage`` is what the session's past did, where its transcript may not show all of it."""
        self._lineage = lineage
        self._unsettled = await self._store.effects(self.no, state="uncertain")

    @property
    def unsettled(self) -> tuple[EffectRow, ...]:
        """The effects of unknown outcome, oldest first."""
        return tuple(self._unsettled)

    def note(self, effects: Iterable[EffectRow]) -> None:
        """Effects that were committed."""
        for effect in effects:
            self._unsettled = [row for row in self._unsettled if (row.effect_key, row.seq) != (effect.effect_key, effect.seq)]
            if effect.state == "uncertain":
                self._unsettled.append(effect)

    async def entry(self, seq: int, batch: Batch | None = None) -> Entry:
        """An entry, stored or about to be."""
        for pending in batch.entries if batch is not None else ():
            if pending.seq == seq:
                return pending
        return await self._stored(self.no, seq)

    async def _stored(self, no: int, seq: int) -> Entry:
        entry = await read_entry(self._store, no, seq)
        if entry is None:
            raise StoreCorrupt(f"entry {seq}, which something refers to, is missing", hint="run `perdure verify`")
        return entry

    async def receipt(self, seq: int, batch: Batch | None = None) -> OperationEnded:
        """The receipt at a seq. Raises `StoreCorrupt` if something else stands there."""
        entry = await self.entry(seq, batch)
        if not isinstance(entry, OperationEnded):
            raise StoreCorrupt(f"entry {seq} is no receipt", hint="run `perdure verify`")
        return entry

    async def remembered(self, seq: int, batch: Batch | None = None) -> MemoryState:
        """What a session remembered, as the entry at a seq says. Raises `StoreCorrupt` if something else stands there."""
        entry = await self.entry(seq, batch)
        if not isinstance(entry, ExtensionSet) or entry.extension != MEMORY:
            raise StoreCorrupt(f"entry {seq} is no memory of the session", hint="run `perdure verify`")
        return decode_memory(entry.value)

    async def match(self, plan: Plan, key: bytes, batch: Batch) -> EffectMatch | None:
        """The latest effect of unknown outcome that a call would repeat, unless the call's plan shows it already."""
        for row in [*reversed(batch.effects), *reversed(self._unsettled)]:
            shown = plan.match is not None and plan.match.seq == row.seq
            if row.effect_key == key and row.state == "uncertain" and not shown:
                receipt = await self.receipt(row.seq, batch)
                return EffectMatch(operation=receipt.operation, seq=row.seq, state=row.state)
        return None

    async def beyond(self, plan: Plan, key: bytes, *, exact: bool) -> EffectMatch | None:
        """The latest effect of the lineage that a call would repeat and the transcript doesn't show, unless the call's plan shows one.

        ``exact``: only one with this very key; else any of the tool.
        """
        if self._lineage is None or (plan.match is not None and plan.match.beyond):
            return None
        found = await self._lineage.match(key, key)
        if found is None and not exact:
            found = await self._lineage.match(effect_key(plan.name, ""), key)
        if found is None:
            return None
        receipt = await self._stored(found.no, found.row.seq)
        operation = getattr(receipt, "operation", "")
        row, other = found.row, found.row.effect_key != key
        return EffectMatch(operation=operation, seq=row.seq, state=row.state, session=found.session, beyond=True, other=other)

    async def outcome(self, match: EffectMatch, batch: Batch) -> tuple[Part, ...]:
        """What an effect came to, as far as anybody knows."""
        no = self.no
        if match.session and self._lineage is not None:
            no = await self._lineage.number(match.session)
        receipt = await (self.entry(match.seq, batch) if no == self.no else self._stored(no, match.seq))
        if isinstance(receipt, OperationEnded) and receipt.status == "uncertain" and match.state != "uncertain":
            settled = [open_entry(row) for row in await read_entries(self._store, no, after=match.seq, kinds=(EffectSettled.kind,))]
            receipt = next((entry for entry in settled if isinstance(entry, EffectSettled) and entry.receipt == match.seq), receipt)
        return receipt.parts if isinstance(receipt, OperationEnded | EffectSettled) else ()

    async def claimed(self, key: str, operation: str, batch: Batch, fetch: Fetch) -> AlreadyDone | None:
        """What another operation did, or is about to do, that only one may; ``None`` if none did, or it was this one."""
        row = await self._store.unique(key)
        if row is None or (row.no, row.operation) == (self.no, operation):
            return None
        done = AlreadyDone(session=row.session_id, operation=row.operation, state=row.state)
        if row.state != "succeeded":
            return done
        receipt = await (self.entry(row.seq, batch) if row.no == self.no else read_entry(self._store, row.no, row.seq))
        parts = receipt.parts if isinstance(receipt, OperationEnded | EffectSettled) else ()
        if row.no != self.no and parts:
            head = await self._store.load(row.session_id)
            fetch = partial(stored_content, self._store, head.row.root if head is not None else "")
        response = (await resolve_parts(parts, fetch) or (None,))[0]
        return replace(done, result=response.response) if isinstance(response, ToolCallResponse) else done

    async def take_result(self, batch: Batch, command: ReportResult) -> None:
        """A reported result: the receipt of an operation that is open, or what settles one that ended uncertain."""
        operation = batch.operation(command.operation)
        receipt: OperationEnded | None = None
        key = b""
        if operation is None or operation.status == "ended":
            operation = Operation(id=command.operation, plan=Plan(kind="tool"))
            for row in (*(row for row in batch.effects if row.state == "uncertain"), *self._unsettled):
                found = await self.receipt(row.seq, batch)
                if (found.operation, found.attempt) == (command.operation, command.attempt):
                    receipt, key = found, row.effect_key
                    operation = Operation(id=command.operation, plan=Plan(kind="tool", name=tool_of(key)))
                    response = found.parts[0] if found.parts else None
                    if isinstance(response, ToolCallResponse):
                        operation = Operation(id=command.operation, plan=Plan(kind="tool", name=response.name, call=response.id))
        plan = operation.plan
        response = ToolCallResponse(id=plan.call, name=plan.name, response=command.result, is_error=command.is_error, media=command.media)
        parts, blobs = keep_parts((response,))
        batch.keep(blobs)
        batch.take(command, Report(command=command, parts=parts, receipt=receipt, at=command.at))
        if receipt is not None:
            status = "failed" if command.is_error else "succeeded"
            batch.effects += (EffectRow(effect_key=key, seq=receipt.seq, state=status),)
