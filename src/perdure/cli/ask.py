"""Questions that only a person can answer: asked on a terminal, or with the commands that answer them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from ..runtime.sessions import Request
from .keyboard import Keyboard
from .screen import Screen
from .text import moment, value

__all__ = ["Decided", "ask", "commands_for", "explain", "how_to_answer"]


class Decided(NamedTuple):
    """What a person decided."""

    decision: Any
    options: dict[str, Any]


def commands_for(session_id: str, request: Request, db: str) -> list[tuple[str, str]]:
    """Every way to answer a request from a shell: the command and what it does."""
    target = f"{_quoted(session_id)} {request.request_id}"
    store = "" if db == "agents.db" else f" --db {_quoted(db)}"
    if request.kind == "uncertain":
        return [
            (f"perdure answer {target} settle --result '…'{store}", "it happened, and this is what it returned (JSON)"),
            (f"perdure answer {target} settle --error --result '…'{store}", "it failed, and this is how"),
            (f"perdure answer {target} retry{store}", "it did not happen; do it now"),
            (f"perdure answer {target} deny{store}", "nobody knows; let the model go on without"),
        ]
    return [
        (f"perdure approve {target}{store}", "let it run"),
        (f"perdure approve {target} --arguments '{{…}}'{store}", "let it run with other arguments"),
        (f"perdure answer {target} grant{store}", "let this very call run, now and for the rest of the session"),
        (f"perdure deny {target} --reason '…'{store}", "refuse it; the model reads the reason"),
        (f"perdure answer {target} abort{store}", "refuse it and stop the turn"),
    ]


def _quoted(text: str) -> str:
    return shlex.quote(text)


def explain(write: Callable[..., None], request: Request) -> None:
    """What is asked, with everything that a decision depends on."""
    if request.kind == "uncertain":
        write(("? ", "yellow"), (request.name, "bold"), " was interrupted, and nobody knows whether it took effect:")
    else:
        write(("? ", "yellow"), (request.name, "bold"), " asks for approval:")
    shown = request.arguments
    if isinstance(shown, dict) and shown:
        room = max(len(str(name)) for name in shown)
        for name, item in shown.items():
            write("  ", (str(name).ljust(room), "cyan"), "  ", value(item, 2000))
    elif shown not in (None, {}):
        write("  ", value(shown, 2000))
    reason = getattr(request.entry, "reason", "")
    match = getattr(request.entry, "match", None)
    if reason:
        write("  ", (f"because {reason}", "dim"))
    if match is not None:
        write("  ", (f"the earlier call: {match.operation}, {match.state} (entry {match.seq})", "yellow"))
    if request.deadline:
        write("  ", (f"until {moment(request.deadline)}; then: {request.default}", "dim"))


def how_to_answer(screen: Screen, session_id: str, request: Request, db: str) -> None:
    """The question and the commands, for whoever reads a log."""
    explain(screen.advice, request)
    for command, what in commands_for(session_id, request, db):
        screen.advice("  ", command, (f"   # {what}", "dim"))


async def ask(screen: Screen, keyboard: Keyboard, request: Request) -> Decided | None:
    """Ask on the terminal until the answer can be understood. None: nobody is there any more."""
    explain(screen.advice, request)
    uncertain = request.kind == "uncertain"
    approving = "[a]pprove  [g]rant for the session  [d]eny  [e]dit  a[b]ort"
    keys = "[s]ettle  [f]ailed  [r]etry  [l]eave unknown  a[b]ort" if uncertain else approving
    while True:
        screen.text(f"{keys} > ", "bold")
        line = await keyboard.line()
        if line is None:
            screen.text("\n")
            return None
        decided = await (_uncertain if uncertain else _approval)(screen, keyboard, request, line.strip().lower())
        if decided is not None:
            return decided


async def _approval(screen: Screen, keyboard: Keyboard, request: Request, word: str) -> Decided | None:
    if word in ("a", "approve", "y", "yes"):
        return Decided("approve", {})
    if word in ("g", "grant", "always"):
        return Decided("grant", {})
    if word in ("d", "deny", "n", "no"):
        return Decided("deny", {"reason": await _words(screen, keyboard, "reason (the model reads it; may be empty)")})
    if word in ("e", "edit"):
        screen.note("now: ", json.dumps(request.arguments, ensure_ascii=False))
        edited = await _json(screen, keyboard, "new arguments, as JSON (empty: leave them)")
        if isinstance(edited, dict):
            return Decided("approve", {"arguments": edited})
        if edited is not None:
            screen.note(("arguments are an object: {…}", "yellow"))
        return None
    return _abort(screen, word)


async def _uncertain(screen: Screen, keyboard: Keyboard, request: Request, word: str) -> Decided | None:
    if word in ("s", "settle"):
        return Decided("settle", {"result": await _json(screen, keyboard, "what it returned, as JSON (empty: null)")})
    if word in ("f", "failed"):
        return Decided("settle", {"result": await _words(screen, keyboard, "how it failed"), "is_error": True})
    if word in ("r", "retry"):
        return Decided("retry", {})
    if word in ("l", "leave", "d", "deny"):
        return Decided("deny", {})
    return _abort(screen, word)


def _abort(screen: Screen, word: str) -> Decided | None:
    if word in ("b", "abort"):
        return Decided("abort", {})
    if word:
        screen.note(("one of the letters in brackets, please", "yellow"))
    return None


async def _words(screen: Screen, keyboard: Keyboard, what: str) -> str:
    screen.text(f"{what} > ", "bold")
    return (await keyboard.line() or "").strip()


async def _json(screen: Screen, keyboard: Keyboard, what: str) -> Any:
    while True:
        text = await _words(screen, keyboard, what)
        if not text:
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            screen.note((f"that is no JSON: {error}", "yellow"))
