from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.agent import Agent
from perdure.agent.agent import with_teams
from perdure.agent.middleware import Middleware
from perdure.core.errors import DuplicateTool, InvalidAgent, InvalidTool
from perdure.core.records import Limits
from perdure.models.base import ModelRequest, ModelSettings, ToolSpec
from perdure.tools import Ask, tool
from perdure.tools.policy import Allow


@tool(key="order")
def refund(order: str) -> None:
    """Refund an order."""


@tool(effect="pure")
def look(order: str) -> None:
    """Look at an order."""


class Echo:
    name = "echo"
    group = "echo"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        yield request


def test_an_agent_needs_only_a_name() -> None:
    agent = Agent("support")

    assert (agent.name, agent.instructions, agent.model, agent.tools, agent.specs) == ("support", "", None, (), ())
    assert (agent.limits, agent.on_restart, agent.on_change) == (Limits(), "continue", "compatible")
    assert (agent.settings, agent.approval_timeout) == (ModelSettings(), None)


def test_a_model_is_a_name_or_a_model() -> None:
    model = Echo()

    assert Agent("support", model="openai:gpt-5.6-sol").model == "openai:gpt-5.6-sol"
    assert Agent("support", model=model).model is model


def test_tools_are_found_by_name_and_told_in_the_order_of_declaration() -> None:
    agent = Agent("support", tools=[refund, look])

    assert agent.tools == (refund, look)
    assert agent.tool("refund") is refund
    assert agent.tool("wipe") is None
    assert agent.specs[:2] == (
        ToolSpec(name="refund", description="Refund an order.", parameters=refund.parameters),
        ToolSpec(name="look", description="Look at an order.", parameters=look.parameters),
    )


def test_an_agent_that_archives_long_results_offers_the_tool_that_reads_them_last() -> None:
    agent = Agent("support", tools=[refund, look])

    assert [spec.name for spec in agent.specs] == ["refund", "look", "read_result"]
    assert agent.replace(archive=None).specs == agent.specs[:2]
    assert agent.replace(archive=None).tool("read_result") is None
    assert Agent("support").specs == ()


@pytest.mark.parametrize("archive", [0, 3_999, True, 20_000.0, "20000"])
def test_a_limit_of_results_that_is_none_is_refused(archive: object) -> None:
    with pytest.raises(InvalidAgent, match="archive="):
        Agent("support", archive=archive)  # type: ignore[arg-type]


def test_a_tool_of_ones_own_cant_have_the_name_of_the_one_that_reads_results() -> None:
    @tool(name="read_result")
    def mine() -> str:
        """Mine."""
        return ""

    with pytest.raises(DuplicateTool, match="read_result"):
        Agent("support", tools=[mine])
    assert Agent("support", tools=[mine], archive=None).tool("read_result") is mine


def test_approval_rules_belong_to_the_agents_own_tools() -> None:
    agent = Agent("support", tools=[refund, look], approve=["refund"])

    assert agent.policy.static("refund") == Ask()
    assert agent.policy.static("look") == Allow()
    with pytest.raises(InvalidAgent, match=r"'wipe', which is no tool of this agent.*refund, look"):
        Agent("support", tools=[refund, look], approve=["wipe"])
    with pytest.raises(InvalidAgent, match="it has no tools"):
        Agent("support", approve=["refund"])


def test_an_agent_cannot_be_changed_but_replaced() -> None:
    agent = Agent("support", tools=[refund], approve=["refund"])

    with pytest.raises(AttributeError):
        agent.name = "other"  # type: ignore[misc]
    other = agent.replace(tools=[refund, look], limits=Limits(steps=3))
    assert (agent.tools, other.tools, other.limits.steps, other.approve) == ((refund,), (refund, look), 3, ["refund"])
    with pytest.raises(InvalidAgent, match="'refund', which is no tool"):
        agent.replace(tools=[look])
    with pytest.raises(TypeError):
        agent.replace(colour="red")


def test_what_a_list_of_tools_becomes_later_changes_nothing() -> None:
    tools = [refund]
    agent = Agent("support", tools=tools)

    tools.append(look)

    assert agent.tools == (refund,)


def test_an_agent_prints_its_name_and_not_its_instructions() -> None:
    assert repr(Agent("support", instructions="a-secret", tools=[refund])) == "Agent('support', tools=[refund])"


@pytest.mark.parametrize("name", ["a", "Support (2nd line)", "é" * 128])
def test_a_name_is_up_to_128_printable_characters(name: str) -> None:
    assert Agent(name).name == name


@pytest.mark.parametrize("name", ["", "a" * 129, "two\nlines", "\x00", "\ud800", "   ", 7, None])
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidAgent, match=r"can't be an agent's name.*1 to 128 printable characters"):
        Agent(name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"instructions": None}, "instructions.*must be text"),
        ({"instructions": lambda: "x"}, "instructions.*must be text"),
        ({"instructions": "\ud800"}, "not valid Unicode"),
        ({"model": ""}, "the model of the agent"),
        ({"model": "  "}, "the model of the agent"),
        ({"model": 7}, "the model of the agent"),
        ({"model": Echo}, "the model of the agent"),
        ({"limits": {"steps": 3}}, "Limits"),
        ({"limits": Limits(steps=0)}, "steps=0.*at least 1.*which is 50"),
        ({"limits": Limits(steps=True)}, "steps=True"),
        ({"limits": Limits(tool_calls=-1)}, "tool_calls=-1.*at least 0"),
        ({"limits": Limits(tokens=2**60)}, "tokens"),
        ({"limits": Limits(tokens=1.5)}, "tokens=1.5"),  # type: ignore[arg-type]
        ({"on_restart": "again"}, "on_restart='again'.*continue, stop"),
        ({"on_change": None}, "on_change=None.*compatible, same, any"),
        ({"settings": {}}, "ModelSettings"),
        ({"settings": ModelSettings(temperature=float("nan"))}, "temperature is nan"),
        ({"settings": ModelSettings(extra={"x": object()})}, "can't be declared"),
        ({"approval_timeout": 0}, "approval_timeout"),
        ({"approval_timeout": float("inf")}, "approval_timeout"),
        ({"approval_timeout": "1h"}, "approval_timeout"),
    ],
)
def test_an_option_that_cannot_work_is_refused_and_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidAgent, match=words):
        Agent("support", **options)


def test_no_tool_calls_at_all_is_a_limit() -> None:
    assert Agent("support", limits=Limits(steps=None, tool_calls=0)).limits.tool_calls == 0


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (refund, "must be a list"),
        ("refund", "must be a list"),
        (None, "must be a list"),
        ([lambda: None], "plain function.*decorate it: @tool"),
        ([print], "plain function"),
        (["refund"], "is not a tool"),
        ([None], "is not a tool"),
    ],
)
def test_what_is_no_tool_is_refused(tools: Any, words: str) -> None:
    with pytest.raises(InvalidTool, match=words):
        Agent("support", tools=tools)


def test_two_tools_of_one_name_are_refused() -> None:
    other = tool(name="refund")(lambda: None)

    with pytest.raises(DuplicateTool, match="two tools named 'refund'"):
        Agent("support", tools=[refund, other])


class Named(Middleware):
    name = "named"


def with_method(name: str) -> Middleware:
    return type("Clerk", (Named,), {name: lambda self, ctx: None})()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("before_tools", "before_tool"),
        ("after_tool_call", "after_tool"),
        ("on_turn_end", "turn_end"),
        ("message_submitted", "message_submit"),
        ("stopp", "stop"),
        ("model_requests", "model_request"),
    ],
)
def test_a_hook_whose_name_is_misspelt_is_noticed_before_it_never_runs(written: str, meant: str) -> None:
    with pytest.raises(InvalidAgent, match=f"'{written}' of the middleware 'named' is no hook") as raised:
        Agent("support", middleware=[with_method(written)])
    assert meant in raised.value.hint


def test_helpers_and_handlers_of_a_middleware_are_called_what_they_like() -> None:
    class Clerk(Named):
        @property
        def commands(self) -> dict[str, Any]:  # type: ignore[override]
            return {"stop": self.stops}

        def stops(self, ctx: Any, arguments: dict[str, Any]) -> None: ...

        def _before_tools(self) -> None: ...

        def count(self) -> int:
            return 1

    assert Agent("support", middleware=[Clerk(), type("Other", (Clerk,), {"name": "other"})()]).middleware


def test_a_middleware_without_a_name_is_told_where_to_put_one() -> None:
    class Clerk(Middleware):
        pass

    with pytest.raises(InvalidAgent, match="the middleware Clerk has no name") as raised:
        Agent("support", middleware=[Clerk()])
    assert 'name = "clerk"' in raised.value.hint


def test_a_name_that_was_given_means_that_agent_whatever_a_team_calls_by_it() -> None:
    given = Agent("helper", instructions="new")
    lead = Agent("lead", tools=[Agent("helper", instructions="old").as_tool(), Agent("clerk").as_tool()])

    for agents in ([given, lead], [lead, given]):
        team = with_teams(agents)
        assert sorted(team) == ["clerk", "helper", "lead"]
        assert team["helper"] is given
