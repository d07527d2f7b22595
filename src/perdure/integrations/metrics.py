"""Figures for Prometheus: what one process committed since it began, and how the sessions of its store are now."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from ..core.entries import (
    OperationEnded,
    OperationStarted,
    Recovered,
    RequestClosed,
    RequestOpened,
    SubmissionRefused,
    TurnEnded,
    TurnStarted,
)
from ..core.errors import MissingExtra, RuntimeClosed, StoreError
from ..core.records import MODEL_KINDS
from ..core.usage import Usage
from ..runtime.health import STORE_SECONDS
from ..runtime.observing import Change, Observer, Times
from ..runtime.runtime import Runtime
from ..store.figures import ACTIVE, Figures, KeepsFigures

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
except ImportError as error:
    raise MissingExtra("metrics need the Prometheus client", extra="prometheus") from error

__all__ = ["Metrics"]

_OF_STORE = {
    "sessions_due": "Sessions that nobody holds and somebody should look at by now",
    "sessions_due_seconds": "How long the first of them has been due",
    "sessions_left": "Sessions whose holder's lease has run out",
    "inbox_pending": "Submissions that nobody consumed",
    "inbox_pending_seconds": "How long the oldest of them has waited",
    "effects_uncertain": "Effects whose outcome nobody knows",
}

_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Metrics(Observer):
    """Counters, histograms and gauges, all named ``perdure_…``. Labels are names that code gives (agents, tools, routes), never ids or
    contents. Gauges are as they were when `look` was called last; `Probes` does that whenever it is asked for them.

    ``registry`` is where they are found; the default is one of its own, ``metrics.registry``.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._turns = Counter("perdure_turns", "Turns that ended", ["agent", "outcome"], registry=self.registry)
        self._turn_seconds = Histogram(
            "perdure_turn_seconds", "From a turn's begin to its end, waiting included", ["agent"], buckets=_SECONDS, registry=self.registry
        )
        self._operations = Counter(
            "perdure_operations", "Attempts of model and tool calls that ended", ["kind", "name", "status"], registry=self.registry
        )
        self._operation_seconds = Histogram(
            "perdure_operation_seconds",
            "From an attempt's intent to its receipt",
            ["kind", "name"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._tokens = Counter("perdure_tokens", "Tokens that providers reported", ["route", "direction"], registry=self.registry)
        self._unreported = Counter("perdure_unreported_usage", "Model calls whose usage nobody reported", ["route"], registry=self.registry)
        self._asked = Counter("perdure_requests_opened", "Questions to people", ["kind"], registry=self.registry)
        self._answered = Counter("perdure_requests_closed", "How they were answered", ["decision", "by"], registry=self.registry)
        self._recovered = Counter("perdure_recoveries", "Turns that were taken over from another process", registry=self.registry)
        self._refused = Counter("perdure_submissions_refused", "Submissions without effect", ["code"], registry=self.registry)
        self._commits = Counter("perdure_commits", "Commits", registry=self.registry)
        self._sessions = Gauge("perdure_sessions", "Sessions of the store by status", ["status"], registry=self.registry)
        self._of_store = {name: Gauge(f"perdure_{name}", words, registry=self.registry) for name, words in _OF_STORE.items()}
        self._held = Gauge("perdure_sessions_held", "Sessions that this process holds", registry=self.registry)
        self._lease = Gauge("perdure_lease_seconds", "How long this process' lease still lasts", registry=self.registry)
        self._up = Gauge("perdure_store_up", "Whether the store said how its sessions are", registry=self.registry)
        self._started: Times[tuple[str, int]] = Times()
        self._begun: Times[str] = Times()

    async def look(self, runtime: Runtime) -> None:
        """See how the sessions of a runtime's store are, and how its process is. One question to the store, whatever it holds.

        If it doesn't answer, or the runtime is closed, ``perdure_store_up`` says so, and what it would have said is not a number. Raises
        nothing that the store does.
        """
        lease = runtime.lease_ms
        self._held.set(runtime.holding)
        self._lease.set(math.nan if lease is None else lease / 1000)
        found = None
        # A worker closes its runtime before its probes.
        with suppress(RuntimeClosed, StoreError, TimeoutError):
            store = runtime.store
            if isinstance(store, KeepsFigures):
                async with asyncio.timeout(STORE_SECONDS):
                    found = await store.figures()
        self._up.set(found is not None)
        for status in ACTIVE:
            self._sessions.labels(status).set(math.nan if found is None else found.sessions.get(status, 0))
        for name, gauge in self._of_store.items():
            gauge.set(math.nan if found is None else _of_store(name, found))

    def committed(self, change: Change) -> None:
        self._commits.inc()
        for entry in change.entries:
            match entry:
                case TurnStarted():
                    self._begun.began(change.session_id, entry.turn, entry.at)
                case TurnEnded():
                    self._turn(change, entry)
                case OperationStarted():
                    self._started.began(change.session_id, (entry.operation, entry.attempt), entry.at)
                case OperationEnded(attempt=attempt) if attempt:
                    self._operation(change, entry)
                case RequestOpened():
                    self._asked.labels(type(entry).__name__.removesuffix("Requested").lower()).inc()
                case RequestClosed():
                    self._answered.labels(entry.decision, entry.by).inc()
                case Recovered():
                    self._recovered.inc()
                case SubmissionRefused():
                    self._refused.labels(entry.failure.code).inc()
        self._started.settle(change)
        self._begun.settle(change)

    def _turn(self, change: Change, entry: TurnEnded) -> None:
        turn = change.before.turn
        agent = turn.agent if turn is not None else change.after.agent
        began = self._begun.ended(change.session_id, entry.turn) or (turn.started if turn is not None else entry.at)
        self._turns.labels(agent, entry.outcome).inc()
        self._turn_seconds.labels(agent).observe((entry.at - began) / 1000)

    def _operation(self, change: Change, entry: OperationEnded) -> None:
        operation = change.operation(entry.operation)
        began = self._started.ended(change.session_id, (entry.operation, entry.attempt))
        if operation is None:
            return
        plan = operation.plan
        self._operations.labels(plan.kind, plan.name, entry.status).inc()
        if began is not None:
            self._operation_seconds.labels(plan.kind, plan.name).observe((entry.at - began) / 1000)
        if plan.kind in MODEL_KINDS:
            self._usage(plan.name, entry.usage)

    def _usage(self, route: str, usage: Usage | None) -> None:
        if usage is None or usage.input_tokens is None or usage.output_tokens is None:
            self._unreported.labels(route).inc()
        if usage is None:
            return
        counts = {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
            "reasoning": usage.reasoning_tokens,
        }
        for direction, count in counts.items():
            if count is not None:
                self._tokens.labels(route, direction).inc(count)


def _of_store(name: str, found: Figures) -> float:
    match name:
        case "sessions_due":
            return found.due
        case "sessions_due_seconds":
            return _since(found.due_since, found.now)
        case "sessions_left":
            return found.left
        case "inbox_pending":
            return found.pending
        case "inbox_pending_seconds":
            return _since(found.pending_since, found.now)
        case _:
            return found.uncertain


def _since(moment: int | None, now: int) -> float:
    return 0 if moment is None else max(0, now - moment) / 1000
