"""Messages on their way into sessions, which the first one creates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..agent.limits import wrong_limit
from ..core import canonical
from ..core import checkpoint as checkpoints
from ..core.checkpoint import Checkpoint
from ..core.commands import AddNote, Compact, Deliver, EditMessage, PostMessage, Resume, Withdraw
from ..core.entries import MessageAdded, OperationEnded, SessionCreated
from ..core.errors import InvalidMessage, SubmissionRejected, UsageError
from ..core.evolve import evolve
from ..core.journal import GENESIS
from ..core.messages import QUOTE_LENGTH, Part, Quote, Source, Text, text_of
from ..core.records import Identity, Limits, Metadata
from ..store.base import Catalogue, Loaded, NewSession
from ..tools.moments import Moment, moment_of
from .about import check_about, check_labels, check_text, check_title, keep_metadata
from .attachments import Attachments
from .batch import seal_all
from .content import Input, content_of
from .context import resolve_parts
from .door import Submission, checked
from .infos import Infos
from .names import check_id, submission_id

__all__ = ["NOTE_LIMIT", "Sending", "check_deliver", "check_limits"]

NOTE_LIMIT = 32 * 1024
"""The longest note, and the longest arguments of a middleware's command (bytes)."""

NOTES_LIMIT = 16
"""The most notes that come with one message."""

DELIVERIES: tuple[Deliver, ...] = ("turn", "queue", "steer")


class Sending(Infos, Attachments):
    """The part of `Sessions` that is about messages, until they are delivered."""

    async def send(
        self,
        session_id: str,
        content: Input,
        *,
        submission: str | None = None,
        deliver: Deliver | None = None,
        turn: str = "",
        reply_to: int | None = None,
        quote: str | None = None,
        source: Source | None = None,
        actor: str = "",
        author: str = "",
        not_before: Moment | None = None,
        notes: Iterable[str] = (),
        agent: str = "",
        identity: Identity | None = None,
        labels: dict[str, str] | None = None,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> Submission:
        """Put a message into a session's inbox, creating the session if it isn't there. Durable when this returns.

        ``agent``, ``identity``, ``labels`` and ``title`` matter for a new session only; ``metadata`` replaces that of any.
        Sending the same ``submission`` again is sending it once; with another content it raises `SubmissionConflict`. Also raises
        `InvalidMessage`, `QueueFull`, `SessionArchived` and `SessionNotFound` (deleted). ``limits`` bound the turn that the message begins,
        besides its agent's, whichever are tighter. Whether the session can go on is for whoever takes it up: a message to one of newer
        rules waits there.

        ``not_before`` is when it may be delivered at the earliest: a `datetime` with a time zone, a `timedelta` from now on, or
        milliseconds since 1970. Until then it can be edited and withdrawn, and nobody is held for it; of one that is sent again the first
        time counts.

        ``deliver``: ``turn`` (the default) and ``queue`` begin a turn of their own, ``steer`` joins the running one; ``turn="t12"`` is a
        steer for that turn alone. ``reply_to`` is the `Message.seq` of the message that it answers, and ``quote``, if given, must be
        what stands there. ``source`` says that no person sent it: models read it as advice, nobody can edit it, and its own id is the
        submission. ``notes`` (16 at most) tell the model more, as `note` does; if the turn fails before the model said anything, the commit
        that ends it withdraws them. `SubmissionRejected` says *stale_turn* or *unknown_quote*, and nothing is stored.
        """
        check_id(session_id, "a session id")
        turn = check_text(turn, "turn")
        deliver = ("steer" if turn else "turn") if deliver is None else deliver
        if turn and deliver != "steer":
            raise UsageError("turn= names the turn that a steer is for", hint='leave deliver= out, or say "steer"')
        deliver = check_deliver(deliver)
        limits = check_limits(limits)
        if limits is not None and deliver == "steer":
            raise UsageError("limits= bound the turn that a message begins, and a steer begins none", hint='deliver="turn"')
        earliest = None if not_before is None else moment_of(not_before, self._runtime.clock.now(), "not_before")
        given = content_of(content)
        if source is not None:
            submission = check_source(source, given.whole, author) if submission is None else submission
            author = source.name
        post = PostMessage(
            parts=given.parts,
            deliver=deliver,
            author=check_text(author, "author"),
            turn=turn,
            source=source,
            notes=_notes(notes),
            limits=limits,
            actor=actor,
            submission=submission_id(submission),
        )
        if turn or reply_to is not None or quote is not None:
            post = await self._related(session_id, post, reply_to, quote)
        command = checked(post)
        create = self._new_session(session_id, agent, identity, labels, title or "", metadata)
        await self._check_blobs(session_id, given.referred)
        existed = metadata is not None and await self.number(session_id) is not None
        if metadata is not None and existed:
            await self.ensure_metadata(session_id, metadata)
        sent = await self._send(session_id, command, not_before=earliest, create=create, blobs=given.blobs)
        if metadata is not None and not existed:
            # Somebody else may have been the first.
            await self.ensure_metadata(session_id, metadata)
        return sent

    async def _related(self, session_id: str, post: PostMessage, reply_to: int | None, quote: str | None) -> PostMessage:
        """The message with what it quotes. Raises `SubmissionRejected` where what it relates to isn't there, unless it was sent before."""
        if reply_to is None and quote is not None:
            raise UsageError("a quote belongs to a message", hint="reply_to= says to which, by its seq")
        if reply_to is not None and (type(reply_to) is not int or reply_to < 1):
            raise UsageError(f"reply_to={reply_to!r:.100} is no message", hint="the seq of one, as history shows it")
        head = await self._runtime.store.load(session_id)
        head = None if head is None else self._mine(head)
        known = head is not None and await self._runtime.store.submission(head.row.no, post.submission) is not None
        if reply_to is not None:
            text = None if head is None else await self._quoted(head, reply_to)
            if text is None or quote not in (None, text.text):
                raise SubmissionRejected(
                    f"message {reply_to} of {session_id!r} doesn't say that", hint="quote what its text is, whole", reason="unknown_quote"
                )
            post = msgspec.structs.replace(post, reply=msgspec.structs.replace(text, text=_cut(text.text)))
        if post.turn and not known:
            running = None if head is None else checkpoints.decode(head.row.checkpoint).turn
            if running is None or running.id != post.turn:
                raise SubmissionRejected(
                    f"the turn {post.turn} doesn't run", hint="send it without turn= for the next one", reason="stale_turn"
                )
        return post

    async def _quoted(self, head: Loaded, seq: int) -> Quote | None:
        """What a person or a model said in an entry."""
        entry = await self._entry(head, seq) if seq <= head.row.version else None
        if not isinstance(entry, MessageAdded) or entry.role == "tool":
            return None
        said = entry.parts
        if entry.receipt and not said:
            receipt = await self._entry(head, entry.receipt)
            said = receipt.parts if isinstance(receipt, OperationEnded) else ()
        text = text_of(await resolve_parts(said, self._fetcher(head.row)))
        return Quote(seq=seq, role=entry.role, text=text) if text else None

    def _new_session(
        self,
        session_id: str,
        agent: str,
        identity: Identity | None,
        labels: dict[str, str] | None,
        title: str,
        metadata: dict[str, Any] | None,
    ) -> NewSession:
        identity = self.new_identity(identity)
        labels = {} if labels is None else check_labels(labels)
        title = check_title(title)
        check_about(identity, labels, title)
        kept, blobs = (Metadata(), ()) if metadata is None else keep_metadata(metadata)
        now = self._runtime.clock.now()
        entry = SessionCreated(
            seq=1,
            at=now,
            session_id=session_id,
            root=session_id,
            agent=check_text(agent, "agent"),
            identity=identity,
            title=title,
            labels=labels,
            metadata=kept,
        )
        checkpoint = evolve(Checkpoint(), entry)
        return NewSession(
            root=session_id,
            parent=None,
            parent_kind=None,
            owner=identity.owner,
            entries=seal_all([entry], chain=GENESIS, session_id=session_id),
            checkpoint=checkpoints.encode(checkpoint),
            catalogue=Catalogue(status="queued", wake_at=None, title=entry.title, labels=entry.labels, agent=agent),
            blobs=blobs,
        )

    async def edit(self, session_id: str, message: str, content: Input, *, submission: str | None = None, actor: str = "") -> Submission:
        """Give a waiting message another content, by its submission id; its place stays, and sending again what was sent first is still
        sending it once.

        Raises `SubmissionRejected` (*delivered*) if no such message waits, and *not_a_persons* for one that a source sent; where a process
        holds the session, that is in the journal.
        """
        given = content_of(content)
        message = check_id(message, "a submission id")
        command = checked(EditMessage(message=message, parts=given.parts, submission=submission_id(submission), actor=actor))
        await self._head(session_id)
        await self._check_blobs(session_id, given.referred)
        return await self._control(session_id, command, blobs=given.blobs)

    async def withdraw(self, session_id: str, message: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Take back a waiting message, by its submission id.

        Raises `SubmissionRejected` (*delivered*) if no such message waits; where a process holds the session, that is in the journal.
        """
        message = check_id(message, "a submission id")
        return await self._control(session_id, Withdraw(message=message, submission=submission_id(submission), actor=actor))

    async def note(self, session_id: str, text: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Tell the model something besides the conversation; it is in the context from the next model call on."""
        return await self._control(session_id, AddNote(text=_note(text), submission=submission_id(submission), actor=actor))

    async def resume(self, session_id: str, limits: Limits | None = None, *, submission: str | None = None, actor: str = "") -> Submission:
        """Go on with the turn that ended at a limit. Durable when this returns; `result` says what became of it.

        It is a turn of its own, without a message, and counts on from what the limited one used. ``limits`` take the place of its agent's
        for this turn, where they say something: raise the one that was reached, unless the agent's own, the session's or the owner's was
        raised meanwhile. Refused, in the journal, as *not_limited* if the last turn ended otherwise or another one began since. Raises
        `SessionNotFound`, `QueueFull`, `SubmissionConflict`, and `UsageError` for limits that are none.
        """
        command = Resume(limits=check_limits(limits), submission=submission_id(submission), actor=actor)
        return await self._send(session_id, checked(command))

    async def compact(self, session_id: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Let notes stand for the conversation so far, for models; what people see stays. Durable when this returns.

        It waits for a running turn's end, and is a turn of its own: `result` says what became of it. Raises `SessionNotFound`,
        `QueueFull` and `SubmissionConflict`.
        """
        return await self._send(session_id, checked(Compact(submission=submission_id(submission), actor=actor)))


def _note(text: Any) -> str:
    """A note that can be kept. Raises `InvalidMessage`."""
    if not isinstance(text, str):
        raise InvalidMessage(f"a note is text, not {type(text).__name__}")
    text = canonical.check(text, "note")
    if not text.strip() or len(text.encode()) > NOTE_LIMIT:
        raise InvalidMessage("a note is empty or too long", hint=f"1 to {NOTE_LIMIT} bytes of text")
    return str(text)


def _notes(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidMessage(f"notes are a list of texts, not {type(given).__name__}", hint='notes=["it rains"]')
    notes = tuple(_note(text) for text in given)
    if len(notes) > NOTES_LIMIT:
        raise InvalidMessage(f"{len(notes)} notes came with one message", hint=f"at most {NOTES_LIMIT}")
    return notes


def check_limits(limits: Any) -> Limits | None:
    """Limits that a turn can be held to. Raises `UsageError`."""
    if limits is None:
        return None
    if (wrong := wrong_limit(limits)) is not None:
        raise UsageError(f"the limits {wrong[0]}", hint=wrong[1])
    return limits if limits != Limits() else None


def check_deliver(deliver: Any) -> Deliver:
    """A known way to deliver a message. Raises `UsageError`."""
    if deliver not in DELIVERIES:
        raise UsageError(f"deliver={deliver!r} is unknown", hint='"turn", "queue" or "steer"')
    # msgspec omits a default only where it is the very same object, and the digest must not depend on where the text came from.
    return DELIVERIES[DELIVERIES.index(deliver)]


def check_source(source: Any, parts: tuple[Part, ...], author: str) -> str:
    """The submission that a source's message is. Raises `UsageError` or `InvalidMessage`."""
    if not isinstance(source, Source) or source.kind not in ("agent", "system"):
        raise UsageError("source must be a Source", hint='Source(kind="agent", name="planner", id="msg-7")')
    if author:
        raise UsageError("a message has an author or a source", hint="source.name is who wrote it")
    for what, value in (("source.name", source.name), ("source.id", source.id)):
        if not check_text(value, what).strip():
            raise UsageError(f"{what} is blank")
    if not all(isinstance(part, Text) for part in parts):
        raise InvalidMessage("a message of a source holds text alone", hint="let a person attach files")
    return "source:" + canonical.short_digest(source.kind, source.name, source.id)[:32]


def _cut(text: str) -> str:
    return text if len(text) <= QUOTE_LENGTH else text[:QUOTE_LENGTH] + "…"
