"""Carrying out effects: model calls, tool calls, and asking a tool what became of one. Nothing here decides or stores anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

from ..agent import Agent
from ..core import canonical
from ..core.checkpoint import CALLS_LIMIT, Operation
from ..core.entries import Failure
from ..core.errors import InvalidModelOutput, LimitExceeded, NotCanonical, PerdureError, ProviderError
from ..core.messages import Part, Private, Reasoning, Text, ToolCall, ToolCallResponse, set_aside
from ..core.reports import AttemptEnded, Fail, Reconciled
from ..core.rules import idempotency_key
from ..models.base import Delta, Model, ModelOutput, ModelRequest, TextDelta
from ..store.base import StoredBlob
from ..tools.context import ToolContext
from ..tools.tool import ArgumentsInvalid, Done, NotDone, ResultInvalid, Tool, ToolCancelled, ToolError, Unknown
from . import tokens
from .clock import Clock

__all__ = ["OUTPUT_LIMIT", "Outcome", "Performer", "keep_parts"]

OUTPUT_LIMIT = 16 * 1024 * 1024
"""The longest answer of a model, or result of a tool, that is kept (bytes)."""

RECONCILE_SECONDS = 60.0
"""How long a tool without a timeout of its own may take to tell what became of a call."""

Outcome: TypeAlias = tuple[AttemptEnded | Reconciled | Fail, tuple[StoredBlob, ...]]
Late: TypeAlias = Callable[[str, int, Any, bool], None]

_log = logging.getLogger("perdure.runtime")


def keep_parts(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], tuple[StoredBlob, ...]]:
    """Parts as the journal holds them, and what is set aside. Raises `LimitExceeded` beyond `OUTPUT_LIMIT`."""
    kept: list[Part] = []
    blobs: list[StoredBlob] = []
    for part in parts:
        short, data = set_aside(part)
        kept.append(short)
        if data is not None:
            blobs.append(StoredBlob(digest=canonical.digest(data), media_type="application/json", data=data))
    total = sum(len(blob.data) for blob in blobs)
    if total > OUTPUT_LIMIT:
        raise LimitExceeded(f"{total} bytes at once; at most {OUTPUT_LIMIT} are kept", hint="ask for less at once", limit="output")
    return tuple(kept), tuple(blobs)


class Performer:
    """Runs the effects of one session. Each method returns a report for the decider, whatever happens; it never raises."""

    def __init__(self, *, session_id: str, store_id: str, secret: bytes, clock: Clock, deltas: Callable[[Delta], None], late: Late) -> None:
        self.owner = ""
        self._session_id = session_id
        self._store_id = store_id
        self._secret = secret
        self._clock = clock
        self._deltas = deltas
        self._late = late

    async def model(self, operation: Operation, model: Model, request: ModelRequest, fallback: str = "") -> Outcome:
        """One model call. Cancelling it closes the provider's stream; the text so far is in the report.

        ``fallback`` is the route that may answer instead if this one's provider gives up.
        """
        written: list[str] = []
        try:
            output = await self._stream(operation, model, request, written)
            parts, blobs = keep_parts(_checked(output))
        except asyncio.CancelledError:
            return self._model_ended(operation, "cancelled", Failure(code="interrupted"), written), ()
        except ProviderError as error:
            hint = None if error.retry_after is None else round(error.retry_after * 1000)
            status = error.facts.get("status")
            failure = Failure(
                code=error.code,
                message=str(error),
                retryable=error.retryable,
                status=status if isinstance(status, int) else None,
                retry_after=hint,
            )
            report = self._model_ended(operation, "failed", failure, written)
            return msgspec.structs.replace(report, retryable=error.retryable, retry_after=hint, fallback=fallback), ()
        except PerdureError as error:
            return self._model_ended(operation, "failed", Failure(code=error.code, message=str(error)), written), ()
        except Exception as error:
            _log.exception("the model %s raised what no model should", model.name)
            return self._model_ended(operation, "failed", Failure(code="model_error", message=_words(error)), written), ()
        return (
            AttemptEnded(
                operation=operation.id,
                attempt=operation.attempt,
                status="succeeded",
                parts=parts,
                finish=output.finish,
                usage=output.usage,
                model=output.model,
                group=model.group,
                at=self._clock.now(),
            ),
            blobs,
        )

    async def _stream(self, operation: Operation, model: Model, request: ModelRequest, written: list[str]) -> ModelOutput:
        stream = model.stream(request)
        output: ModelOutput | None = None
        index = 0
        try:
            async for item in stream:
                if isinstance(item, ModelOutput):
                    output = item
                    continue
                if isinstance(item, TextDelta):
                    written.append(item.text)
                self._deltas(msgspec.structs.replace(item, operation=operation.id, attempt=operation.attempt, index=index))
                index += 1
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if output is None:
            raise InvalidModelOutput("the model's stream ended without an answer")
        return output

    def _model_ended(self, operation: Operation, status: Any, failure: Failure, written: list[str]) -> AttemptEnded:
        return AttemptEnded(
            operation=operation.id,
            attempt=operation.attempt,
            status=status,
            failure=failure,
            partial="".join(written)[: OUTPUT_LIMIT // 64],
            at=self._clock.now(),
        )

    async def tool(self, operation: Operation, agent: Agent, tool: Tool, arguments: Any) -> Outcome:
        """One tool call. Cancelling it cancels an async tool and waits for its end; a sync one goes on, and its end is reported late."""
        context = self.context(operation, agent)
        try:
            bound = tool.check(arguments)
        except ArgumentsInvalid as error:
            return self._responded(operation, "failed", str(error), is_error=True, failure=Failure(code="invalid_arguments"))
        running = tool.start(context, bound)
        ended = running.ended
        timer = (
            None if tool.timeout is None else asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + round(tool.timeout * 1000)))
        )
        try:
            await asyncio.wait([ended] if timer is None else [ended, timer], return_when=asyncio.FIRST_COMPLETED)
            stopped = Failure(code="timeout", message=f"no result within {tool.timeout} s")
        except asyncio.CancelledError:
            stopped = Failure(code="interrupted", message="interrupted")
        finally:
            if timer is not None:
                timer.cancel()
        if not ended.done():
            running.cancel()
            if tool.is_async:
                await asyncio.wait([ended], timeout=self.CANCEL_GRACE)
        if not ended.done() or isinstance(_error(ended), ToolCancelled):
            if not running.done and tool.effect == "external":
                running.late.add_done_callback(lambda ended: self._ended_late(operation, ended))
            return self.stopped(operation, stopped), ()
        return self._ended(operation, tool, ended)

    CANCEL_GRACE = 5.0
    """How long a cancelled async tool may take to let go (seconds)."""

    def stopped(self, operation: Operation, why: Failure, *, began: bool = True) -> AttemptEnded:
        """An attempt that was cut off. Once it began, nobody knows what became of an external one."""
        status: Any = "uncertain" if began and operation.plan.effect == "external" else "cancelled"
        return AttemptEnded(operation=operation.id, attempt=operation.attempt, status=status, failure=why, at=self._clock.now())

    def _ended(self, operation: Operation, tool: Tool, ended: asyncio.Future[Any]) -> Outcome:
        error = _error(ended)
        match error:
            case None:
                return self._responded(operation, "succeeded", ended.result(), is_error=False)
            case ResultInvalid():
                return self._responded(operation, "succeeded", f"the tool ran, but its result can't be kept: {error}", is_error=True)
            case ToolError():
                return self._responded(
                    operation, "failed", str(error), is_error=True, failure=Failure(code="tool_error", message=str(error))
                )
        _log.warning("the tool %s raised %s", tool.name, _words(error))
        failure = Failure(code="tool_raised", message=_words(error))
        if tool.effect == "external":
            return (
                AttemptEnded(operation=operation.id, attempt=operation.attempt, status="uncertain", failure=failure, at=self._clock.now()),
                (),
            )
        return self._responded(operation, "failed", _words(error), is_error=True, failure=failure)

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
        return keep_parts((ToolCallResponse(id=plan.call, name=plan.name, response=response, is_error=is_error),))

    def _ended_late(self, operation: Operation, ended: asyncio.Future[Any]) -> None:
        error = _error(ended)
        if error is None:
            self._late(operation.id, operation.attempt, ended.result(), False)
        elif isinstance(error, ToolError):
            self._late(operation.id, operation.attempt, str(error), True)

    async def reconcile(self, operation: Operation, agent: Agent, tool: Tool | None, arguments: Any) -> Outcome:
        """Ask a tool what became of an attempt. It only reads, so it may be asked again."""
        report = Reconciled(operation=operation.id, outcome="unknown", at=self._clock.now())
        if tool is None:
            return report, ()
        try:
            bound = tool.check(arguments)
            seconds = RECONCILE_SECONDS if tool.timeout is None else tool.timeout
            answer = await self._within(seconds, tool.reconcile_call(self.context(operation, agent), bound))
            if isinstance(answer, NotDone):
                return msgspec.structs.replace(report, outcome="not_done", at=self._clock.now()), ()
            if isinstance(answer, Done):
                result = canonical.check(answer.result, "the reconciled result")
                parts, blobs = self.response(operation, result, is_error=False)
                return msgspec.structs.replace(report, outcome="done", parts=parts, at=self._clock.now()), blobs
        except (ArgumentsInvalid, LimitExceeded, NotCanonical) as error:
            _log.warning("the reconcile of %s told nothing usable: %s", tool.name, error)
        return msgspec.structs.replace(report, at=self._clock.now()), ()

    async def _within(self, seconds: float, asking: Coroutine[Any, Any, Done | NotDone | Unknown]) -> Done | NotDone | Unknown:
        """An answer that doesn't come in time is none."""
        asked = asyncio.ensure_future(asking)
        timer = asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + round(seconds * 1000)))
        try:
            await asyncio.wait([asked, timer], return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else Unknown()
        finally:
            timer.cancel()
            asked.cancel()

    def context(self, operation: Operation, agent: Agent) -> ToolContext:
        """What a tool is told about its call."""
        return ToolContext(
            session_id=self._session_id,
            turn=operation.id.split(".", 1)[0],
            operation=operation.id,
            attempt=operation.attempt,
            call=operation.plan.call,
            idempotency_key=idempotency_key(self._store_id, self._session_id, operation.id),
            callback_token=tokens.issue(self._secret, self._session_id, operation.id, operation.attempt),
            owner=self.owner,
            agent=agent.name,
        )


def _checked(output: ModelOutput) -> tuple[Part, ...]:
    """An answer that can be kept and understood, or `InvalidModelOutput` / `LimitExceeded`."""
    if output.usage is not None and any((count or 0) < 0 for count in msgspec.structs.astuple(output.usage)):
        raise InvalidModelOutput("the model claims to have used less than nothing")
    seen: set[str] = set()
    calls = 0
    for part in output.parts:
        match part:
            case ToolCall():
                calls += 1
                if not part.id or part.id in seen:
                    raise InvalidModelOutput(f"two calls, or one without a name of its own, have the id {part.id!r}")
                seen.add(part.id)
                _checked_json(part.arguments, "arguments")
            case Private():
                _checked_json(part.data, "private data")
            case Text() | Reasoning():
                _checked_json(part.content, "text")
            case _:
                raise InvalidModelOutput(f"an answer can't hold a part of type {type(part).__name__}")
    if calls > CALLS_LIMIT:
        raise LimitExceeded(f"{calls} tool calls in one answer; at most {CALLS_LIMIT} are taken", limit="calls")
    if (
        output.finish not in ("refusal", "length")
        and not calls
        and not any(isinstance(part, Text) and part.content for part in output.parts)
    ):
        raise InvalidModelOutput("the model answered with nothing")
    return output.parts


def _checked_json(value: Any, what: str) -> None:
    try:
        canonical.check(value, what)
    except NotCanonical as error:
        raise InvalidModelOutput(str(error)) from error


def _error(ended: asyncio.Future[Any]) -> BaseException | None:
    return asyncio.CancelledError() if ended.cancelled() else ended.exception()


def _words(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"[:2000]
