"""Whether an unfinished turn can go on under another definition of its agent, and before a deploy, which of them could not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..agent import Agent
from ..agent.definition import compatible, describe, difference
from ..core import canonical
from ..core import checkpoint as checkpoints
from ..core.checkpoint import Operation, Turn
from ..core.errors import MissingRoute, UnknownRoute, UsageError
from ..models.router import Router
from .arguments import Arguments
from .context import stored_content
from .infos import SessionInfo

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["UNFINISHED", "Change", "Deploy", "Keyless", "WouldRefuse", "change", "check_deploy", "check_routes"]

UNFINISHED = ("queued", "running", "waiting", "stuck")


class Change(NamedTuple):
    """What differs between the definition that a turn began with and another, and why that turn can't go on under it."""

    difference: tuple[str, ...]
    reasons: tuple[str, ...]


class WouldRefuse(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished session that the new code could not take up: why, and all that changed."""

    session_id: str
    agent: str
    status: str
    reasons: tuple[str, ...]
    difference: tuple[str, ...] = ()


class Keyless(msgspec.Struct, frozen=True, kw_only=True):
    """An external tool without a ``key``: two of its calls are the same effect only if all of their arguments are."""

    agent: str
    tool: str


class Deploy(msgspec.Struct, frozen=True, kw_only=True):
    """What some agents would make of the sessions that are unfinished now. ``changed`` would go on, and their journals say what changed."""

    sessions: int
    refused: tuple[WouldRefuse, ...]
    changed: tuple[WouldRefuse, ...]
    keyless: tuple[Keyless, ...]


async def change(
    agent: Agent,
    new: dict[str, Any],
    old: dict[str, Any],
    turn: Turn,
    arguments: Callable[[Operation], Awaitable[Any]],
) -> Change:
    """What a definition changes for a turn. ``arguments`` are those that an open call of it runs with."""
    changed = difference(old, new)
    if agent.on_change == "any":
        return Change(changed, ())
    if agent.on_change == "same":
        return Change(changed, changed)
    open_calls = [item for item in turn.tools if item.status != "ended"]
    known = [(item, tool) for item in open_calls if (tool := agent.tool(item.plan.name)) is not None]
    # Tools that an agent brings along itself are not among those that it describes.
    gone = {item.plan.name for item in open_calls if agent.tool(item.plan.name) is None}
    reasons = compatible(old, new, open_tools=gone, open_arguments=[(tool, await arguments(item)) for item, tool in known])
    reasons += tuple(
        f"a call of {tool.name!r} that may have run was begun as {item.plan.effect}, and now it would be {tool.effect}"
        for item, tool in known
        if item.status in ("started", "unknown") and tool.effect != item.plan.effect
    )
    return Change(changed, reasons)


def check_route(checkpoint: checkpoints.Checkpoint, router: Router) -> str:
    """The route that a session goes on with. Raises `MissingRoute`, or `UnknownRoute`."""
    if not checkpoint.route and (checkpoint.turns or checkpoint.turn is not None):
        raise MissingRoute("saved session has no model route", hint="give route=, or select one with sessions.select_route(…)")
    return (checkpoint.turn.fallback if checkpoint.turn is not None else "") or router.saved(checkpoint.route)


def check_routes(checkpoint: checkpoints.Checkpoint, agent: Agent, router: Router) -> None:
    """That every model which the session's next calls ask for is known here. Raises `MissingRoute`, or `UnknownRoute`."""
    router.model(check_route(checkpoint, router))
    if agent.session_memory is not None and agent.session_memory.route is not None:
        router.model(agent.session_memory.route)


async def check_deploy(runtime: Runtime, agents: Iterable[Agent], *, others: bool = True, session: str | None = None) -> Deploy:
    """See `Runtime.check`."""
    by_name: dict[str, Agent] = {}
    for agent in agents:
        if by_name.setdefault(agent.name, agent) is not agent:
            raise UsageError(
                f"two agents are named {agent.name!r}", hint="sessions find their agent by its name; check one of them at a time"
            )
    described = {name: describe(agent) for name, agent in by_name.items()}
    looking = _Looking(runtime)
    refused: list[WouldRefuse] = []
    changed: list[WouldRefuse] = []
    count = 0
    async for info in _unfinished(runtime, session):
        found = by_name.get(info.agent)
        if found is None and not others:
            continue
        count += 1
        if found is None:
            reasons: tuple[str, ...] = (f"there is no agent {info.agent!r}",)
            refused.append(WouldRefuse(session_id=info.session_id, agent=info.agent, status=info.status, reasons=reasons))
            continue
        verdict = await looking.judge(info.session_id, found, described[found.name])
        told = WouldRefuse(session_id=info.session_id, agent=info.agent, status=info.status, **verdict._asdict())
        if verdict.reasons:
            refused.append(told)
        elif verdict.difference:
            changed.append(told)
    keyless = tuple(
        Keyless(agent=agent.name, tool=tool.name)
        for agent in by_name.values()
        for tool in agent.toolset
        if tool.effect == "external" and tool.key is None and tool.shape.names
    )
    return Deploy(sessions=count, refused=tuple(refused), changed=tuple(changed), keyless=keyless)


async def _unfinished(runtime: Runtime, session: str | None) -> AsyncIterator[SessionInfo]:
    if session is None:
        async for info in runtime.sessions.each(status=UNFINISHED):
            yield info
    elif (info := await runtime.sessions.info(session)).status in UNFINISHED:
        yield info


class _Looking(Arguments):
    """Reads what open calls of stored sessions run with."""

    async def judge(self, session_id: str, agent: Agent, new: dict[str, Any]) -> Change:
        head = await self._head(session_id)
        checkpoint = checkpoints.decode(head.row.checkpoint)
        turn = checkpoint.turn
        verdict = Change((), ())
        if turn is not None:
            old = canonical.decode(await stored_content(self._runtime.store, checkpoint.root, turn.definition))
            if old != new:
                calls = await self._step_calls(head, turn)

                async def arguments(item: Operation) -> Any:
                    return await self._arguments(head, calls, item)

                verdict = await change(agent, new, old, turn, arguments)
        try:
            check_route(checkpoint, self._runtime.models.router(agent))
        except (MissingRoute, UnknownRoute) as error:
            verdict = Change(verdict.difference, (*verdict.reasons, error.message))
        return verdict
