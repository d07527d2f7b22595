"""The statements of ``queries.sql`` by name, and the versions of the schema, for one schema's name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ..sqlite.sql import parse

__all__ = ["FORMAT", "SCHEMA", "Sql", "Version", "channel_of", "sql_for"]

SCHEMA = "perdure"
"""The schema that stands in the files."""

FORMAT = 1
"""The layout that this version knows; a store with a higher number is refused."""


class Version(NamedTuple):
    """What makes a store of format ``number - 1`` one of ``number``: the files of that number, in the order of their names.

    A function whose calls an older process must not make any more gets another name, so that the server refuses them.
    """

    number: int
    statements: str


class Sql(NamedTuple):
    """All the text that one schema needs, what it must have as the statement ``found`` names it, and its tables."""

    queries: dict[str, bytes]
    versions: tuple[Version, ...]
    objects: frozenset[str]
    tables: frozenset[str]


@cache
def sql_for(schema: str) -> Sql:
    """The schema's name is all that is ever put into a statement, and here only."""
    name = '"' + schema.replace('"', '""') + '"'

    def named(text: str) -> str:
        return re.sub(r"\bperdure(?=\.[a-z]|;)", lambda _: name, text)

    package = files(__package__)
    queries = parse((package / "queries.sql").read_text("utf-8"))
    channel = '"' + channel_of(schema).replace('"', '""') + '"'
    texts: dict[int, str] = {}
    for file in sorted((package / "versions").iterdir(), key=lambda path: path.name):
        number = int(file.name.partition("-")[0])
        texts[number] = texts.get(number, "") + file.read_text("utf-8")
    made = "".join(texts.values())
    return Sql(
        queries={key: named(text).replace('"perdure."', channel).encode() for key, text in queries.items()},
        versions=tuple(Version(number, named(text)) for number, text in sorted(texts.items())),
        objects=frozenset(_made(made)),
        tables=frozenset(re.findall(r"^CREATE TABLE perdure\.(\w+)", made, re.MULTILINE)),
    )


def _made(text: str) -> Iterator[str]:
    """What statements make: tables and types with their columns, indexes by what they are of, and functions."""
    for name, body in re.findall(
        r"^CREATE (?:TABLE|TYPE) perdure\.(\w+) (?:AS )?\((.*?)\)(?: WITH [^;]*)?;$", text, re.MULTILINE | re.DOTALL
    ):
        yield name
        for part in re.split(r",(?![^(]*\))", body):
            column, words = part.split(maxsplit=1)
            if column == "PRIMARY":
                yield f"unique {name} {words.removeprefix('KEY ').strip()}"
                continue
            yield f"{name}.{column}"
            if words.endswith(("PRIMARY KEY", "UNIQUE")):
                yield f"unique {name} ({column})"
    yield from (f"{name} {columns}" for name, columns in re.findall(r"^CREATE INDEX \w+ ON perdure\.(\w+) (\([^)]*\))", text, re.MULTILINE))
    yield from (f"{name}()" for name in re.findall(r"^CREATE FUNCTION perdure\.(\w+)", text, re.MULTILINE))


def channel_of(schema: str) -> str:
    """Where changes are announced."""
    return f"{SCHEMA}.{schema}"[:63]
