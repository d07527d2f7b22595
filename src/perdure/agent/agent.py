"""What an agent is: a declaration that never changes and knows nothing of sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ..core import canonical
from ..core.context import ARCHIVE_LEAST, READ_RESULT
from ..core.errors import DuplicateTool, InvalidAgent, InvalidTool, NotCanonical
from ..core.finishing import FINISH
from ..core.records import Finishing, Hold, Limits, Terms
from ..models.base import Model, ModelSettings, ToolSpec
from ..models.router import Router
from ..tools.policy import Approve, Policy
from ..tools.tool import Guard, Tool, as_tool, is_seconds
from .compaction import Compaction
from .limits import check_patience, wrong_limit
from .memory import Memory, SessionMemory, check_memory, with_memory
from .middleware import Middleware, check_middleware
from .output import Output, Validator, check_validators

__all__ = ["REPAIRS_LIMIT", "Agent", "OnChange", "OnRestart", "OnSilence", "check_agent", "check_agents", "with_teams"]

OnRestart: TypeAlias = Literal["continue", "stop"]
OnChange: TypeAlias = Literal["compatible", "same", "any"]
OnSilence: TypeAlias = Literal["end", "go_on"]

REPAIRS_LIMIT = 10
"""How often an answer may be corrected at most."""

_NAME_LIMIT = 128
"""Characters of an agent's name."""


@dataclass(frozen=True, eq=False)
class Agent:
    """A model with instructions, tools, and rules about both.

    ``name`` is durable: sessions find their agent by it. ``model`` is a name for the runtime to resolve, a `Model`, or a `Router` of
    several; None leaves the choice to the runtime. ``approve`` says which calls need a person: tool names, a mapping from names to
    "allow", "ask" or "deny", or a function of an `ApprovalCall`. ``approval_timeout`` is how long a question stands, in seconds; None is
    for ever. ``limits`` bound each turn, ``session_limits`` all turns of a session together; without ``steps`` in them, a turn has 50.
    ``on_restart`` says whether a turn that a crash cut off goes on; ``on_change`` whether it may under another definition: a
    ``compatible`` one, none but the ``same``, or ``any``. Of a tool's result of more than ``archive`` bytes the model sees an excerpt from
    its first appearance on, and the built-in tool ``read_result`` brings back any part of it; None shows every result whole.
    ``middleware`` is the agent's own code around its turns, in the order in which
    its hooks run; their tools and instructions are added to the agent's, once: see `toolset` and `prompt`.
    ``handoffs`` are agents, or names of agents of the same team, to whom the model can hand the conversation over with a tool
    ``transfer_to_…``; an agent that is to answer a question and come back is a tool instead: see `as_tool`.
    ``compaction`` says when notes take the place of a conversation's beginning; None is never. ``memory`` is what later turns are told of
    the session (`SessionMemory`), or a `Memory` of the host's own.

    ``output_type`` is what an answer without calls is read as: a pydantic model, a dataclass, a TypedDict, or any other type that pydantic
    can read from JSON; None is text. ``output_validators`` are functions, sync or async, of the output, or of an `OutputContext` and the
    output: one returns None, or says what is wrong by returning a text or raising ``ValueError``. They run between commits, and again after
    a crash. An answer that is not right may be corrected ``repairs`` times; then the turn fails with ``output_invalid``, and keeps it.
    ``finish`` is what ends a turn: an ``answer`` without calls; the built-in ``tool`` *finish* alone, whose arguments are the output; or
    that tool, and an answer without calls will ``ask`` the user, for ``answer_timeout`` seconds (None is for ever). What they say is a
    message, and the turn goes on; their silence means to ``end`` the turn, or to ``go_on``, by ``on_silence``.

    Raises `InvalidAgent`, `InvalidTool` or `DuplicateTool`.
    """

    name: str
    instructions: str = ""
    model: str | Model | Router | None = None
    tools: Sequence[Tool] = ()
    approve: Approve = ()
    limits: Limits = Limits()  # noqa: RUF009 - immutable
    session_limits: Limits | None = None
    on_restart: OnRestart = "continue"
    on_change: OnChange = "compatible"
    settings: ModelSettings = ModelSettings()  # noqa: RUF009 - immutable
    approval_timeout: float | None = None
    archive: int | None = 20_000
    middleware: Sequence[Middleware] = ()
    compaction: Compaction | None = Compaction()  # noqa: RUF009 - immutable
    memory: SessionMemory | Memory | None = None
    handoffs: Sequence[Agent | str] = ()
    output_type: Any = None
    output_validators: Sequence[Validator] = ()
    repairs: int = 1
    finish: Finishing = "answer"
    answer_timeout: float | None = None
    on_silence: OnSilence = "end"

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_text(self.name, self.instructions)
        _check_model(self.name, self.model)
        object.__setattr__(self, "tools", _checked_tools(self.name, self.tools))
        check_memory(self.name, self.memory)
        given = check_middleware(self.name, self.middleware)
        object.__setattr__(self, "middleware", check_middleware(self.name, with_memory(given, self.memory)))
        self.toolset, self.prompt, self.team  # noqa: B018 - what middleware adds is read once, here; names mean one agent each
        object.__setattr__(self, "output_validators", check_validators(self.name, self.output_validators))
        object.__setattr__(self, "finish", _one_of(self.name, "finish", self.finish, Finishing))
        _check_repairs(self.name, self.repairs)
        self.output  # noqa: B018 - checks output_type=
        if self.finish != "answer" and FINISH in self._by_name:
            raise DuplicateTool(f"the agent {self.name!r} has a tool named {FINISH!r}, which finish= brings along", hint="rename it")
        self.policy  # noqa: B018 - checks approve=
        _check_limits(self.name, "limits", self.limits)
        if self.session_limits is not None:
            _check_limits(self.name, "session_limits", self.session_limits)
        _check_settings(self.name, self.settings)
        if self.compaction is not None and not isinstance(self.compaction, Compaction):
            raise InvalidAgent(f"the compaction of the agent {self.name!r} must be Compaction(…) or None")
        _check_archive(self.name, self.archive, self._by_name)
        for option, allowed in (("on_restart", OnRestart), ("on_change", OnChange), ("on_silence", OnSilence)):
            _one_of(self.name, option, getattr(self, option), allowed)
        for option in ("approval_timeout", "answer_timeout"):
            seconds = getattr(self, option)
            if seconds is not None and not is_seconds(seconds):
                raise InvalidAgent(f"the {option} of the agent {self.name!r} is {seconds!r}", hint="seconds, more than 0; None is for ever")

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, tools=[{', '.join(self._by_name)}])"

    def tool(self, name: str) -> Tool | None:
        """The tool of that name, or None."""
        return self._offered.get(name)

    @property
    def session_memory(self) -> SessionMemory | None:
        """``memory``, if it is the session's own."""
        return self.memory if isinstance(self.memory, SessionMemory) else None

    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        background: bool = False,
        timeout: float | None = None,
        guard: Guard = "ask",
    ) -> Tool:
        """The agent as a tool of another one: a call is a session of its own, a child of the caller's.

        The child belongs to whom the caller's session belongs, sees nothing of it but the task, and its last answer is the call's result.
        The caller is not held while it waits. Interrupting or archiving it stops the child, and ``timeout`` (seconds) gives the child up;
        what it did until then stays done. With ``background`` the call returns at once, and the child's answer comes as a message of the
        agent's, also when the caller's turn is over. ``guard`` is as for `tool`. Raises `InvalidAgent` and `InvalidTool`.
        """
        from .teams import agent_tool

        return agent_tool(self, name=name, description=description, background=background, timeout=timeout, guard=guard)

    @cached_property
    def team(self) -> dict[str, Agent]:
        """The agent and all whom it can call or hand over to, by name."""
        if all(item.delegation is None for item in self.toolset):
            return {self.name: self}
        from .teams import team_of

        return team_of(self)

    @cached_property
    def successors(self) -> dict[str, Agent]:
        """The agent and those to whom its sessions can be handed over, by name."""
        if all(item.delegation is None for item in self.toolset):
            return {self.name: self}
        from .teams import successors_of

        return successors_of(self)

    def takes(self, name: str) -> bool:
        """Whether a session of the agent called so can be gone on with as this one: its own, nobody's, or of one that it hands over to."""
        return name in ("", self.name) or name in self.successors

    @cached_property
    def policy(self) -> Policy:
        """What ``approve`` means."""
        return Policy.of(self.approve, self._by_name)

    @cached_property
    def toolset(self) -> tuple[Tool, ...]:
        """The agent's tools, then those of its middleware, and those that hand over."""
        added = [tool for item in self.middleware for tool in _checked_tools(self.name, item.tools)]
        if self.handoffs:
            from .teams import handoff_tools

            added += handoff_tools(self.name, self.handoffs)
        return _checked_tools(self.name, [*self.tools, *added]) if added else tuple(self.tools)

    @cached_property
    def terms(self) -> Terms:
        """What it decides about each of its turns; its middleware may have a say before they go on."""
        hooks = {hook for item in self.middleware for hook in item.hooks()}
        held: dict[Hold, bool] = {"results": "after_tool" in hooks, "output": self.checks_answers, "end": "turn_end" in hooks}
        return Terms(
            archive=self.archive or 0,
            holds=tuple(hold for hold, wanted in held.items() if wanted),
            finish=self.finish,
            repairs=self.repairs if self.checks_answers else 0,
        )

    @cached_property
    def output(self) -> Output:
        """What its output is read as."""
        return Output(self.name, self.output_type)

    def ends(self, name: str) -> bool:
        """Whether a call of that name ends a turn; nobody can withhold that, or the turn would never end."""
        return name == FINISH and self.finish != "answer"

    @property
    def checks_answers(self) -> bool:
        """Whether an answer waits until it is known to be what it has to be."""
        return self.finish == "answer" and (self.output.spec is not None or bool(self.output_validators))

    @cached_property
    def prompt(self) -> str:
        """The agent's instructions, and then those of its middleware."""
        return "\n\n".join([text for text in (self.instructions, *(item.instructions for item in self.middleware)) if text])

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model is told of them, in the order of their declaration."""
        offered = self._offered.values()
        return tuple(ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters) for tool in offered)

    @cached_property
    def _offered(self) -> dict[str, Tool]:
        """Its own tools, and those that come with what it asks for."""
        offered = dict(self._by_name)
        if self.archive is not None and self.toolset:
            # It is made with pydantic, which is imported on first use.
            from ..tools.results import read_result_tool

            offered[READ_RESULT] = read_result_tool()
        if self.finish != "answer":
            offered[FINISH] = self.output.tool()
        return offered

    @cached_property
    def _by_name(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.toolset}

    def replace(self, **changes: Any) -> Agent:
        """The same agent with some fields changed, checked again."""
        return dataclasses.replace(self, **changes)


def _one_of(name: str, option: str, value: object, allowed: Any) -> Any:
    if (known := canonical.known(value, allowed)) is None:
        raise InvalidAgent(f"{option}={value!r:.200} of the agent {name!r} is unknown", hint=f"one of {', '.join(get_args(allowed))}")
    return known


def _check_repairs(name: str, repairs: object) -> None:
    if not canonical.is_whole(repairs, 0, REPAIRS_LIMIT):
        raise InvalidAgent(f"repairs={repairs!r:.200} of the agent {name!r} is no number of repairs", hint=f"0 to {REPAIRS_LIMIT}")


def check_agent(agent: object) -> Agent:
    """An agent where one is wanted. Raises `InvalidAgent`."""
    if not isinstance(agent, Agent):
        raise InvalidAgent(f"{agent!r:.100} is no Agent", hint='declare one, Agent("helper", model=…), and pass it itself')
    return agent


def check_agents(agents: object) -> list[Agent]:
    """A list of agents where one is wanted. Raises `InvalidAgent`."""
    if isinstance(agents, Agent | str) or not isinstance(agents, Iterable):
        raise InvalidAgent(f"{agents!r:.100} is no list of agents", hint="[agent] is a list of one")
    return [*map(check_agent, agents)]


def with_teams(agents: Iterable[Agent]) -> dict[str, Agent]:
    """These agents and their teams, by name: a name that was given means that agent, whatever others call by it."""
    given = {agent.name: agent for agent in agents}
    return {name: member for agent in given.values() for name, member in agent.team.items()} | given


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= _NAME_LIMIT or not name.isprintable() or name.isspace():
        raise InvalidAgent(f"{name!r:.200} can't be an agent's name", hint=f"1 to {_NAME_LIMIT} printable characters")


def _check_text(name: str, instructions: object) -> None:
    if not isinstance(instructions, str):
        raise InvalidAgent(f"the instructions of the agent {name!r} must be text, not {type(instructions).__name__}")
    try:
        canonical.check(instructions, "instructions")
    except NotCanonical as error:
        raise InvalidAgent(f"the agent {name!r} can't be declared: {error}") from error


def _check_model(name: str, model: object) -> None:
    if model is None or isinstance(model, Router) or (isinstance(model, str) and model.strip()):
        return
    if isinstance(model, str | type) or not isinstance(model, Model):
        raise InvalidAgent(
            f"the model of the agent {name!r} is {model!r:.200}", hint='a name such as "openai:gpt-5.6-sol", a Model or a Router'
        )


def _checked_tools(name: str, tools: object) -> tuple[Tool, ...]:
    if isinstance(tools, Tool | str) or not isinstance(tools, Iterable):
        raise InvalidTool(f"tools= of the agent {name!r} must be a list", hint="tools=[…]")
    made = tuple(as_tool(candidate) for candidate in tools)
    seen: set[str] = set()
    for tool in made:
        if tool.name in seen:
            raise DuplicateTool(f"the agent {name!r} has two tools named {tool.name!r}", hint="give one of them another name=")
        seen.add(tool.name)
    return made


def _check_archive(name: str, archive: object, tools: dict[str, Tool]) -> None:
    if archive is None:
        return
    if not canonical.is_whole(archive, ARCHIVE_LEAST):
        raise InvalidAgent(f"archive={archive!r} of the agent {name!r} is no length", hint=f"bytes, at least {ARCHIVE_LEAST}, or None")
    if READ_RESULT in tools:
        raise DuplicateTool(f"the agent {name!r} has a tool named {READ_RESULT!r}, which archive= brings along", hint="rename it")


def _check_limits(name: str, option: str, limits: object) -> None:
    if (wrong := wrong_limit(limits)) is not None:
        raise InvalidAgent(f"the {option} of the agent {name!r} {wrong[0]}", hint=wrong[1])


def _check_settings(name: str, settings: object) -> None:
    if not isinstance(settings, ModelSettings):
        raise InvalidAgent(f"the settings of the agent {name!r} must be ModelSettings(…)")
    check_patience(settings, f"the settings of the agent {name!r}")
    try:
        canonical.check(msgspec.to_builtins(settings), "settings")
    except (NotCanonical, TypeError) as error:
        raise InvalidAgent(f"the agent {name!r} can't be declared: {error}") from error
