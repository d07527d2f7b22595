"""The messages that models see, where there are many."""

import threading

from perdure.core.entries import MessageAdded
from perdure.core.messages import Text
from perdure.models.estimate import Estimate
from perdure.runtime.context import AT_ONCE, Context


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
