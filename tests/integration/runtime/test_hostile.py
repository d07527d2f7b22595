"""Models, tools and clocks that do what nobody should: there is an outcome, it can be stored, and nothing hangs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply, Runtime, Text, ToolCall, ToolError, tool
from perdure.core.checkpoint import Operation
from perdure.core.entries import OperationEnded
from perdure.core.errors import InvalidModelOutput, RateLimited, StoreBroken
from perdure.core.evolve import fold
from perdure.core.messages import ToolCallResponse
from perdure.core.records import Failure, Plan
from perdure.core.reports import Reconciled
from perdure.core.usage import Usage
from perdure.models.anthropic import Anthropic
from perdure.models.base import ModelOutput, ReasoningDelta, TextDelta
from perdure.models.openai import OpenAIResponses
from perdure.runtime import perform
from perdure.runtime.clock import SystemClock
from perdure.runtime.perform import Performer
from perdure.runtime.work import Work
from perdure.testing.clock import VirtualClock

Streaming = Callable[[ModelRequest], AsyncGenerator[Any, None]]


class Rude:
    """A model that is nothing but a stream."""

    name = "rude"
    group = "rude"

    def __init__(self, stream: Any) -> None:
        self.calls = 0
        self._stream = stream

    def stream(self, request: ModelRequest) -> Any:
        self.calls += 1
        return self._stream(request)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    opened = perdure.open("memory://", clock=VirtualClock(auto=True))
    await opened.__aenter__()
    yield opened
    await asyncio.wait_for(opened.close(grace=0), 5)


async def receipts(runtime: Runtime, agent: Agent) -> list[OperationEnded]:
    """What the operations of one turn came to."""
    await asyncio.wait_for(asyncio.gather(runtime.run(agent, "go", session="s"), return_exceptions=True), 5)
    entries = await runtime.sessions.entries("s")
    assert fold(entries) == await runtime.sessions.checkpoint("s")
    return [entry for entry in map(_body, entries) if isinstance(entry, OperationEnded)]


def _body(entry: Any) -> Any:
    return getattr(entry, "entry", entry)


async def model_failure(runtime: Runtime, stream: Any) -> tuple[OperationEnded, Failure]:
    ended = (await receipts(runtime, Agent("a", model=cast("Any", Rude(stream)))))[-1]
    assert ended.status == "failed"
    assert ended.failure is not None
    return ended, ended.failure


def raising(error: BaseException, *items: Any) -> Streaming:
    async def stream(request: ModelRequest) -> AsyncGenerator[Any, None]:
        for item in items:
            yield item
        raise error

    return stream


def yielding(*items: Any) -> Streaming:
    async def stream(request: ModelRequest) -> AsyncGenerator[Any, None]:
        for item in items:
            yield item

    return stream


async def tool_receipt(runtime: Runtime, used: Any) -> tuple[OperationEnded, ToolCallResponse]:
    model = FunctionModel(lambda request: Reply(tool_calls=[ToolCall("use", {})]) if request.step == 0 else Reply("done"))
    ended = (await receipts(runtime, Agent("a", model=model, tools=[used])))[1]
    response = (await runtime.sessions.history("s"))[2].parts[0]
    assert isinstance(response, ToolCallResponse)
    return ended, response


def failing(error: Exception, effect: Any = "external") -> Any:
    @tool(name="use", effect=effect)
    async def use() -> str:
        """Fail."""
        raise error

    return use


# ---- tools -------------------------------------------------------------------------------------------------------------------------


async def test_a_certain_failure_whose_words_no_store_holds_is_still_certain(runtime: Runtime) -> None:
    ended, response = await tool_receipt(runtime, failing(ToolError("bad \udcff")))
    assert ended.status == "failed"
    assert ended.failure == Failure(code="tool_error", message="bad �")
    assert response.response == "bad �"


@pytest.mark.parametrize(("effect", "status"), [("external", "uncertain"), ("idempotent", "failed")])
async def test_a_tool_that_raises_what_has_no_words_has_an_outcome(runtime: Runtime, effect: Any, status: str) -> None:
    ended, _ = await tool_receipt(runtime, failing(Unspeakable(), effect))
    assert ended.status == status
    assert ended.failure is not None
    assert "can't be put into words" in ended.failure.message


async def test_a_long_certain_failure_is_cut_in_the_receipt_and_whole_in_the_response(runtime: Runtime) -> None:
    ended, response = await tool_receipt(runtime, failing(ToolError("x" * 2_000_000)))
    assert ended.status == "failed"
    assert ended.failure is not None
    assert len(ended.failure.message) == 2_000
    assert response.response == "x" * 2_000_000


async def test_a_timeout_that_no_clock_can_count_is_none(runtime: Runtime) -> None:
    @tool(name="use", timeout=1e308)
    async def use() -> str:
        """Answer at once."""
        return "used"

    ended, response = await tool_receipt(runtime, use)
    assert (ended.status, response.response) == ("succeeded", "used")


# ---- models ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [GeneratorExit(), SystemExit(3), KeyboardInterrupt(), BaseException("odd"), Unspeakable()])
async def test_a_model_that_raises_what_no_model_should_has_failed(runtime: Runtime, error: BaseException) -> None:
    _, failure = await model_failure(runtime, raising(error))
    assert failure.code == "model_error"


@pytest.mark.parametrize(
    ("hint", "kept"),
    [(math.nan, None), (math.inf, 86_400_000), (-math.inf, 0), (-5, 0), (1e308, 86_400_000), (10**400, 86_400_000), ("x", None)],
)
async def test_a_pause_that_nobody_can_wait_for_is_cut(runtime: Runtime, hint: Any, kept: int | None) -> None:
    _, failure = await model_failure(runtime, raising(RateLimited("slow \udcff" + "x" * 5_000, retry_after=hint)))
    assert (failure.code, failure.retry_after) == ("rate_limited", kept)
    assert failure.message.startswith("slow �x")
    assert len(failure.message) == 2_000


async def test_text_that_is_none_is_no_text(runtime: Runtime) -> None:
    _, failure = await model_failure(runtime, raising(OSError("gone"), TextDelta(text=cast("Any", 5))))
    assert failure.code == InvalidModelOutput.code


async def test_a_character_that_came_in_two_halves_is_whole_in_what_was_written(runtime: Runtime) -> None:
    halves = [TextDelta(text="a\ud83d"), TextDelta(text="\ude00b\ud83d")]
    ended, _ = await model_failure(runtime, raising(OSError("gone"), *halves))
    assert ended.partial == "a😀b�"


async def test_a_character_that_came_in_two_halves_is_whole_in_what_is_watched(runtime: Runtime) -> None:
    pieces: list[Any] = [
        TextDelta(text="a\ud83d"),
        ReasoningDelta(text="\ude00x"),
        TextDelta(text="\ude00b"),
        TextDelta(text="\udcff\ud83d"),
    ]

    async def answer(request: ModelRequest) -> AsyncGenerator[Any, None]:
        for piece in pieces:
            yield piece
        yield ModelOutput(parts=(Text("hi"),), model="m")

    agent = Agent("a", model=Rude(answer))
    seen = [item async for item in runtime.stream(agent, "go", session="s") if isinstance(item, TextDelta | ReasoningDelta)]
    assert [(type(item), item.text, item.index) for item in seen] == [
        (TextDelta, "a", 0),
        (ReasoningDelta, "�x", 1),
        (TextDelta, "😀b", 2),
        (TextDelta, "�", 3),
    ]


async def test_a_long_name_of_a_model_is_cut_and_can_be_stored(runtime: Runtime) -> None:
    output = ModelOutput(parts=(Text("hi"),), model="\udcff" + "m" * 900)
    ended = (await receipts(runtime, Agent("a", model=cast("Any", Rude(yielding(output))))))[0]
    assert (ended.status, ended.model) == ("succeeded", "�" + "m" * 199)


def made(**fields: Any) -> ModelOutput:
    return ModelOutput(**{"parts": (Text("hi"),), **fields})


@pytest.mark.parametrize(
    "output",
    [
        made(usage=Usage(input_tokens=cast("Any", 1.5))),
        made(usage=Usage(input_tokens=True)),
        made(usage=Usage(output_tokens=-1)),
        made(usage=Usage(output_tokens=2**53)),
        made(usage={"input_tokens": 1}),
        made(model=None),
        made(model=5),
        made(finish="weird"),
        made(finish=[]),
        made(parts=None),
        made(parts=(Text(cast("Any", 7)),)),
        made(parts=(Text("\udcff"),)),
        made(parts=("hi",)),
        made(parts=(ToolCall(cast("Any", 5), {}, "c"),)),
        made(parts=(ToolCall("use", {}, cast("Any", 5)),)),
        made(parts=(ToolCall("\udcff", {}, "c"),)),
        made(parts=(ToolCall("use", {1: 2}, "c"),)),
    ],
)
async def test_an_answer_of_wrong_types_never_reaches_the_journal(runtime: Runtime, output: ModelOutput) -> None:
    _, failure = await model_failure(runtime, yielding(output))
    assert failure.code == InvalidModelOutput.code


@pytest.mark.parametrize("more", [made(), TextDelta(text="more")])
async def test_nothing_comes_after_an_answer(runtime: Runtime, more: Any) -> None:
    _, failure = await model_failure(runtime, yielding(made(), more))
    assert failure.code == InvalidModelOutput.code


async def test_a_model_that_cancels_itself_is_tried_again_as_often_as_one_that_fails(runtime: Runtime) -> None:
    model = Rude(raising(asyncio.CancelledError()))
    ended = await receipts(runtime, Agent("a", model=cast("Any", model)))
    assert {(item.status, item.failure.code, item.failure.retryable) for item in ended if item.failure} == {
        ("failed", "model_cancelled_itself", True)
    }
    assert 1 < model.calls == len(ended) < 20


@pytest.mark.parametrize("manner", ["raises", "hangs", "ignores"])
async def test_a_stream_that_does_not_close_hides_no_outcome(runtime: Runtime, manner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perform, "CLOSE_SECONDS", 0.01)
    leave = asyncio.Event()

    class Stream:
        def __init__(self) -> None:
            self.items = [made()]

        def __aiter__(self) -> Stream:
            return self

        async def __anext__(self) -> Any:
            if not self.items:
                raise StopAsyncIteration
            return self.items.pop()

        async def aclose(self) -> None:
            if manner == "raises":
                raise OSError("gone")
            while not leave.is_set():
                try:
                    await leave.wait()
                except asyncio.CancelledError:
                    if manner == "hangs":
                        raise

    ended = await receipts(runtime, Agent("a", model=cast("Any", Rude(lambda request: Stream()))))
    assert ended[0].status == "succeeded"
    leave.set()


@pytest.mark.parametrize("kind", [Anthropic, OpenAIResponses])
def test_a_check_asks_the_client_that_a_call_would_use(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = kind("m")
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(perdure.MissingKey, match=model._key_variables[0]):
        model.check()
    monkeypatch.setenv(model._key_variables[0], "sk-test")
    model.check()


def test_a_key_that_only_the_package_finds_is_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        api_key = auth_token = None
        credentials = "from a profile"

    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setattr("anthropic.AsyncAnthropic", lambda **options: Client())
    Anthropic("m").check()


# ---- what goes wrong here ----------------------------------------------------------------------------------------------------------


def working(arguments: Any) -> tuple[Work, asyncio.Event]:
    async def late_arguments(item: Operation) -> Any:
        raise arguments

    woken = asyncio.Event()
    performer = Performer(
        session_id="s",
        store_id="t",
        secret=b"k" * 32,
        clock=VirtualClock(auto=True),
        deltas=lambda _: None,
        late=lambda *_: None,
        fetch=cast("Any", None),
    )
    agent = Agent("a", model=FunctionModel(lambda request: "hi"), tools=[failing(ToolError("no"))])
    work = Work(
        agent,
        cast("Any", None),
        performer,
        cast("Any", SimpleNamespace(arguments=late_arguments)),
        judge=cast("Any", None),
        prices=lambda _: None,
        wake=woken.set,
        keep=lambda _: None,
        late=lambda *_: None,
        archived=cast("Any", None),
    )
    return work, woken


def operation(effect: Any = "external", status: Any = "started", kind: Any = "tool") -> Operation:
    plan = Plan(kind=kind, name="use", call="c", effect=effect)
    return Operation(id="t1.1.1", plan=plan, status=status, attempt=1)


async def one(work: Work, woken: asyncio.Event, item: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.runtime.work.due", lambda checkpoint: [item])
    work.start(cast("Any", None), 1)
    await asyncio.wait_for(woken.wait(), 5)
    assert not work.running


@pytest.mark.spec("B-A-038", "B-B-039", "C-T3-001")
async def test_an_error_of_the_store_is_no_outcome_of_a_call_and_is_known_by_its_type_and_not_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = StoreBroken("gone")
    work, woken = working(error)
    await one(work, woken, operation(), monkeypatch)
    assert work.error is error
    assert work.reports == []
    work, woken = working(RuntimeError(str(error)))
    await one(work, woken, operation(), monkeypatch)
    assert (work.error, len(work.reports)) == (None, 1)


@pytest.mark.parametrize("error", [ValueError("odd"), Unspeakable(), GeneratorExit(), asyncio.CancelledError(), SystemExit(1)])
@pytest.mark.parametrize(
    ("item", "status"),
    [
        (operation(), "uncertain"),
        (operation("idempotent"), "failed"),
        (operation(kind="model"), "failed"),
        (operation(status="unknown"), "unknown"),
    ],
)
async def test_what_nobody_expected_has_an_outcome(
    error: BaseException, item: Operation, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, woken = working(error)
    await one(work, woken, item, monkeypatch)
    ((report, _),) = work.reports
    assert (report.outcome if isinstance(report, Reconciled) else cast("Any", report).status) == status
    assert work.error is None


# ---- time --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("moved", "slept"), [(-3_600, 150.0), (0, 150.0), (3_600, 60.0)])
async def test_a_wall_clock_that_is_moved_delays_nothing(moved: int, slept: float, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, wall = 0.0, 1_000_000.0
    clock = SystemClock(wall=lambda: round(wall * 1e9), monotonic=lambda: round(passed * 1e9))

    async def sleep(seconds: float) -> None:
        nonlocal passed, wall
        wall += seconds + (moved if passed == 0 else 0)
        passed += seconds

    until = clock.now() + 150_000
    monkeypatch.setattr("perdure.runtime.clock.asyncio.sleep", sleep)
    await clock.sleep_until(until)
    assert passed == pytest.approx(slept)
