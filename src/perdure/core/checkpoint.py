"""The checkpoint, and how each entry changes it: ``reduce(evolve, journal) == checkpoint``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from . import canonical
from .context import READ_RESULT
from .entries import (
    ApprovalRequested,
    Archived,
    DefinitionChange,
    EffectSettled,
    Entry,
    ExtensionCommand,
    ExtensionSet,
    Foreign,
    Forked,
    GrantGiven,
    Halted,
    Hold,
    Identity,
    Laid,
    Limits,
    MessageAdded,
    Metadata,
    NoteAdded,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    Plan,
    PrefixChanged,
    QueueChanged,
    Rebased,
    Recovered,
    Redacted,
    RequestClosed,
    RequestOpened,
    Revived,
    Rewritten,
    RouteSelected,
    SessionChanged,
    SessionCreated,
    SubmissionRefused,
    TurnAborted,
    TurnCompleted,
    TurnEnding,
    TurnFailed,
    TurnLimited,
    TurnStarted,
    UncertainRequested,
)
from .errors import CheckpointTooLarge, NewerRules, StoreCorrupt
from .ids import once_key
from .messages import Part, RedactedPart, Source, StoredPart, ToolCall, is_private, title_of
from .transcript import EMPTY, chained
from .usage import Totals

__all__ = [
    "ABOUT_LIMIT",
    "CALLS_LIMIT",
    "EXTENSION_KEYS_LIMIT",
    "GRANTS_LIMIT",
    "ONCE_LIMIT",
    "RULES",
    "SIZE_LIMIT",
    "STEPS_LIMIT",
    "About",
    "Call",
    "Checkpoint",
    "Compacted",
    "Grant",
    "Operation",
    "Phase",
    "Place",
    "Turn",
    "about",
    "about_size",
    "calls_in",
    "decode",
    "due",
    "encode",
    "evolve",
    "fold",
    "is_archived",
    "phase",
    "reviewing",
    "startable",
]

RULES = 1
"""Goes up whenever `evolve` treats an existing entry differently."""

SIZE_LIMIT = 48 * 1024
"""The longest checkpoint (bytes)."""

ABOUT_LIMIT = 8 * 1024
"""The most that a session's title, labels and identity may have together (bytes)."""

GRANTS_LIMIT = 64
"""The most calls that one session lets run without asking."""

CALLS_LIMIT = 128
"""The most tool calls of one step."""

STEPS_LIMIT = 64
"""The most that extensions may do outside in one step."""

EXTENSION_KEYS_LIMIT = 64
"""The most values that extensions may keep in one session."""

ONCE_LIMIT = 256
"""The most guidance that is given once in one session."""

Phase: TypeAlias = Literal["idle", "model", "tools", "waiting", "completing", "archived", "halted"]
OperationStatus: TypeAlias = Literal["planned", "started", "ready", "unknown", "asking", "ended"]


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the checkpoint."""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A tool call that the model asked for and nobody planned yet."""

    id: str
    name: str


class Operation(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One effect of the running step. A list in the checkpoint: a step may have `CALLS_LIMIT` of them, in whatever state.

    ``ready``: an attempt ended and the next may begin, not before ``not_before``. ``unknown``: nobody knows what became of the last
    attempt, and its tool can tell. ``asking``: a person is asked. ``restarts`` and ``failures`` count attempts that ended so and were not
    the last. ``request`` is the open request's id, ``receipt`` the entry that
    holds the result so far, ``response`` that result's digest, ``archived`` whether models see only an excerpt of it, ``edited`` the
    decision that replaced the arguments. Of the plan of a call that ended only kind, name and call are left.
    """

    id: str
    plan: Plan
    status: OperationStatus = "planned"
    attempt: int = 0
    fence: int = 0
    restarts: int = 0
    failures: int = 0
    not_before: int = 0
    request: str = ""
    deadline: int = 0
    default: str = ""
    receipt: int = 0
    response: str = ""
    edited: int = 0
    archived: bool = False


class Grant(_State, frozen=True, kw_only=True):
    """A call that may run without asking: this tool with these arguments."""

    id: str
    name: str
    arguments: str


class Compacted(_State, frozen=True, kw_only=True):
    """Where the context begins: the entry ``base`` says what stands for the messages before the position ``upto``."""

    base: int
    upto: int


class Turn(_State, frozen=True, kw_only=True):
    """The running turn.

    ``author`` and ``source`` sent the message that began it. ``unplanned`` are calls whose policy has not been asked; ``answer`` is the
    receipt of the last model call. ``continued``: an extension had it go on once instead of ending. ``ending`` is the entry that says
    how it will end.
    ``compacts``: it has nothing to do yet but compact the context. ``writer`` is the route that writes notes instead of one that gave up.
    ``squeeze``: the provider found the running step's request too long; a compaction is ``wanted``, or ``done`` already.
    """

    id: str
    submission: str
    agent: str
    definition: str
    limits: Limits
    started: int
    archive: int = 0
    step: int = 0
    ordinal: int = 0
    tool_calls: int = 0
    usage: Totals = Totals()
    operations: tuple[Operation, ...] = ()
    unplanned: tuple[Call, ...] = ()
    completing: bool = False
    answer: int = 0
    output: int = 0
    fallback: str = ""
    author: str = ""
    source: Source | None = None
    holds: tuple[Hold, ...] = ()
    continued: bool = False
    ending: int = 0
    compacts: bool = False
    writer: str = ""
    squeeze: Literal["", "wanted", "done"] = ""

    def operation(self, identity: str) -> Operation | None:
        """An operation of the running step."""
        for item in self.operations:
            if item.id == identity:
                return item
        return None

    @property
    def began(self) -> int:
        """The seq of the entry that the turn began with."""
        return int(self.id[1:])

    def next_id(self, offset: int = 0) -> str:
        """The id of the operation that enters the running step next, or ``offset`` after it."""
        return f"{self.id}.{self.step}.{self.ordinal + offset}"

    @property
    def model(self) -> Operation | None:
        """The running step's model call that has not ended."""
        for item in self.operations:
            if item.plan.kind == "model" and item.status != "ended":
                return item
        return None

    @property
    def compactions(self) -> tuple[Operation, ...]:
        """The running step's compactions that no entry has applied yet: each summarises what the one before left, and the last may run."""
        return tuple(item for item in self.operations if item.plan.kind == "compaction")

    @property
    def tools(self) -> tuple[Operation, ...]:
        """The running step's tool calls, in call order."""
        return tuple([item for item in self.operations if item.plan.kind == "tool"])

    @property
    def steps(self) -> tuple[Operation, ...]:
        """What extensions do, or did, outside in the running step."""
        return tuple(item for item in self.operations if item.plan.kind == "step")

    @property
    def requests(self) -> tuple[Operation, ...]:
        """The operations that wait for an answer."""
        return tuple([item for item in self.operations if item.request])


class Place(_State, frozen=True, kw_only=True):
    """Where the transcript's messages stand: ``count`` as the entry ``base`` says, then this session's with numbers beyond ``tail``."""

    base: int = 0
    count: int = 0
    tail: int = 0


class Checkpoint(_State, frozen=True, kw_only=True):
    """A session's state: ids, counters and references, never content.

    ``revision`` names the transcript and ``context`` what models see, as chains over digests; ``epoch`` counts changes of its prefix.
    ``route`` is the selected one; ``owner`` and ``owner_group`` are those of the last accepted output. ``private``: the context holds
    private parts that its owner's group may be sent; those of the first ``private_from`` messages are sent to nobody. ``compacted`` says
    what models see instead of the conversation's beginning, ``compactions`` counts how often that was decided. ``input_tokens`` is what
    the last call reported, 0 if that is unknown or the prefix changed since.
    ``extensions`` says for each extension where the values stand that it keeps; ``once`` are the keys of guidance that was given.
    """

    rules: int = 1  # never RULES: what is not written means the first rules, in every version
    session_id: str = ""
    root: str = ""
    agent: str = ""
    identity: Identity = Identity()
    title: str = ""
    labels: dict[str, str] = {}
    metadata: Metadata = Metadata()
    version: int = 0
    number: int = 0
    at: int = 0
    created: int = 0
    transcript: Place = Place()
    revision: str = EMPTY
    context: str = EMPTY
    epoch: int = 0
    route: str = ""
    owner: str = ""
    owner_group: str = ""
    private: bool = False
    private_from: int = 0
    compacted: Compacted | None = None
    compactions: int = 0
    input_tokens: int = 0
    grants: tuple[Grant, ...] = ()
    extensions: dict[str, dict[str, int]] = {}
    once: tuple[str, ...] = ()
    turns: int = 0
    usage: Totals = Totals()
    archived: bool = False
    halted: bool = False
    turn: Turn | None = None

    def operation(self, identity: str) -> Operation | None:
        """An operation of the running step, if there is one."""
        return None if self.turn is None else self.turn.operation(identity)

    @property
    def messages(self) -> int:
        """How many messages the transcript has."""
        return self.transcript.count + max(0, self.number - self.transcript.tail)

    @property
    def requests(self) -> tuple[Operation, ...]:
        """The operations that wait for an answer."""
        return () if self.turn is None else self.turn.requests


_decoder: msgspec.json.Decoder[Checkpoint] = msgspec.json.Decoder(Checkpoint)


def encode(checkpoint: Checkpoint) -> bytes:
    """Canonical bytes. Raises `CheckpointTooLarge` beyond `SIZE_LIMIT`."""
    data = canonical.encode(checkpoint)
    if len(data) > SIZE_LIMIT:
        raise CheckpointTooLarge(
            f"the session's checkpoint would have {len(data)} bytes; at most {SIZE_LIMIT} are kept",
            hint="ask for fewer or shorter-named tool calls in one step",
            limit="checkpoint",
        )
    return data


def decode(data: bytes) -> Checkpoint:
    """A checkpoint from its bytes. Raises `NewerRules` if newer rules wrote it, `StoreCorrupt` if it can't be one."""
    try:
        rules = msgspec.json.decode(data, type=_RulesOnly).rules
        if rules > RULES:
            raise NewerRules(
                f"the session follows rules {rules}; this process knows {RULES}", hint="upgrade perdure here, or go on where it is newer"
            )
        checkpoint = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"the checkpoint can't be read: {error}", hint="run `perdure verify`") from error
    turn = checkpoint.turn
    if turn is not None and turn.completing and (turn.unplanned or any(item.plan.kind != "step" for item in turn.operations)):
        raise StoreCorrupt(f"the turn {turn.id} is completing while something of it is open", hint="run `perdure verify`")
    return checkpoint


class _RulesOnly(msgspec.Struct):
    rules: int = 1


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a session says about itself, read from a checkpoint whatever rules it follows."""

    identity: Identity = Identity()
    metadata: Metadata = Metadata()
    route: str = ""


_about_decoder: msgspec.json.Decoder[About] = msgspec.json.Decoder(About)


def about(data: bytes) -> About:
    """That part of a checkpoint's bytes. Raises `StoreCorrupt` if it can't be one."""
    try:
        return _about_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"the checkpoint can't be read: {error}", hint="run `perdure verify`") from error


def about_size(identity: Identity, labels: dict[str, str], title: str) -> int:
    """What counts against `ABOUT_LIMIT`."""
    return len(canonical.encode([identity, labels, title]))


# ------------------------------------------------------------------------------------------------------------------ views


def phase(checkpoint: Checkpoint) -> Phase:
    """Where the session stands; derived, never stored."""
    turn = checkpoint.turn
    if checkpoint.halted:
        return "halted"
    if checkpoint.archived:
        return "archived"
    if turn is None:
        return "idle"
    if turn.completing:
        return "completing"
    if turn.unplanned:
        return "tools"
    tools = turn.tools
    if tools and (any(item.status in ("started", "unknown") for item in tools) or startable(turn) or reviewing(turn)):
        return "tools"
    if turn.requests:
        return "waiting"
    return "model"


def startable(turn: Turn) -> tuple[Operation, ...]:
    """The tool calls that may start now: none while an approval is open, an exclusive one only alone, the others not past one."""
    tools = turn.tools
    if turn.unplanned or any(item.request and item.status != "asking" for item in tools):
        return ()
    found: list[Operation] = []
    for index, item in enumerate(tools):
        if item.status in ("planned", "ready") and not item.plan.exclusive:
            found.append(item)
        elif item.plan.exclusive and item.status != "ended":
            if item.status in ("planned", "ready") and all(earlier.status == "ended" for earlier in tools[:index]):
                found.append(item)
            break
    return tuple(found)


def reviewing(turn: Turn) -> bool:
    """Whether every call of the step has its result, and the message that tells them waits for the agent's own code."""
    tools = turn.tools
    return bool(tools) and not turn.unplanned and all(item.status == "ended" for item in tools)


def due(checkpoint: Checkpoint) -> tuple[Operation, ...]:
    """What should be running now: started attempts, and for those of status ``unknown`` their tool's ``reconcile``.

    What extensions do outside is not among it: their own code does it, when it is asked again.
    """
    turn = checkpoint.turn
    if turn is None:
        return ()
    return tuple([item for item in turn.operations if item.status in ("started", "unknown") and item.plan.kind != "step"])


def is_archived(turn: Turn | None, tool: str, size: int) -> bool:
    """Whether models see only an excerpt of a response of ``size`` bytes. What reads archived results is never archived itself."""
    return turn is not None and 0 < turn.archive < size and tool != READ_RESULT


def calls_in(parts: Iterable[Part]) -> tuple[Call, ...]:
    """The tool calls that an answer asks for."""
    found: list[Call] = []
    for part in parts:
        match part:
            case ToolCall():
                found.append(Call(part.id, part.name))
            case StoredPart() | RedactedPart(was="tool_call") if part.call:
                found.append(Call(part.call, part.name))
    return tuple(found)


# ----------------------------------------------------------------------------------------------------------------- evolve


def evolve(checkpoint: Checkpoint, entry: Entry) -> Checkpoint:
    """The checkpoint after an entry. Total on decoded entries that `decide` can write; it decides nothing."""
    changed: Checkpoint = _EVOLVE[type(entry)](checkpoint, entry)
    return replace(changed, version=entry.seq, number=entry.number, at=entry.at)


def fold(entries: Iterable[Entry], start: Checkpoint | None = None) -> Checkpoint:
    """The checkpoint that a journal adds up to."""
    checkpoint = start or Checkpoint()
    for entry in entries:
        checkpoint = evolve(checkpoint, entry)
    return checkpoint


def _with_operation(checkpoint: Checkpoint, identity: str, **changes: Any) -> Checkpoint:
    turn = checkpoint.turn
    if turn is None:
        return checkpoint
    operations = tuple([replace(item, **changes) if item.id == identity else item for item in turn.operations])
    return replace(checkpoint, turn=replace(turn, operations=operations))


def _session_created(checkpoint: Checkpoint, entry: SessionCreated) -> Checkpoint:
    return replace(
        checkpoint,
        rules=RULES,
        session_id=entry.session_id,
        root=entry.root,
        agent=entry.agent,
        identity=entry.identity,
        title=entry.title,
        labels=entry.labels,
        metadata=entry.metadata,
        created=entry.at,
    )


def _session_changed(checkpoint: Checkpoint, entry: SessionChanged) -> Checkpoint:
    return replace(
        checkpoint,
        title=checkpoint.title if entry.title is None else entry.title,
        labels=checkpoint.labels if entry.labels is None else entry.labels,
        metadata=checkpoint.metadata if entry.metadata is None else entry.metadata,
    )


def _turn_started(checkpoint: Checkpoint, entry: TurnStarted) -> Checkpoint:
    turn = Turn(
        id=entry.turn,
        submission=entry.submission,
        agent=entry.agent,
        definition=entry.definition,
        limits=entry.limits,
        started=entry.at,
        archive=entry.archive,
        author=entry.author,
        source=entry.source,
        holds=entry.holds,
        compacts=entry.compacts,
    )
    return replace(checkpoint, turn=turn, agent=entry.agent, route=checkpoint.route or entry.route)


def _message(checkpoint: Checkpoint, entry: MessageAdded) -> Checkpoint:
    if entry.number <= checkpoint.transcript.tail:
        # It stands where the entry before it says.
        return checkpoint
    turn, seen = checkpoint.turn, entry.digest
    if turn is not None:
        if entry.role == "user":
            turn = replace(turn, completing=False)
        elif entry.role == "tool":
            if cut := [item.plan.call for item in turn.tools if item.archived]:
                # What models see differs from what people see.
                seen = canonical.short_digest(entry.digest, *cut)
            turn = replace(turn, operations=(), step=turn.step + 1, ordinal=0, squeeze="")
        elif turn.unplanned:
            turn = replace(turn, output=entry.seq)
        else:
            turn = replace(turn, output=entry.seq, completing=True, operations=(), step=turn.step + 1, ordinal=0, squeeze="")
    return replace(
        checkpoint,
        revision=chained(checkpoint.revision, entry.digest),
        context=chained(checkpoint.context, seen),
        turn=turn,
        # The first message that began a turn names the session; one that was rejected leaves nothing.
        title=checkpoint.title or (title_of(entry.parts) if entry.number == 1 and entry.source is None else ""),
    )


def _planned(checkpoint: Checkpoint, entry: OperationPlanned) -> Checkpoint:
    edited = 0 if entry.arguments is None else entry.seq
    return _add_operation(checkpoint, Operation(id=entry.operation, plan=entry.plan, edited=edited))


def _started(checkpoint: Checkpoint, entry: OperationStarted) -> Checkpoint:
    if (planned := checkpoint.operation(entry.operation)) is not None:
        plan = entry.plan or planned.plan
        return _with_operation(
            checkpoint, entry.operation, plan=plan, status="started", attempt=entry.attempt, fence=entry.fence, not_before=0
        )
    if entry.plan is not None:
        operation = Operation(id=entry.operation, plan=entry.plan, status="started", attempt=entry.attempt, fence=entry.fence)
        return _add_operation(checkpoint, operation)
    return checkpoint


def _add_operation(checkpoint: Checkpoint, operation: Operation) -> Checkpoint:
    turn = checkpoint.turn
    if turn is None:
        return checkpoint
    is_tool = operation.plan.kind == "tool"
    return replace(
        checkpoint,
        turn=replace(
            turn,
            operations=(*turn.operations, operation),
            ordinal=turn.ordinal + (operation.plan.kind != "step"),
            tool_calls=turn.tool_calls + is_tool,
            unplanned=tuple(call for call in turn.unplanned if call.id != operation.plan.call),
        ),
    )


def _ended(checkpoint: Checkpoint, entry: OperationEnded) -> Checkpoint:
    turn, operation = checkpoint.turn, checkpoint.operation(entry.operation)
    if turn is None or operation is None:
        return checkpoint
    if operation.plan.kind in ("model", "compaction"):
        died = entry.failure is not None and entry.failure.code == "crash_loop"
        if entry.attempt and (entry.usage is not None or entry.partial or entry.finish or entry.status != "failed" or died):
            turn = replace(turn, usage=turn.usage.plus(entry.usage))
            checkpoint = replace(checkpoint, usage=checkpoint.usage.plus(entry.usage))
        if operation.plan.kind == "compaction":
            if entry.final and entry.status != "succeeded":
                left = tuple(item for item in turn.operations if item.id != operation.id)
                return replace(checkpoint, turn=replace(turn, operations=left, writer=entry.fallback or turn.writer))
        elif entry.status == "succeeded":
            turn = replace(turn, unplanned=calls_in(entry.parts), answer=entry.seq)
            private = checkpoint.private or any(is_private(part) for part in entry.parts)
            used = (entry.usage.input_tokens if entry.usage is not None else None) or 0
            checkpoint = replace(checkpoint, owner=operation.plan.name, owner_group=entry.group, private=private, input_tokens=used)
        elif entry.fallback:
            turn = replace(turn, fallback=entry.fallback)
        elif entry.compact:
            turn = replace(turn, squeeze="wanted")
        checkpoint = replace(checkpoint, turn=turn)
    lost = not entry.final and entry.failure is not None and entry.failure.code == "restart"
    failed = not entry.final and (entry.status == "failed" or (entry.failure is not None and entry.failure.code == "not_done"))
    changes: dict[str, Any] = {"restarts": operation.restarts + lost, "failures": operation.failures + failed}
    if entry.final:
        changes |= _end(operation.plan, entry)
    elif entry.status == "uncertain" and operation.plan.kind == "tool":
        changes |= {"status": "unknown", "receipt": entry.seq}
    else:
        changes |= {"status": "ready", "not_before": entry.retry_at}
    return _with_operation(checkpoint, operation.id, **changes)


def _end(plan: Plan, entry: OperationEnded | EffectSettled) -> dict[str, Any]:
    """What an operation becomes with its last receipt."""
    left = Plan(kind=plan.kind, name=plan.name, call=plan.call, upto=plan.upto)
    return {"status": "ended", "receipt": entry.seq, "response": entry.digest, "archived": entry.archived, "plan": left}


def _request_opened(checkpoint: Checkpoint, entry: RequestOpened) -> Checkpoint:
    changes: dict[str, Any] = {"request": entry.request_id, "deadline": entry.deadline, "default": entry.default}
    operation = checkpoint.operation(entry.operation)
    if isinstance(entry, UncertainRequested):
        changes["status"] = "asking"
    elif isinstance(entry, ApprovalRequested) and entry.match is not None and operation is not None:
        changes["plan"] = replace(operation.plan, match=entry.match)
    return _with_operation(checkpoint, entry.operation, **changes)


def _request_closed(checkpoint: Checkpoint, entry: RequestClosed) -> Checkpoint:
    operation = checkpoint.operation(entry.operation)
    if operation is None:
        return checkpoint
    changes: dict[str, Any] = {"request": "", "deadline": 0, "default": ""}
    if entry.arguments is not None:
        changes |= {"edited": entry.seq, "plan": replace(operation.plan, arguments=entry.arguments_digest)}
    if entry.decision == "retry":
        changes["status"] = "ready"
    return _with_operation(checkpoint, operation.id, **changes)


def _settled(checkpoint: Checkpoint, entry: EffectSettled) -> Checkpoint:
    operation = checkpoint.operation(entry.operation)
    return checkpoint if operation is None else _with_operation(checkpoint, operation.id, **_end(operation.plan, entry))


def _recovered(checkpoint: Checkpoint, entry: Recovered) -> Checkpoint:
    for attempt in entry.attempts:
        operation = checkpoint.operation(attempt.operation)
        if attempt.status == "open" and operation is not None:
            restarts = operation.restarts + (operation.status == "started")
            checkpoint = _with_operation(checkpoint, operation.id, status="unknown", restarts=restarts)
    return checkpoint


def _note(checkpoint: Checkpoint, entry: NoteAdded) -> Checkpoint:
    turn, once = checkpoint.turn, checkpoint.once
    if entry.continues and turn is not None:
        turn = replace(turn, completing=False, continued=True, operations=())
    if entry.once:
        once = (*once, once_key(entry.extension, entry.once))
    context = chained(checkpoint.context, entry.digest or canonical.digest(entry.text.encode()))
    return replace(checkpoint, context=context, turn=turn, once=once)


def _turn_ending(checkpoint: Checkpoint, entry: TurnEnding) -> Checkpoint:
    turn = checkpoint.turn
    if turn is None:
        return checkpoint
    return replace(checkpoint, turn=replace(turn, completing=True, ending=entry.seq, operations=(), unplanned=()))


def _extension_set(checkpoint: Checkpoint, entry: ExtensionSet) -> Checkpoint:
    kept = {key: seq for key, seq in checkpoint.extensions.get(entry.extension, {}).items() if key != entry.key}
    if not entry.dropped:
        kept[entry.key] = entry.seq
    extensions = {name: values for name, values in checkpoint.extensions.items() if name != entry.extension}
    if kept:
        extensions[entry.extension] = kept
    return replace(checkpoint, extensions=extensions)


def _turn_ended(checkpoint: Checkpoint, entry: Entry) -> Checkpoint:
    return replace(checkpoint, turn=None, turns=checkpoint.turns + 1)


def _redefined(checkpoint: Checkpoint, entry: DefinitionChange) -> Checkpoint:
    turn = checkpoint.turn
    if turn is None:
        return checkpoint
    return replace(checkpoint, turn=replace(turn, definition=entry.new, archive=entry.archive, holds=entry.holds))


def _rebased(checkpoint: Checkpoint, entry: Rebased) -> Checkpoint:
    return replace(msgspec.convert(entry.checkpoint, Checkpoint), rules=entry.new)


def _route_selected(checkpoint: Checkpoint, entry: RouteSelected) -> Checkpoint:
    turn = checkpoint.turn
    return replace(checkpoint, route=entry.route, turn=turn and replace(turn, fallback=""))


def _prefix_changed(checkpoint: Checkpoint, entry: PrefixChanged) -> Checkpoint:
    private = entry.private or (checkpoint.private and entry.reason == "rewrite")
    changed = replace(checkpoint, epoch=entry.epoch, private_from=entry.private_from, private=private, input_tokens=0)
    turn = checkpoint.turn
    if entry.reason != "compaction" or turn is None:
        return changed
    turn = replace(
        turn,
        operations=tuple(item for item in turn.operations if item.plan.kind != "compaction"),
        completing=turn.compacts,
        compacts=False,
        squeeze="done" if turn.squeeze else "",
    )
    seen = canonical.short_digest(entry.summary, entry.upto, *(place for kept in entry.kept for place in kept))
    return replace(
        changed,
        context=chained(checkpoint.context, seen),
        compacted=Compacted(base=entry.seq, upto=entry.upto),
        compactions=checkpoint.compactions + entry.applied,
        turn=turn,
    )


def _granted(checkpoint: Checkpoint, entry: GrantGiven) -> Checkpoint:
    others = tuple(grant for grant in checkpoint.grants if grant.id != entry.grant)
    given = () if entry.revoked else (Grant(id=entry.grant, name=entry.name, arguments=entry.arguments),)
    return replace(checkpoint, grants=others + given)


def _laid(checkpoint: Checkpoint, entry: Laid) -> Checkpoint:
    # What is encoded leaves a default out only where it is the very same object.
    revision = EMPTY if entry.revision == EMPTY else entry.revision
    place = Place(base=entry.seq, count=entry.count, tail=entry.tail)
    return replace(checkpoint, transcript=place, revision=revision, context=revision)


def _rewritten(checkpoint: Checkpoint, entry: Rewritten) -> Checkpoint:
    laid = _laid(checkpoint, entry)
    # Notes go on standing for what they summarise, unless that is what was changed.
    stands = checkpoint.compacted is not None and entry.start >= checkpoint.compacted.upto
    return replace(laid, context=chained(checkpoint.context, entry.revision)) if stands else replace(laid, compacted=None)


def _forked(checkpoint: Checkpoint, entry: Forked) -> Checkpoint:
    return replace(
        _laid(checkpoint, entry),
        route=entry.route,
        owner=entry.owner,
        owner_group=entry.owner_group,
        private=entry.private,
        private_from=entry.private_from,
    )


def _redacted(checkpoint: Checkpoint, entry: Redacted) -> Checkpoint:
    if entry.title:
        checkpoint = replace(checkpoint, title="")
    return replace(checkpoint, compacted=None, context=checkpoint.revision) if entry.context else checkpoint


def _archived(checkpoint: Checkpoint, entry: Archived | Revived) -> Checkpoint:
    return replace(checkpoint, archived=isinstance(entry, Archived))


def _halted(checkpoint: Checkpoint, entry: Halted) -> Checkpoint:
    return replace(checkpoint, halted=not entry.released)


def _unchanged(checkpoint: Checkpoint, entry: Entry) -> Checkpoint:
    return checkpoint


_EVOLVE: dict[type[Entry], Callable[[Checkpoint, Any], Checkpoint]] = {
    SessionCreated: _session_created,
    SessionChanged: _session_changed,
    TurnStarted: _turn_started,
    MessageAdded: _message,
    OperationPlanned: _planned,
    OperationStarted: _started,
    OperationEnded: _ended,
    ApprovalRequested: _request_opened,
    UncertainRequested: _request_opened,
    RequestClosed: _request_closed,
    EffectSettled: _settled,
    TurnCompleted: _turn_ended,
    TurnAborted: _turn_ended,
    TurnFailed: _turn_ended,
    TurnLimited: _turn_ended,
    NoteAdded: _note,
    QueueChanged: _unchanged,
    SubmissionRefused: _unchanged,
    Recovered: _recovered,
    DefinitionChange: _redefined,
    Rebased: _rebased,
    RouteSelected: _route_selected,
    PrefixChanged: _prefix_changed,
    GrantGiven: _granted,
    Rewritten: _rewritten,
    Forked: _forked,
    Redacted: _redacted,
    Foreign: _unchanged,
    Archived: _archived,
    Revived: _archived,
    Halted: _halted,
    TurnEnding: _turn_ending,
    ExtensionSet: _extension_set,
    ExtensionCommand: _unchanged,
}
