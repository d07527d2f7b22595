"""Whatever comes in: a typed error, or an error result that the model can read, and nothing durable lost."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    ApprovalCall,
    Deny,
    FunctionModel,
    HookContext,
    Middleware,
    ModelRequest,
    Reply,
    Runtime,
    ScriptedModel,
    Text,
    Tool,
    ToolCall,
    ToolError,
    TurnEnded,
    tool,
)
from perdure.core.entries import OperationEnded, OperationStarted
from perdure.core.evolve import fold
from perdure.runtime import tokens
from perdure.store.base import SessionQuery
from perdure.testing.clock import VirtualClock


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    clock = VirtualClock(auto=True)
    async with perdure.open("memory://", clock=clock) as opened:
        yield opened


def plain(text: str = "hi") -> Agent:
    return Agent("a", model=ScriptedModel([text]))


async def sound(runtime: Runtime, session: str) -> None:
    """The journal still adds up to the checkpoint."""
    assert fold(await runtime.sessions.entries(session)) == await runtime.sessions.checkpoint(session)


async def watched(runtime: Runtime) -> None:
    async for _ in runtime.stream(plain(), "hello"):
        pass


async def opened(runtime: Runtime) -> None:
    async with runtime.session("s", plain()):
        pass


DOORS: dict[str, Callable[[Runtime], Awaitable[Any]]] = {
    "run": lambda runtime: runtime.run(plain(), "hello"),
    "resume": lambda runtime: runtime.resume(plain(), "s"),
    "stream": watched,
    "session": opened,
    "recover": lambda runtime: runtime.recover([plain()]),
    "check": lambda runtime: runtime.check([plain()]),
    "usage": lambda runtime: runtime.usage(),
    "due": lambda runtime: runtime.due(["a"], {}),
    "send": lambda runtime: runtime.sessions.send("s", "hello"),
    "info": lambda runtime: runtime.sessions.info("s"),
    "list": lambda runtime: runtime.sessions.list(),
    "entries": lambda runtime: runtime.sessions.entries("s"),
    "history": lambda runtime: runtime.sessions.history("s"),
    "interrupt": lambda runtime: runtime.sessions.interrupt("s"),
    "approve": lambda runtime: runtime.sessions.approve("s", "0123456789abcdef"),
    "fork": lambda runtime: runtime.sessions.fork("s"),
    "delete": lambda runtime: runtime.sessions.delete("s"),
    "an owner's": lambda runtime: runtime.sessions.owned_by("acme").list(),
    "pools.get": lambda runtime: runtime.pools.get("acme"),
    "pools.set": lambda runtime: runtime.pools.set("acme", perdure.Limits(steps=1)),
    "pools.list": lambda runtime: runtime.pools.list(),
    "consume": lambda runtime: runtime.consume("c", lambda entries: None, follow=False),
}


@pytest.mark.parametrize("door", [*DOORS, "close"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_another_event_loop_is_refused_at_every_door_and_nothing_is_begun(tmp_path: Path, kind: str, door: str) -> None:
    async with perdure.open("memory://" if kind == "memory" else tmp_path / "a.db") as runtime:

        def elsewhere() -> None:
            with pytest.raises(perdure.UsageError, match="another event loop"):
                asyncio.run(DOORS[door](runtime) if door in DOORS else runtime.close())

        await asyncio.to_thread(elsewhere)
        assert await runtime.store.sessions(SessionQuery()) == []
        assert runtime.working == 0


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_closed_runtime_says_so_at_every_door_and_how_to_open_it(tmp_path: Path, kind: str, door: str) -> None:
    runtime = perdure.open("memory://" if kind == "memory" else tmp_path / "a.db")
    with pytest.raises(perdure.RuntimeClosed, match="async with"):
        await DOORS[door](runtime)
    async with runtime:
        pass
    with pytest.raises(perdure.RuntimeClosed, match="async with"):
        await DOORS[door](runtime)


@pytest.mark.parametrize("content", ["", "  \n", Text("")])
async def test_an_empty_message_is_refused_and_no_session_appears(runtime: Runtime, content: Any) -> None:
    with pytest.raises(perdure.InvalidMessage, match="empty"):
        await runtime.run(plain(), content, session="s")
    with pytest.raises(perdure.SessionNotFound):
        await runtime.sessions.info("s")


async def test_an_oversized_message_is_refused_and_a_large_one_is_kept_whole(runtime: Runtime) -> None:
    with pytest.raises(perdure.InvalidMessage, match="1048576"):
        await runtime.run(plain(), "x" * (1024 * 1024 + 1), session="s")
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request)
        return "read"

    large = "y" * (1024 * 1024)
    await runtime.run(Agent("a", model=FunctionModel(answer)), large, session="t")
    assert asked[0].messages[0].text == large
    assert (await runtime.sessions.history("t"))[0].text == large


@pytest.mark.spec("S0-152")
@pytest.mark.parametrize("session", ["", "x" * 513, "a\nb", 7])
async def test_an_unusable_session_id_is_refused(runtime: Runtime, session: Any) -> None:
    with pytest.raises(perdure.UsageError):
        await runtime.sessions.send(session, "hello")


@pytest.mark.parametrize("submission", ["", "x" * 513, "a\nb", 7, b"x"])
async def test_a_result_of_what_can_be_no_submission_is_refused_instead_of_being_unfinished(runtime: Runtime, submission: Any) -> None:
    await runtime.run(Agent("a", model=ScriptedModel(["hello"])), "hi", session="s", submission="m")
    with pytest.raises(perdure.UsageError, match="submission"):
        await runtime.sessions.result("s", submission)


@pytest.mark.parametrize("owner", ["a\0b", "a\nb", "a\u202eb", "\x1b[31m"])
async def test_an_owner_that_would_not_read_as_it_is_is_refused_at_every_door(runtime: Runtime, owner: str) -> None:
    for field in ("owner", "user"):
        with pytest.raises(perdure.UsageError, match="printable"):
            await runtime.sessions.send("s", "hi", identity=perdure.Identity(**{"owner": "acme", field: owner}))
    with pytest.raises(perdure.UsageError, match="printable"):
        await runtime.pools.get(owner)


async def test_an_unknown_route_is_named_shortly_however_long_its_name_is(runtime: Runtime) -> None:
    router = perdure.Router({"a": ScriptedModel(["hello"])})
    with pytest.raises(perdure.UnknownRoute) as refused:
        router.model("x" * 1_000_000)
    assert len(str(refused.value)) < 500


@pytest.mark.spec("S0-150")
async def test_an_unknown_session_is_named_in_the_error(runtime: Runtime) -> None:
    for ask in (runtime.sessions.history, runtime.sessions.info, runtime.sessions.interrupt, runtime.sessions.requests):
        with pytest.raises(perdure.SessionNotFound, match="nowhere"):
            await ask("nowhere")


@pytest.mark.parametrize("url", ["agents.db", "sqlite:///agents.db"])
def test_where_files_have_no_locks_a_store_in_one_is_refused_with_what_else_there_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(perdure.UsageError, match="Windows") as caught:
        perdure.open(url)
    assert "WSL" in (caught.value.hint or "")
    perdure.open("memory://")


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "postgresql://h/d?listen=perhaps", "postgresql://h/d?schema=", "sqlite://", "sqlite://host/x.db"]
)
def test_a_wrong_address_is_refused_with_what_would_be_right(url: str) -> None:
    with pytest.raises(perdure.InvalidURL) as caught:
        perdure.open(url)
    assert caught.value.hint


@pytest.mark.spec("S0-079")
@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("lease", value) for value in (0, -1, 1e-9, 0.01, 1e17, math.nan, math.inf, "10", True, None)),
        *(("grace", value) for value in (-1, math.nan, "5", None)),
        *(("capacity", value) for value in (0, -1, 1.5, math.nan, "3", True)),
    ],
)
def test_a_lease_that_is_over_at_once_and_other_numbers_that_are_none_are_refused(option: str, value: Any) -> None:
    with pytest.raises(perdure.UsageError, match=f"{option}=") as caught:
        perdure.open("memory://", **{option: value})
    assert caught.value.hint


@pytest.mark.parametrize("options", [{"lease": 0.03}, {"lease": 86_400}, {"grace": 0}, {"grace": math.inf}, {"capacity": 1}])
def test_every_lease_that_can_be_renewed_in_time_and_a_close_without_end_are_taken(options: dict[str, Any]) -> None:
    perdure.open("memory://", **options)


@pytest.mark.spec("B-B-020")
async def test_an_agent_without_a_model_is_refused_before_anything_is_sent(runtime: Runtime) -> None:
    with pytest.raises(perdure.InvalidAgent, match="no model"):
        await runtime.run(Agent("a"), "hello", session="s")
    with pytest.raises(perdure.SessionNotFound):
        await runtime.sessions.info("s")


async def test_a_missing_extra_is_told_before_anything_is_sent_with_the_command_that_installs_it(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(perdure.MissingExtra, match=r"pip install '\.\[openai\]' in a clone"):
        await runtime.run(Agent("a", model="openai:gpt-5.6-sol"), "hello", session="s")
    with pytest.raises(perdure.SessionNotFound):
        await runtime.sessions.info("s")


async def test_a_missing_key_is_told_before_anything_is_sent_with_the_name_of_its_variable(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    with pytest.raises(perdure.MissingKey, match="ANTHROPIC_API_KEY"):
        await runtime.run(Agent("a", model="anthropic:claude-x"), "hello", session="s")
    with pytest.raises(perdure.SessionNotFound):
        await runtime.sessions.info("s")


# ------------------------------------------------------------------------------------------------------------------ tools


@tool(effect="pure")
async def gives_nan() -> Any:
    """Return what JSON can't hold."""
    return {"value": math.nan}


@tool(effect="pure")
async def gives_object() -> Any:
    """Return an object of no known shape."""
    return object()


@tool(effect="pure")
async def raises() -> str:
    """Fail."""
    raise ValueError("no luck")


@tool
async def raises_outside() -> str:
    """Fail, perhaps after its effect."""
    raise ValueError("no luck")


@tool
async def says_no() -> str:
    """Say that nothing happened."""
    raise ToolError("the order is closed")


@tool(effect="pure")
def leaves() -> str:
    """End the process, or so it thinks."""
    sys.exit(3)


@tool(effect="pure", timeout=5)
async def hangs() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


@tool(timeout=5)
async def hangs_outside() -> str:
    """Never end, perhaps after its effect."""
    await asyncio.Event().wait()
    return ""


@tool(effect="pure")
async def cancels_itself() -> str:
    """Stop whatever runs here."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return ""


@pytest.mark.parametrize(
    ("used", "words", "status"),
    [
        (gives_nan, "can't be kept", "succeeded"),
        (gives_object, "can't be kept", "succeeded"),
        (raises, "no luck", "failed"),
        (raises_outside, "ValueError: no luck; result unknown", "uncertain"),
        (says_no, "the order is closed", "failed"),
        (leaves, "SystemExit", "failed"),
        (hangs, "no result within 5", "cancelled"),
        (cancels_itself, "it cancelled itself", "cancelled"),
        (hangs_outside, "execution interrupted; result unknown", "uncertain"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_a_tool_that_misbehaves_becomes_an_error_that_the_model_reads(runtime: Runtime, used: Tool, words: str, status: str) -> None:
    model = ScriptedModel([Reply(tool_calls=[ToolCall(used.name, {})]), Reply("noted")])
    result = await runtime.run(Agent("a", model=model, tools=[used]), "go", session="s")
    assert result.output == "noted"
    response: Any = (await runtime.sessions.history("s"))[2].parts[0]
    assert response.is_error
    assert words in response.response
    ended: Any = (await runtime.sessions.entries("s", kinds=["operation_ended"]))[1]
    assert ended.status == status
    await sound(runtime, "s")


@pytest.mark.spec("S0-141", "S0-304")
@pytest.mark.parametrize("asks", ["nobody", "a person", "a function"])
async def test_arguments_that_do_not_fit_start_nothing_and_tell_the_model_each_fault(runtime: Runtime, asks: str) -> None:
    ran: list[Any] = []

    def judge(call: ApprovalCall) -> str:
        ran.append(call.name)
        return "ask"

    approve: Any = {"nobody": [], "a person": ["pay"], "a function": judge}[asks]

    @tool
    async def pay(order: str, cents: int) -> str:
        """Pay."""
        ran.append(order)
        return "paid"

    calls = [ToolCall("pay", {"order": 1, "cents": "x", "extra": True}), ToolCall("pay", '{"order": "A-1", "cen'), ToolCall("nope", {})]
    model = ScriptedModel([Reply(tool_calls=calls), Reply("sorry")])
    # Nobody is asked about a call that could not be made, and neither is the agent's own code.
    result = await asyncio.wait_for(runtime.run(Agent("a", model=model, tools=[pay], approve=approve), "go", session="s"), 20)
    assert result.output == "sorry"
    responses: Any = (await runtime.sessions.history("s"))[2].parts
    assert all(response.is_error for response in responses)
    assert all(word in responses[0].response for word in ("cents", "extra"))
    assert "there is no tool 'nope'" in responses[2].response
    assert not ran
    assert await begun(runtime) == []
    await sound(runtime, "s")


@pytest.mark.spec("S0-141")
@pytest.mark.parametrize("refuses", ["policy", "hook"])
async def test_what_a_policy_or_a_hook_refuses_is_never_started(runtime: Runtime, refuses: str) -> None:
    class Guard(Middleware):
        name = "guard"

        def before_tool(self, ctx: HookContext, call: Any) -> Deny | None:
            return Deny("not now") if refuses == "hook" else None

    ran: list[Any] = []

    @tool(effect="external")
    async def pay(cents: int) -> str:
        ran.append(cents)
        return "paid"

    async def policy(call: Any) -> str:
        return "deny" if refuses == "policy" else "allow"

    model = ScriptedModel([Reply(tool_calls=[ToolCall("pay", {"cents": 5})]), Reply("sorry")])
    agent = Agent("a", model=model, tools=[pay], approve=policy, middleware=[Guard()])
    assert (await runtime.run(agent, "go", session="s")).output == "sorry"
    assert not ran
    assert await begun(runtime) == []
    [ended] = [entry for entry in await runtime.sessions.entries("s", kinds=["operation_ended"]) if entry.operation == "t2.0.1"]
    assert isinstance(ended, OperationEnded)
    assert (ended.attempt, ended.final) == (0, True)
    await sound(runtime, "s")


async def begun(runtime: Runtime) -> list[str]:
    """The calls of tools that the journal has as started."""
    started = await runtime.sessions.entries("s", kinds=["operation_started"])
    return [entry.operation for entry in started if isinstance(entry, OperationStarted) and entry.request is None]


# ----------------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("reply", "code", "calls"),
    [
        (Reply(""), "invalid_model_output", 5),
        (Reply(tool_calls=[ToolCall("raises", {}, "same"), ToolCall("raises", {}, "same")]), "invalid_model_output", 5),
        (Reply(tool_calls=[ToolCall("raises", {}, f"c{n}") for n in range(129)]), "limit_exceeded", 1),
        (Reply(tool_calls=[ToolCall("raises", {"x": "y" * 1024 * 1024}, f"c{n}") for n in range(128)]), "limit_exceeded", 1),
        (perdure.RateLimited("slow down"), "rate_limited", 15),
        (perdure.AuthenticationFailed("no"), "authentication_failed", 1),
        (RuntimeError("a bug"), "model_error", 1),
    ],
    ids=["nothing", "same-ids", "129-calls", "128-mib", "rate-limit", "bad-key", "bug"],
)
async def test_a_model_that_misbehaves_fails_the_turn_with_a_code_and_the_session_stays_usable(
    runtime: Runtime, reply: Any, code: str, calls: int
) -> None:
    tries = 0

    def answer(request: ModelRequest) -> Any:
        nonlocal tries
        if request.messages[-1].text == "again":
            return "fine"
        tries += 1
        if isinstance(reply, Exception):
            raise reply
        return reply

    agent = Agent("a", model=FunctionModel(answer), tools=[raises])
    result = await runtime.run(agent, "go", session="s")
    assert (result.status, result.failure.code if result.failure else "") == ("failed", code)
    assert tries == calls
    await sound(runtime, "s")
    assert (await runtime.run(agent, "again", session="s")).output == "fine"


async def test_128_calls_at_once_run_and_fit_the_checkpoint(runtime: Runtime) -> None:
    @tool(key=("number",))
    async def a_tool_with_quite_a_long_name(number: int) -> int:
        """Count."""
        return number

    calls = [ToolCall("a_tool_with_quite_a_long_name", {"number": n}, f"call_{n:030d}") for n in range(128)]
    model = ScriptedModel([Reply(tool_calls=calls), Reply("done")])
    result = await runtime.run(Agent("a", model=model, tools=[a_tool_with_quite_a_long_name], approve=[]), "go", session="s")
    assert (result.output, result.tool_calls) == ("done", 128)
    assert [part.response for part in (await runtime.sessions.history("s"))[2].parts] == [*range(128)]  # type: ignore[union-attr]


async def test_large_arguments_and_results_are_kept_whole_outside_the_journal(runtime: Runtime) -> None:
    @tool(effect="pure")
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    large = "z" * 900_000
    seen: list[Any] = []

    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return Reply(tool_calls=[ToolCall("echo", {"text": large})]) if request.step == 0 else Reply("ok")

    await runtime.run(Agent("a", model=FunctionModel(answer), tools=[echo], archive=None), "go", session="s")
    assert seen[1].messages[1].tool_calls[0].arguments == {"text": large}
    assert seen[1].messages[2].parts[0].response == large
    rows = await runtime.store.entries(1)
    assert max(len(row.body or b"") for row in rows) < 40_000
    await sound(runtime, "s")


# ----------------------------------------------------------------------------------------------------------------- limits


async def test_capacity_refuses_one_more_session_and_frees_its_slot_when_work_stops(runtime: Runtime) -> None:
    gate = asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        await gate.wait()
        return "done"

    agent = Agent("a", model=FunctionModel(answer))
    async with Runtime(runtime.store, capacity=1) as small:
        first = asyncio.create_task(small.run(agent, "one", session="1"))
        while not small.work.drivers:
            await asyncio.sleep(0)
        with pytest.raises(perdure.CapacityExceeded):
            await small.run(agent, "two", session="2")
        with pytest.raises(perdure.SessionNotFound):
            await small.sessions.info("2")
        gate.set()
        await first
        assert (await small.run(agent, "two", session="2")).output == "done"


async def test_an_unusable_answer_is_refused_and_the_request_stays_open(runtime: Runtime) -> None:
    model = ScriptedModel([Reply(tool_calls=[ToolCall("says_no", {})]), Reply("ok")])
    agent = Agent("a", model=model, tools=[says_no], approve=["says_no"])
    async with runtime.session("s", agent) as session:
        await session.send("go")
        async for event in session.events():
            if isinstance(event, perdure.ApprovalRequested):
                break
        with pytest.raises(perdure.StaleRequest):
            await session.approve("0123456789abcdef")
        with pytest.raises(perdure.NotCanonical):
            await session.approve(event.request_id, {"x": math.inf})
        with pytest.raises(perdure.UsageError):
            await session.answer(event.request_id, "maybe")  # type: ignore[arg-type]
        assert [request.request_id for request in await session.requests()] == [event.request_id]
        await session.approve(event.request_id)
        with pytest.raises(perdure.StaleRequest):
            await session.deny(event.request_id)
        async for event in session.events(after=0):
            if isinstance(event, TurnEnded):
                break


async def test_edited_arguments_are_checked_where_the_agent_is_known_and_the_request_stays_open(runtime: Runtime) -> None:
    ran: list[int] = []

    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    model = ScriptedModel([Reply(tool_calls=[ToolCall("pay", {"cents": 5})]), Reply("ok")])
    async with runtime.session("s", Agent("a", model=model, tools=[pay], approve=["pay"])) as session:
        await session.send("go")
        async for event in session.events():
            if isinstance(event, perdure.ApprovalRequested):
                for wrong in ({"dollars": 5}, {"cents": "many"}, {}):
                    with pytest.raises(perdure.UsageError, match="arguments of pay"):
                        await session.approve(event.request_id, wrong)
                    with pytest.raises(perdure.UsageError, match="arguments of pay"):
                        await session.answer(event.request_id, "approve", arguments=wrong)
                with pytest.raises(perdure.UsageError, match="object"):
                    await runtime.sessions.approve("s", event.request_id, ["cents"])  # type: ignore[arg-type]
                assert [request.request_id for request in await session.requests()] == [event.request_id]
                await session.approve(event.request_id, {"cents": 4})
            if isinstance(event, TurnEnded):
                break
    assert ran == [4]


async def test_edited_arguments_that_do_not_fit_are_an_error_for_the_model_and_nothing_runs(runtime: Runtime) -> None:
    ran: list[int] = []

    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    model = ScriptedModel([Reply(tool_calls=[ToolCall("pay", {"cents": 5})]), Reply("ok")])
    async with runtime.session("s", Agent("a", model=model, tools=[pay], approve=["pay"])) as session:
        await session.send("go")
        async for event in session.events():
            if isinstance(event, perdure.ApprovalRequested):
                await runtime.sessions.approve("s", event.request_id, {"dollars": 5})
            if isinstance(event, TurnEnded):
                break
    assert not ran
    response: Any = (await runtime.sessions.history("s"))[2].parts[0]
    assert response.is_error
    assert "dollars" in response.response


@pytest.mark.spec("E-002")
async def test_a_callback_token_that_is_forged_or_another_stores_is_refused_and_nothing_is_stored(runtime: Runtime) -> None:
    await runtime.sessions.send("s", "hello", agent="a")
    before = await runtime.store.load("s")
    async with perdure.open("memory://") as elsewhere:
        foreign = tokens.issue(elsewhere.store.secret, "s", "t2.0.1", 1)
        for token in ("", "x", "a.b", "WyJzIiwidDEiLDFd.0000", foreign):
            with pytest.raises(perdure.UsageError, match="token"):
                await runtime.sessions.report(token, "paid")
        await elsewhere.sessions.send("s", "hello", agent="a")
        # To its own store it is good, though nothing of the kind was begun there.
        with pytest.raises(perdure.StaleRequest):
            await elsewhere.sessions.report(foreign, "paid")
    head = await runtime.store.load("s")
    assert before is not None
    assert head is not None
    assert head.row == before.row


async def test_a_full_queue_is_refused_and_nothing_is_lost(runtime: Runtime) -> None:
    for number in range(1024):
        await runtime.sessions.send("s", f"message {number}")
    with pytest.raises(perdure.QueueFull):
        await runtime.sessions.send("s", "one more")
    head = await runtime.store.load("s")
    assert head is not None
    assert len(await runtime.store.inbox(head.row.no)) == 1024


async def test_ten_thousand_messages_for_a_session_at_work_cost_it_a_queue_and_nothing_more(runtime: Runtime) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        thinking.set()
        await go_on.wait()
        return "done"

    agent = Agent("a", model=FunctionModel(answer))
    async with runtime.session("s", agent) as session:
        await session.send("the first", submission="m1")
        await thinking.wait()
        head = await runtime.store.load("s")
        assert head is not None
        version, checkpoint = head.row.version, head.row.checkpoint
        refused = 0
        for number in range(10_000):
            try:
                await runtime.sessions.send("s", f"message {number}", submission=f"n{number}")
            except perdure.QueueFull:
                refused += 1
        assert refused == 10_000 - 1024
        assert len(await runtime.store.inbox(head.row.no)) == 1024
        # What was refused is nowhere, and what was taken is in the inbox alone: nothing that is read at each step grew.
        assert await runtime.store.submission(head.row.no, "n9999") is None
        head = await runtime.store.load("s")
        assert head is not None
        assert (head.row.version, head.row.checkpoint) == (version, checkpoint)
        # A person still comes through, and the turn ends.
        await session.interrupt(reason="enough", submission="stop")
        while (result := await runtime.sessions.result("s", "m1")) is None:
            await asyncio.sleep(0.001)
        assert (result.status, result.reason) == ("aborted", "enough")
        # There is room again for as many as are taken up, in the order in which they came.
        go_on.set()
        while (await runtime.sessions.result("s", "n2")) is None:
            await asyncio.sleep(0.001)
        assert (await runtime.sessions.send("s", "one more")).arrival > 1024
        await runtime.sessions.archive("s")
    said = [message.text for message in await runtime.sessions.history("s") if message.role == "user"]
    assert said[:4] == ["the first", "message 0", "message 1", "message 2"]
    await sound(runtime, "s")


async def test_a_definition_that_lost_an_open_call_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    model = ScriptedModel([Reply(tool_calls=[ToolCall("says_no", {})]), Reply("ok")])
    agent = Agent("a", model=model, tools=[says_no], approve=["says_no"])
    async with perdure.open(str(tmp_path / "a.db")) as runtime:
        async with runtime.session("s", agent) as session:
            await session.send("go")
            async for event in session.events():
                if isinstance(event, perdure.ApprovalRequested):
                    break
        before = await runtime.sessions.entries("s")
        changed = agent.replace(tools=[raises], approve=[])
        await runtime.sessions.approve("s", event.request_id)
        with pytest.raises(perdure.DefinitionChanged) as caught:
            await runtime.recover([changed], session="s")
        assert "says_no" in str(caught.value)
        assert len(await runtime.sessions.entries("s")) == len(before) + 1
        assert await runtime.recover([agent], session="s") == ["s"]
        assert (await runtime.sessions.info("s")).status == "idle"


async def listen(handle: perdure.Session, heard: list[Any]) -> None:
    async for event in handle.events():
        heard.append(event)
        if isinstance(event, perdure.NoteAdded):
            return


class Deaf:
    """A model that doesn't let go when it is cancelled."""

    name = group = "deaf"

    def __init__(self) -> None:
        self.asked, self.free, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.asked.set()
        while not self.free.is_set():
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                continue
        try:
            yield perdure.TextDelta(text="too late")
            yield perdure.ModelOutput(parts=(Text("too late"),))
        finally:
            self.done.set()


@pytest.mark.spec("S2-083")
async def test_a_model_that_does_not_let_go_is_left_behind_and_the_session_goes_on(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.work.LETTING_GO_SECONDS", 0.01)
    deaf = Deaf()
    try:
        turn = asyncio.create_task(runtime.run(Agent("a", model=deaf), "go", session="s", submission="m"))
        await deaf.asked.wait()
        await runtime.sessions.interrupt("s")
        assert (await asyncio.wait_for(turn, 5)).status == "aborted"
        assert (await asyncio.wait_for(runtime.run(plain(), "again", session="s"), 5)).output == "hi"
        await sound(runtime, "s")
        # What it says then is heard by nobody, and counts for nothing.
        before = await runtime.sessions.entries("s")
        async with runtime.session("s") as handle:
            heard: list[Any] = []
            listening = asyncio.create_task(listen(handle, heard))
            deaf.free.set()
            await asyncio.wait_for(deaf.done.wait(), 5)
            await asyncio.sleep(0)
            await runtime.sessions.note("s", "the end")
            await asyncio.wait_for(listening, 5)
        assert "too late" not in repr(heard)
        assert [entry.kind for entry in (await runtime.sessions.entries("s"))[len(before) :]] == ["note_added"]
    finally:
        deaf.free.set()
