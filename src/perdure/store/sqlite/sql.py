"""The statements of ``queries.sql``, by name."""

from __future__ import annotations

import re
from importlib.resources import files

__all__ = ["QUERIES", "RENEWALS", "SCHEMA", "parse"]


def parse(text: str) -> dict[str, str]:
    """Named blocks, without their comments."""
    blocks: dict[str, str] = {}
    for block in re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        statement = "\n".join(line for line in rest.splitlines() if not line.startswith("--")).strip()
        assert name not in blocks, name
        blocks[name.strip()] = statement
    return blocks


QUERIES = parse((files(__package__) / "queries.sql").read_text("utf-8"))
SCHEMA = (files(__package__) / "schema.sql").read_text("utf-8")

RENEWALS: dict[int, str] = {}
"""What makes a file of format ``number - 1`` one of ``number``; `SCHEMA` makes the last. Format 1 is the first."""
