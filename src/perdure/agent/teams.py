"""Agents that work for each other: one that is called as a tool, and one that takes a conversation over.

A call of an agent is a session of its own, found again by the call's operation after a restart; a handoff stays in the session. Both are
tools to the model, and neither runs a function: the runtime does.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import InvalidAgent
from ..core.records import EffectClass
from ..tools.tool import Delegation, Guard, Tool, tool

if TYPE_CHECKING:
    from .agent import Agent

__all__ = ["agent_tool", "handoff_tools", "successors_of", "team_of"]


def agent_tool(
    agent: Agent,
    *,
    name: str | None = None,
    description: str | None = None,
    background: bool = False,
    timeout: float | None = None,
    guard: Guard = "ask",
) -> Tool:
    """See `Agent.as_tool`."""
    if not isinstance(background, bool):
        raise InvalidAgent(f"background= of the agent {agent.name!r} as a tool must be True or False")
    name = _slug(agent.name) if name is None else name
    told = f"Give a task to the agent {agent.name}, who answers when it is done." if not background else (
        f"Give a task to the agent {agent.name}, who works on it in the background and reports in a message later."
    )  # fmt: skip

    # What a child did stays done: an equal call beyond an edit is asked about, unless none of its tools does anything.
    effect: EffectClass = "pure" if all(item.effect == "pure" for item in agent.toolset) else "idempotent"

    @tool(effect=effect, name=name, description=told if description is None else description, timeout=timeout, guard=guard)
    async def delegate(task: str) -> str:
        """Give a task to an agent.

        Args:
            task: Everything that the agent has to know: it sees nothing else of this conversation.
        """
        raise NotImplementedError("the runtime gives the task to a session of the agent's own")

    return dataclasses.replace(delegate, delegation=Delegation("child", agent=agent, background=background))


def handoff_tools(owner: str, targets: Any) -> tuple[Tool, ...]:
    """The tools ``transfer_to_…`` of an agent. Raises `InvalidAgent`."""
    if isinstance(targets, str) or not isinstance(targets, Sequence):
        raise InvalidAgent(f"handoffs= of the agent {owner!r} must be a list", hint="agents, or the names of agents of the same team")
    return tuple(_handoff_tool(owner, target) for target in targets)


def _handoff_tool(owner: str, target: Any) -> Tool:
    from .agent import Agent

    if not isinstance(target, Agent) and not (isinstance(target, str) and target.strip()):
        raise InvalidAgent(f"the agent {owner!r} can't hand over to {target!r:.100}", hint="an agent, or the name of one of the same team")
    name = target if isinstance(target, str) else target.name

    @tool(
        effect="pure",
        name=f"transfer_to_{_slug(name)}"[:64],
        description=f"Hand the conversation over to the agent {name}, who goes on with it.",
    )
    async def transfer(reason: str) -> str:
        """Hand the conversation over.

        Args:
            reason: Why, and what the other agent has to know.
        """
        raise NotImplementedError("the runtime hands the conversation over")

    return dataclasses.replace(transfer, delegation=Delegation("handoff", agent=target))


def team_of(agent: Agent) -> dict[str, Agent]:
    """The agent and all whom it can call or hand over to, by name. Raises `InvalidAgent` where a name means two of them."""
    return _reachable(agent, ("child", "handoff"))


def successors_of(agent: Agent) -> dict[str, Agent]:
    """The agent and those to whom its sessions can be handed over."""
    return _reachable(agent, ("handoff",))


def _reachable(agent: Agent, ways: tuple[str, ...]) -> dict[str, Agent]:
    found: dict[str, Agent] = {agent.name: agent}
    todo = [agent]
    for member in todo:
        for item in member.toolset:
            other = item.delegation.agent if item.delegation is not None and item.delegation.kind in ways else None
            if other is None or isinstance(other, str):
                continue
            if found.setdefault(other.name, other) is not other:
                raise InvalidAgent(
                    f"two agents that {agent.name!r} works with are named {other.name!r}", hint="names are durable: rename one"
                )
            if other not in todo:
                todo.append(other)
    return found


def _slug(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_").lower()[:64] or "agent"
