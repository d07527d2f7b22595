"""``perdure chat``: a conversation in one session."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any, TypeVar

from ..agent import Agent
from ..core.entries import MessageAdded, QueueChanged, TurnEnded, TurnStarted
from ..core.errors import InvalidMessage, PerdureError, Refused, SessionNotFound, UsageError
from ..core.media import Media
from ..runtime.declared import belongs
from ..runtime.feed import Event
from ..runtime.runtime import Runtime
from ..runtime.session import Session
from ..runtime.stopping import Stopped
from .agents import ad_hoc, load, owned_info
from .ask import Lines
from .earlier import show_earlier
from .exits import OK
from .follow import Follower, Left
from .hints import agent_options, told
from .keyboard import Keyboard
from .live import Progress
from .opening import opened
from .output import results
from .screen import Screen
from .text import short
from .workspace import with_workspace

__all__ = ["Talk", "chat"]

T = TypeVar("T")


def chat(arguments: argparse.Namespace) -> Awaitable[int]:
    """Talk until somebody leaves."""
    if arguments.agent is None and arguments.model is None:
        raise UsageError("chat needs an agent", hint="perdure chat module:agent, or --model openai:…")
    if arguments.sandbox is not None and arguments.workspace is None:
        raise UsageError(f"--sandbox {arguments.sandbox} confines nothing", hint="--workspace DIR gives the agent a shell to confine")
    agent = load(arguments.agent, model=arguments.model) if arguments.agent else ad_hoc(arguments.model)
    return _chat(arguments, with_workspace(agent, arguments.workspace, arguments.sandbox or "required"))


async def _chat(arguments: argparse.Namespace, agent: Agent) -> int:
    session_id: str | None = arguments.session or uuid.uuid4().hex[:12]
    screen = Screen()
    code, talked = OK, True
    try:
        async with AsyncExitStack() as stack:
            begin = _on_a_terminal(stack) if screen.interactive and screen.live else partial(Talk, screen=screen)
            runtime = await stack.enter_async_context(opened(arguments, create=True))
            try:
                while session_id is not None:
                    arguments.session = session_id
                    info = await owned_info(runtime, session_id, arguments.owner)
                    if info is not None:
                        belongs(info.session_id, info.agent, [agent])
                    session_id = await begin(runtime, session_id, agent, arguments).run()
                    talked = await runtime.store.load(arguments.session) is not None
            except Left as left:
                code = left.code
    except Stopped as stopped:
        code = stopped.code
    if talked:
        screen.note((f"the session is kept: --session {arguments.session}", "dim"))
    return code


def _on_a_terminal(stack: AsyncExitStack) -> Callable[..., Talk]:
    """Only a real terminal needs what draws on it."""
    from .terminal import Terminal
    from .typed import TypedTalk

    return partial(TypedTalk, terminal=stack.enter_context(Terminal.opened(results())))


class Talk:
    """A person's lines in turn with the agent's turns: a line is read whenever no turn runs."""

    def __init__(
        self,
        runtime: Runtime,
        session_id: str,
        agent: Agent,
        arguments: argparse.Namespace,
        *,
        screen: Screen,
        keyboard: Lines | None = None,
        progress: Progress | None = None,
    ) -> None:
        # Here the conversation is the result.
        screen.notes = screen.out
        self.runtime = runtime
        self.session_id = session_id
        self.agent = agent
        self.screen = screen
        self.owner: str | None = arguments.owner or None
        self.keyboard: Lines = keyboard or Keyboard(screen)
        self.follower = Follower(
            runtime,
            session_id,
            screen,
            db=arguments.db,
            agent=agent,
            named=agent_options(arguments.agent or "", arguments.model),
            keyboard=keyboard,
            progress=progress,
        )
        self.db: str = arguments.db
        self.follower.refused = self._refused
        # Whoever talks here said what nobody else is named for.
        self.follower.progress.speaker = ("> ", "bold cyan")
        self.free = asyncio.Event()
        self.waiting: dict[str, str] = {}
        self.attached: list[Media] = []
        self.after: int | None = None
        self.next_session: str | None = None

    async def run(self) -> str | None:
        """Talk until somebody leaves; returns the session to go on with, if it is another one."""
        await self.look_back()
        async with self.follower, self.runtime.session(self.session_id, self.agent, owner=self.owner) as handle:
            watching = asyncio.ensure_future(self.follower.watch(handle, self._saw, after=self.after))
            try:
                async with aclosing(self.lines(watching)) as lines:
                    async for line in lines:
                        await self.take(handle, line)
                        if self.next_session is not None:
                            return self.next_session
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        return None

    async def lines(self, watching: asyncio.Future[Any]) -> AsyncGenerator[str, None]:
        """What the person says, one line after another."""
        while True:
            await self.first(self.free.wait(), watching)
            self.follower.idle_interrupt = self._prompt_again
            line = await self.first(self.keyboard.line(self._prompt()), watching)
            self.follower.idle_interrupt = None
            if line is None:
                self.screen.text("\n")
                return
            if line.strip():
                yield line

    async def take(self, handle: Session, line: str) -> None:
        """Do what a line says."""
        await self.send(handle, line)

    async def send(self, handle: Session, text: str, **options: Any) -> str | None:
        """Send a message and return its submission; None, and a line that says why, if it can't be sent."""
        self.follower.interrupted = False
        submission = uuid.uuid4().hex
        self.follower.own.add(submission)
        self.waiting[submission] = text
        self.free.clear()
        try:
            await handle.send([text, *self.attached] if self.attached else text, submission=submission, **options)
            self.attached.clear()
        except (Refused, InvalidMessage) as error:
            self.waiting.pop(submission)
            self._look_free()
            self.screen.note((f"not sent: {self.told(error)}", "red"))
            return None
        return submission

    def told(self, error: PerdureError) -> str:
        """An error in one sentence, with what can be done about it here."""
        return told(error, self.db, self.session_id)

    async def look_back(self) -> None:
        """The end of what was said before, and whether a turn of an earlier conversation is still to be ended."""
        try:
            info = await self.runtime.sessions.info(self.session_id)
            turn = (await self.runtime.sessions.checkpoint(self.session_id)).turn
            await show_earlier(self.runtime, self.screen, self.session_id, turn)
        except SessionNotFound:
            self.free.set()
            return
        if info.status == "idle":
            self.free.set()
        elif turn is not None:
            self.after = turn.began - 1
            self.screen.note(("the last turn is not over; it goes on", "yellow"))

    @staticmethod
    async def first(wanted: Awaitable[T], watching: asyncio.Future[Any]) -> T:
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

    def _saw(self, event: Event) -> bool:
        match event:
            case TurnStarted():
                self.free.clear()
                self.waiting.pop(event.submission, None)
            case MessageAdded(role="user"):
                self.waiting.pop(event.submission, None)
            case QueueChanged(change="withdrawn") if event.submission in self.waiting:
                self.screen.note((f"taken back, and never delivered: {short(self.waiting.pop(event.submission), 60)}", "yellow"))
            case TurnEnded():
                self.follower.interrupted = False
                self._look_free()
        return False

    def _refused(self, error: PerdureError) -> None:
        # What was withdrawn is told with its text.
        if error.facts.get("reason") != "withdrawn":
            self.screen.note((self.told(error), "red"))

    def _look_free(self) -> None:
        if not self.waiting and self.follower.turn is None:
            self.free.set()

    def _prompt(self) -> str:
        return "> " if self.screen.interactive else ""

    def _prompt_again(self) -> None:
        self.screen.text("\n(Ctrl-D leaves)\n", "dim")
        if self.screen.interactive:
            self.screen.text("> ", "bold cyan")
