"""Anthropic's models, through the Messages API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from ..core.errors import ProviderError, UnsupportedContent, UsageError
from ..core.messages import Blob, Message, Part, Private, Reasoning, Text, ToolCall, ToolCallResponse, Uri
from ..core.usage import Usage
from .base import Delta, Finish, ModelOutput, ModelRequest, ReasoningDelta, TextDelta
from .media import IMAGES, file_name, in_base64, text_in
from .remote import Answer, Connection, RemoteModel, arguments_of, clean, compact, plain, reject, wire_id
from .schemas import ANTHROPIC, fitted, told

__all__ = ["Anthropic", "render"]

DEFAULT_MAX_TOKENS = 16_000
"""The limit of an answer where the settings have none, in tokens; the API demands one."""

_ID_LIMIT = 64
_CACHE = {"type": "ephemeral"}
_CACHEABLE = frozenset({"text", "image", "document", "tool_use", "tool_result"})
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Anthropic(RemoteModel):
    """A model behind Anthropic's Messages API, streamed.

    Thinking blocks, redacted ones too, are kept as `Private` and sent back unchanged and in order to models of the same ``group`` only,
    by default the model's own. ``thinking`` is the API's own setting (``{"type": "adaptive"}``); ``cache=True`` marks instructions,
    tools and the last message as the ends of prefixes that the provider may cache. ``max_tokens`` is the limit of an answer where a
    request's settings have none.

    ``client`` is an ``anthropic.AsyncAnthropic`` of your own; otherwise one is opened at the first call, with ``api_key`` or
    ``ANTHROPIC_API_KEY`` or what else the package finds, ``base_url`` or ``ANTHROPIC_BASE_URL``, and ``timeout`` in seconds (the
    package's own if None). ``streaming=False`` is for endpoints that can't stream, ``structured=False`` for those that take no schema of
    an answer: the model is told it in its instructions. ``window`` is how many tokens a request may have (200,000 if None), ``count`` a
    tokenizer: a function from text to tokens.
    """

    _package = "anthropic"
    _provider = "anthropic"
    _client_class = "AsyncAnthropic"
    _key_variables = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    _path = "/v1/messages"
    _prefix = "anthropic"
    _window = 200_000

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        thinking: dict[str, Any] | None = None,
        cache: bool = False,
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(model, **connection)
        self._max_tokens = max_tokens
        self._thinking = thinking
        self._cache = cache

    def render(self, request: ModelRequest) -> dict[str, Any]:
        """The body of the HTTP request. Raises `UsageError` for parts that can't be sent."""
        return render(
            request,
            model=self.model,
            group=self.group,
            max_tokens=self._max_tokens,
            thinking=self._thinking,
            cache=self._cache,
            structured=self._structured,
        )

    def _answer(self, request: ModelRequest) -> Answer:
        return _MessagesAnswer(self)

    def _has_key(self, client: Any) -> bool:
        # The package also finds keys in profiles and workload identities.
        return any(getattr(client, place, None) for place in ("api_key", "auth_token", "credentials", "_token_cache"))

    def _fault(self, error: Mapping[str, Any], *, status: int | None, retry_after: float | None) -> ProviderError:
        kind = str(error.get("type") or "")
        details = error.get("details")
        code = str(details.get("error_code") or kind) if isinstance(details, dict) else kind
        return self._status_fault(status or _STATUS.get(kind, 500), code, str(error.get("message") or ""), retry_after)


# ---- what is sent ------------------------------------------------------------------------------------------------------------------


def render(
    request: ModelRequest,
    *,
    model: str,
    group: str,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    thinking: dict[str, Any] | None = None,
    cache: bool = False,
    structured: bool = True,
) -> dict[str, Any]:
    """The body of a Messages request, without ``stream``.

    Messages that follow each other in one role are one message, as the API has it, with the results of tools first. Appending to the
    request only appends blocks, apart from the marks of ``cache``. Raises `UsageError` for parts that can't be sent.
    """
    messages = _messages(request, group)
    if not messages:
        raise UsageError("there is nothing to send: no message has any content")
    settings = request.settings
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens if settings.max_output_tokens is None else settings.max_output_tokens,
        "messages": messages,
    }
    schema = fitted(request.output.schema, ANTHROPIC) if request.output is not None and structured else None
    instructions = told(request, request.output) if request.output is not None and schema is None else request.instructions
    if instructions.strip():
        body["system"] = [{"type": "text", "text": instructions}]
    if thinking is not None:
        body["thinking"] = thinking
    if settings.reasoning_effort is not None:
        body["output_config"] = {"effort": settings.reasoning_effort}
    if schema is not None:
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": schema}
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if request.tools:
        body["tools"] = [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in request.tools]
        # The API refuses to be told which tool to call while the model thinks.
        thinks = thinking is not None and thinking.get("type") != "disabled"
        wanted = None if thinks and settings.tool_choice not in ("auto", "none") else settings.tool_choice
        choice = _tool_choice(wanted, settings.parallel_tool_calls)
        if choice:
            body["tool_choice"] = choice
    if cache:
        _mark_cache(body)
    return body | settings.extra


def _messages(request: ModelRequest, group: str) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = []
    for message in request.messages:
        blocks = list(_assistant_blocks(message, group) if message.role == "assistant" else _user_blocks(request, message))
        role = "assistant" if message.role == "assistant" else "user"
        if role == "assistant":
            # The API refuses a message that ends in thinking, which is what is left of an answer that was cut while it was thinking.
            while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
                blocks.pop()
        if not blocks:
            continue
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"].extend(blocks)
        else:
            merged.append({"role": role, "content": blocks})
    for message_ in merged:
        if message_["role"] == "user":
            message_["content"].sort(key=lambda block: block["type"] != "tool_result")
    return merged


def _assistant_blocks(message: Message, group: str) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        match part:
            case Private(group=owner, data=dict() as data) if owner == group:
                yield dict(data)
            case Private() | Reasoning():
                continue
            case Text(content=text):
                if text.strip():
                    yield {"type": "text", "text": text}
            case ToolCall():
                arguments = part.arguments if isinstance(part.arguments, dict) else {"invalid_json": _raw(part.arguments)}
                yield {"type": "tool_use", "id": wire_id(part.id, _ID_LIMIT), "name": part.name, "input": arguments}
            case _:
                raise reject(part, message.role, "Anthropic")


def _user_blocks(request: ModelRequest, message: Message) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        match part:
            case ToolCallResponse() if message.role == "tool":
                block: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id(part.id, _ID_LIMIT), "content": _raw(part.response)}
                # What the API doesn't take is left to the words that stand for it already.
                shown = [rendered for blob in part.media if (rendered := _media(request, blob)) is not None]
                if shown:
                    block["content"] = [{"type": "text", "text": _raw(part.response)}, *shown]
                if part.is_error:
                    block["is_error"] = True
                yield block
            case Private() | Reasoning() if message.role == "user":
                continue
            case Text(content=text) if message.role == "user":
                # The API refuses text that is empty or only white space.
                if text.strip():
                    yield {"type": "text", "text": text}
            case Uri() if message.role == "user":
                yield _linked(part)
            case Blob() if message.role == "user" and (rendered := _media(request, part)) is not None:
                yield rendered
            case _:
                raise reject(part, message.role, "Anthropic")


def _media(request: ModelRequest, blob: Blob) -> dict[str, Any] | None:
    if blob.mime_type in IMAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": blob.mime_type, "data": in_base64(request, blob)}}
    if blob.mime_type == "application/pdf":
        source = {"type": "base64", "media_type": "application/pdf", "data": in_base64(request, blob)}
    elif (text := text_in(request, blob)) is not None and text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        return None
    return {"type": "document", "source": source, "title": file_name(blob)}


def _linked(part: Uri) -> dict[str, Any]:
    header, _, data = part.uri.partition(",")
    inline = header.startswith("data:")
    mime_type = part.mime_type or (header.removeprefix("data:").partition(";")[0] if inline else "image/*")
    kind = "document" if mime_type == "application/pdf" else "image"
    if kind == "image" and not mime_type.startswith("image/"):
        raise UnsupportedContent(f"Anthropic can't be sent a link to {mime_type}", hint="images and application/pdf are understood")
    if not inline:
        return {"type": kind, "source": {"type": "url", "url": part.uri}}
    if not header.endswith(";base64"):
        raise UsageError("Anthropic can only be sent data: addresses in base64")
    return {"type": kind, "source": {"type": "base64", "media_type": mime_type, "data": data}}


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)


def _tool_choice(choice: str | None, parallel: bool | None) -> dict[str, Any]:
    rendered: dict[str, Any] = {}
    match choice:
        case "auto" | "none":
            rendered["type"] = choice
        case "any" | "required":
            rendered["type"] = "any"
        case str():
            rendered = {"type": "tool", "name": choice}
    if parallel is not None and choice != "none":
        rendered.setdefault("type", "auto")
        rendered["disable_parallel_tool_use"] = not parallel
    return rendered


def _mark_cache(body: dict[str, Any]) -> None:
    # The provider's order is tools, instructions, messages: a mark covers all before it.
    for field in ("tools", "system"):
        if field in body:
            body[field][-1] = {**body[field][-1], "cache_control": _CACHE}
    content = body["messages"][-1]["content"]
    for index in reversed(range(len(content))):
        if content[index]["type"] in _CACHEABLE:
            content[index] = {**content[index], "cache_control": _CACHE}
            return


# ---- what comes back ---------------------------------------------------------------------------------------------------------------


class _MessagesAnswer(Answer):
    def __init__(self, model: Anthropic) -> None:
        self._model = model
        self._blocks: dict[int, dict[str, Any]] = {}
        self._input: dict[int, str] = {}
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self._explanation = ""
        self._name = ""

    def feed(self, event: dict[str, Any]) -> Iterator[Delta]:
        match event["type"]:
            case "message_start":
                self._name = event["message"].get("model") or ""
                self._count(event["message"].get("usage"))
            case "content_block_start":
                block = dict(event["content_block"])
                self._blocks[event["index"]] = block
                if block["type"] == "text" and block["text"]:
                    yield TextDelta(text=clean(block["text"]))
            case "content_block_delta":
                yield from self._extend(event["index"], event["delta"])
            case "message_delta":
                self._count(event.get("usage"))
                self._end(event["delta"])
                if self._explanation and not any(block["type"] == "text" for block in self._blocks.values()):
                    yield TextDelta(text=clean(self._explanation))
                self.complete = self._stop is not None

    def _extend(self, index: int, delta: dict[str, Any]) -> Iterator[Delta]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                yield TextDelta(text=clean(delta["text"]))
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
                yield ReasoningDelta(text=clean(delta["thinking"]))
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "input_json_delta":
                self._input[index] = self._input.get(index, "") + delta["partial_json"]

    def whole(self, body: dict[str, Any]) -> None:
        if body["type"] == "error":
            raise self._model._fault(body["error"], status=None, retry_after=None)
        self._name = body.get("model") or ""
        self._blocks = dict(enumerate(body["content"]))
        self._count(body.get("usage"))
        self._end(body)
        self.complete = True

    def _count(self, usage: dict[str, Any] | None) -> None:
        # The later numbers are totals, and leave out those that didn't change.
        self._usage |= {key: value for key, value in (usage or {}).items() if value is not None}

    def _end(self, body: dict[str, Any]) -> None:
        self._stop = body.get("stop_reason") or self._stop
        self._explanation = (body.get("stop_details") or {}).get("explanation") or ""

    def output(self) -> ModelOutput:
        parts: list[Part] = []
        group = self._model.group
        for index in sorted(self._blocks):
            block = self._blocks[index]
            match block["type"]:
                case "text":
                    if block["text"]:
                        parts.append(Text(content=clean(block["text"])))
                case "tool_use":
                    arguments = arguments_of(self._input[index]) if self._input.get(index) else plain(block["input"])
                    parts.append(ToolCall(block["name"], arguments, id=block["id"]))
                case kind:
                    if kind == "thinking" and block["thinking"]:
                        parts.append(Reasoning(content=clean(block["thinking"])))
                    if self._input.get(index):
                        block = {**block, "input": arguments_of(self._input[index])}
                    parts.append(Private(group=group, data=plain(block)))
        if self._explanation and not any(isinstance(part, Text) for part in parts):
            parts.append(Text(content=clean(self._explanation)))
        finish: Finish
        match self._stop:
            case "refusal":
                finish = "refusal"
            # A paused turn is one that the provider stopped in the middle, so its answer isn't whole either.
            case "max_tokens" | "model_context_window_exceeded" | "pause_turn":
                finish = "length"
            case _:
                finish = "tool_calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"
        return ModelOutput(parts=tuple(parts), finish=finish, usage=_usage(self._usage), model=self._name)


def _usage(usage: dict[str, Any]) -> Usage | None:
    if not usage:
        return None
    # The API counts what the cache had or took apart from the rest; here the input is all of it.
    read, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    fresh = usage.get("input_tokens")
    return Usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=(usage.get("output_tokens_details") or {}).get("thinking_tokens"),
    )
