"""What a transactional tool has done in the commit of its receipt."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import UsageError

__all__ = ["InTransaction", "plain_function"]


@dataclass(frozen=True, eq=False)
class InTransaction:
    """A function that will run in a commit's transaction; what it returns becomes the result. Made by `ToolContext.transaction`.

    It has no value before the tool has returned it; awaiting it gives it back as it is.
    """

    function: Callable[..., Any] = field(repr=False)
    args: tuple[Any, ...] = field(default=(), repr=False)

    def __call__(self, connection: Any) -> Any:
        return plain_function(self.function(connection, *self.args))

    def __await__(self) -> Generator[Any, None, InTransaction]:
        return self
        yield


def plain_function(value: Any) -> Any:
    """What a function returned that has to be done when it returns. Raises `UsageError` if it isn't."""
    if hasattr(value, "__await__"):
        if hasattr(value, "close"):
            value.close()
        raise UsageError("a function in a transaction can't be async", hint="the commit can't wait for anything else: use a plain function")
    return value
