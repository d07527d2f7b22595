"""Images, sounds and files in sessions: sent, stored once, shown to models, returned by tools, and missed when they are gone."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    Blob,
    FunctionModel,
    InvalidMessage,
    Message,
    ModelRequest,
    ModelSettings,
    Reply,
    SessionHalted,
    StoreBroken,
    StoreCorrupt,
    SubmissionConflict,
    SubmissionRejected,
    Text,
    ToolCall,
    ToolCallResponse,
    ToolContext,
    Uri,
    tool,
)
from perdure.core import canonical
from perdure.testing.faults import Fault

from ..interactive.acting import Place
from ..runtime.test_verify import problems_in
from .pictures import MP3, png


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path / "agents.db", auto=True)


def looking(seen: list[ModelRequest], **options: Any) -> Agent:
    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return Reply("seen")

    return Agent("looker", model=FunctionModel(answer), **options)


@pytest.mark.spec("B-B-111", "D-034", "B-A-101")
async def test_a_picture_is_stored_once_and_the_model_gets_its_bytes(place: Place) -> None:
    seen: list[ModelRequest] = []
    data = png(7)
    async with place.process() as process:
        # when a person sends a picture, twice
        await process.run(looking(seen), ["what is this?", perdure.image(data, name="cat.png")], session="s")
        result = await process.run(looking(seen), [perdure.image(data)], session="s")
        assert result.ok
        # then the model has bytes and part, and no entry holds a byte of it
        blob = Blob(mime_type="image/png", digest=canonical.digest(data), size=len(data), name="cat.png")
        assert seen[0].messages[0].parts == (Text("what is this?"), blob)
        assert seen[1].content == {blob.digest: data}
        history = await process.sessions.history("s")
        assert history[0].parts[1] == blob
        assert await process.sessions.content("s", blob) == data
        row = await process.row()
        held = b"".join(entry.body or b"" for entry in await process.store.entries(row.no))
        assert base64.b64encode(data)[:40] not in held
        assert data[:40] not in held
        assert blob.digest.encode() in held
        assert (await process.store.blobs("s")).count(blob.digest) == 1
        assert await problems_in(process.store) == []


@pytest.mark.spec("B-B-077", "B-B-053")
async def test_the_revision_is_the_same_whatever_form_the_picture_came_in(place: Place) -> None:
    data = png(9)
    text = base64.b64encode(data).decode()
    async with place.process() as process:
        for session, form in {
            "bytes": perdure.image(data),
            "base64": perdure.image(base64=text),
            "address": Uri(uri=f"data:image/png;base64,{text}"),
        }.items():
            await process.run(looking([]), ["see", form], session=session)
        await process.sessions.send("attached", "hello", submission="m")
        await process.sessions.withdraw("attached", "m")
        part = await process.sessions.attach("attached", perdure.image(data))
        await process.run(looking([]), ["see", part], session="attached")
        revisions = {(await process.sessions.checkpoint(name)).revision for name in ("bytes", "base64", "address", "attached")}
        assert len(revisions) == 1


@pytest.mark.spec("B-B-108", "D-038")
async def test_a_reference_to_what_was_never_stored_is_refused_before_anything_is_written(place: Place) -> None:
    async with place.process() as process:
        await process.sessions.send("s", "hello", submission="m")
        before = await process.everything()
        data = png(1)
        never = perdure.image(data).blob
        with pytest.raises(InvalidMessage, match="holds no content"):
            await process.sessions.send("s", [Text("see"), never], submission="x")
        with pytest.raises(InvalidMessage, match="holds no content"):
            await process.sessions.edit("s", "m", never)
        # what is stored is not taken for what it isn't
        await process.sessions.attach("s", perdure.image(data))
        before = (*before[:-1], (never.digest,))
        for wrong in (
            Blob(mime_type="image/jpeg", digest=never.digest, size=never.size),
            Blob(mime_type="image/png", digest=never.digest, size=never.size - 1),
            Blob(mime_type="image/png", digest=never.digest, size=never.size, name="../up"),
            Blob(mime_type="image/png", digest="../" + never.digest[3:], size=never.size),
        ):
            with pytest.raises(InvalidMessage):
                await process.sessions.send("s", [Text("see"), wrong])
        assert await process.everything() == before
        # nor is it another session's, or another owner's
        await process.sessions.send("other", "hello")
        with pytest.raises(InvalidMessage):
            await process.sessions.send("other", never)
        with pytest.raises(perdure.PerdureError):
            await process.sessions.owned_by("somebody").send("s", never)


@pytest.mark.spec("B-A-112")
async def test_content_that_nobody_could_look_up_is_neither_missing_nor_damaged(place: Place) -> None:
    picture = perdure.image(png(1))
    async with place.process() as process:
        await process.run(looking([]), picture, session="s")
    # when the store fails where the sender's reference, or the request's bytes, are looked up
    async with place.process(Fault(kind="blob", times=2)) as process:
        with pytest.raises(StoreBroken):
            await process.sessions.send("s", picture.blob, submission="k")
        with pytest.raises(StoreBroken):
            await process.run(looking([]), "and now?", session="s", submission="m")
    # then nothing is said of the content, and both go through
    async with place.process() as process:
        assert not (await process.sessions.send("s", picture.blob, submission="k")).duplicate
        assert (await process.run(looking([]), "and now?", session="s", submission="m")).ok
        assert await problems_in(process.store) == []


@pytest.mark.spec("B-A-199")
async def test_reading_a_conversation_fetches_no_content_and_takes_nothing(place: Place) -> None:
    async with place.process() as process:
        await process.run(looking([]), perdure.image(png(1)), session="s")
    async with place.process() as process:
        assert [message.role for message in await process.sessions.history("s")] == ["user", "assistant"]
        assert {call.kind for call in process.faulty.calls} <= {"load", "seek", "entries"}


@pytest.mark.spec("B-B-104", "D-037")
async def test_replay_and_conflict_are_decided_by_the_submission_and_store_nothing_new(place: Place) -> None:
    seen: list[ModelRequest] = []
    first, second = perdure.image(png(1)), perdure.image(png(2))
    async with place.process() as process:
        await process.run(looking(seen), [first], session="s", submission="k")
        before = await process.everything()
        # the same again, as another representation, is the same
        again = await process.sessions.send("s", Uri(uri="data:image/png;base64," + base64.b64encode(png(1)).decode()), submission="k")
        assert again.duplicate
        with pytest.raises(SubmissionConflict):
            await process.sessions.send("s", second, submission="k")
        assert second.blob.digest not in await process.store.blobs("s")
        assert await process.everything() == before
        assert len(await process.sessions.history("s")) == 2


@pytest.mark.spec("D-036")
async def test_a_picture_for_a_turn_or_message_that_is_not_there_leaves_no_trace(place: Place) -> None:
    picture = perdure.image(png(4))
    async with place.process() as process:
        await process.sessions.send("s", "hello")
        before = await process.everything()
        for _ in range(2):
            with pytest.raises(SubmissionRejected):
                await process.sessions.send("s", picture, submission="p", turn="t99")
            with pytest.raises(SubmissionRejected):
                await process.sessions.send("s", picture, submission="p", reply_to=99)
        assert await process.everything() == before


@pytest.mark.spec("D-046", "B-B-198", "B-A-198")
async def test_the_budget_counts_every_occurrence_and_says_the_numbers(place: Place) -> None:
    seen: list[ModelRequest] = []
    data = png(5)
    size = len(data)
    async with place.process() as process:
        # given room for two pictures, and the same one three times in the conversation
        agent = looking(seen, settings=ModelSettings(media_bytes=2 * size))
        for _ in range(2):
            assert (await process.run(agent, perdure.image(data), session="s")).ok
        result = await process.run(agent, perdure.image(data), session="s")
        # then no request was made, and the turn says why
        assert result.status == "failed"
        assert result.failure is not None
        assert result.failure.code == "media_budget"
        assert str(3 * size) in result.failure.message
        assert str(2 * size) in result.failure.message
        assert len(seen) == 2
        # and with room for three it goes on
        assert (await process.run(looking(seen, settings=ModelSettings(media_bytes=4 * size)), "again", session="s")).ok


@pytest.mark.spec("D-035")
@pytest.mark.parametrize("how", ["missing", "altered"])
async def test_bytes_that_are_gone_or_altered_are_an_error_and_no_silent_gap(tmp_path: Path, how: str) -> None:
    place = Place("sqlite", tmp_path / "agents.db", auto=True)
    seen: list[ModelRequest] = []
    picture = perdure.image(png(6))
    async with place.process() as process:
        await process.run(looking(seen), picture, session="s")
    if how == "missing":
        place.execute(f"DELETE FROM blobs WHERE digest = '{picture.blob.digest}'")
    else:
        place.execute(f"UPDATE blobs SET data = CAST(replace(data, 'IDAT', 'IDAX') AS BLOB) WHERE digest = '{picture.blob.digest}'")
    async with place.process() as process:
        # then at sending, whoever runs learns it and the model is not asked
        with pytest.raises(SessionHalted, match=picture.blob.digest[:12]):
            await process.run(looking(seen), "and now?", session="s")
        assert len(seen) == 1
        # at reading
        with pytest.raises(StoreCorrupt):
            await process.sessions.content("s", picture.blob)
        # the reference stands as it was, and verify names it
        assert (await process.sessions.history("s"))[0].parts == (picture.blob,)
        assert any(picture.blob.digest in str(problem) for problem in await problems_in(process.store))


def drawing(returned: Any, seen: list[ModelRequest], **options: Any) -> Agent:
    @tool(effect="pure", **options)
    async def draw(ctx: ToolContext) -> Any:
        """Draw."""
        return returned

    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return Reply("done") if request.messages[-1].role == "tool" else Reply(tool_calls=[ToolCall("draw", {})])

    return Agent("drawer", model=FunctionModel(answer), tools=[draw])


@pytest.mark.spec("B-B-055")
async def test_a_tool_returns_a_picture_and_the_next_request_holds_it(place: Place) -> None:
    seen: list[ModelRequest] = []
    chart, sound = perdure.image(png(8), name="chart.png"), perdure.audio(MP3)
    async with place.process() as process:
        returned = {"title": "sales", "pictures": [chart, sound], "again": chart}
        assert (await process.run(drawing(returned, seen), "draw", session="s")).ok
        response = seen[1].messages[-1].parts[0]
        assert isinstance(response, ToolCallResponse)
        # words stand for each where it stood
        words = f'["chart.png", image/png, {len(png(8))} bytes]'
        assert response.response == {"title": "sales", "pictures": [words, f"[audio/mpeg, {len(MP3)} bytes]"], "again": words}
        assert response.media == (chart.blob, sound.blob, chart.blob)
        assert seen[1].content == {chart.blob.digest: png(8), sound.blob.digest: MP3}
        assert await process.sessions.content("s", chart.blob) == png(8)
        held = b"".join(row.body or b"" for row in await process.store.entries((await process.row()).no))
        assert base64.b64encode(png(8))[:40] not in held
        assert await problems_in(process.store) == []
    async with place.process() as process:
        # and after a restart too
        assert (await process.run(drawing(returned, seen), "draw", session="s")).ok
        assert set(seen[-1].content) == {chart.blob.digest, sound.blob.digest}


async def test_a_long_result_with_a_picture_is_set_aside_and_keeps_it(place: Place) -> None:
    seen: list[ModelRequest] = []
    chart = perdure.image(png(8))
    async with place.process() as process:
        assert (await process.run(drawing(["x" * 50_000, chart], seen), "draw", session="s")).ok
        assert seen[1].content == {chart.blob.digest: png(8)}
        assert await problems_in(process.store) == []


async def test_media_where_no_media_can_be_are_refused_in_words_for_the_model(place: Place) -> None:
    class Holder:
        def __init__(self) -> None:
            self.picture = perdure.image(png())

    seen: list[ModelRequest] = []
    async with place.process() as process:
        for number, hidden in enumerate((Holder(), {perdure.image(png())})):
            assert (await process.run(drawing(hidden, seen), "draw", session=f"s{number}")).ok
            response = seen[-1].messages[-1].parts[0]
            assert isinstance(response, ToolCallResponse)
            assert response.is_error, response
            assert "can't be kept" in response.response
            assert response.media == ()


async def test_a_result_with_a_picture_is_reported_from_elsewhere(place: Place) -> None:
    seen: list[ModelRequest] = []
    tokens: list[str] = []
    chart = perdure.image(png(3))

    @tool(effect="external", timeout=5)
    async def draw(ctx: ToolContext) -> str:
        """Draw."""
        tokens.append(ctx.callback_token)
        await asyncio.Event().wait()
        return ""

    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return Reply("done") if request.messages[-1].role == "tool" else Reply(tool_calls=[ToolCall("draw", {})])

    agent = Agent("drawer", model=FunctionModel(answer), tools=[draw])
    async with place.process() as process:
        assert (await process.run(agent, "draw", session="s")).ok
        first = await process.sessions.report(tokens[0], {"chart": chart})
        again = await process.sessions.report(tokens[0], {"chart": chart})
        assert (first.duplicate, again.duplicate) == (False, True)
        assert await process.sessions.content("s", chart.blob) == png(3)
        assert await problems_in(process.store) == []


@pytest.mark.spec("B-B-073")
async def test_a_waiting_message_is_edited_to_hold_a_picture(place: Place) -> None:
    seen: list[ModelRequest] = []
    picture = perdure.image(png(2))
    async with place.process() as process:
        await process.sessions.send("s", "soon", submission="m", agent="looker")
        await process.sessions.edit("s", "m", ["now", picture])
        [waiting] = await process.pending()
        assert base64.b64encode(png(2))[:40] not in (waiting.body or b"")
        async with process.session("s", looking(seen)) as handle:
            async for event in handle.events(after=0):
                if isinstance(event, perdure.TurnEnded):
                    break
        assert seen[0].content == {picture.blob.digest: png(2)}
        assert (await process.run(looking(seen), "next", session="s")).ok
        assert seen[-1].content == {picture.blob.digest: png(2)}


async def test_deleting_a_session_deletes_what_it_showed(place: Place) -> None:
    async with place.process() as process:
        await process.run(looking([]), perdure.image(png(2)), session="s")
        await process.sessions.delete("s")
        assert await process.store.blobs("s") == []
        with pytest.raises(perdure.SessionNotFound):
            await process.sessions.attach("s", perdure.image(png(2)))


async def test_attaching_is_idempotent_and_refused_where_nothing_can_be_sent(place: Place) -> None:
    picture = perdure.image(png(2))
    async with place.process() as process:
        with pytest.raises(perdure.SessionNotFound):
            await process.sessions.attach("s", picture)
        await process.run(looking([]), "hello", session="s")
        assert await process.sessions.attach("s", picture) == await process.sessions.attach("s", picture) == picture.blob
        with pytest.raises(perdure.InvalidMedia):
            await process.sessions.attach("s", png(2))  # type: ignore[arg-type]
        await process.sessions.archive("s")
        with pytest.raises(perdure.SessionArchived):
            await process.sessions.attach("s", picture)


async def test_the_same_bytes_as_another_type_of_file_are_two_parts_and_one_content(place: Place) -> None:
    async with place.process() as process:
        for kind in ("text/plain", "text/markdown", "application/json"):
            await process.run(looking([]), perdure.file(b'"note"', mime_type=kind), session="s")
        parts = [part for message in await process.sessions.history("s") if message.role == "user" for part in message.parts]
        assert [part.mime_type for part in parts if isinstance(part, Blob)] == ["text/plain", "text/markdown", "application/json"]
        assert await problems_in(process.store) == []


@pytest.mark.spec("B-B-174")
async def test_a_rewrite_with_a_picture_in_an_address_stores_it_as_a_send_does(place: Place) -> None:
    seen: list[ModelRequest] = []
    picture = perdure.image(png(11))
    address = Uri(uri="data:image/png;base64," + base64.b64encode(png(11)).decode())
    async with place.process() as process:
        await process.run(looking(seen), "hello", session="s")
        await process.sessions.rewrite("s", (0, 1), [Message(role="user", parts=(Text("see"), address))])
        assert (await process.sessions.history("s"))[0].parts == (Text("see"), picture.blob)
        await process.run(looking(seen), ["see", picture], session="other")
        revisions = {(await process.sessions.checkpoint(name)).revision for name in ("s", "other")}
        assert len(revisions) == 1
        assert (await process.run(looking(seen), "and?", session="s")).ok
        assert seen[-1].content == {picture.blob.digest: png(11)}
        with pytest.raises(InvalidMessage, match="holds no content"):
            await process.sessions.rewrite("s", (0, 1), [Message(role="user", parts=(perdure.image(png(12)).blob,))])
        assert await problems_in(process.store) == []


@pytest.mark.spec("D-044", "B-B-124")
async def test_a_picture_that_was_redacted_does_not_come_back_with_its_old_submission(place: Place) -> None:
    picture = perdure.image(png(13))
    async with place.process() as process:
        await process.run(looking([]), ["see", picture], session="s", submission="k")
        await process.sessions.redact("s", positions=[0], reason="private")
        assert picture.blob.digest not in await process.store.blobs("s")
        # when the old submission comes again, with the same bytes
        assert (await process.sessions.send("s", ["see", picture], submission="k")).duplicate
        # then nothing of it comes back, and a new one is a new message
        assert picture.blob.digest not in await process.store.blobs("s")
        assert len(await process.sessions.history("s")) == 2
        assert not (await process.sessions.send("s", ["see", picture], submission="fresh")).duplicate
        assert picture.blob.digest in await process.store.blobs("s")


@pytest.mark.spec("D-045")
async def test_a_rewrite_that_keeps_the_picture_keeps_its_receipt(place: Place) -> None:
    picture = perdure.image(png(14))
    async with place.process() as process:
        await process.run(looking([]), [picture], session="s", submission="k")
        kept = (await process.sessions.history("s"))[0]
        await process.sessions.rewrite("s", (0, 1), [Message(role="user", parts=kept.parts), "and more"])
        assert (await process.sessions.send("s", [picture], submission="k")).duplicate
        assert len(await process.sessions.history("s")) == 3


async def test_redacting_a_tool_s_result_erases_the_picture_that_it_returned(place: Place) -> None:
    chart = perdure.image(png(15))
    async with place.process() as process:
        await process.run(drawing(["x" * 50_000, chart], []), "draw", session="s")
        await process.sessions.redact("s", positions=[2], reason="private")
        assert chart.blob.digest not in await process.store.blobs("s")
        assert await problems_in(process.store) == []


async def test_a_fork_shares_the_picture_with_its_parent(place: Place) -> None:
    seen: list[ModelRequest] = []
    picture = perdure.image(png(16))
    async with place.process() as process:
        await process.run(looking(seen), picture, session="s")
        await process.sessions.fork("s", at=2, session_id="branch")
        assert (await process.run(looking(seen), "and?", session="branch")).ok
        assert seen[-1].content == {picture.blob.digest: png(16)}
        assert await process.sessions.content("branch", picture.blob) == png(16)
        assert (await process.row("branch")).root == "s"


async def test_a_result_that_holds_one_list_many_times_is_looked_at_once(place: Place) -> None:
    picture = perdure.image(png(17))
    inner: list[Any] = [picture, "word"]
    shared = {"first": inner, "second": inner}
    bomb: list[Any] = ["x"]
    for _ in range(60):
        bomb = [bomb, bomb]
    round_: list[Any] = [picture]
    round_ += [round_, round_]
    seen: list[ModelRequest] = []
    async with place.process() as process:
        assert (await process.run(drawing(shared, seen), "draw", session="shared")).ok
        response = seen[-1].messages[-1].parts[0]
        assert isinstance(response, ToolCallResponse)
        assert response.response["first"] == response.response["second"] == [f"[image/png, {len(png(17))} bytes]", "word"]
        assert response.media == (picture.blob,)
        for number, endless in enumerate((bomb, round_)):
            assert (await process.run(drawing(endless, seen), "draw", session=f"s{number}")).ok
            response = seen[-1].messages[-1].parts[0]
            assert isinstance(response, ToolCallResponse)
            assert response.is_error
