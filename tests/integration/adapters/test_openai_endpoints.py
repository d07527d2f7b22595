"""What is particular to OpenAI's two protocols, through the real package."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.errors import ProviderRefused, ProviderUnavailable, RateLimited, StreamCut
from perdure.core.messages import Message, Private, Reasoning, Text, ToolCall, ToolCallResponse
from perdure.core.usage import Usage
from perdure.models import remote
from perdure.models.base import ModelOutput, ModelRequest
from perdure.models.openai import OpenAIChat, OpenAIResponses
from perdure.models.remote import RemoteModel
from perdure.models.resolve import resolve
from perdure.models.scripted import Reply
from perdure.testing.wire import Cut, FailInStream, Failure, Hang, WireServer


def a_request(*later: Message) -> ModelRequest:
    return ModelRequest(instructions="", messages=[Message(role="user", parts=(Text(content="hello"),)), *later])


async def ask(model: RemoteModel, request: ModelRequest | None = None) -> ModelOutput:
    try:
        *_, output = [item async for item in model.stream(request or a_request())]
    finally:
        await model.aclose()
    assert isinstance(output, ModelOutput)
    return output


def responses(server: WireServer, model: str = "gpt-test", **options: Any) -> RemoteModel:
    return OpenAIResponses(model, api_key="key", base_url=server.openai_url, **options)


def chat(server: WireServer, **options: Any) -> RemoteModel:
    return OpenAIChat("chat-test", api_key="key", base_url=server.openai_url, **options)


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])
async def test_encrypted_reasoning_returns_to_its_own_group_and_to_nobody_else(streaming: bool) -> None:
    thoughtful = Reply(tool_calls=[ToolCall("look", {}, id="call_a")], reasoning="hm", private="gAAAA-sealed")
    async with WireServer([thoughtful, "mine", "sibling", "stranger"]) as server:
        first = await ask(responses(server, streaming=streaming))
        result = ToolCallResponse(id="call_a", name="look", response="snow")
        request = a_request(Message(role="assistant", parts=first.parts), Message(role="tool", parts=(result,)))
        await ask(responses(server, streaming=streaming), request)
        await ask(responses(server, "gpt-other", group="openai:gpt-test"), request)
        await ask(responses(server, "gpt-other"), request)
        bodies = [received.body for received in server.requests]

    sealed = {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gAAAA-sealed",
    }
    assert first.parts == (Reasoning(content="hm"), Private(group="openai:gpt-test", data=sealed), ToolCall("look", {}, id="call_a"))
    assert bodies[0]["store"] is False
    assert bodies[0]["include"] == ["reasoning.encrypted_content"]
    for same_group in bodies[1:3]:
        assert [item.get("type") for item in same_group["input"]] == [None, "reasoning", "function_call", "function_call_output"]
        assert same_group["input"][1] == sealed
    assert [item.get("type") for item in bodies[3]["input"]] == [None, "function_call", "function_call_output"]
    assert "sealed" not in str(bodies[3])


@pytest.mark.parametrize("make", [responses, chat])
async def test_an_empty_account_is_not_a_rate_limit(make: Any) -> None:
    async with WireServer([Failure(429, code="insufficient_quota", retry_after="1")]) as server:
        with pytest.raises(ProviderRefused, match="no quota left") as caught:
            await ask(make(server))
    assert not caught.value.retryable


@pytest.mark.parametrize("bare", [True, False], ids=["error", "response.failed"])
@pytest.mark.parametrize(
    ("code", "kind"), [("server_error", ProviderUnavailable), ("rate_limit_exceeded", RateLimited), ("invalid_prompt", ProviderRefused)]
)
async def test_errors_inside_a_response_stream_are_told_apart(bare: bool, code: str, kind: type[Exception]) -> None:
    async with WireServer([FailInStream("hello", code=code, bare=bare)]) as server:
        with pytest.raises(kind, match="told to fail"):
            await ask(responses(server))


async def test_a_response_that_failed_as_a_whole_is_an_error() -> None:
    async with WireServer([FailInStream("hello")]) as server:
        with pytest.raises(ProviderUnavailable, match="told to fail"):
            await ask(responses(server, streaming=False))


@pytest.mark.parametrize(("code", "kind"), [("502", ProviderUnavailable), ("", ProviderUnavailable), ("bad_thing", ProviderRefused)])
async def test_errors_inside_a_chat_stream_are_told_apart(code: str, kind: type[Exception]) -> None:
    async with WireServer([FailInStream("hello", code=code, after=2)]) as server:
        with pytest.raises(kind, match="told to fail"):
            await ask(chat(server))


async def test_a_chat_asks_for_its_usage_unless_told_not_to() -> None:
    counted = Reply("hi", usage=Usage(input_tokens=3, output_tokens=1))
    async with WireServer([counted, counted]) as server:
        asked = await ask(chat(server))
        silent = await ask(chat(server, include_usage=False))
        bodies = [received.body for received in server.requests]
    assert bodies[0]["stream_options"] == {"include_usage": True}
    assert asked.usage == Usage(input_tokens=3, output_tokens=1)
    assert "stream_options" not in bodies[1]
    assert silent.usage is None


async def test_a_chat_that_loses_only_its_usage_is_not_asked_again() -> None:
    counted = Reply("hi", usage=Usage(input_tokens=3, output_tokens=1))
    async with WireServer([Cut(counted, after=4)]) as server:
        output = await ask(chat(server))
    assert (output.parts, output.usage) == ((Text(content="hi"),), None)


async def test_an_answer_that_is_whole_does_not_wait_for_an_endless_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GRACE", 0.01)
    async with WireServer([Hang("hi", after=4)]) as server:
        output = await ask(chat(server))
        await server.requests[0].over()
        assert server.requests[0].disconnected
    assert output.parts == (Text(content="hi"),)


async def test_a_chat_without_an_end_is_cut() -> None:
    async with WireServer([Cut("hi", after=3)]) as server:
        with pytest.raises(StreamCut):
            await ask(chat(server))


async def test_reasoning_content_goes_back_with_its_calls_and_to_its_own_group_only() -> None:
    thoughtful = Reply(tool_calls=[ToolCall("look", {}, id="call_a")], reasoning="hm")
    async with WireServer([thoughtful, "mine", "stranger"]) as server:
        first = await ask(chat(server))
        result = ToolCallResponse(id="call_a", name="look", response="snow")
        request = a_request(Message(role="assistant", parts=first.parts), Message(role="tool", parts=(result,)))
        await ask(chat(server), request)
        await ask(chat(server, group="another"), request)
        mine, stranger = (received.body["messages"][1] for received in server.requests[1:])
    assert mine["reasoning_content"] == "hm"
    assert "reasoning_content" not in stranger


async def test_the_address_in_the_environment_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer(["one", "two"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        for name in ("openai:gpt-test", "openai-chat:chat-test"):
            model = resolve(name)
            assert isinstance(model, RemoteModel)
            await ask(model)
        assert [received.path for received in server.requests] == ["/v1/responses", "/v1/chat/completions"]
        assert [received.body["model"] for received in server.requests] == ["gpt-test", "chat-test"]


async def test_what_is_rendered_has_the_form_that_the_package_declares() -> None:
    """The package's own reader of our server's answers finds every field in its place."""
    import openai

    reply = Reply(
        "hi",
        tool_calls=[ToolCall("look", {"a": 1}, id="call_a")],
        reasoning="hm",
        private="s",
        usage=Usage(input_tokens=3, output_tokens=1),
    )
    async with WireServer(lambda _: reply) as server, openai.AsyncOpenAI(api_key="key", base_url=server.openai_url) as client:
        response = await client.responses.create(model="m", input="hello")
        completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
        async with client.responses.stream(model="m", input="hello") as stream:
            streamed = await stream.get_final_response()
    assert response.output_text == streamed.output_text == "hi"
    assert [item.type for item in response.output] == [item.type for item in streamed.output] == ["reasoning", "message", "function_call"]
    assert completion.choices[0].message.content == "hi"
    assert completion.choices[0].finish_reason == "tool_calls"
