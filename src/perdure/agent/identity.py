"""What a callable is called in a definition: where it is declared, or a name and a version that its author gave it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..core.errors import UsageError

__all__ = ["identity_of", "version_of", "versioned"]

_GIVEN = "__perdure_identity__"
_LIMIT = 200

_T = TypeVar("_T")


def versioned(version: str, *, name: str | None = None) -> Callable[[_T], _T]:
    """Say which version of a callable this is, and with ``name`` what it is called wherever it lives.

    Goes on functions (below ``@tool``), and on classes of middleware. A turn that goes on under another version says so in its journal;
    with ``on_change="same"`` it doesn't go on. Raises `UsageError` for what is no name or version.
    """
    for what, text in (("version", version), ("name", name)):
        if text is not None and (not isinstance(text, str) or not text.strip() or not text.isprintable() or len(text) > _LIMIT):
            raise UsageError(f"{what}={text!r:.200} can't be kept", hint=f"1 to {_LIMIT} printable characters")

    def give(function: _T) -> _T:
        setattr(function, _GIVEN, (name, version))
        return function

    return give


def version_of(function: Any) -> str:
    """The version that a callable, or its class, was given; empty if none was."""
    given: tuple[str | None, str] | None = getattr(function, _GIVEN, None)
    return "" if given is None else given[1]


def identity_of(function: Callable[..., Any]) -> str:
    """Name and version. Never an address or a line: neither survives a restart or an edit elsewhere in the file."""
    if isinstance(function, functools.partial):
        return f"{identity_of(function.func)}(…)"
    given: tuple[str | None, str] | None = getattr(function, _GIVEN, None)
    named = function if hasattr(function, "__qualname__") else type(function)
    place = f"{named.__module__}:{named.__qualname__}"
    return place if given is None else f"{given[0] or place}@{given[1]}"
