"""``python -m benchmarks [--quick] [--json FILE]``: measure, print a table, and never fail because a machine is slow."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from . import editing, importing, listing, loading, postgres, sending, sizes, steps, workers
from .report import Figure, machine, table

Measurement = Callable[[], Awaitable[list[Figure]]]


def _measurements(directory: Path, *, quick: bool) -> dict[str, Measurement]:
    async def imports() -> list[Figure]:
        return importing.import_time(directory, runs=5 if quick else 11)

    # Short blocks and many pairs: a neighbour's burst hits a few of them.
    pairs, block = (15, 20) if quick else (60, 20)
    few = 3 if quick else 9
    return {
        "steps": lambda: steps.cost_per_step(directory, pairs=pairs, steps=block),
        "bytes": lambda: steps.bytes_and_syncs(directory, steps=200),
        "growth": lambda: steps.growth(directory, pairs=6 if quick else 25, steps=20),
        "1 session": lambda: steps.concurrent(directory, sessions=1, steps=block, pairs=pairs),
        "10 sessions": lambda: steps.concurrent(directory, sessions=10, steps=20, pairs=few),
        "100 sessions": lambda: steps.concurrent(directory, sessions=100, steps=10, pairs=few),
        "2,000 sessions": lambda: steps.concurrent(directory, sessions=2_000, steps=2 if quick else 4, pairs=0),
        "load": lambda: loading.load(directory, pairs=3 if quick else 9),
        "list": lambda: listing.listing(directory, rounds=5 if quick else 15),
        "edit": lambda: editing.editing(directory, rounds=9 if quick else 30),
        "send": lambda: sending.send_latency(directory, count=60 if quick else 400),
        "postgres": lambda: postgres.on_postgres(directory, pairs=9 if quick else 30, steps=20),
        "workers": lambda: workers.two_workers(directory, pairs=few, sessions=32, steps=10),
        "sizes": lambda: sizes.sizes(directory, steps=300 if quick else 1_000),
        "import": imports,
    }


async def _run(directory: Path, *, quick: bool, only: list[str]) -> list[Figure]:
    figures: list[Figure] = []
    for name, measure in _measurements(directory, quick=quick).items():
        if only and not any(name.startswith(wanted) for wanted in only):
            continue
        start = time.perf_counter()
        figures += await measure()
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Costs as ratios to a bare loop that writes the same bytes.")
    parser.add_argument("--quick", action="store_true", help="fewer pairs: under a minute, and wider ranges")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--dir", help="where the databases are made; it must be on a real disk (default: the system's temporary directory)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only measurements whose name begins so")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="perdure-bench-") as directory:
        facts = machine(Path(directory))
        figures = asyncio.run(_run(Path(directory), quick=options.quick, only=options.only))
    print(", ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    print(table(figures))
    targets = [figure for figure in figures if figure.limit is not None]
    missed = [figure.name for figure in targets if not figure.ok]
    print(f"\n{len(missed)} of {len(targets)} targets missed{': ' if missed else ''}{'; '.join(missed)}")
    if options.json:
        result = {"machine": facts, "quick": options.quick, "figures": [figure.as_json() for figure in figures]}
        Path(options.json).write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
