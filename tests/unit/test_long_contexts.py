"""The messages that models see, where there are many."""

import threading
from collections.abc import Iterator
from typing import Any

from perdure.core.entries import MessageAdded
from perdure.core.messages import Message, Text
from perdure.models.estimate import Estimate
from perdure.runtime.context import AT_ONCE, Context, Prefix, _Sizes


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


async def test_what_is_added_to_a_long_conversation_is_measured_without_a_look_at_what_was_there() -> None:
    messages = _Read(Message(role="user", parts=(Text("hello"),), seq=index, position=index) for index in range(10_000))
    sizes, estimate = _Sizes(), Estimate()
    sizes.of(messages, estimate, None, 0)
    messages.looks = 0

    messages.append(Message(role="user", parts=(Text("one more"),), seq=10_000, position=10_000))
    assert len(sizes.of(messages, estimate, None, 0)) == 10_002
    assert messages.looks == 1


def test_a_part_of_what_models_see_is_taken_without_a_copy_of_the_rest() -> None:
    messages = _Read(Message(role="user", parts=(Text("hello"),), seq=index, position=index) for index in range(1_000))
    seen = Prefix(messages, 900)

    assert [message.seq for message in seen[-2:]] == [898, 899]
    assert [message.seq for message in seen[890:2_000:5]] == [890, 895]
    assert list(seen[950:]) == []
    assert messages.looks == 4
