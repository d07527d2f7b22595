"""Models that are written down: for tests, examples and rehearsals without a provider."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, cast

import msgspec

from ..core.context import NOTES_TOOL
from ..core.errors import UsageError
from ..core.messages import Part, Private, Reasoning, Text, ToolCall
from ..core.usage import Usage
from .base import Delta, Finish, ModelOutput, ModelRequest, ReasoningDelta, TextDelta

__all__ = ["FunctionModel", "Reply", "ScriptedModel", "Step", "saved"]

CHUNKS = 3
"""Into how many deltas the text of a `Reply` is cut, so that whoever listens meets more than one."""


class Reply(msgspec.Struct, frozen=True):
    """A whole answer, written by hand.

    Calls without an id get one that is unique in the session and the same after a restart. ``finish`` None is *tool_calls* with
    calls and *stop* without. ``usage`` None is unknown. ``private`` is kept for the model's own group, as providers keep theirs.
    """

    text: str = ""
    tool_calls: Sequence[ToolCall] = ()
    usage: Usage | None = None
    reasoning: str = ""
    finish: Finish | None = None
    model: str = ""
    private: Any = None


Answer: TypeAlias = "Reply | str"
Step: TypeAlias = "Reply | str | Exception | Callable[[ModelRequest], Answer | Awaitable[Answer]]"
STEP = "a Reply, a text, an exception to raise, or a function of the request"
Function: TypeAlias = "Callable[[ModelRequest], Answer | Awaitable[Answer] | AsyncIterator[Delta | Answer]]"


class FunctionModel:
    """A model whose answers a function writes.

    ``fn(request)`` returns a `Reply` or a text; it may be ``async``, or an async generator that yields texts and deltas as they come
    and a `Reply` last. (A last `Reply` without text takes the text that was streamed.) What ``fn`` raises reaches the caller as it
    is. A plain function runs in the event loop and should not block. Cancellation is raised inside ``fn`` where it awaits.
    ``window`` is how many tokens a request may have, ``count`` counts those of a text; both only matter to who prepares requests.
    """

    def __init__(
        self,
        fn: Function,
        *,
        name: str = "function",
        group: str | None = None,
        window: int | None = None,
        count: Callable[[str], int] | None = None,
    ) -> None:
        if not callable(fn):
            raise UsageError(f"a FunctionModel needs a function, not {type(fn).__name__}")
        self._fn = fn
        self._name = name
        self._group = name if group is None else group
        self.window = window
        self.count = count

    @property
    def name(self) -> str:
        """The route's name."""
        return self._name

    @property
    def group(self) -> str:
        """The group of routes that share private reasoning; the route's name if none was given."""
        return self._group

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelOutput, None]:
        """The deltas of the answer, then the answer. Raises `UsageError` if the function returns anything else, and what it raises."""
        result: Any = self._fn(request)
        if inspect.isawaitable(result):
            result = await result
        if not hasattr(result, "__aiter__"):
            reply = _reply(result)
            for delta in _deltas(reply):
                yield delta
            yield _output(reply, request, self._group)
            return

        source = cast("AsyncGenerator[Delta | Answer, None]", result)
        text, reasoning = "", ""
        last: Reply | None = None
        async with aclosing(source):
            async for item in source:
                if last is not None:
                    raise UsageError("the function went on after its Reply", hint="yield the Reply last")
                match item:
                    case Reply():
                        last = item
                    case str():
                        text += item
                        yield TextDelta(text=item)
                    case TextDelta():
                        text += item.text
                        yield item
                    case ReasoningDelta():
                        reasoning += item.text
                        yield item
                    case _:
                        raise UsageError(
                            f"the function yielded the type {type(item).__name__}", hint="yield texts, deltas, and a Reply last"
                        )
        if last is None:
            raise UsageError("the function ended without a Reply", hint="yield a Reply last")
        if not text and not reasoning:
            for delta in _deltas(last):
                yield delta
        last = msgspec.structs.replace(last, text=last.text or text, reasoning=last.reasoning or reasoning)
        yield _output(last, request, self._group)


class ScriptedModel(FunctionModel):
    """A model that plays a script: its n-th answer in a conversation is the n-th of ``steps``.

    A step is a `Reply`, a text, an exception that is raised, or a function of the request. The step is found by counting the
    assistant messages of the request and nothing is remembered, so a new process goes on where the old one was, a repeated attempt
    plays the same step, and one model serves any number of sessions. Raises `UsageError` when the script is at its end.

    ``notes`` is what it answers, in each place, when it is asked for notes of the conversation: a step. A text is saved as the notes.
    ``memory`` is what it answers when it is asked what to remember: a step too.
    ``repairs`` are its first, second, … correction of any answer that is not what it has to be; a correction is no answer of its own.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        *,
        name: str = "scripted",
        group: str | None = None,
        window: int | None = None,
        count: Callable[[str], int] | None = None,
        notes: Step = "What was said so far.",
        memory: Step = "[]",
        repairs: Iterable[Step] = (),
    ) -> None:
        super().__init__(self._play, name=name, group=group, window=window, count=count)
        self._steps = _script(steps, "the script")
        self._repairs = _script(repairs, "repairs=")
        self._notes = _check_step(notes, "notes=")
        self._memory = _check_step(memory, "memory=")

    def _play(self, request: ModelRequest) -> Answer | Awaitable[Answer]:
        if request.purpose == "notes":
            return self._step(saved(self._notes), request)
        if request.purpose == "memory":
            return self._step(self._memory, request)
        if request.purpose == "repair":
            if request.repair > len(self._repairs):
                raise UsageError(f"the script has {len(self._repairs)} repairs, and another was asked for", hint="add a step to repairs=")
            return self._step(self._repairs[request.repair - 1], request)
        position = request.answers
        if position >= len(self._steps):
            steps = "1 step" if len(self._steps) == 1 else f"{len(self._steps)} steps"
            raise UsageError(
                f"the script has {steps}, and step {position + 1} was asked for",
                hint="add a step, or look why the agent went on",
            )
        return self._step(self._steps[position], request)

    @staticmethod
    def _step(step: Step, request: ModelRequest) -> Answer | Awaitable[Answer]:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, Reply | str):
            return step
        return step(request)


def _script(steps: Iterable[Step], what: str) -> tuple[Step, ...]:
    if not isinstance(steps, Iterable):
        raise UsageError(f"{what} is a list of steps, not {steps!r:.100}", hint=STEP)
    listed: tuple[Step, ...] = (steps,) if isinstance(steps, str) else tuple(steps)
    return tuple(_check_step(step, f"step {number} of {what}") for number, step in enumerate(listed, 1))


def _check_step(step: Step, what: str) -> Step:
    if isinstance(step, type) or not (isinstance(step, Reply | str | Exception) or callable(step)):
        raise UsageError(f"{what} is {step!r:.100}", hint=STEP)
    return step


def saved(step: Step) -> Step:
    """Notes as the call that saves them, where a text was written for them."""
    reply = Reply(step) if isinstance(step, str) else step
    if isinstance(reply, Reply) and reply.text and not reply.tool_calls:
        return msgspec.structs.replace(reply, text="", tool_calls=[ToolCall(NOTES_TOOL, {"notes": reply.text})])
    return step


def _reply(value: Any) -> Reply:
    if isinstance(value, str):
        return Reply(value)
    if isinstance(value, Reply):
        return value
    raise UsageError(f"a scripted answer is of the type {type(value).__name__}", hint="return a Reply or a text")


def _deltas(reply: Reply) -> Iterator[Delta]:
    for chunk in _chunks(reply.reasoning):
        yield ReasoningDelta(text=chunk)
    for chunk in _chunks(reply.text):
        yield TextDelta(text=chunk)


def _chunks(text: str) -> Iterator[str]:
    size = max(1, -(-len(text) // CHUNKS))
    return (text[start : start + size] for start in range(0, len(text), size))


def _output(reply: Reply, request: ModelRequest, group: str) -> ModelOutput:
    parts: list[Part] = []
    if reply.private is not None:
        parts.append(Private(group=group, data=reply.private))
    if reply.reasoning:
        parts.append(Reasoning(content=reply.reasoning))
    if reply.text:
        parts.append(Text(content=reply.text))
    # Counting is as long as the conversation, so it is left to those who need it.
    position = request.answers if any(not call.id for call in reply.tool_calls) else 0
    for index, call in enumerate(reply.tool_calls):
        parts.append(call if call.id else msgspec.structs.replace(call, id=f"call_{position}_{index}"))
    finish: Finish = reply.finish or ("tool_calls" if reply.tool_calls else "stop")
    return ModelOutput(parts=tuple(parts), finish=finish, usage=reply.usage, model=reply.model)
