"""``--workspace DIR``: an agent gets one directory to work in, and a person is asked before anything in it changes."""

from __future__ import annotations

from typing import Any

from ..agent import Agent
from ..core.errors import UsageError
from ..tools.policy import ApprovalCall, Approve, Ask, Policy
from ..tools.workspace import mutating, workspace_tools

__all__ = ["with_workspace"]


def with_workspace(agent: Agent, directory: str | None, sandbox: str = "required") -> Agent:
    """The agent with the tools of a workspace; without a directory, as it is.

    Raises `UsageError`, and `SandboxUnavailable` where commands can't be confined as ``sandbox`` asks.
    """
    if directory is None:
        return agent
    tools = workspace_tools(directory, sandbox=sandbox)  # type: ignore[arg-type]
    taken = sorted({tool.name for tool in tools} & {tool.name for tool in agent.tools})
    if taken:
        raise UsageError(f"the agent {agent.name!r} itself has tools named {', '.join(taken)}", hint="leave --workspace out")
    return agent.replace(tools=[*agent.tools, *tools], approve=_also_ask(agent.policy, mutating(tools)))


def _also_ask(policy: Policy, names: list[str]) -> Approve:
    if policy.function is None:
        return {**policy.rules, **dict.fromkeys(names, "ask")}
    decide = policy.function

    def asking(call: ApprovalCall) -> Any:
        return Ask() if call.name in names else decide(call)

    return asking
