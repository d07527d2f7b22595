from __future__ import annotations

import asyncio
import contextvars
import datetime
import enum
import gc
import io
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field

from perdure import Identity
from perdure.tools import ResultInvalid, Tool, ToolCancelled, ToolContext, ToolError, ToolFault, schema, tool

CONTEXT = ToolContext(
    session_id="s",
    turn="t2",
    operation="t2.0.1",
    attempt=1,
    call="c1",
    idempotency_key="pd_1",
    agent="a",
    identity=Identity(owner="acme"),
)

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Colour(enum.Enum):
    RED = "red"


class Model(BaseModel):
    day: datetime.date


class Struct(msgspec.Struct):
    count: int


class Typed(TypedDict):
    price: Decimal


@dataclass
class Data:
    colour: Colour


async def run(made: Tool, **arguments: Any) -> Any:
    return await made.call(CONTEXT, made.check(arguments))


def of(function: Callable[..., Any]) -> Tool:
    return tool(name="made")(function)


async def test_an_async_tool_gets_its_context_and_its_values() -> None:
    @tool
    async def refund(ctx: ToolContext, order: str, cents: int = 5) -> dict[str, Any]:
        return {"order": order, "cents": cents, "key": ctx.idempotency_key, "thread": threading.current_thread() is threading.main_thread()}

    assert await run(refund, order="A") == {"order": "A", "cents": 5, "key": "pd_1", "thread": True}


async def test_a_sync_tool_runs_in_a_thread_that_holds_nothing_up() -> None:
    @tool
    def refund(order: str, ctx: str = "mine") -> list[Any]:
        thread = threading.current_thread()
        return [order, ctx, thread is threading.main_thread(), thread.daemon]

    assert await run(refund, order="A") == ["A", "mine", False, True]


async def test_context_variables_reach_the_tool_and_stay_there() -> None:
    @tool
    def in_thread() -> str:
        seen = who.get()
        who.set("the thread")
        return seen

    @tool
    async def in_task() -> str:
        seen = who.get()
        who.set("the task")
        return seen

    who.set("the caller")

    assert [await run(in_thread), await run(in_task), who.get()] == ["the caller", "the caller", "the caller"]


async def test_many_blocked_threads_keep_no_other_call_waiting() -> None:
    release = threading.Event()

    @tool
    def block() -> None:
        release.wait(30)

    @tool
    def quick() -> str:
        return "quick"

    blocked = [block.start(CONTEXT, block.check({})) for _ in range(40)]
    assert await run(quick) == "quick"
    assert not any(running.done for running in blocked)

    release.set()
    assert await asyncio.gather(*(running.wait() for running in blocked)) == [None] * 40


def test_a_blocked_thread_does_not_keep_the_process_alive() -> None:
    program = """
import asyncio, threading
from perdure.tools import ToolContext, tool
began = threading.Event()
@tool
def block() -> None:
    "Block."
    began.set()
    threading.Event().wait()
async def main():
    context = ToolContext(session_id="s", turn="t", operation="o", attempt=1, call="c", idempotency_key="k")
    block.start(context, block.check({}))
    while not began.is_set():
        await asyncio.sleep(0)
asyncio.run(main())
print("over")
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "over\n", "")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        ("text", "text"),
        ({"a": [1, 2.5, True, None]}, {"a": [1, 2.5, True, None]}),
        ((1, 2), [1, 2]),
        ({3}, [3]),
        ({1: "one"}, {"1": "one"}),
        (Model(day=datetime.date(2026, 2, 3)), {"day": "2026-02-03"}),
        (Data(Colour.RED), {"colour": "red"}),
        (Typed(price=Decimal("1.50")), {"price": "1.50"}),
        (Struct(3), {"count": 3}),
        ([Struct(3)], [{"count": 3}]),
        (datetime.datetime(2026, 2, 3, tzinfo=datetime.UTC), "2026-02-03T00:00:00Z"),
        (b"text", "text"),
        (Path("/tmp/x"), "/tmp/x"),
    ],
)
async def test_a_result_becomes_plain_json_data(value: Any, plain: Any) -> None:
    assert await run(of(lambda: value)) == plain


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "object has no JSON form"),
        ({"x": [object()]}, "dict has no JSON form"),
        (b"\xff", "bytes has no JSON form"),
        ({"a": [float("nan")]}, r"result\.a\[0\] is nan"),
        (2**60, "integer beyond"),
        ("\ud800", "not valid Unicode"),
    ],
)
async def test_a_result_that_json_cannot_hold_is_refused_and_says_that_the_tool_ran(value: Any, words: str) -> None:
    for made in (of(lambda: value), of(_later(value))):
        with pytest.raises(ResultInvalid, match=f"the tool ran, but its result can't be kept: .*{words}"):
            await run(made)


def _later(value: Any) -> Callable[[], Any]:
    async def later() -> Any:
        return value

    return later


def _now(value: Any) -> Callable[[], Any]:
    return lambda: value


async def test_a_result_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(ResultInvalid):
        await run(of(lambda: endless))


@dataclass
class Wrapped:
    value: Any


class Wide(BaseModel):
    value: Any
    hidden: Any = Field(default=None, exclude=True)


def _yields() -> Any:
    yield 1


async def _yields_later() -> Any:
    yield 1


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"x": [value]}, Wrapped, lambda value: [Wide(value=value)]])
@pytest.mark.parametrize("make", [_yields, _yields_later, lambda: io.BytesIO(b"x"), lambda: map(str, [1])])
async def test_what_yields_is_no_result_and_is_not_read(make: Callable[[], Any], wrap: Callable[[Any], Any]) -> None:
    for is_async in (False, True):
        value = make()
        wrapped = wrap(value)
        with pytest.raises(ResultInvalid, match=r"the tool ran, but its result can't be kept: .*no"):
            await run(of(_later(wrapped) if is_async else _now(wrapped)))
        if hasattr(value, "read"):
            assert value.read() == b"x"


async def test_what_a_model_does_not_show_is_not_looked_at() -> None:
    assert await run(of(lambda: Wide(value=1, hidden=_yields()))) == {"value": 1}


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", "1": "b"},
        {"x": [{True: 1, "true": 2}]},
        {None: 1, "None": 2},
        {datetime.date(2026, 2, 3): 1, "2026-02-03": 2},
        {(1, 2): 1, "1,2": 2},
        Wrapped({1: "a", "1": "b"}),
        Wide(value={1: "a", "1": "b"}),
    ],
)
async def test_keys_that_would_be_one_in_json_are_refused_and_none_is_lost(value: Any) -> None:
    for made in (of(lambda: value), of(_later(value))):
        with pytest.raises(ResultInvalid, match=r"two keys that are both '(1|true|None|2026-02-03|1,2)'"):
            await run(made)


async def test_keys_that_json_can_tell_apart_are_kept() -> None:
    assert await run(of(lambda: {1: "a", "2": "b", datetime.date(2026, 2, 3): None})) == {"1": "a", "2": "b", "2026-02-03": None}


async def test_a_small_thing_that_stands_for_an_enormous_one_is_refused() -> None:
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(ResultInvalid, match=r"more than .* values"):
        await run(of(_later(value)))


@pytest.mark.parametrize("size", ["small", "large"])
async def test_a_large_result_of_an_async_tool_is_converted_beside_the_loop(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def plain(value: Any) -> Any:
        threads.append(threading.current_thread())
        return schema.plain(value)

    monkeypatch.setattr(sys.modules["perdure.tools.tool"], "kept", plain)
    value = ["x"] * (2_000 if size == "large" else 2)
    assert await run(of(_later(value))) == value
    assert (threads == [threading.current_thread()]) is (size == "small")


async def test_nothing_stops_the_conversion_of_a_result_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def plain(value: Any) -> Any:
        begun.set()
        go_on.wait()
        return schema.plain(value)

    monkeypatch.setattr(sys.modules["perdure.tools.tool"], "kept", plain)
    made = of(_later("x" * 100_000))
    running = made.start(CONTEXT, made.check({}))
    await asyncio.to_thread(begun.wait)
    running.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await running.wait() == "x" * 100_000


async def test_a_result_is_kept_also_where_no_thread_can_be_started_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert await run(of(_later("x" * 100_000))) == "x" * 100_000


async def test_an_async_function_that_returns_a_coroutine_is_told_so() -> None:
    with pytest.raises(ResultInvalid, match=r"the tool ran, .* await it"):
        await run(of(_later(_later(1)())))
    gc.collect()


async def test_a_sync_function_that_returns_a_coroutine_is_told_so() -> None:
    later = _later(1)

    def forgetful() -> Any:
        return later()

    with pytest.raises(ResultInvalid, match="async def"):
        await run(of(forgetful))
    gc.collect()


@pytest.mark.parametrize("error", [ToolError("no such order"), ValueError("bad"), TimeoutError("slow")])
async def test_what_a_tool_raises_is_what_the_caller_gets(error: Exception) -> None:
    for made in (of(_raises(error)), of(_raises_later(error))):
        with pytest.raises(type(error)) as raised:
            await run(made)
        assert raised.value is error


class OfItsOwn(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), OfItsOwn(), asyncio.CancelledError(), StopIteration(7)]
)
async def test_nothing_that_a_tool_raises_ends_the_process_or_passes_for_a_cancellation(error: BaseException) -> None:
    with pytest.raises(ToolFault, match=f"it raised {type(error).__name__}") as raised:
        await run(of(_raises(error)))
    assert raised.value.__cause__ is error

    # Python itself makes a RuntimeError of a StopIteration that leaves a coroutine.
    with pytest.raises(RuntimeError) as later:
        await run(of(_raises_later(error)))
    assert not isinstance(later.value, ToolCancelled)


class Speechless(BaseException):
    def __init__(self, says: BaseException) -> None:
        self.says = says

    def __str__(self) -> str:
        raise self.says


@pytest.mark.parametrize("says", [ValueError("no words"), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_is_raised_and_has_no_words_is_still_an_end(says: BaseException) -> None:
    for made in (of(_raises(Speechless(says))), of(_raises_later(Speechless(says)))):
        with pytest.raises(ToolFault, match=r"it raised Speechless: \(Speechless, which can't be put into words\)"):
            await asyncio.wait_for(run(made), 10)


async def test_sys_exit_in_a_tool_is_its_failure_and_nothing_more() -> None:
    def leave() -> None:
        sys.exit("over")

    async def leave_later() -> None:
        sys.exit("over")

    for function in (leave, leave_later):
        with pytest.raises(ToolFault, match="it raised SystemExit: over"):
            await run(tool(function))


def _raises(error: BaseException) -> Callable[[], Any]:
    def fail() -> None:
        raise error

    return fail


def _raises_later(error: BaseException) -> Callable[[], Any]:
    async def fail() -> None:
        raise error

    return fail


async def test_cancelling_the_call_of_an_async_tool_stops_it_before_the_caller_goes_on() -> None:
    began, steps = asyncio.Event(), []

    @tool
    async def long() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("tidied")

    call = asyncio.create_task(run(long))
    await began.wait()
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert steps == ["tidied"]


async def test_cancelling_the_call_of_a_sync_tool_leaves_its_thread_running() -> None:
    began, release, ended = asyncio.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    def long() -> None:
        loop.call_soon_threadsafe(began.set)
        release.wait(30)
        loop.call_soon_threadsafe(ended.set)

    call = asyncio.create_task(run(long))
    await began.wait()
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert not ended.is_set()
    release.set()
    await asyncio.wait_for(ended.wait(), 30)


async def test_the_late_end_of_a_sync_tool_is_heard_after_its_timeout() -> None:
    release = threading.Event()

    @tool
    def slow() -> str:
        release.wait(30)
        return "it was done after all"

    running = slow.start(CONTEXT, slow.check({}))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running.wait(), 0)
    running.cancel()
    late = running.late
    assert (running.done, late.done()) == (False, False)

    release.set()

    assert await asyncio.wait_for(late, 30) == "it was done after all"
    assert await running.wait() == "it was done after all"


async def test_cancelling_one_waiter_takes_the_end_from_no_other() -> None:
    release = threading.Event()

    @tool
    def slow() -> str:
        release.wait(30)
        return "ended"

    running = slow.start(CONTEXT, slow.check({}))
    running.late.cancel()
    release.set()

    assert await running.wait() == "ended"


async def test_a_late_failure_that_nobody_waits_for_is_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError

    made = tool(fail)
    running = made.start(CONTEXT, made.check({}))
    while not running.done:
        await asyncio.sleep(0)
    del running
    gc.collect()

    assert caplog.records == []


async def test_a_tool_that_was_asked_to_stop_and_did_says_so() -> None:
    began = asyncio.Event()

    @tool
    async def long() -> None:
        began.set()
        await asyncio.Event().wait()

    running = long.start(CONTEXT, long.check({}))
    await began.wait()
    running.cancel()

    with pytest.raises(ToolCancelled):
        await running.wait()


async def test_a_tool_that_is_cancelled_before_it_began_never_runs() -> None:
    ran = []

    @tool
    async def never() -> None:
        ran.append(1)

    running = never.start(CONTEXT, never.check({}))
    running.cancel()

    with pytest.raises(ToolCancelled):
        await running.wait()
    assert ran == []


async def test_a_tool_that_ends_well_in_spite_of_being_cancelled_has_a_result() -> None:
    began = asyncio.Event()

    @tool
    async def stubborn() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "paid already"
        return "never"

    running = stubborn.start(CONTEXT, stubborn.check({}))
    await began.wait()
    running.cancel()

    assert await running.wait() == "paid already"


async def test_a_started_tool_lives_on_when_its_handle_is_dropped() -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    door: list[weakref.ref[asyncio.Future[None]]] = []

    @tool
    async def alone() -> None:
        own = asyncio.get_running_loop().create_future()
        door.append(weakref.ref(own))
        began.set()
        await own
        ended.set()

    alone.start(CONTEXT, alone.check({}))
    await began.wait()
    gc.collect()

    own = door[0]()
    assert own is not None
    own.set_result(None)
    await ended.wait()


async def test_a_thread_that_cannot_be_started_is_a_certain_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @tool
    def nothing() -> None: ...

    monkeypatch.setattr(threading.Thread, "start", refuse)

    with pytest.raises(ToolError, match="was not started"):
        await run(nothing)


def test_an_end_after_its_loop_is_closed_is_logged_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    release, threads = threading.Event(), []

    @tool
    def slow() -> None:
        threads.append(threading.current_thread())
        release.wait(30)

    async def start() -> None:
        slow.start(CONTEXT, slow.check({}))
        while not threads:
            await asyncio.sleep(0)

    asyncio.run(start())
    with caplog.at_level(logging.WARNING, "perdure.tools"):
        release.set()
        threads[0].join(30)

    assert "slow ended after its event loop was closed" in caplog.text
