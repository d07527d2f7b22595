"""``perdure events``: the journal, an entry a line."""

from __future__ import annotations

import argparse
from typing import Any

from ..core.entries import Entry
from .exits import OK
from .opening import opened
from .screen import Screen
from .text import moment, plain, short, to_json

__all__ = ["as_data", "run"]

PAGE = 500


async def run(arguments: argparse.Namespace) -> int:
    """Print entries."""
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        await runtime.sessions.info(arguments.session)
        after = arguments.after
        while entries := await runtime.sessions.entries(arguments.session, after=after, limit=PAGE):
            for entry in entries:
                _print(screen, entry)
            after = entries[-1].seq
        if arguments.follow:
            async with runtime.session(arguments.session) as handle:
                async for event in handle.events(after=after):
                    # What was asked before is announced again to everybody who begins to watch.
                    if isinstance(event, Entry) and event.seq > after:
                        after = event.seq
                        _print(screen, event)
    return OK


def _print(screen: Screen, entry: Entry) -> None:
    if screen.as_json:
        screen.json(as_data(entry))
        return
    body = as_data(entry)
    for known in ("seq", "number", "at", "kind"):
        body.pop(known)
    facts = " ".join(f"{name}={item if isinstance(item, str | int) else to_json(item)}" for name, item in body.items())
    room = 100_000 if not screen.out.is_terminal else max(20, screen.out.width - 10)
    screen.line((f"{entry.seq:>5}  ", "bold"), (f"{moment(entry.at)}  ", "dim"), (f"{entry.kind:18}", "cyan"), "  ", short(facts, room))


def as_data(entry: Entry) -> dict[str, Any]:
    """An entry as JSON data: its place, and its body as it is stored."""
    body: dict[str, Any] = plain(entry)
    for known in ("seq", "number", "at"):
        body.pop(known, None)
    return {"seq": entry.seq, "number": entry.number, "at": entry.at, "kind": entry.kind, **body}
