"""Traces by OpenTelemetry's conventions for generative AI: a turn is a trace, its operations are spans.

The ids are derived from the turn and the operation, so that what one process began and another one ended is one trace: nothing has to
be carried over a restart. A span is made when its receipt is durable; one that a crash cut off has the process' end that found it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..core.checkpoint import Operation, Turn
from ..core.entries import (
    OperationEnded,
    OperationStarted,
    TurnAborted,
    TurnEnded,
    TurnFailed,
    TurnLimited,
)
from ..core.errors import MissingExtra
from ..core.ids import owner_of
from ..core.records import MODEL_KINDS
from ..runtime.observing import Change, Observer, Times

try:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise MissingExtra("tracing needs OpenTelemetry", extra="otel") from error

__all__ = ["Tracing"]


class Tracing(Observer):
    """Sends a span for every operation and every turn to an exporter.

    ``exporter`` is a `SpanExporter`, which gets spans in the background, or a `SpanProcessor` of your own; ``resource`` says which service
    this is. Spans hold names, counts and outcomes; with ``contents`` they never hold more, since contents are the journal's. Inside of a
    tool the operation's span is the current one, so that what the tool's own libraries trace hangs below it. `close` sends what waits.
    """

    def __init__(self, exporter: SpanExporter | SpanProcessor, *, resource: Resource | None = None) -> None:
        self._ids = _Derived()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids)
        self._provider.add_span_processor(exporter if isinstance(exporter, SpanProcessor) else BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("perdure")
        self._started: Times[tuple[str, int]] = Times()

    def close(self) -> None:
        """Send what waits, and stop."""
        self._provider.shutdown()

    def committed(self, change: Change) -> None:
        for entry in change.entries:
            match entry:
                case OperationStarted():
                    self._started.began(change.session_id, (entry.operation, entry.attempt), entry.at)
                case OperationEnded(attempt=attempt) if attempt:
                    self._operation(change, entry)
                case TurnEnded():
                    self._turn(change, entry)
        self._started.settle(change)

    def performing(self, store_id: str, session_id: str, operation: Operation) -> AbstractContextManager[object]:
        """The operation's span as the current one."""
        return self._current(_operation_context(store_id, session_id, operation.id, operation.attempt))

    @contextmanager
    def _current(self, context: SpanContext) -> Iterator[None]:
        with trace.use_span(NonRecordingSpan(context), end_on_exit=False, record_exception=False, set_status_on_exception=False):
            yield

    def _operation(self, change: Change, entry: OperationEnded) -> None:
        operation = change.operation(entry.operation)
        if operation is None:
            return
        plan = operation.plan
        began = self._started.ended(change.session_id, (entry.operation, entry.attempt)) or entry.at
        attributes: dict[str, Any] = {
            "gen_ai.conversation.id": change.session_id,
            "gen_ai.agent.name": _agent(change),
            "perdure.operation": entry.operation,
            "perdure.attempt": entry.attempt,
            "perdure.status": entry.status,
        }
        if plan.kind in MODEL_KINDS:
            name = f"chat {entry.model or plan.name}"
            usage = entry.usage
            attributes |= {"gen_ai.operation.name": "chat", "perdure.route": plan.name, "perdure.kind": plan.kind}
            attributes |= _known(
                {
                    "gen_ai.response.model": entry.model or None,
                    "gen_ai.provider.name": entry.group or None,
                    "gen_ai.response.finish_reasons": (entry.finish,) if entry.finish else None,
                    "gen_ai.usage.input_tokens": usage and usage.input_tokens,
                    "gen_ai.usage.output_tokens": usage and usage.output_tokens,
                    "gen_ai.usage.cache_read.input_tokens": usage and usage.cache_read_tokens,
                }
            )
        else:
            name = f"execute_tool {plan.name}"
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": plan.name, "gen_ai.tool.call.id": plan.call}
            attributes["perdure.effect"] = plan.effect
        failed = entry.failure.code if entry.failure is not None else entry.status if entry.status != "succeeded" else ""
        context = _operation_context(change.store_id, change.session_id, entry.operation, entry.attempt)
        kind = SpanKind.CLIENT if plan.kind in MODEL_KINDS else SpanKind.INTERNAL
        self._emit(context, _turn_context(change, owner_of(entry.operation)), name, kind, began, entry.at, attributes, failed)

    def _turn(self, change: Change, entry: TurnEnded) -> None:
        turn = change.before.turn or change.after.turn
        began = turn.started if turn is not None and turn.id == entry.turn else _began(change, entry)
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": change.session_id,
            "gen_ai.agent.name": _agent(change, turn),
            "gen_ai.usage.input_tokens": entry.usage.input_tokens,
            "gen_ai.usage.output_tokens": entry.usage.output_tokens,
            "perdure.turn": entry.turn,
            "perdure.outcome": entry.outcome,
            "perdure.steps": entry.steps,
            "perdure.tool_calls": entry.tool_calls,
            "perdure.unknown_calls": entry.usage.unknown_calls,
        }
        failed = ""
        match entry:
            case TurnFailed():
                failed = entry.failure.code
            case TurnLimited():
                failed = f"limit:{entry.limit}"
            case TurnAborted():
                failed = "aborted"
        name = f"invoke_agent {attributes['gen_ai.agent.name']}"
        self._emit(_turn_context(change, entry.turn), None, name, SpanKind.INTERNAL, began, entry.at, attributes, failed)

    def _emit(
        self,
        context: SpanContext,
        parent: SpanContext | None,
        name: str,
        kind: SpanKind,
        began: int,
        ended: int,
        attributes: dict[str, Any],
        failed: str,
    ) -> None:
        self._ids.next = context
        around = (
            trace.set_span_in_context(NonRecordingSpan(parent)) if parent is not None else trace.set_span_in_context(trace.INVALID_SPAN)
        )
        span = self._tracer.start_span(name, around, kind, attributes, start_time=began * 1_000_000)
        if failed:
            span.set_attribute("error.type", failed)
            span.set_status(Status(StatusCode.ERROR))
        span.end(max(began, ended) * 1_000_000)


class _Derived(IdGenerator):
    """Gives a span the ids that were derived for it."""

    def __init__(self) -> None:
        self.next: SpanContext = trace.INVALID_SPAN_CONTEXT

    def generate_span_id(self) -> int:
        return self.next.span_id

    def generate_trace_id(self) -> int:
        return self.next.trace_id


def _context(store_id: str, session_id: str, turn: str, span: str) -> SpanContext:
    base = f"{store_id}\0{session_id}\0{turn}"
    trace_id = int.from_bytes(hashlib.sha256(base.encode()).digest()[:16], "big") or 1
    span_id = int.from_bytes(hashlib.sha256(f"{base}\0{span}".encode()).digest()[:8], "big") or 1
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _turn_context(change: Change, turn: str) -> SpanContext:
    return _context(change.store_id, change.session_id, turn, "")


def _operation_context(store_id: str, session_id: str, operation: str, attempt: int) -> SpanContext:
    return _context(store_id, session_id, owner_of(operation), f"{operation}#{attempt}")


def _agent(change: Change, turn: Turn | None = None) -> str:
    turn = turn or change.before.turn or change.after.turn
    return turn.agent if turn is not None else change.after.agent


def _began(change: Change, entry: TurnEnded) -> int:
    """A turn that began and ended in one commit."""
    return next((item.at for item in change.entries if item.seq == entry.began), entry.at)


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    """What nobody reported is left out: it is not zero."""
    return {name: value for name, value in attributes.items() if value is not None}
