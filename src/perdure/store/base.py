"""What a store promises. Every store passes the suite in `perdure.store.conformance`.

A store keeps bytes and compares versions. It never decides anything about a session, decodes no body and runs nothing that it stored.
Answers that the state gives (`Stale`, `InboxMoved`, …) are values; an exception means that the outcome is unknown or the store is broken.
Cancelling a caller never cancels a write that has begun. All times are milliseconds since 1970 by the store's own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from ..core.journal import Sealed
from ..core.records import Pool
from .pools import Draw, PoolShort

__all__ = [
    "PENDING_LIMIT",
    "URGENT_LIMIT",
    "Adopted",
    "Adoption",
    "AlreadyTaken",
    "AlreadyThere",
    "Catalogue",
    "Claim",
    "Commit",
    "CommitAnswer",
    "Committed",
    "Conflict",
    "Created",
    "Edited",
    "EffectRow",
    "Held",
    "IdTaken",
    "InboxMoved",
    "InboxRow",
    "Loaded",
    "NewSession",
    "News",
    "NoSession",
    "OutsideBlob",
    "ParentRedacted",
    "QueueIsFull",
    "Refusal",
    "Run",
    "Runner",
    "Send",
    "SendAnswer",
    "Sent",
    "SessionQuery",
    "SessionRow",
    "SessionStatus",
    "Stale",
    "Store",
    "StoredBlob",
    "Unique",
    "UniqueRow",
    "UniqueState",
]

PENDING_LIMIT = 1024
"""The most submissions that may wait in one inbox."""

URGENT_LIMIT = PENDING_LIMIT + 128
"""The same with those of a kind in `commands.URGENT`: whatever waits, somebody can still stop the turn, or answer it."""

SessionStatus: TypeAlias = Literal["idle", "queued", "running", "waiting", "stuck", "halted", "archived", "deleted"]


class SessionRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The small head of a session. ``no`` is a local number and never leaves the store's own process family.

    ``problem``: not all of it can be read, and this is why. It comes with what is left of it, and nothing is built on it.
    """

    no: int
    session_id: str
    root: str
    parent: str | None
    parent_kind: str | None
    agent: str
    version: int
    fence: int
    holder: str | None
    claims: int
    inbox_head: int
    wake_at: int | None
    status: SessionStatus
    owner: str
    title: str
    labels: dict[str, str]
    created: int
    updated: int
    checkpoint: bytes
    problem: str = ""


class Loaded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A session's head, the chain behind its last entry and that entry's number, whether its holder is alive, and the store's time.

    All is read in one go. ``pool`` is its owner's, where the store keeps any. Where the last entry is missing, its number is 0.
    """

    row: SessionRow
    chain: bytes
    number: int
    holder_alive: bool
    now: int
    pool: Pool | None = None


class InboxRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One submission. ``body`` is ``None`` once it was consumed; the row stays as its receipt for ever.

    ``consumed_seq`` is the entry that took it up, ``settled_seq`` the entry that finished what it asked for.
    """

    submission_id: str
    arrival: int
    kind: str
    at: int
    not_before: int | None
    actor: str
    digest: str
    body: bytes | None
    consumed_seq: int | None = None
    settled_seq: int | None = None


class EffectRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An executed or uncertain effect. ``seq`` is its receipt; ``effect_key`` is tool ‖ 0x00 ‖ digest of what its key selects."""

    effect_key: bytes
    seq: int
    state: str


UniqueState: TypeAlias = Literal["pending", "succeeded", "uncertain"]


class Unique(msgspec.Struct, frozen=True, kw_only=True):
    """What only one operation of the whole store may do. ``key`` is a digest, ``seq`` the receipt, 0 while the operation is *pending*."""

    key: str
    operation: str
    state: UniqueState = "pending"
    seq: int = 0


class UniqueRow(Unique, frozen=True, kw_only=True):
    """The same, and whose operation it is; ``deleted``: that session is gone, and what the operation came to."""

    no: int
    session_id: str
    deleted: bool = False


class StoredBlob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Content by its SHA-256 (hex), stored once per session tree."""

    digest: str
    media_type: str
    data: bytes


class OutsideBlob(msgspec.Struct, frozen=True, kw_only=True):
    """Content that a tree holds and that stands outside of the database: its bytes were put into the blob store before."""

    digest: str
    media_type: str
    size: int


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The columns that lists are made of. A commit that changes none of them carries none of them."""

    status: SessionStatus
    wake_at: int | None
    title: str
    labels: dict[str, str]
    agent: str


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting row's new content. The digest stays what was sent, so that sending it again is still sending it once."""

    submission_id: str
    body: bytes


T = TypeVar("T")


class Run(Protocol):
    """Runs a function inside the transaction of a commit."""

    def __call__(self, function: Callable[[Any], T], /) -> T:
        """What the function returns, given what the store's statements run on.

        If it raises, nothing is left of what it wrote, and this raises the same. Raises `StoreError` where the transaction is gone.
        """


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Become the holder in this commit; the fence rises by one. Refused as `Held` while the present holder is alive, unless ``force``."""

    runner: str
    force: bool = False


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One atomic change of a session, if it still is at (``version``, ``fence``) and held by ``holder``.

    Without ``claim``, ``holder`` must be the one stored (``None``: nobody holds it and the caller acts for it). With ``claim`` the
    session must be free. ``inbox_head``: refuse with `InboxMoved` if another submission arrived since. ``received`` are rows that
    enter the inbox already consumed. ``progress`` sets the count of claims without progress back to 0. ``catalogue`` None leaves its
    columns (and ``updated``) alone. ``redacted`` are earlier entries that lose body and salt, and ``erased`` digests of content that goes
    unless another entry or waiting submission of the tree still holds the digest; none of it stays in a log. ``draws`` is what the session
    draws from its owner's pool, and gives back: refused with `PoolShort` if there is not so much left.
    ``taken`` are (key, operation) of what only one operation of the store may do: `AlreadyTaken` if another one took it. ``decided`` are
    (operation, state, receipt) of this session's operations that took something; without a state, what they took is free again.
    ``within`` is called inside the transaction, once this commit was compared with what is stored, where it may block: it lets the user's
    statements `Run`, and returns the commit that is applied instead, with the same ``no``, ``version``, ``fence``, ``holder``, ``claim``,
    ``received``, ``taken`` and ``inbox_head``. It is called again if the transaction had to be rolled back for another commit's sake.
    A commit with entries raises the version to the last entry's seq; one without leaves version and checkpoint as they are.
    """

    no: int
    version: int
    fence: int
    holder: str | None
    at: int
    entries: tuple[Sealed, ...] = ()
    checkpoint: bytes | None = None
    consumed: tuple[tuple[str, int], ...] = ()
    settled: tuple[tuple[str, int], ...] = ()
    edited: tuple[Edited, ...] = ()
    dropped: tuple[str, ...] = ()
    received: tuple[InboxRow, ...] = ()
    redacted: tuple[int, ...] = ()
    erased: tuple[str, ...] = ()
    effects: tuple[EffectRow, ...] = ()
    taken: tuple[tuple[str, str], ...] = ()
    decided: tuple[tuple[str, UniqueState | None, int], ...] = ()
    blobs: tuple[StoredBlob | OutsideBlob, ...] = ()
    catalogue: Catalogue | None = None
    claim: Claim | None = None
    release: bool = False
    progress: bool = False
    inbox_head: int | None = None
    draws: tuple[Draw, ...] = ()
    within: Callable[[Run], Commit] | None = None


class Committed(msgspec.Struct, frozen=True, gc=False):
    """Durable. ``fence`` is the holder's, raised if the commit claimed; ``inbox_head`` tells whether submissions arrived meanwhile."""

    version: int
    fence: int
    inbox_head: int


class Stale(msgspec.Struct, frozen=True):
    """Somebody else changed or claimed the session; nothing was written. The stored facts tell what is true now."""

    version: int
    fence: int
    holder: str | None


class InboxMoved(msgspec.Struct, frozen=True):
    """A submission arrived that the commit doesn't know; nothing was written."""

    inbox_head: int


class Held(msgspec.Struct, frozen=True):
    """The session's holder is alive; nothing was written."""

    holder: str


class AlreadyThere(msgspec.Struct, frozen=True):
    """A row in ``received`` stands in the inbox already; nothing was written."""

    row: InboxRow


class AlreadyTaken(msgspec.Struct, frozen=True):
    """Another operation took what a row in ``taken`` asks for; nothing was written."""

    row: UniqueRow


class NoSession(msgspec.Struct, frozen=True):
    """There is no such session, or it was deleted, or it is archived or halted and takes nothing."""

    deleted: bool = False
    archived: bool = False
    halted: bool = False


CommitAnswer: TypeAlias = Committed | Stale | InboxMoved | Held | AlreadyThere | AlreadyTaken | NoSession | PoolShort


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session's beginning: its first entries, the checkpoint after them, and the catalogue's columns.

    ``parent_version`` is the parent's when what is taken over from it was read.
    """

    root: str
    parent: str | None
    parent_kind: str | None
    owner: str
    entries: tuple[Sealed, ...]
    checkpoint: bytes
    catalogue: Catalogue
    blobs: tuple[StoredBlob | OutsideBlob, ...] = ()
    parent_version: int | None = None


class Created(msgspec.Struct, frozen=True):
    """The session is there, idle, and durable."""

    no: int


class ParentRedacted(msgspec.Struct, frozen=True):
    """Content of the parent was redacted since it was read; nothing was written."""


class IdTaken(msgspec.Struct, frozen=True):
    """There is, or was, another session of this id; nothing was written."""

    deleted: bool = False


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """A whole session from elsewhere. Its ``no`` and ``holder`` count for nothing here, and of ``uniques`` it gets those that are free.

    The rest is read through functions, so that it need never be in memory at once; each may be called more than once.
    """

    row: SessionRow
    entries: Callable[[], Iterable[Sealed]]
    submissions: Callable[[], Iterable[InboxRow]]
    effects: Callable[[], Iterable[EffectRow]]
    uniques: Callable[[], Iterable[Unique]]
    blobs: Callable[[], Iterable[StoredBlob | OutsideBlob]]


class Adopted(msgspec.Struct, frozen=True):
    """The sessions are there, and durable."""

    numbers: tuple[int, ...]


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """One submission for a session, created by ``create`` if it isn't there. The store gives the row its ``arrival``.

    The session's ``wake_at`` becomes at most ``not_before`` (or now), and an idle session's status ``queued``. One that is not ``urgent``
    leaves the ``wake_at`` of a session that waits for an answer alone: it can't begin before that. One of a kind in `commands.URGENT` may
    wait behind a full inbox, up to `URGENT_LIMIT`. ``patient``: a halted session takes it, and it waits there. With ``owner``, a session
    of anybody else is none; with a parent in ``create``, so is one that is not that parent's, and `NoSession` also means that there is no
    such parent.
    """

    session_id: str
    submission_id: str
    kind: str
    at: int
    not_before: int | None
    actor: str
    digest: str
    body: bytes
    urgent: bool = True
    patient: bool = False
    owner: str | None = None
    blobs: tuple[StoredBlob | OutsideBlob, ...] = ()
    create: NewSession | None = None


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The submission is durable. ``duplicate``: it was before, and nothing was written; ``row`` is the first one."""

    no: int
    row: InboxRow
    duplicate: bool
    created: bool


class Conflict(msgspec.Struct, frozen=True):
    """The id was used with another digest; nothing was written."""

    row: InboxRow


class QueueIsFull(msgspec.Struct, frozen=True):
    """`PENDING_LIMIT` submissions wait already, or `URGENT_LIMIT` for one of a kind in `commands.URGENT`; nothing was written."""

    pending: int


SendAnswer: TypeAlias = Sent | Conflict | QueueIsFull | NoSession


class News(msgspec.Struct, frozen=True):
    """A session with entries that a consumer has not acknowledged: those behind ``seq``, up to ``version``."""

    no: int
    session_id: str
    version: int
    seq: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A session that a runner can't go on with, since when, and why."""

    session_id: str
    since: int
    reason: str


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """A process that can hold sessions, as `runners` shows it. ``alive`` is by the store's clock and, on one machine, by its file lock.

    ``refused`` is what it says that it can't go on with now, the latest first; it may leave out what is too much to tell.
    """

    id: str
    host: str
    pid: int
    started: int
    expires: int
    agents: tuple[str, ...]
    refused: tuple[Refusal, ...] = ()
    alive: bool = True


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list: the latest change first, or, by ``created``, the latest made first.

    ``before`` is the (updated, no) of the last row of the page before; by ``created`` only its number counts, which never changes.
    Sessions of agents that others called are left out unless ``children``.
    Without ``status`` deleted sessions are left out, and archived ones unless ``archived``. All ``labels`` must be there, and the title
    must hold all ``words``, whatever their case. ``since`` and ``until`` (ms) say when they changed last: ``since <= updated < until``.
    """

    owner: str | None = None
    status: tuple[SessionStatus, ...] = ()
    archived: bool = False
    children: bool = True
    agent: str | None = None
    labels: dict[str, str] = {}
    words: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    order: Literal["updated", "created"] = "updated"
    before: tuple[int, int] | None = None
    limit: int = 50


@runtime_checkable
class Store(Protocol):
    """One durable place for sessions; safe for concurrent use by the tasks of one event loop."""

    @property
    def store_id(self) -> str:
        """A random id, made with the store and kept for ever."""

    @property
    def secret(self) -> bytes:
        """32 random bytes, made with the store and kept for ever; they sign callback tokens."""

    async def open(self) -> None:
        """Make it usable, for one more user: each closes it once. A call that raises, or is cancelled, has opened nothing.

        Raises `FormatUnknown`, `StoreReadOnly`, `StoreBroken`, `InvalidURL`, and `UsageError` if it is open in another event loop.
        """

    async def close(self) -> None:
        """One user needs it no more; with the last one, finish the writes that have begun and let go. Does nothing if it is not open."""

    async def place(self, place: str = "") -> str:
        """What the blob store is called that holds content of this database, empty if none does yet.

        The first ``place`` that is given is it from then on, for ever.
        """

    async def now(self) -> int:
        """The store's time; never less than what it answered before."""

    async def load(self, session_id: str, *, hidden: bool = False) -> Loaded | None:
        """A session's head, or ``None``. ``hidden``: also what is left of a deleted one."""

    async def buried(self, session_id: str) -> bool:
        """Whether a session of this id was deleted; the id is never free again."""

    async def commit(self, commit: Commit) -> CommitAnswer:
        """Apply it whole or not at all. Durable when this returns `Committed`."""

    async def send(self, send: Send) -> SendAnswer:
        """Put a submission into a session's inbox. Durable when this returns `Sent`.

        An archived session takes nothing new, a halted one only what is ``patient``, and both still know what they took before.
        """

    async def create(self, session_id: str, new: NewSession, *, at: int) -> Created | IdTaken | NoSession | ParentRedacted:
        """Begin a session without a submission. `NoSession`: the parent that it names isn't there; `ParentRedacted`: not as it was read.

        Durable when this returns `Created`.
        """

    async def adopt(self, sessions: Sequence[Adoption]) -> Adopted | IdTaken:
        """Take over whole sessions, all or none. Durable when this returns `Adopted`.

        What they are read from must not wait for the event loop. Raises what reading them raises, and `UsageError` if entries are missing.
        """

    async def tree(self, root: str) -> list[SessionRow]:
        """The sessions of a tree, deleted ones included, by number."""

    async def submissions(self, no: int, *, after: str, limit: int) -> list[InboxRow]:
        """Submissions by id, consumed ones included."""

    async def claim(self, no: int, runner: str, *, force: bool = False) -> Committed | Held | NoSession:
        """Become the holder outside a commit; ``claims`` rises if the holder before never released."""

    async def release(
        self, no: int, runner: str, fence: int, catalogue: Catalogue, inbox_head: int, *, at: int
    ) -> Committed | Stale | InboxMoved:
        """Let a held session go, without any other change; `InboxMoved` if ``catalogue`` can't know what arrived behind ``inbox_head``.

        ``at`` is the time of its last entry, as in a `Commit`: a list shows when something happened, not when it was let go.
        """

    async def heartbeat(self, runner: Runner, lease_ms: int) -> int:
        """Register or renew a runner's lease; returns when it expires. A lease that ran out is renewed too: fences protect the data."""

    async def runners(self) -> list[Runner]:
        """All registered runners."""

    async def retire(self, runner: str) -> None:
        """Remove a runner; what it still holds is free."""

    async def runnable(self, *, limit: int, agents: Sequence[str] | None = None, left: bool = False) -> list[str]:
        """Session ids that somebody must look at now: those whose holder is dead, then free ones whose ``wake_at`` is due. Oldest first.

        ``left``: only what dead holders left.
        """

    async def next_wake(self, *, after: int = 0) -> int | None:
        """The earliest ``wake_at`` behind ``after`` of any session that nobody holds."""

    async def inbox(self, no: int) -> list[InboxRow]:
        """The submissions that nobody consumed, by arrival."""

    async def submission(self, no: int, submission_id: str) -> InboxRow | None:
        """One submission, consumed or not."""

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
        """Rows with ``after < seq < before``. No transaction stays open between calls."""

    async def scan(
        self,
        no: int,
        take: Callable[[Iterable[Sealed]], T],
        spans: Sequence[tuple[int, int]],
        *,
        kinds: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> T:
        """What ``take`` makes of the rows (after, before) of one span after the other, as they are read: of many, none has to be kept.

        It is called once, perhaps in a thread of the store's, and what it raises is raised.
        """

    async def seek(self, no: int, numbers: Sequence[int]) -> list[int | None]:
        """For each number the seq of the first entry up to and with which there are at least so many messages; ``None`` if not.

        What each costs grows with the logarithm of the journal's length.
        """

    async def effects(self, no: int, *, key: bytes | None = None, state: str | None = None, after: int = 0) -> list[EffectRow]:
        """Effects by key prefix and state whose receipt is behind ``after``, oldest first."""

    async def unique(self, key: str) -> UniqueRow | None:
        """The operation that took a key, or ``None``."""

    async def uniques(self, no: int) -> list[UniqueRow]:
        """What the operations of a session took, by operation."""

    async def sessions(self, query: SessionQuery) -> list[SessionRow]:
        """A page of the catalogue. A row that can't be read hides no other: it comes with its ``problem``."""

    async def blob(self, root: str, digest: str) -> StoredBlob | None:
        """Content by digest. Raises `StoreCorrupt` if the bytes are not those of the digest, `ContentElsewhere` if they stand outside."""

    async def outside(self, digests: Sequence[str]) -> set[str]:
        """Those of these digests whose content any tree holds outside of the database."""

    async def put_blob(self, root: str, blob: StoredBlob | OutsideBlob) -> bool:
        """Store content ahead of the commit that refers to it. Idempotent. False: no session of that tree is there, and nothing was
        stored, since nobody would remove it."""

    async def blobs(self, root: str) -> list[str]:
        """The digests that a tree holds."""

    async def cursor(self, no: int, consumer: str) -> int:
        """The last seq that a consumer acknowledged; 0 if none."""

    async def ack(self, no: int, consumer: str, seq: int) -> int:
        """Move a cursor forward, never back; returns where it stands."""

    async def news(self, consumer: str, *, after: int = 0, limit: int, no: int | None = None) -> list[News]:
        """Sessions, by number and behind ``after``, with entries that a consumer has not acknowledged; with ``no`` only that one."""

    async def forget(self, consumer: str) -> None:
        """Remove a consumer's cursors in all sessions. Idempotent."""

    async def delete(
        self, no: int, *, keep: int = 0, receipts: Sequence[int] = (), erased: Sequence[str] = (), tree: int | None = None
    ) -> bool:
        """Destroy a session's content; its id and submissions leave a tombstone, so that neither can run again.

        What its operations took stays taken; what was pending is uncertain from now on. For those that were forked from it, the entries
        up to ``keep`` and those of ``receipts`` stay, with their effects and what says of content that it was redacted; deleting it again,
        with less to keep, destroys those too. ``erased`` is content of the tree that goes unless another entry or waiting submission still
        holds its digest. ``tree`` is how many sessions the tree had when all that was found out: if it has more by now, nothing is done,
        and this returns False.
        """

    async def free(self, no: int) -> int:
        """Let others take what the operations of a deleted session took; returns how much that was. One that isn't deleted keeps it."""

    async def vacuum(self) -> None:
        """Write the store anew without what was deleted, so that none of it is in any page or log, and give back its space.

        Waits for others' transactions. Raises `StoreBroken` if somebody reads for too long; calling it again goes on.
        """

    def changes(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        """Call ``listener`` on the event loop with the number of a session that changed, or ``None`` if any may have.

        Changes of other processes are noticed by polling while anybody listens. A lost notice costs a poll, never correctness.
        Returns what ends it.
        """
