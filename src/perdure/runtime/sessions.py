"""The catalogue: everything about sessions that needs no agent, and works whoever holds them."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from ..core import canonical, commands
from ..core import checkpoint as checkpoints
from ..core.checkpoint import Checkpoint, Grant, Operation
from ..core.commands import (
    AddNote,
    Answer,
    Archive,
    Command,
    Compact,
    Deliver,
    Describe,
    EditMessage,
    Interrupt,
    PostMessage,
    ReportResult,
    Revive,
    RevokeGrant,
    RunCommand,
    SelectRoute,
    Withdraw,
)
from ..core.draft import Draft
from ..core.effects import tool_of
from ..core.entries import (
    TERMINALS,
    Decision,
    Entry,
    Foreign,
    Identity,
    MessageAdded,
    Metadata,
    OperationEnded,
    OperationPlanned,
    QueueChanged,
    RequestClosed,
    RequestOpened,
    SessionCreated,
    SubmissionRefused,
    TurnEnded,
    TurnStarted,
)
from ..core.errors import (
    InvalidMedia,
    InvalidMessage,
    InvalidTranscript,
    LimitExceeded,
    NewerRules,
    QueueFull,
    SessionArchived,
    SessionExists,
    SessionNotFound,
    StaleRequest,
    StoreCorrupt,
    SubmissionRejected,
    UsageError,
)
from ..core.journal import GENESIS, open_entry
from ..core.media import Media
from ..core.messages import QUOTE_LENGTH, Blob, Part, Quote, Source, Text, ToolCall, media_of, text_of, title_of
from ..core.reports import TimePassed
from ..core.rules.requests import check_decision
from ..core.transcript import check_replacement
from ..store.base import (
    AlreadyThere,
    Catalogue,
    Committed,
    Conflict,
    Created,
    InboxRow,
    Loaded,
    NewSession,
    NoSession,
    QueueIsFull,
    Send,
    SessionRow,
    StoredBlob,
)
from ..tools.returned import parted
from . import listing, tokens
from .about import (
    check_about,
    check_identity,
    check_labels,
    check_owner,
    check_text,
    check_title,
    keep_metadata,
    read_metadata,
)
from .archive import put_away_or_back
from .batch import Batch, parked, receipt_row, seal_all
from .branches import Branches
from .consumers import Consumer
from .content import Input, content_of
from .context import CONTEXT_KINDS, Context, Fetch, resolve_parts, stored_content
from .control import is_control, promote_steers, take_control
from .deleting import delete
from .edits import kept, written
from .feed import ResumeRequested
from .foreign import Foreigner
from .foreign import read as read_foreign
from .ledger import Ledger
from .messages import read_entries
from .names import check_id, check_limit, conflict, submission_id
from .perform import OUTPUT_LIMIT, stored_media
from .redaction import Redaction
from .result import Result, result_of
from .transcripts import Transcripts

if TYPE_CHECKING:
    from .portable import Exported, Imported, Target
    from .runtime import Runtime

__all__ = ["Page", "Request", "SessionInfo", "Sessions", "Submission", "Uncertain", "check_id"]

NOTE_LIMIT = 32 * 1024
"""The longest note (bytes)."""

COMMAND_LIMIT = 900 * 1024
"""The longest body of a command: the entry that takes it up holds little more, and is limited as well (bytes)."""

RESULT_LIMIT = OUTPUT_LIMIT - 64 * 1024
"""The longest reported result: with its call's id and name it must be a response that can be kept (bytes)."""

DELIVERIES: tuple[Deliver, ...] = ("turn", "queue", "steer")

SHA256 = re.compile("[0-9a-f]{64}")


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A durable submission. ``arrival`` counts the session's submissions; ``duplicate``: it was there before."""

    id: str
    arrival: int
    duplicate: bool


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalogue knows of one session. Times are milliseconds since 1970.

    ``route`` is the selected one. ``identity``, ``metadata`` and ``route`` are None where they can't be read, and ``problem`` says why:
    the session is listed all the same, and `perdure verify` tells more.
    """

    session_id: str
    status: str
    agent: str
    owner: str
    title: str
    labels: dict[str, str]
    version: int
    holder: str | None
    wake_at: int | None
    created: int
    updated: int
    identity: Identity | None = None
    metadata: dict[str, Any] | None = None
    route: str | None = None
    problem: str = ""


class Page(list[SessionInfo]):
    """A page of sessions. ``next`` is what `Sessions.list` goes on after; None: there are no more."""

    def __init__(self, infos: Iterable[SessionInfo] = (), following: str | None = None) -> None:
        super().__init__(infos)
        self.next = following


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An open request as a person needs to see it, arguments included."""

    request_id: str
    kind: str
    operation: str
    name: str
    arguments: Any
    deadline: int
    default: str
    entry: RequestOpened


class Uncertain(msgspec.Struct, frozen=True, kw_only=True):
    """An effect whose outcome nobody knows yet."""

    session_id: str
    operation: str
    attempt: int
    name: str
    arguments: Any
    at: int
    request_id: str = ""


def _checked(command: Command) -> Command:
    """A command that can be kept, and taken up by whoever reads it. Raises `UsageError` or `InvalidMessage`."""
    check_id(command.submission, "a submission id")
    check_text(command.actor, "actor")
    if isinstance(command, Interrupt | Answer | Archive | Revive):
        check_text(command.reason, "reason", NOTE_LIMIT)
    command, body = commands.checked(command)
    size = 0 if isinstance(command, ReportResult) else len(body)
    if size > COMMAND_LIMIT:
        told = InvalidMessage if isinstance(command, PostMessage | EditMessage) else UsageError
        raise told(f"a submission of kind {command.kind!r} with {size} bytes is too long", hint=f"at most {COMMAND_LIMIT} bytes are taken")
    return command


class Sessions(Transcripts, Branches, Redaction):
    """Commands and views of any session in the store. Nothing here runs agent code."""

    def __init__(self, runtime: Runtime, owner: str | None = None) -> None:
        self._runtime = runtime
        self._owner = owner

    def owned_by(self, owner: str) -> Sessions:
        """The same, for one owner: sessions of anybody else are not there, and new ones belong to them. Raises `UsageError` if blank."""
        owner = check_owner(owner)
        if self._owner not in (None, owner):
            raise UsageError("these are one owner's sessions already", hint="runtime.sessions are everybody's")
        return Sessions(self._runtime, owner)

    # ------------------------------------------------------------------------------------------------------------- sending

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
        not_before: int | None = None,
        agent: str = "",
        identity: Identity | None = None,
        labels: dict[str, str] | None = None,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Submission:
        """Put a message into a session's inbox, creating the session if it isn't there. Durable when this returns.

        ``agent``, ``identity``, ``labels`` and ``title`` matter for a new session only; ``metadata`` replaces that of any.
        Sending the same ``submission`` again is sending it once; with another content it raises `SubmissionConflict`. Also raises
        `InvalidMessage`, `QueueFull`, `SessionArchived` and `SessionNotFound` (deleted).

        ``deliver``: ``turn`` (the default) and ``queue`` begin a turn of their own, ``steer`` joins the running one; ``turn="t12"`` is a
        steer for that turn alone. ``reply_to`` is the `Message.seq` of the message that it answers, and ``quote``, if given, must be
        what stands there. ``source`` says that no person sent it: models read it as advice, nobody can edit it, and its own id is the
        submission. `SubmissionRejected` says *stale_turn* or *unknown_quote*, and nothing is stored.
        """
        check_id(session_id, "a session id")
        turn = check_text(turn, "turn")
        deliver = ("steer" if turn else "turn") if deliver is None else deliver
        if turn and deliver != "steer":
            raise UsageError("turn= names the turn that a steer is for", hint='leave deliver= out, or say "steer"')
        deliver = check_deliver(deliver)
        if not_before is not None and (type(not_before) is not int or not 0 <= not_before < canonical.MAX_INTEGER):
            raise UsageError(f"not_before={not_before!r:.100} is no time", hint="milliseconds since 1970, as an int")
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
            actor=actor,
            submission=submission_id(submission),
        )
        if turn or reply_to is not None or quote is not None:
            post = await self._related(session_id, post, reply_to, quote)
        command = _checked(post)
        create = self._new_session(session_id, agent, identity, labels, title or "", metadata)
        await self._check_blobs(session_id, given.referred)
        existed = metadata is not None and await self.number(session_id) is not None
        if metadata is not None and existed:
            await self.ensure_metadata(session_id, metadata)
        sent = await self._send(session_id, command, not_before=not_before, create=create, blobs=given.blobs)
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
        entry = await self._entry(head, seq)
        if not isinstance(entry, MessageAdded) or entry.role == "tool":
            return None
        said = entry.parts
        if entry.receipt and not said:
            receipt = await self._entry(head, entry.receipt)
            said = receipt.parts if isinstance(receipt, OperationEnded) else ()
        text = text_of(await resolve_parts(said, self._fetcher(head.row)))
        return Quote(seq=seq, role=entry.role, text=text) if text else None

    async def _check_blobs(self, session_id: str, parts: tuple[Part, ...]) -> None:
        """Raises `InvalidMessage` for a blob that the session's tree doesn't hold, or that is not what it is said to be."""
        wanted = [blob for part in parts for blob in media_of(part)]
        head = await self._runtime.store.load(session_id) if wanted else None
        head = None if head is None else self._mine(head)
        for part in wanted:
            known = SHA256.fullmatch(part.digest) is not None and head is not None
            blob = await self._runtime.store.blob(head.row.root, part.digest) if known and head is not None else None
            if blob is None or Media(blob.data, mime_type=part.mime_type, name=part.name).blob != part:
                raise InvalidMessage(
                    f"{session_id!r} holds no content {part.digest[:12]!r} of {part.size} bytes",
                    hint="a Blob refers to what is stored already: sessions.attach stores it, or send what perdure.file(…) returns",
                )

    async def attach(self, session_id: str, media: Media) -> Blob:
        """Store an image, sound or file in a session ahead of the message that refers to it; send the part that this returns.

        Durable when this returns, and idempotent. Bytes that no message refers to are kept until their session is deleted.
        Raises `SessionNotFound` and `SessionArchived`.
        """
        if not isinstance(media, Media):
            raise InvalidMedia(f"{type(media).__name__} can't be attached", hint="pass what image(), audio() or file() returns")
        head = await self._head(session_id)
        if head.row.status == "archived":
            raise put_away(session_id)
        for blob in stored_media([media]):
            await self._runtime.store.put_blob(head.row.root, blob)
        return media.blob

    async def content(self, session_id: str, blob: Blob) -> bytes:
        """The bytes that a part of a session's messages stands for. Raises `StoreCorrupt` if they are missing or were altered."""
        if not isinstance(blob, Blob) or not SHA256.fullmatch(blob.digest):
            raise UsageError("content is named by a Blob", hint="as a message of the session's history holds it")
        return await stored_content(self._runtime.store, (await self._head(session_id)).row.root, blob.digest)

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
        checkpoint = checkpoints.evolve(Checkpoint(), entry)
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

    def new_identity(self, identity: Identity | None) -> Identity:
        """Whose a session is that begins here. Raises `UsageError` for an identity of another owner than the one these are for."""
        if identity is None:
            return Identity() if self._owner is None else Identity(owner=self._owner)
        if self._owner not in (None, check_identity(identity).owner):
            raise UsageError(f"identity.owner is {identity.owner!r}, and owner= is {self._owner!r}", hint="they mean the same")
        return identity

    async def _send(
        self,
        session_id: str,
        command: Command,
        *,
        not_before: int | None = None,
        create: NewSession | None = None,
        blobs: tuple[StoredBlob, ...] = (),
    ) -> Submission:
        check_id(session_id, "a session id")
        store, body = self._runtime.store, commands.encode(command)
        answer = await store.send(
            Send(
                session_id=session_id,
                submission_id=command.submission,
                kind=command.kind,
                at=self._runtime.clock.now() if create is None else create.entries[0].at,
                not_before=not_before,
                actor=command.actor,
                digest=commands.digest_of(command.kind, body),
                body=body,
                urgent=command.kind not in (PostMessage.kind, Compact.kind),
                owner=self._owner,
                blobs=blobs,
                create=create,
            )
        )
        match answer:
            case Conflict():
                raise conflict(command)
            case QueueIsFull():
                raise QueueFull(
                    f"{answer.pending} submissions wait in {session_id!r}", hint="let it work, or start another session", limit="pending"
                )
            case NoSession(archived=True):
                raise put_away(session_id)
            case NoSession():
                raise _missing(session_id, deleted=answer.deleted)
        self._runtime.notice(session_id, sure=True)
        return Submission(id=answer.row.submission_id, arrival=answer.row.arrival, duplicate=answer.duplicate)

    async def interrupt(
        self, session_id: str, *, reason: str = "", turn: str = "", submission: str | None = None, actor: str = ""
    ) -> Submission:
        """Stop the session's running turn. The session stays usable. Raises `SessionNotFound`."""
        command = Interrupt(turn=check_text(turn, "turn"), reason=reason, submission=submission_id(submission), actor=actor)
        return await self._control(session_id, command)

    async def answer(
        self,
        session_id: str,
        request_id: str,
        decision: Decision,
        *,
        arguments: dict[str, Any] | None = None,
        reason: str = "",
        result: Any = None,
        is_error: bool = False,
        submission: str | None = None,
        actor: str = "",
    ) -> Submission:
        """Close an open request. Durable when this returns; the first answer wins.

        Raises `StaleRequest` where the stored state already says that the request is closed, and `SubmissionRejected` for a decision that
        doesn't go with its kind: nothing is written then. A later loser is refused in the journal. Whether edited ``arguments`` fit the
        tool is known only where the agent is: a handle with one checks them (`Session.answer`); else a call that can't take them ends with
        an error that the model reads, and nothing runs.
        """
        if arguments is not None:
            if not isinstance(arguments, dict) or decision != "approve":
                raise UsageError("edited arguments are one JSON object, and go with the decision to approve", hint='{"order": "A-1"}')
            arguments = canonical.check(arguments, "arguments")
        if decision != "settle" and (result is not None or is_error):
            raise UsageError("a result goes with the decision to settle", hint='decision="settle"')
        if decision not in get_args(Decision):
            raise UsageError(f"{decision!r} is no decision", hint="approve, grant, deny, abort, settle or retry")
        command = Answer(
            request_id=request_id,
            decision=decision,
            arguments=arguments,
            reason=reason,
            result=canonical.check(result, "result"),
            is_error=is_error,
            submission=submission or f"answer:{request_id}:{uuid.uuid4().hex}",
            actor=actor,
        )
        return await self._control(session_id, command)

    async def approve(self, session_id: str, request_id: str, arguments: dict[str, Any] | None = None, **options: Any) -> Submission:
        """Let a call run, with other arguments if they are given."""
        return await self.answer(session_id, request_id, "approve", arguments=arguments, **options)

    async def deny(self, session_id: str, request_id: str, reason: str = "", **options: Any) -> Submission:
        """Refuse a call; the model reads the reason."""
        return await self.answer(session_id, request_id, "deny", reason=reason, **options)

    async def settle(self, session_id: str, request_id: str, result: Any = None, *, is_error: bool = False, **options: Any) -> Submission:
        """Say what became of a call whose outcome is unknown."""
        return await self.answer(session_id, request_id, "settle", result=result, is_error=is_error, **options)

    async def select_route(self, session_id: str, route: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Use another route for the next turns. Refused, in the journal, while a turn runs.

        Which routes exist is known where the agent is: a session whose route is unknown there is refused until another is selected.
        """
        check_id(route, "a route")
        return await self._control(session_id, SelectRoute(route=route, submission=submission_id(submission), actor=actor))

    async def describe(
        self,
        session_id: str,
        *,
        title: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: dict[str, Any] | None = None,
        submission: str | None = None,
        actor: str = "",
    ) -> Submission:
        """Replace a session's title, labels or metadata, each as a whole; ``None`` leaves it as it is, an empty value empties it.

        Tools read the new metadata from their next call on. Raises `UsageError` and `LimitExceeded` for what can't be kept.
        """
        if title is None and labels is None and metadata is None:
            raise UsageError("nothing is to change", hint="give title=, labels= or metadata=")
        title = None if title is None else check_title(title)
        labels = None if labels is None else check_labels(labels)
        kept, blobs = (None, ()) if metadata is None else keep_metadata(metadata)
        command = Describe(title=title, labels=labels, metadata=kept, submission=submission_id(submission), actor=actor)
        root = (await self._head(session_id)).row.root
        for blob in blobs:
            await self._runtime.store.put_blob(root, blob)
        return await self._control(session_id, command)

    async def ensure_metadata(self, session_id: str, metadata: dict[str, Any]) -> SessionInfo:
        """Replace a session's metadata unless it is that already; returns what the catalogue knows then."""
        info = await self.info(session_id)
        if metadata != info.metadata:
            await self.describe(session_id, metadata=metadata)
            info = msgspec.structs.replace(await self.info(session_id), metadata=metadata)
        return info

    async def compact(self, session_id: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Let notes stand for the conversation so far, for models; what people see stays. Durable when this returns.

        It waits for a running turn's end, and is a turn of its own: `result` says what became of it. Raises `SessionNotFound`,
        `QueueFull` and `SubmissionConflict`.
        """
        return await self._send(session_id, _checked(Compact(submission=submission_id(submission), actor=actor)))

    async def edit(self, session_id: str, message: str, content: Input, *, submission: str | None = None, actor: str = "") -> Submission:
        """Give a waiting message another content, by its submission id; its place stays. Refused, in the journal, once it was delivered."""
        given = content_of(content)
        message = check_id(message, "a submission id")
        command = _checked(EditMessage(message=message, parts=given.parts, submission=submission_id(submission), actor=actor))
        root = (await self._head(session_id)).row.root
        await self._check_blobs(session_id, given.referred)
        for blob in given.blobs:
            await self._runtime.store.put_blob(root, blob)
        return await self._control(session_id, command)

    async def withdraw(self, session_id: str, message: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Take back a waiting message, by its submission id. Refused, in the journal, once it was delivered."""
        message = check_id(message, "a submission id")
        return await self._control(session_id, Withdraw(message=message, submission=submission_id(submission), actor=actor))

    async def note(self, session_id: str, text: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Tell the model something besides the conversation; it is in the context from the next model call on."""
        if not isinstance(text, str):
            raise InvalidMessage(f"a note is text, not {type(text).__name__}")
        text = canonical.check(text, "note")
        if not text.strip() or len(text.encode()) > NOTE_LIMIT:
            raise InvalidMessage("a note is empty or too long", hint=f"1 to {NOTE_LIMIT} bytes of text")
        return await self._control(session_id, AddNote(text=text, submission=submission_id(submission), actor=actor))

    async def command(
        self,
        session_id: str,
        extension: str,
        command: str,
        arguments: dict[str, Any] | None = None,
        *,
        submission: str | None = None,
        actor: str = "",
    ) -> Submission:
        """Have a middleware of the session's agent carry out one of its commands, wherever the agent runs next.

        Refused, in the journal, where the agent has no such command or carrying it out fails.
        """
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            raise UsageError(f"arguments must be an object, not {type(arguments).__name__}")
        arguments = canonical.check(arguments, "arguments")
        if len(canonical.encode(arguments)) > NOTE_LIMIT:
            raise UsageError("the arguments are too long", hint=f"at most {NOTE_LIMIT} bytes")
        extension, command = check_id(extension, "the name of a middleware"), check_id(command, "a command")
        run = RunCommand(extension=extension, command=command, arguments=arguments, submission=submission_id(submission), actor=actor)
        return await self._control(session_id, run)

    async def grant(self, session_id: str, request_id: str, **options: Any) -> Submission:
        """Let a call run, and this very call again whenever the model asks for it in this session."""
        return await self.answer(session_id, request_id, "grant", **options)

    async def grants(self, session_id: str) -> tuple[Grant, ...]:
        """The calls that may run without asking."""
        return (await self.checkpoint(session_id)).grants

    async def revoke(self, session_id: str, grant: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Ask again about a call that was granted. Refused, in the journal, if there is no such grant."""
        check_id(grant, "a grant")
        return await self._control(session_id, RevokeGrant(grant=grant, submission=submission_id(submission), actor=actor))

    async def report(self, token: str, result: Any = None, *, is_error: bool = False, actor: str = "") -> Submission:
        """The result of one attempt, from whoever holds its callback token. Sending it twice is sending it once."""
        session_id, operation, attempt = tokens.read(self._runtime.store.secret, check_text(token, "the callback token", NOTE_LIMIT))
        return await self.report_attempt(session_id, operation, attempt, result, is_error, actor)

    async def report_attempt(
        self, session_id: str, operation: str, attempt: int, result: Any, is_error: bool, actor: str = ""
    ) -> Submission:
        """What one attempt came to, known to somebody who ran it or asked. It settles an effect that was reported as uncertain.

        Raises `LimitExceeded` for a result that is too long. Media in it are stored before.
        """
        result, media = parted(result)
        result = canonical.check(result, "result")
        if (size := len(canonical.encode(result))) > RESULT_LIMIT:
            raise LimitExceeded(f"a result of {size} bytes; at most {RESULT_LIMIT} are kept", hint="report a reference", limit="output")
        command = ReportResult(
            operation=operation,
            attempt=attempt,
            result=result,
            is_error=is_error,
            media=tuple(item.blob for item in media),
            submission=f"result:{operation}#{attempt}",
            actor=actor,
        )
        if media:
            root = (await self._head(session_id)).row.root
            for blob in stored_media(media):
                await self._runtime.store.put_blob(root, blob)
        return await self._control(session_id, command)

    async def _control(self, session_id: str, command: Command) -> Submission:
        """Apply a command at once where nobody holds the session, else leave it to the holder."""
        command = _checked(command)
        for _ in range(5):
            head = await self._head(session_id)
            row, now = head.row, max(self._runtime.clock.now(), head.now)
            earlier = await self._runtime.store.submission(row.no, command.submission)
            if earlier is not None:
                if earlier.digest != commands.digest(command):
                    raise conflict(command)
                return Submission(id=earlier.submission_id, arrival=earlier.arrival, duplicate=True)
            if row.status == "archived" and not isinstance(command, ReportResult):
                raise put_away(session_id)
            checkpoint = checkpoints.decode(row.checkpoint)
            if isinstance(command, Answer):
                _check_answer(checkpoint, command, now)
            waiting = await self._runtime.store.inbox(row.no)
            own_code = isinstance(command, RunCommand)
            if own_code or row.holder is not None or row.status in ("stuck", "halted") or any(map(is_control, waiting)):
                return await self._send(session_id, command)
            if (applied := await self._apply(head, checkpoint, command, waiting, now)) is not None:
                return applied
        return await self._send(session_id, command)

    async def _apply(self, head: Loaded, checkpoint: Checkpoint, command: Command, waiting: list[InboxRow], now: int) -> Submission | None:
        """The sender's own commit. None: somebody was faster."""
        command = msgspec.structs.replace(command, at=now)
        batch = Batch(head, checkpoint, now=now)
        ledger = Ledger(self._runtime.store, head.row.no)
        if isinstance(command, ReportResult):
            await ledger.load()
        # What ran out of time before was over when this came.
        batch.apply(TimePassed(at=now))
        await take_control(batch, ledger, waiting, command)
        if checkpoint.archived and any(isinstance(entry, SubmissionRefused) for entry in batch.entries):
            raise put_away(head.row.session_id)
        seq = batch.consumed[command.submission]
        arrival = head.row.inbox_head + 1
        row = receipt_row(command, arrival=arrival, at=now, seq=seq)
        batch.consumed.pop(command.submission)
        batch.settled.pop(command.submission, None)
        promote_steers(batch, waiting)
        left = [item for item in waiting if item.submission_id not in batch.consumed]
        status, wake_at = parked(batch.checkpoint, left, now)
        commit = batch.commit(holder=None, inbox_head=head.row.inbox_head, status=status, wake_at=wake_at, received=(row,))
        answer = await self._runtime.store.commit(commit)
        match answer:
            case Committed():
                self._runtime.committed_elsewhere(head.row.session_id, batch)
                return Submission(id=command.submission, arrival=arrival, duplicate=False)
            case AlreadyThere():
                return Submission(id=command.submission, arrival=answer.row.arrival, duplicate=True)
            case _:
                return None

    # ---------------------------------------------------------------------------------------------------------- putting away

    async def archive(self, session_id: str, *, reason: str = "", submission: str | None = None, actor: str = "") -> Submission:
        """Put a session away: no list shows it, nothing runs in it and nothing can be sent to it; its history can be read. One commit.

        A running session is taken from its holder: calls in flight are uncertain and the turn is aborted; what waits in the inbox is
        refused. Results that come later are still taken. Raises `SessionArchived` if it is archived, and `SessionNotFound`.
        """
        command = Archive(reason=reason, submission=submission_id(submission), actor=actor)
        _checked(command)
        return await self._put_away_or_back(session_id, command)

    async def revive(self, session_id: str, *, reason: str = "", submission: str | None = None, actor: str = "") -> Submission:
        """Take a session out of the archive. One commit. Raises `NothingChanged` if it is not archived, and `SessionNotFound`."""
        command = Revive(reason=reason, submission=submission_id(submission), actor=actor)
        _checked(command)
        return await self._put_away_or_back(session_id, command)

    async def _put_away_or_back(self, session_id: str, command: Archive | Revive) -> Submission:
        row, duplicate = await put_away_or_back(self._runtime, partial(self._head, session_id), command)
        return Submission(id=row.submission_id, arrival=row.arrival, duplicate=duplicate)

    async def delete(self, session_id: str, *, tree: bool = False) -> None:
        """Destroy a session's content, for ever. Whoever works on it is fenced off; its id can't be used again.

        If others were forked from it, it is hidden and loses what none of them can reach; the rest goes with the last of them. With
        ``tree`` everything that was forked from it is deleted too. Raises `SessionNotFound`, also if it was deleted before.
        """
        for name in await delete(self._runtime.store, (await self._head(session_id)).row, tree=tree):
            self._runtime.notice(name, sure=True)

    def consumer(self, name: str) -> Consumer:
        """Somebody who reads the journals of all sessions and says how far; see `Consumer`."""
        if self._owner is not None:
            raise UsageError("a consumer reads all sessions", hint="use runtime.sessions.consumer(…)")
        return Consumer(self._runtime, name)

    # -------------------------------------------------------------------------------------------------------- taking elsewhere

    async def export(self, session_id: str, target: Target, *, tree: bool = False) -> Exported:
        """Write a session, or with ``tree`` all sessions of its tree, into one file of JSON lines: a path, or a binary stream.

        A path is replaced whole or not at all. Nothing changes in the store. Raises `SessionBusy` while somebody works on it or an attempt
        is open, `SessionNotFound`, and `UsageError` for a fork without its tree.
        """
        # Few programs need it, and it needs much.
        from .portable import export, rows_of

        await self._head(session_id)
        return await export(self._runtime.store, partial(rows_of, self._runtime.store, session_id, tree=tree), target)

    async def import_from(self, source: Target, *, session_id: str | None = None) -> Imported:
        """Take in what `export` wrote: verified, and then kept whole or not at all; equal to what was exported, to the byte.

        Under another ``session_id`` the history is the same and its hash chain a new one; a last entry, `Foreign`, holds the old one.
        Raises `ImportRefused` for a file that is not whole, `SessionExists`, `FormatUnknown` and `NewerRules`.
        """
        from .portable import import_file

        if session_id is not None:
            check_id(session_id, "a session id")
        if self._owner is not None:
            raise UsageError("a file says itself whose its sessions are", hint="import it without an owner")
        imported = await import_file(self._runtime.store, source, session_id)
        for name in imported.sessions:
            self._runtime.notice(name, sure=True)
        return imported

    async def import_messages(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        source: Foreigner,
        agent: str = "",
        identity: Identity | None = None,
        labels: dict[str, str] | None = None,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        actor: str = "",
    ) -> str:
        """Begin a session with a conversation that another system kept.

        It is a list as OpenAI's Chat Completions or Anthropic's Messages API takes it. The session's entry `Foreign` says where it comes
        from; images in it become content of the session. Returns the instructions that stood among the messages, which are the agent's
        here. Whole or not at all. Raises `InvalidTranscript` for what is no conversation, and `SessionExists`.
        """
        check_id(session_id, "a session id")
        if source not in get_args(Foreigner):
            raise UsageError(f"source={source!r:.40} is unknown", hint='"openai" or "anthropic"')
        if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
            raise UsageError("messages= is a list", hint="as json.load gives it")
        found = read_foreign(source, messages)
        checked = written(found.messages)
        check_replacement("", checked, "")
        if not checked:
            raise InvalidTranscript("there is no message in it", hint="a new session needs none: send to it")
        _, entries, aside = kept(checked)
        first = next((part.content for part in checked[0].parts if isinstance(part, Text)), "")
        new = self._new_session(session_id, agent, identity, labels, title if title is not None else title_of((Text(first),)), metadata)
        begun = checkpoints.decode(new.checkpoint)
        draft = Draft(begun)
        draft.write(Foreign(source=source, messages=len(entries), actor=check_text(actor, "actor")), begun.at)
        for entry in entries:
            draft.write(entry, begun.at)
        answer = await self._runtime.store.create(
            session_id,
            msgspec.structs.replace(
                new,
                entries=(*new.entries, *seal_all(draft.entries, chain=new.entries[-1].chain, session_id=session_id)),
                checkpoint=checkpoints.encode(draft.checkpoint),
                catalogue=msgspec.structs.replace(new.catalogue, status="idle"),
                blobs=(*new.blobs, *stored_media(found.media), *aside),
            ),
            at=begun.at,
        )
        if not isinstance(answer, Created):
            if self._owner is not None:
                # Somebody else's session isn't there.
                await self._head(session_id)
            raise SessionExists(f"there is, or was, a session {session_id!r}", hint="import it under another id")
        return found.instructions

    # ------------------------------------------------------------------------------------------------------------- reading

    async def _head(self, session_id: str) -> Loaded:
        check_id(session_id, "a session id")
        head = await self._runtime.store.load(session_id)
        if head is None:
            # Whose it was is not known any more, so that only who may see all is told.
            raise _missing(session_id, deleted=self._owner is None and await self._runtime.store.buried(session_id))
        return self._mine(head)

    def _mine(self, head: Loaded) -> Loaded:
        if self._owner not in (None, head.row.owner):
            raise _missing(head.row.session_id, deleted=False)
        return head

    async def number(self, session_id: str) -> int | None:
        """The store's number of a session, None if it isn't there yet. Raises `SessionNotFound` if it is another's, or was deleted."""
        head = await self._runtime.store.load(check_id(session_id, "a session id"))
        return None if head is None else self._mine(head).row.no

    async def info(self, session_id: str) -> SessionInfo:
        """What the catalogue knows of a session, whether or not its route and agent are known here. Raises `SessionNotFound`."""
        return await self._info((await self._head(session_id)).row)

    async def _info(self, row: SessionRow) -> SessionInfo:
        info = SessionInfo(
            session_id=row.session_id,
            status=row.status,
            agent=row.agent,
            owner=row.owner,
            title=row.title,
            labels=row.labels,
            version=row.version,
            holder=row.holder,
            wake_at=row.wake_at,
            created=row.created,
            updated=row.updated,
            problem=row.problem,
        )
        if row.problem:
            return info
        try:
            about = checkpoints.about(row.checkpoint)
            metadata = await read_metadata(about.metadata, self._fetcher(row))
        except (StoreCorrupt, NewerRules) as error:
            # What is broken in one session must not hide the others.
            return msgspec.structs.replace(info, problem=error.message)
        return msgspec.structs.replace(info, identity=about.identity, metadata=metadata, route=about.route)

    async def resume_info(self, session_id: str, *, submission: str | None = None) -> ResumeRequested:
        """What somebody must know who is to go on with a session, under the id of their request; see `Session.request_resume`.

        Raises `SessionNotFound`, and `StoreCorrupt` if the session's checkpoint can't be read.
        """
        submission = submission_id(submission)
        row = (await self._head(session_id)).row
        about = checkpoints.about(row.checkpoint)
        return ResumeRequested(
            session_id=session_id,
            identity=about.identity,
            metadata=await read_metadata(about.metadata, self._fetcher(row)),
            agent=row.agent,
            route=about.route,
            status=row.status,
            submission=submission,
        )

    async def checkpoint(self, session_id: str) -> Checkpoint:
        """The fold of the session's journal. Raises `SessionNotFound`, `NewerRules`."""
        return checkpoints.decode((await self._head(session_id)).row.checkpoint)

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None, kinds: Iterable[str] | None = None
    ) -> list[Entry]:
        """The journal's entries with a seq beyond ``after``."""
        if limit is not None:
            check_limit(limit)
        head = await self._head(session_id)
        rows = await read_entries(self._runtime.store, head.row.no, after=after, limit=limit, kinds=kinds)
        return [open_entry(row) for row in rows]

    async def turn(self, session_id: str, turn: str | None = None) -> list[Entry]:
        """The entries of one turn, however many, from its first to its end, or so far; None is the newest turn.

        What was written while it ran and belongs to no turn (notes, grants) is among them. Raises `UsageError` for what is no turn of
        this session.
        """
        head = await self._head(session_id)
        store, no = self._runtime.store, head.row.no
        if turn is None:
            newest = await store.entries(no, kinds=(TurnStarted.kind,), newest_first=True, limit=1)
            if not newest:
                return []
            began = newest[0].seq
        else:
            digits = check_text(turn, "turn").removeprefix("t")
            began = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 0
            if turn != f"t{began}" or not isinstance(await self._entry(head, began), TurnStarted):
                raise UsageError(f"{session_id!r} has no turn {turn!r:.40}", hint="turns are named t2, t14, …")
        ends = await store.entries(no, after=began, kinds=TERMINALS, limit=1)
        rows = await read_entries(store, no, after=began - 1, before=ends[0].seq + 1 if ends else None)
        return [open_entry(row) for row in rows]

    async def requests(self, session_id: str) -> list[Request]:
        """The session's open requests, with the arguments that a person has to judge."""
        head = await self._head(session_id)
        turn = checkpoints.decode(head.row.checkpoint).turn
        waiting = {item.request: item for item in turn.requests} if turn is not None else {}
        if turn is None or not waiting:
            return []
        rows = await read_entries(self._runtime.store, head.row.no, after=turn.answer, kinds=("request_opened",))
        calls = await self._calls(head, turn.answer)
        found: dict[str, Request] = {}
        for entry in map(open_entry, rows):
            assert isinstance(entry, RequestOpened)
            item = waiting.get(entry.request_id)
            if item is not None and entry.operation == item.id:
                found[entry.request_id] = Request(
                    request_id=entry.request_id,
                    kind="uncertain" if item.status == "asking" else "approval",
                    operation=item.id,
                    name=item.plan.name,
                    arguments=await self._arguments(head, calls, item),
                    deadline=entry.deadline,
                    default=entry.default,
                    entry=entry,
                )
        return list(found.values())

    async def _entry(self, head: Loaded, seq: int) -> Entry | None:
        rows = await read_entries(self._runtime.store, head.row.no, after=seq - 1, before=seq + 1)
        return open_entry(rows[0]) if rows else None

    async def _calls(self, head: Loaded, receipt: int) -> dict[str, ToolCall]:
        """The calls of one answer, by the id that the model gave them; a provider may use it again in the next answer."""
        answer = await self._entry(head, receipt)
        parts = await resolve_parts(answer.parts, self._fetcher(head.row)) if isinstance(answer, OperationEnded) else ()
        return {part.id: part for part in parts if isinstance(part, ToolCall)}

    async def _arguments(self, head: Loaded, calls: dict[str, ToolCall], item: Operation) -> Any:
        """What an operation of the running step is called with: the model's arguments, or those of who approved it."""
        edited = await self._entry(head, item.edited) if item.edited else None
        if isinstance(edited, RequestClosed | OperationPlanned):
            return edited.arguments
        return calls[item.plan.call].arguments if item.plan.call in calls else None

    async def _called_with(self, head: Loaded, receipt: OperationEnded, answers: dict[int, dict[str, ToolCall]]) -> Any:
        """The arguments behind a receipt: those of the answer before it, or of who approved the call. ``answers`` are known already."""
        store, no, turn = self._runtime.store, head.row.no, int(receipt.operation[1:].split(".", 1)[0])
        before, answer = receipt.seq, None
        while answer is None:
            rows = await read_entries(store, no, after=turn, before=before, kinds=("message",), newest_first=True, limit=4)
            if not rows:
                return None
            messages = [open_entry(row) for row in rows]
            answer = next((item for item in messages if isinstance(item, MessageAdded) and item.role == "assistant"), None)
            before = messages[-1].seq
        changed = await read_entries(
            store, no, after=answer.seq, before=receipt.seq, kinds=("request_closed", "operation_planned"), newest_first=True
        )
        for entry in map(open_entry, changed):
            if isinstance(entry, RequestClosed | OperationPlanned) and entry.operation == receipt.operation and entry.arguments is not None:
                return entry.arguments
        if answer.receipt not in answers:
            answers[answer.receipt] = await self._calls(head, answer.receipt)
        call = answers[answer.receipt].get(getattr(receipt.parts[0], "id", getattr(receipt.parts[0], "call", "")) if receipt.parts else "")
        return call.arguments if call is not None else None

    async def uncertain(self, session_id: str) -> list[Uncertain]:
        """The session's effects whose outcome is unknown, those that a person is asked about included."""
        head = await self._head(session_id)
        answers: dict[int, dict[str, ToolCall]] = {}
        found: list[Uncertain] = []
        ledger = Ledger(self._runtime.store, head.row.no)
        await ledger.load()
        for row in ledger.unsettled:
            receipt = await ledger.receipt(row.seq)
            found.append(
                Uncertain(
                    session_id=session_id,
                    operation=receipt.operation,
                    attempt=receipt.attempt,
                    name=tool_of(row.effect_key),
                    arguments=await self._called_with(head, receipt, answers),
                    at=receipt.at,
                )
            )
        turn = checkpoints.decode(head.row.checkpoint).turn
        waiting = [item for item in turn.operations if item.status in ("asking", "unknown")] if turn is not None else []
        calls = await self._calls(head, turn.answer) if turn is not None and waiting else {}
        for item in waiting:
            found.append(
                Uncertain(
                    session_id=session_id,
                    operation=item.id,
                    attempt=item.attempt,
                    name=item.plan.name,
                    arguments=await self._arguments(head, calls, item),
                    at=head.row.updated,
                    request_id=item.request,
                )
            )
        return found

    async def result(self, session_id: str, submission: str) -> Result | None:
        """What became of a submission's turn; None while it is unfinished. Raises `SubmissionRejected` if it was refused."""
        head = await self._head(session_id)
        row = await self._runtime.store.submission(head.row.no, submission)
        if row is None or row.settled_seq is None:
            return None
        return await self._result_at(head, row.settled_seq)

    async def _result_at(self, head: Loaded, seq: int) -> Result | None:
        entry = open_entry((await read_entries(self._runtime.store, head.row.no, after=seq - 1, before=seq + 1))[0])
        if isinstance(entry, SubmissionRefused) and entry.failure.code == SessionArchived.code:
            raise SessionArchived(entry.failure.message, hint="send it again once the session is revived", session=head.row.session_id)
        if isinstance(entry, SubmissionRefused):
            raise SubmissionRejected(entry.failure.message, reason=entry.failure.code)
        if isinstance(entry, QueueChanged):
            raise SubmissionRejected("the message was withdrawn before it was delivered", reason="withdrawn")
        if not isinstance(entry, TurnEnded):
            return None
        started = entry.began
        rows = await read_entries(self._runtime.store, head.row.no, after=started, before=seq, kinds=CONTEXT_KINDS)
        context = Context(self._fetcher(head.row))
        opened = [open_entry(row) for row in rows]
        answers = [item for item in opened if isinstance(item, MessageAdded) and item.role == "assistant"]
        receipts = {item.seq: item for item in opened if isinstance(item, OperationEnded)}
        if answers:
            await context.add([receipts[answers[-1].receipt], answers[-1]])
        return result_of(head.row.session_id, entry, context.answer_since(started))

    def _fetcher(self, row: SessionRow) -> Fetch:
        return partial(stored_content, self._runtime.store, row.root)

    async def list(
        self,
        *,
        owner: str | None = None,
        status: str | Iterable[str] | None = None,
        agent: str | None = None,
        labels: dict[str, str] | None = None,
        words: str | Iterable[str] = (),
        since: int | None = None,
        until: int | None = None,
        archived: bool = False,
        order: Literal["updated", "created"] = "updated",
        limit: int = 50,
        after: str | None = None,
    ) -> Page:
        """A page of the sessions: the latest change first, or with ``order="created"`` the latest made first. Reading changes nothing.

        Archived ones are shown only if ``archived`` or ``status`` says so. ``labels`` must all be there; the title must hold all
        ``words``, whatever their case; ``since`` and ``until`` (ms since 1970) say when they changed last. ``after`` is ``next`` of the
        page before, with the same filters. Nothing is shown twice; by ``"created"`` nothing is left out either, whatever changes
        meanwhile, while by ``"updated"`` what changes moves to the front, before the page that was read. A session that can't be read is
        listed with its ``problem``. The owner's are counted, not everybody's: a page is short only if there are no more.

        Raises `UsageError` for a blank owner, for filters that are none, and for an ``after`` that no list of these filters gave.
        """
        owner = self._owner if owner is None else check_owner(owner)
        if self._owner not in (None, owner):
            return Page()
        query = listing.query(
            owner=owner,
            status=status,
            agent=agent,
            labels=labels,
            words=words,
            since=since,
            until=until,
            archived=archived,
            order=order,
            limit=limit,
        )
        secret = self._runtime.store.secret
        # One more than is shown tells whether there is a page after this one.
        asked = msgspec.structs.replace(listing.continued(query, secret, after), limit=limit + 1)
        rows = await self._runtime.store.sessions(asked)
        shown = rows[:limit]
        return Page([await self._info(row) for row in shown], listing.token(query, secret, shown[-1]) if len(rows) > limit else None)

    async def each(self, **filters: Any) -> AsyncIterator[SessionInfo]:
        """Every session that `list` shows with these filters, page by page; archived ones too if ``archived`` says so."""
        after: str | None = None
        while True:
            page = await self.list(**filters, after=after)
            for info in page:
                yield info
            if (after := page.next) is None:
                return


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


def _check_answer(checkpoint: Checkpoint, command: Answer, now: int) -> None:
    """Raises what the stored checkpoint has to say against an answer."""
    asked = next((item for item in checkpoint.requests if item.request == command.request_id), None)
    if asked is None:
        raise StaleRequest(f"request {command.request_id} is not open", hint="`perdure show` lists what was asked and answered")
    if 0 < asked.deadline <= now:
        # Whoever looks at the session next closes it; its wake_at is that deadline.
        raise StaleRequest(f"request {command.request_id} ran out of time", hint=f"its deadline says {asked.default!r}")
    check_decision(asked, command)


def put_away(session_id: str) -> SessionArchived:
    return SessionArchived(f"the session {session_id!r} is archived", hint="its history can be read; sessions.revive(…) takes it out again")


def _missing(session_id: str, *, deleted: bool) -> SessionNotFound:
    if deleted:
        return SessionNotFound(f"the session {session_id!r} was deleted", hint="its id can't be used again")
    return SessionNotFound(f"there is no session {session_id!r}", hint="`perdure sessions` lists them")
