"""Traces, metrics and logs: what a process commits is seen, whatever an observer does, and contents are nobody's but the journal's."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

import perdure
from perdure import Agent, ApprovalRequested, FunctionModel, ModelRequest, Reply, ToolCall, Usage, tool
from perdure.core.checkpoint import Checkpoint, Operation
from perdure.integrations.logs import JsonLog
from perdure.integrations.metrics import Metrics
from perdure.integrations.tracing import Tracing
from perdure.runtime.observing import Change, Observer, Times

from ..interactive.acting import until

SECRET = "the card is 4111"


def shop(do: Callable[[str], Any], *, usage: Usage | None = None) -> Agent:
    """An agent that refunds once and answers."""

    @tool(effect="external")
    async def refund(order: str) -> str:
        """Refund an order."""
        done = do(order)
        return str(await done if asyncio.iscoroutine(done) else done)

    def answer(request: ModelRequest) -> Reply:
        if request.messages[-1].role == "tool":
            return Reply("refunded", usage=usage)
        return Reply(tool_calls=[ToolCall("refund", {"order": SECRET}, "c1")], usage=usage)

    return Agent("shop", model=FunctionModel(answer, name="clerk"), tools=[refund])


def tracing() -> tuple[Tracing, Callable[[], dict[str, ReadableSpan]]]:
    exporter = InMemorySpanExporter()
    return Tracing(SimpleSpanProcessor(exporter)), lambda: {span.name: span for span in exporter.get_finished_spans()}


async def test_a_turn_is_a_trace_and_its_operations_are_spans_below_it() -> None:
    observer, spans = tracing()
    inside: list[trace.SpanContext] = []

    def do(order: str) -> str:
        inside.append(trace.get_current_span().get_span_context())
        return "done"

    async with perdure.open("memory://", observers=[observer]) as runtime:
        await runtime.run(shop(do, usage=Usage(input_tokens=7, output_tokens=3)), "please", session="s", submission="m")

    found = spans()
    turn, called, asked = found["invoke_agent shop"], found["execute_tool refund"], found["chat clerk"]
    assert {span.context.trace_id for span in (turn, called, asked)} == {turn.context.trace_id}
    assert called.parent is not None
    assert (called.parent.span_id, turn.parent) == (turn.context.span_id, None)
    assert inside == [trace.SpanContext(called.context.trace_id, called.context.span_id, False, trace.TraceFlags(1))]
    assert asked.attributes is not None
    assert (asked.attributes["gen_ai.usage.input_tokens"], asked.attributes["gen_ai.conversation.id"]) == (7, "s")
    assert turn.attributes is not None
    assert (turn.attributes["perdure.outcome"], turn.attributes["gen_ai.usage.input_tokens"]) == ("completed", 14)
    assert SECRET not in "".join(span.to_json() for span in found.values())


async def test_what_one_process_began_and_another_ended_is_one_trace(tmp_path: Path) -> None:
    first, before = tracing()
    second, after = tracing()
    began = asyncio.Event()

    async def never(order: str) -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    async with perdure.open(str(tmp_path / "a.db"), observers=[first], grace=0.0) as runtime:
        running = asyncio.ensure_future(runtime.run(shop(never), "please", session="s", submission="m"))
        await asyncio.wait_for(began.wait(), 10)
        running.cancel()
    async with perdure.open(str(tmp_path / "a.db"), observers=[second]) as runtime:
        await runtime.run(shop(lambda order: "done"), "please", session="s", submission="m")

    cut, turn = before()["execute_tool refund"], after()["invoke_agent shop"]
    assert cut.parent is not None
    assert (cut.context.trace_id, cut.parent.span_id) == (turn.context.trace_id, turn.context.span_id)
    assert cut.attributes is not None
    assert cut.attributes["perdure.status"] == "uncertain"
    assert not cut.status.is_ok
    assert turn.start_time is not None
    assert cut.start_time is not None
    assert turn.start_time <= cut.start_time, "the turn began in the first process"


async def test_usage_that_nobody_reported_is_left_out_of_a_span_and_counted_apart() -> None:
    observer, spans = tracing()
    metrics = Metrics()

    async with perdure.open("memory://", observers=[observer, metrics]) as runtime:
        await runtime.run(shop(lambda order: "done"), "please", session="s", submission="m")

    assert "gen_ai.usage.input_tokens" not in (spans()["chat clerk"].attributes or {})
    text = generate_latest(metrics.registry).decode()
    assert "perdure_unreported_usage_total" in text
    assert 'direction="input"' not in text


async def test_metrics_count_turns_operations_tokens_and_questions_by_names_alone() -> None:
    metrics = Metrics()
    agent = shop(lambda order: "done", usage=Usage(input_tokens=7, output_tokens=3)).replace(approve=["refund"])

    async with perdure.open("memory://", observers=[metrics]) as runtime, runtime.session("s", agent) as session:
        await session.send("please")
        asked = (await until(session, ApprovalRequested, after=0))[-1]
        await session.approve(asked.request_id)
        await until(session)

    def value(sample: str, **labels: str) -> float:
        return metrics.registry.get_sample_value(sample, labels) or 0.0

    assert value("perdure_turns_total", agent="shop", outcome="completed") == 1
    assert value("perdure_operations_total", kind="tool", name="refund", status="succeeded") == 1
    assert value("perdure_operation_seconds_count", kind="model", name="clerk") == 2
    assert value("perdure_tokens_total", route="clerk", direction="input") == 14
    assert value("perdure_requests_opened_total", kind="approval") == 1
    assert value("perdure_requests_closed_total", decision="approve", by="answer") == 1
    text = generate_latest(metrics.registry).decode()
    assert SECRET not in text
    assert '"s"' not in text


async def test_a_log_says_what_happened_and_not_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "perdure.journal")

    def fail(order: str) -> str:
        raise OSError(SECRET)

    async with perdure.open("memory://", observers=[JsonLog()]) as runtime:
        await runtime.run(shop(fail), f"please, {SECRET}", session="s", submission="m")

    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "perdure.journal"]
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)
    assert {"turn_started", "operation_ended", "turn_completed"} <= {line["kind"] for line in lines}
    assert all(line["session"] == "s" and line["at"] for line in lines)
    assert SECRET not in json.dumps(lines)
    levels = {record.levelname for record in caplog.records if '"status":"uncertain"' in record.getMessage()}
    assert levels == {"WARNING"}


async def test_a_log_with_contents_has_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "perdure.journal")
    async with perdure.open("memory://", observers=[JsonLog(contents=True)]) as runtime:
        await runtime.run(shop(lambda order: "done"), f"please, {SECRET}", session="s", submission="m")
    assert SECRET in caplog.text


class Clumsy(Observer):
    """Fails at everything."""

    def committed(self, change: Change) -> None:
        raise RuntimeError("no")

    def performing(self, store_id: str, session_id: str, operation: Operation) -> AbstractContextManager[object]:
        raise RuntimeError("no")


class Leaving(Observer):
    """Fails when an effect has ended."""

    def performing(self, store_id: str, session_id: str, operation: Operation) -> AbstractContextManager[object]:
        class Around:
            def __enter__(self) -> None:
                pass

            def __exit__(self, *raised: object) -> None:
                raise RuntimeError("no")

        return Around()  # type: ignore[return-value]


@pytest.mark.spec("S0-219", "B-B-056")
async def test_an_observer_that_fails_changes_nothing_and_keeps_nobody_else_from_seeing(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    async with perdure.open("memory://", observers=[Clumsy(), Leaving(), metrics]) as runtime:
        result = await runtime.run(shop(lambda order: "done"), "please", session="s", submission="m")
    assert result.output == "refunded"
    assert metrics.registry.get_sample_value("perdure_turns_total", {"agent": "shop", "outcome": "completed"}) == 1
    assert "an observer failed" in caplog.text


async def test_commands_that_their_sender_applied_are_seen_too() -> None:
    metrics = Metrics()
    async with perdure.open("memory://", observers=[metrics]) as runtime:
        await runtime.run(shop(lambda order: "done"), "please", session="s", submission="m")
        before = metrics.registry.get_sample_value("perdure_commits_total") or 0
        await runtime.sessions.archive("s")
    assert metrics.registry.get_sample_value("perdure_commits_total") == before + 1


def test_when_something_began_is_not_kept_for_what_another_process_ended() -> None:
    times: Times[str] = Times(limit=3)
    idle = Checkpoint(session_id="s")
    for session in "abcde":
        times.began(session, "t2", 5)
    times.began("c", "t9", 6)
    assert (len(times), times.ended("a", "t2"), times.ended("e", "t2")) == (4, None, 5)
    # Its turn ended elsewhere, and the next one ends here.
    times.settle(Change("store", "c", (), idle, idle))
    assert (len(times), times.ended("c", "t9"), times.ended("d", "t2")) == (1, None, 5)


async def test_a_process_remembers_nothing_of_what_is_over() -> None:
    metrics, (observer, _) = Metrics(), tracing()
    async with perdure.open("memory://", observers=[metrics, observer]) as runtime:
        await runtime.run(shop(lambda order: "done"), "please", session="s", submission="m")
    assert (len(metrics._started), len(metrics._begun), len(observer._started)) == (0, 0, 0)
    assert (metrics._started._sessions, observer._started._sessions) == ({}, {})
