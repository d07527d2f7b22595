"""Chains of digests against plain lists: what an edit works out and leaves behind is what hashing all of it would give."""

from __future__ import annotations

import hashlib
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.entries import Rewritten
from perdure.core.layout import Place
from perdure.core.transcript import EMPTY, MARKS_LIMIT, STRIDE, Transcript, chained, private_after


def digest(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def revisions(digests: list[str]) -> list[str]:
    """The revision of every beginning, of none first."""
    return list(accumulate(digests, chained, initial=EMPTY))


class Edited:
    """A session whose transcript is edited, as its entries would say."""

    def __init__(self, messages: int) -> None:
        self.digests = {number: digest(number) for number in range(1, messages + 1)}
        self.knows = dict(enumerate(revisions(list(self.digests.values()))[1:], 1))
        self.laid: Rewritten | None = None
        self.number = messages
        self.transcript = Transcript.at(None, messages, revisions(list(self.digests.values()))[-1])

    def list(self) -> list[str]:
        return [self.digests[place.number] for place in self.transcript.layout]

    def known(self, count: int) -> tuple[int, str]:
        """What is known of a beginning, as a reader would find it; how many digests are left to hash is part of the answer."""
        known = self.transcript.known(count)
        if known.revision:
            return known.length, known.revision
        place = self.transcript.layout.locate(known.length - 1)
        return known.length, self.knows[place.number]

    def edit(self, start: int, stop: int, added: int) -> None:
        everything = self.list()
        new = [digest((self.number, index)) for index in range(added)]
        length, before = self.known(start)
        for item in everything[length:start]:
            before = chained(before, item)
        edited, knows = self.transcript.edited(start, stop, number=self.number, before=before, added=new, behind=everything[stop:])
        for index, (item, revision) in enumerate(zip(new, knows, strict=True), self.number + 1):
            self.digests[index], self.knows[index] = item, revision
        self.number += added
        self.laid = Rewritten(
            expected=self.transcript.revision,
            revision=edited.revision,
            start=start,
            stop=stop,
            pieces=edited.layout.pieces,
            tail=self.number,
            exact=edited.chain.exact,
            marks=edited.chain.marks,
        )
        self.transcript = Transcript.at(self.laid, self.number, edited.revision)

    def append(self) -> None:
        self.number += 1
        self.digests[self.number] = digest(("appended", self.number))
        self.knows[self.number] = chained(self.transcript.revision, self.digests[self.number])
        self.transcript = Transcript.at(self.laid, self.number, self.knows[self.number])


steps = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 2**16), st.integers(0, 3), st.integers(0, 2)), max_size=8)


@settings(deadline=None)
@given(st.integers(0, 900), steps)
def test_every_beginning_is_known_from_near_by_and_as_hashing_all_of_it_says(messages: int, drawn: list[tuple[int, int, int, int]]) -> None:
    session = Edited(messages)
    for one, other, added, appended in drawn:
        length = len(session.transcript.layout)
        start, stop = sorted((one % (length + 1), other % (length + 1)))
        session.edit(start, stop, added)
        for _ in range(appended):
            session.append()
    expected = revisions(session.list())
    assert session.transcript.revision == expected[-1]
    for count in range(0, len(expected), 37):
        length, revision = session.known(count)
        assert revision == expected[length]
        # However it was edited, only so many digests are left to hash.
        assert count - length <= STRIDE


def test_marks_don_t_grow_with_the_transcript() -> None:
    for length in (1_000, 100_000, 1_000_000):
        behind = [digest("x")] * length
        transcript = Transcript.at(None, length, digest("whatever"))
        edited, _ = transcript.edited(0, 0, number=length, before=EMPTY, added=[digest("y")], behind=behind)
        assert length // (2 * MARKS_LIMIT * STRIDE) <= len(edited.chain.marks) <= MARKS_LIMIT


def test_a_branch_names_its_parents_messages_and_its_own_behind_them() -> None:
    session = Edited(4)
    branched, knows = session.transcript.branched("parent", 2, before=session.knows[2], added=[digest("x")])
    assert list(branched.layout) == [Place("parent", 1), Place("parent", 2), Place("", 3)]
    assert branched.revision == knows[0] == chained(session.knows[2], digest("x"))


def test_private_parts_stay_where_they_may_not_be_sent() -> None:
    assert private_after(0, 2, 4, 1) == 0
    assert private_after(3, 5, 6, 4) == 3
    assert private_after(6, 2, 4, 1) == 5
    assert private_after(3, 2, 5, 1) == 3
