"""`verify` finds an edit, a fork or a revision that is not what was written, even where the hash chain was made to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Forked, MessageAdded, Rewritten
from perdure.core.entries import Entry
from perdure.core.journal import open_entry, seal
from perdure.core.layout import Piece
from perdure.runtime.verify import verify
from perdure.store.memory import MemoryStore

from ..interactive.acting import Place, Process
from .talking import sound, talk

WRONG = "f" * 64


def forged(process: Process, session: str, kind: type[Entry], change: Callable[[Any], Any]) -> None:
    """Change the last entry of a kind, and every link of the chain behind it, as somebody would who holds the store."""
    store = process.faulty.inner
    assert isinstance(store, MemoryStore)
    journal = store._content.by_id[session].journal
    index = max(place for place, row in enumerate(journal) if isinstance(open_entry(row), kind))
    chain = journal[index - 1].chain
    for place in range(index, len(journal)):
        entry = open_entry(journal[place])
        if place == index:
            entry = change(entry)
        journal[place] = seal(entry, chain=chain, session_id=session, salt=journal[place].salt or b"")
        chain = journal[place].chain


CASES: list[tuple[str, type[Entry], Callable[[Any], Any], str]] = [
    ("s", Rewritten, lambda e: replace(e, expected=WRONG), "another revision than the one before it"),
    ("s", Rewritten, lambda e: replace(e, revision=WRONG), "not that of its messages"),
    ("s", Rewritten, lambda e: replace(e, pieces=(*e.pieces[:-1], Piece("", 1, 2))), "not the one before with the span replaced"),
    ("s", Rewritten, lambda e: replace(e, pieces=(Piece("", 1, 2), Piece("", 2, 3), *e.pieces)), "not merged"),
    ("s", Rewritten, lambda e: replace(e, pieces=(Piece("nobody", 1, 3), *e.pieces)), "is missing"),
    ("s", Rewritten, lambda e: replace(e, start=90, stop=91), "is no span"),
    ("s", Rewritten, lambda e: replace(e, previous=1), "laid the transcript out before"),
    ("s", Rewritten, lambda e: replace(e, marks=((1, WRONG),)), "revision of the first 1 messages is not so"),
    ("s", Rewritten, lambda e: replace(e, exact=((0, 4),), marks=()), "is not so"),
    ("s", Rewritten, lambda e: replace(e, tail=e.tail + 1), "adds up to another checkpoint"),
    ("s", MessageAdded, lambda e: replace(e, revision=WRONG), "revision"),
    ("f", Forked, lambda e: replace(e, session="other"), "which this is not"),
    ("f", Forked, lambda e: replace(e, version=e.version - 1), "doesn't have the chain that the fork began with"),
    ("f", Forked, lambda e: replace(e, pieces=(Piece("s", 2, 4),)), "not that of its messages"),
]


@pytest.mark.spec("B-A-047")
@pytest.mark.parametrize(("session", "kind", "change", "words"), CASES, ids=[case[3] for case in CASES])
@pytest.mark.hazard("J-6", "H17")
async def test_a_forged_transcript_is_found(
    tmp_path: Any, session: str, kind: type[Entry], change: Callable[[Any], Any], words: str
) -> None:
    place = Place("memory", tmp_path / "unused.db")
    async with place.process() as process:
        await talk(process, "one", "two")
        await process.sessions.rewrite("s", (0, 1), ["rather"])
        await talk(process, "three")
        await process.sessions.fork("s", at=2, session_id="f")
        await process.sessions.rewrite("s", (2, 3), ["instead"])
        await sound(process)
        forged(process, session, kind, change)
        found = [str(problem) async for problem in verify(process.store)]
        assert [line for line in found if words in line] != [], found
