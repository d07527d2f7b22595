"""A turn from the message that begins it to its end, and its model calls."""

from __future__ import annotations

from typing import Any

from ..budget import raised
from ..commands import Compact, Interrupt, PostMessage, Resume
from ..draft import Draft
from ..entries import (
    AnswerRequested,
    DefinitionChange,
    MessageAdded,
    NoteAdded,
    OperationEnded,
    OperationStarted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from ..errors import SubmissionRejected
from ..finishing import NOT_FINISHED, OUTPUT_INVALID, REFUSED
from ..ids import request_id
from ..memory import MEMORY, STATE
from ..messages import said_digest
from ..records import Failure, Plan
from ..reports import Accept, Fail, Finish, Prepared, Redefined
from .budgets import LIMIT, check_resume, end_limited, stopped_by
from .endings import UNKNOWN_LIVE, abort, end_turn, fail_turn


def start_turn(draft: Draft, command: Accept) -> None:
    post = command.post
    if isinstance(post, PostMessage) and post.turn and post.deliver == "steer":
        raise _stale(post.turn)
    if isinstance(post, Resume):
        check_resume(draft, post)
    begin_turn(draft, command)
    if isinstance(post, PostMessage):
        _user_message(draft, post, "queue" if post.deliver == "steer" else post.deliver, command.at)


def begin_turn(draft: Draft, command: Accept, shape: type[TurnStarted] = TurnStarted, **facts: Any) -> None:
    """A submission is taken up; ``facts`` are those of the entry's ``shape`` that only some submissions have."""
    post = command.post
    message = post if isinstance(post, PostMessage) else None
    limited = draft.checkpoint.limited if isinstance(post, Resume) else None
    started = shape(
        submission=post.submission,
        agent=command.agent,
        definition=command.definition,
        route=command.route,
        limits=raised(command.limits, post.limits) if isinstance(post, Resume) else command.limits,
        terms=command.terms,
        author=post.actor if message is None else message.author or message.actor,
        source=None if message is None else message.source,
        compacts=isinstance(post, Compact),
        run=post.limits if isinstance(post, PostMessage | Resume) else None,
        session=command.session_limits,
        spent=command.spent,
        resumes="" if limited is None else limited.turn,
        carried=None if limited is None else limited.spent,
        memory=draft.checkpoint.extensions.get(MEMORY, {}).get(STATE, 0) if command.memory else 0,
        **facts,
    )
    draft.write(started, command.at)


def steer(draft: Draft, command: Accept) -> None:
    """Joins between model calls, and beats the turn's end. What is being summarised or looked through doesn't change meanwhile."""
    post, turn, running = command.post, draft.turn, draft.turn.model
    extraction = turn.extraction
    if extraction is not None and extraction.status == "started":
        return
    if not isinstance(post, PostMessage) or post.deliver != "steer":
        return
    if post.turn not in ("", turn.id):
        raise _stale(post.turn)
    if turn.candidate is not None:
        # It comes right behind the answer, which has its place.
        return
    busy = turn.compacts or turn.calls or turn.compactions or turn.ending
    if not busy and (running is None or running.status != "started"):
        _user_message(draft, post, "steer", command.at)


def _stale(turn: str) -> SubmissionRejected:
    return SubmissionRejected(f"the turn {turn} doesn't run", hint="a message may go to the queue instead", reason="stale_turn")


def _user_message(draft: Draft, post: PostMessage, deliver: str, at: int) -> None:
    digest = said_digest("user", post.parts)
    message = MessageAdded(
        role="user",
        parts=post.parts,
        digest=digest,
        submission=post.submission,
        author=post.author or post.actor,
        deliver=deliver,
        turn=post.turn,
        reply=post.reply,
        source=post.source,
    )
    draft.write(message, at)
    for note in post.notes:
        draft.write(NoteAdded(text=note, submission=post.submission, actor=post.actor), at)


def prepare(draft: Draft, command: Prepared) -> None:
    """Start an attempt: of the operation that asked the same before, else of a new one, within every budget."""
    turn, request, at = draft.turn, command.request, command.at
    asked = [item for item in turn.operations if item.plan.kind == command.kind]
    running = next((item for item in asked if item.status != "ended"), None)
    if running is not None and running.status == "started":
        return
    if command.kind == "repair" and turn.candidate is None:
        return
    if command.kind == "memory" and asked and running is None:
        # Once in a step: what it came to stands.
        return
    if running is not None and running.plan.arguments != request.digest:
        changed = Failure(code="request_changed", message="the request changed before it was sent again")
        draft.write(OperationEnded(operation=running.id, attempt=0, status="cancelled", failure=changed), at)
        running = None
    if (hit := stopped_by(draft, command.pool, at)) is not None:
        if running is not None:
            draft.write(OperationEnded(operation=running.id, attempt=0, status="cancelled", failure=LIMIT), at)
        end_limited(draft, hit, at)
    elif running is not None:
        draft.write(OperationStarted(operation=running.id, attempt=running.attempt + 1, fence=command.fence, request=request), at)
    else:
        plan = Plan(kind=command.kind, name=request.route, arguments=request.digest, upto=request.upto or 0, tokens=command.tokens)
        draft.write(OperationStarted(operation=draft.turn.next_id(), attempt=1, fence=command.fence, plan=plan, request=request), at)


def interrupt(draft: Draft, command: Interrupt) -> None:
    if command.turn and command.turn != draft.turn.id:
        raise SubmissionRejected(f"turn {command.turn} is over", hint=f"turn {draft.turn.id} runs now", reason="stale_turn")
    abort(draft, command.at, command.reason or "interrupted", interrupt=command.submission, actor=command.actor)


def refuse_interrupt(draft: Draft, command: Interrupt) -> None:
    raise SubmissionRejected("no turn is running", hint="there is nothing to interrupt", reason="idle")


def fail(draft: Draft, command: Fail) -> None:
    fail_turn(draft, command.at, command.failure, UNKNOWN_LIVE)


def finish(draft: Draft, command: Finish) -> None:
    """An answer ends the turn, or the call in it that does; where it takes a call, the model is told so, or the user is asked.

    A refusal that asked for calls never was what an answer of a type has to be.
    """
    turn = draft.turn
    if turn.refused and "output" in turn.terms.holds:
        why = Failure(code=OUTPUT_INVALID, message=REFUSED)
        end_turn(draft, TurnFailed, command.at, failure=why, reason=why.message)
    elif turn.terms.finish == "answer" or turn.call or not turn.output:
        complete(draft, command.at)
    elif turn.terms.finish == "tool":
        draft.write(NoteAdded(text=NOT_FINISHED, continues=True), command.at)
    else:
        identity = turn.next_id()
        asked = AnswerRequested(
            request_id=request_id("answer", identity, 1, str(turn.output)),
            operation=identity,
            deadline=command.deadline,
            default=command.default,
            message=turn.output,
        )
        draft.write(asked, command.at)


def complete(draft: Draft, at: int, reason: str = "") -> None:
    """The turn ends with its last answer."""
    turn = draft.turn
    end_turn(draft, TurnCompleted, at, output=turn.output, call=turn.call, argument=turn.argument, reason=reason)


def redefine(draft: Draft, command: Redefined) -> None:
    turn = draft.turn
    changed = DefinitionChange(
        agent=turn.agent,
        old=turn.definition,
        new=command.new,
        difference=command.difference,
        terms=command.terms,
    )
    draft.write(changed, command.at)
