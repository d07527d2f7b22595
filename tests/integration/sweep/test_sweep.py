"""Every scenario ends the same wherever its process dies, and a sweep that shouldn't pass doesn't."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from perdure import Agent, DirectoryBlobs, ModelRequest, Reply, ToolCall, ToolContext, tool
from perdure.store.base import Store
from perdure.store.outside import WithBlobs
from perdure.testing import Life, Scenario, SweepFailed, VirtualClock, World, sweep
from perdure.testing.stage import MemoryPlace, Stalled
from perdure.testing.sweep import perform

from . import scenarios

SCENARIOS = {make().name: make for make in scenarios.ALL}
every_scenario = pytest.mark.parametrize("name", SCENARIOS)

ON_A_FILE = (
    *("plain answer", "transactional tools", "parallel tools", "approval: approve", "reconciled effect, told"),
    "two runners",
)
"""The scenarios that are swept on a real file, too, in the short form."""

WITH_LARGE_CONTENT = ("pictures in a message and in a result", "described, and read by a consumer")
"""Those with content that stands outside of the database where there is a place for it."""


def test_no_two_scenarios_have_the_same_name() -> None:
    assert len(SCENARIOS) == len(scenarios.ALL)


@pytest.mark.spec("S0-184")
@every_scenario
@pytest.mark.hazard("J-16", "H3", "H5")
async def test_a_death_at_any_point_changes_nothing_and_neither_does_a_second_one_right_after_it(name: str) -> None:
    report = await sweep(SCENARIOS[name](), twice=1)
    assert report.runs >= len(report.points)
    assert {"before commit", "after commit", "before send", "after send", "before model"} <= set(report.hit)


@every_scenario
async def test_nothing_changes_either_if_the_death_is_only_noticed_when_the_lease_runs_out(name: str) -> None:
    await sweep(SCENARIOS[name](), medium="silent")


@pytest.mark.parametrize("name", ON_A_FILE)
async def test_a_file_holds_what_memory_holds_wherever_the_process_dies(name: str) -> None:
    await sweep(SCENARIOS[name](), medium="sqlite")


class OutsidePlace:
    """A store in memory, whose large content stands in a directory."""

    def __init__(self, clock: VirtualClock, directory: Path) -> None:
        self._inner = MemoryPlace(clock)
        self._directory = directory

    def connect(self) -> Store:
        return WithBlobs(self._inner.connect(), DirectoryBlobs(self._directory))

    async def abandon(self, store: Store) -> None:
        assert isinstance(store, WithBlobs)
        await self._inner.abandon(store.inner)


@pytest.mark.parametrize("name", WITH_LARGE_CONTENT)
async def test_content_outside_of_the_database_is_there_wherever_the_process_dies(name: str, tmp_path: Path) -> None:
    directories = (tmp_path / str(number) for number in itertools.count())
    await sweep(SCENARIOS[name](), medium=lambda clock: OutsidePlace(clock, next(directories)))
    # Content comes before the commit that refers to it, so that some that nobody refers to may be left; and nothing half done.
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".put-")]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in ON_A_FILE])
async def test_every_scenario_survives_every_death_on_a_file(name: str) -> None:
    await sweep(SCENARIOS[name](), medium="sqlite")


@pytest.mark.long
@every_scenario
async def test_two_deaths_at_any_two_points_change_nothing(name: str) -> None:
    await sweep(SCENARIOS[name](), twice=1000)


async def greet(life: Life) -> None:
    await life.run("Please.", submission="m1")


def careless(effect: str) -> Scenario:
    """A tool that says it may be repeated and doesn't look at its key."""

    def agent(world: World) -> Agent:
        @tool(effect=effect)  # type: ignore[arg-type]
        async def charge(ctx: ToolContext, cents: int) -> str:
            await world.act(ctx, "charge", cents)
            return "charged"

        steps = [Reply(tool_calls=[ToolCall(name="charge", arguments={"cents": 5})]), Reply("Done.")]
        return Agent("a", model=world.model(list(steps)), tools=[charge])

    async def script(life: Life) -> None:
        await life.run("Please.", submission="m1")

    return Scenario(name="careless", agent=agent, script=script)


async def test_a_tool_that_wrongly_claims_to_be_idempotent_is_found_out() -> None:
    with pytest.raises(SweepFailed, match="was done 2 times under the key"):
        await sweep(careless("idempotent"))


async def test_a_script_that_sends_its_message_under_another_id_each_time_is_found_out() -> None:
    async def script(life: Life) -> None:
        await life.run("Please.", submission=f"m{life.number}")

    with pytest.raises(SweepFailed, match="outcomes is"):
        await sweep(Scenario(name="forgetful", agent=lambda world: Agent("a", model=world.model([Reply("Hi.")] * 2)), script=script))


async def test_an_answer_that_depends_on_the_process_is_found_out() -> None:
    async def script(life: Life) -> None:
        life.world.memory["life"] = life.number
        await life.run("Please.", submission="m1")

    def agent(world: World) -> Agent:
        return Agent("a", model=world.model([lambda request: Reply(f"life {world.memory['life']}")]))

    with pytest.raises(SweepFailed, match="transcript is"):
        await sweep(Scenario(name="moody", agent=agent, script=script))


async def test_a_call_of_a_model_that_no_ledger_has_is_found_out() -> None:
    def agent(world: World) -> Agent:
        async def twice(request: ModelRequest) -> Reply:
            await world.ask(request, "again")
            return Reply("Hi.")

        return Agent("a", model=world.model([twice]))

    with pytest.raises(SweepFailed, match="a model was asked 2 times for model, and the ledger has 1 of them"):
        await sweep(Scenario(name="talkative", agent=agent, script=greet), points=())


async def test_a_call_that_a_ledger_has_and_nobody_made_is_found_out() -> None:
    def agent(world: World) -> Agent:
        async def forgotten(request: ModelRequest) -> Reply:
            world.asked.clear()
            return Reply("Hi.")

        return Agent("a", model=world.model([forgotten]))

    with pytest.raises(SweepFailed, match="the ledger has 1 calls for model, and a model was asked 0 times"):
        await sweep(Scenario(name="inventive", agent=agent, script=greet), points=())


async def test_a_script_that_never_ends_is_told_from_one_that_takes_long() -> None:
    async def script(life: Life) -> None:
        await life.run("Please.", submission="m1")
        while True:
            await life.runtime.sessions.info("s")

    with pytest.raises(Stalled, match="still acting: worker"):
        await sweep(Scenario(name="endless", agent=lambda world: Agent("a", model=world.model([Reply("Hi.")])), script=script))


@pytest.mark.parametrize("kind", ["model", "effect"])
async def test_a_call_that_kills_its_process_every_time_is_given_up_after_the_third_restart(kind: str) -> None:
    scenario = scenarios.three_steps("pure") if kind == "effect" else scenarios.plain()
    deaths: tuple[int, ...] = ()
    for _ in range(4):
        _, stage, _ = await perform(scenario, deaths=deaths)
        deaths += (next(number for number, point in enumerate(stage.visited[-1]) if point.kind == kind),)

    ending, stage, problems = await perform(scenario, deaths=deaths)

    assert problems == []
    assert [loss.point.kind for loss in stage.losses] == [kind] * 4
    outcome, _, _, failure, *_ = ending.sessions["s"].outcomes["m1"]
    assert (outcome, failure) == ("turn_failed", "crash_loop")
    assert ending.sessions["s"].status == "idle"


async def test_a_sweep_in_which_hardly_anybody_died_proves_nothing_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(SweepFailed, match="nobody died in 3 runs"):
        await sweep(scenarios.ALL[0](), medium=lambda clock: OutsidePlace(clock, tmp_path), points=range(1_000, 1_003))
