"""The messages that models see, where there are many."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core import canonical
from perdure.core.entries import Entry, MessageAdded
from perdure.core.errors import StoreCorrupt
from perdure.core.journal import GENESIS, Sealed, seal
from perdure.core.messages import Message, Private, StoredPart, Text, part_digest
from perdure.models.estimate import Estimate
from perdure.runtime.context import Context, Prefix, _Sizes, _Views
from perdure.store.scanning import AT_ONCE


async def _nothing(digest: str) -> bytes:
    raise AssertionError(digest)


async def test_a_long_conversation_is_measured_outside_of_the_loop_and_what_is_added_to_it_within() -> None:
    context = Context(_nothing, for_models=True)
    await context.add([MessageAdded(role="user", digest="", parts=(Text(f"no. {index}"),), seq=index) for index in range(AT_ONCE + 2)])
    counted_in: list[int] = []

    def count(text: str) -> int:
        counted_in.append(threading.get_ident())
        return len(text)

    estimate = Estimate(count)
    await context.measure(estimate, None, 0, context.shown)

    assert len(counted_in) == AT_ONCE + 2
    assert threading.get_ident() not in counted_in

    await context.add([MessageAdded(role="user", digest="", parts=(Text("one more"),), seq=AT_ONCE + 2)])
    await context.measure(estimate, None, 0, context.shown)
    sizes = context.sizes(estimate, None, 0, context.shown)

    assert len(sizes) == AT_ONCE + 4, "one for every beginning"
    assert counted_in[AT_ONCE + 2 :] == [threading.get_ident()]


def _sealed(*entries: Entry) -> list[Sealed]:
    rows, chain = [], GENESIS
    for seq, entry in enumerate(entries, 1):
        rows.append(seal(replace(entry, seq=seq, number=seq), chain=chain, session_id="s", salt=bytes(16)))
        chain = rows[-1].chain
    return rows


@pytest.mark.parametrize("aside", [(), (2,), (0, 3), (4,)])
async def test_messages_are_the_same_taken_as_they_are_read_or_read_whole_wherever_content_is_set_aside(aside: tuple[int, ...]) -> None:
    texts = [Text(f"no. {index}") for index in range(5)]
    content = {part_digest(text): canonical.encode(text) for text in texts}
    rows = _sealed(
        *(
            MessageAdded(role="user", digest="", parts=(StoredPart(digest=part_digest(text), size=9) if index in aside else text,))
            for index, text in enumerate(texts)
        )
    )

    async def fetch(digest: str) -> bytes:
        return content[digest]

    whole, taken = Context(fetch), Context(fetch)
    await whole.read(rows)
    left = taken.take(iter(rows), 0)
    await taken.read(left.rest)

    assert (left.rows, left.last) == (5, 5)
    assert [row.seq for row in left.rest] == list(range(aside[0] + 1 if aside else 6, 6)), "from the first that has to be fetched"
    assert taken.shown == whole.shown
    assert [message.text for message in taken.shown.messages] == [text.content for text in texts]


def test_a_row_that_was_altered_is_refused_where_it_is_taken() -> None:
    first, second = _sealed(*(MessageAdded(role="user", digest="", parts=(Text(text),)) for text in ("one", "two")))
    assert second.body is not None
    altered = Sealed(
        *(second.body.replace(b"two", b"six") if name == "body" else getattr(second, name) for name in second.__struct_fields__)
    )

    with pytest.raises(StoreCorrupt, match="entry 2 is not what was written"):
        Context(_nothing).take([first, altered], 0)


class _Read(list[Message]):
    """Messages that count how often one of them is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Message]:
        for message in super().__iter__():
            self.looks += 1
            yield message

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.looks += len(found) if isinstance(index, slice) else 1
        return found


async def test_what_is_added_to_a_long_conversation_is_shown_and_measured_without_a_look_at_what_was_there() -> None:
    messages = _Read(Message(role="user", parts=(Text("hello"),), seq=index, position=index) for index in range(10_000))
    sizes, views, estimate = _Sizes(), _Views(), Estimate()
    sizes.of(messages, estimate, None, 0)
    views.of(messages, "mine", 9_000)
    messages.looks = 0

    messages.append(Message(role="user", parts=(Text("one more"),), seq=10_000, position=10_000))
    assert len(sizes.of(messages, estimate, None, 0)) == 10_002
    assert messages.looks == 1
    assert len(views.of(messages, "mine", 9_000)) == 10_001
    assert messages.looks == 2


async def test_a_conversation_without_private_parts_is_shown_as_it_is_whatever_edits_left_behind() -> None:
    context = Context(_nothing, for_models=True)
    await context.add([MessageAdded(role="user", digest="", parts=(Text("hello"),), seq=index) for index in range(3)])
    assert isinstance(context.view("any", private_from=2), Prefix), "no copy of a conversation, however long"
    await context.add([MessageAdded(role="assistant", digest="", parts=(Private(group="any", data="x"), Text("hm")), seq=3)])
    assert [len(message.parts) for message in context.view("any", private_from=4)] == [1, 1, 1, 1]
    assert [len(message.parts) for message in context.view("any", private_from=3)] == [1, 1, 1, 2]

    context.accept()
    await context.add([MessageAdded(role="user", digest="", parts=(Text("not kept"),), seq=4)])
    assert [message.text for message in context.view("any", private_from=4)][-1] == "not kept"
    context.forget()
    await context.add([MessageAdded(role="user", digest="", parts=(Text("kept"),), seq=4)])
    assert [message.text for message in context.view("any", private_from=4)] == ["hello"] * 3 + ["hm", "kept"]


def test_a_part_of_what_models_see_is_taken_without_a_copy_of_the_rest() -> None:
    messages = _Read(Message(role="user", parts=(Text("hello"),), seq=index, position=index) for index in range(1_000))
    seen = Prefix(messages, 900)

    assert [message.seq for message in seen[-2:]] == [898, 899]
    assert [message.seq for message in seen[890:2_000:5]] == [890, 895]
    assert list(seen[950:]) == []
    assert messages.looks == 4
