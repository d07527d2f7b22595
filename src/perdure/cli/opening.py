"""Opening the store that a command is about."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..core.errors import UsageError
from ..models.prices import Prices
from ..runtime.content import Input
from ..runtime.media import file
from ..runtime.runtime import Runtime
from ..runtime.runtime import open as open_runtime
from ..runtime.stores import store_at

__all__ = ["opened", "read_text", "store_file", "with_files"]


def opened(arguments: argparse.Namespace, *, create: bool = False, **options: Any) -> Runtime:
    """A runtime on the store. Raises `UsageError` where there is none and the command would have no reason to make one."""
    path = store_file(arguments.db)
    if not create and path is not None and not path.exists():
        raise UsageError(f"there is no store at {str(path)!r}", hint="--db or PERDURE_DB name another; `perdure run` makes one")
    # Whoever installed prices wants to know what things cost.
    return open_runtime(store_at(arguments.db, make=create), prices=Prices() if Prices.installed() else None, **options)


def store_file(url: str) -> Path | None:
    """The file of a store that has one."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return Path(url)
    name = unquote(rest[1:].partition("?")[0])
    return Path(name) if scheme == "sqlite" and name else None


def with_files(text: str, files: Sequence[str]) -> Input:
    """A message with files behind its text. Raises `InvalidMedia` for what can't be read or sent."""
    return [text, *map(file, files)] if files else text


def read_text(text: str) -> str:
    """A message from the command line; ``-`` is standard input."""
    return sys.stdin.read() if text == "-" else text
