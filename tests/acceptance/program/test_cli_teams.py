"""Agents that call others, from a shell: whoever has one session open takes care of those that it called."""

from __future__ import annotations

import pytest

from .conftest import Program

TEAM = '''
from perdure import Agent, FunctionModel, Reply, ToolCall, tool

@tool(effect="external")
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"

def work(request):
    return Reply(tool_calls=[ToolCall("pay", {"amount": 5})]) if request.step == 0 else Reply("it is paid")

payer = Agent("payer", model=FunctionModel(work), tools=[pay], approve=["pay"])
clerk = Agent("clerk", model=FunctionModel(work), tools=[pay])

def ask(name):
    def play(request):
        first = all(message.role != "assistant" for message in request.messages)
        return Reply(tool_calls=[ToolCall(name, {"task": "Pay the bill."})]) if first else Reply("the lead is done")
    return FunctionModel(play)

lead = Agent("lead", model=ask("payer"), tools=[payer.as_tool()])
asker = Agent("asker", model=ask("payer"), tools=[payer.as_tool(background=True)])
caller = Agent("caller", model=ask("clerk"), tools=[clerk.as_tool()])
giver = Agent("giver", model=ask("clerk"), tools=[clerk.as_tool(background=True)])
'''


@pytest.fixture
def team(perdure: Program) -> Program:
    (perdure.directory / "team.py").write_text(TEAM)
    return perdure


def _approved(team: Program) -> str:
    team("run", "team:lead", "go", "--session", "s", "--no-wait", code=6)
    team("approve", "s")
    return team.errors


def test_a_child_that_is_resumed_by_itself_ends_its_command(team: Program) -> None:
    _approved(team)
    team("resume", "s.t2.0.1", "--agents", "team:payer")
    assert "completed" in team.errors
    assert [team.json("why", name)["status"] for name in ("s", "s.t2.0.1")] == ["queued", "idle"]
    team("resume", "s", "--agents", "team:lead")
    assert team.json("why", "s")["status"] == "idle"


def test_the_timeline_of_a_caller_names_the_sessions_of_those_that_it_called_and_adds_up(team: Program) -> None:
    team("run", "team:caller", "go", "--session", "s")
    shown = team("show", "s")
    assert "in s.t2.0.1 · 2 model calls" in shown
    assert shown.rstrip().endswith("2 steps · 1 tool call · 4 model calls, tokens unknown, called agents included")
    [turn] = team.json("show", "s")["turns"]
    [child] = [item for item in turn["items"] if item["type"] == "child"]
    assert (child["session"], child["spent"]["calls"]) == ("s.t2.0.1", 2)
    assert len([item for item in turn["items"] if item["type"] == "model"]) + child["spent"]["calls"] == turn["usage"]["calls"]


def test_who_decides_for_a_child_is_told_to_resume_its_caller_which_does_everything(team: Program) -> None:
    told = _approved(team)
    assert "a worker that has the agent 'lead' goes on with it" in told
    assert "`perdure resume s --agents YOUR_MODULE:…`" in told
    assert "the lead is done" in team("resume", "s", "--agents", "team:lead") + team.errors
    assert [team.json("why", name)["status"] for name in ("s", "s.t2.0.1")] == ["idle", "idle"]


def test_what_works_in_the_background_is_told_and_the_callers_resume_goes_on_with_it(team: Program) -> None:
    team("run", "team:asker", "go", "--session", "s", "--no-wait")
    child = "s.t2.0.1"
    assert child in team.errors
    assert "`perdure resume s --agents team:asker`, goes on with that" in team.errors
    facts = team.json("why", "s")
    assert (facts["status"], [item["session"] for item in facts["background"]]) == ("idle", [child])
    assert f"`perdure why {child}`" in facts["next"][0]
    assert f"payer works in the background in {child}" in team("why", "s")
    team("sessions")
    assert "s: an agent that it called is unfinished; `perdure why s`" in team.errors
    team("resume", "s", "--agents", "team:asker", "--no-wait")
    assert f"1 agent unfinished in the background: {child}" in team.errors

    resuming = team.start("resume", "s", "--agents", "team:asker")
    team.until(lambda: team.json("why", child)["status"] == "waiting")
    team("approve", child)
    team.end(resuming)
    assert team.json("why", child)["status"] == "idle"
    assert team.json("why", "s")["background"] == []
    assert "unfinished" not in team.errors
    assert team.json("why", "s")["next"][0].startswith("nothing is to be done")


def test_what_was_only_begun_in_the_background_is_done_by_the_callers_resume(team: Program) -> None:
    team("run", "team:giver", "go", "--session", "s")
    team("resume", "s", "--agents", "team:giver")
    assert [team.json("why", name)["status"] for name in ("s", "s.t2.0.1")] == ["idle", "idle"]
    assert team.json("why", "s")["background"] == []
