"""Carrying out effects: model calls, tool calls, and asking a tool what became of one. Nothing here decides or stores anything."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from copy import deepcopy
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import msgspec

from ..agent import Agent
from ..agent.output import ValidatorFailed
from ..core import canonical
from ..core.budget import ms_left
from ..core.checkpoint import CALLS_LIMIT, Checkpoint, Operation
from ..core.context import NOTES_LIMIT
from ..core.effects import may_be_unknown
from ..core.errors import (
    EffectFailed,
    EffectUncertain,
    InvalidModelOutput,
    LimitExceeded,
    MediaBudgetExceeded,
    NotCanonical,
    PerdureError,
    ProviderError,
    StoreError,
    UsageError,
)
from ..core.finishing import FINISHED, OUTPUT_INVALID
from ..core.ids import idempotency_key, owner_of
from ..core.media import Media, content_type
from ..core.memory import STATE_LIMIT
from ..core.messages import INLINE_LIMIT, Part, Private, Reasoning, Text, ToolCall, ToolCallResponse, media_of, set_aside
from ..core.records import MODEL_KINDS, Failure
from ..core.reports import AttemptEnded, ErrandsDone, Fail, Reconciled
from ..core.rules.endings import ASLEEP, RAISED
from ..core.usage import Usage
from ..core.words import said, words
from ..models.base import Delta, Finish, Model, ModelOutput, ModelRequest, ModelSettings, ReasoningDelta, TextDelta
from ..store.base import StoredBlob
from ..tools.context import ToolContext
from ..tools.moments import LONGEST_SLEEP, Moment, moment_of
from ..tools.returned import kept
from ..tools.running import ToolCancelled, ToolError
from ..tools.tool import ArgumentsInvalid, Done, NotDone, ResultInvalid, Tool, Unknown, WithMedia
from ..tools.transaction import InTransaction
from . import tokens
from .clock import Clock, alarm, first_of
from .context import Fetch
from .transactions import Transaction

if TYPE_CHECKING:
    from .steps import Steps

__all__ = [
    "LONGEST_SECONDS",
    "OUTPUT_LIMIT",
    "Late",
    "Outcome",
    "Performed",
    "Performer",
    "asked_to_stop",
    "keep_parts",
    "no_result",
    "stored_media",
]

OUTPUT_LIMIT = 16 * 1024 * 1024
"""The longest answer of a model, or result of a tool, that is kept (bytes)."""

MODEL_SECONDS = 600.0
"""How long one attempt of a model call may take whose settings say nothing about it."""

RECONCILE_SECONDS = 60.0
"""How long a tool without a timeout of its own may take to tell what became of a call."""

LETTING_GO_SECONDS = 10.0
"""How long what was cancelled may take to end before nobody waits for it any more."""

CLOSE_SECONDS = 5.0
"""How long a model may take to close its stream before nobody waits for it any more."""

NOTHING_WRITTEN = (
    "what it did elsewhere is done again after a crash; what is in its transaction is not, so return ctx.transaction(…), or declare "
    "it as what it is"
)

LONGEST_SECONDS = 10 * 365 * 86_400
"""A timeout that is longer is as good as none, and no clock has to count it."""

LONGEST_HINT_SECONDS = 86_400
"""A provider that asks for a longer pause isn't believed."""

NAME_LIMIT = 200
"""The longest name that is taken from somebody else (characters)."""

_FINISHES = get_args(Finish)

Outcome: TypeAlias = tuple[AttemptEnded | Reconciled | Fail | ErrandsDone, tuple[StoredBlob, ...]]
Performed: TypeAlias = Outcome | Transaction
Late: TypeAlias = Callable[[str, int, Any, bool], None]

_log = logging.getLogger("perdure.runtime")

_advice = logging.getLogger("perdure.advice")
"""What only whoever writes the agents can mend: commands show it, too."""


def keep_parts(
    parts: tuple[Part, ...], *, calls: int = INLINE_LIMIT, texts: int = INLINE_LIMIT
) -> tuple[tuple[Part, ...], tuple[StoredBlob, ...]]:
    """Parts as the journal holds them, and what is set aside. Raises `LimitExceeded` beyond `OUTPUT_LIMIT`.

    ``calls`` and ``texts`` are how many bytes of a call and of a text stand in the journal itself.
    """
    kept: list[Part] = []
    blobs: list[StoredBlob] = []
    for part in parts:
        limit = calls if isinstance(part, ToolCall) else texts if isinstance(part, Text) else INLINE_LIMIT
        short, data = set_aside(part, limit)
        kept.append(short)
        if data is not None:
            blobs.append(StoredBlob(digest=canonical.digest(data), media_type="application/json", data=data))
    if not blobs:
        return parts, ()
    total = sum(len(blob.data) for blob in blobs)
    if total > OUTPUT_LIMIT:
        raise LimitExceeded(f"{total} bytes at once; at most {OUTPUT_LIMIT} are kept", hint="ask for less at once", limit="output")
    return tuple(kept), tuple(blobs)


def stored_media(media: Iterable[Media]) -> tuple[StoredBlob, ...]:
    """The bytes of media as the store takes them, each once."""
    distinct = {item.blob.digest: item.data for item in media}
    return tuple(StoredBlob(digest=digest, media_type=content_type(data), data=data) for digest, data in distinct.items())


def no_result(ended: asyncio.Future[Any], seconds: float | None) -> Failure:
    """Why a function that was waited for, for as long, comes to nothing: its time is over, unless it ended, and cancelled itself."""
    if ended.done():
        return Failure(code="cancelled_itself", message="it cancelled itself")
    return Failure(code="timeout", message=f"no result within {seconds} s")


def asked_to_stop() -> bool:
    """Whether somebody cancelled the running task. Without that a `CancelledError` is an accident of the code that raised it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _TimeIsOver(Exception):
    """What ran was cut off. ``limit``: the turn's own time is over, and not only that of the attempt."""

    def __init__(self, *, limit: bool) -> None:
        super().__init__()
        self.limit = limit


class _Time:
    """Cancels what runs inside when its time, or what is left of the turn's, is over (both in ms), and raises `_TimeIsOver` then.

    ``give_up`` is called if it hasn't let go `LETTING_GO_SECONDS` after that; `let_go` says that it has.
    """

    __slots__ = ("_alarm", "_cancelling", "_clock", "_done", "_give_up", "_limit", "_ms", "_over", "_patience", "_task")

    def __init__(self, clock: Clock, own: int, left: int | None, give_up: Callable[[_TimeIsOver], None]) -> None:
        self._clock = clock
        self._limit = left is not None and left <= own
        self._ms = own if left is None else min(own, left)
        self._over = self._done = False
        self._give_up = give_up
        self._patience: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._alarm = alarm(self._clock, self._clock.now() + self._ms, self._cut)

    def _cut(self) -> None:
        if not self._done:
            self._over = True
            self._task.cancel()
            # Whether it lets go is a matter of this process, however the session's clock goes.
            over, loop = _TimeIsOver(limit=self._limit), asyncio.get_running_loop()
            self._patience = loop.call_later(LETTING_GO_SECONDS, self._give_up, over)

    def let_go(self) -> None:
        if self._patience is not None:
            self._patience.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done = True
        self._alarm.cancel()
        # Who was told to stop by somebody else, too, stops for that.
        if self._over and self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise _TimeIsOver(limit=self._limit) from error


class Performer:
    """Runs the effects of one session. Each method returns a report for the decider, whatever the effect does.

    What it doesn't expect it raises, and `unexpected` makes a report of that; an error of the store is never one of the effect.
    """

    def __init__(
        self,
        *,
        session_id: str,
        store_id: str,
        secret: bytes,
        clock: Clock,
        deltas: Callable[[Delta], None],
        late: Late,
        fetch: Fetch,
    ) -> None:
        self.media = False
        """Whether the next model request may hold media."""
        self.metadata: dict[str, Any] = {}
        self.checkpoint = Checkpoint()
        """Where the session stood at the last commit."""
        self.steps: Steps | None = None
        self.give_up: Callable[[Operation, Outcome], None] = lambda operation, outcome: None
        """Told what came of a call that doesn't end although its time is over."""
        self._session_id = session_id
        self._store_id = store_id
        self._secret = secret
        self._clock = clock
        self._deltas = deltas
        self._late = late
        self._fetch = fetch

    async def model(self, operation: Operation, model: Model, request: ModelRequest, fallback: str = "") -> Outcome:
        """One model call. Cancelling it closes the provider's stream; the text so far is in the report.

        So does the end of its time: that of an attempt, which is tried again, or the turn's, which has reached a limit then.
        ``fallback`` is the route that may answer instead if this one's provider gives up. An answer that can't be taken still counts with
        what it used.
        """
        attempt = _Attempt(operation, request.settings, fallback)
        sending = False
        time = _Time(self._clock, round(attempt.seconds * 1000), ms_left(self.checkpoint), partial(self._give_up_model, attempt))
        try:
            request = await self._with_media(request)
            sending = True
            output = await self._stream(attempt, model, request, time)
            # Notes stand in their receipt, whatever escapes they take there; so does what is to be remembered.
            calls = 8 * NOTES_LIMIT if operation.plan.kind == "compaction" else INLINE_LIMIT
            texts = STATE_LIMIT if operation.plan.kind == "memory" else INLINE_LIMIT
            parts, blobs = keep_parts(_checked(output), calls=calls, texts=texts)
            group = _plain(model.group, "the group of a model")
        except _TimeIsOver as over:
            return self._cut_off(attempt, over)
        except asyncio.CancelledError:
            if asked_to_stop():
                return self._model_ended(attempt, "cancelled", Failure(code="interrupted")), ()
            # Nobody asked for it, so it counts as an attempt that failed.
            message = "the model ended with a cancellation of its own"
            _log.warning("%s: %s", operation.id, message)
            failure = Failure(code="model_cancelled_itself", message=message, retryable=True)
            return self._model_ended(attempt, "failed", failure, retried=True), ()
        except StoreError:
            raise
        except ProviderError as error:
            status = error.facts.get("status")
            failure = Failure(
                code=error.code,
                message=said(error),
                retryable=error.retryable,
                status=status if type(status) is int and 0 <= status < 1_000 else None,
                retry_after=_pause(error.retry_after),
            )
            return self._model_ended(attempt, "failed", failure, retried=True), ()
        except PerdureError as error:
            ended = self._model_ended(attempt, "failed", Failure(code=error.code, message=said(error)))
            # A `UsageError` says that the request, the key or the package is none that could be sent.
            unsent = attempt.answer is None and (not sending or (isinstance(error, UsageError) and not attempt.text))
            return msgspec.structs.replace(ended, unsent=unsent), ()
        except BaseException as error:
            _log.exception("the model of %s raised what no model should", operation.id)
            return self._model_ended(attempt, "failed", Failure(code="model_error", message=words(error))), ()
        finally:
            time.let_go()
        return (
            AttemptEnded(
                operation=operation.id,
                attempt=operation.attempt,
                status="succeeded",
                parts=parts,
                finish=output.finish,
                usage=output.usage,
                model=said(output.model, NAME_LIMIT),
                group=group,
                at=self._clock.now(),
            ),
            blobs,
        )

    def _cut_off(self, attempt: _Attempt, over: _TimeIsOver) -> Outcome:
        if over.limit:
            # What may still be called is found where the next attempt would begin.
            failure = Failure(code="limited", message="it was cut off where the turn's time was over")
            return msgspec.structs.replace(self._model_ended(attempt, "cancelled", failure), final=False), ()
        failure = Failure(code="timeout", message=f"no answer within {attempt.seconds:g} s", retryable=True)
        return self._model_ended(attempt, "failed", failure, retried=True), ()

    def _give_up_model(self, attempt: _Attempt, over: _TimeIsOver) -> None:
        self.give_up(attempt.operation, self._cut_off(attempt, over))

    async def _with_media(self, request: ModelRequest) -> ModelRequest:
        """The request with the bytes that its media stand for. Raises `MediaBudgetExceeded`, and `StoreCorrupt` where they are gone."""
        if not self.media:
            return request
        media = [blob for message in request.messages for part in message.parts for blob in media_of(part)]
        size, limit = sum(blob.size for blob in media), request.settings.media_bytes
        if size > limit:
            raise MediaBudgetExceeded(
                f"the media of this request have {size} bytes, each counted as often as it stands there; at most {limit} are sent",
                hint="rewrite what is no longer needed, or raise ModelSettings.media_bytes",
                limit="media_bytes",
                size=size,
            )
        content = {blob.digest: b"" for blob in media}
        for digest in content:
            content[digest] = await self._fetch(digest)
        return msgspec.structs.replace(request, content=content)

    async def _stream(self, attempt: _Attempt, model: Model, request: ModelRequest, time: _Time) -> ModelOutput:
        stream = model.stream(request)
        try:
            async with time:
                async for item in stream:
                    if attempt.answer is not None:
                        raise InvalidModelOutput("the model's stream went on after its answer")
                    if isinstance(item, ModelOutput):
                        attempt.answer = item
                    elif isinstance(item, (TextDelta, ReasoningDelta)) and isinstance(item.text, str):
                        if attempt.operation.plan.kind not in ("compaction", "memory"):
                            self._tell(attempt, item)
                    else:
                        raise InvalidModelOutput("the model's stream holds something that is neither text nor an answer")
        finally:
            await _close(stream)
        if attempt.answer is None:
            raise InvalidModelOutput("the model's stream ended without an answer")
        return attempt.answer

    def _tell(self, attempt: _Attempt, delta: TextDelta | ReasoningDelta) -> None:
        """Let people see what a model says."""
        if isinstance(delta, TextDelta):
            attempt.text.append(delta.text)
        text = attempt.whole(delta)
        if text or not delta.text:
            operation = attempt.operation
            self._deltas(msgspec.structs.replace(delta, text=text, operation=operation.id, attempt=operation.attempt, index=attempt.told))
            attempt.told += 1

    def _model_ended(self, attempt: _Attempt, status: Any, failure: Failure, *, retried: bool = False) -> AttemptEnded:
        """``retried``: the same may be asked again, or somebody else."""
        wait = attempt.settings.longest_wait if retried else None
        return AttemptEnded(
            operation=attempt.operation.id,
            attempt=attempt.operation.attempt,
            status=status,
            failure=failure,
            partial=said("".join(attempt.text), OUTPUT_LIMIT // 64),
            usage=None if attempt.answer is None else _reported(attempt.answer),
            retryable=failure.retryable,
            retry_after=failure.retry_after,
            attempts=attempt.settings.attempts if retried else None,
            longest_wait=None if wait is None else round(min(wait, LONGEST_HINT_SECONDS) * 1000),
            fallback=attempt.fallback if retried else "",
            at=self._clock.now(),
        )

    def unexpected(self, operation: Operation, error: BaseException) -> Outcome:
        """What an effect comes to if nothing is known but what was raised on its way."""
        if operation.status == "unknown":
            return Reconciled(operation=operation.id, outcome="unknown", at=self._clock.now()), ()
        failure = Failure(code=error.code if isinstance(error, PerdureError) else "unexpected", message=words(error))
        if operation.plan.kind in MODEL_KINDS:
            return self._model_ended(_Attempt(operation), "failed", failure), ()
        if may_be_unknown(operation.plan):
            return self.stopped(operation, failure), ()
        return self._responded(operation, "failed", failure.message, is_error=True, failure=failure)

    async def tool(self, operation: Operation, agent: Agent, tool: Tool, arguments: Any) -> Performed:
        """One tool call; of a transactional one, what is left to be done in the commit of its receipt.

        Cancelling it cancels an async tool and waits for its end; a sync one goes on, and its end is reported late. One that begins to
        sleep is cancelled too, and its next attempt begins when the time has come.
        """
        try:
            bound = tool.check(arguments)
        except ArgumentsInvalid as error:
            return self._responded(operation, "failed", said(error, None), is_error=True, failure=Failure(code="invalid_arguments"))
        aside: asyncio.Future[None] | None = asyncio.get_running_loop().create_future() if operation.plan.resumable else None
        context = self.context(operation, agent, aside=aside) if tool.takes_context else None
        seconds = None if tool.timeout is None else min(tool.timeout, LONGEST_SECONDS)
        running = tool.start(context, bound)
        ended = running.ended
        try:
            await first_of(self._clock, *([ended] if aside is None else [ended, aside]), seconds=seconds)
            stopped = ASLEEP if aside is not None and aside.done() else no_result(ended, seconds)
        except asyncio.CancelledError:
            stopped = ASLEEP if aside is not None and aside.done() else Failure(code="interrupted", message="interrupted")
        if not ended.done():
            running.cancel()
            if tool.is_async:
                # A second cancellation doesn't make what began something that never ran.
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([ended], timeout=self.CANCEL_GRACE)
        if not ended.done() or isinstance(_error(ended), ToolCancelled):
            if not running.done and may_be_unknown(operation.plan):
                running.late.add_done_callback(lambda ended: self._ended_late(operation, ended))
            if stopped is ASLEEP:
                if ended.done():
                    return msgspec.structs.replace(self.stopped(operation, ASLEEP), status="cancelled", final=False), ()
                # It still does something, so it can't be begun again.
                stopped = Failure(code="interrupted", message="it did not let go when it was to sleep")
            return self.stopped(operation, stopped), ()
        return self._ended(operation, tool, ended)

    async def read(
        self, operation: Operation, tool: Tool, arguments: Any, archived: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    ) -> Outcome:
        """A call of the tool that reads archived results. An error of the store is raised: it says nothing about the call."""
        try:
            bound = tool.check(arguments)
            return self._responded(operation, "succeeded", await archived(bound.kwargs), is_error=False)
        except asyncio.CancelledError:
            return self.stopped(operation, Failure(code="interrupted", message="interrupted")), ()
        except ArgumentsInvalid as error:
            return self._responded(operation, "failed", said(error, None), is_error=True, failure=Failure(code="invalid_arguments"))
        except ToolError as error:
            failure = Failure(code="tool_error", message=said(error))
            return self._responded(operation, "failed", said(error, None), is_error=True, failure=failure)

    async def finish(self, operation: Operation, tool: Tool, arguments: Any, judge: Callable[[Any], Awaitable[str]]) -> Outcome:
        """A call that ends its turn, if its output is what it has to be; ``judge`` says what else is wrong with it."""
        try:
            wrong = await judge(tool.check(arguments).kwargs["output"])
        except asyncio.CancelledError:
            return self.stopped(operation, Failure(code="interrupted", message="interrupted")), ()
        except ArgumentsInvalid as error:
            return self._responded(operation, "failed", said(error, None), is_error=True, failure=Failure(code="invalid_arguments"))
        except ValidatorFailed as error:
            return Fail(failure=Failure(code=OUTPUT_INVALID, message=said(error)), at=self._clock.now()), ()
        if wrong:
            failure = Failure(code=OUTPUT_INVALID, message=wrong)
            return self._responded(operation, "failed", f"the result is not accepted: {wrong}", is_error=True, failure=failure)
        return self._responded(operation, "succeeded", FINISHED, is_error=False)

    CANCEL_GRACE = 5.0
    """How long a cancelled async tool may take to let go (seconds)."""

    def stopped(self, operation: Operation, why: Failure, *, began: bool = True) -> AttemptEnded:
        """An attempt that was cut off. Once it began, nobody knows what became of an external one."""
        status: Any = "uncertain" if began and may_be_unknown(operation.plan) else "cancelled"
        return AttemptEnded(operation=operation.id, attempt=operation.attempt, status=status, failure=why, at=self._clock.now())

    def _ended(self, operation: Operation, tool: Tool, ended: asyncio.Future[Any]) -> Performed:
        error = _error(ended)
        match error:
            case None if isinstance(asked := ended.result(), InTransaction):
                return self.transaction(operation, lambda connection: kept(asked(connection)))
            case None:
                if operation.plan.effect == "transactional" and (self.steps is None or not self.steps.acted(operation.id)):
                    # That there was nothing to write is for the tool to know; what it did elsewhere is as unguarded as if it said nothing.
                    _advice.warning("the transactional tool %s ended without its transaction: %s", tool.name, NOTHING_WRITTEN)
                return self._responded(operation, "succeeded", ended.result(), is_error=False)
            case ResultInvalid():
                return self._responded(operation, "succeeded", said(error), is_error=True)
            case ToolError():
                failure = Failure(code="tool_error", message=said(error))
                return self._responded(operation, "failed", said(error, None), is_error=True, failure=failure)
        _log.warning("the tool %s raised %s", tool.name, words(error))
        failure = Failure(code=RAISED, message=words(error))
        known = self._did_nothing(operation, error) or not may_be_unknown(operation.plan)
        if not known or isinstance(error, EffectUncertain):
            return (
                AttemptEnded(operation=operation.id, attempt=operation.attempt, status="uncertain", failure=failure, at=self._clock.now()),
                (),
            )
        return self._responded(operation, "failed", words(error), is_error=True, failure=failure)

    def _did_nothing(self, operation: Operation, error: BaseException | None) -> bool:
        """Whether a call was ended by a wrong use of its context before it began anything outside.

        Only of a resumable one is that known: whatever it does outside stands in its steps.
        """
        wrong_use = isinstance(error, UsageError) and not isinstance(error, EffectFailed)
        return wrong_use and operation.plan.resumable and self.steps is not None and not self.steps.acted(operation.id)

    def _responded(self, operation: Operation, status: Any, response: Any, *, is_error: bool, failure: Failure | None = None) -> Outcome:
        try:
            parts, blobs = self.response(operation, response, is_error=is_error)
        except LimitExceeded as error:
            parts, blobs = self.response(operation, f"the tool ran, but its result can't be kept: {error}", is_error=True)
        return (
            AttemptEnded(
                operation=operation.id, attempt=operation.attempt, status=status, parts=parts, failure=failure, at=self._clock.now()
            ),
            blobs,
        )

    def response(self, operation: Operation, response: Any, *, is_error: bool) -> tuple[tuple[Part, ...], tuple[StoredBlob, ...]]:
        """A call's response as the journal holds it."""
        plan = operation.plan
        response, media = (response.response, response.media) if isinstance(response, WithMedia) else (response, ())
        blobs = tuple(item.blob for item in media)
        parts, stored = keep_parts((ToolCallResponse(id=plan.call, name=plan.name, response=response, is_error=is_error, media=blobs),))
        return parts, (*stored, *stored_media(media))

    def transaction(self, operation: Operation, function: Callable[[Any], Any]) -> Transaction:
        """A function that makes an operation's result in the commit of its receipt."""

        def respond(response: Any, is_error: bool) -> tuple[tuple[Part, ...], tuple[StoredBlob, ...]]:
            return self.response(operation, response, is_error=is_error)

        return Transaction(operation=operation, function=function, respond=respond)

    def _ended_late(self, operation: Operation, ended: asyncio.Future[Any]) -> None:
        error = _error(ended)
        if error is None:
            self._late(operation.id, operation.attempt, ended.result(), False)
        elif isinstance(error, ToolError):
            self._late(operation.id, operation.attempt, said(error, None), True)

    async def reconcile(self, operation: Operation, agent: Agent, tool: Tool | None, arguments: Any) -> Outcome:
        """Ask a tool what became of an attempt. It only reads, so it may be asked again."""
        report = Reconciled(operation=operation.id, outcome="unknown", at=self._clock.now())
        if tool is None:
            return report, ()
        answer = await self.told(operation, agent, tool, arguments)
        try:
            if isinstance(answer, NotDone):
                return msgspec.structs.replace(report, outcome="not_done", at=self._clock.now()), ()
            if isinstance(answer, Done):
                parts, blobs = self.response(operation, answer.result, is_error=False)
                return msgspec.structs.replace(report, outcome="done", parts=parts, at=self._clock.now()), blobs
        except (LimitExceeded, NotCanonical) as error:
            _log.warning("the reconcile of %s told nothing usable: %s", tool.name, error)
        return msgspec.structs.replace(report, at=self._clock.now()), ()

    async def told(self, operation: Operation, agent: Agent, tool: Tool, arguments: Any) -> Done | NotDone | Unknown:
        """What a tool says of one of its calls, if it says it in time."""
        try:
            bound = tool.check(arguments)
        except ArgumentsInvalid as error:
            _log.warning("the reconcile of %s can't be asked: %s", tool.name, error)
            return Unknown()
        seconds = RECONCILE_SECONDS if tool.timeout is None else tool.timeout
        return await self._within(seconds, tool.reconcile_call(self.context(operation, agent, reads=True), bound))

    async def _within(self, seconds: float, asking: Coroutine[Any, Any, Done | NotDone | Unknown]) -> Done | NotDone | Unknown:
        """An answer that doesn't come in time is none."""
        asked = asyncio.ensure_future(asking)
        try:
            await first_of(self._clock, asked, seconds=min(seconds, LONGEST_SECONDS))
            return asked.result() if asked.done() else Unknown()
        finally:
            asked.cancel()

    def context(self, operation: Operation, agent: Agent, *, reads: bool = False, aside: asyncio.Future[None] | None = None) -> ToolContext:
        """What a tool is told about its call. ``reads``: it may only read. ``aside`` is done once it sleeps, which it can't without."""
        tool = agent.tool(operation.plan.name)
        acts = not reads and tool is not None and tool.is_async

        async def outside(name: str, **what: Any) -> Any:
            from .steps import Deed

            if aside is not None and aside.done():
                # What runs on the way out of a call that falls asleep is for the attempt that comes to the end.
                raise asyncio.CancelledError
            assert self.steps is not None
            deed = Deed(identity=f"{operation.id}/{name}", name=f"{operation.plan.name}/{name}", attempt=operation.attempt, **what)
            return await self.steps.perform(deed)

        def set_aside() -> None:
            if aside is not None and not aside.done():
                aside.set_result(None)

        async def sleep(name: str, moment: Moment) -> None:
            now = self._clock.now()
            until = moment_of(moment, now, "moment")
            if until > now + LONGEST_SLEEP * 1000:
                raise UsageError(f"moment={moment!r:.100} is too far away", hint=f"a call sleeps {LONGEST_SLEEP} seconds at most")
            # What has passed is as good as now, and 0 would be no time.
            await outside(name, until=max(1, until), aside=set_aside)

        turn = self.checkpoint.turn
        if turn is not None and turn.id != owner_of(operation.id):
            turn = None
        return ToolContext(
            session_id=self._session_id,
            turn=owner_of(operation.id),
            operation=operation.id,
            attempt=operation.attempt,
            call=operation.plan.call,
            idempotency_key=idempotency_key(self._store_id, self._session_id, operation.id),
            callback_token=tokens.issue(self._secret, self._session_id, operation.id, operation.attempt),
            identity=self.checkpoint.identity,
            metadata=deepcopy(self.metadata),
            author=turn.author if turn is not None else "",
            source=turn.source if turn is not None else None,
            agent=agent.name,
            effect=operation.plan.effect,
            outside=outside if acts else None,
            sleeping=sleep if acts and aside is not None else None,
            key=lambda name: idempotency_key(self._store_id, self._session_id, f"{operation.id}/{name}"),
        )


class _Attempt:
    """One call of a model, and what was heard of it until it ended or was cut short. ``answer`` may be one that can't be taken."""

    __slots__ = ("_halves", "answer", "fallback", "operation", "settings", "text", "told")

    def __init__(self, operation: Operation, settings: ModelSettings = ModelSettings(), fallback: str = "") -> None:  # noqa: B008 - immutable
        self.operation = operation
        self.settings = settings
        self.fallback = fallback
        self.answer: ModelOutput | None = None
        self.text: list[str] = []
        self.told = 0
        self._halves: dict[type, str] = {}

    @property
    def seconds(self) -> float:
        """How long it may take."""
        timeout = self.settings.timeout
        return MODEL_SECONDS if timeout is None else min(timeout, LONGEST_SECONDS)

    def whole(self, delta: TextDelta | ReasoningDelta) -> str:
        """Text that comes in pieces, as pieces that can be encoded: a character that was cut in two comes with its second half."""
        text, half = self._halves.get(type(delta), "") + delta.text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, half = text[:-1], text[-1]
        self._halves[type(delta)] = half
        return said(text, None)


async def _close(stream: Any) -> None:
    """Close a model's stream. Its outcome is known by now, and nothing that happens here changes it."""
    try:
        close = getattr(stream, "aclose", None)
        if close is None or getattr(stream, "ag_frame", stream) is None:
            # A generator that ran to its end has nothing left to close.
            return
        # In a task of its own: one that ignores its cancellation is left behind.
        closing = asyncio.ensure_future(close())
    except Exception:
        _log.exception("a model's stream can't be closed")
        return
    closing.add_done_callback(_closed)
    try:
        if not (await asyncio.wait([closing], timeout=CLOSE_SECONDS))[0]:
            _log.warning("a model's stream was not closed within %s s", CLOSE_SECONDS)
    finally:
        closing.cancel()


def _closed(closing: asyncio.Future[Any]) -> None:
    if not closing.cancelled() and (error := closing.exception()) is not None:
        _log.warning("closing a model's stream raised %s", words(error))


def _checked(output: ModelOutput) -> tuple[Part, ...]:
    """An answer that can be kept and understood, or `InvalidModelOutput` / `LimitExceeded`.

    Nothing checks types when such an object is made, and what the journal once holds has to be read again.
    """
    if not isinstance(output.model, str):
        raise InvalidModelOutput(f"the model's name is of the type {type(output.model).__name__}")
    if not isinstance(output.finish, str) or output.finish not in _FINISHES:
        raise InvalidModelOutput(f"an answer can't finish with {said(output.finish, NAME_LIMIT)!r}")
    if output.usage is not None:
        _checked_usage(output.usage)
    if not isinstance(output.parts, tuple | list):
        raise InvalidModelOutput(f"the parts of an answer are of the type {type(output.parts).__name__}")
    seen: set[str] = set()
    calls = 0
    for part in output.parts:
        kind = type(part)
        if kind is Text or kind is Reasoning:
            _plain(part.content, "text")  # type: ignore[union-attr]
        elif isinstance(part, ToolCall) and kind is ToolCall:
            calls += 1
            _plain(part.name, "the name of a tool")
            if not _plain(part.id, "the id of a call") or part.id in seen:
                raise InvalidModelOutput(f"two calls, or one without a name of its own, have the id {part.id!r}")
            seen.add(part.id)
            _checked_json(part.arguments, "arguments")
        elif isinstance(part, Private) and kind is Private:
            _plain(part.group, "the group of private data")
            _checked_json(part.data, "private data")
        else:
            raise InvalidModelOutput(f"an answer can't hold a part of type {kind.__name__}")
    if calls > CALLS_LIMIT:
        raise LimitExceeded(f"{calls} tool calls in one answer; at most {CALLS_LIMIT} are taken", limit="calls")
    if (
        output.finish not in ("refusal", "length")
        and not calls
        and not any(isinstance(part, Text) and part.content for part in output.parts)
    ):
        raise InvalidModelOutput("the model answered with nothing")
    return tuple(output.parts)


def _reported(output: ModelOutput) -> Usage | None:
    """What an answer says that it used, if that is anything."""
    try:
        if output.usage is not None:
            _checked_usage(output.usage)
    except InvalidModelOutput:
        return None
    return output.usage


def _checked_usage(usage: Usage) -> None:
    if type(usage) is not Usage:
        raise InvalidModelOutput(f"the usage of an answer is of the type {type(usage).__name__}")
    if type(usage.estimated) is not bool:
        raise InvalidModelOutput("whether the usage of an answer is estimated is neither true nor false")
    for count in msgspec.structs.astuple(usage)[:-1]:
        if count is None:
            continue
        if type(count) is not int:
            raise InvalidModelOutput(f"the model counts its tokens with the type {type(count).__name__}")
        if count < 0:
            raise InvalidModelOutput("the model claims to have used less than nothing")
        if count >= canonical.MAX_INTEGER:
            raise InvalidModelOutput("the model claims to have used more tokens than can be counted")


def _plain(text: Any, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidModelOutput(f"{what} is of the type {type(text).__name__}")
    _checked_json(text, what)
    return text


def _checked_json(value: Any, what: str) -> None:
    try:
        canonical.check(value, what)
    except NotCanonical as error:
        raise InvalidModelOutput(said(error)) from error


def _pause(hint: Any) -> int | None:
    """The milliseconds that a provider asks to wait; None if that is no number."""
    if not isinstance(hint, int | float) or (isinstance(hint, float) and math.isnan(hint)):
        return None
    return round(min(max(hint, 0), LONGEST_HINT_SECONDS) * 1000)


def _error(ended: asyncio.Future[Any]) -> BaseException | None:
    return asyncio.CancelledError() if ended.cancelled() else ended.exception()
