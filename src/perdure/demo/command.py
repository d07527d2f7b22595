"""The command line of the demo."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import PerdureError, UsageError
from ..models.resolve import resolve
from ..models.router import Router
from .plot import LATE_MAIL, play
from .proof import Proof, prove
from .scene import Line, Scene
from .stage import Stage, StageError
from .view import line_of, live

__all__ = ["run"]


def run(argv: Sequence[str] | None) -> int:
    """See `perdure.demo.main`."""
    parser = argparse.ArgumentParser(
        prog="perdure demo",
        description="An agent refunds customers; its process is killed again and again; the ledger and the journals prove what happened.",
    )
    parser.add_argument("--plain", action="store_true", help="lines instead of a live view (always, where there is no terminal)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="put the files here and keep them")
    parser.add_argument("--model", metavar="NAME", help="a real model, openai:NAME or anthropic:NAME; its key must be set")
    options = parser.parse_args(argv)
    console = Console(highlight=False)
    errors = Console(stderr=True, highlight=False)
    try:
        if options.model:
            _check_model(options.model)
        directory = _directory(options.keep)
    except PerdureError as error:
        errors.print(Text(f"perdure demo: {error}"), soft_wrap=True)
        return 2
    try:
        proofs = asyncio.run(_perform(console, directory, options.model, plain=options.plain or not console.is_terminal))
    except StageError as error:
        errors.print(Text(f"perdure demo: {error}"), soft_wrap=True)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        errors.print("stopped; nothing is left running")
        return 130
    finally:
        if options.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    _report(console, proofs, options.keep)
    return 0 if all(proof.holds for proof in proofs) else 1


def _check_model(name: str) -> None:
    """Raises `UsageError`, `MissingExtra` or `MissingKey` for a model that can't be asked from here."""
    Router({"demo": resolve(name)}).check()


def _directory(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        empty = not any(keep.iterdir())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"no files can be kept in {str(keep)!r}: {reason}", hint="name a directory that can be made") from error
    if not empty:
        raise UsageError(f"{str(keep)!r} is not empty", hint="name a new directory")
    return keep


async def _perform(console: Console, directory: Path, model: str | None, *, plain: bool) -> list[Proof]:
    task = asyncio.current_task()
    assert task is not None
    for ending in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(ending, task.cancel)

    def listen(line: Line) -> None:
        if plain:
            console.print(line_of(line), soft_wrap=True)

    scene = Scene(listen)
    async with Stage(scene, directory, model=model) as stage:
        async with nullcontext() if plain else live(scene, console):
            await play(stage)
        return await prove(stage.runtime, stage.ledger, stage.meter, scene.kills, scene.moments, scripted=model is None)


def _report(console: Console, proofs: list[Proof], keep: Path | None) -> None:
    """The proofs, and what else there is to look at."""
    table = Table.grid(padding=(0, 1))
    for proof in proofs:
        mark = Text("✓", style="bold green") if proof.holds else Text("✗", style="bold red")
        table.add_row(mark, Text.assemble((proof.claim, "bold"), ": ", proof.numbers))
    console.print()
    console.print(table)
    if keep is None:
        console.print("\nRun it with --keep DIR to look at the ledger and the journals afterwards.")
    else:
        console.print(f"\nKept in {keep}: ledger.jsonl and agents.db. The mail whose payment was unknown, step by step:")
        console.print(Text(f"  perdure --db {keep / 'agents.db'} show {LATE_MAIL}"), soft_wrap=True)
