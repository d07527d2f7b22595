"""What happened in a session, as what it takes to play it again: what people said, what models answered and what calls came to."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ..core import canonical, entries
from ..core.entries import (
    DefinitionChange,
    Entry,
    Foreign,
    Forked,
    MessageAdded,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    Redacted,
    RequestClosed,
    Rewritten,
    TurnEnded,
    TurnStarted,
)
from ..core.errors import ContentRedacted, ImportRefused, StoreCorrupt, UsageError
from ..core.ids import arguments_digest
from ..core.messages import (
    Blob,
    Part,
    Private,
    Reasoning,
    RedactedPart,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
)
from ..core.records import MODEL_KINDS, EffectClass
from ..core.usage import Totals
from ..models.base import ModelRequest
from ..models.scripted import FunctionModel, Reply
from .context import resolve_parts

__all__ = ["RecordedCall", "RecordedTurn", "Recording", "Said", "recorded", "recording_of_lines"]

Fetch = Callable[[str], Awaitable[bytes]]


class Said(NamedTuple):
    """What a person said in a turn: before the model call ``step``, and as the answer to a question if it ``answers`` one."""

    parts: tuple[Part, ...]
    author: str
    step: int
    answers: bool = False


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool and what the model read of it. ``ran``: it was begun; ``effect`` is that of the tool."""

    turn: str
    name: str
    arguments: Any
    digest: str
    response: ToolCallResponse
    effect: EffectClass
    ran: bool


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn: what was said, and what it came to. ``status`` is None while it is unfinished."""

    turn: str
    submission: str
    agent: str
    said: tuple[Said, ...]
    status: str | None
    reason: str
    usage: Totals
    transcript: tuple[tuple[str, tuple[Part, ...]], ...]


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A session's journal, read for playing it again. ``notes`` say what of it can't be played as it was."""

    session_id: str
    turns: tuple[RecordedTurn, ...]
    calls: tuple[RecordedCall, ...]
    answers: tuple[Reply, ...]
    repairs: tuple[tuple[Reply, ...], ...]
    aside: dict[str, tuple[Reply, ...]]
    content: dict[str, bytes]
    notes: tuple[str, ...]

    @property
    def agent(self) -> str:
        """The name of the agent whose turns these are."""
        return self.turns[0].agent if self.turns else ""

    def model(self) -> FunctionModel:
        """A model that answers as the recorded one did, by the place in the conversation. It raises `UsageError` beyond the last answer."""
        asked: defaultdict[str, deque[Reply]] = defaultdict(deque, {purpose: deque(said) for purpose, said in self.aside.items()})

        def answer(request: ModelRequest) -> Reply:
            match request.purpose:
                case "answer":
                    return _at(self.answers, request.answers, "answer")
                case "repair":
                    made = self.repairs[request.answers - 1] if 0 < request.answers <= len(self.repairs) else ()
                    return _at(made, request.repair - 1, "corrected answer")
                case purpose:
                    if not asked[purpose]:
                        raise UsageError(f"the recorded session holds no more {purpose}", hint="it asked for none here")
                    return asked[purpose].popleft()

        return FunctionModel(answer, name="recorded")


def _at(made: Sequence[Reply], index: int, what: str) -> Reply:
    if not 0 <= index < len(made):
        raise UsageError(f"the recorded session holds no {what} number {index + 1}", hint="the agent went on where the recorded one didn't")
    return made[index]


async def recorded(session_id: str, journal: Iterable[Entry], fetch: Fetch) -> Recording:
    """Read a journal. Raises `ContentRedacted` where what is needed was removed, `UsageError` for a session without turns of its own."""
    reader = _Reader(session_id, fetch)
    for entry in journal:
        await reader.take(entry)
    return reader.recording()


class _Reader:
    def __init__(self, session_id: str, fetch: Fetch) -> None:
        self._session_id = session_id
        self._fetch = fetch
        self._turns: list[RecordedTurn] = []
        self._calls: list[RecordedCall] = []
        self._answers: list[Reply] = []
        self._repairs: list[tuple[Reply, ...]] = []
        self._aside: defaultdict[str, list[Reply]] = defaultdict(list)
        self._content: dict[str, bytes] = {}
        self._notes: list[str] = []
        self._turn: TurnStarted | None = None
        self._agent = ""
        self._said: list[Said] = []
        self._transcript: list[tuple[str, tuple[Part, ...]]] = []
        self._step = 0
        self._kinds: dict[str, str] = {}
        self._effects: dict[str, EffectClass] = {}
        self._begun: set[str] = set()
        self._call_of: dict[str, str] = {}
        self._receipts: dict[int, tuple[Part, ...]] = {}
        self._step_answers: list[tuple[str, Reply]] = []
        self._replied = False

    async def take(self, entry: Entry) -> None:
        match entry:
            case Forked():
                raise UsageError(
                    f"{self._session_id!r} is a branch of {entry.session!r}: its beginning is not its own", hint=f"replay {entry.session!r}"
                )
            case Foreign() if entry.messages:
                raise UsageError(f"{self._session_id!r} begins with what another system kept", hint="only its own turns could be replayed")
            case Rewritten():
                self._notes.append(f"the transcript was rewritten at entry {entry.seq}; its turns are played as they happened")
            case TurnStarted() if entry.rejected:
                self._notes.append(f"the message {entry.submission!r} was rejected, and is left out")
            case TurnStarted():
                self._turn, self._said, self._transcript, self._step, self._agent = entry, [], [], 0, entry.agent
            case DefinitionChange() if self._turn is not None and entry.agent != self._agent:
                self._agent = entry.agent
                self._notes.append(f"{self._turn.turn} was handed over to {entry.agent!r}, which is not played: one agent answers it all")
            case OperationPlanned() | OperationStarted():
                if entry.plan is not None:
                    self._kinds[entry.operation] = entry.plan.kind
                    self._effects[entry.operation] = entry.plan.effect
                    self._call_of[entry.plan.call] = entry.operation
                if isinstance(entry, OperationStarted):
                    self._begun.add(entry.operation)
            case OperationEnded():
                await self._ended(entry)
            case entries.EffectSettled():
                self._receipts[entry.seq] = entry.parts
            case RequestClosed(decision="reply"):
                self._replied = True
            case MessageAdded() if self._turn is not None:
                await self._message(entry)
            case TurnEnded() if self._turn is not None:
                self._end(entry.outcome, entry.reason, entry.usage)

    async def _ended(self, entry: OperationEnded) -> None:
        self._receipts[entry.seq] = entry.parts
        kind = self._kinds.get(entry.operation, "tool")
        if kind not in MODEL_KINDS or entry.status != "succeeded":
            return
        if kind == "model":
            # What a call that was begun anew had answered before is no answer of the conversation.
            self._step_answers = []
        reply = await self._reply(entry)
        if kind in ("model", "repair"):
            self._step_answers.append((kind, reply))
        else:
            self._aside["notes" if kind == "compaction" else kind].append(reply)

    async def _message(self, entry: MessageAdded) -> None:
        parts = await self._whole(entry)
        self._transcript.append((entry.role, parts))
        if entry.role == "user":
            for part in parts:
                if isinstance(part, Blob):
                    self._content[part.digest] = await self._fetch(part.digest)
            self._said.append(Said(parts, entry.author, self._step, self._replied))
            self._replied = False
        elif entry.role == "assistant":
            self._step += 1
            first = self._step_answers[0][1] if self._step_answers else _as_reply(parts)
            self._answers.append(first)
            self._repairs.append(tuple(reply for kind, reply in self._step_answers if kind == "repair"))
            self._step_answers = []
        else:
            asked = {part.id: part for part in self._transcript[-2][1] if isinstance(part, ToolCall)} if len(self._transcript) > 1 else {}
            for part in parts:
                if isinstance(part, ToolCallResponse) and (call := asked.get(part.id)) is not None:
                    operation = self._call_of.get(part.id, "")
                    self._calls.append(
                        RecordedCall(
                            turn=self._turn.turn if self._turn is not None else "",
                            name=call.name,
                            arguments=call.arguments,
                            digest=arguments_digest(call.arguments),
                            response=part,
                            effect=self._effects.get(operation, "external"),
                            ran=operation in self._begun,
                        )
                    )

    async def _whole(self, entry: MessageAdded) -> tuple[Part, ...]:
        try:
            parts = entry.told(entry.parts, self._receipts)
        except KeyError as missing:
            raise StoreCorrupt(f"entry {missing}, which a message refers to, is missing", hint="run `perdure verify`") from missing
        return await self._resolved(parts, entry.seq)

    async def _resolved(self, parts: Iterable[Part], seq: int) -> tuple[Part, ...]:
        whole = await resolve_parts(parts, self._fetch)
        if any(isinstance(part, RedactedPart) for part in whole):
            raise ContentRedacted(
                f"entry {seq} of {self._session_id!r} was redacted: what was said there is gone for good",
                hint="a session without it can't be played as it was",
                entry=seq,
            )
        return whole

    async def _reply(self, entry: OperationEnded) -> Reply:
        reply = _as_reply(await self._resolved(entry.parts, entry.seq))
        finish: Any = entry.finish or None
        return msgspec.structs.replace(reply, usage=entry.usage, model=entry.model, finish=finish)

    def _end(self, status: str | None, reason: str, usage: Totals) -> None:
        assert self._turn is not None
        self._turns.append(
            RecordedTurn(
                turn=self._turn.turn,
                submission=self._turn.submission,
                agent=self._turn.agent,
                said=tuple(self._said),
                status=status,
                reason=reason,
                usage=usage,
                transcript=tuple(self._transcript),
            )
        )
        self._turn = None

    def recording(self) -> Recording:
        if self._turn is not None:
            self._notes.append(f"the turn {self._turn.turn} is unfinished")
            self._end(None, "", Totals())
        if not any(turn.said for turn in self._turns):
            raise UsageError(f"nobody said anything in {self._session_id!r}", hint="there is nothing to play")
        return Recording(
            session_id=self._session_id,
            turns=tuple(turn for turn in self._turns if turn.said),
            calls=tuple(self._calls),
            answers=tuple(self._answers),
            repairs=tuple(self._repairs),
            aside={purpose: tuple(said) for purpose, said in self._aside.items()},
            content=self._content,
            notes=tuple(self._notes),
        )


def _as_reply(parts: Iterable[Part]) -> Reply:
    text, reasoning, calls = "", "", []
    for part in parts:
        match part:
            case Text(content=content):
                text += content
            case Reasoning(content=content):
                reasoning += content
            case ToolCall():
                calls.append(part)
            case Private() | Uri() | Blob():
                # A provider's own is for that provider alone.
                continue
    return Reply(text, tool_calls=calls, reasoning=reasoning)


async def recording_of_lines(lines: Iterable[str | bytes], session_id: str | None = None) -> Recording:
    """Read a session out of the lines of an export; ``session_id`` is which, where it holds several.

    Raises `ImportRefused` for lines that are no whole export, and what `recorded` raises.
    """
    journals, contents = _exported(lines)
    if session_id is None and len(journals) != 1:
        raise UsageError(f"the export holds {len(journals)} sessions: {', '.join(journals)}", hint="say which with session=")
    name = session_id or next(iter(journals))
    if name not in journals:
        raise UsageError(f"the export holds no session {name!r}", hint=f"it holds {', '.join(journals)}")

    async def fetch(digest: str) -> bytes:
        if digest not in contents:
            raise ContentRedacted(f"the content {digest[:12]}… is not in the export", hint="it was removed for good")
        return contents[digest]

    return await recorded(name, journals[name], fetch)


def _exported(lines: Iterable[str | bytes]) -> tuple[dict[str, list[Entry]], dict[str, bytes]]:
    journals: dict[str, list[Entry]] = {}
    rows: list[dict[str, Any]] = []
    contents: dict[str, bytes] = {}
    hashed, name, blob, ended = hashlib.sha256(), "", "", False
    for number, given in enumerate(lines, 1):
        data = given.encode() if isinstance(given, str) else given
        data = data if data.endswith(b"\n") else data + b"\n"
        try:
            line = json.loads(data)
            kind = line["type"]
        except (ValueError, KeyError, TypeError) as error:
            raise ImportRefused(f"line {number} is none of an export", hint="`perdure export` makes one") from error
        if kind == "end":
            ended = line.get("digest") == hashed.hexdigest()
        hashed.update(data)
        match kind:
            case "session":
                _keep(journals, name, rows)
                name, rows = line["session_id"], []
            case "entry":
                rows.append(line)
            case "blob":
                blob = line["digest"]
                contents[blob] = b""
            case "piece":
                contents[blob] += base64.b64decode(line["data"])
    _keep(journals, name, rows)
    if not ended or not journals:
        raise ImportRefused("the lines are no whole export: its end is missing, or its digest differs", hint="export it again")
    return journals, contents


def _keep(journals: dict[str, list[Entry]], name: str, rows: list[dict[str, Any]]) -> None:
    if not name:
        return
    left: dict[int, Any] = {}
    for row in rows:
        if row["kind"] == Redacted.kind and row["body"] is not None:
            left |= {item["seq"]: item["body"] for item in row["body"]["rows"]}
    journals[name] = [
        entries.decode(
            row["kind"],
            canonical.encode(row["body"] if row["body"] is not None else left.get(row["seq"], {})),
            seq=row["seq"],
            number=row["number"],
            at=row["at"],
        )
        for row in rows
    ]
