"""A conversation that another agent takes over, and keeps."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, InvalidAgent, Limits, ModelRequest, Reply, Router, ScriptedModel, ToolCall, ToolCallResponse, tool
from perdure.core.entries import DefinitionChange, OperationEnded
from perdure.core.messages import Private

from .conftest import Stage


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def to(name: str) -> Reply:
    return Reply("", tool_calls=[call(f"transfer_to_{name}", reason="It is theirs.")])


@tool(effect="pure")
async def invoices() -> str:
    """List the invoices."""
    return "none"


def billing(*steps: Any, **options: Any) -> Agent:
    return Agent("billing", instructions="You bill.", model=ScriptedModel([*steps], name="other"), tools=[invoices], **options)


async def responses(runtime: Any, session: str = "s") -> list[Any]:
    history = await runtime.sessions.history(session)
    return [part.response for message in history for part in message.parts if isinstance(part, ToolCallResponse)]


@pytest.mark.spec("S0-306")
async def test_a_handoff_needs_a_reason_goes_on_as_the_target_and_is_bounded(stage: Stage) -> None:
    seen: list[ModelRequest] = []

    def last(request: ModelRequest) -> Reply:
        seen.append(request)
        return Reply("Billing here.")

    target = billing(Reply("unused"), Reply("unused"), last)
    front = Agent("front", model=ScriptedModel([Reply("", tool_calls=[call("transfer_to_billing")]), to("billing")]), handoffs=[target])
    async with stage.process() as runtime:
        result = await runtime.run(front, "Hello.", session="s", submission="m")

        without, done = await responses(runtime)
        assert "reason" in without
        assert done == "The conversation goes to billing."
        assert (result.output, result.status) == ("Billing here.", "completed")
        [request] = seen
        assert [spec.name for spec in request.tools][:1] == ["invoices"]
        assert request.instructions == "You bill."
        [changed] = [entry for entry in await runtime.sessions.entries("s") if isinstance(entry, DefinitionChange)]
        assert (changed.agent, changed.old == changed.new) == ("billing", False)
        assert (await runtime.sessions.info("s")).agent == "billing"

        limited = front.replace(limits=Limits(handoffs=0), model=ScriptedModel([to("billing"), Reply("I stay.")]))
        assert (await runtime.run(limited, "Hello.", session="t", submission="m")).output == "I stay."
        assert "0 times at most" in (await responses(runtime, "t"))[0]


@pytest.mark.spec("S0-306")
async def test_every_handoff_of_a_turn_counts_whoever_makes_it(stage: Stage) -> None:
    target = billing(Reply("unused"), to("front"), handoffs=["front"])
    model = ScriptedModel([to("billing"), Reply("unused"), to("billing"), Reply("Then I do it.")])
    front = Agent("front", model=model, handoffs=[target], limits=Limits(handoffs=2))
    async with stage.process() as runtime:
        result = await runtime.run(front, "Hello.", session="s", submission="m")

        assert result.output == "Then I do it."
        *_, refused = await responses(runtime)
        assert "2 times at most" in refused
        assert (await runtime.sessions.info("s")).agent == "front"


async def test_the_session_stays_with_the_target_also_in_another_process(stage: Stage) -> None:
    front = Agent("front", model=ScriptedModel([to("billing")]), handoffs=[billing(Reply("unused"), Reply("One."), Reply("Two."))])
    async with stage.process() as runtime:
        await runtime.run(front, "Hello.", session="s", submission="m1")
    async with stage.process() as runtime:
        target = billing(Reply("unused"), Reply("unused"), Reply("Two."))
        front = Agent("front", model=ScriptedModel([Reply("I should not be asked.")]), handoffs=[target])
        assert (await runtime.run(front, "And?", session="s", submission="m2")).output == "Two."


async def test_a_target_can_hand_back_by_name(stage: Stage) -> None:
    def back(request: ModelRequest) -> Reply:
        return to("front")

    target = billing(Reply("unused"), back, handoffs=["front"])
    model = ScriptedModel([to("billing"), Reply("unused"), Reply("Front again.")])
    async with stage.process() as runtime:
        result = await runtime.run(Agent("front", model=model, handoffs=[target]), "Hello.", session="s", submission="m")

        assert result.output == "Front again."
        assert (await runtime.sessions.info("s")).agent == "front"


async def test_a_handoff_to_somebody_whom_nobody_knows_is_an_error_that_the_model_reads(stage: Stage) -> None:
    front = Agent("front", model=ScriptedModel([to("sales"), Reply("They are out.")]), handoffs=["sales"])
    async with stage.process() as runtime:
        assert (await runtime.run(front, "Hello.", session="s", submission="m")).output == "They are out."
        assert "no agent 'sales'" in (await responses(runtime))[0]


async def test_what_was_private_to_the_first_agents_model_is_not_sent_to_the_seconds(stage: Stage) -> None:
    def last(request: ModelRequest) -> Reply:
        private = [part for message in request.messages for part in message.parts if isinstance(part, Private)]
        return Reply(f"{len(private)} private parts.")

    first = Reply("", tool_calls=[call("transfer_to_billing", reason="x")], private={"sealed": 1})
    front = Agent("front", model=Router({"one": ScriptedModel([first], name="one")}), handoffs=[billing(Reply("unused"), last)])
    async with stage.process() as runtime:
        assert (await runtime.run(front, "Hello.", session="s", submission="m")).output == "0 private parts."


async def test_one_of_two_handoffs_in_one_answer_counts(stage: Stage) -> None:
    both = Reply("", tool_calls=[call("transfer_to_billing", reason="x"), call("transfer_to_sales", reason="y")])
    sales = Agent("sales", model=ScriptedModel([Reply("Sales.")]))
    front = Agent("front", model=ScriptedModel([both]), handoffs=[billing(Reply("unused"), Reply("Billing.")), sales])
    async with stage.process() as runtime:
        assert (await runtime.run(front, "Hello.", session="s", submission="m")).output == "Billing."
        receipts = [entry for entry in await runtime.sessions.entries("s") if isinstance(entry, OperationEnded) and entry.failure]
        assert [entry.failure.code for entry in receipts if entry.failure] == ["handed_over"]


def test_what_can_not_be_handed_over_to_is_refused_where_it_is_declared() -> None:
    for wrong in ("sales", [3], [""], 7):
        with pytest.raises(InvalidAgent):
            Agent("front", handoffs=wrong)  # type: ignore[arg-type]
