"""The source tests of the behaviours' page (11.2 … 11.17), step by step, in our shape. Their stored fixtures run with ``stop``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    ApprovalRequested,
    FunctionModel,
    Identity,
    MessageAdded,
    OperationEnded,
    OperationStarted,
    ProviderRefused,
    Recovered,
    Reply,
    SessionOpened,
    ToolCall,
    TurnAborted,
    TurnCompleted,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    tool,
)
from perdure.core.phase import phase
from perdure.store.base import Claim, Committed
from perdure.testing import Fault, find_problems

from .acting import UNKNOWN, Past, Place, counting, drain, eventually, lived, restarted, told, transcript, until

REJECT = "CREATE TRIGGER reject BEFORE INSERT ON journal WHEN NEW.kind = 'turn_aborted' BEGIN SELECT RAISE(ABORT, 'rejected'); END"
ACCEPT = "DROP TRIGGER reject"

executed: list[str] = []


@tool
async def approval_required() -> str:
    """Do what a person has to allow."""
    executed.append("approval_required")
    return "executed"


def scripted_call() -> Agent:
    model, _ = counting(Reply(tool_calls=[ToolCall("approval_required", {}, "reviewed-call")]), Reply("unreachable"))
    return Agent("bot", instructions="test prompt", model=model, tools=[approval_required], approve=["approval_required"])


async def asked(handle: perdure.Session) -> ApprovalRequested:
    seen = await until(handle, ApprovalRequested, after=0)
    return seen[-1]  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------------------- 11.2


@pytest.mark.spec("S2-045", "S2-088", "S2-089")
async def test_11_2_closing_an_interrupted_turn_is_one_commit_and_all_or_nothing(disk: Place) -> None:
    agent = scripted_call()
    async with disk.process() as process, process.session("s", agent) as handle:
        await handle.send("run it", submission="m-1")
        request = await asked(handle)
        turn = request.operation.split(".")[0]
        await eventually(lambda: _free(process))
        before = await process.everything()
        disk.execute(REJECT)
        with pytest.raises(perdure.StoreError):
            await handle.interrupt(turn=turn, submission="stop-1")
    async with disk.process() as process:
        # Execution, approval and call are all still there, and nothing else is.
        assert await process.everything() == before
        checkpoint = await process.sessions.checkpoint("s")
        assert checkpoint.turn is not None
        assert [(item.plan.call, item.request) for item in checkpoint.turn.tools] == [("reviewed-call", request.request_id)]
        assert await process.store.submission(before[0].no, "stop-1") is None
    disk.execute(ACCEPT)
    async with disk.process() as process, process.session("s", agent) as handle:
        assert (await asked(handle)) == request
        await handle.interrupt(turn=turn, submission="stop-2")
        ended = (await until(handle, after=request.seq))[-1]
        assert isinstance(ended, TurnAborted)
        assert (ended.turn, ended.interrupt) == (turn, "stop-2")
    async with disk.process() as process:
        assert (await process.sessions.checkpoint("s")).turn is None
        assert await process.sessions.requests("s") == []
        assert (await process.sessions.info("s")).status == "idle"
        assert await find_problems(process.store, "s") == []
    assert not executed


@pytest.mark.spec("S2-090", "S2-124", "S2-125")
async def test_11_2_a_question_is_asked_again_after_a_restart_until_its_turn_is_interrupted_and_never_after(place: Place) -> None:
    agent = scripted_call()
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("run it", submission="m-1")
        request = await asked(handle)
    for _ in range(2):
        async with place.process() as process, process.session("s", agent) as handle:
            # Live to every new handle, before anything else, and nothing is written for it.
            events = handle.events()
            opened = await anext(events)
            again = await anext(events)
            assert isinstance(opened, SessionOpened)
            assert isinstance(again, ApprovalRequested)
            assert (again.request_id, again.operation, again.seq) == (request.request_id, request.operation, request.seq)
            assert (await process.row()).version == opened.version == request.seq
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.interrupt(turn=request.operation.split(".")[0])
        assert isinstance((await until(handle))[-1], TurnAborted)
        version = (await process.row()).version
    async with place.process() as process:
        seen = await restarted(process, agent)
        assert [told(event) for event in seen] == ["opened"]
        assert (await process.row()).version == version
        assert await process.sessions.requests("s") == []
        with pytest.raises(perdure.StaleRequest):
            await process.sessions.approve("s", request.request_id)
    assert not executed


@pytest.mark.spec("S2-046", "B-B-213")
async def test_11_2_a_holder_whose_closing_commit_fails_stops_and_its_stream_ends_without_the_end_of_the_turn(disk: Place) -> None:
    """RS-19: what is stored is the state before the end, and after a repair its own row of the table applies again."""
    at_work = asyncio.Event()

    @tool
    async def work() -> str:
        """Never end."""
        at_work.set()
        await asyncio.Event().wait()
        return ""

    model, _ = counting(Reply(tool_calls=[ToolCall("work", {}, "call-1")]), Reply("unreachable"))
    agent = Agent("bot", model=model, tools=[work])
    seen: list[Any] = []
    async with disk.process() as process, process.session("s", agent) as handle:
        await handle.send("run it", submission="m-1")
        await at_work.wait()
        before = (await process.row()).checkpoint
        disk.execute(REJECT)
        await handle.interrupt(submission="stop-1")
        with pytest.raises(perdure.StoreError):
            await drain(handle, seen)
        assert not any(isinstance(event, TurnEnded) for event in seen)
        assert (await process.row()).checkpoint == before
        assert [row.submission_id for row in await process.pending()] == ["stop-1"]
    disk.execute(ACCEPT)
    async with disk.process() as process:
        seen = await restarted(process, agent)
        assert [told(event) for event in seen] == [
            *["opened", "ended t2.0.1#1 uncertain", "message tool", "recovered t2", "turn_aborted t2"],
        ]
        assert seen[-1].interrupt == "stop-1"
        assert (await process.sessions.checkpoint("s")).turn is None
        assert await find_problems(process.store, "s") == []


async def _free(process: Any) -> bool:
    return (await process.row()).holder is None


# ---------------------------------------------------------------------------------------------------------------- 11.9


@pytest.mark.spec("S2-041", "S2-042", "S2-043")
async def test_11_9_a_holder_that_lost_the_race_stops_and_the_winners_state_stays_byte_for_byte(place: Place) -> None:
    """RS-17. The loser holds a running turn, a message for the next and a finished answer; none of it reaches the winner's session."""
    gate, thinking = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> str:
        thinking.set()
        await gate.wait()
        return "the loser's answer"

    agent = Agent("bot", model=FunctionModel(slow))
    async with place.process() as process, place.process() as winner:
        await winner.engage_as_runner()
        async with process.session("s", agent) as handle:
            await handle.send("target", submission="m-1")
            await thinking.wait()
            row = await process.row()
            past = await winner.batch("s")
            past.note("the winner was here")
            commit = past.commit(holder=None, claim=Claim(runner=winner.runner_id, force=True))
            assert isinstance(await winner.store.commit(commit), Committed)
            won = await winner.everything()
            assert (won[0].version, won[0].fence) == (row.version + 1, row.fence + 1)
            gate.set()
            seen: list[Any] = []
            with pytest.raises(perdure.Fenced):
                await drain(handle, seen)
            assert not any(isinstance(event, OperationEnded | TurnEnded) for event in seen)
        assert await winner.everything() == won
        # A commit on the state that the loser knew is refused with what is true now, and writes nothing either.
        answer = await process.store.commit(commit)
        assert (answer.version, answer.fence) == (row.version + 1, row.fence + 1)  # type: ignore[union-attr]
        assert await winner.everything() == won


# --------------------------------------------------------------------------------------------------------------- 11.10


@pytest.mark.spec("S2-137", "S0-165")
async def test_11_10_a_resumed_session_keeps_the_identity_that_it_was_created_with(place: Place) -> None:
    created = Identity(owner="test-bot", tenant="acme", user="ann", workspace="the project", origin="terminal")
    seen: list[str] = []

    @tool(effect="pure")
    async def whose(ctx: perdure.ToolContext) -> str:
        """Say whose session it is."""
        seen.append(ctx.owner)
        return ctx.owner

    def agent() -> Agent:
        def answer(request: Any) -> Reply:
            return Reply("done") if request.step else Reply(tool_calls=[ToolCall("whose", {})])

        return Agent("bot", model=FunctionModel(answer), tools=[whose])

    async with place.process() as process:
        await process.run(agent(), "first", session="s", identity=created)
    other = Identity(owner="somebody-else", tenant="other", user="eve", workspace="elsewhere", origin="mail")
    async with place.process() as process:
        await process.run(agent(), "second", session="s", identity=other)
        async with process.session("s", agent(), identity=other) as handle:
            await handle.send("third")
            await until(handle)
        await process.sessions.send("s", "fourth", identity=other)
        assert (await process.sessions.checkpoint("s")).identity == created
        info = await process.sessions.info("s")
        assert info.owner == "test-bot"
        assert [row.session_id for row in await process.sessions.list(owner="somebody-else")] == []
    assert seen == ["test-bot"] * 3


# --------------------------------------------------------------------------------------------------------------- 11.13


@tool
async def write_file(path: str) -> str:
    """Write a file."""
    Path(path).write_text("replayed")
    executed.append(path)
    return "written"


def writer(*replies: Any) -> tuple[Agent, list[Any]]:
    model, asked = counting(*(replies or (ProviderRefused("no"),)))
    return Agent("bot", instructions="test prompt", model=model, tools=[write_file], on_restart="stop"), asked


STEER = ("m-2", "queued after restart", "steer")


def call_pending(past: Past) -> None:
    past.accept("m-1")
    past.ask_model()
    past.answered(ToolCall("write_file", {"path": "never.txt"}, "call-1"))
    past.plan()


@pytest.mark.spec("S2-022", "S2-023", "S2-024")
async def test_11_13_a_steer_of_a_turn_that_a_restart_closed_becomes_a_turn_of_its_own_after_it(place: Place) -> None:
    agent, asked = writer()
    await lived(place, agent, call_pending, ("m-1", "go", "turn"), STEER)
    async with place.process() as process:
        seen = await restarted(process, agent)
        assert isinstance(seen[0], SessionOpened)
        closing, delivery = [
            event for event in seen if (isinstance(event, OperationEnded) and event.operation == "t2.0.1") or _is_user(event)
        ]
        assert isinstance(closing, OperationEnded)
        assert (delivery.submission, delivery.deliver, delivery.parts[0].content) == ("m-2", "queue", "queued after restart")
        # Its own turn, with its own end: the model that answers it fails.
        begun = [event for event in seen if isinstance(event, TurnStarted)]
        ends = [event for event in seen if isinstance(event, TurnEnded)]
        assert [event.submission for event in begun] == ["m-2"]
        assert [(type(event), event.turn, event.submission) for event in ends] == [
            (TurnAborted, "t2", "m-1"),
            (TurnFailed, begun[0].turn, "m-2"),
        ]
        order = [seen.index(event) for event in (closing, ends[0], begun[0], delivery, ends[1])]
        assert order == sorted(order)
        # The promotion stands in the commit that closed the turn.
        kinds = [[entry.kind for entry in commit.entries] for commit in process.faulty.commits]
        assert {"turn_aborted", "queue_changed"} <= {*kinds[0]}
    assert len(asked) == 1


def _is_user(event: Any) -> bool:
    return isinstance(event, MessageAdded) and event.role == "user"


@pytest.mark.spec("S2-104", "S2-105", "S2-106")
async def test_11_13_a_pending_call_gets_an_error_result_with_the_exact_text_and_is_announced_with_its_ids(place: Place) -> None:
    agent, _ = writer()
    await lived(place, agent, call_pending, ("m-1", "go", "turn"), STEER)
    async with place.process() as process:
        seen = await restarted(process, agent)
        ended = next(event for event in seen if isinstance(event, OperationEnded))
        assert (ended.operation.split(".")[0], ended.status, ended.final) == ("t2", "uncertain", True)
        (part,) = ended.parts
        assert isinstance(part, perdure.ToolCallResponse)
        assert (part.id, part.name, part.response, part.is_error) == ("call-1", "write_file", UNKNOWN, True)
        stored = [message for message in await process.sessions.history("s") if message.role == "tool"]
        assert [message.parts for message in stored] == [(part,)]


@pytest.mark.spec("S2-066", "S2-107", "S2-108")
async def test_11_13_the_recovered_turn_is_recorded_once_as_aborted_with_its_calls(place: Place) -> None:
    agent, _ = writer()
    await lived(place, agent, call_pending, ("m-1", "go", "turn"), STEER)
    kinds = ("turn_completed", "turn_aborted", "turn_failed", "turn_limited")
    async with place.process() as process:
        await restarted(process, agent)
        first = await process.sessions.entries("s", kinds=kinds, limit=1)
        second = await process.sessions.entries("s", kinds=kinds, limit=1, after=first[-1].seq)
        assert await process.sessions.entries("s", kinds=kinds, limit=2, after=second[-1].seq) == []
        (aborted,) = first
        assert isinstance(aborted, TurnAborted)
        assert (aborted.turn, aborted.submission, aborted.reason, aborted.tool_calls) == ("t2", "m-1", "restart", 1)
        assert [(entry.kind, entry.submission) for entry in second] == [("turn_failed", "m-2")]  # type: ignore[attr-defined]
        of_the_turn = [
            entry
            for entry in await process.sessions.entries("s", kinds=["operation_ended"])
            if isinstance(entry, OperationEnded) and entry.operation.startswith("t2.0.") and entry.operation != "t2.0.0"
        ]
        assert [entry.status for entry in of_the_turn] == ["uncertain"]
        assert (await process.sessions.checkpoint("s")).turns == 2


@pytest.mark.spec("S2-109", "S2-110", "S2-111")
async def test_11_13_recovery_comes_as_single_events_leaves_nothing_open_and_runs_nothing(place: Place, tmp_path: Path) -> None:
    executed.clear()
    agent, asked = writer(Reply("unreachable"))
    target = tmp_path / "never-replay.txt"

    def story(past: Past) -> None:
        past.accept("m-1")
        past.ask_model()
        past.answered(ToolCall("write_file", {"path": str(target)}, "call-1"))
        past.plan()

    await lived(place, agent, story, ("m-1", "go", "turn"))
    async with place.process() as process:
        seen = await restarted(process, agent)
        # A handle starts where it was opened: nothing of the history comes again, and every fact of the recovery comes by itself.
        assert [told(event) for event in seen] == [
            "opened",
            "ended t2.0.1#1 uncertain",
            "message tool",
            "turn_aborted t2",
            "recovered t2",
        ]
        assert (await process.sessions.checkpoint("s")).turn is None
        assert (await process.sessions.info("s")).status == "idle"
    assert (target.exists(), executed, asked) == (False, [], [])


# -------------------------------------------------------------------------------------------------------- 11.14 … 11.17


def completing(past: Past) -> None:
    past.accept("m-1")
    past.ask_model()
    past.answered("finished")
    assert phase(past.checkpoint) == "completing"


@pytest.mark.spec("S2-115", "S2-117", "S2-118")
async def test_11_14_a_turn_that_was_completing_completes_on_restart_without_a_model_call(place: Place) -> None:
    for mode in ("stop", "continue"):
        here = Place(place.kind, place.path.with_name(f"{mode}.db"))
        model, asked = counting(ProviderRefused("always"))
        agent = Agent("bot", model=model, on_restart=mode)  # type: ignore[arg-type]
        await lived(here, agent, completing, ("m-1", "go", "turn"))
        async with here.process() as process:
            seen = await restarted(process, agent)
            assert isinstance(seen[0], SessionOpened)
            ends = [event for event in seen if isinstance(event, TurnEnded)]
            assert [(type(event), event.turn) for event in ends] == [(TurnCompleted, "t2")]
            checkpoint = await process.sessions.checkpoint("s")
            assert (checkpoint.turn, checkpoint.turns, checkpoint.usage.calls) == (None, 1, 1)
            assert await process.sessions.entries("s", kinds=["turn_aborted", "turn_failed"]) == []
            result = await process.sessions.result("s", "m-1")
            assert result is not None
            assert (result.status, result.output) == ("completed", "finished")
        assert not asked


def three_steps(past: Past) -> None:
    past.accept("m-1")
    for number in range(3):
        past.step(ToolCall("write_file", {"path": f"{number}"}, f"call-{number}"), "written")
    assert past.turn.step == 3


@pytest.mark.spec("S2-119", "S2-120", "S2-121")
async def test_11_15_a_turn_between_steps_goes_on_at_its_step(place: Place) -> None:
    agent, asked = writer(Reply("done"))
    await lived(place, agent, three_steps, ("m-1", "go", "turn"))
    async with place.process() as process:
        seen = await restarted(process, agent)
        begun = [event for event in seen if isinstance(event, OperationStarted)]
        assert [event.operation for event in begun] == ["t2.3.0"]
        assert [request.step for request in asked] == [3]
        ends = [event for event in seen if isinstance(event, TurnEnded)]
        assert [(type(event), event.turn, event.steps) for event in ends] == [(TurnCompleted, "t2", 4)]
        assert (await process.sessions.checkpoint("s")).turn is None
        assert await process.sessions.entries("s", kinds=["turn_aborted"]) == []


def second_step_open(past: Past) -> None:
    past.accept("m-1")
    past.step(ToolCall("write_file", {"path": "a"}, "call-0"), "written")
    past.ask_model()


@pytest.mark.spec("S2-122", "S2-123")
async def test_11_16_an_open_model_call_is_closed_with_its_turn_and_nothing_stands_between(place: Place) -> None:
    agent, asked = writer(Reply("unreachable"))
    await lived(place, agent, second_step_open, ("m-1", "go", "turn"))
    async with place.process() as process:
        opened, ended, aborted, *rest = await restarted(process, agent)
        assert isinstance(opened, SessionOpened)
        assert isinstance(ended, OperationEnded)
        assert (ended.operation, ended.attempt, ended.final) == ("t2.1.0", 1, True)
        assert ended.failure is not None
        assert (ended.status, ended.failure.code, ended.usage) == ("uncertain", "restart", None)
        assert isinstance(aborted, TurnAborted)
        assert (aborted.turn, aborted.seq) == ("t2", ended.seq + 1)
        assert [type(event) for event in rest] == [Recovered]
        checkpoint = await process.sessions.checkpoint("s")
        assert checkpoint.turn is None
        # Nobody knows what the lost call used; unknown is not zero.
        assert (checkpoint.usage.calls, checkpoint.usage.unknown_calls) == (2, 1)
    assert not asked


@pytest.mark.spec("S2-112", "S2-113", "S2-114")
async def test_11_17_whenever_its_process_dies_a_call_stands_with_its_arguments_before_its_result(place: Place, tmp_path: Path) -> None:
    """Calls exist by the receipt that asked for them, so no death leaves a call that the context doesn't hold.

    Here the process dies before and after each of its commits, and while the model and the tools run.
    """
    executed.clear()
    target = tmp_path / "never-replay.txt"
    calls = [ToolCall("write_file", {"path": str(target)}, "streamed-call"), ToolCall("write_file", {"path": "b"}, "second-call")]
    blocked = asyncio.Event()

    @tool(name="write_file")
    async def never(path: str) -> str:
        """Begin, and never end."""
        blocked.set()
        await asyncio.Event().wait()
        return ""

    outcomes = set()
    for nth, when in [(1, "before"), (1, "after"), (2, "before"), (2, "after"), (3, "before")]:
        here = Place(place.kind, tmp_path / f"{nth}-{when}.db")
        blocked.clear()
        model, _ = counting(Reply(tool_calls=calls))
        first = Agent("bot", model=model, tools=[never], on_restart="stop")
        fault = Fault(nth=nth, when=when, action="die")  # type: ignore[arg-type]
        async with here.process(fault) as process:
            await process.sessions.send("s", "go", submission="m-1", agent="bot")
            working = asyncio.create_task(process.recover([first], session="s"))
            await eventually(lambda working=working: working.done() or blocked.is_set())
            process.faulty.kill()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        agent, _ = writer(Reply("unreachable"))
        async with here.process() as process:
            await restarted(process, agent.replace(on_change="any"))
            context = await transcript(process)
            ends = await process.sessions.entries("s", kinds=["turn_aborted", "turn_completed"])
        outcomes.add((len(context), ends[0].kind))
        if len(context) == 3:
            assert context[1:] == [
                ("assistant", *((call.id, call.arguments) for call in calls)),
                ("tool", *((call.id, UNKNOWN, True) for call in calls)),
            ]
            assert [entry.kind for entry in ends] == ["turn_aborted"]
        elif ends[0].kind == "turn_aborted":
            # The model call was open, and what it may have answered nobody knows: neither calls nor results.
            assert context == [("user", "go")]
    assert outcomes == {(2, "turn_completed"), (1, "turn_aborted"), (3, "turn_aborted")}
    assert (target.exists(), executed) == (False, [])
