"""One process of one peer: runs what it is given, and prints what it measured as JSON."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import warnings
from pathlib import Path

from .script import Script

__all__: list[str] = []


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("url")
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--hang-at", type=int)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    script = Script(given.steps, log=given.log, kill_at=given.kill_at, hang_at=given.hang_at)
    peer = importlib.import_module(f".{given.peer}_peer", __package__)
    sessions = [f"session-{index}" for index in range(given.sessions)]
    messages = asyncio.run(peer.run(given.url, sessions, script, resume=given.resume, settings=given.settings))
    json.dump({"calls": script.calls, "written": script.written, "messages": messages}, sys.stdout)


if __name__ == "__main__":
    main()
