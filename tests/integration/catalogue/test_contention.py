"""What several do to one session at once comes to an end, in whatever order: nobody waits for somebody who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import permutations
from typing import Any

import pytest

from perdure import EffectSettled, Fenced, OperationEnded, SessionArchived, SessionBusy
from perdure.testing import find_problems

from ..interactive.acting import Place, Process
from .talking import sound
from .test_archive import Charging

OPERATIONS = ("note", "report", "rewrite", "archive")


@pytest.mark.spec("B-B-127", "B-B-194", "B-B-138")
@pytest.mark.hazard("H1", "H20")
@pytest.mark.parametrize("order", [*permutations(OPERATIONS)], ids=" ".join)
async def test_a_note_a_result_an_edit_and_the_archive_meet_a_running_turn_and_none_waits_for_another(
    place: Place, order: tuple[str, ...]
) -> None:
    charging = Charging()
    async with place.process() as process, place.process() as other, asyncio.timeout(15):
        turn = asyncio.create_task(process.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()

        async def rewrite(by: Process) -> Any:
            return await by.sessions.rewrite("s", (0, 0), ["in vain"])

        make: dict[str, Callable[[Process], Awaitable[Any]]] = {
            "note": lambda by: by.sessions.note("s", "it rains", submission="n1"),
            "report": lambda by: by.sessions.report(charging.token, "charged 5"),
            "rewrite": rewrite,
            "archive": lambda by: by.sessions.archive("s", submission="a1"),
        }
        # Half of them from the process that runs the turn, half from another; readers come between all of them.
        begun: list[asyncio.Task[Any]] = []
        for index, name in enumerate(order):
            begun.append(asyncio.ensure_future(make[name]((process, other)[index % 2])))
            begun.append(asyncio.ensure_future(other.sessions.history("s")))
            if index % 2:
                await asyncio.sleep(0)
        answers = dict(zip(order, (await asyncio.gather(*begun, return_exceptions=True))[::2], strict=True))
        [ended] = await asyncio.gather(turn, return_exceptions=True)

        assert isinstance(answers["rewrite"], SessionBusy | SessionArchived), answers
        assert not isinstance(answers["report"], BaseException), answers
        assert not isinstance(answers["archive"], BaseException), answers
        assert isinstance(answers["note"], SessionArchived) or answers["note"].id == "n1", answers
        assert isinstance(ended, SessionArchived | Fenced) or ended.submission == "m1", ended
        charging.go_on.set()
        # Nothing that was accepted is lost: the result is the receipt, or settles what the archive left uncertain.
        receipts = [entry for entry in await other.sessions.entries("s") if isinstance(entry, OperationEnded | EffectSettled)]
        assert any("charged 5" in str(entry.parts) for entry in receipts)
        assert (await other.sessions.info("s")).status == "archived"
        assert charging.charged == 1
        assert await find_problems(other.store, "s") == []
        await sound(other)
