"""What was executed stays executed: forks, restores and rewrites don't make it undone, forgotten or free to repeat.

Action replay and authority resurrection are the attacks of arXiv 2603.20625 on agents whose state can be restored.
"""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, ApprovalRequested, TurnEnded
from perdure.runtime.requests import Request
from perdure.testing.faults import Fault, ProcessDied

from ..interactive.acting import Place, Process
from .talking import Payments, line, lines, paying, sound, talk


async def until_asked(process: Process, agent: Agent, text: str, session: str) -> Request | None:
    """Say something; the request that its turn waits for, ``None`` if the turn just ends."""
    async with process.session(session, agent) as handle:
        sent = await handle.send(text)
        async for event in handle.events(after=0):
            if isinstance(event, ApprovalRequested) and await process.sessions.requests(session):
                (request,) = await process.sessions.requests(session)
                return request
            if isinstance(event, TurnEnded) and event.submission == sent.id:
                return None
    raise AssertionError("the session ended")


async def answered(process: Process, agent: Agent, session: str, request: Request, decision: Any) -> None:
    """Decide, and let the turn go on to its end."""
    await process.sessions.answer(session, request.request_id, decision)
    await process.recover([agent])
    assert (await process.sessions.info(session)).status == "idle"


def shown(request: Request | None) -> tuple[str, str, bool]:
    """The earlier effect that a question shows: where, how it ended, and that the transcript doesn't show it."""
    assert request is not None
    assert isinstance(request.entry, ApprovalRequested)
    match = request.entry.match
    assert match is not None
    return match.session, match.state, match.beyond


@pytest.mark.parametrize("travel", ["fork", "restore", "rewrite"])
async def test_action_replay_fails(place: Place, travel: str) -> None:
    """The model pays, is taken back to before it paid, and pays again under another reference, as models do."""
    payments = Payments()
    agent = paying(payments)
    async with place.process() as process:
        await talk(process, "hello", "pay A 500 ref-1", agent=agent)
        target = await travelled(process, travel)
        request = await until_asked(process, agent, "pay A 500 ref-2", target)
        assert shown(request) == ("s" if travel == "fork" else "", "succeeded", True)
        assert payments.done == ["A 500 ref-1"]
        assert request is not None
        await answered(process, agent, target, request, "deny")
        assert payments.done == ["A 500 ref-1"]
        # Another order is another effect.
        assert await until_asked(process, agent, "pay B 500 ref-3", target) is None
        assert payments.done == ["A 500 ref-1", "B 500 ref-3"]
        await sound(process)


@pytest.mark.parametrize("travel", ["fork", "restore", "rewrite"])
async def test_the_same_effect_can_be_had_again_deliberately(place: Place, travel: str) -> None:
    payments = Payments()
    agent = paying(payments)
    async with place.process() as process:
        await talk(process, "hello", "pay A 500 ref-1", agent=agent)
        target = await travelled(process, travel)
        request = await until_asked(process, agent, "pay A 500 ref-2", target)
        assert request is not None
        await answered(process, agent, target, request, "approve")
        assert payments.done == ["A 500 ref-1", "A 500 ref-2"]
        await sound(process)


@pytest.mark.parametrize("travel", ["fork", "restore", "rewrite"])
async def test_a_tool_that_allows_it_runs_and_one_that_replays_answers_with_the_receipt(place: Place, travel: str) -> None:
    for guard, done in (("allow", ["A 500 ref-1", "A 500 ref-2"]), ("replay", ["A 500 ref-1"])):
        payments = Payments()
        agent = paying(payments, guard=guard)
        session = f"s-{guard}"
        async with place.process() as process:
            await talk(process, "hello", "pay A 500 ref-1", agent=agent, session=session)
            target = await travelled(process, travel, session)
            await talk(process, "pay A 500 ref-2", agent=agent, session=target)
            assert payments.done == done
            assert [line(message) for message in await process.sessions.history(target)][-3:] == [
                "assistant: pay(call_ref-2)",
                "tool: call_ref-2=paid A",
                "assistant: done",
            ]
            await sound(process)


@pytest.mark.parametrize("travel", ["fork", "restore", "rewrite"])
async def test_a_tool_without_a_key_is_asked_about_whatever_its_arguments(place: Place, travel: str) -> None:
    payments = Payments()
    agent = paying(payments, key=None)
    async with place.process() as process:
        await talk(process, "hello", "pay A 500 ref-1", agent=agent)
        assert await until_asked(process, agent, "pay B 7 ref-2", "s") is None
        target = await travelled(process, travel)
        request = await until_asked(process, agent, "pay C 9 ref-3", target)
        assert shown(request)[1:] == ("succeeded", True)
        assert payments.done == ["A 500 ref-1", "B 7 ref-2"]
        assert request is not None
        # Once for all that lies beyond: whoever says yes is not asked about each of them.
        await answered(process, agent, target, request, "approve")
        assert payments.done[-1] == "C 9 ref-3"


@pytest.mark.parametrize("travel", ["fork", "restore"])
async def test_authority_resurrection_fails(place: Place, travel: str) -> None:
    """An approval that was given once, and used, doesn't come back with the state from before it was used."""
    payments = Payments()
    agent = paying(payments, approve=["pay"])
    async with place.process() as process:
        await talk(process, "hello", agent=agent)
        request = await until_asked(process, agent, "pay A 500 ref-1", "s")
        assert request is not None
        await answered(process, agent, "s", request, "approve")
        assert payments.done == ["A 500 ref-1"]
        target = await travelled(process, travel)
        again = await until_asked(process, agent, "pay A 500 ref-1", target)
        assert again is not None
        assert again.request_id != request.request_id
        assert shown(again)[2]
        with pytest.raises(Exception, match="not open"):
            await process.sessions.approve(target, request.request_id)
        assert payments.done == ["A 500 ref-1"]
        await answered(process, agent, target, again, "deny")
        assert payments.done == ["A 500 ref-1"]


async def test_a_call_that_the_transcript_shows_is_the_models_own_business(place: Place) -> None:
    payments = Payments()
    agent = paying(payments)
    async with place.process() as process:
        await talk(process, "hello", "pay A 500 ref-1", agent=agent)
        fork = await process.sessions.fork("s")
        assert fork.effects == 0
        assert await until_asked(process, agent, "pay A 500 ref-2", fork.session_id) is None
        revision = await process.sessions.revision("s")
        edit = await process.sessions.rewrite("s", (2, 6), [])
        assert edit.effects == 1
        back = await process.sessions.restore("s", revision)
        assert back.effects == 0
        assert await until_asked(process, agent, "pay A 500 ref-3", "s") is None
        assert payments.done == ["A 500 ref-1", "A 500 ref-2", "A 500 ref-3"]


async def test_what_lies_beyond_is_counted_and_listed_in_pages(place: Place) -> None:
    payments = Payments()
    agent = paying(payments)
    async with place.process() as process:
        said = ("pay A 1 r1", "pay B 2 r2", "pay C 3 r3", "pay D 4 r4")
        await talk(process, *said, agent=agent)
        sessions = process.sessions
        assert await sessions.effects("s") == []
        assert len(await sessions.effects("s", shown=True)) == 4
        fork = await sessions.fork("s", at=8, session_id="f")
        assert fork.effects == 2
        beyond = await sessions.effects("f")
        assert [(item.name, item.arguments["order"], item.state, item.session_id, item.shown) for item in beyond] == [
            ("pay", "C", "succeeded", "s", False),
            ("pay", "D", "succeeded", "s", False),
        ]
        assert await sessions.effects("f", limit=1) == beyond[:1]
        assert await sessions.effects("f", limit=1, after=beyond[0]) == beyond[1:]
        assert await sessions.effects("f", after=beyond[1]) == []
        await talk(process, "pay E 5 r5", agent=agent, session="f")
        edit = await sessions.rewrite("f", (4, 8), [])
        assert edit.effects == 3
        assert [item.arguments["order"] for item in await sessions.effects("f")] == ["B", "C", "D"]
        deeper = await sessions.fork("f", at=4)
        assert [item.arguments["order"] for item in await sessions.effects(deeper.session_id)] == ["B", "C", "D", "E"]
        assert deeper.effects == 4
        # What the parent does from now on is its own.
        await talk(process, "pay F 6 r6", agent=agent)
        assert len(await sessions.effects("f")) == 3
        with pytest.raises(Exception, match="no effect of this list"):
            await sessions.effects("f", after=(await sessions.effects("s", shown=True))[-1])


async def test_what_a_running_parent_does_after_the_fork_is_the_branchs_past_too(place: Place) -> None:
    payments = Payments()
    agent = paying(payments, approve=["pay"])
    async with place.process() as process:
        await talk(process, "hello", agent=agent)
        request = await until_asked(process, agent, "pay A 500 ref-1", "s")
        assert request is not None
        fork = await process.sessions.fork("s", at=2, while_running=True)
        await answered(process, agent, "s", request, "approve")
        assert payments.done == ["A 500 ref-1"]
        again = await until_asked(process, agent, "pay A 500 ref-2", fork.session_id)
        assert shown(again) == ("s", "succeeded", True)


async def test_an_effect_that_an_ancestor_left_uncertain_is_guarded_even_where_the_transcript_shows_it(place: Place) -> None:
    payments = Payments()
    agent = paying(payments)
    async with place.process(Fault(kind="commit", nth=3, when="before", action="die")) as process:
        with pytest.raises(ProcessDied):
            await process.run(agent, "pay A 500 ref-1", session="s")
    async with place.process() as process:
        place.clock.advance(60_000)
        await process.recover([agent])
        uncertain = await process.sessions.uncertain("s")
        if not uncertain:
            pytest.skip("the process died before the call")
        fork = await process.sessions.fork("s")
        again = await until_asked(process, agent, "pay A 500 ref-2", fork.session_id)
        assert shown(again)[:2] == ("s", "uncertain")


async def travelled(process: Process, travel: str, session: str = "s") -> str:
    """Back to before anything was paid; the session that is there."""
    if travel == "fork":
        fork = await process.sessions.fork(session, at=2)
        assert fork.effects >= 1
        return fork.session_id
    if travel == "restore":
        edit = await process.sessions.restore(session, await process.sessions.revision(session, 2))
    else:
        edit = await process.sessions.rewrite(session, (2, len(await lines(process, session))), [])
    assert edit.effects >= 1
    assert len(await lines(process, session)) == 2
    return session
