"""What the functions of the database repeat of the rules, because they can't ask for them."""

from __future__ import annotations

import re
from pathlib import Path

import perdure.store
from perdure.core.commands import URGENT
from perdure.store.base import PENDING_LIMIT, URGENT_LIMIT

SQL = "".join(path.read_text() for path in sorted((Path(perdure.store.__file__).parent / "postgres" / "versions").glob("*functions.sql")))


def said(name: str) -> str:
    (found,) = re.findall(rf"^ *{name} CONSTANT \w+(?:\[\])? := (.*);$", SQL, re.MULTILINE)
    return str(found)


def test_what_the_functions_know_of_the_queue_s_limits_is_what_the_rules_say() -> None:
    assert (int(said("pending_limit")), int(said("urgent_limit"))) == (PENDING_LIMIT, URGENT_LIMIT)
    assert set(re.findall(r"'(\w+)'", said("urgent_kinds"))) == URGENT
