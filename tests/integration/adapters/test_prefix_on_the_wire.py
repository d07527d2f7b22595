"""The bytes that a provider is sent: between two changes of the epoch they only grow at the end, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Compaction, PrefixChanged, Reply, ToolCall, Usage, tool
from perdure.models.anthropic import Anthropic
from perdure.models.openai import OpenAIChat, OpenAIResponses
from perdure.models.remote import RemoteModel
from perdure.testing.wire import Failure, Received, WireServer

KEY = "sk-secret-0123456789"


def responses(server: WireServer, **options: Any) -> RemoteModel:
    return OpenAIResponses("gpt-test", api_key=KEY, base_url=server.openai_url, **options)


def chat(server: WireServer, **options: Any) -> RemoteModel:
    return OpenAIChat("chat-test", api_key=KEY, base_url=server.openai_url, **options)


def messages(server: WireServer, **options: Any) -> RemoteModel:
    return Anthropic("claude-test", api_key=KEY, base_url=server.anthropic_url, **options)


Make = Callable[..., RemoteModel]
every_adapter = pytest.mark.parametrize("make", [responses, chat, messages])


@tool(effect="pure")
async def fetch(page: int) -> str:
    """Fetch a page."""
    return f"{page:06d}" * 5_000


def said(request: Received) -> list[bytes]:
    """What a request says, message by message or item by item, in its own bytes; what stands around it comes first.

    Anthropic's API has one message for all that one side says in a row, so there it is said block by block.
    """
    body = dict(request.body)
    items = body.pop("input", None) or body.pop("messages")
    around = json.dumps(body).encode()
    pieces: list[Any] = []
    for item in items:
        content = item.get("content") if request.path.endswith("/v1/messages") else None
        pieces += [item] if content is None else [[item["role"], block] for block in content]
    return [around, *(json.dumps(piece).encode() for piece in pieces)]


def writes_notes(request: Received) -> bool:
    tools = request.body.get("tools") or ()
    return any("save_notes" in json.dumps(offered) for offered in tools)


@every_adapter
async def test_what_was_sent_before_is_sent_again_unchanged_until_the_epoch_changes(make: Make, tmp_path: Path) -> None:
    """Over turns, tools, archived results, notes, restarts and a compaction."""
    usage = Usage(input_tokens=10, output_tokens=5)
    answers = 0

    def play(request: Received) -> Reply:
        nonlocal answers
        if writes_notes(request):
            return Reply(tool_calls=[ToolCall("save_notes", {"notes": "what matters"}, "n1")], usage=usage)
        answers += 1
        if answers % 3 == 1:
            return Reply("Let me look. " + "word " * 200, tool_calls=[ToolCall("fetch", {"page": answers}, f"c{answers}")], usage=usage)
        return Reply("word " * 400, usage=usage)

    async with WireServer(play) as server:
        for number in range(5):
            # Every turn in a process of its own.
            agent = Agent(
                "helper", instructions="Be kind.", model=make(server, window=100_000), tools=[fetch], compaction=Compaction(threshold=4_000)
            )
            async with perdure.open(str(tmp_path / "agents.db")) as runtime:
                await runtime.run(agent, f"question {number}", session="s", submission=f"m-{number}")
                await runtime.sessions.note("s", f"note {number}")
                entries = await runtime.sessions.entries("s")
                await agent.model.aclose()  # type: ignore[union-attr]
        changed = [entry for entry in entries if isinstance(entry, PrefixChanged)]
        sent = [said(request) for request in server.requests if not writes_notes(request)]
        wrote = [index for index, request in enumerate(server.requests) if writes_notes(request)]
    assert len(changed) == len(wrote) >= 1
    grew, began = 0, 0
    for earlier, later in pairwise(sent):
        if later[: len(earlier)] == earlier:
            grew += len(later) > len(earlier)
        else:
            # Only behind notes: then everything but what stands around is new.
            assert later[0] == earlier[0]
            assert any(b"what matters" in piece for piece in later[1:3])
            began += 1
    assert began == len(changed)
    assert grew == len(sent) - 1 - began
    assert any(b"are left out here" in piece for piece in sent[1])


@every_adapter
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])
async def test_a_request_that_is_too_long_is_compacted_and_sent_again(make: Make, streaming: bool, tmp_path: Path) -> None:
    words = {
        responses: Failure(400, "Your input exceeds the context window of this model.", "context_length_exceeded"),
        chat: Failure(400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", "400"),
        messages: Failure(400, "prompt is too long: 208310 tokens > 200000 maximum", "invalid_request_error"),
    }
    long = 0

    def play(request: Received) -> Reply | Failure:
        nonlocal long
        if writes_notes(request):
            return Reply(tool_calls=[ToolCall("save_notes", {"notes": "what matters"}, "n1")])
        if len(json.dumps(request.body)) > 12_000:
            long += 1
            return words[make]
        return Reply("word " * 400)

    async with WireServer(play) as server:
        agent = Agent("helper", model=make(server, streaming=streaming))
        async with perdure.open(str(tmp_path / "agents.db")) as runtime:
            for number in range(7):
                assert (await runtime.run(agent, f"question {number}", session="s", submission=f"m-{number}")).ok
            assert (await runtime.sessions.checkpoint("s")).compactions == long > 0
            failed = await runtime.run(agent.replace(compaction=None), "x" * 14_000, session="t")
            assert (failed.status, failed.failure.code if failed.failure else "") == ("failed", "context_too_long")
            await agent.model.aclose()  # type: ignore[union-attr]
