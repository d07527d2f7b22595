"""``perdure chat``: a conversation in one session."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..agent import Agent
from ..core.entries import Identity, TurnEnded, TurnStarted
from ..core.errors import SessionNotFound, UsageError
from ..core.messages import Message, Text, ToolCall, ToolCallResponse
from ..core.rules.endings import UNKNOWN_AFTER_RESTART, UNKNOWN_LIVE
from ..runtime.feed import Event
from ..runtime.runtime import Runtime
from ..runtime.session import Session
from .agents import ad_hoc, belongs, load
from .exits import OK
from .follow import Follower, Left
from .keyboard import Keyboard
from .live import called, outcome_mark
from .opening import opened
from .screen import Screen
from .text import value

__all__ = ["chat", "show_message"]

T = TypeVar("T")

EARLIER = 20
"""How many earlier messages are shown."""


def chat(arguments: argparse.Namespace) -> int:
    """Talk until somebody leaves."""
    if arguments.agent is None and arguments.model is None:
        raise UsageError("chat needs an agent", hint="perdure chat module:agent, or --model openai:…")
    agent = load(arguments.agent, model=arguments.model) if arguments.agent else ad_hoc(arguments.model)
    return asyncio.run(_chat(arguments, agent))


async def _chat(arguments: argparse.Namespace, agent: Agent) -> int:
    screen = Screen()
    # Here the conversation is the result.
    screen.notes = screen.out
    session_id = arguments.session or uuid.uuid4().hex[:12]
    code = OK
    try:
        async with opened(arguments, create=True) as runtime:
            await _show_earlier(runtime, screen, session_id, agent)
            identity = Identity(owner=arguments.owner) if arguments.owner else None
            talk = _Talk(Follower(runtime, session_id, screen, db=arguments.db, agent=agent, named=arguments.agent or ""))
            async with talk.follower, runtime.session(session_id, agent, identity=identity) as handle:
                await talk.run(handle)
    except Left as left:
        code = left.code
    screen.note((f"the session is kept: --session {session_id}", "dim"))
    return code


class _Talk:
    """A person's lines in turn with the agent's turns."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.screen = follower.screen
        self.keyboard = follower.keyboard or Keyboard()
        self.free = asyncio.Event()
        self.waiting: set[str] = set()

    async def run(self, handle: Session) -> None:
        """Watch all the time; read a line whenever no turn runs."""
        await self._find_out(handle)
        watching = asyncio.ensure_future(self.follower.watch(handle, self._never, after=self.after))
        try:
            while True:
                await self._first(self.free.wait(), watching)
                self.follower.idle_interrupt = self._prompt_again
                self._prompt()
                line = await self._first(self.keyboard.line(), watching)
                self.follower.idle_interrupt = None
                if line is None:
                    self.screen.text("\n")
                    return
                if not line.strip():
                    continue
                self.follower.interrupted = False
                submission = uuid.uuid4().hex
                self.follower.own.add(submission)
                self.waiting.add(submission)
                self.free.clear()
                await handle.send(line, submission=submission)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _find_out(self, handle: Session) -> None:
        """Whether a turn of an earlier conversation is still to be ended."""
        self.after: int | None = None
        runtime, session_id = self.follower.runtime, self.follower.session_id
        try:
            info = await runtime.sessions.info(session_id)
            turn = (await runtime.sessions.checkpoint(session_id)).turn
        except SessionNotFound:
            self.free.set()
            return
        if info.status == "idle":
            self.free.set()
        elif turn is not None:
            self.after = turn.began - 1
            self.screen.note(("the last turn is not over; it goes on", "yellow"))

    @staticmethod
    async def _first(wanted: Coroutine[Any, Any, T], watching: asyncio.Future[Any]) -> T:
        """What is waited for, unless the watching ends first, which only an error makes it do."""
        task = asyncio.ensure_future(wanted)
        try:
            await asyncio.wait([task, watching], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                watching.result()
                raise SessionNotFound("the session ended while it was watched")
            return task.result()
        finally:
            task.cancel()

    def _never(self, event: Event) -> bool:
        match event:
            case TurnStarted():
                self.free.clear()
            case TurnEnded():
                self.waiting.discard(event.submission)
                self.follower.interrupted = False
                if not self.waiting:
                    self.free.set()
        return False

    def _prompt(self) -> None:
        if self.screen.interactive:
            self.screen.text("> ", "bold cyan")

    def _prompt_again(self) -> None:
        self.screen.text("\n(Ctrl-D leaves)\n", "dim")
        self._prompt()


async def _show_earlier(runtime: Runtime, screen: Screen, session_id: str, agent: Agent) -> None:
    try:
        belongs(await runtime.sessions.info(session_id), [agent])
        messages = await runtime.sessions.history(session_id, limit=EARLIER)
    except SessionNotFound:
        return
    if messages and messages[0].position:
        screen.note((f"… {messages[0].position} earlier messages: perdure show {session_id}", "dim"))
    for message in messages:
        show_message(screen, message)


def show_message(screen: Screen, message: Message) -> None:
    """One message of a transcript."""
    if message.role == "user":
        screen.note(("> ", "bold cyan"), message.text)
        return
    for part in message.parts:
        match part:
            case Text() if part.content.strip():
                screen.note(part.content)
            case ToolCall():
                screen.note(("→ ", "cyan"), called(part.name, part.arguments))
            case ToolCallResponse():
                unknown = part.is_error and part.response in (UNKNOWN_LIVE, UNKNOWN_AFTER_RESTART)
                mark, style = outcome_mark("uncertain" if unknown else "failed" if part.is_error else "succeeded")
                screen.note((f"{mark} ", style), part.name, " ", (value(part.response), "dim"))
