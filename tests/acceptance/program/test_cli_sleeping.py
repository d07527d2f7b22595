"""Turns that wait for a time, from a shell: who sleeps needs no process, and a command says so."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import time

import pytest

from perdure import Reply, ToolCall
from perdure.testing.wire import WireServer

from .conftest import Program

SLEEPERS = '''
from datetime import timedelta
from perdure import Agent, Reply, ScriptedModel, ToolCall, ToolContext, tool
from perdure.tools import sleep_tool

@tool(effect="external", resumable=True)
async def remind(ctx: ToolContext) -> str:
    """Come back in two days."""
    await ctx.sleep_until("two-days", timedelta(days=2))
    return "reminded"

def using(name, arguments, item, called="sleeper"):
    return Agent(called, model=ScriptedModel([Reply(tool_calls=[ToolCall(name, arguments)]), "Done."]), tools=[item])

step = using("remind", {}, remind)
timer = using("sleep", {"seconds": 172800}, sleep_tool())
child = using("sleeper", {"task": "Come back."}, step.as_tool(), "lead")
'''

DAY = 86_400_000


@pytest.fixture
def sleepers(perdure: Program) -> Program:
    (perdure.directory / "sleepers.py").write_text(SLEEPERS)
    return perdure


@pytest.mark.parametrize("kind", ["step", "timer", "child"])
def test_without_waiting_a_command_says_until_when_the_session_sleeps_and_ends(kind: str, sleepers: Program) -> None:
    agent, before = f"sleepers:{kind}", time.time() * 1000
    told = sleepers.json("run", agent, "go", "--session", "s", "--no-wait", code=6)
    assert told["status"] == "waiting"
    assert 0 < told["wake_at"] - before - DAY < 2 * DAY
    [again] = sleepers.json("resume", "s", "--agents", agent, "--no-wait", code=6)
    assert again == {"session": "s", "status": "waiting", "wake_at": told["wake_at"]}
    sleepers("resume", "s", "--agents", agent, "--no-wait", code=6)
    assert "it sleeps until " in sleepers.errors
    assert f"`perdure resume s --agents {agent}`" in sleepers.errors


@pytest.mark.parametrize(("kind", "name"), [("step", "remind/two-days"), ("timer", "sleep")])
def test_who_waits_is_told_until_when_and_can_stop_what_then_is_known(kind: str, name: str, sleepers: Program) -> None:
    waiting = sleepers.start("run", f"sleepers:{kind}", "go", "--session", "s")
    assert waiting.stderr is not None
    told = ""
    while f"{name} sleeps until " not in told:
        line = waiting.stderr.readline()
        assert line, f"the command ended, and never said it: {told}"
        told += line
    sleepers.until(lambda: sleepers.json("why", "s")["status"] == "waiting")
    waiting.send_signal(signal.SIGINT)
    sleepers.end(waiting, code=130)
    assert "nobody knows" not in sleepers.errors
    sleepers("uncertain")
    assert "nothing is uncertain" in sleepers.errors


def test_a_message_for_later_holds_up_no_command_that_does_not_wait(sleepers: Program) -> None:
    sleepers("run", "sleepers:step", "go", "--session", "s", "--no-wait", code=6)
    sleepers("interrupt", "s")
    sleepers("send", "s", "Again.", "--not-before", "2099-01-01T00:00:00Z")
    sleepers("resume", "s", "--agents", "sleepers:step", "--no-wait", code=6)
    assert "it sleeps until 20" in sleepers.errors


async def test_what_was_begun_with_another_model_is_gone_on_with_as_the_advice_says(sleepers: Program) -> None:
    async with WireServer([Reply(tool_calls=[ToolCall("sleep", {"seconds": 3600})]), "Awake."]) as server:
        wire = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": server.openai_url}

        async def run(*words: str, code: int = 0) -> None:
            await asyncio.to_thread(sleepers, *words, code=code, **wire)

        await run("run", "sleepers:timer", "go", "--model", "openai-chat:some", "--session", "s", "--no-wait", code=6)
        [advice] = re.findall("`perdure (resume .*?)`", sleepers.errors)
        await run("interrupt", "s")
        await run("send", "s", "again")
        await run(*shlex.split(advice))
    assert "Awake." in sleepers("show", "s")
