"""``perdure demo``."""

from __future__ import annotations

import argparse

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Hand over to the demonstration."""
    from ..demo import main

    return int(main(arguments.rest) or 0)
