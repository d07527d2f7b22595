"""Draws `docs/protocol.md` from the code: ``python docs/draw.py``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec

from perdure.core import checkpoint, commands, decider, entries, layout, messages, recovery, usage
from perdure.core.rules import attempts, endings

PAGE = Path(__file__).with_name("protocol.md")

ALIASES: dict[str, Any] = {
    "Status": entries.Status,
    "Decision": entries.Decision,
    "OperationKind": entries.OperationKind,
    "EffectClass": entries.EffectClass,
    "Role": messages.Role,
}
"""The names in fields' types that stand for a choice of words."""

RECORDS: tuple[type[msgspec.Struct], ...] = (
    entries.Identity,
    entries.Metadata,
    entries.Limits,
    entries.Plan,
    entries.EffectMatch,
    entries.RequestRecord,
    entries.ResponseReference,
    entries.Attempt,
    entries.Failure,
    entries.RedactedRow,
    layout.Piece,
    messages.Quote,
    messages.Source,
    usage.Usage,
    usage.Totals,
)
"""The values that stand inside entries."""

PARTS: tuple[type[msgspec.Struct], ...] = tuple(get_args(messages.Part))

COMMANDS: tuple[type[commands.Command], ...] = (
    commands.PostMessage,
    commands.Interrupt,
    commands.Answer,
    commands.ReportResult,
    commands.SelectRoute,
    commands.Describe,
    commands.RevokeGrant,
    commands.EditMessage,
    commands.Withdraw,
    commands.AddNote,
    commands.RewriteSpan,
    commands.RestoreRevision,
    commands.RedactContent,
    commands.Archive,
    commands.Revive,
)

PHASES = {
    "idle": "no turn runs",
    "model": "the next thing is a model call, or it runs",
    "tools": "a tool call runs, may start, or was asked for and not planned",
    "waiting": "a request is open, and nothing else can be done",
    "completing": "the model answered and asked for nothing more",
    "archived": "somebody put the session away",
}


def first_line(thing: Any) -> str:
    """What a docstring says first."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n", maxsplit=1)[0].split())


def protocol() -> str:
    """The whole page."""
    return "\n".join([*_head(), *_table(), *_rules(), *_kinds(), *_records(), *_parts(), *_commands()])


def _head() -> Iterable[str]:
    yield "# The protocol of a session"
    yield ""
    yield "Drawn from `perdure.core` by `python docs/draw.py`; a test fails when the two differ."
    yield ""


def _table() -> Iterable[str]:
    yield "## What may happen next"
    yield ""
    yield "Situation × command → rule. `·` is *not now*: nothing is written, and the command stays where it is."
    yield "`✗` can't happen: only a faulty driver gets there. The situation is derived from the checkpoint, never stored."
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
    yield "Rules that say more than their name:"
    yield ""
    for rule in found:
        if rule.__module__ != decider.__name__ and rule.__doc__:
            yield f"- `{rule.__name__}`: {first_line(rule)}"
    yield ""
    yield _row("number", "is", "means")
    yield _row("---", "---", "---")
    for name, value, meaning in (
        ("attempts.ATTEMPTS", attempts.ATTEMPTS, "tries of a model call whose provider fails"),
        ("attempts.FIRST_DELAY_MS", attempts.FIRST_DELAY_MS, "milliseconds before the second try; doubled before each further one"),
        ("attempts.LONGEST_DELAY_MS", attempts.LONGEST_DELAY_MS, "the ceiling of that delay, and of a provider's own hint"),
        ("endings.RESTARTS", endings.RESTARTS, "attempts of one operation that may begin because of a restart"),
        ("checkpoint.CALLS_LIMIT", checkpoint.CALLS_LIMIT, "tool calls of one step"),
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
    yield "Every entry has `seq`, `number` and `at` beside its body; a field that is as usual is left out of the body."
    yield ""
    yield "Choices of words: " + "; ".join(f"`{name}` is {_words(choice)}" for name, choice in ALIASES.items()) + "."
    yield ""
    for kind in entries.KINDS:
        for shape in entries.shapes(kind):
            yield from _fields(f"`{kind}` · {shape.__name__}", shape, without=set(entries.Entry.__struct_fields__))


def _words(choice: Any) -> str:
    return ", ".join(f"*{word}*" for word in get_args(choice))


def _records() -> Iterable[str]:
    yield "## What stands inside entries"
    yield ""
    for record in RECORDS:
        yield from _fields(record.__name__, record)


def _parts() -> Iterable[str]:
    yield "## What messages are made of"
    yield ""
    for part in PARTS:
        yield from _fields(f"`{part.__struct_config__.tag}` · {part.__name__}", part)


def _commands() -> Iterable[str]:
    yield "## What the outside may ask"
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
        yield _row("field", "type", "as usual")
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
    return "all as usual" if isinstance(value, msgspec.Struct) else f"`{value!r}`"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(protocol(), encoding="utf-8")
