"""Who decides whether a call may run: nobody, a person, or the user's own code."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ..core import canonical
from ..core.errors import InvalidAgent
from ..core.messages import Source
from ..core.records import EffectClass
from .running import begin, makes_coroutine
from .tool import Tool, is_seconds

__all__ = ["Allow", "ApprovalCall", "Approve", "Ask", "Deny", "Policy", "Rule", "Ruling"]

Rule: TypeAlias = Literal["allow", "ask", "deny"]
Default: TypeAlias = Literal["approve", "deny", "abort"]

_log = logging.getLogger("perdure.tools")


class Allow(msgspec.Struct, frozen=True):
    """The call may run."""


class Ask(msgspec.Struct, frozen=True):
    """A person has to say. Unanswered after ``deadline_seconds`` (None leaves it to the agent), the request closes with ``default``."""

    reason: str = ""
    deadline_seconds: float | None = None
    default: Default = "deny"

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise TypeError("the reason must be text")
        if self.deadline_seconds is not None and not is_seconds(self.deadline_seconds):
            raise ValueError("deadline_seconds must be more than 0, or None")
        if (known := canonical.known(self.default, Default)) is None:
            raise ValueError(f"default must be one of {', '.join(get_args(Default))}")
        msgspec.structs.force_setattr(self, "default", known)


class Deny(msgspec.Struct, frozen=True):
    """The call may not run; the model reads the reason."""

    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise TypeError("the reason must be text")


Ruling: TypeAlias = Allow | Ask | Deny


@dataclass(frozen=True, kw_only=True, eq=False)
class ApprovalCall:
    """A call that a policy has to decide on. ``arguments`` are plain JSON data, checked against the tool, and not to be changed.

    ``author`` is who wrote the message that began the turn, ``source`` who sent it where that was no person.
    """

    name: str
    arguments: dict[str, Any]
    effect: EffectClass = "external"
    session_id: str = ""
    turn: str = ""
    operation: str = ""
    call: str = ""
    owner: str = ""
    agent: str = ""
    author: str = ""
    source: Source | None = None


Decide: TypeAlias = Callable[[ApprovalCall], "Rule | Ruling | Awaitable[Rule | Ruling]"]
Approve: TypeAlias = Sequence["str | Tool"] | Mapping[str, Rule] | Decide

_RULINGS: dict[str, Ruling] = {"allow": Allow(), "ask": Ask(), "deny": Deny()}


@dataclass(frozen=True, eq=False)
class Policy:
    """What an agent's ``approve=`` means. A tool that it doesn't name may run."""

    rules: Mapping[str, Rule] = field(default_factory=dict)
    function: Decide | None = None

    @classmethod
    def of(cls, approve: Approve, tools: Iterable[str]) -> Policy:
        """Read ``approve=``: names to ask about, or a mapping from names to rules, or a function. Raises `InvalidAgent`."""
        known = tuple(tools)
        if isinstance(approve, str | bytes | Tool):
            raise InvalidAgent("approve= is one name", hint="pass a list of names")
        rules: dict[Any, Any]
        if isinstance(approve, Mapping):
            rules = dict(approve)
        elif isinstance(approve, Sequence | set | frozenset):
            rules = {item.name if isinstance(item, Tool) else item: "ask" for item in approve}
        elif callable(approve):
            _check_function(approve)
            return cls(function=approve)
        else:
            raise InvalidAgent(
                f"approve= is of the type {type(approve).__name__}",
                hint="a list of tool names, a mapping from names to rules, or a function",
            )
        for name, rule in rules.items():
            if name not in known:
                raise InvalidAgent(
                    f"approve= names {name!r}, which is no tool of this agent", hint=f"it has {', '.join(known) or 'no tools'}"
                )
            if rule not in get_args(Rule):
                raise InvalidAgent(f"approve= has the rule {rule!r} for {name!r}", hint=f"one of {', '.join(get_args(Rule))}")
        return cls(rules=rules)

    @property
    def is_callable(self) -> bool:
        """Whether user code decides, so that what is known must be committed before it runs."""
        return self.function is not None

    def static(self, name: str) -> Ruling:
        """What the rules say of a tool. With a function they say nothing; use `decide`."""
        if self.function is not None:
            raise RuntimeError("this policy is a function; await decide(call)")
        return _RULINGS[self.rules.get(name, "allow")]

    async def decide(self, call: ApprovalCall) -> Ruling:
        """Decide on a call, by the rules or by the function. A function that fails or makes no sense means *ask*, with the reason.

        A sync function runs in a thread. Cancelling this cancels an async function; a thread goes on, unheard.
        """
        if self.function is None:
            return self.static(call.name)
        function = self.function
        running = begin("the approval policy", lambda: function(call), {}, is_async=makes_coroutine(function), then=_ruling)
        try:
            return await running.finish()
        except Exception as error:
            _log.exception("the approval policy failed on %s; a person is asked", call.name)
            return Ask(reason=f"the approval policy failed ({type(error).__name__})")


def _check_function(function: Decide) -> None:
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError):
        raise InvalidAgent("the approval policy can't be called with one argument", hint="it gets an ApprovalCall") from None


def _ruling(answer: Any) -> Ruling:
    match answer:
        case Allow() | Ask() | Deny():
            return answer
        case str() if answer in _RULINGS:
            return _RULINGS[answer]
        case _:
            raise TypeError(f"an approval policy answers allow, ask, deny, Ask(…) or Deny(…), not {answer!r}")
