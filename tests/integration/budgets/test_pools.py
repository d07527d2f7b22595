"""Owners' pools: turns draw from them, nobody uses more than there is but by a call that was under way, and what is not used comes back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    AllowanceGranted,
    FunctionModel,
    Identity,
    Limits,
    ModelRequest,
    Reply,
    Runtime,
    ToolCall,
    TurnLimited,
    Usage,
    tool,
)
from perdure.core.records import Amounts
from perdure.runtime.driver import STUCK_CLAIMS
from perdure.runtime.verify import verify
from perdure.store.base import Committed
from perdure.testing.checks import find_all_problems
from perdure.testing.faults import Fault

from ..interactive.acting import Place

ACME = Identity(owner="acme")


@tool(effect="pure")
async def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


def looker(steps: int, tokens: int = 100, hang: asyncio.Event | None = None, **options: Any) -> Agent:
    """It looks so many times, then it answers; with ``hang`` it never gets to an answer."""

    async def play(request: ModelRequest) -> Reply:
        done = sum(message.role == "tool" for message in request.messages)
        if done >= steps and hang is not None:
            hang.set()
            await asyncio.Event().wait()
        usage = Usage(input_tokens=tokens, output_tokens=0)
        return Reply(tool_calls=[ToolCall("look", {"place": f"p{done}"})], usage=usage) if done < steps else Reply("done", usage=usage)

    return Agent("looker", model=FunctionModel(play), tools=[look], **options)


async def used(runtime: Runtime) -> dict[str, int]:
    pool = await runtime.pools.get("acme")
    assert pool is not None
    return pool.used


async def sound(runtime: Runtime) -> None:
    assert [str(problem) async for problem in verify(runtime.store)] == []
    assert await find_all_problems(runtime.store) == []


async def test_all_turns_of_an_owner_draw_from_one_pool_and_what_they_used_stays_drawn(place: Place) -> None:
    async with place.process() as process:
        made = await process.pools.set("acme", Limits(tokens=100_000, model_calls=20))
        assert (made.used, made.left) == ({"tokens": 0, "model_calls": 0}, {"tokens": 100_000, "model_calls": 20})
        for session in ("one", "two"):
            result = await process.run(looker(2), "go", session=session, identity=ACME)
            assert (result.status, result.usage.total_tokens) == ("completed", 300)
        assert await used(process) == {"tokens": 600, "model_calls": 6}
        (drawn,) = await process.sessions.entries("one", kinds=["allowance_granted"], limit=1)
        assert isinstance(drawn, AllowanceGranted)
        assert drawn.drawn == Amounts(tokens=12_500, model_calls=2)
        await process.run(looker(0), "go", session="others", identity=Identity(owner="umbrella"))
        assert await process.sessions.entries("others", kinds=["allowance_granted"]) == []
        assert [pool.owner for pool in await process.pools.list()] == ["acme"]
        await sound(process)


async def test_an_empty_pool_ends_turns_and_they_go_on_once_somebody_put_something_into_it(place: Place) -> None:
    async with place.process() as process:
        await process.pools.set("acme", Limits(model_calls=2))
        limited = await process.run(looker(3), "go", session="s", identity=ACME)
        assert (limited.status, limited.reason, limited.usage.calls) == ("limited", "limit reached: model_calls of the owner's pool", 2)
        last = (await process.sessions.entries("s"))[-1]
        assert isinstance(last, TurnLimited)
        assert last.reached == perdure.Reached(scope="owner", used=2, allowed=2)
        other = await process.run(looker(0), "go", session="other", identity=ACME)
        assert (other.status, other.usage.calls) == ("limited", 0)
    async with place.process() as process:
        await process.pools.add("acme", Limits(model_calls=5))
        went_on = await process.resume(looker(3), "s")
        assert (went_on.status, went_on.usage.calls) == ("completed", 2)
        assert await used(process) == {"model_calls": 4}
        assert (await process.pools.get("acme")).left == {"model_calls": 3}  # type: ignore[union-attr]
        await sound(process)


async def test_a_pool_that_is_raised_while_a_turn_runs_is_drawn_from_at_once(place: Place) -> None:
    async with place.process() as process:
        await process.pools.set("acme", Limits(model_calls=1))

        async def generous(request: ModelRequest) -> Reply:
            await process.pools.add("acme", Limits(model_calls=1))
            done = sum(message.role == "tool" for message in request.messages)
            return Reply(tool_calls=[ToolCall("look", {"place": "p"})]) if done < 3 else Reply("done")

        agent = Agent("a", model=FunctionModel(generous), tools=[look])
        assert (await process.run(agent, "go", session="s", identity=ACME)).ok
        await sound(process)


@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_wherever_a_process_dies_the_pool_is_charged_for_what_the_ledger_has(place: Place, nth: int, when: Any) -> None:
    agent = looker(3)
    async with place.process() as process:
        await process.pools.set("acme", Limits(tokens=9_000, tool_calls=50))
    async with place.process(Fault(kind="commit", nth=nth, when=when, action="die")) as process:
        with suppress(perdure.StoreError):
            await process.run(agent, "go", session="s", submission="m", identity=ACME)
    place.clock.advance(60_000)
    async with place.process() as process:
        await sound(process)
        result = await process.run(agent, "go", session="s", submission="m", identity=ACME)
        assert result.ok
        assert await used(process) == {"tokens": result.usage.total_tokens, "tool_calls": 3}
        assert result.spending.known == result.usage
        await sound(process)


async def held(place: Place, process: Any, session: str = "s") -> asyncio.Task[Any]:
    """A turn that drew and hangs in its second call."""
    hang = asyncio.Event()
    running = asyncio.create_task(process.run(looker(1, hang=hang), "go", session=session, submission="m", identity=ACME))
    await hang.wait()
    return running


@pytest.mark.parametrize("how", ["interrupt", "archive", "delete", "halt"])
async def test_what_a_turn_drew_and_did_not_use_comes_back_however_it_ends(place: Place, how: str) -> None:
    async with place.process() as process:
        await process.pools.set("acme", Limits(tokens=80_000))
        running = await held(place, process)
        assert (await used(process))["tokens"] == 10_000
        await getattr(process.sessions, how)("s")
        await asyncio.gather(running, return_exceptions=True)
        assert (await used(process))["tokens"] == 100
        if how == "halt":
            await process.sessions.repair("s")
            again = await process.run(looker(1), "go", session="s", submission="m")
            assert again.ok
            assert (await used(process))["tokens"] == 200
        await sound(process)


async def test_a_turn_that_waits_for_a_person_holds_nothing_that_it_did_not_use(place: Place) -> None:
    agent = looker(1).replace(approve=["look"])
    async with place.process() as process:
        await process.pools.set("acme", Limits(tokens=8_000))
        waits = asyncio.create_task(process.run(agent, "go", session="s", submission="m", identity=ACME))
        while not (requests := (await process.sessions.requests("s") if await process.sessions.number("s") else [])):
            await asyncio.sleep(0.005)
        while (await process.sessions.info("s")).holder is not None:
            await asyncio.sleep(0.005)
        assert (await used(process))["tokens"] == 100
        # Others may have it all meanwhile.
        assert (await process.run(looker(1, tokens=3_800), "go", session="other", identity=ACME)).ok
        await process.pools.add("acme", Limits(tokens=1_000))
        await process.sessions.approve("s", requests[0].request_id)
        assert (await waits).ok
        assert (await used(process))["tokens"] == 200 + 7_600
        await sound(process)


async def test_a_turn_whose_process_was_stopped_holds_nothing_that_it_did_not_use(place: Place) -> None:
    async with place.process() as process:
        await process.pools.set("acme", Limits(tokens=80_000))
        running = await held(place, process)
        await process.close(grace=0)
        await asyncio.gather(running, return_exceptions=True)
    async with place.process() as process:
        assert (await used(process))["tokens"] == 100
        await sound(process)
        assert (await process.run(looker(1), "go", session="s", submission="m")).ok
        assert (await used(process))["tokens"] == 200
        await sound(process)


async def test_a_session_that_is_parked_as_stuck_holds_nothing_that_its_turn_did_not_use(place: Place) -> None:
    async with place.process() as process:
        await process.pools.set("acme", Limits(tokens=80_000))
        running = await held(place, process)
        process.faulty.kill()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    place.clock.advance(600_000)
    async with place.process() as process:
        for number in range(STUCK_CLAIMS):
            # Processes that took the session up and died before they did anything.
            assert isinstance(await process.store.claim((await process.row()).no, f"dead-{number}"), Committed)
        with pytest.raises(perdure.SessionStuck):
            await process.run(looker(1), "go", session="s", submission="m")
        assert (await process.sessions.info("s")).status == "stuck"
        assert (await used(process))["tokens"] == 100
        await process.recover([looker(1)], session="s", force=True)
        assert (await used(process))["tokens"] == 200
        await sound(process)


async def test_a_turn_whose_process_died_is_still_the_same_turn_and_holds_what_it_drew(place: Place) -> None:
    async with place.process() as process:
        await process.pools.set("acme", Limits(tokens=80_000))
        running = await held(place, process)
        process.faulty.kill()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    place.clock.advance(600_000)
    async with place.process() as process:
        assert (await used(process))["tokens"] == 10_000
        assert (await process.run(looker(1), "go", session="s", submission="m")).ok
        assert (await used(process))["tokens"] == 200
        assert len(await process.sessions.entries("s", kinds=["allowance_granted"])) == 1
        await sound(process)


async def test_a_pool_that_is_removed_limits_nobody_and_a_new_one_owes_nothing(place: Place) -> None:
    async with place.process() as process:
        await process.pools.set("acme", Limits(model_calls=1))

        async def play(request: ModelRequest) -> Reply:
            done = sum(message.role == "tool" for message in request.messages)
            if done == 0:
                assert await process.pools.remove("acme")
            return Reply(tool_calls=[ToolCall("look", {"place": "p"})]) if done < 3 else Reply("done")

        assert (await process.run(Agent("a", model=FunctionModel(play), tools=[look]), "go", session="s", identity=ACME)).ok
        assert await process.pools.get("acme") is None
        assert not await process.pools.remove("acme")
        await process.pools.set("acme", Limits(model_calls=9))
        await process.run(looker(0).replace(name="a"), "go", session="s")
        assert await used(process) == {"model_calls": 1}
        await sound(process)


async def test_many_sessions_at_once_use_no_more_than_there_is_and_one_call_each(place: Place) -> None:
    sessions, each, tokens = 12, 700, 9_000
    async with place.process() as process:
        await process.pools.set("acme", Limits(tokens=tokens))
        agent = looker(9, tokens=each)
        results = await asyncio.gather(*(process.run(agent, "go", session=f"s{number}", identity=ACME) for number in range(sessions)))
        spent = sum(result.usage.total_tokens for result in results)
        assert await used(process) == {"tokens": spent}
        assert spent < tokens + sessions * each
        assert any(result.status == "limited" for result in results)
        await sound(process)


async def test_a_child_of_the_team_draws_for_itself_and_is_not_paid_for_twice(place: Place) -> None:
    usage = Usage(input_tokens=100, output_tokens=0)

    def leads(request: ModelRequest) -> Reply:
        told = any(message.role == "tool" for message in request.messages)
        return Reply("done", usage=usage) if told else Reply(tool_calls=[ToolCall("worker", {"task": "look"})], usage=usage)

    worker = Agent("worker", instructions="Look.", model=FunctionModel(lambda request: Reply("seen", usage=usage)))
    lead = Agent("lead", model=FunctionModel(leads), tools=[worker.as_tool(description="Looks.")])
    async with place.process() as process:
        await process.pools.set("acme", Limits(tokens=50_000))
        result = await process.run(lead, "go", session="s", identity=ACME)
        assert (result.status, result.usage.total_tokens) == ("completed", 300)
        assert await used(process) == {"tokens": 300}
        await sound(process)


@pytest.mark.parametrize(
    ("owner", "limits", "words"),
    [
        ("acme", Limits(), "limits something"),
        ("acme", Limits(tokens=3, strict=True), "never strict"),
        ("acme", Limits(tokens=-1), "tokens=-1"),
        ("acme", {"tokens": 3}, "Limits"),
        (" ", Limits(tokens=3), "owner is blank"),
    ],
)
async def test_a_pool_that_is_none_is_refused(place: Place, owner: str, limits: Any, words: str) -> None:
    async with place.process() as process:
        for change in (process.pools.set, process.pools.add):
            with pytest.raises(perdure.UsageError, match=words):
                await change(owner, limits)
        assert await process.pools.list() == []


RACER = """
import asyncio, json, sys
import perdure
from perdure import Agent, FunctionModel, Identity, Reply, ToolCall, Usage, tool

@tool(effect="pure")
async def look(place: str) -> str:
    "Look."
    return "nothing"

async def play(request):
    done = sum(message.role == "tool" for message in request.messages)
    await asyncio.sleep(0)
    usage = Usage(input_tokens=500, output_tokens=0)
    return Reply(tool_calls=[ToolCall("look", {"place": f"{done}"})], usage=usage) if done < 6 else Reply("done", usage=usage)

async def main(path, name):
    agent = Agent("racer", model=FunctionModel(play), tools=[look])
    async with perdure.open(path) as runtime:
        print("ready", flush=True)
        sys.stdin.readline()
        results = await asyncio.gather(
            *(runtime.run(agent, "go", session=f"{name}-{number}", identity=Identity(owner="acme")) for number in range(20))
        )
        print(json.dumps([[result.status, result.usage.total_tokens] for result in results]), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_with_many_sessions_race_for_one_pool_and_never_overdraw_it(tmp_path: Path) -> None:
    path, tokens, each = tmp_path / "agents.db", 60_000, 500
    async with perdure.open(str(path)) as runtime:
        await runtime.pools.set("acme", Limits(tokens=tokens))
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, str(path), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("left", "right")
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        told = [racer.communicate("go\n", timeout=60)[0] for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    results = [result for lines in told for result in json.loads(lines)]
    spent = sum(used for _, used in results)
    assert len(results) == 40
    assert {status for status, _ in results} == {"completed", "limited"}
    # Forty sessions want 140,000 tokens. Late by one call for each at most; early by what was drawn and not used at most.
    assert spent <= tokens + 40 * each
    assert spent >= tokens - 40 * 2_000
    async with perdure.open(str(path)) as runtime:
        assert await used(runtime) == {"tokens": spent}
        await sound(runtime)
