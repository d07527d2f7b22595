"""The checkpoint: what a session's journal adds up to."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from . import canonical
from .errors import CheckpointTooLarge, NewerRules, StoreCorrupt
from .messages import Source
from .records import ALL_TOOLS, CALL_KINDS, Amounts, Errand, Identity, Limits, Metadata, Parent, Plan, Terms, ToolPolicy
from .transcript import EMPTY
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
    "Allowance",
    "Behind",
    "Call",
    "Checkpoint",
    "Compacted",
    "Grant",
    "Limited",
    "Operation",
    "Phase",
    "Place",
    "Turn",
    "about",
    "about_size",
    "decode",
    "encode",
]

RULES = 1
"""Goes up whenever `evolve` treats an existing entry differently."""

SIZE_LIMIT = 48 * 1024
"""The longest checkpoint (bytes)."""

ABOUT_LIMIT = 8 * 1024
"""The most that a session's title, labels, identity and tool policy may have together (bytes)."""

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
OperationStatus: TypeAlias = Literal["planned", "started", "ready", "unknown", "asking", "awaiting", "ended"]


class _State(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the checkpoint."""


class Call(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A tool call that the model asked for and nobody planned yet."""

    id: str
    name: str


class Operation(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One effect of the running step. A list in the checkpoint: a step may have `CALLS_LIMIT` of them, in whatever state.

    ``ready``: an attempt ended and the next may begin, not before ``not_before``. ``unknown``: nobody knows what became of the last
    attempt, and its tool can tell. ``asking``: a person is asked. ``awaiting``: another session works on it, or its time is to come, and no
    process is needed meanwhile. ``restarts`` and ``failures`` count attempts that ended so and were not
    the last. ``request`` is the open request's id, ``receipt`` the entry that
    holds the result so far, ``response`` that result's digest, ``archived`` whether models see only an excerpt of it, ``edited`` the
    decision that replaced the arguments. Of the plan of a call that ended only kind, name and call are left, ``ends`` if it ended the
    turn, and ``until`` of a step that was a sleep.
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

    @property
    def is_question(self) -> bool:
        """Whether the user is asked, rather than anything done."""
        return self.plan.kind == "ask" or self.plan.asks


class Behind(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An operation that called for a child which nobody waits for, and the child's agent."""

    operation: str
    agent: str


class Grant(_State, frozen=True, kw_only=True):
    """A call that may run without asking: this tool with these arguments."""

    id: str
    name: str
    arguments: str


class Compacted(_State, frozen=True, kw_only=True):
    """Where the context begins: the entry ``base`` says what stands for the messages before the position ``upto``."""

    base: int
    upto: int


class Allowance(_State, frozen=True, kw_only=True):
    """What the running turn drew from its owner's ``pool``. ``base`` is what it had used before it drew anything."""

    pool: str
    drawn: Amounts
    base: Amounts = Amounts()


class Limited(_State, frozen=True, kw_only=True):
    """The last turn reached a limit, and may be gone on with; ``spent`` is what it used, with what it had carried on itself."""

    turn: str
    spent: Amounts


class Turn(_State, frozen=True, kw_only=True):
    """The running turn.

    ``author`` and ``source`` sent the message that began it. ``unplanned`` are calls whose policy has not been asked; ``answer`` is the
    receipt of the last model call. ``continued``: an extension had it go on once instead of ending. ``ending`` is the entry that says
    how it will end.
    ``compacts``: it has nothing to do yet but compact the context. ``calls``: all it does is one call that somebody wants outside of the
    conversation. ``notes`` came with the message. ``writer`` is the route that writes notes instead of one that gave up.
    ``children`` counts the agents that it called, ``handoffs`` how often it was handed over; ``transfer`` is who takes it over next.
    ``squeeze``: the provider found the running step's request too long; a compaction is ``wanted``, or ``done`` already.
    ``call`` of the answer ``output`` ended it, with this ``argument``. ``refused``: the last answer is a refusal that asked for calls;
    once they are answered, the turn ends with it.
    ``memory`` is the entry that holds what its model calls are told that the session remembers.
    ``limits`` are its agent's for each turn, ``run`` those of its message, ``session`` its agent's for the whole session. ``ran`` is how
    long it ran (ms), if anybody wants to know. ``others`` is what its children used of ``usage``. ``carried`` is what the limited turn used
    that it goes on with.
    """

    id: str
    submission: str
    agent: str
    definition: str
    limits: Limits
    started: int
    terms: Terms = Terms()
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
    continued: bool = False
    ending: int = 0
    compacts: bool = False
    calls: bool = False
    notes: tuple[int, ...] = ()
    writer: str = ""
    squeeze: Literal["", "wanted", "done"] = ""
    refused: bool = False
    call: str = ""
    argument: str = ""
    memory: int = 0
    children: int = 0
    handoffs: int = 0
    transfer: str = ""
    run: Limits | None = None
    session: Limits | None = None
    ran: int = 0
    others: Totals | None = None
    carried: Amounts | None = None
    allowance: Allowance | None = None

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
    def candidate(self) -> Operation | None:
        """The latest answer that waits until it is known to be what it has to be."""
        if self.unplanned or not self.operations or "output" not in self.terms.holds or self.tools:
            return None
        return next((item for item in reversed(self.operations) if item.plan.kind in ("model", "repair") and item.response), None)

    @property
    def repair(self) -> Operation | None:
        """The correction of an answer that has not ended."""
        return next((item for item in self.operations if item.plan.kind == "repair" and item.status != "ended"), None)

    @property
    def repaired(self) -> int:
        """How often the running step's answer was corrected."""
        return sum(item.plan.kind == "repair" and bool(item.response) for item in self.operations)

    @property
    def compactions(self) -> tuple[Operation, ...]:
        """The running step's compactions that no entry has applied yet: each summarises what the one before left, and the last may run."""
        return tuple([item for item in self.operations if item.plan.kind == "compaction"])

    @property
    def extraction(self) -> Operation | None:
        """The running step's search for something to remember, ended or not."""
        for item in reversed(self.operations):
            if item.plan.kind == "memory":
                return item
        return None

    @property
    def tools(self) -> tuple[Operation, ...]:
        """What the running step's calls became, in call order."""
        return tuple([item for item in self.operations if item.plan.kind in CALL_KINDS])

    @property
    def awaiting(self) -> tuple[Operation, ...]:
        """The calls that other sessions work on, and those whose time is to come."""
        return tuple([item for item in self.operations if item.status == "awaiting"])

    @property
    def deadlines(self) -> tuple[int, ...]:
        """The moments at which something closes by itself."""
        return tuple([item.deadline for item in self.operations if item.deadline])

    @property
    def steps(self) -> tuple[Operation, ...]:
        """What extensions do, or did, outside in the running step."""
        return tuple([item for item in self.operations if item.plan.kind == "step"])

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
    ``parent`` says whose child the session is, ``errands`` what it owes to its parent and its children; ``background`` are the operations
    that called for children which nobody waits for, or waits for any more, and which have not ended. ``reports`` counts the turns in a row
    that began with what such a child reported.
    ``spent`` is what ended turns used of what ``usage`` doesn't count, once anything limits the session; ``limited`` is the last turn, if
    it ended so.
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
    tools: ToolPolicy = ALL_TOOLS
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
    spent: Amounts | None = None
    limited: Limited | None = None
    archived: bool = False
    halted: bool = False
    parent: Parent | None = None
    errands: tuple[Errand, ...] = ()
    background: tuple[Behind, ...] = ()
    reports: int = 0
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
    check_rules(data)
    try:
        checkpoint = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from error
    turn = checkpoint.turn
    if turn is not None and turn.completing and (turn.unplanned or any(item.plan.kind != "step" for item in turn.operations)):
        raise StoreCorrupt(f"the turn {turn.id} is completing while something of it is open", hint="run `perdure verify`")
    version, number, place = checkpoint.version, checkpoint.number, checkpoint.transcript
    # Every message beyond those that were laid out is an entry of this journal.
    if not (0 <= place.base <= version and 0 <= place.tail <= number <= place.tail + version <= canonical.MAX_INTEGER):
        raise StoreCorrupt(f"the checkpoint counts {number} messages in {version} entries", hint="run `perdure verify`")
    return checkpoint


class _RulesOnly(msgspec.Struct):
    rules: int = 1


_rules_decoder: msgspec.json.Decoder[_RulesOnly] = msgspec.json.Decoder(_RulesOnly)


def check_rules(data: bytes) -> None:
    """Raises `NewerRules` if newer rules wrote a checkpoint, and `StoreCorrupt` if it says nothing of its rules that can be read."""
    try:
        rules = _rules_decoder.decode(data).rules
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from error
    if rules < 1:
        raise StoreCorrupt(f"the checkpoint follows rules {rules}, which never were", hint="run `perdure verify`")
    if rules > RULES:
        raise NewerRules(
            f"the session follows rules {rules}; this process knows {RULES}", hint="upgrade perdure here, or go on where it is newer"
        )


def _unreadable(error: Exception) -> StoreCorrupt:
    return StoreCorrupt(f"the checkpoint can't be read: {error}", hint="run `perdure verify`")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a session says about itself, read from a checkpoint whatever rules it follows."""

    identity: Identity = Identity()
    metadata: Metadata = Metadata()
    tools: ToolPolicy = ALL_TOOLS
    route: str = ""


_about_decoder: msgspec.json.Decoder[About] = msgspec.json.Decoder(About)


def about(data: bytes) -> About:
    """That part of a checkpoint's bytes. Raises `StoreCorrupt` if it can't be one."""
    try:
        return _about_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from error


def about_size(identity: Identity, labels: dict[str, str], title: str, tools: ToolPolicy) -> int:
    """What counts against `ABOUT_LIMIT`."""
    return len(canonical.encode([identity, labels, title])) + (len(canonical.encode(tools)) if tools != ALL_TOOLS else 0)
