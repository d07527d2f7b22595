"""The ledger of model calls: one record for every call that was sent, whatever became of it and however often it is read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    FunctionModel,
    ModelRequest,
    OperationEnded,
    OperationStarted,
    Reply,
    ScriptedModel,
    Spending,
    ToolCall,
    Usage,
    tool,
)
from perdure.core.errors import MissingKey, RateLimited
from perdure.testing.checks import find_problems
from perdure.testing.faults import Fault

from ..interactive.acting import Place

ONE = Usage(input_tokens=12, output_tokens=3, cache_read_tokens=4, reasoning_tokens=0)
TWO = Usage(input_tokens=20, output_tokens=5)


@tool(effect="pure")
async def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


def two_steps() -> tuple[FunctionModel, list[ModelRequest]]:
    asked: list[ModelRequest] = []

    def play(request: ModelRequest) -> Reply:
        asked.append(request)
        return Reply(tool_calls=[ToolCall("look", {"place": "sea"})], usage=ONE) if request.step == 0 else Reply("calm", usage=TWO)

    return FunctionModel(play), asked


@pytest.mark.spec("S0-024", "S0-025", "S0-051")
async def test_a_turns_calls_are_its_ledger_in_the_order_of_dispatch_with_the_providers_own_numbers(place: Place) -> None:
    model, _ = two_steps()
    async with place.process() as process:
        result = await process.run(Agent("a", model=model, tools=[look]), "go", session="s", submission="m")

        first, second = result.model_calls
        assert (first.usage, second.usage) == (ONE, TWO)
        assert second.usage is not None
        assert (second.usage.cache_read_tokens, second.usage.reasoning_tokens) == (None, None)
        assert (first.operation, second.operation) == ("t2.0.0", "t2.1.0")
        assert [call.source for call in result.model_calls] == ["reported", "reported"]
        assert await process.sessions.model_calls("s") == [first, second]
        stored = await process.sessions.result("s", "m")
        assert stored == result
        assert result.spending.total_tokens == result.usage.total_tokens == 40
        assert result.spending.reasoning_tokens is None
        assert result.spending.known == result.usage


@pytest.mark.spec("S0-026", "S0-052", "S0-018")
async def test_a_receipt_is_durable_with_its_usage_and_counts_once_across_a_crash(place: Place) -> None:
    """The process dies as soon as the first receipt is durable; the next one uses it, and asks only for what is missing."""
    model, asked = two_steps()
    agent = Agent("a", model=model, tools=[look])

    async with place.process(Fault(kind="commit", nth=2, when="after", action="die")) as process:
        with pytest.raises(perdure.StoreError):
            await process.run(agent, "go", session="s", submission="m")
    place.clock.advance(60_000)
    async with place.process() as process:
        (record,) = await process.sessions.model_calls("s")
        checkpoint = await process.sessions.checkpoint("s")
        assert (record.usage, record.status) == (ONE, "succeeded")
        assert checkpoint.turn is not None
        assert checkpoint.turn.usage.total_tokens == checkpoint.usage.total_tokens == 15
    async with place.process() as process:
        result = await process.run(agent, "go", session="s", submission="m")
        assert (result.status, result.usage.total_tokens, len(asked)) == ("completed", 40, 2)
        assert [call.usage for call in result.model_calls] == [ONE, TWO]
        assert await process.sessions.model_calls("s") == list(result.model_calls)
        assert await find_problems(process.store, "s") == []


@pytest.mark.spec("S0-060")
async def test_running_a_finished_turn_again_adds_nothing_to_the_ledger(place: Place) -> None:
    model, asked = two_steps()
    agent = Agent("a", model=model, tools=[look])
    async with place.process() as process:
        first = await process.run(agent, "go", session="s", submission="m")
        before = await process.everything("s")
    async with place.process() as process:
        again = await process.run(agent, "go", session="s", submission="m")
        assert again == first
        assert len(asked) == 2
        assert await process.everything("s") == before


@pytest.mark.spec("S0-125", "S0-131", "S0-192")
async def test_calls_that_failed_and_calls_that_a_crash_cut_off_are_records_for_ever(place: Place) -> None:
    attempts = 0
    begun = asyncio.Event()

    async def play(request: ModelRequest) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise RateLimited("slow down", retry_after=0)
        if attempts == 2:
            begun.set()
            await asyncio.Event().wait()
        return Reply("done", usage=ONE)

    agent = Agent("a", model=FunctionModel(play))
    async with place.process() as process:
        running = asyncio.create_task(process.run(agent, "go", session="s", submission="m"))
        await begun.wait()
        process.faulty.kill()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    place.clock.advance(60_000)
    async with place.process() as process:
        result = await process.run(agent, "go", session="s", submission="m")
        assert [(call.attempt, call.status, call.error) for call in result.model_calls] == [
            (1, "failed", "rate_limited"),
            (2, "uncertain", "restart"),
            (3, "succeeded", ""),
        ]
        assert (result.usage.calls, result.usage.unknown_calls) == (3, 2)
        assert (result.spending.total_tokens, result.spending.known.total_tokens) == (None, 15)


@pytest.mark.spec("S0-138")
async def test_the_digest_of_a_request_is_that_of_what_is_asked_whatever_operation_or_attempt_asks(place: Place) -> None:
    failed: set[str] = set()

    def play(request: ModelRequest) -> Any:
        if request.session_id not in failed:
            failed.add(request.session_id)
            raise RateLimited("slow down", retry_after=0)
        return Reply("done", usage=ONE)

    agent = Agent("a", model=FunctionModel(play))
    starts: list[OperationStarted] = []
    async with place.process() as process:
        for session in ("s", "t"):
            # What came before in the journal makes another operation of it, and no other request.
            for number in range(len(starts)):
                await process.sessions.send(session, "never mind", submission=f"n{number}", agent="a")
                await process.sessions.withdraw(session, f"n{number}")
            await process.run(agent, "go", session=session, submission="m")
            entries = await process.sessions.entries(session, kinds=["operation_started"])
            starts += [entry for entry in entries if isinstance(entry, OperationStarted)]
    assert [entry.attempt for entry in starts] == [1, 2, 1, 2]
    assert len({entry.operation for entry in starts}) == 2
    assert len({entry.request.digest for entry in starts if entry.request is not None}) == 1


@pytest.mark.spec("S0-126")
async def test_a_request_that_could_not_be_sent_is_no_call(place: Place) -> None:
    def play(request: ModelRequest) -> Reply:
        raise MissingKey("no key", hint="set one")

    async with place.process() as process:
        result = await process.run(Agent("a", model=FunctionModel(play)), "go", session="s")
        assert (result.status, result.model_calls, result.usage.calls) == ("failed", (), 0)
        assert await process.sessions.model_calls("s") == []
        assert result.spending == Spending.of([])


@pytest.mark.spec("S0-128")
async def test_a_record_names_the_route_that_answered_and_not_the_one_that_gave_up(place: Place) -> None:
    def broken(request: ModelRequest) -> Reply:
        raise perdure.ProviderRefused("no")

    spare = FunctionModel(lambda request: Reply("here", usage=ONE), name="spare-1")
    router = perdure.Router({"first": FunctionModel(broken), "spare": spare}, fallback=["spare"])
    async with place.process() as process:
        result = await process.run(Agent("a", model=router), "go", session="s")
        assert [(call.route, call.status) for call in result.model_calls] == [("first", "failed"), ("spare", "succeeded")]


async def test_the_ledger_is_read_page_by_page_wherever_a_page_begins(place: Place) -> None:
    model = FunctionModel(lambda request: Reply(f"answer {request.step}", usage=ONE))
    agent = Agent("a", model=model)
    async with place.process() as process:
        for number in range(5):
            await process.run(agent, f"question {number}", session="s", submission=f"m{number}")
        whole = await process.sessions.model_calls("s")
        assert len(whole) == 5
        paged: list[Any] = []
        while page := await process.sessions.model_calls("s", after=paged[-1].seq if paged else 0, limit=2):
            assert len(page) <= 2
            paged += page
        assert paged == whole
        # A page may begin between a call's start and its receipt.
        starts = [entry.seq for entry in await process.sessions.entries("s", kinds=["operation_started"])]
        assert await process.sessions.model_calls("s", after=starts[2]) == whole[2:]
        with pytest.raises(perdure.UsageError):
            await process.sessions.model_calls("s", limit=0)
        with pytest.raises(perdure.SessionNotFound):
            await process.sessions.model_calls("nobody")


@pytest.mark.spec("S0-132")
async def test_a_receipt_says_what_its_provider_reported_before_any_hook_sees_the_answer(place: Place) -> None:
    seen: list[Any] = []

    class Watching(perdure.Middleware):
        name = "watching"

        async def stop(self, ctx: perdure.HookContext, *arguments: Any) -> None:
            seen.append(ctx.usage)

    agent = Agent("a", model=ScriptedModel([Reply("hi", usage=ONE)]), middleware=[Watching()])
    async with place.process() as process:
        result = await process.run(agent, "go", session="s")
        (receipt,) = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded)]
        assert receipt.usage == ONE == result.model_calls[0].usage
        assert [usage.total_tokens for usage in seen] == [15]


async def test_a_forks_ledger_begins_empty(place: Place) -> None:
    agent = Agent("a", model=FunctionModel(lambda request: Reply("hi", usage=ONE)))
    async with place.process() as process:
        await process.run(agent, "one", session="s")
        branch = await process.sessions.fork("s", at=2)
        assert await process.sessions.model_calls(branch.session_id) == []
        await process.run(agent, "two", session=branch.session_id)
        assert len(await process.sessions.model_calls(branch.session_id)) == len(await process.sessions.model_calls("s")) == 1


async def test_a_turn_that_another_process_went_on_with_has_all_its_calls_in_its_result(place: Place) -> None:
    """Both wait for a person, and either may go on: what one of them knows of the turn is not all."""
    model, _ = two_steps()
    asking = Agent("a", model=model, tools=[look], approve=["look"])
    async with place.process() as process:
        running = asyncio.create_task(process.run(asking, "go", session="s", submission="m"))
        while await process.store.load("s") is None or not await process.sessions.requests("s"):
            await asyncio.sleep(0)
        (request,) = await process.sessions.requests("s")
        async with place.process() as other:
            helping = asyncio.create_task(other.run(asking, "go", session="s", submission="m"))
            await process.sessions.approve("s", request.request_id)
            result, same = await asyncio.gather(running, helping)
        assert [call.usage for call in result.model_calls] == [ONE, TWO]
        assert result == same


@pytest.mark.parametrize(
    ("limits", "calls", "status"), [(perdure.Limits(tokens=1_000), 5, "failed"), (perdure.Limits(tokens=40), 3, "limited")]
)
async def test_what_an_answer_used_that_can_not_be_taken_was_used_all_the_same(
    place: Place, limits: perdure.Limits, calls: int, status: str
) -> None:
    """The provider answered, and charges for it; that nobody can use the answer makes it no cheaper."""

    def nothing(request: ModelRequest) -> Reply:
        return Reply("", usage=ONE)

    # Between the attempts it waits for a while, which passes by itself here.
    place.clock.auto = True
    async with place.process() as process:
        result = await process.run(Agent("a", model=FunctionModel(nothing), limits=limits), "go", session="s")
        assert (result.status, [call.error for call in result.model_calls]) == (status, ["invalid_model_output"] * calls)
        assert [call.usage for call in result.model_calls] == [ONE] * calls
        assert (result.usage.calls, result.usage.total_tokens) == (calls, 15 * calls)


@pytest.mark.spec("S0-129")
async def test_a_retry_is_the_same_operation_and_the_same_request_and_another_attempt(place: Place) -> None:
    attempts = 0

    def play(request: ModelRequest) -> Reply:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise RateLimited("wait", retry_after=0)
        return Reply("hi", usage=ONE)

    async with place.process() as process:
        result = await process.run(Agent("a", model=FunctionModel(play)), "go", session="s")
        started = [entry for entry in await process.sessions.entries("s") if isinstance(entry, perdure.OperationStarted)]
        assert {(entry.operation, entry.request.digest) for entry in started if entry.request} == {("t2.0.0", started[0].request.digest)}  # type: ignore[union-attr]
        assert [call.attempt for call in result.model_calls] == [1, 2, 3]
