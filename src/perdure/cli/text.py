"""Text that is safe and short enough to show. What models, tools and people wrote may hold anything, terminal commands included."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from ..core.errors import UsageError
from ..core.messages import Blob, Part, Text, Uri
from ..tools.unique import AlreadyDone

__all__ = ["arguments", "attached", "clean", "counted", "duration", "moment", "plain", "short", "since", "to_json", "value", "written"]

# Control characters but tab and newline, what reorders text, and what is invisible.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]")


def clean(text: str, *, one_line: bool = False) -> str:
    """The text with everything that could command a terminal spelled out."""
    shown = _UNSAFE.sub(_spelled, text)
    return shown.replace("\n", "↵").replace("\t", " ") if one_line else shown


def _spelled(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def short(text: str, limit: int) -> str:
    """At most ``limit`` characters on one line, safe."""
    line = clean(text[: limit * 2], one_line=True)
    return line if len(line) <= limit and len(text) <= limit * 2 else line[: max(1, limit - 1)] + "…"


def value(data: Any, limit: int = 200) -> str:
    """A JSON value in one short line; that another call did it already, in words."""
    if (done := AlreadyDone.of(data)) is not None:
        became = {"pending": "it has no result yet", "uncertain": "nobody knows whether it took effect"}
        told = became[done.state] if done.state in became else value(done.result, limit)
        return short(f"done already by {done.session} {done.operation}: {told}", limit)
    return short(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False), limit)


def arguments(data: Any, limit: int = 200) -> str:
    """A call's arguments as between parentheses."""
    if isinstance(data, dict):
        return short(", ".join(f"{name}={json.dumps(item, ensure_ascii=False)}" for name, item in data.items()), limit)
    return value(data, limit)


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def attached(name: str, mime_type: str, size: int) -> str:
    """An image, sound or file in a message."""
    kilobytes = f"{size:,} B" if size < 1024 else f"{size / 1024:,.0f} KiB" if size < 1024 * 1024 else f"{size / 1024 / 1024:,.1f} MiB"
    return f"[{f'{name}, ' if name else ''}{mime_type}, {kilobytes}]"


def written(parts: Iterable[Part]) -> str:
    """What somebody sent, in a line: text, and what the files are."""
    words: list[str] = []
    for part in parts:
        match part:
            case Text():
                words.append(part.content)
            case Blob():
                words.append(attached(part.name, part.mime_type, part.size))
            case Uri():
                words.append(f"[{part.uri}]")
    return " ".join(filter(None, words))


def moment(at: int) -> str:
    """A time of day, with its date if that isn't today's; local."""
    then, now = time.localtime(at / 1000), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", then)


def duration(ms: float) -> str:
    """How long something took."""
    if ms < 1000:
        return f"{max(0, round(ms))} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def since(at: int) -> str:
    """How long ago a time was."""
    return duration(max(0, time.time() * 1000 - at))


def moment_of(text: str | None) -> int | None:
    """A time as people write it, in their own time zone unless it names one."""
    if text is None:
        return None
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{text!r} is no time", hint="2026-01-31, 2026-01-31T12:00 or 2026-01-31T12:00+01:00") from None


def plain(record: Any) -> Any:
    """A record as plain JSON data."""
    return msgspec.to_builtins(record)


def to_json(data: Any) -> str:
    """One line of JSON in pure ASCII, so that no reader and no terminal can misunderstand it."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"))
