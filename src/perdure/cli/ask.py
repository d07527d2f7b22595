"""Questions that only a person can answer: asked on a terminal, or with the commands that answer them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..runtime.requests import Request
from .hints import command
from .screen import Screen
from .text import moment, plain, value

__all__ = ["Decided", "Lines", "ask", "commands_for", "explain", "how_to_answer", "request_facts"]


Misfit: TypeAlias = Callable[[str, dict[str, Any]], str]
"""Why a tool of that name can't be called with these arguments; empty if it can, or if nobody here knows."""


class Lines(Protocol):
    """Whoever gives lines: a keyboard, or a terminal with a conversation on it."""

    async def line(self, label: str = "", default: str = "") -> str | None:
        """Ask for one; None when there are no more. ``default`` stands there to be changed, where that can be shown."""


class Decided(NamedTuple):
    """What a person decided."""

    decision: Any
    options: dict[str, Any]


def commands_for(session_id: str, request: Request, db: str) -> list[tuple[str, str]]:
    """Every way to answer a request from a shell: the command and what it does."""

    def answer(decision: str) -> str:
        return command(db, "answer", session_id, request.request_id, decision)

    if request.kind == "answer":
        return [
            (f"{answer('reply')} --text '…'", "this is the answer"),
            (answer("deny"), "there is no answer" + ("; the turn ends" if not request.name else "; the model goes on without")),
            (answer("abort"), "stop the turn"),
        ]
    if request.kind == "uncertain":
        return [
            (f"{answer('settle')} --result '…'", "it happened, and this is what it returned (JSON)"),
            (f"{answer('settle')} --error --result '…'", "it failed, and this is how (JSON)"),
            (answer("retry"), "it did not happen; do it now"),
            (answer("deny"), "leave it unknown; the model goes on without"),
            (answer("abort"), "leave it unknown and stop the turn"),
        ]
    return [
        (command(db, "approve", session_id, request.request_id), "let it run"),
        (f"{command(db, 'approve', session_id, request.request_id)} --arguments '{{…}}'", "let it run with other arguments"),
        (answer("grant"), "let this very call run, now and for the rest of the session"),
        (f"{command(db, 'deny', session_id, request.request_id)} --reason '…'", "refuse it; the model reads the reason"),
        (answer("abort"), "refuse it and stop the turn"),
    ]


def request_facts(request: Request, db: str) -> dict[str, Any]:
    """A request as JSON, with the commands that answer it."""
    return {
        "session": request.session_id,
        "owner": request.owner,
        "agent": request.agent,
        "request_id": request.request_id,
        "kind": request.kind,
        "operation": request.operation,
        "name": request.name,
        "arguments": request.arguments,
        "since": request.at,
        "deadline": request.deadline or None,
        "default": request.default,
        "question": request.question,
        "commands": [command for command, _ in commands_for(request.session_id, request, db)],
        "match": plain(getattr(request.entry, "match", None)),
    }


def explain(write: Callable[..., None], request: Request) -> None:
    """What is asked, with everything that a decision depends on."""
    if request.kind == "answer":
        write(("? ", "yellow"), (request.question or "the model asks for an answer", "bold"))
        if request.deadline:
            then = "it goes on" if request.default == "reply" else "it goes on without" if request.name else "the turn ends"
            write("  ", (f"until {moment(request.deadline)}; then: {then}", "dim"))
        return
    if request.kind == "uncertain":
        write(("? ", "yellow"), (request.name, "bold"), " was interrupted, and nobody knows whether it took effect:")
    elif getattr(request.entry, "match", None) is not None:
        write(("? ", "yellow"), (request.name, "bold"), " may repeat what an earlier call did; may it run?")
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
    for line, what in commands_for(session_id, request, db):
        screen.advice("  ", line, (f"   # {what}", "dim"))


async def ask(screen: Screen, keyboard: Lines, request: Request, misfit: Misfit) -> Decided | None:
    """Ask on the terminal until the answer can be used; ``misfit`` says what is wrong with edited arguments. None: nobody is there."""
    explain(screen.advice, request)
    if request.kind == "answer":
        return await _reply(screen, keyboard)
    uncertain = request.kind == "uncertain"
    approving = "[a]pprove  [g]rant for the session  [d]eny  [e]dit  a[b]ort"
    keys = "[s]ettle  [f]ailed  [r]etry  [l]eave unknown  a[b]ort" if uncertain else approving
    while True:
        line = await keyboard.line(f"{keys} > ")
        if line is None:
            screen.text("\n")
            return None
        word = line.strip().lower()
        decided = await (_uncertain(screen, keyboard, word) if uncertain else _approval(screen, keyboard, request, word, misfit))
        if decided is not None:
            return decided


async def _reply(screen: Screen, keyboard: Lines) -> Decided | None:
    """What the person says is the answer, but for two words that are none."""
    while True:
        line = await keyboard.line("your answer (/none: no answer  /abort: stop the turn) > ")
        if line is None:
            screen.text("\n")
            return None
        match line.strip():
            case "":
                continue
            case "/none":
                return Decided("deny", {})
            case "/abort":
                return Decided("abort", {})
            case text:
                return Decided("reply", {"result": text})


async def _approval(screen: Screen, keyboard: Lines, request: Request, word: str, misfit: Misfit) -> Decided | None:
    if word in ("a", "approve"):
        return Decided("approve", {})
    if word in ("g", "grant"):
        return Decided("grant", {})
    if word in ("d", "deny"):
        return Decided("deny", {"reason": await _words(keyboard, "reason (the model reads it; may be empty)")})
    if word in ("e", "edit"):
        now = json.dumps(request.arguments, ensure_ascii=False)
        screen.note("now: ", now)
        while (edited := await _json(screen, keyboard, "new arguments, as JSON (empty: leave them)", now)) is not None:
            if not isinstance(edited, dict):
                screen.note(("arguments are an object: {…}", "yellow"))
            elif wrong := misfit(request.name, edited):
                screen.note((wrong, "yellow"))
            else:
                return Decided("approve", {"arguments": edited})
        return None
    return _abort(screen, word)


async def _uncertain(screen: Screen, keyboard: Lines, word: str) -> Decided | None:
    if word in ("s", "settle"):
        return Decided("settle", {"result": await _json(screen, keyboard, "what it returned, as JSON (empty: null)")})
    if word in ("f", "failed"):
        return Decided("settle", {"result": await _words(keyboard, "how it failed"), "is_error": True})
    if word in ("r", "retry"):
        return Decided("retry", {})
    if word in ("l", "leave"):
        return Decided("deny", {})
    return _abort(screen, word)


def _abort(screen: Screen, word: str) -> Decided | None:
    if word in ("b", "abort"):
        return Decided("abort", {})
    if word:
        screen.note(("one of the letters in brackets, please", "yellow"))
    return None


async def _words(keyboard: Lines, what: str, default: str = "") -> str:
    return (await keyboard.line(f"{what} > ", default) or "").strip()


async def _json(screen: Screen, keyboard: Lines, what: str, default: str = "") -> Any:
    while True:
        text = await _words(keyboard, what, default)
        if not text:
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            screen.note((f"that is no JSON: {error}", "yellow"))
