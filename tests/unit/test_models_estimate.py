"""Estimates of tokens, and the windows that they are compared with."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import FunctionModel, Router, Text, ToolCall, ToolCallResponse, Uri
from perdure.core.errors import UsageError
from perdure.core.messages import Message, Part, Private, Reasoning
from perdure.models.anthropic import Anthropic
from perdure.models.base import ToolSpec
from perdure.models.estimate import Estimate, reserve_of
from perdure.models.openai import OpenAIResponses


def said(*parts: Part) -> Message:
    return Message(role="user", parts=parts)


def tokens(estimate: Estimate, *parts: Part, group: str | None = None) -> int:
    return estimate.tokens(estimate.message(said(*parts), group))


@pytest.mark.parametrize(("text", "expected"), [("", 8), ("abcd", 9), ("abcde", 10), ("ä" * 4, 10), ("€" * 4, 11), ("x" * 4_000, 1_008)])
def test_text_counts_a_token_for_four_bytes_rounded_up_and_eight_for_its_wrapping(text: str, expected: int) -> None:
    assert tokens(Estimate(), Text(text)) == expected


def test_another_ratio_counts_other_tokens() -> None:
    assert tokens(Estimate(ratio=2.0), Text("x" * 400)) == 208


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (ToolCall("look", {"at": "x" * 391}, "c"), 101),
        (ToolCallResponse(id="c", name="look", response="x" * 400), 100),
        (ToolCallResponse(id="c", name="look", response={"x": "y" * 392}), 100),
        (Uri(uri="https://example.org/cat.png", mime_type="image/png"), 1_500),
        (Uri(uri="data:image/png;base64," + "A" * 400_000), 1_500),
        (Uri(uri="data:application/pdf;base64," + "A" * 3_972), 1_000),
        (Reasoning(content="hm " * 400), -8 + 4),
        (Private(group="theirs", data={"x": "y" * 4_000}), -8 + 4),
    ],
)
def test_a_part_counts_what_of_it_is_sent(part: Part, expected: int) -> None:
    assert tokens(Estimate(), part) == 8 + expected


def test_private_parts_count_for_the_group_that_is_sent_them() -> None:
    part = Private(group="mine", data="x" * 398)
    assert tokens(Estimate(), part, group="mine") == 104
    assert tokens(Estimate(), part, group="theirs") == tokens(Estimate(), part) == 4


def test_instructions_and_tools_count_too() -> None:
    tool = ToolSpec(name="look", description="x" * 96, parameters={"type": "object"})
    assert Estimate().tokens(Estimate().around("y" * 400, [tool])) == 100 + 25 + 5


def test_a_tokenizer_counts_texts_instead_of_bytes() -> None:
    words = Estimate(count=lambda text: len(text.split()))
    assert tokens(words, Text("one two three")) == 3 + 8
    assert words.around("be kind", []) == 2
    assert words.units(5) == 5


@pytest.mark.parametrize(("window", "reserve"), [(1, 1), (7, 1), (8_000, 1_000), (128_000, 16_000), (1_000_000, 16_384)])
def test_an_eighth_of_a_window_stays_free_for_the_answer_and_never_more_than_16384(window: int, reserve: int) -> None:
    assert reserve_of(window) == reserve


def test_a_route_has_the_window_that_the_router_says_or_its_model_or_nobody() -> None:
    known, unknown = FunctionModel(lambda request: "", window=5_000), FunctionModel(lambda request: "")
    router = Router({"said": known, "known": known, "unknown": unknown, "claude": Anthropic("c")}, windows={"said": 9_000})
    assert [router.window(name) for name in router.names] == [9_000, 5_000, None, 200_000]


@pytest.mark.parametrize("windows", [{"other": 5}, {"a": 0}, {"a": True}, {"a": "5"}, {"a": 1.5}, {"a": 10**30}])
def test_a_window_that_is_none_is_refused(windows: Any) -> None:
    with pytest.raises(UsageError, match="window"):
        Router({"a": FunctionModel(lambda request: "")}, windows=windows)


@pytest.mark.parametrize("window", [0, -1, True, "5", 10**30])
def test_a_models_window_that_is_none_is_refused(window: Any) -> None:
    with pytest.raises(UsageError, match="window"):
        OpenAIResponses("gpt", window=window)
