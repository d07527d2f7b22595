"""``perdure usage``: what model calls came to, by session, owner, route, day, or several of them."""

from __future__ import annotations

import argparse
from typing import Any

from ..core.errors import UsageError
from ..core.usage import dollars
from ..runtime.model_calls import Spending, UsageRow
from .exits import OK
from .opening import opened
from .screen import Screen, columns
from .text import moment_of, plain

__all__ = ["run"]

GROUPS = ("session", "owner", "agent", "route", "model", "kind", "day")


async def run(arguments: argparse.Namespace) -> int:
    """Show it."""
    by: list[Any] = list(dict.fromkeys(name for given in arguments.by or ["session"] for name in given.split(",") if name))
    for name in by:
        if name not in GROUPS:
            raise UsageError(f"usage can't be shown by {name!r:.40}", hint=", ".join(GROUPS))
    screen = Screen(as_json=arguments.json)
    wanted: dict[str, Any] = {name: getattr(arguments, name) for name in ("session", "owner", "route", "index", "rebuild")}
    wanted |= {"since": moment_of(arguments.since), "until": moment_of(arguments.until)}
    async with opened(arguments) as runtime:
        rows = await runtime.usage(by, **wanted)
        total = rows if len(rows) < 2 else await runtime.usage((), **{**wanted, "rebuild": False})
    if arguments.json:
        screen.json([{**row.group, **_data(row.spending)} for row in rows])
    elif not rows:
        screen.note(("no model calls", "dim"))
    else:
        head = (*(name.upper() for name in by), "CALLS", "IN", "OUT", "CACHED", "REASONING", "COST")
        columns(screen, head, [_shown(by, row) for row in rows])
        if len(rows) > 1:
            screen.note((f"in all: {total[0].spending.known}", "dim"))
    return OK


def _shown(by: list[str], row: UsageRow) -> tuple[str | tuple[str, str], ...]:
    """A number that some calls lack is shown with a ``+``: it is at least that."""
    spending, known = row.spending, row.spending.known

    def number(value: int, whole: int | None) -> str:
        return f"{value:,}" if whole is not None else f"{value:,}+" if value else "?"

    return (
        *((row.group[name] or "-", "bold" if place == 0 else "") for place, name in enumerate(by)),
        f"{known.calls:,}",
        number(known.input_tokens, spending.input_tokens),
        number(known.output_tokens, spending.output_tokens),
        number(known.cache_read_tokens, spending.cache_read_tokens),
        number(known.reasoning_tokens, spending.reasoning_tokens),
        dollars(known.cost) if spending.cost is not None else f"{dollars(known.cost)}+" if known.cost else "?",
    )


def _data(spending: Spending) -> dict[str, Any]:
    data: dict[str, Any] = plain(spending)
    known = data.pop("known")
    return {"calls": spending.known.calls, **data, "known": known}
