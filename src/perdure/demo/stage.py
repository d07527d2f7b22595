"""The stage: it starts the programs, follows journals and ledger from outside, waits for moments, and kills."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import Entry, OperationEnded, OperationStarted, Recovered, TurnEnded
from .. import open as open_store
from ..runtime.runtime import Runtime
from . import tether
from .agent import AT_ONCE
from .mails import MAILS, euros
from .scene import Kill, Scene
from .wire import Gone, ask, serve

__all__ = ["Moment", "Stage", "StageError"]

Condition = Callable[[], str | bool]


@dataclass(frozen=True)
class Moment:
    """Something to wait for: ``come`` returns the mail in which it has, or "", and ``gone`` says that it is waited for no longer."""

    come: Callable[[], str]
    gone: Callable[[], bool]


WORTH = 2
"""So many mails may end while a moment is waited for that a real model need not give: the next ones need mails, too."""

PATIENCE = 40.0
"""How long a moment may take to come with the scripted model (seconds)."""


class StageError(Exception):
    """The demo itself can't go on."""


class Stage:
    """Everything outside of the agent's process: the payment service, the person, the webhook, and whoever pulls the plug."""

    def __init__(self, scene: Scene, directory: Path, *, model: str | None = None, pace: float = 0.03) -> None:
        self.scene = scene
        self.db = directory / "agents.db"
        self.ledger = directory / "ledger.jsonl"
        self.meter = directory / "model-calls.jsonl"
        self.runtime: Runtime = open_store(str(self.db))
        self._directory = directory
        self._holds = directory / "holds"
        self._model = model
        self._pace = pace
        self._patience = PATIENCE if model is None else 15 * PATIENCE
        self._payments = ""
        self._agent: asyncio.subprocess.Process | None = None
        self._started_at = 0.0
        self._started_ms = 0
        self._back = True
        self._cut_off: dict[str, int] = {}
        self._news = asyncio.Event()
        self._following = asyncio.TaskGroup()
        self._followers: list[asyncio.Task[None]] = []
        self._cleanup = AsyncExitStack()

    async def __aenter__(self) -> Stage:
        try:
            await self._set_up()
        except BaseException:
            await self._cleanup.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._cleanup.__aexit__(kind, error, trace)

    async def _set_up(self) -> None:
        await self._cleanup.enter_async_context(self.runtime)
        webhook = await serve(self._told)
        self._cleanup.callback(webhook.close)
        host, port = webhook.sockets[0].getsockname()
        self.ledger.touch()
        service = await self._spawn("payments", "--ledger", self.ledger, "--webhook", f"{host}:{port}", "--holds", self._holds)
        assert service.stdout is not None
        self._payments = (await service.stdout.readline()).decode().strip()
        if not self._payments:
            raise StageError("the payment service did not start:\n" + self.log_of("payments"))
        await self._cleanup.enter_async_context(self._following)
        self._cleanup.callback(self._unfollow)
        self._follow_with(self._read_ledger())
        for mail in MAILS:
            self._follow_with(self._follow(mail.id))

    # ----------------------------------------------------------------------------------------------------------- processes

    async def _spawn(self, program: str, *options: object) -> asyncio.subprocess.Process:
        with (self._directory / f"{program}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(tether.__file__, f"perdure.demo.{program}", *map(str, options)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._cleanup.push_async_callback(_end, process)
        return process

    def log_of(self, program: str) -> str:
        """The last that a program said on its standard error."""
        return "\n".join((self._directory / f"{program}.log").read_text(errors="replace").splitlines()[-12:])

    async def start(self, *, go_on: bool = True) -> None:
        """Start the agent's program, always with the same command. With ``go_on`` wait until everything that was cut off has gone on."""
        if self._running():
            return
        self.scene.starts += 1
        self._started_at, self._started_ms, self._back = time.monotonic(), time.time_ns() // 1_000_000, False
        model = ("--pace", self._pace, "--meter", self.meter) if self._model is None else ("--model", self._model)
        self._agent = await self._spawn("agent", "--db", self.db, "--payments", self._payments, *model)
        self.scene.process = f"pid {self._agent.pid}"
        if not self.scene.kills:
            self.scene.tell("start", f"the agent starts, pid {self._agent.pid}")
        self._follow_with(self._listen(self._agent))
        if go_on:
            await self._until(lambda: all(map(self._has_gone_on, self._cut_off)))

    async def kill(self, name: str, moment: Moment) -> bool:
        """Wait for a moment, then SIGKILL. False if it can't come any more."""
        self.scene.moments += 1
        mail = await self._until(lambda: self._back and moment.come(), moment.gone)
        if not isinstance(mail, str) or not mail or not self._running():
            self._holds.unlink(missing_ok=True)
            self.scene.tell("plain", f"the moment “{name}” did not come")
            return False
        assert self._agent is not None
        os.kill(self._agent.pid, signal.SIGKILL)
        await self._agent.wait()
        await self._catch_up()
        kill = Kill(name, mail, await self._in_flight())
        self.scene.kills.append(kill)
        self.scene.process = "dead"
        also = ", ".join(item for item in kill.cut_off if not item.startswith(mail))
        self.scene.tell("kill", f"kill -9 #{len(self.scene.kills)} {mail}: {name}" + (f" (also {also})" if also else ""))
        return True

    async def _catch_up(self) -> None:
        """Wait until the scene shows everything that is in the journals."""
        for info in await self.runtime.sessions.list():
            entries = self.scene.rows[info.session_id].entries
            while not entries or entries[-1].seq < info.version:
                self._news.clear()
                await self._news.wait()

    async def _in_flight(self) -> list[str]:
        """What the journal says was going on when the process died."""
        self._cut_off = {}
        found = []
        for info in await self.runtime.sessions.list(status=["running", "queued"]):
            turn = (await self.runtime.sessions.checkpoint(info.session_id)).turn
            running = [item for item in turn.operations if item.status in ("started", "unknown")] if turn is not None else []
            found += [f"{info.session_id} {item.plan.name if item.plan.kind == 'tool' else 'model'}" for item in running]
            if running:
                self._cut_off[info.session_id] = info.version
        return sorted(found)

    async def end(self) -> None:
        """Wait until the agent's program has nothing left to do. Raises `StageError` if it fails."""
        if self._agent is None:
            return
        try:
            code = await asyncio.wait_for(self._agent.wait(), self._patience)
        except TimeoutError:
            raise StageError("the agent has not ended:\n" + self.log_of("agent")) from None
        await self._catch_up()
        self.scene.process = "ended"
        if code:
            raise StageError(f"the agent ended with exit code {code}:\n" + self.log_of("agent"))
        self.scene.tell("start", "the agent has nothing left to do, and ends")

    def _running(self) -> bool:
        return self._agent is not None and self._agent.returncode is None

    # ------------------------------------------------------------------------------------------------------------- moments

    def writing(self, words: int = 3) -> Moment:
        """A model is in the middle of an answer: ``words`` deltas came since now, and its receipt is not in the journal."""
        before = {(name, key): count for name, row in self.scene.rows.items() for key, count in row.deltas.items()}

        def moment() -> str:
            for name, row in self.scene.rows.items():
                for key, count in row.deltas.items():
                    if count - before.get((name, key), 0) >= words and key in row.marks and row.marks[key].state == "running":
                        return name
            return ""

        return Moment(moment, self._too_late())

    def receipt(self) -> Moment:
        """A receipt was committed after now, and nothing else has been heard of yet."""
        before = {name: len(row.entries) for name, row in self.scene.rows.items()}

        def moment() -> str:
            for name, row in self.scene.rows.items():
                if any(isinstance(entry, OperationEnded) and entry.final for entry in row.entries[before[name] :]):
                    return name
            return ""

        return Moment(moment, self._too_late())

    def holding(self, kind: str, order: str = "") -> Moment:
        """The payment service lets its next caller wait: ``before`` money moves, ``after`` it moved, or in a ``lookup``."""
        before = len(self.scene.ledger)
        draft = self._holds.with_suffix(".new")
        draft.write_text(f"{kind} {order}")
        draft.rename(self._holds)

        def moment() -> str:
            held = next((line for line in self.scene.ledger[before:] if line["event"] == "holding"), None)
            if held is None:
                return ""
            orders = {line["reference"]: line["order"] for line in self.scene.ledger if line["event"] == "received"}
            return next(mail.id for mail in MAILS if mail.order == orders[held["reference"]])

        return Moment(moment, self._too_late())

    def waiting(self, mail: str) -> Moment:
        """A person is asked about this mail."""
        row = self.scene.rows[mail]
        return Moment(lambda: mail if row.request else "", lambda: row.done)

    def _too_late(self) -> Callable[[], bool]:
        """Whether enough mails have ended since now. The scripted model gives every moment that is asked for."""
        before = self._ended()
        return lambda: self._model is not None and self._ended() - before >= WORTH

    def _ended(self) -> int:
        return sum(row.done for row in self.scene.rows.values())

    def _has_gone_on(self, mail: str) -> bool:
        return any(
            entry.seq > self._cut_off[mail]
            and (isinstance(entry, TurnEnded) or (isinstance(entry, OperationEnded) and entry.status in ("succeeded", "failed")))
            for entry in self.scene.rows[mail].entries
        )

    def _stalled(self) -> bool:
        """Whether the agent can do nothing more until a person answers."""
        rows = self.scene.rows.values()
        waiting = sum(bool(row.request) for row in rows)
        at_work = any(row.entries and not row.done and not row.request for row in rows)
        return waiting > 0 and not at_work and (waiting >= AT_ONCE or all(row.entries for row in rows))

    async def _until(self, condition: Condition, gone: Callable[[], bool] = lambda: False) -> str | bool:
        """What came true, or "" if it can't: the agent ended, only a person can move it, it is ``gone``, or it took too long."""
        deadline = time.monotonic() + self._patience
        while not (mail := condition()):
            if not self._running() or self._stalled() or gone() or time.monotonic() > deadline:
                return ""
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), 0.5)
            self._news.clear()
        return mail

    # -------------------------------------------------------------------------------------------------- the world around it

    async def approve(self, mail: str, cents: int | None = None) -> None:
        """The person says yes, or yes to another amount. Any process can: it needs the store, not the agent."""
        for request in await self.runtime.sessions.requests(mail):
            edited = None if cents is None else request.arguments | {"cents": cents}
            await self.runtime.sessions.approve(mail, request.request_id, edited, actor="eve")
            self.scene.tell("person", f"a person approves {mail}" + ("" if cents is None else f", but only {euros(cents)}"))
        await self._answered(mail)

    async def deny(self, mail: str, reason: str) -> None:
        """The person says no."""
        for request in await self.runtime.sessions.requests(mail):
            await self.runtime.sessions.deny(mail, request.request_id, reason, actor="eve")
            self.scene.tell("person", f"a person denies {mail}: {reason}")
        await self._answered(mail)

    async def _answered(self, mail: str) -> None:
        while self.scene.rows[mail].request:
            self._news.clear()
            await self._news.wait()

    async def clear_payments(self) -> None:
        """The bank carries out what is pending, and calls our webhook."""
        self.scene.tell("money", "the bank clears its pending payments")
        await ask(self._payments, "POST", "/clear")

    async def _told(self, method: str, path: str, body: Any, gone: Gone) -> tuple[int, Any]:
        """The webhook: the payment service reports what became of a call, with the token that the call handed to it."""
        submission = await self.runtime.sessions.report(body["token"], body["payment"], actor="payments")
        self.scene.tell("plain" if submission.duplicate else "good", "the webhook is called" + " again" * submission.duplicate)
        return 200, {}

    # ------------------------------------------------------------------------------------------------------------ following

    def _follow_with(self, work: Coroutine[Any, Any, None]) -> None:
        self._followers.append(self._following.create_task(work))

    def _unfollow(self) -> None:
        for task in self._followers:
            task.cancel()

    async def _follow(self, session: str) -> None:
        """Read a journal along, as any process can."""
        async with self.runtime.session(session) as handle:
            async for event in handle.events(after=0):
                if isinstance(event, Entry):
                    self.scene.on_entry(session, event)
                    self._first_step(event)
                    self._news.set()

    def _first_step(self, entry: Entry) -> None:
        ended = isinstance(entry, OperationEnded) and entry.attempt > 0  # attempt 0 is a call that a person denied
        if not self._back and entry.at >= self._started_ms and (ended or isinstance(entry, OperationStarted | Recovered)):
            self._back = True
            if self.scene.kills:
                took = self.scene.kills[-1].back_after = time.monotonic() - self._started_at
                self.scene.tell("good", f"started again, and at work after {took:.2f} s")

    async def _read_ledger(self) -> None:
        with self.ledger.open("rb") as file:
            rest = b""
            while True:
                *lines, rest = (rest + file.read()).split(b"\n")
                for line in lines:
                    self.scene.on_ledger(json.loads(line))
                    self._news.set()
                await asyncio.sleep(0.01)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            with suppress(json.JSONDecodeError):  # a line that its process died in
                self.scene.on_delta(*json.loads(line))
                self._news.set()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
