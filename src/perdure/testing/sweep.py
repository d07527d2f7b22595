"""The boundary sweep: a scenario is killed at every point that it passes, started again, and must come to the same end.

    report = await sweep(Scenario(name="refund", agent=make_agent, script=script))

For everything by which the undisturbed run changes the store the process dies just before that is durable, and just after it is and before
anybody heard; and it dies in the middle of every tool and model call. It is started again with the same script, which sends the same
submissions again. Transcript, outcomes, executed effects and known usage must be those of the undisturbed run, and the ledger must hold the
calls that the world's models were asked, whoever died.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..agent import Agent
from ..core import checkpoint as checkpoints
from ..core.entries import TurnEnded, TurnFailed, TurnStarted
from ..core.ids import idempotency_key
from ..core.journal import open_entry
from ..core.messages import ToolCallResponse
from ..core.records import MODEL_KINDS
from ..core.rules.endings import UNKNOWN_AFTER_RESTART
from ..core.usage import Totals
from ..runtime.messages import read_entries
from ..store.base import SessionQuery, Store
from .checks import find_all_problems, read_transcript
from .clock import VirtualClock
from .stage import Loss, MemoryPlace, Place, Point, Script, SQLitePlace, Stage
from .world import World

__all__ = ["Ending", "Report", "Scenario", "SessionEnding", "SweepFailed", "perform", "sweep", "unknown_is_told"]

Medium: TypeAlias = Literal["memory", "silent", "sqlite"] | Callable[[VirtualClock], Place]


class SweepFailed(AssertionError):
    """A scenario came to another end than the undisturbed run."""


@dataclass(frozen=True)
class SessionEnding:
    """How one session ended: what must not depend on where a process died.

    ``transcript`` holds (role, parts) with every reference resolved; ``outcomes`` what became of each turn's submission; ``known`` the
    tokens that were reported.
    """

    transcript: tuple[tuple[str, tuple[Any, ...]], ...]
    outcomes: Mapping[str, tuple[Any, ...]]
    known: tuple[int, ...]
    status: str

    def with_response(self, call: str, response: Any, *, is_error: bool = True) -> SessionEnding:
        """The same, but for what one call came to."""
        transcript = []
        for role, parts in self.transcript:
            changed = tuple(
                replace_part(part, response, is_error) if isinstance(part, ToolCallResponse) and part.id == call else part for part in parts
            )
            transcript.append((role, changed))
        return replace(self, transcript=tuple(transcript))


def replace_part(part: ToolCallResponse, response: Any, is_error: bool) -> ToolCallResponse:
    """A response with another content."""
    return ToolCallResponse(id=part.id, name=part.name, response=response, is_error=is_error)


@dataclass(frozen=True)
class Ending:
    """How a run ended. ``effects`` counts what was done outside; ``optional`` are those of which nobody can say whether they were."""

    sessions: Mapping[str, SessionEnding]
    effects: frozenset[tuple[str, str, str]]
    optional: frozenset[tuple[str, str, str]] = frozenset()

    def change(self, session_id: str, ending: SessionEnding) -> Ending:
        """The same, but for one session."""
        return replace(self, sessions={**self.sessions, session_id: ending})

    def differences(self, expected: Ending) -> list[str]:
        """Sentences about what is not as expected."""
        found: list[str] = []
        for session_id in {**expected.sessions, **self.sessions}:
            mine, theirs = self.sessions.get(session_id), expected.sessions.get(session_id)
            if mine is None or theirs is None:
                found.append(f"the session {session_id!r} is {'missing' if mine is None else 'there'}")
                continue
            for name in ("transcript", "outcomes", "known", "status"):
                if getattr(mine, name) != getattr(theirs, name):
                    found.append(f"{session_id}: {name} is\n    {getattr(mine, name)}\n  instead of\n    {getattr(theirs, name)}")
        required, allowed = expected.effects - expected.optional, expected.effects | expected.optional
        if missing := required - self.effects:
            found.append(f"these effects are missing: {sorted(missing)}")
        if more := self.effects - allowed:
            found.append(f"these effects should not be there: {sorted(more)}")
        return found


Adjust: TypeAlias = Callable[[Ending, "tuple[Loss, ...]"], "Ending | tuple[Ending, ...]"]


def unknown_is_told(undisturbed: Ending, losses: tuple[Loss, ...]) -> Ending:
    """What is expected of external tools by default: a call that was cut off is told as unknown, unless its tool can tell; the rest is as
    if nothing had happened."""
    ending = undisturbed
    for loss in losses:
        for session_id, operation in loss.effects:
            if operation.plan.reconcile or operation.plan.ask_when_uncertain:
                continue
            call = operation.plan.call
            ending = ending.change(session_id, ending.sessions[session_id].with_response(call, UNKNOWN_AFTER_RESTART))
            cut_off = {effect for effect in ending.effects if effect[0] == session_id and effect[2].startswith(f"{call}:")}
            ending = replace(ending, optional=ending.optional | cut_off)
    return ending


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Something that must end the same wherever its process dies.

    ``agent`` makes the agent, anew for every life, with tools that act on the given `World`. ``script`` is what the process does: it must
    be one that can be run again from its start (name the submissions). ``actors`` are more scripts, each in a process of its own.
    ``expect`` turns the undisturbed ending into the one that is expected (or those that are allowed) when deaths left something in flight.
    ``commits`` and ``sends`` are how many of them the undisturbed run takes.
    """

    name: str
    agent: Callable[[World], Agent]
    script: Script
    actors: Mapping[str, Script] = field(default_factory=dict)
    expect: Adjust = unknown_is_told
    commits: int | None = None
    sends: int | None = None
    lease: float = 10.0
    close_grace: float = 5.0


@dataclass
class Report:
    """What a sweep did. ``points`` are those of the undisturbed run, ``runs`` how many disturbed runs there were, ``missed`` how many of
    them ended before they came to their point, ``hit`` at what kinds of points processes died."""

    scenario: str
    points: list[Point]
    runs: int = 0
    missed: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def check(self) -> Report:
        """Raises `SweepFailed` with what went wrong, the first few at length, and if nobody died in more than a quarter of the runs."""
        if self.missed > max(1, self.runs // 4) and not self.failures:
            self.failures.append(f"nobody died in {self.missed} runs")
        if self.failures:
            shown = "\n\n".join(self.failures[:3])
            raise SweepFailed(f"{self.scenario}: {len(self.failures)} of {self.runs} runs came to another end\n\n{shown}")
        return self


async def sweep(scenario: Scenario, *, medium: Medium = "memory", twice: int = 0, points: Iterable[int] | None = None) -> Report:
    """Kill a scenario at every point of its undisturbed run, one run each; raises `SweepFailed` if one comes to another end.

    ``medium``: a store in ``memory`` where deaths are noticed at once, a ``silent`` one where leases must run out, a ``sqlite`` file,
    or whatever makes an empty `Place` on a clock.
    ``twice``: after each death, die again at each of the first so many points of what follows. ``points`` are those to die at; None is all.
    """
    undisturbed, stage, problems = await perform(scenario, medium=medium)
    report = Report(scenario.name, stage.visited[0], failures=[f"undisturbed: {problem}" for problem in problems])
    for what, wanted, counted in (("commits", scenario.commits, len(stage.commits)), ("sends", scenario.sends, stage.sends)):
        if wanted is not None and wanted != counted:
            report.failures.append(f"undisturbed: it takes {counted} {what}, not {wanted}")
    if problems:
        return report.check()
    for number in range(len(report.points)) if points is None else points:
        follows = await _disturb(scenario, medium, (number,), undisturbed, report)
        for second in range(min(twice, follows)):
            await _disturb(scenario, medium, (number, second), undisturbed, report)
    return report.check()


async def _disturb(scenario: Scenario, medium: Medium, deaths: tuple[int, ...], undisturbed: Ending, report: Report) -> int:
    """One run with deaths. Returns how many points came after the last of them."""
    report.runs += 1
    where = ""
    try:
        ending, stage, problems = await perform(scenario, medium=medium, deaths=deaths)
    except Exception as error:
        points = [report.points[deaths[0]], *deaths[1:]]
        report.failures.append(f"died {', then '.join(map(str, points))} (points {deaths}): {type(error).__name__}: {error}")
        return 0
    where = ", then ".join(f"{loss.point} (by {loss.actor})" for loss in stage.losses)
    for loss in stage.losses:
        report.hit[f"{loss.point.when} {loss.point.kind}"] += 1
    expected = scenario.expect(undisturbed, tuple(stage.losses))
    allowed = expected if isinstance(expected, tuple) else (expected,)
    differences = [ending.differences(one) for one in allowed]
    if all(differences):
        problems = [*problems, *sorted(differences, key=len)[0]]
    if not stage.losses:
        # Threads and servers take turns as they like: who speaks while the agent works is heard a commit earlier or later.
        report.missed += 1
        if medium in ("memory", "silent"):
            problems.append("nobody died")
    if problems:
        report.failures.append(f"died {where} (points {deaths}):\n  " + "\n  ".join(problems))
    return len(stage.visited[-1]) if len(stage.losses) == len(deaths) else 0


async def perform(scenario: Scenario, *, medium: Medium = "memory", deaths: tuple[int, ...] = ()) -> tuple[Ending, Stage, list[str]]:
    """One run: how it ended, its stage, and what is wrong with what it left."""
    clock = VirtualClock(auto=True)
    world = World()
    with tempfile.TemporaryDirectory(prefix="perdure-sweep-", ignore_cleanup_errors=True) as directory:
        place: Place
        match medium:
            case "sqlite":
                place = SQLitePlace(clock, Path(directory) / "agents.db")
            case "memory" | "silent":
                place = MemoryPlace(clock, silent=medium == "silent")
            case make:
                place = make(clock)
        scripts = {"worker": scenario.script, **scenario.actors}
        stage = Stage(place, clock, world, scenario.agent, scripts, deaths=deaths, lease=scenario.lease, close_grace=scenario.close_grace)
        await stage.play()
        async with stage.looking() as store:
            ending = await _ending(store, world)
            return ending, stage, await _problems(store, world, stage.losses)


async def _ending(store: Store, world: World) -> Ending:
    sessions: dict[str, SessionEnding] = {}
    turns: dict[str, dict[str, int]] = {}
    for row in await store.sessions(SessionQuery(archived=True, limit=1000)):
        entries = [open_entry(item) for item in await read_entries(store, row.no)]
        started = [entry for entry in entries if isinstance(entry, TurnStarted)]
        turns[row.session_id] = {entry.turn: place for place, entry in enumerate(started)}
        outcomes: dict[str, tuple[Any, ...]] = {}
        transcript = await read_transcript(store, row.session_id)
        for entry in entries:
            if isinstance(entry, TurnEnded):
                answers = [message.text for message in transcript if message.role == "assistant" and entry.began < message.seq < entry.seq]
                failure = entry.failure.code if isinstance(entry, TurnFailed) else ""
                outcomes[entry.submission] = (
                    entry.kind,
                    answers[-1] if answers else "",
                    entry.reason,
                    failure,
                    entry.steps,
                    entry.tool_calls,
                    _known(entry.usage),
                )
        sessions[row.session_id] = SessionEnding(
            transcript=tuple((message.role, message.parts) for message in transcript),
            outcomes=outcomes,
            known=_known(checkpoints.decode(row.checkpoint).usage),
            status=row.status,
        )
    effects = frozenset(
        (effect.session_id, f"turn {turns.get(effect.session_id, {}).get(effect.operation.split('.')[0])}", effect.identity[2])
        for effect in world.effects
    )
    return Ending(sessions, effects)


def _cut_off(session_id: str, losses: list[Loss]) -> Counter[str]:
    """The calls of models that were begun when a process died, and may not have been made."""
    found: Counter[str] = Counter()
    for loss in losses:
        begun = [(session, item.plan.kind) for session, items in loss.lost.items() for item in items if item.plan.kind in MODEL_KINDS]
        # A process that died in the middle of an answer had made that call.
        if (loss.point.when, len(begun)) != ("within", 1):
            found.update(kind for session, kind in begun if session == session_id)
    return found


def _known(usage: Totals) -> tuple[int, ...]:
    return (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens)


async def _problems(store: Store, world: World, losses: list[Loss]) -> list[str]:
    problems = await find_all_problems(store)
    for row in await store.sessions(SessionQuery(archived=True, limit=1000)):
        entries = [open_entry(item) for item in await read_entries(store, row.no)]
        found = [
            *world.unrecorded(row.session_id, entries),
            *world.invented(row.session_id, entries, _cut_off(row.session_id, losses)),
        ]
        problems += [f"{row.session_id}: {problem}" for problem in found]
        if row.holder is not None:
            problems.append(f"{row.session_id}: it is still held by {row.holder}")
        waiting = await store.inbox(row.no)
        if waiting:
            problems.append(f"{row.session_id}: {[item.submission_id for item in waiting]} still wait")
    for effect in world.effects:
        if effect.effect == "external" and world.times(effect.key) > 1:
            problems.append(f"{effect.tool}({effect.value}) was done {world.times(effect.key)} times under the key {effect.key}")
        if effect.key != idempotency_key(store.store_id, effect.session_id, effect.operation):
            problems.append(f"{effect.tool}({effect.value}) has the key {effect.key}, which is not its operation's")
    return problems
