"""What a model was asked, built again from the journal as it stood then, and checked against the digests that were kept."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..core import canonical, ids
from ..core.checkpoint import Checkpoint
from ..core.context import notes_in
from ..core.entries import OperationEnded, OperationStarted, Rebased
from ..core.errors import UsageError
from ..core.evolve import evolve
from ..core.journal import open_entry
from ..core.memory import rendered
from ..core.messages import Message, Part, Private, RedactedPart, Text, said_digest
from ..core.records import RequestRecord
from ..models.base import ModelRequest, ModelSettings, OutputSpec, ToolSpec
from ..store.base import Loaded
from .context import resolve_parts
from .hooks import Additions
from .known import Known
from .messages import PAGE, read_entries
from .prepare import correction
from .recording import Recording, recorded
from .remembering import told
from .scope import Scope

__all__ = ["AskedRequest", "AskedRequests"]

STEP = r"(t[1-9][0-9]*\.[0-9]+(?:\.[0-9]+)?)(?:#([1-9][0-9]*))?"


class AskedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a model saw it. ``problems`` say where what is stored is not what was recorded; with none, it is verified.

    ``redacted`` are the entries of messages in it whose content was removed since: what the model saw there is gone for good.
    ``private``: whether the reasoning that only its provider can read is in it, which is known once the call answered.
    """

    session_id: str
    operation: str
    attempt: int
    kind: str
    seq: int
    at: int
    record: RequestRecord
    request: ModelRequest
    problems: tuple[str, ...]
    redacted: tuple[int, ...]
    private: bool

    @property
    def verified(self) -> bool:
        """Whether all of it is what its digests say."""
        return not self.problems and not self.redacted


class AskedRequests(Scope):
    """The part of `Sessions` that prints requests again."""

    async def request(self, session_id: str, step: str) -> AskedRequest:
        """The request that a model saw in a step (``t14.0``: its last model call) or an operation (``t14.0.2``; with ``#1`` one attempt).

        Reads only. Raises `UsageError` where no model was asked there, and `StoreCorrupt` for content that is missing.
        """
        found = re.fullmatch(STEP, step) if isinstance(step, str) else None
        if found is None:
            raise UsageError(f"{step!r:.60} names no step", hint="t14.0, or an operation such as t14.0.2")
        head = await self._head(session_id)
        started, kind = await self._started(head, found[1], int(found[2]) if found[2] else None)
        record = started.request
        assert record is not None
        checkpoint = await self._checkpoint_before(head, started.seq)
        known = Known(self._runtime.store, session_id, unstored=lambda: ())
        known.head = msgspec.structs.replace(head, row=msgspec.structs.replace(head.row, version=started.seq - 1))
        known.ledger.no = head.row.no
        known.checkpoint = checkpoint
        await known.catch_up()
        ended = await self._ended(head, started)
        group = ended.group if ended is not None and ended.group else None
        request = await self._rebuilt(head, known, record, kind, group)
        problems, redacted = await self._check(known, record, started)
        return AskedRequest(
            session_id=session_id,
            operation=started.operation,
            attempt=started.attempt,
            kind=kind,
            seq=started.seq,
            at=started.at,
            record=record,
            request=request,
            problems=tuple(problems),
            redacted=tuple(redacted),
            private=group is not None,
        )

    async def recording(self, session_id: str) -> Recording:
        """What happened in a session, as what it takes to play it again; see `replay`.

        Reads only. Raises `ContentRedacted` where what is needed was removed, and `UsageError` for a branch or an import.
        """
        head = await self._head(session_id)
        rows = await read_entries(self._runtime.store, head.row.no)
        return await recorded(session_id, map(open_entry, rows), self._fetcher(head.row))

    async def _started(self, head: Loaded, step: str, attempt: int | None) -> tuple[OperationStarted, str]:
        began = ids.began(step)
        rows = await read_entries(self._runtime.store, head.row.no, after=began, kinds=("operation_started",))
        kinds: dict[str, str] = {}
        found: OperationStarted | None = None
        for entry in map(open_entry, rows):
            assert isinstance(entry, OperationStarted)
            if entry.plan is not None:
                kinds[entry.operation] = entry.plan.kind
            named = entry.operation == step or (step.count(".") == 1 and entry.operation.startswith(f"{step}."))
            whole = step.count(".") == 2 or kinds.get(entry.operation) == "model"
            if named and whole and entry.request is not None and attempt in (None, entry.attempt):
                found = entry
        if found is None:
            raise UsageError(f"no model was asked at {step!r} in {head.row.session_id!r}", hint="`perdure show` names steps and operations")
        return found, kinds.get(found.operation, "model")

    async def _checkpoint_before(self, head: Loaded, seq: int) -> Checkpoint:
        """The session's state before an entry, folded from its journal."""
        store, no = self._runtime.store, head.row.no
        rebased = [open_entry(row) for row in await store.entries(no, before=seq, kinds=(Rebased.kind,), newest_first=True, limit=1)]
        checkpoint, after = Checkpoint(), 0
        if rebased:
            after = rebased[0].seq - 1
        while rows := await read_entries(store, no, after=after, before=seq, limit=PAGE):
            for entry in map(open_entry, rows):
                checkpoint = evolve(checkpoint, entry)
            after = rows[-1].seq
        return checkpoint

    async def _ended(self, head: Loaded, started: OperationStarted) -> OperationEnded | None:
        rows = await read_entries(self._runtime.store, head.row.no, after=started.seq, kinds=("operation_ended",), limit=200)
        ends = (entry for entry in map(open_entry, rows) if isinstance(entry, OperationEnded))
        return next((entry for entry in ends if (entry.operation, entry.attempt) == (started.operation, started.attempt)), None)

    async def _rebuilt(self, head: Loaded, known: Known, record: RequestRecord, kind: str, group: str | None) -> ModelRequest:
        context, checkpoint, turn = known.context, known.checkpoint, known.checkpoint.turn
        instructions = (await known.blob(record.instructions)).decode()
        if record.memory:
            instructions = "\n\n".join(filter(None, (instructions, rendered((await known.ledger.remembered(record.memory)).entries))))
        tools = msgspec.json.decode(await known.blob(record.tools), type=tuple[ToolSpec, ...])
        settings = msgspec.json.decode(await known.blob(record.settings), type=ModelSettings)
        output = msgspec.json.decode(await known.blob(record.output), type=OutputSpec) if record.output else None
        facts: dict[str, Any] = {
            "instructions": instructions,
            "tools": tools,
            "settings": settings,
            "output": output,
            "route": record.route,
            "step": turn.step if turn is not None else 0,
            "session_id": head.row.session_id,
        }
        added = await known.blob(record.additions) if record.additions else b""
        began = turn.began if turn is not None else 0
        match kind:
            case "compaction":
                shown = context.shown
                if record.notes:
                    notes = notes_in((await known.ledger.receipt(record.notes)).parts)
                    written = [item for item in turn.compactions if item.receipt == record.notes] if turn is not None else []
                    shown = context.behind(notes, written[-1].plan.upto if written else 0, began)
                stop = next((index for index, place in enumerate(shown.places) if place >= (record.upto or 0)), len(shown.places))
                messages = [*context.view(group, checkpoint.private_from, shown, stop), _says(added.decode())]
                return ModelRequest(**facts, messages=messages, purpose="notes", before=shown.before)
            case "memory":
                wanted = range(record.since or 0, record.upto or 0)
                said = [message for message in context.shown.messages if message.position in wanted]
                return ModelRequest(**facts, messages=[_says(f"{added.decode()}\n\n{told(said)}")], purpose="memory")
            case "repair":
                receipt = await known.ledger.receipt(record.candidate)
                parts = await resolve_parts(receipt.parts, known.blob)
                candidate = Message(role="assistant", parts=_for(parts, group))
                messages = [*context.view(group, checkpoint.private_from), candidate, _says(correction(added.decode()))]
                repaired = turn.repaired + 1 if turn is not None else 1
                return ModelRequest(**facts, messages=messages, purpose="repair", before=context.before, repair=repaired)
            case _:
                usual = ModelRequest(**facts, messages=[*context.view(group, checkpoint.private_from)], before=context.before)
                return Additions.of(added).request(usual) if added else usual

    async def _check(self, known: Known, record: RequestRecord, started: OperationStarted) -> tuple[list[str], list[int]]:
        problems: list[str] = []
        if record.with_digest() != record:
            problems.append("the request's digest is not that of its parts")
        if (record.context, record.epoch) != (known.checkpoint.context, known.checkpoint.epoch):
            problems.append(f"its context is not the one that stands before entry {started.seq}")
        for what in ("instructions", "tools", "settings", "additions", "output"):
            digest = getattr(record, what)
            if digest and canonical.digest(await known.blob(digest)) != digest:
                problems.append(f"the {what} are not what their digest says")
        redacted: list[int] = []
        messages, transcript = await known.transcript()
        position = 0
        async for entries in messages.entries(transcript.layout):
            read = await messages.read(transcript.layout.slice(position, position + len(entries)), position)
            for entry, message in zip(entries, read, strict=True):
                if any(isinstance(part, RedactedPart) for part in message.parts):
                    redacted.append(entry.seq)
                elif entry.digest != said_digest(entry.role, message.parts):
                    problems.append(f"message {message.position} (entry {entry.seq}) is not what its digest says")
            position += len(entries)
        return problems, redacted


def _says(text: str) -> Message:
    return Message(role="user", parts=(Text(text),))


def _for(parts: tuple[Part, ...], group: str | None) -> tuple[Part, ...]:
    return tuple(part for part in parts if not isinstance(part, Private) or part.group == group)
