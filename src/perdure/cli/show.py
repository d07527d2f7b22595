"""``perdure show``: the timeline of one session."""

from __future__ import annotations

import argparse
from typing import Any

from ..core.entries import Redacted
from ..core.errors import StoreCorrupt
from ..core.usage import Totals
from ..runtime.runtime import Runtime
from .exits import OK
from .live import called, cut_off, decided, failed_as, outcome_mark
from .opening import opened
from .screen import Screen
from .sessions import STYLES
from .text import arguments as shown_arguments
from .text import attached, counted, duration, moment, plain, short, value
from .timeline import Timeline
from .transcript import show_transcript, show_tree

__all__ = ["run", "turns_of"]

PAGE = 500


async def run(arguments: argparse.Namespace) -> int:
    """Show it."""
    screen = Screen(as_json=arguments.json)
    async with opened(arguments) as runtime:
        if arguments.tree:
            show_tree(screen, await runtime.sessions.tree(arguments.session), arguments.session)
            return OK
        if arguments.transcript:
            await show_transcript(screen, runtime, arguments.session, arguments.revision, arguments.last)
            return OK
        info = await runtime.sessions.info(arguments.session)
        try:
            checkpoint = await runtime.sessions.checkpoint(arguments.session)
            turns = await turns_of(runtime, arguments.session, checkpoint.root)
        except StoreCorrupt as error:
            raise StoreCorrupt(f"{info.session_id} ({info.problem or info.status}): {error.message}", hint=error.hint) from error
    if arguments.last:
        turns = turns[-arguments.last :]
    if arguments.json:
        screen.json({"session": plain(info) | {"usage": plain(checkpoint.usage), "revision": checkpoint.revision}, "turns": turns})
        return OK
    screen.line((info.session_id, "bold"), "  ", (info.status, STYLES.get(info.status, "")), (f"  {short(info.title, 60)}", "dim"))
    who = f" · owner {info.owner}" if info.owner else ""
    screen.line((f"agent {info.agent or '–'}{who} · {counted(info.version, 'entry', 'entries')} · {checkpoint.usage}", "dim"))
    if info.problem:
        screen.line((info.problem, "red"))
    for turn in turns:
        screen.line()
        _show_turn(screen, turn)
    return OK


async def turns_of(runtime: Runtime, session_id: str, root: str) -> list[dict[str, Any]]:
    """A session's whole timeline."""

    async def fetch(digest: str) -> bytes | None:
        try:
            blob = await runtime.store.blob(root, digest)
        except StoreCorrupt:
            # What can be shown is shown; `verify` says what can't.
            return None
        return None if blob is None else blob.data

    redacted = await runtime.sessions.entries(session_id, kinds=(Redacted.kind,))
    timeline = Timeline(session_id, fetch, {row.seq for entry in redacted if isinstance(entry, Redacted) for row in entry.rows})
    after = 0
    while entries := await runtime.sessions.entries(session_id, after=after, limit=PAGE):
        for entry in entries:
            await timeline.add(entry)
        after = entries[-1].seq
    return timeline.turns


def _show_turn(screen: Screen, turn: dict[str, Any]) -> None:
    if turn["turn"] is None:
        screen.line(("between turns", "dim"))
    else:
        style = {"completed": "green", "failed": "red", "running": "cyan"}.get(turn["status"], "yellow")
        took = f" in {duration(turn['ended'] - turn['started'])}" if turn["ended"] else ""
        said = turn["failure"]["message"] if turn.get("failure") else "" if turn["status"] == "limited" else turn["reason"]
        screen.line(
            (turn["turn"], "bold"),
            f"  {moment(turn['started'])}  ",
            (turn["status"], style),
            took,
            (f"  {said}" if said else "", style),
            (f"  submission {turn['submission']}", "dim"),
        )
    for item in turn["items"]:
        _SHOW[item["type"]](screen, item)
    if turn.get("usage"):
        usage = _usage(turn["usage"])
        if any(item.get("spent") for item in turn["items"] if item["type"] == "child"):
            usage += ", called agents included"
        amounts = f"{counted(turn['steps'], 'step')} · {counted(turn['tool_calls'], 'tool call')}"
        screen.line((f"{amounts} · {usage}", "dim"), indent=2)


def _usage(data: dict[str, int]) -> str:
    return str(Totals(**data))


def _message(screen: Screen, item: dict[str, Any]) -> None:
    who = _instead(item) + (item["author"] or "user")
    how = f" ({item['deliver']})" if item["deliver"] not in ("", "turn") else ""
    screen.line((f"{who}{how}: ", "bold cyan"), _text(item["parts"]), indent=2)


def _answer(screen: Screen, item: dict[str, Any]) -> None:
    text = _text(item["parts"])
    if text.strip():
        screen.line((_instead(item), "bold cyan"), text, indent=2)
    elif "instead" in item and "written" not in item:
        screen.line((_instead(item), "bold cyan"), "[a call]", indent=2)
    if "written" in item:
        # Nobody made these calls here, so that no operation shows them.
        for part in item["parts"]:
            if part["type"] == "tool_call":
                screen.line(("· ", "dim"), called(part["name"], part["arguments"]), indent=4)


def _written_response(screen: Screen, item: dict[str, Any]) -> None:
    screen.line(("= ", "dim"), (value(item["result"], 400), "red" if item["is_error"] else ""), indent=6)


def _instead(item: dict[str, Any]) -> str:
    return f"→ {item['position']} " if "instead" in item else ""


def _text(parts: list[dict[str, Any]]) -> str:
    shown = []
    for part in parts:
        match part["type"]:
            case "text":
                shown.append(part["content"])
            case "redacted":
                shown.append("[redacted]")
            case "blob":
                shown.append(attached(part.get("name", ""), part["mime_type"], part["size"]))
            case "uri" | "stored":
                shown.append(f"[{part['type']} {part.get('uri') or part.get('size')}]")
    return "".join(shown)


def _operation(screen: Screen, item: dict[str, Any]) -> None:
    mark, style = outcome_mark(item["status"])
    attempts = item["attempts"]
    match item["type"]:
        case "tool" | "child" | "timer" | "handoff":
            name = called(item["name"], item["arguments"])
        case "step":
            name = item["name"]
        case "compaction":
            name = f"notes by model {item.get('model') or item['name']}"
        case "memory":
            name = f"what to remember, by model {item.get('model') or item['name']}"
        case "repair":
            name = f"answer corrected by model {item.get('model') or item['name']}"
        case _:
            name = f"model {item.get('model') or item['name']}"
    facts = [item["operation"]]
    if attempts and attempts[-1]["ended"]:
        facts.append(duration(attempts[-1]["ended"] - attempts[-1]["started"]))
    elif attempts:
        facts.append(f"since {moment(attempts[-1]['started'])}")
    if item["effect"] not in (None, "external"):
        facts.append(item["effect"])
    if usage := item["usage"]:
        facts.append(f"{usage.get('input_tokens', '?')} → {usage.get('output_tokens', '?')} tokens")
    if item["status"] not in ("succeeded",):
        facts.append(item["status"])
    # A step of a call stands under it; a hook's is on its own.
    indent = 4 if item["operation"].count(".") == 2 and "/" in item["operation"] else 2
    screen.line((f"{mark} ", style), name, (f"  {' · '.join(facts)}", "dim"), indent=indent)
    if item["type"] == "child":
        spent = f" · {_usage(item['spent'])}" if item["spent"] else ""
        screen.line((f"in {item['session']}{spent}", "dim"), indent=6)
    if "asked" in item:
        whose = f"rewritten by {item['rewritten_by']}" if "rewritten_by" in item else "edited by a person"
        screen.line((f"{whose}; the model asked for {shown_arguments(item['asked'])}", "dim"), indent=6)
    for attempt in attempts if len(attempts) > 1 else ():
        failure = attempt["failure"]
        why = f": {_why(failure)}" if failure else ""
        took = duration((attempt["ended"] or attempt["started"]) - attempt["started"])
        screen.line((f"attempt {attempt['attempt']}  {moment(attempt['started'])}  {took}  {attempt['status']}{why}", "dim"), indent=6)
    if len(attempts) <= 1 and item.get("failure") and item["result"] is None:
        screen.line((_why(item["failure"]), "red"), indent=6)
    if item.get("candidate"):
        screen.line(("not accepted: ", "yellow"), short(_text(item["candidate"]), 400), indent=6)
    if item.get("unfinished"):
        screen.line(("unfinished: ", "yellow"), short(item["unfinished"], 400), indent=6)
    if item["result"] is not None:
        screen.line(("= ", "dim"), (value(item["result"], 400), "red" if item.get("is_error") else ""), indent=6)


def _why(failure: dict[str, Any]) -> str:
    return failed_as(failure["code"], failure.get("message", ""))


def _request(screen: Screen, item: dict[str, Any]) -> None:
    asked = {"approval": "may it run?", "answer": "the user is asked"}.get(item["kind"], "what became of it?")
    screen.line(
        ("? ", "yellow"), f"{item['name']}: {asked}" if item["name"] else asked, (f"  request {item['request_id']}", "dim"), indent=2
    )
    if item["match"]:
        screen.line((f"it may repeat {item['match']['operation']} ({item['match']['state']})", "yellow"), indent=6)
    if item["closed"] is None:
        screen.line(("open", "yellow"), f" since {moment(item['at'])}", indent=6)
        return
    by = {"answer": f", by {item['actor']}" if item["actor"] else "", "deadline": ", by its deadline", "turn": ", by the end of its turn"}
    words = decided(item["decision"], item["kind"] == "uncertain")
    edited = f" with {shown_arguments(item['edited'])}" if "edited" in item else ""
    why = f": {item['reason']}" if item["reason"] else ""
    screen.line((f"{words}{edited}{by[item['by']]} after {duration(item['closed'] - item['at'])}{why}", "dim"), indent=6)


def _recovered(screen: Screen, item: dict[str, Any]) -> None:
    lost = ", ".join(cut_off(attempt["operation"], attempt["status"]) for attempt in item["attempts"])
    screen.line(("⟲ ", "yellow"), f"taken over after a process died {moment(item['at'])}", (f"  {lost}" if lost else "", "dim"), indent=2)


def _settled(screen: Screen, item: dict[str, Any]) -> None:
    mark, style = outcome_mark(item["status"])
    by = f" by {item['actor']}" if item["actor"] else ""
    screen.line((f"{mark} ", style), f"{item['operation']} is known now{by}: ", value(item["result"], 400), indent=2)


def _child_ended(screen: Screen, item: dict[str, Any]) -> None:
    why = f": {item['reason']}" if item["reason"] else ""
    facts = (f"  {item['operation']} · {_usage(item['spent'])}", "dim")
    screen.line((f"{item['name']} {item['status']} in {item['session']}{why}", "dim"), facts, indent=2)


def _note(screen: Screen, item: dict[str, Any]) -> None:
    whose = f" of {item['extension']}" if item["extension"] else ""
    screen.line((f"note{whose}: {item['text']}", "dim"), indent=2)


def _withdrawn(screen: Screen, item: dict[str, Any]) -> None:
    screen.line((f"{counted(len(item['notes']), 'note')} withdrawn: the model said nothing", "dim"), indent=2)


def _called(screen: Screen, item: dict[str, Any]) -> None:
    screen.line((f"called from outside{_by(item)}", "dim"), indent=2)


def _kept(screen: Screen, item: dict[str, Any]) -> None:
    words = "drops it" if item["dropped"] else f"= {value(item['value'], 400)}"
    screen.line((f"{item['extension']}: {item['key']} {words}", "dim"), indent=2)


def _commanded(screen: Screen, item: dict[str, Any]) -> None:
    screen.line((f"{item['extension']}: {called(item['command'], item['arguments'])}{_by(item)}", "dim"), indent=2)


def _replaced(screen: Screen, item: dict[str, Any]) -> None:
    screen.line(
        (f"of {item['name']} the model reads instead: ", "dim"), (value(item["result"], 400), "red" if item["is_error"] else ""), indent=6
    )


def _refused(screen: Screen, item: dict[str, Any]) -> None:
    screen.line((f"– refused {item['submission']}: {_why(item['failure'])}", "dim"), indent=2)


def _redefined(screen: Screen, item: dict[str, Any]) -> None:
    what = f"goes on under a changed definition: {'; '.join(item['difference'])}" if item["difference"] else f"goes on as {item['agent']}"
    screen.line((what, "yellow"), indent=2)


def _queued(screen: Screen, item: dict[str, Any]) -> None:
    words = {"promoted": "waits for its own turn", "edited": "was edited as it waited", "withdrawn": "was withdrawn"}[item["change"]]
    screen.line((f"{item['submission']} {words}{_by(item)}", "dim"), indent=2)


def _by(item: dict[str, Any]) -> str:
    return f" by {item['actor']}" if item["actor"] else ""


def _routed(screen: Screen, item: dict[str, Any]) -> None:
    screen.line((f"the model is {item['route']} from here on{_by(item)}", "dim"), indent=2)


def _granted(screen: Screen, item: dict[str, Any]) -> None:
    words = "is asked about again" if item["revoked"] else "may run without asking"
    screen.line((f"{called(item['name'], item['arguments'])} {words}{_by(item)}  grant {item['grant']}", "dim"), indent=2)


def _prefixed(screen: Screen, item: dict[str, Any]) -> None:
    if item["reason"] != "rewrite":
        # Of an edit the line before tells.
        screen.line((f"what models see changed: {item['reason'].replace('_', ' ')}", "dim"), indent=2)


def _rewritten(screen: Screen, item: dict[str, Any]) -> None:
    what = "an earlier revision was restored" if item["restored"] else f"messages [{item['start']}, {item['stop']}) were rewritten"
    why = f": {item['reason']}" if item["reason"] else ""
    screen.line((f"{what}{_by(item)}{why}", "yellow"), (f"  {item['revision'][:12]}", "dim"), indent=2)


def _forked(screen: Screen, item: dict[str, Any]) -> None:
    why = f": {item['reason']}" if item["reason"] else ""
    screen.line((f"begins with {_first(item['cut'])} of {item['session']}{_by(item)}{why}", "dim"), indent=2)


def _first(count: int) -> str:
    return f"the first {counted(count, 'message')}" if count != 1 else "the first message"


def _halted(screen: Screen, item: dict[str, Any]) -> None:
    why = ": ".join(filter(None, (item["reason"], item["problem"])))
    what = "checked, and let go" if item["released"] else "halted"
    screen.line((f"{what}{_by(item)}{f': {why}' if why else ''}", "yellow" if item["released"] else "red"), indent=2)


def _redacted(screen: Screen, item: dict[str, Any]) -> None:
    why = f": {item['reason']}" if item["reason"] else ""
    named, many = ", ".join(map(str, item["positions"])), "s" * (len(item["positions"]) > 1)
    entries = counted(len(item["entries"]), "entry", "entries")
    what = f"the message{many} {named} ({entries})" if named else f"entries {item['entries']}"
    screen.line((f"content of {what} was removed{_by(item)}{why}", "yellow"), indent=2)


_SHOW = {
    "rewritten": _rewritten,
    "forked": _forked,
    "redacted": _redacted,
    "halted": _halted,
    "message": _message,
    "answer": _answer,
    "response": _written_response,
    "model": _operation,
    "tool": _operation,
    "child": _operation,
    "child_ended": _child_ended,
    "timer": _operation,
    "handoff": _operation,
    "compaction": _operation,
    "memory": _operation,
    "repair": _operation,
    "request": _request,
    "recovered": _recovered,
    "settled": _settled,
    "step": _operation,
    "note": _note,
    "withdrawn": _withdrawn,
    "called": _called,
    "kept": _kept,
    "command": _commanded,
    "replaced": _replaced,
    "refused": _refused,
    "definition_changed": _redefined,
    "queue_changed": _queued,
    "route_selected": _routed,
    "grant": _granted,
    "prefix_changed": _prefixed,
}
