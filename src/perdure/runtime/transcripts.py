"""The transcript of any session: read in pages at any revision, compared, rewritten, restored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec
from msgspec.structs import replace

from ..core import canonical, commands
from ..core import checkpoint as checkpoints
from ..core.checkpoint import Checkpoint
from ..core.commands import Command, RedactContent, RestoreRevision, RewriteSpan
from ..core.entries import Entry, Laid, Rewritten
from ..core.errors import (
    CutThroughCall,
    InvalidSpan,
    NothingChanged,
    SessionBusy,
    StoreCorrupt,
    UnknownRevision,
    UsageError,
)
from ..core.evolve import calls_in
from ..core.layout import Layout
from ..core.messages import Message
from ..core.phase import phase
from ..core.reports import EditTranscript
from ..core.rules.transcripts import check_expected
from ..core.transcript import EMPTY, Transcript, chained, check_cut, check_first, check_replacement, check_span
from ..store.base import Committed, InboxRow, Loaded
from .about import REASON_LIMIT, check_text
from .attachments import Attachments
from .batch import TRIES, Batch, check_own, receipt_row
from .control import commit_by_sender
from .edits import Written, kept, written
from .halting import check_not_halted
from .lineage import Lineage
from .messages import Messages
from .names import check_limit, conflict, submission_id
from .scope import put_away

__all__ = ["Edit", "Hunk", "Revision", "Revisions", "Transcripts", "check_end", "check_idle", "differences", "revision_of", "role_at"]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """What a rewrite or a restore made of a transcript.

    ``parent`` is the revision before, ``count`` how many messages there are now, ``seq`` the entry that says so. ``effects`` counts what
    happened, or may have, and whose call the transcript doesn't show: ``sessions.effects(session_id)`` lists it.
    """

    session_id: str
    revision: str
    parent: str
    count: int
    seq: int
    effects: int
    submission: str
    duplicate: bool = False


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One edit of a transcript: positions ``[start, stop)`` of the revision ``parent`` gave way to others. Restored: all did."""

    revision: str
    parent: str
    seq: int
    at: int
    start: int
    stop: int
    count: int
    restored: bool
    reason: str
    actor: str
    submission: str


class Revisions(list[Revision]):
    """A page of edits, oldest first, and the revision that the transcript is at."""

    def __init__(self, found: Sequence[Revision], head: str) -> None:
        super().__init__(found)
        self.head = head


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """One place where two revisions differ: the messages ``old`` from position ``old_start`` on became ``new`` from ``new_start`` on."""

    old_start: int
    old: tuple[Message, ...]
    new_start: int
    new: tuple[Message, ...]


PAIRS = 200_000
"""How many pairs of equal messages are weighed against each other to find the smallest difference."""


def differences(was: Sequence[str], now: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Where two lists of digests differ: [low, high) of the one stands where [start, stop) of the other does.

    Where the same is said thousands of times, the first time is taken for the first, the second for the second, and so on: any two could
    be the same message, and weighing them all takes the square of their number.
    """
    ends = min(len(was), len(now))
    head = next((index for index in range(ends) if was[index] != now[index]), ends)
    tail = next((index for index in range(ends - head) if was[-1 - index] != now[-1 - index]), ends - head)
    old: list[Any] = list(was[head : len(was) - tail])
    new: list[Any] = list(now[head : len(now) - tail])
    often = Counter(new)
    if sum(often[digest] for digest in old) > PAIRS:
        old, new = _counted(old), _counted(new)
    matched = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(head + low, head + high, head + start, head + stop) for tag, low, high, start, stop in matched if tag != "equal"]


def _counted(digests: list[Any]) -> list[Any]:
    seen: Counter[Any] = Counter()
    counted = []
    for digest in digests:
        seen[digest] += 1
        counted.append((digest, seen[digest]))
    return counted


class Transcripts(Attachments):
    """The part of `Sessions` that is about transcripts."""

    # ------------------------------------------------------------------------------------------------------------- reading

    async def history(
        self, session_id: str, *, before: int | None = None, after: int | None = None, limit: int = 50, revision: str | None = None
    ) -> list[Message]:
        """A page of the transcript, oldest first: the ``limit`` messages before position ``before`` (None is the end).

        With ``after`` the first ``limit`` messages behind that position (-1 is the beginning), up to ``before``. ``revision`` reads the
        transcript as it was at any revision that it ever had; what was redacted since then says so in its place. Raises
        `SessionNotFound`, and `UnknownRevision`.
        """
        check_limit(limit)
        for name, value in (("before", before), ("after", after)):
            if value is not None and type(value) is not int:
                raise UsageError(f"{name} must be a number, not {value!r:.40}")
        head = await self._head(session_id)
        messages, transcript = await self._transcript(head, revision)
        length = len(transcript.layout)
        stop = length if before is None else max(0, min(before, length))
        if after is None:
            start = max(0, stop - limit)
        else:
            start = min(max(0, after + 1), stop)
            stop = min(stop, start + limit)
        return await messages.read(transcript.layout.slice(start, stop), start)

    async def revision(self, session_id: str, at: int | None = None) -> str:
        """The revision of the transcript, or of its first ``at`` messages. Raises `SessionNotFound`, and `InvalidSpan`."""
        head = await self._head(session_id)
        messages, transcript = await self._transcript(head)
        if at is None:
            return transcript.revision
        check_first(at, len(transcript.layout))
        return await revision_of(messages, transcript, at)

    async def revisions(self, session_id: str, *, limit: int = 50, before: int | None = None) -> Revisions:
        """The latest ``limit`` edits of the transcript before the entry ``before`` (None is the end), oldest first.

        Their ``head`` is the present revision, which messages moved on since the last edit. Raises `SessionNotFound`, and `UsageError` if
        no edit stands at ``before``.
        """
        check_limit(limit)
        head = await self._head(session_id)
        checkpoint = checkpoints.decode(head.row.checkpoint)
        messages = Messages(self._runtime.store, head.row)
        seq = checkpoint.transcript.base
        if before is not None:
            try:
                later = await messages.laid(before)
            except StoreCorrupt:
                later = None
            if later is None:
                raise UsageError(f"entry {before} is no edit of the transcript", hint="before= is the seq of the oldest edit of a page")
            seq = later.previous
        found: list[Revision] = []
        while seq and len(found) < limit and isinstance(entry := await messages.laid(seq), Rewritten):
            found.append(_listed(entry))
            seq = entry.previous
        return Revisions(found[::-1], checkpoint.revision)

    async def diff(self, session_id: str, old: str, new: str | None = None) -> list[Hunk]:
        """Where two revisions differ; ``new`` None is the present one. Raises `SessionNotFound`, and `UnknownRevision`."""
        head = await self._head(session_id)
        messages, before = await self._transcript(head, old)
        _, after = await self._transcript(head, new)
        same = 0
        for one, other in zip(before.layout, after.layout, strict=False):
            if one != other:
                break
            same += 1
        was = await messages.digests(before.layout.slice(same))
        now = await messages.digests(after.layout.slice(same))
        hunks: list[Hunk] = []
        # The loop has others to serve, and a heartbeat.
        for low, high, start, stop in await asyncio.to_thread(differences, was, now):
            removed = await messages.read(before.layout.slice(same + low, same + high), same + low)
            added = await messages.read(after.layout.slice(same + start, same + stop), same + start)
            hunks.append(Hunk(old_start=same + low, old=tuple(removed), new_start=same + start, new=tuple(added)))
        return hunks

    async def _transcript(self, head: Loaded, revision: str | None = None) -> tuple[Messages, Transcript]:
        """The present transcript, or an earlier one."""
        checkpoint = checkpoints.decode(head.row.checkpoint)
        messages = Messages(self._runtime.store, head.row)
        if revision is None or revision == checkpoint.revision:
            laid = await messages.laid(checkpoint.transcript.base)
            return messages, Transcript.at(laid, checkpoint.number, checkpoint.revision)
        return messages, await _find(messages, checkpoint, revision)

    # ------------------------------------------------------------------------------------------------------------- editing

    async def rewrite(
        self,
        session_id: str,
        span: tuple[int, int],
        replacement: Written,
        *,
        expected: str | None = None,
        reason: str = "",
        actor: str = "",
        submission: str | None = None,
    ) -> Edit:
        """Put messages in place of those at positions ``[start, stop)``. One commit; the old ones stay readable at their revision.

        ``replacement`` is messages with role and parts, or text, which is a user's; none of them takes the span out, and an empty span
        inserts. ``expected`` is the revision that the positions are of; None edits whatever is there. What was executed stays executed: see
        `Edit.effects`. The same ``submission`` again is the same edit.

        Raises, and changes nothing: `SessionBusy` while a turn runs, whatever else is wrong; `RevisionConflict` with both revisions;
        `InvalidSpan` and `CutThroughCall` for positions that can't be cut; `InvalidTranscript` for a replacement that can't stand there;
        `NothingChanged`; `SubmissionConflict`, `SessionArchived`, `SessionHalted`, `SessionNotFound`.
        """
        name = submission_id(submission)

        async def prepare(head: Loaded, checkpoint: Checkpoint, earlier: InboxRow | None) -> tuple[EditTranscript, Batch]:
            wanted = span, replacement, expected or "", reason, actor, name
            command, report, blobs = await self._rewriting(head, checkpoint, earlier, *wanted)
            batch = Batch(head, checkpoint, now=command.at)
            batch.keep(blobs)
            return report, batch

        return await self._edit(session_id, name, prepare)

    async def _rewriting(
        self,
        head: Loaded,
        checkpoint: Checkpoint,
        earlier: InboxRow | None,
        span: Any,
        given: Any,
        expected: str,
        reason: str,
        actor: str,
        submission: str,
    ) -> tuple[RewriteSpan, EditTranscript, tuple[Any, ...]]:
        session_id = head.row.session_id
        if not isinstance(span, Sequence) or isinstance(span, str) or len(span) != 2:
            raise InvalidSpan(f"{span!r:.60} is no span", hint="(start, stop): the first position that goes, and the first that stays")
        start, stop = span
        new = written(given)
        said, entries, blobs = kept(new)
        check_text(expected, "expected")
        check_span(start, stop, canonical.MAX_INTEGER)
        command = RewriteSpan(
            start=start,
            stop=stop,
            messages=said,
            expected=expected,
            reason=check_text(reason, "reason", REASON_LIMIT),
            actor=check_text(actor, "actor"),
            submission=submission,
            at=max(self._runtime.clock.now(), head.now),
        )
        _check_known(earlier, command)
        check_expected(checkpoint, expected)
        messages, old = await self._transcript(head)
        check_span(start, stop, len(old.layout))
        # One way through what stays: the message before the span, and all from it on.
        first = max(0, start - 1)
        outline = await messages.outline(old.layout.slice(first))

        def role(position: int) -> str:
            return outline[position - first].role if first <= position < len(old.layout) else ""

        check_cut(start, role(start))
        check_cut(stop, role(stop))
        for message in new:
            await self._check_blobs(session_id, message.parts)
        check_replacement(role(start - 1), new, role(stop))
        if start == stop and not entries:
            raise NothingChanged("nothing would be put in place of nothing", hint="name the messages that go, or some that come")
        known = old.known(start)
        if start and known.length == start:
            before = known.revision or outline[0].revision
        else:
            before = await revision_of(messages, old, start)
        edited, revisions = old.edited(
            start,
            stop,
            number=checkpoint.number,
            before=before,
            added=[entry.digest for entry in entries],
            behind=[item.digest for item in outline[stop - first :]],
        )
        added = tuple([replace(entry, revision=known) for entry, known in zip(entries, revisions, strict=True)])
        return command, EditTranscript(command=command, old=old, new=edited, messages=added, at=command.at), blobs

    async def restore(
        self,
        session_id: str,
        revision: str,
        *,
        expected: str | None = None,
        reason: str = "",
        actor: str = "",
        submission: str | None = None,
    ) -> Edit:
        """Bring back all messages of any earlier revision, under that revision. One commit that copies nothing; nothing is forgotten.

        Raises what `rewrite` raises, `UnknownRevision`, and `CutThroughCall` for a revision in the middle of a step.
        """
        name = submission_id(submission)

        async def prepare(head: Loaded, checkpoint: Checkpoint, earlier: InboxRow | None) -> tuple[EditTranscript, Batch]:
            command = RestoreRevision(
                revision=check_text(revision, "revision"),
                expected=check_text(expected or "", "expected"),
                reason=check_text(reason, "reason", REASON_LIMIT),
                actor=check_text(actor, "actor"),
                submission=name,
                at=max(self._runtime.clock.now(), head.now),
            )
            _check_known(earlier, command)
            check_expected(checkpoint, command.expected)
            messages, old = await self._transcript(head)
            _, new = await self._transcript(head, revision)
            await check_end(messages, new, len(new.layout))
            return EditTranscript(command=command, old=old, new=new, at=command.at), Batch(head, checkpoint, now=command.at)

        return await self._edit(session_id, name, prepare)

    async def _edit(
        self,
        session_id: str,
        submission: str,
        prepare: Callable[[Loaded, Checkpoint, InboxRow | None], Awaitable[tuple[EditTranscript, Batch]]],
    ) -> Edit:
        for _ in range(TRIES):
            head = await self._head(session_id)
            earlier = await self._runtime.store.submission(head.row.no, submission)
            if earlier is None:
                check_not_halted(head.row)
            checkpoint = checkpoints.decode(head.row.checkpoint)
            if earlier is None:
                check_own(head, checkpoint)
                check_idle(head, checkpoint)
            try:
                report, batch = await prepare(head, checkpoint, earlier)
            except _Known as known:
                return await self._known_edit(head, submission, known.seq)
            batch.apply(report)
            # Before the commit: what is done is answered without a read that could fail.
            effects = await Lineage(self._runtime.store, head.row, report.new.layout).count()
            if await self._commit_edit(head, batch, report.command):
                return _edited(session_id, batch.entries[0], submission, effects)
        raise SessionBusy(f"{session_id!r} changes all the time", hint="try again when less is going on")

    async def _commit_edit(self, head: Loaded, batch: Batch, command: RewriteSpan | RestoreRevision | RedactContent) -> bool:
        """The sender's own commit. False: somebody was faster."""
        row = receipt_row(command, arrival=head.row.inbox_head + 1, at=command.at, seq=batch.entries[0].seq)
        waiting = await self._runtime.store.inbox(head.row.no)
        return isinstance(await commit_by_sender(self._runtime, batch, row, waiting), Committed)

    async def _known_edit(self, head: Loaded, submission: str, seq: int) -> Edit:
        entry = await Messages(self._runtime.store, head.row).laid(seq)
        assert isinstance(entry, Rewritten)
        effects = await Lineage(self._runtime.store, head.row, Layout(entry.pieces)).count()
        return _edited(head.row.session_id, entry, submission, effects, duplicate=True)


def _edited(session_id: str, entry: Entry, submission: str, effects: int, *, duplicate: bool = False) -> Edit:
    assert isinstance(entry, Rewritten)
    return Edit(
        session_id=session_id,
        revision=entry.revision,
        parent=entry.expected,
        count=entry.count,
        seq=entry.seq,
        effects=effects,
        submission=submission,
        duplicate=duplicate,
    )


def _check_known(earlier: InboxRow | None, command: Command) -> None:
    """Raises `_Known` if this very edit was made already, and `SubmissionConflict` if its id was used for another."""
    if earlier is None:
        return
    if earlier.digest != commands.digest(command) or earlier.consumed_seq is None:
        raise conflict(command)
    raise _Known(earlier.consumed_seq)


class _Known(Exception):
    """The edit was made already, by the entry ``seq``."""

    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


def check_idle(head: Loaded, checkpoint: Checkpoint, *, archived: bool = False) -> None:
    """Raises `SessionBusy` while a turn runs or waits, and `SessionArchived` unless ``archived`` sessions are fine too."""
    row = head.row
    if row.status == "archived" and archived:
        return
    if row.status == "archived":
        raise put_away(row.session_id)
    if row.holder is not None or phase(checkpoint) != "idle":
        raise SessionBusy(f"a turn runs in {row.session_id!r}", hint="wait for its end, or interrupt it")


def _listed(entry: Rewritten) -> Revision:
    return Revision(
        revision=entry.revision,
        parent=entry.expected,
        seq=entry.seq,
        at=entry.at,
        start=entry.start,
        stop=entry.stop,
        count=entry.count,
        restored=entry.restored,
        reason=entry.reason,
        actor=entry.actor,
        submission=entry.submission,
    )


async def role_at(messages: Messages, transcript: Transcript, position: int) -> str:
    """The role of the message at a position, empty outside of the transcript."""
    if not 0 <= position < len(transcript.layout):
        return ""
    return (await messages.entry(transcript.layout, position)).role


async def check_end(messages: Messages, transcript: Transcript, count: int) -> None:
    """Raises `CutThroughCall` if the first ``count`` messages end with calls that have no response there."""
    if count and any(calls_in(message.parts) for message in await messages.read(transcript.layout.slice(count - 1, count), count - 1)):
        raise CutThroughCall(f"the first {count} messages end with a call without its response", hint="take its response too, or neither")


async def revision_of(messages: Messages, transcript: Transcript, count: int) -> str:
    """The revision of the first ``count`` messages."""
    known = transcript.known(count)
    revision = known.revision
    if not revision:
        revision = (await messages.entry(transcript.layout, known.length - 1)).revision
    for digest in await messages.digests(transcript.layout.slice(known.length, count)):
        revision = chained(revision, digest)
    return revision


async def _find(messages: Messages, checkpoint: Checkpoint, revision: str) -> Transcript:
    """The transcript as it was at a revision, whenever that was last. Raises `UnknownRevision`."""
    stretches: list[tuple[Laid | None, int, str]] = []
    laid, number, ends = await messages.laid(checkpoint.transcript.base), checkpoint.number, checkpoint.revision
    while True:
        if ends == revision:
            return Transcript.at(laid, number, revision)
        if (EMPTY if laid is None else laid.revision) == revision:
            return Transcript.at(laid, 0 if laid is None else laid.tail, revision)
        stretches.append((laid, number, ends))
        if not isinstance(laid, Rewritten):
            break
        number, ends = laid.number, laid.expected
        laid = await messages.laid(laid.previous)
    for laid, number, ends in stretches:
        whole = Transcript.at(laid, number, ends)
        appended = 0 if laid is None else laid.count
        async for entries in messages.entries(whole.layout.slice(appended)):
            for entry in entries:
                if entry.revision == revision:
                    return Transcript.at(laid, entry.number, revision)
    raise UnknownRevision(
        f"the transcript of {checkpoint.session_id!r} never was at revision {revision[:12]!r}", hint="`perdure revisions` lists its edits"
    )
