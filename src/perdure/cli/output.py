"""Standard output, kept for results."""

from __future__ import annotations

import os
import sys
from typing import IO

__all__ = ["keep_results", "results"]

_kept: IO[str] | None = None


def results() -> IO[str]:
    """Where results go: standard output, or what `keep_results` kept of it."""
    return sys.stdout if _kept is None else _kept


def keep_results() -> None:
    """Keep standard output for results alone: what agents, their tools and programs that these start print goes to standard error.

    On a terminal both are the same place.
    """
    global _kept
    if _kept is None:
        sys.stdout.flush()
        _kept = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors="backslashreplace")
        os.dup2(2, 1)
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(line_buffering=True)
