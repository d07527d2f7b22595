"""The suite that every store passes; run it against your own.

Make a `Place` for your store, and a subclass with a fixture of that name::

    import pytest
    pytest.register_assert_rewrite("perdure.store.conformance")
    from perdure.store.conformance import ManualClock, StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def place(self, tmp_path):
            return MyPlace(tmp_path, ManualClock())

The tests are coroutines, for pytest-asyncio in its mode ``auto``. They never sleep: time is the clock's.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from ..core.errors import StoreClosed, StoreError, UsageError
from ..core.journal import GENESIS, Sealed
from .base import (
    PENDING_LIMIT,
    AlreadyThere,
    Catalogue,
    Claim,
    Commit,
    Committed,
    Conflict,
    Created,
    Edited,
    EffectRow,
    Held,
    IdTaken,
    InboxMoved,
    InboxRow,
    NewSession,
    NoSession,
    OutsideBlob,
    QueueIsFull,
    Runner,
    Send,
    Sent,
    SessionQuery,
    SessionRow,
    Stale,
    Store,
    StoredBlob,
)

__all__ = ["ManualClock", "Place", "StoreConformance", "catalogue", "content", "creation", "fact", "facts", "runner", "submission"]

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


class StoreConformance:
    """What any store promises, one sentence a test."""

    # Sessions

    async def test_a_session_that_nobody_sent_to_is_not_there(self, place: Place) -> None:
        async with opened(place) as store:
            assert await store.load("s") is None
            assert await store.entries(1) == []
            assert await store.inbox(1) == []
            assert await store.submission(1, "m1") is None
            assert await store.effects(1) == []
            assert await store.sessions(SessionQuery()) == []
            assert await store.runnable(limit=10) == []
            assert await store.next_wake() is None
            assert await store.send(submission(create=None)) == NoSession()
            assert await store.load("s") is None

    async def test_the_first_submission_creates_the_session_with_its_first_entry(self, place: Place) -> None:
        async with opened(place) as store:
            picture = content(b"picture")
            made = submission(create=creation(root="s", owner="acme", blobs=(picture,)), at=1_000)
            sent = await store.send(made)
            assert isinstance(sent, Sent)
            assert (sent.created, sent.duplicate, sent.row.arrival) == (True, False, 1)
            loaded = await store.load("s")
            assert loaded is not None
            assert loaded.row == SessionRow(
                no=sent.no,
                session_id="s",
                root="s",
                parent=None,
                parent_kind=None,
                agent="support",
                version=1,
                fence=0,
                holder=None,
                claims=0,
                inbox_head=1,
                wake_at=place.clock.now,
                status="queued",
                owner="acme",
                title="",
                labels={},
                created=1_000,
                updated=1_000,
                checkpoint=b"checkpoint 1",
            )
            assert made.create is not None
            assert loaded.chain == made.create.entries[-1].chain != GENESIS
            assert loaded.holder_alive is False
            assert loaded.now == place.clock.now
            assert await store.entries(sent.no) == [*made.create.entries]
            assert await store.inbox(sent.no) == [sent.row]
            assert await store.blob("s", picture.digest) == picture

    async def test_for_another_owner_a_session_is_not_there(self, place: Place) -> None:
        async with opened(place) as store:
            made = submission(create=creation(root="s", owner="acme"))
            assert isinstance(await store.send(msgspec.structs.replace(made, owner="acme")), Sent)
            before = await store.load("s")
            for sent in (made, submission("s", "m-2", create=None), submission("s", "m-3", create=creation(root="s", owner="other"))):
                assert await store.send(msgspec.structs.replace(sent, owner="other")) == NoSession()
            assert await store.load("s") == before
            again = await store.send(msgspec.structs.replace(submission("s", "m-2", create=None), owner="acme"))
            assert isinstance(again, Sent)

    async def test_a_new_session_begins_with_entry_1(self, place: Place) -> None:
        async with opened(place) as store:
            wrong = NewSession(
                root="s", parent=None, parent_kind=None, owner="", entries=(fact(2),), checkpoint=b"c", catalogue=catalogue(), blobs=()
            )
            await raises(UsageError, store.send(submission(create=wrong)))
            assert await store.load("s") is None

    async def test_a_parent_is_kept(self, place: Place) -> None:
        async with opened(place) as store:
            await create(store, "parent")
            new = NewSession(
                root="parent",
                parent="parent",
                parent_kind="fork",
                owner="",
                entries=(fact(1),),
                checkpoint=b"c",
                catalogue=catalogue(labels={"a": "ä"}, title="Ü"),
                blobs=(),
            )
            await store.send(submission("child", create=new))
            row = await row_of(store, "child")
            assert (row.root, row.parent, row.parent_kind) == ("parent", "parent", "fork")
            assert (row.labels, row.title) == ({"a": "ä"}, "Ü")

    async def test_a_session_can_begin_without_a_submission(self, place: Place) -> None:
        async with opened(place) as store:
            new = msgspec.structs.replace(creation(root="s"), entries=facts(1, 3), checkpoint=b"checkpoint 3")
            made = await store.create("s", new, at=1_500)
            assert isinstance(made, Created)
            row = await row_of(store)
            assert (row.no, row.version, row.inbox_head, row.status, row.wake_at) == (made.no, 3, 0, "idle", None)
            assert (row.created, row.updated, row.checkpoint) == (1_500, 1_500, b"checkpoint 3")
            assert await store.entries(made.no) == [*new.entries]
            assert isinstance(await store.commit(step(made.no, 3)), Committed)
            assert isinstance(await store.send(submission()), Sent)

    async def test_an_id_that_is_or_was_a_sessions_is_taken(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            untouched = await everything(store)
            assert await store.create("s", creation(root="s"), at=2_000) == IdTaken(deleted=False)
            assert await everything(store) == untouched
            await store.delete(no)
            assert await store.create("s", creation(root="s"), at=2_000) == IdTaken(deleted=True)

    async def test_a_session_begins_only_under_a_parent_that_is_there(self, place: Place) -> None:
        async with opened(place) as store:
            child = msgspec.structs.replace(creation(root="parent"), parent="parent", parent_kind="fork")
            assert await store.create("child", child, at=1_000) == NoSession()
            no = await create(store, "parent")
            assert isinstance(await store.create("child", child, at=1_000), Created)
            await store.delete(no)
            assert await store.create("other", child, at=1_000) == NoSession(deleted=True)
            assert await store.load("other") is None

    async def test_a_message_is_found_by_its_number(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            # The first entry counts 1; what a fork takes over makes the count jump.
            numbers = [1, 1, 4, 5, 5, 5, 6]
            entries = tuple(msgspec.structs.replace(fact(seq), number=number) for seq, number in enumerate(numbers, 2))
            assert isinstance(await store.commit(step(no, entries=entries, checkpoint=b"c")), Committed)
            found = [await store.seek(no, number) for number in range(8)]
            assert found == [1, 1, 4, 4, 4, 5, 8, None]
            assert await store.seek(77, 1) is None

    async def test_a_redacted_entry_keeps_its_place_and_its_digest_and_nothing_else(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.commit(step(no, count=3))
            before = await store.entries(no)
            assert isinstance(await store.commit(step(no, 4, redacted=(2, 4))), Committed)
            after = await store.entries(no)
            assert [row.seq for row in after if row.body is None and row.salt is None] == [2, 4]
            assert after[:4] == [msgspec.structs.replace(row, body=None, salt=None) if row.seq in (2, 4) else row for row in before]
            await raises(UsageError, store.commit(step(no, 5, redacted=(6,))))
            await raises(UsageError, store.commit(step(no, 5, redacted=(0,))))
            assert (await row_of(store)).version == 5

    async def test_erased_content_goes_unless_something_of_its_tree_still_refers_to_it(self, place: Place) -> None:
        async with opened(place) as store:
            gone, shared, waiting = content(b"gone"), content(b"shared"), content(b"waiting")
            no = await create(store, create=creation(root="tree", blobs=(gone, shared, waiting)))
            await create(store, "elsewhere", create=creation(root="elsewhere", blobs=(gone,)))
            other = await create(store, "other", body=b"see " + waiting.digest.encode(), create=creation(root="tree"))
            named = fact(2, body=b'{"digest":"%s"}' % shared.digest.encode())
            await store.commit(step(other, entries=(named,), checkpoint=b"c"))
            erased = (gone.digest, shared.digest, waiting.digest)
            assert isinstance(await store.commit(step(no, redacted=(1,), erased=erased)), Committed)
            assert await store.blobs("tree") == sorted((shared.digest, waiting.digest))
            assert await store.blobs("elsewhere") == [gone.digest]

    async def test_a_vacuum_changes_nothing_that_can_be_read(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.commit(step(no, redacted=(1,)))
            untouched = await everything(store)
            await store.vacuum()
            await store.vacuum()
            assert await everything(store) == untouched
            assert isinstance(await store.commit(step(no, 2)), Committed)

    async def test_another_handle_sees_at_once_what_was_committed(self, place: Place) -> None:
        async with opened(place) as one, opened(place) as two:
            no = await create(one)
            for version in range(1, 30):
                assert isinstance(await one.commit(step(no, version)), Committed)
                assert (await row_of(two)).version == version + 1
                assert len(await two.entries(no)) == version + 1

    async def test_its_id_and_its_secret_stay(self, place: Place) -> None:
        async with opened(place) as store:
            known = store.store_id, store.secret
            async with opened(place) as other:
                assert (other.store_id, other.secret) == known
        async with opened(place) as store:
            assert (store.store_id, store.secret) == known
            assert len(store.secret) == 32
            assert store.store_id

    # Commits

    async def test_a_commit_appends_its_entries_and_replaces_the_checkpoint(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            before = await row_of(store)
            assert await store.commit(step(no, count=3)) == Committed(4, 0, 1)
            loaded = await store.load("s")
            assert loaded is not None
            assert (loaded.row.version, loaded.row.checkpoint) == (4, b"checkpoint 4")
            assert loaded.chain == fact(4).chain
            assert await store.entries(no) == [fact(1, kind="session_created"), *facts(2, 4)]
            assert (loaded.row.updated, loaded.row.status, loaded.row.wake_at) == (before.updated, before.status, before.wake_at)

    async def test_a_commit_without_entries_leaves_version_and_checkpoint(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            before = await row_of(store)
            bare = Commit(no=no, version=1, fence=0, holder=None, at=5_000, catalogue=catalogue("waiting", wake_at=77, title="T"))
            assert await store.commit(bare) == Committed(1, 0, 1)
            after = await row_of(store)
            assert (after.version, after.checkpoint) == (before.version, before.checkpoint)
            assert (after.status, after.wake_at, after.title, after.updated) == ("waiting", 77, "T", 5_000)

    async def test_a_commit_that_builds_on_another_version_changes_nothing(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.commit(step(no))
            before = await everything(store)
            row = InboxRow(submission_id="x", arrival=0, kind="k", at=1, not_before=None, actor="", digest="", body=None, consumed_seq=2)
            full: dict[str, Any] = {
                "received": (row,),
                "consumed": (("m1", 2),),
                "effects": (EffectRow(effect_key=b"k", seq=2, state="succeeded"),),
                "blobs": (content(b"data"),),
                "catalogue": catalogue("running", title="other"),
                "claim": Claim(runner="r1"),
            }
            for version in (0, 1, 3):
                assert await store.commit(step(no, version, **full)) == Stale(2, 0, None)
            assert await everything(store) == before

    async def test_a_commit_under_another_fence_or_holder_changes_nothing(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner(), LEASE)
            assert await store.claim(no, "r1") == Committed(1, 1, 1)
            before = await everything(store)
            for fence, holder in ((0, "r1"), (2, "r1"), (1, "r2"), (1, None), (0, None)):
                assert await store.commit(step(no, 1, fence, holder)) == Stale(1, 1, "r1")
            assert await everything(store) == before
            assert await store.commit(step(no, 1, 1, "r1")) == Committed(2, 1, 1)

    async def test_of_two_commits_on_one_version_one_is_applied(self, place: Place) -> None:
        async with opened(place) as one, opened(place) as two:
            no = await create(one)
            answers = await asyncio.gather(one.commit(step(no)), two.commit(step(no, count=2)), one.commit(step(no, count=3)))
            done = [answer for answer in answers if isinstance(answer, Committed)]
            assert len(done) == 1
            assert [answer for answer in answers if isinstance(answer, Stale)] == [Stale(done[0].version, 0, None)] * 2
            assert len(await one.entries(no)) == done[0].version

    async def test_commits_of_a_session_that_wait_together_follow_each_other(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            answers = await asyncio.gather(*(store.commit(step(no, version)) for version in range(1, 9)))
            assert answers == [Committed(version + 1, 0, 1) for version in range(1, 9)]

    async def test_a_commit_of_an_unknown_session_is_refused(self, place: Place) -> None:
        async with opened(place) as store:
            assert await store.commit(step(77)) == NoSession()

    async def test_entries_that_leave_a_gap_are_the_callers_mistake(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            before = await everything(store)
            for entries in ((fact(3),), (fact(1),), (fact(2), fact(4)), (fact(3), fact(2))):
                await raises(UsageError, store.commit(step(no, entries=entries)))
            await raises(UsageError, store.commit(step(no, checkpoint=None)))
            assert await everything(store) == before

    async def test_a_commit_that_names_an_old_inbox_head_is_refused(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            assert await store.commit(step(no, inbox_head=1)) == Committed(2, 0, 1)
            await store.send(submission(name="m2"))
            before = await everything(store)
            assert await store.commit(step(no, 2, inbox_head=1)) == InboxMoved(2)
            assert await everything(store) == before
            assert await store.commit(step(no, 2)) == Committed(3, 0, 2)
            assert await store.commit(step(no, 3, inbox_head=2)) == Committed(4, 0, 2)

    async def test_a_consumed_row_loses_its_body_and_stays_as_a_receipt(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.send(submission(name="m2"))
            await store.commit(step(no, consumed=(("m1", 2),)))
            assert [row.submission_id for row in await store.inbox(no)] == ["m2"]
            receipt = await store.submission(no, "m1")
            assert receipt is not None
            assert (receipt.body, receipt.consumed_seq, receipt.settled_seq, receipt.arrival) == (None, 2, None, 1)
            await store.commit(step(no, 2, settled=(("m1", 3),), consumed=(("m2", 3),)))
            receipt = await store.submission(no, "m1")
            assert receipt is not None
            assert (receipt.consumed_seq, receipt.settled_seq) == (2, 3)
            assert await store.inbox(no) == []

    async def test_a_row_can_be_edited_or_dropped_only_while_it_waits(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            for name in ("m2", "m3"):
                await store.send(submission(name=name))
            edit = Edited(submission_id="m2", digest="new", body=b"other")
            await store.commit(step(no, edited=(edit,), dropped=("m3",), consumed=(("m1", 2),)))
            rows = await store.inbox(no)
            assert [(row.submission_id, row.digest, row.body, row.arrival) for row in rows] == [("m2", "new", b"other", 2)]
            assert await store.submission(no, "m3") is None
            before = await everything(store)
            wrong: list[dict[str, Any]] = [
                {"edited": (Edited(submission_id="m1", digest="d", body=b""),)},
                {"dropped": ("m1",)},
                {"dropped": ("m3",)},
                {"consumed": (("m1", 3),)},
                {"consumed": (("m2", 3), ("nobody", 3))},
                {"settled": (("nobody", 3),)},
            ]
            for change in wrong:
                await raises(UsageError, store.commit(step(no, 2, **change)))
            assert await everything(store) == before
            again = await store.send(submission(name="m3"))
            assert isinstance(again, Sent)
            assert (again.duplicate, again.row.arrival) == (False, 4)

    async def test_a_received_row_enters_consumed_and_only_once(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            row = InboxRow(
                submission_id="a1", arrival=0, kind="answer", at=9, not_before=None, actor="ann", digest="d", body=b"yes", consumed_seq=2
            )
            assert await store.commit(step(no, received=(row,))) == Committed(2, 0, 2)
            known = await store.submission(no, "a1")
            assert known is not None
            assert (known.arrival, known.body, known.consumed_seq, known.actor, known.digest) == (2, None, 2, "ann", "d")
            assert [waiting.submission_id for waiting in await store.inbox(no)] == ["m1"]
            before = await everything(store)
            assert await store.commit(step(no, 2, received=(row,))) == AlreadyThere(known)
            assert await everything(store) == before
            duplicate = await store.send(submission(name="a1"))
            assert isinstance(duplicate, Conflict)
            waiting = InboxRow(submission_id="a2", arrival=0, kind="k", at=9, not_before=None, actor="", digest="d", body=b"")
            await raises(UsageError, store.commit(step(no, 2, received=(waiting,))))

    async def test_blobs_are_stored_with_the_commit_that_refers_to_them(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            one, two = content(b"one"), content(b"x" * 100_000, "text/plain")
            await store.commit(step(no, blobs=(one, two, one)))
            await store.commit(step(no, 2, blobs=(one,)))
            assert await store.blobs("s") == sorted([one.digest, two.digest])
            assert await store.blob("s", two.digest) == two
            before = await everything(store)
            forged = StoredBlob(digest=two.digest, media_type="text/plain", data=b"other")
            await raises(UsageError, store.commit(step(no, 3, blobs=(forged,))))
            assert await everything(store) == before

    async def test_effects_are_found_by_the_beginning_of_their_key(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            keys = [b"refund\x00b", b"refund\x00a", b"refund2\x00a", b"\xff\xff\x01", b"\xff\xff", b"refund\x00\xff\xff"]
            rows = tuple(EffectRow(effect_key=key, seq=2 + index, state="succeeded") for index, key in enumerate(keys))
            await store.commit(step(no, count=6, effects=rows))
            assert await store.effects(no) == list(rows)
            assert await store.effects(no, key=b"refund\x00") == [rows[0], rows[1], rows[5]]
            assert await store.effects(no, key=b"refund\x00\xff") == [rows[5]]
            assert await store.effects(no, key=b"\xff") == [rows[3], rows[4]]
            assert await store.effects(no, key=b"z") == []
            latest = max(row.seq for row in rows)
            assert await store.effects(no, after=latest - 1) == [row for row in await store.effects(no) if row.seq == latest]
            assert await store.effects(no, key=b"refund\x00", after=latest) == []
            unsettled = EffectRow(effect_key=keys[0], seq=9, state="uncertain")
            await store.commit(step(no, 7, count=2, effects=(unsettled,)))
            assert await store.effects(no, key=keys[0]) == [rows[0], unsettled]
            assert await store.effects(no, state="uncertain") == [unsettled]
            settled = EffectRow(effect_key=keys[0], seq=9, state="succeeded")
            await store.commit(step(no, 9, effects=(settled,)))
            assert await store.effects(no, key=keys[0]) == [rows[0], settled]
            assert await store.effects(no, state="uncertain") == []

    async def test_what_runs_within_a_commit_can_undo_it_and_only_it(self, place: Place) -> None:
        async with opened(place) as store:
            numbers = [await create(store, f"s{index}") for index in range(12)]
            before = await everything(store, "s5")
            ran: list[int] = []

            def within(index: int) -> Callable[[Any], None]:
                def run(_: Any) -> None:
                    ran.append(index)
                    if index == 5:
                        raise KeyError("no")

                return run

            commits = [
                store.commit(step(no, within=within(index), consumed=(("m1", 2),), blobs=(content(b"b"),), claim=Claim(runner="r1")))
                for index, no in enumerate(numbers)
            ]
            answers = await asyncio.gather(*commits, return_exceptions=True)
            assert isinstance(answers[5], KeyError)
            assert [answer for index, answer in enumerate(answers) if index != 5] == [Committed(2, 1, 1)] * 11
            assert set(ran) == set(range(12))
            assert await everything(store, "s5") == before
            assert (await row_of(store, "s4")).version == 2

    async def test_nothing_runs_within_a_refused_commit(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            ran: list[Any] = []
            assert await store.commit(step(no, 5, within=ran.append)) == Stale(1, 0, None)
            assert ran == []
            assert isinstance(await store.commit(step(no, within=ran.append)), Committed)
            assert len(ran) == 1

    async def test_the_time_of_a_change_never_goes_back(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store, at=9_000)
            await store.commit(step(no, catalogue=catalogue("running", agent="other", labels={"k": "v"})))
            row = await row_of(store)
            assert (row.updated, row.status, row.agent, row.labels) == (9_000, "running", "other", {"k": "v"})

    # Holding

    async def test_a_session_is_held_by_one_living_runner(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            for name in ("r1", "r2"):
                assert await store.heartbeat(runner(name), LEASE) == place.clock.now + LEASE
            assert await store.claim(no, "r1") == Committed(1, 1, 1)
            before = await everything(store)
            assert await store.claim(no, "r2") == Held("r1")
            assert await store.claim(no, "r1") == Held("r1")
            assert await store.commit(step(no, 1, 1, "r1", claim=Claim(runner="r2"))) == Held("r1")
            assert await everything(store) == before
            loaded = await store.load("s")
            assert loaded is not None
            assert (loaded.row.holder, loaded.holder_alive, loaded.row.claims) == ("r1", True, 0)
            assert await store.claim(77, "r1") == NoSession()

    async def test_a_session_is_free_when_its_holders_lease_ran_out(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(no, "r1")
            place.clock.advance(LEASE - 1)
            assert await store.claim(no, "r2") == Held("r1")
            place.clock.advance(1)
            loaded = await store.load("s")
            assert loaded is not None
            assert (loaded.row.holder, loaded.holder_alive) == ("r1", False)
            assert await store.runnable(limit=9) == ["s"]
            await store.heartbeat(runner("r2"), LEASE)
            assert await store.commit(step(no, 1, 1, claim=Claim(runner="r2"))) == Committed(2, 2, 1)
            # The one before comes back, and finds that it is too late.
            await store.heartbeat(runner("r1"), LEASE)
            assert await store.commit(step(no, 1, 1, "r1")) == Stale(2, 2, "r2")
            assert await store.commit(step(no, 2, 2, "r1")) == Stale(2, 2, "r2")
            assert await store.release(no, "r1", 1, catalogue()) == Stale(2, 2, "r2")
            assert await store.claim(no, "r1") == Held("r2")

    async def test_a_late_heartbeat_renews_a_lease(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(no, "r1")
            place.clock.advance(3 * LEASE)
            assert [known.alive for known in await store.runners()] == [False]
            assert await store.heartbeat(runner("r1"), LEASE) == place.clock.now + LEASE
            assert await store.claim(no, "r2") == Held("r1")
            assert await store.runners() == [
                Runner(id="r1", host="here", pid=1, started=5, expires=place.clock.now + LEASE, agents=("support",), alive=True)
            ]
            assert await store.commit(step(no, 1, 1, "r1")) == Committed(2, 1, 1)

    async def test_a_session_is_free_when_its_holder_was_never_registered_or_has_retired(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            assert await store.claim(no, "stranger") == Committed(1, 1, 1)
            await store.heartbeat(runner("r1"), LEASE)
            assert await store.claim(no, "r1") == Committed(1, 2, 1)
            assert await store.runnable(limit=9) == []
            await store.retire("r1")
            assert await store.runners() == []
            assert await store.runnable(limit=9) == ["s"]
            assert await store.claim(no, "r2") == Committed(1, 3, 1)
            await store.retire("nobody")

    async def test_a_session_is_free_when_its_holders_store_was_closed(self, place: Place) -> None:
        async with opened(place) as one:
            no = await create(one)
            async with opened(place) as two:
                await two.heartbeat(runner("r2"), LEASE)
                assert await two.claim(no, "r2") == Committed(1, 1, 1)
                assert await one.claim(no, "r1") == Held("r2")
            assert await one.claim(no, "r1") == Committed(1, 2, 1)
            assert [(known.id, known.alive) for known in await one.runners()] == [("r2", False)]

    async def test_force_takes_a_session_from_a_living_holder(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(no, "r1")
            assert await store.claim(no, "r2", force=True) == Committed(1, 2, 1)
            assert await store.commit(step(no, 1, 1, "r1")) == Stale(1, 2, "r2")
            await store.heartbeat(runner("r2"), LEASE)
            assert await store.commit(step(no, 1, 2, claim=Claim(runner="r3", force=True))) == Committed(2, 3, 1)
            assert (await row_of(store)).holder == "r3"

    async def test_a_commit_may_claim_and_release_at_once(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            assert await store.commit(step(no, claim=Claim(runner="r1"), release=True)) == Committed(2, 1, 1)
            row = await row_of(store)
            assert (row.holder, row.fence, row.claims) == (None, 1, 0)
            assert await store.commit(step(no, 2, 1)) == Committed(3, 1, 1)

    async def test_claims_count_takeovers_from_holders_that_never_released(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)

            async def claims() -> int:
                return (await row_of(store)).claims

            await store.claim(no, "dead1")
            assert await claims() == 0
            await store.claim(no, "dead2")
            assert await claims() == 1
            await store.commit(step(no, 1, 2, claim=Claim(runner="dead3")))
            assert await claims() == 2
            await store.claim(no, "r1", force=True)
            assert await claims() == 3
            await store.commit(step(no, 2, 4, "r1"))
            assert await claims() == 3
            assert await store.commit(Commit(no=no, version=3, fence=4, holder="r1", at=1, progress=True)) == Committed(3, 4, 1)
            assert await claims() == 0
            await store.claim(no, "r2")
            assert await claims() == 1
            assert await store.release(no, "r2", 5, catalogue()) == Committed(3, 5, 1)
            assert await claims() == 1
            await store.claim(no, "r3")
            assert await claims() == 1
            await store.commit(step(no, 3, 6, "r3", progress=True, release=True))
            assert await claims() == 0

    async def test_a_release_frees_the_session_and_sets_the_catalogue(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.heartbeat(runner("r1"), LEASE)
            await store.claim(no, "r1")
            assert await store.release(no, "r2", 1, catalogue()) == Stale(1, 1, "r1")
            assert await store.release(no, "r1", 0, catalogue()) == Stale(1, 1, "r1")
            assert await store.release(77, "r1", 1, catalogue()) == Stale(0, 0, None)
            assert await store.release(no, "r1", 1, catalogue("waiting", wake_at=5, title="T")) == Committed(1, 1, 1)
            row = await row_of(store)
            assert (row.holder, row.status, row.wake_at, row.title, row.updated) == (None, "waiting", 5, "T", place.clock.now)
            assert await store.release(no, "r1", 1, catalogue()) == Stale(1, 1, None)

    # Submissions

    async def test_sending_twice_is_sending_once(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            first = await store.submission(no, "m1")
            assert first is not None
            before = await everything(store)
            place.clock.advance(1_000)
            assert await store.send(submission(at=50_000)) == Sent(no=no, row=first, duplicate=True, created=False)
            assert await store.send(submission(create=None, actor="bob")) == Sent(no=no, row=first, duplicate=True, created=False)
            assert await everything(store) == before
            await store.commit(step(no, consumed=(("m1", 2),), settled=(("m1", 2),)))
            receipt = await store.submission(no, "m1")
            assert receipt is not None
            assert await store.send(submission()) == Sent(no=no, row=receipt, duplicate=True, created=False)

    async def test_sending_at_once_from_everywhere_is_sending_once(self, place: Place) -> None:
        async with opened(place) as one, opened(place) as two:
            answers = await asyncio.gather(*(store.send(submission()) for store in (one, two, one, two, two)))
            sent = [answer for answer in answers if isinstance(answer, Sent)]
            assert len(sent) == 5
            assert sorted(answer.duplicate for answer in sent) == [False, True, True, True, True]
            assert sum(answer.created for answer in sent) == 1
            assert len({answer.row.arrival for answer in sent}) == 1

    async def test_an_id_with_another_content_is_a_conflict(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            first = await store.submission(no, "m1")
            before = await everything(store)
            assert first is not None
            assert await store.send(submission(body=b"other", blobs=(content(b"b"),))) == Conflict(first)
            assert await everything(store) == before

    async def test_an_id_belongs_to_its_session(self, place: Place) -> None:
        async with opened(place) as store:
            await create(store, "s1")
            sent = await store.send(submission("s2", body=b"other"))
            assert isinstance(sent, Sent)
            assert (sent.duplicate, sent.created) == (False, True)

    async def test_submissions_wait_in_the_order_of_their_arrival(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            names = [f"z{9 - index}" for index in range(9)]
            for name in names:
                await store.send(submission(name=name))
            rows = await store.inbox(no)
            assert [row.submission_id for row in rows] == ["m1", *names]
            assert [row.arrival for row in rows] == list(range(1, 11))
            assert (await row_of(store)).inbox_head == 10
            assert rows[3].body == b"hello"

    async def test_an_inbox_takes_1024_waiting_submissions(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await asyncio.gather(*(store.send(submission(name=f"x{index}")) for index in range(PENDING_LIMIT - 1)))
            before = await everything(store)
            assert await store.send(submission(name="late")) == QueueIsFull(PENDING_LIMIT)
            assert await everything(store) == before
            known = await store.send(submission(name="x7"))
            assert isinstance(known, Sent)
            assert known.duplicate
            await store.commit(step(no, consumed=(("x7", 2),)))
            assert isinstance(await store.send(submission(name="late")), Sent)
            assert await store.send(submission(name="later")) == QueueIsFull(PENDING_LIMIT)

    async def test_a_submission_wakes_its_session(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            now = place.clock.now

            async def after(
                wake_at: int | None, status: Any, not_before: int | None, name: str, *, urgent: bool = True
            ) -> tuple[int | None, str]:
                row = await row_of(store)
                await store.commit(step(no, row.version, catalogue=catalogue(status, wake_at=wake_at)))
                await store.send(msgspec.structs.replace(submission(name=name, not_before=not_before), urgent=urgent))
                row = await row_of(store)
                return row.wake_at, row.status

            assert await after(None, "idle", None, "a") == (now, "queued")
            assert await after(None, "idle", now + 50, "b") == (now + 50, "queued")
            assert await after(now + 20, "waiting", now + 50, "c") == (now + 20, "waiting")
            assert await after(now + 90, "waiting", now + 50, "d") == (now + 50, "waiting")
            assert await after(None, "waiting", None, "w", urgent=False) == (None, "waiting")
            assert await after(None, "idle", None, "v", urgent=False) == (now, "queued")
            assert await after(now + 90, "running", None, "e") == (now, "running")
            assert await after(now - 90, "archived", None, "f") == (now - 90, "archived")

    async def test_a_submission_brings_its_blobs(self, place: Place) -> None:
        async with opened(place) as store:
            await create(store)
            picture = content(b"picture")
            await store.send(submission(name="m2", blobs=(picture,)))
            assert await store.blob("s", picture.digest) == picture
            forged = StoredBlob(digest=picture.digest, media_type="", data=b"other")
            await raises(UsageError, store.send(submission(name="m3", blobs=(forged,))))
            await raises(UsageError, store.send(submission("new", create=creation(root="new", blobs=(forged,)))))
            assert await store.load("new") is None

    # The queue

    async def test_runnable_are_free_sessions_that_are_due_oldest_first(self, place: Place) -> None:
        async with opened(place) as store:
            now = place.clock.now
            for session_id, agent, wake_at in (
                ("a", "x", now - 5),
                ("b", "y", now - 9),
                ("c", "x", now + 10),
                ("d", "x", None),
                ("e", "y", now),
            ):
                no = await create(store, session_id)
                await store.commit(step(no, catalogue=catalogue("queued", wake_at=wake_at, agent=agent)))
            assert await store.runnable(limit=9) == ["b", "a", "e"]
            assert await store.runnable(limit=1) == ["b"]
            assert await store.runnable(limit=9, agents=["x"]) == ["a"]
            assert await store.runnable(limit=9, agents=[]) == []
            assert await store.next_wake() == now - 9
            place.clock.advance(10)
            assert await store.runnable(limit=9) == ["b", "a", "e", "c"]

    async def test_runnable_are_sessions_of_dead_holders_and_none_of_living_ones(self, place: Place) -> None:
        async with opened(place) as store:
            now = place.clock.now
            numbers = {name: await create(store, name) for name in ("a", "b", "c")}
            await store.heartbeat(runner("r1"), LEASE)
            await store.heartbeat(runner("r2"), 2 * LEASE)
            await store.claim(numbers["a"], "r1")
            await store.claim(numbers["b"], "r2")
            assert await store.runnable(limit=9) == ["c"]
            assert await store.next_wake() == now
            await store.commit(step(numbers["c"], catalogue=catalogue("waiting", wake_at=now + 50 * LEASE)))
            assert await store.next_wake() == now + 50 * LEASE
            await store.commit(step(numbers["a"], 1, 1, "r1", catalogue=catalogue("running", wake_at=None)))
            place.clock.advance(LEASE)
            assert await store.runnable(limit=9) == ["a"]
            place.clock.advance(LEASE)
            assert sorted(await store.runnable(limit=9)) == ["a", "b"]
            assert len(await store.runnable(limit=1)) == 1

    # Reading

    async def test_entries_are_read_by_place_kind_and_number(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            other = await create(store, "other")
            rows = tuple(fact(seq, kind="note" if seq % 3 == 0 else "message", body=bytes([seq])) for seq in range(2, 21))
            await store.commit(step(no, entries=rows, count=19))
            await store.commit(step(other, count=4))

            async def seqs(**filters: Any) -> list[int]:
                return [entry.seq for entry in await store.entries(no, **filters)]

            assert await seqs() == list(range(1, 21))
            assert await seqs(after=17) == [18, 19, 20]
            assert await seqs(after=17, before=20) == [18, 19]
            assert await seqs(before=3) == [1, 2]
            assert await seqs(after=20) == []
            assert await seqs(before=1) == []
            assert await seqs(after=5, before=4) == []
            assert await seqs(limit=2) == [1, 2]
            assert await seqs(limit=0) == []
            assert await seqs(limit=2, newest_first=True) == [20, 19]
            assert await seqs(before=10, after=6, newest_first=True) == [9, 8, 7]
            assert await seqs(kinds=["note"]) == [3, 6, 9, 12, 15, 18]
            assert await seqs(kinds=("note", "session_created"), limit=3) == [1, 3, 6]
            assert await seqs(kinds=iter(["note"]), before=15, limit=2, newest_first=True) == [12, 9]
            assert await seqs(kinds=[]) == []
            assert (await store.entries(no, after=4, limit=1)) == [rows[3]]

    async def test_a_long_journal_is_read_whole(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            for start in range(1, 2_000, 500):
                await store.commit(step(no, start, count=500))
            assert [entry.seq for entry in await store.entries(no)] == list(range(1, 2_002))
            assert await store.entries(no, newest_first=True, limit=1) == [fact(2_001)]

    async def test_pages_of_the_list_hold_while_sessions_change(self, place: Place) -> None:
        async with opened(place) as store:
            numbers = {}
            for index in range(20):
                # Two of each time, so that the number decides between them.
                numbers[f"s{index}"] = await create(store, f"s{index}", at=1_000 + index // 2)
            seen: list[str] = []
            before: tuple[int, int] | None = None
            while page := await store.sessions(SessionQuery(before=before, limit=3)):
                seen += [row.session_id for row in page]
                before = page[-1].updated, page[-1].no
                if len(seen) == 6:
                    # One that was listed and one that was not yet change, and a new one comes: they are at the front now.
                    await store.commit(step(numbers["s19"], catalogue=catalogue("running")))
                    await store.commit(step(numbers["s0"], catalogue=catalogue("running")))
                    await create(store, "new", at=3_000)
            assert seen == [f"s{index}" for index in range(19, 0, -1)]
            fresh = await store.sessions(SessionQuery(limit=3))
            assert [row.session_id for row in fresh] == ["new", "s19", "s0"]

    async def test_the_list_is_filtered(self, place: Place) -> None:
        async with opened(place) as store:
            for index, (owner, agent, status) in enumerate(
                (("a", "x", "idle"), ("a", "y", "halted"), ("b", "x", "halted"), ("b", "x", "stuck"))
            ):
                no = await create(store, f"s{index}", at=1_000 + index, create=creation(root=f"s{index}", owner=owner))
                await store.commit(Commit(no=no, version=1, fence=0, holder=None, at=0, catalogue=catalogue(status, agent=agent)))

            async def listed(**filters: Any) -> list[str]:
                return [row.session_id for row in await store.sessions(SessionQuery(**filters))]

            assert await listed() == ["s3", "s2", "s1", "s0"]
            assert await listed(owner="a") == ["s1", "s0"]
            assert await listed(agent="x") == ["s3", "s2", "s0"]
            assert await listed(status=("halted", "idle")) == ["s2", "s1", "s0"]
            assert await listed(owner="b", agent="x", status=("halted",)) == ["s2"]
            assert await listed(owner="c") == []
            assert await listed(limit=0) == []
            (row,) = await store.sessions(SessionQuery(owner="b", limit=1))
            assert row == await row_of(store, "s3")

    async def test_the_list_is_searched_by_labels_words_and_time(self, place: Place) -> None:
        async with opened(place) as store:
            for index, (title, labels) in enumerate(
                (
                    ("Refund of A-1", {"desk": "3", "sort": "mail"}),
                    ("REFUND B-2 Straße", {"desk": "3"}),
                    ('A quote\'s "and" %_ \\', {"a \"b\" 'c' $.x": "1"}),
                    ("", {}),
                )
            ):
                no = await create(store, f"s{index}", at=1_000 + index)
                await store.commit(
                    Commit(no=no, version=1, fence=0, holder=None, at=0, catalogue=catalogue("idle", title=title, labels=labels))
                )

            async def listed(**filters: Any) -> list[str]:
                return [row.session_id for row in await store.sessions(SessionQuery(**filters))]

            assert await listed(words=("refund",)) == ["s1", "s0"]
            assert await listed(words=("refund", "STRASSE")) == ["s1"]
            assert await listed(words=("%_",)) == ["s2"]
            assert await listed(words=('"and"', "'s")) == ["s2"]
            assert await listed(words=("nothing",)) == []
            assert await listed(labels={"desk": "3"}) == ["s1", "s0"]
            assert await listed(labels={"desk": "3", "sort": "mail"}) == ["s0"]
            assert await listed(labels={"desk": "4"}) == []
            assert await listed(labels={"a \"b\" 'c' $.x": "1"}) == ["s2"]
            assert await listed(since=1_002) == ["s3", "s2"]
            assert await listed(until=1_002) == ["s1", "s0"]
            assert await listed(since=1_001, until=1_003, words=("refund",)) == ["s1"]
            assert await listed(since=2_000) == []

    async def test_pages_by_the_time_of_creation_show_each_session_once_whatever_changes(self, place: Place) -> None:
        async with opened(place) as store:
            numbers = {f"s{index}": await create(store, f"s{index}", at=1_000) for index in range(20)}
            seen: list[str] = []
            before: tuple[int, int] | None = None
            while page := await store.sessions(SessionQuery(order="created", before=before, limit=3)):
                seen += [row.session_id for row in page]
                before = page[-1].updated, page[-1].no
                for name in ("s19", "s0", seen[-1]):
                    row = await row_of(store, name)
                    await store.commit(step(numbers[name], row.version, catalogue=catalogue("running")))
                await create(store, f"new{len(seen)}", at=3_000)
            assert seen == [f"s{index}" for index in range(19, -1, -1)]

    async def test_an_archived_session_is_hidden_and_takes_nothing_new(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await create(store, "other")
            put_away = step(no, consumed=(("m1", 2),), settled=(("m1", 2),), catalogue=catalogue("archived"))
            assert isinstance(await store.commit(put_away), Committed)
            untouched = await everything(store)
            assert [row.session_id for row in await store.sessions(SessionQuery())] == ["other"]
            assert {row.session_id for row in await store.sessions(SessionQuery(archived=True))} == {"s", "other"}
            assert [row.session_id for row in await store.sessions(SessionQuery(status=("archived",)))] == ["s"]
            assert await store.send(submission(name="m2")) == NoSession(archived=True)
            again = await store.send(submission())
            assert isinstance(again, Sent)
            assert again.duplicate
            assert isinstance(await store.send(submission(body=b"other")), Conflict)
            assert await everything(store) == untouched
            assert not await store.buried("s")
            assert await store.runnable(limit=9) == ["other"]

    async def test_a_halted_session_takes_only_what_is_patient_and_is_woken_by_nothing(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await create(store, "other")
            assert isinstance(await store.commit(step(no, catalogue=catalogue("halted"))), Committed)
            untouched = await everything(store)
            assert {row.session_id for row in await store.sessions(SessionQuery())} == {"s", "other"}
            assert await store.send(submission(name="m2")) == NoSession(halted=True)
            again = await store.send(submission())
            assert isinstance(again, Sent)
            assert again.duplicate
            assert isinstance(await store.send(submission(body=b"other")), Conflict)
            assert await everything(store) == untouched
            late = await store.send(msgspec.structs.replace(submission(name="m2"), patient=True))
            assert isinstance(late, Sent)
            assert (await row_of(store, "s")).status == "halted"
            assert await store.runnable(limit=9) == ["other"]
            assert isinstance(await store.commit(step(no, 2, catalogue=catalogue("idle"))), Committed)
            assert isinstance(await store.send(submission(name="m2")), Sent)

    # Content

    async def test_content_outside_is_referred_to_and_never_made_up(self, place: Place) -> None:
        async with opened(place) as store:
            data = b"\x00\xff" * 50_000
            there = OutsideBlob(digest=hashlib.sha256(data).hexdigest(), media_type="image/png", size=len(data))
            picture, other = content(data), content(b"inside")
            no = await create(store, create=creation(root="tree"))
            await store.commit(step(no, blobs=(there, other)))
            # it is one of the tree's, known as standing outside, and its bytes are an error, whoever is asked for them
            assert await store.blobs("tree") == sorted((there.digest, other.digest))
            assert await store.outside([there.digest, "f" * 64]) == {there.digest}
            await raises(StoreError, store.blob("tree", there.digest))
            assert await store.outside([]) == set()
            # what is known already stays as it is
            await store.put_blob("second", picture)
            assert await store.blob("second", picture.digest) == picture
            await store.put_blob("second", there)
            assert await store.blob("second", picture.digest) == picture
            # and it goes with its tree
            await store.delete(no)
            assert await store.blobs("tree") == []

    async def test_content_is_stored_once_for_its_tree(self, place: Place) -> None:
        async with opened(place) as store:
            data = content(b"\x00\xff" * 50_000)
            await store.put_blob("tree", data)
            await store.put_blob("tree", data)
            assert await store.blobs("tree") == [data.digest]
            assert await store.blob("tree", data.digest) == data
            assert await store.blob("other", data.digest) is None
            assert await store.blobs("other") == []
            empty = content(b"")
            await store.put_blob("tree", empty)
            assert await store.blob("tree", empty.digest) == empty
            await raises(UsageError, store.put_blob("tree", StoredBlob(digest=data.digest, media_type="", data=b"x")))

    async def test_a_cursor_moves_forward_only(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            assert await store.cursor(no, "ann") == 0
            assert await store.ack(no, "ann", 5) == 5
            assert await store.ack(no, "ann", 3) == 5
            assert await store.ack(no, "bob", 3) == 3
            assert await store.ack(no, "ann", 9) == 9
            assert (await store.cursor(no, "ann"), await store.cursor(no, "bob")) == (9, 3)
            assert await store.ack(77, "ann", 5) == 0
            assert await store.cursor(77, "ann") == 0

    async def test_news_are_what_a_consumer_has_not_acknowledged(self, place: Place) -> None:
        async with opened(place) as store:
            one, two, three = [await create(store, name) for name in ("one", "two", "three")]

            async def news(**options: Any) -> list[tuple[int, str, int, int]]:
                found = await store.news("ann", **{"limit": 9, **options})
                return [(item.no, item.session_id, item.version, item.seq) for item in found]

            assert await news() == [(one, "one", 1, 0), (two, "two", 1, 0), (three, "three", 1, 0)]
            assert await news(limit=2) == [(one, "one", 1, 0), (two, "two", 1, 0)]
            assert await news(after=two) == [(three, "three", 1, 0)]
            await store.ack(two, "ann", 1)
            await store.ack(one, "bob", 1)
            assert [item[1] for item in await news()] == ["one", "three"]
            assert (await news(no=two), await news(no=three), await news(no=99)) == ([], [(three, "three", 1, 0)], [])
            await store.commit(step(two, count=3))
            assert await news(no=two) == [(two, "two", 4, 1)]
            await store.delete(three)
            assert [item[1] for item in await news()] == ["one", "two"]
            await store.forget("ann")
            await store.forget("ann")
            assert await news(no=two) == [(two, "two", 4, 0)]
            assert await store.cursor(one, "bob") == 1

    # Deleting

    async def test_a_deleted_session_leaves_a_tombstone(self, place: Place) -> None:
        async with opened(place) as store:
            picture = content(b"picture")
            no = await create(store, create=creation(root="s", blobs=(picture,)))
            other = await create(store, "other")
            await store.send(submission(name="m2"))
            effect = EffectRow(effect_key=b"k", seq=2, state="succeeded")
            await store.commit(
                step(no, consumed=(("m1", 2),), effects=(effect,), catalogue=catalogue("idle", title="T", labels={"a": "b"}))
            )
            await store.ack(no, "ann", 2)
            await store.claim(no, "r1")
            untouched = await everything(store, "other")
            assert (await store.buried("s"), await store.buried("never")) == (False, False)
            await store.delete(no)
            assert (await store.buried("s"), await store.buried("other")) == (True, False)
            await store.delete(no)
            await store.delete(77)
            assert await store.load("s") is None
            assert await store.entries(no) == []
            assert await store.inbox(no) == []
            assert await store.effects(no) == []
            assert await store.cursor(no, "ann") == 0
            assert await store.blobs("s") == []
            assert await store.blob("s", picture.digest) is None
            assert await store.ack(no, "ann", 5) == 0
            for name in ("m1", "m2"):
                receipt = await store.submission(no, name)
                assert receipt is not None
                assert receipt.body is None
            assert await store.send(submission()) == NoSession(deleted=True)
            assert await store.send(submission(name="m9")) == NoSession(deleted=True)
            assert await store.commit(step(no, 2, 1, "r1")) == NoSession(deleted=True)
            assert await store.commit(step(no, 2, 2)) == NoSession(deleted=True)
            assert await store.claim(no, "r2", force=True) == NoSession(deleted=True)
            assert isinstance(await store.release(no, "r1", 1, catalogue()), Stale)
            assert await store.runnable(limit=9) == ["other"]
            assert [row.session_id for row in await store.sessions(SessionQuery())] == ["other"]
            (tombstone,) = await store.sessions(SessionQuery(status=("deleted",)))
            assert (tombstone.session_id, tombstone.holder, tombstone.title, tombstone.labels) == ("s", None, "", {})
            assert tombstone.checkpoint == b""
            assert await everything(store, "other") == untouched
            assert isinstance(await store.commit(step(other)), Committed)

    async def test_what_a_deleted_session_keeps_for_its_forks_goes_when_it_is_deleted_again(self, place: Place) -> None:
        async with opened(place) as store:
            shared, late = content(b"shared"), content(b"late")
            no = await create(store, create=creation(root="s", blobs=(shared, late)))
            other = await create(store, "fork", create=creation(root="s"))
            await store.commit(
                step(
                    no,
                    entries=(fact(2, body=shared.digest.encode()), fact(3, body=late.digest.encode()), fact(4, kind="redacted"), fact(5)),
                    effects=tuple(EffectRow(effect_key=b"k", seq=seq, state="succeeded") for seq in (2, 3, 5)),
                )
            )
            await store.delete(no, keep=2, receipts=(5,), erased=(shared.digest, late.digest))
            assert await store.load("s") is None
            assert await store.buried("s")
            hidden = await store.load("s", hidden=True)
            assert hidden is not None
            assert (hidden.row.no, hidden.row.status) == (no, "deleted")
            assert [row.seq for row in await store.entries(no)] == [1, 2, 4, 5]
            assert [row.seq for row in await store.entries(no, after=2)] == [4, 5]
            assert [row.seq for row in await store.entries(no, before=3, newest_first=True)] == [2, 1]
            assert [row.seq for row in await store.effects(no)] == [2, 5]
            assert await store.blobs("s") == [shared.digest]
            assert await store.send(submission(name="m9")) == NoSession(deleted=True)
            assert [row.session_id for row in await store.sessions(SessionQuery(archived=True))] == ["fork"]
            await store.delete(no, erased=(shared.digest,))
            assert (await store.entries(no), await store.effects(no), await store.blobs("s")) == ([], [], [])
            assert isinstance(await store.commit(step(other)), Committed)

    async def test_a_trees_content_goes_with_the_last_of_its_sessions(self, place: Place) -> None:
        async with opened(place) as store:
            picture = content(b"picture")
            one = await create(store, "one", create=creation(root="tree", blobs=(picture,)))
            two = await create(store, "two", create=creation(root="tree"))
            await store.delete(one)
            assert await store.blob("tree", picture.digest) == picture
            await store.delete(two)
            assert await store.blob("tree", picture.digest) is None

    # Notices

    async def test_a_listener_hears_of_its_own_handles_changes_by_number(self, place: Place) -> None:
        async with opened(place) as store:
            heard: asyncio.Queue[int | None] = asyncio.Queue()
            stop = store.changes(heard.put_nowait)

            async def next_number() -> int:
                while (number := await asyncio.wait_for(heard.get(), PATIENCE)) is None:
                    pass
                return number

            no = await create(store)
            assert await next_number() == no
            await store.commit(step(no))
            assert await next_number() == no
            await store.commit(step(no))
            await store.send(submission())
            await store.claim(no, "r1")
            assert await next_number() == no
            await store.release(no, "r1", 1, catalogue())
            assert await next_number() == no
            await store.delete(no)
            assert await next_number() == no
            stop()
            stop()
            await create(store, "other")
            await asyncio.sleep(0)
            assert [number for number in _drained(heard) if number is not None] == []

    async def test_a_listener_hears_that_another_handle_changed_something(self, place: Place) -> None:
        async with opened(place) as one, opened(place) as two:
            no = await create(one)
            heard = asyncio.Event()
            stop = two.changes(lambda _: heard.set())
            for version in range(1, 4):
                # What is heard first may be of before; what is read after the last notice is the truth.
                heard.clear()
                await one.commit(step(no, version))
                await asyncio.wait_for(heard.wait(), PATIENCE)
                assert (await row_of(two)).version == version + 1
            stop()

    async def test_a_listener_that_fails_harms_nobody(self, place: Place) -> None:
        async with opened(place) as store:
            complaints: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            heard = asyncio.Event()
            store.changes(lambda _: 1 / 0)  # type: ignore[arg-type]
            store.changes(lambda _: heard.set())
            no = await create(store)
            await asyncio.wait_for(heard.wait(), PATIENCE)
            assert isinstance(await store.commit(step(no)), Committed)
            assert complaints
            assert isinstance(complaints[0]["exception"], ZeroDivisionError)

    # Life

    async def test_a_closed_store_says_so(self, place: Place) -> None:
        store = place.connect()
        await raises(StoreClosed, store.load("s"))
        await store.open()
        no = await create(store)
        await store.close()
        await store.close()
        calls: list[Awaitable[Any]] = [
            store.now(),
            store.load("s"),
            store.commit(step(no)),
            store.send(submission()),
            store.claim(no, "r1"),
            store.release(no, "r1", 0, catalogue()),
            store.heartbeat(runner(), LEASE),
            store.runners(),
            store.retire("r1"),
            store.runnable(limit=1),
            store.next_wake(),
            store.inbox(no),
            store.submission(no, "m1"),
            store.entries(no),
            store.effects(no),
            store.sessions(SessionQuery()),
            store.blob("s", "d"),
            store.put_blob("s", content(b"b")),
            store.blobs("s"),
            store.cursor(no, "ann"),
            store.ack(no, "ann", 1),
            store.delete(no),
        ]
        for call in calls:
            await raises(StoreClosed, call)
        await store.open()
        assert (await row_of(store)).no == no
        await store.close()

    async def test_it_is_open_until_the_last_of_its_users_closes_it(self, place: Place) -> None:
        store = place.connect()
        await store.open()
        no = await create(store)
        await store.heartbeat(runner(), LEASE)
        await store.claim(no, "r1")
        await store.open()
        await store.close()
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.holder_alive
        assert isinstance(await store.commit(step(no, fence=1, holder="r1")), Committed)
        await store.close()
        await raises(StoreClosed, store.load("s"))
        await store.close()
        async with opened(place) as other:
            left = await other.load("s")
            assert left is not None
            assert not left.holder_alive

    async def test_what_was_committed_is_there_after_opening_again(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.commit(step(no, blobs=(content(b"b"),), effects=(EffectRow(effect_key=b"k", seq=2, state="s"),)))
            await store.ack(no, "ann", 2)
            before = await everything(store)
        async with opened(place) as store:
            assert await everything(store) == before

    async def test_a_cancelled_caller_does_not_cancel_its_write(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            task = asyncio.create_task(_result(store.commit(step(no))))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            # What was begun before is seen by what is begun after.
            assert await store.commit(step(no, 2)) == Committed(3, 0, 1)

    async def test_closing_finishes_what_was_begun(self, place: Place) -> None:
        async with opened(place) as other:
            store = place.connect()
            await store.open()
            tasks = [asyncio.create_task(_result(store.send(submission(f"s{index}")))) for index in range(50)]
            await asyncio.sleep(0)
            await store.close()
            answers = await asyncio.gather(*tasks)
            assert all(isinstance(answer, Sent) for answer in answers)
            assert len(await other.sessions(SessionQuery(limit=99))) == 50

    async def test_the_stores_time_never_goes_back(self, place: Place) -> None:
        async with opened(place) as store:
            start = await store.now()
            place.clock.advance(500)
            assert await store.now() == start + 500
            place.clock.advance(-400)
            assert await store.now() == start + 500
            place.clock.advance(700)
            assert await store.now() == start + 800

    async def test_many_sessions_at_once_do_not_mix(self, place: Place) -> None:
        async with opened(place) as one, opened(place) as two:

            async def live(store: Store, session_id: str) -> None:
                no = await create(store, session_id)
                for version in range(1, 12):
                    entry = fact(version + 1, body=f"{session_id} {version}".encode())
                    answer = await store.commit(step(no, version, entries=(entry,)))
                    assert answer == Committed(version + 1, 0, 1)
                found = await store.entries(no, after=1)
                assert [entry.body for entry in found] == [f"{session_id} {version}".encode() for version in range(1, 12)]

            await asyncio.gather(*(live(store, f"s{index}{store is one}") for index in range(15) for store in (one, two)))


async def _result(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _drained(queue: asyncio.Queue[int | None]) -> list[int | None]:
    found = []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found
