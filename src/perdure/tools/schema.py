"""What a Python function promises to a model, and what a model's arguments are to the function.

The only place that knows pydantic, which is imported when the first tool is declared and not before.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
import types
import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec

from ..core import canonical
from ..core.errors import InvalidTool, NotCanonical
from .context import ToolContext

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["ArgumentsInvalid", "ResultInvalid", "Shape", "identity", "is_light", "plain", "schema_of", "shape_of", "unkept", "wrong_fields"]

_log = logging.getLogger("perdure.tools")

_SHOWN_FIELDS = 20
"""How many wrong fields one message lists; a model that got more of them wrong needs no longer list."""

_SHOWN_NAME = 80
"""Characters of a wrong field's place: unknown names are the model's own text, of any length."""

_LIGHT = 64 * 1024
"""What counts as little: characters of text, and 64 for every value in a list or an object."""

_RESULT_VALUES = 4 * 1024 * 1024
"""The most values in one result: few objects in memory can stand for more than any disk holds."""

_EXACT = frozenset({str, int, bool, type(None)})
_SCALARS = frozenset({str, int, float, bool, type(None)})

# Compiled when they are first used, as those of the other modules that every program imports.
_SECTION = r"(?i:args|arguments|parameters|returns?|yields?|raises|examples?|notes?|attributes|warns|warnings|see also|todo):"
_PARAMETER = r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)"


class ArgumentsInvalid(Exception):
    """A model's arguments don't fit the tool. The message lists every wrong field, for the model; it repeats no value."""


class ResultInvalid(Exception):
    """The tool ran, and JSON can't hold what it returned. The message says which part."""


@dataclass(frozen=True, eq=False)
class Shape:
    """The parameters of a function, without the context: as a JSON Schema object, and as a check of arguments."""

    parameters: dict[str, Any]
    names: tuple[str, ...]
    context: str | None
    description: str
    adapter: TypeAdapter[dict[str, Any]]

    def bind(self, tool: str, arguments: Any) -> dict[str, Any]:
        """The Python values for the function, defaults filled in, new ones every time. Raises `ArgumentsInvalid`."""
        if isinstance(arguments, str):
            raise ArgumentsInvalid(f"the arguments of {tool} are not valid JSON; send one JSON object")
        if not isinstance(arguments, dict):
            raise ArgumentsInvalid(f"the arguments of {tool} must be one JSON object, not {_json_name(arguments)}")
        try:
            data = canonical.encode(canonical.check(arguments, "arguments"))
        except (NotCanonical, RecursionError) as error:
            raise ArgumentsInvalid(f"the arguments of {tool} can't be kept: {error}") from None
        try:
            return self.adapter.validate_json(data)
        except Exception as error:
            from pydantic import ValidationError

            if isinstance(error, ValidationError):
                # `from None`: the original prints the values, and these may be secrets that must not reach a log.
                raise ArgumentsInvalid(f"the arguments of {tool} are not valid: {wrong_fields(error)}") from None
            _log.exception("a validator of the tool %s failed", tool)
            raise ArgumentsInvalid(f"the arguments of {tool} could not be checked: a validator raised {type(error).__name__}") from None


def shape_of(function: Callable[..., Any], name: str) -> Shape:
    """Read a function's parameters, annotations and docstring. Raises `InvalidTool` where they can't be a tool's."""
    context, parameters, hints = _parameters(function, name)
    description, documented = _docstring(inspect.getdoc(function) or "")
    described = [
        parameter.replace(
            kind=inspect.Parameter.KEYWORD_ONLY, annotation=_described(hints[parameter.name], documented.get(parameter.name, ""))
        )
        for parameter in parameters
    ]
    adapter, schema = _compile(described, name)
    return Shape(schema, tuple(parameter.name for parameter in parameters), context, description, adapter)


def plain(value: Any) -> Any:
    """A tool's result as plain JSON data: models, dataclasses, dates, decimals, enums and UTF-8 bytes in their usual JSON form.

    Raises `ResultInvalid` for everything that has none, NaN, huge integers and invalid Unicode included; for what yields (generators,
    open files), which would be read to its end here, or never; for objects with two keys of one name; and for what is too large.
    """
    from pydantic_core import to_jsonable_python

    look = _Look()

    def fallback(item: Any) -> Any:
        made = msgspec.to_builtins(item)
        look(made)
        return made

    try:
        look(value)
        return canonical.check(to_jsonable_python(value, fallback=fallback), "result")
    except ResultInvalid:
        raise
    except NotCanonical as error:
        raise unkept(str(error)) from error
    except Exception as error:
        if isinstance(error.__cause__, ResultInvalid):
            raise error.__cause__ from None
        raise unkept(f"{type(value).__name__} has no JSON form ({type(error).__name__})") from error


def unkept(why: str) -> ResultInvalid:
    """A result that can't be kept, and why, for the model."""
    return ResultInvalid(f"the tool ran, but its result can't be kept: {why}")


def is_light(value: Any) -> bool:
    """Whether `plain` is done with a value in no time. Of what is not plain data itself nobody knows."""
    left, waiting = _LIGHT, [value]
    while waiting and left > 0:
        item = waiting.pop()
        kind = type(item)
        if kind is dict or kind is list or kind is tuple:
            left -= 64 * len(item)
            if left > 0:
                waiting += item
                waiting += item.values() if kind is dict else ()
        elif kind is str:
            left -= len(item)
        elif item is not None and kind is not int and kind is not float and kind is not bool:
            return False
    return left > 0


class _Look:
    """Looks for what `to_jsonable_python` would lose, wait for or double without end. Counts the values that JSON would hold."""

    def __init__(self) -> None:
        # By identity: what stands in many places is looked at once, and counted in each. Holding it keeps the identity its own.
        self._seen: dict[int, tuple[Any, int]] = {}

    def __call__(self, value: Any, where: str = "result", depth: int = 0) -> int:
        if value is None or isinstance(value, str | bytes | int | float) or depth > canonical.MAX_DEPTH:
            return 1
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        self._seen[id(value)] = value, 1
        if hasattr(type(value), "__next__") or hasattr(type(value), "__anext__") or inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise unkept(f"{where} is {_article(type(value).__name__)}, which is no data; return what is in it, as a list or text")
        count = 1
        for place, item in self._inside(value, where):
            count += 1 if type(item) in _SCALARS else self(item, _place(where, place), depth + 1)
        if count > _RESULT_VALUES:
            raise unkept(f"it holds more than {_RESULT_VALUES:,} values")
        self._seen[id(value)] = value, count
        return count

    def _inside(self, value: Any, where: str) -> Iterator[tuple[str | int, Any]]:
        match value:
            case dict() | Mapping():
                names: set[str] = set()
                for key, item in value.items():
                    name = _name_of(key)
                    if name in names:
                        raise unkept(f"{where} has two keys that are both {name!r:.80} in JSON; make them different strings")
                    names.add(name)
                    yield name, item
            case list() | tuple() | set() | frozenset() | deque():
                yield from enumerate(value)
            case _ if is_dataclass(value) and not isinstance(value, type):
                yield from ((one.name, getattr(value, one.name, None)) for one in fields(value))
            case _ if callable(getattr(type(value), "model_dump", None)):
                # What its own serializers and exclusions make of it.
                yield "", value.model_dump(warnings=False)


def _place(where: str, place: str | int) -> str:
    if place == "":
        return where
    return f"{where}[{place}]" if isinstance(place, int) else f"{where}.{place:.80}"


def _name_of(key: Any) -> str:
    """A key as `to_jsonable_python` writes it."""
    if type(key) is str:
        return key
    from pydantic_core import to_jsonable_python

    (name,) = to_jsonable_python({key: None}, fallback=msgspec.to_builtins)
    return str(name)


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def identity(value: Any) -> Any:
    """JSON data that is equal for values that mean the same, whatever their spelling or the order of a set.

    It says whether two calls would do the same thing, so that 5 and "5" for an int, or 1.5 and 1.50 for a Decimal, are one effect. A secret
    counts by its digest: two secrets are two effects, and neither can be read here.
    """
    if type(value) in _EXACT:
        return value
    from pydantic import BaseModel
    from pydantic_core import to_jsonable_python

    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case Decimal() if value.is_finite():
            return str(value.normalize(Context(prec=len(value.as_tuple().digits))))
        case bytes() | bytearray() | memoryview():
            return value.hex()
        case _ if callable(reveal := getattr(value, "get_secret_value", None)):
            return {"secret": canonical.digest(canonical.encode(identity(reveal())))}
        case BaseModel():
            return {name: identity(item) for name, item in value}
        case Mapping():
            return {_key(key): identity(item) for key, item in value.items()}
        case list() | tuple() | deque():
            return [identity(item) for item in value]
        case set() | frozenset():
            return sorted((identity(item) for item in value), key=canonical.encode)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: identity(getattr(value, field.name)) for field in fields(value)}
        case _:
            return to_jsonable_python(value, bytes_mode="hex", fallback=msgspec.to_builtins)


def _key(key: Any) -> str:
    plain_key = identity(key)
    return canonical.as_text(plain_key)


def _parameters(function: Callable[..., Any], name: str) -> tuple[str | None, list[inspect.Parameter], dict[str, Any]]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise InvalidTool(f"the parameters of the tool {name!r} can't be read") from None
    for parameter in parameters:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise InvalidTool(f"the tool {name!r} takes *{parameter.name}", hint="a model fills named parameters only; name each of them")
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise InvalidTool(f"the parameter {parameter.name!r} of the tool {name!r} is positional only", hint="remove the '/'")
        if parameter.annotation is inspect.Parameter.empty:
            raise InvalidTool(f"the parameter {parameter.name!r} of the tool {name!r} has no type", hint="annotate every parameter")
    hints = _hints(function, {parameter.name: parameter.annotation for parameter in parameters}, name)
    context = None
    if parameters and _is_context(hints[parameters[0].name]):
        context = parameters.pop(0).name
    for parameter in parameters:
        # A schema would be made of it otherwise, and the model would write its own context.
        if _mentions_context(hints[parameter.name]):
            raise InvalidTool(
                f"the parameter {parameter.name!r} of the tool {name!r} is a ToolContext in the wrong place",
                hint="make it the first parameter, annotated exactly ToolContext",
            )
    return context, parameters, hints


def _hints(function: Callable[..., Any], annotations: dict[str, Any], name: str) -> dict[str, Any]:
    # The return type is left out on purpose: nothing depends on it, so it need not be resolvable.
    origin = inspect.unwrap(function)
    namespace = getattr(getattr(origin, "__func__", origin), "__globals__", {})
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__=annotations), globalns=namespace, include_extras=True)
    except Exception as error:
        raise InvalidTool(
            f"the annotations of the tool {name!r} can't be resolved: {error}",
            hint="types must be visible at module level, and imported at run time, where annotations are strings"
            " (from __future__ import annotations)",
        ) from None


def _is_context(hint: Any) -> bool:
    return hint is ToolContext or (typing.get_origin(hint) is Annotated and hint.__origin__ is ToolContext)


def _mentions_context(hint: Any) -> bool:
    return hint is ToolContext or any(_mentions_context(argument) for argument in typing.get_args(hint))


def _described(hint: Any, description: str) -> Any:
    if not description:
        return hint
    from pydantic import Field

    base, metadata = (hint.__origin__, hint.__metadata__) if typing.get_origin(hint) is Annotated else (hint, ())
    # Ours stands first, so that a description in the user's own Field wins.
    return Annotated[(base, Field(description=description), *metadata)]  # type: ignore[return-value,unused-ignore]


def _compile(parameters: list[inspect.Parameter], name: str) -> tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]:
    from pydantic import TypeAdapter

    def arguments(**values: Any) -> dict[str, Any]:
        return values

    # A stand-in with the tool's signature: the real one has a context that is no argument, and may not be called here.
    arguments.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    arguments.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    try:
        adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(cast(Any, arguments))
        return adapter, _json_schema(adapter)
    except Exception as error:
        summary = str(error).partition("\n")[0]
        raise InvalidTool(
            f"the parameters of the tool {name!r} have no JSON Schema: {summary}", hint="use types that JSON can hold"
        ) from error


def _json_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    from pydantic.json_schema import GenerateJsonSchema

    class Schema(GenerateJsonSchema):
        """Without the titles that pydantic makes of field names, and with defaults that don't depend on the hash seed."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

        def encode_default(self, default: Any) -> Any:
            return identity(default) if isinstance(default, set | frozenset) else super().encode_default(default)

    schema: dict[str, Any] = canonical.check(adapter.json_schema(schema_generator=Schema), "schema")
    return schema


def schema_of(wanted: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """How values of a type are read, and their JSON Schema, whose root is no reference. Raises whatever pydantic raises."""
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(wanted)
    schema = _json_schema(adapter)
    if "$ref" in schema:
        # A type that holds itself.
        definitions = schema["$defs"]
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], "$defs": definitions}
    return adapter, schema


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and what the Google-style ``Args:`` section says of each parameter."""
    lines = text.splitlines()
    first: list[str] = []
    for line in lines:
        if not line.strip() or re.fullmatch(_SECTION, line.strip()):
            break
        first.append(line.strip())
    documented: dict[str, list[str]] = {}
    inside, indent, current = False, 0, ""
    for line in lines:
        words = line.strip()
        depth = len(line) - len(line.lstrip())
        if not words:
            continue
        if depth == 0:
            inside = words.lower() in ("args:", "arguments:", "parameters:")
            indent, current = 0, ""
            continue
        if not inside:
            continue
        indent = indent or depth
        found = re.fullmatch(_PARAMETER, words) if depth <= indent else None
        if found:
            current = found[1]
            documented[current] = [found[2]] if found[2] else []
        elif current:
            documented[current].append(words)
    return " ".join(first), {name: " ".join(words) for name, words in documented.items()}


def _json_name(value: Any) -> str:
    return {"list": "a list", "NoneType": "null", "bool": "a boolean", "int": "a number", "float": "a number"}.get(
        type(value).__name__, "something else"
    )


def wrong_fields(error: Any) -> str:
    """What pydantic found wrong, field by field, without any value."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for item in found[:_SHOWN_FIELDS]:
        place = ".".join(str(step) for step in item["loc"])
        place = f"{place[:_SHOWN_NAME]}…" if len(place) > _SHOWN_NAME else place
        match item["type"]:
            case "unexpected_keyword_argument":
                what = "there is no such parameter"
            case "missing_keyword_only_argument":
                what = "is required"
            case _:
                what = item["msg"]
        lines.append(f"{place}: {what}" if place else what)
    if len(found) > _SHOWN_FIELDS:
        lines.append(f"and {len(found) - _SHOWN_FIELDS} more")
    return "; ".join(lines)
