"""What only the outside can tell: answers to requests, results, and what became of effects."""

from __future__ import annotations

import uuid
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ..core import canonical, commands, ids
from ..core import checkpoint as checkpoints
from ..core.checkpoint import Grant, Operation
from ..core.commands import Answer, ReportResult, RevokeGrant
from ..core.effects import tool_of
from ..core.entries import AnswerRequested, DefinitionChange, OperationEnded, RequestClosed, RequestOpened, TurnStarted
from ..core.errors import LimitExceeded, StaleRequest, UsageError
from ..core.journal import open_entry
from ..core.messages import Message, ToolCall
from ..core.records import Decision
from ..store.base import Loaded
from ..tools.returned import parted
from . import tokens
from .about import check_text
from .arguments import Arguments, called_by
from .context import resolve_parts
from .definitions import AGENT_KINDS
from .door import Door, Submission
from .ledger import Ledger
from .messages import read_entries
from .names import check_id, submission_id
from .perform import OUTPUT_LIMIT, stored_media

__all__ = ["Request", "RequestKind", "Requests", "Uncertain"]

RequestKind: TypeAlias = Literal["approval", "answer", "uncertain"]

REPLY_LIMIT = 32_000
"""The longest answer of the user (bytes); more can be sent as a message, with files."""

CLOSED_PAGE = 100
"""So many closed requests are read at a time, the latest first: who comes too late does so soon after, as a rule."""

RESULT_LIMIT = OUTPUT_LIMIT - 64 * 1024
"""The longest reported result: with its call's id and name it must be a response that can be kept (bytes)."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An open request as a person needs to see it, arguments included; ``question`` is what the user is asked, ``session_id`` where.

    ``agent`` and ``owner`` are the session's; ``deadline`` is 0 where there is none.
    """

    request_id: str
    kind: RequestKind
    operation: str
    name: str
    arguments: Any
    deadline: int
    default: str
    entry: RequestOpened
    question: str = ""
    session_id: str = ""
    agent: str = ""
    owner: str = ""

    @property
    def at(self) -> int:
        """Since when it is open (ms since 1970)."""
        return self.entry.at


class Uncertain(msgspec.Struct, frozen=True, kw_only=True):
    """An effect whose outcome nobody knows yet. ``agent`` is whose tool it is, ``call`` the id of the model's call for it.

    ``within`` are the arguments of the call that a step belongs to; a step has none of its own.
    """

    session_id: str
    operation: str
    attempt: int
    name: str
    arguments: Any
    at: int
    request_id: str = ""
    call: str = ""
    agent: str = ""
    within: Any = None


class Requests(Door, Arguments):
    """The part of `Sessions` that is about requests and uncertain effects."""

    async def requests(self, session_id: str, *, children: bool = False) -> list[Request]:
        """The session's open requests, with the arguments that a person has to judge.

        ``children``: also those of the agents that it called, and of those that they called.
        """
        head = await self._head(session_id)
        found = await self._requests(head)
        for child in await self._children(head) if children else ():
            found += await self._requests(child)
        return found

    async def _children(self, head: Loaded) -> list[Loaded]:
        """The sessions that were called by this one, or by one of those, and that are not put away."""
        rows = await self._runtime.store.tree(head.row.root)
        called = {head.row.session_id}
        found: list[Loaded] = []
        for row in rows:
            # A caller is older than whom it calls.
            if row.parent_kind == "child" and row.parent in called and row.status not in ("deleted", "archived"):
                called.add(row.session_id)
                if (child := await self._runtime.store.load(row.session_id)) is not None:
                    found.append(child)
        return found

    async def _requests(self, head: Loaded) -> list[Request]:
        turn = checkpoints.decode(head.row.checkpoint).turn
        waiting = {item.request: item for item in turn.requests} if turn is not None else {}
        if turn is None or not waiting:
            return []
        rows = await read_entries(self._runtime.store, head.row.no, after=turn.answer or turn.began, kinds=("request_opened",))
        calls = await self._step_calls(head, turn)
        found: dict[str, Request] = {}
        for entry in map(open_entry, rows):
            assert isinstance(entry, RequestOpened)
            item = waiting.get(entry.request_id)
            if item is not None and entry.operation == item.id:
                arguments = await self._arguments(head, calls, item)
                asked = isinstance(entry, AnswerRequested)
                found[entry.request_id] = Request(
                    request_id=entry.request_id,
                    kind="answer" if asked else "uncertain" if item.status == "asking" else "approval",
                    operation=item.id,
                    name=item.plan.name,
                    arguments=arguments,
                    deadline=entry.deadline,
                    default=entry.default,
                    entry=entry,
                    question=await self._question(head, turn.answer, item, arguments) if asked else "",
                    session_id=head.row.session_id,
                    agent=head.row.agent,
                    owner=head.row.owner,
                )
        return list(found.values())

    async def _question(self, head: Loaded, receipt: int, item: Operation, arguments: Any) -> str:
        """What the user is asked: by the call, or by the answer that the receipt holds."""
        if item.plan.kind == "tool":
            return str(arguments.get("question", "")) if isinstance(arguments, dict) else ""
        answer = await self._entry(head, receipt)
        parts = await resolve_parts(answer.parts, self._fetcher(head.row)) if isinstance(answer, OperationEnded) else ()
        return Message(role="assistant", parts=parts).text

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
        """Close an open request, of the session or of an agent that it called. Durable when this returns; the first answer wins.

        Raises `StaleRequest` where the stored state already says that the request is closed: that is an entry too, `SubmissionRefused`, so
        that the journal says who decided what, and who too late, once for each who says the same. Nothing is written about a request that
        nobody knows, or whose deadline has passed while nobody has looked yet, nor about a decision that doesn't go with its kind
        (`SubmissionRejected`). Whether edited ``arguments`` fit the
        tool is known only where the agent is: a handle with one checks them (`Session.answer`); else a call that can't take them ends with
        an error that the model reads, and nothing runs.
        """
        if arguments is not None:
            if not isinstance(arguments, dict) or decision != "approve":
                raise UsageError("edited arguments are one JSON object, and go with the decision to approve", hint='{"order": "A-1"}')
            arguments = canonical.check(arguments, "arguments")
        if decision == "reply":
            check_text(result, "what the user says", REPLY_LIMIT)
            if not result.strip() or is_error:
                raise UsageError("a reply says something", hint='result="…"; deny means that there is no answer')
        elif decision != "settle" and (result is not None or is_error):
            raise UsageError("a result goes with the decision to settle, or to reply", hint='decision="settle"')
        if decision not in get_args(Decision):
            raise UsageError(f"{decision!r} is no decision", hint="approve, grant, deny, abort, settle, retry or reply")
        command = Answer(
            request_id=request_id,
            decision=decision,
            arguments=arguments,
            reason=reason,
            result=canonical.check(result, "result"),
            is_error=is_error,
            submission=submission_id(submission or f"answer:{request_id}:{uuid.uuid4().hex}"),
            actor=actor,
        )
        try:
            return await self._control(session_id, command)
        except StaleRequest as stale:
            late = stale
        asked = [item.session_id for item in await self.requests(session_id, children=True) if item.request_id == request_id]
        if len(asked) == 1 and asked[0] != session_id:
            # An agent that this session called asks it.
            try:
                return await self._control(asked[0], command)
            except StaleRequest as stale:
                late = stale
        answered = await self._answered(session_id, request_id)
        if not answered:
            raise late
        if not submission:
            # Who says the same once more, as a second click does, adds nothing to the journal.
            same = canonical.short_digest(commands.digest(command), actor)
            command = msgspec.structs.replace(command, submission=f"answer:{request_id}:{same}")
        return await self._control(answered, command, late=late)

    async def _answered(self, session_id: str, request_id: str) -> str:
        """Whose request it is that was closed before: the session's, or that of an agent that it called. Empty if nobody knows it."""
        head = await self._head(session_id)
        for asked in (head, *await self._children(head)):
            before = asked.row.version + 1
            while before > 1:
                rows = await read_entries(
                    self._runtime.store, asked.row.no, before=before, kinds=(RequestClosed.kind,), newest_first=True, limit=CLOSED_PAGE
                )
                if any(isinstance(entry, RequestClosed) and entry.request_id == request_id for entry in map(open_entry, rows)):
                    return asked.row.session_id
                before = rows[-1].seq if len(rows) == CLOSED_PAGE else 0
        return ""

    async def approve(self, session_id: str, request_id: str, arguments: dict[str, Any] | None = None, **options: Any) -> Submission:
        """Let a call run, with other arguments if they are given."""
        return await self.answer(session_id, request_id, "approve", arguments=arguments, **options)

    async def deny(self, session_id: str, request_id: str, reason: str = "", **options: Any) -> Submission:
        """Refuse a call; the model reads the reason."""
        return await self.answer(session_id, request_id, "deny", reason=reason, **options)

    async def settle(self, session_id: str, request_id: str, result: Any = None, *, is_error: bool = False, **options: Any) -> Submission:
        """Say what became of a call whose outcome is unknown."""
        return await self.answer(session_id, request_id, "settle", result=result, is_error=is_error, **options)

    async def reply(self, session_id: str, request_id: str, text: str, **options: Any) -> Submission:
        """Answer what the user was asked: it is a message then, or the result of the call that asked."""
        return await self.answer(session_id, request_id, "reply", result=text, **options)

    async def grant(self, session_id: str, request_id: str, **options: Any) -> Submission:
        """Let a call run, and this very call again whenever the model asks for it in this session."""
        return await self.answer(session_id, request_id, "grant", **options)

    async def grants(self, session_id: str) -> tuple[Grant, ...]:
        """The calls that may run without asking."""
        return (await self.checkpoint(session_id)).grants

    async def revoke(self, session_id: str, grant: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Ask again about a call that was granted.

        Raises `SubmissionRejected` (*unknown_grant*) if there is none; where a process holds the session, that is in the journal.
        """
        check_id(grant, "a grant")
        return await self._control(session_id, RevokeGrant(grant=grant, submission=submission_id(submission), actor=actor))

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
                    call=called_by(receipt),
                    agent=await self._acting(head, row.seq),
                    within=await self._within(head, receipt.operation, answers),
                )
            )
        turn = checkpoints.decode(head.row.checkpoint).turn
        open_still = turn.operations if turn is not None else ()
        waiting = [item for item in open_still if item.status in ("asking", "unknown") and not item.is_question]
        calls = await self._step_calls(head, turn) if turn is not None and waiting else {}
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
                    call=item.plan.call,
                    # A turn is handed over only when nothing of it is open.
                    agent=head.row.agent,
                    within=await self._within(head, item.id, answers),
                )
            )
        return found

    async def _within(self, head: Loaded, operation: str, answers: dict[int, dict[str, ToolCall]]) -> Any:
        """The arguments of the call that a step belongs to; None for what is no step."""
        call, step, _ = operation.partition("/")
        if not step:
            return None
        turn = checkpoints.decode(head.row.checkpoint).turn
        running = None if turn is None else next((item for item in turn.operations if item.id == call and item.status != "ended"), None)
        if turn is not None and running is not None:
            return await self._arguments(head, await self._step_calls(head, turn), running)
        rows = await read_entries(self._runtime.store, head.row.no, after=ids.began(call), kinds=(OperationEnded.kind,))
        ended = [entry for entry in map(open_entry, rows) if isinstance(entry, OperationEnded) and entry.operation == call]
        return await self._called_with(head, ended[-1], answers) if ended else None

    async def _acting(self, head: Loaded, seq: int) -> str:
        """The agent that the session was when an entry was written."""
        rows = await read_entries(self._runtime.store, head.row.no, before=seq, kinds=AGENT_KINDS, newest_first=True, limit=1)
        begun = [entry for entry in map(open_entry, rows) if isinstance(entry, TurnStarted | DefinitionChange)]
        return begun[0].agent if begun else head.row.agent

    async def report(self, token: str, result: Any = None, *, is_error: bool = False, actor: str = "") -> Submission:
        """The result of one attempt, from whoever holds its callback token. Sending it twice is sending it once.

        Raises `UsageError` for a token that this store didn't give, and `StaleRequest`, and nothing is stored, for an attempt that the
        session never began. One whose outcome is known stays as it is, and the journal says that this came too late.
        """
        session_id, operation, attempt = tokens.read(self._runtime.store.secret, check_text(token, "the callback token", tokens.LIMIT))
        return await self.report_attempt(session_id, operation, attempt, result, is_error, actor)

    async def report_attempt(
        self, session_id: str, operation: str, attempt: int, result: Any, is_error: bool, actor: str = ""
    ) -> Submission:
        """What one attempt came to, known to somebody who ran it or asked. It settles an effect that was reported as uncertain.

        Raises `LimitExceeded` for a result that is too long, and `StaleRequest` for an attempt that the session never began.
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
            submission=ids.derived_id("result", f"{operation}#{attempt}"),
            actor=actor,
        )
        return await self._control(session_id, command, blobs=stored_media(media))
