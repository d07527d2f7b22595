"""What the manual says that a crash makes of a running call is what the rules make of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import story
from story import Story

from perdure.core.entries import OperationEnded, OperationStarted, TurnAborted, UncertainRequested

PAGE = Path(__file__).parents[3] / "docs" / "failures.md"


def _approved() -> Story:
    given = story.waiting()
    given.do(given.answer("t2.0.1", "approve"))
    return given


ROWS: dict[str, Callable[[], Story]] = {
    "model call": story.model,
    "notes for a compaction, memory, correction of an output": story.writing,
    "tool, `pure`": lambda: story.tools("pure"),
    "tool, `idempotent`": lambda: story.tools("idempotent"),
    "tool, `transactional`": lambda: story.tools("transactional"),
    "tool, `external`": story.tools,
    "tool, `external`, with `reconcile`": lambda: story.tools(reconcile=True),
    'tool, `external`, `on_uncertain="ask"`': lambda: story.tools(ask_when_uncertain=True),
    "tool, `resumable`": lambda: story.tools(resumable=True),
    "call that was decided on and not begun": _approved,
    "open approval or question": story.waiting,
    "turn between two calls, or waiting for a provider": story.backing_off,
}
"""What the page's first column names."""


def table() -> dict[str, tuple[str, str]]:
    """What the page says of each, with ``continue`` and with ``stop``."""
    section = PAGE.read_text().split("\n## What a crash makes of a running call\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]
    return {row[0].strip(): (row[1].strip(), row[2].strip()) for row in rows}


def test_the_page_has_a_row_for_everything_that_is_tried() -> None:
    assert [*table()] == [*ROWS]


@pytest.mark.parametrize("on_restart", ["continue", "stop"])
@pytest.mark.parametrize("what", ROWS)
def test_a_cell_says_whether_it_is_aborted_asked_run_again_or_uncertain(what: str, on_restart: str) -> None:
    said = table()[what][on_restart == "stop"]
    given = ROWS[what]()

    written = given.do(given.claim(on_restart=on_restart))
    going_on = given.checkpoint.turn is not None
    uncertain = any(isinstance(item, OperationEnded) and item.status == "uncertain" for item in written) and "tool" in what

    assert ("turn aborted" in said) == any(isinstance(item, TurnAborted) for item in written)
    assert ("turn aborted" in said) != going_on
    if "`reconcile`" in what and going_on:
        assert "the function is asked" in said
        assert given.operation("t2.0.1").status == "unknown"
    elif what != "tool, `idempotent`":
        assert ("*uncertain*" in said) == uncertain
    assert ("waits until a person decides" in said) == any(isinstance(item, UncertainRequested) for item in written)
    if re.match(r"(runs|asked) again|begins", said):
        again = [*given.starts()] if given.phase == "tools" else [*given.steps()]
        assert any(isinstance(item, OperationStarted) for item in again)
    if said == "stays open":
        assert given.phase == "waiting"


def test_an_idempotent_call_that_only_one_may_make_is_uncertain_where_it_is_not_run_again() -> None:
    given = story.tools("idempotent", unique="k")
    written = given.do(given.claim(on_restart="stop"))
    assert [item.status for item in written if isinstance(item, OperationEnded)] == ["uncertain"]
    assert "*uncertain* if it is `unique=`" in table()["tool, `idempotent`"][1]
