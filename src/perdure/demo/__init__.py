"""``perdure demo``: an agent that is killed a dozen times, and what became of the money."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo. 0 if every proof holds, 1 if one doesn't, 2 if it can't run, 130 after Ctrl-C."""
    from .command import run

    return run(argv)
