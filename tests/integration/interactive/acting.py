"""What these tests share: stores that outlive their processes, sessions as a dead process left them, and entries in short words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw

from perdure import (
    Agent,
    ApprovalRequested,
    Entry,
    FunctionModel,
    MessageAdded,
    ModelRequest,
    NoteAdded,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    QueueChanged,
    Recovered,
    RequestClosed,
    Runtime,
    Session,
    SessionOpened,
    Text,
    ToolCall,
    ToolCallResponse,
    TurnEnded,
    TurnStarted,
    Usage,
)
from perdure.agent.definition import describe
from perdure.core import canonical
from perdure.core.checkpoint import Checkpoint, Operation, Turn
from perdure.core.checkpoint import decode as decode_checkpoint
from perdure.core.commands import Answer, PostMessage
from perdure.core.commands import decode as decode_command
from perdure.core.ids import arguments_digest
from perdure.core.records import Plan, RequestRecord
from perdure.core.reports import Accept, AttemptEnded, CallsPlanned, PlannedCall, Prepared, StartTools
from perdure.runtime.batch import Batch
from perdure.store.base import Claim, Commit, Committed, InboxRow, SessionRow, Store, StoredBlob
from perdure.store.memory import MemoryStore
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SQLiteStore
from perdure.testing.clock import VirtualClock
from perdure.testing.faults import Fault, FaultStore
from tests.postgres import server

UNKNOWN = "execution interrupted; result unknown after restart"
UNKNOWN_LIVE = "execution interrupted; result unknown"


PATIENCE = 120.0
"""How long a process may live (seconds). Only what hangs lives so long: a test may try hundreds of turns on a busy machine."""


class Place:
    """A store that several processes, one after the other or at once, connect to."""

    def __init__(self, kind: str, path: Path, *, auto: bool = False) -> None:
        self.kind = kind
        self.path = path
        self.clock = VirtualClock(auto=auto)
        self._memory = MemoryStore(self.clock.now, store_id="place")

    def connect(self) -> Store:
        if self.kind == "memory":
            return self._memory.peer()
        if self.kind == "postgres":
            here = server()
            return PostgresStore(here.store(here.lent(self.path)), clock=self.clock.now)
        return SQLiteStore(self.path, clock=self.clock.now, poll=0.2)

    @asynccontextmanager
    async def process(self, *faults: Fault, gate: Any = None) -> AsyncIterator[Process]:
        """A process; left, it is as dead as one that was killed if its store is."""
        store = FaultStore(self.connect(), faults=faults, gate=gate, clock=self.clock)
        process = Process(store, clock=self.clock, grace=0)
        async with process, asyncio.timeout(PATIENCE):
            yield process

    def execute(self, *statements: str) -> None:
        """Change the database behind everybody's back."""
        if self.kind == "postgres":
            here = server()
            for statement in statements:
                here.execute(f'SET search_path TO "{here.lent(self.path)}"; {statement}')
            return
        connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(5000)
        try:
            for statement in statements:
                connection.execute(statement)
        finally:
            connection.close()


class Process(Runtime):
    """A runtime whose store can be killed."""

    @property
    def faulty(self) -> FaultStore:
        assert isinstance(self.store, FaultStore)
        return self.store

    async def row(self, session: str = "s") -> SessionRow:
        head = await self.store.load(session)
        assert head is not None
        return head.row

    async def pending(self, session: str = "s") -> list[InboxRow]:
        return await self.store.inbox((await self.row(session)).no)

    async def engage_as_runner(self) -> None:
        """Have a lease, as a process with work has."""
        await self.work.heartbeat.register("somebody")

    async def batch(self, session: str = "s") -> Hand:
        """A commit by hand on what is stored now."""
        head = await self.store.load(session)
        assert head is not None
        return Hand(head, decode_checkpoint(head.row.checkpoint), now=head.now)

    async def told(self, session: str = "s", *, after: int = 0) -> list[str]:
        return [told(entry) for entry in await self.sessions.entries(session, after=after)]

    async def everything(self, session: str = "s") -> tuple[Any, ...]:
        """All that is stored of a session."""
        row = await self.row(session)
        return (
            row,
            tuple(await self.store.entries(row.no)),
            tuple(await self.store.inbox(row.no)),
            tuple(await self.store.effects(row.no)),
            tuple(sorted(await self.store.blobs(row.root))),
        )


class Hand(Batch):
    """A commit by hand."""

    def note(self, text: str) -> None:
        self.write(NoteAdded(text=text), self.now)


def told(event: Any) -> str:
    """An entry in short words."""
    match event:
        case SessionOpened():
            return "opened"
        case TurnStarted():
            return f"turn_started {event.turn}"
        case MessageAdded():
            return f"message {event.role} {event.deliver}".strip()
        case OperationPlanned():
            return f"planned {event.operation}"
        case OperationStarted():
            return f"started {event.operation}#{event.attempt}"
        case OperationEnded():
            return f"ended {event.operation}#{event.attempt} {event.status}" + ("" if event.final else " open")
        case ApprovalRequested():
            return f"asked {event.operation}"
        case RequestClosed():
            return f"closed {event.operation} {event.decision} by {event.by}"
        case TurnEnded():
            return f"{event.kind} {event.turn}"
        case Recovered():
            return f"recovered {event.turn}"
        case QueueChanged():
            return f"promoted {event.submission} to {event.deliver}"
        case _:
            return str(event.kind)


def shape(text: str) -> Any:
    """The parts of a message that says one thing."""
    return (Text(text),)


async def transcript(runtime: Runtime, session: str = "s") -> list[tuple[Any, ...]]:
    """Role and content of every message: texts, calls as (id, arguments), responses as (id, response, is_error)."""
    found: list[tuple[Any, ...]] = []
    for message in await runtime.sessions.history(session, limit=1000):
        content: list[Any] = []
        for part in message.parts:
            match part:
                case Text():
                    content.append(part.content)
                case ToolCall():
                    content.append((part.id, part.arguments))
                case ToolCallResponse():
                    content.append((part.id, part.response, part.is_error))
                case _:
                    content.append(part)
        found.append((message.role, *content))
    return found


async def eventually(true: Callable[[], Any]) -> None:
    """Wait for a condition; it may be awaitable."""
    while True:
        answer = true()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return
        await asyncio.sleep(0.001)


async def until(session: Session, *wanted: type[Any], after: int | None = None, count: int = 1) -> list[Any]:
    """Everything that a handle is told, up to and with the ``count``-th event of a type; by default the end of a turn."""
    seen: list[Any] = []
    async for event in session.events(after=after):
        seen.append(event)
        count -= isinstance(event, wanted or TurnEnded)
        if not count:
            break
    return seen


async def drain(session: Session, seen: list[Any]) -> None:
    """Everything that a handle is told, until its stream ends."""
    async for event in session.events():
        seen.append(event)


async def restarted(runtime: Runtime, agent: Agent, session: str = "s") -> list[Any]:
    """What a watcher of a session is told, without deltas, while this process does everything that can be done by itself."""
    seen: list[Any] = []

    async def watch() -> None:
        async for event in handle.events():
            if isinstance(event, Entry | SessionOpened):
                seen.append(event)

    async with runtime.session(session) as handle:
        watching = asyncio.create_task(watch())
        await eventually(lambda: seen)
        await runtime.recover([agent], session=session)
    await watching
    return seen


def counting(*replies: Any) -> tuple[FunctionModel, list[ModelRequest]]:
    """A model that plays one reply after the other, whatever is asked, and what it was asked."""
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        asked.append(request)
        reply = replies[min(len(asked), len(replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        return reply

    return FunctionModel(answer), asked


class Past:
    """The history of one session as a process decided it that is gone: pure decisions, stored in one commit of the store's contract."""

    def __init__(self, agent: Agent, batch: Batch, rows: Sequence[InboxRow]) -> None:
        self.agent = agent
        self.batch = batch
        self.rows = {row.submission_id: row for row in rows}
        self._definition = canonical.encode(describe(agent))
        self._keep(self._definition)

    def _keep(self, data: bytes) -> str:
        digest = canonical.digest(data)
        self.batch.blobs[digest] = StoredBlob(digest=digest, media_type="application/json", data=data)
        return digest

    @property
    def now(self) -> int:
        return self.batch.now

    @property
    def turn(self) -> Turn:
        return self.batch.turn

    @property
    def checkpoint(self) -> Checkpoint:
        return self.batch.checkpoint

    def accept(self, submission: str, *, route: str | None = None) -> None:
        """A message begins its turn. ``route`` is the saved one, if it is not the agent's own."""
        row = self.rows[submission]
        assert row.body is not None
        post = decode_command(row.kind, row.body, submission=row.submission_id, at=row.at, actor=row.actor)
        assert isinstance(post, PostMessage)
        definition = canonical.digest(self._definition)
        route = self.agent.model.name if route is None and isinstance(self.agent.model, FunctionModel) else route or ""
        accept = Accept(
            post=post,
            agent=self.agent.name,
            definition=definition,
            route=route,
            limits=self.agent.limits,
            terms=self.agent.terms,
            at=self.now,
        )
        taken = self.batch.take(post, accept)
        assert taken

    def ask_model(self) -> None:
        """The step's model call starts, with the request that the driver would build."""
        agent, model = self.agent, self.agent.model
        assert isinstance(model, FunctionModel)
        instructions = self._keep(agent.instructions.encode())
        tools, settings = self._keep(canonical.encode(agent.specs)), self._keep(canonical.encode(agent.settings))
        record = RequestRecord(
            route=model.name,
            context=self.checkpoint.context,
            epoch=self.checkpoint.epoch,
            instructions=instructions,
            tools=tools,
            settings=settings,
        ).with_digest()
        self.batch.apply(Prepared(kind="model", request=record, fence=1, at=self.now))

    def answered(self, *parts: Any) -> None:
        """The model's answer: texts and calls."""
        model = self.turn.model
        assert model is not None
        whole = tuple(Text(part) if isinstance(part, str) else part for part in parts)
        usage = Usage(input_tokens=10, output_tokens=1)
        self.batch.apply(AttemptEnded(operation=model.id, attempt=model.attempt, status="succeeded", parts=whole, usage=usage, at=self.now))
        self._asked = {part.id: part for part in whole if isinstance(part, ToolCall)}

    def plan(self, *, ask: Sequence[str] = ()) -> None:
        """The calls are planned; those of ``ask`` wait for a person, the others start unless one of them holds the batch."""
        planned: list[PlannedCall] = []
        for call in self.turn.unplanned:
            tool, arguments = self.agent.tool(call.name), self._asked[call.id].arguments
            assert tool is not None
            key = "" if tool.effect == "pure" else tool.effect_key(arguments)[len(tool.name.encode()) + 1 :].hex()
            plan = Plan(
                kind="tool",
                name=tool.name,
                effect=tool.effect,
                call=call.id,
                arguments=arguments_digest(arguments),
                effect_key=key,
                exclusive=tool.exclusive,
                reconcile=tool.reconcile is not None,
                ask_when_uncertain=tool.on_uncertain == "ask",
            )
            planned.append(PlannedCall(plan=plan, verdict="ask" if call.id in ask else "allow"))
        self.batch.apply(CallsPlanned(calls=tuple(planned), fence=1, at=self.now))

    def decide(self, decision: Any = "approve") -> None:
        for item in self.turn.requests:
            self.batch.apply(Answer(request_id=item.request, decision=decision, submission="decision", at=self.now))

    def start(self) -> None:
        self.batch.apply(StartTools(fence=1, at=self.now))

    def ran(self, *values: Any) -> None:
        """The running calls ended with these results."""
        running: list[Operation] = [item for item in self.turn.tools if item.status == "started"]
        for item, value in zip(running, values, strict=True):
            part = ToolCallResponse(id=item.plan.call, name=item.plan.name, response=value)
            self.batch.apply(AttemptEnded(operation=item.id, attempt=item.attempt, status="succeeded", parts=(part,), at=self.now))

    def step(self, call: ToolCall, value: Any) -> None:
        """A whole step with one call."""
        self.ask_model()
        self.answered(call)
        self.plan()
        self.ran(value)


async def lived(place: Place, agent: Agent, story: Callable[[Past], None], *sent: tuple[str, str, str], parked: bool = False) -> Past:
    """Store a session that a process worked on until it died. ``sent``: (submission, text, deliver).

    ``parked``: it had let the session go before; else it still holds it, under a lease that nobody renews.
    """
    async with place.process() as process:
        for submission, text, deliver in sent:
            await process.sessions.send("s", text, submission=submission, deliver=deliver, agent=agent.name, author="alice")  # type: ignore[arg-type]
        head = await process.store.load("s")
        assert head is not None
        batch = Batch(head, decode_checkpoint(head.row.checkpoint), now=head.now)
        past = Past(agent, batch, await process.store.inbox(head.row.no))
        story(past)
        waiting = past.checkpoint.turn is not None
        status: Any = ("waiting" if waiting else "idle") if parked else "running"
        commit: Commit = batch.commit(holder=None, claim=Claim(runner="gone"), release=parked, status=status)
        assert isinstance(await process.store.commit(commit), Committed)
    return past
