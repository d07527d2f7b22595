"""``perdure delete --owner``: all of somebody's, destroyed for good."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Awaitable

from ..agent import Agent
from ..core.errors import SessionNotFound, UsageError
from ..runtime.erasing import Erased
from ..runtime.infos import SessionInfo
from .agents import all_agents
from .exits import OK, STORE
from .hints import command
from .keyboard import sure
from .opening import opened
from .screen import Screen
from .text import counted, plain

__all__ = ["delete_owner"]

SHOWN = 20
"""So many sessions are named before somebody is asked whether it is meant."""


def delete_owner(arguments: argparse.Namespace) -> Awaitable[int]:
    """Destroy all sessions of an owner, once somebody said that it is meant."""
    if arguments.session is not None or arguments.tree:
        raise UsageError("--owner means all sessions of theirs, with all that was forked from them", hint="leave SESSION and --tree out")
    return _delete_owner(arguments, all_agents(arguments.agents))


async def _delete_owner(arguments: argparse.Namespace, agents: list[Agent]) -> int:
    screen = Screen(as_json=arguments.json)
    owner: str = arguments.owner
    async with opened(arguments) as runtime:
        found = [info async for info in runtime.sessions.each(owner=owner, archived=True, children=True, order="created")]
        # A name that is misspelt is not all of nobody's.
        if not found and not (left := await runtime.sessions.delete_owner(owner)).tombstones and not left.problems:
            raise SessionNotFound(f"no session is, or was, of the owner {owner!r}", hint="`perdure sessions` says whose they are")
        if found and not arguments.yes:
            _name(screen, found)
            what = f"{counted(len(found), 'session')} of {owner!r}"
            await sure(screen, what, f"Destroy {_amounts(owner, found)} for good? Type the owner:", owner)
        erased = await runtime.sessions.delete_owner(owner, pool=arguments.pool, uniques=arguments.uniques, agents=agents)
    if arguments.json:
        screen.json({**plain(erased), "deleted": not erased.problems})
    else:
        _tell(screen, erased, arguments.db)
    return STORE if erased.problems else OK


def _name(screen: Screen, found: list[SessionInfo]) -> None:
    for info in found[:SHOWN]:
        screen.advice(f"{info.session_id}  {info.status}  {info.title}")
    if len(found) > SHOWN:
        screen.advice(f"… and {len(found) - SHOWN:,} more")


def _amounts(owner: str, found: list[SessionInfo]) -> str:
    """What there is, in words."""
    statuses = Counter(info.status for info in found)
    facts = [f"{count} {status}" for status in ("running", "waiting", "archived", "halted") if (count := statuses[status])]
    facts += [f"{count} of agents that were called"] if (count := sum(info.parent_kind == "child" for info in found)) else []
    return f"all {counted(len(found), 'session')} of {owner!r}" + (f" ({', '.join(facts)})" if facts else "")


def _tell(screen: Screen, erased: Erased, db: str) -> None:
    screen.line(("✓ ", "green"), f"{counted(len(erased.sessions), 'session')} of {erased.owner} deleted")
    for file in erased.files:
        screen.line(("✓ ", "green"), f"removed: {file}")
    for session_id, problem in erased.problems.items():
        screen.advice((f"{session_id} is still there: {problem}", "red"))
    words = ["delete", "--owner", erased.owner]
    left = [f"{counted(erased.tombstones, 'id')} of sessions, and the digests of what was sent to them, so that nothing runs again"]
    if erased.pool:
        left.append(f"a pool; `{command(db, *words, '--pool')}` removes it")
    if erased.uniques:
        one = counted(erased.uniques, "thing")
        left.append(f"{one} that only one call may do, done or under way; `{command(db, *words, '--uniques')}` lets others do them again")
    left.append(f"room in the file; `{command(db, 'vacuum')}` writes it anew")
    left.append(
        "copies of memories in workspaces (--agents removes those here), files of consumers and the usage index until they run next"
    )
    left.append("backups, exports and logs")
    screen.note(("what is left:", "dim"))
    for line in left:
        screen.note((f"  {line}", "dim"))
