"""What the tests of the catalogue share: conversations, and transcripts in one line a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from perdure import Agent, FunctionModel, Message, ModelRequest, RedactedPart, Reply, Text, ToolCall, ToolCallResponse, tool
from perdure.testing.checks import find_all_problems
from tests.integration.interactive.acting import Process


def echoing(name: str = "helper", **more: Any) -> Agent:
    """An agent that answers every message with its number."""

    def answer(request: ModelRequest) -> Reply:
        return Reply(f"answer {sum(message.role == 'assistant' for message in request.messages) + 1}")

    return Agent(name, model=FunctionModel(answer), **more)


class Payments:
    """A world that remembers what was done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []


def paying(payments: Payments, *, approve: Any = (), guard: Any = "ask", key: Any = ("order", "cents")) -> Agent:
    """An agent that pays whatever the last message names: ``pay A 5 ref1``."""

    @tool(effect="external", key=key, guard=guard)
    async def pay(order: str, cents: int, reference: str) -> str:
        """Pay an order."""
        payments.done.append(f"{order} {cents} {reference}")
        return f"paid {order}"

    def answer(request: ModelRequest) -> Reply:
        last = request.messages[-1]
        if last.role == "user" and last.text.startswith("pay "):
            order, cents, reference = last.text.split()[1:]
            arguments = {"order": order, "cents": int(cents), "reference": reference}
            return Reply(tool_calls=[ToolCall(name="pay", arguments=arguments, id=f"call_{reference}")])
        return Reply("done" if last.role == "tool" else "hello")

    return Agent("payer", model=FunctionModel(answer), tools=[pay], approve=approve)


async def talk(process: Process, *said: str, agent: Agent | None = None, session: str = "s") -> None:
    """Turns, one after the other."""
    for text in said:
        result = await process.run(agent or echoing(), text, session=session, owner="acme")
        assert result.ok


@contextmanager
def meanwhile(process: Process, methods: tuple[str, ...], nth: int, what: Callable[[], Awaitable[Any]]) -> Iterator[list[str]]:
    """``what`` is done before the ``nth`` call of these methods of the store; yields the calls, as they come."""
    calls: list[str] = []

    async def call(name: str, method: Callable[..., Awaitable[Any]], *given: Any, **named: Any) -> Any:
        calls.append(name)
        if len(calls) == nth:
            await what()
        return await method(*given, **named)

    with ExitStack() as patched:
        for name in methods:
            patched.enter_context(patch.object(process.store, name, partial(call, name, getattr(process.store, name))))
        yield calls


async def edit_fixture(process: Process) -> None:
    """Four messages: two questions with their answers."""
    await talk(process, "hello", "follow up")


def line(message: Message) -> str:
    """A message in one line."""
    said = []
    for part in message.parts:
        match part:
            case Text():
                said.append(part.content)
            case ToolCall():
                said.append(f"{part.name}({part.id})")
            case ToolCallResponse():
                said.append(f"{part.id}={part.response}")
            case RedactedPart():
                said.append(f"<{part.was}{' ' + part.call if part.call else ''}>")
            case _:
                said.append(type(part).__name__)
    return f"{message.role}: {' '.join(said)}"


async def lines(process: Process, session: str = "s", **more: Any) -> list[str]:
    """The whole transcript; every message says where it stands."""
    messages = await process.sessions.history(session, limit=10_000, **more)
    assert [message.position for message in messages] == list(range(len(messages)))
    return [line(message) for message in messages]


async def sound(process: Process) -> None:
    """Nothing is wrong with anything that is stored."""
    assert await find_all_problems(process.store) == []
