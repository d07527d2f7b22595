"""What ``import perdure``, and what a program uses of it, adds to what every user of it has imported anyway."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from .report import Figure

__all__ = ["import_time"]

_PROGRAM = """
import json, sys, time
start = time.perf_counter()
import asyncio, sqlite3, msgspec
before, known = time.perf_counter(), set(sys.modules)
import perdure
imported = time.perf_counter()
perdure.Agent, perdure.tool, perdure.open
used = time.perf_counter()
loaded = set(sys.modules) - known
print(json.dumps({"base": before - start, "added": imported - before, "used": used - before, "loaded": sorted(loaded)}))
"""
_HEAVY = ("pydantic", "pydantic_core", "openai", "anthropic", "httpx", "aiohttp", "requests", "rich", "apsw")


def import_time(directory: Path, *, runs: int) -> list[Figure]:
    """In processes of their own, one after the other; compiled once, as an installed package is."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(directory / "compiled")
    added, used, base, loaded = [], [], [], []
    for number in range(runs + 1):
        ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, env=environment)
        measured = json.loads(ended.stdout)
        if number:
            added.append(measured["added"] * 1000)
            used.append(measured["used"] * 1000)
            base.append(measured["base"] * 1000)
        loaded = measured["loaded"]
    heavy = [name for name in _HEAVY if name in loaded]
    return [
        Figure(
            name="import perdure adds",
            value=statistics.median(added),
            unit="ms",
            low=min(added),
            high=max(added),
            ours="the face alone: each name brings its module when it is first asked for",
            floor=f"{statistics.median(base):.0f} ms for asyncio, sqlite3, msgspec",
            limit=40,
        ),
        Figure(
            name="import perdure and use of Agent, tool and open add",
            value=statistics.median(used),
            unit="ms",
            low=min(used),
            high=max(used),
            ours=f"{len(loaded)} modules" + (f", among them {', '.join(heavy)}" if heavy else ""),
            floor=f"{statistics.median(base):.0f} ms for asyncio, sqlite3, msgspec",
            limit=60,
        ),
    ]
