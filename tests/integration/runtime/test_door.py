"""What is refused at the door: nothing of a wrong type, size or time is ever durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import Base64Bytes, SecretBytes, SecretStr

import perdure
from perdure import Agent, FunctionModel, Identity, ModelRequest, Reply, Runtime, ScriptedModel, Text, ToolCall, ToolContext, Uri, tool
from perdure.core.messages import Blob
from perdure.store.base import StoredBlob
from perdure.store.memory import MemoryStore
from perdure.testing import FaultStore
from perdure.testing.clock import VirtualClock
from perdure.testing.faults import Call

from .test_verify import problems_in

LONE = "\ud800"
MANY = 16 * 1024 * 1024


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock(auto=True)


@pytest.fixture
async def runtime(clock: VirtualClock) -> AsyncIterator[Runtime]:
    async with perdure.open("memory://", clock=clock) as opened:
        yield opened
        assert await problems_in(opened.store) == []


def calling(name: str, *arguments: dict[str, Any], call: str = "") -> FunctionModel:
    """A model that calls a tool once for each of the arguments, one after the other."""

    def answer(request: ModelRequest) -> Reply:
        if request.step >= len(arguments):
            return Reply("done")
        return Reply(tool_calls=[ToolCall(name, arguments[request.step], **({"id": call} if call else {}))])

    return FunctionModel(answer)


@tool(effect="external")
async def pay(amount: int = 0) -> str:
    """Pay."""
    return f"paid {amount}"


async def asked(runtime: Runtime, agent: Agent) -> str:
    """Begin a turn, and go when its request is open."""
    async with runtime.session("s", agent) as session:
        await session.send("go", submission="m")
        async for event in session.events():
            if isinstance(event, perdure.ApprovalRequested):
                break
    while (await runtime.sessions.info("s")).holder is not None:
        await asyncio.sleep(0)
    return event.request_id


def asking(**options: Any) -> Agent:
    return Agent("a", model=calling("pay", {"amount": 5}), tools=[pay], approve=["pay"], **options)


async def stored(runtime: Runtime) -> Any:
    """All that a session has."""
    head = await runtime.store.load("s")
    return head and (head.row, await runtime.store.inbox(head.row.no), await runtime.store.blobs(head.row.root))


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (None, {}),
        (5, {}),
        (b"bytes", {}),
        ({"text": "x"}, {}),
        (Text(5), {}),  # type: ignore[arg-type]
        (Text(LONE), {}),
        ([Text("x"), Uri(uri=5)], {}),  # type: ignore[arg-type]
        (Uri(uri="u", mime_type=None), {}),  # type: ignore[arg-type]
        (Blob(mime_type="image/png", digest=5, size=1), {}),  # type: ignore[arg-type]
        ("x", {"author": None}),
        ("x", {"author": 7}),
        ("x", {"author": LONE}),
        ("x", {"author": "x" * 2000}),
        ("x", {"actor": None}),
        ("x", {"actor": 7}),
        ("x", {"actor": LONE}),
        ("x", {"agent": None}),
        ("x", {"title": 5}),
        ("x", {"title": LONE}),
        ("x", {"labels": {1: "a"}}),
        ("x", {"labels": {"a": 1}}),
        ("x", {"labels": {"a": LONE}}),
        ("x", {"labels": {LONE: "a"}}),
        ("x", {"labels": ["a"]}),
        ("x", {"labels": {f"{n}": "x" * 900 for n in range(10)}}),
        ("x", {"identity": "me"}),
        ("x", {"identity": Identity(owner=5)}),  # type: ignore[arg-type]
        ("x", {"identity": Identity(tenant=None)}),  # type: ignore[arg-type]
        ("x", {"identity": Identity(owner=LONE)}),
        ("x", {"identity": Identity(owner="x" * 9000)}),
        ("x", {"not_before": "tomorrow"}),
        ("x", {"not_before": 1.5}),
        ("x", {"not_before": True}),
        ("x", {"not_before": -1}),
        ("x", {"not_before": 2**53}),
        ("x", {"deliver": 5}),
        ("x", {"submission": 5}),
    ],
)
async def test_a_message_of_a_wrong_type_is_refused_and_no_session_appears(runtime: Runtime, content: Any, options: dict[str, Any]) -> None:
    with pytest.raises(perdure.UsageError):
        await runtime.sessions.send("s", content, **options)
    assert await stored(runtime) is None


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("deny", {"reason": None}),
        ("deny", {"reason": 5}),
        ("deny", {"reason": LONE}),
        ("deny", {"reason": "x" * 40_000}),
        ("approve", {"actor": 7}),
        ("approve", {"actor": LONE}),
        ("approve", {"arguments": {"amount": float("nan")}}),
        ("approve", {"arguments": {"amount": "x" * 950_000}}),
        ("approve", {"arguments": {1: 2}}),
        ("settle", {"result": "x" * 950_000}),
        ("settle", {"result": object()}),
        ("settle", {"is_error": None}),
        ("settle", {"is_error": 1}),
    ],
)
async def test_an_answer_of_a_wrong_type_or_size_is_refused_and_the_request_stays_open(
    runtime: Runtime, verb: str, given: dict[str, Any]
) -> None:
    request = await asked(runtime, asking())
    before = await stored(runtime)
    with pytest.raises(perdure.UsageError):
        await getattr(runtime.sessions, verb)("s", request, **given)
    assert await stored(runtime) == before


async def test_the_refusal_names_the_field(runtime: Runtime) -> None:
    request = await asked(runtime, asking())
    with pytest.raises(perdure.UsageError, match="reason"):
        await runtime.sessions.deny("s", request, None)  # type: ignore[arg-type]
    with pytest.raises(perdure.UsageError, match="is_error"):
        await runtime.sessions.settle("s", request, is_error=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("interrupt", {"reason": None}),
        ("interrupt", {"reason": 7}),
        ("interrupt", {"turn": 7}),
        ("interrupt", {"actor": None}),
        ("note", {"text": None}),
        ("note", {"text": LONE}),
        ("select_route", {"route": None}),
        ("revoke", {"grant": 7}),
        ("withdraw", {"message": None}),
        ("edit", {"message": 7, "content": "x"}),
        ("edit", {"message": "m", "content": None}),
        ("edit", {"message": "m", "content": "y" * 100_000, "actor": 7}),
        ("edit", {"message": "m", "content": Blob(mime_type="x", digest="0" * 64, size=1)}),
        ("report_attempt", {"operation": "t2.1", "attempt": 1, "result": 1, "is_error": None}),
        ("report_attempt", {"operation": "t2.1", "attempt": "1", "result": 1, "is_error": False}),
        ("report_attempt", {"operation": "t2.1", "attempt": True, "result": 1, "is_error": False}),
        ("report_attempt", {"operation": LONE, "attempt": 1, "result": 1, "is_error": False}),
    ],
)
async def test_a_command_of_a_wrong_type_is_refused_and_nothing_is_written(runtime: Runtime, verb: str, given: dict[str, Any]) -> None:
    await runtime.sessions.send("s", "waits", submission="m")
    before = await stored(runtime)
    with pytest.raises(perdure.UsageError):
        await getattr(runtime.sessions, verb)("s", **given)
    assert await stored(runtime) == before


@pytest.mark.parametrize("token", [None, 5, LONE, "x" * 100_000])
async def test_a_callback_token_of_a_wrong_type_is_refused(runtime: Runtime, token: Any) -> None:
    with pytest.raises(perdure.UsageError):
        await runtime.sessions.report(token, 1)


async def test_many_small_parts_are_too_long_together_though_their_text_is_short(runtime: Runtime) -> None:
    with pytest.raises(perdure.InvalidMessage, match="too long"):
        await runtime.sessions.send("s", [Text("x")] * 60_000)
    assert await stored(runtime) is None


async def test_an_endless_reference_is_an_invalid_message(runtime: Runtime) -> None:
    with pytest.raises(perdure.InvalidMessage, match="too long"):
        await runtime.sessions.send("s", Uri(uri="x" * (MANY + 1)))
    assert await stored(runtime) is None


async def test_the_longest_message_that_is_taken_can_be_worked_on(runtime: Runtime) -> None:
    parts = [Text("x")] * 28_000
    assert (await runtime.run(Agent("a", model=ScriptedModel(["read"])), parts, session="s")).output == "read"


async def test_a_result_that_can_t_be_kept_is_refused_before_it_is_stored(runtime: Runtime) -> None:
    await runtime.sessions.send("s", "waits")
    before = await stored(runtime)
    with pytest.raises(perdure.core.errors.LimitExceeded):
        await runtime.sessions.report_attempt("s", "t2.1", 1, "x" * (MANY + 1), False)
    assert await stored(runtime) == before


async def test_a_blob_that_nobody_stored_is_refused_and_a_stored_one_is_taken(runtime: Runtime) -> None:
    data = b"\x89PNG\r\n\x1a\n a picture"
    digest = perdure.core.canonical.digest(data)
    picture = Blob(mime_type="image/png", digest=digest, size=len(data))
    with pytest.raises(perdure.InvalidMessage):
        await runtime.sessions.send("s", picture)
    assert await stored(runtime) is None
    await runtime.sessions.send("s", "hello", submission="m")
    for wrong in (picture, Blob(mime_type="image/png", digest="../x", size=1), Blob(mime_type="image/png", digest=digest.upper(), size=9)):
        with pytest.raises(perdure.InvalidMessage):
            await runtime.sessions.send("s", [Text("see"), wrong])
    await runtime.store.put_blob("s", StoredBlob(digest=digest, media_type="image/png", data=data))
    with pytest.raises(perdure.InvalidMessage):
        await runtime.sessions.send("s", Blob(mime_type="image/png", digest=digest, size=1))
    assert (await runtime.sessions.send("s", picture)).arrival == 2


async def test_an_approval_after_its_deadline_is_stale_and_whoever_looks_closes_the_request(runtime: Runtime, clock: VirtualClock) -> None:
    agent = asking(approval_timeout=5)
    request = await asked(runtime, agent)
    before = await stored(runtime)
    clock.advance(5000)
    with pytest.raises(perdure.StaleRequest, match="ran out of time"):
        await runtime.sessions.approve("s", request)
    assert await stored(runtime) == before
    assert await runtime.store.runnable(limit=10) == ["s"]
    result = await runtime.run(agent, "go", session="s", submission="m")
    assert result.output == "done"
    assert "nobody approved it in time" in (await runtime.sessions.history("s"))[2].parts[0].response  # type: ignore[union-attr]


async def _told(runtime: Runtime) -> list[str]:
    """What was written since the question, and what became of it."""
    entries = await runtime.sessions.entries("s")
    asked_at = next(entry.seq for entry in entries if entry.kind == "request_opened")
    return [f"{entry.kind} {getattr(entry, 'by', '')}".strip() for entry in entries if entry.seq > asked_at]


@pytest.mark.parametrize("sent", ["interrupt", "note", "report"])
@pytest.mark.parametrize("looks", ["its sender", "the holder"])
async def test_what_comes_after_a_deadline_finds_the_question_closed_though_nobody_had_looked(
    runtime: Runtime, clock: VirtualClock, sent: str, looks: str
) -> None:
    agent = asking(approval_timeout=5)
    request = await asked(runtime, agent)
    operation = (await runtime.sessions.requests("s"))[0].operation
    clock.advance(5_000)
    if looks == "the holder":
        # As it is sent to a session that somebody holds: a row for whoever looks next.
        control, runtime.sessions._control = runtime.sessions._control, runtime.sessions._send  # type: ignore[method-assign, assignment]
    match sent:
        case "interrupt":
            await runtime.sessions.interrupt("s")
        case "note":
            await runtime.sessions.note("s", "hurry")
        case _:
            await runtime.sessions.report_attempt("s", operation, 1, "paid elsewhere", is_error=False)
    if looks == "the holder":
        runtime.sessions._control = control  # type: ignore[method-assign]
        clock.advance(60_000)
    assert (await runtime.run(agent, "go", session="s", submission="m")).status == ("aborted" if sent == "interrupt" else "completed")
    told = await _told(runtime)
    own = {"interrupt": "turn_aborted", "note": "note_added", "report": "submission_refused"}[sent]
    assert told[0] == "request_closed deadline"
    assert told.count("request_closed deadline") == 1
    assert told.index(own) > 0
    closed: Any = next(entry for entry in await runtime.sessions.entries("s") if entry.kind == "request_closed")
    came: Any = next(entry for entry in await runtime.sessions.entries("s") if entry.kind == own)
    assert (closed.request_id, closed.decision) == (request, "deny")
    # Both at the time at which it was sent, not when somebody looked.
    assert closed.at <= came.at
    opened: Any = next(entry for entry in await runtime.sessions.entries("s") if entry.kind == "request_opened")
    assert closed.at == opened.deadline


@pytest.mark.parametrize("looks", ["the next sender", "the holder"])
async def test_an_answer_in_time_counts_though_whoever_looks_comes_too_late(runtime: Runtime, clock: VirtualClock, looks: str) -> None:
    agent = asking(approval_timeout=5)
    request = await asked(runtime, agent)
    clock.advance(4_600)
    # As a sender leaves it that dies before it can apply it: a row for whoever looks next.
    control, runtime.sessions._control = runtime.sessions._control, runtime.sessions._send  # type: ignore[method-assign, assignment]
    await runtime.sessions.approve("s", request)
    runtime.sessions._control = control  # type: ignore[method-assign]
    clock.advance(1_000)
    if looks == "the next sender":
        await runtime.sessions.note("s", "It rains.")
        head = await runtime.store.load("s")
        assert head is not None
        assert await runtime.store.inbox(head.row.no) == []
    assert (await runtime.run(agent, "go", session="s", submission="m")).output == "done"
    [closed] = await runtime.sessions.entries("s", kinds=["request_closed"])
    assert (closed.decision, closed.by) == ("approve", "answer")  # type: ignore[attr-defined]
    assert await runtime.sessions.entries("s", kinds=["submission_refused"]) == []


async def test_who_puts_a_session_away_takes_up_a_result_as_of_when_it_was_sent(runtime: Runtime, clock: VirtualClock) -> None:
    await asked(runtime, asking(approval_timeout=5))
    operation = (await runtime.sessions.requests("s"))[0].operation
    clock.advance(6_000)
    sent = clock.now()
    # As a sender leaves it that dies before it can apply it.
    control, runtime.sessions._control = runtime.sessions._control, runtime.sessions._send  # type: ignore[method-assign, assignment]
    await runtime.sessions.report_attempt("s", operation, 1, "paid elsewhere", is_error=False)
    runtime.sessions._control = control  # type: ignore[method-assign]
    clock.advance(60_000)
    await runtime.sessions.archive("s")
    [closed] = await runtime.sessions.entries("s", kinds=["request_closed"])
    assert (closed.by, closed.at) == ("deadline", sent)  # type: ignore[attr-defined]


@pytest.mark.parametrize("held", [False, True])
async def test_a_decision_for_another_kind_of_question_is_refused_before_anything_is_written(runtime: Runtime, held: bool) -> None:
    @tool(effect="external", on_uncertain="ask")
    async def break_down() -> str:
        """Fall over."""
        raise OSError("gone")

    going = asyncio.Event()

    @tool(effect="pure")
    async def linger() -> str:
        """Keep the session held."""
        await going.wait()
        return "ok"

    def answer(request: ModelRequest) -> Reply:
        calls = [ToolCall("break_down", {}), *([ToolCall("linger", {})] if held else [])]
        return Reply("done") if request.step else Reply(tool_calls=calls)

    agent = Agent("a", model=FunctionModel(answer), tools=[break_down, linger])
    async with runtime.session("s", agent) as session:
        await session.send("go", submission="m")
        async for event in session.events():
            if isinstance(event, perdure.UncertainRequested):
                break
        while ((await runtime.sessions.info("s")).holder is not None) != held:
            await asyncio.sleep(0)
        before = await stored(runtime)
        for decision in ("approve", "grant"):
            with pytest.raises(perdure.SubmissionRejected, match="what became of a call"):
                await runtime.sessions.answer("s", event.request_id, decision)  # type: ignore[arg-type]
        assert await stored(runtime) == before
        await runtime.sessions.settle("s", event.request_id, "it worked")
        going.set()
    assert (await runtime.run(agent, "go", session="s", submission="m")).output == "done"


async def test_an_approval_can_not_be_settled(runtime: Runtime) -> None:
    request = await asked(runtime, asking())
    before = await stored(runtime)
    for decision in ("settle", "retry"):
        with pytest.raises(perdure.SubmissionRejected, match="whether a call may run"):
            await runtime.sessions.answer("s", request, decision)  # type: ignore[arg-type]
    assert await stored(runtime) == before


async def test_an_approval_before_its_deadline_counts(runtime: Runtime, clock: VirtualClock) -> None:
    agent = asking(approval_timeout=5)
    request = await asked(runtime, agent)
    clock.advance(4999)
    await runtime.sessions.approve("s", request)
    await runtime.run(agent, "go", session="s", submission="m")
    assert (await runtime.sessions.history("s"))[2].parts[0].response == "paid 5"  # type: ignore[union-attr]


async def test_what_is_asked_and_unknown_shows_its_own_arguments_though_call_ids_come_again(runtime: Runtime) -> None:
    @tool(effect="external")
    async def charge(amount: int) -> str:
        """Charge, and lose the line on every even amount."""
        if amount % 2 == 0:
            raise OSError("the line went dead")
        return "charged"

    model = calling("charge", *({"amount": amount} for amount in (1, 2, 3, 4, 5)), call="same")
    agent = Agent("a", model=model, tools=[charge], approve=lambda call: "ask" if call.arguments["amount"] == 5 else "allow")
    async with runtime.session("s", agent) as session:
        await session.send("go")
        async for event in session.events():
            if isinstance(event, perdure.ApprovalRequested):
                break
        assert [effect.arguments for effect in await runtime.sessions.uncertain("s")] == [{"amount": 2}, {"amount": 4}]
        assert [request.arguments for request in await session.requests()] == [{"amount": 5}]


async def test_an_unknown_effect_shows_the_arguments_that_a_person_gave_it(runtime: Runtime) -> None:
    @tool(effect="external")
    async def charge(amount: int) -> str:
        """Charge, and lose the line."""
        raise OSError("the line went dead")

    agent = Agent("a", model=calling("charge", {"amount": 1}), tools=[charge], approve=["charge"])
    request = await asked(runtime, agent)
    await runtime.sessions.approve("s", request, {"amount": 9})
    await runtime.run(agent, "go", session="s", submission="m")
    assert [effect.arguments for effect in await runtime.sessions.uncertain("s")] == [{"amount": 9}]


async def test_a_handle_that_can_t_be_opened_leaves_nothing_behind(clock: VirtualClock) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work on and on."""
        begun.set()
        await end.wait()
        return "worked"

    agent = Agent("a", model=calling("work", {}), tools=[work])
    async with perdure.open("memory://", clock=clock, capacity=1) as runtime:
        turn = asyncio.create_task(runtime.run(agent, "go", session="busy"))
        await begun.wait()
        await runtime.sessions.send("s", "waits")
        with pytest.raises(perdure.core.errors.CapacityExceeded):
            await runtime.session("s", agent).__aenter__()
        assert not runtime.news.feed("s").watched
        end.set()
        await turn


async def test_a_handle_that_is_not_open_sends_nothing_that_its_agent_would_not_do(runtime: Runtime) -> None:
    agent = Agent("a", model=FunctionModel(lambda request: "hello"), tools=[pay])
    handle = runtime.session("s", agent)
    for use in (lambda: handle.send("hi"), handle.resume, lambda: handle.approve("0123456789abcdef")):
        with pytest.raises(perdure.UsageError, match="not open") as refused:
            await use()
        assert "async with" in refused.value.hint
    assert await runtime.store.load("s") is None
    async with handle:
        await handle.send("hi", submission="m")
        async for event in handle.events():
            if isinstance(event, perdure.TurnEnded):
                break
    with pytest.raises(perdure.UsageError, match="not open"):
        await handle.send("and then?")
    assert await runtime.store.inbox((await runtime.store.load("s")).row.no) == []  # type: ignore[union-attr]
    # Without an agent it promises no work, and only sends.
    await runtime.session("s").send("later")


def test_bytes_and_secrets_tell_effects_apart_and_no_secret_can_be_read() -> None:
    from perdure.tools.schema import identity

    @tool(effect="external")
    async def upload(data: Base64Bytes, key: SecretStr, other: SecretBytes) -> str:
        """Upload."""
        return "up"

    def known(data: str, key: str, other: str = "o") -> bytes:
        return upload.effect_key({"data": data, "key": key, "other": other})

    assert known("/w==", "a") == known("/w==", "a")
    assert len({known("/w==", "a"), known("/g==", "a"), known("/w==", "b"), known("/w==", "a", "p")}) == 4
    assert "hunter2" not in str(identity({"key": SecretStr("hunter2"), "keys": [SecretBytes(b"hunter2")]}))
    assert identity(SecretStr("hunter2")) != identity(SecretStr("hunter3"))


async def test_a_command_that_comes_right_after_its_holder_let_go_is_applied_by_its_sender(clock: VirtualClock) -> None:
    """The sender saw a holder, and by the time the command is durable there is none: nobody else would look."""
    shared = MemoryStore(clock.now)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> Reply:
        begun.set()
        await go_on.wait()
        return Reply("done")

    async def let_go(call: Call, when: str) -> None:
        if (call.kind, when) == ("send", "before"):
            go_on.set()
            await running

    async with (
        Runtime(shared.peer(), clock=clock) as holder,
        Runtime(FaultStore(shared.peer(), gate=let_go, clock=clock), clock=clock) as sender,
    ):
        running = asyncio.create_task(holder.run(Agent("a", model=FunctionModel(answer)), "go", session="s", submission="m"))
        await begun.wait()
        await sender.sessions.note("s", "It rains.", submission="n")

        head = await holder.store.load("s")
        assert head is not None
        assert (head.row.status, head.row.wake_at, await holder.store.inbox(head.row.no)) == ("idle", None, [])
        kinds = [entry.kind for entry in await holder.sessions.entries("s")]
        assert kinds[-2:] == ["turn_completed", "note_added"]
        assert await problems_in(holder.store) == []


async def test_notes_without_end_keep_nobody_from_stopping_what_runs(clock: VirtualClock) -> None:
    shared = MemoryStore(clock.now)
    begun, look = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work on and on."""
        begun.set()
        await asyncio.Event().wait()
        return "worked"

    async def busy(call: Call, when: str) -> None:
        if (call.kind, when) == ("inbox", "before") and begun.is_set():
            await look.wait()

    async with (
        Runtime(FaultStore(shared.peer(), gate=busy, clock=clock), clock=clock) as holder,
        Runtime(shared.peer(), clock=clock) as sender,
    ):
        running = asyncio.create_task(holder.run(Agent("a", model=calling("work", {}), tools=[work]), "go", session="s"))
        await begun.wait()
        for number in range(1024):
            await sender.sessions.note("s", f"note {number}")
        with pytest.raises(perdure.QueueFull):
            await sender.sessions.note("s", "one more")
        await sender.sessions.interrupt("s", reason="enough")
        look.set()
        assert (await running).reason == "enough"
