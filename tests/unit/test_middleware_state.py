"""What a middleware keeps for a session is a mapping like any other, and every change of it is known."""

from __future__ import annotations

import pytest

from perdure import UsageError
from perdure.agent.middleware import State


def test_all_that_a_mapping_can_do_is_a_change_that_is_kept() -> None:
    state = State("m", {"a": 1, "b": 2})
    assert (dict(state.items()), "a" in state, "x" in state, state.get("x", 7), len(state)) == ({"a": 1, "b": 2}, True, False, 7, 2)
    assert state.pop("a") == 1
    assert state.setdefault("c", [3]) == [3]
    state.update({"b": 4}, d=5)
    assert state == {"b": 4, "c": [3], "d": 5}
    assert {change.key: (change.value, change.dropped) for change in state.changes} == {
        "a": (None, True),
        "c": ([3], False),
        "b": (4, False),
        "d": (5, False),
    }
    with pytest.raises(KeyError):
        del state["a"]


def test_what_may_only_be_read_stays_as_it_is() -> None:
    state = State("m", {"a": 1}, fixed="not here")
    for change in (lambda: state.update(b=1), lambda: state.pop("a"), state.clear):
        with pytest.raises(UsageError, match="not here"):
            change()
    assert (dict(state), state.changes) == ({"a": 1}, ())
