"""The one thread that writes: what waits is committed together, and nobody is answered before it is durable.

A member that fails alone is undone alone. If the whole batch was rolled back, its members are tried one by one, so that only the one
that can't be written is refused. If COMMIT itself failed, nobody knows yet: what is stored is read, and only then is anybody answered.

No thread can be called back that waits for another process to let it write. So whoever waited long enough is told from the event loop,
and what was given up is passed over when the thread comes to it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw
import msgspec

from ...core.errors import FormatUnknown, PerdureError, StoreBroken, StoreBusy, StoreCorrupt
from .database import Database, translate
from .writes import CallerFailed, Transaction, Write

__all__ = ["BATCH_LIMIT", "Job", "Writer"]

_log = logging.getLogger("perdure.store")

BATCH_LIMIT = 256
"""The most writes in one transaction."""


class Waiter:
    """Who waits for the thread, and since when. It has ``begun`` or was ``given_up``, never both."""

    __slots__ = ("begun", "future", "given_up", "since")

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future
        self.since = time.monotonic()
        self.begun = self.given_up = False


class Job(Waiter):
    """A write, and what is to be told: an answer or an exception."""

    __slots__ = ("answer", "error", "write")

    def __init__(self, write: Write, future: asyncio.Future[Any]) -> None:
        super().__init__(future)
        self.write = write
        self.answer: Any = None
        self.error: BaseException | None = None


W = TypeVar("W", bound=Waiter)


class _RolledBack(Exception):
    """The transaction that the members stood in is gone, and with it what all of them wrote."""


class Writer:
    """Runs in a thread of its own from `start` to `stop`. ``notice`` is called on the loop for every change."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop, notice: Callable[[int | None], None], poll: float) -> None:
        self._database = database
        self._loop = loop
        self._notice = notice
        self._poll = poll
        self._queue: SimpleQueue[Job | Callable[[], None] | None] = SimpleQueue()
        self._following = False
        self._seen: int | None = None
        self._format_seen: int | None = None
        # A daemon: a store that nobody closed must not keep the program from ending, and what it had written is durable.
        self._thread = threading.Thread(target=self._run, name="perdure-writer", daemon=True)
        self._opened = Waiter(loop.create_future())
        self._closed = Waiter(loop.create_future())
        self._before_close: Callable[[], None] = lambda: None
        self._tx: Transaction
        self._waiting: dict[Waiter, None] = {}
        self._settling = threading.Lock()
        self._watched = False
        self._watching: asyncio.TimerHandle | None = None
        self._held_since = 0.0
        database.waits = self._lock_waits

    async def start(self) -> None:
        self._expect(self._opened)
        self._thread.start()
        await asyncio.shield(self._opened.future)

    async def stop(self, before_close: Callable[[], None]) -> None:
        """Finish what was put, call ``before_close`` in the thread, close the database.

        Where another process doesn't let the thread end, that is left to it.
        """
        if not self._closed.future.done():
            self._before_close = before_close
            turnstile = self._database.turnstile
            waits = turnstile is not None and turnstile.waiting
            self._closed.since = self._held_since if waits else time.monotonic()
            self._expect(self._closed)
            self._queue.put(None)
            if waits:
                self._give_up()
            await asyncio.shield(self._closed.future)

    def abandon(self) -> None:
        """Stop without waiting."""
        self._queue.put(None)

    def put(self, write: Write) -> asyncio.Future[Any]:
        job = Job(write, self._loop.create_future())
        self._expect(job)
        self._queue.put(job)
        return job.future

    async def vacuum(self) -> None:
        """Write the file anew, between the batches."""
        done = Waiter(self._loop.create_future())
        self._expect(done)

        def rewrite() -> None:
            error: BaseException | None = None
            assert self._database.turnstile is not None
            try:
                with self._database.turnstile:
                    if not self._begin([done]):
                        return
                    self._database.check_place(log=True)
                    self._tx.run("vacuum")
                busy = self._tx.one("truncate_log")[0]
                if busy:
                    error = StoreBroken("somebody read the old pages all the time", hint="try again when less is going on")
            except BaseException as caught:
                error = _outward(caught)
            self._call(self._tell, done, None, error)

        self._queue.put(rewrite)
        await done.future

    def follow(self, following: bool) -> None:
        """Look for other processes' commits, or no longer."""

        def switch() -> None:
            self._following = following
            self._seen = None
            if following:
                self._look()
                # What others committed between the listener's call and this first look would otherwise never be told.
                self._call(self._notice, None)

        self._queue.put(switch)

    def _run(self) -> None:
        try:
            connection = self._database.open()
        except BaseException as error:
            self._call(self._tell, self._opened, None, error)
            self._call(self._tell, self._closed, None, None)
            return
        self._tx = Transaction(connection, self._database.lives)
        if not self._begin([self._opened]):
            self._queue.put(None)
        self._call(self._tell, self._opened, None, None)
        try:
            running = True
            while running:
                running = self._turn()
        finally:
            try:
                self._before_close()
                self._database.close()
            finally:
                self._call(self._tell, self._closed, None, None)

    def _turn(self) -> bool:
        """Wait, do what waits; false once the end was asked for."""
        running = True
        jobs: list[Job] = []
        try:
            item = self._queue.get(timeout=self._poll if self._following else None)
            while True:
                if item is None:
                    running = False
                    break
                if isinstance(item, Job):
                    jobs.append(item)
                else:
                    item()
                if len(jobs) == BATCH_LIMIT:
                    break
                item = self._queue.get_nowait()
        except Empty:
            pass
        if jobs:
            self._write(jobs)
        elif self._following:
            self._look()
        return running

    def _look(self) -> None:
        try:
            (seen,) = self._tx.one("data_version")
        except apsw.Error:
            # Whoever needs the database will be told what is wrong with it; a notice costs nothing.
            seen = None
        self._tell_of(seen)

    def _tell_of(self, seen: int | None) -> None:
        """``seen`` is a number that changes with every commit of others."""
        if seen is None or (self._seen is not None and seen != self._seen):
            self._call(self._notice, None)
        self._seen = seen

    def _write(self, jobs: list[Job]) -> None:
        try:
            self._database.check_place(log=True)
        except StoreBroken as error:
            for job in jobs:
                job.error = error
            self._call(self._deliver, jobs)
            return
        ready = [job for job in jobs if self._prepared(job)]
        if ready:
            try:
                self._write_under_lock(ready)
            except BaseException as error:
                # A bug here must not leave anybody waiting for ever, nor count as an answer about what is stored.
                for job in ready:
                    job.error = _unknown(error)
                self._abandon()
        self._call(self._deliver, jobs)
        if any(job.write.clears_log and job.error is None and not job.given_up for job in ready):
            self._clear_log()

    def _prepared(self, job: Job) -> bool:
        try:
            job.write.prepare(self._database.lives)
        except BaseException as error:
            job.error = error
            return False
        return True

    def _write_under_lock(self, jobs: list[Job]) -> None:
        assert self._database.turnstile is not None
        with self._database.turnstile:
            if not (jobs := self._begin(jobs)):
                return
            try:
                self._batch(jobs)
            except _RolledBack:
                if len(jobs) == 1:
                    return
                alone = jobs
            else:
                return
        for job in alone:
            job.begun = False
        for job in alone:
            with self._database.turnstile:
                if not self._begin([job]):
                    continue
                job.answer = job.error = None
                try:
                    self._batch([job])
                except _RolledBack:
                    assert job.error is not None

    def _batch(self, jobs: list[Job]) -> None:
        """Write them in one transaction, and note in each what to tell. Raises `_RolledBack` if nothing of it was kept and the members
        of a larger batch should be tried alone; a single member's ``error`` is set then."""
        tx = self._tx
        self._abandon()
        try:
            tx.run("begin")
            # In here it costs no transaction of its own.
            (seen,) = tx.one("data_version")
            if seen != self._format_seen:
                # Only what others wrote can have renewed the format.
                self._database.check_format(tx.connection)
                self._format_seen = seen
            if self._following:
                self._tell_of(seen)
        except (apsw.Error, FormatUnknown) as error:
            self._abandon()
            for job in jobs:
                job.error = error if isinstance(error, FormatUnknown) else translate(error, "beginning a write")
            return
        for job in jobs:
            self._member(job)
        try:
            tx.run("commit")
        except apsw.Error as error:
            self._after_failed_commit(jobs, error)
        try:
            # Nobody is told that it is done if it went to a file that was carried off meanwhile.
            self._database.check_place(log=True)
        except StoreBroken as error:
            for job in jobs:
                job.error = job.error or _unknown(error)
        for job in jobs:
            if job.error is None:
                job.write.finished(self._database.lives)

    def _member(self, job: Job) -> None:
        tx = self._tx
        try:
            tx.run("member")
            try:
                job.answer = job.write.apply(tx)
            except BaseException as error:
                if not tx.connection.in_transaction:
                    raise
                tx.run("member_undo")
                tx.run("member_done")
                job.error = error.error if isinstance(error, CallerFailed) else _outward(error)
            else:
                tx.run("member_done")
        except BaseException as error:
            # The transaction is gone, or not what it was; after this nothing of the batch is kept.
            self._abandon()
            job.error = _outward(error)
            raise _RolledBack from error

    def _after_failed_commit(self, jobs: list[Job], error: apsw.Error) -> None:
        self._abandon()
        landed: bool | None = None
        try:
            if self._tx.connection.in_transaction:
                # What could be read now would be what was not committed.
                raise error
            for job in jobs:
                if job.error is None and landed is None:
                    landed = job.write.landed(self._tx, job.answer)
        except apsw.Error as second:
            for job in jobs:
                job.error = _unknown(second)
            return
        if landed:
            return
        wrote = [job for job in jobs if job.error is None and (job.write.repeatable or job.write.wrote(job.answer))]
        if not wrote:
            # They only read what was committed before, and that is as true as it was.
            return
        certain = landed is False or all(job.write.repeatable for job in wrote)
        for job in jobs:
            job.error = translate(error, "committing") if certain else _unknown(error)
        if certain:
            raise _RolledBack from error

    def _abandon(self) -> None:
        # SQLite may have rolled back by itself. If it is still open, it is tried again before anything else is written.
        with suppress(Exception):
            if self._tx.connection.in_transaction:
                self._tx.run("rollback")

    def _clear_log(self) -> None:
        # Only if nobody reads just now; else the log is overwritten a little later.
        connection = self._tx.connection
        connection.set_busy_timeout(0)
        with suppress(apsw.Error):
            self._tx.run("truncate_log")
        connection.set_busy_timeout(self._database.busy_timeout)

    def _deliver(self, jobs: list[Job]) -> None:
        # On the loop. Whoever stopped waiting changed nothing about the write.
        for job in jobs:
            self._tell(job, job.answer, job.error)
        for job in jobs:
            if job.error is None and not job.given_up:
                changed = job.write.changed(job.answer)
                if changed is not None or job.write.frees:
                    self._notice(changed)

    def _tell(self, waiter: Waiter, answer: Any, error: BaseException | None) -> None:
        self._waiting.pop(waiter, None)
        if waiter.future.done():
            return
        if error is None:
            waiter.future.set_result(answer)
        else:
            waiter.future.set_exception(error)

    # ------------------------------------------------------------------------------------------------------- who waits too long

    def _expect(self, waiter: Waiter) -> None:
        self._waiting[waiter] = None

    def _begin(self, waiters: list[W]) -> list[W]:
        """Those that somebody still waits for: they are done now."""
        with self._settling:
            left = [waiter for waiter in waiters if not waiter.given_up]
            for waiter in left:
                waiter.begun = True
        return left

    def _lock_waits(self) -> None:
        # In the thread, before it waits for other processes.
        self._held_since = time.monotonic()
        if not self._watched:
            self._watched = True
            self._call(self._watch, self._database.busy_timeout / 1000)

    def _watch(self, seconds: float) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._watching = self._loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        """On the loop: who has waited for long enough is told, and what it wanted isn't done any more."""
        self._watched = False
        turnstile = self._database.turnstile
        if turnstile is None or not turnstile.waiting:
            return
        self._watched = True
        now, longest = time.monotonic(), self._database.busy_timeout / 1000
        with self._settling:
            left = [waiter for waiter in self._waiting if not waiter.begun]
            late = [waiter for waiter in left if now - waiter.since >= longest]
            for waiter in late:
                waiter.given_up = True
        for waiter in late:
            error = self._busy(turnstile.holder())
            if waiter is self._closed:
                _log.warning("the store is closed once it can be: %s", error)
            self._tell(waiter, None, None if waiter is self._closed else error)
        self._watch(max(0.01, min((waiter.since + longest - now for waiter in left if not waiter.given_up), default=longest)))

    def _busy(self, holder: int | None) -> StoreBusy:
        who = "another process" if holder is None else f"the process {holder}"
        return StoreBusy(
            f"{who} has held {str(self._database.given)!r} for {self._database.busy_timeout / 1000:g} s; nothing was written",
            hint="it may be stopped in the middle of a write: let it go on, or end it; then try again",
        )

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        # If the loop is closed, nobody waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)


def _outward(error: BaseException) -> BaseException:
    """What the caller is told."""
    if isinstance(error, CallerFailed):
        error = error.error
    if isinstance(error, UnicodeError | msgspec.MsgspecError):
        return StoreCorrupt(f"a row holds what can't be read: {error}", hint="run `perdure verify`")
    return translate(error, "writing") if isinstance(error, apsw.Error) else error


def _unknown(error: BaseException) -> PerdureError:
    return StoreBroken(f"whether the write is stored is unknown: {error}", hint="read the session again to see")
