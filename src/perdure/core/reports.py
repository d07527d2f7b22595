"""What a session's holder reports and proposes. What people ask for stands in `commands`; every command carries one time, ``at`` (ms)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .commands import (
    CallTool,
    Compact,
    EditMessage,
    PostMessage,
    RedactContent,
    ReportOutcome,
    ReportResult,
    RestoreRevision,
    Resume,
    RewriteSpan,
    RunCommand,
    Withdraw,
)
from .entries import MessageAdded, OperationEnded, TurnEnding
from .memory import Remembered
from .messages import Part
from .records import Amounts, EffectMatch, Errand, Failure, Limits, Plan, Pool, RedactedRow, RequestRecord, Status, Terms
from .transcript import Transcript
from .usage import Cost, Usage

__all__ = [
    "Accept",
    "AttemptEnded",
    "BeginStep",
    "CallAccepted",
    "Calling",
    "CallsPlanned",
    "ChangeQueue",
    "Claimed",
    "CommandDone",
    "CompactionAccepted",
    "Continue",
    "EditTranscript",
    "EndEarly",
    "EndTurn",
    "ErrandsDone",
    "Extend",
    "Fail",
    "Finish",
    "Guarded",
    "Guidance",
    "HandOver",
    "Outcome",
    "OutputAccepted",
    "OutputRefused",
    "Parked",
    "PlannedCall",
    "Prepared",
    "Promote",
    "Reconciled",
    "Redact",
    "Redefined",
    "Reject",
    "Report",
    "ResultsReviewed",
    "RouteGiven",
    "Setting",
    "StartTools",
    "StopTurn",
    "TimePassed",
]


class _Command(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A command of the session's holder."""

    at: int


class Claimed(_Command, frozen=True, kw_only=True):
    """A runner holds the session now. ``takeover``: the holder before never let it go, so what it had started is lost."""

    fence: int
    on_restart: Literal["continue", "stop"] = "continue"
    takeover: bool = True


class Accept(_Command, frozen=True, kw_only=True):
    """A message is at its boundary: begin a turn with it, or let it steer the running one. So do wishes to compact and to go on.

    ``limits`` are the agent's for a turn, ``session_limits`` those for the session, of which ended turns ``spent`` that much.
    ``memory``: the turn's model calls are told what the session remembers.
    """

    post: PostMessage | Compact | CallTool | Resume
    agent: str
    definition: str
    route: str = ""
    limits: Limits = Limits()
    session_limits: Limits | None = None
    spent: Amounts | None = None
    terms: Terms = Terms()
    memory: bool = False


class CallAccepted(Accept, frozen=True, kw_only=True):
    """Somebody has a tool called outside of the conversation: ``parts`` is the call."""

    parts: tuple[Part, ...]


class RouteGiven(_Command, frozen=True, kw_only=True):
    """Whoever resumes the session chose its route, whatever was saved."""

    route: str


class AttemptEnded(_Command, frozen=True, kw_only=True):
    """A started attempt came to its end. ``final`` False: another attempt is to follow, or its tool knows what happened.

    ``retry_after`` (ms) is the provider's hint; ``retryable`` says that the same request may succeed later. ``attempts`` is how often a
    model is asked at most, ``longest_wait`` (ms) how long such a hint may be; None is what the rules say. ``fallback`` is the route that
    may answer instead once this one is given up; ``compact`` that a shorter request may do. ``estranged``: the route of the last accepted
    output is none any more, so this one got nothing that was private to it, of whatever group it is. ``remembered`` is what the session
    remembers before an extraction ends. ``cost`` is a model call's, and ``unsent`` says that nothing was sent to a model.
    """

    operation: str
    attempt: int
    status: Status
    parts: tuple[Part, ...] = ()
    finish: str = ""
    usage: Usage | None = None
    model: str = ""
    group: str = ""
    estranged: bool = False
    fallback: str = ""
    compact: bool = False
    failure: Failure | None = None
    partial: str = ""
    final: bool = True
    retryable: bool = False
    retry_after: int | None = None
    attempts: int | None = None
    longest_wait: int | None = None
    remembered: Remembered = Remembered()
    cost: Cost | None = None
    unsent: bool = False


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call with what its tool and the policy say of it.

    ``reject`` answers it with the words of ``failure``, ``replay`` with ``parts``, what an equivalent call came to; both run nothing. A
    ``question`` is the user's to answer, and runs nothing either.
    ``arguments`` are those that ``extension`` gave it instead of the model's.
    """

    plan: Plan
    verdict: Literal["allow", "ask", "reject", "replay", "question"] = "allow"
    failure: Failure | None = None
    parts: tuple[Part, ...] = ()
    reason: str = ""
    deadline: int = 0
    default: Literal["approve", "deny", "abort"] = "deny"
    arguments: dict[str, Any] | None = None
    extension: str = ""


class Calling(_Command, frozen=True, kw_only=True):
    """Something is about to be called. ``pool`` is what the session's owner has of everything, if anything limits that."""

    pool: Pool | None = None


class Parked(Calling, frozen=True, kw_only=True):
    """The session is let go of, and perhaps nobody works on its turn for long."""


class CallsPlanned(Calling, frozen=True, kw_only=True):
    """Every call of the last answer is planned, in call order."""

    calls: tuple[PlannedCall, ...]
    fence: int


class StartTools(_Command, frozen=True, kw_only=True):
    """Start the tool calls that may start. ``plans`` replaces what edited arguments changed, by operation."""

    fence: int
    plans: dict[str, Plan] = {}


class Guarded(_Command, frozen=True, kw_only=True):
    """A call that is about to start would repeat an effect of unknown outcome: a person has to say."""

    operation: str
    match: EffectMatch
    reason: str
    deadline: int


class Prepared(Calling, frozen=True, kw_only=True):
    """The request of a model call is built: the step's own, for notes, for something to remember, or for a corrected answer.

    ``tokens`` is about how large the context is where something to remember is looked for.
    """

    kind: Literal["model", "compaction", "memory", "repair"]
    request: RequestRecord
    fence: int
    tokens: int = 0


class CompactionAccepted(_Command, frozen=True, kw_only=True):
    """Nothing speaks against the notes any more: models see them from now on, and what is told of in `PrefixChanged`."""

    kept: tuple[tuple[int, int], ...]
    answers: int
    private: bool


class OutputAccepted(_Command, frozen=True, kw_only=True):
    """The answer that an operation gave is what it has to be."""

    operation: str


class OutputRefused(_Command, frozen=True, kw_only=True):
    """The answer that an operation gave is not what it has to be, and is not corrected any more."""

    operation: str
    failure: Failure


class EndEarly(_Command, frozen=True, kw_only=True):
    """The turn completes before its model is called, and says why."""

    reason: str


class Reconciled(_Command, frozen=True, kw_only=True):
    """A tool's ``reconcile`` told what became of an attempt."""

    operation: str
    outcome: Literal["done", "not_done", "unknown"]
    parts: tuple[Part, ...] = ()
    fence: int = 0


class Report(_Command, frozen=True, kw_only=True):
    """A late result, with the receipt that said *uncertain* where its operation is closed."""

    command: ReportResult
    parts: tuple[Part, ...]
    receipt: OperationEnded | None = None


class Outcome(_Command, frozen=True, kw_only=True):
    """What a child came to, as the response to the call for it."""

    command: ReportOutcome
    parts: tuple[Part, ...]


class ErrandsDone(_Command, frozen=True, kw_only=True):
    """What was owed to other sessions is with them. ``failed`` are calls for children that can't be begun, and why."""

    errands: tuple[Errand, ...]
    failed: tuple[tuple[str, Failure], ...] = ()


class HandOver(_Command, frozen=True, kw_only=True):
    """The turn goes on as the agent that it was transferred to, whose definition this is; ``route`` is another one if it needs one."""

    definition: str
    terms: Terms = Terms()
    route: str = ""


class TimePassed(_Command, frozen=True, kw_only=True):
    """Close what ran out of time."""


class Finish(_Command, frozen=True, kw_only=True):
    """End the turn whose model asked for nothing more, or do what its agent does instead.

    Where the user is asked, ``deadline`` is until when (0 is for ever), and ``default`` what silence means: ``deny`` ends the turn.
    """

    deadline: int = 0
    default: Literal["deny", "reply"] = "deny"


class Fail(_Command, frozen=True, kw_only=True):
    """The turn can't go on."""

    failure: Failure


class Redefined(_Command, frozen=True, kw_only=True):
    """The turn goes on under another definition."""

    new: str
    difference: tuple[str, ...]
    terms: Terms = Terms()


class ChangeQueue(_Command, frozen=True, kw_only=True):
    """A person edits or withdraws a message. ``deliver`` is the boundary that it waits for, empty if it doesn't wait any more.

    ``content`` is the digest of what it says from now on, or said. ``by`` is who sent it where no person did.
    """

    command: EditMessage | Withdraw
    deliver: str
    content: str = ""
    by: str = ""


class EditTranscript(_Command, frozen=True, kw_only=True):
    """A person edits the transcript. ``old`` is what the edit was made for, ``new`` what it makes of it, with ``messages`` that it adds."""

    command: RewriteSpan | RestoreRevision
    old: Transcript
    new: Transcript
    messages: tuple[MessageAdded, ...] = ()


class Redact(_Command, frozen=True, kw_only=True):
    """A person has content removed: ``rows`` is what is left of its entries."""

    command: RedactContent
    rows: tuple[RedactedRow, ...]
    title: bool = False
    labels: bool = False
    metadata: bool = False
    context: bool = False
    memory: bool = False


class Promote(_Command, frozen=True, kw_only=True):
    """A steer outlived its turn and becomes a turn of its own."""

    submission: str


class Reject(Accept, frozen=True, kw_only=True):
    """An extension rejects a message that would begin a turn: the turn is over before it says anything."""

    reason: str
    extension: str


class Guidance(msgspec.Struct, frozen=True, kw_only=True):
    """What an extension tells the model; with ``once``, once in the session's life."""

    extension: str
    text: str
    once: str = ""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A value that an extension keeps, or drops."""

    extension: str
    key: str
    value: Any = None
    dropped: bool = False


class Extend(_Command, frozen=True, kw_only=True):
    """What extensions tell and keep, in the commit of what they had a say in."""

    guidance: tuple[Guidance, ...] = ()
    settings: tuple[Setting, ...] = ()


class CommandDone(_Command, frozen=True, kw_only=True):
    """An extension carried out a command."""

    command: RunCommand


class BeginStep(_Command, frozen=True, kw_only=True):
    """An extension, or a tool in its running ``attempt``, is about to do something outside."""

    operation: str
    plan: Plan
    fence: int
    attempt: int = 0


class ResultsReviewed(_Command, frozen=True, kw_only=True):
    """Extensions saw the results of a step. ``replaced``: what the model reads instead of some of them, by operation."""

    replaced: dict[str, tuple[Part, ...]] = {}


class StopTurn(_Command, frozen=True, kw_only=True):
    """An extension stops the turn."""

    reason: str
    extension: str


class Continue(_Command, frozen=True, kw_only=True):
    """An extension wants more of a turn that would end; the model is told why."""

    prompt: str
    extension: str


class EndTurn(_Command, frozen=True, kw_only=True):
    """Extensions were told that the turn ends, and it does."""

    ending: TurnEnding
