"""Journals and lists, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ...core.journal import Sealed
from ..base import (
    Commit,
    SessionQuery,
)
from .kit import (
    Place,
    catalogue,
    create,
    creation,
    fact,
    facts,
    opened,
    raises,
    row_of,
    step,
)


class Reading:
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

    async def test_entries_are_taken_as_they_are_read(self, place: Place) -> None:
        async with opened(place) as store:
            no = await create(store)
            await store.commit(step(no, count=9))
            assert await store.scan(no, list, [(3, 9)], kinds=iter(["message"]), limit=3) == [*facts(4, 6)]
            assert await store.scan(no, list, [(7, 10), (1, 3)], kinds=("message",)) == [*facts(8, 9), fact(2)]
            assert await store.scan(no, list, [(7, 10), (1, 4)], limit=3) == [*facts(8, 9), fact(2)]
            assert await store.scan(no, lambda rows: [row.seq for row in rows], [(0, 99)]) == list(range(1, 11))
            assert await store.scan(no, lambda rows: next(iter(rows)), [(0, 99)]) == fact(1, kind="session_created")
            assert await store.scan(no, list, []) == await store.scan(no + 1, list, [(0, 99)]) == []

    async def test_who_gives_up_while_entries_are_read_leaves_nothing_open(self, place: Place) -> None:
        def give_up(rows: Iterable[Sealed]) -> None:
            raise LookupError(next(iter(rows)).seq)

        async with opened(place) as store:
            no = await create(store)
            held = []
            for version in range(1, 6):
                await store.commit(step(no, version))
                # Whoever keeps the error keeps what it was raised from.
                held.append(await raises(LookupError, store.scan(no, give_up, [(0, 99)])))
                assert [entry.seq for entry in await store.entries(no)] == list(range(1, version + 2))

    async def test_what_goes_wrong_in_whoever_takes_entries_is_raised_as_it_is(self, place: Place) -> None:
        def wrong(error: Exception) -> Callable[[Iterable[Sealed]], None]:
            def take(rows: Iterable[Sealed]) -> None:
                next(iter(rows))
                raise error

            return take

        async with opened(place) as store:
            no = await create(store)
            for error in (TypeError("a bug"), AttributeError("a bug"), msgspec.DecodeError("what it read there"), UnicodeError("a bug")):
                assert await raises(type(error), store.scan(no, wrong(error), [(0, 99)])) is error

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
