"""The command ``perdure``."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Sequence
from importlib import import_module
from typing import Any

from .exits import INTERRUPTED, exit_code, report
from .output import results

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see `exits`. Never raises, unless PERDURE_DEBUG asks for it.

    What a command has to wait for comes as an awaitable of its function, which has read standard input and the agent's module by then:
    a loop that runs would take Ctrl-C for itself.
    """
    from .parser import parse

    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 2
    _quiet_logs()
    module, _, function = arguments.handler.partition(":")
    code: int
    try:
        answer = getattr(import_module(f".{module}", __package__), function)(arguments)
        code = answer if isinstance(answer, int) else _awaited(answer)
        results().flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain about it once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), results().fileno())
        code = 0
    except Exception as error:
        if os.environ.get("PERDURE_DEBUG", "") not in ("", "0"):
            raise
        report(error, arguments)
        code = exit_code(error)
    return code


def _awaited(answer: Coroutine[Any, Any, int]) -> int:
    """Only a command that was understood needs a loop."""
    import asyncio

    return asyncio.run(answer)


def _quiet_logs() -> None:
    """The library's log repeats what the commands show themselves, but for its advice; PERDURE_DEBUG shows it too."""
    import logging

    if os.environ.get("PERDURE_DEBUG", "") in ("", "0"):
        logging.getLogger("perdure").addHandler(logging.NullHandler())
        logging.getLogger("perdure").propagate = False
        if logging.lastResort is not None:
            # It finds standard error anew with every line, wherever a terminal has that go meanwhile.
            logging.getLogger("perdure.advice").addHandler(logging.lastResort)
    else:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
