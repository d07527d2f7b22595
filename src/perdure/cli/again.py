"""``perdure request`` and ``perdure replay``: what a model saw, and what another one would have made of it."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable
from typing import Any

from ..agent import Agent
from ..core.errors import UnknownAgent, UsageError
from ..core.messages import Message
from ..models.prices import Prices
from ..runtime.asked import AskedRequest
from ..runtime.replay import Replay, replay
from .agents import all_agents
from .exits import FAILED, OK
from .opening import opened
from .screen import Screen
from .text import arguments as shown_arguments
from .text import counted, moment, plain

__all__ = ["replay_session", "request"]


async def request(arguments: argparse.Namespace) -> int:
    """Print a request again; the exit code says whether it is what was recorded."""
    async with opened(arguments) as runtime:
        asked = await runtime.sessions.request(arguments.session, arguments.step)
    screen = Screen(as_json=arguments.json)
    if arguments.json:
        screen.json({**plain(asked), "request": _plain_request(asked), "verified": asked.verified})
    else:
        _show_request(screen, asked)
    return OK if not asked.problems else FAILED


def _plain_request(asked: AskedRequest) -> dict[str, Any]:
    request = asked.request
    return {
        "instructions": request.instructions,
        "messages": [{"role": message.role, "parts": plain(message.parts)} for message in request.messages],
        "tools": plain(request.tools),
        "settings": plain(request.settings),
        "output": plain(request.output),
        "route": request.route,
        "purpose": request.purpose,
    }


def _show_request(screen: Screen, asked: AskedRequest) -> None:
    request, record = asked.request, asked.record
    screen.line((f"{asked.operation}#{asked.attempt}", "bold"), f"  {asked.kind}, to {record.route} {moment(asked.at)}")
    screen.line((f"context {record.context[:16]}…, epoch {record.epoch}, request {record.digest[:16]}…", "dim"))
    if request.instructions:
        screen.line(("instructions", "cyan"))
        screen.line(request.instructions, indent=2)
    for message in request.messages:
        screen.line((_role(message), "cyan"))
        for part in plain(message.parts):
            body = part.get("content") if part["type"] in ("text", "reasoning") else None
            screen.line(body if isinstance(body, str) else shown_arguments(part, 1_000_000), indent=2)
    for tool in request.tools:
        screen.line(("tool ", "cyan"), tool.name, (f"  {shown_arguments(tool.parameters, 1_000_000)}", "dim"))
    if request.output is not None:
        screen.line(("answer ", "cyan"), request.output.name, (f"  {shown_arguments(request.output.schema, 1_000_000)}", "dim"))
    screen.line(("settings ", "cyan"), shown_arguments(plain(request.settings), 1_000_000))
    if not asked.private:
        screen.line(("whether it held reasoning that only its provider reads is not known: the call didn't answer", "dim"))
    for seq in asked.redacted:
        screen.line(("– ", "yellow"), f"entry {seq} was redacted: what the model saw there is gone for good, and can't be verified")
    for problem in asked.problems:
        screen.line(("✗ ", "red"), problem)
    if asked.verified:
        screen.line(("✓ ", "green"), "it is what was recorded: all digests agree")


def _role(message: Message) -> str:
    place = f" {message.position}" if message.position >= 0 and message.seq else ""
    return f"{message.role}{place}"


def replay_session(arguments: argparse.Namespace) -> Awaitable[int]:
    """Play a session to an agent; the exit code says whether all came out the same."""
    where, name = arguments.agents, arguments.agent
    if not where and not name:
        raise UsageError("it takes an agent to replay a session", hint="--agent MODULE or MODULE:AGENT, or --agents WHERE … --agent NAME")
    if not where:
        where, name = [name], ""
    return _replay(arguments, all_agents(where), name)


async def _replay(arguments: argparse.Namespace, agents: list[Agent], given: str | None) -> int:
    async with opened(arguments) as runtime:
        recording = await runtime.sessions.recording(arguments.session)
    name = given or (agents[0].name if len(agents) == 1 else recording.agent)
    agent = next((item for item in agents if item.name == name), None)
    if agent is None:
        raise UnknownAgent(f"there is no agent {name!r}", hint=f"known here: {', '.join(item.name for item in agents)}")
    model = recording.model() if arguments.model == "recorded" else arguments.model
    found = await replay(recording, agent, model=model, prices=Prices() if Prices.installed() else None)
    screen = Screen(as_json=arguments.json)
    if arguments.json:
        screen.json({**plain(found), "same": found.same})
    else:
        _show_replay(screen, found)
    return OK if found.same else FAILED


def _show_replay(screen: Screen, found: Replay) -> None:
    for turn in found.turns:
        (then, now), (used_then, used_now) = turn.status, map(str, turn.usage)
        same = then == now and not turn.difference
        ended = f"{then or 'unfinished'}" if then == now else f"{then or 'unfinished'} then, {now} now"
        screen.line(("= " if same else "≠ ", "green" if same else "yellow"), (turn.turn, "bold"), f"  {ended}")
        if turn.failure:
            screen.line((turn.failure, "red"), indent=4)
        if used_then != used_now:
            screen.line(("≠ ", "yellow"), f"used {used_then} then, {used_now} now", indent=4)
        for line in turn.difference:
            style = {"+": "green", "-": "red"}.get(line[:1], "dim")
            screen.line((line, style), indent=4)
    for name, arguments in found.refused:
        screen.line(("✗ ", "red"), f"refused, since no such call was recorded: {name}({shown_arguments(arguments)})")
    for name, arguments in found.missing:
        screen.line(("– ", "yellow"), f"not asked for again: {name}({shown_arguments(arguments)})")
    for name in sorted({*found.effects, *found.again}):
        then_, now_ = found.effects.get(name, 0), found.again.get(name, 0)
        if then_ != now_:
            screen.line(("! ", "yellow"), f"{name}: {counted(then_, 'effect')} then, {now_} now")
    for note in found.notes:
        screen.line((note, "dim"))
    before, after = found.usage
    screen.line(f"then {before}")
    screen.line(f"now  {after}")
    screen.line(("the same", "green") if found.same else ("it came out differently", "yellow"))
