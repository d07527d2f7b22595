"""How each entry changes the checkpoint: ``reduce(evolve, journal) == checkpoint``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from . import canonical
from . import checkpoint as checkpoints
from .budget import elapsed, is_clocked, own, plus, spent_by
from .checkpoint import Allowance, Behind, Call, Checkpoint, Compacted, Grant, Limited, Operation, Place, Turn
from .context import READ_RESULT
from .entries import (
    AllowanceGranted,
    AnswerRequested,
    ApprovalRequested,
    Archived,
    ChildEnded,
    DefinitionChange,
    EffectSettled,
    Entry,
    ExtensionCommand,
    ExtensionSet,
    Foreign,
    Forked,
    GrantGiven,
    Halted,
    Laid,
    MessageAdded,
    NoteAdded,
    NotesWithdrawn,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    PassedOn,
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
    ToolCalled,
    TurnAborted,
    TurnCompleted,
    TurnEnded,
    TurnEnding,
    TurnFailed,
    TurnLimited,
    TurnStarted,
    UncertainRequested,
)
from .ids import derived_id, is_report, once_key
from .memory import MEMORY
from .messages import Part, RedactedPart, StoredPart, ToolCall, is_private, title_of
from .records import ALL_TOOLS, CALL_KINDS, MODEL_KINDS, Amounts, Errand, Metadata, Plan
from .transcript import EMPTY, chained
from .usage import Totals

__all__ = [
    "calls_in",
    "evolve",
    "fold",
    "is_archived",
]


_NOT_COUNTED = ("limit", "length", "refusal")
"""Why a call was not made that counts as none."""


def is_archived(turn: Turn | None, tool: str, size: int) -> bool:
    """Whether models see only an excerpt of a response of ``size`` bytes. What reads archived results is never archived itself."""
    return turn is not None and 0 < turn.terms.archive < size and tool != READ_RESULT


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


def evolve(checkpoint: Checkpoint, entry: Entry) -> Checkpoint:
    """The checkpoint after an entry. Total on decoded entries that `decide` can write; it decides nothing."""
    changed: Checkpoint = _EVOLVE[type(entry)](checkpoint, entry)
    turn = changed.turn
    if turn is not None and checkpoint.turn is not None and is_clocked(turn) and (ran := elapsed(checkpoint, entry)):
        changed = replace(changed, turn=replace(turn, ran=turn.ran + ran))
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
    operations = [*turn.operations]
    for place, item in enumerate(operations):
        if item.id == identity:
            operations[place] = replace(item, **changes)
    return replace(checkpoint, turn=replace(turn, operations=tuple(operations)))


def _session_created(checkpoint: Checkpoint, entry: SessionCreated) -> Checkpoint:
    return replace(
        checkpoint,
        rules=checkpoints.RULES,
        session_id=entry.session_id,
        root=entry.root,
        agent=entry.agent,
        identity=entry.identity,
        title=entry.title,
        labels=entry.labels,
        metadata=entry.metadata,
        tools=entry.tools,
        created=entry.at,
        parent=entry.parent,
    )


def _session_changed(checkpoint: Checkpoint, entry: SessionChanged) -> Checkpoint:
    return replace(
        checkpoint,
        title=checkpoint.title if entry.title is None else entry.title,
        labels=checkpoint.labels if entry.labels is None else entry.labels,
        metadata=checkpoint.metadata if entry.metadata is None else entry.metadata,
        # What is encoded leaves a default out only where it is the very same object.
        tools=checkpoint.tools if entry.tools is None else ALL_TOOLS if entry.tools == ALL_TOOLS else entry.tools,
    )


def _turn_started(checkpoint: Checkpoint, entry: TurnStarted) -> Checkpoint:
    turn = Turn(
        id=entry.turn,
        submission=entry.submission,
        agent=entry.agent,
        definition=entry.definition,
        limits=entry.limits,
        started=entry.at,
        terms=entry.terms,
        author=entry.author,
        source=entry.source,
        compacts=entry.compacts,
        run=entry.run,
        session=entry.session,
        carried=entry.carried,
        memory=entry.memory,
    )
    spent = checkpoint.spent if entry.spent is None else entry.spent
    reports = checkpoint.reports + 1 if _is_report(checkpoint, entry) else 0
    checkpoint = replace(checkpoint, reports=reports)
    return replace(checkpoint, turn=turn, agent=entry.agent, route=checkpoint.route or entry.route, spent=spent, limited=None)


def _is_report(checkpoint: Checkpoint, entry: TurnStarted | MessageAdded) -> bool:
    """Whether nobody spoke but a child in the background."""
    return entry.source is not None and is_report(entry.submission, entry.source.id, checkpoint.session_id)


def _tool_called(checkpoint: Checkpoint, entry: ToolCalled) -> Checkpoint:
    begun = _turn_started(checkpoint, entry)
    turn = begun.turn
    return replace(begun, turn=turn and replace(turn, calls=True, unplanned=calls_in(entry.parts)))


def _message(checkpoint: Checkpoint, entry: MessageAdded) -> Checkpoint:
    if entry.number <= checkpoint.transcript.tail:
        # It stands where the entry before it says.
        return checkpoint
    turn, seen, reports = checkpoint.turn, entry.digest, checkpoint.reports
    if turn is not None:
        if entry.role == "user":
            reports = reports if _is_report(checkpoint, entry) else 0
            turn = replace(turn, completing=False, call="", argument="")
        elif entry.role == "tool":
            ends = next((item.plan for item in turn.tools if item.plan.ends), None)
            if cut := [item.plan.call for item in turn.tools if item.archived]:
                # What models see differs from what people see.
                seen = canonical.short_digest(entry.digest, *cut)
            turn = replace(turn, operations=(), step=turn.step + 1, ordinal=0, squeeze="")
            if ends is not None:
                turn = replace(turn, completing=True, call=ends.call, argument=ends.ends)
            elif turn.refused:
                turn = replace(turn, completing=True)
        elif turn.unplanned:
            turn = replace(turn, output=entry.seq)
        else:
            turn = replace(turn, output=entry.seq, completing=True, operations=(), step=turn.step + 1, ordinal=0, squeeze="")
    revision = chained(checkpoint.revision, entry.digest)
    # Until they differ for the first time, what models see is what people see.
    same = seen == entry.digest and checkpoint.context == checkpoint.revision
    return replace(
        checkpoint,
        revision=revision,
        context=revision if same else chained(checkpoint.context, seen),
        turn=turn,
        reports=reports,
        # The first message that began a turn names the session; one that was rejected leaves nothing.
        title=checkpoint.title or (title_of(entry.parts) if entry.number == 1 and _speaks(entry) else ""),
    )


def _speaks(entry: MessageAdded) -> bool:
    """Whether a message says what the session is about: a person's, or the task of a child."""
    return entry.source is None or entry.source.kind == "parent"


def _planned(checkpoint: Checkpoint, entry: OperationPlanned) -> Checkpoint:
    edited = 0 if entry.arguments is None else entry.seq
    return _add_operation(checkpoint, Operation(id=entry.operation, plan=entry.plan, edited=edited))


def _started(checkpoint: Checkpoint, entry: OperationStarted) -> Checkpoint:
    planned = checkpoint.operation(entry.operation)
    plan = entry.plan or (planned.plan if planned is not None else None)
    if plan is None:
        return checkpoint
    now: dict[str, Any] = {"plan": plan, "status": "started", "attempt": entry.attempt, "fence": entry.fence}
    if plan.kind in ("child", "timer") or plan.until:
        now |= {"status": "awaiting", "deadline": plan.until}
    if planned is not None:
        checkpoint = _with_operation(checkpoint, entry.operation, **now, not_before=0)
    else:
        checkpoint = _add_operation(checkpoint, Operation(id=entry.operation, **now))
    return _called(checkpoint, entry.operation, plan) if plan.kind == "child" else checkpoint


def _called(checkpoint: Checkpoint, operation: str, plan: Plan) -> Checkpoint:
    """A child is called for."""
    turn, background = checkpoint.turn, checkpoint.background
    if turn is None:
        return checkpoint
    if plan.background:
        background = (*background, Behind(operation, plan.agent))
    errands = (*checkpoint.errands, Errand("begin", operation))
    return replace(checkpoint, turn=replace(turn, children=turn.children + 1), errands=errands, background=background)


def _add_operation(checkpoint: Checkpoint, operation: Operation) -> Checkpoint:
    turn = checkpoint.turn
    if turn is None:
        return checkpoint
    is_call = operation.plan.kind in CALL_KINDS
    return replace(
        checkpoint,
        turn=replace(
            turn,
            operations=(*turn.operations, operation),
            ordinal=turn.ordinal + (operation.plan.kind != "step"),
            tool_calls=turn.tool_calls + is_call,
            unplanned=tuple(call for call in turn.unplanned if call.id != operation.plan.call),
        ),
    )


def _ended(checkpoint: Checkpoint, entry: OperationEnded) -> Checkpoint:
    turn, operation = checkpoint.turn, checkpoint.operation(entry.operation)
    if turn is None or operation is None:
        return checkpoint
    if operation.plan.kind in MODEL_KINDS:
        now: dict[str, Any] = {}
        changed: dict[str, Any] = {}
        if entry.attempt and not entry.unsent:
            now["usage"] = checkpoint.usage.plus(entry.usage, entry.cost)
            changed["usage"] = turn.usage.plus(entry.usage, entry.cost)
        if operation.plan.kind == "compaction":
            if entry.final and entry.status != "succeeded":
                left = tuple(item for item in turn.operations if item.id != operation.id)
                changed |= {"operations": left, "writer": entry.fallback or turn.writer}
                return replace(checkpoint, turn=replace(turn, **changed), **now)
        elif operation.plan.kind == "memory":
            pass
        elif entry.status == "succeeded":
            calls = calls_in(entry.parts) if operation.plan.kind == "model" else ()
            changed |= {"unplanned": calls, "answer": entry.seq, "refused": bool(calls) and entry.finish == "refusal"}
            private = checkpoint.private or any(map(is_private, entry.parts))
            used = (entry.usage.input_tokens if entry.usage is not None else None) or 0
            now |= {"owner": operation.plan.name, "owner_group": entry.group, "private": private, "input_tokens": used}
        elif entry.fallback:
            changed["fallback"] = entry.fallback
        elif entry.compact:
            changed["squeeze"] = "wanted"
        turn = replace(turn, **changed)
        checkpoint = replace(checkpoint, turn=turn, **now)
    if entry.spent is not None:
        others = (turn.others or Totals()).and_of(entry.spent)
        turn = replace(turn, usage=turn.usage.and_of(entry.spent), others=others)
        checkpoint = replace(checkpoint, turn=turn, usage=checkpoint.usage.and_of(entry.spent))
    elif operation.plan.kind == "child" and operation.status == "awaiting" and entry.status == "cancelled":
        # Nobody waits for it any more, and what it spends until it stops is counted all the same.
        behind = Behind(operation.id, operation.plan.agent)
        errands = _with_errand(checkpoint.errands, Errand("stop", operation.id))
        checkpoint = replace(checkpoint, errands=errands, background=(*checkpoint.background, behind))
    elif operation.plan.kind == "handoff" and entry.status == "succeeded":
        checkpoint = replace(checkpoint, turn=replace(turn, transfer=operation.plan.agent, handoffs=turn.handoffs + 1))
    if operation.plan.kind == "tool" and not entry.attempt and entry.failure is not None and entry.failure.code in _NOT_COUNTED:
        # What a limit kept from being called counts against none, nor does what was never asked for in earnest.
        checkpoint = replace(checkpoint, turn=replace(turn, tool_calls=turn.tool_calls - 1))
    lost = not entry.final and entry.failure is not None and entry.failure.code == "restart"
    failed = not entry.final and (entry.status == "failed" or (entry.failure is not None and entry.failure.code == "not_done"))
    changes: dict[str, Any] = {"restarts": operation.restarts + lost, "failures": operation.failures + failed}
    if entry.final:
        changes |= _end(operation.plan, entry)
    elif entry.status == "uncertain" and operation.plan.kind in ("tool", "step"):
        changes |= {"status": "unknown", "receipt": entry.seq}
    else:
        changes |= {"status": "ready", "not_before": entry.retry_at}
    return _with_operation(checkpoint, operation.id, **changes)


def _end(plan: Plan, entry: OperationEnded | EffectSettled) -> dict[str, Any]:
    """What an operation becomes with its last receipt."""
    left = Plan(
        kind=plan.kind,
        name=plan.name,
        call=plan.call,
        # What a call did outside is asked for as long as the call is open.
        effect=plan.effect if plan.kind == "step" else "pure",
        upto=plan.upto,
        ends=plan.ends if entry.status == "succeeded" else "",
        # Code that changed since may ask for a step under a sleep's name.
        until=plan.until if plan.kind == "step" else 0,
    )
    return {"status": "ended", "deadline": 0, "receipt": entry.seq, "response": entry.digest, "archived": entry.archived, "plan": left}


def _with_errand(errands: tuple[Errand, ...], errand: Errand) -> tuple[Errand, ...]:
    """What is owed about a child is the last thing that was decided about it."""
    return (*(other for other in errands if other.operation != errand.operation or other.kind == "tell"), errand)


def _request_opened(checkpoint: Checkpoint, entry: RequestOpened) -> Checkpoint:
    changes: dict[str, Any] = {"request": entry.request_id, "deadline": entry.deadline, "default": entry.default}
    operation = checkpoint.operation(entry.operation)
    if isinstance(entry, AnswerRequested) and operation is None and checkpoint.turn is not None:
        checkpoint = _add_operation(checkpoint, Operation(id=entry.operation, plan=Plan(kind="ask")))
        checkpoint = replace(checkpoint, turn=checkpoint.turn and replace(checkpoint.turn, completing=False))
    if isinstance(entry, UncertainRequested | AnswerRequested):
        changes["status"] = "asking"
    elif isinstance(entry, ApprovalRequested) and entry.match is not None and operation is not None:
        changes["plan"] = replace(operation.plan, match=entry.match)
    return _with_operation(checkpoint, entry.operation, **changes)


def _request_closed(checkpoint: Checkpoint, entry: RequestClosed) -> Checkpoint:
    operation = checkpoint.operation(entry.operation)
    if operation is None:
        return checkpoint
    if operation.plan.kind == "ask" and checkpoint.turn is not None:
        left = tuple(item for item in checkpoint.turn.operations if item.id != operation.id)
        return replace(checkpoint, turn=replace(checkpoint.turn, operations=left))
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
        # What tells it to use the tool that ends it may be said again and again; an extension has it go on once.
        continued = turn.continued or bool(entry.extension)
        turn = replace(turn, completing=False, continued=continued, operations=(), call="", argument="")
    elif turn is not None and entry.receipt:
        turn = replace(turn, operations=(), step=turn.step + 1, ordinal=0, completing=True)
    elif turn is not None and entry.submission and entry.submission == turn.submission:
        turn = replace(turn, notes=(*turn.notes, entry.seq))
    if entry.once:
        once = (*once, once_key(entry.extension, entry.once))
    context = chained(checkpoint.context, entry.digest or canonical.digest(entry.text.encode()))
    return replace(checkpoint, context=context, turn=turn, once=once)


def _withdrawn(checkpoint: Checkpoint, entry: NotesWithdrawn) -> Checkpoint:
    turn = checkpoint.turn
    context = chained(checkpoint.context, canonical.short_digest("withdrawn", *entry.notes))
    return replace(checkpoint, context=context, turn=turn and replace(turn, notes=()))


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


def _turn_ended(checkpoint: Checkpoint, entry: TurnEnded) -> Checkpoint:
    errands, parent = checkpoint.errands, checkpoint.parent
    if parent is not None and entry.submission == derived_id("task", parent.operation):
        errands = (*errands, Errand("tell", parent.operation, entry.seq))
    spent, turn = checkpoint.spent, checkpoint.turn
    if spent is not None:
        # What model calls used is counted in `usage` already.
        spent = plus(spent, Amounts(steps=entry.steps, tool_calls=entry.tool_calls, ms=entry.ran))
    limited = None
    if isinstance(entry, TurnLimited) and turn is not None:
        used = spent_by(turn)
        limited = Limited(turn=turn.id, spent=used if turn.carried is None else plus(used, turn.carried))
    return replace(checkpoint, turn=None, turns=checkpoint.turns + 1, errands=errands, spent=spent, limited=limited)


def _never_began(checkpoint: Checkpoint, entry: QueueChanged | SubmissionRefused) -> Checkpoint:
    """A child's task that was withdrawn or refused is an outcome, too."""
    parent = checkpoint.parent
    gone = isinstance(entry, SubmissionRefused) or entry.change == "withdrawn"
    if parent is None or not gone or entry.submission != derived_id("task", parent.operation):
        return checkpoint
    return replace(checkpoint, errands=(*checkpoint.errands, Errand("tell", parent.operation, entry.seq)))


def _child_ended(checkpoint: Checkpoint, entry: ChildEnded) -> Checkpoint:
    background = tuple(item for item in checkpoint.background if item.operation != entry.operation)
    return replace(checkpoint, background=background, usage=checkpoint.usage.and_of(entry.spent))


def _passed_on(checkpoint: Checkpoint, entry: PassedOn) -> Checkpoint:
    return replace(checkpoint, errands=tuple(errand for errand in checkpoint.errands if errand not in entry.errands))


def _allowance_granted(checkpoint: Checkpoint, entry: AllowanceGranted) -> Checkpoint:
    turn = checkpoint.turn
    if turn is None:
        return checkpoint
    allowance = turn.allowance
    if entry.settled:
        allowance = None
    elif allowance is None or allowance.pool != entry.pool:
        allowance = Allowance(pool=entry.pool, drawn=entry.drawn, base=own(turn))
    else:
        allowance = replace(allowance, drawn=plus(allowance.drawn, entry.drawn))
    return replace(checkpoint, turn=replace(turn, allowance=allowance))


def _redefined(checkpoint: Checkpoint, entry: DefinitionChange) -> Checkpoint:
    turn = checkpoint.turn
    if turn is None:
        return checkpoint
    changed: dict[str, Any] = {"agent": entry.agent, "definition": entry.new, "terms": entry.terms}
    if entry.agent != turn.agent:
        # The route that gave up was one of the agent before.
        changed |= {"transfer": "", "fallback": "", "writer": ""}
    return replace(checkpoint, agent=entry.agent, route=entry.route or checkpoint.route, turn=replace(turn, **changed))


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
        operations=tuple(item for item in turn.operations if item.plan.kind not in ("compaction", "memory")),
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
    if entry.labels:
        checkpoint = replace(checkpoint, labels={})
    if entry.metadata:
        checkpoint = replace(checkpoint, metadata=Metadata())
    if entry.memory:
        extensions = {name: values for name, values in checkpoint.extensions.items() if name != MEMORY}
        checkpoint = replace(checkpoint, extensions=extensions)
    return replace(checkpoint, compacted=None, context=checkpoint.revision) if entry.context else checkpoint


def _archived(checkpoint: Checkpoint, entry: Archived | Revived) -> Checkpoint:
    errands = checkpoint.errands
    if isinstance(entry, Archived):
        # What runs for it is put away with it, behind what it owes to others.
        stopped = [errand.operation for errand in errands if errand.kind == "stop"]
        for operation in [*(item.operation for item in checkpoint.background), *stopped]:
            errands = _with_errand(errands, Errand("away", operation))
    return replace(checkpoint, archived=isinstance(entry, Archived), errands=errands, background=())


def _halted(checkpoint: Checkpoint, entry: Halted) -> Checkpoint:
    return replace(checkpoint, halted=not entry.released)


def _unchanged(checkpoint: Checkpoint, entry: Entry) -> Checkpoint:
    return checkpoint


_EVOLVE: dict[type[Entry], Callable[[Checkpoint, Any], Checkpoint]] = {
    SessionCreated: _session_created,
    SessionChanged: _session_changed,
    TurnStarted: _turn_started,
    ToolCalled: _tool_called,
    MessageAdded: _message,
    OperationPlanned: _planned,
    OperationStarted: _started,
    OperationEnded: _ended,
    ApprovalRequested: _request_opened,
    UncertainRequested: _request_opened,
    AnswerRequested: _request_opened,
    RequestClosed: _request_closed,
    EffectSettled: _settled,
    TurnCompleted: _turn_ended,
    TurnAborted: _turn_ended,
    TurnFailed: _turn_ended,
    TurnLimited: _turn_ended,
    NoteAdded: _note,
    NotesWithdrawn: _withdrawn,
    QueueChanged: _never_began,
    SubmissionRefused: _never_began,
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
    ChildEnded: _child_ended,
    PassedOn: _passed_on,
    AllowanceGranted: _allowance_granted,
}
