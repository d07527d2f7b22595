"""Tool calls and the questions about them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    ApprovalRequested,
    OperationEnded,
    OperationStarted,
    Reply,
    RequestClosed,
    ToolCall,
    ToolContext,
    TurnAborted,
    TurnCompleted,
    tool,
)
from perdure.core.journal import Sealed, open_entry
from perdure.core.phase import phase
from perdure.runtime import requests
from perdure.runtime.batch import Batch
from perdure.store.base import Claim, Committed, Store
from perdure.testing import find_problems
from perdure.testing.faults import Fault

from .acting import Past, Place, counting, eventually, lived, restarted, told, transcript, until

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool
async def write(ctx: ToolContext, path: str) -> str:
    """Write."""
    ran.append(ctx.call)
    return f"wrote {path}"


@tool(effect="pure")
async def look(ctx: ToolContext, path: str) -> str:
    """Look."""
    ran.append(ctx.call)
    return f"saw {path}"


WRITE, LOOK = ToolCall("write", {"path": "a"}, "call-1"), ToolCall("look", {"path": "b"}, "call-2")


def helper(approve: Any, *calls: ToolCall) -> Agent:
    model, _ = counting(Reply(tool_calls=calls or (WRITE, LOOK)), Reply("done"))
    return Agent("helper", model=model, tools=[write, look], approve=approve)


async def waiting(process: Any, session: str = "s") -> bool:
    return (await process.row(session)).status == "waiting"


@pytest.mark.spec("S2-181", "S2-182", "B-B-044")
async def test_a_call_that_a_person_must_allow_is_asked_about_before_it_runs_and_all_of_it_is_stored(place: Place) -> None:
    agent = helper(["write"])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        request = (await until(handle, ApprovalRequested, after=0))[-1]
        assert (request.operation.split(".")[0], request.name, request.call) == ("t2", "write", "call-1")
        await eventually(lambda: waiting(process))
        checkpoint = await process.sessions.checkpoint("s")
        assert checkpoint.turn is not None
        assert (checkpoint.turn.id, phase(checkpoint)) == ("t2", "waiting")
        assert [(item.plan.call, item.status, item.request) for item in checkpoint.turn.tools] == [
            *[("call-1", "planned", request.request_id), ("call-2", "planned", "")],
        ]
        (asked,) = await process.sessions.requests("s")
        assert (asked.name, asked.arguments, asked.request_id) == ("write", {"path": "a"}, request.request_id)
        assert not ran
        await handle.approve(request.request_id)
        assert isinstance((await until(handle, after=0))[-1], TurnCompleted)
    assert sorted(ran) == ["call-1", "call-2"]


@pytest.mark.spec("S2-183")
async def test_a_call_that_needs_nobody_runs_without_a_question(place: Place) -> None:
    for approve in ([], {"write": "allow"}, lambda call: "allow"):
        here = Place(place.kind, place.path.with_name(f"{ran}.db"))
        async with here.process() as process:
            result = await process.run(helper(approve, WRITE), "go", session="s")
            assert result.ok
            assert await process.sessions.entries("s", kinds=["request_opened"]) == []
    assert ran == ["call-1"] * 3


@pytest.mark.spec("S2-184")
async def test_a_question_and_the_state_that_waits_for_it_are_one_commit(place: Place) -> None:
    agent = helper(["write"])
    async with place.process() as process:
        await process.sessions.send("s", "go", submission="m-1", agent="helper")
        await process.recover([agent])
        (commit,) = [commit for commit in process.faulty.commits if any(row.kind == "request_opened" for row in commit.entries)]
        assert [told(open_entry(row)) for row in commit.entries] == [
            *["ended t2.0.0#1 succeeded", "message assistant", "planned t2.0.1", "planned t2.0.2", "asked t2.0.1"],
        ]
        assert commit.catalogue is not None
        assert (commit.catalogue.status, commit.release) == ("waiting", True)
    here = Place(place.kind, place.path.with_name("dies.db"))
    async with here.process(Fault(nth=2, when="before", action="die")) as process:
        with pytest.raises(perdure.StoreError):
            await process.run(agent, "go", session="s", submission="m-1")
    async with here.process() as process:
        assert await process.sessions.requests("s") == []
        assert phase(await process.sessions.checkpoint("s")) == "model"


@pytest.mark.spec("S2-185", "S2-126", "S0-170")
async def test_a_decision_is_durable_before_anything_of_its_batch_runs(place: Place) -> None:
    seen: list[list[str]] = []

    @tool
    async def watched() -> str:
        """Look at what is stored while it runs."""
        async with place.process() as other:
            seen.append(await other.told())
        ran.append("watched")
        return "ran"

    model, _ = counting(Reply(tool_calls=[ToolCall("watched", {}, "call-1")]), Reply("done"))
    agent = Agent("helper", model=model, tools=[watched], approve=["watched"])
    async with place.process() as process:
        await process.sessions.send("s", "go", agent="helper")
        await process.recover([agent])
        (request,) = await process.sessions.requests("s")
        await process.sessions.approve("s", request.request_id, submission="yes")
        assert [told(entry) for entry in await process.sessions.entries("s")][-1] == "closed t2.0.1 approve by answer"
        assert not ran
        await process.recover([agent])
    assert seen[0][-2:] == ["closed t2.0.1 approve by answer", "started t2.0.1#1"]
    # Its process dies before the start is durable: decided, never asked again, and run once.
    ran.clear()
    here = Place(place.kind, place.path.with_name("dies.db"))
    async with here.process(Fault(nth=4, when="before", action="die")) as process:
        await process.sessions.send("s", "go", agent="helper")
        model, _ = counting(Reply(tool_calls=[ToolCall("write", {"path": "a"}, "call-1")]), Reply("done"))
        agent = Agent("helper", model=model, tools=[write], approve=["write"])
        await process.recover([agent])
        (request,) = await process.sessions.requests("s")
        await process.sessions.approve("s", request.request_id)
        with pytest.raises(perdure.StoreError):
            await process.recover([agent], session="s")
    assert not ran
    async with here.process() as process:
        assert await process.sessions.requests("s") == []
        await process.recover([agent])
        assert [told(entry) for entry in await process.sessions.entries("s")].count("asked t2.0.1") == 1
    assert ran == ["call-1"]


@pytest.mark.spec("S2-126")
@pytest.mark.parametrize("mode", ["stop", "continue"])
async def test_a_batch_that_was_decided_and_cut_off_is_of_unknown_outcome_and_its_question_is_gone(place: Place, mode: Any) -> None:
    agent = helper(["write"], WRITE).replace(on_restart=mode)

    def story(past: Past) -> None:
        past.accept("m-1")
        past.ask_model()
        past.answered(WRITE)
        past.plan(ask=["call-1"])
        past.decide()
        past.start()

    await lived(place, agent, story, ("m-1", "go", "turn"))
    async with place.process() as process:
        seen = await restarted(process, agent)
        assert not any(isinstance(event, ApprovalRequested) and event.operation == "t2.0.1" for event in seen)
        assert (await transcript(process))[2] == ("tool", ("call-1", "execution interrupted; result unknown after restart", True))
        if mode == "stop":
            assert await process.sessions.requests("s") == []
            assert (await process.sessions.checkpoint("s")).turn is None
    assert not ran


@pytest.mark.spec("S2-127", "S2-129", "S2-132")
async def test_a_question_after_a_restart_is_the_same_question_and_nothing_is_written_for_it(place: Place) -> None:
    agent = helper(["write"])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        first = (await until(handle, ApprovalRequested, after=0))[-1]
        await eventually(lambda: waiting(process))
        (shown,) = await process.sessions.requests("s")
        before = await process.everything()
    for _ in range(3):
        async with place.process() as process:
            seen = await restarted(process, agent)
            assert seen[1:] == [first]
            assert await process.sessions.requests("s") == [shown]
            assert await process.everything() == before
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.approve(first.request_id)
        await until(handle, after=first.seq)
        # What the person was shown is what ran, under the policy of then, and the turn was never begun again.
        entries = await process.sessions.entries("s")
        assert [entry.kind for entry in entries].count("turn_started") == 1
        assert [entry.kind for entry in entries].count("request_opened") == 1
        assert (await transcript(process))[2] == ("tool", ("call-1", "wrote a", False), ("call-2", "saw b", False))


@pytest.mark.spec("S2-127")
async def test_calls_behind_a_question_keep_what_was_decided_about_them_whatever_the_policy_says_after_a_restart(place: Place) -> None:
    agent = helper(["write"])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        request = (await until(handle, ApprovalRequested, after=0))[-1]
    later = agent.replace(approve={"write": "ask", "look": "deny"})
    async with place.process() as process, process.session("s", later) as handle:
        await handle.approve(request.request_id)
        assert isinstance((await until(handle, after=request.seq))[-1], TurnCompleted)
        assert (await transcript(process))[2] == ("tool", ("call-1", "wrote a", False), ("call-2", "saw b", False))
        assert await find_problems(process.store, "s") == []


@pytest.mark.spec("S2-128")
async def test_all_that_a_restart_makes_of_a_session_is_one_commit(place: Place) -> None:
    agent = helper([], WRITE).replace(on_restart="stop")

    def story(past: Past) -> None:
        past.accept("m-1")
        past.ask_model()
        past.answered(WRITE)
        past.plan()

    await lived(place, agent, story, ("m-1", "go", "turn"), ("m-2", "quickly", "steer"))
    async with place.process() as process:
        before = await process.everything()
    async with place.process(Fault(nth=1, when="before", action="die")) as process:
        with pytest.raises(perdure.StoreError):
            await process.recover([agent], session="s")
    async with place.process() as process:
        assert await process.everything() == before
    async with place.process(Fault(nth=1, when="after", action="die")) as process:
        with pytest.raises(perdure.StoreError):
            await process.recover([agent], session="s")
    async with place.process() as process:
        words = await process.told(after=before[0].version)
        assert words[:5] == ["ended t2.0.1#1 uncertain", "message tool", "turn_aborted t2", "recovered t2", "promoted m-2 to queue"]
        assert (await process.sessions.checkpoint("s")).turns == 1


@pytest.mark.spec("S2-131", "S2-132")
async def test_a_resumed_turn_keeps_who_began_it_and_does_not_begin_again(place: Place) -> None:
    seen: list[Any] = []

    @tool(effect="pure")
    async def who(ctx: ToolContext) -> str:
        """Say whose turn it is."""
        seen.append((ctx.owner, ctx.turn))
        return "known"

    model, asked = counting(Reply(tool_calls=[ToolCall("who", {}, "call-1")]), Reply("done"))
    agent = Agent("helper", model=model, tools=[who])

    async with place.process(Fault(nth=1, when="after", action="die")) as process:
        await process.sessions.send(
            "s", "go", submission="m-1", author="ann", agent="helper", identity=perdure.Identity(owner="acme", user="ann")
        )
        with pytest.raises(perdure.StoreError):
            await process.recover([agent], session="s")
    asked.clear()
    async with place.process() as process:
        events = await restarted(process, agent)
        assert not any(event.__class__.__name__ == "TurnStarted" for event in events)
        assert [entry.kind for entry in await process.sessions.entries("s")].count("turn_started") == 1
    assert [(request.messages[0].author, request.messages[0].submission) for request in asked] == [("ann", "m-1")] * 2
    assert seen == [("acme", "t2")]


@pytest.mark.spec("S2-186")
async def test_a_denied_call_gets_an_error_result_and_the_rest_of_its_batch_runs_in_call_order(place: Place) -> None:
    async with place.process() as process, process.session("s", helper(["write"])) as handle:
        await handle.send("go")
        request = (await until(handle, ApprovalRequested, after=0))[-1]
        await handle.deny(request.request_id, "not on a Friday")
        assert isinstance((await until(handle, after=0))[-1], TurnCompleted)
        tool_message = (await transcript(process))[2]
        assert tool_message[0] == "tool"
        (denied, text, is_error), other = tool_message[1:]
        assert (denied, is_error, "not on a Friday" in text) == ("call-1", True, True)
        assert other == ("call-2", "saw b", False)
    assert ran == ["call-2"]


@pytest.mark.spec("S2-187")
async def test_a_decision_to_abort_ends_the_turn(place: Place) -> None:
    async with place.process() as process, process.session("s", helper(["write"])) as handle:
        await handle.send("go", submission="m-1")
        request = (await until(handle, ApprovalRequested, after=0))[-1]
        await handle.answer(request.request_id, "abort", submission="no-more", actor="ann")
        ended = (await until(handle, after=0))[-1]
        assert isinstance(ended, TurnAborted)
        assert (ended.submission, ended.actor) == ("m-1", "ann")
        closed = next(entry for entry in await process.sessions.entries("s") if isinstance(entry, RequestClosed))
        assert (closed.decision, closed.submission, closed.seq < ended.seq) == ("abort", "no-more", True)
        assert await find_problems(process.store, "s") == []
    assert not ran


@pytest.mark.spec("S2-189")
@pytest.mark.parametrize("why", ["policy", "deadline", "wrong edit"])
async def test_a_call_that_nobody_allowed_never_runs(memory: Place, why: str) -> None:
    agent = helper({"write": "deny"} if why == "policy" else {"write": "ask"}, WRITE).replace(approval_timeout=60)
    async with memory.process() as process, process.session("s", agent) as handle:
        await handle.send("go")
        if why == "wrong edit":
            request = (await until(handle, ApprovalRequested, after=0))[-1]
            await process.sessions.approve("s", request.request_id, {"file": "b"})
        assert isinstance((await until(handle, after=0))[-1], TurnCompleted)
        (call, text, is_error) = (await transcript(process))[2][1]
        assert (call, is_error) == ("call-1", True)
        assert text
        started = [entry.operation for entry in await process.sessions.entries("s") if isinstance(entry, OperationStarted)]
        assert "t2.0.1" not in started
    assert not ran


@pytest.mark.spec("S2-190", "S2-191")
async def test_parallel_calls_overlap_exclusive_ones_run_alone_and_results_stand_in_call_order(place: Place) -> None:
    running: set[str] = set()
    seen: list[frozenset[str]] = []
    together, second_done = asyncio.Barrier(2), asyncio.Event()

    @tool(effect="pure")
    async def shared(ctx: ToolContext, number: int) -> int:
        """Run beside others."""
        running.add(ctx.call)
        if number < 3:
            await together.wait()
            seen.append(frozenset(running))
            if number == 1:
                await second_done.wait()  # the first call ends last
        else:
            seen.append(frozenset(running))
        running.discard(ctx.call)
        if number == 2:
            second_done.set()
        return number

    @tool(effect="pure", exclusive=True)
    async def alone(ctx: ToolContext, number: int) -> int:
        """Run beside none."""
        running.add(ctx.call)
        seen.append(frozenset(running))
        await asyncio.sleep(0)
        running.discard(ctx.call)
        return number

    calls = [
        *[ToolCall("shared", {"number": 1}, "c1"), ToolCall("shared", {"number": 2}, "c2")],
        *[ToolCall("alone", {"number": 3}, "c3"), ToolCall("alone", {"number": 4}, "c4"), ToolCall("shared", {"number": 5}, "c5")],
    ]
    model, asked = counting(Reply(tool_calls=calls), Reply("done"))
    async with place.process() as process:
        await process.run(Agent("helper", model=model, tools=[shared, alone]), "go", session="s")
        assert (await transcript(process))[2] == ("tool", *((f"c{number}", number, False) for number in range(1, 6)))
        ended = [
            entry.operation
            for entry in await process.sessions.entries("s")
            if isinstance(entry, OperationEnded) and entry.operation != "t2.0.0"
        ]
        assert ended[:2] == ["t2.0.2", "t2.0.1"]
    assert {*seen[:2]} <= {frozenset({"c1", "c2"}), frozenset({"c1"}), frozenset({"c2"})}
    assert seen[0] == {"c1", "c2"}
    assert seen[2:] == [{"c3"}, {"c4"}, {"c5"}]
    assert [part.id for part in asked[1].messages[-1].parts] == ["c1", "c2", "c3", "c4", "c5"]  # type: ignore[union-attr]


@pytest.mark.spec("S2-192")
async def test_a_call_of_a_tool_that_is_not_there_gets_an_error_result_and_the_others_run(place: Place) -> None:
    async with place.process() as process:
        result = await process.run(helper([], ToolCall("erase", {"path": "/"}, "call-0"), LOOK), "go", session="s")
        assert result.ok
        (unknown, text, is_error), other = (await transcript(process))[2][1:]
        assert (unknown, is_error, "erase" in text) == ("call-0", True, True)
        assert other == ("call-2", "saw b", False)
        started = [entry.operation for entry in await process.sessions.entries("s") if isinstance(entry, OperationStarted)]
        assert started == ["t2.0.0", "t2.0.2", "t2.1.0"]
    assert ran == ["call-2"]


async def decided(process: Any, session: str = "s") -> list[tuple[str, str]]:
    """Who decided, and who did too late."""
    entries = await process.sessions.entries(session, kinds=["request_closed", "submission_refused"])
    return [(entry.kind, entry.actor) for entry in entries]


async def test_of_two_who_decide_at_once_where_nobody_holds_the_session_the_first_wins_and_both_are_in_the_journal(place: Place) -> None:
    agent = helper(["write"])
    async with place.process() as process, place.process() as other:
        await process.sessions.send("s", "go", submission="m-1", agent="helper")
        await process.recover([agent])
        [asked] = await process.sessions.requests("s")
        answers = await asyncio.gather(
            process.sessions.approve("s", asked.request_id, submission="yes", actor="ann"),
            other.sessions.deny("s", asked.request_id, "no", submission="no", actor="bob"),
            return_exceptions=True,
        )
        [lost] = [answer for answer in answers if isinstance(answer, BaseException)]
        assert isinstance(lost, perdure.StaleRequest)
        winner, loser = ("ann", "bob") if lost is answers[1] else ("bob", "ann")
        assert await decided(process) == [("request_closed", winner), ("submission_refused", loser)]
        [refused] = await process.sessions.entries("s", kinds=["submission_refused"])
        assert isinstance(refused, perdure.SubmissionRefused)
        row = await process.store.submission((await process.row()).no, refused.submission)
        assert row is not None
        assert (refused.failure.code, refused.digest) == ("stale_request", row.digest)
        # Sending it again is sending it once, and says the same.
        before = await process.everything()
        again = process.sessions.deny if loser == "bob" else process.sessions.approve
        said = {"reason": "no"} if loser == "bob" else {}
        with pytest.raises(perdure.StaleRequest):
            await again("s", asked.request_id, submission=refused.submission, actor=loser, **said)
        # A request that nobody knows leaves nothing.
        with pytest.raises(perdure.StaleRequest):
            await process.sessions.approve("s", "0123456789abcdef", actor="eve")
        assert await process.everything() == before
        await process.recover([agent])
        assert (await process.sessions.checkpoint("s")).turn is None
        assert await find_problems(process.store, "s") == []


@pytest.mark.parametrize("held", [False, True])
async def test_who_decides_too_late_twice_is_in_the_journal_once(place: Place, held: bool) -> None:
    agent = helper(["write"])
    async with place.process() as process:
        await process.sessions.send("s", "go", submission="m-1", agent="helper")
        await process.recover([agent])
        [asked] = await process.sessions.requests("s")
        await process.sessions.deny("s", asked.request_id, actor="ann")
        if held:
            head = await process.store.load("s")
            assert head is not None
            await process.register([agent])
            taken = Batch(head, await process.sessions.checkpoint("s"), now=head.now)
            assert isinstance(await process.store.commit(taken.commit(holder=None, claim=Claim(runner=process.runner_id))), Committed)
        for actor, reason in (("bob", "no"), ("bob", "no"), ("bob", "never"), ("eve", "no"), ("bob", "no")):
            with pytest.raises(perdure.StaleRequest):
                await process.sessions.deny("s", asked.request_id, reason, actor=actor)
        row = await process.row()
        assert row.inbox_head == 2 + 3


async def test_a_late_answer_reads_what_was_answered_last_and_goes_back_only_as_far_as_it_must(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "CLOSED_PAGE", 2)
    replies = [Reply(tool_calls=(ToolCall("write", {"path": f"{number}"}, f"c{number}"),)) for number in range(5)]
    model, _ = counting(*replies, Reply("done"))
    agent = Agent("helper", model=model, tools=[write], approve=["write"])
    asked: list[str] = []
    async with place.process() as process:
        await process.sessions.send("s", "go", submission="m-1", agent="helper")
        for _ in range(5):
            await process.recover([agent])
            asked.append((await process.sessions.requests("s"))[0].request_id)
            await process.sessions.approve("s", asked[-1])
        reads: list[int] = []
        read = requests.read_entries

        async def reading(store: Store, no: int, **wanted: Any) -> list[Sealed]:
            if wanted.get("kinds") == ("request_closed",):
                reads.append(wanted["limit"])
            return await read(store, no, **wanted)

        monkeypatch.setattr(requests, "read_entries", reading)
        for request, pages in ((asked[4], 1), (asked[0], 3), ("0123456789abcdef", 3)):
            reads.clear()
            with pytest.raises(perdure.StaleRequest):
                await process.sessions.deny("s", request, "no")
            assert reads == [2] * pages
        refused = await process.sessions.entries("s", kinds=["submission_refused"])
        assert len(refused) == 2


async def test_who_decides_too_late_while_somebody_works_on_the_session_is_refused_in_the_journal_as_well(place: Place) -> None:
    go_on = asyncio.Event()

    @tool(effect="external")
    async def pay() -> str:
        """Pay."""
        await go_on.wait()
        return "paid"

    model, _ = counting(Reply(tool_calls=(ToolCall("pay", {}, "call-1"),)), Reply("done"))
    agent = Agent("helper", model=model, tools=[pay], approve=["pay"])
    async with place.process() as process, place.process() as other, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        request = (await until(handle, ApprovalRequested, after=0))[-1]
        await handle.approve(request.request_id, actor="ann")
        await until(handle, OperationStarted, after=request.seq)
        with pytest.raises(perdure.StaleRequest):
            await other.sessions.deny("s", request.request_id, "no", actor="bob")
        await until(handle, perdure.SubmissionRefused, after=0)
        go_on.set()
        await until(handle, after=0)
        assert await decided(process) == [("request_closed", "ann"), ("submission_refused", "bob")]
        assert await find_problems(process.store, "s") == []
