"""``perdure budget``: what all sessions of an owner may use together."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from typing import Any

from ..core.budget import LIMITS
from ..core.errors import UsageError
from ..runtime.pools import Pool
from .exits import OK
from .hints import command
from .limits import amount, limits
from .opening import opened
from .screen import Piece, Screen, columns

__all__ = ["run"]

PAGE = 100

ACTIONS = ("show", "set", "add", "remove")


async def run(arguments: argparse.Namespace) -> int:
    """Show or change pools."""
    if arguments.action not in ACTIONS:
        raise UsageError(f"budget can't {arguments.action!r:.60}", hint=_meant(arguments))
    if arguments.action != "show" and arguments.owner is None:
        raise UsageError(f"budget {arguments.action} needs an owner", hint=f"perdure budget {arguments.action} OWNER …")
    if arguments.action in ("show", "remove") and arguments.limits:
        raise UsageError(f"budget {arguments.action} takes no limits", hint="perdure budget set OWNER NAME=VALUE …")
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        pools = runtime.pools
        match arguments.action:
            case "set" | "add":
                given = limits(arguments.limits)
                if given is None:
                    raise UsageError("no limit was given", hint=f"perdure budget {arguments.action} OWNER cost=50 tokens=1000000")
                change = pools.set if arguments.action == "set" else pools.add
                found = [await change(arguments.owner, given)]
            case "remove":
                there = await pools.remove(arguments.owner)
                if arguments.json:
                    screen.json({"owner": arguments.owner, "removed": there})
                else:
                    screen.line(f"nothing limits {arguments.owner}'s sessions together" + (" any more" if there else ""))
                return OK
            case _ if arguments.owner is not None:
                one = await pools.get(arguments.owner)
                found = [] if one is None else [one]
            case _:
                found = []
                while page := await pools.list(after=found[-1].owner if found else "", limit=PAGE):
                    found += page
    if arguments.json:
        screen.json([_data(pool) for pool in found])
    elif not found:
        how = command(arguments.db, "budget", "set", arguments.owner or "OWNER", "cost=50")
        whose = f"{arguments.owner} has no pool" if arguments.owner is not None else "nobody has a pool"
        screen.note((f"{whose}; `{how}` makes one", "dim"))
    else:
        rows: list[tuple[Piece, ...]] = [
            (
                (pool.owner if place == 0 else "", "bold"),
                limit.replace("_", " "),
                amount(limit, pool.used[limit]),
                (amount(limit, pool.left[limit]), "red" if pool.left[limit] <= 0 else ""),
                amount(limit, getattr(pool.limits, limit)),
            )
            for pool in found
            for place, limit in enumerate(pool.left)
        ]
        columns(screen, ("OWNER", "LIMIT", "USED", "LEFT", "OF"), rows)
    return OK


def _meant(arguments: argparse.Namespace) -> str:
    """What somebody may have meant who begins with another word: most of all an owner."""
    slip = get_close_matches(arguments.action, ACTIONS, 1)
    words = [slip[0], *([] if arguments.owner is None else [arguments.owner])] if slip else ["show", arguments.action]
    return f"did you mean `{command(arguments.db, 'budget', *words)}`? It can {', '.join(ACTIONS)}"


def _data(pool: Pool) -> dict[str, Any]:
    allowed = {limit: value for limit in LIMITS if (value := getattr(pool.limits, limit)) is not None}
    return {"owner": pool.owner, "limits": allowed, "used": pool.used, "left": pool.left}
