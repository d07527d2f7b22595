"""What the suite is made of: a place for a store, a clock that is moved, and rows made up for it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from ...core.journal import Sealed
from ..base import (
    Catalogue,
    Commit,
    NewSession,
    Run,
    Runner,
    Send,
    Sent,
    SessionRow,
    Store,
    StoredBlob,
)

LEASE = 10_000
PATIENCE = 20.0
"""How long a notice may take before the test gives up (seconds, real)."""


class ManualClock:
    """Time that stands still until it is moved (ms)."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms


class Place(Protocol):
    """Where one store's content lies. Every `connect` is a new handle on it, not yet opened, as another process would have it."""

    clock: ManualClock

    def connect(self) -> Store: ...


def fact(seq: int, *, kind: str = "message", body: bytes = b"{}") -> Sealed:
    """An entry as a row. Stores decode nothing, so that any bytes will do."""
    name = f"{seq}{kind}".encode()
    digest = hashlib.sha256(name + body).digest()
    return Sealed(seq, seq, kind, 1_000 + seq, name.ljust(16, b".")[:16], digest, body, hashlib.sha256(b"chain" + digest).digest())


def facts(first: int, last: int, *, kind: str = "message") -> tuple[Sealed, ...]:
    return tuple(fact(seq, kind=kind) for seq in range(first, last + 1))


def catalogue(
    status: Any = "idle", *, wake_at: int | None = None, title: str = "", labels: dict[str, str] | None = None, agent: str = "support"
) -> Catalogue:
    return Catalogue(status=status, wake_at=wake_at, title=title, labels=labels or {}, agent=agent)


def creation(
    *, root: str = "root", owner: str = "acme", agent: str = "support", status: Any = "idle", blobs: tuple[StoredBlob, ...] = ()
) -> NewSession:
    return NewSession(
        root=root,
        parent=None,
        parent_kind=None,
        owner=owner,
        entries=facts(1, 1, kind="session_created"),
        checkpoint=b"checkpoint 1",
        catalogue=catalogue(status, agent=agent),
        blobs=blobs,
    )


def submission(session_id: str = "s", name: str = "m1", *, body: bytes = b"hello", at: int = 1_000, **more: Any) -> Send:
    digest = hashlib.sha256(body).hexdigest()
    values: dict[str, Any] = {"kind": "message", "not_before": None, "actor": "ann", "create": creation(root=session_id), **more}
    return Send(session_id=session_id, submission_id=name, at=at, digest=digest, body=body, **values)


def content(data: bytes, media_type: str = "image/png") -> StoredBlob:
    return StoredBlob(digest=hashlib.sha256(data).hexdigest(), media_type=media_type, data=data)


def runner(name: str = "r1") -> Runner:
    return Runner(id=name, host="here", pid=1, started=5, expires=0, agents=("support",))


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Store]:
    store = place.connect()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def create(store: Store, session_id: str = "s", **more: Any) -> int:
    """A session with one waiting submission, m1; its number."""
    sent = await store.send(submission(session_id, **more))
    assert isinstance(sent, Sent)
    assert sent.created
    return sent.no


async def row_of(store: Store, session_id: str = "s") -> SessionRow:
    loaded = await store.load(session_id)
    assert loaded is not None
    return loaded.row


async def everything(store: Store, session_id: str = "s") -> tuple[Any, ...]:
    """All that can be read of a session, to see that nothing changed."""
    row = await row_of(store, session_id)
    return (
        row,
        await store.entries(row.no),
        await store.inbox(row.no),
        await store.effects(row.no),
        await store.blobs(row.root),
        await store.cursor(row.no, "ann"),
    )


def step(no: int, version: int = 1, fence: int = 0, holder: str | None = None, *, count: int = 1, **more: Any) -> Commit:
    values: dict[str, Any] = {
        "entries": facts(version + 1, version + count),
        "checkpoint": f"checkpoint {version + count}".encode(),
        **more,
    }
    return Commit(no=no, version=version, fence=fence, holder=holder, at=2_000, **values)


async def raises(kind: type[BaseException], awaitable: Awaitable[Any]) -> BaseException:
    try:
        answer = await awaitable
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {answer!r}")


def within(commit: Commit, function: Callable[[Any], Any]) -> Commit:
    """A commit with a user's statements in its transaction."""

    def made(run: Run) -> Commit:
        run(function)
        return commit

    return msgspec.structs.replace(commit, within=made)
