"""``perdure grants`` and ``revoke``: the calls of a session that may run without asking."""

from __future__ import annotations

import argparse

from .exits import OK
from .hints import command
from .live import called
from .opening import opened
from .screen import Screen
from .sending import confirm
from .show import turns_of

__all__ = ["grants", "revoke"]


async def grants(arguments: argparse.Namespace) -> int:
    """List them."""
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        checkpoint = await runtime.sessions.checkpoint(arguments.session)
        turns = await turns_of(runtime, arguments.session, checkpoint.root) if checkpoint.grants else []
    given = {item["grant"]: item for turn in turns for item in turn["items"] if item["type"] == "grant" and not item["revoked"]}
    rows = [{name: given[grant.id][name] for name in ("grant", "name", "arguments", "at", "actor")} for grant in checkpoint.grants]
    if arguments.json:
        screen.json(rows)
    elif not rows:
        screen.note(("every call that needs approval is asked about", "dim"))
    for row in rows if not arguments.json else ():
        screen.line(("✓ ", "green"), called(row["name"], row["arguments"]), (f"  by {row['actor']}" if row["actor"] else "", "dim"))
        screen.line(command(arguments.db, "revoke", arguments.session, row["grant"]), indent=4)
    return OK


async def revoke(arguments: argparse.Namespace) -> int:
    """Ask again about a call that was granted."""
    async with opened(arguments) as runtime:
        sent = await runtime.sessions.revoke(arguments.session, arguments.grant, actor=arguments.actor)
        await confirm(runtime, arguments, sent, f"revoked: {arguments.grant}", grant=arguments.grant)
    return OK
