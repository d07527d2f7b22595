from __future__ import annotations

import datetime
import enum
import logging
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field

from perdure.core import canonical
from perdure.tools import ArgumentsInvalid, Tool, ToolContext, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    sku: str
    tags: set[str] = set()


@dataclass
class Place:
    street: str
    number: int


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


def broken(value: str) -> str:
    raise KeyError(value)


@tool(key=("order", "cents"))
def refund(ctx: ToolContext, order: str, cents: int, why: str = "") -> None:
    """Refund."""


@tool
def everything(
    day: datetime.date,
    moment: datetime.datetime,
    price: Decimal,
    colour: Colour,
    item: Item,
    place: Place,
    pair: tuple[int, str],
    words: set[str],
    number: UUID,
    data: bytes = b"",
    shared: list[int] = [],  # noqa: B006
) -> None:
    """Everything."""


def refused(made: Tool, arguments: Any) -> str:
    with pytest.raises(ArgumentsInvalid) as raised:
        made.check(arguments)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    return str(raised.value)


def test_arguments_become_the_values_that_the_function_is_annotated_with() -> None:
    arguments = {
        "day": "2026-02-03",
        "moment": "2026-02-03T04:05:06Z",
        "price": "12.50",
        "colour": "blue",
        "item": {"sku": "A", "tags": ["x"]},
        "place": {"street": "Long", "number": 3},
        "pair": [1, "one"],
        "words": ["b", "a", "b"],
        "number": "12345678-1234-5678-1234-567812345678",
    }

    bound = everything.check(arguments)

    assert bound.arguments == arguments
    assert bound.kwargs == {
        "day": datetime.date(2026, 2, 3),
        "moment": datetime.datetime(2026, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
        "price": Decimal("12.50"),
        "colour": Colour.BLUE,
        "item": Item(sku="A", tags={"x"}),
        "place": Place("Long", 3),
        "pair": (1, "one"),
        "words": {"a", "b"},
        "number": UUID("12345678-1234-5678-1234-567812345678"),
        "data": b"",
        "shared": [],
    }


def test_each_call_gets_its_own_copy_of_a_default() -> None:
    @tool
    def collect(found: list[int] = []) -> None: ...  # noqa: B006

    one, other = collect.check({}), collect.check({})
    one.kwargs["found"].append(1)

    assert other.kwargs["found"] == []


def test_every_wrong_field_is_named_at_once_and_no_value_is_repeated() -> None:
    words = refused(refund, {"cents": "a-secret", "colour": "another-secret", "why": ["third-secret"]})

    assert words.startswith("the arguments of refund are not valid: ")
    assert "order: is required" in words
    assert "cents: Input should be a valid integer" in words
    assert "colour: there is no such parameter" in words
    assert "why: Input should be a valid string" in words
    assert "secret" not in words


def test_a_wrong_field_inside_a_model_is_named_by_its_path() -> None:
    @tool
    def send(items: list[Item]) -> None: ...

    assert "items.1.sku: Field required" in refused(send, {"items": [{"sku": "A"}, {}]})


def test_the_context_cannot_be_given_by_the_model() -> None:
    assert "ctx: there is no such parameter" in refused(refund, {"order": "A", "cents": 1, "ctx": {"session_id": "other"}})


def test_text_that_was_no_json_is_refused_as_such() -> None:
    assert refused(refund, '{"order": "A", ') == "the arguments of refund are not valid JSON; send one JSON object"


@pytest.mark.parametrize(("arguments", "words"), [(["A", 1], "a list"), (None, "null"), (True, "a boolean"), (1.5, "a number")])
def test_arguments_that_are_no_object_are_refused(arguments: Any, words: str) -> None:
    assert refused(refund, arguments) == f"the arguments of refund must be one JSON object, not {words}"


@pytest.mark.parametrize("value", [float("nan"), 2**53 + 1, "\ud800", {1: "x"}, object()])
def test_arguments_that_json_cannot_keep_are_refused(value: Any) -> None:
    assert "can't be kept: arguments.why" in refused(refund, {"order": "A", "cents": 1, "why": value})


def test_a_message_stays_readable_whatever_the_model_sent() -> None:
    words = refused(refund, {"order": "A", "cents": 1} | {f"{number}-{'x' * 5000}": 0 for number in range(100)})

    assert words.endswith("; and 80 more")
    assert len(words) < 4_000


def test_the_users_own_validators_speak_to_the_model() -> None:
    @tool
    def pair(count: Annotated[int, AfterValidator(even)]) -> None: ...

    assert "count: Value error, must be even" in refused(pair, {"count": 3})


def test_a_validator_that_crashes_is_an_invalid_argument_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def pair(word: Annotated[str, AfterValidator(broken)]) -> None: ...

    with caplog.at_level(logging.ERROR, "perdure.tools"):
        words = refused(pair, {"word": "a-secret"})

    assert words == "the arguments of pair could not be checked: a validator raised KeyError"
    assert "a validator of the tool pair failed" in caplog.text


def test_an_alias_is_the_name_that_the_model_knows() -> None:
    @tool(key=("order",))
    def look(order: Annotated[str, Field(alias="orderId")]) -> None: ...

    assert list(look.parameters["properties"]) == ["orderId"]
    assert look.check({"orderId": "A"}).kwargs == {"order": "A"}
    assert look.effect_key({"orderId": "A"}) != look.effect_key({"orderId": "B"})


def test_an_effect_key_is_the_tool_a_zero_byte_and_a_digest_of_the_selected_values() -> None:
    key = refund.effect_key({"order": "A", "cents": 5, "why": "late"})

    assert key == b"refund\x00" + bytes.fromhex(canonical.digest(b'["A",5]'))
    assert len(key) == len("refund") + 1 + 32


def test_what_the_key_does_not_name_makes_no_other_effect() -> None:
    assert refund.effect_key({"order": "A", "cents": 5, "why": "late"}) == refund.effect_key({"cents": 5, "order": "A"})
    assert refund.effect_key({"order": "A", "cents": 5}) != refund.effect_key({"order": "A", "cents": 6})


def test_another_spelling_of_the_same_value_is_the_same_effect() -> None:
    @tool
    def pay(price: Decimal, count: int, words: set[str], item: Item, where: Place | None = None) -> None: ...

    one = {"price": "12.50", "count": 5, "words": ["a", "b"], "item": {"sku": "A", "tags": ["x", "y"]}}
    other = {"item": {"tags": ["y", "x"], "sku": "A"}, "words": ["b", "a", "a"], "count": "5", "price": 12.5, "where": None}

    assert refund.effect_key({"order": "A", "cents": "5"}) == refund.effect_key({"order": "A", "cents": 5})
    assert pay.effect_key(one) == pay.effect_key(other)
    assert pay.effect_key(one) != pay.effect_key(one | {"where": {"street": "Long", "number": 1}})


def test_without_a_key_all_arguments_count_defaults_included() -> None:
    @tool
    def greet(name: str, loud: bool = False) -> None: ...

    assert greet.effect_key({"name": "Ann"}) == greet.effect_key({"name": "Ann", "loud": False})
    assert greet.effect_key({"name": "Ann"}) != greet.effect_key({"name": "Ann", "loud": True})


def test_a_value_that_json_cannot_hold_still_has_a_key() -> None:
    @tool
    def wait(seconds: float, big: int = 0, by: dict[int, Colour] = {}) -> None: ...  # noqa: B006

    keys = {
        wait.effect_key({"seconds": seconds, "big": big, "by": by})
        for seconds, big, by in (
            ("inf", 0, {}),
            ("-inf", 0, {}),
            (1, 10**15, {}),
            (1, "9" * 30, {}),
            (1, 0, {"1": "red"}),
            (1, 0, {"1": "blue"}),
        )
    }

    assert len(keys) == 6


@pytest.mark.parametrize("arguments", [{"order": "A"}, {}, "not json", None, [1]])
def test_arguments_that_do_not_fit_have_a_key_nevertheless(arguments: Any) -> None:
    assert refund.effect_key(arguments).startswith(b"refund\x00")
