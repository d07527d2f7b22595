"""The one thread whose connection carries the commits and submissions of all sessions: what waits goes together, in one statement.

Each of them is a savepoint of the server, so that one that fails undoes itself alone; and none waits for a row that another process has
locked: it is tried again with the next ones. If the answer is lost, the same ones are sent again, and the server knows those that it has.
Nobody is answered before that is known.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from ...core.errors import StoreBroken, UsageError
from ..base import Commit, CommitAnswer, Committed, Send, SendAnswer, Sent
from .answers import Answer, committed, sent
from .database import FIRST_PAUSE, LONGEST_PAUSE, Database, unknown
from .line import Failed, Line, Lost, translate
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
    """A write, who waits for it, and what is to be told: an answer or an exception."""

    __slots__ = ("again", "answer", "began", "changed", "error", "future", "tries", "what", "written")

    def __init__(self, what: Commit | Send, future: asyncio.Future[Any]) -> None:
        self.what = what
        self.future = future
        self.written = b""
        self.again = False
        self.tries = 0
        self.began = 0.0
        self.answer: CommitAnswer | SendAnswer | None = None
        self.error: BaseException | None = None
        self.changed: int | None = None


class Writer:
    """Runs in a thread of its own from `start` to `stop`. ``notice`` is called on the loop for every session that was changed."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop, notice: Callable[[int], None]) -> None:
        self._database = database
        self._loop = loop
        self._notice = notice
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._busy: list[Job] = []
        self._pause = BUSY_PAUSE
        self._ending = False
        self._line: Line | None = None
        # A daemon: a store that nobody closed must not keep the program from ending, and what it had answered is durable.
        self._thread = threading.Thread(target=self._run, name="perdure-writer", daemon=True)
        self._closed: asyncio.Future[None] = loop.create_future()

    def start(self, line: Line) -> None:
        self._line = line
        self._thread.start()

    async def stop(self) -> None:
        """Finish what was put, and let go of the connection."""
        self._queue.put(None)
        await asyncio.shield(self._closed)

    def put(self, what: Commit | Send) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._queue.put(Job(what, future))
        return future

    def _run(self) -> None:
        try:
            while not self._ending or self._busy:
                self._turn()
        finally:
            if self._line is not None:
                self._line.close()
            self._call(self._set, self._closed, None, None)

    def _turn(self) -> None:
        jobs, fresh = self._busy, self._collect()
        self._busy = []
        if not fresh and not jobs:
            return
        ready = jobs + [job for job in fresh if self._prepared(job)]
        try:
            self._write(ready)
        except BaseException as error:
            # A bug here must not leave anybody waiting for ever, nor count as an answer about what is stored.
            for job in ready:
                job.error = job.error or unknown(error)
            self._busy = []
        waiting = {id(job) for job in self._busy}
        self._call(self._deliver, [job for job in jobs + fresh if id(job) not in waiting])

    def _collect(self) -> list[Job]:
        """Wait for writes; only briefly while others wait for a row."""
        found: list[Job] = []
        size = sum(len(job.written) for job in self._busy)
        try:
            item = self._queue.get(timeout=self._pause if self._busy else None)
            while True:
                if item is None:
                    self._ending = True
                    break
                found.append(item)
                size += _size(item.what)
                if len(found) + len(self._busy) >= BATCH_LIMIT or size > BATCH_BYTES:
                    break
                item = self._queue.get_nowait()
        except Empty:
            if not found:
                self._pause = min(self._pause * 2, BUSY_PAUSE_LIMIT)
        return found

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

    def _write(self, jobs: list[Job]) -> None:
        """Write them in one statement, and note in each what to tell; those whose rows are locked go to ``_busy``."""
        if not jobs:
            return
        try:
            answers = self._answers(jobs)
        except Lost as error:
            for job in jobs:
                job.error = unknown(self._database.unreachable(error, "writing"))
            return
        except Failed as error:
            if len(jobs) > 1:
                # Not one of them, or all of them: the statement itself.
                for job in jobs:
                    self._write([job])
                return
            self._refused(jobs[0], error)
            return
        for job, answer in zip(jobs, answers, strict=True):
            self._answered(job, answer)
        if answers:
            self._database.told(answers[0].moment)

    def _answers(self, jobs: list[Job]) -> list[Answer]:
        """What the server says to each; sent again for as long as patience lasts if that is lost. Raises `Failed` and `Lost`."""
        shapes = self._database.shapes
        commits = shapes.commits([job.written for job in jobs if isinstance(job.what, Commit)])
        sends = shapes.sends([job.written for job in jobs if isinstance(job.what, Send)])
        order = BOOLS.encode([isinstance(job.what, Commit) for job in jobs])
        end = time.monotonic() + self._database.patience
        pause = FIRST_PAUSE
        again = any(job.again for job in jobs)
        while True:
            try:
                if self._line is None or self._line.closed:
                    self._line = self._database.connect()
                return [Answer.of(row) for row in self._line.run("write", commits, sends, order, self._database.given(), again)]
            except Lost:
                again = True
                for job in jobs:
                    job.again = True
                if time.monotonic() + pause > end:
                    raise
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def _answered(self, job: Job, answer: Answer) -> None:
        if answer.code == "error":
            self._refused(job, Failed(answer.sqlstate, answer.message))
        elif answer.code == "busy":
            if time.monotonic() - job.began > self._database.patience:
                job.error = StoreBroken(
                    "another transaction holds the session's row, or its owner's pool", hint="nothing was written; it is safe to try again"
                )
            else:
                self._busy.append(job)
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

    def _refused(self, job: Job, error: Failed) -> None:
        job.tries += 1
        if error.again and job.tries < TRIES:
            self._busy.append(job)
        else:
            job.error = translate(error, "writing")

    def _deliver(self, jobs: list[Job]) -> None:
        # On the loop. Whoever stopped waiting changed nothing about the write.
        for job in jobs:
            self._set(job.future, job.answer, job.error)
        for job in jobs:
            if job.changed is not None:
                self._notice(job.changed)

    @staticmethod
    def _set(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        # If the loop is closed, nobody waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)


def _size(what: Commit | Send) -> int:
    size = sum(len(getattr(blob, "data", b"")) for blob in what.blobs)
    if isinstance(what, Send):
        return size + len(what.body)
    return size + sum(len(entry.body or b"") for entry in what.entries)
