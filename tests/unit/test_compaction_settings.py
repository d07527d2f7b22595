"""What may be asked of a compaction."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, Compaction
from perdure.agent.definition import describe, difference
from perdure.core.errors import InvalidAgent


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 0},
        {"threshold": True},
        {"threshold": 1.5},
        {"threshold": 2**60},
        {"bytes_per_token": 0},
        {"bytes_per_token": float("nan")},
        {"bytes_per_token": True},
        {"bytes_per_token": "4"},
        {"guidance": " "},
        {"guidance": None},
        {"guidance": "\ud800"},
    ],
)
def test_settings_that_cant_work_are_refused(options: Any) -> None:
    with pytest.raises(InvalidAgent):
        Compaction(**options)


def test_what_is_no_compaction_is_refused() -> None:
    with pytest.raises(InvalidAgent, match="compaction"):
        Agent("a", compaction=250_000)  # type: ignore[arg-type]


def test_it_is_part_of_the_definition_and_a_change_of_it_is_told() -> None:
    default, small, none = (describe(Agent("a", compaction=item)) for item in (Compaction(), Compaction(threshold=9), None))
    assert describe(Agent("a")) == default
    assert difference(default, small) == ("the compaction's threshold changed from 250000 to 9",)
    assert len(difference(default, none)) == 3
