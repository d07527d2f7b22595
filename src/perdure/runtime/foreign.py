"""Message lists of other systems, as messages: the two forms that most programs keep."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from ..core.errors import InvalidMedia, InvalidTranscript, MediaTooLarge
from ..core.media import Media
from ..core.messages import Message, Part, Reasoning, Text, ToolCall, ToolCallResponse, Uri

__all__ = ["Foreigner", "read"]

Foreigner: TypeAlias = Literal["openai", "anthropic"]

DATA = r"data:([\w.+-]+/[\w.+-]+);base64,"


class Read(NamedTuple):
    """Messages, the media that they refer to, and the instructions that stood among them, which are no messages here."""

    messages: tuple[Message, ...]
    media: tuple[Media, ...]
    instructions: str


def read(source: Foreigner, given: Sequence[Any]) -> Read:
    """A list as the Chat Completions or the Messages API takes it. Raises `InvalidTranscript`, and says which message can't be one."""
    reader = _Reader()
    for index, item in enumerate(given):
        if not isinstance(item, Mapping):
            raise InvalidTranscript(f"message {index} is of the type {type(item).__name__}", hint="a list of objects with role and content")
        try:
            reader.openai(item) if source == "openai" else reader.anthropic(item)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            told = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise InvalidTranscript(f"message {index} can't be read: {told}", hint=f"as {source} writes them") from None
        except (InvalidMedia, MediaTooLarge) as error:
            raise InvalidTranscript(f"message {index} can't be kept: {error.message}", hint=error.hint) from None
    return Read(tuple(reader.messages), tuple(reader.media), "\n\n".join(reader.instructions))


class _Reader:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.media: list[Media] = []
        self.instructions: list[str] = []
        self._names: dict[str, str] = {}

    def _say(self, role: Any, parts: Iterable[Part]) -> None:
        """Another message; what one side says in several becomes one where a transcript has one."""
        said = tuple(parts)
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == role and role in ("tool", "assistant") and not (role == "assistant" and last.tool_calls):
            self.messages[-1] = Message(role=role, parts=(*last.parts, *said))
        elif said:
            self.messages.append(Message(role=role, parts=said))
        if role == "tool":
            self._in_call_order()

    def _in_call_order(self) -> None:
        calls = [call.id for call in self.messages[-2].tool_calls] if len(self.messages) > 1 else []
        place = {call: index for index, call in enumerate(calls)}
        parts = sorted(self.messages[-1].parts, key=lambda part: place.get(getattr(part, "id", ""), len(place)))
        self.messages[-1] = Message(role="tool", parts=tuple(parts))

    def openai(self, item: Mapping[str, Any]) -> None:
        """One message of the Chat Completions API."""
        role = item["role"]
        content = item.get("content")
        if role in ("system", "developer"):
            self.instructions.append(_plain(content))
        elif role == "user":
            self._say("user", self._openai_parts(content))
        elif role == "assistant":
            parts = [*self._openai_parts(content)] if content else []
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

    def _openai_parts(self, content: Any) -> Iterable[Part]:
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

    def anthropic(self, item: Mapping[str, Any]) -> None:
        """One message of the Messages API."""
        role, content = item["role"], item["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role == "assistant":
            self._say("assistant", [part for block in blocks for part in self._anthropic_answer(block)])
        elif role == "user":
            results = [block for block in blocks if block["type"] == "tool_result"]
            if results:
                self._say("tool", [self._result(block) for block in results])
            self._say("user", [self._anthropic_part(block) for block in blocks if block["type"] != "tool_result"])
        elif role == "system":
            self.instructions.append(_plain(content))
        else:
            raise ValueError(f"the role {role!r:.40} is unknown")

    def _anthropic_answer(self, block: Any) -> Iterable[Part]:
        kind = block["type"]
        if kind == "thinking":
            yield Reasoning(_text(block["thinking"]))
        elif kind == "tool_use":
            yield self._call(block["id"], block["name"], block["input"])
        elif kind != "redacted_thinking":
            # What only its provider can read is of no use to anybody here.
            yield self._anthropic_part(block)

    def _anthropic_part(self, block: Any) -> Part:
        if block["type"] == "text":
            return Text(_text(block["text"]))
        if block["type"] in ("image", "document"):
            source = block["source"]
            if source["type"] == "url":
                return Uri(uri=_text(source["url"]))
            return self._bytes(source["media_type"], source["data"])
        raise ValueError(f"a block of type {block['type']!r:.40} can't be kept")

    def _result(self, block: Any) -> Part:
        return self._response(block["tool_use_id"], _plain(block.get("content") or ""), is_error=bool(block.get("is_error")))

    def _call(self, identity: Any, name: Any, arguments: Any) -> Part:
        self._names[_text(identity)] = _text(name)
        if not isinstance(arguments, dict):
            raise TypeError(f"the arguments of the call {identity!r:.40} are no object")
        return ToolCall(id=identity, name=name, arguments=arguments)

    def _response(self, identity: Any, response: str, *, is_error: bool) -> Part:
        if _text(identity) not in self._names:
            raise ValueError(f"it responds to {identity!r:.40}, which nobody called")
        return ToolCallResponse(id=identity, name=self._names[identity], response=response, is_error=is_error)

    def _image(self, url: Any) -> Part:
        found = re.match(DATA, _text(url))
        return Uri(uri=url) if found is None else self._bytes(found.group(1), url[found.end() :])

    def _bytes(self, media_type: Any, data: Any) -> Part:
        try:
            content = base64.b64decode(_text(data), validate=True)
        except binascii.Error as error:
            raise ValueError(f"its bytes are not in base64: {error}") from None
        media = Media(content, mime_type=_text(media_type))
        self.media.append(media)
        return media.blob


def _plain(content: Any) -> str:
    """The text of a content that is text, or parts of text."""
    if isinstance(content, str):
        return content
    return "".join(_text(part if isinstance(part, str) else part["text"]) for part in content or ())


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} stands where text belongs")
    return value
