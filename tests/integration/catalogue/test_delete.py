"""A deleted session is gone for good: its content, its work, and its id."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Agent, Fenced, FunctionModel, SessionNotFound
from perdure.runtime.verify import verify

from ..interactive.acting import Place
from .test_archive import PLAIN, Charging

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


async def _last(handle: object) -> None:
    async for _ in handle.events():  # type: ignore[attr-defined]
        pass


async def test_an_archived_session_can_be_deleted(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        await process.sessions.archive("s")
        await process.sessions.delete("s")
        assert await process.sessions.list(archived=True) == []
