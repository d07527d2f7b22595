"""What people are asked is in one list, whichever sessions ask it: by owner and kind, page by page, with the arguments to judge."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, FunctionModel, ModelRequest, Reply, ToolCall, UsageError, tool
from perdure.core.errors import StoreBroken
from perdure.runtime.open_requests import ROWS
from perdure.runtime.redefining import UNFINISHED
from perdure.testing.faults import Call

from ..interactive.acting import Place, Process, eventually


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path / "agents.db")


@tool(effect="external")
async def refund(order: str) -> str:
    return f"refunded {order}"


@tool(effect="external", on_uncertain="ask")
async def wonder(order: str) -> str:
    raise OSError("the line went dead")


def plays(request: ModelRequest) -> Reply | str:
    said = request.messages[-1]
    if said.role != "user" or said.text == "hello":
        return "ok"
    name, *orders = said.text.split()
    if name == "team":
        return Reply(tool_calls=[ToolCall("clerk", {"task": f"refund {orders[0]}"})])
    return Reply(tool_calls=[ToolCall(name, {"order": order}) for order in orders])


clerk = Agent("clerk", model=FunctionModel(plays), tools=[refund], approve=["refund"])
desk = Agent(
    "desk",
    model=FunctionModel(plays),
    tools=[refund, wonder, clerk.as_tool()],
    approve=["refund"],
)
painter = Agent("painter", model=FunctionModel(lambda request: "Which wall?"), finish="ask")


async def say(process: Process, session: str, text: str, *, owner: str = "acme", agent: Agent = desk) -> None:
    """A message, and what comes of it until somebody is asked."""
    await process.sessions.owned_by(owner).send(session, text, agent=agent.name)
    await process.recover([agent])


def shown(page: Any) -> list[tuple[str, str, Any]]:
    return [(item.session_id, item.kind, item.question or item.arguments) for item in page]


async def test_all_that_people_are_asked_is_in_one_list(place: Place) -> None:
    async with place.process() as process:
        for session, text in (("quiet", "hello"), ("refunds", "refund A-1 A-2"), ("lost", "wonder B-1")):
            place.clock.advance(1000)
            await say(process, session, text)
        place.clock.advance(1000)
        await say(process, "unsure", "Paint it.", agent=painter)
        place.clock.advance(1000)
        await say(process, "caller", "team C-1")
        before = await process.everything("refunds")

        page = await process.sessions.open_requests()

        assert shown(page) == [
            ("caller.t2.0.1", "approval", {"order": "C-1"}),
            ("unsure", "answer", "Which wall?"),
            ("lost", "uncertain", {"order": "B-1"}),
            ("refunds", "approval", {"order": "A-1"}),
            ("refunds", "approval", {"order": "A-2"}),
        ]
        assert (page.next, page.problems) == (None, {})
        names = ("caller", "unsure", "lost", "refunds")
        assert [*page] == [item for name in names for item in await process.sessions.requests(name, children=True)]
        assert [(item.owner, item.agent) for item in page[:3]] == [("acme", "clerk"), ("acme", "painter"), ("acme", "desk")]
        assert [page[place - 1].at - page[place].at for place in (1, 2, 3, 4)] == [1000, 1000, 1000, 0]
        assert await process.everything("refunds") == before
        # What is answered is asked no more.
        await process.sessions.deny(page[3].session_id, page[3].request_id)
        left = await process.sessions.open_requests(kind="approval")
        assert [item.arguments for item in left] == [{"order": "C-1"}, {"order": "A-2"}]


async def test_they_are_found_by_owner_kind_agent_label_and_status(place: Place) -> None:
    async with place.process() as process:
        await say(process, "one", "refund A-1")
        await say(process, "two", "wonder B-1", owner="other")
        await process.sessions.describe("two", labels={"desk": "3"})
        await say(process, "caller", "team C-1", owner="other")
        ask = process.sessions.open_requests

        async def found(**filters: Any) -> set[str]:
            return {item.session_id for item in await ask(**filters)}

        assert await found() == {"one", "two", "caller.t2.0.1"}
        assert await found(owner="acme") == {"one"}
        assert await found(kind="uncertain") == {"two"}
        assert await found(kind=["uncertain", "approval"], owner="other") == {"two", "caller.t2.0.1"}
        assert await found(agent="clerk") == {"caller.t2.0.1"}
        assert await found(labels={"desk": "3"}) == {"two"}
        assert await found(status="waiting") == {"one", "two", "caller.t2.0.1"}
        assert await found(status=["stuck"]) == set()
        # Whoever sees one owner's sessions alone is told of nobody else's.
        guarded = process.sessions.owned_by("acme").open_requests
        assert {item.session_id for item in await guarded()} == {"one"}
        assert await guarded(owner="other") == []
        for wrong in ({"kind": "opinion"}, {"kind": [5]}, {"status": "asleep"}, {"limit": 0}, {"after": "made.up"}, {"owner": " "}):
            with pytest.raises(UsageError):
                await ask(**wrong)


async def test_a_call_that_still_runs_beside_a_question_hides_it_from_nobody(place: Place) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(effect="external")
    async def slow(order: str) -> str:
        begun.set()
        await go.wait()
        return order

    def both(request: ModelRequest) -> Reply | str:
        return "ok" if request.step else Reply(tool_calls=[ToolCall("wonder", {"order": "A"}), ToolCall("slow", {"order": "B"})])

    async with place.process() as process:
        running = asyncio.ensure_future(process.run(Agent("desk", model=FunctionModel(both), tools=[wonder, slow]), "go", session="s"))
        await begun.wait()
        await eventually(lambda: asked(process))
        [request] = await process.sessions.open_requests()
        assert (await process.sessions.info("s")).status == "running"
        go.set()
        await process.sessions.settle("s", request.request_id, "it was sent")
        assert (await running).output == "ok"
        assert await process.sessions.open_requests() == []


async def asked(process: Process) -> Any:
    return await process.sessions.open_requests()


async def test_pages_tear_no_session_apart_and_show_each_once(place: Place) -> None:
    async with place.process() as process:
        for index in range(5):
            place.clock.advance(1000)
            await say(process, f"s{index}", "refund A B C" if index == 3 else "refund A")
            await process.sessions.send(f"quiet{index}", "hello", agent="nobody")
        pages = []
        after = None
        while not pages or after is not None:
            page = await process.sessions.open_requests(limit=2, after=after)
            pages.append([item.session_id for item in page])
            after = page.next
        assert pages == [["s4", "s3", "s3", "s3"], ["s2", "s1"], ["s0"]]
        first = await process.sessions.open_requests(limit=2)
        for other in ({"kind": "approval"}, {"owner": "acme"}, {"status": "waiting"}):
            with pytest.raises(UsageError, match="token"):
                await process.sessions.open_requests(after=first.next, **other)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="token"):
            await process.sessions.list(status=UNFINISHED, children=True, after=first.next)


async def test_more_sessions_that_ask_nothing_than_are_read_at_once_hide_nothing(place: Place) -> None:
    async with place.process() as process:
        await say(process, "old", "refund A")
        place.clock.advance(1)
        for index in range(ROWS + 5):
            await process.sessions.send(f"s{index}", "hello", agent="nobody")
        assert [item.session_id for item in await process.sessions.open_requests(limit=1)] == ["old"]
        assert (await process.sessions.open_requests(limit=1)).next is None


async def test_only_the_turns_that_ask_are_read(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        await say(process, "s", "refund A")
        for index in range(5):
            await process.sessions.send(f"queued{index}", "hello", agent="nobody")
        for text in ("hello", "hello"):
            await say(process, "idle", text)
        before = len(process.faulty.calls)
        await process.sessions.open_requests()
        assert [call.kind for call in process.faulty.calls[before:]] == ["sessions", "load", "entries", "entries"]


async def test_a_session_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    async with place.process() as process:
        for session in ("first", "broken", "last"):
            place.clock.advance(1)
            await say(process, session, "refund A")
        place.execute("UPDATE sessions SET checkpoint = x'00' WHERE session_id = 'broken'")
        page = await process.sessions.open_requests()
        assert [item.session_id for item in page] == ["last", "first"]
        assert [*page.problems] == ["broken"]


async def test_a_store_that_does_not_answer_is_no_sessions_problem(place: Place) -> None:
    async with place.process() as process:
        await say(process, "s", "refund A")

        async def gate(call: Call, when: Any) -> None:
            if call.kind != "sessions":
                raise StoreBroken("the line went dead")

        process.faulty.gate = gate
        with pytest.raises(StoreBroken):
            await process.sessions.open_requests()
        process.faulty.gate = None
        assert len(await process.sessions.open_requests()) == 1
