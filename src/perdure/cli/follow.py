"""One session, followed on a screen: shows what happens, asks whoever sits there, and hands their wishes on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from ..agent import Agent
from ..core.entries import (
    EffectSettled,
    OperationEnded,
    OperationStarted,
    QueueChanged,
    RequestClosed,
    RequestOpened,
    SubmissionRefused,
    TurnAborted,
    TurnEnded,
    TurnStarted,
)
from ..core.errors import PerdureError, SessionNotFound, StaleRequest, StoreError
from ..core.ids import child_session
from ..runtime.calls import misfit
from ..runtime.feed import ChildAsked, Event, SessionOpened
from ..runtime.result import refused, withdrawn
from ..runtime.runtime import Runtime
from ..runtime.session import Session
from .ask import Lines, ask, how_to_answer
from .exits import INTERRUPTED, WAITING
from .hints import command, resume_command, told
from .keyboard import Keyboard
from .live import Progress
from .output import results
from .person import me
from .screen import Screen
from .text import moment

__all__ = ["Follower", "Left", "Parked", "say_left", "say_parked"]


SLEEPERS = ("timer", "step")
"""What a call waits with for a time, and for nothing else."""

LOOKING = 0.2
"""How often it is looked whether agents that were called fell asleep (seconds)."""


class Left(Exception):
    """The person wants this process to go; the session stays. ``code`` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Parked(Exception):
    """The session waits for a person or, ``until`` then (ms since 1970), for a time, and nobody here waits with it."""

    def __init__(self, until: int | None = None) -> None:
        super().__init__(until)
        self.until = until


def say_left(screen: Screen, db: str, session_id: str, named: str, what: str) -> None:
    """Say that ``what`` is kept, and how to look at it and go on."""
    why, again = command(db, "why", session_id), resume_command(db, session_id, named)
    screen.advice((f"{what} is kept; `{why}` says what it waits for, `{again}` goes on", "dim"))


def say_parked(screen: Screen, session_id: str, submission: str, parked: Parked) -> int:
    """Say so as JSON, where that is wanted: what it waits for was told as it came. Returns the exit code."""
    if screen.as_json:
        screen.json({"session": session_id, "submission": submission, "status": "waiting", "wake_at": parked.until})
    return WAITING


class Follower:
    """Use it with ``async with``: inside, Ctrl-C interrupts the running turn and SIGTERM leaves.

    ``agent`` is who works here, ``named`` the `agent_options` that say so. Without ``wait`` nobody here answers, on a terminal neither.
    """

    def __init__(
        self,
        runtime: Runtime,
        session_id: str,
        screen: Screen,
        *,
        db: str,
        agent: Agent,
        named: str = "",
        wait: bool = True,
        answers: bool = True,
        keyboard: Lines | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.runtime = runtime
        self.session_id = session_id
        self.screen = screen
        self.db = db
        self.agent = agent
        self.named = named
        self.wait = wait
        self.progress = progress or Progress(screen, answers=answers)
        self.own = self.progress.own
        self.keyboard: Lines | None = keyboard or (Keyboard(screen) if screen.interactive and wait else None)
        self.turn: str | None = None
        self.interrupted = False
        self.stopped = False
        self.idle_interrupt: Callable[[], None] | None = None
        self.behind: Callable[[], str] = str
        self.refused: Callable[[PerdureError], None] = _raise
        self._open: dict[str, RequestOpened] = {}
        self._unknown: dict[str, str] = {}
        self._told: set[str] = set()
        self._asked: list[ChildAsked] = []
        self._looked = False
        self._asking: tuple[str, asyncio.Task[None]] | None = None
        self._main: asyncio.Task[Any] | None = None
        self._leaving: int | None = None
        self._parked: Parked | None = None
        self._sending: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Follower:
        self._main = asyncio.current_task()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.on_interrupt)
        self.runtime.stop_on(signal.SIGTERM)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop_asking()
        self.progress.close()
        # A second Ctrl-C still leaves at once, while the rest is let go.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._leave_at_once)
        if isinstance(error, asyncio.CancelledError) and self._parked is not None:
            raise self._parked from None
        if isinstance(error, asyncio.CancelledError) and self._leaving is not None:
            raise Left(self._leaving) from None

    # ------------------------------------------------------------------------------------------------------------- signals

    def on_interrupt(self) -> None:
        """Ctrl-C: the turn first, and if that was said already, this process."""
        if self.interrupted:
            self._leave_at_once()
        if self.turn is None:
            if self.idle_interrupt is not None:
                self.idle_interrupt()
            else:
                self._leave(INTERRUPTED)
            return
        self.interrupted = True
        self.progress.pause()
        self.screen.note(("\ninterrupting the turn; Ctrl-C again leaves at once, as a crash would", "yellow"))
        if behind := self.behind():
            self.screen.note((behind, "yellow"))
        task = asyncio.ensure_future(self._interrupt(self.turn))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _interrupt(self, turn: str) -> None:
        try:
            await self.runtime.sessions.interrupt(self.session_id, turn=turn, reason="interrupted", actor=me())
        except PerdureError as error:
            self.screen.advice((f"the turn could not be interrupted: {told(error, self.db, self.session_id)}", "red"))

    def _leave(self, code: int) -> None:
        self._leaving = code
        if self._main is not None:
            self._main.cancel()

    def _leave_at_once(self) -> None:
        """As a crash does, which is what this library is made for. A tool in a thread would keep the process otherwise."""
        self.progress.pause()
        # Whether the turn was stopped before that, only the store knows.
        again = resume_command(self.db, self.session_id, self.named)
        self.screen.note((f"left; `{again}` goes on with what is not over", "yellow"))
        for stream in (results(), sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(INTERRUPTED)

    # -------------------------------------------------------------------------------------------------------------- events

    async def watch(self, handle: Session, until: Callable[[Event], bool], *, after: int | None = None) -> Event | None:
        """Show events until one is the last. Raises `Parked`, if nobody waits here, and what ended the work on the session."""
        looking = asyncio.ensure_future(self._look_for_sleepers())
        try:
            async for event in handle.events(after=after):
                self._follow(event)
                self.progress.show(event)
                if isinstance(event, TurnEnded):
                    self._say_unknown()
                await self._attend(event)
                if isinstance(event, OperationStarted | OperationEnded):
                    await self.sleeps()
                if until(event):
                    return event
            return None
        finally:
            looking.cancel()

    async def sleeps(self) -> None:
        """Raises `Parked` where nobody waits here and nothing is to be done in the session before a time, and says which."""
        if self.wait:
            return
        until = await self._asleep(self.session_id)
        if until is None:
            return
        self.progress.pause()
        again = resume_command(self.db, self.session_id, self.named)
        self.screen.advice((f"it sleeps until {moment(until)}; a worker, or `{again}`, goes on then", "yellow"))
        raise Parked(until)

    async def _asleep(self, session_id: str) -> int | None:
        """The time before which nothing is to be done in a session and in those of the agents that it called; None: something is, or
        a person has to decide."""
        sessions = self.runtime.sessions
        try:
            info, turn = await sessions.info(session_id), (await sessions.checkpoint(session_id)).turn
        except SessionNotFound:
            # Whoever called its agent is about to make it.
            return None
        awaiting = turn.awaiting if turn is not None else ()
        asked = turn is not None and turn.requests
        if info.status not in ("waiting", "queued") or asked or any(item.plan.kind not in (*SLEEPERS, "child") for item in awaiting):
            return None
        moments = [] if info.wake_at is None else [info.wake_at]
        for item in awaiting:
            if item.plan.kind == "child":
                child = await self._asleep(child_session(session_id, item.id))
                if child is None:
                    return None
                moments.append(child)
        return min(moments) if moments and min(moments) > self.runtime.clock.now() else None

    async def _look_for_sleepers(self) -> None:
        """That an agent which was called falls asleep is no event of the caller's, so that somebody has to look."""
        while not self.wait:
            await asyncio.sleep(LOOKING)
            try:
                await self.sleeps()
            except StoreError:
                # Nobody would hear of it here. What the store can't do for long, the events that are followed fail with.
                continue
            except Parked as parked:
                self._parked = parked
                if self._main is not None:
                    self._main.cancel()
                return

    def _follow(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self.turn = event.turn
                self._unknown.clear()
            case OperationEnded(status="uncertain", final=True) if event.parts:
                self._unknown[event.operation] = getattr(event.parts[0], "name", "") or "a call"
            case EffectSettled():
                self._unknown.pop(event.operation, None)
            case TurnEnded():
                self.turn = None
                self.stopped = self.interrupted and isinstance(event, TurnAborted)
                self.interrupted = self.interrupted and event.submission in self.own
                self._open.clear()
            case RequestOpened():
                self._open[event.request_id] = event
            case ChildAsked():
                self._asked.append(event)
            case SessionOpened():
                self._looked = False
            case RequestClosed():
                self._open.pop(event.request_id, None)
            case QueueChanged(change="withdrawn") if event.submission in self.own:
                self.refused(withdrawn())
            case SubmissionRefused() if event.submission in self.own:
                self.refused(refused(self.session_id, event))

    def _say_unknown(self) -> None:
        """A turn that is over leaves behind what nobody knows the outcome of; somebody may learn it later."""
        if self._unknown:
            names = ", ".join(self._unknown.values())
            listed = command(self.db, "uncertain", self.session_id)
            self.screen.note((f"nobody knows whether {names} took effect; `{listed}` lists it, and how to say what became of it", "yellow"))

    async def _attend(self, event: Event) -> None:
        if self._asking is not None and self._asking[0] not in self._open:
            self._stop_asking()
        await self._attend_children()
        if not self._open:
            return
        if self.keyboard is not None:
            self._ask_next()
            return
        if isinstance(event, RequestOpened):
            for request in await self.runtime.sessions.requests(self.session_id):
                if request.request_id not in self._told:
                    self._told.add(request.request_id)
                    self.progress.pause()
                    how_to_answer(self.screen, self.session_id, request, self.db)
                    if self.wait:
                        self.screen.advice(("waiting for that, from anywhere; with --no-wait it would be left at this", "dim"))
        if not self.wait and (await self.runtime.sessions.info(self.session_id)).status == "waiting":
            raise Parked

    async def _attend_children(self) -> None:
        """What the agents ask that this session called is answered with the commands."""
        asked, self._asked, looked, self._looked = self._asked, [], self._looked, True
        if looked and not asked:
            return
        # What was asked before anybody watched is told, too; a session that is about to be made called nobody.
        there = await self.runtime.sessions.number(self.session_id) is not None
        for request in await self.runtime.sessions.requests(self.session_id, children=True) if there else ():
            name = f"{request.session_id} {request.request_id}"
            if request.session_id != self.session_id and name not in self._told:
                self._told.add(name)
                self.progress.pause()
                self.screen.advice((f"asked in {request.session_id}:", "dim"))
                how_to_answer(self.screen, request.session_id, request, self.db)
                asked.append(ChildAsked(session_id=request.session_id, request_id=request.request_id, agent=""))
        if asked and not self.wait and (await self.runtime.sessions.info(self.session_id)).status == "waiting":
            raise Parked

    def _ask_next(self) -> None:
        if self._asking is None and self._open:
            name = next(iter(self._open))
            self._asking = (name, asyncio.ensure_future(self._ask(name)))

    def _stop_asking(self) -> None:
        if self._asking is not None:
            _, task = self._asking
            self._asking = None
            if not task.done():
                task.cancel()
                self.screen.text("\n")
            self.progress.hold(False)

    async def _ask(self, name: str) -> None:
        assert self.keyboard is not None
        request = next((item for item in await self.runtime.sessions.requests(self.session_id) if item.request_id == name), None)
        if request is None:
            return
        self.progress.hold(True)
        decided = await ask(self.screen, self.keyboard, request, partial(misfit, self.agent))
        self.progress.hold(False)
        if decided is None:
            # Ctrl-D: somebody else may answer, at another time.
            self._leave(WAITING)
            return
        try:
            await self.runtime.sessions.answer(self.session_id, name, decided.decision, actor=me(), **decided.options)
        except StaleRequest:
            self.screen.note(("somebody else was faster", "yellow"))
        except PerdureError as error:
            self.screen.advice((told(error, self.db, self.session_id), "red"))
            self._asking = None
            self._ask_next()
            return
        self._open.pop(name, None)
        self._asking = None
        self._ask_next()


def _raise(error: PerdureError) -> None:
    raise error
