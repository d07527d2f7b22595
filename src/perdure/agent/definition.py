"""An agent's definition as plain data: whether it is the same, what differs, and whether an unfinished turn can go on under it.

What a model is shown and what decides about calls belongs to it. ``on_restart`` and ``on_change`` don't: they say how to treat a turn
that is resumed. Nor does where a tool's function lives: its name is what the journal knows, and a version if it was given one. Nor do
credentials: of a model only its route's name is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

import msgspec
from msgspec.structs import asdict

from ..core import canonical
from ..core.budget import most_steps
from ..models.router import Router
from ..tools.tool import ArgumentsInvalid, Tool
from .agent import Agent
from .compaction import Compaction
from .identity import identity_of, version_of
from .middleware import Middleware

__all__ = ["compatible", "describe", "difference", "fingerprint"]

_FORMAT = 1
"""Goes up when `describe` says the same thing in another way."""


def describe(agent: Agent) -> dict[str, Any]:
    """The definition as plain JSON data, the same in every process that declares the same agent.

    Instructions are a digest: they are stored once, elsewhere.
    """
    return {
        "format": _FORMAT,
        "name": agent.name,
        "instructions": canonical.digest(agent.prompt.encode()),
        "model": _route(agent),
        "output": _output(agent),
        "finish": _finish(agent),
        "tools": [_describe_tool(tool) for tool in agent.toolset],
        "approve": {
            "rules": dict(agent.policy.rules),
            "function": None if agent.policy.function is None else identity_of(agent.policy.function),
            "timeout": agent.approval_timeout,
        },
        "limits": asdict(agent.limits) | {"steps": most_steps(agent.limits)},
        "session_limits": {} if agent.session_limits is None else asdict(agent.session_limits),
        "settings": msgspec.to_builtins(agent.settings),
        "archive": agent.archive,
        "middleware": [_describe_middleware(item) for item in agent.middleware],
        "compaction": None if agent.compaction is None else _compaction(agent.compaction),
        "memory": None if agent.session_memory is None else agent.session_memory.describe(),
    }


def fingerprint(agent: Agent) -> str:
    """64 hexadecimal characters that are equal exactly for equal definitions."""
    return canonical.digest(canonical.encode(describe(agent)))


def difference(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, ...]:
    """What changed between two descriptions, a sentence each; empty if nothing did."""
    sentences = [
        f"the {fact} changed from {_shown(old, fact)} to {_shown(new, fact)}" for fact in ("name", "model") if _differs(old, new, fact)
    ]
    if _differs(old, new, "archive"):
        sentences.append(f"the limit of results that are shown whole changed from {_shown(old, 'archive')} to {_shown(new, 'archive')}")
    if _differs(old, new, "instructions"):
        sentences.append("the instructions changed")
    sentences += _output_differs(old.get("output") or {}, new.get("output") or {})
    sentences += _tools_differ(old.get("tools") or [], new.get("tools") or [])
    sentences += _approval_differs(old.get("approve") or {}, new.get("approve") or {})
    for fact, what in (
        ("limits", "limit"),
        ("session_limits", "session's limit"),
        ("settings", "setting"),
        ("compaction", "compaction's"),
        ("memory", "memory's"),
        ("finish", "turn's"),
    ):
        sentences += _facts_differ(f"the {what} ", old.get(fact) or {}, new.get(fact) or {})
    sentences += _middleware_differs(old.get("middleware") or [], new.get("middleware") or [])
    if not sentences and old != new:
        sentences.append("the definition was written by another version of perdure")
    return tuple(sentences)


def compatible(
    old: dict[str, Any],
    new: dict[str, Any],
    *,
    open_tools: Set[str],
    open_arguments: Iterable[tuple[Tool, Any]] = (),
) -> tuple[str, ...]:
    """Why an unfinished turn can't go on under the new definition; empty if it can.

    ``open_tools`` are the names of tools that an open operation or request uses; ``open_arguments`` the arguments of those calls, each
    with the tool of that name in the new agent, which has to accept them.
    """
    reasons = []
    if _differs(old, new, "name"):
        reasons.append(f"the turn belongs to the agent {_shown(old, 'name')}, not to {_shown(new, 'name')}")
    promised, now = old.get("output") or {}, new.get("output") or {}
    if _differs(promised, now, "schema"):
        reasons.append("the output type that the turn promised changed")
    names = {tool["name"] for tool in new.get("tools", ())}
    reasons += [f"the tool {name!r} was removed, and a call of it is open" for name in sorted(open_tools - names)]
    for tool, arguments in open_arguments:
        try:
            tool.check(arguments)
        except ArgumentsInvalid as error:
            reasons.append(f"an open call no longer fits the tool {tool.name!r}: {error}")
    return tuple(reasons)


def _describe_tool(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "effect": tool.effect,
        "key": None if tool.key is None else list(tool.key),
        "reconcile": None if tool.reconcile is None else identity_of(tool.reconcile),
        "on_uncertain": tool.on_uncertain,
        "guard": tool.guard,
        "timeout": tool.timeout,
        "exclusive": tool.exclusive,
        "resumable": tool.resumable,
        "unique": None if tool.unique is None else tool.unique.template,
        "version": version_of(tool.function) or None,
        "directory": tool.within or None,
    } | _delegation(tool)


def _delegation(tool: Tool) -> dict[str, Any]:
    """Who answers instead of a function; a tool that is one says nothing of it. Another agent's own definition is its sessions' matter."""
    given = tool.delegation
    return {} if given is None else {"calls": given.kind, "agent": given.name, "background": given.background}


def _describe_middleware(item: Middleware) -> dict[str, Any]:
    version = version_of(item) or None
    return {"name": item.name, "hooks": [*item.hooks()], "commands": sorted(item.commands), "version": version}


def _output(agent: Agent) -> dict[str, Any] | None:
    """What the output has to be; the type's name is no part of that."""
    if agent.output.schema is None and not agent.output_validators:
        return None
    return {"schema": agent.output.schema, "validators": [identity_of(item) for item in agent.output_validators]}


def _finish(agent: Agent) -> dict[str, Any]:
    asks = agent.finish == "ask"
    return {
        "ending": agent.finish,
        "repairs": agent.repairs if agent.checks_answers else None,
        "answer_timeout": agent.answer_timeout if asks else None,
        "on_silence": agent.on_silence if asks else None,
    }


def _compaction(compaction: Compaction) -> dict[str, Any]:
    guidance = canonical.digest(compaction.guidance.encode())
    return {"threshold": compaction.threshold, "bytes_per_token": compaction.bytes_per_token, "guidance": guidance}


def _route(agent: Agent) -> str:
    if agent.model is None:
        return ""
    if isinstance(agent.model, Router):
        return ", ".join(agent.model.names)
    return agent.model if isinstance(agent.model, str) else agent.model.name


def _tools_differ(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    sentences, common = _items_differ("tool", old, new)
    for name, before, after in common:
        if _differs(before, after, "description"):
            sentences.append(f"the description of the tool {name!r} changed")
        sentences += _schemas_differ(f"tool {name!r}", "parameter", before.get("parameters") or {}, after.get("parameters") or {})
        facts = [{fact: value for fact, value in tool.items() if fact not in ("description", "parameters")} for tool in (before, after)]
        sentences += _facts_differ(f"of the tool {name!r}, the ", *facts)
    return sentences


def _items_differ(
    kind: str, old: list[dict[str, Any]], new: list[dict[str, Any]]
) -> tuple[list[str], list[tuple[str, dict[str, Any], dict[str, Any]]]]:
    """Which came and went, and those that both have."""
    before, after = {item["name"]: item for item in old}, {item["name"]: item for item in new}
    sentences = [f"the {kind} {name!r} was removed" for name in before if name not in after]
    sentences += [f"the {kind} {name!r} was added" for name in after if name not in before]
    common = [name for name in before if name in after]
    if common != [name for name in after if name in before]:
        sentences.append(f"the {kind}s are in another order")
    return sentences, [(name, before[name], after[name]) for name in common]


def _schemas_differ(whole: str, part: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    before, after = old.get("properties") or {}, new.get("properties") or {}
    sentences = [f"the {whole} lost the {part} {name!r}" for name in before if name not in after]
    sentences += [f"the {whole} gained the {part} {name!r}" for name in after if name not in before]
    for name in before:
        if name not in after:
            continue
        needed = [name in (schema.get("required") or ()) for schema in (old, new)]
        if needed[0] != needed[1]:
            sentences.append(f"the {part} {name!r} of the {whole} became {'required' if needed[1] else 'optional'}")
        elif before[name] != after[name]:
            sentences.append(f"the {part} {name!r} of the {whole} changed")
    if not sentences and old != new:
        sentences.append(f"a type that the {whole} uses changed")
    return sentences


def _output_differs(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    before, after = old.get("schema"), new.get("schema")
    if (before is None) != (after is None):
        return [f"the output {'is of a type now' if before is None else 'is text now'}"]
    return _schemas_differ("output", "field", before or {}, after or {}) + (
        ["the output validators changed" if old.get("validators") and new.get("validators") else "output validators came or went"]
        if (old.get("validators") or []) != (new.get("validators") or [])
        else []
    )


def _middleware_differs(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    sentences, common = _items_differ("middleware", old, new)
    for name, before, after in common:
        sentences += _facts_differ(f"of the middleware {name!r}, the ", before, after)
    return sentences


def _approval_differs(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    before, after = old.get("rules") or {}, new.get("rules") or {}
    rules = [{name: given.get(name, "allow") for name in sorted(before.keys() | after.keys())} for given in (before, after)]
    return _facts_differ("the approval of ", *rules) + _facts_differ(
        "the approval ", *({fact: given.get(fact) for fact in ("function", "timeout")} for given in (old, new))
    )


def _facts_differ(what: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [
        f"{what}{fact} changed from {_shown(old, fact)} to {_shown(new, fact)}"
        for fact in sorted(old.keys() | new.keys())
        if _differs(old, new, fact)
    ]


def _differs(old: dict[str, Any], new: dict[str, Any], fact: str) -> bool:
    return bool(old.get(fact) != new.get(fact))


def _shown(facts: dict[str, Any], fact: str) -> str:
    value = facts.get(fact)
    return "nothing" if value is None or value == "" else canonical.encode(value).decode()
