"""What a session says about itself, and which of its agent's tools it may use: describe, restrict."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable
from typing import Any

from ..agent import Agent
from ..core.errors import UsageError
from ..core.records import ALL_TOOLS, Identity, ToolPolicy
from ..runtime.infos import SessionInfo
from .agents import all_agents
from .decide import json_object
from .exits import OK
from .opening import opened
from .screen import Screen
from .sending import confirm
from .text import plain, short, value

__all__ = ["describe", "labels_of", "restrict", "tools_of"]


def labels_of(given: list[str] | None) -> dict[str, str]:
    """Labels as people write them: ``NAME=VALUE``. Raises `UsageError`."""
    labels = {}
    for item in given or ():
        name, equals, label = item.partition("=")
        if not equals:
            raise UsageError(f"{item!r} is no label", hint="--label NAME=VALUE")
        labels[name] = label
    return labels


def tools_of(arguments: argparse.Namespace) -> ToolPolicy | None:
    """The tool policy that the options describe; None if there are none. Raises `UsageError`."""
    only, never, ask = (tuple(getattr(arguments, name)) for name in ("only", "never", "ask"))
    if arguments.all_tools:
        if only or never or ask:
            raise UsageError("--all-tools is all of them", hint="leave --only, --never and --ask out")
        return ALL_TOOLS
    return ToolPolicy(only=only or None, never=never, ask=ask) if only or never or ask else None


def describe(arguments: argparse.Namespace) -> Awaitable[int]:
    """Replace what was given, or show all of it."""
    metadata = json_object(arguments.metadata, "--metadata", '{"tier": "gold"}')
    labels = {} if arguments.no_labels else labels_of(arguments.label) if arguments.label else None
    if arguments.title is None and labels is None and metadata is None:
        return _show(arguments)
    return _describe(arguments, {"title": arguments.title, "labels": labels, "metadata": metadata})


async def _describe(arguments: argparse.Namespace, given: dict[str, Any]) -> int:
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.describe(arguments.session, **given, submission=arguments.submission, actor=arguments.actor)
        names = ", ".join(name for name, item in given.items() if item is not None)
        await confirm(runtime, arguments, sent, f"replaced: {names}")
    return OK


async def _show(arguments: argparse.Namespace) -> int:
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        info = await runtime.sessions.info(arguments.session)
    if arguments.json:
        screen.json(plain(info))
        return OK
    screen.line((info.session_id, "bold"), (f"  {short(info.title, 200)}", ""))
    for name, shown in _facts(info):
        screen.line((f"{name} ", "dim"), shown, indent=2)
    if info.problem:
        screen.line((info.problem, "red"), indent=2)
    return OK


def _facts(info: SessionInfo) -> list[tuple[str, str]]:
    """What there is to say, by name."""
    identity, tools = info.identity or Identity(owner=info.owner), info.tools or ALL_TOOLS
    facts = [(name, str(item)) for name, item in plain(identity).items() if item]
    facts += [("agent", info.agent), ("route", info.route or ""), ("parent", info.parent or "")]
    facts += [(f"label {name}", label) for name, label in info.labels.items()]
    facts += [(f"metadata {name}", value(item, 2000)) for name, item in (info.metadata or {}).items()]
    facts += _policy(tools)
    return [(name, shown) for name, shown in facts if shown]


def restrict(arguments: argparse.Namespace) -> Awaitable[int]:
    """Say which tools a session may use."""
    tools = tools_of(arguments)
    if tools is None:
        raise UsageError("no tool is named", hint="--only, --never and --ask name tools; --all-tools lets it use all of them again")
    return _restrict(arguments, tools, all_agents(arguments.agents))


async def _restrict(arguments: argparse.Namespace, tools: ToolPolicy, agents: list[Agent]) -> int:
    async with opened(arguments) as runtime:
        before = (await runtime.sessions.info(arguments.session)).tools or ALL_TOOLS
        sent = await runtime.sessions.restrict(
            arguments.session, tools, agents=agents, submission=arguments.submission, actor=arguments.actor
        )
        said = "restricted; models are told with their next request" if tools != ALL_TOOLS else "it may use every tool of its agent"
        await confirm(runtime, arguments, sent, said, tools=plain(tools), replaced=plain(before))
    if not arguments.json:
        _told(Screen(), tools, before)
    return OK


def _told(screen: Screen, tools: ToolPolicy, before: ToolPolicy) -> None:
    """What holds now, and what doesn't any more."""
    for policy, when, style in ((tools, "", ""), (before, "replaced: ", "dim")):
        if policy != ALL_TOOLS and not (when and policy == tools):
            screen.line((when + "; ".join(f"{name} {shown}" for name, shown in _policy(policy)), style), indent=2)


def _policy(tools: ToolPolicy) -> list[tuple[str, str]]:
    """What a policy says, by name."""
    facts = [] if tools.only is None else [("only the tools", ", ".join(tools.only))]
    facts += [("never the tools", ", ".join(tools.never)), ("asks before", ", ".join(tools.ask))]
    return [(name, shown) for name, shown in facts if shown]
