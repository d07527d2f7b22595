"""``perdure requests``: what people are asked, wherever it is."""

from __future__ import annotations

import argparse

from .about import labels_of
from .ask import commands_for, explain, request_facts
from .exits import OK
from .hints import command
from .opening import opened
from .screen import Screen
from .text import since

__all__ = ["run"]


async def run(arguments: argparse.Namespace) -> int:
    """List open requests."""
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        found = await runtime.sessions.open_requests(
            owner=arguments.owner,
            kind=arguments.kind,
            status=arguments.status,
            agent=arguments.agent,
            labels=labels_of(arguments.label),
            limit=arguments.limit,
            after=arguments.after,
        )
        now = await runtime.store.now()
    if arguments.json:
        screen.json([request_facts(request, arguments.db) for request in found])
    elif not found:
        screen.note(("nobody is asked anything", "dim"))
    for request in () if arguments.json else found:
        whose = [f"agent {request.agent}"] * bool(request.agent) + [f"owner {request.owner}"] * bool(request.owner)
        about = ", ".join([*whose, f"asked {since(request.at)} ago"])
        screen.line((request.session_id, "bold"), f"  {about}", (f"  {request.operation}", "dim"))
        explain(screen.line, request)
        if 0 < request.deadline <= now:
            screen.line("  ", ("its deadline has passed; whoever looks after the session next does what stands there", "yellow"))
        for line, what in commands_for(request.session_id, request, arguments.db):
            screen.line("  ", line, (f"   # {what}", "dim"))
    for session_id, problem in found.problems.items():
        check = command(arguments.db, "verify", session_id)
        screen.advice((f"{session_id}: what it asks can't be read: {problem}; `{check}` tells more", "red"))
    screen.more(found.next)
    return OK
