"""What one commit changes, and what makes it change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from ...core.errors import UsageError
from ..base import (
    AlreadyTaken,
    AlreadyThere,
    Claim,
    Commit,
    Committed,
    Conflict,
    Edited,
    EffectRow,
    InboxMoved,
    InboxRow,
    NoSession,
    Run,
    Sent,
    Stale,
    Store,
    StoredBlob,
    UniqueRow,
)
from .kit import (
    LEASE,
    Place,
    catalogue,
    content,
    create,
    everything,
    fact,
    facts,
    opened,
    raises,
    row_of,
    runner,
    step,
    submission,
)


class Commits:
    async def test_a_commit_appends_its_entries_and_replaces_the_checkpoint(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            before = await row_of(store)
            assert await store.commit(step(no, count=3)) == Committed(4, 0, 1)
            loaded = await store.load("s")
            assert loaded is not None
            # Whose session it is, and all else that the catalogue says, is no part of it.
            assert loaded.row == msgspec.structs.replace(before, version=4, checkpoint=b"checkpoint 4")
            assert loaded.chain == fact(4).chain
            assert await store.entries(no) == [fact(1, kind="session_created"), *facts(2, 4)]

    async def test_a_session_is_loaded_with_the_chain_and_the_number_of_its_last_entry(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            # Of these entries only the last is a message, as its number says.
            entries = [msgspec.structs.replace(fact(seq), number=number) for seq, number in ((2, 1), (3, 1), (4, 2))]
            for commit, last in (
                (step(no, entries=tuple(entries[:2])), entries[1]),
                (step(no, 3, entries=(entries[2],)), entries[2]),
                (Commit(no=no, version=4, fence=0, holder=None, at=5_000, catalogue=catalogue("waiting")), entries[2]),
            ):
                await store.commit(commit)
                loaded = await store.load("s")
                assert loaded is not None
                assert (loaded.row.version, loaded.chain, loaded.number) == (last.seq, last.chain, last.number)

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
            for entries in ((fact(3),), (fact(1),), (fact(2), fact(4)), (fact(3), fact(2)), (fact(2), fact(2))):
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
            sent = [submission(name=name) for name in ("m2", "m3")]
            for one in sent:
                await store.send(one)
            edit = Edited(submission_id="m2", body=b"other")
            await store.commit(step(no, edited=(edit,), dropped=("m3",), consumed=(("m1", 2),)))
            rows = await store.inbox(no)
            assert [(row.submission_id, row.digest, row.body, row.arrival) for row in rows] == [("m2", sent[0].digest, b"other", 2)]
            assert await store.submission(no, "m3") is None
            before = await everything(store)
            wrong: list[dict[str, Any]] = [
                {"edited": (Edited(submission_id="m1", body=b""),)},
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
            edited = await store.send(sent[0])
            assert isinstance(edited, Sent)
            assert (edited.duplicate, edited.row.body) == (True, b"other")

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

    async def test_what_runs_within_a_commit_is_part_of_it_and_says_what_the_commit_is(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)

            def within(run: Run) -> Commit:
                run(lambda connection: connection.execute("DROP TABLE IF EXISTS seats"))
                run(lambda connection: connection.execute("CREATE TABLE seats (name TEXT)"))
                run(lambda connection: connection.execute("INSERT INTO seats VALUES ('12A')"))
                taken = run(lambda connection: connection.execute("SELECT name FROM seats").fetchall())
                return step(no, count=len(taken) + 1, checkpoint=repr(taken[0][0]).encode(), consumed=(("m1", 2),))

            assert await store.commit(step(no, within=within)) == Committed(3, 0, 1)
            row = await row_of(store)
            assert (row.version, row.checkpoint) == (3, b"'12A'")
            assert await store.inbox(no) == []
            assert await seats(store, no, 3) == ["12A"]

    async def test_what_raises_within_a_commit_leaves_nothing_and_the_commit_may_say_so(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await seats(store, no, 1, anew=True)

            def fails(connection: Any) -> None:
                connection.execute("INSERT INTO seats VALUES ('12B')")
                raise KeyError("no")

            def within(run: Run) -> Commit:
                run(lambda connection: connection.execute("INSERT INTO seats VALUES ('12A')"))
                try:
                    run(fails)
                except KeyError:
                    return step(no, 2, checkpoint=b"failed")
                return step(no, 2)

            assert await store.commit(step(no, 2, within=within)) == Committed(3, 0, 1)
            assert (await row_of(store)).checkpoint == b"failed"
            assert await seats(store, no, 3) == ["12A"]

    async def test_a_commit_that_can_not_be_made_within_itself_is_none_and_harms_no_other(self, place: Place) -> None:
        async with opened(place) as store:
            numbers = [await create(store, f"s{index}") for index in range(12)]
            await seats(store, numbers[0], 1, anew=True)
            before = await everything(store, "s5")
            ran: list[int] = []

            def within(index: int) -> Callable[[Run], Commit]:
                def made(run: Run) -> Commit:
                    ran.append(index)
                    run(lambda connection: connection.execute(f"INSERT INTO seats VALUES ('{index:02}')"))
                    if index == 5:
                        raise KeyError("no")
                    # One that was not compared with what is stored is none either.
                    return step(numbers[index], version[index] + (index == 6), blobs=(content(b"b"),), claim=Claim(runner="r1"))

                return made

            version = [2] + [1] * 11
            commits = [
                store.commit(step(no, version[index], within=within(index), claim=Claim(runner="r1"))) for index, no in enumerate(numbers)
            ]
            answers = await asyncio.gather(*commits, return_exceptions=True)
            assert isinstance(answers[5], KeyError)
            assert isinstance(answers[6], UsageError)
            good = [index for index in range(12) if index not in (5, 6)]
            assert [answers[index] for index in good] == [Committed(version[index] + 1, 1, 1) for index in good]
            assert set(ran) == set(range(12))
            assert await everything(store, "s5") == before
            assert sorted(await seats(store, numbers[5], 1)) == [f"{index:02}" for index in good]

    async def test_nothing_runs_within_a_refused_commit(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            ran: list[Any] = []

            def within(run: Run) -> Commit:
                ran.append(run)
                return step(no)

            assert await store.commit(step(no, 5, within=within)) == Stale(1, 0, None)
            assert await store.commit(step(no, holder="r1", within=within)) == Stale(1, 0, None)
            assert await store.commit(step(no, inbox_head=0, within=within)) == InboxMoved(1)
            assert ran == []
            assert isinstance(await store.commit(step(no, within=within)), Committed)
            assert len(ran) == 1

    async def test_what_one_operation_took_no_other_can_take(self, place: Place) -> None:
        async with opened(place) as store:
            one, other = await create(store), await create(store, "t")
            assert await store.unique("k") is None
            assert await store.commit(step(one, taken=(("k", "t2.0.1"), ("l", "t2.0.2")))) == Committed(2, 0, 1)
            row = UniqueRow(key="k", operation="t2.0.1", no=one, session_id="s")
            assert await store.unique("k") == row
            before = await everything(store, "t")
            assert await store.commit(step(other, taken=(("m", "t2.0.1"), ("k", "t2.0.1")))) == AlreadyTaken(row)
            assert await store.commit(step(one, 2, taken=(("k", "t2.0.3"),))) == AlreadyTaken(row)
            assert await store.commit(step(one, 2, taken=(("k", "t2.0.1"),))) == Committed(3, 0, 1)
            assert await everything(store, "t") == before
            assert await store.unique("m") is None
            assert [(item.key, item.operation) for item in await store.uniques(one)] == [("k", "t2.0.1"), ("l", "t2.0.2")]
            assert await store.uniques(other) == []

    async def test_what_was_taken_is_done_or_uncertain_or_free_again_as_the_operation_ends(self, place: Place) -> None:
        async with opened(place) as store:
            one, other = await create(store), await create(store, "t")
            for no in (one, other):
                assert isinstance(await store.commit(step(no, taken=((f"k{no}", "o1"), (f"l{no}", "o2"), (f"m{no}", "o3")))), Committed)
            decided = (("o1", "succeeded", 3), ("o2", "uncertain", 3), ("o3", None, 3), ("o4", "succeeded", 3))
            assert isinstance(await store.commit(step(one, 2, decided=decided)), Committed)
            told = [(row.operation, row.state, row.seq) for row in await store.uniques(one)]
            assert told == [("o1", "succeeded", 3), ("o2", "uncertain", 3)]
            assert {row.state for row in await store.uniques(other)} == {"pending"}
            assert isinstance(await store.commit(step(other, 2, taken=((f"m{one}", "o5"),))), Committed)

    async def test_of_many_who_take_the_same_at_once_one_gets_it(self, place: Place) -> None:
        async with opened(place) as store:
            numbers = [await create(store, f"s{index}") for index in range(12)]
            answers = await asyncio.gather(*(store.commit(step(no, taken=(("k", "o"),))) for no in numbers))
            row = await store.unique("k")
            assert row is not None
            assert [no for no, answer in zip(numbers, answers, strict=True) if isinstance(answer, Committed)] == [row.no]
            assert sum(answer == AlreadyTaken(row) for answer in answers) == 11

    async def test_what_a_deleted_session_took_stays_taken_and_what_was_pending_is_uncertain(self, place: Place) -> None:
        async with opened(place) as store:
            one, other = await create(store), await create(store, "t")
            assert isinstance(await store.commit(step(one, taken=(("k", "o1"), ("l", "o2")))), Committed)
            assert isinstance(await store.commit(step(one, 2, decided=(("o1", "succeeded", 2),))), Committed)
            await store.delete(one)
            told = [(row.operation, row.state, row.seq, row.session_id, row.deleted) for row in await store.uniques(one)]
            assert told == [("o1", "succeeded", 2, "s", True), ("o2", "uncertain", 0, "s", True)]
            row = await store.unique("l")
            assert row is not None
            assert await store.commit(step(other, taken=(("l", "o"),))) == AlreadyTaken(row)

    async def test_what_a_deleted_session_took_can_be_freed_and_what_a_living_one_took_cannot(self, place: Place) -> None:
        async with opened(place) as store:
            one, other = await create(store), await create(store, "t")
            assert isinstance(await store.commit(step(one, taken=(("k", "o1"), ("l", "o2")))), Committed)
            assert isinstance(await store.commit(step(other, taken=(("m", "o1"),))), Committed)
            assert [await store.free(no) for no in (one, other, 77)] == [0, 0, 0]
            assert len(await store.uniques(one)) == 2
            await store.delete(one)
            assert [await store.free(one), await store.free(one)] == [2, 0]
            assert await store.uniques(one) == []
            assert len(await store.uniques(other)) == 1
            assert isinstance(await store.commit(step(other, 2, taken=(("l", "o2"),))), Committed)

    async def test_the_time_of_a_change_never_goes_back(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store, at=9_000)
            await store.commit(step(no, catalogue=catalogue("running", agent="other", labels={"k": "v"})))
            row = await row_of(store)
            assert (row.updated, row.status, row.agent, row.labels) == (9_000, "running", "other", {"k": "v"})


async def seats(store: Store, no: int, version: int, *, anew: bool = False) -> list[str]:
    """What stands in the users' table of that name, which is made ``anew``; the session gets one entry more."""
    found: list[Any] = []

    def within(run: Run) -> Commit:
        if anew:
            run(lambda connection: connection.execute("DROP TABLE IF EXISTS seats"))
            run(lambda connection: connection.execute("CREATE TABLE seats (name TEXT)"))
        found[:] = run(lambda connection: connection.execute("SELECT name FROM seats").fetchall())
        return step(no, version)

    assert isinstance(await store.commit(step(no, version, within=within)), Committed)
    return [name for (name,) in found]
