"""Another definition between a crash and a resume: what goes on, what is refused untouched, and what says so beforehand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    ApprovalRequested,
    DefinitionChanged,
    FunctionModel,
    Middleware,
    ModelRequest,
    ModelSettings,
    OperationEnded,
    Reply,
    Router,
    Runtime,
    ScriptedModel,
    ToolCall,
    UsageError,
    tool,
    versioned,
)
from perdure.agent.definition import describe, difference
from perdure.core.entries import DefinitionChange
from perdure.models.openai import OpenAIResponses
from perdure.testing.checks import find_problems
from perdure.tools.workspace import workspace_tools


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with perdure.open(str(tmp_path / "agents.db")) as opened:
        yield opened


@tool(effect="external", key="order")
async def pay(order: str) -> str:
    """Pay for an order."""
    return f"paid {order}"


def changed_pay(*, cents: bool = False, effect: Any = "external") -> perdure.Tool:
    """The tool as another deploy declares it."""
    if cents:

        @tool(name="pay", effect=effect)
        async def with_cents(order: str, cents: int) -> str:
            """Pay for an order."""
            return f"paid {cents} for {order}"

        return with_cents

    @tool(name="pay", effect=effect, key="order")
    async def other_words(order: str) -> str:
        """Pay for an order, once."""
        return f"paid {order} anew"

    return other_words


def paying(**options: Any) -> Agent:
    model = ScriptedModel([Reply(tool_calls=[ToolCall("pay", {"order": "A-1"})]), "Done."])
    return Agent("payer", **{"model": model, "tools": [pay], "approve": ["pay"], **options})


async def parked(runtime: Runtime, agent: Agent, session: str = "s", *, approved: bool = True) -> int:
    """Bring a session to its open approval, and leave it there. Returns its version."""
    running = asyncio.ensure_future(runtime.run(agent, "Pay A-1.", session=session, submission="m1"))
    async with runtime.session(session) as watcher:
        async for event in watcher.events(after=0):
            if isinstance(event, ApprovalRequested):
                break
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if approved:
        [request] = await runtime.sessions.requests(session)
        await runtime.sessions.approve(session, request.request_id)
    return (await runtime.sessions.info(session)).version


REFUSED: dict[str, tuple[Callable[[], Agent], str]] = {
    "the tool lost its place": (lambda: paying(tools=[], approve=()), "the tool 'pay' was removed, and a call of it is open"),
    "the open call doesn't fit": (lambda: paying(tools=[changed_pay(cents=True)]), "cents: is required"),
    "nothing may change": (lambda: paying(instructions="Be kind.", on_change="same"), "the instructions changed"),
    "the saved route is gone": (
        lambda: paying(model=Router({"a": ScriptedModel([]), "b": ScriptedModel([])})),
        "there is no route 'scripted'",
    ),
}


@pytest.mark.spec("S0-160", "S0-278")
@pytest.mark.parametrize("name", [name for name in REFUSED if name != "the saved route is gone"])
async def test_an_unfinished_turn_is_refused_before_anything_is_touched(runtime: Runtime, name: str) -> None:
    make, why = REFUSED[name]
    version = await parked(runtime, paying())

    with pytest.raises(DefinitionChanged) as refused:
        await runtime.recover([make()], session="s")
    assert why in "; ".join(refused.value.facts["reasons"])
    info = await runtime.sessions.info("s")
    assert (info.version, info.status) == (version, "queued")
    assert (await runtime.run(paying(), "Pay A-1.", session="s", submission="m1")).output == "Done.", "the old code still can"


@pytest.mark.parametrize("name", REFUSED)
async def test_a_check_before_the_deploy_says_the_same_and_touches_nothing(runtime: Runtime, name: str) -> None:
    make, why = REFUSED[name]
    version = await parked(runtime, paying())

    found = await runtime.check([make()])
    [refused] = found.refused
    assert (refused.session_id, refused.agent, refused.status) == ("s", "payer", "queued")
    assert why in "; ".join(refused.reasons)
    assert (await runtime.sessions.info("s")).version == version


async def test_a_changed_schema_that_the_open_call_still_fits_is_written_down_and_the_turn_goes_on(runtime: Runtime) -> None:
    await parked(runtime, paying())
    after = paying(tools=[changed_pay()])

    found = await runtime.check([after])
    assert found.refused == ()
    [changed] = found.changed
    result = await runtime.run(after, "Pay A-1.", session="s", submission="m1")

    assert result.output == "Done."
    [entry] = [entry for entry in await runtime.sessions.entries("s") if isinstance(entry, DefinitionChange)]
    assert entry.difference == changed.difference == ("the description of the tool 'pay' changed",)
    assert await find_problems(runtime.store, "s") == []


async def test_a_call_that_was_cut_off_is_not_begun_again_as_something_else(tmp_path: Path) -> None:
    entered = asyncio.Event()

    @tool(name="pay", effect="idempotent", key="order")
    async def hangs(order: str) -> str:
        """Pay for an order."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    url = str(tmp_path / "agents.db")
    async with perdure.open(url, grace=0.0) as runtime:
        running = asyncio.ensure_future(runtime.run(paying(tools=[hangs], approve=()), "Pay A-1.", session="s", submission="m1"))
        await entered.wait()
        running.cancel()
    async with perdure.open(url) as runtime:
        # Its attempt ended with its process; what is open again is a call that may begin.
        found = await runtime.check([paying(approve=())])
        assert found.refused == ()
        assert 'of the tool \'pay\', the effect changed from "idempotent" to "external"' in found.changed[0].difference


@pytest.mark.spec("S0-174", "S0-173")
async def test_a_request_that_can_not_be_built_again_is_another_one_and_loses_no_receipt(tmp_path: Path) -> None:
    """A model call died; the instructions changed meanwhile. The receipts before it stay, and the turn is not failed for it."""
    entered = asyncio.Event()
    paid: list[str] = []

    @tool(name="pay", effect="external", key="order")
    async def counted(order: str) -> str:
        """Pay for an order."""
        paid.append(order)
        return f"paid {order}"

    async def dies(request: ModelRequest) -> Reply:
        if request.answers == 0:
            return Reply(tool_calls=[ToolCall("pay", {"order": "A-1"})])
        entered.set()
        await asyncio.Event().wait()
        return Reply("")

    url = str(tmp_path / "agents.db")
    async with perdure.open(url, grace=0.0) as runtime:
        agent = Agent("payer", model=FunctionModel(dies), tools=[counted])
        running = asyncio.ensure_future(runtime.run(agent, "Pay A-1.", session="s", submission="m1"))
        await entered.wait()
        running.cancel()
    async with perdure.open(url) as runtime:
        changed = agent.replace(model=FunctionModel(lambda request: "Done."), instructions="Be kind.")
        result = await runtime.run(changed, "Pay A-1.", session="s", submission="m1")
        entries = await runtime.sessions.entries("s")
        assert (result.output, paid) == ("Done.", ["A-1"])
        ended = [entry for entry in entries if isinstance(entry, OperationEnded) and entry.operation == "t2.1.0"]
        assert [(entry.status, entry.failure.code) for entry in ended if entry.failure][-1] == ("cancelled", "request_changed")
        assert await find_problems(runtime.store, "s") == []


async def test_sessions_of_agents_that_the_new_code_doesn_t_have_are_refused_unless_they_are_others(runtime: Runtime) -> None:
    await parked(runtime, paying())
    other = Agent("clerk", model=ScriptedModel([]))
    assert [item.reasons for item in (await runtime.check([other])).refused] == [("there is no agent 'payer'",)]
    assert (await runtime.check([other], others=False)).refused == ()
    with pytest.raises(UsageError, match="two agents are named"):
        await runtime.check([other, other.replace(instructions="x")])


async def test_finished_sessions_are_of_no_interest(runtime: Runtime) -> None:
    await runtime.run(paying(approve=()), "Pay A-1.", session="s")
    found = await runtime.check([paying(tools=[], approve=())])
    assert (found.sessions, found.refused, found.changed) == (0, (), ())


async def test_external_tools_without_a_key_are_named(runtime: Runtime) -> None:
    @tool(effect="external")
    async def ring() -> str:
        """Ring the bell."""
        return "rung"

    found = await runtime.check([paying(tools=[changed_pay(cents=True), ring], approve=())])
    assert [(item.agent, item.tool) for item in found.keyless] == [("payer", "pay")], "a call without arguments is always the same"


@pytest.mark.spec("S0-158")
def test_callables_are_known_by_name_and_version_and_not_by_where_they_stand() -> None:
    def look(version: str, name: str | None = None) -> Any:
        @versioned(version, name=name)
        async def check(output: Any) -> None:
            return None

        return check

    one, same, two = (Agent("a", output_validators=[look(version, "house-rules")]) for version in ("1", "1", "2"))
    assert describe(one) == describe(same)
    assert describe(one)["output"]["validators"] == ["house-rules@1"]
    assert difference(describe(one), describe(two)) == ("the output validators changed",)

    class Guard(Middleware):
        name = "guard"

        async def stop(self, ctx: Any, answer: str) -> None:
            return None

    before = describe(Agent("a", middleware=[Guard()]))
    versioned("2")(Guard)
    assert difference(before, describe(Agent("a", middleware=[Guard()]))) == (
        "of the middleware 'guard', the version changed from nothing to \"2\"",
    )
    for wrong in ("", " ", "x" * 201, 5):
        with pytest.raises(UsageError):
            versioned(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"finish": "tool"}, 'the turn\'s ending changed from "answer" to "tool"'),
        ({"output_type": int}, "the output is of a type now"),
        ({"limits": perdure.Limits(steps=3)}, "the limit steps changed from 50 to 3"),
        ({"settings": ModelSettings(temperature=0.5)}, "the setting temperature changed from nothing to 0.5"),
    ],
)
def test_what_decides_about_a_turn_is_part_of_its_definition(change: dict[str, Any], sentence: str) -> None:
    assert sentence in difference(describe(Agent("a")), describe(Agent("a", **change)))


@pytest.mark.spec("S0-224")
def test_credentials_are_no_part_of_a_definition() -> None:
    def agent(key: str) -> Agent:
        return Agent("a", model=OpenAIResponses("gpt", api_key=key))

    assert describe(agent("sk-one")) == describe(agent("sk-two"))
    assert "sk-one" not in json.dumps(describe(agent("sk-one")))


@pytest.mark.spec("S0-159")
def test_another_directory_is_another_workspace(tmp_path: Path) -> None:
    """The tools look the same, and a turn that went on there would not be seen to have moved."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (describe(Agent("a", tools=workspace_tools(tmp_path / name, shell=False))) for name in ("one", "two"))
    assert f'of the tool \'read_file\', the directory changed from "{tmp_path / "one"}" to "{tmp_path / "two"}"' in difference(one, two)


async def test_a_call_from_outside_that_waits_is_checked_with_its_own_arguments(runtime: Runtime) -> None:
    await runtime.run(paying(model=ScriptedModel(["Hello."])), "Hello.", session="s")
    calling = asyncio.ensure_future(runtime.sessions.call_tool("s", paying(), "pay", {"order": "A-1"}))
    while not await runtime.sessions.requests("s"):
        await asyncio.sleep(0)
    same = await runtime.check([paying(instructions="Be kind.")])
    other = await runtime.check([paying(tools=[changed_pay(cents=True)])])
    assert same.refused == ()
    assert "cents" in other.refused[0].reasons[0]
    calling.cancel()
