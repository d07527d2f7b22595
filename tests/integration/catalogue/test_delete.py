"""A deleted session is gone for good: its content, its work, and its id."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    Fenced,
    FunctionModel,
    Reply,
    SessionBusy,
    SessionNotFound,
    StoreBroken,
    ToolCall,
    UnknownRevision,
    UsageError,
    tool,
)
from perdure.runtime.verify import verify
from perdure.testing.faults import Fault

from ..interactive.acting import Place, Process, eventually, transcript
from .talking import meanwhile
from .test_archive import PLAIN, Charging


@tool(effect="pure")
async def greet(who: str) -> str:
    """Say hello to somebody."""
    return f"hello {who}"


SECRET = "the password is rosebud"


@pytest.mark.spec("D-001", "D-002", "D-059")
async def test_a_deleted_session_is_as_if_it_had_never_been_but_for_its_id(place: Place) -> None:
    model = FunctionModel(lambda request: SECRET)
    async with place.process() as process:
        await process.run(Agent("a", model=model), SECRET * 3000, session="s", submission="m1", labels={"about": SECRET})
        await process.run(PLAIN, "hello", session="other", submission="m1")
        other = await process.everything("other")
        assert await process.store.blobs("s") != []
        await process.sessions.delete("s")
        for looking in (
            process.sessions.info("s"),
            process.sessions.history("s"),
            process.sessions.entries("s"),
            process.sessions.delete("s"),
            process.sessions.archive("s"),
            process.sessions.revive("s"),
            process.sessions.send("s", "again"),
            process.sessions.note("s", "again"),
            process.run(PLAIN, SECRET * 3000, session="s", submission="m1"),
            process.run(PLAIN, "again", session="s", submission="m2"),
            process.recover([PLAIN], session="s"),
        ):
            with pytest.raises(SessionNotFound, match="was deleted"):
                await looking
        with pytest.raises(SessionNotFound, match="was deleted"):
            async with process.session("s", PLAIN):
                pass
        assert [info.session_id for info in await process.sessions.list(archived=True)] == ["other"]
        assert await process.store.blobs("s") == []
        assert await process.everything("other") == other
        assert [str(problem) async for problem in verify(process.store)] == []
        with pytest.raises(SessionNotFound, match="there is no session"):
            await process.sessions.delete("never")
    if place.kind == "sqlite":
        stored = b"".join(path.read_bytes() for path in place.path.parent.iterdir() if path.is_file())
        assert SECRET.encode() not in stored


@pytest.mark.spec("D-005", "D-008")
@pytest.mark.hazard("H7")
async def test_whoever_works_on_a_deleted_session_is_stopped_and_cannot_bring_it_back(place: Place) -> None:
    charging = Charging("pure")
    async with place.process() as holder, place.process() as other:
        running = asyncio.create_task(holder.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()
        async with holder.session("s", charging.agent) as handle:
            await other.sessions.delete("s")
            with pytest.raises((SessionNotFound, Fenced)):
                [event async for event in handle.events()]
        with pytest.raises(SessionNotFound, match="was deleted"):
            await running
        await charging.ended.wait()
        assert await other.store.load("s") is None
        assert await other.store.buried("s")


async def test_a_person_who_waits_for_news_of_a_deleted_session_is_told(place: Place) -> None:
    async with place.process() as process, place.process() as other, process.session("s", PLAIN) as handle:
        await handle.send("hello", submission="m1")
        watching = asyncio.create_task(_last(handle))
        while (await other.sessions.info("s")).status != "idle":
            await asyncio.sleep(0.001)
        await other.sessions.delete("s")
        with pytest.raises(SessionNotFound, match="was deleted"):
            await watching


async def _redact_twice(process: Process, session: str) -> None:
    for _ in range(2):
        await process.sessions.redact(session, positions=[0], submission="redact")


READING: dict[str, Callable[[Process, str], Awaitable[Any]]] = {
    "run": lambda process, s: process.run(LONG, "again", session=s),
    "history": lambda process, s: process.sessions.history(s),
    "entries": lambda process, s: process.sessions.entries(s),
    "revision": lambda process, s: process.sessions.revision(s, at=2),
    "diff": lambda process, s: process.sessions.diff(s, "0" * 64),
    "fork": lambda process, s: process.sessions.fork(session=s, session_id=f"fork of {s}"),
    "rewrite": lambda process, s: process.sessions.rewrite(s, (0, 1), ["new"]),
    "restore": lambda process, s: process.sessions.restore(session_id=s, revision="0" * 64),
    "redact": lambda process, s: process.sessions.redact(s, positions=[0]),
    "redact an entry": lambda process, s: process.sessions.redact(s, entries=[3]),
    "redact again": _redact_twice,
    "effects": lambda process, s: process.sessions.effects(s),
    "result": lambda process, s: process.sessions.result(s, "m"),
    "requests": lambda process, s: process.sessions.requests(s),
    "model calls": lambda process, s: process.sessions.model_calls(s),
    "export": lambda process, s: process.sessions.export(s, io.BytesIO()),
}
LONG = Agent("a", model=FunctionModel(lambda request: "a long answer " * 3000))


@pytest.mark.parametrize("what", READING)
async def test_a_session_that_is_deleted_while_it_is_read_is_not_found_and_not_called_damaged(place: Place, what: str) -> None:
    methods = ("load", "entries", "blob", "effects", "inbox", "submission")
    async with place.process() as process, place.process() as other:
        begun, nth = 0, 0
        while begun >= nth:
            nth += 1
            s = f"s{nth}"
            await process.run(LONG, "a question", session=s, submission="m")
            await process.sessions.rewrite(s, (0, 1), ["another question"])
            late = meanwhile(process, methods, nth, partial(other.sessions.delete, s))
            with late as calls, suppress(SessionNotFound, UnknownRevision, SessionBusy, Fenced):
                await READING[what](process, s)
            begun = len(calls)
        assert nth >= 2
        assert [str(problem) async for problem in verify(process.store)] == []


TELLING: dict[str, Callable[[Process, str], Awaitable[Any]]] = {
    "result": lambda process, s: process.sessions.result(s, "m1"),
    "requests": lambda process, s: process.sessions.requests(s),
    "open requests": lambda process, s: process.sessions.open_requests(),
}


@pytest.mark.parametrize("what", TELLING)
async def test_nothing_is_told_in_part_of_a_session_that_is_deleted_meanwhile(place: Place, what: str) -> None:
    answers = [Reply("hello"), Reply(tool_calls=[ToolCall("greet", {"who": "Ann"})])]
    agent = Agent("a", model=FunctionModel(lambda request: answers[request.answers % 2]), tools=[greet], approve=["greet"])
    async with place.process() as process, place.process() as other:
        begun, nth = 0, 0
        while begun >= nth:
            nth += 1
            s = f"s{nth}"
            whole = await process.run(agent, "hello", session=s, submission="m1")
            async with process.session(s, agent) as handle:
                await handle.send("greet Ann", submission="m2")
                await eventually(partial(process.sessions.requests, s))
            with meanwhile(process, ("load", "entries"), nth, partial(other.sessions.delete, s)) as calls, suppress(SessionNotFound):
                told = await TELLING[what](process, s)
                assert told == whole if what == "result" else all(request.arguments == {"who": "Ann"} for request in told)
            begun = len(calls)
            if nth > begun:
                await other.sessions.delete(s)
        assert nth > 2


async def test_a_store_whose_sessions_are_deleted_while_it_is_checked_is_not_called_damaged(tmp_path: Path) -> None:
    methods = ("load", "entries", "blob", "inbox", "submissions")
    begun, nth = 0, 0
    while begun >= nth:
        nth += 1
        place = Place("memory", tmp_path)
        async with place.process() as process, place.process() as other:
            await process.run(LONG, "a question", session="s", submission="m")
            await process.sessions.fork("s", session_id="f")
            with meanwhile(process, methods, nth, partial(other.sessions.delete, "s")) as calls:
                assert [str(problem) async for problem in verify(process.store)] == []
            begun = len(calls)
    assert nth > 20


async def test_a_fork_that_comes_between_any_two_steps_of_a_deletion_keeps_what_it_began_with(place: Place) -> None:
    methods = ("load", "tree", "entries", "inbox", "blobs", "delete")
    async with place.process() as process, place.process() as other:

        async def fork(s: str) -> None:
            with suppress(SessionNotFound):
                await other.sessions.fork(s, session_id=f"fork of {s}")

        begun, nth = 0, 0
        while begun >= nth:
            nth += 1
            s = f"s{nth}"
            await process.run(LONG, "a question", session=s, submission="m")
            with meanwhile(process, methods, nth, partial(fork, s)) as calls:
                await process.sessions.delete(s)
            begun = len(calls)
        forks = [info.session_id async for info in process.sessions.each()]
        assert len(forks) > 4
        for fork in forks:
            assert [role for role, *_ in await transcript(process, fork)] == ["user", "assistant"]
        assert [str(problem) async for problem in verify(process.store)] == []


async def test_nothing_is_kept_for_a_fork_that_is_deleted_at_the_same_time(place: Place) -> None:
    async with place.process() as process, place.process() as other:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        await process.sessions.fork("s", session_id="f")
        delete = process.store.delete

        async def late(no: int, **named: Any) -> bool:
            process.store.delete = delete  # type: ignore[method-assign]
            await other.sessions.delete("f")
            return await delete(no, **named)

        process.store.delete = late  # type: ignore[method-assign]
        await process.sessions.delete("s")
        assert [await process.store.entries(row.no) for row in await process.store.tree("s")] == [[]] * 2
        assert [str(problem) async for problem in verify(process.store)] == []


async def test_a_fork_that_comes_while_its_tree_is_deleted_goes_with_it(place: Place) -> None:
    async with place.process() as process, place.process() as other:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        delete = process.store.delete

        async def late(no: int, **named: Any) -> bool:
            process.store.delete = delete  # type: ignore[method-assign]
            await other.sessions.fork("s", session_id="f")
            return await delete(no, **named)

        process.store.delete = late  # type: ignore[method-assign]
        await process.sessions.delete("s", tree=True)
        assert [info.session_id async for info in process.sessions.each()] == []
        assert [await process.store.entries(row.no) for row in await process.store.tree("s")] == [[]] * 2


async def _last(handle: object) -> None:
    async for _ in handle.events():  # type: ignore[attr-defined]
        pass


@pytest.mark.spec("D-003")
async def test_an_archived_session_can_be_deleted(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        await process.sessions.archive("s")
        assert (await process.sessions.info("s")).status == "archived"
        await process.sessions.delete("s")
        with pytest.raises(SessionNotFound, match="was deleted"):
            await process.sessions.info("s")
        assert await process.sessions.list(archived=True) == []


async def test_a_deleted_session_keeps_for_its_forks_what_they_can_reach_and_no_more(place: Place) -> None:
    secret = "what came after the cut " * 3000
    async with place.process() as process:
        for index, text in enumerate(("first", "second", secret)):
            await process.run(PLAIN, text, session="s", submission=f"m{index}")
        fork = await process.sessions.fork("s", at=4)
        inner = await process.sessions.fork(fork.session_id, at=2)
        await process.run(PLAIN, "a way of its own", session=fork.session_id, submission="f1")
        histories = {name: await transcript(process, name) for name in (fork.session_id, inner.session_id)}
        await process.sessions.delete("s")
        with pytest.raises(SessionNotFound, match="was deleted"):
            await process.sessions.history("s")
        assert {info.session_id for info in await process.sessions.list(archived=True)} == {fork.session_id, inner.session_id}
    async with place.process() as process:
        for name, history in histories.items():
            assert await transcript(process, name) == history
        assert (await process.run(PLAIN, "go on", session=inner.session_id, submission="i1")).ok
        assert [str(problem) async for problem in verify(process.store)] == []
        hidden = await process.store.load("s", hidden=True)
        assert hidden is not None
        assert secret[:100] not in str(await process.store.entries(hidden.row.no))
        assert all([secret.encode() not in (await process.store.blob("s", digest)).data for digest in await process.store.blobs("s")])  # type: ignore[union-attr]
        # The first fork is needed by the second, and both need the session.
        await process.sessions.delete(fork.session_id)
        assert await transcript(process, inner.session_id) == [*histories[inner.session_id], ("user", "go on"), ("assistant", "ok")]
        assert [str(problem) async for problem in verify(process.store)] == []
        await process.sessions.delete(inner.session_id)
        assert await process.store.entries(hidden.row.no) == []
        assert await process.store.blobs("s") == []
        assert [str(problem) async for problem in verify(process.store)] == []


async def test_a_tree_is_deleted_with_all_that_was_forked_from_it(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "first", session="s", submission="m1")
        fork = await process.sessions.fork("s", at=2)
        inner = await process.sessions.fork(fork.session_id, at=2)
        beside = await process.sessions.fork("s", at=1)
        await process.sessions.delete(fork.session_id, tree=True)
        assert {info.session_id for info in await process.sessions.list(archived=True)} == {"s", beside.session_id}
        with pytest.raises(SessionNotFound):
            await process.sessions.fork(inner.session_id, at=1)
        await process.sessions.delete("s", tree=True)
        assert await process.sessions.list(archived=True) == []
        assert await process.store.blobs("s") == []
        for name in ("s", fork.session_id, inner.session_id, beside.session_id):
            assert await process.store.buried(name)
        assert [str(problem) async for problem in verify(process.store)] == []


@pytest.mark.spec("S2-062")
async def test_a_deleted_tree_takes_all_that_belongs_to_its_sessions_along_and_one_that_is_missing_takes_nothing(place: Place) -> None:
    charging = Charging()
    charging.go_on.set()
    async with place.process() as process:
        for name in ("s", "other"):
            await process.run(charging.agent, "charge", session=name, submission="m1", metadata={"long": SECRET * 3000})
            await process.sessions.describe(name, labels={"about": SECRET})
            await process.store.ack((await process.row(name)).no, "reader", 3)
        fork = await process.sessions.fork("s", title=SECRET)
        await process.sessions.send(fork.session_id, SECRET * 3000, submission="waits")
        other = await process.everything("other")
        with pytest.raises(SessionNotFound, match="there is no session 'missing'"):
            await process.sessions.delete("missing", tree=True)
        assert {info.session_id for info in await process.sessions.list()} == {"s", "other", fork.session_id}
        numbers = [(await process.row(name)).no for name in ("s", fork.session_id)]
        assert await process.store.effects(numbers[0]) != []

        await process.sessions.delete("s", tree=True)

        for no in numbers:
            assert await process.store.entries(no) == []
            assert await process.store.effects(no) == []
            assert await process.store.inbox(no) == []
            assert await process.store.cursor(no, "reader") == 0
            assert all(row.body is None for row in await process.store.submissions(no, after="", limit=99))
        assert await process.store.blobs("s") == []
        assert await process.everything("other") == other
        assert [str(problem) async for problem in verify(process.store)] == []
    if place.kind == "sqlite":
        await asyncio.to_thread(_forgotten, place.path, SECRET, 1)


def _forgotten(path: Path, words: str, sessions: int) -> None:
    """The catalogue knows the words of no other session than of those that are left."""
    with closing(sqlite3.connect(path)) as database:
        [(count,)] = database.execute("SELECT count(*) FROM sessions WHERE title || labels LIKE ?", (f"%{words}%",))
    assert count == sessions


async def test_a_tree_is_carried_elsewhere_as_one_file(place: Place, tmp_path: Path) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "first", session="s", submission="m1")
        fork = await process.sessions.fork("s", at=2)
        await process.run(PLAIN, "a way of its own", session=fork.session_id, submission="f1")
        with pytest.raises(UsageError):
            await process.sessions.export(fork.session_id, tmp_path / "fork.jsonl")
        told = await process.sessions.export(fork.session_id, tmp_path / "tree.jsonl", tree=True)
        assert set(told.sessions) == {"s", fork.session_id}
        history = await transcript(process, fork.session_id)
    async with perdure.open("memory://") as runtime:
        await runtime.sessions.import_from(tmp_path / "tree.jsonl")
        assert [message.text for message in await runtime.sessions.history(fork.session_id)] == [said for _, said in history]
        assert (await runtime.run(PLAIN, "go on", session=fork.session_id, submission="f2")).ok
        assert [str(problem) async for problem in verify(runtime.store)] == []


async def test_what_a_deleted_session_did_stays_a_fact_for_its_forks(place: Place) -> None:
    charging = Charging()
    charging.go_on.set()
    async with place.process() as process:
        await process.run(PLAIN, "first", session="s", submission="m1")
        await process.run(charging.agent, "charge", session="s", submission="m2")
        fork = await process.sessions.fork("s", at=2)
        await process.sessions.delete("s")
        [effect] = await process.sessions.effects(fork.session_id)
        assert (effect.session_id, effect.name, effect.state) == ("s", "charge", "succeeded")
        # The same call again is asked about, though nothing shows it any more.
        running = asyncio.create_task(process.run(charging.agent, "charge", session=fork.session_id, submission="f1"))
        while not (asked := await process.sessions.requests(fork.session_id)):
            await asyncio.sleep(0.001)
        await process.sessions.deny(fork.session_id, asked[0].request_id)
        assert (await running).ok
        assert charging.charged == 1
        assert [str(problem) async for problem in verify(process.store)] == []


@pytest.mark.parametrize("nth", range(1, 6))
async def test_a_tree_whose_deletion_was_cut_short_is_gone_when_that_is_asked_for_again(place: Place, nth: int) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        await process.sessions.fork("s", session_id="f")
        await process.run(PLAIN, "and more", session="f", submission="m1")
        await process.sessions.fork("f", session_id="g")
        # It stays as long as what was forked from it needs it.
        await process.sessions.delete("f")
    async with place.process(Fault(kind="delete", nth=nth, when="after", action="die")) as process:
        with suppress(StoreBroken):
            await process.sessions.delete("s", tree=True)
    async with place.process() as process:
        with suppress(SessionNotFound):
            await process.sessions.delete("s", tree=True)
        assert [await process.store.entries(row.no) for row in await process.store.tree("s")] == [[]] * 3
        assert [str(problem) async for problem in verify(process.store)] == []


async def test_what_was_deleted_before_costs_later_deletions_in_its_tree_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        for number in range(8):
            await process.sessions.fork("s", session_id=f"f{number}")
        await process.sessions.fork("f7", session_id="g")
        reads: list[int] = []
        entries, effects = process.store.entries, process.store.effects

        async def counted_entries(no: int, **options: Any) -> Any:
            reads.append(no)
            # However much a crash left of one, no look takes all of it at once.
            assert options.get("limit") or options.get("before")
            return await entries(no, **options)

        async def counted_effects(no: int, **options: Any) -> Any:
            reads.append(no)
            return await effects(no, **options)

        monkeypatch.setattr(process.store, "entries", counted_entries)
        monkeypatch.setattr(process.store, "effects", counted_effects)
        counts = []
        for name in ("f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7"):
            reads.clear()
            await process.sessions.delete(name)
            counts.append(len(reads))
        assert counts[:7] == [counts[0]] * 7
        # What stayed for a fork goes with it, and so does what stayed for that.
        await process.sessions.delete("s")
        await process.sessions.delete("g")
        monkeypatch.undo()
        assert [await process.store.entries(row.no) for row in await process.store.tree("s")] == [[]] * 10
        assert [str(problem) async for problem in verify(process.store)] == []
