"""Asking an agent's own code, its policy and its middleware, and keeping what it said until a commit takes it.

A question has a key: the hook, and the state that it is about. Whoever decides asks with `Hooks.ask`; where nothing was said yet, what is
known is committed first, and then the question runs as a task of its own while everything else goes on. What it said waits for the
decision that asks again; a question that nobody asks any more is dropped. So a hook may run again, and its outcome is in one commit with
what it guards, or nowhere.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from typing import Any, Literal, TypeAlias

import msgspec

from ..agent import Agent
from ..agent.middleware import Continue, HookContext, Middleware, Reject, Replace, Rewrite, State, Stop, check_words
from ..core import canonical
from ..core.checkpoint import Checkpoint
from ..core.commands import PostMessage, RunCommand
from ..core.entries import ExtensionSet, TurnEnding
from ..core.errors import LimitExceeded, PerdureError, StoreCorrupt, StoreError, UsageError
from ..core.ids import idempotency_key, once_key
from ..core.messages import Message, Part, Role, ToolCallResponse, decode_part
from ..core.records import EffectClass, Failure
from ..core.reports import Extend, Guidance, Setting
from ..core.words import words
from ..models.base import ModelRequest, ModelSettings
from ..tools.policy import Allow, ApprovalCall, Deny
from ..tools.running import ToolCancelled, begin, makes_coroutine
from .about import read_metadata
from .batch import Batch
from .clock import Clock, first_of
from .context import Fetch, note_message, resolve_parts
from .feed import HookFailed
from .ledger import Ledger
from .perform import asked_to_stop, keep_parts
from .steps import LETTING_GO_SECONDS, Deed, Steps

__all__ = ["Additions", "Fault", "Hooks", "Key", "Round", "Said", "copied"]

FIRST_DELAY_MS, LONGEST_DELAY_MS = 200, 30_000
"""How long a message waits whose hook failed; doubled each time."""

Key: TypeAlias = tuple[str | int, ...]
Fits: TypeAlias = Callable[[str, Any], str]

_log = logging.getLogger("perdure.runtime")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A hook did not come to an outcome."""

    extension: str
    hook: str
    message: str

    @property
    def words(self) -> str:
        return f"the hook {self.hook} of the middleware {self.extension!r} failed: {self.message}"

    @property
    def failure(self) -> Failure:
        """Why a turn can't go on."""
        return Failure(code="hook_failed", message=self.words)


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent's own code said: an outcome, who said it, and what goes with it into the commit; or a fault, and then nothing."""

    value: Any = None
    extension: str = ""
    guidance: tuple[Guidance, ...] = ()
    settings: tuple[Setting, ...] = ()
    fault: Fault | None = None

    def extend(self, batch: Batch) -> None:
        """Write what goes with the outcome. Raises `LimitExceeded`, and writes nothing, where there is no room for it."""
        if self.guidance or self.settings:
            batch.apply(Extend(guidance=self.guidance, settings=self.settings, at=batch.now))


class Additions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one request says otherwise than its context: after the first ``keep`` messages come these; None is as usual."""

    keep: int
    messages: tuple[tuple[Role, tuple[Part, ...]], ...] = ()
    instructions: str | None = None
    settings: ModelSettings | None = None

    @classmethod
    def between(cls, usual: ModelRequest, asked: ModelRequest) -> Additions:
        """What makes the one out of the other; its size is that of the difference."""
        keep = 0
        for one, other in zip(usual.messages, asked.messages, strict=False):
            if one is not other and (one.role, one.parts) != (other.role, other.parts):
                break
            keep += 1
        return cls(
            keep=keep,
            messages=tuple((message.role, tuple(message.parts)) for message in asked.messages[keep:]),
            instructions=None if asked.instructions == usual.instructions else asked.instructions,
            settings=None if asked.settings == usual.settings else asked.settings,
        )

    def request(self, usual: ModelRequest) -> ModelRequest:
        """The request with what was added."""
        return msgspec.structs.replace(
            usual,
            messages=[*usual.messages[: self.keep], *(Message(role=role, parts=parts) for role, parts in self.messages)],
            instructions=usual.instructions if self.instructions is None else self.instructions,
            settings=usual.settings if self.settings is None else self.settings,
        )

    @property
    def data(self) -> bytes:
        """The additions as stored content."""
        return canonical.encode(self)

    @classmethod
    def of(cls, data: bytes) -> Additions:
        """The additions from stored content."""
        return msgspec.json.decode(data, type=cls)


class Round:
    """One question under way: what hooks tell and keep in it, each seeing what those before it did."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.guidance: list[Guidance] = []
        self.states: dict[str, State] = {}

    def said(self, value: Any = None, extension: str = "") -> Said:
        """The answer to it."""
        settings = tuple(change for state in self.states.values() for change in state.changes)
        return Said(value=value, extension=extension, guidance=tuple(self.guidance), settings=settings)


class _HookFault(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.words)
        self.fault = fault


class Hooks:
    """The questions of one session to its agent's own code."""

    def __init__(
        self,
        *,
        session_id: str,
        store_id: str,
        agent: Agent,
        clock: Clock,
        ledger: Ledger,
        fetch: Fetch,
        steps: Steps,
        checkpoint: Callable[[], Checkpoint],
        publish: Callable[[list[HookFailed]], None],
        wake: Callable[[], None],
    ) -> None:
        self.error: StoreError | None = None
        self._session_id = session_id
        self._store_id = store_id
        self._agent = agent
        self._clock = clock
        self._ledger = ledger
        self._fetch = fetch
        self._steps = steps
        self._checkpoint = checkpoint
        self._publish = publish
        self._wake = wake
        self._with: dict[str, tuple[Middleware, ...]] = {}
        for item in agent.middleware:
            for hook in item.hooks():
                self._with[hook] = (*self._with.get(hook, ()), item)
        self._values: dict[int, Any] = {}
        self._said: dict[Key, Said] = {}
        self._asking: dict[Key, asyncio.Task[None]] = {}
        self._asked: set[Key] = set()
        self._wanted: dict[Key, Callable[[], Awaitable[Said]]] = {}
        self._started: list[Middleware] = []
        self._held_back: dict[str, tuple[int, int]] = {}

    # ------------------------------------------------------------------------------------------------------------- asking

    def has(self, *hooks: str) -> bool:
        """Whether the agent's middleware has one of these hooks."""
        return not self._with.keys().isdisjoint(hooks)

    @property
    def running(self) -> bool:
        """Whether a question runs."""
        return bool(self._asking)

    @property
    def waits(self) -> bool:
        """Whether something is open, or held back for a while."""
        return self.open or bool(self._held_back)

    @property
    def open(self) -> bool:
        """Whether something was asked and is not answered."""
        return bool(self._asking or self._wanted)

    def about(self, turn: str) -> bool:
        """Whether a question about what a turn does next runs."""
        return any(turn in key for key in self._asking)

    def held_back(self, submission: str, now: int) -> bool:
        """Whether the message at the head of the queue is not to be tried again yet, because its hook failed."""
        if submission not in self._held_back:
            self._held_back.clear()
        return submission in self._held_back and self._held_back[submission][0] > now

    def hold_back(self, submission: str, fault: Fault, now: int) -> None:
        """The hook of the message at the head of the queue failed: try again, later each time."""
        delay = min(LONGEST_DELAY_MS, self._held_back[submission][1] * 2) if submission in self._held_back else FIRST_DELAY_MS
        self._held_back = {submission: (now + delay, delay)}
        # What was said is of no use: the next time it is asked again.
        self._asked = {key for key in self._asked if submission not in key}
        self.tell(fault, submission=submission, retry_at=now + delay)

    @property
    def held_back_until(self) -> list[int]:
        """When to look again at what is held back."""
        return [until for until, _ in self._held_back.values()]

    def begin_pass(self) -> None:
        """A decision begins: what it asks is what is still asked."""
        self._asked.clear()
        self._wanted.clear()

    def ask(self, key: Key, question: Callable[[], Awaitable[Said]]) -> Said | None:
        """What was said to a question. None: nothing yet."""
        self._asked.add(key)
        said = self._said.get(key)
        if said is None and key not in self._asking:
            self._wanted[key] = question
        return said

    def end_pass(self, *, start: bool, keep: bool = False) -> None:
        """A decision ended. ``start`` what it asked: all that is known is committed. ``keep``: nothing is asked any more, but what runs
        may end."""
        if not (self._said or self._asking or self._wanted):
            return
        for key in [key for key in self._said if key not in self._asked]:
            del self._said[key]
        for key in [key for key in self._asking if key not in self._asked and not keep]:
            self._asking.pop(key).cancel()
        if start:
            for key, question in self._wanted.items():
                self._asking[key] = asyncio.create_task(self._answer(key, question), name=f"perdure {key[0]} {self._session_id}")
            self._wanted.clear()

    async def _answer(self, key: Key, question: Callable[[], Awaitable[Said]]) -> None:
        try:
            said = await question()
        except StoreError as error:
            self.error = error
            said = Said()
        except _HookFault as error:
            said = Said(fault=error.fault)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and asked_to_stop():
                raise
            # Without an answer the session would wait for it for ever.
            _log.exception("asking %s of %s ended in a way that nobody expected", key[0], self._session_id)
            said = Said(fault=Fault(extension=self._agent.name, hook=str(key[0]), message=words(error)))
        if self._asking.get(key) is asyncio.current_task():
            del self._asking[key]
            self._said[key] = said
            self._wake()

    async def cancel(self) -> None:
        """Stop what runs; what a hook was doing outside is told by its receipt."""
        tasks = [*self._asking.values()]
        self._asking.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LETTING_GO_SECONDS + 1)

    def abandon(self) -> None:
        """Nothing will be committed here any more."""
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()

    # ------------------------------------------------------------------------------------------------------------- calling

    async def _state(self, item: Middleware, checkpoint: Checkpoint, fixed: str) -> State:
        kept: dict[str, Any] = {}
        for key, seq in checkpoint.extensions.get(item.name, {}).items():
            if seq not in self._values:
                entry = await self._ledger.entry(seq)
                if not isinstance(entry, ExtensionSet):
                    raise StoreCorrupt(f"entry {seq} is no value of an extension", hint="run `perdure verify`")
                self._values[seq] = canonical.encode(entry.value)
            # A hook may change what it gets; what is kept here is not to change with it.
            kept[key] = canonical.decode(self._values[seq])
        return State(item.name, kept, fixed=fixed)

    async def _context(
        self, asking: Round, item: Middleware, hook: str, *, silent: str = "", fixed: str = "", effects: bool = True, **facts: Any
    ) -> HookContext:
        checkpoint = asking.checkpoint
        turn = checkpoint.turn
        if item.name not in asking.states:
            asking.states[item.name] = await self._state(item, checkpoint, fixed)
        known: dict[str, Any] = {}
        if turn is not None:
            known = {
                "turn": turn.id,
                "author": turn.author,
                "source": turn.source,
                "step": turn.step,
                "continued": turn.continued,
                "turn_usage": turn.usage,
            }
        scope = facts.get("operation") or (f"{turn.id}.{turn.step}" if turn is not None else "")

        def identity(name: str) -> str:
            return f"{scope}/{item.name}.{hook}.{name}"

        async def outside(
            name: str, function: Callable[..., Any], args: tuple[Any, ...], effect: EffectClass, timeout: float | None
        ) -> Any:
            named = f"{item.name}.{hook}.{name}"
            deed = Deed(identity=identity(name), name=named, function=function, args=args, effect=effect, timeout=timeout)
            return await self._steps.perform(deed)

        return HookContext(
            session_id=self._session_id,
            agent=self._agent.name,
            extension=item.name,
            hook=hook,
            identity=checkpoint.identity,
            state=asking.states[item.name],
            metadata=deepcopy(await read_metadata(checkpoint.metadata, self._fetch)),
            usage=checkpoint.usage,
            guidance=asking.guidance,
            given=lambda extension, key: once_key(extension, key) in checkpoint.once,
            outside=outside if turn is not None and effects else None,
            key=lambda name: idempotency_key(self._store_id, self._session_id, identity(name)) if turn is not None else "",
            silent=silent,
            **{**known, **facts},
        )

    async def _call(
        self, item: Middleware, hook: str, function: Callable[..., Any], args: tuple[Any, ...], outcomes: tuple[type, ...] = ()
    ) -> Any:
        """One hook's outcome. Raises `_HookFault` where it raises, takes too long, or answers with something else."""
        is_async = makes_coroutine(function)
        running = begin(f"{item.name}.{hook}", lambda: function(*args), {}, is_async=is_async, then=lambda answer: answer)
        ended, seconds = running.ended, item.timeout
        try:
            await first_of(self._clock, ended, seconds=seconds)
        finally:
            if not ended.done():
                running.cancel()
                if is_async:
                    await asyncio.wait([ended], timeout=LETTING_GO_SECONDS)
        if not ended.done() or isinstance(ended.exception(), ToolCancelled):
            raise _fault(item, hook, f"no outcome within {seconds} s")
        if (error := ended.exception()) is not None:
            _log.info("the hook %s of the middleware %s raised", hook, item.name, exc_info=error)
            raise _fault(item, hook, words(error))
        answer = ended.result()
        if answer is not None and not isinstance(answer, outcomes):
            wanted = " or ".join([*(kind.__name__ for kind in outcomes), "None"])
            raise _fault(item, hook, f"its outcome is {answer!r:.200}, not {wanted}")
        return answer

    async def _hook(self, asking: Round, item: Middleware, hook: str, *args: Any, outcomes: tuple[type, ...] = (), **facts: Any) -> Any:
        ctx = await self._context(asking, item, hook, **facts)
        return await self._call(item, hook, getattr(item, hook), (ctx, *args), outcomes)

    async def _first(self, asking: Round, hook: str, *args: Any, outcomes: tuple[type, ...] = (), **facts: Any) -> Said:
        """Every hook of a kind, in order, up to the first that has an outcome."""
        for item in self._with.get(hook, ()):
            answer = await self._hook(asking, item, hook, *args, outcomes=outcomes, **facts)
            if answer is not None:
                return asking.said(answer, item.name)
        return asking.said()

    # ------------------------------------------------------------------------------------------------------------ questions

    async def start_session(self, checkpoint: Checkpoint) -> Said:
        """The session is taken up. Where one hook fails, those that had started are ended again, in reverse order."""
        asking = Round(checkpoint)
        stop, by = None, ""
        try:
            for item in self._agent.middleware:
                if "session_start" in item.hooks():
                    answer = await self._hook(asking, item, "session_start", outcomes=(Stop,), effects=False)
                    if stop is None and answer is not None:
                        stop, by = answer, item.name
                self._started.append(item)
        except BaseException:
            await self.end_session()
            raise
        return asking.said(stop, by)

    async def end_session(self) -> None:
        """The session is let go. A hook that fails keeps no other from running."""
        over = "the session is let go: nothing is kept any more"
        while self._started:
            item = self._started.pop()
            if "session_end" not in item.hooks():
                continue
            try:
                await self._hook(Round(self._checkpoint()), item, "session_end", silent=over, fixed=over, effects=False)
            except _HookFault as error:
                self.tell(error.fault)
            except PerdureError as error:
                _log.warning("%s: the middleware %s was not told that the session is let go: %s", self._session_id, item.name, error)

    async def submit(self, checkpoint: Checkpoint, post: PostMessage) -> Said:
        """A message is at its boundary: `Reject`, and then nobody takes what hooks told and kept for it, or nothing."""
        author = post.author or post.actor
        parts = await resolve_parts(post.parts, self._fetch)
        message = Message(
            role="user", parts=parts, at=post.at, submission=post.submission, author=author, reply=post.reply, source=post.source
        )
        facts = {"submission": post.submission, "author": author, "source": post.source}
        return await self._first(Round(checkpoint), "message_submit", message, outcomes=(Reject,), **facts)

    def commanded(self, command: RunCommand) -> Middleware | None:
        """The middleware that declares a command."""
        return next((item for item in self._agent.middleware if item.name == command.extension and command.command in item.commands), None)

    async def command(self, checkpoint: Checkpoint, item: Middleware, command: RunCommand) -> Said:
        """Carry out a command of a middleware."""
        asking = Round(checkpoint)
        ctx = await self._context(asking, item, command.command, submission=command.submission)
        arguments = canonical.decode(canonical.encode(command.arguments))
        await self._call(item, command.command, item.commands[command.command], (ctx, arguments))
        return asking.said(extension=item.name)

    async def prepare(self, checkpoint: Checkpoint, usual: ModelRequest) -> Said:
        """A model call is prepared: `Stop`, or `Additions` to this request. Every `before_model` ends before a `model_request` begins."""
        asking = Round(checkpoint)
        said = await self._first(asking, "before_model", outcomes=(Stop,))
        if said.value is not None or not self.has("model_request"):
            return said
        shown = [*usual.messages, *(note_message(item.text) for item in said.guidance)]
        first = request = msgspec.structs.replace(usual, messages=shown)
        late = "guidance comes too late for this request; put it into the request, or give it in before_model"
        for item in self._with["model_request"]:
            answer = await self._hook(asking, item, "model_request", request, outcomes=(ModelRequest,), silent=late)
            if answer is not None:
                _check_request(item, request, answer)
                request = answer
        additions = Additions.between(first, request)
        return asking.said(None if additions == Additions(keep=len(shown)) else additions)

    async def before_tool(self, asking: Round, call: ApprovalCall, fits: Fits) -> tuple[ApprovalCall, str, Deny | None, str]:
        """The call as hooks leave it, and which of them rewrote it last; and a denial, and whose it is."""
        denied: Deny | None = None
        rewritten_by = denied_by = ""
        for item in self._with.get("before_tool", ()):
            answer = await self._hook(asking, item, "before_tool", copied(call), outcomes=(Deny, Rewrite), operation=call.operation)
            if isinstance(answer, Deny) and denied is None:
                denied, denied_by = _spoken(item, "before_tool", answer), item.name
            elif isinstance(answer, Rewrite) and denied is None:
                name = call.name if answer.name is None else answer.name
                arguments = call.arguments if answer.arguments is None else answer.arguments
                if (name, arguments) == (call.name, call.arguments):
                    continue
                if wrong := fits(name, arguments):
                    raise _fault(item, "before_tool", f"it rewrote the call of {call.name} into one that can't be made: {wrong}")
                call = dataclasses.replace(call, name=name, arguments=arguments)
                rewritten_by = item.name
        return call, rewritten_by, denied, denied_by

    async def permission(self, asking: Round, call: ApprovalCall) -> tuple[Allow | Deny | None, str]:
        """What hooks say before a person is asked: a denial wins whoever allowed it, the first one by its reason."""
        allowed: tuple[Allow | None, str] = None, ""
        denied: tuple[Deny, str] | None = None
        for item in self._with.get("permission", ()):
            answer = await self._hook(asking, item, "permission", copied(call), outcomes=(Allow, Deny), operation=call.operation)
            if isinstance(answer, Deny) and denied is None:
                denied = _spoken(item, "permission", answer), item.name
            elif isinstance(answer, Allow) and allowed[0] is None:
                allowed = answer, item.name
        return denied or allowed

    async def review(self, checkpoint: Checkpoint, results: Sequence[tuple[ApprovalCall, ToolCallResponse]]) -> Said:
        """The results of a step: what the model reads instead of them, by operation, as parts to keep and their content."""
        asking = Round(checkpoint)
        replaced: dict[str, Any] = {}
        for call, response in results:
            for item in self._with.get("after_tool", ()):
                seen = (copied(call), decode_part(canonical.encode(response)))
                answer = await self._hook(asking, item, "after_tool", *seen, outcomes=(Replace,), operation=call.operation)
                if answer is None:
                    continue
                is_error = response.is_error if answer.is_error is None else answer.is_error
                # What stood beside the old response belongs to it.
                response = msgspec.structs.replace(response, response=answer.response, is_error=is_error, media=())
                try:
                    replaced[call.operation] = keep_parts((response,))
                except LimitExceeded as error:
                    raise _fault(item, "after_tool", f"its response can't be kept: {error}") from error
        return asking.said(replaced)

    async def compaction(self, when: Literal["before_compaction", "after_compaction"], checkpoint: Checkpoint) -> Said:
        """The context is about to be compacted, or was: `Stop`, or nothing. A fault means that the compaction doesn't take place."""
        return await self._first(Round(checkpoint), when, outcomes=(Stop,))

    async def stop(self, checkpoint: Checkpoint, answer: str, messages: Sequence[Message]) -> Said:
        """The model asks for nothing more: `Continue`, or nothing."""
        return await self._first(Round(checkpoint), "stop", answer, outcomes=(Continue,), messages=messages)

    async def end_turn(self, checkpoint: Checkpoint, ending: TurnEnding, messages: Sequence[Message]) -> Said:
        """How the turn ends is decided."""
        return await self._first(Round(checkpoint), "turn_end", ending, messages=messages)

    def tell(self, fault: Fault, *, submission: str = "", retry_at: int = 0) -> None:
        """Tell whoever watches that a hook failed where no entry says so."""
        _log.warning("%s: %s", self._session_id, fault.words)
        self._publish(
            [
                HookFailed(
                    extension=fault.extension,
                    hook=fault.hook,
                    message=fault.message,
                    submission=submission,
                    retry_at=retry_at,
                )
            ]
        )


def _fault(item: Middleware, hook: str, message: str) -> _HookFault:
    return _HookFault(Fault(extension=item.name, hook=hook, message=message))


def _spoken(item: Middleware, hook: str, denial: Deny) -> Deny:
    try:
        check_words(denial.reason, "the reason of a denial")
    except UsageError as error:
        raise _fault(item, hook, str(error)) from error
    return denial


def copied(call: ApprovalCall) -> ApprovalCall:
    """A call whose arguments a hook may change without changing anybody else's."""
    return dataclasses.replace(call, arguments=canonical.decode(canonical.encode(call.arguments)))


def _check_request(item: Middleware, before: ModelRequest, after: ModelRequest) -> None:
    """Raises `_HookFault` for a request that says something else than a hook may decide on, or that can't be kept."""
    for name in ("tools", "route", "step", "session_id", "output"):
        if getattr(before, name) != getattr(after, name):
            raise _fault(item, "model_request", f"a hook can't change the {name} of a request")
    try:
        additions = Additions.between(before, after)
        same = Additions.of(additions.data) == additions
    except Exception as error:
        raise _fault(item, "model_request", f"its request can't be kept: {words(error)}") from error
    if not same:
        raise _fault(item, "model_request", "its request would be read back as something else")
