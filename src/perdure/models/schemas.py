"""JSON Schemas as providers take them: what one of them can't enforce stands in words beside it, and is checked here anyway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ..core import canonical
from .base import ModelRequest, OutputSpec

__all__ = ["ANTHROPIC", "OPENAI", "Dialect", "fitted", "told"]

_STRUCTURE = frozenset({"$ref", "$defs", "type", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "allOf"})
_KEPT = frozenset({"enum", "const", "description", "title"})
_DROPPED = frozenset({"default", "discriminator", "examples"})
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


@dataclass(frozen=True)
class Dialect:
    """What a provider enforces: keywords with their values, formats of text, whether every property has to be there, and recursion."""

    keywords: frozenset[str]
    formats: frozenset[str]
    all_required: bool
    recursive: bool
    least_items: int | None = None


OPENAI = Dialect(
    frozenset(
        {"pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"},
    ),
    _FORMATS,
    all_required=True,
    recursive=True,
)
ANTHROPIC = Dialect(frozenset(), _FORMATS | {"uri"}, all_required=False, recursive=False, least_items=1)


class _Unfit(Exception):
    """The dialect can't say it."""


def fitted(schema: dict[str, Any], dialect: Dialect) -> dict[str, Any] | None:
    """A schema that a provider enforces and that accepts nothing else; None if there is none: open objects, values of any kind."""
    try:
        if not dialect.recursive and _is_recursive(schema):
            return None
        return _fitted(schema, dialect)
    except _Unfit:
        return None


def told(request: ModelRequest, output: OutputSpec) -> str:
    """The instructions of a request whose provider has no place for the schema of its answer."""
    words = f"Answer with one JSON value and nothing else, without a code fence. It must fit this JSON Schema:\n{_written(output.schema)}"
    return f"{request.instructions}\n\n{words}" if request.instructions.strip() else words


def _fitted(schema: Any, dialect: Dialect) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise _Unfit
    if "$ref" in schema:
        # What stands beside a reference is refused; it only ever describes.
        made: dict[str, Any] = {"$ref": schema["$ref"]}
    else:
        made = {name: schema[name] for name in ("description", "title", "enum", "const") if name in schema}
        kinds = schema.get("anyOf") or schema.get("oneOf")
        if kinds:
            made["anyOf"] = [_fitted(item, dialect) for item in kinds]
        elif "allOf" in schema:
            if len(schema["allOf"]) != 1:
                raise _Unfit
            made |= _fitted(schema["allOf"][0], dialect)
        elif "type" in schema:
            made["type"] = schema["type"]
        elif "enum" not in schema and "const" not in schema:
            raise _Unfit
        made |= _inside(schema, dialect)
        words = _unsaid(schema, made, dialect)
        if words:
            made["description"] = f"{made['description']} {words}" if made.get("description") else words
    if "$defs" in schema:
        made["$defs"] = {name: _fitted(item, dialect) for name, item in schema["$defs"].items()}
    return made


def _inside(schema: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    match schema.get("type"):
        case "object":
            if "properties" not in schema or schema.get("additionalProperties", False) is not False:
                raise _Unfit
            properties = {name: _fitted(item, dialect) for name, item in schema["properties"].items()}
            required = [*properties] if dialect.all_required else list(schema.get("required", ()))
            return {"properties": properties, "required": required, "additionalProperties": False}
        case "array":
            if "items" not in schema or "prefixItems" in schema:
                raise _Unfit
            return {"items": _fitted(schema["items"], dialect)}
        case list():
            raise _Unfit
        case _:
            return {}


def _unsaid(schema: dict[str, Any], made: dict[str, Any], dialect: Dialect) -> str:
    """Take over the keywords that the dialect enforces; the others in words."""
    left: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _STRUCTURE | _KEPT | _DROPPED:
            continue
        few = name == "minItems" and dialect.least_items is not None and value <= dialect.least_items
        if name in dialect.keywords or (name == "format" and value in dialect.formats) or few:
            made[name] = value
        else:
            left[name] = value
    return f"({', '.join(f'{name}: {_written(value)}' for name, value in left.items())})" if left else ""


def _is_recursive(schema: Mapping[str, Any]) -> bool:
    definitions: Mapping[str, Any] = schema.get("$defs") or {}

    def reached(item: Any) -> set[str]:
        if isinstance(item, dict):
            found = {item["$ref"].rpartition("/")[2]} if isinstance(item.get("$ref"), str) else set()
            return found.union(*(reached(value) for name, value in item.items() if name != "$defs"))
        return set[str]().union(*(reached(value) for value in item)) if isinstance(item, list) else set()

    try:
        TopologicalSorter({"#": reached(schema), **{name: reached(item) for name, item in definitions.items()}}).prepare()
    except CycleError:
        return True
    return False


def _written(value: Any) -> str:
    return canonical.encode(value).decode()
