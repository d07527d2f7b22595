"""A conversation on a terminal: a person can type at any time, while answers stream in above."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import IO, Any, cast

from ..agent import Agent
from ..core.entries import MessageAdded, OperationEnded, QueueChanged
from ..core.errors import PerdureError
from ..core.messages import Reasoning, text_of
from ..models.base import ReasoningDelta, TextDelta
from ..runtime.declared import belongs
from ..runtime.feed import Event
from ..runtime.runtime import Runtime
from ..runtime.session import Session
from .chat import Talk
from .live import Progress
from .person import me
from .screen import Screen
from .slash import SlashCompleter, carry_out
from .terminal import Terminal
from .text import attached, counted, duration, short

__all__ = ["Scrolling", "TypedTalk"]


class Scrolling(Progress):
    """What happens, written above the line that is being typed."""

    def __init__(self, screen: Screen, terminal: Terminal) -> None:
        super().__init__(screen)
        self.whole_thoughts = False
        self.last_thoughts = ""
        self._terminal = terminal
        self._thoughts: list[str] = []
        self._thinking_since = 0.0
        terminal.status = self._running.values

    def pause(self) -> None:
        """Nothing to take away: the terminal draws what runs."""

    def hold(self, held: bool) -> None:
        """Nothing to hold: a question stands where the typing is."""

    def _draw(self) -> None:
        self._terminal.redraw()

    def _text(self, delta: TextDelta) -> None:
        if self._streamed != (delta.operation, delta.attempt):
            self._end_text()
            self._streamed = (delta.operation, delta.attempt)
        self._end_thoughts()
        self._running[delta.operation] = ("writing", self._running.get(delta.operation, ("", time.monotonic()))[1])
        *whole, self._terminal.unfinished = (self._terminal.unfinished + delta.text).split("\n")
        for line in whole:
            self.screen.note(line)
        self._draw()

    def _end_text(self) -> None:
        self._end_thoughts()
        rest, self._terminal.unfinished = self._terminal.unfinished, ""
        if rest:
            self.screen.note(rest)

    def _think(self, delta: ReasoningDelta) -> None:
        if not self._thoughts:
            self._thinking_since = time.monotonic()
        self._thoughts.append(delta.text)
        if self.whole_thoughts:
            self._terminal.unfinished = "".join(self._thoughts)
        super()._think(delta)

    def _end_thoughts(self) -> None:
        if self._thoughts:
            took = duration((time.monotonic() - self._thinking_since) * 1000)
            thoughts, self._thoughts = "".join(self._thoughts), []
            self._terminal.unfinished = ""
            self._tell_thoughts(thoughts, f" for {took}")

    def _tell_thoughts(self, thoughts: str, took: str = "") -> None:
        self.last_thoughts = thoughts
        if self.whole_thoughts:
            self.screen.note((thoughts, "dim italic"))
        else:
            lines = counted(len(thoughts.splitlines()), "line")
            self.screen.note((f"∴ thought{took} ({lines}; /reasoning shows them)", "dim"))

    def _answered(self, event: OperationEnded) -> None:
        streamed = self._streamed == (event.operation, event.attempt) or bool(self._thoughts)
        reasoning = "\n".join(part.content for part in event.parts if isinstance(part, Reasoning))
        if reasoning and not streamed:
            self._tell_thoughts(reasoning)
        super()._answered(event)


class TypedTalk(Talk):
    """The conversation of somebody who sits at a terminal."""

    def __init__(self, runtime: Runtime, session_id: str, agent: Agent, arguments: argparse.Namespace, *, terminal: Terminal) -> None:
        screen = Screen(out=cast(IO[str], terminal.out))
        self.above = Scrolling(screen, terminal)
        super().__init__(runtime, session_id, agent, arguments, screen=screen, keyboard=terminal, progress=self.above)
        self.terminal = terminal
        terminal.complete(SlashCompleter(self._words_for))
        terminal.on_interrupt = self.follower.on_interrupt
        terminal.footer = self._footer
        terminal.too_late = lambda line: self.tell("the question is gone; that was not sent", "yellow")
        self.follower.idle_interrupt = lambda: self.tell("Ctrl-D leaves")
        self.follower.behind = self._what_waits
        self._known: list[str] = []
        self._queued: set[str] = set()

    @property
    def actor(self) -> str:
        """Who types."""
        return me()

    def tell(self, words: str, style: str = "dim") -> None:
        """A line about the conversation itself."""
        self.screen.note((words, style))

    async def look_back(self) -> None:
        """The end of what was said before; the arrow keys find it too."""
        await super().look_back()
        try:
            messages = await self.runtime.sessions.history(self.session_id, limit=200)
        except PerdureError:
            return
        self.terminal.remember(text_of(message.parts) for message in messages if message.role == "user" and not message.author)
        self._known = [info.session_id for info in await self.runtime.sessions.list(limit=50, agent=self.agent.name)]

    def _say_what_goes_on(self) -> None:
        if self.follower.turn is not None:
            self.tell("leaving: what runs is cut off, and the turn goes on with whoever resumes it", "yellow")

    async def lines(self, watching: asyncio.Future[Any]) -> AsyncGenerator[str, None]:
        """What the person types, at any time."""
        async with aclosing(self.terminal.lines()) as typed:
            while True:
                try:
                    line = await self.first(anext(typed), watching)
                except StopAsyncIteration:
                    self._say_what_goes_on()
                    return
                yield line

    async def take(self, handle: Session, line: str) -> None:
        """A command, or a message."""
        if line.startswith("/") and not line.startswith("//"):
            await carry_out(self, handle, line)
            return
        await self.send(handle, line[1:] if line.startswith("//") else line)

    async def send(self, handle: Session, text: str, **options: Any) -> str | None:
        """Send a message, and show it with how it will be delivered."""
        how = {"steer": " (joins the turn)"}.get(options.get("deliver", ""), " (queued)") if self.follower.turn is not None else ""
        files = "".join(f" {attached(item.name, item.mime_type, len(item.data))}" for item in self.attached)
        self.screen.note(("> ", "bold cyan"), text, (files, "cyan"), (how, "dim"))
        submission = await super().send(handle, text, **options)
        if how and submission is not None:
            self._queued.add(submission)
        return submission

    async def change_to(self, session_id: str) -> None:
        """Go on with another session of this agent."""
        belongs(session_id, (await self.runtime.sessions.info(session_id)).agent, [self.agent])
        self.next_session = session_id

    def _what_waits(self) -> str:
        """What an interrupt doesn't stop: nothing that was sent is lost because a turn ended."""
        if not self.waiting:
            return ""
        last = short([*self.waiting.values()][-1], 60)
        if len(self.waiting) == 1:
            return f"a message waits, and begins a turn of its own then ({last}): /withdraw takes it back, and Ctrl-C stops that turn too"
        return f"{len(self.waiting)} messages wait, and begin turns of their own then: /withdraw takes the last one back ({last})"

    def _saw(self, event: Event) -> bool:
        if isinstance(event, QueueChanged) and event.change == "promoted" and event.submission in self.waiting:
            text = short(self.waiting[event.submission], 60)
            self.tell(f"it could not join the turn that ended, and begins one of its own: {text} (Ctrl-C stops that, too)", "yellow")
        if isinstance(event, MessageAdded) and event.role == "user" and event.submission in self._queued:
            # It was typed a while ago, and may have been changed since.
            self._queued.discard(event.submission)
            self.screen.note(("> ", "bold cyan"), text_of(event.parts))
        return super()._saw(event)

    def leave(self) -> None:
        """End the conversation as Ctrl-D does."""
        self.terminal.end()

    def _words_for(self, command: str) -> Iterable[str]:
        match command:
            case "model":
                return self.runtime.models.router(self.agent).names
            case "resume":
                return self._known
            case "reasoning":
                return ("on", "off")
            case _:
                return ()

    def _footer(self) -> str:
        waiting = f" · {counted(len(self.waiting), 'message')} waiting" if self.waiting else ""
        if self.terminal.asked:
            return f"Enter answers · Ctrl-D leaves it open · Ctrl-C interrupts{waiting}"
        if self.follower.turn is None:
            return f"{short(self.session_id, 40)} · {self.agent.name}{waiting} · /help"
        return f"Enter queues · /steer joins the turn · Ctrl-C interrupts{waiting} · /help"
