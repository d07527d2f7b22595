"""How sessions begin, what identifies them, and who sees them."""

from __future__ import annotations

import msgspec

from ...core.errors import UsageError
from ...core.journal import GENESIS
from ..base import (
    Committed,
    Created,
    IdTaken,
    NewSession,
    NoSession,
    ParentRedacted,
    Sent,
    SessionQuery,
    SessionRow,
)
from .kit import (
    Place,
    catalogue,
    content,
    create,
    creation,
    everything,
    fact,
    facts,
    opened,
    raises,
    row_of,
    step,
    submission,
)


class Sessions:
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
            assert loaded.number == made.create.entries[-1].number
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

    async def test_nothing_begins_for_another_owner_than_the_sender_means(self, place: Place) -> None:
        async with opened(place) as store:
            sent = submission(create=creation(root="s", owner="acme"))
            assert await store.send(msgspec.structs.replace(sent, owner="other")) == NoSession()
            assert await store.load("s") is None
            assert await store.sessions(SessionQuery(children=True)) == []

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

    async def test_a_session_takes_nothing_over_that_was_redacted_since_it_was_read(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store, "parent")
            child = msgspec.structs.replace(creation(root="parent"), parent="parent", parent_kind="fork", parent_version=1)
            assert isinstance(await store.commit(step(no, 1, entries=(fact(2),))), Committed)
            assert isinstance(await store.create("one", child, at=1_000), Created)
            assert isinstance(await store.commit(step(no, 2, entries=(fact(3, kind="redacted"),), redacted=(2,))), Committed)
            assert await store.create("two", child, at=1_000) == ParentRedacted()
            assert await store.load("two") is None
            assert isinstance(await store.create("two", msgspec.structs.replace(child, parent_version=3), at=1_000), Created)

    async def test_a_submission_begins_a_session_only_under_a_parent_that_is_there(self, place: Place) -> None:
        async with opened(place) as store:
            child = msgspec.structs.replace(creation(root="parent"), parent="parent", parent_kind="child")
            assert await store.send(submission("child", create=child)) == NoSession()
            no = await create(store, "parent")
            assert isinstance(await store.send(submission("child", create=child)), Sent)
            assert isinstance(await store.send(submission("child", create=child)), Sent)
            await store.delete(no)
            assert await store.send(submission("other", create=child)) == NoSession(deleted=True)
            assert await store.load("other") is None

    async def test_a_submission_for_a_child_finds_no_session_that_is_not_its_parents(self, place: Place) -> None:
        async with opened(place) as store:
            await create(store, "parent")
            await create(store, "child")
            untouched = await everything(store, "child")
            child = msgspec.structs.replace(creation(root="parent"), parent="parent", parent_kind="child")
            assert await store.send(submission("child", "m2", create=child)) == NoSession()
            assert await everything(store, "child") == untouched

    async def test_a_message_is_found_by_its_number(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            # The first entry counts 1; what a fork takes over makes the count jump.
            numbers = [1, 1, 4, 5, 5, 5, 6]
            entries = tuple(msgspec.structs.replace(fact(seq), number=number) for seq, number in enumerate(numbers, 2))
            assert isinstance(await store.commit(step(no, entries=entries, checkpoint=b"c")), Committed)
            found = await store.seek(no, range(8))
            assert found == [1, 1, 4, 4, 4, 5, 8, None]
            assert await store.seek(77, [1, 2]) == [None, None]

    async def test_a_message_that_a_fork_took_over_is_found_where_it_did(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            entries = tuple(msgspec.structs.replace(fact(seq), number=number) for seq, number in enumerate([6, 6, 7], 2))
            assert isinstance(await store.commit(step(no, entries=entries[:1], checkpoint=b"c")), Committed)
            assert await store.seek(no, range(8)) == [1, 1, 2, 2, 2, 2, 2, None]
            assert isinstance(await store.commit(step(no, 2, entries=entries[1:], checkpoint=b"c")), Committed)
            assert await store.seek(no, range(8)) == [1, 1, 2, 2, 2, 2, 2, 4]

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
