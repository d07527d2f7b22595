"""``perdure why``: what a session is doing or waiting for, and what would move it."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Sequence
from typing import Any

import msgspec

from ..agent import Agent
from ..agent.agent import with_teams
from ..core import checkpoint as checkpoints
from ..core import commands
from ..core.checkpoint import Checkpoint
from ..core.entries import OperationStarted
from ..core.errors import SessionNotFound
from ..core.ids import child_session
from ..core.messages import text_of
from ..core.phase import asleep, phase
from ..runtime.infos import SessionInfo
from ..runtime.redefining import UNFINISHED
from ..runtime.requests import Request
from ..runtime.runtime import Runtime
from ..store.base import InboxRow, Loaded
from .agents import all_agents
from .ask import explain, request_facts
from .behind import behind
from .exits import OK
from .hints import SOME_AGENT, command, resume_command
from .opening import opened
from .screen import Screen
from .sessions import STYLES
from .text import counted, moment, short, since

__all__ = ["run", "say_why"]


def run(arguments: argparse.Namespace) -> Awaitable[int]:
    """Say it."""
    return _run(arguments, all_agents(arguments.agents))


async def _run(arguments: argparse.Namespace, agents: list[Agent]) -> int:
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        await say_why(runtime, screen, arguments.session, arguments.db, agents)
    return OK


async def say_why(runtime: Runtime, screen: Screen, session_id: str, db: str, agents: Sequence[Agent] = ()) -> None:
    """Say what a session is doing or waiting for, and what would move it; of ``agents``, whether their code could.

    Raises `SessionNotFound`.
    """
    info = await runtime.sessions.info(session_id)
    if info.status == "halted":
        _show_halted(screen, info, db)
        return
    head = await runtime.store.load(session_id)
    if head is None:
        raise SessionNotFound(f"there is no session {session_id!r}")
    checkpoint = checkpoints.decode(head.row.checkpoint)
    requests = await runtime.sessions.requests(session_id, children=True)
    queue = await runtime.store.inbox(head.row.no)
    facts: dict[str, Any] = {
        "session": head.row.session_id,
        "status": head.row.status,
        "phase": phase(checkpoint),
        "holder": await _holder(runtime, head),
        "turn": _turn(checkpoint),
        "route": checkpoint.route,
        "operations": await _operations(runtime, head, checkpoint),
        "background": [item._asdict() for item in await behind(runtime, session_id)],
        "requests": [request_facts(item, db) for item in requests],
        "queue": [_queued(row) for row in queue],
        "wake_at": head.row.wake_at,
        "claims": head.row.claims,
        "limited": checkpoint.limited.turn if checkpoint.limited is not None else None,
        "uncertain": len(await runtime.store.effects(head.row.no, state="uncertain")),
        "refused": await _refused(runtime, session_id),
        "unfit": await _unfit(runtime, session_id, agents) if agents else None,
    }
    facts["next"] = [_whose(move, head.row.agent) for move in _next(facts, head, db)]
    if screen.as_json:
        screen.json(facts)
    else:
        _show(screen, facts, requests)


async def _unfit(runtime: Runtime, session_id: str, agents: Sequence[Agent]) -> list[str]:
    """Why the code of these agents could not go on with it; nothing if it could, or if there is nothing to go on with."""
    found = await runtime.check(with_teams(agents).values(), session=session_id)
    return [reason for item in found.refused for reason in item.reasons]


KINDS = {"model": "the model", "compaction": "the writer of notes", "repair": "the correction of the answer", "ask": "the model's question"}


def _show_halted(screen: Screen, info: SessionInfo, db: str) -> None:
    """Its checkpoint may be what is damaged, so that nothing more is read."""
    check = command(db, "verify", info.session_id)
    mend = command(db, "repair", info.session_id)
    moves = [f"`{check}` lists what is damaged; once that was restored, `{mend}` lets it go on"]
    if screen.as_json:
        screen.json({"session": info.session_id, "status": info.status, "problem": info.problem, "next": moves})
        return
    screen.line((info.session_id, "bold"), "  ", (info.status, STYLES[info.status]))
    screen.line((info.problem, "red"))
    for move in moves:
        screen.line(("→ ", "cyan"), move)


async def _holder(runtime: Runtime, head: Loaded) -> dict[str, Any] | None:
    if head.row.holder is None:
        return None
    runner = next((item for item in await runtime.store.runners() if item.id == head.row.holder), None)
    known = {} if runner is None else {"host": runner.host, "pid": runner.pid, "expires": runner.expires}
    return {"runner": head.row.holder, "alive": head.holder_alive, **known}


async def _refused(runtime: Runtime, session_id: str) -> list[dict[str, Any]]:
    """The processes that can't go on with it as they are, and why."""
    return [
        {"runner": runner.id, "host": runner.host, "pid": runner.pid, "since": refusal.since, "reason": refusal.reason}
        for runner in await runtime.store.runners()
        for refusal in runner.refused
        if runner.alive and refusal.session_id == session_id
    ]


def _turn(checkpoint: Checkpoint) -> dict[str, Any] | None:
    turn = checkpoint.turn
    if turn is None:
        return None
    return {"turn": turn.id, "submission": turn.submission, "agent": turn.agent, "started": turn.started, "step": turn.step}


async def _operations(runtime: Runtime, head: Loaded, checkpoint: Checkpoint) -> list[dict[str, Any]]:
    turn = checkpoint.turn
    found: list[dict[str, Any]] = []
    since_when: dict[tuple[str, int], int] = {}
    if turn is not None:
        started = await runtime.sessions.entries(head.row.session_id, after=turn.began, kinds=("operation_started",))
        since_when = {(item.operation, item.attempt): item.at for item in started if isinstance(item, OperationStarted)}
    sleepers = asleep(turn) if turn is not None else frozenset()
    for item in turn.operations if turn is not None else ():
        if item.status != "ended":
            found.append(
                {
                    "operation": item.id,
                    "kind": item.plan.kind,
                    "name": item.plan.name,
                    "status": "asleep" if item.id in sleepers and item.status == "ready" else item.status,
                    "attempt": item.attempt,
                    "since": since_when.get((item.id, item.attempt)),
                    "not_before": item.not_before or None,
                    "asks": item.is_question,
                    "session": child_session(head.row.session_id, item.id) if item.plan.kind == "child" else None,
                    "deadline": item.deadline or None,
                }
            )
    return found


def _queued(row: InboxRow) -> dict[str, Any]:
    text = ""
    if row.body is not None and row.kind == commands.PostMessage.kind:
        try:
            command = commands.decode(row.kind, row.body, submission=row.submission_id, at=row.at, actor=row.actor)
        except msgspec.MsgspecError:
            text = "(can't be read; run perdure verify)"
        else:
            text = text_of(getattr(command, "parts", ()))
    return {"submission": row.submission_id, "kind": row.kind, "at": row.at, "not_before": row.not_before, "actor": row.actor, "text": text}


def _next(facts: dict[str, Any], head: Loaded, db: str) -> list[str]:
    """What would move it, in sentences, commands in backquotes."""
    session_id = head.row.session_id
    resume = resume_command(db, session_id)
    holder = facts["holder"]
    if facts["unfit"]:
        stop = command(db, "interrupt", session_id)
        return [f"finish it with the code that it was begun with, stop the turn with `{stop}`, or see `on_change` of its Agent"]
    if head.row.status == "archived":
        return [f"it is archived: it can be read, and nothing runs in it; `{command(db, 'revive', session_id)}` takes it out again"]
    if head.row.status == "stuck":
        return [f"its processes died {head.row.claims} times without progress; once you know why: `{resume} --force`"]
    if holder is not None and holder["alive"]:
        if any(item["status"] == "ready" for item in facts["operations"]):
            return ["its holder tries again by itself"]
        watch, stop = f"{command(db, 'events', session_id)} --follow", command(db, "interrupt", session_id)
        return [f"its holder is at work; `{watch}` watches, `{stop}` stops the turn"]
    if holder is not None:
        return [f"its holder died; whoever runs `{resume}` takes over at once"]
    if facts["requests"]:
        moves = ["a decision, with one of the commands above"]
        if any(item["deadline"] for item in facts["requests"]):
            moves.append("the deadline, which decides for you once somebody looks")
        return moves
    if children := [item["session"] for item in facts["operations"] if item["session"] and item["status"] == "awaiting"]:
        called = ", ".join(f"`{command(db, 'why', child)}`" for child in children)
        return [f"the agents that it called have to answer: {called}", f"`{resume}` takes up what nobody works on"]
    if facts["turn"] is not None and facts["operations"] and all(item["status"] in ("awaiting", "asleep") for item in facts["operations"]):
        return [f"it goes on by itself at that time, with a worker, or whoever has it open; else `{resume}`"]
    later = max((item["not_before"] or 0 for item in facts["operations"] if item["status"] == "ready"), default=0)
    if facts["turn"] is not None and later > head.now and not facts["refused"]:
        return [f"its model is asked again at {moment(later)}, by a worker or whoever has it open; `{resume}` waits for that here"]
    if facts["turn"] is not None and facts["refused"]:
        stop = command(db, "interrupt", session_id)
        return [f"a worker whose code can go on with it takes it up at once; `{stop}` ends its turn without one"]
    if facts["turn"] is not None:
        looked = f"`{command(db, 'why', session_id)} --agents …`"
        return [
            f"nobody works on it; `{resume}` goes on where it was",
            f"where its agent's code changed since, {looked} says whether it may",
        ]
    if facts["queue"]:
        later = min((item["not_before"] or 0 for item in facts["queue"]), default=0)
        when = f", not before {moment(later)}" if later > head.now else ""
        model = f"; the model {facts['route']!r} is to answer, which the agent must have" if facts["route"] else ""
        return [f"somebody has to take up what waits{when}: `{resume}`, a worker, or whoever has it open{model}"]
    if facts["limited"]:
        more = f"`{resume} --limit NAME=VALUE`"
        return [
            f"its last turn, {facts['limited']}, reached a limit; {more} goes on with it under a higher one, and a message begins another"
        ]
    if facts["background"]:
        called = ", ".join(f"`{command(db, 'why', item['session'])}`" for item in facts["background"])
        return [f"agents that it called work in the background: {called}", f"`{resume}` goes on with what nobody works on"]
    if facts["uncertain"]:
        looked = f"`{command(db, 'uncertain', session_id)}`"
        return [f"nobody knows what came of {counted(facts['uncertain'], 'call')}: {looked} shows which, and how to settle them"]
    return [f'nothing is to be done; a message moves it: `{command(db, "send", session_id)} "…"`']


def _whose(move: str, agent: str) -> str:
    """A sentence with the agent's name, where it has a command that needs the agent."""
    return f"{move} (the agent is called {agent!r})" if agent and SOME_AGENT in move else move


def _awaited(item: dict[str, Any]) -> str:
    """What a call waits for that needs no process."""
    until = moment(item["deadline"]) if item["deadline"] else ""
    if item["session"] is None:
        return f"waits until {until}"
    return f"works in {item['session']}" + (f", until {until} at most" if until else "")


def _show(screen: Screen, facts: dict[str, Any], requests: list[Request]) -> None:
    screen.line((facts["session"], "bold"), "  ", (facts["status"], STYLES.get(facts["status"], "")))
    holder = facts["holder"]
    if holder is not None:
        place = f"process {holder['pid']} on {holder['host']}" if "pid" in holder else f"runner {holder['runner']}"
        alive = ("alive", "green") if holder["alive"] else ("dead", "bold red")
        screen.line(f"held by {place}, ", alive)
    for item in facts["refused"]:
        screen.line((f"refused by process {item['pid']} on {item['host']} for {since(item['since'])}: {item['reason']}", "red"))
    if facts["turn"] is not None:
        turn = facts["turn"]
        screen.line(
            f"turn {turn['turn']}, step {turn['step']}, for {since(turn['started'])}", (f"  submission {turn['submission']}", "dim")
        )
    for item in facts["operations"]:
        begun = f" for {since(item['since'])}" if item["since"] else ""
        words = {
            "started": f"runs{begun}" if holder is not None and holder["alive"] else f"was running{begun}",
            "planned": "is planned",
            "ready": f"was cut off or failed, and is tried again{' at ' + moment(item['not_before']) if item['not_before'] else ''}",
            "asleep": "sleeps, and runs again when its time has come",
            "unknown": "was interrupted; its tool is asked what became of it",
            "awaiting": f"{_awaited(item)}{begun}",
            "asking": "waits for what the user says" if item["asks"] else "was interrupted, and only a person can say what became of it",
        }[item["status"]]
        again = f" (attempt {item['attempt']})" if item["attempt"] > 1 else ""
        what = KINDS.get(item["kind"], item["name"])
        screen.line("  ", (what, "bold"), f" {words}{again}", (f"  {item['operation']}", "dim"))
    for item in facts["background"]:
        screen.line("  ", (item["agent"], "bold"), f" works in the background in {item['session']}: {item['status']}")
    for request, shown in zip(requests, facts["requests"], strict=True):
        explain(screen.line, request)
        for line in shown["commands"]:
            screen.line("  ", line)
    for item in facts["queue"]:
        later = f", not before {moment(item['not_before'])}" if item["not_before"] else ""
        screen.line(
            f"waiting since {moment(item['at'])}{later}: {item['kind']} ", short(item["text"], 60), (f"  {item['submission']}", "dim")
        )
    for reason in facts["unfit"] or ():
        screen.line(("✗ ", "red"), (reason, "red"))
    if facts["unfit"] == [] and facts["status"] in UNFINISHED:
        screen.line(("✓ ", "green"), "the code that was named could go on with it")
    for move in facts["next"]:
        screen.line(("→ ", "cyan"), move)
