"""`protocol.md`, `events.md` and `events.schema.json` are drawn from the code. Redraw it with ``python docs/draw.py``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from perdure.core import commands, decider, entries, messages
from perdure.runtime import feed

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    found = importlib.util.spec_from_file_location("draw", DOCS / "draw.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_page_is_what_the_code_draws(draw: ModuleType) -> None:
    assert draw.PAGE.read_text(encoding="utf-8") == draw.protocol(), "redraw it: python docs/draw.py"
    assert draw.EVENTS.read_text(encoding="utf-8") == draw.events(), "redraw it: python docs/draw.py"
    assert draw.SCHEMA.read_text(encoding="utf-8") == draw.schema_text(), "redraw it: python docs/draw.py"
    assert draw.FACE.read_text(encoding="utf-8") == draw.face(), "redraw it: python docs/draw.py"
    assert draw.BENCHMARKS.read_text(encoding="utf-8") == draw.benchmarks(), "redraw it: python docs/draw.py"


def test_the_pages_about_events_name_every_entry_every_command_and_everything_live(draw: ModuleType) -> None:
    page, known = draw.events(), draw.schema()["$defs"]

    live = set(feed.Event.__args__) - {entries.Entry}
    assert live == set(draw.LIVE)
    shapes = {shape for kind in entries.KINDS for shape in entries.shapes(kind)} | set(draw.COMMANDS) | live
    assert {branch["$ref"] for group in ("Entry", "Command", "Live") for branch in known[group]["anyOf"]} == {
        f"#/$defs/{shape.__name__}" for shape in shapes
    }
    for shape in shapes:
        assert f"`{shape.__name__}`" in page or f"· {shape.__name__}" in page
        assert known[shape.__name__]["properties"]["kind"] == {"const": draw.kind_of(shape)}
        assert known[shape.__name__].get("additionalProperties") is False or shape in live


def test_the_page_shows_every_command_in_every_situation(draw: ModuleType) -> None:
    page = draw.protocol().splitlines()

    for command, row in decider.TABLE.items():
        (drawn,) = [line for line in page if line.startswith(f"| `{command.__name__}` |")]
        cells = [cell.strip() for cell in drawn.strip("|").split("|")][1:]
        assert cells == [
            "·" if rule is decider.not_now else "✗" if rule is decider.impossible else f"`{rule.__name__}`" for rule in row.values()
        ]


def test_the_page_shows_every_kind_with_every_field_and_what_it_means(draw: ModuleType) -> None:
    page = draw.protocol()

    for kind in entries.KINDS:
        for shape in entries.shapes(kind):
            section = page.split(f"### `{kind}` · {shape.__name__}\n", maxsplit=1)[1].split("\n### ", maxsplit=1)[0]
            fields = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
            assert fields == set(shape.__struct_fields__) - set(entries.Entry.__struct_fields__)
            assert section.strip().splitlines()[0] == draw.first_line(shape)
            assert draw.first_line(shape)


def test_every_record_that_a_field_names_is_drawn_too(draw: ModuleType) -> None:
    def structs(annotation: Any) -> set[type]:
        found = {annotation} if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct) else set()
        for inner in getattr(annotation, "__args__", ()):
            found |= structs(inner)
        return found

    shapes = [shape for kind in entries.KINDS for shape in entries.shapes(kind)]
    used: set[type] = set()
    for shape in (*shapes, *draw.RECORDS):
        for field in msgspec.structs.fields(shape):
            used |= structs(field.type)

    assert used == {*draw.RECORDS, *draw.PARTS}
    assert {command.kind for command in draw.COMMANDS} == commands.KINDS
    assert set(draw.PARTS) == set(messages.Part.__args__)
