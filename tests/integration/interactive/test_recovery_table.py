"""Every saved state and what a restart makes of it: rows RS-1 … RS-19 of the behaviours' table, over stored checkpoints.

The rows' own outcomes are those of ``on_restart="stop"``. With ``"continue"``, the default, a turn goes on wherever that is safe.
RS-7 (calls started before their model call ended) has no stored form here. RS-13 … 15 (saved routes) are in test_resuming.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import perdure
from perdure import Agent, Entry, HookContext, Middleware, Reply, SessionOpened, Stop, ToolCall, ToolContext, tool
from perdure.core.entries import ApprovalRequested, OperationEnded
from perdure.core.phase import phase
from perdure.testing import Fault, find_problems

from .acting import UNKNOWN, Past, Place, counting, lived, restarted, told, transcript, until

ran: list[str] = []


@tool
async def write_file(ctx: ToolContext, path: str) -> str:
    """Write a file."""
    ran.append(f"{ctx.call}#{ctx.attempt}")
    return f"wrote {path}"


@tool(effect="pure")
async def look(ctx: ToolContext, path: str) -> str:
    """Read a file."""
    ran.append(f"{ctx.call}#{ctx.attempt}")
    return f"saw {path}"


@tool(exclusive=True)
async def alone(ctx: ToolContext, path: str) -> str:
    """Write, with nothing beside it."""
    ran.append(f"{ctx.call}#{ctx.attempt}")
    return f"wrote {path}"


WRITE, WRITE_TOO = ToolCall("write_file", {"path": "a"}, "call-1"), ToolCall("write_file", {"path": "b"}, "call-2")
LOOK, ALONE = ToolCall("look", {"path": "c"}, "call-3"), ToolCall("alone", {"path": "d"}, "call-4")
GO, STEER, LATER = ("m-1", "go", "turn"), ("m-2", "queued after restart", "steer"), ("m-3", "and then", "queue")

ANSWERED = ["message assistant", "turn_completed t2"]


def agent_with(*replies: Any, mode: str = "stop") -> tuple[Agent, list[Any]]:
    model, asked = counting(*replies)
    agent = Agent("helper", model=model, tools=[write_file, look, alone], approve=[], on_restart=mode)
    return agent, asked


@dataclass(frozen=True)
class Row:
    """One saved state, and in each mode what is seen after `SessionOpened`, how the model is asked, and what the transcript becomes."""

    story: Callable[[Past], None]
    seen: list[str]
    asked: int
    became: list[tuple[Any, ...]]
    sent: tuple[tuple[str, str, str], ...] = (GO,)
    parked: bool = False
    ran: list[str] = field(default_factory=list)
    phase: str = "idle"
    turns: int = 1
    modes: tuple[str, ...] = ("stop", "continue")


def started(past: Past) -> None:
    past.accept("m-1")


def between_steps(past: Past) -> None:
    past.accept("m-1")
    past.step(LOOK, "seen")


def step_open(past: Past) -> None:
    past.accept("m-1")
    past.ask_model()


def answered_fully(past: Past) -> None:
    past.accept("m-1")
    past.ask_model()
    past.answered("finished")


def finished(past: Past) -> None:
    from perdure.core.reports import Finish

    answered_fully(past)
    past.batch.apply(Finish(at=past.now))


def calls_open(*calls: ToolCall) -> Callable[[Past], None]:
    def story(past: Past) -> None:
        past.accept("m-1")
        past.ask_model()
        past.answered(*calls)
        past.plan()

    return story


def asking(past: Past) -> None:
    past.accept("m-1")
    past.ask_model()
    past.answered(WRITE, LOOK)
    past.plan(ask=["call-1"])


def decided(past: Past) -> None:
    asking(past)
    past.decide()
    past.start()


def lost(*calls: ToolCall, text: str = UNKNOWN) -> list[tuple[Any, ...]]:
    return [("assistant", *((call.id, call.arguments) for call in calls)), ("tool", *((call.id, text, True) for call in calls))]


ROWS: dict[str, Row] = {
    "RS-2 idle": Row(story=finished, parked=True, seen=[], asked=0, became=[("user", "go"), ("assistant", "finished")]),
    "RS-3 queued messages": Row(
        story=lambda past: None,
        sent=(GO, LATER),
        seen=[
            *["turn_started t2", "message user turn", "started t2.0.0#1", "ended t2.0.0#1 succeeded", *ANSWERED],
            *["turn_started t8", "message user queue", "started t8.0.0#1", "ended t8.0.0#1 succeeded"],
            *["message assistant", "turn_completed t8"],
        ],
        asked=2,
        became=[("user", "go"), ("assistant", "done"), ("user", "and then"), ("assistant", "done")],
        turns=2,
    ),
    "RS-4 at the first step": Row(
        story=started,
        seen=["recovered t2", "started t2.0.0#1", "ended t2.0.0#1 succeeded", *ANSWERED],
        asked=1,
        became=[("user", "go"), ("assistant", "done")],
    ),
    "RS-4 between steps": Row(
        story=between_steps,
        seen=["recovered t2", "started t2.1.0#1", "ended t2.1.0#1 succeeded", *ANSWERED],
        asked=1,
        became=[("user", "go"), ("assistant", ("call-3", {"path": "c"})), ("tool", ("call-3", "seen", False)), ("assistant", "done")],
    ),
    "RS-5 completing": Row(
        story=answered_fully,
        seen=["recovered t2", "turn_completed t2"],
        asked=0,
        became=[("user", "go"), ("assistant", "finished")],
    ),
    "RS-6 step open, stop": Row(
        story=step_open,
        modes=("stop",),
        seen=["ended t2.0.0#1 uncertain", "turn_aborted t2", "recovered t2"],
        asked=0,
        became=[("user", "go")],
    ),
    "RS-6 step open, continue": Row(
        story=step_open,
        modes=("continue",),
        seen=["ended t2.0.0#1 uncertain open", "recovered t2", "started t2.0.0#2", "ended t2.0.0#2 succeeded", *ANSWERED],
        asked=1,
        became=[("user", "go"), ("assistant", "done")],
    ),
    "RS-8 calls open, stop": Row(
        story=calls_open(WRITE, WRITE_TOO),
        modes=("stop",),
        seen=["ended t2.0.1#1 uncertain", "ended t2.0.2#1 uncertain", "message tool", "turn_aborted t2", "recovered t2"],
        asked=0,
        became=[("user", "go"), *lost(WRITE, WRITE_TOO)],
    ),
    "RS-8 calls open, continue": Row(
        story=calls_open(WRITE, WRITE_TOO),
        modes=("continue",),
        seen=[
            *["ended t2.0.1#1 uncertain", "ended t2.0.2#1 uncertain", "message tool", "recovered t2"],
            *["started t2.1.0#1", "ended t2.1.0#1 succeeded", *ANSWERED],
        ],
        asked=1,
        became=[("user", "go"), *lost(WRITE, WRITE_TOO), ("assistant", "done")],
    ),
    "RS-8 pure call open, stop": Row(
        story=calls_open(LOOK),
        modes=("stop",),
        seen=["ended t2.0.1#1 cancelled", "message tool", "turn_aborted t2", "recovered t2"],
        asked=0,
        became=[("user", "go"), *lost(LOOK)],
    ),
    "RS-8 pure call open, continue": Row(
        story=calls_open(LOOK),
        modes=("continue",),
        seen=[
            *["ended t2.0.1#1 cancelled open", "recovered t2", "started t2.0.1#2", "ended t2.0.1#2 succeeded", "message tool"],
            *["started t2.1.0#1", "ended t2.1.0#1 succeeded", *ANSWERED],
        ],
        asked=1,
        became=[
            *[("user", "go"), ("assistant", ("call-3", {"path": "c"})), ("tool", ("call-3", "saw c", False))],
            ("assistant", "done"),
        ],
        ran=["call-3#2"],
    ),
    "RS-8 one call never began, stop": Row(
        story=calls_open(WRITE, ALONE),
        modes=("stop",),
        seen=["ended t2.0.1#1 uncertain", "ended t2.0.2#0 cancelled", "message tool", "turn_aborted t2", "recovered t2"],
        asked=0,
        became=[
            ("user", "go"),
            ("assistant", ("call-1", {"path": "a"}), ("call-4", {"path": "d"})),
            ("tool", ("call-1", UNKNOWN, True), ("call-4", "not executed", True)),
        ],
    ),
    "RS-8 one call never began, continue": Row(
        story=calls_open(WRITE, ALONE),
        modes=("continue",),
        seen=[
            *["ended t2.0.1#1 uncertain", "recovered t2", "started t2.0.2#1", "ended t2.0.2#1 succeeded", "message tool"],
            *["started t2.1.0#1", "ended t2.1.0#1 succeeded", *ANSWERED],
        ],
        asked=1,
        became=[
            ("user", "go"),
            ("assistant", ("call-1", {"path": "a"}), ("call-4", {"path": "d"})),
            ("tool", ("call-1", UNKNOWN, True), ("call-4", "wrote d", False)),
            ("assistant", "done"),
        ],
        ran=["call-4#1"],
    ),
    "RS-9 asking": Row(
        story=asking,
        parked=True,
        seen=["asked t2.0.1"],
        asked=0,
        became=[("user", "go"), ("assistant", ("call-1", {"path": "a"}), ("call-3", {"path": "c"}))],
        phase="waiting",
        turns=0,
    ),
    "RS-9 asking, never let go": Row(
        story=asking,
        seen=["asked t2.0.1"],
        asked=0,
        became=[("user", "go"), ("assistant", ("call-1", {"path": "a"}), ("call-3", {"path": "c"}))],
        phase="waiting",
        turns=0,
    ),
    "RS-10 decided, stop": Row(
        story=decided,
        modes=("stop",),
        seen=["ended t2.0.1#1 uncertain", "ended t2.0.2#1 cancelled", "message tool", "turn_aborted t2", "recovered t2"],
        asked=0,
        became=[("user", "go"), *lost(WRITE, LOOK)],
    ),
    "RS-10 decided, continue": Row(
        story=decided,
        modes=("continue",),
        seen=[
            *["ended t2.0.1#1 uncertain", "ended t2.0.2#1 cancelled open", "recovered t2", "started t2.0.2#2"],
            *["ended t2.0.2#2 succeeded", "message tool", "started t2.1.0#1", "ended t2.1.0#1 succeeded", *ANSWERED],
        ],
        asked=1,
        became=[
            ("user", "go"),
            ("assistant", ("call-1", {"path": "a"}), ("call-3", {"path": "c"})),
            ("tool", ("call-1", UNKNOWN, True), ("call-3", "saw c", False)),
            ("assistant", "done"),
        ],
        ran=["call-3#2"],
    ),
    "RS-11 steer of a resumed turn": Row(
        story=between_steps,
        sent=(GO, STEER),
        seen=["recovered t2", "message user steer", "started t2.1.0#1", "ended t2.1.0#1 succeeded", *ANSWERED],
        asked=1,
        became=[
            *[("user", "go"), ("assistant", ("call-3", {"path": "c"})), ("tool", ("call-3", "seen", False))],
            *[("user", "queued after restart"), ("assistant", "done")],
        ],
    ),
    "RS-11 steer of a completing turn": Row(
        story=answered_fully,
        sent=(GO, STEER),
        seen=["recovered t2", "message user steer", "started t2.1.0#1", "ended t2.1.0#1 succeeded", *ANSWERED],
        asked=1,
        became=[("user", "go"), ("assistant", "finished"), ("user", "queued after restart"), ("assistant", "done")],
    ),
    "RS-12 steer of a turn whose step was open": Row(
        story=step_open,
        sent=(GO, STEER),
        modes=("stop",),
        seen=[
            *["ended t2.0.0#1 uncertain", "turn_aborted t2", "recovered t2", "promoted m-2 to queue", "turn_started t9"],
            *["message user queue", "started t9.0.0#1", "ended t9.0.0#1 succeeded", "message assistant", "turn_completed t9"],
        ],
        asked=1,
        became=[("user", "go"), ("user", "queued after restart"), ("assistant", "done")],
        turns=2,
    ),
    "RS-12 steer of a turn whose calls were open": Row(
        story=calls_open(WRITE),
        sent=(GO, STEER),
        modes=("stop",),
        seen=[
            *["ended t2.0.1#1 uncertain", "message tool", "turn_aborted t2", "recovered t2", "promoted m-2 to queue", "turn_started t13"],
            *["message user queue", "started t13.0.0#1", "ended t13.0.0#1 succeeded", "message assistant", "turn_completed t13"],
        ],
        asked=1,
        became=[("user", "go"), *lost(WRITE), ("user", "queued after restart"), ("assistant", "done")],
        turns=2,
    ),
    "RS-12 steer of a turn whose decision was made": Row(
        story=decided,
        sent=(GO, STEER),
        modes=("stop",),
        seen=[
            *["ended t2.0.1#1 uncertain", "ended t2.0.2#1 cancelled", "message tool", "turn_aborted t2", "recovered t2"],
            *["promoted m-2 to queue", "turn_started t19", "message user queue", "started t19.0.0#1", "ended t19.0.0#1 succeeded"],
            *["message assistant", "turn_completed t19"],
        ],
        asked=1,
        became=[("user", "go"), *lost(WRITE, LOOK), ("user", "queued after restart"), ("assistant", "done")],
        turns=2,
    ),
}

CASES = [pytest.param(row, mode, id=f"{name} ({mode})") for name, row in ROWS.items() for mode in row.modes]


@pytest.mark.parametrize(("row", "mode"), CASES)
async def test_a_saved_state_becomes_exactly_what_the_table_says(place: Place, row: Row, mode: str) -> None:
    ran.clear()
    agent, asked = agent_with(Reply("done"), mode=mode)
    past = await lived(place, agent, row.story, *row.sent, parked=row.parked)
    async with place.process() as process:
        before = await process.row()
        seen = await restarted(process, agent)
        assert [told(event) for event in seen] == ["opened", *row.seen]
        assert await transcript(process) == row.became
        assert (len(asked), ran) == (row.asked, row.ran)
        checkpoint = await process.sessions.checkpoint("s")
        assert (phase(checkpoint), checkpoint.turns) == (row.phase, row.turns)
        after = await process.row()
        if row.phase == "idle":
            assert (after.status, after.holder, after.wake_at) == ("idle", None, None)
            assert await process.pending() == []
        if not row.seen or row.phase == "waiting":
            assert after == before
            assert checkpoint == past.checkpoint
    async with place.process() as process:
        # Nothing that was settled is settled again.
        again = await restarted(process, agent)
        assert [told(event) for event in again] == ["opened", *(word for word in row.seen if row.phase == "waiting")]
        assert await process.row() == after


async def test_rs_1_without_a_session_nothing_is_stored_before_somebody_speaks(place: Place) -> None:
    agent, asked = agent_with(Reply("done"))
    async with place.process() as process:
        async with process.session("s", agent) as handle:
            opened = await anext(handle.events())
        assert opened == SessionOpened(session_id="s", version=0, created=True)
        assert await process.store.load("s") is None
    assert not asked


async def test_rs_9_the_question_is_asked_again_with_its_ids_and_its_answer_goes_on(place: Place) -> None:
    ran.clear()
    agent, asked = agent_with(Reply("done"))
    past = await lived(place, agent, asking, GO, parked=True)
    stored = next(entry for entry in past.batch.entries if isinstance(entry, ApprovalRequested))
    async with place.process() as process, process.session("s", agent) as handle:
        events = handle.events()
        assert isinstance(await anext(events), SessionOpened)
        assert await anext(events) == stored
        assert not ran
        await handle.approve(stored.request_id)
        async for event in events:
            if isinstance(event, perdure.TurnEnded):
                break
        assert isinstance(event, perdure.TurnCompleted)
    assert (sorted(ran), len(asked)) == (["call-1#1", "call-3#1"], 1)


@pytest.mark.parametrize("mode", ["stop", "continue"])
async def test_a_recovery_that_dies_at_any_of_its_commits_and_is_repeated_ends_the_same(place: Place, mode: str) -> None:
    """One commit after pure computation: before it nothing happened, after it everything did."""
    agent, _ = agent_with(Reply("done"), mode=mode)
    await lived(place, agent, calls_open(WRITE), GO, STEER)
    for when in ("before", "after"):
        async with place.process(Fault(nth=1, when=when, action="die")) as process:
            with pytest.raises(perdure.StoreError):
                await process.recover([agent], session="s")
    async with place.process() as process:
        await process.recover([agent], session="s")
        receipts = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded) and entry.attempt]
        assert sum(entry.operation == "t2.0.1" for entry in receipts) == 1
        assert (await process.sessions.checkpoint("s")).turn is None
        assert await find_problems(process.store, "s") == []


class Closing(Middleware):
    """Wants no turn to go on today."""

    name = "closing"

    def __init__(self) -> None:
        self.open = False

    async def session_start(self, ctx: HookContext) -> Stop | None:
        return None if self.open else Stop("closed today")


@pytest.mark.spec("S2-133")
@pytest.mark.parametrize("mode", ["stop", "continue"])
@pytest.mark.parametrize(
    ("story", "settled"),
    [
        (between_steps, []),
        (answered_fully, []),
        (asking, ["closed t2.0.1 abort by turn", "ended t2.0.1#0 cancelled", "ended t2.0.2#0 cancelled", "message tool"]),
    ],
)
async def test_rs_18_a_hook_that_wants_to_stop_at_the_start_aborts_the_turn_that_goes_on(
    place: Place, story: Callable[[Past], None], settled: list[str], mode: str
) -> None:
    ran.clear()
    agent, asked = agent_with(Reply("done"), mode=mode)
    await lived(place, agent, story, GO)
    closing = agent.replace(middleware=[Closing()], on_change="any")
    async with place.process() as process, process.session("s", closing) as handle:
        if story is asking:
            # For a question that is open nothing is taken up; the hook speaks as soon as something is, and before the answer counts.
            await handle.approve((await handle.requests())[0].request_id)
        seen = [told(event) for event in await until(handle) if isinstance(event, Entry)]
        assert [word for word in seen if not word.startswith(("definition", "recovered", "asked"))] == [*settled, "turn_aborted t2"]
        (aborted,) = await process.sessions.entries("s", kinds=["turn_aborted"])
        assert aborted.reason == "closed today"  # type: ignore[attr-defined]
        assert await find_problems(process.store, "s") == []
    assert (asked, ran) == ([], [])


@pytest.mark.spec("S2-133")
async def test_rs_18_a_hook_that_wants_to_stop_at_the_start_of_an_idle_session_stops_no_message(place: Place) -> None:
    agent, asked = agent_with(Reply("done"))
    closing = agent.replace(middleware=[Closing()])
    async with place.process() as process:
        assert (await process.run(closing, "one", session="s")).output == "done"
    async with place.process() as process:
        assert (await process.run(closing, "two", session="s")).output == "done"
        assert await process.sessions.entries("s", kinds=["turn_aborted"]) == []
    assert len(asked) == 2
