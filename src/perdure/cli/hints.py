"""Commands as somebody would type them, to be copied from a message, and what the library's advice is called on the command line."""

from __future__ import annotations

import os
import shlex
from urllib.parse import unquote

from ..core.errors import PerdureError

__all__ = ["SOME_AGENT", "SPOKEN", "agent_options", "command", "resume_command", "spoken", "told"]

SOME_AGENT = "YOUR_MODULE:…"
"""Where the agent is, for messages of commands that don't know."""


def command(db: str, *words: str) -> str:
    """A command line of ours. What needs quotes has them, and the store is named where it isn't the default, never its password."""
    line = " ".join(["perdure", *map(shlex.quote, words)])
    return line if db == (os.environ.get("PERDURE_DB") or "agents.db") else f"{line} --db {shlex.quote(_shown(db))}"


def _shown(db: str) -> str:
    scheme, separator, rest = db.partition("://")
    if not separator or scheme == "sqlite":
        return db
    # Only user and password stand before an @: elsewhere in an address it is written %40.
    user, at, place = rest.rpartition("@")
    place, asks, query = place.partition("?")
    kept = "&".join(part for part in query.split("&") if not unquote(part.partition("=")[0]).endswith("password"))
    return f"{scheme}://{user.partition(':')[0]}{at}{place}" + (asks + kept if kept else "")


def agent_options(agent: str, model: str | None = None) -> str:
    """How `resume` is given the agent that another command was given as this; nothing where it was given none."""
    given = {"--agents": agent, "--model": model}
    return " ".join(f"{option} {shlex.quote(value)}" for option, value in given.items() if value)


def resume_command(db: str, session_id: str, named: str = "") -> str:
    """How to go on with a session; ``named`` are the `agent_options`, where they are known."""
    return f"{command(db, 'resume', session_id)} {named or f'--agents {SOME_AGENT}'}"


SPOKEN: dict[str, tuple[str, ...] | str] = {
    "sessions.revive(…)": ("revive",),
    "sessions.halt(…)": ("halt",),
    "sessions.repair(…)": ("repair",),
    "sessions.import_messages(…)": "`perdure import FILE --session ID --from openai` (or openai-responses, or anthropic)",
    'source="openai-responses"': "--from openai-responses",
    'source="openai"': "--from openai",
    "give route=, or select one with sessions.select_route(…)": ("route", "ROUTE"),
    "open it with make=True to make one": "--db or PERDURE_DB name another; `perdure run` makes one",
    "name the database itself with direct=": "--jobs names the database itself",
    "while_running=True": "--while-running",
    "tree=True": "--tree",
    "session_id=…": "--session ID",
    'decision="settle"': "settle",
    'sandbox="off"': "--sandbox off",
    "pass shell=False": "--sandbox auto leaves the shell out",
    "leave owner= out": "leave --owner out",
    " or pass api_key=": "",
    "give prices= of your own": "have a program of your own bring prices",
    'pass model="openai:…" to Agent or perdure.open': "--model openai:… gives it one",
    "open the store with blobs=": "name the store as sqlite:///path?blobs=directory,",
    "before= is": "--before is",
    "without blobs= all else can be read": "named without any, the store shows all else",
    "send it without turn= for the next one": "leave --turn out for the next one",
    'leave deliver= out, or say "steer"': "leave --deliver out, or say steer",
    "reply_to= says to which, by its seq": "--reply-to says to which, by its entry",
    "perdure.open(…, blobs=DirectoryBlobs(…)) would": "sqlite:///path?blobs=directory would",
    "pass ctx.callback_token as the tool got it": "as the tool got it in ctx.callback_token; every store has its own",
    "send perdure.Uri(uri=…) where the provider may fetch it": "fetch it first, and attach the file",
    "send a Uri": "attach a smaller file",
    "agents=[…]": "--agents MODULE",
    'result="…"': "--result '\"…\"'",
}
"""What advice for a program is called here: words, or a command of the session that it is about."""


def spoken(hint: str, db: str, session_id: str) -> str:
    """Advice as the command line can follow it."""
    for called, said in SPOKEN.items():
        if called in hint:
            if not isinstance(said, str):
                said = f"`{command(db, said[0], session_id or 'SESSION', *said[1:])}`"
            hint = hint.replace(called, said)
    return hint


def told(error: PerdureError, db: str, session_id: str) -> str:
    """An error in one sentence, with what can be done about it here."""
    return f"{error.message} ({spoken(error.hint, db, session_id)})" if error.hint else error.message
