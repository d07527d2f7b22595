"""What goes wrong in services of this kind, tried here: pointers that run in a circle, and reads that repair."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Forked, Rewritten, SessionCreated, SessionHalted, StoreCorrupt, UnknownRevision
from perdure.core.checkpoint import Checkpoint, decode, encode
from perdure.core.draft import Draft
from perdure.core.layout import Piece
from perdure.core.transcript import EMPTY
from perdure.runtime.batch import seal_all
from perdure.runtime.verify import verify
from perdure.store.base import Catalogue, Claim, Committed, Created, NewSession

from ..interactive.acting import Place, Process
from .talking import Payments, echoing, edit_fixture, paying, talk


@pytest.mark.spec("B-A-136")
@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.hazard("J-11")
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
        hand.write(forged, hand.now)
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


async def forged(process: Process, name: str, of: str, parent: str = "s") -> None:
    """A fork of ``parent``, as its row says, whose journal says that it is one of another session."""
    head = await process.store.load(parent)
    assert head is not None
    draft = Draft(Checkpoint())
    draft.write(SessionCreated(session_id=name, root="s", agent="payer", identity=decode(head.row.checkpoint).identity), head.now)
    draft.write(Forked(session=of, version=1, chain=head.chain.hex(), cut=0, pieces=(), tail=0, revision=EMPTY), head.now)
    session = NewSession(
        root="s",
        parent=parent,
        parent_kind="fork",
        owner="acme",
        entries=seal_all(draft.entries, chain=head.chain, session_id=name),
        checkpoint=encode(draft.checkpoint),
        catalogue=Catalogue(status="idle", wake_at=None, title="", labels={}, agent="payer"),
    )
    assert isinstance(await process.store.create(name, session, at=head.now), Created)


@pytest.mark.spec("B-A-137")
@pytest.mark.hazard("J-11")
@pytest.mark.parametrize("ancestors", [("f",), ("g", "f"), ("s2",)], ids=["itself", "its fork", "nobody"])
async def test_forks_of_themselves_and_of_nobody_are_damage_and_no_endless_walk_and_forget_no_effect(
    place: Place, ancestors: tuple[str, ...]
) -> None:
    payments = Payments()
    async with place.process() as process:
        await talk(process, "hello")
        for name, of in zip(("f", "g"), ancestors, strict=False):
            await forged(process, name, of)
        for walk in (process.sessions.effects("f"), process.sessions.fork("f", session_id="h")):
            async with asyncio.timeout(5):
                with pytest.raises(StoreCorrupt, match="forked from"):
                    await walk
        async with asyncio.timeout(5):
            with pytest.raises(SessionHalted, match="forked from"):
                await talk(process, "pay A 5 r1", agent=paying(payments), session="f")
        assert await process.store.load("h") is None
        assert payments.done == [], "what the lost past did can't be told, so nothing is done that might repeat it"
        assert [problem for problem in [item async for item in verify(process.store)] if problem.session_id == "f"] != []


async def test_as_many_deleted_forks_as_there_may_be_between_a_session_and_its_beginning(tmp_path: Any) -> None:
    place = Place("memory", tmp_path)
    async with place.process() as process:
        await talk(process, "the beginning")
        for number in range(1_200):
            parent = f"f{number - 1}" if number else "s"
            await forged(process, f"f{number}", parent, parent=parent)
            row = await process.row(parent)
            # As a deletion leaves it, without its look at the whole tree every time.
            await process.store.delete(row.no, keep=2)
        await process.sessions.fork("f1199", session_id="last")
        await process.sessions.delete("f1199")
        await talk(process, "the end", agent=echoing("payer"), session="last")
        assert await process.sessions.effects("last") == []
        assert len([row for row in await process.store.tree("s") if await process.store.entries(row.no)]) == 1_202
        await process.sessions.delete("last")
        assert [row.session_id for row in await process.store.tree("s") if await process.store.entries(row.no)] == []


@pytest.mark.hazard("J-10", "H8")
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
