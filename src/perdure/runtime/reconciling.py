"""Asking tools once more what became of effects that nobody knew the outcome of, from whatever process has the tools."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from ..agent import Agent
from ..agent.agent import with_teams
from ..core import checkpoint as checkpoints
from ..core.checkpoint import Operation
from ..core.errors import ContentElsewhere, Refused, StoreCorrupt
from ..core.records import Plan
from ..tools.tool import Done, NotDone
from .about import read_metadata
from .context import stored_content
from .perform import Performer
from .requests import Uncertain

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["Reconciliation", "reconcile"]

ACTOR = "reconcile"
"""Who settles an effect that its tool knows the outcome of."""

_log = logging.getLogger("perdure.runtime")


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool said of one of its effects; ``settled``: and that stands in the journal now."""

    session_id: str
    operation: str
    attempt: int
    name: str
    outcome: Literal["done", "not_done", "unknown"]
    settled: bool


async def reconcile(runtime: Runtime, agents: Iterable[Agent], session: str | None) -> list[Reconciliation]:
    """See `Runtime.reconcile`."""
    by_name = with_teams(agents)
    found: list[Reconciliation] = []
    if session is not None:
        await _of_session(runtime, by_name, session, found)
        return found
    async for info in runtime.sessions.each(archived=True, order="created"):
        if info.problem:
            continue
        try:
            await _of_session(runtime, by_name, info.session_id, found)
        except (StoreCorrupt, ContentElsewhere, Refused) as error:
            # What is damaged or deleted meanwhile must not hide what became of the others' effects.
            _log.warning("nobody was asked what became of the effects of %s: %s", info.session_id, error)
    return found


async def _of_session(runtime: Runtime, by_name: dict[str, Agent], session_id: str, found: list[Reconciliation]) -> None:
    for item in await runtime.sessions.uncertain(session_id):
        agent = by_name.get(item.agent)
        said = await _ask(runtime, agent, item) if agent is not None else None
        if said is not None:
            found.append(said)


async def _ask(runtime: Runtime, agent: Agent, item: Uncertain) -> Reconciliation | None:
    """What the effect's tool says of it. None: it can't say anything, or whoever goes on with the session asks it anyway."""
    tool, head = agent.tool(item.name), await runtime.store.load(item.session_id)
    if tool is None or tool.reconcile is None or head is None:
        return None
    checkpoint = checkpoints.decode(head.row.checkpoint)
    held = checkpoint.operation(item.operation)
    if held is not None and held.status == "unknown":
        return None
    fetch = partial(stored_content, runtime.store, head.row.root)
    performer = Performer(
        session_id=item.session_id,
        store_id=runtime.store.store_id,
        secret=runtime.store.secret,
        clock=runtime.clock,
        deltas=lambda delta: None,
        late=lambda *result: None,
        fetch=fetch,
    )
    performer.checkpoint, performer.metadata = checkpoint, await read_metadata(checkpoint.metadata, fetch)
    plan = Plan(kind="tool", name=item.name, effect=tool.effect, call=item.call)
    answer = await performer.told(Operation(id=item.operation, plan=plan, attempt=item.attempt), agent, tool, item.arguments)
    settled = True
    try:
        if isinstance(answer, Done):
            await runtime.sessions.report_attempt(item.session_id, item.operation, item.attempt, answer.result, False, ACTOR)
        elif isinstance(answer, NotDone) and item.request_id:
            await runtime.sessions.answer(item.session_id, item.request_id, "retry", actor=ACTOR)
        elif isinstance(answer, NotDone):
            words = "it had no effect, as its tool found out"
            await runtime.sessions.report_attempt(item.session_id, item.operation, item.attempt, words, True, ACTOR)
        else:
            settled = False
    except Refused as refused:
        # Somebody else settled it meanwhile, or the tool's answer can't be kept.
        _log.info("what became of %s in %s was found out, and could not be said: %s", item.operation, item.session_id, refused)
        settled = False
    return Reconciliation(
        session_id=item.session_id,
        operation=item.operation,
        attempt=item.attempt,
        name=item.name,
        outcome="done" if isinstance(answer, Done) else "not_done" if isinstance(answer, NotDone) else "unknown",
        settled=settled,
    )
