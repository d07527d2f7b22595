"""Where commands write: results to standard output, everything else to the terminal or to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, TypeAlias

from rich.console import Console
from rich.text import Text

from .output import results
from .text import clean, to_json

__all__ = ["Piece", "Screen", "columns"]

Piece: TypeAlias = str | tuple[str, str]
"""Text, or text and its style. Every piece is made safe here and nowhere else."""

NARROW = 60


class Screen:
    """One command's output. With ``as_json`` nothing but JSON is written to standard output, and progress is not shown."""

    def __init__(self, *, as_json: bool = False, out: IO[str] | None = None) -> None:
        self.as_json = as_json
        self.out = _console(out or results())
        self.notes = self.out if self.out.is_terminal and not as_json else _console(sys.stderr)
        self.interactive = self.out.is_terminal and sys.stdin.isatty() and not as_json
        self.live = self.out.is_terminal and not as_json and not self.out.is_dumb_terminal

    def line(self, *pieces: Piece, indent: int = 0) -> None:
        """A line of the result."""
        _write(self.out, pieces, indent)

    def note(self, *pieces: Piece, indent: int = 0) -> None:
        """A line about the work, which a script doesn't want."""
        if not self.as_json:
            _write(self.notes, pieces, indent)

    def advice(self, *pieces: Piece) -> None:
        """A line that somebody has to see, whoever reads the result."""
        _write(self.notes, pieces, 0)

    def more(self, after: str | None) -> None:
        """How to get the page behind this one, where there is one: a script wants it too, but not among the results."""
        if after is not None:
            self.advice((f"more: --after {after}", "dim"))

    def text(self, text: str, style: str = "") -> None:
        """A piece of running text, without an end of line."""
        self.out.print(Text(clean(text), style=style), end="", soft_wrap=True)

    def json(self, data: object) -> None:
        """One JSON document on a line of its own."""
        results().write(to_json(data) + "\n")
        results().flush()


def _console(file: IO[str]) -> Console:
    return Console(file=file, highlight=False, markup=False, emoji=False)


def _write(console: Console, pieces: Iterable[Piece], indent: int) -> None:
    text = Text(overflow="fold", no_wrap=False)
    for piece in pieces:
        words, style = (piece, "") if isinstance(piece, str) else piece
        text.append(clean(words), style=style)
    # Whoever reads a file wants lines, not the width of a screen that isn't there.
    width = max(10, console.width - indent)
    for line in text.wrap(console, width, overflow="fold") if console.is_terminal else text.split("\n", allow_blank=True):
        if console.is_terminal:
            line.rstrip()
        console.print(Text(" " * indent).append_text(line) if line.plain else "", soft_wrap=True)


def columns(screen: Screen, head: tuple[str, ...], rows: list[tuple[Piece, ...]]) -> None:
    """A table; on a narrow screen a few lines for each row. The last column takes what is left."""
    plain = [[clean(cell if isinstance(cell, str) else cell[0], one_line=True) for cell in row] for row in rows]
    styles = [["" if isinstance(cell, str) else cell[1] for cell in row] for row in rows]
    if screen.out.is_terminal and screen.out.width < NARROW:
        for row, style in zip(plain, styles, strict=True):
            screen.line((row[0], "bold"))
            for name, cell, look in list(zip(head, row, style, strict=True))[1:]:
                if cell:
                    screen.line((f"{name.lower()} ", "dim"), (cell, look), indent=2)
        return
    widths = [max([len(name), *(len(row[index]) for row in plain)]) for index, name in enumerate(head)]
    room = screen.out.width if screen.out.is_terminal else 1 << 20
    for row, style in zip([list(head), *plain], [["dim"] * len(head), *styles], strict=True):
        text = Text()
        for index, cell in enumerate(row):
            last = index == len(row) - 1
            text.append(cell if last else cell.ljust(widths[index] + 2), style=style[index])
        if len(text) > room:
            text.truncate(room, overflow="ellipsis")
        text.rstrip()
        screen.out.print(text, soft_wrap=True)
