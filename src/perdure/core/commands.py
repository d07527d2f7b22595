"""What the outside may ask of a session: each command is an inbox row before anyone acts on it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from . import canonical
from .errors import FormatUnknown, UsageError
from .messages import Blob, Part, Quote, Role, Source
from .records import Decision, Ending, Limits, Metadata, ToolPolicy
from .usage import Totals

__all__ = [
    "KINDS",
    "URGENT",
    "WAITING",
    "AddNote",
    "Answer",
    "Archive",
    "CallTool",
    "Command",
    "Compact",
    "Deliver",
    "Describe",
    "EditMessage",
    "Halt",
    "Interrupt",
    "PostMessage",
    "RedactContent",
    "Repair",
    "Replacement",
    "ReportOutcome",
    "ReportResult",
    "RestoreRevision",
    "Resume",
    "Revive",
    "RevokeGrant",
    "RewriteSpan",
    "RunCommand",
    "SelectRoute",
    "Withdraw",
    "checked",
    "decode",
    "digest",
    "digest_of",
    "encode",
]

Deliver: TypeAlias = Literal["turn", "queue", "steer"]


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A durable wish. ``submission``, ``at`` (ms since 1970) and ``actor`` stand in the inbox's own columns."""

    kind: ClassVar[str] = ""
    submission: str = ""
    at: int = 0
    actor: str = ""


class PostMessage(Command, frozen=True, kw_only=True):
    """Say something. ``queue`` and ``turn`` begin a turn of their own, ``steer`` joins the running one before its next model call.

    ``turn`` names the turn that a steer is meant for. ``source`` is who sent it where no person did. ``notes`` are what the model is told
    besides, right behind it. ``limits`` bound the turn that it begins, besides its agent's.
    """

    kind = "message"
    parts: tuple[Part, ...]
    deliver: Deliver = "turn"
    author: str = ""
    turn: str = ""
    reply: Quote | None = None
    source: Source | None = None
    notes: tuple[str, ...] = ()
    limits: Limits | None = None


class Interrupt(Command, frozen=True, kw_only=True):
    """Stop the running turn; the session stays usable. ``turn`` names it; empty is whichever runs."""

    kind = "interrupt"
    turn: str = ""
    reason: str = ""


class Answer(Command, frozen=True, kw_only=True):
    """Close a request. ``settle`` gives the outcome of an uncertain call, ``retry`` says that it did not happen and may run again."""

    kind = "answer"
    request_id: str
    decision: Decision
    arguments: dict[str, Any] | None = None
    reason: str = ""
    result: Any = None
    is_error: bool = False


class SelectRoute(Command, frozen=True, kw_only=True):
    """Use another route for the next model calls."""

    kind = "select_route"
    route: str


class Describe(Command, frozen=True, kw_only=True):
    """Replace the session's title, labels, metadata or tool policy; ``None`` leaves a part as it is, an empty value clears it."""

    kind = "describe"
    title: str | None = None
    labels: dict[str, str] | None = None
    metadata: Metadata | None = None
    tools: ToolPolicy | None = None


class RevokeGrant(Command, frozen=True, kw_only=True):
    """Ask again about a call that was granted for the session."""

    kind = "revoke_grant"
    grant: str


class Compact(Command, frozen=True, kw_only=True):
    """Replace the conversation so far by notes in what models see, once no turn runs."""

    kind = "compact"


class Resume(Command, frozen=True, kw_only=True):
    """Continue the turn that ended at a limit, once no turn runs. ``limits`` replace those of its agent that they name."""

    kind = "resume"
    limits: Limits | None = None


class EditMessage(Command, frozen=True, kw_only=True):
    """Change the content of a queued message; it keeps its place and its boundary."""

    kind = "edit"
    message: str
    parts: tuple[Part, ...]


class Withdraw(Command, frozen=True, kw_only=True):
    """Take back a queued message."""

    kind = "withdraw"
    message: str


class AddNote(Command, frozen=True, kw_only=True):
    """Tell the model something outside of the conversation."""

    kind = "note"
    text: str


class ReportResult(Command, frozen=True, kw_only=True):
    """The outcome of an attempt of a tool call, from the holder of its callback token. ``media`` are in the blob store already."""

    kind = "result"
    operation: str
    attempt: int
    result: Any = None
    is_error: bool = False
    media: tuple[Blob, ...] = ()


class ReportOutcome(Command, frozen=True, kw_only=True):
    """The outcome of the child ``session`` that an operation called: its last answer, or why it has none, and what it spent."""

    kind = "outcome"
    operation: str
    session: str
    outcome: Ending
    spent: Totals
    result: Any = None
    reason: str = ""


class CallTool(Command, frozen=True, kw_only=True):
    """Have one of the agent's tools called outside of the conversation, while no turn runs."""

    kind = "call_tool"
    name: str
    arguments: dict[str, Any] = {}


class Replacement(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A message that a person writes into a transcript."""

    role: Role
    parts: tuple[Part, ...]


class RewriteSpan(Command, frozen=True, kw_only=True):
    """Put other messages in place of those at positions ``[start, stop)``. ``expected`` is the transcript's revision; empty is any."""

    kind = "rewrite"
    start: int
    stop: int
    messages: tuple[Replacement, ...]
    expected: str = ""
    reason: str = ""


class RestoreRevision(Command, frozen=True, kw_only=True):
    """Bring back all messages of an earlier revision."""

    kind = "restore"
    revision: str
    expected: str = ""
    reason: str = ""


class RedactContent(Command, frozen=True, kw_only=True):
    """Remove the content of messages (by position) and other entries (by seq) permanently."""

    kind = "redact"
    positions: tuple[int, ...] = ()
    entries: tuple[int, ...] = ()
    reason: str = ""


class Archive(Command, frozen=True, kw_only=True):
    """Archive the session. What runs in it is taken from its holder, and its outcome isn't known here."""

    kind = "archive"
    reason: str = ""


class Revive(Command, frozen=True, kw_only=True):
    """Take the session out of the archive."""

    kind = "revive"
    reason: str = ""


class Halt(Command, frozen=True, kw_only=True):
    """Stop the session where it is. ``problem`` is the damage that was found in it."""

    kind = "halt"
    reason: str = ""
    problem: str = ""


class Repair(Command, frozen=True, kw_only=True):
    """Let a halted session continue, now that nothing is wrong with it."""

    kind = "repair"
    reason: str = ""


class RunCommand(Command, frozen=True, kw_only=True):
    """Run one of the commands that an extension declares."""

    kind = "command"
    extension: str
    command: str
    arguments: dict[str, Any] = {}


_COMMANDS: tuple[type[Command], ...] = (
    PostMessage,
    Interrupt,
    Answer,
    ReportResult,
    ReportOutcome,
    SelectRoute,
    Describe,
    RevokeGrant,
    Compact,
    Resume,
    EditMessage,
    Withdraw,
    AddNote,
    RewriteSpan,
    RestoreRevision,
    RedactContent,
    Archive,
    Revive,
    Halt,
    Repair,
    RunCommand,
    CallTool,
)
_BY_KIND: dict[str, type[Command]] = {command.kind: command for command in _COMMANDS}
_decoders: dict[str, msgspec.json.Decoder[Command]] = {}


KINDS = frozenset(_BY_KIND)
"""What a command can be."""


WAITING = frozenset({PostMessage.kind, Compact.kind, Resume.kind})
"""Those that wait for a turn's boundary; the others go with the next commit."""

URGENT = frozenset({Interrupt.kind, Answer.kind, ReportResult.kind, ReportOutcome.kind, Withdraw.kind})
"""Those that stop something, answer it, say what became of it, or make room: the others must not take their place in a full inbox."""


def encode(command: Command) -> bytes:
    """The canonical body of a command, without the columns that the inbox holds."""
    return canonical.encode(msgspec.structs.replace(command, submission="", at=0, actor=""))


def digest(command: Command) -> str:
    """What makes two submissions the same: kind and body, whoever sent them and whenever."""
    return digest_of(command.kind, encode(command))


def digest_of(kind: str, body: bytes) -> str:
    """`digest` of a command whose body is at hand."""
    return canonical.short_digest(kind, body.decode())


def checked(command: Command) -> tuple[Command, bytes]:
    """The command as whoever takes it up will read it, and its body.

    Raises `UsageError`, and names the field, where its stored form says something else.

    Free-form values must have passed `canonical.check`.
    """
    for name in command.__struct_fields__:
        value = getattr(command, name)
        if isinstance(value, str):
            canonical.check(value, name)
    try:
        body = encode(command)
        read = decode(command.kind, body, submission=command.submission, at=command.at, actor=command.actor)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        field = place.strip("`").removeprefix("$.") or "a field"
        raise UsageError(f"{field} is of a wrong type: {problem[:1].lower()}{problem[1:]}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"a submission of kind {command.kind!r} can't be kept: {error}") from None
    if read != command:
        raise UsageError(f"a submission of kind {command.kind!r} would be read back as something else", hint="pass plain values")
    return read, body


def decode(kind: str, body: bytes, *, submission: str, at: int, actor: str) -> Command:
    """A command from its stored form. Raises `FormatUnknown` for a kind that this version doesn't have."""
    command = (_decoders.get(kind) or _decoder(kind)).decode(body)
    for name, value in (("submission", submission), ("at", at), ("actor", actor)):
        msgspec.structs.force_setattr(command, name, value)
    return command


def _decoder(kind: str) -> msgspec.json.Decoder[Command]:
    """Made when the first command of its kind is read."""
    if kind not in _BY_KIND:
        raise FormatUnknown(f"the inbox holds a submission of the unknown kind {kind!r}", hint="a newer perdure wrote it; upgrade this one")
    return _decoders.setdefault(kind, msgspec.json.Decoder(_BY_KIND[kind]))
