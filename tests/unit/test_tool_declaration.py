from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from perdure.core.errors import DuplicateTool, InvalidTool
from perdure.tools import ReconcileContext, Tool, ToolContext, as_tool, tool

if TYPE_CHECKING:
    from fractions import Fraction


class Item(BaseModel):
    sku: str
    count: int = 1


def python(program: str, seed: str = "0") -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONHASHSEED": seed}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_function_with_nothing_said_is_an_external_tool_that_asks_and_reports() -> None:
    @tool
    def refund(order: str) -> None:
        """Refund an order."""

    assert isinstance(refund, Tool)
    assert (refund.name, refund.description, refund.effect, refund.is_async) == ("refund", "Refund an order.", "external", False)
    assert (refund.key, refund.reconcile, refund.on_uncertain, refund.guard) == (None, None, "report", "ask")
    assert (refund.timeout, refund.exclusive) == (None, False)


def test_a_transactional_tool_without_a_context_could_never_have_its_transaction() -> None:
    with pytest.raises(InvalidTool, match="'book' is transactional and takes no context") as refused:

        @tool(effect="transactional")
        def book(seat: str) -> None:
            """Book."""

    assert "ctx.transaction" in refused.value.hint

    @tool(effect="transactional")
    def take(ctx: ToolContext, seat: str) -> object:
        """Take."""
        return ctx.transaction(lambda connection: None)

    assert take.effect == "transactional"


def test_everything_that_is_said_is_kept() -> None:
    def look(ctx: ReconcileContext, order: str) -> None: ...

    @tool(
        effect="idempotent",
        key=["order", "cents"],
        reconcile=look,
        on_uncertain="ask",
        guard="replay",
        timeout=2.5,
        exclusive=True,
        name="pay-back",
        description="Other words.",
    )
    async def refund(order: str, cents: int) -> None:
        """Refund an order."""

    assert (refund.name, refund.description, refund.effect, refund.is_async) == ("pay-back", "Other words.", "idempotent", True)
    assert (refund.key, refund.reconcile, refund.on_uncertain, refund.guard) == (("order", "cents"), look, "ask", "replay")
    assert (refund.timeout, refund.exclusive) == (2.5, True)


def test_a_tool_can_still_be_called_as_the_function_that_it_is() -> None:
    @tool(effect="pure")
    def add(one: int, other: int) -> int:
        return one + other

    assert add(1, other=2) == 3


def test_a_tool_cannot_be_changed() -> None:
    @tool
    def nothing() -> None: ...

    with pytest.raises(AttributeError):
        nothing.effect = "pure"  # type: ignore[misc]


def test_a_bound_method_is_a_tool_without_its_self() -> None:
    class Shop:
        def refund(self, order: str) -> str:
            return order

    made = tool(Shop().refund)

    assert list(made.parameters["properties"]) == ["order"]
    assert made.check({"order": "A"}).kwargs == {"order": "A"}


def test_a_wrapped_function_is_read_through_its_wrapper() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool
    @logged
    def refund(order: Literal["A", "B"]) -> str:
        """Refund."""
        return order

    assert refund.parameters["properties"]["order"]["enum"] == ["A", "B"]


def test_the_context_is_the_first_parameter_and_no_argument() -> None:
    @tool
    def refund(anything: ToolContext, order: str) -> None: ...

    @tool
    def annotated(ctx: Annotated[ToolContext, "mine"], order: str) -> None: ...

    assert list(refund.parameters["properties"]) == ["order"]
    assert list(annotated.parameters["properties"]) == ["order"]


def test_the_schema_says_what_the_function_takes() -> None:
    @tool
    def order(items: list[Item], note: Annotated[str | None, Field(max_length=9)] = None, express: bool = False) -> None:
        """Order.

        Args:
            items: What to send,
                and: each with its count.
            note (str): For the parcel: at most a line.
            nobody: Names no parameter.

        Returns:
            express: nothing of the kind.
        """

    assert order.parameters == {
        "$defs": {
            "Item": {
                "type": "object",
                "title": "Item",
                "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                "required": ["sku"],
            }
        },
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}, "description": "What to send, and: each with its count."},
            "note": {
                "anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}],
                "default": None,
                "description": "For the parcel: at most a line.",
            },
            "express": {"type": "boolean", "default": False},
        },
        "required": ["items"],
    }


def test_a_description_in_the_users_own_field_wins() -> None:
    @tool
    def refund(order: Annotated[str, Field(description="from the field")]) -> None:
        """Refund.

        Args:
            order: from the docstring
        """

    assert refund.parameters["properties"]["order"]["description"] == "from the field"


def test_a_docstring_of_several_lines_gives_its_first_paragraph() -> None:
    @tool
    def refund() -> None:
        """Refund an order
        at once.

        Never tell anybody.
        """

    @tool
    def short() -> None:
        """Args:
        none: at all
        """

    @tool
    def silent() -> None: ...

    assert refund.description == "Refund an order at once."
    assert short.description == ""
    assert silent.description == ""


def test_parameters_may_have_the_names_that_pydantic_uses_itself() -> None:
    @tool
    def odd(schema: str, model_config: int, json: bool, self: str, values: str, _private: str) -> None: ...

    given = {"schema": "s", "model_config": 1, "json": True, "self": "me", "values": "v", "_private": "p"}
    assert odd.check(given).kwargs == given


def test_the_schema_is_the_same_in_every_process() -> None:
    program = """
from __future__ import annotations
import enum, json
from typing import Literal
from pydantic import BaseModel
from perdure.tools import tool
class Colour(enum.Enum): RED = "red"; BLUE = "blue"; GREEN = "green"; GREY = "grey"
class Box(BaseModel):
    tags: set[str] = {"one", "two", "three", "four"}
@tool
def paint(box: Box, colour: Colour = Colour.RED, words: set[str] = {"a", "b", "c", "d"}, kind: Literal["x", "y"] = "x",
          colours: set[Colour] = set(Colour)): "Paint."
print(json.dumps(paint.parameters))
print(paint.effect_key({"box": {}}).hex())
"""

    printed = {python(program, seed) for seed in ("0", "1", "2", "3")}

    assert len(printed) == 1


def test_pydantic_is_imported_with_the_first_tool_and_not_before() -> None:
    program = """
import sys
import perdure.tools, perdure.agent, perdure.agent.definition
print("pydantic" in sys.modules)
perdure.agent.Agent("plain")
print("pydantic" in sys.modules)
@perdure.tools.tool
def nothing(): "Nothing."
print("pydantic" in sys.modules)
"""

    assert python(program).split() == ["False", "False", "True"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"effect": "harmless"}, "effect='harmless'.*pure, idempotent, transactional, external"),
        ({"on_uncertain": "guess"}, "on_uncertain='guess'"),
        ({"guard": None}, "guard=None"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1.0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"exclusive": 1}, "exclusive"),
        ({"description": 7}, "description"),
        ({"description": "\ud800"}, "not valid Unicode"),
        ({"name": "two words"}, "two words"),
        ({"name": ""}, "name"),
        ({"name": "n" * 65}, "name"),
        ({"name": 7}, "name"),
        ({"key": ("order", "colour")}, "'colour', which is no parameter.*it has order, cents"),
        ({"key": ("ctx",)}, "'ctx', which is no parameter"),
        ({"key": ()}, "names nothing"),
        ({"key": ("order", "order")}, "twice"),
        ({"reconcile": "look"}, "not a function"),
        ({"reconcile": dict}, "not a function"),
        ({"reconcile": lambda ctx, colour: None}, "'colour', which is no parameter"),
        ({"reconcile": lambda *args: None}, "can't be passed by name"),
    ],
)
def test_an_option_that_cannot_work_is_refused_and_named(options: dict[str, Any], words: str) -> None:
    def refund(ctx: ToolContext, order: str, cents: int) -> None: ...

    with pytest.raises(InvalidTool, match=words):
        tool(**options)(refund)


def test_one_key_may_be_a_single_name() -> None:
    @tool(key="order")
    def refund(order: str, cents: int) -> None: ...

    assert refund.key == ("order",)


def no_type(order) -> None: ...  # type: ignore[no-untyped-def]
def many(*orders: str) -> None: ...
def any_name(**orders: str) -> None: ...
def by_place(order: str, /) -> None: ...
def late_context(order: str, ctx: ToolContext) -> None: ...
def maybe_context(ctx: ToolContext | None) -> None: ...
def unseen(share: Fraction) -> None: ...
def syntax(order: "not a type") -> None: ...  # type: ignore[valid-type] # noqa: F722
def no_schema(callback: Callable[[], None]) -> None: ...
def strange(connection: subprocess.Popen[str]) -> None: ...
def yields() -> Any:
    yield 1


async def yields_later() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_type, "'order' of the tool 'no_type' has no type"),
        (many, r"takes \*orders"),
        (any_name, r"takes \*orders"),
        (by_place, "positional only"),
        (late_context, "'ctx'.*wrong place"),
        (maybe_context, "'ctx'.*wrong place"),
        (unseen, "'unseen' can't be resolved: name 'Fraction' is not defined.*module level"),
        (syntax, "'syntax' can't be resolved"),
        (no_schema, "'no_schema' have no JSON Schema"),
        (strange, "'strange' have no JSON Schema"),
        (yields, "yields"),
        (yields_later, "yields"),
        (lambda: None, "'<lambda>' can't be a tool's name"),
        (functools.partial(many), "partial can't be a tool"),
        (dict, "type can't be a tool"),
        (7, "int can't be a tool"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_the_reason(function: Any, words: str) -> None:
    with pytest.raises(InvalidTool, match=words):
        tool(function)


def test_a_type_that_only_a_function_knows_is_refused_where_annotations_are_strings() -> None:
    class Local(BaseModel):
        order: str

    with pytest.raises(InvalidTool, match="name 'Local' is not defined"):

        @tool
        def refund(order: Local) -> None: ...


def test_a_return_type_that_cannot_be_resolved_disturbs_nobody() -> None:
    @tool
    def half(whole: int) -> Fraction:  # type: ignore[empty-body]
        """Halve."""

    assert half.check({"whole": 4}).kwargs == {"whole": 4}


def test_a_tool_is_decorated_once() -> None:
    @tool
    def nothing() -> None: ...

    with pytest.raises(InvalidTool, match="is a tool already"):
        tool(nothing)


def test_a_plain_function_is_not_taken_for_a_tool() -> None:
    def refund(order: str) -> None: ...

    made = tool(refund)

    assert as_tool(made) is made
    with pytest.raises(InvalidTool, match=r"'refund' is a plain function.*decorate"):
        as_tool(refund)
    with pytest.raises(InvalidTool, match="'int' is not a tool"):
        as_tool(7)


def test_the_context_does_not_print_its_token() -> None:
    context = ToolContext(
        session_id="s", turn="t2", operation="t2.0.1", attempt=1, call="c", idempotency_key="pd_1", callback_token="a-secret"
    )

    assert "a-secret" not in repr(context)
    with pytest.raises(AttributeError):
        context.attempt = 2  # type: ignore[misc]


def test_a_duplicate_is_a_kind_of_invalid_tool() -> None:
    assert issubclass(DuplicateTool, InvalidTool)
