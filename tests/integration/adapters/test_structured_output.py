"""Schemas of answers on the wire, through the real packages: each provider's own way, streamed and whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

import perdure
from perdure import Agent
from perdure.models.anthropic import Anthropic
from perdure.models.openai import OpenAIChat, OpenAIResponses
from perdure.models.remote import RemoteModel
from perdure.models.scripted import Reply
from perdure.testing.wire import Scenario, WireServer

KEY = "sk-secret-0123456789"
Make = Callable[..., RemoteModel]


class Line(BaseModel):
    """One line of an order."""

    article: str = Field(min_length=1)
    pieces: int = Field(ge=1, le=99)
    kind: Literal["new", "used"] = "new"


class Order(BaseModel):
    lines: list[Line]
    note: str | None = None


ANSWER = '{"lines": [{"article": "nail", "pieces": 5}]}'
LINE = {
    "type": "object",
    "title": "Line",
    "description": "One line of an order.",
    "additionalProperties": False,
}


def responses(server: WireServer, **options: Any) -> RemoteModel:
    return OpenAIResponses("gpt-test", api_key=KEY, base_url=server.openai_url, **options)


def chat(server: WireServer, **options: Any) -> RemoteModel:
    return OpenAIChat("chat-test", api_key=KEY, base_url=server.openai_url, **options)


def messages(server: WireServer, **options: Any) -> RemoteModel:
    return Anthropic("claude-test", api_key=KEY, base_url=server.anthropic_url, **options)


@asynccontextmanager
async def asking(make: Make, *script: Scenario, **options: Any) -> AsyncIterator[tuple[WireServer, perdure.Runtime, RemoteModel]]:
    async with WireServer(script) as server, perdure.open("memory://") as runtime:
        model = make(server, **options)
        try:
            yield server, runtime, model
        finally:
            await model.aclose()


every_adapter = pytest.mark.parametrize("make", [responses, chat, messages])
streamed_and_whole = pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])


def schema_in(body: dict[str, Any]) -> dict[str, Any]:
    """What the request says of its answer, wherever the provider has it."""
    if "text" in body:
        return dict(body["text"]["format"])
    if "response_format" in body:
        return {"type": body["response_format"]["type"], **body["response_format"]["json_schema"]}
    return dict(body["output_config"]["format"])


def instructions_in(body: dict[str, Any]) -> str:
    if "system" in body:
        return "".join(block["text"] for block in body["system"])
    return str(body.get("instructions") or body["messages"][0]["content"])


@every_adapter
@streamed_and_whole
async def test_an_answer_is_asked_for_by_its_schema_and_a_correction_by_the_same_without_tools(make: Make, streaming: bool) -> None:
    @perdure.tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "nothing"

    async with asking(make, Reply("five nails"), Reply(ANSWER), streaming=streaming) as (server, runtime, model):
        agent = Agent("a", instructions="Be brief.", model=model, tools=[look], output_type=Order)
        result = await runtime.run(agent, "Five nails, please.")
        first, second = (received.body for received in server.requests)

    assert result.output == Order(lines=[Line(article="nail", pieces=5)])
    assert schema_in(first) == schema_in(second)
    assert schema_in(first)["type"] == "json_schema"
    assert ("tools" in first, "tools" in second) == (True, False)
    assert first.get("stream", False) is second.get("stream", False) is streaming
    assert instructions_in(first) == instructions_in(second) == "Be brief."
    said = str(second.get("input") or second["messages"])
    assert "five nails" in said
    assert "it is no JSON" in said


async def test_openai_enforces_what_it_can_and_the_rest_stands_in_words() -> None:
    for make in (responses, chat):
        async with asking(make, Reply(ANSWER)) as (server, runtime, model):
            await runtime.run(Agent("a", model=model, output_type=Order), "?")
            sent = schema_in(server.requests[0].body)
        assert (sent["name"], sent["strict"]) == ("Order", True)
        assert sent["schema"]["required"] == ["lines", "note"]
        line = sent["schema"]["$defs"]["Line"]
        assert {name: line[name] for name in LINE} == LINE
        assert line["required"] == ["article", "pieces", "kind"]
        assert line["properties"]["pieces"] == {"type": "integer", "minimum": 1, "maximum": 99}
        assert line["properties"]["article"] == {"type": "string", "description": "(minLength: 1)"}
        assert "default" not in line["properties"]["kind"]


async def test_anthropic_enforces_what_it_can_and_the_rest_stands_in_words() -> None:
    async with asking(messages, Reply(ANSWER)) as (server, runtime, model):
        settings = perdure.ModelSettings(reasoning_effort="low")
        await runtime.run(Agent("a", model=model, output_type=Order, settings=settings), "?")
        config = server.requests[0].body["output_config"]
    assert config["effort"] == "low"
    schema = config["format"]["schema"]
    assert schema["required"] == ["lines"]
    line = schema["$defs"]["Line"]
    assert {name: line[name] for name in LINE} == LINE
    assert line["required"] == ["article", "pieces"]
    assert line["properties"]["pieces"] == {"type": "integer", "description": "(maximum: 99, minimum: 1)"}


@every_adapter
async def test_an_answer_that_is_no_object_stands_in_one(make: Make) -> None:
    async with asking(make, Reply('{"value": [1, 2]}')) as (server, runtime, model):
        result = await runtime.run(Agent("a", model=model, output_type=list[int]), "?")
        schema = schema_in(server.requests[0].body)["schema"]
    assert result.output == [1, 2]
    assert (schema["type"], [*schema["properties"]]) == ("object", ["value"])


@every_adapter
async def test_an_endpoint_that_takes_no_schemas_is_told_it_in_words(make: Make) -> None:
    async with asking(make, Reply(ANSWER), structured=False) as (server, runtime, model):
        result = await runtime.run(Agent("a", instructions="Be brief.", model=model, output_type=Order), "?")
        body = server.requests[0].body
    assert result.ok
    assert not {"text", "response_format", "output_config"} & set(body)
    assert instructions_in(body).startswith("Be brief.\n\nAnswer with one JSON value and nothing else")
    assert '"pieces"' in instructions_in(body)


@every_adapter
async def test_an_open_object_is_enforced_by_nobody(make: Make) -> None:
    async with asking(make, Reply('{"a": 1}')) as (server, runtime, model):
        result = await runtime.run(Agent("a", model=model, output_type=dict[str, int]), "?")
        body = server.requests[0].body
    assert result.output == {"a": 1}
    if make is messages:
        assert "output_config" not in body
        assert '"additionalProperties"' in instructions_in(body)
    else:
        assert schema_in(body)["strict"] is False


@every_adapter
async def test_a_request_without_an_output_type_is_what_it_was(make: Make) -> None:
    async with asking(make, Reply("hello")) as (server, runtime, model):
        await runtime.run(Agent("a", model=model), "?")
        body = server.requests[0].body
    assert not {"text", "response_format", "output_config"} & set(body)
