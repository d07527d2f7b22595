"""A session's own memory at work: when what was said is looked through, what is asked then, and the copy that others can read."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from ..agent import Agent
from ..core import canonical
from ..core.checkpoint import Checkpoint
from ..core.entries import Entry, ExtensionSet
from ..core.memory import MEMORY, STATE, STATE_LIMIT, MemoryState, Remembered
from ..core.messages import Message, Text, ToolCall, ToolCallResponse
from ..core.records import Failure, RequestRecord
from ..core.reports import AttemptEnded, Extend, Prepared, Setting
from ..models.base import ModelRequest
from ..models.estimate import BYTES_PER_TOKEN
from ..store.base import StoredBlob
from .batch import Batch
from .context import Context
from .ledger import Ledger
from .memory_file import MemoryFile
from .prepare import Asked, content

__all__ = ["Remembering", "is_said", "learns", "told"]

Then: TypeAlias = Literal["kept", "asks", "nothing"]

LONG, HEAD, TAIL = 2_000, 1_200, 400
"""Of what is longer than the first an extraction sees so much of the beginning and the end (characters)."""

TRUNCATED = "\n...[truncated]...\n"

FORGOTTEN = Failure(code="forgotten", message="the agent keeps no memory of the session any more")

_log = logging.getLogger("perdure.runtime")


def learns(entry: Entry) -> bool:
    """Whether an entry says what a session remembers."""
    return isinstance(entry, ExtensionSet) and entry.extension == MEMORY


class Remembering:
    """Proposes the extractions of one session. What they come to, `core` decides.

    ``asked`` are the requests that were prepared, by operation. ``keep`` takes content that entries refer to.
    """

    def __init__(self, agent: Agent, context: Context, ledger: Ledger, session_id: str, keep: Callable[[Batch, StoredBlob], None]) -> None:
        self.asked: dict[str, Asked] = {}
        self._memory = agent.session_memory
        self._compaction = agent.compaction
        self._context = context
        self._ledger = ledger
        self._session_id = session_id
        self._keep = keep
        self._file: MemoryFile | None = None
        if (memory := self._memory) is None:
            return
        self._told = (
            content(b"", "text/plain"),
            content(canonical.encode([])),
            content(canonical.encode(memory.settings)),
            content(memory.instructions.encode(), "text/plain"),
        )
        if memory.workspace is not None:
            self._file = MemoryFile(memory.workspace, memory.storage, session_id)

    def matters(self, batch: Batch) -> bool:
        """Whether there is anything to look for, or somebody began to."""
        turn = batch.checkpoint.turn
        return self._memory is not None or (turn is not None and turn.extraction is not None)

    async def informed(self, batch: Batch, report: AttemptEnded) -> AttemptEnded:
        """The report of an extraction's end with what was remembered before."""
        operation = batch.operation(report.operation)
        if operation is None or operation.plan.kind != "memory":
            return report
        limit = STATE_LIMIT
        if self._memory is not None:
            ratio = self._compaction.bytes_per_token if self._compaction is not None else BYTES_PER_TOKEN
            limit = min(limit, int(self._memory.max_tokens * ratio))
        return msgspec.structs.replace(report, remembered=Remembered(state=await self._state(batch.checkpoint, batch), limit=limit))

    async def prepare(self, batch: Batch, fence: int, route: str, tokens: int) -> Then:
        """Look through what was said if that is due: the step's request goes to ``route``, and its context has about ``tokens`` tokens.

        ``kept``: what the session remembers changed in this commit, which comes first.
        """
        if any(map(learns, batch.entries)):
            return "kept"
        memory, checkpoint, turn = self._memory, batch.checkpoint, batch.turn
        running = turn.extraction
        if running is not None and running.status == "ended":
            return "nothing"
        if memory is None:
            if running is not None:
                given_up = AttemptEnded(operation=running.id, attempt=0, status="cancelled", failure=FORGOTTEN, at=batch.now)
                batch.apply(given_up)
            return "nothing"
        state = await self._state(checkpoint, batch)
        since = state.upto if state.base == checkpoint.transcript.base and state.upto <= checkpoint.messages else 0
        upto = checkpoint.messages
        if running is not None:
            upto, tokens = running.plan.upto, running.plan.tokens
        elif not self._is_due(state, tokens):
            return "nothing"
        messages = [message for message in self._context.shown.messages if since <= message.position < upto]
        if running is None and not messages:
            advanced = msgspec.structs.replace(state, upto=upto, base=checkpoint.transcript.base, tokens=tokens)
            setting = Setting(extension=MEMORY, key=STATE, value=msgspec.to_builtins(advanced))
            batch.apply(Extend(settings=(setting,), at=batch.now))
            return "kept"
        self._ask(batch, fence, memory.route or route, messages, since, upto, tokens)
        return "asks"

    def _is_due(self, state: MemoryState, tokens: int) -> bool:
        memory = self._memory
        assert memory is not None
        said = sum(map(is_said, self._context.shown.messages))
        if not tokens or not said:
            return False
        if not state.extractions:
            return tokens >= memory.min_tokens and said >= memory.min_text_messages
        grown = tokens - state.tokens if tokens >= state.tokens else tokens
        return grown >= memory.growth

    def _ask(self, batch: Batch, fence: int, route: str, messages: list[Message], since: int, upto: int, tokens: int) -> None:
        memory, checkpoint = self._memory, batch.checkpoint
        assert memory is not None
        for blob in self._told:
            self._keep(batch, blob)
        instructions, tools, settings, additions = (blob.digest for blob in self._told)
        record = RequestRecord(
            route=route,
            context=checkpoint.context,
            epoch=checkpoint.epoch,
            instructions=instructions,
            tools=tools,
            settings=settings,
            upto=upto,
            additions=additions,
            since=since,
        ).with_digest()
        request = ModelRequest(
            instructions="",
            messages=[Message(role="user", parts=(Text(f"{memory.instructions}\n\n{told(messages)}"),))],
            settings=memory.settings,
            route=route,
            step=batch.turn.step,
            session_id=self._session_id,
            purpose="memory",
        )
        batch.apply(Prepared(kind="memory", request=record, tokens=tokens, fence=fence, at=batch.now))
        turn = batch.checkpoint.turn
        if turn is not None and (started := turn.extraction) is not None and started.status == "started":
            self.asked = {started.id: Asked(request)}

    async def _state(self, checkpoint: Checkpoint, batch: Batch | None = None) -> MemoryState:
        seq = checkpoint.extensions.get(MEMORY, {}).get(STATE, 0)
        return await self._ledger.remembered(seq, batch) if seq else MemoryState()

    async def export(self, checkpoint: Checkpoint, *, aside: bool) -> str:
        """See to it that the copy holds what a committed checkpoint says. Returns why it can't, empty if it does.

        ``aside``: in a thread, so that a slow disk delays nobody else.
        """
        if self._file is None or (STATE not in checkpoint.extensions.get(MEMORY, {}) and not self._file.written):
            return ""
        data = (await self._state(checkpoint)).export()
        try:
            await (asyncio.to_thread(self._file.write, data) if aside else _at_once(self._file.write, data))
        except (OSError, ValueError) as error:
            _log.warning("the memory of %s can't be copied to %s: %s", self._session_id, self._file.path, error)
            return f"what the session remembers can't be copied to {self._file.path}: {error}"
        return ""


async def _at_once(function: Callable[[bytes], None], data: bytes) -> None:
    function(data)


def is_said(message: Message) -> bool:
    """Whether a message says something itself: it is no result, and no note on others."""
    return message.role != "tool" and message.position >= 0 and bool(message.text.strip())


def shortened(text: str) -> str:
    """What an extraction sees of a long text: its beginning and its end."""
    return text if len(text) <= LONG else text[:HEAD] + TRUNCATED + text[-TAIL:]


def told(messages: Iterable[Message]) -> str:
    """Messages as an extraction reads them: one JSON array."""
    return json.dumps([_told(message) for message in messages], ensure_ascii=False, separators=(",", ":"))


def _told(message: Message) -> dict[str, Any]:
    responses = [part for part in message.parts if isinstance(part, ToolCallResponse)]
    if responses:
        results = [
            {"tool_call_id": part.id, "name": part.name, "content": shortened(canonical.as_text(part.response)), "is_error": part.is_error}
            for part in responses
        ]
        return {"role": message.role, "results": results}
    calls = [
        {"id": part.id, "name": part.name, "arguments": shortened(canonical.as_text(part.arguments))}
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    return {"role": message.role, "content": shortened(message.text)} | ({"tool_calls": calls} if calls else {})
