"""The agent's own code around its turns: hooks with typed outcomes. Policy is an outcome, an exception is a fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar, final, get_args

import msgspec

from ..core import canonical
from ..core.entries import TurnEnding
from ..core.errors import InvalidAgent, UsageError
from ..core.memory import MEMORY
from ..core.messages import Message, Source, ToolCallResponse
from ..core.records import EffectClass, Identity
from ..core.reports import Guidance, Setting
from ..core.usage import Totals
from ..models.base import ModelRequest
from ..tools.policy import Allow, ApprovalCall, Deny
from ..tools.tool import Tool, is_seconds

__all__ = [
    "GUIDANCE_LIMIT",
    "HOOKS",
    "KEY_LIMIT",
    "STATE_LIMIT",
    "CommandHandler",
    "Continue",
    "HookContext",
    "Middleware",
    "Reject",
    "Replace",
    "Rewrite",
    "State",
    "Stop",
    "check_middleware",
    "check_words",
]

GUIDANCE_LIMIT = 64 * 1024
"""The longest reason, prompt or guidance (bytes)."""

STATE_LIMIT = 32 * 1024
"""The longest value that an extension keeps (bytes)."""

KEY_LIMIT = 128
"""The longest name of a middleware, a command, or a key (characters)."""

HOOKS = (
    "session_start",
    "session_end",
    "message_submit",
    "before_model",
    "model_request",
    "before_tool",
    "permission",
    "after_tool",
    "before_compaction",
    "after_compaction",
    "stop",
    "turn_end",
)
"""The hooks that a middleware may have."""

_T = TypeVar("_T")
Answer: TypeAlias = _T | Awaitable[_T | None] | None


def check_words(words: object, what: str) -> str:
    """Text that says something and can be kept. Raises `UsageError`."""
    if not isinstance(words, str) or not words.strip():
        raise UsageError(f"{what} must say something, not {words!r:.100}")
    if len(canonical.check(words, what).encode()) > GUIDANCE_LIMIT:
        raise UsageError(f"{what} is too long", hint=f"at most {GUIDANCE_LIMIT} bytes")
    return words


class Stop(msgspec.Struct, frozen=True):
    """The turn ends here, without another model call: as aborted for this reason; where a compaction was asked about, as completed with it.

    A turn that was only kept from being compacted has no answer that anybody waits for in vain; what it says instead is the reason.
    """

    reason: str

    def __post_init__(self) -> None:
        check_words(self.reason, "a reason")


class Reject(msgspec.Struct, frozen=True):
    """The message is not taken, and stands nowhere."""

    reason: str

    def __post_init__(self) -> None:
        check_words(self.reason, "a reason")


class Rewrite(msgspec.Struct, frozen=True):
    """Another call instead of the model's: of another tool, with other arguments, or both. What is None stays as it was."""

    name: str | None = None
    arguments: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise UsageError(f"the name of a tool must be text, not {type(self.name).__name__}")
        if self.arguments is not None and not isinstance(self.arguments, dict):
            raise UsageError(f"arguments must be an object, not {type(self.arguments).__name__}")
        canonical.check(self.arguments, "arguments")


class Replace(msgspec.Struct, frozen=True):
    """The model reads this instead of the result. What the call came to stays in the journal. ``is_error`` None leaves that as it was."""

    response: Any
    is_error: bool | None = None

    def __post_init__(self) -> None:
        canonical.check(self.response, "a response")


class Continue(msgspec.Struct, frozen=True):
    """The turn goes on instead of ending, and the model is told this."""

    prompt: str

    def __post_init__(self) -> None:
        check_words(self.prompt, "a prompt")


@final
class State(MutableMapping[str, Any]):
    """What one middleware keeps for one session, as a mapping from names to JSON values.

    A change is durable with the commit in which the hook's outcome is; where that doesn't come to be, there was no change. A list or an
    object that is changed in place is kept only once it is assigned again.
    """

    def __init__(self, extension: str, kept: Mapping[str, Any], *, fixed: str = "") -> None:
        self._extension = extension
        self._kept = dict(kept)
        self._fixed = fixed
        self._changes: dict[str, Setting] = {}

    def __getitem__(self, key: str) -> Any:
        return self._kept[key]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._kept])

    def __len__(self) -> int:
        return len(self._kept)

    def __setitem__(self, key: str, value: Any) -> None:
        """Keep a value. Raises `UsageError` for one that is no JSON or has more than `STATE_LIMIT` bytes."""
        _check_key(key, "a key")
        value = canonical.check(value, f"the value of {key!r}")
        if len(canonical.encode(value)) > STATE_LIMIT:
            raise UsageError(f"the value of {key!r} is too long", hint=f"at most {STATE_LIMIT} bytes; keep a reference")
        self._change(Setting(extension=self._extension, key=key, value=value))
        self._kept[key] = value

    def __delitem__(self, key: str) -> None:
        if key not in self._kept:
            raise KeyError(key)
        self._change(Setting(extension=self._extension, key=key, dropped=True))
        del self._kept[key]

    def _change(self, setting: Setting) -> None:
        if self._fixed:
            raise UsageError(self._fixed)
        self._changes[setting.key] = setting

    @property
    def changes(self) -> tuple[Setting, ...]:
        """What was changed."""
        return tuple(self._changes.values())


class Outside(Protocol):
    """Does what a hook wants done outside, once."""

    async def __call__(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], effect: EffectClass, timeout: float | None
    ) -> Any:
        """The recorded result. Raises `EffectFailed`, and `EffectUncertain` where nobody knows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HookContext:
    """What a hook is told, and what it may do besides its outcome.

    ``identity`` is whom the session belongs to, ``metadata`` what its owner noted about it. ``turn`` is empty where none runs; ``author``
    wrote the message that began it, ``source`` sent it where that was no person; of a message that is submitted they are its own. ``step``
    counts model calls from 0; ``operation`` is the call that the hook is about, ``submission`` the message or command.
    ``continued``: the turn went on once already instead of ending. ``usage`` is the session's, ``turn_usage`` the turn's. ``messages`` are
    those of the turn, in the hooks ``stop`` and ``turn_end``.
    """

    session_id: str
    agent: str
    extension: str
    hook: str
    identity: Identity
    state: State
    metadata: dict[str, Any] = field(default_factory=dict)
    turn: str = ""
    author: str = ""
    source: Source | None = None
    step: int = 0
    operation: str = ""
    submission: str = ""
    continued: bool = False
    usage: Totals = Totals()  # noqa: RUF009 - immutable
    turn_usage: Totals = Totals()  # noqa: RUF009 - immutable
    messages: Sequence[Message] = ()
    guidance: list[Guidance] = field(default_factory=list, repr=False)
    given: Callable[[str, str], bool] = field(default=lambda extension, key: False, repr=False)
    outside: Outside | None = field(default=None, repr=False)
    key: Callable[[str], str] = field(default=lambda name: "", repr=False)
    silent: str = field(default="", repr=False)

    def guide(self, text: str, *, once: str | None = None) -> bool:
        """Tell the model something, in the commit of this hook's outcome; people don't see it in the transcript.

        ``once`` names what is told once in the session's life. False: it was told before. Raises `UsageError`.
        """
        check_words(text, "guidance")
        if self.silent:
            raise UsageError(self.silent)
        if once is not None:
            _check_key(once, "a key")
            if self.given(self.extension, once) or any(item.once == once and item.extension == self.extension for item in self.guidance):
                return False
        self.guidance.append(Guidance(extension=self.extension, text=text, once=once or ""))
        return True

    async def effect(
        self, name: str, function: Callable[..., Any], *args: Any, effect: EffectClass = "external", timeout: float | None = None
    ) -> Any:
        """Do something outside, and return its JSON result: intent before, receipt after, and never twice without saying so.

        A hook may run again after a crash; then the recorded result of ``name`` is returned and ``function`` is not called. If the
        process died in between, ``effect`` decides as it does for tools: what is external raises `EffectUncertain`, the rest is done
        again. A ``transactional`` function gets the connection of the commit that holds its receipt before its own arguments, as in
        `ToolContext.transaction`. Raises `EffectFailed` if it raised, also when it is asked for again, and `UsageError` where no turn
        runs. ``timeout`` is in seconds. Give `idempotency_key` of the same name to services that know such keys.
        """
        _check_key(name, "the name of an effect")
        if effect not in get_args(EffectClass):
            raise UsageError(f"effect={effect!r} is not possible here", hint=f"one of {', '.join(get_args(EffectClass))}")
        if timeout is not None and not is_seconds(timeout):
            raise UsageError(f"timeout={timeout!r} must be a number of seconds")
        if self.outside is None:
            raise UsageError(f"nothing can be done outside in {self.hook}: no turn runs", hint="do it in a hook of the turn")
        return await self.outside(name, function, args, effect, timeout)

    def idempotency_key(self, name: str) -> str:
        """The key of the effect of that name: the same whenever this hook runs again. Empty where no turn runs."""
        return self.key(name)


CommandHandler: TypeAlias = Callable[[HookContext, dict[str, Any]], "Awaitable[None] | None"]


class Middleware:
    """Hooks around an agent's turns. A subclass has the hooks that it overrides, async or not; a sync one runs in a thread.

    A hook's outcome is data in the commit that it guards, so it may run again after a crash; what it does outside goes through
    `HookContext.effect`. ``name`` is durable: what a middleware keeps is found by it. ``tools`` and ``instructions`` are added to the
    agent's, once. ``commands`` are what `Sessions.command` may ask for, by name. ``timeout`` (seconds) is how long one hook may take.
    """

    name: str = ""
    tools: Sequence[Tool] = ()
    instructions: str = ""
    commands: Mapping[str, CommandHandler] = {}
    timeout: float | None = None

    def session_start(self, ctx: HookContext) -> Answer[Stop]:
        """This process takes the session up. `Stop` aborts a turn that would be resumed, and is nothing to the next one."""
        return None

    def session_end(self, ctx: HookContext) -> Answer[None]:
        """This process lets the session go. Runs in reverse order, for what had started; not if the process is killed."""
        return None

    def message_submit(self, ctx: HookContext, message: Message) -> Answer[Reject]:
        """A message is at its boundary. If this raises, the message stays where it is and is tried again, later each time."""
        return None

    def before_model(self, ctx: HookContext) -> Answer[Stop]:
        """A model call is prepared: once in a step, and again if the context changes before the call."""
        return None

    def model_request(self, ctx: HookContext, request: ModelRequest) -> Answer[ModelRequest]:
        """The request is built. Another one with other instructions, messages or settings is sent instead, this time only."""
        return None

    def before_tool(self, ctx: HookContext, call: ApprovalCall) -> Answer[Deny | Rewrite]:
        """The model asked for a call. A denial is final; a rewritten call is what the hooks behind this one see."""
        return None

    def permission(self, ctx: HookContext, call: ApprovalCall) -> Answer[Allow | Deny]:
        """A person would be asked now. A denial wins over any number of `Allow`."""
        return None

    def after_tool(self, ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> Answer[Replace]:
        """A call came to a result. Runs for those that really ran, in call order, once all of the step have ended."""
        return None

    def before_compaction(self, ctx: HookContext) -> Answer[Stop]:
        """The context is about to be compacted."""
        return None

    def after_compaction(self, ctx: HookContext) -> Answer[Stop]:
        """The context was compacted; that is not committed yet."""
        return None

    def stop(self, ctx: HookContext, answer: str) -> Answer[Continue]:
        """The model answered and asks for nothing more. The first `Continue` of a turn has it go on."""
        return None

    def turn_end(self, ctx: HookContext, outcome: TurnEnding) -> Answer[None]:
        """How the turn ends is decided. If this raises, a completed turn becomes an aborted one."""
        return None

    @final
    def hooks(self) -> tuple[str, ...]:
        """The hooks that this one has."""
        return tuple(hook for hook in HOOKS if getattr(type(self), hook) is not getattr(Middleware, hook))


def check_middleware(agent: str, middleware: object) -> tuple[Middleware, ...]:
    """What ``middleware=`` of an agent means. Raises `InvalidAgent`."""
    if isinstance(middleware, Middleware | str) or not isinstance(middleware, Iterable):
        raise InvalidAgent(f"middleware= of the agent {agent!r} must be a list", hint="middleware=[…]")
    found = tuple(middleware)
    seen: set[str] = set()
    for item in found:
        if not isinstance(item, Middleware):
            raise InvalidAgent(f"{item!r:.100} is no middleware of the agent {agent!r}", hint="an instance of a subclass of Middleware")
        _check_one(agent, item)
        if item.name in seen:
            raise InvalidAgent(f"the agent {agent!r} has two middlewares named {item.name!r}", hint="they are told apart by it")
        _check_hooks(item)
        seen.add(item.name)
    return found


def _check_hooks(item: Middleware) -> None:
    """A hook whose name was misspelt would never run, and nobody would notice. Raises `InvalidAgent`."""
    from difflib import get_close_matches

    handlers = [*item.commands.values()]
    for name in dir(type(item)):
        method = getattr(type(item), name)
        if name.startswith("_") or hasattr(Middleware, name) or not callable(method) or getattr(item, name) in handlers:
            continue
        if meant := get_close_matches(name, HOOKS, n=1, cutoff=0.8):
            raise InvalidAgent(
                f"{name!r} of the middleware {item.name!r} is no hook", hint=f"{meant[0]} is one; what is none may be called _{name}"
            )


def _check_one(agent: str, item: Middleware) -> None:
    if not item.name:
        kind = type(item).__name__
        raise InvalidAgent(f"the middleware {kind} has no name", hint=f'name = "{kind.lower()}" in the class: what it keeps is found by it')
    try:
        _check_key(item.name, "the name of a middleware")
        if item.name == MEMORY:
            raise UsageError(f"the name {MEMORY!r} is taken: what a session remembers is kept under it")
        for command, handler in item.commands.items():
            _check_key(command, "the name of a command")
            if not callable(handler):
                raise UsageError(f"the command {command!r} of {item.name!r} can't be called")
        if not isinstance(item.instructions, str):
            raise UsageError(f"the instructions of {item.name!r} must be text")
        canonical.check(item.instructions, "instructions")
    except (UsageError, AttributeError) as error:
        raise InvalidAgent(f"a middleware of the agent {agent!r} can't be used: {error}") from error
    if item.timeout is not None and not is_seconds(item.timeout):
        raise InvalidAgent(f"the timeout of the middleware {item.name!r} is {item.timeout!r}", hint="seconds, more than 0, or None")


def _check_key(key: object, what: str) -> None:
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_LIMIT or not key.isprintable() or key.isspace():
        raise UsageError(f"{key!r:.100} can't be {what}", hint=f"1 to {KEY_LIMIT} printable characters")
