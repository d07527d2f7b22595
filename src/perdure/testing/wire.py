"""A server that speaks the providers' wire formats: real sockets, no provider.

It answers OpenAI's Responses and Chat Completions and Anthropic's Messages, streamed or whole as the request asks, from one script that
knows nothing of formats. It can also do what providers do on bad days: refuse, fail, stop in the middle, write nonsense, never end.

    async with WireServer([Reply("hello"), Failure(429, retry_after="2")]) as server:
        model = OpenAIResponses("some-model", base_url=server.openai_url, api_key="any")
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, TypeAlias

import msgspec

from ..core.errors import UsageError
from ..core.messages import ToolCall
from ..models.scripted import Reply

__all__ = ["Cut", "FailInStream", "Failure", "Hang", "Malformed", "Received", "Scenario", "WireServer"]

_KEY_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"})
_RESPONSES, _CHAT, _MESSAGES = "/v1/responses", "/v1/chat/completions", "/v1/messages"


class Failure(msgspec.Struct, frozen=True):
    """An HTTP error instead of an answer. ``code`` is OpenAI's error code or Anthropic's error type; ``headers`` are added."""

    status: int
    message: str = "the wire server was told to fail"
    code: str = ""
    retry_after: str = ""
    headers: dict[str, str] = {}


class Cut(msgspec.Struct, frozen=True):
    """The connection is closed after that many events of the stream; an answer that isn't streamed is closed half way."""

    reply: Reply | str
    after: int = 3


class Malformed(msgspec.Struct, frozen=True):
    """The event after that many, or the whole answer, is no JSON."""

    reply: Reply | str
    after: int = 3


class Hang(msgspec.Struct, frozen=True):
    """Nothing more comes after that many events, until the client gives up."""

    reply: Reply | str
    after: int = 3


class FailInStream(msgspec.Struct, frozen=True):
    """An error event after that many events. ``bare`` is the Responses API's ``error`` event instead of ``response.failed``."""

    reply: Reply | str
    code: str = ""
    message: str = "the wire server was told to fail"
    after: int = 3
    bare: bool = False


Scenario: TypeAlias = "Reply | str | Failure | Cut | Malformed | Hang | FailInStream"


class Received:
    """A request as it came: path, headers without keys, and the JSON body."""

    def __init__(self, path: str, headers: dict[str, str], body: Any) -> None:
        self.path = path
        self.headers = headers
        self.body = body
        self.disconnected = False
        self._over = asyncio.Event()

    @property
    def streamed(self) -> bool:
        """Whether the request asks for a stream."""
        return isinstance(self.body, dict) and self.body.get("stream") is True

    async def over(self) -> None:
        """Wait until the request was answered, or the client went away: then ``disconnected`` is True."""
        await self._over.wait()


class WireServer:
    """The server, at a free port of this machine while its ``async with`` lasts.

    ``script`` is one scenario per request, in the order in which requests come, or a function from `Received` to the scenario. A request
    beyond the script's end gets a 400 that says so. ``requests`` holds what was received. Leaving closes every connection.
    """

    def __init__(self, script: Iterable[Scenario] | Callable[[Received], Scenario] = ()) -> None:
        if isinstance(script, str):
            raise UsageError("a script is a list of scenarios", hint="put the text into a list")
        self._choose = script if callable(script) else None
        self._script: list[Scenario] = [] if callable(script) else list(script)
        self.requests: list[Received] = []
        self._arrival = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()
        self.connections = 0
        """How many connections were opened so far."""

    def play(self, *scenarios: Scenario) -> None:
        """Add to the script."""
        self._script.extend(scenarios)

    @property
    def url(self) -> str:
        """The address without a path. Raises `UsageError` when the server isn't running."""
        if self._server is None:
            raise UsageError("the wire server isn't running", hint="use it in an async with")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def openai_url(self) -> str:
        """The ``base_url`` for OpenAI's package."""
        return self.url + "/v1"

    @property
    def anthropic_url(self) -> str:
        """The ``base_url`` for Anthropic's package."""
        return self.url

    async def arrived(self, count: int) -> Received:
        """Wait until that many requests came, and return the last of them."""
        while len(self.requests) < count:
            self._arrival.clear()
            await self._arrival.wait()
        return self.requests[count - 1]

    async def __aenter__(self) -> WireServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server is not None:
            self._server.close()
            for task in tuple(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connections += 1
        try:
            while (received := await _read(reader)) is not None:
                self.requests.append(received)
                self._arrival.set()
                try:
                    again = await self._answer(received, reader, writer)
                except ConnectionError:
                    received.disconnected = True
                    break
                finally:
                    received._over.set()
                if not again:
                    break
        except asyncio.CancelledError:
            # The server is being closed; ending quietly is what the streams module expects of a handler.
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False if the connection is to be closed."""
        number = len(self.requests) - 1
        scenario: Scenario
        if self._choose is not None:
            scenario = self._choose(received)
        elif self._script:
            scenario = self._script.pop(0)
        else:
            scenario = Failure(400, message="the script of the wire server is at its end")
        if received.path not in (_RESPONSES, _CHAT, _MESSAGES):
            scenario = Failure(404, message=f"the wire server has no {received.path}")
        if isinstance(scenario, Failure):
            headers = dict(scenario.headers) | ({"retry-after": scenario.retry_after} if scenario.retry_after else {})
            await _send(writer, scenario.status, json.dumps(_error_body(received.path, scenario)).encode(), headers)
            return True
        reply = scenario if isinstance(scenario, Reply | str) else scenario.reply
        wire = _Wire(received, Reply(reply) if isinstance(reply, str) else reply, number)
        if received.streamed:
            return await _stream(wire, scenario, received, reader, writer)
        body = json.dumps(wire.whole(scenario)).encode()
        match scenario:
            case Hang():
                await _until_gone(received, reader)
                return False
            case Cut():
                await _send(writer, 200, body, {}, stop_at=len(body) // 2)
                return False
            case Malformed():
                body = body[: len(body) // 2]
        await _send(writer, 200, body, {})
        return True


async def _read(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
        data = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    path = head[0].split(" ")[1].partition("?")[0]
    kept = {name: value for name, value in headers.items() if name not in _KEY_HEADERS}
    return Received(path, kept, json.loads(data) if data else None)


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str], stop_at: int | None = None) -> None:
    lines = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    head = f"HTTP/1.1 {status} -\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    writer.write(head.encode("latin-1") + body[:stop_at])
    await writer.drain()


async def _stream(wire: _Wire, scenario: Scenario, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")
    frames = list(wire.frames())
    after = None if isinstance(scenario, Reply | str | Failure) else scenario.after
    for frame in frames[:after]:
        _chunk(writer, frame)
    await writer.drain()
    match scenario:
        case Cut():
            return False
        case Hang():
            await _until_gone(received, reader)
            return False
        case Malformed():
            # Half of the event: its JSON ends in the middle.
            frame = frames[min(scenario.after, len(frames) - 1)]
            _chunk(writer, frame.rstrip(b"\n")[:-3] + b"\n\n")
        case FailInStream():
            _chunk(writer, wire.failure(scenario))
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def _chunk(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")


async def _until_gone(received: Received, reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await reader.read()
    received.disconnected = True


def _error_body(path: str, failure: Failure) -> dict[str, Any]:
    if path == _MESSAGES:
        kind = failure.code or _ANTHROPIC_TYPES.get(failure.status, "api_error" if failure.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": failure.message}, "request_id": "req_wire"}
    code, kind = _OPENAI_CODES.get(failure.status, (None, "server_error" if failure.status >= 500 else "invalid_request_error"))
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": failure.code or code}}


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_CODES: dict[int, tuple[str | None, str]] = {
    401: ("invalid_api_key", "invalid_request_error"),
    429: ("rate_limit_exceeded", "requests"),
}


class _Wire:
    """One reply in the format of the request's path."""

    def __init__(self, received: Received, reply: Reply, number: int) -> None:
        self.path = received.path
        self.model = reply.model or str((received.body or {}).get("model", ""))
        self.with_usage = received.path != _CHAT or bool((received.body.get("stream_options") or {}).get("include_usage"))
        self.reply = reply
        self.number = number
        self.finish: Literal["stop", "tool_calls", "length", "refusal"] = reply.finish or ("tool_calls" if reply.tool_calls else "stop")

    def whole(self, scenario: Scenario) -> dict[str, Any]:
        """The body of an answer that isn't streamed."""
        match self.path:
            case "/v1/responses":
                if isinstance(scenario, FailInStream):
                    return self._response("failed", [], error={"code": scenario.code or "server_error", "message": scenario.message})
                return self._response(self._status(), [item for item, _ in self._items()], usage=self._responses_usage())
            case "/v1/chat/completions":
                choice = {"index": 0, "message": self._chat_message(), "finish_reason": self._chat_finish(), "logprobs": None}
                body = {"id": f"chatcmpl-{self.number}", "object": "chat.completion", "created": 0, "model": self.model}
                usage = self._chat_usage()
                return {**body, "choices": [choice]} | ({"usage": usage} if usage else {})
            case _:
                return self._anthropic_message([block for block, _ in self._blocks()], self._stop_reason(), self._anthropic_usage())

    def frames(self) -> Iterator[bytes]:
        """The events of a stream, each as it goes over the wire."""
        match self.path:
            case "/v1/responses":
                for number, event in enumerate(self._responses_events()):
                    yield _frame({**event, "sequence_number": number}, event["type"])
            case "/v1/chat/completions":
                for event in self._chat_events():
                    yield _frame(event)
                yield b"data: [DONE]\n\n"
            case _:
                for event in self._anthropic_events():
                    yield _frame(event, event["type"])

    def failure(self, scenario: FailInStream) -> bytes:
        """The event that says that the answer failed."""
        match self.path:
            case "/v1/responses" if scenario.bare:
                event = {"type": "error", "code": scenario.code or None, "message": scenario.message, "param": None, "sequence_number": 99}
                return _frame(event, "error")
            case "/v1/responses":
                response = self._response("failed", [], error={"code": scenario.code or "server_error", "message": scenario.message})
                return _frame({"type": "response.failed", "response": response, "sequence_number": 99}, "response.failed")
            case "/v1/chat/completions":
                kind = "invalid_request_error" if scenario.code and not scenario.code.isdecimal() else "server_error"
                return _frame({"error": {"message": scenario.message, "type": kind, "param": None, "code": scenario.code or None}})
            case _:
                error = {"type": scenario.code or "overloaded_error", "message": scenario.message}
                return _frame({"type": "error", "error": error, "request_id": "req_wire"}, "error")

    def _calls(self) -> Iterator[tuple[ToolCall, str]]:
        for index, call in enumerate(self.reply.tool_calls):
            text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            yield (call if call.id else msgspec.structs.replace(call, id=f"call_{self.number}_{index}")), text

    # -- OpenAI Responses

    def _status(self) -> str:
        return "incomplete" if self.finish == "length" or self._filtered() else "completed"

    def _filtered(self) -> bool:
        return self.finish == "refusal" and not self.reply.text

    def _response(self, status: str, output: list[Any], *, usage: Any = None, error: Any = None) -> dict[str, Any]:
        reason = None if status != "incomplete" else "content_filter" if self._filtered() else "max_output_tokens"
        return {
            "id": f"resp_{self.number}",
            "object": "response",
            "created_at": 0,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": None,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "store": False,
            "usage": usage,
            "metadata": {},
        }

    def _responses_usage(self) -> dict[str, Any] | None:
        usage = self.reply.usage
        if usage is None:
            return None
        return {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": _known({"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}),
            "output_tokens": usage.output_tokens,
            "output_tokens_details": _known({"reasoning_tokens": usage.reasoning_tokens}),
            "total_tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0),
        }

    def _items(self) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Every output item, with the events between its beginning and its end."""
        index = 0
        if self.reply.reasoning or self.reply.private is not None:
            item_id = f"rs_{self.number}"
            summary = [{"type": "summary_text", "text": self.reply.reasoning}] if self.reply.reasoning else []
            item: dict[str, Any] = {"id": item_id, "type": "reasoning", "summary": summary}
            if self.reply.private is not None:
                item["encrypted_content"] = str(self.reply.private)
            place: dict[str, Any] = {"item_id": item_id, "output_index": index, "summary_index": 0}
            events: list[dict[str, Any]] = []
            if summary:
                empty = {"type": "summary_text", "text": ""}
                events.append({"type": "response.reasoning_summary_part.added", **place, "part": empty})
                for piece in _pieces(self.reply.reasoning):
                    events.append({"type": "response.reasoning_summary_text.delta", **place, "delta": piece})
                events.append({"type": "response.reasoning_summary_text.done", **place, "text": self.reply.reasoning})
                events.append({"type": "response.reasoning_summary_part.done", **place, "part": summary[0]})
            yield item, events
            index += 1
        if self.reply.text:
            item_id = f"msg_{self.number}"
            kind, field = ("refusal", "refusal") if self.finish == "refusal" else ("output_text", "text")
            content: dict[str, Any] = {"type": kind, field: self.reply.text} | ({"annotations": []} if kind == "output_text" else {})
            place = {"item_id": item_id, "output_index": index, "content_index": 0}
            events = [{"type": "response.content_part.added", **place, "part": {**content, field: ""}}]
            events += [{"type": f"response.{kind}.delta", **place, "delta": piece} for piece in _pieces(self.reply.text)]
            events.append({"type": f"response.{kind}.done", **place, field: self.reply.text})
            events.append({"type": "response.content_part.done", **place, "part": content})
            status = "incomplete" if self.finish == "length" else "completed"
            yield {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": [content]}, events
            index += 1
        for call, arguments in self._calls():
            item_id = f"fc_{self.number}_{index}"
            place = {"item_id": item_id, "output_index": index}
            events = [{"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in _pieces(arguments)]
            events.append({"type": "response.function_call_arguments.done", **place, "arguments": arguments})
            item = {"id": item_id, "type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
            yield {**item, "status": "completed"}, events
            index += 1

    def _responses_events(self) -> Iterator[dict[str, Any]]:
        yield {"type": "response.created", "response": self._response("in_progress", [])}
        yield {"type": "response.in_progress", "response": self._response("in_progress", [])}
        output = []
        blanks: dict[str, dict[str, Any]] = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}
        for index, (item, events) in enumerate(self._items()):
            begun = item | blanks[item["type"]] | {"status": "in_progress"}
            yield {"type": "response.output_item.added", "output_index": index, "item": begun}
            yield from events
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
            output.append(item)
        status = self._status()
        yield {"type": f"response.{status}", "response": self._response(status, output, usage=self._responses_usage())}

    # -- OpenAI Chat Completions

    def _chat_finish(self) -> str:
        return {"refusal": "content_filter" if self._filtered() else "stop"}.get(self.finish, self.finish)

    def _chat_usage(self) -> dict[str, Any] | None:
        usage = self.reply.usage
        if usage is None:
            return None
        details = _known({"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens})
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0),
            "prompt_tokens_details": details,
            "completion_tokens_details": _known({"reasoning_tokens": usage.reasoning_tokens}),
        }

    def _chat_calls(self) -> list[dict[str, Any]]:
        return [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
            for call, arguments in self._calls()
        ]

    def _chat_message(self) -> dict[str, Any]:
        refused = self.finish == "refusal" and self.reply.text
        message: dict[str, Any] = {"role": "assistant", "content": None if refused else self.reply.text or None}
        message["refusal"] = self.reply.text if refused else None
        if self.reply.reasoning:
            message["reasoning_content"] = self.reply.reasoning
        if self.reply.tool_calls:
            message["tool_calls"] = self._chat_calls()
        return message

    def _chat_events(self) -> Iterator[dict[str, Any]]:
        base = {"id": f"chatcmpl-{self.number}", "object": "chat.completion.chunk", "created": 0, "model": self.model}
        if self.with_usage:
            base = {**base, "usage": None}

        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return {**base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

        yield chunk({"role": "assistant", "content": "", "refusal": None})
        for piece in _pieces(self.reply.reasoning):
            yield chunk({"reasoning_content": piece})
        for piece in _pieces(self.reply.text):
            yield chunk({"refusal" if self.finish == "refusal" else "content": piece})
        for index, call in enumerate(self._chat_calls()):
            first, *rest = list(_pieces(call["function"]["arguments"])) or [""]
            yield chunk({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]})
            for piece in (first, *rest):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, self._chat_finish())
        if self.with_usage and self.reply.usage is not None:
            yield {**base, "choices": [], "usage": self._chat_usage()}

    # -- Anthropic Messages

    def _stop_reason(self) -> str:
        return {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}[self.finish]

    def _anthropic_usage(self) -> dict[str, Any] | None:
        usage = self.reply.usage
        if usage is None:
            return None
        cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
        thought = usage.reasoning_tokens
        return _known(
            {
                "input_tokens": None if usage.input_tokens is None else usage.input_tokens - cached,
                "cache_creation_input_tokens": usage.cache_write_tokens,
                "cache_read_input_tokens": usage.cache_read_tokens,
                "output_tokens": usage.output_tokens,
                "output_tokens_details": None if thought is None else {"thinking_tokens": thought},
            }
        )

    def _anthropic_message(self, content: list[Any], stop_reason: str | None, usage: dict[str, Any] | None) -> dict[str, Any]:
        message = {"id": f"msg_{self.number}", "type": "message", "role": "assistant", "model": self.model, "content": content}
        return {**message, "stop_reason": stop_reason, "stop_sequence": None} | ({"usage": usage} if usage is not None else {})

    def _blocks(self) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Every content block, with the deltas that make it."""
        if self.reply.reasoning:
            signature = "" if self.reply.private is None else str(self.reply.private)
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(self.reply.reasoning)]
            deltas.append({"type": "signature_delta", "signature": signature})
            yield {"type": "thinking", "thinking": self.reply.reasoning, "signature": signature}, deltas
        elif self.reply.private is not None:
            yield {"type": "redacted_thinking", "data": str(self.reply.private)}, []
        if self.reply.text:
            yield {"type": "text", "text": self.reply.text}, [{"type": "text_delta", "text": piece} for piece in _pieces(self.reply.text)]
        for call, arguments in self._calls():
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(arguments))]
            block = {"type": "tool_use", "id": call.id, "name": call.name}
            yield {**block, "input": call.arguments if isinstance(call.arguments, dict) else {}}, deltas

    def _anthropic_events(self) -> Iterator[dict[str, Any]]:
        usage = self._anthropic_usage()
        first = None if usage is None else {**usage, "output_tokens": 1}
        yield {"type": "message_start", "message": self._anthropic_message([], None, first)}
        yield {"type": "ping"}
        blanks: dict[str, dict[str, Any]] = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
        for index, (block, deltas) in enumerate(self._blocks()):
            yield {"type": "content_block_start", "index": index, "content_block": block | blanks.get(block["type"], {})}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        last: dict[str, Any] = {} if usage is None else {"usage": usage}
        yield {"type": "message_delta", "delta": {"stop_reason": self._stop_reason(), "stop_sequence": None}, **last}
        yield {"type": "message_stop"}


def _pieces(text: str) -> Iterator[str]:
    half = -(-len(text) // 2)
    return (piece for piece in (text[:half], text[half:]) if piece)


def _known(counts: dict[str, Any]) -> dict[str, Any]:
    return {name: count for name, count in counts.items() if count is not None}


def _frame(event: dict[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(event)}\n\n".encode()
