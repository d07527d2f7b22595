"""The one connection that carries the commits and submissions of all sessions: what waits goes together, in one statement.

Each of them is a savepoint of the server, so that one that fails undoes itself alone; and none waits for a row that another process has
locked: it is tried again with the next ones. If the answer is lost, the same ones are sent again, and the server knows those that it has.
Nobody is answered before that is known.

All of it happens on the event loop, which waits neither for the server nor for a thread; only connecting, and cancelling what takes
too long, are done in one.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...core.errors import StoreBroken, UsageError
from ..base import Commit, CommitAnswer, Committed, Send, SendAnswer, Sent
from .answers import Answer, committed, sent
from .database import FIRST_PAUSE, LONGEST_PAUSE, Database, unknown
from .line import Failed, Line, Lost, overdue, translate
from .wire import BOOLS

__all__ = ["BATCH_LIMIT", "Writer"]

BATCH_LIMIT = 60
"""The most writes in one statement: the server keeps up to 64 savepoints of a transaction at hand."""

BATCH_BYTES = 16 * 1024 * 1024
"""After so many bytes a statement takes no more writes."""

BUSY_PAUSE, BUSY_PAUSE_LIMIT = 0.001, 0.05
"""How long to wait for other writes before those whose rows were locked are tried alone again (seconds)."""

TRIES = 10
"""How often a write that was undone for others' sake is tried."""


class Job:
    """A write, who waits for it, and what is to be told: an answer or an exception. ``alone``: it shares no statement."""

    __slots__ = ("again", "alone", "answer", "began", "changed", "error", "future", "tries", "what", "written")

    def __init__(self, what: Commit | Send, future: asyncio.Future[Any]) -> None:
        self.what = what
        self.future = future
        self.written = b""
        self.again = self.alone = False
        self.tries = 0
        self.began = 0.0
        self.answer: CommitAnswer | SendAnswer | None = None
        self.error: BaseException | None = None
        self.changed: int | None = None


class Writer:
    """Writes on ``line``, and on what replaces it once it is lost. ``notice`` is called for every session that was changed."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop, notice: Callable[[int], None], line: Line) -> None:
        self._database = database
        self._loop = loop
        self._notice = notice
        self._fresh: deque[Job] = deque()
        self._again: list[Job] = []
        self._sent: list[Job] = []
        self._began = 0.0
        self._pause = BUSY_PAUSE
        self._resuming: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._reconnecting = False
        self._reconnect_pause = FIRST_PAUSE
        self._ending = False
        self._closed: asyncio.Future[None] = loop.create_future()
        # Its own, since what users run in the loop's may wait for a write.
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="perdure-writer")
        self._line: Line | None = None
        self._socket = -1
        self._take(line)

    async def stop(self) -> None:
        """Finish what was put, and let go of the connection."""
        self._ending = True
        self._go_on()
        await asyncio.shield(self._closed)

    def put(self, what: Commit | Send) -> asyncio.Future[Any]:
        """Write it with what else waits. It is done even if nobody waits for the future any more."""
        job = Job(what, self._loop.create_future())
        self._fresh.append(job)
        self._go_on()
        return job.future

    # -------------------------------------------------------------------------------------------------------------------- what is sent

    def _go_on(self) -> None:
        """Send what waits, unless a statement is under way."""
        if self._sent or self._reconnecting:
            return
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        jobs = self._collect()
        if jobs:
            self._send(jobs)
        elif self._ending:
            self._end()

    def _collect(self) -> list[Job]:
        jobs, self._again = self._again, []
        if jobs and jobs[0].alone:
            jobs, self._again = jobs[:1], jobs[1:]
            return jobs
        size, room = sum(len(job.written) for job in jobs), True
        # One that is fresh goes with however many that are tried again: nobody waits for those in whose way others are.
        while self._fresh and room:
            job = self._fresh.popleft()
            if self._prepared(job):
                size += len(job.written)
                jobs.append(job)
            else:
                self._tell([job])
            room = len(jobs) < BATCH_LIMIT and size <= BATCH_BYTES
        return jobs

    def _prepared(self, job: Job) -> bool:
        shapes = self._database.shapes
        try:
            if isinstance(job.what, Commit):
                # Names this commit, and no other, for as long as nobody changed the session after it.
                job.written = shapes.commit(secrets.randbits(62) + 1, job.what)
            else:
                job.written = shapes.send(job.what)
        except Exception as error:
            job.error = UsageError(f"the write can't be stored: {error}")
            job.error.__cause__ = error
            return False
        job.began = time.monotonic()
        return True

    def _send(self, jobs: list[Job]) -> None:
        self._sent = jobs
        if self._line is None:
            self._reconnect()
            return
        shapes = self._database.shapes
        again = any(job.again for job in jobs)
        self._began = self._loop.time()
        try:
            commits = shapes.commits([job.written for job in jobs if isinstance(job.what, Commit)])
            sends = shapes.sends([job.written for job in jobs if isinstance(job.what, Send)])
            order = BOOLS.encode([isinstance(job.what, Commit) for job in jobs])
            self._line.begin("write", commits, sends, order, self._database.given(), again)
        except Lost as error:
            self._lost(error)
            return
        except Exception as error:
            self._give_up(error)
            return
        if self._line.unsent:
            self._loop.add_writer(self._socket, self._hear)
        if self._watching is None:
            self._watching = self._loop.call_later(self._line.timeout, self._watch)

    # ------------------------------------------------------------------------------------------------------------------ what is answered

    def _hear(self) -> None:
        """The server said something, or takes more."""
        line = self._line
        if line is None:
            return
        writing = line.unsent
        try:
            rows = line.advance()
        except Lost as error:
            self._lost(error)
            return
        except Failed as error:
            self._failed(error)
            return
        except Exception as error:
            self._give_up(error)
            return
        if writing and not line.unsent:
            self._loop.remove_writer(self._socket)
        if rows is not None and self._sent:
            self._answered(rows)

    def _answered(self, rows: Sequence[tuple[Any, ...]]) -> None:
        jobs, self._sent = self._sent, []
        self._reconnect_pause = FIRST_PAUSE
        try:
            answers = [Answer.of(row) for row in rows]
            for job, answer in zip(jobs, answers, strict=True):
                self._take_answer(job, answer)
            self._database.told(answers[0].moment)
        except Exception as error:
            for job in jobs:
                job.error = job.error or unknown(error)
            self._again = [job for job in self._again if job.error is None]
        self._settled(jobs)

    def _take_answer(self, job: Job, answer: Answer) -> None:
        if answer.code == "error":
            self._refused(job, Failed(answer.sqlstate, answer.message))
        elif answer.code == "busy":
            if time.monotonic() - job.began > self._database.patience:
                job.error = StoreBroken(
                    "another transaction holds the session's row, or its owner's pool", hint="nothing was written; it is safe to try again"
                )
            else:
                self._keep(job)
        else:
            self._pause = BUSY_PAUSE
            try:
                if isinstance(job.what, Commit):
                    job.answer = committed(answer)
                else:
                    job.answer = sent(job.what, answer, again=job.again)
            except Exception as error:
                job.error = error
            if isinstance(job.answer, Committed) or (isinstance(job.answer, Sent) and not job.answer.duplicate):
                job.changed = answer.no

    def _failed(self, error: Failed) -> None:
        """The statement itself was refused, which was not one of them, or all of them."""
        jobs, self._sent = self._sent, []
        if len(jobs) > 1:
            for job in jobs:
                job.alone = True
            self._again = jobs + self._again
        elif jobs:
            self._refused(jobs[0], error)
        self._settled(jobs)

    def _refused(self, job: Job, error: Failed) -> None:
        job.tries += 1
        if error.again and job.tries < TRIES:
            self._keep(job)
        else:
            job.error = translate(error, "writing")

    def _keep(self, job: Job) -> None:
        """Others are in its way: it goes with a later statement."""
        job.alone = False
        self._again.append(job)

    def _settled(self, jobs: list[Job]) -> None:
        """Tell of those that are done, and go on: with what is fresh at once, with what others are in the way of in a while."""
        waiting = {id(job) for job in self._again}
        self._tell([job for job in jobs if id(job) not in waiting])
        if self._again and not self._again[0].alone and not self._fresh:
            self._resuming = self._loop.call_later(self._pause, self._go_on)
            self._pause = min(self._pause * 2, BUSY_PAUSE_LIMIT)
        else:
            self._go_on()

    def _tell(self, jobs: list[Job]) -> None:
        # Whoever stopped waiting changed nothing about the write.
        for job in jobs:
            if job.future.done():
                continue
            if job.error is None:
                job.future.set_result(job.answer)
            else:
                job.future.set_exception(job.error)
        for job in jobs:
            if job.changed is not None:
                self._notice(job.changed)

    # -------------------------------------------------------------------------------------------------------------------- the connection

    def _take(self, line: Line) -> None:
        # Noted, since a connection that was lost has none any more.
        self._line, self._socket = line, line.socket
        self._loop.add_reader(self._socket, self._hear)

    def _drop(self) -> Line | None:
        """The connection, which the loop watches no longer."""
        line, self._line = self._line, None
        if line is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        return line

    def _hang_up(self) -> None:
        if (line := self._drop()) is not None:
            line.close()

    def _lost(self, error: Lost) -> None:
        """What was under way is sent again on another connection, for as long as patience lasts; who had enough is told."""
        self._hang_up()
        now = time.monotonic()
        end = now + self._reconnect_pause - self._database.patience
        late = [job for job in self._sent if job.began < end]
        self._sent = [job for job in self._sent if job.began >= end]
        for job in late:
            job.error = unknown(self._database.unreachable(error, "writing"))
        for job in self._sent:
            job.again = True
        self._tell(late)
        if self._sent:
            self._reconnecting = True
            self._loop.call_later(self._reconnect_pause, self._reconnect)
            self._reconnect_pause = min(self._reconnect_pause * 2, LONGEST_PAUSE)
        else:
            self._go_on()

    def _reconnect(self) -> None:
        self._do_aside(self._database.connect, self._connected)

    def _do_aside(self, work: Callable[[], Any], then: Callable[[asyncio.Future[Any]], None]) -> None:
        """Do in a thread what waits; until ``then`` is called nothing is sent."""
        self._reconnecting = True
        try:
            self._loop.run_in_executor(self._aside, work).add_done_callback(then)
        except RuntimeError as error:
            # No thread can be started.
            self._reconnecting = False
            self._give_up(error)

    def _connected(self, connecting: asyncio.Future[Line]) -> None:
        self._reconnecting = False
        try:
            line = connecting.result()
        except Lost as error:
            self._lost(error)
            return
        except BaseException as error:
            self._give_up(error)
            return
        self._take(line)
        self._send(self._sent)

    def _give_up(self, error: BaseException) -> None:
        """A bug here, or in what is stored, must leave nobody waiting for ever, nor count as an answer about what is stored."""
        self._hang_up()
        jobs, self._sent = self._sent, []
        for job in jobs:
            job.error = unknown(error)
        self._tell(jobs)
        self._go_on()

    def _watch(self) -> None:
        """A statement was begun a while ago: see whether its time is over."""
        self._watching = None
        if not self._sent or self._line is None:
            return
        # If the loop was held up, the answer may have been there in time.
        self._hear()
        if not self._sent or self._watching is not None or (line := self._line) is None:
            return
        left = self._began + line.timeout - self._loop.time()
        if left > 0:
            self._watching = self._loop.call_later(left, self._watch)
            return
        self._drop()
        self._do_aside(line.stop, self._stopped)

    def _stopped(self, _: asyncio.Future[None]) -> None:
        self._reconnecting = False
        self._lost(overdue())

    def _end(self) -> None:
        self._hang_up()
        if self._watching is not None:
            self._watching.cancel()
        self._aside.shutdown(wait=False)
        if not self._closed.done():
            self._closed.set_result(None)
