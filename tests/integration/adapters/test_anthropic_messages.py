"""What is particular to Anthropic's Messages API, through the real package."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.errors import AuthenticationFailed, ProviderRefused, ProviderUnavailable, RateLimited
from perdure.core.messages import Message, Private, Reasoning, Text, ToolCall, ToolCallResponse
from perdure.core.usage import Usage
from perdure.models.anthropic import Anthropic
from perdure.models.base import ModelOutput, ModelRequest
from perdure.models.remote import RemoteModel
from perdure.models.resolve import resolve
from perdure.models.scripted import Reply
from perdure.testing.wire import Cut, FailInStream, Failure, WireServer


def a_request(*later: Message) -> ModelRequest:
    return ModelRequest(instructions="Be brief.", messages=[Message(role="user", parts=(Text(content="hello"),)), *later])


async def ask(model: RemoteModel, request: ModelRequest | None = None) -> ModelOutput:
    try:
        *_, output = [item async for item in model.stream(request or a_request())]
    finally:
        await model.aclose()
    assert isinstance(output, ModelOutput)
    return output


def claude(server: WireServer, model: str = "claude-test", **options: Any) -> Anthropic:
    return Anthropic(model, api_key="key", base_url=server.anthropic_url, **options)


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("reasoning", "block"),
    [
        ("hm", {"type": "thinking", "thinking": "hm", "signature": "sealed"}),
        ("", {"type": "redacted_thinking", "data": "sealed"}),
    ],
    ids=["readable", "redacted"],
)
async def test_thinking_returns_unchanged_before_its_calls_and_to_its_own_group_only(
    streaming: bool, reasoning: str, block: dict[str, Any]
) -> None:
    call = ToolCall("look", {"where": "north"}, id="toolu_a")
    async with WireServer([Reply("Looking.", tool_calls=[call], reasoning=reasoning, private="sealed"), "mine", "stranger"]) as server:
        first = await ask(claude(server, streaming=streaming))
        result = ToolCallResponse(id="toolu_a", name="look", response="snow", is_error=True)
        request = a_request(Message(role="assistant", parts=first.parts), Message(role="tool", parts=(result,)))
        await ask(claude(server, streaming=streaming), request)
        await ask(claude(server, "claude-other"), request)
        mine, stranger = (received.body["messages"] for received in server.requests[1:])

    readable = (Reasoning(content=reasoning),) if reasoning else ()
    assert first.parts == (*readable, Private(group="anthropic:claude-test", data=block), Text(content="Looking."), call)
    said = [
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "toolu_a", "name": "look", "input": {"where": "north"}},
    ]
    assert mine[1] == {"role": "assistant", "content": [block, *said]}
    assert stranger[1] == {"role": "assistant", "content": said}
    answer = {"type": "tool_result", "tool_use_id": "toolu_a", "content": "snow", "is_error": True}
    assert mine[2] == stranger[2] == {"role": "user", "content": [answer]}


async def test_arguments_that_are_no_json_go_back_as_such() -> None:
    async with WireServer([Reply(tool_calls=[ToolCall("look", '{"broken', id="toolu_a")]), "ok"]) as server:
        first = await ask(claude(server))
        result = ToolCallResponse(id="toolu_a", name="look", response="arguments are no JSON", is_error=True)
        await ask(claude(server), a_request(Message(role="assistant", parts=first.parts), Message(role="tool", parts=(result,))))
        block = server.requests[1].body["messages"][1]["content"][0]
    assert block["input"] == {"invalid_json": '{"broken'}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("overloaded_error", ProviderUnavailable),
        ("api_error", ProviderUnavailable),
        ("rate_limit_error", RateLimited),
        ("invalid_request_error", ProviderRefused),
        ("authentication_error", AuthenticationFailed),
    ],
)
async def test_errors_inside_a_stream_are_told_apart(code: str, kind: type[Exception]) -> None:
    async with WireServer([FailInStream("hello", code=code)]) as server:
        with pytest.raises(kind, match="told to fail"):
            await ask(claude(server))


async def test_an_overloaded_provider_is_unavailable() -> None:
    async with WireServer([Failure(529, message="Overloaded", retry_after="4")]) as server:
        with pytest.raises(ProviderUnavailable, match="Overloaded") as caught:
            await ask(claude(server))
    assert caught.value.retry_after == 4
    assert caught.value.facts["error_code"] == "overloaded_error"


async def test_a_stream_that_lost_only_its_last_word_is_whole() -> None:
    usage = Usage(input_tokens=5, output_tokens=2)
    async with WireServer([Cut(Reply("hi", usage=usage), after=7)]) as server:
        output = await ask(claude(server))
    assert (output.parts, output.usage, output.finish) == ((Text(content="hi"),), usage, "stop")


async def test_cache_marks_and_limits_reach_the_provider() -> None:
    async with WireServer(["hi"]) as server:
        await ask(claude(server, cache=True, max_tokens=77, thinking={"type": "adaptive"}))
        body = server.requests[0].body
    assert body["max_tokens"] == 77
    assert body["thinking"] == {"type": "adaptive"}
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert server.requests[0].headers["anthropic-version"]


async def test_the_name_and_the_environment_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer(["hi"]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        model = resolve("anthropic:claude-test")
        assert isinstance(model, RemoteModel)
        await ask(model)
        assert (server.requests[0].path, server.requests[0].body["model"]) == ("/v1/messages", "claude-test")


async def test_what_the_server_says_has_the_form_that_the_package_declares() -> None:
    import anthropic

    usage = Usage(input_tokens=9, output_tokens=2, cache_read_tokens=4, cache_write_tokens=0)
    reply = Reply("hi", tool_calls=[ToolCall("look", {"a": 1}, id="toolu_a")], reasoning="hm", private="s", usage=usage)
    async with WireServer(lambda _: reply) as server, anthropic.AsyncAnthropic(api_key="key", base_url=server.anthropic_url) as client:
        asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
    for field in ("type", "text", "thinking", "signature", "name", "input"):
        assert [getattr(block, field, None) for block in whole.content] == [getattr(block, field, None) for block in streamed.content]
    assert (whole.stop_reason, whole.usage) == (streamed.stop_reason, streamed.usage)
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    assert (whole.usage.input_tokens, whole.usage.cache_read_input_tokens) == (5, 4)
