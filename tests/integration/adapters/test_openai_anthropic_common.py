"""What every adapter must do, through the real packages, against the wire server: each case streamed and whole."""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

import perdure
from perdure import Agent, tool
from perdure.core.errors import (
    AuthenticationFailed,
    InvalidModelOutput,
    MissingExtra,
    MissingKey,
    ProviderError,
    ProviderRefused,
    ProviderUnavailable,
    RateLimited,
    StreamCut,
    UsageError,
)
from perdure.core.messages import Message, Reasoning, Text, ToolCall, ToolCallResponse
from perdure.core.usage import Usage
from perdure.models.anthropic import Anthropic
from perdure.models.base import Model, ModelOutput, ModelRequest, ModelSettings, ReasoningDelta, TextDelta, ToolSpec
from perdure.models.openai import OpenAIChat, OpenAIResponses
from perdure.models.remote import RemoteModel
from perdure.models.scripted import Reply
from perdure.testing.checks import find_problems
from perdure.testing.wire import Cut, FailInStream, Failure, Hang, Malformed, Scenario, WireServer

KEY = "sk-secret-0123456789"
Make = Callable[..., RemoteModel]


def responses(server: WireServer, **options: Any) -> RemoteModel:
    return OpenAIResponses("gpt-test", api_key=KEY, base_url=server.openai_url, **options)


def chat(server: WireServer, **options: Any) -> RemoteModel:
    return OpenAIChat("chat-test", api_key=KEY, base_url=server.openai_url, **options)


def messages(server: WireServer, **options: Any) -> RemoteModel:
    return Anthropic("claude-test", api_key=KEY, base_url=server.anthropic_url, **options)


KINDS: dict[Make, Callable[..., RemoteModel]] = {responses: OpenAIResponses, chat: OpenAIChat, messages: Anthropic}

every_adapter = pytest.mark.parametrize("make", [responses, chat, messages])
streamed_and_whole = pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])


def a_request(*later: Message, **fields: Any) -> ModelRequest:
    return ModelRequest(instructions="Be brief.", messages=[Message(role="user", parts=(Text(content="hello"),)), *later], **fields)


@asynccontextmanager
async def talking(make: Make, *script: Scenario, **options: Any) -> AsyncIterator[tuple[WireServer, RemoteModel]]:
    async with WireServer(script) as server:
        model = make(server, **options)
        try:
            yield server, model
        finally:
            await model.aclose()


async def ask(model: Model, request: ModelRequest | None = None) -> tuple[list[Any], ModelOutput]:
    items = [item async for item in model.stream(request or a_request())]
    assert isinstance(items[-1], ModelOutput)
    assert not any(isinstance(item, ModelOutput) for item in items[:-1])
    return items[:-1], items[-1]


@every_adapter
@streamed_and_whole
async def test_text_arrives_in_deltas_and_whole(make: Make, streaming: bool) -> None:
    async with talking(make, Reply("Hello, world 🌍"), streaming=streaming) as (server, model):
        deltas, output = await ask(model)

    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello, world 🌍"
    assert len(deltas) == (2 if streaming else 1)
    assert output == ModelOutput(parts=(Text(content="Hello, world 🌍"),), finish="stop", usage=None, model=model.model)
    assert server.requests[0].streamed is streaming


@every_adapter
@streamed_and_whole
async def test_parallel_calls_keep_their_order_ids_and_arguments(make: Make, streaming: bool) -> None:
    calls = [
        ToolCall("look", {"where": "north", "depth": 2}, id="call_a"),
        ToolCall("look", {"where": "süd", "nested": {"list": [1, None, 2.5]}}, id="call_b"),
        ToolCall("now", {}, id="call_c"),
    ]
    tools = (ToolSpec(name="look", description="Look.", parameters={"type": "object"}),)
    async with talking(make, Reply("Looking.", tool_calls=calls), streaming=streaming) as (server, model):
        _, output = await ask(model, a_request(tools=tools))

    assert output.parts == (Text(content="Looking."), *calls)
    assert output.finish == "tool_calls"
    assert "look" in str(server.requests[0].body["tools"])


@every_adapter
async def test_arguments_that_are_no_object_are_kept_as_they_came(make: Make) -> None:
    broken = [
        ToolCall("look", '{"where": "nor', id="a"),
        ToolCall("look", "[1]", id="b"),
        ToolCall("look", '{"n": 9007199254740993}', id="c"),
    ]
    async with talking(make, Reply(tool_calls=broken)) as (_, model):
        _, output = await ask(model)
    assert output.parts == tuple(broken)


@every_adapter
@streamed_and_whole
async def test_usage_is_counted_with_cache_and_reasoning(make: Make, streaming: bool) -> None:
    usage = Usage(input_tokens=120, output_tokens=50, cache_read_tokens=80, cache_write_tokens=10, reasoning_tokens=30)
    async with talking(make, Reply("hi", usage=usage), streaming=streaming) as (_, model):
        _, output = await ask(model)
    assert output.usage == usage


@every_adapter
@streamed_and_whole
async def test_numbers_that_nobody_reported_are_unknown(make: Make, streaming: bool) -> None:
    usage = Usage(input_tokens=12, output_tokens=3)
    async with talking(make, Reply("hi", usage=usage), "hi", streaming=streaming) as (_, model):
        _, some = await ask(model)
        _, none = await ask(model)
    assert some.usage == usage
    assert none.usage is None


@every_adapter
@streamed_and_whole
async def test_readable_reasoning_is_shown_and_kept(make: Make, streaming: bool) -> None:
    async with talking(make, Reply("yes", reasoning="let me think"), streaming=streaming) as (_, model):
        deltas, output = await ask(model)
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "let me think"
    assert Reasoning(content="let me think") in output.parts


@every_adapter
@streamed_and_whole
async def test_a_cut_by_length_is_said(make: Make, streaming: bool) -> None:
    async with talking(make, Reply("so far", finish="length"), streaming=streaming) as (server, model):
        _, output = await ask(model, a_request(settings=ModelSettings(max_output_tokens=7)))
    assert (output.finish, output.parts) == ("length", (Text(content="so far"),))
    assert 7 in server.requests[0].body.values()


@every_adapter
@streamed_and_whole
@pytest.mark.parametrize("arguments", [{"order": "A-1", "cents": 10}, '{"order": "A-1", "cents": 10', ""], ids=["mended", "cut", "none"])
@pytest.mark.parametrize(("finish", "words"), [("length", "cut off by its length limit"), ("refusal", "the answer was a refusal")])
async def test_a_call_of_an_answer_that_is_not_whole_or_not_meant_never_runs(
    make: Make, streaming: bool, arguments: Any, finish: Any, words: str
) -> None:
    paid: list[int] = []

    @tool(effect="external")
    async def refund(order: str = "all", cents: int = 0) -> str:
        """Refund."""
        paid.append(cents)
        return "paid"

    cut = Reply("I would", tool_calls=[ToolCall("refund", arguments, id="call_a")], finish=finish)
    async with talking(make, cut, "sorry", streaming=streaming) as (server, model), perdure.open("memory://") as runtime:
        agent = Agent("a", model=model, tools=[refund])
        result = await runtime.run(agent, "Refund 1000 cents", session="s")
        await runtime.run(agent, "and now?", session="s") if finish == "refusal" else None
        [told] = [part for message in await runtime.sessions.history("s") for part in message.parts if isinstance(part, ToolCallResponse)]
        assert await find_problems(runtime.store, "s") == []

    assert (paid, result.status, result.text) == ([], "completed", "sorry" if finish == "length" else "I would")
    assert (told.id, told.is_error) == ("call_a", True)
    assert words in told.response
    assert words in str(server.requests[1].body), "the model reads it with its next request"


@every_adapter
@streamed_and_whole
async def test_a_refusal_is_said_and_its_words_are_kept(make: Make, streaming: bool) -> None:
    async with talking(make, Reply("I won't.", finish="refusal"), Reply(finish="refusal"), streaming=streaming) as (_, model):
        deltas, spoken = await ask(model)
        _, silent = await ask(model)
    assert (spoken.finish, spoken.parts) == ("refusal", (Text(content="I won't."),))
    assert "".join(delta.text for delta in deltas) == "I won't."
    assert (silent.finish, silent.parts) == ("refusal", ())


IN_AN_HOUR = format_datetime(datetime.now(UTC) + timedelta(seconds=3600), usegmt=True)
HINTS: list[tuple[Failure, float | None, float | None]] = [
    (Failure(429, retry_after="2"), 2, 2),
    (Failure(429, retry_after="9", headers={"retry-after-ms": "1500"}), 1.5, 1.5),
    (Failure(429, retry_after=IN_AN_HOUR), 3000, 3600),
    (Failure(429), None, None),
    (Failure(429, retry_after="soon"), None, None),
]


@every_adapter
async def test_a_rate_limit_says_when_to_come_back(make: Make) -> None:
    async with talking(make, *(failure for failure, _, _ in HINTS)) as (server, model):
        for _, least, most in HINTS:
            with pytest.raises(RateLimited) as caught:
                await ask(model)
            assert caught.value.retryable
            hint = caught.value.retry_after
            assert hint is None if least is None or most is None else hint is not None and least <= hint <= most
    assert len(server.requests) == len(HINTS), "nothing is tried twice"


STATUSES: dict[int, type[ProviderError]] = {
    400: ProviderRefused,
    401: AuthenticationFailed,
    402: ProviderRefused,
    403: AuthenticationFailed,
    404: ProviderRefused,
    408: ProviderUnavailable,
    409: ProviderUnavailable,
    422: ProviderRefused,
    429: RateLimited,
    500: ProviderUnavailable,
    503: ProviderUnavailable,
    529: ProviderUnavailable,
}


@every_adapter
@streamed_and_whole
async def test_a_status_becomes_the_error_that_says_what_to_do(make: Make, streaming: bool) -> None:
    script = [Failure(status, message=f"because {status}", retry_after="3") for status in STATUSES]
    async with talking(make, *script, streaming=streaming) as (server, model):
        for status, kind in STATUSES.items():
            with pytest.raises(kind, match=f"because {status}") as caught:
                await ask(model)
            assert type(caught.value) is kind
            assert caught.value.retryable is (kind in (ProviderUnavailable, RateLimited))
            assert caught.value.retry_after == (3 if caught.value.retryable else None)
            assert caught.value.facts["status"] == status
    assert len(server.requests) == len(STATUSES), "nothing is tried twice"


@every_adapter
async def test_an_error_never_repeats_the_key(make: Make) -> None:
    said = f"Incorrect API key provided: {KEY}. Also sk-other*******1234, header Bearer abcdefgh"
    async with talking(make, Failure(401, message=said)) as (_, model):
        with pytest.raises(AuthenticationFailed) as caught:
            await ask(model)
    printed = "".join(traceback.format_exception(caught.value))
    for secret in (KEY, "sk-other", "abcdefgh"):
        assert secret not in repr(caught.value.facts)
        assert secret not in printed
    assert "Incorrect API key provided" in str(caught.value)


@every_adapter
async def test_nobody_at_the_address_is_unavailable(make: Make) -> None:
    async with WireServer() as server:
        model = make(server)
    with pytest.raises(ProviderUnavailable, match="can't be reached"):
        await ask(model)
    await model.aclose()


@every_adapter
async def test_a_timeout_is_unavailable(make: Make) -> None:
    async with talking(make, Hang("hi", after=0), timeout=0.05) as (_, model):
        with pytest.raises(ProviderUnavailable, match="timed out"):
            await ask(model)


@every_adapter
async def test_a_stream_that_is_cut_says_so_after_what_it_brought(make: Make) -> None:
    async with talking(make, Cut(Reply("a long answer", reasoning="hm"), after=5)) as (_, model):
        stream = model.stream(a_request())
        assert isinstance(await anext(stream), TextDelta | ReasoningDelta)
        with pytest.raises(StreamCut) as caught:
            [item async for item in stream]
    assert caught.value.retryable


@every_adapter
async def test_a_stream_that_ends_too_early_but_politely_is_cut_too(make: Make) -> None:
    async with WireServer(lambda received: Cut("hi", after=2)) as server:
        model = make(server)
        with pytest.raises(StreamCut):
            await ask(model)
        await model.aclose()


@every_adapter
async def test_an_answer_that_is_cut_before_it_arrived_is_unavailable(make: Make) -> None:
    async with talking(make, Cut("hi"), streaming=False) as (_, model):
        with pytest.raises(ProviderUnavailable):
            await ask(model)


@every_adapter
@streamed_and_whole
async def test_malformed_json_is_invalid_output(make: Make, streaming: bool) -> None:
    async with talking(make, Malformed("hello"), streaming=streaming) as (_, model):
        with pytest.raises(InvalidModelOutput) as caught:
            await ask(model)
    assert caught.value.retryable


@every_adapter
async def test_an_error_inside_the_stream_is_told_from_a_cut(make: Make) -> None:
    async with talking(make, FailInStream("hello", after=3, message="overloaded, sorry")) as (_, model):
        with pytest.raises(ProviderUnavailable, match="overloaded, sorry"):
            await ask(model)


@every_adapter
@streamed_and_whole
async def test_cancelling_closes_the_connection(make: Make, streaming: bool) -> None:
    async with talking(make, Hang("hello there", after=4), streaming=streaming) as (server, model):
        task = asyncio.create_task(ask(model))
        received = await server.arrived(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(received.over(), 5)
        assert received.disconnected


@every_adapter
async def test_cancelling_in_the_middle_of_the_text_closes_the_connection(make: Make) -> None:
    first = asyncio.Event()

    async def listen(model: Model) -> None:
        async for _ in model.stream(a_request()):
            first.set()

    async with talking(make, Hang("hello there", after=5)) as (server, model):
        task = asyncio.create_task(listen(model))
        await asyncio.wait_for(first.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.requests[0].over(), 5)
        assert server.requests[0].disconnected


@every_adapter
async def test_closing_the_iterator_closes_the_connection(make: Make) -> None:
    async with talking(make, Hang("hello there", after=5)) as (server, model):
        stream = model.stream(a_request())
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        await asyncio.wait_for(server.requests[0].over(), 5)
        assert server.requests[0].disconnected


@every_adapter
async def test_one_connection_serves_many_calls(make: Make) -> None:
    async with talking(make, "one", Failure(500), "two", "three") as (server, model):
        await ask(model)
        with pytest.raises(ProviderUnavailable):
            await ask(model)
        await ask(model)
        await ask(model)
    assert server.connections == 1


@every_adapter
async def test_a_conversation_with_tools_is_sent_back_whole(make: Make) -> None:
    call = ToolCall("look", {"where": "north"}, id="call_a")
    async with talking(make, Reply("Looking.", tool_calls=[call], reasoning="hm", private="seal"), "Snow.") as (server, model):
        _, first = await ask(model)
        result = ToolCallResponse(id="call_a", name="look", response={"sees": "snow"})
        _, second = await ask(model, a_request(Message(role="assistant", parts=first.parts), Message(role="tool", parts=(result,))))
    assert second.parts == (Text(content="Snow."),)
    sent = str(server.requests[1].body)
    assert '{"sees":"snow"}' in sent
    assert sent.index("Looking.") < sent.index("call_a") < sent.index("sees")


@every_adapter
async def test_what_cannot_be_sent_is_refused_before_anything_is_sent(make: Make) -> None:
    async with talking(make) as (server, model):
        with pytest.raises(UsageError, match="nothing to send"):
            await ask(model, ModelRequest(instructions="", messages=[Message(role="user", parts=(Text(content=""),))]))
    assert server.requests == []


@every_adapter
async def test_the_headers_that_carry_keys_are_not_recorded(make: Make) -> None:
    async with talking(make, "hi") as (server, model):
        await ask(model)
    assert KEY not in str(server.requests[0].headers)
    assert server.requests[0].headers["content-type"] == "application/json"


@every_adapter
async def test_a_client_of_ones_own_is_used_and_left_open(make: Make) -> None:
    async with WireServer(["hi"]) as server:
        lender = make(server)
        _, client = lender._connect()
        borrower = KINDS[make]("other", client=client)
        _, output = await ask(borrower)
        await borrower.aclose()
        assert not client.is_closed()
        await lender.aclose()
    assert output.model == "other"


@every_adapter
async def test_a_closed_model_opens_again_at_the_next_call(make: Make) -> None:
    async with talking(make, "one", "two") as (server, model):
        await ask(model)
        await model.aclose()
        await model.aclose()
        await ask(model)
    assert server.connections == 2


@every_adapter
def test_a_model_outlives_the_event_loop_of_its_first_call(make: Make) -> None:
    model: RemoteModel | None = None

    async def once() -> ModelOutput:
        nonlocal model
        async with WireServer(["hi"]) as server:
            model = model or make(server)
            model._base_url = make(server)._base_url
            _, output = await ask(model)
            await model.aclose()
            return output

    assert asyncio.run(once()) == asyncio.run(once())
    gc.collect()


@every_adapter
async def test_a_missing_key_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    async with WireServer() as server:
        model = make(server)
        model._api_key = None
        variable = model._key_variables[0]
        with pytest.raises(MissingKey, match=variable):
            await ask(model)


@every_adapter
async def test_a_missing_package_says_what_to_install(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer() as server:
        model = make(server)
        monkeypatch.setitem(__import__("sys").modules, model._package, None)
        with pytest.raises(MissingExtra, match=rf"pip install '\.\[{model._package}\]' in a clone"):
            await ask(model)


@every_adapter
def test_a_client_excludes_what_it_brings_itself(make: Make) -> None:
    with pytest.raises(UsageError, match="a client brings its own key"):
        KINDS[make]("x", client=object(), api_key="y")
