"""How the demo looks: live on a terminal, or line by line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from .mails import euros
from .scene import Line, Mark, Row, Scene

__all__ = ["line_of", "live"]

TONES = {
    "plain": "",
    "start": "cyan",
    "kill": "bold red",
    "good": "green",
    "money": "yellow",
    "person": "magenta",
    "doubt": "bold yellow",
    "bad": "bold white on red",
}
STATES = {"running": "yellow", "ended": "green", "cut off": "bold red", "doubt": "bold yellow"}
REFRESH = 0.08
LEFT = 43
"""Columns that are taken before a mail's state begins."""


@asynccontextmanager
async def live(scene: Scene, console: Console) -> AsyncIterator[None]:
    """Draw the scene until the block ends; its last picture stays."""
    with Live(picture(scene, console), console=console, auto_refresh=False, vertical_overflow="crop") as screen:

        async def draw() -> None:
            while True:
                await asyncio.sleep(REFRESH)
                screen.update(picture(scene, console), refresh=True)

        drawing = asyncio.create_task(draw())
        try:
            yield
        finally:
            drawing.cancel()
            with suppress(asyncio.CancelledError):
                await drawing
            screen.update(picture(scene, console), refresh=True)


def line_of(line: Line, *, width: int | None = None) -> Text:
    """One line of the log."""
    text = Text(f"{line.at:6.2f}  ", style="dim", no_wrap=True, overflow="ellipsis").append(line.text, style=TONES[line.tone])
    if width is not None:
        text.truncate(width, overflow="ellipsis")
    return text


def picture(scene: Scene, console: Console) -> Group:
    back = sum(kill.back_after is not None for kill in scene.kills)
    head = Text.assemble(
        ("perdure demo", "bold"),
        f"  {scene.elapsed:4.1f} s  paid: {euros(scene.paid)}  kills: {len(scene.kills)}  recovered: {back}  ",
        (scene.process, "bold red" if scene.process == "dead" else "cyan"),
    )
    head.truncate(console.width, overflow="ellipsis")
    table = Table.grid(padding=(0, 1), expand=True)
    for justify, width in (("left", 7), ("left", 6), ("left", 5), ("right", 8), ("left", 11)):
        table.add_column(justify=justify, width=width, no_wrap=True)  # type: ignore[arg-type]
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for row in scene.rows.values():
        table.add_row(
            row.mail.id,
            row.mail.customer,
            row.mail.order,
            euros(row.paid) if row.paid else "",
            _steps(row),
            _now(row, console.width - LEFT),
        )
    legend = Text.assemble(("● model ■ tool ", "dim"), ("✗ cut off ", "red"), ("? unknown", "yellow"))
    space = max(3, console.height - len(scene.rows) - 3)
    lines = [line_of(line, width=console.width) for line in scene.lines[-space:]]
    return Group(head, table, Rule(legend, style="dim"), *lines, *[Text()] * (space - len(lines)))


def _steps(row: Row) -> Text:
    shown = Text()
    for mark in [*row.marks.values()][-11:]:
        shown.append(_glyph(mark), style=STATES[mark.state])
    return shown


def _glyph(mark: Mark) -> str:
    if mark.state in ("cut off", "doubt"):
        return "✗" if mark.state == "cut off" else "?"
    return "●" if mark.kind == "model" else "■"


def _now(row: Row, width: int) -> Text:
    if row.state == "writes":
        words = " ".join(row.words.split())
        return Text(words if len(words) <= width else "…" + words[1 - width :], style="italic")
    style = {"answered": "green", "waits for a person": "magenta", "refund": "yellow"}.get(row.state, "dim")
    doubt = any(mark.state == "doubt" for mark in row.marks.values())
    return Text(row.state + (", payment unknown" if doubt else ""), style="bold yellow" if doubt else style)
