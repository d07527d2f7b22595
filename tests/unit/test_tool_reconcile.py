from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from perdure.tools import Done, NotDone, ReconcileContext, Tool, ToolContext, Unknown, tool

CONTEXT = ToolContext(session_id="s", turn="t2", operation="t2.0.1", attempt=2, call="c1", idempotency_key="pd_1")


def with_reconcile(reconcile: Callable[..., Any] | None) -> Tool:
    @tool(reconcile=reconcile)
    def refund(ctx: ToolContext, order: str, cents: int = 5) -> None: ...

    return refund


async def ask(reconcile: Callable[..., Any] | None) -> Done | NotDone | Unknown:
    made = with_reconcile(reconcile)
    return await made.reconcile_call(CONTEXT, made.check({"order": "A"}))


async def test_a_tool_without_reconcile_knows_nothing() -> None:
    assert await ask(None) == Unknown()


@pytest.mark.parametrize("answer", [Done("paid"), Done(), NotDone(), Unknown()])
async def test_the_three_answers_are_passed_on_sync_and_async(answer: Any) -> None:
    async def later(ctx: ToolContext) -> Any:
        return answer

    assert await ask(later) == answer
    assert await ask(lambda ctx: answer) == answer


async def test_it_gets_the_context_and_the_parameters_that_it_names() -> None:
    async def annotated(ctx: ReconcileContext, cents: int, order: str) -> Done:
        return Done([ctx.idempotency_key, order, cents])

    assert await ask(annotated) == Done(["pd_1", "A", 5])
    assert await ask(lambda anything, order: Done([anything.operation, order])) == Done(["t2.0.1", "A"])
    assert await ask(lambda order: Done([order])) == Done(["A"])
    assert await ask(lambda: Done("nothing")) == Done("nothing")
    assert await ask(lambda ctx, **rest: Done(rest)) == Done({"order": "A", "cents": 5})
    assert await ask(lambda ctx, order, extra=7: Done(extra)) == Done(7)


async def test_an_object_with_an_async_call_can_reconcile() -> None:
    class Look:
        async def __call__(self, ctx: ToolContext, order: str) -> Done:
            return Done(order)

    assert await ask(Look()) == Done("A")


async def test_its_result_becomes_plain_json_data() -> None:
    assert await ask(lambda ctx: Done((1, 2))) == Done([1, 2])


def leave(ctx: ToolContext) -> None:
    sys.exit(1)


async def leave_later(ctx: ToolContext) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "reconcile",
    [
        lambda ctx: None,
        lambda ctx: "done",
        lambda ctx: Done,
        lambda ctx: Done(object()),
        lambda ctx: 1 / 0,
        leave,
        leave_later,
    ],
)
async def test_one_that_fails_or_makes_no_sense_knows_nothing_and_is_logged(reconcile: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "perdure.tools"):
        assert await ask(reconcile) == Unknown()

    assert "the reconcile of the tool refund failed; the outcome of t2.0.1 stays unknown" in caplog.text


async def test_cancelling_the_question_is_no_answer() -> None:
    began = asyncio.Event()

    async def long(ctx: ToolContext) -> None:
        began.set()
        await asyncio.Event().wait()

    asking = asyncio.create_task(ask(long))
    await began.wait()
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
