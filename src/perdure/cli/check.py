"""``perdure check``: what the code that is about to run would make of what is unfinished."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable

from ..agent import Agent
from ..runtime.redefining import Deploy
from .agents import all_agents
from .exits import FAILED, OK
from .opening import opened
from .screen import Screen
from .text import counted, plain

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> Awaitable[int]:
    """List what would be refused; the exit code says whether anything would."""
    return _check(arguments, all_agents(arguments.agents))


async def _check(arguments: argparse.Namespace, agents: list[Agent]) -> int:
    async with opened(arguments) as runtime:
        found = await runtime.check(agents, others=not arguments.known)
    screen = Screen(as_json=arguments.json)
    if arguments.json:
        screen.json(plain(found))
    else:
        _show(screen, found)
    return FAILED if found.refused else OK


def _show(screen: Screen, found: Deploy) -> None:
    for item in found.refused:
        screen.line(("✗ ", "red"), (item.session_id, "bold"), f"  {item.agent}, {item.status}: would be refused")
        for reason in item.reasons:
            screen.line((reason, "red"), indent=6)
        for change in item.difference:
            if change not in item.reasons:
                screen.line((change, "dim"), indent=6)
    for item in found.changed:
        screen.line(("~ ", "yellow"), (item.session_id, "bold"), f"  {item.agent}, {item.status}: would go on")
        for change in item.difference:
            screen.line((change, "dim"), indent=6)
    for tool in found.keyless:
        words = f"the external tool {tool.tool!r} of {tool.agent!r} has no key=: calls are the same effect only with all arguments the same"
        screen.line(("! ", "yellow"), words)
    refused = (f"{len(found.refused)} would be refused", "bold red") if found.refused else ("none would be refused", "green")
    screen.line(f"{counted(found.sessions, 'unfinished session')}: ", refused)
