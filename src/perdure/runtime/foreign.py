"""Conversations that other systems keep, as messages: the three forms that most programs have them in."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from ..core.errors import InvalidMedia, InvalidTranscript, MediaTooLarge
from ..core.media import Media, from_base64, from_data_uri
from ..core.messages import Blob, Message, Part, Reasoning, Text, ToolCall, ToolCallResponse, Uri, described

__all__ = ["Foreigner", "read"]

Foreigner: TypeAlias = Literal["openai", "openai-responses", "anthropic"]

DATA = r"data:([\w.+-]+/[\w.+-]+);base64,"

SOUNDS = {"mp3": "audio/mpeg", "wav": "audio/wav"}


class Read(NamedTuple):
    """Messages, what each is called in errors, the media they refer to, and the instructions among them, which are no messages here."""

    messages: tuple[Message, ...]
    names: tuple[str, ...]
    media: tuple[Media, ...]
    instructions: str


def read(source: Foreigner, given: Sequence[Any]) -> Read:
    """A list as the Chat Completions, the Responses or the Messages API takes it.

    Raises `InvalidTranscript`, and says which message or item can't be one.
    """
    reader = READERS[source](given)
    for index, item in enumerate(given):
        reader.index = index
        if not isinstance(item, Mapping):
            hint = f"a list of objects, as {source} writes them"
            raise InvalidTranscript(f"{reader.unit} {index} is of the type {type(item).__name__}", hint=hint)
        with reader.naming(index):
            reader.take(item)
    reader.end()
    return Read(tuple(reader.messages), tuple(reader.names), tuple(reader.media), "\n\n".join(reader.instructions))


def _has_items(given: Sequence[Any]) -> bool:
    """Whether that is a list of Responses items: a message of the other APIs always says whose it is."""
    return any(isinstance(item, Mapping) and isinstance(item.get("type"), str) and "role" not in item for item in given)


def _has_chat(given: Sequence[Any]) -> bool:
    """Whether messages of Chat Completions are among these."""
    return any(isinstance(item, Mapping) and (item.get("role") == "tool" or "tool_calls" in item) for item in given)


class _Reader:
    unit = "message"
    source = ""

    def __init__(self, given: Sequence[Any]) -> None:
        self.given = given
        self.index = 0
        self.messages: list[Message] = []
        self.names: list[str] = []
        self.media: list[Media] = []
        self.instructions: list[str] = []
        self._names: dict[str, str] = {}

    def take(self, item: Mapping[str, Any]) -> None:
        """One of the list."""
        raise NotImplementedError

    def end(self) -> None:
        """There are no more."""

    @contextmanager
    def naming(self, index: int) -> Iterator[None]:
        """Says which one it is that can't be read."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            told = f"{self.unit} {index} can't be read: " + (f"{error} is missing" if isinstance(error, KeyError) else str(error))
            if self.unit == "message" and _has_items(self.given):
                raise InvalidTranscript(told, hint='source="openai-responses" reads items of the Responses API') from None
            if self.unit == "item" and _has_chat(self.given):
                raise InvalidTranscript(told, hint='source="openai" reads messages of Chat Completions') from None
            raise InvalidTranscript(told, hint=f"as {self.source} writes them") from None
        except (InvalidMedia, MediaTooLarge) as error:
            raise InvalidTranscript(f"{self.unit} {index} can't be kept: {error.message}", hint=error.hint) from None

    def _say(self, role: Any, parts: Iterable[Part], index: int | None = None) -> None:
        """Another message; what one side says in several becomes one where a transcript has one."""
        said = tuple(parts)
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == role and role in ("tool", "assistant") and not (role == "assistant" and last.tool_calls):
            self.messages[-1] = Message(role=role, parts=(*last.parts, *said))
        elif said:
            self.messages.append(Message(role=role, parts=said))
            self.names.append(f"{self.unit} {self.index if index is None else index}")
        if role == "tool":
            self._in_call_order()

    def _in_call_order(self) -> None:
        calls = [call.id for call in self.messages[-2].tool_calls] if len(self.messages) > 1 else []
        place = {call: index for index, call in enumerate(calls)}
        parts = sorted(self.messages[-1].parts, key=lambda part: place.get(getattr(part, "id", ""), len(place)))
        self.messages[-1] = Message(role="tool", parts=tuple(parts))

    def _call(self, identity: Any, name: Any, arguments: Any) -> Part:
        self._names[_text(identity)] = _text(name)
        if not isinstance(arguments, dict):
            raise TypeError(f"the arguments of the call {identity!r:.40} are no object")
        return ToolCall(id=identity, name=name, arguments=arguments)

    def _response(self, identity: Any, response: str, *, is_error: bool) -> Part:
        if _text(identity) not in self._names:
            raise ValueError(f"it responds to {identity!r:.40}, which nobody called")
        return ToolCallResponse(id=identity, name=self._names[identity], response=response, is_error=is_error)

    def _image(self, url: Any) -> Uri | Blob:
        found = re.match(DATA, _text(url))
        return Uri(uri=url) if found is None else self._bytes(found.group(1), url[found.end() :])

    def _bytes(self, media_type: Any, data: Any) -> Blob:
        try:
            content = base64.b64decode(_text(data), validate=True)
        except binascii.Error as error:
            raise ValueError(f"its bytes are not in base64: {error}") from None
        return self._kept(Media(content, mime_type=_text(media_type)))

    def _kept(self, media: Media) -> Blob:
        self.media.append(media)
        return media.blob


class _Chat(_Reader):
    """Messages of the Chat Completions API."""

    source = "openai"

    def take(self, item: Mapping[str, Any]) -> None:
        """One message of the Chat Completions API."""
        role = item["role"]
        content = item.get("content")
        if role in ("system", "developer"):
            self.instructions.append(_plain(content))
        elif role == "user":
            self._say("user", self._parts(content))
        elif role == "assistant":
            parts = [*self._parts(content)] if content else []
            if item.get("refusal"):
                parts.append(Text(_text(item["refusal"])))
            for call in item.get("tool_calls") or ():
                function = call["function"]
                parts.append(self._call(call["id"], function["name"], json.loads(function["arguments"] or "{}")))
            self._say("assistant", parts)
        elif role == "tool":
            self._say("tool", [self._response(item["tool_call_id"], _plain(content), is_error=False)])
        else:
            raise ValueError(f"the role {role!r:.40} is unknown")

    def _parts(self, content: Any) -> Iterable[Part]:
        for part in [content] if isinstance(content, str) else content:
            if isinstance(part, str):
                yield Text(part)
            elif part["type"] in ("text", "input_text", "output_text"):
                yield Text(_text(part["text"]))
            elif part["type"] == "refusal":
                yield Text(_text(part["refusal"]))
            elif part["type"] == "image_url":
                url = part["image_url"]["url"] if isinstance(part["image_url"], Mapping) else part["image_url"]
                yield self._image(url)
            else:
                raise ValueError(f"a part of type {part['type']!r:.40} can't be kept")


class _Anthropic(_Reader):
    """Messages of the Messages API."""

    source = "anthropic"

    def take(self, item: Mapping[str, Any]) -> None:
        """One message of the Messages API."""
        role, content = item["role"], item["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role == "assistant":
            self._say("assistant", [part for block in blocks for part in self._answer(block)])
        elif role == "user":
            results = [block for block in blocks if block["type"] == "tool_result"]
            if results:
                self._say("tool", [self._result(block) for block in results])
            self._say("user", [self._part(block) for block in blocks if block["type"] != "tool_result"])
        elif role == "system":
            self.instructions.append(_plain(content))
        else:
            raise ValueError(f"the role {role!r:.40} is unknown")

    def _answer(self, block: Any) -> Iterable[Part]:
        kind = block["type"]
        if kind == "thinking":
            yield Reasoning(_text(block["thinking"]))
        elif kind == "tool_use":
            yield self._call(block["id"], block["name"], block["input"])
        elif kind != "redacted_thinking":
            # What only its provider can read is of no use to anybody here.
            yield self._part(block)

    def _part(self, block: Any) -> Part:
        if block["type"] == "text":
            return Text(_text(block["text"]))
        if block["type"] in ("image", "document"):
            source = block["source"]
            if source["type"] == "url":
                # A provider is told of an address alone that an image is there, and documents are all PDF.
                return Uri(uri=_text(source["url"]), mime_type="application/pdf" if block["type"] == "document" else "")
            return self._bytes(source["media_type"], source["data"])
        raise ValueError(f"a block of type {block['type']!r:.40} can't be kept")

    def _result(self, block: Any) -> Part:
        return self._response(block["tool_use_id"], _plain(block.get("content") or ""), is_error=bool(block.get("is_error")))


class _Responses(_Reader):
    """Items of the Responses API, as OpenAI's Agents SDK keeps them. A call's output belongs to it wherever it stands behind it."""

    unit = "item"
    source = "openai-responses"

    def __init__(self, given: Sequence[Any]) -> None:
        super().__init__(given)
        self._said: list[Part] = []
        self._calls: list[tuple[int, str]] = []
        self._began = 0
        self._outputs: dict[str, deque[int]] = {}
        self._taken: set[int] = set()
        for index, item in enumerate(given):
            if isinstance(item, Mapping) and item.get("type") == "function_call_output" and isinstance(item.get("call_id"), str):
                self._outputs.setdefault(item["call_id"], deque()).append(index)

    def take(self, item: Mapping[str, Any]) -> None:
        """One item."""
        kind = item["type"] if item.get("type") is not None else "message"
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            # What only its provider can read is of no use to anybody here.
            readable = [*(item.get("summary") or ()), *(item.get("content") or ())]
            self._answers([Reasoning(_text(part["text"])) for part in readable])
        elif kind == "function_call":
            call = self._call(item["call_id"], item["name"], json.loads(item["arguments"] or "{}"))
            if item["call_id"] in [known for _, known in self._calls]:
                raise ValueError(f"the id {item['call_id']!r:.60} is that of another call of this answer")
            self._answers([call])
            self._calls.append((self.index, item["call_id"]))
        elif kind == "function_call_output":
            self._end_of_answer()
            if self.index not in self._taken:
                raise ValueError(f"it responds to {_text(item['call_id'])!r:.60}, which nobody called before it")
        elif kind == "item_reference":
            raise ValueError("it refers to what stands at OpenAI; fetch the item itself")
        else:
            raise ValueError(f"what stands in an item of type {kind!r:.40} can't be kept; the conversation can be read without it")

    def end(self) -> None:
        """The last answer has nothing behind it."""
        self._end_of_answer()

    def _message(self, item: Mapping[str, Any]) -> None:
        role = item["role"]
        content = [{"type": "input_text", "text": item["content"]}] if isinstance(item["content"], str) else item["content"]
        if role in ("system", "developer"):
            self.instructions.append(_plain(content))
        elif role == "assistant":
            self._answers([part for part in map(self._part, content) if part != Text("")])
        elif role == "user":
            self._end_of_answer()
            parts = [*map(self._part, content)]
            if all(isinstance(part, Text) and not part.content.strip() for part in parts):
                raise ValueError("it says nothing")
            self._say("user", parts)
        else:
            raise ValueError(f"the role {role!r:.40} is unknown")

    def _answers(self, parts: Iterable[Part]) -> None:
        if not self._said:
            self._began = self.index
        self._said += parts

    def _end_of_answer(self) -> None:
        """What the model said in several items is one message, and what its calls came to another."""
        said, calls, self._said, self._calls = self._said, self._calls, [], []
        # Thinking that nothing follows is what is left of an answer that was cut off.
        if any(not isinstance(part, Reasoning) and not (isinstance(part, Text) and not part.content.strip()) for part in said):
            if not self.messages:
                raise InvalidTranscript(
                    f"item {self._began} is an answer, and nobody asked before it", hint="begin with a message of the user's"
                )
            self._say("assistant", said, self._began)
        if calls:
            self._say("tool", [self._came_to(index, call) for index, call in calls], calls[0][0])

    def _came_to(self, index: int, call: str) -> Part:
        places = self._outputs.get(call) or deque()
        while places and places[0] < index:
            places.popleft()
        if not places:
            raise InvalidTranscript(
                f"item {index} calls {self._names[call]!r:.60} as {call!r:.60}, and no item behind it has what that came to",
                hint="add its function_call_output, or leave the call out",
            )
        place = places.popleft()
        self._taken.add(place)
        with self.naming(place):
            return self._output(call, self.given[place]["output"])

    def _output(self, call: str, output: Any) -> Part:
        """What a call came to; words stand for what is no text, and its bytes beside them."""
        parts = [Text(output)] if isinstance(output, str) else [*map(self._part, output)]
        words: list[str] = []
        for part in parts:
            words.append(described(part) if isinstance(part, Blob) else f"[{part.uri}]" if isinstance(part, Uri) else part.content)
        media = tuple([part for part in parts if isinstance(part, Blob)])
        return ToolCallResponse(id=call, name=self._names[call], response="".join(words), media=media)

    def _part(self, part: Any) -> Text | Uri | Blob:
        kind = part["type"]
        if kind in ("input_text", "output_text", "text", "summary_text", "reasoning_text"):
            return Text(_text(part["text"]))
        if kind == "refusal":
            return Text(_text(part["refusal"]))
        if kind == "input_audio":
            sound = part["input_audio"]
            return self._kept(from_base64(_text(sound["data"]), mime_type=SOUNDS.get(sound["format"], _text(sound["format"]))))
        if kind not in ("input_image", "input_file"):
            raise ValueError(f"a part of type {kind!r:.40} can't be kept")
        name = _text(part.get("filename") or "")
        if kind == "input_image" and part.get("image_url"):
            return self._image(part["image_url"])
        if part.get("file_data"):
            data = _text(part["file_data"])
            return self._kept(from_data_uri(data, name=name) if data[:5].lower() == "data:" else from_base64(data, name=name))
        if part.get("file_url"):
            url = _text(part["file_url"])
            guessed = mimetypes.guess_type(name or urlsplit(url).path)[0]
            # An address alone is one of an image.
            return Uri(uri=url, mime_type=guessed or "application/octet-stream")
        if part.get("file_id"):
            raise ValueError(f"its bytes stand at OpenAI, as {_text(part['file_id'])!r:.60}; fetch them, and write them as data")
        raise KeyError("image_url" if kind == "input_image" else "file_data")


READERS: dict[str, type[_Reader]] = {"openai": _Chat, "openai-responses": _Responses, "anthropic": _Anthropic}


def _plain(content: Any) -> str:
    """The text of a content that is text, or parts of text."""
    if isinstance(content, str):
        return content
    return "".join(_text(part if isinstance(part, str) else part["text"]) for part in content or ())


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} stands where text belongs")
    return value
