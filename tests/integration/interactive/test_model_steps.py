"""Model calls: what is tried again and when, what an attempt leaves, and what is no answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    FunctionModel,
    MessageAdded,
    ModelOutput,
    ModelRequest,
    ModelSettings,
    OperationEnded,
    OperationStarted,
    RateLimited,
    Reply,
    StreamCut,
    Text,
    ToolCall,
    ToolCallResponse,
    Usage,
)
from perdure.core.messages import Blob, StoredPart
from perdure.testing import find_problems

from .acting import Place, counting, transcript


@pytest.mark.spec("S2-172")
async def test_what_may_be_tried_again_is_tried_up_to_the_limit_as_attempts_of_one_step(memory: Place) -> None:
    model, asked = counting(*(RateLimited("slow down") for _ in range(4)), Reply("done"))
    async with memory.process() as process:
        assert (await process.run(Agent("a", model=model), "go", session="s")).output == "done"
        started = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationStarted)]
        assert [(entry.operation, entry.attempt) for entry in started] == [("t2.0.0", number) for number in range(1, 6)]
        assert [request.step for request in asked] == [0] * 5
        assert len({entry.request.digest for entry in started if entry.request is not None}) == 1
    model, asked = counting(RateLimited("slow down"))
    async with memory.process() as process:
        assert (await process.run(Agent("a", model=model), "go", session="t")).status == "failed"
        assert len(asked) == 15
        few = Agent("a", model=model, settings=ModelSettings(attempts=3))
        assert (await process.run(few, "go", session="u")).status == "failed"
        assert len(asked) == 15 + 3


@pytest.mark.spec("S2-174")
async def test_the_text_of_an_attempt_that_failed_is_kept_as_unfinished_and_never_sent_to_a_model(memory: Place) -> None:
    asked: list[Any] = []

    async def flow(request: ModelRequest) -> AsyncIterator[str | Reply]:
        asked.append([message.text for message in request.messages])
        if len(asked) == 1:
            yield "half a sen"
            raise StreamCut("the line is dead")
        yield Reply("whole")

    agent = Agent("a", model=FunctionModel(flow))
    async with memory.process() as process:
        assert (await process.run(agent, "go", session="s")).output == "whole"
        await process.run(agent, "more", session="s")
        receipts = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded)]
        assert [(entry.status, entry.partial) for entry in receipts] == [("failed", "half a sen"), ("succeeded", ""), ("succeeded", "")]
        assert await transcript(process) == [("user", "go"), ("assistant", "whole"), ("user", "more"), ("assistant", "whole")]
    assert asked == [["go"], ["go"], ["go", "whole", "more"]]


@pytest.mark.spec("S2-176")
@pytest.mark.parametrize(
    ("hint", "waits"),
    [
        (None, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, *[60_000] * 5]),
        (7.5, [7500] * 14),
        (0.0, [0] * 14),
        (3600.0, [300_000] * 14),
    ],
)
async def test_waits_double_follow_the_servers_hint_and_never_pass_the_ceiling(memory: Place, hint: float | None, waits: list[int]) -> None:
    model, _ = counting(RateLimited("slow down", retry_after=hint))
    async with memory.process() as process:
        await process.run(Agent("a", model=model), "go", session="s")
        entries = await process.sessions.entries("s")
        started = [entry.at for entry in entries if isinstance(entry, OperationStarted)]
        failed = [entry.at for entry in entries if isinstance(entry, OperationEnded)]
        assert [begun - ended for begun, ended in zip(started[1:], failed[:-1], strict=True)] == waits


CALL = ToolCall("work", {}, "same")


@pytest.mark.spec("S2-170")
@pytest.mark.parametrize(
    "parts",
    [
        (Text("x"), ToolCallResponse(id="1", name="work", response="forged")),
        (Text("x"), StoredPart(digest="0" * 64, size=1)),
        (Text("x"), Blob(mime_type="image/png", digest="0" * 64, size=1)),
        (CALL, CALL),
        (ToolCall("work", {}, ""),),
        (ToolCall("work", {"x": float("nan")}, "1"),),
        (),
        (Text(""),),
    ],
    ids=["response", "stored", "blob", "same ids", "no id", "nan", "nothing", "empty"],
)
async def test_an_answer_with_what_no_model_may_say_is_refused_and_nothing_of_it_is_kept(memory: Place, parts: Any) -> None:
    ran: list[str] = []

    @perdure.tool
    async def work() -> str:
        """Work."""
        ran.append("work")
        return "worked"

    class Odd:
        name = group = "odd"

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelOutput]:
            yield ModelOutput(parts=parts, usage=Usage(input_tokens=3, output_tokens=1))

    async with memory.process() as process:
        result = await process.run(Agent("a", model=Odd(), tools=[work]), "go", session="s")
        assert result.failure is not None
        assert (result.status, result.failure.code) == ("failed", "invalid_model_output")
        entries = await process.sessions.entries("s")
        assert [entry.role for entry in entries if isinstance(entry, MessageAdded)] == ["user"]
        assert all(not entry.parts for entry in entries if isinstance(entry, OperationEnded))
        assert await find_problems(process.store, "s") == []
    assert not ran


@pytest.mark.spec("S2-170")
@pytest.mark.parametrize("usage", [Usage(input_tokens=-1, output_tokens=1), Usage(input_tokens=1, output_tokens=-5)])
async def test_an_answer_that_claims_to_have_used_less_than_nothing_is_refused(memory: Place, usage: Usage) -> None:
    model, _ = counting(Reply("done", usage=usage))
    async with memory.process() as process:
        result = await process.run(Agent("a", model=model), "go", session="s")
        assert result.failure is not None
        assert result.failure.code == "invalid_model_output"
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.usage.input_tokens, checkpoint.usage.output_tokens) == (0, 0)
