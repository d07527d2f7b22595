"""Answers that have to be of a type: read, checked by the host, corrected under receipts of their own, and kept whatever they are."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

import perdure
from perdure import (
    Agent,
    DefinitionChanged,
    FunctionModel,
    InvalidAgent,
    Limits,
    ModelRequest,
    OperationEnded,
    OperationStarted,
    OutputContext,
    OutputInvalid,
    Reply,
    Router,
    Runtime,
    ScriptedModel,
    ToolCall,
    Usage,
    tool,
)
from perdure.core.errors import ProviderRefused, ProviderUnavailable
from perdure.core.records import MODEL_KINDS
from perdure.testing import VirtualClock
from perdure.testing.checks import find_problems

SPENT = Usage(input_tokens=10, output_tokens=5)


class Price(BaseModel):
    """A price."""

    cents: int = Field(ge=0)
    currency: str = "EUR"


@dataclass
class Point:
    x: int
    y: int


class Named(TypedDict):
    name: str


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with perdure.open(str(tmp_path / "agents.db")) as opened:
        yield opened


def says(text: str, **facts: Any) -> Reply:
    return Reply(text, usage=SPENT, **facts)


async def verified(runtime: Runtime, session: str) -> None:
    assert await find_problems(runtime.store, session) == []


@pytest.mark.parametrize(
    ("wanted", "text", "output"),
    [
        (Price, '{"cents": 5}', Price(cents=5)),
        (Price, '```json\n{"cents": 5, "currency": "CHF"}\n```', Price(cents=5, currency="CHF")),
        (Point, '{"x": "1", "y": 2}', Point(1, 2)),
        (Named, '{"name": "ann"}', {"name": "ann"}),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (int | None, '{"value": null}', None),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (str, "as it is", "as it is"),
    ],
)
async def test_an_answer_is_read_as_its_type_now_and_when_it_is_looked_up(runtime: Runtime, wanted: Any, text: str, output: Any) -> None:
    agent = Agent("a", model=ScriptedModel([text]), output_type=wanted)

    live = await runtime.run(agent, "?", session="s", submission="m1")
    again = await runtime.run(agent.replace(model=ScriptedModel([])), "?", session="s", submission="m1")
    found = await runtime.sessions.result("s", "m1", agent=agent)

    assert live.output == again.output == output
    assert type(live.output) is type(again.output) is type(output)
    assert found is not None
    assert found.output == output
    assert live.text == text
    await verified(runtime, "s")


@pytest.mark.spec("S0-307")
async def test_one_correction_without_tools_and_then_the_turn_fails_and_keeps_its_answer(runtime: Runtime) -> None:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        asked.append(request)
        return says("still about six" if request.purpose == "repair" else "about five")

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "nothing"

    agent = Agent("a", model=FunctionModel(answer), tools=[look], output_type=Price)
    result = await runtime.run(agent, "?", session="s", submission="m1")

    assert [(request.purpose, bool(request.tools)) for request in asked] == [("answer", True), ("repair", False)]
    assert [message.role for message in asked[1].messages] == ["user", "assistant", "user"]
    assert "it is no JSON" in asked[1].messages[-1].text
    assert "about five" not in asked[1].messages[-1].text
    assert (result.status, result.output, result.text) == ("failed", None, "still about six")
    assert result.failure is not None
    assert result.failure.code == "output_invalid"
    assert (result.usage.calls, result.usage.input_tokens) == (2, 20)
    history = await runtime.sessions.history("s")
    assert [(message.role, message.text) for message in history] == [("user", "?"), ("assistant", "still about six")]
    await verified(runtime, "s")


async def test_nothing_is_checked_where_nothing_was_declared(runtime: Runtime) -> None:
    result = await runtime.run(Agent("a", model=ScriptedModel(["{broken"])), "?", session="s")
    assert (result.output, result.ok) == ("{broken", True)
    assert [entry.kind for entry in await runtime.sessions.entries("s")][-3:] == ["operation_ended", "message", "turn_completed"]


async def test_what_is_wrong_is_told_field_by_field_and_never_with_its_values(runtime: Runtime) -> None:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        asked.append(request)
        return says('{"cents": 5}' if request.purpose == "repair" else '{"cents": "top-secret"}')

    assert (await runtime.run(Agent("a", model=FunctionModel(answer), output_type=Price), "?")).output == Price(cents=5)
    assert "cents: Input should be a valid integer" in asked[1].messages[-1].text
    assert "top-secret" not in asked[1].messages[-1].text


async def test_validators_of_the_host_are_asked_in_order_with_the_output_and_whose_it_is(runtime: Runtime) -> None:
    seen: list[Any] = []

    async def positive(output: Price) -> None:
        seen.append(("positive", output.cents))
        if output.cents <= 0:
            raise ValueError("free things are not sold")

    def even(ctx: OutputContext, output: Price) -> str | None:
        seen.append((ctx.agent, ctx.session_id, ctx.turn, ctx.identity.owner, output.cents))
        return "the cents must be even" if output.cents % 2 else None

    model = ScriptedModel([says('{"cents": 0}')], repairs=[says('{"cents": 3}'), says('{"cents": 4}')])
    agent = Agent("a", model=model, output_type=Price, output_validators=[positive, even], repairs=2)
    result = await runtime.run(agent, "?", session="s", submission="m1", identity=perdure.Identity(owner="acme"))

    assert result.output == Price(cents=4)
    assert seen == [("positive", 0), ("positive", 3), ("a", "s", "t2", "acme", 3), ("positive", 4), ("a", "s", "t2", "acme", 4)]


@pytest.mark.spec("S0-178", "S0-179")
async def test_a_stored_output_is_read_again_and_nothing_else_is_asked(runtime: Runtime) -> None:
    def never(output: Any) -> None:
        raise AssertionError("a finished turn asks nobody")

    first = Agent("a", model=ScriptedModel(['{"cents": 5}']), output_type=Price)
    await runtime.run(first, "?", session="s", submission="m1")
    version = (await runtime.sessions.info("s")).version

    same = first.replace(model=ScriptedModel([]), output_validators=[never])
    assert (await runtime.run(same, "?", session="s", submission="m1")).output == Price(cents=5)
    with pytest.raises(OutputInvalid) as refused:
        await runtime.run(first.replace(output_type=Point, model=ScriptedModel([])), "?", session="s", submission="m1")
    assert refused.value.facts["text"] == '{"cents": 5}'
    assert (await runtime.sessions.info("s")).version == version


@pytest.mark.parametrize(
    ("validator", "words"),
    [
        (lambda output: 1 / 0, "ZeroDivisionError"),
        (lambda output: True, "answered with bool"),
    ],
    ids=["raises", "answers"],
)
async def test_a_validator_that_comes_to_no_verdict_fails_the_turn_and_the_answer_is_kept(
    runtime: Runtime, validator: Any, words: str
) -> None:
    agent = Agent("a", model=ScriptedModel(["fine"]), output_validators=[validator])
    result = await runtime.run(agent, "?", session="s")

    assert (result.status, result.text) == ("failed", "fine")
    assert result.failure is not None
    assert result.failure.code == "output_invalid"
    assert words in result.failure.message
    assert result.usage.calls == 1


@pytest.mark.parametrize("kind", ["async", "deaf", "sync"])
async def test_a_validator_that_hangs_fails_the_turn_after_a_minute_and_the_answer_is_kept(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, released = VirtualClock(auto=True), threading.Event()

    async def hangs(output: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if kind == "deaf":
                await asyncio.Event().wait()
            raise

    if kind != "async":
        monkeypatch.setattr("perdure.runtime.output.LETTING_GO_SECONDS", 0.0)
    if kind == "sync":
        # Threads live in real time.
        monkeypatch.setattr("perdure.runtime.output.VALIDATOR_SECONDS", 0.01)
    validator: Any = (lambda output: released.wait() and None) if kind == "sync" else hangs
    agent = Agent("a", model=ScriptedModel(["fine"]), output_validators=[validator])
    began = clock.now()
    async with perdure.open("memory://", clock=clock) as runtime:
        result = await runtime.run(agent, "?", session="s")
    released.set()

    assert (result.status, result.text) == ("failed", "fine")
    assert result.failure is not None
    assert (result.failure.code, "no verdict within" in result.failure.message) == ("output_invalid", True)
    assert kind == "sync" or clock.now() - began == 60_000


async def test_a_refusal_is_not_corrected(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel([Reply("I won't.", finish="refusal")]), output_type=Price)
    result = await runtime.run(agent, "?", session="s")

    assert result.failure is not None
    assert result.failure.message == "the model refuses to answer: I won't."
    assert (result.text, result.usage.calls) == ("I won't.", 1)


async def test_every_correction_is_one_operation_of_the_ledger_with_its_receipt_and_its_request(runtime: Runtime) -> None:
    model = ScriptedModel([says("a")], repairs=[says("b"), says('{"cents": 1}', tool_calls=[ToolCall("look", {})])])
    await runtime.run(Agent("a", model=model, output_type=Price, repairs=2), "?", session="s")
    entries = await runtime.sessions.entries("s")

    started = [entry for entry in entries if isinstance(entry, OperationStarted)]
    ended = [entry for entry in entries if isinstance(entry, OperationEnded)]
    assert [(entry.operation, entry.plan.kind) for entry in started if entry.plan] == [
        ("t2.0.0", "model"),
        ("t2.0.1", "repair"),
        ("t2.0.2", "repair"),
    ]
    assert [entry.usage for entry in ended] == [SPENT] * 3
    assert [entry.request.candidate for entry in started if entry.request] == [0, ended[0].seq, ended[1].seq]
    assert len({entry.request.digest for entry in started if entry.request}) == 3
    assert not any(isinstance(part, ToolCall) for part in ended[2].parts), "it was offered no tools"
    assert {"model", "repair"} <= MODEL_KINDS
    await verified(runtime, "s")


async def test_a_correction_whose_provider_fails_is_tried_again_and_then_by_another_route(runtime: Runtime) -> None:
    purposes: list[tuple[str, str]] = []

    def first(request: ModelRequest) -> Reply:
        purposes.append(("first", request.purpose))
        if request.purpose == "repair":
            if len(purposes) == 2:
                raise ProviderUnavailable("busy", retry_after=0.0)
            raise ProviderRefused("no")
        return says("about five")

    def second(request: ModelRequest) -> Reply:
        purposes.append(("second", request.purpose))
        return says('{"cents": 5}')

    router = Router({"first": FunctionModel(first, name="first"), "second": FunctionModel(second, name="second")}, fallback=["second"])
    result = await runtime.run(Agent("a", model=router, output_type=Price), "?", session="s")

    assert purposes == [("first", "answer"), ("first", "repair"), ("first", "repair"), ("second", "repair")]
    assert result.output == Price(cents=5)
    await verified(runtime, "s")


async def test_what_was_found_wrong_is_what_a_correction_that_is_tried_again_is_told(tmp_path: Path) -> None:
    """A validator may find other words the second time; the request that failed is asked again, and the validator isn't."""
    asked: list[ModelRequest] = []
    found: list[int] = []

    def answer(request: ModelRequest) -> Reply:
        asked.append(request)
        if request.purpose == "repair" and len(asked) == 2:
            raise ProviderUnavailable("busy", retry_after=5.0)
        return says("fine" if request.purpose == "repair" else "bad")

    def picky(output: str) -> str | None:
        found.append(len(found))
        return f"complaint {len(found)}" if output == "bad" else None

    async with perdure.open(str(tmp_path / "agents.db"), clock=VirtualClock(auto=True)) as runtime:
        await runtime.run(Agent("a", model=FunctionModel(answer), output_validators=[picky]), "?", session="s")
        entries = await runtime.sessions.entries("s")
    assert [request.messages[-1].text for request in asked[1:]] == [asked[1].messages[-1].text] * 2
    assert len(found) == 2, "once for each answer"
    started = [entry for entry in entries if isinstance(entry, OperationStarted)]
    assert [(entry.operation, entry.attempt) for entry in started] == [("t2.0.0", 1), ("t2.0.1", 1), ("t2.0.1", 2)]


async def test_a_limit_is_one_for_corrections_too_and_the_answer_is_kept(runtime: Runtime) -> None:
    agent = Agent("a", model=ScriptedModel([says("about five")]), output_type=Price, limits=Limits(tokens=10))
    result = await runtime.run(agent, "?", session="s")
    assert (result.status, result.text, result.output) == ("limited", "about five", None)


@pytest.mark.spec("S0-204")
async def test_what_waits_for_its_validator_survives_the_process_and_is_not_asked_for_again(tmp_path: Path) -> None:
    url = str(tmp_path / "agents.db")
    entered = asyncio.Event()
    calls: list[str] = []

    def answer(request: ModelRequest) -> str:
        calls.append(request.purpose)
        return '{"cents": 5}'

    async def hangs(output: Price) -> None:
        entered.set()
        await asyncio.Event().wait()

    agent = Agent("a", model=FunctionModel(answer), output_type=Price, output_validators=[hangs])
    async with perdure.open(url, grace=0.0) as runtime:
        running = asyncio.ensure_future(runtime.run(agent, "?", session="s", submission="m1"))
        await entered.wait()
        assert [entry.kind for entry in await runtime.sessions.entries("s")][-1] == "operation_ended", "the receipt comes first"
        running.cancel()
    async with perdure.open(url) as runtime:
        same = agent.replace(output_validators=[lambda output: None], on_change="any")
        assert (await runtime.run(same, "?", session="s", submission="m1")).output == Price(cents=5)
        await verified(runtime, "s")
    assert calls == ["answer"]


@pytest.mark.spec("S0-298")
async def test_an_interrupted_correction_keeps_the_answer_that_was_to_be_corrected(runtime: Runtime) -> None:
    entered = asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        if request.purpose == "repair":
            entered.set()
            await asyncio.Event().wait()
        return "about five"

    seen: list[Price] = []
    agent = Agent("a", model=FunctionModel(answer), output_type=Price, output_validators=[seen.append])
    running = asyncio.ensure_future(runtime.run(agent, "?", session="s", submission="m1"))
    await entered.wait()
    await runtime.sessions.interrupt("s", reason="enough")
    result = await running
    assert (result.status, result.reason, result.text, seen) == ("aborted", "enough", "about five", [])
    await verified(runtime, "s")


@pytest.mark.parametrize(("before", "after"), [(None, int), (int, None), (int, str)])
async def test_what_a_turn_may_not_go_on_under_is_refused_before_a_deploy_as_it_is_then(runtime: Runtime, before: Any, after: Any) -> None:
    @tool(effect="external")
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([Reply(tool_calls=[ToolCall("pay", {})]), "5"])
    old = Agent("a", model=model, tools=[pay], approve=["pay"], output_type=before)
    await runtime.sessions.send("s", "?", submission="m1", agent="a")
    await runtime.recover([old])
    [request] = await runtime.sessions.requests("s")
    await runtime.sessions.approve("s", request.request_id)
    new = old.replace(output_type=after)
    [told] = (await runtime.check([new])).refused
    with pytest.raises(DefinitionChanged) as refused:
        await runtime.recover([new], session="s")
    assert told.reasons == refused.value.facts["reasons"] == ("the output type that the turn promised changed",)


async def test_another_output_type_is_no_definition_that_a_turn_can_go_on_under(runtime: Runtime) -> None:
    @tool(effect="external")
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent("a", model=ScriptedModel([Reply(tool_calls=[ToolCall("pay", {})]), '{"cents": 5}']), tools=[pay], approve=["pay"])
    promised = agent.replace(output_type=Price)
    running = asyncio.ensure_future(runtime.run(promised, "?", session="s", submission="m1"))
    async with runtime.session("s") as watcher:
        async for event in watcher.events(after=0):
            if isinstance(event, perdure.ApprovalRequested):
                break
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    [request] = await runtime.sessions.requests("s")
    await runtime.sessions.approve("s", request.request_id)
    version = (await runtime.sessions.info("s")).version

    with pytest.raises(DefinitionChanged) as refused:
        await runtime.recover([promised.replace(output_type=Point)], session="s")
    assert "the output type that the turn promised changed" in refused.value.facts["reasons"]
    assert "the output lost the field 'cents'" in refused.value.facts["difference"]
    assert (await runtime.sessions.info("s")).version == version


@pytest.mark.parametrize(
    "options",
    [
        {"output_type": object()},
        {"output_type": lambda: 1},
        {"output_validators": "even"},
        {"output_validators": [1]},
        {"output_validators": [lambda: None]},
        {"repairs": -1},
        {"repairs": True},
        {"repairs": 11},
        {"finish": "never"},
        {"answer_timeout": 0},
        {"on_silence": "panic"},
    ],
)
def test_an_agent_that_could_never_answer_is_not_declared(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidAgent):
        Agent("a", **options)


def test_an_agent_without_an_output_type_imports_no_pydantic() -> None:
    program = "import sys, perdure; perdure.Agent('a'); assert 'pydantic' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
