"""What only one call of an owner may do, in whatever session: its name, and what the others are told."""

from __future__ import annotations

import string
from typing import Any, Literal

import msgspec

from ..core import canonical
from ..core.errors import InvalidTool

__all__ = ["AlreadyDone", "Named"]

LIMIT = 200
"""The longest template (characters)."""


class AlreadyDone(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call that would do what only one may: the ``session`` and ``operation`` that did it, and what that came to.

    ``state`` *succeeded*: ``result`` is the first call's, ``None`` where it was redacted or its session deleted. *pending*: it runs, or
    waits to, and has no result yet. *uncertain*: nobody knows whether it took effect; once somebody settles it, the next call is told, or
    runs.
    """

    session: str
    operation: str
    state: Literal["pending", "succeeded", "uncertain"]
    result: Any = None

    @property
    def response(self) -> dict[str, Any]:
        """What the model reads."""
        told: dict[str, Any] = {"session": self.session, "operation": self.operation, "state": self.state}
        return {"already_done": {**told, "result": self.result} if self.state == "succeeded" else told}

    @classmethod
    def of(cls, response: Any) -> AlreadyDone | None:
        """The same from a call's response; ``None`` if that is another one."""
        told = response.get("already_done") if isinstance(response, dict) and len(response) == 1 else None
        try:
            return msgspec.convert(told, cls) if isinstance(told, dict) else None
        except msgspec.ValidationError:
            return None


class Named(msgspec.Struct, frozen=True):
    """A ``template`` such as ``refund:{order}``, in parts: text, and the names of parameters."""

    template: str
    parts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, tool: str, template: Any, parameters: tuple[str, ...]) -> Named:
        """Raises `InvalidTool` for what is no such template."""
        if not isinstance(template, str) or not 0 < len(template) <= LIMIT:
            raise InvalidTool(f"unique= of the tool {tool!r} must be text", hint=f'such as "refund:{{order}}", at most {LIMIT} characters')
        parts = []
        try:
            for text, field, spec, conversion in string.Formatter().parse(canonical.check(template, "unique=")):
                if spec or conversion or (field is not None and field not in parameters):
                    raise ValueError(f"{{{field}}} is no parameter")
                parts.append((text, field or ""))
        except ValueError as error:
            raise InvalidTool(
                f"unique={template!r} of the tool {tool!r} can't be used: {error}", hint=f"it may name {', '.join(parameters) or 'nothing'}"
            ) from None
        return cls(template, tuple(parts))

    def by(self, values: dict[str, Any]) -> list[Any]:
        """What it names with these arguments: other values never look the same."""
        return [item for text, name in self.parts for item in (text, *([values.get(name)] if name else []))]
