"""What models behind HTTP have in common: one client, one way to listen, one way to fail.

The providers' packages are used for what they are good at (keys, addresses, connections, event streams); what goes over the wire is
rendered and read here and in the adapters, as plain data, so that it can be tested without either.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, ClassVar, NoReturn, TypedDict

import msgspec

from ..core import canonical
from ..core.errors import (
    AuthenticationFailed,
    ContextTooLong,
    InvalidModelOutput,
    MissingExtra,
    MissingKey,
    NotCanonical,
    PerdureError,
    ProviderError,
    ProviderRefused,
    ProviderUnavailable,
    RateLimited,
    StreamCut,
    UnsupportedContent,
    UsageError,
)
from ..core.messages import Blob, Part, Reasoning, StoredPart, Text, ToolCall, described
from .base import Delta, ModelOutput, ModelRequest, ReasoningDelta, TextDelta

__all__ = ["Answer", "Connection", "RemoteModel", "arguments_of", "clean", "compact", "plain", "reject", "wire_id", "with_id"]

GRACE = 5.0
"""Seconds for what may still come after a complete answer: its usage, and the end of the response."""

_QUOTA = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "organization_on_hold", "ramp_limit_exceeded"}
)
_TOO_LONG = frozenset({"context_length_exceeded", "model_context_window_exceeded"})
_UNSAID = frozenset(
    {"", "400", "413", "invalid_request_error", "BadRequestError", "bad_request", "exceed_context_size_error", "request_too_large"}
)
_LENGTH_PHRASES = (
    "prompt is too long",
    "maximum context length",
    "exceeds the context window",
    "exceed context limit",
    "exceeds the available context size",
)
_SECRET = re.compile(r"\b(?:sk|pk|rk|gsk|xai)-[\w*.…-]+|\b[Bb]earer\s+\S+")
_SAID_LIMIT = 500
_TRANSPORTS = frozenset({"httpx", "httpcore", "httpx2", "httpcore2", "anyio"})


class Answer(ABC):
    """An answer as it is read, event by event or whole; what is read must be plain data."""

    complete = False
    """True as soon as nothing more is needed."""

    @abstractmethod
    def feed(self, event: dict[str, Any]) -> Iterable[Delta]:
        """Take one event of the stream and return what it shows."""

    @abstractmethod
    def whole(self, body: dict[str, Any]) -> None:
        """Take a response that was not streamed."""

    @abstractmethod
    def output(self) -> ModelOutput:
        """The answer, once it is complete."""


class Connection(TypedDict, total=False):
    """How a model is reached, and as what it is known here: what every `RemoteModel` takes."""

    name: str | None
    group: str | None
    client: Any
    api_key: str | None
    base_url: str | None
    timeout: float | None
    streaming: bool
    structured: bool
    window: int | None
    count: Callable[[str], int] | None


class RemoteModel(ABC):
    """A provider's model. Subclasses say where it is, what is sent, and how its answers and errors are read."""

    _package: ClassVar[str]
    _client_class: ClassVar[str]
    _key_variables: ClassVar[tuple[str, ...]]
    _path: ClassVar[str]
    _prefix: ClassVar[str]
    _provider: ClassVar[str]
    _options: ClassVar[dict[str, Any]] = {}
    _window: ClassVar[int | None] = None

    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        group: str | None = None,
        client: Any = None,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float | None = None,
        streaming: bool = True,
        structured: bool = True,
        window: int | None = None,
        count: Callable[[str], int] | None = None,
    ) -> None:
        if not model or not isinstance(model, str):
            raise UsageError("a model needs the name by which its provider knows it")
        if client is not None and (api_key is not None or base_url is not None or timeout is not None):
            raise UsageError("a client brings its own key, address and timeout", hint="pass either client or api_key, base_url, timeout")
        self.model = model
        own = f"{self._prefix}:{model}"
        self._name = name or own
        self._group = group or own
        self._given = client
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._streaming = streaming
        self._structured = structured
        if window is not None and not canonical.is_whole(window, 1):
            raise UsageError(f"window={window!r} is no number of tokens", hint="at least 1")
        self.window = window or self._window
        self.count = count
        self._own: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def name(self) -> str:
        """The route's name."""
        return self._name

    @property
    def group(self) -> str:
        """The group of routes that share private reasoning."""
        return self._group

    @property
    def provider(self) -> str:
        """Whose models these are, as lists of prices name them."""
        return self._provider

    @property
    def address(self) -> str:
        """Where it is, if not where its provider is by default."""
        given = self._base_url or (str(getattr(self._given, "base_url", "")) if self._given is not None else "")
        return given or os.environ.get(f"{self._provider.upper()}_BASE_URL", "")

    @abstractmethod
    def render(self, request: ModelRequest) -> dict[str, Any]:
        """The body of the HTTP request: a pure function of the request and of how this model was made."""

    @abstractmethod
    def _answer(self, request: ModelRequest) -> Answer: ...

    @abstractmethod
    def _fault(self, error: Mapping[str, Any], *, status: int | None, retry_after: float | None) -> ProviderError:
        """What the provider's own error object means. ``status`` None: it came inside a stream."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelOutput, None]:
        """The deltas of the answer as they come, then the answer.

        Raises `UsageError` for a request that this provider can't be sent, `MissingExtra`, `MissingKey`, and a `ProviderError` for
        everything that happens on the way. Nothing is tried twice. Closing the iterator, or cancelling the task that waits for the
        next item, closes the connection.
        """
        body = self.render(request)
        sdk, client = self._connect()
        answer = self._answer(request)
        options = {**self._options, "max_retries": 0}
        if not self._streaming:
            try:
                text = await client.post(self._path, cast_to=str, body=body, options=options)
            except Exception as error:
                self._fail(sdk, error)
            try:
                answer.whole(json.loads(text))
                output = answer.output()
            except Exception as error:
                self._fail(sdk, error, reading=True)
            for delta in _shown(output):
                yield delta
            yield output
            return

        try:
            events = await client.post(
                self._path, cast_to=object, body={**body, "stream": True}, options=options, stream=True, stream_cls=sdk.AsyncStream[object]
            )
        except Exception as error:
            self._fail(sdk, error)
        try:
            iterator = aiter(events)
            while not answer.complete:
                try:
                    event = await anext(iterator, None)
                    if event is None:
                        raise StreamCut(f"{self._name}: the stream ended before the answer did")
                    deltas = list(answer.feed(event))
                except Exception as error:
                    self._fail(sdk, error, reading=True)
                for delta in deltas:
                    yield delta
            await _drain(iterator, answer)
            try:
                output = answer.output()
            except Exception as error:
                self._fail(sdk, error, reading=True)
            yield output
        finally:
            await events.close()

    async def aclose(self) -> None:
        """Close the connections that this model opened. It may be used again, which opens new ones. A client that was passed stays open."""
        own, self._own, loop, self._loop = self._own, None, self._loop, None
        if own is not None and loop is asyncio.get_running_loop():
            await own.close()

    def check(self) -> None:
        """Whether a call could be made from here. Raises `MissingExtra` or `MissingKey`; asks no provider."""
        sdk = self._sdk()
        if self._given is None and self._own is None:
            self._open(sdk)

    def _sdk(self) -> Any:
        try:
            return import_module(self._package)
        except ImportError:
            raise MissingExtra(f"the model {self._name!r} needs the package {self._package!r}", extra=self._package) from None

    def _connect(self) -> tuple[Any, Any]:
        sdk = self._sdk()
        if self._given is not None:
            return sdk, self._given
        loop = asyncio.get_running_loop()
        # Connections belong to the event loop that opened them; a model may outlive it.
        if self._own is None or self._loop is not loop:
            self._own, self._loop = self._open(sdk), loop
        return sdk, self._own

    def _open(self, sdk: Any) -> Any:
        options: dict[str, Any] = {"api_key": self._api_key, "base_url": self._base_url, "max_retries": 0}
        if self._timeout is not None:
            options["timeout"] = self._timeout
        try:
            client = getattr(sdk, self._client_class)(**options)
        except getattr(sdk, self._client_class.removeprefix("Async") + "Error") as error:
            # Newer packages refuse to make a client without any.
            raise self._without_key() from error
        if not self._has_key(client):
            raise self._without_key()
        return client

    def _has_key(self, client: Any) -> bool:
        """Whether a client that was just made has something to show to its provider. The package knows best where to look for keys."""
        return bool(client.api_key)

    def _without_key(self) -> MissingKey:
        variable = self._key_variables[0]
        return MissingKey(f"no key for the model {self._name!r}: {variable} is not set", hint=f"set {variable} or pass api_key=")

    def _fail(self, sdk: Any, error: Exception, *, reading: bool = False) -> NoReturn:
        failure = self._failure(sdk, error, reading=reading)
        if failure is error:
            raise error
        if getattr(error, "body", None) is not None:
            # Everything that the provider said is in the new error, without what looks like a key; a traceback would print it all.
            raise failure from None
        raise failure from error

    def _failure(self, sdk: Any, error: Exception, *, reading: bool) -> Exception:
        """The error that says what happened. While an answer is read, odd data is the provider's fault; before that, it is a bug here."""
        name = self._name
        match error:
            case NotCanonical():
                return InvalidModelOutput(f"{name}: the answer holds data that can't be stored: {error.message}")
            case PerdureError():
                return error
            case sdk.APIStatusError():
                status = error.status_code if error.status_code >= 400 else None
                return self._fault(_error_object(error.body), status=status, retry_after=retry_after(error.response.headers))
            case sdk.APITimeoutError():
                return ProviderUnavailable(f"{name}: timed out")
            case sdk.APIConnectionError() | OSError():
                return self._lost(reading)
            case sdk.APIResponseValidationError():
                return InvalidModelOutput(f"{name}: the answer doesn't have the form that was agreed")
            case sdk.APIError():
                return self._fault(_error_object(error.body), status=None, retry_after=None)
            # Older versions of the packages let the errors of their transport through while they stream.
            case _ if type(error).__module__.partition(".")[0] in _TRANSPORTS:
                return ProviderUnavailable(f"{name}: timed out") if "Timeout" in type(error).__name__ else self._lost(reading)
            case ValueError() | LookupError() | TypeError() | AttributeError() if reading:
                return InvalidModelOutput(f"{name}: the answer doesn't have the form that was agreed ({type(error).__name__})")
            case _:
                return error

    def _lost(self, reading: bool) -> ProviderError:
        if reading:
            return StreamCut(f"{self._name}: the connection was lost before the answer was complete")
        return ProviderUnavailable(f"{self._name}: can't be reached, or closed the connection")

    def _status_fault(self, status: int, code: str, said: str, retry_after: float | None) -> ProviderError:
        """The error of an HTTP status; the words of the provider are quoted without anything that looks like a key."""
        quoted = self._without_secrets(said)
        message = f"{self._name}: {quoted}" if quoted else f"{self._name}: status {status}"
        facts: dict[str, Any] = {"status": status, "error_code": code}
        if code in _QUOTA or code.endswith("spend_limit_reached"):
            return ProviderRefused(message, hint="the account has no quota left: see its billing page", **facts)
        if status in (401, 403):
            return AuthenticationFailed(message, hint=f"check {self._key_variables[0]}", **facts)
        if code in _TOO_LONG or (status in (400, 413) and code in _UNSAID and _says_too_long(said)):
            return ContextTooLong(message, hint="compaction=Compaction(…) makes notes of what is old, Router(windows=…) says when", **facts)
        if status == 429:
            return RateLimited(message, retry_after=retry_after, **facts)
        if status in (408, 409, 499) or status >= 500:
            return ProviderUnavailable(message, retry_after=retry_after, **facts)
        return ProviderRefused(message, **facts)

    def _without_secrets(self, said: str) -> str:
        client = self._given or self._own
        keys = [
            self._api_key,
            *(getattr(client, field, None) for field in ("api_key", "auth_token")),
            *map(os.environ.get, self._key_variables),
        ]
        for key in keys:
            if isinstance(key, str) and len(key) >= 6:
                said = said.replace(key, "[key]")
        return _SECRET.sub("[key]", said)[:_SAID_LIMIT]


async def _drain(iterator: AsyncIterator[Any], answer: Answer) -> None:
    # The usage of a chat stands behind its end, and only a response that was read to its end lets the connection be used again.
    # The answer is whole, so whatever goes wrong here is nobody's loss.
    with suppress(Exception):
        async with asyncio.timeout(GRACE):
            async for event in iterator:
                list(answer.feed(event))


def _shown(output: ModelOutput) -> Iterable[Delta]:
    for part in output.parts:
        match part:
            case Text():
                yield TextDelta(text=part.content)
            case Reasoning():
                yield ReasoningDelta(text=part.content)


def _says_too_long(said: str) -> bool:
    """Whether a provider that has no code for it refuses a request for its length. Only words that can't mean a limit of the answer."""
    words = said.lower()
    return any(phrase in words for phrase in _LENGTH_PHRASES)


def _error_object(body: Any) -> Mapping[str, Any]:
    if isinstance(body, dict):
        inner = body.get("error", body)
        return inner if isinstance(inner, dict) else {"message": str(inner)}
    return {"message": body if isinstance(body, str) and "<" not in body[:20] else ""}


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait, from ``retry-after-ms`` or ``retry-after`` (seconds or a date); None if it says nothing."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def arguments_of(text: str) -> Any:
    """A call's arguments: the object, or the text as it came if it is none that can be kept exactly."""
    if not text.strip():
        return {}
    try:
        value = canonical.check(msgspec.json.decode(text))
    except (msgspec.DecodeError, NotCanonical, UnicodeError):
        return clean(text)
    return value if isinstance(value, dict) else clean(text)


def compact(value: Any) -> str:
    """A value as JSON, the same bytes every time."""
    return canonical.encode(value).decode()


def plain(value: Any) -> Any:
    """A provider's data as it can be stored. Raises `NotCanonical`."""
    return canonical.check(value)


def clean(text: str) -> str:
    """The text with surrogate pairs joined, and single ones, which no store can hold, replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def wire_id(call_id: str, limit: int) -> str:
    """A call's id as every provider accepts it, so that a conversation can move from one to the other. Most stay as they are."""
    if len(call_id) <= limit and re.fullmatch(r"[a-zA-Z0-9_-]+", call_id):
        return call_id
    return "call_" + canonical.short_digest(call_id)[:24]


def with_id(call: ToolCall, position: int, index: int) -> ToolCall:
    """The call with an id that is unique in the session, for endpoints that give none."""
    return call if call.id else msgspec.structs.replace(call, id=f"call_{position}_{index}")


def reject(part: Part, role: str, provider: str, hint: str = "") -> UsageError:
    """The error for a part that can't be sent."""
    match part:
        case Blob():
            hint = hint or "use a model that takes it, or rewrite the message without it"
            return UnsupportedContent(f"{provider} can't be sent {described(part)}", hint=hint, mime_type=part.mime_type)
        case StoredPart():
            return UsageError("a part of the request was not put back in place")
        case _:
            return UnsupportedContent(f"{provider} can't be sent a part {type(part).__name__} in a message of role {role}")
