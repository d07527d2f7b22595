"""A store that fails where a test wants it to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Literal, TypeAlias, TypeVar

from ..core.errors import StoreBroken
from ..store.base import Commit, Committed, Store
from ..store.passing import PassingStore
from .clock import VirtualClock

__all__ = ["READS", "WRITES", "Call", "Fault", "FaultStore", "ProcessDied", "When"]

T = TypeVar("T")

When: TypeAlias = Literal["before", "after"]

POOLS = ("pool", "pools", "change_pool", "remove_pool", "share")
"""The operations of a store that keeps pools."""

WRITES = (
    "commit",
    "send",
    "create",
    "adopt",
    "claim",
    "release",
    "heartbeat",
    "retire",
    "put_blob",
    "ack",
    "forget",
    "delete",
    "free",
    "vacuum",
    *POOLS[2:],
)
"""The operations that change something."""

READS = (
    *(name for name, method in vars(PassingStore).items() if iscoroutinefunction(method) and name not in (*WRITES, "open", "close")),
    *POOLS[:2],
    "figures",
)
"""The others."""

_TOLD_BY = {"create": 1, "submission": 1, "blob": 1, "put_blob": 1, "cursor": 1, "ack": 1}
"""Where the argument stands by which an operation is told of, if it isn't the first."""


class ProcessDied(StoreBroken):
    """The process that this store belongs to is dead, as far as the test is concerned: nothing that it still does has any effect."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with the ``nth`` operation (from 1) of a ``kind``; the kind "write" is any of `WRITES`, "any" is any at all.

    ``before``: it is not performed. ``after``: it is, but nobody hears of it. ``break`` raises ``error``, a `StoreBroken` by default;
    ``die`` makes the store's process a dead one, for good. ``times`` is how many operations from the nth on fail, where the store lives on.
    """

    kind: str = "commit"
    nth: int = 1
    when: When = "before"
    action: Literal["break", "die"] = "break"
    times: int = 1
    error: Exception | None = None

    def __post_init__(self) -> None:
        if self.kind not in (*WRITES, *READS, "write", "any"):
            raise ValueError(f"a store has no operation {self.kind!r}")
        if self.nth < 1 or self.times < 1:
            raise ValueError("operations count from 1")

    def hits(self, call: Call, when: When) -> bool:
        """Whether an operation fails by this."""
        number = {"write": call.write, "any": call.number}.get(self.kind, call.nth if call.kind == self.kind else 0)
        return when == self.when and self.nth <= number < self.nth + self.times


@dataclass(kw_only=True)
class Call:
    """One operation as the store saw it: ``given`` is what it was given, ``answer`` what the inner store said.

    ``number`` counts all operations from 1, ``nth`` those of its kind, ``write`` those that change something (0: it doesn't).
    """

    kind: str
    number: int
    nth: int
    write: int
    given: Any
    answer: Any = None
    answered: bool = False


Gate: TypeAlias = Callable[[Call, When], Awaitable[None]]


@dataclass
class FaultStore(PassingStore):
    """Any store, with ``faults``. Everything that is not faulty goes to ``inner`` as it is.

    ``gate(call, "before" | "after")`` is awaited around every operation: there a test can watch, delay, reorder, raise, or `kill`.
    ``calls`` lists every operation, if ``keep`` is true. ``clock``: a `VirtualClock` that stands still while the inner store works.
    ``on_death`` is called once, when the process dies. After that every operation raises `ProcessDied` and does nothing; `close` lets
    the inner store go, as the operating system would.
    """

    inner: Store
    faults: Sequence[Fault] = ()
    gate: Gate | None = None
    clock: VirtualClock | None = None
    on_death: Callable[[], None] | None = None
    keep: bool = True
    calls: list[Call] = field(default_factory=list)
    dead: bool = False
    _counts: dict[str, int] = field(default_factory=dict)
    _under_way: int = 0
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def kill(self) -> None:
        """The process is dead from now on."""
        if not self.dead:
            self.dead = True
            if self.on_death is not None:
                self.on_death()

    @property
    def commits(self) -> list[Commit]:
        """The commits that the inner store took, in order; one that it refused changed nothing."""
        return [call.given for call in self.calls if call.kind == "commit" and isinstance(call.answer, Committed)]

    def count(self, kind: str) -> int:
        """How many operations of a kind were asked for so far."""
        return self._counts.get(kind, 0)

    async def quiet(self) -> None:
        """Return once the inner store has answered all that it was given: what a dead process had asked for is stored or never will be."""
        if self._under_way:
            await self._quiet.wait()

    async def _do(self, kind: str, given: Any, operation: Callable[[], Awaitable[T]]) -> T:
        self._check()
        for counted in (kind, "any", *(("write",) if kind in WRITES else ())):
            self._counts[counted] = self._counts.get(counted, 0) + 1
        call = Call(
            kind=kind,
            number=self._counts["any"],
            nth=self._counts[kind],
            write=self._counts["write"] if kind in WRITES else 0,
            given=given,
        )
        if self.keep:
            self.calls.append(call)
        await self._pass(call, "before")
        self._under_way += 1
        self._quiet.clear()
        try:
            with self._still():
                answer = await operation()
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()
        call.answer = answer
        await self._pass(call, "after")
        call.answered = True
        return answer

    def _still(self) -> AbstractContextManager[None]:
        return nullcontext() if self.clock is None else self.clock.busy()

    async def _pass(self, call: Call, when: When) -> None:
        if self.gate is not None:
            await self.gate(call, when)
        self._check()
        for fault in self.faults:
            if fault.hits(call, when):
                if fault.action == "die":
                    self.kill()
                    self._check()
                raise fault.error or StoreBroken(f"{call.kind} {call.nth} fails {when} it is performed, because a test wants it to")

    def _check(self) -> None:
        if self.dead:
            raise ProcessDied("this process is dead, because a test killed it")

    # ------------------------------------------------------------------------------------------------- the store's protocol

    async def open(self) -> None:
        self._check()
        with self._still():
            await self.inner.open()

    async def close(self) -> None:
        with self._still():
            await self.inner.close()

    def changes(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        self._check()
        return self.inner.changes(lambda no: None if self.dead else listener(no))


def _watched(kind: str) -> Any:
    async def operation(self: FaultStore, *given: Any, **options: Any) -> Any:
        told = given[min(_TOLD_BY.get(kind, 0), len(given) - 1)] if given else None
        return await self._do(kind, told, partial(getattr(self.inner, kind), *given, **options))

    return operation


for _kind in (*WRITES, *READS):
    setattr(FaultStore, _kind, _watched(_kind))
