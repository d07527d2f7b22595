"""Workers and a database that are mistreated while they work, and what is known of it afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.postgres import Server

__all__ = ["LEASE", "Chaos"]

LEASE = 2.0
"""Of the workers (seconds)."""


class Chaos:
    """Three workers on one database, and somebody who hurts them, by a seed.

    ``hurt`` notes what was done.
    """

    def __init__(self, server: Server, url: str, place: Path, *, steps: int, seed: int) -> None:
        self.server, self.url, self.place, self.steps = server, url, place, steps
        self.hurt: list[str] = []
        self._random = random.Random(seed)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._stopped: list[tuple[subprocess.Popen[bytes], float]] = []
        self._logs = (place / "workers.log").open("ab")

    def start(self, count: int = 3) -> None:
        """Have so many workers."""
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        while len(self._workers) < count:
            command = [
                *(sys.executable, "-m", "perdure", "--db", self.url, "worker"),
                *("--agents", "tests.acceptance.chaos.shop"),
                *("--lease", str(LEASE), "--poll", "0.3", "--grace", "1", "--concurrency", "4"),
            ]
            environment = {**os.environ, "CHAOS_PLACE": str(self.place), "CHAOS_STEPS": str(self.steps)}
            self._workers.append(subprocess.Popen(command, env=environment, stderr=self._logs, stdout=self._logs))

    def harm(self) -> None:
        """Do one thing to somebody: each kind once, and then as it comes."""
        ways: list[tuple[Callable[[], None], int]] = [(self._kill, 5), (self._cut, 4), (self._stop, 3), (self._restart, 1)]
        new = [(way, 1) for way, _ in ways if way.__name__.strip("_") not in self.hurt]
        chosen = new[:1] or ways
        way = self._random.choices([way for way, _ in chosen], [weight for _, weight in chosen])[0]
        self.hurt.append(way.__name__.strip("_"))
        way()
        self.start()

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send one worker a signal."""
        next(worker for worker in self._workers if worker.pid == pid).send_signal(number)

    def look_after(self) -> None:
        """Wake those that rested long enough, and replace those that are gone."""
        self._wake()
        self.start()

    def end(self) -> None:
        """Drain the workers, and let go of everything."""
        self._wake(at_once=True)
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._logs.close()

    def _running(self) -> subprocess.Popen[bytes] | None:
        resting = {worker.pid for worker, _ in self._stopped}
        awake = [worker for worker in self._workers if worker.poll() is None and worker.pid not in resting]
        return self._random.choice(awake) if awake else None

    def _kill(self) -> None:
        worker = self._running()
        if worker is not None:
            worker.kill()
            worker.wait()

    def _stop(self) -> None:
        worker = self._running()
        if worker is not None:
            worker.send_signal(signal.SIGSTOP)
            self._stopped.append((worker, time.monotonic() + LEASE + 0.5))

    def _wake(self, *, at_once: bool = False) -> None:
        """Let those go on whose lease ran out meanwhile: zombies."""
        now = time.monotonic()
        for item in [item for item in self._stopped if at_once or item[1] <= now]:
            self._stopped.remove(item)
            if item[0].poll() is None:
                item[0].send_signal(signal.SIGCONT)

    def _cut(self) -> None:
        self.server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid() AND application_name = 'perdure'"
        )

    def _restart(self) -> None:
        """Shut the database down under load, without asking anybody, and start it again."""
        pid = self.server.handle.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + 30
        while (self.server.handle.pgdata / "postmaster.pid").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.server.handle.ensure_postgres_running()
