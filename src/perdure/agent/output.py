"""What an agent's answer has to be: a type that it is read as, and checks of the host's own."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ..core import canonical
from ..core.errors import InvalidAgent, NotCanonical
from ..core.finishing import ALL_ARGUMENTS, FINISH
from ..core.records import Identity
from ..models.base import OutputSpec
from ..tools.schema import ArgumentsInvalid, Shape, schema_of, wrong_fields
from ..tools.tool import Tool

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Output", "OutputContext", "OutputMisfit", "Validator", "ValidatorFailed", "check_validators", "takes_context"]

WRAPPED, SAID = "value", "answer"
"""The one property of an object that stands for what is none, and the one argument of `FINISH` where the output is text."""

Validator: TypeAlias = Callable[..., Any]

_NO_NAME = r"[^a-zA-Z0-9_-]+"
_FENCED = r"(?s:```[a-zA-Z]*\s*\n(.*)\n\s*```)"
_log = logging.getLogger("perdure.agent")


class OutputMisfit(Exception):
    """An answer is not what it has to be. The message says what is wrong, for the model."""


class ValidatorFailed(Exception):
    """An output validator came to no verdict."""


class OutputContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an output validator is told besides the output, if it takes a second parameter."""

    session_id: str
    turn: str
    agent: str
    identity: Identity
    author: str


class Output:
    """What the answers of an agent are read as. ``type`` None is text, as it is.

    Models are told a JSON Schema whose root is an object; a type that is none stands in one as its property `WRAPPED`. Raises
    `InvalidAgent` for a type that has no JSON Schema.
    """

    def __init__(self, agent: str, wanted: Any) -> None:
        self.type = None if wanted in (None, str) else wanted
        self.name = re.sub(_NO_NAME, "_", getattr(wanted, "__name__", "") or "output").strip("_")[:64] or "output"
        self.schema: dict[str, Any] | None = None
        self._wrapped = False
        self._adapter: TypeAdapter[Any] | None = None
        if self.type is not None:
            self._adapter, schema = _compiled(agent, self.type)
            self._wrapped = schema.get("type") != "object"
            self.schema = _in_object(schema) if self._wrapped else schema

    @property
    def spec(self) -> OutputSpec | None:
        """What a model is told of it; None is text."""
        return None if self.schema is None else OutputSpec(name=self.name, schema=self.schema)

    @property
    def argument(self) -> str:
        """The argument of `FINISH` that is the output; `ALL_ARGUMENTS` where all of them are."""
        return SAID if self.type is None else WRAPPED if self._wrapped else ALL_ARGUMENTS

    def read(self, text: str) -> Any:
        """The output that an answer is. Raises `OutputMisfit`."""
        if self._adapter is None:
            return text
        fenced = re.fullmatch(_FENCED, text.strip())
        try:
            data = canonical.decode((fenced[1] if fenced else text).encode())
        except Exception:
            raise OutputMisfit("it is no JSON; answer with one JSON value and nothing else") from None
        if not self._wrapped:
            return self.of(data)
        if not isinstance(data, dict) or set(data) != {WRAPPED}:
            raise OutputMisfit(f"it must be a JSON object with the one property {WRAPPED!r}")
        return self.of(data[WRAPPED])

    def of(self, data: Any) -> Any:
        """The output that JSON data is: what stands in an answer, or in the `argument` of a call. Raises `OutputMisfit`."""
        if self._adapter is None:
            if not isinstance(data, str):
                raise OutputMisfit(f"{SAID}: Input should be a valid string")
            return data
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(canonical.encode(canonical.check(data, "the output")))
        except NotCanonical as error:
            raise OutputMisfit(f"it can't be kept: {error}") from None
        except ValidationError as error:
            # Nothing but the fields: the original prints the values.
            raise OutputMisfit(wrong_fields(error)) from None
        except Exception as error:
            _log.exception("the output type %s failed to read an answer", self.name)
            raise OutputMisfit(f"it could not be read: {type(error).__name__}") from None

    def argument_of(self, arguments: Any) -> Any:
        """The output in the arguments of `FINISH`, as data. Raises `OutputMisfit`."""
        if not isinstance(arguments, dict):
            raise OutputMisfit("the arguments must be one JSON object")
        if self.argument == ALL_ARGUMENTS:
            return arguments
        if set(arguments) != {self.argument}:
            raise OutputMisfit(f"{self.argument}: is the one argument, and required")
        return arguments[self.argument]

    def tool(self) -> Tool:
        """The built-in tool that ends a turn with such an output. The runtime answers its calls itself."""
        said: dict[str, Any] = {
            "type": "object",
            "properties": {SAID: {"type": "string", "description": "what the user is to read"}},
            "required": [SAID],
            "additionalProperties": False,
        }
        parameters = said if self.schema is None else self.schema
        return Tool(
            name=FINISH,
            description="End the work with its result. Nothing else ends it; call it alone, when everything is done.",
            parameters=parameters,
            effect="pure",
            key=None,
            reconcile=None,
            on_uncertain="report",
            guard="allow",
            timeout=None,
            exclusive=True,
            is_async=True,
            function=_never,
            shape=_FinishShape(self, parameters),
        )


class _FinishShape(Shape):
    """The arguments of `FINISH`, read as the output."""

    def __init__(self, output: Output, parameters: dict[str, Any]) -> None:
        super().__init__(parameters, tuple(parameters.get("properties", ())), None, "", None)  # type: ignore[arg-type]
        object.__setattr__(self, "_output", output)

    def bind(self, tool: str, arguments: Any) -> dict[str, Any]:
        output: Output = self._output  # type: ignore[attr-defined]
        try:
            return {"output": output.of(output.argument_of(arguments))}
        except OutputMisfit as error:
            raise ArgumentsInvalid(f"the arguments of {tool} are not valid: {error}") from None


async def _never(output: Any) -> Any:
    raise AssertionError("the runtime answers this call")


def check_validators(agent: str, validators: object) -> tuple[Validator, ...]:
    """The validators of an agent. Raises `InvalidAgent` for what can't be called with an output, or with a context and an output."""
    if callable(validators) or isinstance(validators, str) or not isinstance(validators, Sequence):
        raise InvalidAgent(f"output_validators= of the agent {agent!r} must be a list", hint="output_validators=[…]")
    for item in validators:
        if not callable(item):
            raise InvalidAgent(f"an output validator of the agent {agent!r} is {item!r:.200}, which can't be called")
        takes_context(item, agent)
    return tuple(validators)


def takes_context(validator: Validator, agent: str = "") -> bool:
    """Whether a validator wants an `OutputContext` before the output. Raises `InvalidAgent` if it takes neither one nor two."""
    try:
        signature = inspect.signature(validator)
    except (TypeError, ValueError):
        return False
    for count in (1, 2):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count == 2
    raise InvalidAgent(f"an output validator of the agent {agent!r} takes other parameters", hint="(output), or (context, output)")


def _compiled(agent: str, wanted: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    try:
        if inspect.isroutine(wanted):
            raise TypeError("a function is no type")
        return schema_of(wanted)
    except Exception as error:
        summary = str(error).partition("\n")[0]
        raise InvalidAgent(
            f"the output_type of the agent {agent!r} has no JSON Schema: {summary}",
            hint="a pydantic model, a dataclass, a TypedDict, or another type that JSON can hold",
        ) from error


def _in_object(schema: dict[str, Any]) -> dict[str, Any]:
    inner = dict(schema)
    definitions = inner.pop("$defs", None)
    wrapped: dict[str, Any] = {
        "type": "object",
        "properties": {WRAPPED: inner},
        "required": [WRAPPED],
        "additionalProperties": False,
    }
    return wrapped | ({"$defs": definitions} if definitions else {})
