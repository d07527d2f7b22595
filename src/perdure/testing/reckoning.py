"""What must be true once a simulation has come to rest: of each session, of what was done, and of all that people were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from ..core.entries import (
    EffectSettled,
    Entry,
    Forked,
    MessageAdded,
    OperationEnded,
    OperationStarted,
    QueueChanged,
    Redacted,
    RequestOpened,
    Rewritten,
    SessionCreated,
    SubmissionRefused,
    TurnEnded,
    TurnStarted,
)
from ..core.errors import (
    CutThroughCall,
    Fenced,
    InvalidSpan,
    NothingChanged,
    Refused,
    RevisionConflict,
    SessionArchived,
    SessionBusy,
    SessionExists,
    SessionHalted,
    SessionNotFound,
    SessionStuck,
    StoreError,
    SubmissionRejected,
)
from ..core.journal import open_entry
from ..runtime.branches import Fork
from ..runtime.calling import ToolOutcome
from ..runtime.door import Submission
from ..runtime.messages import read_entries
from ..runtime.redaction import Removed
from ..runtime.result import Result, result_of
from ..runtime.runtime import Runtime
from ..runtime.transcripts import Edit
from ..store.base import InboxRow, SessionQuery, Store
from .checks import find_all_problems
from .families import children_of, family_problems
from .past import Past
from .people import PLEASE, WAITING, Call, People, branch_of
from .spending import pool_problems
from .world import Effect, World

__all__ = ["find_all"]


async def find_all(store: Store, world: World, people: People, happened: Counter[str], buried: dict[int, list[Entry]]) -> list[str]:
    """Sentences about all that is not as it must be. ``buried`` is what stood in the sessions that were deleted, by their numbers."""
    problems = [
        f"{call} still waits" for call in people.calls if call.wish in people.unheard and call.ended is None and not call.life.store.dead
    ]
    problems += [f"{call} was told too late" for call in people.calls if call.late]
    pasts: dict[str, Past] = {}
    for row in await store.sessions(SessionQuery(archived=True, limit=1000)):
        pasts[row.session_id] = Past(row, [open_entry(item) for item in await read_entries(store, row.no)])
    for entries in buried.values():
        assert isinstance(entries[0], SessionCreated)
        gone = await store.load(entries[0].session_id, hidden=True)
        if gone is not None and gone.row.status == "deleted":
            pasts[gone.row.session_id] = Past(gone.row, entries)
            if len(entries) != gone.row.version:
                problems.append(f"{gone.row.session_id}: version {gone.row.version} was deleted, and {len(entries)} is the last one known")
    problems += await find_all_problems(store)
    problems += family_problems(pasts)
    problems += await pool_problems(store, pasts.values())
    for past in pasts.values():
        happened.update(entry.kind for entry in past.entries)
        problems += await _problems(store, past, world)
        problems += [f"{past.row.session_id}: {problem}" async for problem in _remains(store, past, people)]
    runtime = Runtime(store)
    async with runtime:
        for call in people.calls:
            if call.ended is not None:
                problems += [f"{call}: {problem}" async for problem in _lies(runtime, pasts, call)]
    firsts = Counter(call.wish.submission for call in people.calls if getattr(call.answer, "duplicate", None) is False)
    problems += [f"{submission!r} was the first {times} times" for submission, times in firsts.items() if times > 1]
    for wish, seen in people.seen.items():
        told = pasts.get(wish.session)
        there = 0 if told is None else len(told.entries)
        wrong = next(
            (number for number, entry in enumerate(seen) if told is None or entry.seq != number + 1 or not told.says(entry)), len(seen)
        )
        if wrong < len(seen) or (len(seen) < there and told is not None and not told.deleted):
            problems.append(f"{wish.session}: {wish.submission!r} saw {len(seen)} of {there} entries, and from {wrong + 1} on others")
    return problems


# ------------------------------------------------------------------------------------------------------------------- sessions


async def _problems(store: Store, past: Past, world: World) -> list[str]:
    name, entries, problems = past.row.session_id, past.entries, list[str]()
    if (not past.deleted and past.row.status not in ("idle", "archived")) or past.row.holder is not None:
        problems.append(f"{name}: it is {past.row.status}, held by {past.row.holder}")
    problems += [f"{name}: {item.submission_id} still waits" for item in await store.inbox(past.row.no)]
    started: set[tuple[str, int]] = set()
    ends: dict[str, str] = {}
    for entry in entries:
        match entry:
            case OperationStarted():
                started.add((entry.operation, entry.attempt))
            case OperationEnded(final=True) | EffectSettled():
                ends[entry.operation] = entry.status
    uses = Counter(_used(entries))
    problems += [f"{name}: {submission!r} was used {times} times" for submission, times in uses.items() if times != 1]
    for submission in uses:
        row = await store.submission(past.row.no, submission)
        if row is None or (row.settled_seq is None and not past.deleted):
            problems.append(f"{name}: {submission!r} was used, and never settled")
    for effect in world.effects:
        if effect.session_id == name:
            problems += _effect_problems(effect, started, ends, world, open_end=past.deleted)
    problems += [f"{name}: {problem}" for problem in world.unrecorded(name, entries)]
    done = {effect.operation for effect in world.effects if effect.session_id == name}
    for entry in entries:
        if isinstance(entry, OperationEnded) and entry.final and entry.status == "succeeded" and entry.attempt and entry.parts:
            part: Any = entry.parts[0]
            if getattr(part, "name", "") in ("charge", "pay", "ask", "alone") and entry.operation not in done:
                problems.append(f"{name}: {entry.operation} is told as done, and nobody did it")
    return problems


def _used(entries: Iterable[Entry]) -> Iterator[str]:
    """The submissions of which something came, each time that something did."""
    for entry in entries:
        match entry:
            case TurnStarted() | SubmissionRefused() | QueueChanged(change="withdrawn"):
                yield entry.submission
            case MessageAdded(role="user", deliver="steer"):
                yield entry.submission


def _effect_problems(effect: Effect, started: set[tuple[str, int]], ends: dict[str, str], world: World, *, open_end: bool) -> list[str]:
    where = f"{effect.session_id}: {effect.tool} of {effect.operation}#{effect.attempt}"
    problems = []
    if (effect.operation, effect.attempt) not in started:
        problems.append(f"{where} was done before it was known that it would be")
    if effect.effect == "external":
        if world.times(effect.key) > 1:
            problems.append(f"{where} was done {world.times(effect.key)} times")
        if ends.get(effect.operation, "uncertain" if open_end else "") not in ("succeeded", "uncertain"):
            problems.append(f"{where} was done, and is told as {ends.get(effect.operation)}")
    return problems


async def _remains(store: Store, past: Past, people: People) -> AsyncIterator[str]:
    """Sentences about what people said that was removed, and can still be read."""
    removed = [call for call in people.calls if isinstance(call.answer, Removed) and call.answer.session_id == past.row.session_id]
    stored: list[bytes] = []
    if removed:
        stored = [entry.body or b"" for entry in await store.entries(past.row.no)]
        stored += [waiting.body or b"" for waiting in await store.inbox(past.row.no)]
    for call in removed:
        message, _ = people.noted[call.wish.submission]
        if message.seq in call.answer.entries and message.text.endswith(PLEASE) and any(message.text.encode() in body for body in stored):
            yield f"{message.text!r} was removed by {call.wish.submission!r}, and is still there"


# --------------------------------------------------------------------------------------------------------------------- answers


async def _lies(runtime: Runtime, pasts: dict[str, Past], call: Call) -> Any:
    """Sentences about what a call was told that the journal doesn't say."""
    past = pasts.get(call.session)
    row = None if past is None else await runtime.store.submission(past.row.no, call.wish.submission)
    if call.error is not None:
        about = None if past is None or not call.wish.about else await runtime.store.submission(past.row.no, call.wish.about)
        branch = pasts.get(branch_of(call.wish)) if call.wish.kind == "fork" else None
        gone = isinstance(call.error, SessionNotFound) and branch is not None and branch.deleted
        if not gone and not _true(call, past, row, about, [*children_of(pasts, call.session)]):
            yield f"it was told {type(call.error).__name__}: {call.error}; from {call.began} to {call.ended}, {_shown(past, row)}"
        return
    entry = None if past is None or row is None or row.settled_seq is None else past.at(row.settled_seq)
    match call.answer:
        case Result():
            if past is None or not isinstance(entry, TurnEnded):
                yield f"its result is {call.answer}, and it ended with {entry}"
            elif past.deleted or past.redacted & {*range(entry.began, entry.seq + 1)}:
                # What it said can't be read any more.
                if _measured(call.answer) != _measured(result_of(call.session, entry, None, ())):
                    yield f"its result is {call.answer}, and it ended with {entry}"
            elif call.answer != (stored := await runtime.sessions.result(call.session, call.wish.submission)):
                yield f"its result is {call.answer}, and {stored} is stored"
        case list():
            seqs = [event.seq for event in call.answer if isinstance(event, Entry) and not isinstance(event, RequestOpened)]
            last = call.answer[-1] if call.answer else None
            if past is None or not isinstance(last, TurnEnded) or entry is None or last.seq != entry.seq:
                yield f"its stream ended with {last}, and {entry} is stored"
            if seqs != sorted(set(seqs)) or past is None or not all(past.says(event) for event in call.answer if isinstance(event, Entry)):
                yield f"its stream had the entries {seqs}"
        case Submission():
            if row is None or row.arrival != call.answer.arrival or row.consumed_seq is None:
                yield f"it was sent as {call.answer}, and {_shown(past, row)}"
            elif row.kind == "message" and entry is None and past is not None and not past.deleted:
                yield "nothing came of it"
        case ToolOutcome():
            told = None if past is None else past.at(call.answer.seq)
            if not isinstance(told, OperationEnded | EffectSettled) or (told.operation, told.status) != (
                call.answer.operation,
                call.answer.status,
            ):
                yield f"its outcome is {call.answer}, and {told} is stored"
            if not isinstance(entry, TurnEnded) or entry.turn != call.answer.turn:
                yield f"its outcome is {call.answer}, and it ended with {entry}"
        case Edit():
            told = None if past is None else past.at(call.answer.seq)
            if not isinstance(told, Rewritten) or (told.revision, told.submission) != (call.answer.revision, call.wish.submission):
                yield f"its edit is {call.answer}, and {told} is stored"
        case Removed():
            told = None if past is None else past.at(call.answer.seq)
            if not isinstance(told, Redacted) or (told.submission, tuple(item.seq for item in told.rows)) != (
                call.wish.submission,
                call.answer.entries,
            ):
                yield f"it removed {call.answer}, and {told} is stored"
        case Fork():
            fork = pasts.get(call.answer.session_id)
            told = None if fork is None else fork.at(2)
            if not isinstance(told, Forked) or (told.session, told.revision) != (call.session, call.answer.revision):
                yield f"its fork is {call.answer}, and {told} is stored"


def _measured(result: Result) -> tuple[Any, ...]:
    """What a result says that is no content."""
    return result.submission, result.turn, result.status, result.usage, result.steps, result.tool_calls, result.call


def _true(call: Call, past: Past | None, row: InboxRow | None, about: InboxRow | None, children: Sequence[Past]) -> bool:
    """Whether an error says what was so at some time of the call. ``about`` is the submission that it was about.

    Who waits for a turn waits for its ``children``, and is told if one of them doesn't go on.
    """
    began, ended, error = call.began, call.ended, call.error
    assert ended is not None
    settled = None if past is None or row is None or row.settled_seq is None else past.at(row.settled_seq)

    def ever(states: list[bool]) -> bool:
        return any(states[began.version : ended.version + 1])

    if isinstance(error, Fenced):
        # Its process may learn only now that somebody took it before.
        return ended.fence > began.fence or ended.holder != call.life.runtime.runner_id
    if isinstance(error, StoreError):
        # What failed the work on a child is told to who waits for its caller once that work has ended.
        return ended.failures > began.failures or (began.just and bool(children))
    if past is None:
        return isinstance(error, SessionNotFound) and not isinstance(error, SessionArchived)
    if isinstance(settled, SubmissionRefused) and isinstance(error, Refused) and error.code == settled.failure.code:
        return True
    match error:
        case SubmissionRejected():
            reason = error.facts.get("reason")
            # What was refused without a trace may be refused for something else when it is asked for again.
            if isinstance(settled, SubmissionRefused) and settled.seq <= ended.version:
                return reason == settled.failure.code
            if isinstance(settled, QueueChanged) and settled.submission == call.wish.submission:
                return reason == "withdrawn"
            # It may have been taken later, when somebody said it again: what it says was so before.
            taken = row.consumed_seq - 1 if row is not None and row.consumed_seq else ended.version
            states = past.busy[began.version : min(ended.version, taken) + 1]
            match reason:
                case "idle":
                    return not all(states)
                case "busy":
                    return any(states)
                case "delivered":
                    own = isinstance(settled, QueueChanged) and settled.by == call.wish.submission
                    return bool(states) and not (own and about is not None and about.arrival <= began.arrived)
            return False
        case SessionArchived():
            return ever(past.archived)
        case SessionHalted():
            of_child = any(child.row.session_id in str(error) for child in children if any(child.halted))
            return ever(past.halted) or (call.wish.kind in (*WAITING, "follow") and of_child)
        case SessionNotFound():
            return began.version == 0 or ended.status == "deleted"
        case SessionBusy():
            return ever(past.busy) or None not in (began.holder, ended.holder) or began.version != ended.version
        case CutThroughCall():
            return ever(past.busy)
        case NothingChanged() if call.wish.kind == "redact":
            return bool(past.redacted or error.facts["unreachable"])
        case InvalidSpan():
            return call.wish.kind == "redact" and any(isinstance(entry, Rewritten) for entry in past.entries)
        case NothingChanged():
            states = past.archived if call.wish.kind == "revive" else past.halted
            return not all(states[began.version : ended.version + 1])
        case RevisionConflict():
            return bool(error.facts["expected"] != error.facts["actual"])
        case SessionExists():
            return True
        case SessionStuck():
            return "stuck" in (began.status, ended.status)
        case _:
            return False


def _shown(past: Past | None, row: InboxRow | None) -> str:
    if past is None or row is None:
        return "nothing of it is stored"
    settled = None if row.settled_seq is None else past.at(row.settled_seq)
    return f"stored is {row.kind} {row.arrival}, consumed by {row.consumed_seq}, settled by {settled}"
