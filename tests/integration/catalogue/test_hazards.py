"""What goes wrong in services of this kind, tried here: pointers that run in a circle, and reads that repair."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Rewritten, StoreCorrupt, UnknownRevision
from perdure.core.layout import Piece
from perdure.runtime.verify import verify
from perdure.store.base import Claim, Committed

from ..interactive.acting import Place
from .talking import edit_fixture


@pytest.mark.parametrize("ahead", [0, 1])
async def test_edits_that_name_themselves_as_the_one_before_are_damage_and_no_endless_walk(place: Place, ahead: int) -> None:
    async with place.process() as process:
        await edit_fixture(process)
        hand = await process.batch()
        now = hand.checkpoint
        forged = Rewritten(
            expected=now.revision,
            revision="f" * 64,
            start=0,
            stop=4,
            pieces=(Piece("", 1, 3),),
            tail=now.number,
            previous=now.version + 1 + ahead,
        )
        hand.draft.write(forged, hand.now)
        answer = await process.store.commit(hand.commit(holder=None, claim=Claim(runner="x"), release=True, status="idle"))
        assert isinstance(answer, Committed)
        for walk in (
            process.sessions.history("s", revision="e" * 64),
            process.sessions.restore("s", "e" * 64),
            process.sessions.revisions("s"),
        ):
            async with asyncio.timeout(5):
                with pytest.raises((StoreCorrupt, UnknownRevision)):
                    await walk
        assert [problem.what for problem in [item async for item in verify(process.store)] if problem.where == "journal"]


async def test_no_read_of_a_damaged_session_changes_a_byte(tmp_path: Any) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await edit_fixture(process)
        await process.sessions.rewrite("s", (0, 1), ["rather this"])
    place.execute("UPDATE journal SET body = x'7b7d' WHERE kind = 'rewritten'")
    async with place.process() as process:
        before = await process.everything()
        writes = sum(call.write > 0 for call in process.faulty.calls)
        for read in (
            process.sessions.history("s"),
            process.sessions.revisions("s"),
            process.sessions.revision("s", 1),
            process.sessions.effects("s"),
        ):
            with pytest.raises(StoreCorrupt):
                await read
        await process.sessions.list()
        await process.sessions.info("s")
        assert [item async for item in verify(process.store)]
        assert await process.everything() == before
        assert sum(call.write > 0 for call in process.faulty.calls) == writes
