"""An agent as a tool of another one: a session of its own, begun once, heard once, stopped with its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    ChildAsked,
    FunctionModel,
    Identity,
    InvalidAgent,
    Limits,
    ModelRequest,
    Reply,
    ScriptedModel,
    SessionMemory,
    SessionNotFound,
    StaleRequest,
    StoreBroken,
    ToolCall,
    ToolCallResponse,
    ToolContext,
    UnknownAgent,
    Usage,
    UsageError,
    tool,
)
from perdure.core import ids
from perdure.core.commands import ReportOutcome
from perdure.core.entries import ChildEnded, OperationEnded, SubmissionRefused
from perdure.core.usage import Totals
from perdure.runtime import tokens
from perdure.testing.faults import Call, Fault, FaultStore

from ..interactive.acting import PATIENCE, Place
from .conftest import Stage

USAGE = Usage(input_tokens=100, output_tokens=7)


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def asks(*calls: ToolCall) -> Reply:
    return Reply("", tool_calls=calls, usage=USAGE)


def says(text: str) -> Reply:
    return Reply(text, usage=USAGE)


def playing(*steps: Any) -> ScriptedModel:
    return ScriptedModel([*steps])


@tool(effect="external")
async def pay(ctx: ToolContext, cents: int) -> str:
    """Pay."""
    return f"paid {cents} for {ctx.owner or 'nobody'}"


def clerk(*steps: Any, **options: Any) -> Agent:
    return Agent("clerk", model=playing(*(steps or (says("The clerk says so."),))), **options)


def lead(child: Agent, *, after: Any = None, **options: Any) -> Agent:
    of_tool = {name: options.pop(name) for name in ("background", "timeout", "guard") if name in options}
    model = playing(asks(call("clerk", task="Do it.")), after or says("Done."))
    return Agent("lead", model=model, tools=[child.as_tool(**of_tool)], **options)


async def responses(runtime: Any, session: str = "s") -> list[Any]:
    history = await runtime.sessions.history(session)
    return [part.response for message in history for part in message.parts if isinstance(part, ToolCallResponse)]


async def eventually(condition: Callable[[], Any], clock: Any, every: int = 1) -> Any:
    """Until it is so; each look takes a moment of the stage's time (ms)."""
    for _ in range(2_000):
        found = condition()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        await clock.sleep_until(clock.now() + every)
    raise AssertionError("it never came to that")


async def test_the_childs_last_answer_is_the_calls_result_and_what_it_used_is_counted_once(stage: Stage) -> None:
    async with stage.process() as runtime:
        result = await runtime.run(lead(clerk()), "Please.", session="s", submission="m")

        assert (result.output, result.usage.calls, result.usage.total_tokens) == ("Done.", 3, 321)
        assert await responses(runtime) == ["The clerk says so."]
        assert (await runtime.sessions.checkpoint("s")).usage.calls == 3
        [task] = (await runtime.sessions.history("s.t2.0.1"))[:1]
        assert (task.text, task.author, task.source and task.source.kind) == ("Do it.", "lead", "parent")


async def test_what_a_session_owes_to_another_is_done_although_the_store_failed_while_it_was_done(stage: Stage) -> None:
    tried = failing = 0

    async def gate(_: Call, when: str) -> None:
        nonlocal tried
        task = asyncio.current_task()
        if when == "before" and task is not None and task.get_name().startswith("perdure errands"):
            tried += 1
            if tried == failing:
                raise StoreBroken("it fails once")

    # Given a store that fails once while a child is begun, or while its caller is told what it came to,
    async with perdure.open(FaultStore(stage.connect(), gate=gate), clock=stage.clock) as runtime:
        while tried >= failing:
            tried, failing, agent, result = 0, failing + 1, lead(clerk()), None
            async with asyncio.timeout(PATIENCE):
                # when somebody waits for the caller's turn, and asks again if the store failed them,
                while result is None:
                    with suppress(StoreBroken):
                        result = await runtime.run(agent, "Please.", session=f"s{failing}", submission="m")
                # then it comes to its end, and nobody holds the child any more.
                await eventually(partial(let_go, runtime, f"s{failing}.t2.0.1"), stage.clock)
            assert result.output == "Done."
    assert failing > 5


async def test_whoever_waits_for_a_turn_that_was_stopped_hears_of_it_before_its_children_are(stage: Stage) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def work(request: ModelRequest) -> str:
        begun.set()
        await over.wait()
        return "Done."

    async def gate(call: Call, when: str) -> None:
        task = asyncio.current_task()
        if task is not None and task.get_name() == "perdure s" and call.given == "s.t2.0.1" and begun.is_set():
            await over.wait()

    child = Agent("clerk", model=FunctionModel(work))
    async with perdure.open(FaultStore(stage.connect(), gate=gate), clock=stage.clock) as runtime:
        # Given a caller that somebody waits for while its child works,
        waiting = asyncio.create_task(runtime.run(lead(child), "Please.", session="s", submission="m"))
        await begun.wait()
        await eventually(partial(waits, runtime), stage.clock)
        # when it is stopped by a process that dies before it has stopped the child,
        dying = FaultStore(stage.connect(), [Fault(when="after", action="die")], clock=stage.clock)
        async with perdure.open(dying, clock=stage.clock) as other:
            with pytest.raises(StoreBroken):
                await other.sessions.interrupt("s")
        # then whoever waits is told, however long that takes here.
        async with asyncio.timeout(PATIENCE):
            assert (await waiting).status == "aborted"
        over.set()


async def test_a_child_that_could_not_be_worked_on_for_a_moment_is_tried_again_when_its_caller_waits_for_it(stage: Stage) -> None:
    failed, over = asyncio.Event(), asyncio.Event()

    async def gate(_: Call, when: str) -> None:
        task = asyncio.current_task()
        if when == "before" and task is not None and task.get_name() == "perdure s.t2.0.1" and not failed.is_set():
            failed.set()
            raise StoreBroken("it fails once")

    @tool(effect="external")
    async def wait() -> str:
        """Wait."""
        await over.wait()
        return "waited"

    model = playing(asks(call("clerk", task="Do it."), call("wait")), says("Done."))
    agent = Agent("lead", model=model, tools=[clerk().as_tool(), wait])
    async with perdure.open(FaultStore(stage.connect(), gate=gate), clock=stage.clock) as runtime:
        # Given a caller that does something itself, and a store that fails the work on its child meanwhile,
        waiting = asyncio.create_task(runtime.run(agent, "Please.", session="s", submission="m"))
        await failed.wait()
        await eventually(partial(let_go, runtime, "s.t2.0.1", "queued"), stage.clock)
        # when it has nothing left to do but to wait for the child,
        over.set()
        # then that is over for everybody who waits.
        assert (await waiting).output == "Done."


async def test_what_a_session_owes_is_not_done_again_by_a_commit_that_was_under_way_when_it_was_done(stage: Stage) -> None:
    committing, done = asyncio.Event(), asyncio.Event()
    errands: set[asyncio.Task[Any]] = set()
    commits = 0

    async def gate(asked: Call, when: str) -> None:
        nonlocal commits
        task = asyncio.current_task()
        assert task is not None
        if task.get_name() == "perdure errands of s" and when == "before":
            if not errands:
                task.add_done_callback(lambda _: done.set())
            errands.add(task)
            assert len(errands) == 1, "the child is begun again"
            await committing.wait()
        if (task.get_name(), asked.kind, when) == ("perdure s", "commit", "before"):
            commits += 1
            if commits == 3:
                committing.set()
                await done.wait()

    # Given a caller whose own tool ends while its child is begun,
    model = playing(asks(call("clerk", task="Do it."), call("pay", cents=5)), says("Done."))
    agent = Agent("lead", model=model, tools=[clerk().as_tool(), pay])
    async with perdure.open(FaultStore(stage.connect(), gate=gate), clock=stage.clock) as runtime:
        # when the tool's receipt is committed after that, and before it is noted,
        async with asyncio.timeout(PATIENCE):
            result = await runtime.run(agent, "Please.", session="s", submission="m")
    # then the child is begun no second time.
    assert (result.output, commits >= 3, len(errands)) == ("Done.", True, 1)


@pytest.mark.parametrize("action", ["break", "die"])
async def test_a_child_whose_deletion_was_cut_short_anywhere_is_told_to_its_caller_all_the_same(stage: Stage, action: Any) -> None:
    agent = lead(clerk(asks(call("pay", cents=5)), says("Paid."), tools=[pay], approve=["pay"]))
    failing, failed = 0, True
    async with stage.process() as runtime:
        while failed:
            # Given a caller that waits for its child,
            failing += 1
            session, child = f"s{failing}", f"s{failing}.t2.0.1"
            running = asyncio.create_task(runtime.run(agent, "Please.", session=session, submission="m"))
            await eventually(partial(_asks, runtime, child), stage.clock)
            running.cancel()
            # when that is deleted by a process whose store fails, and then again,
            store = FaultStore(stage.connect(), clock=stage.clock)
            async with perdure.open(store, clock=stage.clock) as other:
                begun = store.count("any")
                store.faults = [Fault(kind="any", nth=begun + failing, action=action)]
                try:
                    await other.sessions.delete(child)
                    failed = store.count("any") >= begun + failing
                except StoreBroken:
                    pass
            with suppress(SessionNotFound):
                await runtime.sessions.delete(child)
            # then the caller knows.
            ended = [entry for entry in await runtime.sessions.entries(session) if isinstance(entry, OperationEnded)]
            assert (failing, "t2.0.1" in [entry.operation for entry in ended]) == (failing, True)
    assert failing > 20


async def _asks(runtime: Any, session: str) -> bool:
    with suppress(SessionNotFound):
        return bool(await runtime.sessions.requests(session))
    return False


async def waits(runtime: Any) -> bool:
    return (await runtime.sessions.info("s")).status == "waiting"


async def let_go(runtime: Any, session: str, status: str = "idle") -> bool:
    return bool((await runtime.sessions.info(session)).status == status)


@pytest.mark.spec("S0-229")
async def test_a_child_remembers_nothing_unless_its_own_agent_does(stage: Stage) -> None:
    memory = SessionMemory(min_tokens=1, min_text_messages=1)
    model = ScriptedModel([asks(call("clerk", task="Do it.")), says("Done.")])
    async with stage.process() as runtime:
        for session, its_own in (("s", None), ("t", memory)):
            child = clerk(memory=its_own)
            lead = Agent("lead", model=model, tools=[child.as_tool()], memory=memory)
            await runtime.run(lead, "Please.", session=session, submission="m")
            kinds = [{item.kind for item in await runtime.sessions.model_calls(name)} for name in (session, f"{session}.t2.0.2")]
            assert kinds == [{"model", "memory"}, {"model", "memory"} if its_own else {"model"}]


@pytest.mark.spec("B-A-173")
async def test_a_branch_of_a_child_is_nobodys_child_and_reports_to_nobody(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(says("The clerk says so."), says("And this."))
        await runtime.run(lead(child), "Please.", session="s", submission="m")
        caller = await runtime.sessions.entries("s")

        await runtime.sessions.fork("s.t2.0.1", session_id="f")
        info, checkpoint = await runtime.sessions.info("f"), await runtime.sessions.checkpoint("f")
        assert (info.parent, info.parent_kind, info.status, info.wake_at) == ("s.t2.0.1", "fork", "idle", None)
        assert (checkpoint.parent, checkpoint.errands, checkpoint.background) == (None, (), ())
        assert (await runtime.run(child, "And now?", session="f")).ok

        assert await runtime.sessions.entries("s") == caller
        assert [item.session_id for item in await runtime.sessions.list()] == ["f", "s"]


async def test_the_child_belongs_to_whom_the_caller_belongs_and_knows_what_is_noted(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=5)), says("Paid."), tools=[pay])
        identity = Identity(owner="acme", user="ann")
        await runtime.run(lead(child), "Please.", session="s", submission="m", identity=identity, metadata={"plan": "gold"})

        info = await runtime.sessions.info("s.t2.0.1")
        assert (info.identity, info.owner, info.metadata, info.parent, info.parent_kind) == (
            identity,
            "acme",
            {"plan": "gold"},
            "s",
            "child",
        )
        assert await responses(runtime, "s.t2.0.1") == ["paid 5 for acme"]
        with pytest.raises(SessionNotFound):
            await runtime.sessions.owned_by("eve").info("s.t2.0.1")


async def test_a_parent_that_waits_for_a_person_behind_its_child_is_held_by_nobody_and_woken_by_nothing_else(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=5)), says("Paid."), tools=[pay], approve=["pay"])
        running = asyncio.ensure_future(runtime.run(lead(child), "Please.", session="s", submission="m"))
        [request] = await eventually(lambda: _asked(runtime), stage.clock)

        for session in ("s", "s.t2.0.1"):
            info = await runtime.sessions.info(session)
            assert (info.status, info.holder, info.wake_at) == ("waiting", None, None)
        assert (request.session_id, request.name, request.arguments) == ("s.t2.0.1", "pay", {"cents": 5})
        assert await runtime.sessions.requests("s") == []
        # Answered at the session that called.
        await runtime.sessions.approve("s", request.request_id)
        assert (await running).output == "Done."


async def _asked(runtime: Any) -> Any:
    try:
        return await runtime.sessions.requests("s", children=True)
    except SessionNotFound:
        return []


async def test_who_watches_the_caller_hears_that_a_child_asks(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=5)), says("Paid."), tools=[pay], approve=["pay"])
        async with runtime.session("s", lead(child)) as handle:
            await handle.send("Please.", submission="m")
            async for event in handle.events():
                if isinstance(event, ChildAsked):
                    assert (event.session_id, event.agent) == ("s.t2.0.1", "clerk")
                    await runtime.sessions.deny(event.session_id, event.request_id)
                if getattr(event, "kind", "") == "turn_completed":
                    break


async def test_an_answer_to_a_request_that_nobody_asks_is_stale_whatever_the_children_ask(stage: Stage) -> None:
    async with stage.process() as runtime:
        await runtime.run(lead(clerk()), "Please.", session="s", submission="m")

        with pytest.raises(StaleRequest):
            await runtime.sessions.approve("s", "0123456789abcdef")


async def test_one_slot_is_enough_for_three_levels(stage: Stage) -> None:
    async with stage.process(capacity=1) as runtime:
        boss = Agent("boss", model=playing(asks(call("lead", task="Go.")), says("All done.")), tools=[lead(clerk()).as_tool()])

        assert (await runtime.run(boss, "Please.", session="s", submission="m")).output == "All done."


async def test_running_it_again_after_it_ended_calls_nobody(stage: Stage) -> None:
    async with stage.process() as runtime:
        first = await runtime.run(lead(clerk()), "Please.", session="s", submission="m")
    async with stage.process() as runtime:
        silent = lead(clerk().replace(model=playing())).replace(model=playing())
        assert await runtime.run(silent, "Please.", session="s", submission="m") == first


async def test_a_list_shows_callers_and_on_request_whom_they_called(stage: Stage) -> None:
    async with stage.process() as runtime:
        await runtime.run(lead(clerk()), "Please.", session="s", submission="m")

        assert [info.session_id for info in await runtime.sessions.list()] == ["s"]
        assert {info.session_id for info in await runtime.sessions.list(children=True)} == {"s", "s.t2.0.1"}
        assert [(branch.session_id, branch.parent_kind, branch.agent, branch.depth) for branch in await runtime.sessions.tree("s")] == [
            ("s", None, "lead", 0),
            ("s.t2.0.1", "child", "clerk", 1),
        ]


@pytest.mark.parametrize("background", [False, True])
async def test_a_child_that_fails_is_told_as_an_error_and_the_turn_goes_on(stage: Stage, background: bool) -> None:
    def broken(request: ModelRequest) -> Reply:
        raise ValueError("no such thing")

    async with stage.process() as runtime:
        agent = lead(clerk(broken), background=background, after=says("It can't be done."))
        agent = agent.replace(model=playing(asks(call("clerk", task="Do it.")), says("It is under way."), says("It can't be done.")))
        async with runtime.session("s", agent) as handle:
            await handle.send("Please.", submission="m")
            await eventually(lambda: runtime.sessions.result("s", "m"), stage.clock)
            told = await eventually(lambda: _told_of_failure(runtime), stage.clock)
        assert "did not come to an end: failed" in told
        assert "what it did so far stays done" in told


async def _told_of_failure(runtime: Any) -> str:
    history = await runtime.sessions.history("s")
    texts = [message.text for message in history if message.source is not None]
    texts += [str(item) for item in await responses(runtime)]
    return next((text for text in texts if "did not come" in text), "")


async def test_a_call_beyond_a_limit_is_answered_with_an_error_that_the_model_reads(stage: Stage) -> None:
    async with stage.process() as runtime:
        for name, limits, words in (
            ("number", Limits(children=0), "a turn calls 0 agents at most"),
            ("depth", Limits(depth=0), "0 levels deep at most"),
        ):
            result = await runtime.run(lead(clerk(), limits=limits), "Please.", session=name, submission="m")
            assert result.output == "Done."
            assert words in (await responses(runtime, name))[0]
            assert await runtime.sessions.tree(name) != []
            assert len(await runtime.sessions.tree(name)) == 1


async def test_agents_call_agents_four_levels_deep_and_no_deeper(stage: Stage) -> None:
    deepest = Agent("a5", model=playing(says("too deep")))
    for level in (4, 3, 2, 1, 0):
        deepest = Agent(f"a{level}", model=playing(asks(call(deepest.name, task="go")), says(f"level {level}")), tools=[deepest.as_tool()])
    async with stage.process() as runtime:
        await runtime.run(deepest, "Go.", session="s", submission="m")

        tree = await runtime.sessions.tree("s")
        assert [branch.agent for branch in tree] == ["a0", "a1", "a2", "a3", "a4"]
        assert "4 levels deep at most" in (await responses(runtime, tree[-1].session_id))[0]


async def test_a_child_that_never_ends_is_given_up_and_stopped(stage: Stage) -> None:
    async def never(request: ModelRequest) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    async with stage.process() as runtime:
        child = clerk().replace(model=FunctionModel(never))
        result = await runtime.run(lead(child, timeout=60.0), "Please.", session="s", submission="m")

        assert result.output == "Done."
        assert "it did not come to an end in time" in (await responses(runtime))[0]
        await eventually(lambda: _ended(runtime), stage.clock)
        assert [entry.kind for entry in await runtime.sessions.entries("s.t2.0.1") if entry.kind.startswith("turn_")][-1] == "turn_aborted"


async def _ended(runtime: Any) -> bool:
    child, parent = await runtime.sessions.checkpoint("s.t2.0.1"), await runtime.sessions.checkpoint("s")
    return child.turn is None and not child.errands and not parent.background


async def test_what_a_child_spends_that_was_stopped_is_counted_all_the_same(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=5)), tools=[pay], approve=["pay"])
        async with runtime.session("s", lead(child)) as handle:
            await handle.send("Please.", submission="m")
            await eventually(lambda: _asked(runtime), stage.clock)
            await handle.interrupt()
            await eventually(lambda: _ended(runtime), stage.clock)

        assert (await runtime.sessions.checkpoint("s")).usage.calls == 2
        [ended] = [entry for entry in await runtime.sessions.entries("s") if isinstance(entry, ChildEnded)]
        assert (ended.operation, ended.outcome, ended.spent.calls) == ("t2.0.1", "aborted", 1)


async def test_a_parent_that_is_deleted_takes_its_child_with_it(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=5)), tools=[pay], approve=["pay"])
        running = asyncio.ensure_future(runtime.run(lead(child), "Please.", session="s", submission="m"))
        [request] = await eventually(lambda: _asked(runtime), stage.clock)

        await runtime.sessions.delete("s")

        for session in ("s", "s.t2.0.1"):
            with pytest.raises(SessionNotFound):
                await runtime.sessions.info(session)
        with pytest.raises(SessionNotFound):
            await running
        with pytest.raises(SessionNotFound):
            await runtime.sessions.approve("s.t2.0.1", request.request_id)


async def test_a_child_that_somebody_deletes_is_told_to_its_parent(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=5)), tools=[pay], approve=["pay"])
        running = asyncio.ensure_future(runtime.run(lead(child), "Please.", session="s", submission="m"))
        await eventually(lambda: _asked(runtime), stage.clock)

        await runtime.sessions.delete("s.t2.0.1")

        assert (await running).output == "Done."
        assert "did not come to an end: aborted" in (await responses(runtime))[0]


def _on_a_file(directory: Path) -> tuple[Place, Stage, Agent]:
    """A place whose rows can be damaged, and an agent whose child asks somebody."""
    place = Place("sqlite", directory / "agents.db", auto=True)
    return place, Stage(place), lead(clerk(asks(call("pay", cents=5)), tools=[pay], approve=["pay"]))


async def _leave_asking(runtime: Any, agent: Agent, stage: Stage) -> None:
    running = asyncio.ensure_future(runtime.run(agent, "Please.", session="s", submission="m"))
    await eventually(lambda: _asked(runtime), stage.clock)
    running.cancel()


@pytest.mark.parametrize("readable", [True, False])
async def test_a_halted_child_that_is_deleted_is_told_to_its_caller(tmp_path: Path, readable: bool) -> None:
    place, stage, agent = _on_a_file(tmp_path)
    async with stage.process() as runtime:
        await _leave_asking(runtime, agent, stage)
        await runtime.sessions.halt("s.t2.0.1", reason="look into it")
    if not readable:
        place.execute("UPDATE sessions SET checkpoint = 'nothing' WHERE session_id = 's.t2.0.1'")
    async with stage.process() as runtime:
        await runtime.sessions.delete("s.t2.0.1")

        assert (await runtime.run(agent, "Please.", session="s", submission="m")).output == "Done."
        assert "was deleted before it came to an end" in (await responses(runtime))[0]
        ends = [entry for entry in await runtime.sessions.entries("s") if isinstance(entry, OperationEnded)]
        [ended] = [entry for entry in ends if entry.operation == "t2.0.1"]
        assert ended.spent is not None
        assert (ended.status, ended.spent.calls, ended.spent.unknown_calls) == ("failed", 1, not readable)


async def test_a_child_whose_labels_can_not_be_read_and_that_is_deleted_is_told_to_its_parent(tmp_path: Path) -> None:
    place, stage, agent = _on_a_file(tmp_path)
    async with stage.process() as runtime:
        await _leave_asking(runtime, agent, stage)
    # A process that has the child would halt it as soon as it looks.
    place.execute("UPDATE sessions SET labels = '[1]' WHERE session_id = 's.t2.0.1'")
    async with stage.process() as runtime:
        await runtime.sessions.delete("s.t2.0.1")

        assert (await runtime.run(agent, "Please.", session="s", submission="m")).output == "Done."
        assert "did not come to an end: aborted" in (await responses(runtime))[0]


async def test_a_child_that_is_put_away_before_it_began_is_told_to_its_parent(stage: Stage) -> None:
    async with stage.process() as runtime:
        agent = lead(clerk())
        # Nobody here knows the child's agent: it is begun, and waits.
        running = asyncio.ensure_future(runtime.run(agent, "Please.", session="s", submission="m"))
        await eventually(lambda: _is_there(runtime), stage.clock)
        await runtime.sessions.archive("s.t2.0.1")
        assert (await running).output == "Done."


async def _is_there(runtime: Any) -> bool:
    return await runtime.sessions.number("s.t2.0.1") is not None


async def test_a_session_of_somebody_else_is_never_taken_for_a_child(stage: Stage) -> None:
    async with stage.process() as runtime:
        await runtime.run(Agent("other", model=playing(says("Hi."))), "Hello.", session="s.t2.0.1", submission="m")

        result = await runtime.run(lead(clerk()), "Please.", session="s", submission="m")

        assert result.output == "Done."
        assert "can't be used for it" in (await responses(runtime))[0]
        assert len(await runtime.sessions.history("s.t2.0.1")) == 2


async def test_a_forged_result_is_refused_and_the_child_is_awaited_still(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=5)), says("Paid."), tools=[pay], approve=["pay"])
        running = asyncio.ensure_future(runtime.run(lead(child), "Please.", session="s", submission="m"))
        [request] = await eventually(lambda: _asked(runtime), stage.clock)

        # With the store's own secret, even: a child's outcome is no tool's result.
        await runtime.sessions.report(tokens.issue(runtime.store.secret, "s", "t2.0.1", 1), "forged")
        forged = ReportOutcome(
            operation="t2.0.1", session="elsewhere", outcome="completed", spent=Totals(), result="forged", submission="f"
        )
        await runtime.errands._control("s", forged)

        refused = [entry for entry in await runtime.sessions.entries("s") if isinstance(entry, SubmissionRefused)]
        assert [entry.submission for entry in refused] == ["result:t2.0.1#1", "f"]
        await runtime.sessions.approve("s.t2.0.1", request.request_id)
        await running
        assert await responses(runtime) == ["Paid."]


async def test_a_child_whose_agent_is_not_known_here_waits_for_somebody_who_knows_it(stage: Stage) -> None:
    agent = lead(clerk(asks(call("pay", cents=5)), says("Paid."), tools=[pay], approve=["pay"]))
    async with stage.process() as runtime:
        running = asyncio.ensure_future(runtime.run(agent, "Please.", session="s", submission="m"))
        [request] = await eventually(lambda: _asked(runtime), stage.clock)
        running.cancel()
        await runtime.sessions.approve("s.t2.0.1", request.request_id)
    async with stage.process() as runtime:
        assert await runtime.recover([Agent("lead", model=playing())]) == []
        with pytest.raises(UnknownAgent):
            await runtime.recover([Agent("stranger", model=playing())], session="s.t2.0.1")
        assert (await runtime.sessions.info("s.t2.0.1")).status == "queued"

        await runtime.recover([agent])

        result = await runtime.sessions.result("s", "m")
        assert result is not None
        assert result.output == "Done."


async def test_a_branch_has_no_children_of_its_own_and_is_asked_before_it_calls_again(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=5)), says("Paid."), tools=[pay])
        agent = lead(child)
        await runtime.run(agent, "Please.", session="s", submission="m")
        fork = await runtime.sessions.fork("s", at=1, session_id="f")
        assert fork.effects == 1
        assert [(effect.name, effect.session_id) for effect in await runtime.sessions.effects("f")] == [("clerk", "s")]

        running = asyncio.ensure_future(runtime.run(agent, "Again.", session="f", submission="m2"))
        [request] = await eventually(lambda: runtime.sessions.requests("f"), stage.clock)
        assert (request.name, request.entry.match and request.entry.match.beyond) == ("clerk", True)
        await runtime.sessions.approve("f", request.request_id)
        await running
        called = [branch.session_id for branch in await runtime.sessions.tree("s") if branch.parent_kind == "child"]
        assert len(called) == 2
        assert called[1].startswith("f.")


async def test_a_call_of_an_agent_in_the_background_is_an_effect_that_a_branch_asks_about(stage: Stage) -> None:
    # The stage verifies what is stored as its process ends.
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=5)), says("Paid."), tools=[pay])
        agent = lead(child, background=True)
        await runtime.run(agent, "Please.", session="s", submission="m")

        assert (await runtime.sessions.fork("s", at=1, session_id="f", while_running=True)).effects == 1
        running = asyncio.ensure_future(runtime.run(agent, "Again.", session="f", submission="m2"))
        [request] = await eventually(lambda: runtime.sessions.requests("f"), stage.clock)
        assert (request.name, request.entry.match and request.entry.match.beyond) == ("clerk", True)
        await runtime.sessions.approve("f", request.request_id)
        await running


async def test_a_child_that_can_do_nothing_is_no_effect(stage: Stage) -> None:
    async with stage.process() as runtime:
        await runtime.run(lead(clerk()), "Please.", session="s", submission="m")

        assert (await runtime.sessions.fork("s", at=1, session_id="f")).effects == 0


async def test_a_report_from_the_background_is_an_agents_word_and_begins_a_turn(stage: Stage) -> None:
    async with stage.process() as runtime:
        agent = lead(clerk(), background=True)
        agent = agent.replace(model=playing(asks(call("clerk", task="Do it.")), says("It is under way."), says("It is done.")))
        async with runtime.session("s", agent) as handle:
            await handle.send("Please.", submission="m")
            result = await eventually(lambda: runtime.sessions.result("s", "report:t2.0.1"), stage.clock)
            await eventually(lambda: _ended(runtime), stage.clock)

        assert result.output == "It is done."
        report = (await runtime.sessions.history("s"))[4]
        assert (report.role, report.author, report.source and report.source.kind) == ("user", "clerk", "agent")
        assert report.text.endswith("The clerk says so.")
        assert (await runtime.sessions.checkpoint("s")).usage.calls == 4


async def test_reports_that_lead_to_calls_that_lead_to_reports_come_to_an_end_until_somebody_speaks(stage: Stage) -> None:
    def play(request: ModelRequest) -> Reply:
        told = [part for part in request.messages[-1].parts if isinstance(part, ToolCallResponse)]
        return says("Under way.") if told else asks(call("clerk", task="Again."))

    agent = Agent("lead", model=FunctionModel(play), tools=[clerk().as_tool(background=True)], limits=Limits(reports=2))

    async def refused() -> int:
        ended = await runtime.sessions.entries("s", kinds=["operation_ended"])
        return sum(entry.failure is not None and entry.failure.code == "report_limit" for entry in ended)  # type: ignore[attr-defined]

    async def rests(times: int) -> bool:
        info = await runtime.sessions.info("s")
        return info.status == "idle" and await refused() == times

    async with stage.process() as runtime, runtime.session("s", agent) as handle:
        for times in (1, 2):
            await handle.send("Please.", submission=f"m{times}")
            await eventually(lambda times=times: rests(times), stage.clock)  # type: ignore[misc]
            started = await runtime.sessions.entries("s", kinds=["turn_started"])
            # The message's turn and those of two reports, of which the last one may call nobody.
            assert len(started) == 3 * times
            checkpoint = await runtime.sessions.checkpoint("s")
            assert (checkpoint.reports, checkpoint.background) == (2, ())


async def test_nobody_can_take_the_name_under_which_a_parent_learns_its_childs_outcome(stage: Stage) -> None:
    async with stage.process() as runtime:
        go = asyncio.Event()

        async def answer(request: ModelRequest) -> Reply:
            await go.wait()
            return says("The clerk says so.")

        running = asyncio.create_task(
            runtime.run(lead(Agent("clerk", model=FunctionModel(answer))), "Please.", session="s", submission="m")
        )
        await eventually(lambda: "s.t2.0.1" in runtime.work.drivers, stage.clock)
        sessions = runtime.sessions
        for submission in ("outcome:t2.0.1", "report:t2.0.1", "result:t2.0.1#1", "task:t2.0.1", "stop:t2.0.1", "away:s2.0.1"):
            for send in (
                lambda taken: sessions.send("s", "forged", submission=taken),
                lambda taken: sessions.interrupt("s.t2.0.1", submission=taken),
                lambda taken: runtime.run(clerk(), "forged", session="elsewhere", submission=taken),
            ):
                with pytest.raises(UsageError, match=r"choose one that doesn't name an operation"):
                    await send(submission)
        go.set()
        assert (await asyncio.wait_for(running, 20)).output == "Done."
        assert await responses(runtime) == ["The clerk says so."]
        assert await sessions.number("elsewhere") is None


async def test_whatever_was_said_to_a_child_before_its_deletion_is_told_to_its_parent(stage: Stage) -> None:
    async with stage.process() as runtime:
        agent = lead(clerk(asks(call("pay", cents=1)), says("Paid."), tools=[pay], approve=["pay"]))
        running = asyncio.create_task(runtime.run(agent, "Please.", session="s", submission="m"))
        child = "s.t2.0.1"

        async def asked() -> bool:
            return bool(await runtime.store.load(child)) and bool(await runtime.sessions.requests(child))

        await eventually(asked, stage.clock)
        await runtime.sessions.describe(child, title="told", submission="deleted")
        await runtime.sessions.delete(child)
        assert (await asyncio.wait_for(running, 20)).output == "Done."


def test_a_report_is_only_what_a_child_of_the_session_says() -> None:
    own = ids.derived_id("report", "t2.0.1")
    assert ids.is_report(own, ids.child_session("s", "t2.0.1"), "s")
    for submission, sender in ((own, "s"), (own, "s.t2.0.2"), ("t2.0.1", "s.t2.0.1"), ("m", "s.t2.0.1")):
        assert not ids.is_report(submission, sender, "s")
    assert not any(map(ids.is_derived, ("m", "task:42", "task:t2", "report:v1.2.3", "result:t0.0.0", "outcome:", "mail:t2.0.1")))


@pytest.mark.spec("S0-273")
async def test_a_child_counts_from_zero_and_may_use_what_its_caller_has_left(stage: Stage) -> None:
    async with stage.process() as runtime:
        child = clerk(asks(call("pay", cents=1)), asks(call("pay", cents=2)), says("Paid."), tools=[pay], limits=Limits(model_calls=3))
        result = await runtime.run(lead(child), "Please.", session="s", submission="m")
        # Three calls of its own are allowed to it, whatever was used before.
        assert (result.output, await responses(runtime)) == ("Done.", ["Paid."])

        child = child.replace(limits=Limits())
        result = await runtime.run(lead(child, limits=Limits(tokens=250)), "Please.", session="t", submission="m")

        # 107 are used, so that 143 are left to the child: after two calls it has used them up, and so has its caller.
        assert (result.status, result.usage.total_tokens) == ("limited", 107 + 2 * 107)
        [ended] = [entry for entry in await runtime.sessions.entries("t.t2.0.1") if entry.kind == "turn_limited"]
        assert ended.reason == "limit reached: tokens of this run"  # type: ignore[attr-defined]


async def test_nobody_is_called_for_whom_nothing_is_left(stage: Stage) -> None:
    async with stage.process() as runtime:
        result = await runtime.run(lead(clerk(), limits=Limits(model_calls=1)), "Please.", session="s", submission="m")

        assert result.status == "limited"
        assert "nothing is left of a budget" in (await responses(runtime))[0]
        assert await runtime.sessions.number("s.t2.0.1") is None


async def test_two_agents_of_one_name_are_refused_where_they_are_declared() -> None:
    one, other = clerk(), clerk()
    with pytest.raises(InvalidAgent, match="two agents"):
        Agent("lead", tools=[one.as_tool(), other.as_tool(name="other")])
    assert set(lead(one).team) == {"lead", "clerk"}


async def test_the_receipt_says_what_the_child_spent(stage: Stage) -> None:
    async with stage.process() as runtime:
        await runtime.run(lead(clerk()), "Please.", session="s", submission="m")

        receipts = [entry for entry in await runtime.sessions.entries("s") if isinstance(entry, OperationEnded)]
        assert [entry.spent.calls if entry.spent else None for entry in receipts] == [None, 1, None]
        assert [call.operation for call in await runtime.sessions.model_calls("s")] == ["t2.0.0", "t2.1.0"]
