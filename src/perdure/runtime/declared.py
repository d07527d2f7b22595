"""What a session's agent has, so that a slip in a name is noticed before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from ..agent import Agent
from ..agent.agent import with_teams
from ..core.context import READ_RESULT
from ..core.errors import UnknownAgent, UsageError
from ..core.finishing import FINISH
from ..core.records import ALL_TOOLS, ToolPolicy
from .calls import misfit
from .definitions import last_definitions

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["belongs", "check_call", "check_command", "check_policy"]


class _Declared(NamedTuple):
    """The tools of an agent, and the commands of its middleware by the middleware's name."""

    agent: str
    tools: tuple[str, ...]
    commands: dict[str, tuple[str, ...]]


def belongs(session_id: str, name: str, agents: Sequence[Agent]) -> Agent:
    """Which of these a session of the agent ``name`` goes on with; one that nobody began takes the first.

    Raises `UnknownAgent` if it is none of them.
    """
    own = sorted(agents, key=lambda item: item.name != name)
    agent = next((item for item in own if item.takes(name)), None)
    if agent is None:
        known = ", ".join(item.name for item in agents)
        raise UnknownAgent(
            f"the session {session_id!r} belongs to the agent {name!r}, not to {known!r}", hint="name that agent, or another session"
        )
    return agent


async def _declared(runtime: Runtime, session_id: str, name: str, agents: Sequence[Agent]) -> _Declared | None:
    """What the session's agent ``name`` has: as its code says, where that is given, else as its last turn ran. None: nobody knows."""
    if agents:
        agent = belongs(session_id, name, [*with_teams(agents).values()])
        tools = [name for item in agent.successors.values() for name in [*(spec.name for spec in item.specs), *_of_tools(item)]]
        return _Declared(agent.name, _unique(tools), {item.name: tuple(item.commands) for item in agent.middleware})
    found = await last_definitions(runtime, session_id)
    if not found:
        return None
    tools = [tool["name"] for definition in found for tool in definition["tools"]]
    commands = {item["name"]: tuple(item["commands"]) for item in found[0]["middleware"]}
    return _Declared(found[0]["name"], _unique([*tools, READ_RESULT, FINISH]), commands)


def _of_tools(agent: Agent) -> list[str]:
    return [tool.name for tool in agent.toolset]


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


async def check_policy(runtime: Runtime, session_id: str, name: str, policy: ToolPolicy, agents: Sequence[Agent]) -> None:
    """Raises `UsageError` for a policy that names tools which the session's agent ``name`` doesn't have: they would forbid nothing."""
    if policy == ALL_TOOLS or (known := await _declared(runtime, session_id, name, agents)) is None:
        return
    for tool in (*(policy.only or ()), *policy.never, *policy.ask):
        if tool not in known.tools:
            raise _unknown(f"the agent {known.agent!r} has no tool {tool!r}", tool, known.tools, agents)


def check_call(agent: Agent, tool: str, arguments: dict[str, Any]) -> None:
    """Raises `UsageError` for a call that could only fail: nothing of it stands in the journal then, nor is the model told."""
    known = [spec.name for spec in agent.specs]
    if tool not in known:
        raise UsageError(f"the agent {agent.name!r} has no tool {tool!r}", hint=f"{_slip(tool, known)}; nothing was changed")
    if wrong := misfit(agent, tool, arguments):
        raise UsageError(wrong, hint="nothing was called")


async def check_command(runtime: Runtime, session_id: str, name: str, middleware: str, command: str, agents: Sequence[Agent]) -> None:
    """Raises `UsageError` for a command that the session's agent ``name`` has no middleware for."""
    if (known := await _declared(runtime, session_id, name, agents)) is None:
        return
    if middleware not in known.commands:
        raise _unknown(f"the agent {known.agent!r} has no middleware {middleware!r}", middleware, [*known.commands], agents)
    if command not in known.commands[middleware]:
        raise _unknown(f"the middleware {middleware!r} has no command {command!r}", command, known.commands[middleware], agents)


def _unknown(message: str, name: str, known: Sequence[str], agents: Sequence[Agent]) -> UsageError:
    """What is said of a name that isn't known, and how to name what the code has since, where nobody looked there."""
    meant = _slip(name, known)
    if agents:
        return UsageError(message, hint=f"{meant}; nothing was changed")
    return UsageError(message, hint=f"{meant}; agents=[…] says what its code has by now; nothing was changed")


def _slip(name: str, known: Sequence[str]) -> str:
    """What is there instead of what was named."""
    meant = "".join(f"did you mean {item}? " for item in get_close_matches(name, known, 1))
    shown = [item for item in known if item not in (READ_RESULT, FINISH)]
    return f"{meant}it has {', '.join(shown) or 'none'}"
