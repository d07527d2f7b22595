"""``perdure verify``: is what is stored what was written?"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Awaitable

from ..core.errors import UsageError
from ..runtime.verify import Checked, Problem, head, verify
from .exits import FAILED, OK
from .opening import opened
from .screen import Screen
from .text import counted

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> Awaitable[int]:
    """Check one session or all, or print the value to keep."""
    if arguments.expect and not arguments.session:
        raise UsageError("--expect belongs to one session", hint="perdure verify SESSION --expect HEAD")
    return _heads(arguments) if arguments.head else _verify(arguments)


async def _heads(arguments: argparse.Namespace) -> int:
    screen = Screen(as_json=arguments.json)
    found: dict[str, str] = {}
    async with opened(arguments) as runtime:
        if arguments.session:
            found[arguments.session] = await head(runtime.store, arguments.session)
        else:
            async for info in runtime.sessions.each(archived=True, order="created"):
                if not info.problem:
                    found[info.session_id] = await head(runtime.store, info.session_id)
    if arguments.json:
        screen.json(found)
    else:
        for session_id, value in found.items():
            screen.line(f"{session_id}  {value}" if not arguments.session else value)
    return OK


async def _verify(arguments: argparse.Namespace) -> int:
    screen = Screen(as_json=arguments.json)
    checked = Checked()
    problems: list[Problem] = []
    async with opened(arguments) as runtime:
        async for problem in verify(runtime.store, arguments.session, expected_head=arguments.expect, checked=checked):
            problems.append(problem)
            if not arguments.json:
                place = f"{problem.where} {problem.seq}" if problem.seq else problem.where
                screen.line(("✗ ", "red"), (problem.session_id, "bold"), f"  {place}: {problem.what}")
    if arguments.json:
        screen.json({"checked": dataclasses.asdict(checked), "problems": [dataclasses.asdict(problem) for problem in problems]})
    else:
        amounts = (
            counted(checked.sessions, "session"),
            counted(checked.entries, "entry", "entries"),
            counted(checked.submissions, "submission"),
            counted(checked.blobs, "blob"),
        )
        words = f"{', '.join(amounts)}: "
        screen.line(words, (counted(len(problems), "problem"), "bold red") if problems else ("nothing is wrong", "green"))
    return FAILED if problems else OK
