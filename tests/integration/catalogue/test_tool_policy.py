"""Which tools a session may use and which calls are asked about: said for one session, inherited by its branches or set for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Agent,
    FunctionModel,
    ModelRequest,
    Reply,
    SessionExists,
    SessionNotFound,
    StoreBroken,
    StoreCorrupt,
    ToolCall,
    ToolCallResponse,
    ToolPolicy,
    UnknownAgent,
    UsageError,
    tool,
)
from perdure.testing.faults import Fault

from ..interactive.acting import Place, Process, eventually
from .talking import sound


class Two:
    """An agent with two tools, whose model asks for both whenever it is spoken to."""

    def __init__(self, **options: Any) -> None:
        self.done: list[str] = []
        self.asked: list[ModelRequest] = []

        @tool(effect="external", guard="allow")
        async def pay(cents: int) -> str:
            """Pay."""
            self.done.append("pay")
            return "paid"

        @tool(effect="pure")
        async def look(place: str) -> str:
            """Look."""
            self.done.append("look")
            return "nothing"

        def answer(request: ModelRequest) -> Reply:
            self.asked.append(request)
            if request.messages[-1].role == "tool":
                return Reply("so")
            number = len(self.asked)
            calls = [
                ToolCall(name="pay", arguments={"cents": number}, id=f"p{number}"),
                ToolCall(name="look", arguments={"place": "x"}, id=f"l{number}"),
            ]
            return Reply(tool_calls=calls)

        self.agent = Agent("two", model=FunctionModel(answer), tools=[pay, look], **options)

    def offered(self) -> list[str]:
        return [spec.name for spec in self.asked[-1].tools]

    def results(self) -> list[Any]:
        return [part.response for part in self.asked[-1].messages[-1].parts if isinstance(part, ToolCallResponse)]


NOT_HERE = "not executed: this session may not use 'pay'"


@pytest.mark.spec("S0-309", "C-T3-039")
async def test_a_session_loses_a_tool_in_one_commit_and_models_neither_see_nor_use_it(place: Place) -> None:
    two = Two()
    async with place.process() as process:
        await process.run(two.agent, "hello", session="s", submission="m1")
        assert (two.offered(), two.done) == (["pay", "look", "read_result"], ["pay", "look"])
        version = (await process.row()).version
        # when somebody takes a tool away
        sent = await process.sessions.restrict("s", ToolPolicy(never=("pay",)), submission="r1", actor="ann")
        assert not sent.duplicate
        assert (await process.sessions.restrict("s", ToolPolicy(never=("pay",)), submission="r1", actor="ann")).duplicate
        [changed] = await process.sessions.entries("s", after=version)
        assert (changed.kind, changed.tools, changed.actor) == ("session_changed", ToolPolicy(never=("pay",)), "ann")  # type: ignore[attr-defined]
        # Exactly that is kept, and nothing is made up beside it.
        assert (changed.title, changed.labels, changed.metadata) == (None, None, None)  # type: ignore[attr-defined]
        assert (await process.sessions.info("s")).tools == ToolPolicy(never=("pay",))
    # then, in another process too, it is not offered, and a model that asks for it all the same is told why nothing ran
    async with place.process() as process:
        two.done.clear()
        await process.run(two.agent, "again", session="s", submission="m2")
        assert two.offered() == ["look", "read_result"]
        assert two.results() == [NOT_HERE, "nothing"]
        assert two.done == ["look"]
        # and it comes back as it went
        await process.sessions.restrict("s", ToolPolicy())
        assert (await process.sessions.info("s")).tools == ToolPolicy()
        await process.run(two.agent, "again", session="s", submission="m3")
        assert two.done == ["look", "pay", "look"]
        await sound(process)


async def test_a_session_asks_about_calls_that_its_agent_would_let_run(place: Place) -> None:
    two = Two()
    async with place.process() as process:
        await process.sessions.send("s", "hello", submission="m1", agent="two")
        await process.sessions.restrict("s", ToolPolicy(ask=("pay",)))
        running = asyncio.create_task(process.run(two.agent, "hello", session="s", submission="m1"))
        await eventually(lambda: _open(process))
        [request] = await process.sessions.requests("s")
        assert (request.name, two.done) == ("pay", [])
        await process.sessions.deny("s", request.request_id)
        assert (await running).ok
        assert two.done == ["look"]


async def _open(process: Process) -> bool:
    return bool(await process.sessions.requests("s"))


@pytest.mark.spec("S0-308")
async def test_a_policy_of_a_session_takes_away_and_never_gives(place: Place) -> None:
    two = Two(approve={"pay": "deny", "look": "ask"})
    async with place.process() as process:
        await process.sessions.send("s", "hello", submission="m1", agent="two")
        await process.sessions.restrict("s", ToolPolicy(only=("pay", "look", "unheard of"), ask=("pay",)))
        running = asyncio.create_task(process.run(two.agent, "hello", session="s", submission="m1"))
        await eventually(lambda: _open(process))
        [request] = await process.sessions.requests("s")
        assert request.name == "look"
        await process.sessions.approve("s", request.request_id)
        assert (await running).ok
        assert two.results() == ["not executed: the policy denies it", "nothing"]


@pytest.mark.spec("S0-309")
async def test_a_call_that_waits_for_approval_when_its_tool_is_taken_away_does_not_run(place: Place) -> None:
    two = Two(approve=["pay"])
    async with place.process() as process:
        running = asyncio.create_task(process.run(two.agent, "hello", session="s", submission="m1"))
        await eventually(lambda: _open_or_missing(process))
        [request] = await process.sessions.requests("s")
        await process.sessions.restrict("s", ToolPolicy(never=("pay",)))
        await process.sessions.approve("s", request.request_id)
        assert (await running).ok
        assert two.done == ["look"]
        assert two.results() == [NOT_HERE, "nothing"]
        await sound(process)


async def _open_or_missing(process: Process) -> bool:
    return await process.sessions.number("s") is not None and await _open(process)


@pytest.mark.spec("C-T3-006", "B-A-172", "B-B-172")
async def test_a_branch_has_its_parents_policy_unless_it_gets_its_own_and_the_parent_keeps_its(place: Place) -> None:
    two = Two()
    async with place.process() as process:
        await process.run(two.agent, "hello", session="s", submission="m1", owner="acme")
        await process.sessions.restrict("s", ToolPolicy(never=("pay",)))
    async with place.process() as process:
        before = await process.everything()
        # when it is forked with a policy, with none said, and with one that says nothing
        await process.sessions.fork("s", at=0, session_id="own", tools=ToolPolicy(only=("pay",)))
        await process.sessions.fork("s", at=0, session_id="same")
        await process.sessions.fork("s", at=0, session_id="free", tools=ToolPolicy())
        # then each stores its own, and the parent is what it was
        shown = {info.session_id: info.tools for info in await process.sessions.list()}
        assert shown == {
            "s": ToolPolicy(never=("pay",)),
            "own": ToolPolicy(only=("pay",)),
            "same": ToolPolicy(never=("pay",)),
            "free": ToolPolicy(),
        }
        assert (await process.everything())[1:] == before[1:]
        # and each branch is driven by it
        for session, offered in (("own", ["pay", "read_result"]), ("same", ["look", "read_result"])):
            two.done.clear()
            await process.run(two.agent, "go", session=session, submission="m1")
            assert (two.offered(), two.done) == (offered, [offered[0]])
        # and forking again under the same id is only the same fork with the same policy
        assert (await process.sessions.fork("s", at=0, session_id="own", tools=ToolPolicy(only=("pay",)))).duplicate
        assert (await process.sessions.fork("s", at=0, session_id="own")).duplicate
        with pytest.raises(SessionExists):
            await process.sessions.fork("s", at=0, session_id="own", tools=ToolPolicy())
        await sound(process)


@pytest.mark.spec("C-T3-040", "B-B-202", "B-B-204")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_policy_whose_commit_failed_is_stored_or_it_is_not_and_nothing_acts_on_another(place: Place, when: Any) -> None:
    two = Two()
    async with place.process() as process:
        await process.run(two.agent, "hello", session="s", submission="m1")
    async with place.process(Fault(kind="commit", nth=1, when=when)) as process:
        async with process.session("s", two.agent):
            # when the store fails under somebody who has the session open
            with pytest.raises(StoreBroken):
                await process.sessions.restrict("s", ToolPolicy(never=("pay",)), submission="r1")
            stored = (await process.sessions.info("s")).tools
            assert stored == (ToolPolicy() if when == "before" else ToolPolicy(never=("pay",)))
            # then the next turn here goes by what is stored
            two.done.clear()
            await process.run(two.agent, "again", session="s", submission="m2")
            assert two.done == (["pay", "look"] if when == "before" else ["look"])
        # and saying it again says it once
        assert (await process.sessions.restrict("s", ToolPolicy(never=("pay",)), submission="r1")).duplicate == (when == "after")
        assert (await process.sessions.info("s")).tools == ToolPolicy(never=("pay",))
        await sound(process)


@pytest.mark.spec("C-T3-041")
async def test_what_an_application_keeps_for_itself_is_no_policy_even_where_setting_one_fails(place: Place) -> None:
    two = Two()
    async with place.process() as process:
        await process.run(two.agent, "hello", session="s", submission="m1", metadata={"tools": {"never": ["look"]}})
    async with place.process(Fault(kind="commit")) as process:
        with pytest.raises(StoreBroken):
            await process.sessions.restrict("s", ToolPolicy(never=("pay",)))
        assert (await process.sessions.info("s")).tools == ToolPolicy()
        two.done.clear()
        await process.run(two.agent, "again", session="s", submission="m2")
        assert two.done == ["pay", "look"]


@pytest.mark.spec("C-T3-042")
async def test_a_stored_policy_that_is_none_is_told_before_anything_is_written_and_never_replaced(tmp_path: Path) -> None:
    place, two = Place("sqlite", tmp_path / "agents.db"), Two()
    async with place.process() as process:
        await process.run(two.agent, "hello", session="s", submission="m1")
        await process.sessions.restrict("s", ToolPolicy(never=("pay",)))
    place.execute("""UPDATE sessions SET checkpoint = CAST(replace(CAST(checkpoint AS TEXT), '{"never":["pay"]}', '"pay"') AS BLOB)""")
    # given a store that would fail, too, if it was written to
    async with place.process(Fault(kind="write", times=1_000)) as process:
        before = await process.everything()
        assert b'"tools":"pay"' in before[0].checkpoint
        for using in (process.sessions.restrict("s", ToolPolicy()), process.sessions.fork("s"), process.run(two.agent, "x", session="s")):
            with pytest.raises(StoreCorrupt, match="tools"):
                await using
        assert await process.everything() == before
        info = await process.sessions.info("s")
        assert (info.tools, "tools" in info.problem) == (None, True)
    assert two.done == ["pay", "look"]


async def test_what_is_no_policy_is_refused_and_nothing_is_stored(place: Place) -> None:
    two = Two()
    async with place.process() as process:
        await process.run(two.agent, "hello", session="s", submission="m1")
        before = await process.everything()
        for wrong in ({"never": ["pay"]}, None, ToolPolicy(never="pay"), ToolPolicy(only=(1,)), ToolPolicy(ask=("",))):  # type: ignore[arg-type]
            with pytest.raises(UsageError):
                await process.sessions.restrict("s", wrong)  # type: ignore[arg-type]
            if wrong is not None:
                with pytest.raises(UsageError):
                    await process.sessions.fork("s", tools=wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            await process.sessions.fork("s", tools=ToolPolicy(never=tuple(f"tool {index}" for index in range(2_000))))
        with pytest.raises(UsageError):
            await process.sessions.restrict("s", ToolPolicy(never=tuple(f"tool {index}" for index in range(2_000))))
        assert (await process.everything())[1] == before[1]
        assert (await process.sessions.info("s")).tools == ToolPolicy()


@pytest.mark.spec("B-A-174")
async def test_a_policy_that_names_what_the_agent_does_not_have_is_refused_and_what_stood_holds(place: Place) -> None:
    two = Two()
    async with place.process() as process:
        await process.run(two.agent, "hello", session="s", submission="m1")
        await process.sessions.restrict("s", ToolPolicy(never=("pay",)), submission="r1")
        before = await process.everything()
        for wrong in (ToolPolicy(never=("pya",)), ToolPolicy(only=("pya",)), ToolPolicy(ask=("pya",))):
            with pytest.raises(UsageError, match="the agent 'two' has no tool 'pya'") as refused:
                await process.sessions.restrict("s", wrong)
            assert "did you mean pay?" in refused.value.hint
            with pytest.raises(UsageError, match="has no tool"):
                await process.sessions.fork("s", session_id="branch", tools=wrong)
        with pytest.raises(SessionNotFound):
            await process.sessions.owned_by("other").restrict("s", ToolPolicy(never=("pya",)))
        assert await process.everything() == before
        assert await process.store.load("branch") is None
        # What the code has by now can be named with it, and what was sent is not judged anew.
        more = two.agent.replace(tools=[*two.agent.tools, tool(effect="pure")(dig)])
        await process.sessions.restrict("s", ToolPolicy(never=("dig",)), agents=[more], submission="r2")
        assert (await process.sessions.restrict("s", ToolPolicy(never=("dig",)), submission="r2")).duplicate
        assert (await process.sessions.info("s")).tools == ToolPolicy(never=("dig",))
        with pytest.raises(UnknownAgent):
            await process.sessions.restrict("s", ToolPolicy(never=("dig",)), agents=[two.agent.replace(name="another")])


def dig() -> str:
    """Dig."""
    return "dug"
