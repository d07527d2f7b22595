"""A recorded session once more, in memory: the same words to another agent, and its calls answered from the receipts. Nothing real runs."""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ..agent import Agent
from ..agent.memory import SessionMemory
from ..agent.middleware import HookContext, Middleware
from ..core.context import READ_RESULT
from ..core.entries import AnswerRequested, TurnEnded
from ..core.errors import OutputInvalid, StaleRequest
from ..core.finishing import FINISH
from ..core.ids import arguments_digest
from ..core.media import Media
from ..core.messages import Blob, Reasoning, Text, ToolCall, ToolCallResponse, Uri
from ..core.usage import Totals
from ..models.base import Model
from ..models.prices import Price, Prices
from ..models.router import Router
from ..tools.context import ToolContext
from ..tools.running import Running, ToolError, begin
from ..tools.tool import BoundCall, Tool
from .content import Input
from .context import stored_content
from .recording import RecordedCall, Recording, Said, recorded
from .result import Result
from .runtime import Runtime
from .session import Session
from .stores import store_at

__all__ = ["Replay", "Replayed", "replay", "stand_in"]

NOT_RECORDED = "not executed: the recorded session has no such call"


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, then and now. ``difference`` are lines of a diff of its transcript, none where it is the same."""

    turn: str
    submission: str
    status: tuple[str | None, str]
    usage: tuple[Totals, Totals]
    output: Any
    failure: str
    difference: tuple[str, ...]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay came to. ``refused`` are calls that the record knows nothing of, ``missing`` those that were not asked for again.

    ``effects`` are what was done then, by tool and effect, and ``again`` how often that would have been asked for now.
    """

    session_id: str
    agent: str
    turns: tuple[Replayed, ...]
    answered: int
    refused: tuple[tuple[str, Any], ...]
    missing: tuple[tuple[str, Any], ...]
    effects: dict[str, int]
    again: dict[str, int]
    usage: tuple[Totals, Totals]
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether every turn ended the same, said the same and asked for the same. What it used may be something else."""
        ended = all(turn.status[0] == turn.status[1] and not turn.difference for turn in self.turns)
        return ended and not self.refused and not self.missing


class Receipts:
    """The recorded calls, each given away once, in order."""

    def __init__(self, calls: tuple[RecordedCall, ...]) -> None:
        self._left: defaultdict[tuple[str, str], deque[RecordedCall]] = defaultdict(deque)
        for call in calls:
            self._left[call.name, call.digest].append(call)
        self.answered = 0
        self.again: Counter[str] = Counter()
        self.refused: list[tuple[str, Any]] = []

    def take(self, name: str, arguments: Any) -> ToolCallResponse | None:
        """What a call came to; None if there was no such call, or it was given away."""
        left = self._left[name, arguments_digest(arguments)]
        if not left:
            self.refused.append((name, arguments))
            return None
        call = left.popleft()
        self.answered += 1
        if call.ran and call.effect != "pure":
            self.again[f"{name} ({call.effect})"] += 1
        return call.response

    @property
    def missing(self) -> list[tuple[str, Any]]:
        """The calls that nobody asked for."""
        return [(call.name, call.arguments) for left in self._left.values() for call in left if call.name not in (FINISH, READ_RESULT)]


class _Recorded(Tool):
    """A tool as the model knows it, whose calls are answered from the receipts."""

    receipts: Receipts

    def start(self, context: ToolContext | None, bound: BoundCall) -> Running[Any]:
        response = self.receipts.take(self.name, bound.arguments)

        def answer() -> Any:
            if response is None:
                raise ToolError(NOT_RECORDED)
            if response.is_error:
                raise ToolError(response.response if isinstance(response.response, str) else str(response.response))
            return response.response

        return begin(self.name, answer, {}, is_async=False, then=lambda result: result)


class _Steers(Middleware):
    """Says in mid-turn what was said in mid-turn, before the model call of the same step."""

    name = "replay"

    def __init__(self) -> None:
        self.left: list[Said] = []
        self.session: Session | None = None
        self.recording: Recording | None = None

    async def before_model(self, ctx: HookContext) -> None:
        await self._say(ctx.step)

    async def stop(self, ctx: HookContext, answer: str) -> None:
        await self._say(ctx.step)

    async def _say(self, step: int) -> None:
        while self.left and self.left[0].step <= step and self.session is not None and self.recording is not None:
            await self.session.send(said_again(self.left.pop(0), self.recording), deliver="steer")


def stand_in(agent: Agent, receipts: Receipts, *, model: str | Model | Router | None = None, steers: Middleware | None = None) -> Agent:
    """The agent as far as it can be played without any effect: its words, tools and finishing rule, with receipts behind the tools.

    Its middleware and its policy are the host's own code and are not asked; what they tell the model and offer it stays.
    """
    tools: list[Tool] = []
    for spec in agent.specs:
        tool = agent.tool(spec.name)
        if tool is None or spec.name == READ_RESULT or (spec.name == FINISH and agent.finish != "answer"):
            continue
        facts: dict[str, Any] = {field.name: getattr(tool, field.name) for field in dataclasses.fields(tool)}
        harmless = {"effect": "pure", "key": None, "reconcile": None, "timeout": None, "guard": "allow", "delegation": None, "asks": False}
        made = _Recorded(**{**facts, **harmless})
        object.__setattr__(made, "receipts", receipts)
        tools.append(made)
    memory = dataclasses.replace(agent.memory, workspace=None) if isinstance(agent.memory, SessionMemory) else None
    changes: dict[str, Any] = {"model": model} if model is not None else {}
    return agent.replace(
        instructions=agent.prompt,
        tools=tools,
        approve=(),
        handoffs=(),
        memory=memory,
        middleware=[] if steers is None else [steers],
        **changes,
    )


async def replay(
    recording: Recording,
    agent: Agent,
    *,
    model: str | Model | Router | None = None,
    prices: Prices | Mapping[str, Price] | None = None,
) -> Replay:
    """Say the same to an agent, turn by turn, in memory. Raises what its model's name does, and what sending does.

    ``model`` is asked instead of the agent's own; its calls are real ones. Tools are never run: see `stand_in`. With ``prices`` the
    usage of now says what it costs, as a runtime's does.
    """
    receipts, steers = Receipts(recording.calls), _Steers()
    steered = any(said.step or index for turn in recording.turns for index, said in enumerate(turn.said) if not said.answers)
    played = stand_in(agent, receipts, model=model, steers=steers if steered else None)
    results: list[Result] = []
    before = after = Totals()
    async with Runtime(store_at("memory://", None), prices=prices) as runtime, runtime.session(recording.session_id, played) as session:
        steers.session, steers.recording = session, recording
        seq = 0
        for turn in recording.turns:
            first, *others = turn.said
            replies = deque(said for said in others if said.answers)
            steers.left = [said for said in others if not said.answers]
            sent = await session.send(said_again(first, recording), submission=turn.submission)
            seq = await _follow(session, sent.id, replies, seq)
            result = await _result(runtime, recording.session_id, sent.id, played)
            before, after = before.and_of(turn.usage), after.and_of(result.usage)
            results.append(result)
        now = await recorded(
            recording.session_id, await runtime.sessions.entries(recording.session_id), partial(_content, runtime, recording.session_id)
        )
    said_now = {turn.turn: turn.transcript for turn in now.turns}
    turns = tuple(
        Replayed(
            turn=turn.turn,
            submission=turn.submission,
            status=(turn.status, result.status),
            usage=(turn.usage, result.usage),
            output=result.output,
            failure=f"{result.failure.code}: {result.failure.message}" if result.failure is not None else "",
            difference=_difference(turn.transcript, said_now.get(result.turn, ())),
        )
        for turn, result in zip(recording.turns, results, strict=True)
    )
    ran = Counter(f"{call.name} ({call.effect})" for call in recording.calls if call.ran and call.effect != "pure")
    notes = list(recording.notes)
    if agent.middleware:
        notes.append(f"hooks of {', '.join(item.name for item in agent.middleware)} did not run")
    return Replay(
        session_id=recording.session_id,
        agent=agent.name,
        turns=turns,
        answered=receipts.answered,
        refused=tuple(receipts.refused),
        missing=tuple(receipts.missing),
        effects=dict(ran),
        again=dict(receipts.again),
        usage=(before, after),
        notes=tuple(notes),
    )


async def _follow(session: Session, submission: str, replies: deque[Said], after: int) -> int:
    """Answer what the user is asked as they did, until the turn's end. Returns the seq of that."""
    async for event in session.events(after=after):
        if isinstance(event, AnswerRequested):
            with suppress(StaleRequest):
                if replies:
                    await session.reply(
                        event.request_id, "".join(part.content for part in replies.popleft().parts if isinstance(part, Text))
                    )
                else:
                    await session.deny(event.request_id, reason="the recorded user said nothing more")
        if isinstance(event, TurnEnded) and event.submission == submission:
            return event.seq
    raise AssertionError("a turn has an end")


async def _content(runtime: Runtime, root: str, digest: str) -> bytes:
    return await stored_content(runtime.store, root, digest)


async def _result(runtime: Runtime, session_id: str, submission: str, agent: Agent) -> Result:
    try:
        found = await runtime.sessions.result(session_id, submission, agent=agent)
    except OutputInvalid:
        found = await runtime.sessions.result(session_id, submission)
    assert found is not None
    return found


def said_again(said: Said, recording: Recording) -> Input:
    """What somebody said, as it can be sent."""
    content: list[Any] = []
    for part in said.parts:
        match part:
            case Blob():
                content.append(Media(recording.content[part.digest], mime_type=part.mime_type, name=part.name))
            case Text() | Uri():
                content.append(part)
    return content


def _difference(then: Any, now: Any) -> tuple[str, ...]:
    return tuple(difflib.unified_diff(_lines(then), _lines(now), "then", "now", lineterm=""))


def _lines(transcript: Any) -> list[str]:
    """A transcript as lines that only what was said and done makes differ, not the ids of calls."""
    lines: list[str] = []
    for role, parts in transcript:
        for part in parts:
            match part:
                case Text(content=content):
                    lines += [f"{role}: {line}" for line in content.splitlines() or [""]]
                case ToolCall():
                    lines.append(f"{role} calls {part.name} {msgspec.json.encode(part.arguments, order='sorted').decode()}")
                case ToolCallResponse():
                    said = msgspec.json.encode(part.response, order="sorted").decode()
                    lines.append(f"{part.name} {'fails with' if part.is_error else 'returns'} {said}")
                case Blob():
                    lines.append(f"{role}: [{part.mime_type} {part.digest[:12]}]")
                case Uri():
                    lines.append(f"{role}: [{part.uri}]")
                case Reasoning():
                    continue
    return lines
