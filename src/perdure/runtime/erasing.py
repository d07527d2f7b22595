"""All that is stored for an owner, destroyed, and what is left of it said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress

import msgspec

from ..agent import Agent
from ..agent.memory import SessionMemory
from ..core.errors import NewerRules, SessionNotFound, StoreBroken, StoreClosed, StoreError, StoreForked
from ..store.base import SessionQuery, SessionRow, Store
from ..store.pools import KeepsPools
from .deleting import finish
from .memory_file import MemoryFile

__all__ = ["Erased", "erase"]

PAGE = 100


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """What went of an owner's, and what is left.

    ``sessions`` were destroyed by this call, those of agents that they called among them; ``tombstones`` is how many there are by now: ids
    of sessions and submissions, which can't be used again. ``pool``: there is a pool of the owner's still. ``uniques`` is how much of what
    only one call may do stays taken. ``files`` are the copies of memories that were removed. ``problems`` says which sessions could not be
    destroyed, and why.
    """

    owner: str
    sessions: tuple[str, ...] = ()
    tombstones: int = 0
    pool: bool = False
    uniques: int = 0
    files: tuple[str, ...] = ()
    problems: dict[str, str] = {}


async def erase(
    store: Store,
    owner: str,
    delete: Callable[[str], Awaitable[None]],
    *,
    pool: bool,
    uniques: bool,
    agents: Iterable[Agent],
) -> Erased:
    """Destroy an owner's sessions with ``delete``, one after the other, and finish what was begun before."""
    # What a crash cut short is found by the trees of those that were deleted by then.
    begun, gone = set[str](), set[int]()
    async for row in _rows(store, owner, deleted=True):
        begun.add(row.root)
        gone.add(row.no)
    problems: dict[str, str] = {}
    tried: set[int] = set()
    left = True
    while left:
        left = False
        # Callers go before whom they called, which go with them and would wake them; branches before what they were forked from.
        for called in (False, True):
            async for row in _rows(store, owner, deleted=False):
                if row.no in tried:
                    problems.setdefault(row.session_id, row.problem or "it is listed, and can't be found")
                elif (row.parent_kind == "child") == called:
                    left = True
                    tried.add(row.no)
                    try:
                        with suppress(SessionNotFound):
                            await delete(row.session_id)
                    except (StoreBroken, StoreClosed, StoreForked):
                        raise
                    except (StoreError, NewerRules) as error:
                        # One that can't be read must not keep the others.
                        problems[row.session_id] = error.message
    for root in begun:
        await finish(store, root)
    if pool and isinstance(store, KeepsPools):
        await store.remove_pool(owner)
    places = {(item.workspace, item.storage) for agent in agents for item in _memories(agent) if item.workspace is not None}
    erased: list[str] = []
    tombstones = taken = 0
    files: list[str] = []
    async for row in _rows(store, owner, deleted=True):
        tombstones += 1
        if row.no not in gone:
            erased.append(row.session_id)
        if uniques:
            await store.free(row.no)
        else:
            taken += len(await store.uniques(row.no))
        for workspace, storage in places:
            file = MemoryFile(workspace, storage, row.session_id)
            if await asyncio.to_thread(file.remove):
                files.append(file.path)
    return Erased(
        owner=owner,
        sessions=tuple(erased),
        tombstones=tombstones,
        pool=isinstance(store, KeepsPools) and await store.pool(owner) is not None,
        uniques=taken,
        files=tuple(files),
        problems=problems,
    )


async def _rows(store: Store, owner: str, *, deleted: bool) -> AsyncIterator[SessionRow]:
    """An owner's sessions, or what is left of those that were deleted, the latest made first."""
    query = SessionQuery(owner=owner, status=("deleted",) if deleted else (), archived=True, order="created", limit=PAGE)
    while rows := await store.sessions(query):
        for row in rows:
            yield row
        query = msgspec.structs.replace(query, before=(rows[-1].updated, rows[-1].no))


def _memories(agent: Agent) -> Iterable[SessionMemory]:
    return [member.memory for member in agent.team.values() if isinstance(member.memory, SessionMemory)]
