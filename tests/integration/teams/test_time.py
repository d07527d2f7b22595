"""Messages for later, turns that wait for a time, and a clock that jumps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import perdure
from perdure import Agent, ProviderUnavailable, QueueChanged, Reply, ScriptedModel, ToolCall, UsageError
from perdure.core.entries import OperationEnded
from perdure.store.memory import MemoryStore
from perdure.testing import VirtualClock
from perdure.tools import sleep_tool

from .conftest import Stage
from .test_children import eventually, responses

HOUR = 3_600_000


def sleeper(**arguments: Any) -> Agent:
    steps = [Reply("", tool_calls=[ToolCall(name="sleep", arguments=arguments)]), Reply("Good morning.")]
    return Agent("a", model=ScriptedModel(steps), tools=[sleep_tool()])


@pytest.mark.parametrize("given", ["timedelta", "datetime", "milliseconds"])
async def test_a_message_for_later_waits_in_the_queue_and_holds_nobody(stage: Stage, given: str) -> None:
    at = stage.clock.now() + HOUR
    moments: dict[str, Any] = {
        "timedelta": timedelta(hours=1),
        "datetime": datetime.fromtimestamp(at / 1000, tz=timezone(timedelta(hours=5))),
        "milliseconds": at,
    }
    agent = Agent("a", model=ScriptedModel([Reply("Hi.")]))
    async with stage.process() as runtime:
        await runtime.sessions.send("s", "Hello.", submission="m", agent="a", not_before=moments[given])

        info = await runtime.sessions.info("s")
        assert (info.status, info.wake_at, info.holder) == ("queued", at, None)
        assert await runtime.recover([agent]) == []
        async with runtime.session("s", agent):
            result = await eventually(lambda: runtime.sessions.result("s", "m"), stage.clock, 60_000)
        assert (result.output, stage.clock.now() >= at) == ("Hi.", True)


async def test_a_message_for_later_can_be_edited_and_withdrawn_until_then_and_the_first_time_counts(stage: Stage) -> None:
    agent = Agent("a", model=ScriptedModel([Reply("Hi.")]))
    async with stage.process() as runtime:
        first = await runtime.sessions.send("s", "one", submission="m", agent="a", not_before=timedelta(hours=1))
        again = await runtime.sessions.send("s", "one", submission="m", agent="a", not_before=timedelta(hours=5))
        assert (first.duplicate, again.duplicate) == (False, True)
        assert (await runtime.sessions.info("s")).wake_at == stage.clock.now() + HOUR
        await runtime.sessions.send("s", "two", submission="n", not_before=timedelta(hours=2))
        await runtime.sessions.edit("s", "n", "better")
        await runtime.sessions.withdraw("s", "m")
        assert (await runtime.sessions.info("s")).wake_at == stage.clock.now() + 2 * HOUR

        async with runtime.session("s", agent):
            await eventually(lambda: runtime.sessions.result("s", "n"), stage.clock, 60_000)
        assert [message.text for message in await runtime.sessions.history("s")] == ["better", "Hi."]
        changes = [entry.change for entry in await runtime.sessions.entries("s") if isinstance(entry, QueueChanged)]
        assert changes == ["edited", "withdrawn"]


async def test_what_is_no_time_is_refused_and_nothing_is_sent(stage: Stage) -> None:
    async with stage.process() as runtime:
        for wrong in (1.5, True, -1, "tomorrow", datetime(2026, 1, 1), timedelta(days=-400_000)):
            with pytest.raises(UsageError, match="no time"):
                await runtime.sessions.send("s", "x", not_before=wrong)  # type: ignore[arg-type]
        assert await runtime.sessions.number("s") is None


async def test_a_turn_that_sleeps_is_held_by_nobody_and_goes_on_in_whatever_process(stage: Stage) -> None:
    async with stage.process() as runtime:
        async with runtime.session("s", sleeper(seconds=3600)) as handle:
            began = stage.clock.now()
            await handle.send("Good night.", submission="m")
            stage.clock.auto = False
            await _parked(runtime)
        info = await runtime.sessions.info("s")
        assert (info.status, info.holder, info.wake_at) == ("waiting", None, began + HOUR)
        stage.clock.auto = True
    async with stage.process() as runtime:
        result = await runtime.run(sleeper(seconds=3600), "Good night.", session="s", submission="m")

        assert result.output == "Good morning."
        [_, fired, _] = [entry for entry in await runtime.sessions.entries("s") if isinstance(entry, OperationEnded)]
        assert (fired.status, fired.at >= began + HOUR) == ("succeeded", True)
        assert await responses(runtime) == ["The time has come."]


async def _parked(runtime: Any) -> None:
    async with asyncio.timeout(60):
        while not (await runtime.sessions.number("s") and (await runtime.sessions.info("s")).status == "waiting"):
            await asyncio.sleep(0)


async def test_a_sleeper_is_interrupted_like_anybody(stage: Stage) -> None:
    async with stage.process() as runtime:
        stage.clock.auto = False
        async with runtime.session("s", sleeper(seconds=1e6)) as handle:
            await handle.send("Good night.", submission="m")
            await _parked(runtime)
            await handle.interrupt()
        result = await runtime.sessions.result("s", "m")
        assert result is not None
        assert result.status == "aborted"
        stage.clock.auto = True


async def test_until_names_a_moment_and_what_names_none_is_told_to_the_model(stage: Stage) -> None:
    at = datetime.fromtimestamp(stage.clock.now() / 1000 + 90, tz=UTC)
    async with stage.process() as runtime:
        await runtime.run(sleeper(until=at.isoformat()), "x", session="s", submission="m")
        assert stage.clock.now() >= at.timestamp() * 1000
        far = (at + timedelta(days=3661)).isoformat()
        for number, wrong in enumerate(
            ({}, {"seconds": 1, "until": at.isoformat()}, {"until": "soon"}, {"until": "2026-01-01T00:00:00"}, {"until": far})
        ):
            await runtime.run(sleeper(**wrong), "x", session=f"w{number}", submission="m")
            assert (await responses(runtime, f"w{number}"))[0].startswith(("sleep takes either", "until="))


class Jumping(VirtualClock):
    """A clock that somebody sets back."""

    back = 0

    def now(self) -> int:
        return super().now() - self.back

    async def sleep_until(self, at: int) -> None:
        await super().sleep_until(at + self.back)


async def test_a_clock_that_jumps_backwards_makes_no_entry_earlier_and_the_timer_fires(tmp_path: Any) -> None:
    clock = Jumping(auto=True)
    async with perdure.open(MemoryStore(clock.now), clock=clock) as runtime:
        running = asyncio.ensure_future(runtime.run(sleeper(seconds=60), "x", session="s", submission="m"))
        await _parked(runtime)
        clock.back = 45_000
        assert (await running).output == "Good morning."

        times = [entry.at for entry in await runtime.sessions.entries("s")]
        assert times == sorted(times)


async def test_the_pause_before_another_try_survives_a_restart(stage: Stage) -> None:
    asked: list[int] = []

    def model() -> ScriptedModel:
        def answer(request: Any) -> Reply:
            asked.append(stage.clock.now())
            if len(asked) == 1:
                raise ProviderUnavailable("later", retry_after=20.0)
            return Reply("At last.")

        return ScriptedModel([answer])

    async with stage.process() as runtime:
        running = asyncio.ensure_future(runtime.run(Agent("a", model=model()), "x", session="s", submission="m"))
        while not asked:
            await asyncio.sleep(0)
        running.cancel()
        stage.clock.auto = False
    stage.clock.auto = True
    async with stage.process() as runtime:
        assert (await runtime.run(Agent("a", model=model()), "x", session="s", submission="m")).output == "At last."
        assert asked[1] - asked[0] >= 20_000
