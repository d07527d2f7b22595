"""Every kind of fact that a journal can hold: the one table of entry kinds.

An entry *is* the event that a reader gets. ``seq``, ``number`` and ``at`` stand in the journal's own columns and in the hash chain;
the body holds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import msgspec

from . import canonical
from .errors import FormatUnknown
from .layout import Piece
from .messages import Part, Quote, Role, Source
from .records import (
    ALL_TOOLS,
    Amounts,
    Attempt,
    Decision,
    EffectMatch,
    Ending,
    Errand,
    Failure,
    Identity,
    Limits,
    Metadata,
    Parent,
    Plan,
    Reached,
    RedactedRow,
    RequestRecord,
    ResponseReference,
    Status,
    Terms,
    ToolPolicy,
)
from .usage import Cost, Totals, Usage

__all__ = [
    "ENDINGS",
    "KINDS",
    "TERMINALS",
    "AllowanceGranted",
    "AnswerRequested",
    "ApprovalRequested",
    "Archived",
    "ChildEnded",
    "DefinitionChange",
    "EffectSettled",
    "Entry",
    "ExtensionCommand",
    "ExtensionSet",
    "Foreign",
    "Forked",
    "GrantGiven",
    "Halted",
    "Laid",
    "MessageAdded",
    "NoteAdded",
    "NotesWithdrawn",
    "OperationEnded",
    "OperationPlanned",
    "OperationStarted",
    "PassedOn",
    "PrefixChanged",
    "QueueChanged",
    "Rebased",
    "Recovered",
    "Redacted",
    "RequestClosed",
    "RequestOpened",
    "Revived",
    "Rewritten",
    "RouteSelected",
    "SessionChanged",
    "SessionCreated",
    "SubmissionRefused",
    "ToolCalled",
    "TurnAborted",
    "TurnCompleted",
    "TurnEnded",
    "TurnEnding",
    "TurnFailed",
    "TurnLimited",
    "TurnStarted",
    "UncertainRequested",
    "decode",
    "encode",
]


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One immutable fact. ``seq`` is its place in the journal, ``number`` counts messages up to it, ``at`` is ms since 1970."""

    kind: ClassVar[str] = ""
    seq: int = 0
    number: int = 0
    at: int = 0


class SessionCreated(Entry, frozen=True, kw_only=True):
    """A session was created; nothing has happened in it yet. ``parent`` names the session whose child it is, if it is one."""

    kind = "session_created"
    session_id: str
    root: str
    agent: str = ""
    identity: Identity = Identity()
    title: str = ""
    labels: dict[str, str] = {}
    metadata: Metadata = Metadata()
    parent: Parent | None = None
    tools: ToolPolicy = ALL_TOOLS


class SessionChanged(Entry, frozen=True, kw_only=True):
    """A session's title, labels, metadata or tool policy was replaced; ``None`` is a part that didn't change."""

    kind = "session_changed"
    title: str | None = None
    labels: dict[str, str] | None = None
    metadata: Metadata | None = None
    tools: ToolPolicy | None = None
    submission: str = ""
    actor: str = ""


class TurnStarted(Entry, frozen=True, kw_only=True):
    """A message was accepted and a turn began; its id is ``t<seq>``. ``author`` and ``source`` are the message's.

    ``rejected`` is the digest of what a rejected message said and who sent it: it stands nowhere else.
    ``compacts``: no message was accepted, but a wish to compact the context. ``memory`` is the entry that holds what the turn's model calls
    are told that the session remembers, 0 if that is nothing.
    ``limits`` are the agent's for a turn, ``run`` those that came with the message, ``session`` the agent's for the whole session, of which
    earlier turns ``spent`` that much. ``resumes`` is the limited turn that this one goes on with, instead of a message, and ``carried``
    what was used in it.
    """

    kind = "turn_started"
    submission: str
    agent: str
    definition: str
    route: str = ""
    limits: Limits = Limits()
    terms: Terms = Terms()
    author: str = ""
    source: Source | None = None
    rejected: str = ""
    compacts: bool = False
    memory: int = 0
    run: Limits | None = None
    session: Limits | None = None
    spent: Amounts | None = None
    resumes: str = ""
    carried: Amounts | None = None

    @property
    def turn(self) -> str:
        return f"t{self.seq}"


class ToolCalled(TurnStarted, frozen=True, kw_only=True):
    """``author`` had a tool called outside of the conversation, and a turn without a model began; its id is ``s<seq>``.

    ``parts`` is the call. What it comes to stands in its receipt, as with a model's call, and the note behind that tells both.
    """

    kind = "tool_called"
    parts: tuple[Part, ...]

    @property
    def turn(self) -> str:
        return f"s{self.seq}"


class MessageAdded(Entry, frozen=True, kw_only=True):
    """A message joined the transcript.

    A user's stands here whole; an assistant's is the receipt of its model call; a tool message lists its receipts in call order, and
    holds what an extension put in the place of some of them. One that a person wrote in place of others, whatever its role, stands here
    whole too. ``revision`` is the transcript's up to and with it. ``turn`` is the turn that its sender named, ``source`` who sent it where
    no person did.
    """

    kind = "message"
    role: Role
    digest: str
    revision: str = ""
    parts: tuple[Part, ...] = ()
    receipt: int = 0
    responses: tuple[ResponseReference, ...] = ()
    submission: str = ""
    author: str = ""
    deliver: str = ""
    turn: str = ""
    reply: Quote | None = None
    source: Source | None = None

    def told(self, own: tuple[Part, ...], receipts: Mapping[int, tuple[Part, ...]]) -> tuple[Part, ...]:
        """What it says: ``own`` are the parts that stand here, ``receipts`` those of the entries that it names.

        Raises `KeyError` for one of these that is missing.
        """
        if self.receipt:
            return receipts[self.receipt]
        if not self.responses:
            return own
        said: list[Part] = []
        instead = iter(own)
        for item in self.responses:
            said += (next(instead),) if item.replaced else receipts[item.receipt]
        return tuple(said)


class OperationPlanned(Entry, frozen=True, kw_only=True):
    """An effect was decided on and waits for its start. ``arguments`` are those that an extension gave it instead of the model's."""

    kind = "operation_planned"
    operation: str
    plan: Plan
    arguments: dict[str, Any] | None = None
    extension: str = ""


class OperationStarted(Entry, frozen=True, kw_only=True):
    """An attempt is about to begin. ``plan`` is given if no entry planned it before, or if edited arguments changed it."""

    kind = "operation_started"
    operation: str
    attempt: int
    fence: int
    plan: Plan | None = None
    request: RequestRecord | None = None


class OperationEnded(Entry, frozen=True, kw_only=True):
    """A receipt: the outcome of an attempt. ``final``: its operation ended with it. Attempt 0 never started.

    ``parts`` is a model's answer, or the one response to a tool call. ``partial`` is text that was still being written.
    ``group`` is that of the route that answered; ``fallback`` is the route that the step goes on with instead. ``compact``: it goes on
    behind a compaction, since the provider found the request too long. ``archived``: models see
    only an excerpt of the response, from its first appearance on. ``cost`` is what a model call cost at the price of its day.
    ``unsent``: it ended before anything was sent to a model. ``spent`` is what a child used that ended by itself, its own children
    included.
    """

    kind = "operation_ended"
    operation: str
    attempt: int
    status: Status
    final: bool = True
    parts: tuple[Part, ...] = ()
    digest: str = ""
    finish: str = ""
    usage: Usage | None = None
    failure: Failure | None = None
    partial: str = ""
    retry_at: int = 0
    model: str = ""
    group: str = ""
    fallback: str = ""
    compact: bool = False
    archived: bool = False
    cost: Cost | None = None
    unsent: bool = False
    spent: Totals | None = None


class RequestOpened(Entry, tag_field="request", frozen=True, kw_only=True):
    """Only the outside can answer this. Unanswered at ``deadline`` (ms since 1970, 0 is never), it closes with ``default``."""

    kind = "request_opened"
    request_id: str
    operation: str
    deadline: int = 0
    default: Decision = "deny"


class ApprovalRequested(RequestOpened, tag="approval", frozen=True, kw_only=True):
    """A call may run only if somebody says so; ``match`` shows the earlier effect that it might repeat."""

    name: str
    call: str
    arguments: str
    match: EffectMatch | None = None
    reason: str = ""


class UncertainRequested(RequestOpened, tag="uncertain", frozen=True, kw_only=True):
    """Nobody here knows whether a call took effect; somebody has to say."""

    name: str
    call: str
    arguments: str
    attempt: int


class AnswerRequested(RequestOpened, tag="answer", frozen=True, kw_only=True):
    """The user is asked: by the answer whose message is ``message``, or by the call of the tool ``name``."""

    message: int = 0
    name: str = ""
    call: str = ""
    arguments: str = ""


class RequestClosed(Entry, frozen=True, kw_only=True):
    """A request was answered, reached its deadline, or ended with its turn."""

    kind = "request_closed"
    request_id: str
    operation: str
    decision: Decision
    by: Literal["answer", "deadline", "turn"] = "answer"
    arguments: dict[str, Any] | None = None
    arguments_digest: str = ""
    reason: str = ""
    actor: str = ""
    submission: str = ""


class TurnEnded(Entry, frozen=True, kw_only=True):
    """A turn is over, in exactly one of four ways. ``ran`` is how long it ran (ms), where its time is limited."""

    outcome: ClassVar[Ending]
    turn: str
    submission: str
    steps: int
    tool_calls: int = 0
    usage: Totals = Totals()
    reason: str = ""
    ran: int = 0

    @property
    def began(self) -> int:
        """The seq of the entry that the turn began with."""
        return int(self.turn[1:])


class TurnCompleted(TurnEnded, frozen=True, kw_only=True):
    """The model answered and asked for nothing more; ``output`` is the seq of the answer's message.

    Where a call in it ended the turn, ``call`` is that one's id and ``argument`` the argument that is the output, ``*`` all of them.
    """

    kind = "turn_completed"
    outcome = "completed"
    output: int = 0
    call: str = ""
    argument: str = ""


class TurnAborted(TurnEnded, frozen=True, kw_only=True):
    """It was stopped, or a restart ended it as its agent says. ``interrupt`` is the submission that asked, ``actor`` who sent it.

    ``extension`` is the one that stopped it.
    """

    kind = "turn_aborted"
    outcome = "aborted"
    interrupt: str = ""
    actor: str = ""
    extension: str = ""


class TurnFailed(TurnEnded, frozen=True, kw_only=True):
    """It could not go on."""

    kind = "turn_failed"
    outcome = "failed"
    failure: Failure


class TurnLimited(TurnEnded, frozen=True, kw_only=True):
    """It reached a limit: ``limit`` names it, ``reached`` has its scope and how much of it was used."""

    kind = "turn_limited"
    outcome = "limited"
    limit: str
    reached: Reached | None = None


class TurnEnding(Entry, frozen=True, kw_only=True):
    """A turn's end is decided; the agent's own code is told before it is recorded."""

    kind = "turn_ending"
    turn: str
    outcome: Ending
    reason: str = ""
    failure: Failure | None = None
    limit: str = ""
    reached: Reached | None = None
    interrupt: str = ""
    actor: str = ""
    extension: str = ""
    output: int = 0
    call: str = ""
    argument: str = ""


class AllowanceGranted(Entry, frozen=True, kw_only=True):
    """``drawn`` is what the running turn took from its owner's ``pool``; negative amounts are what it gave back because it waits.
    ``settled``: it gave back all that was left.
    """

    kind = "allowance_granted"
    pool: str
    drawn: Amounts = Amounts()
    settled: bool = False


class NoteAdded(Entry, frozen=True, kw_only=True):
    """Something that the model is told outside of the conversation. ``digest`` replaces a text that was redacted.

    ``extension`` said it, ``once`` for ever where it has such a key; ``continues``: the turn goes on with it instead of ending.
    With a ``receipt`` it tells what a call outside of the conversation came to; ``parts`` is what an extension put in that one's place.
    """

    kind = "note_added"
    text: str
    digest: str = ""
    operation: str = ""
    submission: str = ""
    actor: str = ""
    extension: str = ""
    once: str = ""
    continues: bool = False
    receipt: int = 0
    parts: tuple[Part, ...] = ()


class NotesWithdrawn(Entry, frozen=True, kw_only=True):
    """Notes that came with a message are withdrawn, because its turn failed before the model said anything."""

    kind = "notes_withdrawn"
    notes: tuple[int, ...]


class ExtensionSet(Entry, frozen=True, kw_only=True):
    """An extension keeps a value for the session, or drops it."""

    kind = "extension_set"
    extension: str
    key: str
    value: Any = None
    dropped: bool = False


class ExtensionCommand(Entry, frozen=True, kw_only=True):
    """An extension carried out one of its commands."""

    kind = "extension_command"
    extension: str
    command: str
    arguments: dict[str, Any] = {}
    submission: str = ""
    actor: str = ""


class QueueChanged(Entry, frozen=True, kw_only=True):
    """A waiting submission changed before it was delivered: another boundary, another content, or it is gone.

    ``content`` is the digest of what it says now, or said; ``by`` is the submission that asked, ``digest`` the digest of that.
    """

    kind = "queue_changed"
    submission: str
    change: Literal["promoted", "edited", "withdrawn"] = "promoted"
    deliver: str = ""
    content: str = ""
    by: str = ""
    digest: str = ""
    actor: str = ""


class RouteSelected(Entry, frozen=True, kw_only=True):
    """The route of the next model calls was chosen. Which model wrote the context is recorded separately."""

    kind = "route_selected"
    route: str
    submission: str = ""
    actor: str = ""


class PrefixChanged(Entry, frozen=True, kw_only=True):
    """What models see changed otherwise than by appending. Private parts of messages up to ``private_from`` are sent to nobody any more.

    A compaction left the notes in the receipt ``summary`` of ``operation`` for the messages before the position ``upto``, but for those at
    the positions in ``kept``. ``applied`` operations summarised it bit by bit; ``answers`` of the model are not shown any more.
    ``private``: what is still shown holds private parts that its owner's group may be sent.
    """

    kind = "prefix_changed"
    epoch: int
    reason: Literal["model_change", "rewrite", "compaction"]
    private_from: int
    private: bool = False
    operation: str = ""
    summary: int = 0
    upto: int = 0
    kept: tuple[tuple[int, int], ...] = ()
    applied: int = 0
    answers: int = 0


class GrantGiven(Entry, frozen=True, kw_only=True):
    """This very call may run without asking, for as long as the session lives; ``revoked`` takes that back."""

    kind = "grant_given"
    grant: str
    name: str
    arguments: str
    revoked: bool = False
    submission: str = ""
    actor: str = ""


class SubmissionRefused(Entry, frozen=True, kw_only=True):
    """A submission was consumed without effect. ``digest`` is that of what it said."""

    kind = "submission_refused"
    submission: str
    digest: str = ""
    failure: Failure
    actor: str = ""


class Recovered(Entry, frozen=True, kw_only=True):
    """A new holder took over in mid-turn, after all that it settled.

    ``receipts`` are those of the running step that it found: what they say is used, and nothing of it is done again.
    """

    kind = "recovered"
    turn: str
    fence: int
    attempts: tuple[Attempt, ...] = ()
    receipts: tuple[int, ...] = ()


class EffectSettled(Entry, frozen=True, kw_only=True):
    """The outcome of an uncertain effect is known now. ``receipt`` is the entry that said *uncertain*.

    ``archived`` is as in a receipt.
    """

    kind = "effect_settled"
    operation: str
    attempt: int
    receipt: int
    status: Literal["succeeded", "failed"]
    parts: tuple[Part, ...]
    digest: str
    archived: bool = False
    actor: str = ""
    submission: str = ""


class ChildEnded(Entry, frozen=True, kw_only=True):
    """A child that nobody waits for (any more) ended, and used ``spent``.

    ``parts`` is the response that was not asked for any more. What one in the background has to say is a message of its own instead.
    """

    kind = "child_ended"
    operation: str
    outcome: Ending
    spent: Totals
    reason: str = ""
    parts: tuple[Part, ...] = ()
    submission: str = ""


class PassedOn(Entry, frozen=True, kw_only=True):
    """What this session owed to others is in their inboxes, or can't be delivered any more."""

    kind = "passed_on"
    errands: tuple[Errand, ...]


class Archived(Entry, frozen=True, kw_only=True):
    """The session was archived: nothing runs in it and nothing can be sent to it, but it can still be read."""

    kind = "archived"
    reason: str = ""
    submission: str = ""
    actor: str = ""


class Revived(Entry, frozen=True, kw_only=True):
    """The session was taken out of the archive."""

    kind = "revived"
    reason: str = ""
    submission: str = ""
    actor: str = ""


class Halted(Entry, frozen=True, kw_only=True):
    """The session is stopped until it is repaired: nothing runs in it, and nothing changes it.

    ``problem`` is the damage that was found, empty if there was none; without ``actor``, whoever took the session up found it.
    ``released``: it was checked, nothing is wrong with it any more, and it goes on where it was. A session whose checkpoint could not be
    read has a release alone: when it was stopped, nothing could be written.
    """

    kind = "halted"
    reason: str = ""
    problem: str = ""
    released: bool = False
    submission: str = ""
    actor: str = ""


class Foreign(Entry, frozen=True, kw_only=True):
    """This came from elsewhere: from the system ``source``, and there from ``session`` with its chain at ``head``, if it had one.

    Of another system, the ``messages`` that follow; of perdure, all that stands before, which has a chain of its own here.
    """

    kind = "foreign"
    source: str
    session: str = ""
    head: str = ""
    messages: int = 0
    actor: str = ""


class DefinitionChange(Entry, frozen=True, kw_only=True):
    """A turn continues under another, compatible definition of its agent, or, after a handoff, under that of another ``agent``."""

    kind = "definition_changed"
    agent: str
    old: str
    new: str
    difference: tuple[str, ...] = ()
    terms: Terms = Terms()
    route: str = ""


class Rebased(Entry, frozen=True, kw_only=True):
    """Newer rules read the journal from here; ``checkpoint`` is what they start from."""

    kind = "rebased"
    old: int
    new: int
    checkpoint: dict[str, Any]


class Laid(Entry, frozen=True, kw_only=True):
    """A transcript that is laid out anew: ``pieces`` says which messages stand where, and later ones follow.

    The messages written with it have numbers up to ``tail`` and stand where the pieces say. ``revision`` is that of the whole. The
    messages at the positions in ``exact`` know their revision themselves; ``marks`` are (count, revision) of some beginnings of the rest.
    ``previous`` is the entry that laid it out before, 0 if none did.
    """

    pieces: tuple[Piece, ...]
    tail: int
    revision: str
    exact: tuple[tuple[int, int], ...] = ()
    marks: tuple[tuple[int, str], ...] = ()
    previous: int = 0
    reason: str = ""
    actor: str = ""

    @property
    def count(self) -> int:
        """How many messages are laid out."""
        return sum(map(len, self.pieces))


class Rewritten(Laid, frozen=True, kw_only=True):
    """The messages at positions ``[start, stop)`` were replaced. ``expected`` is the transcript's revision before.

    ``restored``: the others are all those of an earlier revision.
    """

    kind = "rewritten"
    expected: str
    start: int
    stop: int
    restored: bool = False
    submission: str = ""


class Forked(Laid, frozen=True, kw_only=True):
    """The session begins with the first ``cut`` messages of ``session``, as that stood at ``version`` with its hash chain at ``chain``.

    ``running``: a turn ran there, so that what was done in it since then belongs to the branch's past as well.
    """

    kind = "forked"
    session: str
    version: int
    chain: str
    cut: int
    running: bool = False
    route: str = ""
    owner: str = ""
    owner_group: str = ""
    private: bool = False
    private_from: int = 0


class Redacted(Entry, frozen=True, kw_only=True):
    """The content of earlier entries was removed permanently.

    ``positions`` and ``entries`` are what was asked for; ``rows`` are those and what belonged to them. ``title``, ``labels`` and
    ``metadata``: among them is what the session said of itself, so that it says nothing now. ``context``: among them are the
    notes that stood for the conversation's beginning, so that models see that again. ``memory``: what the session remembers may have come
    of it, so it remembers nothing now, and what is left will be looked through again.
    """

    kind = "redacted"
    rows: tuple[RedactedRow, ...]
    positions: tuple[int, ...] = ()
    entries: tuple[int, ...] = ()
    title: bool = False
    labels: bool = False
    metadata: bool = False
    context: bool = False
    memory: bool = False
    reason: str = ""
    actor: str = ""
    submission: str = ""


_ENTRIES: tuple[type[Entry], ...] = (
    SessionCreated,
    SessionChanged,
    TurnStarted,
    ToolCalled,
    MessageAdded,
    OperationPlanned,
    OperationStarted,
    OperationEnded,
    RequestClosed,
    TurnCompleted,
    TurnAborted,
    TurnFailed,
    TurnLimited,
    NoteAdded,
    NotesWithdrawn,
    QueueChanged,
    SubmissionRefused,
    Recovered,
    EffectSettled,
    DefinitionChange,
    Rebased,
    RouteSelected,
    PrefixChanged,
    GrantGiven,
    Rewritten,
    Forked,
    Redacted,
    Archived,
    Revived,
    Halted,
    TurnEnding,
    ExtensionSet,
    ExtensionCommand,
    Foreign,
    ChildEnded,
    PassedOn,
    AllowanceGranted,
)

KINDS: dict[str, Any] = {entry.kind: entry for entry in _ENTRIES} | {
    RequestOpened.kind: ApprovalRequested | UncertainRequested | AnswerRequested
}
"""Kind → what its body decodes to."""

ENDINGS: dict[Ending, type[TurnEnded]] = {entry.outcome: entry for entry in (TurnCompleted, TurnAborted, TurnFailed, TurnLimited)}
"""How a turn can end → the entry that says so."""

TERMINALS: tuple[str, ...] = tuple(entry.kind for entry in ENDINGS.values())
"""The kinds that end a turn."""

_set = msgspec.structs.force_setattr
_decoders: dict[str, msgspec.json.Decoder[Entry]] = {}


def encode(entry: Entry) -> bytes:
    """The canonical body of an entry, without the header that the journal's columns hold."""
    return canonical.encode(msgspec.structs.replace(entry, seq=0, number=0, at=0))


def decode(kind: str, body: bytes, seq: int, number: int, at: int) -> Entry:
    """An entry from its stored form.

    Raises `FormatUnknown` for a kind that this version doesn't have and `msgspec.ValidationError` for a body that doesn't fit its kind.
    """
    entry = (_decoders.get(kind) or _decoder(kind)).decode(body)
    # Written out: a long session has many entries.
    _set(entry, "seq", seq)
    _set(entry, "number", number)
    _set(entry, "at", at)
    return entry


def _decoder(kind: str) -> msgspec.json.Decoder[Entry]:
    """Made when the first entry of its kind is read: all of them at once take a tenth of the import."""
    if kind not in KINDS:
        raise FormatUnknown(f"the journal holds an entry of the unknown kind {kind!r}", hint="a newer perdure wrote it; upgrade this one")
    return _decoders.setdefault(kind, msgspec.json.Decoder(KINDS[kind]))


def shapes(kind: str) -> tuple[type[Entry], ...]:
    """The Python classes that entries of a kind can have."""
    shape = KINDS[kind]
    return get_args(shape) or (shape,)
