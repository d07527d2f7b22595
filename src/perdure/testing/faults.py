"""A store that fails where a test wants it to, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from ..core.errors import StoreBroken
from ..core.journal import Sealed
from ..core.records import Limits, Pool
from ..store.base import (
    Adopted,
    Adoption,
    Catalogue,
    Commit,
    CommitAnswer,
    Committed,
    Created,
    EffectRow,
    Held,
    IdTaken,
    InboxRow,
    Loaded,
    News,
    NewSession,
    NoSession,
    OutsideBlob,
    Runner,
    Send,
    SendAnswer,
    SessionQuery,
    SessionRow,
    Stale,
    Store,
    StoredBlob,
    UniqueRow,
)
from ..store.pools import KeepsPools, OwnersPool
from .clock import VirtualClock

__all__ = ["READS", "WRITES", "Call", "Fault", "FaultStore", "ProcessDied", "When"]

T = TypeVar("T")

When: TypeAlias = Literal["before", "after"]

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
    "change_pool",
    "remove_pool",
    "vacuum",
)
"""The operations that change something."""

READS = (
    "now",
    "load",
    "runners",
    "runnable",
    "next_wake",
    "inbox",
    "submission",
    "entries",
    "seek",
    "effects",
    "unique",
    "uniques",
    "tree",
    "sessions",
    "blob",
    "blobs",
    "outside",
    "cursor",
    "buried",
    "news",
    "pool",
    "pools",
    "tree",
    "submissions",
)


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
    """One operation as the store saw it: ``given`` is its first argument, ``answer`` what the inner store said.

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
class FaultStore:
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
        with self._still():
            answer = await operation()
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

    @property
    def store_id(self) -> str:
        return self.inner.store_id

    @property
    def secret(self) -> bytes:
        return self.inner.secret

    async def open(self) -> None:
        self._check()
        with self._still():
            await self.inner.open()

    async def close(self) -> None:
        with self._still():
            await self.inner.close()

    async def now(self) -> int:
        return await self._do("now", None, self.inner.now)

    async def load(self, session_id: str, *, hidden: bool = False) -> Loaded | None:
        return await self._do("load", session_id, lambda: self.inner.load(session_id, hidden=hidden))

    async def buried(self, session_id: str) -> bool:
        return await self._do("buried", session_id, lambda: self.inner.buried(session_id))

    async def adopt(self, sessions: Sequence[Adoption]) -> Adopted | IdTaken:
        return await self._do("adopt", sessions, lambda: self.inner.adopt(sessions))

    async def tree(self, root: str) -> list[SessionRow]:
        return await self._do("tree", root, lambda: self.inner.tree(root))

    async def submissions(self, no: int, *, after: str, limit: int) -> list[InboxRow]:
        return await self._do("submissions", no, lambda: self.inner.submissions(no, after=after, limit=limit))

    async def commit(self, commit: Commit) -> CommitAnswer:
        return await self._do("commit", commit, lambda: self.inner.commit(commit))

    async def send(self, send: Send) -> SendAnswer:
        return await self._do("send", send, lambda: self.inner.send(send))

    async def create(self, session_id: str, new: NewSession, *, at: int) -> Created | IdTaken | NoSession:
        return await self._do("create", new, lambda: self.inner.create(session_id, new, at=at))

    async def claim(self, no: int, runner: str, *, force: bool = False) -> Committed | Held | NoSession:
        return await self._do("claim", no, lambda: self.inner.claim(no, runner, force=force))

    async def release(self, no: int, runner: str, fence: int, catalogue: Catalogue) -> Committed | Stale:
        return await self._do("release", no, lambda: self.inner.release(no, runner, fence, catalogue))

    async def heartbeat(self, runner: Runner, lease_ms: int) -> int:
        return await self._do("heartbeat", runner, lambda: self.inner.heartbeat(runner, lease_ms))

    async def runners(self) -> list[Runner]:
        return await self._do("runners", None, self.inner.runners)

    async def retire(self, runner: str) -> None:
        await self._do("retire", runner, lambda: self.inner.retire(runner))

    async def runnable(self, *, limit: int, agents: Sequence[str] | None = None) -> list[str]:
        return await self._do("runnable", agents, lambda: self.inner.runnable(limit=limit, agents=agents))

    async def next_wake(self) -> int | None:
        return await self._do("next_wake", None, self.inner.next_wake)

    async def inbox(self, no: int) -> list[InboxRow]:
        return await self._do("inbox", no, lambda: self.inner.inbox(no))

    async def submission(self, no: int, submission_id: str) -> InboxRow | None:
        return await self._do("submission", submission_id, lambda: self.inner.submission(no, submission_id))

    async def entries(
        self,
        no: int,
        *,
        after: int = 0,
        before: int | None = None,
        kinds: Iterable[str] | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Sealed]:
        wanted = None if kinds is None else list(kinds)
        return await self._do(
            "entries",
            no,
            lambda: self.inner.entries(no, after=after, before=before, kinds=wanted, limit=limit, newest_first=newest_first),
        )

    async def seek(self, no: int, number: int) -> int | None:
        return await self._do("seek", no, lambda: self.inner.seek(no, number))

    async def effects(self, no: int, *, key: bytes | None = None, state: str | None = None, after: int = 0) -> list[EffectRow]:
        return await self._do("effects", no, lambda: self.inner.effects(no, key=key, state=state, after=after))

    async def unique(self, key: str) -> UniqueRow | None:
        return await self._do("unique", key, lambda: self.inner.unique(key))

    async def uniques(self, no: int) -> list[UniqueRow]:
        return await self._do("uniques", no, lambda: self.inner.uniques(no))

    async def sessions(self, query: SessionQuery) -> list[SessionRow]:
        return await self._do("sessions", query, lambda: self.inner.sessions(query))

    async def blob(self, root: str, digest: str) -> StoredBlob | None:
        return await self._do("blob", digest, lambda: self.inner.blob(root, digest))

    async def outside(self, digests: Sequence[str]) -> set[str]:
        return await self._do("outside", digests, lambda: self.inner.outside(digests))

    async def put_blob(self, root: str, blob: StoredBlob | OutsideBlob) -> None:
        await self._do("put_blob", blob, lambda: self.inner.put_blob(root, blob))

    async def blobs(self, root: str) -> list[str]:
        return await self._do("blobs", root, lambda: self.inner.blobs(root))

    async def cursor(self, no: int, consumer: str) -> int:
        return await self._do("cursor", consumer, lambda: self.inner.cursor(no, consumer))

    async def ack(self, no: int, consumer: str, seq: int) -> int:
        return await self._do("ack", consumer, lambda: self.inner.ack(no, consumer, seq))

    async def news(self, consumer: str, *, after: int = 0, limit: int, no: int | None = None) -> list[News]:
        return await self._do("news", consumer, lambda: self.inner.news(consumer, after=after, limit=limit, no=no))

    async def forget(self, consumer: str) -> None:
        await self._do("forget", consumer, lambda: self.inner.forget(consumer))

    async def delete(self, no: int, *, keep: int = 0, receipts: Sequence[int] = (), erased: Sequence[str] = ()) -> None:
        await self._do("delete", no, lambda: self.inner.delete(no, keep=keep, receipts=receipts, erased=erased))

    async def pool(self, owner: str) -> Pool | None:
        return await self._do("pool", owner, lambda: self._pools().pool(owner))

    async def pools(self, *, after: str, limit: int) -> list[OwnersPool]:
        return await self._do("pools", after, lambda: self._pools().pools(after=after, limit=limit))

    async def change_pool(self, owner: str, limits: Limits, *, fresh: str, add: bool) -> Pool:
        return await self._do("change_pool", owner, lambda: self._pools().change_pool(owner, limits, fresh=fresh, add=add))

    async def remove_pool(self, owner: str) -> bool:
        return await self._do("remove_pool", owner, lambda: self._pools().remove_pool(owner))

    def _pools(self) -> KeepsPools:
        assert isinstance(self.inner, KeepsPools), "the store has no pools"
        return self.inner

    async def vacuum(self) -> None:
        await self._do("vacuum", None, self.inner.vacuum)

    def changes(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        self._check()
        return self.inner.changes(lambda no: None if self.dead else listener(no))
