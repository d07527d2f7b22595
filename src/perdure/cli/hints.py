"""Commands as somebody would type them, to be copied from a message."""

from __future__ import annotations

import shlex

__all__ = ["SOME_AGENT", "command", "resume_command"]

SOME_AGENT = "YOUR_MODULE:…"
"""Where the agent is, for messages of commands that don't know."""


def command(db: str, *words: str) -> str:
    """A command line of ours. What needs quotes has them, and the store is named where it isn't the default."""
    line = " ".join(["perdure", *map(shlex.quote, words)])
    return line if db == "agents.db" else f"{line} --db {shlex.quote(db)}"


def resume_command(db: str, session_id: str, agent: str = "") -> str:
    """How to go on with a session; ``agent`` is how the command line named it."""
    known = shlex.quote(agent) if agent else SOME_AGENT
    return f"{command(db, 'resume', session_id)} --agents {known}"
