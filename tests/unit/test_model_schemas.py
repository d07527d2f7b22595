"""JSON Schemas as providers take them: nothing is accepted there that the type refuses, and what can't be said is not said."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel

from perdure.models.schemas import ANTHROPIC, OPENAI, fitted
from perdure.tools.schema import schema_of


class Tree(BaseModel):
    name: str
    leaves: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]


class Pet(BaseModel):
    animal: Cat | Dog


class Open(BaseModel):
    anything: Any


class Loose(BaseModel):
    model_config = {"extra": "allow"}

    name: str


class Pair(BaseModel):
    both: tuple[int, str]


def objects(schema: Any) -> list[dict[str, Any]]:
    """Every object in a schema."""
    if isinstance(schema, list):
        return [found for item in schema for found in objects(item)]
    if not isinstance(schema, dict):
        return []
    return ([schema] if schema.get("type") == "object" else []) + [found for item in schema.values() for found in objects(item)]


def test_every_object_is_closed_and_openai_wants_all_of_it() -> None:
    for dialect in (OPENAI, ANTHROPIC):
        made = fitted(schema_of(Pet)[1], dialect)
        assert made is not None
        assert len(objects(made)) == 3
        assert all(item["additionalProperties"] is False for item in objects(made))
    assert fitted(schema_of(Pet)[1], OPENAI)["$defs"]["Cat"]["required"] == ["kind", "lives"]  # type: ignore[index]


def test_a_type_that_holds_itself_is_for_those_who_take_recursion() -> None:
    schema = schema_of(Tree)[1]
    assert schema["type"] == "object", "the root is no reference"
    made = fitted(schema, OPENAI)
    assert made is not None
    assert made["properties"]["leaves"]["items"] == {"$ref": "#/$defs/Tree"}
    assert fitted(schema, ANTHROPIC) is None


@pytest.mark.parametrize("wanted", [Open, Pair, Loose, dict[str, int], dict])
@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC])
def test_what_can_t_be_enforced_is_not_half_enforced(wanted: Any, dialect: Any) -> None:
    assert fitted(schema_of(wanted)[1], dialect) is None


def test_the_schema_that_was_given_stays_what_it_is() -> None:
    schema = schema_of(Pet)[1]
    before = str(schema)
    fitted(schema, OPENAI)
    fitted(schema, ANTHROPIC)
    assert str(schema) == before


@pytest.mark.parametrize(
    ("given", "openai", "anthropic"),
    [
        ({"type": "string", "format": "uri"}, {"type": "string", "description": '(format: "uri")'}, {"type": "string", "format": "uri"}),
        ({"type": "array", "items": {"type": "null"}, "minItems": 3}, {"minItems": 3}, {"description": "(minItems: 3)"}),
        ({"type": "array", "items": {"type": "null"}, "minItems": 1}, {"minItems": 1}, {"minItems": 1}),
        ({"oneOf": [{"const": 1}, {"enum": [2]}], "discriminator": {}}, {"anyOf": [{"const": 1}, {"enum": [2]}]}, {}),
        ({"allOf": [{"type": "string"}], "default": "x"}, {"type": "string"}, {"type": "string"}),
    ],
)
def test_keywords_are_kept_where_they_are_enforced(given: Any, openai: Any, anthropic: Any) -> None:
    for dialect, expected in ((OPENAI, openai), (ANTHROPIC, anthropic)):
        made = fitted(given, dialect)
        assert made is not None
        assert {name: made[name] for name in expected} == expected
        assert "default" not in made


def test_definitions_that_share_many_others_are_looked_through_once() -> None:
    def part(number: int) -> dict[str, Any]:
        uses = {f"p{step}": {"$ref": f"#/$defs/D{step}"} for step in range(number + 1, min(number + 4, 60))}
        return {"type": "object", "properties": uses, "required": [*uses], "additionalProperties": False}

    schema = {**part(-1), "$defs": {f"D{number}": part(number) for number in range(60)}}
    assert fitted(schema, ANTHROPIC) is not None
    schema["$defs"]["D59"]["properties"]["back"] = {"$ref": "#/$defs/D0"}
    assert fitted(schema, ANTHROPIC) is None


def test_a_reference_to_the_whole_is_recursion_too() -> None:
    schema = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": [],
        "additionalProperties": False,
    }
    assert fitted(schema, ANTHROPIC) is None
