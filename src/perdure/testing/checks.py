"""What must be true of a stored session, whatever happened to the processes that worked on it."""

from __future__ import annotations

from collections.abc import Sequence

from ..core import checkpoint as checkpoints
from ..core.entries import NoteAdded
from ..core.evolve import calls_in
from ..core.journal import open_entry
from ..core.messages import Message, RedactedPart
from ..core.transcript import Transcript
from ..runtime.messages import Messages, read_entries
from ..runtime.verify import verify
from ..store.base import SessionQuery, Store

__all__ = ["find_all_problems", "find_problems", "invalid_transcript", "read_transcript"]


async def find_all_problems(store: Store) -> list[str]:
    """`find_problems` for everything in a store, owners' pools included. More than 10,000 sessions are too many for a test."""
    problems = [str(problem) async for problem in verify(store)]
    if not problems:
        for row in await store.sessions(SessionQuery(archived=True, limit=10_000)):
            problems += await _transcript_problems(store, row.session_id)
    return problems


async def find_problems(store: Store, session_id: str) -> list[str]:
    """Sentences about what is wrong with a session, each with its id; empty if nothing is.

    They are what `perdure verify` finds, and, if that is nothing, what no provider would take of its transcript. Raises `SessionNotFound`.
    """
    return [str(problem) async for problem in verify(store, session_id)] or await _transcript_problems(store, session_id)


async def _transcript_problems(store: Store, session_id: str) -> list[str]:
    """What `invalid_transcript` finds in a stored session."""
    head = await store.load(session_id)
    if head is None:
        return []
    notes = [open_entry(row) for row in await read_entries(store, head.row.no, kinds=(NoteAdded.kind,))]
    prompts = [entry.seq for entry in notes if isinstance(entry, NoteAdded) and entry.continues]
    complete = checkpoints.decode(head.row.checkpoint).turn is None
    found = invalid_transcript(await read_transcript(store, session_id), complete=complete, prompts=prompts)
    return [f"{session_id}: {problem}" for problem in found]


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
