"""What must be true of a stored session, whatever happened to the processes that worked on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from ..core import checkpoint as checkpoints
from ..core.checkpoint import Checkpoint
from ..core.effects import effect_key
from ..core.entries import (
    EffectSettled,
    Entry,
    Forked,
    MessageAdded,
    NoteAdded,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    Redacted,
    RequestClosed,
    RequestOpened,
    TurnEnded,
    TurnStarted,
)
from ..core.errors import PerdureError
from ..core.evolve import calls_in, evolve, fold
from ..core.journal import GENESIS, Sealed, body_digest, link, open_entry
from ..core.messages import Message, RedactedPart, StoredPart
from ..core.records import Plan
from ..core.transcript import Transcript
from ..runtime.batch import parked
from ..runtime.messages import Messages, read_entries
from ..runtime.verify_budgets import BudgetCheck, PoolCheck
from ..store.base import Loaded, SessionQuery, SessionStatus, Store

__all__ = ["find_all_problems", "find_pool_problems", "find_problems", "invalid_transcript", "read_transcript"]


async def find_all_problems(store: Store) -> list[str]:
    """`find_problems` for every session of a store, each line with its session's id. More than 10,000 sessions are too many for a test."""
    rows = await store.sessions(SessionQuery(archived=True, limit=10_000))
    problems = [f"{row.session_id}: {problem}" for row in rows for problem in await find_problems(store, row.session_id)]
    return problems + await find_pool_problems(store)


async def find_pool_problems(store: Store) -> list[str]:
    """Sentences about owners' pools that are charged for something else than their sessions' journals say; see `find_all_problems`."""
    pools = await PoolCheck.of(store)
    for row in await store.sessions(SessionQuery(archived=True, status=get_args(SessionStatus), limit=10_000)):
        if row.status == "deleted":
            pools.miss()
            continue
        check = BudgetCheck()
        check.finish(_counted(check, [open_entry(item) for item in await read_entries(store, row.no)], []))
        pools.add(row.owner, check.charges)
    return [f"{owner}: {what}" for owner, what in await pools.problems(store)]


def _counted(check: BudgetCheck, entries: Sequence[Entry], problems: list[str]) -> Checkpoint:
    """What a journal adds up to, and what it counts wrongly."""
    before = Checkpoint()
    for entry in entries:
        after = evolve(before, entry)
        if wrong := check.take(entry, before, after):
            problems.append(f"entry {entry.seq}: {wrong}")
        before = after
    return before


async def find_problems(store: Store, session_id: str) -> list[str]:
    """Sentences about what is wrong with a session; empty if nothing is.

    The journal has no gap and its chain is whole; folded, it is the checkpoint; every turn that began has one end, every attempt one
    receipt, every request one answer, every call one response; what is counted is what the ledger of model calls has; every submission is
    settled once, where it says; the effects that were recorded are those of the receipts; content that is referred to is there; the
    catalogue says what the checkpoint says.
    """
    head = await store.load(session_id)
    if head is None:
        return ["there is no such session"]
    rows = await store.entries(head.row.no)
    try:
        entries = [open_entry(row) for row in await read_entries(store, head.row.no)]
        problems = [*_chain_problems(head, rows, entries)]
    except PerdureError as error:
        return [str(error)]
    folded = checkpoints.encode(fold(entries))
    if folded != head.row.checkpoint:
        problems.append(f"the journal adds up to {folded.decode()}, but the checkpoint is {head.row.checkpoint.decode()}")
    _counted(BudgetCheck(), entries, problems)
    problems += _turn_problems(entries)
    problems += _attempt_problems(entries)
    problems += _request_problems(entries)
    problems += await _content_problems(store, head, entries)
    problems += await _inbox_problems(store, head, entries)
    problems += await _effect_problems(store, head, entries)
    problems += await _catalogue_problems(store, head)
    if not problems:
        is_open = checkpoints.decode(head.row.checkpoint).turn is not None
        prompts = [entry.seq for entry in entries if isinstance(entry, NoteAdded) and entry.continues]
        problems += invalid_transcript(await read_transcript(store, session_id), complete=not is_open, prompts=prompts)
    return problems


async def read_transcript(store: Store, session_id: str) -> list[Message]:
    """The session's messages with every reference resolved."""
    head = await store.load(session_id)
    if head is None:
        return []
    checkpoint = checkpoints.decode(head.row.checkpoint)
    messages = Messages(store, head.row)
    laid = await messages.laid(checkpoint.transcript.base)
    return await messages.read(Transcript.at(laid, checkpoint.number, checkpoint.revision).layout, 0)


def invalid_transcript(messages: Sequence[Message], *, complete: bool = True, prompts: Sequence[int] = ()) -> list[str]:
    """What a provider would not take: calls without exactly one response right after them, responses without a call, answers in a row.

    ``complete`` False: the last answer may still wait for its responses. ``prompts`` are the seqs of notes with which turns went on: an
    answer may follow one, too.
    """
    problems: list[str] = []
    before: Message | None = None
    for index, message in enumerate(messages):
        calls = [call.id for call in calls_in(before.parts)] if before is not None else []
        if message.role == "tool":
            responses = [part.call if isinstance(part, RedactedPart) else getattr(part, "id", "") for part in message.parts]
            if responses != calls or not responses:
                problems.append(f"message {index} responds to {responses}, but the calls before it are {calls}")
        else:
            if calls:
                problems.append(f"message {index} is {message.role}'s, but the calls {calls} before it have no response")
            prompted = before is not None and any(before.seq < prompt < message.seq for prompt in prompts)
            if message.role == "assistant" and (before is None or before.role == "assistant") and not prompted:
                problems.append(f"message {index} is an answer to nobody")
        if message.position != index:
            problems.append(f"message {index} says that it stands at {message.position}")
        before = message
    if complete and before is not None and calls_in(before.parts):
        problems.append("the last message asks for calls that have no response")
    return problems


def _chain_problems(head: Loaded, rows: Sequence[Sealed], entries: Sequence[Entry]) -> Iterable[str]:
    if [row.seq for row in rows] != list(range(1, head.row.version + 1)):
        yield f"the journal of version {head.row.version} has the entries {[row.seq for row in rows]}"
    chain, number, at = GENESIS, 0, 0
    forked = next((entry for entry in entries if isinstance(entry, Forked)), None)
    redacted = {item.seq for entry in entries if isinstance(entry, Redacted) for item in entry.rows}
    if forked is not None:
        chain = bytes.fromhex(forked.chain)
    for row in rows:
        number += row.kind == "message"
        if forked is not None and row.seq == forked.seq:
            number = forked.cut
        if (row.body is None) != (row.seq in redacted):
            yield f"entry {row.seq} {'has no content' if row.body is None else 'still has the content'}, against what the redactions say"
        chain = link(chain, head.row.session_id, row.seq, row.number, row.kind, row.at, row.body_digest)
        if chain != row.chain:
            yield f"the chain breaks at entry {row.seq}"
        if row.salt is not None and row.body is not None and body_digest(row.salt, row.body) != row.body_digest:
            yield f"the body of entry {row.seq} is not the one that was written"
        if row.number != number:
            yield f"entry {row.seq} counts {row.number} messages, but {number} stand up to it"
        if row.at < at:
            yield f"at entry {row.seq} time goes back"
        at = max(at, row.at)
    if chain != head.chain:
        yield "the head's chain is not that of the last entry"


def _turn_problems(entries: Sequence[Entry]) -> Iterable[str]:
    running: TurnStarted | None = None
    accepted: set[str] = set()
    for entry in entries:
        match entry:
            case TurnStarted():
                if running is not None:
                    yield f"turn {entry.turn} begins while {running.turn} runs"
                if entry.submission in accepted:
                    yield f"the submission {entry.submission!r} began a second turn, {entry.turn}"
                accepted.add(entry.submission)
                running = entry
            case TurnEnded():
                if running is None or (entry.turn, entry.submission) != (running.turn, running.submission):
                    yield f"entry {entry.seq} ends {entry.turn}, which doesn't run"
                running = None
            case _:
                pass


def _attempt_problems(entries: Sequence[Entry]) -> Iterable[str]:
    attempts: dict[str, int] = {}
    ends: dict[tuple[str, int], str] = {}
    ended: set[str] = set()
    planned: set[str] = set()
    for entry in entries:
        match entry:
            case OperationPlanned():
                if entry.operation in planned:
                    yield f"{entry.operation} is planned twice"
                planned.add(entry.operation)
            case OperationStarted():
                if entry.attempt != attempts.get(entry.operation, 0) + 1:
                    yield f"entry {entry.seq} starts attempt {entry.attempt} of {entry.operation} after {attempts.get(entry.operation, 0)}"
                if entry.operation in ended:
                    yield f"entry {entry.seq} starts {entry.operation}, which has ended"
                attempts[entry.operation] = entry.attempt
            case OperationEnded():
                if entry.operation in ended:
                    yield f"entry {entry.seq} is a second end of {entry.operation}"
                if entry.attempt not in (0, attempts.get(entry.operation, 0)):
                    yield f"entry {entry.seq} ends attempt {entry.attempt} of {entry.operation}, which is not the running one"
                known = ends.get((entry.operation, entry.attempt), "")
                if entry.attempt and known not in ("", "uncertain") and not entry.final:
                    yield f"entry {entry.seq} is a second receipt of {entry.operation}#{entry.attempt}"
                ends[entry.operation, entry.attempt] = entry.status
                if entry.final:
                    ended.add(entry.operation)
            case _:
                pass


def _request_problems(entries: Sequence[Entry]) -> Iterable[str]:
    opened: set[str] = set()
    for entry in entries:
        match entry:
            case RequestOpened():
                if entry.request_id in opened:
                    yield f"entry {entry.seq} asks {entry.request_id} while it is open"
                opened.add(entry.request_id)
            case RequestClosed():
                if entry.request_id not in opened:
                    yield f"entry {entry.seq} closes {entry.request_id}, which is not open"
                opened.discard(entry.request_id)
            case TurnEnded() if opened:
                yield f"the turn ends at entry {entry.seq} while {sorted(opened)} are open"
            case _:
                pass


async def _content_problems(store: Store, head: Loaded, entries: Sequence[Entry]) -> list[str]:
    wanted: dict[str, int] = {}
    receipts: set[int] = set()
    problems: list[str] = []
    for entry in entries:
        match entry:
            case TurnStarted():
                wanted[entry.definition] = entry.seq
                wanted |= {part.digest: entry.seq for part in getattr(entry, "parts", ()) if isinstance(part, StoredPart)}
            case OperationStarted(request=request) if request is not None:
                wanted |= dict.fromkeys((request.instructions, request.tools, request.settings), entry.seq)
                if request.additions:
                    wanted[request.additions] = entry.seq
            case OperationEnded() | EffectSettled():
                receipts.add(entry.seq)
                wanted |= {part.digest: entry.seq for part in entry.parts if isinstance(part, StoredPart)}
            case MessageAdded():
                wanted |= {part.digest: entry.seq for part in entry.parts if isinstance(part, StoredPart)}
                refers = [item.receipt for item in entry.responses] + ([entry.receipt] if entry.receipt else [])
                problems += [f"message {entry.seq} refers to {seq}, which is no receipt" for seq in refers if seq not in receipts]
            case _:
                pass
    there = set(await store.blobs(head.row.root))
    return problems + [
        f"entry {seq} refers to the content {digest}, which is missing" for digest, seq in wanted.items() if digest not in there
    ]


async def _inbox_problems(store: Store, head: Loaded, entries: Sequence[Entry]) -> list[str]:
    problems: list[str] = []
    ends = {entry.submission: entry for entry in entries if isinstance(entry, TurnEnded)}
    for entry in entries:
        if not isinstance(entry, TurnStarted):
            continue
        row = await store.submission(head.row.no, entry.submission)
        end = ends.get(entry.submission)
        if row is None or row.consumed_seq is None or row.body is not None:
            problems.append(f"turn {entry.turn} came from {entry.submission!r}, which the inbox has not consumed")
        elif row.settled_seq != (end.seq if end is not None else None):
            problems.append(f"{entry.submission!r} is settled at {row.settled_seq}, but its turn ended at {end.seq if end else None}")
    waiting = await store.inbox(head.row.no)
    problems += [f"the waiting submission {row.submission_id!r} has no body" for row in waiting if row.body is None]
    return problems


async def _effect_problems(store: Store, head: Loaded, entries: Sequence[Entry]) -> list[str]:
    plans: dict[str, Plan] = {}
    by_seq = {entry.seq: entry for entry in entries}
    expected: dict[tuple[bytes, int], str] = {}
    for entry in entries:
        match entry:
            case OperationPlanned():
                plans[entry.operation] = entry.plan
            case OperationStarted(plan=plan) if plan is not None:
                plans[entry.operation] = plan
            case OperationEnded(final=True, attempt=attempt) if attempt and (key := _key(plans.get(entry.operation))):
                expected[key, entry.seq] = entry.status
            case EffectSettled() if key := _key(plans.get(entry.operation)):
                receipt = by_seq.get(entry.receipt)
                closed = isinstance(receipt, OperationEnded) and receipt.final
                expected[key, entry.receipt if closed else entry.seq] = entry.status
            case _:
                pass
    found = {(row.effect_key, row.seq): row.state for row in await store.effects(head.row.no)}
    return [] if found == expected else [f"the effects are {found}, but the receipts say {expected}"]


def _key(plan: Plan | None) -> bytes | None:
    return effect_key(plan.name, plan.effect_key) if plan is not None and plan.effect_key else None


async def _catalogue_problems(store: Store, head: Loaded) -> list[str]:
    row = head.row
    checkpoint = checkpoints.decode(row.checkpoint)
    waiting = await store.inbox(row.no)
    problems = []
    if row.holder is not None:
        if row.status != "running":
            problems.append(f"it is held by {row.holder} and its status is {row.status}")
    elif row.status not in ("stuck", "halted"):
        status, _ = parked(checkpoint, waiting, row.updated)
        if row.status != status:
            problems.append(f"its status is {row.status}, but it is {status}")
        runnable = status == "queued"
        if runnable and row.wake_at is None:
            problems.append("there is something to do, and nobody will be woken")
        deadlines = [*checkpoint.turn.deadlines] if checkpoint.turn is not None else []
        if status == "waiting" and deadlines and (row.wake_at is None or row.wake_at > min(deadlines)):
            problems.append(f"a request runs out at {min(deadlines)}, and whoever must look is woken at {row.wake_at}")
        if status == "idle" and row.wake_at is not None:
            problems.append("nothing is to do, and somebody will be woken for it")
    return problems
