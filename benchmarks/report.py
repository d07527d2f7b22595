"""Figures, the table that they are printed as, and the machine that they were measured on."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import msgspec

__all__ = ["Figure", "Pairs", "as_ms", "machine", "per_second", "table"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the table. ``value`` is what ``limit`` is held against: ``at_most`` says in which direction; no limit is no target."""

    name: str
    value: float
    unit: str = "×"
    low: float | None = None
    high: float | None = None
    ours: str = ""
    floor: str = ""
    limit: float | None = None
    at_most: bool = True

    @property
    def ok(self) -> bool | None:
        """Whether the target holds; None without one."""
        if self.limit is None:
            return None
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def as_json(self) -> dict[str, Any]:
        """The figure as plain data."""
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "low": self.low and round(self.low, 4),
            "high": self.high and round(self.high, 4),
            "ours": self.ours,
            "floor": self.floor,
            "target": self.limit,
            "at_most": self.at_most,
            "ok": self.ok,
        }


class Pairs:
    """Measurements of ours and of the floor, taken in turns. The ratio is the median over the pairs: drift of the machine hits both."""

    def __init__(self) -> None:
        self.ours: list[float] = []
        self.floor: list[float] = []

    def add(self, ours: float, floor: float) -> None:
        self.ours.append(ours)
        self.floor.append(floor)

    def figure(
        self, name: str, *, show: Callable[[float], str], limit: float | None = None, at_most: bool = True, unit: str = "×"
    ) -> Figure:
        """Ours over the floor."""
        ratios = [ours / floor for ours, floor in zip(self.ours, self.floor, strict=True)]
        return Figure(
            name=name,
            value=statistics.median(ratios),
            unit=unit,
            low=min(ratios),
            high=max(ratios),
            ours=show(statistics.median(self.ours)),
            floor=show(statistics.median(self.floor)),
            limit=limit,
            at_most=at_most,
        )


def _sync_cost(directory: Path) -> float:
    """Milliseconds for 4 KiB appended and made durable; the disk's share in everything here."""
    costs = []
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        for _ in range(60):
            start = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fdatasync(file.fileno())
            costs.append((time.perf_counter() - start) * 1000)
    return statistics.median(costs)


def machine(directory: Path) -> dict[str, Any]:
    """What the figures depend on; no names of hosts or paths."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "msgspec": msgspec.__version__,
        "synchronous": "FULL",
        "fdatasync_4k_ms": round(_sync_cost(directory), 3),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"


def table(figures: Iterable[Figure]) -> str:
    """Columns of plain text."""
    rows: list[Sequence[str]] = [("figure", "measured", "min–max", "ours", "floor", "target", "")]
    for item in figures:
        spread = "" if item.low is None or item.high is None else f"{_number(item.low)}–{_number(item.high)}"
        target = "" if item.limit is None else f"{'≤' if item.at_most else '≥'} {item.limit:g}"
        verdict = {None: "", True: "ok", False: "OVER" if item.at_most else "UNDER"}[item.ok]
        rows.append((item.name, f"{_number(item.value)} {item.unit}", spread, item.ours, item.floor, target, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def as_ms(seconds: float) -> str:
    return f"{seconds * 1000:.3f} ms"


def per_second(rate: float) -> str:
    return f"{rate:.0f}/s"
