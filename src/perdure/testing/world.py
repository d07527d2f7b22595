"""The world outside of a test's processes: what tools did to it stays done, whoever dies."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.entries import Entry
from ..models.scripted import FunctionModel, Reply, Step, saved
from ..runtime.model_calls import Pairing
from ..tools.context import ToolContext
from ..tools.running import ToolError

if TYPE_CHECKING:
    from ..models.base import Delta, ModelRequest
    from .stage import Point

__all__ = ["Effect", "World"]

PURPOSES = {"answer": "model", "notes": "compaction", "memory": "memory", "repair": "repair"}
"""The kind of operation that asks a model for something."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Something that a tool did. ``effect`` is the tool's class, ``key`` the call's idempotency key."""

    key: str
    tool: str
    effect: str
    value: Any
    session_id: str
    operation: str
    call: str
    attempt: int

    @property
    def identity(self) -> tuple[str, str, str]:
        """What it is, whichever turn number it happened in."""
        return self.session_id, self.operation.split(".", 1)[1].split(".", 1)[0], f"{self.call}:{self.tool}:{self.value}"


@dataclass
class World:
    """Where a scenario's tools and models act, and where a process can be killed while they do.

    `act` is an effect: it is recorded for good, and has a point before and after it at which the process may die. `point` is such a
    moment anywhere else. `until` / `reached` let tools, models and scripts wait for each other; what was reached stays reached.
    ``asked`` counts the requests that a provider would have seen, and charged for, by session and kind of operation; ``routes`` are
    those of the models that are the world's. ``memory`` is whatever else the world has to remember, ``refused`` the (key, attempt) that
    come too late, from a process that was thought dead.
    """

    effects: list[Effect] = field(default_factory=list)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    routes: set[str] = field(default_factory=set)
    memory: dict[str, Any] = field(default_factory=dict)
    refused: set[tuple[str, int]] = field(default_factory=set)
    visit: Callable[[Point], Any] | None = None
    _reached: dict[str, asyncio.Event] = field(default_factory=dict)

    async def point(self, kind: str, name: str, when: str) -> None:
        """A moment at which the process may be killed. If it is, this never returns."""
        from .stage import Point

        if self.visit is not None:
            await self.visit(Point(kind, name, when))

    async def act(self, context: ToolContext, tool: str, value: Any = None, *, effect: str = "external") -> None:
        """Do something for good."""
        await self.point("effect", tool, "before")
        if (context.idempotency_key, context.attempt) in self.refused:
            raise ToolError("this attempt comes too late")
        self.effects.append(
            Effect(
                key=context.idempotency_key,
                tool=tool,
                effect=effect,
                value=value,
                session_id=context.session_id,
                operation=context.operation,
                call=context.call,
                attempt=context.attempt,
            )
        )
        await self.point("effect", tool, "after")

    async def ask(self, request: ModelRequest, name: str) -> None:
        """A request reaches its provider; the process may die right before."""
        await self.point("model", name, "before")
        self.routes.add(request.route)
        self.asked[request.session_id, PURPOSES[request.purpose]] += 1

    def unrecorded(self, session_id: str, entries: Iterable[Entry]) -> Iterator[str]:
        """Sentences about calls of models that a session's ledger, with those that it knows to be under way, lacks."""
        recorded = self._recorded(entries)
        for (session, kind), times in self.asked.items():
            if session == session_id and times > recorded[kind]:
                yield f"a model was asked {times} times for {kind}, and the ledger has {recorded[kind]} of them"

    def invented(self, session_id: str, entries: Iterable[Entry], cut_off: Mapping[str, int]) -> Iterator[str]:
        """Sentences about calls in a session's ledger that nobody made. ``cut_off``: how many of each kind may have died before that."""
        for kind, times in self._recorded(entries).items():
            made = self.asked[session_id, kind]
            if times > made + cut_off.get(kind, 0):
                yield f"the ledger has {times} calls for {kind}, and a model was asked {made} times"

    def _recorded(self, entries: Iterable[Entry]) -> Counter[str]:
        """How many calls of the world's models a journal knows of, by kind: those that ended and those that were begun."""
        pairing = Pairing()
        calls = [call for entry in entries if (call := pairing.take(entry)) is not None and call.route in self.routes]
        begun = [entry for entry in pairing.open if entry.request is not None and entry.request.route in self.routes]
        return Counter(call.kind for call in calls) + Counter(pairing.kinds.get(entry.operation, "model") for entry in begun)

    def did(self, key: str) -> bool:
        """Whether something was done under this idempotency key."""
        return any(effect.key == key for effect in self.effects)

    def refuse(self, key: str, attempt: int) -> bool:
        """See to it that an attempt never does anything, as one must before saying that it didn't. False: it did."""
        if any(effect.key == key and effect.attempt == attempt for effect in self.effects):
            return False
        self.refused.add((key, attempt))
        return True

    def times(self, key: str) -> int:
        """How often something was done under this idempotency key."""
        return sum(effect.key == key for effect in self.effects)

    async def until(self, name: str) -> None:
        """Wait until somebody has `reached` something."""
        await self._reached.setdefault(name, asyncio.Event()).wait()

    def reached(self, name: str) -> None:
        """Let those go on who wait for it."""
        self._reached.setdefault(name, asyncio.Event()).set()

    def model(
        self,
        steps: list[Step],
        *,
        name: str = "scripted",
        notes: Step = "What was said so far.",
        memory: Step = "[]",
        repairs: Sequence[Step] = (),
        window: int | None = None,
    ) -> FunctionModel:
        """A model that plays a script, as `ScriptedModel` does, and can be killed before it answers and in the middle of the stream."""

        self.routes.add(name)

        async def play(request: ModelRequest) -> AsyncIterator[Delta | Reply | str]:
            aside: dict[str, Step] = {"notes": saved(notes), "memory": memory}
            step: Any
            if request.purpose == "repair":
                position, step = f"repair {request.repair}", repairs[request.repair - 1]
            elif request.purpose in aside:
                position, step = request.purpose, aside[request.purpose]
            else:
                position, step = str(request.answers), steps[request.answers]
            await self.ask(request, position)
            if isinstance(step, Exception):
                raise step
            if not isinstance(step, Reply | str):
                step = step(request)
                if inspect.isawaitable(step):
                    step = await step
            reply = Reply(step) if isinstance(step, str) else step
            if reply.text:
                yield reply.text[: len(reply.text) // 2]
            await self.point("model", position, "within")
            if reply.text:
                yield reply.text[len(reply.text) // 2 :]
            yield reply

        return FunctionModel(play, name=name, window=window)
