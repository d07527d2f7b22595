"""Exit codes, and what a person is told of an error."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from ..core.errors import MissingExtra, MissingKey, PerdureError, ProviderError, Refused, StoreError, UsageError

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "OK",
    "PROVIDER",
    "REFUSED",
    "STORE",
    "USAGE",
    "WAITING",
    "exit_code",
    "failure_code",
    "report",
]

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
STORE: Final = 4
PROVIDER: Final = 5
WAITING: Final = 6
INTERRUPTED: Final = 130


def exit_code(error: BaseException) -> int:
    """The code that an error stands for."""
    match error:
        case UsageError():
            return USAGE
        case Refused():
            return REFUSED
        case StoreError():
            return STORE
        case ProviderError():
            return PROVIDER
        case _:
            return FAILED


def failure_code(code: str) -> int:
    """The exit code of a turn that failed: whether its provider did, the command's model can't work here, or something else."""
    if code in (MissingKey.code, MissingExtra.code):
        return USAGE
    providers: list[type[PerdureError]] = [ProviderError]
    for known in providers:
        providers.extend(known.__subclasses__())
    return PROVIDER if code in {known.code for known in providers} else FAILED


def report(error: BaseException, arguments: argparse.Namespace) -> None:
    """One line on standard error; with ``--json`` an object on standard output too, for whoever reads that."""
    from .hints import spoken
    from .output import results
    from .text import clean

    message, hint, code = f"{type(error).__name__}: {error}", "", "error"
    if isinstance(error, PerdureError):
        message, code = error.message, error.code
        hint = spoken(error.hint, getattr(arguments, "db", ""), getattr(arguments, "session", None) or "")
    elif isinstance(error, OSError):
        message, code = str(error), "os_error"
    else:
        hint = "PERDURE_DEBUG=1 shows where"
    line = f"perdure: {clean(message, one_line=True)}"
    if hint:
        line += f" ({clean(hint, one_line=True)})"
    print(line, file=sys.stderr)
    if getattr(arguments, "json", False):
        print(json.dumps({"error": {"code": code, "message": message, "hint": hint}}), file=results(), flush=True)
