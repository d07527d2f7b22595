"""A journal as turns: what was said, what was done and how often it was tried, what was asked, what was recovered. Plain JSON data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from ..core.context import notes_in
from ..core.entries import (
    ChildEnded,
    DefinitionChange,
    EffectSettled,
    Entry,
    ExtensionCommand,
    ExtensionSet,
    Forked,
    GrantGiven,
    Halted,
    MessageAdded,
    NoteAdded,
    NotesWithdrawn,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    PrefixChanged,
    QueueChanged,
    Recovered,
    Redacted,
    RequestClosed,
    RequestOpened,
    Rewritten,
    RouteSelected,
    SubmissionRefused,
    ToolCalled,
    TurnEnded,
    TurnStarted,
)
from ..core.ids import call_of, child_session
from ..core.messages import REDACTED, Part, RedactedPart, StoredPart, ToolCall, ToolCallResponse, decode_part, is_private
from ..core.records import MODEL_KINDS, Plan
from .text import plain

__all__ = ["Timeline"]

Fetch = Callable[[str], Awaitable[bytes | None]]


class Timeline:
    """Takes entries in their order; ``turns`` grows. What stands outside any turn is a turn without an id.

    ``redacted`` are the seqs of entries whose content a later one removed.
    """

    def __init__(self, session_id: str, fetch: Fetch, redacted: Collection[int] = ()) -> None:
        self._session_id = session_id
        self._fetch = fetch
        self._redacted = redacted
        self._laid = (0, 0)
        self._inserted = 0
        self.turns: list[dict[str, Any]] = []
        self._inside = False
        self._operations: dict[str, dict[str, Any]] = {}
        self._requests: dict[str, dict[str, Any]] = {}
        self._closed: dict[str, Any] = {}
        self._grants: dict[str, Any] = {}
        self._calls: dict[str, ToolCall] = {}
        self._receipts: dict[int, list[dict[str, Any]]] = {}
        self._children: dict[str, str] = {}

    async def add(self, entry: Entry) -> None:
        """One entry more."""
        match entry:
            case TurnStarted():
                self._inside = True
                self._operations, self._requests = {}, {}
                turn = {"turn": entry.turn, "submission": entry.submission, "agent": entry.agent, "started": entry.at, "ended": None}
                self.turns.append({**turn, "status": "running", "reason": "", "failure": None, "usage": None, "items": []})
                if isinstance(entry, ToolCalled):
                    self._calls |= _calls_in(await self._whole(entry.parts))
                    self._item("called", entry, actor=entry.author)
            case TurnEnded():
                turn = self.turns[-1]
                turn |= {"status": entry.outcome, "ended": entry.at, "reason": entry.reason, "usage": plain(entry.usage)}
                turn |= {"steps": entry.steps, "tool_calls": entry.tool_calls, "failure": plain(getattr(entry, "failure", None))}
                self._inside = False
            case MessageAdded():
                await self._message(entry)
            case OperationPlanned():
                item = self._operation(entry.operation, entry.plan, entry)
                if entry.arguments is not None and entry.seq not in self._redacted:
                    item |= {"asked": item["arguments"], "arguments": entry.arguments, "rewritten_by": entry.extension}
            case OperationStarted():
                item = self._operations.get(entry.operation) or self._operation(entry.operation, entry.plan or Plan(kind="tool"), entry)
                item["status"] = "started"
                if entry.request is not None and entry.request.candidate:
                    item["candidate"] = self._receipts.pop(entry.request.candidate, item.get("candidate"))
                item["attempts"].append(
                    {"attempt": entry.attempt, "started": entry.at, "ended": None, "status": "started", "failure": None}
                )
            case OperationEnded():
                await self._ended(entry)
            case RequestOpened():
                self._opened(entry)
            case RequestClosed():
                item = self._requests.get(entry.request_id, {})
                item |= {"closed": entry.at, "decision": entry.decision, "by": entry.by, "actor": entry.actor, "reason": entry.reason}
                if entry.arguments is not None and entry.seq not in self._redacted:
                    item["edited"] = entry.arguments
                    if (changed := self._operations.get(entry.operation)) is not None:
                        changed |= {"asked": changed["arguments"], "arguments": entry.arguments}
                self._closed = item
            case ChildEnded():
                self._item(
                    "child_ended",
                    entry,
                    operation=entry.operation,
                    session=child_session(self._session_id, entry.operation),
                    name=self._children.get(entry.operation, ""),
                    status=entry.outcome,
                    reason=entry.reason,
                    spent=plain(entry.spent),
                )
            case EffectSettled():
                parts = await self._whole(entry.parts)
                result = parts[0].response if isinstance(parts[0], ToolCallResponse) else None
                self._item("settled", entry, operation=entry.operation, status=entry.status, result=result, actor=entry.actor)
                if (known := self._operations.get(entry.operation)) is not None:
                    known |= {"status": entry.status, "result": result}
            case Recovered():
                self._item("recovered", entry, fence=entry.fence, attempts=[plain(item) for item in entry.attempts])
                for attempt in entry.attempts:
                    # Nobody knows yet what became of it, and its tool is asked.
                    if attempt.status == "open" and (open_still := self._operations.get(attempt.operation)) is not None:
                        open_still["status"] = open_still["attempts"][-1]["status"] = "unknown"
            case NoteAdded(receipt=receipt) if receipt:
                # What it tells stands with its call, but for what an extension put in that one's place.
                for part in await self._whole(entry.parts):
                    if isinstance(part, ToolCallResponse):
                        self._item("replaced", entry, name=part.name, result=part.response, is_error=part.is_error)
            case NotesWithdrawn():
                self._item("withdrawn", entry, notes=list(entry.notes))
            case NoteAdded():
                self._item("note", entry, text=entry.text, extension=entry.extension)
            case ExtensionSet():
                facts = {"extension": entry.extension, "key": entry.key, "value": entry.value, "dropped": entry.dropped}
                self._item("kept", entry, **facts)
            case ExtensionCommand():
                facts = {"extension": entry.extension, "command": entry.command, "arguments": entry.arguments, "actor": entry.actor}
                self._item("command", entry, **facts)
            case DefinitionChange():
                self._item("definition_changed", entry, agent=entry.agent, difference=list(entry.difference))
            case SubmissionRefused():
                self._item("refused", entry, submission=entry.submission, failure=plain(entry.failure), actor=entry.actor)
            case QueueChanged():
                self._item("queue_changed", entry, submission=entry.submission, change=entry.change, actor=entry.actor)
            case RouteSelected():
                self._item("route_selected", entry, route=entry.route, actor=entry.actor)
            case GrantGiven():
                # It is given in the same breath as the answer to the request that showed the call.
                shown = self._grants.get(entry.grant) if entry.revoked else self._closed.get("arguments")
                self._grants[entry.grant] = shown
                facts = {"grant": entry.grant, "name": entry.name, "arguments": shown, "revoked": entry.revoked, "actor": entry.actor}
                self._item("grant", entry, **facts)
            case Rewritten():
                self._laid, self._inserted = (entry.count, entry.tail), entry.start
                facts = {"start": entry.start, "stop": entry.stop, "restored": entry.restored, "revision": entry.revision}
                self._item("rewritten", entry, **facts, reason=entry.reason, actor=entry.actor)
            case Forked():
                self._laid, self._inserted = (entry.count, entry.tail), entry.cut
                self._item("forked", entry, session=entry.session, cut=entry.cut, reason=entry.reason, actor=entry.actor)
            case Redacted():
                self._item(
                    "redacted",
                    entry,
                    entries=[row.seq for row in entry.rows],
                    positions=list(entry.positions),
                    reason=entry.reason,
                    actor=entry.actor,
                )
            case Halted():
                facts = {"released": entry.released, "problem": entry.problem, "reason": entry.reason, "actor": entry.actor}
                self._item("halted", entry, **facts)
            case PrefixChanged():
                self._item("prefix_changed", entry, reason=entry.reason, epoch=entry.epoch, upto=entry.upto or None)

    def _item(self, what: str, entry: Entry, **facts: Any) -> dict[str, Any]:
        item = {"type": what, "seq": entry.seq, "at": entry.at, **facts}
        if not self._inside and not (self.turns and self.turns[-1]["turn"] is None):
            self.turns.append({"turn": None, "items": []})
        self.turns[-1]["items"].append(item)
        return item

    def _operation(self, identity: str, plan: Plan, entry: Entry) -> dict[str, Any]:
        call = self._calls.get(plan.call)
        item = self._item(
            plan.kind,
            entry,
            operation=identity,
            name=plan.name,
            agent=plan.agent or None,
            effect=plan.effect if plan.kind not in MODEL_KINDS else None,
            arguments=None if call is None else call.arguments,
            status="planned",
            attempts=[],
            result=None,
            usage=None,
        )
        if plan.kind == "child":
            item |= {"session": child_session(self._session_id, identity), "spent": None}
            self._children[identity] = plan.name
        self._operations[identity] = item
        parent = self._operations.get(call_of(identity))
        if parent is not None and parent is not item:
            self._put_behind(parent, item)
        return item

    def _put_behind(self, call: dict[str, Any], step: dict[str, Any]) -> None:
        """A step stands with its call, whatever else began in between."""
        items: list[dict[str, Any]] = self.turns[-1]["items"]
        if call in items and items[-1] is step:
            place = next(index for index, item in enumerate(items) if item is call) + 1
            while items[place].get("operation", "").startswith(f"{call['operation']}/") and items[place] is not step:
                place += 1
            items.insert(place, items.pop())

    async def _ended(self, entry: OperationEnded) -> None:
        item = self._operations.get(entry.operation)
        if item is None:
            return
        failure = plain(entry.failure)
        attempt = item["attempts"][-1] if item["attempts"] and entry.attempt else None
        if attempt is not None:
            attempt |= {"ended": entry.at, "status": entry.status, "failure": failure, "retry_at": entry.retry_at or None}
        if entry.partial:
            item["unfinished"] = entry.partial
        parts = await self._whole(entry.parts)
        if item["type"] == "compaction":
            item["usage"] = plain(entry.usage)
            item["model"] = entry.model
            item["notes"] = notes_in(parts)
        elif item["type"] == "memory":
            item["usage"] = plain(entry.usage)
            item["model"] = entry.model
        elif item["type"] in ("model", "repair"):
            self._calls |= _calls_in(parts)
            self._receipts[entry.seq] = [_shown(part) for part in parts if not is_private(part)]
            item["usage"] = plain(entry.usage)
            item["model"] = entry.model
            item["finish"] = entry.finish
        elif parts and isinstance(parts[0], ToolCallResponse):
            item |= {"result": parts[0].response, "is_error": parts[0].is_error}
        elif parts and isinstance(parts[0], RedactedPart):
            item |= {"result": REDACTED, "is_error": False}
        if item["type"] == "child":
            item["spent"] = plain(entry.spent)
        item["status"] = entry.status if entry.final else "unknown" if entry.status == "uncertain" else "ready"
        item["failure"] = failure

    def _opened(self, entry: RequestOpened) -> None:
        operation = self._operations.get(entry.operation, {})
        self._requests[entry.request_id] = self._item(
            "request",
            entry,
            request_id=entry.request_id,
            kind=type(entry).__struct_config__.tag,
            operation=entry.operation,
            name=operation.get("name", ""),
            arguments=operation.get("arguments"),
            deadline=entry.deadline or None,
            match=plain(getattr(entry, "match", None)),
            closed=None,
        )

    async def _message(self, entry: MessageAdded) -> None:
        if entry.role == "tool":
            # Its responses stand with their calls; those that an extension put in their place do not, nor do those that were written.
            for part in await self._whole(entry.parts):
                if isinstance(part, ToolCallResponse):
                    self._item(
                        "replaced" if self._inside else "response", entry, name=part.name, result=part.response, is_error=part.is_error
                    )
            return
        if entry.role == "assistant":
            written = [_shown(part) for part in await self._whole(entry.parts)]
            facts = {"written": True} if not self._inside and not entry.receipt else {}
            self._item("answer", entry, parts=self._receipts.pop(entry.receipt, written), **facts, **self._place(entry))
            return
        parts = [_shown(part) for part in await self._whole(entry.parts)]
        self._item(
            "message",
            entry,
            parts=parts,
            author=entry.author,
            submission=entry.submission,
            deliver=entry.deliver,
            **self._place(entry),
        )

    def _place(self, entry: MessageAdded) -> dict[str, Any]:
        """Where a message stood when it came; ``instead``: in the place of others."""
        count, tail = self._laid
        if entry.number > tail:
            return {"position": count + entry.number - tail - 1}
        self._inserted += 1
        return {"position": self._inserted - 1, "instead": True}

    async def _whole(self, parts: tuple[Part, ...]) -> list[Part]:
        whole: list[Part] = []
        for part in parts:
            data = await self._fetch(part.digest) if isinstance(part, StoredPart) else None
            whole.append(part if data is None else decode_part(data))
        return whole


def _shown(part: Part) -> dict[str, Any]:
    shown: dict[str, Any] = plain(part)
    return shown


def _calls_in(parts: list[Part]) -> dict[str, ToolCall]:
    """The calls that an answer asks for, by their ids; of one that was redacted only the name is left."""
    found = {part.id: part for part in parts if isinstance(part, ToolCall)}
    gone = [part for part in parts if isinstance(part, RedactedPart) and part.was == "tool_call"]
    return found | {part.call: ToolCall(name=part.name, arguments=REDACTED, id=part.call) for part in gone}
