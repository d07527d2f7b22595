"""Draws what is read off the code or off a run, pages, tables and what type checkers read of the face: ``python docs/draw.py``."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec

import perdure
from perdure.core import checkpoint, commands, decider, entries, layout, messages, records, recovery, reports, usage
from perdure.core.rules import attempts, endings
from perdure.models.base import ReasoningDelta, TextDelta
from perdure.runtime import feed

PAGE = Path(__file__).with_name("protocol.md")
EVENTS = Path(__file__).with_name("events.md")
SCHEMA = Path(__file__).with_name("events.schema.json")
BENCHMARKS = Path(__file__).with_name("benchmarks.md")
FIGURES = Path(__file__).with_name("benchmarks.json")
FACE = Path(perdure.__file__).with_name("__init__.pyi")

LIVE: tuple[type[msgspec.Struct], ...] = (
    feed.SessionOpened,
    feed.ResumeRequested,
    feed.HookFailed,
    feed.ChildAsked,
    TextDelta,
    ReasoningDelta,
)
"""What a reader of events gets besides entries."""

PROTOCOL_HEAD = """# The protocol of a session

Every rule by which a session changes, and everything that its journal can hold. For people who change perdure, write a store or
read journals; using the library needs none of it.

A session is a journal of **entries**, numbered from 1. Folding them gives the **checkpoint**: what runs, which calls are open, what
was counted. There is one way to change a session:

1. A **command** arrives: a message, a receipt, an interrupt, a process that claims the session.
2. The **situation** is derived from the checkpoint; it is never stored.
3. The table below names the **rule** for the two. A rule is a pure function of checkpoint and command: it returns the entries to
   append, or it refuses.
4. One commit appends them, replaces the checkpoint and consumes the command, if nobody else has committed since.

So wherever a process dies, the next one finds the same checkpoint, and the same table says how to continue. What that means for a call
that was running is in [failures.md](failures.md#what-a-crash-makes-of-a-running-call).

For example, a tool returns. The command is `{command}`, the situation *tools*, and the rule `{rule}`: it returns an
`operation_ended`, and once all calls of the step have ended, a `message` with the results and the next `operation_started`.

Drawn from `perdure.core` by `python docs/draw.py`; a test fails when the two differ.
"""

EVENTS_HEAD = """# Events and commands

What you get when you watch a session, and what you can send it. For user interfaces, and for programs that read journals or
consume entries.

Drawn by `python docs/draw.py`, as is [their JSON Schema](events.schema.json); a test compares them with the code, and
another one checks real journals against the schema. Every field is in [the protocol](protocol.md).

`handle.events(after=seq)` yields, in this order: `SessionOpened`; the open requests, live; every entry with a seq beyond
`after` (by default those since the handle was opened). In between come deltas, only in the process that runs the session.

- **Stored first.** An entry is durable before anybody gets it, and readers get what is stored. The entries of one commit
  come together, in the order in which they were decided, or none of them does.
- **No gap, no repetition.** `seq` counts 1, 2, 3 …, whatever the kind. A reader that comes back with its last `seq` continues there.
- **Nobody waits for a reader.** A reader that is too slow for the process's buffer continues from the store: it misses deltas, but
  no entry.
- **Deltas aren't facts.** They carry operation, attempt and index; those of an attempt are replaced by the next attempt's, and by the
  message at the end. Text of an attempt that failed or was interrupted is kept as `partial` in its `operation_ended`.
- **The end.** A turn has exactly one of `turn_completed`, `turn_aborted`, `turn_failed`, `turn_limited` (`TurnEnded` is their
  base). A stream ends when its handle is closed, or with the error that ended this process's work on the session.
"""

COMMANDS_HEAD = """A submission is durable when its call returns. It has an id (`submission=`, or a new one) and is carried out only once.
Its outcome carries that id: the entry that it caused, or `submission_refused`.
"""

DIALECT = "https://json-schema.org/draft/2020-12/schema"

PLACES = ("kind", "seq", "number", "at")
"""What stands beside an entry's body."""

ALIASES: dict[str, Any] = {
    "Status": records.Status,
    "Decision": records.Decision,
    "OperationKind": records.OperationKind,
    "EffectClass": records.EffectClass,
    "Role": messages.Role,
    "Hold": records.Hold,
    "Ending": records.Ending,
}
"""The names in fields' types that stand for a choice of words."""

RECORDS: tuple[type[msgspec.Struct], ...] = (
    records.Identity,
    records.Metadata,
    records.ToolPolicy,
    records.Limits,
    records.Terms,
    records.Plan,
    records.EffectMatch,
    records.RequestRecord,
    records.ResponseReference,
    records.Attempt,
    records.Failure,
    records.RedactedRow,
    records.Parent,
    records.Errand,
    layout.Piece,
    messages.Quote,
    messages.Source,
    usage.Usage,
    usage.Cost,
    records.Amounts,
    records.Reached,
    usage.Totals,
)
"""The values that stand inside entries."""

PARTS: tuple[type[msgspec.Struct], ...] = tuple(get_args(messages.Part))

COMMANDS: tuple[type[commands.Command], ...] = (
    commands.PostMessage,
    commands.Interrupt,
    commands.Answer,
    commands.ReportResult,
    commands.ReportOutcome,
    commands.SelectRoute,
    commands.Describe,
    commands.RevokeGrant,
    commands.Compact,
    commands.Resume,
    commands.EditMessage,
    commands.Withdraw,
    commands.AddNote,
    commands.RunCommand,
    commands.CallTool,
    commands.RewriteSpan,
    commands.RestoreRevision,
    commands.RedactContent,
    commands.Archive,
    commands.Revive,
    commands.Halt,
    commands.Repair,
)

PHASES = {
    "idle": "no turn runs",
    "model": "the next thing is a model call, or it runs",
    "tools": "a tool call runs, may start, or was asked for and not planned",
    "waiting": "a request is open, and nothing else can be done",
    "completing": "the model answered and asked for nothing more",
    "archived": "somebody put the session away",
    "halted": "damage was found in the session, or somebody stopped it",
}


def first_line(thing: Any) -> str:
    """What a docstring says first."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n", maxsplit=1)[0].split())


def protocol() -> str:
    """The whole page."""
    return "\n".join([*_head(), *_table(), *_rules(), *_kinds(), *_records(), *_parts(), *_commands()])


def _head() -> Iterable[str]:
    ended = reports.AttemptEnded
    yield PROTOCOL_HEAD.format(command=ended.__name__, rule=decider.TABLE[ended]["tools"].__name__)


def _table() -> Iterable[str]:
    yield "## What may happen next"
    yield ""
    yield "Each row is a command, each column a situation, each cell a rule. `·` is *not now*: nothing is written, and the command waits."
    yield "`✗` can't happen: only a faulty driver gets there."
    yield ""
    for situation in _situations():
        yield f"- **{situation}**: {PHASES[situation]}"
    yield ""
    yield _row("command", *_situations())
    yield _row("---", *("---" for _ in _situations()))
    for command, row in decider.TABLE.items():
        yield _row(f"`{command.__name__}`", *(_cell(row[situation]) for situation in _situations()))
    yield ""
    for command in decider.TABLE:
        yield f"- `{command.__name__}`: {first_line(command)}"
    yield ""


def _situations() -> tuple[checkpoint.Phase, ...]:
    return get_args(checkpoint.Phase)


def _cell(rule: Any) -> str:
    if rule is decider.not_now:
        return "·"
    return "✗" if rule is decider.impossible else f"`{rule.__name__}`"


def _rules() -> Iterable[str]:
    found = dict.fromkeys(rule for row in decider.TABLE.values() for rule in row.values())
    yield "Rules whose names don't say everything:"
    yield ""
    for rule in found:
        if rule.__module__ != decider.__name__ and rule.__doc__:
            yield f"- `{rule.__name__}`: {first_line(rule)}"
    yield ""
    yield _row("number", "value", "meaning")
    yield _row("---", "---", "---")
    for name, value, meaning in (
        ("attempts.ATTEMPTS", attempts.ATTEMPTS, "tries of a model call whose provider fails"),
        ("attempts.FIRST_DELAY_MS", attempts.FIRST_DELAY_MS, "milliseconds before the second try; doubled before each further one"),
        ("attempts.LONGEST_DELAY_MS", attempts.LONGEST_DELAY_MS, "the ceiling of that delay, and of a provider's own hint"),
        ("endings.RESTARTS", endings.RESTARTS, "attempts of one operation that may begin because of a restart"),
        ("checkpoint.CALLS_LIMIT", checkpoint.CALLS_LIMIT, "tool calls of one step"),
        ("checkpoint.STEPS_LIMIT", checkpoint.STEPS_LIMIT, "things that extensions may do outside in one step"),
        ("checkpoint.EXTENSION_KEYS_LIMIT", checkpoint.EXTENSION_KEYS_LIMIT, "values that extensions keep in one session"),
        ("checkpoint.ONCE_LIMIT", checkpoint.ONCE_LIMIT, "keys of guidance that is given once in one session"),
        ("checkpoint.SIZE_LIMIT", checkpoint.SIZE_LIMIT, "bytes of a checkpoint"),
        ("checkpoint.RULES", checkpoint.RULES, "the number of these rules"),
    ):
        yield _row(f"`{name}`", str(value), meaning)
    yield ""
    yield f"Recovery (`{recovery.recover.__name__}`) is one more rule: {first_line(recovery.recover)}"
    yield ""


def _kinds() -> Iterable[str]:
    yield "## What a journal can hold"
    yield ""
    yield "Every entry has `seq`, `number` and `at` in addition to its body; fields with their default value are left out of the body."
    yield ""
    yield "Choices of words: " + "; ".join(f"`{name}` is {_words(choice)}" for name, choice in ALIASES.items()) + "."
    yield ""
    for kind in entries.KINDS:
        for shape in entries.shapes(kind):
            yield from _fields(f"`{kind}` · {shape.__name__}", shape, without=set(entries.Entry.__struct_fields__))


def _words(choice: Any) -> str:
    return ", ".join(f"*{word}*" for word in get_args(choice))


def _records() -> Iterable[str]:
    yield "## Records inside entries"
    yield ""
    for record in RECORDS:
        yield from _fields(record.__name__, record)


def _parts() -> Iterable[str]:
    yield "## Parts of messages"
    yield ""
    for part in PARTS:
        yield from _fields(f"`{part.__struct_config__.tag}` · {part.__name__}", part)


def _commands() -> Iterable[str]:
    yield "## Commands from outside"
    yield ""
    for command in COMMANDS:
        yield from _fields(f"`{command.kind}` · {command.__name__}", command, without={"submission", "at", "actor"})
    yield from _fields("Replacement", commands.Replacement)


def _fields(title: str, shape: type[msgspec.Struct], *, without: Iterable[str] = ()) -> Iterable[str]:
    yield f"### {title}"
    yield ""
    yield first_line(shape)
    yield ""
    fields = [field for field in msgspec.structs.fields(shape) if field.name not in without]
    if fields:
        yield _row("field", "type", "default")
        yield _row("---", "---", "---")
    for field in fields:
        yield _row(f"`{field.name}`", f"`{_type(shape, field.name)}`".replace("|", "\\|"), _default(field))
    yield ""


def _type(shape: type[msgspec.Struct], name: str) -> str:
    """A field's type as it stands in the code, the same under every Python version."""
    for base in shape.__mro__:
        own = inspect.get_annotations(base)
        if name in own:
            return str(own[name])
    raise AssertionError(f"{shape.__name__} has no field {name}")


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default
    if isinstance(field.default_factory, type):
        value = field.default_factory()
    return "all defaults" if isinstance(value, msgspec.Struct) else f"`{value!r}`"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


# -------------------------------------------------------------------------------------------------------------------- events


def kind_of(shape: type[msgspec.Struct]) -> str:
    """What an event or a command calls itself."""
    kind = getattr(shape, "kind", "")
    return kind if isinstance(kind, str) and kind else re.sub(r"(?<!^)(?=[A-Z])", "_", shape.__name__).lower()


def all_entries() -> tuple[type[entries.Entry], ...]:
    """Every class that an entry can have."""
    return tuple(shape for kind in entries.KINDS for shape in entries.shapes(kind))


def schema() -> dict[str, Any]:
    """The JSON Schema of everything that a session's readers get and its senders give."""
    groups = {
        "Entry": ("A fact in the journal, as `perdure events --json` prints it.", all_entries(), PLACES),
        "Command": ("A submission, as the inbox keeps it.", COMMANDS, ("kind",)),
        "Live": ("What readers in the same process get between entries; nothing of it is stored.", LIVE, ("kind",)),
    }
    shapes = [shape for _, members, _ in groups.values() for shape in members]
    _, found = msgspec.json.schema_components(shapes, ref_template="#/$defs/{name}")
    for definition in found.values():
        if "description" in definition:
            definition["description"] = " ".join(definition["description"].split("\n\n", maxsplit=1)[0].split())
    for _, members, required in groups.values():
        for shape in members:
            definition = found[shape.__name__]
            definition["properties"] = {"kind": {"const": kind_of(shape)}, **definition["properties"]}
            own = [name for name in definition.get("required", ()) if name not in required]
            definition["required"] = [*required, *own]
    for name, (meaning, members, _) in groups.items():
        found[name] = {"description": meaning, "anyOf": [{"$ref": f"#/$defs/{shape.__name__}"} for shape in members]}
    document = {
        "$schema": DIALECT,
        "title": "perdure: entries, commands and live events",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in groups],
        "$defs": dict(sorted(found.items())),
    }
    return json.loads(json.dumps(document))  # type: ignore[no-any-return]


def schema_text() -> str:
    """The file."""
    return json.dumps(schema(), indent=1, ensure_ascii=True) + "\n"


def events() -> str:
    """The page about events."""
    return "\n".join([EVENTS_HEAD, *_events_kinds(), *_events_live(), *_events_commands()])


def _events_kinds() -> Iterable[str]:
    yield "## What is stored"
    yield ""
    yield _row("kind", "class", "meaning", "asked for by")
    yield _row("---", "---", "---", "---")
    for shape in all_entries():
        named = [name for name in ("submission", "interrupt", "by") if name in shape.__struct_fields__ and isinstance(name, str)]
        asked = " / ".join(f"`{name}`" for name in named if not (name == "by" and shape is entries.RequestClosed))
        yield _row(f"`{shape.kind}`", f"`{shape.__name__}`", first_line(shape).replace("|", "\\|"), asked)
    yield ""


def _events_live() -> Iterable[str]:
    yield "## What is live"
    yield ""
    for shape in LIVE:
        yield from _fields(f"`{kind_of(shape)}` · {shape.__name__}", shape)


def _events_commands() -> Iterable[str]:
    yield "## Commands"
    yield ""
    yield COMMANDS_HEAD
    yield _row("kind", "class", "meaning")
    yield _row("---", "---", "---")
    for shape in COMMANDS:
        yield _row(f"`{shape.kind}`", f"`{shape.__name__}`", first_line(shape).replace("|", "\\|"))


def benchmarks() -> str:
    """The page of benchmarks with the run in `FIGURES`, which ``python -m benchmarks --json docs/benchmarks.json`` writes."""
    run = json.loads(FIGURES.read_text(encoding="utf-8"))
    page = BENCHMARKS.read_text(encoding="utf-8")
    aims = [item for item in run["figures"] if item["target"] is not None]
    drawn = {
        "machine": textwrap.wrap(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in run["machine"].items()), 138),
        "SQLite": _figures(item for item in aims if not item["name"].startswith("PostgreSQL")),
        "PostgreSQL": _figures(item for item in aims if item["name"].startswith("PostgreSQL")),
    }
    for name, lines in drawn.items():
        text = "\n".join([f"<!-- figures: {name} -->", *lines, "<!-- end -->"])
        page = re.sub(rf"<!-- figures: {name} -->.*?<!-- end -->", lambda _, text=text: text, page, flags=re.DOTALL)  # type: ignore[misc]
    return page


def _figures(figures: Iterable[dict[str, Any]]) -> list[str]:
    head = ("figure", "target", "measured", "lowest–highest", "ours", "floor", "")
    return [_row(*head), _row(*("---" for _ in head)), *map(_figure, figures)]


def _figure(item: dict[str, Any]) -> str:
    shown = {True: "holds", False: "**missed**", None: ""}[item["ok"]]
    measured = f"{_number(item['value'])} {item['unit']}".strip()
    target = f"{'≤' if item['at_most'] else '≥'} {item['target']:,g}"
    spread = "" if item["low"] is None else f"{_number(item['low'])}–{_number(item['high'])}"
    return _row(item["name"].removeprefix("PostgreSQL: "), target, measured, spread, item["ours"], item["floor"], shown)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def face() -> str:
    """The public names with the modules where they stand, as type checkers read them."""
    lines = [f'"""{perdure.__doc__}"""', "", "# Drawn by `python docs/draw.py` from the table in __init__.py.", ""]
    lines += [f"from .{module} import {name} as {name}" for module, names in perdure._FACE.items() for name in names.split()]
    stars = [f'    "{name}",' for name in perdure.__all__]
    return "\n".join([*lines, "", "__all__ = [", *stars, "]", "", "__version__: str", ""])


if __name__ == "__main__":
    FACE.write_text(face(), encoding="utf-8")
    PAGE.write_text(protocol(), encoding="utf-8")
    EVENTS.write_text(events(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    BENCHMARKS.write_text(benchmarks(), encoding="utf-8")
