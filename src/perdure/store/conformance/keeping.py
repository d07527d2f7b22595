"""Archived, halted and deleted sessions."""

from __future__ import annotations

import msgspec

from ..audit import Auditable
from ..base import (
    Committed,
    Conflict,
    EffectRow,
    NoSession,
    Sent,
    SessionQuery,
    Stale,
)
from .kit import (
    Place,
    catalogue,
    content,
    create,
    creation,
    everything,
    fact,
    opened,
    row_of,
    step,
    submission,
)


class Keeping:
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
            assert isinstance(await store.release(no, "r1", 1, catalogue(), 1, at=2_000), Stale)
            assert await store.runnable(limit=9) == ["other"]
            assert [row.session_id for row in await store.sessions(SessionQuery())] == ["other"]
            (tombstone,) = await store.sessions(SessionQuery(status=("deleted",)))
            assert (tombstone.session_id, tombstone.holder, tombstone.title, tombstone.labels) == ("s", None, "", {})
            assert tombstone.checkpoint == b""
            assert await everything(store, "other") == untouched
            assert not isinstance(store, Auditable) or await store.strays(limit=9) == []
            assert isinstance(await store.commit(step(other)), Committed)

    async def test_a_session_is_deleted_only_while_its_tree_is_as_it_was_looked_at(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store, "s", create=creation(root="s"))
            await create(store, "elsewhere")
            await create(store, "fork", create=creation(root="s"))
            untouched = await everything(store)
            assert not await store.delete(no, tree=1)
            assert await everything(store) == untouched
            assert await store.delete(no, tree=2)
            assert await store.buried("s")

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
