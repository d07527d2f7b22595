"""What one entry says about others: pure functions for `verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ..core import commands, ids
from ..core.checkpoint import Checkpoint, Operation, Turn
from ..core.commands import (
    AddNote,
    Answer,
    Archive,
    CallTool,
    Command,
    Compact,
    Describe,
    EditMessage,
    Halt,
    Interrupt,
    PostMessage,
    RedactContent,
    Repair,
    Replacement,
    ReportOutcome,
    ReportResult,
    RestoreRevision,
    Resume,
    Revive,
    RevokeGrant,
    RewriteSpan,
    RunCommand,
    SelectRoute,
    Withdraw,
)
from ..core.context import notes_in
from ..core.entries import (
    TERMINALS,
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
    GrantGiven,
    Halted,
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
    TurnStarted,
)
from ..core.errors import StoreCorrupt
from ..core.evolve import is_archived
from ..core.memory import MEMORY, STATE
from ..core.memory import decode as decode_memory
from ..core.messages import Text, ToolCall, ToolCallResponse, digest_of, measured, part_digest, said_digest
from ..core.phase import reviewing
from ..core.records import MODEL_KINDS
from ..store.base import InboxRow
from .redacted import is_redacted

__all__ = ["TERMINALS", "companion", "consumes", "consumption", "inconsistencies", "references"]

Receipts = Mapping[int, Entry]


def references(entry: Entry) -> Iterator[tuple[str, str]]:
    """Content that an entry refers to by digest, besides its parts, and what it is to the entry."""
    match entry:
        case TurnStarted():
            yield entry.definition, "the turn's definition"
        case SessionCreated(metadata=metadata) | SessionChanged(metadata=metadata) if metadata is not None and metadata.digest:
            yield metadata.digest, "the session's metadata"
        case DefinitionChange():
            yield entry.new, "the new definition"
        case OperationStarted(request=request) if request is not None:
            yield request.instructions, "the request's instructions"
            yield request.tools, "the request's tools"
            yield request.settings, "the request's settings"
            if request.additions:
                yield request.additions, "what an extension made of the request"
            if request.output:
                yield request.output, "what the answer has to be"


def consumes(entry: Entry) -> str:
    """The submission that an entry takes up, where it names one."""
    match entry:
        case TurnStarted() | SubmissionRefused() | RequestClosed() | EffectSettled() | ExtensionCommand():
            return entry.submission
        case Archived() | Revived() | Halted() | ChildEnded():
            return entry.submission
        case MessageAdded(deliver="steer"):
            return entry.submission
        case TurnAborted() | TurnEnding():
            return entry.interrupt
        case _:
            return ""


def _may_be_archived(entry: Entry) -> bool:
    """Whether an entry may stand in an archived session."""
    if isinstance(entry, PrefixChanged):
        # A redaction takes the notes away that may say what it removed.
        return entry.reason == "rewrite"
    return isinstance(entry, Revived | EffectSettled | NoteAdded | Foreign | Redacted | Rebased | Halted | PassedOn)


def inconsistencies(before: Checkpoint, entry: Entry, receipts: Receipts, session_id: str, *, redacted: bool = False) -> Iterator[str]:
    """What an entry says wrongly of what stands before it."""
    if (entry.seq == 1) != isinstance(entry, SessionCreated):
        yield "a journal begins with session_created, and nothing else does"
    turn = before.turn
    if before.archived and not _may_be_archived(entry):
        yield "something happened in an archived session"
    if before.halted and not isinstance(entry, Halted | Foreign | Rebased):
        yield "something happened in a halted session"
    match entry:
        case SessionCreated() if entry.session_id != session_id:
            yield f"it created the session {entry.session_id!r}"
        case Archived() if turn is not None or before.archived:
            yield "a session is archived that is archived, or in the middle of a turn"
        case Revived() if not before.archived:
            yield "a session is revived that is not archived"
        case Halted(released=False) if before.halted:
            yield "a session is halted that is halted"
        case TurnStarted() if turn is not None:
            yield f"a turn begins inside the turn {turn.id}"
        case TurnStarted() if entry.resumes and (
            before.limited is None or (entry.resumes, entry.carried) != (before.limited.turn, before.limited.spent)
        ):
            yield f"the turn {entry.resumes}, which it goes on with, reached no limit, or used something else"
        case AllowanceGranted() if turn is None or (_gives_back(entry) and (turn.allowance is None or turn.allowance.pool != entry.pool)):
            yield "nobody could draw from a pool here, or give anything back"
        case TurnStarted() if entry.memory not in (0, before.extensions.get(MEMORY, {}).get(STATE, 0)):
            yield f"entry {entry.memory} is not what the session remembered"
        case MessageAdded():
            yield from _message(turn, entry, receipts)
        case OperationPlanned() | OperationStarted() | OperationEnded() | RequestOpened() | RequestClosed() | TurnEnded() if turn is None:
            yield "no turn is running"
        case OperationPlanned() if turn is not None:
            if turn.operation(entry.operation) is not None:
                yield f"the operation {entry.operation} is planned twice"
            if entry.arguments is not None and entry.plan.arguments != ids.arguments_digest(entry.arguments):
                yield "the digest is not that of the rewritten arguments"
            if (entry.arguments is None) != (not entry.extension):
                yield "rewritten arguments and who rewrote them go together"
        case NoteAdded():
            if entry.once and ids.once_key(entry.extension, entry.once) in before.once:
                yield f"the guidance {entry.once!r} of {entry.extension!r} is given once, and was given before"
            once = turn is not None and entry.extension and (turn.continued or not turn.completing)
            if entry.continues and (turn is None or turn.ending or once or (not entry.extension and turn.terms.finish == "answer")):
                yield "no turn could go on with it"
            if entry.receipt and (turn is None or not turn.calls or not reviewing(turn) or turn.tools[0].receipt != entry.receipt):
                yield "no call outside of the conversation just came to that"
        case NotesWithdrawn() if turn is None or turn.answer or turn.notes != entry.notes:
            yield "these are no notes that could be withdrawn"
        case ExtensionSet(dropped=True) if entry.key not in before.extensions.get(entry.extension, {}):
            yield f"{entry.extension!r} drops {entry.key!r}, which it doesn't keep"
        case ExtensionSet(dropped=False) if entry.extension == MEMORY and not redacted:
            yield from _remembered(before, entry)
        case ChildEnded() if all(item.operation != entry.operation for item in before.background):
            yield f"no child of {entry.operation} works in the background"
        case PassedOn() if any(errand not in before.errands for errand in entry.errands):
            yield "it did what nobody was owed"
        case DefinitionChange() if turn is not None and entry.agent not in (turn.agent, turn.transfer):
            yield f"nothing hands the turn over to {entry.agent!r}"
        case TurnEnding() if turn is None or turn.id != entry.turn or turn.ending:
            yield f"the turn {entry.turn} can't be ending"
        case OperationStarted() if turn is not None:
            yield from _started(before, turn, entry)
        case OperationEnded() if turn is not None:
            yield from _ended(turn, turn.operation(entry.operation), entry)
        case PrefixChanged(reason="compaction"):
            yield from _compacted(before, turn, entry)
        case EffectSettled():
            digest, size = measured(entry.parts[0])
            item = before.operation(entry.operation)
            if redacted:
                return
            if entry.digest != digest:
                yield "the digest is not that of its result"
            if entry.archived != (item is not None and is_archived(turn, item.plan.name, size)):
                yield "whether models see all of its result doesn't follow from its length"
        case RequestOpened() if turn is not None:
            yield from _opened(turn, turn.operation(entry.operation), entry)
        case RequestClosed() if turn is not None:
            if all((item.request, item.id) != (entry.request_id, entry.operation) for item in turn.requests):
                yield f"the request {entry.request_id} is not open"
            if entry.arguments is not None and not redacted and entry.arguments_digest != ids.arguments_digest(entry.arguments):
                yield "the digest is not that of the edited arguments"
        case TurnEnded() if turn is not None:
            said = (entry.turn, entry.submission, entry.steps, entry.tool_calls, entry.usage, entry.ran)
            if said != (turn.id, turn.submission, turn.step, turn.tool_calls, turn.usage, turn.ran):
                yield f"it says of the turn {turn.id} what is not so"
            if turn.requests:
                yield f"the turn ends while {', '.join(item.request for item in turn.requests)} waits for an answer"
            if isinstance(entry, TurnCompleted) and entry.output != turn.output:
                yield f"the turn's answer is entry {turn.output}, not {entry.output}"
            if isinstance(entry, TurnCompleted) and (entry.call, entry.argument) != (turn.call, turn.argument):
                yield f"the call that ended the turn is {turn.call!r}, not {entry.call!r}"


def _message(turn: Turn | None, entry: MessageAdded, receipts: Receipts) -> Iterator[str]:
    if not entry.receipt and not entry.responses:
        if not is_redacted(entry) and entry.digest != said_digest(entry.role, entry.parts):
            yield "the digest is not that of the message"
    elif entry.role == "assistant":
        receipt = receipts.get(entry.receipt)
        if not isinstance(receipt, OperationEnded) or receipt.status != "succeeded":
            yield f"entry {entry.receipt} is not the receipt of an answer"
        elif is_redacted(receipt):
            return
        elif entry.digest != receipt.digest or entry.digest != said_digest("assistant", receipt.parts):
            yield "the digest is not that of the answer"
    else:
        found = [receipts.get(response.receipt) for response in entry.responses]
        known = [item for item in found if isinstance(item, OperationEnded | EffectSettled) and item.parts]
        if len(known) < len(found):
            yield "a response refers to an entry that is no receipt"
            return
        if sum(response.replaced for response in entry.responses) != len(entry.parts):
            yield "the replaced responses are not those that stand in it"
            return
        told = entry.told(entry.parts, {item.seq: item.parts for item in known})
        if not is_redacted(entry) and not any(map(is_redacted, known)) and entry.digest != digest_of("tool", map(part_digest, told)):
            yield "the digest is not that of the responses"
        calls = [item.plan.call for item in turn.tools] if turn is not None else []
        if [response.id for response in entry.responses] != calls:
            yield "the responses are not those of the step's calls"
        for response, item in zip(entry.responses, known, strict=True):
            part = item.parts[0]
            if isinstance(part, ToolCallResponse) and part.id != response.id:
                yield f"entry {response.receipt} answers another call than {response.id!r}"


def _gives_back(entry: AllowanceGranted) -> bool:
    return entry.settled or any(getattr(entry.drawn, name) < 0 for name in entry.drawn.__struct_fields__)


def _started(before: Checkpoint, turn: Turn, entry: OperationStarted) -> Iterator[str]:
    operation = turn.operation(entry.operation)
    if operation is None and entry.plan is None:
        yield f"nothing says what the operation {entry.operation} is"
    if entry.attempt != (operation.attempt if operation is not None else 0) + 1:
        yield f"attempt {entry.attempt} of {entry.operation} is not the next one"
    if operation is not None and operation.status == "ended":
        yield f"the operation {entry.operation} has ended"
    plan = entry.plan or (operation.plan if operation is not None else None)
    if plan is not None and (plan.kind == "step") != ("/" in entry.operation):
        yield "only what extensions do outside has an id with the name of it"
    request = entry.request
    if plan is not None and plan.kind in MODEL_KINDS:
        if request is None:
            yield "a model call says nothing about its request"
            return
        if (request.upto or 0) != plan.upto or (request.upto is None) != (plan.kind not in ("compaction", "memory")):
            yield "the request is not about the messages that its operation summarises"
        candidate = turn.candidate.receipt if turn.candidate is not None else 0
        if request.candidate != (candidate if plan.kind == "repair" else 0) or (plan.kind == "repair" and not candidate):
            yield "the request is not about the answer that waits"
        if (request.since is None) != (plan.kind != "memory"):
            yield "only a search for something to remember begins at a message"
        if plan.kind != "memory" and request.memory != turn.memory:
            yield "the request tells of another memory than its turn"
        if request.with_digest() != request or plan.arguments != request.digest:
            yield "the request's digest is not that of its parts"
        if (request.context, request.epoch) != (before.context, before.epoch):
            yield "the request's context is not the one that stands before it"


def _ended(turn: Turn, operation: Operation | None, entry: OperationEnded) -> Iterator[str]:
    if operation is None or operation.status == "ended":
        yield f"no operation {entry.operation} is open"
        return
    if entry.attempt not in (0, operation.attempt):
        yield f"attempt {entry.attempt} of {entry.operation} was not running"
    if entry.attempt and not entry.final and operation.status == "ready":
        yield f"attempt {entry.attempt} of {entry.operation} has its receipt"
    if operation.plan.kind in MODEL_KINDS:
        if operation.plan.kind == "compaction" and entry.status == "succeeded" and not (notes_in(entry.parts) or is_redacted(entry)):
            yield "the writer of notes saved none"
        digest = said_digest("assistant", entry.parts) if entry.status == "succeeded" else ""
    else:
        digest, size = measured(entry.parts[0]) if entry.parts else ("", 0)
        if not is_redacted(entry) and entry.archived != is_archived(turn, operation.plan.name, size):
            yield "whether models see all of its result doesn't follow from its length"
    if entry.digest != digest and not is_redacted(entry):
        yield "the digest is not that of its result"
    if entry.spent is not None and operation.plan.kind != "child":
        yield "only a child spends what is not a call of its own"
    timer = operation.status == "awaiting" and operation.plan.kind != "child"
    if timer and entry.status == "succeeded" and entry.at < operation.deadline:
        yield "the timer fired before its time"


def _compacted(before: Checkpoint, turn: Turn | None, entry: PrefixChanged) -> Iterator[str]:
    written = turn.compactions if turn is not None else ()
    if not written or any(item.status != "ended" for item in written):
        yield "no notes were written for it"
        return
    last = written[-1]
    if (entry.operation, entry.summary, entry.upto, entry.applied) != (last.id, last.receipt, last.plan.upto, len(written)):
        yield f"it says of the compaction {last.id} what is not so"
    if (entry.epoch, entry.private_from) != (before.epoch + 1, before.private_from):
        yield "it changes more than the beginning"
    begun = before.compacted.upto if before.compacted is not None else 0
    if not begun < entry.upto <= before.messages:
        yield f"it summarises the messages before {entry.upto}, of {before.messages} from {begun} on"
    places = [place for kept in entry.kept for place in kept]
    if places != sorted(set(places)) or (places and places[-1] > entry.upto):
        yield "what it keeps is not what it summarises"


def _remembered(before: Checkpoint, entry: ExtensionSet) -> Iterator[str]:
    try:
        state = decode_memory(entry.value)
    except StoreCorrupt as error:
        yield error.message
        return
    if entry.key != STATE or (before.turn is None and state.entries):
        yield "nobody looked for what the session remembers"
    if not 0 <= state.upto <= before.messages:
        yield f"it covers {state.upto} messages, of {before.messages}"


def _opened(turn: Turn, operation: Operation | None, entry: RequestOpened) -> Iterator[str]:
    if any(item.request == entry.request_id for item in turn.requests):
        yield f"the request {entry.request_id} is open"
    if isinstance(entry, AnswerRequested) and not entry.call:
        expected = ids.request_id("answer", entry.operation, 1, str(entry.message))
        if (entry.operation, entry.message, entry.request_id) != (turn.next_id(), turn.output, expected) or turn.terms.finish != "ask":
            yield "it is not the turn's last answer that asks"
        return
    if operation is None or operation.status == "ended":
        yield f"no operation {entry.operation} is open"
        return
    if isinstance(entry, ApprovalRequested):
        expected = ids.approval_id(operation.id, msgspec.structs.replace(operation.plan, match=entry.match))
    elif isinstance(entry, AnswerRequested):
        expected = ids.request_id("answer", operation.id, 1, operation.plan.arguments)
    else:
        expected = ids.request_id("uncertain", operation.id, operation.attempt, operation.plan.arguments)
    if entry.request_id != expected:
        yield "the request's id is not that of what it asks"


# ----------------------------------------------------------------------------------------------------------- submissions


def companion(row: InboxRow, first: Entry) -> int:
    """The seq of the entry that tells the rest of what a submission said, 0 if ``first`` tells it all."""
    if (isinstance(first, TurnStarted) and not isinstance(first, ToolCalled)) or (
        isinstance(first, RequestClosed) and first.decision in ("settle", "reply")
    ):
        return first.seq + 1
    return 0


def consumption(
    row: InboxRow,
    first: Entry,
    second: Entry | None,
    added: Sequence[MessageAdded] = (),
    notes: Sequence[str] = (),
    session_id: str = "",
) -> str:
    """What is wrong about a consumed submission of a session.

    ``first`` is the entry that consumed it, ``second`` its `companion`, ``added`` are the messages that it added and ``notes`` those that
    came with it.
    """
    if isinstance(first, TurnStarted) and first.rejected:
        rejected = ids.rejected_digest(row.digest, row.actor)
        same = (first.submission, first.rejected) == (row.submission_id, rejected)
        return "" if same else f"entry {first.seq} rejects another submission"
    if isinstance(first, SubmissionRefused):
        said = (first.submission, first.actor, first.digest)
        return "" if said == (row.submission_id, row.actor, row.digest) else f"entry {first.seq} refuses another submission"
    if isinstance(first, QueueChanged) and row.kind in (PostMessage.kind, EditMessage.kind, Withdraw.kind):
        changed, asked = (first.submission, first.content), (first.by, first.digest)
        named = changed if row.kind == PostMessage.kind else asked
        return "" if named == (row.submission_id, row.digest) else f"entry {first.seq} changes another submission"
    found = [*_commands(row, first, second, added, tuple(notes), session_id)]
    if not found:
        return f"entry {first.seq} doesn't consume it"
    if all(commands.digest(command) != row.digest for command in found):
        return "its digest is not that of what was consumed"
    return ""


def _commands(
    row: InboxRow, first: Entry, second: Entry | None, added: Sequence[MessageAdded], notes: tuple[str, ...], session_id: str
) -> Iterator[Command]:
    """What the submission may have said, to leave what the journal holds; nothing if the entries are not its own."""
    by = first.author if isinstance(first, TurnStarted) else getattr(first, "actor", "")
    own = (getattr(first, "submission", ""), by) == (row.submission_id, row.actor)
    match row.kind, first:
        case PostMessage.kind, _:
            yield from _messages(row, first, second, notes)
        case Interrupt.kind, _:
            if isinstance(second, TurnAborted | TurnEnding) and (second.interrupt, second.actor) == (row.submission_id, row.actor):
                for turn in ("", second.turn):
                    for reason in {second.reason, "" if second.reason == "interrupted" else second.reason}:
                        yield Interrupt(turn=turn, reason=reason)
        case Answer.kind, RequestClosed() if own:
            yield _answer(first, second)
        case Compact.kind, TurnStarted(compacts=True) if own:
            yield Compact()
        case Resume.kind, TurnStarted(resumes=limited) if own and limited:
            yield Resume(limits=first.run)
        case SelectRoute.kind, RouteSelected() if own:
            yield SelectRoute(route=first.route)
        case Describe.kind, SessionChanged() if own:
            yield Describe(title=first.title, labels=first.labels, metadata=first.metadata, tools=first.tools)
        case RevokeGrant.kind, GrantGiven() if own:
            yield RevokeGrant(grant=first.grant)
        case Archive.kind, Archived() if own:
            yield Archive(reason=first.reason)
        case Revive.kind, Revived() if own:
            yield Revive(reason=first.reason)
        case Halt.kind, Halted(released=False) if own:
            yield Halt(reason=first.reason, problem=first.problem)
        case Repair.kind, Halted(released=True) if own:
            yield Repair(reason=first.reason)
        case RunCommand.kind, ExtensionCommand() if own:
            yield RunCommand(extension=first.extension, command=first.command, arguments=first.arguments)
        case CallTool.kind, ToolCalled(parts=(ToolCall() as call, *_)) if own:
            yield CallTool(name=call.name, arguments=call.arguments)
        case AddNote.kind, NoteAdded() if own:
            yield AddNote(text=first.text)
        case RewriteSpan.kind, Rewritten(restored=False) if own:
            said = tuple(Replacement(role=message.role, parts=message.parts) for message in added)
            for expected in ("", first.expected):
                yield RewriteSpan(start=first.start, stop=first.stop, messages=said, expected=expected, reason=first.reason)
        case RestoreRevision.kind, Rewritten(restored=True) if own:
            for expected in ("", first.expected):
                yield RestoreRevision(revision=first.revision, expected=expected, reason=first.reason)
        case RedactContent.kind, Redacted() if own:
            yield RedactContent(positions=first.positions, entries=first.entries, reason=first.reason)
        case ReportOutcome.kind, _:
            yield from _outcome(row, first, session_id)
        case ReportResult.kind, _:
            yield from _result(row, second if isinstance(first, RequestClosed) else first)


def _messages(row: InboxRow, first: Entry, second: Entry | None, notes: tuple[str, ...]) -> Iterator[Command]:
    """What a message may have said."""
    message = second if isinstance(first, TurnStarted) else first
    limits = first.run if isinstance(first, TurnStarted) else None
    if not isinstance(message, MessageAdded) or not message.submission == getattr(first, "submission", "") == row.submission_id:
        return
    if not message.author and row.actor:
        return
    for author in {message.author} | ({""} if message.author == row.actor else set()):
        for deliver in ("queue", "steer") if message.deliver == "queue" else (message.deliver,):
            # msgspec omits a default only where it is the very same object.
            yield PostMessage(
                parts=message.parts,
                deliver=sys.intern(deliver),  # type: ignore[arg-type]
                author=author,
                turn=message.turn,
                reply=message.reply,
                source=message.source,
                notes=notes,
                limits=limits,
            )


def _answer(first: RequestClosed, second: Entry | None) -> Answer:
    """What an answer said."""
    told = second.parts[0] if isinstance(second, EffectSettled | OperationEnded | MessageAdded) and second.parts else None
    result, is_error = None, False
    if first.decision in ("settle", "reply") and isinstance(told, ToolCallResponse):
        result, is_error = told.response, told.is_error
    elif first.decision == "reply" and isinstance(told, Text):
        result = told.content
    return Answer(
        request_id=first.request_id,
        decision=first.decision,
        arguments=first.arguments,
        reason=first.reason,
        result=result,
        is_error=is_error,
    )


def _result(row: InboxRow, receipt: Entry | None) -> Iterator[Command]:
    """What a result from outside may have said."""
    if not isinstance(receipt, OperationEnded | EffectSettled) or not receipt.parts:
        return
    response = receipt.parts[0]
    named = row.submission_id == ids.derived_id("result", f"{receipt.operation}#{receipt.attempt}")
    if named and isinstance(response, ToolCallResponse) and getattr(receipt, "actor", row.actor) == row.actor:
        yield ReportResult(
            operation=receipt.operation,
            attempt=receipt.attempt,
            result=response.response,
            is_error=response.is_error,
            media=response.media,
        )


def _outcome(row: InboxRow, first: Entry, session_id: str) -> Iterator[Command]:
    """What a child may have told."""
    if (
        not isinstance(first, OperationEnded | ChildEnded)
        or first.spent is None
        or row.submission_id != ids.derived_id("outcome", first.operation)
    ):
        return
    outcome, reason = "completed", ""
    response = first.parts[0] if first.parts else None
    result = response.response if isinstance(response, ToolCallResponse) else None
    if isinstance(first, ChildEnded):
        outcome, reason = first.outcome, first.reason
    elif first.failure is not None:
        outcome, reason = first.failure.code.removeprefix("child_"), first.failure.message
    yield ReportOutcome(
        operation=first.operation,
        session=ids.child_session(session_id, first.operation),
        outcome=outcome,  # type: ignore[arg-type]
        spent=first.spent,
        result=result,
        reason=reason,
    )
