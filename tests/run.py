"""Run the suites one after the other, each against its time budget: `python -m tests.run [--long] [suite …]`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import NamedTuple


class Suite(NamedTuple):
    """Some tests and the seconds that they may take on two cores."""

    name: str
    budget: int
    paths: tuple[str, ...]
    options: tuple[str, ...] = ("-n", "2")


SUITES = (
    Suite("unit", 60, ("tests/unit",)),
    Suite("adapters", 60, ("tests/integration/adapters",)),
    Suite("store", 60, ("tests/integration/store",)),
    Suite("postgres", 120, ("tests/integration/postgres",)),
    Suite("runtime", 60, ("tests/integration/runtime",)),
    Suite("interactive", 60, ("tests/integration/interactive",)),
    Suite("catalogue", 60, ("tests/integration/catalogue",)),
    Suite("budgets", 60, ("tests/integration/budgets",)),
    Suite("runs", 45, ("tests/integration/runs",)),
    Suite("teams", 45, ("tests/integration/teams",)),
    Suite("media", 60, ("tests/integration/media",)),
    Suite("operations", 60, ("tests/integration/operations",)),
    Suite("workspace tools", 60, ("tests/integration/tools",)),
    Suite("sweep", 120, ("tests/integration/sweep",)),
    Suite("workers", 60, ("tests/integration/workers",)),
    Suite("chaos", 90, ("tests/acceptance/chaos",), ()),
    Suite("real kills", 60, ("tests/acceptance/kills",), ("-rP",)),
    Suite("as a user", 180, ("tests/acceptance/program",), ("-n", "3")),
)


BUDGET = 600
"""The seconds that all of them may take together."""

HUNG = 5
"""A suite that takes so many times its budget will not end."""

HANGS = -1


def main(arguments: list[str]) -> int:
    chosen = [argument for argument in arguments if not argument.startswith("-")]
    options = ["--long"] if "--long" in arguments else []
    # Hundreds of processes begin here: none of them compiles anew what the one before it did.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.monotonic()
    failed: list[str] = []
    rows: list[str] = []
    for suite in SUITES:
        if chosen and suite.name not in chosen:
            continue
        print(f"\n== {suite.name} (budget {suite.budget} s{', long form: no budget' if options else ''})", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *suite.paths, *suite.options, *options]
        try:
            code = subprocess.run(command, check=False, env=environment, timeout=None if options else HUNG * suite.budget).returncode
        except subprocess.TimeoutExpired:
            code = HANGS
        took = time.monotonic() - began
        verdict = "hung" if code == HANGS else "failed" if code else "over budget" if took > suite.budget and not options else "ok"
        rows.append(f"{suite.name:20} {took:6.1f} s of {suite.budget:4} s   {verdict}")
        if code:
            failed.append(suite.name)
    took = time.monotonic() - begun
    if not chosen and not options:
        rows.append(f"{'all of them':20} {took:6.1f} s of {BUDGET:4} s   {'ok' if took <= BUDGET else 'over budget'}")
    print("\n" + "\n".join(rows))
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
