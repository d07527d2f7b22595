"""OpenAI's models, and those of everybody who speaks the same protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Unpack

from ..core.errors import ProviderError, UsageError
from ..core.messages import Blob, Message, Part, Private, Reasoning, Text, ToolCall, ToolCallResponse, Uri
from ..core.usage import Usage
from .base import Delta, Finish, ModelOutput, ModelRequest, ModelSettings, OutputSpec, ReasoningDelta, TextDelta
from .media import DOCUMENTS, IMAGES, as_address, file_name, in_base64, text_in
from .remote import Answer, Connection, RemoteModel, arguments_of, clean, compact, plain, reject, wire_id, with_id
from .schemas import OPENAI, fitted, told

__all__ = ["OpenAIChat", "OpenAIResponses", "render_chat", "render_responses"]

_ID_LIMIT = 40
_SOUNDS = {"audio/wav": "wav", "audio/mpeg": "mp3"}
_STATUS_IN_STREAM = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "server_error": 500,
    "vector_store_timeout": 504,
    "server_is_overloaded": 503,
    "slow_down": 503,
}


class _OpenAI(RemoteModel):
    _package = "openai"
    _provider = "openai"
    _client_class = "AsyncOpenAI"
    _key_variables = ("OPENAI_API_KEY",)
    _options = {"security": {"bearer_auth": True}}

    def _fault(self, error: Mapping[str, Any], *, status: int | None, retry_after: float | None) -> ProviderError:
        code = error.get("code") or error.get("type") or ""
        if status is None:
            if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()):
                # Gateways put the status of the provider behind them here.
                status = int(code)
            elif not code or code in ("error", "api_error", "internal_error", "internal_server_error"):
                status = 500
            else:
                status = _STATUS_IN_STREAM.get(str(code)) or _STATUS_IN_STREAM.get(str(error.get("type"))) or 400
        return self._status_fault(status, str(code), str(error.get("message") or ""), retry_after)


class OpenAIResponses(_OpenAI):
    """A model behind OpenAI's Responses API, streamed.

    Nothing is stored at the provider (``store`` is false): encrypted reasoning comes back with every answer, is kept as `Private`, and
    is sent again to models of the same ``group`` only. ``group`` is by default the model's own; give two routes the same one if they
    may read each other's reasoning.

    ``client`` is an ``openai.AsyncOpenAI`` of your own; otherwise one is opened at the first call, with ``api_key`` or
    ``OPENAI_API_KEY``, ``base_url`` or ``OPENAI_BASE_URL``, and ``timeout`` in seconds (the package's own if None).
    ``reasoning_summary`` asks for readable reasoning. ``encrypted_reasoning=False`` is for models that don't reason, which refuse
    requests that ask for it. ``streaming=False`` is for endpoints that can't stream, ``structured=False`` for those that take no schema of
    an answer: the model is told it in its instructions. ``window`` is how many tokens a request may have,
    ``count`` a tokenizer: a function from text to tokens (`perdure.models.tokens.openai_tokens` makes one).
    """

    _path = "/responses"
    _prefix = "openai"

    def __init__(
        self,
        model: str,
        *,
        reasoning_summary: Literal["auto", "concise", "detailed"] | None = None,
        encrypted_reasoning: bool = True,
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(model, **connection)
        self._reasoning_summary = reasoning_summary
        self._encrypted_reasoning = encrypted_reasoning

    def render(self, request: ModelRequest) -> dict[str, Any]:
        """The body of the HTTP request. Raises `UsageError` for parts that can't be sent."""
        return render_responses(
            request,
            model=self.model,
            group=self.group,
            reasoning_summary=self._reasoning_summary,
            encrypted_reasoning=self._encrypted_reasoning,
            structured=self._structured,
        )

    def _answer(self, request: ModelRequest) -> Answer:
        return _ResponsesAnswer(self, request.answers)


class OpenAIChat(_OpenAI):
    """A model behind a Chat Completions endpoint: OpenAI's, or any that is compatible, streamed.

    Arguments are those of `OpenAIResponses`. An endpoint that needs no key still needs one to be given (``api_key="none"``).
    ``max_tokens_field`` is the name under which the endpoint knows the limit of an answer, ``include_usage=False`` is for endpoints
    that refuse ``stream_options``. Reasoning that an endpoint calls ``reasoning_content`` is shown, and sent back with the calls that
    it led to, as those endpoints demand.
    """

    _path = "/chat/completions"
    _prefix = "openai-chat"

    def __init__(
        self,
        model: str,
        *,
        include_usage: bool = True,
        max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens",
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(model, **connection)
        self._include_usage = include_usage
        self._max_tokens_field = max_tokens_field

    def render(self, request: ModelRequest) -> dict[str, Any]:
        """The body of the HTTP request. Raises `UsageError` for parts that can't be sent."""
        body = render_chat(
            request, model=self.model, group=self.group, max_tokens_field=self._max_tokens_field, structured=self._structured
        )
        if self._streaming and self._include_usage:
            body.setdefault("stream_options", {"include_usage": True})
        return body

    def _answer(self, request: ModelRequest) -> Answer:
        return _ChatAnswer(self, request.answers)


# ---- what is sent ------------------------------------------------------------------------------------------------------------------


def render_responses(
    request: ModelRequest,
    *,
    model: str,
    group: str,
    reasoning_summary: str | None = None,
    encrypted_reasoning: bool = True,
    structured: bool = True,
) -> dict[str, Any]:
    """The body of a Responses request, without ``stream``. Appending messages to the request only appends to ``input``.

    Raises `UsageError` for parts that can't be sent.
    """
    items: list[dict[str, Any]] = []
    for message in request.messages:
        items.extend(_response_items(request, message, group))
    if not items:
        raise UsageError("there is nothing to send: no message has any content")
    settings = request.settings
    body: dict[str, Any] = {"model": model, "input": items, "store": False}
    native = request.output if structured else None
    instructions = told(request, request.output) if request.output is not None and native is None else request.instructions
    if instructions:
        body["instructions"] = instructions
    if native is not None:
        body["text"] = {"format": {"type": "json_schema", **_schema(native)}}
    if encrypted_reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    reasoning = {"effort": settings.reasoning_effort, "summary": reasoning_summary}
    if any(reasoning.values()):
        body["reasoning"] = {key: value for key, value in reasoning.items() if value}
    if settings.max_output_tokens is not None:
        body["max_output_tokens"] = settings.max_output_tokens
    if request.tools:
        # Strict is the API's default and refuses schemas that are fine everywhere else.
        body["tools"] = [
            {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": False}
            for tool in request.tools
        ]
        if settings.tool_choice is not None:
            named = settings.tool_choice not in ("auto", "none", "required")
            body["tool_choice"] = {"type": "function", "name": settings.tool_choice} if named else settings.tool_choice
    return {**body, **_common(request, settings)}


def _response_items(request: ModelRequest, message: Message, group: str) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        for part in message.parts:
            if not isinstance(part, ToolCallResponse):
                raise reject(part, message.role, "OpenAI")
            yield {"type": "function_call_output", "call_id": wire_id(part.id, _ID_LIMIT), "output": _output(request, part)}
    elif message.role == "user":
        content = [_response_content(request, part) for part in _sendable(message)]
        if content:
            yield {"role": "user", "content": content}
    else:
        yield from _without_loose_reasoning(_assistant_items(message, group))


def _assistant_items(message: Message, group: str) -> Iterator[dict[str, Any]]:
    phase: str | None = None
    for part in message.parts:
        match part:
            case Private(group=owner, data=dict() as data) if owner == group:
                if data.get("type") == "message":
                    phase = data.get("phase")
                else:
                    yield data
            case Private() | Reasoning():
                continue
            case Text(content=text):
                if text:
                    yield {"role": "assistant", "content": text} | ({"phase": phase} if phase else {})
            case ToolCall():
                yield {"type": "function_call", "call_id": wire_id(part.id, _ID_LIMIT), "name": part.name, "arguments": _arguments(part)}
            case _:
                raise reject(part, message.role, "OpenAI")


def _without_loose_reasoning(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    # The API refuses reasoning that nothing follows, which is what is left of an answer that was cut while it was thinking.
    kept = list(items)
    while kept and kept[-1].get("type") == "reasoning":
        kept.pop()
    return kept


def _output(request: ModelRequest, part: ToolCallResponse) -> str | list[dict[str, Any]]:
    """What a tool returned; of its media what the API takes, since words stand for each of them already."""
    shown = [rendered for blob in part.media if (rendered := _response_media(request, blob)) is not None]
    return [{"type": "input_text", "text": _result(part)}, *shown] if shown else _result(part)


def _response_media(request: ModelRequest, blob: Blob) -> dict[str, Any] | None:
    if blob.mime_type in IMAGES:
        return {"type": "input_image", "image_url": as_address(request, blob), "detail": "auto"}
    if blob.mime_type in DOCUMENTS or text_in(request, blob) is not None:
        return {"type": "input_file", "filename": file_name(blob), "file_data": as_address(request, blob)}
    return None


def _response_content(request: ModelRequest, part: Part) -> dict[str, Any]:
    match part:
        case Text(content=text):
            return {"type": "input_text", "text": text}
        case Uri(uri=uri, mime_type=mime_type):
            if _is_image(uri, mime_type):
                return {"type": "input_image", "image_url": uri, "detail": "auto"}
            if uri.startswith("data:"):
                return {"type": "input_file", "filename": "file", "file_data": uri}
            return {"type": "input_file", "file_url": uri}
        case Blob() if (rendered := _response_media(request, part)) is not None:
            return rendered
        case Blob(mime_type=mime_type) if mime_type in _SOUNDS:
            raise reject(part, "user", "OpenAI's Responses API", "a route of openai-chat: takes wav and mp3")
        case _:
            raise reject(part, "user", "OpenAI")


def render_chat(
    request: ModelRequest, *, model: str, group: str, max_tokens_field: str = "max_completion_tokens", structured: bool = True
) -> dict[str, Any]:
    """The body of a Chat Completions request, without ``stream``. Appending messages to the request only appends to ``messages``.

    Raises `UsageError` for parts that can't be sent.
    """
    messages = [rendered for message in request.messages for rendered in _chat_messages(request, message, group)]
    if not messages:
        raise UsageError("there is nothing to send: no message has any content")
    settings = request.settings
    native = request.output if structured else None
    instructions = told(request, request.output) if request.output is not None and native is None else request.instructions
    if instructions:
        messages.insert(0, {"role": "system", "content": instructions})
    body: dict[str, Any] = {"model": model, "messages": messages}
    if native is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": _schema(native)}
    if settings.reasoning_effort is not None:
        body["reasoning_effort"] = settings.reasoning_effort
    if settings.max_output_tokens is not None:
        body[max_tokens_field] = settings.max_output_tokens
    if request.tools:
        body["tools"] = [
            {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}}
            for tool in request.tools
        ]
        if settings.tool_choice is not None:
            named = settings.tool_choice not in ("auto", "none", "required")
            body["tool_choice"] = {"type": "function", "function": {"name": settings.tool_choice}} if named else settings.tool_choice
    return {**body, **_common(request, settings)}


def _chat_messages(request: ModelRequest, message: Message, group: str) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        for part in message.parts:
            if not isinstance(part, ToolCallResponse):
                raise reject(part, message.role, "Chat Completions")
            yield {"role": "tool", "tool_call_id": wire_id(part.id, _ID_LIMIT), "content": _result(part)}
    elif message.role == "user":
        content = [_chat_content(request, part) for part in _sendable(message)]
        if len(content) == 1 and content[0]["type"] == "text":
            yield {"role": "user", "content": content[0]["text"]}
        elif content:
            yield {"role": "user", "content": content}
    else:
        yield from _chat_assistant(message, group)


def _chat_assistant(message: Message, group: str) -> Iterator[dict[str, Any]]:
    text, reasoning = "", ""
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Private(group=owner, data={"reasoning_content": str() as content}) if owner == group:
                reasoning += content
            case Private() | Reasoning():
                continue
            case Text(content=content):
                text += content
            case ToolCall():
                function = {"name": part.name, "arguments": _arguments(part)}
                calls.append({"id": wire_id(part.id, _ID_LIMIT), "type": "function", "function": function})
            case _:
                raise reject(part, message.role, "Chat Completions")
    if not text and not calls:
        return
    rendered: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        rendered["tool_calls"] = calls
        if reasoning:
            rendered["reasoning_content"] = reasoning
    yield rendered


def _chat_content(request: ModelRequest, part: Part) -> dict[str, Any]:
    match part:
        case Text(content=text):
            return {"type": "text", "text": text}
        case Uri(uri=uri, mime_type=mime_type) if _is_image(uri, mime_type):
            return {"type": "image_url", "image_url": {"url": uri}}
        case Blob(mime_type=mime_type) if mime_type in IMAGES:
            return {"type": "image_url", "image_url": {"url": as_address(request, part)}}
        case Blob(mime_type=mime_type) if mime_type in _SOUNDS:
            return {"type": "input_audio", "input_audio": {"data": in_base64(request, part), "format": _SOUNDS[mime_type]}}
        case Blob(mime_type="application/pdf"):
            return {"type": "file", "file": {"filename": file_name(part), "file_data": as_address(request, part)}}
        case Blob() if (written := text_in(request, part)) is not None:
            # The API takes no other files, and a text needs none.
            return {"type": "text", "text": f"[file {compact(file_name(part))}]\n{written}\n[end of file]\n"}
        case _:
            raise reject(part, "user", "Chat Completions")


def _sendable(message: Message) -> Iterator[Part]:
    return (part for part in message.parts if not isinstance(part, Private | Reasoning) and part != Text(content=""))


def _is_image(uri: str, mime_type: str) -> bool:
    if mime_type:
        return mime_type.startswith("image/")
    return not uri.startswith("data:") or uri.startswith("data:image/")


def _result(part: ToolCallResponse) -> str:
    # The protocol has no place for a flag, so an error says that it is one.
    if part.is_error:
        return compact({"error": part.response})
    return part.response if isinstance(part.response, str) else compact(part.response)


def _arguments(call: ToolCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else compact(call.arguments)


def _schema(output: OutputSpec) -> dict[str, Any]:
    """The schema of an answer: enforced where the API can, else as a hint."""
    strict = fitted(output.schema, OPENAI)
    return {"name": output.name, "schema": output.schema if strict is None else strict, "strict": strict is not None}


def _common(request: ModelRequest, settings: ModelSettings) -> dict[str, Any]:
    common: dict[str, Any] = {}
    if settings.temperature is not None:
        common["temperature"] = settings.temperature
    if request.tools and settings.parallel_tool_calls is not None:
        common["parallel_tool_calls"] = settings.parallel_tool_calls
    return common | settings.extra


# ---- what comes back ---------------------------------------------------------------------------------------------------------------


class _ResponsesAnswer(Answer):
    def __init__(self, model: _OpenAI, position: int) -> None:
        self._model = model
        self._position = position
        self._items: dict[int, dict[str, Any]] = {}
        self._response: dict[str, Any] = {}

    def feed(self, event: dict[str, Any]) -> Iterator[Delta]:
        match event["type"]:
            case "response.output_text.delta" | "response.refusal.delta":
                yield TextDelta(text=clean(event["delta"]))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield ReasoningDelta(text=clean(event["delta"]))
            case "response.reasoning_summary_part.added" if event["summary_index"] > 0:
                yield ReasoningDelta(text="\n\n")
            case "response.output_item.done":
                self._items[event["output_index"]] = event["item"]
            case "response.completed" | "response.incomplete" | "response.failed":
                self.whole(event["response"])
            case "error":
                inner = event.get("error")
                raise self._model._fault(inner if isinstance(inner, dict) else {**event, "type": ""}, status=None, retry_after=None)

    def whole(self, body: dict[str, Any]) -> None:
        if body["status"] in ("failed", "cancelled"):
            raise self._model._fault(body.get("error") or {"message": f"the response {body['status']}"}, status=None, retry_after=None)
        if body["status"] not in ("completed", "incomplete"):
            raise ValueError(body["status"])
        self._response = body
        # Items that came on their own are the complete ones: only they are sure to hold the encrypted reasoning.
        self._items = dict(enumerate(body.get("output") or ())) | self._items
        self.complete = True

    def output(self) -> ModelOutput:
        parts: list[Part] = []
        refused = False
        for index in sorted(self._items):
            item = self._items[index]
            match item["type"]:
                case "message":
                    if item.get("phase"):
                        parts.append(Private(group=self._model.group, data={"type": "message", "phase": item["phase"]}))
                    for content in item["content"]:
                        refused = refused or content["type"] == "refusal"
                        text = content["refusal"] if content["type"] == "refusal" else content["text"]
                        if text:
                            parts.append(Text(content=clean(text)))
                case "function_call":
                    call = ToolCall(item["name"], arguments_of(item["arguments"]), id=item.get("call_id") or "")
                    parts.append(with_id(call, self._position, index))
                case kind:
                    if kind == "reasoning" and (text := _readable(item)):
                        parts.append(Reasoning(content=clean(text)))
                    # Nothing is stored at the provider, so reasoning without its content can't be sent again: its id leads nowhere.
                    if kind != "reasoning" or item.get("encrypted_content") or item.get("content"):
                        kept = {key: value for key, value in item.items() if value is not None and key != "status"}
                        parts.append(Private(group=self._model.group, data=plain(kept)))
        reason = (self._response.get("incomplete_details") or {}).get("reason")
        finish: Finish
        if refused or reason == "content_filter":
            finish = "refusal"
        elif self._response["status"] == "incomplete":
            finish = "length"
        else:
            finish = "tool_calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"
        return ModelOutput(
            parts=tuple(parts), finish=finish, usage=_responses_usage(self._response.get("usage")), model=self._response.get("model") or ""
        )


def _readable(item: dict[str, Any]) -> str:
    return "\n\n".join(piece["text"] for piece in item.get("summary") or item.get("content") or ())


def _responses_usage(usage: dict[str, Any] | None) -> Usage | None:
    if not usage:
        return None
    read, written = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=read.get("cached_tokens"),
        cache_write_tokens=read.get("cache_write_tokens"),
        reasoning_tokens=written.get("reasoning_tokens"),
    )


class _ChatAnswer(Answer):
    def __init__(self, model: _OpenAI, position: int) -> None:
        self._model = model
        self._position = position
        self._text = ""
        self._refusal = ""
        self._thought = ""
        self._private = False
        self._calls: dict[int, dict[str, str]] = {}
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None
        self._name = ""

    def feed(self, event: dict[str, Any]) -> Iterator[Delta]:
        self._common(event)
        for choice in event.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            yield from self._take(choice.get("delta") or {})
            if choice.get("finish_reason"):
                self._finish = choice["finish_reason"]
                self.complete = True

    def whole(self, body: dict[str, Any]) -> None:
        if "choices" not in body and body.get("error"):
            error = body["error"]
            raise self._model._fault(error if isinstance(error, dict) else {"message": str(error)}, status=None, retry_after=None)
        self._common(body)
        choice = body["choices"][0]
        message = choice["message"]
        calls = [{**call, "index": index} for index, call in enumerate(message.get("tool_calls") or ())]
        list(self._take({**message, "tool_calls": calls}))
        self._finish = choice.get("finish_reason") or "stop"
        self.complete = True

    def _common(self, body: dict[str, Any]) -> None:
        self._name = body.get("model") or self._name
        self._usage = body.get("usage") or self._usage

    def _take(self, delta: dict[str, Any]) -> Iterator[Delta]:
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self._private = self._private or bool(delta.get("reasoning_content"))
            self._thought += thought
            yield ReasoningDelta(text=clean(thought))
        if text := delta.get("content"):
            self._text += text
            yield TextDelta(text=clean(text))
        if refusal := delta.get("refusal"):
            self._refusal += refusal
            yield TextDelta(text=clean(refusal))
        for piece in delta.get("tool_calls") or ():
            index = piece.get("index")
            if index is None:
                # Some endpoints send whole calls and don't number them.
                index = len(self._calls) if piece.get("id") or not self._calls else len(self._calls) - 1
            call = self._calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
            function = piece.get("function") or {}
            call["id"] = call["id"] or piece.get("id") or ""
            call["name"] = call["name"] or function.get("name") or ""
            call["arguments"] += function.get("arguments") or ""

    def output(self) -> ModelOutput:
        parts: list[Part] = []
        if self._thought:
            thought = clean(self._thought)
            parts.append(Reasoning(content=thought))
            if self._private:
                parts.append(Private(group=self._model.group, data={"reasoning_content": thought}))
        if self._text or self._refusal:
            parts.append(Text(content=clean(self._text + self._refusal)))
        for index in sorted(self._calls):
            call = self._calls[index]
            parts.append(with_id(ToolCall(call["name"], arguments_of(call["arguments"]), id=call["id"]), self._position, index))
        finish: Finish
        if self._refusal or self._finish == "content_filter":
            finish = "refusal"
        elif self._finish == "length":
            finish = "length"
        else:
            finish = "tool_calls" if self._calls else "stop"
        return ModelOutput(parts=tuple(parts), finish=finish, usage=_chat_usage(self._usage), model=self._name)


def _chat_usage(usage: dict[str, Any] | None) -> Usage | None:
    if not usage:
        return None
    read, written = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        cache_read_tokens=read.get("cached_tokens"),
        cache_write_tokens=read.get("cache_write_tokens"),
        reasoning_tokens=written.get("reasoning_tokens"),
    )
