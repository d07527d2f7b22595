from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from perdure.agent import Agent
from perdure.agent.definition import compatible, describe, difference, fingerprint
from perdure.core import canonical
from perdure.core.records import Limits
from perdure.models.base import ModelRequest, ModelSettings
from perdure.tools import ApprovalCall, Done, Tool, tool


def look(ctx: object) -> Done:
    return Done()


def decide(call: ApprovalCall) -> Any:
    return "allow"


class Desk:
    def decide(self, call: ApprovalCall) -> Any:
        return "allow"

    def __call__(self, call: ApprovalCall) -> Any:
        return "allow"


class Echo:
    name = "echo:1"
    group = "echo"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        yield request


def a_refund(**options: Any) -> Tool:
    def refund(order: str, cents: int) -> None:
        """Refund an order."""

    settings: dict[str, Any] = {"key": ("order", "cents"), "reconcile": look}
    return tool(**settings | options)(refund)


def a_search() -> Tool:
    @tool(effect="pure")
    def search(words: str) -> None:
        """Search."""

    return search


def an_agent(**changes: Any) -> Agent:
    return Agent(
        "support", **{"instructions": "Be kind.", "model": "openai:x", "tools": [a_refund(), a_search()], "approve": ["refund"]} | changes
    )


def changes(**options: Any) -> tuple[str, ...]:
    old, new = an_agent(), an_agent(**options)
    assert fingerprint(old) != fingerprint(new)
    return difference(describe(old), describe(new))


def test_a_description_is_plain_data_that_comes_back_from_json_as_it_was() -> None:
    described = describe(an_agent())

    assert json.loads(canonical.encode(described)) == described
    assert canonical.check(described) == described
    assert described["instructions"] == canonical.digest(b"Be kind.")
    assert described["model"] == "openai:x"
    assert described["tools"][0] == {
        "name": "refund",
        "description": "Refund an order.",
        "parameters": a_refund().parameters,
        "effect": "external",
        "key": ["order", "cents"],
        "reconcile": f"{__name__}:look",
        "on_uncertain": "report",
        "guard": "ask",
        "timeout": None,
        "exclusive": False,
        "resumable": False,
        "unique": None,
        "version": None,
        "directory": None,
    }


def test_the_same_declaration_has_the_same_fingerprint() -> None:
    assert fingerprint(an_agent()) == fingerprint(an_agent())
    assert fingerprint(an_agent()) == canonical.digest(canonical.encode(describe(an_agent())))
    assert difference(describe(an_agent()), describe(an_agent())) == ()


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    program = """
from perdure.agent import Agent
from perdure.agent.definition import fingerprint
from perdure.core.records import Limits
from perdure.models.base import ModelSettings
from perdure.tools import tool
@tool(key=("one", "two"), reconcile=lambda ctx: None)
def refund(one: str, two: set[str] = {"a", "b", "c", "d"}): "Refund."
rules = {name: "ask" for name in {"refund"}}
print(fingerprint(Agent("a", tools=[refund], approve=rules, settings=ModelSettings(extra={"a": 1, "b": 2}))))
print(fingerprint(Agent("a", tools=[refund], approve=lambda call: "ask")))
"""
    printed = set()
    for seed in ("0", "1", "2"):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONHASHSEED": seed}
        printed.add(
            subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
        )

    assert len(printed) == 1


def test_how_a_resumed_turn_is_treated_is_no_part_of_the_definition() -> None:
    assert fingerprint(an_agent()) == fingerprint(an_agent(on_restart="stop", on_change="any"))


def test_a_model_counts_by_its_name() -> None:
    assert fingerprint(an_agent(model=Echo())) == fingerprint(an_agent(model="echo:1"))


@pytest.mark.parametrize(
    ("function", "identity"),
    [
        (decide, "decide"),
        (lambda call: "allow", "<lambda>"),
        (Desk().decide, "Desk.decide"),
        (Desk(), "Desk"),
        (functools.partial(decide), "decide(…)"),
    ],
)
def test_a_function_is_known_by_where_it_is_declared(function: Callable[..., Any], identity: str) -> None:
    assert describe(an_agent(approve=function))["approve"]["function"] == f"{__name__}:{identity}"


def test_every_difference_is_a_sentence() -> None:
    assert changes(instructions="Be strict.") == ("the instructions changed",)
    assert changes(model=None) == ('the model changed from "openai:x" to nothing',)
    assert changes(tools=[a_refund()]) == ("the tool 'search' was removed",)
    assert changes(tools=[a_refund(), a_search(), tool(look_up)]) == ("the tool 'look_up' was added",)
    assert changes(tools=[a_search(), a_refund()]) == ("the tools are in another order",)
    assert changes(approve={"refund": "allow", "search": "deny"}) == (
        'the approval of refund changed from "ask" to "allow"',
        'the approval of search changed from "allow" to "deny"',
    )
    assert changes(approve=decide) == (
        'the approval of refund changed from "ask" to "allow"',
        f'the approval function changed from nothing to "{__name__}:decide"',
    )
    assert changes(approval_timeout=60) == ("the approval timeout changed from nothing to 60",)
    assert changes(limits=Limits(steps=3)) == ("the limit steps changed from 50 to 3",)
    assert changes(settings=ModelSettings(temperature=0.5)) == ("the setting temperature changed from nothing to 0.5",)


def test_every_difference_of_a_tool_is_a_sentence() -> None:
    def with_tool(**options: Any) -> tuple[str, ...]:
        return changes(tools=[a_refund(**options), a_search()])

    assert with_tool(description="Pay back.") == ("the description of the tool 'refund' changed",)
    assert with_tool(effect="idempotent") == ('of the tool \'refund\', the effect changed from "external" to "idempotent"',)
    assert with_tool(key="order") == ('of the tool \'refund\', the key changed from ["order","cents"] to ["order"]',)
    assert with_tool(reconcile=None) == (f"of the tool 'refund', the reconcile changed from \"{__name__}:look\" to nothing",)
    assert with_tool(timeout=5, exclusive=True) == (
        "of the tool 'refund', the exclusive changed from false to true",
        "of the tool 'refund', the timeout changed from nothing to 5",
    )


def look_up(words: str) -> None: ...


def one(order: str, cents: int, where: list[int]) -> None: ...
def other(order: str, cents: str, why: str, where: list[int] = []) -> None: ...  # noqa: B006


def test_every_difference_of_a_parameter_is_a_sentence() -> None:
    old, new = (describe(Agent("a", tools=[tool(name="refund")(function)])) for function in (one, other))

    assert difference(old, new) == (
        "the tool 'refund' gained the parameter 'why'",
        "the parameter 'cents' of the tool 'refund' changed",
        "the parameter 'where' of the tool 'refund' became optional",
    )
    assert difference(new, old) == (
        "the tool 'refund' lost the parameter 'why'",
        "the parameter 'cents' of the tool 'refund' changed",
        "the parameter 'where' of the tool 'refund' became required",
    )


def test_a_change_inside_a_type_is_seen() -> None:
    old = describe(an_agent())
    new = json.loads(json.dumps(old))
    new["tools"][0]["parameters"]["$defs"] = {"Item": {"type": "object"}}

    assert difference(old, new) == ("a type that the tool 'refund' uses changed",)


def test_a_description_of_another_version_is_said_to_be_one() -> None:
    old = describe(an_agent())

    assert difference(old | {"format": 0}, old) == ("the definition was written by another version of perdure",)
    assert difference({}, old)[:2] == ('the name changed from nothing to "support"', 'the model changed from nothing to "openai:x"')


def test_a_turn_goes_on_under_whatever_touches_nothing_that_is_open() -> None:
    old = an_agent()
    new = an_agent(
        instructions="Be strict.", model="anthropic:y", tools=[a_refund(effect="idempotent")], approve=(), limits=Limits(steps=1)
    )
    refund = new.tool("refund")
    assert refund is not None

    assert compatible(describe(old), describe(new), open_tools={"refund"}, open_arguments=[(refund, {"order": "A", "cents": 5})]) == ()


def test_an_open_call_of_a_removed_tool_stops_the_turn() -> None:
    reasons = compatible(describe(an_agent()), describe(an_agent(tools=[], approve=())), open_tools={"search", "refund"})

    assert reasons == (
        "the tool 'refund' was removed, and a call of it is open",
        "the tool 'search' was removed, and a call of it is open",
    )


def test_open_arguments_that_no_longer_fit_stop_the_turn() -> None:
    refund = tool(name="refund")(other)
    new = an_agent(tools=[refund, a_search()])

    reasons = compatible(
        describe(an_agent()), describe(new), open_tools={"refund"}, open_arguments=[(refund, {"order": "A", "cents": "5"})]
    )

    assert reasons == ("an open call no longer fits the tool 'refund': the arguments of refund are not valid: why: is required",)


def test_a_turn_of_another_agent_or_with_another_promised_output_stops() -> None:
    old, new = describe(an_agent()), describe(Agent("sales"))

    assert compatible(old, new, open_tools=set()) == ('the turn belongs to the agent "support", not to "sales"',)
    promised = old | {"output": {"schema": {"type": "object"}, "validators": []}}
    assert compatible(promised, old, open_tools=set()) == ("the output type that the turn promised changed",)
    # What the model was never asked for it won't say.
    assert compatible(old, promised, open_tools=set()) == ("the output type that the turn promised changed",)
    assert compatible(promised | {"output": promised["output"] | {"validators": ["m:f"]}}, promised, open_tools=set()) == ()
