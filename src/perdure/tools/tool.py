"""A typed Python function as a tool: what it does to the world, how it is called, and how it is asked what became of a call."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NoReturn, TypeAlias, get_args, overload

import msgspec

from ..core import canonical
from ..core.effects import effect_key, unique_key
from ..core.errors import InvalidTool, NotCanonical
from ..core.records import EffectClass
from .context import ToolContext, is_seconds
from .returned import WithMedia, kept
from .running import Running, ToolError, begin, makes_coroutine
from .schema import ArgumentsInvalid, ResultInvalid, Shape, identity, is_light, shape_of
from .transaction import InTransaction
from .unique import Named

__all__ = [
    "ArgumentsInvalid",
    "BoundCall",
    "Delegation",
    "Done",
    "Guard",
    "NotDone",
    "OnUncertain",
    "ResultInvalid",
    "Tool",
    "Unknown",
    "WithMedia",
    "as_tool",
    "is_seconds",
    "reconciled",
    "tool",
]

Guard: TypeAlias = Literal["ask", "replay", "allow"]
OnUncertain: TypeAlias = Literal["report", "ask"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_log = logging.getLogger("perdure.tools")


class Done(msgspec.Struct, frozen=True):
    """A ``reconcile`` says: the call took effect, and this is its result."""

    result: Any = None


class NotDone(msgspec.Struct, frozen=True):
    """A ``reconcile`` says: the call never took effect and never will; it may be tried again."""


class Unknown(msgspec.Struct, frozen=True):
    """A ``reconcile`` says: nobody can tell."""


class BoundCall(msgspec.Struct, frozen=True, eq=False):
    """Arguments that fit a tool: ``arguments`` as the model gave them, ``kwargs`` as the function gets them.

    A function may change what it is given, so a second attempt takes a new one.
    """

    arguments: dict[str, Any]
    kwargs: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Delegation:
    """Who or what answers a call instead of the tool's function: an agent as a ``child``, perhaps in the ``background``, one that takes
    the conversation over by a ``handoff``, or the time (``moment`` says when, of the arguments and now, in ms since 1970)."""

    kind: Literal["child", "handoff", "timer"]
    agent: Any = None
    background: bool = False
    moment: Callable[[dict[str, Any], int], int] | None = None

    @property
    def name(self) -> str:
        """The agent's."""
        return "" if self.agent is None else str(getattr(self.agent, "name", self.agent))


@dataclass(frozen=True, eq=False)
class Tool:
    """A function that models can call; made by `tool`, never changed.

    ``parameters`` is a JSON Schema object, the same in every process. ``key`` names the parameters whose values make two calls the same
    effect; None means all of them. ``timeout`` is in seconds, None for no limit; the runtime enforces it. ``within`` is what it is bound
    to besides its function, such as a workspace's directory. One that ``asks`` is a question to the user, and no function runs.
    Calling a `Tool` calls its function, context included, with no check.
    """

    name: str
    description: str
    parameters: dict[str, Any] = field(repr=False)
    effect: EffectClass
    key: tuple[str, ...] | None
    reconcile: Callable[..., Any] | None
    on_uncertain: OnUncertain
    guard: Guard
    timeout: float | None
    exclusive: bool
    is_async: bool
    function: Callable[..., Any] = field(repr=False)
    shape: Shape = field(repr=False)
    gives_way: bool = False
    delegation: Delegation | None = None
    resumable: bool = False
    unique: Named | None = None
    within: str = ""
    asks: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def check(self, arguments: Any) -> BoundCall:
        """The whole arguments of a call, checked. Raises `ArgumentsInvalid` with words for the model.

        They must be a JSON object that JSON can hold exactly, without unknown names; text is what was no valid JSON. Values are
        converted as pydantic does in its lax mode: "5" is accepted for an int.
        """
        kwargs = self.shape.bind(self.name, arguments)
        if self.delegation is not None and self.delegation.moment is not None:
            self.delegation.moment(kwargs, 0)
        return BoundCall(arguments, kwargs)

    def effect_key(self, arguments: Any) -> bytes:
        """What an effect is known by in the ledger: the tool's name, a zero byte, and 32 bytes for what ``key`` selects."""
        return effect_key(self.name, self.selected(arguments))

    def selected(self, arguments: Any) -> str:
        """The digest (hex) of what ``key`` selects of a call's arguments.

        Values are compared as the function gets them, defaults filled in, so another spelling of the same call is the same effect.
        Arguments that don't fit the tool have no effect; their key is made of them as they are.
        """
        try:
            values = identity(self.shape.bind(self.name, arguments))
        except ArgumentsInvalid:
            values = arguments if isinstance(arguments, dict) else {"": arguments}
        selected = values if self.key is None else [values.get(name) for name in self.key]
        return canonical.digest(canonical.encode(selected))

    def claims(self, arguments: Any, owner: str) -> str:
        """The digest of what only this call may do for an owner; empty if every call may do it, or the arguments don't fit."""
        if self.unique is None:
            return ""
        try:
            return unique_key(owner, self.unique.by(identity(self.shape.bind(self.name, arguments))))
        except ArgumentsInvalid:
            return ""

    @property
    def takes_context(self) -> bool:
        """Whether a call needs to be told about itself."""
        return self.shape.context is not None or self.effect == "transactional"

    def start(self, context: ToolContext | None, bound: BoundCall) -> Running[Any]:
        """Start a call and return at once; ``context`` is needed by a tool that `takes_context`.

        Its result is plain JSON data, or `WithMedia`, or `ResultInvalid` is its outcome.

        That of a transactional one may be `InTransaction`: its result comes of it.
        """
        kwargs = bound.kwargs if self.shape.context is None else {self.shape.context: context, **bound.kwargs}
        if self.effect == "transactional":
            assert context is not None
            then = partial(_in_transaction, context.asked)
            return begin(
                self.name, self.function, kwargs, is_async=self.is_async, then=then, quick=lambda value: isinstance(value, InTransaction)
            )
        return begin(self.name, self.function, kwargs, is_async=self.is_async, then=kept, quick=is_light)

    async def call(self, context: ToolContext, bound: BoundCall) -> Any:
        """Run a call and return its result as plain JSON data, or as `WithMedia`.

        Raises what the tool raises, `ResultInvalid` if JSON can't hold the result, `ToolFault` if it tried to end the process.
        Cancelling it cancels an async tool and waits for its end; a sync one goes on in its thread, unheard.
        """
        return await self.start(context, bound).finish()

    async def reconcile_call(self, context: ToolContext, bound: BoundCall) -> Done | NotDone | Unknown:
        """Ask the tool's ``reconcile`` what became of an earlier call. What it can't say in one of the three answers is `Unknown`.

        Cancelling it cancels the question; asking again is always allowed.
        """
        if self.reconcile is None:
            return Unknown()
        kwargs = _reconcile_arguments(self.reconcile, self.shape, context, bound)
        is_async = makes_coroutine(self.reconcile)
        running = begin(self.name, self.reconcile, kwargs, is_async=is_async, then=reconciled, quick=_is_quick)
        try:
            return await running.finish()
        except Exception:
            _log.exception("the reconcile of the tool %s failed; the outcome of %s stays unknown", self.name, context.operation)
            return Unknown()


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    effect: EffectClass = "external",
    key: Iterable[str] | str | None = None,
    reconcile: Callable[..., Any] | None = None,
    on_uncertain: OnUncertain = "report",
    guard: Guard = "ask",
    timeout: float | None = None,
    exclusive: bool = False,
    gives_way: bool = False,
    resumable: bool = False,
    unique: str | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: EffectClass = "external",
    key: Iterable[str] | str | None = None,
    reconcile: Callable[..., Any] | None = None,
    on_uncertain: OnUncertain = "report",
    guard: Guard = "ask",
    timeout: float | None = None,
    exclusive: bool = False,
    gives_way: bool = False,
    resumable: bool = False,
    unique: str | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a typed function, sync or async, a tool.

    ``effect`` says what a second run would do: nothing (``pure``), nothing more (``idempotent``), or something again (``external``); a
    ``transactional`` tool does what it does through `ToolContext.transaction` alone, in the commit of its receipt.
    ``key`` names the parameters that make two calls the same effect. ``reconcile`` is asked what became of a call whose outcome is
    unknown: it gets the `ToolContext` and those of the tool's parameters that it names, only reads, and answers `Done`, `NotDone` or
    `Unknown`; without an answer ``on_uncertain`` decides. ``guard`` is what happens to a call that would repeat an effect that the
    conversation no longer shows. ``timeout`` is in seconds. An ``exclusive`` tool runs alone among the calls of its step. One that
    ``gives_way`` only waits or watches: when somebody steers the turn and every open call of the step gives way, they are cut short, and
    the model reads what was said. A ``resumable`` tool does all that it does outside through `ToolContext.step`: it runs again after a
    restart, whatever its class, and finds there what it had done. ``unique="refund:{order}"`` names what only one call may do for the
    session's owner, in whatever session: once it succeeded, or may have, or while it runs, every other call is answered with
    `AlreadyDone`.

    The first parameter, if annotated `ToolContext`, gets the call's context. The docstring's first paragraph is the description, its
    ``Args:`` section describes the parameters. Raises `InvalidTool`.
    """

    def declare(function: Callable[..., Any]) -> Tool:
        return _declare(
            function,
            effect=effect,
            key=key,
            reconcile=reconcile,
            on_uncertain=on_uncertain,
            guard=guard,
            timeout=timeout,
            exclusive=exclusive,
            gives_way=gives_way,
            resumable=resumable,
            unique=unique,
            name=name,
            description=description,
        )

    return declare if function is None else declare(function)


def as_tool(candidate: Any) -> Tool:
    """The tool that an agent was given. Raises `InvalidTool` for a plain function: what its effect is has to be thought of."""
    if isinstance(candidate, Tool):
        return candidate
    called = getattr(candidate, "__name__", None) or type(candidate).__name__
    if inspect.isroutine(candidate):
        raise InvalidTool(
            f"{called!r} is a plain function", hint='decorate it: @tool, or @tool(effect="pure") if running it changes nothing'
        )
    raise InvalidTool(f"{called!r} is not a tool", hint="pass functions that are decorated with @tool")


def _declare(
    function: Callable[..., Any],
    *,
    effect: EffectClass,
    key: Iterable[str] | str | None,
    reconcile: Callable[..., Any] | None,
    on_uncertain: OnUncertain,
    guard: Guard,
    timeout: float | None,
    exclusive: bool,
    gives_way: bool,
    resumable: bool,
    unique: str | None,
    name: str | None,
    description: str | None,
) -> Tool:
    if isinstance(function, Tool):
        raise InvalidTool(f"{function.name!r} is a tool already", hint="decorate it once")
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise InvalidTool(f"{type(function).__name__} can't be a tool", hint="decorate a function, or wrap it in one")
    name = function.__name__ if name is None else name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidTool(f"{name!r} can't be a tool's name", hint="1 to 64 letters, digits, '_' or '-'; pass name=")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTool(f"the tool {name!r} yields", hint="a tool returns one result")
    effect = _one_of(name, "effect", effect, EffectClass)
    on_uncertain = _one_of(name, "on_uncertain", on_uncertain, OnUncertain)
    guard = _one_of(name, "guard", guard, Guard)
    if timeout is not None and not is_seconds(timeout):
        raise InvalidTool(f"the timeout of the tool {name!r} is {timeout!r}", hint="seconds, more than 0; None for no limit")
    for option, given in (("exclusive", exclusive), ("gives_way", gives_way), ("resumable", resumable)):
        if not isinstance(given, bool):
            raise InvalidTool(f"{option}= of the tool {name!r} must be True or False")
    if unique is not None and effect == "pure":
        raise InvalidTool(f"the tool {name!r} is pure, and there is nothing that only one call of it may do", hint="leave out unique=")
    if resumable and not makes_coroutine(function):
        raise InvalidTool(f"the tool {name!r} is resumable and not async", hint="what it does outside is in `await ctx.step(…)`")
    if description is not None and not isinstance(description, str):
        raise InvalidTool(f"the description of the tool {name!r} must be text")
    shape = shape_of(function, name)
    if effect == "transactional" and not shape.context:
        raise InvalidTool(
            f"the tool {name!r} is transactional and takes no context, so that it has no transaction",
            hint="its first parameter is ctx: ToolContext, and it returns ctx.transaction(…)",
        )
    try:
        canonical.check(shape.description if description is None else description, "its description")
    except NotCanonical as error:
        raise InvalidTool(f"the tool {name!r} can't be declared: {error}") from error
    made = Tool(
        name=name,
        description=shape.description if description is None else description,
        parameters=shape.parameters,
        effect=effect,
        key=_key(name, key, shape),
        reconcile=reconcile,
        on_uncertain=on_uncertain,
        guard=guard,
        timeout=timeout,
        exclusive=exclusive,
        is_async=makes_coroutine(function),
        function=function,
        shape=shape,
        gives_way=gives_way,
        resumable=resumable,
        unique=None if unique is None else Named.of(name, unique, tuple(shape.names)),
    )
    if reconcile is not None:
        _check_reconcile(name, reconcile, shape)
    return made


def _in_transaction(asked: list[InTransaction], value: Any) -> Any:
    """What a transactional tool returned. Raises `ToolError` if that leaves out what it asked for: nothing of it was done."""
    if asked and (len(asked) > 1 or value is not asked[0]):
        raise ToolError(
            "nothing was done: the tool asked for a transaction and returned something else; it must return what ctx.transaction(…) "
            "returns, once, and have its function make the result"
        )
    return value if asked else kept(value)


def _one_of(name: str, option: str, value: object, allowed: Any) -> Any:
    if (known := canonical.known(value, allowed)) is None:
        raise InvalidTool(f"{option}={value!r} of the tool {name!r} is unknown", hint=f"one of {', '.join(get_args(allowed))}")
    return known


def _key(name: str, key: Iterable[str] | str | None, shape: Shape) -> tuple[str, ...] | None:
    if key is None:
        return None
    # key=("order") is a string, and would be five letters.
    names = (key,) if isinstance(key, str) else tuple(key)
    if not names:
        raise InvalidTool(f"the key of the tool {name!r} names nothing", hint="leave it out to compare all arguments")
    for item in names:
        if item not in shape.names:
            raise InvalidTool(f"the key of the tool {name!r} names {item!r}, which is no parameter", hint=f"it has {_listed(shape.names)}")
    if len(set(names)) != len(names):
        raise InvalidTool(f"the key of the tool {name!r} names a parameter twice")
    return names


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no parameters"


def _check_reconcile(name: str, reconcile: Callable[..., Any], shape: Shape) -> None:
    def refuse(why: str) -> NoReturn:
        raise InvalidTool(
            f"the reconcile of the tool {name!r} {why}", hint="it gets the context, then those of the tool's parameters that it names"
        )

    if not callable(reconcile) or isinstance(reconcile, type | Tool):
        refuse("is not a function")
    try:
        parameters = list(inspect.signature(reconcile).parameters.values())
    except (TypeError, ValueError):
        refuse("has parameters that can't be read")
    for place, parameter in enumerate(parameters):
        match parameter.kind:
            case inspect.Parameter.VAR_KEYWORD:
                continue
            case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.POSITIONAL_ONLY:
                refuse(f"has the parameter {parameter.name!r}, which can't be passed by name")
        is_context = place == 0 and parameter.name not in shape.names
        if not is_context and parameter.name not in shape.names and parameter.default is inspect.Parameter.empty:
            refuse(f"needs {parameter.name!r}, which is no parameter of the tool")


def _reconcile_arguments(reconcile: Callable[..., Any], shape: Shape, context: ToolContext, bound: BoundCall) -> dict[str, Any]:
    kwargs: dict[str, Any] = {}
    for place, parameter in enumerate(inspect.signature(reconcile).parameters.values()):
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            kwargs = bound.kwargs | kwargs
        elif parameter.name in shape.names:
            kwargs[parameter.name] = bound.kwargs[parameter.name]
        elif place == 0:
            kwargs[parameter.name] = context
    return kwargs


def _is_quick(answer: Any) -> bool:
    return not isinstance(answer, Done) or is_light(answer.result)


def reconciled(answer: Any) -> Done | NotDone | Unknown:
    match answer:
        case Done(result):
            return Done(kept(result))
        case NotDone() | Unknown():
            return answer
        case _:
            raise TypeError(f"a reconcile answers Done(result), NotDone() or Unknown(), not {type(answer).__name__}")
