"""What a reader can ask for: pages, whole turns, and entries that say where they stand and who asked for them."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    Entry,
    FunctionModel,
    MessageAdded,
    ModelRequest,
    OperationStarted,
    ProviderUnavailable,
    Reply,
    Text,
    ToolCall,
    tool,
)
from perdure.core.entries import encode
from perdure.core.messages import INLINE_LIMIT
from perdure.models.base import TextDelta
from perdure.testing import find_problems

from .acting import Past, Place, counting, lived, until

LONG = "y" * (INLINE_LIMIT + 100)


@tool(effect="pure")
async def look(what: str) -> str:
    """Look."""
    return LONG if what == "much" else f"saw {what}"


def looker(*what: str) -> Agent:
    """An agent that looks at one thing after the other, and then answers."""

    def answer(request: ModelRequest) -> Reply:
        return Reply(tool_calls=[ToolCall("look", {"what": what[request.step]})]) if request.step < len(what) else Reply("done")

    return Agent("looker", model=FunctionModel(answer), tools=[look])


@pytest.mark.spec("S2-067")
async def test_a_page_is_newest_first_and_says_how_to_go_on_only_where_there_is_more(place: Place) -> None:
    async with place.process() as process:
        for number in range(6):
            await process.sessions.send(f"s{number}", "hello")
            place.clock.advance(10)
        found: list[str] = []
        after = None
        sizes = []
        while True:
            page = await process.sessions.list(limit=3, after=after)
            sizes.append((len(page), page.next is not None))
            found += [info.session_id for info in page]
            if (after := page.next) is None:
                break
        assert found == [f"s{number}" for number in reversed(range(6))]
        assert sizes == [(3, True), (3, False)]
        assert (await process.sessions.list(limit=6)).next is None
        assert (await process.sessions.list(limit=5)).next is not None


@pytest.mark.spec("S2-068")
@pytest.mark.parametrize("limit", [0, -1, True, "3", 1.5])
async def test_a_page_of_nothing_is_refused(place: Place, limit: Any) -> None:
    async with place.process() as process:
        await process.run(looker(), "go", session="s")
        everywhere = [
            verb
            for paged in (process.sessions, process.sessions.consumer("mirror"), process.pools)
            for _, verb in inspect.getmembers(paged, inspect.iscoroutinefunction)
            if "limit" in inspect.signature(verb).parameters
        ]
        assert len(everywhere) >= 10
        for read in everywhere:
            named = ["s"] if "session_id" in inspect.signature(read).parameters else []
            with pytest.raises(perdure.UsageError, match="is no size of a page"):
                await read(*named, limit=limit)


@pytest.mark.spec("S2-073")
async def test_a_turn_is_read_whole_however_long_it_is(place: Place) -> None:
    steps = 120
    async with place.process() as process:
        await process.run(looker("a"), "one", session="s")
        agent = looker(*(f"{number}" for number in range(steps))).replace(limits=perdure.Limits(steps=10_000))
        await process.run(agent, "two", session="s")
        await process.sessions.note("s", "between the turns")
        whole = await process.sessions.entries("s")
        newest = await process.sessions.turn("s")
        assert newest[0].kind == "turn_started"
        assert newest[-1].kind == "turn_completed"
        assert len(newest) > 4 * steps
        assert newest == [entry for entry in whole if newest[0].seq <= entry.seq <= newest[-1].seq]
        assert whole[-1].kind == "note_added"
        first = await process.sessions.turn("s", "t2")
        assert (first[0].seq, first[-1].kind) == (2, "turn_completed")
        assert first[-1].seq < newest[0].seq
        for wrong in ("t1", "t3", "t02", "2", "t", "t²", "t" + "9" * 30):
            with pytest.raises(perdure.UsageError):
                await process.sessions.turn("s", wrong)
        await process.sessions.send("new", "hello")
        assert await process.sessions.turn("new") == []


async def test_a_turn_that_is_not_over_is_read_so_far(place: Place) -> None:
    model, _ = counting(Reply(tool_calls=[ToolCall("look", {"what": "a"})]), Reply("done"))
    agent = Agent("looker", model=model, tools=[look], approve=["look"])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go")
        await until(handle, perdure.ApprovalRequested)
        assert [entry.kind for entry in await process.sessions.turn("s")][-1] == "request_opened"


@pytest.mark.spec("S2-076")
async def test_a_long_result_that_stands_elsewhere_is_read_whole_and_a_lost_one_is_not_made_up(disk: Place) -> None:
    async with disk.process() as process:
        await process.run(looker("much"), "go", session="s")
        receipts: list[Any] = await process.sessions.entries("s", kinds=["operation_ended"])
        stored = [part for receipt in receipts for part in receipt.parts if type(part).__name__ == "StoredPart"]
        assert len(stored) == 1
        history = await process.sessions.history("s")
        assert [part.response for part in history[2].parts] == [LONG]  # type: ignore[union-attr]
    disk.execute(f"DELETE FROM blobs WHERE lower(hex(digest)) = '{stored[0].digest}' OR digest = '{stored[0].digest}'")
    async with disk.process() as process:
        with pytest.raises(perdure.StoreCorrupt):
            await process.sessions.history("s")
        assert any(stored[0].digest in str(problem) for problem in await find_problems(process.store, "s"))


@pytest.mark.spec("S2-084")
async def test_what_nobody_asked_for_names_no_submission(place: Place) -> None:
    async with place.process() as process:
        await process.run(looker("a"), "go", session="s", submission="m-1")
        for entry in await process.sessions.entries("s"):
            body = json.loads(encode(entry))
            asked = entry.kind in ("turn_started", "turn_completed") or (isinstance(entry, MessageAdded) and entry.role == "user")
            assert ("submission" in body) == asked
            assert body.get("submission", "m-1") == "m-1"


@pytest.mark.spec("S2-086")
async def test_a_message_says_which_entry_it_is_and_its_place_in_the_transcript(place: Place) -> None:
    async with place.process() as process:
        await process.run(looker("a", "b"), "one", session="s")
        await process.run(looker(), "two", session="s")
        entries = {entry.seq: entry for entry in await process.sessions.entries("s")}
        history = await process.sessions.history("s", limit=100)
        assert [message.position for message in history] == list(range(len(history)))
        for message in history:
            entry = entries[message.seq]
            assert isinstance(entry, MessageAdded)
            assert (entry.role, entry.number, entry.at) == (message.role, message.position + 1, message.at)
        assert len(history) == sum(isinstance(entry, MessageAdded) for entry in entries.values())


def calls_open(past: Past) -> None:
    past.accept("m-1")
    past.ask_model()
    past.answered(ToolCall("look", {"what": "a"}, "call-1"))
    past.plan()


@pytest.mark.spec("S2-136")
async def test_the_begin_of_a_call_that_is_still_open_names_its_turn_when_it_is_read_again(place: Place) -> None:
    model, _ = counting(Reply("done"))
    agent = Agent("looker", model=model, tools=[look])
    await lived(place, agent, calls_open, ("m-1", "go", "turn"))
    async with place.process() as process, process.session("s") as handle:
        checkpoint = await process.sessions.checkpoint("s")
        assert checkpoint.turn is not None
        begun = []
        async for event in handle.events(after=0):
            if isinstance(event, OperationStarted):
                begun.append(event)
            if isinstance(event, Entry) and event.seq == checkpoint.version:
                break
        open_calls = [item.id for item in checkpoint.turn.tools if item.status == "started"]
        assert [event.operation for event in begun if event.operation in open_calls] == open_calls == [f"{checkpoint.turn.id}.0.1"]


@pytest.mark.spec("S2-071")
async def test_text_of_an_attempt_is_kept_where_it_failed_and_stands_once_where_it_became_the_message(memory: Place) -> None:
    tries = 0

    async def stream(request: ModelRequest) -> Any:
        nonlocal tries
        tries += 1
        for word in ("alpha ", "beta"):
            yield TextDelta(text=f"{word}{tries}")
        if tries == 1:
            raise ProviderUnavailable("gone")
        yield Reply(f"alpha {tries}beta{tries}")

    agent = Agent("helper", model=FunctionModel(stream))
    async with memory.process() as process, process.session("s", agent) as handle:
        await handle.send("go")
        await asyncio.sleep(0)
        while not await process.sessions.entries("s", kinds=["turn_completed"]):
            memory.clock.advance(1000)
            await asyncio.sleep(0)
        failed, ended = await process.sessions.entries("s", kinds=["operation_ended"])
        assert (failed.status, failed.partial) == ("failed", "alpha 1beta1")  # type: ignore[attr-defined]
        assert (ended.status, ended.partial, ended.parts) == ("succeeded", "", (Text("alpha 2beta2"),))  # type: ignore[attr-defined]
        bodies = b"".join(encode(entry) for entry in await process.sessions.entries("s"))
        assert bodies.count(b"beta2") == 1


@pytest.mark.spec("S2-049", "B-B-076", "B-B-086")
async def test_a_commit_stores_what_is_new_and_nothing_that_was_there(place: Place) -> None:
    async with place.process() as process:
        for number in range(4):
            await process.sessions.send("s", f"needle-{number}", title="x", agent="looker")
            await process.recover([looker(f"straw-{number}")])
        stored: list[bytes] = []
        last = 1
        for call in process.faulty.calls:
            if call.kind == "commit" and call.given.entries:
                assert [entry.seq for entry in call.given.entries] == list(range(last + 1, last + 1 + len(call.given.entries)))
                last = call.given.entries[-1].seq
                stored += [entry.body for entry in call.given.entries]
                stored.append(call.given.checkpoint)
        everything = b"\n".join(stored)
        assert [everything.count(f"needle-{number}".encode()) for number in range(4)] == [1] * 4
        assert [everything.count(f"saw straw-{number}".encode()) for number in range(4)] == [1] * 4


@pytest.mark.spec("S2-027")
@pytest.mark.parametrize(("default", "joined"), [("turn", False), ("queue", False), ("steer", True)])
async def test_a_message_that_says_no_way_goes_the_one_that_its_handle_was_opened_with(place: Place, default: Any, joined: bool) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> Reply:
        thinking.set()
        await go_on.wait()
        return Reply("done")

    agent = Agent("helper", model=FunctionModel(answer))
    async with place.process() as process, process.session("s", agent, deliver=default) as handle:
        await handle.send("go", deliver="turn")
        await thinking.wait()
        await handle.send("and", submission="m-2")
        await handle.send("later", submission="m-3", deliver="queue")
        go_on.set()
        await until(handle, count=2 if joined else 3)
        messages: list[Any] = await process.sessions.entries("s", kinds=["message"])
        assert [entry.deliver for entry in messages if entry.submission in ("m-2", "m-3")] == [default, "queue"]
        with pytest.raises(perdure.UsageError):
            process.session("s", agent, deliver="soon")  # type: ignore[arg-type]


@pytest.mark.spec("S2-081")
async def test_a_full_inbox_says_so_and_everything_that_it_took_is_delivered(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.store.rules.PENDING_LIMIT", 8)
    model, _ = counting(Reply("done"))
    agent = Agent("helper", model=model)
    taken: list[str] = []
    refused = 0
    async with memory.process() as process, process.session("s", agent) as handle:
        for number in range(60):
            try:
                taken.append((await handle.send(f"say {number}", submission=f"m-{number}")).id)
            except perdure.QueueFull:
                refused += 1
        assert refused
        await until(handle, after=0, count=len(taken))
        said = [message.submission for message in await handle.history(limit=1000) if message.role == "user"]
        assert said == taken
        assert await find_problems(process.store, "s") == []


@pytest.mark.spec("S2-188", "S0-302")
async def test_a_grant_is_for_this_tool_with_these_arguments_in_this_session_and_outlives_the_process(place: Place) -> None:
    """Decided otherwise than in the source on purpose: what a person granted for the session is an entry of it."""
    ran: list[Any] = []

    @tool
    async def pay(cents: int, to: str) -> str:
        """Pay."""
        ran.append(("pay", cents, to))
        return "paid"

    @tool
    async def refund(cents: int, to: str) -> str:
        """Refund."""
        ran.append(("refund", cents, to))
        return "refunded"

    granted = ("pay", {"cents": 5, "to": "ann"})
    others = [("pay", {"cents": 6, "to": "ann"}), ("pay", {"cents": 5, "to": "Ann"}), ("refund", {"cents": 5, "to": "ann"})]

    def agent(name: str, arguments: dict[str, Any]) -> Agent:
        def answer(request: ModelRequest) -> Reply:
            return Reply("done") if request.step else Reply(tool_calls=[ToolCall(name, arguments)])

        return Agent("payer", model=FunctionModel(answer), tools=[pay, refund], approve=["pay", "refund"], on_change="any")

    async with place.process() as process, process.session("s", agent(*granted)) as handle:
        await handle.send("go")
        request = (await until(handle, perdure.ApprovalRequested))[-1]
        await handle.grant(request.request_id)
        await until(handle, after=request.seq)
    async with place.process() as process:
        # The same arguments in another order are the same arguments.
        same = ("pay", {"to": "ann", "cents": 5})
        assert (await process.run(agent(*same), "again", session="s")).output == "done"
        assert ran == [("pay", 5, "ann")] * 2
        for number, other in enumerate([*others, granted]):
            session = "s" if other is not granted else "t"
            async with process.session(session, agent(*other)) as handle:
                await handle.send("go", submission=f"other-{number}")
                asked = (await until(handle, perdure.ApprovalRequested, perdure.TurnEnded, after=(await version(process, session))))[-1]
                assert isinstance(asked, perdure.ApprovalRequested), f"{other} ran without a question"
                await handle.deny(asked.request_id)
                await until(handle, after=asked.seq)
    assert ran == [("pay", 5, "ann")] * 2


async def version(process: Any, session: str) -> int:
    head = await process.store.load(session)
    return head.row.version if head is not None else 0
