"""What nobody knows: when an outcome counts as unknown, what waits for it, and who may settle it from where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    Done,
    HookContext,
    Middleware,
    ModelRequest,
    NotDone,
    Replace,
    Reply,
    Runtime,
    ScriptedModel,
    StaleRequest,
    ToolCall,
    ToolCallResponse,
    ToolContext,
    ToolError,
    Unknown,
    tool,
)
from perdure.core.entries import TERMINALS, EffectSettled, OperationEnded, OperationStarted, RequestClosed, RequestOpened
from perdure.core.errors import SubmissionConflict
from perdure.core.ids import idempotency_key
from perdure.runtime import tokens
from perdure.store.base import Commit, Committed
from perdure.testing import FaultStore
from perdure.testing.faults import Call
from tests.integration.interactive.acting import Place

UNKNOWN = "execution interrupted; result unknown"


class Processes:
    """Processes over one store: the last one can die where a test wants it to, and the next one knows that it is gone."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._opened: list[tuple[Runtime, FaultStore]] = []
        self._dead: dict[str, FaultStore] = {}

    async def start(self, gate: Any = None) -> Runtime:
        if self._place.kind == "sqlite":
            # What the kernel does: a dead process has no file open, and no lock.
            for store in self._dead.values():
                await store.close()
            self._dead.clear()
        store = FaultStore(self._place.connect(), gate=gate, clock=self._place.clock)
        runtime = Runtime(store, clock=self._place.clock)
        await runtime.__aenter__()
        self._opened.append((runtime, store))
        for runner in await store.runners():
            if runner.id in self._dead:
                await store.heartbeat(runner, -1)
        return runtime

    def die(self) -> None:
        runtime, store = self._opened[-1]
        store.kill()
        self._dead[runtime.runner_id] = store

    async def end(self) -> None:
        for runtime, _ in self._opened:
            await runtime.close(grace=0)


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Time jumps to whoever sleeps the shortest as soon as nothing else is to do."""
    return Place(request.param, tmp_path / "agents.db", auto=True)


@pytest.fixture
async def processes(place: Place) -> AsyncIterator[Processes]:
    made = Processes(place)
    yield made
    await made.end()


class Shop:
    """A tool that charges, and dies in the middle of it the first time; ``model`` counts how often it was asked."""

    def __init__(self, processes: Processes, **options: Any) -> None:
        self.keys: list[str] = []
        self.asked: list[str] = []
        self.models = 0
        self.dies = True

        @tool(**{"effect": "external", "guard": "allow", **options})
        async def charge(ctx: ToolContext, cents: int = 5) -> str:
            self.keys.append(ctx.idempotency_key)
            if self.dies:
                self.dies = False
                processes.die()
            return f"charged {len(self.keys)}"

        self.tool = charge

    def agent(self, **options: Any) -> Agent:
        def answer(request: ModelRequest) -> Any:
            self.models += 1
            return [Reply(tool_calls=[ToolCall(name="charge", arguments={})]), Reply("Done.")][min(request.step, 1)]

        return Agent("a", model=perdure.FunctionModel(answer), tools=[self.tool], **options)


async def crashed(processes: Processes, agent: Agent) -> Runtime:
    """A process died in the middle of the call; the next one."""
    first = await processes.start()
    with pytest.raises(perdure.PerdureError):
        await first.run(agent, "Please.", session="s", submission="m1")
    return await processes.start()


async def taken_up(runtime: Runtime, agent: Agent) -> None:
    """Work on the session until it is parked or its turn is over."""
    async with runtime.session("s", agent):
        while True:
            info = await runtime.sessions.info("s")
            if info.status in ("waiting", "idle"):
                return
            await asyncio.sleep(0.001)


async def entries(runtime: Runtime, *kinds: str) -> list[Any]:
    return await runtime.sessions.entries("s", kinds=kinds)


async def response(runtime: Runtime) -> Any:
    messages = await runtime.sessions.history("s")
    return [part.response for message in messages for part in message.parts if isinstance(part, ToolCallResponse)][-1]


# --------------------------------------------------------------------------------------------------------- what is unknown


@pytest.mark.spec("S0-189")
@pytest.mark.parametrize(
    ("raises", "status"),
    [(None, "uncertain"), (ConnectionError("lost"), "uncertain"), (RuntimeError("a bug"), "uncertain"), (ToolError("closed"), "failed")],
)
async def test_a_timeout_or_a_lost_connection_is_unknown_unless_the_tool_says_for_certain_that_nothing_happened(
    processes: Processes, raises: Exception | None, status: str
) -> None:
    """And the turn goes on: one faulty call doesn't stop the rest."""

    @tool(effect="external", timeout=60)
    async def charge() -> None:
        if raises is not None:
            raise raises
        await asyncio.sleep(60)

    runtime = await processes.start()
    model = ScriptedModel([Reply(tool_calls=[ToolCall(name="charge", arguments={})]), Reply("Done.")])
    result = await runtime.run(Agent("a", model=model, tools=[charge]), "Please.", session="s")

    assert result.output == "Done."
    [receipt] = [entry for entry in await entries(runtime, "operation_ended") if entry.operation == "t2.0.1"]
    assert (receipt.status, len(await runtime.sessions.uncertain("s"))) == (status, int(status == "uncertain"))


@pytest.mark.spec("S0-189")
async def test_a_call_that_is_interrupted_is_unknown(processes: Processes) -> None:
    begun = asyncio.Event()

    @tool(effect="external")
    async def charge() -> None:
        begun.set()
        await asyncio.sleep(60)

    runtime = await processes.start()
    model = ScriptedModel([Reply(tool_calls=[ToolCall(name="charge", arguments={})]), Reply("unused")])
    running = asyncio.ensure_future(runtime.run(Agent("a", model=model, tools=[charge]), "Please.", session="s"))
    await begun.wait()
    await runtime.sessions.interrupt("s")

    assert (await running).status == "aborted"
    assert [item.operation for item in await runtime.sessions.uncertain("s")] == ["t2.0.1"]


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
async def test_a_model_that_ends_like_a_process_fails_its_turn_and_leaves_nothing_unknown(processes: Processes, raised: Any) -> None:
    def answer(request: ModelRequest) -> Any:
        raise raised

    runtime = await processes.start()
    agent = Agent("a", model=perdure.FunctionModel(answer))
    async with asyncio.timeout(30):
        result = await runtime.run(agent, "Please.", session="s")

    assert result.status == "failed"
    assert await runtime.sessions.uncertain("s") == []
    assert (await runtime.run(Agent("a", model=ScriptedModel(["Hello."] * 2)), "Again.", session="s")).ok


# ---------------------------------------------------------------------------------------------------------------- recovery


@pytest.mark.spec("S0-194", "S0-195")
@pytest.mark.parametrize(("effect", "runs"), [("external", 1), ("idempotent", 2)])
async def test_only_what_is_declared_to_know_its_key_is_repeated_under_the_same_key(processes: Processes, effect: str, runs: int) -> None:
    shop = Shop(processes, effect=effect)
    runtime = await crashed(processes, shop.agent())

    await runtime.run(shop.agent(), "Please.", session="s", submission="m1")

    assert shop.keys == [idempotency_key(runtime.store.store_id, "s", "t2.0.1")] * runs
    assert await response(runtime) == ("charged 2" if runs == 2 else f"{UNKNOWN} after restart")


@pytest.mark.spec("S0-190", "S0-191", "S0-202")
async def test_while_a_person_has_to_say_nothing_is_called_and_nothing_ends_however_often_somebody_looks(processes: Processes) -> None:
    shop = Shop(processes, on_uncertain="ask")
    runtime = await crashed(processes, shop.agent())

    for _ in range(3):
        await taken_up(runtime, shop.agent())
        processes.die()
        runtime = await processes.start()

    assert (shop.models, len(shop.keys)) == (1, 1)
    assert (await runtime.sessions.info("s")).status == "waiting"
    assert await entries(runtime, *TERMINALS) == []
    # The same question with the same id: announced once, however often the session was taken up.
    [opened] = await entries(runtime, "request_opened")
    assert isinstance(opened, RequestOpened)
    [request] = await runtime.sessions.requests("s")
    assert (request.kind, request.operation, request.request_id) == ("uncertain", "t2.0.1", opened.request_id)
    [item] = await runtime.sessions.uncertain("s")
    assert (item.operation, item.name, item.arguments, item.request_id) == ("t2.0.1", "charge", {}, opened.request_id)


@pytest.mark.spec("S0-197", "S0-200", "S0-090")
@pytest.mark.parametrize(
    ("decision", "options", "told", "status"),
    [
        ("settle", {"result": {"id": 7}}, {"id": 7}, "succeeded"),
        ("settle", {"result": "refused", "is_error": True}, "refused", "failed"),
        ("deny", {}, UNKNOWN, "uncertain"),
        ("retry", {}, "charged 2", "succeeded"),
    ],
)
async def test_a_person_decides_from_any_process_and_the_decision_is_an_entry(
    processes: Processes, decision: Any, options: dict[str, Any], told: Any, status: str
) -> None:
    shop = Shop(processes, on_uncertain="ask")
    runtime = await crashed(processes, shop.agent())
    await taken_up(runtime, shop.agent())
    elsewhere = await processes.start()
    info = await elsewhere.sessions.info("s")
    assert (info.status, info.holder) == ("waiting", None)
    [request] = await elsewhere.sessions.requests("s")

    await elsewhere.sessions.answer("s", request.request_id, decision, actor="ann", **options)
    with pytest.raises(StaleRequest):
        await elsewhere.sessions.answer("s", request.request_id, decision, actor="bob", **options)
    result = await runtime.run(shop.agent(), "Please.", session="s", submission="m1")

    assert result.output == "Done."
    assert await response(runtime) == told
    assert len(shop.keys) == (2 if decision == "retry" else 1)
    assert len({*shop.keys}) == 1
    [closed] = await entries(runtime, "request_closed")
    assert isinstance(closed, RequestClosed)
    assert (closed.decision, closed.actor) == (decision, "ann")
    known = [entry for entry in await entries(runtime, "effect_settled", "operation_ended") if entry.operation == "t2.0.1"]
    assert isinstance(known[-1], EffectSettled | OperationEnded)
    assert known[-1].status == status
    assert [item.operation for item in await runtime.sessions.uncertain("s")] == (["t2.0.1"] if status == "uncertain" else [])


@pytest.mark.spec("S0-201", "S0-097")
async def test_aborting_over_an_unknown_outcome_ends_the_turn_and_the_unknown_stays_to_be_seen_and_settled(processes: Processes) -> None:
    shop = Shop(processes, on_uncertain="ask")
    runtime = await crashed(processes, shop.agent())
    await taken_up(runtime, shop.agent())
    [request] = await runtime.sessions.requests("s")

    await runtime.sessions.answer("s", request.request_id, "abort")
    result = await runtime.run(shop.agent(), "Please.", session="s", submission="m1")

    assert result.status == "aborted"
    [item] = await runtime.sessions.uncertain("s")
    assert (item.operation, shop.models, len(shop.keys)) == ("t2.0.1", 1, 1)
    await runtime.sessions.report_attempt("s", "t2.0.1", 1, "it went through", False, "ann")
    assert await runtime.sessions.uncertain("s") == []
    assert (await runtime.run(shop.agent(), "Please.", session="s", submission="m1")).status == "aborted"


@pytest.mark.spec("S0-196", "S0-198", "S0-199")
@pytest.mark.parametrize(("answer", "told", "runs"), [(Done("found"), "found", 1), (NotDone(), "charged 2", 2), (Unknown(), None, 1)])
async def test_a_reconcile_tells_and_where_it_can_not_the_unknown_stays_as_it_was(
    processes: Processes, answer: Any, told: Any, runs: int
) -> None:
    async def find(ctx: ToolContext) -> Any:
        return answer

    shop = Shop(processes, reconcile=find, on_uncertain="ask")
    runtime = await crashed(processes, shop.agent())
    await taken_up(runtime, shop.agent())

    assert len(shop.keys) == runs
    assert len({*shop.keys}) == 1
    if told is None:
        [item] = await runtime.sessions.uncertain("s")
        assert (item.operation, item.attempt, shop.models) == ("t2.0.1", 1, 1)
        await runtime.sessions.settle("s", item.request_id, "now it is known")
    await runtime.run(shop.agent(), "Please.", session="s", submission="m1")
    assert await response(runtime) == (told or "now it is known")
    attempts = [entry.attempt for entry in await entries(runtime, "operation_started") if entry.operation == "t2.0.1"]
    assert attempts == [*range(1, runs + 1)]


async def test_a_reconcile_that_answers_while_a_reported_result_is_stored_is_passed_over(place: Place, processes: Processes) -> None:
    searching, found, ended, thinks = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    think, reads = asyncio.Event(), 0

    async def find(ctx: ToolContext) -> Any:
        searching.set()
        await found.wait()
        ended.set()
        return Done("found")

    async def gate(call: Call, when: Any) -> None:
        nonlocal reads
        reads += call.kind == "inbox"
        if call.kind == "commit" and when == "before" and searching.is_set() and not found.is_set():
            found.set()
            await ended.wait()
            for _ in range(20):
                await asyncio.sleep(0)

    async def answer(request: ModelRequest) -> Reply:
        if request.step == 0:
            return Reply(tool_calls=[ToolCall(name="charge", arguments={})])
        thinks.set()
        await think.wait()
        return Reply("Done.")

    shop = Shop(processes, reconcile=find)
    agent = shop.agent().replace(model=perdure.FunctionModel(answer))
    await crashed(processes, agent)
    runtime = await processes.start(gate)
    running = asyncio.create_task(runtime.run(agent, "Please.", session="s", submission="m1"))
    await searching.wait()
    with place.clock.busy():
        await runtime.sessions.report_attempt("s", "t2.0.1", 1, "reported", False)
        await asyncio.wait_for(thinks.wait(), 20)
        before = reads
        # While the model thinks, nobody looks again and again at what is known.
        for _ in range(500):
            await asyncio.sleep(0.0001)
        assert reads - before < 5
    think.set()
    assert (await asyncio.wait_for(running, 20)).output == "Done."
    assert await response(runtime) == "reported"


# ---------------------------------------------------------------------------------------------------------- stored receipts


@pytest.mark.spec("S0-143", "S0-144", "S0-145")
@pytest.mark.parametrize("fails", [False, True])
async def test_a_receipt_is_used_whole_and_what_a_hook_made_of_it_is_made_once(place: Place, fails: bool) -> None:
    """The process dies wherever the receipt is stored and the message that tells it is not, and after that."""
    result = {"items": [1, 2, 3], "note": "ä" * 40_000}

    class Loud(Middleware):
        name = "loud"

        def after_tool(self, ctx: HookContext, call: Any, response: ToolCallResponse) -> Replace:
            told.append(response.response)
            return Replace({"told": response.response})

    ran: list[int] = []

    @tool(effect="external")
    async def fetch() -> Any:
        ran.append(1)
        if fails:
            raise ToolError("not " * 500)
        return result

    for number in range(6):
        told: list[Any] = []
        ran.clear()
        many = Processes(Place(place.kind, place.path.with_name(f"{number}.db"), auto=True))
        model = ScriptedModel([Reply(tool_calls=[ToolCall(name="fetch", arguments={})]), Reply("Done.")])
        agent = Agent("a", model=model, tools=[fetch], middleware=[Loud()], archive=None)
        first = await many.start(dying_after(many, number))
        with suppress(perdure.PerdureError):
            await first.run(agent, "Please.", session="s", submission="m1")
        runtime = await many.start()
        await runtime.run(agent, "Please.", session="s", submission="m1")

        known = [entry for entry in await entries(runtime, "operation_ended") if entry.operation == "t2.0.1"][-1]
        if known.status != "uncertain":
            expected = "not " * 500 if fails else result
            assert await response(runtime) == {"told": expected}
            assert all(item == expected for item in told)
            assert len(told) == 1
            assert len(ran) == 1
        await many.end()


def dying_after(processes: Processes, number: int) -> Any:
    """The process dies just after so many commits."""
    commits: list[Commit] = []

    async def gate(call: Call, when: str) -> None:
        if isinstance(call.given, Commit) and when == "after" and isinstance(call.answer, Committed):
            commits.append(call.given)
            if len(commits) == number:
                processes.die()

    return gate


@pytest.mark.spec("S0-139", "S0-140")
@pytest.mark.parametrize("effect", ["pure", "idempotent", "transactional", "external"])
async def test_every_tool_sees_its_key_and_no_model_does(processes: Processes, effect: Any) -> None:
    keys: list[str] = []
    seen: list[ModelRequest] = []

    @tool(effect=effect)
    async def charge(ctx: ToolContext, cents: int) -> str:
        keys.append(ctx.idempotency_key)
        return "charged"

    def answer(request: ModelRequest) -> Any:
        seen.append(request)
        return [Reply(tool_calls=[ToolCall(name="charge", arguments={"cents": 5})]), Reply("Done.")][request.step]

    runtime = await processes.start()
    await runtime.run(Agent("a", model=perdure.FunctionModel(answer), tools=[charge]), "Please.", session="s")

    assert keys == [idempotency_key(runtime.store.store_id, "s", "t2.0.1")]
    assert all(keys[0] not in repr(request) for request in seen)
    assert set(charge.parameters["properties"]) == {"cents"}


@pytest.mark.spec("S0-141", "S0-142", "S0-300")
@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_call_that_waits_for_approval_is_planned_and_one_that_was_denied_never_started(processes: Processes, decision: Any) -> None:
    """Wherever the process dies in between, what was approved runs once, as the operation that was approved."""
    shop = Shop(processes)
    shop.dies = False
    agent = shop.agent(approve=["charge"])
    runtime = await processes.start()
    async with runtime.session("s", agent) as session:
        await session.send("Please.", submission="m1")
    await taken_up(runtime, agent)
    processes.die()
    runtime = await processes.start()

    [planned] = await entries(runtime, "operation_planned")
    assert [entry for entry in await entries(runtime, "operation_started") if entry.operation == planned.operation] == []
    [request] = await runtime.sessions.requests("s")
    await runtime.sessions.answer("s", request.request_id, decision)
    processes.die()
    runtime = await processes.start()
    await runtime.run(agent, "Please.", session="s", submission="m1")

    started = [entry for entry in await entries(runtime, "operation_started") if entry.operation == planned.operation]
    [ended] = [entry for entry in await entries(runtime, "operation_ended") if entry.operation == planned.operation]
    if decision == "approve":
        assert (len(started), len(shop.keys), ended.attempt, ended.status) == (1, 1, 1, "succeeded")
    else:
        assert (started, shop.keys, ended.attempt, ended.status) == ([], [], 0, "cancelled")


@pytest.mark.spec("S0-118")
async def test_whatever_is_done_outside_was_durable_as_about_to_be_done(processes: Processes) -> None:
    durable: set[str] = set()
    done: list[tuple[str, bool]] = []

    async def note(call: Call, when: str) -> None:
        if isinstance(call.given, Commit) and when == "after" and isinstance(call.answer, Committed):
            head = await runtime.store.load("s")
            assert head is not None
            for entry in await runtime.sessions.entries("s", kinds=["operation_started"]):
                assert isinstance(entry, OperationStarted)
                durable.add(entry.operation)

    @tool(effect="external")
    async def charge(ctx: ToolContext) -> None:
        done.append((ctx.operation, ctx.operation in durable))
        await ctx.step("mail", lambda: done.append((f"{ctx.operation}/mail", f"{ctx.operation}/mail" in durable)))

    def answer(request: ModelRequest) -> Any:
        operation = f"t2.{request.step}.0"
        done.append((operation, operation in durable))
        return [Reply(tool_calls=[ToolCall(name="charge", arguments={})]), Reply("Done.")][request.step]

    runtime = await processes.start(note)
    await runtime.run(Agent("a", model=perdure.FunctionModel(answer), tools=[charge]), "Please.", session="s")

    assert done == [("t2.0.0", True), ("t2.0.1", True), ("t2.0.1/mail", True), ("t2.1.0", True)]


# ---------------------------------------------------------------------------------------------------------------- terminals


@pytest.mark.spec("S0-205", "S0-206", "S0-207")
async def test_a_turn_and_its_submission_end_in_one_commit_and_only_once(processes: Processes) -> None:
    async def look(call: Call, when: str) -> None:
        if isinstance(call.given, Commit) and when == "after" and isinstance(call.answer, Committed):
            row = await runtime.store.submission(call.given.no, "m1")
            ended = await runtime.store.entries(call.given.no, kinds=("turn_completed",))
            assert row is not None
            seen.append((row.settled_seq, [entry.seq for entry in ended]))

    seen: list[tuple[int | None, list[int]]] = []
    runtime = await processes.start(look)
    agent = Agent("a", model=ScriptedModel(["Hello."]))
    first = await runtime.run(agent, "Please.", session="s", submission="m1")
    version = (await runtime.sessions.info("s")).version
    again = await runtime.run(agent, "Please.", session="s", submission="m1")

    assert (first.output, again.output, (await runtime.sessions.info("s")).version) == ("Hello.", "Hello.", version)
    assert all(ended == ([] if settled is None else [settled]) for settled, ended in seen)
    assert seen[-1][0] is not None
    with pytest.raises(SubmissionConflict):
        await runtime.run(agent, "Something else.", session="s", submission="m1")
    assert (await runtime.sessions.info("s")).version == version


@pytest.mark.spec("S0-209", "S0-286")
async def test_a_process_that_lost_the_session_ends_no_turn_of_it(processes: Processes) -> None:
    """Its model fails, and that is nobody's business any more."""
    failing = asyncio.Event()

    async def broken(request: ModelRequest) -> Any:
        await failing.wait()
        raise perdure.ProviderRefused("no")

    first = await processes.start()
    lost = asyncio.ensure_future(first.run(Agent("a", model=perdure.FunctionModel(broken)), "Please.", session="s", submission="m1"))
    while not (await first.store.load("s")) or not await first.sessions.entries("s", kinds=["operation_started"]):
        await asyncio.sleep(0)
    second = await processes.start()
    head = await second.store.load("s")
    assert head is not None
    await second.store.claim(head.row.no, second.runner_id, force=True)
    failing.set()
    result = await second.run(Agent("a", model=ScriptedModel(["Hello."])), "Please.", session="s", submission="m1")

    assert result.output == "Hello."
    assert await entries(second, "turn_failed") == []
    lost.cancel()


# ----------------------------------------------------------------------------------------------------------- late and forged


async def test_a_callback_may_come_at_any_time_once_and_only_with_the_token(processes: Processes) -> None:
    given: list[str] = []

    @tool(effect="external", timeout=60)
    async def order(ctx: ToolContext) -> None:
        given.append(ctx.callback_token)
        await asyncio.sleep(60)

    runtime = await processes.start()
    model = ScriptedModel([Reply(tool_calls=[ToolCall(name="order", arguments={})]), Reply("No word yet.")])
    await runtime.run(Agent("a", model=model, tools=[order]), "Please.", session="s")
    elsewhere = await processes.start()

    with pytest.raises(perdure.PerdureError):
        await elsewhere.sessions.report(given[0][:-2] + ("AA" if given[0][-2:] != "AA" else "BB"), "forged")
    assert len(await elsewhere.sessions.uncertain("s")) == 1

    await elsewhere.sessions.archive("s")
    first = await elsewhere.sessions.report(given[0], {"status": "delivered"})
    again = await elsewhere.sessions.report(given[0], {"status": "delivered"})
    assert (first.id, again.duplicate) == (again.id, True)
    with pytest.raises(SubmissionConflict):
        await elsewhere.sessions.report(given[0], {"status": "lost"})
    [settled] = await entries(elsewhere, "effect_settled")
    assert settled.parts[0].response == {"status": "delivered"}
    assert await elsewhere.sessions.uncertain("s") == []
    await elsewhere.sessions.delete("s")
    with pytest.raises(perdure.SessionNotFound):
        await elsewhere.sessions.report(given[0], {"status": "late"})


@pytest.mark.parametrize("held", [False, True])
async def test_a_result_of_what_was_never_begun_is_refused_at_once_and_nothing_of_it_is_stored(processes: Processes, held: bool) -> None:
    @tool(effect="external", timeout=60)
    async def order() -> None:
        await asyncio.sleep(60)

    @tool
    async def wait() -> None:
        begun.set()
        await let_go.wait()

    begun, let_go = asyncio.Event(), asyncio.Event()
    model = ScriptedModel(
        [
            Reply(tool_calls=[ToolCall(name="order", arguments={})]),
            Reply("No word yet."),
            Reply(tool_calls=[ToolCall(name="wait", arguments={})]),
            Reply("Done."),
        ]
    )
    agent = Agent("a", model=model, tools=[order, wait])
    runtime = await processes.start()
    await runtime.run(agent, "Please.", session="s")
    [unknown] = await runtime.sessions.uncertain("s")
    running = asyncio.create_task(runtime.run(agent, "Go on.", session="s")) if held else None
    if running is not None:
        await asyncio.wait((running, asyncio.create_task(begun.wait())), return_when=asyncio.FIRST_COMPLETED)
    elsewhere = await processes.start()
    head = await elsewhere.store.load("s")
    assert head is not None

    assert (head.row.holder is not None) == held
    # As in a store that was restored from a backup: its tokens are good, and what they are of came after it.
    for operation, attempt in ((unknown.operation, 2), ("t2.0.7", 1), ("t999.0.1", 1), ("s999.0.1", 1), ("charge", 1)):
        token = tokens.issue(elsewhere.store.secret, "s", operation, attempt)
        with pytest.raises(StaleRequest, match="never began"):
            await elsewhere.sessions.report(token, "delivered")
    assert await elsewhere.store.load("s") == head
    assert await elsewhere.store.inbox(head.row.no) == []

    await elsewhere.sessions.report(tokens.issue(elsewhere.store.secret, "s", unknown.operation, 1), "delivered")
    if running is not None:
        let_go.set()
        await running
    [settled] = await entries(elsewhere, "effect_settled")
    assert settled.operation == unknown.operation
    assert await entries(elsewhere, "submission_refused") == []


# --------------------------------------------------------------------------------------------------- what hooks keep of a result


class Counting(Middleware):
    """It counts the results that it sees, in what it keeps, and notes what it finds there at each model call."""

    name = "counting"

    def __init__(self) -> None:
        self.found: list[int] = []

    def after_tool(self, ctx: HookContext, call: Any, response: ToolCallResponse) -> None:
        ctx.state["seen"] = ctx.state.get("seen", 0) + 1

    def before_model(self, ctx: HookContext) -> None:
        self.found.append(ctx.state.get("seen", 0))


@pytest.mark.spec("S0-146", "S0-310")
@pytest.mark.parametrize("number", range(1, 6))
async def test_what_a_hook_noted_of_a_result_is_there_once_wherever_the_process_dies(processes: Processes, number: int) -> None:
    @tool(effect="pure")
    async def look() -> str:
        return "nothing"

    def agent(counting: Counting) -> Agent:
        model = ScriptedModel([Reply(tool_calls=[ToolCall(name="look", arguments={})]), Reply("Done."), Reply("Again.")])
        return Agent("a", model=model, tools=[look], middleware=[counting])

    first = await processes.start(dying_after(processes, number))
    with suppress(perdure.PerdureError):
        await first.run(agent(Counting()), "Please.", session="s", submission="m1")
    counting = Counting()
    runtime = await processes.start()
    assert (await runtime.run(agent(counting), "Please.", session="s", submission="m1")).output == "Done."
    assert (await runtime.run(agent(counting), "And?", session="s", submission="m2")).output == "Again."

    assert counting.found[-1] == 1
    kept = (await runtime.sessions.checkpoint("s")).extensions
    assert {name: [*values] for name, values in kept.items()} == {"counting": ["seen"]}


@pytest.mark.spec("S0-222")
async def test_what_a_middleware_keeps_is_left_as_it_is_while_nobody_has_that_middleware(processes: Processes) -> None:
    class Turns(Middleware):
        name = "turns"

        def before_model(self, ctx: HookContext) -> None:
            ctx.state["turns"] = ctx.state.get("turns", 0) + 1
            found.append(ctx.state["turns"])

    found: list[int] = []
    model = ScriptedModel(["One.", "Two.", "Three."])
    runtime = await processes.start()
    for number, installed in enumerate(([Turns()], [], [Turns()])):
        await runtime.run(Agent("a", model=model, middleware=installed), "Please.", session="s", submission=f"m{number}")
        processes.die()
        runtime = await processes.start()

    assert found == [1, 2]
